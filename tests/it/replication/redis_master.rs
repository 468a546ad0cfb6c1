//! Replicas of redis-server: the data and the stream, broken connections and killed processes,
//! replicas of the replica, promotion.
//!
//! At the end of a test both are equal key by key.
//!
//! - this file: masters that are a redis-server
//! - `scripted`: masters that the test simulates

pub mod scripted;

use std::time::{Duration, Instant};

use super::load::Load;
use super::{assert_same, eventually, figure, follow, follow_from_start, info, server, syncs};
use crate::differential::run::compare_state;
use crate::support::{Proxy, Server, Value, oracle, seed, wait_for, wait_within};

/// DBs that the tests write to.
const DBS: i64 = 6;

/// A Redis that pings often and starts a full sync without delay.
pub fn redis(more: &[&str]) -> Server {
    let mut flags = vec![
        "--enable-debug-command",
        "yes",
        "--repl-diskless-sync-delay",
        "0",
        "--repl-ping-replica-period",
        "1",
    ];
    flags.extend_from_slice(more);
    oracle(&flags)
}

fn offset(server: &Server, name: &str) -> i64 {
    figure(server, "replication", name)
}

/// Whether a replica has everything that its Redis master has sent.
fn has_everything(master: &Server, replica: &Server) -> bool {
    info(replica, "replication", "master_link_status") == "up"
        && offset(master, "master_repl_offset") == offset(replica, "slave_repl_offset")
}

/// Checks that a Kedis and a Redis have the same data.
fn assert_no_difference(kedis: &Server, redis: &Server) {
    let mut found = None;
    // Keys may expire between the two reads.
    let same = wait_within(Duration::from_secs(10), || {
        found = compare_state(&mut kedis.connect(), &mut redis.connect(), DBS, 0);
        found.is_none()
    });
    let difference = found.map(|found| found.summary()).unwrap_or_default();
    assert!(same, "they differ:\n{difference}");
}

/// Waits until a replica has everything of its Redis master; checks that both are equal.
pub fn assert_equal(master: &Server, replica: &Server) {
    wait_for("the replica has everything", || {
        has_everything(master, replica)
    });
    assert_no_difference(replica, master);
    let libraries = |server: &Server| server.connect().must("FUNCTION LIST WITHCODE");
    assert_eq!(libraries(master), libraries(replica));
    let report = replica.connect().must("DEBUG KEDIS-CHECK").text();
    assert!(report.starts_with("keys: "), "{report}");
}

/// Writes all types in all encodings of Redis, in several DBs.
fn fill(master: &Server) {
    let mut conn = master.connect();
    let long = "x".repeat(200);
    for db in [0, 3] {
        conn.must(&format!("SELECT {db}"));
        for line in [
            "SET string value",
            "SET number 12345",
            "SET timed x PXAT 32503680000000",
            "SETRANGE sparse 100000 end",
            "PFADD hll a b c d",
            "SETBIT bits 77777 1",
            "SADD ints 1 2 3",
            "SADD words a b c",
            "RPUSH list a b c 1 2 3",
            "HSET hash f v g w",
            "ZADD zset 1.5 a -inf b 3 c",
            "XADD stream 1-1 f v",
            "XADD stream 2-1 g w",
            "XGROUP CREATE stream group 0",
            "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
        ] {
            conn.must(line);
        }
        for n in 0..2_000 {
            conn.must(&format!("RPUSH long-list {n} {long}"));
            conn.must(&format!("HSET large-hash field-{n} {long}"));
            conn.must(&format!("SADD large-set member-{n}"));
            conn.must(&format!("ZADD large-zset {n}.25 member-{n}"));
            conn.must(&format!("XADD large-stream {}-0 f {n}", n + 1));
        }
    }
    let code = "#!lua name=lib\n\
        redis.register_function{function_name='f', flags={'no-writes'}, callback=function() return 'f' end}";
    conn.call(&["FUNCTION", "LOAD", code]);
}

#[test]
fn all_types_arrive_with_and_without_a_file_at_the_master() {
    for diskless in ["no", "yes"] {
        let master = redis(&["--repl-diskless-sync", diskless]);
        fill(&master);
        let replica = server(&[]);
        replica.connect().must("SET old x");
        follow(&replica, &master);
        assert_equal(&master, &replica);
        assert_eq!(replica.connect().must("FCALL f 0"), Value::bulk("f"));
        // Later changes arrive too.
        let mut conn = master.connect();
        for line in [
            "SELECT 3",
            "RPOP list 2",
            "SPOP words",
            "INCRBYFLOAT number 1.5",
            "EXPIRE hash 1000",
            "SELECT 5",
            "SET five 5 EX 1000",
            "MULTI",
            "INCR counter",
            "LPUSH list new",
            "EXEC",
            "SWAPDB 3 4",
            "SELECT 4",
            "XADD stream * f v",
            "XREADGROUP GROUP group other STREAMS stream >",
            "XTRIM large-stream MAXLEN ~ 100",
            "COPY list copied DB 1",
            "MOVE string 2",
            "FUNCTION DELETE lib",
        ] {
            conn.must(line);
        }
        let script = "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('RPUSH', KEYS[2], 1)";
        conn.call(&["EVAL", script, "2", "scripted", "list", "value"]);
        assert_equal(&master, &replica);
        conn.must("FLUSHALL");
        conn.must("SET last x");
        assert_equal(&master, &replica);
        assert_eq!(syncs(&master).0, 1);
    }
}

/// The old data is served until the new data is complete, and INFO shows the progress.
#[test]
fn a_full_sync_that_stalls_leaves_the_old_data() {
    let master = redis(&[]);
    master.connect().must("DEBUG POPULATE 20000 key 1000");
    let proxy = Proxy::to(master.address(), 1);
    let replica = server(&[]);
    replica.connect().must("SET old x");
    let line = format!("REPLICAOF 127.0.0.1 {}", proxy.port());
    replica.connect().must(&line);
    let syncing = || info(&replica, "replication", "master_sync_in_progress") == "1";
    let mut stalled = false;
    wait_for("a sync that stalls in the middle", || {
        proxy.set_silent(false);
        wait_within(Duration::from_secs(5), syncing);
        proxy.set_silent(true);
        // Data in flight has arrived when nothing has come for a second.
        wait_for("silence, or the end of the sync", || {
            let text = replica.connect().must("INFO replication").text();
            !text.contains("master_sync_in_progress:1")
                || !text.contains("master_sync_last_io_seconds_ago:0")
        });
        stalled = syncing();
        if !stalled {
            // The sync was too fast: try again.
            replica.connect().must("REPLICAOF NO ONE");
            replica.connect().must("FLUSHALL");
            replica.connect().must("SET old x");
            replica.connect().must(&line);
        }
        stalled
    });
    assert_eq!(replica.connect().must("GET old"), Value::bulk("x"));
    assert_eq!(replica.connect().must("DBSIZE"), Value::Int(1));
    proxy.cut();
    proxy.set_silent(false);
    assert_equal(&master, &replica);
    assert_eq!(replica.connect().must("GET old"), Value::NullBulk);
}

#[test]
fn a_cut_link_resumes_at_its_position() {
    let master = redis(&[]);
    let proxy = Proxy::to(master.address(), 2);
    let replica = server(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {}", proxy.port());
    replica.connect().must(&line);
    let mut conn = master.connect();
    conn.must("SELECT 5");
    conn.must("INCR counter");
    assert_equal(&master, &replica);
    for round in 0..5 {
        proxy.cut();
        // In the DB that the stream had selected before it was cut.
        for _ in 0..100 {
            conn.must("INCR counter");
            conn.must("RPUSH list x");
        }
        assert_equal(&master, &replica);
        assert_eq!(syncs(&master), (1, round + 1));
    }
}

/// The offset is part of the batch: no command is applied twice or skipped.
#[test]
fn a_killed_replica_goes_on_exactly_where_it_was() {
    let seed = seed("KEDIS_REPLICATION_SEED");
    let mut rng = fastrand::Rng::with_seed(seed);
    let master = redis(&["--repl-backlog-size", "256mb"]);
    let mut replica = server(&[]);
    follow(&replica, &master);
    follow_from_start(&mut replica, &master);
    assert_equal(&master, &replica);
    let load = Load::start_on_redis(&master, 2, seed);
    const KILLS: i64 = 6;
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(rng.u64(50..400)));
        replica.kill9();
        replica.spawn();
        let up = || info(&replica, "replication", "master_link_status") == "up";
        wait_for("the link", up);
    }
    load.stop();
    assert_equal(&master, &replica);
    assert_eq!(syncs(&master), (1, KILLS));
    // A graceful restart as well.
    replica.restart();
    assert_equal(&master, &replica);
    assert_eq!(syncs(&master), (1, KILLS + 1));
}

/// A server that has written since then must not continue the old stream.
#[test]
fn what_was_written_in_between_costs_a_full_sync() {
    for binlog in ["yes", "no"] {
        let master = redis(&[]);
        let mut replica = server(&["--binlog-enabled", binlog]);
        follow(&replica, &master);
        master.connect().must("SET shared 1");
        assert_equal(&master, &replica);
        // The configuration names no master: it starts as one.
        replica.restart();
        assert_eq!(info(&replica, "replication", "role"), "master");
        replica.connect().must("SET stray x");
        follow(&replica, &master);
        assert_equal(&master, &replica);
        assert_eq!(syncs(&master), (2, 0));
        replica.connect().must("REPLICAOF NO ONE");
        replica.connect().must("SET stray x");
        follow(&replica, &master);
        assert_equal(&master, &replica);
        assert_eq!(syncs(&master).0, 3);
        // Nothing was written in between.
        replica.restart();
        follow(&replica, &master);
        assert_equal(&master, &replica);
        assert_eq!(syncs(&master), (3, 1));
    }
}

#[test]
fn without_the_masters_backlog_there_is_a_full_sync() {
    let master = redis(&["--repl-backlog-size", "16kb"]);
    let proxy = Proxy::to(master.address(), 3);
    let replica = server(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {}", proxy.port());
    replica.connect().must(&line);
    assert_equal(&master, &replica);
    proxy.set_silent(true);
    proxy.cut();
    let mut conn = master.connect();
    let value = "x".repeat(1000);
    for n in 0..2000 {
        conn.must(&format!("SET key-{n} {value}"));
    }
    proxy.set_silent(false);
    proxy.cut();
    assert_equal(&master, &replica);
    assert_eq!(syncs(&master).0, 2);
}

#[test]
fn a_restarted_master_is_followed_on() {
    let dir_saves = ["--save", "3600 1"];
    let mut master = redis(&dir_saves);
    let replica = server(&[]);
    follow(&replica, &master);
    fill(&master);
    assert_equal(&master, &replica);
    // Its RDB file has the id and offset, so it continues its history under another id.
    master.terminate();
    master.spawn();
    master.connect().must("SET after x");
    assert_equal(&master, &replica);
    assert_eq!(syncs(&master), (0, 1));
    // After a kill it has lost unsaved writes, and the replica loses them too.
    master.connect().must("SET lost x");
    assert_equal(&master, &replica);
    master.kill9();
    master.spawn();
    assert_equal(&master, &replica);
    assert_eq!(replica.connect().must("EXISTS lost"), Value::Int(0));
}

/// Their fragments are written before the meta row; after a restart they were zeros.
#[test]
fn long_strings_of_the_data_set_outlive_a_restart() {
    let master = redis(&[]);
    let mut conn = master.connect();
    for (key, bytes) in [("a", 100_000), ("b", 1_100_000), ("c", 5_000_000)] {
        conn.must(&format!("SETRANGE {key} {} end", bytes - 3));
        conn.must(&format!("SETRANGE {key} 0 {}", "begin".repeat(bytes / 10)));
    }
    let mut replica = server(&[]);
    follow(&replica, &master);
    follow_from_start(&mut replica, &master);
    for _ in 0..3 {
        assert_equal(&master, &replica);
        replica.kill9();
        replica.spawn();
    }
}

/// The Redis gets only what is in the binlog of its master, so pings must be in it.
#[test]
fn a_redis_behind_an_idle_replica_of_a_kedis_keeps_its_link() {
    let ping = ["--repl-ping-replica-period", "1"];
    let (master, middle) = (server(&ping), server(&ping));
    let redis = redis(&["--repl-timeout", "5"]);
    follow(&middle, &master);
    follow(&redis, &middle);
    let is_up = || info(&redis, "replication", "master_link_status") == "up";
    wait_for("the link", is_up);
    // The first write begins a new history.
    master.connect().must("SET first 1");
    wait_for("the first write", || {
        redis.connect().must("EXISTS first") == Value::Int(1) && is_up()
    });
    let before = syncs(&middle);
    // More than twice its timeout.
    const PINGS: i64 = 12;
    const PING: &str = "*1\r\n$4\r\nPING\r\n";
    let start = offset(&redis, "slave_repl_offset");
    wait_for("pings of the log", || {
        assert!(is_up());
        offset(&redis, "slave_repl_offset") >= start + PINGS * PING.len() as i64
    });
    assert_eq!(syncs(&middle), before);
}

/// Pub/sub messages, pings and effects reach Kedis and Redis replicas of the replica.
#[test]
fn replicas_of_the_replica_follow_on() {
    let master = redis(&[]);
    let mut middle = server(&["--repl-ping-replica-period", "1"]);
    follow(&middle, &master);
    follow_from_start(&mut middle, &master);
    fill(&master);
    assert_equal(&master, &middle);
    let (kedis, redis) = (server(&[]), redis(&[]));
    follow(&kedis, &middle);
    follow(&redis, &middle);
    let same = |middle: &Server, what: &str| {
        assert_equal(&master, middle);
        assert_same(middle, &kedis);
        wait_for(what, || {
            offset(middle, "master_repl_offset") == offset(&redis, "slave_repl_offset")
                && info(&redis, "replication", "master_link_status") == "up"
        });
        assert_no_difference(middle, &redis);
    };
    same(&middle, "the Redis at the end has everything");
    let mut listeners = [&middle, &kedis].map(|server| {
        let mut conn = server.connect();
        conn.must("SUBSCRIBE news");
        conn
    });
    let mut conn = master.connect();
    conn.must("SET before x");
    conn.must("PUBLISH news hello");
    for listener in &mut listeners {
        assert_eq!(listener.read().unwrap().items()[2], Value::bulk("hello"));
    }
    // The offsets stay equal while only pings are sent.
    let until = Instant::now() + Duration::from_secs(4);
    wait_within(Duration::from_secs(5), || Instant::now() >= until);
    let load = Load::start_on_redis(&master, 1, 4);
    wait_for("some load", || load.written() > 3_000);
    load.stop();
    same(&middle, "the Redis at the end goes on");
    assert_eq!(syncs(&middle).0, 2, "a full sync");
    // First the connections to the replica break, then its own.
    middle.connect().must("CLIENT KILL TYPE replica");
    conn.must("SET after-the-cut x");
    same(&middle, "the Redis comes back");
    assert_eq!(syncs(&middle).0, 2, "a full sync");
    middle.connect().must("CLIENT KILL TYPE master");
    conn.must("SET after-the-other-cut x");
    same(&middle, "all go on");
    assert_eq!(syncs(&middle).0, 2, "a full sync");
    // A new data set reaches the replicas of the replica.
    middle.connect().must("REPLICAOF NO ONE");
    middle.connect().must("SET stray x");
    follow(&middle, &master);
    same(&middle, "all begin anew");
    assert_eq!(kedis.connect().must("EXISTS stray"), Value::Int(0));
    // After a kill it continues its binlog for its replicas, under another id.
    let id = info(&middle, "replication", "master_replid");
    middle.kill9();
    middle.spawn();
    conn.must("SET after-the-crash x");
    same(&middle, "all go on after a crash");
    assert_eq!(syncs(&middle).0, 0, "a full sync");
    assert_ne!(info(&middle, "replication", "master_replid"), id);
}

#[test]
fn a_promoted_replica_is_a_master() {
    let mut master = redis(&[]);
    let mut replica = server(&[]);
    follow(&replica, &master);
    fill(&master);
    assert_equal(&master, &replica);
    let before = info(&replica, "replication", "master_replid");
    master.kill9();
    wait_for("the link is down", || {
        info(&replica, "replication", "master_link_status") == "down"
    });
    let reply = replica.connect().cmd("SET k v");
    assert_eq!(
        reply.error().as_deref(),
        Some("READONLY You can't write against a read only replica.")
    );
    replica.connect().must("REPLICAOF NO ONE");
    assert_ne!(info(&replica, "replication", "master_replid"), before);
    replica.connect().must("SET k v");
    replica.restart();
    assert_eq!(replica.connect().must("GET k"), Value::bulk("v"));
    // The old master becomes its replica.
    master.spawn();
    let line = format!("REPLICAOF 127.0.0.1 {}", replica.port());
    master.connect().must(&line);
    wait_for("the old master follows", || {
        info(&master, "replication", "master_link_status") == "up"
            && offset(&master, "slave_repl_offset") == offset(&replica, "master_repl_offset")
    });
    assert_no_difference(&replica, &master);
}

/// FAILOVER of the Redis to its replica, and back.
#[test]
fn masters_hand_over_in_both_directions() {
    let redis = redis(&[]);
    let kedis = server(&[]);
    follow(&kedis, &redis);
    fill(&redis);
    assert_equal(&redis, &kedis);
    let hand_over = |from: &Server, to: &Server| {
        let line = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 20000", to.port());
        from.connect().must(&line);
        wait_for("the roles change", || {
            info(from, "replication", "role") == "slave"
                && info(to, "replication", "role") == "master"
                && info(from, "replication", "master_link_status") == "up"
                && info(from, "replication", "master_failover_state") == "no-failover"
        });
    };
    hand_over(&redis, &kedis);
    kedis.connect().must("SET written-to kedis");
    wait_for("the Redis has everything", || {
        offset(&redis, "slave_repl_offset") == offset(&kedis, "master_repl_offset")
    });
    let full = syncs(&redis).0;
    hand_over(&kedis, &redis);
    redis.connect().must("SET written-to redis");
    assert_equal(&redis, &kedis);
    assert_eq!(kedis.connect().must("GET written-to"), Value::bulk("redis"));
    // The Redis has continued the history that it got from Kedis.
    assert_eq!(syncs(&redis).0, full, "a full sync");
}

/// Only the master deletes expired keys, whatever the replica's clock says.
#[test]
fn keys_expire_when_the_master_says_so() {
    let master = redis(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    let mut conn = master.connect();
    conn.must("DEBUG SET-ACTIVE-EXPIRE 0");
    conn.must("SET short x PX 20");
    conn.must("HSET gone f v");
    conn.must("PEXPIRE gone 20");
    conn.must("SET stays x PX 20000");
    assert_equal_offsets(&master, &replica);
    let mut ours = replica.connect();
    wait_for("its time is over", || {
        ours.must("GET short") == Value::NullBulk
    });
    let until = Instant::now() + Duration::from_millis(500);
    wait_within(Duration::from_secs(1), || Instant::now() >= until);
    assert_eq!(ours.must("DBSIZE"), Value::Int(3));
    // A full sync includes them.
    let another = server(&[]);
    follow(&another, &master);
    assert_equal_offsets(&master, &another);
    assert_eq!(another.connect().must("DBSIZE"), Value::Int(3));
    conn.must("DEBUG SET-ACTIVE-EXPIRE 1");
    wait_for("the master deletes them", || {
        [&replica, &another]
            .iter()
            .all(|server| server.connect().must("DBSIZE") == Value::Int(1))
    });
    assert_equal(&master, &replica);
}

fn assert_equal_offsets(master: &Server, replica: &Server) {
    wait_for("the replica has everything", || {
        has_everything(master, replica)
    });
}

/// The oldest masters know only SYNC.
#[test]
fn a_master_without_psync_is_followed_by_sync() {
    let master = redis(&["--rename-command", "PSYNC", ""]);
    fill(&master);
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("the link", || {
        info(&replica, "replication", "master_link_status") == "up"
    });
    master.connect().must("SET after sync");
    let same = wait_within(Duration::from_secs(20), || {
        compare_state(&mut replica.connect(), &mut master.connect(), DBS, 0).is_none()
    });
    assert!(same, "the data differ");
    // Every connection starts with a full sync.
    replica.connect().must("CLIENT KILL TYPE master");
    master.connect().must("SET later x");
    wait_for("the second data set", || {
        replica.connect().must("GET later") == Value::bulk("x")
    });
    assert_eq!(syncs(&master).0, 2);
}

#[test]
fn passwords_and_users_of_the_master() {
    let master = redis(&["--requirepass", "secret"]);
    let mut conn = master.connect();
    conn.must("AUTH secret");
    conn.must("ACL SETUSER repl on >pass +psync +replconf +ping");
    conn.must("SET k v");
    let replica = server(&[]);
    follow(&replica, &master);
    wait_for("the refusal", || replica.log().contains("NOAUTH"));
    for (user, password) in [("", "secret"), ("repl", "pass")] {
        replica.connect().must("REPLICAOF NO ONE");
        replica.connect().must("FLUSHALL");
        let mut ours = replica.connect();
        ours.call(&["CONFIG", "SET", "masteruser", user]);
        ours.call(&["CONFIG", "SET", "masterauth", password]);
        follow(&replica, &master);
        wait_for("the data", || ours.must("GET k") == Value::bulk("v"));
    }
}

#[test]
fn a_master_with_more_databases_is_refused() {
    let master = redis(&["--databases", "32"]);
    let replica = server(&[]);
    replica.connect().must("SET old x");
    follow(&replica, &master);
    wait_for("the refusal", || {
        replica
            .log()
            .contains("the master has more databases than this server, which has 16")
    });
    assert_eq!(replica.connect().must("GET old"), Value::bulk("x"));
    assert_eq!(syncs(&master).0, 0);
    let larger = server(&["--databases", "32"]);
    follow(&larger, &master);
    let mut conn = master.connect();
    conn.must("SELECT 31");
    conn.must("SET k v");
    assert_equal(&master, &larger);
    let mut ours = larger.connect();
    ours.must("SELECT 31");
    assert_eq!(ours.must("GET k"), Value::bulk("v"));
}

/// Redis sends positions as ZADD, and searches that are stored as they are.
#[test]
fn positions_and_stored_searches_are_the_same_here() {
    let master = redis(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    assert_equal_offsets(&master, &replica);
    let mut conn = master.connect();
    conn.must("GEOADD places 13.36 38.11 Palermo 15.09 37.5 Catania 2.35 48.86 Paris");
    conn.must("GEOSEARCHSTORE near places FROMLONLAT 15 37 BYRADIUS 500 km");
    conn.must("GEOSEARCHSTORE far places FROMMEMBER Paris BYBOX 9000 9000 km STOREDIST");
    conn.must("GEORADIUS places 15 37 500 mi STOREDIST distances");
    conn.must("GEORADIUSBYMEMBER places Palermo 500 km STORE members");
    assert_equal(&master, &replica);
    assert_eq!(replica.connect().must("ZCARD near"), Value::Int(2));
}

/// WAIT at the master counts the replica; ROLE and INFO show what a Redis replica would.
#[test]
fn the_master_learns_the_offset_of_its_replica() {
    let master = redis(&[]);
    let replica = server(&[]);
    follow(&replica, &master);
    assert_equal_offsets(&master, &replica);
    let mut conn = master.connect();
    for n in 0..20 {
        conn.must(&format!("SET key-{n} x"));
        assert_eq!(conn.must("WAIT 1 10000"), Value::Int(1));
        assert_eq!(
            replica.connect().must(&format!("GET key-{n}")),
            Value::bulk("x")
        );
    }
    let seen = conn.must("INFO replication").text();
    let expected = format!("slave0:ip=127.0.0.1,port={},state=online", replica.port());
    assert!(seen.contains(&expected), "{seen}");
    wait_for("ROLE tells the master's offset", || {
        let role = replica.connect().must("ROLE");
        role.items()[3].text() == "connected"
            && role.items()[4].int() == offset(&master, "master_repl_offset")
    });
    // With the link down it still reports its offset.
    let at = offset(&replica, "slave_repl_offset");
    drop((conn, master));
    wait_for("the link is down", || {
        info(&replica, "replication", "master_link_status") == "down"
    });
    assert!(offset(&replica, "slave_repl_offset") >= at);
}

/// A transaction is applied atomically, even if it arrives in pieces.
#[test]
fn a_transaction_that_comes_in_pieces_is_one_batch() {
    let master = redis(&[]);
    let proxy = Proxy::to(master.address(), 5);
    let replica = server(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {}", proxy.port());
    replica.connect().must(&line);
    assert_equal(&master, &replica);
    proxy.set_lossy(true);
    let value = "x".repeat(100_000);
    let mut conn = master.connect();
    for n in 0..30 {
        let mut lines: Vec<Vec<Vec<u8>>> = vec![vec![b"MULTI".to_vec()]];
        for part in 0..10 {
            let key = format!("part-{part}");
            let value = format!("{n}-{value}");
            lines.push(
                ["SET", &key, &value]
                    .map(|word| word.as_bytes().to_vec())
                    .into(),
            );
        }
        lines.push(vec![b"EXEC".to_vec()]);
        conn.pipeline(&lines);
        let mut reader = replica.connect();
        let keys: Vec<String> = (0..10).map(|part| format!("part-{part}")).collect();
        let seen = reader.must(&format!("MGET {}", keys.join(" ")));
        let first = seen.items()[0].clone();
        assert!(seen.items().iter().all(|value| *value == first), "torn");
    }
    proxy.set_lossy(false);
    assert_equal(&master, &replica);
}

/// Random failures of master, replica and network: both are equal in the end.
#[test]
fn links_and_processes_die_under_load() {
    let seed = seed("KEDIS_REPLICATION_SEED");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut master = redis(&["--appendonly", "yes", "--appendfsync", "always"]);
    let proxy = Proxy::to(master.address(), seed);
    let mut replica = server(&["--repl-timeout", "3"]);
    let port = proxy.port().to_string();
    replica
        .flags
        .extend(["--replicaof", "127.0.0.1", &port].map(str::to_owned));
    replica.restart();
    let load = Load::start_on_redis(&master, 2, seed);
    for _ in 0..25 {
        std::thread::sleep(Duration::from_millis(rng.u64(20..400)));
        match rng.u32(..10) {
            0..3 => {
                replica.kill9();
                replica.spawn();
            }
            3 => {
                master.kill9();
                master.spawn();
            }
            4..7 => proxy.cut(),
            7 => proxy.set_lossy(rng.bool()),
            8 => {
                replica.terminate();
                replica.spawn();
            }
            _ => {
                eventually(&master, "DEBUG CHANGE-REPL-ID");
                proxy.cut();
            }
        }
    }
    proxy.set_lossy(false);
    load.stop();
    assert_equal(&master, &replica);
    println!("{:?} syncs since the master's last start", syncs(&master));
}
