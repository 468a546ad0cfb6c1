//! Mending of a database that has lost a part of its log or of its files: makes its rows agree with
//! each other again.
//!
//! Column families are flushed at different times, so after a loss one may be ahead of another. The
//! keys are counted again, ids of collections that stand in some row are not used again, and every
//! key with an expiry, or with elements that have one, gets its row in the index. Strings whose bytes are
//! lost with a segment of the value log are removed. The binlog is emptied and a new history begins, so that
//! replicas copy everything anew.

use super::{ColumnFamily, Db, Keyspace, hex, random_bytes};
use crate::encoding::keys::Layout;
use crate::encoding::meta::{Base, LongString};
use crate::encoding::reader::Reader;
use crate::encoding::system::{self, Counts, State};
use crate::encoding::values::ValueRef;
use crate::encoding::{CollectionId, MetaView, ValueType, keys, tag};
use crate::storage::Result;
use crate::storage::engine::values::ValueLog;
use rocksdb::{DBRawIteratorWithThreadMode, ReadOptions, WriteBatch};
use std::sync::Arc;

/// The number of rows of the TTL index that are written at a time.
const BATCH_ROWS: usize = 10_000;

/// Begins a new history with an empty binlog. No other thread may use the database.
pub(super) fn begin_anew(
    db: &Db,
    system_cf: &ColumnFamily,
    binlog_cf: &ColumnFamily,
) -> Result<()> {
    let mut batch = WriteBatch::default();
    let id = hex(&random_bytes::<20>()?);
    batch.put_cf(system_cf, system::REPLICATION_ID, id);
    batch.delete_cf(system_cf, system::ANCESTORS);
    batch.delete_range_cf(binlog_cf, [0u8; 8], [0xFFu8; 8]);
    db.write(batch)?;
    Ok(db.flush_wal(true)?)
}

/// Removes the strings whose bytes are lost with a segment of the value log, and sets the state row and the
/// counts from the rows.
pub(super) fn mend_rows(
    db: &Db,
    system_cf: &ColumnFamily,
    layout: Layout,
    keyspaces: &[Option<Arc<Keyspace>>],
    values: &ValueLog,
    state: &mut State,
) -> Result<()> {
    remove_lost_strings(db, layout, keyspaces, values)?;
    recount(db, system_cf, layout, keyspaces, state)
}

/// Sets the state row and the counts from the rows.
fn recount(
    db: &Db,
    system_cf: &ColumnFamily,
    layout: Layout,
    keyspaces: &[Option<Arc<Keyspace>>],
    state: &mut State,
) -> Result<()> {
    log::warn!("a part of the database is lost: its keys are counted again");
    let mut batch = WriteBatch::default();
    for (index, keyspace) in keyspaces.iter().enumerate() {
        let Some(keyspace) = keyspace else { continue };
        let (counts, last_id) = count(db, layout, keyspace)?;
        let before = keyspace.counts();
        if counts != before && before != Counts::default() {
            log::warn!(
                "DB {index} has {} keys, {} with an expiry; the stored counts were {} and {}",
                counts.keys,
                counts.expires,
                before.keys,
                before.expires
            );
        }
        keyspace.set_counts(counts);
        state.next_id = state.next_id.max(last_id.saturating_add(1));
        match system::counts_row(keyspace.id) {
            Some(row) => batch.put_cf(system_cf, row, counts.encode()),
            None => state.set_counts(keyspace.id, counts),
        }
        let row = system::timed_row(keyspace.id);
        batch.put_cf(system_cf, row, counts.timed.to_be_bytes());
        if let Some(slots) = keyspace.slots() {
            slots.put_all(keyspace.id, |row, count| match count {
                0 => batch.delete_cf(system_cf, row),
                count => batch.put_cf(system_cf, row, count.to_be_bytes()),
            });
        }
    }
    let mut row = Vec::new();
    state.encode(&mut row);
    batch.put_cf(system_cf, system::STATE, row);
    db.write(batch)?;
    Ok(db.flush_wal(true)?)
}

/// Removes the strings whose bytes are lost with a segment of the value log.
fn remove_lost_strings(
    db: &Db,
    layout: Layout,
    keyspaces: &[Option<Arc<Keyspace>>],
    values: &ValueLog,
) -> Result<()> {
    for (index, keyspace) in keyspaces.iter().enumerate() {
        let Some(keyspace) = keyspace else { continue };
        let is_lost = |at: &ValueRef| Ok(!values.may_have(at));
        let lost = LostStrings::find(db, &keyspace.cf, layout, is_lost)?;
        if let Some(lost) = lost.told(index) {
            log::warn!("removed: {lost}");
        }
        lost.remove(db, &keyspace.cf)?;
    }
    Ok(())
}

/// Strings of a DB whose bytes in the value log are lost.
pub(in crate::storage) struct LostStrings(Vec<LostString>);

struct LostString {
    meta: Vec<u8>,
    user_key: Vec<u8>,
    /// Its row in the TTL index.
    ttl: Option<keys::RowKey>,
    id: CollectionId,
}

/// So many keys are told.
const KEYS_TOLD: usize = 20;

impl LostStrings {
    /// Finds them. `is_lost` says whether the bytes of a base are lost; a base without a row is.
    ///
    /// # Errors
    /// The rows cannot be read, or `is_lost` fails.
    pub(in crate::storage) fn find(
        db: &Db,
        cf: &ColumnFamily,
        layout: Layout,
        mut is_lost: impl FnMut(&ValueRef) -> Result<bool>,
    ) -> Result<LostStrings> {
        let mut lost = Vec::new();
        let mut rows = all_rows(db, cf);
        rows.seek([tag::META]);
        while let Some((key, value)) = rows.item()
            && key.first() == Some(&tag::META)
        {
            let found = MetaView::decode(value)?;
            if found.meta.kind == ValueType::String
                && found.meta.rows
                && let LongString { id, base, .. } = LongString::decode(found.body)?
                && base != Base::None
                && match db.get_pinned_cf(cf, keys::base(id))? {
                    Some(row) => is_lost(&ValueRef::decode(&row)?)?,
                    None => true,
                }
            {
                let (_, user_key) = layout.checked(key)?;
                let expire_ms = found.meta.expire_ms;
                lost.push(LostString {
                    meta: key.to_vec(),
                    user_key: user_key.to_vec(),
                    ttl: expire_ms.is_some().then(|| keys::ttl(expire_ms, user_key)),
                    id,
                });
            }
            rows.next();
        }
        rows.status()?;
        Ok(LostStrings(lost))
    }

    /// What is lost, in words; `None` if nothing is.
    pub(in crate::storage) fn told(&self, db: impl std::fmt::Display) -> Option<String> {
        let told = self.0.iter().take(KEYS_TOLD);
        let told: Vec<String> = told
            .map(|string| format!("\"{}\"", string.user_key.escape_ascii()))
            .collect();
        let strings = match self.0.len() {
            0 => return None,
            1 => "string",
            _ => "strings",
        };
        let more = match self.0.len() - told.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let keys = told.join(", ");
        Some(format!(
            "DB {db}: the {strings} {keys}{more}, whose bytes are lost"
        ))
    }

    /// Removes their rows. The keys must be counted again then.
    ///
    /// # Errors
    /// The rows cannot be read or written.
    pub(in crate::storage) fn remove(&self, db: &Db, cf: &ColumnFamily) -> Result<()> {
        let mut batch = WriteBatch::default();
        for string in &self.0 {
            let prefix = keys::element_prefix(tag::FRAGMENT, string.id);
            let mut rows = all_rows(db, cf);
            rows.seek(&prefix);
            while let Some(key) = rows.key()
                && key.starts_with(&prefix)
            {
                batch.delete_cf(cf, key);
                if batch.len() >= BATCH_ROWS {
                    db.write(std::mem::take(&mut batch))?;
                }
                rows.next();
            }
            rows.status()?;
            if let Some(ttl) = &string.ttl {
                batch.delete_cf(cf, ttl);
            }
            batch.delete_cf(cf, &string.meta);
            if batch.len() >= BATCH_ROWS {
                db.write(std::mem::take(&mut batch))?;
            }
        }
        Ok(db.write(batch)?)
    }
}

/// A walk over the rows of a DB that leaves the caches as they are.
fn all_rows<'a>(db: &'a Db, cf: &ColumnFamily) -> DBRawIteratorWithThreadMode<'a, Db> {
    let mut read = ReadOptions::default();
    read.set_total_order_seek(true);
    read.fill_cache(false);
    db.raw_iterator_cf_opt(cf, read)
}

/// Counts the keys of a DB and adds missing rows of its TTL index. Also returns the highest id of a
/// collection.
fn count(db: &Db, layout: Layout, keyspace: &Keyspace) -> Result<(Counts, u64)> {
    if let Some(slots) = keyspace.slots() {
        slots.clear();
    }
    let (mut counts, mut last_id) = (Counts::default(), 0);
    let mut index = WriteBatch::default();
    let mut rows = all_rows(db, &keyspace.cf);
    rows.seek_to_first();
    while let Some((key, value)) = rows.item() {
        match key.first().copied() {
            Some(tag::META) => {
                let found = MetaView::decode(value)?;
                let (slot, user_key) = layout.checked(key)?;
                counts.keys += 1;
                if let Some(slots) = keyspace.slots() {
                    slots.add(slot, 1);
                }
                if found.meta.rows {
                    last_id = last_id.max(found.id()?.0);
                }
                if found.meta.expire_ms.is_some() {
                    counts.expires += 1;
                    let row = keys::ttl(found.meta.expire_ms, user_key);
                    index.put_cf(&keyspace.cf, row, [found.meta.kind as u8]);
                }
                if found.meta.due_ms.is_some() {
                    counts.timed += 1;
                    let row = keys::due(found.meta.due_ms, user_key);
                    index.put_cf(&keyspace.cf, row, [found.meta.kind as u8]);
                }
            }
            Some(tag::TTL | tag::DUE) => {}
            _ => {
                let mut r = Reader::new(key, "element");
                r.u8()?;
                last_id = last_id.max(r.u64()?);
            }
        }
        if index.len() >= BATCH_ROWS {
            db.write(std::mem::take(&mut index))?;
        }
        rows.next();
    }
    rows.status()?;
    db.write(index)?;
    Ok((counts, last_id))
}
