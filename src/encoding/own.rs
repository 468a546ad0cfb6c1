//! The server's own rows, in the column family `default`.
//!
//! ```text
//! 'F'                → format version (4)
//! 'H'                → key of the database's hash (16 random bytes)
//! 'R'                → replication id, 40 hexadecimal digits
//! 'B'                → whether commits write binlog rows (1)
//! 'D' ‖ DB (2)       → keyspace id (4): the column family `ks<id>` holds this DB
//! 'S'                → next collection id (8) ‖ next binlog position (8) ‖ next binlog entry (8)
//!                      ‖ per keyspace: id (4) ‖ keys (8) ‖ keys with an expiry (8)
//! ```
//!
//! `S` is rewritten by every commit, in the commit's own batch: counts and
//! positions are exact whatever ends the process.

use super::{Corrupt, reader::Reader};

/// Key of the format version.
pub const FORMAT: &[u8] = b"F";
/// Key of the hash key.
pub const HASH_KEY: &[u8] = b"H";
/// Key of the replication id.
pub const REPLICATION_ID: &[u8] = b"R";
/// Key of the row that says whether commits are logged.
pub const LOGGED: &[u8] = b"B";
/// Key of the state row.
pub const STATE: &[u8] = b"S";
/// First byte of the rows that map DBs to keyspaces.
pub const DB_TAG: u8 = b'D';

/// The number of a keyspace, that is of a column family that holds a DB. DBs
/// are mapped to keyspaces, so that SWAPDB moves two small rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

impl KeyspaceId {
    /// The name of its column family.
    pub fn column_family(self) -> String {
        format!("ks{}", self.0)
    }
}

/// The key of the row that maps DB number `db`.
pub fn db_row(db: u16) -> [u8; 3] {
    let [high, low] = db.to_be_bytes();
    [DB_TAG, high, low]
}

/// The DB number of a mapping row.
pub fn split_db_row(row_key: &[u8]) -> Result<u16, Corrupt> {
    let mut r = Reader::new(row_key, "DB map");
    r.take(1)?;
    r.array().map(u16::from_be_bytes)
}

/// Key counts of one keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All keys.
    pub keys: u64,
    /// Those with an expiry.
    pub expires: u64,
}

/// The state row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// No id from here on was ever used.
    pub next_id: u64,
    /// Position of the next byte of the binlog.
    pub binlog_position: u64,
    /// Number of the next binlog entry.
    pub binlog_entry: u64,
    /// Key counts by keyspace id.
    pub counts: Vec<(u32, Counts)>,
}

impl State {
    /// Appends the row's value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.next_id, self.binlog_position, self.binlog_entry] {
            out.extend_from_slice(&n.to_be_bytes());
        }
        for (id, counts) in &self.counts {
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&counts.keys.to_be_bytes());
            out.extend_from_slice(&counts.expires.to_be_bytes());
        }
    }

    /// Reads the row's value.
    pub fn decode(row: &[u8]) -> Result<State, Corrupt> {
        let mut r = Reader::new(row, "state");
        let mut state = State {
            next_id: r.u64()?,
            binlog_position: r.u64()?,
            binlog_entry: r.u64()?,
            counts: Vec::new(),
        };
        while !r.is_empty() {
            let id = r.u32()?;
            let counts = Counts {
                keys: r.u64()?,
                expires: r.u64()?,
            };
            state.counts.push((id, counts));
        }
        Ok(state)
    }
}
