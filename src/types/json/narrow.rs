//! Floats of fewer bits, as RedisJSON keeps arrays of numbers if it is told to, and as its RDB
//! form has them. Here a number has 64 bits always: it is rounded like one of fewer bits, and is
//! then the shortest decimal that the type cannot tell from it.

use std::fmt;

/// A type of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatType {
    /// 16 bits, 8 of them of the exponent.
    Bf16,
    /// 16 bits, 5 of them of the exponent.
    F16,
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

impl fmt::Display for FloatType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            FloatType::Bf16 => "BF16",
            FloatType::F16 => "F16",
            FloatType::F32 => "F32",
            FloatType::F64 => "F64",
        })
    }
}

impl FloatType {
    /// The type with a name of JSON.SET.
    pub fn named(name: &[u8]) -> Option<FloatType> {
        let types = [
            ("BF16", FloatType::Bf16),
            ("FP16", FloatType::F16),
            ("FP32", FloatType::F32),
            ("FP64", FloatType::F64),
        ];
        let mut types = types.into_iter();
        let found = types.find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|(_, of)| of)
    }

    /// The value of the type that is nearest to a number; `None` if the number is too large.
    pub fn round(self, number: f64) -> Option<f64> {
        let single = f64::from(number as f32);
        let rounded = match self {
            FloatType::F64 => number,
            FloatType::F32 => single,
            FloatType::F16 => nearest(single, 10, -14..=15),
            FloatType::Bf16 => nearest(single, 7, -126..=127),
        };
        rounded.is_finite().then_some(rounded)
    }

    /// The shortest decimal that the type cannot tell from one of its values.
    pub(super) fn shortest(self, number: f64) -> f64 {
        match self {
            FloatType::F64 => number,
            FloatType::F32 => {
                let text = (number as f32).to_string();
                text.parse().unwrap_or(number)
            }
            FloatType::F16 | FloatType::Bf16 if number.fract() == 0.0 => number,
            FloatType::F16 | FloatType::Bf16 => (0..5)
                .filter_map(|digits| format!("{number:.digits$e}").parse().ok())
                .find(|short| self.round(*short) == Some(number))
                .unwrap_or(number),
        }
    }
}

/// The nearest number with so many bits behind the first one and an exponent in a range; of two
/// that are as near the even one. Infinite if there is none.
fn nearest(number: f64, bits: i32, exponents: std::ops::RangeInclusive<i32>) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let exponent = (number.to_bits() >> 52 & 0x7FF) as i32 - 1023;
    let unit = power_of_two(exponent.max(*exponents.start()) - bits);
    let rounded = (number / unit).round_ties_even() * unit;
    match rounded.abs() < power_of_two(exponents.end() + 1) {
        true => rounded,
        false => f64::INFINITY.copysign(number),
    }
}

/// 2 to the power of an exponent that a normal float has.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The float that 16 bits are.
pub(super) fn from_half(bits: u16, of: FloatType) -> f64 {
    if of == FloatType::Bf16 {
        return f64::from(f32::from_bits(u32::from(bits) << 16));
    }
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1F), f64::from(bits & 0x3FF));
    let magnitude = match exponent {
        0 => fraction * power_of_two(-24),
        0x1F if fraction == 0.0 => f64::INFINITY,
        0x1F => f64::NAN,
        _ => (fraction + 1024.0) * power_of_two(exponent - 25),
    };
    match bits >> 15 {
        0 => magnitude,
        _ => -magnitude,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_halves_are_their_own_nearest() {
        for of in [FloatType::F16, FloatType::Bf16] {
            for bits in 0..=u16::MAX {
                let number = from_half(bits, of);
                if number.is_finite() {
                    assert_eq!(of.round(number), Some(number), "{of} {bits:04x}");
                    let short = of.shortest(number);
                    assert_eq!(of.round(short), Some(number), "{of} {bits:04x} {short}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_rounded_and_short() {
        for (of, number, short) in [
            (FloatType::F16, 1.14159, 1.142),
            (FloatType::F16, 42.42, 42.4),
            (FloatType::F16, 12.345, 12.34),
            (FloatType::F16, 0.5678, 0.568),
            (FloatType::F16, 65504.0, 65504.0),
            (FloatType::F16, 1e-9, 0.0),
            (FloatType::Bf16, 0.1, 0.1),
            (FloatType::F32, 0.1, 0.1),
            (FloatType::F32, 1e30, 1e30),
            (FloatType::F64, 0.123_456_789, 0.123_456_789),
        ] {
            let rounded = of.round(number).map(|number| of.shortest(number));
            assert_eq!(rounded, Some(short), "{of} {number}");
            let negative = of.round(-number).map(|number| of.shortest(number));
            assert_eq!(negative, Some(-short), "{of} -{number}");
        }
        // Halfway between two values: the even one.
        assert_eq!(FloatType::F16.round(2049.0), Some(2048.0));
        assert_eq!(FloatType::F16.round(2051.0), Some(2052.0));
        assert_eq!(FloatType::F16.round(65519.0), Some(65504.0));
        for (of, number) in [
            (FloatType::F16, 65520.0),
            (FloatType::F16, 1e100),
            (FloatType::Bf16, 3.4e38),
            (FloatType::F32, 1e39),
        ] {
            assert_eq!(of.round(number), None, "{of} {number}");
        }
    }
}
