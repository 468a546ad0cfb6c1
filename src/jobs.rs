//! The background threads: `expire` (expired keys, rows of deleted collections), `binlog-trim`,
//! `memory` (budget of the process), `tidy` (compaction after mass deletions), `value-log` (its garbage), `fsync` and
//! `everysec` (syncs), `disk` (free space), `evict` (keys beyond `max-disk`), the slow-command workers, the readers, and the threads
//! of MIGRATE, and that of chores ([`crate::state::chores`]). Also the load of files of Redis, which runs before all of them.

mod binlog_trim;
mod disk;
mod evict;
mod expire;
mod fsync;
mod load;
mod memory;
mod migrate;
mod notices;
mod readers;
mod tidy;
mod value_log;
mod workers;

pub use load::{LoadError, load, name_what_is_not_loaded, refuse_half_loaded};

use crate::state::Server;
use crate::state::chores::Chores;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A stop flag that threads can sleep on.
#[derive(Default)]
struct StopSign {
    stop: Mutex<bool>,
    changed: Condvar,
}

impl StopSign {
    /// Sleeps for `duration`, or until the stop. Returns whether to stop.
    fn sleep(&self, duration: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.changed.wait_for(&mut stop, duration);
        }
        *stop
    }

    fn set(&self) {
        *self.stop.lock() = true;
        self.changed.notify_all();
    }
}

/// Stack size of a thread that runs scripts: the recursion that Lua allows through its C
/// functions takes up to half of it.
pub const SCRIPT_STACK: usize = 8 << 20;

type Job = fn(Arc<Server>, &StopSign);

/// A memory thread for the time before the others run. It ends when this is dropped.
pub struct EarlyMemory {
    sign: Arc<StopSign>,
    thread: Option<JoinHandle<()>>,
}

impl EarlyMemory {
    /// Starts it.
    pub fn start(server: &Arc<Server>) -> io::Result<EarlyMemory> {
        let sign = Arc::<StopSign>::default();
        let (server, its_sign) = (server.clone(), sign.clone());
        let thread = Builder::new().name("memory".to_owned());
        let thread = thread.spawn(move || memory::run(server, &its_sign))?;
        Ok(EarlyMemory {
            sign,
            thread: Some(thread),
        })
    }
}

impl Drop for EarlyMemory {
    fn drop(&mut self) {
        self.sign.set();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the memory thread had panicked");
        }
    }
}

/// The running threads.
pub struct Jobs {
    sign: Arc<StopSign>,
    migrations: Arc<migrate::Pool>,
    threads: Vec<JoinHandle<()>>,
    chores: Arc<Chores>,
    doing_chores: JoinHandle<()>,
    server: Arc<Server>,
}

impl Jobs {
    /// Starts the threads.
    pub fn start(server: &Arc<Server>) -> io::Result<Jobs> {
        let sign = Arc::<StopSign>::default();
        if server.config.load().evicts() {
            server.evicting.begin();
        }
        let jobs: [(&str, Job); 8] = [
            ("disk", disk::run),
            ("evict", evict::run),
            ("expire", expire::run),
            ("binlog-trim", binlog_trim::run),
            ("memory", memory::run),
            ("tidy", tidy::run),
            ("value-log", value_log::run),
            ("everysec", fsync::every_second),
        ];
        let mut threads = Vec::new();
        for (name, job) in jobs {
            let (server, sign) = (server.clone(), sign.clone());
            let thread = Builder::new().name(name.to_owned());
            threads.push(thread.spawn(move || job(server, &sign))?);
        }
        let syncing = server.clone();
        let thread = Builder::new().name("fsync".to_owned());
        server.engine.expect_syncs();
        threads.push(thread.spawn(move || fsync::serve(&syncing))?);
        let of_chores = server.clone();
        let thread = Builder::new().name("chores".to_owned());
        let doing_chores = thread.spawn(move || of_chores.do_chores())?;
        for n in 0..server.config.load().worker_count() {
            let server = server.clone();
            let thread = Builder::new().name(format!("worker-{n}"));
            let thread = thread.stack_size(SCRIPT_STACK);
            threads.push(thread.spawn(move || workers::run(server, false))?);
        }
        let turns = server.clone();
        let thread = Builder::new().name("worker-turns".to_owned());
        let thread = thread.stack_size(SCRIPT_STACK);
        threads.push(thread.spawn(move || workers::run(turns, true))?);
        for n in 0..server.config.load().reader_threads {
            let server = server.clone();
            let thread = Builder::new().name(format!("reader-{n}"));
            let thread = thread.stack_size(readers::STACK);
            server.engine.expect_reader();
            threads.push(thread.spawn(move || readers::run(&server))?);
        }
        let migrations = Arc::<migrate::Pool>::default();
        for n in 0..migrate::THREADS {
            let (server, sign, pool) = (server.clone(), sign.clone(), migrations.clone());
            let thread = Builder::new().name(format!("migrate-{n}"));
            threads.push(thread.spawn(move || migrate::run(server, &pool, &sign))?);
        }
        Ok(Jobs {
            sign,
            migrations,
            threads,
            chores: server.chores.clone(),
            doing_chores,
            server: server.clone(),
        })
    }

    /// Stops the threads and waits for their end.
    pub fn stop(self) {
        self.sign.set();
        self.migrations.stop();
        self.chores.stop();
        self.server.bigkeys.stop();
        for thread in self.threads.into_iter().chain([self.doing_chores]) {
            if thread.join().is_err() {
                log::error!("a background thread had panicked");
            }
        }
        // No thread is left that could begin a scan.
        self.server.bigkeys.close();
    }
}
