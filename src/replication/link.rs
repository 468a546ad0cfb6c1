//! Follows the master: connects, introduces itself, asks for a partial sync, loads the
//! data set if that is impossible, and applies the master's rows. [`redis`] follows a
//! master that is no Kedis.
//!
//! ```text
//! CONNECT → CONNECTING → HANDSHAKE ─ +CONTINUE ──────────→ CONNECTED
//!    ↑                       │ +FULLRESYNC                     ↑
//!    │                       └──────→ SYNC ─ installed ────────┘
//!    └──── after any error, with a delay
//! ```
//!
//! The old data set is served until the new one is installed, in one batch. If the link
//! breaks before, the received part is discarded.

mod ahead;
mod handshake;
mod peer;
mod redis;

use super::failover;
use super::wire::{self, FromMaster};
use crate::base::recurring::Recurring;
use crate::commands::replication::{end_failover, note_master};
use crate::commands::{Error, add_library};
use crate::encoding::binlog::Position;
use crate::exec::{ApplyError, Executor};
use crate::resp::{Limits, Progress};
use crate::state::clients::ClientFlags;
use crate::state::config::MasterAddr;
use crate::state::replication::{Desired, LinkPhase};
use crate::state::scripts::Libraries;
use crate::state::{ClientInfo, Server, Session};
use crate::storage::engine::history::Following;
use crate::storage::full_sync::snapshot::DataSet;
use crate::storage::full_sync::staging::Staging;
use crate::storage::{Engine, StorageError};
use crate::sys::clock;
use crate::sys::resolve::resolve;
use crate::types::OpError;
use ahead::Ahead;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use peer::{End, Part, Peer, longest_command};
use redis::{Stream, refused};
use socket2::{Domain, Socket, Type};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Delay between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// The same after an error that will recur, and that leads to a full sync.
const RETRY_UNFIT: Duration = Duration::from_secs(5);
/// Delay between two full syncs for lack of disk space, from the first to the longest;
/// doubled each time, and cut short when space is freed.
const RETRY_NO_ROOM: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// Free space must have grown by this fraction to cut the delay short.
const MORE_ROOM: u64 = 10;
/// Longest blocking wait.
const NAP: Duration = Duration::from_millis(100);
/// How long a replica that is to take over may take to learn a new id of the history, how soon it is
/// asked again, and what it answers meanwhile.
const NEW_ID_WAIT: Duration = Duration::from_secs(1);
const NEW_ID_RETRY: Duration = Duration::from_millis(10);
const NOT_MY_ID: &str = "replid must match my replid.";
/// Interval of acknowledgements.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// The same while the replica makes progress.
const ACK_PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Longest argument of a master's command; no row can be longer.
pub(super) const MAX_ARG_LEN: usize = u32::MAX as usize;
/// How what a master sends is parsed.
const LIMITS: Limits = Limits {
    max_bulk_len: MAX_ARG_LEN,
    authenticated: true,
};

/// Follows the configured master, until the server stops.
pub(super) fn run(server: &Arc<Server>) {
    let mut seen = server.replication.desired().clone();
    while !seen.stop {
        match seen.master.clone() {
            Some(master) => {
                if let Err(error) = Follower::run(server, &seen, &master) {
                    log::error!("cannot follow {}:{}: {error}", master.host, master.port);
                    server.replication.wait_for_change(&seen, RETRY);
                }
                seen = server.replication.desired().clone();
            }
            None if seen.failover.is_some() => {
                if let Err(error) = failover::coordinate(server) {
                    log::error!("FAILOVER: {error}");
                }
                seen = server.replication.desired().clone();
            }
            None => {
                let long = Duration::from_secs(60);
                seen = server.replication.wait_for_change(&seen, long);
            }
        }
    }
}

/// A replica of one master.
pub(super) struct Follower<'s> {
    pub(super) server: &'s Arc<Server>,
    desired: &'s Desired,
    master: &'s MasterAddr,
    pub(super) executor: Executor,
    pub(super) session: Session,
    pub(super) following: Following,
    /// The local data are wrong: only a full sync helps.
    pub(super) distrusted: bool,
    /// The master's data wait for disk space.
    waits_for_room: bool,
    /// Whether the master was last sent `relays yes`.
    relays: bool,
    no_room: NoRoom,
    ahead: Ahead,
}

/// Failed full syncs for lack of disk space since the last successful one.
#[derive(Default)]
struct NoRoom {
    pause: Duration,
    /// Free bytes when the last one began.
    free_before: u64,
}

/// The dialect of a master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// Rows of the binlog.
    Kedis,
    /// An RDB file and commands.
    Redis,
}

/// What is received over the link.
pub(super) enum Inbound {
    /// Commands of a Kedis; during a full sync, its data set.
    Rows(Option<Incoming>),
    /// The stream of a Redis.
    Stream(Stream),
}

impl<'s> Follower<'s> {
    fn run(
        server: &'s Arc<Server>,
        desired: &'s Desired,
        master: &'s MasterAddr,
    ) -> Result<(), StorageError> {
        let mut executor = Executor::new(server.clone());
        // Whether the link is still wanted is checked later.
        executor.end_with(server.replication.link.begin());
        let begin = |engine: &Engine| {
            let wanted = server.replication.desired();
            if !wanted.is_still(desired) {
                return None;
            }
            // Commands that had begun may have written since the replica had everything;
            // these writes would be lost.
            let lost = matches!(&wanted.failover, Some(failover) if !failover.force)
                && !failover::has_everything(server, master);
            (!lost).then(|| engine.begin_following())
        };
        let Some(following) = executor.begin_following(begin)? else {
            // The failover waits until a replica has these writes, too.
            server.replication.hand_back(desired);
            return Ok(());
        };
        let link = &server.replication.link;
        link.down_ms.store(clock::unix_ms(), Ordering::Relaxed);
        let next = server
            .engine
            .upstream()
            .map_or(Position::NONE, |upstream| upstream.next);
        link.stream_next.store(next, Ordering::Relaxed);
        link.stream_read.store(next, Ordering::Relaxed);
        let mut follower = Follower::new(server, desired, master, executor, following);
        let mut logged = Recurring::default();
        while follower.is_wanted() {
            let end = match follower.follow() {
                Ok(never) => match never {},
                Err(end) => end,
            };
            link.set_socket(None);
            let info = &follower.session.info;
            server.clients.remove(info.id);
            info.query_capacity.store(0, Ordering::Relaxed);
            server.client_memory.set(&info.account, 0);
            // An incomplete batch of a broken link must not be committed with the next
            // link's.
            let pending = follower.executor.finish_tick();
            follower.enter(LinkPhase::Connect);
            if !follower.is_wanted() {
                break;
            }
            if !follower.retry_after(&end, pending.err(), &mut logged)? {
                break;
            }
        }
        Ok(())
    }

    fn new(
        server: &'s Arc<Server>,
        desired: &'s Desired,
        master: &'s MasterAddr,
        executor: Executor,
        following: Following,
    ) -> Follower<'s> {
        let info = ClientInfo::new(
            server.clients.new_id(),
            format!("{}:{}", master.host, master.port),
            String::new(),
            -1,
            usize::MAX,
            clock::unix_ms(),
            ClientFlags::MASTER,
        );
        let info = Arc::new(info);
        Follower {
            server,
            desired,
            master,
            executor,
            session: Session::of_server(info),
            following,
            distrusted: false,
            waits_for_room: false,
            relays: false,
            no_room: NoRoom::default(),
            ahead: Ahead::default(),
        }
    }

    /// Handles the end of a link that is still wanted: logs it and waits for the time of
    /// the next attempt. Returns whether to try again.
    fn retry_after(
        &mut self,
        end: &End,
        pending: Option<Error>,
        logged: &mut Recurring,
    ) -> Result<bool, StorageError> {
        let no_room = matches!(end, End::NotStored { .. });
        // Data that cannot be applied come again with each attempt.
        let is_repeated = matches!(end, End::Apply(_)) && !logged.is_news(end);
        let level = match is_repeated || no_room && self.no_room.pause > Duration::ZERO {
            // Logged when it first occurred.
            true => log::Level::Debug,
            false => log::Level::Warn,
        };
        log::log!(
            level,
            "link to {}:{}: {end}",
            self.master.host,
            self.master.port
        );
        if self.server.replication.desired().failover.is_some() {
            end_failover(self.server)?;
            log::warn!(
                "FAILOVER to {}:{} aborted: this server is the master again",
                self.master.host,
                self.master.port
            );
            return Ok(false);
        }
        if let Some(error) = pending {
            log::debug!("link to {}:{}: {error}", self.master.host, self.master.port);
        }
        self.wait_for_the_disk();
        if no_room {
            self.wait_for_room();
            return Ok(true);
        }
        let diverged = matches!(
            end,
            End::Apply(ApplyError::Diverged { .. } | ApplyError::Malformed(_))
        );
        self.distrusted |= diverged;
        // A replica that cannot apply the master's data must not request them
        // continuously.
        let pause = match end {
            End::Storage(StorageError::Failed) => RETRY,
            End::Apply(_)
            | End::Storage(_)
            | End::Import(_)
            | End::Databases(_)
            | End::Transaction(_)
            | End::Malformed
            | End::Library(_) => RETRY_UNFIT,
            _ => RETRY,
        };
        // The desired state may have changed: a failover has ended.
        let now = self.server.replication.desired().clone();
        if now.is_still(self.desired) {
            self.server.replication.wait_for_change(&now, pause);
        }
        Ok(true)
    }

    fn is_wanted(&self) -> bool {
        self.server.replication.desired().is_still(self.desired)
    }

    /// Waits while this server accepts no writes: data received now would have to be
    /// sent again.
    fn wait_for_the_disk(&self) {
        while self.is_wanted() && self.server.engine.has_failed() {
            self.nap();
        }
    }

    /// Waits until there is more free space than at the last full sync, or the delay is
    /// over.
    fn wait_for_room(&mut self) {
        let no_room = &mut self.no_room;
        no_room.pause = (no_room.pause * 2).clamp(RETRY_NO_ROOM.0, RETRY_NO_ROOM.1);
        let (pause, before) = (no_room.pause, no_room.free_before);
        let began = Instant::now();
        let disk = &self.server.engine.disk;
        let has_more = || !disk.is_low() && disk.figures().free > before + before / MORE_ROOM;
        while self.is_wanted() && began.elapsed() < pause && !has_more() {
            self.nap();
        }
    }

    fn nap(&self) {
        self.pause(NAP);
    }

    /// Waits for so long, unless another master is wanted before.
    fn pause(&self, time: Duration) {
        let now = self.server.replication.desired().clone();
        if now.is_still(self.desired) {
            self.server.replication.wait_for_change(&now, time);
        }
    }

    /// Fails if the link is not wanted any more.
    fn check_wanted(&self) -> Result<(), End> {
        if !self.is_wanted() {
            return Err(End::Unwanted);
        }
        match self.session.info.kill.load(Ordering::Acquire) {
            true => Err(End::Killed),
            false => Ok(()),
        }
    }

    /// Records that data arrived from the master.
    pub(super) fn note_received(&self) {
        let now_ms = clock::unix_ms();
        let link = &self.server.replication.link;
        link.heard_ms.store(now_ms, Ordering::Relaxed);
        self.session.info.active_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn enter(&self, phase: LinkPhase) {
        self.server.replication.set_phase(self.desired, phase);
    }

    fn follow(&mut self) -> Result<std::convert::Infallible, End> {
        let link = &self.server.replication.link;
        self.relays = false;
        link.set_nodes(Vec::new());
        self.enter(LinkPhase::Connecting);
        let socket = self.connect()?;
        link.set_socket(Some(socket.try_clone()?));
        if !self.is_wanted() {
            return Err(End::Unwanted);
        }
        let timeout = Duration::from_secs(self.server.config.load().repl_timeout_s);
        let wanted = || self.is_wanted();
        let tls = &self.server.tls;
        let socket = tls.connect(socket, &self.master.host, timeout, wanted)?;
        self.enter(LinkPhase::Handshake);
        let info = &self.session.info;
        info.kill.store(false, Ordering::Release);
        self.server.clients.add(info.clone());
        let mut peer = Peer::new(socket, self.server);
        match self.shake_hands(&mut peer)? {
            Dialect::Kedis => self.follow_kedis(&mut peer),
            Dialect::Redis => self.follow_redis(&mut peer),
        }
    }

    /// Follows a Kedis master until the link ends.
    fn follow_kedis(&mut self, peer: &mut Peer<'_>) -> Result<std::convert::Infallible, End> {
        let link = &self.server.replication.link;
        link.stream_next.store(Position::NONE, Ordering::Relaxed);
        self.executor.receive_rows(self.following);
        let engine = &self.server.engine;
        let id = engine.replication_id();
        let next = engine.binlog.range().next_position;
        let answer = match self.distrusted {
            true => peer.ask(&[b"PSYNC", b"?", b"-1"])?,
            false => self.send_psync(peer, &id, next)?,
        };
        let mut words = answer.split(' ');
        match (words.next(), words.next()) {
            (Some("+CONTINUE"), id) => {
                if let Some(id) = id {
                    let id = wire::history_id(id.as_bytes()).ok_or(End::Malformed)?;
                    self.server.engine.adopt_history(self.following, &id)?;
                }
                log::info!("link to {}: partial sync", self.session.info.addr);
                self.enter(LinkPhase::Connected);
                self.receive(peer, Inbound::Rows(None))
            }
            (Some("+FULLRESYNC"), Some(_)) => {
                log::info!("link to {}: full sync", self.session.info.addr);
                self.enter(LinkPhase::Sync);
                link.begin_sync();
                let staging = Staging::new(self.server.engine.clone());
                self.no_room.free_before = self.server.engine.disk.figures().free;
                self.receive(peer, Inbound::Rows(Some(Incoming::new(staging))))
            }
            _ => Err(refused("PSYNC", &answer)),
        }
    }

    fn connect(&self) -> Result<TcpStream, End> {
        let timeout = Duration::from_secs(self.server.config.load().repl_timeout_s);
        let master = self.master;
        let found = resolve(&master.host, master.port, || self.is_wanted());
        if !self.is_wanted() {
            return Err(End::Unwanted);
        }
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in found? {
            match self.connect_to(&address, timeout) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(NAP))?;
                    socket.set_write_timeout(Some(timeout))?;
                    return Ok(socket);
                }
                Err(End::Io(error)) => last = error,
                Err(other) => return Err(other),
            }
        }
        Err(last.into())
    }

    /// Connects, from `bind-source-addr` if that is an address of this machine; stops
    /// when another master is wanted.
    fn connect_to(&self, address: &SocketAddr, timeout: Duration) -> Result<TcpStream, End> {
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
        let source = &self.server.config.load().bind_source_addr;
        if !source.is_empty() {
            let source: IpAddr = source.parse().map_err(io::Error::other)?;
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        socket.set_nonblocking(true)?;
        match socket.connect(&(*address).into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                self.wait_until_connected(&socket, timeout)?;
            }
            Err(error) => return Err(error.into()),
        }
        socket.set_nonblocking(false)?;
        Ok(socket.into())
    }

    fn wait_until_connected(&self, socket: &Socket, timeout: Duration) -> Result<(), End> {
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(1);
        let fd = socket.as_raw_fd();
        let registry = poll.registry();
        registry.register(&mut SourceFd(&fd), Token(0), Interest::WRITABLE)?;
        let started = Instant::now();
        while started.elapsed() < timeout {
            if !self.is_wanted() {
                return Err(End::Unwanted);
            }
            match poll.poll(&mut events, Some(NAP)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if events.is_empty() {
                continue;
            }
            return match socket.take_error()? {
                Some(error) => Err(error.into()),
                None => Ok(()),
            };
        }
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    }

    /// Sends PSYNC with a position of a history. Returns the answer.
    fn send_psync(&mut self, peer: &mut Peer<'_>, id: &str, next: Position) -> Result<String, End> {
        let next = next.to_string();
        let failing_over = self.server.replication.desired().failover.is_some();
        if !failing_over {
            return peer.ask(&[b"PSYNC", id.as_bytes(), next.as_bytes()]);
        }
        let mut ask = |id: &str| peer.ask(&[b"PSYNC", id.as_bytes(), next.as_bytes(), b"FAILOVER"]);
        let names_another = |answer: &str| answer.ends_with(NOT_MY_ID);
        // A forced failover does not wait for the replica, which may not have been told yet that the
        // history has a new id.
        let mut answer = ask(id)?;
        let began = Instant::now();
        while names_another(&answer) && began.elapsed() < NEW_ID_WAIT {
            self.pause(NEW_ID_RETRY);
            self.check_wanted()?;
            answer = ask(id)?;
        }
        for ancestor in self.server.engine.history().ancestors.iter().rev() {
            if names_another(&answer) {
                answer = ask(&ancestor.id)?;
            }
        }
        match answer.starts_with('+') {
            true => self.complete_failover(),
            false => return Err(refused("PSYNC", &answer)),
        }
        Ok(answer)
    }

    /// Ends a successful failover: the other server is master now.
    fn complete_failover(&self) {
        let server = self.server;
        server.replication.set_failover(None);
        note_master(server, Some(self.master.clone()));
        // Those that waited until there is another master.
        server.unblock_all();
        server.pause_for_failover(false);
        log::info!("FAILOVER: {} has taken over", self.session.info.addr);
    }

    /// Receives and applies until the link ends.
    fn receive(
        &mut self,
        peer: &mut Peer<'_>,
        mut inbound: Inbound,
    ) -> Result<std::convert::Infallible, End> {
        let mut acked = Instant::now();
        self.ahead = Ahead::default();
        self.acknowledge(peer, &mut inbound)?;
        // Bytes may have arrived with the answer to PSYNC.
        let mut has_input = true;
        loop {
            self.check_wanted()?;
            let mut ask = false;
            if has_input {
                self.note_received();
                ask = match &mut inbound {
                    Inbound::Rows(incoming) => self.apply_received(peer, incoming)?,
                    Inbound::Stream(stream) => self.run_received(peer, stream)?,
                };
            }
            let due = match has_input {
                true => ACK_PROGRESS_EVERY,
                false => ACK_EVERY,
            };
            if ask || acked.elapsed() >= due {
                acked = Instant::now();
                self.acknowledge(peer, &mut inbound)?;
            }
            has_input = match self.waits_for_room {
                false => peer.read()?,
                true => {
                    self.nap();
                    peer.received_at = Instant::now();
                    true
                }
            };
        }
    }

    /// Sets whether received data wait for disk space.
    pub(super) fn set_waiting_for_room(&mut self, so: bool) {
        if self.waits_for_room != so {
            self.waits_for_room = so;
            let addr = &self.session.info.addr;
            match so {
                true => log::warn!(
                    "link to {addr}: the disk here has no room for what the master sends, which \
                     waits until there is some"
                ),
                false => log::info!("link to {addr}: data from the master are written again"),
            }
        }
    }

    /// Applies all complete commands that have arrived; returns whether the master asked
    /// for an acknowledgement.
    fn apply_received(
        &mut self,
        peer: &mut Peer<'_>,
        incoming: &mut Option<Incoming>,
    ) -> Result<bool, End> {
        let mut asked = false;
        self.executor.start_tick();
        let mut input = std::mem::take(&mut peer.input);
        let mut used = 0;
        let mut no_room = false;
        let done = loop {
            let rest = input.waiting().get(used..).unwrap_or_default();
            match peer.parser.advance(rest, &LIMITS) {
                Ok(Progress::Incomplete) => break Ok(()),
                Ok(Progress::Complete { consumed }) => {
                    let args: smallvec::SmallVec<[&[u8]; 8]> = peer.parser.args_of(rest).collect();
                    let received = wire::from_master(&args).ok_or(End::Malformed);
                    let next = rest.get(consumed..).unwrap_or_default();
                    let applied = received.and_then(|received| {
                        asked |= received == FromMaster::GetAck;
                        self.apply_one(received, incoming, next)
                    });
                    peer.parser.reset();
                    no_room = matches!(applied, Err(End::Apply(ApplyError::NoRoom)));
                    if no_room {
                        break Ok(());
                    }
                    used += consumed;
                    self.ahead.passed(consumed);
                    if let Err(end) = applied {
                        break Err(end);
                    }
                    if self.executor.is_full() {
                        self.commit()?;
                        self.executor.start_tick();
                    }
                }
                Err(_) => break Err(End::Malformed),
            }
        };
        input.consume(used);
        let here = input.waiting().len();
        peer.input = input;
        done?;
        let part = Part::of(&peer.parser, here);
        peer.note_held(&self.session.info, &part)?;
        self.commit()?;
        self.set_waiting_for_room(no_room);
        Ok(asked)
    }

    fn commit(&mut self) -> Result<(), End> {
        self.executor.finish_tick().map_err(|error| match error {
            Error::Op(OpError::Storage(error)) => error.into(),
            error => End::Io(io::Error::other(error.to_string())),
        })?;
        self.executor.server().engine.wait_as_writer();
        Ok(())
    }

    /// Applies one command; `next` is the input after it.
    fn apply_one(
        &mut self,
        received: FromMaster<'_>,
        incoming: &mut Option<Incoming>,
        next: &[u8],
    ) -> Result<(), End> {
        let link = &self.server.replication.link;
        match (received, incoming.as_mut()) {
            (FromMaster::Row { position, value }, None) => {
                let (session, ahead) = (&mut self.session, &mut self.ahead);
                let ask = |executor: &Executor| ahead.rows(executor, next);
                let at_ms = self.executor.apply(session, position, value, ask)?;
                link.applied_ms.store(at_ms, Ordering::Relaxed);
                Ok(())
            }
            (
                FromMaster::Publish {
                    kind,
                    channel,
                    message,
                },
                None,
            ) => {
                self.executor.publish(kind, channel, message);
                Ok(())
            }
            (FromMaster::Ping { position }, None) => {
                link.master_next.store(position, Ordering::Relaxed);
                Ok(())
            }
            (FromMaster::Nodes { nodes }, _) => {
                link.set_nodes(nodes);
                Ok(())
            }
            (FromMaster::GetAck, _) => Ok(()),
            (FromMaster::History { id }, None) => {
                // The new id begins after these rows.
                self.commit()?;
                self.executor.start_tick();
                Ok(self.server.engine.adopt_history(self.following, &id)?)
            }
            (FromMaster::Begin { set, keys }, Some(incoming)) if incoming.set.is_none() => {
                link.sync_keys.store(keys, Ordering::Relaxed);
                incoming.set = Some(set);
                Ok(())
            }
            (FromMaster::Library { text }, Some(incoming)) if incoming.set.is_some() => {
                incoming.library_bytes = incoming.library_bytes.saturating_add(text.len());
                let (bytes, most) = (incoming.library_bytes, longest_command(self.server));
                if bytes > most {
                    return Err(End::TooLong { bytes, most });
                }
                let name = add_library(&mut incoming.libraries, text).map_err(End::Library)?;
                incoming.staging.libraries.push((name, text.to_vec()));
                Ok(())
            }
            (
                FromMaster::Rows { db, rows },
                Some(Incoming {
                    staging,
                    set: Some(set),
                    ..
                }),
            ) => {
                let put = staging.put(set, db, rows);
                put.map_err(|error| not_stored(staging.bytes, error))?;
                link.sync_keys_here.store(staging.keys(), Ordering::Relaxed);
                link.sync_bytes_here.store(staging.bytes, Ordering::Relaxed);
                Ok(())
            }
            (FromMaster::Complete { position, keys }, Some(_)) => {
                self.complete(incoming.take(), position, keys)
            }
            _ => Err(End::Malformed),
        }
    }

    /// Installs the data set, which has arrived completely.
    fn complete(
        &mut self,
        incoming: Option<Incoming>,
        position: Position,
        keys: u64,
    ) -> Result<(), End> {
        let Some(Incoming {
            staging,
            libraries,
            set: Some(set),
            ..
        }) = incoming
        else {
            return Err(End::Malformed);
        };
        if staging.keys() != keys || set.position != position {
            return Err(End::Malformed);
        }
        let bytes = staging.bytes;
        self.executor
            .install(staging, &set, libraries, self.following)
            .map_err(|error| not_stored(bytes, error))?;
        self.distrusted = false;
        self.no_room = NoRoom::default();
        log::info!("link to {}: full sync done", self.session.info.addr);
        self.enter(LinkPhase::Connected);
        Ok(())
    }

    /// Acknowledges the applied and synced positions; none during a full sync, since
    /// positions of the old data set mean nothing to the master.
    fn acknowledge(&mut self, peer: &mut Peer<'_>, inbound: &mut Inbound) -> Result<(), End> {
        let engine = &self.server.engine;
        let ack = match inbound {
            Inbound::Stream(stream) => return self.acknowledge_stream(peer, stream),
            Inbound::Rows(Some(_)) => wire::Ack {
                applied: Position::NONE,
                synced: None,
            },
            Inbound::Rows(None) => wire::Ack {
                applied: engine.binlog.range().next_position,
                synced: Some(engine.synced_position()),
            },
        };
        let mut out = Vec::new();
        let relays = self.server.replication.wants_pings();
        if relays != self.relays {
            self.relays = relays;
            wire::relays(&mut out, relays);
        }
        wire::ack(&mut out, &ack);
        Ok(peer.socket.write_all(&out)?)
    }
}

/// The error for a data set that failed after `bytes` bytes.
fn not_stored(bytes: u64, error: StorageError) -> End {
    match error {
        StorageError::RocksDb(_)
        | StorageError::Io(_)
        | StorageError::Failed
        | StorageError::NoRoom => End::NotStored { bytes, error },
        error => error.into(),
    }
}

/// A full sync from a Kedis in progress.
pub(super) struct Incoming {
    staging: Staging,
    libraries: Libraries,
    library_bytes: usize,
    set: Option<DataSet>,
}

impl Incoming {
    fn new(staging: Staging) -> Incoming {
        Incoming {
            staging,
            libraries: Libraries::default(),
            library_bytes: 0,
            set: None,
        }
    }
}
