//! The effects of the commands of one pending batch, as they go into the binlog.

use crate::base::time::UnixMs;
use crate::encoding::binlog::{HEADER_LEN, Position, Row, encode_stored};
use crate::encoding::values::ValueRef;
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
    /// Long arguments that stand in the value log, or all commands, and where in `row` they belong.
    refs: Vec<(usize, ValueRef)>,
    /// The row with its references, as it is stored.
    stored: Vec<u8>,
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
    /// Bytes logged so far, headers of rows included, those in the value log not.
    pub fn len(&self) -> usize {
        self.row.len() + self.received.as_ref().map_or(0, |r| r.values.len())
    }

    /// About how many bytes it takes in a write batch.
    pub(in crate::storage) fn batch_bytes(&self) -> usize {
        let rows = self.received.as_ref().map_or(1, |r| r.rows.len());
        let refs = self.refs.len() * (size_of::<u64>() + ValueRef::LEN);
        self.len() + refs + rows * (BATCH_FRAME + size_of::<u64>())
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

    /// Logs a received row. `logged` are the parts of its commands that stand in the value log, in
    /// order: where they begin in `row.bytes`, and where they are.
    pub(in crate::storage) fn push_received(
        &mut self,
        at: Position,
        row: &Row<'_>,
        logged: &[(usize, ValueRef)],
    ) {
        let Some(received) = &mut self.received else {
            return;
        };
        match logged.is_empty() {
            true => row.encode(&mut received.values),
            false => {
                let (mut rest, mut refs, mut done) = (Vec::new(), Vec::new(), 0);
                for (from, value) in logged {
                    rest.extend_from_slice(row.bytes.get(done..*from).unwrap_or_default());
                    refs.push((rest.len(), *value));
                    done = from + value.len as usize;
                }
                rest.extend_from_slice(row.bytes.get(done..).unwrap_or_default());
                let bytes = rest.as_slice();
                encode_stored(&Row { bytes, ..*row }, &refs, &mut received.values);
            }
        }
        received.rows.push((at, received.values.len()));
    }

    /// Whether it belongs to the link to a master.
    pub(in crate::storage) fn is_received(&self) -> bool {
        self.received.is_some() || self.stream.is_some()
    }

    /// Whether it belongs to the link to a Kedis master.
    pub(in crate::storage) fn replays_rows(&self) -> bool {
        self.received.is_some()
    }

    /// Appends one command that was run in `db`.
    pub fn append<A: AsRef<[u8]>>(&mut self, db: DbIndex, args: &[A]) {
        if self.begin_command(db) {
            encode::command(&mut self.row, args);
            self.entries += 1;
        }
    }

    /// Likewise for a command with arguments that stand in the value log: for each argument where.
    pub(in crate::storage) fn append_referring<A: AsRef<[u8]>>(
        &mut self,
        db: DbIndex,
        args: &[A],
        places: &[Option<ValueRef>],
    ) {
        if !self.begin_command(db) {
            return;
        }
        encode::command_head(&mut self.row, args.len());
        for (arg, place) in args.iter().zip(places) {
            let arg = arg.as_ref();
            match place {
                Some(at) => {
                    encode::argument_head(&mut self.row, arg.len());
                    self.refs.push((self.row.len(), *at));
                    self.row.extend_from_slice(b"\r\n");
                }
                None => encode::argument(&mut self.row, arg),
            }
        }
        self.entries += 1;
    }

    /// Begins a command that is run in `db`, unless received rows are logged instead.
    fn begin_command(&mut self, db: DbIndex) -> bool {
        if self.received.is_some() {
            return false;
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
        true
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
        // What follows an argument belongs to its command.
        let kept = self.refs.partition_point(|(at, _)| *at < to.row_len);
        self.refs.truncate(kept);
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
        let moved = self.refs.iter_mut().filter(|(place, _)| *place >= at);
        moved.for_each(|(place, _)| *place += multi.len());
        self.row.splice(at..at, multi);
        encode::command(&mut self.row, &[b"EXEC"]);
    }

    /// The commands, if all of their bytes stand in the row.
    pub(in crate::storage) fn plain_row(&self) -> Option<&[u8]> {
        let is_plain = self.received.is_none() && self.refs.is_empty();
        self.row.get(HEADER_LEN..).filter(|_| is_plain)
    }

    /// The commands stand in the value log, and nothing in the row.
    pub(in crate::storage) fn refer_to(&mut self, commands: ValueRef) {
        debug_assert_eq!(
            self.plain_row().map(<[u8]>::len),
            Some(commands.len as usize)
        );
        self.row.truncate(HEADER_LEN);
        self.row.shrink_to(KEEP_BYTES);
        self.refs.push((HEADER_LEN, commands));
    }

    /// Completes the row, and returns its value.
    pub(super) fn complete(&mut self, first_entry: u64, unix_ms: UnixMs) -> &[u8] {
        debug_assert!(self.command_bytes() > 0, "no commands");
        if let Some((head, bytes)) = self.row.split_at_mut_checked(HEADER_LEN) {
            let row = Row {
                first_entry,
                entries: self.entries,
                unix_ms,
                bytes,
            };
            if !self.refs.is_empty() {
                self.refs.iter_mut().for_each(|(at, _)| *at -= HEADER_LEN);
                self.stored.clear();
                encode_stored(&row, &self.refs, &mut self.stored);
                self.refs.iter_mut().for_each(|(at, _)| *at += HEADER_LEN);
                return &self.stored;
            }
            head.copy_from_slice(&row.head());
        }
        &self.row
    }

    /// Bytes of the commands, which is by how much the row advances the position.
    pub(super) fn command_bytes(&self) -> u64 {
        let referred: u64 = self.refs.iter().map(|(_, at)| at.len).sum();
        self.row.len().saturating_sub(HEADER_LEN) as u64 + referred
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
        self.refs.clear();
        self.stored.clear();
        self.stored.shrink_to(KEEP_BYTES);
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
    use crate::encoding::binlog::Stored;

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

    /// References move with the bytes around them, and are taken back with their commands.
    #[test]
    fn a_row_refers_to_what_stands_elsewhere() {
        let mut log = LogBuffer::default();
        let value = |offset| ValueRef {
            segment: 1,
            offset,
            len: 5,
            packed: 0,
        };
        let start = log.savepoint();
        let args = ["SET", "k", "12345"];
        log.append_referring(DbIndex(0), &args, &[None, None, Some(value(7))]);
        let one = log.savepoint();
        log.append_referring(DbIndex(0), &args, &[None, None, Some(value(8))]);
        log.rollback(one);
        log.append(DbIndex(0), &["DEL", "k"]);
        log.append_referring(DbIndex(0), &args, &[None, None, Some(value(9))]);
        log.wrap(start);
        let len = log.command_bytes();
        let stored = Stored::decode(log.complete(7, UnixMs(99))).unwrap();
        assert_eq!((stored.row.entries, stored.command_bytes()), (3, len));
        let mut bytes = Vec::new();
        let read = |at: &ValueRef, out: &mut Vec<u8>| -> Result<(), ()> {
            out.extend_from_slice(format!("{:05}", at.offset).as_bytes());
            Ok(())
        };
        stored.resolve(&mut bytes, read).unwrap();
        let select = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
        let set = |value| format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\n{value}\r\n");
        let wanted = format!(
            "{select}*1\r\n$5\r\nMULTI\r\n{}*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n{}*1\r\n$4\r\nEXEC\r\n",
            set("00007"),
            set("00009")
        );
        assert_eq!(String::from_utf8(bytes).unwrap(), wanted);
        assert_eq!(len, wanted.len() as u64);
        log.clear();
        assert!(log.is_empty() && log.command_bytes() == 0);
    }
}
