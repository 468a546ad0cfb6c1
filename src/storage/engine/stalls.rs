//! Write stalls.
//!
//! **Level 0.** RocksDB stops all writes when tables pile up in level 0 and compactions do not
//! keep up. On a full disk compactions cannot, and the deletions that would free space would be
//! stopped, too: so stalls are off while the disk is low.
//!
//! **Memtables.** RocksDB takes rows much faster than it writes tables, until each column family has
//! its most memtables; then the threads that write stand still. In a small budget that is far more
//! memory than memtables may take, and an IO thread that stands still serves no reads either. So
//! clients that write wait before that ([`Engine::delays_writers`]): an IO thread reads their
//! requests later, and the threads that receive or load data wait between two commits.

use super::files::WORTH_A_FILE;
use super::waiting::is_io_thread;
use super::{ColumnFamily, Engine};
use crate::storage::{Result, memtable};
use rocksdb::BoundColumnFamily;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Writers wait once memtables take so large a part of their share too much.
const EXCESS: usize = 4;
/// A memtable is written out for that if it takes so large a part of their share.
const LEAST_PART: u64 = 8;
/// How long a thread waits at the most after a commit.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
const DELAY_CHECK: Duration = Duration::from_millis(5);

/// RocksDB's defaults: files in level 0, and bytes of pending compactions.
const STALLS: [(&str, &str); 4] = [
    ("level0_slowdown_writes_trigger", "20"),
    ("level0_stop_writes_trigger", "36"),
    ("soft_pending_compaction_bytes_limit", "68719476736"),
    ("hard_pending_compaction_bytes_limit", "274877906944"),
];
/// Practically never, and without limits.
const NO_STALLS: [(&str, &str); 4] = [
    ("level0_slowdown_writes_trigger", "1000000000"),
    ("level0_stop_writes_trigger", "1000000000"),
    ("soft_pending_compaction_bytes_limit", "0"),
    ("hard_pending_compaction_bytes_limit", "0"),
];

/// The column families whose stalls are off. They may have been dropped.
pub(super) type Unstalled = Vec<Weak<BoundColumnFamily<'static>>>;

impl Engine {
    /// Turns write stalls on, or off if the disk is low.
    ///
    /// # Errors
    /// RocksDB rejects the options.
    pub fn set_stalls(&self) -> Result<()> {
        let mut unstalled = self.unstalled.lock();
        let is_low = self.disk.is_low();
        if !is_low && unstalled.is_empty() {
            return Ok(());
        }
        let families = self.all_families();
        let options = if is_low { &NO_STALLS } else { &STALLS };
        let was_set = |family: &ColumnFamily| {
            let family = Arc::downgrade(family);
            unstalled.iter().any(|set| set.ptr_eq(&family))
        };
        for family in families.iter().filter(|family| was_set(family) != is_low) {
            self.db.set_options_cf(family, options)?;
        }
        *unstalled = match is_low {
            true => families.iter().map(Arc::downgrade).collect(),
            false => Vec::new(),
        };
        Ok(())
    }

    /// Looks whether writers have to wait: memtables take a quarter more than their share, and some
    /// are being written out. Then they wait until memtables are within their share. Returns the
    /// answer.
    ///
    /// # Errors
    /// No table can be begun. Nobody waits then.
    pub fn look_at_memtables(&self) -> Result<bool> {
        let (used, share) = self.memtable_usage();
        let delayed = self.delays_writers();
        let most = match delayed {
            true => share,
            false => share + share / EXCESS,
        };
        let may_delay = used > most && !self.disk.is_low() && !self.has_failed();
        // What iterators keep of memtables that are written does not become less by writing others,
        // which would be many small tables.
        let begun = match may_delay {
            true => self.begin_flush((share as u64 / LEAST_PART).max(WORTH_A_FILE)),
            false => Ok(()),
        };
        let delays =
            may_delay && begun.is_ok() && self.property("rocksdb.num-running-flushes") > Some(0);
        if delays && !delayed {
            self.memory.delays.fetch_add(1, Ordering::Relaxed);
        }
        self.memory.delays_writers.store(delays, Ordering::Relaxed);
        begun.map(|()| delays)
    }

    /// Nobody looks at memtables any more, so nobody waits for them.
    pub fn release_writers(&self) {
        self.memory.delays_writers.store(false, Ordering::Relaxed);
    }

    /// Whether commands that may add data wait until memtables are written out.
    pub fn delays_writers(&self) -> bool {
        self.memory.delays_writers.load(Ordering::Relaxed)
    }

    /// How often writers began to wait for memtables.
    pub fn delays(&self) -> u64 {
        self.memory.delays.load(Ordering::Relaxed)
    }

    /// Waits, for a second at the most, while [writers wait](Engine::delays_writers). The caller has
    /// committed what it had, and no keys are locked.
    pub fn wait_as_writer(&self) {
        debug_assert!(!is_io_thread(), "an IO thread would wait for memtables");
        let until = Instant::now() + LONGEST_DELAY;
        loop {
            // A load writes megabytes between two looks of the memory thread.
            match self.look_at_memtables() {
                Ok(true) if Instant::now() < until => memtable::wait_for_freed(DELAY_CHECK),
                Ok(_) => return,
                Err(error) => return log::error!("memtables cannot be written out: {error}"),
            }
        }
    }
}
