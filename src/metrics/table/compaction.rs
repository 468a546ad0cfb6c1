//! Levels, compactions and stalls of RocksDB.

use super::super::samples::Kind::{Counter, Gauge};
use super::super::samples::Samples;
use super::super::scrape::Scrape;
use super::{Metric, counter, gauge, many, seconds, some};
use crate::storage::engine::figures::Stall;

/// A sample for each level.
fn levels(figures: &[u64], to: &mut Samples) {
    for (level, figure) in figures.iter().enumerate() {
        to.add(&[("level", itoa::Buffer::new().format(level))], *figure);
    }
}

fn written(scrape: &Scrape<'_>, to: &mut Samples) {
    let (flushes, compactions) = scrape.table_bytes_written;
    to.add(&[("by", "flush")], flushes);
    to.add(&[("by", "compaction")], compactions);
}

fn stalls(scrape: &Scrape<'_>, to: &mut Samples) {
    to.add(&[("kind", "slowed")], scrape.work.slowdowns);
    to.add(&[("kind", "stopped")], scrape.work.stops);
}

/// Bytes that all of RocksDB has written for a byte of commits.
fn amplification(scrape: &Scrape<'_>) -> f64 {
    let (flushes, compactions) = scrape.table_bytes_written;
    let commits = scrape.engine.disk.commit_bytes();
    (commits + flushes + compactions) as f64 / commits as f64
}

pub(super) const ROWS: &[Metric] = &[
    many(
        Gauge,
        "kedis_rocksdb_level_files",
        &["level"],
        "Table files of a level.",
        |s, to| levels(&s.tables.files, to),
    ),
    many(
        Gauge,
        "kedis_rocksdb_level_bytes",
        &["level"],
        "Bytes of the table files of a level.",
        |s, to| levels(&s.tables.bytes, to),
    ),
    gauge("kedis_rocksdb_blob_files", "Blob files.", |s| {
        some(s.tables.blob_files)
    })
    .info("blob_files"),
    gauge("kedis_rocksdb_blob_bytes", "Bytes of blob files.", |s| {
        some(s.tables.blob_bytes)
    })
    .info("live_blob_bytes"),
    gauge(
        "kedis_rocksdb_active_memtable_bytes",
        "Memory of the memtables that take rows.",
        |s| some(s.tables.active_memtable_bytes),
    )
    .info("memtable_active_bytes"),
    gauge(
        "kedis_rocksdb_immutable_memtables",
        "Memtables that wait to be written to tables.",
        |s| some(s.tables.immutable_memtables),
    )
    .info("immutable_memtables"),
    gauge(
        "kedis_rocksdb_pending_compaction_bytes",
        "Bytes that compactions have to write until all levels have their sizes, an estimate.",
        |s| some(s.tables.pending_compaction_bytes),
    )
    .info("pending_compaction_bytes"),
    counter(
        "kedis_writer_delays_total",
        "How often clients that write began to wait for memtables to be written out.",
        |s| some(s.engine.delays()),
    )
    .info("total_writer_delays"),
    counter(
        "kedis_rocksdb_flushes_total",
        "Memtables that were written to tables.",
        |s| some(s.work.flushes),
    )
    .info("flushes"),
    gauge(
        "kedis_rocksdb_compactions_running",
        "Compactions that run now.",
        |s| some(s.work.compactions_running),
    ),
    counter(
        "kedis_rocksdb_compactions_total",
        "Compactions that have ended.",
        |s| some(s.work.compactions),
    )
    .info("compactions"),
    counter(
        "kedis_rocksdb_compaction_seconds_total",
        "Time of these compactions.",
        |s| seconds(s.work.compaction_us),
    ),
    counter(
        "kedis_rocksdb_compaction_read_bytes_total",
        "Bytes that they have read.",
        |s| some(s.work.compaction_read_bytes),
    ),
    counter(
        "kedis_rocksdb_compaction_output_bytes_total",
        "Bytes of the tables that they have made.",
        |s| some(s.work.compaction_written_bytes),
    ),
    many(
        Counter,
        "kedis_rocksdb_written_bytes_total",
        &["by"],
        "Bytes of tables and blob files that flushes and compactions have written.",
        written,
    ),
    gauge(
        "kedis_rocksdb_write_amplification_ratio",
        "Bytes written to the log, by flushes and by compactions since the start, for a byte of commits.",
        |s| {
            Some(amplification(s))
                .filter(|n| n.is_finite())
                .map(Into::into)
        },
    ),
    gauge(
        "kedis_rocksdb_stall",
        "Whether writes wait for compactions: 1, they are slowed down; 2, they are stopped.",
        |s| {
            some(match s.engine.stall() {
                Stall::None => 0u64,
                Stall::Slowed => 1,
                Stall::Stopped => 2,
            })
        },
    ),
    many(
        Counter,
        "kedis_rocksdb_stalls_total",
        &["kind"],
        "How often a DB began to slow writes down, or to stop them.",
        stalls,
    ),
];
