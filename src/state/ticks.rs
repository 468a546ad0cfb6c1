//! What the ticks of IO threads were like: figures that each thread keeps for itself, and others
//! read.

use crate::base::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};

/// The figures of one IO thread. Only this thread changes them; they share no cache line with those
/// of another.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Ticks {
    /// When the thread last polled its sockets, in monotonic µs.
    seen_us: AtomicU64,
    /// Ticks with commands, by how many these were.
    pub commands: Histogram,
    /// The same ticks by how long their commands ran, in microseconds.
    pub times: Histogram,
    /// Commits at the ends of ticks, by how long they took, in microseconds.
    pub commits: Histogram,
}

impl Ticks {
    /// Notes that a tick begins.
    pub fn begin(&self, now_us: u64) {
        self.seen_us.store(now_us, Ordering::Relaxed);
    }

    /// Notes the end of a tick with commands.
    pub fn end(&self, commands: u32, us: u64) {
        self.commands.note_alone(commands.into());
        self.times.note_alone(us);
    }

    /// When the thread last polled its sockets, in monotonic µs; 0 before the first time.
    pub fn seen_us(&self) -> u64 {
        self.seen_us.load(Ordering::Relaxed)
    }
}
