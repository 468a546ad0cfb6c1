//! A histogram of times with a bounded relative error.
//!
//! Buckets are log-linear: below 256 ns each value has its own bucket; above that, each power
//! of two is divided into 128 buckets of equal width. A bucket is at most 1/128 of its values
//! wide, so a percentile is too large by less than 0.8 %, and never too small.

const BITS: u32 = 7;
const PER_POWER: usize = 1 << BITS;
const BUCKETS: usize = (64 - BITS as usize + 1) * PER_POWER;

/// Counts of times in nanoseconds.
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    most: u64,
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS],
            count: 0,
            sum: 0,
            most: 0,
        }
    }

    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.most = self.most.max(ns);
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.most) = (0, 0, 0);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, exact; 0 without values.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// The least time that `share` (up to 1) of all values do not exceed, rounded up to the end
    /// of its bucket, or to the largest value; 0 without values.
    pub fn percentile(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        for (index, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return last_of(index).min(self.most);
            }
        }
        self.most
    }
}

/// The bucket of a value.
fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    shift as usize * PER_POWER + (ns >> shift) as usize
}

/// The largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let shift = (bucket / PER_POWER).saturating_sub(1);
    let first = (bucket - shift * PER_POWER) as u64;
    (first << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another_without_gaps() {
        for index in 0..BUCKETS - 1 {
            let last = last_of(index);
            assert_eq!((bucket(last), bucket(last + 1)), (index, index + 1));
        }
        assert_eq!(
            (bucket(u64::MAX), last_of(BUCKETS - 1)),
            (BUCKETS - 1, u64::MAX)
        );
    }

    #[test]
    fn a_percentile_is_at_most_one_part_in_128_too_large() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut histogram = Histogram::new();
        let mut values: Vec<u64> = (0..10_000)
            .map(|_| random.u64(..) >> random.u32(20..60))
            .collect();
        for value in &values {
            histogram.add(*value);
        }
        values.sort_unstable();
        for share in [0.0001, 0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0] {
            let exact = values[(share * 10_000.0) as usize - 1];
            let found = histogram.percentile(share);
            assert!(
                (exact..=exact + exact / 128).contains(&found),
                "{share}: {found} for {exact}"
            );
        }
    }

    #[test]
    fn the_mean_and_the_largest_value_are_exact() {
        let mut histogram = Histogram::new();
        assert_eq!((histogram.mean(), histogram.percentile(0.5)), (0.0, 0));
        for value in [1, 2, 1_000_002] {
            histogram.add(value);
        }
        assert_eq!(histogram.mean(), 333_335.0);
        assert_eq!(histogram.percentile(1.0), 1_000_002);
        histogram.clear();
        assert_eq!((histogram.count(), histogram.percentile(1.0)), (0, 0));
    }
}
