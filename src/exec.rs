//! From a request to a reply: the stages of a request, and the tick.
//!
//! An [`Executor`] belongs to one thread. A tick: [`Executor::start_tick`], any
//! number of [`Executor::run`], [`Executor::finish_tick`]; replies may be sent
//! only after that returned `Ok` (IO threads: [`Executor::end_tick`]). All writes of
//! a tick are one batch, bounded in bytes, commands and time: when
//! [`Executor::is_full`] says so, finish the tick and start another.
//!
//! | file | what it does |
//! |---|---|
//! | `dispatch` | the stages of a request, commit of a tick |
//! | [`unit`] | several commands as one: EXEC, scripts |
//! | `transactions` | MULTI, EXEC, WATCH |
//! | `cold` | requests that need rows which are not in memory |
//! | `blocking` | commands that wait for a key, and how they are served |
//! | `scripts` | EVAL, FCALL and their variants |
//! | `worker` | slow requests, which run on worker threads |
//! | `populate` | DEBUG POPULATE |
//! | `record` | statistics and MONITOR lines of commands, each delivered once |
//! | `monitor` | what MONITOR clients see |

mod apply;
mod blocking;
mod cold;
mod dispatch;
mod monitor;
mod outcome;
mod populate;
mod record;
mod scripts;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
mod transactions;
mod unit;
mod worker;

pub use apply::ApplyError;
pub use blocking::ColdKey;
pub use dispatch::{Ended, Parked};
pub use outcome::{Outcome, Stop};
pub use unit::Scope;

use crate::base::time::UnixMs;
use crate::commands::ahead::Ahead;
use crate::commands::table::names::Names;
use crate::state::Server;
use crate::state::config::Config;
use crate::state::hotkeys::{Draw, Taken};
use crate::state::pubsub::Outbox;
use crate::state::workers::{Begun, Worker};
use crate::storage::{DbIndex, Expected, StorageError, Txn};
use blocking::WaitingRoom;
use record::Record;
use scripts::ThreadScripts;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unit::Unit;

/// Hashes of a command's keys; see [`crate::storage::View::key_hash`].
type KeyHashes = SmallVec<[u64; 8]>;

/// Runs the commands of one thread. Its fields are grouped by lifetime: thread, tick, request.
pub struct Executor {
    server: Arc<Server>,
    txn: Txn,
    /// The unit that runs now, if any.
    unit: Option<Unit>,
    waiting: WaitingRoom,
    thread: Thread,
    tick: Tick,
    request: Request,
}

/// State that lasts as long as the thread.
struct Thread {
    config: Arc<Config>,
    config_version: u64,
    /// Command names after `rename-command` and `--rename-prefix`.
    names: Names,
    /// A fixed time for tests, Unix ms; `None`: the real clock.
    fixed_now_ms: Option<UnixMs>,
    /// Whether scripts run here for a slice of time only (IO threads).
    slices: bool,
    /// The worker that this executor runs on, if any; its scripts have no time limit.
    worker: Option<Arc<Worker>>,
    /// Whether it is the one that gives requests only a turn.
    turns: bool,
    /// Once set, scripts that run here are stopped, except those of a worker.
    ended: Arc<AtomicBool>,
    /// The interpreter, created for the first script.
    scripts: Option<Box<ThreadScripts>>,
    /// See [`Executor::owes_sync`].
    owes_sync: bool,
    /// What was made for the command or the transaction that runs, before it had its locks.
    ahead: Ahead,
    /// The number of the IO thread that it runs on; `None` elsewhere.
    number: Option<usize>,
    /// Draws the commands that HOTKEYS takes into account.
    hot_draw: Draw,
}

/// State collected between two commits. [`Executor::start_tick`] resets it, except `failed`,
/// `touched_keys`, `outbox` and `record`, which stay until they are taken.
#[derive(Default)]
struct Tick {
    /// The clock of the tick's commands, Unix ms.
    now_ms: UnixMs,
    /// When the tick began, on the monotonic clock, in µs.
    started_us: u64,
    /// When the previous command ended, on the same clock.
    last_us: u64,
    /// How many commands the tick has run.
    commands: u32,
    /// Commands that the unit has run.
    commands_in_unit: u64,
    /// How many of its requests need not wait for the disk.
    free: u32,
    /// Whether a commit in the middle of the tick has failed.
    failed: bool,
    /// Whether the tick ran commands that read or wrote keys.
    touched_keys: bool,
    /// Messages of its commands to clients.
    outbox: Outbox,
    /// What commands have taken that HOTKEYS has not drawn.
    undrawn: Taken,
    /// Statistics and MONITOR lines that are not delivered yet.
    record: Record,
    /// Whether a thread has more messages queued for its clients than it can send.
    swamped: bool,
    /// Whether the tick must end now: its own client receives messages (invalidations,
    /// published messages) that belong between two of its replies.
    must_end: bool,
}

/// State of the request that runs, or ran last. [`Executor::run`] resets it, except what a
/// worker keeps of a request that it runs again.
struct Request {
    /// Whether its reply depends on data that may not be on disk yet.
    must_wait: bool,
    /// Whether it cannot have changed its session.
    plain: bool,
    /// Whether the access statistics already count it.
    accesses_noted: bool,
    /// What its earlier attempts have left.
    retry: Retry,
    /// Its bytes.
    bytes: usize,
    /// On a worker: whether it has waited for tables, and waits with its keys locked from now on.
    waited: bool,
    /// On a thread that may wait: whether it does not, because it holds locks, and can be taken back.
    in_memory: bool,
    /// Whether it was rolled back because there was no memory for its reply.
    lacked_room: bool,
    /// The bytes that should be free before it runs again for that reason.
    wanted_room: Option<u64>,
    /// On a worker: whether it has waited for the memory of its reply for as long as it may.
    waited_for_room: bool,
    /// On a worker: the scripts that it has begun, also in earlier attempts, in order; without those that
    /// are over.
    scripts: Vec<Option<Begun>>,
    /// How many of them this attempt has begun.
    scripts_begun: usize,
}

/// What a request that runs again must know of its earlier attempts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retry {
    /// How often it has waited for reads of the disk.
    pub rounds: u8,
    /// Whether MONITOR clients have already seen it.
    pub shown: bool,
    /// The state of the random numbers before the first attempt: each attempt draws the same ones,
    /// and so needs the same rows.
    pub seed: Option<u64>,
}

impl Executor {
    /// An executor without time limits and without a read budget.
    pub fn new(server: Arc<Server>) -> Executor {
        let version = server.config.version();
        let config = server.config.load();
        let mut executor = Executor {
            txn: Txn::new(server.engine.clone()),
            unit: None,
            waiting: WaitingRoom::default(),
            thread: Thread {
                names: Names::of(&config),
                config,
                config_version: version,
                fixed_now_ms: None,
                slices: false,
                worker: None,
                turns: false,
                ended: Arc::default(),
                scripts: None,
                owes_sync: false,
                ahead: Ahead::default(),
                number: None,
                hot_draw: Draw::default(),
            },
            tick: Tick::default(),
            request: Request {
                must_wait: true,
                plain: true,
                accesses_noted: false,
                retry: Retry::default(),
                bytes: 0,
                waited: true,
                in_memory: false,
                lacked_room: false,
                wanted_room: None,
                waited_for_room: false,
                scripts: Vec::new(),
                scripts_begun: 0,
            },
            server,
        };
        executor.want_events();
        executor.txn.keep_changes();
        executor
    }

    /// An executor for the IO thread of this number: what takes long goes to a worker.
    pub fn of_thread(server: Arc<Server>, thread: usize) -> Executor {
        let mut executor = Executor::new(server);
        executor.tick.outbox = Outbox::of_thread(thread);
        executor.thread.slices = true;
        executor.thread.number = Some(thread);
        executor.txn.borrow_from(executor.server.clone());
        executor.txn.be_impatient();
        executor.txn.never_wait_for_reads();
        let server = executor.server.clone();
        executor.watch_with(move || match server.workers.are_stopping() {
            true => Err(StorageError::Ended),
            false => Ok(()),
        });
        executor
    }

    /// An executor for a slow-command worker; `turns`: for the one that gives requests only a turn.
    pub fn on_worker(server: Arc<Server>, turns: bool) -> Executor {
        let mut executor = Executor::new(server);
        let owner = executor.txn.for_long();
        executor.txn.borrow_from(executor.server.clone());
        // A client that waits for a slow script gets an error instead of blocking the worker.
        executor.txn.be_impatient();
        let worker = executor.server.workers.add(owner, turns);
        executor.thread.worker = Some(worker.clone());
        executor.thread.turns = turns;
        let server = executor.server.clone();
        executor.watch_with(move || server.workers.verdict(&worker, &server.clients));
        executor
    }

    fn watch_with(&mut self, watch: impl Fn() -> Result<(), StorageError> + Send + 'static) {
        self.txn.watch_with(Box::new(watch));
    }

    /// Whether the request that runs must end before it is done: the server stops, or its client is
    /// gone. It is taken back as a whole then, and not begun again.
    fn must_end(&self) -> bool {
        let server = &self.server;
        let ended = match &self.thread.worker {
            Some(worker) => server.workers.verdict(worker, &server.clients),
            None if self.thread.slices => return server.workers.are_stopping(),
            None => return self.thread.ended.load(Ordering::Acquire),
        };
        matches!(ended, Err(StorageError::Ended))
    }

    /// Whether a request that takes long here is taken back and run elsewhere.
    fn may_be_slow(&self) -> bool {
        self.thread.slices || self.thread.turns
    }

    /// The worker that this executor runs on, if any.
    pub fn worker(&self) -> Option<&Arc<Worker>> {
        self.thread.worker.as_ref()
    }

    /// Once `ended` is set, scripts and long commands that run here are stopped, and the unit they
    /// are part of fails.
    pub fn end_with(&mut self, ended: Arc<AtomicBool>) {
        self.thread.ended = ended.clone();
        self.watch_with(move || match ended.load(Ordering::Acquire) {
            true => Err(StorageError::Ended),
            false => Ok(()),
        });
    }

    /// The state that all threads share.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The configuration as of this tick.
    pub fn config(&self) -> &Arc<Config> {
        &self.thread.config
    }

    /// The time of this tick, Unix ms.
    pub fn now_ms(&self) -> UnixMs {
        self.tick.now_ms
    }

    /// Fixes the clock.
    #[cfg(test)]
    fn fix_clock(&mut self, now_ms: UnixMs) {
        self.thread.fixed_now_ms = Some(now_ms);
    }

    /// Prefetches into the processor's cache what upcoming requests will read.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = (DbIndex, &'k [u8])>) {
        let accesses = &self.server.accesses;
        self.txn.prefetch(keys, |hash| accesses.prefetch(hash));
    }

    /// The first step of [`Executor::prefetch`] for one key. Its result is for
    /// [`Executor::prefetch_row`], which does not stall if it is called some time later.
    pub fn prefetch_place(&self, db: DbIndex, key: &[u8]) -> Option<Expected> {
        let accesses = &self.server.accesses;
        self.txn
            .prefetch_place(db, key, |hash| accesses.prefetch(hash))
    }

    /// The second step of [`Executor::prefetch`]: takes the result of the first.
    pub fn prefetch_row(&self, expected: Expected) {
        self.txn.prefetch_row(expected);
    }

    /// Announces the next request; `lent` bytes are reserved for its writes: see
    /// [`Txn::begin_request`]. It has so many bytes. If it runs again, `retry` is what
    /// [`Executor::retry`] returned.
    pub fn begin_request(&mut self, lent: usize, bytes: usize, retry: Retry) {
        self.request.bytes = bytes;
        self.request.retry = retry;
        self.request.scripts.clear();
        self.txn.begin_request(lent);
    }

    /// What the last request needs if it runs again.
    pub fn retry(&self) -> Retry {
        self.request.retry
    }

    /// Whether the reply to the last request has to wait for the disk if its tick does.
    pub fn must_wait(&self) -> bool {
        self.request.must_wait
    }

    /// Whether the last request cannot have changed its session.
    pub fn was_plain(&self) -> bool {
        self.request.plain
    }

    /// Whether the accesses of the last request are counted, although it is to be run again.
    pub fn accesses_noted(&self) -> bool {
        self.request.accesses_noted
    }
}
