//! Numbers in the format of C's `%.Ng`.

/// Appends a number with at most `precision` significant digits, in the shorter of
/// decimal and exponential form, without trailing zeros.
pub fn write_g(out: &mut Vec<u8>, value: f64, precision: usize) {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        let name = if value.is_nan() { "nan" } else { "inf" };
        out.extend_from_slice(sign.as_bytes());
        out.extend_from_slice(name.as_bytes());
        return;
    }
    let precision = precision.max(1);
    let text = format!("{value:.*e}", precision - 1);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        out.extend_from_slice(without_zeros(digits).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.unsigned_abs()).as_bytes());
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        let text = format!("{value:.decimals$}");
        out.extend_from_slice(without_zeros(&text).as_bytes());
    }
}

fn without_zeros(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_c_prints_them() {
        for (value, precision, expected) in [
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e20, 17, "1e+20"),
            (1e15, 14, "1e+15"),
            (123456.0, 3, "1.23e+05"),
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1.1e-7, 17, "1.1000000000000001e-07"),
            (9.5, 1, "1e+01"),
            (100.0, 14, "100"),
            (f64::INFINITY, 14, "inf"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ] {
            let mut out = Vec::new();
            write_g(&mut out, value, precision);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
