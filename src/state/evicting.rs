//! Whether keys are evicted to make room on the disk, and commands wait for that.

use super::Server;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the evict thread says of the space for more data.
#[derive(Debug, Default)]
pub struct Evicting {
    /// While keys can be evicted: commands wait while fewer bytes are left. Otherwise 0.
    least: AtomicU64,
}

impl Evicting {
    /// Keys can be evicted: commands that may add data wait for that while fewer bytes are left.
    pub fn wait_below(&self, bytes: u64) {
        self.least.store(bytes, Ordering::Relaxed);
    }

    /// Nothing is evicted.
    pub fn end(&self) {
        self.wait_below(0);
    }
}

impl Server {
    /// Whether commands that may add data wait until keys are evicted: they would use up the last
    /// space, or find none.
    pub fn awaits_eviction(&self) -> bool {
        let least = self.evicting.least.load(Ordering::Relaxed);
        least > 0 && (self.engine.disk.left() < least || self.engine.disk.is_low())
    }
}
