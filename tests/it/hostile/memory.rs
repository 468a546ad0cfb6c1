//! The memory of clients that announce much, never read, or request much at once.

use std::io::Write;
use std::time::Duration;

use super::{bounded, used_memory};
use crate::support::conn::encode;
use crate::support::{Conn, DEADLINE, Server, Value, wait_within};

#[test]
fn announced_lengths_reserve_nothing() {
    let server = Server::start(&[]);
    let before = used_memory(&mut server.connect());
    bounded(&server, || {
        let mut held = Vec::new();
        for n in 0..600 {
            let mut conn = server.connect();
            let announcement: &[u8] = match n % 4 {
                0 => b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$536870000\r\nstart",
                1 => b"*1000000000\r\n$3\r\nDEL\r\n$1\r\nx\r\n",
                2 => b"*2147483647\r\n",
                _ => b"*2\r\n$536870912\r\n",
            };
            conn.send_raw(announcement).unwrap();
            held.push(conn);
        }
        // All announcements have been read when each thread has replied to a later command.
        for _ in 0..32 {
            server.connect().must("PING");
        }
        // Once, each such announcement reserved a mebibyte.
        let each = used_memory(&mut server.connect()).saturating_sub(before) / 600;
        assert!(each < 16 << 10, "{each} bytes for each");
    });
}

/// Writes until the server has read nothing for a while or has closed the connection.
fn stuff(conn: &Conn, wire: &[u8], rounds: usize) {
    let mut writer = conn.writer();
    writer
        .set_write_timeout(Some(Duration::from_millis(700)))
        .unwrap();
    for _ in 0..rounds {
        if writer.write_all(wire).is_err() {
            return;
        }
    }
}

/// Replies are buffered up to the limit for clients, not beyond it.
#[test]
fn clients_that_never_read_cost_no_more_than_clients_may() {
    let server = Server::start(&["--maxmemory-clients", "128mb"]);
    let mut conn = server.connect();
    let set = [b"SET".to_vec(), b"mega".to_vec(), vec![b'm'; 1 << 20]];
    assert_eq!(conn.call(&set), Value::ok());
    let mut wire = Vec::new();
    for _ in 0..500 {
        encode(&mut wire, &["GET", "mega"]);
    }
    bounded(&server, || {
        // Three clients, each requesting 4 GB.
        let mut greedy: Vec<Conn> = (0..3).map(|_| server.connect()).collect();
        std::thread::scope(|scope| {
            for conn in &greedy {
                scope.spawn(|| stuff(conn, &wire, 8));
            }
        });
        // A client that was not closed gets its replies once it reads.
        for conn in &mut greedy {
            for _ in 0..5 {
                match conn.read() {
                    Ok(value) => assert_eq!(value.bytes().len(), 1 << 20),
                    Err(_) => break,
                }
            }
        }
    });
}

/// Many clients that cost little each: the largest are closed, except for one with CLIENT
/// NO-EVICT and one that reads its replies.
#[test]
fn many_that_never_read_cost_no_more_than_all_may() {
    let server = Server::start(&["--maxmemory-clients", "16mb"]);
    let mut good = server.connect();
    // Otherwise it could be evicted like any client of its size.
    good.must("CLIENT NO-EVICT ON");
    let set = [b"SET".to_vec(), b"big".to_vec(), vec![b'b'; 900_000]];
    assert_eq!(good.call(&set), Value::ok());
    let mut spared = server.connect();
    spared.must("CLIENT NO-EVICT ON");
    let mut wire = Vec::new();
    for _ in 0..20 {
        encode(&mut wire, &["GET", "big"]);
    }
    let before = used_memory(&mut good);
    spared.send_raw(&wire).expect("a request");
    let mut greedy: Vec<Conn> = (0..300).map(|_| server.connect()).collect();
    for conn in &mut greedy {
        // A client that is closed early cannot send.
        let _ = conn.send_raw(&wire);
    }
    // An evicted client is counted before its thread frees its memory. Freed memory that
    // the allocator keeps for some seconds is not counted.
    let (mut evicted, mut grown, mut peak) = (0, 0, 0);
    wait_within(DEADLINE, || {
        evicted = good.info_number("stats", "evicted_clients");
        grown = used_memory(&mut good).saturating_sub(before);
        peak = peak.max(grown);
        evicted >= 250 && grown < 64 << 20
    });
    assert!((250..=300).contains(&evicted), "{evicted} evicted");
    assert!(grown < 64 << 20, "memory grew by {} MB", grown >> 20);
    assert!(
        peak < 256 << 20,
        "memory grew by {} MB at times",
        peak >> 20
    );
    for _ in 0..20 {
        assert_eq!(spared.read().expect("a reply").bytes().len(), 900_000);
    }
    // A single reply that exceeds the limit, even after clients that have read nothing for
    // ten seconds were closed, is not sent; other clients are served.
    let mut wide = server.connect();
    wide.send(&["PING"]).expect("a request");
    let mut mget = vec!["big"; 30];
    mget[0] = "MGET";
    wide.send(&mget).expect("a request");
    assert_eq!(wide.read().expect("a reply").text(), "PONG");
    assert!(wide.closed_within(Duration::from_secs(90)));
    good.must("PING");
}

/// The memory of requests was checked once a second, and one client could fill the memory
/// within that.
#[test]
fn a_request_that_clients_have_no_memory_for_is_refused_before_it_is_there() {
    const LIMIT: usize = 16 << 20;
    let server = Server::start(&["--maxmemory-clients", "16mb"]);
    let mut greedy = server.connect();
    let value = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n", 512 << 20);
    greedy.send_raw(value.as_bytes()).expect("a request");
    let (mut sent, piece) = (0, vec![b'v'; 1 << 20]);
    while sent < 1 << 30 && greedy.send_raw(&piece).is_ok() {
        sent += piece.len();
    }
    // A margin for the socket buffers and some milliseconds of input.
    assert!(sent < 8 * LIMIT, "{} MiB", sent >> 20);
    let mut other = server.connect();
    let refused = other.info_number("stats", "client_query_buffer_limit_disconnections");
    assert_eq!(refused, 1);
    assert!(
        server.log().contains("takes more memory than"),
        "{}",
        server.log()
    );
    // A request of the same size with many arguments.
    let mut many = server.connect();
    many.send_raw(b"*1000000\r\n$3\r\nDEL\r\n")
        .expect("a request");
    let mut piece = Vec::new();
    for _ in 0..100 {
        encode(&mut piece, &["k".repeat(10_000)]);
    }
    let piece = String::from_utf8(piece).unwrap().replace("*1\r\n", "");
    let mut sent = 0;
    while sent < 1 << 30 && many.send_raw(piece.as_bytes()).is_ok() {
        sent += piece.len();
    }
    assert!(sent < 8 * LIMIT, "{} MiB", sent >> 20);
    other.must("PING");
}

/// The error is Redis' for exceeded `maxmemory`; no client is closed.
#[test]
fn a_transaction_that_clients_have_no_memory_for_is_refused() {
    let server = Server::start(&["--maxmemory-clients", "16mb"]);
    let mut conn = server.connect();
    let set = |n: usize| {
        [
            b"SET".to_vec(),
            format!("k{n}").into_bytes(),
            vec![b'v'; 500_000],
        ]
    };
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    conn.must("MULTI");
    let replies: Vec<Value> = (0..100).map(|n| conn.call(&set(n))).collect();
    assert_eq!(replies[0], Value::simple("QUEUED"));
    assert!(
        replies
            .iter()
            .any(|reply| reply.error().as_deref() == Some(oom))
    );
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(conn.cmd("EXEC").error().as_deref(), Some(aborted));
    assert_eq!(conn.must("DBSIZE"), Value::Int(0));
    conn.must("MULTI");
    for n in 0..4 {
        assert_eq!(conn.call(&set(n)), Value::simple("QUEUED"));
    }
    assert_eq!(conn.must("EXEC").items().len(), 4);
    assert_eq!(conn.must("DBSIZE"), Value::Int(4));
    // The transaction succeeded, and so do later commands.
    assert_eq!(conn.call(&set(5)), Value::ok());
    assert_eq!(conn.info_number("stats", "evicted_clients"), 0);
}

/// A sparse bitmap takes some kilobytes on disk and tens of megabytes in a reply: a request of a
/// few hundred bytes made the server allocate all memory.
#[test]
fn a_reply_of_long_values_is_bounded_as_any_other() {
    let server = Server::start(&["--maxmemory-clients", "64mb"]);
    let mut conn = server.connect();
    conn.must("SETBIT map 400000000 1");
    assert_eq!(conn.must("GET map").bytes().len(), 50_000_001);
    bounded(&server, || {
        let maps = vec!["map"; 40];
        let mut wide = server.connect();
        wide.send(&[&["MGET"], &maps[..]].concat())
            .expect("a request");
        assert!(wide.closed_within(Duration::from_secs(20)));
        let script = ["EVAL", "return redis.call('mget', unpack(KEYS))", "40"];
        let reply = conn.call(&[&script[..], &maps[..]].concat());
        let error = reply.error().unwrap_or_default();
        assert!(
            error.starts_with("ERR the reply would be too long"),
            "{error}"
        );
    });
    conn.must("PING");
}

#[test]
fn a_stranger_that_never_reads_costs_little() {
    let server = Server::start(&["--requirepass", "secret"]);
    let before = server.rss();
    let mut strangers: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
    let wire = b"GET x\r\n".repeat(10_000);
    std::thread::scope(|scope| {
        for conn in &strangers {
            scope.spawn(|| stuff(conn, &wire, 500));
        }
    });
    let grown = server.rss().saturating_sub(before);
    assert!(grown < 64 << 20, "memory grew by {} MB", grown >> 20);
    strangers.clear();
    let mut conn = server.connect();
    conn.must("AUTH secret");
    conn.must("PING");
}
