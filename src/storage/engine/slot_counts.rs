//! How many keys each slot of a keyspace has.
//!
//! The counts are kept, and not found by counting a slot's rows: one slot can hold all keys of a
//! database, and CLUSTER SLOT-STATS asks for all slots at once. A commit that adds or removes keys
//! writes the counts of their slots in its own batch (I5). Only databases with slots have them.

use crate::base::slots::SLOTS;
use crate::encoding::system::{KeyspaceId, slot_row};
use std::sync::atomic::{AtomicU64, Ordering};

/// The committed counts, by slot.
pub(in crate::storage) struct SlotCounts(Box<[AtomicU64]>);

impl SlotCounts {
    pub(super) fn new() -> SlotCounts {
        SlotCounts((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// The keys of a slot.
    pub(in crate::storage) fn get(&self, slot: u16) -> u64 {
        let count = self.0.get(usize::from(slot));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(in crate::storage) fn set(&self, slot: u16, keys: u64) {
        if let Some(count) = self.0.get(usize::from(slot)) {
            count.store(keys, Ordering::Relaxed);
        }
    }

    pub(in crate::storage) fn add(&self, slot: u16, keys: u64) {
        self.set(slot, self.get(slot).saturating_add(keys));
    }

    pub(super) fn clear(&self) {
        (0..SLOTS).for_each(|slot| self.set(slot, 0));
    }

    pub(super) fn copy(&self, other: &SlotCounts) {
        (0..SLOTS).for_each(|slot| self.set(slot, other.get(slot)));
    }

    /// Calls `put` with the system row of each slot and its count.
    pub(in crate::storage) fn put_all(&self, id: KeyspaceId, mut put: impl FnMut([u8; 7], u64)) {
        for slot in 0..SLOTS {
            put(slot_row(id, slot), self.get(slot));
        }
    }
}
