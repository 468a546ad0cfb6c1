//! A cluster of one master, which owns all slots, and its replicas.
//!
//! - this file: what clients are told of the nodes, compared with a Redis that owns all slots
//! - `layout`: keys in slots on the disk, and servers without them
//! - `replicas`: replicas as nodes, and what they send to their master
//! - `slots`: keys of several slots

mod layout;
mod replicas;
mod slots;

use crate::support::server::{Port, free_port};
use crate::support::{Conn, Server, Value, oracle, wait_for};
use std::ops::Deref;

/// A node.
fn node(more: &[&str]) -> Server {
    let mut flags = vec!["--cluster-enabled", "yes", "--enable-debug-command", "yes"];
    flags.extend_from_slice(more);
    Server::start(&flags)
}

/// A Redis that owns all slots, and knows its address. The port of its bus is kept for it.
struct RedisNode {
    server: Server,
    bus: Port,
}

impl Deref for RedisNode {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn redis_node() -> RedisNode {
    let bus = free_port();
    let server = oracle(&[
        "--cluster-enabled",
        "yes",
        "--cluster-announce-ip",
        "127.0.0.1",
        "--cluster-port",
        &bus.to_string(),
    ]);
    let mut conn = server.connect();
    conn.must("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_for("the slots", || {
        conn.must("CLUSTER INFO")
            .text()
            .contains("cluster_state:ok")
    });
    RedisNode { server, bus }
}

fn id(server: &Server) -> String {
    server.connect().must("CLUSTER MYID").text()
}

/// A reply, without what differs between two servers.
fn shown(reply: &Value, server: &Server, bus: u16) -> String {
    let own = id(server);
    format!("{reply:?}")
        .replace(&own, "ID")
        .replace(&format!("@{bus} "), "@BUS ")
        .replace(&format!("@{bus},"), "@BUS,")
        .replace(&server.port().to_string(), "PORT")
}

#[track_caller]
fn compare(ours: (&Server, &mut Conn), theirs: (&RedisNode, &mut Conn), line: &str) {
    let (a, b) = (ours.1.cmd(line), theirs.1.cmd(line));
    let (a, b) = (
        shown(&a, ours.0, ours.0.port() + 10_000),
        shown(&b, theirs.0, *theirs.0.bus),
    );
    assert_eq!(a, b, "{line}");
}

#[test]
fn nodes_and_slots_are_shown_as_by_a_redis_that_owns_all_slots() {
    let (ours, theirs) = (node(&[]), redis_node());
    for resp3 in [false, true] {
        let (mut a, mut b) = (ours.connect(), theirs.connect());
        if resp3 {
            a.hello3();
            b.hello3();
        }
        let own_id = |server: &Server| format!("CLUSTER REPLICAS {}", id(server));
        let (x, y) = (a.cmd(&own_id(&ours)), b.cmd(&own_id(&theirs)));
        assert_eq!(x, y);
        let lines = [
            "CLUSTER SHARDS",
            "CLUSTER SLOTS",
            "CLUSTER NODES",
            "CLUSTER INFO",
            "CLUSTER LINKS",
            "CLUSTER KEYSLOT foo{bar}baz",
            "CLUSTER KEYSLOT {}x",
            "CLUSTER KEYSLOT",
            "CLUSTER REPLICAS nobody",
            "CLUSTER SLAVES nobody",
            "CLUSTER COUNT-FAILURE-REPORTS nobody",
            "CLUSTER NOPE",
            "CLUSTER MEET 1",
            "CLUSTER RESET NOPE",
            "CLUSTER RESET SOFT x",
            "CLUSTER SAVECONFIG",
            "INFO cluster",
            "CONFIG GET cluster-enabled",
            "CONFIG SET cluster-enabled no",
            "CONFIG SET cluster-announce-hostname a_b",
            "SELECT 0",
            "SELECT 1",
            "SELECT -1",
            "SELECT x",
            "SWAPDB 0 1",
            "SWAPDB 0 0",
            "MOVE a 1",
            "MOVE a 0",
            "MOVE a x",
            "ASKING",
            "READONLY",
            "READWRITE",
        ];
        for line in lines {
            compare((&ours, &mut a), (&theirs, &mut b), line);
        }
        for kind in ["hostname", "unknown-endpoint", "ip"] {
            for name in ["", "a.example"] {
                for conn in [&mut a, &mut b] {
                    conn.must(&format!(
                        "CONFIG SET cluster-preferred-endpoint-type {kind}"
                    ));
                    let set = ["CONFIG", "SET", "cluster-announce-hostname", name];
                    assert_eq!(conn.call(&set), Value::ok());
                }
                for line in ["CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES"] {
                    compare((&ours, &mut a), (&theirs, &mut b), line);
                }
            }
        }
        for conn in [&mut a, &mut b] {
            let set = ["CONFIG", "SET", "cluster-announce-hostname", ""];
            assert_eq!(conn.call(&set), Value::ok());
        }
    }
    let mode = |server: &Server| server.connect().info_text("server", "redis_mode");
    assert_eq!(mode(&ours), mode(&theirs));
}

/// HELLO said that each server is a master of no cluster.
#[test]
fn hello_says_what_the_server_is() {
    let field = |server: &Server, name: &str| {
        let pairs = server.connect().must("HELLO 3").pairs();
        let found = pairs.iter().find(|(key, _)| key.bytes() == name.as_bytes());
        found.unwrap().1.text()
    };
    let (plain, master) = (Server::start(&[]), node(&[]));
    assert_eq!(field(&plain, "mode"), "standalone");
    assert_eq!(field(&master, "mode"), "cluster");
    assert_eq!(field(&master, "role"), "master");
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    assert_eq!(field(&replica, "role"), "replica");
}

#[test]
fn the_addresses_that_are_announced_are_shown() {
    let flags = [
        "--cluster-announce-ip",
        "10.1.2.3",
        "--cluster-announce-port",
        "7000",
        "--cluster-announce-bus-port",
        "7001",
    ];
    let server = node(&flags);
    let mut conn = server.connect();
    let line = conn.must("CLUSTER NODES").text();
    assert!(
        line.contains(" 10.1.2.3:7000@7001 myself,master - 0 0 0 connected 0-16383\n"),
        "{line}"
    );
    let slots = format!("{:?}", conn.must("CLUSTER SLOTS"));
    assert!(
        slots.contains("10.1.2.3") && slots.contains(":7000"),
        "{slots}"
    );
    // Without one it is the address that the client has reached.
    conn.must("CONFIG SET cluster-announce-ip 10.9.9.9 cluster-announce-port 0");
    let line = conn.must("CLUSTER NODES").text();
    assert!(
        line.contains(&format!(" 10.9.9.9:{}@7001 ", server.port())),
        "{line}"
    );
    assert_eq!(
        conn.call(&["CONFIG", "SET", "cluster-announce-ip", ""]),
        Value::ok()
    );
    let line = conn.must("CLUSTER NODES").text();
    assert!(
        line.contains(&format!(" 127.0.0.1:{}@7001 ", server.port())),
        "{line}"
    );
}

#[test]
fn ids_last_until_a_hard_reset() {
    let mut server = node(&[]);
    let first = id(&server);
    let shard = server.connect().must("CLUSTER MYSHARDID").text();
    for text in [&first, &shard] {
        assert!(
            text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            "{text}"
        );
    }
    server.kill9();
    server.spawn();
    assert_eq!(id(&server), first);
    let mut conn = server.connect();
    assert_eq!(conn.must("CLUSTER MYSHARDID").text(), shard);
    conn.must("SET a 1");
    let refused = conn.cmd("CLUSTER RESET HARD").error().unwrap();
    assert_eq!(
        refused,
        "ERR CLUSTER RESET can't be called with master nodes containing keys"
    );
    conn.must("DEL a");
    conn.must("CLUSTER RESET");
    assert_eq!(id(&server), first);
    conn.must("CLUSTER RESET HARD");
    let second = id(&server);
    assert_ne!(second, first);
    server.kill9();
    server.spawn();
    assert_eq!(id(&server), second);
}

#[test]
fn what_would_change_the_topology_is_refused() {
    let server = node(&[]);
    let mut conn = server.connect();
    for line in [
        "MEET 127.0.0.1 1",
        "ADDSLOTS 1",
        "ADDSLOTSRANGE 1 2",
        "DELSLOTS 1",
        "DELSLOTSRANGE 1 2",
        "FLUSHSLOTS",
        "SETSLOT 1 STABLE",
        "FAILOVER",
        "FORGET x",
        "REPLICATE x",
        "BUMPEPOCH",
        "SET-CONFIG-EPOCH 1",
    ] {
        let error = conn.cmd(&format!("CLUSTER {line}")).error().unwrap();
        let name = line.split(' ').next().unwrap();
        assert_eq!(
            error,
            format!(
                "ERR CLUSTER {name} is not supported: one master owns all slots, and REPLICAOF \
                 makes replicas"
            )
        );
    }
    assert!(conn.must("CLUSTER HELP").items().len() > 10);
}
