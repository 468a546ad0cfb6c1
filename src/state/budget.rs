//! Keeps the memory of the process within `maxmemory`.
//!
//! Caches and memtables know what they take. What comes on top of that is only seen
//! from outside: buffers of clients and of compactions, pages that the allocator
//! keeps for later, code. The block cache makes room for it, as far as it can.

use super::memory;
use super::{Server, process};

/// This part of the budget is kept free, since memory can grow between two looks.
const SPARE: u64 = 10;
/// Of what has become free, the block cache takes back this part at a time.
const TAKEN_BACK: u64 = 4;

impl Server {
    /// Looks what the process takes, and makes the block cache smaller or larger.
    pub fn keep_to_budget(&self) {
        let engine = &self.engine;
        let budget = engine.memory_budget();
        let most = budget - budget / SPARE;
        let figures = self.memory.figures();
        let mut used = figures.rss;
        // The allocator knows of no limit.
        if used > most && figures.resident.saturating_sub(figures.active) > budget / SPARE {
            memory::purge();
            used = process::rss_bytes().unwrap_or(used);
        }
        let before = engine.cache_relief();
        // It shrinks with what is added to it next.
        let (cached, _) = engine.cache_usage();
        let settled = cached <= engine.cache_limit() + budget / SPARE / SPARE;
        let relief = relief(before, used, most, settled);
        if relief != before {
            engine.relieve_cache(relief);
        }
    }
}

/// By how much the block cache is to be smaller than its share, if by now it is by
/// `before`, and the process takes `used` bytes of `most`. `settled`: it has become
/// that small.
fn relief(before: u64, used: u64, most: u64, settled: bool) -> u64 {
    match used.checked_sub(most) {
        Some(_) if !settled => before,
        Some(over) => before.saturating_add(over),
        None => before.saturating_sub((most - used) / TAKEN_BACK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_way_once_and_comes_back_by_and_by() {
        assert_eq!(relief(0, 80, 100, true), 0);
        assert_eq!(relief(0, 130, 100, true), 30);
        assert_eq!(relief(30, 130, 100, false), 30);
        assert_eq!(relief(30, 110, 100, true), 40);
        assert_eq!(relief(40, 80, 100, false), 35);
        assert_eq!(relief(3, 0, 100, true), 0);
    }
}
