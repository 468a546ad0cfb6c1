//! Reads of values from a segment.

use super::super::waiting::begin_waiting_read;
use super::packed::{self, CHECKSUM, CHUNK, Places};
use super::segment::{RECORD_HEAD, Segment, checksum, corrupt, stored_len};
use crate::encoding::values::ValueRef;
use crate::storage::{Result, StorageError};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

impl Segment {
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
            let file = match may_wait {
                true => self.file()?,
                false => self.file_if_open().ok_or(StorageError::NotInMemory)?,
            };
            let reader = Reading {
                segment: self,
                file: &file,
                may_wait,
            };
            if may_wait {
                begin_waiting_read(CHUNK.min(range.end - range.start) as usize);
            }
            let places = reader.places(at)?;
            for index in range.start / CHUNK..=(range.end - 1) / CHUNK {
                reader.chunk(at, &places, index, &range, out)?;
            }
            Ok(())
        })();
        if done.is_err() {
            out.truncate(before);
        }
        done
    }

    /// Asks the operating system to bring a value into memory, and waits for it.
    pub(super) fn fetch(&self, at: &ValueRef) {
        // The command will meet an error.
        let Ok(file) = self.file() else { return };
        let mut buffer = vec![0; (256 << 10).min(stored_len(at) as usize)];
        let (mut offset, end) = (at.offset, at.offset + stored_len(at));
        while offset < end {
            let wanted = buffer.len().min((end - offset) as usize);
            begin_waiting_read(wanted);
            match file.read_at(&mut buffer[..wanted], offset) {
                Ok(read) if read > 0 => offset += read as u64,
                _ => return,
            }
        }
    }
}

/// A read of a value.
struct Reading<'a> {
    segment: &'a Segment,
    file: &'a File,
    may_wait: bool,
}

impl Reading<'_> {
    fn corrupt(&self, offset: u64, what: &str) -> StorageError {
        corrupt(self.segment.path(), offset, what)
    }

    /// Fills the place with what stands at `offset`, and its checksum behind it, which is checked.
    fn fill(&self, place: &mut [u8], offset: u64) -> Result<()> {
        if offset + place.len() as u64 > self.segment.file_len() {
            return Err(self.corrupt(offset, "it ends before"));
        }
        match self.may_wait {
            true => match self.file.read_exact_at(place, offset) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.corrupt(offset, "it ends before"));
                }
                read => read?,
            },
            false => self.read_from_memory(place, offset)?,
        }
        let (bytes, sum) = place.split_at(place.len() - CHECKSUM as usize);
        if sum != checksum(bytes, self.segment.number, offset).to_be_bytes() {
            return Err(self.corrupt(offset, "a checksum is wrong"));
        }
        Ok(())
    }

    /// Where the chunks of a value stand.
    fn places(&self, at: &ValueRef) -> Result<Places> {
        let packed = u64::from(at.packed);
        if packed == 0 {
            return Ok(Places::Plain);
        }
        let lengths = packed::lengths_len(at.len);
        let wrong = || self.corrupt(at.offset, "the lengths of its chunks");
        if lengths == 0 {
            let len = packed.checked_sub(CHECKSUM).filter(|len| *len < at.len);
            return len.map(Places::One).ok_or_else(wrong);
        }
        let chunks = packed.checked_sub(lengths + CHECKSUM).ok_or_else(wrong)?;
        let mut bytes = vec![0; (lengths + CHECKSUM) as usize];
        self.fill(&mut bytes, at.offset + RECORD_HEAD + chunks)?;
        let places = Places::of_many(&bytes[..lengths as usize], at.len, chunks);
        places.ok_or_else(wrong)
    }

    /// Appends what the range has of one chunk.
    fn chunk(
        &self,
        at: &ValueRef,
        places: &Places,
        index: u64,
        range: &Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = index * CHUNK;
        let len = CHUNK.min(at.len - start) as usize;
        let place = places.of(index, at.len);
        let (place, stored) = place.ok_or_else(|| self.corrupt(at.offset, "a chunk is missing"))?;
        let offset = at.offset + RECORD_HEAD + place;
        let from = out.len();
        out.try_reserve(len + CHECKSUM as usize)
            .map_err(|_| StorageError::NoMemory)?;
        if stored == len as u64 {
            out.resize(from + len + CHECKSUM as usize, 0);
            self.fill(&mut out[from..], offset)?;
        } else {
            out.resize(from + len, 0);
            PACKED.with_borrow_mut(|packed| {
                packed.resize((stored + CHECKSUM) as usize, 0);
                self.fill(packed, offset)?;
                match packed::unpack(&packed[..stored as usize], &mut out[from..]) {
                    true => Ok(()),
                    false => Err(self.corrupt(offset, "a chunk cannot be unpacked")),
                }
            })?;
        }
        out.truncate(from + (range.end - start).min(len as u64) as usize);
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
            match preadv2(self.file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
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
}

thread_local! {
    /// A chunk as it stands, while it is unpacked.
    static PACKED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
