//! References to the value log, where the bytes of long values stand.
//!
//! ```text
//! reference  segment (8) ‖ offset (8) ‖ length (8)
//! ```
//!
//! A long string whose bytes are in the value log has a reference in the row of its
//! [base](super::keys::base).

use super::{Corrupt, reader::Reader};

/// Where bytes of the value log stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueRef {
    /// The number of the segment.
    pub segment: u64,
    /// Where the record begins in the segment's file.
    pub offset: u64,
    /// Bytes of the value.
    pub len: u64,
}

impl ValueRef {
    /// Bytes of an encoded reference.
    pub const LEN: usize = 24;

    /// The row's bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        let parts = [self.segment, self.offset, self.len];
        for (place, part) in row.chunks_exact_mut(8).zip(parts) {
            place.copy_from_slice(&part.to_be_bytes());
        }
        row
    }

    /// Reads a row.
    pub fn decode(row: &[u8]) -> Result<ValueRef, Corrupt> {
        let mut r = Reader::new(row, "value reference");
        let found = ValueRef::take(&mut r)?;
        match r.is_empty() {
            true => Ok(found),
            false => Err(Corrupt("value reference")),
        }
    }

    /// Reads one that others follow.
    pub fn take(r: &mut Reader<'_>) -> Result<ValueRef, Corrupt> {
        Ok(ValueRef {
            segment: r.u64()?,
            offset: r.u64()?,
            len: r.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let at = ValueRef {
            segment: 3,
            offset: 0x1_0002,
            len: 9,
        };
        let row = at.encode();
        assert_eq!(
            row,
            *b"\0\0\0\0\0\0\0\x03\0\0\0\0\0\x01\0\x02\0\0\0\0\0\0\0\x09"
        );
        assert_eq!(ValueRef::decode(&row), Ok(at));
        assert!(ValueRef::decode(&row[1..]).is_err());
        assert!(ValueRef::decode(&[&row[..], b"x"].concat()).is_err());
    }
}
