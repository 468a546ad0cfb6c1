//! `maxmemory-clients`: the limit for the buffers of all clients together.
//!
//! Replies that a peer does not read are kept while there is memory for them. When little of
//! the limit is left ([`Server::have_clients_room`]), a client with unsent replies is not read
//! until there is memory again. When all clients together exceed the limit, the largest are
//! closed until the rest fits. CLIENT NO-EVICT exempts a client. Without `maxmemory-clients`
//! the limit is a share of the memory budget: the caches fill the budget themselves, and both
//! must fit.
//!
//! A reply is counted only when it is complete, and every thread may be writing one. So a long
//! reply borrows its memory from what all clients have left. The loan becomes the client's memory
//! when that is counted.
//! If too little is left, clients are closed that have unsent replies and have read nothing for
//! a while. If there are none, a command that reads, or was rolled back, runs again when there is
//! more memory; for a transaction or a script the client is closed. A long request borrows memory
//! as well before it is read and run ([`Loan`]).
//!
//! Replicas are a separate class: their queues do not count as clients' memory, nor the
//! reverse. They share a part of the budget ([`REPLICAS_SHARE`]). A replica needs short queues
//! only, as the binlog has what it lacks.

use super::client_memory::Account;
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

/// Shortest interval between two evictions: the clients of the previous one are gone by then.
const PERIOD_US: u64 = 5_000;
/// `1 / SPARE` of the limit is kept for replies to running requests, and half of that for small
/// amounts that are not borrowed.
const SPARE: u64 = 8;
/// An unfinished reply borrows no less than `1 / LEAST_PART` of the limit.
const LEAST_PART: u64 = 256;
/// The limit without `maxmemory-clients`: this share of the budget, in percent, but at least so
/// many bytes if the budget has them.
const DEFAULT_SHARE_PERCENT: u64 = 25;
const DEFAULT_LEAST_BYTES: u64 = 1 << 30;
/// All replicas together may have `1 / REPLICAS_SHARE` of the budget queued.
const REPLICAS_SHARE: u64 = 16;
/// Bytes that may be queued for one replica: at most, and at least, however many there are.
const REPLICA_MOST: u64 = 1 << 20;
const REPLICA_LEAST: u64 = 16 << 10;
/// A client that has neither read nor sent a byte for so long may be closed for others.
pub const STALLED_MS: u64 = 10_000;
/// The same for a request that has waited as long for memory: behind many such clients it would wait
/// for each of them. The kernel reports room in the buffer of a socket when a third of it is free, so
/// that seconds pass between two bytes to a slow reader.
const STALLED_FOR_LONG_WAIT_MS: u64 = 5_000;

impl Server {
    /// The limit for the buffers of all clients: the configured one, at most what the caches
    /// can leave.
    pub fn clients_limit_bytes(&self, config: &Config) -> u64 {
        let budget = self.engine.memory_budget();
        let wanted = match config.maxmemory_clients.bytes(budget) {
            0 => default_limit(budget),
            bytes => bytes,
        };
        wanted.min(self.engine.spare_cache_bytes())
    }

    /// The part of that limit which may be lent.
    pub fn lending_limit(&self, config: &Config) -> u64 {
        let limit = self.clients_limit_bytes(config);
        limit - limit / SPARE / 2
    }

    /// Whether clients may have more unsent replies. Otherwise further replies would require
    /// that a client is closed.
    pub fn have_clients_room(&self, config: &Config) -> bool {
        let limit = self.clients_limit_bytes(config);
        self.client_memory.taken() < limit - limit / SPARE
    }

    /// Closes the largest clients if all together exceed the limit, and returns them: the
    /// calling thread closes its own at once. Cheap enough to be called whenever a client holds
    /// much.
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
        // Only one of several concurrent threads.
        let relaxed = Ordering::Relaxed;
        let is_mine = || {
            last.compare_exchange(before_us, now_us, relaxed, relaxed)
                .is_ok()
        };
        if is_early || !is_mine() {
            return Vec::new();
        }
        let clients = self.measure_clients();
        let excess = self.excess_of(&clients, limit);
        let largest = to_evict(clients, excess, |_| true);
        largest
            .into_iter()
            .map(|client| self.evict(client, "all clients more than maxmemory-clients"))
            .collect()
    }

    /// The memory of each client that is not closing, and is neither a replica nor a master.
    fn measure_clients(&self) -> Vec<Measured> {
        let linked = ClientFlags::REPLICA | ClientFlags::MASTER;
        let mut clients = self.clients.all();
        clients.retain(|client| !client.flags().intersects(linked));
        Measured::of(clients)
    }

    /// Bytes beyond `limit`: of these clients' accounts, and of what is lent. Accounts of closed
    /// clients are not among them, though their memory may not be free yet.
    fn excess_of(&self, clients: &[Measured], limit: u64) -> u64 {
        let accounts = clients.iter().map(|measured| &measured.client.account);
        let held: u64 = accounts.map(Account::held).sum();
        (held + self.client_memory.lent()).saturating_sub(limit)
    }

    /// Bytes from which on nothing is added to the queue of a replica.
    pub fn replica_output_bytes(&self) -> usize {
        let share = self.engine.memory_budget() / REPLICAS_SHARE;
        let replicas = self.replication.replica_count().max(1) as u64;
        (share / replicas).clamp(REPLICA_LEAST, REPLICA_MOST) as usize
    }

    /// Records the memory of the queue for a replica.
    pub fn note_replica_memory(&self, replica: &Replica, bytes: usize) {
        self.replica_memory.set(&replica.account, bytes);
        self.make_room();
    }

    /// Ends the account of a replica.
    pub fn end_replica_memory(&self, replica: &Replica) {
        self.replica_memory.end(&replica.account);
        self.make_room();
    }

    /// The memory of the buffers of clients, and of replicas, in bytes.
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

    /// Closes a client and logs why.
    fn evict(&self, Measured { client, bytes }: Measured, why: &str) -> ClientId {
        self.post(client.id, Message::Kill(client.id));
        // Only one of several concurrent threads.
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

    /// Frees `bytes` for a request that has waited for so long, if closing stalled clients suffices
    /// for that. `now`: their memory counts as free at once, although their threads free it a moment
    /// later.
    fn evict_stalled(&self, limit: u64, bytes: u64, waited_ms: u64, now: bool) {
        let Some(left) = limit.checked_sub(bytes) else {
            return;
        };
        let clients = self.measure_clients();
        let excess = self.excess_of(&clients, left);
        let stalled_ms = match waited_ms > STALLED_MS {
            true => STALLED_FOR_LONG_WAIT_MS,
            false => STALLED_MS,
        };
        let since_ms = clock::unix_ms().before(stalled_ms);
        let stalled = to_evict(clients, excess, |holder| {
            let client = &holder.client;
            let output = client.output_bytes.load(Ordering::Relaxed);
            output > 0 && client.active_ms.load(Ordering::Relaxed) < since_ms
        });
        if total_of(&stalled) < excess {
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

/// Copies of what a request writes: of the row and of its part of the binlog, each in the batch
/// and in the memtables. When the copies in the memtables are made, the received request and
/// the pending rows are already freed.
const COPIES: u64 = 4;

/// Bytes of an argument besides its content: its place in the request, and the overhead of the
/// rows made of it and of their copies.
const ARG_BYTES: usize = 200;

/// The memory that a request needs.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Its length.
    pub bytes: usize,
    /// Most bytes that it writes, which are copied [`COPIES`] times.
    pub work: usize,
    /// The number of its arguments.
    pub args: usize,
    /// Whether it only removes data: it will free memory, so it is refused only if its own
    /// length can never fit.
    pub removes: bool,
}

impl Needs {
    /// Bytes of its arguments besides their content.
    pub fn args_bytes(&self) -> usize {
        self.args.saturating_mul(ARG_BYTES)
    }

    /// Bytes that it writes, including all copies.
    pub fn work_bytes(&self) -> usize {
        self.work.saturating_mul(COPIES as usize)
    }
}

/// Shorter requests are read and run without a loan.
pub const LONG_REQUEST: usize = 1 << 20;

/// Memory that is lent to one request until this is dropped.
pub struct Loan {
    server: Arc<Server>,
    bytes: u64,
    input: usize,
    /// What the request may take of the disk; counted while keys are evicted.
    on_disk: u64,
}

impl Loan {
    /// Counts what the request may take of the disk, until the loan is given back.
    pub fn count_on_disk(&mut self, bytes: u64) {
        let evicting = &self.server.evicting;
        evicting.expect_no_more(self.on_disk);
        self.on_disk = evicting.expect(bytes);
    }

    /// What was counted so.
    pub fn on_disk(&self) -> u64 {
        self.on_disk
    }

    /// The part of the loan for the bytes of the request itself.
    pub fn input_bytes(&self) -> usize {
        self.input
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.server.evicting.expect_no_more(self.on_disk);
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
    /// Other clients have it; so many bytes are wanted.
    Later(u64),
    /// There is not enough for all clients together.
    Never,
}

impl Server {
    /// Lends memory to a client's request, in addition to its present loan. A request with a
    /// loan does not wait in the queue: those before it may wait for what it has.
    ///
    /// # Errors
    /// There is not enough memory, now or ever.
    pub fn lend_request(
        self: &Arc<Server>,
        config: &Config,
        client: ClientId,
        loan: &mut Option<Loan>,
        needs: &Needs,
    ) -> Result<(), Refusal> {
        let Needs { bytes, work, .. } = *needs;
        let limit = self.lending_limit(config);
        // Clients always hold a little, so no request can get everything.
        let half = limit / 2;
        // The length is announced by the client and can be any number.
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
        // The overhead of short arguments is an estimate, so it never causes a refusal.
        let guess = wanted.saturating_add(needs.args_bytes() as u64);
        let wanted = wanted.max(guess.min(half));
        let lent = loan.as_ref().map_or(0, |loan| loan.bytes);
        let more = wanted.saturating_sub(lent);
        // Memtables that are being flushed may exceed their share.
        let now = limit.min(self.engine.spare_cache_now());
        let memory = &self.client_memory;
        let is_turn = || loan.is_some() || memory.is_turn_of(client);
        let tables = self.engine.reserved_for_tables();
        let has = || needs.removes || self.has_memory_for(more.saturating_add(tables));
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
            on_disk: 0,
        });
        loan.bytes += more;
        loan.input = loan.input.max(bytes);
        self.make_room();
        Ok(())
    }

    /// Whether so much could be lent now to a request that has waited for so long, if necessary after
    /// closing stalled clients.
    pub fn find_room(&self, config: &Config, bytes: u64, waited_ms: u64) -> bool {
        let limit = self
            .lending_limit(config)
            .min(self.engine.spare_cache_now());
        let fits = || {
            let with_tables = bytes.saturating_add(self.engine.reserved_for_tables());
            self.client_memory.taken().saturating_add(bytes) <= limit
                && self.has_memory_for(with_tables)
        };
        fits() || {
            self.evict_stalled(limit, bytes, waited_ms, false);
            fits()
        }
    }

    /// Lends memory for a reply that there was not enough for, if necessary after closing stalled
    /// clients. All of it at once: two such replies that borrowed as they grow would take it from each
    /// other again and again.
    pub fn lend_reply(&self, config: &Config, bytes: u64, waited_ms: u64) -> bool {
        let limit = self
            .lending_limit(config)
            .min(self.engine.spare_cache_now());
        self.find_room(config, bytes, waited_ms) && self.client_memory.try_lend(limit, bytes)
    }

    /// Whether a transaction with so many bytes of queued commands could ever run.
    pub fn could_run_transaction(&self, config: &Config, bytes: usize) -> bool {
        let wanted = (bytes as u64).saturating_mul(1 + COPIES);
        wanted <= self.lending_limit(config)
    }
}

impl Lender for Server {
    fn lend(&self, least: usize, most: usize) -> Option<usize> {
        let limit = self.lending_limit(&self.config.load());
        let memory = &self.client_memory;
        // A reply that gets as little as it lacks comes back for each of its elements.
        let least = least.max((limit / LEAST_PART) as usize);
        let mut halves = std::iter::successors(Some(most.max(least)), |bytes| {
            (*bytes > least).then(|| (bytes / 2).max(least))
        });
        let try_lend = |bytes: &usize| {
            let bytes = *bytes as u64;
            memory.has_room(limit, bytes)
                && self.has_memory_for(bytes)
                && memory.try_lend(limit, bytes)
        };
        let lent = halves.find(try_lend).or_else(|| {
            self.evict_stalled(limit, least as u64, 0, true);
            Some(least).filter(try_lend)
        });
        self.make_room();
        lent
    }

    fn take_back(&self, bytes: usize) {
        self.client_memory.take_back(bytes as u64);
    }

    fn is_left(&self, bytes: usize) -> bool {
        let is_left = Server::is_left(self, bytes as u64);
        if !is_left {
            self.engine.ask_for_tables();
        }
        is_left
    }
}

fn default_limit(budget: u64) -> u64 {
    let share = budget / 100 * DEFAULT_SHARE_PERCENT;
    share.max(DEFAULT_LEAST_BYTES).min(budget)
}

/// A client, and its memory when it was measured: its thread continues meanwhile.
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

/// The largest clients for which `may_go` is true, until `excess` bytes are free.
fn to_evict(
    clients: Vec<Measured>,
    excess: u64,
    may_go: impl Fn(&Measured) -> bool,
) -> Vec<Measured> {
    let mut largest = clients;
    largest.retain(|measured| {
        may_go(measured) && !measured.client.flags().contains(ClientFlags::NO_EVICT)
    });
    largest.sort_by_key(|measured| Reverse(measured.bytes));
    let (mut freed, mut chosen) = (0, 0);
    for measured in &largest {
        if freed >= excess {
            break;
        }
        freed += measured.bytes;
        chosen += 1;
    }
    largest.truncate(chosen);
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;

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
            let measured = Measured::of(clients.to_vec());
            let excess = total_of(&measured).saturating_sub(limit);
            let chosen = to_evict(measured, excess, |_| true);
            chosen.iter().map(|measured| measured.client.id.0).collect()
        };
        assert_eq!(gone(200 << 20), Vec::<u64>::new());
        assert_eq!(gone(100 << 20), [2]);
        assert_eq!(gone(70 << 20), [2, 4]);
        // The exempt client stays even if that is too much.
        assert_eq!(gone(1 << 20), [2, 4, 1]);
    }
}
