//! One connection: its socket, its input, its output.

mod handover;
mod output;
mod room;

use super::backlog::Backlog;
use super::look_ahead::{LookAhead, next_key};
use crate::base::time::UnixMs;
use crate::commands::acl::certificate;
use crate::exec::{Executor, Outcome, Retry};
use crate::resp::{Args, FREE_BYTES, Limits, Parser, Progress, ProtocolError, Reply};
use crate::state::acl::Login;
use crate::state::clients::ClientFlags;
use crate::state::eviction::{Loan, Refusal};
use crate::state::replication::Taken;
use crate::state::request::Request;
use crate::state::session::ReplyMode;
use crate::state::socket::Socket;
use crate::state::waiters::{Verdict, Waiter};
use crate::state::{ClientInfo, Server, Session};
use crate::storage::DbIndex;
use mio::{Registry, Token};
use output::cut_front;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Unsent bytes of replies that a connection may always have. Requests of a connection with
/// more unsent bytes wait while there is no memory for further replies.
const OUTPUT_FREE: usize = 64 << 10;
/// A client that has not authenticated is closed when it has more unsent bytes.
const OUTPUT_BEFORE_AUTH: usize = 64 << 10;
/// Bytes read from one connection before the next one is served.
const READ_BUDGET: usize = 256 << 10;
/// Requests of one connection before the next one is served.
const REQUEST_BUDGET: u32 = 2048;
/// Bytes of a connection that are read ahead of its turn.
pub const READ_AHEAD: usize = 8 << 10;
/// Requests of a connection whose rows are read from the disk together.
const COLD_AHEAD: usize = 128;
/// Nothing is read ahead for requests with more bytes, and for those behind them.
const REQUEST_AHEAD: usize = 16 << 10;
/// Larger buffers are freed once they are empty.
const KEEP_BUFFER: usize = 64 << 10;
/// A request of so many bytes goes to a worker with its buffer, and is not copied.
const MOVED_BYTES: usize = 64 << 10;

/// How a turn of a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing more to read or run.
    Idle,
    /// The budget or the tick is exhausted, and there is more.
    More,
    /// Requests wait until a pause ends.
    Paused,
    /// A request waits for other clients, and the following requests wait for it.
    Blocked,
    /// Requests wait for memory, for themselves or their replies.
    NoRoom,
    /// A request waits until [`Executor::take_cold_reads`] are done, and the following ones wait
    /// for it.
    Cold,
    /// The peer has disconnected, or its requests exceed a limit.
    Closed,
}

/// The connection of one client.
pub struct Connection {
    socket: Socket,
    /// The client.
    pub session: Session,
    parser: Parser,
    /// Bytes of requests that are not complete or wait; those before `run` are processed.
    input: Vec<u8>,
    run: usize,
    /// Replies that the peer has not read; those in `reply` follow.
    backlog: Backlog,
    /// Replies; the bytes before `sent` are sent.
    pub reply: Reply,
    sent: usize,
    /// Where the replies of this tick begin, and their number.
    tick_start: usize,
    tick_replies: u32,
    /// Whether these replies must wait for the disk if the tick does.
    must_wait: bool,
    /// Whether a request of this tick may have changed the session.
    changes_session: bool,
    /// Whether they wait for the disk. No request runs until then.
    parked: bool,
    /// Whether the next request waits for reads of the disk, and what its attempts have left.
    reading: bool,
    retry: Retry,
    /// Whether its last request has waited for reads of the disk.
    cold: bool,
    /// Since when the unsent bytes exceed the soft limit, Unix ms.
    long_since_ms: Option<UnixMs>,
    /// Invalidations that were sent while a worker had a request; they are repeated after its
    /// reply.
    repeated_pushes: Vec<u8>,
    /// While requests in `input` run: the bytes of one that goes to a worker, or 0.
    moves: Option<usize>,
    /// Whether a worker has the session, and the reply of another thread to the request that it runs,
    /// if that has come already.
    at_worker: bool,
    early_answer: Option<Vec<u8>>,
    /// Whether a worker subscribes the client to names, and the messages that come meanwhile: they
    /// follow its reply.
    holds_messages: bool,
    held: Vec<u8>,
    /// Whether it is in its thread's list of connections with replies of this tick, or in that
    /// of a parked tick.
    pub in_tick: bool,
    /// The window of [`super::gather`] in which it last had requests.
    pub gathered_in: u32,
    /// Whether it is in its thread's list of connections to serve in the next tick.
    pub in_pending: bool,
    /// Whether it is in its thread's list of connections whose requests wait for the disk.
    pub in_cold: bool,
    /// Whether it is in its thread's list of connections that wait for the end of a pause.
    pub in_paused: bool,
    /// Since when it is in its thread's list of connections that wait for memory, Unix ms.
    pub no_room_since_ms: Option<UnixMs>,
    /// Memory that it waits for, in bytes, for a request or for a reply.
    wanted: u64,
    /// The bytes of its next request, if that waits for memtables to be written out or for keys to be
    /// evicted.
    awaits_space: Option<usize>,
    /// Bytes that are lent for the writes of the next request.
    writes_bytes: usize,
    /// Memory lent for a long request that has not run yet.
    loan: Option<Loan>,
    /// Memory lent for requests that have run, until their tick ends.
    pub spent_loans: Vec<Loan>,
    /// Whether the socket may have more to read.
    readable: bool,
    /// Whether the last read returned so much that reading ahead does not pay.
    reads_much: bool,
    /// The peer has closed its end: a read returns what is left, and then the end of the
    /// stream.
    read_closed: bool,
    /// Its handshake is not over, or not looked at yet.
    greets: bool,
    /// Nothing more is read: the peer will send nothing more, or is to be disconnected.
    ended: bool,
}

impl Connection {
    /// Registers a socket under `token`.
    pub fn new(
        mut socket: Socket,
        info: Arc<ClientInfo>,
        login: Login,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Connection> {
        socket.register(registry, token)?;
        let greets = socket.is_handshaking();
        Ok(Connection {
            greets,
            socket,
            session: Session::new(info, login),
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
            reading: false,
            retry: Retry::default(),
            cold: false,
            in_cold: false,
            long_since_ms: None,
            repeated_pushes: Vec::new(),
            moves: None,
            at_worker: false,
            early_answer: None,
            holds_messages: false,
            held: Vec::new(),
            in_tick: false,
            gathered_in: 0,
            in_pending: false,
            in_paused: false,
            no_room_since_ms: None,
            wanted: 0,
            awaits_space: None,
            writes_bytes: 0,
            loan: None,
            spent_loans: Vec::new(),
            readable: true,
            reads_much: false,
            read_closed: false,
            ended: false,
        })
    }

    /// Removes the socket from the poll.
    pub(super) fn deregister(&mut self, registry: &Registry) {
        if let Err(error) = self.socket.deregister(registry) {
            log::debug!("deregister: {error}");
        }
    }

    /// Tells the peer that nothing follows, where the protocol has words for it.
    pub(super) fn say_goodbye(&mut self) {
        self.socket.close();
    }

    /// Whether the peer has yet to agree on how to speak.
    pub(super) fn is_handshaking(&self) -> bool {
        self.socket.is_handshaking()
    }

    /// Records that the socket is readable; `closed`: the peer has closed its end.
    pub(super) fn set_readable(&mut self, closed: bool) {
        self.readable = true;
        self.read_closed |= closed;
    }

    /// Records that its requests wait for the end of a pause, or no longer do.
    pub(super) fn set_paused(&mut self, paused: bool) {
        self.in_paused = paused;
        self.session.info.set_flag(ClientFlags::BLOCKED, paused);
    }

    /// Frees the memory of empty buffers.
    pub(super) fn free_buffers(&mut self) {
        let info = &self.session.info;
        if self.input.is_empty() {
            // Between requests the parser has no state, but memory.
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

    /// Whether its requests wait for the reply of a worker or of another thread, or for the
    /// disk.
    fn is_held_back(&self) -> bool {
        self.parked || self.reading || self.session.waits_for_answer()
    }

    /// Whether its next request probably waits for reads of the disk, as the last one did.
    pub(super) fn is_cold(&self) -> bool {
        self.cold
    }

    /// Records that the next request waits for reads of the disk, or no longer does.
    pub(super) fn set_reading(&mut self, reading: bool) {
        self.reading = reading;
    }

    /// Whether replies of this tick show data that a crash could take back.
    pub fn must_wait(&self) -> bool {
        self.must_wait
    }

    /// Whether there may be input to process.
    pub fn has_more(&self) -> bool {
        self.readable || self.input.len() > self.run || self.is_ending()
    }

    /// Whether it is to be closed when its replies are sent.
    pub(super) fn is_ending(&self) -> bool {
        self.ended || self.session.close_after_reply
    }

    /// Whether it goes to a replication feeder when its replies are sent.
    pub(super) fn is_leaving(&self) -> bool {
        self.session.psync.is_some()
    }

    /// What a feeder takes over from it; `None` without a PSYNC request.
    pub fn take(self) -> Option<Taken> {
        Some(Taken {
            psync: *self.session.psync?,
            info: self.session.info,
            socket: self.socket,
            input: self.input.get(self.run..).unwrap_or_default().to_vec(),
        })
    }

    /// Whether it has output for the end of this tick.
    pub(super) fn is_of_tick(&self) -> bool {
        self.must_wait || self.tick_replies > 0 || self.unsent() > 0
    }

    /// Reads ahead of the next turn, unless the connection waits or a large read is expected.
    pub(super) fn read_ahead(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        let waits = self.session.waiting.is_some()
            || self.is_held_back()
            || self.no_room_since_ms.is_some();
        let ends = self.is_ending() || self.is_leaving();
        let reads = self.readable && !self.reads_much && self.input.is_empty();
        (reads && !waits && !ends).then(|| self.receive(into))
    }

    /// The first key of the bytes that were read ahead.
    pub(super) fn first_key<'b>(&self, ahead: &'b [u8]) -> Option<(DbIndex, &'b [u8])> {
        next_key(ahead).map(|(key, _)| (self.session.db(), key))
    }

    /// Reads and runs requests until there are none, the budget is exhausted or the tick is
    /// full. `ahead` is the result of [`Connection::read_ahead`] and its buffer.
    pub fn turn(
        &mut self,
        executor: &mut Executor,
        mut ahead: Option<(io::Result<usize>, &[u8])>,
        scratch: &mut [u8],
    ) -> Turn {
        if self.session.waiting.is_some() {
            debug_assert!(ahead.is_none(), "read although it waits");
            return self.read_while_waiting(executor, scratch);
        }
        if self.reply.has_borrowed() {
            // A worker's reply was appended since the memory was last counted.
            self.show_output(&executor.server().client_memory);
        }
        self.reply.bound(executor.server(), FREE_BYTES);
        let mut requests = 0;
        let mut bytes = 0;
        loop {
            let read = match ahead.take() {
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

    /// While a request waits for other clients: detects a disconnection, and keeps the input
    /// for later.
    fn read_while_waiting(&mut self, executor: &Executor, scratch: &mut [u8]) -> Turn {
        while self.readable {
            match self.receive(scratch) {
                Ok(0) => return Turn::Closed,
                Ok(n) => {
                    self.count_received(executor, n);
                    self.append(&scratch[..n]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Turn::Closed,
            }
            if self.exceeds_input_limit(executor, 0) {
                return Turn::Closed;
            }
        }
        Turn::Idle
    }

    /// Marks the client as blocked.
    pub fn begin_wait(&self) {
        self.session.info.set_flag(ClientFlags::BLOCKED, true);
    }

    /// If the wait is over, ends it and appends the reply. That is durable, and may be sent
    /// unless earlier replies wait for the disk.
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

    /// Processes the result of a read. Whole requests run directly from `buffer`.
    fn take_in(
        &mut self,
        executor: &mut Executor,
        received: io::Result<usize>,
        buffer: &[u8],
        requests: &mut u32,
    ) -> io::Result<(usize, Turn)> {
        if self.greets && !self.socket.is_handshaking() {
            self.greets = false;
            if let Some(shown) = self.socket.peer_certificate() {
                certificate::log_in(executor.server(), &mut self.session, shown);
            }
        }
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
        self.reads_much = n >= READ_AHEAD;
        if self.socket.is_drained(n, buffer.len()) && !self.read_closed {
            // The socket is empty; new data will raise another edge.
            self.readable = false;
        }
        self.count_received(executor, n);
        let now_ms = executor.now_ms();
        self.session.info.active_ms.store(now_ms, Ordering::Relaxed);
        self.push_queued(executor.server());
        let arrived = &buffer[..n];
        if !self.input.is_empty() {
            self.append(arrived);
            return Ok((n, Turn::Idle));
        }
        if self.exceeds_input_limit(executor, n) {
            return Ok((n, Turn::Closed));
        }
        let (used, turn) = self.run_requests(executor, arrived, requests);
        self.append(&arrived[used..]);
        if self.exceeds_input_limit(executor, 0) {
            return Ok((n, Turn::Closed));
        }
        Ok((n, turn))
    }

    fn count_received(&self, executor: &Executor, bytes: usize) {
        executor.server().stats.read(bytes as u64);
        let total = &self.session.info.net_in_bytes;
        total.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Appends the messages that were queued for the client before it sent the input just read,
    /// so that they precede the replies to that input. A client that knows of a completed
    /// write, and then asks for a cached key again, has been sent the invalidation before that
    /// reply.
    fn push_queued(&mut self, server: &Server) {
        if self.session.gets_messages() {
            for delivery in self.session.take_deliveries(server) {
                self.push(&delivery);
            }
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(into)
    }

    /// Keeps input for later. Memory grows with the bytes received, not with announced lengths,
    /// which thousands of clients could make large.
    fn append(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.show_input();
    }

    /// Publishes the memory of the requests in the client's statistics.
    fn show_input(&self) {
        let info = &self.session.info;
        let waiting = self.input.len() - self.run;
        info.query_bytes.store(waiting, Ordering::Relaxed);
        info.query_capacity
            .store(self.input.capacity(), Ordering::Relaxed);
        let args = self.parser.memory();
        info.argv_bytes.store(args, Ordering::Relaxed);
    }

    /// Whether waiting requests, an incomplete one and `arrived` bytes just read exceed the
    /// limit of the query buffer. The caller then closes the connection.
    fn exceeds_input_limit(&self, executor: &Executor, arrived: usize) -> bool {
        let kept = self.input.len() - self.run + self.parser.memory() + arrived;
        self.exceeds_query_limit(executor, kept, "request")
    }

    /// Whether `bytes` exceed `client-query-buffer-limit`. If so, logs that with `what` and
    /// counts a disconnection. The caller then closes the connection.
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

    /// Runs the requests in `input`.
    fn run_buffered(&mut self, executor: &mut Executor, requests: &mut u32) -> Turn {
        if self.input.len() == self.run {
            return Turn::Idle;
        }
        if self.exceeds_input_limit(executor, 0) {
            return Turn::Closed;
        }
        let input = std::mem::take(&mut self.input);
        self.moves = Some(0);
        let (used, turn) = self.run_requests(executor, &input[self.run..], requests);
        let moved = self.moves.take().filter(|bytes| *bytes > 0);
        self.input = input;
        self.run += used;
        let turn = match moved {
            Some(bytes) => self.move_to_worker(executor, bytes),
            None => turn,
        };
        if self.exceeds_input_limit(executor, 0) {
            return Turn::Closed;
        }
        if self.run == self.input.len() {
            self.input.clear();
            self.input.shrink_to(KEEP_BUFFER);
            self.run = 0;
        } else if cut_front(&mut self.input, self.run, KEEP_BUFFER) {
            self.run = 0;
            if self.input.capacity() / 2 > self.input.len().max(KEEP_BUFFER) {
                // The buffer was sized for a long request, which has run.
                self.input.shrink_to(KEEP_BUFFER);
            }
        }
        self.show_input();
        turn
    }

    /// Runs the complete requests at the front of `input`; returns their length.
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
                    ahead.advance(input, used + consumed, first, second);
                    let before = self.reply.len();
                    let outcome = match self.may_run(executor, &input[used..], consumed) {
                        Ok(()) => self.run_one(executor, &input[used..], consumed),
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
                    if self.moves.is_some_and(|bytes| bytes > 0) {
                        return (used, Turn::Idle);
                    }
                    self.parser.reset();
                    if let Some(turn) = self.turn_after(outcome) {
                        if turn == Turn::Cold {
                            self.look_ahead(executor, &input[used + consumed..]);
                        }
                        return (used, turn);
                    }
                    used += consumed;
                    *requests += 1;
                    if outcome == Outcome::Blocked {
                        return (used, Turn::Blocked);
                    }
                    if self.exceeds_transaction_limit(executor) {
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

    /// How the turn ends if the request has to run again; `None`: it has not.
    fn turn_after(&mut self, outcome: Outcome) -> Option<Turn> {
        if outcome != Outcome::Slow {
            self.spent_loans.extend(self.loan.take());
        }
        match outcome {
            Outcome::Paused => Some(Turn::Paused),
            Outcome::Cold => {
                self.cold = true;
                Some(Turn::Cold)
            }
            Outcome::Done | Outcome::Blocked | Outcome::Slow => {
                self.cold = self.retry.rounds > 0;
                self.retry = Retry::default();
                None
            }
        }
    }

    /// Asks for the rows that the next requests need, while the one before them waits for its own.
    fn look_ahead(&self, executor: &Executor, mut input: &[u8]) {
        let limits = Limits {
            max_bulk_len: REQUEST_AHEAD,
            authenticated: true,
        };
        let mut parser = Parser::new();
        for _ in 0..COLD_AHEAD {
            let part = &input[..input.len().min(REQUEST_AHEAD)];
            let Ok(Progress::Complete { consumed }) = parser.advance(part, &limits) else {
                return;
            };
            let args = parser.args(part);
            if !args.is_empty() && !executor.look_ahead_for(&self.session, &args) {
                return;
            }
            drop(args);
            parser.reset();
            input = &input[consumed..];
        }
    }

    /// Sends a protocol error and ends the connection.
    fn end_for(&mut self, error: &ProtocolError, executor: &Executor) {
        let text = format!("ERR {error}");
        executor.server().stats.error(&text);
        self.reply.error(&text);
        self.tick_replies += 1;
        self.ended = true;
        log::debug!("client {}: {error}", self.session.info.id.0);
    }

    /// Whether the client has yet to authenticate.
    fn is_locked_out(&self, executor: &Executor) -> bool {
        !self.session.authenticated && !executor.server().users.default_user().is_open()
    }

    /// Whether queued commands, watched keys or fieldsets take more memory than a request may.
    fn exceeds_transaction_limit(&self, executor: &Executor) -> bool {
        let kept = self.session.waiting_bytes();
        let fieldsets = self.session.fieldsets().bytes();
        self.exceeds_query_limit(executor, kept, "transaction")
            || self.exceeds_query_limit(executor, fieldsets, "list of fieldsets")
    }

    /// Ends the connection, because a reply is larger than the memory of all clients. Earlier
    /// replies are still sent.
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

    fn run_one(&mut self, executor: &mut Executor, input: &[u8], consumed: usize) -> Outcome {
        let mut args = Args::new();
        self.parser.read_args(input, &mut args);
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
        executor.begin_request(self.writes_bytes, consumed, self.retry);
        let outcome = executor.run(&mut self.session, &args, &mut self.reply);
        self.must_wait |= executor.must_wait();
        self.changes_session |= outcome != Outcome::Cold && !executor.was_plain();
        self.retry = executor.retry();
        if outcome == Outcome::Slow {
            if self.moves.is_none() || consumed < MOVED_BYTES {
                let request = Request::new(&args);
                drop(args);
                let left = self.leave_to_worker(executor, request);
                return left.map_or(Outcome::Paused, |()| Outcome::Slow);
            }
            self.moves = Some(consumed);
            return Outcome::Slow;
        }
        if self.reply.len() > before {
            self.tick_replies += 1;
        }
        self.reply.resp3 = self.session.resp3;
        outcome
    }

    /// Refuses a request that can never get the memory that it takes.
    fn refuse_one(&mut self, executor: &mut Executor, input: &[u8]) -> Outcome {
        let before = self.reply.len();
        let args = self.parser.args(input);
        executor.refuse_for_memory(&mut self.session, &args, &mut self.reply);
        self.tick_replies += u32::from(self.reply.len() > before);
        Outcome::Done
    }
}
