//! Rows and their memory, for tests.

#![allow(unsafe_code)]

use super::index::Arena;
use super::row::{self, Key, Row};
use super::sync::Plain;
use proptest::prelude::*;
use std::alloc::{Layout, alloc, dealloc};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

/// The size of a test: a smaller one under Miri, which takes some hundred times as long.
pub const fn amount(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { usual }
}

/// A configuration with `cases` random cases, or with few under Miri.
pub fn cases(cases: usize) -> ProptestConfig {
    ProptestConfig::with_cases(amount(cases, 2) as u32)
}

/// Memory that is freed when the last clone of the heap is dropped.
#[derive(Clone, Default)]
pub struct Heap(Arc<Mutex<Allocations>>);

#[derive(Default)]
struct Allocations(Vec<(NonNull<u8>, Layout)>);

// SAFETY: what is allocated belongs to no thread.
unsafe impl Send for Allocations {}

// SAFETY: what is allocated is freed when the heap is dropped.
unsafe impl Arena for Heap {
    fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let layout = Layout::from_size_align(bytes, 8).expect("a size");
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc(layout) }).expect("memory");
        let mut all = self.0.lock().expect("nobody panicked");
        all.0.push((memory, layout));
        memory
    }
}

impl Heap {
    /// The number of allocations.
    pub(super) fn allocations(&self) -> usize {
        self.0.lock().expect("nobody panicked").0.len()
    }
}

impl Drop for Allocations {
    fn drop(&mut self) {
        for (memory, layout) in &self.0 {
            // SAFETY: it was allocated so, and nobody uses it after the heap.
            unsafe { dealloc(memory.as_ptr(), *layout) }
        }
    }
}

/// The internal key of a user key's version.
pub fn internal(user: &[u8], version: u64) -> Vec<u8> {
    [user, &version.to_le_bytes()].concat()
}

/// User keys and versions in the order of rows: by user key, the newest version first.
pub type Sorted = BTreeMap<(Vec<u8>, Reverse<u64>), ()>;

/// A row that is in no index yet.
pub(super) fn new_row(heap: &Heap, user: &[u8], version: u64) -> NonNull<Row> {
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
    let row = heap.allocate(head + bytes.len());
    let row = row.cast::<Row>();
    // SAFETY: the row has this room.
    unsafe {
        (&raw mut (*row.as_ptr()).written).write(Plain::written());
        let key = row.as_ptr().cast::<u8>().add(head);
        ptr::copy_nonoverlapping(bytes.as_ptr(), key, bytes.len());
    }
    row
}

/// User key and version of a row.
pub fn parts(row: Option<NonNull<Row>>) -> Option<(Vec<u8>, Reverse<u64>)> {
    // SAFETY: rows of the index are whole.
    let key = unsafe { Key::of(row?) };
    Some((key.user().to_vec(), Reverse(key.trailer())))
}

/// The row after one of an index.
pub fn next(row: NonNull<Row>) -> Option<NonNull<Row>> {
    // SAFETY: as above.
    unsafe { row::next(row) }
}

/// User keys that are hard to tell apart: zeros at their ends, long common prefixes,
/// each the beginning of another.
pub fn user_key() -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(prop_oneof![Just(0), Just(1), Just(b'a'), Just(255)], 0..12);
    let long = (0..70usize, prop::collection::vec(any::<u8>(), 0..3))
        .prop_map(|(len, end)| [&vec![b'p'; len][..], &end].concat());
    let number = (0..3000u32).prop_map(|i| format!("key:{i:012}").into_bytes());
    let beyond = (0..300u32).prop_map(|i| format!("{}{i:05}", "x".repeat(150)).into_bytes());
    // The encoded lengths of these keys take three bytes.
    let huge = (0..20u8).prop_map(|i| [&[b'h'; 20_000][..], &[i]].concat());
    prop_oneof![4 => short, 4 => long, 4 => number, 4 => beyond, 1 => huge]
}
