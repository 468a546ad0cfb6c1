//! The binlog: the effects of a commit's commands, written in the batch of that commit, and the
//! trimming of the log.
//!
//! I3: rows are numbered under the commit lock. The binlog holds effects,
//! never a request whose meaning depends on when it is run.
//!
//! Trimming moves a mark, below which rows do not count any more. They are deleted with whole
//! files, so the log takes somewhat more space on disk than its bounds allow.

use crate::base::time::UnixMs;
use crate::encoding::binlog::{AtomicPosition, Position, Row, Stored, key, position};
use crate::encoding::system::{self, State};
use crate::storage::engine::log_buffer::{LogBuffer, Received};
use crate::storage::engine::{ColumnFamily, CommitState, Db, Engine};
use crate::storage::{Result, StorageError};
use crate::sys::lock_order::{Lock, Mutex, RwLock};
use rocksdb::WriteBatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// Files are dropped whenever so many more bytes are trimmed, of a long log up to four times as many.
/// The write-ahead log is synced each time.
const FILES_STEP: u64 = 16 << 20;
/// A log is long if this part of it has more bytes.
const FILES_PART: u64 = 16;
/// The same while the disk is low.
const SMALL_STEP: u64 = 1 << 20;

/// The range of the binlog, its watchers and its holds.
#[derive(Debug)]
pub struct Binlog {
    /// Held while the front of the log moves.
    pub(in crate::storage) trim: Mutex<(), { Lock::BinlogTrim as u8 }>,
    enabled: AtomicBool,
    first_position: AtomicPosition,
    first_entry: AtomicU64,
    /// How far the log was trimmed when files were dropped last.
    files_from: AtomicPosition,
    next_position: AtomicPosition,
    next_entry: AtomicU64,
    /// The highest position of a row that could not be read; none: [`Position::NONE`].
    unreadable: AtomicPosition,
    watchers: RwLock<Vec<Arc<Watcher>>, { Lock::Short as u8 }>,
    watched: AtomicUsize,
    holds: Mutex<Vec<Arc<AtomicPosition>>, { Lock::Short as u8 }>,
}

/// A thread that is woken when the binlog grows.
pub struct Watcher {
    asleep: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

impl Watcher {
    /// A watcher that is woken by calling `wake`.
    pub fn new(wake: Box<dyn Fn() + Send + Sync>) -> Arc<Watcher> {
        Arc::new(Watcher {
            asleep: AtomicBool::new(false),
            wake,
        })
    }

    /// Notes that the thread is about to sleep, or that it is awake. Before the thread sleeps it
    /// must read the binlog's range once more.
    pub fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

/// Keeps rows that a replica still needs from being trimmed, up to
/// [`BinlogBounds::hold_max_bytes`].
#[derive(Debug)]
pub struct Hold {
    from: Arc<AtomicPosition>,
}

impl Hold {
    /// Releases everything before `position`.
    pub fn advance(&self, position: Position) {
        self.from.fetch_max(position, Ordering::AcqRel);
    }
}

/// The range that the binlog holds: `[first, next)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BinlogRange {
    /// Position of the first byte still there.
    pub first_position: Position,
    /// Position that the next byte will have.
    pub next_position: Position,
    /// Number of the first entry still there.
    pub first_entry: u64,
    /// Number that the next entry will have.
    pub next_entry: u64,
}

impl Binlog {
    pub(in crate::storage) fn load(
        db: &Db,
        system_cf: &ColumnFamily,
        cf: &ColumnFamily,
        state: &State,
        enabled: bool,
    ) -> Result<Binlog> {
        let trimmed = match db.get_cf(system_cf, system::TRIMMED)? {
            Some(row) => position(&row)?,
            None => Position::NONE,
        };
        let mut rows = db.raw_iterator_cf(cf);
        rows.seek(key(trimmed));
        let (first_position, first_entry) = match rows.item() {
            Some((key, value)) => (position(key)?, Stored::decode(value)?.row.first_entry),
            None => (state.binlog_position, state.binlog_entry),
        };
        rows.status()?;
        Ok(Binlog {
            trim: Mutex::default(),
            enabled: AtomicBool::new(enabled),
            first_position: AtomicPosition::new(first_position),
            first_entry: AtomicU64::new(first_entry),
            files_from: AtomicPosition::default(),
            next_position: AtomicPosition::new(state.binlog_position),
            next_entry: AtomicU64::new(state.binlog_entry),
            unreadable: AtomicPosition::default(),
            watchers: RwLock::default(),
            watched: AtomicUsize::new(0),
            holds: Mutex::default(),
        })
    }

    /// From now on `watcher` is woken when a row is written while it sleeps.
    pub fn watch(&self, watcher: Arc<Watcher>) {
        let mut watchers = self.watchers.write();
        watchers.push(watcher);
        self.watched.store(watchers.len(), Ordering::SeqCst);
    }

    /// Removes a watcher.
    pub fn unwatch(&self, watcher: &Arc<Watcher>) {
        let mut watchers = self.watchers.write();
        watchers.retain(|w| !Arc::ptr_eq(w, watcher));
        self.watched.store(watchers.len(), Ordering::SeqCst);
    }

    fn wake_watchers(&self) {
        if self.watched.load(Ordering::Relaxed) == 0 {
            return;
        }
        fence(Ordering::SeqCst);
        for watcher in self.watchers.read().iter() {
            if watcher.asleep.swap(false, Ordering::SeqCst) {
                (watcher.wake)();
            }
        }
    }

    /// Keeps everything from `position` on until the hold is dropped.
    fn hold(&self, position: Position) -> Hold {
        let from = Arc::new(AtomicPosition::new(position));
        self.holds.lock().push(from.clone());
        Hold { from }
    }

    /// The lowest position that is held.
    fn held(&self) -> Option<Position> {
        let mut holds = self.holds.lock();
        holds.retain(|from| Arc::strong_count(from) > 1);
        holds.iter().map(|from| from.load(Ordering::Acquire)).min()
    }

    /// Restarts the log, which is empty now, where `state` says: the data set was replaced.
    pub(in crate::storage) fn restart(&self, state: &State) {
        self.first_position
            .store(state.binlog_position, Ordering::Release);
        self.first_entry
            .store(state.binlog_entry, Ordering::Release);
        self.next_position
            .store(state.binlog_position, Ordering::Release);
        self.next_entry.store(state.binlog_entry, Ordering::Release);
        self.files_from.store(Position::NONE, Ordering::Relaxed);
        self.unreadable.store(Position::NONE, Ordering::Relaxed);
    }

    /// Notes that there is no readable row at this position: see [`Engine::is_unreadable_from`].
    pub fn note_unreadable(&self, position: Position) {
        self.unreadable.fetch_max(position, Ordering::Relaxed);
    }

    /// Whether commits are logged.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// The range that the log holds.
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
    /// The number of commands to keep.
    pub max_entries: u64,
    /// The number of bytes of commands to keep; 0 is no limit.
    pub max_bytes: u64,
    /// Rows from before this time are trimmed, in ms since the epoch.
    pub oldest_unix_ms: UnixMs,
    /// The number of bytes that a hold may keep; 0 is no limit.
    pub hold_max_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct RowHead {
    position: Position,
    entry: u64,
    unix_ms: UnixMs,
}

impl Engine {
    /// Adds the row of this commit to its batch, or the rows that were received from a master. The
    /// caller holds the commit lock and calls [`Engine::publish_log`] once the batch is written.
    ///
    /// # Errors
    /// [`StorageError::Detached`] if received rows do not continue the log, or come from a master
    /// that is not followed any more.
    pub(in crate::storage) fn put_log(
        &self,
        commit: &mut CommitState,
        log: &mut LogBuffer,
        unix_ms: UnixMs,
        batch: &mut WriteBatch,
    ) -> Result<()> {
        if let Some(received) = &log.received {
            self.put_received(commit, received, batch)?;
            self.forget_upstream(commit, batch);
            return Ok(());
        }
        match &log.stream {
            Some(stream) if !self.is_current(stream.following) => {
                return Err(StorageError::Detached);
            }
            Some(_) => {}
            // What a replica writes of its own accord belongs to no history.
            None if self.is_following() => return Ok(()),
            None => self.forget_upstream(commit, batch),
        }
        if log.has_row() && self.binlog.is_enabled() {
            self.put_row(commit, log, unix_ms, batch)?;
        }
        if let Some(stream) = &log.stream {
            self.put_upstream(commit, stream, batch);
        }
        Ok(())
    }

    /// Adds a row of this server's own commands.
    fn put_row(
        &self,
        commit: &mut CommitState,
        log: &mut LogBuffer,
        unix_ms: UnixMs,
        batch: &mut WriteBatch,
    ) -> Result<()> {
        let at = commit.state.binlog_position;
        commit.history = self.renewed_history(at, batch)?;
        let row = log.complete(commit.state.binlog_entry, unix_ms);
        batch.put_cf(&self.binlog_cf, key(at), row);
        commit.state.binlog_position = at + log.command_bytes();
        commit.state.binlog_entry += u64::from(log.entries);
        Ok(())
    }

    fn put_received(
        &self,
        commit: &mut CommitState,
        received: &Received,
        batch: &mut WriteBatch,
    ) -> Result<()> {
        if !self.is_current(received.following) {
            return Err(StorageError::Detached);
        }
        let (mut at, mut entry) = (commit.state.binlog_position, commit.state.binlog_entry);
        let mut start = 0;
        for &(position, end) in &received.rows {
            let value = received.values.get(start..end).unwrap_or_default();
            let stored = Stored::decode(value)?;
            let row = stored.row;
            if position != at || row.first_entry != entry {
                return Err(StorageError::Detached);
            }
            if self.binlog.is_enabled() {
                batch.put_cf(&self.binlog_cf, key(at), value);
            }
            at = at + stored.command_bytes();
            entry += u64::from(row.entries);
            start = end;
        }
        commit.state.binlog_position = at;
        commit.state.binlog_entry = entry;
        Ok(())
    }

    pub(in crate::storage) fn publish_log(&self, state: &State) {
        let binlog = &self.binlog;
        binlog
            .next_position
            .store(state.binlog_position, Ordering::Release);
        binlog
            .next_entry
            .store(state.binlog_entry, Ordering::Release);
        binlog.wake_watchers();
    }

    /// Holds the binlog from `position` on, or from the first row that is still there. Returns the
    /// hold and the range of the log.
    pub fn hold_binlog(&self, position: Position) -> (Hold, BinlogRange) {
        // A trim that has begun does not know of this hold.
        let _no_trim = self.binlog.trim.lock();
        (self.binlog.hold(position), self.binlog.range())
    }

    /// The position at which the row with the byte at `position` begins. For the next byte to be
    /// written that is `position` itself. `None` if no row has the byte.
    pub fn row_at(&self, position: Position) -> Result<Option<Position>> {
        let range = self.binlog.range();
        if position == range.next_position {
            return Ok(Some(position));
        }
        if position < range.first_position {
            return Ok(None);
        }
        let mut rows = self.db.raw_iterator_cf(&self.binlog_cf);
        rows.seek_for_prev(key(position));
        let Some((row_key, value)) = rows.item() else {
            rows.status()?;
            return Ok(None);
        };
        let start = self::position(row_key)?;
        let len = Stored::decode(value)?.command_bytes();
        Ok((position.since(start) < len).then_some(start))
    }

    /// Whether a row at or after this position cannot be read, so that nobody can continue from here.
    /// The row that was noted is read again: an error may have been a passing one.
    ///
    /// # Errors
    /// It cannot be read now, which says nothing of the next time.
    pub fn is_unreadable_from(&self, position: Position) -> Result<bool> {
        let noted = self.binlog.unreadable.load(Ordering::Relaxed);
        let range = self.binlog.range();
        if noted < position || !(range.first_position..range.next_position).contains(&noted) {
            return Ok(false);
        }
        let mut is_there = false;
        let read = self.read_binlog(noted, |at, _| {
            is_there = at == noted;
            false
        });
        match read {
            Err(error) if error.is_damage() => return Ok(true),
            read => read?,
        }
        if is_there {
            let unreadable = &self.binlog.unreadable;
            unreadable.store(Position::NONE, Ordering::Relaxed);
        }
        Ok(!is_there)
    }

    /// Trims the oldest rows until the log is within all bounds. The cost depends on the number of
    /// files that are dropped, not on the rows. Returns whether anything was trimmed.
    pub fn trim_binlog(&self, bounds: &BinlogBounds) -> Result<bool> {
        let _one_at_a_time = self.binlog.trim.lock();
        let range = self.binlog.range();
        if range.first_position == range.next_position {
            return Ok(false);
        }
        let first = self.row_from(range.first_position, range)?;
        let by_bytes = match bounds.max_bytes {
            0 => Position::NONE,
            bytes => range.next_position.before(bytes),
        };
        let first_entry = range.next_entry.saturating_sub(bounds.max_entries);
        let within = by_bytes <= first.position
            && first_entry <= first.entry
            && bounds.oldest_unix_ms <= first.unix_ms;
        if within {
            return Ok(false);
        }
        let by_entries = self.first_row(range, |row| row.entry >= first_entry)?;
        let by_age = self.first_row(range, |row| row.unix_ms >= bounds.oldest_unix_ms)?;
        let wanted = by_bytes.max(by_entries).max(by_age);
        // A replica that holds a byte needs the row that it is in, from its beginning.
        let held = self.held_from(bounds, range).min(range.next_position);
        let held = self.row_at(held)?.unwrap_or(held);
        let to = self.row_from(wanted.min(held), range)?;
        if to.position <= range.first_position {
            return Ok(false);
        }
        // No range deletion: its tombstone would cover all files of the log, and each compaction
        // would rewrite them. Without it compactions only move them.
        let mark = key(to.position);
        if let Err(error) = self.db.put_cf(&self.system_cf, system::TRIMMED, mark) {
            let error = error.into();
            self.fail(&error);
            return Err(error);
        }
        self.binlog.first_entry.store(to.entry, Ordering::Release);
        self.binlog
            .first_position
            .store(to.position, Ordering::Release);
        let files_from = &self.binlog.files_from;
        let step = match self.disk.is_low() {
            true => SMALL_STEP,
            false => (range.next_position.since(to.position) / FILES_PART)
                .clamp(FILES_STEP, 4 * FILES_STEP),
        };
        if to.position.since(files_from.load(Ordering::Relaxed)) >= step {
            // Dropped files do not come back after a crash, so the mark must be durable first.
            self.sync_wal()?;
            // Both ends of the range are inclusive.
            let last = key(to.position.before(1));
            self.db
                .delete_file_in_range_cf(&self.binlog_cf, key(Position::NONE), last)?;
            files_from.store(to.position, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// The position from which on rows stay because of holds.
    fn held_from(&self, bounds: &BinlogBounds, range: BinlogRange) -> Position {
        let cap = match bounds.hold_max_bytes {
            0 => Position::NONE,
            bytes => range.next_position.before(bytes),
        };
        self.binlog
            .held()
            .map_or(Position::MAX, |from| from.max(cap))
    }

    /// The first row at or after `at`; the end of the log if there is none.
    fn row_from(&self, at: Position, range: BinlogRange) -> Result<RowHead> {
        let mut rows = self.db.raw_iterator_cf(&self.binlog_cf);
        rows.seek(key(at.max(range.first_position)));
        if let Some((key, value)) = rows.item() {
            let row = Stored::decode(value)?.row;
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
            unix_ms: UnixMs::MAX,
        })
    }

    /// The lowest position from which on `wanted` is true, by binary search over
    /// [`Engine::row_from`]. If `wanted` is true for a row, it must be true for all later rows.
    fn first_row(&self, range: BinlogRange, wanted: impl Fn(RowHead) -> bool) -> Result<Position> {
        let (mut low, mut high) = (range.first_position, range.next_position);
        while low < high {
            let middle = low + high.since(low) / 2;
            if wanted(self.row_from(middle, range)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// Calls `each` with position and row for all rows from `from` on, until it returns false. Rows
    /// have the bytes that they refer to.
    pub fn read_binlog(
        &self,
        from: Position,
        mut each: impl FnMut(Position, Row<'_>) -> bool,
    ) -> Result<()> {
        let mut rows = self.db.raw_iterator_cf(&self.binlog_cf);
        rows.seek(key(from));
        let mut whole = Vec::new();
        while let Some((key, value)) = rows.item() {
            let stored = Stored::decode(value)?;
            let mut row = stored.row;
            if !stored.is_plain() {
                whole.clear();
                let read = stored.resolve(&mut whole, |at, out| {
                    self.values.read(at, 0..at.len, out, true)
                });
                match read {
                    // The row was trimmed meanwhile, and then what it refers to was removed.
                    Err(_) if position(key)? < self.binlog.range().first_position => return Ok(()),
                    read => read?,
                }
                row.bytes = &whole;
            }
            if !each(position(key)?, row) {
                return Ok(());
            }
            rows.next();
        }
        Ok(rows.status()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{DbIndex, StorageConfig, Txn};

    #[test]
    fn every_byte_of_the_log_is_in_one_row() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = StorageConfig::for_tests(dir.path().join("db"));
        let engine = Engine::open(config).expect("opens");
        let mut txn = Txn::new(engine.clone());
        let mut starts = vec![engine.binlog.range().next_position];
        for n in 0..5 {
            txn.begin(UnixMs(1)).unwrap();
            for _ in 0..n {
                txn.effect(DbIndex(n), &["SET", "key", "value"]);
            }
            txn.commit().expect("a commit");
            starts.push(engine.binlog.range().next_position);
        }
        starts.dedup();
        let (first, end) = (starts[0], starts[starts.len() - 1]);
        for position in (first.0..=end.0).map(Position) {
            let start = starts.iter().rev().find(|start| **start <= position);
            assert_eq!(engine.row_at(position).expect("a row"), start.copied());
        }
        assert_eq!(engine.row_at(first.before(1)).expect("no row"), None);
        assert_eq!(engine.row_at(end + 1).expect("no row"), None);
    }

    const BOUNDS: BinlogBounds = BinlogBounds {
        max_entries: u64::MAX,
        max_bytes: 0,
        oldest_unix_ms: UnixMs::NONE,
        hold_max_bytes: 0,
    };

    #[test]
    fn what_is_trimmed_does_not_come_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = StorageConfig::for_tests(dir.path().join("db"));
        let open = || Engine::open(config.clone()).expect("opens");
        let mut before = None;
        for entries in [3, 1] {
            let engine = open();
            assert_eq!(
                before.unwrap_or(engine.binlog.range()),
                engine.binlog.range()
            );
            let mut txn = Txn::new(engine.clone());
            for _ in 0..5 {
                txn.begin(UnixMs(1)).unwrap();
                txn.effect(DbIndex(0), &["SET", "key", "value"]);
                txn.commit().expect("a commit");
            }
            let bounds = BinlogBounds {
                max_entries: entries,
                ..BOUNDS
            };
            assert!(engine.trim_binlog(&bounds).expect("a trim"));
            let range = engine.binlog.range();
            assert_eq!(range.next_entry - range.first_entry, entries);
            assert_eq!(
                engine.row_at(range.first_position.before(1)).expect("none"),
                None
            );
            assert_eq!(
                engine.check().expect("a check").faults,
                Vec::<String>::new()
            );
            engine.make_durable().expect("durable");
            before = Some(range);
        }
        assert_eq!(before, Some(open().binlog.range()));
    }

    /// Rows are written once, are never compacted, and are dropped with their files.
    #[test]
    fn trimmed_files_go_and_none_is_written_again() {
        write_and_trim(256 << 10);
    }

    #[test]
    fn a_row_at_the_end_of_a_file_stays_while_it_is_the_first() {
        write_and_trim(20 << 20);
    }

    fn write_and_trim(row_bytes: u64) {
        const KEPT: u64 = 64 << 20;
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = StorageConfig::for_tests(dir.path().join("db"));
        config.value_log_min_bytes = 0;
        let engine = Engine::open(config).expect("opens");
        let size = || {
            let name = "rocksdb.total-sst-files-size";
            let size = engine.db.property_int_value_cf(&engine.binlog_cf, name);
            size.expect("a property").unwrap_or_default()
        };
        let bounds = BinlogBounds {
            max_bytes: KEPT,
            ..BOUNDS
        };
        let noise = std::iter::repeat_with(|| fastrand::u8(..));
        let noise: Vec<u8> = noise.take(row_bytes as usize).collect();
        let mut txn = Txn::new(engine.clone());
        let mut written = 0;
        while written < 6 * KEPT || size() > 2 * KEPT {
            assert!(written < 40 * KEPT, "{} bytes in files", size());
            txn.begin(UnixMs(1)).unwrap();
            txn.effect(DbIndex(0), &[b"SET", b"key", noise.as_slice()]);
            txn.commit().expect("a commit");
            engine.trim_binlog(&bounds).expect("a trim");
            let first = engine.binlog.range().first_position;
            assert_eq!(engine.row_at(first).expect("a row"), Some(first));
            written += row_bytes;
        }
        let name = "rocksdb.cfstats-no-file-histogram";
        let stats = engine.db.property_value_cf(&engine.binlog_cf, name);
        let stats = stats.expect("a property").unwrap_or_default();
        let line = |name| stats.lines().find(|line| line.contains(name));
        let columns: Vec<&str> = line("W-Amp").unwrap().split_whitespace().collect();
        let sum: Vec<&str> = line(" Sum ").unwrap().split_whitespace().collect();
        let at = columns.iter().position(|name| *name == "W-Amp").unwrap();
        // A size has its unit in a column of its own.
        assert_eq!(sum[at + 1], "1.0", "{stats}");
    }

    #[test]
    fn a_bound_of_zero_bytes_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = Engine::open(StorageConfig::for_tests(dir.path().join("db"))).expect("opens");
        for n in 0..10_u64 {
            let mut txn = Txn::new(engine.clone());
            txn.begin(UnixMs(1_000 + n)).unwrap();
            txn.effect(DbIndex(0), &[b"PING"]);
            txn.commit().expect("a commit");
        }
        let all = engine.binlog.range();
        let mut bounds = BOUNDS;
        assert!(!engine.trim_binlog(&bounds).expect("a trim"));
        assert_eq!(engine.binlog.range(), all);
        bounds.max_bytes = all.next_position.since(all.first_position) / 2;
        assert!(engine.trim_binlog(&bounds).expect("a trim"));
        assert_eq!(engine.binlog.range().first_entry, all.next_entry - 5);
        bounds.oldest_unix_ms = UnixMs(1_007);
        assert!(engine.trim_binlog(&bounds).expect("a trim"));
        assert_eq!(engine.binlog.range().first_entry, all.next_entry - 3);
        // A hold keeps the rows that the bounds would trim.
        let (hold, _) = engine.hold_binlog(engine.binlog.range().first_position);
        bounds.max_entries = 1;
        assert!(!engine.trim_binlog(&bounds).expect("a trim"));
        // A byte in the middle of a row keeps that row, and no earlier one.
        hold.advance(engine.binlog.range().first_position + 1);
        assert!(!engine.trim_binlog(&bounds).expect("a trim"));
        drop(hold);
        assert!(engine.trim_binlog(&bounds).expect("a trim"));
        assert_eq!(engine.binlog.range().first_entry, all.next_entry - 1);
    }
}
