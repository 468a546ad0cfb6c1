//! CLUSTER and the other commands for cluster nodes. Kedis has no cluster mode: each of
//! them returns the error of a Redis without `cluster-enabled`, but READONLY and READWRITE of
//! clients that a replica may redirect (CLIENT CAPA redirect).

use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::commands::table::spec::Group;
use crate::state::clients::ClientFlags;

const DISABLED: Error = Error::text("ERR This instance has cluster support disabled");

fn disabled(_ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    Err(DISABLED)
}

/// READONLY and READWRITE also serve clients that take redirections from a replica outside a
/// cluster.
fn set_reads_replica(ctx: &mut SessionCtx<'_>, on: bool) -> CmdResult {
    let info = &ctx.session.info;
    if !info.flags().contains(ClientFlags::TAKES_REDIRECT) {
        return Err(DISABLED);
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

const STALE: Flags = Flags::STALE;
const LOADING: Flags = STALE.union(Flags::LOADING);
const ADMIN: Flags = STALE.union(Flags::ADMIN);
const CHANGES: Flags = ADMIN.union(Flags::NO_ASYNC_LOADING);
const MODE: Flags = LOADING.union(Flags::FAST);

const fn row(
    name: &'static str,
    arity: i16,
    flags: Flags,
    since: &'static str,
    summary: &'static str,
) -> Command {
    Command::session(name, arity, disabled)
        .flags(flags)
        .doc(Group::Cluster, since, summary)
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
    ),
    row(
        "count-failure-reports",
        3,
        ADMIN,
        "3.0.0",
        "Counts the reports that a node has failed",
    )
    .syntax("node-id"),
    row(
        "countkeysinslot",
        3,
        STALE,
        "3.0.0",
        "Counts the keys of a slot",
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
    row("getkeysinslot", 4, STALE, "3.0.0", "Returns keys of a slot").syntax("slot:int count:int"),
    row("help", 2, LOADING, "5.0.0", "Lists the subcommands"),
    row("info", 2, STALE, "3.0.0", "Returns the state of a node"),
    row("keyslot", 3, STALE, "3.0.0", "Returns the slot of a key").syntax("key:string"),
    row("links", 2, STALE, "7.0.0", "Lists the links between nodes"),
    row("meet", -4, CHANGES, "3.0.0", "Joins two nodes")
        .syntax("ip port:int [cluster_bus_port:int@4.0.0]")
        .history(&[("4.0.0", "Takes the port of the cluster bus")]),
    row("myid", 2, STALE, "3.0.0", "Returns the id of a node"),
    row("myshardid", 2, STALE, "7.2.0", "Returns the id of a shard"),
    row("nodes", 2, STALE, "3.0.0", "Describes the cluster by nodes"),
    row(
        "replicas",
        3,
        ADMIN,
        "5.0.0",
        "Lists the replicas of a node",
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
    row(
        "reset",
        -2,
        ADMIN.union(Flags::NOSCRIPT),
        "3.0.0",
        "Makes a node forget the cluster",
    )
    .syntax("[hard_soft=(HARD|SOFT)]"),
    row(
        "saveconfig",
        2,
        CHANGES,
        "3.0.0",
        "Writes the state of a node to disk",
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
    row(
        "shards",
        2,
        LOADING,
        "7.0.0",
        "Describes the cluster by shards",
    ),
    row("slaves", 3, ADMIN, "3.0.0", "Lists the replicas of a node")
        .syntax("node-id")
        .deprecated("5.0.0", "`CLUSTER REPLICAS`"),
    row(
        "slots",
        2,
        LOADING,
        "3.0.0",
        "Describes the cluster by slots",
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
    row(
        "asking",
        1,
        Flags::FAST,
        "3.0.0",
        "Asks a node for a slot that moves to it",
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
