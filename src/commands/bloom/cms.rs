//! CMS: count-min sketches.

use super::{Family, int_within, place_of};
use crate::base::{logarithm, num};
use crate::commands::table::spec::Group;
use crate::commands::{CmdResult, Command, Error, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, View};
use crate::types::OpError;
use crate::types::bloom::cms::Sketch;
use crate::types::bloom::items::read_each;
use std::ops::ControlFlow;

const NO_KEY: Error = Error::text("CMS: key does not exist");

fn load(view: &mut View, db: DbIndex, key: &[u8]) -> Result<Sketch, Error> {
    Sketch::load(view, db, key)?.ok_or(NO_KEY)
}

/// Refuses a key that exists, whatever it holds.
fn must_be_new(ctx: &mut WriteCtx<'_>, key: &[u8]) -> CmdResult {
    match Sketch::load(ctx.txn, ctx.db, key) {
        Ok(None) => Ok(()),
        Ok(Some(_)) | Err(OpError::WrongType) => Err(Error::text("CMS: key already exists")),
        Err(error) => Err(error.into()),
    }
}

fn create(ctx: &mut WriteCtx<'_>, key: &[u8], width: i64, depth: i64) -> CmdResult {
    if width < 1 || depth < 1 || width > i64::MAX / depth {
        return Err(Error::text("CMS: invalid init arguments"));
    }
    let sketch = Sketch::new(ctx.txn, width as u64, depth as u64);
    let sketch = sketch.ok_or(Error::text("CMS: Insufficient memory to create the key"))?;
    sketch.save(ctx.txn, ctx.db, key)?;
    ctx.reply.ok();
    Ok(())
}

fn init_by_dim(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    must_be_new(ctx, args[1])?;
    let width = int_within(args[2], 1, i64::MAX, Error::text("CMS: invalid width"))?;
    let depth = int_within(args[3], 1, i64::MAX, Error::text("CMS: invalid depth"))?;
    create(ctx, args[1], width, depth)?;
    ctx.event(Class::MODULE, "cms.initbydim", args[1]);
    Ok(())
}

/// A number between 0 and 1.
fn fraction(arg: &[u8], refusal: Error) -> Result<f64, Error> {
    num::parse_f64(arg)
        .filter(|number| *number > 0.0 && *number < 1.0)
        .ok_or(refusal)
}

/// The size is logged, not the numbers that it follows from.
fn init_by_prob(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    must_be_new(ctx, args[1])?;
    let error = fraction(args[2], Error::text("CMS: invalid overestimation value"))?;
    let probability = fraction(args[3], Error::text("CMS: invalid prob value"))?;
    let width = (2.0 / error).ceil() as i64;
    let depth =
        f64::from(logarithm::log10(probability as f32) / logarithm::log10(0.5)).ceil() as i64;
    create(ctx, args[1], width, depth)?;
    let (mut a, mut b) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (width, depth) = (a.format(width).as_bytes(), b.format(depth).as_bytes());
    let effect: [&[u8]; 4] = [b"CMS.INITBYDIM", args[1], width, depth];
    ctx.txn.effect(ctx.db, &effect);
    ctx.event(Class::MODULE, "cms.initbyprob", args[1]);
    Ok(())
}

fn incr_by(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if !args.len().is_multiple_of(2) {
        return Err(Error::Arity("cms.incrby".into()));
    }
    let mut sketch = load(ctx.txn, ctx.db, args[1])?;
    let (pairs, _) = args[2..].as_chunks::<2>();
    let mut increments = Vec::with_capacity(pairs.len());
    for [item, by] in pairs {
        let by = num::parse_i64(by).ok_or(Error::text("CMS: Cannot parse number"))?;
        let negative = Error::text("CMS: Number cannot be negative");
        increments.push((item, u64::try_from(by).map_err(|_| negative)?));
    }
    ctx.reply.array(pairs.len());
    for (at, (item, by)) in increments.into_iter().enumerate() {
        let count = sketch.increment(ctx.txn, ctx.db, item, by);
        let others = pairs[at + 1..].iter().map(|[item, _]| *item);
        match count.inspect_err(|_| sketch.ask_for(ctx.txn, ctx.db, others))? {
            u32::MAX => ctx.reply.error("CMS: INCRBY overflow"),
            count => ctx.reply.int(count.into()),
        }
    }
    sketch.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "cms.incrby", args[1]);
    Ok(())
}

fn query(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let sketch = load(ctx.view, ctx.db, args[1])?;
    ctx.reply.array(args.len() - 2);
    read_each(ctx.view, &args[2..], |item| {
        let count = sketch.query(ctx.view, ctx.db, item)?;
        ctx.reply.int(count.into());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(())
}

fn merge(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut into = load(ctx.txn, ctx.db, args[1])?;
    let bad = Error::text("CMS: invalid numkeys");
    let numkeys = int_within(args[2], i64::MIN, i64::MAX, bad)?;
    let positive = usize::try_from(numkeys).ok().filter(|keys| *keys > 0);
    let numkeys = positive.ok_or(Error::text("CMS: Number of keys must be positive"))?;
    let rest = &args[3..];
    let weights = match place_of("WEIGHTS", rest) {
        None if rest.len() != numkeys => {
            return Err(Error::text("CMS: wrong number of keys"));
        }
        None => None,
        Some(at) if at != numkeys || rest.len() - 1 != numkeys.saturating_mul(2) => {
            return Err(Error::text("CMS: wrong number of keys/weights"));
        }
        Some(at) => rest.get(at + 1..),
    };
    let mut sources = Vec::with_capacity(numkeys);
    for (at, key) in rest[..numkeys].iter().enumerate() {
        let weight = match weights.and_then(|weights| weights.get(at)) {
            Some(weight) => {
                num::parse_i64(weight).ok_or(Error::text("CMS: invalid weight value"))?
            }
            None => 1,
        };
        let source = load(ctx.txn, ctx.db, key)?;
        if (source.width, source.depth) != (into.width, into.depth) {
            return Err(Error::text("CMS: width/depth is not equal"));
        }
        sources.push((source, weight));
    }
    if !into.merge(ctx.txn, ctx.db, &sources)? {
        return Err(Error::text("CMS: MERGE overflow"));
    }
    into.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "cms.merge", args[1]);
    ctx.reply.ok();
    Ok(())
}

fn info(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let sketch = load(ctx.view, ctx.db, args[1])?;
    ctx.reply.map(3);
    let fields = [
        ("width", sketch.width),
        ("depth", sketch.depth),
        ("count", sketch.count),
    ];
    for (name, value) in fields {
        ctx.reply.simple(name);
        ctx.reply.int(value as i64);
    }
    Ok(())
}

const FAMILY: Family = Family {
    group: Group::Sketch,
    since: "2.0.0",
};

/// The rows of CMS.*.
pub const COMMANDS: &[Command] = &[
    FAMILY
        .write(
            "cms.initbydim",
            4,
            init_by_dim,
            "Creates a count-min sketch of a given size",
        )
        .syntax("key width:int depth:int"),
    FAMILY
        .write(
            "cms.initbyprob",
            4,
            init_by_prob,
            "Creates a count-min sketch whose size follows from the errors that it may have",
        )
        .syntax("key error:double probability:double"),
    FAMILY
        .write(
            "cms.incrby",
            -4,
            incr_by,
            "Counts items in a count-min sketch",
        )
        .syntax("key items=(item increment:int)...")
        .complexity("O(N * D), N: items, D: depth"),
    FAMILY
        .read(
            "cms.query",
            -3,
            query,
            "Estimates how often items were counted",
        )
        .syntax("key item...")
        .complexity("O(N * D), N: items, D: depth"),
    FAMILY
        .write(
            "cms.merge",
            -4,
            merge,
            "Stores the weighted sum of count-min sketches",
        )
        .syntax("key numkeys:int source:key... [weights=(WEIGHTS weight:double...)]")
        .complexity("O(N * C), N: sketches, C: counters of each")
        .keys(&[
            KeySpec::at(1, KeyFlags::RW),
            KeySpec::numkeys(2, KeyFlags::RO),
        ]),
    FAMILY
        .read("cms.info", 2, info, "Describes a count-min sketch")
        .syntax("key"),
];
