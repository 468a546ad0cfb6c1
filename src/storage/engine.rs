//! The open database: column families, the server's own rows, commits, checkpoints.

pub(super) mod ahead;
pub mod binlog;
pub mod cold_reads;
mod commit;
pub(super) mod deletions;
pub mod disk;
pub mod durability;
mod fail_point;
pub(super) mod fair_queue;
mod families;
pub mod figures;
pub(in crate::storage) mod files;
pub mod gate;
mod heal;
pub mod history;
pub(in crate::storage) mod keyspace;
pub(super) mod lineage;
pub mod listeners;
pub mod locks;
pub(super) mod log_buffer;
mod long_reads;
pub(super) mod low_mark;
mod mend;
mod node_id;
mod open;
pub mod options;
pub mod readers;
mod reserve;
pub(super) mod rows;
mod salvage;
pub(in crate::storage) mod slot_counts;
mod snapshot;
mod stalls;
mod syncs;
pub(super) mod upstream;
pub(in crate::storage) mod values;
pub mod waiting;
pub(super) mod wal;
mod whole;

pub(super) use commit::CommitState;
#[cfg(test)]
pub(super) use fail_point::at_fail_point;
pub use fail_point::fail_point;
pub use files::is_copy;
pub use keyspace::Keyspace;
pub(super) use mend::LostStrings;
pub(super) use open::read_counts;
pub(super) use salvage::{LostTable, Salvage};
pub(super) use snapshot::{FilesInUse, KeepFiles, ReadSnapshot};

use crate::base::hash::SharedHash;
use crate::encoding::keys::Layout;
use crate::encoding::system::{self, Upstream};
use crate::storage::cache::rows::RowCache;
use crate::storage::engine::ahead::Ahead;
use crate::storage::engine::binlog::Binlog;
use crate::storage::engine::disk::Disk;
use crate::storage::engine::durability::Durability;
use crate::storage::engine::fair_queue::FairQueue;
use crate::storage::engine::figures::RowReads;
use crate::storage::engine::gate::Gate;
use crate::storage::engine::lineage::Lineage;
use crate::storage::engine::listeners::Listeners;
use crate::storage::engine::locks::{Locks, Owner};
use crate::storage::engine::options::{RocksOptions, StorageConfig};
use crate::storage::engine::readers::Readers;
use crate::storage::engine::reserve::Reservation;
use crate::storage::engine::values::ValueLog;
use crate::storage::engine::wal::marks::Keeper;
use crate::storage::rank::RankIndexes;
use crate::storage::{DbIndex, Result, StorageError};
use crate::sys::files::create_dir_all;
use crate::sys::lock_order::{Lock, Mutex};
use families::Families;
use heal::Health;
use node_id::NodeId;
use rocksdb::{BoundColumnFamily, DBWithThreadMode, MultiThreaded, WriteBatch};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub(super) type Db = DBWithThreadMode<MultiThreaded>;

/// A handle of a column family. It must not outlive the database: [`Engine`]
/// owns both and drops the handles first.
pub(super) type ColumnFamily = Arc<BoundColumnFamily<'static>>;

const DEFAULT: &str = "default";
const BINLOG: &str = "binlog";

/// Hashes the keys of rows, with a seed of this process.
pub type RowHasher = hashbrown::DefaultHashBuilder;

/// The locks of keys, and the gate to whole DBs.
pub(super) struct Access {
    pub(super) locks: Locks,
    pub(super) queue: FairQueue,
    /// Held shared by every tick that reads or writes keys, exclusively by
    /// commands that concern whole DBs.
    pub(super) gate: Gate,
    next_owner: AtomicU32,
}

impl Default for Access {
    fn default() -> Self {
        Access {
            locks: Locks::default(),
            queue: FairQueue::default(),
            gate: Gate::default(),
            next_owner: AtomicU32::new(1),
        }
    }
}

/// Caches and indexes in memory, and their budgets.
pub(super) struct Memory {
    pub(super) rows: RowCache,
    pub(super) ranks: RankIndexes,
    pub(super) row_hasher: RowHasher,
    /// The memory budget of the database, in bytes.
    budget: AtomicU64,
    /// The capacity of the block cache now, in bytes.
    cache_limit: AtomicU64,
    /// The part of the block cache's memory that is reserved for clients.
    pub(super) reserved_for_clients: Reservation,
    /// The memory that long keys in memtables will take when their tables are written, in bytes; 0 if
    /// all are short.
    pub(super) for_tables: AtomicUsize,
    /// Somebody lacks memory that is reserved for tables.
    pub(super) wants_tables: AtomicBool,
    /// Writers wait until memtables are written out.
    pub(super) delays_writers: AtomicBool,
    /// How often that has begun.
    pub(super) delays: AtomicU64,
}

impl Memory {
    fn new(config: &StorageConfig, options: &RocksOptions) -> Memory {
        let budget = config.machine.memory_budget_bytes;
        Memory {
            rows: RowCache::new(config.row_cache_bytes(budget)),
            ranks: RankIndexes::new(config.rank_index_bytes(budget)),
            row_hasher: RowHasher::default(),
            budget: AtomicU64::new(budget),
            cache_limit: AtomicU64::new(config.cache_bytes(budget)),
            reserved_for_clients: Reservation::new(&options.system_rows()),
            for_tables: AtomicUsize::new(0),
            wants_tables: AtomicBool::new(false),
            delays_writers: AtomicBool::new(false),
            delays: AtomicU64::new(0),
        }
    }
}

/// The open database. Shared by all threads.
pub struct Engine {
    // Fields drop in this order: handles before the database that they belong to.
    pub(super) readers: Readers,
    pub(super) families: Families,
    pub(super) system_cf: ColumnFamily,
    pub(super) binlog_cf: ColumnFamily,
    pub(super) db: Db,
    /// How far the write-ahead log must be intact, for the check at the next start.
    pub(super) marks: Keeper,
    pub(super) access: Access,
    pub(super) memory: Memory,
    pub(super) row_reads: RowReads,
    /// The commit lock: commits are numbered and written one after the other.
    pub(super) commit: Mutex<CommitState, { Lock::Commit as u8 }>,
    pub(super) durability: Durability,
    /// The bytes of long values.
    pub(super) values: Arc<ValueLog>,
    /// Collections whose rows are written before the commit that makes them reachable.
    pub(super) ahead: Ahead,
    /// The next id of a collection.
    pub(super) next_id: AtomicU64,
    health: Health,
    unstalled: Mutex<stalls::Unstalled, { Lock::Unstalled as u8 }>,
    /// The log of the effects of commits.
    pub binlog: Binlog,
    pub(super) lineage: Lineage,
    node_id: NodeId,
    /// How many need files that may otherwise be removed.
    pub(super) files_in_use: Mutex<FilesInUse, { Lock::FilesInUse as u8 }>,
    /// Listeners for changes of keys.
    pub listeners: Listeners,
    /// Orders hash fields and members.
    pub hash: SharedHash,
    /// What stands in the keys of its meta rows.
    pub layout: Layout,
    /// The configuration it was opened with.
    pub config: StorageConfig,
    /// The disk that it is on.
    pub disk: Arc<Disk>,
    pub(super) options: RocksOptions,
}

impl Engine {
    /// Opens or creates the database.
    ///
    /// # Errors
    /// [`StorageError::Format`] if the directory holds a database of another format version;
    /// [`StorageError::Damaged`] if parts of the database are missing; otherwise what RocksDB
    /// reports, for instance that another process has the directory open.
    pub fn open(config: StorageConfig) -> Result<Arc<Engine>> {
        Engine::open_and_mend(config, true)
    }

    /// Opens a database that may have unreadable rows. It is not [mended](mend) if it has to be, since
    /// that reads all rows: its counts may be wrong.
    ///
    /// # Errors
    /// As of [`Engine::open`].
    pub(super) fn open_unmended(config: StorageConfig) -> Result<Arc<Engine>> {
        Engine::open_and_mend(config, false)
    }

    fn open_and_mend(config: StorageConfig, mends: bool) -> Result<Arc<Engine>> {
        let dir = config.dir.clone();
        Engine::open_as_it_is(config.within_quota(), mends).map_err(|error| match error {
            StorageError::RocksDb(error) => whole::unreadable(&dir, error),
            other => other,
        })
    }

    fn open_as_it_is(config: StorageConfig, mends: bool) -> Result<Arc<Engine>> {
        whole::refuse_full(&config.dir)?;
        create_dir_all(&config.dir).map_err(|error| {
            StorageError::Format(format!("cannot make {}: {error}", config.dir.display()))
        })?;
        let (reserve, quota) = (config.disk_reserve_bytes, config.max_disk_bytes);
        let disk = Disk::open(&config.dir, reserve, quota);
        let options = RocksOptions::new(&config, &disk)?;
        let values = open::values(&config, &disk)?;
        let (db, names, marks) = open::open_in_background(&config, &options, &values)?;
        let system_cf = handle(&db, DEFAULT)?;
        values.take_over(open::newest_closed(&db, &system_cf)?)?;
        let binlog_cf = handle(&db, BINLOG)?;
        let is_unmended = whole::is_unmended(&config.dir);
        let layout = Layout::with_slots(config.cluster_enabled);
        open::check_format(&db, &system_cf, &names, layout, is_unmended)?;
        let hash_key =
            open::system_row_or_insert(&db, &system_cf, system::HASH_KEY, random_bytes::<16>)?;
        let hash_key = <[u8; 16]>::try_from(hash_key.as_slice())
            .map_err(|_| crate::encoding::Corrupt("hash key"))?;
        if is_unmended {
            mend::begin_anew(&db, &system_cf, &binlog_cf)?;
        }
        open::renew_history_if_toggled(&db, &system_cf, &binlog_cf, config.binlog_enabled)?;
        let history = open::history(&db, &system_cf)?;
        let node_id = NodeId::load(&db, &system_cf, config.cluster_enabled)?;
        let mut state = open::state(&db, &system_cf)?;
        let upstream = match db.get_pinned_cf(&system_cf, system::UPSTREAM)? {
            Some(row) => Upstream::decode(&row, &history.id, state.binlog_position)?,
            None => None,
        };
        let keyspaces = open::load_keyspaces(
            &db,
            &system_cf,
            &names,
            &mut state,
            layout,
            config.databases,
            is_unmended,
        )?;
        if is_unmended && mends {
            mend::mend_rows(&db, &system_cf, layout, &keyspaces, &values, &mut state)?;
            whole::set_mended(&config.dir)?;
        }
        let binlog = Binlog::load(&db, &system_cf, &binlog_cf, &state, config.binlog_enabled)?;
        let engine = Engine {
            readers: Readers::default(),
            families: Families::new(keyspaces),
            system_cf,
            binlog_cf,
            db,
            marks,
            access: Access::default(),
            memory: Memory::new(&config, &options),
            row_reads: RowReads::default(),
            durability: Durability::new(state.binlog_position),
            values,
            ahead: Ahead::default(),
            next_id: AtomicU64::new(state.next_id),
            commit: Mutex::new(CommitState {
                state,
                upstream,
                ..CommitState::default()
            }),
            health: Health::default(),
            unstalled: Mutex::default(),
            binlog,
            lineage: Lineage::new(history),
            node_id,
            files_in_use: Mutex::default(),
            listeners: Listeners::default(),
            hash: SharedHash::new(&hash_key),
            layout,
            config,
            disk,
            options,
        };
        engine.look_at_disk();
        Ok(Arc::new(engine))
    }

    /// A hash of a key and its DB, for tables in memory.
    pub fn key_hash(&self, db: DbIndex, key: &[u8]) -> u64 {
        let mut hasher = self.memory.row_hasher.build_hasher();
        hasher.write(key);
        hasher.write_u16(db.0);
        hasher.finish()
    }

    /// Notes durably that a load has begun: until [`Engine::end_load`] the database may hold only a
    /// part of the file. The database must be empty, and no other thread may use it.
    pub fn begin_load(&self) -> Result<()> {
        self.db.put_cf(&self.system_cf, system::LOADING, [])?;
        Ok(self.db.flush_wal(true)?)
    }

    /// Whether a load was begun and did not end.
    pub fn is_load_unfinished(&self) -> Result<bool> {
        Ok(self
            .db
            .get_pinned_cf(&self.system_cf, system::LOADING)?
            .is_some())
    }

    /// Ends a load, all rows of which are on disk. The binlog does not have them, so a new history
    /// begins.
    pub fn end_load(&self) -> Result<()> {
        self.renew_replication_id()?;
        self.db.delete_cf(&self.system_cf, system::LOADING)?;
        Ok(self.db.flush_wal(true)?)
    }

    pub(super) fn new_owner(&self) -> Owner {
        Owner(self.access.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a system row to a batch, or its deletion if `value` is `None`.
    pub(super) fn put_system_row(&self, key: &[u8], value: Option<&[u8]>, batch: &mut WriteBatch) {
        match value {
            Some(value) => batch.put_cf(&self.system_cf, key, value),
            None => batch.delete_cf(&self.system_cf, key),
        }
    }

    /// Calls `each` for all system rows under this tag, with the key after the tag and the value.
    pub fn system_rows(&self, tag: u8, mut each: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let mut rows = self.db.raw_iterator_cf(&self.system_cf);
        rows.seek([tag]);
        while let Some((key, value)) = rows.item() {
            let Some(name) = key.strip_prefix(&[tag]) else {
                break;
            };
            each(name, value);
            rows.next();
        }
        Ok(rows.status()?)
    }
}

#[allow(unsafe_code)]
pub(super) fn handle(db: &Db, name: &str) -> Result<ColumnFamily> {
    let bound = db
        .cf_handle(name)
        .ok_or_else(|| StorageError::Format(format!("column family {name} is missing")))?;
    // SAFETY: only the lifetime changes. Handles live in `Engine` (and in
    // `Keyspace`s, which are reached only through an `Arc<Engine>` or together
    // with one) and are dropped before `Engine::db`.
    Ok(unsafe { std::mem::transmute::<Arc<BoundColumnFamily<'_>>, ColumnFamily>(bound) })
}

pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| StorageError::Format(format!("no random numbers: {e}")))?;
    Ok(bytes)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
