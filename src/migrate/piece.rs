//! Sizes of the pieces in which large values are read.

use super::error::Error;
use crate::resp::Value;

/// Most elements in a piece of a collection.
const PIECE_ELEMENTS: i64 = 1000;
/// Approximate bytes of a piece.
pub const PIECE_BYTES: i64 = 1 << 20;

/// The error for a reply of an unexpected type.
pub fn unexpected_reply(what: &str) -> Error {
    Error::Refused(format!("unexpected reply to {what}"))
}

/// Size of the next piece of a collection. Elements may be long, so the first piece is
/// small.
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
    /// Sizes the next piece to about [`PIECE_BYTES`], assuming elements like those of
    /// this one.
    pub fn adapt(&mut self, items: &[Value]) {
        let bytes = items.iter().map(bytes_of).sum::<usize>().max(1) as i64;
        let fitting = PIECE_BYTES.saturating_mul(self.elements) / bytes;
        self.elements = fitting.clamp(1, PIECE_ELEMENTS).min(self.elements * 10);
    }
}

/// Total bytes of the strings in a reply.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(bytes_of).sum(),
        value => value.as_bytes().map_or(0, <[u8]>::len),
    }
}
