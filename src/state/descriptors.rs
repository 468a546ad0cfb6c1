//! Division of the file descriptors that the system permits.
//!
//! Unauthenticated clients must never use up the descriptors that the database needs: a flush
//! that cannot open its file stops all writes. So the needs of the server and of RocksDB are
//! reserved at the start, and `maxclients` is limited to the rest. If the limit is too low for
//! everything, DBs get a quarter, and files of data a third of the remainder: the others are
//! opened when they are read. A fifth of these may be segments of the value log, the rest table
//! files. RocksDB keeps at most `rocksdb.max-open-files` open; -1 means as many as there are
//! descriptors for. It keeps the directory of each new DB open until
//! the next start.

use super::config::Config;
use crate::sys::descriptors;

/// For the process itself: standard streams, logs, polls, signals, the write-ahead log and
/// RocksDB's other single files, a save, connections to other servers.
const OWN: u64 = 48;
/// For a thread's poll and its waker.
const PER_IO_THREAD: u64 = 2;
/// Connections to the metrics at a time.
pub const SCRAPERS: usize = 32;
/// For the metrics, besides these: a poll, its waker, sockets that listen.
const PER_METRICS: u64 = 8;
/// For a flush or compaction: its output, and its input beyond RocksDB's limit.
const PER_BACKGROUND_JOB: u64 = 8;
/// The smallest limit of table files that RocksDB accepts.
const TABLE_FILES_MIN: u64 = 20;
/// The limit of table files if neither the configuration nor the system has one.
const TABLE_FILES_MAX: u64 = 1 << 20;
/// The limit of segments of the value log.
const SEGMENTS_MAX: u64 = 1024;

/// The division of the descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Table files that RocksDB may keep open.
    pub table_files: i32,
    /// Segments of the value log that may stay open.
    pub segments: usize,
    /// DBs that may be created.
    pub new_dbs: u32,
    /// All descriptors that are not for clients.
    pub reserved: u64,
    /// Most clients; at most as many as configured.
    pub clients: u32,
}

/// Raises the limit of descriptors as far as the configuration needs it, and lowers
/// `maxclients` if the system does not permit that.
///
/// # Errors
/// The limit leaves nothing for clients.
pub fn claim(config: &mut Config) -> Result<Shares, String> {
    let own = own(config);
    let clients = config.max_clients;
    // A full sync creates all DBs once more.
    let dbs = 2 * u64::from(config.databases);
    let tables = match u64::try_from(config.rocksdb_max_open_files) {
        Ok(tables) => tables,
        Err(_) => descriptors::most().map_or(TABLE_FILES_MAX, |most| {
            most.saturating_sub(own + dbs + u64::from(clients))
        }),
    };
    let tables = tables.clamp(TABLE_FILES_MIN, TABLE_FILES_MAX);
    let files = tables + SEGMENTS_MAX;
    let wanted = own + dbs + files + u64::from(clients);
    let limit = descriptors::raise(wanted);
    let Some(shares) = share(limit, own, dbs, files, clients) else {
        return Err(format!(
            "only {limit} file descriptors are allowed, and {} are needed without any \
             client: raise the limit (ulimit -n)",
            own + TABLE_FILES_MIN
        ));
    };
    if limit < wanted {
        log::warn!(
            "only {limit} file descriptors are allowed, {wanted} would be needed: \
             maxclients is {} (wanted: {clients}), {} are for table files (wanted: {tables}), \
             {} for DBs that are made until the next start (wanted: {dbs})",
            shares.clients,
            shares.table_files,
            shares.new_dbs,
        );
    }
    config.max_clients = shares.clients;
    Ok(shares)
}

/// How many clients are possible, up to `wanted`. Raises the limit of descriptors if the system
/// permits it.
pub fn clients_for(reserved: u64, wanted: u32) -> u32 {
    let limit = descriptors::raise(reserved + u64::from(wanted));
    u32::try_from(limit.saturating_sub(reserved)).map_or(wanted, |most| most.min(wanted))
}

/// Descriptors that are needed besides those for clients and table files.
fn own(config: &Config) -> u64 {
    let metrics = match config.has_metrics() {
        true => PER_METRICS + SCRAPERS as u64,
        false => 0,
    };
    OWN + metrics
        + config.bind.len() as u64
        + PER_IO_THREAD * config.io_thread_count() as u64
        + PER_BACKGROUND_JOB * u64::from(config.background_jobs())
}

fn share(limit: u64, own: u64, dbs: u64, files: u64, clients: u32) -> Option<Shares> {
    let free = limit.saturating_sub(own);
    let dbs = dbs.min(free.saturating_sub(TABLE_FILES_MIN) / 4);
    let free = free - dbs;
    let left = free.saturating_sub(clients.into());
    let files = files.min(left.max(free / 3)).max(TABLE_FILES_MIN);
    let segments = SEGMENTS_MAX.min(files / 5).min(files - TABLE_FILES_MIN);
    let most = free.saturating_sub(files);
    let clients = u32::try_from(most).map_or(clients, |most| most.min(clients));
    (clients > 0).then_some(Shares {
        table_files: i32::try_from(files - segments).unwrap_or(i32::MAX),
        segments: segments as usize,
        new_dbs: u32::try_from(dbs).unwrap_or(u32::MAX),
        reserved: own + dbs + files,
        clients,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(limit: u64, files: u64, clients: u32) -> Option<(i32, usize, u32)> {
        let shares = share(limit, 68, 0, files, clients)?;
        assert!(shares.reserved + u64::from(shares.clients) <= limit);
        Some((shares.table_files, shares.segments, shares.clients))
    }

    #[test]
    fn what_the_database_needs_is_set_aside() {
        assert_eq!(shared(20_000, 5120, 10_000), Some((4096, 1024, 10_000)));
        assert_eq!(shared(30_000, 8192, 10_000), Some((7168, 1024, 10_000)));
        // Not enough for both: files get a third.
        assert_eq!(shared(368, 5120, 10_000), Some((80, 20, 200)));
        // Few clients leave more for files, and few files leave more for clients.
        assert_eq!(shared(368, 5120, 10), Some((232, 58, 10)));
        assert_eq!(shared(368, 30, 10_000), Some((24, 6, 270)));
        assert_eq!(shared(100, 5120, 10_000), Some((20, 0, 12)));
        assert_eq!(shared(88, 5120, 10_000), None);
        assert_eq!(shared(10, 5120, 10_000), None);
    }

    #[test]
    fn dbs_get_a_quarter_at_the_most() {
        let shared = |limit, dbs| {
            let shares = share(limit, 68, dbs, 5120, 10_000).unwrap();
            assert!(shares.reserved + u64::from(shares.clients) <= limit);
            (shares.new_dbs, shares.table_files, shares.clients)
        };
        assert_eq!(shared(20_000, 32), (32, 4096, 10_000));
        assert_eq!(shared(368, 32), (32, 72, 179));
        assert_eq!(shared(368, 2000), (70, 61, 154));
        assert_eq!(shared(89, 32), (0, 20, 1));
    }

    #[test]
    fn no_bound_of_table_files_is_what_the_limit_has() {
        let mut config = Config {
            rocksdb_max_open_files: -1,
            max_clients: 10,
            ..Config::default()
        };
        let shares = claim(&mut config).unwrap();
        assert!(shares.table_files >= 20);
        let limit = descriptors::raise(0);
        assert!(shares.reserved + u64::from(shares.clients) <= limit);
        config.max_clients = u32::MAX;
        let shares = claim(&mut config).unwrap();
        assert_eq!(config.max_clients, shares.clients);
        let most = clients_for(shares.reserved, u32::MAX);
        assert_eq!(clients_for(shares.reserved, most), most);
        assert!(most < u32::MAX);
    }
}
