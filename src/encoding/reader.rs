//! A cursor over stored bytes that can fail but not panic.

use super::Corrupt;

/// Takes integers and byte strings off the front of a row.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`; errors name the row as `what`.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Reader { rest: bytes, what }
    }

    /// The bytes not yet taken.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all is taken.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Corrupt> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(Corrupt(self.what))?;
        self.rest = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (head, tail) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Corrupt(self.what))?;
        self.rest = tail;
        Ok(*head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Corrupt> {
        self.array::<1>().map(|[b]| b)
    }

    /// The next four bytes as a number.
    pub fn u32(&mut self) -> Result<u32, Corrupt> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes as a number.
    pub fn u64(&mut self) -> Result<u64, Corrupt> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length as [`put_len`] wrote it.
    pub fn len(&mut self) -> Result<usize, Corrupt> {
        match self.u8()? {
            0xFF => Ok(self.u32()? as usize),
            short => Ok(usize::from(short)),
        }
    }

    /// A byte string as [`put_bytes`] wrote it.
    pub fn bytes(&mut self) -> Result<&'a [u8], Corrupt> {
        let len = self.len()?;
        self.take(len)
    }
}

/// The encoding of a length: one byte below 255, else `FF` and four bytes.
pub fn len_prefix(len: usize, buffer: &mut [u8; 5]) -> &[u8] {
    match u8::try_from(len) {
        Ok(short) if short < 0xFF => {
            buffer[0] = short;
            buffer.split_at(1).0
        }
        _ => {
            let [a, b, c, d] = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
            *buffer = [0xFF, a, b, c, d];
            buffer
        }
    }
}

/// Appends a length, see [`len_prefix`].
pub fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(len_prefix(len, &mut [0; 5]));
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}
