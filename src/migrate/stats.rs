//! Figures that threads share.

use crate::rdb::FieldTimes;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What the tool is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It connects.
    Connecting = 0,
    /// It copies the data set.
    Copying = 1,
    /// It follows the stream.
    Following = 2,
    /// It compares.
    Comparing = 3,
    /// It follows keyspace events.
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

/// Figures of a migration that its threads share.
#[derive(Debug, Default)]
pub struct Stats {
    phase: AtomicU8,
    /// Keys of this copy, or compared.
    pub keys: AtomicU64,
    /// How many there will be, as far as that is known.
    pub keys_expected: AtomicU64,
    /// Keys that were left out: of another prefix or DB, or over.
    pub left_out: AtomicU64,
    /// Keys that have changed and that the target does not have yet.
    pub waiting: AtomicU64,
    /// Commands of the stream, or keys that have changed.
    pub commands: AtomicU64,
    /// Bytes from the source.
    pub bytes_in: AtomicU64,
    /// Bytes to the target.
    pub bytes_out: AtomicU64,
    /// Hashes whose fields' times the target does not keep.
    pub timed_hashes: AtomicU64,
    /// Fields of those that have a time.
    pub timed_fields: AtomicU64,
    /// Commands that the target refused, or keys that differ.
    pub errors: AtomicU64,
    /// Bytes of the stream that the target does not have yet.
    pub lag: AtomicU64,
    /// How often everything was copied.
    pub copies: AtomicU64,
    /// How often a connection broke.
    pub reconnects: AtomicU64,
}

impl Stats {
    /// What the tool is doing.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            1 => Phase::Copying,
            2 => Phase::Following,
            3 => Phase::Comparing,
            4 => Phase::Watching,
            _ => Phase::Connecting,
        }
    }

    /// Notes it.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Counts a hash with that many fields whose times the target does not keep.
    pub fn lost_times(&self, fields: u64) {
        if fields > 0 {
            self.timed_hashes.fetch_add(1, Ordering::Relaxed);
            self.timed_fields.fetch_add(fields, Ordering::Relaxed);
        }
    }

    /// All that were counted so.
    pub fn field_times(&self) -> FieldTimes {
        FieldTimes {
            hashes: self.timed_hashes.load(Ordering::Relaxed),
            fields: self.timed_fields.load(Ordering::Relaxed),
        }
    }

    /// The numbers and their names.
    pub fn figures(&self) -> [(&'static str, u64); 12] {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        [
            ("keys", load(&self.keys)),
            ("keys_expected", load(&self.keys_expected)),
            ("left_out", load(&self.left_out)),
            ("commands", load(&self.commands)),
            ("bytes_in", load(&self.bytes_in)),
            ("bytes_out", load(&self.bytes_out)),
            ("field_times_not_kept", load(&self.timed_fields)),
            ("errors", load(&self.errors)),
            ("lag_bytes", load(&self.lag)),
            ("keys_waiting", load(&self.waiting)),
            ("copies", load(&self.copies)),
            ("reconnects", load(&self.reconnects)),
        ]
    }
}
