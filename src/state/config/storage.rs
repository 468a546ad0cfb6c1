//! The settings of the storage, from the parameters.

use super::Config;
use crate::storage::StorageConfig;
use crate::storage::engine::options::MachineShare;

impl Config {
    /// What the storage is opened with, where it may take this share of the machine.
    pub fn storage(&self, machine: MachineShare) -> StorageConfig {
        let defaults = StorageConfig::new(self.data_dir(), machine);
        StorageConfig {
            dir: defaults.dir,
            machine: defaults.machine,
            databases: self.databases,
            cluster_enabled: self.cluster_enabled,
            row_cache_percent: self.row_cache_percent,
            block_cache_percent: self.rocksdb_block_cache_percent,
            max_total_wal_size_bytes: self.rocksdb_max_total_wal_size_bytes,
            bytes_per_sync: self.rocksdb_bytes_per_sync,
            direct_reads: self.rocksdb_direct_reads,
            statistics: self.rocksdb_statistics,
            memtable: self.rocksdb_memtable,
            write_buffer_size_bytes: self.rocksdb_write_buffer_size_bytes,
            max_write_buffer_number: self.rocksdb_max_write_buffer_number,
            target_file_size_bytes: self.rocksdb_target_file_size_bytes,
            min_blob_size_bytes: self.rocksdb_min_blob_size_bytes,
            block_size_bytes: self.rocksdb_block_size_bytes,
            bloom_bits: self.rocksdb_bloom_bits,
            background_nice: self.rocksdb_background_nice,
            rate_limit_bytes_per_s: self.rocksdb_rate_limit_bytes_per_s,
            compression: self.rocksdb_compression,
            bottommost_compression: self.rocksdb_bottommost_compression,
            binlog_enabled: self.binlog_enabled,
            string_inline_max_bytes: self.string_inline_max_bytes,
            value_log_min_bytes: self.value_log_min_bytes,
            value_log_packed_min_bytes: self.value_log_packed_min_bytes,
            value_log_segment_bytes: self.value_log_segment_bytes,
            packed_max_bytes: self.packed_max_bytes,
            packed_max_entries: self.packed_max_entries,
            disk_reserve_bytes: self.disk_reserve_bytes,
            max_disk_bytes: self.max_disk_bytes,
            // No parameters.
            ahead_bytes: defaults.ahead_bytes,
            accept_data_loss: defaults.accept_data_loss,
            #[cfg(test)]
            more_options: defaults.more_options,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that tests of the storage, which know no parameters, run with what the server
    /// runs with.
    #[test]
    fn the_default_parameters_are_the_defaults_of_the_storage() {
        let config = Config::default();
        let machine = MachineShare::default();
        let of_parameters = config.storage(machine);
        assert_eq!(
            of_parameters,
            StorageConfig::new(config.data_dir(), machine)
        );
    }

    /// What tests set otherwise is the share of the machine, the reserve on its disk, the value log,
    /// and whether keys are in slots.
    #[test]
    fn unit_tests_run_with_the_defaults() {
        let config = Config::default();
        let for_tests = StorageConfig::for_tests(config.data_dir());
        let of_parameters = config.storage(for_tests.machine);
        assert_eq!(
            for_tests,
            StorageConfig {
                disk_reserve_bytes: 0,
                cluster_enabled: for_tests.cluster_enabled,
                value_log_min_bytes: for_tests.value_log_min_bytes,
                value_log_packed_min_bytes: for_tests.value_log_packed_min_bytes,
                value_log_segment_bytes: for_tests.value_log_segment_bytes,
                ..of_parameters
            }
        );
    }
}
