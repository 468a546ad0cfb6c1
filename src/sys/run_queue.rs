//! Whether threads that serve clients wait for a processor: they could run, and others do.

use parking_lot::Mutex;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How old an answer may be. A wait counts when it ends, after milliseconds.
const RECENT: Duration = Duration::from_millis(10);
/// Threads wait if one does so for this part of the time.
const PART: u32 = 64;

/// A thread.
struct Watched {
    /// Its `schedstat`: the time it ran, the time it waited for a processor, both in nanoseconds, and
    /// how often it ran.
    stat: File,
    waited: Duration,
}

impl Watched {
    /// For how long it has waited so far; `None` if it has ended.
    fn waited(&self) -> Option<Duration> {
        use std::os::unix::fs::FileExt;
        let mut text = [0; 64];
        let len = self.stat.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..len]).ok()?;
        let waited = text.split_ascii_whitespace().nth(1)?;
        waited.parse().ok().map(Duration::from_nanos)
    }
}

struct Threads {
    watched: Vec<Watched>,
    looked: Option<Instant>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads {
    watched: Vec::new(),
    looked: None,
});
/// The last answer.
static WAIT: AtomicBool = AtomicBool::new(false);

/// Watches the calling thread until it ends. Does nothing where the system does not say how long
/// threads wait.
pub fn watch_this_thread() {
    THREADS.lock().add_this();
}

/// Whether one of the watched threads lately waited for a 64th of the time or more.
pub fn watched_threads_wait() -> bool {
    // Otherwise another thread looks now.
    if let Some(mut threads) = THREADS.try_lock()
        && threads
            .looked
            .is_none_or(|looked| looked.elapsed() >= RECENT)
    {
        WAIT.store(threads.look(), Ordering::Relaxed);
    }
    WAIT.load(Ordering::Relaxed)
}

impl Threads {
    fn add_this(&mut self) {
        #[cfg(target_os = "linux")]
        {
            let thread = rustix::thread::gettid().as_raw_nonzero();
            match File::open(format!("/proc/self/task/{thread}/schedstat")) {
                Ok(stat) => self.watched.push(Watched {
                    stat,
                    waited: Duration::ZERO,
                }),
                Err(error) => log::debug!("Waits for a processor are not known: {error}"),
            }
        }
    }

    /// Whether one has waited since the last look, and forgets those that have ended.
    fn look(&mut self) -> bool {
        let now = Instant::now();
        let passed = match self.looked.replace(now) {
            Some(looked) => now - looked,
            None => Duration::MAX,
        };
        let mut wait = false;
        self.watched.retain_mut(|thread| {
            let Some(waited) = thread.waited() else {
                return false;
            };
            wait |= waited.saturating_sub(thread.waited) >= passed / PART;
            thread.waited = waited;
            true
        });
        wait
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_watched_until_it_ends() {
        let threads = Mutex::new(Threads {
            watched: Vec::new(),
            looked: None,
        });
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut threads = threads.lock();
                threads.add_this();
                assert!(!threads.look(), "no time has passed");
                assert_eq!(threads.watched.len(), 1);
            });
            thread.join().unwrap();
        });
        // It may still be ending.
        while !threads.lock().watched.is_empty() {
            threads.lock().look();
        }
    }
}
