//! Sorted ints: the commands of Kvrocks for its type `sortedint`.

use super::args::Options;
use super::table::spec::Group;
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::num;
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::sortedint::{Edit, SortedInt};
use std::ops::{ControlFlow, RangeInclusive};

/// An unsigned integer of 64 bits, which may have zeros in front.
fn number(arg: &[u8]) -> Option<u64> {
    let zeros = arg.iter().take_while(|digit| **digit == b'0').count();
    num::parse_u64(&arg[zeros.min(arg.len().saturating_sub(1))..])
}

fn id(arg: &[u8]) -> Result<u64, Error> {
    number(arg).ok_or(Error::Op(OpError::NotInteger))
}

fn ids(args: &[&[u8]]) -> Result<Vec<u64>, Error> {
    args.iter().map(|arg| id(arg)).collect()
}

fn siadd(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let ids = ids(&args[2..])?;
    let mut edit = Edit::open(ctx.txn, ctx.db, args[1])?;
    let mut added = 0;
    for id in ids {
        added += i64::from(edit.insert(ctx.txn, id)?);
    }
    edit.save(ctx.txn)?;
    if added > 0 {
        ctx.event(Class::MODULE, "siadd", args[1]);
    }
    ctx.reply.int(added);
    Ok(())
}

fn sirem(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let ids = ids(&args[2..])?;
    let mut edit = Edit::open(ctx.txn, ctx.db, args[1])?;
    let mut removed = 0;
    for id in ids {
        removed += i64::from(edit.remove(ctx.txn, id)?);
    }
    if removed > 0 {
        ctx.event(Class::MODULE, "sirem", args[1]);
    }
    edit.save(ctx.txn)?;
    ctx.reply.int(removed);
    Ok(())
}

fn sicard(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let value = SortedInt::open(ctx.view, ctx.db, args[1])?;
    ctx.reply.int(value.map_or(0, |value| value.len()) as i64);
    Ok(())
}

fn siexists(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let ids = ids(&args[2..])?;
    let value = SortedInt::open(ctx.view, ctx.db, args[1])?;
    ctx.reply.array(ids.len());
    for id in ids {
        let is_there = match &value {
            Some(value) => value.contains(ctx.view, id)?,
            None => false,
        };
        ctx.reply.int(i64::from(is_there));
    }
    Ok(())
}

/// What a range command answers: up to `limit` ids of a range, after the first `skip`.
struct Asked {
    range: Option<RangeInclusive<u64>>,
    direction: Direction,
    skip: u64,
    /// `None`: all.
    limit: Option<u64>,
}

fn answer(ctx: &mut ReadCtx<'_>, key: &[u8], asked: Asked) -> CmdResult {
    let value = SortedInt::open(ctx.view, ctx.db, key)?;
    let (Some(value), Some(range)) = (value, asked.range) else {
        ctx.reply.array(0);
        return Ok(());
    };
    let mark = ctx.reply.begin();
    let (mut skip, mut written) = (asked.skip, 0);
    let reply = &mut *ctx.reply;
    value.walk(ctx.view, range, asked.direction, &mut |id| {
        if skip > 0 {
            skip -= 1;
            return ControlFlow::Continue(());
        }
        reply.bulk(itoa::Buffer::new().format(id).as_bytes());
        written += 1;
        match asked.limit {
            Some(limit) if written >= limit => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    ctx.reply
        .end_array(mark, usize::try_from(written).unwrap_or(usize::MAX));
    Ok(())
}

/// The ids behind a cursor. The cursor 0 is the beginning of a walk downwards.
fn behind(cursor: Option<u64>, direction: Direction) -> Option<RangeInclusive<u64>> {
    Some(match (cursor, direction) {
        (None, _) | (Some(0), Direction::Backward) => 0..=u64::MAX,
        (Some(cursor), Direction::Forward) => cursor.checked_add(1)?..=u64::MAX,
        (Some(cursor), Direction::Backward) => 0..=cursor - 1,
    })
}

fn range(ctx: &mut ReadCtx<'_>, args: &[&[u8]], direction: Direction) -> CmdResult {
    let (skip, limit) = (id(args[2])?, id(args[3])?);
    let mut options = Options::new(args, 4);
    let mut cursor = None;
    if !options.is_empty() {
        if options.left() != 2 || !options.word("CURSOR") {
            return Err(Error::Syntax);
        }
        cursor = Some(id(options.value()?)?);
    }
    let asked = Asked {
        range: behind(cursor, direction),
        direction,
        skip,
        limit: Some(limit).filter(|limit| *limit > 0),
    };
    answer(ctx, args[1], asked)
}

fn sirange(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    range(ctx, args, Direction::Forward)
}

fn sirevrange(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    range(ctx, args, Direction::Backward)
}

/// The ids between two bounds, each excluded behind `(`. `None`: no id is.
fn between(min: &[u8], max: &[u8]) -> Result<Option<RangeInclusive<u64>>, Error> {
    if min == b"+inf" || max == b"-inf" {
        return Err(Error::text("ERR min > max"));
    }
    let bound = |arg: &[u8], open: &[u8], end: u64, refusal: Error| match arg {
        _ if arg == open => Ok((end, false)),
        [b'(', arg @ ..] => number(arg).map(|n| (n, true)).ok_or(refusal),
        arg => number(arg).map(|n| (n, false)).ok_or(refusal),
    };
    let refusal = Error::text("ERR the min isn't integer");
    let (min, min_excluded) = bound(min, b"-inf", 0, refusal)?;
    let refusal = Error::text("ERR the max isn't integer");
    let (max, max_excluded) = bound(max, b"+inf", u64::MAX, refusal)?;
    let (first, last) = (
        min.checked_add(u64::from(min_excluded)),
        max.checked_sub(u64::from(max_excluded)),
    );
    Ok(first.zip(last).map(|(first, last)| first..=last))
}

fn range_by_value(ctx: &mut ReadCtx<'_>, args: &[&[u8]], direction: Direction) -> CmdResult {
    let range = match direction {
        Direction::Forward => between(args[2], args[3])?,
        Direction::Backward => between(args[3], args[2])?,
    };
    let mut options = Options::new(args, 4);
    let (mut skip, mut limit) = (0, None);
    if !options.is_empty() {
        if options.left() != 3 || !options.word("LIMIT") {
            return Err(Error::Syntax);
        }
        let mut number = || {
            let number = i32::try_from(options.int()?);
            number.map_err(|_| Error::Op(OpError::NotInteger))
        };
        // A negative offset counts as 0; a count that is not positive, as none.
        skip = u64::try_from(number()?).unwrap_or(0);
        limit = u64::try_from(number()?).ok().filter(|limit| *limit > 0);
    }
    let asked = Asked {
        range,
        direction,
        skip,
        limit,
    };
    answer(ctx, args[1], asked)
}

fn sirangebyvalue(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    range_by_value(ctx, args, Direction::Forward)
}

fn sirevrangebyvalue(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    range_by_value(ctx, args, Direction::Backward)
}

const READS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const COUNTS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO)];
const INSERTS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))];
const REMOVES: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))];

/// The version of Redis that clients are told: Redis does not have the type.
const SINCE: &str = "7.4.0";

/// The rows of sorted ints.
pub const COMMANDS: &[Command] = &[
    Command::write("siadd", -3, siadd)
        .syntax("key id:int...")
        .complexity("O(M log N), M: ids named, N: ids of the value")
        .flags(Flags::FAST.union(Flags::DENYOOM))
        .keys(INSERTS)
        .doc(Group::SortedInt, SINCE, "Adds ids"),
    Command::write("sirem", -3, sirem)
        .syntax("key id:int...")
        .complexity("O(M log N), M: ids named, N: ids of the value")
        .flags(Flags::FAST)
        .keys(REMOVES)
        .doc(Group::SortedInt, SINCE, "Removes ids"),
    Command::read("sicard", 2, sicard)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(COUNTS)
        .doc(Group::SortedInt, SINCE, "Returns the number of ids"),
    Command::read("siexists", -3, siexists)
        .syntax("key id:int...")
        .complexity("O(N), N: ids named")
        .flags(Flags::FAST)
        .keys(READS)
        .doc(
            Group::SortedInt,
            SINCE,
            "Returns which of several ids are there",
        ),
    Command::read("sirange", -4, sirange)
        .syntax("key offset:int count:int [CURSOR id:int]")
        .complexity(RANGE_COMPLEXITY)
        .keys(READS)
        .doc(
            Group::SortedInt,
            SINCE,
            "Returns ids in ascending order, from the lowest or from behind a cursor on",
        ),
    Command::read("sirevrange", -4, sirevrange)
        .syntax("key offset:int count:int [CURSOR id:int]")
        .complexity(RANGE_COMPLEXITY)
        .keys(READS)
        .doc(
            Group::SortedInt,
            SINCE,
            "Returns ids in descending order, from the highest or from below a cursor on",
        ),
    Command::read("sirangebyvalue", -4, sirangebyvalue)
        .syntax("key min max [LIMIT limit=(offset:int count:int)]")
        .complexity(RANGE_COMPLEXITY)
        .keys(READS)
        .doc(
            Group::SortedInt,
            SINCE,
            "Returns the ids between two bounds in ascending order",
        ),
    Command::read("sirevrangebyvalue", -4, sirevrangebyvalue)
        .syntax("key max min [LIMIT limit=(offset:int count:int)]")
        .complexity(RANGE_COMPLEXITY)
        .keys(READS)
        .doc(
            Group::SortedInt,
            SINCE,
            "Returns the ids between two bounds in descending order",
        ),
];

const RANGE_COMPLEXITY: &str = "O(log N + M), N: ids of the value, M: offset and ids answered";

#[cfg(test)]
mod tests;
