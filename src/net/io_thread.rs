//! An IO thread: a poll, its connections, and one executor.

mod cron;
mod suspended;

use super::connection::{Connection, READ_AHEAD, Turn};
use super::gather::{self, TickGathering};
use super::owed_sync::OwedSync;
use crate::base::time::UnixMs;
use crate::commands::Error;
use crate::exec::{ColdKey, Ended, Executor, Parked};
use crate::state::acl::Login;
use crate::state::delivery::Deliveries;
use crate::state::eviction::Loan;
use crate::state::mailbox::FinishedReads;
use crate::state::socket::Socket;
use crate::state::workers::Done;
use crate::state::{ClientId, ClientInfo, Mailbox, Message, Server};
use crate::storage::engine::waiting::count_as_io_thread;
use crate::sys::clock;
use crossbeam_channel::Receiver;
use mio::{Events, Poll, Token, Waker};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The token of the mailbox's Waker; connections have smaller ones.
const MAILBOX: Token = Token(usize::MAX);
/// A tick ends when it has made this many bytes of replies. They wait for its commit, and their
/// memory is counted only when they are sent.
const TICK_REPLIES: usize = 8 << 20;
/// A client with this many bytes of requests or replies makes its thread check the memory of
/// all clients.
const MUCH_HELD: usize = 64 << 10;
/// Events per poll.
const EVENTS: usize = 1024;
/// Bytes per read, at most.
const SCRATCH: usize = 64 << 10;
/// Connections that are read ahead of their turns, at most.
const TURNS: usize = 16;
/// How often a thread with paused clients checks whether the pause is over.
const PAUSE_CHECK: Duration = Duration::from_millis(2);
/// How often a thread with clients that wait for memory checks whether there is any.
const ROOM_CHECK: Duration = Duration::from_millis(20);
/// The same for clients that wait for memtables to be written out, or for keys to be evicted.
const SPACE_CHECK: Duration = Duration::from_millis(2);
/// How long a stopping thread waits for the other threads, and how long it sends what is left.
const LAST_SENDS: Duration = Duration::from_millis(500);
/// Bytes of messages appended to clients' outputs before these are sent and requests are
/// served.
const DELIVER_BUDGET: usize = 4 << 20;

/// An IO thread with its connections.
pub struct IoThread {
    poll: Poll,
    mailbox: Receiver<Message>,
    deliveries: Arc<Deliveries>,
    finished_reads: Arc<FinishedReads>,
    /// Keys whose waiting clients are served when reads are done, by number.
    cold_keys: FxHashMap<u64, ColdKey>,
    next_cold_key: u64,
    connections: FxHashMap<Token, Connection>,
    by_client: FxHashMap<ClientId, Token>,
    next_token: usize,
    executor: Executor,
    number: usize,
    /// Deadlines of waiting clients, Unix ms.
    deadlines: BTreeSet<(UnixMs, ClientId)>,
    /// When commands of waiting clients are tried again although no key has changed.
    retries: BTreeSet<(UnixMs, ClientId)>,
    scratch: Box<[u8]>,
    /// Connections that are served next, and the buffer for what is read ahead of them.
    ready: SmallVec<[Token; TURNS]>,
    ahead: Box<[u8]>,
    /// Connections with more input to process, for the next tick.
    pending: Vec<Token>,
    /// Connections whose requests need rows from the disk, which are served after the others.
    cold: VecDeque<Token>,
    /// How much time they may take now, in microseconds.
    cold_credit_us: i64,
    /// Connections with output of this tick.
    replied: Vec<Token>,
    /// Bytes of replies of this tick.
    tick_replies: usize,
    /// Decides whether to wait for more requests before a poll.
    gathering: TickGathering,
    /// Ticks that wait for the disk, oldest first, and the connections that wait with them.
    parked: VecDeque<(Parked, Vec<Token>)>,
    paused: Vec<Token>,
    /// When paused clients last tried again.
    last_resumed: Instant,
    /// Connections whose requests wait for memory.
    no_room: Vec<Token>,
    last_room_check: Instant,
    /// Connections whose requests wait for memtables to be written out, or for keys to be evicted.
    no_space: Vec<Token>,
    last_space_check: Instant,
    /// Memory lent to requests of this tick, until it ends.
    loans: Vec<Loan>,
    last_cron: Instant,
    /// When the next client is over a soft limit for too long, if all of them stay over it.
    output_deadline_ms: UnixMs,
    stopping: bool,
}

impl IoThread {
    /// The arguments of [`IoThread::with`], made before the thread is started, and the mailbox
    /// to reach it.
    pub fn prepare() -> io::Result<(Poll, Mailbox, Receiver<Message>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), MAILBOX)?);
        let (mailbox, receiver) = Mailbox::new(waker);
        Ok((poll, mailbox, receiver))
    }

    /// The IO thread `number`, to be run with [`IoThread::run`]. Its mailbox must be known to
    /// `server`.
    pub fn with(
        poll: Poll,
        mailbox: Receiver<Message>,
        server: Arc<Server>,
        number: usize,
    ) -> IoThread {
        let own = server.mailboxes().get(number);
        IoThread {
            poll,
            mailbox,
            deliveries: own.map(|own| own.deliveries.clone()).unwrap_or_default(),
            finished_reads: own
                .map(|own| own.finished_reads.clone())
                .unwrap_or_default(),
            cold_keys: FxHashMap::default(),
            next_cold_key: 0,
            connections: FxHashMap::default(),
            by_client: FxHashMap::default(),
            next_token: 0,
            executor: Executor::of_thread(server, number),
            number,
            deadlines: BTreeSet::new(),
            retries: BTreeSet::new(),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            ready: SmallVec::new(),
            ahead: vec![0; TURNS * READ_AHEAD].into_boxed_slice(),
            pending: Vec::new(),
            cold: VecDeque::new(),
            cold_credit_us: 0,
            replied: Vec::new(),
            tick_replies: 0,
            gathering: TickGathering::new(),
            parked: VecDeque::new(),
            paused: Vec::new(),
            last_resumed: Instant::now(),
            no_room: Vec::new(),
            last_room_check: Instant::now(),
            no_space: Vec::new(),
            last_space_check: Instant::now(),
            loans: Vec::new(),
            last_cron: Instant::now(),
            output_deadline_ms: UnixMs::MAX,
            stopping: false,
        }
    }

    /// Serves until a [`Message::Stop`].
    ///
    /// # Errors
    /// The poll fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        gather::wake_exactly();
        count_as_io_thread();
        let mut owed_sync = OwedSync::default();
        while !self.stopping {
            let owes_sync = self.executor.owes_sync();
            let timeout = match owes_sync {
                true => Duration::ZERO,
                false => self.timeout(),
            };
            if !timeout.is_zero() {
                let us = self.executor.config().tick_gather_us;
                self.gathering.wait(Duration::from_micros(us));
            }
            match self.poll.poll(&mut events, Some(timeout)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.executor.server().wait_out_stall();
            if owed_sync.is_due(owes_sync, events.is_empty()) {
                self.executor.sync();
            }
            self.end_parked();
            self.executor.start_tick();
            let began_us = clock::mono_us();
            // Effects of a request on other clients come before requests that were sent after
            // its reply: CLIENT UNBLOCK finds the clients that an earlier CLIENT UNPAUSE has
            // released.
            if events.iter().any(|event| event.token() == MAILBOX) {
                self.read_mail();
                self.end_reads();
            }
            self.retry_waits();
            let mut served_any = !self.pending.is_empty();
            for token in std::mem::take(&mut self.pending) {
                if let Some(connection) = self.connections.get_mut(&token) {
                    connection.in_pending = false;
                    self.turn(token, None);
                }
            }
            for event in events.iter().filter(|event| event.token() != MAILBOX) {
                let token = event.token();
                if let Some(connection) = self.connections.get_mut(&token) {
                    let closed = event.is_read_closed() || event.is_error();
                    if event.is_readable() || closed {
                        connection.set_readable(closed);
                    }
                    let is_cold = connection.is_cold();
                    if event.is_writable() && connection.unsent() > 0 {
                        self.send(token);
                    }
                    match is_cold {
                        true => self.schedule(token),
                        false => {
                            self.ready.push(token);
                            served_any = true;
                        }
                    }
                }
                if self.ready.len() == TURNS {
                    self.turns();
                }
            }
            self.turns();
            self.cold_turns(served_any.then_some(began_us));
            self.finish_tick();
            self.read_for_waiters();
            self.time_out();
            self.end_waits();
            if self.cron_in() == Duration::ZERO {
                self.cron();
            }
            self.resume_suspended();
        }
        self.finish();
        Ok(())
    }

    fn timeout(&self) -> Duration {
        if !self.pending.is_empty() || !self.cold.is_empty() || !self.deliveries.is_empty() {
            Duration::ZERO
        } else if !self.paused.is_empty() {
            PAUSE_CHECK
        } else {
            let mut cron = self.cron_in();
            if !self.no_room.is_empty() {
                cron = cron.min(ROOM_CHECK);
            }
            if !self.no_space.is_empty() {
                cron = cron.min(SPACE_CHECK);
            }
            let due = [self.deadlines.first(), self.retries.first()];
            let due = due.into_iter().flatten().map(|(due_ms, _)| due_ms).min();
            let due = due.map_or(cron, |due_ms| {
                Duration::from_millis(due_ms.since(clock::unix_ms()))
            });
            cron.min(due).max(Duration::from_millis(1))
        }
    }

    /// Ends waits whose deadline has passed.
    fn time_out(&mut self) {
        while let Some(&(deadline_ms, client)) = self.deadlines.first()
            // Both times are cut to whole milliseconds.
            && deadline_ms < clock::unix_ms()
        {
            let waiter = self.by_client.get(&client).and_then(|token| {
                let connection = self.connections.get(token)?;
                connection.session.waiting.clone()
            });
            let waiters = &self.executor.server().waiters;
            let ended = waiter.is_none_or(|waiter| waiters.time_out(&waiter));
            if !ended {
                // Another thread is serving it and will end the wait.
                return;
            }
            self.deadlines.remove(&(deadline_ms, client));
        }
    }

    /// Takes back the sessions that workers have finished, and replies to clients whose wait
    /// has ended.
    fn end_waits(&mut self) {
        let done = self.executor.server().workers.take_done(self.number);
        let is_done = !done.is_empty();
        for done in done {
            self.finish_job(done);
        }
        for client in self.executor.server().waiters.take_ended(self.number) {
            if let Some(&token) = self.by_client.get(&client) {
                self.end_wait(token);
            }
        }
        if is_done {
            // What a request has sent to its own client comes before the reply to the next one.
            self.deliver();
        }
    }

    /// Replies to a client if its wait is over.
    fn end_wait(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let Some(waiter) = connection.end_wait(&self.executor) else {
            return;
        };
        if let Some(deadline_ms) = waiter.deadline_ms {
            self.deadlines.remove(&(deadline_ms, waiter.client.id));
        }
        let keys = waiter.keys().len();
        self.executor.server().chores.free(waiter, keys);
        self.send(token);
        self.schedule(token);
    }

    /// Suspends a connection until its wait is over. It is scheduled once more, because its
    /// socket may be closed already, and the poll would not report that again.
    fn begin_wait(&mut self, token: Token) {
        if let Some(connection) = self.connections.get(&token)
            && let Some(waiter) = &connection.session.waiting
        {
            connection.begin_wait();
            if let Some(deadline_ms) = waiter.deadline_ms {
                self.deadlines.insert((deadline_ms, waiter.client.id));
            }
            if let Some(retry_ms) = waiter.retry_ms() {
                self.retries.insert((retry_ms, waiter.client.id));
            }
        }
        self.schedule(token);
    }

    /// Serves the ready connections. All are read first, so that the data of their requests is
    /// prefetched in parallel.
    fn turns(&mut self) {
        let mut ahead = std::mem::take(&mut self.ahead);
        let mut received: SmallVec<[_; TURNS]> = SmallVec::new();
        for (token, buffer) in self.ready.iter().zip(ahead.chunks_exact_mut(READ_AHEAD)) {
            let connection = self.connections.get_mut(token);
            received.push(connection.and_then(|connection| connection.read_ahead(buffer)));
        }
        if received.len() > 1 {
            let read = self
                .ready
                .iter()
                .zip(&received)
                .zip(ahead.chunks_exact(READ_AHEAD));
            let keys = read.filter_map(|((token, received), buffer)| {
                let n = *received.as_ref()?.as_ref().ok()?;
                self.connections.get(token)?.first_key(&buffer[..n])
            });
            self.executor.prefetch(keys);
        }
        let ready = std::mem::take(&mut self.ready).into_iter().zip(received);
        for ((token, received), buffer) in ready.zip(ahead.chunks_exact(READ_AHEAD)) {
            self.turn(token, received.map(|received| (received, buffer)));
        }
        self.ahead = ahead;
    }

    /// Serves one connection; `ahead`: what was read of it already.
    fn turn(&mut self, token: Token, ahead: Option<(io::Result<usize>, &[u8])>) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let before = connection.unsent();
        let turn = connection.turn(&mut self.executor, ahead, &mut self.scratch);
        let memory = &self.executor.server().client_memory;
        connection.show_memory(memory);
        let holds_much = connection.session.info.memory_bytes() >= MUCH_HELD;
        self.tick_replies += connection.unsent().saturating_sub(before);
        self.loans.append(&mut connection.spent_loans);
        let sends = connection.is_of_tick() || connection.is_ending() || connection.is_leaving();
        if sends && !connection.in_tick {
            connection.in_tick = true;
            self.gathering.note_client(&mut connection.gathered_in);
            self.replied.push(token);
        }
        match turn {
            Turn::Idle => {}
            Turn::More => self.schedule(token),
            Turn::Paused => self.wait_for_pause(token),
            Turn::Blocked => self.begin_wait(token),
            Turn::NoRoom => self.wait_for_room(token),
            Turn::Cold => self.wait_for_reads(token),
            Turn::Closed => {
                log::debug!("Client closed connection {}", connection.session.info);
                self.close(token);
            }
        }
        if holds_much {
            self.evict_clients();
        }
        if self.executor.is_full() || self.tick_replies >= TICK_REPLIES {
            self.finish_tick();
            self.executor.start_tick();
            // Handles evictions by other threads, which free replies.
            self.read_mail();
        }
    }

    fn schedule(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        if connection.in_pending || connection.in_cold {
            return;
        }
        match connection.is_cold() {
            true => {
                connection.in_cold = true;
                self.cold.push_back(token);
            }
            false => {
                connection.in_pending = true;
                self.pending.push(token);
            }
        }
    }

    /// I1: commits, makes durable, and only then sends. Replies that must wait for the disk are
    /// parked.
    fn finish_tick(&mut self) {
        self.tick_replies = 0;
        let (commands, writes) = (self.executor.commands(), self.executor.has_writes());
        self.gathering.note_tick(commands, writes);
        let behind = !self.parked.is_empty();
        let waits = |token: &&Token| {
            let connection = self.connections.get(token);
            connection.is_some_and(Connection::must_wait)
        };
        let waiting = || self.replied.iter().filter(waits).count();
        let ended = self.executor.end_tick(self.number, waiting, behind);
        self.loans.clear();
        match ended {
            Ended::Now(Ok(())) => {
                self.deliver();
                self.release_replied();
            }
            // No message may be sent before errors replace the replies.
            Ended::Now(Err(error)) => {
                let replied = std::mem::take(&mut self.replied);
                self.release(&replied, Some(&error));
            }
            Ended::Later(tick) => {
                let connections = &mut self.connections;
                let memory = &self.executor.server().client_memory;
                let parks = |token: &Token| {
                    let connection = connections.get_mut(token);
                    connection.is_some_and(|connection| connection.park(memory))
                };
                let replied = std::mem::take(&mut self.replied);
                let (parked, free) = replied.into_iter().partition(parks);
                self.replied = free;
                self.parked.push_back((tick, parked));
                self.deliver();
                self.release_replied();
                self.end_parked();
            }
        }
    }

    /// Ends the parked ticks that are durable, or have failed.
    fn end_parked(&mut self) {
        while let Some((tick, _)) = self.parked.front()
            && self.executor.has_ended(tick)
            && let Some((tick, waited)) = self.parked.pop_front()
        {
            let done = self.executor.finish_parked(tick);
            if done.is_ok() {
                // Messages of the tick to its own clients come before further replies.
                self.deliver();
            }
            self.release(&waited, done.as_ref().err());
            self.release_replied();
            for token in waited {
                let connection = self.connections.get(&token);
                if connection.is_some_and(Connection::has_more) {
                    self.schedule(token);
                }
            }
        }
    }

    fn release_replied(&mut self) {
        let replied = std::mem::take(&mut self.replied);
        self.release(&replied, None);
    }

    /// Sends the output of connections; after a failure, an error for each reply.
    fn release(&mut self, tokens: &[Token], failure: Option<&Error>) {
        let failure = failure.map(ToString::to_string);
        for &token in tokens {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.in_tick = false;
                match &failure {
                    None => connection.release(),
                    Some(text) => connection.fail(text),
                }
                self.send(token);
            }
        }
    }

    fn send(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let server = self.executor.server();
        let more = match connection.send(server, self.executor.now_ms()) {
            Ok((n, more)) => {
                server.stats.sent(n as u64);
                let total = &connection.session.info.net_out_bytes;
                total.fetch_add(n as u64, Ordering::Relaxed);
                more
            }
            Err(error) => {
                log::debug!("client {}: {error}", connection.session.info.id.0);
                return self.close(token);
            }
        };
        let unsent = connection.unsent();
        if unsent == 0 && connection.is_ending() {
            log::debug!("Client closed connection {}", connection.session.info);
            return self.close(token);
        }
        let (config, now_ms) = (self.executor.config(), self.executor.now_ms());
        if !more && let Some(until_ms) = connection.output_deadline(config, now_ms) {
            if until_ms < now_ms {
                return self.close_for_output(token);
            }
            self.output_deadline_ms = self.output_deadline_ms.min(until_ms);
        }
        if unsent == 0 && connection.is_leaving() {
            return self.hand_to_feeder(token);
        }
        let continues = || {
            // It leaves the list at the next check.
            connection.no_room_since_ms.is_some() && connection.may_continue(&self.executor)
        };
        if more || continues() {
            self.schedule(token);
        }
        if unsent >= MUCH_HELD {
            self.evict_clients();
        }
    }

    fn evict_clients(&mut self) {
        let server = self.executor.server();
        for client in server.evict_clients(self.executor.config()) {
            if let Some(token) = self.by_client.get(&client).copied() {
                self.close(token);
            }
        }
    }

    fn close_for_output(&mut self, token: Token) {
        let server = self.executor.server();
        server.stats.output_limit_disconnections.add(1);
        if let Some(connection) = self.connections.get(&token) {
            let info = &connection.session.info;
            log::warn!(
                "client {} at {}: its unsent output exceeds client-output-buffer-limit",
                info.id.0,
                info.addr
            );
        }
        self.close(token);
    }

    fn read_mail(&mut self) {
        while let Ok(message) = self.mailbox.try_recv() {
            match message {
                Message::Serve(socket, info) => self.serve(socket, info),
                Message::Kill(client) => {
                    if let Some(token) = self.by_client.get(&client).copied() {
                        self.close(token);
                    }
                }
                Message::Answer(client, reply) => self.answer(client, &reply),
                Message::Resume => self.resume_paused(true),
                Message::Stop => self.stopping = true,
            }
        }
    }

    /// Sends a client the reply that it waits for, and continues with its requests.
    fn answer(&mut self, client: ClientId, reply: &[u8]) {
        let Some(token) = self.by_client.get(&client).copied() else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        connection.answer(reply);
        self.reply_in_tick(token);
        self.schedule(token);
    }

    /// Takes back a client's session from the worker that has run its request.
    fn finish_job(&mut self, done: Done) {
        let token = self.by_client.get(&done.session.info.id).copied();
        let found = token.and_then(|token| Some((token, self.connections.get_mut(&token)?)));
        let Some((token, connection)) = found else {
            return self.executor.server().forget(done.session);
        };
        connection.finish_job(done, &self.executor);
        let waits = connection.session.waiting.is_some();
        self.reply_in_tick(token);
        if waits {
            self.begin_wait(token);
            // The wait may be over already: the notice came while the worker had the session.
            self.end_wait(token);
        } else {
            self.schedule(token);
        }
    }

    /// Sends the output of a connection at the end of the tick.
    fn reply_in_tick(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(&token)
            && !connection.in_tick
        {
            connection.in_tick = true;
            self.replied.push(token);
        }
    }

    fn serve(&mut self, socket: Socket, info: Arc<ClientInfo>) {
        let token = Token(self.next_token);
        self.next_token = (self.next_token + 1) % MAILBOX.0;
        let id = info.id;
        let login = Login::of_new_client(&self.executor.server().users);
        let registry = self.poll.registry();
        match Connection::new(socket, info, login, registry, token) {
            Ok(connection) => {
                self.connections.insert(token, connection);
                self.by_client.insert(id, token);
                self.turn(token, None);
            }
            Err(error) => {
                log::warn!("cannot serve client {}: {error}", id.0);
                self.executor.server().clients.remove(id);
            }
        }
    }

    /// Appends queued messages to the clients' output. They are durable.
    fn deliver(&mut self) {
        let deliveries = self.deliveries.take(DELIVER_BUDGET);
        if !deliveries.is_empty() {
            // A client's reply comes before messages that its request caused.
            self.end_waits();
        }
        for delivery in deliveries {
            for client in delivery.to.as_slice() {
                let Some(token) = self.by_client.get(client) else {
                    continue;
                };
                if let Some(connection) = self.connections.get_mut(token) {
                    connection.push(&delivery);
                    if !connection.in_tick {
                        connection.in_tick = true;
                        self.replied.push(*token);
                    }
                }
            }
        }
    }

    fn close(&mut self, token: Token) {
        let Some(mut connection) = self.connections.remove(&token) else {
            return;
        };
        connection.say_goodbye();
        connection.deregister(self.poll.registry());
        let id = connection.session.info.id;
        self.by_client.remove(&id);
        let server = self.executor.server();
        server.client_memory.end(&connection.session.info.account);
        server.client_memory.leave_queue(id);
        if let Some(waiter) = &connection.session.waiting
            && let Some(deadline_ms) = waiter.deadline_ms
        {
            self.deadlines.remove(&(deadline_ms, id));
        }
        for buffer in connection.take_buffers() {
            server.chores.free_bytes(buffer);
        }
        server.forget(connection.session.detach());
        server.clients.remove(id);
    }

    /// Hands a connection over to a replication feeder.
    fn hand_to_feeder(&mut self, token: Token) {
        let Some(mut connection) = self.connections.remove(&token) else {
            return;
        };
        connection.deregister(self.poll.registry());
        let server = self.executor.server();
        // The feeder sends replicas their messages.
        server.forget_now(&mut connection.session);
        self.by_client.remove(&connection.session.info.id);
        server.client_memory.end(&connection.session.info.account);
        match connection.take() {
            Some(taken) => server.replication.take(taken),
            None => log::error!("a connection without a PSYNC request was handed to a feeder"),
        }
    }

    /// Sends what is left for up to [`LAST_SENDS`], then closes all connections.
    fn finish(&mut self) {
        self.finish_tick();
        if let Err(error) = self.executor.server().engine.make_durable() {
            log::debug!("IO thread {}: {error}", self.number);
        }
        self.end_parked();
        self.executor.server().end_together(LAST_SENDS);
        while !self.deliveries.is_empty() {
            self.deliver();
        }
        self.end_waits();
        self.release_replied();
        let deadline = Instant::now() + LAST_SENDS;
        loop {
            let waiting: Vec<Token> = self
                .connections
                .iter()
                .filter(|(_, c)| c.unsent() > 0)
                .map(|(token, _)| *token)
                .collect();
            if waiting.is_empty() || Instant::now() >= deadline {
                break;
            }
            for token in waiting {
                self.send(token);
            }
            std::thread::yield_now();
        }
        for token in self.connections.keys().copied().collect::<Vec<_>>() {
            self.close(token);
        }
    }
}
