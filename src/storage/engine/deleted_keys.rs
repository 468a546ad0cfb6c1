//! What a keyspace knows of its deleted keys; see [`crate::storage::tombstones`].

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Landmarks of a DB.
pub(in crate::storage) const LANDMARKS: usize = 256;

/// Longer keys are no landmarks.
pub(in crate::storage) const LANDMARK_BYTES: usize = 512;

/// What a keyspace knows of its deleted keys.
#[derive(Debug, Default)]
pub(in crate::storage) struct DeletedKeys {
    /// Keys removed since the last [`crate::storage::Engine::tidy`].
    pub(in crate::storage) removed: AtomicU64,
    /// What that was at the last look.
    pub(in crate::storage) seen: AtomicU64,
    pub(in crate::storage) landmarks: Mutex<Vec<Box<[u8]>>>,
    /// Ranges of rows that somebody wants compacted.
    pub(in crate::storage) compactions: Mutex<Vec<RowRange>>,
}

pub(in crate::storage) type RowRange = (Box<[u8]>, Box<[u8]>);

impl DeletedKeys {
    /// A commit has changed the number of keys.
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
