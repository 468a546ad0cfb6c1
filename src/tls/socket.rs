//! A stream in TLS over another stream, which may block or not.
//!
//! What a caller writes is encrypted at once and kept until the stream below takes it; no more is
//! accepted meanwhile. So a caller that has written everything must still flush
//! ([`TlsSocket::owes`]).

use crate::sys::pause::is_pause;
use rustls::{Connection, Error, InvalidMessage, IoState};
use std::cell::RefCell;
use std::io::{self, Read, Write};

/// Bytes read from the stream below at once: more than a record of the protocol.
const READ_BYTES: usize = 32 << 10;
/// Bytes that are accepted at once, and encrypted bytes that are kept.
const WRITE_BYTES: usize = 64 << 10;

thread_local! {
    /// What is read, before it is decrypted. Sockets that wait have no buffers.
    static ARRIVED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// One end of a connection in TLS.
#[derive(Debug)]
pub struct TlsSocket<T> {
    stream: T,
    end: Connection,
    /// Bytes that were read and not decrypted yet, because the caller had no room.
    kept: Vec<u8>,
    /// Whether the last read of the stream below returned fewer bytes than it might have.
    was_short: bool,
    /// Whether the peer has said that nothing follows, which only a further read tells the caller.
    has_closed: bool,
    /// Whether what the peer has sent is no TLS. It is told nothing, since it would take the words
    /// of this protocol for an answer in its own.
    is_foreign: bool,
}

impl<T: Read + Write> TlsSocket<T> {
    /// An end before the handshake.
    pub(super) fn new(stream: T, mut end: Connection) -> TlsSocket<T> {
        end.set_buffer_limit(Some(WRITE_BYTES));
        TlsSocket {
            stream,
            end,
            kept: Vec::new(),
            was_short: false,
            has_closed: false,
            is_foreign: false,
        }
    }

    /// The stream below.
    pub fn stream(&self) -> &T {
        &self.stream
    }

    /// The stream below.
    pub fn stream_mut(&mut self) -> &mut T {
        &mut self.stream
    }

    /// Whether the two ends have not agreed on keys yet.
    pub fn is_handshaking(&self) -> bool {
        self.end.is_handshaking()
    }

    /// Whether bytes are kept that the stream below has not taken.
    pub fn owes(&self) -> bool {
        !self.is_foreign && self.end.wants_write()
    }

    /// Whether nothing is left to read, after a read that has not filled the caller's buffer.
    /// For a stream below whose readiness is edge-triggered.
    pub fn is_drained(&self) -> bool {
        self.was_short && self.kept.is_empty() && !self.has_closed
    }

    /// The certificate that the peer has shown, in DER.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        let certificates = self.end.peer_certificates()?;
        certificates.first().map(|certificate| certificate.as_ref())
    }

    /// Whether the two ends have gone on with an earlier session.
    #[cfg(test)]
    pub(super) fn is_resumed(&self) -> bool {
        self.end.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// One step of the handshake.
    pub(super) fn handshake(&mut self) -> io::Result<()> {
        self.push()?;
        if self.end.is_handshaking() && self.pull()? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.try_push()
    }

    /// Tells the peer that nothing follows. The stream below takes that now or not at all.
    pub fn close(&mut self) {
        self.end.send_close_notify();
        // The connection ends in any case.
        let _ = self.push();
    }

    /// Reads from the stream below once and decrypts; returns the number of bytes, 0 at the end.
    fn pull(&mut self) -> io::Result<usize> {
        ARRIVED.with_borrow_mut(|arrived| {
            let n = self.stream.read(arrived)?;
            self.was_short = n < arrived.len();
            let mut rest = arrived.get(..n).unwrap_or_default();
            // An empty read is the end of the stream to the other layer too.
            let done = self.decrypt(&mut rest);
            self.kept.extend_from_slice(rest);
            done.map(|()| n)
        })
    }

    /// Decrypts until the bytes are used up or there is something to read.
    fn decrypt(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        loop {
            if self.end.read_tls(bytes)? == 0 {
                // The end of the stream, or bytes after what the peer has called its end.
                *bytes = &[];
            }
            let state = self.end.process_new_packets();
            self.has_closed |= state.as_ref().is_ok_and(IoState::peer_has_closed);
            match state {
                Ok(state) if bytes.is_empty() || state.plaintext_bytes_to_read() > 0 => {
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => {
                    self.is_foreign = self.end.is_handshaking()
                        && error == Error::InvalidMessage(InvalidMessage::InvalidContentType);
                    // The peer is told why; it may be gone.
                    let _ = self.push();
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
    }

    /// Hands what is kept to the stream below.
    fn push(&mut self) -> io::Result<()> {
        while self.owes() {
            if self.end.write_tls(&mut self.stream)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// As [`TlsSocket::push`], when there may be a next time.
    fn try_push(&mut self) -> io::Result<()> {
        match self.push() {
            Err(error) if is_pause(&error) => Ok(()),
            pushed => pushed,
        }
    }
}

impl<T: Read + Write> Read for TlsSocket<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.end.reader().read(into) {
                // The peer has gone without a word: as with TCP, what it has sent is complete
                // only if the protocol above says so.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            // Parts of the handshake, and what a write has left.
            self.try_push()?;
            if self.kept.is_empty() {
                self.pull()?;
            } else {
                let kept = std::mem::take(&mut self.kept);
                let mut rest = kept.as_slice();
                let done = self.decrypt(&mut rest);
                self.kept.extend_from_slice(rest);
                done?;
            }
        }
    }
}

impl<T: Read + Write> Write for TlsSocket<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push()?;
        let some = bytes.get(..WRITE_BYTES).unwrap_or(bytes);
        let n = self.end.writer().write(some)?;
        self.try_push()?;
        match n {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            n => Ok(n),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()?;
        self.stream.flush()
    }
}
