//! XDEL, XDELEX and XACKDEL: remove single entries.
//!
//! XDELEX and XACKDEL state as their effects what XACK and XDEL would do: a replica needs not
//! know them, nor look at its groups.

use crate::commands::args::Options;
use crate::commands::streams::args::{counted_ids, id_text, ids, references, reply_count};
use crate::commands::streams::read::load;
use crate::commands::table::spec::Group as Docs;
use crate::commands::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, WriteCtx};
use crate::storage::txn::events::Class;
use crate::types::stream::{References, Referrers, Stream, StreamId};

/// Most IDs in one stated command.
const STATED_IDS: usize = 4096;

fn xdel(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let Some(mut stream) = Stream::load(ctx.txn, ctx.db, args[1])? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let ids = ids(&args[2..])?;
    let existed = stream.delete(ctx.txn, &ids)?;
    let deleted = existed.iter().filter(|existed| **existed).count();
    reply_count(ctx.reply, deleted as u64);
    if deleted > 0 {
        stream.save(ctx.txn)?;
        ctx.event(Class::STREAM, "xdel", args[1]);
    }
    Ok(())
}

/// States the effects XACK for entries that are no longer pending, by the name of the group, and
/// XDEL for entries.
pub(super) fn log_deletions(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    deleted: &[StreamId],
    acknowledged: &[(Box<[u8]>, Vec<StreamId>)],
) {
    let db = ctx.db;
    let mut log = |words: &[&[u8]], ids: &[StreamId]| {
        for ids in ids.chunks(STATED_IDS) {
            let texts: Vec<_> = ids.iter().map(|id| id_text(*id)).collect();
            let mut effect: Vec<&[u8]> = words.to_vec();
            effect.extend(texts.iter().map(|text| text.as_slice()));
            ctx.txn.effect(db, &effect);
        }
    };
    for (group, ids) in acknowledged {
        log(&[b"XACK".as_slice(), key, group], ids);
    }
    log(&[b"XDEL".as_slice(), key], deleted);
}

/// `[KEEPREF | DELREF | ACKED] IDS numids id…`; the IDs are not yet parsed, because a missing key
/// comes before a wrong ID.
fn selection<'a>(args: &'a [&'a [u8]], from: usize) -> Result<(References, &'a [&'a [u8]]), Error> {
    let (mut chosen, mut ids) = (None, None);
    let mut options = Options::new(args, from);
    while !options.is_empty() {
        if options.word("IDS") {
            ids = Some(counted_ids(
                &mut options,
                Error::text("ERR Number of IDs must be a positive integer"),
                Error::text("ERR The `numids` parameter must match the number of arguments"),
            )?);
        } else {
            let next = references(&mut options).filter(|_| chosen.is_none());
            chosen = Some(next.ok_or(Error::Syntax)?);
        }
    }
    Ok((chosen.unwrap_or_default(), ids.ok_or(Error::Syntax)?))
}

/// The reply for each ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// There is no such entry; for XACKDEL: it is not pending in the group.
    Missing = -1,
    Deleted = 1,
    /// A group needs it.
    Kept = 2,
}

fn reply_fates(ctx: &mut WriteCtx<'_>, fates: &[Fate]) {
    ctx.reply.array(fates.len());
    for fate in fates {
        ctx.reply.int(*fate as i64);
    }
}

/// Deletes the entries that `fates` says are deleted; without one, that becomes
/// [`Fate::Missing`] if `must_exist`. Returns the IDs of those that existed.
fn delete(
    ctx: &mut WriteCtx<'_>,
    stream: &mut Stream<'_>,
    ids: &[StreamId],
    fates: &mut [Fate],
    must_exist: bool,
) -> Result<Vec<StreamId>, Error> {
    let is_due = |fate: &Fate| *fate == Fate::Deleted;
    let due: Vec<StreamId> = ids
        .iter()
        .zip(fates.iter())
        .filter_map(|(id, fate)| is_due(fate).then_some(*id))
        .collect();
    let existed = stream.delete(ctx.txn, &due)?;
    for (fate, existed) in fates.iter_mut().filter(|fate| is_due(fate)).zip(&existed) {
        if !existed && must_exist {
            *fate = Fate::Missing;
        }
    }
    let existed = due.into_iter().zip(existed);
    Ok(existed
        .filter_map(|(id, existed)| existed.then_some(id))
        .collect())
}

fn xdelex(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let stream = load(ctx, args[1])?;
    let (references, wanted) = selection(args, 2)?;
    let Some(mut stream) = stream else {
        reply_fates(ctx, &vec![Fate::Missing; wanted.len()]);
        return Ok(());
    };
    let ids = ids(wanted)?;
    let mut fates = vec![Fate::Deleted; ids.len()];
    let mut referrers = match references {
        References::Keep => None,
        _ => Some(Referrers::of(&stream, ctx.txn)?),
    };
    if let (References::Acknowledged, Some(referrers)) = (references, &referrers) {
        for (id, fate) in ids.iter().zip(&mut fates) {
            if referrers.need(ctx.txn, *id)? {
                *fate = Fate::Kept;
            }
        }
    }
    let deleted = delete(ctx, &mut stream, &ids, &mut fates, true)?;
    if let (References::Delete, Some(referrers)) = (references, &mut referrers) {
        // References to entries that are gone already go too.
        for id in &ids {
            referrers.forget(ctx.txn, *id)?;
        }
    }
    finish(ctx, args[1], stream, referrers, Vec::new(), &deleted)?;
    reply_fates(ctx, &fates);
    Ok(())
}

/// Writes and states the changes; `acknowledged` are those of a group besides what the referrers
/// have forgotten.
fn finish(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    stream: Stream<'_>,
    referrers: Option<Referrers>,
    mut acknowledged: Vec<(Box<[u8]>, Vec<StreamId>)>,
    deleted: &[StreamId],
) -> CmdResult {
    if let Some(referrers) = referrers {
        acknowledged.append(&mut referrers.save(ctx.txn)?);
    }
    stream.save(ctx.txn)?;
    if !deleted.is_empty() {
        ctx.event(Class::STREAM, "xdel", key);
    }
    log_deletions(ctx, key, deleted, &acknowledged);
    Ok(())
}

fn xackdel(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (key, name) = (args[1], args[2]);
    let stream = load(ctx, key)?;
    let (references, wanted) = selection(args, 3)?;
    let found = match stream {
        Some(stream) => stream.group(ctx.txn, name)?.map(|group| (stream, group)),
        None => None,
    };
    let Some((mut stream, mut group)) = found else {
        reply_fates(ctx, &vec![Fate::Missing; wanted.len()]);
        return Ok(());
    };
    let ids = ids(wanted)?;
    let (mut fates, mut acknowledged) = (Vec::with_capacity(ids.len()), Vec::new());
    for id in &ids {
        fates.push(match group.pending(ctx.txn, *id)? {
            Some(pending) => {
                group.remove(ctx.txn, *id, &pending)?;
                acknowledged.push(*id);
                Fate::Deleted
            }
            None => Fate::Missing,
        });
    }
    group.save(ctx.txn)?;
    let mut referrers = match references {
        References::Keep => None,
        _ => Some(Referrers::of(&stream, ctx.txn)?),
    };
    if let Some(referrers) = &mut referrers {
        let due = ids.iter().zip(&mut fates);
        for (id, fate) in due.filter(|(_, fate)| **fate == Fate::Deleted) {
            if references == References::Delete {
                referrers.forget(ctx.txn, *id)?;
            } else if referrers.need(ctx.txn, *id)? {
                *fate = Fate::Kept;
            }
        }
    }
    let deleted = delete(ctx, &mut stream, &ids, &mut fates, false)?;
    let acknowledged = vec![(name.into(), acknowledged)];
    finish(ctx, key, stream, referrers, acknowledged, &deleted)?;
    reply_fates(ctx, &fates);
    Ok(())
}

const DELETE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("xackdel", -6, xackdel)
        .syntax("key group [condition=(KEEPREF|DELREF|ACKED)] IDS ids=(numids:int id...)")
        .complexity("O(N), N: IDs, times the groups of the stream with DELREF and ACKED")
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(
            1,
            KeyFlags::RW.union(KeyFlags::UPDATE).union(KeyFlags::DELETE),
        )])
        .doc(
            Docs::Stream,
            "8.2.0",
            "Acknowledges entries and removes them from the stream",
        ),
    Command::write("xdel", -3, xdel)
        .syntax("key id...")
        .complexity("O(N), N: IDs")
        .flags(Flags::FAST)
        .keys(DELETE)
        .doc(Docs::Stream, "5.0.0", "Removes entries of a stream"),
    Command::write("xdelex", -5, xdelex)
        .syntax("key [condition=(KEEPREF|DELREF|ACKED)] IDS ids=(numids:int id...)")
        .complexity("O(N), N: IDs, times the groups of the stream with DELREF and ACKED")
        .flags(Flags::FAST)
        .keys(DELETE)
        .doc(
            Docs::Stream,
            "8.2.0",
            "Removes entries of a stream, depending on the groups that still need them",
        ),
];
