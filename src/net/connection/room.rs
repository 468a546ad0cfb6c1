//! Memory for the requests of a connection and the replies to them, where clients have
//! little left.
//!
//! A long request is read and run only once the memory that it takes is lent to it
//! ([`crate::state::eviction::Loan`]); until then its connection is not read. So the
//! requests that are under way can end, however many clients send such ones.

use super::{Connection, OUTPUT_FREE};
use crate::base::time::UnixMs;
use crate::commands::OUT_OF_MEMORY;
use crate::exec::Executor;
use crate::state::eviction::{Needs, Refusal, STALLED_MS};
use crate::state::mailbox::Socket;
use std::sync::atomic::Ordering;

/// A client does not wait longer for memory.
const IN_VAIN_MS: u64 = 60_000;
/// Shorter requests are read and run without asking for memory.
const LONG_REQUEST: usize = 1 << 20;

impl Connection {
    /// Whether replies to further requests could only be kept by closing some client.
    pub(super) fn has_no_room(&self, executor: &Executor) -> bool {
        self.unsent() > OUTPUT_FREE && !executor.server().have_clients_room(executor.config())
    }

    /// Whether the rest of a request may be read that has come in part: it is short, or
    /// there is memory for it.
    pub(super) fn may_read_on(&mut self, executor: &Executor) -> bool {
        let arrived = self.input.len() - self.run;
        let least = self.parser.announced().max(arrived);
        if least < LONG_REQUEST || arrived == 0 {
            return true;
        }
        // All at once if that can be: of several that have a part each, none could end.
        let estimated = self.parser.estimated().max(least);
        let args = self.parser.expected_argc();
        let lent = match self.borrow_to_read(executor, estimated, args) {
            Err(Refusal::Never) => self.borrow_to_read(executor, least, self.parser.argc()),
            lent => lent,
        };
        match lent {
            Ok(bytes) => {
                let more = bytes.saturating_sub(arrived);
                self.input.reserve_exact(more);
                true
            }
            Err(Refusal::Later(_)) => false,
            Err(Refusal::Never) => {
                self.refuse_rest(executor, least);
                false
            }
        }
    }

    /// Has memory lent for a request of so many arguments that is read; returns how many
    /// bytes of it may be.
    fn borrow_to_read(
        &mut self,
        executor: &Executor,
        bytes: usize,
        args: usize,
    ) -> Result<usize, Refusal> {
        let bytes = bytes.next_multiple_of(LONG_REQUEST);
        let needs = Needs {
            bytes,
            work: bytes,
            args,
            removes: executor.only_removes(&self.parser.args(&self.input[self.run..])),
        };
        self.borrow_for(executor, &needs).map(|()| bytes)
    }

    /// What is to be done with a request of so many bytes that is here.
    pub(super) fn may_run(
        &mut self,
        executor: &Executor,
        input: &[u8],
        bytes: usize,
    ) -> Result<(), Refusal> {
        let mut needs = Needs {
            bytes,
            work: bytes,
            args: self.parser.argc(),
            removes: false,
        };
        self.writes_bytes = 0;
        if bytes + needs.args_bytes() < LONG_REQUEST && self.session.waiting_bytes() < LONG_REQUEST
        {
            return Ok(());
        }
        needs.work = executor.work_of(&self.parser.args(input), bytes);
        needs.removes = executor.only_removes(&self.parser.args(input));
        let queued = self.session.waiting_bytes();
        if queued >= LONG_REQUEST && executor.is_exec(&self.parser.args(input)) {
            needs.work += queued;
        }
        self.writes_bytes = needs.work_bytes();
        match needs.work + needs.args_bytes() < LONG_REQUEST {
            true => Ok(()),
            false => self.borrow_for(executor, &needs),
        }
    }

    /// Has memory lent for a request.
    fn borrow_for(&mut self, executor: &Executor, needs: &Needs) -> Result<(), Refusal> {
        let server = executor.server();
        let client = self.session.info.id;
        let lent = server.lend_request(executor.config(), client, &mut self.loan, needs);
        self.wanted = match lent {
            Err(Refusal::Later(wanted)) => wanted,
            _ => 0,
        };
        lent
    }

    /// The rest of a request is not read, since the server can never have the memory for
    /// it: its client is told why and closed.
    fn refuse_rest(&mut self, executor: &Executor, bytes: usize) {
        let info = &self.session.info;
        log::warn!(
            "client {} at {}: a request of {bytes} bytes takes more memory than maxmemory-clients \
             or maxmemory has for clients: closing it",
            info.id.0,
            info.addr
        );
        executor.server().stats.query_limit_disconnections.add(1);
        let text = OUT_OF_MEMORY.to_string();
        executor.server().stats.error(&text);
        self.reply.error(&text);
        self.tick_replies += 1;
        self.ended = true;
    }

    /// There is no memory for the reply to the request that ran last, which begins at
    /// `before`. If the request may run once more, and others may make room, the reply is
    /// taken back until then.
    pub(super) fn takes_reply_back(
        &mut self,
        before: usize,
        executor: &Executor,
        input: &[u8],
    ) -> bool {
        let bytes = self.reply.len() - before;
        let args = self.parser.args(input);
        let left_out = self.reply.left_out;
        let Some(wanted) = executor.room_for_retry(&self.session, &args, bytes, left_out) else {
            return false;
        };
        self.reply.truncate(before);
        self.reply.buf.shrink_to_fit();
        self.reply.overflowed = false;
        self.reply.give_back();
        self.tick_replies = self.tick_replies.saturating_sub(1);
        self.wanted = wanted;
        true
    }

    /// Whether requests that waited for room may go on.
    pub fn may_go_on(&self, executor: &Executor) -> bool {
        let (server, config) = (executor.server(), executor.config());
        let is_behind = || {
            let memory = &server.client_memory;
            self.loan.is_none() && memory.is_behind(self.session.info.id)
        };
        !self.has_no_room(executor)
            && (self.wanted == 0 || !is_behind() && server.find_room(config, self.wanted))
    }

    /// Whether it is closed because of how long there was no room: [`STALLED_MS`] if it keeps
    /// others from going on, as it has taken none of the replies that wait for it or has
    /// memory for a request that cannot end; [`IN_VAIN_MS`] if it only waits.
    pub fn has_stalled(&self, now_ms: UnixMs) -> bool {
        let active_ms = self.session.info.active_ms.load(Ordering::Relaxed);
        let since_ms = self
            .no_room_since_ms
            .map(|since_ms| since_ms.max(active_ms));
        let holds = self.unsent() > OUTPUT_FREE || self.loan.is_some();
        let patience_ms = match holds {
            true => STALLED_MS,
            false => IN_VAIN_MS,
        };
        since_ms.is_some_and(|since_ms| now_ms.since(since_ms) > patience_ms)
            && (self.input.len() > self.run || self.has_unread())
    }

    /// Whether it has memory for the rest of a request and has not sent any of that for
    /// [`STALLED_MS`].
    pub fn sends_nothing_more(&self, now_ms: UnixMs) -> bool {
        let active_ms = self.session.info.active_ms.load(Ordering::Relaxed);
        self.loan.is_some()
            && self.no_room_since_ms.is_none()
            && !self.session.waits_for_answer()
            && now_ms.since(active_ms) > STALLED_MS
    }

    /// It has waited long enough, or may go on.
    pub fn end_wait_for_room(&mut self) {
        self.no_room_since_ms = None;
        self.wanted = 0;
    }

    /// What others see of a connection that keeps them from going on.
    pub fn why_stalled(&self) -> String {
        let unsent = self.unsent();
        match unsent > OUTPUT_FREE {
            true => format!("sends requests and reads no replies, {unsent} bytes wait for it"),
            false => format!(
                "has sent {} bytes of requests that could not go on for long",
                self.input.len() - self.run
            ),
        }
    }

    /// Whether the socket has bytes to read. If it cannot say, its peer is gone.
    fn has_unread(&self) -> bool {
        let unread = match &self.socket {
            Socket::Tcp(s) => rustix::io::ioctl_fionread(s),
            Socket::Unix(s) => rustix::io::ioctl_fionread(s),
        };
        unread.unwrap_or(0) > 0
    }
}
