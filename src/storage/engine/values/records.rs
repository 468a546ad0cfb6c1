//! The records of a segment, one after the other.

use super::segment::{FILE_HEAD, Head, RECORD_HEAD, Record, Segment};
use crate::storage::Result;
use std::os::unix::fs::FileExt;

/// While records are no longer than this, many are read together.
const SHORT: u64 = 8 << 10;
/// Bytes that are read together.
const READ_BYTES: u64 = 64 << 10;

/// A walk over the records of one segment.
#[derive(Debug)]
pub(in crate::storage) struct Records {
    /// The offset of the next record.
    next: u64,
    /// The length of the last record.
    last_len: u64,
    /// Bytes of the file, and their offset.
    buffer: Vec<u8>,
    buffer_from: u64,
}

impl Default for Records {
    fn default() -> Records {
        Records {
            next: FILE_HEAD,
            last_len: 0,
            buffer: Vec::new(),
            buffer_from: 0,
        }
    }
}

impl Records {
    /// The next record of the segment; `None` at the end. `segment` is the same in each call.
    ///
    /// # Errors
    /// What stands there is no record, or cannot be read. The walk does not go on then.
    pub(in crate::storage) fn next(&mut self, segment: &Segment) -> Result<Option<Record>> {
        let end = segment.end();
        if self.next + RECORD_HEAD > end {
            return Ok(None);
        }
        let head = self.head(segment, end)?;
        let record = segment.decode_head(&head, self.next)?;
        let after = Segment::after(&record);
        self.last_len = after - self.next;
        self.next = after;
        Ok(Some(record))
    }

    /// The head of the next record.
    fn head(&mut self, segment: &Segment, end: u64) -> Result<Head> {
        if let Some(head) = self.buffered() {
            return Ok(head);
        }
        let wanted = match self.last_len {
            ..=SHORT => READ_BYTES,
            _ => RECORD_HEAD,
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(wanted.min(end - self.next) as usize, 0);
        segment.file()?.read_exact_at(&mut buffer, self.next)?;
        (self.buffer, self.buffer_from) = (buffer, self.next);
        Ok(self.buffered().expect("at least a head was read"))
    }

    /// The head of the next record, if it is in the buffer.
    fn buffered(&self) -> Option<Head> {
        let place = self.next.checked_sub(self.buffer_from)?;
        self.buffer.get(place as usize..)?.first_chunk().copied()
    }

    /// The length of the last record in its file.
    pub(in crate::storage) fn last_len(&self) -> u64 {
        self.last_len
    }
}
