//! All memtables together keep to their share of the memory budget.

use super::super::{DbIndex, Engine, StorageConfig, Txn};
use crate::base::time::UnixMs;
use crate::encoding::{Meta, ValueType};
use crate::sys::testing::wait_for;
use std::sync::Arc;

/// DBs that each have less in memory than RocksDB would flush by itself.
const DBS: u16 = 8;
const VALUE: [u8; 4096] = [7; 4096];

/// An engine with little memory.
fn small() -> (tempfile::TempDir, StorageConfig, Arc<Engine>) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = StorageConfig::for_tests(dir.path().to_owned());
    config.machine.memory_budget_bytes = 32 << 20;
    let engine = Engine::open(config.clone()).unwrap();
    (dir, config, engine)
}

#[test]
fn memtables_of_many_dbs_are_written_out() {
    let (_dir, config, engine) = small();
    let (_, share) = engine.memtable_usage();
    assert!(
        config.write_buffer_size_bytes > share as u64,
        "one would be too much"
    );
    let mut txn = Txn::new(engine.clone());
    let mut put = |db: u16, i: usize| {
        txn.begin(UnixMs(1)).unwrap();
        let meta = Meta::new(ValueType::String);
        let key = i.to_be_bytes();
        txn.put_key(DbIndex(db), &key, None, meta, &VALUE).unwrap();
        txn.commit().unwrap();
    };
    for i in 0..2 * share / VALUE.len() {
        (0..DBS).for_each(|db| put(db, i));
    }
    // Flushes may be behind by a few memtables of each DB. They catch up, and the next writes cause
    // further flushes.
    wait_for("memtables that keep to their share", || {
        let fits = engine.memtable_usage().0 <= share;
        if !fits {
            put(0, 0);
        }
        fits
    });
}

/// Bytes of all memtables once each of these DBs has one more row.
fn with_a_row_in_each(engine: &Arc<Engine>, dbs: std::ops::Range<u16>) -> usize {
    let mut txn = Txn::new(engine.clone());
    for db in dbs {
        txn.begin(UnixMs(1)).unwrap();
        let meta = Meta::new(ValueType::String);
        txn.put_key(DbIndex(db), b"key", None, meta, b"value")
            .unwrap();
        txn.commit().unwrap();
    }
    engine.memtable_usage().0
}

/// The size of memtables follows the budget, also when that changes.
#[test]
fn memtables_are_no_larger_than_the_budget_allows() {
    let (dir, config, engine) = small();
    with_a_row_in_each(&engine, 0..DBS);
    // RocksDB writes the options of its column families to a file.
    let sizes = || {
        let files = std::fs::read_dir(dir.path()).unwrap();
        let names = files.map(|file| file.unwrap().path());
        let options = names.filter(|path| path.to_string_lossy().contains("OPTIONS-"));
        let text = std::fs::read_to_string(options.max().unwrap()).unwrap();
        let of_dbs = text
            .split("[CFOptions ")
            .filter(|part| part.starts_with("\"ks"));
        let sizes: Vec<u64> = of_dbs
            .filter_map(|part| part.split("write_buffer_size=").nth(1)?.lines().next())
            .map(|size| size.parse().unwrap())
            .collect();
        sizes
    };
    let expected = |budget| vec![config.memtable_size(budget); usize::from(DBS)];
    assert_eq!(sizes(), expected(config.machine.memory_budget_bytes));
    engine.set_memory_budget(64 << 20).unwrap();
    assert_eq!(sizes(), expected(64 << 20));
    assert!(
        config.memtable_size(64 << 20) > config.memtable_size(config.machine.memory_budget_bytes)
    );
}

#[test]
fn memtables_of_very_many_dbs_are_small_without_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = StorageConfig::for_tests(dir.path().to_owned());
    config.machine.memory_budget_bytes = 1 << 30;
    config.databases = 400;
    let engine = Engine::open(config).unwrap();
    let used = with_a_row_in_each(&engine, 0..DBS);
    assert!(used < usize::from(DBS) << 19, "{used} bytes");
}

/// The block cache keeps half of its share, whatever others take, and can grow again.
#[test]
fn the_block_cache_gives_up_half_at_the_most() {
    let (_dir, _, engine) = small();
    let share = engine.cache_size();
    assert_eq!(engine.cache_limit(), share);
    engine.limit_cache(share / 4 * 3);
    assert_eq!(engine.cache_limit(), share / 4 * 3);
    engine.limit_cache(0);
    assert_eq!(engine.cache_limit(), share / 2);
    let (_, memtables) = engine.memtable_usage();
    engine.set_memory_budget(64 << 20).unwrap();
    assert_eq!(engine.cache_limit(), engine.cache_size());
    assert_ne!(engine.cache_limit(), share);
    assert_ne!(engine.memtable_usage().1, memtables);
}
