use super::*;
use crate::encoding::binlog::Row;
use crate::exec::testing::Client;
use crate::resp::Value;
use crate::storage::DbIndex;
use crate::storage::engine::binlog::BinlogBounds;
use crate::storage::engine::{KeepFiles, at_fail_point};
use crate::storage::full_sync::snapshot::DataSet;
use crate::storage::full_sync::staging::Staging;
use crate::storage::tests::crash::copy_dir;
use crate::storage::tests::noise;
use crate::types::string;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

const DB: DbIndex = DbIndex(0);
const SEGMENT: u64 = 64 << 10;
const KEEP_NONE: BinlogBounds = BinlogBounds {
    max_entries: 0,
    max_bytes: 1,
    oldest_unix_ms: UnixMs::NONE,
    hold_max_bytes: 0,
};

fn client(binlog: bool) -> Client {
    Client::with(|config| {
        config.value_log_min_bytes = 100;
        config.value_log_segment_bytes = SEGMENT;
        config.binlog_enabled = binlog;
    })
}

/// Checks that the binlog has these, in order.
fn assert_logged(engine: &Engine, values: &[Vec<u8>]) {
    let mut logged = Vec::new();
    let read = engine.read_binlog(Position::NONE, |_, row| {
        logged.extend_from_slice(row.bytes);
        true
    });
    read.unwrap();
    let mut rest = logged.as_slice();
    for value in values {
        let at = memchr::memmem::find(rest, value).expect("a value in the binlog, in order");
        rest = &rest[at..];
    }
}

/// Reclaims the strings without a key, as the expire thread does.
fn reclaim(engine: &Arc<Engine>) {
    let mut reclaimer = Txn::new(engine.clone());
    if let Some(mut pass) = reclaimer.begin_reclaim(DB) {
        while reclaimer.reclaim_slice(&mut pass, 1 << 20).unwrap().more {}
        reclaimer.end_reclaim(pass);
    }
}

/// Collects until there is nothing more to do; returns how much was moved. Strings without a key
/// are reclaimed before.
fn collect(collector: &mut Collector, idle: bool) -> u64 {
    reclaim(collector.engine());
    let mut moved = 0;
    loop {
        let done = collector.step(idle).unwrap();
        moved += done.moved;
        if !done.more && done.removed == 0 {
            return moved;
        }
    }
}

fn set(client: &mut Client, key: &str, value: &[u8]) {
    let done = client.args(&[b"SET", key.as_bytes(), value]);
    assert_eq!(done, Value::Simple("OK".into()));
}

/// Which strings are in the value log, by the bytes that it was given; the binlog refers to them.
#[test]
fn short_strings_that_pack_well_stay_in_tables() {
    let mut client = Client::with(|config| {
        config.value_log_min_bytes = 1_000;
        config.value_log_packed_min_bytes = 4_096;
    });
    let engine = client.server().engine.clone();
    let words = |len: usize| b"a word and ".iter().copied().cycle().take(len).collect();
    let half = |len: usize| -> Vec<u8> { [noise(len / 2), vec![b'x'; len - len / 2]].concat() };
    let nearly = |len: usize| -> Vec<u8> { [noise(len - len / 8), vec![b'x'; len / 8]].concat() };
    let cases: [(&str, Vec<u8>, bool); 7] = [
        ("short noise", noise(999), false),
        ("noise", noise(1_000), true),
        ("short words", words(4_095), false),
        ("words", words(4_096), true),
        ("half of it noise", half(2_000), false),
        ("most of it noise", nearly(2_000), true),
        ("long noise", noise(100_000), true),
    ];
    for (name, value, is_logged) in &cases {
        let before = engine.values.appended();
        set(&mut client, name, value);
        let appended = engine.values.appended() - before;
        let expected = if *is_logged { value.len() as u64 } else { 0 };
        assert_eq!(appended, expected, "{name}");
    }
    // What another command brings stands there for the binlog alone.
    let before = engine.values.appended();
    for len in [900, 4_095, 4_096] {
        let bytes = engine.values.bytes();
        client.args(&[b"HSET", b"hash", b"field", &noise(len)]);
        let grown = engine.values.bytes() - bytes;
        assert_eq!(grown > 0, len >= 1_000, "{len}: {grown}");
    }
    assert_eq!(engine.values.appended(), before);
    for (name, value, _) in cases {
        assert_eq!(
            client.args(&[b"GET", name.as_bytes()]),
            Value::Bulk(value),
            "{name}"
        );
    }
    client.check();
}

#[test]
fn space_comes_back_and_what_lives_stays() {
    let mut client = client(false);
    let engine = client.server().engine.clone();
    let mut collector = Collector::new(engine.clone());
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for round in 0..12 {
        for _ in 0..200 {
            let key = format!("key{}", fastrand::u8(..60));
            match fastrand::u8(..10) {
                0 => {
                    client.run(&format!("DEL {key}"));
                    model.remove(&key);
                }
                1 => {
                    let bytes = noise(300);
                    client.args(&[b"SETRANGE", key.as_bytes(), b"5000", &bytes]);
                    let value = model.entry(key).or_default();
                    value.resize(value.len().max(5300), 0);
                    value[5000..5300].copy_from_slice(&bytes);
                }
                2 if model.contains_key(&key) => {
                    let to = format!("key{}", fastrand::u8(..60));
                    client.run(&format!("RENAME {key} {to}"));
                    let value = model.remove(&key).unwrap();
                    model.insert(to, value);
                }
                3 => {
                    let to = format!("key{}", fastrand::u8(..60));
                    client.run(&format!("COPY {key} {to} REPLACE"));
                    if let Some(value) = model.get(&key).cloned() {
                        model.insert(to, value);
                    }
                }
                _ => {
                    let value = noise(fastrand::usize(50..12_000));
                    set(&mut client, &key, &value);
                    model.insert(key, value);
                }
            }
        }
        collect(&mut collector, round % 3 == 2);
        for (key, value) in &model {
            assert_eq!(
                client.run(&format!("GET {key}")),
                Value::Bulk(value.clone())
            );
        }
        client.check();
    }
    collect(&mut collector, true);
    let live: usize = model.values().map(Vec::len).sum();
    let kept = engine.value_log_bytes();
    assert!(
        kept <= live as u64 * 5 / 4 + 2 * SEGMENT,
        "{kept} bytes for {live}"
    );
    client.run("FLUSHALL");
    collect(&mut collector, true);
    assert!(engine.value_log_bytes() <= 2 * SEGMENT);
    client.check();
}

#[test]
fn rows_of_the_binlog_keep_what_they_refer_to() {
    let mut client = client(true);
    let engine = client.server().engine.clone();
    let mut collector = Collector::new(engine.clone());
    let mut values = Vec::new();
    for n in 0..100 {
        let value = noise(3000);
        set(&mut client, &format!("key{}", n % 3), &value);
        values.push(value);
    }
    let written: u64 = values.iter().map(|value| value.len() as u64).sum();
    assert!(
        engine.value_log_appended() < written * 11 / 10,
        "each is written once"
    );
    assert_eq!(collect(&mut collector, true), 0);
    assert!(engine.value_log_bytes() >= written);
    assert_logged(&engine, &values);
    assert!(engine.trim_binlog(&KEEP_NONE).unwrap());
    collect(&mut collector, true);
    assert!(engine.value_log_bytes() <= 3 * SEGMENT);
    for (n, value) in values.iter().enumerate().skip(97) {
        let key = format!("GET key{}", n % 3);
        assert_eq!(client.run(&key), Value::Bulk(value.clone()));
    }
    client.check();
}

/// Rows of many bytes, each in the value log, which go without being read once the log is trimmed.
#[test]
fn long_rows_of_the_binlog_have_segments_of_their_own() {
    let mut client = client(true);
    let engine = client.server().engine.clone();
    let mut collector = Collector::new(engine.clone());
    let mut values = Vec::new();
    let mut write = |n: usize| {
        let mut args = vec![b"MSET".to_vec()];
        for key in 0..20 {
            let value = noise(50);
            args.extend([format!("key{n}:{key}").into_bytes(), value.clone()]);
            values.push(value);
        }
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        assert_eq!(client.args(&args), Value::Simple("OK".into()));
    };
    (0..200).for_each(&mut write);
    let bytes = engine.value_log_bytes();
    let range = engine.binlog.range();
    assert!(bytes > range.next_position.since(range.first_position));
    assert_eq!(engine.value_log_appended(), 0, "no string");
    engine.set_fsync_each(true);
    (200..210).for_each(&mut write);
    engine.set_fsync_each(false);
    assert_eq!(engine.value_log_bytes(), bytes, "one file is to be synced");
    assert_logged(&engine, &values);
    let collect_all = |collector: &mut Collector| {
        let mut removed = 0;
        loop {
            let done = collector.step(true).unwrap();
            assert_eq!((done.passed, done.looked_up), (0, 0));
            removed += done.removed;
            if !done.more && done.removed == 0 {
                return removed;
            }
        }
    };
    assert_eq!(collect_all(&mut collector), 0);
    assert!(engine.trim_binlog(&KEEP_NONE).unwrap());
    // A full sync takes long, and reads nothing of the binlog; a copy holds all of it.
    let copy = KeepFiles::for_copy(&engine);
    assert_eq!(collect_all(&mut collector), 0);
    drop(copy);
    let snapshot = engine.snapshot().unwrap();
    assert!(collect_all(&mut collector) >= 2);
    drop(snapshot);
    assert!(engine.value_log_bytes() <= SEGMENT);
    client.check();
}

/// Positions of a master's shorter history are lower than those at which rows of the replica's own have
/// referred to segments.
#[test]
fn rows_of_a_shorter_history_keep_their_segments() {
    const ROWS: u64 = 40;
    let mut client = client(true);
    let engine = client.server().engine.clone();
    for _ in 0..50 {
        client.args(&[b"HSET", b"key", b"field", &noise(2000)]);
    }
    let mut txn = Txn::new(engine.clone());
    let following = txn.begin_following(UnixMs(1), |engine| Some(engine.begin_following()));
    let set = DataSet {
        position: Position::FIRST,
        entry: 1,
        ..engine.new_data_set().unwrap()
    };
    let (staging, following) = (Staging::new(engine.clone()), following.unwrap().unwrap());
    txn.install(staging, &set, following, UnixMs(1), || {})
        .unwrap();
    for n in 0..ROWS {
        let row = Row {
            first_entry: 1 + n,
            entries: 1,
            unix_ms: UnixMs(1),
            bytes: &noise(2000),
        };
        txn.begin(UnixMs(1)).unwrap();
        txn.log_received(Position::FIRST + n * 2000, &row, std::iter::empty());
        txn.commit().unwrap();
    }
    collect(&mut Collector::new(engine.clone()), false);
    let mut rows = 0;
    let read = engine.read_binlog(Position::NONE, |_, row| {
        rows += u64::from(row.entries);
        true
    });
    read.unwrap();
    assert_eq!(rows, ROWS);
}

#[test]
fn what_rows_refer_to_is_known_after_a_start() {
    let mut client = client(true);
    let engine = client.server().engine.clone();
    for n in 0..100 {
        set(&mut client, &format!("key{}", n % 3), &noise(3000));
    }
    let mut before = Collector::new(engine.clone());
    assert_eq!(collect(&mut before, true), 0);
    for n in 0..10 {
        client.run(&format!("SET short {n}"));
    }
    let last_rows = BinlogBounds {
        max_entries: 10,
        max_bytes: u64::MAX,
        ..KEEP_NONE
    };
    assert!(engine.trim_binlog(&last_rows).unwrap());
    assert!(engine.binlog.range().first_position < engine.binlog.range().next_position);
    collect(&mut Collector::new(engine.clone()), true);
    assert!(engine.value_log_bytes() <= 3 * SEGMENT);
    let kept = engine.closed_segments().unwrap().len();
    assert!(kept < engine.values.len(), "{kept} rows");
    client.check();
}

/// Once, nothing was removed before all was moved, and each segment that was chosen cost a look at
/// all others.
#[test]
fn files_go_while_others_are_still_to_be_collected() {
    let mut client = client(false);
    let engine = client.server().engine.clone();
    let mut collector = Collector::new(engine.clone());
    for _ in 0..300 {
        set(&mut client, "key", &noise(10_000));
    }
    let closed = engine.values.closed();
    let segments = closed.len();
    assert!(segments > 32, "{segments}");
    let samples: usize = closed.iter().map(|segment| segment.samples().len()).sum();
    drop(closed);
    let (mut looked_up, mut removed, mut first) = (0, 0, None);
    reclaim(&engine);
    loop {
        let done = collector.step(false).unwrap();
        looked_up += done.looked_up;
        removed += done.removed;
        if removed > 0 && first.is_none() {
            first = Some(engine.values.closed().len());
        }
        if !done.more && done.removed == 0 {
            break;
        }
    }
    assert_eq!(removed as usize, segments);
    assert_eq!(first, Some(segments - 1));
    assert!(looked_up <= samples, "{looked_up} looks at {samples}");
}

#[test]
fn segments_wait_for_the_rows_that_refer_to_them_and_for_no_others() {
    let mut client = client(true);
    let engine = client.server().engine.clone();
    let mut collector = Collector::new(engine.clone());
    for _ in 0..60 {
        set(&mut client, "key", &noise(10_000));
    }
    let end = engine.binlog.range().next_position;
    for _ in 0..100 {
        client.run("INCR n");
    }
    collector.step(false).unwrap();
    assert!(collector.known.len() > 4);
    assert!(collector.known.values().all(|known| known.closed_at <= end));

    // As after a full sync from a master whose history is shorter.
    for known in collector.known.values_mut() {
        known.closed_at = Position(1 << 60);
    }
    client.run("INCR n");
    collect(&mut collector, false);
    assert!(engine.value_log_bytes() <= 2 * SEGMENT);
}

/// The collector looks at the segments first, and then where the binlog ends. The other way round a
/// commit between the two made a segment look as if another history had written it, and free.
#[test]
fn segments_that_are_being_filled_are_of_this_history() {
    let mut writer = client(true);
    let engine = writer.server().engine.clone();
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let collects = scope.spawn(|| {
            let mut collector = Collector::new(engine);
            while running.load(Ordering::Acquire) {
                collector.step(false).unwrap();
                let of_others = |known: &&Known| known.closed_at == Position::NONE;
                assert_eq!(collector.known.values().filter(of_others).count(), 0);
            }
        });
        for n in 0..2000 {
            set(&mut writer, &format!("key{}", n % 50), &noise(20_000));
        }
        running.store(false, Ordering::Release);
        collects.join().unwrap();
    });
}

/// A row or a value that could not be read ended each step, and no segment was removed any more.
#[test]
fn what_cannot_be_read_keeps_no_other_segment() {
    let mut client = client(false);
    let engine = client.server().engine.clone();
    let mut collector = Collector::new(engine.clone());
    let long = |key: &str| [key.as_bytes(), &noise(3000)].concat();
    set(&mut client, "damaged", &long("damaged"));
    for n in 0..200 {
        set(&mut client, &format!("kept{}", n % 2), &long("kept"));
    }
    engine.values.roll();
    let segment = engine.config.dir.join("values/00000001.values");
    let file = std::fs::File::options().write(true).open(&segment);
    file.unwrap().write_all_at(b"?", 100).unwrap();
    collect(&mut collector, true);
    assert!(segment.exists());
    assert!(engine.value_log_bytes() <= 3 * SEGMENT);
    assert!(matches!(client.run("GET damaged"), Value::Error(_)));
    for n in 0..2 {
        let kept = client.run(&format!("GETRANGE kept{n} 0 3"));
        assert_eq!(kept, Value::Bulk(b"kept".to_vec()));
    }
    client.run("DEL damaged");
    client.check();
}

/// A list that named a segment after its removal would keep the database from being opened.
#[test]
fn what_is_listed_is_there_after_a_crash_at_any_time() {
    let mut client = client(false);
    let engine = client.server().engine.clone();
    let mut collector = Collector::new(engine.clone());
    let dir = tempfile::tempdir().unwrap();
    let mut copies = 0;
    let mut open_copy = |what: &str| {
        copies += 1;
        let mut config = engine.config.clone();
        config.dir = dir.path().join(copies.to_string());
        copy_dir(&engine.config.dir, &config.dir);
        let opened = Engine::open(config).map(drop);
        opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    };
    for round in 0..3 {
        for n in 0..100 {
            set(&mut client, &format!("key{}", n % 10), &noise(3000));
        }
        engine.sync_wal().unwrap();
        engine.sync_marks().unwrap();
        open_copy("written");
        reclaim(&engine);
        let lister = engine.clone();
        // Another thread lists segments before they are removed.
        at_fail_point("values-taken-off", move || lister.sync_marks().unwrap());
        let before = engine.value_log_bytes();
        collect(&mut collector, true);
        assert!(engine.value_log_bytes() < before, "round {round}");
        open_copy("collected");
        engine.sync_marks().unwrap();
        open_copy("listed");
    }
}

/// Rows of strings that have fragments alone stand between those of values in the log.
#[test]
fn strings_of_fragments_are_passed_over() {
    let mut client = client(false);
    let mut collector = Collector::new(client.server().engine.clone());
    let values: Vec<Vec<u8>> = (0..100).map(|_| noise(2000)).collect();
    for (n, value) in values.iter().enumerate() {
        set(&mut client, &format!("value{n}"), value);
        let key = format!("fragments{n}");
        client.args(&[b"SETRANGE", key.as_bytes(), b"20000", b"x"]);
    }
    let lives = |n: &usize| n.is_multiple_of(7);
    for n in (0..100).filter(|n| !lives(n)) {
        client.args(&[b"DEL", format!("value{n}").as_bytes()]);
    }
    assert!(collect(&mut collector, true) > 0);
    for n in (0..100).filter(lives) {
        let found = client.args(&[b"GET", format!("value{n}").as_bytes()]);
        assert_eq!(found, Value::Bulk(values[n].clone()), "{n}");
    }
}

#[test]
fn a_snapshot_keeps_what_it_shows() {
    let mut client = client(false);
    let engine = client.server().engine.clone();
    let mut collector = Collector::new(engine.clone());
    let old: Vec<Vec<u8>> = (0..40).map(|_| noise(4000)).collect();
    for (n, value) in old.iter().enumerate() {
        set(&mut client, &format!("key{n:02}"), value);
    }
    let snapshot = engine.snapshot().unwrap();
    for n in 0..40 {
        set(&mut client, &format!("key{n:02}"), &noise(4000));
    }
    collect(&mut collector, true);
    let mut shown = Vec::new();
    let sent: Result<()> = snapshot.chunks(|_, chunk| {
        shown.extend_from_slice(chunk);
        Ok(())
    });
    sent.unwrap();
    for value in &old {
        assert!(memchr::memmem::find(&shown, value).is_some());
    }
    let before = engine.value_log_bytes();
    drop(snapshot);
    collect(&mut collector, true);
    assert!(engine.value_log_bytes() < before - 2 * SEGMENT);
}

/// Readers, writers and the collector at once: every value is the one that was written last.
#[test]
fn values_move_while_they_are_read_and_replaced() {
    let mut first = client(false);
    let engine = first.server().engine.clone();
    for n in 0..20 {
        set(&mut first, &format!("key{n}"), &noise(2000));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (engine, stop) = (&engine, &stop);
            scope.spawn(move || {
                write_and_read(&mut Txn::new(engine.clone()), thread);
                stop.store(true, Ordering::Release);
            });
        }
        let mut collector = Collector::new(engine.clone());
        let mut removed = 0;
        while !stop.load(Ordering::Acquire) || removed == 0 {
            removed += collector.step(true).unwrap().removed;
        }
    });
    first.check();
}

/// Sets and gets keys of its own, and gets keys that nobody changes.
fn write_and_read(txn: &mut Txn, thread: u32) {
    let mut own: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let get = |txn: &mut Txn, key: &str| {
        txn.begin(UnixMs(1)).unwrap();
        txn.lock([txn.key_hash(DB, key.as_bytes())].into_iter())
            .unwrap();
        let found = string::get(txn, DB, key.as_bytes()).unwrap();
        txn.commit().unwrap();
        found
    };
    for round in 0..2000 {
        let key = format!("own{thread}:{}", fastrand::u8(..8));
        if fastrand::bool() {
            let value = noise(fastrand::usize(100..6000));
            txn.begin(UnixMs(1)).unwrap();
            txn.lock([txn.key_hash(DB, key.as_bytes())].into_iter())
                .unwrap();
            txn.start_command();
            string::set(txn, DB, key.as_bytes(), &value, string::Expiry::Clear).unwrap();
            txn.commit().unwrap();
            own.insert(key, value);
        } else if let Some(value) = own.get(&key) {
            assert!(get(txn, &key).as_ref() == Some(value), "round {round}");
        }
        let other = get(txn, &format!("key{}", fastrand::u8(..20)));
        assert_eq!(other.map(|value| value.len()), Some(2000));
    }
}

/// A row in a table is durable: so must be the value that it names.
#[test]
fn a_flush_syncs_the_values_first() {
    let mut client = client(false);
    let engine = client.server().engine.clone();
    for n in 0..50 {
        set(&mut client, &format!("key{n}"), &noise(4000));
    }
    assert!(engine.values.has_unsynced());
    engine.flush_families(&engine.all_families()).unwrap();
    assert!(!engine.values.has_unsynced());
}

/// RocksDB also syncs the log by itself.
#[test]
fn each_sync_of_the_log_syncs_the_values_first() {
    let mut client = client(false);
    let engine = client.server().engine.clone();
    set(&mut client, "key", &noise(4000));
    assert!(engine.values.has_unsynced());
    engine.db.flush_wal(true).unwrap();
    assert!(!engine.values.has_unsynced());
}
