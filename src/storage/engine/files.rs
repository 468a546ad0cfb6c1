//! The engine's files: writing memtables out, compaction, copies, and what
//! RocksDB says of itself.

use super::{ColumnFamily, Engine, Keyspace};
use crate::storage::Result;
use std::path::Path;
use std::sync::atomic::Ordering;

impl Engine {
    /// Writes a consistent copy of the database to `path`, which must not exist.
    pub fn checkpoint(&self, path: &Path) -> Result<()> {
        self.sync_wal()?;
        rocksdb::checkpoint::Checkpoint::new(&self.db)?.create_checkpoint(path)?;
        Ok(())
    }

    /// Flushes all memtables, so that the next start has no WAL to replay.
    pub fn flush_memtables(&self) -> Result<()> {
        self.sync_wal()?;
        let mut wait = rocksdb::FlushOptions::default();
        wait.set_wait(true);
        let keyspaces = self.all_keyspaces();
        let mut cfs: Vec<&ColumnFamily> = vec![&self.own_cf, &self.binlog_cf];
        cfs.extend(keyspaces.iter().map(|(_, ks)| &ks.cf));
        for cf in cfs {
            self.db.flush_cf_opt(cf, &wait)?;
        }
        Ok(())
    }

    /// Writes the memtable of one keyspace out.
    pub(in crate::storage) fn flush_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        let mut wait = rocksdb::FlushOptions::default();
        wait.set_wait(true);
        Ok(self.db.flush_cf_opt(&keyspace.cf, &wait)?)
    }

    /// Compacts a range of rows, what is in the memtable included.
    pub(in crate::storage) fn compact_rows(&self, keyspace: &Keyspace, from: &[u8], to: &[u8]) {
        let mut options = rocksdb::CompactOptions::default();
        // Others may go on meanwhile.
        options.set_exclusive_manual_compaction(false);
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Skip);
        self.db
            .compact_range_cf_opt(&keyspace.cf, Some(from), Some(to), &options);
    }

    /// Compacts everything.
    pub fn compact(&self) {
        for (_, keyspace) in self.all_keyspaces() {
            self.db
                .compact_range_cf(&keyspace.cf, None::<&[u8]>, None::<&[u8]>);
        }
    }

    /// Drops the table files of a keyspace that was cleared. The caller lets
    /// nobody write since the clearing was committed: files are dropped whatever
    /// they hold.
    pub(in crate::storage) fn drop_files(&self, keyspace: &Keyspace) -> Result<()> {
        let size = "rocksdb.total-sst-files-size";
        if self.db.property_int_value_cf(&keyspace.cf, size)? == Some(0) {
            return Ok(());
        }
        let snapshots = self.snapshots.lock();
        if *snapshots > 0 {
            // They still read what is in the files; compactions will drop it.
            return Ok(());
        }
        // What is dropped does not come back: neither may the rows that say it is there.
        self.sync_wal()?;
        self.db
            .delete_file_in_range_cf(&keyspace.cf, &[0x00][..], &[0xFF][..])?;
        Ok(())
    }

    /// A RocksDB property, summed over all column families (`rocksdb.` names).
    pub fn property_sum(&self, name: &str) -> u64 {
        let keyspaces = self.all_keyspaces();
        let mut cfs: Vec<&ColumnFamily> = vec![&self.own_cf, &self.binlog_cf];
        cfs.extend(keyspaces.iter().map(|(_, ks)| &ks.cf));
        cfs.iter()
            .filter_map(|cf| self.db.property_int_value_cf(*cf, name).ok().flatten())
            .sum()
    }

    /// Table files of one level, over all column families.
    pub fn files_at_level(&self, level: u32) -> u64 {
        let name = format!("rocksdb.num-files-at-level{level}");
        let keyspaces = self.all_keyspaces();
        let mut cfs: Vec<&ColumnFamily> = vec![&self.own_cf, &self.binlog_cf];
        cfs.extend(keyspaces.iter().map(|(_, ks)| &ks.cf));
        cfs.iter()
            .filter_map(|cf| self.db.property_value_cf(*cf, &name).ok().flatten())
            .filter_map(|text| text.trim().parse::<u64>().ok())
            .sum()
    }

    /// A RocksDB property of the whole database.
    pub fn property(&self, name: &str) -> Option<u64> {
        self.db.property_int_value(name).ok().flatten()
    }

    /// A RocksDB property of a DB, as text.
    pub fn property_text(&self, keyspace: &Keyspace, name: &str) -> Option<String> {
        self.db.property_value_cf(&keyspace.cf, name).ok().flatten()
    }

    /// Changes the memory budget of caches and memtables, in bytes.
    pub fn set_memory_budget(&self, bytes: u64) {
        self.budget.store(bytes, Ordering::Relaxed);
        let hot_bytes = self.config.hot_bytes(bytes);
        self.hot.set_budget(hot_bytes);
        // Clones are handles of the one cache.
        let cache_bytes = (bytes - hot_bytes) as usize;
        self.options.cache.clone().set_capacity(cache_bytes);
    }

    /// Bytes that all memtables take, and how many they should take at the most.
    pub fn memtable_usage(&self) -> (usize, usize) {
        let memtables = &self.options.memtables;
        (memtables.get_usage(), memtables.get_buffer_size())
    }

    /// Has full memtables written out that wait for others to be merged with, if
    /// all memtables together take more than their share of the memory budget.
    pub fn bound_memtables(&self) -> Result<()> {
        let (used, share) = self.memtable_usage();
        if used <= share {
            return Ok(());
        }
        let mut at_once = rocksdb::FlushOptions::default();
        at_once.set_wait(false);
        for (_, keyspace) in self.all_keyspaces() {
            let waiting = "rocksdb.num-immutable-mem-table";
            if self.db.property_int_value_cf(&keyspace.cf, waiting)? != Some(0) {
                self.db.flush_cf_opt(&keyspace.cf, &at_once)?;
            }
        }
        Ok(())
    }

    /// Bytes of the block cache that cannot be evicted now.
    pub fn cache_pinned(&self) -> u64 {
        self.options.cache.get_pinned_usage() as u64
    }

    /// Bytes in the block cache, and its size.
    pub fn cache_usage(&self) -> (u64, u64) {
        let used = self.options.cache.get_usage() as u64;
        let budget = self.budget.load(Ordering::Relaxed);
        (used, budget - self.config.hot_bytes(budget))
    }

    /// How many rows are hot, and their bytes.
    pub fn hot_usage(&self) -> (u64, u64) {
        self.hot.usage()
    }
}
