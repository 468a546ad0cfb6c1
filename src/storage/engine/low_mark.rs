//! Lower bounds of an index's rows, so that passes over the index begin there.

use std::sync::atomic::{AtomicU64, Ordering};

/// A lower bound of the rows of an index. It stays correct although rows are written while a pass
/// reads: a writer announces a row after it is committed; a pass raises the mark only if no
/// announcement came in meanwhile.
#[derive(Debug, Default)]
pub(in crate::storage) struct LowMark {
    low: AtomicU64,
    announcements: AtomicU64,
}

/// The state of a [`LowMark`] when a pass began.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct LowMarkSeen {
    pub(in crate::storage) low: u64,
    announcements: u64,
}

impl LowMark {
    /// A row at `at` was committed. `u64::MAX` announces nothing.
    pub(in crate::storage) fn announce(&self, at: u64) {
        if at != u64::MAX {
            self.announcements.fetch_add(1, Ordering::SeqCst);
            self.low.fetch_min(at, Ordering::SeqCst);
        }
    }

    /// The state now, for a pass that begins.
    pub(in crate::storage) fn begin(&self) -> LowMarkSeen {
        LowMarkSeen {
            announcements: self.announcements.load(Ordering::SeqCst),
            low: self.low.load(Ordering::SeqCst),
        }
    }

    /// Ends the pass that began with `seen` and left no row before `low`. An announcement since
    /// then may be of a row that the pass did not see, even of one below the old mark. Either it is
    /// counted by now, and the old mark is restored, or it lowers the new mark itself.
    pub(in crate::storage) fn end(&self, seen: LowMarkSeen, low: u64) {
        let before = self.low.swap(low, Ordering::SeqCst);
        let announced = self.announcements.load(Ordering::SeqCst) != seen.announcements;
        if announced || before < seen.low {
            self.low.fetch_min(seen.low.min(before), Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(mark.begin().low <= announced, "{announced}");
        }
    }
}
