//! Room for long replies. A reply counts as its client's memory only when it is whole;
//! until then the thread that makes it has to ask for what is more than a little, so
//! that however many threads make replies, all of them together stay within bounds.

use std::fmt;
use std::sync::Arc;

/// Bytes that a reply may have without asking, where it soon counts as its client's.
pub const FREE_BYTES: usize = 2 << 20;

/// What knows how much memory replies may take.
pub trait Lender: Send + Sync {
    /// How many bytes more a reply may have: `most`, or else `least`.
    fn lend(&self, least: usize, most: usize) -> Option<usize>;

    /// So many are free again, or count as their client's.
    fn take_back(&self, bytes: usize);
}

/// What was lent for a reply.
pub(super) struct Room {
    lender: Arc<dyn Lender>,
    lent: usize,
}

impl Room {
    pub(super) fn new(lender: Arc<dyn Lender>) -> Room {
        Room { lender, lent: 0 }
    }

    /// The new limit of a reply that lacks `lack` bytes and may have `limit` yet: twice
    /// as many, as buffers grow, or as many as it needs.
    pub(super) fn extend(&mut self, limit: usize, lack: usize) -> Option<usize> {
        let more = self.lender.lend(lack, lack.max(limit))?;
        self.lent += more;
        Some(limit.saturating_add(more))
    }

    /// Has what was lent to another one, too.
    pub(super) fn join(&mut self, mut other: Room) {
        self.lent += std::mem::take(&mut other.lent);
    }

    pub(super) fn has_borrowed(&self) -> bool {
        self.lent > 0
    }

    pub(super) fn give_back(&mut self) {
        if self.lent > 0 {
            self.lender.take_back(std::mem::take(&mut self.lent));
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("lent", &self.lent).finish()
    }
}
