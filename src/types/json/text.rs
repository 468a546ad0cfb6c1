//! Values as text.

use super::read::{Rows, Val};
use crate::encoding::json::Item;
use crate::types::OpResult;
use std::ops::ControlFlow;

/// What is written between the parts of the text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Format<'f> {
    /// Before each value in a container, once for each level.
    pub indent: &'f [u8],
    /// Before that.
    pub newline: &'f [u8],
    /// Between a colon and a value.
    pub space: &'f [u8],
}

/// Writes a string with its quotes.
pub fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut plain = text;
    while let Some(at) = plain.iter().position(|byte| needs_escape(*byte)) {
        let (before, rest) = plain.split_at(at);
        out.extend_from_slice(before);
        if let Some((byte, after)) = rest.split_first() {
            escape(*byte, out);
            plain = after;
        }
    }
    out.extend_from_slice(plain);
    out.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    let letter = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x09 => b't',
        0x0A => b'n',
        0x0C => b'f',
        0x0D => b'r',
        _ => {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// Writes a float, always with a point or an exponent.
pub fn put_float(number: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(ryu::Buffer::new().format_finite(number).as_bytes());
}

/// Writes text.
pub struct Writer<'w> {
    /// Where the values are.
    pub rows: &'w dyn Rows,
    /// What is between the parts.
    pub format: Format<'w>,
    /// Where the text goes.
    pub out: &'w mut Vec<u8>,
    level: usize,
}

impl<'w> Writer<'w> {
    /// A writer at the outermost level.
    pub fn new(rows: &'w dyn Rows, format: Format<'w>, out: &'w mut Vec<u8>) -> Writer<'w> {
        Writer {
            rows,
            format,
            out,
            level: 0,
        }
    }

    fn new_line(&mut self) {
        self.out.extend_from_slice(self.format.newline);
        for _ in 0..self.level {
            self.out.extend_from_slice(self.format.indent);
        }
    }

    /// Begins a container.
    pub fn begin(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.level += 1;
    }

    /// Begins an element, or a member whose key follows.
    pub fn next(&mut self, is_first: bool) {
        if !is_first {
            self.out.push(b',');
        }
        self.new_line();
    }

    /// Writes a key and what follows it.
    pub fn key(&mut self, key: &[u8]) {
        quote(key, self.out);
        self.out.push(b':');
        self.out.extend_from_slice(self.format.space);
    }

    /// Ends a container.
    pub fn end(&mut self, bracket: u8, is_empty: bool) {
        self.level -= 1;
        if !is_empty {
            self.new_line();
        }
        self.out.push(bracket);
    }

    /// Writes an array of some values.
    pub fn array<'v>(&mut self, values: impl Iterator<Item = &'v Val>) -> OpResult<()> {
        self.begin(b'[');
        let mut is_empty = true;
        for value in values {
            self.next(is_empty);
            is_empty = false;
            self.selected(value)?;
        }
        self.end(b']', is_empty);
        Ok(())
    }

    /// Writes a value that a path has selected: with many of them, the text can become longer than
    /// the document.
    pub fn selected(&mut self, value: &Val) -> OpResult<()> {
        let before = self.out.len();
        self.value(value)?;
        self.rows.hold((self.out.len() - before) as u64)
    }

    /// Writes a value.
    pub fn value(&mut self, value: &Val) -> OpResult<()> {
        let rows = self.rows;
        match value.item()? {
            Item::Null => self.out.extend_from_slice(b"null"),
            Item::Bool(true) => self.out.extend_from_slice(b"true"),
            Item::Bool(false) => self.out.extend_from_slice(b"false"),
            Item::Int(number) => self
                .out
                .extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
            Item::Large(number) => self
                .out
                .extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
            Item::Float(number) => put_float(number, self.out),
            Item::Text(text) => quote(text, self.out),
            Item::TextNode(..) => {
                quote(&value.text(rows)?.unwrap_or_default(), self.out);
            }
            Item::Array(_) | Item::ArrayNode(_) => {
                self.begin(b'[');
                let mut is_empty = true;
                value
                    .each_element(rows, &mut |_, element| {
                        self.next(is_empty);
                        is_empty = false;
                        self.value(&element)?;
                        Ok(ControlFlow::Continue(()))
                    })
                    .map(drop)?;
                self.end(b']', is_empty);
            }
            Item::Object(_) | Item::ObjectNode(_) => {
                self.begin(b'{');
                let mut is_empty = true;
                value
                    .each_member(rows, &mut |key, member| {
                        self.next(is_empty);
                        is_empty = false;
                        self.key(key);
                        self.value(&member)?;
                        Ok(ControlFlow::Continue(()))
                    })
                    .map(drop)?;
                self.end(b'}', is_empty);
            }
        }
        Ok(())
    }
}

/// The text of a value.
pub fn of(rows: &dyn Rows, value: &Val) -> OpResult<Vec<u8>> {
    let mut out = Vec::new();
    Writer::new(rows, Format::default(), &mut out).value(value)?;
    Ok(out)
}
