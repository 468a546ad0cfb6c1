//! Whether keys are evicted to make room on the disk, and commands wait for that.

use super::Server;
use super::eviction::LONG_REQUEST;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the evict thread says of the space for more data.
#[derive(Debug, Default)]
pub struct Evicting {
    /// While keys can be evicted: commands wait while fewer bytes are left. Otherwise 0.
    least: AtomicU64,
    /// What the long requests that run may take of the disk, in bytes.
    expected: AtomicU64,
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

    /// A request that may take so many bytes of the disk begins, while commands wait for keys to be evicted.
    /// Returns what is to be given back by [`Evicting::expect_no_more`]: 0 if nothing waits.
    pub(super) fn expect(&self, bytes: u64) -> u64 {
        if self.least.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.expected.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// See [`Evicting::expect`].
    pub(super) fn expect_no_more(&self, bytes: u64) {
        self.expected.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What the long requests that run may take of the disk, in bytes.
    pub fn expected(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
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

/// What a commit of so many bytes takes of the disk at first: space in the log and in tables.
pub fn on_disk(bytes: usize) -> u64 {
    2 * bytes as u64
}

impl Server {
    /// Whether a command of `bytes` that may add data waits until keys are evicted: it would use up the
    /// last space, or find none. The space that other requests may take counts as used; `own` bytes are
    /// counted for this request already.
    pub fn awaits_eviction(&self, bytes: usize, own: u64) -> bool {
        let least = self.evicting.least.load(Ordering::Relaxed);
        if least == 0 {
            return false;
        }
        // Eviction makes room for twice the least: a command that needs nearly as much is refused rather
        // than kept waiting.
        let needed = on_disk(bytes).min(least / 2);
        let others = self.evicting.expected().saturating_sub(own);
        // A short command waits for long ones only within what eviction makes room for.
        let others = match bytes < LONG_REQUEST {
            true => others.min(least / 2),
            false => others,
        };
        let disk = &self.engine.disk;
        let wanted = least.saturating_add(needed).saturating_add(others);
        let waits = disk.is_low() || disk.left() < wanted;
        if waits {
            self.evicting.waited.store(true, Ordering::Relaxed);
        }
        waits
    }
}
