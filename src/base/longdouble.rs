//! The 80-bit floats of x87, which C's `long double` is for Redis: INCRBYFLOAT and
//! HINCRBYFLOAT count with them, so that sums print as people expect (3 + 1.1 = 4.1).
//!
//! The arithmetic is that of `rustc_apfloat`; every operation rounds once, half to even.
//! Here are the texts: which are taken, a quick way to read short ones, and how Redis
//! writes a value. Text is bounded by [`MAX_TEXT_LEN`], so the exact arithmetic on it is
//! bounded too.

use super::float::{self, Binary, Magnitude, Scanned};
use num_bigint::BigUint;
use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round};
use std::ops::RangeInclusive;

/// The longest text that is parsed, in bytes.
pub const MAX_TEXT_LEN: usize = 5 * 1024 - 1;

const ROUND: Round = Round::NearestTiesToEven;
/// Of the format: the exponent of the last bit of a mantissa is what is stored, less this.
const EXPONENT_BIAS: i32 = 16383 + 63;
/// Digits after the point in [`LongDouble::to_human`], and how many units of the last of
/// them make one.
const FRACTION_DIGITS: usize = 17;
const FRACTION_UNITS: u64 = 100_000_000_000_000_000;

/// A float with 64 bits of mantissa.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct LongDouble(X87DoubleExtended);

impl LongDouble {
    /// Zero.
    pub const ZERO: LongDouble = LongDouble(X87DoubleExtended::ZERO);

    /// Parses a float that fills the whole text, correctly rounded: decimal, hexadecimal or `inf`.
    /// Refused: NaN, spaces, more than [`MAX_TEXT_LEN`] bytes, numbers that are too large, and
    /// non-zero numbers that are too small.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT_LEN {
            return None;
        }
        let Scanned { negative, value } = float::scan(text)?;
        let magnitude = match value {
            Magnitude::Infinite => X87DoubleExtended::INFINITY,
            Magnitude::Decimal {
                whole,
                fraction,
                exponent,
            } => match short_decimal(whole, fraction, exponent) {
                Some(magnitude) => magnitude,
                None => decimal(whole, fraction, exponent)?,
            },
            Magnitude::Binary(binary) => {
                let (magnitude, fits) = binary.nearest()?;
                fits.then_some(magnitude)?
            }
        };
        Some(LongDouble(match negative {
            true => -magnitude,
            false => magnitude,
        }))
    }

    /// The sum, rounded once. Opposite infinities give NaN.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "a named operation that rounds, as its siblings"
    )]
    pub fn add(self, other: Self) -> Self {
        LongDouble(self.0.add_r(other.0, ROUND).value)
    }

    /// The largest finite value.
    pub fn largest() -> LongDouble {
        LongDouble(X87DoubleExtended::largest())
    }

    /// The value with the other sign.
    #[must_use]
    pub fn negated(self) -> Self {
        LongDouble(-self.0)
    }

    /// Whether it is neither an infinity nor NaN.
    pub fn is_finite(&self) -> bool {
        self.0.is_finite()
    }

    /// Decimal text without exponent: correctly rounded to 17 digits after the
    /// point, then without trailing zeros. Negative zero is `0`.
    pub fn to_human(&self) -> Vec<u8> {
        if self.0.is_nan() {
            return b"nan".to_vec();
        }
        let mut text = Vec::new();
        if self.0.is_negative() {
            text.push(b'-');
        }
        if self.0.is_infinite() {
            text.extend_from_slice(b"inf");
            return text;
        }
        let (mantissa, exponent) = self.parts();
        let shift = exponent.unsigned_abs();
        if exponent >= 0 {
            let whole = BigUint::from(mantissa) << shift;
            text.extend_from_slice(whole.to_string().as_bytes());
            return text;
        }
        let scaled = u128::from(mantissa) * u128::from(FRACTION_UNITS);
        let units = shift_right_rounded(scaled, shift);
        if units == 0 {
            return b"0".to_vec();
        }
        let (whole, fraction) = (
            units / u128::from(FRACTION_UNITS),
            (units % u128::from(FRACTION_UNITS)) as u64,
        );
        text.extend_from_slice(itoa::Buffer::new().format(whole as u64).as_bytes());
        push_fraction(&mut text, fraction);
        text
    }

    /// Mantissa and exponent of a finite value: `mantissa × 2^exponent`.
    fn parts(&self) -> (u64, i32) {
        let bits = self.0.to_bits();
        let stored = (bits >> 64) as i32 & 0x7fff;
        // Subnormal values have the exponent of the smallest that are not.
        (bits as u64, stored.max(1) - EXPONENT_BIAS)
    }
}

/// Appends the digits after the point, and the point, without zeros at the end.
fn push_fraction(text: &mut Vec<u8>, units: u64) {
    if units == 0 {
        return;
    }
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(units).as_bytes();
    text.push(b'.');
    text.resize(text.len() + FRACTION_DIGITS - digits.len(), b'0');
    text.extend_from_slice(digits);
    let zeros = text.iter().rev().take_while(|digit| **digit == b'0');
    text.truncate(text.len() - zeros.count());
}

/// Shifts right, rounding half to even.
fn shift_right_rounded(value: u128, shift: u32) -> u128 {
    if shift > 127 {
        return 0;
    }
    let kept = value >> shift;
    let rest = value & ((1 << shift) - 1);
    let half = 1u128 << (shift - 1);
    kept + u128::from(rest > half || (rest == half && kept & 1 == 1))
}

/// The nearest value to `whole.fraction × 10^exponent`. `None` if it is too large, or too
/// small.
///
/// One exact division, whatever the digits: `rustc_apfloat` divides again with twice the bits
/// while a value is close to half-way between two others, which a client can make last.
fn decimal(whole: &[u8], fraction: &[u8], exponent: i64) -> Option<X87DoubleExtended> {
    /// Bits of the quotient, which a [`Binary`] holds.
    const QUOTIENT_BITS: i64 = 100;
    /// No finite value has more digits before the point, and none as many zeros behind it.
    const DIGITS: RangeInclusive<i64> = -4960..=4940;
    let digits = whole.iter().chain(fraction).copied();
    let digits: Vec<u8> = digits.skip_while(|digit| *digit == b'0').collect();
    if digits.is_empty() {
        return Some(X87DoubleExtended::ZERO);
    }
    let power = exponent.saturating_sub(fraction.len() as i64);
    if !DIGITS.contains(&power.saturating_add(digits.len() as i64)) {
        return None;
    }
    // The bounds above keep the power below 10,100.
    let scale = BigUint::from(10u8).pow(power.unsigned_abs() as u32);
    let digits = BigUint::parse_bytes(&digits, 10)?;
    let (numerator, denominator) = match power >= 0 {
        true => (digits * scale, BigUint::from(1u8)),
        false => (digits, scale),
    };
    let shift = QUOTIENT_BITS + denominator.bits() as i64 - numerator.bits() as i64;
    let (numerator, denominator) = match shift >= 0 {
        true => (numerator << shift.unsigned_abs(), denominator),
        false => (numerator, denominator << shift.unsigned_abs()),
    };
    let quotient = u128::try_from(&numerator / &denominator).ok()?;
    let is_exact = (&numerator % &denominator).bits() == 0;
    let binary = Binary {
        mantissa: quotient | u128::from(!is_exact),
        exponent: -shift,
    };
    let (nearest, fits) = binary.nearest()?;
    fits.then_some(nearest)
}

/// The fast path for numbers of common size, which fit into 128 bits.
fn short_decimal(whole: &[u8], fraction: &[u8], exponent: i64) -> Option<X87DoubleExtended> {
    const POWER_MAX: u64 = 18;
    let power = exponent - fraction.len() as i64;
    if whole.len() + fraction.len() > 19 || power.unsigned_abs() > POWER_MAX {
        return None;
    }
    let digits = whole.iter().chain(fraction);
    let digits = digits.fold(0, |value, digit| value * 10 + u128::from(digit - b'0'));
    let scale = 10u128.pow(power.unsigned_abs() as u32);
    if power >= 0 || digits == 0 {
        return Some(X87DoubleExtended::from_u128_r(digits * scale, ROUND).value);
    }
    // The scale has at most 60 bits, so the quotient has at least 68: that its last bit
    // stands for all below it changes no rounding to 64.
    let shift = digits.leading_zeros();
    let numerator = digits << shift;
    let quotient = (numerator / scale) | u128::from(numerator % scale != 0);
    let nearest = X87DoubleExtended::from_u128_r(quotient, ROUND).value;
    Some(nearest.scalbn_r(-(shift as i32), ROUND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> LongDouble {
        LongDouble::parse(text.as_bytes()).unwrap_or_else(|| panic!("refused {text:?}"))
    }

    fn human(text: &str) -> String {
        String::from_utf8(read(text).to_human()).unwrap()
    }

    fn sum(a: &str, b: &str) -> String {
        String::from_utf8(read(a).add(read(b)).to_human()).unwrap()
    }

    #[test]
    fn sums_print_as_people_expect() {
        for (a, b, expected) in [
            ("3", "1.1", "4.1"),
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1", "0"),
            ("-1", "-0.5", "-1.5"),
            ("33605306.51", "-59445.22", "33545861.28999999999905413"),
            ("17179869184", "1.5", "17179869185.5"),
            ("1e18", "0.5", "1000000000000000000.5"),
            ("1e19", "1", "10000000000000000001"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("18446744073709551616", "-1", "18446744073709551615"),
            ("36893488147419103232", "-1", "36893488147419103232"),
            (
                "36893488147419103232",
                "-1.0000000000001",
                "36893488147419103230",
            ),
            ("1", "1e-4950", "1"),
            ("1", "-1e-4950", "1"),
            ("-0", "-0", "0"),
            ("1e-17", "1e-17", "0.00000000000000002"),
            ("1e-18", "-2e-18", "0"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
            assert_eq!(sum(b, a), expected, "{b} + {a}");
        }
    }

    #[test]
    fn text_is_rounded_once() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("1.10", "1.1"),
            ("-0.5", "-0.5"),
            ("0x1.8p1", "3"),
            (".0000000000000000050001", "0.00000000000000001"),
            ("0.0000000000000000049999", "0"),
            ("123456789012345678901", "123456789012345678904"),
            ("36893488147419103233", "36893488147419103232"),
            ("36893488147419103234", "36893488147419103232"),
            (
                "36893488147419103234.0000000000000000001",
                "36893488147419103236",
            ),
            ("3.0000000000000000001", "3"),
            ("1.0000000000000000001", "1"),
            ("1e17", "100000000000000000"),
            ("inf", "inf"),
            ("-Infinity", "-inf"),
        ] {
            assert_eq!(human(text), expected, "{text}");
        }
        let zeros = format!("{}1", "0".repeat(5000));
        assert_eq!(human(&zeros), "1");
        let scaled = format!("0.{}1e4901", "0".repeat(4900));
        assert_eq!(human(&scaled), "1");
    }

    /// A digit far behind a number half-way between two others decides.
    #[test]
    fn the_last_digit_counts() {
        let half_way = "1.00000000000000000005421010862427522170037264004349708557128906250";
        let behind = format!("{half_way}{}1", "0".repeat(4800));
        let one = read("1").0.to_bits();
        assert_eq!(read(half_way).0.to_bits(), one);
        assert_eq!(read(&behind).0.to_bits(), one + 1);
    }

    #[test]
    fn limits() {
        let max = "1.18973149535723176502e+4932";
        assert!(read(max).is_finite());
        assert_eq!(human(max).len(), 4933);
        assert!(!read(max).add(read(max)).is_finite());
        assert!(!read("inf").add(read("-inf")).is_finite());
        assert_eq!(read("inf").add(read("-inf")).to_human(), b"nan");
        assert_eq!(human("1e-4950"), "0");
        assert_eq!(human("5e4931").len(), 4932);
        for text in [
            "1.18973149535723176509e+4932",
            "1e4933",
            "1e-4951",
            "1.8e-4951",
            "5e-5000",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "nan",
            "",
            " 1",
            "1 ",
            "abc",
            "0x1p16384",
            "0x1p-16447",
            "1e",
            "1\0",
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
        }
        assert!(LongDouble::parse("1".repeat(MAX_TEXT_LEN).as_bytes()).is_none());
        assert!(LongDouble::parse("0".repeat(MAX_TEXT_LEN).as_bytes()).is_some());
        assert!(LongDouble::parse("0".repeat(MAX_TEXT_LEN + 1).as_bytes()).is_none());
        assert!(LongDouble::parse(b"1e-4950").is_some());
        assert!(LongDouble::parse(b"0e99999").is_some());
    }

    proptest! {
        #[test]
        fn integers_are_exact(a in -(1i64 << 62)..1 << 62, b in -(1i64 << 62)..1 << 62) {
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), (a + b).to_string());
        }

        #[test]
        fn doubles_print_exactly(bits: u64) {
            // Every double is a long double, and Rust prints doubles exactly.
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let expected = format!("{value:.17}");
            let expected = expected.trim_end_matches('0').trim_end_matches('.');
            let expected = if expected == "-0" { "0" } else { expected };
            let exact = human(&format!("{value:.1074}"));
            prop_assert_eq!(exact, expected);
        }

        #[test]
        fn sums_do_not_depend_on_order(a in "-?[0-9]{1,25}(\\.[0-9]{1,25})?(e-?[0-9]{1,4})?", b in "-?[0-9]{1,25}(\\.[0-9]{1,25})?(e-?[0-9]{1,4})?") {
            if let (Some(a), Some(b)) = (LongDouble::parse(a.as_bytes()), LongDouble::parse(b.as_bytes())) {
                prop_assert_eq!(a.add(b).to_human(), b.add(a).to_human());
            }
        }

        #[test]
        fn decimals_are_those_of_the_library(text in "[0-9]{1,30}(\\.[0-9]{1,60})?(e-?[0-9]{1,4})?") {
            let nearest = X87DoubleExtended::from_str_r(&text, ROUND).unwrap();
            let is_zero = text.split('e').next().unwrap().bytes().all(|b| b"0.".contains(&b));
            let fits = nearest.value.is_finite() && (is_zero || !nearest.value.is_zero());
            let found = LongDouble::parse(text.as_bytes());
            prop_assert_eq!(found.map(|n| n.0.to_bits()), fits.then(|| nearest.value.to_bits()));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.exXpPinfa]{0,40}") {
            if let Some(value) = LongDouble::parse(text.as_bytes()) {
                value.to_human();
            }
        }
    }
}
