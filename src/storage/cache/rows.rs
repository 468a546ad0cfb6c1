//! The row cache: copies in memory of rows that were read or written lately, so
//! that a look-up of a popular key never descends into RocksDB.
//!
//! Sets, each behind a lock of its own. There are few at first: memory for all that the
//! budget allows, touched by the first rows that come, would cost each of the first
//! 300,000 SETs 0.07 of its time. When one has become crowded there may be twice as
//! many: each is divided when it is next looked into, by one more bit of the hash
//! (extendible hashing, after Fagin and others, 1979).
//!
//! Together they are bounded in bytes. A thread that brings in too much moves a hand from
//! set to set, which evicts the rows that were not read since it came by last (CLOCK). The rows of a set stand in one piece of memory: to find one takes two steps
//! that wait for memory, the set and the row. Both are in
//! [huge pages](crate::sys::huge_pages): GETs of a million keys take 0.85 of the
//! processor time that they take without, SETs 0.92.
//!
//! A row's place is given by a hash of its key that only this process knows, mixed
//! with its keyspace's seed: clearing a keyspace is giving it another seed.
//!
//! Rows that are read by point have a place: see [`is_cacheable`]; and cached ranges of
//! rows that are read by range: see [`crate::storage::cache::ranges`].
//! None of them is ever deleted as part of a range while it can still be read:
//! ranges go with a whole keyspace, with a collection that is dead, or from beyond
//! the ends of a list, where items are written anew before they are read again.
//! Cached ranges of a map go with each range that is deleted in it.
//!
//! What is here is what RocksDB has, because
//! - a commit brings all rows it wrote up to date after RocksDB has them and
//!   before it lets the key locks go; a row that is not here counts as changed,
//!   too: each set has a version;
//! - a row read from RocksDB is taken in only if its set's version is still the
//!   one from before the read, or that of the set it was divided from. So readers
//!   without a lock (SORT … BY, a scan) cannot bring back what a commit has just
//!   replaced;
//! - of a collection that a commit leaves to the reclaim passes it brings nothing into
//!   memory, and drops the cached ranges: the rows may be gone by then, as such a pass needs no
//!   lock. It reads RocksDB alone.

mod set;

pub(in crate::storage) use set::ROW_MAX;

use self::set::Set;
use crate::encoding::keys::RowKey;
use crate::encoding::tag;
use crate::storage::Direction;
use crate::storage::cache::ranges::CachedRange;
use crate::sys::huge_pages::HugeVec;
use crate::sys::lock_order::{Lock, Mutex, MutexGuard};
use crate::sys::prefetch;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Bytes that there is a set for, its own among them: sixteen rows of keys with some
/// hundred bytes each. Smaller ones do not use all of the budget, of larger ones a
/// set has fewer.
const SET_BYTES: u64 = 2048;
/// Pages have so many sets or up to twice as many; the first one is there from the
/// first row on.
const PAGE_SETS: u64 = 1024;
/// The bits of a hash by which the sets divide begin here; behind them are those of a
/// row's mark, before them those that say which set of a page is meant.
const DEPTH_BIT: u32 = 16;
/// How many of them there are.
const DEPTH_MAX: u32 = 16;
/// Sets that the hand passes at a time, at the most; and those of them after which
/// it takes what was read lately, too, if nothing else was found.
const PASSES: usize = 256;
const SPARED: usize = 16;

/// The directions of a map's cached ranges, as [`crate::storage::cache::ranges::names`] orders them.
const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// How many sets INFO looks at.
const USAGE_SETS: usize = 1024;

/// Which state of a set a look-up has seen.
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
    /// The sets, so many at a time, as soon as one of them is looked into. How often they
    /// may double is how many of these there are.
    pages: Box<[OnceLock<HugeVec<Slot>>]>,
    page_sets: u64,
    /// How many bits of a hash say which page is meant. Sets that have rows by fewer bits
    /// are divided when they are looked into.
    depth: AtomicU8,
    /// Bytes that all may take; those that the pages take, and the rows.
    budget: AtomicU64,
    fixed: AtomicU64,
    held: AtomicU64,
    /// How many sets the hand has passed.
    hand: AtomicUsize,
}

/// Whether rows with this key are kept here: those of keys, fields, members,
/// list items, and of what groups of consumers are at.
pub fn is_cacheable(key: &[u8]) -> bool {
    let tag = key.first().copied().unwrap_or_default();
    let element = [
        tag::HASH_FIELD,
        tag::LIST_ITEM,
        tag::SET_MEMBER,
        tag::ZSET_MEMBER,
        tag::STREAM_GROUP,
        tag::STREAM_CONSUMER,
        tag::STREAM_CONSUMER_NAME,
        tag::STREAM_PENDING,
    ];
    tag == tag::META || element.contains(&tag)
}

impl RowCache {
    /// Room for about `budget` bytes; none at all if that is too little.
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

    /// Changes how many bytes may be taken; what is too much goes when others
    /// come in. How many sets there may be stays: with much less than at first rows take
    /// half of it or more, with much more the sets are full.
    pub fn set_budget(&self, budget: u64) {
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// Whether the rows take more than they may.
    fn is_full(&self) -> bool {
        let budget = self.budget.load(Ordering::Relaxed);
        let rows = budget.saturating_sub(self.fixed.load(Ordering::Relaxed));
        self.held.load(Ordering::Relaxed) > rows.max(budget / 2)
    }

    /// The sets that are in use, every so many.
    fn each_set(&self, step: usize) -> impl Iterator<Item = &SetLock> {
        let sets = self.pages.iter().filter_map(OnceLock::get);
        let sets = sets.flat_map(|page| page.iter());
        sets.step_by(step).map(|slot| &slot.0)
    }

    /// The set of the rows with this hash if all are told apart by so many bits.
    #[inline]
    fn set(&self, hash: u64, depth: u8) -> Option<&SetLock> {
        let page = (hash >> DEPTH_BIT) & ((1 << depth) - 1);
        let page = self.pages.get(page as usize)?;
        let page = page.get_or_init(|| {
            let bytes = self.page_sets * size_of::<Slot>() as u64;
            self.fixed.fetch_add(bytes, Ordering::Relaxed);
            (0..self.page_sets).map(|_| Slot::default()).collect()
        });
        // The upper half of the hash as a fraction, of so many sets.
        let at = ((hash >> 32) * self.page_sets) >> 32;
        page.get(at as usize).map(|slot| &slot.0)
    }

    /// The set that has the rows with this hash.
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

    /// The same, once so many bits tell its rows from others.
    #[cold]
    fn divide(&self, hash: u64, goal: u8) -> Option<SetGuard<'_>> {
        let mut depth = 0;
        loop {
            let mut set = self.set(hash, depth)?.lock();
            // One that has more bits has been divided: it or another has the rows.
            if set.depth == depth {
                if depth >= goal {
                    return Some(set);
                }
                // A thread with two locks took the one on the page with the lower number first.
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

    /// Twice as many sets, from those with so many bits.
    #[cold]
    fn grow(&self, depth: u8) {
        if 1 << depth < self.pages.len() {
            let _ =
                self.depth
                    .compare_exchange(depth, depth + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Notes how much memory a set has, under its lock: nobody subtracts what has not
    /// been added yet.
    fn count(&self, before: usize, after: usize) {
        if after < before {
            let less = (before - after) as u64;
            self.held.fetch_sub(less, Ordering::Relaxed);
        } else if after > before {
            let more = (after - before) as u64;
            self.held.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Calls `change` with the set of a hash, under its lock; and makes room if it needs
    /// more memory after that.
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

    /// Has the hand go on until no more is held than may be.
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

    /// Calls `look` with the row's value, under the lock of its set. If it is
    /// not here, returns what [`RowCache::offer`] wants to know later.
    pub fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Version> {
        let Some(mut set) = self.lock(hash) else {
            return Err(Version(0));
        };
        match set.find(hash, key) {
            Some(at) => {
                set.set_used(at, true);
                Ok(look(set.row(at).value))
            }
            None => Err(Version(set.version)),
        }
    }

    /// Calls `look` with the cached ranges of a map, the two under `names`, until it has a
    /// use for one; returns what it made of it, and what [`RowCache::offer_range`]
    /// wants to know later.
    pub(in crate::storage) fn look_at_ranges<R>(
        &self,
        hash: u64,
        names: &[RowKey; 2],
        mut look: impl FnMut(Direction, &[u8]) -> Option<R>,
    ) -> (Option<R>, Version) {
        let Some(mut set) = self.lock(hash) else {
            return (None, Version(0));
        };
        let version = Version(set.version);
        for (name, direction) in names.iter().zip(DIRECTIONS) {
            if let Some(at) = set.find(hash, name)
                && let Some(found) = look(direction, set.row(at).value)
            {
                set.set_used(at, true);
                return (Some(found), version);
            }
        }
        (None, version)
    }

    /// Takes in a cached range as RocksDB had it, unless its set has changed since `seen`.
    /// One that was read lately is replaced by another only if that `continues` it.
    pub(in crate::storage) fn offer_range(
        &self,
        hash: u64,
        name: &[u8],
        run: &[u8],
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
            set.insert(hash, name, run);
        });
    }

    /// Brings the cached ranges of a map up to date after a commit that has written one of
    /// its rows (`None`: deleted).
    pub(in crate::storage) fn update_ranges(
        &self,
        hash: u64,
        names: &[RowKey; 2],
        key: &[u8],
        value: Option<&[u8]>,
    ) {
        self.change_ranges(hash, names, |direction, run| {
            CachedRange::amended(direction, run, key, value)
        });
    }

    /// Drops the cached ranges of a map.
    pub(in crate::storage) fn forget_ranges(&self, hash: u64, names: &[RowKey; 2]) {
        self.change_ranges(hash, names, |_, _| Some(Vec::new()));
    }

    /// Calls `change` with each cached range of a map; replaces it by what that returns,
    /// which may be nothing.
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
                let Some(run) = change(direction, set.row(at).value) else {
                    continue;
                };
                if !run.is_empty() && set.overwrite(at, &run) {
                    continue;
                }
                let used = set.is_used(at);
                set.remove(at);
                if !run.is_empty() {
                    set.insert(hash, name, &run);
                    if let Some(at) = set.find(hash, name) {
                        set.set_used(at, used);
                    }
                }
            }
        });
    }

    /// Has the processor fetch the set of a row with this hash.
    pub(in crate::storage) fn prefetch_set(&self, hash: u64) {
        if let Some(set) = self.set(hash, self.depth.load(Ordering::Relaxed)) {
            prefetch::to_write(set);
        }
    }

    /// Has it fetch the row, once the set is there.
    pub(in crate::storage) fn prefetch_row(&self, hash: u64) {
        let set = self.set(hash, self.depth.load(Ordering::Relaxed));
        // The thread that has the lock has the row, too.
        if let Some(set) = set.and_then(SetLock::try_lock) {
            set.prefetch(hash);
        }
    }

    /// Takes in a row as RocksDB had it, unless its set has changed since `seen`.
    pub fn offer(&self, hash: u64, key: &[u8], value: &[u8], seen: Version) {
        self.change(hash, |set| {
            // Another reader may have been faster.
            if set.version == seen.0 && set.find(hash, key).is_none() {
                set.insert(hash, key, value);
            }
        });
    }

    /// Brings a row up to date that a commit has written (`None`: deleted).
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

    /// Rows held, about, if there are many sets, of which only some are looked at;
    /// and the bytes that they and the sets take.
    pub fn usage(&self) -> (u64, u64) {
        let fixed = self.fixed.load(Ordering::Relaxed);
        let sets = fixed as usize / size_of::<Slot>();
        let step = (sets / USAGE_SETS).max(1);
        let rows = self.each_set(step).map(|set| set.lock().rows());
        let rows = rows.sum::<usize>() * step;
        (rows as u64, fixed + self.held.load(Ordering::Relaxed))
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

    fn get(hot: &RowCache, hash: u64, key: &[u8]) -> Result<Vec<u8>, Version> {
        hot.look(hash, key, <[u8]>::to_vec)
    }

    #[test]
    fn a_row_read_before_a_commit_is_not_taken_in_after_it() {
        let hot = RowCache::new(1 << 20);
        let seen = get(&hot, 7, b"\x01k").unwrap_err();
        // The commit writes a row that is not here, even in the same set only.
        hot.update(7 + (1 << 20), b"\x01other", Some(b"v"));
        hot.offer(7, b"\x01k", b"old", seen);
        let seen = get(&hot, 7, b"\x01k").unwrap_err();
        hot.offer(7, b"\x01k", b"new", seen);
        assert_eq!(get(&hot, 7, b"\x01k"), Ok(b"new".to_vec()));
        hot.update(7, b"\x01k", None);
        assert!(get(&hot, 7, b"\x01k").is_err());
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        let hot = RowCache::new(1 << 20);
        hot.update(5, b"\x01a", Some(b"1"));
        assert!(get(&hot, 5, b"\x01b").is_err());
        hot.update(5, b"\x01b", Some(b"2"));
        assert_eq!(get(&hot, 5, b"\x01a"), Ok(b"1".to_vec()));
        assert_eq!(get(&hot, 5, b"\x01b"), Ok(b"2".to_vec()));
    }

    #[test]
    fn values_grow_and_shrink_within_the_bound() {
        let hot = RowCache::new(2 * SET_BYTES);
        for len in [0, 1, 64, 63, 20, 1000, 1535, 3, 0] {
            let value = vec![b'v'; len];
            hot.update(1, b"\x01", Some(&value));
            assert_eq!(get(&hot, 1, b"\x01").is_ok(), len <= 1535, "{len}");
            assert_eq!(get(&hot, 1, b"\x01"), Ok(value));
        }
        hot.update(1, b"\x01", Some(&[0; ROW_MAX]));
        assert!(get(&hot, 1, b"\x01").is_err());
        assert_eq!(hot.usage(), (0, hot.fixed.load(Ordering::Relaxed)));
    }

    #[test]
    fn memory_is_bounded_and_what_is_read_stays() {
        let budget = 64 << 10;
        let hot = RowCache::new(budget);
        let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let favourite = u64::MAX;
        hot.update(hash(favourite), &favourite.to_be_bytes(), Some(b"here"));
        for i in 0..10_000u64 {
            hot.update(hash(i), &i.to_be_bytes(), Some(&[1; 100]));
            let found = get(&hot, hash(favourite), &favourite.to_be_bytes());
            assert_eq!(found, Ok(b"here".to_vec()));
            assert!(hot.usage().1 <= budget);
        }
        // With what was read lately, too.
        for i in 0..10_000u64 {
            let _ = get(&hot, hash(i), &i.to_be_bytes());
        }
        hot.set_budget(budget / 4);
        for i in 0..10_000u64 {
            hot.update(hash(i), &i.to_be_bytes(), Some(&[1; 100]));
        }
        assert!(hot.usage().1 <= budget / 4);
    }

    #[test]
    fn sets_divide_as_rows_come_in() {
        let hot = RowCache::new(64 << 20);
        let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let few = (0..1000u64).map(|i| (i, hot.fixed.load(Ordering::Relaxed)));
        for (i, fixed) in few {
            hot.update(hash(i), &i.to_be_bytes(), Some(b"first"));
            assert!(fixed <= 2 * PAGE_SETS * size_of::<Slot>() as u64);
        }
        // A look-up from before, of a row that is not there.
        let absent = 1_000_000u64;
        let seen = get(&hot, hash(absent), &absent.to_be_bytes()).unwrap_err();
        for i in 1000..100_000u64 {
            hot.update(hash(i), &i.to_be_bytes(), Some(b"more"));
        }
        assert!(hot.depth.load(Ordering::Relaxed) >= 3);
        for i in 0..100_000u64 {
            let value: &[u8] = if i < 1000 { b"first" } else { b"more" };
            let found = get(&hot, hash(i), &i.to_be_bytes());
            assert_eq!(found, Ok(value.to_vec()), "{i}");
        }
        let mut rows = 0;
        hot.for_each(|_, _, _| rows += 1);
        assert_eq!(rows, 100_000);
        // The set that it would be in now has seen the commits since then.
        hot.update(hash(absent), &absent.to_be_bytes(), None);
        hot.offer(hash(absent), &absent.to_be_bytes(), b"old", seen);
        assert!(get(&hot, hash(absent), &absent.to_be_bytes()).is_err());
    }

    #[test]
    fn what_is_held_is_what_the_sets_have_whoever_divides_them() {
        let hot = RowCache::new(16 << 20);
        let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        std::thread::scope(|threads| {
            for thread in 0..4u64 {
                let hot = &hot;
                threads.spawn(move || {
                    for i in 0..40_000u64 {
                        // Half of them are written by two threads.
                        let row = i + thread / 2 * 40_000 * (i % 2);
                        hot.update(hash(row), &row.to_be_bytes(), Some(&row.to_be_bytes()));
                        let found = get(hot, hash(row), &row.to_be_bytes());
                        assert!(found.is_err() || found == Ok(row.to_be_bytes().to_vec()));
                    }
                });
            }
        });
        let sets = hot.each_set(1).map(|set| set.lock().capacity() as u64);
        assert_eq!(sets.sum::<u64>(), hot.held.load(Ordering::Relaxed));
        let mut rows = Vec::new();
        hot.for_each(|hash, key, _| rows.push((hash, key.to_vec())));
        let all = rows.len();
        rows.sort();
        rows.dedup();
        assert_eq!(rows.len(), all);
        assert!(all > 50_000, "{all}");
        for (hash, key) in rows {
            assert!(get(&hot, hash, &key).is_ok());
        }
    }

    #[test]
    fn rows_of_any_size_use_the_budget() {
        let budget = 1 << 20;
        for (value, share) in [(40, 0.45), (90, 0.7), (400, 0.8), (1500, 0.75)] {
            let hot = RowCache::new(budget);
            for i in 0..50_000u64 {
                let hash = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                hot.update(hash, &i.to_be_bytes(), Some(&vec![1; value]));
            }
            let (rows, bytes) = hot.usage();
            assert!(bytes <= budget, "{value}: {bytes}");
            let used = rows * (HEAD + 8 + value) as u64;
            assert!(used as f64 > share * budget as f64, "{value}: {used}");
        }
    }

    #[test]
    fn without_a_budget_nothing_is_kept() {
        let hot = RowCache::new(0);
        hot.update(1, b"\x01k", Some(b"v"));
        hot.offer(1, b"\x01k", b"v", Version(0));
        assert!(get(&hot, 1, b"\x01k").is_err());
    }
}
