//! Sorted ints: sets of unsigned integers of 64 bits, in their order.
//!
//! ```text
//! packed   the integers (8 each), ascending
//! ROWS     id (8) ‖ count (8) ‖ first (8) ‖ last (8)
//! rows     1D ‖ id (8) ‖ integer (8)   → (empty)
//! ```
//!
//! `first` and `last` are the lowest and the highest integer, so that scans skip the tombstones
//! that removals leave at the ends.

use super::reader::Reader;
use super::{CollectionId, Corrupt};

/// The body of the meta row of sorted ints in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedIntBody {
    /// The id under which the rows stand.
    pub id: CollectionId,
    /// The number of integers.
    pub count: u64,
    /// The lowest integer.
    pub first: u64,
    /// The highest one.
    pub last: u64,
}

impl SortedIntBody {
    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<SortedIntBody, Corrupt> {
        let mut r = Reader::new(body, "sorted ints");
        let (id, count) = (CollectionId(r.u64()?), r.u64()?);
        let (first, last) = (r.u64()?, r.u64()?);
        match r.is_empty() && first <= last && count > 0 {
            true => Ok(SortedIntBody {
                id,
                count,
                first,
                last,
            }),
            false => Err(Corrupt("sorted ints")),
        }
    }

    /// The body's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(32);
        body.extend_from_slice(&self.id.0.to_be_bytes());
        body.extend_from_slice(&self.count.to_be_bytes());
        body.extend_from_slice(&self.first.to_be_bytes());
        body.extend_from_slice(&self.last.to_be_bytes());
        body
    }
}

/// The integers of a packed body.
pub fn unpack(body: &[u8]) -> Result<Vec<u64>, Corrupt> {
    let (numbers, rest) = body.as_chunks::<8>();
    let numbers: Vec<u64> = numbers.iter().copied().map(u64::from_be_bytes).collect();
    match rest.is_empty() && numbers.is_sorted_by(|a, b| a < b) {
        true => Ok(numbers),
        false => Err(Corrupt("packed sorted ints")),
    }
}

/// A packed body of ascending integers.
pub fn pack(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_these_bytes() {
        let body = SortedIntBody {
            id: CollectionId(0x0102),
            count: 3,
            first: 5,
            last: u64::MAX,
        };
        let bytes = body.encode();
        assert_eq!(
            bytes,
            *b"\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x05\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
        );
        assert_eq!(SortedIntBody::decode(&bytes), Ok(body));
        assert!(SortedIntBody::decode(&bytes[..31]).is_err());
        assert!(SortedIntBody::decode(&[&bytes[..], b"\0"].concat()).is_err());
        let turned = SortedIntBody {
            first: 6,
            last: 5,
            ..body
        };
        assert!(SortedIntBody::decode(&turned.encode()).is_err());
        assert_eq!(pack(&[1, 258]), *b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x01\x02");
        assert_eq!(unpack(&pack(&[1, 258])), Ok(vec![1, 258]));
        for wrong in [&[1u64, 1][..], &[2, 1]] {
            assert!(unpack(&pack(wrong)).is_err());
        }
        assert!(unpack(b"\0").is_err());
    }
}
