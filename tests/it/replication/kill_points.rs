//! Either side is killed at a step of a full sync or of the stream after it: the replica has
//! the old data or the new, and starts again by itself.

use super::load::Load;
use super::redis_master::{assert_equal, redis};
use super::{assert_same, families, flags, follow, follow_from_start, is_caught_up};
use crate::support::{Server, Value, seed, wait_for};

/// Steps of the replica, and whether it has the old data after a kill there.
const OF_THE_REPLICA: &[(&str, Option<bool>)] = &[
    ("staging:1", Some(true)),
    ("staging:5", Some(true)),
    ("staged:1", Some(true)),
    // Written, but not necessarily durable.
    ("install-written:1", None),
    ("installed:1", Some(false)),
    ("before-commit:60", Some(false)),
    ("before-write:60", Some(false)),
    ("after-write:60", Some(false)),
    ("while-writing:60", Some(false)),
    ("after-commit:60", Some(false)),
];

/// Steps of the master.
const OF_THE_MASTER: &[&str] = &[
    "feed-snapshot:1",
    "feed-chunk:1",
    "feed-chunk:4",
    "feed-complete:1",
    "feed-rows:1",
    "feed-rows:20",
];

fn fill(master: &Server) {
    // In DBs that the load does not clear.
    let mut conn = master.connect();
    for (db, keys) in [(8, 20_000), (9, 500)] {
        conn.must(&format!("SELECT {db}"));
        conn.must(&format!("DEBUG POPULATE {keys} key 150"));
    }
}

/// Whether a replica has its old data; otherwise it must have all of the new data.
fn has_old_data(replica: &Server) -> bool {
    let mut conn = replica.connect();
    // In one transaction, because the new data may be installed at any time.
    for line in ["MULTI", "GET old", "SELECT 8", "DBSIZE"] {
        conn.must(line);
    }
    let found = conn.must("EXEC");
    let [old, _, keys] = found.items() else {
        panic!("{found:?}");
    };
    let old = *old == Value::bulk("data");
    let whole = Value::Int(if old { 0 } else { 20_000 });
    assert_eq!(*keys, whole, "a part of the data");
    old
}

fn check(master: &Server, replica: &mut Server) {
    assert_same(master, replica);
    assert_eq!(replica.connect().cmd("EXISTS old"), Value::Int(0));
    // Orphan column families are removed at the next start at the latest.
    replica.terminate();
    replica.spawn();
    wait_for("the link is back", || is_caught_up(master, replica));
    assert!(
        families(replica) <= families(master),
        "orphan column families"
    );
}

#[test]
fn the_replica_dies_at_every_step() {
    let seed = seed("KEDIS_REPLICATION_SEED");
    for (point, old_is_there) in OF_THE_REPLICA {
        println!("{point}");
        let master = super::server(&[]);
        fill(&master);
        let load = Load::start(&master, 2, seed);
        let mut replica = Server::start_failing(&flags(&[]), point);
        replica.connect().must("SET old data");
        follow(&replica, &master);
        assert!(!replica.wait_exit().success());
        // Without the master first.
        replica.spawn();
        let old = has_old_data(&replica);
        assert!(old_is_there.is_none_or(|there| old == there), "at {point}");
        let mut conn = replica.connect();
        let report = conn.must("DEBUG KEDIS-CHECK").text();
        assert!(report.starts_with("keys: "), "{report}");
        replica.terminate();
        follow_from_start(&mut replica, &master);
        replica.spawn();
        load.stop();
        check(&master, &mut replica);
    }
}

#[test]
fn the_master_dies_at_every_step() {
    let seed = seed("KEDIS_REPLICATION_SEED");
    for point in OF_THE_MASTER {
        println!("{point}");
        let mut master = super::server(&[]);
        fill(&master);
        let load = Load::start(&master, 2, seed);
        master.restart_failing(point);
        let mut replica = super::server(&[]);
        replica.connect().must("SET old data");
        follow_from_start(&mut replica, &master);
        follow(&replica, &master);
        assert!(!master.wait_exit().success());
        has_old_data(&replica);
        master.spawn();
        load.stop();
        check(&master, &mut replica);
    }
}

/// As for a Kedis master; the offset of the stream is a part of each step.
#[test]
fn the_replica_of_a_redis_dies_at_every_step() {
    let seed = seed("KEDIS_REPLICATION_SEED");
    for (point, old_is_there) in OF_THE_REPLICA {
        println!("{point}");
        let master = redis(&["--repl-backlog-size", "256mb"]);
        let mut conn = master.connect();
        conn.must("SELECT 8");
        // Enough for several commits of the load, with the values in their rows.
        conn.must("DEBUG POPULATE 20000 key 2500");
        let load = Load::start_on_redis(&master, 2, seed);
        let in_rows = flags(&["--value-log-min", "0"]);
        let mut replica = Server::start_failing(&in_rows, point);
        replica.connect().must("SET old data");
        follow(&replica, &master);
        assert!(!replica.wait_exit().success());
        // Without the master first.
        replica.spawn();
        let old = has_old_data(&replica);
        assert!(old_is_there.is_none_or(|there| old == there), "at {point}");
        let report = replica.connect().must("DEBUG KEDIS-CHECK").text();
        assert!(report.starts_with("keys: "), "{report}");
        replica.terminate();
        follow_from_start(&mut replica, &master);
        replica.spawn();
        load.stop();
        assert_equal(&master, &replica);
        assert!(!has_old_data(&replica));
    }
}
