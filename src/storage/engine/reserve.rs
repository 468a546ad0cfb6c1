//! Memory that the block cache makes room for, though nothing of it stands there.
//!
//! The cache may take what nothing else needs. When clients need memory at once, looking
//! now and then how large the process is comes too late. So what they take is reserved
//! in the cache, as RocksDB does for memtables: entries without content, which push out
//! blocks before the memory is used. RocksDB's C interface does not offer that; `reserve.cc`
//! calls its classes.

use crate::sys::lock_order::{Lock, Mutex};
use rocksdb::{AsRawPtr, Options};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The cache is told of changes of at least so many bytes.
const STEP_BYTES: usize = 1 << 20;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_reservation_new(options: *const c_void) -> *mut c_void;
    fn kedis_reservation_set(reservation: NonNull<c_void>, bytes: usize);
    fn kedis_reservation_free(reservation: NonNull<c_void>);
}

/// A reservation in a block cache, which ends with it.
pub(in crate::storage) struct Reservation {
    handle: Mutex<Option<Handle>, { Lock::Short as u8 }>,
    bytes: AtomicUsize,
}

/// Of the C++ side.
struct Handle(NonNull<c_void>);

// SAFETY: it is used by one thread at a time, under the mutex, and any may do so: the
// cache behind it is shared by all threads.
#[allow(unsafe_code)]
unsafe impl Send for Handle {}

impl Reservation {
    /// Of nothing yet, in the block cache of these options.
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

    /// Reserves about so many bytes in all, no longer those of before.
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
            // SAFETY: it came from `kedis_reservation_new`, and nobody has it any more.
            #[allow(unsafe_code)]
            unsafe {
                kedis_reservation_free(handle.0);
            }
        }
    }
}
