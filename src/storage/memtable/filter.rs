//! The Bloom filter of a segment.
//!
//! A look-up checks the filters of all segments, so that it usually searches one segment at
//! the most. RocksDB's own filter covers the whole memtable and has its full size (2 MiB)
//! from the start: each row that was added waited for a cache miss in it, and a hit did not
//! say which segment has the key. Here a new row changes the newest segment's filter only,
//! which stays in the processor's cache as the segment's rows do.

#![allow(unsafe_code)]

use super::index::Arena;
use super::sync::AtomicU64;
use crate::encoding::keys;
use std::hash::{BuildHasher, Hasher};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Rows per word of 64 bits. Each key sets four bits of one word, which gives one false
/// positive in 170 look-ups. The rate is higher where most rows belong to different maps,
/// since the filter contains the maps as well.
const ROWS_PER_WORD: usize = 4;

/// The hash of a user key or of a map's prefix, for the filters of all segments of a memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(u64);

#[cfg(not(loom))]
type HashBuilder = hashbrown::DefaultHashBuilder;
// Loom runs a model many times, and each run must do the same: no random seed.
#[cfg(loom)]
type HashBuilder = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// Hashes keys. Each hasher has a random seed of its own.
#[derive(Clone, Default)]
pub struct KeyHasher(HashBuilder);

impl KeyHasher {
    /// The hash of a whole user key.
    pub fn key(&self, user: &[u8]) -> Hash {
        self.hash(user)
    }

    /// The hash of the map that a row with this user key belongs to; `None` if it is no map's.
    pub fn map(&self, user: &[u8]) -> Option<Hash> {
        keys::map_prefix(user).map(|prefix| self.hash(prefix))
    }

    fn hash(&self, bytes: &[u8]) -> Hash {
        let mut hasher = self.0.build_hasher();
        hasher.write(bytes);
        Hash(hasher.finish())
    }
}

/// A Bloom filter with one writer and any number of concurrent readers.
pub struct Filter {
    words: NonNull<[AtomicU64]>,
}

// SAFETY: the words are atomic.
unsafe impl Send for Filter {}
// SAFETY: as above.
unsafe impl Sync for Filter {}

impl Filter {
    /// An empty filter for `rows` rows, in memory of the arena.
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

    /// Adds a key.
    pub fn add(&self, hash: Hash) {
        let (word, bits) = self.place(hash);
        word.store(word.load(Acquire) | bits, Release);
    }

    /// Whether the filter may have the key. `false` is certain, `true` may be a false positive.
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
        // The rate varies more with few keys.
        let bound = if cfg!(miri) { 0.05 } else { 0.01 };
        assert!(wrong < bound, "{wrong}");
    }
}
