//! One segment of the value log: a file of records that is only appended to.
//!
//! ```text
//! file    "KEDISVAL" (8) ‖ version (4) ‖ number (8) ‖ checksum (4) ‖ records ‖ samples ‖ end
//! record  keyspace (4) ‖ id (8) ‖ lengths (8) ‖ checksum (4) ‖ chunks
//! chunk   up to 32 KiB of the value, or less in the packed form ‖ checksum (4)
//! samples record with keyspace FFFFFFFE, whose value is offset (8) ‖ keyspace (4) ‖ id (8) ‖ lengths (8) for
//!         each of some records
//! end     offset of the samples (8) ‖ "END\0" (4) ‖ checksum (4)
//! ```
//!
//! Versions 1 and 2 are of segments of values, version 3 of one whose records are all of the binlog,
//! and which has no samples.
//!
//! The lengths are those of [`ValueRef`], [`super::packed`] is the packed form. A record's head is
//! written last: what a crash leaves of a record that was not finished is none.
//!
//! The samples are records, each chosen with a probability in proportion to its bytes: how many of
//! them still live shows how much of the segment does. They and the end are written when the
//! segment gets no more records; after a crash a segment may lack them, and is read instead.
//!
//! The checksum is RocksDB's CRC32C, with the place in the log mixed in: bytes of another record, or
//! of another file that the disk returns by mistake, are noticed. A value has a checksum for each
//! chunk, so that a part of it can be read and checked by itself.

use super::super::wal;
use super::open_files::{OnDemand, OpenFiles};
use super::packed::{CHECKSUM, CHUNK, Packing};
use crate::encoding::binlog::Position;
use crate::encoding::reader::Reader;
use crate::encoding::values::ValueRef;
use crate::encoding::{CollectionId, system::KeyspaceId};
use crate::storage::{Result, StorageError};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const MAGIC: &[u8; 8] = b"KEDISVAL";
/// The versions: of a segment that may have packed values, of one that has none, and of one of the
/// binlog alone.
const VERSION: u32 = 2;
const VERSION_PLAIN: u32 = 1;
const VERSION_BINLOG: u32 = 3;
pub(super) const FILE_HEAD: u64 = 24;
pub(super) const RECORD_HEAD: u64 = 24;
/// The head of a record.
pub(super) type Head = [u8; RECORD_HEAD as usize];
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

/// What the records of a segment are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) enum Holds {
    /// Strings. Rows of the binlog may refer to them, too.
    Values,
    /// What only rows of the binlog refer to: nothing of it lives once the log is trimmed behind it.
    Binlog,
}

impl Holds {
    /// The segments for records of this owner.
    pub(super) fn of(owner: Owner) -> Holds {
        match owner {
            Owner::Binlog => Holds::Binlog,
            Owner::Base(..) | Owner::Samples => Holds::Values,
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
        out.extend_from_slice(&self.at.lengths().to_be_bytes());
    }

    fn decode(segment: u64, bytes: &[u8]) -> Option<Record> {
        let mut r = Reader::new(bytes, "sample");
        let offset = r.u64().ok()?;
        let owner = Owner::of(r.u32().ok()?, r.u64().ok()?);
        let at = ValueRef::with(segment, offset, r.u64().ok()?).ok()?;
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
        let len = stored_len(&record.at);
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
    holds: Holds,
    file: Arc<OnDemand>,
    /// Where the records end.
    end: AtomicU64,
    /// Records that turns have appended and not yet committed or given up: see [`Pin`].
    pins: AtomicUsize,
    /// Where the last row of the binlog ends that refers to it; [`UNKNOWN`] after a start.
    referenced: AtomicU64,
    /// It gets no more records.
    sealed: AtomicBool,
    /// It may hold bytes that the disk does not have.
    dirty: AtomicBool,
    /// The disk has the bytes before this offset.
    synced: AtomicU64,
    /// Bytes of the file.
    file_len: AtomicU64,
    /// A part of it cannot be read: it is not collected.
    damaged: AtomicBool,
    /// Its samples, once it gets no more records.
    samples: OnceLock<Vec<Record>>,
}

const UNKNOWN: u64 = u64::MAX;

/// Keeps a segment from being collected while a turn may still commit a reference to it.
#[derive(Debug)]
pub(in crate::storage) struct Pin(Arc<Segment>);

impl Pin {
    pub(super) fn new(segment: &Arc<Segment>) -> Pin {
        segment.pins.fetch_add(1, Ordering::AcqRel);
        Pin(segment.clone())
    }

    /// Notes that a row of the binlog that ends at `end` refers to the segment.
    pub(in crate::storage) fn note_referenced(&self, end: Position) {
        self.0.referenced.fetch_max(end.0, Ordering::AcqRel);
    }

    /// Whether another is of the same segment.
    pub(in crate::storage) fn is_same(&self, other: &Pin) -> bool {
        self.0.number == other.0.number
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The bytes that the record of a value takes that is not packed. One that is takes less.
pub(super) fn record_len(value_len: u64) -> u64 {
    RECORD_HEAD + value_len + value_len.div_ceil(CHUNK) * CHECKSUM
}

/// The bytes that a record takes in its file.
pub(super) fn stored_len(at: &ValueRef) -> u64 {
    match at.packed {
        0 => record_len(at.len),
        packed => RECORD_HEAD + u64::from(packed),
    }
}

/// The checksum of bytes that stand at this place.
pub(super) fn checksum(bytes: &[u8], segment: u64, offset: u64) -> u32 {
    let place = segment.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ offset;
    wal::checksum(bytes) ^ (place ^ (place >> 32)) as u32
}

/// The head of a record.
fn head(record: &Record) -> Head {
    let at = &record.at;
    let (keyspace, id) = record.owner.numbers();
    let mut head = [0; RECORD_HEAD as usize];
    head[..4].copy_from_slice(&keyspace.to_be_bytes());
    head[4..12].copy_from_slice(&id.to_be_bytes());
    head[12..20].copy_from_slice(&at.lengths().to_be_bytes());
    let sum = checksum(&head[..20], at.segment, at.offset);
    head[20..].copy_from_slice(&sum.to_be_bytes());
    head
}

/// Appends a chunk, which is to stand at `offset`, and its checksum.
fn encode_chunk(out: &mut Vec<u8>, segment: u64, offset: u64, chunk: &[u8]) {
    out.extend_from_slice(chunk);
    out.extend_from_slice(&checksum(chunk, segment, offset).to_be_bytes());
}

/// What is wrong with a record.
pub(super) fn corrupt(path: &Path, offset: u64, what: &str) -> StorageError {
    let text = format!("{} is corrupt at byte {offset}: {what}", path.display());
    StorageError::Io(io::Error::new(io::ErrorKind::InvalidData, text))
}

impl Segment {
    /// A new, empty segment. An existing file of its name is an error.
    pub(super) fn create(
        dir: &Path,
        number: u64,
        holds: Holds,
        files: &Arc<OpenFiles>,
    ) -> io::Result<Segment> {
        let path = path(dir, number);
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        let mut head = Vec::with_capacity(FILE_HEAD as usize);
        head.extend_from_slice(MAGIC);
        let version = match holds {
            Holds::Values => VERSION,
            Holds::Binlog => VERSION_BINLOG,
        };
        head.extend_from_slice(&version.to_be_bytes());
        head.extend_from_slice(&number.to_be_bytes());
        let sum = checksum(&head, number, 0);
        head.extend_from_slice(&sum.to_be_bytes());
        if let Err(error) = file.write_all_at(&head, 0) {
            // So that the number can be tried again.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        let file = OnDemand::kept(path, file, files);
        Ok(Segment::with(number, holds, file, FILE_HEAD, false))
    }

    /// Takes space for so many bytes, which [`Segment::seal`] gives back if they are not written. While a
    /// file system looks for space for what was written, which is when it is synced, it lets nobody
    /// append to the file.
    pub(super) fn preallocate(&self, bytes: u64) {
        #[cfg(target_os = "linux")]
        if bytes > 0 {
            let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
            let done = self.file().and_then(|file| {
                rustix::fs::fallocate(file, keep, 0, bytes).map_err(io::Error::from)
            });
            if let Err(error) = done {
                // Writes will find the space, or fail.
                log::debug!(
                    "{}: no space is preallocated: {error}",
                    self.path().display()
                );
                // A part may have been taken.
                self.give_back();
            }
        }
    }

    /// Gives back the space behind the end of the file, unless it has another name: the copy of a
    /// database shares files with the database, to which its server may still append.
    pub(super) fn give_back(&self) {
        let given_back = std::fs::metadata(self.path()).and_then(|found| {
            let block = found.blksize().max(1);
            let is_larger = found.blocks() * 512 > found.len().next_multiple_of(block);
            match is_larger && found.nlink() == 1 {
                true => {
                    let file = OpenOptions::new().write(true).open(self.path())?;
                    file.set_len(found.len())
                }
                false => Ok(()),
            }
        });
        if let Err(error) = given_back {
            log::debug!("{}: {error}", self.path().display());
        }
    }

    fn with(number: u64, holds: Holds, file: Arc<OnDemand>, end: u64, sealed: bool) -> Segment {
        Segment {
            number,
            holds,
            file,
            end: AtomicU64::new(end),
            pins: AtomicUsize::new(0),
            referenced: AtomicU64::new(if sealed { UNKNOWN } else { 0 }),
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
    pub(super) fn open(path: PathBuf, number: u64, files: &Arc<OpenFiles>) -> Result<Segment> {
        let on_demand = OnDemand::closed(path, files);
        let file = on_demand.get()?;
        let len = file.metadata()?.len();
        let mut segment = Segment::with(number, Holds::Values, on_demand, len, true);
        if len < FILE_HEAD {
            // A crash came between its creation and its first bytes.
            segment.end.store(FILE_HEAD, Ordering::Release);
            return Ok(segment);
        }
        let mut head = [0; FILE_HEAD as usize];
        if let Err(error) = file.read_exact_at(&mut head, 0) {
            let text = format!("{}: {error}", segment.path().display());
            return Err(io::Error::new(error.kind(), text).into());
        }
        let (covered, sum) = head.split_at(head.len() - 4);
        let versions = [VERSION, VERSION_PLAIN, VERSION_BINLOG].map(u32::to_be_bytes);
        if covered[8..12] == VERSION_BINLOG.to_be_bytes() {
            segment.holds = Holds::Binlog;
        }
        let is_ours = covered.starts_with(MAGIC)
            && versions.iter().any(|version| covered[8..12] == *version)
            && covered[12..] == number.to_be_bytes()
            && sum == checksum(covered, number, 0).to_be_bytes();
        if !is_ours {
            // A crash of the machine has left it so before anything was synced, or the disk has
            // changed it: what can be read of it still counts, and it is never collected.
            log::error!(
                "{}",
                corrupt(segment.path(), 0, "the head of the file is wrong")
            );
            segment.leave_alone();
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
            let next = Segment::after(&record);
            if next > len || record.owner == Owner::Samples {
                break;
            }
            samples.consider(record);
            last = Some(record);
            end = next;
        }
        segment.samples.get_or_init(|| samples.chosen);
        if let Some(record) = last {
            // A record's head is written last. If the disk has taken it and not the rest, no commit
            // names it.
            let mut bytes = Vec::new();
            let read = segment.read(&record.at, 0..record.at.len, &mut bytes, true);
            if read.is_err() {
                end = record.at.offset;
            }
        }
        segment.end.store(end, Ordering::Release);
        Ok(segment)
    }

    /// The path of its file.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Where its records end.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Writes bytes behind the last record; they count only once [`Segment::grow`] is called.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file()?.write_all_at(bytes, offset)
    }

    /// Notes that bytes were written. Not before they are: a sync that is running then may lack them,
    /// and would take the mark away.
    fn note_written(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// Writes a record behind the last; it counts only once [`Segment::grow`] is called. `packing`
    /// has packed the first `piece_bytes` of the value, unless that does not pay.
    pub(super) fn write_record(
        &self,
        owner: Owner,
        value: &[u8],
        piece_bytes: usize,
        mut packing: Option<&mut Packing>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Record> {
        let offset = self.end();
        buffer.clear();
        buffer.resize(RECORD_HEAD as usize, 0);
        let mut written = offset;
        for (n, piece) in value.chunks(piece_bytes).enumerate() {
            let mut take = |chunk: &[u8]| {
                let place = written + buffer.len() as u64;
                encode_chunk(buffer, self.number, place, chunk);
            };
            match &mut packing {
                Some(packing) => {
                    if n > 0 {
                        packing.next(piece);
                    }
                    packing.chunks().for_each(take);
                }
                None => piece.chunks(CHUNK as usize).for_each(&mut take),
            }
            if value.len() > piece.len() {
                self.write(buffer, written)?;
                written += buffer.len() as u64;
                buffer.clear();
            }
        }
        if let Some(lengths) = packing.as_ref().and_then(|packing| packing.lengths()) {
            let place = written + buffer.len() as u64;
            encode_chunk(buffer, self.number, place, &lengths);
        }
        let end = written + buffer.len() as u64;
        let packed = packing.map_or(0, |_| (end - offset - RECORD_HEAD) as u32);
        let at = ValueRef {
            segment: self.number,
            offset,
            len: value.len() as u64,
            packed,
        };
        let record = Record { owner, at };
        let head = head(&record);
        if written > offset {
            self.write(buffer, written)?;
            self.write(&head, offset)?;
        } else {
            buffer[..head.len()].copy_from_slice(&head);
            self.write(buffer, offset)?;
        }
        Ok(record)
    }

    /// Makes what was written count, up to `end`.
    pub(super) fn grow(&self, end: u64) {
        self.end.store(end, Ordering::Release);
        self.file_len.store(end, Ordering::Release);
        self.note_written();
    }

    /// It gets no more records.
    pub(super) fn seal(&self, samples: Samples) {
        let (end, mut value) = (self.end(), Vec::new());
        samples
            .chosen
            .iter()
            .for_each(|record| record.encode(&mut value));
        let at = ValueRef {
            segment: self.number,
            offset: end,
            len: value.len() as u64,
            packed: 0,
        };
        let owner = Owner::Samples;
        let mut bytes = head(&Record { owner, at }).to_vec();
        encode_chunk(&mut bytes, self.number, end + RECORD_HEAD, &value);
        let from = bytes.len();
        bytes.extend_from_slice(&end.to_be_bytes());
        bytes.extend_from_slice(END);
        let sum = checksum(&bytes[from..], self.number, 0);
        bytes.extend_from_slice(&sum.to_be_bytes());
        match self.write(&bytes, end) {
            Ok(()) => {
                let end = end + bytes.len() as u64;
                self.file_len.store(end, Ordering::Release);
                self.note_written();
            }
            // The next start reads the records instead.
            Err(error) => log::debug!("{}: {error}", self.path().display()),
        }
        self.give_back();
        self.samples.get_or_init(|| samples.chosen);
        self.sealed.store(true, Ordering::Release);
    }

    /// Where the records end, and the samples, if the file is complete.
    fn read_end(&self, file_len: u64) -> Option<(u64, Vec<Record>)> {
        let place = file_len.checked_sub(END_LEN)?;
        let mut bytes = [0; END_LEN as usize];
        let file = self.file().ok()?;
        file.read_exact_at(&mut bytes, place).ok()?;
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

    /// What its records are.
    pub(in crate::storage) fn holds(&self) -> Holds {
        self.holds
    }

    /// The number of the segment.
    pub(in crate::storage) fn number(&self) -> u64 {
        self.number
    }

    /// Where the last row of the binlog ends that refers to it; `None` for one of an earlier start.
    pub(in crate::storage) fn referenced_at(&self) -> Option<Position> {
        let end = self.referenced.load(Ordering::Acquire);
        (end != UNKNOWN).then_some(Position(end))
    }

    /// A part of it cannot be read: its file stays, for what can be.
    pub(in crate::storage) fn leave_alone(&self) {
        self.damaged.store(true, Ordering::Release);
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

    /// Its file may be closed from now on: it is sealed, and synced.
    pub(super) fn let_close(&self) {
        self.file.may_be_closed();
    }

    /// Makes what was written until now durable. One thread at a time calls it.
    pub(super) fn sync(&self) -> io::Result<()> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let end = self.file_len();
        match self.file().and_then(|file| file.sync_data()) {
            Ok(()) => self.synced.store(end, Ordering::Release),
            Err(error) => {
                self.dirty.store(true, Ordering::Release);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The disk has the bytes before this offset.
    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Writes the bytes that are not synced anew. They must be intact.
    pub(super) fn write_again(&self) -> Result<()> {
        let mut offset = self.synced.load(Ordering::Acquire);
        let end = self.file_len();
        let mut buffer = vec![0; 256 << 10];
        while offset < end {
            let len = buffer.len().min((end - offset) as usize);
            self.file()?.read_exact_at(&mut buffer[..len], offset)?;
            self.write(&buffer[..len], offset)?;
            self.note_written();
            offset += len as u64;
        }
        Ok(())
    }

    /// The record at `offset`; `None` at the end.
    ///
    /// # Errors
    /// What stands there is no record.
    fn record(&self, offset: u64) -> Result<Option<Record>> {
        if offset + RECORD_HEAD > self.end() {
            return Ok(None);
        }
        let mut head = [0; RECORD_HEAD as usize];
        self.file()?.read_exact_at(&mut head, offset)?;
        self.decode_head(&head, offset).map(Some)
    }

    /// The record whose head stands at `offset`.
    ///
    /// # Errors
    /// This is no head.
    pub(super) fn decode_head(&self, head: &Head, offset: u64) -> Result<Record> {
        let (covered, sum) = head.split_at(20);
        if sum != checksum(covered, self.number, offset).to_be_bytes() {
            return Err(corrupt(self.path(), offset, "the head of a record"));
        }
        let number = |range: Range<usize>| {
            let bytes = covered[range].iter();
            bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        Ok(Record {
            owner: Owner::of(number(0..4) as u32, number(4..12)),
            at: ValueRef::with(self.number, offset, number(12..20))?,
        })
    }

    /// Its file, which is opened if it is not.
    pub(super) fn file(&self) -> io::Result<Arc<File>> {
        self.file.get()
    }

    /// Its file, if it is open.
    pub(super) fn file_if_open(&self) -> Option<Arc<File>> {
        self.file.if_open()
    }

    /// Whether a record stands there.
    pub(super) fn has(&self, at: &ValueRef) -> bool {
        let record = self.record(at.offset);
        record.is_ok_and(|record| record.is_some_and(|record| record.at == *at))
    }

    /// The offset of the record after this one.
    pub(super) fn after(record: &Record) -> u64 {
        record.at.offset + stored_len(&record.at)
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
