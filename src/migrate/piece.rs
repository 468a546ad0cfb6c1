//! Large values are asked for in pieces.

use super::error::Error;
use crate::resp::Value;

/// Elements that a piece of a collection has at the most.
const PIECE_ELEMENTS: i64 = 1000;
/// Bytes that a piece of a value has, about.
pub const PIECE_BYTES: i64 = 1 << 20;

/// A server that answered something else than it should.
pub fn odd(what: &str) -> Error {
    Error::Refused(format!("{what} was answered with something else"))
}

/// How much of a collection to ask for at once: elements may be long.
pub struct Piece {
    /// Elements.
    pub elements: i64,
}

impl Default for Piece {
    fn default() -> Self {
        Piece { elements: 10 }
    }
}

impl Piece {
    /// The next piece has about [`PIECE_BYTES`] if its elements are like those of
    /// this one.
    pub fn adapt(&mut self, items: &[Value]) {
        let bytes = items.iter().map(bytes_of).sum::<usize>().max(1) as i64;
        let fitting = PIECE_BYTES.saturating_mul(self.elements) / bytes;
        self.elements = fitting.clamp(1, PIECE_ELEMENTS).min(self.elements * 10);
    }
}

/// Bytes of all texts of a reply.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(bytes_of).sum(),
        value => value.as_bytes().map_or(0, <[u8]>::len),
    }
}
