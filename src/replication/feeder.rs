//! Feeds one replica: the data set if it has to begin anew, then the binlog.
//!
//! A replica that does not say that it reads Kedis' rows gets Redis' dialect,
//! see [`redis`], and no DB that it does not have, see [`super::databases`].
//!
//! Only what a crash of this process cannot take back is sent (I1). A position
//! that the binlog lost meanwhile ends the feeding: the replica comes back,
//! is told that it cannot go on, and gets the data set.

mod redis;

use super::databases::{Beyond, Databases, Refusals};
use super::turns::Turns;
use super::wire;
use crate::encoding::binlog::Position;
use crate::resp::encode::command;
use crate::resp::{Limits, Parser, Progress};
use crate::state::Server;
use crate::state::clients::ClientFlags;
use crate::state::mailbox::Socket;
use crate::state::replication::{Feeding, Psync, Replica, Taken};
use crate::storage::engine::binlog::{Hold, Watcher};
use crate::storage::{DbIndex, StorageError, fail_point};
use crate::sys::clock;
use crate::types::OpError;
use mio::{Events, Interest, Poll, Token, Waker};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SOCKET: Token = Token(0);
const WAKE: Token = Token(1);
/// Bytes of the binlog that one turn reads.
const TURN_BYTES: usize = 512 << 10;
/// The longest sleep.
const NAP: Duration = Duration::from_millis(250);
/// How often a replica that waits for the data set hears that it is not forgotten,
/// and one that lags how far the binlog goes.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// What a replica says is short.
const MAX_INPUT: usize = 64 << 10;

/// Why feeding ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the data set cannot be written: {0}")]
    Export(OpError),
    #[error("it has all that it asked for")]
    Served,
    #[error("it closed the connection")]
    Closed,
    #[error("it gave no sign of life for repl-timeout seconds")]
    Silent,
    #[error("it said what no replica says")]
    Malformed,
    #[error(transparent)]
    Beyond(#[from] Beyond),
    #[error("it fell behind what the binlog holds")]
    Trimmed,
    #[error("this server's history has changed")]
    History,
    #[error("it was told to go")]
    Killed,
    #[error("this server stops")]
    Stopping,
}

/// Feeds until the connection breaks.
pub(super) fn run(server: &Arc<Server>, turns: &Turns, refusals: &Refusals, taken: Taken) {
    let info = taken.info.clone();
    info.set_flag(ClientFlags::REPLICA, true);
    let name = format!("replica {}:{}", info.addr, taken.psync.announced.port);
    match Feeder::new(server, taken) {
        Ok(mut feeder) => {
            server.replication.add_replica(feeder.replica.clone());
            server.engine.binlog.watch(feeder.watcher.clone());
            let Err(end) = feeder.feed(turns);
            match &end {
                End::Stopping | End::Served => log::debug!("{name}: {end}"),
                End::Beyond(end) if !refusals.is_news(&feeder.replica, end) => {
                    log::debug!("{name}: {end}");
                }
                _ => log::warn!("{name}: {end}"),
            }
            server.end_replica_memory(&feeder.replica);
            server.engine.binlog.unwatch(&feeder.watcher);
            server.replication.remove_replica(&feeder.replica);
        }
        Err(error) => log::warn!("{name}: {error}"),
    }
    server.clients.remove(info.id);
}

pub(super) struct Feeder<'s> {
    pub(super) server: &'s Arc<Server>,
    replica: Arc<Replica>,
    pub(super) psync: Psync,
    databases: Databases,
    socket: Socket,
    poll: Poll,
    events: Events,
    watcher: Arc<Watcher>,
    /// Of the history that is fed.
    history_version: u64,
    history_id: String,
    pub(super) out: Vec<u8>,
    sent: usize,
    /// While more bytes wait to be sent, nothing is added to them.
    pause: usize,
    /// Memory of `out` as others know it.
    noted: usize,
    input: Vec<u8>,
    parser: Parser,
    /// Position of the next row to send.
    next: Position,
    /// Bytes of that row that the replica has already: only Redis' dialect sends
    /// parts of rows.
    skip: u64,
    /// How often the replica said how far it is.
    acks: u64,
    heard: Instant,
    /// When its socket last took something.
    took: Instant,
    /// When nothing waited to be sent.
    clear: Instant,
    said: Instant,
    /// When it was last told how far the binlog goes.
    told: Instant,
}

impl<'s> Feeder<'s> {
    fn new(server: &'s Arc<Server>, mut taken: Taken) -> io::Result<Feeder<'s>> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let interest = Interest::READABLE | Interest::WRITABLE;
        match &mut taken.socket {
            Socket::Tcp(s) => {
                if let Err(error) = s.set_nodelay(!server.config.load().repl_disable_tcp_nodelay) {
                    log::debug!("TCP_NODELAY: {error}");
                }
                poll.registry().register(s, SOCKET, interest)?;
            }
            Socket::Unix(s) => poll.registry().register(s, SOCKET, interest)?,
        }
        let wake = move |waker: &Waker| {
            if let Err(error) = waker.wake() {
                log::error!("cannot wake a feeder: {error}");
            }
        };
        let watching = waker.clone();
        // What it held as a client is in `taken`, or gone.
        for held in [&taken.info.query_bytes, &taken.info.query_capacity] {
            held.store(0, Ordering::Relaxed);
        }
        let replica = Replica::new(
            taken.info,
            &taken.psync.announced,
            clock::unix_ms(),
            Box::new(move || wake(&waker)),
        );
        Ok(Feeder {
            server,
            replica: Arc::new(replica),
            psync: taken.psync,
            databases: Databases::ANY,
            socket: taken.socket,
            poll,
            events: Events::with_capacity(8),
            watcher: Watcher::new(Box::new(move || wake(&watching))),
            history_version: server.engine.history_version(),
            history_id: String::new(),
            out: Vec::new(),
            sent: 0,
            pause: server.replica_output_bytes(),
            noted: 0,
            input: taken.input,
            parser: Parser::new(),
            next: Position::NONE,
            skip: 0,
            acks: 0,
            heard: Instant::now(),
            took: Instant::now(),
            clear: Instant::now(),
            said: Instant::now(),
            told: Instant::now(),
        })
    }

    fn feed(&mut self, turns: &Turns) -> Result<std::convert::Infallible, End> {
        self.databases = Databases::of(self.server, &self.replica, &self.psync.announced);
        let hold = match self.go_on()? {
            Some(hold) => hold,
            None => self.begin_anew(turns)?,
        };
        self.drain()?;
        if self.psync.announced.rdb_only {
            return Err(End::Served);
        }
        // Nothing had to be heard until now.
        self.heard = Instant::now();
        self.replica.set_feeding(Feeding::Online);
        let wants_pings = &self.replica.wants_pings;
        wants_pings.store(self.is_redis(), Ordering::Relaxed);
        self.stream(&hold)
    }

    /// Whether the replica speaks Redis' dialect.
    fn is_redis(&self) -> bool {
        self.psync.announced.format.is_none()
    }

    /// Goes on where the replica is, if that is possible.
    fn go_on(&mut self) -> Result<Option<Hold>, End> {
        let engine = &self.server.engine;
        let stats = &self.server.stats;
        let Some(next) = self.psync.next.filter(|_| self.psync.id != "?") else {
            return Ok(None);
        };
        let (hold, range) = engine.hold_binlog(next);
        let history = engine.history();
        let known = history.contains(&self.psync.id, next, range.next_position);
        let row = engine
            .row_at(next)?
            .filter(|start| range.first_position <= *start && (*start == next || self.is_redis()));
        let (true, Some(row)) = (known, row) else {
            log::info!(
                "replica {}: cannot go on at {next} of {}: {}",
                self.replica.client.addr,
                self.psync.id,
                match known {
                    true => "the binlog begins later",
                    false => "this is another history",
                }
            );
            stats.sync_partial_err.add(1);
            return Ok(None);
        };
        let mut beyond = Ok(());
        engine.read_binlog(row, |_, first| {
            beyond = self
                .databases
                .check_row(engine.config.databases, first.bytes);
            false
        })?;
        if let Err(beyond) = beyond {
            stats.sync_partial_err.add(1);
            return Err(self.refuse(beyond));
        }
        stats.sync_partial_ok.add(1);
        log::info!("replica {}: goes on at {next}", self.replica.client.addr);
        self.say(format!("+CONTINUE {}\r\n", history.id).as_bytes());
        self.history_id = history.id;
        self.next = row;
        self.skip = next.since(row);
        Ok(Some(hold))
    }

    /// Tells a replica why it is not fed; returns that. By this code a Redis knows that
    /// it may go on where it is another time.
    fn refuse(&mut self, beyond: Beyond) -> End {
        let line = format!("-NOMASTERLINK this replica is not fed: {beyond}\r\n");
        self.say(line.as_bytes());
        match self.drain() {
            Ok(()) => beyond.into(),
            Err(end) => end,
        }
    }

    /// Sends the whole data set, once it is this replica's turn.
    fn begin_anew(&mut self, turns: &Turns) -> Result<Hold, End> {
        let server = self.server;
        let engine = &server.engine;
        server.stats.sync_full.add(1);
        let turn = turns.ask();
        while !turn.has_come() {
            if self.said.elapsed() >= TELL_EVERY {
                self.say(b"\n");
            }
            self.turn()?;
            self.sleep(NAP)?;
        }
        let (hold, _) = engine.hold_binlog(Position::NONE);
        let snapshot = engine.snapshot()?;
        // What the snapshot shows must not be taken back by a crash.
        engine.make_durable()?;
        let used = snapshot.dbs().filter(|(_, counts)| counts.keys > 0);
        if let Some((last, _)) = used.max_by_key(|(db, _)| *db)
            && let Err(beyond) = self.databases.check(last)
        {
            return Err(self.refuse(beyond));
        }
        self.replica.set_feeding(Feeding::Snapshot);
        let set = &snapshot.data_set;
        self.next = set.position;
        hold.advance(set.position);
        let offset = set.position.offset();
        log::info!(
            "replica {}: gets {} keys as of {}",
            self.replica.client.addr,
            snapshot.keys,
            set.position
        );
        self.history_id.clone_from(&set.history_id);
        if !self.psync.is_sync {
            self.say(format!("+FULLRESYNC {} {offset}\r\n", set.history_id).as_bytes());
        }
        if self.is_redis() {
            redis::send_data_set(self, &snapshot)?;
            // It may take long until the replica has loaded that.
            drop((snapshot, turn));
            redis::wait_until_loaded(self)?;
            return Ok(hold);
        }
        wire::snapshot_begin(&mut self.out, set, snapshot.keys);
        fail_point("feed-snapshot")?;
        for (_, text) in &snapshot.libraries {
            wire::snapshot_library(&mut self.out, text);
            self.pass_on()?;
        }
        snapshot.chunks(|db: DbIndex, rows: &[u8]| {
            wire::snapshot_rows(&mut self.out, db, rows);
            fail_point("feed-chunk")?;
            self.pass_on()
        })?;
        wire::snapshot_complete(&mut self.out, set, snapshot.keys);
        fail_point("feed-complete")?;
        Ok(hold)
    }

    /// Sends all that there is.
    fn drain(&mut self) -> Result<(), End> {
        self.turn()?;
        while self.unsent() > 0 {
            self.sleep(NAP)?;
            self.turn()?;
        }
        Ok(())
    }

    /// Returns once all is sent and the replica has said something after that.
    pub(super) fn wait_for_ack(&mut self) -> Result<(), End> {
        self.drain()?;
        let before = self.acks;
        while self.acks == before {
            self.sleep(NAP)?;
            self.turn()?;
        }
        Ok(())
    }

    /// Sends until there is room for more.
    pub(super) fn pass_on(&mut self) -> Result<(), End> {
        self.turn()?;
        while self.unsent() > self.pause {
            self.sleep(NAP)?;
            self.turn()?;
        }
        Ok(())
    }

    fn stream(&mut self, hold: &Hold) -> Result<std::convert::Infallible, End> {
        let ping = || Duration::from_secs(self.server.config.load().repl_ping_replica_period_s);
        let mut ping_every = ping();
        loop {
            self.turn()?;
            self.mind_the_history()?;
            let more = self.unsent() <= self.pause && self.read_binlog()?;
            self.pass_messages();
            hold.advance(match self.psync.is_sync {
                true => self.next,
                false => self.replica.acked.load(Ordering::Relaxed).min(self.next),
            });
            let is_due = self.said.elapsed() >= ping_every;
            let lags = more || self.unsent() > self.pause;
            if is_due || lags && !self.is_redis() && self.told.elapsed() >= TELL_EVERY {
                self.keep_alive(is_due)?;
                ping_every = ping();
            }
            // Behind all that there is: the answer is about that. In Redis' dialect
            // this would count as a part of the stream; but there a replica says
            // how far it is once a second.
            if !more && !self.is_redis() && self.replica.ask.swap(false, Ordering::AcqRel) {
                self.say_command(&[b"REPLCONF", b"GETACK", b"*"]);
            }
            if more || self.flush()? {
                continue;
            }
            self.watcher.set_asleep(true);
            let grown = self.server.engine.binlog.range().next_position != self.next;
            let failed = self.server.engine.has_failed();
            if !grown || failed || self.unsent() > self.pause {
                self.sleep(NAP.min(ping_every))?;
            }
            self.watcher.set_asleep(false);
        }
    }

    /// Adds messages whose turn it is. In Redis' dialect they would count as a part
    /// of the stream.
    fn pass_messages(&mut self) {
        while self.unsent() <= self.pause
            && let Some(message) = self.replica.next_message(self.next)
        {
            if !self.is_redis() {
                wire::publish(&mut self.out, &message);
            }
        }
    }

    /// Adds rows that have come since; says whether there may be more.
    fn read_binlog(&mut self) -> Result<bool, End> {
        let engine = &self.server.engine;
        let end = engine.binlog.range().next_position;
        if end == self.next {
            return Ok(false);
        }
        // Up to `end` all is of the history that is known here, or of one that
        // the next line tells of: a history is shown before its first row is.
        self.mind_the_history()?;
        match engine.make_durable() {
            // Nobody may have it yet; the replica has nothing to do with that.
            Err(_) if engine.has_failed() => return Ok(false),
            done => done?,
        }
        let is_redis = self.is_redis();
        let (databases, most) = (&self.databases, engine.config.databases);
        let (out, next, skip) = (&mut self.out, &mut self.next, &mut self.skip);
        let full = out.len() + TURN_BYTES.min(self.pause);
        let mut gap = false;
        let mut sendable = Ok(());
        let before = (out.len(), *next, *skip);
        engine.read_binlog(*next, |position, row| {
            gap = position != *next;
            if gap || position >= end {
                return false;
            }
            sendable = databases.check_row(most, row.bytes);
            if sendable.is_err() {
                return false;
            }
            match is_redis {
                true => out.extend_from_slice(row.bytes.get(*skip as usize..).unwrap_or_default()),
                false => wire::row(out, position, &row),
            }
            *skip = 0;
            *next = position + row.bytes.len() as u64;
            out.len() < full
        })?;
        if engine.history_version() != self.history_version {
            // Another data set may have come meanwhile, and rows of it.
            out.truncate(before.0);
            (*next, *skip) = (before.1, before.2);
            return Ok(true);
        }
        if let Err(beyond) = sendable {
            self.drain()?;
            return Err(beyond.into());
        }
        if gap
            || self.next < end
                && out.len() < full
                && engine.binlog.range().first_position > self.next
        {
            return Err(End::Trimmed);
        }
        self.said = Instant::now();
        fail_point("feed-rows")?;
        Ok(self.next < end)
    }

    /// Says how far the binlog goes, as the replica lags or nothing was said for a while
    /// (`is_silent`). Then a ping is logged for a Redis: it counts every byte as one of the
    /// stream, an empty line as well, so that a replica has nothing to say to it of its own.
    fn keep_alive(&mut self, is_silent: bool) -> Result<(), End> {
        if is_silent && self.replica.wants_pings.load(Ordering::Relaxed) {
            redis::log_ping(&self.server.engine)?;
        }
        if !self.is_redis() {
            let now_ms = clock::unix_ms().to_string();
            let end = self.server.engine.binlog.range().next_position.to_string();
            self.say_command(&[b"REPL_PING", end.as_bytes(), now_ms.as_bytes()]);
            self.told = Instant::now();
        }
        self.said = Instant::now();
        Ok(())
    }

    /// Tells the replica if the history goes on under another id. One that does
    /// not contain what was sent ends the feeding.
    fn mind_the_history(&mut self) -> Result<(), End> {
        let engine = &self.server.engine;
        let version = engine.history_version();
        if version == self.history_version {
            return Ok(());
        }
        let history = engine.history();
        let end = engine.binlog.range().next_position;
        let renamed = history.id != self.history_id;
        if !history.contains(&self.history_id, self.next, end) || renamed && self.is_redis() {
            // In Redis' dialect only the answer to PSYNC tells of a new name.
            return Err(End::History);
        }
        self.history_version = version;
        if renamed {
            self.say_command(&[b"REPL_HISTORY", history.id.as_bytes()]);
            self.history_id = history.id;
        }
        Ok(())
    }

    /// Sends, listens, and looks whether to go on at all.
    fn turn(&mut self) -> Result<(), End> {
        self.pause = self.server.replica_output_bytes();
        self.flush()?;
        self.listen()?;
        if self.server.replication.desired().stop {
            return Err(End::Stopping);
        }
        if self.replica.client.kill.load(Ordering::Acquire) {
            return Err(End::Killed);
        }
        match self.is_silent() {
            true => Err(End::Silent),
            false => Ok(()),
        }
    }

    /// Whether there was no sign of life for too long. As long as it gets the data
    /// set that is that it takes it: a Redis says nothing before it has all. After
    /// that it is what it says; who said SYNC never says anything, and has to take what is
    /// sent.
    fn is_silent(&self) -> bool {
        let timeout = Duration::from_secs(self.server.config.load().repl_timeout_s);
        let since = match self.replica.feeding() {
            Feeding::Online if self.psync.is_sync && self.unsent() == 0 => return false,
            Feeding::Online if self.psync.is_sync => self.took.max(self.clear),
            Feeding::Online => self.heard,
            _ if self.unsent() > 0 => self.took,
            _ => self.took.max(self.heard),
        };
        since.elapsed() > timeout
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.said = Instant::now();
    }

    fn say_command(&mut self, args: &[&[u8]]) {
        command(&mut self.out, args);
        self.said = Instant::now();
    }

    fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends what the socket takes; says whether all is sent and something was.
    fn flush(&mut self) -> Result<bool, End> {
        let mut any = false;
        while self.sent < self.out.len() {
            let waiting = self.out.get(self.sent..).unwrap_or_default();
            let sent = match &mut self.socket {
                Socket::Tcp(s) => s.write(waiting),
                Socket::Unix(s) => s.write(waiting),
            };
            match sent {
                Ok(0) => return Err(End::Closed),
                Ok(n) => {
                    self.sent += n;
                    self.took = Instant::now();
                    let stats = &self.server.stats;
                    stats.net_output_bytes.add(n as u64);
                    stats.net_repl_output_bytes.add(n as u64);
                    any = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let info = &self.replica.client;
        if self.sent == self.out.len() {
            self.clear = Instant::now();
            self.out.clear();
            self.out.shrink_to(2 * self.pause);
            self.sent = 0;
        } else if self.sent >= self.pause {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        let waiting = self.out.len() - self.sent;
        info.output_bytes.store(waiting, Ordering::Relaxed);
        let capacity = self.out.capacity();
        info.output_capacity.store(capacity, Ordering::Relaxed);
        if self.noted != capacity {
            self.noted = capacity;
            self.server.note_replica_memory(&self.replica, capacity);
        }
        Ok(any && waiting == 0)
    }

    fn sleep(&mut self, longest: Duration) -> Result<(), End> {
        match self.poll.poll(&mut self.events, Some(longest)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what the replica says.
    fn listen(&mut self) -> Result<(), End> {
        let mut buffer = [0; 4096];
        loop {
            let n = match &mut self.socket {
                Socket::Tcp(s) => s.read(&mut buffer),
                Socket::Unix(s) => s.read(&mut buffer),
            };
            match n {
                Ok(0) => return Err(End::Closed),
                Ok(n) => {
                    let now_ms = clock::unix_ms();
                    self.heard = Instant::now();
                    self.replica
                        .client
                        .active_ms
                        .store(now_ms, Ordering::Relaxed);
                    self.server.stats.net_input_bytes.add(n as u64);
                    self.input
                        .extend_from_slice(buffer.get(..n).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            self.understand()?;
        }
        self.understand()
    }

    fn understand(&mut self) -> Result<(), End> {
        let limits = Limits {
            max_bulk_len: MAX_INPUT,
            authenticated: true,
        };
        loop {
            match self.parser.advance(&self.input, &limits) {
                Ok(Progress::Complete { consumed }) => {
                    let args = self.parser.args(&self.input);
                    let said = wire::from_replica(&args);
                    let relays = wire::relays_of_replica(&args);
                    drop(args);
                    if let Some(so) = relays {
                        self.replica.wants_pings.store(so, Ordering::Relaxed);
                    }
                    if let Some(ack) = said {
                        self.acks += 1;
                        // It cannot have more than it was sent.
                        let sent = (self.next + self.skip).max(Position::FIRST);
                        if ack.applied.max(ack.synced.unwrap_or_default()) > sent {
                            return Err(End::Malformed);
                        }
                        let replica = &self.replica;
                        replica.acked.fetch_max(ack.applied, Ordering::AcqRel);
                        if let Some(synced) = ack.synced {
                            replica.synced.fetch_max(synced, Ordering::AcqRel);
                        }
                        replica.acked_ms.store(clock::unix_ms(), Ordering::Relaxed);
                        self.server.end_ack_waits();
                    }
                    self.parser.reset();
                    self.input.drain(..consumed);
                }
                Ok(Progress::Incomplete) if self.input.len() <= MAX_INPUT => return Ok(()),
                Ok(Progress::Incomplete) | Err(_) => return Err(End::Malformed),
            }
        }
    }
}
