//! Opening a database: checks that it is one of Kedis', of a known format, and complete.

use super::families::is_family;
use super::{BINLOG, ColumnFamily, DEFAULT, Db, Keyspace, handle, hex, random_bytes, whole};
use crate::encoding::binlog::Position;
use crate::encoding::keys::Layout;
use crate::encoding::reader::Reader;
use crate::encoding::system::{self, Counts, KeyspaceId, State};
use crate::encoding::{FORMAT_VERSION, tag};
use crate::storage::engine::disk::Disk;
use crate::storage::engine::history::History;
use crate::storage::engine::options::{RocksOptions, StorageConfig};
use crate::storage::engine::values::ValueLog;
use crate::storage::engine::wal::marks;
use crate::storage::{Result, StorageError};
use rocksdb::{
    ColumnFamilyDescriptor, DBRawIteratorWithThreadMode, IteratorMode, ReadOptions, WriteBatch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Opens the value log, which the disk syncs before tables from now on. That is before the
/// write-ahead log is replayed, which writes tables that name values.
pub(super) fn values(config: &StorageConfig, disk: &Arc<Disk>) -> Result<Arc<ValueLog>> {
    let most_open = config.machine.max_open_segments;
    // The disk has the value log, which is synced before tables are.
    let its_disk = Arc::downgrade(disk);
    let preallocation = move |wanted| {
        let disk = its_disk.upgrade();
        disk.map_or(0, |disk| disk.preallocation(wanted))
    };
    let log = ValueLog::open(config, most_open, Box::new(preallocation))?;
    let values = Arc::new(log);
    disk.sync_before_tables(values.clone());
    Ok(values)
}

/// Opens the database on a thread of lower priority. RocksDB's own threads, which are created then,
/// inherit it.
pub(super) fn open_in_background(
    config: &StorageConfig,
    options: &RocksOptions,
    values: &Arc<ValueLog>,
) -> Result<(Db, Vec<String>, marks::Keeper)> {
    let open = || {
        if let Err(error) = rustix::process::nice(config.background_nice as i32) {
            log::warn!("background threads keep their priority: {error}");
        }
        open_db(config, options, values)
    };
    std::thread::scope(|scope| {
        let opening = scope.spawn(open).join();
        opening.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Opens the database with all column families that it has. Returns their names.
fn open_db(
    config: &StorageConfig,
    options: &RocksOptions,
    values: &Arc<ValueLog>,
) -> Result<(Db, Vec<String>, marks::Keeper)> {
    let dir = config.dir.as_path();
    let found = whole::inspect(config)?;
    found.cut_manifest(dir)?;
    let existing = match found.is_new {
        false => Db::list_cf(&options.db, dir).map_err(|error| whole::unreadable(dir, error))?,
        true => Vec::new(),
    };
    check_families(&existing, options, dir)?;
    found.cut(dir)?;
    let values = values.clone();
    let marks = marks::Keeper::new(dir, Box::new(move || values.sync()))?;
    let mut names = vec![DEFAULT.to_owned(), BINLOG.to_owned()];
    names.extend(existing.into_iter().filter(|n| n != DEFAULT && n != BINLOG));
    let budget = config.machine.memory_budget_bytes;
    let mut descriptors = Vec::with_capacity(names.len());
    for name in &names {
        let cf_options = match name.as_str() {
            DEFAULT => options.system_rows(),
            BINLOG => options.binlog(budget),
            _ => options.keyspace(budget)?,
        };
        descriptors.push(ColumnFamilyDescriptor::new(name, cf_options));
    }
    let mut db_options = options.db.clone();
    db_options.create_if_missing(found.is_new);
    let opened = Db::open_cf_descriptors(&db_options, dir, descriptors);
    let db = opened.map_err(|error| match error.as_ref().contains("/LOCK:") {
        true => whole::in_use(dir),
        false => whole::unreadable(dir, error),
    })?;
    log_losses(dir);
    marks.forget_missing()?;
    Ok((db, names, marks))
}

/// RocksDB skips what it cannot read of the log, and all that follows, if the disk has changed it
/// or never got it. It reports that only in its info log, which begins anew with each start.
fn log_losses(dir: &Path) {
    let own_log = std::fs::read_to_string(dir.join("LOG")).unwrap_or_default();
    let losses = own_log.lines().filter(|line| line.contains(": dropping "));
    for line in losses {
        let what = line.rsplit_once("] ").map_or(line, |(_, what)| what);
        log::warn!("the write-ahead log could not be read to its end, the rest is lost: {what}");
    }
}

fn not_ours(reason: &str) -> StorageError {
    StorageError::Format(format!(
        "the directory holds a database of another program: {reason}"
    ))
}

/// Checks the column families of a database before it is opened, since opening would change it.
fn check_families(existing: &[String], options: &RocksOptions, dir: &Path) -> Result<()> {
    if let Some(name) = existing.iter().find(|name| !is_family(name)) {
        return Err(not_ours(&format!("column family {name}")));
    }
    let has_binlog = existing.iter().any(|name| name == BINLOG);
    let may_lack_it = existing == [DEFAULT] || whole::is_unmended(dir);
    if !existing.is_empty() && !has_binlog && !may_lack_it {
        return Err(not_ours(&format!("it has no column family {BINLOG}")));
    }
    // An interrupted first start may have left no more than an empty `default`. A database of
    // another program can have the same column family, but it has rows.
    if existing == [DEFAULT] {
        let db = Db::open_for_read_only(&options.db, dir, false)
            .map_err(|error| whole::unreadable(dir, error))?;
        if db.iterator(IteratorMode::Start).next().is_some() {
            return Err(not_ours("it has rows that Kedis does not write"));
        }
    }
    Ok(())
}

/// Checks the format version, which every database has from its first start on, and the layout of
/// its meta rows. `is_unmended`: its counts may be wrong.
pub(super) fn check_format(
    db: &Db,
    system_cf: &ColumnFamily,
    names: &[String],
    layout: Layout,
    is_unmended: bool,
) -> Result<()> {
    let Some(stored) = db.get_cf(system_cf, system::FORMAT)? else {
        let is_new = names
            .iter()
            .all(|name| [DEFAULT, BINLOG].contains(&name.as_str()))
            && db
                .iterator_cf(system_cf, IteratorMode::Start)
                .next()
                .is_none();
        if !is_new {
            return Err(not_ours("it does not say which format it has"));
        }
        return put_format(db, system_cf, layout, WriteBatch::default());
    };
    let (stored, version) = system::decode_format(&stored)?;
    match version {
        FORMAT_VERSION if stored == Some(layout) => Ok(()),
        // It has no rows of either layout.
        FORMAT_VERSION if stored.is_some() && !is_unmended && !has_keys(db, system_cf)? => {
            put_format(db, system_cf, layout, WriteBatch::default())
        }
        FORMAT_VERSION if stored.is_some() => Err(StorageError::Layout(layout)),
        1..FORMAT_VERSION if layout != Layout::Plain => {
            if has_keys(db, system_cf)? {
                return Err(StorageError::Layout(layout));
            }
            put_format(db, system_cf, layout, WriteBatch::default())
        }
        1 => move_counts(db, system_cf),
        // Version 3 has more types and kinds of rows, version 4 counts keys with timed elements and
        // has the value log.
        2 | 3 => put_format(db, system_cf, layout, WriteBatch::default()),
        FORMAT_VERSION => Err(StorageError::Format(
            "the database has a layout that this build does not know: start a newer build".into(),
        )),
        _ => Err(StorageError::Format(format!(
            "the database has format version {version}; this build reads versions up to \
             {FORMAT_VERSION}: start a newer build, or put a backup of an older one in its place"
        ))),
    }
}

/// Whether a DB has keys, by the counts.
fn has_keys(db: &Db, system_cf: &ColumnFamily) -> Result<bool> {
    let counts = read_counts(&state(db, system_cf)?, db.raw_iterator_cf(system_cf))?;
    let mut rows = db.raw_iterator_cf(system_cf);
    rows.seek([system::DB_TAG]);
    while let Some((key, value)) = rows.item()
        && key.first() == Some(&system::DB_TAG)
    {
        let id = Reader::new(value, "DB map").u32()?;
        if counts.get(&id).is_some_and(|counts| counts.keys > 0) {
            return Ok(true);
        }
        rows.next();
    }
    Ok(rows.status().map(|()| false)?)
}

fn put_format(
    db: &Db,
    system_cf: &ColumnFamily,
    layout: Layout,
    mut batch: WriteBatch,
) -> Result<()> {
    batch.put_cf(system_cf, system::FORMAT, system::encode_format(layout));
    db.write(batch)?;
    Ok(db.flush_wal(true)?)
}

/// The highest number of a segment of the value log of which the database knows that it got its last record.
pub(super) fn newest_closed(db: &Db, system_cf: &ColumnFamily) -> Result<Option<u64>> {
    let mut rows = db.raw_iterator_cf(system_cf);
    rows.seek_for_prev(system::closed_row(u64::MAX));
    match rows.item() {
        Some(([system::CLOSED_TAG, key @ ..], row)) => Ok(Some(system::decode_closed(key, row)?.0)),
        _ => Ok(rows.status().map(|()| None)?),
    }
}

/// Converts version 1, in which the state row holds the counts of all keyspaces.
fn move_counts(db: &Db, system_cf: &ColumnFamily) -> Result<()> {
    log::info!("the database is converted from format version 1 to {FORMAT_VERSION}");
    let mut batch = WriteBatch::default();
    if let Some(row) = db.get_cf(system_cf, system::STATE)? {
        let mut state = State::decode(&row)?;
        state.counts.retain(|(id, counts)| {
            let row = system::counts_row(KeyspaceId(*id));
            if let Some(row) = row {
                batch.put_cf(system_cf, row, counts.encode());
            }
            row.is_none()
        });
        let mut row = Vec::new();
        state.encode(&mut row);
        batch.put_cf(system_cf, system::STATE, row);
    }
    put_format(db, system_cf, Layout::Plain, batch)
}

/// I3: while the binlog is off, commits are not logged. So a start that turns it off or on begins a
/// new history: under a new id, and with an empty binlog.
pub(super) fn renew_history_if_toggled(
    db: &Db,
    system_cf: &ColumnFamily,
    binlog_cf: &ColumnFamily,
    enabled: bool,
) -> Result<()> {
    let logged = system_row_or_insert(db, system_cf, system::LOGGED, || Ok([u8::from(enabled)]))?;
    if logged == [u8::from(enabled)] {
        return Ok(());
    }
    let mut batch = WriteBatch::default();
    batch.put_cf(system_cf, system::LOGGED, [u8::from(enabled)]);
    let id = hex(&random_bytes::<20>()?);
    batch.put_cf(system_cf, system::REPLICATION_ID, id);
    batch.delete_cf(system_cf, system::ANCESTORS);
    let (first, last) = ([0u8; 8], [0xFFu8; 8]);
    batch.delete_range_cf(binlog_cf, first, last);
    db.write(batch)?;
    Ok(db.flush_wal(true)?)
}

pub(super) fn system_row_or_insert<V: AsRef<[u8]>>(
    db: &Db,
    system_cf: &ColumnFamily,
    key: &[u8],
    make: impl FnOnce() -> Result<V>,
) -> Result<Vec<u8>> {
    if let Some(row) = db.get_cf(system_cf, key)? {
        return Ok(row);
    }
    let row = make()?.as_ref().to_vec();
    db.put_cf(system_cf, key, &row)?;
    db.flush_wal(true)?;
    Ok(row)
}

/// The counts of all keyspaces: those in the state row, and those in the system rows that `rows`
/// iterates over.
pub(in crate::storage) fn read_counts(
    state: &State,
    mut rows: DBRawIteratorWithThreadMode<'_, Db>,
) -> Result<BTreeMap<u32, Counts>> {
    let mut counts: BTreeMap<u32, Counts> = state.counts.iter().copied().collect();
    rows.seek([system::COUNTS_TAG]);
    while let Some((key, value)) = rows.item()
        && key.first() == Some(&system::COUNTS_TAG)
    {
        counts.insert(system::split_counts_row(key)?.0, Counts::decode(value)?);
        rows.next();
    }
    rows.status()?;
    rows.seek([system::TIMED_TAG]);
    while let Some((key, value)) = rows.item()
        && key.first() == Some(&system::TIMED_TAG)
    {
        let id = system::split_counts_row(key)?.0;
        counts.entry(id).or_default().timed = system::decode_timed(value)?;
        rows.next();
    }
    rows.status()?;
    Ok(counts)
}

/// Reads the counts of slots. Adds the deletion of those of dropped keyspaces to a batch.
fn load_slots(
    db: &Db,
    system_cf: &ColumnFamily,
    keyspaces: &[Option<Arc<Keyspace>>],
    batch: &mut WriteBatch,
) -> Result<()> {
    let mut rows = db.raw_iterator_cf(system_cf);
    rows.seek([system::SLOT_TAG]);
    while let Some((key, value)) = rows.item()
        && key.first() == Some(&system::SLOT_TAG)
    {
        let (id, slot, keys) = system::decode_slot(key, value)?;
        let mut all = keyspaces.iter().flatten();
        match all.find(|keyspace| keyspace.id == id) {
            Some(keyspace) => {
                keyspace.slots().inspect(|counts| counts.set(slot, keys));
            }
            None => batch.delete_cf(system_cf, key),
        }
        rows.next();
    }
    Ok(rows.status()?)
}

/// Counts the keys of a DB some elements of which have times, by their index.
fn count_timed(db: &Db, cf: &ColumnFamily) -> Result<u64> {
    let mut read = ReadOptions::default();
    read.set_total_order_seek(true);
    read.fill_cache(false);
    let mut rows = db.raw_iterator_cf_opt(cf, read);
    rows.seek([tag::DUE]);
    let mut count = 0;
    while rows.key().and_then(<[u8]>::first) == Some(&tag::DUE) {
        count += 1;
        rows.next();
    }
    rows.status()?;
    Ok(count)
}

/// The history that the database belongs to; a new one if it has none yet.
pub(super) fn history(db: &Db, system_cf: &ColumnFamily) -> Result<History> {
    let id = system_row_or_insert(db, system_cf, system::REPLICATION_ID, || {
        Ok(hex(&random_bytes::<20>()?).into_bytes())
    })?;
    Ok(History {
        id: String::from_utf8_lossy(&id).into_owned(),
        ancestors: match db.get_pinned_cf(system_cf, system::ANCESTORS)? {
            Some(row) => system::decode_ancestors(&row)?,
            None => Vec::new(),
        },
    })
}

/// The state after the last commit, or that of an empty database.
pub(super) fn state(db: &Db, system_cf: &ColumnFamily) -> Result<State> {
    match db.get_pinned_cf(system_cf, system::STATE)? {
        Some(row) => Ok(State::decode(&row)?),
        None => Ok(State {
            next_id: 1,
            binlog_position: Position::FIRST,
            ..State::default()
        }),
    }
}

/// Reads the DB map, and drops what belongs to no DB: column families that a crash has left between
/// their creation and their use, those of DBs beyond `databases`, and the counts of dropped ones.
pub(super) fn load_keyspaces(
    db: &Db,
    system_cf: &ColumnFamily,
    names: &[String],
    state: &mut State,
    layout: Layout,
    databases: u16,
    is_unmended: bool,
) -> Result<Vec<Option<Arc<Keyspace>>>> {
    let counts = read_counts(state, db.raw_iterator_cf(system_cf))?;
    let mut keyspaces: Vec<Option<Arc<Keyspace>>> = vec![None; usize::from(databases)];
    let mut used = BTreeSet::new();
    let mut batch = WriteBatch::default();
    let mut rows = db.raw_iterator_cf(system_cf);
    rows.seek([system::DB_TAG]);
    while let Some((key, value)) = rows.item() {
        if key.first() != Some(&system::DB_TAG) {
            break;
        }
        let index = system::split_db_row(key)?;
        let id = Reader::new(value, "DB map").u32()?;
        let name = KeyspaceId(id).column_family();
        if is_unmended && db.cf_handle(&name).is_none() {
            log::warn!("DB {index} is lost: nothing is left of its column family {name}");
            batch.delete_cf(system_cf, key);
            rows.next();
            continue;
        }
        let keyspace = Keyspace::new(KeyspaceId(id), handle(db, &name)?, layout);
        let mut stored = counts.get(&id).copied().unwrap_or_default();
        let timed_row = system::timed_row(keyspace.id);
        let is_counted = is_unmended || db.get_pinned_cf(system_cf, timed_row)?.is_some();
        if !is_counted {
            stored.timed = count_timed(db, &keyspace.cf)?;
        }
        keyspace.set_counts(stored);
        match keyspaces.get_mut(usize::from(index)) {
            Some(slot) => *slot = Some(Arc::new(keyspace)),
            None if keyspace.counts().keys > 0 => {
                return Err(StorageError::TooFewDbs {
                    index,
                    keys: keyspace.counts().keys,
                    databases,
                });
            }
            // `databases` was larger once; this DB is empty.
            None => {
                batch.delete_cf(system_cf, key);
                rows.next();
                continue;
            }
        }
        if !is_counted {
            batch.put_cf(system_cf, timed_row, stored.timed.to_be_bytes());
        }
        used.insert(id);
        rows.next();
    }
    rows.status()?;
    drop(rows);
    load_slots(db, system_cf, &keyspaces, &mut batch)?;
    for id in counts.keys().filter(|id| !used.contains(id)) {
        if let Some(row) = system::counts_row(KeyspaceId(*id)) {
            batch.delete_cf(system_cf, row);
        }
        batch.delete_cf(system_cf, system::timed_row(KeyspaceId(*id)));
    }
    // Before the families are dropped: a row of a DB without a family means damage.
    if !batch.is_empty() {
        db.write(batch)?;
        db.flush_wal(true)?;
    }
    for name in names {
        if KeyspaceId::of_column_family(name).is_some_and(|id| !used.contains(&id.0)) {
            db.drop_cf(name)?;
        }
    }
    state.counts.retain(|(id, _)| used.contains(id));
    Ok(keyspaces)
}
