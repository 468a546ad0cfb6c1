//! Replicas whose disk fails or is full.

use super::full::{SmallDisk, noise, start_on, write_until_refused};
use super::{Faulty, is_misconf, kind, rules};
use crate::replication::{follow, info};
use crate::support::{Conn, Server, Value, wait_for};

fn is_up(replica: &Server) -> bool {
    info(replica, "replication", "master_link_status") == "up"
}

fn partial_syncs(master: &Server) -> u64 {
    master.connect().info_number("stats", "sync_partial_ok")
}

#[test]
fn a_moment_without_space_costs_a_replica_one_sync() {
    let master = Server::start(&[]);
    let replica = Faulty::start(&[]);
    follow(&replica.server, &master);
    wait_for("the link", || is_up(&replica.server));
    let mut conn = master.connect();
    conn.must("SET a 1");
    let mut read = replica.connect();
    wait_for("a", || read.must("GET a") == Value::Bulk(b"1".to_vec()));
    let before = partial_syncs(&master);
    replica.fail(&rules(&kind("", "write .log ENOSPC {}"), "-1"));
    for n in 0..100 {
        conn.must(&format!("SET b{n} 1"));
    }
    wait_for("the failure", || {
        replica
            .server
            .log()
            .contains("Writes are refused (MISCONF)")
    });
    assert_eq!(read.must("GET a"), Value::Bulk(b"1".to_vec()));
    replica.fail("");
    wait_for("the rest", || read.must("DBSIZE") == Value::Int(101));
    assert!(
        partial_syncs(&master) <= before + 2,
        "it tried all the time"
    );
    let log = replica.server.log();
    assert!(!log.contains("does not follow that master"), "{log}");
}

#[test]
fn a_full_replica_waits_and_resumes_by_itself() {
    let Some(disk) = SmallDisk::mount(60) else {
        return;
    };
    let master = Server::start(&[]);
    let replica = start_on(&disk, &[]);
    follow(&replica, &master);
    wait_for("the link", || is_up(&replica));
    let before = partial_syncs(&master);
    let mut conn = master.connect();
    conn.must("SET a 1");
    let mut read = replica.connect();
    wait_for("a", || read.must("EXISTS a") == Value::Int(1));
    let hog = disk.fill();
    wait_for("a low disk", || {
        read.info_number("persistence", "disk_low") == 1
    });
    // A deletion is applied; commands that add data are not.
    conn.must("DEL a");
    wait_for("the deletion", || read.must("EXISTS a") == Value::Int(0));
    for n in 0..100 {
        conn.must(&format!("SET b{n} {}", noise(1000)));
    }
    wait_for("the link to wait", || {
        replica
            .log()
            .contains("has no room for what the master sends")
    });
    assert!(is_up(&replica));
    assert_eq!(read.must("DBSIZE"), Value::Int(0));
    drop(hog);
    wait_for("the rest", || read.must("DBSIZE") == Value::Int(100));
    assert_eq!(partial_syncs(&master), before);
    assert_eq!(replica.log().matches("has no room for what").count(), 1);
}

#[test]
fn a_full_sync_that_does_not_fit_leaves_nothing_and_comes_later() {
    let Some(disk) = SmallDisk::mount(100) else {
        return;
    };
    let master = Server::start(&[]);
    let mut conn = master.connect();
    for n in 0..6000 {
        conn.must(&format!("SET key{n} {}", noise(5000)));
    }
    let mut replica = start_on(&disk, &[]);
    let mut read = replica.connect();
    read.must("SET own 1");
    let hog = disk.leave(14 << 20);
    let free_bytes = |read: &mut Conn| read.info_number("persistence", "disk_free_bytes");
    // The figure is updated by the disk thread.
    wait_for("the figure of the free bytes", || {
        free_bytes(&mut read) <= 16 << 20
    });
    let free = free_bytes(&mut read);
    follow(&replica, &master);
    let said = |replica: &Server| replica.log().matches("cannot be stored beside").count();
    wait_for("the reason", || said(&replica) == 1);
    assert_eq!(read.must("GET own"), Value::Bulk(b"1".to_vec()));
    wait_for("the staged rows to go", || {
        free_bytes(&mut read) + (8 << 20) > free
    });
    assert!(is_misconf(&read.cmd("SET x 1")) || matches!(read.cmd("SET x 1"), Value::Error(_)));
    drop(hog);
    wait_for("the data set", || dbsize(&mut read) == 6000);
    assert_eq!(said(&replica), 1);
    replica.restart();
    assert_eq!(dbsize(&mut replica.connect()), 6000);
}

fn dbsize(conn: &mut Conn) -> i64 {
    match conn.must("DBSIZE") {
        Value::Int(keys) => keys,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_master_feeds_its_replicas() {
    let Some(disk) = SmallDisk::mount(60) else {
        return;
    };
    let master = start_on(&disk, &[]);
    let replica = Server::start(&[]);
    follow(&replica, &master);
    wait_for("the link", || is_up(&replica));
    let mut conn = master.connect();
    let taken = write_until_refused(&mut conn, "key");
    let mut read = replica.connect();
    wait_for("all keys", || dbsize(&mut read) == taken);
    for n in 0..10 {
        conn.must(&format!("DEL key{n}"));
    }
    wait_for("the deletions", || dbsize(&mut read) == taken - 10);
}
