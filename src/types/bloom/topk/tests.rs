//! What is found of skewed input, and that the same requests leave the same value.

use super::*;
use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig};

const DB: DbIndex = DbIndex(0);

const PLAN: Plan = Plan {
    k: 10,
    width: 60,
    depth: 5,
    decay: 0.9,
};

fn store() -> (Txn, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
    let mut txn = Txn::new(engine);
    txn.begin(UnixMs(1)).unwrap();
    (txn, dir)
}

/// Counts item n 2,000 / (n + 1) times, mixed.
fn fill(txn: &mut Txn, top: &mut TopK) {
    for round in 0..2000u32 {
        for n in (0..200u32).filter(|n| round % (n + 1) == 0) {
            top.add(txn, DB, format!("item:{n}").as_bytes(), 1).unwrap();
        }
    }
}

#[test]
fn the_most_frequent_items_are_kept() {
    let (mut txn, _dir) = store();
    let mut top = TopK::new(&txn, PLAN).unwrap();
    fill(&mut txn, &mut top);
    top.save(&mut txn, DB, b"k").unwrap();
    let mut top = TopK::load(&mut txn, DB, b"k").unwrap().unwrap();
    let list = top.list(&mut txn, DB).unwrap();
    for n in 0..5 {
        let item = format!("item:{n}").into_bytes();
        assert!(
            list.iter().any(|slot| slot.item.as_ref() == Some(&item)),
            "{n}: {list:?}"
        );
        let count = top.count(&mut txn, DB, &item).unwrap();
        let exact = 2000u32.div_ceil(n + 1);
        assert!(count <= exact && count > exact * 3 / 4, "{n}: {count}");
    }
    assert!(list.is_sorted_by(|a, b| a.count >= b.count));
}

/// A replica runs the same requests.
#[test]
fn chance_follows_from_the_value() {
    let (mut txn, _dir) = store();
    let mut values = [(); 2].map(|()| TopK::new(&txn, PLAN).unwrap());
    for value in &mut values {
        fill(&mut txn, value);
    }
    let [a, b] = &mut values;
    assert!(a.draws > 1000);
    assert_eq!(a.draws, b.draws);
    assert_eq!(a.list(&mut txn, DB).unwrap(), b.list(&mut txn, DB).unwrap());
    let whole = 0..a.array.len();
    let buckets =
        [&a.array, &b.array].map(|array| array.collect(&mut *txn, DB, whole.clone()).unwrap());
    assert_eq!(buckets[0], buckets[1]);
}

/// Many attempts at once lower a counter as often as one by one.
#[test]
fn attempts_at_once_are_as_many_attempts() {
    let (txn, _dir) = store();
    let mut top = TopK::new(&txn, PLAN).unwrap();
    let (mut at_once, mut one_by_one) = (0u64, 0u64);
    for print in 0..2000 {
        at_once += u64::from(top.decayed((1, 20), print + 10, 30).1);
        let mut bucket = (1, 20);
        for _ in 0..30 {
            bucket = top.decayed(bucket, print + 10, 1);
        }
        one_by_one += u64::from(bucket.1);
    }
    let ratio = at_once as f64 / one_by_one as f64;
    assert!((0.98..1.02).contains(&ratio), "{ratio}");
}

/// An item that meets only counters of others comes into an empty heap with a count of 0. Its row once
/// stayed when an empty slot took its place.
#[test]
fn slots_that_become_empty_have_no_row() {
    let (mut txn, _dir) = store();
    let plan = Plan {
        width: 1,
        depth: 1,
        decay: 1e-9,
        ..PLAN
    };
    let mut top = TopK::new(&txn, plan).unwrap();
    for item in [&b"a"[..], b"b", b"c", b"a", b"d", b"a", b"e", b"a"] {
        top.add(&mut txn, DB, item, 2).unwrap();
        let slots = slots_of(&mut top, &mut txn);
        top.save(&mut txn, DB, b"k").unwrap();
        top = TopK::load(&mut txn, DB, b"k").unwrap().unwrap();
        assert_eq!(slots_of(&mut top, &mut txn), slots);
    }
}

fn slots_of(top: &mut TopK, txn: &mut Txn) -> Vec<Slot> {
    let heap = top.heap(txn, DB).unwrap();
    let all = 0..heap.k;
    all.map(|at| heap.slot(txn, DB, at).unwrap().clone())
        .collect()
}

/// The slots of a small heap are read one by one, those of a large one at once.
#[test]
fn a_heap_is_the_same_however_it_is_read() {
    let (mut txn, _dir) = store();
    let plan = |k| Plan { k, ..PLAN };
    let mut rng = fastrand::Rng::with_seed(7);
    let mut top = TopK::new(&txn, plan(SMALL_K)).unwrap();
    for _ in 0..600 {
        let item = format!("item{}", rng.u32(0..200).min(rng.u32(0..200)));
        // Nothing is kept in memory between two additions.
        top.add(&mut txn, DB, item.as_bytes(), rng.u32(1..4))
            .unwrap();
        top.save(&mut txn, DB, b"k").unwrap();
        let mut whole = TopK::load(&mut txn, DB, b"k").unwrap().unwrap();
        whole.heap = Some(whole.read_heap(&mut txn, DB).unwrap());
        top = TopK::load(&mut txn, DB, b"k").unwrap().unwrap();
        assert_eq!(slots_of(&mut top, &mut txn), slots_of(&mut whole, &mut txn));
        for item in [item.as_bytes(), b"none"] {
            let found = top.contains(&mut txn, DB, item).unwrap();
            assert_eq!(found, whole.contains(&mut txn, DB, item).unwrap());
        }
        top = TopK::load(&mut txn, DB, b"k").unwrap().unwrap();
    }
}

/// The heap was read and held with all its slots, most of them empty, for each command: an addition
/// to a new value took 200 ms.
#[test]
fn work_follows_the_items_that_are_kept() {
    let (mut txn, _dir) = store();
    let plan = Plan {
        k: K_MAX,
        width: 10_000,
        ..PLAN
    };
    let mut top = TopK::new(&txn, plan).unwrap();
    for n in 0..100 {
        let item = format!("item{n}");
        top.add(&mut txn, DB, item.as_bytes(), 2).unwrap();
        top.save(&mut txn, DB, b"k").unwrap();
        top = TopK::load(&mut txn, DB, b"k").unwrap().unwrap();
        assert!(top.contains(&mut txn, DB, item.as_bytes()).unwrap());
        assert!(!top.contains(&mut txn, DB, b"none").unwrap());
        let held = top.heap(&mut txn, DB).unwrap().slots.len();
        assert!(held <= n + 1, "{held} slots for {n} items");
        top = TopK::load(&mut txn, DB, b"k").unwrap().unwrap();
    }
    assert_eq!(top.list(&mut txn, DB).unwrap().len(), 100);
}

#[test]
fn sizes_have_bounds() {
    let (txn, _dir) = store();
    for plan in [
        Plan { k: 0, ..PLAN },
        Plan {
            k: K_MAX + 1,
            ..PLAN
        },
        Plan { width: 0, ..PLAN },
        Plan {
            depth: DEPTH_MAX + 1,
            ..PLAN
        },
        Plan {
            width: u32::MAX,
            ..PLAN
        },
        Plan { decay: 0.0, ..PLAN },
        Plan {
            decay: f64::NAN,
            ..PLAN
        },
    ] {
        assert!(TopK::new(&txn, plan).is_none(), "{plan:?}");
    }
}
