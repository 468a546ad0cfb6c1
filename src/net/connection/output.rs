//! The output of a connection: replies of ticks, messages, and what the peer has not read yet.

use super::{Connection, KEEP_BUFFER};
use crate::base::time::UnixMs;
use crate::net::backlog::CHUNK_BYTES;
use crate::state::Server;
use crate::state::client_memory::ClientMemory;
use crate::state::clients::ClientFlags;
use crate::state::config::Config;
use crate::state::delivery::{Delivery, Form};
use crate::state::eviction::Loan;
use crate::state::tracking;
use crate::sys::clock;
use crate::sys::pause::is_pause;
use std::io::{self, Write};
use std::sync::atomic::Ordering;

/// Bytes sent to one client before others are served. A client that reads as fast as this thread
/// sends would hold it for as long as a reply of any length takes.
const SEND_BUDGET: usize = 1 << 20;
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
        let here = self.backlog.len() + self.reply.len() - self.sent + self.held.len();
        // What the socket has taken and not passed on is bounded and not counted, but not sent.
        here + usize::from(self.socket.owes())
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
    /// arrives. So the invalidation is repeated after that reply. While a worker subscribes the
    /// client to names, published messages come after the confirmations.
    pub fn push(&mut self, delivery: &Delivery) {
        if delivery.form == Form::Push && self.session.waits_for_answer() {
            delivery.write(self.session.resp3, &mut self.repeated_pushes);
            if self.repeated_pushes.len() > MAX_REPEATED {
                self.repeated_pushes = tracking::everything();
            }
        }
        if delivery.form == Form::Message && self.holds_messages {
            return delivery.write(self.session.resp3, &mut self.held);
        }
        let free = self.tick_start == self.reply.len();
        delivery.write(self.session.resp3, &mut self.reply.buf);
        if free {
            self.tick_start = self.reply.len();
        }
    }

    /// Until when the client may stay as `client-output-buffer-limit` has it, or `None` while its
    /// unsent bytes are within the limits. A client over the hard limit had to go long ago. The
    /// limits of subscribers also hold for MONITOR and tracking, whose output does not depend on
    /// the client's requests.
    pub(in crate::net) fn output_deadline(
        &mut self,
        config: &Config,
        now_ms: UnixMs,
    ) -> Option<UnixMs> {
        let limits = &config.client_output_buffer_limit;
        let pushed = ClientFlags::PUBSUB | ClientFlags::MONITOR | ClientFlags::TRACKING;
        let limit = match self.session.info.flags().intersects(pushed) {
            true => limits.pubsub,
            false => limits.normal,
        };
        let unsent = self.unsent() as u64;
        if limit.hard_bytes > 0 && unsent > limit.hard_bytes {
            return Some(UnixMs::NONE);
        }
        if limit.soft_bytes == 0 || unsent <= limit.soft_bytes {
            self.long_since_ms = None;
            return None;
        }
        let since_ms = *self.long_since_ms.get_or_insert(now_ms);
        Some(since_ms + limit.soft_s.saturating_mul(1000))
    }

    /// Sends output until all is sent, the socket accepts no more, or the budget is exhausted.
    /// Returns the number of bytes, and whether the socket may accept more: then nothing else
    /// announces that. The caller has made sure that the replies are durable. A peer that reads is
    /// not idle.
    pub fn send(&mut self, server: &Server, now_ms: UnixMs) -> io::Result<(usize, bool)> {
        let (mut total, mut more) = (0, false);
        if self.socket.owes() {
            match self.socket.flush() {
                Err(error) if !is_pause(&error) => return Err(error),
                _ => {}
            }
        }
        loop {
            let waiting = match self.backlog.front() {
                Some(chunk) => chunk,
                None => &self.reply.buf[self.sent..self.tick_start],
            };
            if waiting.is_empty() {
                break;
            }
            if total >= SEND_BUDGET {
                more = true;
                break;
            }
            // One call with more would go on for as long as the peer makes room.
            let waiting = &waiting[..waiting.len().min(SEND_BUDGET - total)];
            match self.socket.write(waiting) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    match self.backlog.is_empty() {
                        true => self.sent += n,
                        false => {
                            let sent = self.backlog.advance(n);
                            sent.into_iter()
                                .for_each(|sent| server.chores.free_bytes(sent));
                        }
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
        self.show_output(&server.client_memory);
        Ok((total, more))
    }

    /// Publishes the memory of the output in the client's statistics.
    pub(super) fn show_output(&mut self, memory: &ClientMemory) {
        let info = &self.session.info;
        let unsent = self.unsent();
        if info.output_bytes.swap(unsent, Ordering::Relaxed) == 0 && unsent > 0 {
            // However long the client has waited for this reply, it could not read it before.
            info.active_ms.store(clock::unix_ms(), Ordering::Relaxed);
        }
        let capacity = self.backlog.capacity() + self.reply.buf.capacity() + self.held.capacity();
        info.output_capacity.store(capacity, Ordering::Relaxed);
        let lent = self.reply.hand_over();
        let info = &self.session.info;
        memory.count_lent(&info.account, self.counted_memory(), lent);
    }

    /// Updates the share of this client in the memory of all clients.
    pub(in crate::net) fn show_memory(&self, memory: &ClientMemory) {
        memory.set(&self.session.info.account, self.counted_memory());
    }

    /// The client's memory. That lent for the bytes of a request is counted as a loan.
    fn counted_memory(&self) -> usize {
        let lent = self.loan.as_ref().map_or(0, Loan::input_bytes);
        self.session.info.memory_bytes().saturating_sub(lent)
    }

    /// Takes the buffers of a connection that is closed, for which it may be long until they are
    /// freed.
    pub(in crate::net) fn take_buffers(&mut self) -> impl Iterator<Item = Vec<u8>> {
        let reply = std::mem::take(&mut self.reply.buf);
        let input = std::mem::take(&mut self.input);
        self.backlog.take().into_iter().chain([reply, input])
    }

    /// Makes room for a long reply that may be sent at once: what is before it is set aside, so that
    /// the reply need not be copied behind it.
    pub(super) fn set_aside(&mut self) {
        if self.sent < self.reply.len() {
            let before = std::mem::take(&mut self.reply.buf);
            self.backlog.push(before, self.sent);
        } else {
            self.reply.truncate(0);
        }
        (self.tick_start, self.sent) = (0, 0);
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
