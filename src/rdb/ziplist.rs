//! Ziplists: the predecessor of listpacks, up to Redis 6.2.
//!
//! ```text
//! bytes (4) ‖ offset of the last element (4) ‖ elements (2; FFFF: not counted) ‖ element … ‖ FF
//!
//! element: length of the previous one (1; or FE and 4) ‖ body       little-endian
//!   body  00nnnnnn bytes | 01nnnnnn n bytes | 80 n(4, big-endian) bytes
//!         C0 (2) D0 (4) E0 (8) F0 (3) FE (1)    signed numbers
//!         F1 … FD                               0 … 12
//! ```

use super::{Error, Result};

const HEADER_LEN: usize = 10;
const UNCOUNTED: u16 = u16::MAX;
const END: u8 = 0xFF;
/// The first byte of a length of five bytes.
const LONG: u8 = 0xFE;

const LENGTH: Error = Error::Corrupt("a ziplist of another length");
const ELEMENT: Error = Error::Corrupt("an element of a ziplist");

/// Calls `each` with all elements; integers as text. Checks all lengths and counts.
/// Returns the number of elements.
pub fn for_each<E: From<Error>>(
    bytes: &[u8],
    mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let (header, mut rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(LENGTH)?;
    let [a, b, c, d, e, f, g, h, low, high] = *header;
    if u32::from_le_bytes([a, b, c, d]) as usize != bytes.len() {
        return Err(LENGTH.into());
    }
    let last_place = u32::from_le_bytes([e, f, g, h]) as usize;
    let announced = u16::from_le_bytes([low, high]);
    let (mut count, mut before, mut place) = (0u64, 0, HEADER_LEN);
    let mut text = itoa::Buffer::new();
    while rest.first() != Some(&END) {
        place = bytes.len() - rest.len();
        let (back, tail) = split_back(rest)?;
        if back != before {
            return Err(Error::Corrupt("a ziplist that cannot be walked back").into());
        }
        let (body, tail) = split_body(tail)?;
        match body {
            Body::Text(bytes) => each(bytes)?,
            Body::Number(number) => each(text.format(number).as_bytes())?,
        }
        before = rest.len() - tail.len();
        count += 1;
        rest = tail;
    }
    if rest.len() != 1 || last_place != place {
        return Err(LENGTH.into());
    }
    if announced != UNCOUNTED && u64::from(announced) != count {
        return Err(Error::Corrupt("a ziplist with another count").into());
    }
    Ok(count)
}

enum Body<'a> {
    Text(&'a [u8]),
    Number(i64),
}

/// The length of the previous element.
fn split_back(rest: &[u8]) -> Result<(usize, &[u8])> {
    match rest.split_first().ok_or(LENGTH)? {
        (&LONG, tail) => {
            let (len, tail) = tail.split_first_chunk::<4>().ok_or(ELEMENT)?;
            Ok((u32::from_le_bytes(*len) as usize, tail))
        }
        (&short, tail) => Ok((short.into(), tail)),
    }
}

fn split_body(rest: &[u8]) -> Result<(Body<'_>, &[u8])> {
    let (&first, tail) = rest.split_first().ok_or(ELEMENT)?;
    match first {
        0..=0x3F => text(tail, first.into()),
        0x40..=0x7F => {
            let (&low, tail) = tail.split_first().ok_or(ELEMENT)?;
            text(tail, usize::from(first & 0x3F) << 8 | usize::from(low))
        }
        0x80 => {
            let (len, tail) = tail.split_first_chunk::<4>().ok_or(ELEMENT)?;
            text(tail, u32::from_be_bytes(*len) as usize)
        }
        0xC0 => number::<2>(tail),
        0xD0 => number::<4>(tail),
        0xE0 => number::<8>(tail),
        0xF0 => number::<3>(tail),
        0xFE => number::<1>(tail),
        0xF1..=0xFD => Ok((Body::Number(i64::from(first & 0x0F) - 1), tail)),
        _ => Err(ELEMENT),
    }
}

fn text(rest: &[u8], len: usize) -> Result<(Body<'_>, &[u8])> {
    let (bytes, tail) = rest.split_at_checked(len).ok_or(ELEMENT)?;
    Ok((Body::Text(bytes), tail))
}

fn number<const N: usize>(rest: &[u8]) -> Result<(Body<'_>, &[u8])> {
    let (bytes, tail) = rest.split_first_chunk::<N>().ok_or(ELEMENT)?;
    Ok((Body::Number(super::intset::signed(bytes)), tail))
}
