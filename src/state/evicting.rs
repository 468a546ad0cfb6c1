//! Whether keys are evicted to make room on the disk, and commands wait for that.

use super::Server;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the evict thread says of the space for more data.
#[derive(Debug, Default)]
pub struct Evicting {
    /// It evicts keys when space is lacking.
    helps: AtomicBool,
    /// Little space is left.
    is_scarce: AtomicBool,
}

impl Evicting {
    /// Notes whether keys can be evicted, and whether commands that may add data should wait for
    /// that.
    pub fn set(&self, helps: bool, is_scarce: bool) {
        self.is_scarce.store(is_scarce, Ordering::Relaxed);
        self.helps.store(helps, Ordering::Relaxed);
    }

    /// Nothing is evicted.
    pub fn end(&self) {
        self.set(false, false);
    }
}

impl Server {
    /// Whether commands that may add data wait until keys are evicted: they would use up the last
    /// space, or find none.
    pub fn awaits_eviction(&self) -> bool {
        let Evicting { helps, is_scarce } = &self.evicting;
        helps.load(Ordering::Relaxed)
            && (is_scarce.load(Ordering::Relaxed) || self.engine.disk.is_low())
    }
}
