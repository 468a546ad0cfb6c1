//! Crashes: a child process runs the model's operations until a fail point aborts it. The commits
//! that it knows to be durable must be there, and at most one commit more; the database has no
//! fault. It is opened with the memtable that the child
//! had, or with the other one.

use super::MEMTABLES;
use super::model::{DBS, Key, Model, Op};
use super::run::{Runner, config, read_db};
use crate::base::time::UnixMs;
use crate::storage::{DbIndex, Engine, MemtableRep, Txn};
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
