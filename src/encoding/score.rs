//! Scores of sorted sets as eight bytes whose order is the order of the numbers.

/// The sortable form: the sign bit flipped for positive numbers, all bits for
/// negative ones. −0 is stored as 0, so that equal scores have equal bytes.
pub fn encode(score: f64) -> [u8; 8] {
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    let sortable = if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    };
    sortable.to_be_bytes()
}

/// The inverse of [`encode`].
pub fn decode(bytes: [u8; 8]) -> f64 {
    let sortable = u64::from_be_bytes(bytes);
    f64::from_bits(if sortable >> 63 == 1 {
        sortable & !(1 << 63)
    } else {
        !sortable
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_is_numeric_order() {
        let ordered = [
            f64::NEG_INFINITY,
            -1e300,
            -2.0,
            -1.0,
            -f64::MIN_POSITIVE,
            0.0,
            5e-324,
            0.5,
            1.0,
            1e300,
            f64::INFINITY,
        ];
        for pair in ordered.windows(2) {
            assert!(encode(pair[0]) < encode(pair[1]), "{pair:?}");
        }
        for score in ordered {
            assert_eq!(decode(encode(score)), score);
        }
        assert_eq!(encode(-0.0), encode(0.0));
    }
}
