//! `maxmemory-clients`: what the buffers of all clients may take together.
//!
//! Replies that a peer does not take are kept while there is memory for them. When
//! little of the limit is left ([`Server::have_clients_room`]), requests of a client that
//! has replies waiting are not read any more until there is room again. When all clients
//! together take more than the limit, those that take most are closed, until the
//! rest fits. CLIENT NO-EVICT spares a client. Without `maxmemory-clients` the
//! limit is a share of the memory budget: the caches fill the budget itself, and
//! there must be room for both.
//!
//! A reply counts only when it is whole, and each thread may be making one. So
//! what a long one takes is lent to it out of what all clients have left, and taken
//! back when it counts. If there is too little, clients go for which replies wait and
//! which have taken nothing of them for a while; if there are none, a command that only
//! reads is run again when there is more, and the client of another one goes. A long
//! request likewise has memory lent before it is read and run ([`Loan`]).
//!
//! Replicas are another class: what waits for them is no client's, and what waits for a
//! client is not theirs. They share [`REPLICAS_SHARE`] of the budget among them: little need
//! wait for a replica, as what it lacks is in the binlog.

use super::clients::{ClientFlags, ClientInfo};
use super::config::Config;
use super::replication::Replica;
use super::{Message, Server};
use crate::resp::Lender;
use crate::state::ClientId;
use crate::sys::clock;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Clients are chosen at most once in this time: those that were chosen before have
/// ended by then.
const PERIOD_US: u64 = 5_000;
/// This part of the limit is kept for replies to requests that are under way, and half of
/// that for what is not asked for because it is little.
const SPARE: u64 = 8;
/// Without `maxmemory-clients`: the share of the budget, in percent, but at least
/// so many bytes if the budget has them.
const DEFAULT_SHARE_PERCENT: u64 = 25;
const DEFAULT_LEAST_BYTES: u64 = 1 << 30;
/// The part of the budget that may wait to be sent to all replicas together.
const REPLICAS_SHARE: u64 = 16;
/// What may wait for one replica, in bytes: at the most, and however many there are.
const REPLICA_MOST: u64 = 1 << 20;
const REPLICA_LEAST: u64 = 16 << 10;
/// A client that has not taken or sent a byte for so long makes room for others.
pub const STALLED_MS: u64 = 10_000;

impl Server {
    /// What the buffers of all clients may take: what is configured, and no more than the
    /// caches can leave to them.
    pub fn clients_limit_bytes(&self, config: &Config) -> u64 {
        let budget = self.engine.memory_budget();
        let wanted = match config.maxmemory_clients.bytes(budget) {
            0 => default_limit(budget),
            bytes => bytes,
        };
        wanted.min(self.engine.spare_cache_bytes())
    }

    /// What may be lent of it at the most.
    pub fn lending_limit(&self, config: &Config) -> u64 {
        let limit = self.clients_limit_bytes(config);
        limit - limit / SPARE / 2
    }

    /// Whether clients may have more replies waiting than they have: otherwise the next
    /// ones could only be kept by closing somebody.
    pub fn have_clients_room(&self, config: &Config) -> bool {
        let limit = self.clients_limit_bytes(config);
        self.client_memory.taken() < limit - limit / SPARE
    }

    /// Has the largest clients closed if all together are above the limit, and
    /// says which: the calling thread closes its own at once. Cheap enough to be
    /// called whenever a client holds much.
    pub fn evict_clients(&self, config: &Config) -> Vec<ClientId> {
        self.make_room();
        let limit = self.clients_limit_bytes(config);
        if self.client_memory.taken() <= limit {
            return Vec::new();
        }
        let now_us = clock::mono_us();
        let last = &self.clients_chosen_us;
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
        let left = limit.saturating_sub(self.client_memory.lent());
        let largest = to_evict(self.measure_clients(), left, |_| true);
        largest
            .into_iter()
            .map(|client| self.evict(client, "all clients more than maxmemory-clients"))
            .collect()
    }

    /// What each client takes that is not closing, and is neither a replica nor a master.
    fn measure_clients(&self) -> Vec<Measured> {
        let linked = ClientFlags::REPLICA | ClientFlags::MASTER;
        let mut clients = self.clients.all();
        clients.retain(|client| !client.flags().intersects(linked));
        Measured::of(clients)
    }

    /// Bytes from which on nothing is added to what waits to be sent to a replica.
    pub fn replica_output_bytes(&self) -> usize {
        let share = self.engine.memory_budget() / REPLICAS_SHARE;
        let replicas = self.replication.replica_count().max(1) as u64;
        (share / replicas).clamp(REPLICA_LEAST, REPLICA_MOST) as usize
    }

    /// Notes what waits for a replica in so many bytes of memory.
    pub fn note_replica_memory(&self, replica: &Replica, bytes: usize) {
        self.replica_memory.set(&replica.account, bytes);
        self.make_room();
    }

    /// Nothing waits for a replica any more.
    pub fn end_replica_memory(&self, replica: &Replica) {
        self.replica_memory.end(&replica.account);
        self.make_room();
    }

    /// What the buffers of clients take, and those of replicas, in bytes.
    pub fn buffer_bytes(&self) -> (u64, u64) {
        let (mut clients, mut replicas) = (0, 0);
        for client in self.clients.all() {
            let input = client.query_capacity.load(Ordering::Relaxed);
            let bytes = (input + client.output_capacity.load(Ordering::Relaxed)) as u64;
            match client.flags().contains(ClientFlags::REPLICA) {
                true => replicas += bytes,
                false => clients += bytes,
            }
        }
        (clients, replicas)
    }

    /// Has a client closed, and says why.
    fn evict(&self, Measured { client, bytes }: Measured, why: &str) -> ClientId {
        self.post(client.id, Message::Kill(client.id));
        // Of several threads, one.
        if self.clients.remove(client.id) {
            log::warn!(
                "client {} at {} takes {bytes} bytes, and {why}: closing it",
                client.id.0,
                client.addr
            );
            self.stats.evicted_clients.add(1);
        }
        client.id
    }

    /// Makes room for so much more, if clients that have stalled can make it; `now`: what
    /// they take counts as free at once, though their threads free it in a moment.
    fn evict_stalled(&self, limit: u64, bytes: u64, now: bool) {
        let lent = self.client_memory.lent();
        let Some(left) = limit.checked_sub(lent.saturating_add(bytes)) else {
            return;
        };
        let clients = self.measure_clients();
        let total = total_of(&clients);
        let since_ms = clock::unix_ms().before(STALLED_MS);
        let stalled = to_evict(clients, left, |holder| {
            let client = &holder.client;
            let output = client.output_bytes.load(Ordering::Relaxed);
            output > 0 && client.active_ms.load(Ordering::Relaxed) < since_ms
        });
        if total - total_of(&stalled) > left {
            return;
        }
        for client in stalled {
            if now {
                self.client_memory.end(&client.client.account);
            }
            self.evict(
                client,
                "reads no replies while others have no room for theirs",
            );
        }
    }
}

/// Copies of what a request writes once: of a row and of the binlog's row, in the batch
/// and in the memtables. By the time that the memtables' are made, what was received and
/// the rows that wait for the commit are gone.
const COPIES: u64 = 4;

/// What an argument takes besides its bytes: its place in the request, and what stands
/// around it in the rows that are made of it and in their copies.
const ARG_BYTES: usize = 200;

/// What one request takes.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Its own length: it is in memory once.
    pub bytes: usize,
    /// Bytes that it writes at the most, which are copied [`COPIES`] times.
    pub work: usize,
    /// How many arguments it has.
    pub args: usize,
    /// Whether it only removes data: so there will be more memory, and it is refused only if
    /// there can never be as much as its own length.
    pub removes: bool,
}

impl Needs {
    /// What its arguments take, besides their bytes.
    pub fn args_bytes(&self) -> usize {
        self.args.saturating_mul(ARG_BYTES)
    }

    /// What it writes, as often as it is copied.
    pub fn work_bytes(&self) -> usize {
        self.work.saturating_mul(COPIES as usize)
    }
}

/// Memory that is lent to one request, until it is dropped.
pub struct Loan {
    server: Arc<Server>,
    bytes: u64,
    input: usize,
}

impl Loan {
    /// The part of it that the bytes of the request take themselves.
    pub fn input_bytes(&self) -> usize {
        self.input
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.server.client_memory.take_back(self.bytes);
        self.server.make_room();
    }
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loan").field("bytes", &self.bytes).finish()
    }
}

/// Why no memory is lent to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Others have it; so many bytes are wanted.
    Later(u64),
    /// There is not so much for all clients together.
    Never,
}

impl Server {
    /// Lends memory to a client's request, on top of what it has. A request that has some
    /// already does not stand in the queue: those before it may wait for what it has.
    ///
    /// # Errors
    /// There is none.
    pub fn lend_request(
        self: &Arc<Server>,
        config: &Config,
        client: ClientId,
        loan: &mut Option<Loan>,
        needs: &Needs,
    ) -> Result<(), Refusal> {
        let Needs { bytes, work, .. } = *needs;
        let limit = self.lending_limit(config);
        // Clients always hold a little: nobody can be lent all.
        let half = limit / 2;
        // A client may announce any length.
        let mut wanted = (work as u64).saturating_mul(COPIES).max(bytes as u64);
        let mut held = work.saturating_sub(bytes) as u64;
        if needs.removes {
            wanted = wanted.min(half).max(bytes as u64);
            held = 0;
        }
        if wanted.saturating_add(held) > limit {
            self.client_memory.leave_queue(client);
            return Err(Refusal::Never);
        }
        // How much short arguments take is a guess: it refuses nothing.
        let guess = wanted.saturating_add(needs.args_bytes() as u64);
        let wanted = wanted.max(guess.min(half));
        let lent = loan.as_ref().map_or(0, |loan| loan.bytes);
        let more = wanted.saturating_sub(lent);
        // Memtables that are being written out may take more than their share.
        let now = limit.min(self.engine.spare_cache_now());
        let memory = &self.client_memory;
        let is_turn = || loan.is_some() || memory.is_turn_of(client);
        let has = || needs.removes || self.has_memory_for(more);
        let lends = || has() && memory.try_lend(now, more);
        if more > 0 && !(is_turn() && lends()) {
            memory.queue_up(client);
            return Err(Refusal::Later(more));
        }
        memory.leave_queue(client);
        let loan = loan.get_or_insert_with(|| Loan {
            server: self.clone(),
            bytes: 0,
            input: 0,
        });
        loan.bytes += more;
        loan.input = loan.input.max(bytes);
        self.make_room();
        Ok(())
    }

    /// Whether so much could be lent now, if need be once clients that have stalled are
    /// closed.
    pub fn find_room(&self, config: &Config, bytes: u64) -> bool {
        let limit = self
            .lending_limit(config)
            .min(self.engine.spare_cache_now());
        let fits = || {
            self.client_memory.taken().saturating_add(bytes) <= limit && self.has_memory_for(bytes)
        };
        fits() || {
            self.evict_stalled(limit, bytes, false);
            fits()
        }
    }

    /// Whether a transaction that has so many bytes of queued commands could ever run.
    pub fn could_run_transaction(&self, config: &Config, bytes: usize) -> bool {
        let wanted = (bytes as u64).saturating_mul(1 + COPIES);
        wanted <= self.lending_limit(config)
    }
}

impl Lender for Server {
    fn lend(&self, least: usize, most: usize) -> Option<usize> {
        let limit = self.lending_limit(&self.config.load());
        let memory = &self.client_memory;
        let try_lend = |sizes: &[usize]| {
            let mut sizes = sizes.iter().copied();
            sizes.find(|bytes| {
                let bytes = *bytes as u64;
                self.has_memory_for(bytes) && memory.try_lend(limit, bytes)
            })
        };
        let lent = try_lend(&[most, least]).or_else(|| {
            self.evict_stalled(limit, least as u64, true);
            try_lend(&[least])
        });
        self.make_room();
        lent
    }

    fn take_back(&self, bytes: usize) {
        self.client_memory.take_back(bytes as u64);
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
    let mut largest = clients;
    largest.retain(|measured| {
        may_go(measured) && !measured.client.flags().contains(ClientFlags::NO_EVICT)
    });
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
    use crate::base::time::UnixMs;
    use std::sync::atomic::AtomicBool;

    fn client(id: u64, output: usize, flags: ClientFlags) -> Arc<ClientInfo> {
        let info = ClientInfo::new(
            ClientId(id),
            String::new(),
            String::new(),
            -1,
            0,
            UnixMs::NONE,
            flags,
        );
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
