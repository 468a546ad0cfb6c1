//! Consistent reads of all rows while other threads commit.

use super::{Db, Engine};
use rocksdb::{ReadOptions, SnapshotWithThreadMode};
use std::sync::Arc;

/// All rows as they were at one point in time. Their versions are kept, but not the files
/// of a cleared keyspace: a reader stays inside the gate.
pub(in crate::storage) struct ReadSnapshot {
    // Dropped first.
    rows: SnapshotWithThreadMode<'static, Db>,
    /// The number of the last commit that it shows.
    pub(in crate::storage) last_commit: u64,
    _engine: Arc<Engine>,
}

impl Engine {
    /// All rows as they are now.
    #[allow(unsafe_code)]
    pub(in crate::storage) fn read_snapshot(self: &Arc<Self>) -> ReadSnapshot {
        let no_commits = self.commit.lock();
        let last_commit = self.durability.written();
        let rows = self.db.snapshot();
        drop(no_commits);
        // SAFETY: only the lifetime changes. The result owns a reference to the engine with this
        // database, and drops it after `rows`.
        let rows = unsafe {
            std::mem::transmute::<SnapshotWithThreadMode<'_, Db>, SnapshotWithThreadMode<'static, Db>>(
                rows,
            )
        };
        ReadSnapshot {
            rows,
            last_commit,
            _engine: self.clone(),
        }
    }
}

impl ReadSnapshot {
    /// Makes reads see these rows. The iterators must not outlive the snapshot.
    pub(in crate::storage) fn apply_to(&self, reads: &mut ReadOptions) {
        reads.set_snapshot(&self.rows);
    }
}

/// How many need files that may otherwise be removed.
#[derive(Debug, Default)]
pub(in crate::storage) struct FilesInUse {
    /// Snapshots. They need tables and values, but nothing of the binlog.
    snapshots: u32,
    /// Copies of the database that are being made.
    copies: u32,
}

impl FilesInUse {
    /// Whether tables and segments of values may go.
    pub(in crate::storage) fn data_may_go(&self) -> bool {
        self.snapshots == 0 && self.copies == 0
    }

    /// Whether segments of the binlog may go.
    pub(in crate::storage) fn binlog_may_go(&self) -> bool {
        self.copies == 0
    }
}

/// Keeps files from being removed while it lives.
pub(in crate::storage) struct KeepFiles<'e> {
    engine: &'e Engine,
    count: fn(&mut FilesInUse) -> &mut u32,
}

impl<'e> KeepFiles<'e> {
    /// For a snapshot.
    pub(in crate::storage) fn for_snapshot(engine: &'e Engine) -> Self {
        KeepFiles::new(engine, |used| &mut used.snapshots)
    }

    /// For a copy of the database.
    pub(in crate::storage) fn for_copy(engine: &'e Engine) -> Self {
        KeepFiles::new(engine, |used| &mut used.copies)
    }

    fn new(engine: &'e Engine, count: fn(&mut FilesInUse) -> &mut u32) -> Self {
        *count(&mut engine.files_in_use.lock()) += 1;
        KeepFiles { engine, count }
    }
}

impl Drop for KeepFiles<'_> {
    fn drop(&mut self) {
        *(self.count)(&mut self.engine.files_in_use.lock()) -= 1;
    }
}
