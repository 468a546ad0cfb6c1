//! The types of RedisBloom over replication and kill -9.

use crate::support::checks;
use crate::support::{Conn, Server, Value, seed, wait_for};

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// A command that changes one of a few values; the largest have pages.
fn change(rng: &mut fastrand::Rng) -> String {
    let n = rng.u32(..3);
    let mut item = || format!("item:{}", rng.u32(..5000));
    let (a, b) = (item(), item());
    match rng.u32(..10) {
        0 => format!("BF.MADD b{n} {a} {b}"),
        1 => format!("BF.INSERT b{n} CAPACITY 2000 ITEMS {a}"),
        2 => format!("CF.ADD c{n} {a}"),
        3 => format!("CF.INSERTNX c{n} ITEMS {a} {b}"),
        4 => format!("CF.DEL c{n} {a}"),
        5 => format!("CMS.INCRBY s{n} {a} 2 {b} 3"),
        6 => format!("TOPK.ADD t{n} {a} {b}"),
        7 => format!("TOPK.INCRBY t{n} {a} 20 hot 5"),
        8 => format!("TDIGEST.ADD d{n} {} {}", rng.f64(), rng.u32(..1000)),
        _ => format!("CMS.MERGE s{n} 2 s0 s1 WEIGHTS 1 2"),
    }
}

fn create(conn: &mut Conn) {
    for n in 0..3 {
        conn.must(&format!("BF.RESERVE b{n} 0.01 {}", 50 * 20u32.pow(n)));
        conn.must(&format!("CF.RESERVE c{n} {}", 50 * 20u32.pow(n)));
        conn.must(&format!("CMS.INITBYPROB s{n} 0.002 0.01"));
        conn.must(&format!("TOPK.RESERVE t{n} 20 50 5 0.9"));
        conn.must(&format!("TDIGEST.CREATE d{n} COMPRESSION {}", 20 + 50 * n));
    }
}

#[test]
fn replicas_reach_the_same_values() {
    let mut rng = fastrand::Rng::with_seed(seed("KEDIS_BLOOM_SEED"));
    let master = Server::start(&DEBUG);
    let mut conn = master.connect();
    create(&mut conn);
    let mut run = |conn: &mut Conn, count: u32| {
        for _ in 0..count {
            let line = change(&mut rng);
            // A merge can overflow.
            let refused = conn.cmd(&line).error();
            let overflow = refused
                .as_deref()
                .is_none_or(|text| text.ends_with("overflow"));
            assert!(overflow, "{line}: {refused:?}");
        }
    };
    // Some of it comes by the full sync, the rest by the stream.
    run(&mut conn, 1500);
    let replica = Server::start(&DEBUG);
    let mut other = replica.connect();
    other.must(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    run(&mut conn, 1500);
    let digest = conn.must("DEBUG DIGEST");
    wait_for("the same data set", || other.cmd("DEBUG DIGEST") == digest);
    for conn in [&mut conn, &mut other] {
        checks::check(conn).expect("a sound database");
    }
    let key_digests = |conn: &mut Conn| conn.must("DEBUG DIGEST-VALUE b2 c2 s2 t2 d2");
    assert_eq!(key_digests(&mut conn), key_digests(&mut other));
}

#[test]
fn what_is_acknowledged_survives_kill_9() {
    let mut rng = fastrand::Rng::with_seed(seed("KEDIS_BLOOM_SEED"));
    let mut server = Server::start(&DEBUG);
    create(&mut server.connect());
    let mut added = 0u32;
    for _ in 0..3 {
        let mut conn = server.connect();
        for _ in 0..rng.u32(200..600) {
            let item = format!("mine:{added}");
            conn.must(&format!("BF.ADD b2 {item}"));
            conn.must(&format!("CF.ADD c2 {item}"));
            conn.must(&format!("CMS.INCRBY s2 {item} 1 all 1"));
            conn.must(&format!("TDIGEST.ADD d2 {added}"));
            added += 1;
        }
        // One more, whose reply is never read: it counts as a whole or not at all.
        conn.send(&[
            b"CMS.INCRBY",
            b"s2".as_slice(),
            b"other",
            b"1",
            b"another",
            b"1",
        ])
        .expect("the server is there");
        server.kill9();
        server.spawn();
        let mut conn = server.connect();
        for n in 0..added {
            let item = format!("mine:{n}");
            let found = conn.must(&format!("BF.EXISTS b2 {item}"));
            assert_eq!(found, Value::Int(1), "{item}");
            assert!(
                conn.must(&format!("CF.COUNT c2 {item}")).int() >= 1,
                "{item}"
            );
            assert!(conn.must(&format!("CMS.QUERY s2 {item}")).items()[0].int() >= 1);
        }
        let all = conn.must("CMS.QUERY s2 all");
        assert!(all.items()[0].int() >= i64::from(added));
        let info = conn.must("CMS.INFO s2").pairs();
        let count = info.iter().find(|(name, _)| name.text() == "count");
        let count = count.expect("a count").1.int();
        assert_eq!(count % 2, 0, "half of a command");
        let most = conn.must("TDIGEST.MAX d2").text();
        assert_eq!(most, (added - 1).to_string());
        checks::check(&mut conn).expect("a sound database");
    }
}
