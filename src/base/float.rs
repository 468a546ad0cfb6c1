//! The common part of both float types: the grammar of C's `strtod`, and correct rounding of an
//! exact binary value to a given precision.

use std::cmp::Ordering;

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

/// `mantissa × 2^exponent`, plus something below the last bit if `sticky` (the mantissa has more
/// than 100 bits then).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Binary {
    pub(super) mantissa: u128,
    pub(super) exponent: i64,
    pub(super) sticky: bool,
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
    let mut sticky = false;
    for digit in whole.iter().chain(fraction) {
        let digit = char::from(*digit).to_digit(16).unwrap_or_default();
        if mantissa >> 124 == 0 {
            mantissa = mantissa << 4 | u128::from(digit);
        } else {
            exponent += 4;
            sticky |= digit != 0;
        }
    }
    Some(Binary {
        mantissa,
        exponent,
        sticky,
    })
}

/// Rounds half to even to at most `bits` bits and to multiples of
/// `2^min_exponent`. Returns mantissa and exponent.
pub(super) fn round(value: Binary, bits: u32, min_exponent: i64) -> (u64, i64) {
    let len = 128 - value.mantissa.leading_zeros();
    let surplus = i64::from(len) - i64::from(bits);
    let drop = surplus.max(min_exponent - value.exponent).max(0);
    let exponent = value.exponent + drop;
    if drop > 127 {
        // Less than half of the smallest unit: 2^128 bounds the mantissa, and a
        // drop of exactly 128 can only meet a full one.
        let up = drop == 128 && (value.mantissa > 1 << 127 || value.sticky && len == 128);
        return (u64::from(up), exponent);
    }
    if drop == 0 {
        return (value.mantissa as u64, exponent);
    }
    let kept = value.mantissa >> drop;
    let rest = value.mantissa & ((1 << drop) - 1);
    let up = match rest.cmp(&(1 << (drop - 1))) {
        Ordering::Less => false,
        Ordering::Equal => value.sticky || kept & 1 == 1,
        Ordering::Greater => true,
    };
    let kept = kept + u128::from(up);
    match u64::try_from(kept) {
        Ok(kept) => (kept, exponent),
        // Only a carry out of 64 bits.
        Err(_) => ((kept >> 1) as u64, exponent + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(mantissa: u128, exponent: i64) -> Binary {
        Binary {
            mantissa,
            exponent,
            sticky: false,
        }
    }

    #[test]
    fn rounds_half_to_even() {
        for (mantissa, bits, expected) in [
            (0b1011u128, 4, (0b1011, 0)),
            (0b1011, 3, (0b110, 1)),
            (0b1001, 3, (0b100, 1)),
            (0b1111, 3, (0b1000, 1)),
            (0b10010, 3, (0b100, 2)),
            (0b10110, 3, (0b110, 2)),
            (u128::MAX, 64, (1 << 63, 65)),
        ] {
            assert_eq!(round(exact(mantissa, 0), bits, -1000), expected);
        }
        let just_over = Binary {
            sticky: true,
            ..exact(0b1001 << 100, 0)
        };
        assert_eq!(round(just_over, 3, -1000), (0b101, 101));
    }

    #[test]
    fn rounds_to_the_smallest_unit() {
        assert_eq!(round(exact(3, -11), 64, -10), (2, -10));
        assert_eq!(round(exact(1, -11), 64, -10), (0, -10));
        assert_eq!(round(exact(1, -500), 64, -10), (0, -10));
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
