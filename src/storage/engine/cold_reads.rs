//! What commands need that is not in memory.
//!
//! An IO thread reads what is in memory: in the row cache, the block cache or, where the operating
//! system can tell, in the page cache ([`super::waiting`]). A command that needs another row fails
//! with [`StorageError::NotInMemory`](crate::storage::StorageError::NotInMemory) and is taken back.
//! What it lacks is a list of [`ColdRead`]s: [reader threads](super::readers) do them side by side,
//! which brings the rows into memory, and the command runs again from its start. It holds no lock
//! meanwhile.
//!
//! Nothing is handed over but the news that the reads are done: the rows are looked up again, under
//! their locks. If they have left memory by then, the command is taken back once more; after
//! [`MAX_ROUNDS`] rounds it goes to a worker. There it is tried in the same way, for as long as each
//! attempt gets further ([`Attempts`]), and then waits for the disk with its keys locked.

use super::Keyspace;
use crate::encoding::keys::RowKey;
use crate::encoding::values::ValueRef;
use crate::storage::Direction;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

/// A command that still lacks rows after so many rounds of reads runs where it may wait.
pub const MAX_ROUNDS: u8 = 3;
/// The reads of one round.
pub(in crate::storage) const ROUND_READS: usize = 1024;
/// A read of a range brings this many times as many rows into memory as the command has read so far.
const RANGE_GROWTH: usize = 32;

/// The range `[from, to)`, and the direction in which it is read.
#[derive(Clone)]
pub(in crate::storage) struct Span {
    pub(in crate::storage) from: RowKey,
    pub(in crate::storage) to: RowKey,
    pub(in crate::storage) direction: Direction,
}

impl Span {
    pub(in crate::storage) fn new(from: &[u8], to: &[u8], direction: Direction) -> Span {
        Span {
            from: RowKey::from_slice(from),
            to: RowKey::from_slice(to),
            direction,
        }
    }
}

/// What a command needs and does not find in memory.
pub struct ColdRead {
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) what: What,
}

pub(super) enum What {
    /// The row, and the hash by which the row cache finds it, if it is one for that cache.
    Row(RowKey, Option<u64>),
    /// The first rows of a range, so many of them.
    Range(Span, usize),
    /// Bytes of the value log.
    Value(ValueRef),
}

impl ColdRead {
    /// One row, and its hash in the row cache, if it is to be cached.
    pub(in crate::storage) fn row(
        keyspace: &Arc<Keyspace>,
        key: &[u8],
        cache_hash: Option<u64>,
    ) -> ColdRead {
        ColdRead {
            keyspace: keyspace.clone(),
            what: What::Row(RowKey::from_slice(key), cache_hash),
        }
    }

    /// The next rows of a range of which the command has read so many.
    pub(in crate::storage) fn range(
        keyspace: &Arc<Keyspace>,
        span: &Span,
        passed: usize,
    ) -> ColdRead {
        ColdRead {
            keyspace: keyspace.clone(),
            what: What::Range(span.clone(), RANGE_GROWTH * passed),
        }
    }

    /// A value that a row of this keyspace refers to.
    pub(in crate::storage) fn value(keyspace: &Arc<Keyspace>, at: ValueRef) -> ColdRead {
        ColdRead {
            keyspace: keyspace.clone(),
            what: What::Value(at),
        }
    }

    /// A hash of where the read begins, and how many rows the command had read from there. Keys may
    /// be long, so they are not kept.
    fn place(&self) -> (u64, usize) {
        let (from, count) = match &self.what {
            What::Row(key, _) => (key.as_slice(), 0),
            What::Range(span, count) => (span.from.as_slice(), *count),
            What::Value(at) => (&at.encode()[..], 0),
        };
        (FxBuildHasher.hash_one((self.keyspace.id.0, from)), count)
    }

    /// The keyspace and key of the row, if it is one.
    pub(in crate::storage) fn as_row(&self) -> Option<(&Arc<Keyspace>, &[u8])> {
        match &self.what {
            What::Row(key, _) => Some((&self.keyspace, key)),
            What::Range(..) | What::Value(_) => None,
        }
    }
}

/// The attempts of a command, on a thread that may wait, to run without waiting for the disk: other
/// threads would wait for its locks.
#[derive(Debug, Default)]
pub struct Attempts {
    rounds: u32,
    /// How long the attempts took, and how long the reads after them.
    ran: Duration,
    read: Duration,
    /// By [where](ColdRead::place) the first reads of rounds began: how many rows had been read from
    /// there.
    seen: FxHashMap<u64, usize>,
}

impl Attempts {
    /// Attempts may take so much longer than the reads.
    const SLACK: Duration = Duration::from_millis(20);
    const MAX_ROUNDS: u32 = 128;

    /// Notes that an attempt has ended after this time for want of `reads`. Returns whether another
    /// attempt after them is worthwhile: it may get further than all before, and attempts take no
    /// more time than reads.
    pub fn are_worth(&mut self, ran: Duration, reads: &[ColdRead]) -> bool {
        self.rounds += 1;
        self.ran += ran;
        let Some((from, count)) = reads.first().map(ColdRead::place) else {
            return false;
        };
        let before = self.seen.insert(from, count);
        self.rounds < Self::MAX_ROUNDS
            && before.is_none_or(|before| before < count)
            && self.ran <= self.read + Self::SLACK
    }

    /// Notes that the reads took so long.
    pub fn note_reads(&mut self, took: Duration) {
        self.read += took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{DbIndex, Engine, StorageConfig};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn attempts_are_worth_it_while_they_get_further_and_cost_less_than_reads() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().join("db"))).unwrap();
        let keyspace = engine.keyspace_or_create(DbIndex(0)).unwrap();
        let row = |key: &[u8]| vec![ColdRead::row(&keyspace, key, None)];
        let range = |passed| {
            let span = Span::new(b"a", b"b", Direction::Forward);
            vec![ColdRead::range(&keyspace, &span, passed)]
        };
        let mut attempts = Attempts::default();
        assert!(attempts.are_worth(MS, &row(b"a")));
        assert!(attempts.are_worth(MS, &row(b"b")));
        // The row has left memory again.
        assert!(!attempts.are_worth(MS, &row(b"a")));
        assert!(!attempts.are_worth(MS, &[]));
        // From the same place, further is better.
        let mut attempts = Attempts::default();
        assert!(attempts.are_worth(MS, &range(1)));
        assert!(attempts.are_worth(MS, &range(2)));
        assert!(!attempts.are_worth(MS, &range(2)));
        // Attempts may not take much longer than the reads.
        let mut attempts = Attempts::default();
        assert!(attempts.are_worth(Attempts::SLACK, &row(b"a")));
        assert!(!attempts.are_worth(MS, &row(b"b")));
        let mut attempts = Attempts::default();
        assert!(attempts.are_worth(Attempts::SLACK, &row(b"a")));
        attempts.note_reads(MS);
        assert!(attempts.are_worth(MS, &row(b"b")));
        // Nor may there be many.
        let mut attempts = Attempts::default();
        let most = Attempts::MAX_ROUNDS - 1;
        let mut is_worth = |n: u32| attempts.are_worth(Duration::ZERO, &row(&n.to_be_bytes()));
        assert_eq!(
            (0..2 * most)
                .map(&mut is_worth)
                .filter(|worth| *worth)
                .count(),
            most as usize
        );
    }
}
