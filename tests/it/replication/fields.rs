//! Times of hash fields and set members at masters and replicas: the master's clock removes elements,
//! and a replica hides what is over until then.

use super::redis_master::{assert_equal, redis};
use super::{assert_same, figure, follow, info, is_caught_up, server};
use crate::differential::run::compare_state;
use crate::support::{Conn, Server, Value, oracle, wait_for, wait_within};
use std::time::{Duration, Instant};

/// Hashes of both forms, with fields that have no time, one that is far away, and one that is over
/// soon.
fn write(conn: &mut Conn) {
    for (key, fields) in [("small", 4), ("large", 2000)] {
        let pairs: Vec<String> = (0..fields).map(|n| format!("f{n} v{n}")).collect();
        conn.must(&format!("HSET {key} {}", pairs.join(" ")));
        conn.must(&format!("HPEXPIREAT {key} 4000000000000 FIELDS 1 f1"));
        conn.must(&format!("HPEXPIRE {key} 50 FIELDS 2 f2 f3"));
    }
    conn.must("HSETEX gone PX 50 FIELDS 2 a 1 b 2");
    conn.must("HSETEX kept EX 1000 FIELDS 2 a 1 b 2");
    conn.must("HSETEX kept KEEPTTL FIELDS 1 a 3");
    conn.must("HINCRBYFLOAT kept b 0.5");
    conn.must("HGETEX kept PERSIST FIELDS 1 b");
}

fn lengths(conn: &mut Conn) -> Vec<i64> {
    ["small", "large", "gone"]
        .map(|key| conn.must(&format!("HLEN {key}")).int())
        .to_vec()
}

fn sizes(conn: &mut Conn) -> [i64; 3] {
    ["few", "many", "over"].map(|key| conn.must(&format!("SCARD {key}")).int())
}

/// Sets of both forms, likewise.
fn write_sets(conn: &mut Conn) {
    for (key, members) in [("few", 4), ("many", 2000)] {
        let names: Vec<String> = (0..members).map(|n| format!("m{n}")).collect();
        conn.must(&format!("SADD {key} {}", names.join(" ")));
        conn.must(&format!("SPEXPIREAT {key} 4000000000000 MEMBERS 1 m1"));
        conn.must(&format!("SPEXPIRE {key} 50 MEMBERS 2 m2 m3"));
    }
    conn.must("SADDEX over PX 50 MEMBERS 2 a b");
    conn.must("SADDEX stays EX 1000 MEMBERS 2 a b");
    conn.must("SADDEX stays KEEPTTL MEMBERS 2 a c");
    conn.must("SPERSIST stays MEMBERS 1 b");
}

fn has_newer_oracle(server: &Server) -> bool {
    let info = server.connect().must("COMMAND INFO HSETEX");
    let has = matches!(info.items(), [Value::Array(_)]);
    if !has {
        println!("the oracle knows no times of fields: KEDIS_ORACLE names a newer one");
    }
    has
}

/// The replica removes nothing by its own clock, also after its times are over, and after a full
/// sync that brought them.
#[test]
fn a_replica_hides_fields_and_leaves_their_removal_to_the_master() {
    let master = server(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    let mut conn = master.connect();
    conn.must("DEBUG SET-ACTIVE-EXPIRE 0");
    write(&mut conn);
    write_sets(&mut conn);
    wait_for("the replica has everything", || {
        is_caught_up(&master, &replica)
    });
    let late = server(&[]);
    follow(&late, &master);
    wait_for("the late replica has everything", || {
        is_caught_up(&master, &late)
    });
    for replica in [&master, &replica, &late] {
        let mut ours = replica.connect();
        wait_for("the times are over", || {
            lengths(&mut ours) == [2, 1998, 0] && sizes(&mut ours) == [2, 1998, 0]
        });
    }
    let position = figure(&master, "replication", "master_repl_offset");
    let until = Instant::now() + Duration::from_millis(500);
    wait_within(Duration::from_secs(1), || Instant::now() >= until);
    for replica in [&replica, &late] {
        let mut ours = replica.connect();
        assert_eq!(ours.must("DBSIZE"), Value::Int(8));
        assert_eq!(
            info(replica, "keyspace", "db0"),
            info(&master, "keyspace", "db0")
        );
        assert_eq!(ours.must("HGETALL gone"), Value::Array(Vec::new()));
        assert_eq!(ours.must("HGET small f2"), Value::NullBulk);
        assert_eq!(ours.must("SMEMBERS over"), Value::Array(Vec::new()));
        assert_eq!(ours.must("SISMEMBER few m2"), Value::Int(0));
        assert_eq!(
            figure(replica, "replication", "master_repl_offset"),
            position
        );
    }
    // A field that is over counts as absent for what the master does next.
    conn.must("HINCRBY small f2 5");
    conn.must("SADD few m2");
    conn.must("DEBUG SET-ACTIVE-EXPIRE 1");
    for replica in [&replica, &late] {
        wait_for("the master removes them", || {
            replica.connect().must("DBSIZE") == Value::Int(6)
        });
        assert_same(&master, replica);
        let mut ours = replica.connect();
        assert_eq!(ours.must("HGET small f2"), Value::bulk("5"));
        let want = Value::Array([-1, 4_000_000_000_000, -1].map(Value::Int).to_vec());
        let times = ours.must("HPEXPIRETIME small FIELDS 3 f0 f1 f2");
        assert_eq!(times, want);
        let times = ours.must("SPEXPIRETIME few MEMBERS 3 m0 m1 m2");
        assert_eq!(times, want);
        assert_eq!(sizes(&mut ours), [3, 1998, 0]);
    }
    let keyspace = info(&late, "keyspace", "db0");
    assert!(keyspace.contains(",subexpiry=6,"), "{keyspace}");
    assert!(figure(&master, "stats", "expired_subkeys") >= 5);
    assert_eq!(figure(&replica, "stats", "expired_subkeys"), 0);
}

/// A full sync and the stream, in both directions, with a Redis that has field times.
#[test]
fn redis_is_master_and_replica_of_hashes_with_times() {
    let master = redis(&[]);
    if !has_newer_oracle(&master) {
        return;
    }
    write(&mut master.connect());
    let replica = server(&[]);
    follow(&replica, &master);
    assert_equal(&master, &replica);
    master.connect().must("FLUSHALL");
    write(&mut master.connect());
    wait_for("the fields whose time is over to be removed", || {
        lengths(&mut master.connect()) == [2, 1998, 0]
    });
    assert_equal(&master, &replica);
    // The replica becomes the master of a Redis.
    replica.connect().must("REPLICAOF NO ONE");
    let mut conn = replica.connect();
    conn.must("HPEXPIRE small 4000000 FIELDS 1 f0");
    let port = replica.port().to_string();
    let follower = oracle(&["--replicaof", "127.0.0.1", &port]);
    let same = || {
        info(&follower, "replication", "master_link_status") == "up"
            && compare_state(&mut replica.connect(), &mut follower.connect(), 1, 0).is_none()
    };
    wait_for("the Redis has the data set", same);
    write(&mut conn);
    conn.must("HGETDEL kept FIELDS 1 a");
    wait_for("the fields whose time is over to be removed", || {
        lengths(&mut replica.connect()) == [2, 1998, 0]
    });
    wait_for("the Redis has the stream", same);
}

/// A Redis gets the members without times, from the data set and from the stream, and their removal
/// from the master. An RDB file and the tools keep the times.
#[test]
fn a_redis_replica_follows_sets_with_times() {
    let master = server(&[]);
    let mut conn = master.connect();
    conn.must("DEBUG SET-ACTIVE-EXPIRE 0");
    write_sets(&mut conn);
    let port = master.port().to_string();
    let follower = redis(&["--replicaof", "127.0.0.1", &port]);
    let holds = |members: [i64; 4]| {
        let mut there = follower.connect();
        info(&follower, "replication", "master_link_status") == "up"
            && ["few", "many", "over", "late"].map(|key| there.must(&format!("SCARD {key}")).int())
                == members
    };
    wait_for("the Redis has the data set", || {
        let mut there = follower.connect();
        there.cmd("SCARD many") == Value::Int(2000)
    });
    conn.must("SADDEX late PX 50 MEMBERS 2 a b");
    wait_for("the Redis has the stream", || holds([4, 2000, 2, 2]));
    conn.must("DEBUG SET-ACTIVE-EXPIRE 1");
    wait_for("the master removes members", || holds([2, 1998, 0, 0]));
}
