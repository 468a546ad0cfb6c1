//! The index against an ordered map, one thread and several.

use super::*;
use proptest::prelude::*;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Memory that stays until it is dropped.
#[derive(Default)]
struct Heap(Mutex<Vec<(usize, Layout)>>);

impl Arena for Heap {
    fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let layout = Layout::from_size_align(bytes, 8).expect("a size");
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc(layout) }).expect("memory");
        let mut all = self.0.lock().expect("nobody panicked");
        all.push((memory.as_ptr().expose_provenance(), layout));
        memory
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for (memory, layout) in self.0.get_mut().expect("nobody panicked") {
            // SAFETY: it was allocated so, and nobody uses it after the heap.
            unsafe { dealloc(ptr::with_exposed_provenance_mut(*memory), *layout) }
        }
    }
}

/// The internal key of a user key's version.
fn internal(user: &[u8], version: u64) -> Vec<u8> {
    [user, &version.to_le_bytes()].concat()
}

/// Keys order so: by user key, the newest version first.
type Sorted = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), ()>;

fn insert(index: &Index<Heap>, user: &[u8], version: u64) {
    let key = internal(user, version);
    let mut bytes = Vec::new();
    let mut len = key.len();
    while len >= 0x80 {
        bytes.push(len as u8 | 0x80);
        len >>= 7;
    }
    bytes.push(len as u8);
    bytes.extend(&key);
    let head = mem::size_of::<Row>();
    let row = index.arena.allocate(head + bytes.len());
    // SAFETY: the row has this room; the heap stays as long as the index, and its keys
    // and its writer are the caller's affair.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), row.as_ptr().add(head), bytes.len());
        index.insert(row.cast());
    }
}

/// User key and version of a row.
fn parts(row: Option<NonNull<Row>>) -> Option<(Vec<u8>, std::cmp::Reverse<u64>)> {
    // SAFETY: rows of the index are whole.
    let key = unsafe { Key::of(row?) };
    Some((key.user().to_vec(), std::cmp::Reverse(key.trailer())))
}

fn next(row: NonNull<Row>) -> Option<NonNull<Row>> {
    // SAFETY: as above.
    NonNull::new(unsafe { (*row.as_ptr()).next.load(Acquire) })
}

fn assert_same(index: &Index<Heap>, sorted: &Sorted, probes: &[(Vec<u8>, u64)]) {
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

/// User keys that are hard to tell apart: zeros at their ends, long common prefixes,
/// each the beginning of another.
fn user_key() -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(prop_oneof![Just(0), Just(1), Just(b'a'), Just(255)], 0..12);
    let long = (0..70usize, prop::collection::vec(any::<u8>(), 0..3))
        .prop_map(|(len, end)| [&vec![b'p'; len][..], &end].concat());
    let number = (0..3000u32).prop_map(|i| format!("key:{i:012}").into_bytes());
    let beyond = (0..300u32).prop_map(|i| format!("{}{i:05}", "x".repeat(150)).into_bytes());
    prop_oneof![short, long, number, beyond]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_stand_in_order_and_are_found(
        rows in prop::collection::vec((user_key(), 0..4u64), 0..600),
        probes in prop::collection::vec((user_key(), 0..4u64), 0..200),
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

#[test]
fn rows_may_come_in_any_order() {
    let orders: [fn(u64) -> u64; 4] = [
        |i| i,
        |i| 19_999 - i,
        // All of the numbers below 20,000, since it has no factor with this one.
        |i| i * 7919 % 20_000,
        // Up from both ends of the middle.
        |i| if i % 2 == 0 { i / 2 } else { 10_000 + i / 2 },
    ];
    for order in orders {
        let index = Index::new(Heap::default());
        let mut sorted = Sorted::new();
        for user in (0..20_000).map(|i| format!("user:{:08}:name", order(i)).into_bytes()) {
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
    for version in 0..5000 {
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
    for i in 0..32_000u32 {
        insert(&index, &i.to_be_bytes(), 1);
    }
    let allocated = index.arena.0.lock().expect("nobody panicked").len() - 32_000;
    assert!(allocated < 32_000 / FAN_OUT + 50, "{allocated} nodes");
}

#[test]
fn readers_find_what_was_there_when_they_began() {
    const ROWS: usize = 60_000;
    let index = Index::new(Heap::default());
    let user = |i: usize| format!("key:{:012}", i * 7919 % ROWS * 3).into_bytes();
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    // SAFETY: it is what RocksDB does: a writer and readers.
    struct Shared<'a>(&'a Index<Heap>);
    unsafe impl Sync for Shared<'_> {}
    let shared = Shared(&index);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (shared, done, over) = (&shared, &done, &over);
            scope.spawn(move || {
                let index = shared.0;
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
                    // Others may come in between meanwhile, but none of those before it is less.
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
