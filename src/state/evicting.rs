//! Whether keys are evicted to make room on the disk, and commands wait for that.

use super::Server;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the evict thread says of the space for more data.
#[derive(Debug, Default)]
pub struct Evicting {
    /// While keys can be evicted: commands wait while fewer bytes are left. Otherwise 0.
    least: AtomicU64,
    /// Whether a command waited since the evict thread asked last.
    waited: AtomicBool,
    /// Whether commands have waited for long, and nothing that runs could bring space.
    starves: AtomicBool,
}

impl Evicting {
    /// Keys can be evicted: commands that may add data wait for that while fewer bytes are left.
    pub fn wait_below(&self, bytes: u64) {
        self.least.store(bytes, Ordering::Relaxed);
    }

    /// Commands wait until the evict thread has looked for the first time.
    pub fn begin(&self) {
        self.wait_below(u64::MAX);
    }

    /// Whether a command waited since the last call.
    pub fn take_waited(&self) -> bool {
        self.waited.swap(false, Ordering::Relaxed)
    }

    /// Sets whether commands have waited for long, and nothing that runs could bring space.
    pub fn set_starves(&self, starves: bool) {
        self.starves.store(starves, Ordering::Relaxed);
    }

    /// Whether commands have waited for long, and nothing that runs could bring space.
    pub fn starves(&self) -> bool {
        self.starves.load(Ordering::Relaxed)
    }

    /// Nothing is evicted, and nothing waits for it.
    pub fn end(&self) {
        self.wait_below(0);
        self.set_starves(false);
    }
}

impl Server {
    /// Whether a command of `bytes` that may add data waits until keys are evicted: it would use up
    /// the last space, or find none.
    pub fn awaits_eviction(&self, bytes: usize) -> bool {
        let least = self.evicting.least.load(Ordering::Relaxed);
        if least == 0 {
            return false;
        }
        // A commit takes space in the log and in tables. Eviction makes room for twice the least: a
        // command that needs nearly as much is refused rather than kept waiting.
        let needed = (2 * bytes as u64).min(least / 2);
        let disk = &self.engine.disk;
        let waits = disk.is_low() || disk.left() < least.saturating_add(needed);
        if waits {
            self.evicting.waited.store(true, Ordering::Relaxed);
        }
        waits
    }
}
