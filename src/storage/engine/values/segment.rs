//! One segment of the value log: a file of records that is only appended to.
//!
//! ```text
//! file    "KEDISVAL" (8) ‖ version (4) ‖ number (8) ‖ checksum (4) ‖ records ‖ samples ‖ end
//! record  keyspace (4) ‖ id (8) ‖ length (8) ‖ checksum (4) ‖ chunks
//! chunk   up to 32 KiB of the value ‖ checksum (4)
//! samples record with keyspace FFFFFFFE, whose value is offset (8) ‖ keyspace (4) ‖ id (8) ‖ length (8) for
//!         each of some records
//! end     offset of the samples (8) ‖ "END\0" (4) ‖ checksum (4)
//! ```
//!
//! The samples are records, each chosen with a probability in proportion to its bytes: how many of
//! them still live shows how much of the segment does. They and the end are written when the
//! segment gets no more records; after a crash a segment may lack them, and is read instead.
//!
//! The checksum is RocksDB's CRC32C, with the place in the log mixed in: bytes of another record, or
//! of another file that the disk returns by mistake, are noticed. A value has a checksum for each
//! chunk, so that a part of it can be read and checked by itself.

use super::super::wal;
use crate::encoding::reader::Reader;
use crate::encoding::values::ValueRef;
use crate::encoding::{CollectionId, system::KeyspaceId};
use crate::storage::{Result, StorageError};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of a value with one checksum.
pub(super) const CHUNK: u64 = 32 << 10;
const MAGIC: &[u8; 8] = b"KEDISVAL";
const VERSION: u32 = 1;
pub(super) const FILE_HEAD: u64 = 24;
pub(super) const RECORD_HEAD: u64 = 24;
const CHECKSUM: u64 = 4;
const END: &[u8; 4] = b"END\0";
const END_LEN: u64 = 16;

/// Whose bytes a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) enum Owner {
    /// The base of a long string.
    Base(KeyspaceId, CollectionId),
    /// Rows of the binlog alone.
    Binlog,
    /// The samples of the segment.
    Samples,
}

impl Owner {
    /// Keyspace numbers that no keyspace has.
    const NO_KEYSPACE: u32 = u32::MAX;
    const SAMPLES: u32 = u32::MAX - 1;

    fn numbers(self) -> (u32, u64) {
        match self {
            Owner::Base(keyspace, id) => (keyspace.0, id.0),
            Owner::Binlog => (Owner::NO_KEYSPACE, 0),
            Owner::Samples => (Owner::SAMPLES, 0),
        }
    }

    fn of(keyspace: u32, id: u64) -> Owner {
        match keyspace {
            Owner::NO_KEYSPACE => Owner::Binlog,
            Owner::SAMPLES => Owner::Samples,
            keyspace => Owner::Base(KeyspaceId(keyspace), CollectionId(id)),
        }
    }
}

/// A record, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) struct Record {
    pub(in crate::storage) owner: Owner,
    pub(in crate::storage) at: ValueRef,
}

impl Record {
    /// Bytes of a sample.
    const LEN: usize = 28;

    fn encode(&self, out: &mut Vec<u8>) {
        let (keyspace, id) = self.owner.numbers();
        out.extend_from_slice(&self.at.offset.to_be_bytes());
        out.extend_from_slice(&keyspace.to_be_bytes());
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&self.at.len.to_be_bytes());
    }

    fn decode(segment: u64, bytes: &[u8]) -> Option<Record> {
        let mut r = Reader::new(bytes, "sample");
        let offset = r.u64().ok()?;
        let owner = Owner::of(r.u32().ok()?, r.u64().ok()?);
        let len = r.u64().ok()?;
        let at = ValueRef {
            segment,
            offset,
            len,
        };
        Some(Record { owner, at })
    }
}

/// Records of a segment, each chosen with a probability in proportion to its bytes.
#[derive(Debug, Default)]
pub(super) struct Samples {
    chosen: Vec<Record>,
    bytes: u64,
}

impl Samples {
    const COUNT: usize = 64;

    /// Considers the next record.
    pub(super) fn consider(&mut self, record: Record) {
        let len = record_len(record.at.len);
        self.bytes += len;
        if self.chosen.is_empty() {
            self.chosen = vec![record; Samples::COUNT];
            return;
        }
        // Each place by itself gets the record with the probability of its share.
        for place in &mut self.chosen {
            if fastrand::u64(..self.bytes) < len {
                *place = record;
            }
        }
    }
}

/// A file of the value log.
#[derive(Debug)]
pub(in crate::storage) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    file: File,
    /// Where the records end.
    end: AtomicU64,
    /// Records that turns have appended and not yet committed or given up: see [`Pin`].
    pins: AtomicUsize,
    /// It gets no more records.
    sealed: AtomicBool,
    /// It may hold bytes that the disk does not have.
    dirty: AtomicBool,
    /// The disk has the bytes before this offset.
    synced: AtomicU64,
    /// Bytes of the file.
    file_len: AtomicU64,
    /// Its records cannot be read one after the other.
    damaged: AtomicBool,
    /// Its samples, once it gets no more records.
    samples: OnceLock<Vec<Record>>,
}

/// Keeps a segment from being collected while a turn may still commit a reference to it.
#[derive(Debug)]
pub(in crate::storage) struct Pin(Arc<Segment>);

impl Pin {
    pub(super) fn new(segment: &Arc<Segment>) -> Pin {
        segment.pins.fetch_add(1, Ordering::AcqRel);
        Pin(segment.clone())
    }

    /// Whether it is of this segment.
    pub(in crate::storage) fn is_of(&self, segment: u64) -> bool {
        self.0.number == segment
    }

    /// Whether another is of the same segment.
    pub(in crate::storage) fn is_same(&self, other: &Pin) -> bool {
        self.is_of(other.0.number)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The bytes that a record takes in its file.
pub(super) fn record_len(value_len: u64) -> u64 {
    RECORD_HEAD + value_len + value_len.div_ceil(CHUNK) * CHECKSUM
}

/// The checksum of bytes that stand at this place.
fn checksum(bytes: &[u8], segment: u64, offset: u64) -> u32 {
    let place = segment.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ offset;
    wal::checksum(bytes) ^ (place ^ (place >> 32)) as u32
}

/// Appends a record of this value to `out`. It is to stand at `offset` of the segment.
pub(super) fn encode_head(out: &mut Vec<u8>, segment: u64, offset: u64, owner: Owner, len: u64) {
    let from = out.len();
    let (keyspace, id) = owner.numbers();
    out.extend_from_slice(&keyspace.to_be_bytes());
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    let sum = checksum(&out[from..], segment, offset);
    out.extend_from_slice(&sum.to_be_bytes());
}

/// Appends a chunk, which is to stand at `offset`, and its checksum.
pub(super) fn encode_chunk(out: &mut Vec<u8>, segment: u64, offset: u64, chunk: &[u8]) {
    out.extend_from_slice(chunk);
    out.extend_from_slice(&checksum(chunk, segment, offset).to_be_bytes());
}

/// What is wrong with a record.
fn corrupt(path: &Path, offset: u64, what: &str) -> StorageError {
    let text = format!("{} is corrupt at byte {offset}: {what}", path.display());
    StorageError::Io(io::Error::new(io::ErrorKind::InvalidData, text))
}

impl Segment {
    /// A new, empty segment. An existing file of its name is an error.
    pub(super) fn create(dir: &Path, number: u64) -> io::Result<Segment> {
        let path = path(dir, number);
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        let mut head = Vec::with_capacity(FILE_HEAD as usize);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_be_bytes());
        head.extend_from_slice(&number.to_be_bytes());
        let sum = checksum(&head, number, 0);
        head.extend_from_slice(&sum.to_be_bytes());
        if let Err(error) = file.write_all_at(&head, 0) {
            // So that the number can be tried again.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(Segment::with(number, path, file, FILE_HEAD, false))
    }

    fn with(number: u64, path: PathBuf, file: File, end: u64, sealed: bool) -> Segment {
        Segment {
            number,
            path,
            file,
            end: AtomicU64::new(end),
            pins: AtomicUsize::new(0),
            sealed: AtomicBool::new(sealed),
            dirty: AtomicBool::new(!sealed),
            synced: AtomicU64::new(if sealed { end } else { 0 }),
            file_len: AtomicU64::new(end),
            damaged: AtomicBool::new(false),
            samples: OnceLock::new(),
        }
    }

    /// Opens a segment of an earlier start, which gets no more records. What follows its last whole
    /// record was never named by a commit, and counts as its end.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn open(path: PathBuf, number: u64) -> Result<Segment> {
        let file = File::open(&path)?;
        let len = file.metadata()?.len();
        let segment = Segment::with(number, path, file, len, true);
        if len < FILE_HEAD {
            // A crash came between its creation and its first bytes.
            segment.end.store(FILE_HEAD, Ordering::Release);
            return Ok(segment);
        }
        let mut head = [0; FILE_HEAD as usize];
        segment.file.read_exact_at(&mut head, 0)?;
        let (covered, sum) = head.split_at(head.len() - 4);
        let is_ours = covered.starts_with(MAGIC)
            && covered[8..12] == VERSION.to_be_bytes()
            && covered[12..] == number.to_be_bytes()
            && sum == checksum(covered, number, 0).to_be_bytes();
        if !is_ours {
            // A crash of the machine has left it so before anything was synced, or the disk has
            // changed it: what can be read of it still counts, and it is never collected.
            log::error!(
                "{}",
                corrupt(&segment.path, 0, "the head of the file is wrong")
            );
            segment.damaged.store(true, Ordering::Release);
            return Ok(segment);
        }
        if let Some((end, samples)) = segment.read_end(len) {
            segment.end.store(end, Ordering::Release);
            segment.samples.get_or_init(|| samples);
            return Ok(segment);
        }
        let (mut end, mut last) = (FILE_HEAD, None);
        let mut samples = Samples::default();
        while let Ok(Some(record)) = segment.record(end) {
            let next = end + record_len(record.at.len);
            if next > len || record.owner == Owner::Samples {
                break;
            }
            samples.consider(record);
            last = Some(record);
            end = next;
        }
        segment.samples.get_or_init(|| samples.chosen);
        if let Some(record) = last {
            // A record is written from its beginning: only the last can be incomplete.
            let mut bytes = Vec::new();
            let read = segment.read(&record.at, 0..record.at.len, &mut bytes, true);
            if read.is_err() {
                end = record.at.offset;
            }
        }
        segment.end.store(end, Ordering::Release);
        Ok(segment)
    }

    /// Where its records end.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Writes bytes behind the last record; they count only once [`Segment::grow`] is called.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.dirty.store(true, Ordering::Release);
        self.file.write_all_at(bytes, offset)
    }

    /// Makes what was written count, up to `end`.
    pub(super) fn grow(&self, end: u64) {
        self.end.store(end, Ordering::Release);
        self.file_len.store(end, Ordering::Release);
    }

    /// It gets no more records.
    pub(super) fn seal(&self, samples: Samples) {
        let (end, mut value) = (self.end(), Vec::new());
        samples
            .chosen
            .iter()
            .for_each(|record| record.encode(&mut value));
        let mut bytes = Vec::new();
        encode_head(
            &mut bytes,
            self.number,
            end,
            Owner::Samples,
            value.len() as u64,
        );
        encode_chunk(&mut bytes, self.number, end + RECORD_HEAD, &value);
        let from = bytes.len();
        bytes.extend_from_slice(&end.to_be_bytes());
        bytes.extend_from_slice(END);
        let sum = checksum(&bytes[from..], self.number, 0);
        bytes.extend_from_slice(&sum.to_be_bytes());
        match self.write(&bytes, end) {
            Ok(()) => self
                .file_len
                .store(end + bytes.len() as u64, Ordering::Release),
            // The next start reads the records instead.
            Err(error) => log::debug!("{}: {error}", self.path.display()),
        }
        self.samples.get_or_init(|| samples.chosen);
        self.sealed.store(true, Ordering::Release);
    }

    /// Where the records end, and the samples, if the file is complete.
    fn read_end(&self, file_len: u64) -> Option<(u64, Vec<Record>)> {
        let place = file_len.checked_sub(END_LEN)?;
        let mut bytes = [0; END_LEN as usize];
        self.file.read_exact_at(&mut bytes, place).ok()?;
        let (covered, sum) = bytes.split_last_chunk::<4>()?;
        let is_end =
            covered.ends_with(END) && *sum == checksum(covered, self.number, 0).to_be_bytes();
        let (offset, _) = bytes.split_first_chunk::<8>()?;
        let end = u64::from_be_bytes(*offset);
        if !is_end || end > place {
            return None;
        }
        let record = self.record(end).ok()??;
        let mut value = Vec::new();
        self.read(&record.at, 0..record.at.len, &mut value, true)
            .ok()?;
        let samples = value.chunks_exact(Record::LEN);
        let samples = samples.map(|bytes| Record::decode(self.number, bytes));
        (record.owner == Owner::Samples).then_some((end, samples.collect::<Option<_>>()?))
    }

    /// Records of a segment that gets no more: each chosen with a probability in proportion to its
    /// bytes.
    pub(in crate::storage) fn samples(&self) -> &[Record] {
        self.samples.get().map_or(&[], Vec::as_slice)
    }

    /// Bytes of the file.
    pub(in crate::storage) fn file_len(&self) -> u64 {
        self.file_len.load(Ordering::Acquire)
    }

    /// The number of the segment.
    pub(in crate::storage) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it gets no more records, and all turns that appended some have ended.
    pub(super) fn is_closed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
            && self.pins.load(Ordering::Acquire) == 0
            && !self.damaged.load(Ordering::Acquire)
    }

    /// Whether it gets no more records.
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Whether it may hold bytes that the disk does not have.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Makes what was written until now durable. One thread at a time calls it.
    pub(super) fn sync(&self) -> io::Result<()> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let end = self.file_len();
        match self.file.sync_data() {
            Ok(()) => self.synced.store(end, Ordering::Release),
            Err(error) => {
                self.dirty.store(true, Ordering::Release);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the bytes that are not synced anew. They must be intact.
    pub(super) fn write_again(&self) -> Result<()> {
        let mut offset = self.synced.load(Ordering::Acquire);
        let end = self.file_len();
        let mut buffer = vec![0; 256 << 10];
        while offset < end {
            let len = buffer.len().min((end - offset) as usize);
            self.file.read_exact_at(&mut buffer[..len], offset)?;
            self.write(&buffer[..len], offset)?;
            offset += len as u64;
        }
        Ok(())
    }

    /// The record at `offset`; `None` at the end.
    ///
    /// # Errors
    /// What stands there is no record.
    pub(super) fn record(&self, offset: u64) -> Result<Option<Record>> {
        if offset + RECORD_HEAD > self.end() {
            return Ok(None);
        }
        let mut head = [0; RECORD_HEAD as usize];
        self.file.read_exact_at(&mut head, offset)?;
        let (covered, sum) = head.split_at(20);
        if sum != checksum(covered, self.number, offset).to_be_bytes() {
            return Err(corrupt(&self.path, offset, "the head of a record"));
        }
        let number = |range: Range<usize>| {
            let bytes = covered[range].iter();
            bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        Ok(Some(Record {
            owner: Owner::of(number(0..4) as u32, number(4..12)),
            at: ValueRef {
                segment: self.number,
                offset,
                len: number(12..20),
            },
        }))
    }

    /// Whether a record stands there.
    pub(super) fn has(&self, at: &ValueRef) -> bool {
        let record = self.record(at.offset);
        record.is_ok_and(|record| record.is_some_and(|record| record.at == *at))
    }

    /// The offset of the record after this one.
    pub(super) fn after(record: &Record) -> u64 {
        record.at.offset + record_len(record.at.len)
    }

    /// Appends a range of a value's bytes to `out`.
    ///
    /// # Errors
    /// [`StorageError::NotInMemory`] if that would wait for the disk and must not; otherwise
    /// the bytes cannot be read, or are not those that were written. `out` is as before then.
    pub(super) fn read(
        &self,
        at: &ValueRef,
        range: Range<u64>,
        out: &mut Vec<u8>,
        may_wait: bool,
    ) -> Result<()> {
        let (range, before) = (range.start.min(at.len)..range.end.min(at.len), out.len());
        if range.is_empty() {
            return Ok(());
        }
        let done = (|| {
            for index in range.start / CHUNK..=(range.end - 1) / CHUNK {
                self.read_chunk(at, index, &range, out, may_wait)?;
            }
            Ok(())
        })();
        if done.is_err() {
            out.truncate(before);
        }
        done
    }

    /// Appends what the range has of one chunk.
    fn read_chunk(
        &self,
        at: &ValueRef,
        index: u64,
        range: &Range<u64>,
        out: &mut Vec<u8>,
        may_wait: bool,
    ) -> Result<()> {
        let start = index * CHUNK;
        let len = CHUNK.min(at.len - start);
        let offset = at.offset + RECORD_HEAD + index * (CHUNK + CHECKSUM);
        if offset + len + CHECKSUM > self.end() {
            return Err(corrupt(&self.path, offset, "it ends before"));
        }
        let from = out.len();
        out.try_reserve((len + CHECKSUM) as usize)
            .map_err(|_| StorageError::NoMemory)?;
        out.resize(from + (len + CHECKSUM) as usize, 0);
        let place = &mut out[from..];
        match may_wait {
            true => self.file.read_exact_at(place, offset)?,
            false => self.read_from_memory(place, offset)?,
        }
        let (bytes, sum) = place.split_at(len as usize);
        if sum != checksum(bytes, self.number, offset).to_be_bytes() {
            return Err(corrupt(&self.path, offset, "a checksum is wrong"));
        }
        out.truncate(from + (range.end - start).min(len) as usize);
        let skipped = range.start.saturating_sub(start) as usize;
        if skipped > 0 {
            out.drain(from..from + skipped);
        }
        Ok(())
    }

    /// Reads what the page cache has.
    fn read_from_memory(&self, mut place: &mut [u8], mut offset: u64) -> Result<()> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        while !place.is_empty() {
            let mut parts = [io::IoSliceMut::new(place)];
            match preadv2(&self.file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(read) => {
                    place = place.split_at_mut(read).1;
                    offset += read as u64;
                }
                Err(Errno::AGAIN) => return Err(StorageError::NotInMemory),
                Err(Errno::INTR) => {}
                // The file system cannot tell.
                Err(Errno::OPNOTSUPP) => return Ok(self.file.read_exact_at(place, offset)?),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// Asks the operating system to bring a value into memory, and waits for it.
    pub(super) fn fetch(&self, at: &ValueRef) {
        let mut buffer = vec![0; (256 << 10).min(record_len(at.len) as usize)];
        let (mut offset, end) = (at.offset, at.offset + record_len(at.len));
        while offset < end {
            let wanted = buffer.len().min((end - offset) as usize);
            match self.file.read_at(&mut buffer[..wanted], offset) {
                Ok(read) if read > 0 => offset += read as u64,
                // The command will meet the error.
                _ => return,
            }
        }
    }
}

/// The path of a segment's file.
pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.{EXTENSION}"))
}

/// The extension of segment files.
pub(super) const EXTENSION: &str = "values";

/// The number of a segment, by the name of its file.
pub(super) fn number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let all = digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit());
    all.then(|| digits.parse().ok())?
}
