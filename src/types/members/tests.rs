//! Members compared with a model, scan cursors under writes, frequencies of samples.

use super::Members;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use crate::storage::txn::ReadLimits;
use crate::storage::{DbIndex, Engine, StorageConfig, Txn};
use crate::types::hashed::{Chunk, Walk};
use crate::types::set::{Algebra, Operation};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DB: DbIndex = DbIndex(0);

struct Store {
    txn: Txn,
    engine: Arc<Engine>,
    /// Dropped last, after the engine.
    _dir: tempfile::TempDir,
}

impl Store {
    fn new() -> Store {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        config.write_buffer_size_bytes = 4 << 20;
        let engine = Engine::open(config).unwrap();
        let mut txn = Txn::new(engine.clone());
        txn.begin(UnixMs(1)).unwrap();
        Store {
            txn,
            engine,
            _dir: dir,
        }
    }

    fn commit(&mut self) {
        self.txn.commit().unwrap();
        self.txn.begin(UnixMs(1)).unwrap();
    }

    fn open(&mut self, key: &[u8], kind: ValueType) -> Members {
        Members::open(&mut self.txn, DB, key, kind).unwrap()
    }

    fn add(&mut self, key: &[u8], members: impl IntoIterator<Item = String>) {
        let mut set = self.open(key, ValueType::Set);
        for member in members {
            set.insert(&mut self.txn, member.as_bytes(), b"").unwrap();
        }
        set.save(&mut self.txn, key).unwrap();
    }

    fn all(&mut self, key: &[u8], kind: ValueType) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all = BTreeMap::new();
        let map = self.open(key, kind);
        map.for_each(&mut self.txn, |member, value| {
            assert!(all.insert(member.to_vec(), value.to_vec()).is_none());
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(map.len(), all.len() as u64);
        all
    }

    fn check(&mut self) {
        self.commit();
        let report = self.engine.check().unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
    }
}

fn seed() -> u64 {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    fastrand::seed(seed);
    seed
}

fn random_bytes(max: usize) -> Vec<u8> {
    (0..fastrand::usize(..=max))
        .map(|_| fastrand::u8(..))
        .collect()
}

#[test]
fn behaves_like_a_map() {
    seed();
    let mut store = Store::new();
    for round in 0..60 {
        let kind = [ValueType::Hash, ValueType::Set][round % 2];
        let key = format!("k{}", fastrand::u8(..6)).into_bytes();
        let key = [&key[..], kind.name().as_bytes()].concat();
        let mut model = store.all(&key, kind);
        let members: Vec<Vec<u8>> = match fastrand::bool() {
            true => (0..fastrand::u32(1..200))
                .map(|i| i.to_string().into())
                .collect(),
            false => (0..40).map(|_| random_bytes(300)).collect(),
        };
        let removals = fastrand::u8(..4);
        for _ in 0..5 {
            let mut map = store.open(&key, kind);
            for _ in 0..fastrand::usize(..100) {
                let member = fastrand::choice(&members).unwrap();
                if fastrand::u8(..4) < removals {
                    let removed = map.remove(&mut store.txn, member).unwrap();
                    assert_eq!(removed, model.remove(member).is_some());
                } else {
                    let value = match kind {
                        ValueType::Hash => {
                            random_bytes(if fastrand::u8(..20) == 0 { 400 } else { 8 })
                        }
                        _ => Vec::new(),
                    };
                    let is_new = map.insert(&mut store.txn, member, &value).unwrap();
                    assert_eq!(is_new, model.insert(member.clone(), value).is_none());
                }
                assert_eq!(map.len(), model.len() as u64);
                let asked = fastrand::choice(&members).unwrap();
                let found = map.get(&store.txn, asked).unwrap();
                assert_eq!(found.as_deref(), model.get(asked).map(Vec::as_slice));
            }
            map.save(&mut store.txn, &key).unwrap();
            if fastrand::bool() {
                store.commit();
            }
            assert_eq!(store.all(&key, kind), model);
        }
        let exists = store.txn.lookup(DB, &key).unwrap().is_some();
        assert_eq!(exists, !model.is_empty());
    }
    store.check();
}

#[test]
fn packed_hash_keeps_the_order_of_insertion() {
    let mut store = Store::new();
    let mut map = store.open(b"h", ValueType::Hash);
    for (field, value) in [("b", "1"), ("a", "2"), ("c", "3"), ("b", "a longer one")] {
        map.insert(&mut store.txn, field.as_bytes(), value.as_bytes())
            .unwrap();
    }
    map.remove(&mut store.txn, b"a").unwrap();
    let mut seen = Vec::new();
    map.for_each(&mut store.txn, |field, value| {
        seen.push((field.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(
        seen,
        [
            (b"b".to_vec(), b"a longer one".to_vec()),
            (b"c".to_vec(), b"3".to_vec())
        ]
    );
}

#[test]
fn packed_integers_come_in_numeric_order() {
    let mut store = Store::new();
    store.add(b"s", ["10", "-3", "9"].map(String::from));
    let set = store.open(b"s", ValueType::Set);
    let mut chunk = Chunk::default();
    set.fill(&mut store.txn, &mut Walk::one_of(1), &mut chunk)
        .unwrap();
    assert_eq!(chunk.iter().collect::<Vec<_>>(), [&b"-3"[..], b"9", b"10"]);
}

#[test]
fn shrunk_maps_are_written_anew() {
    let mut store = Store::new();
    store.add(b"s", (0..20_000).map(|i| i.to_string()));
    store.commit();
    let mut forms = Vec::new();
    for member in 0..20_000 {
        let before = store.txn.lookup(DB, b"s").unwrap().unwrap();
        let mut set = store.open(b"s", ValueType::Set);
        assert!(
            set.remove(&mut store.txn, member.to_string().as_bytes())
                .unwrap()
        );
        set.save(&mut store.txn, b"s").unwrap();
        let Some(after) = store.txn.lookup(DB, b"s").unwrap() else {
            assert_eq!(member, 19_999);
            break;
        };
        let id = |found: &crate::storage::KeyMeta| found.body[..8].to_vec();
        if before.meta.rows && (!after.meta.rows || id(&before) != id(&after)) {
            let left = 19_999 - member;
            forms.push((left, after.meta.rows));
            assert_eq!(store.all(b"s", ValueType::Set).len(), left);
        }
        if member % 1000 == 0 {
            store.commit();
        }
    }
    assert_eq!(forms.len(), 5, "{forms:?}");
    assert_eq!(forms.last().map(|(_, rows)| *rows), Some(false));
    store.check();
}

#[test]
fn unchanged_saves_write_nothing() {
    let mut store = Store::new();
    store.add(b"s", (0..500).map(|i| i.to_string()));
    store.add(b"t", ["x".to_owned()]);
    store.commit();
    store.txn.start_command();
    store.add(b"s", (0..500).map(|i| i.to_string()));
    store.add(b"t", ["x".to_owned()]);
    assert_eq!(store.txn.dirty(), 0);
}

#[test]
fn scan_misses_nothing_that_stays() {
    seed();
    let mut store = Store::new();
    let stays: BTreeSet<String> = (0..2000).map(|i| format!("stays{i}")).collect();
    store.add(b"s", stays.iter().cloned());
    let (mut cursor, mut seen, mut calls) = (0, Vec::new(), 0);
    loop {
        let set = store.open(b"s", ValueType::Set);
        let mut got = 0;
        cursor = set
            .scan(&mut store.txn, cursor, 10, |member, _| {
                got += 1;
                seen.push(String::from_utf8(member.to_vec()).unwrap());
            })
            .unwrap();
        assert!(cursor < 1 << 53);
        calls += 1;
        if cursor == 0 {
            break;
        }
        assert!(got >= 10);
        let mut set = store.open(b"s", ValueType::Set);
        for _ in 0..5 {
            let member = format!("comes{}", fastrand::u8(..)).into_bytes();
            if !set.insert(&mut store.txn, &member, b"").unwrap() {
                set.remove(&mut store.txn, &member).unwrap();
            }
        }
        set.save(&mut store.txn, b"s").unwrap();
        if fastrand::bool() {
            store.commit();
        }
    }
    assert!(calls > 100);
    let once = seen.len();
    let seen: BTreeSet<String> = seen.into_iter().collect();
    assert_eq!(seen.len(), once, "each place is passed once");
    assert!(stays.is_subset(&seen));
    let set = store.open(b"s", ValueType::Set);
    assert_eq!(
        set.scan(&mut store.txn, u64::MAX, 10, |_, _| {}).unwrap(),
        0
    );
}

#[test]
fn walks_in_chunks_see_everything_once() {
    let mut store = Store::new();
    store.add(b"s", (0..5000).map(|i| i.to_string()));
    store.commit();
    let set = store.open(b"s", ValueType::Set);
    let (mut walk, mut chunk) = (Walk::one_of(1 << 20), Chunk::default());
    let mut all = Vec::new();
    while !walk.is_done() {
        set.fill(&mut store.txn, &mut walk, &mut chunk).unwrap();
        all.extend(chunk.iter().map(<[u8]>::to_vec));
    }
    assert_eq!(all.len(), 5000);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 5000);
}

/// Checks that draws with equal probabilities have plausible `counts`: chi-square within
/// six standard deviations of its mean.
fn assert_uniform(counts: &BTreeMap<Vec<u8>, u64>, members: usize) {
    let draws: u64 = counts.values().sum();
    let expected = draws as f64 / members as f64;
    let missed = (members - counts.len()) as f64 * expected;
    let seen = counts
        .values()
        .map(|n| (*n as f64 - expected).powi(2) / expected);
    let chi_square = missed + seen.sum::<f64>();
    let freedom = (members - 1) as f64;
    let limit = freedom + 6.0 * (2.0 * freedom).sqrt();
    assert!(chi_square < limit, "chi square {chi_square}, limit {limit}");
}

#[test]
fn samples_are_uniform() {
    seed();
    let mut store = Store::new();
    for members in [3usize, 50, 70, 300, 2000] {
        let key = members.to_string().into_bytes();
        store.add(&key, (0..members).map(|i| i.to_string()));
        store.commit();
        let set = store.open(&key, ValueType::Set);
        let mut counts = [const { BTreeMap::<Vec<u8>, u64>::new() }; 3];
        let [one, some, many] = &mut counts;
        let count = |counts: &mut BTreeMap<Vec<u8>, u64>, member: &[u8]| {
            *counts.entry(member.to_vec()).or_default() += 1;
        };
        for _ in 0..members * 20 {
            set.sample(&mut store.txn, |member, _| count(one, member))
                .unwrap();
        }
        for _ in 0..40 {
            let mut drawn = BTreeSet::new();
            let wanted = members / 2;
            set.sample_distinct(&mut store.txn, wanted as u64, |member, _| {
                assert!(drawn.insert(member.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(drawn.len(), wanted);
            drawn.iter().for_each(|member| count(some, member));
        }
        set.sample_repeats(&mut store.txn, members as u64 * 20, |member, _| {
            count(many, member);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(many.values().sum::<u64>(), members as u64 * 20);
        for counts in [&*one, &*some, &*many] {
            assert_uniform(counts, members);
        }
    }
}

#[test]
fn few_of_many_are_different() {
    seed();
    let mut store = Store::new();
    store.add(b"s", (0..3000).map(|i| i.to_string()));
    let set = store.open(b"s", ValueType::Set);
    let mut drawn = BTreeSet::new();
    set.sample_distinct(&mut store.txn, 20, |member, _| {
        assert!(drawn.insert(member.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(drawn.len(), 20);
    drawn.clear();
    set.sample_distinct(&mut store.txn, u64::MAX, |member, _| {
        drawn.insert(member.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(drawn.len(), 3000);
}

/// 4000 members, of which those of these numbers have a time that is over.
fn with_members_over(kind: ValueType, over: std::ops::Range<u32>) -> Store {
    let mut store = Store::new();
    let mut map = store.open(b"k", kind);
    for n in 0..4000 {
        let member = format!("m{n}");
        map.insert(&mut store.txn, member.as_bytes(), b"").unwrap();
        if over.contains(&n) {
            map.set_time(&mut store.txn, member.as_bytes(), UnixMs(50))
                .unwrap();
        }
    }
    map.save(&mut store.txn, b"k").unwrap();
    store.txn.commit().unwrap();
    store.txn.begin(UnixMs(100)).unwrap();
    store
}

/// One member whose time was over made each draw walk over half of the collection.
#[test]
fn draws_pass_over_members_whose_time_is_over() {
    seed();
    for kind in [ValueType::Hash, ValueType::Set] {
        let mut store = with_members_over(kind, 0..400);
        let asked = Arc::new(AtomicU64::new(0));
        let asks = asked.clone();
        store.txn.watch_with(Box::new(move || {
            asks.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
        store.txn.limit_reads_and_watch(ReadLimits::None);
        let map = store.open(b"k", kind);
        let mut drawn = BTreeSet::new();
        for _ in 0..300 {
            map.sample(&mut store.txn, |member, _| {
                drawn.insert(member.to_vec());
            })
            .unwrap();
        }
        assert!(drawn.len() > 200, "{}", drawn.len());
        for _ in 0..10 {
            let mut some = BTreeSet::new();
            map.sample_distinct(&mut store.txn, 20, |member, _| {
                some.insert(member.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(some.len(), 20);
            drawn.extend(some);
            map.sample_repeats(&mut store.txn, 20, |member, _| {
                drawn.insert(member.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        let is_over = |member: &[u8]| {
            let number = std::str::from_utf8(&member[1..]).unwrap();
            number.parse::<u32>().unwrap() < 400
        };
        assert!(!drawn.iter().any(|member| is_over(member)));
        // The watch is asked every fifty rows. A walk to each of the 700 would pass a million.
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked < 4000, "{kind:?}: {asked}");
    }
}

/// A call of SSCAN or HSCAN once passed all members whose time was over until it had found enough
/// others.
#[test]
fn scans_count_members_whose_time_is_over() {
    for kind in [ValueType::Hash, ValueType::Set] {
        let mut store = with_members_over(kind, 1..4000);
        let map = store.open(b"k", kind);
        let (mut found, mut cursor, mut calls) = (Vec::new(), 0, 0);
        loop {
            cursor = map
                .scan(&mut store.txn, cursor, 10, |member, _| {
                    found.push(member.to_vec());
                })
                .unwrap();
            calls += 1;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(found, [b"m0".to_vec()]);
        assert!((300..=400).contains(&calls), "{calls}");
        // Few live, so they are found by walks.
        map.sample(&mut store.txn, |member, _| assert_eq!(member, b"m0"))
            .unwrap();
    }
}

#[test]
fn algebra_agrees_with_btreeset() {
    seed();
    let mut store = Store::new();
    let mut model: Vec<BTreeSet<String>> = Vec::new();
    for (index, size) in [0, 3, 30, 60, 90, 700, 1500, 3000].into_iter().enumerate() {
        let range = (size * 2).max(1);
        let members: BTreeSet<String> = (0..size)
            .map(|_| fastrand::u32(..range).to_string())
            .collect();
        store.add(&[index as u8], members.iter().cloned());
        model.push(members);
    }
    store.commit();
    for _ in 0..200 {
        let picks: Vec<u8> = (0..fastrand::usize(1..5))
            .map(|_| fastrand::u8(..model.len() as u8))
            .collect();
        let names: Vec<[u8; 1]> = picks.iter().map(|pick| [*pick]).collect();
        let keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        let mut sets = picks.iter().map(|pick| &model[usize::from(*pick)]);
        let first = sets.next().unwrap().clone();
        for operation in [
            Operation::Union,
            Operation::Intersection,
            Operation::Difference,
        ] {
            let expected = sets
                .clone()
                .fold(first.clone(), |sum, set| match operation {
                    Operation::Union => &sum | set,
                    Operation::Intersection => &sum & set,
                    Operation::Difference => &sum - set,
                });
            let mut algebra = Algebra::new(&mut store.txn, DB, &keys, operation).unwrap();
            let mut got = Vec::new();
            while algebra.advance(&mut store.txn).unwrap() {
                got.push(String::from_utf8(algebra.member().to_vec()).unwrap());
            }
            let count = got.len();
            let got: BTreeSet<String> = got.into_iter().collect();
            assert_eq!(got.len(), count, "{operation:?} of {picks:?} repeats");
            assert_eq!(got, expected, "{operation:?} of {picks:?}");
        }
    }
}
