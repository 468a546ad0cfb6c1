//! Parsing and printing of numbers, as clients write them and replies show them.
//!
//! Integers are strict: what is accepted is exactly what would be printed.
//! Floats follow C's `strtod`, as Redis does.

use super::float::{self, Magnitude, Scanned};
use rustc_apfloat::Float;
use rustc_apfloat::ieee::Double;

/// Reads a decimal `i64`. No spaces, plus sign, leading zeros or `-0`.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => match parse_u64(digits)? {
            0 => None,
            value => 0i64.checked_sub_unsigned(value),
        },
        digits => i64::try_from(parse_u64(digits)?).ok(),
    }
}

/// Reads a decimal `u64`. No spaces, signs or leading zeros.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [] => None,
        [b'0'] => Some(0),
        [b'0', ..] => None,
        digits if digits.len() < 20 => {
            let mut value = 0u64;
            for digit in digits {
                let digit = digit.wrapping_sub(b'0');
                if digit > 9 {
                    return None;
                }
                value = value * 10 + u64::from(digit);
            }
            Some(value)
        }
        digits if digits.len() == 20 => {
            let (last, head) = digits.split_last()?;
            let digit = last.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            parse_u64(head)?
                .checked_mul(10)?
                .checked_add(u64::from(digit))
        }
        _ => None,
    }
}

/// Parses a double that fills the whole text: decimal, hexadecimal or `inf`. Refused: NaN, spaces,
/// numbers too large for a double, and non-zero numbers too small for even a subnormal.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let (value, fits) = read_f64(text)?;
    fits.then_some(value)
}

/// Like [`parse_f64`], but numbers that are too large become infinite and those too small zero: for
/// bounds, where that is as good as the number itself.
pub fn parse_f64_clamped(text: &[u8]) -> Option<f64> {
    read_f64(text).map(|(value, _)| value)
}

/// Like [`parse_f64_clamped`], but decimal or `inf` alone: so newer versions of Redis read bounds
/// and weights.
pub fn parse_decimal_clamped(text: &[u8]) -> Option<f64> {
    let scanned = float::scan(text)?;
    if matches!(scanned.value, Magnitude::Binary(_)) {
        return None;
    }
    nearest_f64(scanned, text).map(|(value, _)| value)
}

/// The nearest double, and whether the number is in the range of doubles.
fn read_f64(text: &[u8]) -> Option<(f64, bool)> {
    nearest_f64(float::scan(text)?, text)
}

fn nearest_f64(scanned: Scanned<'_>, text: &[u8]) -> Option<(f64, bool)> {
    let Scanned { negative, value } = scanned;
    let (magnitude, fits) = match value {
        Magnitude::Infinite => (f64::INFINITY, true),
        Magnitude::Decimal {
            whole, fraction, ..
        } => {
            let unsigned = text.strip_prefix(b"-").unwrap_or(text);
            let parsed: f64 = std::str::from_utf8(unsigned).ok()?.parse().ok()?;
            let is_zero = whole.iter().chain(fraction).all(|digit| *digit == b'0');
            let fits = parsed.is_finite() && (parsed != 0.0 || is_zero);
            (parsed, fits)
        }
        Magnitude::Binary(binary) => {
            let (value, fits) = binary.nearest::<Double>()?;
            (f64::from_bits(value.to_bits() as u64), fits)
        }
    };
    Some((if negative { -magnitude } else { magnitude }, fits))
}

/// Appends a decimal integer.
#[inline]
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a double as Redis 7.2 and later print one: whole numbers up to 2^62
/// in full, else the shortest digits that read back the same, with an exponent
/// only where the plain form would be long. `inf`, `-inf`, `nan`, `-0`.
pub fn format_f64(value: f64, out: &mut Vec<u8>) {
    /// Whole numbers up to here are printed as integers.
    const WHOLE_MAX: f64 = (1u64 << 62) as f64;
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() {
            b"-0"
        } else {
            b"0"
        });
    } else if value.abs() <= WHOLE_MAX && value.trunc() == value {
        write_i64(out, value as i64);
    } else {
        if value < 0.0 {
            out.push(b'-');
        }
        let mut buffer = ryu::Buffer::new();
        let (digits, exponent) = Digits::of(buffer.format_finite(value.abs()));
        layout(digits.as_slice(), exponent, value < 0.0, out);
    }
}

/// A finite double with up to six digits, as C's `%g` prints it.
pub fn six_digits(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let cut = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match exponent {
        -4..6 => cut(&format!("{value:.*}", (5 - exponent) as usize)),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", cut(digits), exponent.abs())
        }
    }
}

/// The significant digits of a double: at most 17.
struct Digits {
    bytes: [u8; 24],
    len: usize,
}

impl Digits {
    /// Takes the digits out of a positive decimal float's text, without zeros
    /// at either end, and the power of ten of the last one.
    fn of(text: &str) -> (Self, i32) {
        let (number, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut exponent: i32 = exponent.parse().unwrap_or(0);
        let mut digits = Digits {
            bytes: [0; 24],
            len: 0,
        };
        let mut after_point = false;
        for byte in number.bytes() {
            if byte == b'.' {
                after_point = true;
                continue;
            }
            exponent -= i32::from(after_point);
            if (digits.len > 0 || byte != b'0')
                && let Some(slot) = digits.bytes.get_mut(digits.len)
            {
                *slot = byte;
                digits.len += 1;
            }
        }
        while let Some((b'0', head)) = digits.as_slice().split_last() {
            digits.len = head.len();
            exponent += 1;
        }
        (digits, exponent)
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Lays out `digits × 10^power`.
fn layout(digits: &[u8], power: i32, negative: bool, out: &mut Vec<u8>) {
    let len = digits.len() as i32;
    let lead = power + len - 1;
    if power >= 0 && lead < len + 7 {
        out.extend_from_slice(digits);
        out.resize(out.len() + power as usize, b'0');
    } else if power < 0 && (power > -7 || lead.abs() < 4) {
        let point = len + power;
        if point <= 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + point.unsigned_abs() as usize, b'0');
            out.extend_from_slice(digits);
        } else {
            let (whole, fraction) = digits.split_at(point as usize);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        let shown = digits.len().min(if negative { 17 } else { 18 });
        let (first, rest) = digits.split_at(1);
        out.extend_from_slice(first);
        if shown > 1 {
            out.push(b'.');
            out.extend_from_slice(&rest[..shown - 1]);
        }
        out.extend_from_slice(if lead < 0 { b"e-" } else { b"e+" });
        write_i64(out, i64::from(lead.abs()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_may_lie_beyond_the_doubles() {
        for (text, expected) in [
            ("1e400", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
            ("1e-400", 0.0),
            ("0x1p5000", f64::INFINITY),
            ("2.5", 2.5),
        ] {
            assert_eq!(parse_f64_clamped(text.as_bytes()), Some(expected), "{text}");
        }
        assert_eq!(parse_f64_clamped(b"1e400x"), None);
        assert_eq!(parse_decimal_clamped(b"-1e400"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_decimal_clamped(b"+Inf"), Some(f64::INFINITY));
        for text in ["0x10", " 7", "7 ", "nan", "", "+"] {
            assert_eq!(parse_decimal_clamped(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_f64(b"1e400"), None);
    }

    #[test]
    fn integers_are_strict() {
        for (text, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("100000000000000000000", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("-01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
            ("1\0", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"-1"), None);
    }

    #[test]
    fn doubles_follow_strtod() {
        for (text, expected) in [
            ("1.5", 1.5),
            ("+1.5", 1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("-1e3", -1000.0),
            ("1E+3", 1000.0),
            ("0x10", 16.0),
            ("0X1.8p3", 12.0),
            ("-0x.8P-1", -0.25),
            ("0x1p-1074", 5e-324),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000081p0", 1.0 + f64::EPSILON),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("+INF", f64::INFINITY),
            ("3e-324", 5e-324),
            ("1.7976931348623157e308", f64::MAX),
            ("0e99999", 0.0),
            ("0x0p99999", 0.0),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), Some(expected), "{text:?}");
        }
        for text in [
            "1e309",
            "-1e309",
            "1e-400",
            "2e-324",
            "0x1p1024",
            "0x1p-1076",
            "nan",
            "-nan",
            "nan(1)",
            " 1",
            "1 ",
            "1\0",
            "",
            "0x",
            "1e",
            "e1",
            "abc",
            "\u{ff11}",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
        assert!(parse_f64(b"-0").is_some_and(|zero| zero.is_sign_negative()));
    }

    fn shown(value: f64) -> String {
        let mut out = Vec::new();
        format_f64(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_print_as_redis_prints_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (2.5e-5, "0.000025"),
            (1e15, "1000000000000000"),
            (4611686018427387904.0, "4611686018427387904"),
            (-4611686018427387904.0, "-4611686018427387904"),
            (9e18, "9e+18"),
            (1e19, "1e+19"),
            (1.25e20, "1.25e+20"),
            (1e21, "1e+21"),
            (1.2345678901234566e25, "1.2345678901234566e+25"),
            (12345678901234567000.0, "12345678901234567000"),
            (0.001, "0.001"),
            (0.000001, "0.000001"),
            (0.0000001, "1e-7"),
            (1.5e-7, "1.5e-7"),
            (0.00012345678, "1.2345678e-4"),
            (0.0012345678, "0.0012345678"),
            (1e-300, "1e-300"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (-f64::MAX, "-1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(shown(value), expected);
        }
    }

    proptest! {
        #[test]
        fn integers_round_trip(value: i64) {
            let mut out = Vec::new();
            write_i64(&mut out, value);
            prop_assert_eq!(parse_i64(&out), Some(value));
        }

        #[test]
        fn doubles_round_trip(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(parse_f64(shown(value).as_bytes()).map(f64::to_bits), Some(bits));
        }

        #[test]
        fn hexadecimal_round_trips(mantissa in 0u64..1 << 53, exponent in -1074i64..971) {
            let expected = mantissa as f64 * 2f64.powi((exponent / 2) as i32)
                * 2f64.powi((exponent - exponent / 2) as i32);
            let text = format!("0x{mantissa:x}p{exponent}");
            prop_assert_eq!(parse_f64(text.as_bytes()), Some(expected));
        }

        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>) {
            parse_i64(&text);
            parse_f64(&text);
        }

        #[test]
        fn number_like_text_is_read_or_refused(text in "[-+0-9.exXpPinfa]{0,30}") {
            parse_i64(text.as_bytes());
            parse_f64(text.as_bytes());
        }
    }
}
