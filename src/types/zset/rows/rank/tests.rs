//! Ranks of a larger sorted set with a rank index, compared with a plain list.

use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig, Txn};
use crate::types::zset::span::place;
use crate::types::zset::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const DB: DbIndex = DbIndex(0);
const KEY: &[u8] = b"key";
const ROUNDS: u32 = 600;

/// Member → score.
type Model = BTreeMap<u32, f64>;

struct Fixture {
    engine: Arc<Engine>,
    txn: Txn,
    model: Model,
    rng: fastrand::Rng,
    next: u32,
    _dir: tempfile::TempDir,
}

fn name(member: u32) -> Vec<u8> {
    // Some differ only far behind the length to which a rank index cuts places.
    match member % 7 {
        0 => [vec![b'x'; 300], member.to_be_bytes().to_vec()].concat(),
        _ => format!("member {member}").into_bytes(),
    }
}

impl Fixture {
    fn new(seed: u64) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().join("db"));
        config.packed_max_entries = 0;
        let engine = Engine::open(config).unwrap();
        let mut txn = Txn::new(engine.clone());
        txn.begin(UnixMs(1)).unwrap();
        txn.start_command();
        Fixture {
            engine,
            txn,
            model: Model::new(),
            rng: fastrand::Rng::with_seed(seed),
            next: 0,
            _dir: dir,
        }
    }

    fn commit(&mut self) {
        self.txn.commit().unwrap();
        self.txn.begin(UnixMs(1)).unwrap();
        self.txn.start_command();
    }

    /// Adds members, or changes the scores of existing ones.
    fn add(&mut self) {
        let growing = self.rng.u8(..4);
        let mut edit = Edit::open(&mut self.txn, DB, KEY).unwrap();
        for _ in 0..self.rng.u32(1..20) {
            let member = match self.rng.u8(..3) {
                0 => self.rng.u32(..=self.next),
                _ => {
                    self.next += 1;
                    self.next
                }
            };
            let score = match growing {
                0 => 1000.0 + f64::from(self.next),
                1 => -1000.0 - f64::from(self.next),
                _ => f64::from(self.rng.i32(-20..20)),
            };
            let rule = AddRule::default();
            edit.add(&mut self.txn, score, &name(member), rule).unwrap();
            self.model.insert(member, score);
        }
        edit.save(&mut self.txn).unwrap();
    }

    fn remove(&mut self) {
        let all = self.ordered();
        let mut edit = Edit::open(&mut self.txn, DB, KEY).unwrap();
        if self.rng.bool() {
            let skip = self.rng.u64(..=all.len() as u64);
            let limit = self.rng.u64(..20);
            let span = Span::all();
            let n = edit.remove_range(&mut self.txn, &span, skip, limit);
            let gone: Vec<_> = all
                .iter()
                .skip(skip as usize)
                .take(limit as usize)
                .collect();
            assert_eq!(n.unwrap(), gone.len() as u64);
            for (_, member) in gone {
                self.model.remove(member);
            }
        } else {
            for _ in 0..self.rng.u32(..10) {
                let member = self.rng.u32(..=self.next);
                let removed = edit.remove(&mut self.txn, &name(member)).unwrap();
                assert_eq!(removed, self.model.remove(&member).is_some());
            }
        }
        edit.save(&mut self.txn).unwrap();
    }

    fn ordered(&self) -> Vec<(f64, u32)> {
        let mut all: Vec<_> = self.model.iter().map(|(m, s)| (*s, *m)).collect();
        all.sort_by_key(|(score, member)| place(*score, &name(*member)));
        all
    }

    fn check(&mut self) {
        let all = self.ordered();
        let Some(zset) = Zset::open(&mut self.txn, DB, KEY).unwrap() else {
            assert!(all.is_empty());
            return;
        };
        assert_eq!(zset.len(), all.len() as u64);
        let txn = &mut self.txn;
        let nth = self.rng.usize(..all.len());
        let (score, member) = all[nth];
        let rank = zset.rank(txn, &name(member), Direction::Forward).unwrap();
        assert_eq!(rank, Some((nth as u64, score)));
        let bound = |n: i32| ScoreBound {
            score: f64::from(n),
            exclusive: n % 2 == 0,
        };
        let (min, max) = (self.rng.i32(-1500..100), self.rng.i32(-100..1500));
        let span = match self.rng.bool() {
            true => Span::of_scores(bound(min), bound(max)),
            false => Span::all(),
        };
        let inside = all.iter().filter(|(score, member)| {
            let place = place(*score, &name(*member));
            !span.starts_after(&place) && span.to.as_ref().is_none_or(|to| place < *to)
        });
        let mut inside: Vec<_> = inside.copied().collect();
        assert_eq!(zset.count(txn, &span).unwrap(), inside.len() as u64);
        let direction = match self.rng.bool() {
            true => Direction::Forward,
            false => Direction::Backward,
        };
        if direction == Direction::Backward {
            inside.reverse();
        }
        let skip = self.rng.usize(..all.len() + 10);
        let mut found = Vec::new();
        let mut each = |score: f64, member: &[u8]| {
            found.push((score, member.to_vec()));
            Ok(())
        };
        zset.walk(txn, &span, direction, skip as u64, 3, &mut each)
            .unwrap();
        let expected = inside.iter().skip(skip).take(3);
        let expected: Vec<_> = expected.map(|(score, m)| (*score, name(*m))).collect();
        assert_eq!(found, expected, "{direction:?} from {skip} on");
    }
}

#[test]
fn ranks_agree_with_a_list() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut fixture = Fixture::new(seed);
    let mut tallied = 0;
    for _ in 0..ROUNDS {
        match fixture.rng.u8(..10) {
            0..4 => fixture.add(),
            4 => fixture.remove(),
            5 => {
                let before = (fixture.txn.savepoint(), fixture.model.clone());
                fixture.add();
                fixture.remove();
                fixture.check();
                fixture.txn.rollback(&before.0);
                fixture.model = before.1;
            }
            6 if fixture.rng.u8(..20) == 0 => {
                fixture.txn.delete_key(DB, KEY).unwrap();
                fixture.model.clear();
            }
            6..8 => fixture.commit(),
            _ => {}
        }
        fixture.check();
        tallied += fixture.engine.rank_index_usage().0;
    }
    fixture.commit();
    assert!(tallied > u64::from(ROUNDS / 4), "hardly ever a rank index");
    let report = fixture.engine.check().unwrap();
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
}

#[test]
fn rank_indexes_keep_to_their_budget() {
    let mut fixture = Fixture::new(1);
    for _ in 0..100 {
        fixture.add();
    }
    fixture.commit();
    fixture.check();
    let all = Span::all();
    let zset = Zset::open(&mut fixture.txn, DB, KEY).unwrap().unwrap();
    let deep = zset.len() / 2;
    let walk = |fixture: &mut Fixture| {
        let ignore = &mut |_: f64, _: &[u8]| Ok(());
        let direction = Direction::Forward;
        zset.walk(&mut fixture.txn, &all, direction, deep, 1, ignore)
            .unwrap();
    };
    walk(&mut fixture);
    let (indexes, bytes) = fixture.engine.rank_index_usage();
    assert!(indexes == 1 && bytes > 1000, "{bytes}");
    fixture.engine.set_memory_budget(bytes * 64).unwrap();
    // The rank index is dropped when it has grown.
    for _ in 0..100 {
        fixture.add();
        fixture.commit();
        walk(&mut fixture);
    }
    assert_eq!(fixture.engine.rank_index_usage(), (0, 0));
    fixture.check();
}
