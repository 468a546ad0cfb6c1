//! A node keeps its keys in slots on the disk; another server does not.

use super::node;
use crate::replication::{assert_same, cut_links, flags, follow, info};
use crate::support::{Conn, Server, Value, seed, wait_for};
use crate::types::samples::{NOT_WHOLE, SAMPLES};
use kedis::base::slots;
use std::collections::{BTreeMap, BTreeSet};

fn count(conn: &mut Conn, slot: u16) -> i64 {
    conn.must(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).int()
}

fn names(reply: &Value) -> BTreeSet<String> {
    reply.items().iter().map(Value::text).collect()
}

/// The counts of all slots that have keys.
fn counts(conn: &mut Conn) -> BTreeMap<u16, i64> {
    let stats = conn.must("CLUSTER SLOT-STATS SLOTSRANGE 0 16383");
    let mut counts = BTreeMap::new();
    for (at, slot) in stats.items().iter().enumerate() {
        let [number, figures] = slot.items() else {
            panic!("{slot:?}");
        };
        assert_eq!(number.int(), at as i64);
        let keys = figures.pairs()[0].1.int();
        if keys > 0 {
            counts.insert(at as u16, keys);
        }
    }
    counts
}

/// The same, by the names of the keys.
fn counted(conn: &mut Conn) -> BTreeMap<u16, i64> {
    let mut counts = BTreeMap::new();
    for key in names(&conn.must("KEYS *")) {
        *counts.entry(slots::of_key(key.as_bytes())).or_default() += 1;
    }
    counts
}

fn check(conn: &mut Conn) {
    let report = conn.must("DEBUG KEDIS-CHECK").text();
    assert!(report.starts_with("keys: "), "{report}");
}

#[test]
fn counts_of_slots_are_exact_whatever_happens() {
    let seed = seed("KEDIS_CLUSTER_SEED");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = node(&["--appendfsync", "always"]);
    for round in 0..4 {
        let mut conn = server.connect();
        for _ in 0..400 {
            let tag = random.u8(..12);
            let mut key = || format!("{{t{tag}}}{}", random.u8(..20));
            let (a, b) = (key(), key());
            let line = match random.u8(..14) {
                0 => format!("DEL {a} {b}"),
                1 => format!("RENAME {a} {b}"),
                2 => format!("COPY {a} {b} REPLACE"),
                3 => format!("SADD {a} x y"),
                4 => format!("SPOP {a} 5"),
                5 => format!("SET {a} x PX 900000"),
                6 => format!("MSET {a} x {b} y"),
                7 => format!("EVAL redis.call('SET',KEYS[1],1)redis.call('NOPE') 1 {a}"),
                8 => format!("INCR {a}"),
                9 => format!("GETDEL {a}"),
                10 => format!("SINTERSTORE {a} {b}"),
                _ => format!("SET {a} x"),
            };
            // Some are refused, and change nothing.
            assert!(!matches!(conn.cmd(&line), Value::Lost(_)), "{line}");
        }
        if round == 2 {
            conn.must("FLUSHALL");
            assert_eq!(counts(&mut conn), BTreeMap::new());
            conn.must("SET {t0}x 1");
        }
        let expected = counted(&mut conn);
        assert_eq!(counts(&mut conn), expected);
        check(&mut conn);
        for slot in expected.keys() {
            let keys = conn.must(&format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
            assert_eq!(keys.items().len() as i64, count(&mut conn, *slot));
            let of = |key: &String| slots::of_key(key.as_bytes()) == *slot;
            assert!(names(&keys).iter().all(of), "{keys:?}");
        }
        match round % 2 {
            0 => {
                server.kill9();
                server.spawn();
            }
            _ => _ = server.restart(),
        }
        assert_eq!(counts(&mut server.connect()), expected);
    }
}

/// What is not committed yet counts, as far as the client can see it.
#[test]
fn counts_see_what_the_client_sees() {
    let server = node(&[]);
    let mut conn = server.connect();
    let slot = slots::of_key(b"a");
    let line = format!("CLUSTER COUNTKEYSINSLOT {slot}");
    let words: Vec<String> = ["SET a 1", &line, "SET {a}2 1", &line, "DEL a", &line]
        .map(str::to_owned)
        .into();
    let pipeline: Vec<_> = words
        .iter()
        .map(|line| crate::support::args(line))
        .collect();
    let replies = conn.pipeline(&pipeline);
    let counted = |at: usize| replies[at].int();
    assert_eq!((counted(1), counted(3), counted(5)), (1, 2, 1));
    for line in [
        "MULTI", "SET a 1", &line, "DEL a", "DEL {a}2", &line, "FLUSHALL", &line,
    ] {
        conn.must(line);
    }
    let replies = conn.must("EXEC");
    let counted: Vec<i64> = [1, 4, 6].map(|at: usize| replies.items()[at].int()).into();
    assert_eq!(counted, [2, 0, 0]);
    for (line, error) in [
        ("COUNTKEYSINSLOT 16384", "ERR Invalid slot"),
        ("COUNTKEYSINSLOT -1", "ERR Invalid slot"),
        (
            "COUNTKEYSINSLOT x",
            "ERR value is not an integer or out of range",
        ),
        (
            "GETKEYSINSLOT 16384 1",
            "ERR Invalid slot or number of keys",
        ),
        ("GETKEYSINSLOT 1 -1", "ERR Invalid slot or number of keys"),
        (
            "SLOT-STATS SLOTSRANGE 2 1",
            "ERR Start slot number 2 is greater than end slot number 1",
        ),
        (
            "SLOT-STATS SLOTSRANGE 0 16384",
            "ERR Invalid or out of range slot",
        ),
        (
            "SLOT-STATS ORDERBY nope",
            "ERR Unrecognized sort metric for ORDERBY.",
        ),
        (
            "SLOT-STATS ORDERBY cpu-usec",
            "ERR Unrecognized sort metric for ORDERBY.",
        ),
        (
            "SLOT-STATS ORDERBY key-count ASC DESC",
            "ERR Multiple filters of the same type are disallowed.",
        ),
        (
            "SLOT-STATS ORDERBY key-count LIMIT 0",
            "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
        ),
    ] {
        let reply = conn.cmd(&format!("CLUSTER {line}"));
        assert_eq!(reply.error().as_deref(), Some(error), "{line}");
    }
}

#[test]
fn slots_are_ordered_by_what_they_hold_and_take() {
    let server = node(&["--cluster-slot-stats-enabled", "yes"]);
    let mut conn = server.connect();
    conn.must("MSET {b}1 x {b}2 x {b}3 x");
    conn.must("MSET a x {a}2 x");
    let (a, b) = (slots::of_key(b"a"), slots::of_key(b"b"));
    let order = |conn: &mut Conn, line: &str| -> Vec<u16> {
        let reply = conn.must(&format!("CLUSTER SLOT-STATS ORDERBY {line}"));
        let slots = reply.items().iter();
        slots.map(|slot| slot.items()[0].int() as u16).collect()
    };
    assert_eq!(order(&mut conn, "key-count LIMIT 3"), [b, a, 0]);
    assert_eq!(order(&mut conn, "KEY-COUNT limit 2 asc"), [0, 1]);
    assert_eq!(order(&mut conn, "key-count").len(), 16_384);
    conn.must("CONFIG RESETSTAT");
    conn.call(&["SET", "a", &"x".repeat(1000)]);
    conn.must("GET a");
    conn.must("MULTI");
    conn.must("GET b");
    conn.must("EXEC");
    assert_eq!(order(&mut conn, "network-bytes-out LIMIT 2"), [a, b]);
    let figures = |conn: &mut Conn, slot: u16| -> Vec<(String, i64)> {
        let line = format!("CLUSTER SLOT-STATS SLOTSRANGE {slot} {slot}");
        let reply = conn.must(&line);
        let pairs = reply.items()[0].items()[1].pairs().into_iter();
        pairs
            .map(|(name, value)| (name.text(), value.int()))
            .collect()
    };
    let of_a = figures(&mut conn, a);
    // SET and GET, and their replies.
    assert_eq!(of_a[0], ("key-count".into(), 2));
    assert_eq!(of_a[1].0, "cpu-usec");
    assert_eq!(of_a[2], ("network-bytes-in".into(), 1029 + 20));
    assert_eq!(of_a[3], ("network-bytes-out".into(), 5 + 1009));
    // MULTI, GET, EXEC; the reply of EXEC.
    let of_b = figures(&mut conn, b);
    assert_eq!(of_b[2], ("network-bytes-in".into(), 15 + 20 + 14));
    assert_eq!(of_b[3], ("network-bytes-out".into(), 4 + 5));
}

/// A walk over the names of one slot does not pass the others.
#[test]
fn keys_are_found_in_their_slots() {
    let server = node(&[]);
    let mut conn = server.connect();
    for n in 0..500 {
        conn.must(&format!("SET key:{n} x"));
    }
    conn.must("MSET {t}a 1 x{t}b 2 {t}c 3");
    assert_eq!(names(&conn.must("KEYS *")).len(), 503);
    assert_eq!(
        names(&conn.must("KEYS {t}*")),
        BTreeSet::from(["{t}a".into(), "{t}c".into()])
    );
    assert_eq!(names(&conn.must("KEYS *{t}*")).len(), 3);
    assert_eq!(names(&conn.must("KEYS key:1?")).len(), 10);
    assert_eq!(names(&conn.must("KEYS key:17")).len(), 1);
    assert_eq!(names(&conn.must("KEYS nope")).len(), 0);
    let reply = conn.must("SCAN 0 MATCH {t}* COUNT 3");
    assert_eq!(
        (reply.items()[0].text(), reply.items()[1].items().len()),
        ("0".into(), 2)
    );
    for line in ["", "MATCH key:*", "MATCH key:*9", "MATCH *{t}* COUNT 7"] {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let reply = conn.must(&format!("SCAN {cursor} {line}"));
            found.extend(reply.items()[1].items().iter().map(Value::text));
            cursor = reply.items()[0].text();
            if cursor == "0" {
                break;
            }
        }
        let expected = match line {
            "" => 503,
            "MATCH key:*" => 500,
            "MATCH key:*9" => 50,
            _ => 3,
        };
        let distinct: BTreeSet<&String> = found.iter().collect();
        assert_eq!(
            (found.len(), distinct.len()),
            (expected, expected),
            "{line}"
        );
    }
    let drawn: BTreeSet<String> = (0..2000).map(|_| conn.must("RANDOMKEY").text()).collect();
    assert!(drawn.len() > 250, "{} of 503 keys are drawn", drawn.len());
    assert!(
        drawn
            .iter()
            .all(|key| conn.must(&format!("EXISTS {key}")) == Value::Int(1))
    );
    conn.must("SET {t}a 1 PX 1");
    wait_for("the expiry", || conn.must("DBSIZE") == Value::Int(502));
    assert_eq!(count(&mut conn, slots::of_key(b"t")), 2);
    check(&mut conn);
}

/// The text of a start that fails.
fn refusal(server: &Server, enabled: &str) -> String {
    let dir = server.data_dir();
    let output = Server::command(&dir, 0, &["--cluster-enabled", enabled])
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn a_database_with_keys_keeps_its_layout() {
    for (before, after, how) in [("no", "yes", "without slots"), ("yes", "no", "in slots")] {
        let mut server = Server::start(&["--cluster-enabled", before]);
        server.connect().must("SET a 1");
        server.terminate();
        let text = refusal(&server, after);
        let line = text.lines().find(|line| line.contains("kedis_port"));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(&format!("keeps its keys {how}")), "{line}");
        assert!(
            line.contains(&format!("`cluster-enabled {before}`")),
            "{line}"
        );
        // It is as it was.
        server.spawn();
        let mut conn = server.connect();
        assert_eq!(conn.must("GET a"), Value::bulk("1"));
        // Without keys the layout is chosen anew, whatever there was.
        conn.must("RPUSH {x}l 1 2 3");
        conn.must("FLUSHALL");
        server.terminate();
        server.flags[1] = after.into();
        server.spawn();
        let mut conn = server.connect();
        assert_eq!(conn.must("DBSIZE"), Value::Int(0));
        conn.must("SET b 2");
        server.restart();
        let mut conn = server.connect();
        assert_eq!(names(&conn.must("KEYS *")), BTreeSet::from(["b".into()]));
        if after == "yes" {
            assert_eq!(counts(&mut conn), counted(&mut conn));
        }
    }
}

fn is_up(replica: &Server) -> bool {
    info(replica, "replication", "master_link_status") == "up"
}

fn fill(conn: &mut Conn) {
    conn.must("DEBUG POPULATE 3000 key 20");
    for n in 0..200 {
        conn.must(&format!("SADD set:{n} a b c"));
        conn.must(&format!("SET gone:{n} x PX 900000"));
        conn.must(&format!("HSET {{t}}hash:{n} f v g w"));
    }
    let items: Vec<String> = (0..3000).map(|n| format!("item-{n}")).collect();
    conn.must(&format!("SADD many {}", items.join(" ")));
    for sample in SAMPLES
        .iter()
        .filter(|sample| !NOT_WHOLE.contains(&sample.key))
    {
        conn.must(&format!("DEL {}", sample.key));
        for line in sample.lines(sample.key) {
            conn.must(&line);
        }
    }
}

/// Servers with the same layout exchange rows, others what any Redis sends.
#[test]
fn masters_and_replicas_may_differ_in_their_layouts() {
    for (of_master, of_replica) in [("yes", "yes"), ("yes", "no"), ("no", "yes")] {
        let start = |enabled| Server::start(&flags(&["--cluster-enabled", enabled]));
        let (master, mut replica) = (start(of_master), start(of_replica));
        let mut conn = master.connect();
        fill(&mut conn);
        replica.connect().must("SET stale x");
        follow(&replica, &master);
        wait_for("a link", || is_up(&replica));
        fill(&mut conn);
        conn.must("SET later 1");
        for sample in SAMPLES
            .iter()
            .filter(|sample| !NOT_WHOLE.contains(&sample.key))
        {
            conn.must(&sample.change(sample.key, 1));
        }
        conn.must("EVAL redis.call('SET',KEYS[1],1)redis.call('INCR',KEYS[1]) 1 {t}scripted");
        conn.must("MULTI");
        conn.must("SET {t}m1 1");
        conn.must("SET {t}m2 1");
        conn.must("EXEC");
        let digest = |server: &Server| server.connect().must("DEBUG DIGEST");
        let same = |replica: &Server| {
            wait_for("the same data", || {
                is_up(replica) && digest(&master) == digest(replica)
            });
            check(&mut replica.connect());
        };
        same(&replica);
        let mut other = replica.connect();
        other.cmd("READONLY");
        assert_eq!(other.must("GET later"), Value::bulk("1"));
        if of_master == of_replica {
            assert_same(&master, &replica);
        }
        if of_replica == "yes" {
            assert_eq!(counts(&mut other), counted(&mut other));
        }
        // A break of the link, and a restart.
        cut_links(&master);
        conn.must("SET after-break 1");
        same(&replica);
        replica.kill9();
        conn.must("SET while-away 1");
        replica.spawn();
        follow(&replica, &master);
        same(&replica);
        let mut other = replica.connect();
        if of_replica == "yes" {
            assert_eq!(counts(&mut other), counted(&mut other));
        }
        other.must("REPLICAOF NO ONE");
        other.must("SET own 1");
        check(&mut other);
    }
}

/// A node has one DB.
#[test]
fn a_node_does_not_follow_a_server_with_keys_in_other_dbs() {
    let master = Server::start(&[]);
    let mut conn = master.connect();
    conn.must("SET a 1");
    conn.must("SELECT 3");
    conn.must("SET b 1");
    let replica = node(&[]);
    follow(&replica, &master);
    wait_for("a reason in the log", || replica.log().contains("DB 3"));
    assert_eq!(info(&replica, "replication", "master_link_status"), "down");
    conn.must("DEL b");
    wait_for("a link", || {
        is_up(&replica) && replica.connect().must("DBSIZE") == Value::Int(1)
    });
}

#[test]
fn copies_and_files_hold_the_keys_of_slots() {
    let server = node(&[]);
    let mut conn = server.connect();
    fill(&mut conn);
    let digest = conn.must("DEBUG DIGEST");
    let expected = counts(&mut conn);
    let file = server.data_dir().join("export.rdb");
    conn.must("BGSAVE RDB");
    wait_for("the file", || {
        file.exists() && conn.info_number("persistence", "rdb_bgsave_in_progress") == 0
    });
    for enabled in ["yes", "no"] {
        let flags = [
            "--cluster-enabled",
            enabled,
            "--enable-debug-command",
            "yes",
        ];
        let mut flags = flags.to_vec();
        let path = file.display().to_string();
        flags.extend(["--load-rdb", &path]);
        let loaded = Server::start(&flags);
        wait_for("the file", || {
            loaded.connect().cmd("DEBUG DIGEST") == digest
        });
        let mut conn = loaded.connect();
        check(&mut conn);
        if enabled == "yes" {
            assert_eq!(counts(&mut conn), expected);
        }
    }
}
