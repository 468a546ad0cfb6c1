//! The transaction of a thread: what its commands read and write between two commits.
//!
//! A [`View`] reads: the thread's own pending batch first, then what is
//! committed. A [`Txn`] is a view that can write. Each thread has one for life.
//!
//! One turn: [`Txn::begin`], then per command [`Txn::lock`], [`Txn::savepoint`],
//! the command, perhaps [`Txn::rollback`]; at the end [`Txn::commit`], and
//! before any reply goes out [`Engine::make_durable`].
//!
//! A thread never waits while it holds something: [`Txn::lock`] commits what is
//! pending, which lets all locks go, before it waits. Transactions of scripts may hold keys
//! [for long](Txn::for_long); IO threads do not wait for them: [`StorageError::Held`].

mod locking;
mod lookup;

pub use lookup::{Expected, KEYS_AHEAD, Row};

use super::ahead;
use super::binlog::{LogBuffer, LogSavepoint};
use super::changes::Changes;
use super::engine::{ColumnFamily, Engine, Keyspace, Moment, fail_point};
use super::events::Events;
use super::gate::Pass;
use super::history::Following;
use super::hot::is_cacheable;
use super::locks::{Owner, Stripe};
use super::memtable::ExpectedRows;
use super::overlay::{self, Overlay, Step};
use super::patience::Patience;
use super::staging::Staging;
use super::tally::Moves;
use super::{DbIndex, Result, StorageError, runs};
use crate::encoding::keys::ELEMENT_PREFIX_LEN;
use crate::encoding::own::{Counts, KeyspaceId};
use crate::encoding::{CollectionId, keys, tag};
use rocksdb::{ReadOptions, WriteBatch};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Room in a batch for what stands beside the pending rows and the commands: its head,
/// and the state with the counts of some dozens of DBs.
const OTHER_ROWS_BYTES: usize = 1024;

/// How a pending batch changes the counts of a keyspace.
#[derive(Clone, Copy)]
pub(super) struct Delta {
    pub(super) keyspace: KeyspaceId,
    pub(super) keys: i64,
    pub(super) expires: i64,
    /// The earliest TTL row and the lowest reclaim row written; `u64::MAX`: none.
    ttl_ms: u64,
    reclaim: u64,
}

/// The map whose runs were brought up to date last.
#[derive(Default)]
struct LastMap {
    keyspace: Option<KeyspaceId>,
    hash: u64,
    names: [keys::RowKey; 2],
}

/// Where [`Txn::rollback`] goes back to.
pub struct Savepoint {
    overlay: overlay::Savepoint,
    log: LogSavepoint,
    deltas: SmallVec<[Delta; 2]>,
    swaps: usize,
    own: usize,
    cleared: usize,
    expired: u64,
    changes: usize,
    pub(super) events: usize,
    moves: usize,
    early: usize,
}

/// How often reading commands found a key, and how often not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lookups {
    /// The key was there.
    pub hits: u64,
    /// It was not.
    pub misses: u64,
}

/// What a thread reads through. See the module.
pub struct View {
    /// By DB; handles drop before the engine.
    pub(super) keyspaces: Vec<Option<Arc<Keyspace>>>,
    /// The data set that this one fills, if it is not the one in use.
    pub(super) staging: Option<Box<Staging>>,
    pub(super) engine: Arc<Engine>,
    map_version: u64,
    pub(super) overlay: Overlay,
    pub(super) log: LogBuffer,
    pub(super) deltas: SmallVec<[Delta; 2]>,
    /// Pairs of DBs swapped since the last commit.
    swaps: Vec<(DbIndex, DbIndex)>,
    /// Rows of the server itself, written (or deleted) since the last commit.
    pub(super) own: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Keyspaces cleared since the last commit.
    pub(super) cleared: Vec<KeyspaceId>,
    owner: Owner,
    held: Vec<Stripe>,
    /// What the command that runs shares with others; none of it is `held`.
    shared: SmallVec<[Stripe; 8]>,
    /// See [`Txn::reads_durable`].
    reads_durable: bool,
    /// Ids drawn in this turn.
    pub(super) new_ids: RefCell<FxHashSet<CollectionId>>,
    /// Collections of this turn whose rows are written, but no key yet.
    pub(super) early: Vec<ahead::Place>,
    /// Held from [`Txn::begin`] to [`Txn::commit`].
    pass: Option<Pass>,
    /// Whether it waits for owners that hold keys for long.
    patient: bool,
    pub(super) patience: Patience,
    point_reads: ReadOptions,
    /// See [`Txn::read_apart`].
    pub(super) moment: Option<Moment>,
    now_ms: u64,
    /// Whether a look-up deletes an expired key that it meets (see
    /// [`super::keyspace`]); otherwise it only hides it.
    pub(super) reaps: bool,
    /// Whether look-ups count as hits and misses.
    pub(super) counting: bool,
    /// Whether keys expire by this thread's clock at all.
    pub(super) expires: bool,
    /// Rows written or deleted since [`Txn::start_command`].
    pub(super) dirty: u64,
    effects: u64,
    pub(super) lookups: Lookups,
    /// Keys deleted since the last [`View::take_expired`] because their time was over.
    pub(super) expired: u64,
    pub(super) changes: Changes,
    pub(super) events: Events,
    pub(super) moves: Moves,
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

    /// The time that this turn goes by, in Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The time that [`crate::encoding::Meta::is_expired`] must be asked about,
    /// for rows met in a scan: 0 where keys do not expire by this thread's clock.
    pub fn expiry_now_ms(&self) -> u64 {
        if self.expires { self.now_ms } else { 0 }
    }

    /// Number of a DB's keys, what this turn changed included.
    pub fn counts(&self, db: DbIndex) -> Counts {
        let Some(keyspace) = self.keyspace(db) else {
            return Counts::default();
        };
        let mut counts = keyspace.counts();
        for delta in self.deltas.iter().filter(|d| d.keyspace == keyspace.id) {
            counts.keys = counts.keys.saturating_add_signed(delta.keys);
            counts.expires = counts.expires.saturating_add_signed(delta.expires);
        }
        counts
    }

    /// A hash of a key and its DB, for tables in memory.
    pub fn key_hash(&self, db: DbIndex, key: &[u8]) -> u64 {
        self.engine.key_hash(db, key)
    }

    /// What the look-ups of reading commands found since the last call.
    pub fn take_lookups(&mut self) -> Lookups {
        std::mem::take(&mut self.lookups)
    }

    /// What they found so far.
    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// Goes back to what they had found: they will be made again.
    pub fn set_lookups(&mut self, lookups: Lookups) {
        self.lookups = lookups;
    }

    /// How many keys were deleted because their time was over since the last call.
    pub fn take_expired(&mut self) -> u64 {
        std::mem::take(&mut self.expired)
    }

    /// How many rows the current command has changed.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    pub(super) fn keyspace(&self, db: DbIndex) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(usize::from(db.0))?.as_ref()
    }

    pub(super) fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
        self.overlay.put(keyspace, key, value);
        self.dirty += 1;
    }

    pub(super) fn put_parts(&mut self, keyspace: KeyspaceId, key: &[u8], value: [&[u8]; 2]) {
        self.overlay.put_parts(keyspace, key, value);
        self.dirty += 1;
    }

    pub(super) fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) {
        self.overlay.delete(keyspace, key);
        self.dirty += 1;
    }

    pub(super) fn change_counts(&mut self, keyspace: KeyspaceId, keys: i64, expires: i64) {
        let delta = self.delta(keyspace);
        delta.keys += keys;
        delta.expires += expires;
    }

    /// Notes that a TTL row was written, for the expire thread.
    pub(super) fn note_ttl(&mut self, keyspace: KeyspaceId, expire_ms: u64) {
        let delta = self.delta(keyspace);
        delta.ttl_ms = delta.ttl_ms.min(expire_ms);
    }

    /// Notes that a reclaim row was written, for the expire thread.
    pub(super) fn note_reclaim(&mut self, keyspace: KeyspaceId, id: CollectionId) {
        let delta = self.delta(keyspace);
        delta.reclaim = delta.reclaim.min(id.0);
    }

    fn delta(&mut self, keyspace: KeyspaceId) -> &mut Delta {
        let at = match self.deltas.iter().position(|d| d.keyspace == keyspace) {
            Some(at) => at,
            None => {
                self.deltas.push(Delta {
                    keyspace,
                    keys: 0,
                    expires: 0,
                    ttl_ms: u64::MAX,
                    reclaim: u64::MAX,
                });
                self.deltas.len() - 1
            }
        };
        &mut self.deltas[at]
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
        let owner = engine.new_owner();
        let view = View {
            keyspaces: Vec::new(),
            staging: None,
            map_version: 0,
            overlay: Overlay::new(engine.row_hasher.clone()),
            log: LogBuffer::default(),
            deltas: SmallVec::new(),
            swaps: Vec::new(),
            own: Vec::new(),
            cleared: Vec::new(),
            owner,
            held: Vec::new(),
            shared: SmallVec::new(),
            reads_durable: false,
            new_ids: RefCell::default(),
            early: Vec::new(),
            pass: None,
            patient: true,
            patience: Patience::default(),
            point_reads: ReadOptions::default(),
            moment: None,
            now_ms: 0,
            reaps: false,
            counting: false,
            expires: true,
            lookups: Lookups::default(),
            dirty: 0,
            effects: 0,
            expired: 0,
            changes: Changes::default(),
            events: Events::default(),
            moves: Moves::default(),
            engine,
        };
        Txn { view }
    }

    /// This transaction for a command that only reads: expired keys it meets
    /// are hidden, not deleted.
    pub fn reading(&mut self) -> &mut View {
        self.view.reaps = false;
        self.view.counting = true;
        &mut self.view
    }

    /// Lets `read` see the keys as they are now, without their locks: for a turn that has
    /// begun and has written nothing. What cannot be answered so fails with
    /// [`StorageError::TakesLong`].
    pub fn read_apart<R>(&mut self, read: impl FnOnce(&mut View) -> R) -> R {
        debug_assert!(self.overlay.is_empty() && self.pass.is_some());
        let moment = self.engine.moment();
        moment.apply_to(&mut self.view.point_reads);
        self.view.moment = Some(moment);
        let done = read(self.reading());
        self.view.point_reads = ReadOptions::default();
        self.view.moment = None;
        done
    }

    /// The same for a command that reads through a transaction.
    pub fn hide_expired(&mut self) {
        self.view.reaps = false;
    }

    /// Back from [`Txn::reading`].
    pub fn writing(&mut self) {
        self.view.reaps = true;
        self.view.counting = false;
    }

    /// Runs the part of a writing command whose look-ups count as hits and misses,
    /// as those of reading commands do.
    pub fn counting<R>(&mut self, read: impl FnOnce(&mut Txn) -> R) -> R {
        self.view.counting = true;
        let done = read(self);
        self.view.counting = false;
        done
    }

    /// Starts counting what the next command changes.
    pub fn start_command(&mut self) {
        self.writing();
        self.dirty = 0;
        self.effects = 0;
        self.changes.start_command();
    }

    /// Where [`Txn::rollback`] can go back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            overlay: self.overlay.savepoint(),
            log: self.log.savepoint(),
            deltas: self.deltas.clone(),
            swaps: self.swaps.len(),
            own: self.own.len(),
            cleared: self.cleared.len(),
            expired: self.expired,
            changes: self.changes.len(),
            events: self.events.len(),
            moves: self.moves.len(),
            early: self.early.len(),
        }
    }

    /// Takes back everything since `to`.
    pub fn rollback(&mut self, to: &Savepoint) {
        self.undo_swaps(to.swaps);
        self.give_up_early(to.early);
        self.own.truncate(to.own);
        self.expired = to.expired;
        self.cleared.truncate(to.cleared);
        self.overlay.rollback(to.overlay);
        self.log.rollback(to.log);
        self.changes.truncate(to.changes);
        self.events.truncate(to.events);
        self.moves.truncate(to.moves);
        self.deltas.clone_from(&to.deltas);
    }

    /// Takes back all swaps of DBs but the first `keep`.
    fn undo_swaps(&mut self, keep: usize) {
        while self.swaps.len() > keep
            && let Some((a, b)) = self.swaps.pop()
        {
            self.engine.swap(a, b);
            self.view.refresh_map();
        }
    }

    /// Writes an element row.
    pub fn put_row(&mut self, db: DbIndex, key: &[u8], value: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.view.put(keyspace, key, value);
        self.changes.count_row();
        Ok(())
    }

    /// Deletes an element row.
    pub fn delete_row(&mut self, db: DbIndex, key: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.view.delete(keyspace, key);
        self.changes.count_row();
        Ok(())
    }

    /// Writes a row that stands beside a key's value: who watches the key does not
    /// hear of it.
    pub fn put_side_row(&mut self, db: DbIndex, key: &[u8], value: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.view.put(keyspace, key, value);
        Ok(())
    }

    /// Deletes such a row.
    pub fn delete_side_row(&mut self, db: DbIndex, key: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.view.delete(keyspace, key);
        Ok(())
    }

    /// Deletes the rows in `[from, to)`.
    pub fn delete_rows(&mut self, db: DbIndex, from: &[u8], to: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.overlay.delete_range(keyspace, from, to);
        self.dirty += 1;
        self.changes.count_row();
        Ok(())
    }

    /// States what the command has done, in place of the command itself: this
    /// is what the binlog gets. May be called several times.
    pub fn effect<A: AsRef<[u8]>>(&mut self, db: DbIndex, args: &[A]) {
        self.effects += 1;
        self.view.log.append(db, args);
    }

    /// States that what the command has written concerns this server alone: unless
    /// it states other effects, nothing is logged.
    pub fn no_effect(&mut self) {
        self.effects += 1;
    }

    /// Logs the command itself, if it changed anything and did not state its
    /// effects otherwise.
    pub fn finish_command<A: AsRef<[u8]>>(&mut self, db: DbIndex, args: &[A]) {
        if self.dirty > 0 && self.effects == 0 {
            self.view.log.append(db, args);
        }
    }

    /// What was logged since `from` becomes one transaction in the log, if it is
    /// more than one command.
    pub fn log_as_unit(&mut self, from: &Savepoint) {
        self.log.wrap(from.log);
    }

    /// What was logged since `from` is not logged: it stands in the database, but
    /// replicas do not get it.
    pub fn unlog(&mut self, from: &Savepoint) {
        self.log.rollback(from.log);
    }

    /// Whether nothing was written since the savepoint.
    pub fn is_unchanged_since(&self, from: &Savepoint) -> bool {
        self.overlay.savepoint() == from.overlay
            && self.log.savepoint() == from.log
            && self.swaps.len() == from.swaps
            && self.own.len() == from.own
    }

    /// From now on this transaction only applies what a master has logged: keys
    /// do not expire by its clock, and it logs received rows.
    pub fn receive(&mut self, following: Following) {
        self.view.log.receive(following);
        self.view.expires = false;
    }

    /// Whether it only applies what a master has logged.
    pub fn is_received(&self) -> bool {
        self.log.is_received()
    }

    /// Whether the effects that commands state are logged.
    pub fn is_logged(&self) -> bool {
        !self.is_received() && self.engine.binlog.is_enabled()
    }

    /// Logs a row of the master's binlog, whose commands this transaction has run.
    pub fn log_received(&mut self, position: u64, row: &[u8]) {
        self.view.log.push_received(position, row);
    }

    /// Bytes that wait for a commit.
    pub fn pending_bytes(&self) -> usize {
        self.overlay.bytes() + self.log.len()
    }

    /// Writes a row of the server itself, or deletes it.
    pub fn put_own_row(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.own.push((key, value));
        self.dirty += 1;
    }

    /// Exchanges two DBs. Needs an exclusive turn.
    pub fn swap_dbs(&mut self, a: DbIndex, b: DbIndex) {
        debug_assert!(self.is_exclusive());
        self.engine.swap(a, b);
        self.swaps.push((a, b));
        self.dirty += 1;
        self.view.refresh_map();
        self.note_swap(a, b);
    }

    /// Writes everything pending in one batch and lets all locks go. Nothing is
    /// durable before [`Engine::make_durable`].
    ///
    /// # Errors
    /// Nothing of the batch is written. But for [`StorageError::NoRoom`] the engine refuses
    /// writes until it has [healed](Engine::heal).
    pub fn commit(&mut self) -> Result<()> {
        if self.staging.is_some() {
            return self.commit_staged();
        }
        let nothing = self.overlay.is_empty()
            && self.log.is_empty()
            && self.swaps.is_empty()
            && self.own.is_empty()
            && self.early.is_empty();
        let done = if nothing { Ok(()) } else { self.write() };
        if !self.cleared.is_empty() {
            // What was written since must not go with the files.
            let view = &mut self.view;
            let overlay = &view.overlay;
            view.cleared
                .retain(|keyspace| !overlay.puts_into(*keyspace));
        }
        if done.is_ok()
            && !self.cleared.is_empty()
            && let Err(error) = self.drop_cleared_files()
        {
            // It is committed; compactions drop what is in the files.
            self.engine.fail(&error);
        }
        if let Err(error) = &done {
            self.engine.fail_unless_refused(error);
            self.undo_swaps(0);
            self.engine.tallies.forget_all_of(&self.moves);
        }
        // The locks are still held: see `super::changes`.
        self.announce_changes();
        self.overlay.clear();
        self.log.clear();
        self.deltas.clear();
        self.swaps.clear();
        self.own.clear();
        self.cleared.clear();
        self.early.clear();
        self.moves.truncate(0);
        self.new_ids.get_mut().clear();
        self.let_go();
        self.end_changes(done.is_ok());
        done
    }

    /// What was written is what everybody reads once the key locks are let go.
    pub(super) fn refresh_hot_rows(&self) {
        let tallies = &self.engine.tallies;
        tallies.count(&self.moves);
        for &id in &self.cleared {
            if let Some(keyspace) = self.by_id(id) {
                keyspace.forget_hot_rows();
            }
        }
        let hot = &self.engine.hot;
        for (id, from, to) in self.overlay.deleted_ranges() {
            tallies.forget_range(id, from, to);
            if let (Some(keyspace), Some(map)) = (self.by_id(id), runs::map_of(from, to)) {
                let hash = self.overlay.hash(id, map);
                hot.forget_runs(keyspace.hot_hash(hash), &runs::names(map));
            }
        }
        // Most rows are of the keyspace of the row before.
        let of = |last: &mut Option<_>, id| {
            if last.is_none_or(|keyspace: &Arc<Keyspace>| keyspace.id != id) {
                *last = self.by_id(id);
            }
            *last
        };
        let (mut expected, mut last) = (None, None);
        let expect = |id, hash, key: &[u8]| {
            if is_cacheable(key)
                && let Some(keyspace) = of(&mut expected, id)
            {
                hot.prefetch_set(keyspace.hot_hash(hash));
            }
        };
        let retired = self.retired();
        let mut map = LastMap::default();
        self.overlay.for_each_row(expect, |id, hash, key, value| {
            let (mut of_run, cacheable) = (runs::is_of_run(key), is_cacheable(key));
            if !of_run && !cacheable {
                return;
            }
            let Some(keyspace) = of(&mut last, id) else {
                return;
            };
            let is_retired = !retired.is_empty()
                && ahead::element(key)
                    .is_some_and(|(element_of, _)| retired.contains(&(id, element_of)));
            let value = value.filter(|_| !is_retired);
            of_run &= !is_retired;
            if cacheable {
                hot.update(keyspace.hot_hash(hash), key, value);
            }
            if !of_run {
                return;
            }
            let prefix = &key[..ELEMENT_PREFIX_LEN];
            if map.keyspace != Some(id) || map.names[0][..ELEMENT_PREFIX_LEN] != *prefix {
                map = LastMap {
                    keyspace: Some(id),
                    hash: keyspace.hot_hash(self.overlay.hash(id, prefix)),
                    names: runs::names(prefix),
                };
            }
            hot.update_runs(map.hash, &map.names, key, value);
        });
        for (id, dead) in retired {
            let Some(keyspace) = self.by_id(id) else {
                continue;
            };
            for prefix in runs::TAGS.map(|tag| keys::element_prefix(tag, dead)) {
                let hash = self.overlay.hash(id, &prefix);
                hot.forget_runs(keyspace.hot_hash(hash), &runs::names(&prefix));
            }
        }
    }

    /// The collections that this turn leaves to the reclaim passes. One of those may have
    /// removed the rows already, so nothing of them may come into memory any more.
    fn retired(&self) -> BTreeSet<ahead::Place> {
        if self.deltas.iter().all(|delta| delta.reclaim == u64::MAX) {
            return BTreeSet::new();
        }
        let queued = self.overlay.puts_under(tag::RECLAIM);
        let retired = queued.filter_map(|(id, key)| Some((id, keys::split_reclaim(key).ok()?)));
        retired.collect()
    }

    /// The space of cleared DBs is free at once. The turn is still an exclusive one.
    fn drop_cleared_files(&self) -> Result<()> {
        debug_assert!(self.is_exclusive());
        self.engine.make_durable()?;
        for &id in &self.cleared {
            // What was written after the clearing may stand in a file by now.
            if !self.overlay.writes_to(id)
                && let Some(keyspace) = self.by_id(id)
            {
                self.engine.drop_files(keyspace)?;
            }
        }
        Ok(())
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

    fn write(&mut self) -> Result<()> {
        let loads = self.view.loads_to_send();
        let sent: ahead::Sent = loads.keys().copied().collect();
        let mut unqueued = self.early.clone();
        unqueued.extend(&sent);
        let engine = self.engine.clone();
        let room = engine.disk.reserve(self.pending_bytes());
        let written = room.and_then(|_kept| {
            fail_point("before-commit")?;
            self.view.send_ahead(&loads)?;
            self.write_batch(&sent, &unqueued)
        });
        if !unqueued.is_empty() {
            self.engine.ahead.remove_all(&unqueued);
            for (keyspace, id) in unqueued.iter().filter(|_| written.is_err()) {
                self.announce_reclaim(*keyspace, *id);
            }
        }
        written
    }

    /// A collection waits to be reclaimed, in a keyspace that may be gone.
    pub(super) fn announce_reclaim(&self, keyspace: KeyspaceId, id: CollectionId) {
        if let Some(keyspace) = self.by_id(keyspace) {
            keyspace.reclaim_low.announce(id.0);
        }
    }

    /// Writes all but the rows that were `sent` ahead of it.
    fn write_batch(&mut self, sent: &ahead::Sent, unqueued: &[ahead::Place]) -> Result<()> {
        let view = &self.view;
        // One that grows copies what it has.
        let bytes = view.overlay.batch_bytes() + view.log.batch_bytes() + OTHER_ROWS_BYTES;
        let mut batch = WriteBatch::with_capacity_bytes(bytes);
        let mut last: Option<&Arc<Keyspace>> = None;
        let mut cf_of = |id: KeyspaceId| match last {
            Some(ks) if ks.id == id => Ok(ks),
            _ => {
                last = view.by_id(id);
                last.ok_or_else(|| StorageError::Format(format!("keyspace {} is gone", id.0)))
            }
        };
        let mut expected = ExpectedRows::begin();
        for (keyspace, id) in unqueued {
            let key = keys::reclaim(*id);
            expected.push(keyspace.0.into(), &key);
            batch.delete_cf(&cf_of(*keyspace)?.cf, key);
        }
        for step in view.overlay.steps() {
            match step {
                Step::Put(id, key, _) if ahead::went(sent, id, key) => {}
                Step::Put(id, key, value) => {
                    expected.push(id.0.into(), key);
                    batch.put_cf(&cf_of(id)?.cf, key, value);
                }
                Step::Delete(id, key) => {
                    expected.push(id.0.into(), key);
                    batch.delete_cf(&cf_of(id)?.cf, key);
                }
                Step::DeleteRange(id, from, to) => batch.delete_range_cf(&cf_of(id)?.cf, from, to),
            }
        }
        for (key, value) in &view.own {
            view.engine.put_own_row(key, value.as_deref(), &mut batch);
        }
        for (a, b) in &view.swaps {
            view.engine.put_map_rows(&[*a, *b], &mut batch);
        }
        let engine = &self.view.engine;
        let mut commit = engine.commit.lock();
        let (log, now_ms) = (&mut self.view.log, self.view.now_ms);
        if let Err(error) = engine.put_log(&mut commit, log, now_ms, &mut batch) {
            engine.forget_commit(&mut commit);
            return Err(error);
        }
        let view = &self.view;
        for delta in &view.deltas {
            if let Some(keyspace) = view.by_id(delta.keyspace) {
                engine.put_counts(&mut commit, keyspace, delta.keys, delta.expires, &mut batch);
            }
        }
        engine.put_state(&mut commit, &mut batch);
        // The storage engine is about to copy what the batch has.
        self.view.log.cut();
        self.view.overlay.cut_long_rows();
        let view = &self.view;
        let written = expected.during(|| engine.write(batch));
        if let Err(error) = &written {
            // Under the lock: the next commit finds it failed.
            engine.fail(error);
            engine.forget_commit(&mut commit);
            for delta in &view.deltas {
                if let Some(keyspace) = view.by_id(delta.keyspace) {
                    engine.forget_counts(&mut commit, keyspace);
                }
            }
            return written;
        }
        let all = self.is_exclusive();
        engine.durability.note_changed(&view.held, all);
        // Before its first row: see the feeders of replicas.
        if let Some(history) = commit.history.take() {
            engine.show_history(history);
        }
        engine.publish_log(&commit.state);
        for delta in &view.deltas {
            if let Some(keyspace) = view.by_id(delta.keyspace) {
                keyspace.add(delta.keys, delta.expires);
            }
        }
        drop(commit);
        fail_point("before-refresh")?;
        self.refresh_hot_rows();
        for delta in &view.deltas {
            if let Some(keyspace) = view.by_id(delta.keyspace) {
                keyspace.ttl_low_ms.announce(delta.ttl_ms);
                keyspace.reclaim_low.announce(delta.reclaim);
            }
        }
        fail_point("after-commit")
    }
}
