//! Takes and releases the locks of keys and the gate for a transaction.

use super::Txn;
use crate::base::time::UnixMs;
use crate::storage::engine::fair_queue::Wanted;
use crate::storage::engine::gate::{Gate, Pass};
use crate::storage::engine::locks::{LONG, Locks, Owner, Stripe, TryLock};
use crate::storage::txn::scan::stop_counters;
use crate::storage::{DbIndex, Result, StorageError};
use smallvec::SmallVec;

/// How often a reading command waits to share its keys before it takes them exclusively.
const SHARING_ATTEMPTS: usize = 4;

impl Txn {
    /// Marks this transaction as one that may hold keys for long. Returns its owner.
    pub fn for_long(&mut self) -> Owner {
        self.turn.owner.0 |= LONG;
        self.turn.owner
    }

    /// Makes this transaction not wait for owners that hold keys for long.
    pub fn be_impatient(&mut self) {
        self.turn.waits_for_long = false;
    }

    /// Starts or continues a turn at the time `now_ms`. Waits while another thread runs a command
    /// that concerns whole DBs.
    ///
    /// # Errors
    /// [`StorageError::Held`] if that takes long and the transaction does not wait for it.
    pub fn begin(&mut self, now_ms: UnixMs) -> Result<()> {
        self.turn.now_ms = now_ms;
        if self.staging.is_some() {
            // No other thread accesses a staged data set.
            return Ok(());
        }
        if self.turn.pass.is_none() {
            self.turn.pass = Some(self.enter(Wanted::Inside, Gate::enter)?);
        }
        self.see_new_keyspaces();
        Ok(())
    }

    fn enter(
        &self,
        wanted: Wanted,
        enter: impl Fn(&Gate, Owner, bool) -> std::result::Result<Pass, Owner>,
    ) -> Result<Pass> {
        debug_assert!(self.turn.held.is_empty() && self.turn.shared.is_empty());
        // Every turn begins here, on whatever thread.
        stop_counters();
        let gate = &self.engine.access.gate;
        let pass = match enter(gate, self.turn.owner, false) {
            Ok(pass) => pass,
            Err(other) => {
                let error = self.turned_away(wanted, other);
                let waited = self
                    .turn
                    .waits_for_long
                    .then(|| enter(gate, self.turn.owner, true));
                waited.and_then(std::result::Result::ok).ok_or(error)?
            }
        };
        let queue = &self.engine.access.queue;
        queue.granted(self.turn.owner, std::iter::once(wanted));
        Ok(pass)
    }

    /// The first writer of a DB creates its keyspace. A thread that takes a lock after that writer
    /// released it must know that keyspace, which may hold the key.
    fn see_new_keyspaces(&mut self) {
        if self.map_version != self.engine.map_version() {
            self.refresh_map();
        }
    }

    /// Starts a turn in which no other thread reads or writes keys. Commits
    /// what is pending first.
    ///
    /// # Errors
    /// [`StorageError::Held`], or an error of that commit.
    pub fn begin_exclusive(&mut self, now_ms: UnixMs) -> Result<()> {
        if !self.is_exclusive() {
            self.commit()?;
            self.turn.pass = Some(self.enter(Wanted::Alone, Gate::enter_alone)?);
        }
        self.begin(now_ms)
    }

    /// Called before a transaction that may hold keys for long takes these, or all: it fails if an
    /// older entry of the [fair queue](crate::storage::engine::fair_queue) wants one of them. Other
    /// transactions need not call it.
    ///
    /// # Errors
    /// [`StorageError::Held`] with the owner of that entry.
    pub fn give_way(&self, key_hashes: &[u64], everything: bool) -> Result<()> {
        if !self.turn.owner.is_long() {
            return Ok(());
        }
        let stripes = key_hashes.iter().map(|hash| Locks::stripe(*hash));
        let keys = || stripes.clone().filter(|_| !everything).map(Wanted::Stripe);
        let inside = everything.then_some(Wanted::Inside);
        let in_the_way = [Wanted::Alone].into_iter().chain(inside).chain(keys());
        let queue = &self.engine.access.queue;
        let Some(other) = queue.before(self.turn.owner, in_the_way) else {
            return Ok(());
        };
        for wanted in everything
            .then_some(Wanted::Alone)
            .into_iter()
            .chain(keys())
        {
            queue.note(self.turn.owner, wanted, false);
        }
        Err(StorageError::Held(other))
    }

    /// Whether another transaction waits for exclusive access.
    #[cfg(test)]
    pub fn is_waited_for(&self) -> bool {
        self.engine.access.gate.is_closing()
    }

    fn turned_away(&self, wanted: Wanted, other: Owner) -> StorageError {
        self.engine
            .access
            .queue
            .note(self.turn.owner, wanted, self.turn.waits_for_long);
        StorageError::Held(other)
    }

    /// Locks the stripes of all keys with these [`super::View::key_hash`]es. Returns a mark for
    /// [`Txn::unlock_since`]. May commit what is pending.
    ///
    /// # Errors
    /// [`StorageError::Held`], with no more stripes locked than before; or an error of that commit.
    pub fn lock(&mut self, key_hashes: impl Iterator<Item = u64>) -> Result<usize> {
        let mut wanted: SmallVec<[Stripe; 8]> = key_hashes.map(Locks::stripe).collect();
        self.lock_stripes(&mut wanted)
    }

    /// Like [`Txn::lock`], for a command that only reads: in most cases other threads may read the
    /// keys, too, until [`Txn::unlock_since`].
    ///
    /// # Errors
    /// As [`Txn::lock`].
    pub fn lock_to_read(&mut self, key_hashes: impl Iterator<Item = u64>) -> Result<usize> {
        self.view.turn.reads_durable = false;
        let mut wanted: SmallVec<[Stripe; 8]> = key_hashes.map(Locks::stripe).collect();
        // The owner of a stripe that is held for long must be known to others.
        if self.turn.owner.is_long() || self.is_exclusive() {
            return self.lock_stripes(&mut wanted);
        }
        for _ in 0..SHARING_ATTEMPTS {
            let Err((stripe, holder)) = self.share(&wanted) else {
                self.see_new_keyspaces();
                self.note_granted(&wanted);
                let others_only = self.turn.shared.len() == wanted.len();
                self.view.turn.reads_durable =
                    others_only && self.engine.durability.are_synced(&self.turn.shared);
                return Ok(self.turn.held.len());
            };
            if holder.is_long() {
                break;
            }
            let now_ms = self.turn.now_ms;
            self.commit()?;
            self.engine.access.locks.wait_to_share(stripe);
            self.begin(now_ms)?;
        }
        self.lock_stripes(&mut wanted)
    }

    /// Whether a crash cannot take back anything that stands in the keys which
    /// [`Txn::lock_to_read`] locked last: neither of this turn nor of other threads.
    pub fn reads_durable(&self) -> bool {
        self.turn.reads_durable
    }

    /// Shares all stripes, or none; then returns the one that cannot be shared, and its holder.
    fn share(&mut self, wanted: &[Stripe]) -> std::result::Result<(), (Stripe, Owner)> {
        for &stripe in wanted {
            match self.engine.access.locks.try_share(stripe, self.turn.owner) {
                TryLock::Taken => self.turn.shared.push(stripe),
                TryLock::Mine => {}
                TryLock::Busy(holder) => {
                    self.unshare();
                    return Err((stripe, holder));
                }
            }
        }
        Ok(())
    }

    fn unshare(&mut self) {
        while let Some(stripe) = self.turn.shared.pop() {
            self.engine.access.locks.unshare(stripe);
        }
    }

    /// Locks one key if that is possible without waiting.
    pub(in crate::storage) fn try_lock(&mut self, db: DbIndex, key: &[u8]) -> bool {
        let stripe = Locks::stripe(self.key_hash(db, key));
        match self.engine.access.locks.try_lock(stripe, self.turn.owner) {
            TryLock::Taken => {
                self.turn.held.push(stripe);
                true
            }
            TryLock::Mine => true,
            TryLock::Busy(_) => false,
        }
    }

    /// Releases what was locked since `mark`: for keys that were only read.
    pub fn unlock_since(&mut self, mark: usize) {
        self.unshare();
        while self.turn.held.len() > mark {
            if let Some(stripe) = self.turn.held.pop() {
                self.engine.access.locks.unlock(stripe, self.turn.owner);
            }
        }
    }

    /// Locks `keys` if that is possible without waiting, and returns whether it was. If not, holds
    /// no more than before. Commits nothing.
    pub fn try_lock_in_dbs<'k>(&mut self, keys: impl Iterator<Item = (DbIndex, &'k [u8])>) -> bool {
        let mark = self.turn.held.len();
        for (db, key) in keys {
            if !self.is_exclusive() && !self.try_lock(db, key) {
                self.unlock_since(mark);
                return false;
            }
        }
        self.see_new_keyspaces();
        true
    }

    /// Whether no other thread reads or writes keys during this turn.
    pub fn is_exclusive(&self) -> bool {
        self.turn.pass.as_ref().is_some_and(Pass::is_alone)
    }

    fn lock_stripes(&mut self, wanted: &mut SmallVec<[Stripe; 8]>) -> Result<usize> {
        if self.is_exclusive() {
            return Ok(self.turn.held.len());
        }
        if wanted.len() > 1 {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let mark = self.turn.held.len();
        for &stripe in wanted.iter() {
            match self.engine.access.locks.try_lock(stripe, self.turn.owner) {
                TryLock::Taken => self.turn.held.push(stripe),
                TryLock::Mine => {}
                TryLock::Busy(holder) if holder.is_long() && !self.turn.waits_for_long => {
                    self.unlock_since(mark);
                    return Err(self.turned_away(Wanted::Stripe(stripe), holder));
                }
                TryLock::Busy(_) => {
                    // Commit and release everything before waiting.
                    let now_ms = self.turn.now_ms;
                    self.commit()?;
                    while let Err((stripe, holder)) = self.collect(now_ms, wanted)? {
                        if !self.turn.waits_for_long {
                            return Err(self.turned_away(Wanted::Stripe(stripe), holder));
                        }
                        self.release_locks();
                        let locks = &self.engine.access.locks;
                        let queue = &self.engine.access.queue;
                        queue.note(self.turn.owner, Wanted::Stripe(stripe), true);
                        if locks.lock(stripe, self.turn.owner, true).is_ok() {
                            locks.unlock(stripe, self.turn.owner);
                        }
                    }
                    self.note_granted(wanted);
                    return Ok(0);
                }
            }
        }
        self.see_new_keyspaces();
        self.note_granted(wanted);
        Ok(mark)
    }

    fn note_granted(&self, wanted: &[Stripe]) {
        let granted = wanted.iter().map(|stripe| Wanted::Stripe(*stripe));
        self.engine.access.queue.granted(self.turn.owner, granted);
    }

    /// Locks stripes, of which none is held, in ascending order; waits for each. A thread that
    /// holds stripes must not wait for a long owner, because other threads may wait for it. In that
    /// case it takes no stripe, and returns the one that is held for long, and its holder.
    fn collect(
        &mut self,
        now_ms: UnixMs,
        wanted: &[Stripe],
    ) -> Result<std::result::Result<(), (Stripe, Owner)>> {
        debug_assert!(self.turn.held.is_empty() && self.turn.shared.is_empty());
        debug_assert!(
            wanted.is_sorted_by(|a, b| a < b),
            "two could wait for each other"
        );
        self.begin(now_ms)?;
        for &stripe in wanted {
            let locks = &self.engine.access.locks;
            if let Err(holder) = locks.lock(stripe, self.turn.owner, false) {
                self.unlock_since(0);
                return Ok(Err((stripe, holder)));
            }
            self.turn.held.push(stripe);
        }
        self.see_new_keyspaces();
        Ok(Ok(()))
    }

    /// Ends the turn: drops what is pending and releases all locks.
    pub(super) fn end_turn(&mut self, committed: bool) {
        self.batch.overlay.clear();
        self.batch.log.clear();
        self.batch.deltas.clear();
        self.batch.swaps.clear();
        self.batch.system_rows.clear();
        self.batch.cleared.clear();
        self.batch.early.clear();
        self.batch.rank_changes.truncate(0);
        self.batch.new_ids.get_mut().clear();
        self.lending.end_turn();
        self.release_locks();
        self.end_changes(committed);
    }

    /// Ends the turn without a commit: undoes everything and releases all locks.
    pub fn abandon(&mut self) {
        self.undo_swaps(0);
        self.give_up_early(0);
        self.command.expired = 0;
        self.events.truncate(0);
        self.end_turn(false);
    }

    /// Abandons the turn if `done` is an error. For threads that continue with the same
    /// transaction: otherwise other threads would wait for its locks for ever, and the next commit
    /// would write a part of the failed work.
    pub fn abandon_if_failed<R, E>(
        &mut self,
        done: std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if done.is_err() {
            self.abandon();
        }
        done
    }

    /// Releases all locks.
    pub(super) fn release_locks(&mut self) {
        self.unlock_since(0);
        if let Some(pass) = self.turn.pass.take() {
            self.engine.access.gate.leave(pass);
        }
    }
}

/// A turn that was not committed is abandoned.
impl Drop for Txn {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Engine, StorageConfig};

    #[test]
    fn a_turn_that_is_dropped_or_abandoned_leaves_no_lock_and_no_rows() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().join("db"))).unwrap();
        let db = DbIndex(0);
        let logged = engine.binlog.range().next_entry;
        let begin = || {
            let mut txn = Txn::new(engine.clone());
            txn.begin(UnixMs(1)).unwrap();
            txn.start_command();
            let hash = txn.key_hash(db, b"k");
            txn.lock([hash].into_iter()).unwrap();
            txn.put_row(db, b"row", b"value").unwrap();
            txn.effect(db, &[b"PING"]);
            txn
        };
        // Another thread gets the lock, and exclusive access; nothing was written.
        let is_free = || {
            let mut other = Txn::new(engine.clone());
            other.begin(UnixMs(1)).unwrap();
            assert!(other.try_lock(db, b"k"), "the lock is held");
            other.commit().unwrap();
            other.turn.waits_for_long = false;
            other.begin_exclusive(UnixMs(1)).unwrap();
            assert!(other.row(db, b"row").unwrap().is_none());
            other.commit().unwrap();
            assert_eq!(engine.binlog.range().next_entry, logged);
        };
        drop(begin());
        is_free();
        let mut txn = begin();
        assert_eq!(txn.abandon_if_failed(Err::<(), _>("why")), Err("why"));
        is_free();
        // The next turn of the transaction does not write what the failed one did.
        txn.begin(UnixMs(1)).unwrap();
        txn.commit().unwrap();
        is_free();
    }
}
