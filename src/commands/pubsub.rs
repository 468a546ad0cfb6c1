//! Publish and subscribe. Messages are sent to subscribers when the tick is durable: see
//! [`crate::state::pubsub`].

use super::{CmdResult, Command, Error, Flags, KeyFlags, KeySpec, SessionCtx};
use crate::base::glob;
use crate::commands::table::help;
use crate::commands::table::migrated::Migrated;
use crate::commands::table::spec::{Channels, Group};
use crate::state::clients::ClientFlags;
use crate::state::subscriptions::Name;
use crate::state::subscriptions::SubscriptionKind;

/// The first element of a confirmation of SUBSCRIBE.
fn joined(kind: SubscriptionKind) -> &'static str {
    match kind {
        SubscriptionKind::Channel => "subscribe",
        SubscriptionKind::Pattern => "psubscribe",
        SubscriptionKind::Shard => "ssubscribe",
    }
}

fn left(kind: SubscriptionKind) -> &'static str {
    match kind {
        SubscriptionKind::Channel => "unsubscribe",
        SubscriptionKind::Pattern => "punsubscribe",
        SubscriptionKind::Shard => "sunsubscribe",
    }
}

/// Replies with the confirmation: its word, the channel or pattern, and the number of
/// subscriptions.
fn confirm(ctx: &mut SessionCtx<'_>, word: &str, kind: SubscriptionKind, name: Option<&[u8]>) {
    ctx.reply.push(3);
    ctx.reply.bulk(word.as_bytes());
    match name {
        Some(name) => ctx.reply.bulk(name),
        None => ctx.reply.null(),
    }
    let count = ctx.session.subscriptions.count(kind);
    ctx.reply.int(count as i64);
}

fn join(ctx: &mut SessionCtx<'_>, args: &[&[u8]], kind: SubscriptionKind) -> CmdResult {
    for name in &args[1..] {
        ctx.server.pubsub.join(ctx.session, ctx.outbox, kind, name);
        // The user may have lost the channel since the command was checked, and whoever took
        // it away may not have seen the subscription.
        let is_pattern = kind == SubscriptionKind::Pattern;
        let is_lost = ctx
            .session
            .login
            .with_rules(|rules| rules.is_some_and(|rules| !rules.allows_channel(name, is_pattern)));
        ctx.session.close_after_reply |= is_lost;
        confirm(ctx, joined(kind), kind, Some(name));
    }
    Ok(())
}

fn leave(ctx: &mut SessionCtx<'_>, args: &[&[u8]], kind: SubscriptionKind) -> CmdResult {
    let pubsub = &ctx.server.pubsub;
    let mut has_left = false;
    let mut leave = |ctx: &mut SessionCtx<'_>, name: &[u8]| {
        has_left |= pubsub.leave(ctx.session, ctx.outbox, kind, name);
        confirm(ctx, left(kind), kind, Some(name));
    };
    if args.len() > 1 {
        args[1..].iter().for_each(|name| leave(ctx, name));
    } else {
        let names = ctx.session.subscriptions.names(kind);
        let names: Vec<Name> = names.iter().cloned().collect();
        if names.is_empty() {
            confirm(ctx, left(kind), kind, None);
        }
        names.iter().for_each(|name| leave(ctx, name));
    }
    if has_left {
        pubsub.settle(ctx.server, ctx.session, ctx.outbox);
    }
    Ok(())
}

fn subscribe(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    join(ctx, args, SubscriptionKind::Channel)
}

fn psubscribe(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    join(ctx, args, SubscriptionKind::Pattern)
}

fn ssubscribe(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    if ctx.session.deny_blocking {
        return Err(Error::text(
            "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client",
        ));
    }
    join(ctx, args, SubscriptionKind::Shard)
}

fn unsubscribe(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    leave(ctx, args, SubscriptionKind::Channel)
}

fn punsubscribe(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    leave(ctx, args, SubscriptionKind::Pattern)
}

fn sunsubscribe(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    leave(ctx, args, SubscriptionKind::Shard)
}

fn send(ctx: &mut SessionCtx<'_>, args: &[&[u8]], kind: SubscriptionKind) -> CmdResult {
    let (channel, message) = (args[1], args[2]);
    let targets = ctx.server.pubsub.find(kind, channel);
    ctx.reply.int(targets.count() as i64);
    let server = ctx.server;
    // A replica passes on to its own replicas only what comes from its master.
    let is_master = ctx.session.info.flags().contains(ClientFlags::MASTER);
    let passes_on = is_master || !server.engine.is_following();
    if server.replication.has_replicas() && passes_on {
        ctx.outbox.publish(kind, channel, message, targets);
    } else if !server.pubsub.is_silent(kind) {
        ctx.outbox.publish_here(kind, channel, message, targets);
    }
    Ok(())
}

fn publish(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    send(ctx, args, SubscriptionKind::Channel)
}

fn spublish(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    send(ctx, args, SubscriptionKind::Shard)
}

fn list(ctx: &mut SessionCtx<'_>, args: &[&[u8]], kind: SubscriptionKind) -> CmdResult {
    let pattern = match args {
        [_, _] => None,
        [_, _, pattern] => Some(*pattern),
        _ => return Err(help::mistaken(args)),
    };
    let mark = ctx.reply.begin();
    let mut listed = 0;
    let reply = &mut *ctx.reply;
    ctx.server.pubsub.for_each(kind, |name| {
        if pattern.is_none_or(|pattern| glob::matches(pattern, name, false)) {
            reply.bulk(name);
            listed += 1;
        }
    });
    ctx.reply.end_array(mark, listed);
    Ok(())
}

fn channels(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    list(ctx, args, SubscriptionKind::Channel)
}

fn shardchannels(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    list(ctx, args, SubscriptionKind::Shard)
}

fn count(ctx: &mut SessionCtx<'_>, args: &[&[u8]], kind: SubscriptionKind) -> CmdResult {
    let names = &args[2..];
    ctx.reply.array(names.len() * 2);
    for name in names {
        ctx.reply.bulk(name);
        let subscribers = ctx.server.pubsub.subscribers(kind, name);
        ctx.reply.int(subscribers as i64);
    }
    Ok(())
}

fn numsub(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count(ctx, args, SubscriptionKind::Channel)
}

fn shardnumsub(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    count(ctx, args, SubscriptionKind::Shard)
}

fn numpat(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    let patterns = ctx.server.pubsub.len(SubscriptionKind::Pattern);
    ctx.reply.int(patterns as i64);
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "CHANNELS [<pattern>]",
        &["The channels that have subscribers, or those of them that match a pattern."],
    ),
    ("NUMPAT", &["How many patterns have subscribers."]),
    (
        "NUMSUB [<channel> ...]",
        &["How many subscribers each channel has, patterns not counted."],
    ),
    (
        "SHARDCHANNELS [<pattern>]",
        &["The shard channels that have subscribers, or those of them that match a pattern."],
    ),
    (
        "SHARDNUMSUB [<shardchannel> ...]",
        &["How many subscribers each shard channel has."],
    ),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "PUBSUB", HELP);
    Ok(())
}

const ABOUT: Flags = Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE);
const SUBSCRIBE: Flags = ABOUT
    .union(Flags::NOSCRIPT)
    .union(Flags::PUSHES)
    .union(Flags::COUNTS_NAMES)
    .union(Flags::SUBSCRIBED)
    .union(Flags::SENTINEL);
const PUBLISH: Flags = ABOUT.union(Flags::FAST).union(Flags::MAY_REPLICATE);
const SHARD: Flags = ABOUT
    .union(Flags::NOSCRIPT)
    .union(Flags::PUSHES)
    .union(Flags::COUNTS_NAMES)
    .union(Flags::SUBSCRIBED);
const NOT_KEYS: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyFlags::NOT_KEY)];
const NOT_KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::NOT_KEY)];

const fn doc(command: Command, since: &'static str, summary: &'static str) -> Command {
    command.doc(Group::PubSub, since, summary)
}

const SUBCOMMANDS: &[Command] = &[
    doc(
        Command::session("channels", -2, channels)
            .syntax("[pattern]")
            .complexity("O(N), N: all channels")
            .flags(ABOUT),
        "2.8.0",
        "Lists the channels that have subscribers",
    ),
    doc(
        Command::session("help", 2, help).flags(Flags::LOADING.union(Flags::STALE)),
        "6.2.0",
        "Lists the subcommands",
    ),
    doc(
        Command::session("numpat", 2, numpat).flags(ABOUT),
        "2.8.0",
        "Counts the patterns that have subscribers",
    ),
    doc(
        Command::session("numsub", -2, numsub)
            .syntax("[channel...]")
            .complexity("O(N), N: channels asked for")
            .flags(ABOUT),
        "2.8.0",
        "Counts the subscribers of channels",
    ),
    doc(
        Command::session("shardchannels", -2, shardchannels)
            .syntax("[pattern]")
            .complexity("O(N), N: all channels")
            .flags(ABOUT),
        "7.0.0",
        "Lists the shard channels that have subscribers",
    ),
    doc(
        Command::session("shardnumsub", -2, shardnumsub)
            .syntax("[shardchannel...]")
            .complexity("O(N), N: channels asked for")
            .flags(ABOUT),
        "7.0.0",
        "Counts the subscribers of shard channels",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[
    doc(
        Command::session("psubscribe", -2, psubscribe)
            .channels(Channels::Patterns)
            .syntax("pattern...")
            .complexity("O(N), N: patterns")
            .flags(SUBSCRIBE),
        "2.0.0",
        "Subscribes to all channels that match patterns",
    ),
    doc(
        Command::session("publish", 3, publish)
            .channels(Channels::First)
            .syntax("channel message")
            .complexity("O(N + P), N: subscribers of the channel, P: all patterns")
            .flags(PUBLISH.union(Flags::SENTINEL))
            .migrated(Migrated::Message),
        "2.0.0",
        "Sends a message to a channel and says how many get it",
    ),
    doc(
        Command::container("pubsub", -2, SUBCOMMANDS),
        "2.8.0",
        "Commands about channels and their subscribers",
    ),
    doc(
        Command::session("punsubscribe", -1, punsubscribe)
            .syntax("[pattern...]")
            .complexity("O(N), N: patterns")
            .flags(SUBSCRIBE),
        "2.0.0",
        "Unsubscribes from patterns, or from all of them",
    ),
    doc(
        Command::session("spublish", 3, spublish)
            .channels(Channels::First)
            .syntax("shardchannel message")
            .complexity("O(N), N: subscribers of the channel")
            .flags(PUBLISH)
            .keys(NOT_KEY)
            .migrated(Migrated::Message),
        "7.0.0",
        "Sends a message to a shard channel and says how many get it",
    ),
    doc(
        Command::session("ssubscribe", -2, ssubscribe)
            .channels(Channels::All)
            .syntax("shardchannel...")
            .complexity("O(N), N: channels")
            .flags(SHARD)
            .keys(NOT_KEYS),
        "7.0.0",
        "Subscribes to shard channels",
    ),
    doc(
        Command::session("subscribe", -2, subscribe)
            .channels(Channels::All)
            .syntax("channel...")
            .complexity("O(N), N: channels")
            .flags(SUBSCRIBE),
        "2.0.0",
        "Subscribes to channels",
    ),
    doc(
        Command::session("sunsubscribe", -1, sunsubscribe)
            .syntax("[shardchannel...]")
            .complexity("O(N), N: channels")
            .flags(SHARD)
            .keys(NOT_KEYS),
        "7.0.0",
        "Unsubscribes from shard channels, or from all of them",
    ),
    doc(
        Command::session("unsubscribe", -1, unsubscribe)
            .syntax("[channel...]")
            .complexity("O(N), N: channels")
            .flags(SUBSCRIBE),
        "2.0.0",
        "Unsubscribes from channels, or from all of them",
    ),
];
