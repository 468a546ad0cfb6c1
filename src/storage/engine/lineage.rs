//! The history that the database holds, the master's history that it follows, and how these change:
//! see [`super::history`].

use super::history::{Following, History};
use super::{CommitState, Engine, hex, random_bytes};
use crate::encoding::binlog::Position;
use crate::encoding::system::{self, Ancestor};
use crate::storage::{Result, StorageError};
use crate::sys::lock_order::{Lock, RwLock};
use rocksdb::WriteBatch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The number of ancestors that are kept.
const MAX_ANCESTORS: usize = 64;

/// The history that the engine holds, and whether it follows a master's.
pub(in crate::storage) struct Lineage {
    pub(in crate::storage) history: RwLock<History, { Lock::Short as u8 }>,
    /// Grows whenever the history changes or following begins or ends.
    version: AtomicU64,
    /// The number of the current period of following a master; 0 if there is none.
    following: AtomicU64,
    follow_count: AtomicU64,
    /// Whether the next write of this server's own begins a new history.
    renew_on_write: AtomicBool,
}

impl Lineage {
    pub(super) fn new(history: History) -> Lineage {
        Lineage {
            history: RwLock::new(history),
            version: AtomicU64::new(1),
            following: AtomicU64::new(0),
            follow_count: AtomicU64::new(0),
            renew_on_write: AtomicBool::new(false),
        }
    }
}

/// A new random history id.
pub(in crate::storage) fn new_id() -> Result<String> {
    Ok(hex(&random_bytes::<20>()?))
}

impl Engine {
    /// The history that this database holds.
    pub fn history(&self) -> History {
        self.lineage.history.read().clone()
    }

    /// Grows whenever the history changes or following begins or ends.
    pub fn history_version(&self) -> u64 {
        self.lineage.version.load(Ordering::Acquire)
    }

    /// The id of this database's history.
    pub fn replication_id(&self) -> String {
        self.lineage.history.read().id.clone()
    }

    /// Whether it follows a master.
    pub fn is_following(&self) -> bool {
        self.lineage.following.load(Ordering::Acquire) != 0
    }

    pub(in crate::storage) fn is_current(&self, following: Following) -> bool {
        self.lineage.following.load(Ordering::Acquire) == following.0
    }

    /// Gives this database's history a new id, without ancestors.
    pub fn renew_replication_id(&self) -> Result<()> {
        let mut commit = self.commit.lock();
        let history = History {
            id: new_id()?,
            ancestors: Vec::new(),
        };
        self.put_history(&mut commit, history)
    }

    /// Stops following a master, if it follows one, and begins a history of its own that continues
    /// the one before. Rows that were received and are not committed yet are refused.
    pub fn begin_history(&self) -> Result<()> {
        let mut commit = self.commit.lock();
        let end = commit.state.binlog_position;
        let history = self.continued(&new_id()?, end);
        self.put_history(&mut commit, history)?;
        self.lineage.renew_on_write.store(false, Ordering::Release);
        self.lineage.following.store(0, Ordering::Release);
        Ok(())
    }

    /// The next write of this server's own begins a new history. Until then a server with the old
    /// one has the same data.
    pub fn begin_history_on_write(&self) {
        self.lineage.renew_on_write.store(true, Ordering::Release);
    }

    /// Adds a new history to the batch that begins it. The caller passes it to
    /// [`Engine::publish_history`] once the batch is written.
    pub(in crate::storage) fn renewed_history(
        &self,
        end: Position,
        batch: &mut WriteBatch,
    ) -> Result<Option<History>> {
        if !self.lineage.renew_on_write.load(Ordering::Acquire) {
            return Ok(None);
        }
        let history = self.continued(&new_id()?, end);
        self.add_history(&history, batch);
        Ok(Some(history))
    }

    /// Continues the history `id`, of which this database holds a first part.
    pub fn adopt_history(&self, following: Following, id: &str) -> Result<()> {
        let mut commit = self.commit.lock();
        if !self.is_current(following) {
            return Err(StorageError::Detached);
        }
        if self.lineage.history.read().id == id {
            return Ok(());
        }
        let end = commit.state.binlog_position;
        let history = self.continued(id, end);
        self.put_history(&mut commit, history)
    }

    /// Begins to follow a master: from now on commits are logged only as received rows. Called
    /// inside of [`crate::storage::Txn::begin_following`], so that no commit that began before is
    /// still under way.
    pub fn begin_following(&self) -> Following {
        let _commit = self.commit.lock();
        let number = self.lineage.follow_count.fetch_add(1, Ordering::AcqRel) + 1;
        self.lineage.following.store(number, Ordering::Release);
        self.lineage.version.fetch_add(1, Ordering::AcqRel);
        Following(number)
    }

    fn continued(&self, id: &str, end: Position) -> History {
        let old = self.lineage.history.read();
        let first = self.binlog.range().first_position;
        let mut ancestors = old.ancestors.clone();
        ancestors.push(Ancestor {
            id: old.id.clone(),
            end,
        });
        // No replica can continue from an ancestor that ends before the binlog begins.
        ancestors.retain(|a| a.end >= first && a.id != id);
        let surplus = ancestors.len().saturating_sub(MAX_ANCESTORS);
        ancestors.drain(..surplus);
        History {
            id: id.to_owned(),
            ancestors,
        }
    }

    /// Writes a history to the disk and publishes it. The caller holds the commit lock.
    fn put_history(&self, commit: &mut CommitState, history: History) -> Result<()> {
        let mut batch = WriteBatch::default();
        self.add_history(&history, &mut batch);
        self.forget_upstream(commit, &mut batch);
        if let Err(error) = self.db.write(batch) {
            let error = error.into();
            self.fail(&error);
            return Err(error);
        }
        // It is written; a sync that fails now is made up for by the recovery.
        if let Err(error) = self.db.flush_wal(true) {
            self.fail(&error.into());
        }
        self.publish_history(history);
        Ok(())
    }

    pub(in crate::storage) fn add_history(&self, history: &History, batch: &mut WriteBatch) {
        batch.put_cf(
            &self.system_cf,
            system::REPLICATION_ID,
            history.id.as_bytes(),
        );
        let ancestors = system::encode_ancestors(&history.ancestors);
        batch.put_cf(&self.system_cf, system::ANCESTORS, ancestors);
    }

    pub(in crate::storage) fn publish_history(&self, history: History) {
        self.lineage.renew_on_write.store(false, Ordering::Release);
        *self.lineage.history.write() = history;
        self.lineage.version.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::storage::{DbIndex, StorageConfig, Txn};
    use std::sync::Arc;

    #[test]
    fn a_new_history_outlives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || Engine::open(StorageConfig::for_tests(dir.path().join("db"))).expect("opens");
        let first = open().history();
        assert_eq!(open().history(), first);
        let engine = open();
        write(&engine);
        let end = engine.binlog.range().next_position;
        assert_eq!(engine.history(), first);
        engine.begin_history().expect("a new history");
        let second = engine.history();
        drop(engine);
        let found = open().history();
        assert_eq!(found, second);
        assert_ne!(found.id, first.id);
        assert!(found.contains(&first.id, end, end + 9));
        assert!(!found.contains(&first.id, end + 1, end + 9));
    }

    #[test]
    fn the_first_write_begins_a_history_and_the_second_does_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || Engine::open(StorageConfig::for_tests(dir.path().join("db"))).expect("opens");
        let engine = open();
        write(&engine);
        let first = engine.history();
        let end = engine.binlog.range().next_position;
        engine.begin_history_on_write();
        assert_eq!(engine.history(), first);
        write(&engine);
        let second = engine.history();
        assert_ne!(second.id, first.id);
        assert!(second.contains(&first.id, end, end + 1));
        write(&engine);
        assert_eq!(engine.history(), second);
        drop(engine);
        assert_eq!(open().history(), second);
    }

    fn write(engine: &Arc<Engine>) {
        let mut txn = Txn::new(engine.clone());
        txn.begin(UnixMs(1)).unwrap();
        txn.effect(DbIndex(0), &[b"PING"]);
        txn.commit().expect("a commit");
        engine.make_durable().expect("a flush");
    }
}
