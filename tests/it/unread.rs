//! Replies that their clients do not read yet, or never.
//!
//! Once, a connection was not read while more than a mebibyte of its replies was unsent, so a
//! client that writes a whole pipeline before it reads hung forever. Now replies are buffered
//! up to the limits for clients, and a client beyond them is closed and named in the log.

use crate::support::conn::encode;
use crate::support::{Conn, Server, Value, args, wait_for};
use std::time::{Duration, Instant};

/// Runs `test` over TCP and over a Unix socket, whose buffers are much smaller.
fn with_each_kind_of_socket(flags: &[&str], test: impl Fn(&Server, &mut Conn)) {
    let socket = tempfile::tempdir().unwrap();
    let path = socket.path().join("kedis.sock");
    let unix = ["--unixsocket", path.to_str().unwrap()];
    let server = Server::start(&[&unix[..], flags].concat());
    test(&server, &mut server.connect());
    test(&server, &mut Conn::open_unix(&path).unwrap());
}

fn wire(command: &[&str], times: usize) -> Vec<u8> {
    let mut one = Vec::new();
    encode(&mut one, command);
    one.repeat(times)
}

fn set_value(conn: &mut Conn, bytes: usize) {
    let set = [b"SET".to_vec(), b"value".to_vec(), vec![b'v'; bytes]];
    assert_eq!(conn.call(&set), Value::ok());
}

#[test]
fn a_pipeline_may_be_written_before_its_replies_are_read() {
    with_each_kind_of_socket(&[], |_, conn| {
        set_value(conn, 1000);
        let push: Vec<_> = args("RPUSH list")
            .into_iter()
            .chain(vec![vec![b'e'; 10]; 100])
            .collect();
        conn.call(&push);
        conn.send_raw(&wire(&["PING"], 1_000_000)).unwrap();
        conn.send_raw(&wire(&["GET", "value"], 50_000)).unwrap();
        conn.send_raw(&wire(&["LRANGE", "list", "0", "99"], 10_000))
            .unwrap();
        for _ in 0..1_000_000 {
            assert_eq!(conn.read().unwrap(), Value::simple("PONG"));
        }
        for _ in 0..50_000 {
            assert_eq!(conn.read().unwrap().bytes().len(), 1000);
        }
        for _ in 0..10_000 {
            assert!(conn.read().unwrap().items().len() >= 100);
        }
        conn.must("DEL list");
    });
}

/// The log says why the connection was closed, since the client cannot know.
#[test]
fn a_client_that_never_reads_is_closed_and_named_once_there_is_no_room() {
    with_each_kind_of_socket(&["--maxmemory-clients", "32mb"], |server, conn| {
        set_value(conn, 10_000);
        let mut other = server.connect();
        let evicted = other.info_number("stats", "evicted_clients");
        let requests = wire(&["GET", "value"], 20_000);
        std::thread::scope(|scope| {
            let never_reads = scope.spawn(|| while conn.send_raw(&requests).is_ok() {});
            while !never_reads.is_finished() {
                let asked = Instant::now();
                assert_eq!(other.must("GET value").bytes().len(), 10_000);
                assert!(asked.elapsed() < Duration::from_secs(5));
                assert!(other.info_number("memory", "mem_clients_normal") < 48 << 20);
            }
        });
        assert!(conn.closed_within(Duration::from_secs(60)));
        assert_eq!(other.info_number("stats", "evicted_clients"), evicted + 1);
        let log = server.log();
        let warnings = log.lines().filter(|line| line.contains("reads no replies"));
        assert!(warnings.count() > 0, "{log}");
    });
}

#[test]
fn requests_that_wait_for_room_are_run_once_there_is_some() {
    const TIMES: usize = 4000;
    let server = Server::start(&["--maxmemory-clients", "32mb"]);
    let (mut hog, mut waiting, mut other) = (server.connect(), server.connect(), server.connect());
    set_value(&mut other, 10_000);
    let mem = |other: &mut Conn, name: &str| {
        let list = other.must("CLIENT LIST").text();
        let line = list.lines().find(|line| line.contains(name)).unwrap();
        let field = line
            .split(' ')
            .find_map(|field| field.strip_prefix("omem="));
        field.unwrap().parse::<usize>().unwrap()
    };
    hog.must("CLIENT SETNAME the-hog");
    waiting.must("CLIENT SETNAME the-waiting-one");
    hog.send_raw(&wire(&["GET", "value"], TIMES)).unwrap();
    // An eighth is left for requests that run already, such as one of another thread. What is not in
    // buffers counts as well.
    let no_room = (28 << 20) - (256 << 10);
    wait_for("no room", || {
        other.info_number("memory", "mem_clients_normal") >= no_room
    });
    waiting.send_raw(&wire(&["GET", "value"], TIMES)).unwrap();
    wait_for("requests that wait", || {
        mem(&mut other, "the-waiting-one") > 64 << 10
    });
    assert!(mem(&mut other, "the-waiting-one") < 8 << 20);
    drop(hog);
    // A client that reads slowly makes room for the replies to the rest of its requests.
    for _ in 0..TIMES {
        assert_eq!(waiting.read().unwrap().bytes().len(), 10_000);
    }
    assert_eq!(other.info_number("stats", "evicted_clients"), 0);
}

/// Each would take the other's memory while both grow.
#[test]
fn replies_that_do_not_fit_together_are_made_one_after_the_other() {
    let server = Server::start(&["--maxmemory-clients", "48mb"]);
    let mut conn = server.connect();
    let item = "i".repeat(100_000);
    for _ in 0..300 {
        conn.must(&format!("RPUSH list {item}"));
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = server.connect();
                for _ in 0..3 {
                    assert_eq!(reader.must("LRANGE list 0 -1").items().len(), 300);
                }
            });
        }
    });
    assert_eq!(conn.info_number("stats", "evicted_clients"), 0);
}
