//! I1: how far commits are safe from a crash, and which thread syncs the disk.
//!
//! A commit that is written is in the hands of the operating system, so it is safe from a crash of
//! the process. Syncing the disk (`appendfsync always`) takes much longer. The *fsync thread*,
//! which runs [`Engine::serve_syncs`], does it for IO threads. Meanwhile they run other requests
//! and hold their replies back. One sync covers everything that was written before it began.
//!
//! On a disk with a write cache of its own a sync takes less time than the hand-over between two
//! threads while the processors are busy. So as long as syncs are [`SHORT`], an IO thread does them
//! itself once it has nothing else to do, unless the requests that are to be synced took longer
//! than a sync does.
//!
//! Measured with SET, 50 clients, two processors and syncs of 0.2 ms, relative to Redis on the same
//! machine: rate 0.83 and processor time 1.35 with the fsync thread alone, 1.00 and 1.00 with this
//! rule; rate of one client 0.78 and 0.95.

use crate::base::histogram::Histogram;
use crate::encoding::binlog::Position;
use crate::storage::engine::locks::{STRIPES, Stripe};
use crate::storage::engine::syncs::{LONGEST_WAIT, SyncGathering, SyncQueue};
use crate::storage::engine::{Engine, fail_point};
use crate::storage::{Result, StorageError};
use crate::sys::huge_pages::HugeVec;
use crate::sys::lock_order::{Lock, Mutex};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An IO thread syncs itself if the mean time of a sync is below this.
const SHORT: Duration = Duration::from_micros(500);

/// What an IO thread must do to get everything that it has read or written synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Nothing: it is durable.
    None,
    /// Nothing: the fsync thread notifies the thread after the sync.
    Asked,
    /// Call [`Engine::make_durable`] before the thread waits for requests.
    Own,
    /// Call [`Engine::make_durable`] at once: no other thread does it.
    Now,
}

/// How far the log is synced.
#[derive(Debug, Clone, Copy)]
struct Synced {
    /// Everything before this binlog position is synced.
    position: Position,
    /// The number of the data set that the position belongs to; grows when a full sync installs
    /// another.
    data_set: u64,
}

/// What a sync that begins at this point makes durable.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct Reached {
    /// The number of the last commit written.
    written: u64,
    synced: Synced,
}

/// The number of a commit; stands for this commit and all before. The default stands for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitNumber(u64);

/// The numbers of the last commits that may have changed keys.
struct LastChanges {
    of_stripe: HugeVec<AtomicU64>,
    /// The last commit that may have changed all keys.
    of_all: AtomicU64,
}

impl Default for LastChanges {
    fn default() -> Self {
        LastChanges {
            of_stripe: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            of_all: AtomicU64::new(0),
        }
    }
}

/// How far commits are written, and how far they are on the disk.
pub(in crate::storage) struct Durability {
    /// The numbers of the last commit begun, written, and safe from a crash.
    begun: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    synced: Mutex<Synced, { Lock::Short as u8 }>,
    flush: Mutex<(), { Lock::Flush as u8 }>,
    /// A moving average of the time of a sync, in ns.
    sync_ns: AtomicU64,
    /// The times of all syncs, in microseconds.
    pub(in crate::storage) sync_times: Histogram,
    /// Whether commits are synced (`appendfsync always`). Changes under the commit lock.
    fsync_each: AtomicBool,
    last_changes: LastChanges,
    syncs: SyncQueue,
}

impl Durability {
    /// For a database whose binlog ends before this position.
    pub(in crate::storage) fn new(position: Position) -> Durability {
        Durability {
            begun: AtomicU64::new(0),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            synced: Mutex::new(Synced {
                position,
                data_set: 0,
            }),
            flush: Mutex::new(()),
            sync_ns: AtomicU64::new(u64::MAX),
            sync_times: Histogram::default(),
            fsync_each: AtomicBool::new(false),
            last_changes: LastChanges::default(),
            syncs: SyncQueue::default(),
        }
    }

    /// Whether each commit is synced.
    pub(in crate::storage) fn syncs_each(&self) -> bool {
        self.fsync_each.load(Ordering::Relaxed)
    }

    /// Commits written.
    pub(in crate::storage) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Begins a commit and returns its number. The caller holds the commit lock until it calls
    /// [`Durability::wrote`].
    pub(in crate::storage) fn begin(&self) -> u64 {
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Release);
        number
    }

    /// Ends a commit, which is written, or could not be and has changed nothing.
    pub(in crate::storage) fn wrote(&self, number: u64) {
        self.written.store(number, Ordering::Release);
        if !self.fsync_each.load(Ordering::Relaxed) {
            self.durable.fetch_max(number, Ordering::AcqRel);
        }
    }

    /// Notes that the commit written last may have changed the keys of these stripes,
    /// or `all`. The caller still holds their locks, and the commit lock.
    pub(in crate::storage) fn note_changed(
        &self,
        stripes: impl Iterator<Item = Stripe>,
        all: bool,
    ) {
        let (written, last) = (self.written(), &self.last_changes);
        if all {
            last.of_all.store(written, Ordering::Release);
        }
        for stripe in stripes {
            last.of_stripe[stripe.index()].store(written, Ordering::Release);
        }
    }

    /// Adds the time of a sync to the average.
    fn note_sync(&self, took: Duration) {
        self.note_sync_time(took);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let before = self.sync_ns.load(Ordering::Relaxed);
        let mean = match before {
            u64::MAX => took,
            before => before - before / 8 + took / 8,
        };
        self.sync_ns.store(mean, Ordering::Relaxed);
    }

    fn note_sync_time(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sync_times.note(us);
    }

    /// Whether the thread should sync itself: a sync takes less than [`SHORT`], and not less than
    /// the thread was `busy` with what is to be synced. If it was busy for longer, it had better
    /// serve requests during the sync.
    fn is_short_for(&self, busy: Duration) -> bool {
        let takes = u128::from(self.sync_ns.load(Ordering::Relaxed));
        (busy.as_nanos()..SHORT.as_nanos()).contains(&takes)
    }

    /// Whether no commit after the one of this number is noted to have changed the keys of
    /// a stripe.
    pub(in crate::storage) fn is_unchanged_since(&self, number: u64, stripe: Stripe) -> bool {
        self.last_changes.of_stripe[stripe.index()].load(Ordering::Acquire) <= number
    }

    /// Whether all that other threads have written to the keys of these stripes is synced; false
    /// without `appendfsync always`. The caller holds a shared lock of the stripes.
    pub(in crate::storage) fn are_synced(&self, stripes: &[Stripe]) -> bool {
        let last = &self.last_changes;
        let durable = self.durable.load(Ordering::Acquire);
        let is_durable = |commit: &AtomicU64| commit.load(Ordering::Acquire) <= durable;
        self.fsync_each.load(Ordering::Acquire)
            && is_durable(&last.of_all)
            && stripes
                .iter()
                .all(|stripe| is_durable(&last.of_stripe[stripe.index()]))
    }
}

impl Engine {
    /// Sets whether [`Engine::make_durable`] syncs the disk (`appendfsync always`), or has nothing
    /// to do.
    pub fn set_fsync_each(&self, on: bool) {
        let _no_commits = self.commit.lock();
        if on && !self.durability.fsync_each.load(Ordering::Relaxed) {
            // Until now a commit counted as durable once the operating system had it.
            let last = &self.durability.last_changes;
            last.of_all
                .store(self.durability.written(), Ordering::Release);
        }
        self.durability.fsync_each.store(on, Ordering::Release);
    }

    /// The last commit of which this thread can have read or written anything.
    pub fn last_seen(&self) -> CommitNumber {
        CommitNumber(self.durability.begun.load(Ordering::Acquire))
    }

    /// Whether a crash cannot take back this commit and those before.
    pub fn is_durable(&self, number: CommitNumber) -> bool {
        self.durability.durable.load(Ordering::Acquire) >= number.0
    }

    /// Whether all that a thread can have read or written is safe from a crash as soon as it can be
    /// read: without `appendfsync always`. RocksDB shows the rows of a batch once the operating system
    /// has the batch. So nobody waits for a batch that is being written, however large it is.
    fn is_safe_once_visible(&self) -> bool {
        let durability = &self.durability;
        // In this order: commits after `appendfsync always` has begun are not safe yet.
        let written = durability.written();
        if durability.fsync_each.load(Ordering::Acquire) {
            return false;
        }
        // Also the commits from before `appendfsync always` ended, for which ticks may wait.
        durability.durable.fetch_max(written, Ordering::AcqRel);
        true
    }

    /// Returns once everything that this thread can have read or written is
    /// safe from a crash of the process (with fsync: of the machine).
    ///
    /// # Errors
    /// What the sync of the WAL reports; the engine then refuses writes.
    pub fn make_durable(&self) -> Result<()> {
        let seen = self.last_seen();
        if self.is_durable(seen) {
            return Ok(());
        }
        let durability = &self.durability;
        if self.is_safe_once_visible() {
            return Ok(());
        }
        let _one_at_a_time = durability.flush.lock();
        while !self.is_durable(seen) {
            if self.is_safe_once_visible() {
                return Ok(());
            }
            let reached = self.committed();
            if reached.written < seen.0 {
                // Another thread is between begin and end of its write: wait for it.
                drop(self.commit.lock());
                continue;
            }
            if self.has_failed() {
                return Err(StorageError::Failed);
            }
            let began = Instant::now();
            let synced = fail_point("before-flush").and_then(|()| self.sync_files());
            if let Err(error) = synced {
                self.fail(&error);
                return Err(error);
            }
            durability.note_sync(began.elapsed());
            self.note_durable(reached);
        }
        Ok(())
    }

    /// Arranges the sync that [`Engine::make_durable`] would wait for, and returns what the calling
    /// thread must do. `thread` is the number of the thread, `clients` counts its clients that wait
    /// for the sync, and `busy` is the time that their requests took.
    pub fn want_sync(
        &self,
        thread: usize,
        clients: impl FnOnce() -> usize,
        busy: Duration,
    ) -> Sync {
        let durability = &self.durability;
        if self.is_durable(self.last_seen()) || self.is_safe_once_visible() {
            return Sync::None;
        }
        if durability.is_short_for(busy) {
            return Sync::Own;
        }
        match durability.syncs.ask(thread, clients(), self.last_seen().0) {
            true => Sync::Asked,
            false => Sync::Now,
        }
    }

    /// Announces the thread that will [serve syncs](Engine::serve_syncs), before it is started: threads
    /// ask it from now on.
    pub fn expect_syncs(&self) {
        self.durability.syncs.serve();
    }

    /// Runs the fsync thread: syncs whenever threads have asked for it, then calls `notify` with
    /// their numbers, also if the sync failed, see [`Engine::has_failed`]. Returns after
    /// [`Engine::stop_syncs`].
    pub fn serve_syncs(&self, mut notify: impl FnMut(BTreeSet<usize>)) {
        let syncs = &self.durability.syncs;
        let mut gathering = SyncGathering::new(LONGEST_WAIT);
        let is_durable = |commit| self.is_durable(CommitNumber(commit));
        while let Some(group) = syncs.next(&mut gathering, is_durable) {
            // Another thread may have synced meanwhile.
            if !is_durable(group.last_seen) {
                let began = Instant::now();
                if let Err(error) = self.make_durable() {
                    log::debug!("fsync thread: {error}");
                }
                gathering.synced(began.elapsed(), group.clients + syncs.clients());
            }
            notify(group.threads);
        }
    }

    /// Sets the average time of a sync.
    #[cfg(test)]
    pub fn assume_syncs_take(&self, long: Duration) {
        let ns = long.as_nanos() as u64;
        self.durability.sync_ns.store(ns, Ordering::Relaxed);
    }

    /// Ends [`Engine::serve_syncs`] once all threads that asked are notified.
    pub fn stop_syncs(&self) {
        self.durability.syncs.stop();
    }

    /// The binlog position up to which everything is safe from a crash of the
    /// machine.
    pub fn synced_position(&self) -> Position {
        self.durability.synced.lock().position
    }

    /// What a sync that begins now makes durable.
    pub(in crate::storage) fn committed(&self) -> Reached {
        // In this order: the position of a later data set is ignored.
        let data_set = self.durability.synced.lock().data_set;
        let written = self.durability.written();
        Reached {
            written,
            synced: Synced {
                data_set,
                position: self.binlog.range().next_position,
            },
        }
    }

    /// Notes that the disk has everything up to `reached`.
    pub(in crate::storage) fn note_durable(&self, reached: Reached) {
        let durability = &self.durability;
        durability
            .durable
            .fetch_max(reached.written, Ordering::AcqRel);
        self.note_synced(reached.synced);
        durability.syncs.recheck();
    }

    fn note_synced(&self, reached: Synced) {
        let mut synced = self.durability.synced.lock();
        if synced.data_set == reached.data_set {
            synced.position = synced.position.max(reached.position);
        }
    }

    /// Notes that another data set, all of it synced, has replaced the old one. Positions start
    /// over.
    pub(in crate::storage) fn note_data_set(&self, position: Position) {
        let mut synced = self.durability.synced.lock();
        synced.data_set += 1;
        synced.position = position;
    }

    /// Syncs the WAL, and before it the value log, in which its records name places.
    pub(in crate::storage) fn sync_files(&self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    /// Syncs the WAL to the disk (`appendfsync everysec`).
    ///
    /// # Errors
    /// What the sync reports; the engine then refuses writes.
    pub fn sync_wal(&self) -> Result<()> {
        // Not under the flush lock: ticks must not wait for the disk here.
        let reached = self.committed();
        let began = Instant::now();
        let synced = fail_point("before-sync").and_then(|()| self.sync_files());
        if let Err(error) = synced {
            // The kernel may have dropped the pages that it could not write.
            self.fail(&error);
            return Err(error);
        }
        self.durability.note_sync_time(began.elapsed());
        self.note_durable(reached);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::StorageConfig;

    const US: Duration = Duration::from_micros(1);

    fn after(syncs: &[u32]) -> Durability {
        let durability = Durability::new(Position::NONE);
        for us in syncs {
            durability.note_sync(US * *us);
        }
        durability
    }

    #[test]
    fn short_syncs_are_for_the_thread_itself() {
        assert!(!after(&[]).is_short_for(US), "no sync was measured");
        assert!(after(&[200]).is_short_for(US));
        assert!(
            !after(&[200]).is_short_for(US * 201),
            "it could work meanwhile"
        );
        assert!(!after(&[5000]).is_short_for(US));
    }

    #[test]
    fn how_long_syncs_take_follows_the_last_ones() {
        let slow = [&[200; 20][..], &[5000]].concat();
        assert!(!after(&slow).is_short_for(US), "one that is slow is enough");
        let again = [&slow[..], &[200; 20]].concat();
        assert!(after(&again).is_short_for(US));
        assert!(after(&[0; 30]).is_short_for(Duration::ZERO));
    }

    fn engine() -> (tempfile::TempDir, std::sync::Arc<Engine>) {
        let dir = tempfile::tempdir().unwrap();
        let config = StorageConfig::for_tests(dir.path().join("db"));
        let engine = Engine::open(config).unwrap();
        (dir, engine)
    }

    /// The replies to requests that wrote nothing once waited until a large batch of another thread
    /// was written.
    #[test]
    fn nobody_waits_for_a_batch_that_is_being_written() {
        let (_dir, engine) = engine();
        let writing = engine.commit.lock();
        let number = engine.durability.begin();
        assert_eq!(engine.want_sync(0, || 1, Duration::ZERO), Sync::None);
        engine.make_durable().unwrap();
        engine.durability.wrote(number);
        drop(writing);
    }

    #[test]
    fn what_waits_for_a_sync_ends_when_syncs_are_no_longer_asked_for() {
        let (_dir, engine) = engine();
        engine.set_fsync_each(true);
        let commit = engine.commit.lock();
        let number = engine.durability.begin();
        engine.durability.wrote(number);
        drop(commit);
        let seen = engine.last_seen();
        assert!(!engine.is_durable(seen));
        engine.set_fsync_each(false);
        engine.make_durable().unwrap();
        assert!(engine.is_durable(seen));
    }
}
