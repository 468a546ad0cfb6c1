//! References to the value log, where the bytes of long values stand.
//!
//! ```text
//! reference  segment (8) ‖ offset (8) ‖ lengths (8)
//! lengths    bytes of the value, below 2^63; or 1 (1 bit) ‖ bytes as packed (31 bits)
//!            ‖ bytes of the value (32 bits)
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
    /// Bytes that they take in the segment if they are packed, with their checksums; 0 if they are
    /// not.
    pub packed: u32,
}

/// No file has so many bytes, and no database so many files: such numbers can be added up.
const MOST: u64 = 1 << 60;

/// The bit of lengths that says that the value is packed.
const PACKED: u64 = 1 << 63;

impl ValueRef {
    /// Bytes of an encoded reference.
    pub const LEN: usize = 24;
    /// The longest value that can be packed, in bytes. Packed it may be longer than that.
    pub const PACKED_MAX: u64 = 1 << 30;

    /// The lengths as a word.
    pub fn lengths(&self) -> u64 {
        match self.packed {
            0 => self.len,
            packed => PACKED | u64::from(packed) << 32 | self.len,
        }
    }

    /// The reference with these [`ValueRef::lengths`].
    ///
    /// # Errors
    /// It is packed, and has no bytes; or no file has so many.
    pub fn with(segment: u64, offset: u64, lengths: u64) -> Result<ValueRef, Corrupt> {
        let (len, packed) = match lengths & PACKED {
            0 => (lengths, 0),
            _ => (
                lengths & u64::from(u32::MAX),
                (lengths >> 32) as u32 & (u32::MAX >> 1),
            ),
        };
        let is_empty = lengths & PACKED != 0 && packed == 0;
        if is_empty || segment.max(offset).max(len) > MOST {
            return Err(Corrupt("value reference"));
        }
        Ok(ValueRef {
            segment,
            offset,
            len,
            packed,
        })
    }

    /// The row's bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        let parts = [self.segment, self.offset, self.lengths()];
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
        ValueRef::with(r.u64()?, r.u64()?, r.u64()?)
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
            packed: 0,
        };
        let row = at.encode();
        assert_eq!(
            row,
            *b"\0\0\0\0\0\0\0\x03\0\0\0\0\0\x01\0\x02\0\0\0\0\0\0\0\x09"
        );
        assert_eq!(ValueRef::decode(&row), Ok(at));
        assert!(ValueRef::decode(&row[1..]).is_err());
        assert!(ValueRef::decode(&[&row[..], b"x"].concat()).is_err());
        let at = ValueRef { packed: 5, ..at };
        let row = at.encode();
        assert_eq!(row[16..], *b"\x80\0\0\x05\0\0\0\x09");
        assert_eq!(ValueRef::decode(&row), Ok(at));
        let row = [&row[..16], b"\x80\0\0\0\0\0\0\x09"].concat();
        assert!(ValueRef::decode(&row).is_err());
        for word in 0..3 {
            let mut row = at.encode();
            row[word * 8] = 0x7F;
            assert!(ValueRef::decode(&row).is_err(), "{word}");
        }
    }
}
