//! A connection to one of the two servers: commands out, replies in.

use super::error::{Error, Result};
use super::options::Endpoint;
use super::throttle::Throttle;
use super::{Stop, sleep};
use crate::base::num;
use crate::resp::{Value, decode};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may be silent that owes a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait in one call: then it is looked whether to stop.
pub const NAP: Duration = Duration::from_millis(100);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Appends a command.
pub fn command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    let mut digits = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(digits.format(args.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    for arg in args {
        argument(out, arg.as_ref());
    }
}

/// Appends one argument.
pub fn argument(out: &mut Vec<u8>, arg: &[u8]) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(arg.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(arg);
    out.extend_from_slice(b"\r\n");
}

/// Opens a connection; nothing is said yet.
pub fn open(endpoint: &Endpoint) -> Result<TcpStream> {
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
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Whether a read or write only took too long to wait for here.
pub fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// See the module.
pub struct Conn {
    endpoint: Endpoint,
    stream: TcpStream,
    stop: Stop,
    throttle: Option<Throttle>,
    input: Vec<u8>,
    start: usize,
    /// Bytes sent.
    pub sent: u64,
}

impl Conn {
    /// Connects and says who we are.
    pub fn new(endpoint: &Endpoint, stop: &Stop) -> Result<Conn> {
        let mut conn = Conn {
            stream: open(endpoint)?,
            endpoint: endpoint.clone(),
            stop: stop.clone(),
            throttle: None,
            input: Vec::new(),
            start: 0,
            sent: 0,
        };
        if let Some(password) = &endpoint.password {
            let mut auth = vec!["AUTH"];
            auth.extend(endpoint.user.as_deref());
            auth.push(password);
            conn.ask(&auth)?;
        }
        conn.ask(&["PING"])?;
        Ok(conn)
    }

    /// Sends no faster than that from here on.
    pub fn limit(&mut self, mb_per_s: Option<f64>) {
        self.throttle = mb_per_s.map(Throttle::new);
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
                Err(error) => return Err(self.broken(error)),
            }
        }
        Ok(())
    }

    /// Passes over what has no need to be looked at: as many replies as there are
    /// that are these bytes. Returns how many.
    pub fn pass(&mut self, reply: &[u8], at_most: usize) -> Result<usize> {
        let mut passed = 0;
        while passed < at_most {
            let waiting = self.input.get(self.start..).unwrap_or_default();
            if waiting.len() < reply.len() && reply.starts_with(waiting) {
                self.fill()?;
                continue;
            }
            if !waiting.starts_with(reply) {
                break;
            }
            self.start += reply.len();
            passed += 1;
        }
        Ok(passed)
    }

    /// The next reply.
    pub fn reply(&mut self) -> Result<Value> {
        loop {
            let waiting = self.input.get(self.start..).unwrap_or_default();
            match decode(waiting) {
                Ok(Some((value, len))) => {
                    self.start += len;
                    return Ok(value);
                }
                Ok(None) => self.fill()?,
                Err(error) => {
                    return Err(Error::Refused(format!(
                        "the {} does not speak the Redis protocol: {error}",
                        self.endpoint
                    )));
                }
            }
        }
    }

    fn fill(&mut self) -> Result<()> {
        if self.start == self.input.len() {
            self.input.clear();
            self.input.shrink_to(4 * READ_BYTES);
            self.start = 0;
        } else if self.start > READ_BYTES {
            self.input.drain(..self.start);
            self.start = 0;
        }
        let since = Instant::now();
        let mut buffer = [0; READ_BYTES];
        loop {
            self.stop.check_now()?;
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    let closed = "it closed the connection";
                    return Err(self.broken(io::Error::new(ErrorKind::ConnectionReset, closed)));
                }
                Ok(n) => {
                    self.input
                        .extend_from_slice(buffer.get(..n).unwrap_or_default());
                    return Ok(());
                }
                Err(error) if is_pause(&error) && since.elapsed() < REPLY_TIMEOUT => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// Sends a command and returns its reply.
    ///
    /// # Errors
    /// It is an error too.
    pub fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value> {
        let mut out = Vec::new();
        command(&mut out, args);
        self.send(&out)?;
        match self.reply()? {
            Value::Error(error) => Err(refusal(&self.endpoint, args, error)),
            value => Ok(value),
        }
    }

    /// A section of INFO.
    pub fn info(&mut self, section: &str) -> Result<Info> {
        let text = self.ask(&["INFO", section])?;
        let text = text.as_bytes().unwrap_or_default();
        Ok(Info(String::from_utf8_lossy(text).into_owned()))
    }
}

/// What an error says about a server: that it is not ready, or that it refuses.
pub fn refusal<A: AsRef<[u8]>>(endpoint: &Endpoint, args: &[A], error: String) -> Error {
    let passing = ["LOADING", "NOMASTERLINK", "MASTERDOWN", "BUSY ", "TRYAGAIN"];
    if passing.iter().any(|code| error.starts_with(code)) {
        return Error::NotReady(format!("the {endpoint} is not ready: {error}"));
    }
    let name = args.first().map_or(&b""[..], AsRef::as_ref);
    let name = String::from_utf8_lossy(name);
    Error::Refused(format!("the {endpoint} refused {name}: {error}"))
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

    /// A number.
    pub fn number(&self, name: &str) -> Option<u64> {
        num::parse_u64(self.get(name)?.as_bytes())
    }
}
