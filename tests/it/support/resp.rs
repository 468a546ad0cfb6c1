//! Replies, decoded without loss.
//!
//! Two replies are equal if and only if their bytes are: the different nulls stay different, a
//! double keeps its text, maps and sets keep their order. The decoder refuses non-canonical
//! numbers (`:+5`, `:05`).

use std::fmt;
use std::io::{self, BufRead};

/// A reply in RESP2 or RESP3.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    /// `$-1`
    NullBulk,
    /// `*-1`
    NullArray,
    /// `_`
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    /// The text after the comma.
    Double(Vec<u8>),
    Bool(bool),
    /// The text after the parenthesis.
    Big(Vec<u8>),
    /// Format and text, as sent: `txt:...`.
    Verbatim(Vec<u8>),
    /// No reply: the connection ended or timed out; the text is the reason.
    Lost(String),
}

impl Value {
    /// `+text`
    pub fn simple(text: &str) -> Value {
        Value::Simple(text.as_bytes().to_vec())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Value {
        Value::Bulk(bytes.as_ref().to_vec())
    }

    /// `+OK`
    pub fn ok() -> Value {
        Value::simple("OK")
    }

    /// The error's text, if it is one.
    pub fn error(&self) -> Option<String> {
        match self {
            Value::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }

    /// The integer, or a panic that shows what came instead.
    pub fn int(&self) -> i64 {
        match self {
            Value::Int(n) => *n,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// The bytes of a string of any kind, or a panic.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Bulk(b) | Value::Simple(b) | Value::Double(b) | Value::Verbatim(b) => b,
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// The text of a string of any kind, or a panic.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// The elements of an array, set or push, or a panic.
    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The elements of an aggregate, with the pairs of a map flattened as in RESP2; `None` for a
    /// scalar.
    pub fn flat(&self) -> Option<Vec<Value>> {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => Some(items.clone()),
            Value::Map(pairs) => Some(
                pairs
                    .iter()
                    .flat_map(|(k, v)| [k.clone(), v.clone()])
                    .collect(),
            ),
            _ => None,
        }
    }

    /// The pairs of a map, also of one that RESP2 sent as a flat array.
    pub fn pairs(&self) -> Vec<(Value, Value)> {
        let flat = self
            .flat()
            .unwrap_or_else(|| panic!("expected a map, got {self:?}"));
        assert!(
            flat.len().is_multiple_of(2),
            "odd number of elements: {self:?}"
        );
        flat.chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |b: &[u8]| super::cli::quote(b);
        match self {
            Value::Simple(b) => write!(f, "+{}", text(b)),
            Value::Error(b) => write!(f, "-{}", text(b)),
            Value::Int(n) => write!(f, ":{n}"),
            Value::Bulk(b) => write!(f, "${}", text(b)),
            Value::NullBulk => write!(f, "$-1"),
            Value::NullArray => write!(f, "*-1"),
            Value::Null => write!(f, "_"),
            Value::Array(items) => {
                write!(f, "*{}", items.len())?;
                f.debug_list().entries(items).finish()
            }
            Value::Set(items) => {
                write!(f, "~{}", items.len())?;
                f.debug_list().entries(items).finish()
            }
            Value::Push(items) => {
                write!(f, ">{}", items.len())?;
                f.debug_list().entries(items).finish()
            }
            Value::Map(pairs) => {
                write!(f, "%{}", pairs.len())?;
                f.debug_map()
                    .entries(pairs.iter().map(|(k, v)| (k, v)))
                    .finish()
            }
            Value::Double(b) => write!(f, ",{}", text(b)),
            Value::Bool(b) => write!(f, "#{b}"),
            Value::Big(b) => write!(f, "({}", text(b)),
            Value::Verbatim(b) => write!(f, "={}", text(b)),
            Value::Lost(why) => write!(f, "<no reply: {why}>"),
        }
    }
}

fn bad(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

fn read_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "connection closed",
        ));
    }
    if !line.ends_with(b"\r\n") {
        return Err(bad(format!(
            "line without CRLF: {}",
            super::cli::quote(&line)
        )));
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

fn number(text: &[u8]) -> io::Result<i64> {
    let text = String::from_utf8_lossy(text);
    match text.parse::<i64>() {
        Ok(n) if n.to_string() == text => Ok(n),
        _ => Err(bad(format!("not a canonical integer: {text:?}"))),
    }
}

fn read_bulk(input: &mut impl BufRead, length: i64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| bad("negative length"))?;
    let mut bytes = vec![0; length + 2];
    input.read_exact(&mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        return Err(bad("bulk without CRLF at its end"));
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn read_many(input: &mut impl BufRead, count: i64) -> io::Result<Vec<Value>> {
    if count < 0 {
        return Err(bad(format!("negative count {count}")));
    }
    (0..count).map(|_| read_value(input)).collect()
}

/// Reads one reply; blocks if the stream does.
pub fn read_value(input: &mut impl BufRead) -> io::Result<Value> {
    let line = read_line(input)?;
    let (kind, rest) = line.split_first().ok_or_else(|| bad("empty line"))?;
    Ok(match kind {
        b'+' => Value::Simple(rest.to_vec()),
        b'-' => Value::Error(rest.to_vec()),
        b':' => Value::Int(number(rest)?),
        b'$' if rest == b"-1" => Value::NullBulk,
        b'$' => Value::Bulk(read_bulk(input, number(rest)?)?),
        b'*' if rest == b"-1" => Value::NullArray,
        b'*' => Value::Array(read_many(input, number(rest)?)?),
        b'~' => Value::Set(read_many(input, number(rest)?)?),
        b'>' => Value::Push(read_many(input, number(rest)?)?),
        b'%' => {
            let flat = read_many(input, number(rest)?.saturating_mul(2))?;
            Value::Map(Value::Array(flat).pairs())
        }
        b'_' if rest.is_empty() => Value::Null,
        b'#' if rest == b"t" || rest == b"f" => Value::Bool(rest == b"t"),
        b',' => Value::Double(rest.to_vec()),
        b'(' => Value::Big(rest.to_vec()),
        b'=' => Value::Verbatim(read_bulk(input, number(rest)?)?),
        _ => return Err(bad(format!("unknown reply {}", super::cli::quote(&line)))),
    })
}

#[test]
fn replies_are_decoded_as_they_stand() {
    let mut wire: &[u8] = b"*3\r\n$-1\r\n*-1\r\n%1\r\n+a\r\n,1.5\r\n_\r\n";
    let first = read_value(&mut wire).unwrap();
    let map = Value::Map(vec![(Value::simple("a"), Value::Double(b"1.5".to_vec()))]);
    assert_eq!(
        first,
        Value::Array(vec![Value::NullBulk, Value::NullArray, map])
    );
    assert_eq!(read_value(&mut wire).unwrap(), Value::Null);
    assert!(read_value(&mut wire).is_err());
    assert!(read_value(&mut b":05\r\n".as_slice()).is_err());
}
