//! The ladder that every command climbs: known, right number of arguments,
//! allowed, not paused, locked, run, logged, counted.

pub(super) mod admission;
mod locking;
mod tick;

pub use tick::{Ended, Parked};

use super::blocking::WaitingRoom;
use super::monitor;
use super::record::{Record, Slow};
use super::scripts::ThreadScripts;
use super::unit::{Stop, Unit};
use crate::base::clock;
use crate::commands::names::Names;
use crate::commands::registry::Registered;
use crate::commands::{
    CmdResult, Command, Error, Flags, Handler, Own, ReadCtx, SessionCtx, WriteCtx, secrets,
};
use crate::resp::{FREE_BYTES, Reply};
use crate::state::clients::ClientFlags;
use crate::state::config::Config;
use crate::state::lanes::Lane;
use crate::state::pubsub::Outbox;
use crate::state::session::ReplyMode;
use crate::state::slowlog::Entry;
use crate::state::{Server, Session};
use crate::storage::{DbIndex, Expected, Txn, View};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A key may not be written to now, and the command cannot wait for that.
pub(super) const ON_ITS_WAY: Error =
    Error::text("TRYAGAIN a key of this command is on its way to another server");

/// Whether a request was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was, and its reply is written.
    Done,
    /// The client is paused, or would send to others more than they can take now:
    /// ask again later with the same request.
    Paused,
    /// It was begun; its reply comes when its wait is over.
    Blocked,
    /// It takes too long for an IO thread: run it on a lane.
    Slow,
}

/// The [`crate::storage::View::key_hash`]es of a command's keys.
pub(super) type KeyHashes = SmallVec<[u64; 8]>;

/// Runs the commands of one thread. See the module [`crate::exec`].
pub struct Executor {
    pub(super) server: Arc<Server>,
    pub(super) txn: Txn,
    pub(super) unit: Option<Unit>,
    pub(super) waiting: WaitingRoom,
    config: Arc<Config>,
    config_version: u64,
    /// What clients call commands.
    names: Names,
    /// The clock of the test harness; otherwise real time counts.
    fixed_now_ms: Option<u64>,
    pub(super) now_ms: u64,
    tick_started_us: u64,
    /// When the command before ended.
    pub(super) last_us: u64,
    pub(super) commands: u32,
    /// See [`Executor::owes_sync`].
    owes_sync: bool,
    failed: bool,
    /// Whether what was run last saw or wrote what may not be on the disk.
    must_wait: bool,
    plain: bool,
    /// How many requests of the tick did not.
    free: u32,
    /// Whether the tick ran commands that read or wrote keys.
    pub(super) touched_keys: bool,
    /// What the tick's commands send to clients.
    pub(super) outbox: Outbox,
    /// Whether scripts run here for a slice of time only.
    pub(super) slices: bool,
    /// Where scripts run for as long as they need, if that is here.
    pub(super) lane: Option<Arc<Lane>>,
    /// Once set, scripts that run here end, but for those of a lane.
    pub(super) ended: Arc<AtomicBool>,
    /// The interpreter, made when the first script comes.
    pub(super) scripts: Option<Box<ThreadScripts>>,
    /// What is to be counted and shown of commands.
    pub(super) record: Record,
    /// Whether MONITOR clients have seen the request that a lane runs.
    pub(super) request_shown: bool,
    /// Whether the keys of the request count as accessed already.
    pub(super) accesses_noted: bool,
    /// Whether some thread has more to send to its clients than it keeps up with.
    swamped: bool,
    /// Whether the tick should end: its client hears of what it did itself, and
    /// that belongs between the replies.
    heard: bool,
}

impl Executor {
    /// An executor for one thread.
    pub fn new(server: Arc<Server>) -> Executor {
        let version = server.config.version();
        let config = server.config.load();
        let mut executor = Executor {
            txn: Txn::new(server.engine.clone()),
            unit: None,
            waiting: WaitingRoom::default(),
            names: Names::of(&config),
            config,
            config_version: version,
            server,
            fixed_now_ms: None,
            now_ms: 0,
            tick_started_us: 0,
            last_us: 0,
            commands: 0,
            owes_sync: false,
            failed: false,
            must_wait: true,
            plain: true,
            free: 0,
            touched_keys: false,
            outbox: Outbox::default(),
            slices: false,
            lane: None,
            ended: Arc::default(),
            scripts: None,
            record: Record::default(),
            request_shown: false,
            accesses_noted: false,
            swamped: false,
            heard: false,
        };
        executor.want_events();
        executor.txn.keep_changes();
        executor
    }

    /// An executor for the IO thread of this number.
    pub fn of_thread(server: Arc<Server>, thread: usize) -> Executor {
        let mut executor = Executor {
            outbox: Outbox::of_thread(thread),
            slices: true,
            ..Executor::new(server)
        };
        executor.txn.be_impatient();
        executor
    }

    /// An executor for requests that take long.
    pub fn on_lane(server: Arc<Server>) -> Executor {
        let mut executor = Executor::new(server);
        let owner = executor.txn.for_long();
        // Who waits for a slow script is told so.
        executor.txn.be_impatient();
        executor.lane = Some(executor.server.lanes.add(owner));
        executor
    }

    /// Has scripts that run here end, and what they are a part of fail, once this is set.
    pub fn end_with(&mut self, ended: Arc<AtomicBool>) {
        self.ended = ended;
    }

    /// What all threads share.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The configuration as of this tick.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The time of this tick, Unix ms.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Sets the time for good (tests).
    pub fn fix_clock(&mut self, now_ms: u64) {
        self.fixed_now_ms = Some(now_ms);
    }

    /// Has the processor fetch what requests will need that come soon.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = (DbIndex, &'k [u8])>) {
        let accesses = &self.server.accesses;
        self.txn.prefetch(keys, |hash| accesses.prefetch(hash));
    }

    /// The first step of [`Executor::prefetch`] for one key; the second is for what it
    /// returns, and does not wait if it is made some time later.
    pub fn prefetch_place(&self, db: DbIndex, key: &[u8]) -> Option<Expected> {
        let accesses = &self.server.accesses;
        self.txn
            .prefetch_place(db, key, |hash| accesses.prefetch(hash))
    }

    /// The second step.
    pub fn prefetch_row(&self, expected: Expected) {
        self.txn.prefetch_row(expected);
    }

    /// Runs one request and writes its reply.
    pub fn run(&mut self, session: &mut Session, args: &[&[u8]], reply: &mut Reply) -> Outcome {
        self.must_wait = true;
        self.plain = true;
        let outcome = self.climb(session, args, reply);
        self.free += u32::from(!self.must_wait);
        outcome
    }

    /// Whether the reply to the request that was run last has to wait for the disk
    /// if its tick does.
    pub fn must_wait(&self) -> bool {
        self.must_wait
    }

    /// Whether the request that was run last cannot have changed its session.
    pub fn was_plain(&self) -> bool {
        self.plain
    }

    /// Whether its keys have counted as accessed, though it is to be run again.
    pub fn accesses_noted(&self) -> bool {
        self.accesses_noted
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
        let limit = self.server.lending_limit(&self.config);
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

    fn climb(&mut self, session: &mut Session, args: &[&[u8]], reply: &mut Reply) -> Outcome {
        let start = reply.len();
        if self.lane.is_none() {
            self.accesses_noted = false;
        }
        if is_http(args) {
            log::warn!(
                "client {} at {} speaks HTTP: somebody may be using a browser to reach this server",
                session.info.id.0,
                session.info.addr
            );
            session.close_after_reply = true;
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
        let command = found.command;
        let on_keys = matches!(command.handler, Handler::Read(_) | Handler::Write(_));
        self.plain = on_keys && session.multi().is_none();
        // CLIENT LIST shows what waits or is queued, too.
        let last_command = &session.info.last_command;
        last_command.store(found.index as u32, Ordering::Relaxed);
        if self.is_paused(session, command, args) || self.is_held_back(session, command) {
            return Outcome::Paused;
        }
        if self.queue_in_multi(session, command, args, reply) {
            self.suppress(session, reply, start);
            return Outcome::Done;
        }
        if self.waits_for_migration(session, command, args) {
            return Outcome::Paused;
        }
        let before = self.record.mark();
        let shown = self.server.clients.monitors() > 0 && monitor::is_shown(command);
        let shown_late = shown && monitor::is_shown_late(command);
        if shown && !shown_late {
            self.show_request(session, command, args);
        }
        self.commands += 1;
        let (lookups, events) = (self.txn.lookups(), self.txn.events());
        let done = self.perform(session, found, args, reply);
        if session.waiting.is_some() {
            self.record.tell(&self.server);
            return Outcome::Blocked;
        }
        if matches!(done, Err(Stop::Conflict)) {
            self.record.take_back(before);
            reply.truncate(start);
            return Outcome::Paused;
        }
        if matches!(done, Err(Stop::Slow)) {
            self.record.take_back(before);
            self.txn.set_lookups(lookups);
            self.txn.forget_events(events);
            reply.truncate(start);
            return self.leave_to_lane(session, args, reply, start);
        }
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
        if shown_late {
            self.show(session, command, args);
        }
        if self.record.has_lines() {
            self.record.tell(&self.server);
        }
        match failed || !command.flags.contains(Flags::PUSHES) {
            true => self.suppress(session, reply, start),
            false => self.suppress(session, reply, usize::MAX),
        }
        if !session.overtaken.is_empty() {
            reply.insert(start, &std::mem::take(&mut session.overtaken));
        }
        self.collect_events();
        if let Some(choice) = &mut session.tracking
            && choice.caching
            && !session.info.flags().contains(ClientFlags::MULTI)
            && !found.full_name.starts_with("client|")
        {
            choice.caching = false;
        }
        let told = !self.outbox.is_empty() || self.txn.has_changes();
        // A transaction may have ended what its client was subscribed to.
        self.heard |= told && (session.listens() || self.outbox.is_for(session.info.id));
        self.count(session, found, args, failed);
        Outcome::Done
    }

    /// Counts an error reply that [`Executor::fail`] does not write.
    pub(super) fn count_error(&mut self, error: &Error) {
        match self.in_unit() {
            true => self.record.error(&self.server, error),
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
            let notify = self.config.notify_keyspace_events;
            self.outbox.notify(&self.server, notify, &events);
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
        if command.flags.contains(Flags::COMPILES) && self.slices && !self.in_unit() {
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
                    outbox: &mut self.outbox,
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
    /// would have to wait for. Who tracks what he reads must hear of every change after.
    fn may_read_apart(&self, session: &Session) -> bool {
        self.lane.is_some()
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
        self.begin_patience();
        let (db, server) = (session.db(), &self.server);
        let mut look = |view: &mut View| {
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
        self.end_patience();
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
        self.begin_patience();
        let db = session.db();
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
        self.end_patience();
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
    /// left to a lane. It is not where scripts occupy those.
    pub(super) fn must_be_brief(&self) -> bool {
        self.slices && !self.server.lanes.any_running()
    }

    /// A command begins that is left to a lane if it takes long; in a unit, that is as a
    /// whole.
    pub(super) fn begin_patience(&self) {
        if !self.in_unit() {
            self.txn.be_brief(self.must_be_brief());
        }
    }

    /// It is over.
    pub(super) fn end_patience(&self) {
        if !self.in_unit() {
            self.txn.be_brief(false);
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
        let other = command.other_db.and_then(|other_db| other_db(args));
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
        // Whoever has all keys for himself must let them go.
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
        let usec = now_us.saturating_sub(self.last_us);
        self.last_us = now_us;
        match self.in_unit() {
            true => self.record.call(&self.server, found.index, usec, failed),
            false => self.server.stats.ran(found.index, usec, failed),
        }
        let (ms, threshold_ms) = (usec / 1000, self.config.latency_monitor_threshold_ms);
        if threshold_ms > 0 && ms >= threshold_ms {
            let class = match found.command.flags.contains(Flags::FAST) {
                true => "fast-command",
                false => "command",
            };
            self.note_slow(Slow::Latency(class, ms, self.now_ms / 1000));
        }
        let limit = self.config.slowlog_log_slower_than_us;
        let slow = limit >= 0 && usec >= limit as u64;
        if slow && !found.command.flags.contains(Flags::SKIP_SLOWLOG) {
            let hidden = secrets::visible(found.command, args);
            let (at_s, info) = (self.now_ms / 1000, &session.info);
            let entry = Entry::new(&hidden, usec, at_s, &info.addr, &info.names.lock().name);
            self.note_slow(Slow::Log(entry, self.config.slowlog_max_len as usize));
        }
    }

    fn note_slow(&mut self, slow: Slow) {
        self.record.slow(&self.server, slow);
        if !self.in_unit() {
            self.record.count(&self.server);
        }
    }
}

/// What CLIENT PAUSE WRITE holds back.
pub(super) fn may_write(command: &Command) -> bool {
    command.is_write() || command.flags.contains(Flags::MAY_REPLICATE)
}

/// A browser that was made to send a request here has a line that begins with
/// one of these; what follows could be commands of its choice.
fn is_http(args: &[&[u8]]) -> bool {
    args.first().is_some_and(|name| {
        name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
    })
}
