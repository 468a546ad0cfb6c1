//! A staged data set: it is built beside the one in use, and replaces it in one batch once it is
//! complete.
//!
//! A Kedis master sends its rows ([`Staging::put`]), and they are installed only if they agree with
//! each other ([`Audit`]). What another master sends is written by a transaction to the staged data
//! set alone ([`Txn::staged`](crate::storage::Txn::staged)): it takes no locks, logs nothing,
//! notifies no client, and keys do not expire by its clock.
//!
//! Each DB of it is a column family that is not in the DB map. Staged rows are not in the WAL: they
//! are flushed before the batch that installs them. If that batch never comes (the link breaks, the
//! process dies), the families are dropped, at the latest by the next start. I2 holds for the
//! whole: map, counts, position, replication id, libraries of functions and the key of the hash
//! change together.

use crate::encoding::binlog::Position;
use crate::encoding::system::{self, State, Upstream};
use crate::encoding::{Corrupt, MetaView, keys, tag};
use crate::storage::engine::history::{Following, History};
use crate::storage::engine::lineage;
use crate::storage::engine::values::{Owner, Pin};
use crate::storage::engine::{Engine, Keyspace, fail_point};
use crate::storage::full_sync::audit::Audit;
use crate::storage::full_sync::snapshot::{ChunkRows, DataSet};
use crate::storage::{DbIndex, Result, StorageError};
use rocksdb::{WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A data set that is built beside the one in use.
pub struct Staging {
    /// Handles drop before the engine.
    parts: BTreeMap<DbIndex, Arc<Keyspace>>,
    /// For the DBs that a master sends as rows.
    audits: BTreeMap<DbIndex, Audit>,
    pins: Vec<Pin>,
    pub(in crate::storage) engine: Arc<Engine>,
    /// Bytes of rows received.
    pub bytes: u64,
    /// Libraries of functions: names and texts.
    pub libraries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the stream of its Redis master continues.
    pub upstream: Option<Upstream>,
}

impl Staging {
    /// An empty data set beside the one in use.
    pub fn new(engine: Arc<Engine>) -> Staging {
        Staging {
            parts: BTreeMap::new(),
            audits: BTreeMap::new(),
            pins: Vec::new(),
            engine,
            bytes: 0,
            libraries: Vec::new(),
            upstream: None,
        }
    }

    /// The number of keys received.
    pub fn keys(&self) -> u64 {
        self.parts.values().map(|part| part.counts().keys).sum()
    }

    /// Adds a chunk of rows to a DB. The chunks of a DB must come in the order of their rows.
    pub fn put(&mut self, data_set: &DataSet, db: DbIndex, chunk: &[u8]) -> Result<()> {
        let part = self.keyspace(db)?;
        let audit = match self.audits.entry(db) {
            Entry::Occupied(audit) => audit.into_mut(),
            Entry::Vacant(place) => place.insert(Audit::new(data_set, self.engine.layout)?),
        };
        audit.take(ChunkRows::new(chunk))?;
        let mut counts = part.counts();
        let mut batch = WriteBatch::with_capacity_bytes(chunk.len() + 64);
        for row in ChunkRows::new(chunk) {
            let (key, value) = row?;
            match key.first() {
                Some(&tag::META) => {
                    let found = MetaView::decode(value)?;
                    counts.keys += 1;
                    if let Some(slots) = part.slots() {
                        slots.add(self.engine.layout.checked(key)?.0, 1);
                    }
                    counts.expires += u64::from(found.meta.expire_ms.is_some());
                    counts.timed += u64::from(found.meta.due_ms.is_some());
                }
                Some(tag) if tag::ALL.contains(tag) => {}
                _ => return Err(Corrupt("snapshot").into()),
            }
            match keys::split_base(key) {
                None => batch.put_cf(&part.cf, key, value),
                Some(id) => {
                    let owner = Owner::Base(part.id, id);
                    let (at, pin) = self.engine.append_value(owner, value)?;
                    self.keep([pin]);
                    batch.put_cf(&part.cf, key, at.encode());
                }
            }
        }
        self.write(batch)?;
        part.set_counts(counts);
        self.bytes += chunk.len() as u64;
        Ok(())
    }

    /// Keeps segments of the value log from being collected until the data set is in use or given up.
    pub(in crate::storage) fn keep(&mut self, pins: impl IntoIterator<Item = Pin>) {
        for pin in pins {
            if !self.pins.iter().any(|kept| kept.is_same(&pin)) {
                self.pins.push(pin);
            }
        }
    }

    pub(in crate::storage) fn write(&self, batch: WriteBatch) -> Result<()> {
        if !self.engine.takes_data() {
            return Err(StorageError::NoRoom);
        }
        let in_flight = self.engine.disk.begin_write(batch.size_in_bytes());
        let mut unlogged = WriteOptions::default();
        unlogged.disable_wal(true);
        self.engine.db.write_opt(batch, &unlogged)?;
        drop(in_flight);
        self.engine.wait_as_writer();
        fail_point("staging")
    }

    /// The staged keyspace of a DB, created if there is none yet.
    pub(in crate::storage) fn keyspace(&mut self, db: DbIndex) -> Result<Arc<Keyspace>> {
        if db.0 >= self.engine.config.databases {
            return Err(StorageError::Format(format!(
                "the master has keys in DB {}, but `databases` is {} here",
                db.0, self.engine.config.databases
            )));
        }
        let engine = &self.engine;
        match self.parts.entry(db) {
            Entry::Occupied(part) => Ok(part.get().clone()),
            Entry::Vacant(place) => {
                // Family numbers are assigned under the map's lock.
                let _map = engine.families.keyspaces.write();
                let (id, cf) = engine.create_family()?;
                Ok(place
                    .insert(Arc::new(Keyspace::new(id, cf, self.engine.layout)))
                    .clone())
            }
        }
    }

    /// Ends the audit of the rows that a master has sent.
    ///
    /// # Errors
    /// [`StorageError::Disagrees`] if they do not agree with each other.
    pub fn check(&mut self) -> Result<()> {
        for (db, audit) in std::mem::take(&mut self.audits) {
            if let Some(part) = self.parts.get(&db) {
                audit.finish(&self.engine, db, part)?;
            }
        }
        Ok(())
    }

    pub(in crate::storage) fn flush(&self) -> Result<()> {
        let cfs: Vec<_> = self.parts.values().map(|part| part.cf.clone()).collect();
        // Before the batch that installs the rows is durable.
        self.engine.values.sync()?;
        self.engine.flush_families(&cfs)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        for part in self.parts.values() {
            self.engine.ahead.lock().retain(|(id, _)| *id != part.id);
            self.engine.drop_family(part.id);
        }
    }
}

impl Engine {
    /// The metadata of a data set with which a new history begins here, such as a Redis master's:
    /// the binlog continues at its present position.
    pub fn new_data_set(&self) -> Result<DataSet> {
        let range = self.binlog.range();
        Ok(DataSet {
            history_id: lineage::new_id()?,
            position: range.next_position,
            entry: range.next_entry,
            next_id: self.next_id.load(Ordering::Relaxed),
            hash_key: self.hash.key(),
        })
    }

    /// The batch that installs a staged data set in place of the one in use. `state` is the state
    /// after it, to which this adds the counts.
    fn batch_of_install(
        &self,
        staging: &Staging,
        data_set: &DataSet,
        history: &History,
        state: &mut State,
    ) -> Result<WriteBatch> {
        let mut batch = WriteBatch::default();
        for part in staging.parts.values() {
            match system::counts_row(part.id) {
                Some(row) => batch.put_cf(&self.system_cf, row, part.counts().encode()),
                None => state.set_counts(part.id, part.counts()),
            }
            let row = system::timed_row(part.id);
            batch.put_cf(&self.system_cf, row, part.counts().timed.to_be_bytes());
            if let Some(slots) = part.slots() {
                slots.put_all(part.id, |row, count| {
                    if count > 0 {
                        batch.put_cf(&self.system_cf, row, count.to_be_bytes());
                    }
                });
            }
        }
        // Of the data set in use until now.
        self.system_rows(system::SLOT_TAG, |rest, _| {
            let row = [&[system::SLOT_TAG], rest].concat();
            if staging
                .parts
                .values()
                .all(|part| !rest.starts_with(&part.id.0.to_be_bytes()))
            {
                batch.delete_cf(&self.system_cf, row);
            }
        })?;
        for db in 0..self.config.databases {
            match staging.parts.get(&DbIndex(db)) {
                Some(part) => {
                    batch.put_cf(&self.system_cf, system::db_row(db), part.id.0.to_be_bytes());
                }
                None => batch.delete_cf(&self.system_cf, system::db_row(db)),
            }
        }
        let mut row = Vec::new();
        state.encode(&mut row);
        batch.put_cf(&self.system_cf, system::STATE, &row);
        batch.put_cf(&self.system_cf, system::HASH_KEY, data_set.hash_key);
        self.system_rows(system::LIBRARY_TAG, |name, _| {
            batch.delete_cf(&self.system_cf, system::library_row(name));
        })?;
        for (name, text) in &staging.libraries {
            batch.put_cf(&self.system_cf, system::library_row(name), text);
        }
        self.add_history(history, &mut batch);
        match &staging.upstream {
            Some(upstream) => {
                let row = upstream.encode(&history.id, data_set.position);
                batch.put_cf(&self.system_cf, system::UPSTREAM, row);
            }
            None => batch.delete_cf(&self.system_cf, system::UPSTREAM),
        }
        batch.delete_range_cf(&self.binlog_cf, [0u8; 8], [0xFFu8; 8]);
        batch.delete_cf(&self.system_cf, system::TRIMMED);
        Ok(batch)
    }

    /// Installs a staged data set. The caller holds the gate exclusively. Leaves the old data set
    /// in `staging`.
    pub(in crate::storage) fn install(
        &self,
        staging: &mut Staging,
        data_set: &DataSet,
        following: Following,
    ) -> Result<()> {
        let _no_trim = self.binlog.trim.lock();
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
        let batch = self.batch_of_install(staging, data_set, &history, &mut state)?;
        if let Err(error) = self.write(batch) {
            self.fail(&error);
            return Err(error);
        }
        let synced = fail_point("install-written").and_then(|()| Ok(self.db.flush_wal(true)?));
        // It is committed. What could not be synced is written again by the recovery.
        if let Err(error) = &synced {
            self.fail(error);
        }
        self.next_id.fetch_max(state.next_id, Ordering::Relaxed);
        commit.state = state;
        commit.upstream = staging.upstream.clone();
        self.binlog.restart(&commit.state);
        // What was appended before has been referred to at positions of another history.
        self.values.roll();
        self.note_data_set(match synced {
            Ok(()) => data_set.position,
            Err(_) => Position::NONE,
        });
        self.hash.set_key(&data_set.hash_key);
        self.publish_history(history);
        let mut map = self.families.keyspaces.write();
        for (db, slot) in map.iter_mut().enumerate() {
            let db = DbIndex(db as u16);
            // A new `Keyspace`, from which no thread has read yet.
            let new = staging.parts.remove(&db).map(|part| {
                let keyspace = Keyspace::new(part.id, part.cf.clone(), self.layout);
                keyspace.set_counts(part.counts());
                keyspace.copy_slots(&part);
                Arc::new(keyspace)
            });
            if let Some(old) = std::mem::replace(slot, new) {
                staging.parts.insert(db, old);
            }
        }
        self.families.map_version.fetch_add(1, Ordering::Release);
        Ok(())
    }
}
