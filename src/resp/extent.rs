//! Finds the end of a reply that arrives in pieces.
//!
//! [`decode`](super::decode()) starts at the beginning at each call: calling it after every
//! piece of a long reply would take time quadratic in its length.
#![deny(clippy::indexing_slicing)]

use super::decode::{Cursor, DecodeError, MAX_DEPTH, Stop, length};

/// The state of the search. It looks at no element twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// The end of the complete elements.
    pos: usize,
    /// The number of missing elements, at each depth.
    open: Vec<usize>,
}

impl Extent {
    /// The length of the reply at the start of `buf`, once it is complete. Until then each call
    /// must be made with the same bytes and possibly more; after that a new [`Extent`] is
    /// needed.
    ///
    /// # Errors
    /// The bytes are not the beginning of a reply.
    pub fn find(&mut self, buf: &[u8]) -> Result<Option<usize>, DecodeError> {
        if self.open.is_empty() {
            self.open.push(1);
        }
        loop {
            let mut cursor = Cursor { buf, pos: self.pos };
            let elements = match elements(&mut cursor) {
                Ok(elements) => elements,
                Err(Stop::Incomplete) => return Ok(None),
                Err(Stop::Error(error)) => return Err(error),
            };
            self.pos = cursor.pos;
            match elements {
                Elements::Own(0) => self.end(),
                // An attribute precedes an element and is not one itself.
                Elements::Attribute(0) => {}
                Elements::Own(count) => self.open.push(count),
                Elements::Attribute(count) => {
                    if let Some(open) = self.open.last_mut() {
                        *open = open.saturating_add(1);
                    }
                    self.open.push(count);
                }
            }
            // The reply itself is at depth 0.
            if self.open.len() > MAX_DEPTH + 1 {
                return Err(DecodeError::TooDeep);
            }
            if self.open.is_empty() {
                return Ok(Some(self.pos));
            }
        }
    }

    /// Completes an element, and the aggregates that end with it.
    fn end(&mut self) {
        while let Some(open) = self.open.last_mut() {
            *open -= 1;
            if *open > 0 {
                return;
            }
            self.open.pop();
        }
    }
}

/// The elements that follow the head of an element.
enum Elements {
    /// The number of its own elements.
    Own(usize),
    /// The number of an attribute's elements, before the element itself.
    Attribute(usize),
}

/// Skips the head of an element, and the bytes of a string.
fn elements(cursor: &mut Cursor<'_>) -> Result<Elements, Stop> {
    let (kind, line) = cursor.head()?;
    Ok(match kind {
        b'$' | b'=' | b'!' => {
            cursor.string(length(line)?)?;
            Elements::Own(0)
        }
        b'*' | b'~' | b'>' => Elements::Own(length(line)?.unwrap_or(0)),
        b'%' => Elements::Own(length(line)?.unwrap_or(0).saturating_mul(2)),
        b'|' => Elements::Attribute(length(line)?.unwrap_or(0).saturating_mul(2)),
        _ => Elements::Own(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::decode;

    /// The end of a reply that arrives byte by byte.
    fn extent(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
        let mut extent = Extent::default();
        for end in 0..=bytes.len() {
            match extent.find(&bytes[..end]) {
                Ok(None) => {}
                found => return found,
            }
        }
        Ok(None)
    }

    #[test]
    fn it_ends_where_the_decoder_says() {
        for reply in [
            "+OK\r\n",
            "$5\r\na\r\nbc\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
            "*3\r\n*2\r\n*0\r\n:1\r\n$0\r\n\r\n%2\r\n+k\r\n:1\r\n+l\r\n~1\r\n#t\r\n",
            "|1\r\n+a\r\n*1\r\n:1\r\n$1\r\nx\r\n",
            "*2\r\n|1\r\n+a\r\n:1\r\n:2\r\n|0\r\n:3\r\n",
            "=7\r\ntxt:abc\r\n",
        ] {
            let whole = [reply.as_bytes(), b":1\r\n"].concat();
            let decoded = decode(&whole).map(|found| found.map(|(_, len)| len));
            assert_eq!(decoded, Ok(Some(reply.len())), "{reply:?}");
            assert_eq!(extent(&whole), decoded, "{reply:?}");
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for wrong in ["HTTP/1.1", "*x\r\n", "$-2\r\n", "$1\r\nxx\r\n"] {
            assert!(extent(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert_eq!(
            extent("*1\r\n".repeat(100).as_bytes()),
            Err(DecodeError::TooDeep)
        );
    }
}
