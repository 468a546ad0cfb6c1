//! The 80-bit floats of x87, in software: INCRBYFLOAT and HINCRBYFLOAT add with them, so that sums
//! print as people expect (3 + 1.1 = 4.1).
//!
//! A value has a mantissa of 64 bits and the exponent range of the processor's format; every
//! operation rounds once, half to even. The length of text is bounded by [`MAX_TEXT_LEN`], so the
//! exact arithmetic on it is bounded, too.

use std::cmp::Ordering;

use super::float::{self, Binary, Magnitude, Scanned};

/// The longest text that is parsed, in bytes.
pub const MAX_TEXT_LEN: usize = 5 * 1024 - 1;

const MANTISSA_BITS: u32 = 64;
/// Exponent of the smallest subnormal.
const MIN_EXPONENT: i64 = -16445;
/// All finite values are below two to this power.
const MAX_POWER: i64 = 16384;
/// Digits after the point in [`LongDouble::to_human`].
const FRACTION_DIGITS: usize = 17;

/// A float with 64 bits of mantissa.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongDouble {
    negative: bool,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// `mantissa × 2^exponent`.
    Finite {
        mantissa: u64,
        exponent: i32,
    },
    Infinite,
    Nan,
}

impl LongDouble {
    /// Parses a float that fills the whole text, correctly rounded: decimal, hexadecimal or `inf`.
    /// Refused: NaN, spaces, more than [`MAX_TEXT_LEN`] bytes, numbers that are too large, and
    /// non-zero numbers that are too small.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT_LEN {
            return None;
        }
        let Scanned { negative, value } = float::scan(text)?;
        let binary = match value {
            Magnitude::Infinite => {
                let kind = Kind::Infinite;
                return Some(Self { negative, kind });
            }
            Magnitude::Decimal {
                whole,
                fraction,
                exponent,
            } => decimal_to_binary(whole, fraction, exponent)?,
            Magnitude::Binary(binary) => binary,
        };
        let rounded = Self::rounded(negative, binary);
        let vanished = binary.mantissa != 0 && rounded.is_zero();
        (rounded.is_finite() && !vanished).then_some(rounded)
    }

    /// The sum, rounded once. Opposite infinities give NaN.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "a named operation that rounds, as its siblings"
    )]
    pub fn add(self, other: Self) -> Self {
        let (
            Kind::Finite {
                mantissa: ma,
                exponent: ea,
            },
            Kind::Finite {
                mantissa: mb,
                exponent: eb,
            },
        ) = (self.kind, other.kind)
        else {
            return self.add_unbounded(other);
        };
        if ma == 0 || mb == 0 {
            return match (ma == 0, mb == 0) {
                (true, true) => Self {
                    negative: self.negative && other.negative,
                    kind: self.kind,
                },
                (true, false) => other,
                _ => self,
            };
        }
        let a = Aligned::new(self.negative, ma, ea);
        let b = Aligned::new(other.negative, mb, eb);
        if (a.exponent, a.mantissa) >= (b.exponent, b.mantissa) {
            a.add_smaller(b)
        } else {
            b.add_smaller(a)
        }
    }

    /// Whether it is neither an infinity nor NaN.
    pub fn is_finite(&self) -> bool {
        matches!(self.kind, Kind::Finite { .. })
    }

    /// Decimal text without exponent: correctly rounded to 17 digits after the
    /// point, then without trailing zeros. Negative zero is `0`.
    pub fn to_human(&self) -> Vec<u8> {
        let (mantissa, exponent) = match self.kind {
            Kind::Finite { mantissa, exponent } => (mantissa, exponent),
            Kind::Infinite if self.negative => return b"-inf".to_vec(),
            Kind::Infinite => return b"inf".to_vec(),
            Kind::Nan => return b"nan".to_vec(),
        };
        let mut digits = if exponent >= 0 {
            let mut whole = Big::from_u64(mantissa);
            whole.shift_left(exponent as usize);
            whole.into_decimal()
        } else {
            let scaled = u128::from(mantissa) * 10u128.pow(FRACTION_DIGITS as u32);
            let units = shift_right_rounded(scaled, exponent.unsigned_abs());
            let text = format!("{units:0width$}", width = FRACTION_DIGITS + 1);
            let (whole, fraction) = text.split_at(text.len() - FRACTION_DIGITS);
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            format!("{whole}{point}{fraction}").into_bytes()
        };
        if self.negative && digits != b"0" {
            digits.insert(0, b'-');
        }
        digits
    }

    fn is_zero(&self) -> bool {
        matches!(self.kind, Kind::Finite { mantissa: 0, .. })
    }

    fn rounded(negative: bool, value: Binary) -> Self {
        let (mantissa, exponent) = float::round(value, MANTISSA_BITS, MIN_EXPONENT);
        let len = i64::from(64 - mantissa.leading_zeros());
        let kind = if mantissa == 0 {
            Kind::Finite {
                mantissa: 0,
                exponent: 0,
            }
        } else if exponent + len > MAX_POWER {
            Kind::Infinite
        } else {
            Kind::Finite {
                mantissa,
                exponent: exponent as i32,
            }
        };
        Self { negative, kind }
    }

    fn add_unbounded(self, other: Self) -> Self {
        let opposite = self.negative != other.negative;
        match (self.kind, other.kind) {
            (Kind::Nan, _) => self,
            (_, Kind::Nan) => other,
            (Kind::Infinite, Kind::Infinite) if opposite => Self {
                negative: false,
                kind: Kind::Nan,
            },
            (Kind::Infinite, _) => self,
            _ => other,
        }
    }
}

/// A non-zero finite value, its mantissa's top bit set.
struct Aligned {
    negative: bool,
    mantissa: u64,
    exponent: i64,
}

impl Aligned {
    fn new(negative: bool, mantissa: u64, exponent: i32) -> Self {
        let shift = mantissa.leading_zeros();
        Self {
            negative,
            mantissa: mantissa << shift,
            exponent: i64::from(exponent) - i64::from(shift),
        }
    }

    /// Adds a value of no larger magnitude. Both are shifted to 127 bits with room for a carry.
    /// Bits of the smaller value below that only make the sum sticky: then the larger value leads
    /// by so much that at most one bit of the difference cancels.
    fn add_smaller(self, other: Self) -> LongDouble {
        const ROOM: u32 = 62;
        let gap = self.exponent - other.exponent;
        let large = u128::from(self.mantissa) << ROOM;
        let small = u128::from(other.mantissa) << ROOM;
        let (small, lost) = match u32::try_from(gap) {
            Ok(gap) if gap < 127 => (small >> gap, small & ((1 << gap) - 1) != 0),
            _ => (0, true),
        };
        let (negative, mantissa) = if self.negative == other.negative {
            (self.negative, large + small)
        } else {
            let difference = large - small - u128::from(lost);
            (self.negative && difference != 0, difference)
        };
        let sum = Binary {
            mantissa,
            exponent: self.exponent - i64::from(ROOM),
            sticky: lost,
        };
        LongDouble::rounded(negative, sum)
    }
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

/// The exact value of `whole.fraction × 10^exponent`, cut to 66 bits or more, and sticky if that
/// loses bits. `None` if its magnitude is far out of range.
fn decimal_to_binary(whole: &[u8], fraction: &[u8], exponent: i64) -> Option<Binary> {
    /// Decimal exponents beyond the finite ones.
    const MAX_DECIMAL: i64 = 4940;
    const MIN_DECIMAL: i64 = -4960;
    let zeros = whole
        .iter()
        .chain(fraction)
        .take_while(|digit| **digit == b'0')
        .count();
    let count = (whole.len() + fraction.len() - zeros) as i64;
    if count == 0 {
        return Some(Binary {
            mantissa: 0,
            exponent: 0,
            sticky: false,
        });
    }
    let power = exponent - fraction.len() as i64;
    let magnitude = count + power;
    if !(MIN_DECIMAL..=MAX_DECIMAL).contains(&magnitude) {
        return None;
    }
    let digits = whole.iter().chain(fraction).skip(zeros);
    if let Some(binary) = short_decimal(digits.clone(), count, power) {
        return Some(binary);
    }
    let mut numerator = Big::default();
    for digit in digits {
        numerator.push_digit(*digit);
    }
    let mut numerator = numerator.finished();
    let mut denominator = Big::from_u64(1);
    // Both powers are bounded by the checks above: at most about 10,000.
    if power >= 0 {
        numerator.multiply_power_of_ten(power.unsigned_abs());
    } else {
        denominator.multiply_power_of_ten(power.unsigned_abs());
    }
    Some(divide(numerator, denominator))
}

/// The fast path for numbers of common size, which fit into 128 bits.
fn short_decimal<'a>(
    digits: impl Iterator<Item = &'a u8>,
    count: i64,
    power: i64,
) -> Option<Binary> {
    if count > 19 || power.abs() > 18 {
        return None;
    }
    let digits = digits.fold(0, |value, digit| value * 10 + u128::from(digit - b'0'));
    let scale = 10u128.pow(power.unsigned_abs() as u32);
    if power >= 0 {
        return Some(Binary {
            mantissa: digits * scale,
            exponent: 0,
            sticky: false,
        });
    }
    // The scale has at most 60 bits, so the quotient has at least 68.
    let shift = digits.leading_zeros();
    let numerator = digits << shift;
    Some(Binary {
        mantissa: numerator / scale,
        exponent: -i64::from(shift),
        sticky: numerator % scale != 0,
    })
}

/// The quotient of two positive numbers to 66 or 67 bits.
fn divide(mut numerator: Big, mut denominator: Big) -> Binary {
    const STEPS: i64 = 67;
    let lead = numerator.bit_len() as i64 - denominator.bit_len() as i64;
    if lead < 0 {
        numerator.shift_left(lead.unsigned_abs() as usize);
    } else {
        denominator.shift_left(lead.unsigned_abs() as usize);
    }
    let mut mantissa = 0u128;
    for step in 0..STEPS {
        if step > 0 {
            numerator.shift_left(1);
        }
        mantissa <<= 1;
        if numerator.compare(&denominator) != Ordering::Less {
            numerator.subtract(&denominator);
            mantissa |= 1;
        }
    }
    Binary {
        mantissa,
        exponent: lead - (STEPS - 1),
        sticky: !numerator.limbs.is_empty(),
    }
}

/// A natural number, least significant limb first, no zero limb at the top.
#[derive(Debug, Default, Clone)]
struct Big {
    limbs: Vec<u64>,
    /// Digits pushed but not yet multiplied in, and how many.
    chunk: u64,
    chunk_len: u32,
}

impl Big {
    /// The largest power of ten in a limb, and its exponent.
    const CHUNK: u64 = 10_000_000_000_000_000_000;
    const CHUNK_DIGITS: u32 = 19;

    fn from_u64(value: u64) -> Self {
        let mut big = Self::default();
        if value > 0 {
            big.limbs.push(value);
        }
        big
    }

    fn push_digit(&mut self, digit: u8) {
        self.chunk = self.chunk * 10 + u64::from(digit.wrapping_sub(b'0'));
        self.chunk_len += 1;
        if self.chunk_len == Self::CHUNK_DIGITS {
            self.flush_chunk();
        }
    }

    fn finished(mut self) -> Self {
        self.flush_chunk();
        self
    }

    fn flush_chunk(&mut self) {
        self.multiply_add(10u64.pow(self.chunk_len), self.chunk);
        self.chunk = 0;
        self.chunk_len = 0;
    }

    fn multiply_add(&mut self, factor: u64, addend: u64) {
        let mut carry = u128::from(addend);
        for limb in &mut self.limbs {
            carry += u128::from(*limb) * u128::from(factor);
            *limb = carry as u64;
            carry >>= 64;
        }
        if carry > 0 {
            self.limbs.push(carry as u64);
        }
    }

    fn multiply_power_of_ten(&mut self, mut power: u64) {
        while power > 0 {
            let step = power.min(u64::from(Self::CHUNK_DIGITS));
            self.multiply_add(10u64.pow(step as u32), 0);
            power -= step;
        }
    }

    fn bit_len(&self) -> usize {
        match self.limbs.last() {
            Some(top) => self.limbs.len() * 64 - top.leading_zeros() as usize,
            None => 0,
        }
    }

    fn shift_left(&mut self, bits: usize) {
        if self.limbs.is_empty() {
            return;
        }
        let small = bits % 64;
        if small > 0 {
            let mut carry = 0;
            for limb in &mut self.limbs {
                let next = *limb >> (64 - small);
                *limb = *limb << small | carry;
                carry = next;
            }
            if carry > 0 {
                self.limbs.push(carry);
            }
        }
        self.limbs
            .splice(0..0, std::iter::repeat_n(0, bits / 64))
            .for_each(drop);
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.limbs
            .len()
            .cmp(&other.limbs.len())
            .then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    /// Subtracts a number that is no larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        let rest = other.limbs.iter().copied().chain(std::iter::repeat(0));
        for (limb, less) in self.limbs.iter_mut().zip(rest) {
            let (first, under) = limb.overflowing_sub(less);
            let (second, under_again) = first.overflowing_sub(u64::from(borrow));
            *limb = second;
            borrow = under || under_again;
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    /// Divides by [`Self::CHUNK`] in place and returns the remainder.
    fn divide_chunk(&mut self) -> u64 {
        let mut rest = 0u128;
        for limb in self.limbs.iter_mut().rev() {
            rest = rest << 64 | u128::from(*limb);
            *limb = (rest / u128::from(Self::CHUNK)) as u64;
            rest %= u128::from(Self::CHUNK);
        }
        self.trim();
        rest as u64
    }

    fn into_decimal(mut self) -> Vec<u8> {
        let mut chunks = Vec::new();
        while !self.limbs.is_empty() {
            chunks.push(self.divide_chunk());
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text.push_str(&format!("{chunk:019}"));
        }
        text.into_bytes()
    }
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
        fn any_text_is_read_or_refused(text in "[-+0-9.exXpPinfa]{0,40}") {
            if let Some(value) = LongDouble::parse(text.as_bytes()) {
                value.to_human();
            }
        }
    }
}
