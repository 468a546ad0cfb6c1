//! The output of a connection: replies of ticks, messages, and what the peer has not read yet.

use super::{Connection, KEEP_BUFFER};
use crate::base::time::UnixMs;
use crate::net::backlog::CHUNK_BYTES;
use crate::state::client_memory::ClientMemory;
use crate::state::clients::ClientFlags;
use crate::state::config::Config;
use crate::state::delivery::{Delivery, Form};
use crate::state::eviction::Loan;
use crate::state::mailbox::Socket;
use crate::state::tracking;
use crate::sys::clock;
use std::io::{self, Write};
use std::sync::atomic::Ordering;

/// Longer lists of invalidations are replaced by one of all keys.
const MAX_REPEATED: usize = 64 << 10;

impl Connection {
    /// Called when the tick is committed but waits for the disk. Returns whether this
    /// connection does as well: then it sends nothing and runs nothing until it is released.
    pub fn park(&mut self, memory: &ClientMemory) -> bool {
        self.parked = self.must_wait;
        self.show_output(memory);
        self.parked
    }

    /// Bytes that are not sent yet.
    pub fn unsent(&self) -> usize {
        self.backlog.len() + self.reply.len() - self.sent
    }

    /// Called when the tick is durable: its replies may be sent.
    pub fn release(&mut self) {
        self.tick_start = self.reply.len();
        self.tick_replies = 0;
        self.must_wait = false;
        self.changes_session = false;
        self.parked = false;
    }

    /// Called when the tick could not be committed: an error replaces each of its replies.
    /// Changes of the session (SELECT, HELLO …) stand, so after such a command the connection
    /// is closed: its client would not know the state of the session.
    pub fn fail(&mut self, text: &str) {
        if self.tick_replies == 0 {
            // It is in the list only because of messages of other clients.
            return self.release();
        }
        self.ended |= self.changes_session;
        self.reply.truncate(self.tick_start);
        for _ in 0..self.tick_replies {
            self.reply.error(text);
        }
        self.release();
    }

    /// Appends a message that is not a reply (messages, invalidations, MONITOR lines). It may
    /// be sent when the replies before it may.
    ///
    /// While a worker runs a request of the client, an invalidation may overtake the reply that
    /// contains the stale value, since the worker's locks are released before the reply
    /// arrives. So the invalidation is repeated after that reply.
    pub fn push(&mut self, delivery: &Delivery) {
        if delivery.form == Form::Push && self.session.waits_for_answer() {
            delivery.write(self.session.resp3, &mut self.repeated_pushes);
            if self.repeated_pushes.len() > MAX_REPEATED {
                self.repeated_pushes = tracking::everything();
            }
        }
        let free = self.tick_start == self.reply.len();
        delivery.write(self.session.resp3, &mut self.reply.buf);
        if free {
            self.tick_start = self.reply.len();
        }
    }

    /// Whether the unsent bytes exceed `client-output-buffer-limit`. The limits of subscribers
    /// also hold for MONITOR and tracking, whose output does not depend on the client's
    /// requests.
    pub(in crate::net) fn is_over_limit(&mut self, config: &Config, now_ms: UnixMs) -> bool {
        let limits = &config.client_output_buffer_limit;
        let pushed = ClientFlags::PUBSUB | ClientFlags::MONITOR | ClientFlags::TRACKING;
        let limit = match self.session.info.flags().intersects(pushed) {
            true => limits.pubsub,
            false => limits.normal,
        };
        let unsent = self.unsent() as u64;
        if limit.hard_bytes > 0 && unsent > limit.hard_bytes {
            return true;
        }
        if limit.soft_bytes == 0 || unsent <= limit.soft_bytes {
            self.long_since_ms = None;
            return false;
        }
        let since_ms = *self.long_since_ms.get_or_insert(now_ms);
        now_ms.since(since_ms) > limit.soft_s.saturating_mul(1000)
    }

    /// Sends output until all is sent or the socket accepts no more. Returns the number of
    /// bytes. The caller has made sure that the replies are durable. A peer that reads is not
    /// idle.
    pub fn send(&mut self, memory: &ClientMemory, now_ms: UnixMs) -> io::Result<usize> {
        let mut total = 0;
        loop {
            let waiting = match self.backlog.front() {
                Some(chunk) => chunk,
                None => &self.reply.buf[self.sent..self.tick_start],
            };
            if waiting.is_empty() {
                break;
            }
            let sent = match &mut self.socket {
                Socket::Tcp(s) => s.write(waiting),
                Socket::Unix(s) => s.write(waiting),
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    match self.backlog.is_empty() {
                        true => self.sent += n,
                        false => self.backlog.advance(n),
                    }
                    total += n;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.forget_sent();
        if total > 0 {
            self.session.info.active_ms.store(now_ms, Ordering::Relaxed);
        }
        self.show_output(memory);
        Ok(total)
    }

    /// Publishes the memory of the output in the client's statistics.
    pub(super) fn show_output(&mut self, memory: &ClientMemory) {
        let info = &self.session.info;
        let unsent = self.unsent();
        if info.output_bytes.swap(unsent, Ordering::Relaxed) == 0 && unsent > 0 {
            // However long the client has waited for this reply, it could not read it before.
            info.active_ms.store(clock::unix_ms(), Ordering::Relaxed);
        }
        let capacity = self.backlog.capacity() + self.reply.buf.capacity();
        info.output_capacity.store(capacity, Ordering::Relaxed);
        self.show_memory(memory);
        // Memory lent for a reply is now counted as the client's.
        self.reply.give_back();
    }

    /// Updates the share of this client in the memory of all clients.
    pub(in crate::net) fn show_memory(&self, memory: &ClientMemory) {
        let info = &self.session.info;
        let lent = self.loan.as_ref().map_or(0, Loan::input_bytes);
        // The memory lent for the bytes of a request is counted as a loan.
        memory.set(&info.account, info.memory_bytes().saturating_sub(lent));
    }

    fn forget_sent(&mut self) {
        if self.sent == self.reply.len() {
            self.reply.truncate(0);
            self.reply.buf.shrink_to(KEEP_BUFFER);
        } else if self.tick_start == self.reply.len() && self.reply.len() - self.sent >= CHUNK_BYTES
        {
            let chunk = std::mem::take(&mut self.reply.buf);
            self.backlog.push(chunk, self.sent);
            self.tick_start = 0;
            self.sent = 0;
            return;
        } else if !cut_front(&mut self.reply.buf, self.sent, CHUNK_BYTES) {
            return;
        }
        self.tick_start -= self.sent;
        self.sent = 0;
    }
}

/// Removes the first `done` bytes of a buffer if that pays: if they are at least `least` bytes
/// and no fewer than the rest, which has to be moved. On average no byte is moved more than
/// once, however long the buffer and however small the steps.
pub(super) fn cut_front(buf: &mut Vec<u8>, done: usize, least: usize) -> bool {
    let pays = done >= least && done >= buf.len() - done;
    if pays {
        buf.drain(..done);
    }
    pays
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply of half a gigabyte that was sent in steps of a megabyte used to be moved as a
    /// whole after each step: other clients waited for ten seconds.
    #[test]
    fn taking_a_long_buffer_in_small_steps_moves_little() {
        let bytes = 8 << 20;
        for step in [1, 4 << 10, 3 << 20] {
            let mut buf = vec![0; bytes];
            let (mut done, mut moved) = (0, 0);
            while done < buf.len() {
                done = (done + step).min(buf.len());
                let left = buf.len() - done;
                if cut_front(&mut buf, done, 64 << 10) {
                    assert_eq!(buf.len(), left);
                    moved += left;
                    done = 0;
                }
                // The processed part takes no more memory than the rest.
                assert!(done < (64 << 10) || done <= buf.len() - done, "{done}");
            }
            assert!(moved <= bytes, "{moved} bytes moved in steps of {step}");
        }
    }
}
