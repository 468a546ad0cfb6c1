//! ACL: users, what they may do, and what they were refused.
//!
//! | file | what it is for |
//! |---|---|
//! | [`rules`] | rules of users as texts |
//! | [`check`] | whether a user may run a command |
//! | [`refusal`] | entries of ACL LOG |
//! | [`audit`] | lines of the audit log |
//! | [`file`] | users in files |
//! | [`certificate`] | logins by certificates of clients |
//!
//! The state is [`crate::state::acl`]. The executor checks each command before it runs.

pub mod audit;
pub mod certificate;
pub mod check;
pub mod file;
pub mod refusal;
pub mod rules;

use self::check::Place;
use self::rules::Defaults;
use super::args::{self, Options};
use super::client;
use super::command::categories;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::commands::table::help;
use crate::commands::table::registry::{Registered, registry};
use crate::commands::table::spec::Group;
use crate::commands::table::spec::Secret;
use crate::commands::table::tips::Tip;
use crate::state::acl::users::Change;
use crate::state::acl::{DEFAULT_USER, Selector, User};
use crate::state::subscriptions::SubscriptionKind;
use std::fmt::Write;
use std::sync::Arc;

/// Bits of a GENPASS password: default and maximum.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;
/// Bits of a hexadecimal digit.
const DIGIT_BITS: usize = 4;
/// Entries that ACL LOG returns unless told.
const LOGGED: i64 = 10;

const NO_FILE: Error = Error::text(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
);
const NOT_SAVED: Error = Error::text(
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
);
const BAD_NAME: Error = Error::text("ERR Usernames can't contain spaces or null characters");
const BAD_BITS: Error = Error::text(
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
);

/// An error that quotes bytes of the client.
fn quoting(before: &str, quoted: &[u8], after: &str) -> Error {
    Error::Bytes([before.as_bytes(), quoted, after.as_bytes()].concat())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn whoami(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    match ctx.session.login.user() {
        Some(user) => ctx.reply.bulk(user.name()),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn users(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let users = ctx.server.users.all();
    ctx.reply.array(users.len());
    users.iter().for_each(|user| ctx.reply.bulk(user.name()));
    Ok(())
}

fn list(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let users = ctx.server.users.all();
    ctx.reply.array(users.len());
    users
        .iter()
        .for_each(|user| ctx.reply.bulk(&file::line(user)));
    Ok(())
}

fn getuser(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let name = args.get(2).copied().unwrap_or_default();
    let Some(user) = ctx.server.users.get(name) else {
        ctx.reply.null();
        return Ok(());
    };
    let rules = user.rules();
    let reply = &mut *ctx.reply;
    reply.map(7);
    reply.bulk(b"flags");
    let flags = rules.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(rules.passwords.len());
    for hash in &rules.passwords {
        reply.bulk(hash.to_string().as_bytes());
    }
    describe(reply, &rules.root);
    reply.bulk(b"selectors");
    reply.array(rules.selectors.len());
    for selector in &rules.selectors {
        reply.map(4);
        describe(reply, selector);
    }
    Ok(())
}

/// Four pairs of a map.
fn describe(reply: &mut crate::resp::Reply, selector: &Selector) {
    reply.bulk(b"commands");
    reply.bulk(selector.commands_text().as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&selector.keys_text());
    reply.bulk(b"channels");
    reply.bulk(&selector.channels_text());
    reply.bulk(b"databases");
    reply.bulk(selector.dbs_text().as_bytes());
}

fn setuser(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let name = args.get(2).copied().unwrap_or_default();
    if rules::is_bad_name(name) {
        return Err(BAD_NAME);
    }
    let given = args.get(3..).unwrap_or_default();
    let joined = rules::join_selectors(given).map_err(|word| {
        let before = "ERR Unmatched parenthesis in acl selector starting at '";
        quoting(before, &rules::shown(&word), "'.")
    })?;
    let defaults = Defaults::of(&ctx.server.config.load());
    let changed = ctx.server.users.change(name, |known| {
        let mut user = known.cloned().unwrap_or_else(|| defaults.user());
        for rule in &joined {
            rules::apply(&mut user, rule, defaults).map_err(|error| {
                let before = "ERR Error in ACL SETUSER modifier '";
                quoting(before, &rules::shown(rule), &format!("': {error}"))
            })?;
        }
        Ok::<_, Error>(user)
    })?;
    if let Some(change) = changed {
        close_subscribers(ctx, &change);
    }
    ctx.reply.ok();
    Ok(())
}

/// Closes the subscribers that have lost a channel.
fn close_subscribers(ctx: &mut SessionCtx<'_>, change: &Change) {
    let rules = change.user.rules();
    if rules.keeps_channels_of(&change.old) {
        return;
    }
    let lost = |kind: SubscriptionKind, name: &[u8]| {
        !rules.allows_channel(name, kind == SubscriptionKind::Pattern)
    };
    for id in ctx.server.pubsub.subscribers_of(lost) {
        if let Some(client) = ctx.server.clients.get(id)
            && client.acts_as(&change.user)
        {
            client::close(ctx, &client);
        }
    }
}

/// Closes the connections of users that are gone.
fn close_connections(ctx: &mut SessionCtx<'_>, removed: &[Arc<User>]) {
    if removed.is_empty() {
        return;
    }
    for client in ctx.server.clients.all() {
        if removed.iter().any(|user| client.acts_as(user)) {
            client::close(ctx, &client);
        }
    }
}

fn deluser(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let names = args.get(2..).unwrap_or_default();
    if names.contains(&DEFAULT_USER.as_bytes()) {
        return Err(Error::text("ERR The 'default' user cannot be removed"));
    }
    let removed = names
        .iter()
        .filter_map(|name| ctx.server.users.remove(name));
    let removed: Vec<_> = removed.collect();
    close_connections(ctx, &removed);
    ctx.reply.int(removed.len() as i64);
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
        let wanted = super::error::quoted(wanted, 128);
        return Err(quoting("ERR Unknown category '", wanted, "'"));
    };
    let mut names = Vec::new();
    for command in registry().iter() {
        let each = [command].into_iter().chain(command.told_subcommands());
        let fitting = each.filter(|each| categories::has(each.command, category));
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

fn log(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let count = match args {
        [_, _] => LOGGED,
        [_, _, word] if args::is(word, "RESET") => {
            ctx.server.acl_log.clear();
            ctx.reply.ok();
            return Ok(());
        }
        [_, _, count] => args::int(count)?,
        _ => return Err(help::mistaken(args)),
    };
    let count = usize::try_from(count).unwrap_or(0);
    refusal::write(ctx.reply, &ctx.server.acl_log.newest(count));
    Ok(())
}

fn load(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let path = file::path(&ctx.server.config.load()).ok_or(NO_FILE)?;
    let (removed, changes) =
        file::reload(ctx.server, &path).map_err(|reason| Error::owned(format!("ERR {reason}")))?;
    for change in &changes {
        close_subscribers(ctx, change);
    }
    close_connections(ctx, &removed);
    ctx.reply.ok();
    Ok(())
}

fn save(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let path = file::path(&ctx.server.config.load()).ok_or(NO_FILE)?;
    if let Err(error) = file::save(ctx.server, &path) {
        log::warn!("ACL SAVE: {} cannot be written: {error}", path.display());
        return Err(NOT_SAVED);
    }
    ctx.reply.ok();
    Ok(())
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
    let name = options.value()?;
    let Some(user) = ctx.server.users.get(name) else {
        return Err(quoting("ERR User '", name, "' not found"));
    };
    let words = args.get(3..).unwrap_or_default();
    let Some(found) = named(words) else {
        return Err(quoting("ERR Command '", options.value()?, "' not found"));
    };
    if !found.command.takes(words.len()) {
        return Err(Error::Arity(found.full_name.as_str().into()));
    }
    let place = Place {
        db: ctx.session.db(),
        databases: ctx.server.engine.config.databases,
    };
    match check::check_rules(&user.rules(), found, words, place) {
        Ok(()) => ctx.reply.ok(),
        Err(denied) => {
            let text = denied.verbose_text(user.name(), found, words);
            ctx.reply.bulk(&text);
        }
    }
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "CAT [<category>]",
        &["The categories, or the commands of one."],
    ),
    (
        "DELUSER <username> [<username> ...]",
        &["Remove users and close their connections."],
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
        &["Make or change a user."],
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
const ONE_USER: Secret = Secret::Users { first: 2, names: 1 };

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
        Command::session("deluser", -3, deluser)
            .syntax("username...")
            .secret(Secret::Users {
                first: 2,
                names: usize::MAX,
            })
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        ADMIN,
        "Removes users",
    ),
    Command::session("dryrun", -4, dryrun)
        .syntax("username command [arg...]")
        .secret(Secret::Command(3))
        .data_from(4)
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
            ])
            .secret(ONE_USER),
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
        Command::session("load", 2, load),
        ADMIN.union(Flags::ON_WORKER),
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
        Command::session("save", 2, save).tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        ADMIN.union(Flags::ON_WORKER),
        "Writes the users into the ACL file",
    ),
    row(
        Command::session("setuser", -3, setuser)
            .syntax("username [rule...]")
            .history(&[
                ("6.2.0", "Takes patterns of channels"),
                ("7.0.0", "Takes selectors and key permissions"),
            ])
            .secret(ONE_USER)
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
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

#[cfg(test)]
mod tests;
