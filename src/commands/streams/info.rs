//! XINFO: state of streams, their groups and their consumers.

use crate::commands::args::Options;
use crate::commands::streams::args::{no_group_of, reply_count, reply_entry, reply_id};
use crate::commands::streams::groups::Names;
use crate::commands::table::help::{self, Topic};
use crate::commands::table::spec::Group as Docs;
use crate::commands::table::tips::Tip;
use crate::commands::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, SessionCtx};
use crate::encoding::stream::UNKNOWN;
use crate::storage::Direction;
use crate::types::OpError;
use crate::types::stream::{Group, PendingRow, Stream, StreamId, all};
use std::ops::ControlFlow;

/// Default COUNT of XINFO STREAM FULL.
const FULL_COUNT: u64 = 10;

fn load<'k>(ctx: &mut ReadCtx<'_>, key: &'k [u8]) -> Result<Stream<'k>, Error> {
    let stream = Stream::load(ctx.view, ctx.db, key)?;
    Ok(stream.ok_or(OpError::NoSuchKey)?)
}

fn number(ctx: &mut ReadCtx<'_>, name: &str, value: u64) {
    ctx.reply.bulk(name.as_bytes());
    reply_count(ctx.reply, value);
}

fn known_or_null(ctx: &mut ReadCtx<'_>, name: &str, value: Option<u64>) {
    ctx.reply.bulk(name.as_bytes());
    match value {
        Some(value) => reply_count(ctx.reply, value),
        None => ctx.reply.null(),
    }
}

fn position(ctx: &mut ReadCtx<'_>, name: &str, id: StreamId) {
    ctx.reply.bulk(name.as_bytes());
    reply_id(ctx.reply, id);
}

fn stream(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let stream = load(ctx, args[2])?;
    let mut options = Options::new(args, 3);
    let full = match options.left() {
        0 => None,
        1 | 3 if options.word("FULL") => Some(match options.word("COUNT") {
            true => u64::try_from(options.int()?).unwrap_or(FULL_COUNT),
            false if options.is_empty() => FULL_COUNT,
            false => return Err(help::mistaken(args)),
        }),
        _ => return Err(help::mistaken(args)),
    };
    let body = *stream.body();
    ctx.reply.map(if full.is_some() { 15 } else { 16 });
    number(ctx, "length", body.length);
    // The size of Redis' radix tree if all nodes were full.
    let node = ctx.server.config.load().stream_node_max_entries.max(1);
    let nodes = body.length.div_ceil(node);
    number(ctx, "radix-tree-keys", nodes);
    number(ctx, "radix-tree-nodes", nodes.saturating_add(1));
    position(ctx, "last-generated-id", body.last);
    position(ctx, "max-deleted-entry-id", body.deleted);
    number(ctx, "entries-added", body.added);
    position(ctx, "recorded-first-entry-id", body.first);
    let idempotence = body.idempotence;
    number(ctx, "idmp-duration", idempotence.duration_s);
    number(ctx, "idmp-maxsize", idempotence.most);
    number(ctx, "pids-tracked", idempotence.producers);
    number(ctx, "iids-tracked", idempotence.tracked);
    number(ctx, "iids-added", idempotence.added);
    number(ctx, "iids-duplicates", idempotence.duplicates);
    if let Some(count) = full {
        return stream_full(ctx, &stream, count);
    }
    number(ctx, "groups", body.groups);
    for (name, order) in [
        ("first-entry", Direction::Forward),
        ("last-entry", Direction::Backward),
    ] {
        ctx.reply.bulk(name.as_bytes());
        if entries(ctx, &stream, order, 1)? == 0 {
            ctx.reply.null();
        }
    }
    Ok(())
}

/// Replies with up to `limit` entries (0: all) and returns their number.
fn entries(
    ctx: &mut ReadCtx<'_>,
    stream: &Stream<'_>,
    order: Direction,
    limit: u64,
) -> Result<u64, Error> {
    let mut found = 0;
    stream.visit(ctx.view, all(), order, |id, fields| {
        reply_entry(ctx.reply, id, fields)?;
        found += 1;
        Ok(match found != limit && !ctx.reply.overflowed {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    Ok(found)
}

fn stream_full(ctx: &mut ReadCtx<'_>, stream: &Stream<'_>, count: u64) -> CmdResult {
    ctx.reply.bulk(b"entries");
    let mark = ctx.reply.begin();
    let found = entries(ctx, stream, Direction::Forward, count)?;
    ctx.reply.end_array(mark, found as usize);
    ctx.reply.bulk(b"groups");
    let groups = stream.groups(ctx.view)?;
    ctx.reply.array(groups.len());
    for mut group in groups {
        let row = *group.row();
        ctx.reply.map(8);
        ctx.reply.bulk(b"name");
        ctx.reply.bulk(group.name());
        progress(ctx, stream, &group);
        number(ctx, "pel-count", row.pending);
        number(ctx, "nacked-count", row.released);
        pending_of_group(ctx, &mut group, count)?;
        ctx.reply.bulk(b"consumers");
        let consumers = group.all_consumers(ctx.view)?;
        ctx.reply.array(consumers.len());
        for (consumer, row) in consumers {
            ctx.reply.map(5);
            ctx.reply.bulk(b"name");
            ctx.reply.bulk(&row.name);
            ctx.reply.bulk(b"seen-time");
            ctx.reply.int(row.seen_ms);
            ctx.reply.bulk(b"active-time");
            ctx.reply.int(row.active_ms);
            number(ctx, "pel-count", row.pending);
            pending_of_consumer(ctx, &group, consumer, count)?;
        }
    }
    Ok(())
}

/// The fields for a group's position and lag.
fn progress(ctx: &mut ReadCtx<'_>, stream: &Stream<'_>, group: &Group) {
    let row = group.row();
    position(ctx, "last-delivered-id", row.last);
    known_or_null(ctx, "entries-read", u64::try_from(row.read).ok());
    known_or_null(ctx, "lag", stream.lag(row));
}

fn pending_of_group(ctx: &mut ReadCtx<'_>, group: &mut Group, count: u64) -> CmdResult {
    let mut found: Vec<(StreamId, PendingRow)> = Vec::new();
    group.visit_pending(ctx.view, all(), Direction::Forward, |id, pending| {
        found.push((id, pending));
        Ok(match found.len() as u64 != count {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    ctx.reply.bulk(b"pending");
    ctx.reply.array(found.len());
    let mut names = Names::default();
    for (id, pending) in found {
        ctx.reply.array(4);
        reply_id(ctx.reply, id);
        let name = names.of(ctx, group, pending.consumer)?;
        ctx.reply.bulk(name);
        ctx.reply.int(pending.shown_ms());
        reply_count(ctx.reply, pending.deliveries);
    }
    Ok(())
}

fn pending_of_consumer(
    ctx: &mut ReadCtx<'_>,
    group: &Group,
    consumer: u64,
    count: u64,
) -> CmdResult {
    let mut found = Vec::new();
    group.visit_owned(ctx.view, consumer, all(), |id| {
        found.push(id);
        Ok(match found.len() as u64 != count {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    ctx.reply.bulk(b"pending");
    let mark = ctx.reply.begin();
    let mut replied = 0;
    for id in found {
        if let Some(pending) = group.pending(ctx.view, id)? {
            ctx.reply.array(3);
            reply_id(ctx.reply, id);
            ctx.reply.int(pending.delivered_ms);
            reply_count(ctx.reply, pending.deliveries);
            replied += 1;
        }
    }
    ctx.reply.end_array(mark, replied);
    Ok(())
}

fn groups(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let stream = load(ctx, args[2])?;
    let groups = stream.groups(ctx.view)?;
    ctx.reply.array(groups.len());
    for group in groups {
        let row = *group.row();
        ctx.reply.map(6);
        ctx.reply.bulk(b"name");
        ctx.reply.bulk(group.name());
        number(ctx, "consumers", row.consumers);
        number(ctx, "pending", row.pending);
        progress(ctx, &stream, &group);
    }
    Ok(())
}

fn consumers(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let stream = load(ctx, args[2])?;
    let group = stream.group(ctx.view, args[3])?;
    let group = group.ok_or_else(|| no_group_of(args[2], args[3]))?;
    let now_ms = ctx.view.now_ms().as_i64();
    let consumers = group.all_consumers(ctx.view)?;
    ctx.reply.array(consumers.len());
    for (_, row) in consumers {
        ctx.reply.map(4);
        ctx.reply.bulk(b"name");
        ctx.reply.bulk(&row.name);
        number(ctx, "pending", row.pending);
        ctx.reply.bulk(b"idle");
        ctx.reply.int(now_ms.saturating_sub(row.seen_ms).max(0));
        ctx.reply.bulk(b"inactive");
        ctx.reply.int(match row.active_ms {
            UNKNOWN => UNKNOWN,
            active_ms => now_ms.saturating_sub(active_ms).max(0),
        });
    }
    Ok(())
}

const TOPICS: &[Topic] = &[
    (
        "CONSUMERS <key> <groupname>",
        &["Show consumers of <groupname>."],
    ),
    ("GROUPS <key>", &["Show the stream consumer groups."]),
    (
        "STREAM <key> [FULL [COUNT <count>]",
        &["Show information about the stream."],
    ),
];

fn xinfo_help(ctx: &mut SessionCtx<'_>, _: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "XINFO", TOPICS);
    Ok(())
}

const READ: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RO.union(KeyFlags::ACCESS))];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[Command::container(
    "xinfo",
    -2,
    &[
        Command::read("consumers", 4, consumers)
            .syntax("key group")
            .complexity("O(N), N: consumers")
            .history(&[("7.2.0", "Added `inactive`; `idle` has another meaning")])
            .keys(READ)
            .tips(&[Tip::NondeterministicOutput])
            .doc(Docs::Stream, "5.0.0", "Returns the consumers of a group"),
        Command::read("groups", 3, groups)
            .syntax("key")
            .complexity("O(N), N: groups")
            .history(&[("7.0.0", "Added `entries-read` and `lag`")])
            .keys(READ)
            .doc(Docs::Stream, "5.0.0", "Returns the groups of a stream"),
        Command::session("help", 2, xinfo_help)
            .flags(Flags::LOADING.union(Flags::STALE))
            .doc(Docs::Stream, "5.0.0", "Lists the subcommands of XINFO"),
        Command::read("stream", -3, stream)
            .syntax("key [full-block=(FULL [COUNT count:int])]")
            .complexity("O(1); with FULL O(N), N: entries, groups and consumers answered")
            .history(&[
                ("6.0.0", "Added `FULL`"),
                (
                    "7.0.0",
                    "Added `max-deleted-entry-id`, `entries-added`, \
                     `recorded-first-entry-id`, `entries-read` and `lag`",
                ),
                ("8.6.0", "Added the fields of idempotent XADD"),
                ("8.8.0", "Added `nacked-count`"),
                (
                    "7.2.0",
                    "Added `active-time`; `seen-time` has another meaning",
                ),
            ])
            .keys(READ)
            .doc(
                Docs::Stream,
                "5.0.0",
                "Returns the state of a stream; with FULL its entries, groups and consumers too",
            ),
    ],
)
.doc(
    Docs::Stream,
    "5.0.0",
    "Streams, their groups and their consumers",
)];
