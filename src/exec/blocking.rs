//! Commands that wait for a key, and who runs them when it is ready.
//!
//! The thread that makes a key ready serves who waits for it: right after the
//! command (or the unit) that did, and before it lets the key go, it runs the
//! commands of the waiting clients, on whichever threads they are, in the order
//! in which they came; what that makes ready is served next. All this goes into
//! the same tick, so that after the reply of an LPUSH nobody finds the item that
//! a waiting client was entitled to. The replies reach their clients' threads
//! after the commit; they are lost only if a client is lost in between.
//!
//! It is served as of the time at which that happens: a transaction or a script may have
//! taken so long that a key to which it gave a time is over at its end.
//!
//! A command that is served needs the locks of all of its keys (BLMOVE has two).
//! Where another thread holds one, the tick is committed before waiting for it,
//! as for any command.

use super::Stop;
use super::outcome::ON_ITS_WAY;
use super::{Executor, KeyHashes};
use crate::commands::table::spec::{Attempt, Wait};
use crate::commands::{Command, Error, Handler, WriteCtx};
use crate::resp::Reply;
use crate::state::Session;
use crate::state::request::Request;
use crate::state::waiters::{Awaited, Verdict, WaitKey, Waiter, Wanted};
use crate::storage::engine::listeners::{Change, How};
use crate::storage::{DbIndex, StorageError};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

type Run = fn(&mut WriteCtx<'_>, &[&[u8]]) -> Result<Attempt, Error>;

/// What a tick has to do with clients that wait.
#[derive(Default)]
pub(super) struct WaitingRoom {
    /// Keys that were written and that somebody waits for.
    ready: VecDeque<(DbIndex, Box<[u8]>)>,
    /// Replies that wait for the commit.
    served: Vec<Served>,
}

/// A client that waited, and its reply.
pub(super) type Served = (Arc<Waiter>, Verdict);

impl Executor {
    /// Runs a command that may wait. If it has to, the session waits after this.
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
            debug_assert_eq!(reply.len(), start, "who waits has not answered");
            self.enter(session, command, args, wait);
        }
        if !self.in_unit() {
            self.serve_waiters();
        }
        Ok(())
    }

    /// Tries once; the locks are held.
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
        if !command.is_write() {
            // What is over is hidden here, as from any reader.
            self.txn.hide_expired();
        }
        let db = session.db();
        let mut ctx = WriteCtx {
            txn: &mut self.txn,
            reply,
            db,
            server: &self.server,
            session,
        };
        let attempt = run(&mut ctx, args);
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
        session.waiting = Some(waiter);
        let is_read_only = self.server.replication.is_replica() && self.config().replica_read_only;
        if is_read_only && command.is_write() {
            // It became one after the command was admitted.
            self.server.unblock_on_replica(session.info.id);
        }
    }

    /// Tells who listens which keys were changed, and notes those that somebody
    /// waits for.
    pub(super) fn announce_changes(&mut self) {
        let waiters = &self.server.waiters;
        let engine = &self.server.engine;
        let news = self.txn.announce_changes();
        if news.is_empty() || waiters.is_empty() {
            return;
        }
        let ready = &mut self.waiting.ready;
        for change in news {
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

    /// Serves who waits for keys that are ready. Not within a unit.
    pub(super) fn serve_waiters(&mut self) {
        if !self.waiting.ready.is_empty() {
            self.read_clock();
        }
        while let Some((db, key)) = self.waiting.ready.pop_front() {
            if let Err(error) = self.serve_key(db, &key) {
                // The commit failed, and with it the tick: its end tells everybody.
                log::debug!("not served: {error}");
                self.waiting.ready.clear();
            }
        }
    }

    fn serve_key(&mut self, db: DbIndex, key: &[u8]) -> Result<(), Error> {
        self.txn.begin(self.tick.now_ms)?;
        let hash = self.txn.key_hash(db, key);
        let mut ticket = None;
        // Once it is gone: whoever makes it again comes here again.
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

    /// Runs the command of a waiting client, as if it had just sent it; `key` was
    /// ready a moment ago. `false`: a worker does that, and serves who waits for the
    /// key after this one.
    fn serve(&mut self, waiter: &Arc<Waiter>, key: &[u8]) -> Result<bool, Error> {
        let mut session = Session::new(waiter.client.clone(), true);
        session.select(waiter.db);
        session.resp3 = waiter.resp3;
        let args = waiter.request.args();
        let found = self.resolve(&args)?;
        let command = found.command;
        let Handler::Blocking(blocking) = command.handler else {
            return Ok(true);
        };
        if blocking.writes && self.txn.is_received() {
            // What a master has logged is all that is written here.
            return Ok(true);
        }
        let indices = command.key_indices(&args).unwrap_or_default();
        let keys = indices.iter().map(|&index| args[index]);
        if !self.lock_for_waiters(waiter.db, keys, key)? {
            return Ok(false);
        }
        // Waiting for the locks let others have the key.
        let kind = self.txn.meta_of(waiter.db, key)?.map(|meta| meta.kind);
        if !waiter.wants(kind) || !waiter.claim() {
            return Ok(true);
        }
        let before = self.txn.savepoint();
        let mut reply = Reply::new(waiter.resp3);
        // BLMOVE may want to write to a key that may not be written to now.
        let attempt = match self.is_held_by_migration(waiter.db, command, &args) {
            true => Err(ON_ITS_WAY),
            false => self.attempt(&session, command, &args, &mut reply, blocking.run),
        };
        let failed = attempt.is_err();
        match attempt {
            Ok(Attempt::Wait(_)) => {
                // That it asked was noted when it did.
                self.txn.rollback(&before);
                waiter.unclaim();
                return Ok(true);
            }
            Ok(Attempt::Done) => {}
            Err(error) => {
                reply.truncate(0);
                reply.error_bytes(&error.wire());
                self.server.stats.error(&error.to_string());
            }
        }
        let verdict = Verdict::Reply(reply.buf);
        self.waiting.served.push((waiter.clone(), verdict));
        self.count(&session, found, &args, failed);
        Ok(true)
    }

    /// Locks keys of clients that wait for `ready`. One of them may be a script's
    /// for long: then its worker does what is to be done here, and the answer is no.
    fn lock_for_waiters<'k>(
        &mut self,
        db: DbIndex,
        keys: impl Iterator<Item = &'k [u8]>,
        ready: &[u8],
    ) -> Result<bool, Error> {
        let hashes: KeyHashes = keys.map(|key| self.txn.key_hash(db, key)).collect();
        loop {
            let begun = self.txn.begin(self.tick.now_ms);
            match begun.and_then(|()| self.txn.lock(hashes.iter().copied())) {
                Ok(_) => return Ok(true),
                Err(StorageError::Held(owner)) => {
                    // If not, the worker has just let everything go.
                    if self.server.workers.postpone(owner, db, ready) {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(self.note_failure(error)),
            }
        }
    }

    /// Serves who waits for keys that others made ready while a script here had
    /// other keys that are needed.
    pub(super) fn serve_postponed(&mut self, keys: Vec<(DbIndex, Box<[u8]>)>) -> Result<(), Error> {
        for (db, key) in keys {
            if self.lock_for_waiters(db, std::iter::once(&*key), &key)? {
                self.waiting.ready.push_back((db, key));
                self.serve_waiters();
            }
        }
        Ok(())
    }

    /// Counts a command whose wait ended without being served, and the error with which
    /// it did.
    pub fn count_unserved(&self, waiter: &Waiter, error: Option<&str>) {
        if let Ok(found) = self.resolve(&waiter.request.args()) {
            self.server.stats.ran(found.index, 0, error.is_some());
        }
        if let Some(error) = error {
            self.server.stats.error(error);
        }
    }

    /// The tick is over: the clients that were served in it.
    pub(super) fn take_served(&mut self) -> Vec<Served> {
        self.waiting.ready.clear();
        std::mem::take(&mut self.waiting.served)
    }

    /// Tells clients that they were served, or of the failure of the tick in which
    /// they were.
    pub(super) fn tell_served(&self, served: Vec<Served>, failure: Option<&Error>) {
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

#[cfg(test)]
mod tests;
