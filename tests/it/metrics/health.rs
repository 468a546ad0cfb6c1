//! Whether the server lives, and whether it is ready.

use super::Observed;
use super::client::Http;
use crate::disk::Faulty;
use crate::replication::follow;
use crate::support::conn::encode;
use crate::support::server::free_port;
use crate::support::{Server, Value, wait_for};
use std::fs;
use std::process::Stdio;

/// The status and the words of a health check.
fn check(port: u16, path: &str) -> (u16, String) {
    let response = Http::open(port).unwrap().get(path, "").unwrap();
    (response.status, response.body)
}

fn is_ready(port: u16) -> bool {
    check(port, "/readyz") == (200, "ok\n".to_owned())
}

/// Waits until the server is not ready, for this reason alone, and checks that it lives.
fn wait_unready(port: u16, reason: &str) {
    let mut last = (0, String::new());
    wait_for(reason, || {
        last = check(port, "/readyz");
        last.0 == 503 && last.1.contains(reason)
    });
    assert_eq!(last.1.lines().count(), 1, "{}", last.1);
    assert_eq!(check(port, "/healthz").0, 200);
}

#[test]
fn a_server_that_runs_lives_and_is_ready() {
    let observed = Observed::start(&[]);
    assert_eq!(check(*observed.port, "/healthz"), (200, "ok\n".to_owned()));
    assert!(is_ready(*observed.port));
    assert_eq!(observed.page().value("kedis_ready"), Some(1.0));
}

#[test]
fn a_server_that_loads_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Vec::new();
    encode(&mut log, &["SELECT", "0"]);
    encode(&mut log, &["EVAL", "while true do end", "0"]);
    let file = dir.path().join("log.aof");
    fs::write(&file, log).unwrap();
    let (port, metrics) = (free_port(), free_port());
    let file = file.display().to_string();
    let number = metrics.to_string();
    let flags = ["--load-rdb", &file, "--metrics-port", &number];
    let mut child = Server::command(&dir.path().join("data"), *port, &flags)
        .args(["--bind", "127.0.0.1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the metrics", || Http::open(*metrics).is_ok());
    wait_unready(*metrics, "it loads a file");
    let loading = Http::open(*metrics).unwrap().get("/metrics", "").unwrap();
    assert!(loading.body.contains("\nkedis_loading 1\n"));
    assert!(loading.body.contains("\nkedis_ready 0\n"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_server_whose_disk_fails_is_not_ready() {
    let port = free_port();
    let faulty = Faulty::start(&["--metrics-port", &port.to_string()]);
    let mut conn = faulty.connect();
    assert!(is_ready(*port));
    faulty.fail("write .log 5 -1");
    assert!(conn.cmd("SET a 1").error().unwrap().starts_with("MISCONF"));
    wait_unready(*port, "a write to the disk has failed");
    faulty.fail("");
    wait_for("writes", || conn.cmd("SET a 1") == Value::ok());
    assert!(is_ready(*port));
}

#[test]
fn a_replica_without_its_master_is_ready_if_it_serves_stale_data() {
    let mut master = Server::start(&[]);
    let replica = Observed::start(&["--repl-timeout", "5"]);
    let mut conn = replica.server.connect();
    follow(&replica.server, &master);
    wait_for("the link", || {
        conn.info_text("replication", "master_link_status") == "up"
    });
    conn.must("CONFIG SET replica-serve-stale-data no");
    assert!(is_ready(*replica.port));
    master.kill9();
    wait_unready(*replica.port, "the link to its master is down");
    conn.must("CONFIG SET replica-serve-stale-data yes");
    assert!(is_ready(*replica.port));
}

#[test]
fn a_server_that_stops_is_not_ready() {
    let mut master = Observed::start(&["--shutdown-timeout", "1000"]);
    let replica = Server::start(&[]);
    follow(&replica, &master.server);
    let mut conn = master.server.connect();
    wait_for("the replica", || conn.cmd("WAIT 1 100") == Value::Int(1));
    replica.signal("STOP");
    conn.must("SET a 1");
    master.server.signal("TERM");
    wait_unready(*master.port, "it is to stop");
    replica.signal("CONT");
    assert!(master.server.wait_exit().success());
    assert!(Http::open(*master.port).is_err());
}
