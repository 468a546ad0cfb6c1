//! The rows that a commit is about to write.
//!
//! RocksDB inserts one row after the other, and the search for the place of each waits for
//! cache misses: in nodes, and in the row before it in the list. A commit announces the rows
//! that it writes, so that the memtable can look up the places of several rows together (see
//! [`Index::places`]).
//!
//! The announcement is only a hint. Other rows may come, for instance when RocksDB has one
//! thread write the batches of others as well.

#![allow(unsafe_code)]

use super::index::{Arena, Index, Place};
use super::row::{Key, TRAILER};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::{mem, ptr};

/// Rows that are looked up together: few enough for the fastest cache to hold what is
/// prefetched for them.
const TOGETHER: usize = 16;

/// The most bytes of keys that are kept. The places of rows beyond that are searched one by one.
const MOST_BYTES: usize = if cfg!(miri) { 1 << 14 } else { 1 << 18 };

thread_local! {
    /// The rows of the write that this thread is doing.
    static EXPECTED: RefCell<Rows> = RefCell::new(Rows::new());
}

/// The rows that one write is expected to add, in order.
pub struct Rows {
    /// Internal keys, one after the other, each with a version newer than all others.
    keys: Vec<u8>,
    rows: Vec<Row>,
    /// The number of the row that is expected next.
    next: usize,
    /// `places` are those of the rows from `first` on, in the index with this address.
    first: usize,
    places: Vec<Place>,
    index: *const (),
}

struct Row {
    /// A number that the rows of one memtable have in common.
    memtable: u64,
    /// The end of its key in `keys`.
    end: usize,
}

impl Rows {
    fn new() -> Self {
        Rows {
            keys: Vec::new(),
            rows: Vec::new(),
            next: 0,
            first: 0,
            places: Vec::new(),
            index: ptr::null(),
        }
    }

    /// No rows, with the memory that earlier ones of this thread had.
    pub fn begin() -> Self {
        EXPECTED.replace(Rows::new())
    }

    /// Announces a row, put or deleted, with this user key. The row is left out if there is no
    /// room for its key.
    pub fn push(&mut self, memtable: u64, user: &[u8]) {
        if self.keys.len() + user.len() + TRAILER > MOST_BYTES {
            return;
        }
        self.keys.extend_from_slice(user);
        self.keys.extend_from_slice(&[0xFF; TRAILER]);
        let end = self.keys.len();
        self.rows.push(Row { memtable, end });
    }

    /// Runs `write` with these rows announced. That is one write of RocksDB, during which no
    /// memtable is replaced.
    pub(in super::super) fn during<R>(self, write: impl FnOnce() -> R) -> R {
        let _end = End;
        EXPECTED.set(self);
        write()
    }

    fn key(&self, at: usize) -> Option<Key<'_>> {
        let start = at.checked_sub(1).map_or(0, |before| self.rows[before].end);
        Some(Key::new(&self.keys[start..self.rows.get(at)?.end]))
    }

    /// Looks up the places of at most [`TOGETHER`] rows of one memtable, from `first` on. A row
    /// that is the only one gets no place.
    ///
    /// # Safety
    /// As of [`Index::places`].
    unsafe fn look_up<A: Arena>(&mut self, index: &Index<A>, first: usize) {
        let mut places = mem::take(&mut self.places);
        places.clear();
        let memtable = self.rows[first].memtable;
        let keys: SmallVec<[Key; TOGETHER]> = (first..self.rows.len())
            .take_while(|at| self.rows[*at].memtable == memtable)
            .take(TOGETHER)
            .filter_map(|at| self.key(at))
            .collect();
        if keys.len() > 1 {
            // SAFETY: by the contract.
            unsafe { index.places(&keys, &mut places) };
        }
        drop(keys);
        (self.first, self.places, self.index) = (first, places, ptr::from_ref(index).cast());
    }
}

/// Clears the expected rows at the end of a write, even if it panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        EXPECTED.with_borrow_mut(|rows| {
            rows.keys.clear();
            rows.rows.clear();
            rows.places.clear();
            (rows.next, rows.index) = (0, ptr::null());
        });
    }
}

/// The place of the row that is added to an index next, if that row was expected and its place
/// was looked up. The place is right for a row that is newer than all rows of its user key.
///
/// # Safety
/// As of [`Index::places`].
pub unsafe fn place<A: Arena>(index: &Index<A>, key: Key) -> Option<Place> {
    EXPECTED.with_borrow_mut(|rows| {
        let at = rows.next;
        if rows.key(at)?.user() != key.user() {
            return None;
        }
        rows.next += 1;
        let is_known = ptr::eq(rows.index, ptr::from_ref(index).cast());
        if !is_known || at >= rows.first + rows.places.len() {
            // SAFETY: by the contract.
            unsafe { rows.look_up(index, at) };
        }
        rows.places.get(at - rows.first).copied()
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::testing::{Heap, amount, internal, new_row, next, parts};
    use super::*;
    use std::cmp::Reverse;

    /// Adds a row, at its place if that was looked up. Returns whether it was.
    fn insert(heap: &Heap, index: &Index<Heap>, user: &[u8], version: u64) -> bool {
        let row = new_row(heap, user, version);
        let key = internal(user, version);
        // SAFETY: nobody else adds rows.
        let place = unsafe { place(index, Key::new(&key)) };
        match place {
            // SAFETY: the heap stays as long as the index; the place is the row's.
            Some(place) => unsafe { index.insert_at(row, place) },
            // SAFETY: as above.
            None => unsafe { index.insert(row) },
        }
        place.is_some()
    }

    fn user(i: u64) -> Vec<u8> {
        format!("key:{:04}", i * 7919 % 1000).into_bytes()
    }

    #[test]
    fn what_is_expected_has_a_place_and_nothing_else() {
        let heap = Heap::default();
        let indices = [Index::new(heap.clone()), Index::new(heap.clone())];
        let mut rows = Rows::begin();
        for i in 0..100 {
            rows.push(i / 50, &user(i));
        }
        rows.during(|| {
            for i in 0..100 {
                let index = &indices[(i / 50) as usize];
                assert!(!insert(&heap, index, format!("other:{i}").as_bytes(), 1));
                // In groups of 16, 16, 16 and 2.
                assert!(insert(&heap, index, &user(i), 1), "row {i}");
            }
            assert!(!insert(&heap, &indices[0], &user(0), 2));
        });
        for (at, index) in indices.iter().enumerate() {
            let mut all: Vec<_> = (0..50).map(|i| user(50 * at as u64 + i)).collect();
            all.extend((0..50).map(|i| format!("other:{}", 50 * at + i).into_bytes()));
            if at == 0 {
                all.push(user(0));
            }
            all.sort();
            let mut row = index.first();
            for user in all {
                assert_eq!(parts(row).map(|(user, _)| user), Some(user));
                row = row.and_then(next);
            }
            assert_eq!(row, None);
        }
    }

    /// A segment may become full in the middle of a group, and a single row is not looked up.
    #[test]
    fn places_are_those_of_the_index_at_hand() {
        let heap = Heap::default();
        let indices: Vec<_> = (0..4).map(|_| Index::new(heap.clone())).collect();
        let mut rows = Rows::begin();
        for i in 0..40 {
            rows.push(0, &user(i));
        }
        rows.during(|| {
            for i in 0..40 {
                let index = &indices[i as usize / 13];
                assert_eq!(insert(&heap, index, &user(i), 1), i != 39, "row {i}");
            }
        });
        for (at, index) in indices.iter().enumerate() {
            let from = 13 * at as u64;
            let mut all: Vec<_> = (from..40.min(from + 13)).map(user).collect();
            all.sort();
            assert_eq!(
                parts(index.first()).map(|(user, _)| user).as_ref(),
                all.first()
            );
            assert_eq!(
                parts(index.last()).map(|(user, _)| user).as_ref(),
                all.last()
            );
        }
    }

    /// A row stands before the older versions of its key.
    #[test]
    fn new_versions_come_first() {
        let heap = Heap::default();
        let index = Index::new(heap.clone());
        let versions = amount(40, 3) as u64;
        for version in 1..=versions {
            let mut rows = Rows::begin();
            (0..20).for_each(|i| rows.push(0, &user(i)));
            rows.during(|| {
                for i in 0..20 {
                    assert!(insert(&heap, &index, &user(i), version));
                }
            });
        }
        let mut users: Vec<_> = (0..20).map(user).collect();
        users.sort();
        let mut row = index.first();
        for user in users {
            for version in (1..=versions).rev() {
                assert_eq!(parts(row), Some((user.clone(), Reverse(version))));
                row = row.and_then(next);
            }
        }
    }

    #[test]
    fn of_very_many_the_first_are_expected() {
        let heap = Heap::default();
        let index = Index::new(heap.clone());
        let long = |i: usize| [&i.to_be_bytes()[..], &[b'l'; 1000]].concat();
        let mut rows = Rows::begin();
        let many = 4 * MOST_BYTES / 1000;
        (0..many).for_each(|i| rows.push(0, &long(i)));
        rows.push(0, &vec![b'h'; 2 * MOST_BYTES]);
        assert!(rows.keys.capacity() <= 2 * MOST_BYTES);
        let expected = rows.during(|| {
            let expected = (0..many).filter(|i| insert(&heap, &index, &long(*i), 1));
            expected.count()
        });
        assert_eq!(expected, MOST_BYTES / (8 + 1000 + TRAILER));
    }

    #[test]
    fn nothing_is_expected_after_a_write() {
        let heap = Heap::default();
        let index = Index::new(heap.clone());
        let write = || {
            let mut rows = Rows::begin();
            (0..20).for_each(|i| rows.push(0, &user(i)));
            rows.during(|| panic!("a write that fails"))
        };
        assert!(std::panic::catch_unwind(write).is_err());
        assert!(!insert(&heap, &index, &user(0), 1));
    }
}
