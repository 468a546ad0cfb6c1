//! Merged centroids, and what they say of the distribution.

use crate::base::logarithm;
use std::f64::consts::PI;

/// A weighted mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Centroid {
    /// The mean.
    pub mean: f64,
    /// How many observations it stands for.
    pub weight: i64,
}

impl Centroid {
    fn heft(&self) -> f64 {
        self.weight as f64
    }
}

/// All centroids of a digest.
#[derive(Debug, Clone)]
pub struct Centroids {
    /// The centroids, in ascending order once they are merged.
    pub(super) list: Vec<Centroid>,
    /// How many of them were merged before.
    pub(super) merged: usize,
    pub(super) compression: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
    pub(super) weight: i64,
}

/// A place among the centroids, from which the next quantile is looked for.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    at: usize,
    /// The weight up to the middle of the centroid.
    before: f64,
}

impl Centroids {
    /// Appends stored centroids.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let (centroids, _) = bytes.as_chunks::<16>();
        self.list.extend(centroids.iter().map(|centroid| {
            let bits = u128::from_le_bytes(*centroid);
            Centroid {
                mean: f64::from_bits(bits as u64),
                weight: (bits >> 64) as i64,
            }
        }));
    }

    /// The centroids as they are stored.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 * self.list.len());
        for centroid in &self.list {
            bytes.extend_from_slice(&centroid.mean.to_le_bytes());
            bytes.extend_from_slice(&centroid.weight.to_le_bytes());
        }
        bytes
    }

    /// Merges neighbours, as long as their weight is allowed at their quantile.
    pub(super) fn merge(&mut self) {
        if self.list.len() == self.merged {
            return;
        }
        self.list.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        self.merged = self.list.len();
        let total = self.weight as f64;
        if total <= 1.0 {
            return;
        }
        let normalizer = self.compression / (2.0 * PI * total * logarithm::ln(total));
        let (mut current, mut before) = (0, 0.0);
        for next in 1..self.list.len() {
            let Centroid { mean, weight } = self.list[next];
            let into = &mut self.list[current];
            let proposed = into.heft() + weight as f64;
            let z = proposed * normalizer;
            let (from, to) = (before / total, (before + proposed) / total);
            if z <= from * (1.0 - from) && z <= to * (1.0 - to) {
                into.weight = into.weight.saturating_add(weight);
                into.mean += (mean - into.mean) * weight as f64 / into.heft();
            } else {
                before += into.heft();
                current += 1;
                self.list[current] = Centroid { mean, weight };
            }
        }
        self.list.truncate(current + 1);
        self.merged = self.list.len();
    }

    /// The value at a quantile from 0 to 1; NaN without observations.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let [first, .., _] = self.list.as_slice() else {
            return self.list.first().map_or(f64::NAN, |only| only.mean);
        };
        if !(0.0..=1.0).contains(&quantile) {
            return f64::NAN;
        }
        let index = quantile * self.weight as f64;
        if index < 1.0 {
            return self.least;
        }
        let mut cursor = Cursor {
            at: 0,
            before: first.heft() / 2.0,
        };
        self.value_at(index, &mut cursor)
    }

    /// The values at quantiles from 0 to 1. Of an ascending run each search goes on where the one
    /// before has ended.
    pub fn quantiles(&self, quantiles: &[f64]) -> Vec<f64> {
        let [first, .., _] = self.list.as_slice() else {
            let value = self.list.first().map_or(f64::NAN, |only| only.mean);
            return vec![value; quantiles.len()];
        };
        let start = Cursor {
            at: 0,
            before: first.heft() / 2.0,
        };
        let (mut cursor, mut last) = (start, 0.0);
        let mut values = Vec::with_capacity(quantiles.len());
        for quantile in quantiles {
            if *quantile < last {
                cursor = start;
            }
            last = *quantile;
            values.push(self.value_at(quantile * self.weight as f64, &mut cursor));
        }
        values
    }

    /// The value of the observation with an index among all in order. There are at least two
    /// centroids.
    fn value_at(&self, index: f64, cursor: &mut Cursor) -> f64 {
        let (Some(first), Some(last)) = (self.list.first(), self.list.last()) else {
            return f64::NAN;
        };
        let total = self.weight as f64;
        let (left, right) = (first.heft(), last.heft());
        if left > 1.0 && index < left / 2.0 {
            // One observation is the least one, the others spread from there to the mean.
            return self.least + (index - 1.0) / (left / 2.0 - 1.0) * (first.mean - self.least);
        }
        if index > total - 1.0 {
            return self.greatest;
        }
        if right > 1.0 && total - index <= right / 2.0 {
            let part = (total - index - 1.0) / (right / 2.0 - 1.0);
            return self.greatest - part * (self.greatest - last.mean);
        }
        while let Some([here, next]) = self.list.get(cursor.at..cursor.at + 2) {
            let step = (here.heft() + next.heft()) / 2.0;
            if cursor.before + step > index {
                let (mut left_unit, mut right_unit) = (0.0, 0.0);
                if here.weight == 1 {
                    if index - cursor.before < 0.5 {
                        return here.mean;
                    }
                    left_unit = 0.5;
                }
                if next.weight == 1 {
                    if cursor.before + step - index <= 0.5 {
                        return next.mean;
                    }
                    right_unit = 0.5;
                }
                let from = index - cursor.before - left_unit;
                let to = cursor.before + step - index - right_unit;
                return weighted_average((here.mean, to), (next.mean, from));
            }
            cursor.before += step;
            cursor.at += 1;
        }
        let from = index - total - right / 2.0;
        let to = right / 2.0 - from;
        weighted_average((last.mean, from), (self.greatest, to))
    }

    /// The fraction of the observations up to a value; NaN without observations.
    pub fn fraction_up_to(&self, value: f64) -> f64 {
        let (Some(first), Some(last)) = (self.list.first(), self.list.last()) else {
            return f64::NAN;
        };
        if value < self.least {
            return 0.0;
        }
        if value > self.greatest {
            return 1.0;
        }
        if self.list.len() == 1 {
            let width = self.greatest - self.least;
            return match value - self.least <= width {
                true => 0.5,
                false => (value - self.least) / width,
            };
        }
        let total = self.weight as f64;
        if value < first.mean {
            return self.left_tail(value, *first) / total;
        }
        if value > last.mean {
            return self.right_tail(value, *last);
        }
        self.fraction_inside(value)
    }

    /// How many observations are up to a value that is below the first mean.
    fn left_tail(&self, value: f64, first: Centroid) -> f64 {
        let width = first.mean - self.least;
        if width <= 0.0 {
            0.0
        } else if value == self.least {
            0.5
        } else {
            1.0 + (value - self.least) / width * (first.heft() / 2.0 - 1.0)
        }
    }

    /// The fraction up to a value that is above the last mean.
    fn right_tail(&self, value: f64, last: Centroid) -> f64 {
        let (width, total) = (self.greatest - last.mean, self.weight as f64);
        if width <= 0.0 {
            1.0
        } else if value == self.greatest {
            1.0 - 0.5 / total
        } else {
            let part = (self.greatest - value) / width * (last.heft() / 2.0 - 1.0);
            1.0 - (1.0 + part) / total
        }
    }

    /// The fraction up to a value from the first to the last mean.
    fn fraction_inside(&self, value: f64) -> f64 {
        let total = self.weight as f64;
        let mut before = 0.0;
        for (at, pair) in self.list.windows(2).enumerate() {
            let [here, next] = pair else {
                break;
            };
            if here.mean == value {
                let same = self.list[at..].iter().take_while(|c| c.mean == value);
                let weight: f64 = same.map(Centroid::heft).sum();
                return (before + weight / 2.0) / total;
            }
            if here.mean <= value && value < next.mean {
                let step = (here.heft() + next.heft()) / 2.0;
                let width = next.mean - here.mean;
                if width <= 0.0 {
                    return (before + step) / total;
                }
                // A single observation is exactly at its mean, so nothing spreads around it.
                let (mut left, mut right) = (0.0, 0.0);
                match (here.weight, next.weight) {
                    (1, 1) => return (before + 1.0) / total,
                    (1, _) => left = 0.5,
                    (_, 1) => right = 0.5,
                    _ => {}
                }
                let base = before + here.heft() / 2.0 + left;
                let spread = step - left - right;
                return (base + spread * (value - here.mean) / width) / total;
            }
            before += here.heft();
        }
        1.0 - 0.5 / total
    }

    /// The mean of the observations between two quantiles; NaN without observations.
    pub fn trimmed_mean(&self, low: f64, high: f64) -> f64 {
        match self.list.as_slice() {
            [] => return f64::NAN,
            [only] => return only.mean,
            _ => {}
        }
        let total = self.weight as f64;
        let (from, to) = ((total * low).floor(), (total * high).ceil());
        let (mut done, mut sum, mut count) = (0.0, 0.0, 0.0);
        for centroid in &self.list {
            let weight = centroid.heft();
            let below = f64::max(0.0, from - done).min(weight);
            let part = f64::max(0.0, to - done).min(weight - below);
            done += weight;
            sum += centroid.mean * part;
            count += part;
            if done >= to {
                break;
            }
        }
        sum / count
    }
}

/// The weighted average of two values, between them.
fn weighted_average(a: (f64, f64), b: (f64, f64)) -> f64 {
    let ((low, low_weight), (high, high_weight)) = match a.0 <= b.0 {
        true => (a, b),
        false => (b, a),
    };
    let average = (low * low_weight + high * high_weight) / (low_weight + high_weight);
    average.min(high).max(low)
}
