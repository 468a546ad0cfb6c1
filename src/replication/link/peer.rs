//! The connection to the master, and why a link ends.

use super::MAX_ARG_LEN;
use crate::exec::ApplyError;
use crate::resp::encode::command;
use crate::resp::{Input, Parser};
use crate::state::{ClientInfo, Server};
use crate::storage::StorageError;
use crate::sys::pause::is_pause;
use crate::tls::Link;
use crate::types::import::ImportError;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Least limit for a master's command in bytes, however little memory there is.
const COMMAND_LEAST_BYTES: usize = 64 << 20;
/// Longest line of a reply in the handshake, in bytes.
const MAX_LINE: usize = 4096;

/// What to do about a refusal, as far as that is known.
fn hint(refusal: &str) -> &'static str {
    match refusal.contains("NOAUTH") || refusal.contains("WRONGPASS") {
        true => {
            ". `masterauth` must be its password here, and on each server that may follow another"
        }
        false => "",
    }
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the master's data set does not load here: {0}")]
    Import(ImportError),
    #[error("the master closed the connection")]
    Closed,
    #[error("nothing arrived from the master for repl-timeout seconds")]
    Silent,
    #[error("the master refused {0}: {1}{hint}", hint = hint(.1))]
    Refused(&'static str, String),
    #[error("the master said what no master says")]
    Malformed,
    #[error("a library of functions of the master does not load here: {0}")]
    Library(crate::commands::Error),
    #[error(
        "the master has more databases than this server, which has {0}: raise `databases` to what the master has"
    )]
    Databases(u16),
    #[error(
        "the master sent a command of at least {bytes} bytes, and maxmemory has room for {most}"
    )]
    TooLong { bytes: usize, most: usize },
    #[error("the master sent a transaction of more than {0} bytes")]
    Transaction(usize),
    #[error("its connection was killed")]
    Killed,
    #[error("another master is wanted")]
    Unwanted,
    #[error(
        "the master's data set cannot be stored beside the old one, {bytes} bytes of it were \
         here: {error}. It is tried again once the disk has more room, and from time to time"
    )]
    NotStored { bytes: u64, error: StorageError },
}

/// Most bytes of one command of a master: an incomplete command must fit into this
/// server's memory.
pub(super) fn longest_command(server: &Server) -> usize {
    let budget = usize::try_from(server.engine.memory_budget()).unwrap_or(usize::MAX);
    budget.clamp(COMMAND_LEAST_BYTES, MAX_ARG_LEN)
}

/// The memory of an incomplete command, in bytes.
pub(super) struct Part {
    /// Its announced length, so far.
    announced: usize,
    here: usize,
    /// The parser's memory for its arguments.
    parser: usize,
}

impl Part {
    /// The command that `parser` is parsing, of which `here` bytes have arrived.
    pub(super) fn of(parser: &Parser, here: usize) -> Part {
        Part {
            announced: parser.announced(),
            here,
            parser: parser.memory(),
        }
    }
}

/// A connection to the master, its input, and when the last bytes arrived.
pub(super) struct Peer<'s> {
    pub(super) socket: Link,
    server: &'s Server,
    pub(super) input: Input,
    pub(super) parser: Parser,
    pub(super) received_at: Instant,
}

impl<'s> Peer<'s> {
    pub(super) fn new(socket: Link, server: &'s Server) -> Peer<'s> {
        Peer {
            socket,
            server,
            input: Input::default(),
            parser: Parser::new(),
            received_at: Instant::now(),
        }
    }

    /// Waits briefly for bytes; returns whether some arrived.
    pub(super) fn read(&mut self) -> Result<bool, End> {
        match self.input.read_from(&mut self.socket, READ_BYTES) {
            Ok(0) => Err(End::Closed),
            Ok(n) => {
                self.received_at = Instant::now();
                let stats = &self.server.stats;
                stats.net_input_bytes.add(n as u64);
                stats.net_repl_input_bytes.add(n as u64);
                Ok(true)
            }
            Err(error) if is_pause(&error) => {
                let timeout = Duration::from_secs(self.server.config.load().repl_timeout_s);
                match self.received_at.elapsed() > timeout {
                    true => Err(End::Silent),
                    false => Ok(false),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Accounts for the memory of received commands, before more is read.
    ///
    /// # Errors
    /// [`End::TooLong`]: the incomplete command is longer than [`longest_command`].
    pub(super) fn note_held(&mut self, info: &ClientInfo, part: &Part) -> Result<(), End> {
        let most = longest_command(self.server);
        let bytes = part.announced.max(part.here);
        if bytes.saturating_add(part.parser) > most {
            return Err(End::TooLong { bytes, most });
        }
        self.input.expect(bytes - part.here);
        let held = self.input.capacity() + part.parser;
        info.query_capacity.store(held, Ordering::Relaxed);
        self.server.client_memory.set(&info.account, held);
        self.server.make_room();
        Ok(())
    }

    /// The timeout for silence starts now.
    pub(super) fn start_timeout(&mut self) {
        self.received_at = Instant::now();
    }

    /// Sends a command.
    pub(super) fn send(&mut self, args: &[&[u8]]) -> Result<(), End> {
        let mut out = Vec::new();
        command(&mut out, args);
        Ok(self.socket.write_all(&out)?)
    }

    /// Sends a command and waits for the line that answers it.
    pub(super) fn ask(&mut self, args: &[&[u8]]) -> Result<String, End> {
        self.send(args)?;
        self.line()
    }

    /// Waits for the next line that is not empty: a busy master sends newlines.
    pub(super) fn line(&mut self) -> Result<String, End> {
        loop {
            let waiting = self.input.waiting();
            if let Some(end) = memchr::memchr(b'\n', waiting) {
                let line = waiting.get(..end).unwrap_or_default().trim_ascii();
                let line = String::from_utf8_lossy(line).into_owned();
                self.input.consume(end + 1);
                if !line.is_empty() {
                    return Ok(line);
                }
                continue;
            }
            if waiting.len() > MAX_LINE {
                return Err(End::Malformed);
            }
            self.read()?;
            if self.server.replication.desired().stop {
                return Err(End::Unwanted);
            }
        }
    }
}
