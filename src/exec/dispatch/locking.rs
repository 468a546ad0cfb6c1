//! How a command locks its keys, and the error for a client whose command cannot.

use crate::commands::ahead::AheadCtx;
use crate::commands::scripts::busy;
use crate::commands::table::keys::KeySpec;
use crate::commands::table::spec::Group;
use crate::commands::{Command, Error, Flags, Handler};
use crate::exec::{Executor, KeyHashes, Stop};
use crate::state::Session;
use crate::state::clients::ClientFlags;
use crate::state::workers::Running;
use crate::storage::txn::ReadLimits;
use crate::storage::{KEYS_AHEAD, StorageError};
use std::time::Duration;

/// DBs of up to this many keys are walked over on the IO thread.
const WALK_INLINE: u64 = 10_000;
/// Requests of more words take milliseconds, too long for the other clients of an IO thread.
/// They run on a worker, unless scripts occupy all workers. So do transactions of more words.
pub(in crate::exec) const MANY_WORDS: usize = 2048;

/// So do requests of more bytes: they are hashed and copied several times, a millisecond for 200 KB.
const MANY_BYTES: usize = 1 << 20;
/// JSON is parsed as well: a thousand values take a millisecond.
const MANY_BYTES_OF_JSON: usize = 16 << 10;

impl Executor {
    /// Whether the request that runs takes milliseconds because of the arguments of its command.
    pub(in crate::exec) fn is_long(&self, command: &Command, args: &[&[u8]]) -> bool {
        let most = match command.group {
            Group::Json => MANY_BYTES_OF_JSON,
            _ => MANY_BYTES,
        };
        args.len() > MANY_WORDS || self.request.bytes > most
    }

    /// Locks the keys of a command, or all keys if the command is exclusive.
    pub(in crate::exec) fn lock(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<usize, Stop> {
        self.tick.touched_keys = true;
        if self.in_unit() {
            self.lock_in_unit(session.db(), command, args)?;
            self.note_key_accesses(session, command, args);
            return Ok(usize::MAX);
        }
        if command.flags.contains(Flags::EXCLUSIVE) {
            if command.ahead.is_some() {
                self.commit_pending()?;
                self.make_ahead(session, command, args)?;
            }
            self.begin_exclusive()?;
            return Ok(0);
        }
        if self.is_long(command, args) && self.has_workers() && !command.keys.is_empty() {
            return Err(Stop::Slow);
        }
        if command.flags.contains(Flags::SLOW) {
            self.commit_pending()?;
        }
        // Commands that may run besides slow scripts wait for their keys.
        let waits = command.flags.contains(Flags::ALLOW_BUSY);
        self.begin(waits)?;
        if command.flags.contains(Flags::WALKS)
            && self.thread.worker.is_none()
            && self.txn.counts(session.db()).keys > WALK_INLINE
        {
            return Err(Stop::Slow);
        }
        if command.keys.is_empty() {
            return Ok(usize::MAX);
        }
        let Some(indices) = command.key_indices(args) else {
            // The handler reports the wrong arguments.
            return Ok(usize::MAX);
        };
        let db = session.db();
        if indices.len() > 1 {
            let first = indices.iter().take(KEYS_AHEAD);
            self.prefetch(first.map(|&i| (db, args[i])));
        }
        let hash = |&i: &usize| self.txn.key_hash(db, args[i]);
        let mut hashes: KeyHashes = indices.iter().map(hash).collect();
        self.note_request(session, command, &hashes);
        if let Some(other) = command.other_db(args) {
            let there = indices.iter().map(|&i| self.txn.key_hash(other, args[i]));
            hashes.extend(there);
        }
        let hashes = hashes.iter().copied();
        let locked = match command.handler {
            Handler::Read(_) if !self.in_unit() => {
                let locked = self.txn.lock_to_read(hashes);
                self.request.must_wait =
                    !self.txn.reads_durable() || command.keys.iter().any(KeySpec::is_unknown);
                locked
            }
            _ => self.txn.lock(hashes),
        };
        locked.map_err(|error| self.not_locked(error, waits))
    }

    /// Makes what a command needs besides its keys, while this thread holds no lock. The caller
    /// clears [`Ahead`](crate::commands::ahead::Ahead) when the command is done.
    ///
    /// # Errors
    /// The command must end, or run elsewhere.
    pub(in crate::exec) fn make_ahead(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<(), StorageError> {
        let Some(make) = command.ahead else {
            return Ok(());
        };
        self.txn.limit_reads_and_watch(ReadLimits::None);
        let mut ctx = AheadCtx {
            view: &self.txn,
            server: &self.server,
            session,
            ahead: &mut self.thread.ahead,
        };
        let made = make(&mut ctx, args);
        self.txn.limit_reads(ReadLimits::None);
        made
    }

    /// Begins a command that reads its keys without locks. Returns what [`Executor::lock`]
    /// would.
    ///
    /// # Errors
    /// [`Stop::Slow`]: the command does not name its keys, or has none.
    pub(super) fn begin_unlocked(
        &mut self,
        session: &Session,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<usize, Stop> {
        let indices = command.key_indices(args).unwrap_or_default();
        if indices.is_empty() {
            return Err(Stop::Slow);
        }
        self.tick.touched_keys = true;
        self.begin(false)?;
        let db = session.db();
        let first = indices.iter().take(KEYS_AHEAD);
        self.prefetch(first.map(|&i| (db, args[i])));
        let hash = |&i: &usize| self.txn.key_hash(db, args[i]);
        let hashes: KeyHashes = indices.iter().map(hash).collect();
        self.note_request(session, command, &hashes);
        Ok(usize::MAX)
    }

    fn note_key_accesses(&mut self, session: &Session, command: &Command, args: &[&[u8]]) {
        if !self.is_access(session, command) {
            return;
        }
        let indices = command.key_indices(args).unwrap_or_default();
        let db = session.db();
        let hash = |&i: &usize| self.txn.key_hash(db, args[i]);
        let hashes: KeyHashes = indices.iter().map(hash).collect();
        self.note_accesses_in_unit(hashes.into_iter());
    }

    /// Counts the accesses of a request, once even if the request is run again.
    fn note_request(&mut self, session: &Session, command: &Command, hashes: &KeyHashes) {
        if !self.request.accesses_noted {
            if self.is_access(session, command) {
                self.touch(hashes);
            }
            self.request.accesses_noted = true;
        }
    }

    /// Whether a command counts as an access to its keys.
    fn is_access(&self, session: &Session, command: &Command) -> bool {
        let wanted = match session.info.flags().contains(ClientFlags::NO_TOUCH) {
            true => command.flags.contains(Flags::TOUCHES),
            false => command.is_write() || self.thread.config.reads_count(),
        };
        wanted && !command.flags.contains(Flags::NO_TOUCH)
    }

    /// Counts accesses to keys, for eviction, OBJECT IDLETIME and OBJECT FREQ.
    pub(in crate::exec) fn touch(&self, hashes: &[u64]) {
        let lfu = self.thread.config.lfu();
        for hash in hashes {
            self.server.accesses.touch(*hash, self.tick.now_ms, lfu);
        }
    }

    pub(in crate::exec) fn begin(&mut self, waits: bool) -> Result<(), Stop> {
        let first = self.txn.give_way(&[], false);
        let begun = first.and_then(|()| self.txn.begin(self.tick.now_ms));
        begun.map_err(|error| self.not_locked(error, waits))
    }

    pub(in crate::exec) fn begin_exclusive(&mut self) -> Result<(), Stop> {
        let now_ms = self.tick.now_ms;
        let begun = self.txn.begin_exclusive(now_ms);
        begun.map_err(|error| self.not_locked(error, false))
    }

    pub(in crate::exec) fn commit_pending(&mut self) -> Result<(), Error> {
        let committed = self.txn.commit();
        committed.map_err(|error| self.note_failure(error))
    }

    /// Called when a commit in the middle of a tick failed: the tick fails as well.
    pub(in crate::exec) fn note_failure(&mut self, error: StorageError) -> Error {
        self.tick.failed = true;
        // The reason is in the log.
        match self.server.engine.has_failed() {
            true => StorageError::Failed.into(),
            false => error.into(),
        }
    }

    /// The error for a command whose keys cannot be locked. If a script holds them, the command
    /// is tried again, until the script counts as slow and the command does not wait (`waits`).
    pub(in crate::exec) fn not_locked(&mut self, error: StorageError, waits: bool) -> Stop {
        let StorageError::Held(owner) = error else {
            return self.note_failure(error).into();
        };
        let script = self.server.workers.script_of(owner);
        match script.filter(|script| !waits && self.is_slow(script)) {
            Some(script) => busy(script.is_function).into(),
            None => Stop::Conflict,
        }
    }

    /// Whether a script has run for longer than `busy-reply-threshold`.
    pub(super) fn is_slow(&self, script: &Running) -> bool {
        script.elapsed() >= self.busy_threshold()
    }

    /// As in Redis, 0 means that no script is slow.
    pub(in crate::exec) fn busy_threshold(&self) -> Duration {
        match self.thread.config.busy_reply_threshold_ms {
            0 => Duration::MAX,
            ms => Duration::from_millis(ms),
        }
    }
}
