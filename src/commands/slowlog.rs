//! SLOWLOG: commands that took longer than `slowlog-log-slower-than`.

use super::commandlog::{count, reply};
use super::{CmdResult, Command, Flags, SessionCtx};
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::state::commandlog::LogKind;

/// Default number of entries that GET returns.
const DEFAULT_COUNT: usize = 10;

fn get(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let most = match args {
        [_, _] => Some(DEFAULT_COUNT),
        [_, _, arg] => count(arg)?,
        _ => return Err(help::mistaken(args)),
    };
    reply(ctx, LogKind::Slow, most);
    Ok(())
}

fn len(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let log = ctx.server.commandlog.of(LogKind::Slow);
    ctx.reply.int(log.len() as i64);
    Ok(())
}

fn reset(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.server.commandlog.of(LogKind::Slow).clear();
    ctx.reply.ok();
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "GET [<count>]",
        &[
            "The newest entries (default: 10, -1: all). Of each: its number, when it",
            "began (Unix seconds), how long it took (microseconds), the arguments, the",
            "client's address and name.",
        ],
    ),
    ("LEN", &["How many entries there are."]),
    ("RESET", &["Forget all entries."]),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "SLOWLOG", HELP);
    Ok(())
}

const HELPS: Flags = Flags::LOADING.union(Flags::STALE);
const ADMIN: Flags = HELPS.union(Flags::ADMIN);

const fn row(command: Command, since: &'static str, summary: &'static str) -> Command {
    command.doc(Group::Server, since, summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("get", -2, get)
            .syntax("[count:int]")
            .complexity("O(N), N: entries answered")
            .history(&[("4.0.0", "Added the address and name of the client")])
            .flags(ADMIN)
            .tips(&[Tip::RequestAllNodes, Tip::NondeterministicOutput]),
        "2.2.12",
        "Returns the newest entries of the slow log",
    ),
    row(
        Command::session("help", 2, help).flags(HELPS),
        "6.2.0",
        "Lists the subcommands",
    ),
    row(
        Command::session("len", 2, len).flags(ADMIN).tips(&[
            Tip::RequestAllNodes,
            Tip::ResponseAggSum,
            Tip::NondeterministicOutput,
        ]),
        "2.2.12",
        "Counts the entries of the slow log",
    ),
    row(
        Command::session("reset", 2, reset)
            .complexity("O(N), N: entries")
            .flags(ADMIN)
            .tips(&[Tip::RequestAllNodes, Tip::ResponseAllSucceeded]),
        "2.2.12",
        "Empties the slow log",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::container("slowlog", -2, SUBCOMMANDS),
    "2.2.12",
    "Commands about the slow log",
)];
