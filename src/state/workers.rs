//! Workers: the threads on which scripts run that take long, KEYS where there are many,
//! requests of thousands of words, and what reads thousands of rows.
//!
//! A script starts on the IO thread that has its client, for a slice of time. If
//! that is not enough, what it did is taken back, and the client's request goes
//! with the client's session to a worker, which runs it to its end; the IO thread
//! serves its other clients meanwhile. Workers may hold keys for long, so IO
//! threads and other workers do not wait for these (see [`crate::storage::engine::locks`]):
//! commands that need them are tried again, and are refused once the script is a
//! slow one. Workers let owners go first that were turned away (see
//! `storage::engine::fair_queue`).

use super::Session;
use super::request::Request;
use crate::resp::Reply;
use crate::storage::DbIndex;
use crate::storage::engine::locks::Owner;
use crate::sys::lock_order::{self, Lock, RwLock};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests that may wait for a worker.
const QUEUE: usize = 16 * 1024;
/// How soon requests are tried again that could not be run, at the latest.
pub const PAUSE_CHECK: Duration = Duration::from_millis(10);

/// A request that takes long.
#[derive(Debug)]
pub struct Job {
    /// The client's session, which comes back with the reply.
    pub session: Session,
    /// What the client asked for.
    pub request: Request,
    /// Whether MONITOR clients have seen it.
    pub shown: bool,
    /// Whether its keys count as accessed already.
    pub noted: bool,
    /// Whether a worker has tried to run it.
    pub tried: bool,
    /// Bytes that are lent for what it writes.
    pub lent: usize,
    /// Memory that there was not for its reply, in bytes.
    pub wanted: u64,
    /// Since when it waits for that, Unix ms.
    pub wanted_since_ms: u64,
}

impl Job {
    /// One that no worker has begun; `noted`: see there.
    pub fn new(session: Session, request: Request, noted: bool) -> Job {
        Job {
            session,
            request,
            shown: false,
            noted,
            tried: false,
            lent: 0,
            wanted: 0,
            wanted_since_ms: 0,
        }
    }
}

/// What came of a [`Job`].
#[derive(Debug)]
pub struct Done {
    /// The session as the request left it.
    pub session: Session,
    /// The reply, which may go out.
    pub reply: Reply,
}

/// A script that runs on a worker.
#[derive(Debug)]
pub struct Running {
    /// Its SHA-1 or the function's name.
    pub name: Vec<u8>,
    /// The client's command.
    pub command: Vec<Vec<u8>>,
    /// Whether it is a function.
    pub is_function: bool,
    /// When it started.
    pub started: Instant,
    /// Set when it shall end.
    pub kill: Arc<AtomicBool>,
    /// Whether it has written.
    pub wrote: AtomicBool,
}

/// Why a script is not killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKilled {
    /// None runs.
    NotBusy,
    /// It has written already.
    Unkillable,
    /// It is of the other sort.
    OtherSort,
}

#[derive(Debug, Default)]
struct Now {
    /// Whether a request is run: the worker may hold keys.
    at_work: bool,
    script: Option<Arc<Running>>,
    /// Keys that others made ready for clients that wait, who also need a key
    /// that this worker holds.
    postponed: Vec<(DbIndex, Box<[u8]>)>,
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    owner: Owner,
    now: lock_order::Mutex<Now, { Lock::WorkerNow as u8 }>,
}

impl Worker {
    /// A request is about to be run.
    pub fn begin(&self) {
        self.now.lock().at_work = true;
    }

    /// The request is over and holds no keys any more; returns the keys whose
    /// waiting clients have to be served before this is called again. The worker is
    /// done when there are none.
    pub fn end(&self) -> Vec<(DbIndex, Box<[u8]>)> {
        let mut now = self.now.lock();
        now.at_work = !now.postponed.is_empty();
        std::mem::take(&mut now.postponed)
    }
}

/// The slow-command workers, and the requests that wait for one.
pub struct Workers {
    all: RwLock<Vec<Arc<Worker>>, { Lock::Workers as u8 }>,
    /// How many run a script; looked at often.
    running: AtomicUsize,
    jobs: (Sender<Option<Job>>, Receiver<Option<Job>>),
    /// How many of them were tried in vain.
    tried: AtomicUsize,
    /// What the threads of clients have not taken yet; at most one a client.
    done: lock_order::Mutex<Vec<Done>, { Lock::WorkersDone as u8 }>,
    done_count: AtomicUsize,
    /// For workers that could not get the keys of a request.
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
            done: lock_order::Mutex::default(),
            done_count: AtomicUsize::new(0),
            ended: Default::default(),
            stopping: AtomicBool::new(false),
        }
    }
}

impl Workers {
    /// A new worker, whose transactions are this owner's.
    pub fn add(&self, owner: Owner) -> Arc<Worker> {
        let worker = Arc::new(Worker {
            owner,
            now: lock_order::Mutex::default(),
        });
        self.all.write().push(worker.clone());
        worker
    }

    /// Hands a request to the next worker that is free.
    ///
    /// # Errors
    /// The queue is full; here it is again.
    pub fn submit(&self, job: Job) -> Result<(), Box<Job>> {
        let tried = job.tried;
        let sent = self.jobs.0.try_send(Some(job));
        if !tried {
            // For workers that had only such before them as were tried already.
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

    /// A request could not be run now, as clients are paused or somebody has its keys:
    /// it goes behind all that wait. How many those are if all of them were tried, too.
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

    /// Wakes a worker, which wakes the next: also one that has only just started. A
    /// full queue wakes them as well.
    fn wake_for_stop(&self) {
        let _ = self.jobs.0.try_send(None);
    }

    /// A request that no worker has begun.
    pub fn take_waiting(&self) -> Option<Job> {
        if self.stopping.load(Ordering::Acquire) {
            return None;
        }
        let taken = self.jobs.1.try_recv().ok()?;
        if taken.is_none() {
            // The server stops, and this was for a worker.
            self.wake_for_stop();
        }
        self.taken(taken.as_ref());
        taken
    }

    /// A request is over, and its keys are free.
    pub fn ended(&self) {
        self.ended.1.notify_all();
    }

    /// Waits until some request is over or comes, but not for long. Whether the server
    /// stops.
    pub fn wait_for_end(&self, at_most: Duration) -> bool {
        let mut nobody = self.ended.0.lock();
        self.ended.1.wait_for(&mut nobody, at_most);
        self.stopping.load(Ordering::Acquire)
    }

    /// A request is over; the client's thread has to be woken. It cannot have the reply
    /// before `spread` has returned, nor anything of what that sends before the reply.
    pub fn finish(&self, done: Done, spread: &mut dyn FnMut()) {
        let mut all = self.done.lock();
        all.push(done);
        self.done_count.store(all.len(), Ordering::Release);
        spread();
    }

    /// What was finished for the clients of an IO thread.
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

    /// A script starts.
    pub fn start(&self, worker: &Worker, running: Arc<Running>) {
        worker.now.lock().script = Some(running.clone());
        self.running.fetch_add(1, Ordering::Release);
        // Not before: who stops the server looks for scripts after it has said so.
        if self.stopping.load(Ordering::Acquire) {
            running.kill.store(true, Ordering::Release);
        }
    }

    /// It ended.
    pub fn stop(&self, worker: &Worker) {
        worker.now.lock().script = None;
        self.running.fetch_sub(1, Ordering::Release);
    }

    /// Whether any script runs on a worker.
    pub fn any_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// The scripts that run, the one that runs longest first.
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

    /// The script that runs longest.
    pub fn longest(&self) -> Option<Arc<Running>> {
        self.running().into_iter().next()
    }

    /// Whether all workers run scripts that have taken longer than `threshold`.
    pub fn are_all_slow(&self, threshold: Duration) -> bool {
        let running = self.running();
        let is_slow = |running: &Arc<Running>| running.started.elapsed() >= threshold;
        let workers = self.all.read().len();
        workers > 0 && running.len() >= workers && running.iter().all(is_slow)
    }

    /// The script that the owner of keys runs.
    pub fn script_of(&self, owner: Owner) -> Option<Arc<Running>> {
        let all = self.all.read();
        let worker = all.iter().find(|worker| worker.owner == owner)?;
        worker.now.lock().script.clone()
    }

    /// Leaves it to the worker of this owner to serve the clients that wait for a
    /// key, once its request is over. `false`: that is over already.
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

    /// SCRIPT KILL, FUNCTION KILL: ends the script that runs longest of those
    /// that can be ended.
    ///
    /// # Errors
    /// Why not.
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

    /// The server stops: whatever runs ends, and leaves nothing behind; whatever
    /// waits is not begun.
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
    fn who_cannot_run_now_lets_others_go_first() {
        let job = |name: &[u8]| {
            let addr = || "127.0.0.1:1".into();
            let flags = ClientFlags::empty();
            let info = ClientInfo::new(ClientId(1), addr(), addr(), -1, 0, 0, flags);
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
    fn all_workers_hear_of_the_stop_also_those_that_come_late() {
        let workers = Arc::new(Workers::default());
        workers.stop_all();
        let (ended, end) = channel();
        for n in 1..=3 {
            let (workers, ended) = (workers.clone(), ended.clone());
            std::thread::spawn(move || ended.send(workers.next().is_none()));
            let heard = end.recv_timeout(Duration::from_secs(20));
            assert_eq!(heard, Ok(true), "worker {n}");
        }
    }
}
