//! Crashes: a child process runs the model's operations until a fail point aborts it. The commits
//! that it knows to be durable must be there, and at most one commit more; the database has no
//! fault. It is opened with the memtable that the child
//! had, or with the other one.

use super::model::{DBS, Key, Model, Op};
use super::run::{Runner, config, read_db};
use super::{MEMTABLES, noise};
use crate::base::time::UnixMs;
use crate::encoding::binlog::Position;
use crate::storage::engine::binlog::BinlogBounds;
use crate::storage::engine::wal::marks::NAME as WAL_MARKS;
use crate::storage::values::Collector;
use crate::storage::{DbIndex, Engine, MemtableRep, StorageConfig, Txn};
use crate::types::string::{self, Expiry};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const POINTS: [&str; 4] = [
    "before-commit",
    "before-write",
    "after-write",
    "after-commit",
];
const DIR: &str = "KEDIS_TEST_CRASH_DIR";
const SEED: &str = "KEDIS_TEST_CRASH_SEED";
const MEMTABLE: &str = "KEDIS_TEST_CRASH_MEMTABLE";
const STEPS: usize = 600;

/// The operations from one commit to the next, that commit last. Exclusive operations and
/// background passes commit several times, so each has a turn of its own.
fn turns(seed: u64) -> Vec<Vec<Op>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut model = Model::default();
    let mut turns = vec![Vec::new()];
    for _ in 0..STEPS {
        let op = model.next_op(&mut rng);
        model.apply(&op);
        let alone = matches!(
            op,
            Op::Clear(_) | Op::Swap(..) | Op::Expire(_) | Op::Reclaim(_)
        );
        if alone {
            push(&mut turns, Op::Commit);
            turns.push(Vec::new());
        }
        let ends = alone || op == Op::Commit;
        push(&mut turns, op);
        if ends {
            turns.push(Vec::new());
        }
    }
    turns
}

fn push(turns: &mut [Vec<Op>], op: Op) {
    if let Some(turn) = turns.last_mut() {
        turn.push(op);
    }
}

/// The child process: runs turns and notes each that is durable.
#[test]
#[ignore = "run by the test below in a process of its own"]
fn child() {
    let (Ok(dir), Ok(seed)) = (std::env::var(DIR), std::env::var(SEED)) else {
        return;
    };
    let dir = Path::new(&dir);
    let memtable = std::env::var(MEMTABLE).unwrap();
    let memtable = MEMTABLES.into_iter().find(|it| it.name() == memtable);
    let mut runner = Runner::open(dir, memtable.unwrap(), &Model::default());
    let mut done = std::fs::File::create(dir.join("done")).unwrap();
    for turn in turns(seed.parse().unwrap()) {
        turn.iter().for_each(|op| runner.apply(op));
        done.write_all(b".").unwrap();
    }
}

#[test]
fn survives_a_crash_at_every_point() {
    let seed = super::seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    for point in POINTS {
        for before in MEMTABLES {
            for after in MEMTABLES {
                let hit = rng.u32(1..50);
                crash_once(rng.u64(..), point, hit, [before, after]);
            }
        }
    }
}

/// After a crash of the machine the disk may have a record of the log without the bytes in the value
/// log that it names, for a string, an argument or a row of the binlog: the log ends before it.
#[test]
fn what_names_lost_bytes_is_lost_with_them() {
    const ROUNDS: u64 = 8;
    type Write = fn(&mut Txn, &[u8]);
    let writes: [Write; 3] = [
        |txn, noise| {
            string::set(txn, DbIndex(0), b"key", noise, Expiry::Clear).unwrap();
            txn.effect(DbIndex(0), &[&b"SET"[..], b"key", noise]);
        },
        |txn, noise| txn.effect(DbIndex(0), &[&b"HSET"[..], b"key", b"field", noise]),
        |txn, noise| {
            let pieces = noise.chunks(50);
            pieces.for_each(|piece| txn.effect(DbIndex(0), &[&b"SADD"[..], b"key", piece]));
        },
    ];
    for (n, write) in writes.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let of_copy = dir.path().join("copy");
        let mut config = StorageConfig::for_tests(dir.path().join("db"));
        (
            config.value_log_min_bytes,
            config.value_log_packed_min_bytes,
        ) = (100, 0);
        let engine = Engine::open(config.clone()).unwrap();
        let mut txn = Txn::new(engine.clone());
        for _ in 0..ROUNDS {
            let noise = noise(2000);
            txn.begin(UnixMs(1)).unwrap();
            txn.lock([txn.key_hash(DbIndex(0), b"key")].into_iter())
                .unwrap();
            txn.start_command();
            write(&mut txn, &noise);
            txn.commit().unwrap();
        }
        copy_dir(&config.dir, &of_copy);
        reboot(&of_copy);
        let segment = of_copy.join("values/00000001.values");
        let len = std::fs::metadata(&segment).unwrap().len();
        assert!(len > ROUNDS * 2000, "{n}: in the value log");
        let file = std::fs::File::options().write(true).open(segment).unwrap();
        file.set_len(len / 2).unwrap();
        config.dir = of_copy;
        let after = Engine::open(config).unwrap();
        let (kept, all) = (after.binlog.range(), engine.binlog.range());
        assert!(kept.first_position < kept.next_position && kept.next_position < all.next_position);
        assert_eq!(after.check().unwrap().faults, Vec::<String>::new(), "{n}");
        after.read_binlog(Position::NONE, |_, _| true).unwrap();
    }
}

/// The log still names segments that were removed, as nothing that counts refers to them.
#[test]
fn what_names_removed_segments_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let of_copy = dir.path().join("copy");
    let config = StorageConfig::for_tests(dir.path().join("db"));
    let engine = Engine::open(config.clone()).unwrap();
    let mut txn = Txn::new(engine.clone());
    for _ in 0..200 {
        txn.begin(UnixMs(1)).unwrap();
        txn.effect(DbIndex(0), &[&b"SADD"[..], b"key", &noise(2000)]);
        txn.commit().unwrap();
    }
    let range = engine.binlog.range();
    let last_rows = BinlogBounds {
        max_entries: 10,
        max_bytes: 0,
        oldest_unix_ms: UnixMs::NONE,
        hold_max_bytes: 0,
    };
    assert!(engine.trim_binlog(&last_rows).unwrap());
    let mut collector = Collector::new(engine.clone());
    let mut removed = 0;
    for _ in 0..5 {
        removed += collector.step(false).unwrap().removed;
    }
    assert!(removed > 3, "{removed}");
    copy_dir(&config.dir, &of_copy);
    reboot(&of_copy);
    let after = Engine::open(StorageConfig {
        dir: of_copy,
        ..config
    });
    let after = after.unwrap();
    assert_eq!(after.binlog.range().next_position, range.next_position);
    assert_eq!(after.check().unwrap().faults, Vec::<String>::new());
}

/// As if the machine had been booted since, and the marks had not reached the disk.
fn reboot(dir: &Path) {
    let marks = dir.join(WAL_MARKS);
    let mut bytes = std::fs::read(&marks).unwrap();
    for slot in bytes[32..].chunks_exact_mut(32) {
        slot[8..16].fill(7);
        slot[24..].fill(0);
    }
    std::fs::write(marks, bytes).unwrap();
}

pub(in crate::storage) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn read_all(
    dir: &Path,
    memtable: MemtableRep,
    now_ms: UnixMs,
) -> [BTreeMap<Vec<u8>, Key>; DBS as usize] {
    let mut txn = Txn::new(Engine::open(config(dir, memtable)).unwrap());
    txn.begin(now_ms).unwrap();
    let all = std::array::from_fn(|db| read_db(txn.reading(), DbIndex(db as u16)));
    txn.commit().unwrap();
    all
}

fn crash_once(seed: u64, point: &str, hit: u32, [before, after]: [MemtableRep; 2]) {
    println!("sequence {seed}, {point}:{hit}, {before:?} and then {after:?}");
    let dir = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "storage::tests::crash::child"])
        .env(DIR, dir.path())
        .env(SEED, seed.to_string())
        .env(MEMTABLE, before.name())
        .env("KEDIS_FAIL_POINT", format!("{point}:{hit}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(!status.success(), cfg!(debug_assertions), "it crashes");
    let done = std::fs::metadata(dir.path().join("done")).unwrap().len() as usize;
    let turns = turns(seed);
    let mut model = Model::default();
    let (told, rest) = turns.split_at(done);
    told.iter().flatten().for_each(|op| model.apply(op));

    let found = read_all(dir.path(), after, model.now_ms());
    if found != model.dbs {
        let in_flight = rest.first().expect("a turn under way");
        let is_pass = in_flight.iter().any(|op| matches!(op, Op::Expire(_)));
        let before = model.clone();
        in_flight.iter().for_each(|op| model.apply(op));
        if is_pass {
            // A pass commits in slices: any part of the due keys may be deleted.
            for (db, found) in found.iter().enumerate() {
                assert!(found.iter().all(|(k, v)| before.dbs[db].get(k) == Some(v)));
                assert!(model.dbs[db].keys().all(|k| found.contains_key(k)));
            }
            model.dbs = found;
        } else {
            assert_eq!(found, model.dbs);
        }
    }
    // The database works on from there.
    let mut runner = Runner::open(dir.path(), before, &model);
    runner.check();
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..100 {
        let op = model.next_op(&mut rng);
        model.apply(&op);
        runner.apply(&op);
    }
    model.apply(&Op::Commit);
    runner.apply(&Op::Commit);
    runner.compare_committed_state(&model);
    runner.check();
}
