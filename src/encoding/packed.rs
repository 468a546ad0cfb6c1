//! Small collections inside their meta row: a sequence of `len ‖ bytes`.
//!
//! ```text
//! hash   field, value, field, value …   in the order of insertion
//! set    member, member …               in the order of insertion
//! list   item, item …                   head first
//! zset   score (8 raw bytes), member …  ascending
//! ```

pub use super::reader::{len_prefix, put_bytes};
use super::{Corrupt, reader::Reader, score};

/// Iterator over the byte strings of a packed hash, set or list.
#[derive(Debug, Clone)]
pub struct Items<'a>(Reader<'a>);

/// Iterates over a packed hash (fields and values alternate), set or list.
pub fn items(body: &[u8]) -> Items<'_> {
    Items(Reader::new(body, "packed"))
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<&'a [u8], Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let item = self.0.bytes();
        if item.is_err() {
            self.0 = Reader::new(&[], "packed");
        }
        Some(item)
    }
}

impl<'a> Items<'a> {
    /// The bytes not yet iterated over.
    pub fn rest(&self) -> &'a [u8] {
        self.0.rest()
    }
}

/// Appends one entry of a packed zset.
pub fn put_scored(out: &mut Vec<u8>, score: f64, member: &[u8]) {
    out.extend_from_slice(&score::encode(score));
    put_bytes(out, member);
}

/// Scores and members of a packed zset, ascending.
#[derive(Debug, Clone)]
pub struct Scored<'a>(Reader<'a>);

/// Iterates over a packed zset.
pub fn scored(body: &[u8]) -> Scored<'_> {
    Scored(Reader::new(body, "packed zset"))
}

impl<'a> Iterator for Scored<'a> {
    type Item = Result<(f64, &'a [u8]), Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = (|| Ok((score::decode(self.0.array()?), self.0.bytes()?)))();
        if entry.is_err() {
            self.0 = Reader::new(&[], "packed zset");
        }
        Some(entry)
    }
}
