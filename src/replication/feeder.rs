//! Feeds one replica: the data set, if a full sync is needed, then the binlog.
//!
//! A replica that does not announce Kedis' row format is fed in the Redis dialect
//! ([`redis`]), and receives no DB that it lacks ([`super::databases`]).
//!
//! Only data that a crash of this process cannot take back are sent (I1). If the binlog
//! loses the position meanwhile, feeding ends: the replica reconnects and gets a full
//! sync.

mod redis;

use super::databases::{Databases, MissingDb, Refusals};
use super::failover::{self, TakeOver};
use super::turns::Turns;
use super::wire;
use crate::encoding::binlog::Position;
use crate::resp::encode::command;
use crate::resp::{Limits, Parser, Progress};
use crate::state::Server;
use crate::state::clients::ClientFlags;
use crate::state::replication::{Feeding, Psync, Replica, Taken};
use crate::state::socket::Socket;
use crate::storage::engine::binlog::{Hold, Watcher};
use crate::storage::{DbIndex, StorageError, fail_point};
use crate::sys::clock;
use crate::types::OpError;
use mio::{Events, Poll, Token, Waker};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SOCKET: Token = Token(0);
const WAKE: Token = Token(1);
/// Bytes of the binlog read per turn.
const TURN_BYTES: usize = 512 << 10;
/// Longest sleep.
const NAP: Duration = Duration::from_millis(250);
/// Interval of the newlines to a replica that waits for the data set, and of the
/// binlog's end to a replica that lags.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Most bytes of a replica's unparsed input; its commands are short.
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
    #[error("it has received what it asked for")]
    Served,
    #[error("it closed the connection")]
    Closed,
    #[error("it neither acknowledged nor accepted anything for repl-timeout seconds")]
    Silent,
    #[error("it sent a command that a replica does not send")]
    Malformed,
    #[error(transparent)]
    MissingDb(#[from] MissingDb),
    #[error("the binlog no longer holds its position")]
    Trimmed,
    #[error("this server's history has changed")]
    History,
    #[error("the data set could not be read before; DEBUG KEDIS-CHECK says what is damaged")]
    Unreadable,
    #[error("it hands over, but this server stops or follows another master now")]
    NotTaken,
    #[error("its connection was killed")]
    Killed,
    #[error("this server stops")]
    Stopping,
}

/// Why a replica cannot continue from its position.
#[derive(Debug, thiserror::Error)]
enum NoPartialSync {
    #[error("this is another history")]
    OtherHistory,
    #[error("the binlog begins later")]
    Trimmed,
    #[error("a row of the binlog after it cannot be read")]
    Unreadable,
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Feeds until the connection breaks.
pub(super) fn run(server: &Arc<Server>, turns: &Turns, refusals: &Refusals, taken: Taken) {
    let info = taken.info.clone();
    info.set_flag(ClientFlags::REPLICA, true);
    let name = format!("replica {}:{}", info.addr, taken.psync.announced.port);
    match Feeder::new(server, taken) {
        Ok(mut feeder) => {
            server.engine.binlog.watch(feeder.watcher.clone());
            let Err(end) = feeder.feed(turns);
            match &end {
                End::Stopping | End::Served | End::Unreadable => log::debug!("{name}: {end}"),
                End::MissingDb(end) if !refusals.should_log(&feeder.replica, end) => {
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
    /// Version of the history that is fed.
    history_version: u64,
    history_id: String,
    pub(super) out: Vec<u8>,
    sent: usize,
    /// No more output is added while more than this many bytes are unsent.
    pause: usize,
    /// Memory of `out` as last reported.
    accounted: usize,
    input: Vec<u8>,
    parser: Parser,
    /// Position of the next row to send.
    next: Position,
    /// Bytes of that row that the replica has already; only the Redis dialect sends
    /// parts of rows.
    skip: u64,
    /// Number of acknowledgements received.
    acks: u64,
    received_at: Instant,
    /// When the socket last accepted bytes.
    accepted_at: Instant,
    /// When all output was last sent.
    drained_at: Instant,
    queued_at: Instant,
    /// When the replica was last sent the end of the binlog.
    reported_at: Instant,
    /// The nodes of the cluster that it was told of, and when that was last looked at.
    told: (String, Option<Instant>),
}

impl<'s> Feeder<'s> {
    fn new(server: &'s Arc<Server>, mut taken: Taken) -> io::Result<Feeder<'s>> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let nodelay = !server.config.load().repl_disable_tcp_nodelay;
        if let Some(tcp) = taken.socket.tcp()
            && let Err(error) = tcp.set_nodelay(nodelay)
        {
            log::debug!("TCP_NODELAY: {error}");
        }
        taken.socket.register(poll.registry(), SOCKET)?;
        let wake = move |waker: &Waker| {
            if let Err(error) = waker.wake() {
                log::error!("cannot wake a feeder: {error}");
            }
        };
        let watching = waker.clone();
        // The memory of its time as a client is in `taken`, or released.
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
            accounted: 0,
            input: taken.input,
            parser: Parser::new(),
            next: Position::NONE,
            skip: 0,
            acks: 0,
            received_at: Instant::now(),
            accepted_at: Instant::now(),
            drained_at: Instant::now(),
            queued_at: Instant::now(),
            reported_at: Instant::now(),
            told: (String::new(), None),
        })
    }

    fn feed(&mut self, turns: &Turns) -> Result<std::convert::Infallible, End> {
        if self.psync.takes_over {
            self.take_over()?;
        }
        self.databases = Databases::of(self.server, &self.replica, &self.psync.announced);
        let stats = &self.server.stats;
        let hold = self.partial_sync()?;
        if hold.is_none() && turns.are_paused() {
            return Err(self.refuse(End::Unreadable));
        }
        // The statistics have the sync before INFO shows the replica.
        match hold {
            Some(_) => stats.sync_partial_ok.add(1),
            None => stats.sync_full.add(1),
        }
        self.server.replication.add_replica(self.replica.clone());
        let hold = match hold {
            Some(hold) => hold,
            None => {
                let done = self.full_sync(turns);
                match &done {
                    Ok(_) => turns.note_read(true),
                    Err(End::Storage(error)) if error.is_damage() => turns.note_read(false),
                    Err(_) => {}
                }
                done?
            }
        };
        self.drain()?;
        if self.psync.announced.rdb_only {
            return Err(End::Served);
        }
        // Acknowledgements count from now on.
        self.received_at = Instant::now();
        self.replica.set_feeding(Feeding::Online);
        let wants_pings = &self.replica.wants_pings;
        wants_pings.store(self.is_redis(), Ordering::Relaxed);
        self.stream(&hold)
    }

    /// Makes this server a master because its master, the replica to be fed, has asked for that. If
    /// it no longer does, nothing changes.
    fn take_over(&mut self) -> Result<(), End> {
        let server = self.server;
        let take_over = TakeOver::begin(server, &self.psync);
        while take_over.is_behind(server) {
            self.step()?;
            self.sleep(failover::LOOK_EVERY)?;
        }
        self.step()?;
        if !take_over.finish(server)? {
            return Err(End::NotTaken);
        }
        self.history_version = server.engine.history_version();
        Ok(())
    }

    /// Whether the replica is fed in the Redis dialect.
    fn is_redis(&self) -> bool {
        self.psync.announced.format.is_none()
    }

    /// Partial sync from the replica's position; `None` if that is impossible.
    fn partial_sync(&mut self) -> Result<Option<Hold>, End> {
        let engine = &self.server.engine;
        let stats = &self.server.stats;
        let Some(next) = self.psync.next.filter(|_| self.psync.id != "?") else {
            return Ok(None);
        };
        let (hold, range) = engine.hold_binlog(next);
        let history = engine.history();
        let begin = match history.contains(&self.psync.id, next, range.next_position) {
            true => self.begin_at(next, range.first_position),
            false => Err(NoPartialSync::OtherHistory),
        };
        let (row, missing) = match begin {
            Ok(begin) => begin,
            Err(NoPartialSync::Storage(error)) if !error.is_damage() => return Err(error.into()),
            Err(reason) => {
                let level = match reason {
                    NoPartialSync::OtherHistory | NoPartialSync::Trimmed => log::Level::Info,
                    NoPartialSync::Unreadable | NoPartialSync::Storage(_) => log::Level::Warn,
                };
                let (addr, id) = (&self.replica.client.addr, &self.psync.id);
                log::log!(
                    level,
                    "replica {addr}: no partial sync from {next} of {id}: {reason}"
                );
                stats.sync_partial_err.add(1);
                return Ok(None);
            }
        };
        if let Err(missing) = missing {
            stats.sync_partial_err.add(1);
            return Err(self.refuse(missing.into()));
        }
        log::info!(
            "replica {}: partial sync from {next}",
            self.replica.client.addr
        );
        self.queue(format!("+CONTINUE {}\r\n", history.id).as_bytes());
        self.history_id = history.id;
        self.next = row;
        self.skip = next.since(row);
        Ok(Some(hold))
    }

    /// The row that a partial sync from `next` begins with, and whether the replica has its DB.
    fn begin_at(
        &self,
        next: Position,
        first: Position,
    ) -> Result<(Position, Result<(), MissingDb>), NoPartialSync> {
        let engine = &self.server.engine;
        if engine.is_unreadable_from(next)? {
            return Err(NoPartialSync::Unreadable);
        }
        let row = engine
            .row_at(next)?
            .filter(|start| first <= *start && (*start == next || self.is_redis()))
            .ok_or(NoPartialSync::Trimmed)?;
        let mut missing = Ok(());
        engine.read_binlog(row, |_, first| {
            missing = self
                .databases
                .check_row(engine.config.databases, first.bytes);
            false
        })?;
        Ok((row, missing))
    }

    /// Sends the reason why the replica is not fed, and returns it. With this error code
    /// a Redis keeps its position for a later partial sync.
    fn refuse(&mut self, reason: End) -> End {
        let line = format!("-NOMASTERLINK this replica is not fed: {reason}\r\n");
        self.queue(line.as_bytes());
        match self.drain() {
            Ok(()) => reason,
            Err(end) => end,
        }
    }

    /// Full sync: sends the data set once it is this replica's turn.
    fn full_sync(&mut self, turns: &Turns) -> Result<Hold, End> {
        let server = self.server;
        let engine = &server.engine;
        let turn = turns.ask();
        while !turn.has_come() {
            if self.queued_at.elapsed() >= REPORT_EVERY {
                self.queue(b"\n");
            }
            self.step()?;
            self.sleep(NAP)?;
        }
        let (hold, _) = engine.hold_binlog(Position::NONE);
        let snapshot = engine.snapshot()?;
        // A crash must not take back what the snapshot contains.
        engine.make_durable()?;
        let used = snapshot.dbs().filter(|(_, counts)| counts.keys > 0);
        if let Some((last, _)) = used.max_by_key(|(db, _)| *db)
            && let Err(missing) = self.databases.check(last)
        {
            return Err(self.refuse(missing.into()));
        }
        self.replica.set_feeding(Feeding::Snapshot);
        let set = &snapshot.data_set;
        self.next = set.position;
        hold.advance(set.position);
        let offset = set.position.offset();
        log::info!(
            "replica {}: full sync of {} keys as of {}",
            self.replica.client.addr,
            snapshot.keys,
            set.position
        );
        self.history_id.clone_from(&set.history_id);
        if !self.psync.is_sync {
            self.queue(format!("+FULLRESYNC {} {offset}\r\n", set.history_id).as_bytes());
        }
        if self.is_redis() {
            redis::send_data_set(self, &snapshot)?;
            // The replica may take long to load the data set.
            drop((snapshot, turn));
            redis::wait_until_loaded(self)?;
            return Ok(hold);
        }
        wire::snapshot_begin(&mut self.out, set, snapshot.keys);
        fail_point("feed-snapshot")?;
        for (_, text) in &snapshot.libraries {
            wire::snapshot_library(&mut self.out, text);
            self.send_until_room()?;
        }
        snapshot.chunks(|db: DbIndex, rows: &[u8]| {
            wire::snapshot_rows(&mut self.out, db, rows);
            fail_point("feed-chunk")?;
            self.send_until_room()
        })?;
        wire::snapshot_complete(&mut self.out, set, snapshot.keys);
        fail_point("feed-complete")?;
        Ok(hold)
    }

    /// Waits until all output is sent.
    fn drain(&mut self) -> Result<(), End> {
        self.step()?;
        while self.unsent() > 0 {
            self.sleep(NAP)?;
            self.step()?;
        }
        Ok(())
    }

    /// Waits until all output is sent and the replica has acknowledged after that.
    pub(super) fn wait_for_ack(&mut self) -> Result<(), End> {
        self.drain()?;
        let before = self.acks;
        while self.acks == before {
            self.sleep(NAP)?;
            self.step()?;
        }
        Ok(())
    }

    /// Sends until there is room for more output.
    pub(super) fn send_until_room(&mut self) -> Result<(), End> {
        self.step()?;
        while self.unsent() > self.pause {
            self.sleep(NAP)?;
            self.step()?;
        }
        Ok(())
    }

    fn stream(&mut self, hold: &Hold) -> Result<std::convert::Infallible, End> {
        let ping = || Duration::from_secs(self.server.config.load().repl_ping_replica_period_s);
        let mut ping_every = ping();
        loop {
            self.step()?;
            self.check_history()?;
            let more = self.unsent() <= self.pause && self.read_binlog()?;
            self.queue_messages();
            self.tell_nodes();
            hold.advance(match self.psync.is_sync {
                true => self.next,
                false => self.replica.acked.load(Ordering::Relaxed).min(self.next),
            });
            let is_due = self.queued_at.elapsed() >= ping_every;
            let lags = more || self.unsent() > self.pause;
            if is_due || lags && !self.is_redis() && self.reported_at.elapsed() >= REPORT_EVERY {
                self.keep_alive(is_due)?;
                ping_every = ping();
            }
            // Sent after all rows, since the answer refers to them. In the Redis dialect
            // it would count as a part of the stream; there a replica acknowledges once
            // a second anyway.
            if !more && !self.is_redis() && self.replica.ask.swap(false, Ordering::AcqRel) {
                self.queue_command(&[b"REPLCONF", b"GETACK", b"*"]);
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

    /// Appends messages that are due at this position. In the Redis dialect they would
    /// count as a part of the stream.
    fn queue_messages(&mut self) {
        while self.unsent() <= self.pause
            && let Some(message) = self.replica.next_message(self.next)
        {
            if !self.is_redis() {
                wire::publish(&mut self.out, &message);
            }
        }
    }

    /// Tells a node of the cluster of all others, if that has changed.
    fn tell_nodes(&mut self) {
        let (told, at) = &self.told;
        let is_due = at.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if self.psync.announced.node.is_none() || self.is_redis() || !is_due {
            return;
        }
        let text = match self.server.config.load().cluster_enabled {
            true => self.server.cluster_nodes(None).text(),
            false => String::new(),
        };
        if text != *told {
            self.queue_command(&[b"REPL_NODES", text.as_bytes()]);
        }
        self.told = (text, Some(Instant::now()));
    }

    /// Appends rows of the binlog; returns whether there may be more.
    fn read_binlog(&mut self) -> Result<bool, End> {
        let engine = &self.server.engine;
        let end = engine.binlog.range().next_position;
        if end == self.next {
            return Ok(false);
        }
        // All rows up to `end` belong to the known history, or to one that
        // `check_history` finds: a history becomes visible before its first row.
        self.check_history()?;
        match engine.make_durable() {
            // The rows are not durable, so no replica may have them yet. The error is
            // reported elsewhere.
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
        let read = engine.read_binlog(*next, |position, row| {
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
        });
        if engine.history_version() != self.history_version {
            // Meanwhile another data set may have been installed, and rows of it read.
            out.truncate(before.0);
            (*next, *skip) = (before.1, before.2);
            return Ok(true);
        }
        if let Err(error) = read {
            if error.is_damage() {
                // The replica comes again, and would end here again.
                engine.binlog.note_unreadable(self.next);
            }
            return Err(error.into());
        }
        if let Err(missing) = sendable {
            self.drain()?;
            return Err(missing.into());
        }
        if gap {
            engine.binlog.note_unreadable(self.next);
        }
        if gap
            || self.next < end
                && out.len() < full
                && engine.binlog.range().first_position > self.next
        {
            return Err(End::Trimmed);
        }
        self.queued_at = Instant::now();
        fail_point("feed-rows")?;
        Ok(self.next < end)
    }

    /// Sends the end of the binlog, if the replica lags or nothing was sent for a while
    /// (`is_silent`). For a Redis a ping is written to the binlog instead: a Redis
    /// counts every byte as part of the stream, an empty line as well, so nothing may be
    /// sent to one replica alone.
    fn keep_alive(&mut self, is_silent: bool) -> Result<(), End> {
        if is_silent && self.replica.wants_pings.load(Ordering::Relaxed) {
            redis::log_ping(&self.server.engine)?;
        }
        if !self.is_redis() {
            let now_ms = clock::unix_ms().to_string();
            let end = self.server.engine.binlog.range().next_position.to_string();
            self.queue_command(&[b"REPL_PING", end.as_bytes(), now_ms.as_bytes()]);
            self.reported_at = Instant::now();
        }
        self.queued_at = Instant::now();
        Ok(())
    }

    /// Sends the new id if the history was renamed. Feeding ends if the history does not
    /// contain what was sent.
    fn check_history(&mut self) -> Result<(), End> {
        let engine = &self.server.engine;
        let version = engine.history_version();
        if version == self.history_version {
            return Ok(());
        }
        let history = engine.history();
        let end = engine.binlog.range().next_position;
        let renamed = history.id != self.history_id;
        if !history.contains(&self.history_id, self.next, end) || renamed && self.is_redis() {
            // In the Redis dialect only the answer to PSYNC carries a new id.
            return Err(End::History);
        }
        self.history_version = version;
        if renamed {
            self.queue_command(&[b"REPL_HISTORY", history.id.as_bytes()]);
            self.history_id = history.id;
        }
        Ok(())
    }

    /// Sends, receives, and checks whether to continue.
    fn step(&mut self) -> Result<(), End> {
        self.pause = self.server.replica_output_bytes();
        self.flush()?;
        self.read_input()?;
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

    /// Whether the replica has timed out. During the full sync the replica must accept
    /// bytes: a Redis sends nothing before it has everything. After that it must
    /// acknowledge. A replica that asked with SYNC never acknowledges, and only has to
    /// accept what is sent.
    fn is_silent(&self) -> bool {
        let timeout = Duration::from_secs(self.server.config.load().repl_timeout_s);
        let since = match self.replica.feeding() {
            Feeding::Online if self.psync.is_sync && self.unsent() == 0 => return false,
            Feeding::Online if self.psync.is_sync => self.accepted_at.max(self.drained_at),
            Feeding::Online => self.received_at,
            _ if self.unsent() > 0 => self.accepted_at,
            _ => self.accepted_at.max(self.received_at),
        };
        since.elapsed() > timeout
    }

    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.queued_at = Instant::now();
    }

    fn queue_command(&mut self, args: &[&[u8]]) {
        command(&mut self.out, args);
        self.queued_at = Instant::now();
    }

    fn unsent(&self) -> usize {
        // What the socket has taken and not passed on is bounded, but not sent.
        self.out.len() - self.sent + usize::from(self.socket.owes())
    }

    /// Sends what the socket accepts; returns whether something was sent and nothing is
    /// left.
    fn flush(&mut self) -> Result<bool, End> {
        let mut any = false;
        if self.socket.owes() {
            match self.socket.flush() {
                Ok(()) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        while self.sent < self.out.len() {
            let waiting = self.out.get(self.sent..).unwrap_or_default();
            match self.socket.write(waiting) {
                Ok(0) => return Err(End::Closed),
                Ok(n) => {
                    self.sent += n;
                    self.accepted_at = Instant::now();
                    let stats = &self.server.stats;
                    stats.net_output_bytes.add(n as u64);
                    stats.net_repl_output_bytes.add(n as u64);
                    let total = &self.replica.client.net_out_bytes;
                    total.fetch_add(n as u64, Ordering::Relaxed);
                    any = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let info = &self.replica.client;
        if self.sent == self.out.len() {
            self.drained_at = Instant::now();
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
        if self.accounted != capacity {
            self.accounted = capacity;
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

    /// Reads the replica's commands.
    fn read_input(&mut self) -> Result<(), End> {
        let mut buffer = [0; 4096];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(End::Closed),
                Ok(n) => {
                    let now_ms = clock::unix_ms();
                    self.received_at = Instant::now();
                    self.replica
                        .client
                        .active_ms
                        .store(now_ms, Ordering::Relaxed);
                    self.server.stats.net_input_bytes.add(n as u64);
                    let total = &self.replica.client.net_in_bytes;
                    total.fetch_add(n as u64, Ordering::Relaxed);
                    self.input
                        .extend_from_slice(buffer.get(..n).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            self.parse_input()?;
        }
        self.parse_input()
    }

    fn parse_input(&mut self) -> Result<(), End> {
        let limits = Limits {
            max_bulk_len: MAX_INPUT,
            authenticated: true,
        };
        loop {
            match self.parser.advance(&self.input, &limits) {
                Ok(Progress::Complete { consumed }) => {
                    let args = self.parser.args(&self.input);
                    let ack = wire::from_replica(&args);
                    let relays = wire::relays_of_replica(&args);
                    drop(args);
                    if let Some(so) = relays {
                        self.replica.wants_pings.store(so, Ordering::Relaxed);
                    }
                    if let Some(ack) = ack {
                        self.acks += 1;
                        // An acknowledgement beyond what was sent is invalid.
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
