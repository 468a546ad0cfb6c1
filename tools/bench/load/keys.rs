//! Which key comes next.

use clap::ValueEnum;

/// Numbers of keys are below this: it is the multiplier of [`Keys::spread`], a prime.
pub const MAX: u64 = 2_654_435_761 - 1;
/// Bytes of a value at most.
pub const VALUE_MAX: i64 = 1 << 22;

/// The order in which keys are used.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// At random, each as often as the others
    Uniform,
    /// At random, some much more often than others
    Zipf,
    /// In turn, from the first to the last, and again
    Sequential,
    /// In turn, each once in a round, neighbours far apart
    Scattered,
}

/// Draws numbers of keys.
pub struct Keys {
    from: u64,
    count: u64,
    order: Order,
    zipf: Zipf,
    turn: u64,
    pub random: fastrand::Rng,
}

impl Keys {
    /// `count` numbers (at least 1) from `from` on.
    pub fn new(from: u64, count: u64, order: Order, exponent: f64) -> Keys {
        Keys {
            from,
            count,
            order,
            zipf: Zipf::new(count, exponent),
            turn: 0,
            random: fastrand::Rng::new(),
        }
    }

    pub fn next(&mut self) -> u64 {
        let number = match self.order {
            Order::Uniform => self.random.u64(..self.count),
            Order::Zipf => self.zipf.draw(&mut self.random) - 1,
            Order::Sequential | Order::Scattered => {
                let turn = self.turn;
                self.turn = (turn + 1) % self.count;
                turn
            }
        };
        self.from
            + match self.order {
                Order::Zipf | Order::Scattered => self.spread(number),
                Order::Uniform | Order::Sequential => number,
            }
    }

    /// A permutation of the numbers below `count` that separates neighbours: the multiplier is
    /// a prime above `count`.
    fn spread(&self, n: u64) -> u64 {
        ((u128::from(n) * u128::from(MAX + 1)) % u128::from(self.count)) as u64
    }
}

/// Draws ranks 1, 2, … with probabilities proportional to 1 / rank^exponent, without a table:
/// rejection-inversion after W. Hörmann and G. Derflinger, "Rejection-inversion to generate
/// variates from monotone discrete distributions", ACM Transactions on Modeling and Computer
/// Simulation 6 (1996).
///
/// A point under the continuous curve x^-exponent is drawn by inverting its integral. The
/// point's x, rounded, is the rank, unless the point lies outside of the rank's bar; then
/// another is drawn. That is rare, since the curve is close to the bars.
struct Zipf {
    ranks: f64,
    exponent: f64,
    /// The integral at the left end of the first bar, which is as wide as its height, and at the
    /// right end of the last.
    ends: (f64, f64),
    /// A rank that exceeds its x by this at most is accepted without computing its bar.
    near: f64,
}

impl Zipf {
    fn new(ranks: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf {
            ranks: ranks as f64,
            exponent,
            ends: (0.0, 0.0),
            near: 0.0,
        };
        zipf.ends = (zipf.integral(1.5) - 1.0, zipf.integral(zipf.ranks + 0.5));
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.height(2.0));
        zipf
    }

    /// A rank.
    fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        let (first, last) = self.ends;
        loop {
            let area = last + random.f64() * (first - last);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.near || area >= self.integral(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The integral of `height` from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        match power.abs() < 1e-9 {
            true => x.ln(),
            false => (power * x.ln()).exp_m1() / power,
        }
    }

    /// The x of an integral.
    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        match power.abs() < 1e-9 {
            true => area.exp(),
            // Rounding may bring it slightly below -1 where the curve begins.
            false => ((area * power).max(-1.0).ln_1p() / power).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_use_each_key_once() {
        for order in [Order::Sequential, Order::Scattered] {
            for count in [1, 2, 10, 7_919] {
                let mut keys = Keys::new(5, count, order, 1.0);
                for _ in 0..2 {
                    let mut round: Vec<u64> = (0..count).map(|_| keys.next()).collect();
                    round.sort_unstable();
                    assert!(round.into_iter().eq(5..5 + count));
                }
            }
        }
    }

    #[test]
    fn keys_are_in_their_range() {
        for order in [Order::Uniform, Order::Zipf] {
            for count in [1, 2, 1_000, MAX] {
                let mut keys = Keys::new(3, count, order, 0.99);
                assert!((0..1_000).all(|_| (3..3 + count).contains(&keys.next())));
            }
        }
    }

    /// Pearson's chi-squared over ten ranks and the rest: with ten degrees of freedom, 40 is
    /// exceeded twice in 100,000 runs; the seed is fixed.
    #[test]
    fn ranks_are_as_frequent_as_they_should_be() {
        const DRAWS: usize = 200_000;
        for (exponent, ranks) in [(0.5, 30), (0.99, 1_000), (1.0, 1_000), (1.5, 100_000)] {
            let mut random = fastrand::Rng::with_seed(11);
            let zipf = Zipf::new(ranks, exponent);
            let mut counts = [0_usize; 11];
            for _ in 0..DRAWS {
                let rank = zipf.draw(&mut random);
                assert!((1..=ranks).contains(&rank));
                counts[(rank as usize - 1).min(10)] += 1;
            }
            let weight = |rank: u64| (rank as f64).powf(-exponent);
            let all: f64 = (1..=ranks).map(weight).sum();
            let mut expected: Vec<f64> = (1..=10).map(|rank| weight(rank) / all).collect();
            expected.push(1.0 - expected.iter().sum::<f64>());
            let chi_squared: f64 = counts
                .iter()
                .zip(expected)
                .map(|(count, share)| {
                    let expected = share * DRAWS as f64;
                    (*count as f64 - expected).powi(2) / expected
                })
                .sum();
            assert!(chi_squared < 40.0, "{exponent}: {chi_squared} {counts:?}");
        }
    }
}
