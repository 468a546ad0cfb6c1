//! Write stalls. RocksDB stops all writes when tables pile up in level 0 and compactions do not
//! keep up. On a full disk compactions cannot, and the deletions that would free space would be
//! stopped, too: so stalls are off while the disk is low.

use super::{ColumnFamily, Engine};
use crate::storage::Result;
use rocksdb::BoundColumnFamily;
use std::sync::{Arc, Weak};

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
}
