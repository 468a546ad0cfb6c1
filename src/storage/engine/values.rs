//! The value log: files that hold the bytes of long values, each written once.
//!
//! A long value in a table of RocksDB is written to the write-ahead log, to a table, and by each
//! compaction again; and in a binlog row once more to both. Here it is appended to a segment
//! ([`segment`]), and the row of the data and the row of the binlog hold the place
//! ([`ValueRef`]). A row of the binlog whose commands are many bytes, each of them short, is appended
//! as a whole. What only rows of the binlog refer to has segments of its own ([`Holds`]).
//!
//! **Order.** The bytes of a value are with the operating system before the commit that names them
//! is written, and on the disk before that commit counts as durable ([`ValueLog::sync`]). Bytes
//! that no commit names, because the command failed or the process died, are garbage from the
//! start.
//!
//! **Readers.** A row is read, and then the value where the row says. A value that moves
//! ([`super::super::values`]) gets a new place first, and its old segment is removed only when
//! nobody can still have read the old row, or reads it from a snapshot.

mod list;
mod open_files;
mod packed;
mod reading;
mod records;
mod segment;

pub(in crate::storage) use records::Records;
pub(in crate::storage) use segment::{Holds, Owner, Pin, Record, Segment};

use super::{Engine, StorageConfig};
use crate::encoding::binlog::Position;
use crate::encoding::system;
use crate::encoding::values::ValueRef;
use crate::storage::corruption::corruptions;
use crate::storage::{Result, StorageError};
use crate::sys::files::{create_dir_all, sync_dir};
use crate::sys::lock_order::{Lock, Mutex, RwLock};
use list::{List, Listed};
use open_files::OpenFiles;
use packed::{CHUNK, Packing};
use segment::{FILE_HEAD, RECORD_HEAD, Samples, record_len, stored_len};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The directory of the segments, inside of the database's.
pub(in crate::storage) const DIR: &str = "values";
/// The file that lists them, in the database's.
pub(super) const LIST: &str = list::NAME;
/// A longer value is packed and written in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;
/// Buffers that are larger are freed after use.
const KEEP_BYTES: usize = 2 * PIECE_BYTES;

/// How many of the wanted bytes of disk space a new segment may take at once.
pub(super) type Preallocation = Box<dyn Fn(u64) -> u64 + Send + Sync>;

/// The segment that gets records.
#[derive(Default)]
struct Filling {
    segment: Option<Arc<Segment>>,
    samples: Samples,
}

/// Where the next records go.
#[derive(Default)]
struct Tail {
    values: Filling,
    binlog: Filling,
    /// The number of the next segment.
    next: u64,
    buffer: Vec<u8>,
}

impl Tail {
    fn filling(&mut self, holds: Holds) -> &mut Filling {
        match holds {
            Holds::Values => &mut self.values,
            Holds::Binlog => &mut self.binlog,
        }
    }
}

/// All segments.
pub(in crate::storage) struct ValueLog {
    dir: PathBuf,
    /// A segment of this size gets no more records.
    segment_bytes: u64,
    /// A shorter value is not packed: those that pack well are not here.
    packed_min_bytes: u64,
    files: Arc<OpenFiles>,
    preallocation: Preallocation,
    segments: RwLock<BTreeMap<u64, Arc<Segment>>, { Lock::Short as u8 }>,
    tail: Mutex<Tail, { Lock::ValueLogTail as u8 }>,
    /// Segments that may hold bytes that the disk does not have.
    unsynced: Mutex<Vec<Arc<Segment>>, { Lock::Short as u8 }>,
    /// The directory has entries that the disk may not have.
    has_new_files: AtomicBool,
    /// Held by the thread that syncs: another must not believe that all is synced before it is.
    syncing: Mutex<(), { Lock::ValueLogSync as u8 }>,
    /// Which segments the file has that lists them.
    listed: Mutex<Listed, { Lock::ValueLogList as u8 }>,
    /// A sync has failed, and what it lacks was not written again.
    sync_failed: AtomicBool,
    /// Whether the last value could not be written.
    refuses: AtomicBool,
    /// Bytes of all files.
    bytes: AtomicU64,
    /// Bytes of values that were appended since the start, without those of the binlog alone.
    appended: AtomicU64,
}

impl fmt::Debug for ValueLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueLog").field("dir", &self.dir).finish()
    }
}

impl ValueLog {
    /// Opens the value log of a database, of whose segments at most `most_open` stay open for reading.
    /// Its directory is made with the first value.
    ///
    /// # Errors
    /// A segment cannot be read, or is none.
    pub(super) fn open(
        config: &StorageConfig,
        most_open: usize,
        preallocation: Preallocation,
    ) -> Result<ValueLog> {
        let dir = config.dir.join(DIR);
        let open_files = OpenFiles::new(most_open);
        let mut segments = BTreeMap::new();
        for (number, path) in files(&dir)? {
            let segment = Segment::open(path, number, &open_files)?;
            segments.insert(number, Arc::new(segment));
        }
        if !segments.is_empty() {
            // A process that was killed may have synced none of what it has written.
            let file = std::fs::File::open(&dir)?;
            rustix::fs::syncfs(file).map_err(io::Error::from)?;
        }
        let bytes = segments.values().map(|segment| segment.file_len()).sum();
        let next = segments.last_key_value().map_or(1, |(last, _)| last + 1);
        Ok(ValueLog {
            dir,
            segment_bytes: config.value_log_segment_bytes,
            packed_min_bytes: config.value_log_packed_min_bytes,
            files: open_files,
            preallocation,
            segments: RwLock::new(segments),
            tail: Mutex::new(Tail {
                next,
                ..Tail::default()
            }),
            unsynced: Mutex::default(),
            has_new_files: AtomicBool::new(false),
            syncing: Mutex::default(),
            listed: Mutex::new(Listed::new(&config.dir)),
            sync_failed: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            bytes: AtomicU64::new(bytes),
            appended: AtomicU64::new(0),
        })
    }

    /// Appends a value. The caller keeps the pin until its turn has ended.
    ///
    /// # Errors
    /// The disk does not take it. Nothing was appended then.
    pub(in crate::storage) fn append(
        &self,
        owner: Owner,
        value: &[u8],
    ) -> io::Result<(ValueRef, Pin)> {
        let first = &value[..value.len().min(PIECE_BYTES)];
        let len = value.len() as u64;
        PACKING.with_borrow_mut(|packing| {
            let packs = len >= self.packed_min_bytes && packing.begin(first, len);
            let packing = packs.then_some(packing);
            self.append_packed(owner, value, packing)
        })
    }

    /// Appends the bytes of a row of the binlog, as they are: to pack them would take the time of the
    /// thread that commits. Otherwise like [`ValueLog::append`].
    fn append_row(&self, bytes: &[u8]) -> io::Result<(ValueRef, Pin)> {
        self.append_packed(Owner::Binlog, bytes, None)
    }

    /// Logs when values begin to be refused, and when they are written again.
    fn note_refused(&self, error: Option<&io::Error>) {
        if error.is_some() == self.refuses.load(Ordering::Relaxed) {
            return;
        }
        let did = self.refuses.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !did => log::error!(
                "the value log cannot be written: {error}. Commands with long values are refused (MISCONF)"
            ),
            None if did => log::info!("the value log is written again"),
            _ => {}
        }
    }

    /// Appends a value of which the first piece is packed, unless that does not pay.
    fn append_packed(
        &self,
        owner: Owner,
        value: &[u8],
        packing: Option<&mut Packing>,
    ) -> io::Result<(ValueRef, Pin)> {
        let (len, holds) = (value.len() as u64, Holds::of(owner));
        let mut tail = self.tail.lock();
        let segment = self.tail_for(&mut tail, holds, record_len(len))?;
        let buffer = &mut tail.buffer;
        let written = segment.write_record(owner, value, PIECE_BYTES, packing, buffer);
        buffer.clear();
        buffer.shrink_to(KEEP_BYTES);
        let record = written?;
        let stored = stored_len(&record.at);
        segment.grow(record.at.offset + stored);
        // Under the lock: a segment that is sealed has all of its pins.
        let pin = Pin::new(&segment);
        self.bytes.fetch_add(stored, Ordering::Relaxed);
        if holds == Holds::Values {
            self.appended.fetch_add(len, Ordering::Relaxed);
            tail.values.samples.consider(record);
        }
        Ok((record.at, pin))
    }

    /// The segment for a record of so many bytes.
    fn tail_for(&self, tail: &mut Tail, holds: Holds, bytes: u64) -> io::Result<Arc<Segment>> {
        if let Some(segment) = &tail.filling(holds).segment {
            let end = segment.end();
            if end == FILE_HEAD || end + bytes <= self.segment_bytes {
                return Ok(segment.clone());
            }
        }
        create_dir_all(&self.dir)?;
        let segment = Segment::create(&self.dir, tail.next, holds, &self.files)?;
        let segment = Arc::new(segment);
        segment.preallocate((self.preallocation)(self.segment_bytes));
        self.has_new_files.store(true, Ordering::Release);
        tail.next += 1;
        self.bytes.fetch_add(FILE_HEAD, Ordering::Relaxed);
        self.segments
            .write()
            .insert(segment.number, segment.clone());
        self.unsynced.lock().push(segment.clone());
        let next = Filling {
            segment: Some(segment.clone()),
            samples: Samples::default(),
        };
        self.close(std::mem::replace(tail.filling(holds), next));
        Ok(segment)
    }

    /// Begins new segments with the next records. Returns the number of the first: those before it
    /// are closed.
    pub(in crate::storage) fn roll(&self) -> u64 {
        let mut tail = self.tail.lock();
        for holds in [Holds::Values, Holds::Binlog] {
            self.close(std::mem::take(tail.filling(holds)));
        }
        tail.next
    }

    /// Reads which segments are listed, and gives back the space that an earlier start had preallocated. The
    /// caller has locked the database, and has given up what is missing. `known` is the highest number of a
    /// segment that the database knows, be it there or not.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn take_over(&self, known: Option<u64>) -> io::Result<()> {
        self.listed.lock().read();
        let last = files(&self.dir)?.last_key_value().map(|(last, _)| *last);
        if let Some(last) = last.max(known) {
            // Rows may refer to a segment that is lost.
            let mut tail = self.tail.lock();
            tail.next = tail.next.max(last + 1);
        }
        let segments = self.segments.read().clone();
        segments.values().for_each(|segment| segment.give_back());
        Ok(())
    }

    /// Ends a segment, if there is one.
    fn close(&self, filling: Filling) {
        let Some(segment) = filling.segment else {
            return;
        };
        let before = segment.file_len();
        segment.seal(filling.samples);
        let grown = segment.file_len() - before;
        self.bytes.fetch_add(grown, Ordering::Relaxed);
    }

    /// Adds all segments to a copy of the database. The caller keeps them from being removed from
    /// before the rows were copied.
    ///
    /// # Errors
    /// The copy cannot be written.
    pub(super) fn add_to_copy(&self, copy: &Path) -> Result<()> {
        let next = self.roll();
        self.sync()?;
        // Rows that were copied before refer to no later one, to which values are being appended.
        let mut segments = self.segments.read().clone();
        segments.retain(|number, _| *number < next);
        if segments.is_empty() {
            return Ok(());
        }
        let dir = copy.join(DIR);
        std::fs::create_dir(&dir)?;
        for segment in segments.values() {
            let to = segment::path(&dir, segment.number);
            // Bytes of a segment never change. Another file system has no second name for them.
            if std::fs::hard_link(segment.path(), &to).is_err() {
                std::fs::copy(segment.path(), &to)?;
                std::fs::File::open(&to)?.sync_all()?;
            }
        }
        sync_dir(&dir)?;
        Ok(list::write(copy, &list_of(&segments))?)
    }

    /// Lists the segments that the disk has, if others are listed.
    ///
    /// # Errors
    /// The list cannot be written.
    pub(super) fn list(&self) -> io::Result<()> {
        let mut listed = self.listed.lock();
        let list = list_of(&self.segments.read());
        let Some(list) = listed.due(list) else {
            return Ok(());
        };
        // What is not in the directory after a crash must not be listed.
        if self.dir.exists() {
            sync_dir(&self.dir)?;
        }
        listed.put(list)
    }

    /// Lists segments no more, to which nothing refers. They can be removed then.
    ///
    /// # Errors
    /// The list can neither be written nor removed.
    pub(in crate::storage) fn take_off_list(&self, numbers: &[u64]) -> io::Result<()> {
        self.listed.lock().take_off(numbers)
    }

    /// Makes everything appended until now durable.
    ///
    /// # Errors
    /// What the disk reports. What it has of the values is not known then, and the next sync would not
    /// meet the error again. So all fail until [`ValueLog::write_again`].
    pub(in crate::storage) fn sync(&self) -> io::Result<()> {
        let _one_at_a_time = self.syncing.lock();
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let synced = self.sync_alone();
        self.sync_failed.store(synced.is_err(), Ordering::Release);
        synced
    }

    /// One thread at a time calls it.
    fn sync_alone(&self) -> io::Result<()> {
        let unsynced = self.unsynced.lock().clone();
        if unsynced.is_empty() {
            return Ok(());
        }
        for segment in &unsynced {
            segment.sync()?;
        }
        if self.has_new_files.swap(false, Ordering::AcqRel)
            && let Err(error) = sync_dir(&self.dir)
        {
            self.has_new_files.store(true, Ordering::Release);
            return Err(error);
        }
        let is_done = |segment: &mut Arc<Segment>| segment.is_sealed() && !segment.is_dirty();
        let done: Vec<_> = self.unsynced.lock().extract_if(.., is_done).collect();
        done.iter().for_each(|segment| segment.let_close());
        Ok(())
    }

    /// After a sync that failed: writes what was not synced anew, from the operating system's
    /// memory, since the kernel does not write pages a second time that it could not write.
    pub(super) fn write_again(&self) -> Result<()> {
        let _no_sync = self.syncing.lock();
        let unsynced = self.unsynced.lock().clone();
        for segment in &unsynced {
            segment.write_again()?;
        }
        self.sync_failed.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes up for a sync that has failed, if one has.
    pub(super) fn recover(&self) -> Result<()> {
        if self.sync_failed.load(Ordering::Acquire) {
            self.write_again()?;
            self.sync()?;
        }
        Ok(())
    }

    fn segment(&self, number: u64) -> Result<Arc<Segment>> {
        let found = self.segments.read().get(&number).cloned();
        found.ok_or_else(|| {
            let text = format!("segment {number} of the value log is missing");
            StorageError::Io(io::Error::new(io::ErrorKind::NotFound, text))
        })
    }

    /// Reads as [`Segment::read`] does.
    pub(in crate::storage) fn read(
        &self,
        at: &ValueRef,
        range: Range<u64>,
        out: &mut Vec<u8>,
        may_wait: bool,
    ) -> Result<()> {
        let segment = self.segment(at.segment)?;
        let done = segment.read(at, range, out, may_wait);
        done.inspect_err(|error| self.note_damage(&segment, error))
    }

    /// Notes that a segment has not what was written to it, if an error says so, and if it was not removed
    /// meanwhile.
    pub(in crate::storage) fn note_damage(&self, segment: &Segment, error: &StorageError) {
        if error.is_damage() && self.segments.read().contains_key(&segment.number) {
            corruptions().note_in(Some(segment.path().to_owned()), &error.to_string());
        }
    }

    /// Whether there is a file that is long enough to hold the value.
    pub(super) fn may_have(&self, at: &ValueRef) -> bool {
        let segment = self.segments.read().get(&at.segment).cloned();
        segment.is_some_and(|segment| at.offset + stored_len(at) <= segment.file_len())
    }

    /// Brings a value into memory. The command will meet any error again.
    pub(super) fn fetch(&self, at: &ValueRef) {
        if let Ok(segment) = self.segment(at.segment) {
            segment.fetch(at);
        }
    }

    /// Bytes of all segments.
    pub(in crate::storage) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of values that were appended since the start, without those of the binlog alone.
    pub(in crate::storage) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// Whether something was appended that the disk may not have.
    #[cfg(test)]
    pub(in crate::storage) fn has_unsynced(&self) -> bool {
        let unsynced = self.unsynced.lock();
        unsynced.iter().any(|segment| segment.is_dirty())
    }

    /// The number of the newest segment, whose file stays: see [`ValueLog::remove`].
    pub(in crate::storage) fn newest(&self) -> Option<u64> {
        self.segments.read().last_key_value().map(|(last, _)| *last)
    }

    /// The number of segments.
    #[cfg(test)]
    pub(in crate::storage) fn len(&self) -> usize {
        self.segments.read().len()
    }

    /// The segments that get no more records, and to which no turn refers that has not ended.
    pub(in crate::storage) fn closed(&self) -> Vec<Arc<Segment>> {
        let segments = self.segments.read();
        let closed = segments.values().filter(|segment| segment.is_closed());
        closed.cloned().collect()
    }

    /// Removes a segment's file. The file of the newest segment stays, so that no number is used
    /// twice. Returns whether it is gone.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(in crate::storage) fn remove(&self, number: u64) -> io::Result<bool> {
        let mut segments = self.segments.write();
        if segments
            .last_key_value()
            .is_none_or(|(last, _)| *last <= number)
        {
            return Ok(false);
        }
        let Some(segment) = segments.get(&number) else {
            return Ok(true);
        };
        std::fs::remove_file(segment.path())?;
        self.bytes.fetch_sub(segment.file_len(), Ordering::Relaxed);
        segments.remove(&number);
        drop(segments);
        self.unsynced
            .lock()
            .retain(|unsynced| unsynced.number != number);
        Ok(true)
    }
}

/// The segments that the disk has, once their directory is synced.
fn list_of(segments: &BTreeMap<u64, Arc<Segment>>) -> List {
    let synced = segments.values().filter_map(|segment| {
        let len = match segment.is_sealed() {
            true => segment.synced().min(segment.end()),
            false => 0,
        };
        (segment.synced() > 0).then_some((segment.number, len))
    });
    synced.collect()
}

/// What is missing of the value log of a database that is not open, in words.
///
/// # Errors
/// The list of its segments, or their directory, cannot be read.
pub(super) fn missing(dir: &Path) -> Result<Vec<String>> {
    let listed = match list::read(dir) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Ok(vec![error.to_string()]);
        }
        listed => listed?.unwrap_or_default(),
    };
    let files = files(&dir.join(DIR))?;
    let mut missing = Vec::new();
    for (number, len) in listed {
        let found = files.get(&number).map(std::fs::metadata).transpose()?;
        match found.map(|found| found.len()) {
            None => missing.push(format!("segment {number} of the value log is missing")),
            Some(found) if found < len => missing.push(format!(
                "segment {number} of the value log has {found} bytes instead of {len}"
            )),
            Some(_) => {}
        }
    }
    Ok(missing)
}

/// Removes the list of the segments of a database that is not open: the next start misses none.
///
/// # Errors
/// It cannot be removed.
pub(super) fn forget_missing(dir: &Path) -> io::Result<()> {
    let listed = list::read(dir).ok().flatten().unwrap_or_default();
    if let Some(newest) = listed.keys().next_back() {
        // Rows may refer to it. So its number must not be used again, be it for an empty segment.
        let dir = dir.join(DIR);
        create_dir_all(&dir)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        options.open(segment::path(&dir, *newest))?.sync_all()?;
        sync_dir(&dir)?;
    }
    list::remove(dir)
}

/// Segments of a database that is not open, each opened when it is first asked for.
pub(super) struct Segments {
    dir: PathBuf,
    /// The number of the newest.
    newest: Option<u64>,
    opened: BTreeMap<u64, Option<Segment>>,
    files: Arc<OpenFiles>,
}

/// How many of these stay open.
const OPEN_BEFORE_START: usize = 16;

impl Segments {
    /// Those of the database in `dir`.
    ///
    /// # Errors
    /// Their directory cannot be read.
    pub(super) fn of(dir: &Path) -> Result<Segments> {
        let dir = dir.join(DIR);
        let newest = files(&dir)?.last_key_value().map(|(last, _)| *last);
        Ok(Segments {
            dir,
            newest,
            opened: BTreeMap::new(),
            files: OpenFiles::new(OPEN_BEFORE_START),
        })
    }

    /// Whether a value is there and intact, or its segment was removed: then nothing that counts refers
    /// to it any more. The newest segment is never removed, so one that a crash has lost, before its
    /// directory was synced, has no newer one.
    pub(super) fn have(&mut self, at: &ValueRef) -> bool {
        let path = segment::path(&self.dir, at.segment);
        let opened = self.opened.entry(at.segment);
        let segment =
            opened.or_insert_with(|| Segment::open(path.clone(), at.segment, &self.files).ok());
        let Some(segment) = segment else {
            let is_there = path.try_exists().unwrap_or(true);
            return !is_there && Some(at.segment) < self.newest;
        };
        let read = segment.read(at, 0..at.len, &mut Vec::new(), true);
        read.is_ok() && segment.has(at)
    }
}

impl Engine {
    /// Bytes of all segments of the value log.
    pub fn value_log_bytes(&self) -> u64 {
        self.values.bytes()
    }

    /// Bytes of values that were appended to the value log since the start, without those to which the
    /// binlog alone refers.
    pub fn value_log_appended(&self) -> u64 {
        self.values.appended()
    }

    /// The segments that are known to get no more records, each with the position of the binlog from
    /// which on no row refers to it.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub(in crate::storage) fn closed_segments(&self) -> Result<Vec<(u64, Position)>> {
        let mut found = Vec::new();
        self.system_rows(system::CLOSED_TAG, |key, row| {
            found.push(system::decode_closed(key, row));
        })?;
        Ok(found.into_iter().collect::<std::result::Result<_, _>>()?)
    }

    /// Keeps that position of a segment over a start; `None` once the segment is removed.
    ///
    /// # Errors
    /// The row cannot be written.
    pub(in crate::storage) fn note_closed(&self, segment: u64, at: Option<Position>) -> Result<()> {
        let row = system::closed_row(segment);
        let done = match at {
            Some(at) => self.db.put_cf(&self.system_cf, row, at.0.to_be_bytes()),
            None => self.db.delete_cf(&self.system_cf, row),
        };
        Ok(done?)
    }

    /// Appends a value to the value log.
    ///
    /// # Errors
    /// [`StorageError::NoRoom`] or [`StorageError::Failed`] if the disk does not take it. Nothing was
    /// appended then.
    pub(in crate::storage) fn append_value(
        &self,
        owner: Owner,
        value: &[u8],
    ) -> Result<(ValueRef, Pin)> {
        let _in_flight = self.disk.begin_write(value.len());
        let appended = self.values.append(owner, value);
        self.values.note_refused(appended.as_ref().err());
        appended.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StorageError::NoRoom,
            _ => StorageError::Failed,
        })
    }

    /// Whether the commands of a binlog row of so many bytes belong into the value log. While each
    /// commit is synced none do: two files would have to be synced.
    pub(in crate::storage) fn logs_row(&self, len: usize) -> bool {
        let least = self.config.value_log_min_bytes;
        least > 0
            && len as u64 >= least
            && self.binlog.is_enabled()
            && !self.durability.syncs_each()
    }

    /// Appends the commands of a row of the binlog to the value log. `None` if the disk does not take
    /// them: they stay in the row.
    pub(in crate::storage) fn append_row(&self, bytes: &[u8]) -> Option<(ValueRef, Pin)> {
        let _in_flight = self.disk.begin_write(bytes.len());
        self.values.append_row(bytes).ok()
    }
}

/// Whether packing makes a short value a quarter shorter.
pub(in crate::storage) fn packs_well(value: &[u8]) -> bool {
    PACKING.with_borrow_mut(|packing| packing.packs_well(value))
}

/// Whether a directory holds segments of the value log, and nothing else.
pub(super) fn is_of_segments(dir: &Path) -> bool {
    let Ok(mut entries) = dir.read_dir() else {
        return false;
    };
    entries.all(|entry| entry.is_ok_and(|entry| segment::number(&entry.path()).is_some()))
}

/// Whether a directory holds segments of the value log.
///
/// # Errors
/// It cannot be read.
pub(super) fn has_segments(dir: &Path) -> io::Result<bool> {
    Ok(!files(dir)?.is_empty())
}

/// The segments in a directory, by number. None if there is no such directory.
fn files(dir: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let entries = match dir.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut files = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        if let Some(number) = segment::number(&path) {
            files.insert(number, path);
        }
    }
    Ok(files)
}

thread_local! {
    static PACKING: RefCell<Packing> = RefCell::default();
}

const _: () = assert!((PIECE_BYTES as u64).is_multiple_of(CHUNK) && RECORD_HEAD < CHUNK);

#[cfg(test)]
mod tests;
