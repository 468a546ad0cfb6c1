//! Follows a Redis, a Valkey, or another master with their protocol.
//!
//! ```text
//! SELECT n                        more DBs than here: the link ends
//! PSYNC id offset ──→ +CONTINUE [id]         partial sync
//!                ├──→ +FULLRESYNC id offset  a file, then the stream
//!                └──→ -ERR: SYNC ──→         a file, then the stream; no later partial sync
//! file: \n … $length ‖ RDB   or   $EOF:mark ‖ RDB ‖ mark
//! ```
//!
//! The file is written to a staged data set as it arrives, which is installed when
//! complete. The commands of the stream run like a client's, several per batch, a
//! transaction as a whole. The batch contains the stream's position (see `upstream` in
//! [`crate::storage`]), so after a break of the link, the process or the machine the
//! stream continues from there. A command that cannot run here ends the link with an
//! error.

use super::peer::{End, Part, Peer, longest_command};
use super::{Follower, Inbound, LIMITS, not_stored};
use crate::base::num;
use crate::commands::add_library;
use crate::encoding::binlog::{Offset, Position};
use crate::encoding::system::Upstream;
use crate::exec::{ApplyError, Executor};
use crate::replication::wire;
use crate::resp::{Parser, Progress};
use crate::state::replication::LinkPhase;
use crate::state::scripts::Libraries;
use crate::state::{ClientInfo, Server};
use crate::storage::full_sync::staging::Staging;
use crate::storage::{DbIndex, Txn};
use crate::sys::clock;
use crate::types::OpError;
use crate::types::import::{ImportError, Load, Loaded, import};
use smallvec::SmallVec;
use std::io::{self, BufRead, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval of the newlines to a master while its file is loaded.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Length of the end mark of a file whose length is not announced.
const MARK_LEN: usize = 40;
/// Most bytes of a transaction, which is kept until its EXEC.
const MAX_TRANSACTION: usize = 1 << 30;

/// The arguments of a command.
type Words<'a> = SmallVec<[&'a [u8]; 8]>;

/// The state of a Redis master's stream.
pub(in crate::replication) struct Stream {
    /// Offset of the next byte to apply.
    next: Position,
    /// Bytes after that which belong to an incomplete transaction.
    begun: usize,
    in_transaction: bool,
    parser: Parser,
    /// Offset up to which the data are synced to disk here.
    synced: Position,
    /// Whether the master understands acknowledgements.
    acknowledges: bool,
}

impl Stream {
    fn new(next: Position, acknowledges: bool) -> Stream {
        Stream {
            next,
            begun: 0,
            in_transaction: false,
            parser: Parser::new(),
            synced: Position::NONE,
            acknowledges,
        }
    }

    /// Parses the incomplete transaction again, from its beginning.
    fn restart_transaction(&mut self) {
        self.begun = 0;
        self.in_transaction = false;
        self.parser.reset();
    }
}

/// How the end of a file is found.
enum Transfer {
    /// After this many bytes.
    Length(u64),
    /// By this mark.
    Mark([u8; MARK_LEN]),
}

impl Follower<'_> {
    /// Follows a Redis master until the link ends.
    pub(super) fn follow_redis(
        &mut self,
        peer: &mut Peer<'_>,
    ) -> Result<std::convert::Infallible, End> {
        self.refuse_more_databases(peer)?;
        let stream = self.psync(peer)?;
        let link = &self.server.replication.link;
        link.stream_next.store(stream.next, Ordering::Relaxed);
        peer.start_timeout();
        self.enter(LinkPhase::Connected);
        self.receive(peer, Inbound::Stream(stream))
    }

    /// Commands for a DB that is missing here could not run. If the master refuses
    /// SELECT for lack of permission, such a command ends the link later.
    ///
    /// A node of a cluster has one DB, and most masters have more, of which they need not use any:
    /// data for one end the link.
    fn refuse_more_databases(&self, peer: &mut Peer<'_>) -> Result<(), End> {
        let databases = self.server.engine.config.databases;
        if self.server.engine.config.cluster_enabled {
            return Ok(());
        }
        let first = databases.to_string();
        match peer.ask(&[b"SELECT", first.as_bytes()])?.as_str() {
            "+OK" => Err(End::Databases(databases)),
            _ => Ok(()),
        }
    }

    /// Asks for a partial sync from the local position, if known, and loads the data set
    /// if the master answers so.
    fn psync(&mut self, peer: &mut Peer<'_>) -> Result<Stream, End> {
        let engine = &self.server.engine;
        let upstream = engine.upstream();
        // A Redis that was a replica of this server shares its history and offsets.
        let here = upstream.clone().unwrap_or_else(|| Upstream {
            id: engine.replication_id(),
            next: engine.binlog.range().next_position,
            db: 0,
        });
        let answer = match self.distrusted {
            true => peer.ask(&[b"PSYNC", b"?", b"-1"])?,
            false => self.send_psync(peer, &here.id, here.next)?,
        };
        let words: Vec<&str> = answer.split(' ').collect();
        // A master that knows PSYNC understands acknowledgements.
        let mut acknowledges = true;
        let at = match words.as_slice() {
            ["+CONTINUE", id @ ..] if !self.distrusted => {
                let id = id
                    .first()
                    .map_or(Some(here.id.clone()), |id| wire::history_id(id.as_bytes()));
                let id = id.ok_or(End::Malformed)?;
                if upstream.is_none() {
                    // Rows written from here on are in no other server's binlog.
                    engine.begin_history_on_write();
                }
                self.session.select(DbIndex(here.db));
                let addr = &self.session.info.addr;
                log::info!("link to {addr}: partial sync from {}", here.next);
                (Some(id), here.next)
            }
            ["+FULLRESYNC", id, offset] => {
                let id = wire::history_id(id.as_bytes());
                let offset = num::parse_u64(offset.as_bytes()).map(Offset);
                let (Some(id), Some(offset)) = (id, offset) else {
                    return Err(End::Malformed);
                };
                let at = (Some(id), offset.next());
                self.load(peer, &at)?;
                at
            }
            // The master is not ready.
            [
                "-NOMASTERLINK" | "-LOADING" | "-NOAUTH" | "-NOPERM" | "-BUSY",
                ..,
            ] => {
                return Err(refused("PSYNC", &answer));
            }
            [error, ..] if error.starts_with('-') => {
                log::info!(
                    "link to {}: PSYNC answered with {answer:?}, asking for SYNC",
                    self.session.info.addr
                );
                peer.send(&[b"SYNC"])?;
                let at = (None, Position::FIRST);
                // A master that marks the end of its file waits for an acknowledgement
                // before the stream.
                acknowledges = matches!(self.load(peer, &at)?, Transfer::Mark(_));
                at
            }
            _ => return Err(refused("PSYNC", &answer)),
        };
        self.executor.receive_stream(self.following, at.0.clone());
        Ok(Stream::new(at.1, acknowledges))
    }

    /// Loads the data set of a master whose stream continues at this offset.
    fn load(
        &mut self,
        peer: &mut Peer<'_>,
        at: &(Option<String>, Position),
    ) -> Result<Transfer, End> {
        let server = self.server;
        let link = &server.replication.link;
        link.begin_sync();
        self.enter(LinkPhase::Sync);
        log::info!("link to {}: full sync", self.session.info.addr);
        let transfer = transfer(peer)?;
        if let Transfer::Length(length) = transfer {
            link.sync_bytes.store(length, Ordering::Relaxed);
        }
        let mut staging = Staging::new(server.engine.clone());
        staging.upstream = at.0.clone().map(|id| Upstream {
            id,
            next: at.1,
            db: 0,
        });
        let mut txn = Txn::staged(staging);
        let max_string = longest_command(server) as u64;
        let mut file = File {
            left: match transfer {
                Transfer::Length(length) => length,
                Transfer::Mark(_) => u64::MAX,
            },
            arrived: 0,
            peer,
            follower: self,
            kept_alive_at: Instant::now(),
            end: None,
        };
        let mut loading = Loading {
            server,
            info: &file.follower.session.info,
            libraries: Libraries::default(),
        };
        let loaded = import(
            &mut txn,
            &mut file,
            max_string,
            clock::unix_ms(),
            &mut loading,
        );
        let libraries = loading.libraries;
        let arrived = file.arrived;
        if let Some(end) = file.end.take() {
            return Err(end);
        }
        let loaded = loaded.map_err(|error| match error {
            ImportError::Op(OpError::Storage(error)) => not_stored(arrived, error),
            error => End::Import(error),
        })?;
        file.expect_end(&transfer)?;
        server.loading.note_keys(loaded.keys, loaded.expired);
        let staging = txn.into_staging().ok_or(End::Malformed)?;
        let data_set = server.engine.new_data_set()?;
        self.executor
            .install(staging, &data_set, libraries, self.following)?;
        self.session.select(DbIndex(0));
        self.distrusted = false;
        let addr = &self.session.info.addr;
        log::info!(
            "link to {addr}: full sync done: {} keys with {} elements, {} bytes",
            loaded.keys,
            loaded.elements,
            loaded.bytes
        );
        for loss in loaded.losses() {
            log::warn!("link to {addr}: {loss}");
        }
        Ok(transfer)
    }

    /// Runs all complete commands and transactions that have arrived; returns whether
    /// the master asked for an acknowledgement.
    pub(super) fn run_received(
        &mut self,
        peer: &mut Peer<'_>,
        stream: &mut Stream,
    ) -> Result<bool, End> {
        self.executor.start_tick();
        let began_at = stream.next;
        let mut input = std::mem::take(&mut peer.input);
        let mut used = 0;
        let done = self.run_stream(stream, input.waiting(), &mut used);
        input.consume(used);
        let here = input.waiting().len();
        peer.input = input;
        let (asked, no_room) = match done {
            Err(End::Apply(ApplyError::NoRoom)) => {
                stream.restart_transaction();
                (false, true)
            }
            done => (done?, false),
        };
        if !no_room {
            let part = Part::of(&stream.parser, here.saturating_sub(stream.begun));
            peer.note_held(&self.session.info, &part)?;
        }
        let waiting = here as u64;
        match stream.next == began_at {
            true => self.commit()?,
            false => self.commit_stream(stream)?,
        }
        self.set_waiting_for_room(no_room);
        let link = &self.server.replication.link;
        link.stream_read
            .store(stream.next + waiting, Ordering::Relaxed);
        Ok(asked)
    }

    fn commit_stream(&mut self, stream: &Stream) -> Result<(), End> {
        self.executor.note_reached(&self.session, stream.next)?;
        self.commit()?;
        let link = &self.server.replication.link;
        link.stream_next.store(stream.next, Ordering::Relaxed);
        link.applied_ms.store(clock::unix_ms(), Ordering::Relaxed);
        Ok(())
    }

    fn run_stream(
        &mut self,
        stream: &mut Stream,
        input: &[u8],
        used: &mut usize,
    ) -> Result<bool, End> {
        let mut asked = false;
        loop {
            let rest = input.get(*used + stream.begun..).unwrap_or_default();
            let consumed = match stream.parser.advance(rest, &LIMITS) {
                Ok(Progress::Complete { consumed }) => consumed,
                Ok(Progress::Incomplete) if input.len() - *used > MAX_TRANSACTION => {
                    // A single command may be longer.
                    return match stream.in_transaction {
                        true => Err(End::Transaction(MAX_TRANSACTION)),
                        false => Ok(asked),
                    };
                }
                Ok(Progress::Incomplete) => return Ok(asked),
                Err(_) => return Err(End::Malformed),
            };
            let args: Words<'_> = stream.parser.args_of(rest).collect();
            stream.parser.reset();
            stream.begun += consumed;
            let is = |word: &[u8]| {
                args.first()
                    .is_some_and(|name| name.eq_ignore_ascii_case(word))
            };
            if stream.in_transaction && !is(b"exec") {
                continue;
            }
            let next = stream.next + stream.begun as u64;
            if is(b"multi") {
                stream.in_transaction = true;
                continue;
            } else if is(b"exec") {
                stream.in_transaction = false;
                let whole = input.get(*used..*used + stream.begun).unwrap_or_default();
                let input = input.get(*used + stream.begun..).unwrap_or_default();
                self.run_transaction(whole, input, next)?;
            } else if is(b"replconf") {
                asked = true;
            } else if is(b"ping") {
                if self.server.replication.has_replicas() {
                    self.executor.log_ping(&self.session)?;
                }
            } else if !args.is_empty() {
                let input = input.get(*used + stream.begun..).unwrap_or_default();
                self.apply_ahead_of(input, &[&args], next)?;
            }
            self.ahead.passed(stream.begun);
            *used += std::mem::take(&mut stream.begun);
            stream.next = next;
            if self.executor.is_full() {
                self.commit_stream(stream)?;
                self.executor.start_tick();
            }
        }
    }

    /// Runs the commands of a transaction, from its MULTI to its EXEC; `input` follows it.
    fn run_transaction(&mut self, whole: &[u8], input: &[u8], next: Position) -> Result<(), End> {
        let mut parser = Parser::new();
        let mut commands: Vec<Words<'_>> = Vec::new();
        let mut rest = whole;
        while let Ok(Progress::Complete { consumed }) = parser.advance(rest, &LIMITS) {
            commands.push(parser.args_of(rest).collect());
            parser.reset();
            rest = rest.get(consumed..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
        }
        // No master sends an EXEC without MULTI.
        let (Some(_exec), false) = (commands.pop(), commands.is_empty()) else {
            return Err(End::Malformed);
        };
        let inner: Vec<&[&[u8]]> = commands.iter().skip(1).map(SmallVec::as_slice).collect();
        self.apply_ahead_of(input, &inner, next)
    }

    /// Applies commands that `input` follows.
    fn apply_ahead_of(
        &mut self,
        input: &[u8],
        commands: &[&[&[u8]]],
        next: Position,
    ) -> Result<(), End> {
        let db = self.session.db();
        let (session, ahead) = (&mut self.session, &mut self.ahead);
        let ask = |executor: &Executor| ahead.commands(executor, db, input);
        Ok(self.executor.apply_commands(session, commands, next, ask)?)
    }

    /// Sends the offsets up to which the stream is applied and synced to disk.
    pub(super) fn acknowledge_stream(
        &self,
        peer: &mut Peer<'_>,
        stream: &mut Stream,
    ) -> Result<(), End> {
        if !stream.acknowledges {
            return Ok(());
        }
        let engine = &self.server.engine;
        if engine.synced_position() >= engine.binlog.range().next_position {
            stream.synced = stream.next;
        }
        let mut out = Vec::new();
        let ack = wire::Ack {
            applied: stream.next,
            synced: Some(stream.synced),
        };
        wire::ack(&mut out, &ack);
        Ok(peer.socket.write_all(&out)?)
    }
}

/// The error for a refusal, with the master's text.
pub(super) fn refused(what: &'static str, answer: &str) -> End {
    End::Refused(what, answer.trim_start_matches('-').to_owned())
}

/// Waits until the master begins to send its file.
fn transfer(peer: &mut Peer<'_>) -> Result<Transfer, End> {
    let line = peer.line()?;
    let Some(length) = line.strip_prefix('$') else {
        return Err(refused("a full sync", &line));
    };
    if let Some(mark) = length.strip_prefix("EOF:") {
        let mark = mark.as_bytes().try_into().map_err(|_| End::Malformed)?;
        return Ok(Transfer::Mark(mark));
    }
    let length = num::parse_u64(length.as_bytes()).ok_or(End::Malformed)?;
    Ok(Transfer::Length(length))
}

/// The master's file, while it arrives.
struct File<'f, 'p, 's> {
    peer: &'f mut Peer<'p>,
    follower: &'f Follower<'s>,
    /// Most bytes left to read.
    left: u64,
    /// Bytes read so far.
    arrived: u64,
    /// When the master was last sent a newline.
    kept_alive_at: Instant,
    /// Why reading ended.
    end: Option<End>,
}

impl File<'_, '_, '_> {
    fn fill(&mut self) -> Result<(), End> {
        while self.peer.input.waiting().is_empty() {
            self.follower.check_wanted()?;
            if self.kept_alive_at.elapsed() >= KEEP_ALIVE_EVERY {
                self.kept_alive_at = Instant::now();
                self.peer.socket.write_all(b"\n")?;
            }
            if self.peer.read()? {
                self.follower.note_received();
            }
        }
        Ok(())
    }

    /// Checks that only the end mark follows the data set.
    fn expect_end(&mut self, transfer: &Transfer) -> Result<(), End> {
        let Transfer::Mark(mark) = transfer else {
            return match self.left {
                0 => Ok(()),
                _ => Err(End::Malformed),
            };
        };
        let mut end = [0; MARK_LEN];
        if let Err(error) = self.read_exact(&mut end) {
            return Err(self.end.take().unwrap_or_else(|| error.into()));
        }
        match end == *mark {
            true => Ok(()),
            false => Err(End::Malformed),
        }
    }
}

impl Read for File<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for File<'_, '_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Ok(&[]);
        }
        if let Err(end) = self.fill() {
            self.end = Some(end);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let waiting = self.peer.input.waiting();
        let n = waiting
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        Ok(waiting.get(..n).unwrap_or_default())
    }

    fn consume(&mut self, n: usize) {
        self.peer.input.consume(n);
        self.left = self.left.saturating_sub(n as u64);
        self.arrived += n as u64;
    }
}

/// A full sync in progress.
struct Loading<'l> {
    server: &'l Server,
    info: &'l ClientInfo,
    libraries: Libraries,
}

impl Load for Loading<'_> {
    fn report(&mut self, so_far: &Loaded) {
        let link = &self.server.replication.link;
        link.sync_bytes_here.store(so_far.bytes, Ordering::Relaxed);
        link.sync_keys_here.store(so_far.keys, Ordering::Relaxed);
        self.info
            .active_ms
            .store(clock::unix_ms(), Ordering::Relaxed);
    }

    fn add_library(&mut self, code: &[u8]) -> Result<Vec<u8>, String> {
        let name = add_library(&mut self.libraries, code);
        name.map_err(|error| error.to_string())
    }
}
