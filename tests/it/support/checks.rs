//! Runs DEBUG KEDIS-CHECK repeatedly in the background of a test: rows, row cache and rank
//! indexes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Conn, Server, Value, wait_within};

/// Default interval between checks.
const EVERY: Duration = Duration::from_secs(3);

/// Checks servers until it is dropped; the drop panics if a check has found a fault.
pub struct Checks {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Checks {
    /// Starts to check these servers, which may be killed and restarted meanwhile.
    pub fn start(servers: &[&Server]) -> Checks {
        Checks::start_every(EVERY, servers)
    }

    /// The same with another interval.
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

    /// The number of checks that succeeded.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// Runs DEBUG KEDIS-CHECK; returns its report, `None` if there was no reply, or the fault.
pub fn check(conn: &mut Conn) -> Result<Option<String>, String> {
    match conn.cmd("DEBUG KEDIS-CHECK") {
        // A server that starts, stops or is suspended does not reply.
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
