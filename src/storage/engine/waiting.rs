//! Whether the reads of a thread may wait for the disk. `disk/files.cc` does what this asks for.
//!
//! A read that would wait on a thread that must not fails with a status that RocksDB passes on to the
//! caller, whatever block it was for: data, index or filter.

use super::long_reads;
use crate::storage::{Result, StorageError};
use crate::sys::run_queue;
use rocksdb::{AsRawPtr, ErrorKind, Options};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::time::Duration;

#[allow(unsafe_code)]
unsafe extern "C" {
    safe fn kedis_reads_may_wait(may: bool) -> bool;
    safe fn kedis_reads_on_io_thread();
    fn kedis_waiting_reads(all: *mut u64, of_io_threads: *mut u64);
    safe fn kedis_delay_reads(us: u64);
    safe fn kedis_begin_waiting_read(bytes: usize);
    fn kedis_no_readahead(options: *const c_void);
}

/// Keeps iterators of tables with these options from reading more than a block at a time, unless
/// they are told to: what a thread that does not wait asks the page cache for must be no more than
/// it needs.
#[allow(unsafe_code)]
pub(super) fn no_readahead(options: &Options) {
    // SAFETY: RocksDB's C interface keeps the options in the first and only member of the struct
    // that it hands out; the pointer is valid during the call.
    unsafe { kedis_no_readahead(options.as_raw_ptr().cast()) };
}

/// Calls `read`, whose reads of the disk fail instead of waiting.
pub(in crate::storage) fn without_waiting<R>(read: impl FnOnce() -> R) -> R {
    /// Restores the former state, also after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            kedis_reads_may_wait(self.0);
        }
    }
    let _restore = Restore(kedis_reads_may_wait(false));
    read()
}

/// The result of a read that may have been made [without waiting](without_waiting).
///
/// # Errors
/// [`StorageError::NotInMemory`] if it would have waited, otherwise what RocksDB reports.
pub(in crate::storage) fn or_not_in_memory<R>(
    done: std::result::Result<R, rocksdb::Error>,
) -> Result<R> {
    done.map_err(|error| match error.kind() {
        ErrorKind::Busy => StorageError::NotInMemory,
        _ => error.into(),
    })
}

/// Whether tests want a read that must not wait to fail, although the row may be in memory:
/// `KEDIS_PRETEND_COLD=n` makes one in `n` reads fail. Compiled to nothing without debug assertions.
pub(in crate::storage) fn pretends_cold() -> bool {
    cfg!(debug_assertions) && one_in().is_some_and(|n| fastrand::u64(..n) == 0)
}

/// Lets a read take a while where reads fail on purpose.
pub(in crate::storage) fn pretend_slow() {
    if cfg!(debug_assertions) && one_in().is_some() {
        std::thread::sleep(Duration::from_micros(fastrand::u64(..300)));
    }
}

fn one_in() -> Option<u64> {
    static ONE_IN: OnceLock<Option<u64>> = OnceLock::new();
    *ONE_IN.get_or_init(|| {
        let text = std::env::var("KEDIS_PRETEND_COLD").ok()?;
        text.parse().ok().filter(|n| *n > 0)
    })
}

thread_local! {
    static IS_IO_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is an IO thread.
pub(in crate::storage) fn is_io_thread() -> bool {
    IS_IO_THREAD.get()
}

/// Marks this thread as an IO thread: its reads that wait for the disk are counted as those of one, and
/// flushes and compactions pause while it waits for a processor.
pub fn count_as_io_thread() {
    IS_IO_THREAD.set(true);
    run_queue::watch_this_thread();
    kedis_reads_on_io_thread();
}

/// Called by `disk/files.cc` when an IO thread reads a table and may wait for the disk, which must not
/// happen: builds for tests log from where.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn kedis_io_thread_reads() {
    if cfg!(debug_assertions) {
        let stack = Backtrace::force_capture();
        log::error!("an IO thread reads a table and may wait for the disk\n{stack}");
    }
}

/// Called by `disk/files.cc`: whether flushes and compactions shall pause.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn kedis_io_threads_wait() -> bool {
    run_queue::watched_threads_wait()
}

/// Called by `disk/files.cc` before a thread that may wait reads 1 MiB or more from the disk.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn kedis_long_read(bytes: usize) {
    long_reads::hold(bytes as u64);
}

/// Called by `disk/files.cc` before a table is opened.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn kedis_opens_table() {
    long_reads::opens_table();
}

/// Notes that so many bytes of the value log are about to be read by a thread that may wait for the
/// disk, as `disk/files.cc` does for its files.
pub(super) fn begin_waiting_read(bytes: usize) {
    kedis_begin_waiting_read(bytes);
}

/// Makes each read that waits for the disk take so many microseconds longer, for tests and
/// measurements.
pub fn delay_reads(us: u64) {
    kedis_delay_reads(us);
}

/// How often the process has read from tables and the value log where it may have waited for the
/// disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitingReads {
    /// All such reads.
    pub all: u64,
    /// Those on IO threads.
    pub of_io_threads: u64,
}

/// See [`WaitingReads`].
#[allow(unsafe_code)]
pub fn waiting_reads() -> WaitingReads {
    let mut reads = WaitingReads::default();
    // SAFETY: both pointers are valid for the call.
    unsafe { kedis_waiting_reads(&raw mut reads.all, &raw mut reads.of_io_threads) };
    reads
}
