//! `kedis-server --repair`: saves what can be read of a damaged database, and reports what is lost.
//! Logs that it cuts, and tables that it cannot open, are kept in `lost` in the directory of the database.
//!
//! The log is cut where it cannot be read on. Tables that are missing or cannot be opened are taken
//! out of the manifest. If that cannot be read, the newest one is used with which the database can be
//! opened; without one, RocksDB makes a manifest of the tables that it can read. Then all rows are
//! read: a DB with unreadable blocks is copied without them. Finally the rows are made to agree with
//! each other.

use crate::encoding::keys;
use crate::encoding::keys::Layout;
use crate::encoding::system::{self, KeyspaceId};
use crate::encoding::values::ValueRef;
use crate::storage::engine::disk::Disk;
use crate::storage::engine::options::{RocksOptions, StorageConfig};
use crate::storage::engine::values::Owner;
use crate::storage::engine::{
    ColumnFamily, Db, Engine, Keyspace, LostStrings, LostTable, Salvage, fail_point,
};
use crate::storage::{DbIndex, Result, StorageError};
use rocksdb::{WriteBatch, WriteOptions};
use std::collections::BTreeSet;

mod rows;

use rows::{Readable, Tables};

/// Bytes of rows that are copied at a time.
const BATCH_BYTES: usize = 4 << 20;
/// The most faults of rows that are logged.
const FAULTS_TOLD: usize = 20;

const BINLOG_LOST: &str = "the binlog: replicas copy everything anew";

/// Repairs the database. Returns what is lost, in words; nothing if it is whole.
///
/// # Errors
/// There is no database, a server has it open, or its system rows cannot be read: then only a
/// backup or a replica helps.
pub fn repair(config: &StorageConfig) -> Result<Vec<String>> {
    let disk = Disk::open(&config.dir, 0, 0);
    let options = RocksOptions::new(config, &disk)?;
    let salvage = Salvage::new(&config.dir)?;
    let mut lost = salvage.noted_losses()?;
    let salvaged = salvage.run(&options)?;
    let accepting = StorageConfig {
        accept_data_loss: true,
        ..config.clone()
    };
    let engine = match Engine::open_unmended(accepting.clone()) {
        Ok(engine) => engine,
        // Of what may be large, a start reads only the binlog, which is emptied then.
        Err(error @ (StorageError::Damaged(_) | StorageError::Corrupt(_))) => {
            log::warn!("{error}");
            let loss = BINLOG_LOST.to_owned();
            salvage.set_unmended(std::slice::from_ref(&loss))?;
            lost.push(loss);
            Engine::open_unmended(accepting.clone())?
        }
        Err(error) => return Err(error),
    };
    lost.extend(salvaged.lost);
    lost.extend(salvaged.tables.iter().map(|table| told(&engine, table)));
    for (db, keyspace) in engine.all_keyspaces() {
        let mut cf = keyspace.cf.clone();
        if !is_readable(&engine.db, &cf)? {
            let (copy, what) = copy_readable(&engine, db, &keyspace)?;
            lost.extend(what);
            cf = copy;
        }
        lost.extend(remove_lost_strings(&engine, db, &cf)?);
    }
    if !is_binlog_readable(&engine)? {
        let loss = BINLOG_LOST.to_owned();
        engine.set_unmended(std::slice::from_ref(&loss))?;
        lost.push(loss);
        let (first, last) = (&[0u8; 8][..], &[0xFFu8; 8][..]);
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(&engine.binlog_cf, first, last);
        engine.db.write(batch)?;
        engine.flush_memtables()?;
        engine
            .db
            .delete_file_in_range_cf(&engine.binlog_cf, first, last)?;
    }
    engine.flush_memtables()?;
    drop(engine);
    let engine = Engine::open(accepting)?;
    let report = engine.check()?;
    let faults = report.faults.len();
    if faults > 0 {
        lost.push(format!(
            "{faults} rows or collections do not agree with others"
        ));
    }
    for fault in report.faults.iter().take(FAULTS_TOLD) {
        log::warn!("{fault}");
    }
    engine.flush_memtables()?;
    // A repair that did not come to its end may have noted it before.
    let mut told = BTreeSet::new();
    lost.retain(|loss| told.insert(loss.clone()));
    Ok(lost)
}

/// What is lost with a table, in words.
fn told(engine: &Engine, table: &LostTable) -> String {
    let LostTable { name, why, .. } = table;
    if table.is_of_binlog() {
        return format!("{name}, a table of the binlog: replicas copy everything anew ({why})");
    }
    let mut all = engine.all_keyspaces().into_iter();
    let found = all.find(|(_, keyspace)| keyspace.id.column_family() == table.family);
    let whose = found.map_or(table.family.clone(), |(db, _)| format!("DB {}", db.0));
    let (first, last) = &table.keys;
    format!(
        "{whose}: what the table {name} has from {} to {}; what it deleted or overwrote may be back \
         ({why})",
        shown(engine.layout, first),
        shown(engine.layout, last),
    )
}

/// Whether all rows can be read.
fn is_readable(db: &Db, cf: &ColumnFamily) -> Result<bool> {
    let mut tables = Tables::new(db, cf);
    let Some(mut rows) = tables.rows_from(&[])? else {
        return Ok(false);
    };
    while rows.item().is_some() {
        rows.next();
    }
    Ok(rows.until().is_none() && rows.is_sound(&mut tables)?)
}

/// Whether all rows of the binlog can be read, with what they refer to.
fn is_binlog_readable(engine: &Engine) -> Result<bool> {
    if !is_readable(&engine.db, &engine.binlog_cf)? {
        return Ok(false);
    }
    let read = engine.read_binlog(engine.binlog.range().first_position, |_, _| true);
    is_there(read)
}

/// Whether something was read. It was not if files have not what was written to them, or if the disk cannot
/// read them.
///
/// # Errors
/// The error has another cause.
fn is_there(read: Result<()>) -> Result<bool> {
    match read {
        Ok(()) => Ok(true),
        Err(error) if error.is_damage() || error.is_of_device() => {
            log::warn!("{error}");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Removes the strings whose bytes cannot be read. Returns what is lost.
fn remove_lost_strings(engine: &Engine, db: DbIndex, cf: &ColumnFamily) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let lost = LostStrings::find(&engine.db, cf, engine.layout, |at| {
        bytes.clear();
        let read = engine.values.read(at, 0..at.len, &mut bytes, true);
        is_there(read).map(|is_there| !is_there)
    })?;
    let told = lost.told(db.0);
    if let Some(told) = &told {
        // Its keys are counted by the next start.
        engine.set_unmended(std::slice::from_ref(told))?;
        lost.remove(&engine.db, cf)?;
        fail_point("repaired-strings")?;
    }
    Ok(told)
}

/// Copies the readable rows of a DB to a new column family, which replaces the old one. Returns it, and
/// what is lost.
fn copy_readable(
    engine: &Engine,
    db: DbIndex,
    keyspace: &Keyspace,
) -> Result<(ColumnFamily, Vec<String>)> {
    let (id, cf) = engine.create_family()?;
    log::warn!("DB {}: the readable rows are copied", db.0);
    let mut lost = Vec::new();
    let mut tables = Tables::new(&engine.db, &keyspace.cf);
    let mut next = Some(Place::default());
    while let Some(place) = next {
        if let Some(rows) = tables.rows_from(&place.begins)? {
            next = copy(engine, rows, &mut tables, (id, &cf))?;
            continue;
        }
        let after = first_readable_after(&mut tables, &place.begins)?;
        if place.begins.is_empty() && after.is_none() {
            let why = tables.last_error();
            let text = format!("nothing of DB {} can be read: {why}", db.0);
            return Err(StorageError::Damaged(text));
        }
        lost.push(format!(
            "DB {}: what stands from {} to {}",
            db.0,
            shown(engine.layout, &place.key),
            after
                .as_deref()
                .map_or("its end".to_owned(), |key| shown(engine.layout, key))
        ));
        next = after.map(Place::at);
    }
    engine.values.sync()?;
    engine.flush_families(std::slice::from_ref(&cf))?;
    // Its keys are counted by the next start.
    engine.set_unmended(&lost)?;
    install(engine, db, id)?;
    fail_point("repaired-db")?;
    Ok((cf, lost))
}

fn install(engine: &Engine, db: DbIndex, id: KeyspaceId) -> Result<()> {
    let mut batch = WriteBatch::default();
    batch.put_cf(&engine.system_cf, system::db_row(db.0), id.0.to_be_bytes());
    engine.db.write(batch)?;
    Ok(engine.db.flush_wal(true)?)
}

/// Where copying goes on.
#[derive(Default)]
struct Place {
    begins: Vec<u8>,
    /// The key at which it is, or behind which.
    key: Vec<u8>,
}

impl Place {
    fn at(key: Vec<u8>) -> Place {
        let begins = key.clone();
        Place { begins, key }
    }

    fn after(key: Vec<u8>) -> Place {
        let begins = [&key[..], &[0]].concat();
        Place { begins, key }
    }
}

/// Copies rows. Returns the place at which the next ones begin, unless all are copied.
fn copy(
    engine: &Engine,
    mut rows: Readable<'_>,
    tables: &mut Tables<'_>,
    (id, to): (KeyspaceId, &ColumnFamily),
) -> Result<Option<Place>> {
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let mut batch = WriteBatch::default();
    let (mut last, mut bytes) = (Vec::new(), Vec::new());
    while let Some((key, value)) = rows.item() {
        match keys::split_base(key) {
            None => batch.put_cf(to, key, value),
            // Its record names the column family.
            Some(string) => {
                let at = ValueRef::decode(value)?;
                bytes.clear();
                // Without a base it is removed later.
                if is_there(engine.values.read(&at, 0..at.len, &mut bytes, true))? {
                    let (at, _pin) = engine.append_value(Owner::Base(id, string), &bytes)?;
                    batch.put_cf(to, key, at.encode());
                }
            }
        }
        last.clear();
        last.extend_from_slice(key);
        if batch.size_in_bytes() >= BATCH_BYTES {
            engine.db.write_opt(std::mem::take(&mut batch), &unlogged)?;
        }
        rows.next();
    }
    engine.db.write_opt(batch, &unlogged)?;
    Ok(match rows.is_sound(tables)? {
        true => rows.until().map(|key| Place::at(key.to_vec())),
        false => Some(Place::after(last)),
    })
}

/// The first key after the unreadable block at `bad`; `None` if there is none.
///
/// Whether rows can be read from a place on does not depend on what was read before, so the end of
/// the unreadable blocks is found by bisection. Of several unreadable blocks close to each other, what
/// is between them may be left out as well.
fn first_readable_after(tables: &mut Tables<'_>, bad: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut seek = |place: &[u8]| -> Result<Option<Option<Vec<u8>>>> {
        Ok(tables.rows_from(place)?.map(|rows| rows.first()))
    };
    // Seeks after all keys that share a prefix with `bad`, with ever shorter prefixes.
    let mut low = bad.to_vec();
    let mut high = None;
    for len in (0..=bad.len()).rev() {
        let after = keys::after_prefix(&bad[..len]);
        let place = after.map_or_else(|| vec![0xFF; 2], |after| after.to_vec());
        if seek(&place)?.is_some() {
            high = Some(place);
            break;
        }
        low = place;
    }
    let Some(mut high) = high else {
        return Ok(None);
    };
    let len = low.len().max(high.len()) + size_of::<u64>();
    while let Some(place) = between(&low, &high, len) {
        match seek(&place)?.is_some() {
            true => high = place,
            false => low = place,
        }
    }
    Ok(seek(&high)?.flatten())
}

/// The middle of two keys, read as numbers of `len` bytes; `None` if there is none.
fn between(low: &[u8], high: &[u8], len: usize) -> Option<Vec<u8>> {
    let digit = |of: &[u8], at: usize| u16::from(of.get(at).copied().unwrap_or(0));
    let mut sum = vec![0; len + 1];
    let mut carry = 0;
    for at in (0..len).rev() {
        let digits = digit(low, at) + digit(high, at) + carry;
        sum[at + 1] = digits & 0xFF;
        carry = digits >> 8;
    }
    sum[0] = carry;
    let halves = sum
        .windows(2)
        .map(|pair| ((pair[0] & 1) << 7 | pair[1] >> 1) as u8);
    let middle: Vec<u8> = halves.collect();
    let is_low = (0..len).all(|at| u16::from(middle[at]) == digit(low, at));
    (!is_low).then_some(middle)
}

/// A readable description of a row's key.
fn shown(layout: Layout, key: &[u8]) -> String {
    if let Ok(user_key) = layout.user_key(key) {
        return format!("the key \"{}\"", user_key.escape_ascii());
    }
    match key.split_first() {
        Some((tag, rest)) => format!("the row {tag:02x} {}", rest.escape_ascii()),
        None => "its beginning".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_halved() {
        assert_eq!(between(&[0], &[2], 1), Some(vec![1]));
        assert_eq!(between(&[1], &[2], 1), None);
        assert_eq!(between(&[1], &[2], 2), Some(vec![1, 0x80]));
        assert_eq!(between(&[0xFF], &[0xFF, 2], 2), Some(vec![0xFF, 1]));
        assert_eq!(
            between(&[0xFE, 0xFF], &[0xFF, 0xFF], 2),
            Some(vec![0xFF, 0x7F])
        );
    }
}
