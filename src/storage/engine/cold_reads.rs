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
//! [`MAX_ROUNDS`] rounds it runs where waiting is allowed.

use super::Keyspace;
use crate::encoding::keys::RowKey;
use crate::encoding::values::ValueRef;
use crate::storage::Direction;
use std::sync::Arc;

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

    /// The keyspace and key of the row, if it is one.
    pub(in crate::storage) fn as_row(&self) -> Option<(&Arc<Keyspace>, &[u8])> {
        match &self.what {
            What::Row(key, _) => Some((&self.keyspace, key)),
            What::Range(..) | What::Value(_) => None,
        }
    }
}
