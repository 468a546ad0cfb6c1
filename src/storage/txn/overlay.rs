//! The pending batch of a tick: rows written but not yet committed.
//!
//! Later commands of the tick read what earlier ones wrote, by point ([`Overlay::get`]) and by
//! range ([`Overlay::sorted_range`]). A command that fails is rolled back to its savepoint
//! ([`Overlay::rollback`]). A row that is written several times goes to RocksDB once.
//!
//! Keys and values stand in one arena, except long rows, which have memory of their own: an arena
//! that grows copies its contents, and a long row can be [freed](Overlay::free_long_rows) once the
//! batch of the commit holds it. A hash table finds the newest entry of a key, which links to older
//! ones. The sorted order for range reads is created by the first range read and maintained from
//! then on: most ticks need none.

use crate::encoding::system::KeyspaceId;
use crate::storage::cache::{ranges, rows};
use crate::storage::engine::RowHasher;
use crate::storage::engine::log_buffer::BATCH_FRAME;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hasher};

/// `prev` of the first entry of a key.
const NONE: u32 = u32::MAX;

/// The most groups of keys for which a common prefix is computed.
const KEY_GROUPS: usize = 32;

/// Up to so many unsorted entries are inserted one by one; more are sorted with all others.
const INSERT_ONE_BY_ONE: usize = 16;

/// How many rows ahead [`Overlay::for_each_row`] calls `expect`.
const EXPECTED: usize = 16;

/// A row of at least so many bytes has memory of its own.
const LONG_ROW: usize = 64 << 10;

/// Set in [`Entry::at`] if the rest of the number is an index into the long rows.
const LONG: usize = 1 << (usize::BITS - 1);

/// Bytes of the key and of the value of a long row that are kept when it is freed: more than the row
/// cache and the range cache accept of any row, so that they treat it the same.
const KEPT: usize = 2 << 10;
const _: () = assert!(KEPT > rows::ROW_MAX && KEPT > ranges::RANGE_BYTES);

#[derive(Debug, Clone, Copy)]
struct Entry {
    keyspace: KeyspaceId,
    hash: u64,
    /// The key's offset in the arena, or [`LONG`] and the index of a long row.
    at: usize,
    key_len: u32,
    /// Length of the value after the key; `NONE` for a deletion.
    value_len: u32,
    /// The entry of the same key that this one replaces.
    prev: u32,
    superseded: bool,
}

impl Entry {
    /// Key and value, and what may follow them.
    #[inline]
    fn bytes<'a>(&self, arena: &'a [u8], long: &'a [Vec<u8>]) -> &'a [u8] {
        match self.at & LONG {
            0 => &arena[self.at..],
            _ => &long[self.at & !LONG],
        }
    }
}

/// The state of a key in the batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Pending<'a> {
    /// The key was written.
    Put(&'a [u8]),
    /// The key was deleted.
    Deleted,
    /// The batch does not concern the key.
    Unknown,
}

/// A deletion of all rows in `[from, to)` of a keyspace.
#[derive(Debug, Clone)]
struct RangeDeletion {
    keyspace: KeyspaceId,
    from: Vec<u8>,
    to: Vec<u8>,
    /// Entries from this index on are newer than the deletion.
    at: u32,
}

/// The state to which [`Overlay::rollback`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    entries: usize,
    ranges: usize,
    arena: usize,
    long: usize,
}

/// One step of the batch, in the order in which it must be applied.
#[derive(Debug)]
pub enum Step<'a> {
    /// Write a row.
    Put(KeyspaceId, &'a [u8], &'a [u8]),
    /// Delete a row.
    Delete(KeyspaceId, &'a [u8]),
    /// Delete all rows in a range.
    DeleteRange(KeyspaceId, &'a [u8], &'a [u8]),
}

/// A row with a part of its key that mostly decides the order, so that whole keys are rarely
/// compared.
#[derive(Debug, Clone, Copy)]
struct Ranked {
    /// The keyspace and the tag of the key.
    group: u64,
    /// The bytes that follow the common prefix of all keys of this group.
    head: u64,
    entry: u32,
}

/// The common prefix of the keys with one keyspace and tag.
struct KeyGroup {
    group: u64,
    example: u32,
    /// The length of the common prefix, in bytes.
    common: usize,
}

/// The rows that a turn has written, newest first for each key.
#[derive(Debug, Default)]
pub struct Overlay {
    arena: Vec<u8>,
    /// Key and value of each long row, and the bytes of all.
    long: Vec<Vec<u8>>,
    long_bytes: usize,
    /// Whether the long rows are freed.
    is_freed: bool,
    entries: Vec<Entry>,
    index: HashTable<u32>,
    ranges: Vec<RangeDeletion>,
    /// The newest entry of each key among the first `sorted_upto` entries, by keyspace and key.
    sorted: Vec<u32>,
    sorted_upto: usize,
    ranked: Vec<Ranked>,
    hasher: RowHasher,
}

impl Overlay {
    /// An empty batch whose keys are hashed with `hasher`.
    pub fn new(hasher: RowHasher) -> Overlay {
        Overlay {
            hasher,
            ..Overlay::default()
        }
    }

    /// An upper bound of the bytes that all of it takes in a write batch.
    pub(in crate::storage) fn batch_bytes(&self) -> usize {
        let rows = self.entries.len() + self.ranges.len();
        let ranges = self.ranges.iter();
        let bounds: usize = ranges.map(|range| range.from.len() + range.to.len()).sum();
        self.bytes() + bounds + rows * BATCH_FRAME
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.ranges.is_empty()
    }

    /// Whether a range deletion is pending.
    pub(super) fn deletes_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Bytes of keys and values pending.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.long_bytes
    }

    /// Whether a row of this keyspace is written.
    pub(super) fn writes_to(&self, keyspace: KeyspaceId) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.keyspace == keyspace && entry.value_len != NONE)
    }

    /// Writes a row.
    pub fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
        self.push(keyspace, key, Some([value, &[]]));
    }

    /// Writes a row whose value is made of two parts.
    pub(super) fn put_parts(&mut self, keyspace: KeyspaceId, key: &[u8], value: [&[u8]; 2]) {
        self.push(keyspace, key, Some(value));
    }

    /// Deletes a row.
    pub fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) {
        self.push(keyspace, key, None);
    }

    /// Deletes all rows in `[from, to)`.
    pub fn delete_range(&mut self, keyspace: KeyspaceId, from: &[u8], to: &[u8]) {
        self.ranges.push(RangeDeletion {
            keyspace,
            from: from.to_vec(),
            to: to.to_vec(),
            at: self.entries.len() as u32,
        });
    }

    /// What is pending for a key.
    pub fn get(&self, keyspace: KeyspaceId, key: &[u8]) -> Pending<'_> {
        self.get_hashed(self.hash(keyspace, key), keyspace, key)
    }

    /// Like [`Overlay::get`], for a key whose [`Overlay::hash`] is known.
    pub(super) fn get_hashed(&self, hash: u64, keyspace: KeyspaceId, key: &[u8]) -> Pending<'_> {
        if self.is_empty() {
            return Pending::Unknown;
        }
        let found = self
            .index
            .find(hash, |&i| self.is_key(i, keyspace, key))
            .copied();
        match found {
            // The batch of the commit is being written.
            Some(i) if self.is_freed && self.entries[i as usize].at & LONG != 0 => Pending::Unknown,
            Some(i) if !self.range_covers(keyspace, key, i) => match self.value_of(i) {
                Some(value) => Pending::Put(value),
                None => Pending::Deleted,
            },
            Some(_) => Pending::Deleted,
            None if self.range_covers_stored(keyspace, key) => Pending::Deleted,
            None => Pending::Unknown,
        }
    }

    /// Whether a pending range deletion covers the stored row under this key.
    pub(super) fn range_covers_stored(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        self.ranges.iter().any(|r| r.covers(keyspace, key))
    }

    /// The state to which [`Overlay::rollback`] can return.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            entries: self.entries.len(),
            ranges: self.ranges.len(),
            arena: self.arena.len(),
            long: self.long.len(),
        }
    }

    /// Drops all that was written since `to`.
    pub fn rollback(&mut self, to: Savepoint) {
        self.ranges.truncate(to.ranges);
        while self.entries.len() > to.entries {
            let Some(entry) = self.entries.pop() else {
                break;
            };
            let i = self.entries.len() as u32;
            if let Ok(slot) = self.index.find_entry(entry.hash, |&at| at == i) {
                if entry.prev == NONE {
                    slot.remove();
                } else {
                    *slot.into_mut() = entry.prev;
                    self.entries[entry.prev as usize].superseded = false;
                }
            }
        }
        self.arena.truncate(to.arena);
        let gone = self.long.drain(to.long.min(self.long.len())..);
        self.long_bytes -= gone.map(|row| row.len()).sum::<usize>();
        if self.sorted_upto > to.entries {
            self.sorted.clear();
            self.sorted_upto = 0;
        }
    }

    /// The pending steps, only the newest state of each key, in the order in which they were
    /// written. Sorting them by key would take as much time as it saves in the memtable, and a commit
    /// of a million sorted rows holds the commit lock no shorter.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let mut next_range = 0;
        let mut next_entry = 0;
        std::iter::from_fn(move || {
            loop {
                if let Some(range) = self.ranges.get(next_range)
                    && range.at as usize <= next_entry
                {
                    next_range += 1;
                    return Some(Step::DeleteRange(range.keyspace, &range.from, &range.to));
                }
                let entry = self.entries.get(next_entry)?;
                let i = next_entry as u32;
                next_entry += 1;
                if entry.superseded {
                    continue;
                }
                return Some(self.step(i));
            }
        })
    }

    /// Keyspace and key of every row that is written under a tag.
    pub(super) fn puts_under(&self, tag: u8) -> impl Iterator<Item = (KeyspaceId, &[u8])> {
        let entries = (0u32..).zip(&self.entries);
        entries.filter_map(move |(i, entry)| {
            let key = self.key_of(i);
            let is_put = !entry.superseded && entry.value_len != NONE;
            (is_put && key.first() == Some(&tag)).then_some((entry.keyspace, key))
        })
    }

    /// Whether a row of this keyspace will be written.
    pub(super) fn puts_into(&self, keyspace: KeyspaceId) -> bool {
        let mut entries = self.entries.iter();
        entries
            .any(|entry| entry.keyspace == keyspace && !entry.superseded && entry.value_len != NONE)
    }

    /// Calls `each` with keyspace, [`Overlay::hash`], key and newest value (`None`: deleted) of
    /// every row that was written or deleted by itself. Calls `expect` with keyspace, hash and key
    /// some rows before, for prefetches.
    pub(super) fn for_each_row(
        &self,
        mut expect: impl FnMut(KeyspaceId, u64, &[u8]),
        mut each: impl FnMut(KeyspaceId, u64, &[u8], Option<&[u8]>),
    ) {
        for first in (0..self.entries.len()).step_by(EXPECTED) {
            let end = self.entries.len().min(first + EXPECTED);
            let newest = || (first..end).filter(|&i| !self.entries[i].superseded);
            for i in newest() {
                let entry = &self.entries[i];
                expect(entry.keyspace, entry.hash, self.key_of(i as u32));
            }
            for i in newest() {
                let entry = &self.entries[i];
                let i = i as u32;
                let key = self.key_of(i);
                let covered = self.range_covers(entry.keyspace, key, i);
                let value = self.value_of(i).filter(|_| !covered);
                each(entry.keyspace, entry.hash, key, value);
            }
        }
    }

    /// Keyspace and bounds of every range that is deleted.
    pub(super) fn deleted_ranges(&self) -> impl Iterator<Item = (KeyspaceId, &[u8], &[u8])> {
        let ranges = self.ranges.iter();
        ranges.map(|range| (range.keyspace, range.from.as_slice(), range.to.as_slice()))
    }

    /// Frees long rows, which the batch of the commit holds as well, but their beginnings.
    /// [`Overlay::for_each_row`] still passes these; look-ups find them no more.
    pub(in crate::storage) fn free_long_rows(&mut self) {
        if self.long.is_empty() {
            return;
        }
        self.is_freed = true;
        for entry in self.entries.iter_mut().filter(|entry| entry.at & LONG != 0) {
            let row = &mut self.long[entry.at & !LONG];
            let key_len = entry.key_len as usize;
            let kept = key_len.min(KEPT);
            row.drain(kept..key_len);
            entry.key_len = kept as u32;
            if entry.value_len != NONE {
                entry.value_len = entry.value_len.min(KEPT as u32);
                row.truncate(kept + entry.value_len as usize);
            }
            row.shrink_to_fit();
        }
    }

    /// Drops everything; keeps the memory unless it has grown large.
    pub fn clear(&mut self) {
        const KEEP_BYTES: usize = 1 << 20;
        const KEEP_ENTRIES: usize = 1 << 14;
        self.arena.clear();
        self.long.clear();
        self.long.shrink_to(KEEP_ENTRIES);
        self.long_bytes = 0;
        self.is_freed = false;
        self.entries.clear();
        self.index.clear();
        self.ranges.clear();
        self.sorted.clear();
        self.sorted_upto = 0;
        self.arena.shrink_to(KEEP_BYTES);
        self.entries.shrink_to(KEEP_ENTRIES);
        self.sorted.shrink_to(KEEP_ENTRIES);
        self.ranked.clear();
        self.ranked.shrink_to(KEEP_ENTRIES);
        if self.index.capacity() > 2 * KEEP_ENTRIES {
            self.index = HashTable::new();
        }
    }

    /// The positions in the sorted order of the rows in `[from, to)`, for [`Overlay::sorted_row`].
    /// Rows covered by a later range deletion read as deleted.
    pub(super) fn sorted_range(
        &mut self,
        keyspace: KeyspaceId,
        from: &[u8],
        to: &[u8],
    ) -> std::ops::Range<usize> {
        self.sort();
        let start = self.lower_bound(keyspace, from);
        let end = self.lower_bound(keyspace, to);
        start..end.max(start)
    }

    /// Key and value (`None`: deleted) of the row at a position of the sorted order.
    pub(super) fn sorted_row(&self, position: usize) -> (&[u8], Option<&[u8]>) {
        let i = self.sorted[position];
        let key = self.key_of(i);
        if self.range_covers(self.entries[i as usize].keyspace, key, i) {
            return (key, None);
        }
        (key, self.value_of(i))
    }

    fn push(&mut self, keyspace: KeyspaceId, key: &[u8], value: Option<[&[u8]; 2]>) {
        let hash = self.hash(keyspace, key);
        let parts = value.unwrap_or_default();
        let bytes = key.len() + parts[0].len() + parts[1].len();
        let at = match bytes < LONG_ROW {
            true => {
                let at = self.arena.len();
                self.arena.extend_from_slice(key);
                for part in parts {
                    self.arena.extend_from_slice(part);
                }
                at
            }
            false => self.push_long([key, parts[0], parts[1]].concat()),
        };
        let i = self.entries.len() as u32;
        let mut entry = Entry {
            keyspace,
            hash,
            at,
            key_len: key.len() as u32,
            value_len: value.map_or(NONE, |[a, b]| (a.len() + b.len()) as u32),
            prev: NONE,
            superseded: false,
        };
        let Overlay {
            index,
            entries,
            arena,
            long,
            ..
        } = self;
        let found = index.entry(
            hash,
            |&at| {
                let e = &entries[at as usize];
                e.hash == hash
                    && e.keyspace == keyspace
                    && &e.bytes(arena, long)[..e.key_len as usize] == key
            },
            |&at| entries[at as usize].hash,
        );
        match found {
            TableEntry::Occupied(mut slot) => {
                entry.prev = *slot.get();
                *slot.get_mut() = i;
            }
            TableEntry::Vacant(slot) => {
                slot.insert(i);
            }
        }
        if entry.prev != NONE {
            self.entries[entry.prev as usize].superseded = true;
        }
        self.entries.push(entry);
    }

    /// Stores a long row. Returns its [`Entry::at`].
    #[cold]
    fn push_long(&mut self, row: Vec<u8>) -> usize {
        self.long_bytes += row.len();
        self.long.push(row);
        LONG | (self.long.len() - 1)
    }

    /// The hash of a row's key.
    pub fn hash(&self, keyspace: KeyspaceId, key: &[u8]) -> u64 {
        let (tag, rest) = key
            .split_first()
            .map_or((0, key), |(tag, rest)| (*tag, rest));
        self.hash_tagged(keyspace, tag, rest)
    }

    /// The hash of the row key `tag ‖ rest`.
    pub(super) fn hash_tagged(&self, keyspace: KeyspaceId, tag: u8, rest: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(rest);
        hasher.write_u64(u64::from(keyspace.0) << 8 | u64::from(tag));
        hasher.finish()
    }

    fn step(&self, i: u32) -> Step<'_> {
        let keyspace = self.entries[i as usize].keyspace;
        match self.value_of(i) {
            Some(value) => Step::Put(keyspace, self.key_of(i), value),
            None => Step::Delete(keyspace, self.key_of(i)),
        }
    }

    fn is_key(&self, i: u32, keyspace: KeyspaceId, key: &[u8]) -> bool {
        self.entries[i as usize].keyspace == keyspace && self.key_of(i) == key
    }

    fn key_of(&self, i: u32) -> &[u8] {
        let e = &self.entries[i as usize];
        &e.bytes(&self.arena, &self.long)[..e.key_len as usize]
    }

    fn value_of(&self, i: u32) -> Option<&[u8]> {
        let e = &self.entries[i as usize];
        let at = e.key_len as usize;
        let value = || &e.bytes(&self.arena, &self.long)[at..at + e.value_len as usize];
        (e.value_len != NONE).then(value)
    }

    fn range_covers(&self, keyspace: KeyspaceId, key: &[u8], entry: u32) -> bool {
        !self.ranges.is_empty()
            && self
                .ranges
                .iter()
                .any(|r| r.at > entry && r.covers(keyspace, key))
    }

    fn sort_key(&self, i: u32) -> (KeyspaceId, &[u8]) {
        (self.entries[i as usize].keyspace, self.key_of(i))
    }

    /// The position in the sorted order of the first row at or after `key`.
    pub(super) fn lower_bound(&self, keyspace: KeyspaceId, key: &[u8]) -> usize {
        self.sorted
            .partition_point(|&i| self.sort_key(i) < (keyspace, key))
    }

    /// Updates the sorted order.
    fn sort(&mut self) {
        let new = self.entries.len() - self.sorted_upto;
        if new == 0 {
            return;
        }
        let fresh = self.sorted_upto as u32..self.entries.len() as u32;
        if new <= INSERT_ONE_BY_ONE {
            for i in fresh {
                if self.entries[i as usize].superseded {
                    continue;
                }
                let (keyspace, key) = self.sort_key(i);
                let at = self.lower_bound(keyspace, key);
                let same = self
                    .sorted
                    .get(at)
                    .is_some_and(|&other| self.sort_key(other) == (keyspace, key));
                if same {
                    self.sorted[at] = i;
                } else {
                    self.sorted.insert(at, i);
                }
            }
        } else {
            let mut all = std::mem::take(&mut self.sorted);
            all.extend(fresh);
            all.retain(|&i| !self.entries[i as usize].superseded);
            let mut ranked = std::mem::take(&mut self.ranked);
            self.rank(&all, &mut ranked);
            ranked.sort_unstable_by(|a, b| {
                let by_rank = (a.group, a.head).cmp(&(b.group, b.head));
                by_rank.then_with(|| self.key_of(a.entry).cmp(self.key_of(b.entry)))
            });
            all.clear();
            all.extend(ranked.iter().map(|row| row.entry));
            self.sorted = all;
            self.ranked = ranked;
        }
        self.sorted_upto = self.entries.len();
    }

    /// Computes the rank of rows. Keys of a tick have much in common: the beginning of their names,
    /// or their collection.
    fn rank(&self, rows: &[u32], ranked: &mut Vec<Ranked>) {
        let mut groups: SmallVec<[KeyGroup; KEY_GROUPS]> = SmallVec::new();
        ranked.clear();
        for &entry in rows {
            let (keyspace, key) = self.sort_key(entry);
            let tag = key.first().copied().unwrap_or_default();
            let group = u64::from(keyspace.0) << 8 | u64::from(tag);
            match groups.iter_mut().find(|known| known.group == group) {
                Some(known) => {
                    let example = &self.key_of(known.example)[..known.common];
                    if !key.starts_with(example) {
                        let pairs = example.iter().zip(key);
                        known.common = pairs.take_while(|(a, b)| a == b).count();
                    }
                }
                None => {
                    if groups.len() < KEY_GROUPS {
                        groups.push(KeyGroup {
                            group,
                            example: entry,
                            common: key.len(),
                        });
                    }
                }
            }
            ranked.push(Ranked {
                group,
                head: 0,
                entry,
            });
        }
        for row in ranked {
            let known = groups.iter().find(|known| known.group == row.group);
            let common = known.map_or(0, |known| known.common);
            row.head = big_endian(&self.key_of(row.entry)[common..]);
        }
    }
}

/// The first eight bytes, padded with zeros, as a number with the same order.
fn big_endian(bytes: &[u8]) -> u64 {
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_be_bytes(*whole);
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

impl RangeDeletion {
    fn covers(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        self.keyspace == keyspace && self.from.as_slice() <= key && key < self.to.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const KS: KeyspaceId = KeyspaceId(0);

    #[derive(Debug, Clone)]
    enum Op {
        Put(u8, u8),
        Delete(u8),
        DeleteRange(u8, u8),
        Save,
        Rollback,
        Range(u8, u8),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..32u8, any::<u8>()).prop_map(|(k, v)| Op::Put(k, v)),
            3 => (0..32u8).prop_map(Op::Delete),
            1 => (0..32u8, 0..32u8).prop_map(|(a, b)| Op::DeleteRange(a.min(b), a.max(b))),
            1 => Just(Op::Save),
            1 => Just(Op::Rollback),
            3 => (0..32u8, 0..33u8).prop_map(|(a, b)| Op::Range(a, b)),
        ]
    }

    #[test]
    fn a_write_batch_takes_no_more_than_its_room() {
        let (mut overlay, mut batch) = (Overlay::default(), rocksdb::WriteBatch::default());
        let head = batch.size_in_bytes();
        for len in [0, 1, 127, 128, 20_000, 3_000_000] {
            let (key, value) = (vec![b'k'; len.min(300)], vec![b'v'; len]);
            overlay.put(KS, &key, &value);
            batch.put(&key, &value);
            overlay.delete(KS, &key);
            batch.delete(&key);
            overlay.delete_range(KS, b"a", &key);
            batch.delete_range(b"a".as_slice(), &key);
        }
        // The rows belong to the default column family, whose number takes no space there.
        let used = batch.size_in_bytes() - head + 5 * batch.len();
        assert!(used <= overlay.batch_bytes(), "{used}");
    }

    /// The model's state of a key: `None` unknown, `Some(None)` deleted.
    type Model = BTreeMap<u8, Option<u8>>;

    fn state_of(overlay: &Overlay, key: u8) -> Option<Option<u8>> {
        match overlay.get(KS, &[key]) {
            Pending::Put(v) => Some(Some(v[0])),
            Pending::Deleted => Some(None),
            Pending::Unknown => None,
        }
    }

    proptest! {
        #[test]
        fn rows_are_sorted_by_keyspace_and_key(
            // Many keyspaces: more groups of keys than prefixes are computed for.
            keys in prop_oneof![
                proptest::collection::vec((0..3u32, "[ab]{0,12}"), 0..200),
                proptest::collection::vec((0..40u32, "[ab]{0,12}"), 0..400),
            ],
        ) {
            let mut overlay = Overlay::default();
            for (keyspace, key) in &keys {
                overlay.put(KeyspaceId(*keyspace), key.as_bytes(), b"");
            }
            overlay.sort();
            let sorted: Vec<_> = overlay.sorted.iter().map(|&i| overlay.sort_key(i)).collect();
            let mut expected: Vec<_> = keys
                .iter()
                .map(|(keyspace, key)| (KeyspaceId(*keyspace), key.as_bytes()))
                .collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(sorted, expected);
        }

        #[test]
        fn behaves_like_a_map(ops in proptest::collection::vec(op(), 0..200)) {
            let mut overlay = Overlay::default();
            let mut model = Model::new();
            let mut saved = (overlay.savepoint(), model.clone());
            for op in ops {
                match op {
                    Op::Put(k, v) => { overlay.put(KS, &[k], &[v]); model.insert(k, Some(v)); }
                    Op::Delete(k) => { overlay.delete(KS, &[k]); model.insert(k, None); }
                    Op::DeleteRange(a, b) => {
                        overlay.delete_range(KS, &[a], &[b]);
                        for k in a..b { model.insert(k, None); }
                    }
                    Op::Save => saved = (overlay.savepoint(), model.clone()),
                    Op::Rollback => { overlay.rollback(saved.0); model = saved.1.clone(); }
                    Op::Range(a, b) => {
                        let rows: Vec<(u8, Option<u8>)> = overlay
                            .sorted_range(KS, &[a], &[b])
                            .map(|at| { let (k, v) = overlay.sorted_row(at); (k[0], v.map(|v| v[0])) })
                            .collect();
                        for pair in rows.windows(2) { prop_assert!(pair[0].0 < pair[1].0); }
                        for (k, v) in &rows { prop_assert_eq!(model.get(k), Some(v)); }
                        for (k, v) in model.range(a..b.max(a)) {
                            prop_assert!(v.is_none() || rows.contains(&(*k, *v)));
                        }
                    }
                }
                for k in 0..32 {
                    prop_assert_eq!(state_of(&overlay, k), model.get(&k).copied());
                }
            }
            let mut applied = Model::new();
            for step in overlay.steps() {
                match step {
                    Step::Put(_, k, v) => { applied.insert(k[0], Some(v[0])); }
                    Step::Delete(_, k) => { applied.insert(k[0], None); }
                    Step::DeleteRange(_, a, b) => for k in a[0]..b[0] { applied.insert(k, None); },
                }
            }
            prop_assert_eq!(applied, model);
        }
    }
}
