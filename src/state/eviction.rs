//! `maxmemory-clients`: what the buffers of all clients may take together.
//!
//! Each connection pauses once a mebibyte of replies waits for its peer, but
//! many connections, or few with huge replies, would add up. When all clients
//! together take more than the limit, those that take most are closed, until the
//! rest fits. CLIENT NO-EVICT spares a client. Without `maxmemory-clients` the
//! limit is a share of the memory budget: the caches fill the budget itself, and
//! there must be room for both.
//!
//! A reply counts only when it is whole, and each thread may be making one. So
//! what a long one takes is lent to it out of what all clients have left, and taken
//! back when it counts. If there is too little, clients go for which as much waits and
//! which have taken nothing of it for a while; if there are none, its own client goes.

use super::clients::{ClientFlags, ClientId, ClientInfo};
use super::config::Config;
use super::{Message, Server};
use crate::base::clock;
use crate::resp::Lender;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The clients are added up at most once in this time.
const PERIOD_US: u64 = 5_000;
/// Without `maxmemory-clients`: the share of the budget, in percent, but at least
/// so many bytes if the budget has them.
const DEFAULT_SHARE_PERCENT: u64 = 25;
const DEFAULT_LEAST_BYTES: u64 = 1 << 30;
/// Who has not taken or sent a byte for so long makes room for the replies of others.
const STALLED_MS: u64 = 10_000;

impl Server {
    /// What the buffers of all clients may take.
    pub fn clients_limit_bytes(&self, config: &Config) -> u64 {
        let budget = self.engine.memory_budget();
        match config.maxmemory_clients.bytes(budget) {
            0 => default_limit(budget),
            bytes => bytes,
        }
    }

    /// Has the largest clients closed if all together are above the limit, and
    /// says which: the calling thread closes its own at once. Cheap enough to be
    /// called whenever a client holds much.
    pub fn evict_clients(&self, config: &Config) -> Vec<ClientId> {
        let now_us = clock::mono_us();
        let last = &self.clients_added_up_us;
        let before_us = last.load(Ordering::Relaxed);
        let is_early = now_us < before_us.saturating_add(PERIOD_US);
        // Of several threads at once, one.
        let relaxed = Ordering::Relaxed;
        let is_mine = || {
            last.compare_exchange(before_us, now_us, relaxed, relaxed)
                .is_ok()
        };
        if is_early || !is_mine() {
            return Vec::new();
        }
        let limit = self.clients_limit_bytes(config);
        let largest = to_evict(self.measure_clients(), limit, |_| true);
        largest
            .into_iter()
            .map(|client| self.evict(client))
            .collect()
    }

    fn measure_clients(&self) -> Vec<Measured> {
        let clients = Measured::of(self.clients.all());
        let total = total_of(&clients);
        self.clients_bytes.store(total, Ordering::Relaxed);
        clients
    }

    fn evict(&self, Measured { client, bytes }: Measured) -> ClientId {
        self.post(client.id, Message::Kill(client.id));
        // Of several threads, one.
        if self.clients.remove(client.id) {
            log::warn!(
                "client {} at {} takes {bytes} bytes, all clients more than maxmemory-clients: closing it",
                client.id.0,
                client.addr
            );
            self.stats.evicted_clients.add(1);
        }
        client.id
    }

    /// Lends so much unless that would be more than is left.
    fn try_lend(&self, limit: u64, bytes: u64) -> bool {
        let taken = self.clients_bytes.load(Ordering::Relaxed);
        let left = limit.saturating_sub(taken);
        let lend = |lent: u64| lent.checked_add(bytes).filter(|lent| *lent <= left);
        let relaxed = Ordering::Relaxed;
        let lent = &self.replies_lent;
        lent.fetch_update(relaxed, relaxed, lend).is_ok()
    }

    /// Makes room for so much more of a reply of `held` bytes, if clients that have
    /// stalled and take more than it would can make it.
    fn evict_stalled(&self, clients: Vec<Measured>, limit: u64, held: u64, bytes: u64) {
        let lent = self.replies_lent.load(Ordering::Relaxed);
        let Some(left) = limit.checked_sub(lent.saturating_add(bytes)) else {
            return;
        };
        let total = total_of(&clients);
        let since_ms = clock::unix_ms().saturating_sub(STALLED_MS);
        let stalled = to_evict(clients, left, |holder| {
            let active_ms = holder.client.active_ms.load(Ordering::Relaxed);
            holder.bytes > held + bytes && active_ms < since_ms
        });
        if total - total_of(&stalled) > left {
            return;
        }
        for client in stalled {
            self.evict(client);
        }
        self.measure_clients();
    }
}

impl Lender for Server {
    fn lend(&self, held: usize, least: usize, most: usize) -> Option<usize> {
        let limit = self.clients_limit_bytes(&self.config.load());
        let try_lend = |sizes: &[usize]| {
            let mut sizes = sizes.iter().copied();
            sizes.find(|bytes| self.try_lend(limit, *bytes as u64))
        };
        if let Some(lent) = try_lend(&[most, least]) {
            return Some(lent);
        }
        // What clients took may be an old figure.
        let clients = self.measure_clients();
        if let Some(lent) = try_lend(&[most, least]) {
            return Some(lent);
        }
        self.evict_stalled(clients, limit, held as u64, least as u64);
        try_lend(&[least])
    }

    fn take_back(&self, bytes: usize) {
        // Of a client that will be added up soon.
        let relaxed = Ordering::Relaxed;
        self.clients_bytes.fetch_add(bytes as u64, relaxed);
        self.replies_lent.fetch_sub(bytes as u64, relaxed);
    }
}

fn default_limit(budget: u64) -> u64 {
    let share = budget / 100 * DEFAULT_SHARE_PERCENT;
    share.max(DEFAULT_LEAST_BYTES).min(budget)
}

/// A client, and what it took when it was looked at: threads go on meanwhile.
struct Measured {
    client: Arc<ClientInfo>,
    bytes: u64,
}

impl Measured {
    fn of(clients: Vec<Arc<ClientInfo>>) -> Vec<Measured> {
        let measured = clients.into_iter().map(|client| Measured {
            bytes: client.memory_bytes() as u64,
            client,
        });
        measured.collect()
    }
}

fn total_of(clients: &[Measured]) -> u64 {
    clients.iter().map(|client| client.bytes).sum()
}

/// The largest clients that may go, until the others fit.
fn to_evict(
    clients: Vec<Measured>,
    limit: u64,
    may_go: impl Fn(&Measured) -> bool,
) -> Vec<Measured> {
    let mut total = total_of(&clients);
    if total <= limit {
        return Vec::new();
    }
    let spared = ClientFlags::NO_EVICT | ClientFlags::REPLICA | ClientFlags::MASTER;
    let mut largest = clients;
    largest.retain(|measured| may_go(measured) && !measured.client.flags().intersects(spared));
    largest.sort_by_key(|measured| Reverse(measured.bytes));
    let mut chosen = 0;
    for measured in &largest {
        if total <= limit {
            break;
        }
        total -= measured.bytes;
        chosen += 1;
    }
    largest.truncate(chosen);
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn client(id: u64, output: usize, flags: ClientFlags) -> Arc<ClientInfo> {
        let info = ClientInfo::new(ClientId(id), String::new(), String::new(), -1, 0, 0, flags);
        info.output_capacity.store(output, Ordering::Relaxed);
        Arc::new(info)
    }

    #[test]
    fn the_default_is_a_share_of_the_budget() {
        let (gib, mib) = (1 << 30, 1 << 20);
        assert_eq!(default_limit(1600 * gib), 400 * gib);
        assert_eq!(default_limit(2 * gib), gib);
        assert_eq!(default_limit(64 * mib), 64 * mib);
    }

    #[test]
    fn the_largest_go_first_and_only_as_many_as_must() {
        let none = ClientFlags::empty();
        let clients = [
            client(1, 10 << 20, none),
            client(2, 30 << 20, none),
            client(3, 50 << 20, ClientFlags::NO_EVICT),
            client(4, 20 << 20, none),
        ];
        let gone = |limit: u64| -> Vec<u64> {
            let chosen = to_evict(Measured::of(clients.to_vec()), limit, |_| true);
            chosen.iter().map(|measured| measured.client.id.0).collect()
        };
        assert_eq!(gone(200 << 20), Vec::<u64>::new());
        assert_eq!(gone(100 << 20), [2]);
        assert_eq!(gone(70 << 20), [2, 4]);
        // The spared one stays even if that is too much.
        assert_eq!(gone(1 << 20), [2, 4, 1]);
    }

    /// Sizes were read twice, and a client that had grown in between took more than
    /// all of them: the subtraction overflowed, which ended the server.
    #[test]
    fn clients_may_grow_while_they_are_looked_at() {
        let growing = client(1, 1 << 20, ClientFlags::empty());
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    growing.multi_bytes.fetch_add(100, Ordering::Relaxed);
                }
            });
            for _ in 0..100_000 {
                let clients = Measured::of(vec![growing.clone()]);
                assert_eq!(to_evict(clients, 1, |_| true).len(), 1);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
