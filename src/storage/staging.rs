//! A data set that arrives row by row, beside the one in use, and takes its
//! place in one batch once it is complete.
//!
//! Each DB of it is a column family that no DB of the map has. What is staged
//! is not in the WAL: it is flushed before the batch that installs it, and if
//! that batch never comes (the link breaks, the process dies), the families are
//! dropped, at the latest by the next start. I2 holds over the whole: map,
//! counts, position, replication id, libraries of functions and the key of the
//! hash change together.

use super::engine::{ColumnFamily, Engine, Keyspace, fail_point};
use super::history::{Following, History};
use super::snapshot::{ChunkRows, DataSet};
use super::{DbIndex, Result, StorageError, Txn};
use crate::encoding::own::{self, Counts, KeyspaceId};
use crate::encoding::{Corrupt, MetaView, tag};
use rocksdb::{WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

struct Part {
    cf: ColumnFamily,
    id: KeyspaceId,
    counts: Counts,
}

/// See the module.
pub struct Staging {
    /// Handles drop before the engine.
    parts: BTreeMap<DbIndex, Part>,
    engine: Arc<Engine>,
    /// Bytes of rows taken.
    pub bytes: u64,
    /// Libraries of functions: names and texts.
    pub libraries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Staging {
    /// An empty data set beside the one in use.
    pub fn new(engine: Arc<Engine>) -> Staging {
        Staging {
            parts: BTreeMap::new(),
            engine,
            bytes: 0,
            libraries: Vec::new(),
        }
    }

    /// Keys taken.
    pub fn keys(&self) -> u64 {
        self.parts.values().map(|part| part.counts.keys).sum()
    }

    /// Adds a chunk of rows to a DB.
    pub fn put(&mut self, db: DbIndex, chunk: &[u8]) -> Result<()> {
        let engine = self.engine.clone();
        let part = self.part(db)?;
        let mut batch = WriteBatch::with_capacity_bytes(chunk.len() + 64);
        for row in ChunkRows::new(chunk) {
            let (key, value) = row?;
            match key.first() {
                Some(&tag::META) => {
                    let found = MetaView::decode(value)?;
                    part.counts.keys += 1;
                    part.counts.expires += u64::from(found.meta.expire_ms != 0);
                }
                Some(tag) if tag::ALL.contains(tag) => {}
                _ => return Err(Corrupt("snapshot").into()),
            }
            batch.put_cf(&part.cf, key, value);
        }
        let mut unlogged = WriteOptions::default();
        unlogged.disable_wal(true);
        engine.db.write_opt(batch, &unlogged)?;
        fail_point("staging")?;
        self.bytes += chunk.len() as u64;
        Ok(())
    }

    fn part(&mut self, db: DbIndex) -> Result<&mut Part> {
        if db.0 >= self.engine.config.databases {
            return Err(StorageError::Format(format!(
                "the master has keys in DB {}, but `databases` is {} here",
                db.0, self.engine.config.databases
            )));
        }
        let engine = &self.engine;
        match self.parts.entry(db) {
            std::collections::btree_map::Entry::Occupied(part) => Ok(part.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                // Numbers are given away under the map's lock.
                let _map = engine.keyspaces.write();
                let (id, cf) = engine.create_family()?;
                Ok(place.insert(Part {
                    cf,
                    id,
                    counts: Counts::default(),
                }))
            }
        }
    }

    fn flush(&self) -> Result<()> {
        let cfs: Vec<_> = self.parts.values().map(|part| part.cf.clone()).collect();
        self.engine.flush_families(&cfs)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        for part in self.parts.values() {
            self.engine.drop_family(part.id);
        }
    }
}

impl Txn {
    /// Begins to follow a master, if `begin` does so with [`Engine::begin_following`]
    /// once nobody else reads or writes keys.
    pub fn begin_following(
        &mut self,
        now_ms: u64,
        begin: impl FnOnce(&Engine) -> Option<Following>,
    ) -> Result<Option<Following>> {
        self.begin_exclusive(now_ms)?;
        let following = begin(&self.engine);
        self.commit()?;
        if let Some(following) = following {
            self.receive(following);
        }
        Ok(following)
    }

    /// Puts a complete data set in the place of the one in use, and calls `then`
    /// before anybody sees it.
    ///
    /// # Errors
    /// [`StorageError::Detached`] if this server does not follow that master any
    /// more. Nothing has changed then, nor if anything else fails.
    pub fn install(
        &mut self,
        mut staging: Staging,
        data_set: &DataSet,
        following: Following,
        now_ms: u64,
        then: impl FnOnce(),
    ) -> Result<()> {
        staging.flush()?;
        fail_point("staged")?;
        self.begin_exclusive(now_ms)?;
        let installed = self.engine.install(&mut staging, data_set, following);
        if installed.is_ok() {
            then();
            // Whoever watches a key sees that all are others now.
            self.begin(now_ms)?;
            for db in 0..self.engine.config.databases {
                self.note_clear(DbIndex(db));
            }
        }
        self.commit()?;
        fail_point("installed")?;
        // What is in `staging` now is the old data set, or the refused new one.
        drop(staging);
        installed
    }
}

impl Engine {
    /// The caller holds the gate exclusively. Leaves the old data set in `staging`.
    fn install(
        &self,
        staging: &mut Staging,
        data_set: &DataSet,
        following: Following,
    ) -> Result<()> {
        let _no_trim = self.trim.lock();
        let mut commit = self.commit.lock();
        if !self.is_current(following) {
            return Err(StorageError::Detached);
        }
        let history = History {
            id: data_set.history_id.clone(),
            ancestors: Vec::new(),
        };
        let mut state = commit.state.clone();
        state.next_id = data_set.next_id.max(self.next_id.load(Ordering::Relaxed));
        state.binlog_position = data_set.position;
        state.binlog_entry = data_set.entry;
        state.counts.clear();
        let mut batch = WriteBatch::default();
        for part in staging.parts.values() {
            match own::counts_row(part.id) {
                Some(row) => batch.put_cf(&self.own_cf, row, part.counts.encode()),
                None => state.set_counts(part.id, part.counts),
            }
        }
        for db in 0..self.config.databases {
            match staging.parts.get(&DbIndex(db)) {
                Some(part) => {
                    batch.put_cf(&self.own_cf, own::db_row(db), part.id.0.to_be_bytes());
                }
                None => batch.delete_cf(&self.own_cf, own::db_row(db)),
            }
        }
        let mut row = Vec::new();
        state.encode(&mut row);
        batch.put_cf(&self.own_cf, own::STATE, &row);
        batch.put_cf(&self.own_cf, own::HASH_KEY, data_set.hash_key);
        self.own_rows(own::LIBRARY_TAG, |name, _| {
            batch.delete_cf(&self.own_cf, own::library_row(name));
        })?;
        for (name, text) in &staging.libraries {
            batch.put_cf(&self.own_cf, own::library_row(name), text);
        }
        self.add_history(&history, &mut batch);
        batch.delete_range_cf(&self.binlog_cf, [0u8; 8], [0xFFu8; 8]);
        batch.delete_cf(&self.own_cf, own::TRIMMED);
        if let Err(error) = self.write(batch) {
            self.fail(&error);
            return Err(error);
        }
        let synced = fail_point("install-written").and_then(|()| Ok(self.db.flush_wal(true)?));
        // It is committed. What the disk may lack is written anew once it takes writes.
        if let Err(error) = &synced {
            self.fail(error);
        }
        self.next_id.fetch_max(state.next_id, Ordering::Relaxed);
        commit.state = state;
        self.binlog.restart(&commit.state);
        self.note_data_set(match synced {
            Ok(()) => data_set.position,
            Err(_) => 0,
        });
        self.hash.set_key(&data_set.hash_key);
        self.show_history(history);
        let mut map = self.keyspaces.write();
        for (db, slot) in map.iter_mut().enumerate() {
            let db = DbIndex(db as u16);
            let new = staging.parts.remove(&db).map(|part| {
                let keyspace = Keyspace::new(part.id, part.cf);
                keyspace.set_counts(part.counts);
                Arc::new(keyspace)
            });
            let old = std::mem::replace(slot, new);
            if let Some(old) = old {
                let part = Part {
                    cf: old.cf.clone(),
                    id: old.id,
                    counts: old.counts(),
                };
                staging.parts.insert(db, part);
            }
        }
        self.map_version.fetch_add(1, Ordering::Release);
        Ok(())
    }
}
