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

/// The position of the first byte that a new database logs.
pub const FIRST_POSITION: u64 = 1;

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
    pub unix_ms: u64,
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
        head[12..].copy_from_slice(&self.unix_ms.to_be_bytes());
        head
    }

    /// Reads a row's value.
    pub fn decode(row: &'a [u8]) -> Result<Row<'a>, Corrupt> {
        let mut r = Reader::new(row, "binlog");
        Ok(Row {
            first_entry: r.u64()?,
            entries: r.u32()?,
            unix_ms: r.u64()?,
            bytes: r.rest(),
        })
    }
}

/// The key of the row at `position`.
pub fn key(position: u64) -> [u8; 8] {
    position.to_be_bytes()
}

/// The position in a row's key.
pub fn position(row_key: &[u8]) -> Result<u64, Corrupt> {
    Reader::new(row_key, "binlog key").u64()
}
