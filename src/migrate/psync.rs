//! The source as a replica sees it: a file of its data set, then its stream.

use super::conn::{Conn, is_pause, open, refusal, silent};
use super::error::{Error, Result};
use super::options::Endpoint;
use super::stats::Stats;
use super::throttle::Throttle;
use super::{Stop, sleep};
use crate::base::num;
use crate::resp::Input;
use crate::resp::encode::command;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the source may be silent: it pings every ten seconds by default.
const SILENCE: Duration = Duration::from_secs(60);
/// How often the source is told how far we are.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Longest line of an answer.
const MAX_LINE: usize = 4096;
/// The version of Valkey whose files we read. From 9 on it writes what a replica
/// says that it reads, and a file for older ones cannot hold times of fields.
const VALKEY_VERSION: &str = "9.0.0";
/// Length of the mark around a file whose length nobody knows beforehand.
pub const MARK_LEN: usize = 40;

/// Up to where a history is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The history's id.
    pub id: String,
    /// The offset of the next byte, as PSYNC asks for it.
    pub next: u64,
    /// The DB that the commands from there on mean.
    pub db: u64,
}

/// What the source answers.
pub enum Answer {
    /// It goes on where we are, under this id.
    Continue(String),
    /// It sends all it has, and goes on from that position.
    Full(Position, Transfer),
}

/// How the end of a file is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// After so many bytes.
    Length(u64),
    /// By this mark.
    Mark([u8; MARK_LEN]),
}

/// What commands are read from.
pub trait Feed {
    /// Bytes that have come and are not consumed.
    fn waiting(&self) -> &[u8];

    /// Passes over the first `n` of them.
    fn consume(&mut self, n: usize);

    /// Waits a moment for more; false at the end of all there is.
    fn fill(&mut self) -> Result<bool>;

    /// What the history of all that comes from now on is called, if that has
    /// changed.
    fn new_id(&mut self) -> Option<String> {
        None
    }
}

/// The connection to the source, after the handshake.
pub struct Stream {
    socket: TcpStream,
    stop: Stop,
    throttle: Option<Throttle>,
    stats: Arc<Stats>,
    input: Input,
    heard: Instant,
}

impl Stream {
    /// Asks the source for what comes after `from`, or for all.
    pub fn psync(
        endpoint: &Endpoint,
        from: Option<&Position>,
        mb_per_s: Option<f64>,
        stop: &Stop,
        stats: &Arc<Stats>,
    ) -> Result<(Stream, Answer)> {
        let mut stream = Stream {
            socket: open(endpoint)?,
            stop: stop.clone(),
            throttle: mb_per_s.map(Throttle::new),
            stats: stats.clone(),
            input: Input::default(),
            heard: Instant::now(),
        };
        let mut said: Vec<Vec<&str>> = Vec::new();
        if let Some(password) = &endpoint.password {
            let mut auth = vec!["AUTH"];
            auth.extend(endpoint.user.as_deref());
            auth.push(password);
            said.push(auth);
        }
        // No port: nobody listens here, and a source may ask a replica that has one.
        said.push(vec!["REPLCONF", "capa", "eof", "capa", "psync2"]);
        for args in said {
            let answer = stream.ask(&args)?;
            if let Some(error) = answer.strip_prefix('-') {
                let error = refusal(endpoint, &args, error.to_owned());
                return Err(match args.first() {
                    Some(&"REPLCONF") => with_hint(error),
                    _ => error,
                });
            }
        }
        // Servers that do not know it say so.
        stream.ask(&["REPLCONF", "version", VALKEY_VERSION])?;
        let next = from.map(|from| from.next.to_string());
        let psync = match (from, &next) {
            (Some(from), Some(next)) => vec!["PSYNC", &from.id, next],
            _ => vec!["PSYNC", "?", "-1"],
        };
        let answer = stream.ask(&psync)?;
        let words: Vec<&str> = answer.split(' ').collect();
        let answer = match (words.as_slice(), from) {
            (["+CONTINUE", id, ..], Some(_)) => Answer::Continue((*id).to_owned()),
            (["+CONTINUE"], Some(from)) => Answer::Continue(from.id.clone()),
            (["+FULLRESYNC", id, offset], _) => {
                let offset = num::parse_u64(offset.as_bytes());
                let position = Position {
                    id: (*id).to_owned(),
                    next: offset.ok_or_else(|| no_replication(endpoint, &answer))? + 1,
                    db: 0,
                };
                Answer::Full(position, stream.transfer(endpoint)?)
            }
            _ => {
                return Err(match answer.strip_prefix('-') {
                    Some(error) => with_hint(refusal(endpoint, &psync, error.to_owned())),
                    None => no_replication(endpoint, &answer),
                });
            }
        };
        Ok((stream, answer))
    }

    fn ask(&mut self, args: &[&str]) -> Result<String> {
        let mut out = Vec::new();
        command(&mut out, args);
        self.socket.write_all(&out).map_err(Error::Source)?;
        self.line()
    }

    /// The next line that is not empty: a source that is busy sends empty ones.
    fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', self.waiting()) {
                let line = self.waiting().get(..end).unwrap_or_default();
                let line = String::from_utf8_lossy(line.trim_ascii()).into_owned();
                Feed::consume(self, end + 1);
                if !line.is_empty() {
                    return Ok(line);
                }
                continue;
            }
            if self.waiting().len() > MAX_LINE {
                return Err(Error::Refused(
                    "the source does not speak the Redis protocol: a line without end".into(),
                ));
            }
            self.stop.check()?;
            self.fill()?;
        }
    }

    fn transfer(&mut self, endpoint: &Endpoint) -> Result<Transfer> {
        let line = self.line()?;
        let wrong = || no_replication(endpoint, &line);
        let length = line.strip_prefix('$').ok_or_else(wrong)?;
        if let Some(mark) = length.strip_prefix("EOF:") {
            let mark = mark.as_bytes().try_into().map_err(|_| wrong())?;
            return Ok(Transfer::Mark(mark));
        }
        let length = num::parse_u64(length.as_bytes()).ok_or_else(wrong)?;
        Ok(Transfer::Length(length))
    }

    /// Reads what ends a file of which `read` bytes were read.
    pub fn end_transfer(&mut self, transfer: Transfer, read: u64) -> Result<()> {
        match transfer {
            Transfer::Length(length) => check_len(length, read),
            Transfer::Mark(mark) => {
                let mut end = [0; MARK_LEN];
                self.read_exact(&mut end).map_err(|e| self.classify(e))?;
                match end == mark {
                    true => Ok(()),
                    false => Err(Error::Refused(
                        "the source's file does not end where it should".into(),
                    )),
                }
            }
        }
    }

    /// Gives back what was read and comes before all that is read from now on.
    pub fn put_back(&mut self, input: Input) {
        debug_assert!(self.input.waiting().is_empty());
        self.input = input;
    }

    /// What a failed read means.
    pub fn classify(&self, error: io::Error) -> Error {
        match self.stop.is_wanted() {
            true => Error::Stopped,
            false => Error::Source(error),
        }
    }

    /// Tells the source once a second how far we are, from another thread.
    pub fn acknowledge(&self, applied: Arc<AtomicU64>) -> Result<Acknowledger> {
        let mut socket = self.socket.try_clone().map_err(Error::Source)?;
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::Builder::new().name("ack".into());
        let thread = thread.spawn(move || {
            while !ends.load(Ordering::Acquire) {
                let offset = applied.load(Ordering::Acquire).saturating_sub(1);
                let mut out = Vec::new();
                let offset = offset.to_string();
                command(&mut out, &["REPLCONF", "ACK", &offset]);
                if let Err(error) = socket.write_all(&out) {
                    // The reading side will see it too.
                    log::debug!("acknowledging: {error}");
                    return;
                }
                std::thread::park_timeout(ACK_EVERY);
            }
        });
        Ok(Acknowledger {
            over,
            thread: Some(thread.map_err(Error::Source)?),
        })
    }
}

/// Compares a file's length with what was read of it.
pub fn check_len(length: u64, read: u64) -> Result<()> {
    match length == read {
        true => Ok(()),
        false => Err(Error::Refused(format!(
            "the source's file has {length} bytes, and its data set ends after {read}"
        ))),
    }
}

/// A source that feeds no replicas can be copied otherwise.
fn with_hint(error: Error) -> Error {
    match error {
        Error::Refused(text) => Error::Refused(format!(
            "{text}; a source that feeds no replicas, such as a managed service, is copied with redis_to_kedis --scan"
        )),
        error => error,
    }
}

fn no_replication(endpoint: &Endpoint, answer: &str) -> Error {
    Error::Refused(format!("the {endpoint} answers PSYNC with {answer:?}"))
}

impl Feed for Stream {
    fn waiting(&self) -> &[u8] {
        self.input.waiting()
    }

    fn consume(&mut self, n: usize) {
        self.input.consume(n);
    }

    fn fill(&mut self) -> Result<bool> {
        let step = self.throttle.as_ref().map_or(READ_BYTES, Throttle::step);
        let step = step.min(READ_BYTES);
        match self.input.read_from(&mut self.socket, step) {
            Ok(0) => Err(Error::Source(io::Error::new(
                ErrorKind::ConnectionReset,
                "it closed the connection",
            ))),
            Ok(n) => {
                self.heard = Instant::now();
                self.stats.bytes_in.fetch_add(n as u64, Ordering::Relaxed);
                if let Some(throttle) = &mut self.throttle {
                    sleep(throttle.passed(n, self.heard), &self.stop);
                }
                Ok(true)
            }
            Err(error) if is_pause(&error) && self.heard.elapsed() < SILENCE => Ok(true),
            Err(error) if is_pause(&error) => Err(Error::Source(silent(SILENCE))),
            Err(error) => Err(Error::Source(error)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        Feed::consume(self, n);
        Ok(n)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.waiting().is_empty() {
            if self.stop.is_wanted() {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            match self.fill() {
                Ok(_) => {}
                Err(Error::Source(error)) => return Err(error),
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
        Ok(self.waiting())
    }

    fn consume(&mut self, n: usize) {
        Feed::consume(self, n);
    }
}

/// Stops acknowledging when it is dropped.
pub struct Acknowledger {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acknowledger {
    /// Says it now.
    pub fn now(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Acknowledger {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// A stream that the source is told of how far the target is.
pub struct Acknowledged {
    stream: Stream,
    _acknowledger: Acknowledger,
}

impl Acknowledged {
    /// Both together.
    pub fn new(stream: Stream, acknowledger: Acknowledger) -> Acknowledged {
        Acknowledged {
            stream,
            _acknowledger: acknowledger,
        }
    }
}

impl Feed for Acknowledged {
    fn waiting(&self) -> &[u8] {
        self.stream.waiting()
    }

    fn consume(&mut self, n: usize) {
        Feed::consume(&mut self.stream, n);
    }

    fn fill(&mut self) -> Result<bool> {
        self.stream.fill()
    }
}

/// Up to which offset the source has logged.
pub fn source_offset(conn: &mut Conn) -> Result<u64> {
    let info = conn.info("replication")?;
    let names = ["master_repl_offset", "slave_repl_offset"];
    let offsets = names.iter().filter_map(|name| info.number(name));
    Ok(offsets.max().unwrap_or(0))
}
