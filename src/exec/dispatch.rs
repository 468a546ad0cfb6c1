//! The stages of a request, in this order:
//!
//! | stage | function |
//! |---|---|
//! | close the connection if the request is HTTP | `is_http` |
//! | admission: the command exists, has the right number of arguments, and is allowed | `admission::admit` |
//! | hold: clients are paused, or another thread has too many messages queued | `hold_or_queue` |
//! | queue, after MULTI | `hold_or_queue` |
//! | hold: MIGRATE is moving a key | `hold_or_queue` |
//! | show to MONITOR clients | `begin_attempt` |
//! | lock, run, log | `perform`, `locking::lock` |
//! | take back: another thread holds a key, the request is slow, or needs what is not in memory | `dispatch` |
//! | conclude: error reply, statistics, CLIENT REPLY | `conclude` |

pub(super) mod admission;
pub(super) mod locking;
mod report;
pub(super) mod slots;
mod tick;

use admission::may_grow;
use locking::MANY_WORDS;
pub use tick::{Ended, Parked};

use super::monitor;
use super::outcome::ON_ITS_WAY;
use super::record::Mark;
use super::{Executor, Outcome, Stop};
use crate::commands::table::registry::Registered;
use crate::commands::table::spec::Channels;
use crate::commands::{
    CmdResult, Command, Error, Flags, Handler, KeyFlags, KeySpec, OUT_OF_MEMORY, Own, ReadCtx,
    SessionCtx, WriteCtx,
};
use crate::resp::{FREE_BYTES, Reply};
use crate::state::Session;
use crate::state::clients::ClientFlags;
use crate::state::request::Request;
use crate::state::session::ReplyMode;
use crate::storage::txn::Lookups;
use crate::storage::{DbIndex, StorageError, View};
use crate::sys::clock;
use std::sync::atomic::Ordering;

/// A reply is not lent `1 / PART_LEFT` of what all clients may have: they always hold a little.
const PART_LEFT: u64 = 8;

impl Executor {
    /// Runs one request and writes its reply.
    pub fn run(&mut self, session: &mut Session, args: &[&[u8]], reply: &mut Reply) -> Outcome {
        self.request.must_wait = true;
        self.request.plain = true;
        self.request.lacked_room = false;
        self.request.wanted_room = None;
        self.request.scripts_begun = 0;
        let before = fastrand::get_seed();
        let first = self.request.retry.seed.take();
        if let Some(first) = first {
            fastrand::seed(first);
        }
        let outcome = self.dispatch(session, args, reply);
        if first.is_some() {
            // Later requests draw what nothing has drawn before.
            fastrand::seed(before);
        }
        if outcome == Outcome::Cold {
            self.request.retry.seed = first.or(Some(before));
        }
        // There is no reply yet.
        self.request.must_wait &= outcome != Outcome::Cold;
        self.tick.free += u32::from(!self.request.must_wait);
        outcome
    }

    /// Called when there was no memory for a reply after `bytes` bytes, and `left_out` more
    /// were wanted. Returns how many bytes should be free before the request is run again, or
    /// `None` if there can never be so many, or if the request is not a single command that reads
    /// or was rolled back.
    pub fn room_for_retry(
        &self,
        session: &Session,
        args: &[&[u8]],
        bytes: usize,
        left_out: usize,
    ) -> Option<u64> {
        if self.request.wanted_room.is_some() {
            return self.request.wanted_room;
        }
        let limit = self.server.lending_limit(&self.thread.config);
        // The length of a long string is known in advance, that of a list is not: it gets twice as
        // much, but not all at once.
        let most = (limit - limit / PART_LEFT) as usize;
        let twice = (2 * bytes.max(FREE_BYTES)).min(most);
        let more = bytes + bytes / PART_LEFT as usize;
        let wanted = twice.max(more).max(bytes.saturating_add(left_out)) as u64;
        // Waiting helps only if other clients hold memory that they will give back.
        let others = self
            .server
            .client_memory
            .taken()
            .saturating_sub(bytes as u64);
        let fits_now = others.saturating_add(wanted) <= limit;
        let may_fit = wanted <= limit && (others > limit / PART_LEFT || fits_now);
        let can_run_again = || {
            let rolled_back = self.request.lacked_room;
            self.resolve(args).is_ok_and(|found| {
                found.command.is_read() || rolled_back && found.command.is_write()
            })
        };
        (may_fit && session.multi().is_none() && can_run_again()).then_some(wanted)
    }

    /// Whether a command for whose reply there was no memory is to run again when there is.
    fn waits_for_room(
        &mut self,
        session: &Session,
        args: &[&[u8]],
        reply: &Reply,
        start: usize,
    ) -> bool {
        if !self.request.lacked_room || self.request.waited_for_room {
            return false;
        }
        let bytes = reply.len() - start;
        self.request.wanted_room = self.room_for_retry(session, args, bytes, reply.left_out);
        self.request.wanted_room.is_some()
    }

    /// Closes a connection, without a reply, that a browser may be using.
    fn close_for_http(&self, session: &mut Session) {
        session.close_after_reply = true;
        if self.is_http_news(clock::mono_us()) {
            log::warn!(
                "client {} at {} speaks HTTP: a web page may be sending requests to this server \
                 through a browser; for a minute the log does not tell of others",
                session.info.id.0,
                session.info.addr
            );
        }
    }

    /// Whether the log is to tell of HTTP. Everyone can connect, and must not fill the disk of the
    /// log.
    fn is_http_news(&self, now_us: u64) -> bool {
        const TELL_EVERY_US: u64 = 60_000_000;
        let is_old = |told| told == 0 || now_us.saturating_sub(told) >= TELL_EVERY_US;
        let tell = |told| is_old(told).then_some(now_us);
        let told = &self.server.told_of_http_us;
        told.fetch_update(Ordering::Relaxed, Ordering::Relaxed, tell)
            .is_ok()
    }

    /// Takes a request through the stages in the table above.
    fn dispatch(&mut self, session: &mut Session, args: &[&[u8]], reply: &mut Reply) -> Outcome {
        let start = reply.len();
        if self.thread.worker.is_none() {
            self.request.accesses_noted = false;
        }
        if is_http(args) {
            self.close_for_http(session);
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
                self.tick.record.flush(&self.server);
                Outcome::Blocked
            }
            Err(Stop::Conflict) => {
                self.tick.record.take_back(attempt.record);
                reply.truncate(start);
                self.tick.last_us = clock::mono_us();
                Outcome::Paused
            }
            Err(Stop::Failed(_)) if self.waits_for_room(session, args, reply, start) => {
                self.take_back(&attempt);
                // Its caller takes back what there is of the reply.
                reply.overflowed = true;
                Outcome::Done
            }
            Err(stop @ (Stop::Slow | Stop::Cold)) => {
                self.take_back(&attempt);
                reply.truncate(start);
                reply.overflowed = false;
                match matches!(stop, Stop::Cold) && self.waits_for_reads() {
                    true => {
                        self.look_for_keys(session, found.command, args);
                        self.request.retry.rounds += 1;
                        Outcome::Cold
                    }
                    false => self.leave_to_worker(session, args, reply, start),
                }
            }
            done => {
                self.conclude(session, found, args, reply, &attempt, done);
                Outcome::Done
            }
        }
    }

    /// Takes back what an attempt has counted and announced.
    fn take_back(&mut self, attempt: &Attempt) {
        // A long line has gone to MONITOR clients already.
        self.request.retry.shown |= self.tick.record.was_flushed_since(&attempt.record);
        self.tick.record.take_back(attempt.record);
        self.txn.set_lookups(attempt.lookups);
        self.txn.forget_events(attempt.events);
        self.tick.last_us = clock::mono_us();
    }

    /// Holds back or queues an admitted request: a pause, a full outbox of another thread,
    /// MULTI, a key that MIGRATE is moving. `None`: it can run now.
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
        // CLIENT LIST also shows requests that are held or queued.
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

    /// Called just before a request runs: shows it to MONITOR clients.
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

    /// Called when a command has run or failed: writes an error reply, shows and counts the
    /// command, and applies CLIENT REPLY and CLIENT CACHING.
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
            Err(Stop::Counted(error)) => {
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
            self.tick.record.flush(&self.server);
        }
        match failed || !command.flags.contains(Flags::PUSHES) {
            true => self.suppress(session, reply, start),
            false => self.suppress(session, reply, usize::MAX),
        }
        if !session.output_before_reply.is_empty() {
            reply.insert(start, &std::mem::take(&mut session.output_before_reply));
        }
        self.collect_events();
        if let Some(options) = &mut session.tracking
            && options.caching
            && !session.info.flags().contains(ClientFlags::MULTI)
            && !command.flags.contains(Flags::KEEPS_CACHING)
        {
            options.caching = false;
        }
        let sends = !self.tick.outbox.is_empty() || self.txn.has_changes();
        // A transaction may have ended a subscription of its own client.
        self.tick.must_end |=
            sends && (session.gets_messages() || self.tick.outbox.is_for(session.info.id));
        let reply_bytes = reply.len().saturating_sub(start);
        self.count(session, found, args, failed, reply_bytes);
        // That of EXEC.
        session.slot.set(None);
        let commands = 1 + std::mem::take(&mut self.tick.commands_in_unit);
        session.info.commands.fetch_add(commands, Ordering::Relaxed);
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

    /// Appends the keyspace events of the commands so far to the outbox, in order with their
    /// published messages.
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
        // The source of an import deletes its expired keys itself.
        let is_source = session.info.flags().contains(ClientFlags::IMPORT_SOURCE);
        let importing = self.thread.config.import_mode;
        self.txn.set_import(importing, is_source);
        let done = self.perform_as_set(session, found, args, reply);
        if is_source {
            // Clients that the command serves are others.
            self.txn.set_import(importing, false);
        }
        // Permissions and locks are those of the keys that are found.
        debug_assert!(
            done.is_err() || found.command.key_indices(args).is_some(),
            "{} has run with arguments in which its keys are not found",
            found.full_name
        );
        done
    }

    fn perform_as_set(
        &mut self,
        session: &mut Session,
        found: &'static Registered,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        let command = found.command;
        if command.flags.contains(Flags::ON_WORKER) && self.thread.slices {
            return Err(Stop::Slow);
        }
        if self.thread.turns
            && matches!(
                command.handler,
                Handler::Own(Own::Script(_) | Own::Populate)
            )
        {
            // They have bounds of their own.
            return Err(Stop::Slow);
        }
        match command.handler {
            Handler::Read(run) => self.read(session, command, args, reply, run),
            Handler::Write(run) => {
                let done = self.write(session, command, args, reply, run);
                if command.flags.contains(Flags::EXCLUSIVE) && !self.in_unit() {
                    self.thread.ahead.clear();
                }
                done
            }
            Handler::Blocking(blocking) => self.block(session, command, args, reply, blocking.run),
            Handler::Session(run) => {
                if self.thread.slices && self.takes_long(session, command, args) {
                    return Err(self.leave_session_command(command));
                }
                let commits_first = command.flags.intersects(Flags::SLOW | Flags::EXCLUSIVE);
                if commits_first && !self.in_unit() {
                    self.commit_pending()?;
                }
                if command.flags.contains(Flags::PUBSUB) {
                    // Events of earlier commands of the unit precede its message.
                    self.collect_events();
                }
                let mut ctx = SessionCtx {
                    unit_time_us: self.unit_time_us(),
                    session,
                    reply,
                    server: &self.server,
                    outbox: &mut self.tick.outbox,
                    changes: self.txn.changes(),
                    command,
                };
                let done = run(&mut ctx, args);
                // The command may have been CONFIG SET.
                self.refresh_config();
                Ok(done?)
            }
            Handler::Own(own) => self.own(own, session, command, args, reply),
            Handler::Container => Err(Error::Arity(command.name.into()).into()),
        }
    }

    /// Whether a command on a session takes long, because its arguments are very many or long, or
    /// because it ends very many subscriptions, and can be left to a worker.
    fn takes_long(&self, session: &Session, command: &Command, args: &[&[u8]]) -> bool {
        let ends_many = || {
            let names = session.named_parts().max(match session.tracking.is_some() {
                true => self.server.tracking.table_size().0,
                false => 0,
            });
            names > MANY_WORDS && command.flags.contains(Flags::COUNTS_NAMES)
        };
        (self.is_long(command, args) || ends_many()) && !self.in_unit() && self.has_workers()
    }

    /// How a command on a session that takes long stops here. What this thread has published for the
    /// client must be sent before a worker changes its subscriptions.
    fn leave_session_command(&self, command: &Command) -> Stop {
        let concerned = Flags::PUBSUB | Flags::COUNTS_NAMES;
        match command.flags.intersects(concerned) && !self.tick.outbox.is_empty() {
            true => Stop::Conflict,
            false => Stop::Slow,
        }
    }

    /// Whether a request subscribes its client to names.
    pub fn subscribes(&self, request: &Request) -> bool {
        let found = self.resolve(&request.head());
        found.is_ok_and(|found| {
            let command = found.command;
            command.flags.contains(Flags::PUSHES) && command.channels != Channels::None
        })
    }

    fn read(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
        reply: &mut Reply,
        run: fn(&mut ReadCtx<'_>, &[&[u8]]) -> CmdResult,
    ) -> Result<(), Stop> {
        if self.may_read_unlocked(session) {
            let (start, before) = (reply.len(), (self.txn.lookups(), self.txn.events()));
            let done = self.read_once(session, command, args, reply, run, true);
            if !matches!(done, Err(Stop::Slow)) || self.turn_is_over() {
                return done;
            }
            // This command needs the locks.
            reply.truncate(start);
            self.txn.set_lookups(before.0);
            self.txn.forget_events(before.1);
        }
        self.read_once(session, command, args, reply, run, false)
    }

    /// Whether the request has run for its turn.
    fn turn_is_over(&self) -> bool {
        let server = &self.server;
        self.thread.worker.as_deref().is_some_and(|worker| {
            let verdict = server.workers.verdict(worker, &server.clients);
            matches!(verdict, Err(StorageError::ReadBudgetSpent))
        })
    }

    /// Whether a read-only command may read from a snapshot, without locks for which other
    /// threads would have to wait. Not for a client that tracks its reads: it must be sent
    /// every later change.
    fn may_read_unlocked(&self, session: &Session) -> bool {
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
        unlocked: bool,
    ) -> Result<(), Stop> {
        let mark = match unlocked {
            true => {
                // Nobody waits for it, so it need not be taken back.
                self.request.in_memory = false;
                self.begin_unlocked(session, command, args)?
            }
            false => self.lock(session, command, args)?,
        };
        self.begin_read_budget();
        let (db, server) = (session.db(), &self.server);
        let mut execute = |view: &mut View| {
            view.start_reading();
            let mut ctx = ReadCtx {
                view,
                reply,
                db,
                server,
                session,
            };
            count_arguments(command, ctx.view, args)?;
            run(&mut ctx, args).map_err(Stop::from)
        };
        let done = match unlocked {
            true => self.txn.read_apart(execute),
            false => execute(self.txn.reading()),
        };
        self.end_read_budget();
        if session.tracks_reads() && !matches!(done, Err(Stop::Slow | Stop::Cold)) {
            self.track(session, command, args);
        }
        if !self.in_unit() {
            // A reader need not hold its keys until the commit.
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
        if self.waiters_lack_keys(session.db(), command, args) {
            return Err(Stop::Cold);
        }
        let savepoint = self.txn.savepoint();
        self.txn.start_command();
        self.txn.set_origin(session.info.id.0);
        self.count_reads_of(command);
        self.begin_read_budget();
        let (db, overflowed) = (session.db(), reply.overflowed);
        let done = count_arguments(command, &self.txn, args).and_then(|()| {
            let mut ctx = WriteCtx {
                txn: &mut self.txn,
                reply,
                db,
                server: &self.server,
                session,
                ahead: &self.thread.ahead,
            };
            run(&mut ctx, args)
        });
        self.end_read_budget();
        let done = self.check_memory(done, reply, overflowed);
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

    /// Counts what a command that writes reads, as far as it copies that.
    pub(super) fn count_reads_of(&self, command: &Command) {
        if may_grow(command) {
            self.txn.count_reads();
        } else if returns_data(command) {
            self.txn.count_reads_but_one();
        }
    }

    /// The result of a command that writes, which fails if there was no memory for its reply, whose
    /// data would be lost, or for its effects. `overflowed`: there was none before the command.
    pub(super) fn check_memory<R>(
        &mut self,
        done: Result<R, Error>,
        reply: &mut Reply,
        overflowed: bool,
    ) -> Result<R, Error> {
        let lacks_room = reply.overflowed && !overflowed;
        self.request.lacked_room |= lacks_room;
        let done = done.and_then(|done| match lacks_room {
            true => Err(OUT_OF_MEMORY),
            false => Ok(self.txn.check_effects().map(|()| done)?),
        });
        reply.overflowed &= overflowed || done.is_ok();
        done
    }

    /// Whether commands here have a read budget, after which they go to a worker. They have
    /// none while scripts occupy the workers.
    pub(super) fn limits_reads(&self) -> bool {
        self.thread.slices && !self.server.workers.any_running()
    }

    /// Whether a request that is known to take long can go to a worker from here.
    pub(super) fn has_workers(&self) -> bool {
        self.thread.slices && !self.server.workers.are_all_running()
    }

    /// Whether a command would write to keys that MIGRATE is moving. It is then tried again
    /// later.
    fn waits_for_migration(&self, session: &Session, command: &Command, args: &[&[u8]]) -> bool {
        if !self.server.migrations.is_active() {
            return false;
        }
        if command.is_own(Own::Exec) {
            return Self::queued(session, command).writes;
        }
        // The keys that a script writes are not known in advance.
        let script = Flags::MAY_REPLICATE;
        command.flags.intersection(script | Flags::PUBSUB) == script
            || command.is_write() && self.is_held_by_migration(session.db(), command, args)
    }

    /// Whether a command writes to keys that MIGRATE is moving.
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

    /// The same check under the locks of the keys, which is the decisive one.
    ///
    /// # Errors
    /// [`Stop::Conflict`]: the command must be tried again. In a unit the command fails
    /// instead.
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
        // An exclusive turn must end first.
        self.commit_pending()?;
        Err(Stop::Conflict)
    }

    /// Records the keys that a client with tracking has read; their locks are held.
    pub(super) fn track(&mut self, session: &Session, command: &Command, args: &[&[u8]]) {
        let db = session.db();
        let tracking = &self.server.tracking;
        for index in command.key_indices(args).unwrap_or_default() {
            let key = args[index];
            let hash = self.txn.key_hash(db, key);
            tracking.note_read(&self.server.clients, session.info.id, db, key, hash);
        }
    }

    /// Called when a writing command is done: logs it and announces the changed keys.
    pub(super) fn finish_command(&mut self, db: DbIndex, command: &Command, args: &[&[u8]]) {
        self.txn.finish_command(db, args);
        if self.txn.has_unnoted_rows() {
            command.for_each_written_key(args, |key| self.txn.note_written(db, key));
        }
        if !self.in_unit() {
            self.announce_changes();
        }
    }

    /// Applies CLIENT REPLY to the reply from `start` on.
    pub(super) fn suppress(&self, session: &mut Session, reply: &mut Reply, start: usize) {
        session.reply_mode = match session.reply_mode {
            ReplyMode::On => return,
            ReplyMode::Off => ReplyMode::Off,
            ReplyMode::SkipNext => ReplyMode::SkipThis,
            ReplyMode::SkipThis => ReplyMode::On,
        };
        reply.truncate(start);
    }
}

/// Whether a command returns data that it reads.
fn returns_data(command: &Command) -> bool {
    let returns = |spec: &KeySpec| spec.flags.contains(KeyFlags::ACCESS);
    command.keys.iter().any(returns)
}

/// Whether CLIENT PAUSE WRITE holds the command back.
pub(super) fn may_write(command: &Command) -> bool {
    command.is_write() || command.flags.contains(Flags::MAY_REPLICATE)
}

/// The state to restore if a request is taken back.
struct Attempt {
    /// Length of the output before the reply.
    start: usize,
    record: Mark,
    lookups: Lookups,
    events: usize,
    /// Whether MONITOR clients see the request only when it is done.
    shown_late: bool,
}

/// Counts the arguments as read, if the command parses them.
fn count_arguments(command: &Command, view: &View, args: &[&[u8]]) -> CmdResult {
    if command.flags.contains(Flags::PARSES) {
        view.will_parse(args).map_err(Error::from)?;
    }
    Ok(())
}

/// Whether this is a line of an HTTP request. A web page can make a browser send one here, with
/// commands in its body.
fn is_http(args: &[&[u8]]) -> bool {
    args.first().is_some_and(|name| {
        name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
    })
}
