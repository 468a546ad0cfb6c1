//! Estimates, and what merges.

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

#[test]
fn estimates_are_never_too_low() {
    let (mut txn, _dir) = store();
    let mut sketch = Sketch::new(&txn, 500, 5).unwrap();
    let mut high = 0;
    for n in 0..1000u32 {
        let item = n.to_be_bytes();
        sketch
            .increment(&mut txn, DB, &item, u64::from(n % 7))
            .unwrap();
    }
    for n in 0..1000u32 {
        let estimate = sketch.query(&txn, DB, &n.to_be_bytes()).unwrap();
        assert!(estimate >= n % 7);
        high += u32::from(estimate > n % 7 + 12);
    }
    assert!(high < 10, "{high} of 1,000 are far too high");
    let overflow = sketch
        .increment(&mut txn, DB, b"x", u64::from(u32::MAX))
        .unwrap();
    assert_eq!(overflow, u32::MAX);
}

#[test]
fn a_merge_is_a_weighted_sum() {
    let (mut txn, _dir) = store();
    let mut a = Sketch::new(&txn, 1000, 3).unwrap();
    let mut b = a.clone();
    b.array = Array::new(&txn, tag::SKETCH_PAGE, b.array.len());
    a.increment(&mut txn, DB, b"x", 10).unwrap();
    b.increment(&mut txn, DB, b"x", 3).unwrap();
    let mut c = Sketch::new(&txn, 1000, 3).unwrap();
    let sources = [(a.clone(), 2), (b.clone(), -5)];
    assert!(c.merge(&mut txn, DB, &sources).unwrap());
    assert_eq!((c.query(&txn, DB, b"x").unwrap(), c.count), (5, 5));
    assert!(
        !c.merge(&mut txn, DB, &[(b.clone(), -1)]).unwrap(),
        "below 0"
    );
    assert!(
        !c.merge(&mut txn, DB, &[(a.clone(), i64::MAX)]).unwrap(),
        "overflow"
    );
    assert!(
        !c.merge(&mut txn, DB, &[(a, 1 << 31)]).unwrap(),
        "more than 32 bits"
    );
}

#[test]
fn sizes_have_bounds() {
    let (txn, _dir) = store();
    assert!(
        Sketch::new(&txn, 1 << 30, 4).is_some(),
        "costs nothing until it is written"
    );
    for (width, depth) in [
        (0, 1),
        (1, 0),
        (1, DEPTH_MAX + 1),
        (u64::MAX, 2),
        (1 << 33, 1),
    ] {
        assert!(Sketch::new(&txn, width, depth).is_none(), "{width} {depth}");
    }
}
