//! Random operations through transactions, compared with a model in memory: within a turn (the
//! pending batch merged with the committed rows), after every commit, after reopening the database,
//! and after a crash at every fail point.
//!
//! The tests run with both memtables, and a database that is opened again has now the one
//! and now the other.

mod blobs;
mod copies;
pub(in crate::storage) mod crash;
mod memory;
mod model;
mod opening;
mod run;
mod threads;

use crate::storage::MemtableRep;
use model::{Model, Op};
use run::Runner;
use std::process::Command;

/// Commits between two checks of the whole database.
const CHECK_EVERY: u64 = 20;

const MEMTABLES: [MemtableRep; 2] = [MemtableRep::BTree, MemtableRep::SkipList];

/// So many bytes that packing makes no shorter.
pub(in crate::storage) fn noise(len: usize) -> Vec<u8> {
    let bytes = std::iter::repeat_with(|| fastrand::u8(..));
    bytes.take(len).collect()
}

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
    let (mut commits, mut retries) = (0, 0);
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
            retries += runner.retries;
            drop(runner);
            runner = open(&model);
            runner.compare_committed(&model);
            runner.check();
        }
    }
    println!("retries: {retries}");
}

/// The same in a process of its own where half of the reads of commands pretend that the row is on
/// the disk: commands are taken back at any point, and run again.
#[test]
fn behaves_like_the_model_when_rows_are_on_the_disk() {
    let tests = std::env::current_exe().unwrap();
    let child = Command::new(tests)
        .args(["storage::tests::behaves_like_the_model", "--exact"])
        .args(["--nocapture", "--test-threads", "1"])
        .env("KEDIS_PRETEND_COLD", "2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&child.stderr)
    );
    let retries = said.lines().find_map(|line| line.strip_prefix("retries: "));
    let retries: Option<u64> = retries.and_then(|text| text.parse().ok());
    assert!(retries.is_some_and(|retries| retries > 500), "{said}");
}
