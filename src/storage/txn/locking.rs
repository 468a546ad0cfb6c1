//! Takes and releases the locks of keys and the gate for a transaction.

use super::{Txn, View};
use crate::base::time::UnixMs;
use crate::storage::engine::fair_queue::Wanted;
use crate::storage::engine::gate::{Gate, Pass};
use crate::storage::engine::locks::sets::KeySet;
use crate::storage::engine::locks::{LONG, Locks, Owner, Stripe, TryLock};
use crate::storage::txn::scan::stop_counters;
use crate::storage::{DbIndex, Result, StorageError};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// How often a reading command waits to share its keys before it takes them exclusively.
const SHARING_ATTEMPTS: usize = 4;
/// An owner that may hold keys for long, or applies what a master sends, locks more keys than this as
/// a set: their stripes would be one in a hundred or more, for which other commands would have to wait.
const MANY_KEYS: usize = 1024;

/// How long a thread that takes a key over and over waits for others to take it.
const LETS_IN: Duration = Duration::from_millis(2);

/// How often it looks whether they have it.
const LOOKS_AGAIN: Duration = Duration::from_micros(50);

impl View {
    /// The number of locks that are held, of which a set is the first.
    fn mark(&self) -> usize {
        self.turn.held.len() + usize::from(self.turn.set.is_some())
    }

    /// Whether no key is locked.
    pub(super) fn holds_nothing(&self) -> bool {
        self.mark() == 0 && self.turn.shared.is_empty()
    }
}

impl Txn {
    /// Marks this transaction as one that may hold keys for long. Returns its owner.
    pub fn for_long(&mut self) -> Owner {
        self.hold_for_long(true);
        self.turn.owner
    }

    /// Whether the next turns may hold keys for long: no IO thread waits for these then. No turn has
    /// begun.
    pub fn hold_for_long(&mut self, long: bool) {
        debug_assert!(self.turn.pass.is_none() && self.turn.held.is_empty());
        match long {
            true => self.turn.owner.0 |= LONG,
            false => self.turn.owner.0 &= !LONG,
        }
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
        debug_assert!(self.holds_nothing());
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
    /// transactions need not call it, nor do those that wait themselves.
    ///
    /// # Errors
    /// [`StorageError::Held`] with the owner of that entry.
    pub fn give_way(&self, key_hashes: &[u64], everything: bool) -> Result<()> {
        if !self.turn.owner.is_long() || self.turn.waits_for_long {
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
        let alone = everything.then_some(Wanted::Alone);
        // To note each of very many keys would take long. The first ones must do.
        for wanted in alone.into_iter().chain(keys().take(MANY_KEYS)) {
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
    pub fn lock(&mut self, key_hashes: impl Iterator<Item = u64> + Clone) -> Result<usize> {
        if let Some(mark) = self.lock_as_set(key_hashes.clone())? {
            return Ok(mark);
        }
        let mut wanted: SmallVec<[Stripe; 8]> = key_hashes.clone().map(Locks::stripe).collect();
        self.lock_stripes(&mut wanted, key_hashes)
    }

    /// Locks keys as a set, if they are very many and this is a transaction that does so.
    fn lock_as_set(&mut self, key_hashes: impl Iterator<Item = u64>) -> Result<Option<usize>> {
        let for_long = self.turn.owner.is_long();
        let takes_sets = for_long && self.holds_nothing() || self.is_received();
        if !takes_sets || self.is_exclusive() {
            return Ok(None);
        }
        let mut key_hashes = key_hashes.peekable();
        let few: SmallVec<[u64; 8]> = key_hashes.by_ref().take(MANY_KEYS).collect();
        if key_hashes.peek().is_none() {
            return Ok(None);
        }
        if !self.holds_nothing() {
            // Earlier rows of the master are pending.
            let now_ms = self.turn.now_ms;
            self.commit()?;
            self.begin(now_ms)?;
        }
        let set = KeySet::new(self.turn.owner, few.into_iter().chain(key_hashes));
        let (access, owner) = (&self.engine.access, self.turn.owner);
        let wanted = || set.stripes().map(Wanted::Stripe);
        // Sets of the same keys may follow one another, and leave no gap for those in between.
        let first = for_long.then(|| access.queue.before(owner, wanted()));
        let in_the_way = match first.flatten() {
            Some(other) => wanted().next().zip(Some(other)),
            None => {
                let locked = access.locks.lock_set(&set).err();
                locked.map(|(stripe, holder)| (Wanted::Stripe(stripe), holder))
            }
        };
        if let Some((wanted, holder)) = in_the_way {
            // The thread that applies rows waits for the stripes, one after the other.
            return match for_long {
                true => Err(self.turned_away(wanted, holder)),
                false => Ok(None),
            };
        }
        access.queue.granted(owner, wanted());
        self.see_new_keyspaces();
        self.turn.set = Some(set);
        Ok(Some(0))
    }

    /// Like [`Txn::lock`], for a command that only reads: in most cases other threads may read the
    /// keys, too, until [`Txn::unlock_since`].
    ///
    /// # Errors
    /// As [`Txn::lock`].
    pub fn lock_to_read(&mut self, key_hashes: impl Iterator<Item = u64> + Clone) -> Result<usize> {
        self.view.turn.reads_durable = false;
        // The owner of a stripe that is held for long must be known to others.
        if self.turn.owner.is_long() || self.is_exclusive() {
            return self.lock(key_hashes);
        }
        let mut wanted: SmallVec<[Stripe; 8]> = key_hashes.clone().map(Locks::stripe).collect();
        for _ in 0..SHARING_ATTEMPTS {
            let Err((stripe, holder)) = self.share(&wanted, key_hashes.clone()) else {
                self.see_new_keyspaces();
                self.note_granted(&wanted);
                let others_only = self.turn.shared.len() == wanted.len();
                self.view.turn.reads_durable =
                    others_only && self.engine.durability.are_synced(&self.turn.shared);
                return Ok(self.mark());
            };
            if holder.is_long() {
                break;
            }
            let now_ms = self.turn.now_ms;
            self.commit()?;
            self.engine.access.locks.wait_to_share(stripe);
            self.begin(now_ms)?;
        }
        self.lock_stripes(&mut wanted, key_hashes)
    }

    /// Whether a crash cannot take back anything that stands in the keys which
    /// [`Txn::lock_to_read`] locked last: neither of this turn nor of other threads.
    pub fn reads_durable(&self) -> bool {
        self.turn.reads_durable
    }

    /// Shares all stripes, which are those of these hashes, or none; then returns the one that
    /// cannot be shared, and its holder.
    fn share(
        &mut self,
        wanted: &[Stripe],
        key_hashes: impl Iterator<Item = u64>,
    ) -> std::result::Result<(), (Stripe, Owner)> {
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
        if let Some((hash, holder)) = self.in_set_of_other(key_hashes) {
            self.unshare();
            return Err((Locks::stripe(hash), holder));
        }
        Ok(())
    }

    fn in_set_of_other(&self, key_hashes: impl Iterator<Item = u64>) -> Option<(u64, Owner)> {
        let locks = &self.engine.access.locks;
        locks.in_set_of_other(key_hashes, self.turn.owner)
    }

    fn unshare(&mut self) {
        while let Some(stripe) = self.turn.shared.pop() {
            self.engine.access.locks.unshare(stripe);
        }
    }

    /// Locks one key if that is possible without waiting.
    pub(in crate::storage) fn try_lock(&mut self, db: DbIndex, key: &[u8]) -> bool {
        let hash = self.key_hash(db, key);
        if self.turn.set.as_ref().is_some_and(|set| set.contains(hash)) {
            return true;
        }
        let (stripe, owner) = (Locks::stripe(hash), self.turn.owner);
        let locks = &self.engine.access.locks;
        let taken = match locks.try_lock(stripe, owner) {
            TryLock::Taken => true,
            TryLock::Mine => false,
            TryLock::Busy(_) => return false,
        };
        let is_free = self.in_set_of_other(std::iter::once(hash)).is_none();
        match (taken, is_free) {
            (true, true) => self.turn.held.push(stripe),
            (true, false) => locks.unlock(stripe, owner),
            (false, _) => {}
        }
        is_free
    }

    /// Lets threads that wait for a key have it before this one takes it again, which holds nothing
    /// now: waits until none waits for it or holds it, or for a short time.
    pub(in crate::storage) fn let_others_in(&self, db: DbIndex, key: &[u8]) {
        let stripe = Locks::stripe(self.key_hash(db, key));
        let locks = &self.engine.access.locks;
        let until = Instant::now() + LETS_IN;
        while (locks.is_waited_for(stripe) || locks.is_held(stripe)) && Instant::now() < until {
            std::thread::sleep(LOOKS_AGAIN);
        }
    }

    /// Releases what was locked since `mark`: for keys that were only read.
    pub fn unlock_since(&mut self, mark: usize) {
        self.unshare();
        while self.mark() > mark {
            if let Some(stripe) = self.turn.held.pop() {
                self.engine.access.locks.unlock(stripe, self.turn.owner);
            } else if let Some(set) = self.turn.set.take() {
                self.engine.access.locks.unlock_set(&set);
            }
        }
    }

    /// Locks `keys` if that is possible without waiting, and returns whether it was. If not, holds
    /// no more than before. Commits nothing.
    pub fn try_lock_in_dbs<'k>(&mut self, keys: impl Iterator<Item = (DbIndex, &'k [u8])>) -> bool {
        let mark = self.mark();
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

    /// Locks stripes, which are those of these hashes.
    fn lock_stripes(
        &mut self,
        wanted: &mut SmallVec<[Stripe; 8]>,
        key_hashes: impl Iterator<Item = u64> + Clone,
    ) -> Result<usize> {
        if self.is_exclusive() {
            return Ok(self.mark());
        }
        if wanted.len() > 1 {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let mark = self.mark();
        for &stripe in wanted.iter() {
            match self.engine.access.locks.try_lock(stripe, self.turn.owner) {
                TryLock::Taken => self.turn.held.push(stripe),
                TryLock::Mine => {}
                TryLock::Busy(holder) if holder.is_long() && !self.turn.waits_for_long => {
                    self.unlock_since(mark);
                    return Err(self.turned_away(Wanted::Stripe(stripe), holder));
                }
                TryLock::Busy(_) => return self.wait_for_stripes(wanted, key_hashes),
            }
        }
        if let Some((hash, holder)) = self.in_set_of_other(key_hashes.clone()) {
            if self.turn.waits_for_long {
                return self.wait_for_stripes(wanted, key_hashes);
            }
            self.unlock_since(mark);
            return Err(self.turned_away(Wanted::Stripe(Locks::stripe(hash)), holder));
        }
        self.see_new_keyspaces();
        self.note_granted(wanted);
        Ok(mark)
    }

    /// Locks stripes of which not all are to be had at once. Commits and releases everything
    /// before it waits.
    fn wait_for_stripes(
        &mut self,
        wanted: &[Stripe],
        key_hashes: impl Iterator<Item = u64> + Clone,
    ) -> Result<usize> {
        let now_ms = self.turn.now_ms;
        self.commit()?;
        loop {
            let collected = self.collect(now_ms, wanted)?;
            let in_set = match collected {
                Ok(()) => self.in_set_of_other(key_hashes.clone()),
                Err(_) => None,
            };
            let set = in_set.map(|(hash, holder)| (Locks::stripe(hash), holder));
            let Some((stripe, holder)) = collected.err().or(set) else {
                self.note_granted(wanted);
                return Ok(0);
            };
            if !self.turn.waits_for_long {
                self.unlock_since(0);
                return Err(self.turned_away(Wanted::Stripe(stripe), holder));
            }
            self.release_locks();
            let (locks, owner) = (&self.engine.access.locks, self.turn.owner);
            let queue = &self.engine.access.queue;
            queue.note(owner, Wanted::Stripe(stripe), true);
            if let Some((hash, _)) = in_set {
                locks.wait_for_sets(hash, owner);
            } else if locks.lock(stripe, owner, true).is_ok() {
                locks.unlock(stripe, owner);
            }
        }
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
        debug_assert!(self.holds_nothing());
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
        self.batch.slots.truncate(0);
        self.batch.swaps.clear();
        self.batch.system_rows.clear();
        self.batch.cleared.clear();
        self.batch.early.clear();
        self.batch.rank_changes.truncate(0);
        self.batch.values.clear();
        self.batch.new_ids.get_mut().clear();
        if committed && self.for_tables() > 0 {
            self.engine.reserve_for_tables(self.for_tables());
        }
        self.lending.end_turn();
        let (cached, uncached) = (self.reads.cached.take(), self.reads.uncached.take());
        self.engine.row_reads.publish(cached, uncached);
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
