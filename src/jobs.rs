//! Threads beside the IO threads: one deletes what expired and what is left of
//! dead collections, one keeps the binlog within its bounds, one the memory of the
//! process, one tidies up after mass deletions, two sync the disk, one watches it, some run
//! scripts that take long, some move keys to other servers. And what is done before any of them runs: loading
//! files of Redis.

mod binlog_trim;
mod disk;
mod expire;
mod fsync;
mod load;
mod memory;
mod migrate;
mod tidy;
mod workers;

pub use load::{LoadError, load, name_files_of_redis, refuse_half_loaded};

use crate::state::Server;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A sign to stop that threads can sleep on.
#[derive(Default)]
struct StopSign {
    stop: Mutex<bool>,
    changed: Condvar,
}

impl StopSign {
    /// Sleeps; returns whether to stop.
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

/// Stack of a thread that runs scripts: what Lua allows of recursion through its
/// C functions takes up to half of it.
pub const SCRIPT_STACK: usize = 8 << 20;

type Job = fn(Arc<Server>, &StopSign);

/// The running threads.
pub struct Jobs {
    sign: Arc<StopSign>,
    migrations: Arc<migrate::Pool>,
    threads: Vec<JoinHandle<()>>,
}

impl Jobs {
    /// Starts them.
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

    /// Stops them and waits for that.
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
