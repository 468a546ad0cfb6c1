//! Binlog rows: the effects of one commit, as commands that can be replayed.
//!
//! ```text
//! position of the first byte (8) → first entry (8) ‖ entries (4) ‖ unix ms (8) ‖ bytes
//! ```
//!
//! Long arguments of the commands, or all commands of a long row, stand in the value log. A row that
//! refers to them has the highest bit of `entries` set:
//!
//! ```text
//! … → first entry (8) ‖ entries (4) ‖ unix ms (8) ‖ count (4) ‖ count × [at (8) ‖ reference (24)] ‖ rest
//! ```
//!
//! The bytes of the row are the rest, with the bytes of each reference inserted where `at` bytes of
//! the rest are before it. Rows that are sent to a replica have no references.
//!
//! The bytes are commands in RESP, as in a Redis replication stream, and a position counts these
//! bytes: the next row's position is this one's plus the length of its bytes, so a hole would be
//! noticed. Every row begins with a SELECT, so a reader can start at any row without knowing the
//! rows before. Commands between MULTI and EXEC, which never span rows, belong together.

use super::values::ValueRef;
use super::{Corrupt, reader::Reader};
use crate::base::time::UnixMs;
use std::fmt;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a byte of the commands that a database has logged, counted from 1, or of
/// a byte in the replication stream of a Redis master. 0 comes before all of them.
///
/// PSYNC asks for the position of the next byte. What Redis calls the replication offset
/// is one less: see [`Offset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position(pub u64);

impl Position {
    /// Of the first byte that a new database logs.
    pub const FIRST: Position = Position(1);
    /// No byte has this position.
    pub const NONE: Position = Position(0);
    /// Behind every byte.
    pub const MAX: Position = Position(u64::MAX);

    /// How many bytes lie between `earlier` and this position; 0 if `earlier` is not.
    pub fn since(self, earlier: Position) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The position so many bytes before this one, at least 0.
    pub fn before(self, bytes: u64) -> Position {
        Position(self.0.saturating_sub(bytes))
    }

    /// The offset of a stream whose next byte has this position.
    pub fn offset(self) -> Offset {
        Offset(self.0.saturating_sub(1))
    }
}

impl Add<u64> for Position {
    type Output = Position;

    fn add(self, bytes: u64) -> Position {
        Position(self.0 + bytes)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many bytes of a replication stream have passed: Redis' replication offset. The next
/// byte has the [`Position`] behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Offset(pub u64);

impl Offset {
    /// The position of the byte that comes next.
    pub fn next(self) -> Position {
        Position(self.0.saturating_add(1))
    }

    /// As replies have it.
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A [`Position`] that threads share.
#[derive(Debug, Default)]
pub struct AtomicPosition(AtomicU64);

impl AtomicPosition {
    /// One that holds `position`.
    pub fn new(position: Position) -> Self {
        AtomicPosition(AtomicU64::new(position.0))
    }

    /// What it holds.
    pub fn load(&self, order: Ordering) -> Position {
        Position(self.0.load(order))
    }

    /// Makes it hold `position`.
    pub fn store(&self, position: Position, order: Ordering) {
        self.0.store(position.0, order);
    }

    /// Makes it hold `position` if that is later than what it holds.
    pub fn fetch_max(&self, position: Position, order: Ordering) {
        self.0.fetch_max(position.0, order);
    }
}

/// Bytes before the commands.
pub const HEADER_LEN: usize = 20;

/// One row of the binlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// The number of the row's first command.
    pub first_entry: u64,
    /// How many commands the row has; SELECT, MULTI and EXEC are not counted.
    pub entries: u32,
    /// The time of the commit, in Unix milliseconds.
    pub unix_ms: UnixMs,
    /// The commands.
    pub bytes: &'a [u8],
}

impl<'a> Row<'a> {
    /// Appends the row's value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head());
        out.extend_from_slice(self.bytes);
    }

    /// The bytes of the row's value before the commands.
    pub fn head(&self) -> [u8; HEADER_LEN] {
        let mut head = [0; HEADER_LEN];
        head[..8].copy_from_slice(&self.first_entry.to_be_bytes());
        head[8..12].copy_from_slice(&self.entries.to_be_bytes());
        head[12..].copy_from_slice(&self.unix_ms.0.to_be_bytes());
        head
    }

    /// Reads the value of a row without references.
    pub fn decode(row: &'a [u8]) -> Result<Row<'a>, Corrupt> {
        let stored = Stored::decode(row)?;
        match stored.refs.is_empty() {
            true => Ok(stored.row),
            false => Err(Corrupt("binlog")),
        }
    }
}

/// A row as it is stored: its bytes may lack those of references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The row; its bytes are the rest that is in the row itself.
    pub row: Row<'a>,
    refs: &'a [u8],
}

/// The bit of `entries` of a row with references.
const REFERS: u32 = 1 << 31;
/// Bytes of a reference and its place.
const REF_LEN: usize = 8 + ValueRef::LEN;

impl<'a> Stored<'a> {
    /// Reads a row's value.
    pub fn decode(row: &'a [u8]) -> Result<Stored<'a>, Corrupt> {
        let mut r = Reader::new(row, "binlog");
        let (first_entry, entries) = (r.u64()?, r.u32()?);
        let unix_ms = r.u64().map(UnixMs)?;
        let refs = match entries & REFERS {
            0 => &[],
            _ => {
                let count = r.u32()? as usize;
                r.take(count.checked_mul(REF_LEN).ok_or(Corrupt("binlog"))?)?
            }
        };
        let bytes = r.rest();
        let stored = Stored {
            row: Row {
                first_entry,
                entries: entries & !REFERS,
                unix_ms,
                bytes,
            },
            refs,
        };
        let mut before = 0;
        for (at, _) in stored.refs() {
            if at < before || at > bytes.len() {
                return Err(Corrupt("binlog reference"));
            }
            before = at;
        }
        Ok(stored)
    }

    /// The references, and how many bytes of the rest come before each.
    pub fn refs(&self) -> impl Iterator<Item = (usize, ValueRef)> + use<'a> {
        self.refs.chunks_exact(REF_LEN).filter_map(|pair| {
            let mut r = Reader::new(pair, "binlog reference");
            let at = usize::try_from(r.u64().ok()?).unwrap_or(usize::MAX);
            Some((at, ValueRef::take(&mut r).ok()?))
        })
    }

    /// Bytes of the commands, those of references included: by how much the row advances the
    /// position.
    pub fn command_bytes(&self) -> u64 {
        let referred: u64 = self.refs().map(|(_, at)| at.len).sum();
        self.row.bytes.len() as u64 + referred
    }

    /// Whether all of its bytes are in the row itself.
    pub fn is_plain(&self) -> bool {
        self.refs.is_empty()
    }

    /// Appends the commands to `out`; `read` appends the bytes of a reference.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn resolve<E>(
        &self,
        out: &mut Vec<u8>,
        mut read: impl FnMut(&ValueRef, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        for (at, value) in self.refs() {
            out.extend_from_slice(self.row.bytes.get(done..at).unwrap_or_default());
            read(&value, out)?;
            done = at;
        }
        out.extend_from_slice(self.row.bytes.get(done..).unwrap_or_default());
        Ok(())
    }
}

/// Appends the value of a row whose bytes are `row.bytes` and those of the references, each with
/// the number of bytes of the row before it.
pub fn encode_stored(row: &Row<'_>, refs: &[(usize, ValueRef)], out: &mut Vec<u8>) {
    let entries = match refs.is_empty() {
        true => row.entries,
        false => row.entries | REFERS,
    };
    out.extend_from_slice(&Row { entries, ..*row }.head());
    if !refs.is_empty() {
        out.extend_from_slice(&(refs.len() as u32).to_be_bytes());
    }
    for (at, value) in refs {
        out.extend_from_slice(&(*at as u64).to_be_bytes());
        out.extend_from_slice(&value.encode());
    }
    out.extend_from_slice(row.bytes);
}

/// The key of the row at `position`.
pub fn key(position: Position) -> [u8; 8] {
    position.0.to_be_bytes()
}

/// The position in a row's key.
pub fn position(row_key: &[u8]) -> Result<Position, Corrupt> {
    Reader::new(row_key, "binlog key").u64().map(Position)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row<'_> = Row {
        first_entry: 7,
        entries: 2,
        unix_ms: UnixMs(9),
        bytes: b"abcdef",
    };

    fn at(offset: u64, len: u64) -> ValueRef {
        ValueRef {
            segment: 1,
            offset,
            len,
            packed: 0,
        }
    }

    #[test]
    fn references_are_inserted_where_they_stand() {
        for refs in [
            vec![],
            vec![(3, at(1, 2))],
            vec![(0, at(1, 1)), (2, at(2, 0)), (2, at(3, 4)), (6, at(4, 1))],
        ] {
            let mut value = Vec::new();
            encode_stored(&ROW, &refs, &mut value);
            let stored = Stored::decode(&value).unwrap();
            assert_eq!(stored.row, ROW);
            assert_eq!(stored.refs().collect::<Vec<_>>(), refs);
            let mut bytes = Vec::new();
            let read = |at: &ValueRef, out: &mut Vec<u8>| -> Result<(), ()> {
                out.extend((0..at.len).map(|_| b'0' + at.offset as u8));
                Ok(())
            };
            stored.resolve(&mut bytes, read).unwrap();
            assert_eq!(stored.command_bytes(), bytes.len() as u64);
            let mut wanted = b"abcdef".to_vec();
            for (at, value) in refs.iter().rev() {
                let inserted = (0..value.len).map(|_| b'0' + value.offset as u8);
                wanted.splice(at..at, inserted);
            }
            assert_eq!(bytes, wanted);
            // A replica is sent none.
            assert_eq!(Row::decode(&value).is_ok(), refs.is_empty());
        }
    }

    #[test]
    fn golden_bytes() {
        let mut value = Vec::new();
        encode_stored(&ROW, &[(3, at(5, 2))], &mut value);
        let mut wanted = vec![0, 0, 0, 0, 0, 0, 0, 7, 0x80, 0, 0, 2];
        wanted.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]);
        wanted.extend([0, 0, 0, 0, 0, 0, 0, 3]);
        wanted.extend(at(5, 2).encode());
        wanted.extend(b"abcdef");
        assert_eq!(value, wanted);
    }

    #[test]
    fn what_is_no_row_is_refused() {
        let mut value = Vec::new();
        encode_stored(&ROW, &[(2, at(5, 2)), (1, at(5, 2))], &mut value);
        assert!(Stored::decode(&value).is_err(), "out of order");
        value.clear();
        encode_stored(&ROW, &[(7, at(5, 2))], &mut value);
        assert!(Stored::decode(&value).is_err(), "behind the end");
        value.clear();
        encode_stored(&ROW, &[(3, at(5, 2))], &mut value);
        for len in 0..value.len() - ROW.bytes.len() {
            assert!(Stored::decode(&value[..len]).is_err(), "{len}");
        }
        value[20] = 0xFF;
        assert!(Stored::decode(&value).is_err(), "too many");
    }
}
