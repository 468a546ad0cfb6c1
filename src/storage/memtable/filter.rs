//! Which keys a segment may have: a Bloom filter.
//!
//! A look-up asks the filters of all segments, so that it searches one at the most, as a
//! rule. RocksDB has one filter for a whole memtable, 2 MiB and there from the start: each
//! row that was added waited for a word of it that was in no cache of the processor, and
//! who found a key there did not know the segment. Only the newest segment's filter is
//! written to, and that one stays in the cache as its rows do.

#![allow(unsafe_code)]

use super::index::Arena;
use super::sync::AtomicU64;
use crate::encoding::keys;
use std::hash::{BuildHasher, Hasher};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Rows for each word of 64 bits. With four bits of it for each key, a key that is not
/// there is taken for one that is once in 170 times; more often where most rows are of
/// different maps, each of which is a key of its own.
const ROWS_PER_WORD: usize = 4;

/// A key's or a prefix's hash; the same for all segments of a memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(u64);

#[cfg(not(loom))]
type HashBuilder = hashbrown::DefaultHashBuilder;
// Loom runs a model again and again, which has to do the same each time.
#[cfg(loom)]
type HashBuilder = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// Hashes keys, with a seed of its own.
#[derive(Clone, Default)]
pub struct KeyHasher(HashBuilder);

impl KeyHasher {
    /// The hash of a whole user key.
    pub fn key(&self, user: &[u8]) -> Hash {
        self.hash(user)
    }

    /// The hash of the map that a row with this user key belongs to.
    pub fn map(&self, user: &[u8]) -> Option<Hash> {
        keys::map_prefix(user).map(|prefix| self.hash(prefix))
    }

    fn hash(&self, bytes: &[u8]) -> Hash {
        let mut hasher = self.0.build_hasher();
        hasher.write(bytes);
        Hash(hasher.finish())
    }
}

/// See the module. One writer, any number of readers.
pub struct Filter {
    words: NonNull<[AtomicU64]>,
}

// SAFETY: the words are atomic.
unsafe impl Send for Filter {}
// SAFETY: as above.
unsafe impl Sync for Filter {}

impl Filter {
    /// A filter for so many rows without any, in memory of the arena.
    ///
    /// # Safety
    /// It is not used after the arena is dropped.
    pub unsafe fn new(arena: &impl Arena, rows: usize) -> Self {
        let len = rows / ROWS_PER_WORD + 1;
        let memory = arena.allocate(len * size_of::<AtomicU64>());
        let words = memory.cast::<AtomicU64>();
        assert!(words.is_aligned(), "memory for words");
        for at in 0..len {
            // SAFETY: the memory is ours, aligned and large enough.
            unsafe { words.add(at).write(AtomicU64::new(0)) };
        }
        Filter {
            words: NonNull::slice_from_raw_parts(words, len),
        }
    }

    /// Takes a key in.
    pub fn add(&self, hash: Hash) {
        let (word, bits) = self.place(hash);
        word.store(word.load(Acquire) | bits, Release);
    }

    /// Whether the key was taken in, or looks like one that was.
    pub(super) fn may_have(&self, hash: Hash) -> bool {
        let (word, bits) = self.place(hash);
        word.load(Acquire) & bits == bits
    }

    /// The word for a key, and the bits in it.
    fn place(&self, Hash(hash): Hash) -> (&AtomicU64, u64) {
        // SAFETY: `new` wrote them, and they live as long as the arena.
        let words = unsafe { self.words.as_ref() };
        let at = ((hash >> 32) * words.len() as u64) >> 32;
        let bit = |shift: u32| 1 << ((hash >> shift) & 63);
        (&words[at as usize], bit(0) | bit(6) | bit(12) | bit(18))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::testing::{Heap, amount};
    use super::*;

    #[test]
    fn what_was_added_is_found_and_little_else() {
        const ROWS: u64 = amount(10_000, 40) as u64;
        let hasher = KeyHasher::default();
        let heap = Heap::default();
        // SAFETY: it does not outlive the heap.
        let filter = unsafe { Filter::new(&heap, ROWS as usize) };
        let hash = |i: u64| hasher.key(format!("key:{i}").as_bytes());
        assert!((0..ROWS).all(|i| !filter.may_have(hash(i))));
        (0..ROWS).for_each(|i| filter.add(hash(i)));
        assert!((0..ROWS).all(|i| filter.may_have(hash(i))));
        let others = (ROWS..11 * ROWS).filter(|i| filter.may_have(hash(*i)));
        let wrong = others.count() as f64 / (10 * ROWS) as f64;
        // Few keys come out less evenly.
        let bound = if cfg!(miri) { 0.05 } else { 0.01 };
        assert!(wrong < bound, "{wrong}");
    }
}
