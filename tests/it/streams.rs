//! Streams on Kedis and Redis replicas, and waits that end because a stream expires.

use crate::replication::load::stream_command;
use crate::replication::{assert_same, follow, is_caught_up, server};
use crate::support::{Conn, Server, Value, args, oracle, wait_for, wait_within};
use std::time::Duration;

#[test]
fn a_stream_that_expires_ends_the_wait_of_its_groups() {
    let server = server(&[]);
    let mut conn = server.connect();
    conn.must("XGROUP CREATE s g $ MKSTREAM");
    let mut waiting = server.connect();
    let line = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
    waiting.send(&args(line)).unwrap();
    wait_for("the wait", || {
        conn.must("INFO clients")
            .text()
            .contains("blocked_clients:1")
    });
    // No other client accesses the key.
    conn.must("PEXPIRE s 50");
    let error = waiting.read().unwrap().error().expect("an error");
    assert!(error.starts_with("NOGROUP No such key 's'"), "{error}");
}

/// What ends a wait is bounded as a read without one.
#[test]
fn waits_answer_within_maxcount_and_maxsize() {
    let server = server(&[]);
    let mut conn = server.connect();
    for limits in ["MAXCOUNT 2", "MAXSIZE 100", "MAXCOUNT 2 MAXSIZE 100000"] {
        conn.must("FLUSHALL");
        let mut waiting = server.connect();
        let line = format!("XREAD BLOCK 0 {limits} STREAMS s other 0 0");
        waiting.send(&args(&line)).unwrap();
        wait_for("the wait", || {
            conn.must("INFO clients")
                .text()
                .contains("blocked_clients:1")
        });
        conn.must("MULTI");
        for n in 1..=4 {
            conn.must(&format!("XADD s {n}-1 field {}", "v".repeat(30)));
        }
        conn.must("EXEC");
        let reply = waiting.read().unwrap();
        let read = conn.must(&format!("XREAD {limits} STREAMS s other 0 0"));
        assert_eq!(reply, read, "{limits}");
        let entries = read.items()[0].items()[1].items().len();
        assert!((1..4).contains(&entries), "{limits}: {entries}");
    }
}

#[test]
fn clients_of_a_replica_wait_for_what_the_master_adds() {
    let (master, replica) = (server(&[]), server(&[]));
    follow(&replica, &master);
    wait_for("the link", || is_caught_up(&master, &replica));
    let mut waiting: Vec<Conn> = (0..3).map(|_| replica.connect()).collect();
    for conn in &mut waiting {
        conn.send(&args("XREAD BLOCK 0 STREAMS s $")).unwrap();
    }
    wait_for("the waits", || {
        let info = replica.connect().must("INFO clients").text();
        info.contains("blocked_clients:3")
    });
    master.connect().must("XADD s 1 f v");
    for conn in &mut waiting {
        let reply = format!("{:?}", conn.read().unwrap());
        assert_eq!(reply, "*1[*2[$s, *1[*2[$1-0, *2[$f, $v]]]]]");
    }
    assert_same(&master, &replica);
}

/// A Redis that follows has the same streams, groups and pending entries.
#[test]
fn a_redis_that_follows_has_the_same_streams() {
    let master = server(&[]);
    let mut conn = master.connect();
    let mut rng = fastrand::Rng::with_seed(11);
    let mut work = |conn: &mut Conn, commands: u32| {
        for _ in 0..commands {
            conn.cmd(&stream_command(&mut rng));
        }
    };
    work(&mut conn, 800);
    let replica = oracle(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {}", master.port());
    assert_eq!(replica.connect().cmd(&line), Value::ok());
    // Some commands are in the data set, some in the stream after it.
    work(&mut conn, 800);
    same_streams(&master, &replica);
    work(&mut conn, 800);
    same_streams(&master, &replica);
}

fn same_streams(master: &Server, replica: &Server) {
    let look = |server: &Server| {
        let mut conn = server.connect();
        let infos = (0..6).map(|n| {
            let info = conn.cmd(&format!("XINFO STREAM x{n} FULL COUNT 0"));
            format!("{:?}", plain(&info))
        });
        infos.collect::<Vec<String>>()
    };
    let same = wait_within(Duration::from_secs(20), || look(master) == look(replica));
    if !same {
        assert_eq!(look(master), look(replica));
    }
}

/// Without fields that 7.0 lacks or counts differently, fields about memory, and times of
/// consumers.
fn plain(info: &Value) -> Value {
    let Value::Array(items) = info else {
        return info.clone();
    };
    const LEFT_OUT: [&str; 12] = [
        "idmp-duration",
        "idmp-maxsize",
        "pids-tracked",
        "iids-tracked",
        "iids-added",
        "iids-duplicates",
        "nacked-count",
        "radix-tree-keys",
        "radix-tree-nodes",
        "seen-time",
        "active-time",
        "lag",
    ];
    let mut plain_items = Vec::new();
    let mut rest = items.iter();
    while let Some(item) = rest.next() {
        match item {
            Value::Bulk(name) if LEFT_OUT.iter().any(|left| left.as_bytes() == name) => {
                rest.next();
            }
            item => plain_items.push(plain(item)),
        }
    }
    Value::Array(plain_items)
}

/// XDELEX, XACKDEL and the reference words, beside an oracle that knows them: `KEDIS_ORACLE`
/// names one, since that of the other tests is older.
#[test]
fn references_are_those_of_redis_8() {
    let (server, theirs) = (server(&[]), oracle(&[]));
    let (mut ours, mut theirs) = (server.connect(), theirs.connect());
    let asked = theirs.cmd("XDELEX s IDS 1 1");
    if asked
        .error()
        .is_some_and(|error| error.starts_with("ERR unknown command"))
    {
        return;
    }
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut next_id = 1;
        for _ in 0..400 {
            let line = reference_command(&mut rng, &mut next_id);
            let (our, their) = (ours.cmd(&line), theirs.cmd(&line));
            assert_eq!(
                format!("{our:?}"),
                format!("{their:?}"),
                "seed {seed}: {line}"
            );
        }
        ours.must("FLUSHALL");
        theirs.must("FLUSHALL");
    }
}

fn reference_command(rng: &mut fastrand::Rng, next_id: &mut u32) -> String {
    let (group, few) = (rng.u32(..3), rng.u32(1..5));
    let id = rng.u32(1..*next_id + 2);
    let word = rng
        .choice(["", "KEEPREF ", "DELREF ", "ACKED "])
        .expect("some");
    match rng.u32(..16) {
        0..5 => {
            *next_id += 1;
            format!("XADD s {word}MAXLEN = {} {next_id}-0 f v", 20 * few)
        }
        5 => format!("XGROUP CREATE s g{group} {} MKSTREAM", id.min(3)),
        6..9 => format!("XREADGROUP GROUP g{group} c COUNT {few} STREAMS s >"),
        9 => format!("XACK s g{group} {id} {}", id + 1),
        10 => format!("XDELEX s {word}IDS 3 {id} {} {id}", id + 1),
        11 => format!("XACKDEL s g{group} {word}IDS 3 {id} {} {id}", id + 1),
        12 => format!("XTRIM s MAXLEN = {} {word}", 10 * few),
        13 => format!("XTRIM s MINID = {id} {word}"),
        14 => format!("XPENDING s g{group}"),
        _ => "XRANGE s - +".into(),
    }
}

/// A wait with CLAIM ends when an entry has been idle for long enough, without any change of the
/// stream, and when one is released.
#[test]
fn a_wait_for_idle_entries_ends_by_time_and_by_release() {
    let server = server(&[]);
    let mut conn = server.connect();
    conn.must("XADD s 1 f v");
    conn.must("XGROUP CREATE s g 0");
    conn.must("XREADGROUP GROUP g a STREAMS s >");
    let mut waiting = server.connect();
    let line = "XREADGROUP GROUP g b BLOCK 20000 CLAIM 200 STREAMS s >";
    waiting.send(&args(line)).unwrap();
    let reply = format!("{:?}", waiting.read().unwrap());
    assert!(
        reply.starts_with("*1[*2[$s, *1[*4[$1-0, *2[$f, $v], :"),
        "{reply}"
    );
    let line = "XREADGROUP GROUP g c BLOCK 0 MAXCOUNT 1 CLAIM 9000000 STREAMS s >";
    waiting.send(&args(line)).unwrap();
    wait_for("the wait", || {
        let info = conn.must("INFO clients").text();
        info.contains("blocked_clients:1")
    });
    assert_eq!(conn.cmd("XNACK s g FAIL IDS 1 1"), Value::Int(1));
    let reply = format!("{:?}", waiting.read().unwrap());
    assert!(
        reply.starts_with("*1[*2[$s, *1[*4[$1-0, *2[$f, $v], :"),
        "{reply}"
    );
    // New entries end it as well.
    waiting.send(&args(line)).unwrap();
    wait_for("the wait", || {
        let info = conn.must("INFO clients").text();
        info.contains("blocked_clients:1")
    });
    conn.must("XADD s 2 f v");
    let reply = format!("{:?}", waiting.read().unwrap());
    assert_eq!(reply, "*1[*2[$s, *1[*4[$2-0, *2[$f, $v], :0, :0]]]]");
}

/// A Kedis that follows has what XNACK has released and the idempotent ids, from the data set and
/// from the stream after it.
#[test]
fn a_replica_knows_released_entries_and_idempotent_ids() {
    let (master, replica) = (server(&[]), server(&[]));
    let mut conn = master.connect();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut work = |conn: &mut Conn| {
        for _ in 0..300 {
            let (n, few) = (rng.u32(..3), rng.u32(1..5));
            let line = match rng.u32(..6) {
                0 => format!("XGROUP CREATE x{n} g 0 MKSTREAM"),
                1 | 2 => format!("XADD x{n} IDMP p{few} i{} * f v", rng.u32(..50)),
                3 => format!("XREADGROUP GROUP g c COUNT {few} CLAIM 1 STREAMS x{n} >"),
                4 => format!("XCFGSET x{n} IDMP-MAXSIZE {}", 5 + few / 4),
                _ => {
                    let pending = conn.cmd(&format!("XPENDING x{n} g - + {few}"));
                    let Value::Array(rows) = pending else {
                        continue;
                    };
                    let Some(row) = rows.last() else { continue };
                    format!("XNACK x{n} g SILENT IDS 1 {}", row.items()[0].text())
                }
            };
            conn.cmd(&line);
        }
    };
    work(&mut conn);
    follow(&replica, &master);
    wait_for("the link", || is_caught_up(&master, &replica));
    work(&mut conn);
    assert_same(&master, &replica);
    let tracked = conn.must("XINFO STREAM x0");
    let shown = format!("{tracked:?}");
    assert!(!shown.contains("iids-tracked, :0"), "{shown}");
}
