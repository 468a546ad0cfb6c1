//! Statistics of a keyspace's deleted keys; see [`crate::storage::tombstones`].

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of landmarks that a DB keeps.
pub(in crate::storage) const LANDMARKS: usize = 256;

/// Longer keys are no landmarks.
pub(in crate::storage) const LANDMARK_BYTES: usize = 512;

/// Statistics of a keyspace's deleted keys, and compactions that are due.
#[derive(Debug, Default)]
pub(in crate::storage) struct DeletedKeys {
    /// Keys removed since the last [`crate::storage::Engine::tidy`].
    pub(in crate::storage) removed: AtomicU64,
    /// The value of `removed` when it was last checked.
    pub(in crate::storage) seen: AtomicU64,
    pub(in crate::storage) landmarks: Mutex<Vec<Box<[u8]>>>,
    /// Ranges of rows that are to be compacted.
    pub(in crate::storage) compactions: Mutex<Vec<RowRange>>,
}

pub(in crate::storage) type RowRange = (Box<[u8]>, Box<[u8]>);

impl DeletedKeys {
    /// Counts the keys that a commit has removed; `keys` is the change of their number.
    pub(in crate::storage) fn note(&self, keys: i64) {
        if keys < 0 {
            self.removed
                .fetch_add(keys.unsigned_abs(), Ordering::Relaxed);
        }
    }

    pub(in crate::storage) fn note_landmark(&self, key: &[u8]) {
        let mut landmarks = self.landmarks.lock();
        if key.len() > LANDMARK_BYTES || landmarks.iter().any(|known| **known == *key) {
            return;
        }
        match landmarks.len() < LANDMARKS {
            true => landmarks.push(key.into()),
            false => landmarks[fastrand::usize(..LANDMARKS)] = key.into(),
        }
    }
}
