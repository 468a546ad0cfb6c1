//! OBJECT: encoding, access statistics and reference count of a value.

use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, SessionCtx};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;

use crate::state::config::Config;
use crate::storage::KeyMeta;
use crate::types::definition::{Limit, Limits};
use crate::types::string::definition::is_shared;
use crate::types::table::definition;

/// The reference count that Redis reports for a shared object.
const SHARED_REFERENCES: i64 = i32::MAX as i64;

/// Looks up the key; replies with null if it does not exist.
fn lookup(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Option<KeyMeta>, Error> {
    let found = ctx.view.quietly(|view| view.lookup(ctx.db, key))?;
    if found.is_none() {
        ctx.reply.null();
    }
    Ok(found)
}

fn limits(config: &Config) -> Limits {
    Limits {
        hash: Limit {
            entries: config.hash_max_listpack_entries,
            value_bytes: config.hash_max_listpack_value_bytes,
        },
        set: Limit {
            entries: config.set_max_listpack_entries,
            value_bytes: config.set_max_listpack_value_bytes,
        },
        intset_entries: config.set_max_intset_entries,
        zset: Limit {
            entries: config.zset_max_listpack_entries,
            value_bytes: config.zset_max_listpack_value_bytes,
        },
        list_size: config.list_max_listpack_size,
    }
}

/// The encoding that Redis would report for a value.
pub(super) fn encoding_of(ctx: &mut ReadCtx<'_>, found: &KeyMeta) -> Result<&'static str, Error> {
    let limits = limits(&ctx.server.config.load());
    Ok(definition(found.meta.kind).encoding(ctx.view, ctx.db, found, &limits)?)
}

fn encoding(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if let Some(found) = lookup(ctx, args[2])? {
        let name = encoding_of(ctx, &found)?;
        ctx.reply.bulk(name.as_bytes());
    }
    Ok(())
}

fn refcount(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if let Some(found) = lookup(ctx, args[2])? {
        let shares = ctx.server.config.load().shares_integers();
        let shared = shares && is_shared(&found);
        ctx.reply.int(if shared { SHARED_REFERENCES } else { 1 });
    }
    Ok(())
}

fn idletime(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if lookup(ctx, args[2])?.is_none() {
        return Ok(());
    }
    if ctx.server.config.load().lfu().is_some() {
        return Err(Error::text(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    let hash = ctx.view.key_hash(ctx.db, args[2]);
    let idle_s = ctx.server.accesses.idle_s(hash, ctx.view.now_ms());
    ctx.reply.int(i64::try_from(idle_s).unwrap_or(i64::MAX));
    Ok(())
}

fn freq(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if lookup(ctx, args[2])?.is_none() {
        return Ok(());
    }
    let Some(lfu) = ctx.server.config.load().lfu() else {
        return Err(Error::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    };
    let hash = ctx.view.key_hash(ctx.db, args[2]);
    let frequency = ctx.server.accesses.frequency(hash, ctx.view.now_ms(), lfu);
    ctx.reply.int(frequency.into());
    Ok(())
}

fn help(ctx: &mut SessionCtx<'_>, _: &[&[u8]]) -> CmdResult {
    const LINES: &[&str] = &[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    What Redis would call the form of the value. A collection is judged as it",
        "    is now, a string by how it was made too.",
        "FREQ <key>",
        "    How often the key was used lately, as a logarithm; with an LFU policy.",
        "HELP",
        "    This text.",
        "IDLETIME <key>",
        "    For how many seconds the key was not used, as far as the server remembers.",
        "REFCOUNT <key>",
        "    As in Redis: 2147483647 for a number from 0 to 9999, else 1.",
    ];
    ctx.reply.array(LINES.len());
    for line in LINES {
        ctx.reply.simple(line);
    }
    Ok(())
}

const KEY: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RO)];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::container(
    "object",
    -2,
    &[
        Command::read("encoding", 3, encoding)
            .syntax("key")
            .flags(Flags::NO_TOUCH)
            .keys(KEY)
            .categories(&["keyspace"])
            .tips(&[Tip::NondeterministicOutput])
            .doc(
                Group::Generic,
                "2.2.3",
                "Returns the name of the encoding that Redis would use for the value",
            ),
        Command::read("freq", 3, freq)
            .syntax("key")
            .flags(Flags::NO_TOUCH)
            .keys(KEY)
            .categories(&["keyspace"])
            .tips(&[Tip::NondeterministicOutput])
            .doc(
                Group::Generic,
                "4.0.0",
                "Returns the logarithmic access frequency of a key",
            ),
        Command::read("idletime", 3, idletime)
            .syntax("key")
            .flags(Flags::NO_TOUCH)
            .keys(KEY)
            .categories(&["keyspace"])
            .tips(&[Tip::NondeterministicOutput])
            .doc(
                Group::Generic,
                "2.2.3",
                "Returns for how many seconds a key was not accessed",
            ),
        Command::read("refcount", 3, refcount)
            .syntax("key")
            .flags(Flags::NO_TOUCH)
            .keys(KEY)
            .categories(&["keyspace"])
            .tips(&[Tip::NondeterministicOutput])
            .doc(
                Group::Generic,
                "2.2.3",
                "Returns the reference count that Redis would have for the value",
            ),
        Command::session("help", 2, help)
            .flags(Flags::LOADING.union(Flags::STALE))
            .categories(&["keyspace"])
            .doc(Group::Generic, "6.2.0", "Lists the subcommands of OBJECT"),
    ],
)
.doc(
    Group::Generic,
    "2.2.3",
    "Commands about the encoding and the accesses of values",
)];
