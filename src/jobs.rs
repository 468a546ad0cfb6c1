//! The background threads: `expire` (expired keys, rows of deleted collections), `binlog-trim`,
//! `memory` (budget of the process), `tidy` (compaction after mass deletions), `fsync` and
//! `everysec` (syncs), `disk` (free space), the slow-command workers, the readers, and the threads
//! of MIGRATE. Also the load of files of Redis, which runs before all of them.

mod binlog_trim;
mod disk;
mod expire;
mod fsync;
mod load;
mod memory;
mod migrate;
mod readers;
mod tidy;
mod workers;

pub use load::{LoadError, load, name_files_of_redis, refuse_half_loaded};

use crate::state::Server;
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

/// The running threads.
pub struct Jobs {
    sign: Arc<StopSign>,
    migrations: Arc<migrate::Pool>,
    threads: Vec<JoinHandle<()>>,
}

impl Jobs {
    /// Starts the threads.
    pub fn start(server: &Arc<Server>) -> io::Result<Jobs> {
        let sign = Arc::<StopSign>::default();
        let jobs: [(&str, Job); 6] = [
            ("disk", disk::run),
            ("expire", expire::run),
            ("binlog-trim", binlog_trim::run),
            ("memory", memory::run),
            ("tidy", tidy::run),
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
        threads.push(thread.spawn(move || fsync::serve(&syncing))?);
        for n in 0..server.config.load().worker_count() {
            let server = server.clone();
            let thread = Builder::new().name(format!("worker-{n}"));
            let thread = thread.stack_size(SCRIPT_STACK);
            threads.push(thread.spawn(move || workers::run(server))?);
        }
        for n in 0..server.config.load().reader_threads {
            let server = server.clone();
            let thread = Builder::new().name(format!("reader-{n}"));
            let thread = thread.stack_size(readers::STACK);
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
        })
    }

    /// Stops the threads and waits for their end.
    pub fn stop(self) {
        self.sign.set();
        self.migrations.stop();
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("a background thread had panicked");
            }
        }
    }
}
