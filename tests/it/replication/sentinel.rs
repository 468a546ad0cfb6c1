//! Redis' own Sentinel, unmodified, over a master and replicas.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{assert_same, info, is_caught_up, syncs};
use crate::support::server::{oracle_with_file, sentinel};
use crate::support::{Conn, Server, Value, wait_for, wait_within};

/// A server with a configuration file, for CONFIG REWRITE.
fn configured(dir: &Path, name: &str, master: Option<&Server>) -> Server {
    let file = dir.join(format!("{name}.conf"));
    let mut text = String::from("enable-debug-command yes\nio-threads 2\n");
    if let Some(master) = master {
        text += &format!("replicaof 127.0.0.1 {}\n", master.port());
    }
    std::fs::write(&file, text).unwrap();
    Server::start(&[&file.display().to_string()])
}

/// A Redis master with a configuration file.
fn configured_redis(dir: &Path) -> Server {
    let file = dir.join("redis.conf");
    std::fs::write(&file, "save \"\"\nrepl-diskless-sync-delay 0\n").unwrap();
    oracle_with_file(&file.display().to_string())
}

fn watcher(dir: &Path, name: &str, master: &Server) -> Server {
    let file = dir.join(format!("{name}.conf"));
    let text = format!(
        "sentinel monitor mymaster 127.0.0.1 {} 2\n\
         sentinel down-after-milliseconds mymaster 1500\n\
         sentinel failover-timeout mymaster 10000\n\
         sentinel parallel-syncs mymaster 1\n",
        master.port()
    );
    std::fs::write(&file, text).unwrap();
    sentinel(&file.display().to_string())
}

fn field(sentinel: &Server, name: &str) -> String {
    let reply = sentinel.connect().must("SENTINEL MASTER mymaster");
    let words: Vec<String> = reply.items().iter().map(Value::text).collect();
    let at = words.iter().position(|word| word == name);
    words[at.unwrap_or_else(|| panic!("no {name}: {words:?}")) + 1].clone()
}

/// The port of the current master, as Sentinel reports it.
fn master_port(sentinel: &Server) -> u16 {
    let reply = sentinel
        .connect()
        .must("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster");
    reply.items()[1].text().parse().unwrap()
}

/// Increments a counter on the current master; `None` if there is none.
fn count(sentinel: &Server) -> Option<i64> {
    let mut conn = Conn::open(&format!("127.0.0.1:{}", master_port(sentinel))).ok()?;
    conn.set_timeout(Duration::from_secs(2));
    match conn.cmd("INCR counter") {
        Value::Int(n) => Some(n),
        _ => None,
    }
}

#[test]
fn sentinel_moves_the_master_and_takes_the_old_one_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut old = configured(dir.path(), "a", None);
    let others = ["b", "c"].map(|name| configured(dir.path(), name, Some(&old)));
    let sentinels = ["s1", "s2", "s3"].map(|name| watcher(dir.path(), name, &old));
    old.connect().must("DEBUG POPULATE 5000");
    wait_for("all know each other", || {
        sentinels.iter().all(|sentinel| {
            field(sentinel, "num-slaves") == "2" && field(sentinel, "num-other-sentinels") == "2"
        })
    });
    for _ in 0..100 {
        count(&sentinels[0]).expect("a number");
    }
    wait_for("the replicas have everything", || {
        others.iter().all(|other| is_caught_up(&old, other))
    });
    old.kill9();
    let killed = Instant::now();
    wait_for("another master", || {
        sentinels.iter().all(|s| master_port(s) != old.port())
    });
    let mut next = None;
    let is_writable = wait_within(Duration::from_secs(30), || {
        next = count(&sentinels[0]);
        next.is_some()
    });
    assert!(is_writable, "no server accepts writes");
    println!("writes go on after {:?}", killed.elapsed());
    assert_eq!(next, Some(101), "a write that the replicas had is lost");
    let port = master_port(&sentinels[0]);
    let (new, other) = match others[0].port() == port {
        true => (&others[0], &others[1]),
        false => (&others[1], &others[0]),
    };
    // It starts as a master, and Sentinel makes it a replica.
    old.spawn();
    wait_for("the old master follows", || {
        info(&old, "replication", "role") == "slave"
            && info(&old, "replication", "master_port") == port.to_string()
    });
    wait_for("the other replica follows", || {
        info(other, "replication", "master_port") == port.to_string()
    });
    assert_same(new, &old);
    assert_same(new, other);
    assert_eq!(syncs(new).0, 0, "a full sync");
    for name in ["a", "b", "c"] {
        let text = std::fs::read_to_string(dir.path().join(format!("{name}.conf"))).unwrap();
        let follows = text.contains(&format!("replicaof 127.0.0.1 {port}"));
        let is_new = (name == "b") == std::ptr::eq(new, &others[0]) && name != "a";
        assert_eq!(follows, !is_new, "{name}.conf:\n{text}");
    }
}

/// Sentinel treats the Kedis replica of a Redis like any replica.
#[test]
fn sentinel_chooses_the_replica_of_a_redis() {
    let dir = tempfile::tempdir().unwrap();
    let mut old = configured_redis(dir.path());
    let new = configured(dir.path(), "b", Some(&old));
    let sentinels = ["s1", "s2", "s3"].map(|name| watcher(dir.path(), name, &old));
    wait_for("all know each other", || {
        sentinels.iter().all(|sentinel| {
            field(sentinel, "num-slaves") == "1" && field(sentinel, "num-other-sentinels") == "2"
        })
    });
    for _ in 0..100 {
        count(&sentinels[0]).expect("a number");
    }
    let numbers = |server: &Server| server.connect().cmd("GET counter");
    wait_for("the replica has everything", || {
        numbers(&new) == Value::bulk("100")
    });
    old.kill9();
    wait_for("another master", || {
        sentinels.iter().all(|s| master_port(s) == new.port())
    });
    let mut next = None;
    let is_writable = wait_within(Duration::from_secs(30), || {
        next = count(&sentinels[0]);
        next.is_some()
    });
    assert!(is_writable && next == Some(101), "{next:?}");
    // The Redis comes back as its replica.
    old.spawn();
    wait_for("the Redis follows", || numbers(&old) == Value::bulk("101"));
    assert_eq!(info(&old, "replication", "role"), "slave");
}
