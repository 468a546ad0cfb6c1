//! Which locks of the tables a thread holds.

use super::{ALLOWED, LOCKS, Lock, TABLE};
use std::cell::Cell;

/// What one thread holds. Without a destructor, so that it can be asked until the thread
/// is gone: RocksDB calls back from threads that end.
struct Record {
    /// A bit for each lock of which `counts` says more than 0.
    held: Cell<u64>,
    counts: [Cell<u32>; LOCKS],
}

thread_local! {
    static RECORD: Record = const {
        Record {
            held: Cell::new(0),
            counts: [const { Cell::new(0) }; LOCKS],
        }
    };
}

/// Asserts that the thread may wait for `lock`, as it is about to.
///
/// # Panics
/// With debug assertions, if it holds a lock under which it must not take this one.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn check(lock: Lock) {
    if cfg!(debug_assertions) {
        check_against(lock, ALLOWED[lock as usize]);
    }
}

/// As [`check`], of a lock of which the thread may hold others of the same row. The caller
/// sees to an order among those.
///
/// # Panics
/// As [`check`].
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn check_beside(lock: Lock) {
    if cfg!(debug_assertions) {
        check_against(lock, ALLOWED[lock as usize] | lock.bit());
    }
}

#[cfg_attr(debug_assertions, track_caller)]
fn check_against(lock: Lock, mut allowed: u64) {
    if cfg!(test) && lock == Lock::Gate {
        // Unit tests have several transactions on one thread, each of which stands for a
        // thread of its own.
        allowed |= Lock::Gate.bit() | Lock::KeyStripe.bit();
    }
    let wrong = RECORD.with(|record| record.held.get()) & !allowed;
    // A thread that unwinds lets its locks go, and may need others for that.
    if wrong != 0 && !std::thread::panicking() {
        panic!(
            "order of locks: {} must not be taken under {}",
            lock.name(),
            names(wrong)
        );
    }
}

/// Asserts that the thread holds nothing but one lock, as it is about to wait for something
/// that another thread does under that lock.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub(super) fn check_alone(lock: Lock) {
    if cfg!(debug_assertions) {
        let others = RECORD.with(|record| record.held.get()) & !lock.bit();
        assert!(
            others == 0 || std::thread::panicking(),
            "order of locks: a thread waits under {} and {}",
            lock.name(),
            names(others)
        );
    }
}

fn names(locks: u64) -> String {
    let found = TABLE.iter().filter(|row| locks & row.lock.bit() != 0);
    found.map(|row| row.name).collect::<Vec<_>>().join(" and ")
}

/// The thread holds `lock` now, perhaps once more.
#[inline]
pub fn enter(lock: Lock) {
    if cfg!(debug_assertions) {
        RECORD.with(|record| {
            let count = &record.counts[lock as usize];
            count.set(count.get() + 1);
            record.held.set(record.held.get() | lock.bit());
        });
    }
}

/// The thread lets `lock` go, which it has entered.
///
/// # Panics
/// With debug assertions, if this thread has not.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn leave(lock: Lock) {
    if cfg!(debug_assertions) {
        RECORD.with(|record| {
            let count = &record.counts[lock as usize];
            let before = count.get();
            assert!(
                before > 0 || std::thread::panicking(),
                "{} is let go by a thread that does not hold it",
                lock.name()
            );
            count.set(before.saturating_sub(1));
            if before <= 1 {
                record.held.set(record.held.get() & !lock.bit());
            }
        });
    }
}
