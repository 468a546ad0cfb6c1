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

/// Keeps table files from being dropped, and segments of the value log from being removed, while it
/// lives.
pub(in crate::storage) struct KeepFiles<'e>(&'e Engine);

impl<'e> KeepFiles<'e> {
    pub(in crate::storage) fn new(engine: &'e Engine) -> Self {
        *engine.snapshots.lock() += 1;
        KeepFiles(engine)
    }
}

impl Drop for KeepFiles<'_> {
    fn drop(&mut self) {
        *self.0.snapshots.lock() -= 1;
    }
}
