//! Which collections have rows that nothing reaches yet: see [`crate::storage::txn::ahead`].

use crate::encoding::CollectionId;
use crate::encoding::system::KeyspaceId;
use crate::sys::lock_order::{Lock, Mutex, MutexGuard};
use std::collections::BTreeSet;

/// A collection in a keyspace.
pub(in crate::storage) type Place = (KeyspaceId, CollectionId);

/// Collections whose rows are being written ahead.
#[derive(Debug, Default)]
pub(in crate::storage) struct Ahead(Mutex<BTreeSet<Place>, { Lock::Ahead as u8 }>);

impl Ahead {
    /// The list; while it is held no collection leaves it.
    pub(in crate::storage) fn lock(
        &self,
    ) -> MutexGuard<'_, BTreeSet<Place>, { Lock::Ahead as u8 }> {
        self.0.lock()
    }

    /// Their rows can be reached, or are left to the reclaim passes.
    pub(in crate::storage) fn remove_all(&self, places: &[Place]) {
        if !places.is_empty() {
            self.lock().retain(|place| !places.contains(place));
        }
    }
}
