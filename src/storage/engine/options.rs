//! The options of RocksDB: one memory budget for block cache and memtables, Bloom filters with a
//! prefix extractor over `tag ‖ id`, LZ4 in the upper levels and ZSTD in the last one.
//!
//! A commit is in the WAL, and in the hands of the operating system, before it is in the memtable:
//! a commit that the WAL does not take is never read, and nothing has to be undone. RocksDB can
//! also buffer the WAL until an explicit flush, but cannot undo commits if that flush fails.

use crate::encoding::keys::ELEMENT_PREFIX_LEN;
use crate::storage::engine::disk::Disk;
use crate::storage::engine::figures;
use crate::storage::engine::waiting::no_readahead;
use crate::storage::memtable::MemtableRep;
use crate::storage::{Result, rot};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options,
    SliceTransform, WriteBufferManager,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The binary logarithm of the number of shards of the table cache: eight.
const TABLE_CACHE_SHARD_BITS: i32 = 3;

/// What the database may take of the machine. The server works it out at the start, from
/// the configuration and from what it finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineShare {
    /// Memory for block cache and memtables together, in bytes.
    pub memory_budget_bytes: u64,
    /// Threads for flushes and compactions.
    pub max_background_jobs: u32,
    /// Table files that are kept open; −1 for all.
    pub max_open_files: i32,
    /// Segments of the value log that may stay open for reading.
    pub max_open_segments: usize,
    /// DBs that may be created until the next start, each of which keeps one file descriptor. A
    /// full sync's DBs count in addition to those that they replace.
    pub max_new_families: u32,
}

/// What the storage needs to know of the configuration. Fields have the names that the
/// parameters have in `state::config::Config`, there with `rocksdb_` before those that
/// only RocksDB reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageConfig {
    /// The directory of the database.
    pub dir: PathBuf,
    /// What the database may take of the machine.
    pub machine: MachineShare,
    /// How many DBs there are.
    pub databases: u16,
    /// Whether clients see a node of a cluster.
    pub cluster_enabled: bool,
    /// Share of the memory budget for the row cache, in percent.
    pub row_cache_percent: u32,
    /// Share of the rest that memtables may not take, in percent.
    pub block_cache_percent: u32,
    /// The WAL is bounded so that a start replays at most this much, in bytes.
    pub max_total_wal_size_bytes: u64,
    /// Files are synced in steps of this size, in bytes, while they are written.
    pub bytes_per_sync: u64,
    /// Whether tables are read past the page cache of the operating system.
    pub direct_reads: bool,
    /// Whether RocksDB counts what it does.
    pub statistics: bool,
    /// What rows of DBs stand in until they are written to files.
    pub memtable: MemtableRep,
    /// Size of one memtable in bytes, if so much is to be had. What is written again
    /// before it is full goes to a file once, and compactions have the less to do the
    /// larger these are: see [`crate::storage::memtable`].
    pub write_buffer_size_bytes: u64,
    /// Memtables per column family.
    pub max_write_buffer_number: u32,
    /// Size of a table file of the first level, in bytes.
    pub target_file_size_bytes: u64,
    /// Rows whose value has at least this many bytes leave it in a file of its own kind,
    /// which compactions do not write anew each time; 0 for none.
    pub min_blob_size_bytes: u64,
    /// Size of an uncompressed block, in bytes.
    pub block_size_bytes: u64,
    /// Bits per key of the Bloom filters.
    pub bloom_bits: u32,
    /// Niceness of the threads of flushes and compactions, 0 to 19. They also pause while threads
    /// that serve clients wait for a processor. Where all processors are busy, they get a share
    /// that keeps up with writes but does not hold up replies; with 19 they fall so far behind that
    /// writes stall.
    pub background_nice: u32,
    /// Bytes per second that flushes and compactions write; 0 for no limit.
    pub rate_limit_bytes_per_s: u64,
    /// Compression of the upper levels.
    pub compression: Compression,
    /// Compression of the last level.
    pub bottommost_compression: Compression,
    /// Whether commits write binlog rows.
    pub binlog_enabled: bool,
    /// Strings up to this many bytes stand in their meta row.
    pub string_inline_max_bytes: usize,
    /// Strings of at least this many bytes have their bytes in the value log; 0 for none.
    pub value_log_min_bytes: u64,
    /// Strings that packing makes a quarter shorter have theirs there from this many bytes on.
    pub value_log_packed_min_bytes: u64,
    /// Size of a segment of the value log, in bytes.
    pub value_log_segment_bytes: u64,
    /// Collections up to this many body bytes stay packed in their meta row.
    pub packed_max_bytes: usize,
    /// Collections up to this many elements stay packed in their meta row.
    pub packed_max_entries: usize,
    /// New collections of at least this many bytes are written before the commit
    /// that makes them reachable. Not a parameter.
    pub ahead_bytes: usize,
    /// Open the database even if a part of the acknowledged log is lost thereby. An
    /// option of the command line.
    pub accept_data_loss: bool,
    /// Disk space in bytes that deletions live on when there is no other; 0 for none.
    pub disk_reserve_bytes: u64,
    /// The most space that the database's directory may take, in bytes; 0: no bound.
    pub max_disk_bytes: u64,
    /// Sets further options of RocksDB, for the database and for each DB.
    #[cfg(test)]
    pub more_options: MoreOptions,
}

/// Sets options that no parameter sets.
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default)]
pub struct MoreOptions(pub Option<fn(&mut Options)>);

#[cfg(test)]
impl MoreOptions {
    fn set(self, options: &mut Options) {
        if let Some(set) = self.0 {
            set(options);
        }
    }
}

#[cfg(test)]
impl Eq for MoreOptions {}

#[cfg(test)]
impl PartialEq for MoreOptions {
    fn eq(&self, other: &Self) -> bool {
        self.0.map(|set| set as usize) == other.0.map(|set| set as usize)
    }
}

impl StorageConfig {
    /// The defaults, for a database at `dir` that may take this of the machine. The table
    /// of parameters takes its defaults from here.
    pub fn new(dir: PathBuf, machine: MachineShare) -> Self {
        StorageConfig {
            dir,
            machine,
            databases: 16,
            cluster_enabled: false,
            row_cache_percent: 10,
            block_cache_percent: 70,
            max_total_wal_size_bytes: 256 << 20,
            bytes_per_sync: 1 << 20,
            direct_reads: false,
            statistics: false,
            memtable: MemtableRep::BTree,
            write_buffer_size_bytes: 96 << 20,
            max_write_buffer_number: 4,
            target_file_size_bytes: 64 << 20,
            min_blob_size_bytes: 0,
            block_size_bytes: 8 << 10,
            bloom_bits: 10,
            background_nice: 10,
            rate_limit_bytes_per_s: 0,
            compression: Compression::Lz4,
            bottommost_compression: Compression::Zstd,
            binlog_enabled: true,
            string_inline_max_bytes: 16 << 10,
            value_log_min_bytes: 1_000,
            value_log_packed_min_bytes: 4 << 10,
            value_log_segment_bytes: 64 << 20,
            packed_max_bytes: 1 << 10,
            packed_max_entries: 64,
            ahead_bytes: 1 << 20,
            accept_data_loss: false,
            disk_reserve_bytes: 128 << 20,
            max_disk_bytes: 0,
            #[cfg(test)]
            more_options: MoreOptions::default(),
        }
    }

    /// What unit tests open a database at `dir` with: the defaults, with little memory
    /// and without a reserve on the disk. A test that needs more than that changes it.
    #[cfg(test)]
    pub fn for_tests(dir: PathBuf) -> Self {
        let machine = MachineShare {
            memory_budget_bytes: 64 << 20,
            max_background_jobs: 2,
            max_open_files: -1,
            max_open_segments: 8,
            max_new_families: u32::MAX,
        };
        let mut config = StorageConfig {
            disk_reserve_bytes: 0,
            // All tests can be run with keys in slots.
            cluster_enabled: std::env::var_os("KEDIS_TEST_SLOTS").is_some(),
            value_log_segment_bytes: 32 << 10,
            value_log_packed_min_bytes: 0,
            ..StorageConfig::new(dir, machine)
        };
        // And with values of so many bytes in the value log.
        let logged = std::env::var("KEDIS_TEST_VALUES").ok();
        if let Some(min) = logged.and_then(|min| min.parse().ok()) {
            config.value_log_min_bytes = min;
            config.value_log_packed_min_bytes = 4 * min;
        }
        config
    }
}

impl StorageConfig {
    /// How much of a memory budget is for the row cache, in bytes.
    pub(super) fn row_cache_bytes(&self, budget: u64) -> u64 {
        budget / 100 * u64::from(self.row_cache_percent.min(90))
    }

    /// How much of a memory budget is for rank indexes, in bytes: two thousand rows of a large
    /// sorted set take about one KiB.
    pub(super) fn rank_index_bytes(&self, budget: u64) -> u64 {
        budget / 128
    }

    /// What is left of a memory budget for the block cache and the memtables, in bytes.
    pub(super) fn cache_bytes(&self, budget: u64) -> u64 {
        budget - self.row_cache_bytes(budget) - self.rank_index_bytes(budget)
    }

    /// How much of [`StorageConfig::cache_bytes`] is for memtables, in bytes.
    pub(super) fn memtable_bytes(&self, budget: u64) -> u64 {
        self.cache_bytes(budget) / 100 * u64::from(100 - self.block_cache_percent.min(95))
    }

    /// Smaller files under a small [quota](StorageConfig::max_disk_bytes): a compaction needs as much
    /// free space as the tables have that it reads, up to eight memtables and the next level.
    pub(in crate::storage) fn within_quota(mut self) -> StorageConfig {
        const PART: u64 = 128;
        const LEAST: u64 = 1 << 20;
        if self.max_disk_bytes > 0 {
            let most = (self.max_disk_bytes / PART).max(LEAST);
            for size in [
                &mut self.write_buffer_size_bytes,
                &mut self.target_file_size_bytes,
                &mut self.value_log_segment_bytes,
            ] {
                *size = most.min(*size);
            }
        }
        self
    }

    /// Size of one memtable, in bytes: two fit, one of which is being written out.
    pub(in crate::storage) fn memtable_size(&self, budget: u64) -> u64 {
        self.write_buffer_size_bytes
            .min(self.memtable_bytes(budget) / 2)
    }

    /// Size of one memtable of the binlog, in bytes.
    pub(in crate::storage) fn binlog_memtable_size(&self, budget: u64) -> u64 {
        BINLOG_MEMTABLE.min(self.memtable_bytes(budget) / 2)
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
    /// The disk had no space for tables at the start: the whole WAL must stay in memtables.
    little_room: AtomicBool,
}

/// Bytes of a table that are written at once.
const WRITTEN_AT_ONCE: usize = 64 << 10;
/// Size of a memtable of the system rows, in bytes.
const OWN_MEMTABLE: usize = 4 << 20;
/// Size of a memtable of the binlog at the most, in bytes.
const BINLOG_MEMTABLE: u64 = 32 << 20;
/// The WAL takes at most the size of the whole disk divided by this, or [`SMALLEST_WAL`] bytes if
/// that is more: a file of it is deleted only when the last memtable with its rows is written.
const WAL_PART: u64 = 16;
const SMALLEST_WAL: u64 = 4 << 20;
/// A start that writes no tables needs less disk space than this, in bytes.
pub(in crate::storage) const SMALL_START: u64 = 16 << 20;

impl RocksOptions {
    /// Options for this configuration, with files on this disk.
    ///
    /// # Errors
    /// RocksDB does not know an option that has no setter.
    pub(in crate::storage) fn new(config: &StorageConfig, disk: &Arc<Disk>) -> Result<Self> {
        let budget = config.machine.memory_budget_bytes;
        let cache = Cache::new_hyper_clock_cache(config.cache_bytes(budget) as usize, 0);
        // The manager triggers flushes, but does not stall writers.
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
        db.set_max_total_wal_size(config.max_total_wal_size_bytes.min(of_disk));
        db.set_max_background_jobs(config.machine.max_background_jobs.max(2) as i32);
        db.set_max_open_files(config.machine.max_open_files);
        // Each shard of the table cache may exceed its part by one file, and RocksDB reserves ten
        // files of the limit for others: with eight shards the excess stays below that.
        db.set_table_cache_num_shard_bits(TABLE_CACHE_SHARD_BITS);
        db.set_bytes_per_sync(config.bytes_per_sync);
        db.set_wal_bytes_per_sync(config.bytes_per_sync);
        db.set_use_direct_reads(config.direct_reads);
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
        if config.rate_limit_bytes_per_s > 0 {
            db.set_ratelimiter(config.rate_limit_bytes_per_s as i64, 100_000, 10);
        }
        // Everything that counts is in the WAL, or was flushed by the code that bypassed it.
        // RocksDB does not resume by itself after errors: `Engine::heal` does.
        let listeners = format!("listeners={}:{}", rot::listener(), figures::listener());
        let mut more =
            format!("avoid_flush_during_shutdown=true;max_bgerror_resume_count=0;{listeners}");
        // A flush or a compaction pauses when it writes.
        more += &format!(";writable_file_max_buffer_size={WRITTEN_AT_ONCE}");
        let found = disk.figures();
        let little_room = disk.is_low() || found.free < 2 * found.log + SMALL_START;
        if little_room {
            // The replayed WAL is kept.
            more += ";avoid_flush_during_recovery=true";
        }
        let mut db = db.get_options_from_string(more)?;
        #[cfg(test)]
        config.more_options.set(&mut db);
        // After `get_options_from_string`, which does not keep it.
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
        // Scans and random samples have to skip the tombstones of deleted rows: a table file with a
        // window where every other row is a tombstone is compacted soon.
        options.add_compact_on_deletion_collector_factory(256, 128, 0.5);
        let memtable = self.config.memtable;
        let mut more = memtable.option(self.config.memtable_filter_share(budget));
        // The last entry of an index has no copy of the last key of the table, which may be long.
        more += ";block_based_table_factory={index_shortening=kShortenSeparatorsAndSuccessor}";
        #[cfg_attr(not(test), expect(unused_mut))]
        let mut options = options.get_options_from_string(more)?;
        #[cfg(test)]
        self.config.more_options.set(&mut options);
        memtable.check(&self.db, &options)?;
        Ok(options)
    }

    /// Puts long values into blob files, if configured. Garbage collection rewrites the older half
    /// of these files, and those of which half is garbage: then no more space is taken than
    /// without, while an age cutoff of a quarter takes up to twice as much.
    ///
    /// SETs of 10 KB into 100 MB take 0.6 of the processor time that they take without blob files,
    /// SETs of 100 KB into 1 GB 0.7. The price grows with the data: a compaction of all keys copies
    /// half of the values. So blob files are off by default.
    fn add_blobs(&self, options: &mut Options) {
        options.set_enable_blob_files(self.config.min_blob_size_bytes > 0);
        options.set_min_blob_size(self.config.min_blob_size_bytes);
        options.set_blob_file_size(self.config.target_file_size_bytes);
        options.set_blob_compression_type(self.config.compression.into());
        options.set_blob_cache(&self.cache);
        // Also if blob files are off now: older ones may exist.
        options.set_enable_blob_gc(true);
        options.set_blob_gc_age_cutoff(0.5);
        options.set_blob_gc_force_threshold(0.5);
    }

    /// Options of `default`: a few rows, one of which every commit rewrites.
    pub fn system_rows(&self) -> Options {
        let mut options = self.column_family();
        self.set_memtable(&mut options, OWN_MEMTABLE);
        options
    }

    /// Options of `binlog`, with this memory budget: written in order, read in order, dropped in order.
    pub fn binlog(&self, budget: u64) -> Options {
        let mut options = self.column_family();
        options.set_compression_type(self.config.compression.into());
        options.set_bottommost_compression_type(self.config.compression.into());
        // Files do not overlap, so compactions move them down instead of merging; in level 0 they
        // could not be dropped.
        options.set_level_zero_file_num_compaction_trigger(1);
        self.set_memtable(
            &mut options,
            self.config.binlog_memtable_size(budget) as usize,
        );
        options
    }

    /// Sets the size of a memtable, which is flushed when it is full, also during WAL replay.
    fn set_memtable(&self, options: &mut Options, bytes: usize) {
        let most = 2 * self.config.max_total_wal_size_bytes as usize;
        options.set_write_buffer_size(match self.little_room.load(Ordering::Relaxed) {
            true => bytes.max(most),
            false => bytes,
        });
    }

    /// Ends the time of little space. Returns the sizes of memtables, in bytes, for the system
    /// rows, the binlog and DBs, or `None` if they have these already.
    pub(in crate::storage) fn end_little_room(&self, budget: u64) -> Option<[usize; 3]> {
        let had_little = self.little_room.swap(false, Ordering::Relaxed);
        let of_dbs = self.config.memtable_size(budget) as usize;
        let of_binlog = self.config.binlog_memtable_size(budget) as usize;
        had_little.then_some([OWN_MEMTABLE, of_binlog, of_dbs])
    }

    fn column_family(&self) -> Options {
        let config = &self.config;
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_block_size(config.block_size_bytes as usize);
        table.set_bloom_filter(f64::from(config.bloom_bits), false);
        table.set_whole_key_filtering(true);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_index_type(BlockBasedIndexType::BinarySearch);
        table.set_format_version(6);
        table.set_optimize_filters_for_memory(true);
        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        no_readahead(&options);
        // Small, for DBs with few rows.
        options.set_arena_block_size(256 << 10);
        options.set_max_write_buffer_number(config.max_write_buffer_number as i32);
        // About the size of the next level: merging less into it costs more write amplification.
        options.set_level_zero_file_num_compaction_trigger(8);
        options.set_target_file_size_base(config.target_file_size_bytes);
        options.set_max_bytes_for_level_base(config.target_file_size_bytes * 4);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(config.compression.into());
        options.set_bottommost_compression_type(config.bottommost_compression.into());
        // With blocks of this size the default level saves less than one percent more, and takes a
        // quarter longer (measured with descriptions of packages).
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
