//! Writes that fail, and how they are taken again.
//!
//! From the first failure on no commit is taken, while reads go on: they see what is
//! committed, and a commit that failed is in neither the WAL nor a memtable. A thread
//! calls [`Engine::heal`] until the disk takes writes again. RocksDB then has written all
//! memtables to new files, synced, and has begun a new WAL. So whatever a write or a sync
//! that failed has made of the old WAL, the kernel's cache or the disk's: nothing has to be
//! read of it again, and the database need not be opened anew.

use super::{ColumnFamily, Engine};
use crate::storage::{Result, StorageError};
use parking_lot::Mutex;
use rocksdb::{AsColumnFamilyRef, WriteBatch, WriteOptions};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nothing is wrong.
const WELL: u8 = 0;
/// A write has failed, and nobody has tried yet what can be done.
const FAILED: u8 = 1;
/// That has been tried in vain.
const STILL_FAILED: u8 = 2;

/// Longest text of an error of RocksDB.
const MAX_REASON: usize = 1024;

/// Whether writes are taken.
#[derive(Default)]
pub(super) struct Health {
    state: AtomicU8,
    /// Errors of RocksDB's own threads that are known.
    background_errors: AtomicU64,
    /// When it was said that writes fail, and whether it was of the last failure.
    told: Mutex<(Option<Instant>, bool)>,
}

/// Writes that fail again and again are in the log once in this time.
const TELL_EVERY: Duration = Duration::from_secs(60);

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_disk_resume(
        family: *mut librocksdb_sys::rocksdb_column_family_handle_t,
        text: *mut u8,
        len: *mut usize,
    ) -> bool;
    fn kedis_disk_begin_flush(
        family: *mut librocksdb_sys::rocksdb_column_family_handle_t,
        text: *mut u8,
        len: *mut usize,
    ) -> bool;
}

/// What `call` says: whether it went well, or why not in the text that it is given and whose
/// length it changes.
fn told(call: impl FnOnce(*mut u8, *mut usize) -> bool) -> Result<()> {
    let mut text = [0; MAX_REASON];
    let mut len = text.len();
    match call(text.as_mut_ptr(), &raw mut len) {
        true => Ok(()),
        false => {
            let reason = String::from_utf8_lossy(text.get(..len).unwrap_or_default());
            Err(StorageError::Io(std::io::Error::other(reason)))
        }
    }
}

impl Engine {
    /// Whether a write has failed, so that none is taken now.
    pub fn has_failed(&self) -> bool {
        self.health.state.load(Ordering::Acquire) != WELL
    }

    /// Whether a write has failed, and the first attempt to go on as well.
    pub fn is_stuck(&self) -> bool {
        self.health.state.load(Ordering::Acquire) == STILL_FAILED
    }

    /// Whether a commit may add data.
    pub fn takes_data(&self) -> bool {
        !self.has_failed() && !self.disk.is_low()
    }

    /// A commit was not written: as [`Engine::fail`], unless it was refused before.
    pub(in crate::storage) fn fail_unless_refused(&self, error: &StorageError) {
        use StorageError::{Detached, Failed, NoRoom};
        if !matches!(error, Detached | Failed | NoRoom) {
            self.fail(error);
        }
    }

    /// No commit is taken from now on, until [`Engine::heal`] has gone well.
    pub(in crate::storage) fn fail(&self, error: &StorageError) {
        let state = &self.health.state;
        let was_well = state.compare_exchange(WELL, FAILED, Ordering::AcqRel, Ordering::Acquire);
        if was_well.is_err() {
            return;
        }
        let mut told = self.health.told.lock();
        told.1 = told.0.is_none_or(|when| when.elapsed() >= TELL_EVERY);
        if told.1 {
            told.0 = Some(Instant::now());
            log::error!(
                "a write failed: {error}. Writes are refused (MISCONF) and reads go on until the \
                 disk takes writes again, which is tried all the time: see to the disk of {}, no \
                 restart is needed",
                self.config.dir.display()
            );
        }
    }

    /// As after a write that failed, and an attempt to go on that did.
    #[cfg(test)]
    pub fn refuse_writes(&self) {
        self.fail(&StorageError::Failed);
        self.health.state.store(STILL_FAILED, Ordering::Release);
    }

    /// Goes on after errors that have gone away, if there were any. Returns whether writes
    /// are taken that were refused before. Only one thread calls it; it may wait for the
    /// disk for long.
    ///
    /// # Errors
    /// The disk still does not take writes.
    pub fn heal(&self) -> Result<bool> {
        self.drop_unwanted_families();
        self.settle()?;
        let health = &self.health;
        let errors = self.property("rocksdb.background-errors").unwrap_or(0);
        let known = health.background_errors.swap(errors, Ordering::Relaxed);
        let failed = self.has_failed();
        let done = match failed {
            true => self.go_on(),
            // RocksDB may have stopped in the background.
            false if errors != known => self.resume(),
            false => return Ok(false),
        };
        if let Err(error) = done {
            self.fail(&error);
            health.state.store(STILL_FAILED, Ordering::Release);
            return Err(error);
        }
        if failed {
            health.state.store(WELL, Ordering::Release);
            if self.health.told.lock().1 {
                log::info!("the disk takes writes again");
            }
        }
        Ok(failed)
    }

    fn go_on(&self) -> Result<()> {
        let reached = self.committed();
        self.resume()?;
        // RocksDB begins a new WAL when it writes out a memtable, and keeps the one that
        // failed if all of them are empty.
        if self.probe().is_err() {
            self.resume()?;
            self.probe()?;
        }
        self.db.flush_wal(true)?;
        self.note_durable(reached);
        Ok(())
    }

    /// Has RocksDB write out all memtables and take writes again, if it has stopped.
    #[allow(unsafe_code)]
    fn resume(&self) -> Result<()> {
        // SAFETY: the handle is one of this database; there is room for the text.
        told(|text, len| unsafe { kedis_disk_resume(self.system_cf.inner(), text, len) })
    }

    /// Begins to write out the memtable of a column family, without waiting for anything.
    ///
    /// # Errors
    /// RocksDB takes no writes.
    #[allow(unsafe_code)]
    pub(super) fn begin_flush_of(&self, family: &ColumnFamily) -> Result<()> {
        // SAFETY: as above.
        told(|text, len| unsafe { kedis_disk_begin_flush(family.inner(), text, len) })
    }

    /// Writes the state row as it is: with it there is something in a memtable, and in the
    /// WAL if that takes it.
    fn probe(&self) -> Result<()> {
        let mut commit = self.commit.lock();
        let mut unlogged = WriteOptions::default();
        unlogged.disable_wal(true);
        for options in [unlogged, WriteOptions::default()] {
            let mut batch = WriteBatch::default();
            self.put_state(&mut commit, &mut batch);
            self.db.write_opt(batch, &options)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{Meta, ValueType};
    use crate::storage::{DbIndex, StorageConfig, Txn};

    fn set(txn: &mut Txn, key: &[u8]) -> Result<()> {
        txn.begin(1).unwrap();
        let meta = Meta::new(ValueType::String);
        txn.put_key(DbIndex(0), key, None, meta, b"value").unwrap();
        txn.effect(DbIndex(0), &[b"SET", key, b"value"]);
        txn.commit()
    }

    /// The binlog had a hole after a commit that failed, and the counts were of it.
    #[test]
    fn a_commit_that_fails_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let mut txn = Txn::new(engine.clone());
        set(&mut txn, b"first").unwrap();
        let (commits, range) = (engine.commits(), engine.binlog.range());
        for _ in 0..3 {
            engine.refuse_writes();
            assert!(set(&mut txn, b"lost").is_err());
            assert!(
                engine.is_durable(engine.last_seen()),
                "reads wait for nothing"
            );
            assert!(engine.heal().unwrap());
        }
        assert_eq!(engine.commits(), commits);
        assert_eq!(engine.binlog.range(), range);
        assert!(!engine.heal().unwrap(), "there is nothing to heal");
        set(&mut txn, b"second").unwrap();
        drop((txn, engine));
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let report = engine.check().unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
        assert_eq!((report.keys, report.binlog_rows), (2, 2));
    }
}
