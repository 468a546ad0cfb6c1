//! Requests that need rows which are not in memory (see [`crate::storage::engine::cold_reads`]).
//!
//! An IO thread takes such a request back and parks its connection; the thread of a link to a
//! master waits itself, before it takes the locks again. Both ask for all keys of the request at
//! once, and an IO thread for the keys of the requests behind it as well.

use super::unit::Scope;
use super::{Executor, Stop};
use crate::commands::{Command, Handler, Own};
use crate::state::Session;
use crate::storage::engine::cold_reads::{ColdRead, MAX_ROUNDS};
use crate::storage::txn::ReadLimits;
use crate::storage::{DbIndex, StorageError};

/// Clients that wait for what a command may write, or for what others of them may write, whose keys are
/// looked for.
const CHAIN: usize = 64;

impl Executor {
    /// What the last request needs after [`super::Outcome::Cold`].
    pub fn take_cold_reads(&self) -> Vec<ColdRead> {
        self.txn.take_cold_reads()
    }

    /// Asks for rows that a later request will need; returns whether others may ask for more.
    pub fn look_ahead_for(&self, session: &Session, args: &[&[u8]]) -> bool {
        if self.txn.has_many_cold_reads() || self.txn.has_a_round_of_cold_reads() {
            return false;
        }
        if let Ok(found) = self.resolve(args) {
            let mut scope = Scope::default();
            scope.command(session.db(), found.command, args);
            self.txn.look_for(scope.keys());
            self.look_for_elements(&scope, args);
        }
        true
    }

    /// Asks for what a command needs of the collections under its keys. The words after a single key
    /// may be members.
    fn look_for_elements(&self, scope: &Scope<'_>, args: &[&[u8]]) {
        let members = match scope.keys().nth(1) {
            None => args.get(2..).unwrap_or_default(),
            Some(_) => &[],
        };
        self.txn.look_for_elements(scope.keys(), members);
    }

    /// Whether a request that was taken back waits for its reads. Otherwise it goes to a worker,
    /// which may wait: its rows leave memory sooner than it gets them.
    pub(super) fn waits_for_reads(&self) -> bool {
        self.request.retry.rounds < MAX_ROUNDS
    }

    /// Asks for the rows of all keys of a request that was taken back, or for those of the members
    /// that it names.
    pub(super) fn look_for_keys(&self, session: &Session, command: &Command, args: &[&[u8]]) {
        if self.txn.has_many_cold_reads() {
            return;
        }
        // Its arguments may be members of the collection one of whose rows it has missed.
        self.txn.look_for_members(args.get(2..).unwrap_or_default());
        let is_first = self.request.retry.rounds == 0;
        if let (Handler::Own(Own::Exec), Some(multi)) = (&command.handler, session.multi()) {
            // Its commands have said themselves what they lack of their collections.
            if is_first {
                let scope = self.scope_of(session.db(), &multi.queue);
                self.txn.look_for(scope.keys());
            }
            return;
        }
        let mut scope = Scope::default();
        scope.command(session.db(), command, args);
        if is_first {
            self.txn.look_for(scope.keys());
        }
        if scope.keys().nth(1).is_some() {
            self.look_for_elements(&scope, args);
        }
    }

    /// Whether keys of a scope are not in memory; then they are asked for.
    pub(super) fn lacks_keys(&self, scope: &Scope<'_>) -> bool {
        if !self.thread.slices || !self.waits_for_reads() {
            return false;
        }
        self.txn.look_for(scope.keys());
        self.txn.has_cold_reads()
    }

    /// Whether the keys of clients that wait for what a command may write are not in memory; then
    /// they are asked for. These clients are served right after the command, under its locks.
    pub(super) fn waiters_lack_keys(&self, db: DbIndex, command: &Command, args: &[&[u8]]) -> bool {
        let may = self.thread.slices && !self.in_unit() && self.waits_for_reads();
        if !may || self.server.waiters.is_empty() {
            return false;
        }
        let mut left = CHAIN;
        command.for_each_written_key(args, |key| self.look_for_waiters(db, key, &mut left));
        self.txn.has_cold_reads()
    }

    /// Asks for the keys of up to `left` clients that wait for this key, and of those that wait for
    /// what these write.
    fn look_for_waiters(&self, db: DbIndex, key: &[u8], left: &mut usize) {
        let hash = self.txn.key_hash(db, key);
        let mut ticket = None;
        while *left > 0
            && let Some(waiter) = self.server.waiters.next(hash, (db, key), ticket, |_| true)
        {
            *left -= 1;
            ticket = Some(waiter.ticket());
            if waiter.has_many_keys() {
                // A worker serves it, which may wait.
                return;
            }
            let words = waiter.request.args();
            if let Ok(found) = self.resolve(&words) {
                let mut scope = Scope::default();
                scope.command(waiter.db, found.command, &words);
                self.txn.look_for(scope.keys());
                found.command.for_each_written_key(&words, |key| {
                    self.look_for_waiters(waiter.db, key, left);
                });
            }
        }
    }

    /// How commands may read here.
    pub(super) fn read_limits(&self) -> ReadLimits {
        match self.thread.slices {
            true if self.limits_reads() => ReadLimits::Budget,
            true => ReadLimits::InMemory,
            false if self.request.in_memory => ReadLimits::InMemory,
            // What a unit did on a worker is not taken back.
            false if self.thread.worker.is_some() && !self.in_unit() && !self.request.waited => {
                ReadLimits::Apart
            }
            false => ReadLimits::None,
        }
    }

    /// Starts the read budget of a command. A unit has one budget as a whole.
    pub(super) fn begin_read_budget(&self) {
        if !self.in_unit() {
            self.txn.limit_reads_and_watch(self.read_limits());
        }
    }

    /// Ends the read budget of a command.
    pub(super) fn end_read_budget(&self) {
        if !self.in_unit() {
            self.txn.limit_reads(ReadLimits::None);
        }
    }

    /// Runs `attempt` on this thread, at first without waiting for the disk. As long as it fails
    /// for want of rows, these are brought into memory while no key is locked. `attempt` takes back
    /// what it did when it fails; `ask` asks for what else will be needed. The last attempt may wait:
    /// it holds its keys for long, and is committed at once.
    pub(super) fn with_reads_before<R, E>(
        &mut self,
        ask: impl FnOnce(&Executor),
        mut attempt: impl FnMut(&mut Executor) -> Result<R, E>,
        is_cold: impl Fn(&E) -> bool,
    ) -> Result<R, E>
    where
        E: From<StorageError>,
    {
        let mut ask = Some(ask);
        for _ in 0..MAX_ROUNDS {
            self.request.in_memory = true;
            let done = attempt(self);
            self.request.in_memory = false;
            match done {
                Err(error) if is_cold(&error) => {}
                done => return done,
            }
            if let Some(ask) = ask.take() {
                ask(self);
            }
            let reads = self.txn.take_cold_reads();
            // Earlier work of the same batch has locks.
            self.txn.commit()?;
            self.server.engine.wait_for_reads(reads);
            self.txn.wait_for_lacked_tables()?;
        }
        self.txn.hold_for_long(true);
        let done = attempt(self);
        // Lets go of the keys.
        let committed = self.txn.commit();
        self.txn.hold_for_long(false);
        committed?;
        done
    }
}

/// Whether a command was stopped for want of rows in memory.
pub(super) fn is_cold(stop: &Stop) -> bool {
    matches!(stop, Stop::Cold)
}
