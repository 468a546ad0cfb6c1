//! What every type of values takes part in: commands for keys, events, tracking, WATCH, copies,
//! digests, replication, files, restarts and the migration tools.
//!
//! The tests go by one table of samples. A type without a short and a long sample fails, so a new
//! type gets its rows in [`samples`], and nothing else here.

mod hostile;
pub mod samples;

use crate::support::checks::check;
use crate::support::server::binary;
use crate::support::{Conn, Server, Value, args, oracle, wait_for};
use kedis::encoding::ValueType;
use samples::{NOT_WHOLE, SAMPLES, Sample};
use std::process::{Command, Output};

/// The types of a Redis without modules.
const OF_REDIS: [ValueType; 6] = [
    ValueType::String,
    ValueType::Hash,
    ValueType::List,
    ValueType::Set,
    ValueType::Zset,
    ValueType::Stream,
];

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// Makes all samples in the selected DB.
fn fill(conn: &mut Conn) {
    for sample in SAMPLES {
        make(conn, sample, sample.key);
    }
}

fn make(conn: &mut Conn, sample: &Sample, key: &str) {
    let lines: Vec<_> = sample.lines(key).iter().map(|line| args(line)).collect();
    for (line, reply) in lines.iter().zip(conn.pipeline(&lines)) {
        assert_eq!(reply.error(), None, "{}: {line:?}", sample.key);
    }
}

/// The digest of a value, which does not depend on how the server holds it.
fn digest(conn: &mut Conn, key: &str) -> String {
    conn.must(&format!("DEBUG DIGEST-VALUE {key}")).items()[0].text()
}

/// The digests of all samples.
fn digests(conn: &mut Conn) -> Vec<(&'static str, String)> {
    let digests = SAMPLES
        .iter()
        .map(|sample| (sample.key, digest(conn, sample.key)));
    digests.collect()
}

/// The same for what has gone through the forms of Redis.
fn assert_moved(conn: &mut Conn, expected: &[(&'static str, String)], when: &str) {
    let found = digests(conn);
    let pairs = found.iter().zip(expected);
    let pairs = pairs.filter(|(found, _)| !NOT_WHOLE.contains(&found.0));
    let different: Vec<_> = pairs
        .filter(|(found, expected)| found != expected)
        .collect();
    assert!(different.is_empty(), "{when}: {different:?}");
}

/// Fails with the samples whose digests are not the expected ones.
fn assert_digests(conn: &mut Conn, expected: &[(&'static str, String)], when: &str) {
    let found = digests(conn);
    let pairs = found.iter().zip(expected);
    let different: Vec<_> = pairs
        .filter(|(found, expected)| found != expected)
        .collect();
    assert!(different.is_empty(), "{when}: {different:?}");
}

fn change_all(conn: &mut Conn, run: u32) {
    for sample in SAMPLES {
        conn.must(&sample.change(sample.key, run));
    }
}

/// Waits until no rows of deleted collections are left, and checks the database.
fn check_all(conn: &mut Conn) {
    wait_for("dead collections to be reclaimed", || {
        let report = check(conn).expect("a sound database");
        report.is_some_and(|report| report.contains("\ndead collections: 0"))
    });
}

#[test]
fn no_type_is_left_out() {
    for kind in ValueType::ALL {
        let samples = SAMPLES.iter().filter(|sample| sample.kind == *kind);
        assert!(samples.count() >= 2, "a short and a long {kind:?}");
    }
}

#[test]
fn commands_for_keys_take_every_type() {
    let server = Server::start(&DEBUG);
    let mut conn = server.connect();
    fill(&mut conn);
    for sample in SAMPLES {
        let (key, kind) = (sample.key, sample.kind.name());
        let mut ask = |line: &str| conn.must(&line.replace("{k}", key));
        assert_eq!(ask("TYPE {k}"), Value::simple(kind), "{key}");
        let scanned = ask(&format!("SCAN 0 COUNT 1000 TYPE {kind}"));
        let scanned = scanned.items()[1].items();
        assert!(scanned.contains(&Value::bulk(key)), "{key}: {scanned:?}");
        let of_kind = SAMPLES.iter().filter(|other| other.kind == sample.kind);
        assert_eq!(scanned.len(), of_kind.count(), "{kind}");
        assert_eq!(
            ask("OBJECT ENCODING {k}"),
            Value::bulk(sample.encoding),
            "{key}"
        );
        assert!(ask("MEMORY USAGE {k}").int() > 0, "{key}");
        let whole = ask("MEMORY USAGE {k} SAMPLES 0").int();
        assert!((20..200_000).contains(&whole), "{key}: {whole} bytes");
        assert!(
            ask("DEBUG OBJECT {k}").text().contains("encoding:"),
            "{key}"
        );
        assert_ne!(digest(&mut conn, key), "0".repeat(40), "{key}");
    }
    // Long values are larger than short ones.
    for pair in SAMPLES
        .windows(2)
        .filter(|pair| pair[1].key.ends_with(":long"))
    {
        let [short, long] = [&pair[0], &pair[1]].map(|sample| {
            let line = format!("MEMORY USAGE {} SAMPLES 0", sample.key);
            conn.must(&line).int()
        });
        assert!(short < long, "{}: {short}, {long}", pair[1].key);
    }
    for sample in SAMPLES {
        let key = sample.key;
        let before = digest(&mut conn, key);
        let mut ask = |line: &str| conn.must(&line.replace("{k}", key));
        ask("PEXPIREAT {k} 4000000000123");
        assert_eq!(ask("PEXPIRETIME {k}").int(), 4_000_000_000_123);
        ask("RENAME {k} renamed");
        ask("MOVE renamed 5");
        ask("SELECT 5");
        ask("RENAME renamed {k}");
        assert_eq!(ask("PEXPIRETIME {k}").int(), 4_000_000_000_123, "{key}");
        assert_eq!(ask("PERSIST {k}").int(), 1, "{key}");
        ask("MOVE {k} 0");
        ask("SELECT 0");
        assert_eq!(digest(&mut conn, key), before, "{key} after a move");
    }
    check_all(&mut conn);
}

#[test]
fn payloads_and_copies_have_every_type() {
    let server = Server::start(&DEBUG);
    let mut conn = server.connect();
    fill(&mut conn);
    for sample in SAMPLES {
        let key = sample.key;
        let before = digest(&mut conn, key);
        let dumped = conn.must(&format!("DUMP {key}"));
        let restore = |conn: &mut Conn, last: &[&[u8]]| {
            let words = [b"RESTORE", &b"restored"[..], b"0", dumped.bytes()];
            conn.call(&[&words, last].concat())
        };
        assert_eq!(restore(&mut conn, &[]), Value::ok(), "{key}");
        if !NOT_WHOLE.contains(&key) {
            assert_eq!(digest(&mut conn, "restored"), before, "{key}");
        }
        let busy = restore(&mut conn, &[]).error().expect("an error");
        assert!(busy.starts_with("BUSYKEY"), "{key}: {busy}");
        assert_eq!(restore(&mut conn, &[b"REPLACE"]), Value::ok(), "{key}");
        conn.must(&sample.change("restored", 1));
        assert_ne!(
            digest(&mut conn, "restored"),
            before,
            "{key} after a change"
        );

        assert_eq!(conn.must(&format!("COPY {key} copied DB 3")), Value::Int(1));
        conn.must("SELECT 3");
        assert_eq!(digest(&mut conn, "copied"), before, "{key}");
        conn.must(&sample.change("copied", 1));
        assert_ne!(digest(&mut conn, "copied"), before, "{key} after a change");
        conn.must("DEL copied");
        conn.must("SELECT 0");
        assert_eq!(
            digest(&mut conn, key),
            before,
            "{key} after a change of its copy"
        );
        let copied = conn.must(&format!("COPY {key} restored REPLACE"));
        assert_eq!(copied, Value::Int(1));
        assert_eq!(digest(&mut conn, "restored"), before, "{key}");
        conn.must("DEL restored");
    }
    check_all(&mut conn);
}

#[test]
fn changes_of_every_type_are_told() {
    let server = Server::start(&DEBUG);
    let (mut conn, mut other, mut tracking) =
        (server.connect(), server.connect(), server.connect());
    let mut listening = server.connect();
    conn.must("CONFIG SET notify-keyspace-events KA");
    tracking.hello3();
    tracking.must("CLIENT TRACKING ON");
    listening.must("PSUBSCRIBE __keyspace@0__:*");
    fill(&mut conn);
    conn.must("SET a:string x");
    conn.must("RPUSH a:list x");
    conn.must("PUBLISH __keyspace@0__:end end");
    let events = |listening: &mut Conn| -> Vec<(String, String)> {
        let mut events = Vec::new();
        loop {
            let message = listening.read().expect("a message");
            let (channel, event) = (message.items()[2].text(), message.items()[3].text());
            if event == "end" {
                return events;
            }
            let key = channel.replace("__keyspace@0__:", "");
            events.push((key, event));
        }
    };
    events(&mut listening);
    for sample in SAMPLES {
        let key = sample.key;
        let before = (digest(&mut conn, key), conn.must("DEBUG DIGEST"));
        let read = sample.read.replace("{k}", key);
        tracking.must(&read);
        other.must(&format!("WATCH {key}"));
        conn.must(&sample.change(key, 1));
        conn.must("PUBLISH __keyspace@0__:end end");
        let expected = [(key.to_owned(), sample.event.to_owned())];
        assert_eq!(events(&mut listening), expected, "{}", sample.change);
        let told = tracking.read().expect("an invalidation");
        let names = vec![
            Value::bulk("invalidate"),
            Value::Array(vec![Value::bulk(key)]),
        ];
        assert_eq!(told, Value::Push(names), "{key}");
        other.must("MULTI");
        other.must("PING");
        let aborted = other.must("EXEC");
        let is_null = matches!(aborted, Value::Null | Value::NullBulk | Value::NullArray);
        assert!(is_null, "{key}: {aborted:?}");
        assert_ne!(digest(&mut conn, key), before.0, "{key}");
        assert_ne!(conn.must("DEBUG DIGEST"), before.1, "{key}");

        // A failed command changes nothing and tells nothing.
        let wrong = if sample.kind == ValueType::String {
            "a:list"
        } else {
            "a:string"
        };
        for line in [sample.read.replace("{k}", wrong), sample.change(wrong, 1)] {
            let reply = conn.cmd(&line);
            // Some commands of RedisBloom find no filter where another type is.
            if sample.key.starts_with("bloom") || sample.key.starts_with("cuckoo") {
                let nothing = match &reply {
                    Value::Error(_) => true,
                    Value::Array(found) => found.iter().all(|found| *found == Value::Int(0)),
                    found => *found == Value::Int(0),
                };
                assert!(nothing, "{line}: {reply:?}");
                continue;
            }
            let refused = reply.error().unwrap_or_default();
            assert!(
                refused.contains("WRONGTYPE") || refused.contains("wrong Redis type"),
                "{line}: {refused}"
            );
        }
        // Every command that removes keys.
        conn.must(&format!("UNLINK {key}"));
        conn.must("PUBLISH __keyspace@0__:end end");
        assert_eq!(events(&mut listening), [(key.to_owned(), "del".to_owned())]);
    }
    check_all(&mut conn);
}

#[test]
fn replicas_and_restarts_keep_every_type() {
    let mut master = Server::start(&DEBUG);
    let mut conn = master.connect();
    fill(&mut conn);
    change_all(&mut conn, 1);
    let replica = Server::start(&DEBUG);
    let mut follower = replica.connect();
    follower.must(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let expected = digests(&mut conn);
    wait_for("the full sync", || {
        follower.cmd("DBSIZE") == Value::Int(SAMPLES.len() as i64)
    });
    // What follows comes by the stream.
    change_all(&mut conn, 2);
    change_all(&mut conn, 3);
    let changed = digests(&mut conn);
    for (before, after) in expected.iter().zip(&changed) {
        assert_ne!(before, after);
    }
    wait_for("the same data set", || {
        follower.cmd("DEBUG DIGEST") == conn.cmd("DEBUG DIGEST")
    });
    assert_digests(&mut follower, &changed, "on a replica");
    check_all(&mut follower);

    conn.must("DEBUG RELOAD");
    assert_digests(&mut conn, &changed, "after DEBUG RELOAD");
    change_all(&mut conn, 4);
    let changed = digests(&mut conn);
    master.kill9();
    master.spawn();
    let mut conn = master.connect();
    assert_digests(&mut conn, &changed, "after kill -9");
    check_all(&mut conn);

    // A file for Redis, loaded again.
    conn.must("BGSAVE RDB");
    wait_for("the file", || {
        conn.info_number("persistence", "rdb_bgsave_in_progress") == 0
    });
    let file = master.data_dir().join("export.rdb");
    let file = file.to_str().expect("a path of text");
    let loaded = Server::start(&[&DEBUG[..], &["--load-rdb", file]].concat());
    let mut conn = loaded.connect();
    assert_moved(&mut conn, &changed, "from a file");
    check_all(&mut conn);
}

/// Runs a migration tool until it is in sync and has compared both sides.
fn tool(name: &str, source: &Server, target: &Server, flags: &[&str]) -> (bool, String) {
    let [from, to] = [source, target].map(|server| format!("127.0.0.1:{}", server.port()));
    let output: Output = Command::new(binary().with_file_name(name))
        .args(["--src_addr", &from, "--dst_addr", &to])
        .args(flags)
        .output()
        .expect("a program beside the server");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

#[test]
fn every_type_moves_to_another_kedis() {
    let source = Server::start(&DEBUG);
    let mut conn = source.connect();
    fill(&mut conn);
    change_all(&mut conn, 1);
    let expected = digests(&mut conn);
    let target = Server::start(&DEBUG);
    let (ended, said) = tool(
        "kedis_port",
        &source,
        &target,
        &["--exit-when-synced", "--verify"],
    );
    assert!(ended && said.contains("all are equal"), "{said}");
    assert_moved(&mut target.connect(), &expected, "kedis_port");
    check_all(&mut target.connect());

    let target = Server::start(&DEBUG);
    let keys = SAMPLES.iter().map(|sample| sample.key.as_bytes().to_vec());
    let mut line = args(&format!(
        "MIGRATE 127.0.0.1 {} @ 0 20000 KEYS",
        target.port()
    ));
    line[3].clear();
    line.extend(keys);
    assert_eq!(conn.call(&line), Value::ok());
    assert_eq!(conn.must("DBSIZE"), Value::Int(0));
    assert_moved(&mut target.connect(), &expected, "MIGRATE");
    check_all(&mut conn);
}

/// A Redis without modules takes what it has, and the tool names each key that it does not take.
#[test]
fn types_that_a_redis_lacks_are_named_and_the_others_move_both_ways() {
    let source = Server::start(&DEBUG);
    let mut conn = source.connect();
    fill(&mut conn);
    change_all(&mut conn, 1);
    let expected = digests(&mut conn);
    let redis = oracle(&[]);
    let (ended, said) = tool("kedis_to_redis", &source, &redis, &["--exit-when-synced"]);
    assert!(!ended && said.contains("--keep-going"), "{said}");
    redis.connect().must("FLUSHALL");
    let flags = ["--exit-when-synced", "--verify", "--keep-going"];
    let (ended, said) = tool("kedis_to_redis", &source, &redis, &flags);
    let lacked = SAMPLES
        .iter()
        .filter(|sample| !OF_REDIS.contains(&sample.kind));
    let lacked: Vec<&str> = lacked.map(|sample| sample.key).collect();
    assert!(!ended, "{said}");
    for key in &lacked {
        assert!(
            said.contains(&format!("key \"{key}\": a ")),
            "{key}: {said}"
        );
    }
    let differ = format!("{} differ", lacked.len());
    assert!(said.contains(&differ), "{differ}: {said}");
    let moved = (SAMPLES.len() - lacked.len()) as i64;
    assert_eq!(redis.connect().must("DBSIZE"), Value::Int(moved));

    for flags in [
        &["--exit-when-synced", "--verify"][..],
        &["--scan", "--exit-when-synced", "--verify"],
    ] {
        let target = Server::start(&DEBUG);
        let (ended, said) = tool("redis_to_kedis", &redis, &target, flags);
        assert!(ended && said.contains("all are equal"), "{flags:?}: {said}");
        let mut there = target.connect();
        for (key, before) in &expected {
            // The times of fields did not move.
            let stays = lacked.contains(key) || key.ends_with("timed") || NOT_WHOLE.contains(key);
            if !stays {
                assert_eq!(digest(&mut there, key), *before, "{key} {flags:?}");
            }
        }
        check_all(&mut there);
    }
}
