//! The memtables of DBs: RocksDB's `MemTableRep` over an index of our own.
//!
//! In a small memtable the processor's cache holds what the search for a new row's place
//! reads. A large memtable writes a row that changes often to a file only once, and leaves
//! less to compact. To have both, a memtable consists of many [`segments`], and rows are
//! added to the newest one only. The [`index`] of a segment is a B-tree over a linked list:
//! with RocksDB's skip list the search took a quarter of the instructions of a SET, even
//! in memtables of that size.
//!
//! Measured as processor time of the server for SET with `-P 16` and for MSET of ten keys
//! without a pipeline; medians of three to six launches, which differed by up to a third:
//!
//! - B-tree instead of skip list, each with twelve memtables of 2 MiB to a file: 0.82 to 0.89.
//! - One memtable of 96 MiB with segments instead of these twelve: 0.74 to 0.88 of that.
//! - The segments' own [`filter`]s instead of RocksDB's: 0.88 and 0.93 of that.
//! - Places of a commit's rows looked up together ([`expected`]): 0.82 and 0.91 of that.
//! - Segments of four times the rows: no gain.
//!
//! RocksDB calls `rep.cc`, which adapts its classes to the functions below. One thread at a
//! time may add rows ([`index::Index::insert`]), so DBs with this memtable are opened without
//! `allow_concurrent_memtable_write`. The commit lock puts commits in order anyway.

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

use parking_lot::{Condvar, Mutex};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::slice;
use std::time::Duration;

pub use expected::Rows as ExpectedRows;
pub use options::MemtableRep;

use index::Arena;
use row::{Key, Row};
use segments::{Cursor, Segments, Walk};

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_memtable_allocate(allocator: *mut c_void, bytes: usize) -> *mut u8;
}

/// Says when a memtable is freed; RocksDB does not count its memory any more then.
static FREED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// Waits until a memtable is freed, at most `at_most`.
pub(super) fn wait_for_freed(at_most: Duration) {
    let mut waiting = FREED.0.lock();
    FREED.1.wait_for(&mut waiting, at_most);
}

/// RocksDB's allocator for one memtable.
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
        let _sleepers_see_it = FREED.0.lock();
        FREED.1.notify_all();
    }

    /// # Safety
    /// As of [`Segments::insert`].
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_memtable_insert(memtable: &Segments<Memory>, row: NonNull<Row>) {
        // SAFETY: by the contract.
        unsafe { memtable.insert(row) }
    }

    /// # Safety
    /// The key points to the bytes of an internal key, which live during the call.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_memtable_with_versions_of(
        memtable: &Segments<Memory>,
        key: RawKey,
    ) -> u64 {
        // SAFETY: by the contract.
        memtable.with_versions_of(unsafe { key.get() })
    }

    /// # Safety
    /// The key points to the bytes of an internal key, which live during the call.
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
    /// The key points to the bytes of an internal key, which live during the call.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_cursor_at_or_after(
        cursor: &mut Cursor<'_, Memory>,
        key: RawKey,
    ) -> Found {
        // SAFETY: by the contract.
        cursor.at_or_after(unsafe { key.get() })
    }

    /// # Safety
    /// The key points to the bytes of an internal key, which live during the call.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_cursor_at_or_before(
        cursor: &mut Cursor<'_, Memory>,
        key: RawKey,
    ) -> Found {
        // SAFETY: by the contract.
        cursor.at_or_before(unsafe { key.get() })
    }
}
