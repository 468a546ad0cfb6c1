//! Commands of lists.

use super::args::{self, Options};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::commands::table::migrated::{Migrated, Part, PopEnd};
use crate::commands::table::spec::Group;
use crate::resp::Reply;
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::list::{self, End, List, Moved};
use std::ops::ControlFlow;

const RANK_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, \
     2 from the second ... or use negative to start from the end of the list";

fn lpush(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    push(ctx, args, End::Head)
}

fn rpush(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    push(ctx, args, End::Tail)
}

fn push(ctx: &mut WriteCtx<'_>, args: &[&[u8]], end: End) -> CmdResult {
    let list = List::load_or_new(ctx.txn, ctx.db, args[1])?;
    push_to(ctx, list, end, args)
}

fn lpushx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    push_if_exists(ctx, args, End::Head)
}

fn rpushx(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    push_if_exists(ctx, args, End::Tail)
}

fn push_if_exists(ctx: &mut WriteCtx<'_>, args: &[&[u8]], end: End) -> CmdResult {
    match List::load(ctx.txn, ctx.db, args[1])? {
        Some(list) => push_to(ctx, list, end, args),
        None => {
            ctx.reply.int(0);
            Ok(())
        }
    }
}

fn push_to(ctx: &mut WriteCtx<'_>, mut list: List<'_>, end: End, args: &[&[u8]]) -> CmdResult {
    list.push(ctx.txn, end, &args[2..])?;
    reply_len(ctx.reply, list.len());
    list.save(ctx.txn)?;
    ctx.event(Class::LIST, end.pushed(), args[1]);
    Ok(())
}

fn lpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    pop(ctx, args, End::Head)
}

fn rpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    pop(ctx, args, End::Tail)
}

fn pop(ctx: &mut WriteCtx<'_>, args: &[&[u8]], end: End) -> CmdResult {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(args::int_from(count, 0, Error::NOT_POSITIVE)?.unsigned_abs()),
        [name, ..] => {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            return Err(Error::Arity(name.into()));
        }
        [] => return Err(Error::Syntax),
    };
    let Some(mut list) = List::load(ctx.txn, ctx.db, args[1])? else {
        match count {
            Some(_) => ctx.reply.null_array(),
            None => ctx.reply.null(),
        }
        return Ok(());
    };
    if let Some(count) = count {
        ctx.reply.array(count.min(list.len()) as usize);
    }
    let reply = &mut *ctx.reply;
    list.pop(ctx.txn, end, count.unwrap_or(1), |item| reply.bulk(item))?;
    if count != Some(0) {
        ctx.event(Class::LIST, end.popped(), args[1]);
    }
    Ok(list.save(ctx.txn)?)
}

fn lmpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let asked = Mpop::parse(args, 1)?;
    if pop_first(ctx, &asked)?.is_none() {
        ctx.reply.null_array();
    }
    Ok(())
}

/// Pops from the first of the keys that exists, replies, and returns the key.
pub fn pop_first<'a>(ctx: &mut WriteCtx<'_>, asked: &Mpop<'a>) -> Result<Option<&'a [u8]>, Error> {
    for &key in asked.keys {
        let Some(mut list) = List::load(ctx.txn, ctx.db, key)? else {
            continue;
        };
        ctx.reply.array(2);
        ctx.reply.bulk(key);
        ctx.reply.array(asked.count.min(list.len()) as usize);
        let reply = &mut *ctx.reply;
        list.pop(ctx.txn, asked.end, asked.count, |item| reply.bulk(item))?;
        ctx.event(Class::LIST, asked.end.popped(), key);
        list.save(ctx.txn)?;
        return Ok(Some(key));
    }
    Ok(None)
}

/// The arguments of LMPOP and BLMPOP: `numkeys key … LEFT|RIGHT [COUNT count]`.
#[derive(Debug, Clone, Copy)]
pub struct Mpop<'a> {
    /// The keys, in order of preference.
    pub keys: &'a [&'a [u8]],
    /// The end of the list from which items are popped.
    pub end: End,
    /// Maximum number of items; at least 1.
    pub count: u64,
}

impl<'a> Mpop<'a> {
    /// Parses the arguments; the number of keys is at index `at`.
    pub fn parse(args: &'a [&'a [u8]], at: usize) -> Result<Mpop<'a>, Error> {
        let mut options = Options::new(args, at);
        let numkeys = args::int_from(options.value()?, 1, Error::NUMKEYS)?;
        let keys = options.values(usize::try_from(numkeys).map_err(|_| Error::Syntax)?)?;
        let end = end(options.value()?)?;
        let mut count = None;
        while !options.is_empty() {
            if count.is_some() || !options.word("COUNT") {
                return Err(Error::Syntax);
            }
            count = Some(args::int_from(options.value()?, 1, Error::ZERO_COUNT)?.unsigned_abs());
        }
        Ok(Mpop {
            keys,
            end,
            count: count.unwrap_or(1),
        })
    }
}

/// `LEFT` or `RIGHT`.
pub fn end(arg: &[u8]) -> Result<End, Error> {
    if args::is(arg, "LEFT") {
        Ok(End::Head)
    } else if args::is(arg, "RIGHT") {
        Ok(End::Tail)
    } else {
        Err(Error::Syntax)
    }
}

fn lmove(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (from, to) = (end(args[3])?, end(args[4])?);
    move_one(ctx, (args[1], from), (args[2], to))
}

fn rpoplpush(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    move_one(ctx, (args[1], End::Tail), (args[2], End::Head))
}

fn move_one(ctx: &mut WriteCtx<'_>, from: (&[u8], End), to: (&[u8], End)) -> CmdResult {
    match list::move_one(ctx.txn, ctx.db, from, to)? {
        Some(item) => ctx.reply.bulk(&item),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn lmovem(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (from, to) = (end(args[3])?, end(args[4])?);
    let moved = how_many(args, 5)?;
    if !move_many(ctx, (args[1], from), (args[2], to), moved)? {
        ctx.reply.null_array();
    }
    Ok(())
}

/// How many items LMOVEM and BLMOVEM move: one, or what the block at index `at` says, which
/// ends the arguments.
pub(super) fn how_many(args: &[&[u8]], at: usize) -> Result<Moved, Error> {
    let &[selector, count, order] = args.get(at..).unwrap_or_default() else {
        return match args.len() == at {
            true => Ok(Moved {
                count: 1,
                exactly: false,
                one_by_one: false,
            }),
            false => Err(Error::Syntax),
        };
    };
    let exactly = args::is(selector, "EXACTLY");
    if !exactly && !args::is(selector, "COUNT") {
        return Err(Error::Syntax);
    }
    let count = args::int_from(count, 1, Error::ZERO_COUNT)?.unsigned_abs();
    let one_by_one = args::is(order, "OBO");
    if !one_by_one && !args::is(order, "BULK") {
        return Err(Error::Syntax);
    }
    Ok(Moved {
        count,
        exactly,
        one_by_one,
    })
}

/// Maximum number of items of one push in the binlog.
const PUSHED_ITEMS: usize = 1024;

/// Moves items, replies with them and states what was done; returns whether there were enough.
pub(super) fn move_many(
    ctx: &mut WriteCtx<'_>,
    (source, from): (&[u8], End),
    (target, to): (&[u8], End),
    moved: Moved,
) -> Result<bool, Error> {
    let items = list::move_many(ctx.txn, ctx.db, (source, from), (target, to), moved)?;
    let Some(items) = items else {
        return Ok(false);
    };
    ctx.reply.array(items.len());
    items.iter().for_each(|item| ctx.reply.bulk(item));
    state_moved(ctx, (source, from), (target, to), &items);
    Ok(true)
}

/// States a move in commands that each version of a replica knows. The list must not become
/// empty on the way, as its expiry would go with it: so at the same key the items are pushed
/// before they are taken from the other end, and written in place at the same end.
fn state_moved(
    ctx: &mut WriteCtx<'_>,
    (source, from): (&[u8], End),
    (target, to): (&[u8], End),
    items: &[Vec<u8>],
) {
    let mut number = itoa::Buffer::new();
    let pop: &[u8] = match from {
        End::Head => b"LPOP",
        End::Tail => b"RPOP",
    };
    if source == target && from == to {
        for (at, item) in (0_i64..).zip(items) {
            let at = match to {
                End::Head => at,
                End::Tail => at - items.len() as i64,
            };
            let at = number.format(at).as_bytes();
            ctx.txn.effect(ctx.db, &[b"LSET", target, at, item]);
        }
        return;
    }
    let taken = [pop, source, number.format(items.len()).as_bytes()];
    if source != target {
        ctx.txn.effect(ctx.db, &taken);
    }
    let (push, mut pushed): (&[u8], Vec<&[u8]>) = match to {
        End::Head => (b"LPUSH", items.iter().rev().map(Vec::as_slice).collect()),
        End::Tail => (b"RPUSH", items.iter().map(Vec::as_slice).collect()),
    };
    for part in pushed.chunks_mut(PUSHED_ITEMS) {
        let effect: Vec<&[u8]> = [push, target]
            .into_iter()
            .chain(part.iter().copied())
            .collect();
        ctx.txn.effect(ctx.db, &effect);
    }
    if source == target {
        ctx.txn.effect(ctx.db, &taken);
    }
}

fn llen(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let list = List::load(ctx.view, ctx.db, args[1])?;
    reply_len(ctx.reply, list.map_or(0, |list| list.len()));
    Ok(())
}

fn lindex(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some(list) = List::load(ctx.view, ctx.db, args[1])? else {
        ctx.reply.null();
        return Ok(());
    };
    let Some(at) = list.position(args::int(args[2])?) else {
        ctx.reply.null();
        return Ok(());
    };
    Ok(list.read(ctx.view, at..at + 1, |item| ctx.reply.bulk(item))?)
}

fn lrange(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (start, stop) = (args::int(args[2])?, args::int(args[3])?);
    let Some(list) = List::load(ctx.view, ctx.db, args[1])? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let range = list.positions(start, stop);
    ctx.reply.array((range.end - range.start) as usize);
    Ok(list.read(ctx.view, range, |item| ctx.reply.bulk(item))?)
}

fn lset(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut list = List::load(ctx.txn, ctx.db, args[1])?.ok_or(OpError::NoSuchKey)?;
    let at = list
        .position(args::int(args[2])?)
        .ok_or(OpError::IndexOutOfRange)?;
    list.set(ctx.txn, at, args[3])?;
    list.save(ctx.txn)?;
    ctx.event(Class::LIST, "lset", args[1]);
    ctx.reply.ok();
    Ok(())
}

fn linsert(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let side = if args::is(args[2], "BEFORE") {
        End::Head
    } else if args::is(args[2], "AFTER") {
        End::Tail
    } else {
        return Err(Error::Syntax);
    };
    let Some(mut list) = List::load(ctx.txn, ctx.db, args[1])? else {
        ctx.reply.int(0);
        return Ok(());
    };
    match list.insert(ctx.txn, side, args[3], args[4])? {
        true => {
            reply_len(ctx.reply, list.len());
            ctx.event(Class::LIST, "linsert", args[1]);
        }
        false => ctx.reply.int(-1),
    }
    Ok(list.save(ctx.txn)?)
}

fn lrem(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let count = args::int(args[2])?;
    if count == i64::MIN {
        return Err(Error::OUT_OF_I64);
    }
    let (from, limit) = match count {
        0 => (End::Head, u64::MAX),
        1.. => (End::Head, count.unsigned_abs()),
        _ => (End::Tail, count.unsigned_abs()),
    };
    let mut removed = 0;
    if let Some(mut list) = List::load(ctx.txn, ctx.db, args[1])? {
        removed = list.remove(ctx.txn, from, limit, args[3])?;
        if removed > 0 {
            ctx.event(Class::LIST, "lrem", args[1]);
        }
        list.save(ctx.txn)?;
    }
    reply_len(ctx.reply, removed);
    Ok(())
}

fn ltrim(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (start, stop) = (args::int(args[2])?, args::int(args[3])?);
    if let Some(mut list) = List::load(ctx.txn, ctx.db, args[1])? {
        list.keep(list.positions(start, stop))?;
        ctx.event(Class::LIST, "ltrim", args[1]);
        list.save(ctx.txn)?;
    }
    ctx.reply.ok();
    Ok(())
}

/// The options of LPOS.
struct Wanted {
    /// The direction of the search.
    order: Direction,
    /// Number of matches to skip.
    skip: u64,
    /// Maximum number of matches; `None`: one match, not in an array.
    count: Option<u64>,
    /// Maximum number of items to compare.
    maxlen: u64,
}

impl Wanted {
    fn parse(args: &[&[u8]]) -> Result<Wanted, Error> {
        let mut wanted = Wanted {
            order: Direction::Forward,
            skip: 0,
            count: None,
            maxlen: u64::MAX,
        };
        let unlimited = |n: i64| if n == 0 { u64::MAX } else { n.unsigned_abs() };
        let mut options = Options::new(args, 3);
        while !options.is_empty() {
            if options.word("RANK") {
                let rank = options.int()?;
                if rank == i64::MIN {
                    return Err(Error::OUT_OF_I64);
                }
                if rank == 0 {
                    return Err(Error::text(RANK_ZERO));
                }
                wanted.skip = rank.unsigned_abs() - 1;
                wanted.order = match rank {
                    0.. => Direction::Forward,
                    _ => Direction::Backward,
                };
            } else if options.word("COUNT") {
                let refusal = Error::text("ERR COUNT can't be negative");
                let count = args::int_from(options.value()?, 0, refusal)?;
                wanted.count = Some(unlimited(count));
            } else if options.word("MAXLEN") {
                let refusal = Error::text("ERR MAXLEN can't be negative");
                wanted.maxlen = unlimited(args::int_from(options.value()?, 0, refusal)?);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(wanted)
    }
}

fn lpos(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut wanted = Wanted::parse(args)?;
    let mark = ctx.reply.begin();
    let mut found = 0;
    let limit = wanted.count.unwrap_or(1);
    if let Some(list) = List::load(ctx.view, ctx.db, args[1])? {
        let len = list.len();
        let compared = wanted.maxlen.min(len);
        let range = match wanted.order {
            Direction::Forward => 0..compared,
            Direction::Backward => len - compared..len,
        };
        list.visit(ctx.view, range, wanted.order, |at, item: &[u8]| {
            if item != args[2] {
                return ControlFlow::Continue(());
            }
            if wanted.skip > 0 {
                wanted.skip -= 1;
                return ControlFlow::Continue(());
            }
            reply_len(ctx.reply, at);
            found += 1;
            match found < limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
    }
    if wanted.count.is_some() {
        ctx.reply.end_array(mark, found as usize);
    } else if found == 0 {
        ctx.reply.null();
    }
    Ok(())
}

/// Replies with a length or a position, at most `i64::MAX`.
fn reply_len(reply: &mut Reply, len: u64) {
    reply.int(i64::try_from(len).unwrap_or(i64::MAX));
}

const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const LENGTH: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO)];
const INSERT: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))];
const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const DELETE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))];
const POP: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);
const MOVE: &[KeySpec] = &[
    KeySpec::at(1, POP),
    KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
];
const GROW: Flags = Flags::DENYOOM.union(Flags::FAST);

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::read("lindex", 3, lindex)
        .syntax("key index:int")
        .keys(READ)
        .doc(Group::List, "1.0.0", "Returns the item at an index"),
    Command::write("linsert", 5, linsert)
        .syntax("key where=(BEFORE|AFTER) pivot element")
        .complexity(
            "O(S + M), S: elements before the pivot, M: elements of the smaller side, \
             which move",
        )
        .flags(Flags::DENYOOM)
        .keys(INSERT)
        .doc(Group::List, "2.2.0", "Inserts an item next to another"),
    Command::read("llen", 2, llen)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(LENGTH)
        .doc(Group::List, "1.0.0", "Returns how many items a list has"),
    Command::write("lmove", 5, lmove)
        .syntax("source:key destination:key wherefrom=(LEFT|RIGHT) whereto=(LEFT|RIGHT)")
        .flags(Flags::DENYOOM)
        .keys(MOVE)
        .migrated(Migrated::Keys(Part::MovedElement(PopEnd::Named(3))))
        .doc(
            Group::List,
            "6.2.0",
            "Takes an item from an end of one list and pushes it at an end of another",
        ),
    Command::write("lmovem", -5, lmovem)
        .syntax(
            "source:key destination:key wherefrom=(LEFT|RIGHT) whereto=(LEFT|RIGHT) \
             [how-many=(selector=(COUNT count:int|EXACTLY exactly:int) ordering=(OBO|BULK))]",
        )
        .complexity("O(N), N: items moved")
        .flags(Flags::DENYOOM)
        .keys(MOVE)
        .migrated(Migrated::Keys(Part::MovedElements(PopEnd::Named(3), 6)))
        .doc(
            Group::List,
            "8.10.0",
            "Takes several items from an end of one list and pushes them at an end of another",
        ),
    Command::write("lmpop", -4, lmpop)
        .syntax("numkeys:int key... where=(LEFT|RIGHT) [COUNT count:int]")
        .complexity("O(K + M), K: keys, M: elements taken")
        .keys(&[KeySpec::numkeys(1, POP)])
        .doc(
            Group::List,
            "7.0.0",
            "Pops items from the first of several lists that exists",
        ),
    Command::write("lpop", -2, lpop)
        .syntax("key [count:int@6.2.0]")
        .complexity("O(N), N: elements taken")
        .history(&[("6.2.0", "Added the count")])
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(1, POP)])
        .doc(Group::List, "1.0.0", "Pops items from the head of a list"),
    Command::read("lpos", -3, lpos)
        .syntax("key element [RANK rank:int] [COUNT num-matches:int] [MAXLEN len:int]")
        .complexity("O(N), N: elements looked at")
        .keys(READ)
        .doc(
            Group::List,
            "6.0.6",
            "Returns the positions of items that equal a value",
        ),
    Command::write("lpush", -3, lpush)
        .syntax("key element...")
        .complexity("O(N), N: elements added")
        .history(&[("2.4.0", "Takes several elements")])
        .flags(GROW)
        .keys(INSERT)
        .doc(
            Group::List,
            "1.0.0",
            "Pushes items at the head of a list, and creates it if absent",
        ),
    Command::write("lpushx", -3, lpushx)
        .syntax("key element...")
        .complexity("O(N), N: elements added")
        .history(&[("4.0.0", "Takes several elements")])
        .flags(GROW)
        .keys(INSERT)
        .doc(
            Group::List,
            "2.2.0",
            "Pushes items at the head of a list that exists",
        ),
    Command::read("lrange", 4, lrange)
        .syntax("key start:int stop:int")
        .complexity("O(N), N: elements answered")
        .keys(READ)
        .doc(
            Group::List,
            "1.0.0",
            "Returns the items of a range of indices",
        ),
    Command::write("lrem", 4, lrem)
        .syntax("key count:int element")
        .complexity("O(N), N: elements of the list")
        .keys(DELETE)
        .doc(Group::List, "1.0.0", "Removes items that equal a value"),
    Command::write("lset", 4, lset)
        .syntax("key index:int element")
        .flags(Flags::DENYOOM)
        .keys(UPDATE)
        .doc(Group::List, "1.0.0", "Replaces the item at an index"),
    Command::write("ltrim", 4, ltrim)
        .syntax("key start:int stop:int")
        .complexity("O(N), N: elements removed")
        .keys(DELETE)
        .doc(
            Group::List,
            "1.0.0",
            "Removes all items outside a range of indices",
        ),
    Command::write("rpop", -2, rpop)
        .syntax("key [count:int@6.2.0]")
        .complexity("O(N), N: elements taken")
        .history(&[("6.2.0", "Added the count")])
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(1, POP)])
        .doc(Group::List, "1.0.0", "Pops items from the tail of a list"),
    Command::write("rpoplpush", 3, rpoplpush)
        .syntax("source:key destination:key")
        .flags(Flags::DENYOOM)
        .keys(MOVE)
        .deprecated("6.2.0", "`LMOVE` with `RIGHT` and `LEFT`")
        .migrated(Migrated::Keys(Part::MovedElement(PopEnd::Right)))
        .doc(
            Group::List,
            "1.2.0",
            "Takes the last item of one list and pushes it at the head of another",
        ),
    Command::write("rpush", -3, rpush)
        .syntax("key element...")
        .complexity("O(N), N: elements added")
        .history(&[("2.4.0", "Takes several elements")])
        .flags(GROW)
        .keys(INSERT)
        .doc(
            Group::List,
            "1.0.0",
            "Pushes items at the tail of a list, and creates it if absent",
        ),
    Command::write("rpushx", -3, rpushx)
        .syntax("key element...")
        .complexity("O(N), N: elements added")
        .history(&[("4.0.0", "Takes several elements")])
        .flags(GROW)
        .keys(INSERT)
        .doc(
            Group::List,
            "2.2.0",
            "Pushes items at the tail of a list that exists",
        ),
];

#[cfg(test)]
mod tests;
