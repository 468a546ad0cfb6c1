//! The writing of a commit: its number, counts and state, and the batch itself.

use super::history::History;
use super::keyspace::Keyspace;
use super::{Engine, fail_point};
use crate::encoding::CollectionId;
use crate::encoding::system::{self, CountsChange, State, Upstream};
use crate::storage::{Result, StorageError};
use rocksdb::WriteBatch;
use std::sync::atomic::Ordering;

/// State under the commit lock: commits are numbered and written one at a time.
#[derive(Default)]
pub(in crate::storage) struct CommitState {
    pub(in crate::storage) state: State,
    pub(in crate::storage) scratch: Vec<u8>,
    /// The history that begins with the batch being written.
    pub(in crate::storage) history: Option<History>,
    /// How far a Redis master's stream is applied, if all that is here comes from it.
    pub(in crate::storage) upstream: Option<Upstream>,
}

impl Engine {
    /// Commits written since the start.
    pub fn commits(&self) -> u64 {
        self.durability.written()
    }

    /// A number that grows with every command that changed something, or, without
    /// a binlog that counts those, with every commit.
    pub fn writes(&self) -> u64 {
        match self.binlog.is_enabled() {
            true => self.binlog.range().next_entry,
            false => self.commits(),
        }
    }

    /// Writes one commit; the caller holds the commit lock.
    pub(in crate::storage) fn write(&self, batch: WriteBatch) -> Result<()> {
        if self.has_failed() {
            return Err(StorageError::Failed);
        }
        fail_point("before-write")?;
        let number = self.durability.begin();
        let _in_flight = self.disk.begin_write(batch.size_in_bytes());
        let done = fail_point("while-writing").and_then(|()| Ok(self.db.write(batch)?));
        // Also after a failure: the commit has changed nothing.
        self.durability.wrote(number);
        done?;
        fail_point("after-write")
    }

    /// Resets `commit` after its batch could not be written, except the counts of keyspaces.
    pub(in crate::storage) fn forget_commit(&self, commit: &mut CommitState) {
        let range = self.binlog.range();
        commit.state.binlog_position = range.next_position;
        commit.state.binlog_entry = range.next_entry;
        commit.history = None;
    }

    /// Adds the state row of this commit to its batch; the caller holds the
    /// commit lock.
    pub(in crate::storage) fn put_state(&self, commit: &mut CommitState, batch: &mut WriteBatch) {
        commit.state.next_id = self.next_id.load(Ordering::Relaxed);
        commit.scratch.clear();
        commit.state.encode(&mut commit.scratch);
        batch.put_cf(&self.system_cf, system::STATE, &commit.scratch);
    }

    /// Adds a keyspace's counts after this commit to its batch, or to the state row that follows.
    /// The caller holds the commit lock and calls [`Keyspace::add`] once the batch is written.
    pub(in crate::storage) fn put_counts(
        &self,
        commit: &mut CommitState,
        keyspace: &Keyspace,
        change: CountsChange,
        batch: &mut WriteBatch,
    ) {
        let counts = keyspace.counts().plus(change);
        if change.timed != 0 {
            let row = system::timed_row(keyspace.id);
            batch.put_cf(&self.system_cf, row, counts.timed.to_be_bytes());
        }
        if (change.keys, change.expires) != (0, 0) {
            keyspace.deletions.note_keys(change.keys);
            match system::counts_row(keyspace.id) {
                Some(row) => batch.put_cf(&self.system_cf, row, counts.encode()),
                None => commit.state.set_counts(keyspace.id, counts),
            }
        }
    }

    /// Resets what [`Engine::put_counts`] has changed in `commit`, after its batch could not be
    /// written.
    pub(in crate::storage) fn forget_counts(&self, commit: &mut CommitState, keyspace: &Keyspace) {
        if system::counts_row(keyspace.id).is_none() {
            commit.state.set_counts(keyspace.id, keyspace.counts());
        }
    }

    /// An id that was never used and never will be again.
    pub fn new_id(&self) -> CollectionId {
        CollectionId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }
}
