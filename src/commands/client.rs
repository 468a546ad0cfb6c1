//! CLIENT: settings of the connection itself, and commands about other connections.

mod filter;
mod flags;
mod kill;
mod list;
mod tracking;

pub(super) use kill::close;
pub(super) use list::describe;

use super::args;
use super::blocking::timeout_in_ms;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::state::ClientId;
use crate::state::ClientInfo;
use crate::state::Session;
use crate::state::clients::ClientFlags;
use crate::state::session::ReplyMode;
use crate::state::waiters::Verdict;
use crate::state::{Pause, PauseMode};
use crate::sys::clock;

pub(super) const BAD_CLIENT_NAME: Error =
    Error::text("ERR Client names cannot contain spaces, newlines or special characters.");

/// Whether a text is allowed in a line of CLIENT LIST: no blanks, no control characters.
pub(super) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

/// CLIENT SETNAME and HELLO SETNAME.
pub(super) fn set_name(session: &Session, name: &[u8]) -> CmdResult {
    if !is_plain(name) {
        return Err(BAD_CLIENT_NAME);
    }
    session.info.names.lock().name = name.to_vec();
    Ok(())
}

/// The client types of LIST and KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Normal,
    Master,
    Replica,
    PubSub,
}

impl Class {
    fn parse(name: &[u8]) -> Result<Class, Error> {
        Ok(match name.to_ascii_lowercase().as_slice() {
            b"normal" => Class::Normal,
            b"master" => Class::Master,
            b"replica" | b"slave" => Class::Replica,
            b"pubsub" => Class::PubSub,
            _ => {
                let name = String::from_utf8_lossy(name);
                return Err(Error::owned(format!("ERR Unknown client type '{name}'")));
            }
        })
    }

    fn of(client: &ClientInfo) -> Class {
        let flags = client.flags();
        if flags.contains(ClientFlags::MASTER) {
            Class::Master
        } else if flags.contains(ClientFlags::REPLICA) && !flags.contains(ClientFlags::MONITOR) {
            Class::Replica
        } else if flags.contains(ClientFlags::PUBSUB) {
            Class::PubSub
        } else {
            Class::Normal
        }
    }
}

fn arg<'a>(args: &[&'a [u8]], index: usize) -> &'a [u8] {
    args.get(index).copied().unwrap_or_default()
}

/// ON or OFF.
fn switch(args: &[&[u8]]) -> Result<bool, Error> {
    match arg(args, 2) {
        word if args::is(word, "ON") => Ok(true),
        word if args::is(word, "OFF") => Ok(false),
        _ => Err(Error::Syntax),
    }
}

fn id(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.reply.int(ctx.session.info.id.0 as i64);
    Ok(())
}

fn getname(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let names = ctx.session.info.names.lock();
    match names.name.as_slice() {
        b"" => ctx.reply.null(),
        name => ctx.reply.bulk(name),
    }
    Ok(())
}

fn setname(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    set_name(ctx.session, arg(args, 2))?;
    ctx.reply.ok();
    Ok(())
}

fn setinfo(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (option, value) = (arg(args, 2), arg(args, 3));
    let mut names = ctx.session.info.names.lock();
    let field = if args::is(option, "LIB-NAME") {
        &mut names.lib_name
    } else if args::is(option, "LIB-VER") {
        &mut names.lib_ver
    } else {
        let option = String::from_utf8_lossy(option);
        return Err(Error::owned(format!("ERR Unrecognized option '{option}'")));
    };
    if !is_plain(value) {
        let option = String::from_utf8_lossy(option);
        return Err(Error::owned(format!(
            "ERR {option} cannot contain spaces, newlines or special characters."
        )));
    }
    *field = value.to_vec();
    ctx.reply.ok();
    Ok(())
}

fn reply_mode(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let word = arg(args, 2);
    if args::is(word, "ON") {
        ctx.session.reply_mode = ReplyMode::On;
        ctx.reply.ok();
    } else if args::is(word, "OFF") {
        ctx.session.reply_mode = ReplyMode::Off;
    } else if args::is(word, "SKIP") {
        if ctx.session.reply_mode != ReplyMode::Off {
            ctx.session.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(Error::Syntax);
    }
    Ok(())
}

fn no_evict(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let on = switch(args)?;
    ctx.session.info.set_flag(ClientFlags::NO_EVICT, on);
    ctx.reply.ok();
    Ok(())
}

fn no_touch(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let on = switch(args)?;
    ctx.session.info.set_flag(ClientFlags::NO_TOUCH, on);
    ctx.reply.ok();
    Ok(())
}

/// The word with which a client says that it may use keys of several slots at once, as a tool that
/// brings the data of a server without slots.
pub const CROSSES_SLOTS: &str = "cross-slots";

/// CAPA: what the client can do besides. Unknown words are for other servers.
fn capa(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let words = args.get(2..).unwrap_or_default();
    for (name, flag) in [
        ("REDIRECT", ClientFlags::TAKES_REDIRECT),
        (CROSSES_SLOTS, ClientFlags::CROSSES_SLOTS),
    ] {
        if words.iter().any(|word| args::is(word, name)) {
            ctx.session.info.set_flag(flag, true);
        }
    }
    ctx.reply.ok();
    Ok(())
}

fn import_source(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if !ctx.server.config.load().import_mode && !args::is(arg(args, 2), "OFF") {
        return Err(Error::text("ERR Server is not in import mode"));
    }
    let on = switch(args)?;
    ctx.session.info.set_flag(ClientFlags::IMPORT_SOURCE, on);
    ctx.reply.ok();
    Ok(())
}

fn pause(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len() > 4 {
        return Err(help::mistaken(args));
    }
    let mode = match args.get(3) {
        None => PauseMode::All,
        Some(word) if args::is(word, "ALL") => PauseMode::All,
        Some(word) if args::is(word, "WRITE") => PauseMode::Writes,
        Some(_) => return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout_ms = timeout_in_ms(arg(args, 2))?;
    let now_ms = clock::unix_ms();
    let until_ms = now_ms + timeout_ms;
    let mut pause = Pause { until_ms, mode };
    // A pause in force is never shortened or weakened.
    if let Some(before) = ctx.server.pause_at(now_ms) {
        pause.until_ms = pause.until_ms.max(before.until_ms);
        if before.mode == PauseMode::All {
            pause.mode = PauseMode::All;
        }
    }
    ctx.server.pause(pause);
    ctx.reply.ok();
    Ok(())
}

fn unblock(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if args.len() > 4 {
        return Err(help::mistaken(args));
    }
    let id = args::int(arg(args, 2))?;
    let verdict = match args.get(3) {
        None => Verdict::TimedOut,
        Some(word) if args::is(word, "TIMEOUT") => Verdict::TimedOut,
        Some(word) if args::is(word, "ERROR") => {
            Verdict::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".to_owned())
        }
        Some(_) => {
            return Err(Error::text(
                "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
            ));
        }
    };
    // No client has a negative number.
    let client = u64::try_from(id).ok().map(ClientId);
    let waited = client.is_some_and(|client| ctx.server.unblock(client, verdict));
    ctx.reply.int(i64::from(waited));
    Ok(())
}

fn unpause(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.server.unpause();
    ctx.reply.ok();
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "CAPA <capability> [<capability> ...]",
        &[
            "Say what this connection can do:",
            "* REDIRECT: go to the master when a replica says so",
            "* CROSS-SLOTS: use keys of several slots at once, in a cluster of one master",
        ],
    ),
    ("GETNAME", &["The name of this connection."]),
    ("ID", &["The number of this connection."]),
    (
        "IMPORT-SOURCE (ON|OFF)",
        &["Bring the data of another server: to this connection no key has expired."],
    ),
    ("INFO", &["The line of CLIENT LIST about this connection."]),
    ("KILL <ip:port>", &["Close the connection from an address."]),
    (
        "KILL <option> <value> [<option> <value> ...]",
        &[
            "Close the connections that all options fit:",
            "* ID <client-id> [<client-id> ...]",
            "* ADDR <ip:port>, LADDR <ip:port>: the other side's address, or ours",
            "* IP <ip>: the other side's address without the port",
            "* TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
            "* USER <username>",
            "* NAME <name>, LIB-NAME <name>, LIB-VER <version>: what they said of themselves",
            "* FLAGS <letters>: as CLIENT LIST shows them, all of these",
            "* CAPA <letters>: likewise",
            "* DB <number>",
            "* MAXAGE <seconds>: connected for at least that long",
            "* IDLE <seconds>: idle for at least that long",
            "* SKIPME (YES|NO): spare this connection (default: yes)",
            "NOT- before an option, but the last three, means the other connections.",
        ],
    ),
    (
        "LIST [<option> <value> ...]",
        &[
            "One line about each connection that fits the options of KILL",
            "(SKIPME is no by default).",
        ],
    ),
    (
        "NO-EVICT (ON|OFF)",
        &["Spare this connection when connections are closed to save memory."],
    ),
    (
        "NO-TOUCH (ON|OFF)",
        &["Let commands of this connection leave access times alone."],
    ),
    (
        "PAUSE <timeout> [WRITE|ALL]",
        &["Hold back commands, or only those that write, for some milliseconds."],
    ),
    (
        "REPLY (ON|OFF|SKIP)",
        &["Which replies this connection gets."],
    ),
    (
        "SETINFO (LIB-NAME|LIB-VER) <value>",
        &["Say which client library uses this connection."],
    ),
    ("SETNAME <name>", &["Name this connection."]),
    (
        "CACHING (YES|NO)",
        &["Track what the next command reads, or do not (with OPTIN, OPTOUT)."],
    ),
    (
        "GETREDIR",
        &["Which connection gets the invalidations of this one."],
    ),
    (
        "TRACKING (ON|OFF) [REDIRECT <client-id>] [BCAST] [PREFIX <prefix> ...] [OPTIN] [OPTOUT] [NOLOOP]",
        &["Have this connection told when keys change that it has read."],
    ),
    ("TRACKINGINFO", &["How this connection tracks keys."]),
    (
        "UNBLOCK <client-id> [TIMEOUT|ERROR]",
        &["End the wait of another connection, as if its time were over or with an error."],
    ),
    ("UNPAUSE", &["End a pause."]),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "CLIENT", HELP);
    Ok(())
}

const HELPS: Flags = Flags::LOADING.union(Flags::STALE).union(Flags::SENTINEL);
const OWN: Flags = HELPS.union(Flags::NOSCRIPT);
const OTHERS: Flags = OWN.union(Flags::ADMIN);

const fn doc(command: Command, since: &'static str, summary: &'static str) -> Command {
    let flags = command.flags.union(Flags::KEEPS_CACHING);
    command.flags(flags).doc(Group::Connection, since, summary)
}

const SUBCOMMANDS: &[Command] = &[
    doc(
        Command::session("caching", 3, tracking::caching)
            .syntax("mode=(YES|NO)")
            .flags(OWN),
        "6.0.0",
        "Tracks what the next command reads, or does not",
    ),
    doc(
        Command::session("capa", -3, capa)
            .syntax("capability...")
            .flags(OWN.difference(Flags::SENTINEL)),
        "8.0.0",
        "Says what the client can do besides",
    ),
    doc(
        Command::session("getname", 2, getname).flags(OWN),
        "2.6.9",
        "Returns the name of the connection",
    ),
    doc(
        Command::session("getredir", 2, tracking::getredir).flags(OWN),
        "6.0.0",
        "Returns which connection gets the invalidations of this one",
    ),
    doc(
        Command::session("help", 2, help).flags(HELPS),
        "5.0.0",
        "Lists the subcommands",
    ),
    doc(
        Command::session("id", 2, id).flags(OWN),
        "5.0.0",
        "Returns the number of the connection",
    ),
    doc(
        Command::session("import-source", 3, import_source)
            .syntax("enabled=(ON|OFF)")
            .flags(OTHERS.difference(Flags::SENTINEL)),
        "8.1.0",
        "Makes the connection one that brings the data of another server",
    ),
    doc(
        Command::session("info", 2, list::info)
            .flags(OWN)
            .tips(&[Tip::NondeterministicOutput]),
        "6.2.0",
        "Describes the connection in one line",
    ),
    doc(
        Command::session("kill", -3, kill::kill)
            .syntax(
                "filter=(old-format{ip:port}!2.8.12|new-format=(\
                 ID client-id:int@2.8.12...|\
                 TYPE client-type=(NORMAL|MASTER@3.2.0|SLAVE|REPLICA@5.0.0|PUBSUB)@2.8.12|\
                 USER username|ADDR addr{ip:port}|LADDR laddr{ip:port}@6.2.0|\
                 SKIPME skipme=(YES|NO)|MAXAGE maxage:int@7.4.0|\
                 NAME name@8.1.0|IDLE idle:int@8.1.0|FLAGS flags@8.1.0|\
                 LIB-NAME lib-name@8.1.0|LIB-VER lib-ver@8.1.0|DB db:int@8.1.0|\
                 CAPA capa@8.1.0|IP ip@8.1.0)...)",
            )
            .complexity("O(N), N: clients")
            .history(&[
                ("2.8.12", "Added filters"),
                ("2.8.12", "Added `ID`"),
                ("3.2.0", "`TYPE` takes `master`"),
                ("5.0.0", "`TYPE` takes `replica`, another name of `slave`"),
                ("6.2.0", "Added `LADDR`"),
                ("7.4.0", "Added `MAXAGE`"),
                (
                    "8.1.0",
                    "Several numbers after `ID`; added `NAME`, `IDLE`, `FLAGS`, `LIB-NAME`, \
                     `LIB-VER`, `DB`, `CAPA`, `IP` and the forms with `NOT-`",
                ),
            ])
            .flags(OTHERS),
        "2.4.0",
        "Closes connections",
    ),
    doc(
        Command::session("list", -2, list::list)
            .syntax(
                "[TYPE client-type=(NORMAL|MASTER|REPLICA|PUBSUB)@5.0.0] \
                 [ID client-id:int@6.2.0...] \
                 [USER username@8.1.0] [ADDR addr{ip:port}@8.1.0] [LADDR laddr{ip:port}@8.1.0] \
                 [SKIPME skipme=(YES|NO)@8.1.0] [MAXAGE maxage:int@8.1.0] [NAME name@8.1.0] \
                 [IDLE idle:int@8.1.0] [FLAGS flags@8.1.0] [LIB-NAME lib-name@8.1.0] \
                 [LIB-VER lib-ver@8.1.0] [DB db:int@8.1.0] [CAPA capa@8.1.0] [IP ip@8.1.0]",
            )
            .complexity("O(N), N: clients")
            .history(&[
                ("2.8.12", "Added `id`"),
                ("5.0.0", "Added `TYPE`"),
                ("6.0.0", "Added `user`"),
                (
                    "6.2.0",
                    "Added `argv-mem`, `tot-mem`, `laddr`, `redir` and the option `ID`",
                ),
                ("7.0.0", "Added `resp`, `multi-mem`, `rbs` and `rbp`"),
                ("7.0.3", "Added `ssub`"),
                ("7.2.0", "Added `lib-name` and `lib-ver`"),
                ("7.4.0", "Added `watch`"),
                (
                    "8.0.0",
                    "Added `io-thread`, `tot-net-in`, `tot-net-out` and `tot-cmds`",
                ),
                ("8.1.0", "Takes the options of `CLIENT KILL`"),
            ])
            .flags(OTHERS)
            .tips(&[Tip::NondeterministicOutput]),
        "2.4.0",
        "Describes connections, one to a line",
    ),
    doc(
        Command::session("no-evict", 3, no_evict)
            .syntax("enabled=(ON|OFF)")
            .flags(OTHERS),
        "7.0.0",
        "Exempts the connection from the eviction of clients",
    ),
    doc(
        Command::session("no-touch", 3, no_touch)
            .syntax("enabled=(ON|OFF)")
            .flags(Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE)),
        "7.2.0",
        "Keeps the connection's commands from updating access times",
    ),
    doc(
        Command::session("pause", -3, pause)
            .syntax("timeout:int [mode=(WRITE|ALL)@6.2.0]")
            .history(&[("6.2.0", "Added `WRITE` and `ALL`")])
            .flags(OTHERS),
        "3.0.0",
        "Suspends commands for some time",
    ),
    doc(
        Command::session("reply", 3, reply_mode)
            .syntax("action=(ON|OFF|SKIP)")
            .flags(OWN),
        "3.2.0",
        "Chooses which replies the connection gets",
    ),
    doc(
        Command::session("setinfo", 4, setinfo)
            .syntax("attr=(LIB-NAME libname|LIB-VER libver)")
            .flags(OWN)
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        "7.2.0",
        "Records which client library uses the connection",
    ),
    doc(
        Command::session("setname", 3, setname)
            .syntax("connection-name")
            .flags(OWN)
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        "2.6.9",
        "Names the connection",
    ),
    doc(
        Command::session("tracking", -3, tracking::tracking)
            .syntax(
                "status=(ON|OFF) [REDIRECT client-id:int] [(PREFIX prefix)...] [BCAST] \
                 [OPTIN] [OPTOUT] [NOLOOP]",
            )
            .flags(OWN.union(Flags::COUNTS_NAMES)),
        "6.0.0",
        "Enables invalidation messages for the keys that the connection reads",
    ),
    doc(
        Command::session("trackinginfo", 2, tracking::trackinginfo)
            .flags(OWN.union(Flags::COUNTS_NAMES)),
        "6.2.0",
        "Returns how the connection tracks keys",
    ),
    doc(
        Command::session("unblock", -3, unblock)
            .syntax("client-id:int [unblock-type=(TIMEOUT|ERROR)]")
            .flags(OTHERS),
        "5.0.0",
        "Ends the wait of another connection",
    ),
    doc(
        Command::session("unpause", 2, unpause)
            .complexity("O(N), N: paused clients")
            .flags(OTHERS),
        "6.2.0",
        "Ends a pause",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[doc(
    Command::container("client", -2, SUBCOMMANDS).flags(Flags::SENTINEL),
    "2.4.0",
    "Commands about connections",
)];

#[cfg(test)]
mod tests;
