//! Commands of streams that add, return and remove entries.

mod args;
pub(super) mod claim;
pub(super) mod groups;
pub(super) mod info;
pub(super) mod read;

use super::args::Options;
use super::streams::args::{
    AddOrTrim, id, id_text, ids, range_end, range_start, reply_count, reply_entry, reply_id,
};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::stream::{Keep, NewId, Refusal, Stream, StreamId, Trim, row_of};
use std::ops::ControlFlow;

fn xadd(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let asked = AddOrTrim::of_xadd(ctx, args)?;
    let arity = || Error::Arity("xadd".into());
    let (wanted, id_at) = asked.id.ok_or_else(arity)?;
    let fields = &args[id_at + 1..];
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(arity());
    }
    if wanted == NewId::Given(StreamId::MIN) {
        return Err(Error::text(
            "ERR The ID specified in XADD must be greater than 0-0",
        ));
    }
    let mut stream = match asked.only_existing {
        false => Stream::load_or_new(ctx.txn, ctx.db, args[1])?,
        true => match Stream::load(ctx.txn, ctx.db, args[1])? {
            Some(stream) => stream,
            None => {
                ctx.reply.null();
                return Ok(());
            }
        },
    };
    let id = stream.next_id(wanted, ctx.txn.now_ms());
    let id = id.map_err(|refusal| match refusal {
        Refusal::Exhausted => Error::text(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ),
        Refusal::NotAbove => Error::text(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
    })?;
    stream.append(ctx.txn, id, &row_of(fields.iter().copied()))?;
    reply_id(ctx.reply, id);
    let mut trimmed = 0;
    if let Some((trim, _)) = asked.trim {
        trimmed = stream.trim(ctx.txn, trim)?;
    }
    let bound = asked.trim.map(|(trim, at)| (bound_text(&stream, trim), at));
    stream.save(ctx.txn)?;
    ctx.event(Class::STREAM, "xadd", args[1]);
    if trimmed > 0 {
        ctx.event(Class::STREAM, "xtrim", args[1]);
    }
    log_trimmed(ctx, args, Some((id, id_at)), bound);
    Ok(())
}

/// The threshold of the exact trimming that gives the same result as the approximate one
/// did.
fn bound_text(stream: &Stream<'_>, trim: Trim) -> Option<Vec<u8>> {
    trim.slack?;
    Some(match trim.keep {
        Keep::Last(_) => stream.body().length.to_string().into_bytes(),
        Keep::From(_) if stream.body().length == 0 => id_text(StreamId::MAX).to_vec(),
        Keep::From(_) => id_text(stream.body().first).to_vec(),
    })
}

/// States the effect: the command with the ID that the entry got and with exact trimming, so
/// that it does not depend on the clock and the configuration of a replica.
fn log_trimmed(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    id: Option<(StreamId, usize)>,
    bound: Option<(Option<Vec<u8>>, usize)>,
) {
    let id = id.map(|(id, at)| (id_text(id), at));
    let mut effect: Vec<&[u8]> = args.to_vec();
    if let Some((text, at)) = &id {
        effect[*at] = text;
    }
    if let Some((Some(text), at)) = &bound {
        effect[*at] = text;
        // Approximate trimming always has its `~` before the threshold.
        effect[*at - 1] = b"=";
        let mut end = id.as_ref().map_or(effect.len(), |(_, at)| *at);
        while let Some(limit) =
            (2..end.saturating_sub(1)).find(|&i| super::args::is(effect[i], "LIMIT"))
        {
            effect.drain(limit..limit + 2);
            end -= 2;
        }
    }
    ctx.txn.effect(ctx.db, &effect);
}

fn xtrim(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let asked = AddOrTrim::of_xtrim(ctx, args)?;
    let (Some(mut stream), Some((trim, at))) =
        (Stream::load(ctx.txn, ctx.db, args[1])?, asked.trim)
    else {
        ctx.reply.int(0);
        return Ok(());
    };
    let trimmed = stream.trim(ctx.txn, trim)?;
    reply_count(ctx.reply, trimmed);
    if trimmed > 0 {
        let bound = bound_text(&stream, trim);
        stream.save(ctx.txn)?;
        ctx.event(Class::STREAM, "xtrim", args[1]);
        log_trimmed(ctx, args, None, Some((bound, at)));
    }
    Ok(())
}

fn xdel(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some(mut stream) = Stream::load(ctx.txn, ctx.db, args[1])? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let ids = ids(&args[2..])?;
    let deleted = stream.delete(ctx.txn, &ids)?;
    reply_count(ctx.reply, deleted);
    if deleted > 0 {
        stream.save(ctx.txn)?;
        ctx.event(Class::STREAM, "xdel", args[1]);
    }
    Ok(())
}

fn xlen(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let stream = Stream::load(ctx.view, ctx.db, args[1])?;
    reply_count(ctx.reply, stream.map_or(0, |stream| stream.body().length));
    Ok(())
}

fn xrange(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let range = (range_start(args[2])?, range_end(args[3])?);
    range_of(ctx, args, range, Direction::Forward)
}

fn xrevrange(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let from = range_start(args[3])?;
    range_of(ctx, args, (from, range_end(args[2])?), Direction::Backward)
}

fn range_of(
    ctx: &mut ReadCtx<'_>,
    args: &[&[u8]],
    range: (StreamId, StreamId),
    order: Direction,
) -> CmdResult {
    let mut count = None;
    let mut options = Options::new(args, 4);
    while !options.is_empty() {
        if options.left() < 2 || !options.word("COUNT") {
            return Err(Error::Syntax);
        }
        count = Some(super::streams::args::count(&mut options)?);
    }
    let Some(stream) = Stream::load(ctx.view, ctx.db, args[1])? else {
        ctx.reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        ctx.reply.null_array();
        return Ok(());
    }
    let limit = count.unwrap_or(u64::MAX);
    let mark = ctx.reply.begin();
    let mut found = 0;
    stream.visit(ctx.view, range, order, |id, fields| {
        reply_entry(ctx.reply, id, fields)?;
        found += 1;
        Ok(match found < limit && !ctx.reply.overflowed {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    ctx.reply.end_array(mark, found as usize);
    Ok(())
}

fn xsetid(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let last = id(args[2])?;
    let (mut added, mut deleted) = (None, None);
    let mut options = Options::new(args, 3);
    while !options.is_empty() {
        let has_value = options.left() > 1;
        if has_value && options.word("ENTRIESADDED") {
            let given = u64::try_from(options.int()?);
            let refusal = Error::text("ERR entries_added must be positive");
            added = Some(given.map_err(|_| refusal)?);
        } else if has_value && options.word("MAXDELETEDID") {
            let given = id(options.value()?)?;
            if last < given {
                return Err(Error::text(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            deleted = Some(given).filter(|id| *id != StreamId::MIN);
        } else {
            return Err(Error::Syntax);
        }
    }
    let stream = Stream::load(ctx.txn, ctx.db, args[1])?;
    let mut stream = stream.ok_or(OpError::NoSuchKey)?;
    if last < stream.body().deleted {
        return Err(Error::text(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    let length = stream.body().length;
    if length > 0 {
        if last < stream.top(ctx.txn)? {
            return Err(Error::text(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| added < length) {
            return Err(Error::text(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    stream.set_last(last, added, deleted);
    stream.save(ctx.txn)?;
    ctx.event(Class::STREAM, "xsetid", args[1]);
    ctx.reply.ok();
    // Stated also if nothing changed here, because a replica may differ.
    ctx.txn.effect(ctx.db, args);
    Ok(())
}

const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))];
const LENGTH: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO)];
const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];
const DELETE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))];

/// The table.
pub const COMMANDS: &[Command] = &[
    Command::write("xadd", -5, xadd)
        .syntax(
            "key [NOMKSTREAM@6.2.0] [trim=(strategy=(MAXLEN|MINID@6.2.0) \
             [operator=(equal==|approximately=~)] threshold [LIMIT count:int@6.2.0])] \
             id-selector=(auto-id=*|id) data=(field value)...",
        )
        .complexity("O(1); with trimming O(N), N: entries removed")
        .history(&[
            ("6.2.0", "Added `NOMKSTREAM`, `MINID` and `LIMIT`"),
            ("7.0.0", "Takes IDs like `<ms>-*`"),
        ])
        .flags(Flags::DENYOOM.union(Flags::FAST))
        .keys(UPDATE)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Stream,
            "5.0.0",
            "Adds an entry to a stream, and creates it if absent",
        ),
    Command::write("xdel", -3, xdel)
        .syntax("key id...")
        .complexity("O(N), N: IDs")
        .flags(Flags::FAST)
        .keys(DELETE)
        .doc(Group::Stream, "5.0.0", "Removes entries of a stream"),
    Command::read("xlen", 2, xlen)
        .syntax("key")
        .flags(Flags::FAST)
        .keys(LENGTH)
        .doc(
            Group::Stream,
            "5.0.0",
            "Returns how many entries a stream has",
        ),
    Command::read("xrange", -4, xrange)
        .syntax("key start end [COUNT count:int]")
        .complexity("O(N), N: entries answered")
        .history(&[("6.2.0", "Added bounds that are excluded")])
        .keys(READ)
        .doc(
            Group::Stream,
            "5.0.0",
            "Returns the entries between two IDs",
        ),
    Command::read("xrevrange", -4, xrevrange)
        .syntax("key end start [COUNT count:int]")
        .complexity("O(N), N: entries answered")
        .history(&[("6.2.0", "Added bounds that are excluded")])
        .keys(READ)
        .doc(
            Group::Stream,
            "5.0.0",
            "Returns the entries between two IDs, the last one first",
        ),
    Command::write("xsetid", -3, xsetid)
        .syntax(
            "key last-id [ENTRIESADDED entries-added:int@7.0.0] \
             [MAXDELETEDID max-deleted-id@7.0.0]",
        )
        .history(&[("7.0.0", "Added `ENTRIESADDED` and `MAXDELETEDID`")])
        .flags(Flags::DENYOOM.union(Flags::FAST))
        .keys(UPDATE)
        .doc(
            Group::Stream,
            "5.0.0",
            "Sets the last ID and the counters of a stream",
        ),
    Command::write("xtrim", -4, xtrim)
        .syntax(
            "key trim=(strategy=(MAXLEN|MINID@6.2.0) \
             [operator=(equal==|approximately=~)] threshold [LIMIT count:int@6.2.0])",
        )
        .complexity("O(N), N: entries removed")
        .history(&[("6.2.0", "Added `MINID` and `LIMIT`")])
        .keys(DELETE)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Stream,
            "5.0.0",
            "Removes the oldest entries of a stream",
        ),
];

#[cfg(test)]
mod tests;
