//! Connections that send nothing: their maximum number, timeout and cost.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::conn::encode;
use crate::support::{Conn, Server, Value, wait_for, wait_within};

/// Raises the limit of open files for this process and the servers that it starts.
fn allow_open_files(wanted: u64) {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|l| l.starts_with("Max open files"))
        .unwrap();
    let mut numbers = line
        .split_whitespace()
        .skip(3)
        .map(|n| n.parse().unwrap_or(u64::MAX));
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    if soft >= wanted {
        return;
    }
    let raised = Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string()])
        .arg(format!("--nofile={wanted}:{}", hard.max(wanted)))
        .status();
    assert!(
        raised.is_ok_and(|status| status.success()),
        "this test opens {wanted} files, the limit is {soft} (hard {hard}): raise it with ulimit -n"
    );
}

#[test]
fn ten_thousand_idle_connections_and_no_more() {
    const IDLE: usize = 10_000;
    allow_open_files(12_000);
    let limit = (IDLE + 20).to_string();
    let server = Server::start(&["--maxclients", &limit]);
    let before = server.rss();
    let mut idle: Vec<Conn> = (0..IDLE).map(|_| server.connect()).collect();
    for conn in idle.iter_mut().step_by(97) {
        assert_eq!(conn.cmd("PING"), Value::simple("PONG"));
    }
    let grown = server.rss().saturating_sub(before);
    println!("{IDLE} idle connections cost {} MB", grown >> 20);
    assert!(grown < 200 << 20, "they cost {} MB", grown >> 20);

    let mut refused = None;
    for _ in 0..200 {
        let mut conn = server.connect();
        match conn.cmd("PING") {
            Value::Simple(_) => idle.push(conn),
            other => {
                refused = Some(other);
                break;
            }
        }
    }
    // The error may be lost if the PING is sent to a socket that is already closed.
    match refused.expect("a limit") {
        Value::Error(text) => assert_eq!(
            String::from_utf8_lossy(&text),
            "ERR max number of clients reached"
        ),
        Value::Lost(_) => {}
        other => panic!("over the limit: {other:?}"),
    }
    assert!(
        idle.len() >= IDLE,
        "the limit came too early: {}",
        idle.len()
    );
    assert!(idle.len() <= IDLE + 20, "{} clients at once", idle.len());
    idle.truncate(IDLE / 2);
    wait_for("room after clients left", || {
        server.connect().cmd("PING") == Value::simple("PONG")
    });
}

#[test]
fn idle_clients_are_closed_after_the_timeout() {
    let server = Server::start(&["--timeout", "3"]);
    let mut idle = server.connect();
    let mut busy = server.connect();
    idle.must("PING");
    let start = Instant::now();
    let closed = wait_within(Duration::from_secs(20), || {
        busy.must("PING");
        idle.closed_within(Duration::from_millis(10))
    });
    assert!(closed, "still open after {:?}", start.elapsed());
    assert!(
        start.elapsed() >= Duration::from_millis(2900),
        "closed too early"
    );
    busy.must("PING");
}

#[test]
fn a_client_that_waits_for_a_pause_is_not_idle() {
    let server = Server::start(&["--timeout", "3"]);
    let mut admin = server.connect();
    let mut waiting: Vec<Conn> = (0..2).map(|_| server.connect()).collect();
    let idle = server.connect();
    admin.must("SET k v");
    admin.must("CLIENT PAUSE 60000 WRITE");
    // Every byte wakes the server for the connection.
    for conn in &mut waiting {
        for _ in 0..50 {
            conn.send_raw(b"INCR n\r\n").unwrap();
        }
    }
    let blocked = |conn: &mut Conn, n: usize| {
        let line = format!("blocked_clients:{n}\r\n");
        conn.must("INFO clients").text().contains(&line)
    };
    wait_for("clients that wait", || blocked(&mut admin, 2));
    // Two timeouts pass: that of an idle client, and that of another one that connects after
    // the first was closed.
    for mut idle in [idle, server.connect()] {
        let closed = wait_within(Duration::from_secs(20), || {
            admin.must("PING");
            idle.closed_within(Duration::from_millis(10))
        });
        assert!(closed, "the idle client is still there");
    }
    admin.must("CLIENT UNPAUSE");
    for conn in &mut waiting {
        for _ in 0..50 {
            assert!(conn.read().unwrap().int() > 0);
        }
    }
    assert_eq!(admin.must("GET n"), Value::bulk("100"));
    assert!(blocked(&mut admin, 0));
}

#[test]
fn idle_connections_keep_no_buffers() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    let mut idle = server.connect();
    idle.must("CLIENT SETNAME idle");
    let big = vec![b'v'; 60_000];
    let mut wire = Vec::new();
    encode(&mut wire, &[b"SET".as_slice(), b"big", &big]);
    let (start, rest) = wire.split_at(wire.len() / 2);
    idle.send_raw(start).unwrap();
    let line = |admin: &mut Conn| {
        let list = admin.must("CLIENT LIST").text();
        let mut lines = list.lines();
        lines
            .find(|l| l.contains("name=idle"))
            .unwrap_or_default()
            .to_owned()
    };
    wait_for("half a request", || !line(&mut admin).contains(" qbuf=0 "));
    idle.send_raw(rest).unwrap();
    assert_eq!(idle.read().unwrap(), Value::ok());
    assert_eq!(idle.must("GET big").bytes(), big);
    let before = line(&mut admin);
    assert!(!before.contains(" rbs=0 "), "{before}");
    wait_for("buffers to be freed", || {
        let line = line(&mut admin);
        line.contains(" qbuf-free=0 ") && line.contains(" rbs=0 ")
    });
    assert_eq!(idle.must("GET big").bytes(), big);
}
