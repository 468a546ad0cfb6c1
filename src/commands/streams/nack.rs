//! XNACK: gives pending entries back to their group, so that other consumers can claim them at
//! once.
//!
//! The stated effect is absolute: it has the count of deliveries that each entry got.

use crate::commands::args::{self, Options};
use crate::commands::error::quoted;
use crate::commands::streams::args::{counted_ids, id_text, ids, no_group, reply_count};
use crate::commands::streams::read::load;
use crate::commands::table::spec::Group as Docs;
use crate::commands::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, WriteCtx};
use crate::types::stream::{PendingRow, StreamId};

/// What becomes of the count of deliveries.
#[derive(Debug, Clone, Copy)]
enum Deliveries {
    /// SILENT: the last one does not count.
    OneLess,
    /// FAIL.
    Same,
    /// FATAL: the entry is marked as one that cannot be processed.
    Most,
    /// RETRYCOUNT.
    Set(u64),
}

impl Deliveries {
    fn apply(self, old: Option<&PendingRow>) -> u64 {
        let known = old.map_or(0, |old| old.deliveries);
        match self {
            Deliveries::OneLess => known.saturating_sub(1),
            Deliveries::Same => known,
            Deliveries::Most => i64::MAX as u64,
            Deliveries::Set(count) => count,
        }
    }
}

/// The arguments behind the group.
struct Asked<'a> {
    deliveries: Deliveries,
    ids: &'a [&'a [u8]],
    /// FORCE: entries that are not pending become so.
    force: bool,
}

impl<'a> Asked<'a> {
    fn parse(args: &'a [&'a [u8]]) -> Result<Asked<'a>, Error> {
        let mut deliveries = match args[3] {
            mode if args::is(mode, "SILENT") => Deliveries::OneLess,
            mode if args::is(mode, "FAIL") => Deliveries::Same,
            mode if args::is(mode, "FATAL") => Deliveries::Most,
            _ => return Err(Error::text("ERR mode must be SILENT, FAIL, or FATAL")),
        };
        let (mut ids, mut force) = (None, false);
        let mut options = Options::new(args, 4);
        while let Some(arg) = options.peek() {
            let has_value = options.left() > 1;
            if ids.is_none() && has_value && options.word("IDS") {
                ids = Some(counted_ids(
                    &mut options,
                    Error::text("ERR numids must be a positive integer"),
                    Error::text("ERR number of IDs doesn't match numids"),
                )?);
            } else if options.word("FORCE") {
                force = true;
            } else if has_value && options.word("RETRYCOUNT") {
                let count = u64::try_from(options.int()?)
                    .map_err(|_| Error::text("ERR Invalid RETRYCOUNT value, must be >= 0"))?;
                deliveries = Deliveries::Set(count);
            } else {
                let shown = quoted(arg, usize::MAX);
                let text: [&[u8]; 3] = [b"ERR Unrecognized XNACK option '", shown, b"'"];
                return Err(Error::Bytes(text.concat()));
            }
        }
        Ok(Asked {
            deliveries,
            ids: ids.ok_or(Error::text("ERR syntax error, expected IDS keyword"))?,
            force,
        })
    }
}

fn xnack(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (key, name) = (args[1], args[2]);
    let found = match load(ctx, key)? {
        Some(stream) => stream.group(ctx.txn, name)?.map(|group| (stream, group)),
        None => None,
    };
    let (stream, mut group) = found.ok_or_else(|| no_group(key, name, ""))?;
    let asked = Asked::parse(args)?;
    let ids = ids(asked.ids)?;
    ctx.txn.no_effect();
    let mut released: Vec<(StreamId, u64)> = Vec::new();
    for id in ids {
        let old = group.pending(ctx.txn, id)?;
        if old.is_none() && !(asked.force && stream.has(ctx.txn, id)?) {
            continue;
        }
        let deliveries = asked.deliveries.apply(old.as_ref());
        group.release(ctx.txn, id, old.as_ref(), deliveries)?;
        released.push((id, deliveries));
    }
    group.save(ctx.txn)?;
    reply_count(ctx.reply, released.len() as u64);
    if !released.is_empty() {
        // Clients may wait for entries to claim.
        stream.announce(ctx.txn)?;
    }
    for alike in released.chunk_by(|a, b| a.1 == b.1) {
        log_released(ctx, key, name, alike);
    }
    Ok(())
}

/// States the release of entries with the same count of deliveries.
fn log_released(ctx: &mut WriteCtx<'_>, key: &[u8], group: &[u8], released: &[(StreamId, u64)]) {
    let count = released.len().to_string();
    let deliveries = released.first().map_or(0, |(_, deliveries)| *deliveries);
    let deliveries = deliveries.min(i64::MAX as u64).to_string();
    let texts: Vec<_> = released.iter().map(|(id, _)| id_text(*id)).collect();
    let mut effect: Vec<&[u8]> = vec![b"XNACK", key, group, b"FAIL", b"IDS", count.as_bytes()];
    effect.extend(texts.iter().map(|text| text.as_slice()));
    effect.extend_from_slice(&[b"RETRYCOUNT", deliveries.as_bytes(), b"FORCE"]);
    ctx.txn.effect(ctx.db, &effect);
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::write("xnack", -7, xnack)
    .syntax(
        "key group mode=(SILENT|FAIL|FATAL) IDS ids=(numids:int id...) \
         [RETRYCOUNT count:int] [FORCE]",
    )
    .complexity("O(N), N: IDs")
    .flags(Flags::FAST)
    .keys(&[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))])
    .doc(
        Docs::Stream,
        "8.8.0",
        "Gives pending entries back to their group, for other consumers to claim",
    )];
