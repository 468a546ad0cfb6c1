//! I1: how far commits are safe from a crash, and who sees to that.
//!
//! The operating system has a commit once it is written, so it is safe from a crash of
//! the process. Syncing the disk (`appendfsync always`) takes much longer: for IO threads
//! a thread of its own does it, the *fsync thread*, which runs [`Engine::serve_syncs`].
//! They go on meanwhile and keep their replies back; one sync is for all that was written
//! when it began.
//!
//! A disk that has a cache of its own takes less for a sync than the kernel for getting
//! two threads to hand it to each other where processors are busy. So as long as syncs
//! are [`SHORT`], an IO thread does them itself once it has nothing else to do, unless
//! what is to be synced took it longer than a sync does.
//!
//! SET of 50 clients on two processors, syncs of 0.2 ms, × Redis side by side: rate 0.83
//! and processor time 1.35 with the fsync thread alone, 1.00 and 1.00 like this; one
//! client 0.78 and 0.95.

use crate::storage::engine::locks::{STRIPES, Stripe};
use crate::storage::engine::syncs::{LONGEST_WAIT, SyncGathering, SyncQueue};
use crate::storage::engine::{Engine, fail_point};
use crate::storage::{Result, StorageError};
use crate::sys::huge_pages::HugeVec;
use crate::sys::lock_order::{Lock, Mutex};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A sync that takes less, usually, does not hold a thread up.
const SHORT: Duration = Duration::from_micros(500);

/// What an IO thread is to do so that the disk has what it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Nothing: the disk has it.
    None,
    /// Nothing: the fsync thread tells it when the disk has it.
    Asked,
    /// Call [`Engine::make_durable`] before it waits for requests.
    Own,
    /// Call it now: nobody else would.
    Now,
}

/// How far the disk itself is.
#[derive(Debug, Clone, Copy)]
struct Synced {
    /// Everything before this binlog position is there.
    position: u64,
    /// Positions are of this data set: grows when a full sync installs another.
    data_set: u64,
}

/// What the database has.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct Reached {
    /// Commits.
    written: u64,
    synced: Synced,
}

/// A number of a commit: all up to it are meant. By default there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitNumber(u64);

/// The last commits that may have changed keys.
struct LastChanges {
    of_stripe: HugeVec<AtomicU64>,
    /// Of any key.
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
    /// Commits begun, commits written, commits that a crash cannot take back.
    begun: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    synced: Mutex<Synced, { Lock::Short as u8 }>,
    flush: Mutex<(), { Lock::Flush as u8 }>,
    /// How long syncs take, in ns: the last ones count most.
    sync_ns: AtomicU64,
    /// Changes under the commit lock.
    fsync_each: AtomicBool,
    last_changes: LastChanges,
    syncs: SyncQueue,
}

impl Durability {
    /// Of a database whose log ends before this binlog position.
    pub(in crate::storage) fn new(position: u64) -> Durability {
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
            fsync_each: AtomicBool::new(false),
            last_changes: LastChanges::default(),
            syncs: SyncQueue::default(),
        }
    }

    /// Commits written.
    pub(in crate::storage) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// A commit begins; returns its number. The caller holds the commit lock until
    /// it says how that went.
    pub(in crate::storage) fn begin(&self) -> u64 {
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Release);
        number
    }

    /// The commit of this number is written, or could not be and has changed nothing.
    pub(in crate::storage) fn wrote(&self, number: u64) {
        self.written.store(number, Ordering::Release);
        if !self.fsync_each.load(Ordering::Relaxed) {
            self.durable.fetch_max(number, Ordering::AcqRel);
        }
    }

    /// Notes that the commit written last may have changed the keys of these stripes,
    /// or `all`. The caller still holds their locks, and the commit lock.
    pub(in crate::storage) fn note_changed(&self, stripes: &[Stripe], all: bool) {
        let (written, last) = (self.written(), &self.last_changes);
        if all {
            last.of_all.store(written, Ordering::Release);
        }
        for stripe in stripes {
            last.of_stripe[stripe.index()].store(written, Ordering::Release);
        }
    }

    /// A sync has taken so long.
    fn note_sync(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let before = self.sync_ns.load(Ordering::Relaxed);
        let mean = match before {
            u64::MAX => took,
            before => before - before / 8 + took / 8,
        };
        self.sync_ns.store(mean, Ordering::Relaxed);
    }

    /// Whether a sync takes no longer than a thread may be held up, nor less than it was
    /// `busy` with what is to be synced: then it could do more of that meanwhile.
    fn is_short_for(&self, busy: Duration) -> bool {
        let takes = u128::from(self.sync_ns.load(Ordering::Relaxed));
        (busy.as_nanos()..SHORT.as_nanos()).contains(&takes)
    }

    /// Whether no commit after the one of this number is noted to have changed the keys of
    /// a stripe.
    pub(in crate::storage) fn is_as_of(&self, number: u64, stripe: Stripe) -> bool {
        self.last_changes.of_stripe[stripe.index()].load(Ordering::Acquire) <= number
    }

    /// Whether all that others have written to the keys of these stripes is on the
    /// disk; asked of `appendfsync always`. The caller shares their locks.
    pub(in crate::storage) fn has_all_of(&self, stripes: &[Stripe]) -> bool {
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
    /// Whether [`Engine::make_durable`] syncs the disk (`appendfsync always`), or has
    /// nothing to do.
    pub fn set_fsync_each(&self, on: bool) {
        let _nobody_writes = self.commit.lock();
        if on && !self.durability.fsync_each.load(Ordering::Relaxed) {
            // The operating system had it, which counted as durable.
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
        let _one_at_a_time = durability.flush.lock();
        while !self.is_durable(seen) {
            let reached = self.committed();
            if reached.written < seen.0 {
                // Another thread is between begin and end of its write: wait for it.
                drop(self.commit.lock());
                continue;
            }
            if !durability.fsync_each.load(Ordering::Relaxed) {
                durability
                    .durable
                    .fetch_max(reached.written, Ordering::AcqRel);
                continue;
            }
            if self.has_failed() {
                return Err(StorageError::Failed);
            }
            let began = Instant::now();
            let synced = fail_point("before-flush").and_then(|()| Ok(self.db.flush_wal(true)?));
            if let Err(error) = synced {
                self.fail(&error);
                return Err(error);
            }
            durability.note_sync(began.elapsed());
            self.note_durable(reached);
        }
        Ok(())
    }

    /// Sees to a sync for what [`Engine::make_durable`] would wait for, if that is a wait
    /// for the disk, for this many clients of the thread of this number, which was `busy`
    /// for so long with their requests.
    pub fn want_sync(
        &self,
        thread: usize,
        clients: impl FnOnce() -> usize,
        busy: Duration,
    ) -> Sync {
        let durability = &self.durability;
        if self.is_durable(self.last_seen()) {
            return Sync::None;
        }
        if !durability.fsync_each.load(Ordering::Relaxed) {
            return Sync::Now;
        }
        if durability.is_short_for(busy) {
            return Sync::Own;
        }
        match durability.syncs.ask(thread, clients(), self.last_seen().0) {
            true => Sync::Asked,
            false => Sync::Now,
        }
    }

    /// Syncs whenever somebody has asked, and then calls `tell` with the numbers of
    /// the threads that had; also if it failed, see [`Engine::has_failed`]. Returns
    /// when it is to stop: [`Engine::stop_syncs`].
    pub fn serve_syncs(&self, mut tell: impl FnMut(BTreeSet<usize>)) {
        let syncs = &self.durability.syncs;
        syncs.serve();
        let mut gathering = SyncGathering::new(LONGEST_WAIT);
        let is_durable = |commit| self.is_durable(CommitNumber(commit));
        while let Some(group) = syncs.next(&mut gathering, is_durable) {
            // It may be meanwhile: others sync, too.
            if !is_durable(group.last_seen) {
                let began = Instant::now();
                if let Err(error) = self.make_durable() {
                    log::debug!("fsync thread: {error}");
                }
                gathering.synced(began.elapsed(), group.clients + syncs.clients());
            }
            tell(group.threads);
        }
    }

    /// Takes it that syncs took so long until now.
    #[cfg(test)]
    pub fn assume_syncs_take(&self, long: Duration) {
        let ns = long.as_nanos() as u64;
        self.durability.sync_ns.store(ns, Ordering::Relaxed);
    }

    /// Whether somebody serves those who ask.
    #[cfg(test)]
    pub fn are_syncs_served(&self) -> bool {
        self.durability.syncs.is_served()
    }

    /// Ends [`Engine::serve_syncs`] once all who asked are told.
    pub fn stop_syncs(&self) {
        self.durability.syncs.stop();
    }

    /// The binlog position up to which everything is safe from a crash of the
    /// machine.
    pub fn synced_position(&self) -> u64 {
        self.durability.synced.lock().position
    }

    /// What a sync that begins now will have synced.
    pub(in crate::storage) fn committed(&self) -> Reached {
        // In this order: a position of a later data set does no harm.
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

    /// The disk has so much.
    pub(in crate::storage) fn note_durable(&self, reached: Reached) {
        let durability = &self.durability;
        durability
            .durable
            .fetch_max(reached.written, Ordering::AcqRel);
        self.note_synced(reached.synced);
        durability.syncs.look_again();
    }

    fn note_synced(&self, reached: Synced) {
        let mut synced = self.durability.synced.lock();
        if synced.data_set == reached.data_set {
            synced.position = synced.position.max(reached.position);
        }
    }

    /// Another data set, all of it synced, has taken the place of the old one:
    /// positions start over.
    pub(in crate::storage) fn note_data_set(&self, position: u64) {
        let mut synced = self.durability.synced.lock();
        synced.data_set += 1;
        synced.position = position;
    }

    /// Syncs the WAL to the disk (`appendfsync everysec`).
    ///
    /// # Errors
    /// What the sync reports; the engine then refuses writes.
    pub fn sync_wal(&self) -> Result<()> {
        // Not under the flush lock: ticks must not wait for the disk here.
        let reached = self.committed();
        let synced = fail_point("before-sync").and_then(|()| Ok(self.db.flush_wal(true)?));
        if let Err(error) = synced {
            // What the disk did not take may be gone from the system's memory as well.
            self.fail(&error);
            return Err(error);
        }
        self.note_durable(reached);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn after(syncs: &[u32]) -> Durability {
        let durability = Durability::new(0);
        for us in syncs {
            durability.note_sync(US * *us);
        }
        durability
    }

    #[test]
    fn short_syncs_are_for_the_thread_itself() {
        assert!(!after(&[]).is_short_for(US), "nobody knows");
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
}
