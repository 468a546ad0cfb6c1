//! What a filter keeps through growth, deletion and compaction, and hostile headers.

use super::*;
use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig};

const DB: DbIndex = DbIndex(0);

fn store() -> (Txn, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
    let mut txn = Txn::new(engine);
    txn.begin(UnixMs(1)).unwrap();
    (txn, dir)
}

const PLAN: Plan = Plan {
    capacity: 64,
    bucket_size: 2,
    iterations: 20,
    expansion: 2,
};

fn item(n: u32) -> Vec<u8> {
    format!("item:{n}").into_bytes()
}

#[test]
fn no_item_is_lost() {
    let (mut txn, _dir) = store();
    let mut filter = Cuckoo::new(&txn, PLAN).unwrap();
    for n in 0..3000 {
        let inserted = filter.insert(&mut txn, DB, &item(n), false).unwrap();
        assert_eq!(inserted, Inserted::Added, "{n}");
    }
    assert!(filter.table_count() > 4);
    for n in 0..3000 {
        assert!(filter.contains(&txn, DB, &item(n)).unwrap(), "{n}");
    }
    for n in (0..3000).filter(|n| n % 3 != 0) {
        assert!(filter.delete(&mut txn, DB, &item(n)).unwrap(), "{n}");
    }
    filter.compact(&mut txn, DB, true).unwrap();
    assert_eq!((filter.items, filter.deletes), (1000, 0));
    for n in (0..3000).step_by(3) {
        assert!(filter.contains(&txn, DB, &item(n)).unwrap(), "{n}");
    }
    let all = filter
        .array
        .collect(&mut *txn, DB, 0..filter.slots())
        .unwrap();
    assert_eq!(all.iter().filter(|slot| **slot != EMPTY).count(), 1000);
}

/// A failed displacement once could have left a fingerprint out.
#[test]
fn a_full_filter_keeps_what_it_has() {
    let (mut txn, _dir) = store();
    let plan = Plan {
        expansion: 0,
        ..PLAN
    };
    let mut filter = Cuckoo::new(&txn, plan).unwrap();
    let mut added = Vec::new();
    for n in 0..200 {
        match filter.insert(&mut txn, DB, &item(n), false).unwrap() {
            Inserted::Added => added.push(n),
            other => assert_eq!(other, Inserted::Full),
        }
    }
    assert!(added.len() > 50 && added.len() <= 64, "{}", added.len());
    for n in added {
        assert!(filter.contains(&txn, DB, &item(n)).unwrap(), "{n}");
    }
}

#[test]
fn hostile_headers_are_refused() {
    let (txn, _dir) = store();
    let header = Cuckoo::new(&txn, PLAN).unwrap().header();
    assert!(Cuckoo::from_header(&txn, &header).is_some());
    type Edit = fn(&mut Vec<u8>);
    let edits: &[(&str, Edit)] = &[
        ("empty", |h| h.clear()),
        ("cut", |h| h.truncate(37)),
        ("longer", |h| h.push(0)),
        ("no buckets", |h| h[8..16].fill(0)),
        ("buckets that are no power of two", |h| h[8] = 3),
        ("buckets without end", |h| {
            h[8..16].copy_from_slice(&(1u64 << 55).to_le_bytes())
        }),
        ("no tables", |h| h[24..32].fill(0)),
        ("tables without end", |h| h[24..32].fill(0xFF)),
        ("tables that are too large", |h| h[24] = 60),
        ("no slots", |h| h[32..34].fill(0)),
        ("too many slots", |h| h[33] = 1),
        ("no iterations", |h| h[34..36].fill(0)),
        ("an expansion that is too high", |h| h[37] = 0xFF),
        ("two tables without expansion", |h| {
            h[24] = 2;
            h[36..38].fill(0);
        }),
    ];
    for (name, edit) in edits {
        let mut header = header.clone();
        edit(&mut header);
        assert!(Cuckoo::from_header(&txn, &header).is_none(), "{name}");
    }
}

#[test]
fn pieces_outside_of_the_slots_are_refused() {
    let (mut txn, _dir) = store();
    let mut filter = Cuckoo::new(&txn, PLAN).unwrap();
    let zeros = [0; 65];
    for (cursor, bytes) in [
        (0, 1),
        (1, 1),
        (-1, 1),
        (i64::MIN, 1),
        (i64::MAX, 1),
        (2, 0),
        (5, 5),
        (66, 1),
        (66, 65),
    ] {
        let loaded = filter.load_chunk(&mut txn, DB, cursor, &zeros[..bytes]);
        assert!(!loaded.unwrap(), "{cursor} {bytes}");
    }
    assert!(filter.load_chunk(&mut txn, DB, 65, &zeros[..64]).unwrap());
    for cursor in [i64::MIN, -1, 0, 65, i64::MAX] {
        assert_eq!(
            filter.chunk(&mut txn, DB, cursor).unwrap(),
            None,
            "{cursor}"
        );
    }
}
