//! Hashes: fields and their values.

use super::args;
use super::element_times::FIELDS;
use super::elements::{self, ScanRequest};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::longdouble::LongDouble;
use crate::base::num;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::encoding::ValueType;
use crate::resp::Reply;
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::members::Members;
use std::ops::ControlFlow;

fn load(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Option<Members>, Error> {
    Ok(Members::load(ctx.view, ctx.db, key, ValueType::Hash)?)
}

/// The hash, if it has fields whose time is not over, and their number.
fn load_living(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Option<(Members, u64)>, Error> {
    Ok(Members::load_living(
        ctx.view,
        ctx.db,
        key,
        ValueType::Hash,
    )?)
}

fn open(ctx: &mut WriteCtx<'_>, key: &[u8]) -> Result<Members, Error> {
    Ok(Members::open(ctx.txn, ctx.db, key, ValueType::Hash)?)
}

/// Sets all fields of `args` after the key; returns how many are new.
fn set_fields(ctx: &mut WriteCtx<'_>, name: &'static str, args: &[&[u8]]) -> Result<i64, Error> {
    let (pairs, []) = args[2..].as_chunks::<2>() else {
        return Err(Error::Arity(name.into()));
    };
    let mut hash = open(ctx, args[1])?;
    let mut new = 0;
    for [field, value] in pairs {
        new += i64::from(hash.insert(ctx.txn, field, value)?);
    }
    hash.save(ctx.txn, args[1])?;
    ctx.event(Class::HASH, "hset", args[1]);
    Ok(new)
}

fn hset(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let new = set_fields(ctx, "hset", args)?;
    ctx.reply.int(new);
    Ok(())
}

fn hmset(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    set_fields(ctx, "hmset", args)?;
    ctx.reply.ok();
    Ok(())
}

fn hsetnx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut hash = open(ctx, args[1])?;
    let is_new = !hash.contains(ctx.txn, args[2])?;
    if is_new {
        hash.append(ctx.txn, args[2], args[3])?;
        hash.save(ctx.txn, args[1])?;
        ctx.event(Class::HASH, "hset", args[1]);
    }
    ctx.reply.int(i64::from(is_new));
    Ok(())
}

fn hdel(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut removed = 0;
    if let Some(mut hash) = Members::load(ctx.txn, ctx.db, args[1], ValueType::Hash)? {
        for field in &args[2..] {
            removed += i64::from(hash.remove(ctx.txn, field)?);
        }
        if removed > 0 {
            ctx.event(Class::HASH, "hdel", args[1]);
        }
        hash.drop_over(ctx.txn, &args[2..])?;
        hash.save(ctx.txn, args[1])?;
    }
    ctx.reply.int(removed);
    Ok(())
}

fn hincrby(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let by = args::int(args[3])?;
    let mut hash = open(ctx, args[1])?;
    let old = match hash.get(ctx.txn, args[2])? {
        Some(value) => {
            num::parse_i64(&value).ok_or(Error::text("ERR hash value is not an integer"))?
        }
        None => 0,
    };
    let new = old.checked_add(by).ok_or(OpError::Overflow)?;
    let mut text = itoa::Buffer::new();
    hash.insert_keeping_time(ctx.txn, args[2], text.format(new).as_bytes())?;
    hash.save(ctx.txn, args[1])?;
    ctx.event(Class::HASH, "hincrby", args[1]);
    ctx.reply.int(new);
    Ok(())
}

fn hincrbyfloat(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let by = LongDouble::parse(args[3]).ok_or(OpError::NotFloat)?;
    if !by.is_finite() {
        return Err(Error::text("ERR value is NaN or Infinity"));
    }
    let mut hash = open(ctx, args[1])?;
    let sum = match hash.get(ctx.txn, args[2])? {
        Some(value) => LongDouble::parse(&value)
            .ok_or(Error::text("ERR hash value is not a float"))?
            .add(by),
        None => by,
    };
    if !sum.is_finite() {
        return Err(OpError::NotFinite.into());
    }
    let value = sum.to_human();
    hash.insert_keeping_time(ctx.txn, args[2], &value)?;
    let time = hash.time(ctx.txn, args[2])?.unwrap_or_default();
    hash.save(ctx.txn, args[1])?;
    ctx.event(Class::HASH, "hincrbyfloat", args[1]);
    ctx.txn.effect(ctx.db, &[b"HSET", args[1], args[2], &value]);
    if time.is_some() {
        // HSET takes it away.
        FIELDS.state_times(ctx, args[1], time, &[args[2]]);
    }
    ctx.reply.bulk(&value);
    Ok(())
}

fn hget(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let hash = load(ctx, args[1])?;
    reply_value(ctx, hash.as_ref(), args[2])
}

fn hmget(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let hash = load(ctx, args[1])?;
    let fields = &args[2..];
    ctx.reply.array(fields.len());
    fields
        .iter()
        .try_for_each(|field| reply_value(ctx, hash.as_ref(), field))
}

fn reply_value(ctx: &mut ReadCtx<'_>, hash: Option<&Members>, field: &[u8]) -> CmdResult {
    let value = hash.map(|hash| hash.get(ctx.view, field)).transpose()?;
    match value.flatten() {
        Some(value) => ctx.reply.bulk(&value),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn hexists(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let found = match load(ctx, args[1])? {
        Some(hash) => hash.contains(ctx.view, args[2])?,
        None => false,
    };
    ctx.reply.int(i64::from(found));
    Ok(())
}

fn hstrlen(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let len = match load(ctx, args[1])? {
        Some(hash) => hash.get(ctx.view, args[2])?.map_or(0, |value| value.len()),
        None => 0,
    };
    ctx.reply.int(len as i64);
    Ok(())
}

fn hlen(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let len = load_living(ctx, args[1])?.map_or(0, |(_, len)| len);
    ctx.reply.int(len as i64);
    Ok(())
}

fn hgetall(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some((hash, len)) = load_living(ctx, args[1])? else {
        ctx.reply.map(0);
        return Ok(());
    };
    ctx.reply.map(len as usize);
    let reply = &mut *ctx.reply;
    Ok(hash.for_each(ctx.view, |field, value| {
        reply.bulk(field);
        reply.bulk(value);
        ControlFlow::Continue(())
    })?)
}

fn hkeys(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_each(ctx, args, |reply, field, _| reply.bulk(field))
}

fn hvals(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_each(ctx, args, |reply, _, value| reply.bulk(value))
}

fn reply_each(
    ctx: &mut ReadCtx<'_>,
    args: &[&[u8]],
    write: fn(&mut Reply, &[u8], &[u8]),
) -> CmdResult {
    let Some((hash, len)) = load_living(ctx, args[1])? else {
        ctx.reply.array(0);
        return Ok(());
    };
    ctx.reply.array(len as usize);
    let reply = &mut *ctx.reply;
    Ok(hash.for_each(ctx.view, |field, value| {
        write(reply, field, value);
        ControlFlow::Continue(())
    })?)
}

fn hrandfield(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (count, with_values) = match args {
        [_, _] => {
            return match load_living(ctx, args[1])? {
                Some((hash, _)) => Ok(hash.sample(ctx.view, |field, _| ctx.reply.bulk(field))?),
                None => {
                    ctx.reply.null();
                    Ok(())
                }
            };
        }
        [_, _, count] => (elements::sample_count(count)?, false),
        [_, _, count, word] => {
            let count = elements::sample_count(count)?;
            if !args::is(word, "WITHVALUES") {
                return Err(Error::Syntax);
            }
            if count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
                return Err(Error::OUT_OF_RANGE);
            }
            (count, true)
        }
        _ => {
            elements::sample_count(args[2])?;
            return Err(Error::Syntax);
        }
    };
    let Some((hash, len)) = load_living(ctx, args[1])? else {
        ctx.reply.array(0);
        return Ok(());
    };
    elements::reply_samples(ctx, (&hash, len), count, with_values)
}

fn hscan(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let request = ScanRequest::new(args)?;
    match load(ctx, args[1])? {
        Some(hash) => request.run(ctx, &hash, ValueType::Hash),
        None => {
            elements::reply_end_of_scan(ctx.reply);
            Ok(())
        }
    }
}

const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const METADATA: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO)];
const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const INCREASE: &[KeySpec] = &[KeySpec::at(
    1,
    KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE),
)];
const INSERT: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))];
const DELETE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))];

const GROWS: Flags = Flags::FAST.union(Flags::DENYOOM);

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("hdel", -3, hdel)
        .syntax("key field...")
        .complexity("O(N), N: fields named")
        .history(&[("2.4.0", "Takes several fields")])
        .flags(Flags::FAST)
        .keys(DELETE)
        .doc(
            Group::Hash,
            "2.0.0",
            "Removes fields, and the key with the last one",
        ),
    Command::read("hexists", 3, hexists)
        .syntax("key field")
        .flags(Flags::FAST)
        .keys(METADATA)
        .doc(Group::Hash, "2.0.0", "Returns whether a hash has a field"),
    Command::read("hget", 3, hget)
        .syntax("key field")
        .flags(Flags::FAST)
        .keys(READ)
        .doc(Group::Hash, "2.0.0", "Reads the value of one field"),
    Command::read("hgetall", 2, hgetall)
        .syntax("key")
        .complexity("O(N), N: fields of the hash")
        .keys(READ)
        .tips(&[Tip::NondeterministicOutputOrder])
        .doc(Group::Hash, "2.0.0", "Reads all fields and their values"),
    Command::write("hincrby", 4, hincrby)
        .syntax("key field increment:int")
        .flags(GROWS)
        .keys(INCREASE)
        .doc(
            Group::Hash,
            "2.0.0",
            "Adds an integer to the number in a field, which counts as 0 if absent",
        ),
    Command::write("hincrbyfloat", 4, hincrbyfloat)
        .syntax("key field increment:double")
        .flags(GROWS)
        .keys(INCREASE)
        .doc(
            Group::Hash,
            "2.6.0",
            "Adds a floating point number to the number in a field",
        ),
    Command::read("hkeys", 2, hkeys)
        .syntax("key")
        .complexity("O(N), N: fields of the hash")
        .keys(READ)
        .tips(&[Tip::NondeterministicOutputOrder])
        .doc(Group::Hash, "2.0.0", "Lists all fields"),
    Command::read("hlen", 2, hlen)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(METADATA)
        .doc(Group::Hash, "2.0.0", "Counts the fields"),
    Command::read("hmget", -3, hmget)
        .syntax("key field...")
        .complexity("O(N), N: fields named")
        .flags(Flags::FAST)
        .keys(READ)
        .doc(Group::Hash, "2.0.0", "Reads the values of several fields"),
    Command::write("hmset", -4, hmset)
        .syntax("key data=(field value)...")
        .complexity("O(N), N: fields named")
        .flags(GROWS)
        .keys(UPDATE)
        .deprecated("4.0.0", "`HSET`, which takes several fields")
        .doc(Group::Hash, "2.0.0", "Sets fields; HSET does the same"),
    Command::read("hrandfield", -2, hrandfield)
        .syntax("key [options=(count:int [WITHVALUES])]")
        .complexity("O(N), N: fields answered")
        .keys(READ)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Hash,
            "6.2.0",
            "Returns random fields, different ones or (count below 0) with repeats",
        ),
    Command::read("hscan", -3, hscan)
        .syntax("key cursor:int [MATCH pattern] [COUNT count:int] [NOVALUES@7.4.0]")
        .complexity("O(N), N: elements looked at, about COUNT")
        .history(&[("7.4.0", "Added `NOVALUES`")])
        .keys(READ)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Hash,
            "2.8.0",
            "Iterates over fields and values, a part with each call",
        ),
    Command::write("hset", -4, hset)
        .syntax("key data=(field value)...")
        .complexity("O(N), N: fields named")
        .history(&[("4.0.0", "Takes several fields")])
        .flags(GROWS)
        .keys(UPDATE)
        .doc(Group::Hash, "2.0.0", "Sets fields and counts the new ones"),
    Command::write("hsetnx", 4, hsetnx)
        .syntax("key field value")
        .flags(GROWS)
        .keys(INSERT)
        .doc(
            Group::Hash,
            "2.0.0",
            "Sets a field unless the hash has it already",
        ),
    Command::read("hstrlen", 3, hstrlen)
        .syntax("key field")
        .flags(Flags::FAST)
        .keys(METADATA)
        .doc(
            Group::Hash,
            "3.2.0",
            "Returns the length of the value of a field in bytes",
        ),
    Command::read("hvals", 2, hvals)
        .syntax("key")
        .complexity("O(N), N: fields of the hash")
        .keys(READ)
        .tips(&[Tip::NondeterministicOutputOrder])
        .doc(Group::Hash, "2.0.0", "Lists the values of all fields"),
];

#[cfg(test)]
mod tests;
