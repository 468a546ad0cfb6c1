//! CLUSTER, and the other commands that only clients of a cluster send.
//!
//! | file | what it is for |
//! |---|---|
//! | this file | the table of the subcommands, and what needs no nodes |
//! | [`keys`] | the subcommands about the keys of slots |
//! | [`nodes`] | the subcommands about nodes |
//!
//! With `cluster-enabled` this server is a cluster of one master, which owns all slots, and its
//! replicas. Which nodes there are follows from REPLICAOF alone: the subcommands that would change
//! it are refused.

mod keys;
mod nodes;

use super::args;
use super::table::help;
use super::{CmdResult, Command, Error, Flags, Handler, ReadCtx, SessionCtx};
use crate::base::slots;
use crate::commands::table::spec::Group;
use crate::commands::table::tips::Tip;
use crate::state::Server;
use crate::state::clients::ClientFlags;

const DISABLED: Error = Error::text("ERR This instance has cluster support disabled");

/// Refuses what only a node of a cluster does.
fn check_enabled(server: &Server) -> CmdResult {
    match server.engine.config.cluster_enabled {
        true => Ok(()),
        false => Err(DISABLED),
    }
}

/// What would change which node owns which slots.
fn fixed(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    Err(Error::owned(format!(
        "ERR CLUSTER {} is not supported: one master owns all slots, and REPLICAOF makes replicas",
        ctx.command.name.to_ascii_uppercase()
    )))
}

/// What changes nothing here.
fn nothing(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    ctx.reply.ok();
    Ok(())
}

fn keyslot(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    ctx.reply.int(slots::of_key(args[2]).into());
    Ok(())
}

/// READONLY and READWRITE also serve clients that take redirections from a replica outside a
/// cluster.
fn set_reads_replica(ctx: &mut SessionCtx<'_>, on: bool) -> CmdResult {
    let info = &ctx.session.info;
    if !info.flags().contains(ClientFlags::TAKES_REDIRECT) {
        check_enabled(ctx.server)?;
    }
    info.set_flag(ClientFlags::READS_REPLICA, on);
    ctx.reply.ok();
    Ok(())
}

fn readonly(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    set_reads_replica(ctx, true)
}

fn readwrite(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    set_reads_replica(ctx, false)
}

/// A master with keys would lose them, and a replica its master.
fn reset(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let hard = match args {
        [_, _] => false,
        [_, _, mode] if args::is(mode, "SOFT") => false,
        [_, _, mode] if args::is(mode, "HARD") => true,
        [_, _, _] => return Err(Error::Syntax),
        _ => return Err(help::mistaken(args)),
    };
    if ctx.server.replication.is_replica() {
        return Err(Error::text(
            "ERR CLUSTER RESET is not supported on a replica: REPLICAOF NO ONE makes it a master",
        ));
    }
    let engine = &ctx.server.engine;
    if engine
        .all_keyspaces()
        .iter()
        .any(|(_, keyspace)| keyspace.counts().keys > 0)
    {
        return Err(Error::text(
            "ERR CLUSTER RESET can't be called with master nodes containing keys",
        ));
    }
    if hard {
        engine.renew_node_id()?;
    }
    ctx.reply.ok();
    Ok(())
}

const HELP: &[help::Topic] = &[
    (
        "COUNT-FAILURE-REPORTS <node-id>",
        &["0: nodes do not watch each other."],
    ),
    ("COUNTKEYSINSLOT <slot>", &["Number of keys of a slot."]),
    (
        "GETKEYSINSLOT <slot> <count>",
        &["Keys of a slot, at most so many."],
    ),
    ("INFO", &["State of the cluster."]),
    ("KEYSLOT <key>", &["Slot of a key."]),
    ("LINKS", &["No links: there is no bus between nodes."]),
    ("MYID", &["Id of this node."]),
    ("MYSHARDID", &["Id that this node and its replicas share."]),
    (
        "NODES",
        &[
            "A line for each node:",
            "<id> <ip:port@bus-port[,hostname]> <flags> <master> <ping> <pong> <epoch> <link> <slots>",
        ],
    ),
    (
        "REPLICAS <node-id>",
        &["The lines of the replicas of a node."],
    ),
    (
        "RESET [HARD|SOFT]",
        &["On a master without keys; HARD gives it another id."],
    ),
    (
        "SLOT-STATS SLOTSRANGE <first> <last>",
        &["Figures of these slots, in their order."],
    ),
    (
        "SLOT-STATS ORDERBY <metric> [LIMIT <limit>] [ASC|DESC]",
        &["The same of the slots with most or least of something."],
    ),
    (
        "SHARDS",
        &["Slots, and the nodes that have their keys, with all about these."],
    ),
    (
        "SLOTS",
        &["Slots, and the addresses and ids of the nodes that have their keys."],
    ),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    help::write(ctx.reply, "CLUSTER", HELP);
    Ok(())
}

const STALE: Flags = Flags::STALE;
const LOADING: Flags = STALE.union(Flags::LOADING);
const ADMIN: Flags = STALE.union(Flags::ADMIN);
const CHANGES: Flags = ADMIN.union(Flags::NO_ASYNC_LOADING);
const MODE: Flags = LOADING.union(Flags::FAST);

type Run = fn(&mut SessionCtx<'_>, &[&[u8]]) -> CmdResult;

/// The row of a subcommand that is refused, until [`by`] names its handler.
const fn row(
    name: &'static str,
    arity: i16,
    flags: Flags,
    since: &'static str,
    summary: &'static str,
) -> Command {
    Command::session(name, arity, fixed)
        .flags(flags)
        .doc(Group::Cluster, since, summary)
}

const fn by(run: Run, row: Command) -> Command {
    Command {
        handler: Handler::Session(run),
        ..row
    }
}

/// Of a subcommand that reads keys, or how many there are.
const fn reading(run: fn(&mut ReadCtx<'_>, &[&[u8]]) -> CmdResult, row: Command) -> Command {
    Command {
        handler: Handler::Read(run),
        ..row
    }
}

const RANGES: &str = "range=(start-slot:int end-slot:int)...";

const SUBCOMMANDS: &[Command] = &[
    row("addslots", -3, CHANGES, "3.0.0", "Gives a node slots").syntax("slot:int..."),
    row(
        "addslotsrange",
        -4,
        CHANGES,
        "7.0.0",
        "Gives a node ranges of slots",
    )
    .syntax(RANGES),
    row(
        "bumpepoch",
        2,
        CHANGES,
        "3.0.0",
        "Raises the epoch of the cluster",
    )
    .tips(&[Tip::NondeterministicOutput]),
    by(
        nodes::count_failure_reports,
        row(
            "count-failure-reports",
            3,
            ADMIN,
            "3.0.0",
            "Counts the reports that a node has failed",
        )
        .tips(&[Tip::NondeterministicOutput]),
    )
    .syntax("node-id"),
    reading(
        keys::countkeysinslot,
        row(
            "countkeysinslot",
            3,
            STALE,
            "3.0.0",
            "Counts the keys of a slot",
        ),
    )
    .syntax("slot:int"),
    row("delslots", -3, CHANGES, "3.0.0", "Takes slots from a node").syntax("slot:int..."),
    row(
        "delslotsrange",
        -4,
        CHANGES,
        "7.0.0",
        "Takes ranges of slots from a node",
    )
    .syntax(RANGES),
    row(
        "failover",
        -2,
        CHANGES,
        "3.0.0",
        "Makes a replica take over from its master",
    )
    .syntax("[options=(FORCE|TAKEOVER)]"),
    row(
        "flushslots",
        2,
        CHANGES,
        "3.0.0",
        "Takes all slots from a node",
    ),
    row("forget", 3, CHANGES, "3.0.0", "Removes a node").syntax("node-id"),
    reading(
        keys::getkeysinslot,
        row("getkeysinslot", 4, STALE, "3.0.0", "Returns keys of a slot")
            .tips(&[Tip::NondeterministicOutput]),
    )
    .syntax("slot:int count:int")
    .complexity("O(N), N: keys answered"),
    by(
        help,
        row("help", 2, LOADING, "5.0.0", "Lists the subcommands"),
    ),
    by(
        nodes::info,
        row("info", 2, STALE, "3.0.0", "Returns the state of a node")
            .tips(&[Tip::NondeterministicOutput]),
    ),
    by(
        keyslot,
        row("keyslot", 3, STALE, "3.0.0", "Returns the slot of a key"),
    )
    .syntax("key:string"),
    by(
        nodes::links,
        row("links", 2, STALE, "7.0.0", "Lists the links between nodes")
            .tips(&[Tip::NondeterministicOutput]),
    ),
    row("meet", -4, CHANGES, "3.0.0", "Joins two nodes")
        .syntax("ip port:int [cluster_bus_port:int@4.0.0]")
        .history(&[("4.0.0", "Takes the port of the cluster bus")]),
    by(
        nodes::myid,
        row("myid", 2, STALE, "3.0.0", "Returns the id of a node"),
    ),
    by(
        nodes::myshardid,
        row("myshardid", 2, STALE, "7.2.0", "Returns the id of a shard")
            .tips(&[Tip::NondeterministicOutput]),
    ),
    by(
        nodes::nodes,
        row("nodes", 2, STALE, "3.0.0", "Describes the cluster by nodes")
            .tips(&[Tip::NondeterministicOutput]),
    ),
    by(
        nodes::replicas,
        row(
            "replicas",
            3,
            ADMIN,
            "5.0.0",
            "Lists the replicas of a node",
        )
        .tips(&[Tip::NondeterministicOutput]),
    )
    .syntax("node-id"),
    row(
        "replicate",
        3,
        CHANGES,
        "3.0.0",
        "Makes a node a replica of another one",
    )
    .syntax("node-id"),
    by(
        reset,
        row(
            "reset",
            -2,
            ADMIN.union(Flags::NOSCRIPT),
            "3.0.0",
            "Makes a node forget the cluster",
        ),
    )
    .syntax("[hard_soft=(HARD|SOFT)]"),
    by(
        nothing,
        row(
            "saveconfig",
            2,
            CHANGES,
            "3.0.0",
            "Writes the state of a node to disk",
        ),
    ),
    row(
        "set-config-epoch",
        3,
        CHANGES,
        "3.0.0",
        "Gives a new node its epoch",
    )
    .syntax("config-epoch:int"),
    row(
        "setslot",
        -4,
        CHANGES,
        "3.0.0",
        "Returns the node of a slot",
    )
    .syntax("slot:int subcommand=(IMPORTING node-id|MIGRATING node-id|NODE node-id|STABLE)"),
    by(
        nodes::shards,
        row(
            "shards",
            2,
            LOADING,
            "7.0.0",
            "Describes the cluster by shards",
        )
        .tips(&[Tip::NondeterministicOutput]),
    ),
    by(
        nodes::replicas,
        row("slaves", 3, ADMIN, "3.0.0", "Lists the replicas of a node")
            .tips(&[Tip::NondeterministicOutput]),
    )
    .syntax("node-id")
    .deprecated("5.0.0", "`CLUSTER REPLICAS`"),
    reading(
        keys::slot_stats,
        row(
            "slot-stats",
            -4,
            LOADING,
            "8.2.0",
            "Returns figures of slots",
        ),
    )
    .syntax(
        "filter=(SLOTSRANGE slotsrange=(start-slot:int end-slot:int)|ORDERBY orderby=(metric \
         [LIMIT limit:int] [order=(ASC|DESC)]))",
    )
    .complexity("O(N log N), N: slots"),
    by(
        nodes::slots,
        row(
            "slots",
            2,
            LOADING,
            "3.0.0",
            "Describes the cluster by slots",
        )
        .tips(&[Tip::NondeterministicOutput]),
    )
    .history(&[
        ("4.0.0", "Added the IDs of the nodes"),
        ("7.0.0", "Added further network metadata"),
    ])
    .deprecated("7.0.0", "`CLUSTER SHARDS`"),
];

/// The rows of CLUSTER and of the commands that only cluster clients send.
pub const COMMANDS: &[Command] = &[
    Command::container("cluster", -2, SUBCOMMANDS).doc(
        Group::Cluster,
        "3.0.0",
        "Commands about the cluster",
    ),
    by(
        nothing,
        row(
            "asking",
            1,
            Flags::FAST,
            "3.0.0",
            "Asks a node for a slot that moves to it",
        ),
    )
    .categories(&["connection"]),
    Command::session("readonly", 1, readonly)
        .flags(MODE)
        .categories(&["connection"])
        .doc(
            Group::Cluster,
            "3.0.0",
            "Allows reads from a replica that would redirect them",
        ),
    Command::session("readwrite", 1, readwrite)
        .flags(MODE)
        .categories(&["connection"])
        .doc(Group::Cluster, "3.0.0", "Ends READONLY"),
];
