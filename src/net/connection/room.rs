//! Memory for requests and their replies when clients have little left, and room for data: in
//! memtables that are written out first, and on a disk from which keys are evicted first.
//!
//! A long request is read and run only once its memory is lent to it
//! ([`crate::state::eviction::Loan`]); until then its connection is not read. So requests that
//! have begun can finish, however many clients send long ones.

use super::{Connection, OUTPUT_FREE};
use crate::base::time::UnixMs;
use crate::commands::OUT_OF_MEMORY;
use crate::exec::Executor;
use crate::state::evicting::on_disk;
use crate::state::eviction::{LONG_REQUEST, Loan, Needs, Refusal, STALLED_MS};
use crate::sys::clock;
use std::sync::atomic::Ordering;

/// How long a client waits at most for memory.
const MAX_ROOM_WAIT_MS: u64 = 60_000;

impl Connection {
    /// Whether there is memory for replies to further requests only if a client is closed.
    pub(super) fn has_no_room(&self, executor: &Executor) -> bool {
        self.unsent() > OUTPUT_FREE && !executor.server().have_clients_room(executor.config())
    }

    /// Whether the rest of an incomplete request may be read: it is short, or its memory is
    /// lent.
    pub(super) fn may_read_on(&mut self, executor: &Executor) -> bool {
        let arrived = self.input.len() - self.run;
        let least = self.parser.announced().max(arrived);
        if least < LONG_REQUEST || arrived == 0 {
            return true;
        }
        // If possible for the whole request at once: several requests with a part each could
        // deadlock.
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

    /// Borrows memory for an incomplete request of `args` arguments. Returns how many bytes of
    /// it may be read.
    fn borrow_to_read(
        &mut self,
        executor: &Executor,
        bytes: usize,
        args: usize,
    ) -> Result<usize, Refusal> {
        let bytes = bytes.next_multiple_of(LONG_REQUEST);
        let head = self.parser.head(&self.input[self.run..]);
        let needs = Needs {
            bytes,
            // A command that takes more is refused when it is complete.
            work: executor.work_of(&head, bytes).min(bytes),
            args,
            removes: executor.only_removes(&head),
        };
        drop(head);
        self.borrow_for(executor, &needs).map(|()| bytes)
    }

    /// Borrows memory for a complete request of `bytes` bytes, if it is long.
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
        // EXEC writes what was queued.
        let queued = self.session.waiting_bytes();
        let writes = bytes + queued;
        let awaits_space = self.lacks_space(executor, writes)
            && executor.may_add_data(&self.session, &self.parser.head(input));
        self.awaits_space = awaits_space.then_some(writes);
        if awaits_space {
            return Err(Refusal::Later(0));
        }
        if bytes + needs.args_bytes() < LONG_REQUEST && queued < LONG_REQUEST {
            return Ok(());
        }
        let head = self.parser.head(input);
        needs.work = executor.work_of(&head, bytes);
        needs.removes = executor.only_removes(&head);
        let adds = executor.may_add_data(&self.session, &head);
        if queued >= LONG_REQUEST && executor.is_exec(&head) {
            needs.work += queued;
        }
        drop(head);
        self.writes_bytes = needs.work_bytes();
        if needs.work + needs.args_bytes() < LONG_REQUEST {
            return Ok(());
        }
        self.borrow_for(executor, &needs)?;
        if let Some(loan) = self.loan.as_mut().filter(|_| adds) {
            loan.count_on_disk(on_disk(needs.work));
        }
        Ok(())
    }

    /// Whether a request that may add so many bytes waits until memtables are written out or keys are
    /// evicted.
    fn lacks_space(&self, executor: &Executor, bytes: usize) -> bool {
        let server = executor.server();
        server.engine.delays_writers() || server.awaits_eviction(bytes, self.counted_on_disk())
    }

    /// Whether its next request no longer waits for space.
    pub(in crate::net) fn has_space(&self, executor: &Executor) -> bool {
        !self
            .awaits_space
            .is_some_and(|bytes| self.lacks_space(executor, bytes))
    }

    /// Whether it waits for space rather than for memory.
    pub(in crate::net) fn awaits_space(&self) -> bool {
        self.awaits_space.is_some()
    }

    /// What is counted for the request that is about to run, see [`Loan::count_on_disk`].
    fn counted_on_disk(&self) -> u64 {
        self.loan.as_ref().map_or(0, Loan::on_disk)
    }

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

    /// Refuses the rest of a request that can never get its memory: sends an error and ends the
    /// connection.
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

    /// Called when there is no memory for the reply to the last request, which begins at
    /// `before`. If the request may run again, and other clients may free memory, takes the
    /// reply back and returns `true`.
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
        drop(args);
        self.reply.truncate(before);
        self.reply.buf.shrink_to_fit();
        self.reply.overflowed = false;
        // What is before it was borrowed as well.
        self.show_output(&executor.server().client_memory);
        self.tick_replies = self.tick_replies.saturating_sub(1);
        self.wanted = wanted;
        true
    }

    /// Whether requests that waited for memory may continue.
    pub fn may_continue(&self, executor: &Executor) -> bool {
        let (server, config) = (executor.server(), executor.config());
        let is_behind = || {
            let memory = &server.client_memory;
            self.loan.is_none() && memory.is_behind(self.session.info.id)
        };
        let finds_room = || {
            let now_ms = clock::unix_ms();
            let waited_ms = (self.no_room_since_ms).map_or(0, |since_ms| now_ms.since(since_ms));
            server.find_room(config, self.wanted, waited_ms)
        };
        self.has_space(executor)
            && !self.has_no_room(executor)
            && (self.wanted == 0 || !is_behind() && finds_room())
    }

    /// Whether the connection is to be closed because it has waited too long for memory:
    /// [`STALLED_MS`] if it blocks other clients, as it reads no replies or has a loan for a
    /// request that cannot finish; [`MAX_ROOM_WAIT_MS`] if it only waits. A client that waits for
    /// space does not wait for memory of others.
    pub(in crate::net) fn has_stalled(&self, now_ms: UnixMs) -> bool {
        let active_ms = self.session.info.active_ms.load(Ordering::Relaxed);
        let since_ms = self
            .no_room_since_ms
            .map(|since_ms| since_ms.max(active_ms));
        let holds = self.unsent() > OUTPUT_FREE || self.loan.is_some();
        let limit_ms = match holds {
            true => STALLED_MS,
            false => MAX_ROOM_WAIT_MS,
        };
        self.awaits_space.is_none()
            && since_ms.is_some_and(|since_ms| now_ms.since(since_ms) > limit_ms)
            && (self.input.len() > self.run || self.has_unread())
    }

    /// Whether it has a loan for the rest of a request and has sent nothing for [`STALLED_MS`].
    pub(in crate::net) fn sends_nothing_more(&self, now_ms: UnixMs) -> bool {
        let active_ms = self.session.info.active_ms.load(Ordering::Relaxed);
        self.loan.is_some()
            && self.no_room_since_ms.is_none()
            && !self.session.waits_for_answer()
            && now_ms.since(active_ms) > STALLED_MS
    }

    /// Ends the wait for memory.
    pub(in crate::net) fn end_wait_for_room(&mut self) {
        self.no_room_since_ms = None;
        self.awaits_space = None;
        self.wanted = 0;
    }

    /// Describes for the log why the connection blocks others.
    pub(in crate::net) fn why_stalled(&self) -> String {
        let unsent = self.unsent();
        match unsent > OUTPUT_FREE {
            true => format!("sends requests and reads no replies, {unsent} bytes wait for it"),
            false => format!(
                "has sent {} bytes of requests that could not go on for long",
                self.input.len() - self.run
            ),
        }
    }

    /// Whether the socket has bytes to read; `false` on an error, as the peer is gone then.
    fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).unwrap_or(0) > 0
    }
}
