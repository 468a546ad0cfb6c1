//! Requests that leave the connection's thread: to a worker, with the session, and back with the
//! reply; and replies of other threads.

use super::Connection;
use super::Turn;
use crate::exec::{Executor, Outcome};
use crate::net::backlog::CHUNK_BYTES;
use crate::state::clients::ClientFlags;
use crate::state::request::Request;
use crate::state::workers::{Done, Job};

impl Connection {
    /// Hands the next request, of so many bytes, over to a worker with the buffer that it is in, and
    /// keeps what follows it.
    pub(super) fn move_to_worker(&mut self, executor: &Executor, bytes: usize) -> Turn {
        let end = self.run + bytes;
        let places = match self.input.len() - end <= bytes {
            true => self.parser.take_places(),
            false => None,
        };
        let before = self.run;
        let left = match places {
            Some(places) => {
                let rest = self.input.split_off(end);
                let buffer = std::mem::replace(&mut self.input, rest);
                self.run = 0;
                let left =
                    self.leave_to_worker(executor, Request::of_buffer(buffer, before, places));
                left.map_err(|request| {
                    let mut buffer = request.into_buffer();
                    buffer.append(&mut self.input);
                    (self.input, self.run) = (buffer, before);
                })
            }
            // Much follows, or the arguments had quotes.
            None => {
                let request = Request::new(&self.parser.args(&self.input[self.run..]));
                let left = self.leave_to_worker(executor, request);
                left.map(|()| self.run = end).map_err(|_| ())
            }
        };
        self.parser.reset();
        match left {
            Ok(()) => self.turn_after(Outcome::Slow).unwrap_or(Turn::Idle),
            Err(()) => Turn::Paused,
        }
    }

    /// Hands the request over to a worker; the following requests wait for its reply. If no worker
    /// takes it now, returns it.
    pub(super) fn leave_to_worker(
        &mut self,
        executor: &Executor,
        request: Request,
    ) -> Result<(), Request> {
        // The begun reply was taken back, and many connections may wait for workers.
        self.reply.buf.shrink_to_fit();
        self.show_output(&executor.server().client_memory);
        let mut job = Job::new(self.session.detach(), request, executor.accesses_noted());
        job.lent = self.writes_bytes;
        job.shown = executor.retry().shown;
        self.holds_messages = executor.subscribes(&job.request);
        match executor.server().workers.submit(job) {
            Ok(()) => {
                let info = &self.session.info;
                info.set_flag(ClientFlags::BLOCKED, true);
                self.at_worker = true;
                Ok(())
            }
            Err(job) => {
                self.session = job.session;
                self.holds_messages = false;
                Err(job.request)
            }
        }
    }

    /// Takes session and reply back from the worker that has run the request.
    pub(in crate::net) fn finish_job(&mut self, done: Done, executor: &Executor) {
        self.session = done.session;
        self.session.info.set_flag(ClientFlags::BLOCKED, false);
        self.spent_loans.extend(self.loan.take());
        let free = self.tick_start == self.reply.len();
        if free && done.reply.len() >= CHUNK_BYTES {
            self.set_aside();
        }
        let before = self.reply.len();
        self.reply.append(done.reply);
        self.reply.raw(&std::mem::take(&mut self.repeated_pushes));
        self.reply.raw(&std::mem::take(&mut self.held));
        self.holds_messages = false;
        self.at_worker = false;
        self.reply.resp3 = self.session.resp3;
        if self.reply.overflowed {
            self.tick_replies += 1;
            self.refuse_reply(before, executor);
        }
        if free {
            // The request was committed before this tick.
            self.tick_start = self.reply.len();
        } else if self.reply.len() > before {
            self.tick_replies += 1;
        }
        if let Some(reply) = self.early_answer.take() {
            self.answer(&reply);
        }
    }

    /// Appends the reply that the client has waited for.
    pub fn answer(&mut self, reply: &[u8]) {
        if self.at_worker {
            self.early_answer = Some(reply.to_vec());
            return;
        }
        let info = &self.session.info;
        info.set_flag(ClientFlags::BLOCKED, false);
        // Replies on this way contain no values that a client may cache.
        self.repeated_pushes.clear();
        let free = self.tick_start == self.reply.len();
        if self.session.answered() {
            self.reply.raw(reply);
        }
        if free {
            // The request was committed before this tick.
            self.tick_start = self.reply.len();
        }
    }
}
