//! Lists compared with a `VecDeque`, in both forms, with several changes in one batch
//! and many commits.

use super::*;
use crate::base::time::UnixMs;
use crate::storage::{Engine, StorageConfig};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

const DB: DbIndex = DbIndex(0);
const KEY: &[u8] = b"list";
const OTHER: &[u8] = b"other";

struct Bench {
    txn: Txn,
    engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(max_entries: usize) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        config.packed_max_entries = max_entries;
        let engine = Engine::open(config).unwrap();
        let mut txn = Txn::new(Arc::clone(&engine));
        txn.begin(UnixMs(1_000)).unwrap();
        txn.start_command();
        Bench {
            txn,
            engine,
            _dir: dir,
        }
    }

    /// A list of the numbers below `len`, in rows.
    fn with_rows(len: u32) -> Bench {
        let mut bench = Bench::new(0);
        bench.push(KEY, End::Tail, 0..len);
        bench.commit();
        bench
    }

    fn commit(&mut self) {
        self.txn.commit().unwrap();
        self.txn.begin(UnixMs(1_000)).unwrap();
        self.txn.start_command();
    }

    /// Commits, and checks the consistency of the database.
    fn check(&mut self) {
        self.commit();
        let report = self.engine.check().unwrap();
        assert!(report.faults.is_empty(), "{:#?}", report.faults);
    }

    fn push(&mut self, key: &[u8], end: End, items: impl Iterator<Item = u32>) {
        let items: Vec<Vec<u8>> = items.map(text).collect();
        let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        self.change(key, |list, txn| list.push(txn, end, &items));
    }

    fn change<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut List<'_>, &mut Txn) -> OpResult<R>,
    ) -> R {
        let mut list = List::load_or_new(&mut self.txn, DB, key).unwrap();
        let result = change(&mut list, &mut self.txn).unwrap();
        list.save(&mut self.txn).unwrap();
        result
    }

    fn items(&mut self, key: &[u8]) -> Vec<Vec<u8>> {
        items(&mut self.txn, DB, key).unwrap()
    }

    fn is_packed(&mut self, key: &[u8]) -> bool {
        let list = List::load(&mut self.txn, DB, key).unwrap().unwrap();
        list.is_packed()
    }

    /// The number of rows that the last change wrote or deleted.
    fn touched(&mut self) -> u64 {
        let dirty = self.txn.dirty();
        self.txn.start_command();
        dirty
    }
}

fn text(n: u32) -> Vec<u8> {
    n.to_string().into_bytes()
}

#[derive(Debug, Clone)]
enum Op {
    Push(End, Vec<u32>),
    Pop(End, u64),
    Set(i64, u32),
    Insert(End, u32, u32),
    Remove(End, u64, u32),
    Trim(i64, i64),
    Range(i64, i64),
    Move(bool, End, End),
    Replace(Vec<u32>),
    Commit,
    Undo,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Head), Just(End::Tail)]
}

fn op() -> impl Strategy<Value = Op> {
    // Few different items, so that many are equal; indices around any length.
    let item = 0..12u32;
    let index = -40..40i64;
    prop_oneof![
        8 => (end(), prop::collection::vec(item.clone(), 1..6)).prop_map(|(e, v)| Op::Push(e, v)),
        1 => (end(), prop::collection::vec(item.clone(), 60..90)).prop_map(|(e, v)| Op::Push(e, v)),
        4 => (end(), 0..8u64).prop_map(|(e, n)| Op::Pop(e, n)),
        2 => (index.clone(), item.clone()).prop_map(|(i, v)| Op::Set(i, v)),
        4 => (end(), item.clone(), item.clone()).prop_map(|(e, p, v)| Op::Insert(e, p, v)),
        4 => (end(), prop_oneof![1..5u64, Just(u64::MAX)], item.clone())
            .prop_map(|(e, n, v)| Op::Remove(e, n, v)),
        1 => (index.clone(), index.clone()).prop_map(|(a, b)| Op::Trim(a, b)),
        3 => (index.clone(), index).prop_map(|(a, b)| Op::Range(a, b)),
        2 => (any::<bool>(), end(), end()).prop_map(|(s, a, b)| Op::Move(s, a, b)),
        1 => prop::collection::vec(item, 0..20).prop_map(Op::Replace),
        2 => Just(Op::Commit),
        1 => Just(Op::Undo),
    ]
}

type Model = VecDeque<Vec<u8>>;

fn pop_from(model: &mut Model, end: End) -> Option<Vec<u8>> {
    match end {
        End::Head => model.pop_front(),
        End::Tail => model.pop_back(),
    }
}

fn push_to(model: &mut Model, end: End, item: Vec<u8>) {
    match end {
        End::Head => model.push_front(item),
        End::Tail => model.push_back(item),
    }
}

/// The range by its definition, item by item.
fn range_of(model: &Model, start: i64, stop: i64) -> Vec<Vec<u8>> {
    let len = model.len() as i64;
    let absolute = |i: i64| if i < 0 { i + len } else { i };
    (0..len)
        .filter(|&i| absolute(start) <= i && i <= absolute(stop))
        .map(|i| model[i as usize].clone())
        .collect()
}

fn remove_from(model: &mut Model, from: End, limit: u64, item: &[u8]) -> u64 {
    let mut holes: Vec<usize> = (0..model.len()).filter(|&i| model[i] == item).collect();
    let excess = holes.len().saturating_sub(limit.min(1 << 32) as usize);
    match from {
        End::Head => holes.truncate(holes.len() - excess),
        End::Tail => drop(holes.drain(..excess)),
    }
    for &i in holes.iter().rev() {
        model.remove(i);
    }
    holes.len() as u64
}

fn apply(bench: &mut Bench, models: &mut [Model; 2], op: &Op) {
    let [model, other] = models;
    match op {
        Op::Push(end, items) => {
            bench.push(KEY, *end, items.iter().copied());
            items.iter().for_each(|&n| push_to(model, *end, text(n)));
        }
        Op::Pop(end, count) => {
            let mut popped = Vec::new();
            bench.change(KEY, |list, txn| {
                list.pop(txn, *end, *count, |item| popped.push(item.to_vec()))
            });
            let expected: Vec<_> = (0..*count).map_while(|_| pop_from(model, *end)).collect();
            assert_eq!(popped, expected);
        }
        Op::Set(index, item) => bench.change(KEY, |list, txn| {
            let Some(at) = list.position(*index) else {
                assert!(range_of(model, *index, *index).is_empty());
                return Ok(());
            };
            let slot = model.get_mut(at as usize).unwrap();
            *slot = text(*item);
            list.set(txn, at, slot)
        }),
        Op::Insert(side, pivot, item) => {
            let pivot = text(*pivot);
            let found = bench.change(KEY, |list, txn| {
                list.insert(txn, *side, &pivot, &text(*item))
            });
            let at = model.iter().position(|here| *here == pivot);
            assert_eq!(found, at.is_some());
            if let Some(at) = at {
                model.insert(at + usize::from(*side == End::Tail), text(*item));
            }
        }
        Op::Remove(from, limit, item) => {
            let item = text(*item);
            let removed = bench.change(KEY, |list, txn| list.remove(txn, *from, *limit, &item));
            assert_eq!(removed, remove_from(model, *from, *limit, &item));
        }
        Op::Trim(start, stop) => {
            bench.change(KEY, |list, _| list.keep(list.positions(*start, *stop)));
            *model = range_of(model, *start, *stop).into();
        }
        Op::Range(start, stop) => {
            let list = List::load_or_new(&mut bench.txn, DB, KEY).unwrap();
            let range = list.positions(*start, *stop);
            let mut forward = Vec::new();
            list.read(&mut bench.txn, range.clone(), |item| {
                forward.push(item.to_vec())
            })
            .unwrap();
            assert_eq!(forward, range_of(model, *start, *stop));
            let mut backward = Vec::new();
            list.visit(
                &mut bench.txn,
                range,
                Direction::Backward,
                |at, item: &[u8]| {
                    assert_eq!(model[at as usize], item);
                    backward.push(item.to_vec());
                    ControlFlow::Continue(())
                },
            )
            .unwrap();
            backward.reverse();
            assert_eq!(backward, forward);
        }
        Op::Move(same, from, to) => {
            let target = if *same { KEY } else { OTHER };
            let moved = move_one(&mut bench.txn, DB, (KEY, *from), (target, *to)).unwrap();
            let expected = pop_from(model, *from);
            assert_eq!(moved, expected);
            if let Some(item) = expected {
                push_to(if *same { model } else { other }, *to, item);
            }
        }
        Op::Replace(items) => {
            let mut list = List::replacing(&mut bench.txn, DB, KEY).unwrap();
            let items: Vec<Vec<u8>> = items.iter().copied().map(text).collect();
            let slices: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            list.push(&mut bench.txn, End::Tail, &slices).unwrap();
            list.save(&mut bench.txn).unwrap();
            *model = items.into();
        }
        Op::Commit | Op::Undo => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// proptest prints the failing case.
    #[test]
    fn behaves_like_a_deque(
        ops in prop::collection::vec(op(), 1..60),
        max_entries in prop_oneof![Just(0usize), Just(8), Just(64)],
    ) {
        let mut bench = Bench::new(max_entries);
        let mut models = [Model::new(), Model::new()];
        for op in &ops {
            let before = (bench.txn.savepoint(), models.clone());
            apply(&mut bench, &mut models, op);
            match op {
                Op::Commit => bench.commit(),
                Op::Undo => {
                    // A rolled back operation has no effect.
                    apply(&mut bench, &mut models, &Op::Remove(End::Head, 3, 1));
                    apply(&mut bench, &mut models, &Op::Trim(1, -2));
                    bench.txn.rollback(&before.0);
                    models = before.1;
                }
                _ => {}
            }
            prop_assert_eq!(&Model::from(bench.items(KEY)), &models[0]);
            prop_assert_eq!(&Model::from(bench.items(OTHER)), &models[1]);
        }
        bench.check();
        let keys = models.iter().filter(|model| !model.is_empty()).count() as u64;
        prop_assert_eq!(bench.txn.counts(DB).keys, keys);
        prop_assert_eq!(&Model::from(bench.items(KEY)), &models[0]);
    }
}

#[test]
fn a_list_moves_to_rows_by_number_and_by_size() {
    let mut bench = Bench::new(64);
    bench.push(KEY, End::Tail, 0..64);
    assert!(bench.is_packed(KEY));
    bench.push(KEY, End::Head, 64..65);
    assert!(!bench.is_packed(KEY));
    assert_eq!(bench.items(KEY).len(), 65);

    bench.push(OTHER, End::Tail, 0..3);
    let long = vec![b'x'; 2_000];
    bench.change(OTHER, |list, txn| list.set(txn, 1, &long));
    assert!(!bench.is_packed(OTHER));
    assert_eq!(bench.items(OTHER), [text(0), long, text(2)]);
    bench.check();
}

#[test]
fn ends_and_points_touch_few_rows() {
    let mut bench = Bench::with_rows(1_000);
    bench.push(KEY, End::Tail, 0..1);
    assert_eq!(bench.touched(), 2, "the item and the meta row");
    bench.push(KEY, End::Head, 0..5);
    assert_eq!(bench.touched(), 6, "five items and the meta row");
    pop_one(&mut bench.txn, DB, KEY, End::Head).unwrap();
    assert_eq!(bench.touched(), 2);
    bench.change(KEY, |list, txn| list.set(txn, 500, b"x"));
    assert_eq!(bench.touched(), 1, "the item alone");
    bench.change(KEY, |list, txn| list.insert(txn, End::Head, b"990", b"y"));
    assert!(bench.touched() < 20, "the smaller side moves");
    bench.change(KEY, |list, txn| list.remove(txn, End::Head, 1, b"5"));
    assert!(bench.touched() < 20, "the smaller side moves");
    bench.change(KEY, |list, _| list.keep(400..410));
    assert_eq!(bench.touched(), 3, "two ranges and the meta row");
    bench.change(KEY, |list, _| list.keep(0..10));
    assert_eq!(bench.touched(), 0, "nothing has changed");
    bench.check();
}

/// Five items at a time are read with cached ranges, which commits update.
#[test]
fn pops_see_every_push_and_change_at_their_end() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::with_rows(60);
        let mut model: Model = (0..60).map(text).collect();
        for n in 100..600 {
            let end = [End::Head, End::Tail][rng.usize(..2)];
            match rng.u32(..10) {
                0..2 if model.len() > 5 => {
                    let mut popped = Vec::new();
                    bench.change(KEY, |list, txn| {
                        list.pop(txn, end, 5, |item| popped.push(item.to_vec()))
                    });
                    let expected = (0..5).map_while(|_| pop_from(&mut model, end));
                    assert!(expected.eq(popped), "seed {seed}");
                }
                0..7 => {
                    bench.push(KEY, end, n..n + 1);
                    push_to(&mut model, end, text(n));
                }
                7 if model.len() > 3 => {
                    let at = [1, model.len() - 2][rng.usize(..2)];
                    let item = vec![b'x'; [3, 300, 2_000][rng.usize(..3)]];
                    bench.change(KEY, |list, txn| list.set(txn, at as u64, &item));
                    model[at] = item;
                }
                8 if model.len() > 8 => {
                    bench.change(KEY, |list, _| list.keep(2..model.len() as u64 - 2));
                    model.drain(model.len() - 2..);
                    model.drain(..2);
                }
                _ => bench.commit(),
            }
        }
        bench.check();
        assert_eq!(Model::from(bench.items(KEY)), model, "seed {seed}");
    }
}

#[test]
fn items_move_in_several_portions() {
    let mut bench = Bench::new(0);
    let items: Vec<Vec<u8>> = (0..60).map(|n| vec![n; 1 << 19]).collect();
    let slices: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
    bench.change(KEY, |list, txn| list.push(txn, End::Tail, &slices));
    for (pivot, side) in [(25, End::Head), (30, End::Tail)] {
        let pivot: &[u8] = slices[pivot];
        bench.change(KEY, |list, txn| list.insert(txn, side, pivot, b"x"));
    }
    let firsts: Vec<u8> = bench.items(KEY).iter().map(|item| item[0]).collect();
    let expected = [
        (0..25).collect(),
        vec![b'x'],
        (25..=30).collect(),
        vec![b'x'],
        (31..60).collect(),
    ];
    assert_eq!(firsts, expected.concat());
    bench.change(KEY, |list, txn| list.remove(txn, End::Tail, 2, b"x"));
    assert!(bench.items(KEY) == items, "as it was before");
    bench.check();
}

#[test]
fn an_emptied_list_leaves_nothing() {
    for len in [3, 1_000] {
        let mut bench = Bench::with_rows(len);
        bench.change(KEY, |list, txn| list.pop(txn, End::Tail, u64::MAX, |_| {}));
        assert!(List::load(&mut bench.txn, DB, KEY).unwrap().is_none());
        assert_eq!(bench.txn.counts(DB).keys, 0);
        bench.check();
    }
}

#[test]
fn replacing_takes_any_value_and_its_expiry() {
    let mut bench = Bench::with_rows(10);
    let old = bench.txn.lookup(DB, KEY).unwrap().unwrap();
    bench.txn.set_expiry(DB, KEY, &old, UnixMs(5_000)).unwrap();
    let mut list = List::replacing(&mut bench.txn, DB, KEY).unwrap();
    list.push(&mut bench.txn, End::Tail, &[b"a"]).unwrap();
    list.save(&mut bench.txn).unwrap();
    assert_eq!(bench.items(KEY), [b"a"]);
    assert_eq!(bench.txn.counts(DB).expires, 0);
    bench.check();
    let list = List::replacing(&mut bench.txn, DB, KEY).unwrap();
    list.save(&mut bench.txn).unwrap();
    assert_eq!(bench.txn.counts(DB).keys, 0);
    bench.check();
}

#[test]
fn changes_keep_the_expiry() {
    let mut bench = Bench::new(4);
    bench.push(KEY, End::Tail, 0..2);
    let old = bench.txn.lookup(DB, KEY).unwrap().unwrap();
    bench.txn.set_expiry(DB, KEY, &old, UnixMs(5_000)).unwrap();
    bench.push(KEY, End::Tail, 2..9);
    pop_one(&mut bench.txn, DB, KEY, End::Head).unwrap();
    let found = bench.txn.lookup(DB, KEY).unwrap().unwrap();
    assert_eq!(found.meta.expire_ms, UnixMs(5_000));
    bench.check();
}

#[test]
fn indices_of_any_size() {
    let mut bench = Bench::with_rows(10);
    let list = List::load(&mut bench.txn, DB, KEY).unwrap().unwrap();
    for (start, stop, expected) in [
        (0, -1, 0..10),
        (i64::MIN, i64::MAX, 0..10),
        (-3, -2, 7..9),
        (-100, 2, 0..3),
        (5, -100, 5..5),
        (0, i64::MIN, 0..0),
        (20, 30, 10..10),
        (3, 2, 3..3),
        (0, -10, 0..1),
        (0, -11, 0..0),
    ] {
        assert_eq!(list.positions(start, stop), expected, "{start} {stop}");
    }
    for (index, expected) in [
        (0, Some(0)),
        (-1, Some(9)),
        (-10, Some(0)),
        (-11, None),
        (10, None),
        (i64::MAX, None),
        (i64::MIN, None),
    ] {
        assert_eq!(list.position(index), expected, "{index}");
    }
}
