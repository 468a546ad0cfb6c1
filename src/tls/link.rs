//! A connection to another server, in TLS or not, with timeouts.

use super::TlsSocket;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// A connection whose reads and writes block, for as long as the timeouts of its socket say.
#[derive(Debug)]
pub enum Link {
    /// As the bytes are.
    Plain(TcpStream),
    /// In TLS, after the handshake.
    Tls(Box<TlsSocket<TcpStream>>),
}

/// Bytes in both directions.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Link {
    /// The socket, for its options.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Link::Plain(socket) => socket,
            Link::Tls(socket) => socket.stream(),
        }
    }

    fn stream(&mut self) -> &mut dyn Stream {
        match self {
            Link::Plain(socket) => socket,
            Link::Tls(socket) => socket,
        }
    }

    /// The certificate that the peer has shown, in DER.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        match self {
            Link::Plain(_) => None,
            Link::Tls(socket) => socket.peer_certificate(),
        }
    }
}

impl Read for Link {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream().read(into)
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream().flush()
    }
}
