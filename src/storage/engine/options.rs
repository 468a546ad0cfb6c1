//! How RocksDB is set up: one memory budget over block cache and memtables,
//! Bloom filters with a prefix extractor over `tag ‖ id`, LZ4 above and ZSTD in
//! the last level.
//!
//! A commit is in the WAL, and the operating system has it, before it is in the memtable:
//! what the WAL does not take nobody reads, and nothing has to be taken back. RocksDB
//! could keep the WAL in a buffer until somebody flushes it, but it knows no way back when
//! that flush fails.

use crate::encoding::keys::ELEMENT_PREFIX_LEN;
use crate::storage::engine::disk::Disk;
use crate::storage::memtable::MemtableRep;
use crate::storage::{Result, rot};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options,
    SliceTransform, WriteBufferManager,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The table cache's shards are eight.
const TABLE_CACHE_SHARD_BITS: i32 = 3;

/// What the storage needs to know of the configuration. Sizes in bytes.
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// The directory of the database.
    pub dir: PathBuf,
    /// How many DBs there are.
    pub databases: u16,
    /// Memory for block cache and memtables together.
    pub memory_budget: u64,
    /// Share of it for the row cache, in percent.
    pub hot_rows_percent: u32,
    /// Share of the rest that memtables may not take, in percent.
    pub block_cache_percent: u32,
    /// The WAL is bounded so that a start replays at most this much.
    pub max_total_wal_size: u64,
    /// Files are synced in steps of this size while they are written.
    pub bytes_per_sync: u64,
    /// Whether RocksDB counts what it does.
    pub statistics: bool,
    /// What rows of DBs stand in until they are written to files.
    pub memtable: MemtableRep,
    /// Size of one memtable, if so much is to be had. What is written again before it is
    /// full goes to a file once, and compactions have the less to do the larger these
    /// are: see [`crate::storage::memtable`].
    pub write_buffer_size: u64,
    /// Memtables per column family.
    pub max_write_buffer_number: u32,
    /// Size of a table file of the first level.
    pub target_file_size: u64,
    /// Rows whose value is at least this long leave it in a file of its own kind, which
    /// compactions do not write anew each time; 0 for none.
    pub min_blob_size: u64,
    /// Size of an uncompressed block.
    pub block_size: u64,
    /// Bits per key of the Bloom filters.
    pub bloom_bits: f64,
    /// Threads for flushes and compactions.
    pub max_background_jobs: u32,
    /// Their niceness, 0 to 19. Where all processors are busy, they get a share
    /// that keeps up with writes but does not hold up replies; with 19 they fall
    /// so far behind that writes stall.
    pub background_nice: u32,
    /// Write rate of flushes and compactions per second; 0 for no limit.
    pub rate_limit: u64,
    /// Open table files; −1 for all.
    pub max_open_files: i32,
    /// DBs that may be made until the next start, each of which keeps one file
    /// descriptor; those of a full sync besides those they replace.
    pub max_new_families: u32,
    /// Compression of the upper levels.
    pub compression: Compression,
    /// Compression of the last level.
    pub bottommost_compression: Compression,
    /// Whether commits write binlog rows.
    pub binlog_enabled: bool,
    /// Strings up to this size stand in their meta row.
    pub string_inline_max: usize,
    /// Collections up to this many body bytes stay packed in their meta row.
    pub packed_max_bytes: usize,
    /// Collections up to this many elements stay packed in their meta row.
    pub packed_max_entries: usize,
    /// New collections of at least this many bytes are written before the commit
    /// that makes them reachable.
    pub ahead_bytes: usize,
    /// Open the database also if that loses a part of the log that was acknowledged.
    pub accept_data_loss: bool,
    /// Disk space that deletions live on when there is no other; 0 for none.
    pub disk_reserve: u64,
    /// Sets further options of RocksDB, for the database and for each DB.
    #[cfg(test)]
    pub more_options: fn(&mut Options),
}

impl StorageConfig {
    /// The defaults, for a database at `dir`.
    pub fn new(dir: PathBuf) -> Self {
        StorageConfig {
            dir,
            databases: 16,
            memory_budget: 512 << 20,
            hot_rows_percent: 10,
            block_cache_percent: 70,
            max_total_wal_size: 256 << 20,
            bytes_per_sync: 1 << 20,
            statistics: false,
            memtable: MemtableRep::BTree,
            write_buffer_size: 96 << 20,
            max_write_buffer_number: 4,
            target_file_size: 64 << 20,
            min_blob_size: 0,
            block_size: 8 << 10,
            bloom_bits: 10.0,
            max_background_jobs: 2,
            background_nice: 10,
            rate_limit: 0,
            max_open_files: -1,
            max_new_families: u32::MAX,
            compression: Compression::Lz4,
            bottommost_compression: Compression::Zstd,
            binlog_enabled: true,
            string_inline_max: 16 << 10,
            packed_max_bytes: 1 << 10,
            packed_max_entries: 64,
            ahead_bytes: 1 << 20,
            accept_data_loss: false,
            disk_reserve: 0,
            #[cfg(test)]
            more_options: |_| (),
        }
    }
}

impl StorageConfig {
    /// How much of a memory budget is for the row cache, in bytes.
    pub fn row_cache_bytes(&self, budget: u64) -> u64 {
        budget / 100 * u64::from(self.hot_rows_percent.min(90))
    }

    /// How much of a memory budget is for ranks, in bytes: two thousand rows of
    /// a large sorted set take about one KiB.
    pub fn rank_index_bytes(&self, budget: u64) -> u64 {
        budget / 128
    }

    /// What is left of it for the block cache and the memtables, in bytes.
    pub fn cache_bytes(&self, budget: u64) -> u64 {
        budget - self.row_cache_bytes(budget) - self.rank_index_bytes(budget)
    }

    /// How much of that is for memtables, in bytes.
    pub fn memtable_bytes(&self, budget: u64) -> u64 {
        self.cache_bytes(budget) / 100 * u64::from(100 - self.block_cache_percent.min(95))
    }

    /// Size of one memtable, in bytes: while one is written out, another has room.
    pub fn memtable_size(&self, budget: u64) -> u64 {
        self.write_buffer_size.min(self.memtable_bytes(budget) / 2)
    }

    /// The share of a memtable that RocksDB's Bloom filter takes from the start, where the
    /// memtable has none of its own: some 20 bits for a key of 100 bytes. It is less where
    /// there are many DBs: the filters of memtables without rows take no more than a
    /// sixteenth of the memory for all memtables.
    fn memtable_filter_share(&self, budget: u64) -> f64 {
        let most = self.memtable_bytes(budget) / 16 / u64::from(self.databases.max(1));
        (most as f64 / self.memtable_size(budget).max(1) as f64).min(0.02)
    }
}

/// How table files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl From<Compression> for DBCompressionType {
    fn from(c: Compression) -> Self {
        match c {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
            Compression::Zstd => DBCompressionType::Zstd,
        }
    }
}

/// The options of the database and of its column families, sharing one cache.
pub struct RocksOptions {
    /// Options of the database itself.
    pub db: Options,
    /// The cache of data, index and filter blocks, charged for memtables too.
    pub cache: Cache,
    /// The memory of all memtables.
    pub memtables: WriteBufferManager,
    config: StorageConfig,
    /// The start has no room to write tables: all of the WAL is to stay in memtables.
    little_room: AtomicBool,
}

/// Size of a memtable of the server's own rows, in bytes.
const OWN_MEMTABLE: usize = 4 << 20;
/// Size of a memtable of the binlog, in bytes.
const BINLOG_MEMTABLE: usize = 32 << 20;
/// The WAL takes this part of the whole disk at the most, but for so many bytes: it goes
/// only when the last of the memtables is written that it is for.
const WAL_PART: u64 = 16;
const SMALLEST_WAL: u64 = 4 << 20;
/// A start that writes no tables takes less, in bytes.
pub(in crate::storage) const SMALL_START: u64 = 16 << 20;

impl RocksOptions {
    /// Options for this configuration, with files on this disk.
    ///
    /// # Errors
    /// RocksDB does not know an option that has no setter.
    pub(in crate::storage) fn new(config: &StorageConfig, disk: &Arc<Disk>) -> Result<Self> {
        let budget = config.memory_budget;
        let cache = Cache::new_hyper_clock_cache(config.cache_bytes(budget) as usize, 0);
        // It has memtables written out, but does not let writers wait for that.
        let manager = WriteBufferManager::new_write_buffer_manager_with_cache(
            config.memtable_bytes(budget) as usize,
            false,
            cache.clone(),
        );
        let mut db = Options::default();
        db.create_if_missing(true);
        db.create_missing_column_families(true);
        db.set_write_buffer_manager(&manager);
        db.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        let of_disk = (disk.figures().total / WAL_PART).max(SMALLEST_WAL);
        db.set_max_total_wal_size(config.max_total_wal_size.min(of_disk));
        db.set_max_background_jobs(config.max_background_jobs.max(2) as i32);
        db.set_max_open_files(config.max_open_files);
        // Each shard of the table cache holds one file more than its part at the most, and
        // RocksDB leaves ten of the bound for others: with so few, it is one.
        db.set_table_cache_num_shard_bits(TABLE_CACHE_SHARD_BITS);
        db.set_bytes_per_sync(config.bytes_per_sync);
        db.set_wal_bytes_per_sync(config.bytes_per_sync);
        if config.statistics {
            db.enable_statistics();
        }
        db.set_keep_log_file_num(4);
        db.set_max_log_file_size(16 << 20);
        db.set_stats_dump_period_sec(0);
        db.set_skip_stats_update_on_db_open(true);
        db.set_enable_pipelined_write(false);
        // The memtable of DBs takes rows from one thread at a time.
        db.set_allow_concurrent_memtable_write(false);
        if config.rate_limit > 0 {
            db.set_ratelimiter(config.rate_limit as i64, 100_000, 10);
        }
        // What counts is in the WAL, or was flushed by whoever wrote it around the WAL.
        // And the server itself sees to errors that go away, see `Engine::heal`.
        let rot = rot::option();
        let mut more = format!("avoid_flush_during_shutdown=true;max_bgerror_resume_count=0;{rot}");
        let found = disk.figures();
        let little_room = disk.is_low() || found.free < 2 * found.log + SMALL_START;
        if little_room {
            // The WAL that is replayed stays.
            more += ";avoid_flush_during_recovery=true";
        }
        let mut db = db.get_options_from_string(more)?;
        #[cfg(test)]
        (config.more_options)(&mut db);
        // After that: options made of a string do not keep it.
        db.set_env(&disk.env());
        Ok(RocksOptions {
            db,
            cache,
            memtables: manager,
            config: config.clone(),
            little_room: AtomicBool::new(little_room),
        })
    }

    /// Options of a column family that holds a DB, with this memory budget.
    ///
    /// # Errors
    /// RocksDB does not know an option that has no setter, or an option is set that the
    /// memtable excludes.
    pub fn keyspace(&self, budget: u64) -> Result<Options> {
        let mut options = self.column_family();
        self.set_memtable(&mut options, self.config.memtable_size(budget) as usize);
        self.add_blobs(&mut options);
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(ELEMENT_PREFIX_LEN));
        // Walks and samples pass the tombstones of deleted rows one by one: a table
        // file with a stretch where every other row is such a tombstone is compacted soon.
        options.add_compact_on_deletion_collector_factory(256, 128, 0.5);
        let memtable = self.config.memtable;
        let more = memtable.option(self.config.memtable_filter_share(budget));
        #[cfg_attr(not(test), expect(unused_mut))]
        let mut options = options.get_options_from_string(more)?;
        #[cfg(test)]
        (self.config.more_options)(&mut options);
        memtable.check(&self.db, &options)?;
        Ok(options)
    }

    /// Long values in blob files, if they are wanted. Compactions move what is still used
    /// out of the older half of these files, and out of those of which half is not: no
    /// more space is taken then, with a quarter instead up to twice as much.
    ///
    /// SETs of 10 KB in 100 MB take 0.6 of the processor time that they take without, of
    /// 100 KB in 1 GB 0.7. But there is a price that grows with the data: a compaction
    /// that meets all keys copies half of the values. So it is for whoever asks for it.
    fn add_blobs(&self, options: &mut Options) {
        options.set_enable_blob_files(self.config.min_blob_size > 0);
        options.set_min_blob_size(self.config.min_blob_size);
        options.set_blob_file_size(self.config.target_file_size);
        options.set_blob_compression_type(self.config.compression.into());
        options.set_blob_cache(&self.cache);
        // Also where there are such files from before.
        options.set_enable_blob_gc(true);
        options.set_blob_gc_age_cutoff(0.5);
        options.set_blob_gc_force_threshold(0.5);
    }

    /// Options of `default`: a handful of rows, one of them rewritten by every commit.
    pub fn system_rows(&self) -> Options {
        let mut options = self.column_family();
        self.set_memtable(&mut options, OWN_MEMTABLE);
        options
    }

    /// Options of `binlog`: written in order, read in order, dropped in order.
    pub fn binlog(&self) -> Options {
        let mut options = self.column_family();
        options.set_compression_type(self.config.compression.into());
        options.set_bottommost_compression_type(self.config.compression.into());
        // Files follow on each other, so they are moved down, not merged; in level 0
        // they could not be dropped.
        options.set_level_zero_file_num_compaction_trigger(1);
        self.set_memtable(&mut options, BINLOG_MEMTABLE);
        options
    }

    /// A full memtable is written out, also while the WAL is replayed.
    fn set_memtable(&self, options: &mut Options, bytes: usize) {
        let most = 2 * self.config.max_total_wal_size as usize;
        options.set_write_buffer_size(match self.little_room.load(Ordering::Relaxed) {
            true => bytes.max(most),
            false => bytes,
        });
    }

    /// There is room again: the sizes of memtables, in bytes, that column families of the
    /// server's own rows, of the binlog and of DBs are to have now, if they have others.
    pub(in crate::storage) fn end_little_room(&self, budget: u64) -> Option<[usize; 3]> {
        let had_little = self.little_room.swap(false, Ordering::Relaxed);
        let of_dbs = self.config.memtable_size(budget) as usize;
        had_little.then_some([OWN_MEMTABLE, BINLOG_MEMTABLE, of_dbs])
    }

    fn column_family(&self) -> Options {
        let config = &self.config;
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_block_size(config.block_size as usize);
        table.set_bloom_filter(config.bloom_bits, false);
        table.set_whole_key_filtering(true);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_index_type(BlockBasedIndexType::BinarySearch);
        table.set_format_version(6);
        table.set_optimize_filters_for_memory(true);
        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        // Little for a DB with few rows.
        options.set_arena_block_size(256 << 10);
        options.set_max_write_buffer_number(config.max_write_buffer_number as i32);
        // As much as the next level may hold: merging less into it writes more.
        options.set_level_zero_file_num_compaction_trigger(8);
        options.set_target_file_size_base(config.target_file_size);
        options.set_max_bytes_for_level_base(config.target_file_size * 4);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(config.compression.into());
        options.set_bottommost_compression_type(config.bottommost_compression.into());
        // On blocks of this size the default level saves less than a percent more, and
        // takes a quarter longer (measured on descriptions of packages).
        let (window_bits, level, strategy, dictionary_bytes) = (-14, 1, 0, 0);
        options.set_bottommost_compression_options(
            window_bits,
            level,
            strategy,
            dictionary_bytes,
            true,
        );
        options
    }
}
