//! RDB files of redis-server, loaded at the start; loads that fail or are killed; and files for
//! redis-server.

use crate::support::server::free_port;
use crate::support::{Conn, DEADLINE, Server, Value, oracle, wait_within};
use std::fs;
use std::path::{Path, PathBuf};

/// A file of redis-server with a hash larger than one commit.
fn file_of_redis(dir: &Path) -> PathBuf {
    let redis = oracle(&["--enable-debug-command", "yes"]);
    let mut conn = redis.connect();
    for n in 0..300 {
        conn.must(&format!("SET key:{n} value-{n}"));
    }
    load_functions(&mut conn);
    let value = "v".repeat(4_000);
    for n in 0..12_000 {
        conn.must(&format!("HSET big field-{n} {n}{value}"));
    }
    conn.must("SELECT 7");
    conn.must("RPUSH list a b c");
    conn.must("PEXPIREAT list 32503680000000");
    conn.must("SET over x PXAT 1");
    conn.must("SAVE");
    let path = dir.join("redis.rdb");
    fs::copy(redis.data_dir().join("dump.rdb"), &path).unwrap();
    path
}

/// Loads two libraries with three functions.
fn load_functions(conn: &mut Conn) {
    for (name, functions) in [("one", &["f"][..]), ("two", &["g", "h"])] {
        let mut code = format!("#!lua name={name}\n");
        for function in functions {
            let body = format!("function(keys, args) return '{name}.{function}' end");
            code += &format!("redis.register_function('{function}', {body})\n");
        }
        let reply = conn.call(&["FUNCTION", "LOAD", &code]);
        assert_eq!(reply, Value::bulk(name));
    }
}

fn check_functions(conn: &mut Conn) {
    for (function, reply) in [("f", "one.f"), ("g", "two.g"), ("h", "two.h")] {
        let line = format!("FCALL {function} 0");
        assert_eq!(conn.must(&line), Value::bulk(reply));
    }
}

fn check_loaded(server: &Server) {
    let mut conn = server.connect();
    check_functions(&mut conn);
    assert_eq!(conn.must("DBSIZE"), Value::Int(301));
    assert_eq!(conn.must("GET key:17"), Value::Bulk(b"value-17".to_vec()));
    assert_eq!(conn.must("HLEN big"), Value::Int(12_000));
    assert_eq!(conn.must("HSTRLEN big field-9999"), Value::Int(4_004));
    conn.must("SELECT 7");
    assert_eq!(conn.must("LLEN list"), Value::Int(3));
    assert_eq!(
        conn.must("PEXPIRETIME list"),
        Value::Int(32_503_680_000_000)
    );
    conn.must("DEBUG KEDIS-CHECK");
}

/// Runs the server until it ends; returns whether it succeeded, and its output.
fn output(dir: &Path, flags: &[&str], fail_point: Option<&str>) -> (bool, String) {
    let port = free_port();
    let mut command = Server::command(dir, *port, flags);
    if let Some(point) = fail_point {
        command.env("KEDIS_FAIL_POINT", point);
    }
    let done = command.output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (done.status.success(), text)
}

#[test]
fn a_file_of_redis_fills_an_empty_server_whatever_happens_on_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of_redis(dir.path());
    let file = file.display().to_string();
    let mut server = Server::start(&["--enable-debug-command", "yes"]);
    server.terminate();
    let data = server.data_dir();

    // An incomplete file and a missing one leave nothing.
    let cut = dir.path().join("cut.rdb");
    let bytes = fs::read(&file).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    for (name, text) in [
        (cut.display().to_string(), "it ends too early"),
        ("/nowhere/x.rdb".to_owned(), "cannot open"),
    ] {
        let (ok, printed) = output(&data, &["--load-rdb", &name], None);
        assert!(!ok && printed.contains(text), "{printed}");
    }
    let (ok, printed) = output(&data, &["--load-rdb"], None);
    assert!(
        !ok && printed.contains("takes the name of one file"),
        "{printed}"
    );

    // After a kill in the middle of the large hash, a start is refused instead of showing a
    // part of the file.
    let (ok, _) = output(&data, &["--load-rdb", &file], Some("after-commit:3"));
    assert!(!ok);
    let (ok, printed) = output(&data, &[], None);
    assert!(!ok && printed.contains("did not end"), "{printed}");

    let before = server.flags.clone();
    server.flags.extend(["--load-rdb".into(), file.clone()]);
    server.spawn();
    check_loaded(&server);
    let mut conn = server.connect();
    assert_eq!(
        conn.info_number("persistence", "rdb_last_load_keys_loaded"),
        302
    );
    assert_eq!(
        conn.info_number("persistence", "rdb_last_load_keys_expired"),
        1
    );
    server.terminate();

    // A second load is refused.
    let (ok, printed) = output(&data, &["--load-rdb", &file], None);
    let refused = "302 keys and 2 libraries of functions";
    assert!(!ok && printed.contains(refused), "{printed}");
    server.flags = before;
    server.spawn();
    check_loaded(&server);
    assert!(server.log().contains("loaded 302 keys"));
    check_functions(&mut server.connect());
}

#[test]
fn a_file_of_ours_fills_redis() {
    let server = Server::start(&[]);
    let mut conn = server.connect();
    load_functions(&mut conn);
    conn.must("SET text value");
    conn.must("SET soon x PX 1");
    conn.must("HSET hash f v");
    for n in 0..5_000 {
        conn.must(&format!("RPUSH list item-{n}"));
        conn.must(&format!("ZADD zset {} member-{n}", n % 100));
    }
    conn.must("SELECT 9");
    conn.must("SADD set 1 2 3");
    conn.must("PEXPIREAT set 32503680000000");
    for (line, text) in [
        (
            "BGSAVE RDB a/b",
            "ERR the name of the file must not name a directory or hold a zero byte",
        ),
        (
            "BGSAVE RDB ..",
            "ERR the name of the file must not name a directory or hold a zero byte",
        ),
        ("BGSAVE RDB a b", "ERR syntax error"),
    ] {
        assert_eq!(conn.cmd(line), Value::Error(text.into()), "{line}");
    }
    conn.must("BGSAVE RDB ours.rdb");
    let path = server.data_dir().join("ours.rdb");
    assert!(wait_within(DEADLINE, || path.exists()));
    let mut redis = oracle(&[]);
    redis.terminate();
    fs::copy(&path, redis.data_dir().join("dump.rdb")).unwrap();
    redis.spawn();
    let mut conn = redis.connect();
    check_functions(&mut conn);
    assert_eq!(conn.must("DBSIZE"), Value::Int(4));
    assert_eq!(conn.must("GET text"), Value::Bulk(b"value".to_vec()));
    assert_eq!(conn.must("HGET hash f"), Value::Bulk(b"v".to_vec()));
    assert_eq!(
        conn.must("LINDEX list 4999"),
        Value::Bulk(b"item-4999".to_vec())
    );
    assert_eq!(
        conn.must("ZSCORE zset member-4999"),
        Value::Bulk(b"99".to_vec())
    );
    conn.must("SELECT 9");
    assert_eq!(conn.must("SCARD set"), Value::Int(3));
    assert_eq!(conn.must("PEXPIRETIME set"), Value::Int(32_503_680_000_000));
}
