//! Memory figures of the process, from the allocator and the system.
//!
//! The allocator's figures are snapshots, and a refresh is expensive. So a snapshot is kept for
//! [`FRESH_US`] and shared by all readers.

use super::process;
use crate::sys::allocator::mapped_bytes;
use crate::sys::{clock, huge_pages};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU64, Ordering};
use tikv_jemalloc_ctl::{Access, AsName, arenas, epoch, stats};

/// Maximal age of a snapshot, in microseconds.
const FRESH_US: u64 = 100_000;

/// Memory of the process, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Bytes allocated and not freed.
    pub allocated: u64,
    /// Pages with allocated bytes.
    pub active: u64,
    /// Pages of the allocator that are resident.
    pub resident: u64,
    /// Metadata of the allocator.
    pub metadata: u64,
    /// Pages that are kept resident for [huge pages](huge_pages).
    pub kept: u64,
    /// Address space that the allocator keeps.
    pub retained: u64,
    /// Pages of the process that are resident.
    pub rss: u64,
}

/// Cached figures of the process' memory.
#[derive(Debug)]
pub struct MemoryProbe {
    snapshot: Mutex<(Option<u64>, Figures)>,
    /// A copy of the snapshot, which is not locked while the next one is taken.
    last: RwLock<Figures>,
    peak: AtomicU64,
    startup: u64,
}

impl Default for MemoryProbe {
    fn default() -> Self {
        let probe = MemoryProbe {
            snapshot: Mutex::default(),
            last: RwLock::default(),
            peak: AtomicU64::new(0),
            startup: 0,
        };
        let startup = probe.figures().allocated;
        MemoryProbe { startup, ..probe }
    }
}

impl MemoryProbe {
    /// The figures, at most a tenth of a second old.
    pub fn figures(&self) -> Figures {
        self.figures_within(FRESH_US).0
    }

    /// The figures that were taken last, which happens at least once a second. Never waits for new
    /// ones.
    pub fn last(&self) -> Figures {
        *self.last.read()
    }

    /// Figures of this moment, or `None` if the snapshot is recent: other figures of the
    /// process that are read now would not match it.
    pub(super) fn figures_of_now(&self) -> Option<Figures> {
        let (figures, are_new) = self.figures_within(FRESH_US / 2);
        are_new.then_some(figures)
    }

    /// Figures that are at most `age_us` old, and whether they were taken now.
    fn figures_within(&self, age_us: u64) -> (Figures, bool) {
        let mut snapshot = self.snapshot.lock();
        let now_us = clock::mono_us();
        let fresh = snapshot
            .0
            .is_some_and(|taken_us| now_us.saturating_sub(taken_us) < age_us);
        if !fresh {
            *snapshot = (Some(now_us), take());
            *self.last.write() = snapshot.1;
            self.peak.fetch_max(snapshot.1.allocated, Ordering::Relaxed);
        }
        (snapshot.1, !fresh)
    }

    /// The highest number of allocated bytes in any snapshot.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Allocated bytes when the server had just opened its database.
    pub fn startup(&self) -> u64 {
        self.startup
    }
}

fn take() -> Figures {
    // An allocator without statistics yields zeros.
    let _ = epoch::advance();
    let read = |figure: tikv_jemalloc_ctl::Result<usize>| figure.unwrap_or(0) as u64;
    let mapped = mapped_bytes();
    Figures {
        allocated: read(stats::allocated::read()) + mapped,
        active: read(stats::active::read()) + mapped,
        resident: read(stats::resident::read()) + mapped,
        metadata: read(stats::metadata::read()),
        kept: huge_pages::unused_bytes(),
        retained: read(stats::retained::read()),
        rss: process::rss_bytes().unwrap_or(0),
    }
}

/// The allocator's version, for INFO.
pub fn allocator_version() -> String {
    let version = tikv_jemalloc_ctl::version::read().unwrap_or("unknown");
    let version = version.split('-').next().unwrap_or(version);
    format!("jemalloc-{version}")
}

/// The allocator's figures as text, one per line.
pub fn allocator_report(figures: &Figures) -> String {
    let arenas = arenas::narenas::read().unwrap_or(0);
    let background = tikv_jemalloc_ctl::background_thread::read().unwrap_or(false);
    let mapped = stats::mapped::read().unwrap_or(0);
    format!(
        "{}\nallocated: {}\nactive: {}\nmetadata: {}\nresident: {}\nmapped: {mapped}\n\
         retained: {}\narenas: {arenas}\nbackground thread: {background}\n",
        allocator_version(),
        figures.allocated,
        figures.active,
        figures.metadata,
        figures.resident,
        figures.retained,
    )
}

/// Returns unused pages to the system, except those kept for huge pages. A decay time of zero
/// makes every arena do that at once; then the old decay time is restored.
pub fn purge() {
    /// Otherwise a concurrent call would take the zero for the old decay time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one_at_a_time = ONE_AT_A_TIME.lock();
    let arenas = arenas::narenas::read().unwrap_or(0);
    for arena in (0..arenas).filter(|arena| huge_pages::arena() != Some(*arena)) {
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        let decay_ms = name.as_bytes().name();
        // Unused arenas refuse, and have nothing to purge.
        if let Ok(before) = Access::<isize>::update(decay_ms, 0) {
            let _ = decay_ms.write(before);
        }
    }
}
