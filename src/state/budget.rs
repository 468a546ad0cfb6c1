//! Keeps the memory of the process within `maxmemory`.
//!
//! Caches and memtables know what they take. What comes on top of that is only seen
//! from outside: buffers of clients and of compactions, code, what the allocator needs
//! for itself. The block cache may take what all others leave; pages that nothing uses
//! count for nobody, since they are given back within seconds. Those that are kept for
//! huge ones count, until there are so many that they are given back, too.

use super::memory::{self, Figures};
use super::{Server, process};
use crate::sys::{clock, huge_pages};
use std::sync::atomic::Ordering;

/// This part of the budget is kept free, since memory can grow between two looks, and
/// for pages that nothing uses.
const SPARE: u64 = 10;

/// Pages are given back at most once in this time: that is work, and there are few again
/// at once.
const GIVE_BACK_US: u64 = 5_000;
/// What caches and the allocator have not given back after this time stays.
const NOTHING_COMES_US: u64 = 500_000;
/// When clients have taken so many bytes more, the process is looked at again.
const LOOK_BYTES: u64 = 4 << 20;

impl Server {
    /// Whether the process takes more than three quarters of the budget.
    pub fn is_near_budget(&self) -> bool {
        let budget = self.engine.memory_budget();
        process::rss_bytes().is_none_or(|rss| rss > budget / 4 * 3)
    }

    /// What clients and replicas take.
    fn buffers_taken(&self) -> u64 {
        self.client_memory.taken() + self.replica_memory.taken()
    }

    /// Has caches make room for what clients and replicas take, before they use it.
    pub fn make_room(&self) {
        let taken = self.buffers_taken();
        self.engine.reserve_for_clients(taken);
        let seen = &self.client_memory_seen;
        let before = seen.load(Ordering::Relaxed);
        let is_little = taken < before.saturating_add(LOOK_BYTES);
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

    /// Whether the process has `bytes` left for a client, once caches have made room. What
    /// is lent to others counts as if none of it were used yet: it may be used at any moment.
    /// If nothing is lent it has after a while: nobody will give anything back.
    pub(super) fn has_memory_for(&self, bytes: u64) -> bool {
        if bytes < LOOK_BYTES || !self.keeps_to_budget.load(Ordering::Relaxed) {
            return true;
        }
        let taken = self.buffers_taken();
        self.engine.reserve_for_clients(taken.saturating_add(bytes));
        let budget = self.engine.memory_budget();
        let wanted = bytes.saturating_add(self.client_memory.lent());
        let fits = || process::rss_bytes().is_none_or(|rss| rss.saturating_add(wanted) <= budget);
        let has = fits() || {
            self.give_back();
            fits()
        };
        let (since, now_us) = (&self.no_memory_since_us, clock::mono_us());
        if has {
            since.store(0, Ordering::Relaxed);
            return true;
        }
        let since_us = since.load(Ordering::Relaxed);
        if since_us == 0 {
            since.store(now_us, Ordering::Relaxed);
        }
        let is_long = since_us > 0 && now_us.saturating_sub(since_us) > NOTHING_COMES_US;
        is_long && self.client_memory.lent() == 0
    }

    /// What the process should take at the most.
    fn most_bytes(&self) -> u64 {
        let budget = self.engine.memory_budget();
        budget - budget / SPARE
    }

    /// Gives pages back that nothing uses, of which the allocator keeps some for a while: it
    /// knows of no limit.
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

    /// Looks what the process takes, and says how much the block cache may.
    pub fn keep_to_budget(&self) {
        let engine = &self.engine;
        let (budget, most) = (engine.memory_budget(), self.most_bytes());
        // What is in the cache now is no part of what the process had a while ago: a long
        // reply would seem to leave more to the cache than it does.
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
        // What clients take is in the cache's charge, as what memtables do.
        let cached = engine.cache_taken();
        engine.limit_cache(left(cached, used, most));
    }
}

/// Bytes of pages that the allocator has for a while only.
fn unused(figures: &Figures) -> u64 {
    let needed = figures.active + figures.metadata + figures.kept;
    figures.resident.saturating_sub(needed)
}

/// What is left of `most` bytes for a cache that holds `cached` of the `used` ones.
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
        // They are not looked at in the same moment.
        assert_eq!(left(30, 20, 100), 100);
    }
}
