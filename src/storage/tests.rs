//! Random operations through transactions, compared with a model in memory: within a turn (the
//! pending batch merged with the committed rows), after every commit, after reopening the database,
//! and after a crash at every fail point.
//!
//! The tests run with both memtables, and a database that is opened again has now the one
//! and now the other.

mod blobs;
mod copies;
mod crash;
mod memory;
mod model;
mod opening;
mod run;
mod threads;

use crate::storage::MemtableRep;
use model::{Model, Op};
use run::Runner;

/// Commits between two checks of the whole database.
const CHECK_EVERY: u64 = 20;

const MEMTABLES: [MemtableRep; 2] = [MemtableRep::BTree, MemtableRep::SkipList];

fn seed() -> u64 {
    let given = std::env::var("KEDIS_TEST_SEED").ok();
    let seed = given.and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("KEDIS_TEST_SEED={seed}");
    seed
}

#[test]
fn behaves_like_the_model() {
    let mut rng = fastrand::Rng::with_seed(seed());
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let mut memtables = MEMTABLES.iter().cycle();
    let mut open = |model: &Model| {
        let memtable = memtables.next().unwrap();
        Runner::open(dir.path(), *memtable, model)
    };
    let mut runner = open(&model);
    let mut commits = 0;
    for step in 0..4_000 {
        let op = model.next_op(&mut rng);
        model.apply(&op);
        runner.apply(&op);
        if rng.u8(..) < 24 {
            runner.compare_pending(&model);
        }
        if matches!(op, Op::Commit | Op::Expire(_) | Op::Reclaim(_)) {
            commits += 1;
            runner.compare_committed(&model);
            if commits % CHECK_EVERY == 0 {
                runner.check();
            }
        }
        if step % 500 == 499 {
            let commit = Op::Commit;
            model.apply(&commit);
            runner.apply(&commit);
            drop(runner);
            runner = open(&model);
            runner.compare_committed(&model);
            runner.check();
        }
    }
}
