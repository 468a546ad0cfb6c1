//! XREAD and XREADGROUP: new entries of streams, for any client or for consumers of a group.
//!
//! XREADGROUP states its effects on the group: the entries that are assigned to the consumer
//! (XCLAIM, which creates it), the consumer that was created if no entry is (XGROUP
//! CREATECONSUMER), and the group's position (XGROUP SETID).

use crate::base::num;
use crate::base::time::UnixMs;
use crate::commands::args::Options;
use crate::commands::blocking;
use crate::commands::streams::args::{
    add_entry, count, id, id_text, no_group, reply_count, reply_entry, reply_id,
};
use crate::commands::table::keys::Find;
use crate::commands::table::spec::{Attempt, Group as Docs, Wait};
use crate::commands::{Command, Error, Flags, KeyFlags, KeySpec, WriteCtx};
use crate::encoding::{Corrupt, ValueType};
use crate::resp::Reply;
use crate::state::request::Request;
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::types::stream::{Fields, Group, PendingRow, Stream, StreamId};
use crate::types::{OpError, OpResult};
use std::cell::Cell;
use std::ops::{ControlFlow, Range};

const CONTEXT: &str = " in XREADGROUP with GROUP option";

/// The error for a blocked XREADGROUP with these arguments when `key` is deleted.
pub fn error_of_lost_group(args: &[&[u8]], key: &[u8]) -> Error {
    let word = args
        .iter()
        .position(|arg| crate::commands::args::is(arg, "GROUP"));
    let group = word.and_then(|word| args.get(word + 1));
    no_group(key, group.copied().unwrap_or_default(), CONTEXT)
}

/// The options of XREAD and XREADGROUP.
struct Asked<'a> {
    /// The value of BLOCK, in ms; 0: no timeout. `None`: do not block.
    block_ms: Option<u64>,
    /// Maximum number of entries of each stream; 0: all.
    count: u64,
    /// The indices of the keys among the arguments; as many IDs follow.
    keys: Range<usize>,
    /// For XREADGROUP: the names of group and consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    /// NOACK: delivered entries do not become pending.
    noack: bool,
    /// MAXCOUNT: maximum number of entries of all streams together.
    max_count: Option<u64>,
    /// MAXSIZE: bytes of the reply after which no further entry is added.
    max_bytes: Option<u64>,
    /// CLAIM: pending entries that are idle for this time, in ms, are delivered too.
    claim_ms: Option<i64>,
}

impl<'a> Asked<'a> {
    fn parse(args: &'a [&'a [u8]], of_group: bool) -> Result<Asked<'a>, Error> {
        let mut asked = Asked {
            block_ms: None,
            count: 0,
            keys: 0..0,
            group: None,
            noack: false,
            max_count: None,
            max_bytes: None,
            claim_ms: None,
        };
        let mut has_count = false;
        let mut options = Options::new(args, 1);
        while !options.is_empty() {
            let more = options.left() - 1;
            if more > 0 && options.word("BLOCK") {
                // In a script the command does not block; it replies as after the timeout.
                asked.block_ms = Some(blocking::timeout_in_ms(options.value()?)?);
            } else if more > 0 && options.word("COUNT") {
                asked.count = count(&mut options)?;
                has_count = true;
            } else if more > 0 && options.word("MAXCOUNT") {
                const REFUSAL: Error = Error::text("ERR MAXCOUNT must be a positive integer");
                let most = crate::commands::args::int_from(options.value()?, 1, REFUSAL)?;
                asked.max_count = Some(most.unsigned_abs());
            } else if more > 0 && options.word("MAXSIZE") {
                const REFUSAL: Error = Error::text("ERR MAXSIZE must be a positive integer");
                let most = crate::commands::args::int_from(options.value()?, 1, REFUSAL)?;
                asked.max_bytes = Some(most.unsigned_abs());
            } else if more > 0 && options.word("CLAIM") {
                if !of_group {
                    return Err(Error::text(
                        "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                let idle_ms = num::parse_i64(options.value()?)
                    .ok_or(Error::text("ERR min-idle-time is not an integer"))?;
                if idle_ms < 0 {
                    return Err(Error::text("ERR min-idle-time must be a positive integer"));
                }
                asked.claim_ms = Some(idle_ms);
            } else if more > 0 && options.word("STREAMS") {
                let first = args.len() - options.left();
                if !options.left().is_multiple_of(2) {
                    return Err(unbalanced(of_group));
                }
                asked.keys = first..first + options.left() / 2;
                break;
            } else if more > 1 && options.word("GROUP") {
                if !of_group {
                    return Err(Error::text(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                asked.group = Some((options.value()?, options.value()?));
            } else if options.word("NOACK") {
                if !of_group {
                    return Err(Error::text(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                asked.noack = true;
            } else {
                return Err(Error::Syntax);
            }
        }
        if asked.keys.is_empty() {
            return Err(Error::Syntax);
        }
        if of_group && asked.group.is_none() {
            return Err(Error::text("ERR Missing GROUP option for XREADGROUP"));
        }
        if has_count && asked.max_count.is_some_and(|most| most < asked.count) {
            return Err(Error::text(
                "ERR MAXCOUNT must be greater than or equal to COUNT",
            ));
        }
        Ok(asked)
    }

    /// Maximum number of entries of each stream.
    fn limit(&self) -> u64 {
        match self.count {
            0 => u64::MAX,
            count => count,
        }
    }

    /// What the whole reply may hold, which begins at byte `start` of the output.
    fn allowance(&self, start: usize) -> Allowance {
        Allowance {
            entries: self.max_count.unwrap_or(u64::MAX),
            start,
            bytes: self.max_bytes.map_or(usize::MAX, |most| {
                usize::try_from(most).unwrap_or(usize::MAX)
            }),
            is_empty: true,
        }
    }

    /// The keys with their ids.
    fn streams(&self, args: &'a [&'a [u8]]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let ids = self.keys.end..args.len();
        let keys = args[self.keys.clone()].iter().copied();
        keys.zip(args[ids].iter().copied())
    }
}

/// How much more a reply may hold, by MAXCOUNT and MAXSIZE. The first entry is delivered whatever
/// its size, so that a reader always gets on.
struct Allowance {
    entries: u64,
    /// Where the reply begins in the output.
    start: usize,
    /// The most bytes of the reply.
    bytes: usize,
    /// No entry has been added yet.
    is_empty: bool,
}

impl Allowance {
    fn is_used_up(&self) -> bool {
        self.entries == 0
    }

    /// Counts an entry that has been added to the reply at `before`. `false`: the reply has become
    /// too long, and the entry must be taken out again.
    fn add(&mut self, reply: &Reply) -> bool {
        let fits = reply.len().saturating_sub(self.start) <= self.bytes;
        if !fits && !self.is_empty {
            self.entries = 0;
            return false;
        }
        self.is_empty = false;
        self.entries = match fits {
            true => self.entries.saturating_sub(1),
            false => 0,
        };
        true
    }
}

fn unbalanced(of_group: bool) -> Error {
    Error::text(match of_group {
        false => {
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
        }
        true => {
            "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
        }
    })
}

/// Loads the stream of a key. The look-up counts as a keyspace hit or miss.
pub fn load<'k>(ctx: &mut WriteCtx<'_>, key: &'k [u8]) -> Result<Option<Stream<'k>>, Error> {
    let db = ctx.db;
    Ok(ctx.txn.counting(|txn| Stream::load(txn, db, key))?)
}

fn xread(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    let asked = Asked::parse(args, false)?;
    let mut after = Vec::new();
    for (key, id_arg) in asked.streams(args) {
        let stream = load(ctx, key)?;
        after.push(match (id_arg, stream) {
            (b">", _) => {
                return Err(Error::text(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
                ));
            }
            (b"$" | b"+", None) => StreamId::MIN,
            (b"+", Some(stream)) if stream.body().length > 0 => {
                stream.top(ctx.txn)?.previous().unwrap_or(StreamId::MIN)
            }
            (b"$" | b"+", Some(stream)) => stream.body().last,
            (given, _) => id(given)?,
        });
    }
    let mut allowance = asked.allowance(ctx.reply.len());
    let start = ctx.reply.begin();
    let mut found = 0;
    for ((key, _), after) in asked.streams(args).zip(&after) {
        if allowance.is_used_up() {
            break;
        }
        let Some(stream) = load(ctx, key)? else {
            continue;
        };
        let Some(from) = after.next().filter(|from| *from <= stream.body().last) else {
            continue;
        };
        let before = ctx.reply.len();
        begin_stream(ctx, key);
        let read = read_from(ctx, &stream, from, (asked.limit(), false), &mut allowance)?;
        match read.is_empty() {
            true => ctx.reply.truncate(before),
            false => found += 1,
        }
    }
    if found > 0 {
        end_streams(ctx, start, found);
        return Ok(Attempt::Done);
    }
    // The blocked request gets the resolved IDs, so that `$` keeps its meaning from now.
    let mut request: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_vec()).collect();
    for (arg, after) in request[asked.keys.end..].iter_mut().zip(&after) {
        *arg = id_text(*after).to_vec();
    }
    let request: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
    wait(ctx, &asked, Some(Request::new(&request)), None)
}

/// The result of an attempt that found nothing: the client blocks, or gets a null.
/// `first_idle_ms`: when the first entry can be claimed.
fn wait(
    ctx: &mut WriteCtx<'_>,
    asked: &Asked<'_>,
    request: Option<Request>,
    first_idle_ms: Option<UnixMs>,
) -> Result<Attempt, Error> {
    match asked.block_ms {
        Some(timeout_ms) if !ctx.session.deny_blocking => Ok(Attempt::Wait(Wait {
            keys: asked.keys.clone(),
            kind: ValueType::Stream,
            timeout_ms,
            minds_loss: asked.group.is_some(),
            // Before that, no entry becomes idle that is pending now or later.
            retry_ms: first_idle_ms,
            request,
        })),
        _ => {
            ctx.reply.null_array();
            Ok(Attempt::Done)
        }
    }
}

fn begin_stream(ctx: &mut WriteCtx<'_>, key: &[u8]) {
    if !ctx.reply.resp3 {
        ctx.reply.array(2);
    }
    ctx.reply.bulk(key);
}

fn end_streams(ctx: &mut WriteCtx<'_>, start: crate::resp::Mark, found: usize) {
    match ctx.reply.resp3 {
        true => ctx.reply.end_map(start, found),
        false => ctx.reply.end_array(start, found),
    }
}

/// Replies with the entries from an ID on, up to `limit`, and returns their IDs.
fn read_from(
    ctx: &mut WriteCtx<'_>,
    stream: &Stream<'_>,
    from: StreamId,
    limit: (u64, bool),
    allowance: &mut Allowance,
) -> Result<Vec<StreamId>, Error> {
    let mark = ctx.reply.begin();
    let ids = add_entries(ctx, stream, from, limit, allowance)?;
    ctx.reply.end_array(mark, ids.len());
    Ok(ids)
}

/// Adds entries from an ID on to the reply, up to `limit`, and returns their IDs. With
/// `with_claims` they look like claimed ones, which also tell how long they were idle and how
/// often they were delivered.
fn add_entries(
    ctx: &mut WriteCtx<'_>,
    stream: &Stream<'_>,
    from: StreamId,
    (limit, with_claims): (u64, bool),
    allowance: &mut Allowance,
) -> Result<Vec<StreamId>, Error> {
    let mut ids = Vec::new();
    if limit == 0 || allowance.is_used_up() {
        return Ok(ids);
    }
    let range = (from, StreamId::MAX);
    stream.visit(ctx.txn, range, Direction::Forward, |id, fields| {
        let before = ctx.reply.len();
        match with_claims {
            true => reply_claimed(ctx.reply, id, fields, (0, 0))?,
            false => reply_entry(ctx.reply, id, fields)?,
        }
        if !allowance.add(ctx.reply) {
            ctx.reply.truncate(before);
            return Ok(ControlFlow::Break(()));
        }
        ids.push(id);
        let more = (ids.len() as u64) < limit && !allowance.is_used_up();
        Ok(match more && !ctx.reply.overflowed {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    Ok(ids)
}

fn xreadgroup(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> Result<Attempt, Error> {
    let asked = Asked::parse(args, true)?;
    let Some(names) = asked.group else {
        return Err(Error::Syntax);
    };
    // All streams are checked before any of them is changed.
    let mut after = Vec::new();
    for (key, id_arg) in asked.streams(args) {
        let stream = load(ctx, key)?;
        let group = match stream {
            Some(stream) => stream.group(ctx.txn, names.0)?,
            None => None,
        };
        if group.is_none() {
            return Err(no_group(key, names.0, CONTEXT));
        }
        after.push(match id_arg {
            b"$" | b"+" => return Err(meaningless(id_arg)),
            b">" => None,
            given => Some(id(given)?),
        });
    }
    // The consumer's seen time is not replicated.
    ctx.txn.no_effect();
    let mut allowance = asked.allowance(ctx.reply.len());
    let start = ctx.reply.begin();
    let mut found = 0;
    for ((key, _), after) in asked.streams(args).zip(after) {
        if allowance.is_used_up() {
            break;
        }
        let before = ctx.reply.len();
        begin_stream(ctx, key);
        match read_as_consumer(ctx, key, names, after, (&asked, &mut allowance))? {
            false => ctx.reply.truncate(before),
            true => found += 1,
        }
    }
    if found > 0 {
        end_streams(ctx, start, found);
        return Ok(Attempt::Done);
    }
    let first_idle_ms = match asked.claim_ms {
        Some(min_idle_ms) => Some(first_idle_ms(ctx, &asked, names.0, args, min_idle_ms)?),
        None => None,
    };
    wait(ctx, &asked, None, first_idle_ms)
}

/// When the first entry of the streams will have been idle for `min_idle_ms`. Entries that are
/// delivered from now on are idle later.
fn first_idle_ms(
    ctx: &mut WriteCtx<'_>,
    asked: &Asked<'_>,
    group: &[u8],
    args: &[&[u8]],
    min_idle_ms: i64,
) -> Result<UnixMs, Error> {
    let mut since_ms = ctx.txn.now_ms().as_i64();
    for (key, _) in asked.streams(args) {
        if let Some(stream) = Stream::load(ctx.txn, ctx.db, key)?
            && let Some(group) = stream.group(ctx.txn, group)?
            && let Some(delivered_ms) = group.first_delivery_ms(ctx.txn)?
        {
            since_ms = since_ms.min(delivered_ms);
        }
    }
    Ok(UnixMs(
        since_ms.saturating_add(min_idle_ms).max(0).unsigned_abs(),
    ))
}

fn meaningless(id: &[u8]) -> Error {
    let id = String::from_utf8_lossy(id);
    Error::owned(format!(
        "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history \
         of this consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID \
         would just return an empty result set."
    ))
}

/// Replies with the entries of one stream for a consumer; returns whether the stream belongs
/// into the reply.
fn read_as_consumer(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    (group_name, consumer_name): (&[u8], &[u8]),
    after: Option<StreamId>,
    (asked, allowance): (&Asked<'_>, &mut Allowance),
) -> Result<bool, Error> {
    let stream = Stream::load(ctx.txn, ctx.db, key)?;
    let missing = || no_group(key, group_name, CONTEXT);
    let stream = stream.ok_or_else(missing)?;
    let group = stream.group(ctx.txn, group_name)?;
    let mut group = group.ok_or_else(missing)?;
    let at = Place {
        key,
        stream: &stream,
        consumer: consumer(ctx, key, &mut group, consumer_name)?,
    };
    let is_in_reply = match after {
        Some(after) => {
            history(ctx, &at, &mut group, after, (asked, allowance))?;
            true
        }
        None => {
            let mark = ctx.reply.begin();
            let claimed = claim_idle(ctx, &at, &mut group, (asked, allowance))?;
            let limit = asked.limit().saturating_sub(claimed as u64);
            let new = new_entries(ctx, &at, &mut group, (asked, limit), allowance)?;
            ctx.reply.end_array(mark, claimed + new);
            claimed + new > 0
        }
    };
    at.consumer.log_creation(ctx, key, &group);
    group.save(ctx.txn)?;
    Ok(is_in_reply)
}

/// The consumer for which a command reads or claims.
pub(super) struct Consumer<'a> {
    pub(super) number: u64,
    name: &'a [u8],
    /// It was created, and no effect says so yet.
    is_unlogged: Cell<bool>,
}

/// The consumer with this name, which is created if it does not exist. The caller calls
/// [`Consumer::log_creation`] after all claims.
pub(super) fn consumer<'a>(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    group: &mut Group,
    name: &'a [u8],
) -> Result<Consumer<'a>, Error> {
    let (number, is_new) = group.consumer(ctx.txn, name)?;
    if is_new {
        ctx.event(Class::STREAM, "xgroup-createconsumer", key);
    }
    Ok(Consumer {
        number,
        name,
        is_unlogged: Cell::new(is_new),
    })
}

impl Consumer<'_> {
    /// States the effect XGROUP CREATECONSUMER, unless an XCLAIM has the same effect: names may be
    /// long.
    pub(super) fn log_creation(&self, ctx: &mut WriteCtx<'_>, key: &[u8], group: &Group) {
        if self.is_unlogged.take() {
            let name = self.name;
            let effect: [&[u8]; 5] = [b"XGROUP", b"CREATECONSUMER", key, group.name(), name];
            ctx.txn.effect(ctx.db, &effect);
        }
    }
}

/// The stream and the consumer that reads it.
struct Place<'a> {
    key: &'a [u8],
    stream: &'a Stream<'a>,
    consumer: Consumer<'a>,
}

/// Delivers pending entries of any consumer that are idle for long enough, if CLAIM asks for that;
/// adds them to the reply and returns their number.
fn claim_idle(
    ctx: &mut WriteCtx<'_>,
    at: &Place<'_>,
    group: &mut Group,
    (asked, allowance): (&Asked<'_>, &mut Allowance),
) -> Result<usize, Error> {
    let Some(min_idle_ms) = asked.claim_ms else {
        return Ok(0);
    };
    let now_ms = ctx.txn.now_ms().as_i64();
    let until_ms = now_ms.saturating_sub(min_idle_ms);
    let mut claimed = 0;
    // Entries that the stream no longer has are removed; if all are, the next ones are looked at.
    while claimed == 0 && !allowance.is_used_up() {
        let most = asked.limit().min(allowance.entries);
        let ids = group.idle(ctx.txn, until_ms, most)?;
        if ids.is_empty() {
            break;
        }
        for id in ids {
            if allowance.is_used_up() || ctx.reply.overflowed {
                break;
            }
            let old = group.pending(ctx.txn, id)?;
            let old = old
                .ok_or(Corrupt("stream pending"))
                .map_err(OpError::from)?;
            let idle = (now_ms.saturating_sub(old.shown_ms()), old.deliveries);
            let (before, reply) = (ctx.reply.len(), &mut *ctx.reply);
            let exists = at
                .stream
                .entry(ctx.txn, id, |fields| reply_claimed(reply, id, fields, idle))?;
            if !exists {
                group.remove(ctx.txn, id, &old)?;
                log_forgotten(ctx, at.key, group, id);
                continue;
            }
            if !allowance.add(ctx.reply) {
                ctx.reply.truncate(before);
                break;
            }
            let new = PendingRow {
                consumer: at.consumer.number,
                delivered_ms: now_ms,
                deliveries: old.deliveries.saturating_add(1).min(i64::MAX as u64),
            };
            group.assign(ctx.txn, id, Some(&old), &new)?;
            log_claim(ctx, at.key, group, &at.consumer, &[id], &new);
            claimed += 1;
        }
    }
    if claimed > 0 {
        group.note_active(ctx.txn, at.consumer.number)?;
    }
    Ok(claimed)
}

/// Replies an entry with the time in ms for which it was idle, and how often it was delivered.
fn reply_claimed(
    reply: &mut Reply,
    id: StreamId,
    fields: Fields<'_>,
    (idle_ms, deliveries): (i64, u64),
) -> OpResult<()> {
    reply.array(4);
    add_entry(reply, id, fields)?;
    reply.int(idle_ms.max(0));
    reply_count(reply, deliveries);
    Ok(())
}

/// States the effect XACK for a pending entry that the stream no longer has.
pub(super) fn log_forgotten(ctx: &mut WriteCtx<'_>, key: &[u8], group: &Group, id: StreamId) {
    let text = id_text(id);
    let effect: [&[u8]; 4] = [b"XACK", key, group.name(), &text];
    ctx.txn.effect(ctx.db, &effect);
}

/// Delivers entries that no consumer of the group has got yet (`>`); adds them to the reply and
/// returns their number.
fn new_entries(
    ctx: &mut WriteCtx<'_>,
    at: &Place<'_>,
    group: &mut Group,
    (asked, limit): (&Asked<'_>, u64),
    allowance: &mut Allowance,
) -> Result<usize, Error> {
    let last = group.row().last;
    let Some(from) = last.next().filter(|_| last < at.stream.body().last) else {
        return Ok(0);
    };
    let limit = (limit, asked.claim_ms.is_some());
    let ids = add_entries(ctx, at.stream, from, limit, allowance)?;
    let delivered_ms = ctx.txn.now_ms().as_i64();
    let new = PendingRow {
        consumer: at.consumer.number,
        delivered_ms,
        deliveries: 1,
    };
    for &id in &ids {
        at.stream.advance(group, id);
        if !asked.noack {
            let old = group.pending(ctx.txn, id)?;
            group.assign(ctx.txn, id, old.as_ref(), &new)?;
        }
    }
    if ids.is_empty() {
        return Ok(0);
    }
    if !asked.noack {
        group.note_active(ctx.txn, at.consumer.number)?;
        log_claim(ctx, at.key, group, &at.consumer, &ids, &new);
    }
    log_position(ctx, at.key, group);
    Ok(ids.len())
}

/// Replies with the consumer's pending entries after an ID, and counts the delivery.
fn history(
    ctx: &mut WriteCtx<'_>,
    at: &Place<'_>,
    group: &mut Group,
    after: StreamId,
    (asked, allowance): (&Asked<'_>, &mut Allowance),
) -> Result<(), Error> {
    let mut ids = Vec::new();
    let most = asked.limit().min(allowance.entries);
    if let Some(from) = after.next() {
        let range = (from, StreamId::MAX);
        group.visit_owned(ctx.txn, at.consumer.number, range, |id| {
            ids.push(id);
            Ok(match (ids.len() as u64) < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
    }
    let mark = ctx.reply.begin();
    let mut replied = 0;
    let delivered_ms = ctx.txn.now_ms().as_i64();
    for id in ids {
        if allowance.is_used_up() {
            break;
        }
        let (before, reply) = (ctx.reply.len(), &mut *ctx.reply);
        let exists = at
            .stream
            .entry(ctx.txn, id, |fields| reply_entry(reply, id, fields))?;
        if !exists {
            ctx.reply.array(2);
            reply_id(ctx.reply, id);
            ctx.reply.null_array();
        }
        if !allowance.add(ctx.reply) {
            ctx.reply.truncate(before);
            break;
        }
        replied += 1;
        if !exists {
            continue;
        }
        let Some(old) = group.pending(ctx.txn, id)? else {
            continue;
        };
        let new = PendingRow {
            delivered_ms,
            deliveries: old.deliveries.saturating_add(1),
            ..old
        };
        group.assign(ctx.txn, id, Some(&old), &new)?;
        log_claim(ctx, at.key, group, &at.consumer, &[id], &new);
    }
    ctx.reply.end_array(mark, replied);
    Ok(())
}

/// States the effect XCLAIM: the owner of entries and their pending state.
pub(super) fn log_claim(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    group: &Group,
    consumer: &Consumer<'_>,
    ids: &[StreamId],
    pending: &PendingRow,
) {
    consumer.is_unlogged.set(false);
    let texts: Vec<_> = ids.iter().map(|id| id_text(*id)).collect();
    let last = id_text(group.row().last);
    let delivered_ms = pending.delivered_ms.to_string();
    let deliveries = pending.deliveries.to_string();
    let mut effect: Vec<&[u8]> = vec![b"XCLAIM", key, group.name(), consumer.name, b"0"];
    effect.extend(texts.iter().map(|text| text.as_slice()));
    effect.extend_from_slice(&[b"TIME", delivered_ms.as_bytes()]);
    effect.extend_from_slice(&[b"RETRYCOUNT", deliveries.as_bytes()]);
    effect.extend_from_slice(&[b"FORCE", b"JUSTID", b"LASTID", &last]);
    ctx.txn.effect(ctx.db, &effect);
}

/// States the effect XGROUP SETID: the position of a group.
pub(super) fn log_position(ctx: &mut WriteCtx<'_>, key: &[u8], group: &Group) {
    let last = id_text(group.row().last);
    let read = group.row().read.to_string();
    let effect: [&[u8]; 7] = [
        b"XGROUP",
        b"SETID",
        key,
        group.name(),
        &last,
        b"ENTRIESREAD",
        read.as_bytes(),
    ];
    ctx.txn.effect(ctx.db, &effect);
}

const fn streams(from: isize) -> KeySpec {
    KeySpec {
        find: Find::Range {
            last: -1,
            step: 1,
            limit: 2,
        },
        ..KeySpec::after("STREAMS", from, KeyFlags::RO.union(KeyFlags::ACCESS))
    }
}

/// Of a group or a consumer with the name `STREAMS` the keys are no others.
const STREAMS_OF_GROUP: KeySpec = KeySpec {
    begin_of: Some(|args| Some(Asked::parse(args, true).ok()?.keys.start)),
    ..streams(4)
};

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::blocking_read("xread", -4, xread)
        .syntax(
            "[COUNT count:int] [MAXCOUNT maxcount:int@8.10.0] [MAXSIZE maxsize:int@8.10.0] \
             [BLOCK milliseconds:int] STREAMS streams=(key... id...)",
        )
        .history(&[("8.10.0", "Added `MAXCOUNT` and `MAXSIZE`")])
        .complexity("O(N), N: entries answered")
        .flags(Flags::BLOCKING)
        .keys(&[streams(1)])
        .doc(
            Docs::Stream,
            "5.0.0",
            "Returns the entries of streams that come after given IDs, and may wait for some",
        ),
    Command::blocking("xreadgroup", -7, xreadgroup)
        .places(3)
        .syntax(
            "GROUP group-block=(group consumer) [COUNT count:int] \
             [MAXCOUNT maxcount:int@8.10.0] [MAXSIZE maxsize:int@8.10.0] \
             [BLOCK milliseconds:int] [CLAIM min-idle-time:int@8.4.0] [NOACK] \
             STREAMS streams=(key... id...)",
        )
        .history(&[
            ("8.4.0", "Added `CLAIM`"),
            ("8.10.0", "Added `MAXCOUNT` and `MAXSIZE`"),
        ])
        .complexity("O(N), N: entries answered")
        .flags(Flags::BLOCKING)
        .keys(&[STREAMS_OF_GROUP])
        .doc(
            Docs::Stream,
            "5.0.0",
            "Delivers new entries of streams to a consumer of a group, or returns its pending \
             ones",
        ),
];
