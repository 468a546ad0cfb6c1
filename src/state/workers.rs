//! Slow-command workers: threads for slow scripts, KEYS on large DBs, requests and transactions of
//! thousands of words or a mebibyte, and reads of thousands of rows.
//!
//! A script starts on its client's IO thread, with a time slice. If that is exceeded, the
//! script is taken back, and the request moves with the client's session to a worker, which
//! runs it to its end; the IO thread serves its other clients meanwhile. Workers may hold keys
//! for long, so IO threads and other workers do not wait for these (see
//! [`crate::storage::engine::locks`]): commands that need them are tried again, and are refused
//! once the script counts as slow. Very many keys they hold one by one, so that commands on other
//! keys go on ([`crate::storage::engine::locks::sets`]). Workers give precedence to owners that were turned away (see
//! `storage::engine::fair_queue`).
//!
//! Workers may wait for the disk, too, and serve clients that wait for keys if that has to.
//!
//! Any number of clients can send requests that take minutes, such as insertions of a hundred
//! thousand items that each move thousands of others. Such a request ends early when its client is
//! gone or the server stops ([`Workers::verdict`]): it is taken back as a whole. So that requests of
//! a second do not wait behind them, one worker more than the configured number gives each request
//! only a [turn](TURN) of its time. What is not done by then is taken back and left to the other
//! workers, which run it to its end. A bound after which clients get an error would fail requests
//! that only have to wait their turn, and lasting ones are no rarity: a union of sets of ten million
//! members takes as long as it takes.

use super::Session;
use super::request::Request;
use crate::base::time::UnixMs;
use crate::resp::Reply;
use crate::state::{ClientId, Clients};
use crate::storage::engine::cold_reads::Attempts;
use crate::storage::engine::locks::Owner;
use crate::storage::{DbIndex, StorageError};
use crate::sys::clock;
use crate::sys::lock_order::{self, Lock, RwLock};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests that may wait for a worker.
const QUEUE: usize = 16 * 1024;
/// How soon requests that could not run are tried again, at the latest.
pub const PAUSE_CHECK: Duration = Duration::from_millis(10);

/// How long a request may run on the worker that gives turns. The time is lost for a request that
/// takes longer; most that an IO thread leaves to a worker take a few milliseconds.
const TURN: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 100 });

/// Keys whose waiting clients are to be served, and their DBs.
pub type ReadyKeys = Vec<(DbIndex, Box<[u8]>)>;

/// What a worker does next.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each worker, on its stack, and nearly always of the large variant"
)]
pub enum Next {
    /// To run this request.
    Job(Job),
    /// To serve the clients that wait for these keys.
    Serve(ReadyKeys),
}

/// A slow request.
#[derive(Debug)]
pub struct Job {
    /// The client's session, which is returned with the reply.
    pub session: Session,
    /// The request.
    pub request: Request,
    /// Whether MONITOR clients have seen it.
    pub shown: bool,
    /// Whether the access statistics already count it.
    pub noted: bool,
    /// Whether a worker has tried to run it.
    pub tried: bool,
    /// Whether it has waited for tables.
    pub waited: bool,
    /// Whether it has taken longer than a turn, so that only the other workers run it.
    pub is_long: bool,
    /// Bytes that are lent for its writes.
    pub lent: usize,
    /// Bytes of memory that its reply lacked; 0: none.
    pub wanted: u64,
    /// Since when it waits for that memory, Unix ms.
    pub wanted_since_ms: UnixMs,
    /// How it was tried without waiting for the disk; `None`: it is not tried so any more.
    pub attempts: Option<Attempts>,
    /// The state of the random numbers before the first attempt.
    pub seed: Option<u64>,
    /// The scripts that it has begun, in order; without those that are over.
    pub scripts: Vec<Option<Begun>>,
}

impl Job {
    /// A job that no worker has begun; see [`Job::noted`].
    pub fn new(session: Session, request: Request, noted: bool) -> Job {
        Job {
            session,
            request,
            shown: false,
            noted,
            tried: false,
            waited: false,
            is_long: false,
            lent: 0,
            wanted: 0,
            wanted_since_ms: UnixMs::NONE,
            attempts: Some(Attempts::default()),
            seed: None,
            scripts: Vec::new(),
        }
    }
}

/// The result of a [`Job`].
#[derive(Debug)]
pub struct Done {
    /// The session after the request.
    pub session: Session,
    /// The reply, which is durable.
    pub reply: Reply,
}

/// Figures of the workers.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// How many there are.
    pub workers: usize,
    /// How many of them run a request.
    pub busy: usize,
    /// How many of them run a script.
    pub scripts: usize,
    /// Requests that wait for one.
    pub queued: usize,
}

/// A script that a worker has begun. If it is taken back and begins again, it is still the same one: a
/// client may kill it meanwhile.
#[derive(Debug)]
pub struct Running {
    /// Its SHA-1, or the name of the function.
    pub name: Vec<u8>,
    /// The client's command.
    pub command: Vec<Vec<u8>>,
    /// Whether it is a function.
    pub is_function: bool,
    /// Set to stop it.
    pub kill: Arc<AtomicBool>,
    /// When the attempt that runs began, in µs of the monotonic clock; 0 between attempts.
    began_us: AtomicU64,
    /// One of the following. Of a kill and the first write, or the end, one comes first.
    state: AtomicU8,
}

/// It may be killed.
const KILLABLE: u8 = 0;
/// It has written in this attempt.
const WROTE: u8 = 1;
/// A client has killed it.
const KILLED: u8 = 2;
/// It has ended by itself.
const OVER: u8 = 3;

impl Running {
    /// A script that has not begun.
    pub fn new(name: Vec<u8>, command: &[&[u8]], is_function: bool) -> Running {
        Running {
            name,
            command: command.iter().map(|arg| arg.to_vec()).collect(),
            is_function,
            kill: Arc::default(),
            began_us: AtomicU64::new(0),
            state: AtomicU8::new(KILLABLE),
        }
    }

    fn change(&self, from: u8, to: u8) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let changed = self.state.compare_exchange(from, to, success, failure);
        changed.is_ok()
    }

    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    /// How long the attempt that runs has taken so far.
    pub fn elapsed(&self) -> Duration {
        match self.began_us.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began_us => Duration::from_micros(clock::mono_us().saturating_sub(began_us)),
        }
    }

    /// What it has written is taken back.
    pub fn forget_writes(&self) {
        self.change(WROTE, KILLABLE);
    }

    /// Called before it writes. `false`: it was killed before that.
    pub fn note_write(&self) -> bool {
        self.change(KILLABLE, WROTE) || self.is(WROTE)
    }

    /// Whether it has written in this attempt.
    pub fn has_written(&self) -> bool {
        self.is(WROTE)
    }

    /// Called when it ends by itself. `false`: it was killed before that.
    pub fn end(&self) -> bool {
        self.change(KILLABLE, OVER) || self.change(WROTE, OVER)
    }

    /// Kills it, unless it has written or is over.
    fn try_kill(&self) -> bool {
        let killed = self.change(KILLABLE, KILLED) || self.is(KILLED);
        if killed {
            self.kill.store(true, Ordering::Release);
        }
        killed
    }
}

/// Keeps a script among those that can be killed, also between attempts, until this is dropped.
#[derive(Debug)]
pub struct Begun {
    /// The script.
    pub running: Arc<Running>,
    /// All of them.
    all: Arc<Mutex<Vec<Arc<Running>>>>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        (self.all.lock()).retain(|running| !Arc::ptr_eq(running, &self.running));
    }
}

/// Why a script is not killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKilled {
    /// No script runs.
    NotBusy,
    /// It has written.
    Unkillable,
    /// A function runs instead of a script, or the reverse.
    OtherSort,
}

#[derive(Debug, Default)]
struct Current {
    /// Whether a request runs, so that the worker may hold keys.
    at_work: bool,
    /// The client whose request runs, and since when.
    client: Option<(ClientId, Instant)>,
    script: Option<Arc<Running>>,
    /// Keys that other threads have made ready, whose waiting clients also need a key that this
    /// worker holds.
    postponed: ReadyKeys,
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    owner: Owner,
    /// Whether requests run here only for a turn.
    gives_turns: bool,
    now: lock_order::Mutex<Current, { Lock::WorkerNow as u8 }>,
}

impl Worker {
    /// Marks the worker as running a request of this client, or as serving clients.
    pub fn begin(&self, client: Option<ClientId>) {
        let mut now = self.now.lock();
        now.at_work = true;
        now.client = client.map(|client| (client, Instant::now()));
    }

    /// Called when the request is over, before its changes are committed: it cannot end early any
    /// more.
    pub fn request_done(&self) {
        self.now.lock().client = None;
    }

    /// Called when the request is over and its keys are released. Returns keys whose waiting
    /// clients have to be served before this is called again. The worker is done when there are
    /// none.
    pub fn end(&self) -> ReadyKeys {
        let mut now = self.now.lock();
        now.at_work = !now.postponed.is_empty();
        std::mem::take(&mut now.postponed)
    }
}

/// Has room for all requests from the start, so they stand elsewhere; `None` stops a worker.
type Queue = (Sender<Option<Box<Job>>>, Receiver<Option<Box<Job>>>);

/// The slow-command workers, and the requests that wait for one.
pub struct Workers {
    all: RwLock<Vec<Arc<Worker>>, { Lock::Workers as u8 }>,
    /// Number of workers that run a script; read often.
    running: AtomicUsize,
    /// The scripts that have begun and are not over, in order.
    begun: Arc<Mutex<Vec<Arc<Running>>>>,
    jobs: Queue,
    /// Those that have had their turn.
    long_jobs: Queue,
    /// Keys whose waiting clients any worker is to serve: at most those that clients wait for.
    ready: Mutex<BTreeSet<(DbIndex, Box<[u8]>)>>,
    /// Has a message if there are some.
    ready_news: (Sender<()>, Receiver<()>),
    /// Number of queued jobs that were tried and could not run.
    tried: AtomicUsize,
    /// Results that the clients' threads have not taken yet; at most one per client.
    done: lock_order::Mutex<Vec<Done>, { Lock::WorkersDone as u8 }>,
    done_count: AtomicUsize,
    /// Wakes workers whose job could not get its keys.
    ended: (Mutex<()>, Condvar),
    stopping: AtomicBool,
}

impl Default for Workers {
    fn default() -> Self {
        Workers {
            all: RwLock::default(),
            running: AtomicUsize::new(0),
            begun: Arc::default(),
            jobs: bounded(QUEUE),
            long_jobs: bounded(QUEUE),
            ready: Mutex::default(),
            ready_news: bounded(1),
            tried: AtomicUsize::new(0),
            done: lock_order::Mutex::default(),
            done_count: AtomicUsize::new(0),
            ended: Default::default(),
            stopping: AtomicBool::new(false),
        }
    }
}

impl Workers {
    /// Adds a worker; `owner` is that of its transactions.
    pub fn add(&self, owner: Owner, gives_turns: bool) -> Arc<Worker> {
        let worker = Arc::new(Worker {
            owner,
            gives_turns,
            now: lock_order::Mutex::default(),
        });
        self.all.write().push(worker.clone());
        worker
    }

    /// Queues a request for the next free worker.
    ///
    /// # Errors
    /// The queue is full; returns the job.
    pub fn submit(&self, job: Job) -> Result<(), Box<Job>> {
        let tried = job.tried;
        let queue = match job.is_long {
            true => &self.long_jobs.0,
            false => &self.jobs.0,
        };
        let sent = queue.try_send(Some(Box::new(job)));
        if !tried {
            // For workers that sleep because all queued jobs have been tried.
            self.ended.1.notify_one();
        }
        match sent {
            Ok(()) | Err(TrySendError::Full(None) | TrySendError::Disconnected(None)) => Ok(()),
            Err(TrySendError::Full(Some(job)) | TrySendError::Disconnected(Some(job))) => Err(job),
        }
    }

    /// What a worker does next; waits for something. `None`: the server stops.
    pub fn next(&self, worker: &Worker) -> Option<Next> {
        let none = never();
        let long_jobs = match worker.gives_turns {
            true => &none,
            false => &self.long_jobs.1,
        };
        let serve = || {
            let keys = std::mem::take(&mut *self.ready.lock());
            Some(Next::Serve(keys.into_iter().collect()))
        };
        if self.ready_news.1.try_recv().is_ok() {
            return serve();
        }
        let job = select! {
            recv(self.ready_news.1) -> _ => return serve(),
            recv(self.jobs.1) -> job => job.ok().flatten(),
            recv(long_jobs) -> job => job.ok().flatten(),
        };
        let job = job.filter(|_| !self.are_stopping());
        if job.is_none() {
            self.wake_for_stop();
        }
        self.taken(job.as_deref());
        job.map(|job| Next::Job(*job))
    }

    /// Leaves the clients that wait for a key to the next free worker.
    pub fn serve(&self, db: DbIndex, key: Box<[u8]>) {
        self.ready.lock().insert((db, key));
        // An error: there is a message already.
        let _ = self.ready_news.0.try_send(());
    }

    fn taken(&self, job: Option<&Job>) {
        if job.is_some_and(|job| job.tried) {
            self.tried.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Queues a request that has had its turn for the other workers.
    pub fn pass_on(&self, mut job: Job) {
        job.tried = false;
        self.submit_in_the_end(job);
    }

    /// Queues a request; waits while the queue is full. `false`: the server stops.
    fn submit_in_the_end(&self, mut job: Job) -> bool {
        while let Err(back) = self.submit(job) {
            if self.wait_for_end(PAUSE_CHECK) {
                return false;
            }
            job = *back;
        }
        true
    }

    /// Requeues a request that could not run now, because clients are paused or its keys are
    /// held. If all queued requests have been tried, returns their number.
    pub fn try_later(&self, mut job: Job) -> Option<usize> {
        job.tried = true;
        self.tried.fetch_add(1, Ordering::Relaxed);
        if !self.submit_in_the_end(job) {
            return None;
        }
        let tried = self.tried.load(Ordering::Relaxed);
        let queued = self.jobs.1.len() + self.long_jobs.1.len();
        (queued <= tried).then_some(tried)
    }

    /// Wakes one worker, which wakes the next: this also reaches workers that start later. A
    /// full queue has the same effect.
    fn wake_for_stop(&self) {
        let _ = self.jobs.0.try_send(None);
    }

    /// How many workers and requests there are.
    pub fn figures(&self) -> Figures {
        let all = self.all.read().clone();
        Figures {
            workers: all.len(),
            busy: all
                .iter()
                .filter(|worker| worker.now.lock().at_work)
                .count(),
            scripts: self.running.load(Ordering::Acquire),
            queued: self.jobs.1.len() + self.long_jobs.1.len(),
        }
    }

    /// Takes a queued request.
    pub fn take_waiting(&self) -> Option<Job> {
        if self.stopping.load(Ordering::Acquire) {
            return None;
        }
        let taken = (self.jobs.1.try_recv()).or_else(|_| self.long_jobs.1.try_recv());
        let taken = taken.ok()?;
        if taken.is_none() {
            // The server stops, and this message was for a worker.
            self.wake_for_stop();
        }
        self.taken(taken.as_deref());
        taken.map(|job| *job)
    }

    /// Called when a request is over and its keys are released.
    pub fn ended(&self) {
        self.ended.1.notify_all();
    }

    /// Waits until a request is over or is queued, at most `at_most`. Returns whether the
    /// server stops.
    pub fn wait_for_end(&self, at_most: Duration) -> bool {
        let mut guard = self.ended.0.lock();
        self.ended.1.wait_for(&mut guard, at_most);
        self.stopping.load(Ordering::Acquire)
    }

    /// Stores a result; the client's thread has to be woken. It cannot take the reply before
    /// `send` has returned, so messages sent by `send` precede the reply.
    pub fn finish(&self, done: Done, send: &mut dyn FnMut()) {
        let mut all = self.done.lock();
        all.push(done);
        self.done_count.store(all.len(), Ordering::Release);
        send();
    }

    /// Takes the results for clients of an IO thread.
    pub fn take_done(&self, thread: usize) -> Vec<Done> {
        if self.done_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut all = self.done.lock();
        let of_thread = |done: &mut Done| done.session.info.thread == thread;
        let taken = all.extract_if(.., of_thread).collect();
        self.done_count.store(all.len(), Ordering::Release);
        taken
    }

    /// Registers a script before its first attempt.
    pub fn begin(&self, running: Running) -> Begun {
        let running = Arc::new(running);
        self.begun.lock().push(running.clone());
        // Must come after the registration: a stop sets its flag and then looks for scripts.
        if self.stopping.load(Ordering::Acquire) {
            running.kill.store(true, Ordering::Release);
        }
        let all = self.begun.clone();
        Begun { running, all }
    }

    /// An attempt to run a script begins on a worker.
    pub fn start(&self, worker: &Worker, running: Arc<Running>) {
        running.began_us.store(clock::mono_us(), Ordering::Relaxed);
        worker.now.lock().script = Some(running);
        self.running.fetch_add(1, Ordering::Release);
    }

    /// The attempt has ended.
    pub fn stop(&self, worker: &Worker) {
        if let Some(running) = worker.now.lock().script.take() {
            running.began_us.store(0, Ordering::Relaxed);
            running.forget_writes();
        }
        self.running.fetch_sub(1, Ordering::Release);
    }

    /// Whether any script runs on a worker.
    pub fn any_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Whether there is no worker without a script, among those that run scripts.
    pub fn are_all_running(&self) -> bool {
        let running = self.running.load(Ordering::Acquire);
        running > 0 && running >= self.for_scripts()
    }

    fn for_scripts(&self) -> usize {
        let all = self.all.read();
        all.iter().filter(|worker| !worker.gives_turns).count()
    }

    /// The running scripts, longest-running first.
    fn running(&self) -> Vec<Arc<Running>> {
        if !self.any_running() {
            return Vec::new();
        }
        let all = self.all.read();
        let scripts = all
            .iter()
            .filter_map(|worker| worker.now.lock().script.clone());
        let mut scripts: Vec<_> = scripts.collect();
        scripts.sort_by_key(|running| running.began_us.load(Ordering::Relaxed));
        scripts
    }

    /// The longest-running script.
    pub fn longest(&self) -> Option<Arc<Running>> {
        self.running().into_iter().next()
    }

    /// Whether all workers run scripts that exceed `threshold`.
    pub fn are_all_slow(&self, threshold: Duration) -> bool {
        let running = self.running();
        let is_slow = |running: &Arc<Running>| running.elapsed() >= threshold;
        let workers = self.for_scripts();
        workers > 0 && running.len() >= workers && running.iter().all(is_slow)
    }

    /// The script that the owner of a lock runs, if any.
    pub fn script_of(&self, owner: Owner) -> Option<Arc<Running>> {
        let all = self.all.read();
        let worker = all.iter().find(|worker| worker.owner == owner)?;
        worker.now.lock().script.clone()
    }

    /// Leaves the clients that wait for `key` to the worker with this owner, which serves them
    /// when its request is over. `false`: it is over already; `None`: the owner is no worker.
    pub fn postpone(&self, owner: Owner, db: DbIndex, key: &[u8]) -> Option<bool> {
        let all = self.all.read();
        let worker = all.iter().find(|worker| worker.owner == owner)?;
        let mut now = worker.now.lock();
        if now.at_work {
            now.postponed.push((db, key.into()));
        }
        Some(now.at_work)
    }

    /// SCRIPT KILL, FUNCTION KILL: stops the script that began first, of those that can be stopped and
    /// that no other kill stops already. One that waits for its next attempt is stopped if none runs.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn kill(&self, function: bool) -> Result<(), NotKilled> {
        let begun = self.begun.lock();
        let alive: Vec<_> = begun.iter().filter(|running| !running.is(OVER)).collect();
        if alive.is_empty() {
            return Err(NotKilled::NotBusy);
        }
        let of_sort = alive.iter().filter(|r| r.is_function == function);
        let mut of_sort: Vec<_> = of_sort.collect();
        of_sort.sort_by_key(|r| (r.is(KILLED), r.began_us.load(Ordering::Relaxed) == 0));
        match of_sort.iter().any(|running| running.try_kill()) {
            true => Ok(()),
            false if of_sort.iter().any(|running| running.is(WROTE)) => Err(NotKilled::Unkillable),
            // They have ended meanwhile.
            false if of_sort.len() == alive.len() => Err(NotKilled::NotBusy),
            false => Err(NotKilled::OtherSort),
        }
    }

    /// Whether the request that runs on a worker goes on. Called by its commands, every few
    /// milliseconds.
    ///
    /// # Errors
    /// [`StorageError::Ended`]: the server stops, the client is gone, or the script that the command
    /// is part of was killed. [`StorageError::ReadBudgetSpent`]: its turn is over.
    pub fn verdict(&self, worker: &Worker, clients: &Clients) -> Result<(), StorageError> {
        let (client, killed) = {
            let now = worker.now.lock();
            let script = now.script.as_ref();
            let killed = script.is_some_and(|script| script.kill.load(Ordering::Acquire));
            (now.client, killed)
        };
        let is_gone = |client| clients.get(client).is_none();
        if self.are_stopping() || killed || client.is_some_and(|(client, _)| is_gone(client)) {
            return Err(StorageError::Ended);
        }
        match client {
            Some((_, since)) if worker.gives_turns && since.elapsed() >= TURN => {
                Err(StorageError::ReadBudgetSpent)
            }
            _ => Ok(()),
        }
    }

    /// Whether the server stops.
    pub fn are_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Called when the server stops: running scripts are stopped and taken back, queued
    /// requests are not begun.
    pub fn stop_all(&self) {
        self.stopping.store(true, Ordering::Release);
        for running in &*self.begun.lock() {
            running.kill.store(true, Ordering::Release);
        }
        self.wake_for_stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::clients::ClientFlags;
    use crate::state::{ClientId, ClientInfo};
    use std::sync::mpsc::channel;

    #[test]
    fn a_job_that_cannot_run_lets_others_go_first() {
        let job = |name: &[u8]| {
            let addr = || "127.0.0.1:1".into();
            let flags = ClientFlags::empty();
            let info = ClientInfo::new(ClientId(1), addr(), addr(), -1, 0, UnixMs::NONE, flags);
            let session = Session::of_server(Arc::new(info));
            Job::new(session, Request::new(&[name]), false)
        };
        let workers = Workers::default();
        let worker = workers.add(Owner(1), false);
        let next = || match workers.next(&worker) {
            Some(Next::Job(job)) => {
                let name = job.request.args()[0].to_vec();
                (job, name)
            }
            other => panic!("{other:?}"),
        };
        workers.submit(job(b"first")).unwrap();
        assert_eq!(workers.try_later(next().0), Some(1));
        workers.submit(job(b"second")).unwrap();
        let (first, name) = next();
        assert_eq!(name, b"first");
        assert_eq!(
            workers.try_later(first),
            None,
            "there is one that was not tried"
        );
        let (second, name) = next();
        assert_eq!(name, b"second");
        assert_eq!(workers.try_later(second), Some(2));
        assert_eq!(
            [next().1, next().1],
            [b"first".to_vec(), b"second".to_vec()]
        );
        workers.submit(job(b"third")).unwrap();
        assert_eq!(workers.try_later(next().0), Some(1));
    }

    /// A kill was acknowledged and the script ended all the same, if it had no line left to run.
    #[test]
    fn of_a_kill_and_an_end_one_comes_first() {
        let running = |n: u8| Running::new(vec![n], &[], false);
        let workers = Workers::default();
        let worker = workers.add(Owner(1), false);
        let (first, second) = (workers.begin(running(1)), workers.begin(running(2)));
        assert!(first.running.end());
        assert_eq!(workers.kill(false), Ok(()));
        assert!(!second.running.end() && !second.running.note_write());
        drop((first, second));
        assert_eq!(workers.kill(false), Err(NotKilled::NotBusy));
        // The one that runs comes before one that waits, and a kill that is not over yet is enough.
        let (waits, runs) = (workers.begin(running(1)), workers.begin(running(2)));
        workers.start(&worker, runs.running.clone());
        assert_eq!(workers.kill(false), Ok(()));
        assert!(runs.running.is(KILLED) && !waits.running.is(KILLED));
        assert_eq!(workers.kill(false), Ok(()));
        assert!(waits.running.is(KILLED));
        assert_eq!(workers.kill(true), Err(NotKilled::OtherSort));
        workers.stop(&worker);
        drop((waits, runs));
        // What is taken back was not written.
        let writes = workers.begin(running(1));
        workers.start(&worker, writes.running.clone());
        assert!(writes.running.note_write() && writes.running.note_write());
        assert_eq!(workers.kill(false), Err(NotKilled::Unkillable));
        workers.stop(&worker);
        assert_eq!(writes.running.elapsed(), Duration::ZERO);
        assert_eq!(workers.kill(false), Ok(()));
    }

    /// A worker that was added after the stop used to wait for ever, and the server with it.
    #[test]
    fn all_workers_end_at_the_stop_also_those_that_start_later() {
        let workers = Arc::new(Workers::default());
        workers.stop_all();
        let (ended, end) = channel();
        for n in 1..=3 {
            let (workers, ended) = (workers.clone(), ended.clone());
            let worker = workers.add(Owner(n), n == 2);
            std::thread::spawn(move || ended.send(workers.next(&worker).is_none()));
            let stopped = end.recv_timeout(Duration::from_secs(20));
            assert_eq!(stopped, Ok(true), "worker {n}");
        }
    }
}
