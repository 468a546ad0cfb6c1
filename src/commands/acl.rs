//! ACL for a server with one user, `default`, which has all permissions after
//! authentication with `requirepass`.
//!
//! Only [`DefaultUser`] here and the check of the password in [`super::connection`]
//! know about users.

use super::args::{self, Options};
use super::command::categories;
use super::connection::DEFAULT_USER;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::commands::table::help;
use crate::commands::table::registry::{Registered, registry};
use crate::commands::table::secrets::Secret;
use crate::commands::table::spec::Group;
use crate::state::config::Config;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Bits of a GENPASS password: default and maximum.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;
/// Bits of a hexadecimal digit.
const DIGIT_BITS: usize = 4;

const NO_FILE: Error = Error::text(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
);
const NO_USERS: Error = Error::text(
    "ERR there are no ACL users in this server: the password of the user 'default' is `requirepass`",
);
const BAD_BITS: Error = Error::text(
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
);

/// The user `default`, as replies describe it.
struct DefaultUser {
    flags: Vec<&'static str>,
    /// SHA-256, in hexadecimal digits.
    password: Option<String>,
}

const COMMANDS_ALLOWED: &str = "+@all";
const KEYS_ALLOWED: &str = "~*";
const CHANNELS_ALLOWED: &str = "&*";

impl DefaultUser {
    fn of(config: &Config) -> DefaultUser {
        let required = &config.requirepass;
        let mut flags = vec!["on"];
        if required.is_empty() {
            flags.push("nopass");
        }
        flags.push("sanitize-payload");
        DefaultUser {
            flags,
            password: (!required.is_empty()).then(|| hex(&Sha256::digest(&required.0))),
        }
    }

    /// As a line of a configuration file.
    fn line(&self) -> String {
        let mut words = vec!["user".to_owned(), DEFAULT_USER.to_owned()];
        words.extend(self.flags.iter().map(|flag| (*flag).to_owned()));
        words.extend(self.password.iter().map(|hash| format!("#{hash}")));
        words.extend([KEYS_ALLOWED, CHANNELS_ALLOWED, COMMANDS_ALLOWED].map(str::to_owned));
        words.join(" ")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn is_default(name: &[u8]) -> bool {
    name == DEFAULT_USER.as_bytes()
}

fn whoami(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let user = ctx.session.info.names.lock().user.clone();
    ctx.reply.bulk(user.as_bytes());
    Ok(())
}

fn users(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.reply.array(1);
    ctx.reply.bulk(DEFAULT_USER.as_bytes());
    Ok(())
}

fn list(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let user = DefaultUser::of(&ctx.server.config.load());
    ctx.reply.array(1);
    ctx.reply.bulk(user.line().as_bytes());
    Ok(())
}

fn getuser(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if !args.get(2).is_some_and(|name| is_default(name)) {
        ctx.reply.null();
        return Ok(());
    }
    let user = DefaultUser::of(&ctx.server.config.load());
    let reply = &mut *ctx.reply;
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(user.flags.len());
    for flag in &user.flags {
        reply.bulk(flag.as_bytes());
    }
    reply.bulk(b"passwords");
    reply.array(usize::from(user.password.is_some()));
    if let Some(hash) = &user.password {
        reply.bulk(hash.as_bytes());
    }
    for (name, allowed) in [
        ("commands", COMMANDS_ALLOWED),
        ("keys", KEYS_ALLOWED),
        ("channels", CHANNELS_ALLOWED),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(allowed.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

fn setuser(_ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    Err(NO_USERS)
}

fn deluser(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.iter().skip(2).any(|name| is_default(name)) {
        return Err(Error::text("ERR The 'default' user cannot be removed"));
    }
    ctx.reply.int(0);
    Ok(())
}

fn cat(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let wanted = match args {
        [_, _] => {
            ctx.reply.array(categories::ALL.len());
            for name in categories::ALL {
                ctx.reply.bulk(name.as_bytes());
            }
            return Ok(());
        }
        [_, _, wanted] => wanted,
        _ => return Err(help::mistaken(args)),
    };
    let mut known = categories::ALL.into_iter();
    let Some(category) = known.find(|name| args::is(wanted, name)) else {
        let wanted = String::from_utf8_lossy(wanted);
        return Err(Error::owned(format!("ERR Unknown category '{wanted}'")));
    };
    let mut names = Vec::new();
    for command in registry().iter() {
        let each = [command].into_iter().chain(command.told_subcommands());
        let fitting = each.filter(|each| categories::of(each.command).contains(&category));
        names.extend(fitting.map(|each| each.full_name.as_bytes()));
    }
    ctx.reply.array(names.len());
    for name in names {
        ctx.reply.bulk(name);
    }
    Ok(())
}

fn genpass(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let bits = match args {
        [_, _] => PASSWORD_BITS,
        [_, _, bits] => args::int(bits)?,
        _ => return Err(help::mistaken(args)),
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(BAD_BITS);
    }
    let digits = usize::try_from(bits).unwrap_or(0).div_ceil(DIGIT_BITS);
    let mut bytes = vec![0; digits.div_ceil(2)];
    if let Err(error) = getrandom::fill(&mut bytes) {
        return Err(Error::owned(format!("ERR no random bytes: {error}")));
    }
    let mut password = hex(&bytes);
    password.truncate(digits);
    ctx.reply.bulk(password.as_bytes());
    Ok(())
}

/// No command is ever denied, so the log is empty.
fn log(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    match args {
        [_, _] => ctx.reply.array(0),
        [_, _, word] if args::is(word, "RESET") => ctx.reply.ok(),
        [_, _, count] => {
            args::int(count)?;
            ctx.reply.array(0);
        }
        _ => return Err(help::mistaken(args)),
    }
    Ok(())
}

fn no_file(_ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    Err(NO_FILE)
}

/// The command or subcommand that the words name.
fn named(words: &[&[u8]]) -> Option<&'static Registered> {
    let command = registry().find(words.first()?)?;
    if command.told_subcommands().is_empty() {
        return Some(command);
    }
    match words.get(1) {
        None => Some(command),
        Some(subcommand) => command.told_subcommand(subcommand),
    }
}

fn dryrun(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 2);
    let user = options.value()?;
    if !is_default(user) {
        let user = String::from_utf8_lossy(user);
        return Err(Error::owned(format!("ERR User '{user}' not found")));
    }
    let words = args.get(3..).unwrap_or_default();
    let Some(found) = named(words) else {
        let command = String::from_utf8_lossy(options.value()?);
        return Err(Error::owned(format!("ERR Command '{command}' not found")));
    };
    if !found.command.takes(words.len()) {
        return Err(Error::Arity(found.full_name.as_str().into()));
    }
    ctx.reply.ok();
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "CAT [<category>]",
        &["The categories, or the commands of one."],
    ),
    (
        "DELUSER <username> [<username> ...]",
        &["Remove users; there are none that could be removed."],
    ),
    (
        "DRYRUN <username> <command> [<arg> ...]",
        &["Whether a user may run a command, without running it."],
    ),
    ("GETUSER <username>", &["What a user may do."]),
    (
        "GENPASS [<bits>]",
        &["A password of random bits, 256 unless told."],
    ),
    ("LIST", &["The users, as lines of a configuration file."]),
    ("LOAD", &["Read the users from the ACL file again."]),
    (
        "LOG [<count> | RESET]",
        &["What users were refused, or forget it."],
    ),
    ("SAVE", &["Write the users into the ACL file."]),
    (
        "SETUSER <username> <attribute> [<attribute> ...]",
        &["Make or change a user; there is only 'default'."],
    ),
    ("USERS", &["The names of the users."]),
    ("WHOAMI", &["The user of this connection."]),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "ACL", HELP);
    Ok(())
}

const HELPS: Flags = Flags::LOADING.union(Flags::STALE).union(Flags::SENTINEL);
const OPEN: Flags = HELPS.union(Flags::NOSCRIPT);
const ADMIN: Flags = OPEN.union(Flags::ADMIN);

const fn row(command: Command, flags: Flags, summary: &'static str) -> Command {
    command.flags(flags).doc(Group::Server, "6.0.0", summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("cat", -2, cat).syntax("[category]"),
        OPEN,
        "Lists the ACL categories, or the commands of one",
    ),
    row(
        Command::session("deluser", -3, deluser).syntax("username..."),
        ADMIN,
        "Removes users",
    ),
    Command::session("dryrun", -4, dryrun)
        .syntax("username command [arg...]")
        .flags(ADMIN)
        .doc(
            Group::Server,
            "7.0.0",
            "Returns whether a user may run a command",
        ),
    row(
        Command::session("genpass", -2, genpass).syntax("[bits:int]"),
        OPEN,
        "Generates a password",
    ),
    row(
        Command::session("getuser", 3, getuser)
            .syntax("username")
            .history(&[
                ("6.2.0", "Added the channels"),
                ("7.0.0", "Keys and channels are rules; added the selectors"),
            ]),
        ADMIN,
        "Returns the rules of a user",
    ),
    row(
        Command::session("help", 2, help),
        HELPS,
        "Lists the subcommands",
    ),
    row(
        Command::session("list", 2, list),
        ADMIN,
        "Returns the users as lines of a configuration file",
    ),
    row(
        Command::session("load", 2, no_file),
        ADMIN,
        "Reads the users from the ACL file",
    ),
    row(
        Command::session("log", -2, log)
            .syntax("[operation=(count:int|RESET)]")
            .history(&[("7.2.0", "Entries have numbers and times")]),
        ADMIN,
        "Returns the denied commands and logins",
    ),
    row(
        Command::session("save", 2, no_file),
        ADMIN,
        "Writes the users into the ACL file",
    ),
    row(
        Command::session("setuser", -3, setuser)
            .syntax("username [rule...]")
            .history(&[
                ("6.2.0", "Takes patterns of channels"),
                ("7.0.0", "Takes selectors and key permissions"),
            ])
            .secret(Secret::From(2)),
        ADMIN,
        "Creates or changes a user",
    ),
    row(
        Command::session("users", 2, users),
        ADMIN,
        "Returns the names of the users",
    ),
    row(
        Command::session("whoami", 2, whoami),
        OPEN,
        "Returns the user of the connection",
    ),
];

/// The rows of ACL.
pub const COMMANDS: &[Command] = &[row(
    Command::container("acl", -2, SUBCOMMANDS),
    Flags::SENTINEL,
    "Commands about users",
)];
