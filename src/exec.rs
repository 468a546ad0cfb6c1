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
//! | `dispatch` | the stages of a request, the tick |
//! | [`unit`] | several commands as one: EXEC, scripts |
//! | `transactions` | MULTI, EXEC, WATCH |
//! | `blocking` | clients that wait, and how they are served |
//! | `scripts` | EVAL, FCALL and their sisters |
//! | `worker` | requests that take long, on threads of their own |
//! | `populate` | DEBUG POPULATE |
//! | `record` | what is counted and shown of commands, once each |
//! | `monitor` | what MONITOR clients see |

mod apply;
mod blocking;
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
pub use dispatch::{Ended, Parked};
pub use outcome::{Outcome, Stop};
pub use unit::Scope;

use crate::base::time::UnixMs;
use crate::commands::table::names::Names;
use crate::state::Server;
use crate::state::config::Config;
use crate::state::pubsub::Outbox;
use crate::state::workers::Worker;
use crate::storage::{DbIndex, Expected, Txn};
use blocking::WaitingRoom;
use record::Record;
use scripts::ThreadScripts;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use unit::Unit;

/// The [`crate::storage::View::key_hash`]es of a command's keys.
type KeyHashes = SmallVec<[u64; 8]>;

/// Runs the commands of one thread. What it holds is grouped by how long that lasts.
pub struct Executor {
    server: Arc<Server>,
    txn: Txn,
    /// The unit that runs, if one does.
    unit: Option<Unit>,
    waiting: WaitingRoom,
    thread: Thread,
    tick: Tick,
    request: Request,
}

/// What an executor is for as long as its thread runs.
struct Thread {
    config: Arc<Config>,
    config_version: u64,
    /// What clients call commands.
    names: Names,
    /// The clock of the test harness; otherwise real time counts.
    fixed_now_ms: Option<UnixMs>,
    /// Whether scripts run here for a slice of time only.
    slices: bool,
    /// Where scripts run for as long as they need, if that is here.
    worker: Option<Arc<Worker>>,
    /// Once set, scripts that run here end, but for those of a worker.
    ended: Arc<AtomicBool>,
    /// The interpreter, made when the first script comes.
    scripts: Option<Box<ThreadScripts>>,
    /// See [`Executor::owes_sync`].
    owes_sync: bool,
}

/// What is collected between two commits; [`Executor::start_tick`] begins it anew, but
/// for what stays until it is taken: `failed`, `touched_keys`, `outbox` and `record`.
#[derive(Default)]
struct Tick {
    /// The time that its commands go by, Unix ms.
    now_ms: UnixMs,
    /// When it began, on the monotonic clock, in µs.
    started_us: u64,
    /// When the command before ended.
    last_us: u64,
    /// How many commands it has run.
    commands: u32,
    /// How many requests of it need not wait for the disk.
    free: u32,
    /// A commit in the middle of it has failed.
    failed: bool,
    /// Whether it ran commands that read or wrote keys.
    touched_keys: bool,
    /// What its commands send to clients.
    outbox: Outbox,
    /// What is to be counted and shown of commands.
    record: Record,
    /// Whether some thread has more to send to its clients than it keeps up with.
    swamped: bool,
    /// Whether it should end: its client hears of what it did itself, and that belongs
    /// between the replies.
    heard: bool,
}

/// What is known of the request that runs, or was run last; [`Executor::run`] begins it
/// anew, but for what a worker remembers of a request that it runs again.
struct Request {
    /// Whether it saw or wrote what may not be on the disk.
    must_wait: bool,
    /// Whether it cannot have changed its session.
    plain: bool,
    /// Whether MONITOR clients have seen it already.
    shown: bool,
    /// Whether its keys count as accessed already.
    accesses_noted: bool,
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
            thread: Thread {
                names: Names::of(&config),
                config,
                config_version: version,
                fixed_now_ms: None,
                slices: false,
                worker: None,
                ended: Arc::default(),
                scripts: None,
                owes_sync: false,
            },
            tick: Tick::default(),
            request: Request {
                must_wait: true,
                plain: true,
                shown: false,
                accesses_noted: false,
            },
            server,
        };
        executor.want_events();
        executor.txn.keep_changes();
        executor
    }

    /// An executor for the IO thread of this number.
    pub fn of_thread(server: Arc<Server>, thread: usize) -> Executor {
        let mut executor = Executor::new(server);
        executor.tick.outbox = Outbox::of_thread(thread);
        executor.thread.slices = true;
        executor.txn.borrow_from(executor.server.clone());
        executor.txn.be_impatient();
        executor
    }

    /// An executor for requests that take long.
    pub fn on_worker(server: Arc<Server>) -> Executor {
        let mut executor = Executor::new(server);
        let owner = executor.txn.for_long();
        executor.txn.borrow_from(executor.server.clone());
        // A client that waits for a slow script is told so.
        executor.txn.be_impatient();
        executor.thread.worker = Some(executor.server.workers.add(owner));
        executor
    }

    /// Has scripts that run here end, and what they are a part of fail, once this is set.
    pub fn end_with(&mut self, ended: Arc<AtomicBool>) {
        self.thread.ended = ended;
    }

    /// What all threads share.
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

    /// Sets the time for good (tests).
    pub fn fix_clock(&mut self, now_ms: UnixMs) {
        self.thread.fixed_now_ms = Some(now_ms);
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

    /// The second step of [`Executor::prefetch`], for what the first returned.
    pub fn prefetch_row(&self, expected: Expected) {
        self.txn.prefetch_row(expected);
    }

    /// A request is run next for whose writes so many bytes were lent; see
    /// [`Txn::begin_request`].
    pub fn begin_request(&mut self, lent: usize) {
        self.txn.begin_request(lent);
    }

    /// Whether the reply to the request that was run last has to wait for the disk
    /// if its tick does.
    pub fn must_wait(&self) -> bool {
        self.request.must_wait
    }

    /// Whether the request that was run last cannot have changed its session.
    pub fn was_plain(&self) -> bool {
        self.request.plain
    }

    /// Whether its keys have counted as accessed, though it is to be run again.
    pub fn accesses_noted(&self) -> bool {
        self.request.accesses_noted
    }
}
