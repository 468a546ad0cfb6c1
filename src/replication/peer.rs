//! The master's end of a connection, and why a link to it ends.

use crate::exec::ApplyError;
use crate::resp::encode::command;
use crate::resp::{Input, Parser};
use crate::state::Server;
use crate::storage::StorageError;
use crate::types::import::ImportError;
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Longest line of an answer in the handshake.
const MAX_LINE: usize = 4096;

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
    #[error("nothing was heard of the master for repl-timeout seconds")]
    Silent,
    #[error("the master refused {0}: {1}")]
    Refused(&'static str, String),
    #[error("the master said what no master says")]
    Malformed,
    #[error("a library of functions of the master does not load here: {0}")]
    Library(crate::commands::Error),
    #[error(
        "the master has more databases than this server, which has {0}: raise `databases` to what the master has"
    )]
    Databases(u16),
    #[error("the master sent a transaction of more than {0} bytes")]
    Transaction(usize),
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

/// See the module.
pub(super) struct Peer<'s> {
    pub(super) socket: TcpStream,
    server: &'s Server,
    pub(super) input: Input,
    pub(super) parser: Parser,
    pub(super) heard: Instant,
}

impl<'s> Peer<'s> {
    pub(super) fn new(socket: TcpStream, server: &'s Server) -> Peer<'s> {
        Peer {
            socket,
            server,
            input: Input::default(),
            parser: Parser::new(),
            heard: Instant::now(),
        }
    }

    /// Waits a moment for bytes; says whether some came.
    pub(super) fn read(&mut self) -> Result<bool, End> {
        match self.input.read_from(&mut self.socket, READ_BYTES) {
            Ok(0) => Err(End::Closed),
            Ok(n) => {
                self.heard = Instant::now();
                let stats = &self.server.stats;
                stats.net_input_bytes.add(n as u64);
                stats.net_repl_input_bytes.add(n as u64);
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

    /// From here on it counts how long the master is silent.
    pub(super) fn begin_to_listen(&mut self) {
        self.heard = Instant::now();
    }

    /// Sends a command.
    pub(super) fn say(&mut self, args: &[&[u8]]) -> Result<(), End> {
        let mut out = Vec::new();
        command(&mut out, args);
        Ok(self.socket.write_all(&out)?)
    }

    /// Sends a command and waits for the line that answers it.
    pub(super) fn ask(&mut self, args: &[&[u8]]) -> Result<String, End> {
        self.say(args)?;
        self.line()
    }

    /// Waits for the next line that is not empty: a master that is busy sends empty ones.
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
