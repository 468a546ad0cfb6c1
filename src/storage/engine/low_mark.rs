//! Lower bounds of an index's rows, so that passes over the index begin there.

use std::sync::atomic::{AtomicU64, Ordering};

/// A lower bound of the rows of an index. It stays correct although rows are written while a pass
/// reads: a writer announces a row after it is committed, and a pass raises the mark no further than
/// to the least row that was announced meanwhile.
#[derive(Debug, Default)]
pub(in crate::storage) struct LowMark {
    low: AtomicU64,
    /// The least row that was announced since the last pass began.
    announced: AtomicU64,
}

/// The state of a [`LowMark`] when a pass began.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct LowMarkSeen {
    pub(in crate::storage) low: u64,
}

impl LowMark {
    /// A row at `at` was committed. `u64::MAX` announces nothing.
    pub(in crate::storage) fn announce(&self, at: u64) {
        // In this order: see `end`.
        for mark in [&self.announced, &self.low] {
            // Mostly there are lower ones, and other threads need not fetch the word again.
            if mark.load(Ordering::SeqCst) > at {
                mark.fetch_min(at, Ordering::SeqCst);
            }
        }
    }

    /// The bound now.
    pub(in crate::storage) fn low(&self) -> u64 {
        self.low.load(Ordering::SeqCst)
    }

    /// The state now, for a pass that begins. There is one pass at a time.
    pub(in crate::storage) fn begin(&self) -> LowMarkSeen {
        self.announced.store(u64::MAX, Ordering::SeqCst);
        LowMarkSeen { low: self.low() }
    }

    /// Ends the pass that began with `seen` and left no row before `low`, but those that it did not
    /// see. Such a row was announced since the pass began, at least to `self.low`. If that is done by
    /// now, it is in `announced`, or it is below what the pass began with, which `before` tells. If
    /// not, it will lower the new mark itself.
    pub(in crate::storage) fn end(&self, seen: LowMarkSeen, low: u64) {
        let before = self.low.swap(low, Ordering::SeqCst);
        let mut unseen = self.announced.load(Ordering::SeqCst);
        if before < seen.low {
            unseen = unseen.min(before);
        }
        self.low.fetch_min(unseen, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::collections::BTreeSet;

    fn mark_at(low: u64) -> LowMark {
        let mark = LowMark::default();
        mark.end(mark.begin(), low);
        mark
    }

    #[test]
    fn an_undisturbed_pass_raises_the_mark() {
        assert_eq!(mark_at(7).begin().low, 7);
    }

    /// An old collection that died while newer ones were reclaimed was never reclaimed: its
    /// announcement lay below the mark that the pass restored.
    #[test]
    fn an_announcement_during_a_pass_is_never_forgotten() {
        for announced in [3, 7, 9, 20] {
            let mark = mark_at(7);
            let seen = mark.begin();
            mark.announce(announced);
            mark.end(seen, 10);
            assert!(mark.low() <= announced, "{announced}");
        }
    }

    /// The mark stood still as long as every pass saw a new key with an expiry time: the passes began
    /// ever farther behind, and the lag of expiry seemed to grow.
    #[test]
    fn rows_that_are_announced_behind_a_pass_do_not_keep_the_mark() {
        let mark = mark_at(7);
        let seen = mark.begin();
        mark.announce(20);
        mark.end(seen, 10);
        assert_eq!(mark.low(), 10);
        let seen = mark.begin();
        mark.announce(12);
        mark.end(seen, 15);
        assert_eq!(mark.low(), 12);
    }

    #[test]
    fn no_row_is_left_below_the_mark() {
        const ROWS: u64 = 20_000;
        let (mark, rows) = (LowMark::default(), Mutex::new(BTreeSet::new()));
        let write = |seed: u64| {
            for n in 0..ROWS {
                // Mostly ahead of the passes, now and then behind them.
                let at = n + (n ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 64;
                rows.lock().insert((at, seed, n));
                mark.announce(at);
            }
        };
        std::thread::scope(|scope| {
            let writers = [3, 5].map(|seed| scope.spawn(move || write(seed)));
            while !writers.iter().all(|writer| writer.is_finished()) {
                let seen = mark.begin();
                // Writers are about here, so rows come in behind the pass.
                let last = rows.lock().last().map_or(0, |(at, ..)| *at);
                let to = last.saturating_sub(32).max(seen.low);
                let range = (seen.low, 0, 0)..(to, 0, 0);
                let due: Vec<_> = rows.lock().range(range).copied().collect();
                due.iter().for_each(|row| _ = rows.lock().remove(row));
                mark.end(seen, to);
            }
        });
        let left = rows.lock().first().map_or(u64::MAX, |(at, ..)| *at);
        assert!(mark.low() <= left, "{} {left}", mark.low());
    }
}
