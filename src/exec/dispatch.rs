//! The stages of a request, in this order:
//!
//! | stage | function |
//! |---|---|
//! | is it HTTP: the connection is closed | `is_http` |
//! | admission: known, right number of arguments, allowed | `admission::admit` |
//! | held: clients are paused, or another thread cannot take what it would send | `hold_or_queue` |
//! | queued, in MULTI | `hold_or_queue` |
//! | held: a key is on its way to another server | `hold_or_queue` |
//! | shown to MONITOR clients | `begin_attempt` |
//! | locked, run, logged | `perform`, `locking::lock` |
//! | taken back: a key is held, or it takes long | `dispatch` |
//! | concluded: error reply, counted, CLIENT REPLY | `conclude` |

pub(super) mod admission;
mod locking;
mod tick;

use admission::may_grow;
pub use tick::{Ended, Parked};

use super::monitor;
use super::outcome::ON_ITS_WAY;
use super::record::{Mark, Slow};
use super::{Executor, Outcome, Stop};
use crate::commands::table::registry::Registered;
use crate::commands::table::secrets;
use crate::commands::{
    CmdResult, Command, Error, Flags, Handler, KeyFlags, KeySpec, OUT_OF_MEMORY, Own, ReadCtx,
    SessionCtx, WriteCtx,
};
use crate::resp::{FREE_BYTES, Reply};
use crate::state::Session;
use crate::state::clients::ClientFlags;
use crate::state::session::ReplyMode;
use crate::state::slowlog::Entry;
use crate::storage::txn::Lookups;
use crate::storage::{DbIndex, View};
use crate::sys::clock;
use std::sync::atomic::Ordering;

impl Executor {
    /// Runs one request and writes its reply.
    pub fn run(&mut self, session: &mut Session, args: &[&[u8]], reply: &mut Reply) -> Outcome {
        self.request.must_wait = true;
        self.request.plain = true;
        let outcome = self.dispatch(session, args, reply);
        self.tick.free += u32::from(!self.request.must_wait);
        outcome
    }

    /// There was no memory for the reply to a request once it had so many bytes, and
    /// `left_out` more were wanted: how much there should be before the request is run again.
    /// `None`: that is more than there can be, or the request may not be run again because it
    /// is not one command that only reads.
    pub fn room_for_retry(
        &self,
        session: &Session,
        args: &[&[u8]],
        bytes: usize,
        left_out: usize,
    ) -> Option<u64> {
        let limit = self.server.lending_limit(&self.thread.config);
        // Of a long value it is known how long it is, of a list it is not.
        let wanted = (2 * bytes.max(FREE_BYTES)).max(bytes.saturating_add(left_out)) as u64;
        // Others must have something to give back.
        let others = self
            .server
            .client_memory
            .taken()
            .saturating_sub(bytes as u64);
        let fits_now = others.saturating_add(wanted) <= limit;
        let may_fit = wanted <= limit && (others > limit / 8 || fits_now);
        let only_reads = || {
            self.resolve(args)
                .is_ok_and(|found| found.command.is_read())
        };
        (may_fit && session.multi().is_none() && only_reads()).then_some(wanted)
    }

    /// Takes a request through the stages that the module lists.
    fn dispatch(&mut self, session: &mut Session, args: &[&[u8]], reply: &mut Reply) -> Outcome {
        let start = reply.len();
        if self.thread.worker.is_none() {
            self.request.accesses_noted = false;
        }
        if is_http(args) {
            close_for_http(session);
            return Outcome::Done;
        }
        let found = match self.admit(session, args) {
            Ok(found) => found,
            Err(error) => {
                let error = self.refuse_in_multi(session, args, error);
                self.fail(&error, reply);
                self.suppress(session, reply, start);
                return Outcome::Done;
            }
        };
        if let Some(outcome) = self.hold_or_queue(session, found, args, reply) {
            return outcome;
        }
        let attempt = self.begin_attempt(session, found.command, args, start);
        let done = self.perform(session, found, args, reply);
        match done {
            _ if session.waiting.is_some() => {
                self.tick.record.tell(&self.server);
                Outcome::Blocked
            }
            Err(Stop::Conflict) => {
                self.tick.record.take_back(attempt.record);
                reply.truncate(start);
                Outcome::Paused
            }
            Err(Stop::Slow) => {
                self.tick.record.take_back(attempt.record);
                self.txn.set_lookups(attempt.lookups);
                self.txn.forget_events(attempt.events);
                reply.truncate(start);
                self.leave_to_worker(session, args, reply, start)
            }
            done => {
                self.conclude(session, found, args, reply, &attempt, done);
                Outcome::Done
            }
        }
    }

    /// What keeps an admitted request from being run now: a pause, a full outbox of another
    /// thread, MULTI, a key on its way to another server. `None`: nothing.
    fn hold_or_queue(
        &mut self,
        session: &mut Session,
        found: &Registered,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Option<Outcome> {
        let (command, start) = (found.command, reply.len());
        let on_keys = matches!(command.handler, Handler::Read(_) | Handler::Write(_));
        self.request.plain = on_keys && session.multi().is_none();
        // CLIENT LIST shows what waits or is queued, too.
        let last_command = &session.info.last_command;
        last_command.store(found.index as u32, Ordering::Relaxed);
        if self.is_paused(session, command, args) || self.is_held_back(session, command) {
            return Some(Outcome::Paused);
        }
        if self.queue_in_multi(session, command, args, reply) {
            self.suppress(session, reply, start);
            return Some(Outcome::Done);
        }
        self.waits_for_migration(session, command, args)
            .then_some(Outcome::Paused)
    }

    /// The request is about to be run: MONITOR clients see it.
    fn begin_attempt(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
        start: usize,
    ) -> Attempt {
        let record = self.tick.record.mark();
        let shown = self.server.clients.monitors() > 0 && monitor::is_shown(command);
        let shown_late = shown && monitor::is_shown_late(command);
        if shown && !shown_late {
            self.show_request(session, command, args);
        }
        self.tick.commands += 1;
        Attempt {
            start,
            record,
            lookups: self.txn.lookups(),
            events: self.txn.events(),
            shown_late,
        }
    }

    /// A command has been run, or has failed: writes an error reply, shows and counts the
    /// command, and applies what CLIENT REPLY and CLIENT CACHING ask for.
    fn conclude(
        &mut self,
        session: &mut Session,
        found: &Registered,
        args: &[&[u8]],
        reply: &mut Reply,
        attempt: &Attempt,
        done: Result<(), Stop>,
    ) {
        let (command, start) = (found.command, attempt.start);
        let failed = done.is_err();
        match done {
            Ok(()) => {}
            Err(Stop::Told(error)) => {
                reply.truncate(start);
                reply.error_bytes(&error.wire());
            }
            Err(stop) => {
                reply.truncate(start);
                self.fail(&stop.into_error(), reply);
            }
        }
        if attempt.shown_late {
            self.show(session, command, args);
        }
        if self.tick.record.has_lines() {
            self.tick.record.tell(&self.server);
        }
        match failed || !command.flags.contains(Flags::PUSHES) {
            true => self.suppress(session, reply, start),
            false => self.suppress(session, reply, usize::MAX),
        }
        if !session.overtaken.is_empty() {
            reply.insert(start, &std::mem::take(&mut session.overtaken));
        }
        self.collect_events();
        if let Some(options) = &mut session.tracking
            && options.caching
            && !session.info.flags().contains(ClientFlags::MULTI)
            && !command.flags.contains(Flags::KEEPS_CACHING)
        {
            options.caching = false;
        }
        let told = !self.tick.outbox.is_empty() || self.txn.has_changes();
        // A transaction may have ended what its client was subscribed to.
        self.tick.heard |= told && (session.listens() || self.tick.outbox.is_for(session.info.id));
        self.count(session, found, args, failed);
    }

    /// Counts an error reply that [`Executor::fail`] does not write.
    pub(super) fn count_error(&mut self, error: &Error) {
        match self.in_unit() {
            true => self.tick.record.error(&self.server, error),
            false => self.server.stats.error(&error.to_string()),
        }
    }

    pub(super) fn fail(&self, error: &Error, reply: &mut Reply) {
        reply.error_bytes(&error.wire());
        self.server.stats.error(&error.to_string());
    }

    /// Puts the events of the commands so far in line with what they published.
    pub(super) fn collect_events(&mut self) {
        if self.txn.has_events() {
            let events = self.txn.take_events();
            let notify = self.thread.config.notify_keyspace_events;
            self.tick.outbox.notify(&self.server, notify, &events);
        }
    }

    /// Locks, runs and logs one command, in a unit or alone.
    pub(super) fn perform(
        &mut self,
        session: &mut Session,
        found: &'static Registered,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        let command = found.command;
        if command.flags.contains(Flags::COMPILES) && self.thread.slices && !self.in_unit() {
            return Err(Stop::Slow);
        }
        match command.handler {
            Handler::Read(run) => self.read(session, command, args, reply, run),
            Handler::Write(run) => self.write(session, command, args, reply, run),
            Handler::Blocking(blocking) => self.block(session, command, args, reply, blocking.run),
            Handler::Session(run) => {
                let commits_first = command.flags.intersects(Flags::SLOW | Flags::EXCLUSIVE);
                if commits_first && !self.in_unit() {
                    self.commit_pending()?;
                }
                if command.flags.contains(Flags::PUBSUB) {
                    // What the unit did before comes before what it publishes.
                    self.collect_events();
                }
                let mut ctx = SessionCtx {
                    unit_began_us: self.unit.as_ref().map(|unit| unit.began_us),
                    session,
                    reply,
                    server: &self.server,
                    outbox: &mut self.tick.outbox,
                    changes: self.txn.changes(),
                    command,
                };
                let done = run(&mut ctx, args);
                // It may have been CONFIG SET.
                self.look_at_config();
                Ok(done?)
            }
            Handler::Own(own) => self.own(own, session, command, args, reply),
            Handler::Container => Err(Error::Arity(command.name.into()).into()),
        }
    }

    fn read(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
        reply: &mut Reply,
        run: fn(&mut ReadCtx<'_>, &[&[u8]]) -> CmdResult,
    ) -> Result<(), Stop> {
        if self.may_read_apart(session) {
            let (start, before) = (reply.len(), (self.txn.lookups(), self.txn.events()));
            let done = self.read_once(session, command, args, reply, run, true);
            if !matches!(done, Err(Stop::Slow)) {
                return done;
            }
            // Only with the locks.
            reply.truncate(start);
            self.txn.set_lookups(before.0);
            self.txn.forget_events(before.1);
        }
        self.read_once(session, command, args, reply, run, false)
    }

    /// Whether a command that only reads may do so without its keys' locks, which others
    /// would have to wait for. A client that tracks its reads must hear of every change after them.
    fn may_read_apart(&self, session: &Session) -> bool {
        self.thread.worker.is_some()
            && !self.in_unit()
            && !session.tracks_reads()
            && self.txn.pending_bytes() == 0
    }

    fn read_once(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
        reply: &mut Reply,
        run: fn(&mut ReadCtx<'_>, &[&[u8]]) -> CmdResult,
        apart: bool,
    ) -> Result<(), Stop> {
        let mark = match apart {
            true => self.begin_apart(session, command, args)?,
            false => self.lock(session, command, args)?,
        };
        self.begin_read_budget();
        let (db, server) = (session.db(), &self.server);
        let mut look = |view: &mut View| {
            view.start_reading();
            let mut ctx = ReadCtx {
                view,
                reply,
                db,
                server,
                session,
            };
            run(&mut ctx, args).map_err(Stop::from)
        };
        let done = match apart {
            true => self.txn.read_apart(look),
            false => look(self.txn.reading()),
        };
        self.end_read_budget();
        if session.tracks_reads() && !matches!(done, Err(Stop::Slow)) {
            self.track(session, command, args);
        }
        if !self.in_unit() {
            // Only read: nobody needs to wait for these keys until the commit.
            self.txn.unlock_since(mark);
        }
        done
    }

    fn write(
        &mut self,
        session: &mut Session,
        command: &Command,
        args: &[&[u8]],
        reply: &mut Reply,
        run: fn(&mut WriteCtx<'_>, &[&[u8]]) -> CmdResult,
    ) -> Result<(), Stop> {
        self.lock(session, command, args)?;
        self.refuse_migrating(session, command, args)?;
        self.check_still_master()?;
        let savepoint = self.txn.savepoint();
        self.txn.start_command();
        self.txn.set_origin(session.info.id.0);
        if may_grow(command) {
            self.txn.count_reads();
        } else if returns_data(command) {
            self.txn.count_reads_but_one();
        }
        self.begin_read_budget();
        let (db, overflowed) = (session.db(), reply.overflowed);
        let done = run(
            &mut WriteCtx {
                txn: &mut self.txn,
                reply,
                db,
                server: &self.server,
                session,
            },
            args,
        );
        self.end_read_budget();
        let done = match reply.overflowed && !overflowed {
            // What it returns would be lost: there is no memory for the reply.
            true => done.and(Err(OUT_OF_MEMORY)),
            false => done,
        };
        reply.overflowed &= overflowed || done.is_ok();
        match &done {
            Ok(()) => {
                if self.txn.dirty() > 0 {
                    session.wrote.set(true);
                }
                self.finish_command(db, command, args);
            }
            Err(_) => self.txn.rollback_failed(&savepoint),
        }
        if !self.in_unit() {
            self.serve_waiters();
            if command.flags.contains(Flags::EXCLUSIVE) {
                self.commit_pending()?;
            }
        }
        Ok(done?)
    }

    /// Whether others wait while this thread runs a command, so that what takes long is
    /// left to a worker. It is not where scripts occupy those.
    pub(super) fn limits_reads(&self) -> bool {
        self.thread.slices && !self.server.workers.any_running()
    }

    /// A command begins that is left to a worker if it takes long; in a unit, that is as a
    /// whole.
    pub(super) fn begin_read_budget(&self) {
        if !self.in_unit() {
            self.txn.limit_reads(self.limits_reads());
        }
    }

    /// The command is done: reads are limited no more.
    pub(super) fn end_read_budget(&self) {
        if !self.in_unit() {
            self.txn.limit_reads(false);
        }
    }

    /// Whether a command would write to keys that are on their way to another
    /// server: it is tried again when they are not.
    fn waits_for_migration(&self, session: &Session, command: &Command, args: &[&[u8]]) -> bool {
        if !self.server.migrations.is_active() {
            return false;
        }
        if command.is_own(Own::Exec) {
            return Self::queued(session, command).writes;
        }
        // What a script will write to is not known before it does.
        let script = Flags::MAY_REPLICATE;
        command.flags.intersection(script | Flags::PUBSUB) == script
            || command.is_write() && self.is_held_by_migration(session.db(), command, args)
    }

    /// Whether a writing command names keys that are on their way.
    pub(super) fn is_held_by_migration(
        &self,
        db: DbIndex,
        command: &Command,
        args: &[&[u8]],
    ) -> bool {
        let migrations = &self.server.migrations;
        if !migrations.is_active() {
            return false;
        }
        let other = command.other_db(args);
        let mut found = command.flags.contains(Flags::EXCLUSIVE);
        command.for_each_written_key(args, |key| {
            found |= migrations.holds(db, key);
            found |= other.is_some_and(|other| migrations.holds(other, key));
        });
        found
    }

    /// The look under the locks, which counts.
    ///
    /// # Errors
    /// [`Stop::Conflict`]: the command must be tried again. A unit that has come
    /// so far is not: its command fails.
    pub(super) fn refuse_migrating(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<(), Stop> {
        if !self.is_held_by_migration(session.db(), command, args) {
            return Ok(());
        }
        if self.in_unit() {
            return Err(Stop::Failed(ON_ITS_WAY));
        }
        // A turn that excludes all others must end first.
        self.commit_pending()?;
        Err(Stop::Conflict)
    }

    /// Notes that a client that tracks keys has read some, whose locks are held.
    pub(super) fn track(&mut self, session: &Session, command: &Command, args: &[&[u8]]) {
        let db = session.db();
        let tracking = &self.server.tracking;
        for index in command.key_indices(args).unwrap_or_default() {
            let key = args[index];
            let hash = self.txn.key_hash(db, key);
            tracking.note_read(&self.server.clients, session.info.id, db, key, hash);
        }
    }

    /// A writing command is done: logs it, and says which keys it changed.
    pub(super) fn finish_command(&mut self, db: DbIndex, command: &Command, args: &[&[u8]]) {
        self.txn.finish_command(db, args);
        if self.txn.has_unnoted_rows() {
            command.for_each_written_key(args, |key| self.txn.note_written(db, key));
        }
        if !self.in_unit() {
            self.announce_changes();
        }
    }

    /// CLIENT REPLY, for what was replied from `start` on.
    pub(super) fn suppress(&self, session: &mut Session, reply: &mut Reply, start: usize) {
        session.reply_mode = match session.reply_mode {
            ReplyMode::On => return,
            ReplyMode::Off => ReplyMode::Off,
            ReplyMode::SkipNext => ReplyMode::SkipThis,
            ReplyMode::SkipThis => ReplyMode::On,
        };
        reply.truncate(start);
    }

    pub(super) fn count(
        &mut self,
        session: &Session,
        found: &Registered,
        args: &[&[u8]],
        failed: bool,
    ) {
        let now_us = clock::mono_us();
        let usec = now_us.saturating_sub(self.tick.last_us);
        self.tick.last_us = now_us;
        match self.in_unit() {
            true => self
                .tick
                .record
                .call(&self.server, found.index, usec, failed),
            false => self.server.stats.ran(found.index, usec, failed),
        }
        let (ms, threshold_ms) = (usec / 1000, self.thread.config.latency_monitor_threshold_ms);
        if threshold_ms > 0 && ms >= threshold_ms {
            let class = match found.command.flags.contains(Flags::FAST) {
                true => "fast-command",
                false => "command",
            };
            self.note_slow(Slow::Latency(class, ms, self.tick.now_ms / 1000));
        }
        let limit = self.thread.config.slowlog_log_slower_than_us;
        let slow = limit >= 0 && usec >= limit as u64;
        if slow && !found.command.flags.contains(Flags::SKIP_SLOWLOG) {
            let hidden = secrets::visible(found.command.secret, args);
            let (at_s, info) = (self.tick.now_ms / 1000, &session.info);
            let entry = Entry::new(&hidden, usec, at_s, &info.addr, &info.names.lock().name);
            self.note_slow(Slow::Log(
                entry,
                self.thread.config.slowlog_max_len as usize,
            ));
        }
    }

    fn note_slow(&mut self, slow: Slow) {
        self.tick.record.slow(&self.server, slow);
        if !self.in_unit() {
            self.tick.record.count(&self.server);
        }
    }
}

/// Whether a command returns data that it reads.
fn returns_data(command: &Command) -> bool {
    let returns = |spec: &KeySpec| spec.flags.contains(KeyFlags::ACCESS);
    command.keys.iter().any(returns)
}

/// What CLIENT PAUSE WRITE holds back.
pub(super) fn may_write(command: &Command) -> bool {
    command.is_write() || command.flags.contains(Flags::MAY_REPLICATE)
}

/// Where a request goes back to that is not run to its end now.
struct Attempt {
    /// Where its reply begins.
    start: usize,
    record: Mark,
    lookups: Lookups,
    events: usize,
    /// Whether MONITOR clients see it only once it is done.
    shown_late: bool,
}

/// Closes a connection on which a browser may be speaking, without a reply.
fn close_for_http(session: &mut Session) {
    log::warn!(
        "client {} at {} speaks HTTP: somebody may be using a browser to reach this server",
        session.info.id.0,
        session.info.addr
    );
    session.close_after_reply = true;
}

/// A browser that was made to send a request here has a line that begins with
/// one of these; what follows could be commands of its choice.
fn is_http(args: &[&[u8]]) -> bool {
    args.first().is_some_and(|name| {
        name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
    })
}
