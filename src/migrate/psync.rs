//! The source as a replica sees it: an RDB file of its data set, then its stream.

use super::conn::{Conn, open, refusal, silent};
use super::error::{Error, Result};
use super::options::Endpoint;
use super::stats::Stats;
use super::throttle::Throttle;
use super::{Stop, sleep};
use crate::base::num;
use crate::commands::replication::SET_TIMES;
use crate::resp::Input;
use crate::resp::encode::command;
use crate::sys::pause::is_pause;
use crate::tls::Link;
use parking_lot::FairMutex;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the source may be silent. By default it sends a PING every ten seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// How often an acknowledgement is sent.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Longest line of a reply in the handshake, in bytes.
const MAX_LINE: usize = 4096;
/// The version of Valkey whose RDB files are understood. From 9 on, Valkey chooses the
/// format by the version that a replica announces; the format for older replicas cannot
/// hold field expiry.
const VALKEY_VERSION: &str = "9.0.0";
/// Length of the end mark of a file whose length is not announced.
pub const MARK_LEN: usize = 40;

/// A position in a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The history's id.
    pub id: String,
    /// The offset of the next byte, as PSYNC asks for it.
    pub next: u64,
    /// The DB selected at that position.
    pub db: u64,
}

/// The source's answer to PSYNC.
pub enum Answer {
    /// The stream continues at the requested position, under this id.
    Continue(String),
    /// The whole data set follows, then the stream from this position.
    Full(Position, Transfer),
}

/// How the end of a file is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// After this many bytes.
    Length(u64),
    /// By this mark.
    Mark([u8; MARK_LEN]),
}

/// A source of commands.
pub trait Feed {
    /// Bytes received and not consumed.
    fn waiting(&self) -> &[u8];

    /// Consumes the first `n` of them.
    fn consume(&mut self, n: usize);

    /// Waits briefly for more; false at the end of the source.
    fn fill(&mut self) -> Result<bool>;

    /// The new id of the history, if it has changed since the last call.
    fn new_id(&mut self) -> Option<String> {
        None
    }
}

/// The connection to the source, after the handshake.
pub struct Stream {
    /// The thread that acknowledges writes to it while another reads.
    socket: Arc<FairMutex<Link>>,
    stop: Stop,
    throttle: Option<Throttle>,
    stats: Arc<Stats>,
    input: Input,
    received_at: Instant,
}

impl Stream {
    /// Asks the source for the stream after `from`, or for a full sync.
    pub fn psync(
        endpoint: &Endpoint,
        from: Option<&Position>,
        mb_per_s: Option<f64>,
        stop: &Stop,
        stats: &Arc<Stats>,
    ) -> Result<(Stream, Answer)> {
        let mut stream = Stream {
            socket: Arc::new(FairMutex::new(open(endpoint)?)),
            stop: stop.clone(),
            throttle: mb_per_s.map(Throttle::new),
            stats: stats.clone(),
            input: Input::default(),
            received_at: Instant::now(),
        };
        let mut requests: Vec<Vec<&str>> = Vec::new();
        if let Some(password) = &endpoint.password {
            let mut auth = vec!["AUTH"];
            auth.extend(endpoint.user.as_deref());
            auth.push(password);
            requests.push(auth);
        }
        // No listening-port: the tool does not listen, and a source may connect to a
        // replica that announces a port.
        let capabilities = ["eof", "psync2", SET_TIMES];
        let capabilities = capabilities.iter().flat_map(|known| ["capa", known]);
        requests.push(["REPLCONF"].into_iter().chain(capabilities).collect());
        for args in requests {
            let answer = stream.ask(&args)?;
            if let Some(error) = answer.strip_prefix('-') {
                let error = refusal(endpoint, &args, error.to_owned());
                return Err(match args.first() {
                    Some(&"REPLCONF") => with_hint(error),
                    _ => error,
                });
            }
        }
        // A server that does not know this option answers with an error, which is
        // ignored.
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
        self.socket.lock().write_all(&out).map_err(Error::Source)?;
        self.line()
    }

    /// The next line that is not empty: a busy source sends newlines to keep the
    /// connection alive.
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

    /// Reads the end mark of a file of which `read` bytes were read.
    pub(super) fn end_transfer(&mut self, transfer: Transfer, read: u64) -> Result<()> {
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

    /// Returns bytes that were read and come before everything read from now on.
    pub(super) fn put_back(&mut self, input: Input) {
        debug_assert!(self.input.waiting().is_empty());
        self.input = input;
    }

    /// Converts a read error.
    fn classify(&self, error: io::Error) -> Error {
        match self.stop.is_wanted() {
            true => Error::Stopped,
            false => Error::Source(error),
        }
    }

    /// Starts a thread that sends an acknowledgement once a second.
    pub fn acknowledge(&self, applied: Arc<AtomicU64>) -> Result<Acknowledger> {
        let socket = self.socket.clone();
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::Builder::new().name("ack".into());
        let thread = thread.spawn(move || {
            while !ends.load(Ordering::Acquire) {
                let offset = applied.load(Ordering::Acquire).saturating_sub(1);
                let mut out = Vec::new();
                let offset = offset.to_string();
                command(&mut out, &["REPLCONF", "ACK", &offset]);
                if let Err(error) = socket.lock().write_all(&out) {
                    // The reading side reports the broken connection.
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

/// Checks that the whole file was read.
pub(super) fn check_len(length: u64, read: u64) -> Result<()> {
    match length == read {
        true => Ok(()),
        false => Err(Error::Refused(format!(
            "the source's file has {length} bytes, and its data set ends after {read}"
        ))),
    }
}

/// Adds a hint to `--scan`, which works with a source that refuses PSYNC.
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
        match self.input.read_from(&mut *self.socket.lock(), step) {
            Ok(0) => Err(Error::Source(io::Error::new(
                ErrorKind::ConnectionReset,
                "it closed the connection",
            ))),
            Ok(n) => {
                self.received_at = Instant::now();
                self.stats.bytes_in.fetch_add(n as u64, Ordering::Relaxed);
                if let Some(throttle) = &mut self.throttle {
                    sleep(throttle.passed(n, self.received_at), &self.stop);
                }
                Ok(true)
            }
            Err(error) if is_pause(&error) && self.received_at.elapsed() < SILENCE => Ok(true),
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
    /// Sends an acknowledgement now.
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

/// A stream whose source receives acknowledgements.
pub struct Acknowledged {
    stream: Stream,
    _acknowledger: Acknowledger,
}

impl Acknowledged {
    /// Joins both.
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

/// The offset up to which the source has written its stream.
pub(super) fn source_offset(conn: &mut Conn) -> Result<u64> {
    let info = conn.info("replication")?;
    let names = ["master_repl_offset", "slave_repl_offset"];
    let offsets = names.iter().filter_map(|name| info.number(name));
    Ok(offsets.max().unwrap_or(0))
}
