//! The table of SCAN cursors.
//!
//! Keys are stored in lexicographic order, but clients expect numbers as cursors. So the server
//! keeps a bounded table of places (a key, or any bytes between two keys) for which clients
//! have cursors. A cursor is a number derived from its place: as in Redis, any client may use
//! it any number of times and with any options. Scans of the same keys share their places.
//!
//! An unknown cursor (evicted by many others, or from before a restart) starts the scan over. A
//! client may then see keys twice, which SCAN permits, but misses none. The numbers are also
//! derived from a random key, so that cursors from before a restart are unknown. A scan ends
//! unless more other places than the table holds are requested between two of its calls.
//!
//! Keys may be long, so the table is bounded in bytes as well. The newest place is kept
//! whatever its length, as its scan could not continue otherwise.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

/// Bytes of the keys of all places together, except the newest one.
const BYTES_MAX: usize = 16 << 20;

/// Cursors are smaller than 2^53, so that clients can read them as doubles.
const CURSOR_MASK: u64 = (1 << 53) - 1;

#[derive(Debug)]
struct Place {
    key: Box<[u8]>,
    last_used: u64,
}

#[derive(Debug, Default)]
struct Table {
    places: HashMap<u64, Place>,
    /// Cursors by their last use, oldest first.
    by_use: BTreeMap<u64, u64>,
    clock: u64,
    /// Bytes of the keys of all places.
    bytes: usize,
}

impl Table {
    /// The cursor of this key, whose hash is `hash`, or a free one for it.
    fn cursor_of(&self, key: &[u8], hash: u64) -> u64 {
        let mut cursor = hash & CURSOR_MASK;
        // 0 is the cursor of the first call and of the end.
        let is_free = |cursor: u64| {
            let place = self.places.get(&cursor);
            cursor != 0 && place.is_none_or(|place| *place.key == *key)
        };
        while !is_free(cursor) {
            cursor = (cursor + 1) & CURSOR_MASK;
        }
        cursor
    }

    /// The place of this cursor; marks it as used now.
    fn touch(&mut self, cursor: u64) -> Option<&Place> {
        let place = self.places.get_mut(&cursor)?;
        self.clock += 1;
        self.by_use.remove(&place.last_used);
        place.last_used = self.clock;
        self.by_use.insert(self.clock, cursor);
        Some(place)
    }

    fn insert(&mut self, cursor: u64, key: &[u8]) {
        self.bytes += key.len();
        let place = Place {
            key: key.into(),
            last_used: 0,
        };
        self.places.insert(cursor, place);
    }

    /// Removes the least recently used places.
    fn evict(&mut self, max: usize) {
        while self.places.len() > 1 && (self.places.len() > max || self.bytes > BYTES_MAX) {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            let gone = self.places.remove(&oldest);
            self.bytes -= gone.map_or(0, |place| place.key.len());
        }
    }
}

/// The places that the cursors of SCAN stand for.
#[derive(Debug, Default)]
pub struct Cursors {
    hasher: RandomState,
    table: Mutex<Table>,
}

impl Cursors {
    /// The place at which a call that returned `cursor` stopped. `None`: unknown, so the scan
    /// starts over.
    pub fn place(&self, cursor: u64) -> Option<Box<[u8]>> {
        let mut table = self.table.lock();
        table.touch(cursor).map(|place| place.key.clone())
    }

    /// The cursor for a call that stopped at `key`. Keeps at most `max` places.
    pub fn remember(&self, key: &[u8], max: usize) -> u64 {
        let hash = self.hasher.hash_one(key);
        let mut table = self.table.lock();
        let cursor = table.cursor_of(key, hash);
        if table.touch(cursor).is_none() {
            table.insert(cursor, key);
            table.touch(cursor);
            table.evict(max);
        }
        cursor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_finds_its_place_until_it_is_forgotten() {
        let cursors = Cursors::default();
        let first = cursors.remember(b"a", 2);
        let second = cursors.remember(b"b", 2);
        assert_ne!(first, second);
        assert_eq!(cursors.place(first).as_deref(), Some(&b"a"[..]));
        // The least recently used place was evicted.
        cursors.remember(b"c", 2);
        assert_eq!(cursors.place(second), None);
        assert_eq!(cursors.place(first).as_deref(), Some(&b"a"[..]));
        assert_eq!(cursors.place(12345), None);
    }

    /// Two calls with the same cursor used to return the same next one, wherever they stopped,
    /// and cursors from before a restart were taken for others.
    #[test]
    fn a_cursor_is_of_one_place_and_one_run() {
        let cursors = Cursors::default();
        let short = cursors.remember(b"k010", 10);
        let long = cursors.remember(b"k500", 10);
        assert_ne!(short, long);
        assert_eq!(cursors.remember(b"k010", 10), short);
        assert_eq!(cursors.place(short).as_deref(), Some(&b"k010"[..]));
        let restarted = Cursors::default();
        restarted.remember(b"k900", 10);
        assert_eq!(restarted.place(short), None);
    }

    #[test]
    fn equal_hashes_get_different_cursors() {
        let mut table = Table::default();
        for (key, cursor) in [(b"a", 1), (b"b", 2), (b"a", 1)] {
            // Bits from 53 on do not count, and 0 is not a cursor.
            assert_eq!(table.cursor_of(key, 1 << 53), cursor);
            if table.touch(cursor).is_none() {
                table.insert(cursor, key);
            }
        }
        assert_eq!(table.places.len(), 2);
    }

    #[test]
    fn long_keys_push_out_what_is_older() {
        let cursors = Cursors::default();
        let held = || cursors.table.lock().bytes;
        let key = |n: u8| vec![n; 1 << 20];
        let all: Vec<u64> = (0..40).map(|n| cursors.remember(&key(n), 100)).collect();
        assert_eq!(held(), BYTES_MAX);
        assert_eq!(cursors.place(all[23]), None);
        assert!(all[24..].iter().all(|c| cursors.place(*c).is_some()));
        let huge = vec![b'h'; BYTES_MAX + 1];
        let last = cursors.remember(&huge, 100);
        assert_eq!(held(), huge.len());
        assert_eq!(cursors.place(all[39]), None);
        assert_eq!(cursors.place(last).as_deref(), Some(&huge[..]));
        cursors.remember(b"z", 100);
        assert_eq!(held(), 1);
        assert_eq!(cursors.table.lock().by_use.len(), 1);
    }

    #[test]
    fn cursors_fit_a_double() {
        let table = Table::default();
        assert!(table.cursor_of(b"k", u64::MAX) < 1 << 53);
    }
}
