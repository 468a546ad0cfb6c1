//! What is known of a keyspace's deletions; see [`crate::storage::tombstones`].

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of landmarks that a DB keeps.
pub(in crate::storage) const LANDMARKS: usize = 256;

/// Longer keys are no landmarks.
pub(in crate::storage) const LANDMARK_BYTES: usize = 512;

/// The most deleted ranges that are remembered; further ones are dropped.
const RANGES: usize = 1024;

/// With fewer tombstones a memtable is not written out because of them.
const TOMBSTONES_MIN: u64 = 1024;

/// Deletions rest when none has come for so long.
const REST: Duration = Duration::from_secs(20);

/// Tombstones are written out after so long though more keep coming.
const LONGEST: Duration = Duration::from_secs(300);

/// How often deletions are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Statistics of a keyspace's deletions, and compactions that are due.
#[derive(Debug, Default)]
pub(in crate::storage) struct Deletions {
    /// Keys removed since the last [`crate::storage::Engine::tidy`].
    pub(in crate::storage) keys: AtomicU64,
    /// The value of `keys` when it was last checked.
    pub(in crate::storage) seen: AtomicU64,
    pub(in crate::storage) landmarks: Mutex<Vec<Box<[u8]>>>,
    /// Ranges of rows that are to be compacted.
    pub(in crate::storage) compactions: Mutex<Vec<RowRange>>,
    /// Ranges of rows that were deleted since the last compaction because of it.
    pub(in crate::storage) ranges: Mutex<Vec<RowRange>>,
    pub(in crate::storage) pending: Mutex<Pending>,
}

pub(in crate::storage) type RowRange = (Box<[u8]>, Box<[u8]>);

impl Deletions {
    /// Counts the keys that a commit has removed; `change` is the change of their number.
    pub(in crate::storage) fn note_keys(&self, change: i64) {
        if change < 0 {
            self.keys
                .fetch_add(change.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// Remembers that the rows in `[from, to)` were deleted, as one range with the one before if they
    /// touch: elements are popped range by range.
    pub(in crate::storage) fn note_range(&self, from: &[u8], to: &[u8]) {
        let mut ranges = self.ranges.lock();
        if let Some((first, end)) = ranges.last_mut()
            && from <= &**end
            && &**first <= to
        {
            if from < &**first {
                *first = from.into();
            }
            if to > &**end {
                *end = to.into();
            }
        } else if ranges.len() < RANGES {
            ranges.push((from.into(), to.into()));
        }
    }

    pub(in crate::storage) fn note_landmark(&self, key: &[u8]) {
        let mut landmarks = self.landmarks.lock();
        if key.len() > LANDMARK_BYTES || landmarks.iter().any(|known| **known == *key) {
            return;
        }
        match landmarks.len() < LANDMARKS {
            true => landmarks.push(key.into()),
            false => landmarks[fastrand::usize(..LANDMARKS)] = key.into(),
        }
    }
}

/// The tombstones of a memtable: until when they wait for more.
#[derive(Debug, Default)]
pub(in crate::storage) struct Pending {
    looked: Option<Instant>,
    /// How many tombstones and ranges there were.
    amount: (u64, usize),
    /// Since when there are any, and since when they are as many.
    since: Option<(Instant, Instant)>,
}

impl Pending {
    /// Whether it is time to look at the tombstones again.
    pub(in crate::storage) fn should_look(&mut self, now: Instant) -> bool {
        let should = self.looked.is_none_or(|then| now - then >= LOOK_EVERY);
        if should {
            self.looked = Some(now);
        }
        should
    }

    /// Whether tombstones and deleted ranges of this number are to be written out.
    pub(in crate::storage) fn is_due(
        &mut self,
        tombstones: u64,
        ranges: usize,
        now: Instant,
    ) -> bool {
        if tombstones < TOMBSTONES_MIN && ranges == 0 {
            self.since = None;
            return false;
        }
        let (first, last) = self.since.unwrap_or((now, now));
        let last = match self.amount == (tombstones, ranges) {
            true => last,
            false => now,
        };
        self.amount = (tombstones, ranges);
        let is_due = now - last >= REST || now - first >= LONGEST;
        self.since = (!is_due).then_some((first, last));
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let deletions = Deletions::default();
        for (from, to) in [("b", "d"), ("d", "f"), ("a", "c"), ("x", "y"), ("p", "q")] {
            deletions.note_range(from.as_bytes(), to.as_bytes());
        }
        let ranges = deletions.ranges.lock().clone();
        let expected = [("a", "f"), ("x", "y"), ("p", "q")];
        let expected = expected.map(|(from, to)| (from.as_bytes().into(), to.as_bytes().into()));
        assert_eq!(ranges, expected);
        for n in 0..2 * RANGES as u32 {
            deletions.note_range(&(2 * n).to_be_bytes(), &(2 * n + 1).to_be_bytes());
        }
        assert_eq!(deletions.ranges.lock().len(), RANGES);
    }

    #[test]
    fn tombstones_wait_until_no_more_come_but_not_for_ever() {
        let begin = Instant::now();
        let at = |s| begin + Duration::from_secs(s);
        let mut pending = Pending::default();
        assert!(!pending.is_due(TOMBSTONES_MIN - 1, 0, at(0)));
        assert!(!pending.is_due(TOMBSTONES_MIN - 1, 0, at(1000)));
        assert!(!pending.is_due(2000, 0, at(1001)));
        assert!(!pending.is_due(3000, 0, at(1015)));
        assert!(!pending.is_due(3000, 0, at(1034)));
        assert!(pending.is_due(3000, 0, at(1035)));
        // The memtable is a new one now.
        assert!(!pending.is_due(0, 0, at(1036)));
        assert!(!pending.is_due(0, 1, at(1037)));
        assert!(pending.is_due(0, 1, at(1057)));
        let more = (0..60).map(|n| pending.is_due(5000 + n, 0, at(2000 + 5 * n)));
        assert_eq!(more.filter(|is_due| *is_due).count(), 0);
        assert!(pending.is_due(9999, 0, at(2300)));
    }
}
