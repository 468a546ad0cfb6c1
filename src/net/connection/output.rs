//! What a connection sends: replies of ticks, messages that nobody asked for by a request,
//! and what of them the peer has not taken yet.

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
use std::io::{self, Write};
use std::sync::atomic::Ordering;

/// Invalidations longer than this are told again as one of everything.
const MAX_TOLD_EARLY: usize = 64 << 10;

impl Connection {
    /// The tick is committed, but has to wait for the disk. Says whether this connection
    /// does, too: then it hears of nothing and runs nothing until it is released.
    pub fn park(&mut self, memory: &ClientMemory) -> bool {
        self.parked = self.must_wait;
        self.show_output(memory);
        self.parked
    }

    /// Bytes of replies not yet sent.
    pub fn unsent(&self) -> usize {
        self.backlog.len() + self.reply.len() - self.sent
    }

    /// The tick was committed: its replies may go out.
    pub fn release(&mut self) {
        self.tick_start = self.reply.len();
        self.tick_replies = 0;
        self.must_wait = false;
        self.changes_session = false;
        self.parked = false;
    }

    /// The tick could not be committed: each of its replies becomes this error.
    /// What its commands changed of the session (SELECT, HELLO …) stands, so with such
    /// a command the connection ends rather than go on in a state that its client does
    /// not know.
    pub fn fail(&mut self, text: &str) {
        if self.tick_replies == 0 {
            // It is here for what others sent to it.
            return self.release();
        }
        self.ended |= self.changes_session;
        self.reply.truncate(self.tick_start);
        for _ in 0..self.tick_replies {
            self.reply.error(text);
        }
        self.release();
    }

    /// Appends what is no reply to a request (messages, invalidations, MONITOR). It
    /// may be sent when the replies before it may.
    ///
    /// While a worker has a request of the client, an invalidation may overtake the
    /// reply with the very value that is stale: the keys are free before the reply
    /// is here. So it is told once more after that.
    pub fn push(&mut self, delivery: &Delivery) {
        if delivery.form == Form::Push && self.session.waits_for_answer() {
            delivery.write(self.session.resp3, &mut self.told_early);
            if self.told_early.len() > MAX_TOLD_EARLY {
                self.told_early = tracking::everything();
            }
        }
        let free = self.tick_start == self.reply.len();
        delivery.write(self.session.resp3, &mut self.reply.buf);
        if free {
            self.tick_start = self.reply.len();
        }
    }

    /// Whether more waits to be sent than `client-output-buffer-limit` allows.
    /// Nobody paces what clients get that they did not ask for by a request, so
    /// the limits of subscribers hold for them.
    pub fn is_over_limit(&mut self, config: &Config, now_ms: UnixMs) -> bool {
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

    /// Sends replies until all are gone or the socket takes no more; says how
    /// many bytes went. Whoever calls this has seen to the commit first. A peer
    /// that takes bytes is not idle.
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

    /// Tells others what memory its replies take.
    pub(super) fn show_output(&mut self, memory: &ClientMemory) {
        let info = &self.session.info;
        info.output_bytes.store(self.unsent(), Ordering::Relaxed);
        let capacity = self.backlog.capacity() + self.reply.buf.capacity();
        info.output_capacity.store(capacity, Ordering::Relaxed);
        self.show_memory(memory);
        // What was lent for a reply counts now.
        self.reply.give_back();
    }

    /// Adds what it holds to what all clients do.
    pub fn show_memory(&self, memory: &ClientMemory) {
        let info = &self.session.info;
        let lent = self.loan.as_ref().map_or(0, Loan::input_bytes);
        // What is lent for the bytes of a request counts already.
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

/// Takes what is done off the front of a buffer if that pays: if it is `least`
/// bytes and no fewer than the rest, which has to be moved. So no byte is moved
/// more than once on average, however long the buffer and however small the steps.
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

    /// A reply of half a gigabyte that went out in steps of a megabyte was moved
    /// as a whole after each step, for ten seconds, while other clients waited.
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
                // What is done takes no more memory than what is not.
                assert!(done < (64 << 10) || done <= buf.len() - done, "{done}");
            }
            assert!(moved <= bytes, "{moved} bytes moved in steps of {step}");
        }
    }
}
