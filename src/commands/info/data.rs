//! INFO sections about the data and how it is stored.

use super::Text;
use crate::state::Server;
use crate::storage::engine::figures::LEVELS;
use crate::storage::engine::waiting::waiting_reads;
use crate::storage::{corruptions, tables_aside};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Maximum number of dead collections that are counted.
const BACKLOG_COUNTED: usize = 10_000;

/// A duration or a time in seconds, −1 for none.
fn or_never(seconds: Option<u64>) -> i64 {
    seconds.map_or(-1, |s| s as i64)
}

fn status(failed: bool) -> &'static str {
    if failed { "err" } else { "ok" }
}

pub(super) fn persistence(text: &mut Text, server: &Server) {
    let saves = &server.saves;
    let running_s = saves.running_s();
    let changes = server.engine.writes().saturating_sub(saves.saved_writes());
    let loading = server.loading.progress();
    text.field("loading", u8::from(loading.is_some()));
    text.constants(&[
        ("async_loading", "0"),
        ("current_cow_peak", "0"),
        ("current_cow_size", "0"),
        ("current_cow_size_age", "0"),
        ("current_fork_perc", "0.00"),
        ("current_save_keys_processed", "0"),
        ("current_save_keys_total", "0"),
    ]);
    text.field("rdb_changes_since_last_save", changes);
    text.field("rdb_bgsave_in_progress", u8::from(running_s.is_some()));
    text.field("rdb_last_save_time", saves.last_s());
    text.field("rdb_last_bgsave_status", status(saves.last_failed()));
    text.field(
        "rdb_last_bgsave_time_sec",
        or_never(saves.last_duration_s()),
    );
    text.field("rdb_current_bgsave_time_sec", or_never(running_s));
    text.field("rdb_saves", saves.count());
    text.constants(&[("rdb_last_cow_size", "0")]);
    let (loaded, expired) = server.loading.keys();
    text.field("rdb_last_load_keys_expired", expired);
    text.field("rdb_last_load_keys_loaded", loaded);
    text.constants(&[("aof_enabled", "0")]);
    let compacting = server.compacting.load(Ordering::Relaxed);
    text.field("aof_rewrite_in_progress", u8::from(compacting));
    text.constants(&[
        ("aof_rewrite_scheduled", "0"),
        ("aof_last_rewrite_time_sec", "-1"),
        ("aof_current_rewrite_time_sec", "-1"),
        ("aof_last_bgrewrite_status", "ok"),
        ("aof_rewrites", "0"),
        ("aof_rewrites_consecutive_failures", "0"),
    ]);
    let engine = &server.engine;
    let no_room = engine.disk.is_low();
    text.field(
        "aof_last_write_status",
        status(engine.has_failed() || no_room),
    );
    text.constants(&[
        ("aof_last_cow_size", "0"),
        ("module_fork_in_progress", "0"),
        ("module_fork_last_cow_size", "0"),
    ]);
    if let Some(loading) = loading {
        text.field("loading_start_time", loading.started_s);
        text.field("loading_total_bytes", loading.total_bytes);
        text.field("loading_rdb_used_mem", loading.used_memory);
        text.field("loading_loaded_bytes", loading.loaded_bytes);
        text.field(
            "loading_loaded_perc",
            format_args!("{:.2}", loading.percent),
        );
        text.field("loading_eta_seconds", loading.eta_s);
    }
    let disk = engine.disk.figures();
    text.bytes("disk_total_bytes", disk.total);
    text.bytes("disk_free_bytes", disk.free);
    text.bytes("disk_used_bytes", disk.used);
    text.bytes("max_disk", disk.quota);
    text.field(
        "max_disk_policy",
        server.config.load().max_disk_policy.name(),
    );
    text.bytes("disk_reserve_bytes", disk.reserve);
    text.field("disk_low", u8::from(no_room));
    text.bytes("wal_bytes", disk.log);
}

pub(super) fn cluster(text: &mut Text, server: &Server) {
    let enabled = server.config.load().cluster_enabled;
    text.field("cluster_enabled", u8::from(enabled));
}

pub(super) fn keyspace(text: &mut Text, server: &Server) {
    for (db, keyspace) in server.engine.all_keyspaces() {
        let counts = keyspace.counts();
        if counts.keys > 0 {
            // The last two are what Redis and Valkey call the same count.
            text.line(format_args!(
                "db{}:keys={},expires={},avg_ttl=0,subexpiry={timed},keys_with_volatile_items={timed}",
                db.0,
                counts.keys,
                counts.expires,
                timed = counts.timed
            ));
        }
    }
}

/// Names of files, without their directory, in one line.
fn names(files: &[PathBuf]) -> String {
    let names = files.iter().filter_map(|file| file.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    names.join(",")
}

pub(super) fn storage(text: &mut Text, server: &Server) {
    let engine = &server.engine;
    text.field("storage_dir", engine.config.dir.display());
    text.field("storage_format", crate::encoding::FORMAT_VERSION);
    text.field("storage_layout", engine.layout.name());
    let corrupt = corruptions().files();
    let storage_status = match engine.has_failed() {
        true => "err",
        false if corruptions().count() > 0 => "corrupt",
        false => "ok",
    };
    text.field("storage_status", storage_status);
    text.field("storage_corruptions", corruptions().count());
    text.field("storage_corrupt_files", names(&corrupt));
    text.field("storage_tables_aside", names(&tables_aside()));
    text.field("storage_keyspaces", engine.all_keyspaces().len());
    let tables = engine.property_sum("rocksdb.total-sst-files-size");
    let blobs = engine.property_sum("rocksdb.total-blob-file-size");
    let values = engine.value_log_bytes();
    let log = engine.disk.figures().log;
    text.bytes("storage_bytes", tables + blobs + values + log);
    // −1: the rows could not be read, or are not in memory now.
    let backlog = engine.reclaim_backlog_in_memory(BACKLOG_COUNTED);
    let backlog = backlog.ok().flatten().map_or(-1, |count| count as i64);
    text.field("reclaim_backlog", backlog);
    text.field("reclaimed_rows", server.stats.reclaimed_rows.get());
    text.field("value_log_bytes", values);
    text.field(
        "value_log_appended_bytes",
        server.engine.value_log_appended(),
    );
    text.field(
        "value_log_moved_bytes",
        server.stats.value_log_moved_bytes.get(),
    );
    text.field(
        "value_log_collected_bytes",
        server.stats.value_log_collected_bytes.get(),
    );
    text.field(
        "active_expire",
        u8::from(server.active_expire.load(Ordering::Relaxed)),
    );
}

pub(super) fn binlog(text: &mut Text, server: &Server) {
    let binlog = &server.engine.binlog;
    let range = binlog.range();
    text.field("binlog_enabled", u8::from(binlog.is_enabled()));
    text.field("binlog_id", server.engine.replication_id());
    text.field("binlog_first_entry", range.first_entry);
    text.field("binlog_next_entry", range.next_entry);
    let entries = range.next_entry.saturating_sub(range.first_entry);
    text.field("binlog_entries", entries);
    text.field("binlog_first_position", range.first_position);
    text.field("binlog_next_position", range.next_position);
    let bytes = range.next_position.since(range.first_position);
    text.field("binlog_bytes", bytes);
    let config = server.config.load();
    text.field("binlog_capacity", config.binlog_capacity);
    text.field("binlog_max_bytes", config.binlog_bytes());
}

pub(super) fn rocksdb(text: &mut Text, server: &Server) {
    let engine = &server.engine;
    let (rows, bytes) = engine.row_cache_usage();
    text.field("row_cache_rows", rows);
    text.field("row_cache_bytes", bytes);
    let (hits, misses) = engine.row_reads();
    text.field("row_cache_hits", hits);
    text.field("row_cache_misses", misses);
    let (indexes, bytes) = engine.rank_index_usage();
    text.field("rank_indexes", indexes);
    text.field("rank_index_bytes", bytes);
    text.field("memtable", engine.config.memtable.name());
    let (used, share) = engine.cache_usage();
    text.field("block_cache_usage", used);
    text.field("block_cache_capacity", engine.cache_limit());
    text.field("block_cache_share", share);
    let blocks = engine.block_reads();
    if let Some((hits, misses)) = blocks.cached {
        text.field("block_cache_hits", hits);
        text.field("block_cache_misses", misses);
    }
    text.field("block_reads", blocks.reads);
    text.field("block_read_bytes", blocks.read_bytes);
    let work = engine.background_work();
    text.field("flushes", work.flushes);
    text.field("compactions", work.compactions);
    let reads = waiting_reads();
    text.field("disk_reads", reads.all);
    text.field("disk_reads_of_io_threads", reads.of_io_threads);
    let readers = engine.reader_figures();
    text.field("parked_commands", readers.parked);
    text.field("total_parked_commands", readers.rounds);
    text.field("total_parked_reads", readers.reads);
    text.field("total_parked_usec", readers.us);
    for (name, property) in [
        ("memtable_active_bytes", "cur-size-active-mem-table"),
        ("memtable_unflushed_bytes", "cur-size-all-mem-tables"),
        ("memtable_total_bytes", "size-all-mem-tables"),
        ("immutable_memtables", "num-immutable-mem-table"),
        ("flush_pending", "mem-table-flush-pending"),
        ("compaction_pending", "compaction-pending"),
        (
            "pending_compaction_bytes",
            "estimate-pending-compaction-bytes",
        ),
        ("sst_bytes", "total-sst-files-size"),
        ("live_sst_bytes", "live-sst-files-size"),
        ("blob_bytes", "total-blob-file-size"),
        ("live_blob_bytes", "live-blob-file-size"),
        ("blob_files", "num-blob-files"),
        ("live_data_bytes", "estimate-live-data-size"),
        ("table_readers_bytes", "estimate-table-readers-mem"),
        ("estimated_rows", "estimate-num-keys"),
        ("live_versions", "num-live-versions"),
    ] {
        text.field(name, engine.property_sum(&format!("rocksdb.{property}")));
    }
    for (name, property) in [
        ("running_flushes", "num-running-flushes"),
        ("running_compactions", "num-running-compactions"),
        ("writes_stopped", "is-write-stopped"),
        ("delayed_write_rate", "actual-delayed-write-rate"),
        ("background_errors", "background-errors"),
        ("snapshots", "num-snapshots"),
    ] {
        let value = engine.property(&format!("rocksdb.{property}"));
        text.field(name, value.unwrap_or(0));
    }
    text.field("writers_delayed", u8::from(engine.delays_writers()));
    text.field("total_writer_delays", engine.delays());
    for level in 0..LEVELS as u32 {
        text.field(
            &format!("files_at_level_{level}"),
            engine.files_at_level(level),
        );
    }
}
