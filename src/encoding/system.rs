//! System rows, in the column family `default`.
//!
//! ```text
//! 'F'                → layout of meta rows (1): 0 plain, 1 with slots ‖ format version (3)
//! 'H'                → key of the database's hash (16 random bytes)
//! 'R'                → replication id, 40 hexadecimal digits
//! 'N'                → id of this server as a node of a cluster, 40 hexadecimal digits; only with
//!                      `cluster-enabled`
//! 'A'                → histories that this one continues, oldest first: id (40 digits) ‖ end (8)
//! 'M'                → how far a Redis master's stream was applied: history id (40 digits)
//!                      ‖ binlog position (8) ‖ the master's id (40 digits) ‖ offset of the
//!                      stream's next byte (8) ‖ DB (2)
//! 'L'                → (empty): a file is being loaded; what there is, is a part of it
//! 'B'                → whether commits write binlog rows (1)
//! 'T'                → position up to which the binlog is trimmed (8)
//! 'D' ‖ DB (2)       → keyspace id (4): the column family `ks<id>` holds this DB
//! 'L' ‖ name         → the text of a library of functions
//! 'S'                → next collection id (8) ‖ next binlog position (8) ‖ next binlog entry (8)
//!                      ‖ per keyspace below 16: id (4) ‖ keys (8) ‖ keys with an expiry (8)
//! 'C' ‖ keyspace (4) → keys (8) ‖ keys with an expiry (8), of the keyspaces from 16 on
//! 'E' ‖ keyspace (4) → keys some elements of which have an expiry of their own (8)
//! 'K' ‖ keyspace (4) ‖ slot (2) → keys (8), of the slots that have some; only with slots
//! 'V' ‖ segment (8)  → binlog position from which on no row refers to this segment of the value
//!                      log (8)
//! ```
//!
//! Every commit rewrites `S` in its own batch, and with it the counts that change: so counts and
//! positions are exact however the process ends. A row `E` is written when its count changes; a
//! keyspace without one has no such key, or comes from version 3, which did not count them.

use super::binlog::Position;
use super::keys::Layout;
use super::{Corrupt, FORMAT_VERSION, reader::Reader};

/// Key of the format version.
pub const FORMAT: &[u8] = b"F";
/// Key of the hash key.
pub const HASH_KEY: &[u8] = b"H";
/// Key of the replication id.
pub const REPLICATION_ID: &[u8] = b"R";
/// Key of the id as a node of a cluster.
pub const NODE_ID: &[u8] = b"N";
/// Key of the histories that the database's own continues.
pub const ANCESTORS: &[u8] = b"A";
/// Key of the row with the position up to which a Redis master's stream was applied.
pub const UPSTREAM: &[u8] = b"M";
/// Key of the row that exists while a file is being loaded.
pub const LOADING: &[u8] = b"L";
/// Key of the row that says whether commits are logged.
pub const LOGGED: &[u8] = b"B";
/// Key of the row with the position up to which the binlog is trimmed.
pub const TRIMMED: &[u8] = b"T";
/// Key of the state row.
pub const STATE: &[u8] = b"S";
/// First byte of the rows that hold counts of keyspaces.
pub const COUNTS_TAG: u8 = b'C';
/// First byte of the rows that count the keys with timed elements.
pub const TIMED_TAG: u8 = b'E';
/// First byte of the rows that count the keys of slots.
pub const SLOT_TAG: u8 = b'K';
/// Keyspaces below this number have their counts in the state row, which every commit writes. With
/// the counts of thousands of keyspaces it would be long.
const COUNTED_IN_STATE: u32 = 16;
/// First byte of the rows of segments that get no more records.
pub const CLOSED_TAG: u8 = b'V';
/// First byte of the rows that hold libraries of functions.
pub const LIBRARY_TAG: u8 = b'L';
/// First byte of the rows that map DBs to keyspaces.
pub const DB_TAG: u8 = b'D';

/// The number of a keyspace, which is a column family that holds a DB. DBs are mapped to keyspaces,
/// so SWAPDB only changes two small rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

impl KeyspaceId {
    /// The name of its column family.
    pub fn column_family(self) -> String {
        format!("ks{}", self.0)
    }

    /// The keyspace whose column family has this name.
    pub fn of_column_family(name: &str) -> Option<KeyspaceId> {
        let id = KeyspaceId(name.strip_prefix("ks")?.parse().ok()?);
        (id.column_family() == name).then_some(id)
    }
}

/// The key of the row that maps DB number `db`.
pub fn db_row(db: u16) -> [u8; 3] {
    let [high, low] = db.to_be_bytes();
    [DB_TAG, high, low]
}

/// The key of the row that holds a library.
pub fn library_row(name: &[u8]) -> Vec<u8> {
    [&[LIBRARY_TAG], name].concat()
}

/// The DB number of a mapping row.
pub fn split_db_row(row_key: &[u8]) -> Result<u16, Corrupt> {
    let mut r = Reader::new(row_key, "DB map");
    r.take(1)?;
    r.array().map(u16::from_be_bytes)
}

/// The key of the row with the counts of a keyspace, if it has one.
pub fn counts_row(id: KeyspaceId) -> Option<[u8; 5]> {
    let [a, b, c, d] = id.0.to_be_bytes();
    (id.0 >= COUNTED_IN_STATE).then_some([COUNTS_TAG, a, b, c, d])
}

/// The keyspace of a row with counts, of either kind.
pub fn split_counts_row(row_key: &[u8]) -> Result<KeyspaceId, Corrupt> {
    let mut r = Reader::new(row_key, "counts");
    r.take(1)?;
    r.u32().map(KeyspaceId)
}

/// The key of the row that counts a keyspace's keys with timed elements.
pub fn timed_row(id: KeyspaceId) -> [u8; 5] {
    let [a, b, c, d] = id.0.to_be_bytes();
    [TIMED_TAG, a, b, c, d]
}

/// The value of the row of the format version.
pub fn encode_format(layout: Layout) -> [u8; 4] {
    let [_, version @ ..] = FORMAT_VERSION.to_be_bytes();
    let [a, b, c] = version;
    [layout as u8, a, b, c]
}

/// Reads that value: the layout, which this build may not know, and the version.
pub fn decode_format(row: &[u8]) -> Result<(Option<Layout>, u32), Corrupt> {
    let row = <[u8; 4]>::try_from(row).map_err(|_| Corrupt("format version"))?;
    let [layout, a, b, c] = row;
    Ok((Layout::from_byte(layout), u32::from_be_bytes([0, a, b, c])))
}

/// The key of the row that counts the keys of a slot.
pub fn slot_row(id: KeyspaceId, slot: u16) -> [u8; 7] {
    let ([a, b, c, d], [high, low]) = (id.0.to_be_bytes(), slot.to_be_bytes());
    [SLOT_TAG, a, b, c, d, high, low]
}

/// The keyspace and the slot of such a row, and its count.
pub fn decode_slot(row_key: &[u8], row: &[u8]) -> Result<(KeyspaceId, u16, u64), Corrupt> {
    let mut r = Reader::new(row_key, "slot");
    r.take(1)?;
    let id = KeyspaceId(r.u32()?);
    let slot = r.array().map(u16::from_be_bytes)?;
    let keys = Reader::new(row, "slot").u64()?;
    Ok((id, slot, keys))
}

/// Reads the value of such a row.
pub fn decode_timed(row: &[u8]) -> Result<u64, Corrupt> {
    Reader::new(row, "counts").u64()
}

/// The key of the row of a segment of the value log.
pub fn closed_row(segment: u64) -> [u8; 9] {
    let mut key = [CLOSED_TAG; 9];
    key[1..].copy_from_slice(&segment.to_be_bytes());
    key
}

/// Reads the key, after the tag, and the value of such a row.
pub fn decode_closed(key: &[u8], row: &[u8]) -> Result<(u64, Position), Corrupt> {
    let segment = Reader::new(key, "segment").u64()?;
    Ok((segment, Position(Reader::new(row, "segment").u64()?)))
}

/// Key counts of one keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All keys.
    pub keys: u64,
    /// Those with an expiry.
    pub expires: u64,
    /// Those some elements of which have an expiry of their own.
    pub timed: u64,
}

/// How a commit changes the counts of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountsChange {
    /// Of [`Counts::keys`].
    pub keys: i64,
    /// Of [`Counts::expires`].
    pub expires: i64,
    /// Of [`Counts::timed`].
    pub timed: i64,
}

impl CountsChange {
    /// Adds another change.
    pub fn add(&mut self, other: CountsChange) {
        self.keys += other.keys;
        self.expires += other.expires;
        self.timed += other.timed;
    }
}

impl Counts {
    /// The counts after a change.
    #[must_use]
    pub fn plus(self, change: CountsChange) -> Counts {
        Counts {
            keys: self.keys.saturating_add_signed(change.keys),
            expires: self.expires.saturating_add_signed(change.expires),
            timed: self.timed.saturating_add_signed(change.timed),
        }
    }

    /// The change that leaves nothing of them.
    pub fn to_nothing(self) -> CountsChange {
        CountsChange {
            keys: -(self.keys as i64),
            expires: -(self.expires as i64),
            timed: -(self.timed as i64),
        }
    }

    /// The value of a row with counts. Keys with timed elements are counted in another row.
    pub fn encode(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.keys.to_be_bytes());
        out[8..].copy_from_slice(&self.expires.to_be_bytes());
        out
    }

    /// Reads that value.
    pub fn decode(row: &[u8]) -> Result<Counts, Corrupt> {
        Counts::read(&mut Reader::new(row, "counts"))
    }

    fn read(r: &mut Reader<'_>) -> Result<Counts, Corrupt> {
        Ok(Counts {
            keys: r.u64()?,
            expires: r.u64()?,
            timed: 0,
        })
    }
}

/// The state row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// The next collection id: no id from here on was ever used.
    pub next_id: u64,
    /// Position of the next byte of the binlog.
    pub binlog_position: Position,
    /// Number of the next binlog entry.
    pub binlog_entry: u64,
    /// Key counts by keyspace id, of the keyspaces that have them in this row.
    pub counts: Vec<(u32, Counts)>,
}

impl State {
    /// Sets the counts of a keyspace that has them in this row.
    pub fn set_counts(&mut self, id: KeyspaceId, counts: Counts) {
        match self.counts.iter_mut().find(|(known, _)| *known == id.0) {
            Some((_, stored)) => *stored = counts,
            None => self.counts.push((id.0, counts)),
        }
    }

    /// Appends the row's value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.next_id, self.binlog_position.0, self.binlog_entry] {
            out.extend_from_slice(&n.to_be_bytes());
        }
        for (id, counts) in &self.counts {
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&counts.encode());
        }
    }

    /// Reads the row's value.
    pub fn decode(row: &[u8]) -> Result<State, Corrupt> {
        let mut r = Reader::new(row, "state");
        let mut state = State {
            next_id: r.u64()?,
            binlog_position: Position(r.u64()?),
            binlog_entry: r.u64()?,
            counts: Vec::new(),
        };
        while !r.is_empty() {
            let id = r.u32()?;
            state.counts.push((id, Counts::read(&mut r)?));
        }
        Ok(state)
    }
}

/// A history that another one continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// Its replication id.
    pub id: String,
    /// The position up to which both are the same.
    pub end: Position,
}

/// Digits of a replication id.
pub const REPLICATION_ID_LEN: usize = 40;

/// The value of the row [`ANCESTORS`].
pub fn encode_ancestors(ancestors: &[Ancestor]) -> Vec<u8> {
    let mut out = Vec::new();
    for ancestor in ancestors {
        out.extend_from_slice(ancestor.id.as_bytes());
        out.extend_from_slice(&ancestor.end.0.to_be_bytes());
    }
    out
}

/// Reads what [`encode_ancestors`] wrote.
pub fn decode_ancestors(row: &[u8]) -> Result<Vec<Ancestor>, Corrupt> {
    let mut r = Reader::new(row, "ancestors");
    let mut ancestors = Vec::new();
    while !r.is_empty() {
        let id = r.take(REPLICATION_ID_LEN)?;
        ancestors.push(Ancestor {
            id: String::from_utf8_lossy(id).into_owned(),
            end: Position(r.u64()?),
        });
    }
    Ok(ancestors)
}

/// How far the replication stream of a Redis master was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The master's replication id.
    pub id: String,
    /// Offset of the next byte of its stream, as in PSYNC.
    pub next: Position,
    /// The DB selected at that offset.
    pub db: u16,
}

impl Upstream {
    /// The value of the row [`UPSTREAM`], which is valid for the data at this position of this
    /// history.
    pub fn encode(&self, history_id: &str, position: Position) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * REPLICATION_ID_LEN + 18);
        out.extend_from_slice(history_id.as_bytes());
        out.extend_from_slice(&position.0.to_be_bytes());
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(&self.next.0.to_be_bytes());
        out.extend_from_slice(&self.db.to_be_bytes());
        out
    }

    /// Reads that value. `None` if it belongs to another history or position, because something
    /// else was written since.
    pub fn decode(
        row: &[u8],
        history_id: &str,
        position: Position,
    ) -> Result<Option<Upstream>, Corrupt> {
        let mut r = Reader::new(row, "upstream");
        let of_history = r.take(REPLICATION_ID_LEN)? == history_id.as_bytes();
        let at_position = Position(r.u64()?) == position;
        let upstream = Upstream {
            id: String::from_utf8_lossy(r.take(REPLICATION_ID_LEN)?).into_owned(),
            next: Position(r.u64()?),
            db: r.array().map(u16::from_be_bytes)?,
        };
        Ok((of_history && at_position).then_some(upstream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stand_in_the_state_row_or_in_a_row_of_their_own() {
        let counts = Counts {
            keys: 0x0102,
            expires: 3,
            timed: 0,
        };
        let bytes = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3];
        assert_eq!(counts.encode(), bytes);
        assert_eq!(Counts::decode(&bytes), Ok(counts));
        assert!(Counts::decode(&bytes[1..]).is_err());
        assert_eq!(counts_row(KeyspaceId(15)), None);
        let row = counts_row(KeyspaceId(0x0102)).unwrap();
        assert_eq!(row, *b"C\x00\x00\x01\x02");
        assert_eq!(split_counts_row(&row), Ok(KeyspaceId(0x0102)));
        let mut state = State {
            next_id: 1,
            binlog_position: Position(2),
            binlog_entry: 3,
            counts: Vec::new(),
        };
        state.set_counts(KeyspaceId(7), Counts::default());
        state.set_counts(KeyspaceId(7), counts);
        let mut row = Vec::new();
        state.encode(&mut row);
        let head = [1u64, 2, 3].map(u64::to_be_bytes).concat();
        assert_eq!(row, [&head[..], &[0, 0, 0, 7], &bytes].concat());
        assert_eq!(State::decode(&row), Ok(state));
    }

    #[test]
    fn the_format_row_says_the_layout() {
        assert_eq!(encode_format(Layout::Plain), FORMAT_VERSION.to_be_bytes());
        assert_eq!(encode_format(Layout::Slots), [1, 0, 0, 4]);
        for layout in [Layout::Plain, Layout::Slots] {
            let read = decode_format(&encode_format(layout));
            assert_eq!(read, Ok((Some(layout), FORMAT_VERSION)));
        }
        assert_eq!(decode_format(&[2, 0, 0, 9]), Ok((None, 9)));
        assert!(decode_format(&[0, 0, 4]).is_err());
    }

    #[test]
    fn counts_of_slots_have_these_bytes() {
        let row = slot_row(KeyspaceId(0x0102), 0x0304);
        assert_eq!(row, *b"K\0\0\x01\x02\x03\x04");
        let read = decode_slot(&row, &5u64.to_be_bytes());
        assert_eq!(read, Ok((KeyspaceId(0x0102), 0x0304, 5)));
        assert!(decode_slot(&row[..6], &[0; 8]).is_err());
        assert!(decode_slot(&row, &[0; 7]).is_err());
    }

    #[test]
    fn only_our_names_of_column_families_are_ours() {
        let id = KeyspaceId::of_column_family;
        assert_eq!(id("ks17"), Some(KeyspaceId(17)));
        for name in ["ks", "ks017", "ks-1", "ks+1", "ks4294967296", "metadata"] {
            assert_eq!(id(name), None, "{name}");
        }
    }

    #[test]
    fn ancestors_have_these_bytes() {
        let ancestors = vec![Ancestor {
            id: "0123456789".repeat(4),
            end: Position(0x0102),
        }];
        let bytes = encode_ancestors(&ancestors);
        assert_eq!(bytes.len(), 48);
        assert!(bytes.starts_with(b"0123456789") && bytes.ends_with(&[0, 0, 1, 2]));
        assert_eq!(decode_ancestors(&bytes), Ok(ancestors));
        assert!(decode_ancestors(&bytes[1..]).is_err());
    }

    #[test]
    fn upstream_counts_for_the_data_that_it_was_written_with() {
        let upstream = Upstream {
            id: "0123456789".repeat(4),
            next: Position(0x0102),
            db: 3,
        };
        let history = "f".repeat(40);
        let row = upstream.encode(&history, Position(7));
        assert_eq!(row.len(), 98);
        assert!(row.ends_with(&[b'9', 0, 0, 0, 0, 0, 0, 1, 2, 0, 3]));
        let read = |history: &str, position| Upstream::decode(&row, history, Position(position));
        assert_eq!(read(&history, 7), Ok(Some(upstream.clone())));
        assert_eq!(read(&history, 8), Ok(None));
        assert_eq!(read(&"e".repeat(40), 7), Ok(None));
        assert!(Upstream::decode(&row[1..], &history, Position(7)).is_err());
    }
}
