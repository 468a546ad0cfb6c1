//! An HTTP client that does what it is told.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::support::DEADLINE;

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// The lines of the head after the first, in lower case.
    pub head: Vec<String>,
    pub body: String,
}

impl Response {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .head
            .iter()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.next()
    }
}

pub trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// A connection.
pub struct Http(BufReader<Box<dyn Stream>>);

impl Http {
    pub fn open(port: u16) -> io::Result<Http> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Http(BufReader::new(Box::new(stream))))
    }

    pub fn open_unix(path: &Path) -> io::Result<Http> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Http(BufReader::new(Box::new(stream))))
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Reads a response; `with_body`: not one to HEAD.
    pub fn read(&mut self, with_body: bool) -> io::Result<Response> {
        let mut line = String::new();
        let mut next = |stream: &mut BufReader<Box<dyn Stream>>| {
            line.clear();
            match stream.read_line(&mut line)? {
                0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                _ => Ok(line.trim_end_matches("\r\n").to_owned()),
            }
        };
        let first = next(&mut self.0)?;
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {first}"));
        let mut head = Vec::new();
        loop {
            match next(&mut self.0)? {
                line if line.is_empty() => break,
                line => head.push(line.to_ascii_lowercase()),
            }
        }
        let mut response = Response {
            status,
            head,
            body: String::new(),
        };
        if with_body {
            let length = response.header("content-length").expect("a length");
            let mut body = vec![0; length.parse().unwrap()];
            self.0.read_exact(&mut body)?;
            response.body = String::from_utf8(body).unwrap();
        }
        Ok(response)
    }

    /// Asks for a path.
    pub fn get(&mut self, path: &str, headers: &str) -> io::Result<Response> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n").as_bytes())?;
        self.read(true)
    }

    /// Whether the server closes the connection, after what it may still send.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}
