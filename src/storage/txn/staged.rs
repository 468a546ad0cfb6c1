//! Transactions that fill a staged data set, and the one that installs it: see
//! [`crate::storage::full_sync::staging`].

use super::Txn;
use crate::base::time::UnixMs;
use crate::encoding::{keys, system};
use crate::storage::engine::history::Following;
use crate::storage::full_sync::snapshot::DataSet;
use crate::storage::full_sync::staging::Staging;
use crate::storage::txn::overlay::Step;
use crate::storage::{DbIndex, Engine, Result, fail_point};
use rocksdb::WriteBatch;

impl Txn {
    /// A transaction that fills a staged data set.
    pub fn staged(staging: Staging) -> Txn {
        let mut txn = Txn::new(staging.engine.clone());
        let databases = usize::from(txn.engine.config.databases);
        txn.keyspaces.resize(databases, None);
        txn.staging = Some(Box::new(staging));
        txn.command.expires = false;
        txn
    }

    /// The data set that it has filled, with everything committed.
    pub fn into_staging(mut self) -> Option<Staging> {
        self.staging.take().map(|staging| *staging)
    }

    /// Like [`Txn::commit`], to the staged data set.
    pub(in crate::storage) fn commit_staged(&mut self) -> Result<()> {
        let done = self.write_staged();
        let reachable = if done.is_ok() {
            self.batch.early.len()
        } else {
            0
        };
        self.give_up_early(reachable);
        self.engine.ahead.remove_all(&self.batch.early);
        self.batch.early.clear();
        self.batch.overlay.clear();
        self.batch.log.clear();
        let pins = self.batch.values.take_pins();
        if let Some(staging) = &mut self.staging {
            staging.keep(pins);
        }
        self.batch.values.clear();
        self.batch.deltas.clear();
        self.batch.slots.truncate(0);
        self.batch.system_rows.clear();
        self.batch.rank_changes.truncate(0);
        self.changes.truncate(0);
        self.batch.new_ids.get_mut().clear();
        done
    }

    fn write_staged(&mut self) -> Result<()> {
        let mut batch = WriteBatch::with_capacity_bytes(self.batch.overlay.batch_bytes());
        for step in self.batch.overlay.steps() {
            match step {
                Step::Put(id, key, value) => batch.put_cf(&self.column_family(id)?, key, value),
                Step::Delete(id, key) => batch.delete_cf(&self.column_family(id)?, key),
                Step::DeleteRange(id, from, to) => {
                    batch.delete_range_cf(&self.column_family(id)?, from, to);
                }
            }
        }
        // Collections that were written ahead are reachable now.
        for (keyspace, id) in &self.batch.early {
            batch.delete_cf(&self.column_family(*keyspace)?, keys::reclaim(*id));
        }
        let libraries = std::mem::take(&mut self.batch.system_rows);
        if let Some(staging) = &mut self.staging {
            staging.write(batch)?;
            for (row, text) in libraries {
                let name = row.strip_prefix(&[system::LIBRARY_TAG]);
                staging.libraries.extend(name.map(<[u8]>::to_vec).zip(text));
            }
        }
        self.slots_after().publish();
        for delta in &self.batch.deltas {
            if let Some(keyspace) = self.by_id(delta.keyspace) {
                keyspace.add(delta.counts);
            }
        }
        self.refresh_caches();
        Ok(())
    }

    /// Begins to follow a master, if `begin` does so with [`Engine::begin_following`]. `begin` is
    /// called while no other thread reads or writes keys.
    pub fn begin_following(
        &mut self,
        now_ms: UnixMs,
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

    /// Installs a complete data set in place of the one in use, and calls `then` before other
    /// threads can see it.
    ///
    /// # Errors
    /// [`crate::storage::StorageError::Detached`] if this server does not follow that master any
    /// more; [`crate::storage::StorageError::Disagrees`] if its rows do not agree. In these and all
    /// other cases of an error nothing has changed.
    pub fn install(
        &mut self,
        mut staging: Staging,
        data_set: &DataSet,
        following: Following,
        now_ms: UnixMs,
        then: impl FnOnce(),
    ) -> Result<()> {
        staging.check()?;
        staging.flush()?;
        fail_point("staged")?;
        self.begin_exclusive(now_ms)?;
        let installed = self.engine.install(&mut staging, data_set, following);
        if installed.is_ok() {
            then();
            // All keys have changed for the clients that watch them.
            self.begin(now_ms)?;
            for db in 0..self.engine.config.databases {
                self.note_clear(DbIndex(db));
            }
        }
        self.commit()?;
        fail_point("installed")?;
        // `staging` now holds the old data set, or the refused new one.
        drop(staging);
        installed
    }
}
