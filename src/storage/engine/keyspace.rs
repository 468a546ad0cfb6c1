//! What holds the keys of one DB: a column family, and what is known of it.

use super::ColumnFamily;
use super::deletions::Deletions;
use super::low_mark::LowMark;
use super::slot_counts::SlotCounts;
use crate::base::time::UnixMs;
use crate::encoding::CollectionId;
use crate::encoding::keys::Layout;
use crate::encoding::system::{Counts, CountsChange, KeyspaceId};
use std::sync::atomic::{AtomicU64, Ordering};

/// A keyspace: the column family that holds a DB, and how many keys it has.
pub struct Keyspace {
    /// Its number.
    pub id: KeyspaceId,
    pub(in crate::storage) cf: ColumnFamily,
    /// Mixed into the hashes of its cached rows; a change of it invalidates them all.
    cache_seed: AtomicU64,
    keys: AtomicU64,
    expires: AtomicU64,
    timed: AtomicU64,
    /// The keys of each slot, if they are in slots.
    slots: Option<SlotCounts>,
    /// No TTL row stands before this time.
    pub(in crate::storage) ttl_low_ms: LowMark,
    /// No row of a key with timed elements stands before this time.
    pub(in crate::storage) due_low_ms: LowMark,
    /// No reclaim row stands before this id.
    pub(in crate::storage) reclaim_low: LowMark,
    pub(in crate::storage) deletions: Deletions,
}

/// Lower bounds of the rows of three indexes.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct LowMarks {
    /// Of the TTL index.
    pub(in crate::storage) ttl_ms: UnixMs,
    /// Of the index of keys with timed elements.
    pub(in crate::storage) due_ms: UnixMs,
    /// Of the reclaim queue.
    pub(in crate::storage) reclaim: CollectionId,
}

impl Keyspace {
    /// The committed counts.
    pub fn counts(&self) -> Counts {
        Counts {
            keys: self.keys.load(Ordering::Relaxed),
            expires: self.expires.load(Ordering::Relaxed),
            timed: self.timed.load(Ordering::Relaxed),
        }
    }

    /// The hash by which the row cache finds a row, from the hash of the row's key.
    pub(in crate::storage) fn cache_hash(&self, hash: u64) -> u64 {
        hash ^ self.cache_seed.load(Ordering::Relaxed)
    }

    /// Invalidates its cached rows. The caller keeps all other threads away from its keys.
    pub(in crate::storage) fn forget_cached_rows(&self) {
        self.cache_seed.store(new_cache_seed(), Ordering::Relaxed);
    }

    /// Publishes what a commit made of the counts. The caller holds the commit lock.
    pub(in crate::storage) fn add(&self, change: CountsChange) {
        self.set_counts(self.counts().plus(change));
    }

    pub(in crate::storage) fn set_counts(&self, counts: Counts) {
        self.keys.store(counts.keys, Ordering::Relaxed);
        self.expires.store(counts.expires, Ordering::Relaxed);
        self.timed.store(counts.timed, Ordering::Relaxed);
    }

    /// Where the passes of the expire thread begin.
    pub(in crate::storage) fn low_marks(&self) -> LowMarks {
        LowMarks {
            ttl_ms: UnixMs(self.ttl_low_ms.low()),
            due_ms: UnixMs(self.due_low_ms.low()),
            reclaim: CollectionId(self.reclaim_low.low()),
        }
    }

    /// The keys of each slot, if they are in slots.
    pub(in crate::storage) fn slots(&self) -> Option<&SlotCounts> {
        self.slots.as_ref()
    }

    /// Takes over the counts of another one.
    pub(in crate::storage) fn copy_slots(&self, other: &Keyspace) {
        if let (Some(slots), Some(others)) = (&self.slots, &other.slots) {
            slots.copy(others);
        }
    }

    pub(in crate::storage) fn new(id: KeyspaceId, cf: ColumnFamily, layout: Layout) -> Keyspace {
        Keyspace {
            id,
            cf,
            cache_seed: AtomicU64::new(new_cache_seed()),
            keys: AtomicU64::new(0),
            expires: AtomicU64::new(0),
            timed: AtomicU64::new(0),
            slots: (layout == Layout::Slots).then(SlotCounts::new),
            ttl_low_ms: LowMark::default(),
            due_low_ms: LowMark::default(),
            reclaim_low: LowMark::default(),
            deletions: Deletions::default(),
        }
    }
}

/// A number that no keyspace of this process has had: with an earlier one, rows that were cleared
/// would be found again. SplitMix64 (Steele, Lea and Flood, 2014), which repeats none of its outputs.
fn new_cache_seed() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut seed = STATE.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    seed = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    seed = (seed ^ (seed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    seed ^ (seed >> 31)
}
