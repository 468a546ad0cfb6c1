//! The binlog: what a tick's commands did, logged in the batch that does it,
//! and its trimming.
//!
//! I3: rows are numbered under the commit lock. The binlog holds effects,
//! never a request whose meaning depends on when it is run.

use super::engine::{ColumnFamily, CommitState, Db, Engine};
use super::{DbIndex, Result};
use crate::encoding::binlog::{Row, key, position};
use crate::encoding::own::State;
use rocksdb::WriteBatch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The effects of the commands of one pending batch, as RESP commands.
#[derive(Debug, Default)]
pub struct LogBuffer {
    bytes: Vec<u8>,
    entries: u32,
    /// The DB that the last SELECT in `bytes` chose.
    db: Option<DbIndex>,
}

/// Where [`LogBuffer::rollback`] goes back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSavepoint {
    bytes: usize,
    entries: u32,
    db: Option<DbIndex>,
}

impl LogBuffer {
    /// Bytes logged so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is logged.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Appends one command that was run in `db`.
    pub fn append<A: AsRef<[u8]>>(&mut self, db: DbIndex, args: &[A]) {
        if self.db != Some(db) {
            let mut digits = itoa::Buffer::new();
            let number = digits.format(db.0).as_bytes();
            append_command(&mut self.bytes, &[b"SELECT", number]);
            self.db = Some(db);
        }
        append_command(&mut self.bytes, args);
        self.entries += 1;
    }

    pub(super) fn savepoint(&self) -> LogSavepoint {
        LogSavepoint {
            bytes: self.bytes.len(),
            entries: self.entries,
            db: self.db,
        }
    }

    pub(super) fn rollback(&mut self, to: LogSavepoint) {
        self.bytes.truncate(to.bytes);
        self.entries = to.entries;
        self.db = to.db;
    }

    /// Puts what was appended since `from` between MULTI and EXEC, if it is more
    /// than one command. Savepoints made since then are void. The row's own
    /// SELECT stays in front.
    pub(super) fn wrap(&mut self, from: LogSavepoint) {
        if self.entries - from.entries < 2 {
            return;
        }
        let mut multi = Vec::new();
        append_command(&mut multi, &[b"MULTI"]);
        let at = from.bytes + select_len(&self.bytes[from.bytes..]);
        self.bytes.splice(at..at, multi);
        append_command(&mut self.bytes, &[b"EXEC"]);
    }

    pub(super) fn clear(&mut self) {
        const KEEP_BYTES: usize = 1 << 20;
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
        self.entries = 0;
        self.db = None;
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

fn append_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    let mut digits = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(digits.format(args.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    for arg in args {
        let arg = arg.as_ref();
        out.push(b'$');
        out.extend_from_slice(digits.format(arg.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// What the binlog holds, in memory.
#[derive(Debug)]
pub struct Binlog {
    enabled: AtomicBool,
    first_position: AtomicU64,
    first_entry: AtomicU64,
    next_position: AtomicU64,
    next_entry: AtomicU64,
}

/// The range that the binlog holds: `[first, next)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BinlogRange {
    /// Position of the first byte still there.
    pub first_position: u64,
    /// Position that the next byte will have.
    pub next_position: u64,
    /// Number of the first entry still there.
    pub first_entry: u64,
    /// Number that the next entry will have.
    pub next_entry: u64,
}

impl Binlog {
    pub(super) fn load(db: &Db, cf: &ColumnFamily, state: &State, enabled: bool) -> Result<Binlog> {
        let mut rows = db.raw_iterator_cf(cf);
        rows.seek_to_first();
        let (first_position, first_entry) = match rows.item() {
            Some((key, value)) => (position(key)?, Row::decode(value)?.first_entry),
            None => (state.binlog_position, state.binlog_entry),
        };
        rows.status()?;
        Ok(Binlog {
            enabled: AtomicBool::new(enabled),
            first_position: AtomicU64::new(first_position),
            first_entry: AtomicU64::new(first_entry),
            next_position: AtomicU64::new(state.binlog_position),
            next_entry: AtomicU64::new(state.binlog_entry),
        })
    }

    /// Whether commits are logged.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// What it holds.
    pub fn range(&self) -> BinlogRange {
        BinlogRange {
            first_position: self.first_position.load(Ordering::Acquire),
            next_position: self.next_position.load(Ordering::Acquire),
            first_entry: self.first_entry.load(Ordering::Acquire),
            next_entry: self.next_entry.load(Ordering::Acquire),
        }
    }
}

/// How much of the binlog to keep.
#[derive(Debug, Clone, Copy)]
pub struct BinlogBounds {
    /// Commands.
    pub max_entries: u64,
    /// Bytes of commands.
    pub max_bytes: u64,
    /// Rows from before this time go.
    pub oldest_unix_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct RowHead {
    position: u64,
    entry: u64,
    unix_ms: u64,
}

impl Engine {
    /// Adds the row of this commit to its batch; the caller holds the commit
    /// lock and calls [`Engine::publish_log`] once the batch is written.
    pub(super) fn put_log(
        &self,
        commit: &mut CommitState,
        log: &LogBuffer,
        unix_ms: u64,
        batch: &mut WriteBatch,
    ) {
        if log.is_empty() || !self.binlog.is_enabled() {
            return;
        }
        let row = Row {
            first_entry: commit.state.binlog_entry,
            entries: log.entries,
            unix_ms,
            bytes: &log.bytes,
        };
        commit.scratch.clear();
        row.encode(&mut commit.scratch);
        let at = commit.state.binlog_position;
        batch.put_cf(&self.binlog_cf, key(at), &commit.scratch);
        commit.state.binlog_position += log.bytes.len() as u64;
        commit.state.binlog_entry += u64::from(log.entries);
    }

    pub(super) fn publish_log(&self, state: &State) {
        let binlog = &self.binlog;
        binlog
            .next_position
            .store(state.binlog_position, Ordering::Release);
        binlog
            .next_entry
            .store(state.binlog_entry, Ordering::Release);
    }

    /// Drops the oldest rows until the log is within all bounds; the cost does
    /// not depend on how many go. Returns whether anything went.
    pub fn trim_binlog(&self, bounds: &BinlogBounds) -> Result<bool> {
        let range = self.binlog.range();
        if range.first_position == range.next_position {
            return Ok(false);
        }
        let first = self.row_from(range.first_position, range)?;
        let by_bytes = range.next_position.saturating_sub(bounds.max_bytes);
        let first_entry = range.next_entry.saturating_sub(bounds.max_entries);
        let within = by_bytes <= first.position
            && first_entry <= first.entry
            && bounds.oldest_unix_ms <= first.unix_ms;
        if within {
            return Ok(false);
        }
        let by_entries = self.first_row(range, |row| row.entry >= first_entry)?;
        let by_age = self.first_row(range, |row| row.unix_ms >= bounds.oldest_unix_ms)?;
        let to = self.row_from(by_bytes.max(by_entries).max(by_age), range)?;
        if to.position <= range.first_position {
            return Ok(false);
        }
        let (from, end) = (key(range.first_position), key(to.position));
        self.db.delete_range_cf(&self.binlog_cf, from, end)?;
        self.binlog.first_entry.store(to.entry, Ordering::Release);
        self.binlog
            .first_position
            .store(to.position, Ordering::Release);
        self.db
            .delete_file_in_range_cf(&self.binlog_cf, key(0), end)?;
        Ok(true)
    }

    /// The first row at or after `at`; the end of the log if there is none.
    fn row_from(&self, at: u64, range: BinlogRange) -> Result<RowHead> {
        let mut rows = self.db.raw_iterator_cf(&self.binlog_cf);
        rows.seek(key(at.max(range.first_position)));
        if let Some((key, value)) = rows.item() {
            let row = Row::decode(value)?;
            return Ok(RowHead {
                position: position(key)?,
                entry: row.first_entry,
                unix_ms: row.unix_ms,
            });
        }
        rows.status()?;
        Ok(RowHead {
            position: range.next_position,
            entry: range.next_entry,
            unix_ms: u64::MAX,
        })
    }

    /// The position of the first row that `wanted` holds for, by bisection: it
    /// must hold for all rows after that one.
    fn first_row(&self, range: BinlogRange, wanted: impl Fn(RowHead) -> bool) -> Result<u64> {
        let (mut low, mut high) = (range.first_position, range.next_position);
        while low < high {
            let middle = low + (high - low) / 2;
            if wanted(self.row_from(middle, range)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// Calls `each` with position and row for all rows from `from` on, until it
    /// says false.
    pub fn read_binlog(&self, from: u64, mut each: impl FnMut(u64, Row<'_>) -> bool) -> Result<()> {
        let mut rows = self.db.raw_iterator_cf(&self.binlog_cf);
        rows.seek(key(from));
        while let Some((key, value)) = rows.item() {
            if !each(position(key)?, Row::decode(value)?) {
                return Ok(());
            }
            rows.next();
        }
        Ok(rows.status()?)
    }
}
