//! Unions, intersections and differences of sorted sets and sets. The members
//! of a set all have the score 1.

use crate::commands::args::{self, Options};
use crate::commands::table::spec::Group;
use crate::commands::zsets::{Shape, store_stated};
use crate::commands::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, View};
use crate::types::OpResult;
use crate::types::definition::{NextScored, Scored};
use crate::types::table::definition;
use crate::types::zset::{self, Each, Member};
use std::collections::HashMap;

/// The cost of a look-up, in steps of a walk.
const STEPS_PER_LOOKUP: u64 = 4;

/// An operand: a missing key, a sorted set or a set.
type Source = Box<dyn Scored>;

fn open(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Source> {
    match view.lookup(db, key)? {
        None => Ok(Box::new(Nothing)),
        Some(found) => definition(found.meta.kind).scored(view, db, found),
    }
}

/// There is no such key.
struct Nothing;

impl Scored for Nothing {
    fn len(&self) -> u64 {
        0
    }

    fn score(&self, _: &mut View, _: &[u8]) -> OpResult<Option<f64>> {
        Ok(None)
    }

    fn for_each(&self, _: &mut View, _: Each<'_>) -> OpResult<()> {
        Ok(())
    }

    fn walk(&self) -> NextScored<'_> {
        Box::new(|_, elements| {
            elements.clear();
            Ok(false)
        })
    }
}

/// How the scores of a member are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    /// Each set that has the member counts as its weight, whatever the score there.
    Count,
}

impl Aggregate {
    /// What a score in a source of this weight contributes.
    fn weighted(self, score: f64, weight: f64) -> f64 {
        match self {
            Aggregate::Count => weight,
            _ => score * weight,
        }
    }

    fn join(self, a: f64, b: f64) -> f64 {
        number(match self {
            Aggregate::Sum | Aggregate::Count => a + b,
            Aggregate::Min => a.min(b),
            Aggregate::Max => a.max(b),
        })
    }
}

/// NaN (inf − inf, 0 × inf) counts as 0.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// The operands of an operation and how they are combined.
struct Operands {
    sources: Vec<(Source, f64)>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// Which options a command takes.
#[derive(Debug, Clone, Copy)]
struct Takes {
    weights: bool,
    scores: bool,
}

/// Reads the number of keys and opens the keys that follow it.
fn open_sources(
    view: &mut View,
    db: DbIndex,
    options: &mut Options<'_>,
    name: &str,
) -> Result<Vec<(Source, f64)>, Error> {
    let numkeys = options.int()?;
    if numkeys < 1 {
        return Err(Error::owned(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let keys = options.values(usize::try_from(numkeys).unwrap_or(usize::MAX))?;
    let open = |key: &&[u8]| Ok((open(view, db, key)?, 1.0));
    keys.iter().map(open).collect()
}

impl Operands {
    fn parse(
        view: &mut View,
        db: DbIndex,
        args: &[&[u8]],
        at: usize,
        name: &str,
        takes: Takes,
    ) -> Result<Operands, Error> {
        let mut options = Options::new(args, at);
        let mut operands = Operands {
            sources: open_sources(view, db, &mut options, name)?,
            aggregate: Aggregate::Sum,
            with_scores: false,
        };
        while !options.is_empty() {
            let enough = options.left() > operands.sources.len();
            if takes.weights && enough && options.word("WEIGHTS") {
                for (_, weight) in &mut operands.sources {
                    *weight = args::float(options.value()?)
                        .map_err(|_| Error::text("ERR weight value is not a float"))?;
                }
            } else if takes.weights && options.left() >= 2 && options.word("AGGREGATE") {
                operands.aggregate = match options.value()? {
                    word if args::is(word, "SUM") => Aggregate::Sum,
                    word if args::is(word, "MIN") => Aggregate::Min,
                    word if args::is(word, "MAX") => Aggregate::Max,
                    word if args::is(word, "COUNT") => Aggregate::Count,
                    _ => return Err(Error::Syntax),
                };
            } else if takes.scores && options.word("WITHSCORES") {
                operands.with_scores = true;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(operands)
    }

    /// The result, ascending.
    fn compute(mut self, view: &mut View, operation: Operation) -> OpResult<Vec<(f64, Member)>> {
        if operation != Operation::Diff {
            // As in Redis: the order of the sources affects how sums are rounded.
            self.sources.sort_by_key(|(source, _)| source.len());
        }
        let mut result = match operation {
            Operation::Union => self.union(view)?,
            Operation::Inter => self.inter(view)?,
            Operation::Diff => self.diff(view)?,
        };
        // The result may contain −0, which must compare equal to 0.
        let scores = |a: f64, b: f64| (a + 0.0).total_cmp(&(b + 0.0));
        view.sort_by(&mut result, |a, b| {
            scores(a.0, b.0).then_with(|| a.1.cmp(&b.1))
        })?;
        Ok(result)
    }

    fn union(&self, view: &mut View) -> OpResult<Vec<(f64, Member)>> {
        let mut scores: HashMap<Member, f64> = HashMap::new();
        for (source, weight) in &self.sources {
            source.for_each(view, &mut |score, member| {
                let score = number(self.aggregate.weighted(score, *weight));
                match scores.get_mut(member) {
                    Some(sum) => *sum = self.aggregate.join(*sum, score),
                    None => {
                        scores.insert(Member::from_slice(member), score);
                    }
                }
                Ok(())
            })?;
        }
        Ok(scores.into_iter().map(|(m, score)| (score, m)).collect())
    }

    fn inter(&self, view: &mut View) -> OpResult<Vec<(f64, Member)>> {
        let mut result = Vec::new();
        let Some(((first, weight), others)) = self.sources.split_first() else {
            return Ok(result);
        };
        let (mut walk, mut chunk) = (first.walk(), Vec::new());
        while walk(view, &mut chunk)? {
            'members: for (score, member) in chunk.drain(..) {
                let mut joined = number(self.aggregate.weighted(score, *weight));
                for (other, weight) in others {
                    let Some(score) = other.score(view, &member)? else {
                        continue 'members;
                    };
                    // As in Redis, a NaN here makes the whole sum 0 instead of counting as 0.
                    let score = self.aggregate.weighted(score, *weight);
                    joined = self.aggregate.join(joined, score);
                }
                result.push((joined, member));
            }
        }
        Ok(result)
    }

    fn diff(&self, view: &mut View) -> OpResult<Vec<(f64, Member)>> {
        let Some(((first, _), others)) = self.sources.split_first() else {
            return Ok(Vec::new());
        };
        let steps = others.iter().map(|(other, _)| other.len()).sum::<u64>();
        let lookups = first.len().saturating_mul(others.len() as u64);
        if steps < lookups.saturating_mul(STEPS_PER_LOOKUP) {
            let mut left: HashMap<Member, f64> = HashMap::new();
            first.for_each(view, &mut |score, member| {
                left.insert(Member::from_slice(member), score);
                Ok(())
            })?;
            for (other, _) in others {
                other.for_each(view, &mut |_, member| {
                    left.remove(member);
                    Ok(())
                })?;
            }
            return Ok(left.into_iter().map(|(m, score)| (score, m)).collect());
        }
        let mut result = Vec::new();
        let (mut walk, mut chunk) = (first.walk(), Vec::new());
        while walk(view, &mut chunk)? {
            'members: for (score, member) in chunk.drain(..) {
                for (other, _) in others {
                    if other.score(view, &member)?.is_some() {
                        continue 'members;
                    }
                }
                result.push((score, member));
            }
        }
        Ok(result)
    }
}

fn read(ctx: &mut ReadCtx<'_>, args: &[&[u8]], name: &str, operation: Operation) -> CmdResult {
    let takes = Takes {
        weights: operation != Operation::Diff,
        scores: true,
    };
    let operands = Operands::parse(ctx.view, ctx.db, args, 1, name, takes)?;
    let shape = Shape::of(ctx.reply, operands.with_scores);
    ctx.view.count_reads();
    let result = operands.compute(ctx.view, operation)?;
    ctx.reply.array(shape.len(result.len()));
    for (score, member) in &result {
        shape.write(ctx.reply, *score, member);
    }
    Ok(())
}

fn store(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    name: &'static str,
    operation: Operation,
) -> CmdResult {
    let takes = Takes {
        weights: operation != Operation::Diff,
        scores: false,
    };
    let operands = ctx
        .txn
        .counting(|txn| Operands::parse(txn, ctx.db, args, 2, name, takes))?;
    let is_newer = operands.aggregate == Aggregate::Count;
    let result = operands.compute(ctx.txn, operation)?;
    match is_newer {
        true => store_stated(ctx, args[1], &result)?,
        false => zset::store(ctx.txn, ctx.db, args[1], &result)?,
    }
    if !result.is_empty() {
        ctx.event(Class::ZSET, name, args[1]);
    }
    ctx.reply.int(result.len() as i64);
    Ok(())
}

fn zunion(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read(ctx, args, "zunion", Operation::Union)
}

fn zinter(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read(ctx, args, "zinter", Operation::Inter)
}

fn zdiff(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    read(ctx, args, "zdiff", Operation::Diff)
}

fn zunionstore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    store(ctx, args, "zunionstore", Operation::Union)
}

fn zinterstore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    store(ctx, args, "zinterstore", Operation::Inter)
}

fn zdiffstore(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    store(ctx, args, "zdiffstore", Operation::Diff)
}

fn zintercard(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut options = Options::new(args, 1);
    let mut sources = open_sources(ctx.view, ctx.db, &mut options, "zintercard")?;
    let mut limit = 0;
    while !options.is_empty() {
        if options.left() < 2 || !options.word("LIMIT") {
            return Err(Error::Syntax);
        }
        limit = args::int_from(options.value()?, 0, Error::NEGATIVE_LIMIT)?;
    }
    sources.sort_by_key(|(source, _)| source.len());
    let mut found = 0;
    if let Some(((first, _), others)) = sources.split_first() {
        let (mut walk, mut chunk) = (first.walk(), Vec::new());
        'walk: while walk(ctx.view, &mut chunk)? {
            'members: for (_, member) in chunk.drain(..) {
                for (other, _) in others {
                    if other.score(ctx.view, &member)?.is_none() {
                        continue 'members;
                    }
                }
                found += 1;
                if found == limit {
                    break 'walk;
                }
            }
        }
    }
    ctx.reply.int(found);
    Ok(())
}

const READS: &[KeySpec] = &[KeySpec::numkeys(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const STORES: &[KeySpec] = &[
    KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE)),
    KeySpec::numkeys(2, KeyFlags::RO.union(KeyFlags::ACCESS)),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::read("zunion", -3, zunion)
        .syntax(
            "numkeys:int key... [WEIGHTS weight:int...] \
             [AGGREGATE aggregate=(SUM|MIN|MAX|COUNT@8.8.0)] [WITHSCORES]",
        )
        .history(&[("8.8.0", "Added `COUNT`")])
        .complexity("O(N + M log M), N: members of all sorted sets, M: members answered")
        .keys(READS)
        .doc(
            Group::SortedSet,
            "6.2.0",
            "Returns the members that any of several sorted sets has",
        ),
    Command::read("zinter", -3, zinter)
        .syntax(
            "numkeys:int key... [WEIGHTS weight:int...] \
             [AGGREGATE aggregate=(SUM|MIN|MAX|COUNT@8.8.0)] [WITHSCORES]",
        )
        .history(&[("8.8.0", "Added `COUNT`")])
        .complexity(
            "O(N K + M log M), N: members of the smallest sorted set, K: sorted sets, M: \
             members answered",
        )
        .keys(READS)
        .doc(
            Group::SortedSet,
            "6.2.0",
            "Returns the members that all of several sorted sets have",
        ),
    Command::read("zdiff", -3, zdiff)
        .syntax("numkeys:int key... [WITHSCORES]")
        .complexity("O(N + M log M), N: members of all sorted sets, M: members answered")
        .keys(READS)
        .doc(
            Group::SortedSet,
            "6.2.0",
            "Returns the members of the first sorted set that no other has",
        ),
    Command::read("zintercard", -3, zintercard)
        .syntax("numkeys:int key... [LIMIT limit:int]")
        .complexity("O(N K), N: members of the smallest sorted set, K: sorted sets")
        .keys(READS)
        .doc(
            Group::SortedSet,
            "7.0.0",
            "Counts the members that all of several sorted sets have",
        ),
    Command::write("zunionstore", -4, zunionstore)
        .syntax(
            "destination:key numkeys:int key... [WEIGHTS weight:int...] \
             [AGGREGATE aggregate=(SUM|MIN|MAX|COUNT@8.8.0)]",
        )
        .history(&[("8.8.0", "Added `COUNT`")])
        .complexity("O(N + M log M), N: members of all sorted sets, M: members stored")
        .flags(Flags::DENYOOM)
        .keys(STORES)
        .doc(
            Group::SortedSet,
            "2.0.0",
            "Stores the union of several sorted sets",
        ),
    Command::write("zinterstore", -4, zinterstore)
        .syntax(
            "destination:key numkeys:int key... [WEIGHTS weight:int...] \
             [AGGREGATE aggregate=(SUM|MIN|MAX|COUNT@8.8.0)]",
        )
        .history(&[("8.8.0", "Added `COUNT`")])
        .complexity(
            "O(N K + M log M), N: members of the smallest sorted set, K: sorted sets, M: \
             members stored",
        )
        .flags(Flags::DENYOOM)
        .keys(STORES)
        .doc(
            Group::SortedSet,
            "2.0.0",
            "Stores the intersection of several sorted sets",
        ),
    Command::write("zdiffstore", -4, zdiffstore)
        .syntax("destination:key numkeys:int key...")
        .complexity("O(N + M log M), N: members of all sorted sets, M: members stored")
        .flags(Flags::DENYOOM)
        .keys(STORES)
        .doc(
            Group::SortedSet,
            "6.2.0",
            "Stores the members of the first sorted set that no other has",
        ),
];
