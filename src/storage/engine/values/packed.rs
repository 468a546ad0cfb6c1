//! The packed form of a value: its chunks, as LZ4 has made them shorter.
//!
//! ```text
//! packed  chunks, each with its checksum ‖ lengths
//! lengths of more chunks than one: bytes of each as it stands (2) ‖ checksum (4)
//! ```
//!
//! A chunk that LZ4 does not make shorter stands as it is, and has the length that says so. With the
//! lengths, a part of a value can be read without the chunks before it.

use crate::encoding::values::ValueRef;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

/// Bytes of a value with one checksum, before they are packed.
pub(super) const CHUNK: u64 = 32 << 10;
/// Bytes of a checksum.
pub(super) const CHECKSUM: u64 = 4;
/// Bytes of an encoded length.
const LENGTH: usize = 2;

/// Bytes that packing must gain at least, which is more than the checksums and lengths take.
const LEAST_GAIN: usize = 16;

const _: () = assert!(CHUNK <= u16::MAX as u64);

/// Packs the chunks of a value, piece by piece.
#[derive(Default)]
pub(super) struct Packing {
    table: CompressTable,
    /// The chunks of the last piece, as they stand, one after the other.
    bytes: Vec<u8>,
    /// How many chunks were before that piece.
    before: usize,
    /// The bytes of each chunk, as it stands.
    lengths: Vec<u16>,
}

impl Packing {
    /// Begins with the first piece of a value. Returns whether packing pays, which its first chunk
    /// decides: an eighth must be gained.
    pub(super) fn begin(&mut self, piece: &[u8], value_len: u64) -> bool {
        self.lengths.clear();
        if value_len > ValueRef::PACKED_MAX {
            return false;
        }
        let first = &piece[..piece.len().min(CHUNK as usize)];
        self.start_piece();
        let packed = self.pack(first);
        if packed + (first.len() / 8).max(LEAST_GAIN) > first.len() {
            return false;
        }
        self.pack_all(&piece[first.len()..]);
        true
    }

    /// Whether packing makes a short value a quarter shorter.
    pub(super) fn packs_well(&mut self, value: &[u8]) -> bool {
        self.lengths.clear();
        self.start_piece();
        let value = &value[..value.len().min(CHUNK as usize)];
        self.pack(value) <= value.len() - value.len() / 4
    }

    /// Packs the next piece.
    pub(super) fn next(&mut self, piece: &[u8]) {
        self.start_piece();
        self.pack_all(piece);
    }

    fn pack_all(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK as usize) {
            self.pack(chunk);
        }
    }

    fn start_piece(&mut self) {
        self.before = self.lengths.len();
        self.bytes.clear();
    }

    /// Appends a chunk; returns its length.
    fn pack(&mut self, chunk: &[u8]) -> usize {
        let from = self.bytes.len();
        self.bytes
            .resize(from + get_maximum_output_size(chunk.len()), 0);
        let packed = compress_into_with_table(chunk, &mut self.bytes[from..], &mut self.table);
        let len = match packed {
            Ok(len) if len < chunk.len() => len,
            _ => {
                self.bytes[from..from + chunk.len()].copy_from_slice(chunk);
                chunk.len()
            }
        };
        self.bytes.truncate(from + len);
        self.lengths.push(len as u16);
        len
    }

    /// The chunks of the last piece, as they are to stand.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        self.lengths[self.before..].iter().map(move |len| {
            let (chunk, after) = rest.split_at(usize::from(*len));
            rest = after;
            chunk
        })
    }

    /// The lengths of all chunks, as they are to stand behind them; none if there is one chunk.
    pub(super) fn lengths(&self) -> Option<Vec<u8>> {
        let lengths = self.lengths.iter();
        (self.lengths.len() > 1).then(|| lengths.flat_map(|len| len.to_be_bytes()).collect())
    }
}

/// Bytes of the lengths of a value's chunks, without their checksum.
pub(super) fn lengths_len(value_len: u64) -> u64 {
    match value_len.div_ceil(CHUNK) {
        0 | 1 => 0,
        chunks => chunks * LENGTH as u64,
    }
}

/// Where the chunks of a value stand, counted from its first.
pub(super) enum Places {
    /// As they were set.
    Plain,
    /// One chunk, with so many bytes.
    One(u64),
    /// The end of each chunk's checksum.
    Many(Vec<u64>),
}

impl Places {
    /// Those of a packed value with these lengths, which take `packed` bytes with their checksums;
    /// `None` if that contradicts each other.
    pub(super) fn of_many(lengths: &[u8], value_len: u64, packed: u64) -> Option<Places> {
        let mut ends = Vec::with_capacity(lengths.len() / LENGTH);
        let (mut end, mut left) = (0, value_len);
        for length in lengths.chunks_exact(LENGTH) {
            let len = u64::from(u16::from_be_bytes([length[0], length[1]]));
            if len == 0 || len > left.min(CHUNK) {
                return None;
            }
            left -= left.min(CHUNK);
            end += len + CHECKSUM;
            ends.push(end);
        }
        (end == packed && left == 0).then_some(Places::Many(ends))
    }

    /// Where a chunk begins, and the bytes that it has there; `None` if there is no such chunk.
    pub(super) fn of(&self, index: u64, value_len: u64) -> Option<(u64, u64)> {
        match self {
            Places::Plain => {
                let start = index * CHUNK;
                let left = value_len.checked_sub(start)?;
                Some((index * (CHUNK + CHECKSUM), left.min(CHUNK)))
            }
            Places::One(len) => (index == 0).then_some((0, *len)),
            Places::Many(ends) => {
                let end = *ends.get(index as usize)?;
                let before = match index {
                    0 => 0,
                    index => ends[index as usize - 1],
                };
                Some((before, end - before - CHECKSUM))
            }
        }
    }
}

/// Fills `out` with the bytes of a chunk. Returns whether the chunk has so many.
pub(super) fn unpack(chunk: &[u8], out: &mut [u8]) -> bool {
    decompress_into(chunk, out).is_ok_and(|len| len == out.len())
}
