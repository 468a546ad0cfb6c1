//! The memtables of DBs: RocksDB's `MemTableRep` over an index of our own.
//!
//! A memtable should be small, so that the processor's cache holds what a new row's
//! place is searched in; and large, so that what is written again and again goes to a
//! file once, and compactions have less to do. So it has many [`segments`], of which
//! only the newest is written to. With RocksDB's skip list even there a quarter of the
//! instructions of a SET went into the search; the [`index`] of a segment is a B-tree
//! over a list instead.
//!
//! Measured as processor time of the server, medians of three to six launches, SET with
//! `-P 16` and MSET of ten without, in hours in which launches differed by a third: the
//! B-tree took 0.82 to 0.89 of what the skip list did, in twelve memtables of 2 MiB to a
//! file; one of 96 MiB with segments 0.74 to 0.88 of that. The segments' own [`filter`]s
//! instead of RocksDB's took 0.88 and 0.93 of that; looking up together what a commit
//! is about to write ([`expected`]) 0.82 and 0.91 of that again. Segments of four times
//! the rows were no faster.
//!
//! `rep.cc` is what RocksDB calls; it knows RocksDB's classes and little else. It takes
//! rows from one thread at a time ([`index::Index::insert`]), so DBs with this memtable
//! are opened without `allow_concurrent_memtable_write`; commits take turns anyway.

mod expected;
mod filter;
mod index;
mod options;
mod row;
mod segments;
mod sync;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::slice;

pub use expected::Rows as ExpectedRows;
pub use options::MemtableRep;

use index::Arena;
use row::{Key, Row};
use segments::{Cursor, Segments, Walk};

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_memtable_allocate(allocator: *mut c_void, bytes: usize) -> *mut u8;
}

/// RocksDB's memory for one memtable.
#[derive(Clone, Copy)]
struct Memory(NonNull<c_void>);

// SAFETY: RocksDB keeps a memtable's memory until it drops the memtable, which drops
// the segments first.
#[allow(unsafe_code)]
unsafe impl Arena for Memory {
    fn allocate(&self, bytes: usize) -> NonNull<u8> {
        // SAFETY: the allocator outlives the memtable, and so its segments.
        let memory = unsafe { kedis_memtable_allocate(self.0.as_ptr(), bytes) };
        NonNull::new(memory)
            .unwrap_or_else(|| unreachable!("RocksDB ends the process if there is none"))
    }
}

/// The functions that `rep.cc` calls. A memtable comes from `kedis_memtable_new` and is used until
/// `kedis_memtable_free`, its cursors from `kedis_cursor_new` until `kedis_cursor_free`.
#[allow(unsafe_code)]
mod calls {
    use super::*;

    type Found = Option<NonNull<Row>>;

    /// An internal key.
    #[repr(C)]
    struct RawKey {
        bytes: *const u8,
        len: usize,
    }

    impl RawKey {
        /// # Safety
        /// `bytes` points to `len` bytes, which live for `'k`.
        unsafe fn get<'k>(self) -> Key<'k> {
            // SAFETY: by the contract.
            Key::new(unsafe { slice::from_raw_parts(self.bytes, self.len) })
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_memtable_new(allocator: NonNull<c_void>) -> Box<Segments<Memory>> {
        Box::new(Segments::new(Memory(allocator)))
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_memtable_free(memtable: Box<Segments<Memory>>) {
        drop(memtable);
    }

    /// # Safety
    /// As [`Segments::insert`] wants it.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_memtable_insert(memtable: &Segments<Memory>, row: NonNull<Row>) {
        // SAFETY: by the contract.
        unsafe { memtable.insert(row) }
    }

    /// # Safety
    /// The key is one.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_memtable_with_versions_of(
        memtable: &Segments<Memory>,
        key: RawKey,
    ) -> u64 {
        // SAFETY: by the contract.
        memtable.with_versions_of(unsafe { key.get() })
    }

    /// # Safety
    /// The key is one.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_memtable_at_or_after(
        memtable: &Segments<Memory>,
        segment: usize,
        key: RawKey,
    ) -> Found {
        // SAFETY: by the contract.
        memtable.at_or_after(segment, unsafe { key.get() })
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_cursor_new(
        memtable: &Segments<Memory>,
        within_map: bool,
    ) -> Box<Cursor<'_, Memory>> {
        let walk = match within_map {
            true => Walk::WithinMap,
            false => Walk::Everywhere,
        };
        Box::new(Cursor::new(memtable, walk))
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_cursor_free(cursor: Box<Cursor<'_, Memory>>) {
        drop(cursor);
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_cursor_first(cursor: &mut Cursor<'_, Memory>) -> Found {
        cursor.first()
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_cursor_last(cursor: &mut Cursor<'_, Memory>) -> Found {
        cursor.last()
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_cursor_next(cursor: &mut Cursor<'_, Memory>) -> Found {
        cursor.next()
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_cursor_previous(cursor: &mut Cursor<'_, Memory>) -> Found {
        cursor.previous()
    }

    /// # Safety
    /// The key is one.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_cursor_at_or_after(
        cursor: &mut Cursor<'_, Memory>,
        key: RawKey,
    ) -> Found {
        // SAFETY: by the contract.
        cursor.at_or_after(unsafe { key.get() })
    }

    /// # Safety
    /// The key is one.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_cursor_at_or_before(
        cursor: &mut Cursor<'_, Memory>,
        key: RawKey,
    ) -> Found {
        // SAFETY: by the contract.
        cursor.at_or_before(unsafe { key.get() })
    }
}
