//! The server's own check of its rows and of its copies of them in memory, again and
//! again while a test does other things.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Conn, Server, Value, wait_within};

/// How often servers are checked that have other things to do.
const EVERY: Duration = Duration::from_secs(3);

/// Checks servers until it is dropped, and fails then if a check has found a fault.
pub struct Checks {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Checks {
    /// Begins to check these servers, which may die and come back meanwhile.
    pub fn start(servers: &[&Server]) -> Checks {
        Checks::start_every(EVERY, servers)
    }

    /// The same with another pause between two checks.
    pub fn start_every(pause: Duration, servers: &[&Server]) -> Checks {
        let (stop, done) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let start = |server: &&Server| {
            let (address, stop, done) = (server.address(), stop.clone(), done.clone());
            std::thread::spawn(move || check_until(&address, pause, &stop, &done))
        };
        let threads = servers.iter().map(start).collect();
        Checks {
            stop,
            done,
            threads,
        }
    }

    /// How many checks have found nothing.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// What the check says is there, or the fault that it has found.
pub fn check(conn: &mut Conn) -> Result<Option<String>, String> {
    match conn.cmd("DEBUG KEDIS-CHECK") {
        // A server that starts, stops or stands still does not answer.
        Value::Lost(_) => Ok(None),
        Value::Error(text) if text.starts_with(b"LOADING") => Ok(None),
        Value::Error(text) => Err(String::from_utf8_lossy(&text).into_owned()),
        report => Ok(Some(report.text())),
    }
}

fn check_until(
    address: &str,
    pause: Duration,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<(), String> {
    while !wait_within(pause, || stop.load(Ordering::Relaxed)) {
        let Ok(mut conn) = Conn::open(address) else {
            continue;
        };
        if check(&mut conn)?.is_some() {
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let found = thread.join();
            if !std::thread::panicking() {
                found.expect("a thread that checks").expect("no fault");
            }
        }
    }
}
