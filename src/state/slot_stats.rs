//! What the commands on each slot of a cluster have taken, with `cluster-slot-stats-enabled`.

use crate::base::slots::SLOTS;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figures of one slot, in this order: processor time in µs, bytes of requests, bytes of replies.
pub type Figures = [u64; 3];

/// The figures of all slots; they take no memory before the first is noted.
#[derive(Debug, Default)]
pub struct SlotStats(OnceLock<Box<[[AtomicU64; 3]]>>);

impl SlotStats {
    /// Adds what a command has taken.
    pub fn note(&self, slot: u16, taken: Figures) {
        let all = self
            .0
            .get_or_init(|| (0..SLOTS).map(|_| Default::default()).collect());
        if let Some(figures) = all.get(usize::from(slot)) {
            for (figure, more) in figures.iter().zip(taken) {
                figure.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// The figures of a slot.
    pub fn of(&self, slot: u16) -> Figures {
        let figures = self.0.get().and_then(|all| all.get(usize::from(slot)));
        figures.map_or([0; 3], |figures| {
            std::array::from_fn(|at| figures[at].load(Ordering::Relaxed))
        })
    }

    /// Sets all figures to 0.
    pub fn reset(&self) {
        for figure in self.0.get().into_iter().flatten().flatten() {
            figure.store(0, Ordering::Relaxed);
        }
    }
}
