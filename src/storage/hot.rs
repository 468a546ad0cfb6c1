//! Hot rows: copies in memory of rows that were read or written lately, so
//! that a look-up of a popular key never descends into RocksDB.
//!
//! A fixed number of sets, each behind a lock of its own and bounded in bytes;
//! within a set the rows that nobody has read since the hand passed them go
//! first. A row's place is given by a hash of its key that only this process
//! knows, mixed with its keyspace's seed: clearing a keyspace is giving it
//! another seed.
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
use crate::encoding::keys::RowKey;
use crate::encoding::tag;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Rows of a set, at the most.
const WAYS: usize = 16;
/// Bytes of a set that the number of sets is made for.
const SET_BYTES: u64 = 4096;
/// What a row costs besides its bytes.
const ROW_OVERHEAD: usize = 48;
/// Rows up to this size, key and value, have a place.
const ROW_MAX: usize = 1536;

/// The directions of a map's runs, as [`super::runs::names`] orders them.
const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// How many sets INFO looks at.
const USAGE_SETS: usize = 1024;

/// Which state of a set a look-up has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u32);

#[derive(Debug)]
struct Row {
    hash: u64,
    /// Read since the hand passed.
    used: bool,
    key_len: u16,
    value_len: u16,
    /// Key and value, and perhaps room for a longer value.
    bytes: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Set {
    /// A part of each row's hash, to find it by.
    marks: [u16; WAYS],
    version: u32,
    bytes: u32,
    hand: u8,
    rows: Vec<Row>,
}

/// See the module.
#[derive(Debug)]
pub struct HotRows {
    sets: Box<[Mutex<Set>]>,
    set_bytes: AtomicU32,
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
        let sets = match budget / SET_BYTES {
            0 => 0,
            sets => 1 << sets.min(1 << 24).ilog2(),
        };
        let hot = HotRows {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            set_bytes: AtomicU32::new(0),
        };
        hot.set_budget(budget);
        hot
    }

    /// Changes how many bytes may be held; what is too much goes when its set
    /// is written to next.
    pub fn set_budget(&self, budget: u64) {
        let each = budget / (self.sets.len().max(1) as u64);
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        self.set_bytes.store(each, Ordering::Relaxed);
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
                let row = &mut set.rows[at];
                row.used = true;
                Ok(look(row.value()))
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
                && let Some(found) = look(direction, set.rows[at].value())
            {
                set.rows[at].used = true;
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
        let mut set = set.lock();
        if set.version != seen.0 {
            return;
        }
        if let Some(at) = set.find(hash, name) {
            if std::mem::take(&mut set.rows[at].used) && !continues {
                return;
            }
            set.remove(at);
        }
        set.insert(hash, name, run, self.set_bytes.load(Ordering::Relaxed));
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
        let mut set = set.lock();
        set.version = set.version.wrapping_add(1);
        for (name, direction) in names.iter().zip(DIRECTIONS) {
            let Some(at) = set.find(hash, name) else {
                continue;
            };
            let Some(run) = change(direction, set.rows[at].value()) else {
                continue;
            };
            if !run.is_empty() && set.rows[at].overwrite(&run) {
                continue;
            }
            let used = set.rows[at].used;
            set.remove(at);
            if !run.is_empty() {
                set.insert(hash, name, &run, self.set_bytes.load(Ordering::Relaxed));
                if let Some(at) = set.find(hash, name) {
                    set.rows[at].used = used;
                }
            }
        }
    }

    /// Has the processor fetch what a look-up of a row will need first, while
    /// the caller does something else.
    pub fn prefetch(&self, hash: u64) {
        if let Some(set) = self.set(hash) {
            std::hint::black_box(set.is_locked());
        }
    }

    /// Takes in a row as RocksDB had it, unless its set has changed since `seen`.
    pub fn offer(&self, hash: u64, key: &[u8], value: &[u8], seen: Version) {
        let Some(set) = self.set(hash) else {
            return;
        };
        let mut set = set.lock();
        // Another reader may have been faster.
        if set.version == seen.0 && set.find(hash, key).is_none() {
            set.insert(hash, key, value, self.set_bytes.load(Ordering::Relaxed));
        }
    }

    /// Brings a row up to date that a commit has written (`None`: deleted).
    pub fn update(&self, hash: u64, key: &[u8], value: Option<&[u8]>) {
        let Some(set) = self.set(hash) else {
            return;
        };
        let mut set = set.lock();
        set.version = set.version.wrapping_add(1);
        let found = set.find(hash, key);
        if let (Some(at), Some(value)) = (found, value)
            && set.rows[at].overwrite(value)
        {
            return;
        }
        if let Some(at) = found {
            set.remove(at);
        }
        if let Some(value) = value {
            set.insert(hash, key, value, self.set_bytes.load(Ordering::Relaxed));
        }
    }

    /// Rows held, and their bytes: about, if there are many sets, of which only
    /// some are looked at.
    pub fn usage(&self) -> (u64, u64) {
        let step = (self.sets.len() / USAGE_SETS).max(1);
        let sample = self.sets.iter().step_by(step);
        let (rows, bytes) = sample.fold((0, 0), |(rows, bytes), set| {
            let set = set.lock();
            (rows + set.rows.len() as u64, bytes + u64::from(set.bytes))
        });
        (rows * step as u64, bytes * step as u64)
    }

    /// Calls `each` with hash, key and value of every row.
    pub(super) fn for_each(&self, mut each: impl FnMut(u64, &[u8], &[u8])) {
        for set in &self.sets {
            for row in &set.lock().rows {
                each(row.hash, row.key(), row.value());
            }
        }
    }

    fn set(&self, hash: u64) -> Option<&Mutex<Set>> {
        // The number of sets is a power of two, or 0.
        let mask = self.sets.len().wrapping_sub(1);
        self.sets.get((hash >> 16) as usize & mask)
    }
}

impl Row {
    fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.key_len)]
    }

    fn value(&self) -> &[u8] {
        let from = usize::from(self.key_len);
        &self.bytes[from..from + usize::from(self.value_len)]
    }

    fn cost(&self) -> u32 {
        (self.bytes.len() + ROW_OVERHEAD) as u32
    }

    /// Replaces the value if it fits into the memory of the old one.
    fn overwrite(&mut self, value: &[u8]) -> bool {
        let from = usize::from(self.key_len);
        let room = self.bytes.len() - from;
        if value.len() > room || value.len() < room / 2 {
            return false;
        }
        self.bytes[from..from + value.len()].copy_from_slice(value);
        self.value_len = value.len() as u16;
        true
    }
}

impl Set {
    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let mark = hash as u16;
        let marks = &self.marks[..self.rows.len()];
        marks.iter().enumerate().find_map(|(at, m)| {
            let row = &self.rows[at];
            (*m == mark && row.hash == hash && row.key() == key).then_some(at)
        })
    }

    fn remove(&mut self, at: usize) {
        let row = self.rows.swap_remove(at);
        self.marks[at] = self.marks[self.rows.len()];
        self.bytes -= row.cost();
    }

    fn insert(&mut self, hash: u64, key: &[u8], value: &[u8], set_bytes: u32) {
        let len = key.len() + value.len();
        let cost = (len + ROW_OVERHEAD) as u32;
        if len > ROW_MAX || cost > set_bytes {
            return;
        }
        while self.rows.len() == WAYS || self.bytes + cost > set_bytes {
            self.evict();
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        self.marks[self.rows.len()] = hash as u16;
        self.rows.push(Row {
            hash,
            used: false,
            key_len: key.len() as u16,
            value_len: value.len() as u16,
            bytes: bytes.into_boxed_slice(),
        });
        self.bytes += cost;
    }

    /// Drops the first row behind the hand that was not read since it passed last.
    fn evict(&mut self) {
        loop {
            let at = usize::from(self.hand) % self.rows.len();
            let row = &mut self.rows[at];
            if !std::mem::take(&mut row.used) {
                return self.remove(at);
            }
            self.hand = (at + 1) as u8;
        }
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
        hot.update(7 + (1 << 63), b"\x01other", Some(b"v"));
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
        let hot = HotRows::new(SET_BYTES);
        for len in [0, 1, 64, 63, 20, 1000, 1535, 3, 0] {
            let value = vec![b'v'; len];
            hot.update(1, b"\x01", Some(&value));
            assert_eq!(get(&hot, 1, b"\x01").is_ok(), len <= 1535, "{len}");
            assert_eq!(get(&hot, 1, b"\x01"), Ok(value));
        }
        hot.update(1, b"\x01", Some(&[0; ROW_MAX]));
        assert!(get(&hot, 1, b"\x01").is_err());
        assert_eq!(hot.usage(), (0, 0));
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
        hot.set_budget(budget / 4);
        for i in 0..10_000u64 {
            hot.update(hash(i), &i.to_be_bytes(), Some(&[1; 100]));
        }
        assert!(hot.usage().1 <= budget / 4);
    }

    #[test]
    fn without_a_budget_nothing_is_kept() {
        let hot = HotRows::new(0);
        hot.update(1, b"\x01k", Some(b"v"));
        hot.offer(1, b"\x01k", b"v", Version(0));
        assert!(get(&hot, 1, b"\x01k").is_err());
    }
}
