//! A rate limit in bytes per second.

use std::time::{Duration, Instant};

/// Largest burst, as a fraction of a second's bytes.
const BURST: f64 = 0.1;

/// A rate limiter.
#[derive(Debug, Clone)]
pub struct Throttle {
    bytes_per_s: f64,
    /// Bytes that may pass now; negative after bytes that passed too early.
    credit: f64,
    at: Instant,
}

impl Throttle {
    /// A limit of `mb_per_s` MB (10⁶ bytes) per second.
    pub fn new(mb_per_s: f64) -> Throttle {
        Throttle {
            bytes_per_s: mb_per_s * 1e6,
            credit: 0.0,
            at: Instant::now(),
        }
    }

    /// Most bytes to pass at a time.
    pub fn step(&self) -> usize {
        ((self.bytes_per_s * BURST) as usize).max(1)
    }

    /// Records that bytes have passed; returns how long to wait before the next.
    pub fn passed(&mut self, bytes: usize, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * self.bytes_per_s;
        self.at = now;
        self.credit = (self.credit + earned).min(0.0) - bytes as f64;
        Duration::from_secs_f64(-self.credit / self.bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_its_bytes() {
        let mut throttle = Throttle::new(1.0);
        let start = Instant::now();
        let (mut now, mut passed) = (start, 0);
        while now < start + Duration::from_secs(10) {
            let step = throttle.step().min(70_001);
            passed += step;
            now += throttle.passed(step, now);
        }
        assert!((9_900_000..=10_100_000).contains(&passed), "{passed}");
    }

    #[test]
    fn time_without_bytes_earns_nothing() {
        let mut throttle = Throttle::new(1.0);
        let later = Instant::now() + Duration::from_secs(100);
        assert_eq!(throttle.passed(500_000, later), Duration::from_millis(500));
    }
}
