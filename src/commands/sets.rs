//! Sets: members, random samples, and set algebra.

use super::args::{self, Options};
use super::elements::{self, ScanRequest};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::time::UnixMs;
use crate::commands::table::migrated::{Migrated, Part};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::encoding::ValueType;
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, View};
use crate::types::hll;
use crate::types::members::Members;
use crate::types::set::{Algebra, Operation};
use std::ops::ControlFlow;

/// Maximum number of members of one SREM in the binlog.
const SREM_MEMBERS: usize = 1024;

fn load(ctx: &mut ReadCtx<'_>, key: &[u8]) -> Result<Option<Members>, Error> {
    Ok(Members::load(ctx.view, ctx.db, key, ValueType::Set)?)
}

/// The set, if it has members whose time is not over, and their number.
fn load_living(view: &mut View, db: DbIndex, key: &[u8]) -> Result<Option<(Members, u64)>, Error> {
    Ok(Members::load_living(view, db, key, ValueType::Set)?)
}

fn sadd(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut set = Members::open(ctx.txn, ctx.db, args[1], ValueType::Set)?;
    let mut new = 0;
    for member in &args[2..] {
        new += i64::from(set.insert(ctx.txn, member, &[])?);
    }
    set.save(ctx.txn, args[1])?;
    if new > 0 {
        ctx.event(Class::SET, "sadd", args[1]);
    }
    ctx.reply.int(new);
    Ok(())
}

fn srem(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut removed = 0;
    if let Some(mut set) = Members::load(ctx.txn, ctx.db, args[1], ValueType::Set)? {
        for member in &args[2..] {
            removed += i64::from(set.remove(ctx.txn, member)?);
        }
        if removed > 0 {
            ctx.event(Class::SET, "srem", args[1]);
        }
        set.drop_over(ctx.txn, &args[2..])?;
        set.save(ctx.txn, args[1])?;
    }
    ctx.reply.int(removed);
    Ok(())
}

fn smove(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (from, to, member) = (args[1], args[2], args[3]);
    let Some(mut source) = Members::load(ctx.txn, ctx.db, from, ValueType::Set)? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let mut target = Members::open(ctx.txn, ctx.db, to, ValueType::Set)?;
    let moved = if from == to {
        source.contains(ctx.txn, member)?
    } else {
        source.remove(ctx.txn, member)?
    };
    if !moved {
        source.drop_over(ctx.txn, &[member])?;
        source.save(ctx.txn, from)?;
    } else if from != to {
        let is_new = target.insert(ctx.txn, member, &[])?;
        ctx.event(Class::SET, "srem", from);
        source.save(ctx.txn, from)?;
        target.save(ctx.txn, to)?;
        if is_new {
            ctx.event(Class::SET, "sadd", to);
        }
    }
    ctx.reply.int(i64::from(moved));
    Ok(())
}

fn scard(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let len = load_living(ctx.view, ctx.db, args[1])?.map_or(0, |(_, len)| len);
    ctx.reply.int(len as i64);
    Ok(())
}

fn sismember(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let set = load(ctx, args[1])?;
    reply_whether(ctx, set.as_ref(), args[2])
}

fn smismember(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let set = load(ctx, args[1])?;
    let members = &args[2..];
    ctx.reply.array(members.len());
    members
        .iter()
        .try_for_each(|member| reply_whether(ctx, set.as_ref(), member))
}

fn reply_whether(ctx: &mut ReadCtx<'_>, set: Option<&Members>, member: &[u8]) -> CmdResult {
    let found = match set {
        Some(set) => set.contains(ctx.view, member)?,
        None => false,
    };
    ctx.reply.int(i64::from(found));
    Ok(())
}

fn smembers(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some((set, len)) = load_living(ctx.view, ctx.db, args[1])? else {
        ctx.reply.set(0);
        return Ok(());
    };
    ctx.reply.set(len as usize);
    let reply = &mut *ctx.reply;
    Ok(set.for_each(ctx.view, |member, _| {
        reply.bulk(member);
        ControlFlow::Continue(())
    })?)
}

fn sscan(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let request = ScanRequest::new(args)?;
    match load(ctx, args[1])? {
        Some(set) => request.run(ctx, &set, ValueType::Set),
        None => {
            elements::reply_end_of_scan(ctx.reply);
            Ok(())
        }
    }
}

fn srandmember(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(elements::sample_count(count)?),
        _ => return Err(Error::Syntax),
    };
    match (load_living(ctx.view, ctx.db, args[1])?, count) {
        (Some((set, len)), Some(count)) => {
            elements::reply_samples(ctx, (&set, len), count, false)?;
        }
        (Some((set, _)), None) => set.sample(ctx.view, |member, _| ctx.reply.bulk(member))?,
        (None, Some(_)) => ctx.reply.array(0),
        (None, None) => ctx.reply.null(),
    }
    Ok(())
}

fn spop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(args::int_from(count, 0, Error::NOT_POSITIVE)?.unsigned_abs()),
        _ => return Err(Error::Syntax),
    };
    let key = args[1];
    let Some((set, len)) = load_living(ctx.txn, ctx.db, key)? else {
        match count {
            Some(_) => ctx.reply.set(0),
            None => ctx.reply.null(),
        }
        return Ok(());
    };
    if let Some(count) = count {
        ctx.reply.set(count.min(len) as usize);
    }
    let count = count.unwrap_or(1);
    if count > 0 {
        ctx.event(Class::SET, "spop", key);
    }
    match count {
        0 => Ok(()),
        _ if count >= len => pop_all(ctx, key, &set),
        _ => pop_some(ctx, key, set, count),
    }
}

fn pop_all(ctx: &mut WriteCtx<'_>, key: &[u8], set: &Members) -> CmdResult {
    let reply = &mut *ctx.reply;
    set.for_each(ctx.txn, |member, _| {
        reply.bulk(member);
        ControlFlow::Continue(())
    })?;
    ctx.txn.delete_key(ctx.db, key)?;
    ctx.txn.effect(ctx.db, &[b"DEL", key]);
    Ok(())
}

fn pop_some(ctx: &mut WriteCtx<'_>, key: &[u8], mut set: Members, count: u64) -> CmdResult {
    let mut popped: Vec<Box<[u8]>> = Vec::new();
    let take = |member: &[u8], _: &[u8]| {
        popped.push(member.into());
        ControlFlow::Continue(())
    };
    set.sample_distinct(ctx.txn, count, take)?;
    for member in &popped {
        set.remove(ctx.txn, member)?;
        ctx.reply.bulk(member);
    }
    set.save(ctx.txn, key)?;
    for members in popped.chunks(SREM_MEMBERS) {
        let members = members.iter().map(AsRef::as_ref);
        let effect: Vec<&[u8]> = [&b"SREM"[..], key].into_iter().chain(members).collect();
        ctx.txn.effect(ctx.db, &effect);
    }
    Ok(())
}

fn sinter(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_result(ctx, &args[1..], Operation::Intersection)
}

fn sunion(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_result(ctx, &args[1..], Operation::Union)
}

fn sdiff(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    reply_result(ctx, &args[1..], Operation::Difference)
}

fn reply_result(ctx: &mut ReadCtx<'_>, keys: &[&[u8]], operation: Operation) -> CmdResult {
    let mut result = Algebra::new(ctx.view, ctx.db, keys, operation)?;
    let (mark, mut len) = (ctx.reply.begin(), 0);
    while result.advance(ctx.view)? {
        ctx.reply.bulk(result.member());
        len += 1;
    }
    ctx.reply.end_set(mark, len);
    Ok(())
}

fn sintercard(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count_result(ctx, args, Operation::Intersection)
}

fn sunioncard(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count_result(ctx, args, Operation::Union)
}

fn sdiffcard(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count_result(ctx, args, Operation::Difference)
}

fn count_result(ctx: &mut ReadCtx<'_>, args: &[&[u8]], operation: Operation) -> CmdResult {
    let count = args::int_from(args[1], 1, Error::NUMKEYS)?.unsigned_abs();
    if count > args.len() as u64 - 2 {
        return Err(Error::NUMKEYS_TOO_LARGE);
    }
    let mut options = Options::new(args, 2);
    let keys = options.values(count as usize)?;
    let (mut limit, mut approximates) = (0, false);
    while !options.is_empty() {
        if operation == Operation::Union && options.word("APPROX") {
            approximates = true;
            continue;
        }
        if options.left() < 2 || !options.word("LIMIT") {
            return Err(Error::Syntax);
        }
        limit = args::int_from(options.value()?, 0, Error::NEGATIVE_LIMIT)?;
    }
    let limit = match limit {
        0 => i64::MAX,
        limit => limit,
    };
    let found = match approximates {
        true => estimate_union(ctx, keys)?.min(limit),
        false => {
            let mut result = Algebra::new(ctx.view, ctx.db, keys, operation)?;
            let mut found = 0;
            while found < limit && result.advance(ctx.view)? {
                found += 1;
            }
            found
        }
    };
    ctx.reply.int(found);
    Ok(())
}

/// About how many members the union has. Each set is read once, in its own order, and nothing
/// is merged.
fn estimate_union(ctx: &mut ReadCtx<'_>, keys: &[&[u8]]) -> Result<i64, Error> {
    let mut members = hll::Estimate::new();
    for key in keys {
        let Some(set) = load(ctx, key)? else {
            continue;
        };
        set.for_each(ctx.view, |member, _| {
            members.add(member);
            ControlFlow::Continue(())
        })?;
    }
    Ok(i64::try_from(members.count()).unwrap_or(i64::MAX))
}

fn sinterstore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    store_result(ctx, args, Operation::Intersection, "sinterstore")
}

fn sunionstore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    store_result(ctx, args, Operation::Union, "sunionstore")
}

fn sdiffstore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    store_result(ctx, args, Operation::Difference, "sdiffstore")
}

fn store_result(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    operation: Operation,
    event: &'static str,
) -> CmdResult {
    let mut result = ctx
        .txn
        .counting(|txn| Algebra::new(txn, ctx.db, &args[2..], operation))?;
    let mut set = Members::empty(ctx.db, ValueType::Set);
    while result.advance(ctx.txn)? {
        set.append(ctx.txn, result.member(), &[])?;
    }
    let len = set.len();
    set.save_over(ctx.txn, args[1], UnixMs::NONE)?;
    if len > 0 {
        ctx.event(Class::SET, event, args[1]);
    }
    ctx.reply.int(len as i64);
    Ok(())
}

const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const METADATA: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO)];
const INSERT: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))];
const DELETE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))];
const TAKE: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);
const POP: &[KeySpec] = &[KeySpec::at(1, TAKE)];
const MOVE: &[KeySpec] = &[
    KeySpec::at(1, TAKE),
    KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
];
const READ_ALL: &[KeySpec] = &[KeySpec::range(
    1,
    -1,
    1,
    KeyFlags::RO.union(KeyFlags::ACCESS),
)];
const READ_COUNTED: &[KeySpec] = &[KeySpec::numkeys(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const STORE: &[KeySpec] = &[
    KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE)),
    KeySpec::range(2, -1, 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("sadd", -3, sadd)
        .syntax("key member...")
        .complexity("O(N), N: members named")
        .history(&[("2.4.0", "Takes several members")])
        .flags(Flags::FAST.union(Flags::DENYOOM))
        .keys(INSERT)
        .doc(Group::Set, "1.0.0", "Adds members and counts the new ones"),
    Command::read("scard", 2, scard)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(METADATA)
        .doc(Group::Set, "1.0.0", "Counts the members"),
    Command::read("sdiff", -2, sdiff)
        .syntax("key...")
        .complexity("O(N), N: members of all sets")
        .keys(READ_ALL)
        .tips(&[Tip::NondeterministicOutputOrder])
        .doc(
            Group::Set,
            "1.0.0",
            "Returns the members of the first set that no other set has",
        ),
    Command::read("sdiffcard", -3, sdiffcard)
        .syntax("numkeys:int key... [LIMIT limit:int]")
        .complexity("O(N), N: members of all sets")
        .keys(READ_COUNTED)
        .doc(
            Group::Set,
            "8.10.0",
            "Counts the members of the first set that no other set has, up to a limit",
        ),
    Command::write("sdiffstore", -3, sdiffstore)
        .syntax("destination:key key...")
        .complexity("O(N), N: members of all sets")
        .flags(Flags::DENYOOM)
        .keys(STORE)
        .doc(Group::Set, "1.0.0", "Stores what SDIFF would list"),
    Command::read("sinter", -2, sinter)
        .syntax("key...")
        .complexity("O(N K), N: members of the smallest set, K: sets")
        .keys(READ_ALL)
        .tips(&[Tip::NondeterministicOutputOrder])
        .doc(
            Group::Set,
            "1.0.0",
            "Returns the members that all the sets have",
        ),
    Command::read("sintercard", -3, sintercard)
        .syntax("numkeys:int key... [LIMIT limit:int]")
        .complexity("O(N K), N: members of the smallest set, K: sets")
        .keys(READ_COUNTED)
        .doc(
            Group::Set,
            "7.0.0",
            "Counts the members that all the sets have, up to a limit",
        ),
    Command::write("sinterstore", -3, sinterstore)
        .syntax("destination:key key...")
        .complexity("O(N K), N: members of the smallest set, K: sets")
        .flags(Flags::DENYOOM)
        .keys(STORE)
        .doc(Group::Set, "1.0.0", "Stores what SINTER would list"),
    Command::read("sismember", 3, sismember)
        .syntax("key member")
        .flags(Flags::FAST)
        .keys(METADATA)
        .doc(Group::Set, "1.0.0", "Returns whether a set has a member"),
    Command::read("smembers", 2, smembers)
        .syntax("key")
        .complexity("O(N), N: members of the set")
        .keys(READ)
        .tips(&[Tip::NondeterministicOutputOrder])
        .doc(Group::Set, "1.0.0", "Lists all members"),
    Command::read("smismember", -3, smismember)
        .syntax("key member...")
        .complexity("O(N), N: members named")
        .flags(Flags::FAST)
        .keys(READ)
        .doc(
            Group::Set,
            "6.2.0",
            "Returns for each of several members whether a set has it",
        ),
    Command::write("smove", 4, smove)
        .places(3)
        .syntax("source:key destination:key member")
        .flags(Flags::FAST)
        .keys(MOVE)
        .migrated(Migrated::Keys(Part::MovedMember))
        .doc(Group::Set, "1.0.0", "Moves a member to another set"),
    Command::write("spop", -2, spop)
        .syntax("key [count:int@3.2.0]")
        .complexity("O(N), N: members taken")
        .history(&[("3.2.0", "Added the count")])
        .flags(Flags::FAST)
        .keys(POP)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Set,
            "1.0.0",
            "Removes random members and returns them",
        ),
    Command::read("srandmember", -2, srandmember)
        .syntax("key [count:int@2.6.0]")
        .complexity("O(N), N: members answered")
        .history(&[("2.6.0", "Added the count")])
        .keys(READ)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Set,
            "1.0.0",
            "Returns random members, different ones or (count below 0) with repeats",
        ),
    Command::write("srem", -3, srem)
        .syntax("key member...")
        .complexity("O(N), N: members named")
        .history(&[("2.4.0", "Takes several members")])
        .flags(Flags::FAST)
        .keys(DELETE)
        .doc(
            Group::Set,
            "1.0.0",
            "Removes members, and the key with the last one",
        ),
    Command::read("sscan", -3, sscan)
        .syntax("key cursor:int [MATCH pattern] [COUNT count:int]")
        .complexity("O(N), N: elements looked at, about COUNT")
        .keys(READ)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Set,
            "2.8.0",
            "Iterates over the members, a part with each call",
        ),
    Command::read("sunion", -2, sunion)
        .syntax("key...")
        .complexity("O(N), N: members of all sets")
        .keys(READ_ALL)
        .tips(&[Tip::NondeterministicOutputOrder])
        .doc(
            Group::Set,
            "1.0.0",
            "Returns the members that at least one of the sets has",
        ),
    Command::read("sunioncard", -3, sunioncard)
        .syntax("numkeys:int key... [APPROX] [LIMIT limit:int]")
        .complexity("O(N), N: members of all sets")
        .keys(READ_COUNTED)
        .doc(
            Group::Set,
            "8.10.0",
            "Counts the members that at least one of the sets has, up to a limit",
        ),
    Command::write("sunionstore", -3, sunionstore)
        .syntax("destination:key key...")
        .complexity("O(N), N: members of all sets")
        .flags(Flags::DENYOOM)
        .keys(STORE)
        .doc(Group::Set, "1.0.0", "Stores what SUNION would list"),
];

#[cfg(test)]
mod tests;
