//! Intsets: ascending integers, all as wide as the widest needs.
//!
//! ```text
//! bytes per integer (4: 2, 4 or 8) ‖ count (4) ‖ integers …      little-endian
//! ```

use super::{Error, Result};

const HEADER_LEN: usize = 8;

const CORRUPT: Error = Error::Corrupt("an intset");

/// Calls `each` with all integers as text. Returns their number.
pub fn for_each<E: From<Error>>(
    bytes: &[u8],
    mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(CORRUPT)?;
    let [a, b, c, d, e, f, g, h] = *header;
    let width = u32::from_le_bytes([a, b, c, d]) as usize;
    let count = u64::from(u32::from_le_bytes([e, f, g, h]));
    if !matches!(width, 2 | 4 | 8) || rest.len() as u64 != count * width as u64 {
        return Err(CORRUPT.into());
    }
    let mut last = None;
    let mut text = itoa::Buffer::new();
    for bytes in rest.chunks_exact(width) {
        let number = signed(bytes);
        if last.is_some_and(|last| last >= number) {
            return Err(CORRUPT.into());
        }
        last = Some(number);
        each(text.format(number).as_bytes())?;
    }
    Ok(count)
}

/// A little-endian signed number of up to eight bytes.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|high| *high >= 0x80);
    let mut wide = if negative { [0xFF; 8] } else { [0; 8] };
    for (place, byte) in wide.iter_mut().zip(bytes) {
        *place = *byte;
    }
    i64::from_le_bytes(wide)
}

/// The intset of different, ascending integers.
pub fn build(numbers: &[i64]) -> Result<Vec<u8>> {
    let count = u32::try_from(numbers.len()).map_err(|_| CORRUPT)?;
    let fits = |bits: u32| {
        let bound = 1i64 << (bits - 1);
        let ends = [numbers.first(), numbers.last()];
        ends.iter()
            .flatten()
            .all(|number| (-bound..bound).contains(*number))
    };
    let width: u32 = match () {
        () if fits(16) => 2,
        () if fits(32) => 4,
        () => 8,
    };
    let mut bytes = Vec::with_capacity(HEADER_LEN + numbers.len() * width as usize);
    bytes.extend_from_slice(&width.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    for number in numbers {
        bytes.extend(number.to_le_bytes().iter().take(width as usize));
    }
    Ok(bytes)
}
