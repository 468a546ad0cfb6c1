//! Figures of RocksDB and of the reads of rows, for the metrics: read without a lock that commands
//! or RocksDB's threads wait for. RocksDB's properties take its mutex, its statistics cost each read.
//! So `figures.cc` counts what its listener hears, and looks at levels through superversions, as
//! look-ups do; `disk/files.cc` counts what is read and written. Only hits of the block cache need the
//! statistics.

use super::{ColumnFamily, Engine};
use crate::base::histogram::Counts;
use crate::base::time::UnixMs;
use rocksdb::AsColumnFamilyRef;
use rocksdb::statistics::Ticker;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

const LISTENER: &CStr = c"kedis.Figures";

/// Levels of RocksDB.
pub const LEVELS: usize = 7;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_figures_register(name: *const c_char);
    fn kedis_figures_work(work: *mut Work);
    fn kedis_figures_add_family(family: *mut c_void, sum: *mut Tables);
    fn kedis_figures_stall(family: *mut c_void) -> u8;
    fn kedis_disk_read(reads: *mut u64, bytes: *mut u64);
    fn kedis_disk_written(by_flushes: *mut u64, by_compactions: *mut u64);
}

/// The name of the listener in a RocksDB option string.
pub(in crate::storage) fn listener() -> String {
    static KNOWN: Once = Once::new();
    // SAFETY: the name is a C string; `Once` ensures a single call.
    #[allow(unsafe_code)]
    KNOWN.call_once(|| unsafe { kedis_figures_register(LISTENER.as_ptr()) });
    LISTENER.to_string_lossy().into_owned()
}

/// What RocksDB has done since the process began.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Memtables written to tables.
    pub flushes: u64,
    /// Compactions that have ended.
    pub compactions: u64,
    /// Compactions that run now.
    pub compactions_running: u64,
    /// The time of all compactions that have ended, in microseconds.
    pub compaction_us: u64,
    /// Bytes that they have read.
    pub compaction_read_bytes: u64,
    /// Bytes that they have written.
    pub compaction_written_bytes: u64,
    /// How often writes began to be slowed down.
    pub slowdowns: u64,
    /// How often writes were stopped.
    pub stops: u64,
}

/// Blocks of tables that were looked up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blocks {
    /// Reads of table and blob files, by look-ups and by compactions.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Blocks that the block cache had, and those that it did not have, if RocksDB collects
    /// statistics.
    pub cached: Option<(u64, u64)>,
}

/// The tables and memtables of all column families.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Tables {
    /// Table files by level.
    pub files: [u64; LEVELS],
    /// Their bytes.
    pub bytes: [u64; LEVELS],
    /// Bytes that compactions have to write until all levels have their sizes.
    pub pending_compaction_bytes: u64,
    /// Bytes of memtables that take rows.
    pub active_memtable_bytes: u64,
    /// Memtables that wait to be written.
    pub immutable_memtables: u64,
    /// Blob files.
    pub blob_files: u64,
    /// Their bytes.
    pub blob_bytes: u64,
}

/// Whether writes wait for compactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// They do not.
    None,
    /// They are slowed down.
    Slowed,
    /// They are stopped.
    Stopped,
}

/// Look-ups of rows that the row cache may have.
#[derive(Debug, Default)]
pub(in crate::storage) struct RowReads {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl RowReads {
    /// Adds what a thread has counted.
    pub(in crate::storage) fn publish(&self, hits: u64, misses: u64) {
        if hits > 0 {
            self.hits.fetch_add(hits, Ordering::Relaxed);
        }
        if misses > 0 {
            self.misses.fetch_add(misses, Ordering::Relaxed);
        }
    }
}

fn raw(family: &ColumnFamily) -> *mut c_void {
    family.inner().cast()
}

impl Engine {
    /// What RocksDB has done since the process began.
    #[allow(unsafe_code)]
    pub fn background_work(&self) -> Work {
        let mut work = Work::default();
        // SAFETY: the pointer is valid for the call, and the struct is that of `figures.cc`.
        unsafe { kedis_figures_work(&raw mut work) };
        work
    }

    /// Blocks that were looked up.
    #[allow(unsafe_code)]
    pub fn block_reads(&self) -> Blocks {
        let mut blocks = Blocks::default();
        // SAFETY: both pointers are valid for the call.
        unsafe { kedis_disk_read(&raw mut blocks.reads, &raw mut blocks.read_bytes) };
        blocks.cached = self.config.statistics.then(|| {
            let ticker = |ticker| self.options.db.get_ticker_count(ticker);
            (
                ticker(Ticker::BlockCacheHit),
                ticker(Ticker::BlockCacheMiss),
            )
        });
        blocks
    }

    /// Bytes of tables and blob files that flushes and compactions have written since the process
    /// began.
    #[allow(unsafe_code)]
    pub fn table_bytes_written(&self) -> (u64, u64) {
        let (mut by_flushes, mut by_compactions) = (0, 0);
        // SAFETY: both pointers are valid for the call.
        unsafe { kedis_disk_written(&raw mut by_flushes, &raw mut by_compactions) };
        (by_flushes, by_compactions)
    }

    /// The tables of all column families, as look-ups find them now.
    #[allow(unsafe_code)]
    pub fn tables(&self) -> Tables {
        let mut sum = Tables::default();
        for family in self.all_families() {
            // SAFETY: the handle keeps its column family, and the engine the database; the struct
            // is that of `figures.cc`.
            unsafe { kedis_figures_add_family(raw(&family), &raw mut sum) };
        }
        sum
    }

    /// Whether writes wait for compactions now.
    #[allow(unsafe_code)]
    pub fn stall(&self) -> Stall {
        // SAFETY: the handle is that of a column family of the open database.
        match unsafe { kedis_figures_stall(raw(&self.system_cf)) } {
            0 => Stall::None,
            1 => Stall::Slowed,
            _ => Stall::Stopped,
        }
    }

    /// Look-ups of rows that the row cache had, and of those that it did not have and may have.
    pub fn row_reads(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.row_reads.hits), load(&self.row_reads.misses))
    }

    /// Bytes that all memtables take.
    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_usage().0 as u64
    }

    /// How long syncs of the logs have taken, in microseconds.
    pub fn sync_times(&self) -> Counts {
        self.durability.sync_times.counts()
    }

    /// For how long the oldest key whose time is over may have waited for the expire thread, in
    /// milliseconds; and likewise for elements.
    pub fn expiry_lag_ms(&self, now_ms: UnixMs) -> (u64, u64) {
        let lag = |low: UnixMs| match low {
            // No pass has been there yet.
            UnixMs::NONE => 0,
            low => now_ms.since(low),
        };
        let keyspaces = self.all_keyspaces();
        let marks = keyspaces.iter().map(|(_, keyspace)| keyspace.low_marks());
        marks.fold((0, 0), |(keys, elements), marks| {
            (keys.max(lag(marks.ttl_ms)), elements.max(lag(marks.due_ms)))
        })
    }
}
