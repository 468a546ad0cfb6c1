//! An accepted socket, whatever it speaks.

use crate::tls::{Stream, TlsSocket};
use mio::event::Source;
use mio::{Interest, Registry, Token};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// A socket of a client. Reads and writes never block.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(mio::net::TcpStream),
    /// A Unix socket.
    Unix(mio::net::UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsSocket<mio::net::TcpStream>>),
}

impl Socket {
    /// Registers the socket with a poll, for reads and writes.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(self.source(), token, interest)
    }

    /// Removes the socket from a poll.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Unix(socket) => socket,
            Socket::Tls(socket) => socket.stream_mut(),
        }
    }

    fn stream(&mut self) -> &mut dyn Stream {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Unix(socket) => socket,
            Socket::Tls(socket) => socket,
        }
    }

    fn tls(&self) -> Option<&TlsSocket<mio::net::TcpStream>> {
        match self {
            Socket::Tcp(_) | Socket::Unix(_) => None,
            Socket::Tls(socket) => Some(socket),
        }
    }

    /// The TCP socket, if it is one.
    pub fn tcp(&self) -> Option<&mio::net::TcpStream> {
        match self {
            Socket::Tcp(socket) => Some(socket),
            Socket::Tls(socket) => Some(socket.stream()),
            Socket::Unix(_) => None,
        }
    }

    /// Whether the socket is empty, judged by a read that returned `n` of `asked` bytes. New
    /// data then raise another event.
    pub fn is_drained(&self, n: usize, asked: usize) -> bool {
        n < asked && self.tls().is_none_or(TlsSocket::is_drained)
    }

    /// Whether written bytes wait here for the system to take them.
    pub fn owes(&self) -> bool {
        self.tls().is_some_and(TlsSocket::owes)
    }

    /// Whether the two ends have yet to agree on how to speak.
    pub fn is_handshaking(&self) -> bool {
        self.tls().is_some_and(TlsSocket::is_handshaking)
    }

    /// The certificate that the peer has shown, in DER.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.tls()?.peer_certificate()
    }

    /// Tells the peer that nothing follows, where the protocol has words for it.
    pub fn close(&mut self) {
        if let Socket::Tls(socket) = self {
            socket.close();
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream().read(into)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream().flush()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tls(socket) => socket.stream().as_fd(),
        }
    }
}
