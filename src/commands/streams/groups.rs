//! Consumer groups: XGROUP, XACK and XPENDING.

use crate::base::time::UnixMs;
use crate::commands::args::{self, Options};
use crate::commands::streams::args::{
    any_id, id, ids, no_group, no_group_of, range_end, range_start, reply_count, reply_id,
};
use crate::commands::streams::idempotent::{configure, log_settings};
use crate::commands::streams::read::{load, log_position};
use crate::commands::table::help::{self, Topic};
use crate::commands::table::spec::Group as Docs;
use crate::commands::table::tips::Tip;
use crate::commands::{
    CmdResult, Command, Error, Flags, KeyFlags, KeySpec, ReadCtx, SessionCtx, WriteCtx,
};
use crate::encoding::stream::{NO_CONSUMER, UNKNOWN};
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::types::stream::{Group, PendingRow, Stream, StreamId};
use rustc_hash::FxHashMap;
use std::ops::ControlFlow;

const NO_KEY: Error = Error::text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
     the MKSTREAM option to create an empty stream automatically.",
);

/// The options after the ID: MKSTREAM, and the value of ENTRIESREAD.
fn options_of(args: &[&[u8]], create: bool) -> Result<(bool, i64), Error> {
    let (mut mkstream, mut read) = (false, UNKNOWN);
    let mut options = Options::new(args, 5);
    while !options.is_empty() {
        if create && options.word("MKSTREAM") {
            mkstream = true;
        } else if options.left() > 1 && options.word("ENTRIESREAD") {
            read = options.int()?;
            if read < 0 && read != UNKNOWN {
                return Err(Error::text(
                    "ERR value for ENTRIESREAD must be positive or -1",
                ));
            }
        } else {
            return Err(help::mistaken(args));
        }
    }
    Ok((mkstream, read))
}

/// Refuses repeated options, which the parser accepts, by the number of arguments.
fn check_length(args: &[&[u8]], most: usize) -> CmdResult {
    match args.len() <= most {
        true => Ok(()),
        false => Err(help::mistaken(args)),
    }
}

fn create(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (mkstream, read) = options_of(args, true)?;
    let (key, name) = (args[2], args[3]);
    let mut stream = match Stream::load(ctx.txn, ctx.db, key)? {
        Some(stream) => stream,
        None if mkstream => Stream::new(ctx.txn, ctx.db, key),
        None => return Err(NO_KEY),
    };
    let is_new = stream.is_new();
    configure(ctx, &mut stream)?;
    check_length(args, 8)?;
    let last = match args[4] {
        b"$" => stream.body().last,
        given => id(given)?,
    };
    if stream.group(ctx.txn, name)?.is_some() {
        return Err(Error::text("BUSYGROUP Consumer Group name already exists"));
    }
    let group = stream.create_group(name, last, read);
    group.save(ctx.txn)?;
    let settings = stream.body().idempotence;
    stream.save(ctx.txn)?;
    ctx.event(Class::STREAM, "xgroup-create", key);
    ctx.reply.ok();
    // `$` may be another ID on a replica.
    let last = crate::commands::streams::args::id_text(last);
    let mut effect = args.to_vec();
    effect[4] = &last;
    ctx.txn.effect(ctx.db, &effect);
    if is_new {
        log_settings(ctx, key, settings);
    }
    Ok(())
}

/// A stream and one of its groups; an error if either does not exist.
fn group_of<'k>(
    ctx: &mut WriteCtx<'_>,
    key: &'k [u8],
    name: &[u8],
) -> Result<(Stream<'k>, Group), Error> {
    let stream = Stream::load(ctx.txn, ctx.db, key)?.ok_or(NO_KEY)?;
    match stream.group(ctx.txn, name)? {
        Some(group) => Ok((stream, group)),
        None => Err(no_group_of(key, name)),
    }
}

fn setid(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (_, read) = options_of(args, false)?;
    let (stream, mut group) = group_of(ctx, args[2], args[3])?;
    check_length(args, 7)?;
    let last = match args[4] {
        b"$" => stream.body().last,
        given => any_id(given, 0)?,
    };
    stream.set_last_of(&mut group, last, read);
    log_position(ctx, args[2], &group);
    group.save(ctx.txn)?;
    ctx.event(Class::STREAM, "xgroup-setid", args[2]);
    ctx.reply.ok();
    Ok(())
}

fn destroy(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let mut stream = Stream::load(ctx.txn, ctx.db, args[2])?.ok_or(NO_KEY)?;
    let Some(group) = stream.group(ctx.txn, args[3])? else {
        ctx.reply.int(0);
        return Ok(());
    };
    stream.destroy_group(ctx.txn, group)?;
    stream.save(ctx.txn)?;
    ctx.event(Class::STREAM, "xgroup-destroy", args[2]);
    ctx.reply.int(1);
    Ok(())
}

fn createconsumer(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (_, mut group) = group_of(ctx, args[2], args[3])?;
    let exists = group.find_consumer(ctx.txn, args[4])?.is_some();
    if !exists {
        crate::commands::streams::read::consumer(ctx, args[2], &mut group, args[4])?;
        group.save(ctx.txn)?;
    }
    ctx.reply.int(i64::from(!exists));
    Ok(())
}

fn delconsumer(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let (_, mut group) = group_of(ctx, args[2], args[3])?;
    let Some(consumer) = group.find_consumer(ctx.txn, args[4])? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let pending = group.delete_consumer(ctx.txn, consumer)?;
    group.save(ctx.txn)?;
    ctx.event(Class::STREAM, "xgroup-delconsumer", args[2]);
    reply_count(ctx.reply, pending);
    Ok(())
}

const TOPICS: &[Topic] = &[
    (
        "CREATE <key> <groupname> <id|$> [option]",
        &[
            "Create a new consumer group. Options are:",
            "* MKSTREAM",
            "  Create the empty stream if it does not exist.",
            "* ENTRIESREAD entries_read",
            "  Set the group's entries_read counter (internal use).",
        ],
    ),
    (
        "CREATECONSUMER <key> <groupname> <consumer>",
        &["Create a new consumer in the specified group."],
    ),
    (
        "DELCONSUMER <key> <groupname> <consumer>",
        &["Remove the specified consumer."],
    ),
    (
        "DESTROY <key> <groupname>",
        &["Remove the specified group."],
    ),
    (
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        &["Set the current group ID and entries_read counter."],
    ),
];

fn xgroup_help(ctx: &mut SessionCtx<'_>, _: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "XGROUP", TOPICS);
    Ok(())
}

fn xack(ctx: &mut WriteCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let group = match load(ctx, args[1])? {
        Some(stream) => stream.group(ctx.txn, args[2])?,
        None => None,
    };
    let Some(mut group) = group else {
        ctx.reply.int(0);
        return Ok(());
    };
    let mut acknowledged = 0;
    for id in ids(&args[3..])? {
        if let Some(pending) = group.pending(ctx.txn, id)? {
            group.remove(ctx.txn, id, &pending)?;
            acknowledged += 1;
        }
    }
    group.save(ctx.txn)?;
    reply_count(ctx.reply, acknowledged);
    Ok(())
}

/// The options of XPENDING.
struct Wanted<'a> {
    min_idle_ms: i64,
    range: (StreamId, StreamId),
    count: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    fn parse(args: &'a [&'a [u8]]) -> Result<Option<Wanted<'a>>, Error> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(Error::Syntax);
        }
        let mut at = 3;
        let mut min_idle_ms = 0;
        if args::is(args[3], "IDLE") {
            min_idle_ms = args::int(args[4])?;
            if args.len() < 8 {
                return Err(Error::Syntax);
            }
            at = 5;
        }
        let count = u64::try_from(args::int(args[at + 2])?).unwrap_or(0);
        let range = (range_start(args[at])?, range_end(args[at + 1])?);
        Ok(Some(Wanted {
            min_idle_ms,
            range,
            count,
            consumer: args.get(at + 3).copied(),
        }))
    }
}

fn xpending(ctx: &mut ReadCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let wanted = Wanted::parse(args)?;
    let group = match Stream::load(ctx.view, ctx.db, args[1])? {
        Some(stream) => stream.group(ctx.view, args[2])?,
        None => None,
    };
    let group = group.ok_or_else(|| no_group(args[1], args[2], ""))?;
    match wanted {
        Some(wanted) => pending_entries(ctx, group, &wanted),
        None => pending_summary(ctx, &group),
    }
}

fn pending_summary(ctx: &mut ReadCtx<'_>, group: &Group) -> CmdResult {
    let row = *group.row();
    ctx.reply.array(4);
    reply_count(ctx.reply, row.pending);
    if row.pending == 0 {
        ctx.reply.null();
        ctx.reply.null();
        ctx.reply.null_array();
        return Ok(());
    }
    let mut last = row.oldest;
    let all = crate::types::stream::all();
    group.visit_pending(ctx.view, all, Direction::Backward, |id, _| {
        last = id;
        Ok(ControlFlow::Break(()))
    })?;
    reply_id(ctx.reply, row.oldest);
    reply_id(ctx.reply, last);
    let mark = ctx.reply.begin();
    let mut found = 0;
    for (_, consumer) in group.all_consumers(ctx.view)? {
        if consumer.pending > 0 {
            ctx.reply.array(2);
            ctx.reply.bulk(&consumer.name);
            ctx.reply.bulk(consumer.pending.to_string().as_bytes());
            found += 1;
        }
    }
    ctx.reply.end_array(mark, found);
    Ok(())
}

/// The idle time of a pending entry, in ms. One that was released is idle for ever.
pub fn idle_ms(now_ms: UnixMs, pending: &PendingRow) -> i64 {
    now_ms.as_i64().saturating_sub(pending.delivered_ms)
}

fn pending_entries(ctx: &mut ReadCtx<'_>, mut group: Group, wanted: &Wanted<'_>) -> CmdResult {
    let now_ms = ctx.view.now_ms();
    let owner = match wanted.consumer {
        None => None,
        Some(name) => match group.find_consumer(ctx.view, name)? {
            Some(number) => Some(number),
            None => {
                ctx.reply.array(0);
                return Ok(());
            }
        },
    };
    let mut found: Vec<(StreamId, PendingRow)> = Vec::new();
    let is_idle = |pending: &PendingRow| {
        wanted.min_idle_ms == 0 || idle_ms(now_ms, pending) >= wanted.min_idle_ms
    };
    let until_count = |found: usize| match (found as u64) < wanted.count {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    if wanted.count == 0 {
    } else if let Some(owner) = owner {
        // The index by owner and the delivery time of an entry are in different rows.
        let mut range = wanted.range;
        loop {
            let mut part = Vec::new();
            group.visit_owned(ctx.view, owner, range, |id| {
                part.push(id);
                Ok(match part.len() < OWNED_PART {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
            for &id in &part {
                let pending = group.pending(ctx.view, id)?;
                if let Some(pending) = pending.filter(is_idle)
                    && until_count(found.len()).is_continue()
                {
                    found.push((id, pending));
                }
            }
            let next = part.last().and_then(|last| last.next());
            match next {
                Some(next)
                    if part.len() == OWNED_PART && until_count(found.len()).is_continue() =>
                {
                    range.0 = next;
                }
                _ => break,
            }
        }
    } else {
        group.visit_pending(ctx.view, wanted.range, Direction::Forward, |id, pending| {
            if is_idle(&pending) {
                found.push((id, pending));
            }
            Ok(until_count(found.len()))
        })?;
    }
    ctx.reply.array(found.len());
    let mut names = Names::default();
    for (id, pending) in found {
        ctx.reply.array(4);
        reply_id(ctx.reply, id);
        let name = names.of(ctx, &mut group, pending.consumer)?;
        ctx.reply.bulk(name);
        ctx.reply.int(match pending.is_released() {
            true => -1,
            false => idle_ms(now_ms, &pending).max(0),
        });
        reply_count(ctx.reply, pending.deliveries);
    }
    Ok(())
}

/// Number of IDs of a consumer that are read at a time.
const OWNED_PART: usize = 1024;

/// The names of consumers, by number.
#[derive(Default)]
pub struct Names(FxHashMap<u64, Box<[u8]>>);

impl Names {
    /// The name of a consumer.
    pub fn of(
        &mut self,
        ctx: &mut ReadCtx<'_>,
        group: &mut Group,
        consumer: u64,
    ) -> Result<&[u8], Error> {
        use std::collections::hash_map::Entry;
        if consumer == NO_CONSUMER {
            return Ok(b"");
        }
        Ok(match self.0.entry(consumer) {
            Entry::Occupied(name) => name.into_mut(),
            Entry::Vacant(place) => {
                let row = group.consumer_row(ctx.view, consumer)?;
                place.insert(row.name.clone())
            }
        })
    }
}

const INSERT: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT))];
const DELETE: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::DELETE))];
const UPDATE: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::UPDATE))];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    Command::write("xack", -4, xack)
        .syntax("key group id...")
        .complexity("O(N), N: IDs")
        .flags(Flags::FAST)
        .keys(&[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))])
        .doc(
            Docs::Stream,
            "5.0.0",
            "Acknowledges entries, so that they are not pending any more",
        ),
    Command::container(
        "xgroup",
        -2,
        &[
            Command::write("create", -5, create)
                .syntax(
                    "key group id-selector=(id|new-id=$) [MKSTREAM] \
                     [ENTRIESREAD entriesread:int{entries-read}]",
                )
                .history(&[("7.0.0", "Added `ENTRIESREAD`")])
                .flags(Flags::DENYOOM)
                .keys(INSERT)
                .doc(Docs::Stream, "5.0.0", "Creates a consumer group"),
            Command::write("createconsumer", 5, createconsumer)
                .places(3)
                .syntax("key group consumer")
                .flags(Flags::DENYOOM)
                .keys(INSERT)
                .doc(Docs::Stream, "6.2.0", "Makes a consumer of a group"),
            Command::write("delconsumer", 5, delconsumer)
                .places(3)
                .syntax("key group consumer")
                .complexity("O(N), N: pending entries of the consumer")
                .keys(DELETE)
                .doc(
                    Docs::Stream,
                    "5.0.0",
                    "Removes a consumer from a group, and its pending entries",
                ),
            Command::write("destroy", 4, destroy)
                .syntax("key group")
                .complexity("O(N), N: consumers and pending entries of the group")
                .keys(DELETE)
                .doc(Docs::Stream, "5.0.0", "Removes a group of consumers"),
            Command::session("help", 2, xgroup_help)
                .flags(Flags::LOADING.union(Flags::STALE))
                .doc(Docs::Stream, "5.0.0", "Lists the subcommands of XGROUP"),
            Command::write("setid", -5, setid)
                .syntax(
                    "key group id-selector=(id|new-id=$) \
                     [ENTRIESREAD entriesread:int{entries-read}]",
                )
                .history(&[("7.0.0", "Added `ENTRIESREAD`")])
                .keys(UPDATE)
                .doc(
                    Docs::Stream,
                    "5.0.0",
                    "Sets the last delivered ID of a group",
                ),
        ],
    )
    .doc(Docs::Stream, "5.0.0", "Groups of consumers of a stream"),
    Command::read("xpending", -3, xpending)
        .syntax(
            "key group [filters=([IDLE min-idle-time:int@6.2.0] start end count:int \
             [consumer])]",
        )
        .complexity("O(N), N: pending entries looked at; of the summary: consumers")
        .history(&[("6.2.0", "Added `IDLE` and bounds that are excluded")])
        .keys(&[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))])
        .tips(&[Tip::NondeterministicOutput])
        .doc(
            Docs::Stream,
            "5.0.0",
            "Returns the pending entries of a group",
        ),
];
