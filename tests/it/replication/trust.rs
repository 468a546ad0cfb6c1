//! The memory that a replication peer may use: replicas that read nothing, masters that announce
//! more than there is memory for.

use std::io::Write;
use std::net::TcpStream;

use super::redis_master::scripted::{full_sync, scripted_master};
use super::{figure, server};
use crate::support::conn::encode;
use crate::support::{Value, wait_for};

const MIB: i64 = 1 << 20;

/// Clients were closed instead of such replicas, whose pending output counted as the clients'.
#[test]
fn clients_do_not_pay_for_replicas_that_read_nothing() {
    let master = server(&["--maxmemory", "256mb", "--repl-timeout", "5"]);
    let mut conn = master.connect();
    conn.must("DEBUG POPULATE 20000 key 1000");
    conn.must(&format!("SET long {}", "x".repeat(1 << 20)));
    let idle: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut socket = TcpStream::connect(master.address()).unwrap();
            socket
                .write_all(b"REPLCONF capa kedis3\r\nPSYNC ? -1\r\n")
                .unwrap();
            socket
        })
        .collect();
    let waits = || figure(&master, "memory", "mem_clients_slaves");
    wait_for("output queued for the replicas", || waits() > MIB);
    for _ in 0..50 {
        assert_eq!(conn.must("GET long").bytes().len(), 1 << 20);
        // A sixteenth of the budget, and one more chunk for each replica that is being sent to.
        assert!(waits() < 16 * MIB + 16 * MIB, "{}", waits());
        assert!(figure(&master, "memory", "mem_clients_normal") < 8 * MIB);
    }
    assert_eq!(figure(&master, "stats", "evicted_clients"), 0);
    // The replicas whose turn it was are disconnected.
    wait_for("the first are cut", || {
        figure(&master, "replication", "connected_slaves") < 100
    });
    drop(idle);
    wait_for("nothing waits for anybody", || {
        figure(&master, "replication", "connected_slaves") == 0 && waits() == 0
    });
    assert_eq!(conn.must("PING"), Value::simple("PONG"));
}

/// An argument of 4 GiB was read into memory as it came, and so was any number of arguments.
#[test]
fn a_master_announces_no_more_than_there_is_memory_for() {
    let mut one = b"*2\r\n$4\r\nECHO\r\n$4000000000\r\n".to_vec();
    one.extend_from_slice(b"the beginning");
    let mut many = b"*2000000000\r\n".to_vec();
    many.extend_from_slice(&b"$0\r\n\r\n".repeat(8_000_000));
    for stream in [one, many] {
        let (port, _, master) = scripted_master(full_sync(6, &[], &stream));
        let replica = server(&["--maxmemory", "64mb"]);
        let line = format!("REPLICAOF 127.0.0.1 {port}");
        replica.connect().must(&line);
        let words = "bytes, and maxmemory has room for 67108864";
        wait_for(words, || replica.log().contains(words));
        replica.connect().must("REPLICAOF NO ONE");
        drop(replica);
        master.join().unwrap();
    }
}

/// Only kill -9 ended the server, and REPLICAOF NO ONE did not release the script's keys.
#[test]
fn a_script_without_an_end_ends_with_the_link() {
    let mut stream = Vec::new();
    encode(&mut stream, &["SELECT", "0"]);
    let script = "redis.call('SET', KEYS[1], '1') while true do end";
    encode(&mut stream, &["EVAL", script, "1", "k"]);
    let (port, _, master) = scripted_master(full_sync(6, &[], &stream));
    let replica = server(&[]);
    let mut conn = replica.connect();
    conn.must(&format!("REPLICAOF 127.0.0.1 {port}"));
    wait_for("the link", || {
        let info = conn.must("INFO replication").text();
        info.contains("master_link_status:up")
    });
    conn.must("REPLICAOF NO ONE");
    wait_for("the key", || conn.cmd("SET k 2") == Value::ok());
    assert_eq!(conn.must("GET k"), Value::bulk("2"));
    drop(replica);
    master.join().unwrap();
}
