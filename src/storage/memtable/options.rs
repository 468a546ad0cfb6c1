//! The options of RocksDB that choose the memtable of DBs, and those that Kedis' memtable
//! excludes.

#![allow(unsafe_code)]

use crate::storage::StorageError;
use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, Options};
use std::ffi::{CStr, c_char};
use std::sync::Once;

const NAME: &CStr = c"kedis.BTree";

unsafe extern "C" {
    fn kedis_memtable_register(name: *const c_char);
}

/// The memtable of DBs. Both kinds are filled from the same write-ahead log and written to
/// the same files, so a database may be opened with either at any start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemtableRep {
    /// Kedis' own: B-trees in segments.
    BTree,
    /// RocksDB's default, a skip list, with RocksDB's Bloom filter.
    SkipList,
}

/// Whether an option of RocksDB is set, in the options of the database (first argument) or in
/// those of the column family (second).
type IsSet = fn(&Options, &Options) -> bool;

/// Options that must not be set with [`MemtableRep::BTree`]: the name, the check, and the
/// reason. RocksDB refuses the first one itself, but opens with the others.
const EXCLUDED: [(&str, IsSet, &str); 5] = [
    (
        "allow_concurrent_memtable_write",
        |db, _| ask(db, ffi::rocksdb_options_get_allow_concurrent_memtable_write) != 0,
        "it takes rows from one thread at a time",
    ),
    (
        "inplace_update_support",
        |_, cf| ask(cf, ffi::rocksdb_options_get_inplace_update_support) != 0,
        "its rows are read without a lock and never change",
    ),
    (
        "experimental_mempurge_threshold",
        |_, cf| ask(cf, ffi::rocksdb_options_get_experimental_mempurge_threshold) != 0.0,
        "the versions of a key must come in their order",
    ),
    (
        "paranoid_memory_checks",
        |_, cf| ask(cf, ffi::rocksdb_options_get_paranoid_memory_checks) != 0,
        "it has no look-up with checks, and RocksDB would take all keys for missing",
    ),
    (
        "memtable_verify_per_key_checksum_on_seek",
        |_, cf| {
            let get = ffi::rocksdb_options_get_memtable_verify_per_key_checksum_on_seek;
            ask(cf, get) != 0
        },
        "it has no look-up with checks, and RocksDB would take all keys for missing",
    ),
];

/// Reads an option back.
fn ask<T>(options: &Options, get: unsafe extern "C" fn(*mut ffi::rocksdb_options_t) -> T) -> T {
    // SAFETY: the options live during the call, which only reads them.
    unsafe { get(options.as_raw_ptr()) }
}

impl MemtableRep {
    /// The options of a column family with this memtable, as a string. `filter_share` is the
    /// share of a memtable that RocksDB's Bloom filter takes from the start.
    pub fn option(self, filter_share: f64) -> String {
        match self {
            MemtableRep::BTree => {
                static REGISTERED: Once = Once::new();
                // SAFETY: the name is a C string, and `Once` calls this once.
                REGISTERED.call_once(|| unsafe { kedis_memtable_register(NAME.as_ptr()) });
                format!("memtable_factory={}", NAME.to_string_lossy())
            }
            MemtableRep::SkipList => format!(
                "memtable_factory=skip_list;memtable_whole_key_filtering=true;\
                 memtable_prefix_bloom_size_ratio={filter_share}"
            ),
        }
    }

    /// Checks the options that a database and one of its column families are about to be
    /// opened with.
    ///
    /// # Errors
    /// [`StorageError::Excluded`] for an option with which this memtable would lose rows or
    /// give wrong ones.
    pub fn check(self, db: &Options, cf: &Options) -> Result<(), StorageError> {
        let excluded: &[_] = match self {
            MemtableRep::BTree => &EXCLUDED,
            MemtableRep::SkipList => &[],
        };
        match excluded.iter().find(|(_, is_set, _)| is_set(db, cf)) {
            Some((option, _, why)) => Err(StorageError::Excluded { option, why }),
            None => Ok(()),
        }
    }
}
