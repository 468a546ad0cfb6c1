//! The atomics of the memtable: those of the standard library. The models in `tests/memtable`
//! have another file in place of this one, with the atomics of loom, which tries all orders
//! in which the memory model lets a thread see the stores of others.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};
pub use std::thread::yield_now;

/// Stands for the plain memory of a row or a node: written once, and read by others after
/// an atomic has published its address. This type has no size and does nothing; loom's
/// reports a read that does not see the write.
pub struct Plain;

impl Plain {
    /// The memory is written.
    #[inline(always)]
    pub fn written() -> Self {
        Plain
    }

    /// The memory is read.
    #[inline(always)]
    pub fn read(&self) {}
}
