//! Memory for what reader threads read. How long a row is shows only when its block is read: some
//! readers with long rows at once could take more than the whole budget. So a reader that comes upon
//! a long block waits until others have done theirs.
//!
//! Only a thread that [has begun](LongReads::begin) waits, and only with its first long block: what it
//! holds already keeps others waiting. Nor does it wait once it [opens a table](opens_table): RocksDB
//! has locked a part of its table cache then, and the others may need the same part.

use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;

/// What all readers may hold at once is `1 / SHARE` of the memory budget, or a single block.
const SHARE: u64 = 32;

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// The bytes of long blocks that readers hold.
#[derive(Debug, Default)]
pub(super) struct LongReads {
    held: Mutex<u64>,
    given_back: Condvar,
}

/// The part of that which one reader holds.
struct Held {
    of: Arc<LongReads>,
    bytes: u64,
    most: u64,
    may_wait: bool,
}

impl LongReads {
    /// Counts the long blocks that this thread reads, until the result is dropped.
    pub fn begin(self: &Arc<Self>, budget: u64) -> impl Drop {
        /// Gives back what is held, also after a panic.
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                HELD.with_borrow_mut(Option::take);
            }
        }
        let of = self.clone();
        let most = budget / SHARE;
        HELD.set(Some(Held {
            of,
            bytes: 0,
            most,
            may_wait: true,
        }));
        End
    }
}

impl Held {
    fn add(&mut self, bytes: u64) {
        let mut all = self.of.held.lock();
        if self.may_wait && self.bytes == 0 {
            while *all > 0 && all.saturating_add(bytes) > self.most {
                self.of.given_back.wait(&mut all);
            }
        }
        *all += bytes;
        self.bytes += bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.of.held.lock() -= self.bytes;
            self.of.given_back.notify_all();
        }
    }
}

/// Notes that this thread is about to read a long block of so many bytes. If it is a reader, waits
/// until there is memory for that.
pub(super) fn hold(bytes: u64) {
    HELD.with_borrow_mut(|held| {
        if let Some(held) = held {
            held.add(bytes);
        }
    });
}

/// Notes that this thread is about to open a table.
pub(super) fn opens_table() {
    HELD.with_borrow_mut(|held| {
        if let Some(held) = held {
            held.may_wait = false;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::wait_for;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn long_blocks_wait_for_one_another() {
        const LONG_BLOCK: u64 = 1 << 20;
        const BUDGET: u64 = SHARE * 3 * LONG_BLOCK;
        let reads = Arc::new(LongReads::default());
        let is_held = |bytes| *reads.held.lock() == bytes;
        let waiting = AtomicUsize::new(0);
        let first = reads.begin(BUDGET);
        // A single block may be longer than all together.
        hold(4 * LONG_BLOCK);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _held = reads.begin(BUDGET);
                    waiting.fetch_add(1, Ordering::Relaxed);
                    hold(2 * LONG_BLOCK);
                    assert!(is_held(2 * LONG_BLOCK));
                    // The one that waits has less to wait for than this.
                    hold(2 * LONG_BLOCK);
                    assert!(is_held(4 * LONG_BLOCK));
                });
            }
            scope
                .spawn(|| {
                    let _held = reads.begin(BUDGET);
                    opens_table();
                    // It would wait forever otherwise: nothing is given back yet.
                    hold(LONG_BLOCK);
                })
                .join()
                .unwrap();
            wait_for("two readers", || waiting.load(Ordering::Relaxed) == 2);
            assert!(is_held(4 * LONG_BLOCK));
            drop(first);
        });
        assert!(is_held(0));
        // Other threads hold nothing.
        hold(4 * LONG_BLOCK);
        assert!(is_held(0));
    }
}
