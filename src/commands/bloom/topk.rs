//! TOPK: the most frequent items.

use super::{Family, int_within};
use crate::base::num;
use crate::commands::table::spec::Group;
use crate::commands::{CmdResult, Command, Error, ReadCtx, WriteCtx};
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, View};
use crate::types::OpError;
use crate::types::bloom::topk::{Plan, TopK};

const DEFAULT_WIDTH: u32 = 8;
const DEFAULT_DEPTH: u32 = 7;
const DEFAULT_DECAY: f64 = 0.9;

const INCREMENT_MAX: i64 = 100_000;

/// With the spaces of RedisBloom.
const BAD_INCREMENT: &str = "TopK: increment must be an integer greater or equal to 0                            and smaller or equal to 100,000";

fn load(view: &mut View, db: DbIndex, key: &[u8]) -> Result<TopK, Error> {
    TopK::load(view, db, key)?.ok_or(Error::text("TopK: key does not exist"))
}

fn reserve(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if !matches!(args.len(), 3 | 6) {
        return Err(Error::Arity("topk.reserve".into()));
    }
    match TopK::load(ctx.txn, ctx.db, args[1]) {
        Ok(None) => {}
        Ok(Some(_)) | Err(OpError::WrongType) => {
            return Err(Error::text("TopK: key already exists"));
        }
        Err(error) => return Err(error.into()),
    }
    let number = |at: usize, refusal: &'static str| {
        int_within(args[at], 1, u32::MAX.into(), Error::text(refusal)).map(|number| number as u32)
    };
    let mut plan = Plan {
        k: number(2, "TopK: invalid k")?,
        width: DEFAULT_WIDTH,
        depth: DEFAULT_DEPTH,
        decay: DEFAULT_DECAY,
    };
    if args.len() == 6 {
        plan.width = number(3, "TopK: invalid width")?;
        plan.depth = number(4, "TopK: invalid depth")?;
        let decay = num::parse_f64(args[5]).filter(|decay| *decay > 0.0 && *decay <= 1.0);
        plan.decay = decay.ok_or(Error::text(
            "TopK: invalid decay value. must be '<= 1' & '> 0'",
        ))?;
    }
    let value = TopK::new(ctx.txn, plan).ok_or(Error::text(
        "ERR Insufficient memory to create topk data structure",
    ))?;
    value.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "topk.reserve", args[1]);
    ctx.reply.ok();
    Ok(())
}

/// Counts an item, and replies the one that it drives out.
fn count_item(ctx: &mut WriteCtx<'_>, value: &mut TopK, item: &[u8], by: u32) -> CmdResult {
    match value.add(ctx.txn, ctx.db, item, by)? {
        Some(expelled) => ctx.reply.bulk(&expelled),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn add(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut value = load(ctx.txn, ctx.db, args[1])?;
    ctx.reply.array(args.len() - 2);
    for (at, item) in args.iter().enumerate().skip(2) {
        let done = count_item(ctx, &mut value, item, 1);
        done.inspect_err(|_| value.ask_for(ctx.txn, ctx.db, args[at + 1..].iter().copied()))?;
    }
    value.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "topk.add", args[1]);
    Ok(())
}

/// A bad increment ends the reply; what was counted before stays.
fn incr_by(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if !args.len().is_multiple_of(2) {
        return Err(Error::Arity("topk.incrby".into()));
    }
    let mut value = load(ctx.txn, ctx.db, args[1])?;
    let (mark, mut count) = (ctx.reply.begin(), 0);
    let pairs = args[2..].as_chunks::<2>().0;
    for [item, by] in pairs {
        count += 1;
        let by = num::parse_i64(by).filter(|by| (0..=INCREMENT_MAX).contains(by));
        let Some(by) = by else {
            ctx.reply.error(BAD_INCREMENT);
            break;
        };
        let done = count_item(ctx, &mut value, item, by as u32);
        let others = pairs[count..].iter().map(|[item, _]| *item);
        done.inspect_err(|_| value.ask_for(ctx.txn, ctx.db, others))?;
    }
    ctx.reply.end_array(mark, count);
    value.save(ctx.txn, ctx.db, args[1])?;
    ctx.event(Class::MODULE, "topk.incrby", args[1]);
    Ok(())
}

fn query(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut value = load(ctx.view, ctx.db, args[1])?;
    ctx.reply.array(args.len() - 2);
    for item in &args[2..] {
        let found = value.contains(ctx.view, ctx.db, item);
        let found = found.inspect_err(|_| value.ask_for(ctx.view, ctx.db, std::iter::empty()))?;
        ctx.reply.boolean(found);
    }
    Ok(())
}

fn count(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut value = load(ctx.view, ctx.db, args[1])?;
    ctx.reply.array(args.len() - 2);
    for (at, item) in args.iter().enumerate().skip(2) {
        let count = value.count(ctx.view, ctx.db, item);
        let others = args[at + 1..].iter().copied();
        let count = count.inspect_err(|_| value.ask_for(ctx.view, ctx.db, others))?;
        ctx.reply.int(count.into());
    }
    Ok(())
}

/// As in RedisBloom the first letters of WITHCOUNT are enough.
fn list(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    const WORD: &[u8] = b"WITHCOUNT";
    let with_count = match args {
        [_, _] => false,
        [_, _, word] => {
            let begins = WORD.get(..word.len());
            if !begins.is_some_and(|begin| begin.eq_ignore_ascii_case(word)) {
                return Err(Error::text("WITHCOUNT keyword expected"));
            }
            true
        }
        _ => return Err(Error::Arity("topk.list".into())),
    };
    let slots = load(ctx.view, ctx.db, args[1])?.list(ctx.view, ctx.db)?;
    ctx.reply.array(slots.len() * (1 + usize::from(with_count)));
    for slot in slots {
        ctx.reply.bulk(&slot.item.unwrap_or_default());
        if with_count {
            ctx.reply.int(slot.count.into());
        }
    }
    Ok(())
}

fn info(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let plan = load(ctx.view, ctx.db, args[1])?.plan;
    ctx.reply.map(4);
    for (name, value) in [("k", plan.k), ("width", plan.width), ("depth", plan.depth)] {
        ctx.reply.simple(name);
        ctx.reply.int(value.into());
    }
    ctx.reply.simple("decay");
    ctx.reply.double(plan.decay);
    Ok(())
}

const FAMILY: Family = Family {
    group: Group::TopK,
    since: "2.0.0",
};
const COST: &str = "O(N * (D + K)), N: items, D: depth, K: items that are kept";

/// The rows of TOPK.*.
pub const COMMANDS: &[Command] = &[
    FAMILY
        .write(
            "topk.reserve",
            -3,
            reserve,
            "Creates a value that keeps the most frequent items",
        )
        .syntax("key topk:int [params=(width:int depth:int decay:double)]"),
    FAMILY
        .write(
            "topk.add",
            -3,
            add,
            "Counts items once each, and returns those that they drive out of the most frequent",
        )
        .syntax("key item...")
        .complexity(COST),
    FAMILY
        .write(
            "topk.incrby",
            -4,
            incr_by,
            "Counts items, and returns those that they drive out of the most frequent",
        )
        .syntax("key item_increment=(item increment:int)...")
        .complexity(COST),
    FAMILY
        .read(
            "topk.query",
            -3,
            query,
            "Checks which items are among the most frequent",
        )
        .syntax("key item...")
        .complexity("O(N * K), N: items, K: items that are kept"),
    FAMILY
        .read(
            "topk.count",
            -3,
            count,
            "Estimates how often items were counted",
        )
        .syntax("key item...")
        .complexity(COST)
        .deprecated("2.4.0", "`TOPK.LIST` with `WITHCOUNT`"),
    FAMILY
        .read("topk.list", -2, list, "Returns the most frequent items")
        .syntax("key [WITHCOUNT]")
        .complexity("O(K * log(K)), K: items that are kept"),
    FAMILY
        .read(
            "topk.info",
            2,
            info,
            "Describes a value that keeps the most frequent items",
        )
        .syntax("key"),
];
