//! Memory for long replies. A reply is counted as its client's memory only when it is complete.
//! Until then the thread that writes it borrows memory beyond a small amount, so that all
//! unfinished replies together stay within bounds.

use std::fmt;
use std::sync::Arc;

/// Bytes that a reply may have without borrowing, if it soon counts as its client's.
pub const FREE_BYTES: usize = 2 << 20;

/// Decides how much memory replies may take.
pub trait Lender: Send + Sync {
    /// Lends `most` bytes, or else `least`; `None`: not even that.
    fn lend(&self, least: usize, most: usize) -> Option<usize>;

    /// Returns borrowed bytes: they are free again.
    fn take_back(&self, bytes: usize);

    /// Whether the process has so many bytes left besides what is lent.
    fn is_left(&self, _bytes: usize) -> bool {
        true
    }
}

/// Memory that is lent for a reply.
pub(super) struct Room {
    lender: Arc<dyn Lender>,
    lent: usize,
}

impl Room {
    pub(super) fn new(lender: Arc<dyn Lender>) -> Room {
        Room { lender, lent: 0 }
    }

    /// Borrows for a reply that lacks `lack` bytes beyond `limit`; returns its new limit: if
    /// possible doubled, as buffers grow, otherwise as much as it needs.
    pub(super) fn extend(&mut self, limit: usize, lack: usize) -> Option<usize> {
        let more = self.lender.lend(lack, lack.max(limit))?;
        self.lent += more;
        Some(limit.saturating_add(more))
    }

    /// Takes over what was lent for this reply before it began.
    pub(super) fn take(&mut self, lent: usize) {
        self.lent += lent;
    }

    /// Takes over what was lent for another reply.
    pub(super) fn join(&mut self, mut other: Room) {
        self.lent += std::mem::take(&mut other.lent);
    }

    pub(super) fn has_borrowed(&self) -> bool {
        self.lent > 0
    }

    /// Lets go of what is lent, without returning it.
    pub(super) fn hand_over(&mut self) -> usize {
        std::mem::take(&mut self.lent)
    }

    pub(super) fn give_back(&mut self) {
        if self.lent > 0 {
            let lent = self.hand_over();
            self.lender.take_back(lent);
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
