//! Listpacks: elements packed into one string, since Redis 7.0.
//!
//! ```text
//! bytes (4) ‖ elements (2; FFFF: not counted) ‖ element … ‖ FF      little-endian
//!
//! element: body ‖ length of the body, for walks from the end
//!   body  0nnnnnnn                 a number
//!         110nnnnn n               a signed number of 13 bits
//!         F1 (2) F2 (3) F3 (4) F4 (8)   signed numbers
//!         10nnnnnn bytes           a string
//!         1110nnnn n bytes         a string
//!         F0 length (4) bytes      a string
//! ```

use super::{Error, Result};
use crate::base::num;

/// Bytes before the elements.
const HEADER_LEN: usize = 6;
/// The value of the count if the elements are not counted.
const UNCOUNTED: u16 = u16::MAX;
const END: u8 = 0xFF;

const LENGTH: Error = Error::Corrupt("a listpack of another length");
const ELEMENT: Error = Error::Corrupt("an element of a listpack");

/// Calls `each` with all elements; integers as text. Checks all lengths and counts.
/// Returns the number of elements.
pub fn for_each<E: From<Error>>(
    bytes: &[u8],
    mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let (announced, mut rest) = open(bytes)?;
    let mut count = 0u64;
    let mut text = itoa::Buffer::new();
    while rest.first() != Some(&END) {
        let (body, tail) = split_element(rest)?;
        match body {
            Body::Text(bytes) => each(bytes)?,
            Body::Number(number) => each(text.format(number).as_bytes())?,
        }
        count += 1;
        rest = tail;
    }
    if rest.len() != 1 {
        return Err(LENGTH.into());
    }
    if announced != UNCOUNTED && u64::from(announced) != count {
        return Err(Error::Corrupt("a listpack with another count").into());
    }
    Ok(count)
}

enum Body<'a> {
    Text(&'a [u8]),
    Number(i64),
}

fn open(bytes: &[u8]) -> Result<(u16, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(LENGTH)?;
    let [a, b, c, d, low, high] = *header;
    if u32::from_le_bytes([a, b, c, d]) as usize != bytes.len() {
        return Err(LENGTH);
    }
    Ok((u16::from_le_bytes([low, high]), rest))
}

/// The next element, and the rest.
fn split_element(rest: &[u8]) -> Result<(Body<'_>, &[u8])> {
    let before = rest.len();
    let (&first, tail) = rest.split_first().ok_or(LENGTH)?;
    let (body, tail) = match first {
        0..=0x7F => (Body::Number(first.into()), tail),
        0x80..=0xBF => text(tail, usize::from(first & 0x3F))?,
        0xC0..=0xDF => {
            let (&low, tail) = tail.split_first().ok_or(ELEMENT)?;
            let value = i64::from(first & 0x1F) << 8 | i64::from(low);
            let value = if value >= 1 << 12 {
                value - (1 << 13)
            } else {
                value
            };
            (Body::Number(value), tail)
        }
        0xE0..=0xEF => {
            let (&low, tail) = tail.split_first().ok_or(ELEMENT)?;
            text(tail, usize::from(first & 0x0F) << 8 | usize::from(low))?
        }
        0xF0 => {
            let (len, tail) = tail.split_first_chunk::<4>().ok_or(ELEMENT)?;
            text(tail, u32::from_le_bytes(*len) as usize)?
        }
        0xF1 => number::<2>(tail)?,
        0xF2 => number::<3>(tail)?,
        0xF3 => number::<4>(tail)?,
        0xF4 => number::<8>(tail)?,
        _ => return Err(ELEMENT),
    };
    let len = before - tail.len();
    let mut back = [0; 5];
    let back = back_length(len, &mut back);
    match tail.strip_prefix(back) {
        Some(tail) => Ok((body, tail)),
        None => Err(Error::Corrupt("a listpack that cannot be walked back")),
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

/// The encoded length after an element's body.
fn back_length(len: usize, buffer: &mut [u8; 5]) -> &[u8] {
    // The limits are one less than would fit, as in Redis.
    let bytes = match len {
        0..=0x7F => 1,
        0x80..=0x3FFE => 2,
        0x3FFF..=0x1F_FFFE => 3,
        0x1F_FFFF..=0xFFF_FFFE => 4,
        _ => 5,
    };
    let mut left = len;
    let used = buffer.get_mut(..bytes).unwrap_or_default();
    for (index, byte) in used.iter_mut().enumerate().rev() {
        let more = if index == 0 { 0 } else { 0x80 };
        *byte = (left & 0x7F) as u8 | more;
        left >>= 7;
    }
    used
}

/// A listpack that is being built.
#[derive(Debug)]
pub struct Builder {
    bytes: Vec<u8>,
    count: u64,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            bytes: vec![0; HEADER_LEN],
            count: 0,
        }
    }
}

impl Builder {
    /// Appends an element, encoded as an integer if its text is one.
    pub fn push(&mut self, element: &[u8]) {
        let start = self.bytes.len();
        match num::parse_i64(element) {
            Some(number) => self.put_number(number),
            None => self.put_text(element),
        }
        let len = self.bytes.len() - start;
        self.bytes.extend_from_slice(back_length(len, &mut [0; 5]));
        self.count += 1;
    }

    fn put_number(&mut self, number: i64) {
        let out = &mut self.bytes;
        let bytes = number.to_le_bytes();
        let (code, len) = match number {
            0..=0x7F => return out.push(number as u8),
            -0x1000..=0x0FFF => {
                let [low, high, ..] = bytes;
                return out.extend_from_slice(&[0xC0 | (high & 0x1F), low]);
            }
            -0x8000..=0x7FFF => (0xF1, 2),
            -0x80_0000..=0x7F_FFFF => (0xF2, 3),
            -0x8000_0000..=0x7FFF_FFFF => (0xF3, 4),
            _ => (0xF4, 8),
        };
        out.push(code);
        out.extend(bytes.iter().take(len));
    }

    fn put_text(&mut self, text: &[u8]) {
        let out = &mut self.bytes;
        match text.len() {
            len @ 0..=0x3F => out.push(0x80 | len as u8),
            len @ 0x40..=0xFFF => out.extend_from_slice(&[0xE0 | (len >> 8) as u8, len as u8]),
            len => {
                out.push(0xF0);
                out.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        out.extend_from_slice(text);
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The current length in bytes.
    #[allow(clippy::len_without_is_empty)] // it counts bytes, not elements
    pub fn len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Returns the listpack, and empties the builder.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::replace(&mut self.bytes, vec![0; HEADER_LEN]);
        bytes.push(END);
        let len = (bytes.len() as u32).to_le_bytes();
        let count = std::mem::take(&mut self.count);
        let count = u16::try_from(count).unwrap_or(UNCOUNTED).to_le_bytes();
        for (place, byte) in bytes.iter_mut().zip(len.into_iter().chain(count)) {
            *place = byte;
        }
        bytes
    }
}
