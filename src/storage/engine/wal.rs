//! Reads the files of RocksDB's write-ahead log without RocksDB. Before a database is opened, the
//! server must know whether that would lose data, because opening it removes the evidence.
//!
//! A file is a sequence of blocks of 32 KiB, a block a sequence of fragments, which do not
//! cross its end, and at most six bytes of padding:
//!
//! ```text
//! checksum (4) ‖ length (2) ‖ type (1) ‖ length bytes        integers are little-endian
//! ```
//!
//! The checksum, a masked CRC-32C, covers type and bytes. A record is one fragment of the type
//! `FULL`, or a `FIRST`, any number of `MIDDLE` and a `LAST`; it begins with the sequence number of
//! its first row (8) and the number of rows (4).
//!
//! [`marks`] records how far each file was written and synced; RocksDB calls it through `files.cc`.

pub(super) mod batch;
pub mod marks;

use crate::storage::Result;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;

const ZERO: u8 = 0;
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;
/// Types of fragments with a longer header: those of recycled files, which Kedis does not use.
const REUSED: std::ops::RangeInclusive<u8> = 5..=8;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_wal_checksum(data: *const u8, len: usize) -> u32;
}

/// RocksDB's checksum of bytes: CRC32C, masked. For a fragment of the log they are its type and its
/// bytes.
#[allow(unsafe_code)]
pub(super) fn checksum(covered: &[u8]) -> u32 {
    // SAFETY: the pointer is to `len` bytes.
    unsafe { kedis_wal_checksum(covered.as_ptr(), covered.len()) }
}

/// The contents of a file of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scan {
    /// Size of the file in bytes.
    pub size: u64,
    /// All records that end at or before this offset are intact.
    pub intact: u64,
    /// Sequence number of the first row of these records, and of the row after them.
    pub sequences: Option<(u64, u64)>,
    /// The fault at `intact`, if anything but zeros follows there.
    pub fault: Option<Fault>,
    /// Intact records after the fault.
    pub records_after: u64,
}

/// Why the rest of a file cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file ends inside of a record.
    #[error("it ends in the middle of a record")]
    Incomplete,
    /// A checksum is wrong.
    #[error("the checksum of a record is wrong")]
    Checksum,
    /// A length or type is invalid, or a fragment does not continue the one before.
    #[error("what stands there is no record")]
    NoRecord,
    /// Zeros, with records after them.
    #[error("zeros stand where a record should")]
    Zeros,
    /// A record names bytes of the value log that the disk does not have.
    #[error("a value that a record names is not on the disk")]
    Value,
}

/// A look at the contents of records.
#[derive(Clone, Copy)]
pub(super) struct Look<'l> {
    /// Records that begin before this offset are not looked at.
    pub(super) from: u64,
    /// Whether a record is good; called with its sequence number, count and rows.
    pub(super) is_good: &'l dyn Fn(&[u8]) -> bool,
}

/// Reads a file of the log.
///
/// # Errors
/// The file cannot be read.
pub fn scan(path: &Path) -> Result<Scan> {
    scan_with(path, None)
}

/// The same, with a look at records: one that is not good counts as [`Fault::Value`].
///
/// # Errors
/// The file cannot be read.
pub(super) fn scan_with(path: &Path, look: Option<Look<'_>>) -> Result<Scan> {
    let mut file = File::open(path)?;
    let mut scanner = Scanner {
        look,
        ..Scanner::default()
    };
    let mut block = vec![0; BLOCK];
    loop {
        let len = read_block(&mut file, &mut block)?;
        scanner.take(&block[..len]);
        if len < BLOCK {
            return Ok(scanner.end());
        }
    }
}

fn read_block(file: &mut File, block: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while len < block.len() {
        match file.read(&mut block[len..])? {
            0 => break,
            n => len += n,
        }
    }
    Ok(len)
}

/// The number of a file of the log, by its name.
pub fn number(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(".log")?;
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    all.then(|| digits.parse().ok())?
}

/// The files of the log in a directory, in the order of their numbers.
///
/// # Errors
/// The directory cannot be read.
pub fn files(dir: &Path) -> std::io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in dir.read_dir()? {
        let path = entry?.path();
        if let Some(number) = number(&path) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

#[derive(Default)]
struct Scanner<'l> {
    found: Scan,
    look: Option<Look<'l>>,
    /// The first bytes of the current record, at most its header, or all if it is looked at.
    head: Vec<u8>,
    in_record: bool,
    /// Only zeros have been read since the last fragment.
    zeros: bool,
}

impl Scanner<'_> {
    fn take(&mut self, block: &[u8]) {
        let mut rest = block;
        while rest.len() >= HEADER {
            let Some(fragment) = self.fragment(rest) else {
                // The next block begins with a fragment again.
                break;
            };
            rest = rest.get(fragment..).unwrap_or_default();
            if self.found.fault.is_none() && !self.in_record {
                self.found.intact = self.found.size + (block.len() - rest.len()) as u64;
            }
        }
        if rest.len() < HEADER && rest.iter().any(|byte| *byte != 0) {
            self.fails(match block.len() < BLOCK {
                true => Fault::Incomplete,
                false => Fault::NoRecord,
            });
        }
        self.found.size += block.len() as u64;
    }

    /// Reads the fragment at the beginning of `rest`, which reaches to the end of the block. Returns
    /// its length, or `None` if there is none.
    fn fragment(&mut self, rest: &[u8]) -> Option<usize> {
        let [a, b, c, d, low, high, kind] = *rest.first_chunk::<HEADER>()?;
        let end = HEADER + usize::from(u16::from_le_bytes([low, high]));
        if rest.iter().all(|byte| *byte == 0) {
            self.zeros = true;
            return None;
        }
        if self.zeros {
            self.fails(Fault::Zeros);
        }
        if kind == ZERO || REUSED.contains(&kind) {
            self.fails(Fault::NoRecord);
            return None;
        }
        let Some(covered) = rest.get(HEADER - 1..end) else {
            self.fails(Fault::Incomplete);
            return None;
        };
        match checksum(covered) == u32::from_le_bytes([a, b, c, d]) {
            true => self.whole_fragment(kind, &covered[1..]),
            false => self.fails(Fault::Checksum),
        }
        Some(end)
    }

    fn whole_fragment(&mut self, kind: u8, bytes: &[u8]) {
        const HEAD: usize = 12;
        let begins = [FULL, FIRST].contains(&kind);
        let goes_on = [MIDDLE, LAST].contains(&kind);
        if !begins && !goes_on {
            // Metadata of the log, such as its compression type.
            return;
        }
        if begins == self.in_record {
            self.fails(Fault::NoRecord);
            self.in_record = false;
            if goes_on {
                return;
            }
        }
        if begins {
            self.head.clear();
        }
        let most = match self.look {
            Some(look) if self.found.intact >= look.from => usize::MAX,
            _ => HEAD,
        };
        let room = most.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.in_record = [FIRST, MIDDLE].contains(&kind);
        if !self.in_record {
            self.whole_record();
        }
    }

    fn whole_record(&mut self) {
        if self.found.fault.is_some() {
            self.found.records_after += 1;
            return;
        }
        if let Some(look) = self.look
            && self.found.intact >= look.from
            && !(look.is_good)(&self.head)
        {
            return self.fails(Fault::Value);
        }
        let head = self.head.split_first_chunk::<8>();
        let Some((sequence, rows)) = head else {
            return;
        };
        let rows = rows.first_chunk::<4>().copied().map(u32::from_le_bytes);
        let first = u64::from_le_bytes(*sequence);
        let next = first.saturating_add(rows.unwrap_or_default().into());
        let begin = self.found.sequences.map_or(first, |(begin, _)| begin);
        self.found.sequences = Some((begin, next));
    }

    fn fails(&mut self, fault: Fault) {
        self.found.fault.get_or_insert(fault);
        self.in_record = false;
    }

    fn end(mut self) -> Scan {
        if self.in_record {
            self.fails(Fault::Incomplete);
        }
        self.found
    }
}

#[cfg(test)]
mod tests;
