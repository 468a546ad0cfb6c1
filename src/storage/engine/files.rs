//! The engine's files: flushes of memtables, compaction, checkpoints, and RocksDB's properties.

use super::families::is_family;
use super::snapshot::KeepFiles;
use super::values;
use super::{BINLOG, ColumnFamily, Db, Engine, Keyspace};
use crate::storage::engine::options::SMALL_START;
use crate::storage::engine::waiting::is_io_thread;
use crate::storage::engine::wal::marks;
use crate::storage::{Result, memtable, rot};
use rocksdb::FlushOptions;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// At least the block cache's share divided by this is for blocks, whatever clients need.
const BLOCKS_AT_LEAST: u64 = 16;

/// How often RocksDB copies the longest key of a table while it writes the table, besides the
/// memtable: it compares rows with it, puts it into a block, compresses that, and keeps it as a bound
/// of the file: eight times, and that of a meta row, which may be both bounds, thirteen times. A
/// compaction may write such a table at the same time.
pub(in crate::storage) const KEY_COPIES: usize = 2 * 8;
pub(in crate::storage) const META_KEY_COPIES: usize = 2 * 13;

/// How long a thread waits at most for tables.
const TABLES_WAIT: Duration = Duration::from_secs(8);
/// How soon it looks again meanwhile: other memory may be freed, too.
const TABLES_CHECK: Duration = Duration::from_millis(20);

/// A memtable of more bytes may be written out before it is full.
pub(super) const WORTH_A_FILE: u64 = 1 << 20;

/// Whether a directory is what [`Engine::checkpoint`] writes, and nothing besides.
pub fn is_copy(path: &Path) -> bool {
    let Ok(families) = Db::list_cf(&rocksdb::Options::default(), path) else {
        return false;
    };
    let Ok(mut entries) = path.read_dir() else {
        return false;
    };
    families.iter().any(|name| name == BINLOG)
        && families.iter().all(|name| is_family(name))
        && entries.all(|entry| {
            let Ok(path) = entry.map(|entry| entry.path()) else {
                return false;
            };
            let name = path.file_name().and_then(|name| name.to_str());
            match name {
                Some(values::DIR) => values::is_of_segments(&path),
                name => name.is_some_and(is_file_of_copy),
            }
        })
}

/// Whether a file of a checkpoint can have this name.
pub(super) fn is_file_of_copy(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbered = ["MANIFEST-", "OPTIONS-"];
    let of_kind = [".sst", ".blob", ".log"];
    ["CURRENT", "IDENTITY", marks::NAME, values::LIST].contains(&name)
        || numbered
            .iter()
            .any(|head| name.strip_prefix(head).is_some_and(is_number))
        || of_kind
            .iter()
            .any(|tail| name.strip_suffix(tail).is_some_and(is_number))
}

impl Engine {
    /// Writes a consistent copy of the database to `path`, which must not exist.
    pub fn checkpoint(&self, path: &Path) -> Result<()> {
        // What the copied rows refer to must stay until it is copied, too.
        let _kept = KeepFiles::for_copy(self);
        self.sync_wal()?;
        let checkpoint = rocksdb::checkpoint::Checkpoint::new(&self.db)?;
        checkpoint.create_checkpoint(path)?;
        self.values.add_to_copy(path)?;
        // So that the start of an incomplete copy detects what is missing.
        marks::add_to_copy(path)
    }

    /// Syncs what the next start relies on to miss files: the marks that say how far the log is synced,
    /// and the list of the segments of the value log.
    ///
    /// # Errors
    /// The sync fails.
    pub fn sync_marks(&self) -> Result<()> {
        self.marks.sync()?;
        Ok(self.values.list()?)
    }

    /// Makes all that was written durable, before the process ends.
    ///
    /// # Errors
    /// A sync fails.
    pub fn sync_at_end(&self) -> Result<()> {
        // The lengths of segments that get no more records are listed.
        self.values.roll();
        self.sync_wal()?;
        self.values.sync()?;
        if let Err(error) = self.sync_marks() {
            log::warn!(
                "all is written, but the next start may not notice files that are lost: {error}"
            );
        }
        Ok(())
    }

    /// Flushes all memtables, so that the next start has no WAL to replay.
    pub fn flush_memtables(&self) -> Result<()> {
        self.sync_wal()?;
        self.flush_families(&self.all_families())
    }

    /// Begins to write memtables out, without waiting, if they take more than their share, or if
    /// memory stays reserved for their tables.
    pub fn relieve_memtables(&self) -> Result<()> {
        let (used, share) = self.memtable_usage();
        match used <= share && self.reserved_for_tables() == 0 {
            true => Ok(()),
            false => self.begin_flush(WORTH_A_FILE),
        }
    }

    /// Notes that rows are in memtables whose keys will take so much memory when their tables are
    /// written. It stays reserved for that.
    pub(in crate::storage) fn reserve_for_tables(&self, bytes: usize) {
        self.memory.for_tables.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Asks the memory thread to have the memtables written out, if that frees memory.
    pub fn ask_for_tables(&self) {
        self.memory.wants_tables.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for since the last call.
    pub fn is_asked_for_tables(&self) -> bool {
        let wants = &self.memory.wants_tables;
        wants.load(Ordering::Relaxed) && wants.swap(false, Ordering::Relaxed)
    }

    /// Ends that reservation once the memtables of DBs are too small to hold such a key.
    pub fn end_reservation_for_tables(&self) {
        let reserved = self.memory.for_tables.load(Ordering::Relaxed);
        if reserved == 0 {
            return;
        }
        let size_of = |cf| {
            let size = "rocksdb.cur-size-all-mem-tables";
            self.db.property_int_value_cf(cf, size).ok().flatten()
        };
        let sizes = self.families();
        let size: u64 = sizes.iter().filter_map(size_of).sum();
        if size < (reserved / META_KEY_COPIES) as u64 {
            // Unless a longer one was noted meanwhile.
            let (for_tables, relaxed) = (&self.memory.for_tables, Ordering::Relaxed);
            let _ = for_tables.compare_exchange(reserved, 0, relaxed, relaxed);
        }
    }

    /// The memory that the keys in memtables will take when their tables are written, if some are
    /// long, in bytes.
    pub fn reserved_for_tables(&self) -> u64 {
        self.memory.for_tables.load(Ordering::Relaxed) as u64
    }

    /// Whether memtables take more than their share. RocksDB takes rows much faster than it writes
    /// tables.
    pub(in crate::storage) fn are_memtables_behind(&self) -> bool {
        let (used, share) = self.memtable_usage();
        used > share && !self.disk.is_low()
    }

    /// Waits, for some seconds at the most, until memtables take no more than their share and `is_left`
    /// says that there is memory.
    ///
    /// # Errors
    /// No table can be begun.
    pub(in crate::storage) fn wait_for_tables(&self, is_left: impl Fn() -> bool) -> Result<()> {
        debug_assert!(!is_io_thread(), "an IO thread would wait for tables");
        let until = Instant::now() + TABLES_WAIT;
        while (self.are_memtables_behind() || !is_left()) && Instant::now() < until {
            match self.are_memtables_behind() {
                true => self.begin_flush(WORTH_A_FILE)?,
                false => self.relieve_memtables()?,
            }
            memtable::wait_for_freed(TABLES_CHECK);
        }
        Ok(())
    }

    /// Begins to write out the memtables of more than so many bytes, without waiting.
    pub(super) fn begin_flush(&self, bytes: u64) -> Result<()> {
        for cf in self.all_families() {
            let active = "rocksdb.cur-size-active-mem-table";
            let active = self.db.property_int_value_cf(&cf, active)?;
            if active.is_some_and(|active| active > bytes) {
                self.begin_flush_of(&cf)?;
            }
        }
        Ok(())
    }

    /// Measures the free space of the disk, see
    /// [`Disk::update`](crate::storage::engine::disk::Disk).
    pub fn look_at_disk(&self) {
        if self.disk.has_refused_compactions() && !self.has_compactions() {
            self.disk.compactions_are_done();
        }
        self.disk.update(|| self.memtable_usage().0 as u64);
    }

    /// Whether compactions run or are pending.
    pub fn has_compactions(&self) -> bool {
        [
            "rocksdb.num-running-compactions",
            "rocksdb.compaction-pending",
        ]
        .iter()
        .any(|name| self.property_sum(name) > 0)
    }

    /// Begins to write memtables out if the disk has little space, so that log files with the same
    /// rows can be deleted.
    ///
    /// # Errors
    /// The flush cannot begin.
    pub fn relieve_disk(&self) -> Result<()> {
        match (self.disk.should_flush(), self.disk.is_low()) {
            (false, _) => Ok(()),
            // A memtable keeps the log files from its oldest row on.
            (true, true) => self.begin_flush(0),
            (true, false) => self.begin_flush(WORTH_A_FILE),
        }
    }

    /// Writes the memtables of one keyspace out.
    pub(in crate::storage) fn flush_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        self.flush_families(std::slice::from_ref(&keyspace.cf))
    }

    /// Writes the memtables of column families out.
    pub(in crate::storage) fn flush_families(&self, cfs: &[ColumnFamily]) -> Result<()> {
        let mut wait = FlushOptions::default();
        wait.set_wait(true);
        for cf in cfs {
            let _between_recoveries = self.between_recoveries();
            self.db.flush_cf_opt(cf, &wait)?;
        }
        Ok(())
    }

    /// The column families of all keyspaces.
    fn families(&self) -> Vec<ColumnFamily> {
        let keyspaces = self.all_keyspaces();
        keyspaces.iter().map(|(_, ks)| ks.cf.clone()).collect()
    }

    /// The column families of all keyspaces, and the engine's own.
    pub(in crate::storage) fn all_families(&self) -> Vec<ColumnFamily> {
        let mut cfs = vec![self.system_cf.clone(), self.binlog_cf.clone()];
        cfs.extend(self.families());
        cfs
    }

    /// Compacts a range of rows, what is in the memtable included.
    pub(in crate::storage) fn compact_rows(&self, keyspace: &Keyspace, from: &[u8], to: &[u8]) {
        let Some(_may) = rot::compaction_of(&self.config.dir) else {
            return;
        };
        let mut options = rocksdb::CompactOptions::default();
        // Other compactions may run meanwhile.
        options.set_exclusive_manual_compaction(false);
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Skip);
        let (from, to) = (Some(from), Some(to));
        self.db
            .compact_range_cf_opt(&keyspace.cf, from, to, &options);
    }

    /// Compacts everything.
    pub fn compact(&self) {
        let Some(_may) = rot::compaction_of(&self.config.dir) else {
            log::warn!(
                "nothing is compacted while a table is put aside because of unreadable blocks"
            );
            return;
        };
        for cf in self.families() {
            let all = None::<&[u8]>;
            self.db.compact_range_cf(&cf, all, all);
        }
    }

    /// Drops the table files of a keyspace that was cleared. The caller has kept all other threads
    /// from writing since the commit that cleared it: files are dropped whatever they hold.
    pub(in crate::storage) fn drop_files(&self, keyspace: &Keyspace) -> Result<()> {
        let size = "rocksdb.total-sst-files-size";
        if self.db.property_int_value_cf(&keyspace.cf, size)? == Some(0) {
            return Ok(());
        }
        let used = self.files_in_use.lock();
        if !used.data_may_go() {
            // Snapshots still read the files; compactions will drop the rows.
            return Ok(());
        }
        // Dropped files do not come back after a crash, so the commit that cleared the keyspace
        // must be durable first.
        self.sync_wal()?;
        self.db
            .delete_file_in_range_cf(&keyspace.cf, &[0x00][..], &[0xFF][..])?;
        keyspace.deletions.ranges.lock().clear();
        Ok(())
    }

    /// A RocksDB property, summed over all column families (`rocksdb.` names).
    pub fn property_sum(&self, name: &str) -> u64 {
        let cfs = self.all_families();
        cfs.iter()
            .filter_map(|cf| self.db.property_int_value_cf(cf, name).ok().flatten())
            .sum()
    }

    /// Table files of one level, over all column families.
    pub fn files_at_level(&self, level: u32) -> u64 {
        let name = format!("rocksdb.num-files-at-level{level}");
        let cfs = self.all_families();
        cfs.iter()
            .filter_map(|cf| self.db.property_value_cf(cf, &name).ok().flatten())
            .filter_map(|text| text.trim().parse::<u64>().ok())
            .sum()
    }

    /// A RocksDB property of the whole database.
    pub fn property(&self, name: &str) -> Option<u64> {
        self.db.property_int_value(name).ok().flatten()
    }

    /// Changes the memory budget of caches and memtables, in bytes.
    ///
    /// # Errors
    /// RocksDB cannot write its options down.
    pub fn set_memory_budget(&self, bytes: u64) -> Result<()> {
        self.memory.budget.store(bytes, Ordering::Relaxed);
        let row_cache_bytes = self.config.row_cache_bytes(bytes);
        self.memory.rows.set_budget(row_cache_bytes);
        self.memory
            .ranks
            .set_budget(self.config.rank_index_bytes(bytes));
        let memtables = self.config.memtable_bytes(bytes);
        self.options.memtables.set_buffer_size(memtables as usize);
        self.limit_cache(u64::MAX);
        let of_dbs = self.config.memtable_size(bytes) as usize;
        let of_binlog = self.config.binlog_memtable_size(bytes) as usize;
        self.set_memtables(std::slice::from_ref(&self.binlog_cf), of_binlog)?;
        self.set_memtables(&self.families(), of_dbs)
    }

    fn set_memtables(&self, cfs: &[ColumnFamily], bytes: usize) -> Result<()> {
        let size = bytes.to_string();
        for cf in cfs {
            self.db
                .set_options_cf(cf, &[("write_buffer_size", size.as_str())])?;
        }
        Ok(())
    }

    /// After a start on a disk without space for tables, gives memtables their usual size once
    /// there is space.
    pub(super) fn restore_memtable_sizes(&self) -> Result<()> {
        // A change of options makes RocksDB write an OPTIONS file.
        if self.disk.is_low() || self.disk.figures().free < SMALL_START {
            return Ok(());
        }
        let Some([own, binlog, dbs]) = self.options.end_little_room(self.memory_budget()) else {
            return Ok(());
        };
        self.set_memtables(std::slice::from_ref(&self.system_cf), own)?;
        self.set_memtables(std::slice::from_ref(&self.binlog_cf), binlog)?;
        self.set_memtables(&self.families(), dbs)
    }

    /// The memory budget of caches and memtables, in bytes.
    pub fn memory_budget(&self) -> u64 {
        self.memory.budget.load(Ordering::Relaxed)
    }

    /// Sets the capacity of the block cache, at least half of its share of the budget and at most
    /// all of it. Blocks above a smaller capacity are evicted as others are added.
    pub fn limit_cache(&self, bytes: u64) {
        let share = self.cache_size();
        let limit = bytes.clamp(share / 2, share);
        self.memory.cache_limit.store(limit, Ordering::Relaxed);
        // Clones are handles of the one cache.
        let mut cache = self.options.cache.clone();
        cache.set_capacity(limit as usize);
    }

    /// Reserves so many bytes of the block cache's memory for clients, besides those for tables with
    /// long keys.
    pub fn reserve_for_clients(&self, bytes: u64) {
        let bytes = bytes.saturating_add(self.reserved_for_tables());
        self.memory.reserved_for_clients.set(bytes as usize);
    }

    /// Evicts about so many bytes of blocks, if the cache has them. They are reserved until the next
    /// [`Engine::reserve_for_clients`].
    pub fn evict_blocks(&self, bytes: u64) {
        let reserved = self.memory.reserved_for_clients.bytes();
        let others = reserved.saturating_add(self.memtable_usage().0 as u64);
        let blocks = self.cache_taken().saturating_sub(others);
        let reserved = reserved.saturating_add(bytes.min(blocks));
        self.memory.reserved_for_clients.set(reserved as usize);
    }

    /// How much of its share of the budget the block cache can leave to clients, in bytes:
    /// all but what memtables may take, and some for blocks.
    pub fn spare_cache_bytes(&self) -> u64 {
        self.spare_beside(self.config.memtable_bytes(self.memory_budget()))
    }

    /// The same with what memtables take now, if that is more than they may, and what tables with
    /// long keys will take.
    pub fn spare_cache_now(&self) -> u64 {
        let may = self.config.memtable_bytes(self.memory_budget());
        let memtables = may.max(self.memtable_usage().0 as u64);
        self.spare_beside(memtables.saturating_add(self.reserved_for_tables()))
    }

    fn spare_beside(&self, memtables: u64) -> u64 {
        let share = self.cache_size();
        share.saturating_sub(memtables + share / BLOCKS_AT_LEAST)
    }

    /// The capacity of the block cache now, in bytes.
    pub fn cache_limit(&self) -> u64 {
        self.memory.cache_limit.load(Ordering::Relaxed)
    }

    /// Bytes that all memtables take, and how many they should take at the most.
    pub(in crate::storage) fn memtable_usage(&self) -> (usize, usize) {
        let memtables = &self.options.memtables;
        (memtables.get_usage(), memtables.get_buffer_size())
    }

    /// Bytes in the block cache, and its share of the budget.
    pub fn cache_usage(&self) -> (u64, u64) {
        let usage = self.options.cache.get_usage() as u64;
        let reserved = self.memory.reserved_for_clients.bytes();
        (usage.saturating_sub(reserved), self.cache_size())
    }

    /// Bytes in the block cache, including those that are reserved for clients.
    pub fn cache_taken(&self) -> u64 {
        self.options.cache.get_usage() as u64
    }

    /// The block cache's share of the budget, in bytes.
    pub(in crate::storage) fn cache_size(&self) -> u64 {
        self.config.cache_bytes(self.memory_budget())
    }

    /// The number of rows in the row cache, and their bytes.
    pub fn row_cache_usage(&self) -> (u64, u64) {
        self.memory.rows.usage()
    }

    /// Bytes of the row cache.
    pub fn row_cache_bytes(&self) -> u64 {
        self.memory.rows.bytes()
    }

    /// The number of rank indexes, and their bytes.
    pub fn rank_index_usage(&self) -> (u64, u64) {
        self.memory.ranks.usage()
    }
}
