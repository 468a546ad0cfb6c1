//! Reports changes of keys to [listeners]: WATCH, clients that wait for a key, client-side caches.
//!
//! This is the only hook, below everything that changes a key. Rows with a key's existence, type,
//! expiry or packed value pass through [`crate::storage::txn::keyspace`], which notes them exactly.
//! A command that wrote only element rows is noted by its declared keys
//! ([`Txn::has_unnoted_rows`]). Whole DBs are noted as such. A change that a savepoint undoes is no
//! change.
//!
//! A thread registers interest in a key in
//! [`Interest`](crate::storage::engine::listeners::Interest) first, and reads the key, under its
//! lock, after that. A writer checks `Interest` while it holds the lock: so either it sees the
//! interest, or the thread sees what it wrote. Without any interest a change costs one relaxed
//! load, and with interest in other keys also a hash of the key.
//!
//! Every [`Listener`](crate::storage::engine::listeners::Listener) is called twice: when the
//! command is done, while its thread holds the keys' locks and before anything is committed, and
//! again after the commit.
//!
//! [listeners]: crate::storage::engine::listeners

use crate::storage::DbIndex;
use crate::storage::Result;
use crate::storage::engine::listeners::{Change, How, Keys};
use crate::storage::txn::{Txn, View};

/// The changes of a turn in which there is interest.
#[derive(Default)]
pub(in crate::storage) struct Changes {
    list: Vec<Change>,
    /// How many of them were announced to the listeners.
    announced: usize,
    /// Changes noted since the command began, with or without interest in them.
    noted: u32,
    /// Element rows written since the command began.
    rows: u32,
    origin: u64,
    /// Committed changes for [`Txn::take_changes`]; see [`Txn::keep_changes`].
    kept: Vec<Change>,
    keeps: bool,
}

impl Changes {
    pub(in crate::storage) fn start_command(&mut self) {
        self.noted = 0;
        self.rows = 0;
    }

    pub(in crate::storage) fn count_row(&mut self) {
        self.rows = self.rows.saturating_add(1);
    }

    pub(in crate::storage) fn len(&self) -> usize {
        self.list.len()
    }

    pub(in crate::storage) fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
        self.announced = self.announced.min(len);
    }
}

impl View {
    #[inline]
    pub(in crate::storage) fn note_change(&mut self, db: DbIndex, key: &[u8], how: How) {
        self.changes.noted = self.changes.noted.saturating_add(1);
        if self.engine.listeners.interest.any() {
            self.keep_change(db, key, how);
        }
    }

    #[cold]
    fn keep_change(&mut self, db: DbIndex, key: &[u8], how: How) {
        if !self.engine.listeners.interest.wants(self.key_hash(db, key)) {
            return;
        }
        let by = self.changes.origin;
        let key = key.into();
        self.changes.list.push(Change::Key { db, key, how, by });
    }

    /// Notes that a DB was cleared, even if it had no keys.
    pub fn note_clear(&mut self, db: DbIndex) {
        self.changes.noted = self.changes.noted.saturating_add(1);
        let by = self.changes.origin;
        if self.engine.listeners.interest.any() {
            self.changes.list.push(Change::Cleared { db, by });
        }
    }

    pub(in crate::storage) fn note_swap(&mut self, a: DbIndex, b: DbIndex) {
        self.changes.noted = self.changes.noted.saturating_add(1);
        let by = self.changes.origin;
        if self.engine.listeners.interest.any() {
            self.changes.list.push(Change::Swapped { a, b, by });
        }
    }

    /// The changes since the last commit in which there is interest.
    pub fn changes(&self) -> &[Change] {
        &self.changes.list
    }
}

impl Keys for View {
    fn hash(&self, db: DbIndex, key: &[u8]) -> u64 {
        self.key_hash(db, key)
    }

    /// May wait for the disk, whatever the command may do: the commands that ask are done, and
    /// do not run on IO threads.
    fn exists(&self, db: DbIndex, key: &[u8]) -> Result<bool> {
        let may_wait = self.may_wait();
        self.set_may_wait(true);
        let meta = self.meta_of(db, key);
        self.set_may_wait(may_wait);
        Ok(meta?.is_some())
    }
}

impl Txn {
    /// Sets the client on whose behalf commands run from now on: its number, or 0.
    pub fn set_origin(&mut self, client: u64) {
        self.changes.origin = client;
    }

    /// Whether the command wrote element rows and no change was noted that names their key.
    pub fn has_unnoted_rows(&self) -> bool {
        self.changes.rows > 0 && self.changes.noted == 0
    }

    /// Notes that the command changed a key, for element rows, which do not name their key.
    pub fn note_written(&mut self, db: DbIndex, key: &[u8]) {
        self.note_change(db, key, How::Written);
    }

    /// Calls the listeners for changes that they do not know yet. The commands must be done: what
    /// was announced is not undone. Returns these changes.
    pub fn announce_changes(&mut self) -> &[Change] {
        let before = self.changes.announced;
        if before == self.changes.list.len() {
            return &[];
        }
        let news = &self.changes.list[before..];
        self.engine
            .listeners
            .each(|listener| listener.changing(&**self, news));
        self.changes.announced = self.changes.list.len();
        &self.changes.list[before..]
    }

    /// Keeps committed changes from now on. The caller must take them ([`Txn::take_changes`]).
    pub fn keep_changes(&mut self) {
        self.changes.keeps = true;
    }

    /// The changes that were committed since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes.kept)
    }

    /// Whether there are changes in which there is interest, committed or not.
    pub fn has_changes(&self) -> bool {
        !self.changes.list.is_empty() || !self.changes.kept.is_empty()
    }

    /// Ends the list of changes, and calls the listeners if they are committed.
    pub(in crate::storage) fn end_changes(&mut self, committed: bool) {
        if self.changes.list.is_empty() {
            return;
        }
        if committed {
            let all = &self.changes.list;
            self.engine.listeners.each(|listener| listener.changed(all));
        }
        let changes = &mut self.changes;
        match committed && changes.keeps {
            true => changes.kept.append(&mut changes.list),
            false => changes.list.clear(),
        }
        changes.announced = 0;
    }
}
