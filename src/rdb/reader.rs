//! The primitives of the format: lengths, strings, doubles.
//!
//! ```text
//! length  00nnnnnn | 01nnnnnn n | 80 n(4, big-endian) | 81 n(8, big-endian)
//! string  length, bytes
//!         C0 int8 | C1 int16 | C2 int32 (little-endian): the number as text
//!         C3 length(packed) length(bytes) packed: LZF
//! ```

use super::input::Input;
use super::{Error, Result};
use crate::base::time::UnixMs;
use crate::base::{lzf, num};

/// A length, or one of the special string encodings.
enum Length {
    Plain(u64),
    /// A special encoding of a string.
    Special(u8),
}

/// Reads primitives from an input.
#[derive(Debug)]
pub struct Reader<I> {
    /// Where the bytes come from.
    pub input: I,
    /// Longest string, after decompression.
    max_string: u64,
    packed: Vec<u8>,
}

impl<I: Input> Reader<I> {
    /// A reader for strings of up to `max_string` bytes.
    pub fn new(input: I, max_string: u64) -> Reader<I> {
        Reader {
            input,
            max_string,
            packed: Vec::new(),
        }
    }

    fn any_length(&mut self) -> Result<Length> {
        let first = self.input.byte()?;
        let low = u64::from(first & 0x3F);
        Ok(match first >> 6 {
            0 => Length::Plain(low),
            1 => Length::Plain(low << 8 | u64::from(self.input.byte()?)),
            2 if first == 0x80 => Length::Plain(u32::from_be_bytes(self.input.array()?).into()),
            2 if first == 0x81 => Length::Plain(u64::from_be_bytes(self.input.array()?)),
            3 => Length::Special(first & 0x3F),
            _ => return Err(Error::Corrupt("a length of unknown form")),
        })
    }

    /// A length or count.
    pub fn length(&mut self) -> Result<u64> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(Error::Corrupt("a string where a length should be")),
        }
    }

    /// Reads a string; replaces the contents of `out`.
    pub fn string(&mut self, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let number = match self.any_length()? {
            Length::Plain(length) => {
                self.check(length)?;
                return self.input.append(length, out);
            }
            Length::Special(0) => i64::from(i8::from_le_bytes(self.input.array()?)),
            Length::Special(1) => i16::from_le_bytes(self.input.array()?).into(),
            Length::Special(2) => i32::from_le_bytes(self.input.array()?).into(),
            Length::Special(3) => return self.compressed(out),
            Length::Special(_) => return Err(Error::Corrupt("a string of unknown form")),
        };
        num::write_i64(out, number);
        Ok(())
    }

    fn compressed(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let (packed_len, len) = (self.length()?, self.length()?);
        self.check(len)?;
        self.check(packed_len)?;
        self.packed.clear();
        self.input.append(packed_len, &mut self.packed)?;
        if !lzf::is_possible(self.packed.len(), len) {
            return Err(Error::Corrupt("LZF"));
        }
        self.input.will_hold(len)?;
        let len = usize::try_from(len).map_err(|_| Error::TooLong(len))?;
        *out = lzf::decompress(&self.packed, len).map_err(|_| Error::Corrupt("LZF"))?;
        Ok(())
    }

    fn check(&self, length: u64) -> Result<()> {
        match length <= self.max_string {
            true => Ok(()),
            false => Err(Error::TooLong(length)),
        }
    }

    /// A double as text, as in sorted sets up to Redis 3.2.
    pub(super) fn text_double(&mut self) -> Result<f64> {
        match self.input.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Err(NAN),
            len => {
                let mut buffer = [0; 252];
                let text = buffer.get_mut(..usize::from(len)).unwrap_or_default();
                self.input.fill(text)?;
                parse_score(text)
            }
        }
    }

    /// A double in binary.
    pub fn double(&mut self) -> Result<f64> {
        finish_score(f64::from_le_bytes(self.input.array()?))
    }

    /// A time in ms.
    pub(super) fn time_ms(&mut self) -> Result<UnixMs> {
        Ok(UnixMs(u64::from_le_bytes(self.input.array()?)))
    }

    /// A time of a stream's consumer or pending entry in ms; −1 if there is none.
    pub(super) fn signed_ms(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.input.array()?))
    }
}

const NAN: Error = Error::Corrupt("a score that is no number");

/// Parses a score.
pub(super) fn parse_score(text: &[u8]) -> Result<f64> {
    // Like C's strtod, clamps numbers outside the range of doubles.
    finish_score(num::parse_f64_clamped(text).ok_or(NAN)?)
}

fn finish_score(score: f64) -> Result<f64> {
    match score.is_nan() {
        true => Err(NAN),
        // −0 + 0 is 0.
        false => Ok(score + 0.0),
    }
}

/// The time of a field or member is none.
pub(super) const ELEMENT_TIME: Error = Error::Corrupt("the time of an element");

/// Redis' maximum of an element's expiry, in ms.
const ELEMENT_TIME_MAX: UnixMs = UnixMs((1 << 48) - 1);

/// The time of a field or member, if Redis allows it.
pub(super) fn checked_time(expire_ms: UnixMs) -> Result<UnixMs> {
    match expire_ms <= ELEMENT_TIME_MAX {
        true => Ok(expire_ms),
        false => Err(ELEMENT_TIME),
    }
}
