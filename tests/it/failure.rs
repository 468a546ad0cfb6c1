//! Writes that fail at a step of the commit: the client gets an error, no reply shows what a
//! restart would take back (I1), the server refuses writes that it cannot keep, and resumes
//! by itself. See `disk` for failing system calls.
//!
//! Past faults: counts were visible before they were written, a failed SWAPDB stayed swapped
//! in memory, and after a failed flush even PING was an error until a restart.

use crate::support::{Server, Value, wait_for};

fn is_misconf(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"MISCONF") || text.starts_with(b"ERR storage"))
}

#[test]
fn a_write_that_fails_leaves_no_trace() {
    no_trace_of_a_failure_at("before-write:3:error", &[]);
    no_trace_of_a_failure_at("before-write:3:error", ALWAYS);
}

/// With a full disk not even old keys could be read.
#[test]
fn a_write_that_the_disk_does_not_take_leaves_no_trace() {
    no_trace_of_a_failure_at("while-writing:3:error", &[]);
    no_trace_of_a_failure_at("while-writing:3:error", ALWAYS);
}

/// Replies wait for the fsync thread.
const ALWAYS: &[&str] = &["--appendfsync", "always"];

fn no_trace_of_a_failure_at(fail_point: &str, flags: &[&str]) {
    let mut server = Server::start(flags);
    server.restart_failing(fail_point);
    let mut conn = server.connect();
    conn.must("SET a 1");
    conn.must("SET b 1");
    assert!(is_misconf(&conn.cmd("SET c 1")));
    // The same connection works, without a restart of the server.
    assert_eq!(conn.must("DBSIZE"), Value::Int(2));
    assert_eq!(conn.must("EXISTS c"), Value::Int(0));
    wait_for("writes", || conn.cmd("SET d 1") == Value::ok());
    server.kill9();
    server.spawn();
    let mut conn = server.connect();
    assert_eq!(conn.must("DBSIZE"), Value::Int(3));
    assert_eq!(conn.must("EXISTS c"), Value::Int(0));
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
    wait_for("writes", || conn.cmd("SWAPDB 0 1") == Value::ok());
    assert_eq!(conn.must("EXISTS zero"), Value::Int(0));
}

/// Replies wait until their writes are durable: here until the second attempt.
#[test]
fn a_sync_that_fails_once_is_a_delay() {
    let mut server = Server::start(ALWAYS);
    server.restart_failing("before-flush:2:error");
    let mut conn = server.connect();
    conn.must("SET a 1");
    conn.must("SET b 1");
    assert_eq!(conn.must("GET b"), Value::Bulk(b"1".to_vec()));
    assert!(server.log().contains("a write failed: "));
    server.kill9();
    server.spawn();
    assert_eq!(server.connect().must("DBSIZE"), Value::Int(2));
}

/// A failed sync was only a line in the log, and the writes were lost.
#[test]
fn a_failed_sync_of_every_second_is_logged_and_repeated() {
    let mut server = Server::start(&["--appendfsync", "everysec"]);
    server.connect().must("SET a 1");
    server.restart_failing("before-sync:1:error");
    let mut conn = server.connect();
    wait_for("the failure", || server.log().contains("a write failed: "));
    wait_for("writes", || conn.cmd("SET b 1") == Value::ok());
    assert!(server.log().contains("the disk takes writes again"));
    server.kill9();
    server.spawn();
    assert_eq!(server.connect().must("DBSIZE"), Value::Int(2));
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

/// RocksDB creates a column family and then fails to write its OPTIONS file: the family existed
/// but could not be used, and no other new DB could be created.
#[test]
fn a_db_that_could_not_be_made_is_made_later() {
    let mut server = Server::start(&[]);
    let mut conn = server.connect();
    conn.must("SET zero 1");
    conn.must("SELECT 5");
    let fds = format!("/proc/{}/fd", server.pid());
    let is_free = |n: &u64| !std::fs::exists(format!("{fds}/{n}")).unwrap_or(true);
    let before = server.limit_files((0..).find(is_free).unwrap_or(0));
    let refused = conn.cmd("SET five 1");
    server.limit_files(before);
    assert!(is_misconf(&refused), "{refused:?}");
    conn.must("SET five 1");
    conn.must("SELECT 6");
    conn.must("SET six 1");
    server.kill9();
    server.spawn();
    let mut conn = server.connect();
    for (db, key) in [(0, "zero"), (5, "five"), (6, "six")] {
        conn.must(&format!("SELECT {db}"));
        assert_eq!(conn.must("DBSIZE"), Value::Int(1));
        assert_eq!(conn.must(&format!("EXISTS {key}")), Value::Int(1));
    }
}

#[test]
fn a_directory_is_one_servers() {
    let server = Server::start(&[]);
    let port = crate::support::server::free_port();
    let dir = server.data_dir();
    let mut second = Server::command(&dir, *port, &[]);
    let output = second.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("another server uses "), "{text}");
    server.connect().must("SET key 1");
}
