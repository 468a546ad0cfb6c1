//! Ranges of sorted sets by rank, by score and by member: reading, counting,
//! removing, copying them to another key.

use crate::base::num;
use crate::commands::args::{self, Options};
use crate::commands::table::spec::Group;
use crate::commands::zsets::{READS, REMOVES, Shape};
use crate::commands::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::storage::View;
use crate::storage::txn::events::Class;
use crate::types::OpResult;
use crate::types::zset::{self, Direction, Each, Edit, LexBound, Member, ScoreBound, Span, Zset};

const BAD_SCORE: Error = Error::text("ERR min or max is not a float");
const BAD_MEMBER: Error = Error::text("ERR min or max not valid string range item");

/// Copies of a bound while a range is read: as a place, as the key of a row, in iterators. Five were
/// measured; what is lent for the request of a command that writes counts for some of them.
const BOUND_COPIES: usize = 8;
/// Shorter bounds, in bytes, are copied without being counted.
const LONG_BOUNDS: usize = 64 << 10;

/// What the bounds of a range are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// The bounds of a range: minimum and maximum. Ranks are start and stop in the direction of
/// the range.
#[derive(Debug, Clone, Copy)]
enum Bounds<'a> {
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Members(LexBound<'a>, LexBound<'a>),
}

/// The parsed arguments of a range command.
#[derive(Debug, Clone, Copy)]
struct Range<'a> {
    bounds: Bounds<'a>,
    direction: Direction,
    offset: i64,
    limit: i64,
    with_scores: bool,
}

/// What the command itself determines; `None` is chosen by an option.
#[derive(Debug, Clone, Copy)]
struct Fixed {
    by: Option<By>,
    direction: Option<Direction>,
    /// Whether WITHSCORES may be asked for.
    scores: bool,
}

fn score_bound(arg: &[u8]) -> Result<ScoreBound, Error> {
    let (exclusive, number) = match arg {
        [b'(', number @ ..] => (true, number),
        number => (false, number),
    };
    let score = match number {
        // As in Redis, an empty text is 0, and a number that is too large is infinite.
        [] => 0.0,
        number => num::parse_decimal_clamped(number).ok_or(BAD_SCORE)?,
    };
    Ok(ScoreBound { score, exclusive })
}

fn lex_bound(arg: &[u8]) -> Result<LexBound<'_>, Error> {
    match arg {
        b"-" => Ok(LexBound::Min),
        b"+" => Ok(LexBound::Max),
        [b'[', member @ ..] => Ok(LexBound::Inclusive(member)),
        [b'(', member @ ..] => Ok(LexBound::Exclusive(member)),
        _ => Err(BAD_MEMBER),
    }
}

/// The bounds of a lexicographic range if the scores differ: the range is then not
/// contiguous.
fn mixed<'a>(bounds: &Bounds<'a>, zset: &Zset) -> OpResult<Option<(LexBound<'a>, LexBound<'a>)>> {
    match bounds {
        Bounds::Members(min, max) if !zset.has_one_score()? => Ok(Some((*min, *max))),
        _ => Ok(None),
    }
}

impl<'a> Bounds<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>, Error> {
        Ok(match by {
            By::Rank => Bounds::Ranks(args::int(min)?, args::int(max)?),
            By::Score => Bounds::Scores(score_bound(min)?, score_bound(max)?),
            By::Lex => Bounds::Members(lex_bound(min)?, lex_bound(max)?),
        })
    }

    /// The span of the range, and how many of its elements to skip and take.
    fn resolve(self, view: &View, zset: &Zset) -> OpResult<(Span, u64, u64)> {
        Ok(match self {
            Bounds::Ranks(start, stop) => {
                let (skip, limit) = ranks(start, stop, zset.len());
                (Span::all(), skip, limit)
            }
            Bounds::Scores(min, max) => (Span::of_scores(min, max), 0, u64::MAX),
            Bounds::Members(min, max) => {
                let bytes = [min, max].map(LexBound::bytes).into_iter().sum::<usize>();
                if bytes >= LONG_BOUNDS {
                    view.will_hold(bytes.saturating_mul(BOUND_COPIES) as u64)?;
                }
                (zset.members_between(min, max)?, 0, u64::MAX)
            }
        })
    }
}

/// First rank and number of ranks between `start` and `stop` (negative: from the end) of
/// `len` elements.
fn ranks(start: i64, stop: i64, len: u64) -> (u64, u64) {
    let absolute = |rank: i64| match rank {
        0.. => Some(rank.unsigned_abs()),
        _ => len.checked_sub(rank.unsigned_abs()),
    };
    let first = absolute(start).unwrap_or(0);
    match absolute(stop) {
        Some(last) if first <= last && first < len => (first, last.min(len - 1) - first + 1),
        _ => (0, 0),
    }
}

impl<'a> Range<'a> {
    /// Parses the bounds at index `at` and the options after them.
    fn parse(args: &'a [&'a [u8]], at: usize, fixed: Fixed) -> Result<Range<'a>, Error> {
        let mut options = Options::new(args, at + 2);
        let (mut by, mut direction) = (fixed.by, fixed.direction);
        let (mut offset, mut limit, mut with_scores) = (0, -1, false);
        while !options.is_empty() {
            if fixed.scores && options.word("WITHSCORES") {
                with_scores = true;
            } else if options.left() >= 3 && options.word("LIMIT") {
                (offset, limit) = (options.int()?, options.int()?);
            } else if direction.is_none() && options.word("REV") {
                direction = Some(Direction::Backward);
            } else if by.is_none() && options.word("BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && options.word("BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(Error::Syntax);
            }
        }
        let by = by.unwrap_or(By::Rank);
        let direction = direction.unwrap_or(Direction::Forward);
        if limit != -1 && by == By::Rank {
            return Err(Error::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(Error::text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let swapped = direction == Direction::Backward && by != By::Rank;
        let (min, max) = match swapped {
            true => (args[at + 1], args[at]),
            false => (args[at], args[at + 1]),
        };
        Ok(Range {
            bounds: Bounds::parse(by, min, max)?,
            direction,
            offset,
            limit,
            with_scores,
        })
    }

    fn walk(&self, view: &mut View, zset: &Zset, each: Each<'_>) -> OpResult<()> {
        let (span, mut skip, mut limit) = self.bounds.resolve(view, zset)?;
        if !matches!(self.bounds, Bounds::Ranks(..)) {
            let Ok(offset) = u64::try_from(self.offset) else {
                return Ok(());
            };
            skip = offset;
            limit = u64::try_from(self.limit).unwrap_or(u64::MAX);
        }
        if let Some(bounds) = mixed(&self.bounds, zset)? {
            if span.is_empty() {
                return Ok(());
            }
            return zset.walk_mixed(view, bounds, self.direction, |score, member, _| {
                if skip > 0 {
                    skip -= 1;
                } else if limit > 0 {
                    limit -= 1;
                    each(score, member)?;
                }
                Ok(())
            });
        }
        zset.walk(view, &span, self.direction, skip, limit, each)
    }
}

fn read_range(ctx: &mut ReadCtx<'_>, args: &[&[u8]], fixed: Fixed) -> CmdResult {
    let range = Range::parse(args, 2, fixed)?;
    let Some(zset) = Zset::open(ctx.view, ctx.db, args[1])? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let shape = Shape::of(ctx.reply, range.with_scores);
    shape.array(ctx.reply, |each| range.walk(ctx.view, &zset, each))
}

const fn fixed(by: By, direction: Direction) -> Fixed {
    Fixed {
        by: Some(by),
        direction: Some(direction),
        scores: true,
    }
}

fn zrange(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let open = Fixed {
        by: None,
        direction: None,
        scores: true,
    };
    read_range(ctx, args, open)
}

fn zrevrange(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read_range(ctx, args, fixed(By::Rank, Direction::Backward))
}

fn zrangebyscore(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read_range(ctx, args, fixed(By::Score, Direction::Forward))
}

fn zrevrangebyscore(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read_range(ctx, args, fixed(By::Score, Direction::Backward))
}

fn zrangebylex(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read_range(ctx, args, fixed(By::Lex, Direction::Forward))
}

fn zrevrangebylex(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read_range(ctx, args, fixed(By::Lex, Direction::Backward))
}

fn zrangestore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let open = Fixed {
        by: None,
        direction: None,
        scores: false,
    };
    let range = Range::parse(args, 3, open)?;
    let mut found: Vec<(f64, Member)> = Vec::new();
    let source = ctx.txn.counting(|txn| Zset::open(txn, ctx.db, args[2]))?;
    if let Some(zset) = source {
        range.walk(ctx.txn, &zset, &mut |score, member| {
            found.push((score, Member::from_slice(member)));
            Ok(())
        })?;
    }
    if range.direction == Direction::Backward {
        found.reverse();
    }
    zset::store(ctx.txn, ctx.db, args[1], &found)?;
    if !found.is_empty() {
        ctx.event(Class::ZSET, "zrangestore", args[1]);
    }
    ctx.reply.int(found.len() as i64);
    Ok(())
}

fn count(ctx: &mut ReadCtx<'_>, args: &[&[u8]], by: By) -> CmdResult {
    let bounds = Bounds::parse(by, args[2], args[3])?;
    let count = match Zset::open(ctx.view, ctx.db, args[1])? {
        Some(zset) => {
            let mixed = mixed(&bounds, &zset)?;
            let (span, ..) = bounds.resolve(ctx.view, &zset)?;
            match mixed.filter(|_| !span.is_empty()) {
                Some(bounds) => {
                    let mut count = 0;
                    zset.walk_mixed(ctx.view, bounds, Direction::Forward, |_, _, _| {
                        count += 1;
                        Ok(())
                    })?;
                    count
                }
                None => zset.count(ctx.view, &span)?,
            }
        }
        None => 0,
    };
    ctx.reply.int(count as i64);
    Ok(())
}

fn zcount(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count(ctx, args, By::Score)
}

fn zlexcount(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count(ctx, args, By::Lex)
}

fn remove(ctx: &mut WriteCtx<'_>, args: &[&[u8]], by: By) -> CmdResult {
    let bounds = Bounds::parse(by, args[2], args[3])?;
    let mut edit = Edit::open(ctx.txn, ctx.db, args[1])?;
    let mut removed = 0;
    if edit.existed() {
        let mixed = mixed(&bounds, &edit)?;
        let (span, skip, limit) = bounds.resolve(ctx.txn, &edit)?;
        removed = match mixed.filter(|_| !span.is_empty()) {
            // Redis removes every element from the first one at or above the minimum to
            // the first above the maximum, also those below the minimum in between.
            // Kedis removes only members within the bounds.
            Some(bounds) => {
                let mut within: Vec<Member> = Vec::new();
                edit.walk_mixed(ctx.txn, bounds, Direction::Forward, |_, member, inside| {
                    within.extend(inside.then(|| Member::from_slice(member)));
                    Ok(())
                })?;
                for member in &within {
                    edit.remove(ctx.txn, member)?;
                }
                within.len() as u64
            }
            None => edit.remove_range(ctx.txn, &span, skip, limit)?,
        };
        if removed > 0 {
            let event = match by {
                By::Rank => "zremrangebyrank",
                By::Score => "zremrangebyscore",
                By::Lex => "zremrangebylex",
            };
            ctx.event(Class::ZSET, event, args[1]);
        }
        edit.save(ctx.txn)?;
    }
    ctx.reply.int(removed as i64);
    Ok(())
}

fn zremrangebyrank(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    remove(ctx, args, By::Rank)
}

fn zremrangebyscore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    remove(ctx, args, By::Score)
}

fn zremrangebylex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    remove(ctx, args, By::Lex)
}

const STORES: &[KeySpec] = &[
    KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE)),
    KeySpec::at(2, KeyFlags::RO.union(KeyFlags::ACCESS)),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::read("zrange", -4, zrange)
        .syntax(
            "key start stop [sortby=(BYSCORE|BYLEX)@6.2.0] [REV@6.2.0] \
             [LIMIT limit=(offset:int count:int)@6.2.0] [WITHSCORES]",
        )
        .complexity("O(log N + M), N: members of the sorted set, M: members answered; O(N) once after a start")
        .history(&[("6.2.0", "Added `REV`, `BYSCORE`, `BYLEX` and `LIMIT`")])
        .keys(READS)
        .doc(
            Group::SortedSet,
            "1.2.0",
            "Returns a range of members by rank, score or name, in either direction",
        ),
    Command::read("zrevrange", -4, zrevrange)
        .syntax("key start:int stop:int [WITHSCORES]")
        .complexity("O(log N + M), N: members of the sorted set, M: members answered; O(N) once after a start")
        .keys(READS).deprecated("6.2.0", "`ZRANGE` with `REV`")
        .doc(
            Group::SortedSet,
            "1.2.0",
            "Returns a range of members by rank, highest score first",
        ),
    Command::read("zrangebyscore", -4, zrangebyscore)
        .syntax(
            "key min:double max:double [WITHSCORES@2.0.0] \
             [LIMIT limit=(offset:int count:int)]",
        )
        .complexity("O(log N + M), N: members of the sorted set, M: members answered")
        .history(&[("2.0.0", "Added `WITHSCORES`")])
        .keys(READS).deprecated("6.2.0", "`ZRANGE` with `BYSCORE`")
        .doc(
            Group::SortedSet,
            "1.0.5",
            "Returns the members with scores between two bounds",
        ),
    Command::read("zrevrangebyscore", -4, zrevrangebyscore)
        .syntax("key max:double min:double [WITHSCORES] [LIMIT limit=(offset:int count:int)]")
        .complexity("O(log N + M), N: members of the sorted set, M: members answered")
        .history(&[("2.1.6", "Bounds may be excluded")])
        .keys(READS).deprecated("6.2.0", "`ZRANGE` with `BYSCORE` and `REV`")
        .doc(
            Group::SortedSet,
            "2.2.0",
            "Returns the members with scores between two bounds, highest first",
        ),
    Command::read("zrangebylex", -4, zrangebylex)
        .syntax("key min max [LIMIT limit=(offset:int count:int)]")
        .complexity("O(log N + M), N: members of the sorted set, M: members answered")
        .keys(READS).deprecated("6.2.0", "`ZRANGE` with `BYLEX`")
        .doc(
            Group::SortedSet,
            "2.8.9",
            "Returns the members between two names, if all scores are equal",
        ),
    Command::read("zrevrangebylex", -4, zrevrangebylex)
        .syntax("key max min [LIMIT limit=(offset:int count:int)]")
        .complexity("O(log N + M), N: members of the sorted set, M: members answered")
        .keys(READS).deprecated("6.2.0", "`ZRANGE` with `BYLEX` and `REV`")
        .doc(
            Group::SortedSet,
            "2.8.9",
            "Returns the members between two names in reverse, if all scores are equal",
        ),
    Command::write("zrangestore", -5, zrangestore)
        .syntax(
            "dst:key src:key min max [sortby=(BYSCORE|BYLEX)] [REV] \
             [LIMIT limit=(offset:int count:int)]",
        )
        .complexity("O(log N + M), N: members of the sorted set, M: members stored")
        .flags(Flags::DENYOOM)
        .keys(STORES)
        .doc(
            Group::SortedSet,
            "6.2.0",
            "Stores a range of members under another key",
        ),
    Command::read("zcount", 4, zcount)
        .syntax("key min:double max:double")
        .complexity("O(log N), N: members of the sorted set; O(N) once after a start")
        .flags(Flags::FAST)
        .keys(READS)
        .doc(
            Group::SortedSet,
            "2.0.0",
            "Counts the members with scores between two bounds",
        ),
    Command::read("zlexcount", 4, zlexcount)
        .syntax("key min max")
        .complexity("O(log N), N: members of the sorted set; O(N) once after a start")
        .flags(Flags::FAST)
        .keys(READS)
        .doc(
            Group::SortedSet,
            "2.8.9",
            "Counts the members between two names, if all scores are equal",
        ),
    Command::write("zremrangebyrank", 4, zremrangebyrank)
        .syntax("key start:int stop:int")
        .complexity("O(log N + M), N: members of the sorted set, M: members removed; O(N) once after a start")
        .keys(REMOVES)
        .doc(
            Group::SortedSet,
            "2.0.0",
            "Removes a range of members by rank",
        ),
    Command::write("zremrangebyscore", 4, zremrangebyscore)
        .syntax("key min:double max:double")
        .complexity("O(log N + M), N: members of the sorted set, M: members removed")
        .keys(REMOVES)
        .doc(
            Group::SortedSet,
            "1.2.0",
            "Removes the members with scores between two bounds",
        ),
    Command::write("zremrangebylex", 4, zremrangebylex)
        .syntax("key min max")
        .complexity("O(log N + M), N: members of the sorted set, M: members removed")
        .keys(REMOVES)
        .doc(
            Group::SortedSet,
            "2.8.9",
            "Removes the members between two names, if all scores are equal",
        ),
];
