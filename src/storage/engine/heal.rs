//! Failed writes, and the recovery from them.
//!
//! From the first failure on no commit is accepted, while reads continue: they see what is
//! committed, and a commit that failed is in neither the WAL nor a memtable. A thread calls
//! [`Engine::heal`] until the disk takes writes again. RocksDB has then written all memtables to
//! new files, has synced them, and has begun a new WAL. So it does not matter what a failed write
//! or sync has left in the old WAL, in the kernel's cache or in the disk's: none of it is read
//! again, and the database need not be opened anew.

use super::{ColumnFamily, Engine};
use crate::storage::{Result, StorageError};
use crate::sys::lock_order::{Lock, Mutex};
use parking_lot::{RwLock, RwLockReadGuard};
use rocksdb::{AsColumnFamilyRef, WriteBatch, WriteOptions};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Commits are accepted.
const WELL: u8 = 0;
/// A write has failed, and no recovery has been tried yet.
const FAILED: u8 = 1;
/// A recovery was tried and failed, too.
const STILL_FAILED: u8 = 2;

/// The longest error text that is taken from RocksDB, in bytes.
const MAX_REASON: usize = 1024;

/// Whether commits are accepted.
#[derive(Default)]
pub(super) struct Health {
    state: AtomicU8,
    /// The number of errors of RocksDB's background threads that were handled.
    background_errors: AtomicU64,
    /// Held by those who request a flush, and alone by the recovery: RocksDB drops other requests then,
    /// and would refuse the one of the recovery for a column family that has one already.
    recovery: RwLock<()>,
    /// When a failure was last logged, and whether the last failure was.
    logged: Mutex<(Option<Instant>, bool), { Lock::Short as u8 }>,
}

/// Repeated failures are logged at most once in this time.
const LOG_EVERY: Duration = Duration::from_secs(60);

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

/// Calls a function of `disk/files.cc` with a buffer for the text of an error, whose length it
/// changes. Returns that text as an error if the function returns false.
fn checked(call: impl FnOnce(*mut u8, *mut usize) -> bool) -> Result<()> {
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
    /// Whether a write has failed, so that none is accepted now.
    pub fn has_failed(&self) -> bool {
        self.health.state.load(Ordering::Acquire) != WELL
    }

    /// Whether a write has failed, and the first attempt to recover as well.
    pub fn is_stuck(&self) -> bool {
        self.health.state.load(Ordering::Acquire) == STILL_FAILED
    }

    /// Whether a commit may add data.
    pub fn takes_data(&self) -> bool {
        !self.has_failed() && !self.disk.is_low()
    }

    /// Calls [`Engine::fail`] after a commit was not written, unless it was refused before the
    /// write.
    pub(in crate::storage) fn fail_unless_refused(&self, error: &StorageError) {
        use StorageError::{Detached, Failed, NoRoom};
        if !matches!(error, Detached | Failed | NoRoom) {
            self.fail(error);
        }
    }

    /// Refuses commits from now on, until [`Engine::heal`] has succeeded.
    pub(in crate::storage) fn fail(&self, error: &StorageError) {
        let state = &self.health.state;
        let was_well = state.compare_exchange(WELL, FAILED, Ordering::AcqRel, Ordering::Acquire);
        if was_well.is_err() {
            return;
        }
        let mut logged = self.health.logged.lock();
        logged.1 = logged.0.is_none_or(|when| when.elapsed() >= LOG_EVERY);
        if logged.1 {
            logged.0 = Some(Instant::now());
            log::error!(
                "a write failed: {error}. Writes are refused (MISCONF) and reads continue until the \
                 disk of {} takes writes again. The server keeps trying; mend the disk, no restart \
                 is needed",
                self.config.dir.display()
            );
        }
    }

    /// Acts as after a failed write and a failed recovery.
    #[cfg(test)]
    pub fn refuse_writes(&self) {
        self.fail(&StorageError::Failed);
        self.health.state.store(STILL_FAILED, Ordering::Release);
    }

    /// Recovers from errors whose cause is gone, if there were any. Returns whether writes that
    /// were refused are accepted again. Only one thread calls it; it may wait for the disk for
    /// long.
    ///
    /// # Errors
    /// The disk still does not take writes.
    pub fn heal(&self) -> Result<bool> {
        self.drop_unwanted_families();
        self.restore_memtable_sizes()?;
        let health = &self.health;
        let errors = self.property("rocksdb.background-errors").unwrap_or(0);
        let known = health.background_errors.swap(errors, Ordering::Relaxed);
        let failed = self.has_failed();
        let done = match failed {
            true => self.recover(),
            // A background error may have stopped RocksDB.
            false if errors != known => self.values.recover().and_then(|()| self.resume()),
            false => return Ok(false),
        };
        if let Err(error) = done {
            self.fail(&error);
            health.state.store(STILL_FAILED, Ordering::Release);
            return Err(error);
        }
        if failed {
            health.state.store(WELL, Ordering::Release);
            if self.health.logged.lock().1 {
                log::info!("the disk takes writes again");
            }
        }
        Ok(failed)
    }

    fn recover(&self) -> Result<()> {
        let reached = self.committed();
        self.values.write_again()?;
        self.values.sync()?;
        self.resume()?;
        // RocksDB begins a new WAL when it writes out a memtable; if all memtables are empty, it
        // keeps the WAL that failed.
        if self.probe().is_err() {
            self.resume()?;
            self.probe()?;
        }
        self.sync_files()?;
        self.note_durable(reached);
        Ok(())
    }

    /// Ends a recovery that waits in RocksDB, because the server stops: it may wait for a flush that
    /// does not come. What the memtables hold is in the WAL.
    pub fn end_recovery(&self) {
        if self.has_failed() {
            self.db.cancel_all_background_work(false);
        }
    }

    /// Has RocksDB write out all memtables and take writes again, if it has stopped.
    #[allow(unsafe_code)]
    fn resume(&self) -> Result<()> {
        let _alone = self.health.recovery.write();
        // SAFETY: the handle is one of this database; there is room for the text.
        checked(|text, len| unsafe { kedis_disk_resume(self.system_cf.inner(), text, len) })
    }

    /// For a thread that requests a flush and waits for it: none is requested during a recovery.
    pub(super) fn between_recoveries(&self) -> RwLockReadGuard<'_, ()> {
        self.health.recovery.read()
    }

    /// Begins to write out the memtable of a column family, without waiting for anything. During a
    /// recovery nothing begins: that writes out all.
    ///
    /// # Errors
    /// RocksDB takes no writes.
    #[allow(unsafe_code)]
    pub(super) fn begin_flush_of(&self, family: &ColumnFamily) -> Result<()> {
        let Some(_between_recoveries) = self.health.recovery.try_read() else {
            return Ok(());
        };
        // SAFETY: as above.
        checked(|text, len| unsafe { kedis_disk_begin_flush(family.inner(), text, len) })
    }

    /// Writes the state row unchanged, without the WAL and then with it: afterwards a memtable is
    /// not empty, and the second write shows whether the WAL takes writes.
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
    use crate::base::time::UnixMs;
    use crate::encoding::{Meta, ValueType};
    use crate::storage::{DbIndex, StorageConfig, Txn};
    use crate::sys::testing::wait_for;
    use std::sync::mpsc;
    use std::thread;

    fn set(txn: &mut Txn, key: &[u8]) -> Result<()> {
        txn.begin(UnixMs(1)).unwrap();
        let meta = Meta::new(ValueType::String);
        txn.put_key(DbIndex(0), key, None, meta, b"value").unwrap();
        txn.effect(DbIndex(0), &[b"SET", key, b"value"]);
        txn.commit()
    }

    /// The binlog had a hole after a commit that failed, and the counts included that commit.
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

    /// Flushes the memtables of both families, and waits until the flush of the first has failed and
    /// nothing runs any more.
    fn fail_first_flush(engine: &Engine, first: &ColumnFamily, second: &ColumnFamily) {
        let number = |name| engine.property(name).unwrap();
        let known = number("rocksdb.background-errors");
        engine.disk.fail_tables(true);
        engine.begin_flush_of(first).unwrap();
        engine.begin_flush_of(second).unwrap();
        wait_for("a flush that fails", || {
            number("rocksdb.background-errors") > known
                && number("rocksdb.num-running-flushes") == 0
        });
        engine.disk.fail_tables(false);
    }

    /// Recovery waited for ever for a flush that was requested before its own, which was refused then:
    /// the earlier one was dropped.
    #[test]
    fn flushes_that_are_requested_meanwhile_do_not_hold_recovery_up() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let mut txn = Txn::new(engine.clone());
        set(&mut txn, b"key").unwrap();
        let rows = engine.keyspace(DbIndex(0)).unwrap().cf.clone();
        let families = engine.all_families();
        for (first, second) in [(&rows, &engine.system_cf), (&engine.system_cf, &rows)] {
            set(&mut txn, b"key").unwrap();
            fail_first_flush(&engine, first, second);
            let (done, is_done) = mpsc::channel();
            let heals = engine.clone();
            thread::spawn(move || done.send(heals.heal()));
            let until = Instant::now() + Duration::from_secs(60);
            let healed = loop {
                // It may be refused, as RocksDB takes no writes yet.
                families
                    .iter()
                    .for_each(|family| _ = engine.begin_flush_of(family));
                match is_done.try_recv() {
                    Ok(healed) => break healed,
                    Err(_) => assert!(Instant::now() < until, "recovery hangs"),
                }
            };
            healed.unwrap();
        }
        set(&mut txn, b"after").unwrap();
        engine.flush_memtables().unwrap();
    }
}
