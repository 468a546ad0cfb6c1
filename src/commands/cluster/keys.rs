//! The subcommands of CLUSTER about the keys of slots.

use super::check_enabled;
use crate::base::slots::SLOTS;
use crate::commands::args::{self, BAD_SLOT, Options};
use crate::commands::{CmdResult, Error, ReadCtx};
use crate::storage::Direction;
use std::cmp::Reverse;

const INVALID_SLOT: Error = Error::text("ERR Invalid slot");
const INVALID_SLOT_OR_COUNT: Error = Error::text("ERR Invalid slot or number of keys");
const BAD_LIMIT: Error =
    Error::text("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).");
const BAD_METRIC: Error = Error::text("ERR Unrecognized sort metric for ORDERBY.");
const TWICE: Error = Error::text("ERR Multiple filters of the same type are disallowed.");

/// A slot that is there.
fn slot(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

fn int(keys: u64) -> i64 {
    i64::try_from(keys).unwrap_or(i64::MAX)
}

pub(super) fn countkeysinslot(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let slot = slot(args::int(args[2])?).ok_or(INVALID_SLOT)?;
    ctx.reply.int(int(ctx.view.keys_in_slot(ctx.db, slot)));
    Ok(())
}

/// Also names keys that have expired and are not removed yet: they count.
pub(super) fn getkeysinslot(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let (number, count) = (args::int(args[2])?, args::int(args[3])?);
    let found = slot(number).zip(u64::try_from(count).ok());
    let (slot, most) = found.ok_or(INVALID_SLOT_OR_COUNT)?;
    let layout = ctx.view.layout();
    let (from, to) = (layout.meta_in(slot, b""), layout.meta_in(slot + 1, b""));
    let mark = ctx.reply.begin();
    let mut named = 0;
    let mut scan = ctx.view.scan(ctx.db, &from, &to, Direction::Forward)?;
    while named < most
        && let Some((row_key, _)) = scan.next()?
    {
        let key = layout.user_key(row_key);
        ctx.reply
            .bulk(key.map_err(crate::storage::StorageError::from)?);
        named += 1;
    }
    ctx.reply
        .end_array(mark, usize::try_from(named).unwrap_or(usize::MAX));
    Ok(())
}

/// The figures besides the number of keys, as they stand in [`slot_stats`](crate::state::slot_stats).
const METRICS: [&str; 3] = ["cpu-usec", "network-bytes-in", "network-bytes-out"];

/// Writes the figures of these slots.
fn figures(ctx: &mut ReadCtx<'_>, slots: &[u16]) {
    let keys = ctx.view.keys_by_slot(ctx.db);
    let all = ctx.server.config.load().cluster_slot_stats_enabled;
    ctx.reply.array(slots.len());
    for &slot in slots {
        ctx.reply.array(2);
        ctx.reply.int(slot.into());
        ctx.reply.map(if all { 1 + METRICS.len() } else { 1 });
        ctx.reply.bulk(b"key-count");
        ctx.reply
            .int(int(keys.get(usize::from(slot)).copied().unwrap_or(0)));
        let others = METRICS.iter().zip(ctx.server.slot_stats.of(slot));
        for (name, value) in others.filter(|_| all) {
            ctx.reply.bulk(name.as_bytes());
            ctx.reply.int(int(value));
        }
    }
}

/// The values by which slots are ordered.
fn values(ctx: &ReadCtx<'_>, metric: &[u8]) -> Result<Vec<u64>, Error> {
    if args::is(metric, "KEY-COUNT") {
        return Ok(ctx.view.keys_by_slot(ctx.db));
    }
    let others = ctx.server.config.load().cluster_slot_stats_enabled;
    let at = METRICS
        .iter()
        .position(|name| others && metric.eq_ignore_ascii_case(name.as_bytes()))
        .ok_or(BAD_METRIC)?;
    Ok((0..SLOTS)
        .map(|slot| ctx.server.slot_stats.of(slot)[at])
        .collect())
}

fn slots_range(ctx: &mut ReadCtx<'_>, first: &[u8], last: &[u8]) -> CmdResult {
    let read = |arg| slot(args::int(arg).map_err(|_| BAD_SLOT)?).ok_or(BAD_SLOT);
    let (first, last) = (read(first)?, read(last)?);
    if first > last {
        return Err(Error::owned(format!(
            "ERR Start slot number {first} is greater than end slot number {last}"
        )));
    }
    let range: Vec<u16> = (first..=last).collect();
    figures(ctx, &range);
    Ok(())
}

fn order_by(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let values = values(ctx, args[3])?;
    let (mut limit, mut descending) = (None, None);
    let mut options = Options::new(args, 4);
    while !options.is_empty() {
        let is_given = if options.left() >= 2 && options.word("LIMIT") {
            let number = options.int()?;
            let most = (1..=i64::from(SLOTS)).contains(&number).then_some(number);
            limit.replace(most.ok_or(BAD_LIMIT)?).is_some()
        } else if options.word("ASC") {
            descending.replace(false).is_some()
        } else if options.word("DESC") {
            descending.replace(true).is_some()
        } else {
            return Err(Error::Syntax);
        };
        if is_given {
            return Err(TWICE);
        }
    }
    let mut slots: Vec<(u16, u64)> = (0..).zip(values).collect();
    match descending.unwrap_or(true) {
        true => slots.sort_by_key(|(slot, value)| (Reverse(*value), *slot)),
        false => slots.sort_by_key(|(slot, value)| (*value, *slot)),
    }
    let most = usize::try_from(limit.unwrap_or(i64::from(SLOTS))).unwrap_or(usize::MAX);
    slots.truncate(most);
    let slots: Vec<u16> = slots.into_iter().map(|(slot, _)| slot).collect();
    figures(ctx, &slots);
    Ok(())
}

pub(super) fn slot_stats(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    match args {
        [_, _, how, first, last] if args::is(how, "SLOTSRANGE") => slots_range(ctx, first, last),
        [_, _, how, _, ..] if args::is(how, "ORDERBY") => order_by(ctx, args),
        _ => Err(crate::commands::table::help::mistaken(args)),
    }
}
