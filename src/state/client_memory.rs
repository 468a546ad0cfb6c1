//! How much memory clients take, kept as it changes.
//!
//! Two sums: what clients hold (buffers of requests and replies, queued commands), and
//! what is lent to requests that are under way. Whoever is about to take much asks
//! first ([`ClientMemory::try_lend`]), so that many threads together stay below one limit.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Changes of what a client holds that are smaller are not noted: many requests change it
/// a little, and the sum is written by all threads.
const STEP_BYTES: u64 = 8 << 10;

/// The sums, in bytes.
#[derive(Debug, Default)]
pub struct ClientMemory {
    held: AtomicU64,
    lent: AtomicU64,
    /// Clients whose requests wait for memory.
    waiting: AtomicUsize,
}

impl ClientMemory {
    /// What clients hold and what is lent.
    pub fn taken(&self) -> u64 {
        let (held, lent) = (&self.held, &self.lent);
        held.load(Ordering::Relaxed) + lent.load(Ordering::Relaxed)
    }

    /// What is lent.
    pub fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// A client's requests wait for memory.
    pub fn begin_wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// They do no longer, or it is closed.
    pub fn end_wait(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether requests of some client wait for memory.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Lends `bytes`, unless more than `limit` would be taken then.
    pub fn try_lend(&self, limit: u64, bytes: u64) -> bool {
        let left = limit.saturating_sub(self.held.load(Ordering::Relaxed));
        let lend = |lent: u64| lent.checked_add(bytes).filter(|lent| *lent <= left);
        let relaxed = Ordering::Relaxed;
        self.lent.fetch_update(relaxed, relaxed, lend).is_ok()
    }

    /// `bytes` that were lent are free again, or count as held.
    pub fn take_back(&self, bytes: u64) {
        self.lent.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What one client holds as the sum has it. The client's thread changes it; whoever
/// has the client closed ends it.
#[derive(Debug, Default)]
pub struct Account {
    held: AtomicU64,
}

/// Of an account that has ended.
const ENDED: u64 = u64::MAX;

impl ClientMemory {
    /// A client holds so many bytes now.
    #[inline]
    pub fn set(&self, account: &Account, bytes: usize) {
        let (before, bytes) = (account.held.load(Ordering::Relaxed), bytes as u64);
        if before != ENDED && bytes.abs_diff(before) >= STEP_BYTES {
            self.change(account, before, bytes);
        }
    }

    fn change(&self, account: &Account, before: u64, bytes: u64) {
        let relaxed = Ordering::Relaxed;
        let changed = account
            .held
            .compare_exchange(before, bytes, relaxed, relaxed);
        // It has ended if that failed.
        if changed.is_ok() {
            match bytes.checked_sub(before) {
                Some(more) => self.held.fetch_add(more, relaxed),
                None => self.held.fetch_sub(before - bytes, relaxed),
            };
        }
    }

    /// A client is closed, or will be in a moment: from now on it holds nothing.
    pub fn end(&self, account: &Account) {
        let before = account.held.swap(ENDED, Ordering::Relaxed);
        if before != ENDED {
            self.held.fetch_sub(before, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_add_up_and_end() {
        let (memory, [first, second]) = (ClientMemory::default(), Default::default());
        memory.set(&first, 1 << 20);
        memory.set(&second, 2 << 20);
        assert_eq!(memory.taken(), 3 << 20);
        memory.set(&first, (1 << 20) + 100);
        assert_eq!(memory.taken(), 3 << 20);
        memory.set(&first, 0);
        memory.end(&second);
        assert_eq!(memory.taken(), 0);
        memory.set(&second, 5 << 20);
        memory.end(&second);
        assert_eq!(
            memory.taken(),
            0,
            "its thread does not know yet that it has ended"
        );
    }

    #[test]
    fn no_more_is_lent_than_is_left() {
        let (memory, client) = (ClientMemory::default(), Account::default());
        memory.set(&client, 60 << 10);
        assert!(memory.try_lend(100 << 10, 40 << 10));
        assert!(!memory.try_lend(100 << 10, 1));
        assert!(!memory.try_lend(u64::MAX, u64::MAX));
        memory.take_back(40 << 10);
        assert!(memory.try_lend(100 << 10, 30 << 10));
        assert_eq!(memory.taken(), 90 << 10);
    }
}
