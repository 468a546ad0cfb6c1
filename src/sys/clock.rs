//! The clocks. Wall time is for what is stored or shown (expiry times, stream ids, TIME), monotonic
//! time for durations and timeouts.

use crate::base::time::UnixMs;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn since_epoch() -> Duration {
    // A clock set before 1970 counts as 1970.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Wall time in milliseconds since 1970.
pub fn unix_ms() -> UnixMs {
    UnixMs(since_epoch().as_millis() as u64)
}

/// Wall time in microseconds since 1970.
pub fn unix_us() -> u64 {
    since_epoch().as_micros() as u64
}

/// Microseconds since the first use of this clock; never goes back.
pub fn mono_us() -> u64 {
    START.elapsed().as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_agree() {
        let ms = unix_ms().0;
        let us = unix_us();
        assert!(us / 1000 >= ms && us / 1000 - ms < 60_000);
        assert!(ms > 1_600_000_000_000);
    }

    #[test]
    fn monotonic_never_goes_back() {
        let mut last = mono_us();
        for _ in 0..1000 {
            let now = mono_us();
            assert!(now >= last);
            last = now;
        }
    }
}
