//! Replies that the peer has not read yet, in chunks.
//!
//! An unsent reply buffer grows with every further request. A single buffer would be copied
//! each time it doubles, would take up to twice the memory of its bytes, and would free nothing
//! before everything is sent. So a buffer that has reached [`CHUNK_BYTES`] is set aside as it
//! is, and the next replies begin a new one.

use std::collections::VecDeque;

/// A reply buffer of at least so many unsent bytes becomes a chunk.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Chunks in the order of sending. Of the first one, `sent` bytes are sent.
#[derive(Debug, Default)]
pub struct Backlog {
    chunks: VecDeque<Vec<u8>>,
    sent: usize,
    bytes: usize,
    capacity: usize,
}

impl Backlog {
    /// Appends a chunk of which `sent` bytes are already sent. `sent` is 0 unless the backlog
    /// is empty.
    pub fn push(&mut self, mut chunk: Vec<u8>, sent: usize) {
        debug_assert!(sent == 0 || self.chunks.is_empty());
        debug_assert!(sent < chunk.len());
        chunk.shrink_to_fit();
        if self.chunks.is_empty() {
            self.sent = sent;
        }
        self.bytes += chunk.len() - sent;
        self.capacity += chunk.capacity();
        self.chunks.push_back(chunk);
    }

    /// The bytes to send next, if there are any.
    pub fn front(&self) -> Option<&[u8]> {
        self.chunks.front().map(|chunk| &chunk[self.sent..])
    }

    /// Records that `bytes` of [`Backlog::front`] are sent. Returns the chunk if that was its end.
    pub fn advance(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.sent += bytes;
        self.bytes -= bytes;
        if self
            .chunks
            .front()
            .is_some_and(|chunk| chunk.len() <= self.sent)
        {
            let sent = self.chunks.pop_front();
            self.capacity -= sent.as_ref().map_or(0, Vec::capacity);
            self.sent = 0;
            return sent;
        }
        None
    }

    /// Takes all chunks.
    pub fn take(&mut self) -> VecDeque<Vec<u8>> {
        std::mem::take(self).chunks
    }

    /// Bytes that are not sent yet.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether everything is sent.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Memory of the chunks, in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_back_in_order_whatever_the_steps() {
        for step in [1, 3, 7, 100] {
            let mut backlog = Backlog::default();
            backlog.push(b"..first".to_vec(), 2);
            backlog.push(b"second".to_vec(), 0);
            assert_eq!(backlog.len(), 11);
            let mut sent = Vec::new();
            while let Some(front) = backlog.front() {
                let n = front.len().min(step);
                sent.extend_from_slice(&front[..n]);
                backlog.advance(n);
                assert_eq!(backlog.len(), 11 - sent.len());
            }
            assert_eq!(sent, b"firstsecond");
            assert_eq!((backlog.len(), backlog.capacity()), (0, 0));
            backlog.push(b"third".to_vec(), 0);
            assert_eq!(backlog.front(), Some(&b"third"[..]));
        }
    }

    #[test]
    fn a_chunk_keeps_no_memory_that_it_does_not_need() {
        let mut backlog = Backlog::default();
        let mut chunk = Vec::with_capacity(1 << 20);
        chunk.resize(CHUNK_BYTES, 0);
        backlog.push(chunk, 0);
        assert!(backlog.capacity() < CHUNK_BYTES + CHUNK_BYTES / 4);
    }
}
