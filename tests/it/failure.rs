//! Writes that fail: the client is told, nothing is shown that a restart would
//! take back, and the server refuses what it cannot keep.
//!
//! What broke once: counts were shown before they were written, a failed SWAPDB
//! stayed swapped in memory, and after a failed flush even PING was an error.

use crate::support::{Server, Value, wait_for};

fn is_misconf(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"MISCONF") || text.starts_with(b"ERR storage"))
}

#[test]
fn a_write_that_fails_leaves_no_trace() {
    no_trace_of_a_failure_at("before-write:3:error", &[]);
    no_trace_of_a_failure_at("before-write:3:error", ALWAYS);
}

/// With a full disk not even what had long been safe could be read.
#[test]
fn a_write_that_the_disk_does_not_take_leaves_no_trace() {
    no_trace_of_a_failure_at("while-writing:3:error", &[]);
    no_trace_of_a_failure_at("while-writing:3:error", ALWAYS);
}

/// Replies wait for the fsync thread then.
const ALWAYS: &[&str] = &["--appendfsync", "always"];

fn no_trace_of_a_failure_at(fail_point: &str, flags: &[&str]) {
    let mut server = Server::start(flags);
    server.restart_failing(fail_point);
    let mut conn = server.connect();
    conn.must("SET a 1");
    conn.must("SET b 1");
    assert!(is_misconf(&conn.cmd("SET c 1")));
    let mut conn = server.connect();
    assert_eq!(conn.must("DBSIZE"), Value::Int(2));
    assert_eq!(conn.must("EXISTS c"), Value::Int(0));
    assert!(is_misconf(&conn.cmd("SET d 1")), "writes are refused");
    server.kill9();
    server.spawn();
    let mut conn = server.connect();
    assert_eq!(conn.must("DBSIZE"), Value::Int(2));
    conn.must("SET c 1");
}

#[test]
fn a_swap_that_fails_is_taken_back() {
    let mut server = Server::start(&[]);
    server.restart_failing("before-write:2:error");
    let mut conn = server.connect();
    conn.must("SET zero 1");
    assert!(is_misconf(&conn.cmd("SWAPDB 0 1")));
    let mut conn = server.connect();
    assert_eq!(conn.must("EXISTS zero"), Value::Int(1));
}

#[test]
fn after_a_failed_flush_only_what_needs_no_keys_is_served() {
    after_a_failed_flush(&[]);
    after_a_failed_flush(ALWAYS);
}

fn after_a_failed_flush(flags: &[&str]) {
    let mut server = Server::start(flags);
    server.restart_failing("before-flush:2:error");
    let mut conn = server.connect();
    conn.must("SET a 1");
    assert!(is_misconf(&conn.cmd("SET b 1")));
    let mut conn = server.connect();
    assert_eq!(conn.must("PING"), Value::Simple(b"PONG".to_vec()));
    conn.must("INFO server");
    assert!(is_misconf(&conn.cmd("GET b")), "b may be lost");
    server.kill9();
    server.spawn();
    assert_eq!(server.connect().must("GET a"), Value::Bulk(b"1".to_vec()));
}

/// What was lost when the disk did not take it was only a line in the log.
#[test]
fn after_a_failed_sync_nothing_is_written() {
    let mut server = Server::start(&["--appendfsync", "everysec"]);
    server.connect().must("SET a 1");
    server.restart_failing("before-sync:1:error");
    let mut conn = server.connect();
    wait_for("writes to be refused", || is_misconf(&conn.cmd("SET b 1")));
    server.kill9();
    server.spawn();
    assert_eq!(server.connect().must("GET a"), Value::Bulk(b"1".to_vec()));
}

#[test]
fn turning_the_binlog_off_begins_a_new_history() {
    let id = |server: &Server| {
        let info = server.connect().must("INFO replication");
        let Value::Bulk(text) = info else {
            panic!("INFO: {info:?}")
        };
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|l| l.starts_with("master_replid:"));
        line.map(str::to_owned).unwrap()
    };
    let mut server = Server::start(&[]);
    server.connect().must("SET a 1");
    let first = id(&server);
    server.restart();
    assert_eq!(id(&server), first, "a restart alone changes nothing");
    server
        .flags
        .extend(["--binlog-enabled".into(), "no".into()]);
    server.restart();
    let second = id(&server);
    assert_ne!(second, first);
    server.connect().must("SET unlogged 1");
    server.flags.truncate(0);
    server.restart();
    assert_ne!(id(&server), second);
}
