//! SLOWLOG: commands that took longer than `slowlog-log-slower-than`.

use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::num;
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;

/// Default number of entries that GET returns.
const DEFAULT_COUNT: usize = 10;

fn get(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let count = match args {
        [_, _] => Some(DEFAULT_COUNT),
        [_, _, count] => match num::parse_i64(count) {
            Some(-1) => None,
            Some(count @ 0..) => Some(usize::try_from(count).unwrap_or(usize::MAX)),
            _ => {
                return Err(Error::text(
                    "ERR count should be greater than or equal to -1",
                ));
            }
        },
        _ => return Err(help::mistaken(args)),
    };
    let entries = ctx.server.slowlog.newest(count);
    let reply = &mut *ctx.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.int(entry.id as i64);
        reply.int(entry.unix_s as i64);
        reply.int(entry.usec as i64);
        reply.array(entry.args.len());
        for arg in &entry.args {
            reply.bulk(arg);
        }
        reply.bulk(entry.addr.as_bytes());
        reply.bulk(&entry.name);
    }
    Ok(())
}

fn len(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.reply.int(ctx.server.slowlog.len() as i64);
    Ok(())
}

fn reset(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    ctx.server.slowlog.clear();
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

/// The table.
pub const COMMANDS: &[Command] = &[row(
    Command::container("slowlog", -2, SUBCOMMANDS),
    "2.2.12",
    "Commands about the slow log",
)];
