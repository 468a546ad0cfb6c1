//! Commands on keys of any type: removal, existence, renaming, copying.

use super::args::{self, Options};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::glob;
use crate::commands::table::migrated::{Migrated, Part};
use crate::commands::table::spec::{Dbs, Group};
use crate::commands::table::tips::Tip;
use crate::storage::DbIndex;
use crate::storage::txn::events::Class;
use crate::types::keyspace::{self, Place};
use crate::types::random_key::random_key;
use smallvec::SmallVec;

const SAME_OBJECT: Error = Error::text("ERR source and destination objects are the same");

fn del(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut deleted = 0;
    for (at, key) in args[1..].iter().enumerate() {
        ctx.txn.prefetch_from(ctx.db, &args[1..], 1, at);
        deleted += i64::from(ctx.txn.delete_key(ctx.db, key)?);
    }
    ctx.reply.int(deleted);
    Ok(())
}

/// EXISTS and TOUCH: a key named twice counts twice.
fn exists(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut found = 0;
    for (at, key) in args[1..].iter().enumerate() {
        ctx.view.prefetch_from(ctx.db, &args[1..], 1, at);
        found += i64::from(keyspace::head(ctx.view, ctx.db, key)?.is_some());
    }
    ctx.reply.int(found);
    Ok(())
}

fn type_of(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let head = keyspace::head(ctx.view, ctx.db, args[1])?;
    ctx.reply
        .simple(head.map_or("none", |meta| meta.kind.name()));
    Ok(())
}

fn keys(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let pattern = args[1];
    let (prefix, is_literal) = glob::literal_prefix(pattern);
    let mark = ctx.reply.begin();
    let mut matching = 0;
    if is_literal {
        let head = ctx
            .view
            .quietly(|view| keyspace::head(view, ctx.db, &prefix))?;
        if head.is_some() {
            ctx.reply.bulk(&prefix);
            matching = 1;
        }
    } else {
        let takes_all = pattern == b"*";
        let reply = &mut *ctx.reply;
        let within = keyspace::places(ctx.view.layout(), pattern, &prefix);
        keyspace::walk(ctx.view, ctx.db, &within, None, None, |key, _| {
            if takes_all || glob::matches(pattern, key, false) {
                reply.bulk(key);
                matching += 1;
            }
        })?;
    }
    ctx.reply.end_array(mark, matching);
    Ok(())
}

fn randomkey(ctx: &mut ReadCtx<'_>, _: &[&[u8]]) -> CmdResult {
    match random_key(ctx.view, ctx.db)? {
        Some(key) => ctx.reply.bulk(&key),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn rename(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (from, to) = (args[1], args[2]);
    let Some(found) = ctx.txn.lookup(ctx.db, from)? else {
        return Err(crate::types::OpError::NoSuchKey.into());
    };
    if from != to {
        keyspace::rename(ctx.txn, ctx.db, from, &found, to)?;
    }
    ctx.reply.ok();
    Ok(())
}

fn renamenx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (from, to) = (args[1], args[2]);
    let Some(found) = ctx.txn.lookup(ctx.db, from)? else {
        return Err(crate::types::OpError::NoSuchKey.into());
    };
    let free = from != to && keyspace::head(ctx.txn, ctx.db, to)?.is_none();
    if free {
        keyspace::rename(ctx.txn, ctx.db, from, &found, to)?;
    }
    ctx.reply.int(free.into());
    Ok(())
}

/// The DB that an argument names.
fn db_index(arg: &[u8], databases: u16) -> Result<DbIndex, Error> {
    let number = i32::try_from(args::int(arg)?).map_err(|_| Error::OUT_OF_I32)?;
    match u16::try_from(number) {
        Ok(index) if index < databases => Ok(DbIndex(index)),
        _ => Err(Error::NO_SUCH_DB),
    }
}

/// For locking: the DB that an argument names, without a check that it exists.
fn maybe_db(arg: &[u8]) -> Option<DbIndex> {
    let number = args::int(arg).ok()?;
    u16::try_from(number).ok().map(DbIndex)
}

fn move_other_db(args: &[&[u8]]) -> SmallVec<[DbIndex; 2]> {
    let db = args.get(2).and_then(|arg| maybe_db(arg));
    db.into_iter().collect()
}

fn move_key(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if ctx.server.engine.config.cluster_enabled {
        return Err(Error::text("ERR MOVE is not allowed in cluster mode"));
    }
    let to = db_index(args[2], ctx.server.engine.config.databases)?;
    if to == ctx.db {
        return Err(SAME_OBJECT);
    }
    let from = Place {
        db: ctx.db,
        key: args[1],
    };
    let moved = match ctx.txn.lookup(from.db, from.key)? {
        Some(found) if keyspace::head(ctx.txn, to, from.key)?.is_none() => {
            keyspace::move_to_db(ctx.txn, from, &found, to)?;
            1
        }
        _ => 0,
    };
    ctx.reply.int(moved);
    Ok(())
}

fn copy_other_db(args: &[&[u8]]) -> SmallVec<[DbIndex; 2]> {
    let mut options = Options::new(args, 3);
    let mut dbs = SmallVec::new();
    while !options.is_empty() {
        let names_db = options.word("DB");
        match options.value() {
            Ok(db) if names_db => dbs.extend(maybe_db(db)),
            Ok(_) => {}
            // The handler refuses what is incomplete.
            Err(_) => break,
        }
    }
    dbs
}

fn copy(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut to = Place {
        db: ctx.db,
        key: args[2],
    };
    let mut replace = false;
    let mut options = Options::new(args, 3);
    while !options.is_empty() {
        if options.word("REPLACE") {
            replace = true;
        } else if options.left() >= 2 && options.word("DB") {
            to.db = db_index(options.value()?, ctx.server.engine.config.databases)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let from = Place {
        db: ctx.db,
        key: args[1],
    };
    if from == to {
        return Err(SAME_OBJECT);
    }
    let found = ctx.txn.counting(|txn| txn.lookup(from.db, from.key))?;
    let Some(found) = found else {
        ctx.reply.int(0);
        return Ok(());
    };
    let old = ctx.txn.lookup(to.db, to.key)?;
    let free = old.is_none() || replace;
    if free {
        keyspace::copy(ctx.txn, from.db, &found, to, old.as_ref())?;
        ctx.txn.event(Class::GENERIC, "copy_to", to.db, to.key);
    }
    ctx.reply.int(free.into());
    Ok(())
}

const REMOVED: &[KeySpec] = &[KeySpec::range(
    1,
    -1,
    1,
    KeyFlags::RM.union(KeyFlags::DELETE),
)];
const METADATA: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyFlags::RO)];
const FROM: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);
const OVERWRITTEN: KeyFlags = KeyFlags::OW.union(KeyFlags::UPDATE);

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("del", -2, del)
        .syntax("key...")
        .complexity("O(K), K: keys; what collections held is reclaimed in the background")
        .keys(REMOVED)
        .categories(&["keyspace"])
        .tips(&[Tip::RequestMultiShard, Tip::ResponseAggSum])
        .migrated(Migrated::Keys(Part::FewerKeys))
        .doc(
            Group::Generic,
            "1.0.0",
            "Deletes keys and returns how many existed",
        ),
    Command::write("unlink", -2, del)
        .syntax("key...")
        .complexity("O(K), K: keys; what collections held is reclaimed in the background")
        .flags(Flags::FAST)
        .keys(REMOVED)
        .categories(&["keyspace"])
        .tips(&[Tip::RequestMultiShard, Tip::ResponseAggSum])
        .migrated(Migrated::Keys(Part::FewerKeys))
        .doc(
            Group::Generic,
            "4.0.0",
            "Deletes keys, as DEL does; their space is reclaimed in the background",
        ),
    Command::read("exists", -2, exists)
        .syntax("key...")
        .complexity("O(K), K: keys")
        .history(&[("3.0.3", "Takes several keys")])
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(METADATA)
        .categories(&["keyspace"])
        .tips(&[Tip::RequestMultiShard, Tip::ResponseAggSum])
        .doc(
            Group::Generic,
            "1.0.0",
            "Returns how many of the keys exist; a key given twice counts twice",
        ),
    Command::read("touch", -2, exists)
        .syntax("key...")
        .complexity("O(K), K: keys")
        .flags(Flags::FAST.union(Flags::TOUCHES))
        .keys(METADATA)
        .categories(&["keyspace"])
        .tips(&[Tip::RequestMultiShard, Tip::ResponseAggSum])
        .doc(
            Group::Generic,
            "3.2.1",
            "Updates the access times of keys and returns how many exist",
        ),
    Command::read("type", 2, type_of)
        .syntax("key")
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(&[KeySpec::at(1, KeyFlags::RO)])
        .categories(&["keyspace"])
        .doc(Group::Generic, "1.0.0", "Returns the type of a key's value"),
    Command::read("keys", 2, keys)
        .syntax("pattern")
        .complexity(
            "O(N), N: keys that begin with what the pattern says before its first \
             wildcard",
        )
        .flags(Flags::SLOW.union(Flags::WALKS))
        .categories(&["keyspace", "dangerous"])
        .tips(&[Tip::RequestAllShards, Tip::NondeterministicOutputOrder])
        .doc(
            Group::Generic,
            "1.0.0",
            "Lists all keys that match a pattern, in one reply: for small DBs only",
        ),
    Command::read("randomkey", 1, randomkey)
        .categories(&["keyspace"])
        .tips(&[
            Tip::RequestAllShards,
            Tip::ResponseSpecial,
            Tip::NondeterministicOutput,
        ])
        .doc(Group::Generic, "1.0.0", "Returns a random key of the DB"),
    Command::write("rename", 3, rename)
        .syntax("key newkey:key")
        .keys(&[KeySpec::at(1, FROM), KeySpec::at(2, OVERWRITTEN)])
        .categories(&["keyspace"])
        .migrated(Migrated::Keys(Part::Renamed))
        .doc(
            Group::Generic,
            "1.0.0",
            "Renames a key, and overwrites a key of the new name",
        ),
    Command::write("renamenx", 3, renamenx)
        .syntax("key newkey:key")
        .history(&[("3.2.0", "No error if both names are the same")])
        .flags(Flags::FAST)
        .keys(&[
            KeySpec::at(1, FROM),
            KeySpec::at(2, KeyFlags::OW.union(KeyFlags::INSERT)),
        ])
        .categories(&["keyspace"])
        .migrated(Migrated::Keys(Part::Renamed))
        .doc(
            Group::Generic,
            "1.0.0",
            "Renames a key, unless the new name exists",
        ),
    Command::write("move", 3, move_key)
        .syntax("key db:int")
        .complexity("O(N), N: elements of the value")
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(
            1,
            KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE),
        )])
        .dbs(Dbs::Second(move_other_db))
        .categories(&["keyspace"])
        .migrated(Migrated::MovedKey)
        .doc(
            Group::Generic,
            "1.0.0",
            "Moves a key to another DB, unless it exists there",
        ),
    Command::write("copy", -3, copy)
        .syntax("source:key destination:key [DB destination-db:int] [REPLACE]")
        .complexity("O(N), N: elements of the value")
        .flags(Flags::DENYOOM)
        .keys(&[
            KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS)),
            KeySpec::at(2, OVERWRITTEN),
        ])
        .dbs(Dbs::Second(copy_other_db))
        .categories(&["keyspace"])
        .migrated(Migrated::CopiedKey)
        .doc(
            Group::Generic,
            "6.2.0",
            "Copies a value and its expiry to another key, perhaps in another DB",
        ),
];

#[cfg(test)]
mod tests;
