//! Number of DBs of a replica in the Redis dialect.
//!
//! A Redis replica answers SELECT of a missing DB with an error, which its master does
//! not see, and runs the following commands in the previous DB. A missing DB in a data
//! set ends its process. The protocol does not carry the number of DBs, so the master
//! asks the replica on its listening port; a replica that cannot be asked is assumed to
//! have Redis' default. Commands for a DB that a replica may lack are never sent: the
//! link is refused or closed.
//!
//! A peer that announces no port is not a server, but a tool that reads the stream or
//! wants a file.

use crate::commands::named_dbs;
use crate::resp::decode::{Value, decode};
use crate::resp::encode::command;
use crate::resp::{Limits, Parser, Progress};
use crate::state::Server;
use crate::state::replication::{Announcement, Replica};
use crate::storage::DbIndex;
use crate::sys::resolve::resolve;
use crate::tls::Link;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Redis' default of `databases`.
const DEFAULT_DATABASES: u64 = 16;
/// Timeout for connecting, and for all answers together.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of the replica's answers.
const MAX_ANSWER: usize = 64 << 10;
/// Interval after which a repeated refusal of the same replica is logged again.
const LOG_AGAIN_AFTER: Duration = Duration::from_secs(600);
/// Most refusals that are remembered.
const MAX_REFUSALS: usize = 256;

/// Number of DBs of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Databases {
    /// `u64::MAX`: no limit.
    count: u64,
    /// Why it could not be asked, if so.
    unknown: Option<String>,
}

/// The next data are for a DB that the replica may lack.
#[derive(Debug)]
pub(super) struct MissingDb {
    db: DbIndex,
    databases: Databases,
}

impl std::error::Error for MissingDb {}

impl fmt::Display for MissingDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (db, count) = (self.db.0, self.databases.count);
        match &self.databases.unknown {
            None => write!(f, "it has {count} databases, too few for DB {db}"),
            Some(reason) => write!(
                f,
                "it is not known to have DB {db}, as it could not be asked how many databases it has ({reason})"
            ),
        }
    }
}

impl Databases {
    /// No limit.
    pub(super) const ANY: Databases = Databases {
        count: u64::MAX,
        unknown: None,
    };

    /// Asks a replica. Takes up to a few seconds.
    pub(super) fn of(server: &Server, replica: &Replica, announced: &Announcement) -> Databases {
        let is_server = announced.port != 0 && announced.format.is_none();
        if !is_server || announced.rdb_only {
            return Databases::ANY;
        }
        match ask(server, replica) {
            Ok(count) => Databases {
                count,
                unknown: None,
            },
            Err(error) => Databases {
                count: DEFAULT_DATABASES,
                // The text becomes part of a line of the protocol.
                unknown: Some(error.to_string().replace(['\r', '\n'], " ")),
            },
        }
    }

    /// Whether data of this DB may be sent.
    pub(super) fn check(&self, db: DbIndex) -> Result<(), MissingDb> {
        match u64::from(db.0) < self.count {
            true => Ok(()),
            false => Err(MissingDb {
                db,
                databases: self.clone(),
            }),
        }
    }

    /// Whether the commands of a binlog row may be sent, on a server with `databases`
    /// DBs.
    pub(super) fn check_row(&self, databases: u16, row: &[u8]) -> Result<(), MissingDb> {
        if u64::from(databases) <= self.count {
            return Ok(());
        }
        let limits = Limits {
            max_bulk_len: u32::MAX as usize,
            authenticated: true,
        };
        let (mut parser, mut rest) = (Parser::new(), row);
        while let Ok(Progress::Complete { consumed }) = parser.advance(rest, &limits) {
            for db in named_dbs(&parser.args(rest)) {
                self.check(db)?;
            }
            parser.reset();
            rest = rest.get(consumed..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Asks a replica for its number of DBs. The replica has authenticated with this
/// server's password, so it may be sent to it.
fn ask(server: &Server, replica: &Replica) -> io::Result<u64> {
    let wanted = || !server.replication.desired().stop;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in resolve(&replica.ip, replica.port, wanted)? {
        let socket = match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(socket) => socket,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let wanted = || !server.replication.desired().stop;
        let mut peer = Peer {
            socket: server.tls.connect(socket, &replica.ip, TIMEOUT, wanted)?,
            input: Vec::new(),
            until: Instant::now() + TIMEOUT,
        };
        let password = &server.config.load().requirepass;
        return peer.databases(&server.run_id, &password.0);
    }
    Err(last)
}

/// A replica as a client sees it.
struct Peer {
    socket: Link,
    input: Vec<u8>,
    /// When it must have answered everything.
    until: Instant,
}

impl Peer {
    fn databases(&mut self, own_run_id: &str, password: &[u8]) -> io::Result<u64> {
        let mut answer = self.ask(&[b"INFO", b"server"])?;
        if is_locked(&answer) && !password.is_empty() {
            self.ask(&[b"AUTH", password])?;
            answer = self.ask(&[b"INFO", b"server"])?;
        }
        // With address translation another server may listen at this address.
        let info = String::from_utf8_lossy(answer.as_bytes().ok_or_else(|| refusal(&answer))?);
        if info.contains(own_run_id) {
            return Err(io::Error::other("this server itself listens there"));
        }
        let answer = self.ask(&[b"CONFIG", b"GET", b"databases"])?;
        let count = answer.as_slice().and_then(|pair| pair.get(1)?.as_i64());
        let count = count.and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| refusal(&answer))
    }

    fn ask(&mut self, args: &[&[u8]]) -> io::Result<Value> {
        let mut out = Vec::new();
        command(&mut out, args);
        self.socket.socket().set_write_timeout(Some(TIMEOUT))?;
        self.socket.write_all(&out)?;
        let mut some = [0; 4096];
        loop {
            if let Some((answer, len)) = decode(&self.input).map_err(io::Error::other)? {
                self.input.drain(..len);
                return Ok(answer);
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.input.len() > MAX_ANSWER {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.socket().set_read_timeout(Some(left))?;
            match self.socket.read(&mut some)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self
                    .input
                    .extend_from_slice(some.get(..n).unwrap_or_default()),
            }
        }
    }
}

fn is_locked(answer: &Value) -> bool {
    answer
        .as_error()
        .is_some_and(|text| text.starts_with("NOAUTH"))
}

fn refusal(answer: &Value) -> io::Error {
    io::Error::other(
        answer
            .as_error()
            .unwrap_or("an answer that is none")
            .to_owned(),
    )
}

/// When refusals were last logged. A refused replica reconnects every second.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<String, Instant>>);

impl Refusals {
    /// Whether a refusal of this replica for this reason should be logged.
    pub(super) fn should_log(&self, replica: &Replica, reason: &MissingDb) -> bool {
        let refusal = format!("{}:{}: {reason}", replica.ip, replica.port);
        let mut logged = self.0.lock();
        let known = logged.get(&refusal);
        if known.is_some_and(|at| at.elapsed() < LOG_AGAIN_AFTER) {
            return false;
        }
        if logged.len() >= MAX_REFUSALS {
            logged.clear();
        }
        logged.insert(refusal, Instant::now());
        true
    }
}
