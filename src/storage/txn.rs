//! The transaction of a thread: what its commands read and write between two commits.
//!
//! A [`View`] reads: the thread's own pending batch first, then the committed rows. A [`Txn`] is a
//! view that can write. Each thread has one for its whole life.
//!
//! One turn: [`Txn::begin`], then for each command [`Txn::lock`], [`Txn::savepoint`], the command,
//! perhaps [`Txn::rollback`]; at the end [`Txn::commit`], and before any reply is sent
//! [`Engine::make_durable`].
//!
//! A thread never waits for a key while it holds locks: [`Txn::lock`] commits what is pending,
//! which releases all locks, before it waits. Transactions of scripts may hold keys [for
//! long](Txn::for_long); IO threads do not wait for them: [`StorageError::Held`].

pub mod ahead;
pub mod changes;
mod cold;
mod commit;
mod elements;
pub mod events;
pub mod keyspace;
mod lending;
mod locking;
mod lookup;
pub mod overlay;
mod rank;
mod read_budget;
mod receive;
pub mod scan;
mod slot_counts;
mod staged;
mod values;

pub use lookup::{Expected, KEYS_AHEAD, Row};
pub use read_budget::{ReadLimits, Watch};

use crate::base::time::UnixMs;
use crate::encoding::CollectionId;
use crate::encoding::system::{Counts, CountsChange, KeyspaceId};
use crate::storage::engine::ahead::Place;
use crate::storage::engine::gate::Pass;
use crate::storage::engine::locks::sets::KeySet;
use crate::storage::engine::locks::{Owner, Stripe};
use crate::storage::engine::log_buffer::{LogBuffer, LogSavepoint};
use crate::storage::engine::{ColumnFamily, Engine, Keyspace, ReadSnapshot};
use crate::storage::full_sync::staging::Staging;
use crate::storage::rank::RankChanges;
use crate::storage::txn::changes::Changes;
use crate::storage::txn::cold::Cold;
use crate::storage::txn::events::Events;
use crate::storage::txn::lending::Lending;
use crate::storage::txn::overlay::Overlay;
use crate::storage::txn::read_budget::ReadBudget;
use crate::storage::txn::slot_counts::SlotChanges;
use crate::storage::txn::values::LoggedValues;
use crate::storage::{DbIndex, Result, StorageError};
use rocksdb::ReadOptions;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// How a pending batch changes the counts of a keyspace.
#[derive(Clone, Copy)]
pub(super) struct Delta {
    pub(super) keyspace: KeyspaceId,
    pub(super) counts: CountsChange,
    /// The earliest TTL row, the earliest row of a key with timed elements, and the lowest reclaim
    /// row written; `u64::MAX` if none.
    ttl_ms: u64,
    due_ms: u64,
    reclaim: u64,
}

/// The state to which [`Txn::rollback`] returns.
pub struct Savepoint {
    overlay: overlay::Savepoint,
    log: LogSavepoint,
    deltas: SmallVec<[Delta; 2]>,
    slots: usize,
    swaps: usize,
    system_rows: usize,
    cleared: usize,
    expired: u64,
    expired_elements: u64,
    changes: usize,
    pub(super) events: usize,
    rank_changes: usize,
    early: usize,
}

/// How often look-ups of reading commands found a key, and how often not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lookups {
    /// The key existed.
    pub hits: u64,
    /// The key did not exist.
    pub misses: u64,
}

/// What a turn has written: becomes one RocksDB batch with the commit.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) overlay: Overlay,
    pub(super) log: LogBuffer,
    pub(super) deltas: SmallVec<[Delta; 2]>,
    pub(super) slots: SlotChanges,
    /// Pairs of DBs that were swapped.
    swaps: Vec<(DbIndex, DbIndex)>,
    /// System rows that were written or deleted (`None`).
    pub(super) system_rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Keyspaces that were cleared.
    pub(super) cleared: Vec<KeyspaceId>,
    /// Collection ids that this turn has drawn.
    pub(super) new_ids: RefCell<FxHashSet<CollectionId>>,
    /// Collections whose rows are written already, before the commit makes them reachable.
    pub(super) early: Vec<Place>,
    pub(super) rank_changes: RankChanges,
    pub(super) values: LoggedValues,
}

/// The locks of a turn, and its time.
struct Turn {
    owner: Owner,
    held: Vec<Stripe>,
    /// Very many keys of one command or unit, which were locked before all others.
    set: Option<Arc<KeySet>>,
    /// Stripes that the current command shares; none of them is in `held`.
    shared: SmallVec<[Stripe; 8]>,
    /// See [`Txn::reads_durable`].
    reads_durable: bool,
    /// The right to be inside the gate, from [`Txn::begin`] to [`Txn::commit`].
    pass: Option<Pass>,
    /// Whether the transaction waits for owners that hold keys for long.
    waits_for_long: bool,
    /// The time of the turn, in Unix milliseconds.
    now_ms: UnixMs,
}

/// How rows are read.
#[derive(Default)]
pub(super) struct Reads {
    pub(super) budget: ReadBudget,
    options: ReadOptions,
    /// See [`Txn::read_apart`].
    pub(super) snapshot: Option<ReadSnapshot>,
    /// Rows of this turn that the row cache had.
    pub(super) cached: Cell<u64>,
    /// Rows that it did not have and may have.
    pub(super) uncached: Cell<u64>,
}

/// Counts one.
pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// The mode of the current command, and what is counted for it.
pub(super) struct CommandState {
    /// Whether a look-up deletes an expired key that it finds (see [`keyspace`]); otherwise the key
    /// is only hidden.
    pub(super) reaps: bool,
    /// Whether look-ups count as hits and misses.
    pub(super) counting: bool,
    /// Whether keys expire by this thread's clock at all.
    pub(super) expires: bool,
    /// Whether keys are imported: a time that is over already is stored like others.
    importing: bool,
    /// Rows written or deleted since [`Txn::start_command`].
    pub(super) dirty: u64,
    effects: u64,
    pub(super) lookups: Lookups,
    /// Keys deleted since the last [`View::take_expired`] because their time was over.
    pub(super) expired: u64,
    /// Likewise elements, since the last [`View::take_expired_elements`].
    pub(super) expired_elements: u64,
}

/// What a thread reads through: the pending batch over the committed rows.
pub struct View {
    /// What reads did not find in memory; handles drop before the engine.
    pub(super) cold: Cold,
    /// By DB; these as well.
    pub(super) keyspaces: Vec<Option<Arc<Keyspace>>>,
    map_version: u64,
    /// The staged data set that this transaction fills, if any.
    pub(super) staging: Option<Box<Staging>>,
    pub(super) engine: Arc<Engine>,
    pub(super) batch: Batch,
    turn: Turn,
    pub(super) reads: Reads,
    /// Accounting of the memory that the turn writes and copies.
    lending: Lending,
    pub(super) command: CommandState,
    pub(super) changes: Changes,
    pub(super) events: Events,
}

/// A [`View`] that can write.
pub struct Txn {
    view: View,
}

impl Deref for Txn {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl DerefMut for Txn {
    fn deref_mut(&mut self) -> &mut View {
        &mut self.view
    }
}

impl View {
    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The time of this turn, in Unix milliseconds.
    pub fn now_ms(&self) -> UnixMs {
        self.turn.now_ms
    }

    /// The time to pass to [`crate::encoding::Meta::is_expired`] for rows of a scan: 0 if keys do
    /// not expire by this thread's clock.
    pub fn expiry_now_ms(&self) -> UnixMs {
        if self.command.expires {
            self.turn.now_ms
        } else {
            UnixMs::NONE
        }
    }

    /// A time up to this one is over when it is set, so that what would get it is deleted at once;
    /// [`View::expiry_now_ms`], unless keys are being imported.
    pub fn over_when_set_ms(&self) -> UnixMs {
        match self.command.importing {
            true => UnixMs::NONE,
            false => self.expiry_now_ms(),
        }
    }

    /// Sets whether keys are being imported, and whether the command that follows is of the
    /// source: then keys do not expire for it.
    pub fn set_import(&mut self, importing: bool, is_source: bool) {
        self.command.importing = importing;
        if !self.batch.log.is_received() && self.staging.is_none() {
            self.command.expires = !(importing && is_source);
        }
    }

    /// The numbers of a DB's keys, with the changes of this turn.
    pub fn counts(&self, db: DbIndex) -> Counts {
        let Some(keyspace) = self.keyspace(db) else {
            return Counts::default();
        };
        let mut counts = keyspace.counts();
        for delta in self
            .batch
            .deltas
            .iter()
            .filter(|d| d.keyspace == keyspace.id)
        {
            counts = counts.plus(delta.counts);
        }
        counts
    }

    /// A hash of a key and its DB, for tables in memory.
    pub fn key_hash(&self, db: DbIndex, key: &[u8]) -> u64 {
        self.engine.key_hash(db, key)
    }

    /// The hits and misses of reading commands since the last call.
    pub fn take_lookups(&mut self) -> Lookups {
        std::mem::take(&mut self.command.lookups)
    }

    /// The hits and misses so far.
    pub fn lookups(&self) -> Lookups {
        self.command.lookups
    }

    /// Resets the hits and misses, because the look-ups will be repeated.
    pub fn set_lookups(&mut self, lookups: Lookups) {
        self.command.lookups = lookups;
    }

    /// The number of expired keys that were deleted since the last call.
    pub fn take_expired(&mut self) -> u64 {
        std::mem::take(&mut self.command.expired)
    }

    /// The number of fields and members that were deleted since the last call because their time
    /// was over.
    pub fn take_expired_elements(&mut self) -> u64 {
        std::mem::take(&mut self.command.expired_elements)
    }

    /// The number of rows that the current command has changed.
    pub fn dirty(&self) -> u64 {
        self.command.dirty
    }

    pub(super) fn keyspace(&self, db: DbIndex) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(usize::from(db.0))?.as_ref()
    }

    pub(super) fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
        self.batch.overlay.put(keyspace, key, value);
        self.command.dirty += 1;
    }

    pub(super) fn put_parts(&mut self, keyspace: KeyspaceId, key: &[u8], value: [&[u8]; 2]) {
        self.batch.overlay.put_parts(keyspace, key, value);
        self.command.dirty += 1;
    }

    pub(super) fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) {
        self.batch.overlay.delete(keyspace, key);
        self.command.dirty += 1;
    }

    pub(super) fn change_counts(&mut self, keyspace: KeyspaceId, change: CountsChange) {
        self.delta(keyspace).counts.add(change);
    }

    /// Notes that a TTL row was written, for the expire thread.
    pub(super) fn note_ttl(&mut self, keyspace: KeyspaceId, expire_ms: UnixMs) {
        let delta = self.delta(keyspace);
        delta.ttl_ms = delta.ttl_ms.min(expire_ms.0);
    }

    /// Notes that a key with timed elements was written, for the expire thread.
    pub(super) fn note_due(&mut self, keyspace: KeyspaceId, due_ms: UnixMs) {
        let delta = self.delta(keyspace);
        delta.due_ms = delta.due_ms.min(due_ms.0);
    }

    /// Notes that a reclaim row was written, for the expire thread.
    pub(super) fn note_reclaim(&mut self, keyspace: KeyspaceId, id: CollectionId) {
        let delta = self.delta(keyspace);
        delta.reclaim = delta.reclaim.min(id.0);
    }

    fn delta(&mut self, keyspace: KeyspaceId) -> &mut Delta {
        let at = match self
            .batch
            .deltas
            .iter()
            .position(|d| d.keyspace == keyspace)
        {
            Some(at) => at,
            None => {
                self.batch.deltas.push(Delta {
                    keyspace,
                    counts: CountsChange::default(),
                    ttl_ms: u64::MAX,
                    due_ms: u64::MAX,
                    reclaim: u64::MAX,
                });
                self.batch.deltas.len() - 1
            }
        };
        &mut self.batch.deltas[at]
    }

    fn refresh_map(&mut self) {
        self.map_version = self.engine.map_version();
        self.keyspaces.clear();
        self.keyspaces
            .resize(usize::from(self.engine.config.databases), None);
        for (db, keyspace) in self.engine.all_keyspaces() {
            self.keyspaces[usize::from(db.0)] = Some(keyspace);
        }
    }

    pub(super) fn column_family(&self, id: KeyspaceId) -> Result<ColumnFamily> {
        let keyspace = self.by_id(id);
        let keyspace =
            keyspace.ok_or_else(|| StorageError::Format(format!("keyspace {} is gone", id.0)))?;
        Ok(keyspace.cf.clone())
    }

    pub(super) fn by_id(&self, id: KeyspaceId) -> Option<&Arc<Keyspace>> {
        self.keyspaces.iter().flatten().find(|ks| ks.id == id)
    }
}

impl Txn {
    /// A transaction for one thread.
    pub fn new(engine: Arc<Engine>) -> Txn {
        let overlay = Overlay::new(engine.memory.row_hasher.clone());
        let view = View {
            cold: Cold::default(),
            keyspaces: Vec::new(),
            map_version: 0,
            staging: None,
            batch: Batch {
                overlay,
                ..Batch::default()
            },
            turn: Turn {
                owner: engine.new_owner(),
                held: Vec::new(),
                set: None,
                shared: SmallVec::new(),
                reads_durable: false,
                pass: None,
                waits_for_long: true,
                now_ms: UnixMs::NONE,
            },
            reads: Reads::default(),
            lending: Lending::default(),
            command: CommandState {
                reaps: false,
                counting: false,
                expires: true,
                importing: false,
                dirty: 0,
                effects: 0,
                lookups: Lookups::default(),
                expired: 0,
                expired_elements: 0,
            },
            changes: Changes::default(),
            events: Events::default(),
            engine,
        };
        Txn { view }
    }

    /// This transaction for a command that only reads: expired keys are hidden, not deleted.
    pub fn reading(&mut self) -> &mut View {
        self.view.command.reaps = false;
        self.view.command.counting = true;
        &mut self.view
    }

    /// Calls `read` with a view of a snapshot of all keys, without their locks. The turn must have
    /// begun and have written nothing. Reads that a snapshot cannot answer fail with
    /// [`StorageError::ReadBudgetSpent`].
    pub fn read_apart<R>(&mut self, read: impl FnOnce(&mut View) -> R) -> R {
        debug_assert!(self.batch.overlay.is_empty() && self.turn.pass.is_some());
        let moment = self.engine.read_snapshot();
        moment.apply_to(&mut self.view.reads.options);
        self.view.reads.snapshot = Some(moment);
        let done = read(self.reading());
        self.view.reads.options = ReadOptions::default();
        self.view.reads.snapshot = None;
        done
    }

    /// Hides expired keys instead of deleting them, for a command that reads through a transaction.
    pub fn hide_expired(&mut self) {
        self.view.command.reaps = false;
    }

    /// Ends the mode of [`Txn::reading`].
    pub fn writing(&mut self) {
        self.view.command.reaps = true;
        self.view.command.counting = false;
    }

    /// Runs the part of a writing command whose look-ups count as hits and misses,
    /// as those of reading commands do.
    pub fn counting<R>(&mut self, read: impl FnOnce(&mut Txn) -> R) -> R {
        self.view.command.counting = true;
        let done = read(self);
        self.view.command.counting = false;
        done
    }

    /// Starts counting what the next command changes.
    pub fn start_command(&mut self) {
        self.writing();
        self.command.dirty = 0;
        self.command.effects = 0;
        self.events.start_command();
        self.changes.start_command();
        self.lending.start_command();
        if !self.replays_rows() {
            self.batch.values.forget_arguments();
        }
    }

    /// The state to which [`Txn::rollback`] can return.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            overlay: self.batch.overlay.savepoint(),
            log: self.batch.log.savepoint(),
            deltas: self.batch.deltas.clone(),
            slots: self.batch.slots.len(),
            swaps: self.batch.swaps.len(),
            system_rows: self.batch.system_rows.len(),
            cleared: self.batch.cleared.len(),
            expired: self.command.expired,
            expired_elements: self.command.expired_elements,
            changes: self.changes.len(),
            events: self.events.len(),
            rank_changes: self.batch.rank_changes.len(),
            early: self.batch.early.len(),
        }
    }

    /// Undoes everything since `to`.
    pub fn rollback(&mut self, to: &Savepoint) {
        self.undo_swaps(to.swaps);
        self.give_up_early(to.early);
        self.batch.system_rows.truncate(to.system_rows);
        self.command.expired = to.expired;
        self.command.expired_elements = to.expired_elements;
        self.batch.cleared.truncate(to.cleared);
        self.batch.overlay.rollback(to.overlay);
        self.batch.log.rollback(to.log);
        self.changes.truncate(to.changes);
        self.events.truncate(to.events);
        self.batch.rank_changes.truncate(to.rank_changes);
        self.batch.deltas.clone_from(&to.deltas);
        self.batch.slots.truncate(to.slots);
    }

    /// Undoes all swaps of DBs but the first `keep`.
    fn undo_swaps(&mut self, keep: usize) {
        while self.batch.swaps.len() > keep
            && let Some((a, b)) = self.batch.swaps.pop()
        {
            self.engine.swap(a, b);
            self.view.refresh_map();
        }
    }

    /// Writes an element row.
    pub fn put_row(&mut self, db: DbIndex, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_side_row(db, key, value)?;
        self.changes.count_row();
        Ok(())
    }

    /// Deletes an element row.
    pub fn delete_row(&mut self, db: DbIndex, key: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.borrow_for_deletion(key)?;
        self.view.delete(keyspace, key);
        self.changes.count_row();
        Ok(())
    }

    /// Writes a row that is not part of a key's value: listeners for changes of the key are not
    /// called.
    pub fn put_side_row(&mut self, db: DbIndex, key: &[u8], value: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.borrow_for_row(key, value.len())?;
        self.view.put(keyspace, key, value);
        Ok(())
    }

    /// Deletes a row that [`Txn::put_side_row`] has written.
    pub fn delete_side_row(&mut self, db: DbIndex, key: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.view.delete(keyspace, key);
        Ok(())
    }

    /// Deletes the rows in `[from, to)`.
    pub fn delete_rows(&mut self, db: DbIndex, from: &[u8], to: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.batch.overlay.delete_range(keyspace, from, to);
        self.command.dirty += 1;
        self.changes.count_row();
        Ok(())
    }

    /// Logs an effect in place of the command itself. May be called several times. Without memory
    /// for it, [`Txn::check_effects`] fails.
    pub fn effect<A: AsRef<[u8]>>(&mut self, db: DbIndex, args: &[A]) {
        self.command.effects += 1;
        if self.lends_for_effect(args) {
            self.log_command(db, args);
        }
    }

    /// Notes that what the command has written concerns this server alone: unless it logs effects,
    /// nothing is logged.
    pub fn no_effect(&mut self) {
        self.command.effects += 1;
    }

    /// Logs the command itself, if it has changed rows and has not logged effects.
    pub fn finish_command<A: AsRef<[u8]>>(&mut self, db: DbIndex, args: &[A]) {
        if self.command.dirty > 0 && self.command.effects == 0 {
            self.log_command(db, args);
        }
    }

    /// Makes one transaction in the log of what was logged since `from`, if it is more than one
    /// command.
    pub fn log_as_unit(&mut self, from: &Savepoint) {
        self.batch.log.wrap(from.log);
    }

    /// Removes what was logged since `from` from the log: the changes stay in the database, but
    /// replicas do not get them.
    pub fn unlog(&mut self, from: &Savepoint) {
        self.batch.log.rollback(from.log);
    }

    /// Whether nothing was written since the savepoint.
    pub fn is_unchanged_since(&self, from: &Savepoint) -> bool {
        self.batch.overlay.savepoint() == from.overlay
            && self.batch.log.savepoint() == from.log
            && self.batch.swaps.len() == from.swaps
            && self.batch.system_rows.len() == from.system_rows
    }

    /// Whether effects that commands state are logged.
    pub fn is_logged(&self) -> bool {
        !self.is_received() && self.engine.binlog.is_enabled()
    }

    /// Writes a system row, or deletes it (`None`).
    pub fn put_system_row(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.batch.system_rows.push((key, value));
        self.command.dirty += 1;
    }

    /// Exchanges two DBs. Needs an exclusive turn.
    pub fn swap_dbs(&mut self, a: DbIndex, b: DbIndex) {
        debug_assert!(self.is_exclusive());
        self.engine.swap(a, b);
        self.batch.swaps.push((a, b));
        self.command.dirty += 1;
        self.view.refresh_map();
        self.note_swap(a, b);
    }

    /// The keyspace of a DB that is about to be written to.
    pub(super) fn keyspace_for_write(&mut self, db: DbIndex) -> Result<KeyspaceId> {
        if let Some(keyspace) = self.keyspace(db) {
            return Ok(keyspace.id);
        }
        if let Some(staging) = &mut self.view.staging {
            let keyspace = staging.keyspace(db)?;
            let id = keyspace.id;
            if let Some(slot) = self.view.keyspaces.get_mut(usize::from(db.0)) {
                *slot = Some(keyspace);
            }
            return Ok(id);
        }
        let id = self.engine.keyspace_or_create(db)?.id;
        self.view.refresh_map();
        Ok(id)
    }
}
