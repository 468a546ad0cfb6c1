//! Packed hashes and sets some of whose elements have an expiry of their own (flag TIMED of
//! [`super::meta`]).
//!
//! ```text
//! hash   field, value, time, field, value, time …     in the order of insertion
//! set    member, time, member, time …                 in the order of insertion
//! ```
//!
//! Each item is `len ‖ bytes`, as in [`super::packed`]. A time is 8 bytes, in Unix milliseconds, or
//! empty.

use super::packed::{Items, items, len_prefix};
use super::{Corrupt, ValueType};
use crate::base::time::UnixMs;
use smallvec::SmallVec;

/// The body of a meta row.
pub type Body = SmallVec<[u8; 128]>;

/// One element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The field or member.
    pub member: &'a [u8],
    /// The value of a field; empty for a set.
    pub value: &'a [u8],
    /// When it expires; 0 for never.
    pub expire_ms: UnixMs,
}

/// Iterator over the elements of a packed hash or set.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    items: Items<'a>,
    has_values: bool,
    has_times: bool,
}

/// Iterates over a packed hash or set; `has_times` is the flag TIMED.
pub fn entries(body: &[u8], kind: ValueType, has_times: bool) -> Entries<'_> {
    Entries {
        items: items(body),
        has_values: kind == ValueType::Hash,
        has_times,
    }
}

impl<'a> Entries<'a> {
    fn part(&mut self) -> Result<&'a [u8], Corrupt> {
        self.items.next().unwrap_or(Err(Corrupt("packed entry")))
    }

    fn rest_of(&mut self, member: &'a [u8]) -> Result<Entry<'a>, Corrupt> {
        let value = match self.has_values {
            true => self.part()?,
            false => &[],
        };
        let expire_ms = match self.has_times {
            true => decode_time(self.part()?)?,
            false => UnixMs::NONE,
        };
        Ok(Entry {
            member,
            value,
            expire_ms,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        let member = self.items.next()?;
        let entry = member.and_then(|member| self.rest_of(member));
        if entry.is_err() {
            self.items = items(&[]);
        }
        Some(entry)
    }
}

/// Appends an element.
pub fn put_entry(out: &mut Body, kind: ValueType, has_times: bool, entry: Entry<'_>) {
    put_bytes(out, entry.member);
    if kind == ValueType::Hash {
        put_bytes(out, entry.value);
    }
    match entry.expire_ms {
        _ if !has_times => {}
        UnixMs::NONE => put_bytes(out, &[]),
        at => put_bytes(out, &at.0.to_be_bytes()),
    }
}

fn put_bytes(out: &mut Body, bytes: &[u8]) {
    out.extend_from_slice(len_prefix(bytes.len(), &mut [0; 5]));
    out.extend_from_slice(bytes);
}

/// A time as it stands in a row or an entry; 0 if there is none.
pub fn decode_time(bytes: &[u8]) -> Result<UnixMs, Corrupt> {
    if bytes.is_empty() {
        return Ok(UnixMs::NONE);
    }
    let time = <[u8; 8]>::try_from(bytes).map_err(|_| Corrupt("element time"))?;
    match UnixMs(u64::from_be_bytes(time)) {
        UnixMs::NONE => Err(Corrupt("element time")),
        time => Ok(time),
    }
}

/// The earlier of two times, of which 0 is none.
pub fn earlier(a: UnixMs, b: UnixMs) -> UnixMs {
    match (a, b) {
        (UnixMs::NONE, other) | (other, UnixMs::NONE) => other,
        (a, b) => a.min(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_these_bytes() {
        let entry = |member, value, expire_ms| Entry {
            member,
            value,
            expire_ms: UnixMs(expire_ms),
        };
        let mut hash = Body::new();
        let fields = [entry(b"f", b"v", 0x0102), entry(b"g", b"", 0)];
        for field in fields {
            put_entry(&mut hash, ValueType::Hash, true, field);
        }
        assert_eq!(
            hash.as_slice(),
            b"\x01f\x01v\x08\0\0\0\0\0\0\x01\x02\x01g\0\0"
        );
        let read: Result<Vec<_>, _> = entries(&hash, ValueType::Hash, true).collect();
        assert_eq!(read, Ok(fields.to_vec()));
        let mut set = Body::new();
        put_entry(&mut set, ValueType::Set, true, entry(b"m", b"", 7));
        assert_eq!(set.as_slice(), b"\x01m\x08\0\0\0\0\0\0\0\x07");
    }

    #[test]
    fn damaged_entries_are_errors() {
        for body in [
            &b"\x01f"[..],
            b"\x01f\x01v",
            b"\x01f\x01v\x01\x07",
            b"\x01f\x01v\x08\0\0\0\0\0\0\0\0",
        ] {
            let mut read = entries(body, ValueType::Hash, true);
            assert!(read.any(|entry| entry.is_err()), "{body:?}");
        }
    }
}
