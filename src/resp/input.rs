//! Bytes that were read and not yet consumed.

use std::io::{self, Read};

/// A buffer of bytes that were read and not yet consumed.
#[derive(Debug, Default)]
pub struct Input {
    /// The bytes from `start` to `end` are read and not consumed.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// The bytes that are read and not consumed.
    pub fn waiting(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Consumes the first `n` bytes.
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }

    /// Reserves memory for `more` bytes, so that the buffer is not moved while they arrive.
    pub fn expect(&mut self, more: usize) {
        let room = self.bytes.len().saturating_sub(self.end);
        self.bytes.reserve_exact(more.saturating_sub(room));
    }

    /// Memory of the buffer, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Reads once, up to `at_most` bytes. Returns how many were read.
    pub fn read_from(&mut self, source: &mut impl Read, at_most: usize) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.bytes.truncate(4 * at_most);
            self.bytes.shrink_to(4 * at_most);
        } else if self.start > at_most {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room_end = self.end + at_most;
        if self.bytes.len() < room_end {
            self.bytes.resize(room_end, 0);
        }
        let room = self.bytes.get_mut(self.end..room_end).unwrap_or_default();
        let n = source.read(room)?;
        self.end += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_consumed_in_order() {
        let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let (mut source, mut input) = (bytes.as_slice(), Input::default());
        let mut rng = fastrand::Rng::with_seed(3);
        let mut found = Vec::new();
        while found.len() < bytes.len() {
            let step = rng.usize(1..5000);
            input.read_from(&mut source, step).expect("bytes");
            let n = rng.usize(0..=input.waiting().len());
            found.extend_from_slice(&input.waiting()[..n]);
            input.consume(n);
        }
        assert!(found == bytes && input.waiting().is_empty());
    }
}
