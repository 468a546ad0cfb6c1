//! The list of collections that are written before their commit: see
//! [`crate::storage::txn::ahead`].

use crate::encoding::CollectionId;
use crate::encoding::system::KeyspaceId;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;

/// A collection in a keyspace.
pub(in crate::storage) type Place = (KeyspaceId, CollectionId);

/// Collections whose rows are written before the commit that makes them reachable.
#[derive(Debug, Default)]
pub(in crate::storage) struct Ahead(Mutex<BTreeSet<Place>>);

impl Ahead {
    /// Locks the list. No collection leaves it while the guard is held.
    pub(in crate::storage) fn lock(&self) -> MutexGuard<'_, BTreeSet<Place>> {
        self.0.lock()
    }

    /// Removes collections whose rows are reachable now, or are left to the reclaim passes.
    pub(in crate::storage) fn remove_all(&self, places: &[Place]) {
        if !places.is_empty() {
            self.lock().retain(|place| !places.contains(place));
        }
    }
}
