//! Sources of bytes.

use super::{Error, Result};
use crate::base::hash::crc64;
use std::io::{BufRead, ErrorKind};

/// Bytes by which a string grows at a time, whatever length was announced.
const STEP: u64 = 64 << 10;

const TRUNCATED: Error = Error::Corrupt("it ends too early");

/// A source of bytes.
pub trait Input {
    /// Fills the buffer.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()>;

    /// Appends the next `len` bytes; memory grows with the bytes that are present.
    fn append(&mut self, len: u64, out: &mut Vec<u8>) -> Result<()>;

    /// Called before the reader holds so many bytes at once that are not in the input.
    ///
    /// # Errors
    /// [`Error::NoMemory`], if there is a budget and it has no room for them.
    fn will_hold(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// The next byte.
    fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next `N` bytes.
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }
}

impl Input for &[u8] {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        let (head, tail) = self.split_at_checked(buffer.len()).ok_or(TRUNCATED)?;
        buffer.copy_from_slice(head);
        *self = tail;
        Ok(())
    }

    fn append(&mut self, len: u64, out: &mut Vec<u8>) -> Result<()> {
        let len = usize::try_from(len).map_err(|_| TRUNCATED)?;
        let (head, tail) = self.split_at_checked(len).ok_or(TRUNCATED)?;
        out.extend_from_slice(head);
        *self = tail;
        Ok(())
    }
}

/// The bytes of a payload. What the reader makes of them (strings that are decompressed, lists of
/// parts) can be many times as large, and is announced before it is made.
#[derive(Debug)]
pub struct Lent<'p, H> {
    /// What is not read yet.
    pub rest: &'p [u8],
    /// See [`Input::will_hold`].
    pub will_hold: H,
}

impl<H: FnMut(u64) -> Result<()>> Input for Lent<'_, H> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.rest.fill(buffer)
    }

    fn append(&mut self, len: u64, out: &mut Vec<u8>) -> Result<()> {
        self.rest.append(len, out)
    }

    fn will_hold(&mut self, bytes: u64) -> Result<()> {
        (self.will_hold)(bytes)
    }
}

/// A stream with a checksum of the bytes read.
#[derive(Debug)]
pub struct Stream<R> {
    source: R,
    crc: u64,
    position: u64,
}

impl<R: BufRead> Stream<R> {
    /// A stream from its beginning.
    pub fn new(source: R) -> Stream<R> {
        Stream {
            source,
            crc: 0,
            position: 0,
        }
    }

    /// The checksum of the bytes read so far.
    pub fn crc(&self) -> u64 {
        self.crc
    }

    /// The number of bytes read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The source, at the first byte not read.
    pub fn into_inner(self) -> R {
        self.source
    }
}

impl<R: BufRead> Input for Stream<R> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        match self.source.read_exact(buffer) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(TRUNCATED),
            Err(error) => return Err(error.into()),
        }
        self.crc = crc64(self.crc, buffer);
        self.position += buffer.len() as u64;
        Ok(())
    }

    fn append(&mut self, len: u64, out: &mut Vec<u8>) -> Result<()> {
        let mut left = len;
        while left > 0 {
            let step = left.min(STEP);
            let start = out.len();
            out.resize(start + step as usize, 0);
            let room = out.get_mut(start..).unwrap_or_default();
            self.fill(room)?;
            left -= step;
        }
        Ok(())
    }
}
