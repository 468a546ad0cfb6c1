//! Transactions: the table rows of MULTI, EXEC, DISCARD, WATCH, UNWATCH. The executor runs
//! them, because they run or queue other commands.

use super::{Command, Flags, KeyFlags, KeySpec, Own};
use crate::commands::table::spec::Group;

const SMALL: Flags = Flags::NOSCRIPT
    .union(Flags::LOADING)
    .union(Flags::STALE)
    .union(Flags::FAST)
    .union(Flags::ALLOW_BUSY);

const fn row(command: Command, since: &'static str, summary: &'static str) -> Command {
    command.doc(Group::Transactions, since, summary)
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    row(
        Command::own("discard", 1, Own::Discard)
            .complexity("O(N), N: queued commands")
            .flags(SMALL),
        "2.0.0",
        "Discards the commands queued since MULTI",
    ),
    row(
        Command::own("exec", 1, Own::Exec)
            .complexity("That of the queued commands")
            .flags(
                Flags::NOSCRIPT
                    .union(Flags::LOADING)
                    .union(Flags::STALE)
                    .union(Flags::SKIP_SLOWLOG),
            ),
        "1.2.0",
        "Runs the commands queued since MULTI atomically",
    ),
    row(
        Command::own("multi", 1, Own::Multi).flags(SMALL),
        "1.2.0",
        "Queues the commands that follow, until EXEC",
    ),
    row(
        Command::own("unwatch", 1, Own::Unwatch).flags(SMALL),
        "2.2.0",
        "Stops watching all keys",
    ),
    row(
        Command::own("watch", -2, Own::Watch)
            .syntax("key...")
            .complexity("O(K), K: keys")
            .flags(SMALL.union(Flags::NO_TOUCH))
            .keys(&[KeySpec::range(1, -1, 1, KeyFlags::RO)]),
        "2.2.0",
        "Watches keys: the next EXEC fails if one of them has changed",
    ),
];
