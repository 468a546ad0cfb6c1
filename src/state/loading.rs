//! The progress of a load at the start, during which clients get `LOADING`.

use crate::base::time::AtomicUnixMs;
use crate::sys::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The load at the start.
#[derive(Debug, Default)]
pub struct Loading {
    is_on: AtomicBool,
    is_cancelled: Arc<AtomicBool>,
    started_ms: AtomicUnixMs,
    total_bytes: AtomicU64,
    loaded_bytes: AtomicU64,
    used_memory: AtomicU64,
    keys: AtomicU64,
    expired_keys: AtomicU64,
}

/// The progress of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// When it began, in Unix seconds.
    pub started_s: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Bytes of them that were read.
    pub loaded_bytes: u64,
    /// Memory of the data in the server that wrote the file, if the file contains that.
    pub used_memory: u64,
    /// Percentage of the bytes that were read.
    pub percent: f64,
    /// Estimated seconds until its end.
    pub eta_s: u64,
}

impl Loading {
    /// Begins the load: clients get `LOADING` from now on. The number of bytes is set by
    /// [`Loading::expect`].
    pub fn begin(&self) {
        self.started_ms.store(clock::unix_ms(), Ordering::Relaxed);
        self.is_on.store(true, Ordering::Release);
    }

    /// Sets the number of bytes to load.
    pub fn expect(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    /// Sets the number of bytes that are loaded.
    pub fn reach(&self, loaded_bytes: u64) {
        self.loaded_bytes.store(loaded_bytes, Ordering::Relaxed);
    }

    /// Sets the memory of the data in the server that wrote the file.
    pub fn note_used_memory(&self, bytes: u64) {
        self.used_memory.store(bytes, Ordering::Relaxed);
    }

    /// Sets how many keys the last RDB file had, and how many more it had whose time was over.
    pub fn note_keys(&self, keys: u64, expired: u64) {
        self.keys.store(keys, Ordering::Relaxed);
        self.expired_keys.store(expired, Ordering::Relaxed);
    }

    /// The keys that the last RDB file had, and those whose time was over.
    pub fn keys(&self) -> (u64, u64) {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (get(&self.keys), get(&self.expired_keys))
    }

    /// Ends the load: clients are served from now on.
    pub fn end(&self) {
        self.is_on.store(false, Ordering::Release);
    }

    /// Whether clients get `LOADING`. Costs one load.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Cancels the load, because the server stops.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// Whether the load is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    /// The flag that is set when the load is cancelled.
    pub fn cancellation(&self) -> Arc<AtomicBool> {
        self.is_cancelled.clone()
    }

    /// The progress of the load, if there is one.
    pub fn progress(&self) -> Option<Progress> {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let started_ms = self.started_ms.load(Ordering::Relaxed);
        let elapsed_s = clock::unix_ms().since(started_ms) / 1000;
        self.is_on().then(|| {
            progress(
                started_ms.0 / 1000,
                elapsed_s,
                get(&self.total_bytes),
                get(&self.loaded_bytes),
                get(&self.used_memory),
            )
        })
    }
}

fn progress(
    started_s: u64,
    elapsed_s: u64,
    total_bytes: u64,
    loaded_bytes: u64,
    used_memory: u64,
) -> Progress {
    let left = total_bytes.saturating_sub(loaded_bytes);
    let share = loaded_bytes as f64 / total_bytes.max(1) as f64;
    let eta_s = match (elapsed_s, loaded_bytes) {
        // There is no basis for an estimate yet.
        (0, _) | (_, 0) => 1,
        _ => (elapsed_s as f64 * (left as f64 / loaded_bytes as f64)) as u64,
    };
    Progress {
        started_s,
        total_bytes,
        loaded_bytes,
        used_memory,
        percent: (share * 100.0).min(100.0),
        eta_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_guessed_by_what_is_done() {
        let at = |elapsed_s, loaded| {
            let progress = progress(0, elapsed_s, 1000, loaded, 0);
            (progress.percent, progress.eta_s)
        };
        assert_eq!(at(0, 0), (0.0, 1));
        assert_eq!(at(5, 0), (0.0, 1));
        assert_eq!(at(10, 250), (25.0, 30));
        assert_eq!(at(10, 1000), (100.0, 0));
        assert_eq!(at(10, 2000), (100.0, 0));
        assert_eq!(progress(0, 3, 0, 0, 0).percent, 0.0);
    }

    #[test]
    fn there_is_progress_while_it_is_on() {
        let loading = Loading::default();
        assert_eq!(loading.progress(), None);
        loading.begin();
        loading.expect(10);
        loading.reach(5);
        assert_eq!(loading.progress().unwrap().percent, 50.0);
        loading.end();
        assert!(!loading.is_on() && loading.progress().is_none());
    }
}
