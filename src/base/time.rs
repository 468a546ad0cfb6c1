//! Points in time. Durations are plain numbers whose names say the unit.

use std::fmt;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// Days of the 400 years after which the calendar repeats.
const DAYS_OF_ERA: u64 = 146_097;
/// Days from the first of March of year 0 to the first of January of 1970.
const DAYS_BEFORE: u64 = 719_468;

/// Year, month and day of a day, counted from the first of January of 1970. Years begin in March
/// here until the end, so that the day of a leap year is their last one.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

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

    /// The time in UTC as in ISO 8601: `2026-11-26T23:10:11.123Z`.
    pub fn utc(self) -> String {
        let (days, ms) = (self.0 / DAY_MS, self.0 % DAY_MS);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
            ms % 1000
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_704_067_199_999, "2023-12-31T23:59:59.999Z"),
            (1_704_067_200_000, "2024-01-01T00:00:00.000Z"),
            (1_800_000_000_007, "2027-01-15T08:00:00.007Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(UnixMs(ms).utc(), text);
        }
        // Each day is the one after that before it.
        let mut last = (1969, 12, 31);
        for day in 0..200_000 {
            let (year, month, of_month) = date(day);
            let follows = match of_month {
                1 => last.1 % 12 + 1 == month && last.2 >= 28 && (year == last.0) == (month > 1),
                _ => (last.0, last.1, last.2 + 1) == (year, month, of_month),
            };
            assert!(follows, "{last:?}, {:?}", (year, month, of_month));
            last = (year, month, of_month);
        }
    }
}
