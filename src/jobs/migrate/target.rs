//! A connection to the target server of MIGRATE.

use crate::resp::encode::{argument_head, command_head};
use crate::state::Server;
use crate::state::migrations::{Credentials, Migration};
use crate::sys::resolve::resolve;
use crate::tls::Link;
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a blocked step checks whether the server stops.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// Bytes per write.
const STEP_BYTES: usize = 64 << 10;
/// Longest line that is accepted as a reply.
const MAX_LINE: usize = 64 << 10;

/// The key of the connection cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: String,
    port: u16,
    credentials: Option<Credentials>,
}

impl Address {
    /// The target of a migration.
    pub fn of(migration: &Migration) -> Address {
        Address {
            host: migration.host.clone(),
            port: migration.port,
            credentials: migration.credentials.clone(),
        }
    }
}

/// The step in which an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Connecting.
    Connecting,
    /// Sending a request.
    Writing,
    /// Waiting for a reply.
    Reading,
}

/// Why an exchange failed.
#[derive(Debug)]
pub struct Broken {
    /// The step that failed.
    pub step: Step,
    /// The error of the system.
    pub error: io::Error,
}

impl Broken {
    /// Whether the step timed out.
    pub(super) fn is_timeout(&self) -> bool {
        self.error.kind() == ErrorKind::TimedOut
    }
}

/// A connection to the target server.
#[derive(Debug)]
pub struct Target {
    stream: Link,
    timeout: Duration,
    /// Bytes of later replies that were read already.
    read: Vec<u8>,
    /// The DB that is selected on the target, if known.
    pub db: Option<i64>,
    /// When the connection was last used.
    pub used: Instant,
}

impl Target {
    /// Connects within the migration's timeout.
    pub fn connect(
        server: &Server,
        migration: &Migration,
        stop: &AtomicBool,
    ) -> Result<Target, Broken> {
        let broken = |error| Broken {
            step: Step::Connecting,
            error,
        };
        let deadline = Instant::now() + migration.timeout;
        let is_wanted = || Instant::now() < deadline && !stop.load(Ordering::Relaxed);
        let found = resolve(&migration.host, migration.port, is_wanted);
        if !is_wanted() {
            return Err(broken(ErrorKind::TimedOut.into()));
        }
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        for address in found.map_err(broken)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(broken(ErrorKind::TimedOut.into()));
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let target = Target::options(&stream)
                        .and_then(|()| server.tls.connect(stream, &migration.host, left, is_wanted))
                        .map(|stream| Target::over(stream, migration.timeout));
                    return target.map_err(broken);
                }
                Err(error) => last = error,
            }
        }
        Err(broken(last))
    }

    /// Whether it still speaks as new connections do (`tls-replication`).
    pub(super) fn speaks_as_new_ones(&self, server: &Server) -> bool {
        matches!(self.stream, Link::Tls(_)) == server.tls.is_spoken_to_servers()
    }

    fn options(stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        SockRef::from(stream).set_keepalive(true)?;
        stream.set_read_timeout(Some(CHECK_EVERY))?;
        stream.set_write_timeout(Some(CHECK_EVERY))
    }

    fn over(stream: Link, timeout: Duration) -> Target {
        Target {
            stream,
            timeout,
            read: Vec::new(),
            db: None,
            used: Instant::now(),
        }
    }

    /// Sets the timeout of the next steps.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends one command.
    pub fn send(&mut self, args: &[&[u8]], stop: &AtomicBool) -> Result<(), Broken> {
        let mut head = Vec::new();
        command_head(&mut head, args.len());
        for arg in args {
            argument_head(&mut head, arg.len());
            // A large value is sent without a copy.
            if arg.len() > STEP_BYTES {
                self.write(&head, stop)?;
                self.write(arg, stop)?;
                head.clear();
            } else {
                head.extend_from_slice(arg);
            }
            head.extend_from_slice(b"\r\n");
        }
        self.write(&head, stop)
    }

    fn write(&mut self, mut bytes: &[u8], stop: &AtomicBool) -> Result<(), Broken> {
        let mut deadline = Instant::now() + self.timeout;
        while !bytes.is_empty() {
            let step = bytes.get(..STEP_BYTES).unwrap_or(bytes);
            let done = self.stream.write(step);
            match settle(done, deadline, stop) {
                Ok(None) => {}
                Ok(Some(n)) => {
                    bytes = bytes.get(n..).unwrap_or_default();
                    deadline = Instant::now() + self.timeout;
                }
                Err(error) => {
                    let step = Step::Writing;
                    return Err(Broken { step, error });
                }
            }
        }
        Ok(())
    }

    /// Reads the next reply, which is one line, and returns it without its line end.
    pub fn answer(&mut self, stop: &AtomicBool) -> Result<Vec<u8>, Broken> {
        let broken = |error| Broken {
            step: Step::Reading,
            error,
        };
        let deadline = Instant::now() + self.timeout;
        let mut searched = 0;
        loop {
            let rest = self.read.get(searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', rest) {
                let mut line: Vec<u8> = self.read.drain(..=searched + at).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            searched = self.read.len();
            if searched > MAX_LINE {
                return Err(broken(ErrorKind::InvalidData.into()));
            }
            let mut buffer = [0; 4096];
            let done = self.stream.read(&mut buffer);
            match settle(done, deadline, stop).map_err(broken)? {
                None => {}
                Some(n) => {
                    let arrived = buffer.get(..n).unwrap_or_default();
                    self.read.extend_from_slice(arrived);
                }
            }
        }
    }
}

/// The result of a read or write: `None` means to try again, 0 bytes is the end of the stream.
fn settle(
    done: io::Result<usize>,
    deadline: Instant,
    stop: &AtomicBool,
) -> io::Result<Option<usize>> {
    match done {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(n) => Ok(Some(n)),
        Err(error) => match error.kind() {
            ErrorKind::Interrupted => Ok(None),
            ErrorKind::WouldBlock => {
                if stop.load(Ordering::Acquire) {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                match Instant::now() < deadline {
                    true => Ok(None),
                    false => Err(ErrorKind::TimedOut.into()),
                }
            }
            _ => Err(error),
        },
    }
}
