//! Counters that the threads share.

use crate::rdb::ElementTimes;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Phase of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Connecting.
    Connecting = 0,
    /// Copying the data set.
    Copying = 1,
    /// Following the stream.
    Following = 2,
    /// Comparing both sides.
    Comparing = 3,
    /// Following keyspace events.
    Watching = 4,
}

impl Phase {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connecting => "connecting",
            Phase::Copying => "copying",
            Phase::Following => "following",
            Phase::Comparing => "comparing",
            Phase::Watching => "watching",
        }
    }
}

/// Counters of a migration that its threads share.
#[derive(Debug, Default)]
pub struct Stats {
    phase: AtomicU8,
    /// Keys copied in this pass, or compared.
    pub keys: AtomicU64,
    /// Expected total of keys, if known.
    pub keys_expected: AtomicU64,
    /// Keys left out: expired, or of another prefix or DB.
    pub left_out: AtomicU64,
    /// Changed keys that the target does not have yet.
    pub waiting: AtomicU64,
    /// Commands of the stream, or changed keys.
    pub commands: AtomicU64,
    /// Bytes received from the source.
    pub bytes_in: AtomicU64,
    /// Bytes sent to the target.
    pub bytes_out: AtomicU64,
    /// Hashes and sets with times of elements that the target does not support.
    pub timed_values: AtomicU64,
    /// Their elements with a time.
    pub timed_elements: AtomicU64,
    /// Commands that the target refused, or keys that differ.
    pub errors: AtomicU64,
    /// Bytes of the stream that the target does not have yet.
    pub lag: AtomicU64,
    /// Number of copies begun.
    pub copies: AtomicU64,
    /// Number of reconnects.
    pub reconnects: AtomicU64,
}

impl Stats {
    /// The current phase.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            1 => Phase::Copying,
            2 => Phase::Following,
            3 => Phase::Comparing,
            4 => Phase::Watching,
            _ => Phase::Connecting,
        }
    }

    /// Sets the phase.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Counts a hash or set that lost the times of so many elements.
    pub(super) fn lost_times(&self, elements: u64) {
        if elements > 0 {
            self.timed_values.fetch_add(1, Ordering::Relaxed);
            self.timed_elements.fetch_add(elements, Ordering::Relaxed);
        }
    }

    /// The values and elements counted by [`Stats::lost_times`].
    pub fn element_times(&self) -> ElementTimes {
        ElementTimes {
            values: self.timed_values.load(Ordering::Relaxed),
            elements: self.timed_elements.load(Ordering::Relaxed),
        }
    }

    /// Names and values, as in the metrics file.
    pub fn figures(&self) -> [(&'static str, u64); 12] {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        [
            ("keys", load(&self.keys)),
            ("keys_expected", load(&self.keys_expected)),
            ("left_out", load(&self.left_out)),
            ("commands", load(&self.commands)),
            ("bytes_in", load(&self.bytes_in)),
            ("bytes_out", load(&self.bytes_out)),
            ("field_times_not_kept", load(&self.timed_elements)),
            ("errors", load(&self.errors)),
            ("lag_bytes", load(&self.lag)),
            ("keys_waiting", load(&self.waiting)),
            ("copies", load(&self.copies)),
            ("reconnects", load(&self.reconnects)),
        ]
    }
}
