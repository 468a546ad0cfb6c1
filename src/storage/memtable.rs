//! The memtables of DBs: RocksDB's `MemTableRep` over an index of our own.
//!
//! Each row that is written finds its place in a memtable of some 15,000 rows, which
//! with RocksDB's skip list took a quarter of the instructions of a SET. The [`index`]
//! is a B-tree over a list instead. Medians of four or five launches of each, against
//! the skip list, in processor time per command: SET with `-P 16` 0.82 and 0.89,
//! without 0.85 and 0.89, MSET of ten 0.89 (in bursts of three seconds anything from
//! 0.84 to 1.10); and 0.88 of the instructions of a SET. A memtable of the same size
//! has room for 15 % fewer rows, which is in these figures.
//!
//! `rep.cc` is what RocksDB calls; it knows RocksDB's classes and little else. It takes
//! rows from one thread at a time ([`index::Index::insert`]), so DBs with this memtable
//! are opened without `allow_concurrent_memtable_write`; commits take turns anyway.

mod index;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::slice;
use std::sync::Once;

use index::{Arena, Index, Key, Row};

const NAME: &CStr = c"kedis.BTree";

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_memtable_register(name: *const c_char);
    fn kedis_memtable_allocate(allocator: *mut c_void, bytes: usize) -> *mut u8;
}

/// What a string of RocksDB's options says for this memtable.
pub fn option() -> String {
    static KNOWN: Once = Once::new();
    // SAFETY: the name is a C string; `Once` sees to it that it is said once.
    #[allow(unsafe_code)]
    KNOWN.call_once(|| unsafe { kedis_memtable_register(NAME.as_ptr()) });
    format!("memtable_factory={}", NAME.to_string_lossy())
}

/// RocksDB's memory for one memtable.
struct Memory(NonNull<c_void>);

// SAFETY: RocksDB keeps a memtable's memory until it drops the memtable, which drops
// the index first.
#[allow(unsafe_code)]
unsafe impl Arena for Memory {
    fn allocate(&self, bytes: usize) -> NonNull<u8> {
        // SAFETY: the allocator outlives the memtable, and so its index.
        let memory = unsafe { kedis_memtable_allocate(self.0.as_ptr(), bytes) };
        NonNull::new(memory)
            .unwrap_or_else(|| unreachable!("RocksDB ends the process if there is none"))
    }
}

/// What `rep.cc` calls. An index comes from `kedis_memtable_new` and is used until
/// `kedis_memtable_free`; keys are internal keys of this many bytes.
#[allow(unsafe_code)]
mod calls {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn kedis_memtable_new(allocator: NonNull<c_void>) -> Box<Index<Memory>> {
        Box::new(Index::new(Memory(allocator)))
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_memtable_free(index: Box<Index<Memory>>) {
        drop(index);
    }

    /// # Safety
    /// As [`Index::insert`] wants it.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_memtable_insert(index: &Index<Memory>, row: NonNull<Row>) {
        // SAFETY: by the contract.
        unsafe { index.insert(row) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_memtable_first(index: &Index<Memory>) -> Option<NonNull<Row>> {
        index.first()
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_memtable_last(index: &Index<Memory>) -> Option<NonNull<Row>> {
        index.last()
    }

    /// # Safety
    /// There are `len` bytes of key.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_memtable_at_or_after(
        index: &Index<Memory>,
        key: *const u8,
        len: usize,
    ) -> Option<NonNull<Row>> {
        // SAFETY: by the contract.
        index.at_or_after(Key::new(unsafe { slice::from_raw_parts(key, len) }))
    }

    /// # Safety
    /// There are `len` bytes of key.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_memtable_before(
        index: &Index<Memory>,
        key: *const u8,
        len: usize,
    ) -> Option<NonNull<Row>> {
        // SAFETY: by the contract.
        index.before(Key::new(unsafe { slice::from_raw_parts(key, len) }))
    }
}
