//! Binlog rows: the effects of one commit, as commands that can be replayed.
//!
//! ```text
//! position of the first byte (8) → first entry (8) ‖ entries (4) ‖ unix ms (8) ‖ bytes
//! ```
//!
//! The bytes are commands in RESP, as in a Redis replication stream, and a position counts these
//! bytes: the next row's position is this one's plus the length of its bytes, so a hole would be
//! noticed. Every row begins with a SELECT, so a reader can start at any row without knowing the
//! rows before. Commands between MULTI and EXEC, which never span rows, belong together.

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

    /// Reads a row's value.
    pub fn decode(row: &'a [u8]) -> Result<Row<'a>, Corrupt> {
        let mut r = Reader::new(row, "binlog");
        Ok(Row {
            first_entry: r.u64()?,
            entries: r.u32()?,
            unix_ms: r.u64().map(UnixMs)?,
            bytes: r.rest(),
        })
    }
}

/// The key of the row at `position`.
pub fn key(position: Position) -> [u8; 8] {
    position.0.to_be_bytes()
}

/// The position in a row's key.
pub fn position(row_key: &[u8]) -> Result<Position, Corrupt> {
    Reader::new(row_key, "binlog key").u64().map(Position)
}
