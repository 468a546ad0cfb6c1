//! The effects of the commands of one pending batch, as they go into the binlog.

use crate::base::time::UnixMs;
use crate::encoding::binlog::Row;
use crate::encoding::binlog::{HEADER_LEN, Position};
use crate::resp::encode;
use crate::storage::DbIndex;
use crate::storage::engine::history::Following;
use crate::storage::engine::upstream::Stream;

/// The most bytes that a row takes in a write batch besides its key and value: a tag, and the
/// varints of its column family and of two lengths.
pub(in crate::storage) const BATCH_FRAME: usize = 1 + 3 * 5;

/// Larger buffers are freed once their contents are written.
const KEEP_BYTES: usize = 1 << 20;

/// The effects of the commands of one pending batch, as RESP commands.
#[derive(Debug, Default)]
pub struct LogBuffer {
    /// The value of a binlog row: space for its header, then the commands. Empty until there is a
    /// command.
    row: Vec<u8>,
    pub(super) entries: u32,
    /// The DB that the last SELECT in `row` chose.
    db: Option<DbIndex>,
    /// Set for the link to a Kedis master, which logs received rows instead of commands.
    pub(super) received: Option<Received>,
    /// Set for the link to a Redis master: how far its stream is applied.
    pub(in crate::storage) stream: Option<Stream>,
}

/// Rows of the master's binlog that a pending batch applies.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) following: Following,
    /// The position of each row, and the end of its value in `values`.
    pub(super) rows: Vec<(Position, usize)>,
    pub(super) values: Vec<u8>,
}

/// The state to which [`LogBuffer::rollback`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSavepoint {
    row_len: usize,
    entries: u32,
    db: Option<DbIndex>,
}

impl LogBuffer {
    /// Bytes logged so far, headers of rows included.
    pub fn len(&self) -> usize {
        self.row.len() + self.received.as_ref().map_or(0, |r| r.values.len())
    }

    /// About how many bytes it takes in a write batch.
    pub(in crate::storage) fn batch_bytes(&self) -> usize {
        let rows = self.received.as_ref().map_or(1, |r| r.rows.len());
        self.len() + rows * (BATCH_FRAME + size_of::<u64>())
    }

    /// Whether nothing is logged.
    pub fn is_empty(&self) -> bool {
        let reached = self.stream.as_ref().is_some_and(|s| s.reached.is_some());
        !reached && !self.has_row() && self.received.as_ref().is_none_or(|r| r.rows.is_empty())
    }

    /// Whether commands are logged.
    pub(super) fn has_row(&self) -> bool {
        !self.row.is_empty()
    }

    /// From now on only received rows are logged.
    pub(in crate::storage) fn receive(&mut self, following: Following) {
        self.stream = None;
        self.received = Some(Received {
            following,
            rows: Vec::new(),
            values: Vec::new(),
        });
    }

    /// From now on commands are logged, together with the position reached in the stream that they
    /// come from.
    pub(in crate::storage) fn receive_stream(&mut self, stream: Stream) {
        self.received = None;
        self.stream = Some(stream);
    }

    /// Logs a received row.
    pub(in crate::storage) fn push_received(&mut self, at: Position, row: &[u8]) {
        if let Some(received) = &mut self.received {
            received.values.extend_from_slice(row);
            received.rows.push((at, received.values.len()));
        }
    }

    /// Whether it belongs to the link to a master.
    pub(in crate::storage) fn is_received(&self) -> bool {
        self.received.is_some() || self.stream.is_some()
    }

    /// Appends one command that was run in `db`.
    pub fn append<A: AsRef<[u8]>>(&mut self, db: DbIndex, args: &[A]) {
        if self.received.is_some() {
            return;
        }
        if self.row.is_empty() {
            self.row.resize(HEADER_LEN, 0);
        }
        if self.db != Some(db) {
            let mut digits = itoa::Buffer::new();
            let number = digits.format(db.0).as_bytes();
            encode::command(&mut self.row, &[b"SELECT", number]);
            self.db = Some(db);
        }
        encode::command(&mut self.row, args);
        self.entries += 1;
    }

    pub(in crate::storage) fn savepoint(&self) -> LogSavepoint {
        LogSavepoint {
            row_len: self.row.len(),
            entries: self.entries,
            db: self.db,
        }
    }

    pub(in crate::storage) fn rollback(&mut self, to: LogSavepoint) {
        debug_assert!(
            to.row_len <= self.row.len(),
            "a savepoint of an earlier row"
        );
        self.row.truncate(to.row_len);
        self.entries = to.entries;
        self.db = to.db;
    }

    /// Puts what was appended since `from` between MULTI and EXEC, if it is more
    /// than one command. Savepoints made since then are void. The row's own
    /// SELECT stays in front.
    pub(in crate::storage) fn wrap(&mut self, from: LogSavepoint) {
        if self.entries - from.entries < 2 {
            return;
        }
        let mut multi = Vec::new();
        encode::command(&mut multi, &[b"MULTI"]);
        let start = from.row_len.max(HEADER_LEN);
        let at = start + select_len(&self.row[start..]);
        self.row.splice(at..at, multi);
        encode::command(&mut self.row, &[b"EXEC"]);
    }

    /// Completes the row, and returns its value.
    pub(super) fn complete(&mut self, first_entry: u64, unix_ms: UnixMs) -> &[u8] {
        debug_assert!(self.row.len() > HEADER_LEN, "no commands");
        if let Some((head, bytes)) = self.row.split_at_mut_checked(HEADER_LEN) {
            let row = Row {
                first_entry,
                entries: self.entries,
                unix_ms,
                bytes,
            };
            head.copy_from_slice(&row.head());
        }
        &self.row
    }

    /// Bytes of the commands, which is by how much the row advances the position.
    pub(super) fn command_bytes(&self) -> u64 {
        self.row.len().saturating_sub(HEADER_LEN) as u64
    }

    /// Frees long rows: the batch of the commit has a copy of them.
    pub(in crate::storage) fn free_long_rows(&mut self) {
        for bytes in [
            Some(&mut self.row),
            self.received.as_mut().map(|r| &mut r.values),
        ] {
            if let Some(bytes) = bytes.filter(|bytes| bytes.len() > KEEP_BYTES) {
                *bytes = Vec::new();
            }
        }
    }

    pub(in crate::storage) fn clear(&mut self) {
        self.row.clear();
        self.row.shrink_to(KEEP_BYTES);
        self.entries = 0;
        self.db = None;
        if let Some(stream) = &mut self.stream {
            stream.reached = None;
        }
        if let Some(received) = &mut self.received {
            received.rows.clear();
            received.values.clear();
            received.values.shrink_to(KEEP_BYTES);
        }
    }
}

/// Length of the SELECT that `log` begins with, if it does.
fn select_len(log: &[u8]) -> usize {
    const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$";
    let Some(rest) = log.strip_prefix(SELECT) else {
        return 0;
    };
    // The length of the number (one digit), its CRLF, the number, its CRLF.
    let digits = rest.first().map_or(0, |digit| usize::from(digit - b'0'));
    SELECT.len() + 1 + 2 + digits + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_what_was_not_taken_back() {
        let mut log = LogBuffer::default();
        for n in 0..2u64 {
            let start = log.savepoint();
            log.append(DbIndex(0), &["DEL", "gone"]);
            log.rollback(start);
            assert!(log.is_empty());
            assert_eq!((log.len(), log.command_bytes()), (0, 0));
            log.append(DbIndex(3), &["DEL", "one"]);
            let one = log.savepoint();
            log.append(DbIndex(3), &["DEL", "two"]);
            log.rollback(one);
            log.append(DbIndex(3), &["DEL", "six"]);
            log.wrap(start);
            let row = Row::decode(log.complete(7 + n, UnixMs(99))).unwrap();
            assert_eq!(
                (row.first_entry, row.entries, row.unix_ms),
                (7 + n, 2, UnixMs(99))
            );
            let select = "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n";
            let (one, six) = (
                "*2\r\n$3\r\nDEL\r\n$3\r\none\r\n",
                "*2\r\n$3\r\nDEL\r\n$3\r\nsix\r\n",
            );
            let bytes = format!("{select}*1\r\n$5\r\nMULTI\r\n{one}{six}*1\r\n$4\r\nEXEC\r\n");
            assert_eq!(row.bytes, bytes.as_bytes());
            assert_eq!(log.command_bytes(), bytes.len() as u64);
            log.clear();
        }
    }
}
