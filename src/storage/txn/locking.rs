//! How a transaction gets the keys it needs, and lets them go.

use super::Txn;
use crate::storage::engine::fair_queue::Wanted;
use crate::storage::engine::gate::{Gate, Pass};
use crate::storage::engine::locks::{LONG, Locks, Owner, Stripe, TryLock};
use crate::storage::txn::scan::stop_counters;
use crate::storage::{DbIndex, Result, StorageError};
use smallvec::SmallVec;

/// How often a command that reads waits until it can share its keys before it takes
/// them for itself.
const SHARING_ATTEMPTS: usize = 4;

impl Txn {
    /// From now on this transaction may hold keys for long. Returns its owner.
    pub fn for_long(&mut self) -> Owner {
        self.turn.owner.0 |= LONG;
        self.turn.owner
    }

    /// From now on this transaction does not wait for those that hold keys for
    /// long.
    pub fn be_impatient(&mut self) {
        self.turn.patient = false;
    }

    /// Starts or goes on with a turn at the time `now_ms`; waits while another
    /// thread runs a command that concerns whole DBs.
    ///
    /// # Errors
    /// [`StorageError::Held`].
    pub fn begin(&mut self, now_ms: u64) -> Result<()> {
        self.turn.now_ms = now_ms;
        if self.staging.is_some() {
            // Nobody else reads or writes what it does.
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
        // Here every turn begins, on whatever thread.
        stop_counters();
        let gate = &self.engine.access.gate;
        let pass = match enter(gate, self.turn.owner, false) {
            Ok(pass) => pass,
            Err(other) => {
                let error = self.turned_away(wanted, other);
                let waited = self
                    .turn
                    .patient
                    .then(|| enter(gate, self.turn.owner, true));
                waited.and_then(std::result::Result::ok).ok_or(error)?
            }
        };
        let queue = &self.engine.access.queue;
        queue.granted(self.turn.owner, std::iter::once(wanted));
        Ok(pass)
    }

    /// The first writer of a DB makes its keyspace. Whoever has got a lock after
    /// that writer let it go must know that keyspace: it may hold the key.
    fn see_new_keyspaces(&mut self) {
        if self.map_version != self.engine.map_version() {
            self.refresh_map();
        }
    }

    /// Starts a turn in which no other thread reads or writes keys. Commits
    /// what is pending first.
    ///
    /// # Errors
    /// [`StorageError::Held`], or that commit failed.
    pub fn begin_exclusive(&mut self, now_ms: u64) -> Result<()> {
        if !self.is_exclusive() {
            self.commit()?;
            self.turn.pass = Some(self.enter(Wanted::Alone, Gate::enter_alone)?);
        }
        self.begin(now_ms)
    }

    /// Before a transaction that may hold keys for long takes these, or all: lets
    /// those go first whom others like it have turned away (see
    /// [`crate::storage::engine::fair_queue`]). Others need not ask.
    ///
    /// # Errors
    /// [`StorageError::Held`]: somebody goes first.
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

    /// Whether another transaction waits until nobody else reads or writes keys.
    #[cfg(test)]
    pub fn is_waited_for(&self) -> bool {
        self.engine.access.gate.is_closing()
    }

    fn turned_away(&self, wanted: Wanted, other: Owner) -> StorageError {
        self.engine
            .access
            .queue
            .note(self.turn.owner, wanted, self.turn.patient);
        StorageError::Held(other)
    }

    /// Locks the stripes of all keys with these [`super::View::key_hash`]es; returns a
    /// mark for [`Txn::unlock_since`]. May commit what is pending.
    ///
    /// # Errors
    /// [`StorageError::Held`], with no more locked than before; or that commit
    /// failed.
    pub fn lock(&mut self, key_hashes: impl Iterator<Item = u64>) -> Result<usize> {
        let mut wanted: SmallVec<[Stripe; 8]> = key_hashes.map(Locks::stripe).collect();
        self.lock_stripes(&mut wanted)
    }

    /// As [`Txn::lock`], for a command that only reads: until [`Txn::unlock_since`],
    /// other threads may read the keys, too, mostly.
    ///
    /// # Errors
    /// As [`Txn::lock`].
    pub fn lock_to_read(&mut self, key_hashes: impl Iterator<Item = u64>) -> Result<usize> {
        self.view.turn.reads_durable = false;
        let mut wanted: SmallVec<[Stripe; 8]> = key_hashes.map(Locks::stripe).collect();
        // Others must be able to tell who holds a stripe for long.
        if self.turn.owner.is_long() || self.is_exclusive() {
            return self.lock_stripes(&mut wanted);
        }
        for _ in 0..SHARING_ATTEMPTS {
            let Err((stripe, holder)) = self.share(&wanted) else {
                self.see_new_keyspaces();
                self.got(&wanted);
                let others_only = self.turn.shared.len() == wanted.len();
                self.view.turn.reads_durable =
                    others_only && self.engine.durability.has_all_of(&self.turn.shared);
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

    /// Whether what [`Txn::lock_to_read`] locked last is known to hold nothing that a
    /// crash could take back: neither of this turn nor of other threads.
    pub fn reads_durable(&self) -> bool {
        self.turn.reads_durable
    }

    /// Shares stripes; or none, and returns the one that is not to be had, and why.
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

    /// Locks one key if that needs no waiting.
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

    /// Lets go what was locked since `mark`: for keys that were only read.
    pub fn unlock_since(&mut self, mark: usize) {
        self.unshare();
        while self.turn.held.len() > mark {
            if let Some(stripe) = self.turn.held.pop() {
                self.engine.access.locks.unlock(stripe, self.turn.owner);
            }
        }
    }

    /// Takes the locks of `keys` if that needs no waiting; says whether it did,
    /// and holds no more than before if not. Nothing is committed.
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
                TryLock::Busy(holder) if holder.is_long() && !self.turn.patient => {
                    self.unlock_since(mark);
                    return Err(self.turned_away(Wanted::Stripe(stripe), holder));
                }
                TryLock::Busy(_) => {
                    // Commit and let everything go before waiting.
                    let now_ms = self.turn.now_ms;
                    self.commit()?;
                    while let Err((stripe, holder)) = self.collect(now_ms, wanted)? {
                        if !self.turn.patient {
                            return Err(self.turned_away(Wanted::Stripe(stripe), holder));
                        }
                        self.let_go();
                        let locks = &self.engine.access.locks;
                        let queue = &self.engine.access.queue;
                        queue.note(self.turn.owner, Wanted::Stripe(stripe), true);
                        if locks.lock(stripe, self.turn.owner, true).is_ok() {
                            locks.unlock(stripe, self.turn.owner);
                        }
                    }
                    self.got(wanted);
                    return Ok(0);
                }
            }
        }
        self.see_new_keyspaces();
        self.got(wanted);
        Ok(mark)
    }

    fn got(&self, wanted: &[Stripe]) {
        let granted = wanted.iter().map(|stripe| Wanted::Stripe(*stripe));
        self.engine.access.queue.granted(self.turn.owner, granted);
    }

    /// Locks stripes, of which none is held, in ascending order; waits for each.
    /// While a thread waits that other threads wait for, it must not itself wait
    /// for one that holds a stripe for long: then it gets no stripe, but which one
    /// that is, and who holds it.
    fn collect(
        &mut self,
        now_ms: u64,
        wanted: &[Stripe],
    ) -> Result<std::result::Result<(), (Stripe, Owner)>> {
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

    /// Ends the turn: nothing is pending any more, and no lock is held.
    pub(super) fn end_turn(&mut self, committed: bool) {
        self.batch.overlay.clear();
        self.batch.log.clear();
        self.batch.deltas.clear();
        self.batch.swaps.clear();
        self.batch.system_rows.clear();
        self.batch.cleared.clear();
        self.batch.early.clear();
        self.batch.moves.truncate(0);
        self.batch.new_ids.get_mut().clear();
        self.lending.end_turn();
        self.let_go();
        self.end_changes(committed);
    }

    /// Ends the turn without a commit: nothing of it is done, and no lock is held.
    pub fn abandon(&mut self) {
        self.undo_swaps(0);
        self.give_up_early(0);
        self.command.expired = 0;
        self.events.truncate(0);
        self.end_turn(false);
    }

    /// Abandons the turn if what was done in it has failed. For threads that go on with
    /// the same transaction: otherwise other threads wait for its locks for ever, and the
    /// next commit writes a part of what has failed.
    pub fn abandon_if_failed<R, E>(
        &mut self,
        done: std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if done.is_err() {
            self.abandon();
        }
        done
    }

    /// Lets all locks go.
    pub(super) fn let_go(&mut self) {
        self.unlock_since(0);
        if let Some(pass) = self.turn.pass.take() {
            self.engine.access.gate.leave(pass);
        }
    }
}

/// A turn that its owner has not committed is abandoned with it.
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
            txn.begin(1).unwrap();
            txn.start_command();
            let hash = txn.key_hash(db, b"k");
            txn.lock([hash].into_iter()).unwrap();
            txn.put_row(db, b"row", b"value").unwrap();
            txn.effect(db, &[b"PING"]);
            txn
        };
        // Another thread gets the lock, and the gate to itself; nothing was written.
        let is_free = || {
            let mut other = Txn::new(engine.clone());
            other.begin(1).unwrap();
            assert!(other.try_lock(db, b"k"), "the lock is held");
            other.commit().unwrap();
            other.turn.patient = false;
            other.begin_exclusive(1).unwrap();
            assert!(other.row(db, b"row").unwrap().is_none());
            other.commit().unwrap();
            assert_eq!(engine.binlog.range().next_entry, logged);
        };
        drop(begin());
        is_free();
        let mut txn = begin();
        assert_eq!(txn.abandon_if_failed(Err::<(), _>("why")), Err("why"));
        is_free();
        // The next turn of it does not write what the failed one did.
        txn.begin(1).unwrap();
        txn.commit().unwrap();
        is_free();
    }
}
