//! The tombstones that deleted keys leave until compaction has removed them.
//!
//! Every range read skips them one by one. So after many deletions a background thread flushes the
//! memtable of the DB ([`Engine::tidy`]), and compaction prefers table files that are full of
//! tombstones. Until that is done there may be a million tombstones to every key; RANDOMKEY then
//! falls back on landmarks: keys of the DB that existed lately. They are only hints: a caller must
//! check that such a key still exists.

use crate::encoding::{keys, tag};
use crate::storage::engine::deleted_keys::{DeletedKeys, LANDMARK_BYTES, LANDMARKS};
use crate::storage::engine::{Engine, Keyspace};
use crate::storage::txn::View;
use crate::storage::{DbIndex, Result};
use std::sync::atomic::Ordering;

/// Fewer deletions than this start no flush while more keep coming.
const REMOVED_MIN: u64 = 16_384;

/// Fewer deletions than this start no flush after they have stopped.
const REMOVED_AT_REST_MIN: u64 = 1024;

/// The most requested compactions of a DB; further ones are dropped.
const COMPACTIONS: usize = 256;

/// Rows between two calls of `stop`.
const ROWS_AT_ONCE: u32 = 4096;

impl View {
    /// The places of up to `max` different landmarks of a DB in random order.
    pub fn landmarks(&self, db: DbIndex, max: usize) -> Vec<Vec<u8>> {
        let Some(keyspace) = self.keyspace(db) else {
            return Vec::new();
        };
        let landmarks = keyspace.deleted_keys.landmarks.lock();
        let mut order: Vec<usize> = (0..landmarks.len()).collect();
        fastrand::shuffle(&mut order);
        let chosen = order.into_iter().take(max);
        chosen.map(|at| landmarks[at].to_vec()).collect()
    }

    /// Requests a compaction of the rows in `[from, to)` in the background, because there are many
    /// tombstones among them.
    pub fn request_compaction(&self, db: DbIndex, from: &[u8], to: &[u8]) {
        if let Some(keyspace) = self.keyspace(db) {
            let mut compactions = keyspace.deleted_keys.compactions.lock();
            if compactions.len() < COMPACTIONS {
                compactions.push((from.into(), to.into()));
            }
        }
    }

    /// Makes the key at a place a landmark, perhaps instead of another one.
    pub fn note_landmark(&self, db: DbIndex, place: &[u8]) {
        if let Some(keyspace) = self.keyspace(db) {
            keyspace.deleted_keys.note_landmark(place);
        }
    }
}

impl Engine {
    /// Compacts the requested ranges. In DBs from which many keys were deleted since the last time,
    /// at least as many as are left, chooses new landmarks and flushes the memtable, so that
    /// compaction removes the tombstones. Takes long; `stop` is called now and then.
    pub fn tidy(&self, stop: impl Fn() -> bool) -> Result<()> {
        for (_, keyspace) in self.all_keyspaces() {
            let compactions = std::mem::take(&mut *keyspace.deleted_keys.compactions.lock());
            for (from, to) in compactions {
                if stop() {
                    return Ok(());
                }
                self.compact_rows(&keyspace, &from, &to);
            }
            let DeletedKeys { removed, seen, .. } = &keyspace.deleted_keys;
            let now = removed.load(Ordering::Relaxed);
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
            removed.fetch_sub(now, Ordering::Relaxed);
            self.flush_keyspace(&keyspace)?;
        }
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
        *keyspace.deleted_keys.landmarks.lock() = chosen;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn landmarks_are_bounded_and_differ() {
        let deleted_keys = DeletedKeys::default();
        deleted_keys.note_landmark(&[b'k'; LANDMARK_BYTES + 1]);
        for n in 0..10_000u32 {
            deleted_keys.note_landmark(&(n % 1000).to_be_bytes());
        }
        let mut landmarks = deleted_keys.landmarks.lock().clone();
        assert_eq!(landmarks.len(), LANDMARKS);
        landmarks.sort_unstable();
        landmarks.dedup();
        assert_eq!(landmarks.len(), LANDMARKS);
    }
}
