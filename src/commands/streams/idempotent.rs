//! XCFGSET and XIDMPRECORD: the settings of idempotent XADD, and what a replica is told of it.

use crate::commands::args::Options;
use crate::commands::streams::args::{Idempotent, id, id_text};
use crate::commands::table::spec::Group as Docs;
use crate::commands::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, WriteCtx};
use crate::encoding::stream::Idempotence;
use crate::types::OpError;
use crate::types::definition::sha1;
use crate::types::stream::{DURATION_MOST_S, IDS_MOST, Stream, StreamId};
use std::borrow::Cow;

/// The idempotent id of an entry with these fields and values, packed.
pub(super) fn iid_of<'a>(asked: &Idempotent<'a>, packed: &[u8]) -> Cow<'a, [u8]> {
    match asked.iid {
        Some(iid) => Cow::Borrowed(iid),
        None => Cow::Owned(sha1(&[packed]).to_vec()),
    }
}

/// States that an entry was added with this id, apart from its addition: servers that do not know
/// the command still get the entry.
pub(super) fn log_record(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    producer: &[u8],
    iid: &[u8],
    entry: StreamId,
) {
    let entry = id_text(entry);
    let effect: [&[u8]; 5] = [b"XIDMPRECORD", key, producer, iid, &entry];
    ctx.txn.effect(ctx.db, &effect);
}

/// What a new stream remembers is set as the configuration says. A replica is told by
/// [`log_settings`], so an effect never depends on the configuration.
pub(super) fn configure(ctx: &mut WriteCtx<'_>, stream: &mut Stream<'_>) -> CmdResult {
    if stream.is_new() && !ctx.txn.replays_rows() {
        let config = ctx.server.config.load();
        let (duration_s, most) = (config.stream_idmp_duration_s, config.stream_idmp_maxsize);
        stream.set_idempotence(ctx.txn, duration_s, most)?;
    }
    Ok(())
}

/// States the settings of a stream that was created, if they are not the usual ones.
pub(super) fn log_settings(ctx: &mut WriteCtx<'_>, key: &[u8], settings: Idempotence) {
    let usual = Idempotence::default();
    if (settings.duration_s, settings.most) == (usual.duration_s, usual.most) {
        return;
    }
    let (duration, most) = (settings.duration_s.to_string(), settings.most.to_string());
    let words = ["IDMP-DURATION", &duration, "IDMP-MAXSIZE", &most].map(str::as_bytes);
    let effect = [&[b"XCFGSET".as_slice(), key], words.as_slice()].concat();
    ctx.txn.effect(ctx.db, &effect);
}

fn xidmprecord(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let stream = Stream::load(ctx.txn, ctx.db, args[1])?;
    let mut stream = stream.ok_or(OpError::NoSuchKey)?;
    let entry = id(args[4])?;
    if args[2].is_empty() || args[3].is_empty() {
        return Err(Error::text(
            "ERR XIDMPRECORD requires a non-empty producer ID and idempotent ID",
        ));
    }
    stream.remember(ctx.txn, args[2], args[3], entry)?;
    stream.save(ctx.txn)?;
    ctx.reply.ok();
    Ok(())
}

/// A value of XCFGSET.
fn setting(options: &mut Options<'_>, most: u64, refusal: Error) -> Result<u64, Error> {
    let value = u64::try_from(options.int()?).unwrap_or(0);
    match (1..=most).contains(&value) {
        true => Ok(value),
        false => Err(refusal),
    }
}

fn xcfgset(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (mut duration_s, mut most) = (None, None);
    let mut options = Options::new(args, 2);
    while !options.is_empty() {
        let has_value = options.left() > 1;
        if has_value && options.word("IDMP-DURATION") {
            let refusal = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
            duration_s = Some(setting(
                &mut options,
                DURATION_MOST_S,
                Error::text(refusal),
            )?);
        } else if has_value && options.word("IDMP-MAXSIZE") {
            let refusal = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
            most = Some(setting(&mut options, IDS_MOST, Error::text(refusal))?);
        } else {
            return Err(Error::Syntax);
        }
    }
    if duration_s.or(most).is_none() {
        return Err(Error::text("ERR At least one parameter must be specified"));
    }
    let stream = Stream::load(ctx.txn, ctx.db, args[1])?;
    let mut stream = stream.ok_or(OpError::NoSuchKey)?;
    let known = stream.body().idempotence;
    let duration_s = duration_s.unwrap_or(known.duration_s);
    stream.set_idempotence(ctx.txn, duration_s, most.unwrap_or(known.most))?;
    stream.save(ctx.txn)?;
    ctx.reply.ok();
    Ok(())
}

const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("xcfgset", -2, xcfgset)
        .syntax(
            "key [IDMP-DURATION duration:int{idmp-duration}] \
             [IDMP-MAXSIZE maxsize:int{idmp-maxsize}]",
        )
        .complexity("O(N), N: idempotent IDs that are forgotten")
        .flags(Flags::FAST)
        .keys(UPDATE)
        .doc(
            Docs::Stream,
            "8.6.0",
            "Sets how long a stream remembers idempotent IDs, and how many of a producer",
        ),
    Command::write("xidmprecord", 5, xidmprecord)
        .syntax("key pid iid stream-id")
        .flags(Flags::DENYOOM.union(Flags::FAST))
        .keys(UPDATE)
        .doc(
            Docs::Stream,
            "8.6.2",
            "Notes that an entry was added with an idempotent ID (internal)",
        ),
];
