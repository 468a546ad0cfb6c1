//! Look-ups of single rows: first in the turn's own pending batch, then in the row cache, then in
//! RocksDB.
//!
//! Rows are looked up one by one there, also for MGET or HMGET: RocksDB's `MultiGet` of 4 to 100
//! sorted keys, out of fifteen million in memory, took 0.92 of the time of as many `Get`s, too
//! little gain for a second way to read. For MSETs of ten new keys, which are looked for in the
//! filter of each table, it made no measurable difference (1.03 ± 0.08).

use super::View;
use crate::encoding::keys::Layout;
use crate::encoding::tag;
use crate::storage::cache::rows::{Version, is_cacheable};
use crate::storage::engine::cold_reads::ColdRead;
use crate::storage::engine::locks::Locks;
use crate::storage::engine::waiting::{or_not_in_memory, pretends_cold, without_waiting};
use crate::storage::engine::{Keyspace, ReadSnapshot};
use crate::storage::txn::count;
use crate::storage::txn::overlay::Pending;
use crate::storage::{DbIndex, Result, StorageError};
use rocksdb::DBPinnableSlice;
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::Arc;

/// The number of look-ups that the processor prefetches at a time without loss.
const PREFETCHED: usize = 16;

/// The number of a command's keys that are prefetched at a time: their data stays in the
/// processor's caches until they are looked up.
pub const KEYS_AHEAD: usize = 64;

/// A row that will be looked up soon, for [`View::prefetch_row`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected(u64);

/// A row as it was read: from the pending batch or from RocksDB, without a copy.
pub enum Row<'a> {
    /// Written in this turn.
    Pending(&'a [u8]),
    /// Committed, a copy from the row cache.
    Cached(SmallVec<[u8; 64]>),
    /// Committed, from RocksDB.
    Stored(DBPinnableSlice<'a>),
}

impl Deref for Row<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Row::Pending(bytes) => bytes,
            Row::Cached(bytes) => bytes,
            Row::Stored(slice) => slice,
        }
    }
}

impl View {
    /// Prefetches what the look-ups of these keys need, after their locks are taken, so that the
    /// memory accesses overlap. Calls `each` with the hash of each key, for further prefetches.
    pub fn prefetch<'k>(
        &self,
        keys: impl Iterator<Item = (DbIndex, &'k [u8])>,
        each: impl Fn(u64),
    ) {
        let mut rows = SmallVec::<[Expected; PREFETCHED]>::new();
        for (db, key) in keys {
            rows.extend(self.prefetch_place(db, key, &each));
            if rows.len() == PREFETCHED {
                rows.drain(..).for_each(|row| self.prefetch_row(row));
            }
        }
        rows.into_iter().for_each(|row| self.prefetch_row(row));
    }

    /// Prefetches the keys of a command that has many, a group at a time. Called before the key at
    /// `at` is looked up. The first [`KEYS_AHEAD`] are prefetched when the command is locked.
    /// `words` has a key at every `step`.
    pub fn prefetch_from(&self, db: DbIndex, words: &[&[u8]], step: usize, at: usize) {
        if at > 0 && at.is_multiple_of(KEYS_AHEAD) {
            let rest = &words[at * step..];
            let keys = rest.iter().step_by(step).take(KEYS_AHEAD);
            self.prefetch(keys.map(|&key| (db, key)), |_| {});
        }
    }

    /// The first step of [`View::prefetch`] for one key, which fetches the set of its row. The
    /// second, [`View::prefetch_row`], needs the set, so it should follow some time later.
    pub fn prefetch_place(&self, db: DbIndex, key: &[u8], each: impl Fn(u64)) -> Option<Expected> {
        let keyspace = self.keyspace(db)?;
        let hash = self.key_hash(db, key);
        self.engine.access.locks.prefetch(Locks::stripe(hash));
        each(hash);
        let overlay = &self.batch.overlay;
        let row = match self.engine.layout {
            Layout::Plain => overlay.hash_tagged(keyspace.id, tag::META, key),
            layout => overlay.hash(keyspace.id, &layout.meta(key)),
        };
        let hash = keyspace.cache_hash(row);
        self.engine.memory.rows.prefetch_set(hash);
        Some(Expected(hash))
    }

    /// The second step: see [`View::prefetch_place`].
    pub fn prefetch_row(&self, expected: Expected) {
        self.engine.memory.rows.prefetch_row(expected.0);
    }

    /// The row under `key` in the keyspace of `db`.
    pub fn row(&self, db: DbIndex, key: &[u8]) -> Result<Option<Row<'_>>> {
        let Some(keyspace) = self.keyspace(db) else {
            return Ok(None);
        };
        let hash = self.batch.overlay.hash(keyspace.id, key);
        match self.batch.overlay.get_hashed(hash, keyspace.id, key) {
            Pending::Put(value) => {
                self.reads.budget.spend_in_memory()?;
                Ok(Some(Row::Pending(value)))
            }
            Pending::Deleted => Ok(None),
            Pending::Unknown if is_cacheable(key) && self.reads.snapshot.is_none() => {
                let hash = keyspace.cache_hash(hash);
                match self
                    .engine
                    .memory
                    .rows
                    .read(hash, key, SmallVec::from_slice)
                {
                    Ok(bytes) => {
                        count(&self.reads.cached);
                        self.reads.budget.spend_in_memory()?;
                        Ok(Some(Row::Cached(bytes)))
                    }
                    Err(seen) => {
                        count(&self.reads.uncached);
                        let stored = self.stored_row(keyspace, hash, key, seen)?;
                        let bytes = stored.as_ref().map_or(0, |row| row.len());
                        self.reads.budget.spend(bytes)?;
                        Ok(stored)
                    }
                }
            }
            Pending::Unknown => {
                let stored = self.get_stored(keyspace, key, None)?;
                let bytes = stored.as_ref().map_or(0, |value| value.len());
                self.lending.note_read(bytes, self.batch.overlay.bytes())?;
                self.reads.budget.spend(bytes)?;
                Ok(stored.map(Row::Stored))
            }
        }
    }

    /// Like [`View::row`], but calls `look` with the value instead of returning it, so a cached row
    /// is not copied. `look` must not read other rows. The row must be of a kind that is cached.
    pub fn look_at<R>(
        &self,
        db: DbIndex,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        debug_assert!(is_cacheable(key));
        if self.reads.snapshot.is_some() {
            return Ok(self.row(db, key)?.map(|row| look(&row)));
        }
        self.reads.budget.spend_in_memory()?;
        self.with_row(db, key, look)
    }

    /// Likewise for a row that the read budget does not count.
    pub(in crate::storage) fn with_row<R>(
        &self,
        db: DbIndex,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let Some(keyspace) = self.keyspace(db) else {
            return Ok(None);
        };
        let hash = self.batch.overlay.hash(keyspace.id, key);
        match self.batch.overlay.get_hashed(hash, keyspace.id, key) {
            Pending::Put(value) => return Ok(Some(look(value))),
            Pending::Deleted => return Ok(None),
            Pending::Unknown if let Some(snapshot) = &self.reads.snapshot => {
                if let Some(row) = self.cached_at(snapshot, db, keyspace.cache_hash(hash), key) {
                    return Ok(Some(look(&row)));
                }
                let stored = self.get_stored(keyspace, key, None)?;
                return Ok(stored.map(|row| look(&row)));
            }
            Pending::Unknown => {}
        }
        let hash = keyspace.cache_hash(hash);
        let mut look = Some(look);
        let found = self.engine.memory.rows.read(hash, key, |value| {
            let look = look.take();
            look.map(|look| look(value))
        });
        match (found, look) {
            (Err(seen), Some(look)) => {
                count(&self.reads.uncached);
                let stored = self.stored_row(keyspace, hash, key, seen)?;
                Ok(stored.map(|row| look(&row)))
            }
            (found, _) => {
                count(&self.reads.cached);
                Ok(found.ok().flatten())
            }
        }
    }

    /// A cached meta row, if it is certain to be the row of that snapshot. Its key is free
    /// before the cache is read, so a turn that changed the key before the snapshot has updated the
    /// cached row. It is free after that, too, so a turn that has changed the key since, and whose
    /// row may be cached, has noted its commit. Exclusive turns, which hold no keys, cannot run
    /// during this one.
    fn cached_at(
        &self,
        snapshot: &ReadSnapshot,
        db: DbIndex,
        cache_hash: u64,
        row_key: &[u8],
    ) -> Option<SmallVec<[u8; 64]>> {
        let engine = &self.engine;
        let key = engine.layout.user_key(row_key).ok()?;
        let key_hash = self.key_hash(db, key);
        if engine.access.locks.is_taken(key_hash) {
            return None;
        }
        let row = engine
            .memory
            .rows
            .read(cache_hash, row_key, SmallVec::from_slice);
        let stripe = Locks::stripe(key_hash);
        let holds = !engine.access.locks.is_taken(key_hash)
            && engine
                .durability
                .is_unchanged_since(snapshot.last_commit, stripe);
        row.ok().filter(|_| holds)
    }

    /// Reads a row that is not cached, and caches it.
    fn stored_row(
        &self,
        keyspace: &Arc<Keyspace>,
        cache_hash: u64,
        key: &[u8],
        seen: Version,
    ) -> Result<Option<Row<'_>>> {
        let stored = self.get_stored(keyspace, key, Some(cache_hash))?;
        if let Some(value) = &stored {
            self.lending
                .note_read(value.len(), self.batch.overlay.bytes())?;
            self.engine.memory.rows.offer(cache_hash, key, value, seen);
        }
        Ok(stored.map(Row::Stored))
    }

    /// Reads a row from RocksDB; `cache_hash` is given for rows of the row cache.
    ///
    /// # Errors
    /// [`StorageError::NotInMemory`] if that would wait for the disk and must not.
    fn get_stored(
        &self,
        keyspace: &Arc<Keyspace>,
        key: &[u8],
        cache_hash: Option<u64>,
    ) -> Result<Option<DBPinnableSlice<'_>>> {
        let options = &self.reads.options;
        let get = || self.engine.db.get_pinned_cf_opt(&keyspace.cf, key, options);
        if self.cold.may_wait() {
            return Ok(get()?);
        }
        let stored = match pretends_cold() {
            false => or_not_in_memory(without_waiting(get)),
            true => Err(StorageError::NotInMemory),
        };
        if matches!(stored, Err(StorageError::NotInMemory)) {
            self.cold.want(ColdRead::row(keyspace, key, cache_hash));
        }
        stored
    }

    /// The row under `key` if this turn wrote it. Sufficient for a collection that this turn has
    /// created, and costs no read of RocksDB.
    pub fn pending_row(&self, db: DbIndex, key: &[u8]) -> Option<&[u8]> {
        match self.batch.overlay.get(self.keyspace(db)?.id, key) {
            Pending::Put(value) => Some(value),
            Pending::Deleted | Pending::Unknown => None,
        }
    }
}
