//! Keys, expiry, commits, the disk, the binlog, the value log and saves.

use super::super::samples::Kind::{Counter, Gauge};
use super::super::samples::Samples;
use super::super::scrape::Scrape;
use super::{Metric, counter, gauge, many, seconds, some};
use crate::encoding::system::Counts;
use crate::storage::engine::waiting::waiting_reads;
use crate::storage::{corruptions, tables_aside};

/// Most DBs that have samples of their own.
const MOST_DBS: usize = 1024;
/// Most dead collections that are counted.
const BACKLOG_COUNTED: usize = 1000;

/// A sample for each DB with keys.
fn each_db(scrape: &Scrape<'_>, to: &mut Samples, of: impl Fn(&Counts) -> u64) {
    let counts = scrape.keyspaces.iter().map(|(db, ks)| (db, ks.counts()));
    let with_keys = counts.filter(|(_, counts)| counts.keys > 0);
    for (db, counts) in with_keys.take(MOST_DBS) {
        to.add(&[("db", itoa::Buffer::new().format(db.0))], of(&counts));
    }
}

fn disk_reads(_: &Scrape<'_>, to: &mut Samples) {
    let reads = waiting_reads();
    to.add(&[("thread", "io")], reads.of_io_threads);
    let others = reads.all.saturating_sub(reads.of_io_threads);
    to.add(&[("thread", "other")], others);
}

pub(super) const ROWS: &[Metric] = &[
    many(
        Gauge,
        "kedis_db_keys",
        &["db"],
        "Keys of a DB; for the first 1,024 DBs with keys.",
        |s, to| each_db(s, to, |counts| counts.keys),
    ),
    many(
        Gauge,
        "kedis_db_keys_expiring",
        &["db"],
        "Keys with an expiry time.",
        |s, to| each_db(s, to, |counts| counts.expires),
    ),
    many(
        Gauge,
        "kedis_db_keys_with_timed_elements",
        &["db"],
        "Keys with fields or members that have a time.",
        |s, to| each_db(s, to, |counts| counts.timed),
    ),
    counter(
        "kedis_expired_keys_total",
        "Keys that were deleted because their time was over.",
        |s| some(s.stats.expired_keys.get()),
    )
    .info("expired_keys"),
    counter(
        "kedis_expired_elements_total",
        "Fields and members that were deleted because their time was over.",
        |s| some(s.stats.expired_subkeys.get()),
    )
    .info("expired_subkeys"),
    gauge(
        "kedis_expiry_lag_seconds",
        "For how long a key whose time is over may have waited for the expire thread, at most.",
        |s| some(s.engine.expiry_lag_ms(s.now_ms).0 as f64 / 1000.0),
    ),
    gauge(
        "kedis_element_expiry_lag_seconds",
        "The same for fields and members.",
        |s| some(s.engine.expiry_lag_ms(s.now_ms).1 as f64 / 1000.0),
    ),
    gauge(
        "kedis_reclaim_backlog",
        "Deleted collections whose rows are still to be removed, counted up to 1,000; absent if that \
         would need a read of the disk.",
        |s| {
            let counted = s.engine.reclaim_backlog_in_memory(BACKLOG_COUNTED);
            counted.ok().flatten().map(Into::into)
        },
    ),
    counter(
        "kedis_reclaimed_rows_total",
        "Rows of deleted collections that were removed.",
        |s| some(s.stats.reclaimed_rows.get()),
    )
    .info("reclaimed_rows"),
    counter("kedis_commits_total", "Commits.", |s| {
        some(s.engine.commits())
    })
    .info("total_commits"),
    counter(
        "kedis_commit_bytes_total",
        "Bytes of commits, as they are written to the write-ahead log.",
        |s| some(s.engine.disk.commit_bytes()),
    ),
    gauge(
        "kedis_disk_size_bytes",
        "Size of the file system of the data, or max-disk if that is less.",
        |s| some(s.disk.total),
    )
    .info("disk_total_bytes"),
    gauge(
        "kedis_disk_free_bytes",
        "Free space there, without the reserve.",
        |s| some(s.disk.free),
    )
    .info("disk_free_bytes"),
    gauge(
        "kedis_disk_used_bytes",
        "Space that the database's directory takes, if max-disk bounds it.",
        |s| some(s.disk.used),
    )
    .info("disk_used_bytes"),
    gauge(
        "kedis_disk_max_bytes",
        "The bound of that space (max-disk); 0: none.",
        |s| some(s.disk.quota),
    )
    .info("max_disk"),
    counter(
        "kedis_evicted_keys_total",
        "Keys that were removed because max-disk has no room for them.",
        |s| some(s.stats.evicted_keys.get()),
    )
    .info("evicted_keys"),
    gauge(
        "kedis_disk_reserve_bytes",
        "Space that is allocated for deletions on a full disk.",
        |s| some(s.disk.reserve),
    )
    .info("disk_reserve_bytes"),
    gauge(
        "kedis_disk_low",
        "Whether commands that add data are refused for want of space.",
        |s| some(s.engine.disk.is_low()),
    )
    .info("disk_low"),
    gauge(
        "kedis_disk_failed",
        "Whether writes are refused because one has failed.",
        |s| some(s.engine.has_failed()),
    ),
    counter(
        "kedis_storage_corruptions_total",
        "Reads of the disk that returned other data than were written.",
        |_| some(corruptions().count()),
    )
    .info("storage_corruptions"),
    gauge(
        "kedis_storage_tables_aside",
        "Tables with unreadable blocks that no compaction uses.",
        |_| some(tables_aside().len()),
    ),
    many(
        Counter,
        "kedis_disk_reads_total",
        &["thread"],
        "Reads of tables that may have waited for the disk, on IO threads and on others.",
        disk_reads,
    ),
    gauge(
        "kedis_parked_commands",
        "Commands that wait for reads of the disk.",
        |s| some(s.readers.parked),
    )
    .info("parked_commands"),
    counter(
        "kedis_parked_rounds_total",
        "How often a command has waited for reads of the disk.",
        |s| some(s.readers.rounds),
    )
    .info("total_parked_commands"),
    counter(
        "kedis_parked_reads_total",
        "Reads for such commands.",
        |s| some(s.readers.reads),
    )
    .info("total_parked_reads"),
    counter(
        "kedis_parked_seconds_total",
        "Time that commands have waited for them.",
        |s| seconds(s.readers.us),
    ),
    gauge("kedis_wal_bytes", "Size of the write-ahead log.", |s| {
        some(s.disk.log)
    })
    .info("wal_bytes"),
    gauge(
        "kedis_binlog_enabled",
        "Whether commits are logged for replicas.",
        |s| some(s.engine.binlog.is_enabled()),
    )
    .info("binlog_enabled"),
    gauge(
        "kedis_binlog_first_position",
        "Position of the first byte that the binlog has.",
        |s| some(s.binlog.first_position.0),
    )
    .info("binlog_first_position"),
    gauge(
        "kedis_binlog_next_position",
        "Position that the next byte will have.",
        |s| some(s.binlog.next_position.0),
    )
    .info("binlog_next_position"),
    gauge("kedis_binlog_bytes", "Bytes of the binlog.", |s| {
        some(s.binlog.next_position.since(s.binlog.first_position))
    })
    .info("binlog_bytes"),
    gauge(
        "kedis_binlog_max_bytes",
        "The parameter `binlog-max-bytes`.",
        |s| some(s.config.binlog_bytes()),
    )
    .info("binlog_max_bytes"),
    gauge("kedis_binlog_entries", "Entries of the binlog.", |s| {
        some(s.binlog.next_entry.saturating_sub(s.binlog.first_entry))
    })
    .info("binlog_entries"),
    gauge(
        "kedis_binlog_capacity_entries",
        "The parameter `binlog-capacity`.",
        |s| some(s.config.binlog_capacity),
    )
    .info("binlog_capacity"),
    gauge("kedis_value_log_bytes", "Size of the value log.", |s| {
        some(s.engine.value_log_bytes())
    })
    .info("value_log_bytes"),
    counter(
        "kedis_value_log_appended_bytes_total",
        "Bytes of strings that were appended to the value log.",
        |s| some(s.engine.value_log_appended()),
    )
    .info("value_log_appended_bytes"),
    counter(
        "kedis_value_log_moved_bytes_total",
        "Bytes of values that were written again so that old segments could be removed.",
        |s| some(s.stats.value_log_moved_bytes.get()),
    )
    .info("value_log_moved_bytes"),
    counter(
        "kedis_value_log_collected_bytes_total",
        "Bytes of old segments of the value log that were gone through so that they could be removed.",
        |s| some(s.stats.value_log_collected_bytes.get()),
    )
    .info("value_log_collected_bytes"),
    gauge(
        "kedis_save_running",
        "Whether a copy is being written (SAVE, BGSAVE).",
        |s| some(s.server.saves.running_s().is_some()),
    )
    .info("rdb_bgsave_in_progress"),
    gauge(
        "kedis_save_last_success_timestamp_seconds",
        "When the last copy was complete, or the server started, in seconds since 1970.",
        |s| some(s.server.saves.last_s()),
    )
    .info("rdb_last_save_time"),
    gauge("kedis_save_failed", "Whether the last copy failed.", |s| {
        some(s.server.saves.last_failed())
    }),
    gauge("kedis_save_changes", "Changes since the last copy.", |s| {
        let changes = s.engine.writes();
        some(changes.saturating_sub(s.server.saves.saved_writes()))
    })
    .info("rdb_changes_since_last_save"),
];
