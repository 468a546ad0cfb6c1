//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC is a [unit](super::unit) of the queued commands. The watched keys belong to its scope
//! as well: a thread that changes one of them commits either before EXEC checks its watches, or
//! after EXEC has committed.

use super::Executor;
use super::Stop;
use super::dispatch::admission::may_grow;
use super::dispatch::locking::MANY_WORDS;
use super::dispatch::slots::is_for_library;
use super::unit::Scope;
use crate::base::num;
use crate::commands::table::registry::Registered;
use crate::commands::table::spec::{Dbs, USUAL_PLACES};
use crate::commands::{Command, Error, Flags, Handler, KeyFlags, OUT_OF_MEMORY, Own};
use crate::resp::Reply;
use crate::state::Session;
use crate::state::acl::Context;
use crate::state::request::Request;
use crate::state::session::Multi;
use crate::state::watch::Watch;
use crate::storage::DbIndex;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

const NESTED: Error = Error::text("ERR MULTI calls can not be nested");
const EXEC_ALONE: Error = Error::text("ERR EXEC without MULTI");
const DISCARD_ALONE: Error = Error::text("ERR DISCARD without MULTI");
const WATCH_INSIDE: Error = Error::text("ERR WATCH inside MULTI is not allowed");
const ABORTED: Error = Error::text("EXECABORT Transaction discarded because of previous errors.");
const NOT_INSIDE: Error = Error::text("ERR Command not allowed inside a transaction");

/// Transactions of fewer bytes are queued without a check of the free memory.
const LONG_TRANSACTION: usize = 1 << 20;

/// What EXEC has to know of its queued commands.
#[derive(Default)]
struct Queued {
    /// The queue has scripts, which may have to be taken back and run again.
    scripts: bool,
    /// The queue has commands with an effect outside the keys that cannot be taken back
    /// (FUNCTION LOAD, CONFIG). Scripts may not call such commands either. It runs on a worker:
    /// a unit on an IO thread is taken back for whatever takes long or is not in memory.
    lasting: bool,
}

/// Whether a command runs at once even after MULTI.
fn runs_inside_multi(command: &Command) -> bool {
    let own = [Own::Multi, Own::Exec, Own::Discard, Own::Watch];
    own.iter().any(|own| command.is_own(*own)) || matches!(command.name, "quit" | "reset")
}

/// The error of an EXEC that ran nothing because of `error`.
fn discarded(error: &Error) -> Error {
    let text = error.to_string();
    let text = text.strip_prefix("ERR ").unwrap_or(&text);
    Error::owned(format!(
        "EXECABORT Transaction discarded because of: {text}"
    ))
}

/// Whether this is the error of a command that waits for a slow script.
fn is_busy(error: &Error) -> bool {
    error.to_string().starts_with("BUSY ")
}

/// Whether a command of sessions stores its arguments, or compiles them.
fn may_store(command: &Command) -> bool {
    let stores = Flags::MAY_REPLICATE | Flags::ON_WORKER | Flags::EXCLUSIVE;
    command.is_write() || command.flags.intersects(stores)
}

impl Executor {
    /// After MULTI: queues a command instead of running it, or refuses it. Returns whether it
    /// did either.
    pub(super) fn queue_in_multi(
        &self,
        session: &mut Session,
        command: &Command,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> bool {
        if session.multi().is_none() || runs_inside_multi(command) {
            return false;
        }
        let bytes: usize = args.iter().map(|arg| arg.len()).sum();
        let queued = session.waiting_bytes().saturating_add(bytes);
        if queued >= LONG_TRANSACTION && !self.server.could_run_transaction(self.config(), queued) {
            session.abort_multi(&self.server.chores);
            self.fail(&OUT_OF_MEMORY, reply);
            return true;
        }
        session.queue(args, self.traits(command, args));
        if let Some(db) = self.selected_by(command, args) {
            session.will_select(db);
        }
        reply.simple("QUEUED");
        true
    }

    /// Whether a request is EXEC.
    pub fn is_exec(&self, args: &[&[u8]]) -> bool {
        self.resolve(args)
            .is_ok_and(|found| found.command.is_own(Own::Exec))
    }

    /// `bytes`, the size of a request, weighted by how often the command stores its arguments:
    /// the usual two copies, in a row and in the binlog, have the weight 1. A command that stores
    /// nothing copies them once at the most.
    pub fn work_of(&self, args: &[&[u8]], bytes: usize) -> usize {
        let Ok(found) = self.resolve(args) else {
            return bytes;
        };
        let command = found.command;
        let stores = match command.handler {
            Handler::Read(_) => false,
            Handler::Session(_) => may_store(command),
            _ => true,
        };
        match stores {
            true => bytes.saturating_mul(command.places) / USUAL_PLACES,
            false => bytes / USUAL_PLACES,
        }
    }

    /// Whether a request may add data, by itself or as the EXEC of a transaction that does.
    pub fn may_add_data(&self, session: &Session, args: &[&[u8]]) -> bool {
        self.resolve(args).is_ok_and(|found| {
            let is_script = match found.command.handler {
                Handler::Own(Own::Script(call)) => !call.is_read_only(),
                _ => false,
            };
            may_grow(found.command) || is_script || Self::queued(session, found.command).grows
        })
    }

    /// Whether a request only removes data: it must run however little memory there is.
    /// Subcommands are not considered.
    pub fn only_removes(&self, args: &[&[u8]]) -> bool {
        self.resolve(args).is_ok_and(|found| {
            let (command, keys) = (found.command, found.command.keys);
            let mut flags = keys.iter().map(|spec| spec.flags);
            let deletes = !keys.is_empty() && flags.all(|flags| flags.contains(KeyFlags::DELETE));
            deletes && command.is_write() && !may_grow(command)
        })
    }

    /// Refuses a request that can never get the memory that it takes.
    pub fn refuse_for_memory(&mut self, session: &mut Session, args: &[&[u8]], reply: &mut Reply) {
        let start = reply.len();
        let error = self.refuse_in_multi(session, args, OUT_OF_MEMORY);
        self.fail(&error, reply);
        self.suppress(session, reply, start);
    }

    /// Refuses a command that cannot be queued.
    pub(super) fn check_inside_multi(session: &Session, command: &Command) -> Result<(), Error> {
        let inside = session.multi().is_some() && !runs_inside_multi(command);
        match inside && command.flags.contains(Flags::NO_MULTI) {
            true => Err(NOT_INSIDE),
            false => Ok(()),
        }
    }

    /// Called when a command is refused before it runs. After MULTI this makes EXEC fail; a
    /// refused EXEC ends the transaction, and its error says why. Returns the error for the
    /// client.
    pub(super) fn refuse_in_multi(
        &self,
        session: &mut Session,
        args: &[&[u8]],
        error: Error,
    ) -> Error {
        session.abort_multi(&self.server.chores);
        if !self.is_exec(args) {
            return error;
        }
        session.end_multi(&self.server.chores);
        match is_for_library(&error) {
            true => error,
            false => discarded(&error),
        }
    }

    /// Runs a command that the executor implements itself.
    pub(super) fn own(
        &mut self,
        own: Own,
        session: &mut Session,
        command: &'static Command,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        match own {
            Own::Multi if session.multi().is_some() => return Err(NESTED.into()),
            Own::Multi => session.begin_multi(),
            Own::Discard if session.multi().is_none() => return Err(DISCARD_ALONE.into()),
            Own::Discard => session.end_multi(&self.server.chores),
            Own::Watch if session.multi().is_some() => return Err(WATCH_INSIDE.into()),
            Own::Watch => self.watch(session, command, args)?,
            // EXEC ends all watches and has checked them already. It may have to check them
            // again.
            Own::Unwatch if self.in_unit() => {}
            Own::Unwatch => session.unwatch(&self.server.chores),
            Own::Populate => self.populate(session, args)?,
            Own::Script(call) => return self.script(call, session, command, args, reply),
            Own::Exec => {
                let multi = session.take_multi().ok_or(EXEC_ALONE)?;
                session.slot.set(multi.traits.slots.one());
                let done = self.exec(session, &multi, reply);
                self.thread.ahead.clear();
                match done {
                    // EXEC will run again, here or on a worker.
                    Err(Stop::Conflict | Stop::Slow | Stop::Cold) => session.put_back_multi(multi),
                    _ => session.end_multi(&self.server.chores),
                }
                return done;
            }
        }
        reply.ok();
        Ok(())
    }

    fn watch(
        &mut self,
        session: &mut Session,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<(), Stop> {
        if session.watching().is_some_and(|watch| watch.is_dirty()) {
            // EXEC will fail anyway.
            return Ok(());
        }
        let db = session.db();
        let mark = self.lock(session, command, args)?;
        self.begin_read_budget();
        let metas: Result<SmallVec<[_; 4]>, _> = args
            .iter()
            .skip(1)
            .map(|key| self.txn.meta_of(db, key))
            .collect();
        self.end_read_budget();
        let metas = metas.inspect_err(|_| self.txn.unlock_since(mark))?;
        for (&key, meta) in args.iter().skip(1).zip(metas) {
            let expiry = meta.map(|meta| meta.expire_ms);
            let hash = self.txn.key_hash(db, key);
            let watch = session.watch(&self.server.watchers);
            watch.add(db, key, hash, expiry);
        }
        let watched = session.watching().map_or(0, |watch| watch.len());
        session.info.watched_keys.store(watched, Ordering::Relaxed);
        self.txn.unlock_since(mark);
        Ok(())
    }

    fn exec(
        &mut self,
        session: &mut Session,
        multi: &Multi,
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        if multi.aborted {
            return Err(ABORTED.into());
        }
        let watch = session.watching();
        if watch.is_some_and(|watch| watch.is_dirty()) {
            reply.null_array();
            return Ok(());
        }
        let is_long = has_many_words(&multi.queue, watch) || multi.bytes() > LONG_TRANSACTION;
        if is_long && self.has_workers() {
            return Err(Stop::Slow);
        }
        let Queued { scripts, lasting } = self.classify_queue(&multi.queue);
        // Scripts may be taken back and run again, the other commands must not run twice.
        let mut scope = match scripts && lasting {
            true => Scope::everything(),
            false => self.scope_of(session.db(), &multi.queue),
        };
        if scripts && self.thread.turns {
            return Err(Stop::Slow);
        }
        if lasting && self.may_be_slow() {
            // Once the first of these commands has begun, the unit may have to wait for the disk. Of
            // what the arguments name as little as possible is left for then.
            return Err(match self.lacks_keys(&scope) {
                true => Stop::Cold,
                false => Stop::Slow,
            });
        }
        if lasting {
            // It cannot be taken back. Other threads do not wait for the keys of a worker.
            self.request.in_memory &= self.thread.worker.is_none();
            self.make_queue_ahead(session, &multi.queue)?;
        }
        for (db, key) in watch.into_iter().flat_map(|watch| watch.keys()) {
            scope.key(db, key);
        }
        let (start, before) = (reply.len(), session.selection());
        loop {
            let alone = scope.is_everything();
            if let Err(stop) = self.begin_unit(&scope) {
                return Err(match stop {
                    Stop::Failed(error) if is_busy(&error) => discarded(&error).into(),
                    stop => stop,
                });
            }
            let expiry_now_ms = self.txn.expiry_now_ms();
            if let Some(watch) = session.watching()
                && (watch.is_dirty() || watch.has_expired(expiry_now_ms))
            {
                reply.null_array();
                return Ok(self.end_unit()?);
            }
            match self.run_queue(session, &multi.queue, !scripts, reply) {
                Err(Stop::Conflict) if !alone && !self.must_end() => {
                    // A script touched a key that it did not declare.
                    self.roll_back_unit()?;
                    reply.truncate(start);
                    session.restore(&before);
                    scope = Scope::everything();
                }
                Err(stop @ (Stop::Conflict | Stop::Slow | Stop::Cold)) => {
                    self.roll_back_unit()?;
                    session.restore(&before);
                    return Err(stop);
                }
                done => {
                    self.tick.outbox.end_transaction(session);
                    self.end_unit()?;
                    return done;
                }
            }
        }
    }

    fn classify_queue(&self, queue: &[Request]) -> Queued {
        let mut queued = Queued::default();
        for request in queue {
            let Ok(Registered { command, .. }) = self.resolve(&request.args()) else {
                continue;
            };
            queued.scripts |= matches!(command.handler, Handler::Own(Own::Script(_)));
            queued.lasting |= is_lasting(command);
        }
        queued
    }

    /// Makes what queued commands need besides their keys.
    fn make_queue_ahead(&mut self, session: &Session, queue: &[Request]) -> Result<(), Stop> {
        for request in queue {
            let args = request.args();
            if let Ok(Registered { command, .. }) = self.resolve(&args)
                && command.ahead.is_some()
            {
                self.commit_pending()?;
                self.make_ahead(session, command, &args)?;
            }
        }
        Ok(())
    }

    /// The keys of the queued commands.
    pub(super) fn scope_of<'q>(&self, db: DbIndex, queue: &'q [Request]) -> Scope<'q> {
        let mut scope = Scope::default();
        let mut db = db;
        for request in queue {
            let args = request.args();
            let Ok(found) = self.resolve(&args) else {
                continue;
            };
            scope.command(db, found.command, &args);
            db = self.selected_by(found.command, &args).unwrap_or(db);
        }
        scope
    }

    /// The DB that a command selects, if it does.
    fn selected_by(&self, command: &Command, args: &[&[u8]]) -> Option<DbIndex> {
        if !matches!(command.dbs, Dbs::Selected) {
            return None;
        }
        let number = num::parse_i64(args.get(1)?)?;
        let number = u16::try_from(number).ok()?;
        (number < self.server.engine.config.databases).then_some(DbIndex(number))
    }

    fn run_queue(
        &mut self,
        session: &mut Session,
        queue: &[Request],
        goes_on: bool,
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        self.request.scripts_begun = 0;
        reply.array(queue.len());
        let mut lacks_rows = false;
        for request in queue {
            let args = request.args();
            match self.run_queued(session, &args, reply) {
                // The transaction will be taken back. The commands behind this one still run, to say
                // what they lack, so that all of it is read together.
                Err(Stop::Cold) if goes_on && !self.txn.has_a_round_of_cold_reads() => {
                    self.txn.look_for_members(args.get(2..).unwrap_or_default());
                    lacks_rows = true;
                }
                Err(_) if lacks_rows => break,
                done => done?,
            }
        }
        match lacks_rows {
            true => Err(Stop::Cold),
            false => Ok(()),
        }
    }

    /// Runs one queued command; only a conflict or a slow command is an error here.
    fn run_queued(
        &mut self,
        session: &mut Session,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        // The rest of admission was checked when the command was queued.
        let done = match self.resolve(args) {
            Ok(found) => match self.permit(session, found, args, Context::Multi) {
                Ok(()) => self.call_shown(session, found, args, reply),
                Err(error) => {
                    self.count_error(&error);
                    Err(Stop::Failed(error))
                }
            },
            Err(error) => {
                self.count_error(&error);
                Err(Stop::Failed(error))
            }
        };
        match done {
            Err(Stop::Failed(error) | Stop::Counted(error)) => reply.error_bytes(&error.wire()),
            other => return other,
        }
        Ok(())
    }
}

/// Whether the commands and the watched keys have so many words that running them takes long.
fn has_many_words(queue: &[Request], watch: Option<&Watch>) -> bool {
    let mut words = watch.map_or(0, |watch| watch.len());
    let mut each = queue.iter();
    words > MANY_WORDS
        || each.any(|request| {
            words += request.words();
            words > MANY_WORDS
        })
}

/// Whether what a command does stays when its transaction is taken back.
fn is_lasting(command: &Command) -> bool {
    let of_keys = matches!(command.handler, Handler::Blocking(_) | Handler::Own(_));
    !of_keys && command.flags.contains(Flags::NOSCRIPT)
}

#[cfg(test)]
mod tests;
