//! Commands of streams that add, return and remove entries.

mod args;
pub(super) mod claim;
pub(super) mod delete;
pub(super) mod groups;
pub(super) mod idempotent;
pub(super) mod info;
pub(super) mod nack;
pub(super) mod read;

use super::args::Options;
use super::streams::args::{
    AddOrTrim, id, id_text, range_end, range_start, reply_count, reply_entry, reply_id,
};
use super::streams::delete::log_deletions;
use super::streams::idempotent::{configure, iid_of, log_record, log_settings};
use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, WriteCtx};
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::types::OpError;
use crate::types::stream::{Keep, NewId, References, Refusal, Stream, StreamId, Trimmed, row_of};
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
    let is_new = stream.is_new();
    configure(ctx, &mut stream)?;
    let row = row_of(fields.iter().copied());
    let mut record = None;
    if let Some(idempotent) = &asked.idempotent {
        let (producer, iid) = (idempotent.producer, iid_of(idempotent, &row));
        let now_ms = ctx.txn.now_ms().0;
        if let Some(known) = stream.remembered(ctx.txn, producer, &iid, now_ms)? {
            reply_id(ctx.reply, known);
            stream.count_duplicate();
            stream.save(ctx.txn)?;
            ctx.txn.no_effect();
            return Ok(());
        }
        record = Some((producer, iid));
    }
    let id = stream.next_id(wanted, ctx.txn.now_ms());
    let id = id.map_err(|refusal| match refusal {
        Refusal::Exhausted => Error::text(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ),
        Refusal::NotAbove => Error::text(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
    })?;
    stream.append(ctx.txn, id, &row)?;
    // It may be long, and the log is about to get a copy.
    drop(row);
    if let Some((producer, iid)) = &record {
        stream.remember(ctx.txn, producer, iid, id)?;
    }
    reply_id(ctx.reply, id);
    let mut trimmed = Trimmed::default();
    if let Some((trim, _)) = asked.trim {
        trimmed = stream.trim_with(ctx.txn, trim, asked.references)?;
    }
    let stated = StatedTrim::of(&stream, &asked, &trimmed);
    let settings = stream.body().idempotence;
    stream.save(ctx.txn)?;
    ctx.event(Class::STREAM, "xadd", args[1]);
    if trimmed.count > 0 {
        ctx.event(Class::STREAM, "xtrim", args[1]);
    }
    log_effect(ctx, args, &asked, Some(id), &stated);
    if is_new {
        log_settings(ctx, args[1], settings);
    }
    stated.log_rest(ctx, args[1], &trimmed);
    if let Some((producer, iid)) = &record {
        log_record(ctx, args[1], producer, iid, id);
    }
    Ok(())
}

/// How the effect states a trimming.
enum StatedTrim {
    /// As the command does.
    AsGiven,
    /// With another threshold and exactly: that which has the same result.
    At(Vec<u8>),
    /// Not in the command itself: by these words of XTRIM, or if there are none by what
    /// [`Trimmed`] has.
    Apart(Option<[Vec<u8>; 2]>),
}

impl StatedTrim {
    fn of(stream: &Stream<'_>, asked: &AddOrTrim, trimmed: &Trimmed) -> StatedTrim {
        let Some((trim, _)) = asked.trim else {
            return StatedTrim::AsGiven;
        };
        let body = stream.body();
        if asked.references == References::Acknowledged {
            let is_prefix = trimmed.count > 0 && trimmed.scattered.is_empty();
            return StatedTrim::Apart(is_prefix.then(|| match body.length {
                0 => [b"MAXLEN".to_vec(), b"0".to_vec()],
                _ => [b"MINID".to_vec(), id_text(body.first).to_vec()],
            }));
        }
        if trim.slack.is_none() {
            return StatedTrim::AsGiven;
        }
        StatedTrim::At(match trim.keep {
            Keep::Last(_) => body.length.to_string().into_bytes(),
            Keep::From(_) if body.length == 0 => id_text(StreamId::MAX).to_vec(),
            Keep::From(_) => id_text(body.first).to_vec(),
        })
    }

    /// States what the command itself does not.
    fn log_rest(&self, ctx: &mut WriteCtx<'_>, key: &[u8], trimmed: &Trimmed) {
        if let StatedTrim::Apart(Some([strategy, threshold])) = self {
            let effect: [&[u8]; 5] = [b"XTRIM", key, strategy, b"=", threshold];
            ctx.txn.effect(ctx.db, &effect);
        }
        log_deletions(ctx, key, &trimmed.scattered, &trimmed.forgotten);
    }
}

/// States the effect: the command with the ID that the entry got and with exact trimming, so
/// that it does not depend on the clock and the configuration of a replica. It has no words that
/// are newer than Redis 7.0.
fn log_effect(
    ctx: &mut WriteCtx<'_>,
    args: &[&[u8]],
    asked: &AddOrTrim,
    id: Option<StreamId>,
    trim: &StatedTrim,
) {
    let id = id.map(id_text);
    let id_at = asked.id.map_or(args.len(), |(_, at)| at);
    let trim_at = asked.trim.map_or(0, |(_, at)| at);
    let mut effect: Vec<&[u8]> = Vec::with_capacity(args.len());
    for (at, arg) in args.iter().enumerate() {
        let unstated = at < id_at && asked.unstated.iter().any(|range| range.contains(&at));
        match (trim, &id) {
            _ if unstated => {}
            (_, Some(id)) if at == id_at => effect.push(id),
            (StatedTrim::At(threshold), _) if at == trim_at => effect.push(threshold),
            // Approximate trimming always has its `~` before the threshold.
            (StatedTrim::At(_), _) if at + 1 == trim_at => effect.push(b"="),
            (StatedTrim::Apart(_), _) if asked.strategy.contains(&at) => {}
            _ => effect.push(arg),
        }
    }
    ctx.txn.effect(ctx.db, &effect);
}

fn xtrim(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let asked = AddOrTrim::of_xtrim(ctx, args)?;
    let (Some(mut stream), Some((trim, _))) = (Stream::load(ctx.txn, ctx.db, args[1])?, asked.trim)
    else {
        ctx.reply.int(0);
        return Ok(());
    };
    let trimmed = stream.trim_with(ctx.txn, trim, asked.references)?;
    reply_count(ctx.reply, trimmed.count);
    if trimmed.count > 0 {
        let stated = StatedTrim::of(&stream, &asked, &trimmed);
        stream.save(ctx.txn)?;
        ctx.event(Class::STREAM, "xtrim", args[1]);
        if !matches!(stated, StatedTrim::Apart(_)) {
            log_effect(ctx, args, &asked, None, &stated);
        }
        stated.log_rest(ctx, args[1], &trimmed);
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

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("xadd", -5, xadd)
        .syntax(
            "key [NOMKSTREAM@6.2.0] [condition=(KEEPREF|DELREF|ACKED)@8.2.0] \
             [idmp=(idmpauto=(IDMPAUTO pid)|idmp=(IDMP idmp-block=(pid iid)))@8.6.0] \
             [trim=(strategy=(MAXLEN|MINID@6.2.0) \
             [operator=(equal==|approximately=~)] threshold [LIMIT count:int@6.2.0])] \
             id-selector=(auto-id=*|id) data=(field value)...",
        )
        .complexity("O(1); with trimming O(N), N: entries removed")
        .history(&[
            ("6.2.0", "Added `NOMKSTREAM`, `MINID` and `LIMIT`"),
            ("7.0.0", "Takes IDs like `<ms>-*`"),
            ("8.2.0", "Added `KEEPREF`, `DELREF` and `ACKED`"),
            ("8.6.0", "Added `IDMP` and `IDMPAUTO`"),
        ])
        .flags(Flags::DENYOOM.union(Flags::FAST))
        .keys(UPDATE)
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Group::Stream,
            "5.0.0",
            "Adds an entry to a stream, and creates it if absent",
        ),
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
             [operator=(equal==|approximately=~)] threshold [LIMIT count:int@6.2.0]) \
             [condition=(KEEPREF|DELREF|ACKED)@8.2.0]",
        )
        .complexity("O(N), N: entries removed")
        .history(&[
            ("6.2.0", "Added `MINID` and `LIMIT`"),
            ("8.2.0", "Added `KEEPREF`, `DELREF` and `ACKED`"),
        ])
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
