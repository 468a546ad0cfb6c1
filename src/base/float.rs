//! What both float types share: the grammar of C's `strtod`, and the nearest value to a
//! hexadecimal number.

use rustc_apfloat::{Float, Round};

/// A float's text, parsed but not yet rounded.
#[derive(Debug, PartialEq)]
pub(super) struct Scanned<'a> {
    pub(super) negative: bool,
    pub(super) value: Magnitude<'a>,
}

/// The unsigned part of a float's text.
#[derive(Debug, PartialEq)]
pub(super) enum Magnitude<'a> {
    Infinite,
    /// `whole.fraction × 10^exponent`, both parts ASCII digits, maybe empty.
    Decimal {
        whole: &'a [u8],
        fraction: &'a [u8],
        exponent: i64,
    },
    Binary(Binary),
}

/// `mantissa × 2^exponent`. A number with more bits than the mantissa has rounds as this
/// does, to any precision below 120 bits: what is cut off leaves the last bit set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Binary {
    pub(super) mantissa: u128,
    pub(super) exponent: i64,
}

impl Binary {
    /// The nearest value of a format, half to even, and whether the number lies in its
    /// range: what is too large becomes infinite, what is too small becomes zero.
    pub(super) fn nearest<F: Float>(self) -> Option<(F, bool)> {
        // Far outside the range of any format, whatever the mantissa is.
        const FAR: i64 = 1 << 17;
        let exponent = self.exponent.clamp(-FAR, FAR);
        let text = format!("0x{:x}p{exponent}", self.mantissa);
        let nearest = F::from_str_r(&text, Round::NearestTiesToEven).ok()?.value;
        let vanished = nearest.is_zero() && self.mantissa != 0;
        Some((nearest, nearest.is_finite() && !vanished))
    }
}

/// Parses a float that fills the whole text: sign, `inf`/`infinity` in any case, decimal or
/// hexadecimal. NaN, spaces and trailing bytes give `None`.
pub(super) fn scan(text: &[u8]) -> Option<Scanned<'_>> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let value = if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
        Magnitude::Infinite
    } else if let [b'0', b'x' | b'X', digits @ ..] = rest {
        Magnitude::Binary(scan_hex(digits)?)
    } else {
        let (whole, fraction, exponent) = scan_parts(rest, u8::is_ascii_digit, b'e')?;
        Magnitude::Decimal {
            whole,
            fraction,
            exponent,
        }
    };
    Some(Scanned { negative, value })
}

/// Splits `digits[.digits][e[±]digits]`, at least one digit before the exponent.
fn scan_parts(
    text: &[u8],
    is_digit: fn(&u8) -> bool,
    exponent_mark: u8,
) -> Option<(&[u8], &[u8], i64)> {
    let (whole, rest) = split_digits(text, is_digit);
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => split_digits(rest, is_digit),
        rest => (&rest[..0], rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let exponent = match rest {
        [] => 0,
        [mark, rest @ ..] if mark.to_ascii_lowercase() == exponent_mark => scan_exponent(rest)?,
        _ => return None,
    };
    Some((whole, fraction, exponent))
}

fn split_digits(text: &[u8], is_digit: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    let len = text
        .iter()
        .position(|byte| !is_digit(byte))
        .unwrap_or(text.len());
    text.split_at(len)
}

/// A signed decimal exponent; saturates far outside any float's range.
fn scan_exponent(text: &[u8]) -> Option<i64> {
    const FAR: i64 = 1 << 40;
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = (value * 10 + i64::from(digit - b'0')).min(FAR);
    }
    Some(if negative { -value } else { value })
}

fn scan_hex(text: &[u8]) -> Option<Binary> {
    let (whole, fraction, mut exponent) = scan_parts(text, u8::is_ascii_hexdigit, b'p')?;
    exponent -= 4 * fraction.len() as i64;
    let mut mantissa = 0u128;
    let mut lost = false;
    for digit in whole.iter().chain(fraction) {
        let digit = char::from(*digit).to_digit(16).unwrap_or_default();
        if mantissa >> 124 == 0 {
            mantissa = mantissa << 4 | u128::from(digit);
        } else {
            exponent += 4;
            lost |= digit != 0;
        }
    }
    mantissa |= u128::from(lost);
    Some(Binary { mantissa, exponent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustc_apfloat::ieee::Double;

    /// The nearest double, and whether the number lies in the range of doubles.
    fn nearest(text: &str) -> (f64, bool) {
        let Magnitude::Binary(binary) = scan(text.as_bytes()).unwrap().value else {
            panic!("{text} is not hexadecimal");
        };
        let (value, fits) = binary.nearest::<Double>().unwrap();
        (f64::from_bits(value.to_bits() as u64), fits)
    }

    #[test]
    fn rounds_half_to_even() {
        let one = f64::EPSILON;
        for (text, expected) in [
            ("0x1.00000000000008", 1.0),
            ("0x1.00000000000018", 1.0 + 2.0 * one),
            ("0x1.000000000000080000000000000000000000001", 1.0 + one),
            (
                "0x1.000000000000180000000000000000000000000",
                1.0 + 2.0 * one,
            ),
            ("0x1.fffffffffffff8", 2.0),
            (
                "0xffffffffffffffffffffffffffffffffffff",
                (1u128 << 72) as f64 * (1u128 << 72) as f64,
            ),
            ("0x0.0000000000000000000000000000000000000001p160", 1.0),
            ("0x0p99999999999999999999", 0.0),
        ] {
            assert_eq!(nearest(text), (expected, true), "{text}");
        }
    }

    #[test]
    fn rounds_to_the_smallest_unit() {
        let unit = f64::from_bits(1);
        assert_eq!(nearest("0x1p-1074"), (unit, true));
        assert_eq!(nearest("0x3p-1075"), (2.0 * unit, true));
        assert_eq!(nearest("0x1p-1075"), (0.0, false));
        assert_eq!(nearest("0x1.00000000000000000001p-1075"), (unit, true));
        assert_eq!(nearest("0x1p-99999999999999999999"), (0.0, false));
        assert_eq!(nearest("0x1.fffffffffffff7p1023"), (f64::MAX, true));
        assert_eq!(nearest("0x1.fffffffffffff8p1023"), (f64::INFINITY, false));
        assert_eq!(nearest("0x1p99999999999999999999"), (f64::INFINITY, false));
    }

    #[test]
    fn refuses_what_strtod_leaves_over() {
        for text in [
            "", "+", "-", ".", "e5", "1e", "1e+", "1 ", " 1", "0x", "0x.", "0x1p", "1x", "--1",
            "nan", "infin", "1.2.3", "0x1.g",
        ] {
            assert_eq!(scan(text.as_bytes()), None, "{text}");
        }
    }
}
