//! A database with many deleted keys, for tests of reads that meet tombstones.

use crate::base::time::UnixMs;
use crate::encoding::{Meta, ValueType};
use crate::storage::{DbIndex, Engine, StorageConfig, Txn};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A database with deleted keys, whose tombstones are not compacted yet.
pub struct Deleted {
    pub txn: Txn,
    pub engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

fn key(n: usize) -> Vec<u8> {
    format!("key:{n:07}").into_bytes()
}

impl Deleted {
    /// Different choices of `alive` of `all` keys, each in order.
    pub fn patterns(all: usize, alive: usize) -> [Vec<Vec<u8>>; 4] {
        [
            (0..all).step_by(all / alive).map(key).collect(),
            (0..alive).map(key).collect(),
            (all - alive..all).map(key).collect(),
            (all / 2..all / 2 + alive).map(key).collect(),
        ]
    }

    /// A store that had `all` keys, of which all except the survivors were deleted.
    pub fn store(all: usize, survivors: &[Vec<u8>]) -> Deleted {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        config.machine.memory_budget_bytes = 256 << 20;
        let engine = Engine::open(config).unwrap();
        let mut txn = Txn::new(engine.clone());
        let survivors: BTreeSet<&Vec<u8>> = survivors.iter().collect();
        let db = DbIndex(0);
        txn.begin(UnixMs(1)).unwrap();
        for n in 0..all {
            let meta = Meta::new(ValueType::String);
            txn.put_key(db, &key(n), None, meta, b"value").unwrap();
        }
        txn.commit().unwrap();
        txn.begin(UnixMs(1)).unwrap();
        for key in (0..all).map(key).filter(|key| !survivors.contains(key)) {
            assert!(txn.delete_key(db, &key).unwrap());
        }
        txn.commit().unwrap();
        txn.begin(UnixMs(1)).unwrap();
        Deleted {
            txn,
            engine,
            _dir: dir,
        }
    }
}
