//! The state of SAVE and BGSAVE: one runs at a time; and the result of the last one.

use crate::base::time::{AtomicUnixMs, UnixMs};
use crate::sys::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// No save has ended yet.
const NEVER: i64 = -1;

/// The running save, and the result of the last one.
#[derive(Debug)]
pub struct Saves {
    running: AtomicBool,
    started_ms: AtomicUnixMs,
    last_s: AtomicU64,
    last_failed: AtomicBool,
    last_duration_s: AtomicI64,
    count: AtomicU64,
    saved_writes: AtomicU64,
}

/// A running save. It ends with [`Turn::end`], or as a failure when it is dropped.
#[derive(Debug)]
pub struct Turn {
    saves: Arc<Saves>,
    ended: bool,
}

impl Saves {
    /// The state at the start, when the database has `writes` writes.
    pub fn new(now_ms: UnixMs, writes: u64) -> Saves {
        Saves {
            running: AtomicBool::new(false),
            started_ms: AtomicUnixMs::default(),
            last_s: AtomicU64::new(now_ms.0 / 1000),
            last_failed: AtomicBool::new(false),
            last_duration_s: AtomicI64::new(NEVER),
            count: AtomicU64::new(0),
            saved_writes: AtomicU64::new(writes),
        }
    }

    /// Begins a save, unless one runs.
    pub fn begin(self: &Arc<Self>) -> Option<Turn> {
        if self.running.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.started_ms.store(clock::unix_ms(), Ordering::Relaxed);
        Some(Turn {
            saves: self.clone(),
            ended: false,
        })
    }

    /// Seconds since the start of the running save, if any.
    pub fn running_s(&self) -> Option<u64> {
        let running = self.running.load(Ordering::Acquire);
        let started_ms = self.started_ms.load(Ordering::Relaxed);
        running.then(|| clock::unix_ms().since(started_ms) / 1000)
    }

    /// When the last successful save ended, or the server started, Unix s.
    pub fn last_s(&self) -> u64 {
        self.last_s.load(Ordering::Relaxed)
    }

    /// Whether the last save failed.
    pub fn last_failed(&self) -> bool {
        self.last_failed.load(Ordering::Relaxed)
    }

    /// Duration of the last save in seconds, if there was one.
    pub fn last_duration_s(&self) -> Option<u64> {
        u64::try_from(self.last_duration_s.load(Ordering::Relaxed)).ok()
    }

    /// Number of successful saves.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Number of writes that the last successful save contains.
    pub fn saved_writes(&self) -> u64 {
        self.saved_writes.load(Ordering::Relaxed)
    }
}

impl Turn {
    /// Ends a save. `writes` is the number of writes that it contains; `None`: it failed.
    pub fn end(mut self, writes: Option<u64>) {
        let saves = &self.saves;
        let now_ms = clock::unix_ms();
        let took_ms = now_ms.since(saves.started_ms.load(Ordering::Relaxed));
        saves
            .last_duration_s
            .store((took_ms / 1000) as i64, Ordering::Relaxed);
        saves.last_failed.store(writes.is_none(), Ordering::Relaxed);
        if let Some(writes) = writes {
            saves.saved_writes.store(writes, Ordering::Relaxed);
            saves.last_s.store(now_ms.0 / 1000, Ordering::Relaxed);
            saves.count.fetch_add(1, Ordering::Relaxed);
        }
        self.ended = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.ended {
            self.saves.last_failed.store(true, Ordering::Relaxed);
        }
        self.saves.running.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let saves = Arc::new(Saves::new(UnixMs(5000), 7));
        assert_eq!((saves.last_s(), saves.saved_writes()), (5, 7));
        let turn = saves.begin().unwrap();
        assert!(saves.begin().is_none());
        assert!(saves.running_s().is_some());
        turn.end(Some(9));
        assert_eq!((saves.count(), saves.saved_writes()), (1, 9));
        drop(saves.begin());
        assert!(saves.last_failed());
        assert_eq!(saves.running_s(), None);
    }
}
