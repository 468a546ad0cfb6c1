//! A set of [cached rows](super): up to sixteen, in one piece of memory.

use crate::sys::huge_pages::{self, HugeVec};
use crate::sys::prefetch;

/// The most rows of a set.
const WAYS: usize = 16;
/// Bytes of a row before its key: `hash (8) ‖ key length (2) ‖ value length (2) ‖ room for the
/// value (2)`, in native byte order.
pub(in crate::storage) const HEAD: usize = 14;
/// Rows up to this size, key and value, are cached. Sixteen of them fit below 64 KiB, so a row's
/// start is a number of 16 bits.
pub(in crate::storage) const ROW_MAX: usize = 1536;
/// The most bytes of room for further rows, unless the smallest size class has more.
const MORE: usize = 512;
/// A set with more bytes of rows is crowded.
const CROWDED: usize = 4096;

/// A row of a set.
#[derive(Debug, Clone, Copy)]
pub struct Row<'s> {
    pub hash: u64,
    pub key: &'s [u8],
    pub value: &'s [u8],
    /// Bytes that its value may grow to.
    room: usize,
}

impl Row<'_> {
    fn size(&self) -> usize {
        HEAD + self.key.len() + self.room
    }
}

/// The lock and the first fields, which a look-up needs first, stand in one cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Set {
    /// A part of each row's hash, to find it by; 0 where there is no row.
    marks: [u16; WAYS],
    /// The rows, in any order and with gaps.
    memory: HugeVec<u8>,
    /// The offset of each row in `memory`.
    starts: [u16; WAYS],
    /// Changes with each commit that writes to a row of the set.
    pub version: u32,
    /// The bytes of the gaps.
    gaps: u32,
    /// The rows that were read since the hand passed, a bit for each.
    used: u16,
    rows: u8,
    hand: u8,
    /// How many bits of their hashes its rows share, which tells them from those of other sets.
    pub depth: u8,
}

/// The mark of a row with this hash: never 0.
fn mark(hash: u64) -> u16 {
    hash as u16 | 1
}

/// The largest size class of the allocator with at most half as many bytes more than `needed`, so
/// that few of the next rows need another one.
fn with_room(needed: usize) -> usize {
    let most = needed + (needed / 2).min(MORE);
    let mut room = huge_pages::usable(needed);
    loop {
        match huge_pages::usable(room + 1) {
            more if more <= most => room = more,
            _ => return room,
        }
    }
}

impl Set {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        usize::from(self.rows)
    }

    /// The bytes of memory allocated for the rows.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Whether the rows are so many, or so large, that they should be in two sets.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.rows() == WAYS || self.memory.len() > CROWDED
    }

    #[inline]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
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

    /// Prefetches the first two cache lines of the first row with this hash's mark.
    pub fn prefetch(&self, hash: u64) {
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
    pub fn row(&self, at: usize) -> Row<'_> {
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

    pub fn is_used(&self, at: usize) -> bool {
        self.used & (1 << at) != 0
    }

    /// Notes whether a row was read lately.
    #[inline]
    pub(super) fn set_used(&mut self, at: usize, used: bool) {
        self.used = (self.used & !(1 << at)) | (u16::from(used) << at);
    }

    /// Replaces the value of a row if it fits into the room of the old one, and uses half of it.
    pub fn overwrite(&mut self, at: usize, value: &[u8]) -> bool {
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

    pub fn remove(&mut self, at: usize) {
        let (start, size) = (usize::from(self.starts[at]), self.row(at).size());
        match start + size == self.memory.len() {
            true => self.memory.truncate(start),
            false => self.gaps += size as u32,
        }
        self.rows -= 1;
        let last = usize::from(self.rows);
        self.marks[at] = self.marks[last];
        self.starts[at] = self.starts[last];
        self.set_used(at, self.is_used(last));
        self.marks[last] = 0;
        self.set_used(last, false);
        if last == 0 {
            self.memory = HugeVec::default();
            self.gaps = 0;
        }
    }

    pub fn insert(&mut self, hash: u64, key: &[u8], value: &[u8]) {
        if key.len() + value.len() > ROW_MAX {
            return;
        }
        let room = value.len().next_multiple_of(8);
        let size = HEAD + key.len() + room;
        if self.rows() == WAYS {
            self.evict();
        }
        if self.memory.len() + size > self.memory.capacity() {
            self.rebuild(with_room(self.live() + size));
        }
        let at = self.rows();
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

    /// Moves the rows whose next bit of the hash, counted from `bit` on, is set to `other`, which
    /// is empty. From now on both are divided by one more bit.
    pub fn split(&mut self, other: &mut Set, bit: u32) {
        let next = bit + u32::from(self.depth);
        let moves = |row: Row<'_>| row.hash >> next & 1 != 0;
        let all = (0..self.rows()).map(|at| self.row(at));
        let size = all.filter(|row| moves(*row)).map(|row| row.size()).sum();
        if size > 0 {
            other.rebuild(size);
        }
        for at in (0..self.rows()).rev() {
            let row = self.row(at);
            if moves(row) {
                other.insert(row.hash, row.key, row.value);
                other.set_used(other.rows() - 1, self.is_used(at));
                self.remove(at);
            }
        }
        self.depth += 1;
        other.depth = self.depth;
        other.version = self.version;
    }

    /// Bytes of the rows, without the gaps.
    fn live(&self) -> usize {
        self.memory.len() - self.gaps as usize
    }

    /// Closes the gaps, and reserves `capacity` bytes, or as many as the allocator takes for them.
    fn rebuild(&mut self, capacity: usize) {
        let mut memory = HugeVec::with_capacity(huge_pages::usable(capacity));
        for at in 0..self.rows() {
            let start = usize::from(self.starts[at]);
            let row = &self.memory[start..start + self.row(at).size()];
            self.starts[at] = memory.len() as u16;
            memory.extend_from_slice(row);
        }
        self.memory = memory;
        self.gaps = 0;
    }

    /// Drops the first row after the set's own hand that was not read since that hand passed.
    fn evict(&mut self) {
        loop {
            let at = usize::from(self.hand) % self.rows();
            if !self.is_used(at) {
                return self.remove(at);
            }
            self.set_used(at, false);
            self.hand = (at + 1) as u8;
        }
    }

    /// Called when the hand passes: drops the rows that were not read since it last did, or all.
    /// Returns whether it dropped any.
    pub fn sweep(&mut self, all: bool) -> bool {
        let before = self.rows;
        for at in (0..self.rows()).rev() {
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
