//! Commands that concern whole DBs. They run while no other thread reads or
//! writes keys.

use super::{CmdResult, Command, Error, Flags, ReadCtx, WriteCtx, args, registry};
use crate::base::num;
use crate::commands::table::migrated::Migrated;
use crate::commands::table::spec::{Dbs, Group};
use crate::commands::table::tips::Tip;
use crate::storage::DbIndex;
use smallvec::SmallVec;

fn dbsize(ctx: &mut ReadCtx<'_>, _: &[&[u8]]) -> CmdResult {
    let keys = ctx.view.counts(ctx.db).keys;
    ctx.reply.int(i64::try_from(keys).unwrap_or(i64::MAX));
    Ok(())
}

/// Both ways to flush are the same here: the rows go by a range deletion, and
/// the disk space comes back in the background.
fn check_flush_mode(args: &[&[u8]]) -> CmdResult {
    match args {
        [_] => Ok(()),
        [_, mode] if args::is(mode, "SYNC") || args::is(mode, "ASYNC") => Ok(()),
        _ => Err(Error::Syntax),
    }
}

/// Clears a DB. For a DB without keys it only records the change.
fn clear(ctx: &mut WriteCtx<'_>, db: DbIndex) -> CmdResult {
    if ctx.txn.counts(db).keys > 0 {
        ctx.txn.clear_db(db)?;
    } else {
        ctx.txn.note_clear(db);
    }
    Ok(())
}

fn flushdb(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_flush_mode(args)?;
    clear(ctx, ctx.db)?;
    ctx.reply.ok();
    Ok(())
}

fn flushall(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_flush_mode(args)?;
    for db in 0..ctx.server.engine.config.databases {
        clear(ctx, DbIndex(db))?;
    }
    ctx.reply.ok();
    Ok(())
}

fn swapdb(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if ctx.server.engine.config.cluster_enabled {
        return Err(Error::text("ERR SWAPDB is not allowed in cluster mode"));
    }
    let number = |arg: &[u8], refusal: &'static str| {
        num::parse_i64(arg)
            .and_then(|n| i32::try_from(n).ok())
            .ok_or(Error::text(refusal))
    };
    let a = number(args[1], "ERR invalid first DB index")?;
    let b = number(args[2], "ERR invalid second DB index")?;
    let databases = ctx.server.engine.config.databases;
    let in_range = |n: i32| u16::try_from(n).ok().filter(|n| *n < databases);
    let (Some(a), Some(b)) = (in_range(a), in_range(b)) else {
        return Err(Error::NO_SUCH_DB);
    };
    if a != b {
        ctx.txn.swap_dbs(DbIndex(a), DbIndex(b));
    }
    ctx.reply.ok();
    Ok(())
}

/// The DBs that a command of the binlog names: the argument of SELECT, both of SWAPDB, the
/// destination of COPY or MOVE.
pub fn named_dbs(args: &[&[u8]]) -> SmallVec<[DbIndex; 2]> {
    let found = args.first().and_then(|name| registry().find(name));
    found.map_or_else(SmallVec::new, |found| found.command.named_dbs(args))
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::read("dbsize", 1, dbsize)
        .flags(Flags::FAST)
        .categories(&["keyspace"])
        .tips(&[Tip::RequestAllShards, Tip::ResponseAggSum])
        .doc(
            Group::Server,
            "1.0.0",
            "Returns how many keys the DB has; expired keys count until the server removes them",
        ),
    Command::write("flushdb", -1, flushdb)
        .syntax("[flush-type=(ASYNC@4.0.0|SYNC@6.2.0)]")
        .complexity("O(F), F: the files of the DBs")
        .history(&[("4.0.0", "Added `ASYNC`"), ("6.2.0", "Added `SYNC`")])
        .flags(Flags::EXCLUSIVE)
        .categories(&["keyspace", "dangerous"])
        .tips(&[Tip::RequestAllShards, Tip::ResponseAllSucceeded])
        .migrated(Migrated::ClearedDb)
        .doc(Group::Server, "1.0.0", "Deletes all keys of the DB"),
    Command::write("flushall", -1, flushall)
        .syntax("[flush-type=(ASYNC@4.0.0|SYNC@6.2.0)]")
        .complexity("O(F), F: the files of the DBs")
        .history(&[("4.0.0", "Added `ASYNC`"), ("6.2.0", "Added `SYNC`")])
        .flags(Flags::EXCLUSIVE)
        .dbs(Dbs::All)
        .categories(&["keyspace", "dangerous"])
        .tips(&[Tip::RequestAllShards, Tip::ResponseAllSucceeded])
        .migrated(Migrated::ClearedDbs)
        .doc(Group::Server, "1.0.0", "Deletes all keys of all DBs"),
    Command::write("swapdb", 3, swapdb)
        .syntax("index1:int index2:int")
        .complexity("O(N), N: clients that watch or wait for keys of the DBs")
        .flags(Flags::FAST.union(Flags::EXCLUSIVE).union(Flags::ON_WORKER))
        .dbs(Dbs::Swapped)
        .categories(&["keyspace", "dangerous"])
        .migrated(Migrated::SwappedDbs)
        .doc(
            Group::Server,
            "4.0.0",
            "Exchanges two DBs; clients of either see the other's keys from now on",
        ),
];
