//! Follows the master: connects, says who this is and how far it is, takes the
//! data set if it cannot go on from there, and applies what the master logs.
//!
//! ```text
//! CONNECT → CONNECTING → HANDSHAKE ─ +CONTINUE ──────────→ CONNECTED
//!    ↑                       │ +FULLRESYNC                     ↑
//!    │                       └──────→ SYNC ─ installed ────────┘
//!    └──── whatever goes wrong, after a second
//! ```
//!
//! The old data set is served until the new one is installed, in one batch. A
//! link that breaks before leaves nothing behind.

use super::failover;
use super::wire::{self, FromMaster};
use crate::base::clock;
use crate::base::resolve::resolve;
use crate::commands::replication::{dialect, end_failover, note_master};
use crate::commands::{Error, add_library};
use crate::exec::{ApplyError, Executor};
use crate::resp::encode::command;
use crate::resp::{Limits, Parser, Progress};
use crate::state::clients::ClientFlags;
use crate::state::config::MasterAddr;
use crate::state::replication::{Desired, LinkPhase};
use crate::state::scripts::Libraries;
use crate::state::{ClientInfo, Server, Session};
use crate::storage::history::Following;
use crate::storage::snapshot::DataSet;
use crate::storage::staging::Staging;
use crate::storage::{Engine, StorageError};
use crate::types::OpError;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts after data that do not fit: what follows is a full sync.
const RETRY_UNFIT: Duration = Duration::from_secs(5);
/// Between two full syncs for which there is no room, unless there is more meanwhile:
/// doubled from the first to the second.
const RETRY_NO_ROOM: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// The part of what was free then that there is to be more of.
const MORE_ROOM: u64 = 10;
/// The longest wait in one read.
const NAP: Duration = Duration::from_millis(100);
/// How often the master is told how far this is.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// And while it gets further.
const ACK_PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Longest argument that a master may send: no row can be longer.
const MAX_ARG_LEN: usize = u32::MAX as usize;
/// Longest line of an answer in the handshake.
const MAX_LINE: usize = 4096;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the master closed the connection")]
    Closed,
    #[error("nothing was heard of the master for repl-timeout seconds")]
    Silent,
    #[error("the master refused {0}: {1}")]
    Refused(&'static str, String),
    #[error("the master said what no master says")]
    Malformed,
    #[error("a library of functions of the master does not load here: {0}")]
    Library(crate::commands::Error),
    #[error("it was told to go")]
    Killed,
    #[error("another master is wanted")]
    Unwanted,
    #[error(
        "the master's data set cannot be stored beside the old one, {bytes} bytes of it were \
         here: {error}. It is tried again once the disk has more room, and from time to time"
    )]
    NotStored { bytes: u64, error: StorageError },
}

/// Follows whoever is to be followed, until the server stops.
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

/// What follows one master.
struct Follower<'s> {
    server: &'s Arc<Server>,
    desired: &'s Desired,
    master: &'s MasterAddr,
    executor: Executor,
    session: Session,
    following: Following,
    /// The data here are not what they should be: only a full sync helps.
    distrusted: bool,
    /// What the master sends waits until the disk takes it.
    holds_back: bool,
    no_room: NoRoom,
}

/// Full syncs for which there was no room, since the last that went well.
#[derive(Default)]
struct NoRoom {
    pause: Duration,
    /// Bytes that were free when the last one began.
    free_before: u64,
}

impl<'s> Follower<'s> {
    fn run(
        server: &'s Arc<Server>,
        desired: &'s Desired,
        master: &'s MasterAddr,
    ) -> Result<(), StorageError> {
        let mut executor = Executor::new(server.clone());
        let begin = |engine: &Engine| {
            let wanted = server.replication.desired();
            if !wanted.is_still(desired) {
                return None;
            }
            // What was written since the replica had everything would be lost: by
            // commands that had begun.
            let lost = matches!(&wanted.failover, Some(failover) if !failover.force)
                && !failover::has_everything(server, master);
            (!lost).then(|| engine.begin_following())
        };
        let Some(following) = executor.begin_following(begin)? else {
            // It waits for a replica that has that, too.
            server.replication.hand_back(desired);
            return Ok(());
        };
        let link = &server.replication.link;
        link.down_ms.store(clock::unix_ms(), Ordering::Relaxed);
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
        let mut follower = Follower {
            server,
            desired,
            master,
            executor,
            session: Session::new(info, true),
            following,
            distrusted: false,
            holds_back: false,
            no_room: NoRoom::default(),
        };
        while follower.is_wanted() {
            let end = match follower.follow() {
                Ok(never) => match never {},
                Err(end) => end,
            };
            link.set_socket(None);
            server.clients.remove(follower.session.info.id);
            follower.enter(LinkPhase::Connect);
            // What a broken link left half done must not be committed with what
            // the next one brings.
            let pending = follower.executor.finish_tick();
            if !follower.is_wanted() {
                break;
            }
            let no_room = matches!(end, End::NotStored { .. });
            let level = match no_room && follower.no_room.pause > Duration::ZERO {
                // It was said when it began.
                true => log::Level::Debug,
                false => log::Level::Warn,
            };
            log::log!(level, "link to {}:{}: {end}", master.host, master.port);
            if server.replication.desired().failover.is_some() {
                end_failover(server)?;
                break;
            }
            if let Err(error) = pending {
                log::debug!("link to {}:{}: {error}", master.host, master.port);
            }
            follower.wait_for_the_disk();
            if no_room {
                follower.wait_for_room();
                continue;
            }
            let diverged = matches!(
                end,
                End::Apply(ApplyError::Diverged { .. } | ApplyError::Malformed(_))
            );
            follower.distrusted |= diverged;
            // Who cannot take what the master has must not ask for it all the time.
            let pause = match end {
                End::Storage(StorageError::Failed) => RETRY,
                End::Apply(_) | End::Storage(_) | End::Malformed | End::Library(_) => RETRY_UNFIT,
                _ => RETRY,
            };
            // It may differ from what it was at the beginning: a failover has ended.
            let now = server.replication.desired().clone();
            if now.is_still(desired) {
                server.replication.wait_for_change(&now, pause);
            }
        }
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        self.server.replication.desired().is_still(self.desired)
    }

    /// Waits while this server takes no writes at all: what the master sends would have to
    /// be sent again.
    fn wait_for_the_disk(&self) {
        while self.is_wanted() && self.server.engine.has_failed() {
            self.nap();
        }
    }

    /// Waits until there is more room than there was for the last full sync, or for long.
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
        let now = self.server.replication.desired().clone();
        if now.is_still(self.desired) {
            self.server.replication.wait_for_change(&now, NAP);
        }
    }

    fn enter(&self, phase: LinkPhase) {
        self.server.replication.set_phase(self.desired, phase);
    }

    fn follow(&mut self) -> Result<std::convert::Infallible, End> {
        let link = &self.server.replication.link;
        self.enter(LinkPhase::Connecting);
        let socket = self.connect()?;
        link.set_socket(Some(socket.try_clone()?));
        if !self.is_wanted() {
            return Err(End::Unwanted);
        }
        self.enter(LinkPhase::Handshake);
        let info = &self.session.info;
        info.kill.store(false, Ordering::Release);
        self.server.clients.add(info.clone());
        let mut peer = Peer::new(socket, self.server);
        let answer = self.handshake(&mut peer)?;
        let mut words = answer.split(' ');
        match (words.next(), words.next()) {
            (Some("+CONTINUE"), id) => {
                if let Some(id) = id {
                    let id = wire::history_id(id.as_bytes()).ok_or(End::Malformed)?;
                    self.server.engine.adopt_history(self.following, &id)?;
                }
                log::info!("link to {}: goes on", self.session.info.addr);
                self.enter(LinkPhase::Connected);
                self.obey(&mut peer, None)
            }
            (Some("+FULLRESYNC"), Some(_)) => {
                log::info!("link to {}: full sync", self.session.info.addr);
                self.enter(LinkPhase::Sync);
                for figure in [&link.sync_keys, &link.sync_keys_here, &link.sync_bytes_here] {
                    figure.store(0, Ordering::Relaxed);
                }
                let staging = Staging::new(self.server.engine.clone());
                self.no_room.free_before = self.server.engine.disk.figures().free;
                self.obey(&mut peer, Some(Incoming::new(staging)))
            }
            _ => Err(End::Refused("PSYNC", answer)),
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

    /// Connects, from `bind-source-addr` if that names an address of this machine;
    /// gives up at once when another master is wanted.
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

    /// Says who this is and what it has; returns the answer to PSYNC.
    fn handshake(&mut self, peer: &mut Peer<'_>) -> Result<String, End> {
        let config = self.server.config.load();
        let refused = |what, answer: String| {
            Err(End::Refused(
                what,
                answer.trim_start_matches('-').to_owned(),
            ))
        };
        let pong = peer.ask(&[b"PING"])?;
        let locked = ["-NOAUTH", "-NOPERM", "-ERR operation not permitted"];
        if pong.starts_with('-') && !locked.iter().any(|text| pong.starts_with(text)) {
            return refused("PING", pong);
        }
        if !config.masterauth.0.is_empty() {
            let user = config.masteruser.as_bytes();
            let password: &[u8] = config.masterauth.0.as_ref();
            let answer = match user {
                b"" => peer.ask(&[b"AUTH", password])?,
                user => peer.ask(&[b"AUTH", user, password])?,
            };
            if answer.starts_with('-') {
                log::warn!("Unable to AUTH to MASTER: {answer}");
                return refused("AUTH", answer);
            }
        }
        let port = match config.replica_announce_port {
            0 => self.server.port.load(Ordering::Relaxed),
            port => port.into(),
        };
        let port = port.to_string();
        let ip = config.replica_announce_ip.as_bytes();
        let dialect = dialect();
        let mut said: Vec<Vec<&[u8]>> = vec![vec![b"listening-port", port.as_bytes()]];
        if !ip.is_empty() {
            said.push(vec![b"ip-address", ip]);
        }
        said.push(vec![b"capa", b"psync2", b"capa", dialect.as_bytes()]);
        said.push(vec![b"run-id", self.server.run_id.as_bytes()]);
        for words in said {
            let args: Vec<&[u8]> = [&b"REPLCONF"[..]].into_iter().chain(words).collect();
            let answer = peer.ask(&args)?;
            if answer.starts_with('-') {
                return refused("REPLCONF", answer);
            }
        }
        let engine = &self.server.engine;
        let id = engine.replication_id();
        let next = engine.binlog.range().next_position.to_string();
        let failing_over = self.server.replication.desired().failover.is_some();
        let answer = match self.distrusted {
            true => peer.ask(&[b"PSYNC", b"?", b"-1"])?,
            false if failing_over => {
                let psync: [&[u8]; 4] = [b"PSYNC", id.as_bytes(), next.as_bytes(), b"FAILOVER"];
                let answer = peer.ask(&psync)?;
                if answer.starts_with('+') {
                    self.handed_over();
                }
                answer
            }
            false => peer.ask(&[b"PSYNC", id.as_bytes(), next.as_bytes()])?,
        };
        match answer.starts_with('+') {
            true => Ok(answer),
            false => refused("PSYNC", answer),
        }
    }

    /// A failover is done: the other one is the master.
    fn handed_over(&self) {
        let server = self.server;
        server.replication.set_failover(None);
        note_master(server, Some(self.master.clone()));
        server.pause_for_failover(false);
        log::info!("FAILOVER: {} has taken over", self.session.info.addr);
    }

    /// Does what the master says, until the link ends.
    fn obey(
        &mut self,
        peer: &mut Peer<'_>,
        mut incoming: Option<Incoming>,
    ) -> Result<std::convert::Infallible, End> {
        let server = self.server;
        let mut acked = Instant::now();
        self.acknowledge(peer, incoming.is_some())?;
        // What came with the answer to PSYNC is here already.
        let mut heard = true;
        loop {
            if !self.is_wanted() {
                return Err(End::Unwanted);
            }
            if self.session.info.kill.load(Ordering::Acquire) {
                return Err(End::Killed);
            }
            let mut ask = false;
            if heard {
                let now_ms = clock::unix_ms();
                let link = &server.replication.link;
                link.heard_ms.store(now_ms, Ordering::Relaxed);
                self.session.info.active_ms.store(now_ms, Ordering::Relaxed);
                ask = self.obey_what_is_here(peer, &mut incoming)?;
            }
            let due = match heard {
                true => ACK_PROGRESS_EVERY,
                false => ACK_EVERY,
            };
            if ask || acked.elapsed() >= due {
                acked = Instant::now();
                self.acknowledge(peer, incoming.is_some())?;
            }
            heard = match self.holds_back {
                false => peer.read()?,
                true => {
                    self.nap();
                    peer.heard = Instant::now();
                    true
                }
            };
        }
    }

    /// Whether what has come is to wait until the disk takes it.
    fn hold_back(&mut self, so: bool) {
        if self.holds_back != so {
            self.holds_back = so;
            let addr = &self.session.info.addr;
            match so {
                true => log::warn!(
                    "link to {addr}: the disk here has no room for what the master sends, which \
                     waits until there is some"
                ),
                false => log::info!("link to {addr}: what the master sends is taken again"),
            }
        }
    }

    /// Runs all whole commands that have arrived; says whether the master asked
    /// for an answer.
    fn obey_what_is_here(
        &mut self,
        peer: &mut Peer<'_>,
        incoming: &mut Option<Incoming>,
    ) -> Result<bool, End> {
        let mut asked = false;
        self.executor.start_tick();
        let input = std::mem::take(&mut peer.input);
        let limits = Limits {
            max_bulk_len: MAX_ARG_LEN,
            authenticated: true,
        };
        let mut used = 0;
        let mut no_room = false;
        let done = loop {
            let rest = input.get(used..).unwrap_or_default();
            match peer.parser.advance(rest, &limits) {
                Ok(Progress::Incomplete) => break Ok(()),
                Ok(Progress::Complete { consumed }) => {
                    let args: smallvec::SmallVec<[&[u8]; 8]> = peer.parser.args_of(rest).collect();
                    let said = wire::from_master(&args).ok_or(End::Malformed);
                    let obeyed = said.and_then(|said| {
                        asked |= said == FromMaster::GetAck;
                        self.obey_one(said, incoming)
                    });
                    peer.parser.reset();
                    no_room = matches!(obeyed, Err(End::Apply(ApplyError::NoRoom)));
                    if no_room {
                        break Ok(());
                    }
                    used += consumed;
                    if let Err(end) = obeyed {
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
        peer.input = input;
        peer.input.drain(..used);
        done?;
        self.commit()?;
        self.hold_back(no_room);
        Ok(asked)
    }

    fn commit(&mut self) -> Result<(), End> {
        self.executor.finish_tick().map_err(|error| match error {
            Error::Op(OpError::Storage(error)) => error.into(),
            error => End::Io(io::Error::other(error.to_string())),
        })
    }

    fn obey_one(
        &mut self,
        said: FromMaster<'_>,
        incoming: &mut Option<Incoming>,
    ) -> Result<(), End> {
        let link = &self.server.replication.link;
        match (said, incoming.as_mut()) {
            (FromMaster::Row { position, value }, None) => {
                let at_ms = self.executor.apply(&mut self.session, position, value)?;
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
            (FromMaster::GetAck, _) => Ok(()),
            (FromMaster::History { id }, None) => {
                // As of the rows before it.
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
                let name = add_library(&mut incoming.libraries, text).map_err(End::Library)?;
                incoming.staging.libraries.push((name, text.to_vec()));
                Ok(())
            }
            (FromMaster::Rows { db, rows }, Some(incoming)) if incoming.set.is_some() => {
                let put = match self.server.engine.takes_data() {
                    true => incoming.staging.put(db, rows),
                    false => Err(StorageError::NoRoom),
                };
                let staging = &incoming.staging;
                put.map_err(|error| not_stored(staging.bytes, error))?;
                link.sync_keys_here.store(staging.keys(), Ordering::Relaxed);
                link.sync_bytes_here.store(staging.bytes, Ordering::Relaxed);
                Ok(())
            }
            (FromMaster::Complete { position, keys }, Some(_)) => {
                match incoming.take() {
                    Some(Incoming {
                        staging,
                        libraries,
                        set: Some(set),
                    }) if staging.keys() == keys && set.position == position => {
                        let (following, bytes) = (self.following, staging.bytes);
                        self.executor
                            .install(staging, &set, libraries, following)
                            .map_err(|error| not_stored(bytes, error))?;
                    }
                    _ => return Err(End::Malformed),
                }
                self.distrusted = false;
                self.no_room = NoRoom::default();
                log::info!("link to {}: full sync done", self.session.info.addr);
                self.enter(LinkPhase::Connected);
                Ok(())
            }
            _ => Err(End::Malformed),
        }
    }

    /// Says how far this is; while a data set arrives: nowhere. The old one's
    /// positions mean nothing to the master.
    fn acknowledge(&self, peer: &mut Peer<'_>, is_syncing: bool) -> Result<(), End> {
        let engine = &self.server.engine;
        let ack = match is_syncing {
            true => wire::Ack {
                applied: 0,
                synced: None,
            },
            false => wire::Ack {
                applied: engine.binlog.range().next_position,
                synced: Some(engine.synced_position()),
            },
        };
        let mut out = Vec::new();
        wire::ack(&mut out, &ack);
        Ok(peer.socket.write_all(&out)?)
    }
}

/// A data set did not get here, of which so many bytes did.
fn not_stored(bytes: u64, error: StorageError) -> End {
    match error {
        StorageError::RocksDb(_)
        | StorageError::Io(_)
        | StorageError::Failed
        | StorageError::NoRoom => End::NotStored { bytes, error },
        error => error.into(),
    }
}

/// A data set under way.
struct Incoming {
    staging: Staging,
    libraries: Libraries,
    set: Option<DataSet>,
}

impl Incoming {
    fn new(staging: Staging) -> Incoming {
        Incoming {
            staging,
            libraries: Libraries::default(),
            set: None,
        }
    }
}

/// The master's end of the connection.
struct Peer<'s> {
    socket: TcpStream,
    server: &'s Server,
    input: Vec<u8>,
    parser: Parser,
    scratch: Box<[u8]>,
    heard: Instant,
}

impl<'s> Peer<'s> {
    fn new(socket: TcpStream, server: &'s Server) -> Peer<'s> {
        Peer {
            socket,
            server,
            input: Vec::new(),
            parser: Parser::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            heard: Instant::now(),
        }
    }

    /// Waits a moment for bytes; says whether some came.
    fn read(&mut self) -> Result<bool, End> {
        match self.socket.read(&mut self.scratch) {
            Ok(0) => Err(End::Closed),
            Ok(n) => {
                self.heard = Instant::now();
                let stats = &self.server.stats;
                stats.net_input_bytes.add(n as u64);
                stats.net_repl_input_bytes.add(n as u64);
                let came = self.scratch.get(..n).unwrap_or_default();
                self.input.extend_from_slice(came);
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) =>
            {
                let timeout = Duration::from_secs(self.server.config.load().repl_timeout_s);
                match self.heard.elapsed() > timeout {
                    true => Err(End::Silent),
                    false => Ok(false),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a command and waits for the line that answers it.
    fn ask(&mut self, args: &[&[u8]]) -> Result<String, End> {
        let mut out = Vec::new();
        command(&mut out, args);
        self.socket.write_all(&out)?;
        loop {
            // A master that is busy sends empty lines.
            while self.input.first() == Some(&b'\n') {
                self.input.remove(0);
            }
            if let Some(end) = memchr::memchr(b'\n', &self.input) {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(line.trim_ascii()).into_owned());
            }
            if self.input.len() > MAX_LINE {
                return Err(End::Malformed);
            }
            self.read()?;
            if self.server.replication.desired().stop {
                return Err(End::Unwanted);
            }
        }
    }
}
