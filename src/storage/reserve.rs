//! Memory that the block cache makes room for, though nothing of it stands there.
//!
//! The cache may take what nothing else needs. When clients need memory at once, looking
//! now and then how large the process is comes too late. So what they take is reserved
//! in the cache, as RocksDB does for memtables: entries without content, which push out
//! blocks before the memory is used. RocksDB's C interface does not offer that; `reserve.cc`
//! calls its classes.

use parking_lot::Mutex;
use rocksdb::{AsRawPtr, Options};
use std::ffi::c_void;
use std::ptr::NonNull;

/// The cache is told of changes of at least so many bytes.
const STEP_BYTES: usize = 1 << 20;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_reservation_new(options: *const c_void) -> *mut c_void;
    fn kedis_reservation_set(reservation: NonNull<c_void>, bytes: usize);
    fn kedis_reservation_free(reservation: NonNull<c_void>);
}

/// A reservation in a block cache, which ends with it.
pub(super) struct Reservation(Mutex<Reserved>);

struct Reserved {
    reservation: Option<NonNull<c_void>>,
    bytes: usize,
}

// SAFETY: it is used by one thread at a time, under the mutex, and any may do so: the
// cache behind it is shared by all threads.
#[allow(unsafe_code)]
unsafe impl Send for Reserved {}

impl Reservation {
    /// Of nothing yet, in the block cache of these options.
    pub(super) fn new(options: &Options) -> Reservation {
        // SAFETY: the pointer is valid during the call; the cache is shared, so it
        // stays as long as the reservation.
        #[allow(unsafe_code)]
        let reservation = unsafe { kedis_reservation_new(options.as_raw_ptr().cast()) };
        Reservation(Mutex::new(Reserved {
            reservation: NonNull::new(reservation),
            bytes: 0,
        }))
    }

    /// Reserves about so many bytes in all, no longer those of before.
    pub(super) fn set(&self, bytes: usize) {
        let mut reserved = self.0.lock();
        if bytes.abs_diff(reserved.bytes) < STEP_BYTES {
            return;
        }
        if let Some(reservation) = reserved.reservation {
            // SAFETY: it exists until it is dropped; the mutex is held.
            #[allow(unsafe_code)]
            unsafe {
                kedis_reservation_set(reservation, bytes);
            }
            reserved.bytes = bytes;
        }
    }
}

impl Reservation {
    /// How many bytes are reserved.
    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().bytes as u64
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(reservation) = self.0.get_mut().reservation.take() {
            // SAFETY: it came from `kedis_reservation_new`, and nobody has it any more.
            #[allow(unsafe_code)]
            unsafe {
                kedis_reservation_free(reservation);
            }
        }
    }
}
