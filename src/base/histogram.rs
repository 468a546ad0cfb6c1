//! A histogram of numbers by powers of two, which many threads change and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many buckets a histogram has.
pub const BUCKETS: usize = 32;

/// Counts of numbers by size: bucket `i` counts those below 2^i that no smaller one counts, the
/// last one all others.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

/// The contents of a [`Histogram`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The counts of the buckets.
    pub buckets: [u64; BUCKETS],
    /// The sum of all numbers.
    pub sum: u64,
}

/// The bucket of a number.
pub fn bucket_of(n: u64) -> usize {
    ((u64::BITS - n.leading_zeros()) as usize).min(BUCKETS - 1)
}

impl Histogram {
    /// Adds a number.
    pub fn note(&self, n: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(n)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds a number. For a histogram that no other thread changes: costs less than
    /// [`Histogram::note`].
    pub fn note_alone(&self, n: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(n)) {
            add_alone(bucket, 1);
        }
        add_alone(&self.sum, n);
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        Counts {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed)),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl Counts {
    /// How many numbers there are.
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Adds to a counter that no other thread changes.
fn add_alone(counter: &AtomicU64, n: u64) {
    let now = counter.load(Ordering::Relaxed).wrapping_add(n);
    counter.store(now, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_below_the_bound_of_its_bucket_alone() {
        for n in [0, 1, 2, 3, 4, 7, 8, 1023, 1024, 1 << 29, (1 << 30) - 1] {
            let at = bucket_of(n);
            assert!(n < 1 << at, "{n}");
            assert!(at == 0 || n >= 1 << (at - 1), "{n}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        let histogram = Histogram::default();
        histogram.note(5);
        histogram.note_alone(6);
        histogram.note(0);
        let counts = histogram.counts();
        assert_eq!((counts.buckets[0], counts.buckets[3]), (1, 2));
        assert_eq!((counts.total(), counts.sum), (3, 11));
    }
}
