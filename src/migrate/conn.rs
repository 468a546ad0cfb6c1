//! A connection to a server: commands out, replies in.

use super::error::{Error, Result};
use super::options::{Endpoint, TARGET};
use super::throttle::Throttle;
use super::{Stop, sleep};
use crate::base::num;
use crate::commands::CROSSES_SLOTS;
use crate::resp::encode::command;
use crate::resp::{Extent, Input, Value, decode};
use crate::sys::pause::is_pause;
use crate::tls::{Connector, Link};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may take to send a reply, or a part of one.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest blocking wait; between two waits the stop flag is checked.
pub const NAP: Duration = Duration::from_millis(100);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Opens a connection and sends nothing.
pub fn open(endpoint: &Endpoint) -> Result<Link> {
    let failed = |error| Error::Connect {
        endpoint: endpoint.to_string(),
        error,
    };
    let address = (endpoint.address.host.as_str(), endpoint.address.port);
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                let set = || {
                    stream.set_nodelay(true)?;
                    socket2::SockRef::from(&stream).set_keepalive(true)?;
                    stream.set_read_timeout(Some(NAP))?;
                    stream.set_write_timeout(Some(NAP))
                };
                set().map_err(failed)?;
                let Some(settings) = &endpoint.tls else {
                    return Ok(Link::Plain(stream));
                };
                let connector = Connector::new(settings).map_err(io::Error::other);
                let host = endpoint.address.host.as_str();
                let shake = |connector: Connector| {
                    connector.connect(stream, host, CONNECT_TIMEOUT, || true)
                };
                return connector.and_then(shake).map_err(failed);
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// The error for a server that has sent nothing for this time.
pub fn silent(time: Duration) -> io::Error {
    let text = format!("it has sent nothing for {} s", time.as_secs());
    io::Error::new(ErrorKind::TimedOut, text)
}

/// A connection to a server.
pub struct Conn {
    endpoint: Endpoint,
    stream: Link,
    stop: Stop,
    throttle: Option<Throttle>,
    reading: Option<Throttle>,
    input: Input,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

impl Conn {
    /// Connects and authenticates.
    pub fn new(endpoint: &Endpoint, stop: &Stop) -> Result<Conn> {
        let mut conn = Conn {
            stream: open(endpoint)?,
            endpoint: endpoint.clone(),
            stop: stop.clone(),
            throttle: None,
            reading: None,
            input: Input::default(),
            sent: 0,
            received: 0,
        };
        if let Some(password) = &endpoint.password {
            let mut auth = vec!["AUTH"];
            auth.extend(endpoint.user.as_deref());
            auth.push(password);
            conn.ask(&auth)?;
        }
        conn.ask(&["PING"])?;
        if endpoint.role == TARGET {
            // A Kedis that is a whole cluster takes transactions and commands of a source without
            // slots then; to others the word means nothing.
            conn.ask_maybe(&["CLIENT", "CAPA", CROSSES_SLOTS])?;
        }
        Ok(conn)
    }

    /// Limits the rate of writes from now on.
    pub fn limit(&mut self, mb_per_s: Option<f64>) {
        self.throttle = mb_per_s.map(Throttle::new);
    }

    /// Limits the rate of reads from now on.
    pub(super) fn limit_reading(&mut self, mb_per_s: Option<f64>) {
        self.reading = mb_per_s.map(Throttle::new);
    }

    fn broken(&self, error: io::Error) -> Error {
        Error::broken(&self.endpoint, error)
    }

    /// Sends bytes.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        let mut since = Instant::now();
        while !bytes.is_empty() {
            self.stop.check_now()?;
            let step = self.throttle.as_ref().map_or(usize::MAX, Throttle::step);
            let part = bytes.get(..step).unwrap_or(bytes);
            match self.stream.write(part) {
                Ok(0) => return Err(self.broken(ErrorKind::WriteZero.into())),
                Ok(n) => {
                    self.sent += n as u64;
                    bytes = bytes.get(n..).unwrap_or_default();
                    since = Instant::now();
                    if let Some(throttle) = &mut self.throttle {
                        sleep(throttle.passed(n, since), &self.stop);
                    }
                }
                Err(error) if is_pause(&error) && since.elapsed() < REPLY_TIMEOUT => {}
                Err(error) if is_pause(&error) => return Err(self.broken(silent(REPLY_TIMEOUT))),
                Err(error) => return Err(self.broken(error)),
            }
        }
        Ok(())
    }

    /// Skips up to `at_most` replies that equal `reply`, without decoding them. Returns
    /// how many.
    pub fn pass(&mut self, reply: &[u8], at_most: usize) -> Result<usize> {
        let mut passed = 0;
        while passed < at_most {
            let waiting = self.input.waiting();
            if waiting.len() < reply.len() && reply.starts_with(waiting) {
                self.fill()?;
                continue;
            }
            if !waiting.starts_with(reply) {
                break;
            }
            self.input.consume(reply.len());
            passed += 1;
        }
        Ok(passed)
    }

    /// The next reply.
    pub fn reply(&mut self) -> Result<Value> {
        let mut extent = Extent::default();
        loop {
            match self.decoded(&mut extent)? {
                Some(value) => return Ok(value),
                None => self.fill()?,
            }
        }
    }

    /// Decodes the next reply if it has arrived completely; `extent` keeps how far it
    /// was parsed.
    fn decoded(&mut self, extent: &mut Extent) -> Result<Option<Value>> {
        let waiting = self.input.waiting();
        let decoded = match extent.find(waiting) {
            Ok(Some(_)) => decode(waiting),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match decoded {
            Ok(Some((value, len))) => {
                self.input.consume(len);
                Ok(Some(value))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(Error::Refused(format!(
                "the {} does not speak the Redis protocol: {error}",
                self.endpoint
            ))),
        }
    }

    /// Reads once.
    fn read_some(&mut self) -> io::Result<()> {
        let step = self.reading.as_ref().map_or(READ_BYTES, Throttle::step);
        let step = step.min(READ_BYTES);
        let n = self.input.read_from(&mut self.stream, step)?;
        if n == 0 {
            let closed = "it closed the connection";
            return Err(io::Error::new(ErrorKind::ConnectionReset, closed));
        }
        self.received += n as u64;
        if let Some(throttle) = &mut self.reading {
            sleep(throttle.passed(n, Instant::now()), &self.stop);
        }
        Ok(())
    }

    /// The next message, if one arrives within [`NAP`].
    pub fn message(&mut self) -> Result<Option<Value>> {
        self.stop.check()?;
        if let Some(value) = self.decoded(&mut Extent::default())? {
            return Ok(Some(value));
        }
        match self.read_some() {
            Ok(()) => self.decoded(&mut Extent::default()),
            Err(error) if is_pause(&error) => Ok(None),
            Err(error) => Err(self.broken(error)),
        }
    }

    fn fill(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            self.stop.check_now()?;
            match self.read_some() {
                Ok(()) => return Ok(()),
                Err(error) if is_pause(&error) && since.elapsed() < REPLY_TIMEOUT => {}
                Err(error) if is_pause(&error) => return Err(self.broken(silent(REPLY_TIMEOUT))),
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// Sends a command and returns its reply.
    ///
    /// # Errors
    /// The reply is an error.
    pub fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value> {
        let mut out = Vec::new();
        command(&mut out, args);
        self.send(&out)?;
        match self.reply()? {
            Value::Error(error) => Err(self.refusal(args, error)),
            value => Ok(value),
        }
    }

    /// Converts an error reply to these arguments into an [`Error`].
    pub fn refusal<A: AsRef<[u8]>>(&self, args: &[A], error: String) -> Error {
        refusal(&self.endpoint, args, error)
    }

    /// Sends a command that a server may not know or may refuse: `None` then.
    pub fn ask_maybe<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Option<Value>> {
        match self.ask(args) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Refused(error)) => {
                log::debug!("{error}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A section of INFO.
    pub fn info(&mut self, section: &str) -> Result<Info> {
        let text = self.ask(&["INFO", section])?;
        let text = text.as_bytes().unwrap_or_default();
        Ok(Info(String::from_utf8_lossy(text).into_owned()))
    }
}

/// Classifies an error reply: the server is not ready, or refuses the command.
pub fn refusal<A: AsRef<[u8]>>(endpoint: &Endpoint, args: &[A], error: String) -> Error {
    let passing = ["LOADING", "NOMASTERLINK", "MASTERDOWN", "BUSY ", "TRYAGAIN"];
    if passing.iter().any(|code| error.starts_with(code)) {
        return Error::NotReady(format!("the {endpoint} is not ready: {error}"));
    }
    let name = args.first().map_or(&b""[..], AsRef::as_ref);
    let name = String::from_utf8_lossy(name);
    Error::Refused(format!("the {endpoint} refused {name}: {error}"))
}

/// Which DBs the target has. If a SELECT in a pipeline fails, the commands after it run
/// in the previous DB, so each DB is tried on a connection of its own.
pub struct Dbs {
    target: Endpoint,
    stop: Stop,
    refused: BTreeMap<u64, Option<String>>,
}

impl Dbs {
    /// No DB of the target is known yet.
    pub fn new(target: &Endpoint, stop: &Stop) -> Dbs {
        Dbs {
            target: target.clone(),
            stop: stop.clone(),
            refused: BTreeMap::new(),
        }
    }

    /// The target's error for SELECT of this DB; `None` if it has the DB.
    pub fn refusal(&mut self, db: u64) -> Result<Option<&str>> {
        let refused = match self.refused.entry(db) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut out = Vec::new();
                command(&mut out, &["SELECT", &db.to_string()]);
                let mut conn = Conn::new(&self.target, &self.stop)?;
                conn.send(&out)?;
                new.insert(match conn.reply()? {
                    Value::Error(error) => Some(error),
                    _ => None,
                })
            }
        };
        Ok(refused.as_deref())
    }
}

/// Fields of INFO.
pub struct Info(String);

impl Info {
    /// The text of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    /// All lines.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.lines()
    }

    /// The number in a field.
    pub fn number(&self, name: &str) -> Option<u64> {
        num::parse_u64(self.get(name)?.as_bytes())
    }
}
