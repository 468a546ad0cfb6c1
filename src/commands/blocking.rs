//! Commands that wait until a list or a sorted set has something to take.
//!
//! A handler tries once. If it finds nothing, the executor blocks the client and calls the
//! handler again when one of the keys is ready (see
//! [`crate::commands::table::spec::Blocking`]). The binlog gets the equivalent command
//! that does not block.

use super::lists::{self, Mpop};
use super::zsets::{self, Zmpop};
use super::{Command, Error, Flags, KeyFlags, KeySpec, WriteCtx};
use crate::base::num;
use crate::commands::table::migrated::{Migrated, Part, PopEnd};
use crate::commands::table::spec::{Attempt, Group, Wait};
use crate::encoding::ValueType;
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::types::list::{self, End, List};
use std::ops::Range;

const TOO_LONG: Error = Error::text("ERR timeout is out of range");

/// Parses a timeout in seconds; returns milliseconds. 0 is no timeout.
fn timeout_ms(arg: &[u8]) -> Result<u64, Error> {
    let seconds = num::parse_f64_clamped(arg)
        .filter(|seconds| !seconds.is_nan())
        .ok_or(Error::text("ERR timeout is not a float or out of range"))?;
    let ms = (seconds * 1000.0).ceil();
    if ms >= i64::MAX as f64 {
        return Err(TOO_LONG);
    }
    checked_timeout(ms as i64)
}

/// Parses a timeout in whole milliseconds. 0 is no timeout.
pub(super) fn timeout_in_ms(arg: &[u8]) -> Result<u64, Error> {
    let ms =
        num::parse_i64(arg).ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    checked_timeout(ms)
}

fn checked_timeout(ms: i64) -> Result<u64, Error> {
    let ms = u64::try_from(ms).map_err(|_| Error::text("ERR timeout is negative"))?;
    // Like the time itself, the end of the wait must be an i64.
    let end = ms.checked_add(crate::sys::clock::unix_ms().0);
    match end.is_some_and(|end| i64::try_from(end).is_ok()) {
        true => Ok(ms),
        false => Err(TOO_LONG),
    }
}

/// The result of an attempt that found nothing: the client blocks on the keys at these
/// arguments, or gets a null if it must not block (EXEC, scripts).
fn wait(
    ctx: &mut WriteCtx<'_>,
    keys: Range<usize>,
    kind: ValueType,
    timeout_ms: u64,
) -> Result<Attempt, Error> {
    if ctx.session.deny_blocking {
        ctx.reply.null_array();
        return Ok(Attempt::Done);
    }
    Ok(Attempt::Wait(Wait {
        keys,
        kind,
        timeout_ms,
        minds_loss: false,
        retry_ms: None,
        request: None,
    }))
}

fn blpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    pop(ctx, args, End::Head, b"LPOP")
}

fn brpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    pop(ctx, args, End::Tail, b"RPOP")
}

fn pop(ctx: &mut WriteCtx<'_>, args: &[&[u8]], end: End, log: &[u8]) -> Result<Attempt, Error> {
    let last = args.len() - 1;
    let timeout_ms = timeout_ms(args[last])?;
    for &key in &args[1..last] {
        let Some(mut list) = List::load(ctx.txn, ctx.db, key)? else {
            continue;
        };
        ctx.reply.array(2);
        ctx.reply.bulk(key);
        let reply = &mut *ctx.reply;
        list.pop(ctx.txn, end, 1, |item| reply.bulk(item))?;
        ctx.event(Class::LIST, end.popped(), key);
        list.save(ctx.txn)?;
        ctx.txn.effect(ctx.db, &[log, key]);
        return Ok(Attempt::Done);
    }
    wait(ctx, 1..last, ValueType::List, timeout_ms)
}

fn blmpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    let asked = Mpop::parse(args, 2)?;
    let timeout_ms = timeout_ms(args[1])?;
    let Some(key) = lists::pop_first(ctx, &asked)? else {
        return wait(ctx, 3..3 + asked.keys.len(), ValueType::List, timeout_ms);
    };
    let log: &[u8] = match asked.end {
        End::Head => b"LPOP",
        End::Tail => b"RPOP",
    };
    log_counted(ctx, log, key, asked.count);
    Ok(Attempt::Done)
}

fn log_counted(ctx: &mut WriteCtx<'_>, name: &[u8], key: &[u8], count: u64) {
    let mut digits = itoa::Buffer::new();
    let count = digits.format(count).as_bytes();
    ctx.txn.effect(ctx.db, &[name, key, count]);
}

fn blmove(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    let (from, to) = (lists::end(args[3])?, lists::end(args[4])?);
    move_one(ctx, args, (from, to), args[5])
}

fn brpoplpush(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    move_one(ctx, args, (End::Tail, End::Head), args[3])
}

fn move_one(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    (from, to): (End, End),
    timeout: &[u8],
) -> Result<Attempt, Error> {
    let timeout_ms = timeout_ms(timeout)?;
    let (source, target) = (args[1], args[2]);
    let moved = list::move_one(ctx.txn, ctx.db, (source, from), (target, to))?;
    let Some(item) = moved else {
        if ctx.session.deny_blocking {
            ctx.reply.null();
            return Ok(Attempt::Done);
        }
        return wait(ctx, 1..2, ValueType::List, timeout_ms);
    };
    ctx.reply.bulk(&item);
    let word = |end| match end {
        End::Head => b"LEFT".as_slice(),
        End::Tail => b"RIGHT",
    };
    match args {
        [_, _, _, _] => ctx.txn.effect(ctx.db, &[b"RPOPLPUSH", source, target]),
        _ => {
            let log = [b"LMOVE", source, target, word(from), word(to)];
            ctx.txn.effect(ctx.db, &log);
        }
    }
    Ok(Attempt::Done)
}

fn blmovem(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    let (from, to) = (lists::end(args[3])?, lists::end(args[4])?);
    let timeout_ms = timeout_ms(args[5])?;
    let moved = lists::how_many(args, 6)?;
    match lists::move_many(ctx, (args[1], from), (args[2], to), moved)? {
        true => Ok(Attempt::Done),
        false => wait(ctx, 1..2, ValueType::List, timeout_ms),
    }
}

fn bzpopmin(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    zpop(ctx, args, Direction::Forward)
}

fn bzpopmax(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    zpop(ctx, args, Direction::Backward)
}

/// The name of the command that pops from this end and does not block.
fn zpop_name(direction: Direction) -> &'static [u8] {
    match direction {
        Direction::Forward => b"ZPOPMIN",
        Direction::Backward => b"ZPOPMAX",
    }
}

fn zpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]], direction: Direction) -> Result<Attempt, Error> {
    let last = args.len() - 1;
    let timeout_ms = timeout_ms(args[last])?;
    for &key in &args[1..last] {
        if let [(score, member)] = &*zsets::take(ctx, key, direction, 1)? {
            ctx.reply.array(3);
            ctx.reply.bulk(key);
            ctx.reply.bulk(member);
            ctx.reply.double(*score);
            ctx.txn.effect(ctx.db, &[zpop_name(direction), key]);
            return Ok(Attempt::Done);
        }
    }
    wait(ctx, 1..last, ValueType::Zset, timeout_ms)
}

fn bzmpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    let asked = Zmpop::parse(args, 2)?;
    let timeout_ms = timeout_ms(args[1])?;
    let Some(key) = zsets::pop_first(ctx, &asked)? else {
        return wait(ctx, 3..3 + asked.keys.len(), ValueType::Zset, timeout_ms);
    };
    log_counted(ctx, zpop_name(asked.direction), key, asked.count);
    Ok(Attempt::Done)
}

const POP: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);
const ALL_BUT_LAST: &[KeySpec] = &[KeySpec::range(1, -2, 1, POP)];
const COUNTED: &[KeySpec] = &[KeySpec::numkeys(2, POP)];
const MOVE: &[KeySpec] = &[
    KeySpec::at(1, POP),
    KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::blocking("blmove", 6, blmove)
        .syntax(
            "source:key destination:key wherefrom=(LEFT|RIGHT) whereto=(LEFT|RIGHT) \
             timeout:double",
        )
        .flags(Flags::BLOCKING.union(Flags::DENYOOM))
        .keys(MOVE)
        .migrated(Migrated::Keys(Part::MovedElement(PopEnd::Named(3))))
        .doc(
            Group::List,
            "6.2.0",
            "Takes an item from an end of one list, which it waits for, and pushes it at an \
             end of another",
        ),
    Command::blocking("blmovem", -6, blmovem)
        .syntax(
            "source:key destination:key wherefrom=(LEFT|RIGHT) whereto=(LEFT|RIGHT) \
             timeout:double \
             [how-many=(selector=(COUNT count:int|EXACTLY exactly:int) ordering=(OBO|BULK))]",
        )
        .complexity("O(N), N: items moved")
        .flags(Flags::BLOCKING.union(Flags::DENYOOM))
        .keys(MOVE)
        .migrated(Migrated::Keys(Part::MovedElements(PopEnd::Named(3), 7)))
        .doc(
            Group::List,
            "8.10.0",
            "Takes several items, which it waits for, from an end of one list and pushes them \
             at an end of another",
        ),
    Command::blocking("blmpop", -5, blmpop)
        .syntax("timeout:double numkeys:int key... where=(LEFT|RIGHT) [COUNT count:int]")
        .complexity("O(K + M), K: keys, M: elements taken")
        .flags(Flags::BLOCKING)
        .keys(COUNTED)
        .doc(
            Group::List,
            "7.0.0",
            "Pops items from the first of several lists that exists, and waits for one",
        ),
    Command::blocking("blpop", -3, blpop)
        .syntax("key... timeout:double")
        .complexity("O(K), K: keys")
        .history(&[("6.0.0", "The timeout may have fractions of a second")])
        .flags(Flags::BLOCKING)
        .keys(ALL_BUT_LAST)
        .doc(
            Group::List,
            "2.0.0",
            "Pops the first item of the first of several lists that exists, and waits for one",
        ),
    Command::blocking("brpop", -3, brpop)
        .syntax("key... timeout:double")
        .complexity("O(K), K: keys")
        .history(&[("6.0.0", "The timeout may have fractions of a second")])
        .flags(Flags::BLOCKING)
        .keys(ALL_BUT_LAST)
        .doc(
            Group::List,
            "2.0.0",
            "Pops the last item of the first of several lists that exists, and waits for one",
        ),
    Command::blocking("brpoplpush", 4, brpoplpush)
        .syntax("source:key destination:key timeout:double")
        .history(&[("6.0.0", "The timeout may have fractions of a second")])
        .flags(Flags::BLOCKING.union(Flags::DENYOOM))
        .keys(MOVE)
        .deprecated("6.2.0", "`BLMOVE` with `RIGHT` and `LEFT`")
        .migrated(Migrated::Keys(Part::MovedElement(PopEnd::Right)))
        .doc(
            Group::List,
            "2.2.0",
            "Takes the last item of one list, which it waits for, and pushes it at the head of \
             another",
        ),
    Command::blocking("bzmpop", -5, bzmpop)
        .syntax("timeout:double numkeys:int key... where=(MIN|MAX) [COUNT count:int]")
        .complexity("O(K + M log N), K: keys, M: members taken, N: members of the sorted set")
        .flags(Flags::BLOCKING)
        .keys(COUNTED)
        .doc(
            Group::SortedSet,
            "7.0.0",
            "Pops elements from the first of several sorted sets that exists, and waits for one",
        ),
    Command::blocking("bzpopmax", -3, bzpopmax)
        .syntax("key... timeout:double")
        .complexity("O(K + log N), K: keys, N: members of the sorted set")
        .history(&[("6.0.0", "The timeout may have fractions of a second")])
        .flags(Flags::BLOCKING.union(Flags::FAST))
        .keys(ALL_BUT_LAST)
        .doc(
            Group::SortedSet,
            "5.0.0",
            "Pops the highest element of the first of several sorted sets that exists, and \
             waits for one",
        ),
    Command::blocking("bzpopmin", -3, bzpopmin)
        .syntax("key... timeout:double")
        .complexity("O(K + log N), K: keys, N: members of the sorted set")
        .history(&[("6.0.0", "The timeout may have fractions of a second")])
        .flags(Flags::BLOCKING.union(Flags::FAST))
        .keys(ALL_BUT_LAST)
        .doc(
            Group::SortedSet,
            "5.0.0",
            "Pops the lowest element of the first of several sorted sets that exists, and waits \
             for one",
        ),
];
