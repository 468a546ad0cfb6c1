//! Reply decoder for both protocol versions: for tests, replication and tools.
//!
//! Memory grows with the bytes received, never with announced lengths, and
//! nesting is bounded, so a hostile server gets an error at worst.
#![deny(clippy::indexing_slicing)]

use memchr::memchr;
use thiserror::Error;

use crate::base::num::parse_i64;

/// Deepest nesting of arrays, maps, sets and pushes.
pub const MAX_DEPTH: usize = 64;
/// Longest line of a reply, in bytes. Only statuses, errors and numbers are lines.
pub const MAX_LINE_LEN: usize = 1024 * 1024;
/// Capacity reserved at most before the elements arrive.
const MAX_RESERVE: usize = 64;

/// One reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `+` a status.
    Simple(String),
    /// `-` (or RESP3 `!`) an error, its code first.
    Error(String),
    /// `:` an integer.
    Int(i64),
    /// `$` a string.
    Bulk(Vec<u8>),
    /// `_`, `$-1` or `*-1`: no value.
    Null,
    /// `*` an array.
    Array(Vec<Value>),
    /// `%` pairs in the order sent.
    Map(Vec<(Value, Value)>),
    /// `~` members in the order sent.
    Set(Vec<Value>),
    /// `>` an out-of-band message.
    Push(Vec<Value>),
    /// `,` a double.
    Double(f64),
    /// `#` a truth value.
    Bool(bool),
    /// `(` an integer of any size, as text.
    BigNumber(String),
    /// `=` text with a type of three letters.
    Verbatim {
        /// The type: `txt` or `mkd`.
        ext: String,
        /// The text.
        text: Vec<u8>,
    },
}

/// Why bytes are not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A reply starts with an unknown type byte.
    #[error("unknown reply type {0:#04x}")]
    UnknownType(u8),
    /// A length is not a number, or below -1.
    #[error("invalid length in reply")]
    InvalidLength,
    /// An integer, double, boolean or null is malformed.
    #[error("invalid number in reply")]
    InvalidNumber,
    /// A string does not end in CRLF, or the type of a verbatim string is incomplete.
    #[error("malformed string in reply")]
    MalformedString,
    /// A line is longer than [`MAX_LINE_LEN`].
    #[error("line too long in reply")]
    LineTooLong,
    /// Replies are nested deeper than [`MAX_DEPTH`].
    #[error("reply nested too deeply")]
    TooDeep,
}

/// Decodes the reply at the start of `buf` and returns its length in bytes; `None` if more
/// bytes are needed. RESP3 attributes are skipped.
///
/// # Errors
/// The bytes are not the beginning of a reply.
pub fn decode(buf: &[u8]) -> Result<Option<(Value, usize)>, DecodeError> {
    let mut cursor = Cursor { buf, pos: 0 };
    match cursor.value(0) {
        Ok(value) => Ok(Some((value, cursor.pos))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Error(error)) => Err(error),
    }
}

impl Value {
    /// The bytes of a string or status.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => Some(bytes),
            Value::Simple(text) | Value::BigNumber(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// The integer, or the integer value of a string.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            other => parse_i64(other.as_bytes()?),
        }
    }

    /// The elements of an array, set or push.
    pub fn as_slice(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => Some(items),
            _ => None,
        }
    }

    /// The text of an error.
    pub fn as_error(&self) -> Option<&str> {
        match self {
            Value::Error(text) => Some(text),
            _ => None,
        }
    }
}

/// Why decoding stopped before the reply's end.
pub(super) enum Stop {
    Incomplete,
    Error(DecodeError),
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        Stop::Error(error)
    }
}

pub(super) struct Cursor<'a> {
    pub(super) buf: &'a [u8],
    pub(super) pos: usize,
}

impl<'a> Cursor<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, Stop> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::TooDeep.into());
        }
        loop {
            let (kind, line) = self.head()?;
            if kind != b'|' {
                return self.typed(kind, line, depth);
            }
            // Attributes are metadata of the reply that follows.
            for _ in 0..length(line)?.ok_or(DecodeError::InvalidLength)? {
                self.value(depth + 1)?;
                self.value(depth + 1)?;
            }
        }
    }

    /// The type of a reply, and the line after it.
    pub(super) fn head(&mut self) -> Result<(u8, &'a [u8]), Stop> {
        let kind = *self.buf.get(self.pos).ok_or(Stop::Incomplete)?;
        if !b"+-:$*_%~>,#(=!|".contains(&kind) {
            return Err(DecodeError::UnknownType(kind).into());
        }
        self.pos += 1;
        Ok((kind, self.line()?))
    }

    fn typed(&mut self, kind: u8, line: &[u8], depth: usize) -> Result<Value, Stop> {
        let number = DecodeError::InvalidNumber;
        Ok(match kind {
            b'+' => Value::Simple(text(line)),
            b'-' => Value::Error(text(line)),
            b':' => Value::Int(parse_i64(line).ok_or(number)?),
            b'(' => Value::BigNumber(big_number(line)?),
            b',' => Value::Double(double(line)?),
            b'#' => match line {
                b"t" => Value::Bool(true),
                b"f" => Value::Bool(false),
                _ => return Err(number.into()),
            },
            b'_' if line.is_empty() => Value::Null,
            b'_' => return Err(number.into()),
            b'!' => Value::Error(text(self.string(length(line)?)?.unwrap_or_default())),
            b'=' => self.verbatim(line)?,
            b'$' => match self.string(length(line)?)? {
                Some(bytes) => Value::Bulk(bytes.to_vec()),
                None => Value::Null,
            },
            b'%' => {
                let count = length(line)?.ok_or(DecodeError::InvalidLength)?;
                let mut pairs = Vec::with_capacity(count.min(MAX_RESERVE));
                for _ in 0..count {
                    pairs.push((self.value(depth + 1)?, self.value(depth + 1)?));
                }
                Value::Map(pairs)
            }
            _ => match (kind, length(line)?) {
                (b'~', Some(count)) => Value::Set(self.items(count, depth)?),
                (b'>', Some(count)) => Value::Push(self.items(count, depth)?),
                (b'*', Some(count)) => Value::Array(self.items(count, depth)?),
                (b'*', None) => Value::Null,
                _ => return Err(DecodeError::InvalidLength.into()),
            },
        })
    }

    fn items(&mut self, count: usize, depth: usize) -> Result<Vec<Value>, Stop> {
        let mut items = Vec::with_capacity(count.min(MAX_RESERVE));
        for _ in 0..count {
            items.push(self.value(depth + 1)?);
        }
        Ok(items)
    }

    fn verbatim(&mut self, line: &[u8]) -> Result<Value, Stop> {
        match self.string(length(line)?)? {
            Some([a, b, c, b':', body @ ..]) => Ok(Value::Verbatim {
                ext: text(&[*a, *b, *c]),
                text: body.to_vec(),
            }),
            Some(_) => Err(DecodeError::MalformedString.into()),
            None => Ok(Value::Null),
        }
    }

    /// The line from here to CRLF.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = self.buf.get(self.pos..).unwrap_or_default();
        let window = rest.get(..MAX_LINE_LEN).unwrap_or(rest);
        let Some(len) = memchr(b'\r', window) else {
            return Err(if rest.len() >= MAX_LINE_LEN {
                DecodeError::LineTooLong.into()
            } else {
                Stop::Incomplete
            });
        };
        match rest.get(len + 1) {
            Some(b'\n') => {}
            Some(_) => return Err(DecodeError::MalformedString.into()),
            None => return Err(Stop::Incomplete),
        }
        self.pos += len + 2;
        Ok(rest.get(..len).unwrap_or_default())
    }

    /// A string of an announced length, and its CRLF.
    pub(super) fn string(&mut self, len: Option<usize>) -> Result<Option<&'a [u8]>, Stop> {
        let Some(len) = len else {
            return Ok(None);
        };
        let rest = self.buf.get(self.pos..).unwrap_or_default();
        let (bytes, tail) = rest.split_at_checked(len).ok_or(Stop::Incomplete)?;
        match tail {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Err(Stop::Incomplete),
            _ => return Err(DecodeError::MalformedString.into()),
        }
        self.pos += len + 2;
        Ok(Some(bytes))
    }
}

/// A length; `None` for -1.
pub(super) fn length(line: &[u8]) -> Result<Option<usize>, DecodeError> {
    match parse_i64(line) {
        Some(-1) => Ok(None),
        Some(len) => usize::try_from(len)
            .map(Some)
            .map_err(|_| DecodeError::InvalidLength),
        None => Err(DecodeError::InvalidLength),
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

fn big_number(line: &[u8]) -> Result<String, DecodeError> {
    let digits = line.strip_prefix(b"-").unwrap_or(line);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecodeError::InvalidNumber);
    }
    Ok(text(line))
}

fn double(line: &[u8]) -> Result<f64, DecodeError> {
    // Servers write NaN with or without a sign.
    let name = line.strip_prefix(b"-").unwrap_or(line);
    if name.eq_ignore_ascii_case(b"nan") {
        return Ok(f64::NAN);
    }
    crate::base::num::parse_f64(line).ok_or(DecodeError::InvalidNumber)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn every_type() {
        for (encoded, expected) in [
            ("+OK\r\n", Value::Simple("OK".into())),
            ("-ERR no\r\n", Value::Error("ERR no".into())),
            ("!6\r\nERR no\r\n", Value::Error("ERR no".into())),
            (":-12\r\n", Value::Int(-12)),
            ("$5\r\na\r\nbc\r\n", bulk("a\r\nbc")),
            ("$0\r\n\r\n", bulk("")),
            ("$-1\r\n", Value::Null),
            ("*-1\r\n", Value::Null),
            ("_\r\n", Value::Null),
            ("*0\r\n", Value::Array(vec![])),
            (
                "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
                Value::Array(vec![Value::Int(1), Value::Array(vec![bulk("x")])]),
            ),
            (
                "%1\r\n+k\r\n:1\r\n",
                Value::Map(vec![(Value::Simple("k".into()), Value::Int(1))]),
            ),
            ("~1\r\n:1\r\n", Value::Set(vec![Value::Int(1)])),
            (">1\r\n+x\r\n", Value::Push(vec![Value::Simple("x".into())])),
            (",1.5\r\n", Value::Double(1.5)),
            (",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
            ("#t\r\n", Value::Bool(true)),
            ("#f\r\n", Value::Bool(false)),
            (
                "(-123456789012345678901\r\n",
                Value::BigNumber("-123456789012345678901".into()),
            ),
            (
                "=5\r\ntxt:a\r\n",
                Value::Verbatim {
                    ext: "txt".into(),
                    text: b"a".to_vec(),
                },
            ),
            ("|1\r\n+ttl\r\n:5\r\n:7\r\n", Value::Int(7)),
        ] {
            let bytes = encoded.as_bytes();
            assert_eq!(
                decode(bytes),
                Ok(Some((expected, bytes.len()))),
                "{encoded:?}"
            );
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Ok(None), "{encoded:?} cut at {len}");
            }
        }
        assert!(
            matches!(decode(b",nan\r\n"), Ok(Some((Value::Double(value), 6))) if value.is_nan())
        );
        assert_eq!(
            decode(b"+a\r\n+b\r\n"),
            Ok(Some((Value::Simple("a".into()), 4)))
        );
    }

    #[test]
    fn hostile_replies() {
        for (encoded, expected) in [
            ("x", DecodeError::UnknownType(b'x')),
            ("$x\r\n", DecodeError::InvalidLength),
            ("$-2\r\n", DecodeError::InvalidLength),
            ("%-1\r\n", DecodeError::InvalidLength),
            ("~-1\r\n", DecodeError::InvalidLength),
            ("|-1\r\n", DecodeError::InvalidLength),
            ("*?\r\n", DecodeError::InvalidLength),
            (":1x\r\n", DecodeError::InvalidNumber),
            (",x\r\n", DecodeError::InvalidNumber),
            ("#x\r\n", DecodeError::InvalidNumber),
            ("(1.5\r\n", DecodeError::InvalidNumber),
            ("_x\r\n", DecodeError::InvalidNumber),
            ("$1\r\nabc", DecodeError::MalformedString),
            ("=2\r\nab\r\n", DecodeError::MalformedString),
            ("+a\rb\r\n", DecodeError::MalformedString),
        ] {
            assert_eq!(decode(encoded.as_bytes()), Err(expected), "{encoded:?}");
        }
        let deep = "*1\r\n".repeat(100_000);
        assert_eq!(decode(deep.as_bytes()), Err(DecodeError::TooDeep));
        let deep = "|1\r\n".repeat(100_000);
        assert_eq!(decode(deep.as_bytes()), Err(DecodeError::TooDeep));
        let line = vec![b'+'; MAX_LINE_LEN + 2];
        assert_eq!(decode(&line), Err(DecodeError::LineTooLong));
        assert_eq!(decode(b"*9223372036854775807\r\n"), Ok(None));
        assert_eq!(decode(b"%9223372036854775807\r\n"), Ok(None));
        assert_eq!(decode(b"$9223372036854775807\r\n"), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_end(pieces in prop::collection::vec("[-+:$*_%~>,#(=!|][-0-9a-z]{0,3}\r\n", 0..20), raw: Vec<u8>) {
            let _ = decode(pieces.concat().as_bytes());
            let _ = decode(&raw);
        }
    }
}
