//! The form of documents in RDB files of RedisJSON with version 4 of its encoding: CBOR (RFC 8949)
//! without lengths that are open, and arrays of numbers as bytes (RFC 8746). It is read alone;
//! what is written is version 3, which every RedisJSON reads.

use super::narrow::{FloatType, from_half};
use super::value::{MAX_DEPTH, PARSED_BYTES, PARSED_KEY_BYTES, Value};
use crate::encoding::Corrupt;
use crate::types::OpResult;

const BAD: Corrupt = Corrupt("a JSON document");

/// So many bytes of values are announced at once.
const HELD_AT_ONCE: usize = 64 << 10;

/// So many bytes are held at most for each byte of a document: a value takes a byte of it, and so does
/// a key.
pub const HELD_PER_BYTE: usize = PARSED_BYTES;
const _: () = assert!(PARSED_KEY_BYTES <= PARSED_BYTES && size_of::<Value>() <= PARSED_BYTES);

/// Called before so many bytes are held.
type Hold<'h> = &'h mut dyn FnMut(u64) -> OpResult<()>;

/// Reads a document.
///
/// # Errors
/// It is corrupt, nested too deep, or there is no memory for it.
pub fn decode(bytes: &[u8], hold: Hold<'_>) -> OpResult<Value> {
    let mut reader = Reader {
        rest: bytes,
        hold,
        unheld: 0,
    };
    let value = reader.value(0)?;
    match reader.rest.is_empty() {
        true => Ok(value),
        false => Err(BAD.into()),
    }
}

struct Reader<'r> {
    rest: &'r [u8],
    hold: Hold<'r>,
    unheld: usize,
}

/// Types of data items.
mod major {
    pub const UNSIGNED: u8 = 0;
    pub const NEGATIVE: u8 = 1;
    pub const BYTES: u8 = 2;
    pub const TEXT: u8 = 3;
    pub const ARRAY: u8 = 4;
    pub const MAP: u8 = 5;
    pub const TAG: u8 = 6;
}

/// The tag of arrays of floats of 16 bits with a long exponent, which no RFC has.
const BF16_ARRAY: u64 = 0x10000;

impl<'r> Reader<'r> {
    fn take(&mut self, len: u64) -> Result<&'r [u8], Corrupt> {
        let len = usize::try_from(len).map_err(|_| BAD)?;
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(BAD)?;
        self.rest = rest;
        Ok(taken)
    }

    fn big_endian<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        self.take(N as u64)?.try_into().map_err(|_| BAD)
    }

    /// The type of the next item, the rest of its first byte, and its number.
    fn head(&mut self) -> Result<(u8, u8, u64), Corrupt> {
        let [first] = self.big_endian()?;
        let (major, short) = (first >> 5, first & 0x1F);
        let number = match short {
            0..24 => u64::from(short),
            24 => u64::from(u8::from_be_bytes(self.big_endian()?)),
            25 => u64::from(u16::from_be_bytes(self.big_endian()?)),
            26 => u64::from(u32::from_be_bytes(self.big_endian()?)),
            27 => u64::from_be_bytes(self.big_endian()?),
            _ => return Err(BAD),
        };
        Ok((major, short, number))
    }

    fn text(&mut self, len: u64) -> OpResult<String> {
        let text = self.take(len)?;
        self.held(text.len())?;
        Ok(String::from_utf8(text.to_vec()).map_err(|_| BAD)?)
    }

    fn held(&mut self, bytes: usize) -> OpResult<()> {
        self.unheld += bytes;
        match self.unheld >= HELD_AT_ONCE {
            true => (self.hold)(std::mem::take(&mut self.unheld) as u64),
            false => Ok(()),
        }
    }

    fn value(&mut self, depth: usize) -> OpResult<Value> {
        if depth >= MAX_DEPTH {
            return Err(BAD.into());
        }
        self.held(PARSED_BYTES)?;
        let (major, short, number) = self.head()?;
        Ok(match major {
            major::UNSIGNED => unsigned(number),
            major::NEGATIVE => Value::Int(!i64::try_from(number).map_err(|_| BAD)?),
            major::TEXT => Value::Text(self.text(number)?),
            major::ARRAY => {
                let mut values = Vec::new();
                for _ in 0..number {
                    values.push(self.value(depth + 1)?);
                }
                Value::Array(values)
            }
            major::MAP => {
                let mut members = Vec::new();
                for _ in 0..number {
                    let (major::TEXT, _, len) = self.head()? else {
                        return Err(BAD.into());
                    };
                    self.held(PARSED_KEY_BYTES)?;
                    members.push((self.text(len)?, self.value(depth + 1)?));
                }
                u32::try_from(members.len()).map_err(|_| BAD)?;
                Value::object(members)
            }
            major::TAG => self.numbers(number)?,
            major::BYTES => return Err(BAD.into()),
            _ => match short {
                20 => Value::Bool(false),
                21 => Value::Bool(true),
                22 => Value::Null,
                25 => float(from_half(number as u16, FloatType::F16)),
                26 => float(f64::from(f32::from_bits(number as u32))),
                27 => float(f64::from_bits(number)),
                _ => return Err(BAD.into()),
            },
        })
    }

    /// An array of numbers of one type.
    fn numbers(&mut self, tag: u64) -> OpResult<Value> {
        let (major::BYTES, _, len) = self.head()? else {
            return Err(BAD.into());
        };
        let bytes = self.take(len)?;
        let signed = |number: i64| Value::Int(number);
        let narrow = |number: f64, of: FloatType| match number.is_finite() {
            true => Value::Float(of.shortest(number)),
            false => Value::Null,
        };
        match tag {
            64 => self.each(bytes, |[byte]: [u8; 1]| unsigned(byte.into())),
            69 => self.each(bytes, |b| unsigned(u16::from_le_bytes(b).into())),
            70 => self.each(bytes, |b| unsigned(u32::from_le_bytes(b).into())),
            71 => self.each(bytes, |b| unsigned(u64::from_le_bytes(b))),
            72 => self.each(bytes, |b| signed(i8::from_le_bytes(b).into())),
            77 => self.each(bytes, |b| signed(i16::from_le_bytes(b).into())),
            78 => self.each(bytes, |b| signed(i32::from_le_bytes(b).into())),
            79 => self.each(bytes, |b| signed(i64::from_le_bytes(b))),
            84 => self.each(bytes, |b| {
                let of = FloatType::F16;
                narrow(from_half(u16::from_le_bytes(b), of), of)
            }),
            BF16_ARRAY => self.each(bytes, |b| {
                let of = FloatType::Bf16;
                narrow(from_half(u16::from_le_bytes(b), of), of)
            }),
            85 => self.each(bytes, |b| {
                narrow(f32::from_le_bytes(b).into(), FloatType::F32)
            }),
            86 => self.each(bytes, |b| float(f64::from_le_bytes(b))),
            _ => Err(BAD.into()),
        }
    }

    fn each<const N: usize>(
        &mut self,
        bytes: &[u8],
        value: impl Fn([u8; N]) -> Value,
    ) -> OpResult<Value> {
        let (chunks, []) = bytes.as_chunks::<N>() else {
            return Err(BAD.into());
        };
        self.held(chunks.len().saturating_mul(size_of::<Value>()))?;
        Ok(Value::Array(chunks.iter().map(|c| value(*c)).collect()))
    }
}

fn unsigned(number: u64) -> Value {
    i64::try_from(number).map_or(Value::Large(number), Value::Int)
}

fn float(number: f64) -> Value {
    match number.is_finite() {
        true => Value::Float(number),
        false => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> OpResult<Value> {
        decode(bytes, &mut |_| Ok(()))
    }

    /// Bytes as RedisJSON writes them.
    #[test]
    fn values_are_read() {
        let floats =
            |numbers: &[f64]| Value::Array(numbers.iter().map(|n| Value::Float(*n)).collect());
        let ints = |numbers: &[i64]| Value::Array(numbers.iter().map(|n| Value::Int(*n)).collect());
        for (bytes, value) in [
            (&b"\xF6"[..], Value::Null),
            (b"\xF4", Value::Bool(false)),
            (b"\xF5", Value::Bool(true)),
            (b"\x18\x2A", Value::Int(42)),
            (b"\x20", Value::Int(-1)),
            (
                b"\x3B\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
                Value::Int(i64::MIN),
            ),
            (
                b"\x1B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
                Value::Large(u64::MAX),
            ),
            (b"\xF9\x3E\x00", Value::Float(1.5)),
            (b"\xFA\x47\xC3\x50\x00", Value::Float(100_000.0)),
            (b"\xFB\x3F\xB9\x99\x99\x99\x99\x99\x9A", Value::Float(0.1)),
            (b"\x62hi", Value::Text("hi".to_owned())),
            (b"\x80", Value::Array(Vec::new())),
            (
                b"\xA1\x61a\x82\xF6\x01",
                Value::Object(vec![(
                    "a".to_owned(),
                    Value::Array(vec![Value::Null, Value::Int(1)]),
                )]),
            ),
            (b"\xD8\x40\x42\x01\xFF", ints(&[1, 255])),
            (b"\xD8\x48\x42\x01\xFF", ints(&[1, -1])),
            (b"\xD8\x4D\x42\x00\x80", ints(&[-32768])),
            (b"\xD8\x54\x42\xCD\x34", floats(&[0.3])),
            (b"\xD8\x55\x44\xCD\xCC\xCC\x3D", floats(&[0.1])),
            (b"\xDA\x00\x01\x00\x00\x42\xCD\x3D", floats(&[0.1])),
            (b"\xD8\x56\x48\0\0\0\0\0\0\xF0\x3F", floats(&[1.0])),
        ] {
            assert_eq!(read(bytes).ok(), Some(value), "{bytes:x?}");
            for end in 0..bytes.len() {
                assert!(read(&bytes[..end]).is_err(), "{bytes:x?} cut to {end}");
            }
        }
    }

    #[test]
    fn what_is_corrupt_is_an_error() {
        for bytes in [
            &b"\x01\x01"[..],
            b"\x9F\xFF",
            b"\xA1\x01\x01",
            b"\x61\xFF",
            b"\x41a",
            b"\xD8\x41\x42\x01\x02",
            b"\xD8\x4D\x41\x01",
            b"\xC2\x41\x01",
            b"\xF7",
            b"\x3B\x80\0\0\0\0\0\0\0",
            b"\x9B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
            b"\xBB\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
            b"\x7B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
        ] {
            assert!(read(bytes).is_err(), "{bytes:x?}");
        }
        let nested = |depth: usize| [vec![0x81; depth], vec![0xF6]].concat();
        assert!(read(&nested(MAX_DEPTH - 1)).is_ok());
        assert!(read(&nested(MAX_DEPTH)).is_err());
        assert!(read(&nested(1 << 20)).is_err());
    }

    #[test]
    fn what_values_take_is_announced_before_there_are_more() {
        let bytes = [&b"\xD8\x40\x5A\x00\x10\x00\x00"[..], &vec![1; 1 << 20]].concat();
        let mut held = 0;
        let read = decode(&bytes, &mut |more| {
            held += more;
            Ok(())
        });
        assert!(read.is_ok());
        assert!(held >= (size_of::<Value>() << 20) as u64, "{held}");
    }
}
