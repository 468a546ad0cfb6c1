//! Transactions under concurrency and kill -9: atomic, isolated, and durable once acknowledged.

use crate::crash::kedis_check;
use crate::support::{Conn, Server, Value, args, seed, wait_for};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ACCOUNTS: usize = 12;

/// Sends MULTI, the lines and EXEC in one write; returns the reply of EXEC.
fn exec(conn: &mut Conn, lines: &[String]) -> Value {
    let mut commands = vec![args("MULTI")];
    commands.extend(lines.iter().map(|line| args(line)));
    commands.push(args("EXEC"));
    let mut replies = conn.pipeline(&commands);
    replies.pop().unwrap_or(Value::Lost("no reply".into()))
}

fn account(i: usize) -> String {
    format!("account:{i}")
}

/// Moves money between accounts, and writes a receipt in several types and DBs;
/// returns how many transfers were acknowledged.
fn transfer(address: &str, writer: usize, seed: u64) -> u64 {
    let Ok(mut conn) = Conn::open(address) else {
        return 0;
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let before = conn.cmd(&format!("GET receipt:{writer}"));
    let mut n: u64 = match &before {
        Value::Bulk(text) => String::from_utf8_lossy(text).parse().unwrap(),
        _ => 0,
    };
    loop {
        let (from, to) = (rng.usize(..ACCOUNTS), rng.usize(..ACCOUNTS));
        let amount = rng.u32(1..100);
        n += 1;
        let lines = [
            format!("DECRBY {} {amount}", account(from)),
            format!("SET receipt:{writer} {n}"),
            format!("HSET receipts {writer} {n}"),
            format!("INCRBY {} {amount}", account(to)),
            "SELECT 3".to_owned(),
            format!("RPUSH list:{writer} {n}"),
            "SELECT 0".to_owned(),
        ];
        match exec(&mut conn, &lines) {
            Value::Array(replies) => assert_eq!(replies.len(), lines.len()),
            Value::Lost(_) => return n - 1,
            other => panic!("{other:?}"),
        }
    }
}

fn sum_of(replies: &[Value]) -> i64 {
    let number = |value: &Value| match value {
        Value::Bulk(text) => String::from_utf8_lossy(text).parse::<i64>().unwrap(),
        _ => 0,
    };
    replies.iter().map(number).sum()
}

/// Reads all accounts atomically, repeatedly: the sum must be constant.
fn audit(address: &str) -> u64 {
    let Ok(mut conn) = Conn::open(address) else {
        return 0;
    };
    let gets: Vec<String> = (0..ACCOUNTS)
        .map(|i| format!("GET {}", account(i)))
        .collect();
    let mget = args(&gets.join(" ").replace("GET", "").replacen("", "MGET", 1));
    let mut audits = 0;
    loop {
        match exec(&mut conn, &gets) {
            Value::Array(replies) => assert_eq!(sum_of(&replies), 0, "{replies:?}"),
            Value::Lost(_) => return audits,
            other => panic!("{other:?}"),
        }
        match conn.call(&mget) {
            Value::Array(replies) => assert_eq!(sum_of(&replies), 0, "{replies:?}"),
            Value::Lost(_) => return audits,
            other => panic!("{other:?}"),
        }
        audits += 1;
    }
}

#[test]
fn transactions_are_whole_after_kill9_and_in_between() {
    const WRITERS: usize = 6;
    let mut rng = fastrand::Rng::with_seed(seed("KEDIS_EXEC_SEED"));
    let flags = ["--io-threads", "4", "--enable-debug-command", "yes"];
    let mut server = Server::start(&flags);
    for _ in 0..4 {
        let address = server.address();
        let pause = Duration::from_millis(rng.u64(150..900));
        let seeds: Vec<u64> = (0..WRITERS).map(|_| rng.u64(..)).collect();
        let acknowledged: Vec<u64> = std::thread::scope(|scope| {
            let address = &address;
            let writers: Vec<_> = seeds
                .iter()
                .enumerate()
                .map(|(writer, &seed)| scope.spawn(move || transfer(address, writer, seed)))
                .collect();
            let audits = [(); 2].map(|()| scope.spawn(move || audit(address)));
            let until = Instant::now() + pause;
            wait_for("the time of the kill", || Instant::now() >= until);
            server.kill9();
            let audited: u64 = audits.into_iter().map(|a| a.join().unwrap()).sum();
            assert!(audited > 0, "no audit read anything");
            writers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        server.change_memtable();
        server.spawn();
        let mut conn = server.connect();
        let balances: Vec<Value> = (0..ACCOUNTS)
            .map(|i| conn.cmd(&format!("GET {}", account(i))))
            .collect();
        assert_eq!(sum_of(&balances), 0, "{balances:?}");
        for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
            let receipt = sum_of(&[conn.cmd(&format!("GET receipt:{writer}"))]);
            let field = sum_of(&[conn.cmd(&format!("HGET receipts {writer}"))]);
            conn.must("SELECT 3");
            let len = conn.cmd(&format!("LLEN list:{writer}")).int();
            conn.must("SELECT 0");
            assert_eq!((receipt, receipt), (field, len), "writer {writer}");
            assert!(receipt as u64 >= acknowledged, "{receipt} < {acknowledged}");
            assert!(receipt as u64 <= acknowledged + 1, "one was under way");
        }
        kedis_check(&mut conn);
    }
}

const FLIGHTS: usize = 5;
const CLIENTS: usize = 64;

fn number(value: &Value) -> i64 {
    match value {
        Value::Int(n) => *n,
        other => sum_of(std::slice::from_ref(other)),
    }
}

/// Makes bookings of two seats and their records, one transaction each; returns how many were
/// acknowledged.
fn book(address: &str, client: usize, first: u64) -> u64 {
    let Ok(mut conn) = Conn::open(address) else {
        return 0;
    };
    let mut rng = fastrand::Rng::new();
    for n in first.. {
        let flight = rng.usize(..FLIGHTS);
        let seat = (n * 2) * CLIENTS as u64 + client as u64;
        let booking = format!("booking:{client}:{n}");
        let lines = [
            format!("SETBIT seats:{flight} {seat} 1"),
            format!("SETBIT seats:{flight} {} 1", seat + CLIENTS as u64),
            format!("HINCRBY flight:{flight} sold 2"),
            format!("HINCRBY totals sold:{client} 2"),
            format!("HGETALL flight:{flight}"),
            format!("HSET {booking} flight {flight} seat {seat}"),
            format!("EXPIRE {booking} 10000"),
            format!("HSETNX timers:{client} {n} {flight}"),
        ];
        match exec(&mut conn, &lines) {
            Value::Array(replies) => {
                let fresh = [0, 1].map(|i| number(&replies[i]));
                assert_eq!(fresh, [0, 0], "a seat was sold twice");
                assert_eq!(number(&replies[7]), 1, "a timer was there already");
            }
            Value::Lost(_) => return n - first,
            other => panic!("{other:?}"),
        }
    }
    unreachable!("seats never run out")
}

fn reservations_add_up(flags: &[&str]) {
    let debug = ["--io-threads", "4", "--enable-debug-command", "yes"];
    let mut server = Server::start(&[flags, &debug].concat());
    let mut booked = vec![0u64; CLIENTS];
    for _ in 0..2 {
        let address = server.address();
        let acknowledged: Vec<u64> = std::thread::scope(|scope| {
            let address = &address;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let first = booked[client];
                    scope.spawn(move || book(address, client, first))
                })
                .collect();
            let until = Instant::now() + Duration::from_millis(1500);
            wait_for("the time of the kill", || Instant::now() >= until);
            server.kill9();
            clients.into_iter().map(|c| c.join().unwrap()).collect()
        });
        println!("{flags:?}: {} bookings", acknowledged.iter().sum::<u64>());
        server.change_memtable();
        server.spawn();
        let mut conn = server.connect();
        for (client, acknowledged) in acknowledged.into_iter().enumerate() {
            let timers = number(&conn.cmd(&format!("HLEN timers:{client}"))) as u64;
            let sold = number(&conn.cmd(&format!("HGET totals sold:{client}"))) as u64;
            assert_eq!(sold, timers * 2, "client {client}");
            let least = booked[client] + acknowledged;
            assert!((least..=least + 1).contains(&timers), "{timers}, {least}");
            booked[client] = timers;
        }
        let all: u64 = booked.iter().sum();
        assert!(all > 0, "no booking was acknowledged");
        let mut sold = 0;
        for flight in 0..FLIGHTS {
            let bits = number(&conn.cmd(&format!("BITCOUNT seats:{flight}")));
            let field = number(&conn.cmd(&format!("HGET flight:{flight} sold")));
            assert_eq!(bits, field, "flight {flight}");
            sold += bits as u64;
        }
        assert_eq!(sold, all * 2);
        kedis_check(&mut conn);
    }
}

#[test]
fn reservations_add_up_after_kill9() {
    reservations_add_up(&["--appendfsync", "everysec"]);
}

#[test]
fn reservations_add_up_after_kill9_with_fsync_always() {
    reservations_add_up(&["--appendfsync", "always"]);
}

/// Increments a counter under WATCH until `done` reaches `goal`.
fn count_up(address: &str, done: &AtomicU64, goal: u64) {
    let mut conn = Conn::open(address).unwrap();
    while done.load(Ordering::Relaxed) < goal {
        conn.must("WATCH counter");
        let value = sum_of(&[conn.cmd("GET counter")]);
        match exec(&mut conn, &[format!("SET counter {}", value + 1)]) {
            Value::Array(_) => done.fetch_add(1, Ordering::Relaxed),
            Value::NullArray => continue,
            other => panic!("{other:?}"),
        };
    }
}

#[test]
fn no_update_is_lost_under_watch() {
    let server = Server::start(&["--io-threads", "4"]);
    let address = server.address();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| count_up(&address, &done, 2000));
        }
    });
    let counter = sum_of(&[server.connect().cmd("GET counter")]);
    assert_eq!(counter as u64, done.load(Ordering::Relaxed));
}

/// Clears `mine` if `other` is set, under WATCH; returns whether it did.
fn leave(conn: &mut Conn, mine: &str, other: &str) -> bool {
    conn.must(&format!("WATCH {other}"));
    let there = sum_of(&[conn.cmd(&format!("GET {other}"))]) == 1;
    let line = if there {
        format!("SET {mine} 0")
    } else {
        "PING".into()
    };
    matches!(exec(conn, &[line]), Value::Array(_)) && there
}

/// Two transactions that each watch what the other writes: one must fail (no write skew).
#[test]
fn watched_keys_that_are_only_read_keep_others_out() {
    let server = Server::start(&["--io-threads", "4"]);
    let mut conn = server.connect();
    let (mut a, mut b) = (server.connect(), server.connect());
    for round in 0..1500 {
        conn.must("MSET a 1 b 1");
        let start = AtomicBool::new(false);
        let spin = || {
            while !start.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        };
        let (left_a, left_b) = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                spin();
                leave(&mut a, "a", "b")
            });
            let second = scope.spawn(|| {
                spin();
                leave(&mut b, "b", "a")
            });
            start.store(true, Ordering::Release);
            (first.join().unwrap(), second.join().unwrap())
        });
        assert!(!(left_a && left_b), "round {round}: both have left");
    }
}

/// Queued commands and watched keys are bounded like a request.
#[test]
fn a_transaction_without_end_is_closed() {
    let server = Server::start(&["--client-query-buffer-limit", "1mb"]);
    let mut conn = server.connect();
    conn.must("MULTI");
    let value = vec![b'x'; 100_000];
    let mut closed = false;
    for _ in 0..20 {
        let reply = conn.call(&[b"SET".as_slice(), b"k", &value]);
        closed |= matches!(reply, Value::Lost(_));
    }
    assert!(closed);
    let mut conn = server.connect();
    conn.must("MULTI");
    let pings: Vec<Vec<Vec<u8>>> = (0..100_000).map(|_| args("PING")).collect();
    let replies = conn.pipeline(&pings);
    assert!(matches!(replies.last(), Some(Value::Lost(_)) | None));
    assert_eq!(server.connect().must("EXISTS k"), Value::Int(0));
}
