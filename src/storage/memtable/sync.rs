//! What the memtable's threads share: the atomics of the standard library. The models in
//! `tests/memtable` have another file in its place, with those of loom, which tries all
//! orders that processors may see them in.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};
pub use std::thread::yield_now;

/// Stands for the plain memory of a row or a node: written once, and read by others after
/// an atomic has published its address. It takes no room and does nothing; loom reports a
/// reader that does not see the write.
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
