//! The row cache: copies in memory of rows that were read or written lately, so that a look-up of a
//! popular key does not descend into RocksDB.
//!
//! It consists of sets, each with a lock of its own. There are few at first: allocating all that
//! the budget allows, when the first rows come, would cost each of the first 300,000 SETs 0.07 of
//! its time. When a set has become crowded, the number of sets may double: each set is divided when
//! it is next used, by one more bit of the hash (extendible hashing, after Fagin and others, 1979).
//!
//! Together they are bounded in bytes. A thread whose row exceeds the bound moves a hand from set
//! to set and evicts the rows that were not read since the hand last passed (CLOCK). The rows of a
//! set stand in one piece of memory: finding one takes two dependent memory accesses, the set and
//! the row. Both are in [huge pages](crate::sys::huge_pages): GETs of a million keys take 0.85 of
//! the processor time that they take without, SETs 0.92.
//!
//! The set of a row is given by a hash of its key that only this process knows, mixed with its
//! keyspace's seed: a keyspace is cleared by giving it another seed.
//!
//! Rows for point reads are cached: see [`is_cacheable`]; and, for range reads, cached ranges of
//! rows: see [`crate::storage::cache::ranges`]. None of these rows is deleted by a range deletion
//! while it can still be read: range deletions apply to a whole keyspace, to a dead collection, or
//! to items beyond the ends of a list, which are written again before they are read again. A range
//! deletion in a map drops the map's cached ranges.
//!
//! Cached rows equal the rows in RocksDB, because
//! - a commit updates all rows that it wrote after RocksDB has them and before it releases the
//!   key locks. A row that is not cached counts as changed, too: each set has a version;
//! - a row read from RocksDB is added only if its set still has the version from before the
//!   read, or was divided from a set with that version. So readers without a lock
//!   (SORT … BY, a scan) cannot bring back what a commit has just replaced;
//! - of a collection that a commit leaves to the reclaim passes it adds no rows, and it drops
//!   the cached ranges: a pass needs no lock, so the rows may be deleted by then. A pass reads
//!   RocksDB alone.

mod set;

pub(in crate::storage) use set::ROW_MAX;

use self::set::Set;
use crate::encoding::keys::{RowKey, split_base};
use crate::encoding::tag;
use crate::storage::Direction;
use crate::storage::cache::ranges::CachedRange;
use crate::sys::huge_pages::HugeVec;
use crate::sys::lock_order::{Lock, Mutex, MutexGuard};
use crate::sys::prefetch;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The budget in bytes is divided by this to get the number of sets; includes the set itself and
/// sixteen rows of keys with some hundred bytes each. Smaller rows do not use all of the budget; of
/// larger ones a set has fewer.
const SET_BYTES: u64 = 2048;
/// A page has so many sets or up to twice as many; the first page is allocated with the first row.
const PAGE_SETS: u64 = 1024;
/// The first bit of a hash by which sets divide. The bits below it are a row's mark; the upper half
/// of the hash selects the set within a page.
const DEPTH_BIT: u32 = 16;
/// The number of these bits.
const DEPTH_MAX: u32 = 16;
/// The most sets that the hand passes at a time; and how many sets with rows it passes without an
/// eviction before it evicts rows that were read lately, too.
const PASSES: usize = 256;
const SPARED: usize = 16;

/// The directions of a map's cached ranges, as [`crate::storage::cache::ranges::names`] orders them.
const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// The number of sets that INFO samples.
const USAGE_SETS: usize = 1024;

/// The version of a set that a look-up has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u32);

type SetLock = Mutex<Set, { Lock::RowCacheSet as u8 }>;
type SetGuard<'a> = MutexGuard<'a, Set, { Lock::RowCacheSet as u8 }>;

/// A set on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(SetLock);

/// The row cache: copies of rows that were read or written lately.
#[derive(Debug)]
pub struct RowCache {
    /// Pages of sets, each allocated when one of its sets is first used. Their number is two to the
    /// power of how often the sets may double.
    pages: Box<[OnceLock<HugeVec<Slot>>]>,
    page_sets: u64,
    /// How many bits of a hash select the page. Sets whose rows share fewer bits are divided when
    /// they are next used.
    depth: AtomicU8,
    /// The memory budget, the memory of the pages, and that of the rows, in bytes.
    budget: AtomicU64,
    fixed: AtomicU64,
    held: AtomicU64,
    /// The number of sets that the hand has passed.
    hand: AtomicUsize,
}

/// Whether rows with this key are cached: those of keys, all rows in hash order, list items, bases of
/// strings, those of stream groups and their consumers, nodes of documents, and pages of filters,
/// sketches and digests.
pub(in crate::storage) fn is_cacheable(key: &[u8]) -> bool {
    let tag = key.first().copied().unwrap_or_default();
    let others = [
        tag::META,
        tag::LIST_ITEM,
        tag::STREAM_GROUP,
        tag::STREAM_CONSUMER,
        tag::STREAM_CONSUMER_NAME,
        tag::STREAM_PENDING,
        tag::STREAM_PRODUCER,
        tag::STREAM_PRODUCER_NAME,
        tag::JSON_NODE,
        tag::BLOOM_PAGE,
        tag::CUCKOO_PAGE,
        tag::SKETCH_PAGE,
        tag::TOPK_PAGE,
        tag::TOPK_SLOT,
        tag::DIGEST_PAGE,
    ];
    tag::HASHED.contains(&tag) || others.contains(&tag) || split_base(key).is_some()
}

impl RowCache {
    /// A cache of about `budget` bytes, or none if that is less than one set.
    pub fn new(budget: u64) -> RowCache {
        let sets = budget / SET_BYTES;
        let depth = (sets / PAGE_SETS).max(1).ilog2().min(DEPTH_MAX);
        let pages = if sets > 0 { 1 << depth } else { 0 };
        RowCache {
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
            page_sets: (sets >> depth).min(2 * PAGE_SETS),
            depth: AtomicU8::new(0),
            budget: AtomicU64::new(budget),
            fixed: AtomicU64::new(0),
            held: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    /// Changes the memory budget. Rows beyond it are evicted when others come in. The number of
    /// sets is fixed at the start: with a much smaller budget rows still get at least half of it,
    /// with a much larger one the sets are full.
    pub(in crate::storage) fn set_budget(&self, budget: u64) {
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// Whether the rows take more memory than they may.
    fn is_full(&self) -> bool {
        let budget = self.budget.load(Ordering::Relaxed);
        let rows = budget.saturating_sub(self.fixed.load(Ordering::Relaxed));
        self.held.load(Ordering::Relaxed) > rows.max(budget / 2)
    }

    /// Every `step`-th set of the allocated pages.
    fn each_set(&self, step: usize) -> impl Iterator<Item = &SetLock> {
        let sets = self.pages.iter().filter_map(OnceLock::get);
        let sets = sets.flat_map(|page| page.iter());
        sets.step_by(step).map(|slot| &slot.0)
    }

    /// The set of the rows with this hash if the sets are divided by `depth` bits.
    #[inline]
    fn set(&self, hash: u64, depth: u8) -> Option<&SetLock> {
        let page = (hash >> DEPTH_BIT) & ((1 << depth) - 1);
        let page = self.pages.get(page as usize)?;
        let page = page.get_or_init(|| {
            let bytes = self.page_sets * size_of::<Slot>() as u64;
            self.fixed.fetch_add(bytes, Ordering::Relaxed);
            (0..self.page_sets).map(|_| Slot::default()).collect()
        });
        // The upper half of the hash, scaled to the number of sets.
        let at = ((hash >> 32) * self.page_sets) >> 32;
        page.get(at as usize).map(|slot| &slot.0)
    }

    /// Locks the set that has the rows with this hash.
    #[inline]
    fn lock(&self, hash: u64) -> Option<SetGuard<'_>> {
        let depth = self.depth.load(Ordering::Relaxed);
        let set = self.set(hash, depth)?.lock();
        match set.depth == depth {
            true => Some(set),
            false => {
                drop(set);
                self.divide(hash, depth)
            }
        }
    }

    /// Divides the set until `goal` bits tell its rows from others, and locks it.
    #[cold]
    fn divide(&self, hash: u64, goal: u8) -> Option<SetGuard<'_>> {
        let mut depth = 0;
        loop {
            let mut set = self.set(hash, depth)?.lock();
            // A set with more bits was divided already: it or another one has the rows.
            if set.depth == depth {
                if depth >= goal {
                    return Some(set);
                }
                // In ascending order of pages: the set on the lower page is locked first.
                let upper = 1 << (DEPTH_BIT + u32::from(depth));
                let mut other = self.set(hash | upper, depth + 1)?.lock_beside(&set);
                let before = set.capacity() + other.capacity();
                set.split(&mut other, DEPTH_BIT);
                let after = set.capacity() + other.capacity();
                self.count(before, after);
            }
            depth += 1;
        }
    }

    /// Doubles the number of sets, unless another thread has, or all pages are in use.
    #[cold]
    fn grow(&self, depth: u8) {
        if 1 << depth < self.pages.len() {
            let _ =
                self.depth
                    .compare_exchange(depth, depth + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Adds the change of a set's memory to the total. Called under the set's lock, so nothing is
    /// subtracted before it was added.
    fn count(&self, before: usize, after: usize) {
        if after < before {
            let less = (before - after) as u64;
            self.held.fetch_sub(less, Ordering::Relaxed);
        } else if after > before {
            let more = (after - before) as u64;
            self.held.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Calls `change` with the set of a hash, under its lock, and evicts rows if the set needs more
    /// memory after that.
    #[inline]
    fn change(&self, hash: u64, change: impl FnOnce(&mut Set)) {
        let Some(mut set) = self.lock(hash) else {
            return;
        };
        let before = set.capacity();
        change(&mut set);
        let after = set.capacity();
        self.count(before, after);
        if set.is_crowded() {
            self.grow(set.depth);
        }
        drop(set);
        if after > before && self.is_full() {
            self.make_room();
        }
    }

    /// Moves the hand and evicts rows until the budget is met, or for at most [`PASSES`] sets.
    #[cold]
    fn make_room(&self) {
        let sets = (self.page_sets as usize) << self.depth.load(Ordering::Relaxed);
        let mut spared = 0;
        for _ in 0..sets.min(PASSES) {
            if !self.is_full() {
                return;
            }
            let hand = self.hand.fetch_add(1, Ordering::Relaxed) % sets;
            let (page, at) = (
                hand / self.page_sets as usize,
                hand % self.page_sets as usize,
            );
            let Some(page) = self.pages[page].get() else {
                let rest = self.page_sets as usize - 1 - at;
                self.hand.fetch_add(rest, Ordering::Relaxed);
                continue;
            };
            let mut set = page[at].0.lock();
            let before = set.capacity();
            spared += usize::from(set.rows() > 0);
            if set.sweep(spared > SPARED) {
                spared = 0;
            }
            self.count(before, set.capacity());
        }
    }

    /// Calls `read` with the row's value, under the lock of its set. If the row is not cached,
    /// returns the version that [`RowCache::offer`] needs.
    pub fn read<R>(
        &self,
        hash: u64,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Version> {
        let Some(mut set) = self.lock(hash) else {
            return Err(Version(0));
        };
        match set.find(hash, key) {
            Some(at) => {
                set.set_used(at, true);
                Ok(read(set.row(at).value))
            }
            None => Err(Version(set.version)),
        }
    }

    /// Calls `read` with the cached ranges of a map, the two under `names`, until it returns a
    /// result. Returns that, and the version that [`RowCache::offer_range`] needs.
    pub(in crate::storage) fn read_ranges<R>(
        &self,
        hash: u64,
        names: &[RowKey; 2],
        mut read: impl FnMut(Direction, &[u8]) -> Option<R>,
    ) -> (Option<R>, Version) {
        let Some(mut set) = self.lock(hash) else {
            return (None, Version(0));
        };
        let version = Version(set.version);
        for (name, direction) in names.iter().zip(DIRECTIONS) {
            if let Some(at) = set.find(hash, name)
                && let Some(found) = read(direction, set.row(at).value)
            {
                set.set_used(at, true);
                return (Some(found), version);
            }
        }
        (None, version)
    }

    /// Adds a cached range as RocksDB had it, unless its set has changed since `seen`. A range that
    /// was read lately is replaced only by one that `continues` it.
    pub(in crate::storage) fn offer_range(
        &self,
        hash: u64,
        name: &[u8],
        range: &[u8],
        seen: Version,
        continues: bool,
    ) {
        self.change(hash, |set| {
            if set.version != seen.0 {
                return;
            }
            if let Some(at) = set.find(hash, name) {
                let used = set.is_used(at);
                set.set_used(at, false);
                if used && !continues {
                    return;
                }
                set.remove(at);
            }
            set.insert(hash, name, range);
        });
    }

    /// Updates the cached ranges of a map after a commit that has written one of its rows (`None`:
    /// deleted).
    pub(in crate::storage) fn update_ranges(
        &self,
        hash: u64,
        names: &[RowKey; 2],
        key: &[u8],
        value: Option<&[u8]>,
    ) {
        self.change_ranges(hash, names, |direction, range| {
            CachedRange::amended(direction, range, key, value)
        });
    }

    /// Drops the cached ranges of a map.
    pub(in crate::storage) fn forget_ranges(&self, hash: u64, names: &[RowKey; 2]) {
        self.change_ranges(hash, names, |_, _| Some(Vec::new()));
    }

    /// Calls `change` with each cached range of a map and replaces the range by the result; an
    /// empty one removes it, `None` leaves it.
    fn change_ranges(
        &self,
        hash: u64,
        names: &[RowKey; 2],
        change: impl Fn(Direction, &[u8]) -> Option<Vec<u8>>,
    ) {
        self.change(hash, |set| {
            set.version = set.version.wrapping_add(1);
            for (name, direction) in names.iter().zip(DIRECTIONS) {
                let Some(at) = set.find(hash, name) else {
                    continue;
                };
                let Some(range) = change(direction, set.row(at).value) else {
                    continue;
                };
                if !range.is_empty() && set.overwrite(at, &range) {
                    continue;
                }
                let used = set.is_used(at);
                set.remove(at);
                if !range.is_empty() {
                    set.insert(hash, name, &range);
                    if let Some(at) = set.find(hash, name) {
                        set.set_used(at, used);
                    }
                }
            }
        });
    }

    /// Prefetches the set of a row with this hash.
    pub(in crate::storage) fn prefetch_set(&self, hash: u64) {
        if let Some(set) = self.set(hash, self.depth.load(Ordering::Relaxed)) {
            prefetch::to_write(set);
        }
    }

    /// Prefetches the row, once the set is in the processor's cache.
    pub(in crate::storage) fn prefetch_row(&self, hash: u64) {
        let set = self.set(hash, self.depth.load(Ordering::Relaxed));
        // A thread that has the lock has the row in its cache as well.
        if let Some(set) = set.and_then(SetLock::try_lock) {
            set.prefetch(hash);
        }
    }

    /// Adds a row as RocksDB had it, unless its set has changed since `seen`.
    pub(in crate::storage) fn offer(&self, hash: u64, key: &[u8], value: &[u8], seen: Version) {
        self.change(hash, |set| {
            // Another reader may have added it.
            if set.version == seen.0 && set.find(hash, key).is_none() {
                set.insert(hash, key, value);
            }
        });
    }

    /// Updates a row that a commit has written (`None`: deleted).
    pub fn update(&self, hash: u64, key: &[u8], value: Option<&[u8]>) {
        self.change(hash, |set| {
            set.version = set.version.wrapping_add(1);
            let found = set.find(hash, key);
            if let (Some(at), Some(value)) = (found, value)
                && set.overwrite(at, value)
            {
                return;
            }
            if let Some(at) = found {
                set.remove(at);
            }
            if let Some(value) = value {
                set.insert(hash, key, value);
            }
        });
    }

    /// The number of cached rows, an estimate from a sample if there are many sets; and the bytes
    /// of the rows and the sets.
    pub fn usage(&self) -> (u64, u64) {
        let fixed = self.fixed.load(Ordering::Relaxed);
        let sets = fixed as usize / size_of::<Slot>();
        let step = (sets / USAGE_SETS).max(1);
        let rows = self.each_set(step).map(|set| set.lock().rows());
        let rows = rows.sum::<usize>() * step;
        (rows as u64, self.bytes())
    }

    /// The bytes of the rows and the sets.
    pub fn bytes(&self) -> u64 {
        self.fixed.load(Ordering::Relaxed) + self.held.load(Ordering::Relaxed)
    }

    /// Calls `each` with hash, key and value of every row.
    pub(in crate::storage) fn for_each(&self, mut each: impl FnMut(u64, &[u8], &[u8])) {
        for set in self.each_set(1) {
            let set = set.lock();
            for row in (0..set.rows()).map(|at| set.row(at)) {
                each(row.hash, row.key, row.value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::set::{HEAD, ROW_MAX};
    use super::*;

    fn get(cache: &RowCache, hash: u64, key: &[u8]) -> Result<Vec<u8>, Version> {
        cache.read(hash, key, <[u8]>::to_vec)
    }

    #[test]
    fn a_row_read_before_a_commit_is_not_cached_after_it() {
        let cache = RowCache::new(1 << 20);
        let seen = get(&cache, 7, b"\x01k").unwrap_err();
        // The commit writes another row, which belongs to the same set and is not cached either.
        cache.update(7 + (1 << 20), b"\x01other", Some(b"v"));
        cache.offer(7, b"\x01k", b"old", seen);
        let seen = get(&cache, 7, b"\x01k").unwrap_err();
        cache.offer(7, b"\x01k", b"new", seen);
        assert_eq!(get(&cache, 7, b"\x01k"), Ok(b"new".to_vec()));
        cache.update(7, b"\x01k", None);
        assert!(get(&cache, 7, b"\x01k").is_err());
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        let cache = RowCache::new(1 << 20);
        cache.update(5, b"\x01a", Some(b"1"));
        assert!(get(&cache, 5, b"\x01b").is_err());
        cache.update(5, b"\x01b", Some(b"2"));
        assert_eq!(get(&cache, 5, b"\x01a"), Ok(b"1".to_vec()));
        assert_eq!(get(&cache, 5, b"\x01b"), Ok(b"2".to_vec()));
    }

    #[test]
    fn values_grow_and_shrink_within_the_bound() {
        let cache = RowCache::new(2 * SET_BYTES);
        for len in [0, 1, 64, 63, 20, 1000, 1535, 3, 0] {
            let value = vec![b'v'; len];
            cache.update(1, b"\x01", Some(&value));
            assert_eq!(get(&cache, 1, b"\x01").is_ok(), len <= 1535, "{len}");
            assert_eq!(get(&cache, 1, b"\x01"), Ok(value));
        }
        cache.update(1, b"\x01", Some(&[0; ROW_MAX]));
        assert!(get(&cache, 1, b"\x01").is_err());
        assert_eq!(cache.usage(), (0, cache.fixed.load(Ordering::Relaxed)));
    }

    #[test]
    fn memory_is_bounded_and_what_is_read_stays() {
        let budget = 64 << 10;
        let cache = RowCache::new(budget);
        let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let favourite = u64::MAX;
        cache.update(hash(favourite), &favourite.to_be_bytes(), Some(b"here"));
        for i in 0..10_000u64 {
            cache.update(hash(i), &i.to_be_bytes(), Some(&[1; 100]));
            let found = get(&cache, hash(favourite), &favourite.to_be_bytes());
            assert_eq!(found, Ok(b"here".to_vec()));
            assert!(cache.usage().1 <= budget);
        }
        // Now all rows were read lately.
        for i in 0..10_000u64 {
            let _ = get(&cache, hash(i), &i.to_be_bytes());
        }
        cache.set_budget(budget / 4);
        for i in 0..10_000u64 {
            cache.update(hash(i), &i.to_be_bytes(), Some(&[1; 100]));
        }
        assert!(cache.usage().1 <= budget / 4);
    }

    #[test]
    fn sets_divide_as_rows_come_in() {
        let cache = RowCache::new(64 << 20);
        let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let few = (0..1000u64).map(|i| (i, cache.fixed.load(Ordering::Relaxed)));
        for (i, fixed) in few {
            cache.update(hash(i), &i.to_be_bytes(), Some(b"first"));
            assert!(fixed <= 2 * PAGE_SETS * size_of::<Slot>() as u64);
        }
        // A look-up before the sets divide, of a row that does not exist.
        let absent = 1_000_000u64;
        let seen = get(&cache, hash(absent), &absent.to_be_bytes()).unwrap_err();
        for i in 1000..100_000u64 {
            cache.update(hash(i), &i.to_be_bytes(), Some(b"more"));
        }
        assert!(cache.depth.load(Ordering::Relaxed) >= 3);
        for i in 0..100_000u64 {
            let value: &[u8] = if i < 1000 { b"first" } else { b"more" };
            let found = get(&cache, hash(i), &i.to_be_bytes());
            assert_eq!(found, Ok(value.to_vec()), "{i}");
        }
        let mut rows = 0;
        cache.for_each(|_, _, _| rows += 1);
        assert_eq!(rows, 100_000);
        // The set that has it now counts the commits since then.
        cache.update(hash(absent), &absent.to_be_bytes(), None);
        cache.offer(hash(absent), &absent.to_be_bytes(), b"old", seen);
        assert!(get(&cache, hash(absent), &absent.to_be_bytes()).is_err());
    }

    #[test]
    fn the_memory_counted_is_that_of_the_sets_when_threads_divide_them() {
        let cache = RowCache::new(16 << 20);
        let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        std::thread::scope(|threads| {
            for thread in 0..4u64 {
                let cache = &cache;
                threads.spawn(move || {
                    for i in 0..40_000u64 {
                        // Half of them are written by two threads.
                        let row = i + thread / 2 * 40_000 * (i % 2);
                        cache.update(hash(row), &row.to_be_bytes(), Some(&row.to_be_bytes()));
                        let found = get(cache, hash(row), &row.to_be_bytes());
                        assert!(found.is_err() || found == Ok(row.to_be_bytes().to_vec()));
                    }
                });
            }
        });
        let sets = cache.each_set(1).map(|set| set.lock().capacity() as u64);
        assert_eq!(sets.sum::<u64>(), cache.held.load(Ordering::Relaxed));
        let mut rows = Vec::new();
        cache.for_each(|hash, key, _| rows.push((hash, key.to_vec())));
        let all = rows.len();
        rows.sort();
        rows.dedup();
        assert_eq!(rows.len(), all);
        assert!(all > 50_000, "{all}");
        for (hash, key) in rows {
            assert!(get(&cache, hash, &key).is_ok());
        }
    }

    #[test]
    fn rows_of_any_size_use_the_budget() {
        let budget = 1 << 20;
        for (value, share) in [(40, 0.45), (90, 0.7), (400, 0.8), (1500, 0.75)] {
            let cache = RowCache::new(budget);
            for i in 0..50_000u64 {
                let hash = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                cache.update(hash, &i.to_be_bytes(), Some(&vec![1; value]));
            }
            let (rows, bytes) = cache.usage();
            assert!(bytes <= budget, "{value}: {bytes}");
            let used = rows * (HEAD + 8 + value) as u64;
            assert!(used as f64 > share * budget as f64, "{value}: {used}");
        }
    }

    #[test]
    fn without_a_budget_nothing_is_kept() {
        let cache = RowCache::new(0);
        cache.update(1, b"\x01k", Some(b"v"));
        cache.offer(1, b"\x01k", b"v", Version(0));
        assert!(get(&cache, 1, b"\x01k").is_err());
    }
}
