//! Keeps the memory of the process within `maxmemory`.
//!
//! Caches and memtables know what they take. What comes on top of that is only seen
//! from outside: buffers of clients and of compactions, code, what the allocator needs
//! for itself. The block cache may take what all others leave; pages that nothing uses
//! count for nobody, since they are given back within seconds. Those that are kept for
//! huge ones count, until there are so many that they are given back, too.

use super::memory::{self, Figures};
use super::{Server, process};
use crate::base::huge_pages;

/// This part of the budget is kept free, since memory can grow between two looks, and
/// for pages that nothing uses.
const SPARE: u64 = 10;

impl Server {
    /// Looks what the process takes, and says how much the block cache may.
    pub fn keep_to_budget(&self) {
        let engine = &self.engine;
        let budget = engine.memory_budget();
        let most = budget - budget / SPARE;
        let figures = self.memory.figures();
        let mut used = figures.rss;
        let many = budget / SPARE;
        if used > most && figures.kept > many {
            huge_pages::give_back();
            used = process::rss_bytes().unwrap_or(used);
        }
        // The allocator knows of no limit.
        if used > most && unused(&figures) > many {
            memory::purge();
            used = process::rss_bytes().unwrap_or(used);
        } else {
            used = used.saturating_sub(unused(&figures));
        }
        let (cached, _) = engine.cache_usage();
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
