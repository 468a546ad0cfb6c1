//! Computes the count from the registers: the estimator without bias correction of Otmar
//! Ertl, "New cardinality estimation algorithms for HyperLogLog sketches"
//! (arXiv:1702.01284), section 4.

use super::{RANK_MAX, REGISTERS, Ranks};

/// The number of registers of each rank.
#[derive(Debug, Clone)]
pub struct Histogram([u32; 64]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([0; 64])
    }
}

impl Histogram {
    /// The histogram of these registers.
    pub fn of(ranks: &Ranks) -> Histogram {
        let mut histogram = Histogram::default();
        ranks.iter().for_each(|rank| histogram.add(*rank, 1));
        histogram
    }

    /// Counts `registers` more registers of a rank (six bits).
    #[inline]
    pub fn add(&mut self, rank: u8, registers: u32) {
        self.0[usize::from(rank & 0x3f)] += registers;
    }

    /// The estimated number of different elements.
    pub(super) fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let at = |rank: u8| f64::from(self.0[usize::from(rank)]);
        let mut sum = registers * tau((registers - at(RANK_MAX)) / registers);
        for rank in (1..RANK_MAX).rev() {
            sum = (sum + at(rank)) * 0.5;
        }
        sum += registers * sigma(at(0) / registers);
        let alpha = 0.5 / std::f64::consts::LN_2;
        // The cast saturates, whatever value crafted registers lead to.
        (alpha * registers * registers / sum).round() as u64
    }
}

/// x + Σ x^(2^k) · 2^(k-1) for k from 1 on; infinite at 1.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut sum, mut weight) = (x, 1.0);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// (1 - x - Σ (1 - x^(2^-k))² · 2^-k) / 3 for k from 1 on.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut sum, mut weight) = (1.0 - x, 1.0);
    loop {
        x = x.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}
