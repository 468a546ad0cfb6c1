//! Points in time. Durations are plain numbers whose names say the unit.

use std::fmt;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

/// A point in time: milliseconds since 1970-01-01 00:00:00 UTC, without leap seconds.
///
/// Where a key may have no expiry, [`UnixMs::NONE`] stands for that, on the disk as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// No time: no expiry, or never yet.
    pub const NONE: UnixMs = UnixMs(0);
    /// After every time.
    pub const MAX: UnixMs = UnixMs(u64::MAX);

    /// Whether it is a time at all.
    pub fn is_some(self) -> bool {
        self != UnixMs::NONE
    }

    /// Milliseconds from `earlier` to this time; 0 if `earlier` is later.
    pub fn since(self, earlier: UnixMs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time so many milliseconds before this one, at least 0.
    pub fn before(self, ms: u64) -> UnixMs {
        UnixMs(self.0.saturating_sub(ms))
    }

    /// As replies have it.
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl Add<u64> for UnixMs {
    type Output = UnixMs;

    fn add(self, ms: u64) -> UnixMs {
        UnixMs(self.0.saturating_add(ms))
    }
}

impl fmt::Display for UnixMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A [`UnixMs`] that threads share.
#[derive(Debug, Default)]
pub struct AtomicUnixMs(AtomicU64);

impl AtomicUnixMs {
    /// One that holds `time`.
    pub fn new(time: UnixMs) -> Self {
        AtomicUnixMs(AtomicU64::new(time.0))
    }

    /// What it holds.
    pub fn load(&self, order: Ordering) -> UnixMs {
        UnixMs(self.0.load(order))
    }

    /// Makes it hold `time`.
    pub fn store(&self, time: UnixMs, order: Ordering) {
        self.0.store(time.0, order);
    }
}
