//! Applies the replication log of a master.
//!
//! A row of the master's binlog is the effect of one of its commits. Here it becomes part of
//! one batch, which also holds the row itself: data and position change together, and after a
//! crash the position says exactly which rows are applied. Several rows may share a batch.
//!
//! The commands run on the ordinary handlers, with the clock of the master's commit and with
//! keys that do not expire, so they have the same effect as on the master. All keys of a row
//! are locked before its first command: waiting for a lock commits what is pending, and that
//! must be whole rows.
//!
//! A Redis master sends commands, not rows. Each command, or all commands between MULTI and
//! EXEC, is one [unit](super::unit), which also stores the offset behind it; see
//! [`crate::storage`]'s `upstream`.

use super::Executor;
use super::Stop;
use super::cold::is_cold;
use super::dispatch::admission::may_grow;
use super::dispatch::may_write;
use super::unit::Scope;
use crate::base::time::UnixMs;
use crate::commands::table::registry::Registered;
use crate::commands::{Command, Error, Flags, Handler, WriteCtx, named_dbs, registry};
use crate::encoding::Corrupt;
use crate::encoding::binlog::{Position, Row};
use crate::resp::{Limits, Parser, Progress, Reply};
use crate::state::Session;
use crate::state::scripts::Libraries;
use crate::state::subscriptions::SubscriptionKind;
use crate::storage::engine::history::Following;
use crate::storage::full_sync::snapshot::DataSet;
use crate::storage::full_sync::staging::Staging;
use crate::storage::{DbIndex, Engine, StorageError};
use crate::types::OpError;
use std::sync::atomic::Ordering;

/// Commands of a master whose keys are read from the disk together.
const AHEAD: usize = 256;
/// Longest argument in a row.
const MAX_ARG_LEN: usize = u32::MAX as usize;
/// How the commands of a master are parsed.
const LIMITS: Limits = Limits {
    max_bulk_len: MAX_ARG_LEN,
    authenticated: true,
};

/// Why a row cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The bytes are not a row, or contain what a row cannot contain.
    #[error("the master sent something that is no row: {0}")]
    Malformed(String),
    /// The row is for a DB that this server does not have.
    #[error("the master has written to DB {}, but `databases` is {databases} here", db.0)]
    TooFewDbs {
        /// The DB.
        db: DbIndex,
        /// The number of DBs of this server.
        databases: u16,
    },
    /// A command of the row does not have the same effect here: the data differ.
    #[error("the data differ from the master's: {command} failed here: {error}")]
    Diverged {
        /// The command's name.
        command: String,
        /// The error with which it failed.
        error: String,
    },
    /// The row adds data and the disk is full, or the engine takes no writes at present.
    #[error("the disk has no room for what the master sends")]
    NoRoom,
    /// The thread that applies the stream was stopped, and with it a script or a long command.
    #[error("the command was stopped")]
    Ended,
    /// A Redis master sent a command that cannot be run here.
    #[error("the master sent {command}, which this server {why}: what follows cannot be applied")]
    NotHere {
        /// The command.
        command: String,
        /// The reason, as the end of a sentence about this server.
        why: &'static str,
    },
    /// The storage fails, or the master is no longer followed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<Corrupt> for ApplyError {
    fn from(corrupt: Corrupt) -> Self {
        ApplyError::Malformed(corrupt.to_string())
    }
}

/// One command of a row.
struct Parsed<'a> {
    db: DbIndex,
    command: &'static Registered,
    args: smallvec::SmallVec<[&'a [u8]; 6]>,
}

impl Executor {
    /// Begins to follow a master if `begin` returns a state to follow from; this executor then
    /// applies only what that master logged.
    pub fn begin_following(
        &mut self,
        begin: impl FnOnce(&Engine) -> Option<Following>,
    ) -> Result<Option<Following>, StorageError> {
        let now_ms = crate::sys::clock::unix_ms();
        self.txn.begin_following(now_ms, begin)
    }

    /// Replaces the data set by a staged one that has arrived whole, and the function libraries
    /// by `libraries`.
    pub fn install(
        &mut self,
        staging: Staging,
        data_set: &DataSet,
        libraries: Libraries,
        following: Following,
    ) -> Result<(), StorageError> {
        let now_ms = crate::sys::clock::unix_ms();
        let scripts = &self.server.scripts;
        self.txn.install(staging, data_set, following, now_ms, || {
            scripts.set_libraries(libraries);
        })
    }

    /// Applies one row. Returns when the master committed it, in Unix ms. Nothing is durable
    /// before [`Executor::finish_tick`]. If the row needs what is not in memory, `ahead` is called,
    /// to [ask for](Executor::look_ahead_in) what the next rows need.
    ///
    /// # Errors
    /// Nothing of the row is pending then. After [`ApplyError::NoRoom`] it can be tried again.
    pub fn apply(
        &mut self,
        session: &mut Session,
        position: Position,
        value: &[u8],
        ahead: impl FnOnce(&Executor),
    ) -> Result<UnixMs, ApplyError> {
        debug_assert!(self.txn.is_received());
        let row = Row::decode(value)?;
        let commands = self.parse_row(session, row.bytes)?;
        let scope = scope_of(&commands);
        let applied = self.with_reads_before(
            |executor| {
                executor.txn.look_for(scope.keys());
                ahead(executor);
            },
            |executor| executor.apply_row(session, position, &row, &commands, &scope),
            |error| matches!(error, ApplyError::Storage(StorageError::NotInMemory)),
        );
        match applied {
            // One of its commands may have been ended.
            Err(_) if self.thread.ended.load(Ordering::Acquire) => return Err(ApplyError::Ended),
            applied => applied?,
        }
        self.show_received(session, &commands);
        // Clients of a replica may wait for keys that they only read (XREAD).
        self.serve_waiters();
        Ok(row.unix_ms)
    }

    /// Applies the commands of a row, or nothing.
    fn apply_row<'a>(
        &mut self,
        session: &mut Session,
        position: Position,
        row: &Row<'a>,
        commands: &[Parsed<'a>],
        scope: &Scope<'_>,
    ) -> Result<(), ApplyError> {
        self.tick.last_us = crate::sys::clock::mono_us();
        let parsed = || commands.iter().map(|c| c.command.command);
        self.check_room(parsed())?;
        self.tick.touched_keys = true;
        let exclusive = parsed().any(|command| command.flags.contains(Flags::EXCLUSIVE));
        if exclusive {
            self.make_row_ahead(session, commands)?;
            self.txn.begin_exclusive(row.unix_ms)?;
        } else {
            self.txn.begin(row.unix_ms)?;
            self.lock_row(scope)?;
        }
        let savepoint = self.txn.savepoint();
        let mut reply = Reply::new(false);
        for parsed in commands {
            self.begin_read_budget();
            let done = self.apply_command(session, parsed, &mut reply);
            self.end_read_budget();
            if let Err(error) = done {
                self.txn.rollback(&savepoint);
                return Err(error);
            }
            reply.truncate(0);
        }
        for parsed in commands {
            self.count(session, parsed.command, &parsed.args, false, 0);
        }
        // Listeners are notified when the row is whole.
        self.announce_changes();
        self.collect_events();
        let args = commands.iter().flat_map(|command| command.args.iter());
        self.txn.log_received(position, row, args.copied());
        self.tick.commands += commands.len() as u32;
        if exclusive {
            self.thread.ahead.clear();
            self.txn.commit()?;
        }
        Ok(())
    }

    /// Makes what the commands of a row need besides their keys, while this thread holds no lock.
    fn make_row_ahead(
        &mut self,
        session: &Session,
        commands: &[Parsed<'_>],
    ) -> Result<(), StorageError> {
        self.thread.ahead.clear();
        let wanted = |parsed: &&Parsed<'_>| parsed.command.command.ahead.is_some();
        for (number, parsed) in commands.iter().filter(wanted).enumerate() {
            if number == 0 {
                self.txn.commit()?;
            }
            self.make_ahead(session, parsed.command.command, &parsed.args)?;
        }
        Ok(())
    }

    /// Whether the disk takes the writes of these commands.
    fn check_room<'a>(
        &self,
        mut commands: impl Iterator<Item = &'a Command>,
    ) -> Result<(), ApplyError> {
        let engine = &self.server.engine;
        match engine.has_failed() || engine.disk.is_low() && commands.any(may_grow) {
            true => Err(ApplyError::NoRoom),
            false => Ok(()),
        }
    }

    /// From now on this executor applies rows of a Kedis master.
    pub fn receive_rows(&mut self, following: Following) {
        self.txn.receive(following);
    }

    /// From now on this executor applies commands of the Redis master with this
    /// replication id, if it has one.
    pub fn receive_stream(&mut self, following: Following, id: Option<String>) {
        self.txn.receive_stream(following, id);
    }

    /// Applies one command of a Redis master's stream, or the commands between its MULTI and
    /// EXEC: all or nothing. `next` is the offset behind them. Nothing is durable before
    /// [`Executor::finish_tick`]. `ahead` is as for [`Executor::apply`].
    ///
    /// # Errors
    /// Nothing of the commands is pending then. After [`ApplyError::NoRoom`] they can be tried
    /// again.
    pub fn apply_commands(
        &mut self,
        session: &mut Session,
        commands: &[&[&[u8]]],
        next: Position,
        ahead: impl FnOnce(&Executor),
    ) -> Result<(), ApplyError> {
        let before = session.db();
        let parsed = self.parse_commands(session, commands)?;
        if let Err(error) = self.check_room(parsed.iter().map(|c| c.command.command)) {
            session.select(before);
            return Err(error);
        }
        let mut scope = scope_of(&parsed);
        let mut ahead = Some(ahead);
        loop {
            let applied = self.with_reads_before(
                |executor| {
                    executor.txn.look_for(scope.keys());
                    if let Some(ahead) = ahead.take() {
                        ahead(executor);
                    }
                },
                |executor| executor.apply_unit(session, &parsed, &scope, next),
                is_cold,
            );
            match applied {
                Ok(()) => break,
                Err(_) if self.thread.ended.load(Ordering::Acquire) => {
                    return Err(ApplyError::Ended);
                }
                // A script touched a key that another thread holds.
                Err(Stop::Conflict | Stop::Slow) if !scope.is_everything() => {
                    scope = Scope::everything();
                }
                Err(stop) => return Err(not_applied(&parsed, stop)),
            }
        }
        self.collect_events();
        self.show_received(session, &parsed);
        self.tick.commands += parsed.len() as u32;
        Ok(())
    }

    /// Shows the commands of a master to MONITOR clients.
    fn show_received(&mut self, session: &mut Session, commands: &[Parsed<'_>]) {
        if self.server.clients.monitors() == 0 {
            return;
        }
        let db = session.db();
        for parsed in commands {
            session.select(parsed.db);
            self.feed_monitors(session, parsed.command.command, &parsed.args);
        }
        session.select(db);
        self.tick.record.flush(&self.server);
    }

    /// Asks for the keys of the commands in `bytes`, which will be applied soon: of those that are
    /// there as a whole, and of at most [`AHEAD`]. Returns their length in bytes.
    pub fn look_ahead_in(&self, mut db: DbIndex, bytes: &[u8]) -> usize {
        let (mut parser, mut rest) = (Parser::new(), bytes);
        for _ in 0..AHEAD {
            let Ok(Progress::Complete { consumed }) = parser.advance(rest, &LIMITS) else {
                break;
            };
            let args: smallvec::SmallVec<[&[u8]; 6]> = parser.args_of(rest).collect();
            parser.reset();
            rest = rest.get(consumed..).unwrap_or_default();
            if args
                .first()
                .is_some_and(|name| name.eq_ignore_ascii_case(b"select"))
            {
                db = self.selected(&args).unwrap_or(db);
            } else if let Some(command) = find(&args) {
                let mut scope = Scope::default();
                scope.command(db, command.command, &args);
                self.txn.look_for(scope.keys());
            }
        }
        bytes.len() - rest.len()
    }

    /// Records that the stream has been processed up to the offset `next`.
    pub fn note_reached(&mut self, session: &Session, next: Position) -> Result<(), StorageError> {
        self.txn.begin(self.tick.now_ms)?;
        self.txn.note_reached(next, session.db());
        Ok(())
    }

    /// Logs a PING of the master. Redis replicas of this server count its bytes as part of the
    /// stream.
    pub fn log_ping(&mut self, session: &Session) -> Result<(), StorageError> {
        self.txn.begin(self.tick.now_ms)?;
        self.txn.effect(session.db(), &[b"PING"]);
        Ok(())
    }

    fn parse_commands<'a>(
        &self,
        session: &mut Session,
        commands: &[&[&'a [u8]]],
    ) -> Result<Vec<Parsed<'a>>, ApplyError> {
        let mut parsed = Vec::with_capacity(commands.len());
        for args in commands {
            let not_here = |why| ApplyError::NotHere {
                command: shown(args),
                why,
            };
            if args
                .first()
                .is_some_and(|name| name.eq_ignore_ascii_case(b"select"))
            {
                let db = self.selected(args).ok_or_else(|| {
                    not_here("does not have: raise `databases` to what the master has")
                })?;
                session.select(db);
                continue;
            }
            let command = find(args).ok_or_else(|| not_here("does not know"))?;
            if !is_propagated(command) {
                return Err(not_here("takes from no master"));
            }
            let (db, args) = (session.db(), args.iter().copied().collect());
            parsed.push(Parsed { db, command, args });
        }
        Ok(parsed)
    }

    /// The DB that a SELECT names, if it exists.
    fn selected(&self, args: &[&[u8]]) -> Option<DbIndex> {
        let db = named_dbs(args).first().copied();
        db.filter(|db| db.0 < self.server.engine.config.databases)
    }

    fn apply_unit(
        &mut self,
        session: &mut Session,
        commands: &[Parsed<'_>],
        scope: &Scope<'_>,
        next: Position,
    ) -> Result<(), Stop> {
        self.begin_unit(scope)?;
        let after = session.db();
        let mut reply = Reply::new(false);
        let mut done = Ok(());
        for parsed in commands {
            session.select(parsed.db);
            done = self.call(session, parsed.command, &parsed.args, &mut reply);
            reply.truncate(0);
            if done.is_err() {
                break;
            }
        }
        session.select(after);
        if let Err(stop) = done {
            self.roll_back_unit()?;
            return Err(stop);
        }
        // Before the unit ends: an exclusive unit is committed there.
        self.txn.note_reached(next, after);
        Ok(self.end_unit()?)
    }

    /// Publishes a message that the master sent.
    pub fn publish(&mut self, kind: SubscriptionKind, channel: &[u8], message: &[u8]) {
        let targets = self.server.pubsub.find(kind, channel);
        self.tick.outbox.publish(kind, channel, message, targets);
    }

    fn parse_row<'a>(
        &self,
        session: &Session,
        bytes: &'a [u8],
    ) -> Result<Vec<Parsed<'a>>, ApplyError> {
        let malformed = |what: &str| ApplyError::Malformed(what.to_owned());
        let mut parser = Parser::new();
        let mut db = session.db();
        let mut parsed = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let progress = parser.advance(rest, &LIMITS);
            let consumed = match progress.map_err(|e| malformed(&e.to_string()))? {
                Progress::Complete { consumed } => consumed,
                Progress::Incomplete => return Err(malformed("a command that is cut off")),
            };
            let args: smallvec::SmallVec<[&[u8]; 6]> = parser.args_of(rest).collect();
            parser.reset();
            rest = rest.get(consumed..).unwrap_or_default();
            let Some(name) = args.first() else {
                continue;
            };
            if name.eq_ignore_ascii_case(b"select") {
                let number = named_dbs(&args).first().copied();
                db = number.ok_or_else(|| malformed("a SELECT of no DB"))?;
                self.check_db(db)?;
                continue;
            }
            // The row is one batch anyway, and PING has no effect.
            let nothing: [&[u8]; 3] = [b"multi", b"exec", b"ping"];
            if nothing.iter().any(|word| name.eq_ignore_ascii_case(word)) {
                continue;
            }
            // Consecutive commands of a row are often the same: this saves the lookup.
            let same = parsed.last().filter(|last: &&Parsed<'_>| {
                last.args.first() == Some(name)
                    && last.args.len() == args.len()
                    && last.command.subcommands.is_empty()
            });
            let command = match same {
                Some(last) if !is_subcommand(last) => last.command,
                _ => find(&args).ok_or_else(|| {
                    let name = String::from_utf8_lossy(name);
                    malformed(&format!("the command {name:?}, which is not known here"))
                })?,
            };
            let named = command.command.named_dbs(&args);
            named.into_iter().try_for_each(|db| self.check_db(db))?;
            parsed.push(Parsed { db, command, args });
        }
        Ok(parsed)
    }

    fn check_db(&self, db: DbIndex) -> Result<(), ApplyError> {
        let databases = self.server.engine.config.databases;
        match db.0 < databases {
            true => Ok(()),
            false => Err(ApplyError::TooFewDbs { db, databases }),
        }
    }

    fn lock_row(&mut self, scope: &Scope<'_>) -> Result<(), StorageError> {
        self.prefetch(scope.keys());
        let hash = |(db, key)| self.txn.key_hash(db, key);
        let hashes: Vec<u64> = scope.keys().map(hash).collect();
        self.txn.lock(hashes.iter().copied())?;
        Ok(())
    }

    fn apply_command(
        &mut self,
        session: &mut Session,
        parsed: &Parsed<'_>,
        reply: &mut Reply,
    ) -> Result<(), ApplyError> {
        let Handler::Write(run) = parsed.command.command.handler else {
            let name = &parsed.command.full_name;
            return Err(ApplyError::Malformed(format!(
                "the command {name}, which writes nothing"
            )));
        };
        session.select(parsed.db);
        self.txn.start_command();
        let done = run(
            &mut WriteCtx {
                txn: &mut self.txn,
                reply,
                db: parsed.db,
                server: &self.server,
                session,
                ahead: &self.thread.ahead,
            },
            &parsed.args,
        );
        match done {
            Ok(()) => {
                if self.txn.has_unnoted_rows() {
                    let (db, command) = (parsed.db, parsed.command.command);
                    command.for_each_written_key(&parsed.args, |key| {
                        self.txn.note_written(db, key);
                    });
                }
                Ok(())
            }
            Err(Error::Op(OpError::Storage(
                error @ (StorageError::RocksDb(_)
                | StorageError::Failed
                | StorageError::NoRoom
                | StorageError::Ended
                | StorageError::NotInMemory
                | StorageError::TooManyFamilies
                | StorageError::Io(_)),
            ))) => Err(error.into()),
            Err(error) => Err(ApplyError::Diverged {
                command: parsed.command.full_name.clone(),
                error: error.to_string(),
            }),
        }
    }
}

/// The keys of these commands.
fn scope_of<'a>(commands: &[Parsed<'a>]) -> Scope<'a> {
    let mut scope = Scope::default();
    for parsed in commands {
        scope.command(parsed.db, parsed.command.command, &parsed.args);
    }
    scope
}

/// Whether Redis sends a command to its replicas.
fn is_propagated(found: &Registered) -> bool {
    may_write(found.command) || found.command.flags.contains(Flags::PROPAGATED)
}

/// The error for commands of a stream that could not be applied.
fn not_applied(commands: &[Parsed<'_>], stop: Stop) -> ApplyError {
    let names = commands
        .iter()
        .map(|parsed| parsed.command.full_name.as_str());
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    match stop.into_error() {
        Error::Op(OpError::Storage(error)) if !matches!(error, StorageError::Corrupt(_)) => {
            error.into()
        }
        error => ApplyError::Diverged {
            command: names.join(", "),
            error: error.to_string(),
        },
    }
}

/// The name of a command, quoted and cut for the log.
fn shown(args: &[&[u8]]) -> String {
    const SHOWN_BYTES: usize = 64;
    let name = args.first().copied().unwrap_or_default();
    let name = name.get(..SHOWN_BYTES).unwrap_or(name);
    format!("{:?}", String::from_utf8_lossy(name))
}

/// Whether the command was found by its second argument as well.
fn is_subcommand(parsed: &Parsed<'_>) -> bool {
    parsed.command.is_part || parsed.command.full_name.contains('|')
}

/// The command of these arguments, independent of renamed commands.
fn find(args: &[&[u8]]) -> Option<&'static Registered> {
    let found = registry().find(args.first()?)?;
    if found.subcommands.is_empty() || !found.command.takes(args.len()) {
        return found.command.takes(args.len()).then_some(found);
    }
    match args.get(1).and_then(|sub| found.subcommand(sub)) {
        Some(sub) => sub.command.takes(args.len()).then_some(sub),
        None => Some(found),
    }
}
