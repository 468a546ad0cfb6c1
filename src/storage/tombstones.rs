//! The tombstones that deleted rows leave until compaction has removed them.
//!
//! Every range read skips them one by one, and what they delete keeps its space. So after many
//! deletions a background thread flushes the memtable of the DB ([`Engine::tidy`]), and compaction
//! prefers table files that are full of tombstones. A deleted range is one tombstone, whatever it
//! covers: its rows are compacted by request. Until that is done there may be a million tombstones to
//! every key; RANDOMKEY then falls back on landmarks: keys of the DB that existed lately. They are
//! only hints: a caller must check that such a key still exists.

use crate::encoding::{keys, tag};
use crate::storage::engine::deletions::{Deletions, LANDMARK_BYTES, LANDMARKS, RowRange};
use crate::storage::engine::{Engine, Keyspace};
use crate::storage::txn::View;
use crate::storage::{DbIndex, Result};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Fewer deletions than this start no flush while more keep coming.
const REMOVED_MIN: u64 = 16_384;

/// Fewer deletions than this start no flush after they have stopped.
const REMOVED_AT_REST_MIN: u64 = 1024;

/// The most requested compactions of a DB; further ones are dropped.
const COMPACTIONS: usize = 256;

/// A deleted range with less in the tables is left to compactions that come anyway.
const RANGE_BYTES_MIN: u64 = 1 << 20;

/// Rows between two calls of `stop`.
const ROWS_AT_ONCE: u32 = 4096;

impl View {
    /// The places of up to `max` different landmarks of a DB in random order.
    pub fn landmarks(&self, db: DbIndex, max: usize) -> Vec<Vec<u8>> {
        let Some(keyspace) = self.keyspace(db) else {
            return Vec::new();
        };
        let landmarks = keyspace.deletions.landmarks.lock();
        let mut order: Vec<usize> = (0..landmarks.len()).collect();
        fastrand::shuffle(&mut order);
        let chosen = order.into_iter().take(max);
        chosen.map(|at| landmarks[at].to_vec()).collect()
    }

    /// Requests a compaction of the rows in `[from, to)` in the background, because there are many
    /// tombstones among them.
    pub fn request_compaction(&self, db: DbIndex, from: &[u8], to: &[u8]) {
        if let Some(keyspace) = self.keyspace(db) {
            let mut compactions = keyspace.deletions.compactions.lock();
            if compactions.len() < COMPACTIONS {
                compactions.push((from.into(), to.into()));
            }
        }
    }

    /// Makes the key at a place a landmark, perhaps instead of another one.
    pub fn note_landmark(&self, db: DbIndex, place: &[u8]) {
        if let Some(keyspace) = self.keyspace(db) {
            keyspace.deletions.note_landmark(place);
        }
    }
}

impl Engine {
    /// Compacts the requested ranges. Flushes the memtables whose tombstones wait for nothing more. In
    /// DBs from which many keys were deleted since the last time, at least as many as are left, chooses
    /// new landmarks and flushes the memtable, so that compaction removes the tombstones. Takes long;
    /// `stop` is called now and then.
    pub fn tidy(&self, stop: impl Fn() -> bool) -> Result<()> {
        for (_, keyspace) in self.all_keyspaces() {
            if self.are_tombstones_due(&keyspace)? {
                self.write_tombstones(&keyspace)?;
            }
            let compactions = std::mem::take(&mut *keyspace.deletions.compactions.lock());
            for (from, to) in compactions {
                if stop() {
                    return Ok(());
                }
                self.compact_rows(&keyspace, &from, &to);
            }
            let Deletions { keys, seen, .. } = &keyspace.deletions;
            let now = keys.load(Ordering::Relaxed);
            let at_rest = seen.swap(now, Ordering::Relaxed) == now;
            let enough = match at_rest {
                true => REMOVED_AT_REST_MIN,
                false => REMOVED_MIN,
            };
            if now < enough.max(keyspace.counts().keys) {
                continue;
            }
            if self.choose_landmarks(&keyspace, &stop)? {
                return Ok(());
            }
            keys.fetch_sub(now, Ordering::Relaxed);
            self.flush_keyspace(&keyspace)?;
        }
        Ok(())
    }

    fn are_tombstones_due(&self, keyspace: &Keyspace) -> Result<bool> {
        let now = Instant::now();
        let mut pending = keyspace.deletions.pending.lock();
        if !pending.should_look(now) {
            return Ok(false);
        }
        let name = "rocksdb.num-deletes-active-mem-table";
        let tombstones = self.db.property_int_value_cf(&keyspace.cf, name)?;
        let ranges = keyspace.deletions.ranges.lock().len();
        Ok(pending.is_due(tombstones.unwrap_or(0), ranges, now))
    }

    /// Flushes a memtable because of its tombstones, and requests compactions of long ranges that were
    /// deleted.
    pub(in crate::storage) fn write_tombstones(&self, keyspace: &Keyspace) -> Result<()> {
        self.flush_keyspace(keyspace)?;
        let ranges = std::mem::take(&mut *keyspace.deletions.ranges.lock());
        let is_long = |(from, to): &RowRange| {
            let range = rocksdb::Range::new(from, to);
            let sizes = self.db.get_approximate_sizes_cf(&keyspace.cf, &[range]);
            sizes.iter().sum::<u64>() >= RANGE_BYTES_MIN
        };
        let long = ranges.into_iter().filter(is_long);
        let mut compactions = keyspace.deletions.compactions.lock();
        let room = COMPACTIONS.saturating_sub(compactions.len());
        compactions.extend(long.take(room));
        Ok(())
    }

    /// Draws landmarks from all keys with equal probability (reservoir sampling). Returns whether
    /// it was stopped.
    fn choose_landmarks(&self, keyspace: &Keyspace, stop: &impl Fn() -> bool) -> Result<bool> {
        let mut read = rocksdb::ReadOptions::default();
        read.set_total_order_seek(true);
        read.fill_cache(false);
        read.set_iterate_upper_bound([tag::META + 1]);
        let mut rows = self.db.raw_iterator_cf_opt(&keyspace.cf, read);
        rows.seek([tag::META]);
        let mut chosen: Vec<Box<[u8]>> = Vec::new();
        let (mut seen, mut until_look) = (0usize, ROWS_AT_ONCE);
        while let Some(row_key) = rows.key() {
            let key = keys::place_of_meta(row_key)?;
            if key.len() <= LANDMARK_BYTES {
                let place = fastrand::usize(..=seen);
                match chosen.get_mut(place) {
                    _ if seen < LANDMARKS => chosen.push(key.into()),
                    Some(other) => *other = key.into(),
                    None => {}
                }
                seen += 1;
            }
            until_look -= 1;
            if until_look == 0 {
                if stop() {
                    return Ok(true);
                }
                until_look = ROWS_AT_ONCE;
            }
            rows.next();
        }
        rows.status()?;
        *keyspace.deletions.landmarks.lock() = chosen;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::storage::StorageConfig;
    use crate::storage::txn::Txn;

    /// Whether by rows or by a range: the space of deleted elements comes back though nothing else is
    /// written.
    #[test]
    fn deleted_rows_free_their_space() {
        const ROWS: i64 = 40_000;
        for by_range in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
            let (mut txn, db) = (Txn::new(engine.clone()), DbIndex(0));
            let id = engine.new_id();
            let row = |n: i64| keys::indexed(tag::LIST_ITEM, id, n);
            txn.begin(UnixMs(1)).unwrap();
            for n in 0..ROWS {
                let value: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
                    .take(100)
                    .collect();
                txn.put_row(db, &row(n), &value).unwrap();
            }
            txn.commit().unwrap();
            let (_, keyspace) = engine.all_keyspaces().pop().unwrap();
            engine.flush_keyspace(&keyspace).unwrap();
            engine.compact();
            let full = engine.property_sum("rocksdb.total-sst-files-size");
            txn.begin(UnixMs(1)).unwrap();
            match by_range {
                true => txn.delete_rows(db, &row(ROWS / 10), &row(ROWS)).unwrap(),
                false => (ROWS / 10..ROWS).for_each(|n| txn.delete_row(db, &row(n)).unwrap()),
            }
            txn.commit().unwrap();
            engine.write_tombstones(&keyspace).unwrap();
            engine.tidy(|| false).unwrap();
            let wait = rocksdb::WaitForCompactOptions::default();
            engine.db.wait_for_compact(&wait).unwrap();
            let left = engine.property_sum("rocksdb.total-sst-files-size");
            assert!(
                left * 8 < full,
                "{left} of {full} bytes, by range: {by_range}"
            );
        }
    }

    #[test]
    fn landmarks_are_bounded_and_differ() {
        let deletions = Deletions::default();
        deletions.note_landmark(&[b'k'; LANDMARK_BYTES + 1]);
        for n in 0..10_000u32 {
            deletions.note_landmark(&(n % 1000).to_be_bytes());
        }
        let mut landmarks = deletions.landmarks.lock().clone();
        assert_eq!(landmarks.len(), LANDMARKS);
        landmarks.sort_unstable();
        landmarks.dedup();
        assert_eq!(landmarks.len(), LANDMARKS);
    }
}
