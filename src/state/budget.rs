//! Keeps the memory of the process within `maxmemory`.
//!
//! Caches and memtables know their size. Other memory is only visible from outside: buffers of
//! clients and compactions, code, overhead of the allocator. The block cache may use what all
//! others leave. Pages that nothing uses are not counted, since they are returned to the system
//! within seconds. Pages that are kept for huge pages are counted, until there are so many that
//! they are returned as well.

use super::memory::{self, Figures};
use super::{Server, process};
use crate::sys::{clock, huge_pages};
use std::sync::atomic::Ordering;

/// `1 / SPARE` of the budget is kept free, since memory can grow between two checks, and for
/// unused pages.
const SPARE: u64 = 10;

/// Shortest interval between two returns of unused pages: it takes time, and few pages become
/// unused at once.
const GIVE_BACK_US: u64 = 5_000;
/// Caches and the allocator do not return more memory after this time.
const GIVE_UP_US: u64 = 500_000;
/// The process is checked again when clients have taken so many bytes more.
const CHECK_BYTES: u64 = 4 << 20;

impl Server {
    /// Whether the process uses more than three quarters of the budget.
    pub fn is_near_budget(&self) -> bool {
        let budget = self.engine.memory_budget();
        process::rss_bytes().is_none_or(|rss| rss > budget / 4 * 3)
    }

    /// Memory of clients, and of messages queued for replicas.
    fn buffers_taken(&self) -> u64 {
        self.client_memory.taken() + self.replica_memory.taken()
    }

    /// Makes caches shrink for the memory of clients and replicas before that is used.
    pub fn make_room(&self) {
        let taken = self.buffers_taken();
        self.engine.reserve_for_clients(taken);
        let seen = &self.client_memory_seen;
        let before = seen.load(Ordering::Relaxed);
        let is_little = taken < before.saturating_add(CHECK_BYTES);
        if taken < before || !is_little {
            seen.store(taken, Ordering::Relaxed);
        }
        if is_little {
            return;
        }
        if process::rss_bytes().is_some_and(|rss| rss > self.most_bytes()) {
            self.give_back();
        }
    }

    /// Whether the process has `bytes` left for a client, once caches have shrunk. Memory lent
    /// to others counts as if it were unused so far, since it may be used at any moment. If
    /// nothing is lent, the answer becomes yes after a while: no more memory would be returned.
    pub(super) fn has_memory_for(&self, bytes: u64) -> bool {
        let (since, now_us) = (&self.no_memory_since_us, clock::mono_us());
        if self.is_left(bytes) {
            since.store(0, Ordering::Relaxed);
            return true;
        }
        let since_us = since.load(Ordering::Relaxed);
        if since_us == 0 {
            since.store(now_us, Ordering::Relaxed);
        }
        let is_long = since_us > 0 && now_us.saturating_sub(since_us) > GIVE_UP_US;
        is_long && self.client_memory.lent() == 0
    }

    /// Whether the process has so many bytes left besides what is lent, once caches have shrunk.
    pub(super) fn is_left(&self, bytes: u64) -> bool {
        if bytes < CHECK_BYTES || !self.keeps_to_budget.load(Ordering::Relaxed) {
            return true;
        }
        let taken = self.buffers_taken();
        self.engine.reserve_for_clients(taken.saturating_add(bytes));
        let budget = self.engine.memory_budget();
        let wanted = bytes.saturating_add(self.client_memory.lent());
        let lack = || {
            let rss = process::rss_bytes().unwrap_or(0);
            rss.saturating_add(wanted).saturating_sub(budget)
        };
        match lack() {
            0 => true,
            much => {
                self.engine.evict_blocks(much);
                self.engine.reserve_for_clients(taken.saturating_add(bytes));
                self.give_back();
                lack() == 0
            }
        }
    }

    /// The most that the process should use.
    fn most_bytes(&self) -> u64 {
        let budget = self.engine.memory_budget();
        budget - budget / SPARE
    }

    /// Returns unused pages, of which the allocator keeps some for a while: it knows no limit.
    fn give_back(&self) {
        let (now_us, relaxed) = (clock::mono_us(), Ordering::Relaxed);
        let last = &self.gave_back_us;
        let before_us = last.load(relaxed);
        let is_early = now_us < before_us.saturating_add(GIVE_BACK_US);
        if !is_early
            && last
                .compare_exchange(before_us, now_us, relaxed, relaxed)
                .is_ok()
        {
            memory::purge();
        }
    }

    /// Measures the process and sets the size of the block cache accordingly.
    pub fn keep_to_budget(&self) {
        let engine = &self.engine;
        let (budget, most) = (engine.memory_budget(), self.most_bytes());
        // Uses the present size of the process. An older figure would not include what is in
        // the cache now, for instance of a long reply, and leave the cache too much.
        let figures = self.memory.figures_of_now();
        let rss = figures.map_or_else(process::rss_bytes, |figures| Some(figures.rss));
        let mut used = rss.unwrap_or(most);
        if used > most {
            if figures.is_some_and(|figures| figures.kept > budget / SPARE) {
                huge_pages::give_back();
            }
            self.give_back();
            used = process::rss_bytes().unwrap_or(used);
        } else {
            let Some(figures) = figures else {
                return;
            };
            used = used.saturating_sub(unused(&figures));
        }
        // What is lent is charged to the cache, but may be unused so far.
        used = used.saturating_add(self.client_memory.lent());
        // The memory of clients is charged to the cache, as that of memtables is.
        let cached = engine.cache_taken();
        engine.limit_cache(left(cached, used, most));
    }
}

/// Bytes of unused pages that the allocator will return.
fn unused(figures: &Figures) -> u64 {
    let needed = figures.active + figures.metadata + figures.kept;
    figures.resident.saturating_sub(needed)
}

/// The bytes of `most` that are left for a cache which holds `cached` of the `used` ones.
fn left(cached: u64, used: u64, most: u64) -> u64 {
    most.saturating_sub(used.saturating_sub(cached))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_may_take_what_others_leave() {
        assert_eq!(left(30, 80, 100), 50);
        assert_eq!(left(30, 130, 100), 0);
        assert_eq!(left(30, 110, 100), 20);
        assert_eq!(left(0, 10, 100), 90);
        // The two are not measured at the same moment.
        assert_eq!(left(30, 20, 100), 100);
    }
}
