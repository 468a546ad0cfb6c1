//! Hot rows: copies in memory of rows that were read or written lately, so
//! that a look-up of a popular key never descends into RocksDB.
//!
//! A fixed number of sets, each behind a lock of its own. Together they are bounded
//! in bytes: whoever brings in too much has a hand go on from set to set, past
//! which go the rows that nobody has read since it came by last (CLOCK). The rows of
//! a set stand in one piece of memory: to find one takes two steps that wait for
//! memory, the set and the row. Both are in [huge pages](crate::base::huge_pages): GETs
//! of a million keys take 0.85 of the processor time that they take without, SETs 0.92.
//! A row's place is given by a hash of its key that only this process knows, mixed
//! with its keyspace's seed: clearing a keyspace is giving it another seed.
//!
//! Rows that are read by point have a place: see [`is_cacheable`]; and runs of
//! rows that are read by range: see [`super::runs`].
//! None of them is ever deleted as part of a range while it can still be read:
//! ranges go with a whole keyspace, with a collection that is dead, or from beyond
//! the ends of a list, where items are written anew before they are read again.
//! Runs of a map go with each range that is deleted in it.
//!
//! What is here is what RocksDB has, because
//! - a commit brings all rows it wrote up to date after RocksDB has them and
//!   before it lets the key locks go; a row that is not here counts as changed,
//!   too: each set has a version;
//! - a row read from RocksDB is taken in only if its set's version is still the
//!   one from before the read. So readers without a lock (SORT … BY, a scan)
//!   cannot bring back what a commit has just replaced.

use super::runs::Run;
use super::scan::Direction;
use crate::base::huge_pages::HugeVec;
use crate::base::prefetch;
use crate::encoding::keys::RowKey;
use crate::encoding::tag;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Rows of a set, at the most.
const WAYS: usize = 16;
/// Bytes that there is a set for, its own among them: sixteen rows of keys with some
/// hundred bytes each. Smaller ones do not use all of the budget, of larger ones a
/// set has fewer.
const SET_BYTES: u64 = 2048;
/// What a row has before its key: `hash (8) ‖ key length (2) ‖ value length (2) ‖
/// room for the value (2)`, in the order of the machine.
const HEAD: usize = 14;
/// Bytes that a set of rows has more than it needs, at the most.
const MORE: usize = 512;
/// Pages, of a power of two of sets that get memory together: this many or up to twice as
/// many, so that what fills no page is next to nothing of the budget.
const PAGES: usize = 128;
/// Sets of a page, at the most; there are more pages then.
const PAGE_SETS_MAX: usize = 4096;
/// Rows up to this size, key and value, have a place: of sixteen of them, each
/// begins at a number of 16 bits.
const ROW_MAX: usize = 1536;
/// Sets that the hand passes at a time, at the most; and those of them after which
/// it takes what was read lately, too, if nothing else was found.
const PASSES: usize = 256;
const SPARED: usize = 16;

/// The directions of a map's runs, as [`super::runs::names`] orders them.
const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// How many sets INFO looks at.
const USAGE_SETS: usize = 1024;

/// Which state of a set a look-up has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u32);

/// A row of a set.
#[derive(Debug, Clone, Copy)]
struct Row<'s> {
    hash: u64,
    key: &'s [u8],
    value: &'s [u8],
    /// Bytes that its value may grow to.
    room: usize,
}

impl Row<'_> {
    fn size(&self) -> usize {
        HEAD + self.key.len() + self.room
    }
}

/// With its lock, what a look-up needs first stands in one line of the
/// processor's cache.
#[derive(Debug, Default)]
#[repr(C)]
struct Set {
    /// A part of each row's hash, to find it by; 0 where there is none.
    marks: [u16; WAYS],
    /// The rows, in any order and with gaps.
    memory: HugeVec<u8>,
    /// Where in it each row begins.
    starts: [u16; WAYS],
    version: u32,
    /// Bytes of the gaps.
    gaps: u32,
    /// Which rows were read since the hand passed, a bit for each.
    used: u16,
    rows: u8,
    hand: u8,
}

/// A set on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Set>);

/// See the module.
#[derive(Debug)]
pub struct HotRows {
    /// The sets, so many at a time, as soon as one of them is looked into.
    pages: Box<[OnceLock<HugeVec<Slot>>]>,
    /// The logarithm of how many sets a page has.
    page_bits: u32,
    /// Bytes that the rows of all may take, and those they take.
    budget: AtomicU64,
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

impl HotRows {
    /// Room for about `budget` bytes; none at all if that is too little.
    pub fn new(budget: u64) -> HotRows {
        let sets = (budget / SET_BYTES).min(1 << 26) as usize;
        let page_sets = (sets / PAGES).clamp(1, PAGE_SETS_MAX);
        let page_bits = page_sets.ilog2();
        let hot = HotRows {
            pages: (0..sets >> page_bits).map(|_| OnceLock::new()).collect(),
            page_bits,
            budget: AtomicU64::new(0),
            held: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
        };
        hot.set_budget(budget);
        hot
    }

    /// Changes how many bytes may be taken; what is too much goes when others
    /// come in. The number of sets stays: with much less than at first they take half of
    /// it or more, with much more they are full.
    pub fn set_budget(&self, budget: u64) {
        let sets = (self.sets() * size_of::<Slot>()) as u64;
        let rows = budget.saturating_sub(sets).max(budget / 2);
        self.budget.store(rows, Ordering::Relaxed);
    }

    /// Bytes of the sets that are in use, without their rows.
    fn fixed(&self) -> u64 {
        let pages = self.pages.iter().filter_map(OnceLock::get);
        pages.map(|page| size_of_val(page.as_slice()) as u64).sum()
    }

    fn sets(&self) -> usize {
        self.pages.len() << self.page_bits
    }

    /// The sets that are in use, every so many.
    fn each_set(&self, step: usize) -> impl Iterator<Item = &Mutex<Set>> {
        let sets = self.pages.iter().filter_map(OnceLock::get);
        let sets = sets.flat_map(|page| page.iter());
        sets.step_by(step).map(|slot| &slot.0)
    }

    /// Calls `change` with a set, under its lock; and makes room if it needs more
    /// memory after that.
    #[inline]
    fn change<R>(&self, set: &Mutex<Set>, change: impl FnOnce(&mut Set) -> R) -> R {
        let mut set = set.lock();
        let before = set.memory.capacity();
        let result = change(&mut set);
        let after = set.memory.capacity();
        // Under the lock: nobody subtracts what has not been added yet.
        if after < before {
            let less = (before - after) as u64;
            self.held.fetch_sub(less, Ordering::Relaxed);
        } else if after > before {
            let more = (after - before) as u64;
            let held = self.held.fetch_add(more, Ordering::Relaxed) + more;
            drop(set);
            if held > self.budget.load(Ordering::Relaxed) {
                self.make_room();
            }
        }
        result
    }

    /// Has the hand go on until no more is held than may be.
    #[cold]
    fn make_room(&self) {
        let mut spared = 0;
        for _ in 0..self.sets().min(PASSES) {
            let held = self.held.load(Ordering::Relaxed);
            if held <= self.budget.load(Ordering::Relaxed) {
                return;
            }
            let (page, at) = self.place(self.hand.fetch_add(1, Ordering::Relaxed) % self.sets());
            let Some(page) = self.pages[page].get() else {
                let rest = (1 << self.page_bits) - 1 - at;
                self.hand.fetch_add(rest, Ordering::Relaxed);
                continue;
            };
            let mut set = page[at].0.lock();
            let before = set.memory.capacity();
            spared += usize::from(set.rows > 0);
            if set.sweep(spared > SPARED) {
                spared = 0;
            }
            let freed = before - set.memory.capacity();
            self.held.fetch_sub(freed as u64, Ordering::Relaxed);
        }
    }

    /// Calls `look` with the row's value, under the lock of its set. If it is
    /// not here, returns what [`HotRows::offer`] wants to know later.
    pub fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Version> {
        let Some(set) = self.set(hash) else {
            return Err(Version(0));
        };
        let mut set = set.lock();
        match set.find(hash, key) {
            Some(at) => {
                set.used |= 1 << at;
                Ok(look(set.row(at).value))
            }
            None => Err(Version(set.version)),
        }
    }

    /// Calls `look` with the runs of a map, the two under `names`, until it has a
    /// use for one; returns what it made of it, and what [`HotRows::offer_run`]
    /// wants to know later.
    pub(super) fn look_at_runs<R>(
        &self,
        hash: u64,
        names: &[RowKey; 2],
        mut look: impl FnMut(Direction, &[u8]) -> Option<R>,
    ) -> (Option<R>, Version) {
        let Some(set) = self.set(hash) else {
            return (None, Version(0));
        };
        let mut set = set.lock();
        let version = Version(set.version);
        for (name, direction) in names.iter().zip(DIRECTIONS) {
            if let Some(at) = set.find(hash, name)
                && let Some(found) = look(direction, set.row(at).value)
            {
                set.used |= 1 << at;
                return (Some(found), version);
            }
        }
        (None, version)
    }

    /// Takes in a run as RocksDB had it, unless its set has changed since `seen`.
    /// One that was read lately is replaced by another only if that `continues` it.
    pub(super) fn offer_run(
        &self,
        hash: u64,
        name: &[u8],
        run: &[u8],
        seen: Version,
        continues: bool,
    ) {
        let Some(set) = self.set(hash) else {
            return;
        };
        self.change(set, |set| {
            if set.version != seen.0 {
                return;
            }
            if let Some(at) = set.find(hash, name) {
                let used = set.is_used(at);
                set.used &= !(1 << at);
                if used && !continues {
                    return;
                }
                set.remove(at);
            }
            set.insert(hash, name, run);
        });
    }

    /// Brings the runs of a map up to date after a commit that has written one of
    /// its rows (`None`: deleted).
    pub(super) fn update_runs(
        &self,
        hash: u64,
        names: &[RowKey; 2],
        key: &[u8],
        value: Option<&[u8]>,
    ) {
        self.change_runs(hash, names, |direction, run| {
            Run::amended(direction, run, key, value)
        });
    }

    /// Drops the runs of a map.
    pub(super) fn forget_runs(&self, hash: u64, names: &[RowKey; 2]) {
        self.change_runs(hash, names, |_, _| Some(Vec::new()));
    }

    /// Calls `change` with each run of a map; replaces it by what that returns,
    /// which may be nothing.
    fn change_runs(
        &self,
        hash: u64,
        names: &[RowKey; 2],
        change: impl Fn(Direction, &[u8]) -> Option<Vec<u8>>,
    ) {
        let Some(set) = self.set(hash) else {
            return;
        };
        self.change(set, |set| {
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
                        set.used |= u16::from(used) << at;
                    }
                }
            }
        });
    }

    /// Has the processor fetch the set of a row with this hash.
    pub(super) fn prefetch_set(&self, hash: u64) {
        if let Some(set) = self.set(hash) {
            prefetch::to_write(set);
        }
    }

    /// Has it fetch the row, once the set is there.
    pub(super) fn prefetch_row(&self, hash: u64) {
        // Whoever has the lock has the row, too.
        if let Some(set) = self.set(hash).and_then(Mutex::try_lock) {
            set.prefetch(hash);
        }
    }

    /// Takes in a row as RocksDB had it, unless its set has changed since `seen`.
    pub fn offer(&self, hash: u64, key: &[u8], value: &[u8], seen: Version) {
        let Some(set) = self.set(hash) else {
            return;
        };
        self.change(set, |set| {
            // Another reader may have been faster.
            if set.version == seen.0 && set.find(hash, key).is_none() {
                set.insert(hash, key, value);
            }
        });
    }

    /// Brings a row up to date that a commit has written (`None`: deleted).
    pub fn update(&self, hash: u64, key: &[u8], value: Option<&[u8]>) {
        let Some(set) = self.set(hash) else {
            return;
        };
        self.change(set, |set| {
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
        let step = (self.sets() / USAGE_SETS).max(1);
        let rows = self.each_set(step).map(|set| u64::from(set.lock().rows));
        let rows = rows.sum::<u64>() * step as u64;
        (rows, self.fixed() + self.held.load(Ordering::Relaxed))
    }

    /// Calls `each` with hash, key and value of every row.
    pub(super) fn for_each(&self, mut each: impl FnMut(u64, &[u8], &[u8])) {
        for set in self.each_set(1) {
            let set = set.lock();
            for row in (0..usize::from(set.rows)).map(|at| set.row(at)) {
                each(row.hash, row.key, row.value);
            }
        }
    }

    fn set(&self, hash: u64) -> Option<&Mutex<Set>> {
        // The upper half of the hash as a fraction, of so many sets.
        let (page, at) = self.place((((hash >> 32) * self.sets() as u64) >> 32) as usize);
        let page = self.pages.get(page)?;
        let page = page.get_or_init(|| {
            let sets = 0..1 << self.page_bits;
            sets.map(|_: u32| Slot::default()).collect()
        });
        page.get(at).map(|slot| &slot.0)
    }

    /// The page of a set, and its number there.
    #[inline]
    fn place(&self, set: usize) -> (usize, usize) {
        (set >> self.page_bits, set & ((1 << self.page_bits) - 1))
    }
}

/// What a row with this hash is marked with: never 0.
fn mark(hash: u64) -> u16 {
    hash as u16 | 1
}

impl Set {
    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let mark = mark(hash);
        let mut found = (0..WAYS).fold(0u32, |found, at| {
            found | (u32::from(self.marks[at] == mark) << at)
        });
        while found != 0 {
            let at = found.trailing_zeros() as usize;
            let row = self.row(at);
            if row.hash == hash && row.key == key {
                return Some(at);
            }
            found &= found - 1;
        }
        None
    }

    /// Has what most rows consist of fetched of the first one with this hash's mark.
    fn prefetch(&self, hash: u64) {
        let mark = mark(hash);
        if let Some(at) = self.marks.iter().position(|known| *known == mark) {
            let start = usize::from(self.starts[at]);
            let lines = [start, start + prefetch::LINE].into_iter();
            lines
                .filter_map(|at| self.memory.get(at))
                .for_each(prefetch::to_read);
        }
    }

    #[inline]
    fn row(&self, at: usize) -> Row<'_> {
        let memory = &self.memory[usize::from(self.starts[at])..];
        let (head, rest) = memory.split_at(HEAD);
        let number = |from: usize| usize::from(u16::from_ne_bytes([head[from], head[from + 1]]));
        let (key, rest) = rest.split_at(number(8));
        Row {
            hash: head.first_chunk().copied().map_or(0, u64::from_ne_bytes),
            key,
            value: &rest[..number(10)],
            room: number(12),
        }
    }

    fn is_used(&self, at: usize) -> bool {
        self.used & (1 << at) != 0
    }

    /// Replaces the value of a row if it fits into the room of the old one.
    fn overwrite(&mut self, at: usize, value: &[u8]) -> bool {
        let row = self.row(at);
        let (room, key_len) = (row.room, row.key.len());
        if value.len() > room || value.len() < room / 2 {
            return false;
        }
        let start = usize::from(self.starts[at]);
        let from = start + HEAD + key_len;
        self.memory[from..from + value.len()].copy_from_slice(value);
        self.memory[start + 10..start + 12].copy_from_slice(&(value.len() as u16).to_ne_bytes());
        true
    }

    fn remove(&mut self, at: usize) {
        let (start, size) = (usize::from(self.starts[at]), self.row(at).size());
        match start + size == self.memory.len() {
            true => self.memory.truncate(start),
            false => self.gaps += size as u32,
        }
        self.rows -= 1;
        let last = usize::from(self.rows);
        self.marks[at] = self.marks[last];
        self.starts[at] = self.starts[last];
        self.used = (self.used & !(1 << at)) | (u16::from(self.is_used(last)) << at);
        self.marks[last] = 0;
        self.used &= !(1 << last);
        if last == 0 {
            self.memory = HugeVec::default();
            self.gaps = 0;
        }
    }

    fn insert(&mut self, hash: u64, key: &[u8], value: &[u8]) {
        if key.len() + value.len() > ROW_MAX {
            return;
        }
        let room = value.len().next_multiple_of(8);
        let size = HEAD + key.len() + room;
        if usize::from(self.rows) == WAYS {
            self.evict();
        }
        if self.memory.len() + size > self.memory.capacity() {
            let needed = self.live() + size;
            self.rebuild(needed + (needed / 4).min(MORE));
        }
        let at = usize::from(self.rows);
        self.marks[at] = mark(hash);
        self.starts[at] = self.memory.len() as u16;
        self.memory.extend_from_slice(&hash.to_ne_bytes());
        for number in [key.len(), value.len(), room] {
            self.memory
                .extend_from_slice(&(number as u16).to_ne_bytes());
        }
        self.memory.extend_from_slice(key);
        self.memory.extend_from_slice(value);
        let end = self.memory.len() + room - value.len();
        self.memory.resize(end, 0);
        self.rows += 1;
    }

    /// Bytes of the rows, without the gaps.
    fn live(&self) -> usize {
        self.memory.len() - self.gaps as usize
    }

    /// Closes the gaps; there is room for `capacity` bytes then.
    fn rebuild(&mut self, capacity: usize) {
        let mut memory = HugeVec::with_capacity(capacity);
        for at in 0..usize::from(self.rows) {
            let start = usize::from(self.starts[at]);
            let row = &self.memory[start..start + self.row(at).size()];
            self.starts[at] = memory.len() as u16;
            memory.extend_from_slice(row);
        }
        self.memory = memory;
        self.gaps = 0;
    }

    /// Drops the first row behind the hand that was not read since it passed last.
    fn evict(&mut self) {
        loop {
            let at = usize::from(self.hand) % usize::from(self.rows);
            if !self.is_used(at) {
                return self.remove(at);
            }
            self.used &= !(1 << at);
            self.hand = (at + 1) as u8;
        }
    }

    /// The hand passes: drops what nobody has read since it did last, or all; tells
    /// whether it has found something.
    fn sweep(&mut self, all: bool) -> bool {
        let before = self.rows;
        for at in (0..usize::from(self.rows)).rev() {
            if all || !self.is_used(at) {
                self.remove(at);
            }
        }
        self.used = 0;
        let found = self.rows < before;
        if found && self.rows > 0 {
            self.rebuild(self.live());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(hot: &HotRows, hash: u64, key: &[u8]) -> Result<Vec<u8>, Version> {
        hot.look(hash, key, <[u8]>::to_vec)
    }

    #[test]
    fn a_row_read_before_a_commit_is_not_taken_in_after_it() {
        let hot = HotRows::new(1 << 20);
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
        let hot = HotRows::new(1 << 20);
        hot.update(5, b"\x01a", Some(b"1"));
        assert!(get(&hot, 5, b"\x01b").is_err());
        hot.update(5, b"\x01b", Some(b"2"));
        assert_eq!(get(&hot, 5, b"\x01a"), Ok(b"1".to_vec()));
        assert_eq!(get(&hot, 5, b"\x01b"), Ok(b"2".to_vec()));
    }

    #[test]
    fn values_grow_and_shrink_within_the_bound() {
        let hot = HotRows::new(2 * SET_BYTES);
        for len in [0, 1, 64, 63, 20, 1000, 1535, 3, 0] {
            let value = vec![b'v'; len];
            hot.update(1, b"\x01", Some(&value));
            assert_eq!(get(&hot, 1, b"\x01").is_ok(), len <= 1535, "{len}");
            assert_eq!(get(&hot, 1, b"\x01"), Ok(value));
        }
        hot.update(1, b"\x01", Some(&[0; ROW_MAX]));
        assert!(get(&hot, 1, b"\x01").is_err());
        assert_eq!(hot.usage(), (0, hot.fixed()));
    }

    #[test]
    fn memory_is_bounded_and_what_is_read_stays() {
        let budget = 64 << 10;
        let hot = HotRows::new(budget);
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
    fn rows_of_any_size_use_the_budget() {
        let budget = 1 << 20;
        for (value, share) in [(40, 0.45), (90, 0.7), (400, 0.8), (1500, 0.75)] {
            let hot = HotRows::new(budget);
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
        let hot = HotRows::new(0);
        hot.update(1, b"\x01k", Some(b"v"));
        hot.offer(1, b"\x01k", b"v", Version(0));
        assert!(get(&hot, 1, b"\x01k").is_err());
    }
}
