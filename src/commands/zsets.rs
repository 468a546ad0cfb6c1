//! Sorted sets: single elements, pops, samples, scans. Ranges are in
//! [`super::zsets::range`], unions, intersections and differences in
//! [`super::zsets::algebra`].
//!
//! The effect of an increment is ZADD with the resulting score.

pub(super) mod algebra;
pub(super) mod range;

use super::args::{self, Options};
use super::elements::{COUNT_DEFAULT, COUNT_MAX, ELEMENT_MIN_BYTES, SAMPLES_MAX_BYTES};
use super::scan::{Scanned, parse_cursor};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::base::{glob, num};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::resp::Reply;
use crate::storage::txn::events::Class;
use crate::types::zset::{self, AddRule, Added, Direction, Edit, Member, Zset};
use crate::types::{OpError, OpResult};

const NAN: Error = Error::text("ERR resulting score is not a number (NaN)");

/// Most members of one command in the binlog.
const LOGGED_MEMBERS: usize = 1024;

/// How elements go into a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Members only.
    Members,
    /// Member, score, member, score …
    Flat,
    /// Pairs.
    Pairs,
}

impl Shape {
    /// The shape of replies WITHSCORES: pairs in RESP3 only.
    pub(super) fn of(reply: &Reply, with_scores: bool) -> Shape {
        match (with_scores, reply.resp3) {
            (false, _) => Shape::Members,
            (true, false) => Shape::Flat,
            (true, true) => Shape::Pairs,
        }
    }

    /// Length of the array for `elements` elements.
    pub(super) fn len(self, elements: usize) -> usize {
        elements * if self == Shape::Flat { 2 } else { 1 }
    }

    /// Writes one element.
    pub(super) fn write(self, reply: &mut Reply, score: f64, member: &[u8]) {
        if self == Shape::Pairs {
            reply.array(2);
        }
        reply.bulk(member);
        if self != Shape::Members {
            reply.double(score);
        }
    }

    /// Writes the elements that `walk` passes to its callback, as an array.
    pub(super) fn array(
        self,
        reply: &mut Reply,
        walk: impl FnOnce(&mut dyn FnMut(f64, &[u8]) -> OpResult<()>) -> OpResult<()>,
    ) -> CmdResult {
        let mark = reply.begin();
        let mut elements = 0;
        walk(&mut |score, member| {
            elements += 1;
            self.write(reply, score, member);
            Ok(())
        })?;
        reply.end_array(mark, self.len(elements));
        Ok(())
    }
}

/// A score as text, in both protocol versions.
pub(super) fn score_text(score: f64) -> Vec<u8> {
    let mut text = Vec::with_capacity(24);
    num::format_f64(score, &mut text);
    text
}

/// Stores the result of a command, or of an option of it, that Redis 7.0 lacks: the effect consists
/// of commands that it has.
pub(super) fn store_stated(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    elements: &[(f64, Member)],
) -> CmdResult {
    let existed = ctx.txn.lookup(ctx.db, key)?.is_some();
    zset::store(ctx.txn, ctx.db, key, elements)?;
    if !ctx.txn.is_logged() {
        return Ok(());
    }
    if existed {
        ctx.txn.effect(ctx.db, &[b"DEL", key]);
    }
    for chunk in elements.chunks(LOGGED_MEMBERS) {
        let scores: Vec<Vec<u8>> = chunk.iter().map(|(score, _)| score_text(*score)).collect();
        let mut logged: Vec<&[u8]> = vec![b"ZADD", key];
        for (score, (_, member)) in scores.iter().zip(chunk) {
            logged.extend([score.as_slice(), member]);
        }
        ctx.txn.effect(ctx.db, &logged);
    }
    Ok(())
}

fn nan(error: OpError) -> Error {
    match error {
        OpError::NotFinite => NAN,
        other => other.into(),
    }
}

/// The options of ZADD: the rule, CH, and the index of the first pair.
fn add_options(args: &[&[u8]]) -> (AddRule, bool, usize) {
    let mut rule = AddRule::default();
    let mut changed = false;
    let mut at = 2;
    while let Some(arg) = args.get(at) {
        let flag = match () {
            () if args::is(arg, "NX") => &mut rule.only_new,
            () if args::is(arg, "XX") => &mut rule.only_existing,
            () if args::is(arg, "GT") => &mut rule.only_greater,
            () if args::is(arg, "LT") => &mut rule.only_less,
            () if args::is(arg, "INCR") => &mut rule.increment,
            () if args::is(arg, "CH") => &mut changed,
            () => break,
        };
        *flag = true;
        at += 1;
    }
    (rule, changed, at)
}

fn zadd(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (rule, count_changed, at) = add_options(args);
    let pairs = args.get(at..).unwrap_or_default();
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    if rule.only_new && rule.only_existing {
        return Err(Error::text(
            "ERR XX and NX options at the same time are not compatible",
        ));
    }
    if (rule.only_greater && (rule.only_new || rule.only_less)) || (rule.only_less && rule.only_new)
    {
        return Err(Error::text(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if rule.increment && pairs.len() > 2 {
        return Err(Error::text(
            "ERR INCR option supports a single increment-element pair",
        ));
    }
    let scores = pairs.iter().step_by(2).map(|score| args::float(score));
    let scores: smallvec::SmallVec<[f64; 8]> = scores.collect::<Result<_, _>>()?;
    if rule.increment {
        return add_increment(ctx, args[1], scores[0], pairs[1], rule);
    }
    let mut edit = Edit::open(ctx.txn, ctx.db, args[1])?;
    let (mut new, mut changed) = (0, 0);
    for (score, member) in scores.iter().zip(pairs.iter().skip(1).step_by(2)) {
        match edit.add(ctx.txn, *score, member, rule).map_err(nan)? {
            Added::New(_) => new += 1,
            Added::Changed(_) => changed += 1,
            Added::Same(_) | Added::Refused => {}
        }
    }
    edit.save(ctx.txn)?;
    if new + changed > 0 {
        ctx.event(Class::ZSET, "zadd", args[1]);
    }
    ctx.reply
        .int(if count_changed { new + changed } else { new });
    Ok(())
}

fn add_increment(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    increment: f64,
    member: &[u8],
    rule: AddRule,
) -> CmdResult {
    let mut edit = Edit::open(ctx.txn, ctx.db, key)?;
    let added = edit.add(ctx.txn, increment, member, rule).map_err(nan)?;
    let is_new = matches!(added, Added::New(_));
    match added {
        Added::Refused => ctx.reply.null(),
        Added::Same(score) => ctx.reply.double(score),
        Added::New(score) | Added::Changed(score) => {
            edit.save(ctx.txn)?;
            ctx.event(Class::ZSET, "zincr", key);
            let effect: [&[u8]; 4] = [b"ZADD", key, &score_text(score), member];
            ctx.txn.effect(ctx.db, &effect);
            // The reply for a new member is the given score, also −0, which is stored as 0.
            let reply = if score == 0.0 && is_new {
                increment
            } else {
                score
            };
            ctx.reply.double(reply);
        }
    }
    Ok(())
}

fn zincrby(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let rule = AddRule {
        increment: true,
        ..AddRule::default()
    };
    add_increment(ctx, args[1], args::float(args[2])?, args[3], rule)
}

fn zcard(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let zset = Zset::open(ctx.view, ctx.db, args[1])?;
    ctx.reply.int(zset.map_or(0, |zset| zset.len()) as i64);
    Ok(())
}

fn zscore(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let score = match Zset::open(ctx.view, ctx.db, args[1])? {
        Some(zset) => zset.score(ctx.view, args[2])?,
        None => None,
    };
    match score {
        Some(score) => ctx.reply.double(score),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn zmscore(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let zset = Zset::open(ctx.view, ctx.db, args[1])?;
    ctx.reply.array(args.len() - 2);
    for member in &args[2..] {
        let score = match &zset {
            Some(zset) => zset.score(ctx.view, member)?,
            None => None,
        };
        match score {
            Some(score) => ctx.reply.double(score),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

fn rank(ctx: &mut ReadCtx<'_>, args: &[&[u8]], direction: Direction) -> CmdResult {
    let with_score = match args.get(3) {
        Some(word) if args.len() == 4 && args::is(word, "WITHSCORE") => true,
        Some(_) if args.len() == 4 => return Err(Error::Syntax),
        Some(_) => {
            let name = match direction {
                Direction::Forward => "zrank",
                Direction::Backward => "zrevrank",
            };
            return Err(Error::Arity(name.into()));
        }
        None => false,
    };
    let found = match Zset::open(ctx.view, ctx.db, args[1])? {
        Some(zset) => zset.rank(ctx.view, args[2], direction)?,
        None => None,
    };
    match found {
        Some((rank, score)) if with_score => {
            ctx.reply.array(2);
            ctx.reply.int(rank as i64);
            ctx.reply.double(score);
        }
        Some((rank, _)) => ctx.reply.int(rank as i64),
        None if with_score => ctx.reply.null_array(),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn zrank(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    rank(ctx, args, Direction::Forward)
}

fn zrevrank(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    rank(ctx, args, Direction::Backward)
}

fn zrem(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut edit = Edit::open(ctx.txn, ctx.db, args[1])?;
    let mut removed = 0;
    if edit.existed() {
        for member in &args[2..] {
            removed += i64::from(edit.remove(ctx.txn, member)?);
        }
        if removed > 0 {
            ctx.event(Class::ZSET, "zrem", args[1]);
        }
        edit.save(ctx.txn)?;
    }
    ctx.reply.int(removed);
    Ok(())
}

/// Pops up to `n` elements from one end; none if the key does not exist.
pub(super) fn take(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    direction: Direction,
    n: u64,
) -> Result<Vec<(f64, Member)>, Error> {
    let mut edit = Edit::open(ctx.txn, ctx.db, key)?;
    let popped = edit.pop(ctx.txn, direction, n)?;
    if !popped.is_empty() {
        let event = match direction {
            Direction::Forward => "zpopmin",
            Direction::Backward => "zpopmax",
        };
        ctx.event(Class::ZSET, event, key);
    }
    edit.save(ctx.txn)?;
    Ok(popped)
}

fn write_all(reply: &mut Reply, shape: Shape, elements: &[(f64, Member)]) {
    reply.array(shape.len(elements.len()));
    for (score, member) in elements {
        shape.write(reply, *score, member);
    }
}

fn pop(ctx: &mut WriteCtx<'_>, args: &[&[u8]], direction: Direction) -> CmdResult {
    let (n, shape) = match args {
        [_, _] => (1, Shape::Flat),
        [_, _, count] => {
            let count = args::int_from(count, 0, Error::NOT_POSITIVE)?.unsigned_abs();
            (count, Shape::of(ctx.reply, true))
        }
        _ => return Err(Error::Syntax),
    };
    let popped = take(ctx, args[1], direction, n)?;
    write_all(ctx.reply, shape, &popped);
    Ok(())
}

fn zpopmin(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    pop(ctx, args, Direction::Forward)
}

fn zpopmax(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    pop(ctx, args, Direction::Backward)
}

fn zmpop(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let asked = Zmpop::parse(args, 1)?;
    if pop_first(ctx, &asked)?.is_none() {
        ctx.reply.null_array();
    }
    Ok(())
}

/// The arguments of ZMPOP and BZMPOP: `numkeys key … MIN|MAX [COUNT count]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Zmpop<'a> {
    /// The keys, in order of preference.
    pub(super) keys: &'a [&'a [u8]],
    /// Forward from the lowest, or backward from the highest.
    pub(super) direction: Direction,
    /// Maximum number of elements; at least 1.
    pub(super) count: u64,
}

impl<'a> Zmpop<'a> {
    /// Parses the arguments; the number of keys is at index `at`.
    pub(super) fn parse(args: &'a [&'a [u8]], at: usize) -> Result<Zmpop<'a>, Error> {
        let mut options = Options::new(args, at);
        let numkeys = args::int_from(options.value()?, 1, Error::NUMKEYS)?;
        let keys = options.values(usize::try_from(numkeys).unwrap_or(usize::MAX))?;
        let direction = match options.value()? {
            word if args::is(word, "MIN") => Direction::Forward,
            word if args::is(word, "MAX") => Direction::Backward,
            _ => return Err(Error::Syntax),
        };
        let mut count = None;
        while !options.is_empty() {
            if count.is_some() || !options.word("COUNT") {
                return Err(Error::Syntax);
            }
            count = Some(args::int_from(options.value()?, 1, Error::ZERO_COUNT)?);
        }
        Ok(Zmpop {
            keys,
            direction,
            count: count.unwrap_or(1).unsigned_abs(),
        })
    }
}

/// Pops from the first of the keys that exists, replies, and returns the key.
pub(super) fn pop_first<'a>(
    ctx: &mut WriteCtx<'_>,
    asked: &Zmpop<'a>,
) -> Result<Option<&'a [u8]>, Error> {
    for &key in asked.keys {
        let popped = take(ctx, key, asked.direction, asked.count)?;
        if !popped.is_empty() {
            ctx.reply.array(2);
            ctx.reply.bulk(key);
            write_all(ctx.reply, Shape::Pairs, &popped);
            return Ok(Some(key));
        }
    }
    Ok(None)
}

fn zrandmember(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some(count) = args.get(2) else {
        return one_random(ctx, args[1]);
    };
    let count = args::int(count)?;
    if count == i64::MIN {
        return Err(Error::OUT_OF_I64);
    }
    let with_scores = match args.get(3) {
        None => false,
        Some(word) if args.len() == 4 && args::is(word, "WITHSCORES") => true,
        Some(_) => return Err(Error::Syntax),
    };
    let half = i64::MAX / 2;
    if with_scores && !(-half..=half).contains(&count) {
        return Err(Error::OUT_OF_RANGE);
    }
    let n = count.unsigned_abs();
    let Some(zset) = Zset::open(ctx.view, ctx.db, args[1])?.filter(|_| n > 0) else {
        ctx.reply.array(0);
        return Ok(());
    };
    let shape = Shape::of(ctx.reply, with_scores);
    if count > 0 {
        return shape.array(ctx.reply, |each| zset.sample_distinct(ctx.view, n, each));
    }
    // The number is the client's choice, however small the sorted set.
    if n > SAMPLES_MAX_BYTES as u64 / ELEMENT_MIN_BYTES {
        return Err(Error::REPLY_TOO_LONG);
    }
    let mut bytes = 0;
    let sampled = shape.array(ctx.reply, |each| {
        zset.sample_repeated(ctx.view, n, &mut |score, member| {
            bytes += member.len();
            match bytes > SAMPLES_MAX_BYTES {
                true => Err(OpError::TooLong),
                false => each(score, member),
            }
        })
    });
    sampled.map_err(|error| match error {
        Error::Op(OpError::TooLong) => Error::REPLY_TOO_LONG,
        other => other,
    })
}

fn one_random(ctx: &mut ReadCtx<'_>, key: &[u8]) -> CmdResult {
    let Some(zset) = Zset::open(ctx.view, ctx.db, key)? else {
        ctx.reply.null();
        return Ok(());
    };
    let reply = &mut *ctx.reply;
    zset.sample_repeated(ctx.view, 1, &mut |_, member| {
        reply.bulk(member);
        Ok(())
    })?;
    Ok(())
}

fn zscan(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let cursor = parse_cursor(args[2])?;
    let Some(zset) = Zset::open(ctx.view, ctx.db, args[1])? else {
        ctx.reply.array(2);
        ctx.reply.bulk(b"0");
        ctx.reply.array(0);
        return Ok(());
    };
    let mut options = Options::new(args, 3);
    let (mut pattern, mut count) = (None, COUNT_DEFAULT);
    while !options.is_empty() {
        if options.left() >= 2 && options.word("MATCH") {
            pattern = Some(options.value()?).filter(|pattern| *pattern != b"*");
        } else if options.left() >= 2 && options.word("COUNT") {
            count = u64::try_from(options.int()?).map_err(|_| Error::Syntax)?;
            if count == 0 {
                return Err(Error::Syntax);
            }
        } else if options.word("NOVALUES") {
            return Err(Error::NOVALUES);
        } else {
            return Err(Error::Syntax);
        }
    }
    let reply = &mut *ctx.reply;
    let (scanned, mut elements) = (Scanned::begin(reply), 0);
    let count = count.min(COUNT_MAX);
    let next = zset.scan(ctx.view, cursor, count, &mut |score, member| {
        if pattern.is_none_or(|pattern| glob::matches(pattern, member, false)) {
            reply.bulk(member);
            reply.bulk(&score_text(score));
            elements += 2;
        }
        Ok(())
    })?;
    scanned.end(reply, next, elements);
    Ok(())
}

/// One key that is read, at index 1.
pub(super) const READS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const COUNTS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO)];
const UPDATES: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
/// One key that is removed from, at index 1.
pub(super) const REMOVES: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))];
const TAKES: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);
const POPS: &[KeySpec] = &[KeySpec::at(1, TAKES)];
const INCREMENTS: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE);

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("zadd", -4, zadd)
        .places(3)
        .syntax(
            "key [condition=(NX|XX)@3.0.2] [comparison=(GT|LT)@6.2.0] [change=CH@3.0.2] \
             [increment=INCR@3.0.2] data=(score:double member)...",
        )
        .complexity("O(M log N), M: members named, N: members of the sorted set")
        .history(&[
            ("2.4.0", "Takes several members"),
            ("3.0.2", "Added `XX`, `NX`, `CH` and `INCR`"),
            ("6.2.0", "Added `GT` and `LT`"),
        ])
        .flags(Flags::FAST.union(Flags::DENYOOM))
        .keys(UPDATES)
        .doc(
            Group::SortedSet,
            "1.2.0",
            "Adds members with their scores, or changes the scores",
        ),
    Command::write("zincrby", 4, zincrby)
        .places(3)
        .syntax("key increment:int member")
        .complexity("O(log N), N: members of the sorted set")
        .flags(Flags::FAST.union(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, INCREMENTS)])
        .doc(
            Group::SortedSet,
            "1.2.0",
            "Adds to the score of a member, and creates it if absent",
        ),
    Command::read("zcard", 2, zcard)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(COUNTS)
        .doc(
            Group::SortedSet,
            "1.2.0",
            "Returns how many members a sorted set has",
        ),
    Command::read("zscore", 3, zscore)
        .syntax("key member")
        .flags(Flags::FAST)
        .keys(READS)
        .doc(Group::SortedSet, "1.2.0", "Returns the score of a member"),
    Command::read("zmscore", -3, zmscore)
        .syntax("key member...")
        .complexity("O(N), N: members named")
        .flags(Flags::FAST)
        .keys(READS)
        .doc(
            Group::SortedSet,
            "6.2.0",
            "Returns the scores of several members",
        ),
    Command::read("zrank", -3, zrank)
        .syntax("key member [WITHSCORE]")
        .complexity("O(log N), N: members of the sorted set; O(N) once after a start")
        .history(&[("7.2.0", "Added `WITHSCORE`")])
        .flags(Flags::FAST)
        .keys(READS)
        .doc(
            Group::SortedSet,
            "2.0.0",
            "Returns how many members come before a member",
        ),
    Command::read("zrevrank", -3, zrevrank)
        .syntax("key member [WITHSCORE]")
        .complexity("O(log N), N: members of the sorted set; O(N) once after a start")
        .history(&[("7.2.0", "Added `WITHSCORE`")])
        .flags(Flags::FAST)
        .keys(READS)
        .doc(
            Group::SortedSet,
            "2.0.0",
            "Returns how many members come after a member",
        ),
    Command::write("zrem", -3, zrem)
        .places(3)
        .syntax("key member...")
        .complexity("O(M log N), M: members named, N: members of the sorted set")
        .history(&[("2.4.0", "Takes several members")])
        .flags(Flags::FAST)
        .keys(REMOVES)
        .doc(Group::SortedSet, "1.2.0", "Removes members"),
    Command::write("zpopmin", -2, zpopmin)
        .syntax("key [count:int]")
        .complexity("O(M log N), M: members taken, N: members of the sorted set")
        .flags(Flags::FAST)
        .keys(POPS)
        .doc(
            Group::SortedSet,
            "5.0.0",
            "Removes and returns the members with the lowest scores",
        ),
    Command::write("zpopmax", -2, zpopmax)
        .syntax("key [count:int]")
        .complexity("O(M log N), M: members taken, N: members of the sorted set")
        .flags(Flags::FAST)
        .keys(POPS)
        .doc(
            Group::SortedSet,
            "5.0.0",
            "Removes and returns the members with the highest scores",
        ),
    Command::write("zmpop", -4, zmpop)
        .syntax("numkeys:int key... where=(MIN|MAX) [COUNT count:int]")
        .complexity("O(K + M log N), K: keys, M: members taken, N: members of the sorted set")
        .keys(&[KeySpec::numkeys(1, TAKES)])
        .doc(
            Group::SortedSet,
            "7.0.0",
            "Pops from the first of several sorted sets that has members",
        ),
    Command::read("zrandmember", -2, zrandmember)
        .syntax("key [options=(count:int [WITHSCORES])]")
        .complexity("O(N), N: members answered")
        .keys(READS)
        .tips(&[Tip::NondeterministicOutput])
        .doc(Group::SortedSet, "6.2.0", "Returns random members"),
    Command::read("zscan", -3, zscan)
        .syntax("key cursor:int [MATCH pattern] [COUNT count:int]")
        .complexity("O(N), N: elements looked at, about COUNT")
        .keys(READS)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::SortedSet,
            "2.8.0",
            "Returns members and scores a few at a time",
        ),
];

#[cfg(test)]
mod tests;
