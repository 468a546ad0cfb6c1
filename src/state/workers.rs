//! Slow-command workers: threads for slow scripts, KEYS on large DBs, requests of thousands of
//! words, and reads of thousands of rows.
//!
//! A script starts on its client's IO thread, with a time slice. If that is exceeded, the
//! script is taken back, and the request moves with the client's session to a worker, which
//! runs it to its end; the IO thread serves its other clients meanwhile. Workers may hold keys
//! for long, so IO threads and other workers do not wait for these (see
//! [`crate::storage::engine::locks`]): commands that need them are tried again, and are refused
//! once the script counts as slow. Workers give precedence to owners that were turned away (see
//! `storage::engine::fair_queue`).

use super::Session;
use super::request::Request;
use crate::base::time::UnixMs;
use crate::resp::Reply;
use crate::storage::DbIndex;
use crate::storage::engine::locks::Owner;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests that may wait for a worker.
const QUEUE: usize = 16 * 1024;
/// How soon requests that could not run are tried again, at the latest.
pub const PAUSE_CHECK: Duration = Duration::from_millis(10);

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
    /// Bytes that are lent for its writes.
    pub lent: usize,
    /// Bytes of memory that its reply lacked; 0: none.
    pub wanted: u64,
    /// Since when it waits for that memory, Unix ms.
    pub wanted_since_ms: UnixMs,
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
            lent: 0,
            wanted: 0,
            wanted_since_ms: UnixMs::NONE,
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

/// A script that runs on a worker.
#[derive(Debug)]
pub struct Running {
    /// Its SHA-1, or the name of the function.
    pub name: Vec<u8>,
    /// The client's command.
    pub command: Vec<Vec<u8>>,
    /// Whether it is a function.
    pub is_function: bool,
    /// When it started.
    pub started: Instant,
    /// Set to stop it.
    pub kill: Arc<AtomicBool>,
    /// Whether it has written.
    pub wrote: AtomicBool,
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
    script: Option<Arc<Running>>,
    /// Keys that other threads have made ready, whose waiting clients also need a key that this
    /// worker holds.
    postponed: Vec<(DbIndex, Box<[u8]>)>,
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    owner: Owner,
    now: Mutex<Current>,
}

impl Worker {
    /// Marks the worker as running a request.
    pub fn begin(&self) {
        self.now.lock().at_work = true;
    }

    /// Called when the request is over and its keys are released. Returns keys whose waiting
    /// clients have to be served before this is called again. The worker is done when there are
    /// none.
    pub fn end(&self) -> Vec<(DbIndex, Box<[u8]>)> {
        let mut now = self.now.lock();
        now.at_work = !now.postponed.is_empty();
        std::mem::take(&mut now.postponed)
    }
}

/// The slow-command workers, and the requests that wait for one.
pub struct Workers {
    all: RwLock<Vec<Arc<Worker>>>,
    /// Number of workers that run a script; read often.
    running: AtomicUsize,
    jobs: (Sender<Option<Job>>, Receiver<Option<Job>>),
    /// Number of queued jobs that were tried and could not run.
    tried: AtomicUsize,
    /// Results that the clients' threads have not taken yet; at most one per client.
    done: Mutex<Vec<Done>>,
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
            jobs: bounded(QUEUE),
            tried: AtomicUsize::new(0),
            done: Mutex::default(),
            done_count: AtomicUsize::new(0),
            ended: Default::default(),
            stopping: AtomicBool::new(false),
        }
    }
}

impl Workers {
    /// Adds a worker; `owner` is that of its transactions.
    pub fn add(&self, owner: Owner) -> Arc<Worker> {
        let worker = Arc::new(Worker {
            owner,
            now: Mutex::default(),
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
        let sent = self.jobs.0.try_send(Some(job));
        if !tried {
            // For workers that sleep because all queued jobs have been tried.
            self.ended.1.notify_one();
        }
        match sent {
            Ok(()) | Err(TrySendError::Full(None) | TrySendError::Disconnected(None)) => Ok(()),
            Err(TrySendError::Full(Some(job)) | TrySendError::Disconnected(Some(job))) => {
                Err(Box::new(job))
            }
        }
    }

    /// The next request, for a worker; waits for one. `None`: the server stops.
    pub fn next(&self) -> Option<Job> {
        let job = self.jobs.1.recv().ok().flatten();
        let job = job.filter(|_| !self.are_stopping());
        if job.is_none() {
            self.wake_for_stop();
        }
        self.taken(job.as_ref());
        job
    }

    fn taken(&self, job: Option<&Job>) {
        if job.is_some_and(|job| job.tried) {
            self.tried.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Requeues a request that could not run now, because clients are paused or its keys are
    /// held. If all queued requests have been tried, returns their number.
    pub fn try_later(&self, mut job: Job) -> Option<usize> {
        job.tried = true;
        self.tried.fetch_add(1, Ordering::Relaxed);
        while let Err(back) = self.submit(job) {
            if self.wait_for_end(PAUSE_CHECK) {
                return None;
            }
            job = *back;
        }
        let tried = self.tried.load(Ordering::Relaxed);
        (self.jobs.1.len() <= tried).then_some(tried)
    }

    /// Wakes one worker, which wakes the next: this also reaches workers that start later. A
    /// full queue has the same effect.
    fn wake_for_stop(&self) {
        let _ = self.jobs.0.try_send(None);
    }

    /// Takes a queued request.
    pub fn take_waiting(&self) -> Option<Job> {
        if self.stopping.load(Ordering::Acquire) {
            return None;
        }
        let taken = self.jobs.1.try_recv().ok()?;
        if taken.is_none() {
            // The server stops, and this message was for a worker.
            self.wake_for_stop();
        }
        self.taken(taken.as_ref());
        taken
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

    /// Registers a running script.
    pub fn start(&self, worker: &Worker, running: Arc<Running>) {
        worker.now.lock().script = Some(running.clone());
        self.running.fetch_add(1, Ordering::Release);
        // Must come after the registration: a stop sets its flag and then looks for scripts.
        if self.stopping.load(Ordering::Acquire) {
            running.kill.store(true, Ordering::Release);
        }
    }

    /// Ends the registration of a script.
    pub fn stop(&self, worker: &Worker) {
        worker.now.lock().script = None;
        self.running.fetch_sub(1, Ordering::Release);
    }

    /// Whether any script runs on a worker.
    pub fn any_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
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
        scripts.sort_by_key(|running| running.started);
        scripts
    }

    /// The longest-running script.
    pub fn longest(&self) -> Option<Arc<Running>> {
        self.running().into_iter().next()
    }

    /// Whether all workers run scripts that exceed `threshold`.
    pub fn are_all_slow(&self, threshold: Duration) -> bool {
        let running = self.running();
        let is_slow = |running: &Arc<Running>| running.started.elapsed() >= threshold;
        let workers = self.all.read().len();
        workers > 0 && running.len() >= workers && running.iter().all(is_slow)
    }

    /// The script that the owner of a lock runs, if any.
    pub fn script_of(&self, owner: Owner) -> Option<Arc<Running>> {
        let all = self.all.read();
        let worker = all.iter().find(|worker| worker.owner == owner)?;
        worker.now.lock().script.clone()
    }

    /// Leaves the clients that wait for `key` to the worker with this owner, which serves them
    /// when its request is over. `false`: it is over already.
    pub fn postpone(&self, owner: Owner, db: DbIndex, key: &[u8]) -> bool {
        let all = self.all.read();
        let Some(worker) = all.iter().find(|worker| worker.owner == owner) else {
            return false;
        };
        let mut now = worker.now.lock();
        if now.at_work {
            now.postponed.push((db, key.into()));
        }
        now.at_work
    }

    /// SCRIPT KILL, FUNCTION KILL: stops the longest-running script that can be stopped.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn kill(&self, function: bool) -> Result<(), NotKilled> {
        let running = self.running();
        if running.is_empty() {
            return Err(NotKilled::NotBusy);
        }
        let mut of_sort = running.iter().filter(|r| r.is_function == function);
        let wrote = |r: &&Arc<Running>| r.wrote.load(Ordering::Acquire);
        let ends = |r: &&Arc<Running>| r.kill.load(Ordering::Acquire);
        let candidates = of_sort.clone().filter(|running| !wrote(running));
        match candidates.min_by_key(ends) {
            Some(running) => running.kill.store(true, Ordering::Release),
            None if of_sort.next().is_some() => return Err(NotKilled::Unkillable),
            None => return Err(NotKilled::OtherSort),
        }
        Ok(())
    }

    /// Whether the server stops.
    pub fn are_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Called when the server stops: running scripts are stopped and taken back, queued
    /// requests are not begun.
    pub fn stop_all(&self) {
        self.stopping.store(true, Ordering::Release);
        for worker in &*self.all.read() {
            if let Some(running) = &worker.now.lock().script {
                running.kill.store(true, Ordering::Release);
            }
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
            let session = Session::new(Arc::new(info), true);
            Job::new(session, Request::new(&[name]), false)
        };
        let workers = Workers::default();
        let next = || {
            let job = workers.next().unwrap();
            let name = job.request.args()[0].to_vec();
            (job, name)
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

    /// A worker that was added after the stop used to wait for ever, and the server with it.
    #[test]
    fn all_workers_end_at_the_stop_also_those_that_start_later() {
        let workers = Arc::new(Workers::default());
        workers.stop_all();
        let (ended, end) = channel();
        for n in 1..=3 {
            let (workers, ended) = (workers.clone(), ended.clone());
            std::thread::spawn(move || ended.send(workers.next().is_none()));
            let stopped = end.recv_timeout(Duration::from_secs(20));
            assert_eq!(stopped, Ok(true), "worker {n}");
        }
    }
}
