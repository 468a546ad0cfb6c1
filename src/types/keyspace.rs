//! Operations on keys of any type: walking over them, renaming, and copying or moving a
//! value with its element rows.
//!
//! A value in rows is copied under a new collection id. Only the id, which begins the
//! body of the meta row and is part of the rows' keys, differs between copy and
//! original, so the format of the rest does not matter here.

use super::{OpResult, string};
use crate::base::slots;
use crate::encoding::keys::Layout;
use crate::encoding::meta::MetaView;
use crate::encoding::reader::Reader;
use crate::encoding::{CollectionId, Meta, ValueType, keys};
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::storage::txn::scan::Crossing;
use crate::storage::{DbIndex, KeyMeta, Txn, Value, View};

/// Most bytes of element rows that a copy buffers outside the transaction.
const COPY_SLICE_BYTES: usize = 4 << 20;

/// Tombstones that one step of a bounded walk passes.
const STEP_TOMBSTONES: u64 = 4096;

/// Fewest tombstones that a part of a walk passes before it ends early.
const PART_TOMBSTONES: u64 = 1024;

/// Limits of one part of a walk.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Keys left to visit.
    pub rows: u64,
    /// Tombstones left to pass; negative by how many too many were passed.
    pub tombstones: i64,
}

/// The places where the keys may stand that a glob pattern with this literal prefix matches: a
/// prefix of theirs.
pub fn places(layout: Layout, pattern: &[u8], prefix: &[u8]) -> Vec<u8> {
    match layout {
        Layout::Plain => prefix.to_vec(),
        Layout::Slots => match slots::of_pattern(pattern) {
            Some(slot) => [&slot.to_be_bytes(), prefix].concat(),
            None => Vec::new(),
        },
    }
}

/// Walks over the keys of `db` whose places begin with `prefix`, from the place `start` on if given,
/// in the order of the places, and calls `each` with those that have not expired. With `bounds`,
/// which are reduced, returns the place where to continue if there may be more.
pub fn walk(
    view: &mut View,
    db: DbIndex,
    prefix: &[u8],
    start: Option<&[u8]>,
    bounds: Option<&mut Bounds>,
    mut each: impl FnMut(&[u8], ValueType),
) -> OpResult<Option<Vec<u8>>> {
    let (now_ms, layout) = (view.expiry_now_ms(), view.layout());
    let first = keys::meta_at(prefix);
    let to = keys::after_prefix(&first).unwrap_or_else(|| first.clone());
    let mut from = match start {
        Some(start) => first.max(keys::meta_at(start)),
        None => first,
    };
    let Some(Bounds { rows, tombstones }) = bounds else {
        let mut scan = view.scan(db, &from, &to, Direction::Forward)?;
        while let Some((row_key, row)) = scan.next()? {
            let meta = MetaView::decode(row)?.meta;
            if !meta.is_expired(now_ms) {
                each(layout.user_key(row_key)?, meta.kind);
            }
        }
        return Ok(None);
    };
    // Each part makes progress, whatever the bounds: it passes at least so many
    // tombstones.
    let mut behind = 0;
    let mut crossing: Option<Crossing> = None;
    while from < to {
        let end = match &crossing {
            Some(crossing) => crossing.next_end(&from, &to),
            None => to.to_vec(),
        };
        let step_tombstones = match crossing {
            Some(_) => Crossing::STEP_TOMBSTONES,
            None => STEP_TOMBSTONES,
        };
        let mut scan = view.scan_within(db, &from, &end, Direction::Forward, step_tombstones)?;
        let mut last = None;
        while let Some((row_key, row)) = scan.next()? {
            if *rows == 0 {
                return Ok(Some(keys::place_of_meta(row_key)?.to_vec()));
            }
            *rows -= 1;
            let meta = MetaView::decode(row)?.meta;
            if !meta.is_expired(now_ms) {
                each(layout.user_key(row_key)?, meta.kind);
            }
            last = Some(keys::RowKey::from_slice(row_key));
        }
        let (gave_up, passed) = (scan.gave_up(), scan.passed());
        drop(scan);
        *tombstones -= passed as i64;
        let found = last.is_some();
        if let Some(mut last) = last.filter(|_| gave_up) {
            last.push(0);
            from = last;
        }
        if !gave_up {
            from = keys::RowKey::from_slice(&end);
        }
        if found || !gave_up {
            behind += passed;
        }
        match &mut crossing {
            _ if found => crossing = None,
            Some(crossing) if gave_up => crossing.was_too_much(),
            Some(crossing) => crossing.was_empty(&from),
            None => crossing = Some(Crossing::at(&from)),
        }
        if *tombstones <= 0 && behind >= PART_TOMBSTONES && from < to {
            return Ok(Some(keys::place_of_meta(&from)?.to_vec()));
        }
    }
    Ok(None)
}

/// Moves the value of `from`, with its expiry, to the key `to`, and replaces the value
/// there. The keys differ, and `found` is the value of `from`. One meta row moves; the
/// element rows stay where they are (I6).
pub fn rename(txn: &mut Txn, db: DbIndex, from: &[u8], found: &KeyMeta, to: &[u8]) -> OpResult<()> {
    let old = txn.lookup(db, to)?;
    txn.vacate_key(db, from, found, true)?;
    txn.replace_key(db, to, old.as_ref(), found.meta, &found.body)?;
    if old.is_some() {
        txn.event(Class::NEW, "new", db, to);
    }
    txn.event(Class::GENERIC, "rename_from", db, from);
    txn.event(Class::GENERIC, "rename_to", db, to);
    Ok(())
}

/// A key in a DB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The DB.
    pub db: DbIndex,
    /// The key.
    pub key: &'a [u8],
}

/// Writes a copy of the value `found` of `from_db`, with its expiry, to `to`; `old` is
/// the current value there.
pub fn copy(
    txn: &mut Txn,
    from_db: DbIndex,
    found: &KeyMeta,
    to: Place<'_>,
    old: Option<&KeyMeta>,
) -> OpResult<()> {
    let body = copy_rows(txn, from_db, found, to.db)?;
    txn.replace_key(to.db, to.key, old, found.meta, &body)?;
    if old.is_some() {
        txn.event(Class::NEW, "new", to.db, to.key);
    }
    Ok(())
}

/// Moves a key to another DB, where the key does not exist. Each DB has its own column
/// family, so the element rows are copied.
pub fn move_to_db(txn: &mut Txn, from: Place<'_>, found: &KeyMeta, to_db: DbIndex) -> OpResult<()> {
    let Place { db, key } = from;
    copy(txn, db, found, Place { db: to_db, key }, None)?;
    txn.vacate_key(db, key, found, false)?;
    txn.event(Class::GENERIC, "move_from", db, key);
    txn.event(Class::GENERIC, "move_to", to_db, key);
    Ok(())
}

/// Copies a value's element rows under a new id; returns the body of the copy's meta
/// row.
fn copy_rows(txn: &mut Txn, from_db: DbIndex, found: &KeyMeta, to_db: DbIndex) -> OpResult<Value> {
    let mut body = found.body.clone();
    if !found.meta.rows {
        return Ok(body);
    }
    let old_id = CollectionId(Reader::new(&body, "meta id").u64()?);
    let new_id = txn.new_id();
    let kind = found.meta.kind;
    let (mut copied, mut early) = (0, None);
    for &tag in kind.element_tags() {
        let end = keys::element_end(tag, old_id);
        let prefix = keys::element_prefix(tag, new_id);
        let mut from = Some(keys::element_prefix(tag, old_id));
        while let Some(start) = from.take() {
            let mut slice: Vec<(keys::RowKey, Vec<u8>)> = Vec::new();
            let mut bytes = 0;
            let mut scan = txn.scan(from_db, &start, &end, Direction::Forward)?;
            while let Some((row_key, row)) = scan.next()? {
                if bytes >= COPY_SLICE_BYTES {
                    from = Some(keys::RowKey::from_slice(row_key));
                    break;
                }
                let mut copy_key = prefix.clone();
                copy_key.extend_from_slice(row_key.get(prefix.len()..).unwrap_or_default());
                bytes += row_key.len() + row.len();
                slice.push((copy_key, row.to_vec()));
            }
            drop(scan);
            for (row_key, row) in &slice {
                if keys::split_base(row_key).is_some() {
                    string::copy_base(txn, (from_db, old_id), (to_db, new_id))?;
                    continue;
                }
                match &mut early {
                    Some(early) => txn.put_early(early, row_key, row)?,
                    None => txn.put_row(to_db, row_key, row)?,
                }
            }
            drop(slice);
            txn.forget_reads();
            copied += bytes;
            if early.is_none() && copied >= txn.engine().config.ahead_bytes {
                // A large copy is written before the commit, so that the pending batch
                // stays small.
                early = txn.begin_early(to_db, kind, new_id, kind.stated_rows(&found.body)?)?;
            }
        }
    }
    if let Some(early) = early {
        txn.finish_early(early)?;
    }
    if let Some(id) = body.get_mut(..8) {
        id.copy_from_slice(&new_id.0.to_be_bytes());
    }
    Ok(body)
}

/// The head of a key that exists and has not expired.
pub fn head(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Meta>> {
    Ok(view.peek(db, key, |found| found.meta)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::testing::Deleted;

    /// Counts steps, not time: no part of a walk passes many more tombstones than
    /// allowed, and all parts together find each key once.
    #[test]
    fn a_bounded_walk_gets_over_tombstones_in_parts() {
        const DEAD: usize = 40_000;
        for survivors in Deleted::patterns(DEAD, 20) {
            let mut store = Deleted::store(DEAD, &survivors);
            let (mut found, mut parts, mut start) = (Vec::new(), 0, None);
            loop {
                let mut bounds = Bounds {
                    rows: 1000,
                    tombstones: 4096,
                };
                let next = walk(
                    &mut store.txn,
                    DbIndex(0),
                    b"",
                    start.as_deref(),
                    Some(&mut bounds),
                    |key, _| found.push(key.to_vec()),
                );
                // One step too many, and the steps of a crossing until it makes
                // progress.
                assert!(
                    bounds.tombstones > -8 * STEP_TOMBSTONES as i64,
                    "{bounds:?}"
                );
                parts += 1;
                let next = next.unwrap();
                let Some(next) = next else { break };
                assert!(start.is_none_or(|start| start < next));
                start = Some(next);
            }
            if store.txn.layout() == Layout::Slots {
                // In the order of the slots.
                found.sort_unstable();
            }
            assert_eq!(found, survivors);
            assert!((4..=80).contains(&parts), "{parts} parts");
        }
    }
}
