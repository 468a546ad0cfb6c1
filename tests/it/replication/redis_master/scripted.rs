//! Masters that the test simulates byte by byte: older ones, newer ones, and invalid ones.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::JoinHandle;

use crate::replication::{binlog, server};
use crate::support::conn::encode;
use crate::support::{Value, wait_for};

/// The next command from a replica.
fn next_command(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Option<Vec<String>> {
    let count = lines.next()?.ok()?;
    let count: usize = count.strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..count {
        // Its length.
        lines.next()?.ok()?;
        words.push(lines.next()?.ok()?);
    }
    Some(words)
}

/// A master that knows only `REPLCONF listening-port` and replies to PSYNC with these bytes.
/// It records the acknowledged offset, and ends when the connection is closed.
pub fn scripted_master(answer: Vec<u8>) -> (u16, Arc<AtomicI64>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let acked = Arc::new(AtomicI64::new(-1));
    let recorded = acked.clone();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
        while let Some(words) = next_command(&mut lines) {
            let reply = match [words[0].as_str(), words.get(1).map_or("", |word| word)] {
                ["PING", _] => b"+PONG\r\n".to_vec(),
                ["REPLCONF", "listening-port"] => b"+OK\r\n".to_vec(),
                ["REPLCONF", "ACK"] => {
                    recorded.store(words[2].parse().unwrap(), Ordering::Relaxed);
                    continue;
                }
                ["REPLCONF", _] => b"-ERR Unrecognized REPLCONF option\r\n".to_vec(),
                ["SELECT", _] => b"-ERR invalid DB index\r\n".to_vec(),
                ["PSYNC", _] => answer.clone(),
                other => panic!("{other:?}"),
            };
            if socket.write_all(&reply).is_err() {
                return;
            }
        }
    });
    (port, acked, thread)
}

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// The reply of such a master: an RDB file of this version with these keys, then a stream.
pub fn full_sync(version: u8, keys: &[u8], stream: &[u8]) -> Vec<u8> {
    let head = format!("REDIS00{version:02}");
    let file = [head.as_bytes(), keys, &[0xFF, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let head = format!("\n\n+FULLRESYNC {ID} 0\r\n\n\n${}\r\n", file.len());
    [head.as_bytes(), &file, stream].concat()
}

/// Old masters send relative TTLs and scripts; the binlog here has absolute times and effects.
#[test]
fn the_stream_of_an_old_master_becomes_effects() {
    let mut stream = Vec::new();
    let script = "redis.call('INCR',KEYS[1]) redis.call('EXPIRE',KEYS[1],ARGV[1]) return 1";
    for line in [
        &["SELECT", "0"][..],
        &["SET", "k", "v"],
        &["EXPIRE", "k", "1000"],
        &["SETEX", "s", "1000", "v"],
        &["PSETEX", "p", "1000000", "v"],
        &["SET", "o", "v", "EX", "1000"],
        &["SCRIPT", "LOAD", "return 1"],
        &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        &["EVAL", script, "1", "c", "1000"],
        &["PING"],
        &["MULTI"],
        &["INCR", "n"],
        &["SELECT", "2"],
        &["INCR", "n"],
        &["EXEC"],
        &["INCR", "n"],
        &["REPLCONF", "GETACK", "*"],
        &[
            "XADD", "x", "MAXLEN", "=", "1", "LIMIT", "100", "1-1", "f", "v",
        ],
        &[
            "XADD", "x", "MAXLEN", "=", "1", "LIMIT", "100", "2-1", "f", "v",
        ],
    ] {
        encode(&mut stream, line);
    }
    let length = stream.len() as i64;
    let (port, acked, master) = scripted_master(full_sync(6, &[], &stream));
    let replica = server(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {port}");
    replica.connect().must(&line);
    wait_for("all is applied", || acked.load(Ordering::Relaxed) == length);
    let mut conn = replica.connect();
    for key in ["k", "s", "p", "o", "c"] {
        let ttl = conn.must(&format!("TTL {key}")).int();
        assert!((900..=1000).contains(&ttl), "{key}: {ttl}");
    }
    assert_eq!(conn.must("GET n"), Value::bulk("1"));
    conn.must("SELECT 2");
    assert_eq!(conn.must("GET n"), Value::bulk("2"));
    assert_eq!(conn.must("XLEN x"), Value::Int(1));
    let rows: Vec<u8> = binlog(&replica).into_values().flatten().collect();
    let rows = String::from_utf8_lossy(&rows).into_owned();
    for relative in ["\r\nEXPIRE", "SETEX", "EVAL", "\r\nEX\r\n"] {
        assert!(!rows.contains(relative), "{relative}:\n{rows}");
    }
    assert!(rows.contains("MULTI"), "{rows}");
    replica.connect().must("REPLICAOF NO ONE");
    drop(replica);
    master.join().unwrap();
}

/// A replica keeps fields whose time is over until its master removes them, and hides them.
#[test]
fn fields_whose_time_is_over_are_hidden() {
    let mut keys = vec![0xFE, 0];
    // A hash of Redis 7.4 with three fields, two with an expiry; one of them is expired.
    keys.extend([24, 1, b'h']);
    keys.extend(1_000_u64.to_le_bytes());
    keys.extend([
        3, 0, 1, b'a', 1, b'1', 1, 1, b'b', 1, b'2', 2, 1, b'c', 1, b'3',
    ]);
    let (port, acked, master) = scripted_master(full_sync(12, &keys, &[]));
    let replica = server(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {port}");
    replica.connect().must(&line);
    wait_for("the data set", || acked.load(Ordering::Relaxed) == 0);
    let mut conn = replica.connect();
    assert_eq!(conn.must("HLEN h"), Value::Int(1));
    assert_eq!(conn.must("HEXISTS h b"), Value::Int(0));
    let times = conn.must("HTTL h FIELDS 2 a b");
    assert_eq!(times.items(), [Value::Int(-1), Value::Int(-2)]);
    replica.connect().must("REPLICAOF NO ONE");
    drop(replica);
    master.join().unwrap();
}

/// Newer masters replicate HINCRBYFLOAT as HSETEX.
#[test]
fn times_of_fields_in_a_stream_are_applied() {
    let mut stream = Vec::new();
    for line in [
        &["SELECT", "0"][..],
        &["HSETEX", "h", "KEEPTTL", "FIELDS", "1", "f", "2.5"],
        &["HPEXPIREAT", "h", "1000", "FIELDS", "1", "f"],
        &["MULTI"],
        &["HPERSIST", "h", "FIELDS", "1", "f"],
        &[
            "HSETEX", "h", "PXAT", "1000", "FIELDS", "2", "g", "1", "i", "2",
        ],
        &["HGETDEL", "h", "FIELDS", "1", "g"],
        &["EXEC"],
        &["INCR", "n"],
    ] {
        encode(&mut stream, line);
    }
    let length = stream.len() as i64;
    let (port, acked, master) = scripted_master(full_sync(12, &[], &stream));
    let replica = server(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {port}");
    replica.connect().must(&line);
    wait_for("all is applied", || acked.load(Ordering::Relaxed) == length);
    let mut conn = replica.connect();
    assert_eq!(conn.must("HGET h f"), Value::bulk("2.5"));
    assert_eq!(conn.must("HTTL h FIELDS 1 f").items(), [Value::Int(-1)]);
    assert_eq!(conn.must("HLEN h"), Value::Int(1));
    assert_eq!(conn.must("GET n"), Value::bulk("1"));
    conn.must("REPLICAOF NO ONE");
    drop(replica);
    master.join().unwrap();
}

/// An unknown command ends the link: everything before it is applied, nothing after it.
#[test]
fn a_command_that_is_not_known_here_ends_the_link_in_words() {
    let mut stream = Vec::new();
    for line in [
        &["SELECT", "0"][..],
        &["SET", "before", "x"],
        &["UNHEARD.OF", "k", "v"],
        &["SET", "behind", "x"],
    ] {
        encode(&mut stream, line);
    }
    let (port, _, master) = scripted_master(full_sync(12, &[], &stream));
    let replica = server(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {port}");
    replica.connect().must(&line);
    wait_for("the reason", || {
        replica
            .log()
            .contains("the master sent \"UNHEARD.OF\", which this server does not know")
    });
    let mut conn = replica.connect();
    assert_eq!(conn.must("GET before"), Value::bulk("x"));
    assert_eq!(conn.must("GET behind"), Value::NullBulk);
    conn.must("REPLICAOF NO ONE");
    drop(replica);
    master.join().unwrap();
}

#[test]
fn what_is_no_master_is_refused_in_words() {
    let broken = format!("+FULLRESYNC {ID} 1\r\n$7\r\nREDISXX");
    let mut unknown = full_sync(6, &[], &[]);
    encode(&mut unknown, &["CONFIG", "SET", "dir", "/"]);
    let mut torn = full_sync(6, &[], &[]);
    encode(&mut torn, &["EXEC"]);
    let mut marked = format!("+FULLRESYNC {ID} 1\r\n$EOF:{ID}\r\nREDIS0006").into_bytes();
    marked.extend([0xFF, 0, 0, 0, 0, 0, 0, 0, 0]);
    marked.extend([b'x'; 40]);
    let answers: [(&[u8], &str); 9] = [
        (b"+FULLRESYNC x 1\r\n", "what no master says"),
        (b"+CONTINUE short\r\n", "what no master says"),
        (b"+OK\r\n", "the master refused PSYNC: +OK"),
        (
            broken.as_bytes(),
            "the master's data set does not load here",
        ),
        (&marked, "what no master says"),
        (
            b"-LOADING Redis is loading\r\n",
            "the master refused PSYNC: LOADING",
        ),
        (
            &unknown,
            "the master sent \"CONFIG\", which this server takes from no master",
        ),
        (&torn, "what no master says"),
        (b"*1\r\n$4\r\nPING\r\n", "the master refused PSYNC: *1"),
    ];
    for (answer, reason) in answers {
        let (port, _, master) = scripted_master(answer.to_vec());
        let replica = server(&[]);
        replica.connect().must("SET old x");
        let line = format!("REPLICAOF 127.0.0.1 {port}");
        replica.connect().must(&line);
        wait_for(reason, || replica.log().contains(reason));
        if !answer.starts_with(b"\n") {
            assert_eq!(replica.connect().must("GET old"), Value::bulk("x"));
        }
        replica.connect().must("REPLICAOF NO ONE");
        drop(replica);
        master.join().unwrap();
    }
}
