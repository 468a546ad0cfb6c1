//! Memory, by owner, and caches.

use super::super::samples::Kind::Gauge;
use super::super::samples::Samples;
use super::super::scrape::Scrape;
use super::{Metric, counter, gauge, many, some};

fn owners(scrape: &Scrape<'_>, to: &mut Samples) {
    let scripts = &scrape.server.scripts;
    let of_scripts = scripts.cached().1 + scripts.libraries().memory() + scripts.interpreters();
    // The cache is charged for memtables.
    let blocks = scrape.cache.0.saturating_sub(scrape.memtable_bytes);
    for (owner, bytes) in [
        ("startup", scrape.server.memory.startup()),
        ("row_cache", scrape.engine.row_cache_bytes()),
        ("block_cache", blocks),
        ("memtables", scrape.memtable_bytes),
        ("clients", scrape.clients.buffer_bytes),
        ("replicas", scrape.clients.replica_buffer_bytes),
        ("requests", scrape.server.client_memory.lent()),
        ("scripts", of_scripts as u64),
    ] {
        to.add(&[("owner", owner)], bytes);
    }
}

pub(super) const ROWS: &[Metric] = &[
    gauge(
        "kedis_memory_used_bytes",
        "Memory that is allocated; like all figures of the allocator at most a second old.",
        |s| some(s.memory.allocated),
    ),
    gauge(
        "kedis_memory_peak_bytes",
        "The most memory that was seen allocated.",
        |s| some(s.server.memory.peak()),
    ),
    gauge(
        "kedis_memory_active_bytes",
        "Pages of the allocator with allocated memory.",
        |s| some(s.memory.active),
    ),
    gauge(
        "kedis_memory_resident_bytes",
        "Pages of the allocator that are resident.",
        |s| some(s.memory.resident),
    ),
    gauge(
        "kedis_memory_max_bytes",
        "The parameter `maxmemory`; 0 if it is not set.",
        |s| some(s.config.max_memory_bytes),
    )
    .info("maxmemory"),
    gauge(
        "kedis_memory_budget_bytes",
        "The memory budget of caches, memtables and buffers.",
        |s| some(s.engine.memory_budget()),
    )
    .info("memory_budget"),
    many(
        Gauge,
        "kedis_memory_owner_bytes",
        &["owner"],
        "Memory by what it is for, as far as it is counted.",
        owners,
    ),
    gauge("kedis_row_cache_bytes", "Memory of the row cache.", |s| {
        some(s.engine.row_cache_bytes())
    })
    .info("row_cache_bytes"),
    counter(
        "kedis_row_cache_hits_total",
        "Look-ups of rows that the row cache had.",
        |s| some(s.row_reads.0),
    )
    .info("row_cache_hits"),
    counter(
        "kedis_row_cache_misses_total",
        "Look-ups of rows that it did not have, whether they exist or not.",
        |s| some(s.row_reads.1),
    )
    .info("row_cache_misses"),
    gauge(
        "kedis_block_cache_bytes",
        "Memory that the block cache has or is charged for, as for memtables.",
        |s| some(s.cache.0),
    )
    .info("block_cache_usage"),
    gauge(
        "kedis_block_cache_capacity_bytes",
        "Capacity of the block cache.",
        |s| some(s.engine.cache_limit()),
    )
    .info("block_cache_capacity"),
    counter(
        "kedis_block_cache_hits_total",
        "Blocks that the block cache had; only with `rocksdb.statistics`.",
        |s| s.blocks.cached.map(|(hits, _)| hits.into()),
    ),
    counter(
        "kedis_block_cache_misses_total",
        "Blocks that it did not have; only with `rocksdb.statistics`.",
        |s| s.blocks.cached.map(|(_, misses)| misses.into()),
    ),
    counter(
        "kedis_block_reads_total",
        "Reads of table and blob files, by look-ups and by compactions.",
        |s| some(s.blocks.reads),
    )
    .info("block_reads"),
    counter(
        "kedis_block_read_bytes_total",
        "Bytes of these reads.",
        |s| some(s.blocks.read_bytes),
    )
    .info("block_read_bytes"),
];
