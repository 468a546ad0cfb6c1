//! Memory that is charged to the block cache without entries in it.
//!
//! The cache may take all memory that nothing else needs. When clients suddenly need memory, a
//! periodic check of the process's size comes too late. So their memory is reserved in the cache,
//! as RocksDB does for memtables: dummy entries evict blocks before the memory is used. RocksDB's C
//! interface does not offer that; `reserve.cc` calls its classes.

use parking_lot::Mutex;
use rocksdb::{AsRawPtr, Options};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reservation is updated when it changes by at least so many bytes.
const STEP_BYTES: usize = 1 << 20;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_reservation_new(options: *const c_void) -> *mut c_void;
    fn kedis_reservation_set(reservation: NonNull<c_void>, bytes: usize);
    fn kedis_reservation_free(reservation: NonNull<c_void>);
}

/// A reservation in a block cache, released when dropped.
pub(in crate::storage) struct Reservation {
    handle: Mutex<Option<Handle>>,
    bytes: AtomicUsize,
}

/// A pointer to the C++ object.
struct Handle(NonNull<c_void>);

// SAFETY: any thread may use it, one at a time, which the mutex ensures: the cache behind it is
// shared by all threads.
#[allow(unsafe_code)]
unsafe impl Send for Handle {}

impl Reservation {
    /// An empty reservation in the block cache of these options.
    pub(in crate::storage) fn new(options: &Options) -> Reservation {
        // SAFETY: the pointer is valid during the call; the cache is shared, so it
        // stays as long as the reservation.
        #[allow(unsafe_code)]
        let reservation = unsafe { kedis_reservation_new(options.as_raw_ptr().cast()) };
        Reservation {
            handle: Mutex::new(NonNull::new(reservation).map(Handle)),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Changes the reservation to about so many bytes in all.
    pub(in crate::storage) fn set(&self, bytes: usize) {
        let is_near = || bytes.abs_diff(self.bytes.load(Ordering::Relaxed)) < STEP_BYTES;
        if is_near() {
            return;
        }
        let handle = self.handle.lock();
        if let Some(handle) = handle.as_ref()
            && !is_near()
        {
            // SAFETY: it exists until it is dropped; the mutex is held.
            #[allow(unsafe_code)]
            unsafe {
                kedis_reservation_set(handle.0, bytes);
            }
            self.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// How many bytes are reserved.
    pub(in crate::storage) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) as u64
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.get_mut().take() {
            // SAFETY: it came from `kedis_reservation_new`, and there is no other copy of it.
            #[allow(unsafe_code)]
            unsafe {
                kedis_reservation_free(handle.0);
            }
        }
    }
}
