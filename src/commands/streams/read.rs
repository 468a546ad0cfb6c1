//! XREAD and XREADGROUP: new entries of streams, for any client or for consumers of a group.
//!
//! XREADGROUP states its effects on the group: the consumer that was created (XGROUP
//! CREATECONSUMER), the entries that are assigned to it (XCLAIM), and the group's position
//! (XGROUP SETID).

use crate::commands::args::Options;
use crate::commands::blocking;
use crate::commands::streams::args::{count, id, id_text, no_group, reply_entry, reply_id};
use crate::commands::table::keys::Find;
use crate::commands::table::spec::{Attempt, Group as Docs, Wait};
use crate::commands::{Command, Error, Flags, KeyFlags, KeySpec, WriteCtx};
use crate::encoding::ValueType;
use crate::state::request::Request;
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::types::stream::{Group, PendingRow, Stream, StreamId};
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
}

impl<'a> Asked<'a> {
    fn parse(args: &'a [&'a [u8]], of_group: bool) -> Result<Asked<'a>, Error> {
        let mut asked = Asked {
            block_ms: None,
            count: 0,
            keys: 0..0,
            group: None,
            noack: false,
        };
        let mut options = Options::new(args, 1);
        while !options.is_empty() {
            let more = options.left() - 1;
            if more > 0 && options.word("BLOCK") {
                // In a script the command does not block; it replies as after the timeout.
                asked.block_ms = Some(blocking::timeout_in_ms(options.value()?)?);
            } else if more > 0 && options.word("COUNT") {
                asked.count = count(&mut options)?;
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
        Ok(asked)
    }

    /// Maximum number of entries of each stream.
    fn limit(&self) -> u64 {
        match self.count {
            0 => u64::MAX,
            count => count,
        }
    }

    /// The keys with their ids.
    fn streams(&self, args: &'a [&'a [u8]]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let ids = self.keys.end..args.len();
        let keys = args[self.keys.clone()].iter().copied();
        keys.zip(args[ids].iter().copied())
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
    let start = ctx.reply.begin();
    let mut found = 0;
    for ((key, _), after) in asked.streams(args).zip(&after) {
        let Some(stream) = load(ctx, key)? else {
            continue;
        };
        let Some(from) = after.next().filter(|from| *from <= stream.body().last) else {
            continue;
        };
        let before = ctx.reply.len();
        begin_stream(ctx, key);
        match read_from(ctx, &stream, from, asked.limit())?.is_empty() {
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
    wait(ctx, &asked, Some(Request::new(&request)))
}

/// The result of an attempt that found nothing: the client blocks, or gets a null.
fn wait(
    ctx: &mut WriteCtx<'_>,
    asked: &Asked<'_>,
    request: Option<Request>,
) -> Result<Attempt, Error> {
    match asked.block_ms {
        Some(timeout_ms) if !ctx.session.deny_blocking => Ok(Attempt::Wait(Wait {
            keys: asked.keys.clone(),
            kind: ValueType::Stream,
            timeout_ms,
            minds_loss: asked.group.is_some(),
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
    limit: u64,
) -> Result<Vec<StreamId>, Error> {
    let mark = ctx.reply.begin();
    let mut ids = Vec::new();
    let range = (from, StreamId::MAX);
    stream.visit(ctx.txn, range, Direction::Forward, |id, fields| {
        reply_entry(ctx.reply, id, fields)?;
        ids.push(id);
        Ok(match (ids.len() as u64) < limit && !ctx.reply.overflowed {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    ctx.reply.end_array(mark, ids.len());
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
    let start = ctx.reply.begin();
    let mut found = 0;
    for ((key, _), after) in asked.streams(args).zip(after) {
        let before = ctx.reply.len();
        begin_stream(ctx, key);
        match read_as_consumer(ctx, key, names, after, &asked)? {
            false => ctx.reply.truncate(before),
            true => found += 1,
        }
    }
    if found > 0 {
        end_streams(ctx, start, found);
        return Ok(Attempt::Done);
    }
    wait(ctx, &asked, None)
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
    asked: &Asked<'_>,
) -> Result<bool, Error> {
    let stream = Stream::load(ctx.txn, ctx.db, key)?;
    let missing = || no_group(key, group_name, CONTEXT);
    let stream = stream.ok_or_else(missing)?;
    let group = stream.group(ctx.txn, group_name)?;
    let mut group = group.ok_or_else(missing)?;
    let consumer = consumer(ctx, key, &mut group, consumer_name)?;
    let at = Place {
        key,
        stream: &stream,
        consumer,
        consumer_name,
    };
    let is_in_reply = match after {
        Some(after) => {
            history(ctx, &at, &mut group, after, asked)?;
            true
        }
        None => new_entries(ctx, &at, &mut group, asked)?,
    };
    group.save(ctx.txn)?;
    Ok(is_in_reply)
}

/// The number of the consumer with this name, which is created if it does not exist.
pub fn consumer(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    group: &mut Group,
    name: &[u8],
) -> Result<u64, Error> {
    let (consumer, is_new) = group.consumer(ctx.txn, name)?;
    if is_new {
        let effect: [&[u8]; 5] = [b"XGROUP", b"CREATECONSUMER", key, group.name(), name];
        ctx.txn.effect(ctx.db, &effect);
        ctx.event(Class::STREAM, "xgroup-createconsumer", key);
    }
    Ok(consumer)
}

/// The stream and the consumer that reads it.
struct Place<'a> {
    key: &'a [u8],
    stream: &'a Stream<'a>,
    consumer: u64,
    consumer_name: &'a [u8],
}

/// Delivers entries that no consumer of the group has got yet (`>`).
fn new_entries(
    ctx: &mut WriteCtx<'_>,
    at: &Place<'_>,
    group: &mut Group,
    asked: &Asked<'_>,
) -> Result<bool, Error> {
    let last = group.row().last;
    let Some(from) = last.next().filter(|_| last < at.stream.body().last) else {
        return Ok(false);
    };
    let ids = read_from(ctx, at.stream, from, asked.limit())?;
    let delivered_ms = ctx.txn.now_ms().as_i64();
    let new = PendingRow {
        consumer: at.consumer,
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
        return Ok(false);
    }
    if !asked.noack {
        group.note_active(ctx.txn, at.consumer)?;
        log_claim(ctx, at.key, group, at.consumer_name, &ids, &new);
    }
    log_position(ctx, at.key, group);
    Ok(true)
}

/// Replies with the consumer's pending entries after an ID, and counts the delivery.
fn history(
    ctx: &mut WriteCtx<'_>,
    at: &Place<'_>,
    group: &mut Group,
    after: StreamId,
    asked: &Asked<'_>,
) -> Result<(), Error> {
    let mut ids = Vec::new();
    if let Some(from) = after.next() {
        let range = (from, StreamId::MAX);
        group.visit_owned(ctx.txn, at.consumer, range, |id| {
            ids.push(id);
            Ok(match (ids.len() as u64) < asked.limit() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
    }
    ctx.reply.array(ids.len());
    let delivered_ms = ctx.txn.now_ms().as_i64();
    for id in ids {
        let reply = &mut *ctx.reply;
        let exists = at
            .stream
            .entry(ctx.txn, id, |fields| reply_entry(reply, id, fields))?;
        if !exists {
            ctx.reply.array(2);
            reply_id(ctx.reply, id);
            ctx.reply.null_array();
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
        log_claim(ctx, at.key, group, at.consumer_name, &[id], &new);
    }
    Ok(())
}

/// States the effect XCLAIM: the owner of entries and their pending state.
pub(super) fn log_claim(
    ctx: &mut WriteCtx<'_>,
    key: &[u8],
    group: &Group,
    consumer: &[u8],
    ids: &[StreamId],
    pending: &PendingRow,
) {
    let texts: Vec<_> = ids.iter().map(|id| id_text(*id)).collect();
    let last = id_text(group.row().last);
    let delivered_ms = pending.delivered_ms.to_string();
    let deliveries = pending.deliveries.to_string();
    let mut effect: Vec<&[u8]> = vec![b"XCLAIM", key, group.name(), consumer, b"0"];
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

/// The table.
pub const COMMANDS: &[Command] = &[
    Command::blocking_read("xread", -4, xread)
        .syntax(
            "[COUNT count:int] [BLOCK milliseconds:int] \
             STREAMS streams=(key... id...)",
        )
        .complexity("O(N), N: entries answered")
        .flags(Flags::BLOCKING)
        .keys(&[streams(1)])
        .doc(
            Docs::Stream,
            "5.0.0",
            "Returns the entries of streams that come after given IDs, and may wait for some",
        ),
    Command::blocking("xreadgroup", -7, xreadgroup)
        .places(6)
        .syntax(
            "GROUP group-block=(group consumer) [COUNT count:int] [BLOCK milliseconds:int] \
             [NOACK] STREAMS streams=(key... id...)",
        )
        .complexity("O(N), N: entries answered")
        .flags(Flags::BLOCKING)
        .keys(&[streams(4)])
        .doc(
            Docs::Stream,
            "5.0.0",
            "Delivers new entries of streams to a consumer of a group, or returns its pending \
             ones",
        ),
];
