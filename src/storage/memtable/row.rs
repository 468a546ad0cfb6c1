//! A row of a memtable, and the order of rows: RocksDB's bytewise one, by user key, the
//! newest version first.

#![allow(unsafe_code)]

use super::sync::{AtomicPtr, Plain};
use std::cmp::Ordering;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::Ordering::Acquire;

/// Bytes of sequence number and type that end an internal key.
pub(super) const TRAILER: usize = 8;

/// A row of the memtable as it stands in memory: the link, then the key as RocksDB
/// writes it there (length of the internal key, internal key), then its value.
#[repr(C)]
pub struct Row {
    pub(super) next: AtomicPtr<Row>,
    pub(super) written: Plain,
    pub(super) key: [u8; 0],
}

/// The next row of the list.
///
/// # Safety
/// The row is whole and has its place among others.
#[inline]
pub unsafe fn next(row: NonNull<Row>) -> Option<NonNull<Row>> {
    // SAFETY: by the contract.
    NonNull::new(unsafe { (*row.as_ptr()).next.load(Acquire) })
}

/// An internal key: user key, then sequence number and type.
#[derive(Clone, Copy)]
pub struct Key<'a>(&'a [u8]);

impl<'a> Key<'a> {
    /// The internal key in these bytes. Panics if they are fewer than those of the trailer.
    pub fn new(internal: &'a [u8]) -> Self {
        assert!(internal.len() >= TRAILER, "an internal key has a trailer");
        Key(internal)
    }

    /// The key of a row.
    ///
    /// # Safety
    /// The row is whole and lives for `'a`.
    pub unsafe fn of(row: NonNull<Row>) -> Self {
        // SAFETY: a row begins with its link and a length of up to five bytes, and
        // as many bytes follow as that says. The pointer is the allocation's own.
        unsafe {
            (*row.as_ptr()).written.read();
            let mut at = (&raw const (*row.as_ptr()).key).cast::<u8>();
            let mut len = 0;
            let mut shift = 0;
            loop {
                let byte = at.read();
                at = at.add(1);
                len |= usize::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
                shift += 7;
            }
            Key(slice::from_raw_parts(at, len))
        }
    }

    /// Bytes of the user key.
    pub(super) fn user_len(self) -> usize {
        self.0.len() - TRAILER
    }

    /// The user key.
    pub fn user(self) -> &'a [u8] {
        &self.0[..self.user_len()]
    }

    /// Sequence number and type: the greater, the newer.
    pub(super) fn trailer(self) -> u64 {
        self.0
            .last_chunk()
            .map_or(0, |end| u64::from_le_bytes(*end))
    }

    /// The eight bytes of the user key from `from` on, as a big-endian number, which orders as
    /// the bytes do. Bytes beyond the end of the key are zero.
    #[inline]
    pub fn word(self, from: usize) -> u64 {
        let len = self.user_len();
        // The trailer follows the user key, so eight bytes can be read in any case.
        match self.0.get(from..).and_then(<[u8]>::first_chunk) {
            Some(word) if from < len => u64::from_be_bytes(*word) & leading(len - from),
            _ => 0,
        }
    }

    /// The four bytes of the user key from `from` on, as in [`Self::word`]: they distinguish keys
    /// with a common prefix of that length. With eight a memtable has room for 3 % fewer rows.
    #[inline]
    pub fn mark(self, from: usize) -> u32 {
        (self.word(from) >> 32) as u32
    }

    /// The length of the common prefix of both user keys, in bytes.
    pub(super) fn common_prefix(self, other: Self) -> usize {
        let (a, b) = (self.user(), other.user());
        let (chunks, others) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
        let whole = chunks.iter().zip(others).take_while(|(a, b)| a == b);
        let start = 8 * whole.count();
        let rest = a[start..].iter().zip(&b[start..]);
        start + rest.take_while(|(a, b)| a == b).count()
    }

    /// Whether the other user key begins with the first `common` bytes of this one, which has
    /// that many.
    #[inline]
    pub fn shares(self, other: Self, common: usize) -> bool {
        other.user_len() >= common
            && (0..common).step_by(8).all(|from| {
                let mask = leading(common - from);
                self.word(from) & mask == other.word(from) & mask
            })
    }
}

/// By user key, the newest version first.
impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let users = self.user().cmp(other.user());
        users.then_with(|| other.trailer().cmp(&self.trailer()))
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

/// A mask of the first `bytes` bytes of a big-endian word.
#[inline]
pub(super) fn leading(bytes: usize) -> u64 {
    match bytes {
        0..8 => !(u64::MAX >> (8 * bytes)),
        _ => u64::MAX,
    }
}
