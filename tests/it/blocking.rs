//! Thousands of blocked clients on several threads: every element is delivered once, and
//! every client is served.

use crate::crash::kedis_check;
use crate::support::{Conn, Pace, Server, Value, args, oracle, seed, wait_for};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const KEYS: usize = 8;
const STOP: &[u8] = b"stop";

fn blocking_command(rng: &mut fastrand::Rng) -> String {
    let key = |rng: &mut fastrand::Rng| format!("k{}", rng.usize(..KEYS));
    let timeout = match rng.u32(..4) {
        0 => "0.02",
        _ => "0",
    };
    match rng.u32(..5) {
        0 => format!("BLPOP {} {timeout}", key(rng)),
        1 => format!("BRPOP {} {} {timeout}", key(rng), key(rng)),
        2 => format!("BLMPOP {timeout} 2 {} {} LEFT COUNT 3", key(rng), key(rng)),
        3 => format!("BLMOVE {} moved LEFT RIGHT {timeout}", key(rng)),
        _ => format!("BRPOPLPUSH {} moved {timeout}", key(rng)),
    }
}

/// The elements in a reply of any blocking command.
fn elements(reply: Value) -> Vec<Vec<u8>> {
    match reply {
        Value::Bulk(item) => vec![item],
        Value::Array(mut parts) if parts.len() == 2 => match parts.pop() {
            Some(Value::Bulk(item)) => vec![item],
            Some(Value::Array(items)) => items.iter().map(|i| i.bytes().to_vec()).collect(),
            other => panic!("{other:?}"),
        },
        Value::NullArray => Vec::new(),
        Value::Error(text) if text.starts_with(b"UNBLOCKED ") => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// Runs blocking commands on many connections until each has popped a stop element; returns
/// what they popped.
fn consume(server: &Server, connections: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut conns: Vec<Conn> = (0..connections).map(|_| server.connect()).collect();
    for conn in &mut conns {
        conn.send(&args(&blocking_command(&mut rng))).unwrap();
    }
    let mut taken = Vec::new();
    while !conns.is_empty() {
        conns.retain_mut(|conn| {
            let items = elements(conn.read().unwrap());
            let stop = items.iter().any(|item| item == STOP);
            taken.extend(items);
            if !stop {
                conn.send(&args(&blocking_command(&mut rng))).unwrap();
            }
            !stop
        });
    }
    taken
}

/// Pushes elements with unique names in various ways; returns the names.
fn produce(server: &Server, producer: usize, count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut conn = server.connect();
    let mut pushed = Vec::new();
    while pushed.len() < count {
        let names: Vec<String> = (0..rng.usize(1..4))
            .map(|i| format!("{producer}:{}:{i}", pushed.len()))
            .collect();
        let (key, items) = (format!("k{}", rng.usize(..KEYS)), names.join(" "));
        let own = format!("own{producer}");
        let lines = match rng.u32(..5) {
            0 => vec![format!("LPUSH {key} {items}")],
            1 => vec![format!("RPUSH {key} {items}")],
            2 => vec![
                "MULTI".into(),
                format!("RPUSH {key} {items}"),
                "EXEC".into(),
            ],
            3 => {
                let moves = names.iter().map(|_| format!("LMOVE {own} {key} LEFT LEFT"));
                let push = format!("RPUSH {own} {items}");
                std::iter::once(push).chain(moves).collect()
            }
            _ => vec![
                format!("RPUSH {own} {items}"),
                // Fails if another client has created the key; the elements are then moved
                // below.
                format!("RENAMENX {own} {key}"),
            ],
        };
        let commands: Vec<_> = lines.iter().map(|line| args(line)).collect();
        let replies = conn.pipeline(&commands);
        assert!(
            !matches!(replies[0], Value::Error(_)),
            "{lines:?} {replies:?}"
        );
        while let Value::Bulk(_) = conn.cmd(&format!("LMOVE {own} {key} LEFT RIGHT")) {}
        pushed.extend(names.into_iter().map(String::into_bytes));
    }
    pushed
}

/// Unblocks random clients until `stop` is set.
fn disturb(server: &Server, seed: u64, stop: &AtomicBool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut conn = server.connect();
    let mut pace = Pace::per_second(4000);
    while !stop.load(Ordering::Relaxed) {
        let how = ["TIMEOUT", "ERROR"][rng.usize(..2)];
        conn.must(&format!("CLIENT UNBLOCK {} {how}", rng.u32(1..2500)));
        pace.wait();
    }
}

#[test]
fn every_element_is_delivered_once() {
    const THREADS: usize = 16;
    const CONNECTIONS: usize = 128;
    const ELEMENTS: usize = 3000;
    let mut rng = fastrand::Rng::with_seed(seed("KEDIS_BLOCKING_SEED"));
    let server = Server::start(&["--io-threads", "4", "--enable-debug-command", "yes"]);
    let running = AtomicUsize::new(THREADS);
    let stop = AtomicBool::new(false);
    let (pushed, taken) = std::thread::scope(|scope| {
        let (server, running, stop) = (&server, &running, &stop);
        let consumers: Vec<_> = (0..THREADS)
            .map(|_| {
                let seed = rng.u64(..);
                scope.spawn(move || {
                    let taken = consume(server, CONNECTIONS, seed);
                    running.fetch_sub(1, Ordering::Relaxed);
                    taken
                })
            })
            .collect();
        let seed = rng.u64(..);
        scope.spawn(move || disturb(server, seed, stop));
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let seed = rng.u64(..);
                scope.spawn(move || produce(server, producer, ELEMENTS, seed))
            })
            .collect();
        let mut pushed = Vec::new();
        for producer in producers {
            pushed.extend(producer.join().unwrap());
        }
        let mut conn = server.connect();
        wait_for("all consumers to stop", || {
            for key in 0..KEYS {
                conn.must(&format!("RPUSH k{key} stop stop stop stop"));
            }
            running.load(Ordering::Relaxed) == 0
        });
        stop.store(true, Ordering::Relaxed);
        let mut taken = Vec::new();
        for consumer in consumers {
            taken.extend(consumer.join().unwrap());
        }
        (pushed, taken)
    });
    let mut conn = server.connect();
    let mut found = taken;
    for key in 0..KEYS {
        let Value::Array(left) = conn.must(&format!("LRANGE k{key} 0 -1")) else {
            panic!("no list");
        };
        found.extend(left.iter().map(|item| item.bytes().to_vec()));
    }
    found.retain(|item| item != STOP);
    let expected: HashSet<Vec<u8>> = pushed.iter().cloned().collect();
    let distinct: HashSet<Vec<u8>> = found.iter().cloned().collect();
    assert_eq!(found.len(), distinct.len(), "something was delivered twice");
    let lost: Vec<_> = expected.difference(&distinct).take(5).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert_eq!(expected.len(), distinct.len());
    let info = conn.must("INFO clients").text();
    for field in [
        "blocked_clients:0",
        "total_blocking_keys:0",
        "clients_in_timeout_table:0",
    ] {
        assert!(info.contains(field), "{field} in {info}");
    }
    kedis_check(&mut conn);
}

fn blocked(conn: &mut Conn) -> usize {
    let info = conn.must("INFO clients").text();
    let line = info.lines().find(|l| l.starts_with("blocked_clients:"));
    line.unwrap()["blocked_clients:".len()..].parse().unwrap()
}

fn wait_for_blocked(conn: &mut Conn, count: usize) {
    wait_for("clients to wait", || blocked(conn) == count);
}

#[test]
fn clients_that_are_gone_take_nothing() {
    let server = Server::start(&["--io-threads", "2"]);
    let mut conn = server.connect();
    // A client that closes while it is blocked, and one that closes before its request is
    // read.
    for early in [false, true] {
        let mut gone = server.connect();
        gone.send(&args("BLPOP k 0")).unwrap();
        if !early {
            wait_for_blocked(&mut conn, 1);
        }
        drop(gone);
        wait_for_blocked(&mut conn, 0);
    }
    let mut killed = server.connect();
    let id = killed.must("CLIENT ID").int();
    killed.send(&args("BLPOP k 0")).unwrap();
    wait_for_blocked(&mut conn, 1);
    assert_eq!(conn.must(&format!("CLIENT KILL ID {id}")), Value::Int(1));
    wait_for_blocked(&mut conn, 0);
    assert_eq!(conn.must("RPUSH k 1"), Value::Int(1));
    assert_eq!(conn.must("LLEN k"), Value::Int(1));
}

#[test]
fn what_follows_a_wait_waits() {
    let server = Server::start(&["--io-threads", "2"]);
    let mut conn = server.connect();
    let mut waits = server.connect();
    let lines = ["SET a 1", "BLPOP k 0", "SET a 2", "BLPOP k 0.05", "GET a"];
    for line in lines {
        waits.send(&args(line)).unwrap();
    }
    assert_eq!(waits.read().unwrap(), Value::ok());
    wait_for_blocked(&mut conn, 1);
    assert_eq!(conn.must("GET a"), Value::bulk("1"));
    conn.must("RPUSH k x");
    let popped = Value::Array(vec![Value::bulk("k"), Value::bulk("x")]);
    assert_eq!(waits.read().unwrap(), popped);
    assert_eq!(waits.read().unwrap(), Value::ok());
    assert_eq!(waits.read().unwrap(), Value::NullArray);
    assert_eq!(waits.read().unwrap(), Value::bulk("2"));
}

#[test]
fn timeouts_end_the_wait_and_not_before() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    for ms in [5, 80, 200] {
        let start = Instant::now();
        let seconds = f64::from(ms) / 1000.0;
        assert_eq!(conn.cmd(&format!("BLPOP k {seconds}")), Value::NullArray);
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(ms as u64), "{took:?}");
        // The timeout itself wakes the client: there are no other events here.
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    // The query buffer of a blocked client is bounded as well.
    let server = Server::start(&["--client-query-buffer-limit", "1mb"]);
    let mut conn = server.connect();
    conn.send(&args("BLPOP k 0")).unwrap();
    let _ = conn.send(&[b"ECHO".to_vec(), vec![b'x'; 8 << 20]]);
    assert!(conn.closed_within(Duration::from_secs(20)));
}

/// A transaction creates a key that expires before EXEC ends: blocked clients do not get its
/// elements and stay blocked.
#[test]
fn what_is_over_when_a_transaction_ends_is_not_served() {
    let flags = ["--enable-debug-command", "yes"];
    for server in [Server::start(&flags), oracle(&flags)] {
        let mut conn = server.connect();
        for (wait, make, again) in [
            ("BLPOP k 0", "RPUSH k old", "RPUSH k new"),
            ("BRPOP j k 0", "RPUSH k old", "RPUSH k new"),
            ("BLMPOP 0 2 j k LEFT", "RPUSH k old", "RPUSH k new"),
            ("BLMOVE k to LEFT LEFT 0", "RPUSH k old", "RPUSH k new"),
            ("BRPOPLPUSH k to 0", "RPUSH k old", "RPUSH k new"),
            ("BZPOPMIN k 0", "ZADD k 1 old", "ZADD k 1 new"),
            ("BZPOPMAX k 0", "ZADD k 1 old", "ZADD k 1 new"),
            ("BZMPOP 0 1 k MIN", "ZADD k 1 old", "ZADD k 1 new"),
            (
                "XREAD BLOCK 0 STREAMS k 0",
                "XADD k 1-1 f old",
                "XADD k 1-2 f new",
            ),
        ] {
            let mut waits = server.connect();
            waits.send(&args(wait)).unwrap();
            wait_for_blocked(&mut conn, 1);
            let lines = ["MULTI", make, "PEXPIRE k 20", "DEBUG SLEEP 0.1", "EXEC"];
            let lines: Vec<_> = lines.iter().map(|line| args(line)).collect();
            let done = conn.pipeline(&lines).pop().unwrap();
            assert!(matches!(done, Value::Array(_)), "{wait}: {done:?}");
            wait_for("the key to be gone", || {
                conn.must("EXISTS k") == Value::Int(0)
            });
            wait_for_blocked(&mut conn, 1);
            conn.must(again);
            let served = format!("{:?}", waits.read().unwrap());
            assert!(
                served.contains("$new") && !served.contains("$old"),
                "{wait}: {served}"
            );
            conn.must("DEL k to");
        }
    }
}

/// An error that ends a wait is counted in `errorstats`.
#[test]
fn errors_that_end_a_wait_are_counted() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    for count in 1..=2 {
        let mut waits = server.connect();
        let id = waits.must("CLIENT ID").int();
        waits.send(&args("BLPOP k 0")).unwrap();
        wait_for_blocked(&mut conn, 1);
        conn.must(&format!("CLIENT UNBLOCK {id} ERROR"));
        assert!(matches!(waits.read().unwrap(), Value::Error(_)));
        let errors = conn.must("INFO errorstats").text();
        assert!(
            errors.contains(&format!("errorstat_UNBLOCKED:count={count}")),
            "{errors}"
        );
    }
    let mut broken = server.connect();
    broken.send_raw(b"*1\r\n!\r\n").unwrap();
    assert!(matches!(broken.read().unwrap(), Value::Error(_)));
    let errors = conn.must("INFO errorstats").text();
    assert!(errors.contains("errorstat_ERR:count=1"), "{errors}");
}

/// The effect of a request on other clients is complete before later requests run.
#[test]
fn unblock_finds_clients_that_unpause_released() {
    let server = Server::start(&["--io-threads", "1"]);
    let mut admin = server.connect();
    for round in 0..20 {
        admin.must("CLIENT PAUSE 100000 WRITE");
        let mut clients: Vec<(Conn, i64)> = (0..2)
            .map(|_| {
                let mut client = server.connect();
                let id = client.must("CLIENT ID").int();
                client.send(&["BLPOP", "nothing", "0"]).expect("sends");
                (client, id)
            })
            .collect();
        wait_for("both are paused", || {
            admin.info_number("clients", "blocked_clients") == 2
        });
        for (_, id) in &clients {
            assert_eq!(admin.must(&format!("CLIENT UNBLOCK {id}")).int(), 0);
        }
        admin.must("CLIENT UNPAUSE");
        for (client, id) in &mut clients {
            let unblocked = admin.must(&format!("CLIENT UNBLOCK {id}")).int();
            assert_eq!(unblocked, 1, "round {round}");
            assert_eq!(client.read().expect("a reply"), Value::NullArray);
        }
    }
}

/// BLMOVEM with EXACTLY waits until the list is long enough, whatever makes it grow, and takes
/// nothing before. A replica follows.
#[test]
fn several_items_move_when_there_are_enough() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut conn = server.connect();
    let items = |items: &[&str]| Value::Array(items.iter().map(Value::bulk).collect());
    for (grow, moved) in [
        ("RPUSH from 3", ["1", "2", "3"]),
        ("LPUSH from 0", ["0", "1", "2"]),
        ("LINSERT from BEFORE 2 x", ["1", "x", "2"]),
        ("LMOVE feed from LEFT RIGHT", ["1", "2", "7"]),
        ("SORT feed STORE from", ["7", "8", "9"]),
    ] {
        conn.must("DEL from to feed");
        conn.must("RPUSH feed 7 8 9");
        let mut waits = server.connect();
        waits
            .send(&args("BLMOVEM from to LEFT RIGHT 0 EXACTLY 3 BULK"))
            .unwrap();
        wait_for_blocked(&mut conn, 1);
        conn.must("RPUSH from 1");
        conn.must("RPUSH from 2");
        assert_eq!(blocked(&mut conn), 1, "{grow}");
        assert_eq!(conn.must("LLEN from"), Value::Int(2), "{grow}");
        conn.must(grow);
        assert_eq!(waits.read().unwrap(), items(&moved), "{grow}");
        assert_eq!(conn.must("LRANGE to 0 -1"), items(&moved), "{grow}");
    }
    conn.must("DEL from to");
    let mut waits = server.connect();
    waits
        .send(&args("BLMOVEM from to LEFT LEFT 0 COUNT 5 OBO"))
        .unwrap();
    wait_for_blocked(&mut conn, 1);
    conn.must("RPUSH from 1 2");
    assert_eq!(waits.read().unwrap(), items(&["2", "1"]));
    let timed = "BLMOVEM from to LEFT LEFT 0.01 EXACTLY 2 BULK";
    assert_eq!(conn.cmd(timed), Value::NullArray);
    conn.must("MULTI");
    conn.must("BLMOVEM from to LEFT LEFT 0");
    assert_eq!(conn.must("EXEC"), Value::Array(vec![Value::NullArray]));
    kedis_check(&mut conn);
}

/// A client that waits for very many keys is taken out of their lists by another thread, and served
/// by a worker. To serve one of a million keys once took a minute.
#[test]
fn a_client_that_waits_for_very_many_keys_is_served_and_forgotten_as_others() {
    const MANY: usize = 20_000;
    let server = Server::start(&["--io-threads", "1", "--enable-debug-command", "yes"]);
    let mut other = server.connect();
    let request = |timeout: &str| {
        let keys = (0..MANY).map(|n| format!("k{n}"));
        let words = ["BLPOP".to_owned()].into_iter().chain(keys);
        let words = words.chain([timeout.to_owned()]);
        words.map(String::into_bytes).collect::<Vec<_>>()
    };
    let blocked = || {
        server
            .connect()
            .info_number("clients", "total_blocking_keys")
    };
    let blocked_clients = || server.connect().info_number("clients", "blocked_clients");
    // Its keys are counted one by one, and the client when others may end its wait.
    let waits_for_many = || blocked() == MANY as u64 && blocked_clients() == 1;
    let mut conn = server.connect();
    // Each wait begins right after the one before it.
    for round in 0..3 {
        assert_eq!(conn.call(&request("0.01")), Value::NullArray);
        conn.send(&request("0")).unwrap();
        wait_for("a client that waits for many keys", waits_for_many);
        let key = MANY - 1 - round;
        assert_eq!(other.must(&format!("RPUSH k{key} a b")), Value::Int(2));
        let served = [Value::bulk(format!("k{key}")), Value::bulk("a")];
        assert_eq!(conn.read().unwrap(), Value::Array(served.to_vec()));
        assert_eq!(other.must(&format!("LPOP k{key}")), Value::bulk("b"));
    }
    // An unblocked one.
    let id = conn.must("CLIENT ID").int();
    conn.send(&request("0")).unwrap();
    wait_for("a client that waits for many keys", waits_for_many);
    assert_eq!(other.must(&format!("CLIENT UNBLOCK {id}")), Value::Int(1));
    assert_eq!(conn.read().unwrap(), Value::NullArray);
    wait_for("no keys to wait for", || blocked() == 0);
    // One that has left gets nothing; another behind it does.
    conn.send(&request("0")).unwrap();
    wait_for("a client that waits for many keys", waits_for_many);
    let mut behind = server.connect();
    behind.send(&args("BLPOP k1 0")).unwrap();
    wait_for("two clients that wait", || blocked_clients() == 2);
    drop(conn);
    wait_for("one client that waits", || blocked_clients() == 1);
    other.must("RPUSH k1 x");
    let served = [Value::bulk("k1"), Value::bulk("x")];
    assert_eq!(behind.read().unwrap(), Value::Array(served.to_vec()));
    wait_for("no keys to wait for", || blocked() == 0);
    kedis_check(&mut other);
}

/// Another thread answers MIGRATE, perhaps before the worker that has begun it gives the session
/// back.
#[test]
fn a_long_request_that_another_thread_answers_is_answered_once() {
    let server = Server::start(&["--io-threads", "1"]);
    let mut conn = server.connect();
    let keys = (0..5000).map(|n| format!("k{n}"));
    let head = args("MIGRATE 127.0.0.1 1 <none> 0 100 KEYS");
    let mut request: Vec<Vec<u8>> = head
        .into_iter()
        .chain(keys.map(String::into_bytes))
        .collect();
    request[3].clear();
    for _ in 0..50 {
        assert_eq!(conn.call(&request), Value::simple("NOKEY"));
        assert_eq!(conn.must("ECHO x"), Value::bulk("x"));
    }
    conn.must("SET k7 v");
    for _ in 0..20 {
        let error = conn.call(&request).error().unwrap();
        assert!(error.starts_with("IOERR "), "{error}");
        assert_eq!(conn.must("ECHO x"), Value::bulk("x"));
    }
}
