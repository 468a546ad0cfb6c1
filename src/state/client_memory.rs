//! The memory of clients, updated as it changes.
//!
//! One sum is of all that is taken: what clients hold (buffers of requests and replies, queued
//! commands), and what is lent to unfinished requests. A thread that is about to use much memory
//! borrows it first ([`ClientMemory::try_lend`]), so that all threads together stay below one limit.
//! Lent memory becomes a client's in one step ([`ClientMemory::count_lent`]). In between it would be
//! in the sum twice, and another thread could close a client for that.
//! Long requests are served first come, first served: free memory is kept for the first one
//! until it suffices.

use super::client_id::ClientId;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Smaller changes of a client's memory are not recorded: they are frequent, and all threads
/// write the sum.
const STEP_BYTES: u64 = 8 << 10;

/// The sums, in bytes.
#[derive(Debug, Default)]
pub struct ClientMemory {
    taken: AtomicU64,
    lent: AtomicU64,
    /// Clients whose requests wait for memory.
    waiting: AtomicUsize,
    /// Clients whose long requests wait, first come first; and their number.
    queue: Mutex<VecDeque<ClientId>>,
    queued: AtomicUsize,
}

impl ClientMemory {
    /// Memory held and lent, in bytes.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Memory lent, in bytes.
    pub fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Counts a client whose requests wait for memory.
    pub fn begin_wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the count of [`ClientMemory::begin_wait`].
    pub fn end_wait(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether requests of some client wait for memory.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether free memory may be lent to this client's long request: no earlier one waits.
    pub(super) fn is_turn_of(&self, client: ClientId) -> bool {
        self.queued.load(Ordering::Relaxed) == 0
            || self
                .queue
                .lock()
                .front()
                .is_none_or(|first| *first == client)
    }

    /// Whether this client waits behind another one.
    pub fn is_behind(&self, client: ClientId) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
            && self
                .queue
                .lock()
                .iter()
                .skip(1)
                .any(|queued| *queued == client)
    }

    /// Appends a client with a long request to the queue, unless it is in it.
    pub(super) fn queue_up(&self, client: ClientId) {
        let mut queue = self.queue.lock();
        if !queue.contains(&client) {
            queue.push_back(client);
        }
        self.queued.store(queue.len(), Ordering::Relaxed);
    }

    /// Removes a client from the queue.
    pub fn leave_queue(&self, client: ClientId) {
        if self.queued.load(Ordering::Relaxed) > 0 {
            let mut queue = self.queue.lock();
            queue.retain(|queued| *queued != client);
            self.queued.store(queue.len(), Ordering::Relaxed);
        }
    }

    /// Whether the sums stay within `limit` with so many bytes more.
    pub(super) fn has_room(&self, limit: u64, bytes: u64) -> bool {
        self.taken().saturating_add(bytes) <= limit
    }

    /// Lends `bytes`, unless the sums would exceed `limit`.
    pub(super) fn try_lend(&self, limit: u64, bytes: u64) -> bool {
        let lend = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= limit);
        let relaxed = Ordering::Relaxed;
        let lends = self.taken.fetch_update(relaxed, relaxed, lend).is_ok();
        if lends {
            self.lent.fetch_add(bytes, relaxed);
        }
        lends
    }

    /// Returns `bytes` that were lent: they are free again.
    pub fn take_back(&self, bytes: u64) {
        self.lent.fetch_sub(bytes, Ordering::Relaxed);
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The share of one client in the sum of memory held. The client's thread changes it; the
/// thread that evicts the client ends it.
#[derive(Debug, Default)]
pub struct Account {
    held: AtomicU64,
}

/// The value of an account that has ended.
const ENDED: u64 = u64::MAX;

impl Account {
    /// The bytes that the client holds.
    pub(super) fn held(&self) -> u64 {
        match self.held.load(Ordering::Acquire) {
            ENDED => 0,
            bytes => bytes,
        }
    }
}

impl ClientMemory {
    /// Records that a client holds so many bytes now.
    #[inline]
    pub fn set(&self, account: &Account, bytes: usize) {
        let (before, bytes) = (account.held.load(Ordering::Relaxed), bytes as u64);
        if before != ENDED && bytes.abs_diff(before) >= STEP_BYTES {
            self.change(account, before, bytes, 0);
        }
    }

    /// Records that a client holds so many bytes now, among them what was lent to its request:
    /// that is no longer lent.
    pub fn count_lent(&self, account: &Account, bytes: usize, lent: usize) {
        if lent == 0 {
            return self.set(account, bytes);
        }
        let lent = lent as u64;
        self.lent.fetch_sub(lent, Ordering::Relaxed);
        match account.held.load(Ordering::Relaxed) {
            ENDED => {
                self.taken.fetch_sub(lent, Ordering::Relaxed);
            }
            before => self.change(account, before, bytes as u64, lent),
        }
    }

    /// A client holds `bytes` where it held `before`; `lent` bytes of them were a loan until now.
    fn change(&self, account: &Account, before: u64, bytes: u64, lent: u64) {
        let relaxed = Ordering::Relaxed;
        // Adds before it subtracts, so that the sum is never too small.
        let (more, less) = (bytes, before.saturating_add(lent));
        let added = more.saturating_sub(less);
        self.taken.fetch_add(added, relaxed);
        let changed = account
            .held
            .compare_exchange(before, bytes, Ordering::AcqRel, relaxed);
        let less = match changed {
            Ok(_) => less.saturating_sub(more),
            // The account has ended, and with it what it held before.
            Err(_) => added + lent,
        };
        self.taken.fetch_sub(less, relaxed);
    }

    /// Ends the account of a client that is closed, or about to be.
    pub fn end(&self, account: &Account) {
        // What the client's thread has added to the sum before is seen, so that the sum is never
        // negative.
        let before = account.held.swap(ENDED, Ordering::AcqRel);
        if before != ENDED {
            self.taken.fetch_sub(before, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

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

    /// The sum used to be negative for a moment.
    #[test]
    fn an_account_may_end_while_it_grows() {
        let memory = ClientMemory::default();
        for _ in 0..2000 {
            let account = Account::default();
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    for steps in 1..20 {
                        memory.set(&account, steps << 20);
                    }
                });
                memory.end(&account);
                assert!(memory.taken() < 1 << 30);
            });
            assert_eq!(memory.taken(), 0);
        }
    }

    /// It used to be in the sum twice for a moment, in which another thread closed the client.
    #[test]
    fn what_was_lent_is_counted_once_when_it_becomes_a_clients() {
        const LENT: usize = 4 << 20;
        let (memory, account) = (ClientMemory::default(), Account::default());
        memory.set(&account, LENT);
        let done = AtomicBool::new(false);
        let seen = std::thread::scope(|threads| {
            let watcher = threads.spawn(|| {
                let mut seen = (u64::MAX, 0);
                while !done.load(Ordering::Relaxed) {
                    let taken = memory.taken();
                    seen = (taken.min(seen.0), taken.max(seen.1));
                }
                seen
            });
            for _ in 0..20_000 {
                let lent = memory.try_lend(u64::MAX, LENT as u64);
                memory.count_lent(&account, 2 * LENT, LENT);
                memory.set(&account, if lent { LENT } else { 0 });
            }
            done.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        // Once: neither twice nor missing.
        assert!(
            seen.0 >= LENT as u64 && seen.1 <= 2 * LENT as u64,
            "{seen:?}"
        );
        assert!(memory.taken() == LENT as u64 && memory.lent() == 0);
        memory.set(&account, 0);
        assert!(memory.try_lend(u64::MAX, LENT as u64));
        memory.set(&account, LENT);
        memory.end(&account);
        memory.count_lent(&account, LENT, LENT);
        assert!(memory.taken() == 0 && memory.lent() == 0);
    }

    #[test]
    fn clients_are_served_in_order() {
        let memory = ClientMemory::default();
        let [first, second] = [ClientId(1), ClientId(2)];
        assert!(memory.is_turn_of(second));
        memory.queue_up(first);
        memory.queue_up(second);
        memory.queue_up(first);
        assert!(memory.is_turn_of(first) && !memory.is_turn_of(second));
        assert!(memory.is_behind(second) && !memory.is_behind(first));
        assert!(!memory.is_behind(ClientId(3)), "it does not wait");
        memory.leave_queue(first);
        assert!(memory.is_turn_of(second) && !memory.is_turn_of(first));
        memory.leave_queue(second);
        assert!(memory.is_turn_of(first));
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
