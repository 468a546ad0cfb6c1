//! Client-side caches: CLIENT TRACKING as in Redis, and no stale copies under concurrency.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Conn, Server, Value, args, oracle, wait_for};

/// The client that sends a line (0: tracks, 1: writes, 2: target of redirections), the line, and
/// how many replies and messages each client reads after it. `@0`, `@1`, `@2` stand for the ids
/// of the clients.
type Line = (usize, &'static str, [usize; 3]);

fn transcript(server: &Server, resp3: [bool; 3], lines: &[Line]) -> Vec<(String, Vec<Vec<Value>>)> {
    let mut clients: Vec<Conn> = (0..3).map(|_| server.connect()).collect();
    let ids: Vec<i64> = clients
        .iter_mut()
        .map(|client| client.must("CLIENT ID").int())
        .collect();
    for (client, resp3) in clients.iter_mut().zip(resp3) {
        if resp3 {
            client.hello3();
        }
    }
    let mut seen = Vec::new();
    for (sender, line, replies) in lines {
        let mut sent = (*line).to_owned();
        for (n, id) in ids.iter().enumerate() {
            sent = sent.replace(&format!("@{n}"), &id.to_string());
        }
        clients[*sender].send(&args(&sent)).unwrap();
        let read = clients.iter_mut().zip(replies).map(|(client, expected)| {
            client.set_timeout(Duration::from_secs(10));
            let read = |_| {
                client
                    .read()
                    .unwrap_or_else(|e| panic!("after {line}: {e}"))
            };
            (0..*expected)
                .map(read)
                .map(|v| numbered(v, &ids))
                .collect()
        });
        seen.push(((*line).to_owned(), read.collect()));
    }
    // No client got more than expected.
    for client in &mut clients {
        let pong = client.must("PING");
        assert!(!matches!(pong, Value::Push(_)), "{pong:?}");
    }
    seen
}

/// Replaces client ids, which differ between servers.
fn numbered(value: Value, ids: &[i64]) -> Value {
    match value {
        Value::Int(n) if ids.contains(&n) => Value::simple("a client"),
        Value::Push(parts) => Value::Push(parts.into_iter().map(|v| numbered(v, ids)).collect()),
        Value::Array(parts) => Value::Array(parts.into_iter().map(|v| numbered(v, ids)).collect()),
        Value::Map(pairs) => Value::Map(
            pairs
                .into_iter()
                .map(|(k, v)| (numbered(k, ids), numbered(v, ids)))
                .collect(),
        ),
        other => other,
    }
}

const DEFAULT: &[Line] = &[
    (0, "CLIENT TRACKINGINFO", [1, 0, 0]),
    (0, "CLIENT GETREDIR", [1, 0, 0]),
    (0, "CLIENT CACHING YES", [1, 0, 0]),
    (0, "CLIENT TRACKING maybe", [1, 0, 0]),
    (0, "CLIENT TRACKING on nope", [1, 0, 0]),
    (0, "CLIENT TRACKING on PREFIX a", [1, 0, 0]),
    (0, "CLIENT TRACKING on REDIRECT 999999", [1, 0, 0]),
    (0, "CLIENT TRACKING on REDIRECT x", [1, 0, 0]),
    (0, "CLIENT TRACKING on BCAST OPTIN", [1, 0, 0]),
    (0, "CLIENT TRACKING on OPTIN OPTOUT", [1, 0, 0]),
    (0, "CLIENT TRACKING on REDIRECT @2 REDIRECT @2", [1, 0, 0]),
    (0, "CLIENT TRACKING on", [1, 0, 0]),
    (0, "CLIENT TRACKINGINFO", [1, 0, 0]),
    (0, "CLIENT TRACKING on BCAST", [1, 0, 0]),
    (0, "CLIENT CACHING YES", [1, 0, 0]),
    (0, "CLIENT CACHING maybe", [1, 0, 0]),
    (1, "MSET a 1 b 2 c 3", [0, 1, 0]),
    (0, "MGET a b nokey", [1, 0, 0]),
    (1, "SET a 2", [1, 1, 0]),
    (1, "SET a 3", [0, 1, 0]),
    (1, "SET c 3", [0, 1, 0]),
    (1, "MSET b 1 nokey 1", [2, 1, 0]),
    (0, "GET a", [1, 0, 0]),
    (0, "SET a own", [2, 0, 0]),
    (0, "GET a", [1, 0, 0]),
    (1, "EXPIRE a 100", [1, 1, 0]),
    (1, "EXPIRE a 200", [0, 1, 0]),
    (0, "GET a", [1, 0, 0]),
    (1, "DEL a", [1, 1, 0]),
    (1, "SADD s x", [0, 1, 0]),
    (0, "SMEMBERS s", [1, 0, 0]),
    (1, "SADD s x", [0, 1, 0]),
    (1, "SADD s y", [1, 1, 0]),
    (0, "GET b", [1, 0, 0]),
    (1, "RENAME b d", [1, 1, 0]),
    (0, "GET d", [1, 0, 0]),
    (1, "FLUSHDB", [1, 1, 0]),
    (1, "SET d 1", [0, 1, 0]),
    (0, "CLIENT TRACKING on NOLOOP", [1, 0, 0]),
    (0, "CLIENT TRACKINGINFO", [1, 0, 0]),
    (0, "GET d", [1, 0, 0]),
    (0, "SET d own", [1, 0, 0]),
    (1, "SET d 3", [0, 1, 0]),
    (0, "GET d", [1, 0, 0]),
    (1, "MULTI", [0, 1, 0]),
    (1, "SET d 3", [0, 1, 0]),
    (1, "SET d 4", [0, 1, 0]),
    (1, "EXEC", [1, 1, 0]),
    (0, "CLIENT TRACKING off", [1, 0, 0]),
    (0, "CLIENT TRACKINGINFO", [1, 0, 0]),
    (0, "CLIENT TRACKING on OPTIN", [1, 0, 0]),
    (0, "CLIENT TRACKING on OPTOUT", [1, 0, 0]),
    (0, "GET d", [1, 0, 0]),
    (1, "SET d 5", [0, 1, 0]),
    (0, "CLIENT CACHING NO", [1, 0, 0]),
    (0, "CLIENT CACHING YES", [1, 0, 0]),
    (0, "CLIENT TRACKINGINFO", [1, 0, 0]),
    (0, "GET d", [1, 0, 0]),
    (0, "GET c", [1, 0, 0]),
    (1, "MSET c 5 d 6", [1, 1, 0]),
    (0, "CLIENT CACHING YES", [1, 0, 0]),
    (0, "MULTI", [1, 0, 0]),
    (0, "GET c", [1, 0, 0]),
    (0, "GET d", [1, 0, 0]),
    (0, "EXEC", [1, 0, 0]),
    (0, "GET e", [1, 0, 0]),
    (1, "MSET c 6 d 7 e 8", [2, 1, 0]),
    (0, "CLIENT TRACKING off", [1, 0, 0]),
    (0, "CLIENT TRACKING on OPTOUT", [1, 0, 0]),
    (0, "CLIENT CACHING NO", [1, 0, 0]),
    (0, "GET c", [1, 0, 0]),
    (0, "GET d", [1, 0, 0]),
    (1, "MSET c 6 d 7 e 8", [1, 1, 0]),
    (0, "CLIENT TRACKING off", [1, 0, 0]),
    (0, "CLIENT TRACKING on", [1, 0, 0]),
    (0, "EVAL return(redis.call('GET',KEYS[1])) 1 c", [1, 0, 0]),
    (
        0,
        "EVAL_RO return(redis.call('GET',KEYS[1])) 1 nokey2",
        [1, 0, 0],
    ),
    (1, "MSET c 7 d 8", [1, 1, 0]),
    (1, "SET nokey2 1", [1, 1, 0]),
    (0, "CLIENT TRACKING off", [1, 0, 0]),
    (0, "CLIENT TRACKING on OPTIN", [1, 0, 0]),
    (0, "EVAL return(redis.call('GET',KEYS[1])) 1 c", [1, 0, 0]),
    (0, "CLIENT CACHING YES", [1, 0, 0]),
    (0, "EVAL return(redis.call('GET',KEYS[1])) 1 d", [1, 0, 0]),
    (1, "MSET c 8 d 9", [1, 1, 0]),
    (0, "CLIENT TRACKING off", [1, 0, 0]),
];

const BROADCAST: &[Line] = &[
    (0, "CLIENT TRACKING on BCAST PREFIX a PREFIX ab", [1, 0, 0]),
    (0, "CLIENT TRACKING on BCAST PREFIX a PREFIX b", [1, 0, 0]),
    (0, "CLIENT TRACKING on BCAST PREFIX ax", [1, 0, 0]),
    (0, "CLIENT TRACKING on", [1, 0, 0]),
    (0, "CLIENT TRACKING on BCAST PREFIX x", [1, 0, 0]),
    (0, "CLIENT TRACKINGINFO", [1, 0, 0]),
    (1, "SET c 1", [0, 1, 0]),
    (1, "SET aa 1", [1, 1, 0]),
    (1, "MULTI", [0, 1, 0]),
    (1, "MSET b2 1 b1 1", [0, 1, 0]),
    (1, "MSET a 1 c 1 b2 2", [0, 1, 0]),
    (1, "EXEC", [2, 1, 0]),
    (0, "SET b1 own", [2, 0, 0]),
    (1, "DEL aa", [1, 1, 0]),
    (1, "FLUSHALL", [1, 1, 0]),
    (0, "CLIENT TRACKING off", [1, 0, 0]),
    (0, "CLIENT TRACKING on BCAST NOLOOP", [1, 0, 0]),
    (0, "SET own 1", [1, 0, 0]),
    (1, "SET other 1", [1, 1, 0]),
    (0, "CLIENT TRACKINGINFO", [1, 0, 0]),
    (0, "RESET", [1, 0, 0]),
    (0, "HELLO 3", [0, 0, 0]),
];

const REDIRECTED: &[Line] = &[
    (2, "SUBSCRIBE __redis__:invalidate", [0, 0, 1]),
    (0, "CLIENT TRACKING on REDIRECT @2", [1, 0, 0]),
    (0, "CLIENT GETREDIR", [1, 0, 0]),
    (0, "CLIENT TRACKINGINFO", [1, 0, 0]),
    (1, "MSET a 1 b 2", [0, 1, 0]),
    (0, "MGET a b", [1, 0, 0]),
    (1, "MSET a 1 b 2", [0, 1, 2]),
    (1, "FLUSHDB", [0, 1, 1]),
    (0, "CLIENT TRACKING off", [1, 0, 0]),
    (0, "CLIENT TRACKING on REDIRECT @2 BCAST", [1, 0, 0]),
    (1, "MSET a 1 b 2", [0, 1, 1]),
    (0, "CLIENT TRACKING off", [1, 0, 0]),
];

#[test]
fn tracking_is_that_of_redis() {
    let (ours, oracle) = (Server::start(&[]), oracle(&[]));
    let broadcast = &BROADCAST[..BROADCAST.len() - 1];
    let all = [
        (DEFAULT, [true, false, false]),
        (broadcast, [true, false, false]),
        (REDIRECTED, [true, false, true]),
        (REDIRECTED, [true, false, false]),
        (REDIRECTED, [false, false, false]),
    ];
    for (lines, resp3) in all {
        let [ours, theirs] = [&ours, &oracle].map(|server| {
            server.connect().must("FLUSHALL");
            transcript(server, resp3, lines)
        });
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs);
        }
    }
}

#[test]
fn a_lost_redirection_is_announced_and_shown() {
    let server = Server::start(&["--io-threads", "2"]);
    let (mut reader, mut writer) = (server.connect(), server.connect());
    let mut target = server.connect();
    reader.hello3();
    let id = target.must("CLIENT ID").int();
    reader.must(&format!("CLIENT TRACKING on REDIRECT {id}"));
    let list = |writer: &mut Conn| writer.must("CLIENT LIST").text();
    assert!(list(&mut writer).contains("flags=t db=0 sub=0"));
    assert!(list(&mut writer).contains(&format!("redir={id} ")));
    reader.must("GET k");
    drop(target);
    wait_for("the target to be gone", || {
        !list(&mut writer).contains(&format!("id={id} "))
    });
    writer.must("SET k v");
    let broken = Value::Push(vec![Value::bulk("tracking-redir-broken"), Value::Int(id)]);
    assert_eq!(reader.read().unwrap(), broken);
    assert!(list(&mut writer).contains("flags=tR "));
    let info = format!("{:?}", reader.must("CLIENT TRACKINGINFO"));
    assert!(info.contains("broken_redirect"), "{info}");
}

#[test]
fn the_table_is_bounded_and_expiry_invalidates() {
    let server = Server::start(&["--io-threads", "2"]);
    let (mut reader, mut writer) = (server.connect(), server.connect());
    reader.hello3();
    let stat = |conn: &mut Conn, name: &str| -> usize {
        let info = conn.must("INFO everything").text();
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line[1..].parse().unwrap()
    };
    writer.must("CONFIG SET tracking-table-max-keys 10");
    reader.must("CLIENT TRACKING on");
    assert_eq!(stat(&mut writer, "tracking_clients"), 1);
    for n in 0..100 {
        reader.send(&args(&format!("GET k{n}"))).unwrap();
    }
    let (mut replies, mut invalidated) = (0, 0);
    while replies < 100 || invalidated < 90 {
        match reader.read().unwrap() {
            Value::Push(_) => invalidated += 1,
            _ => replies += 1,
        }
    }
    assert_eq!(stat(&mut writer, "tracking_total_keys"), 10);
    assert_eq!(stat(&mut writer, "tracking_total_items"), 10);
    reader.must("CLIENT TRACKING off");
    assert_eq!(stat(&mut writer, "tracking_total_keys"), 0);
    assert_eq!(stat(&mut writer, "tracking_clients"), 0);
    reader.must("CLIENT TRACKING on");
    // In one tick, so that the key cannot expire before it is read.
    let lines = ["SET short x PX 100", "GET short"];
    let replies = reader.pipeline(&lines.map(args));
    assert_eq!(replies, [Value::ok(), Value::bulk("x")]);
    let stale = Value::Push(vec![
        Value::bulk("invalidate"),
        Value::Array(vec![Value::bulk("short")]),
    ]);
    assert_eq!(reader.read().unwrap(), stale);
    drop(reader);
    wait_for("the reader to be gone", || {
        stat(&mut writer, "tracking_clients") == 0
    });
}

/// A client-side cache: reads keys that it has no copy of until `stop`, and drops invalidated
/// copies. Returns its copies after all invalidations.
fn cache(mut conn: Conn, keys: usize, stop: &AtomicBool) -> HashMap<String, Vec<u8>> {
    let mut copies: HashMap<String, Vec<u8>> = HashMap::new();
    let mut rng = fastrand::Rng::new();
    let reply = |conn: &mut Conn, copies: &mut HashMap<String, Vec<u8>>| loop {
        match conn.read().unwrap() {
            Value::Push(parts) => match &parts[1] {
                Value::Array(keys) => keys.iter().for_each(|key| {
                    copies.remove(&key.text());
                }),
                _ => copies.clear(),
            },
            reply => return reply,
        }
    };
    while !stop.load(Ordering::Acquire) {
        let key = format!("k{}", rng.usize(..keys));
        if !copies.contains_key(&key) {
            conn.send(&args(&format!("GET {key}"))).unwrap();
            let value = reply(&mut conn, &mut copies);
            copies.insert(key, value.bytes().to_vec());
        } else {
            conn.send(&args("PING")).unwrap();
            reply(&mut conn, &mut copies);
        }
    }
    // All writers have got their replies, so the invalidations precede this reply.
    conn.send(&args("PING")).unwrap();
    reply(&mut conn, &mut copies);
    copies
}

#[test]
fn no_copy_is_stale_once_the_writers_are_answered() {
    const KEYS: usize = 50;
    let server = Server::start(&["--io-threads", "4"]);
    let mut admin = server.connect();
    for n in 0..KEYS {
        admin.must(&format!("SET k{n} 0"));
    }
    for round in 0..6 {
        let stop = AtomicBool::new(false);
        let caches: Vec<HashMap<String, Vec<u8>>> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..6)
                .map(|n| {
                    let mut conn = server.connect();
                    conn.hello3();
                    let mode = if n < 5 { "" } else { " BCAST" };
                    conn.must(&format!("CLIENT TRACKING on{mode}"));
                    let stop = &stop;
                    scope.spawn(move || cache(conn, KEYS, stop))
                })
                .collect();
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let mut conn = server.connect();
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::new();
                        let deadline = Instant::now() + Duration::from_millis(700);
                        for n in 0.. {
                            if Instant::now() >= deadline {
                                return;
                            }
                            let batch: Vec<_> = (0..rng.usize(1..4))
                                .map(|i| {
                                    let key = rng.usize(..KEYS);
                                    args(&format!("SET k{key} {round}:{writer}:{n}:{i}"))
                                })
                                .collect();
                            conn.pipeline(&batch);
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|w| w.join().unwrap());
            stop.store(true, Ordering::Release);
            readers.into_iter().map(|r| r.join().unwrap()).collect()
        });
        for copies in &caches {
            for (key, copy) in copies {
                let value = admin.must(&format!("GET {key}"));
                assert_eq!(value.bytes(), copy, "{key}");
            }
        }
        assert!(caches.iter().any(|copies| !copies.is_empty()));
    }
}

#[test]
fn what_a_worker_reads_is_invalidated_after_its_reply() {
    let server = Server::start(&["--io-threads", "2"]);
    let (mut reader, mut writer) = (server.connect(), server.connect());
    writer.must("MSET read 1 other 1");
    reader.hello3();
    reader.must("CLIENT TRACKING on");
    reader.must("GET other");
    let stale = |key: &str| {
        let key = Value::Array(vec![Value::bulk(key)]);
        Value::Push(vec![Value::bulk("invalidate"), key])
    };
    let script = "local value = redis.call('GET', KEYS[1]) while true do end return value";
    let eval = ["EVAL", script, "1", "read"];
    reader.send(&eval).unwrap();
    wait_for("the script to be on a worker", || {
        !matches!(
            writer.must("FUNCTION STATS").items()[1],
            Value::Null | Value::NullBulk
        )
    });
    writer.must("SET other 2");
    assert_eq!(reader.read().unwrap(), stale("other"));
    assert_eq!(writer.must("SCRIPT KILL"), Value::simple("OK"));
    // The invalidation is repeated, since the first one may have overtaken the reply.
    assert!(reader.read().unwrap().error().is_some());
    assert_eq!(reader.read().unwrap(), stale("other"));
    writer.must("SET read 2");
    assert_eq!(reader.read().unwrap(), stale("read"));
    assert_eq!(reader.must("PING"), Value::simple("PONG"));
}

/// A client that stops tracking in the transaction that changes a key it has read gets that
/// invalidation, once.
#[test]
fn a_transaction_that_ends_tracking_sends_its_invalidations() {
    let lines = [
        (0, "CLIENT TRACKING ON", [1, 0, 0]),
        (0, "GET a", [1, 0, 0]),
        (0, "GET b", [1, 0, 0]),
        (0, "MULTI", [1, 0, 0]),
        (0, "SET a 1", [1, 0, 0]),
        (0, "CLIENT TRACKING OFF", [1, 0, 0]),
        (0, "SET b 1", [1, 0, 0]),
        (0, "EXEC", [2, 0, 0]),
        (0, "MULTI", [1, 0, 0]),
        (0, "CLIENT TRACKING ON", [1, 0, 0]),
        (0, "GET a", [1, 0, 0]),
        (0, "GET b", [1, 0, 0]),
        (0, "SET a 2", [1, 0, 0]),
        (0, "CLIENT TRACKING OFF", [1, 0, 0]),
        (0, "EXEC", [2, 0, 0]),
        // Redirected to another client.
        (0, "CLIENT TRACKING ON REDIRECT @2", [1, 0, 0]),
        (0, "GET a", [1, 0, 0]),
        (0, "MULTI", [1, 0, 0]),
        (0, "DEL a", [1, 0, 0]),
        (0, "CLIENT TRACKING OFF", [1, 0, 0]),
        (0, "EXEC", [1, 0, 1]),
        // With NOLOOP there are no invalidations for own changes.
        (0, "CLIENT TRACKING ON NOLOOP", [1, 0, 0]),
        (0, "GET a", [1, 0, 0]),
        (0, "MULTI", [1, 0, 0]),
        (0, "SET a 1", [1, 0, 0]),
        (0, "CLIENT TRACKING OFF", [1, 0, 0]),
        (0, "EXEC", [1, 0, 0]),
    ];
    let [ours, theirs] =
        [Server::start(&[]), oracle(&[])].map(|server| transcript(&server, [true; 3], &lines));
    assert_eq!(ours, theirs);
}
