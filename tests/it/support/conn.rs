//! A raw, blocking connection: bytes out, decoded replies in.
//!
//! It adds nothing of its own (no handshake, no retry), so that a test can
//! send what no client library would.

use kedis::tls::{Connector, Link};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::resp::{Value, read_value};

/// Time limit for a read or a write, after which the reply counts as lost.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Link),
}

impl Stream {
    fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.set_read_timeout(Some(limit)),
            Stream::Unix(s) => s.set_read_timeout(Some(limit)),
            Stream::Tls(s) => s.socket().set_read_timeout(Some(limit)),
        }
    }

    fn set_write_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.set_write_timeout(Some(limit)),
            Stream::Unix(s) => s.set_write_timeout(Some(limit)),
            Stream::Tls(s) => s.socket().set_write_timeout(Some(limit)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(buf),
            Stream::Unix(s) => s.read(buf),
            Stream::Tls(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write(buf),
            Stream::Unix(s) => s.write(buf),
            Stream::Tls(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
            Stream::Tls(s) => s.flush(),
        }
    }
}

/// One client connection.
pub struct Conn {
    input: BufReader<Stream>,
}

/// A command's arguments as owned bytes; `"HSET h f v"` split at blanks.
pub fn args(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace()
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// Appends a command in the protocol's array form.
pub fn encode(out: &mut Vec<u8>, command: &[impl AsRef<[u8]>]) {
    out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for arg in command {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

impl Conn {
    /// Connects over TCP.
    pub fn open(address: &str) -> io::Result<Conn> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Conn::over(Stream::Tcp(stream))
    }

    /// Connects to a unix socket.
    pub fn open_unix(path: &Path) -> io::Result<Conn> {
        Conn::over(Stream::Unix(UnixStream::connect(path)?))
    }

    /// Connects in TLS.
    pub fn open_tls(address: &str, connector: &Connector) -> io::Result<Conn> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        let link = connector.connect(stream, "kedis", REPLY_TIMEOUT, || true)?;
        Conn::over(Stream::Tls(link))
    }

    fn over(stream: Stream) -> io::Result<Conn> {
        stream.set_read_timeout(REPLY_TIMEOUT)?;
        stream.set_write_timeout(REPLY_TIMEOUT)?;
        Ok(Conn {
            input: BufReader::with_capacity(64 << 10, stream),
        })
    }

    /// Sets the timeout of later reads.
    pub fn set_timeout(&mut self, limit: Duration) {
        self.input.get_ref().set_read_timeout(limit).unwrap();
    }

    /// A second handle on a TCP connection, for writing from another thread.
    pub fn writer(&self) -> TcpStream {
        match self.input.get_ref() {
            Stream::Tcp(s) => s.try_clone().unwrap(),
            Stream::Unix(_) | Stream::Tls(_) => panic!("only TCP connections are cloned"),
        }
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.input.get_mut();
        stream.write_all(bytes)?;
        stream.flush()
    }

    /// Sends one command, reads nothing.
    pub fn send(&mut self, command: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut wire = Vec::new();
        encode(&mut wire, command);
        self.send_raw(&wire)
    }

    /// Reads one reply.
    pub fn read(&mut self) -> io::Result<Value> {
        read_value(&mut self.input)
    }

    /// Sends a command and reads its reply; a broken connection is
    /// `Value::Lost`.
    pub fn call(&mut self, command: &[impl AsRef<[u8]>]) -> Value {
        match self.send(command).and_then(|()| self.read()) {
            Ok(value) => value,
            Err(error) => Value::Lost(error.to_string()),
        }
    }

    /// `call` for a line split at blanks.
    pub fn cmd(&mut self, line: &str) -> Value {
        self.call(&args(line))
    }

    /// `cmd`; panics if the reply is an error or lost.
    pub fn must(&mut self, line: &str) -> Value {
        let reply = self.cmd(line);
        assert!(
            !matches!(reply, Value::Error(_) | Value::Lost(_)),
            "{line}: {reply:?}"
        );
        reply
    }

    /// A numeric field of INFO.
    pub fn info_number(&mut self, section: &str, field: &str) -> u64 {
        let text = self.info_text(section, field);
        text.parse().expect("a number")
    }

    /// A field of INFO.
    pub fn info_text(&mut self, section: &str, field: &str) -> String {
        let info = self.must(&format!("INFO {section}")).text();
        let prefix = format!("{field}:");
        let text = info.lines().find_map(|line| line.strip_prefix(&prefix));
        text.expect("a field").to_owned()
    }

    /// Sends all commands in one write and then reads all replies.
    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Value> {
        let mut wire = Vec::new();
        for command in commands {
            encode(&mut wire, command);
        }
        let mut lost = self.send_raw(&wire).err().map(|e| e.to_string());
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            // Replies that were sent before the connection broke are still read.
            match self.read() {
                Ok(value) => replies.push(value),
                Err(error) => {
                    let why = lost.take().unwrap_or_else(|| error.to_string());
                    replies.push(Value::Lost(why));
                }
            }
        }
        replies
    }

    /// Switches to RESP3.
    pub fn hello3(&mut self) {
        let reply = self.cmd("HELLO 3");
        assert!(matches!(reply, Value::Map(_)), "HELLO 3: {reply:?}");
    }

    /// Reads raw bytes until the server closes, `stop` returns true, or `limit` has passed. Returns
    /// the bytes and whether the server closed.
    pub fn read_raw_until(
        &mut self,
        limit: Duration,
        mut stop: impl FnMut(&[u8]) -> bool,
    ) -> (Vec<u8>, bool) {
        let start = Instant::now();
        self.set_timeout(Duration::from_millis(100));
        let mut seen = Vec::new();
        let closed = loop {
            match self.input.fill_buf() {
                Ok([]) => break true,
                Ok(bytes) => {
                    let n = bytes.len();
                    seen.extend_from_slice(bytes);
                    self.input.consume(n);
                }
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
            if stop(&seen) || start.elapsed() > limit {
                break false;
            }
        };
        self.set_timeout(REPLY_TIMEOUT);
        (seen, closed)
    }

    /// Whether the server closes within `limit`. Bytes that it sends before are dropped.
    pub fn closed_within(&mut self, limit: Duration) -> bool {
        self.read_raw_until(limit, |_| false).1
    }
}
