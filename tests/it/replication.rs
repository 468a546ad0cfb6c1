//! Masters and replicas, as processes.
//!
//! At the end of a test master and replica are equal: by DEBUG DIGEST, by their function
//! libraries, and by their binlogs, position by position, as far as both have them. DEBUG
//! KEDIS-CHECK must find no fault in either.
//!
//! - this file: shared helpers
//! - `sync`: full and partial syncs, kills, trims, commands that a replica refuses
//! - `chaos`: random failures
//! - `fields`: times of hash fields
//! - `kill_points`: a kill of either side at every step
//! - `newer_commands`: what Redis 7.0 gets of commands that it lacks
//! - `redis_master`: replicas of a Redis
//! - `redis_peers`: replicas that are Redis, older or with fewer DBs than their master
//! - `peers`: replicas that behave as no server does
//! - `sentinel`: Redis' Sentinel
//! - `topology`: chains, promotions, diverging histories
//! - `trust`: the resources that a peer may use
//!
//! Environment: `KEDIS_REPLICATION_ROUNDS` (3), `KEDIS_REPLICATION_SEED`.

mod chaos;
mod fields;
mod kill_points;
pub mod load;
mod newer_commands;
mod peers;
mod redis_master;
mod redis_peers;
mod sentinel;
mod sync;
mod topology;
mod trust;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{Conn, Server, Value, wait_for, wait_within};

/// A server that allows DEBUG.
pub fn server(more: &[&str]) -> Server {
    Server::start(&flags(more))
}

/// The flags of such a server.
pub fn flags<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut flags = vec!["--enable-debug-command", "yes", "--io-threads", "2"];
    flags.extend_from_slice(more);
    flags
}

/// Makes `replica` follow `master`.
pub fn follow(replica: &Server, master: &Server) {
    let line = format!("REPLICAOF 127.0.0.1 {}", master.port());
    assert_eq!(replica.connect().cmd(&line), Value::ok());
}

/// Adds the flag with which a server follows another one from its next start on.
pub fn follow_from_start(replica: &mut Server, master: &Server) {
    replica.flags.push("--replicaof".into());
    replica.flags.push("127.0.0.1".into());
    replica.flags.push(master.port().to_string());
}

/// A field of INFO.
pub fn info(server: &Server, section: &str, name: &str) -> String {
    // Repeated, because Sentinel closes connections when it changes a server's role.
    let text = eventually(server, &format!("INFO {section}")).text();
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("INFO {section} has no {name}:\n{text}"))
        .to_owned()
}

/// A number of INFO.
pub fn figure(server: &Server, section: &str, name: &str) -> i64 {
    info(server, section, name).parse().unwrap()
}

/// Whether a replica has everything of its master.
pub fn is_caught_up(master: &Server, replica: &Server) -> bool {
    let offset = |server| figure(server, "replication", "master_repl_offset");
    info(replica, "replication", "master_link_status") == "up" && offset(master) == offset(replica)
}

/// Waits until a replica has everything of its master; checks that both are equal.
pub fn assert_same(master: &Server, replica: &Server) {
    wait_for("the replica has everything", || {
        is_caught_up(master, replica)
    });
    let digest = |server: &Server| {
        let mut conn = server.connect();
        let libraries = conn.must("FUNCTION LIST WITHCODE");
        (conn.must("DEBUG DIGEST"), libraries)
    };
    // Keys may expire between the two reads.
    let same = wait_within(Duration::from_secs(10), || {
        digest(master) == digest(replica)
    });
    assert!(same, "the data differ");
    for server in [master, replica] {
        let report = server.connect().must("DEBUG KEDIS-CHECK").text();
        assert!(report.starts_with("keys: "), "{report}");
    }
    let (ours, theirs) = (binlog(master), binlog(replica));
    let first = first_position(master).max(first_position(replica));
    // Deletions of expired keys may still be on their way.
    let last = ours.keys().next_back().min(theirs.keys().next_back());
    let Some(last) = last.copied().filter(|last| *last >= first) else {
        return;
    };
    let ours: Vec<_> = ours.range(first..=last).collect();
    let theirs: Vec<_> = theirs.range(first..=last).collect();
    assert!(ours == theirs, "the binlogs differ from {first} on");
}

/// All rows of a server's binlog, read as a replica would.
pub fn binlog(server: &Server) -> BTreeMap<u64, Vec<u8>> {
    let mut conn = server.connect();
    conn.must("REPLCONF capa kedis3");
    if info(server, "cluster", "cluster_enabled") == "1" {
        conn.must("REPLCONF layout slots");
    }
    let (mut first, mut next) = (0, 0);
    wait_for("a link to the master, if there is one", || {
        first = first_position(server);
        next = figure(server, "binlog", "binlog_next_position") as u64;
        let id = info(server, "replication", "master_replid");
        let reply = conn.cmd(&format!("PSYNC {id} {first}"));
        let error = reply.error().unwrap_or_default();
        let waits = error.starts_with("NOMASTERLINK ");
        assert!(
            waits || reply == Value::simple(&format!("CONTINUE {id}")),
            "{reply:?}"
        );
        !waits
    });
    let mut rows = BTreeMap::new();
    let mut at = first;
    while at < next {
        let frame = conn.read().unwrap();
        match frame.items() {
            [name, position, value] if name.bytes() == b"REPL_ROW" => {
                let position: u64 = position.text().parse().unwrap();
                assert_eq!(position, at, "a hole in the binlog");
                at += value.bytes().len() as u64 - ROW_HEADER;
                rows.insert(position, value.bytes().to_vec());
            }
            [name, ..] if name.bytes().starts_with(b"REPL") => {}
            _ => panic!("neither a row nor a command of the link: {frame:?}"),
        }
    }
    rows
}

fn first_position(server: &Server) -> u64 {
    figure(server, "binlog", "binlog_first_position") as u64
}

/// Bytes of a row before its commands.
const ROW_HEADER: u64 = 20;

/// Closes all connections between a master and its replicas.
pub fn cut_links(master: &Server) {
    master.connect().must("CLIENT KILL TYPE replica");
}

/// The number of full and of partial syncs of a master.
pub fn syncs(master: &Server) -> (i64, i64) {
    (
        figure(master, "stats", "sync_full"),
        figure(master, "stats", "sync_partial_ok"),
    )
}

/// The number of column families for DBs, including orphans.
pub fn families(server: &Server) -> usize {
    let log = std::fs::read_dir(server.data_dir().join("kedis-db")).unwrap();
    let options = log
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("OPTIONS-"))
        .max_by_key(|entry| entry.file_name());
    let text = std::fs::read_to_string(options.expect("RocksDB's options").path()).unwrap();
    let families = text
        .lines()
        .filter(|line| line.starts_with("[CFOptions \"ks"));
    families.count()
}

/// Repeats a command until it succeeds.
pub fn eventually(server: &Server, line: &str) -> Value {
    let mut reply = None;
    wait_for(line, || {
        reply = Conn::open(&server.address()).ok().map(|mut c| c.cmd(line));
        reply
            .as_ref()
            .is_some_and(|r| !matches!(r, Value::Lost(_) | Value::Error(_)))
    });
    reply.expect("a reply")
}
