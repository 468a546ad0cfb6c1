//! Commands that wait for a key, and how they are served when the key is ready.
//!
//! The thread that makes a key ready serves the clients that wait for it. Right after the
//! command or unit that wrote the key, and before it unlocks the key, it runs the commands of
//! the waiting clients of all threads, first come, first served. Keys that these commands make
//! ready are served next. All this belongs to the same tick, so that after the reply to an
//! LPUSH no other client finds the item that a waiting client was entitled to. The replies
//! reach their clients' threads after the commit; a reply is lost only if its client
//! disconnects in between.
//!
//! Commands are served with the clock of that moment: a transaction or script may have taken so
//! long that a key to which it gave an expiry has expired at its end.
//!
//! A command that is served needs the locks of all of its keys (BLMOVE has two). If another
//! thread holds one, the tick is committed before the wait, as for any command.
//!
//! Before a command writes a key that clients wait for, the keys of these clients are in memory
//! ([`Executor::waiters_lack_keys`](super::Executor)). If serving them needs other rows that are not, they
//! are served when those have been read: another client may find the item in between. If that does
//! not help, or a thread that reads from the disk holds a key for long, a worker serves them.

use super::Stop;
use super::outcome::ON_ITS_WAY;
use super::{Executor, KeyHashes};
use crate::commands::table::spec::{Attempt, Wait};
use crate::commands::{Command, Error, Handler, WriteCtx};
use crate::resp::Reply;
use crate::state::Session;
use crate::state::acl::Context;
use crate::state::chores::MANY;
use crate::state::request::Request;
use crate::state::waiters::{Awaited, Verdict, WaitKey, Waiter, Wanted};
use crate::state::workers::ReadyKeys;
use crate::storage::engine::cold_reads::{ColdRead, MAX_ROUNDS};
use crate::storage::engine::listeners::{Change, How};
use crate::storage::txn::ReadLimits;
use crate::storage::{DbIndex, StorageError};
use crate::types::OpError;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How soon a worker tries again to lock keys that a thread holds that reads from the disk.
const RETRY: Duration = Duration::from_millis(1);

type Run = fn(&mut WriteCtx<'_>, &[&[u8]]) -> Result<Attempt, Error>;

/// What a tick does for waiting clients.
#[derive(Default)]
pub(super) struct WaitingRoom {
    /// Keys that were written and that clients wait for.
    ready: VecDeque<(DbIndex, Box<[u8]>)>,
    /// Replies to waiting clients, sent after the commit.
    served: Vec<Served>,
    /// Keys that are ready, whose clients cannot be served for want of rows in memory.
    cold: Vec<ColdKey>,
    /// How often that has happened to the key whose clients are served now.
    rounds: u8,
}

/// A key that is ready, whose clients are served when these reads are done.
pub struct ColdKey {
    /// The DB.
    pub db: DbIndex,
    /// The key.
    pub key: Box<[u8]>,
    /// What serving its clients needs.
    pub reads: Vec<ColdRead>,
    /// How often such reads were done for it.
    pub rounds: u8,
}

/// A client that waited, and its reply.
pub(super) type Served = (Arc<Waiter>, Verdict);

impl Executor {
    /// Runs a blocking command. If it has to wait, `session.waiting` is set afterwards.
    pub(super) fn block(
        &mut self,
        session: &mut Session,
        command: &Command,
        args: &[&[u8]],
        reply: &mut Reply,
        run: Run,
    ) -> Result<(), Stop> {
        self.lock(session, command, args)?;
        self.refuse_migrating(session, command, args)?;
        if command.is_write() {
            self.check_still_master()?;
        }
        let start = reply.len();
        self.begin_read_budget();
        let attempt = self.attempt(session, command, args, reply, run);
        self.end_read_budget();
        let attempt = attempt?;
        if command.is_read() && session.tracks_reads() {
            self.track(session, command, args);
        }
        session.wrote.set(true);
        if let Attempt::Wait(wait) = attempt {
            debug_assert_eq!(
                reply.len(),
                start,
                "a command that waits has written no reply"
            );
            self.enter(session, command, args, wait);
        }
        if !self.in_unit() {
            self.serve_waiters();
        }
        Ok(())
    }

    /// Tries the command once; the locks are held.
    fn attempt(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
        reply: &mut Reply,
        run: Run,
    ) -> Result<Attempt, Error> {
        let savepoint = self.txn.savepoint();
        self.txn.start_command();
        self.txn.set_origin(session.info.id.0);
        match command.is_write() {
            true => self.count_reads_of(command),
            // Expired keys are hidden, as for any read.
            false => self.txn.hide_expired(),
        }
        let (db, overflowed) = (session.db(), reply.overflowed);
        let mut ctx = WriteCtx {
            txn: &mut self.txn,
            reply,
            db,
            server: &self.server,
            session,
            ahead: &self.thread.ahead,
        };
        let attempt = run(&mut ctx, args);
        let attempt = match command.is_write() {
            true => self.check_memory(attempt, reply, overflowed),
            false => attempt,
        };
        match &attempt {
            Ok(_) => self.finish_command(db, command, args),
            Err(_) => self.txn.rollback_failed(&savepoint),
        }
        attempt
    }

    fn enter(&mut self, session: &mut Session, command: &Command, args: &[&[u8]], wait: Wait) {
        let db = session.db();
        let keys = args.get(wait.keys).unwrap_or_default();
        let keys = keys.iter().map(|&key| WaitKey {
            key: key.into(),
            hash: self.txn.key_hash(db, key),
        });
        let wanted = Wanted {
            awaited: Awaited::Keys {
                keys: keys.collect(),
                kind: wait.kind,
                minds_loss: wait.minds_loss,
            },
            timeout_ms: wait.timeout_ms,
        };
        let client = (db, session.resp3);
        let request = wait.request.unwrap_or_else(|| Request::new(args));
        let waiters = &self.server.waiters;
        let waiter = waiters.enter(&session.info, client, request, wanted, self.tick.now_ms);
        waiter.set_retry_ms(wait.retry_ms);
        session.waiting = Some(waiter);
        let is_read_only = self.server.replication.is_replica() && self.config().replica_read_only;
        if is_read_only && command.is_write() {
            // The server became a replica after the command was admitted.
            self.server.unblock_on_replica(session.info.id);
        }
    }

    /// Notifies the listeners of changed keys, and collects the keys that clients wait for.
    pub(super) fn announce_changes(&mut self) {
        let waiters = &self.server.waiters;
        let engine = &self.server.engine;
        let changes = self.txn.announce_changes();
        if changes.is_empty() || waiters.is_empty() {
            return;
        }
        let ready = &mut self.waiting.ready;
        for change in changes {
            match change {
                Change::Key { db, key, how, .. } => {
                    let hash = engine.key_hash(*db, key);
                    let suits = |waiter: &Waiter| *how == How::Written || waiter.minds_loss();
                    if waiters.next(hash, (*db, key), None, suits).is_some() {
                        ready.push_back((*db, key.clone()));
                    }
                }
                Change::Swapped { a, b, .. } => {
                    for db in [*a, *b] {
                        ready.extend(waiters.keys_in(db, |_| true).map(|key| (db, key)));
                    }
                }
                Change::Cleared { db, .. } => {
                    let minds_loss = |waiter: &Waiter| waiter.minds_loss();
                    ready.extend(waiters.keys_in(*db, minds_loss).map(|key| (*db, key)));
                }
            }
        }
    }

    /// Serves the clients that wait for keys that are ready. Must not be called within a unit.
    pub(super) fn serve_waiters(&mut self) {
        if !self.waiting.ready.is_empty() {
            self.read_clock();
        }
        while let Some((db, key)) = self.waiting.ready.pop_front() {
            // Other threads wait for the keys of these.
            let limits = match self.thread.slices || self.txn.is_received() {
                true => ReadLimits::InMemory,
                false => ReadLimits::None,
            };
            self.txn.limit_reads(limits);
            let served = self.serve_key(db, &key);
            self.txn.limit_reads(ReadLimits::None);
            match served {
                Ok(()) => {}
                Err(error) if is_not_in_memory(&error) => {
                    let (reads, rounds) = (self.txn.take_cold_reads(), self.waiting.rounds + 1);
                    let cold = ColdKey {
                        db,
                        key,
                        reads,
                        rounds,
                    };
                    match self.thread.slices && rounds <= MAX_ROUNDS {
                        true => self.waiting.cold.push(cold),
                        false => self.server.workers.serve(cold.db, cold.key),
                    }
                }
                Err(error) if is_held(&error) => {
                    // Another thread has all keys for long.
                    self.server.workers.serve(db, key);
                }
                Err(error) => {
                    // The commit failed, and with it the tick: its end reports the failure to all
                    // clients.
                    log::debug!("waiting clients not served: {error}");
                    self.waiting.ready.clear();
                }
            }
        }
    }

    /// Takes the keys whose clients could not be served for want of rows in memory.
    pub fn take_cold_keys(&mut self) -> Vec<ColdKey> {
        std::mem::take(&mut self.waiting.cold)
    }

    /// Tries the command of a waiting client again, because the time for it has come.
    pub fn retry_waiter(&mut self, waiter: &Waiter) {
        for key in waiter.keys() {
            if waiter.is_waiting() {
                self.serve_cold_key(&ColdKey {
                    db: waiter.db,
                    key: key.key.clone(),
                    reads: Vec::new(),
                    rounds: 0,
                });
            }
        }
    }

    /// Serves the clients of a key whose reads are done.
    pub fn serve_cold_key(&mut self, key: &ColdKey) {
        self.tick.touched_keys = true;
        self.tick.commands += 1;
        self.waiting.rounds = key.rounds;
        match self.lock_for_waiters(key.db, std::iter::once(&*key.key), &key.key) {
            Ok(true) => {
                self.waiting.ready.push_back((key.db, key.key.clone()));
                self.serve_waiters();
            }
            Ok(false) => {}
            Err(error) => log::debug!("waiting clients not served: {error}"),
        }
        self.waiting.rounds = 0;
    }

    fn serve_key(&mut self, db: DbIndex, key: &[u8]) -> Result<(), Error> {
        self.txn.begin(self.tick.now_ms)?;
        let hash = self.txn.key_hash(db, key);
        let mut ticket = None;
        // Ends when the key is gone: the thread that writes it again also serves it.
        loop {
            let kind = self.txn.meta_of(db, key)?.map(|meta| meta.kind);
            let suits = |waiter: &Waiter| waiter.wants(kind);
            let waiters = &self.server.waiters;
            let Some(waiter) = waiters.next(hash, (db, key), ticket, suits) else {
                break;
            };
            ticket = Some(waiter.ticket());
            if !self.serve(&waiter, key)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs the command of a waiting client as if the client had just sent it; `key` has become
    /// ready. `false`: a script's worker holds a key that is needed, or the client waits for very many
    /// keys; a worker will serve the clients that wait for `key`, including this one.
    fn serve(&mut self, waiter: &Arc<Waiter>, key: &[u8]) -> Result<bool, Error> {
        let mut session = Session::of_waiter(waiter.client.clone());
        session.select(waiter.db);
        session.resp3 = waiter.resp3;
        let args = waiter.request.args();
        let found = self.resolve(&args)?;
        let command = found.command;
        let Handler::Blocking(blocking) = command.handler else {
            return Ok(true);
        };
        if blocking.writes && self.txn.is_received() {
            // A replica's data is written only by its master's log.
            return Ok(true);
        }
        if !waiter.is_waiting() {
            // Its wait is over, and others take it out of the lists of its keys.
            return Ok(true);
        }
        if waiter.has_many_keys() && self.has_workers() {
            self.server.workers.serve(waiter.db, key.into());
            return Ok(false);
        }
        let indices = command.key_indices(&args).unwrap_or_default();
        let keys = indices.iter().map(|&index| args[index]);
        if !self.lock_for_waiters(waiter.db, keys, key)? {
            return Ok(false);
        }
        // Other threads may have changed the key while this one waited for the locks.
        let kind = self.txn.meta_of(waiter.db, key)?.map(|meta| meta.kind);
        if !waiter.wants(kind) || !waiter.claim() {
            return Ok(true);
        }
        let before = self.txn.savepoint();
        let mut reply = Reply::new(waiter.resp3);
        // BLMOVE may write to a key that MIGRATE is moving.
        // The user may have lost a permission since the command began to wait.
        let permitted = self.permit(&session, found, &args, Context::TopLevel);
        let is_denied = permitted.is_err();
        let attempt = match self.is_held_by_migration(waiter.db, command, &args) {
            _ if is_denied => permitted.map(|()| Attempt::Done),
            true => Err(ON_ITS_WAY),
            false => self.attempt(&session, command, &args, &mut reply, blocking.run),
        };
        let failed = attempt.is_err();
        match attempt {
            Ok(Attempt::Wait(wait)) => {
                waiter.set_retry_ms(wait.retry_ms);
                // What an attempt in vain records was recorded when the command first ran.
                self.txn.rollback(&before);
                waiter.unclaim();
                return Ok(true);
            }
            Ok(Attempt::Done) => {}
            Err(error) if is_not_in_memory(&error) => {
                self.txn.rollback(&before);
                waiter.unclaim();
                return Err(error);
            }
            Err(error) => {
                reply.truncate(0);
                reply.error_bytes(&error.wire());
                self.server.stats.error(&error.to_string());
            }
        }
        let reply_bytes = reply.len();
        let verdict = Verdict::Reply(reply.buf);
        self.waiting.served.push((waiter.clone(), verdict));
        match is_denied {
            true => self.server.stats.per_command[found.index].rejected.add(1),
            false => self.count(&session, found, &args, failed, reply_bytes),
        }
        session.info.commands.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Locks the keys of a client that waits for `ready`. If another thread holds one of them for
    /// long, a worker takes over the serving of `ready`, and this returns `false`.
    fn lock_for_waiters<'k>(
        &mut self,
        db: DbIndex,
        keys: impl Iterator<Item = &'k [u8]>,
        ready: &[u8],
    ) -> Result<bool, Error> {
        let hashes: KeyHashes = keys.map(|key| self.txn.key_hash(db, key)).collect();
        if hashes.len() > MANY && self.thread.worker.is_some() {
            // A turn that holds no keys can lock these as one set: other keys stay free meanwhile.
            let committed = self.txn.commit();
            committed.map_err(|error| self.note_failure(error))?;
        }
        loop {
            let begun = self.txn.begin(self.tick.now_ms);
            match begun.and_then(|()| self.txn.lock(hashes.iter().copied())) {
                Ok(_) => return Ok(true),
                Err(StorageError::Held(owner)) => {
                    let workers = &self.server.workers;
                    match workers.postpone(owner, db, ready) {
                        Some(true) => return Ok(false),
                        // The worker has just released all its keys, so try again.
                        Some(false) => std::thread::yield_now(),
                        None if self.thread.slices => {
                            workers.serve(db, ready.into());
                            return Ok(false);
                        }
                        // It lets go of them when its reads are done, or a master's rows are
                        // applied, and waits for no worker.
                        None => std::thread::sleep(RETRY),
                    }
                }
                Err(error) => return Err(self.note_failure(error)),
            }
        }
    }

    /// Serves the clients of keys that other threads made ready while a script of this worker
    /// held other keys that were needed, or that needed reads of the disk.
    pub(super) fn serve_postponed(&mut self, keys: ReadyKeys) -> Result<(), Error> {
        for (db, key) in keys {
            if self.lock_for_waiters(db, std::iter::once(&*key), &key)? {
                self.waiting.ready.push_back((db, key));
                self.serve_waiters();
            }
        }
        Ok(())
    }

    /// Counts a command whose wait ended without being served, and the error of that.
    pub fn count_unserved(&self, waiter: &Waiter, error: Option<&str>) {
        if let Ok(found) = self.resolve(&waiter.request.args()) {
            self.server.stats.ran(found.index, 0, error.is_some());
        }
        if let Some(error) = error {
            self.server.stats.error(error);
        }
    }

    /// Takes the clients that were served in the tick, which is over.
    pub(super) fn take_served(&mut self) -> Vec<Served> {
        self.waiting.ready.clear();
        std::mem::take(&mut self.waiting.served)
    }

    /// Sends the served clients their replies, or the error of the tick that served them.
    pub(super) fn reply_to_served(&self, served: Vec<Served>, failure: Option<&Error>) {
        if served.is_empty() {
            return;
        }
        let waiters = &self.server.waiters;
        let threads = served.into_iter().filter_map(|(waiter, verdict)| {
            let verdict = match failure {
                None => verdict,
                Some(error) => Verdict::Error(error.to_string()),
            };
            waiters.finish(&waiter, verdict)
        });
        let threads: BTreeSet<usize> = threads.collect();
        self.server.wake_threads(threads);
    }
}

fn is_held(error: &Error) -> bool {
    matches!(error, Error::Op(OpError::Storage(StorageError::Held(_))))
}

fn is_not_in_memory(error: &Error) -> bool {
    matches!(
        error,
        Error::Op(OpError::Storage(StorageError::NotInMemory))
    )
}

#[cfg(test)]
mod tests;
