//! kill -9 under load: acknowledged writes survive.
//!
//! Each writer has its own keys and a model that predicts every reply and every key. The
//! server is killed at a random time and started again. Then the keys of every writer must
//! equal the model after all acknowledged commands and a prefix of the commands in flight,
//! since the commands of a connection run in order. Meanwhile a reader records the greatest
//! value of a counter: no reply may show what a crash takes back (I1). Keys with short
//! expiries must be gone, DBSIZE and all lengths exact, and DEBUG KEDIS-CHECK must find no
//! fault in the rows, the row cache and the rank indexes, then and during the load. In four rounds each of the
//! two memtables is filled from the write-ahead log that either of them has left.
//!
//! Environment: `KEDIS_CRASH_ROUNDS` (4), `KEDIS_CRASH_SEED`.

mod json;
mod model;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::support::checks::Checks;
use crate::support::{Conn, Server, Value, args, cli, env_number, seed, unix_ms, wait_for};
use model::{Command, Data, Entry, Field, Ground, Keys, Model, Plan};

/// Number of databases that the test reads.
const DATABASES: i64 = 16;
/// The database of the keys with short expiries.
const FLEETING_DB: i64 = 4;
/// Maximum depth of a writer's pipeline.
const DEEPEST: usize = 12;

/// One writer over all rounds.
struct Writer {
    plan: Plan,
    model: Model,
    /// Commands without a reply yet, in order.
    in_flight: VecDeque<Command>,
    acknowledged: u64,
}

impl Writer {
    fn new(index: u64, seed: u64) -> Writer {
        let ground = match index {
            0 => Ground::Own(13, 14),
            _ => Ground::Shared,
        };
        let rng = fastrand::Rng::with_seed(seed ^ (index << 32));
        Writer {
            plan: Plan::new(format!("w{index}"), ground, rng),
            model: Model::default(),
            in_flight: VecDeque::new(),
            acknowledged: 0,
        }
    }

    /// Writes until the connection breaks. Returns an error for a reply that the model does not
    /// expect.
    fn work(&mut self, server: &str) -> Result<(), String> {
        let Ok(mut conn) = Conn::open(server) else {
            return Ok(());
        };
        self.model.db = 0;
        let mut first = Some(self.plan.begin());
        loop {
            let depth = self.plan.rng.usize(1..=DEEPEST);
            let batch: Vec<Command> = (0..depth)
                .map(|_| first.take().unwrap_or_else(|| self.plan.next()))
                .collect();
            self.in_flight.extend(batch.iter().cloned());
            for reply in conn.pipeline(&batch) {
                if matches!(reply, Value::Lost(_)) {
                    return Ok(());
                }
                let command = self.in_flight.pop_front().expect("a reply has a command");
                let expected = self.model.apply(&command);
                if reply != expected {
                    let line = cli::line(&command);
                    return Err(format!(
                        "{line}\n  got      {reply:?}\n  expected {expected:?}"
                    ));
                }
                self.acknowledged += 1;
            }
        }
    }

    /// Brings the model to the state found on the server; an error if no prefix of the commands
    /// in flight explains that state.
    fn settle(&mut self, found: &Keys) -> Result<(), String> {
        let acknowledged = self.model.keys.clone();
        for applied in 0..=self.in_flight.len() {
            if self.model.keys == *found {
                self.in_flight.clear();
                return Ok(());
            }
            if let Some(command) = self.in_flight.get(applied) {
                self.model.apply(command);
            }
        }
        let mut report = format!(
            "{}: no first part of the {} commands on the way explains what is there",
            self.plan.prefix,
            self.in_flight.len()
        );
        for (place, entry) in &acknowledged {
            if found.get(place) != Some(entry) && self.model.keys.get(place) != found.get(place) {
                let (db, key) = (place.0, cli::quote(&place.1));
                report += &format!(
                    "\n  db {db} {key}\n    acknowledged {}\n    found        {}",
                    summary(Some(entry)),
                    summary(found.get(place))
                );
            }
        }
        for (place, entry) in found {
            if !acknowledged.contains_key(place) && !self.model.keys.contains_key(place) {
                let (db, key) = (place.0, cli::quote(&place.1));
                report += &format!(
                    "\n  db {db} {key} should not be there: {}",
                    summary(Some(entry))
                );
            }
        }
        for command in &self.in_flight {
            report += &format!("\n  on the way: {}", cli::line(command));
        }
        Err(report)
    }
}

fn summary(entry: Option<&Entry>) -> String {
    match entry {
        None => "nothing".into(),
        Some(entry) => {
            let text: String = format!("{entry:?}").chars().take(400).collect();
            format!("{} long: {text}", entry.data.len())
        }
    }
}

/// Sets keys that expire soon until the connection breaks; returns the latest expiry.
fn write_fleeting(server: &str, seed: u64) -> i64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut latest = 0;
    let Ok(mut conn) = Conn::open(server) else {
        return 0;
    };
    conn.cmd(&format!("SELECT {FLEETING_DB}"));
    for n in 0u64.. {
        let at = unix_ms() + rng.i64(1..400);
        let batch = [
            args(&format!("SET f:{n} x PXAT {at}")),
            args(&format!("HSET g:{n} a 1 b 2")),
            args(&format!("PEXPIREAT g:{n} {at}")),
            args(&format!("HSETEX h:{n} PXAT {at} FIELDS 2 a 1 b 2")),
        ];
        latest = latest.max(at);
        // A hash whose PEXPIREAT did not arrive has no expiry; `check` removes it.
        if conn
            .pipeline(&batch)
            .iter()
            .any(|r| matches!(r, Value::Lost(_)))
        {
            break;
        }
    }
    latest
}

/// Reads a counter until `stop` is set; records the greatest value in `greatest`.
fn watch_counter(server: &str, key: &[u8], greatest: &AtomicI64, stop: &AtomicBool) {
    let Ok(mut conn) = Conn::open(server) else {
        return;
    };
    let command = [b"GET".to_vec(), key.to_vec()];
    while !stop.load(Ordering::Relaxed) {
        match conn.call(&command) {
            Value::Bulk(text) => {
                let seen = String::from_utf8_lossy(&text).parse().unwrap();
                greatest.fetch_max(seen, Ordering::Relaxed);
            }
            Value::Lost(_) => return,
            _ => {}
        }
    }
}

/// DEBUG KEDIS-CHECK: binlog without holes, counts exact, no row without an owner. It is
/// repeated for a while, because reclaim may still be running.
pub fn kedis_check(conn: &mut Conn) {
    let mut last = Value::Null;
    let clean = crate::support::wait_within(Duration::from_secs(30), || {
        last = conn.cmd("DEBUG KEDIS-CHECK");
        !matches!(last, Value::Error(_) | Value::Lost(_))
    });
    assert!(clean, "DEBUG KEDIS-CHECK: {last:?}");
}

/// Reads all keys of all databases by SCAN; checks lengths against contents and DBSIZE against
/// the keys.
fn read_all(conn: &mut Conn) -> Keys {
    let mut all = Keys::new();
    for db in 0..DATABASES {
        conn.must(&format!("SELECT {db}"));
        let mut keys = scan(conn);
        wait_for("DBSIZE to equal the number of keys", || {
            keys = scan(conn);
            conn.must("DBSIZE").int() == i64::try_from(keys.len()).unwrap()
        });
        for key in keys {
            if let Some(entry) = read_entry(conn, &key) {
                all.insert((db, key), entry);
            }
        }
    }
    all
}

fn scan(conn: &mut Conn) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut cursor = "0".to_string();
    loop {
        let page = conn.must(&format!("SCAN {cursor} COUNT 1000"));
        keys.extend(
            page.items()[1]
                .items()
                .iter()
                .map(|key| key.bytes().to_vec()),
        );
        cursor = page.items()[0].text();
        if cursor == "0" {
            keys.sort();
            keys.dedup();
            return keys;
        }
    }
}

/// When each of these elements expires, in ms, if it does.
fn times(
    conn: &mut Conn,
    line: &str,
    key: &[u8],
    elements: impl ExactSizeIterator<Item = Vec<u8>>,
) -> Vec<Option<i64>> {
    let mut command = args(&format!("{line} {}", elements.len()));
    command[1] = key.to_vec();
    command.extend(elements);
    let answer = conn.call(&command);
    let times = answer.items().iter().map(Value::int);
    times.map(|at| Some(at).filter(|at| *at >= 0)).collect()
}

/// A key's content; `None` if it has expired meanwhile.
fn read_entry(conn: &mut Conn, key: &[u8]) -> Option<Entry> {
    let ask_on = |conn: &mut Conn, before: &str, after: &str| {
        let mut command = args(before);
        command.push(key.to_vec());
        command.extend(args(after));
        conn.call(&command)
    };
    let kind = ask_on(conn, "TYPE", "").text();
    let expire_ms = Some(ask_on(conn, "PEXPIRETIME", "").int()).filter(|at| *at >= 0);
    if let Some((data, length)) = model::read(conn, key, &kind) {
        let length = usize::try_from(length).unwrap();
        assert_eq!(length, data.len(), "length of {}", cli::quote(key));
        return Some(Entry { data, expire_ms });
    }
    let mut ask = |before: &str, after: &str| ask_on(conn, before, after);
    let bytes = |values: &[Value]| {
        values
            .iter()
            .map(|v| v.bytes().to_vec())
            .collect::<Vec<_>>()
    };
    let (data, length) = match kind.as_str() {
        "string" => (
            Data::String(ask("GET", "").bytes().to_vec()),
            ask("STRLEN", ""),
        ),
        "hash" => {
            let pairs = ask("HGETALL", "").pairs();
            let names = pairs.iter().map(|(field, _)| field.bytes().to_vec());
            let times = times(conn, "HPEXPIRETIME key FIELDS", key, names);
            let map = pairs.iter().zip(times).map(|((field, value), expire_ms)| {
                let value = value.bytes().to_vec();
                (field.bytes().to_vec(), Field { value, expire_ms })
            });
            let mut length = args("HLEN");
            length.push(key.to_vec());
            (Data::Hash(map.collect()), conn.call(&length))
        }
        "list" => {
            let items = bytes(ask("LRANGE", "0 -1").items());
            (Data::List(items.into()), ask("LLEN", ""))
        }
        "set" => {
            let items = bytes(ask("SMEMBERS", "").items());
            let members = items.iter().cloned();
            let times = times(conn, "SPEXPIRETIME key MEMBERS", key, members);
            let set = Data::Set(items.into_iter().zip(times).collect());
            let mut length = args("SCARD");
            length.push(key.to_vec());
            (set, conn.call(&length))
        }
        "zset" => {
            let pairs = ask("ZRANGE", "0 -1 WITHSCORES").pairs();
            let scores = pairs
                .iter()
                .map(|(m, s)| (m.bytes().to_vec(), s.text().parse().unwrap()));
            (Data::Zset(scores.collect()), ask("ZCARD", ""))
        }
        "sortedint" => {
            let ids = ask("SIRANGE", "0 0");
            let ids = ids.items().iter().map(|id| id.text().parse().unwrap());
            (Data::SortedInt(ids.collect()), ask("SICARD", ""))
        }
        "none" => return None,
        other => panic!("unknown type {other}"),
    };
    let said = usize::try_from(length.int()).unwrap();
    assert_eq!(said, data.len(), "length of {}", cli::quote(key));
    Some(Entry { data, expire_ms })
}

/// Compares the keys of a restarted server with the models of the writers.
fn check(server: &Server, writers: &mut [Writer], fleeting_until: i64, greatest: i64) {
    let mut conn = server.connect();
    // At most one hash has no expiry, because the kill came before its PEXPIREAT.
    wait_for("the fleeting keys' time to pass", || {
        unix_ms() > fleeting_until
    });
    conn.must(&format!("SELECT {FLEETING_DB}"));
    // Hashes of which no field is left are there until the expire thread has come to them.
    let mut cut_off = Vec::new();
    wait_for("the fields whose time is over to be removed", || {
        cut_off = scan(&mut conn);
        !cut_off.iter().any(|key| key.starts_with(b"h:"))
    });
    assert!(
        cut_off.len() <= 1,
        "past their time: {} keys",
        cut_off.len()
    );
    for key in cut_off {
        let ttl = conn.call(&[b"PTTL".to_vec(), key.clone()]);
        assert_eq!(
            ttl,
            Value::Int(-1),
            "{} outlived its time",
            cli::quote(&key)
        );
        conn.call(&[b"DEL".to_vec(), key]);
    }
    let all = read_all(&mut conn);
    for writer in writers.iter_mut() {
        let prefix = format!("{}:", writer.plan.prefix).into_bytes();
        let found: Keys = all
            .iter()
            .filter(|((_, key), _)| key.starts_with(&prefix))
            .map(|(place, entry)| (place.clone(), entry.clone()))
            .collect();
        if let Err(report) = writer.settle(&found) {
            panic!("{report}");
        }
    }
    conn.must("SELECT 0");
    let counter = conn.call(&[b"GET".to_vec(), writers[1].plan.counter()]);
    let value = match &counter {
        Value::Bulk(text) => String::from_utf8_lossy(text).parse().unwrap(),
        _ => 0,
    };
    assert!(
        value >= greatest,
        "a reader was shown {greatest}, the crash took it back to {value}"
    );
    kedis_check(&mut conn);
}

/// Runs all writers and readers until the server is killed; returns the latest expiry of the
/// short-lived keys.
fn load_and_kill(
    server: &mut Server,
    writers: &mut [Writer],
    greatest: &AtomicI64,
    rng: &mut fastrand::Rng,
) -> i64 {
    let address = server.address();
    let stop = AtomicBool::new(false);
    let counter = writers[1].plan.counter();
    let fleeting_seed = rng.u64(..);
    let until = Instant::now() + Duration::from_millis(rng.u64(60..1200));
    std::thread::scope(|scope| {
        let working: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                let address = &address;
                scope.spawn(move || writer.work(address))
            })
            .collect();
        let fleeting = scope.spawn(|| write_fleeting(&address, fleeting_seed));
        scope.spawn(|| watch_counter(&address, &counter, greatest, &stop));
        wait_for("the time of the kill", || Instant::now() >= until);
        server.kill9();
        stop.store(true, Ordering::Relaxed);
        for writer in working {
            if let Err(report) = writer.join().unwrap() {
                panic!("a wrong reply: {report}");
            }
        }
        fleeting.join().unwrap()
    })
}

fn survives_kill9(flags: &[&str]) {
    let rounds = env_number("KEDIS_CRASH_ROUNDS", 4);
    let seed = seed("KEDIS_CRASH_SEED");
    let mut rng = fastrand::Rng::with_seed(seed);
    // KEDIS-CHECK is a DEBUG command.
    let debug = ["--enable-debug-command", "yes"];
    let mut server = Server::start(&[flags, &debug].concat());
    let mut writers: Vec<Writer> = (0..5).map(|i| Writer::new(i, seed)).collect();
    let greatest = AtomicI64::new(0);
    let _checks = Checks::start_every(Duration::from_millis(300), &[&server]);
    for round in 0..rounds {
        let fleeting = load_and_kill(&mut server, &mut writers, &greatest, &mut rng);
        if round % 2 == 0 {
            server.change_memtable();
        }
        server.spawn();
        check(
            &server,
            &mut writers,
            fleeting,
            greatest.load(Ordering::Relaxed),
        );
        let acknowledged: u64 = writers.iter().map(|w| w.acknowledged).sum();
        println!("{flags:?} round {round}: {acknowledged} commands acknowledged so far");
        if round % 2 == 1 {
            server.restart();
            check(&server, &mut writers, 0, greatest.load(Ordering::Relaxed));
        }
    }
    assert!(writers.iter().any(|w| w.acknowledged > 0));
}

#[test]
fn nothing_acknowledged_is_lost_with_fsync_always() {
    survives_kill9(&["--appendfsync", "always"]);
}

#[test]
fn nothing_acknowledged_is_lost_with_fsync_every_second() {
    survives_kill9(&["--appendfsync", "everysec"]);
}

#[test]
fn nothing_acknowledged_is_lost_without_fsync() {
    survives_kill9(&["--appendfsync", "no"]);
}
