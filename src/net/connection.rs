//! One connection: its socket, what was read of requests, what waits to be sent.

mod output;
mod room;

use super::backlog::Backlog;
use super::look_ahead::{LookAhead, next_key};
use crate::exec::{Executor, Outcome};
use crate::resp::{FREE_BYTES, Limits, Parser, Progress, ProtocolError, Reply};
use crate::state::clients::ClientFlags;
use crate::state::eviction::{Loan, Refusal};
use crate::state::mailbox::Socket;
use crate::state::replication::Taken;
use crate::state::request::Request;
use crate::state::session::ReplyMode;
use crate::state::waiters::{Verdict, Waiter};
use crate::state::workers::{Done, Job};
use crate::state::{ClientInfo, Server, Session};
use crate::storage::DbIndex;
use mio::{Interest, Registry, Token};
use output::cut_front;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// So many bytes of replies may wait for a peer whatever memory others take. While more
/// do, and clients have no room for further ones, its requests wait too.
const OUTPUT_FREE: usize = 64 << 10;
/// A client that has not said the password and leaves this many bytes of
/// replies unread is closed.
const OUTPUT_BEFORE_AUTH: usize = 64 << 10;
/// Bytes read from one connection before the others have their turn.
const READ_BUDGET: usize = 256 << 10;
/// Requests of one connection before the others have their turn.
const REQUEST_BUDGET: u32 = 2048;
/// Bytes of a connection that are read before its turn, at the most.
pub const EARLY: usize = 8 << 10;
/// Buffers that grew past this are freed once they are empty.
const KEEP_BUFFER: usize = 64 << 10;

/// How a turn of a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing more to read or run.
    Idle,
    /// The budget or the tick is used up; there is more.
    More,
    /// Requests wait until a pause ends.
    Paused,
    /// A request waits for other clients; what follows waits for it.
    Blocked,
    /// Requests wait until clients have room for further replies.
    NoRoom,
    /// The peer is gone, or its requests cannot be read.
    Closed,
}

/// The connection of one client.
pub struct Connection {
    socket: Socket,
    /// The client.
    pub session: Session,
    parser: Parser,
    /// Bytes of a request that has not arrived whole, or waits; run up to `run`.
    input: Vec<u8>,
    run: usize,
    /// Replies that the peer did not take; those in `reply` follow on them.
    backlog: Backlog,
    /// Replies; sent up to `sent`.
    pub reply: Reply,
    sent: usize,
    /// Where this tick's replies begin, and how many there are.
    tick_start: usize,
    tick_replies: u32,
    /// Whether they must wait for the disk if the tick does.
    must_wait: bool,
    /// Whether a request of this tick may have changed the session.
    changes_session: bool,
    /// Whether they do wait for it. Until they are released no more requests are run.
    parked: bool,
    /// Since when more than the soft limit waits to be sent, Unix ms.
    long_since_ms: Option<u64>,
    /// Invalidations that came while a worker had a request; they follow its reply.
    told_early: Vec<u8>,
    /// Whether it is on the thread's list of connections with replies of this tick, or
    /// on that of a tick that waits for the disk.
    pub in_tick: bool,
    /// In which window of [`super::gather`] it last had requests.
    pub gathered_in: u32,
    /// Whether it is on the thread's list of connections to look at again.
    pub in_pending: bool,
    /// Whether it is on the thread's list of those that wait for a pause to end.
    pub in_paused: bool,
    /// Since when it is on the thread's list of those whose requests wait until clients
    /// have room, Unix ms.
    pub no_room_since_ms: Option<u64>,
    /// Memory that it waits for, in bytes: for a request, or for the reply to one.
    wanted: u64,
    /// Bytes that are lent for what the request writes that runs next.
    writes_bytes: usize,
    /// Memory for a long request that has not run yet.
    loan: Option<Loan>,
    /// Memory for those that have run, until their tick ends.
    pub spent_loans: Vec<Loan>,
    /// Whether the socket may have more to read.
    readable: bool,
    /// Whether the last read took so much that reading early would get in the way.
    reads_much: bool,
    /// What is still to be read ends with the end of the stream.
    read_closed: bool,
    /// The peer will send no more, or must not be listened to any more.
    ended: bool,
}

impl Connection {
    /// Registers a socket under `token`.
    pub fn new(
        mut socket: Socket,
        info: Arc<ClientInfo>,
        authenticated: bool,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Connection> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match &mut socket {
            Socket::Tcp(s) => registry.register(s, token, interest)?,
            Socket::Unix(s) => registry.register(s, token, interest)?,
        }
        Ok(Connection {
            socket,
            session: Session::new(info, authenticated),
            parser: Parser::new(),
            input: Vec::new(),
            run: 0,
            backlog: Backlog::default(),
            reply: Reply::new(false),
            sent: 0,
            tick_start: 0,
            tick_replies: 0,
            must_wait: false,
            changes_session: false,
            parked: false,
            long_since_ms: None,
            told_early: Vec::new(),
            in_tick: false,
            gathered_in: 0,
            in_pending: false,
            in_paused: false,
            no_room_since_ms: None,
            wanted: 0,
            writes_bytes: 0,
            loan: None,
            spent_loans: Vec::new(),
            readable: true,
            reads_much: false,
            read_closed: false,
            ended: false,
        })
    }

    /// Takes the socket off the poll.
    pub fn deregister(&mut self, registry: &Registry) {
        let done = match &mut self.socket {
            Socket::Tcp(s) => registry.deregister(s),
            Socket::Unix(s) => registry.deregister(s),
        };
        if let Err(error) = done {
            log::debug!("deregister: {error}");
        }
    }

    /// Notes that the socket has something to read; `closed`: its end, too.
    pub fn set_readable(&mut self, closed: bool) {
        self.readable = true;
        self.read_closed |= closed;
    }

    /// Notes that its requests wait for the end of a pause, or no longer do.
    pub fn set_paused(&mut self, paused: bool) {
        self.in_paused = paused;
        self.session.info.set_flag(ClientFlags::BLOCKED, paused);
    }

    /// Gives back the memory of buffers that hold nothing.
    pub fn free_buffers(&mut self) {
        let info = &self.session.info;
        if self.input.is_empty() {
            // Between requests it knows nothing but where its memory is.
            self.parser = Parser::new();
        }
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = Vec::new();
            info.query_capacity.store(0, Ordering::Relaxed);
        }
        if self.reply.is_empty() && self.reply.buf.capacity() > 0 {
            self.reply.buf = Vec::new();
            let capacity = self.backlog.capacity();
            info.output_capacity.store(capacity, Ordering::Relaxed);
        }
    }

    /// Whether its requests wait for the reply to one of them, or for the disk.
    fn is_held_back(&self) -> bool {
        self.parked || self.session.waits_for_answer()
    }

    /// Whether replies of this tick show what a crash could take back.
    pub fn must_wait(&self) -> bool {
        self.must_wait
    }

    /// Whether there may be requests to run.
    pub fn has_more(&self) -> bool {
        self.readable || self.input.len() > self.run || self.is_ending()
    }

    /// Whether it should be closed once its replies are sent.
    pub fn is_ending(&self) -> bool {
        self.ended || self.session.close_after_reply
    }

    /// Whether it goes to a feeder once its replies are sent.
    pub fn is_leaving(&self) -> bool {
        self.session.psync.is_some()
    }

    /// What a feeder needs of it.
    pub fn take(self) -> Option<Taken> {
        Some(Taken {
            psync: *self.session.psync?,
            info: self.session.info,
            socket: self.socket,
            input: self.input.get(self.run..).unwrap_or_default().to_vec(),
        })
    }

    /// Whether the end of this tick matters to it.
    pub fn is_of_tick(&self) -> bool {
        self.must_wait || self.tick_replies > 0 || self.unsent() > 0
    }

    /// Reads ahead of the next turn, unless there is nothing to read yet or much.
    pub fn read_early(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        let waits = self.session.waiting.is_some()
            || self.is_held_back()
            || self.no_room_since_ms.is_some();
        let ends = self.is_ending() || self.is_leaving();
        let reads = self.readable && !self.reads_much && self.input.is_empty();
        (reads && !waits && !ends).then(|| self.receive(into))
    }

    /// The first key of what was read early.
    pub fn first_key<'b>(&self, early: &'b [u8]) -> Option<(DbIndex, &'b [u8])> {
        next_key(early).map(|(key, _)| (self.session.db(), key))
    }

    /// Reads and runs requests until there are none, the budget is used up or
    /// the tick is full. `early`: what [`Connection::read_early`] returned, and its
    /// buffer.
    pub fn turn(
        &mut self,
        executor: &mut Executor,
        mut early: Option<(io::Result<usize>, &[u8])>,
        scratch: &mut [u8],
    ) -> Turn {
        if self.session.waiting.is_some() {
            debug_assert!(early.is_none(), "read although it waits");
            return self.listen(executor, scratch);
        }
        if self.reply.has_borrowed() {
            // A worker has made a reply since it was last said what it holds.
            self.show_output(&executor.server().client_memory);
        }
        self.reply.bound(executor.server(), FREE_BYTES);
        let mut requests = 0;
        let mut bytes = 0;
        loop {
            let read = match early.take() {
                Some((received, buffer)) => self.take_in(executor, received, buffer, &mut requests),
                None => {
                    match self.run_buffered(executor, &mut requests) {
                        Turn::Idle => {}
                        other => return other,
                    }
                    let stops = self.is_held_back() || self.is_ending() || self.is_leaving();
                    if !self.readable || stops {
                        return Turn::Idle;
                    }
                    if self.has_no_room(executor) || !self.may_read_on(executor) {
                        return match self.is_ending() {
                            true => Turn::Idle,
                            false => Turn::NoRoom,
                        };
                    }
                    if bytes >= READ_BUDGET {
                        return Turn::More;
                    }
                    let received = self.receive(scratch);
                    self.take_in(executor, received, scratch, &mut requests)
                }
            };
            match read {
                Ok((0, Turn::Idle)) => return Turn::Idle,
                Ok((n, Turn::Idle)) => bytes += n,
                Ok((_, other)) => return other,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    log::debug!("client {}: {error}", self.session.info.id.0);
                    return Turn::Closed;
                }
            }
        }
    }

    /// While a request waits for other clients: only notices that the peer is
    /// gone, and keeps what it sends for later.
    fn listen(&mut self, executor: &Executor, scratch: &mut [u8]) -> Turn {
        while self.readable {
            match self.receive(scratch) {
                Ok(0) => return Turn::Closed,
                Ok(n) => {
                    executor.server().stats.read(n as u64);
                    self.append(&scratch[..n]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Turn::Closed,
            }
            if self.asks_too_much(executor, 0) {
                return Turn::Closed;
            }
        }
        Turn::Idle
    }

    /// Begins to wait for other clients.
    pub fn begin_wait(&self) {
        self.session.info.set_flag(ClientFlags::BLOCKED, true);
    }

    /// Ends the wait, if it is over, with its reply. That is durable, and may be sent
    /// unless replies before it wait for the disk.
    pub fn end_wait(&mut self, executor: &Executor) -> Option<Arc<Waiter>> {
        let waiter = self.session.waiting.take()?;
        let Some(verdict) = waiter.take_verdict() else {
            self.session.waiting = Some(waiter);
            return None;
        };
        match &verdict {
            Verdict::Reply(_) => {}
            Verdict::TimedOut => executor.count_unserved(&waiter, None),
            Verdict::Error(text) => executor.count_unserved(&waiter, Some(text)),
        }
        self.session.info.set_flag(ClientFlags::BLOCKED, false);
        let wanted = match self.session.reply_mode {
            ReplyMode::Off => false,
            ReplyMode::On => true,
            ReplyMode::SkipNext | ReplyMode::SkipThis => {
                self.session.reply_mode = ReplyMode::On;
                false
            }
        };
        if wanted {
            match verdict {
                Verdict::Reply(bytes) => self.reply.raw(&bytes),
                Verdict::TimedOut => match waiter.acks() {
                    Some(acks) => self.reply.raw(&acks.reply()),
                    None => self.reply.null_array(),
                },
                Verdict::Error(text) => self.reply.error(&text),
            }
        }
        match self.parked {
            true => self.tick_replies += u32::from(wanted),
            false => self.release(),
        }
        Some(waiter)
    }

    /// What one read came to. Requests that arrive whole are run right out of `buffer`.
    fn take_in(
        &mut self,
        executor: &mut Executor,
        received: io::Result<usize>,
        buffer: &[u8],
        requests: &mut u32,
    ) -> io::Result<(usize, Turn)> {
        let n = match received {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok((0, Turn::Idle));
            }
            Err(error) => return Err(error),
        };
        if n == 0 {
            self.ended = true;
            self.readable = false;
            return Ok((0, Turn::Idle));
        }
        self.reads_much = n >= EARLY;
        if n < buffer.len() && !self.read_closed {
            // The socket is empty; what arrives from now on is another edge.
            self.readable = false;
        }
        executor.server().stats.read(n as u64);
        let now_ms = executor.now_ms();
        self.session.info.active_ms.store(now_ms, Ordering::Relaxed);
        self.hear(executor.server());
        let arrived = &buffer[..n];
        if !self.input.is_empty() {
            self.append(arrived);
            return Ok((n, Turn::Idle));
        }
        if self.asks_too_much(executor, n) {
            return Ok((n, Turn::Closed));
        }
        let (used, turn) = self.run_requests(executor, arrived, requests);
        self.append(&arrived[used..]);
        if self.asks_too_much(executor, 0) {
            return Ok((n, Turn::Closed));
        }
        Ok((n, turn))
    }

    /// What was on its way to the client before it sent what was just read comes
    /// before the replies to that: who hears that a write is answered, and asks
    /// then, has been told by the reply that its copy is stale.
    fn hear(&mut self, server: &Server) {
        if self.session.listens() {
            for delivery in self.session.take_deliveries(server) {
                self.push(&delivery);
            }
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Tcp(s) => s.read(into),
            Socket::Unix(s) => s.read(into),
        }
    }

    /// Keeps bytes of a request for later. Memory grows with what has arrived:
    /// what was announced says nothing, thousands of clients may announce much.
    fn append(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.show_input();
    }

    /// Tells others what memory its requests take.
    fn show_input(&self) {
        let info = &self.session.info;
        let waiting = self.input.len() - self.run;
        info.query_bytes.store(waiting, Ordering::Relaxed);
        info.query_capacity
            .store(self.input.capacity(), Ordering::Relaxed);
        let args = self.parser.memory();
        info.argv_bytes.store(args, Ordering::Relaxed);
    }

    /// Whether requests that wait, one that has come in part and `arrived` bytes that
    /// have just been read take more memory than they may. The caller closes the
    /// connection.
    fn asks_too_much(&self, executor: &Executor, arrived: usize) -> bool {
        let kept = self.input.len() - self.run + self.parser.memory() + arrived;
        self.exceeds_query_limit(executor, kept, "request")
    }

    /// Whether `bytes` are more than a request may take; if so, says of what, and counts a
    /// disconnection. The caller closes the connection.
    fn exceeds_query_limit(&self, executor: &Executor, bytes: usize, what: &str) -> bool {
        if bytes as u64 <= executor.config().client_query_buffer_limit_bytes {
            return false;
        }
        let info = &self.session.info;
        log::warn!(
            "client {} at {}: its {what} is longer than client-query-buffer-limit",
            info.id.0,
            info.addr
        );
        executor.server().stats.query_limit_disconnections.add(1);
        true
    }

    /// Runs what was kept.
    fn run_buffered(&mut self, executor: &mut Executor, requests: &mut u32) -> Turn {
        if self.input.len() == self.run {
            return Turn::Idle;
        }
        if self.asks_too_much(executor, 0) {
            return Turn::Closed;
        }
        let input = std::mem::take(&mut self.input);
        let (used, turn) = self.run_requests(executor, &input[self.run..], requests);
        self.input = input;
        self.run += used;
        if self.asks_too_much(executor, 0) {
            return Turn::Closed;
        }
        if self.run == self.input.len() {
            self.input.clear();
            self.input.shrink_to(KEEP_BUFFER);
            self.run = 0;
        } else if cut_front(&mut self.input, self.run, KEEP_BUFFER) {
            self.run = 0;
            if self.input.capacity() / 2 > self.input.len().max(KEEP_BUFFER) {
                // It was made for a long request, whose loan has ended.
                self.input.shrink_to(KEEP_BUFFER);
            }
        }
        self.show_input();
        turn
    }

    /// Runs the whole requests at the front of `input`; returns their length.
    fn run_requests(
        &mut self,
        executor: &mut Executor,
        input: &[u8],
        requests: &mut u32,
    ) -> (usize, Turn) {
        let mut used = 0;
        let mut ahead = LookAhead::default();
        let max_bulk_len = executor.config().proto_max_bulk_len_bytes as usize;
        while used < input.len() {
            if self.is_ending() {
                return (input.len(), Turn::Idle);
            }
            if self.unsent() > OUTPUT_BEFORE_AUTH && self.is_locked_out(executor) {
                return (input.len(), Turn::Closed);
            }
            if self.is_held_back() || self.is_leaving() {
                return (used, Turn::Idle);
            }
            if self.has_no_room(executor) {
                return (used, Turn::NoRoom);
            }
            if *requests >= REQUEST_BUDGET || executor.is_full() {
                return (used, Turn::More);
            }
            let limits = Limits {
                max_bulk_len,
                authenticated: self.session.authenticated,
            };
            match self.parser.advance(&input[used..], &limits) {
                Ok(Progress::Incomplete) => return (used, Turn::Idle),
                Ok(Progress::Complete { consumed }) => {
                    let db = self.session.db();
                    let first = |key: &[u8]| executor.prefetch_place(db, key);
                    let second = |row| executor.prefetch_row(row);
                    ahead.go_on(input, used + consumed, first, second);
                    let before = self.reply.len();
                    let outcome = match self.may_run(executor, &input[used..], consumed) {
                        Ok(()) => self.run_one(executor, &input[used..]),
                        Err(Refusal::Never) => self.refuse_one(executor, &input[used..]),
                        Err(Refusal::Later(_)) => {
                            self.parser.reset();
                            return (used, Turn::NoRoom);
                        }
                    };
                    if self.reply.overflowed {
                        if self.takes_reply_back(before, executor, &input[used..]) {
                            self.parser.reset();
                            return (used, Turn::NoRoom);
                        }
                        self.refuse_reply(before, executor);
                    }
                    self.parser.reset();
                    if outcome != Outcome::Slow {
                        self.spent_loans.extend(self.loan.take());
                    }
                    if outcome == Outcome::Paused {
                        return (used, Turn::Paused);
                    }
                    used += consumed;
                    *requests += 1;
                    if outcome == Outcome::Blocked {
                        return (used, Turn::Blocked);
                    }
                    if self.keeps_too_much(executor) {
                        return (input.len(), Turn::Closed);
                    }
                }
                Err(error) => {
                    self.end_for(&error, executor);
                    return (input.len(), Turn::Idle);
                }
            }
        }
        (used, Turn::Idle)
    }

    /// Ends the connection of a client that does not keep to the protocol.
    fn end_for(&mut self, error: &ProtocolError, executor: &Executor) {
        let text = format!("ERR {error}");
        executor.server().stats.error(&text);
        self.reply.error(&text);
        self.tick_replies += 1;
        self.ended = true;
        log::debug!("client {}: {error}", self.session.info.id.0);
    }

    /// Whether the client has not said the password yet.
    fn is_locked_out(&self, executor: &Executor) -> bool {
        !self.session.authenticated && !executor.config().requirepass.is_empty()
    }

    /// Whether what it queued and watches takes more memory than a request may.
    fn keeps_too_much(&self, executor: &Executor) -> bool {
        let kept = self.session.waiting_bytes();
        self.exceeds_query_limit(executor, kept, "transaction")
    }

    /// A single reply is longer than all clients together may take: the client goes
    /// instead, once it has the replies before.
    fn refuse_reply(&mut self, before: usize, executor: &Executor) {
        log::warn!(
            "client {} at {}: a reply to it is longer than maxmemory-clients has left",
            self.session.info.id.0,
            self.session.info.addr
        );
        self.reply.truncate(before);
        self.reply.buf.shrink_to(KEEP_BUFFER);
        self.reply.overflowed = false;
        self.tick_replies = self.tick_replies.saturating_sub(1);
        self.ended = true;
        executor.server().stats.evicted_clients.add(1);
    }

    fn run_one(&mut self, executor: &mut Executor, input: &[u8]) -> Outcome {
        let args = self.parser.args(input);
        if args.is_empty() {
            return Outcome::Done;
        }
        let info = &self.session.info;
        let argv_bytes: usize = args.iter().map(|arg| arg.len()).sum();
        let places = self.parser.memory();
        info.argv_bytes
            .store(argv_bytes + places, Ordering::Relaxed);
        info.query_bytes.store(input.len(), Ordering::Relaxed);
        let before = self.reply.len();
        executor.begin_request(self.writes_bytes);
        let outcome = executor.run(&mut self.session, &args, &mut self.reply);
        self.must_wait |= executor.must_wait();
        self.changes_session |= !executor.was_plain();
        if outcome == Outcome::Slow {
            let request = Request::new(&args);
            drop(args);
            return self.leave_to_worker(executor, request);
        }
        if self.reply.len() > before {
            self.tick_replies += 1;
        }
        self.reply.resp3 = self.session.resp3;
        outcome
    }

    /// There can never be the memory that the request takes.
    fn refuse_one(&mut self, executor: &mut Executor, input: &[u8]) -> Outcome {
        let before = self.reply.len();
        let args = self.parser.args(input);
        executor.refuse_for_memory(&mut self.session, &args, &mut self.reply);
        self.tick_replies += u32::from(self.reply.len() > before);
        Outcome::Done
    }

    /// A worker runs the request; what follows waits for its answer.
    fn leave_to_worker(&mut self, executor: &Executor, request: Request) -> Outcome {
        // What it began to answer was taken back, and many may wait for a worker.
        self.reply.buf.shrink_to_fit();
        self.reply.give_back();
        let mut job = Job::new(self.session.leave(), request, executor.accesses_noted());
        job.lent = self.writes_bytes;
        match executor.server().workers.submit(job) {
            Ok(()) => {
                let info = &self.session.info;
                info.set_flag(ClientFlags::BLOCKED, true);
                Outcome::Slow
            }
            Err(job) => {
                self.session = job.session;
                Outcome::Paused
            }
        }
    }

    /// A worker has run the request.
    pub fn come_back(&mut self, done: Done, executor: &Executor) {
        self.session = done.session;
        self.session.info.set_flag(ClientFlags::BLOCKED, false);
        self.spent_loans.extend(self.loan.take());
        let (before, free) = (self.reply.len(), self.tick_start == self.reply.len());
        self.reply.append(done.reply);
        self.reply.raw(&std::mem::take(&mut self.told_early));
        self.reply.resp3 = self.session.resp3;
        if self.reply.overflowed {
            self.tick_replies += 1;
            self.refuse_reply(before, executor);
        }
        if free {
            // It was committed before this tick.
            self.tick_start = self.reply.len();
        } else if self.reply.len() > before {
            self.tick_replies += 1;
        }
    }

    /// Appends the reply that the client has waited for.
    pub fn answer(&mut self, reply: &[u8]) {
        let info = &self.session.info;
        info.set_flag(ClientFlags::BLOCKED, false);
        // No values that a client may keep come this way.
        self.told_early.clear();
        let free = self.tick_start == self.reply.len();
        if self.session.answered() {
            self.reply.raw(reply);
        }
        if free {
            // What it answers was committed before this tick.
            self.tick_start = self.reply.len();
        }
    }
}
