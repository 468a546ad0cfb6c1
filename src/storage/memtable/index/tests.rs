//! The index against an ordered map, one thread and several.

use super::super::testing::{
    Heap, Sorted, amount, cases, internal, new_row, next, parts, user_key,
};
use super::*;
use proptest::prelude::*;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

fn insert(index: &Index<Heap>, user: &[u8], version: u64) {
    let row = new_row(&index.arena, user, version);
    // SAFETY: the heap stays as long as the index; its keys and its writer are the
    // caller's affair.
    unsafe { index.insert(row) }
}

/// As [`insert`], for rows whose places are looked up before the first one is added.
fn insert_together(index: &Index<Heap>, rows: &[(Vec<u8>, u64)]) {
    let keys: Vec<Vec<u8>> = rows.iter().map(|(key, at)| internal(key, *at)).collect();
    let keys: Vec<Key> = keys.iter().map(|key| Key::new(key)).collect();
    let mut places = Vec::new();
    // SAFETY: nobody else adds rows.
    unsafe { index.places(&keys, &mut places) };
    assert_eq!(places.len(), rows.len());
    for ((user, version), place) in rows.iter().zip(places) {
        let row = new_row(&index.arena, user, *version);
        // SAFETY: as above; the place is that of the row's key in this index.
        unsafe { index.insert_at(row, place) }
    }
}

/// Checks what a node and those below it store: the bounds of the keys, their common prefix,
/// their marks. Returns the numbers of rows and of levels from the node on.
fn check_nodes(
    index: &Index<Heap>,
    node: &Node,
    low: Option<Key>,
    high: Option<Key>,
) -> (usize, usize) {
    let (count, first) = (node.len(), node.first_keyed());
    let common = node.common.load(Relaxed) as usize;
    let keys: Vec<Key> = (first..count)
        .map(|at| node.key(at).expect("a filled slot"))
        .collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert!(low.is_none_or(|low| keys.iter().all(|key| low <= *key)));
    assert!(high.is_none_or(|high| keys.iter().all(|key| *key < high)));
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(key.user()[..common], keys[0].user()[..common]);
        assert_eq!(node.compare_prefix(*key, common), Some(Ordering::Equal));
        assert_eq!(node.marks[first + at].load(Relaxed), key.mark(common));
    }
    if node.leaf {
        return (count, 1);
    }
    let mut rows = 0;
    let mut levels = None;
    for at in 0..count {
        let from = if at == 0 { low } else { node.key(at) };
        let to = if at + 1 < count {
            node.key(at + 1)
        } else {
            high
        };
        // SAFETY: it is a filled slot of a node that is not a leaf.
        let child = unsafe { index.child(node.slot(at)) };
        let (below, depth) = check_nodes(index, child, from, to);
        rows += below;
        assert_eq!(*levels.get_or_insert(depth), depth);
    }
    (rows, levels.expect("a node has children") + 1)
}

fn assert_same(index: &Index<Heap>, sorted: &Sorted, probes: &[(Vec<u8>, u64)]) {
    assert_eq!(check_nodes(index, index.root(), None, None).0, sorted.len());
    let mut row = index.first();
    for key in sorted.keys() {
        assert_eq!(parts(row).as_ref(), Some(key));
        row = row.and_then(next);
    }
    assert_eq!(row, None);
    assert_eq!(parts(index.last()), sorted.keys().next_back().cloned());
    let own = sorted
        .keys()
        .map(|(user, version)| (user.clone(), version.0));
    for (user, version) in own.chain(probes.iter().cloned()) {
        let bytes = internal(&user, version);
        let key = Key::new(&bytes);
        let bound = (user, std::cmp::Reverse(version));
        let at = sorted.range(bound.clone()..).next();
        let before = sorted.range((Unbounded, Excluded(bound))).next_back();
        assert_eq!(
            parts(index.at_or_after(key)),
            at.map(|(key, ())| key.clone())
        );
        assert_eq!(
            parts(index.before(key)),
            before.map(|(key, ())| key.clone())
        );
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn rows_stand_in_order_and_are_found(
        rows in prop::collection::vec((user_key(), 0..4u64), 0..amount(600, 60)),
        probes in prop::collection::vec((user_key(), 0..4u64), 0..amount(200, 20)),
    ) {
        let index = Index::new(Heap::default());
        let mut sorted = Sorted::new();
        for (user, version) in rows {
            if sorted.insert((user.clone(), std::cmp::Reverse(version)), ()).is_none() {
                insert(&index, &user, version);
            }
        }
        assert_same(&index, &sorted, &probes);
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn rows_whose_places_are_found_together_stand_in_order(
        groups in prop::collection::vec(
            prop::collection::vec((user_key(), 0..4u64), 1..20), 0..amount(60, 6)),
    ) {
        let index = Index::new(Heap::default());
        let mut sorted = Sorted::new();
        for group in groups {
            let is_new = |row: &(Vec<u8>, u64)| {
                sorted.insert((row.0.clone(), std::cmp::Reverse(row.1)), ()).is_none()
            };
            let rows: Vec<_> = group.into_iter().filter(is_new).collect();
            insert_together(&index, &rows);
        }
        assert_same(&index, &sorted, &[]);
    }
}

/// Rows of the larger tests.
const ROWS: u64 = amount(20_000, 200) as u64;

/// Rows of one group go to one leaf, which an earlier row of the group splits, or which was
/// full before.
#[test]
fn places_do_not_outlast_their_leaf() {
    for step in [1, 3, 7919] {
        let index = Index::new(Heap::default());
        let mut sorted = Sorted::new();
        let users: Vec<_> = (0..ROWS)
            .map(|i| format!("key:{:08}", i * step % ROWS).into_bytes())
            .collect();
        for group in users.chunks(40) {
            let rows: Vec<_> = group.iter().map(|user| (user.clone(), 1)).collect();
            insert_together(&index, &rows);
            sorted.extend(
                rows.into_iter()
                    .map(|(user, at)| ((user, std::cmp::Reverse(at)), ())),
            );
        }
        assert_same(&index, &sorted, &[]);
    }
}

#[test]
fn rows_may_come_in_any_order() {
    let orders: [fn(u64) -> u64; 4] = [
        |i| i,
        |i| ROWS - 1 - i,
        // All numbers below `ROWS`, since 7919 and `ROWS` have no common factor.
        |i| i * 7919 % ROWS,
        // Upwards from 0 and from the middle, in turn.
        |i| i / 2 + if i % 2 == 0 { 0 } else { ROWS / 2 },
    ];
    for order in orders {
        let index = Index::new(Heap::default());
        let mut sorted = Sorted::new();
        for user in (0..ROWS).map(|i| format!("user:{:08}:name", order(i)).into_bytes()) {
            insert(&index, &user, 1);
            sorted.insert((user, std::cmp::Reverse(1)), ());
        }
        assert_same(&index, &sorted, &[(Vec::new(), 0), (vec![255; 9], 0)]);
    }
}

#[test]
fn the_versions_of_one_key_stand_newest_first() {
    let index = Index::new(Heap::default());
    let mut sorted = Sorted::new();
    for version in 0..amount(5000, 50) as u64 {
        for user in [&b"a"[..], b"counter", b"counter\0", b"z"] {
            insert(&index, user, version);
            sorted.insert((user.to_vec(), std::cmp::Reverse(version)), ());
        }
    }
    assert_same(&index, &sorted, &[(b"counter".to_vec(), u64::MAX)]);
}

#[test]
fn rows_in_order_fill_the_nodes() {
    let index = Index::new(Heap::default());
    const ROWS: usize = amount(32_000, 320);
    for i in 0..ROWS as u32 {
        insert(&index, &i.to_be_bytes(), 1);
    }
    // A geometric series: each level has a fraction of the nodes of the one below.
    let allocated = index.arena.allocations() - ROWS;
    let expected = ROWS / (FAN_OUT - 1) + 20;
    assert!(allocated < expected, "{allocated} nodes");
}

/// Indices that readers and a writer share, as they do in RocksDB.
struct Shared {
    indices: Vec<Index<Heap>>,
    /// Which of them is written to.
    now: AtomicUsize,
    over: AtomicBool,
}

/// Runs `write` on one index after the other. Each has a row with this user key from the start.
/// Meanwhile two threads call `look`, again and again, on the index that is written to.
fn look_while_writing(
    rounds: usize,
    user: &[u8],
    look: impl Fn(&Index<Heap>, Key) + Sync,
    write: impl Fn(&Index<Heap>),
) {
    let new = |_| {
        let index = Index::new(Heap::default());
        insert(&index, user, 1);
        index
    };
    let shared = &Shared {
        indices: (0..rounds).map(new).collect(),
        now: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    };
    let look = &look;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let bytes = internal(user, 1);
                while !shared.over.load(Relaxed) {
                    let index = &shared.indices[shared.now.load(Acquire)];
                    (0..amount(50, 1)).for_each(|_| look(index, Key::new(&bytes)));
                }
            });
        }
        for (at, index) in shared.indices.iter().enumerate() {
            shared.now.store(at, Release);
            write(index);
        }
        shared.over.store(true, Release);
    });
}

/// Whether this row has the key.
fn has(row: Option<NonNull<Row>>, key: Key) -> bool {
    // SAFETY: rows of the index are whole.
    row.is_some_and(|row| unsafe { Key::of(row) } == key)
}

/// Each new row has a shorter common prefix with the wanted row, so that the prefix and marks
/// of its node change each time. Versions of the wanted row split the node and those above.
#[test]
fn a_row_is_found_while_its_node_changes() {
    let word = |len: usize, end: u8| [&[b'p'; 64][..len], &[end]].concat();
    let wanted = word(60, b'p');
    let look = |index: &Index<Heap>, key: Key| {
        assert!(has(index.at_or_after(key), key));
        if let Some(row) = index.before(key) {
            // SAFETY: rows of the index are whole.
            assert!(unsafe { Key::of(row) } < key);
        }
    };
    look_while_writing(amount(1500, 15), &wanted, look, |index| {
        for len in (0..60).rev().step_by(amount(1, 10)) {
            insert(index, &word(len, b'a'), 1);
            insert(index, &word(len, b'z'), 1);
        }
        for version in 2..amount(400, 40) as u64 {
            insert(index, &wanted, version);
        }
    });
}

#[test]
fn the_last_row_is_found_while_others_come_before_it() {
    let look = |index: &Index<Heap>, key: Key| {
        assert!(has(index.last(), key));
        assert!(has(index.at_or_after(key), key));
    };
    look_while_writing(amount(40, 1), b"z", look, |index| {
        for user in 0..ROWS as u32 {
            insert(index, &user.to_be_bytes(), 1);
        }
    });
}

#[test]
fn readers_find_what_was_there_when_they_began() {
    const ROWS: usize = amount(60_000, 20);
    let index = Index::new(Heap::default());
    let user = |i: usize| format!("key:{:012}", i * 7919 % ROWS * 3).into_bytes();
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for seed in 0..3 {
            let (index, done, over) = (&index, &done, &over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !over.load(Acquire) {
                    let there = done.load(Acquire);
                    if there == 0 {
                        continue;
                    }
                    let user = user(random.usize(..there));
                    let key = internal(&user, 1);
                    let row = index.at_or_after(Key::new(&key));
                    assert_eq!(parts(row).map(|(user, _)| user), Some(user.clone()));
                    // Rows may be added between the two meanwhile, and all are less than the key.
                    if let Some(before) = index.before(Key::new(&key)) {
                        assert!(parts(Some(before)).map(|(user, _)| user) < Some(user));
                        let mut at = next(before).expect("the key is behind it");
                        while parts(Some(at)) != parts(row) {
                            assert!(parts(Some(at)) < parts(row));
                            at = next(at).expect("the key is behind it");
                        }
                    }
                    assert!(parts(index.last()) >= parts(row));
                }
            });
        }
        for i in 0..ROWS {
            insert(&index, &user(i), 1);
            done.store(i + 1, Release);
        }
        over.store(true, Release);
    });
}
