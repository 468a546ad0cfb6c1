//! The open database: column families, the server's own rows, commits, checkpoints.

mod files;
mod heal;
mod mend;
mod open;
mod salvage;
mod stalls;
mod whole;

pub use files::is_copy;
pub(super) use open::read_counts;
pub(super) use salvage::Salvage;

use super::ahead::Ahead;
use super::binlog::Binlog;
use super::changes::{Interest, Listener};
use super::disk::Disk;
use super::durability::Durability;
use super::expiry::LowMark;
use super::gate::Gate;
use super::history::History;
use super::hot::HotRows;
use super::locks::{Locks, Owner};
use super::options::{RocksOptions, StorageConfig};
use super::overlay::RowHasher;
use super::reserve::Reservation;
use super::tally::Tallies;
use super::traces::Removals;
use super::wal::marks::Keeper;
use super::wishes::Wishes;
use super::{DbIndex, Result, StorageError};
use crate::base::files::create_dir_all;
use crate::base::hash::SharedHash;
use crate::encoding::CollectionId;
use crate::encoding::own::{self, Counts, KeyspaceId, State, Upstream};
use heal::Health;
use parking_lot::{Mutex, RwLock};
use rocksdb::{
    BoundColumnFamily, DBWithThreadMode, MultiThreaded, ReadOptions, SnapshotWithThreadMode,
    WriteBatch,
};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub(super) type Db = DBWithThreadMode<MultiThreaded>;

/// A handle of a column family. It must not outlive the database: [`Engine`]
/// owns both and drops the handles first.
pub(super) type ColumnFamily = Arc<BoundColumnFamily<'static>>;

const DEFAULT: &str = "default";
const BINLOG: &str = "binlog";

/// A keyspace: the column family that holds a DB, and how many keys it has.
pub struct Keyspace {
    /// Its number.
    pub id: KeyspaceId,
    pub(super) cf: ColumnFamily,
    /// Mixed into the hashes of its hot rows; a new one forgets them all.
    hot_seed: AtomicU64,
    keys: AtomicU64,
    expires: AtomicU64,
    /// No TTL row stands before this time.
    pub(super) ttl_low_ms: LowMark,
    /// No reclaim row stands before this id.
    pub(super) reclaim_low: LowMark,
    pub(super) removals: Removals,
}

impl Keyspace {
    /// The committed counts.
    pub fn counts(&self) -> Counts {
        Counts {
            keys: self.keys.load(Ordering::Relaxed),
            expires: self.expires.load(Ordering::Relaxed),
        }
    }

    /// What the hash of a row's key becomes to find it among the hot rows.
    pub(super) fn hot_hash(&self, hash: u64) -> u64 {
        hash ^ self.hot_seed.load(Ordering::Relaxed)
    }

    /// Forgets its hot rows. The caller keeps everybody else away from its keys.
    pub(super) fn forget_hot_rows(&self) {
        self.hot_seed.store(fastrand::u64(..), Ordering::Relaxed);
    }

    /// Shows everybody what a commit made of the counts. The caller holds the commit lock.
    pub(super) fn add(&self, keys: i64, expires: i64) {
        self.set_counts(self.counts().plus(keys, expires));
    }

    pub(super) fn set_counts(&self, counts: Counts) {
        self.keys.store(counts.keys, Ordering::Relaxed);
        self.expires.store(counts.expires, Ordering::Relaxed);
    }
}

/// What only one thread at a time may do: number a commit and write it.
#[derive(Default)]
pub(super) struct CommitState {
    pub(super) state: State,
    pub(super) scratch: Vec<u8>,
    /// The history that begins with the batch being written.
    pub(super) history: Option<History>,
    /// How far a Redis master's stream is applied, if all that is here comes from it.
    pub(super) upstream: Option<Upstream>,
}

/// The open database. Shared by all threads.
pub struct Engine {
    /// Fields drop in this order: handles before the database that they belong to.
    pub(super) keyspaces: RwLock<Vec<Option<Arc<Keyspace>>>>,
    pub(super) own_cf: ColumnFamily,
    pub(super) binlog_cf: ColumnFamily,
    pub(super) db: Db,
    /// How far the log must be whole, for the next start.
    pub(super) marks: Keeper,
    pub(super) locks: Locks,
    pub(super) wishes: Wishes,
    pub(super) hot: HotRows,
    pub(super) tallies: Tallies,
    pub(super) row_hasher: RowHasher,
    /// Held shared by every tick that reads or writes keys, exclusively by
    /// commands that concern whole DBs.
    pub(super) gate: Gate,
    pub(super) commit: Mutex<CommitState>,
    /// Whose rows are written before they can be reached.
    pub(super) ahead: Ahead,
    pub(super) durability: Durability,
    health: Health,
    unstalled: Mutex<stalls::Unstalled>,
    pub(super) next_id: AtomicU64,
    next_owner: AtomicU32,
    budget: AtomicU64,
    /// How much of it the block cache may take now.
    cache_limit: AtomicU64,
    /// How much the block cache keeps for clients.
    pub(super) reserved_for_clients: Reservation,
    /// Changes whenever a DB gets another keyspace.
    pub(super) map_version: AtomicU64,
    /// What commits have logged.
    pub binlog: Binlog,
    /// Orders hash fields and members.
    pub hash: SharedHash,
    /// The configuration it was opened with.
    pub config: StorageConfig,
    /// The disk that it is on.
    pub disk: Arc<Disk>,
    /// Which keys somebody wants to know of.
    pub interest: Arc<Interest>,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    pub(super) options: RocksOptions,
    pub(super) history: RwLock<History>,
    pub(super) history_version: AtomicU64,
    /// Which stretch of following this is; 0: none.
    pub(super) following: AtomicU64,
    pub(super) follow_count: AtomicU64,
    pub(super) renew_on_write: AtomicBool,
    /// How many snapshots are read; while there are any, no files are dropped.
    pub(super) snapshots: Mutex<u32>,
    /// Held while the front of the binlog moves.
    pub(super) trim: Mutex<()>,
    new_families: Mutex<NewFamilies>,
}

/// Numbers of the column families that were made since the start.
#[derive(Default)]
struct NewFamilies {
    /// They are there. RocksDB keeps the directory open for each of them; those of the
    /// start share that.
    made: BTreeSet<u32>,
    /// Their creation failed half way: the next start drops them.
    spoiled: BTreeSet<u32>,
    /// They could not be dropped yet.
    unwanted: BTreeSet<u32>,
}

impl Engine {
    /// Opens or creates the database.
    ///
    /// # Errors
    /// [`StorageError::Format`] if the directory holds a database of another
    /// format version; [`StorageError::Damaged`] if it holds one that has lost
    /// something; otherwise what RocksDB reports, among it that another
    /// process has the directory open.
    pub fn open(config: StorageConfig) -> Result<Arc<Engine>> {
        let dir = config.dir.clone();
        Engine::open_as_it_is(config).map_err(|error| match error {
            StorageError::RocksDb(error) => whole::unreadable(&dir, error),
            other => other,
        })
    }

    fn open_as_it_is(config: StorageConfig) -> Result<Arc<Engine>> {
        create_dir_all(&config.dir).map_err(|error| {
            StorageError::Format(format!("cannot make {}: {error}", config.dir.display()))
        })?;
        let disk = Disk::open(&config.dir, config.disk_reserve);
        let options = RocksOptions::new(&config, &disk)?;
        let (db, names, marks) = open::open_in_background(&config, &options)?;
        let own_cf = handle(&db, DEFAULT)?;
        let binlog_cf = handle(&db, BINLOG)?;
        open::check_format(&db, &own_cf, &names)?;
        let hash_key = open::own_row_or_insert(&db, &own_cf, own::HASH_KEY, random_bytes::<16>)?;
        let hash_key = <[u8; 16]>::try_from(hash_key.as_slice())
            .map_err(|_| crate::encoding::Corrupt("hash key"))?;
        let is_unmended = whole::is_unmended(&config.dir);
        if is_unmended {
            mend::begin_anew(&db, &own_cf, &binlog_cf)?;
        }
        open::mind_the_gap(&db, &own_cf, &binlog_cf, config.binlog_enabled)?;
        let replication_id = open::own_row_or_insert(&db, &own_cf, own::REPLICATION_ID, || {
            Ok(hex(&random_bytes::<20>()?).into_bytes())
        })?;
        let ancestors = match db.get_pinned_cf(&own_cf, own::ANCESTORS)? {
            Some(row) => own::decode_ancestors(&row)?,
            None => Vec::new(),
        };
        let mut state = match db.get_pinned_cf(&own_cf, own::STATE)? {
            Some(row) => State::decode(&row)?,
            None => State {
                next_id: 1,
                binlog_position: crate::encoding::binlog::FIRST_POSITION,
                ..State::default()
            },
        };
        let replication_id = String::from_utf8_lossy(&replication_id).into_owned();
        let upstream = match db.get_pinned_cf(&own_cf, own::UPSTREAM)? {
            Some(row) => Upstream::decode(&row, &replication_id, state.binlog_position)?,
            None => None,
        };
        let keyspaces = open::load_keyspaces(
            &db,
            &own_cf,
            &names,
            &mut state,
            config.databases,
            is_unmended,
        )?;
        if is_unmended {
            mend::recount(&db, &own_cf, &keyspaces, &mut state)?;
            whole::set_mended(&config.dir)?;
        }
        let binlog = Binlog::load(&db, &own_cf, &binlog_cf, &state, config.binlog_enabled)?;
        let engine = Engine {
            keyspaces: RwLock::new(keyspaces),
            own_cf,
            binlog_cf,
            db,
            marks,
            locks: Locks::default(),
            wishes: Wishes::default(),
            hot: HotRows::new(config.hot_bytes(config.memory_budget)),
            tallies: Tallies::new(config.tally_bytes(config.memory_budget)),
            row_hasher: RowHasher::default(),
            gate: Gate::default(),
            durability: Durability::new(state.binlog_position),
            health: Health::default(),
            next_id: AtomicU64::new(state.next_id),
            next_owner: AtomicU32::new(1),
            budget: AtomicU64::new(config.memory_budget),
            cache_limit: AtomicU64::new(config.cache_bytes(config.memory_budget)),
            reserved_for_clients: Reservation::new(&options.own_rows()),
            map_version: AtomicU64::new(1),
            ahead: Ahead::default(),
            commit: Mutex::new(CommitState {
                state,
                upstream,
                ..CommitState::default()
            }),
            binlog,
            hash: SharedHash::new(&hash_key),
            config,
            disk,
            options,
            interest: Arc::default(),
            listeners: RwLock::default(),
            history: RwLock::new(History {
                id: replication_id,
                ancestors,
            }),
            history_version: AtomicU64::new(1),
            following: AtomicU64::new(0),
            follow_count: AtomicU64::new(0),
            renew_on_write: AtomicBool::new(false),
            snapshots: Mutex::new(0),
            trim: Mutex::new(()),
            new_families: Mutex::default(),
            unstalled: Mutex::default(),
        };
        engine.look_at_disk();
        Ok(Arc::new(engine))
    }

    /// Adds somebody who hears of changes; it must not hold the engine.
    pub fn add_listener(&self, listener: Arc<dyn Listener>) {
        self.listeners.write().push(listener);
    }

    pub(super) fn each_listener(&self, tell: impl FnMut(&Arc<dyn Listener>)) {
        self.listeners.read().iter().for_each(tell);
    }

    /// A hash of a key and its DB, for tables in memory.
    pub fn key_hash(&self, db: DbIndex, key: &[u8]) -> u64 {
        let mut hasher = self.row_hasher.build_hasher();
        hasher.write(key);
        hasher.write_u16(db.0);
        hasher.finish()
    }

    /// Notes durably that from now on, until [`Engine::end_load`], the database
    /// holds a part of a file at the most. It must be empty, and nobody else
    /// may use it.
    pub fn begin_load(&self) -> Result<()> {
        self.db.put_cf(&self.own_cf, own::LOADING, [])?;
        Ok(self.db.flush_wal(true)?)
    }

    /// Whether a load was begun and did not end.
    pub fn is_load_unfinished(&self) -> Result<bool> {
        Ok(self.db.get_pinned_cf(&self.own_cf, own::LOADING)?.is_some())
    }

    /// Ends a load: all of it is on disk. It is in no log, so it begins a new
    /// history.
    pub fn end_load(&self) -> Result<()> {
        self.renew_replication_id()?;
        self.db.delete_cf(&self.own_cf, own::LOADING)?;
        Ok(self.db.flush_wal(true)?)
    }

    /// Commits written since the start.
    pub fn commits(&self) -> u64 {
        self.durability.written()
    }

    /// A number that grows with every command that changed something, or, without
    /// a binlog that counts those, with every commit.
    pub fn writes(&self) -> u64 {
        match self.binlog.is_enabled() {
            true => self.binlog.range().next_entry,
            false => self.commits(),
        }
    }

    /// Writes one commit; the caller holds the commit lock.
    pub(super) fn write(&self, batch: WriteBatch) -> Result<()> {
        if self.has_failed() {
            return Err(StorageError::Failed);
        }
        fail_point("before-write")?;
        let number = self.durability.begin();
        let _in_flight = self.disk.took(batch.size_in_bytes());
        let done = fail_point("while-writing").and_then(|()| Ok(self.db.write(batch)?));
        // Also of a commit that failed, which has changed nothing.
        self.durability.wrote(number);
        done?;
        fail_point("after-write")
    }

    /// Takes back what the commit of a batch that could not be written has noted, but for
    /// the counts of keyspaces.
    pub(super) fn forget_commit(&self, commit: &mut CommitState) {
        let range = self.binlog.range();
        commit.state.binlog_position = range.next_position;
        commit.state.binlog_entry = range.next_entry;
        commit.history = None;
    }

    /// Adds the state row of this commit to its batch; the caller holds the
    /// commit lock.
    pub(super) fn put_state(&self, commit: &mut CommitState, batch: &mut WriteBatch) {
        commit.state.next_id = self.next_id.load(Ordering::Relaxed);
        commit.scratch.clear();
        commit.state.encode(&mut commit.scratch);
        batch.put_cf(&self.own_cf, own::STATE, &commit.scratch);
    }

    /// Adds what a commit makes of a keyspace's counts to its batch, or to the state row
    /// that follows; the caller holds the commit lock and calls [`Keyspace::add`] once the
    /// batch is written.
    pub(super) fn put_counts(
        &self,
        commit: &mut CommitState,
        keyspace: &Keyspace,
        keys: i64,
        expires: i64,
        batch: &mut WriteBatch,
    ) {
        if (keys, expires) != (0, 0) {
            keyspace.removals.note(keys);
            let counts = keyspace.counts().plus(keys, expires);
            match own::counts_row(keyspace.id) {
                Some(row) => batch.put_cf(&self.own_cf, row, counts.encode()),
                None => commit.state.set_counts(keyspace.id, counts),
            }
        }
    }

    /// Takes back what [`Engine::put_counts`] has noted for a batch that could not be
    /// written.
    pub(super) fn forget_counts(&self, commit: &mut CommitState, keyspace: &Keyspace) {
        if own::counts_row(keyspace.id).is_none() {
            commit.state.set_counts(keyspace.id, keyspace.counts());
        }
    }

    /// An id that was never used and never will be again.
    pub fn new_id(&self) -> CollectionId {
        CollectionId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn new_owner(&self) -> Owner {
        Owner(self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// The keyspace of a DB, if anything was ever written to it.
    pub fn keyspace(&self, db: DbIndex) -> Option<Arc<Keyspace>> {
        self.keyspaces.read().get(usize::from(db.0))?.clone()
    }

    /// All DBs that have a keyspace.
    pub fn all_keyspaces(&self) -> Vec<(DbIndex, Arc<Keyspace>)> {
        let map = self.keyspaces.read();
        let used = map.iter().enumerate();
        used.filter_map(|(db, ks)| Some((DbIndex(db as u16), ks.clone()?)))
            .collect()
    }

    /// How often DBs changed their keyspaces; for caches of [`Engine::keyspace`].
    pub fn map_version(&self) -> u64 {
        self.map_version.load(Ordering::Acquire)
    }

    /// The keyspace of a DB, made if there is none yet.
    pub(super) fn keyspace_or_create(&self, db: DbIndex) -> Result<Arc<Keyspace>> {
        let mut map = self.keyspaces.write();
        let Some(slot) = map.get_mut(usize::from(db.0)) else {
            return Err(StorageError::Format(format!("there is no DB {}", db.0)));
        };
        if let Some(keyspace) = slot {
            return Ok(keyspace.clone());
        }
        let (id, cf) = self.create_family()?;
        let mut batch = WriteBatch::default();
        batch.put_cf(&self.own_cf, own::db_row(db.0), id.0.to_be_bytes());
        if let Some(row) = own::counts_row(id) {
            // Another one may have had the number.
            batch.delete_cf(&self.own_cf, row);
        }
        if let Err(error) = self.db.write(batch) {
            self.fail(&error.into());
            drop(cf);
            self.drop_family(id);
            return Err(StorageError::Failed);
        }
        let keyspace = Arc::new(Keyspace::new(id, cf));
        *slot = Some(keyspace.clone());
        self.map_version.fetch_add(1, Ordering::Release);
        Ok(keyspace)
    }

    /// A new column family for a DB. The caller holds the map of keyspaces.
    pub(super) fn create_family(&self) -> Result<(KeyspaceId, ColumnFamily)> {
        let mut new = self.new_families.lock();
        if new.made.len() + new.spoiled.len() >= self.config.max_new_families as usize {
            return Err(StorageError::TooManyFamilies);
        }
        let is_free = |id: &u32| {
            let name = KeyspaceId(*id).column_family();
            !new.spoiled.contains(id) && self.db.cf_handle(&name).is_none()
        };
        let id = (0..).find(is_free).unwrap_or(u32::MAX);
        let name = KeyspaceId(id).column_family();
        let options = self.options.keyspace(self.memory_budget())?;
        if let Err(error) = self.db.create_cf(&name, &options) {
            // RocksDB may have made it, and not have told us of it.
            new.spoiled.insert(id);
            return Err(error.into());
        }
        new.made.insert(id);
        Ok((KeyspaceId(id), handle(&self.db, &name)?))
    }

    /// Drops a column family that no DB has.
    pub(super) fn drop_family(&self, id: KeyspaceId) {
        let name = id.column_family();
        match self.db.drop_cf(&name) {
            Ok(()) => {
                let mut new = self.new_families.lock();
                new.made.remove(&id.0);
                new.unwanted.remove(&id.0);
            }
            Err(error) => {
                log::debug!("cannot drop column family {name} yet: {error}");
                self.new_families.lock().unwanted.insert(id.0);
            }
        }
    }

    /// Drops the column families that could not be dropped before.
    fn drop_unwanted_families(&self) {
        let unwanted = self.new_families.lock().unwanted.clone();
        for id in unwanted {
            self.drop_family(KeyspaceId(id));
        }
    }

    /// Exchanges two DBs. The caller holds the gate exclusively; the rows go
    /// into the batch of the commit that `put` belongs to.
    pub(super) fn swap(&self, a: DbIndex, b: DbIndex) {
        let mut map = self.keyspaces.write();
        let (a, b) = (usize::from(a.0), usize::from(b.0));
        if a < map.len() && b < map.len() {
            map.swap(a, b);
            self.map_version.fetch_add(1, Ordering::Release);
        }
    }

    /// Adds a row of the server itself to a batch, or its deletion.
    pub(super) fn put_own_row(&self, key: &[u8], value: Option<&[u8]>, batch: &mut WriteBatch) {
        match value {
            Some(value) => batch.put_cf(&self.own_cf, key, value),
            None => batch.delete_cf(&self.own_cf, key),
        }
    }

    /// Calls `each` with what follows the tag, and the value, of all rows of the
    /// server itself under this tag.
    pub fn own_rows(&self, tag: u8, mut each: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let mut rows = self.db.raw_iterator_cf(&self.own_cf);
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

    /// Adds the rows that map DBs to keyspaces, as they are now, to a batch.
    pub(super) fn put_map_rows(&self, dbs: &[DbIndex], batch: &mut WriteBatch) {
        let map = self.keyspaces.read();
        for db in dbs {
            match map.get(usize::from(db.0)).and_then(Option::as_ref) {
                Some(ks) => batch.put_cf(&self.own_cf, own::db_row(db.0), ks.id.0.to_be_bytes()),
                None => batch.delete_cf(&self.own_cf, own::db_row(db.0)),
            }
        }
    }
}

impl Keyspace {
    pub(super) fn new(id: KeyspaceId, cf: ColumnFamily) -> Keyspace {
        Keyspace {
            id,
            cf,
            hot_seed: AtomicU64::new(fastrand::u64(..)),
            keys: AtomicU64::new(0),
            expires: AtomicU64::new(0),
            ttl_low_ms: LowMark::default(),
            reclaim_low: LowMark::default(),
            removals: Removals::default(),
        }
    }
}

/// All rows as they were at one moment. Their versions are kept, but not the files of a
/// cleared keyspace: who reads stays inside the gate.
pub(super) struct Moment {
    // Dropped first.
    rows: SnapshotWithThreadMode<'static, Db>,
    /// The number of the last commit that it shows.
    pub(super) last_commit: u64,
    _engine: Arc<Engine>,
}

impl Engine {
    /// This moment.
    #[allow(unsafe_code)]
    pub(super) fn moment(self: &Arc<Self>) -> Moment {
        let nobody_commits = self.commit.lock();
        let last_commit = self.durability.written();
        let rows = self.db.snapshot();
        drop(nobody_commits);
        // SAFETY: only the lifetime changes. The database is the one of the engine that
        // the moment owns a share of and drops after the snapshot.
        let rows = unsafe {
            std::mem::transmute::<SnapshotWithThreadMode<'_, Db>, SnapshotWithThreadMode<'static, Db>>(
                rows,
            )
        };
        Moment {
            rows,
            last_commit,
            _engine: self.clone(),
        }
    }
}

impl Moment {
    /// Has reads see the rows of this moment. They must not outlive it.
    pub(super) fn apply_to(&self, reads: &mut ReadOptions) {
        reads.set_snapshot(&self.rows);
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

/// A place where tests make the process die, or a write fail, or each take long: set
/// `KEDIS_FAIL_POINT=name:count[:error|:slow]`. Free when debug assertions are off.
pub fn fail_point(name: &str) -> Result<()> {
    if cfg!(debug_assertions) {
        super::check::fail_point(name)
    } else {
        Ok(())
    }
}
