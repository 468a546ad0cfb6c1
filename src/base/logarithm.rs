//! Logarithms that are the same on every machine.
//!
//! The standard library asks the C library of the platform, and these differ in the last bit. What
//! is stored must not: sizes of Bloom filters follow from a logarithm, and a replica computes them
//! again. So these are computed from additions, multiplications and divisions alone, which IEEE 754
//! rounds in one way, with twice the precision of the result ([`Double`]). The results are the
//! correctly rounded ones but for about one in 2^40, which is off by the last bit, everywhere alike.

use std::ops::{Add, Div, Mul};

/// An unevaluated sum of two floats, the second at most half a unit in the last place of the first.
#[derive(Debug, Clone, Copy)]
struct Double(f64, f64);

/// ln(2) and ln(10).
const LN_2: Double = Double(std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);
const LN_10: Double = Double(std::f64::consts::LN_10, -2.170_756_223_382_249_4e-16);

/// Terms of the series: the last one is below 2^-110 of the first.
const TERMS: u32 = 23;

impl Double {
    /// The exact sum.
    fn sum(a: f64, b: f64) -> Double {
        let sum = a + b;
        let b_there = sum - a;
        Double(sum, (a - (sum - b_there)) + (b - b_there))
    }

    /// The exact product.
    fn product(a: f64, b: f64) -> Double {
        let halves = |x: f64| {
            let high = 134_217_729.0 * x;
            let high = high - (high - x);
            (high, x - high)
        };
        let product = a * b;
        let ((a_high, a_low), (b_high, b_low)) = (halves(a), halves(b));
        let left = a_high * b_high - product;
        Double(
            product,
            ((left + a_high * b_low) + a_low * b_high) + a_low * b_low,
        )
    }

    fn value(self) -> f64 {
        self.0 + self.1
    }
}

impl Add for Double {
    type Output = Double;

    fn add(self, other: Double) -> Double {
        let Double(high, low) = Double::sum(self.0, other.0);
        Double::sum(high, low + (self.1 + other.1))
    }
}

impl Mul for Double {
    type Output = Double;

    fn mul(self, other: Double) -> Double {
        let Double(high, low) = Double::product(self.0, other.0);
        Double::sum(high, low + (self.0 * other.1 + self.1 * other.0))
    }
}

impl Div for Double {
    type Output = Double;

    fn div(self, other: Double) -> Double {
        let first = self.0 / other.0;
        let taken = other * Double(-first, 0.0);
        let left = self + taken;
        let second = left.0 / other.0;
        let left = left + other * Double(-second, 0.0);
        Double::sum(first, second) + Double(left.0 / other.0, 0.0)
    }
}

/// ln((1 + s) / (1 - s)), for a small s: twice the sum of s^n / n over the odd n.
fn of_ratio(s: Double) -> Double {
    let square = s * s;
    let mut sum = Double(0.0, 0.0);
    for term in (0..TERMS).rev() {
        let part = Double(1.0, 0.0) / Double(f64::from(2 * term + 1), 0.0);
        sum = sum * square + part;
    }
    let half = sum * s;
    Double(2.0 * half.0, 2.0 * half.1)
}

/// The logarithm of a finite number above zero.
fn of_positive(x: f64) -> Double {
    // A subnormal number gets more bits first.
    let (x, scaled) = match x < f64::MIN_POSITIVE {
        true => (x * (1u64 << 54) as f64, -54),
        false => (x, 0),
    };
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let ratio = Double(mantissa - 1.0, 0.0) / Double::sum(mantissa, 1.0);
    of_ratio(ratio) + LN_2 * Double(f64::from(exponent + scaled), 0.0)
}

/// What logarithms are of other numbers.
fn of_others(x: f64) -> Option<f64> {
    match x {
        x if x.is_nan() || x < 0.0 => Some(f64::NAN),
        0.0 => Some(f64::NEG_INFINITY),
        f64::INFINITY => Some(f64::INFINITY),
        _ => None,
    }
}

/// The natural logarithm.
pub fn ln(x: f64) -> f64 {
    of_others(x).unwrap_or_else(|| of_positive(x).value())
}

/// The natural logarithm of 1 + `x`.
pub fn ln_1p(x: f64) -> f64 {
    match x.abs() <= 0.5 {
        true => of_ratio(Double(x, 0.0) / Double::sum(2.0, x)).value(),
        false => ln(1.0 + x),
    }
}

/// The decimal logarithm, in the precision of an `f32`.
pub fn log10(x: f32) -> f32 {
    let x = f64::from(x);
    of_others(x).unwrap_or_else(|| (of_positive(x) / LN_10).value()) as f32
}

/// The `n`-th power, by multiplications.
pub fn power(base: f64, n: u32) -> f64 {
    let (mut result, mut square, mut left) = (1.0, base, n);
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        square *= square;
        left >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many floats lie between two.
    fn steps(a: f64, b: f64) -> u64 {
        a.to_bits().abs_diff(b.to_bits())
    }

    /// A filter on one machine and its replica on another would have other sizes if one of these
    /// bits differed.
    #[test]
    fn results_are_the_same_bits_everywhere() {
        let pinned: [(f64, u64); 9] = [
            (0.5, 0xbfe6_2e42_fefa_39ef),
            (0.1, 0xc002_6bb1_bbb5_5515),
            (0.01, 0xc012_6bb1_bbb5_5515),
            (0.001, 0xc01b_a18a_998f_ffa0),
            (0.0001, 0xc022_6bb1_bbb5_5515),
            (0.3, 0xbff3_4378_fcbd_a721),
            (10.0, 0x4002_6bb1_bbb5_5516),
            (5e-324, 0xc087_4385_446d_71c3),
            (f64::MAX, 0x4086_2e42_fefa_39ef),
        ];
        for (x, bits) in pinned {
            assert_eq!(format!("{:x}", ln(x).to_bits()), format!("{bits:x}"), "{x}");
        }
        assert_eq!(
            (ln(1.0), ln_1p(0.0), ln(0.0)),
            (0.0, 0.0, f64::NEG_INFINITY)
        );
        assert!(ln(-1.0).is_nan() && ln(f64::NAN).is_nan());
        assert_eq!(ln(f64::INFINITY), f64::INFINITY);
        for n in 1..=38 {
            let power = 10f32.powi(n);
            assert_eq!(
                log10(format!("1e{n}").parse().unwrap()),
                n as f32,
                "{power}"
            );
        }
        assert_eq!(power(0.9, 0), 1.0);
        assert_eq!(power(2.0, 40), (1u64 << 40) as f64);
        assert_eq!(power(0.5, u32::MAX), 0.0);
    }

    #[test]
    fn they_are_those_of_the_platform_within_its_last_bits() {
        let seed = fastrand::get_seed();
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..20_000 {
            let x = f64::from_bits(rng.u64(1..f64::INFINITY.to_bits()));
            assert!(steps(ln(x), x.ln()) <= 1, "{x:e}, seed {seed}");
            let small = (rng.f64() - 0.5) * 2f64.powi(-rng.i32(0..60));
            assert!(
                steps(ln_1p(small), small.ln_1p()) <= 1,
                "{small:e}, seed {seed}"
            );
            let near = 1.0 + small * 1e-3;
            assert!(steps(ln(near), near.ln()) <= 1, "{near:e}, seed {seed}");
        }
    }
}
