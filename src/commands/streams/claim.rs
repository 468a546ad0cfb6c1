//! XCLAIM and XAUTOCLAIM: change the owner of pending entries of a group.
//!
//! Both state their effects: the new owner and state of each claimed entry, the consumer that was
//! created if there is none, and the entries that were removed from the pending list because the stream
//! no longer has them.

use crate::commands::args::{self, Options};
use crate::commands::error::quoted;
use crate::commands::streams::args::{no_group, parse_id, range_start, reply_entry, reply_id};
use crate::commands::streams::groups::idle_ms;
use crate::commands::streams::read::{
    Consumer, consumer, load, log_claim, log_forgotten, log_position,
};
use crate::commands::table::spec::Group as Docs;
use crate::commands::table::tips::Tip;
use crate::commands::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, WriteCtx};
use crate::storage::Direction;
use crate::types::stream::{Group, PendingRow, Stream, StreamId};
use std::ops::ControlFlow;

/// The claiming consumer and the options.
struct Claim<'a> {
    key: &'a [u8],
    consumer: Consumer<'a>,
    min_idle_ms: i64,
    /// The new delivery time, Unix ms.
    delivered_ms: i64,
    deliveries: Option<u64>,
    just_ids: bool,
}

/// The result of claiming one entry.
#[derive(PartialEq, Eq)]
enum Claimed {
    /// The entry was assigned to the consumer and added to the reply.
    Yes,
    /// The entry is unchanged.
    No,
    /// The stream no longer has the entry, so it was removed from the pending list.
    Forgotten,
}

impl Claim<'_> {
    /// Claims an entry whose pending row is `old`; `force` also claims entries that are not
    /// pending.
    fn claim(
        &self,
        ctx: &mut WriteCtx<'_>,
        stream: &Stream<'_>,
        group: &mut Group,
        (id, old): (StreamId, Option<PendingRow>),
        force: bool,
    ) -> Result<Claimed, Error> {
        if !stream.has(ctx.txn, id)? {
            let Some(old) = old else {
                return Ok(Claimed::No);
            };
            group.remove(ctx.txn, id, &old)?;
            log_forgotten(ctx, self.key, group, id);
            return Ok(Claimed::Forgotten);
        }
        let deliveries = match &old {
            None if !force => return Ok(Claimed::No),
            None => 1,
            Some(old) => {
                if self.min_idle_ms > 0 && idle_ms(ctx.txn.now_ms(), old) < self.min_idle_ms {
                    return Ok(Claimed::No);
                }
                old.deliveries
            }
        };
        let deliveries = match self.deliveries {
            Some(given) => given,
            None if self.just_ids => deliveries,
            None => deliveries.saturating_add(1).min(i64::MAX as u64),
        };
        let new = PendingRow {
            consumer: self.consumer.number,
            delivered_ms: self.delivered_ms,
            deliveries,
        };
        group.assign(ctx.txn, id, old.as_ref(), &new)?;
        match self.just_ids {
            true => reply_id(ctx.reply, id),
            false => {
                let reply = &mut *ctx.reply;
                stream.entry(ctx.txn, id, |fields| reply_entry(reply, id, fields))?;
            }
        }
        log_claim(ctx, self.key, group, &self.consumer, &[id], &new);
        Ok(Claimed::Yes)
    }
}

/// The stream and the group.
fn open<'k>(
    ctx: &mut WriteCtx<'_>,
    args: &'k [&'k [u8]],
) -> Result<Option<(Stream<'k>, Group)>, Error> {
    let Some(stream) = load(ctx, args[1])? else {
        return Ok(None);
    };
    let group = stream.group(ctx.txn, args[2])?;
    Ok(group.map(|group| (stream, group)))
}

fn min_idle(arg: &[u8], refusal: Error) -> Result<i64, Error> {
    Ok(args::int_from(arg, i64::MIN, refusal)?.max(0))
}

/// The options of XCLAIM, which follow the ids.
#[derive(Default)]
struct ClaimOptions {
    force: bool,
    just_ids: bool,
    delivered_ms: Option<i64>,
    deliveries: Option<u64>,
    last: StreamId,
}

impl ClaimOptions {
    fn parse(args: &[&[u8]], at: usize, now_ms: i64) -> Result<ClaimOptions, Error> {
        let mut parsed = ClaimOptions::default();
        let mut options = Options::new(args, at);
        while let Some(arg) = options.peek() {
            let has_value = options.left() > 1;
            if options.word("FORCE") {
                parsed.force = true;
            } else if options.word("JUSTID") {
                parsed.just_ids = true;
            } else if has_value && options.word("IDLE") {
                let refusal = Error::text("ERR Invalid IDLE option argument for XCLAIM");
                let idle_ms = args::int_from(options.value()?, i64::MIN, refusal)?;
                parsed.delivered_ms = Some(now_ms.wrapping_sub(idle_ms));
            } else if has_value && options.word("TIME") {
                let refusal = Error::text("ERR Invalid TIME option argument for XCLAIM");
                parsed.delivered_ms = Some(args::int_from(options.value()?, i64::MIN, refusal)?);
            } else if has_value && options.word("RETRYCOUNT") {
                let refusal = Error::text("ERR Invalid RETRYCOUNT option argument for XCLAIM");
                let count = args::int_from(options.value()?, i64::MIN, refusal)?;
                parsed.deliveries = u64::try_from(count).ok();
            } else if has_value && options.word("LASTID") {
                parsed.last = crate::commands::streams::args::id(options.value()?)?;
            } else {
                let shown = quoted(arg, usize::MAX);
                let text: [&[u8]; 3] = [b"ERR Unrecognized XCLAIM option '", shown, b"'"];
                return Err(Error::Bytes(text.concat()));
            }
        }
        // A delivery time in the future or before 1970 is no error, since clocks of clients
        // differ; the current time is used.
        let in_past = |ms: &i64| (0..=now_ms).contains(ms);
        parsed.delivered_ms = Some(parsed.delivered_ms.filter(in_past).unwrap_or(now_ms));
        Ok(parsed)
    }
}

fn xclaim(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let opened = open(ctx, args)?;
    let (stream, mut group) = opened.ok_or_else(|| no_group(args[1], args[2], ""))?;
    let refusal = Error::text("ERR Invalid min-idle-time argument for XCLAIM");
    let min_idle_ms = min_idle(args[4], refusal)?;
    let ids: Vec<StreamId> = args[5..].iter().map_while(|arg| parse_id(arg, 0)).collect();
    let now_ms = ctx.txn.now_ms().as_i64();
    let options = ClaimOptions::parse(args, 5 + ids.len(), now_ms)?;
    ctx.txn.no_effect();
    let advanced = options.last > group.row().last;
    if advanced {
        let read = group.row().read;
        group.set_last(options.last, read);
    }
    let claim = Claim {
        key: args[1],
        consumer: consumer(ctx, args[1], &mut group, args[3])?,
        min_idle_ms,
        delivered_ms: options.delivered_ms.unwrap_or(now_ms),
        deliveries: options.deliveries,
        just_ids: options.just_ids,
    };
    let mark = ctx.reply.begin();
    let mut claimed = 0;
    for id in ids {
        let old = group.pending(ctx.txn, id)?;
        let done = claim.claim(ctx, &stream, &mut group, (id, old), options.force)?;
        claimed += usize::from(done == Claimed::Yes);
    }
    ctx.reply.end_array(mark, claimed);
    claim.consumer.log_creation(ctx, args[1], &group);
    if claimed > 0 {
        group.note_active(ctx.txn, claim.consumer.number)?;
    }
    if advanced {
        log_position(ctx, args[1], &group);
    }
    Ok(group.save(ctx.txn)?)
}

/// Maximum number of pending entries that XAUTOCLAIM visits per entry of COUNT.
const ATTEMPTS_PER_CLAIM: u64 = 10;

fn xautoclaim(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let refusal = Error::text("ERR Invalid min-idle-time argument for XAUTOCLAIM");
    let min_idle_ms = min_idle(args[4], refusal)?;
    let from = range_start(args[5])?;
    let (mut count, mut just_ids) = (100, false);
    let mut options = Options::new(args, 6);
    while !options.is_empty() {
        if options.left() > 1 && options.word("COUNT") {
            let given = args::int_from(options.value()?, 1, Error::COUNT_NOT_POSITIVE)?;
            if given > i64::MAX / 16 {
                return Err(Error::COUNT_NOT_POSITIVE);
            }
            count = given.unsigned_abs();
        } else if options.word("JUSTID") {
            just_ids = true;
        } else {
            return Err(Error::Syntax);
        }
    }
    let opened = open(ctx, args)?;
    let (stream, mut group) = opened.ok_or_else(|| no_group(args[1], args[2], ""))?;
    ctx.txn.no_effect();
    let claim = Claim {
        key: args[1],
        consumer: consumer(ctx, args[1], &mut group, args[3])?,
        min_idle_ms,
        delivered_ms: ctx.txn.now_ms().as_i64(),
        deliveries: None,
        just_ids,
    };
    ctx.reply.array(3);
    let start = ctx.reply.len();
    let mark = ctx.reply.begin();
    let (mut claimed, mut forgotten) = (0, Vec::new());
    let mut attempts = count.saturating_mul(ATTEMPTS_PER_CLAIM);
    // The pending list is read in parts, because the number of visited entries is bounded.
    let mut next = Some(from);
    while attempts > 0 && count > 0 {
        let Some(from) = next else { break };
        let part = pending_part(ctx, &group, from, attempts.min(count))?;
        let (rows, following) = part;
        next = following;
        for (id, old) in rows {
            if attempts == 0 || count == 0 {
                next = Some(id);
                break;
            }
            attempts -= 1;
            match claim.claim(ctx, &stream, &mut group, (id, Some(old)), false)? {
                Claimed::Yes => {
                    claimed += 1;
                    count -= 1;
                }
                Claimed::Forgotten => {
                    forgotten.push(id);
                    count -= 1;
                }
                Claimed::No => {}
            }
        }
    }
    ctx.reply.end_array(mark, claimed);
    let mut cursor = Vec::new();
    let mut text = crate::resp::Reply::new(ctx.reply.resp3);
    reply_id(&mut text, next.unwrap_or(StreamId::MIN));
    cursor.append(&mut text.buf);
    ctx.reply.insert(start, &cursor);
    ctx.reply.array(forgotten.len());
    for id in forgotten {
        reply_id(ctx.reply, id);
    }
    claim.consumer.log_creation(ctx, args[1], &group);
    if claimed > 0 {
        group.note_active(ctx.txn, claim.consumer.number)?;
    }
    Ok(group.save(ctx.txn)?)
}

/// Pending entries, and the ID of the next one.
type Part = (Vec<(StreamId, PendingRow)>, Option<StreamId>);

/// Up to `limit` pending entries, starting at an ID.
fn pending_part(
    ctx: &mut WriteCtx<'_>,
    group: &Group,
    from: StreamId,
    limit: u64,
) -> Result<Part, Error> {
    const MOST: u64 = 4096;
    let limit = limit.min(MOST) as usize;
    let (mut rows, mut next) = (Vec::new(), None);
    let range = (from, StreamId::MAX);
    group.visit_pending(ctx.txn, range, Direction::Forward, |id, row| {
        if rows.len() == limit {
            next = Some(id);
            return Ok(ControlFlow::Break(()));
        }
        rows.push((id, row));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((rows, next))
}

/// The key of a command that returns entries, which COMMAND INFO of Redis does not say: who may
/// not read the stream may not claim them.
const fn claimed(change: KeyFlags) -> KeySpec {
    KeySpec {
        flags_of: Some(|_| KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE)),
        ..KeySpec::at(1, KeyFlags::RW.union(change))
    }
}

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("xautoclaim", -6, xautoclaim)
        .places(3)
        .syntax("key group consumer min-idle-time start [COUNT count:int] [JUSTID]")
        .complexity("O(N), N: pending entries looked at, at most ten times COUNT")
        .history(&[("7.0.0", "The reply lists the deleted entries")])
        .flags(Flags::FAST)
        .keys(&[claimed(KeyFlags::DELETE)])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Docs::Stream,
            "6.2.0",
            "Moves entries that are pending for some time to another consumer",
        ),
    Command::write("xclaim", -6, xclaim)
        .places(3)
        .syntax(
            "key group consumer min-idle-time id... [IDLE ms:int] \
             [TIME unix-time-milliseconds:time] [RETRYCOUNT count:int] [FORCE] [JUSTID] \
             [LASTID lastid]",
        )
        .complexity("O(N), N: IDs")
        .flags(Flags::FAST)
        .keys(&[claimed(KeyFlags::UPDATE)])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Docs::Stream,
            "5.0.0",
            "Moves pending entries to another consumer",
        ),
];
