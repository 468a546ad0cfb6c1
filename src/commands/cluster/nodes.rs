//! The subcommands of CLUSTER about nodes.

use super::check_enabled;
use crate::base::slots::SLOTS;
use crate::commands::error::quoted;
use crate::commands::{CmdResult, Error, SessionCtx};
use crate::resp::Reply;
use crate::state::Server;
use crate::state::cluster::Nodes;
use crate::state::config::EndpointType;
use crate::state::node::Node;
use sha1::{Digest, Sha1};

/// Bytes of an id of a node that an error quotes.
const QUOTED: usize = 128;

fn all(ctx: &SessionCtx<'_>) -> Nodes {
    ctx.server.cluster_nodes(Some(&ctx.session.info))
}

fn unknown_node(id: &[u8]) -> Error {
    Error::Bytes([b"ERR Unknown node ", quoted(id, QUOTED)].concat())
}

pub(super) fn myid(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    ctx.reply.bulk(ctx.server.engine.node_id().as_bytes());
    Ok(())
}

/// The id that a master and its replicas share: made of what they share, which stays secret.
fn shard_id(server: &Server) -> String {
    let digest = Sha1::new()
        .chain_update(b"shard")
        .chain_update(server.engine.hash.key())
        .finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn myshardid(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    ctx.reply.bulk(shard_id(ctx.server).as_bytes());
    Ok(())
}

pub(super) fn info(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let known = all(ctx).all().count();
    let fields: [(&str, usize); 11] = [
        ("cluster_slots_assigned", SLOTS.into()),
        ("cluster_slots_ok", SLOTS.into()),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", 0),
        ("cluster_known_nodes", known),
        ("cluster_size", 1),
        ("cluster_current_epoch", 0),
        ("cluster_my_epoch", 0),
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ];
    let mut text = "cluster_state:ok\r\n".to_owned();
    for (name, value) in fields {
        text.push_str(&format!("{name}:{value}\r\n"));
    }
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The line of a node in CLUSTER NODES.
fn line(ctx: &SessionCtx<'_>, node: &Node, master: &Node) -> String {
    let tls = ctx.server.speaks_tls(&ctx.session.info);
    let is_master = node.id == master.id;
    let is_own = node.id == ctx.server.engine.node_id();
    let hostname = match node.hostname.as_str() {
        "" => String::new(),
        name => format!(",{name}"),
    };
    let link = match node.is_connected {
        true => "connected",
        false => "disconnected",
    };
    let mut line = format!(
        "{} {}:{}@{}{hostname} {}{} {} 0 {} 0 {link}",
        node.id,
        node.ip,
        node.port_for(tls),
        node.bus_port,
        if is_own { "myself," } else { "" },
        if is_master { "master" } else { "slave" },
        if is_master { "-" } else { &master.id },
        node.heard_ms.0,
    );
    if is_master {
        line.push_str(&format!(" 0-{}", SLOTS - 1));
    }
    line
}

pub(super) fn nodes(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let nodes = all(ctx);
    let mut text = String::new();
    for node in nodes.all() {
        text.push_str(&line(ctx, node, &nodes.master));
        text.push('\n');
    }
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

pub(super) fn replicas(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let nodes = all(ctx);
    let known = nodes.all().find(|node| node.id.as_bytes() == args[2]);
    let known = known.ok_or_else(|| unknown_node(args[2]))?;
    if known.id != nodes.master.id {
        return Err(Error::text("ERR The specified node is not a master"));
    }
    ctx.reply.array(nodes.replicas.len());
    for node in &nodes.replicas {
        let line = line(ctx, node, &nodes.master);
        ctx.reply.bulk(line.as_bytes());
    }
    Ok(())
}

pub(super) fn count_failure_reports(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let nodes = all(ctx);
    match nodes.all().any(|node| node.id.as_bytes() == args[2]) {
        true => ctx.reply.int(0),
        false => return Err(unknown_node(args[2])),
    }
    Ok(())
}

pub(super) fn links(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    ctx.reply.array(0);
    Ok(())
}

/// Where a node is, in CLUSTER SLOTS.
fn place(reply: &mut Reply, node: &Node, kind: EndpointType, tls: bool) {
    reply.array(4);
    match kind {
        EndpointType::Unknown => reply.null(),
        kind => reply.bulk(node.endpoint(kind).as_bytes()),
    }
    reply.int(node.port_for(tls).into());
    reply.bulk(node.id.as_bytes());
    let others = [
        ("ip", &node.ip, kind != EndpointType::Ip),
        (
            "hostname",
            &node.hostname,
            kind != EndpointType::Hostname && !node.hostname.is_empty(),
        ),
    ];
    reply.map(others.iter().filter(|(_, _, shown)| *shown).count());
    for (name, value, _) in others.iter().filter(|(_, _, shown)| *shown) {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

pub(super) fn slots(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let nodes = all(ctx);
    let tls = ctx.server.speaks_tls(&ctx.session.info);
    let kind = ctx.server.config.load().cluster_preferred_endpoint_type;
    let shown: Vec<&Node> = nodes.all().filter(|node| node.is_online).collect();
    let reply = &mut *ctx.reply;
    reply.array(1);
    reply.array(2 + shown.len());
    reply.int(0);
    reply.int((SLOTS - 1).into());
    for node in shown {
        place(reply, node, kind, tls);
    }
    Ok(())
}

pub(super) fn shards(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    check_enabled(ctx.server)?;
    let nodes = all(ctx);
    let kind = ctx.server.config.load().cluster_preferred_endpoint_type;
    let reply = &mut *ctx.reply;
    reply.array(1);
    reply.map(2);
    reply.bulk(b"slots");
    reply.array(2);
    reply.int(0);
    reply.int((SLOTS - 1).into());
    reply.bulk(b"nodes");
    reply.array(nodes.all().count());
    for node in nodes.all() {
        details(reply, node, kind, node.id == nodes.master.id);
    }
    Ok(())
}

/// All about a node, in CLUSTER SHARDS.
fn details(reply: &mut Reply, node: &Node, kind: EndpointType, is_master: bool) {
    let ports = [("port", node.port), ("tls-port", node.tls_port)];
    let ports = ports.iter().filter(|(_, port)| *port != 0);
    let hostname = Some(&node.hostname).filter(|name| !name.is_empty());
    reply.map(6 + ports.clone().count() + usize::from(hostname.is_some()));
    let text = |reply: &mut Reply, name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    text(reply, "id", &node.id);
    for (name, port) in ports {
        reply.bulk(name.as_bytes());
        reply.int((*port).into());
    }
    text(reply, "ip", &node.ip);
    text(reply, "endpoint", node.endpoint(kind));
    if let Some(name) = hostname {
        text(reply, "hostname", name);
    }
    text(reply, "role", if is_master { "master" } else { "replica" });
    reply.bulk(b"replication-offset");
    reply.int(i64::try_from(node.offset).unwrap_or(i64::MAX));
    let health = match node.is_online {
        true => "online",
        false => "loading",
    };
    text(reply, "health", health);
}
