//! Operations on keys whatever their type: walking over them, picking one at
//! random, renaming, and copying or moving a value with its element rows.
//!
//! A value in rows is copied under a new id: only the id in front of the meta
//! row's body and in the rows' keys differs between the copy and the original,
//! so nothing here knows what the rest of them says.

use super::OpResult;
use crate::encoding::meta::MetaView;
use crate::encoding::reader::Reader;
use crate::encoding::{CollectionId, Kind, Meta, keys};
use crate::storage::scan::Direction;
use crate::storage::{DbIndex, KeyMeta, Txn, Value, View};

/// Bytes of element rows that a copy holds at a time beside the transaction.
const COPY_SLICE_BYTES: usize = 4 << 20;

/// Walks over the keys of `db` that begin with `prefix` and come after the key
/// `after`, in lexicographic order, and calls `each` with those that live.
/// Looks at no more than `rows` keys, or at all with `None`. Returns the last
/// key looked at if others follow it.
pub fn walk(
    view: &mut View,
    db: DbIndex,
    prefix: &[u8],
    after: Option<&[u8]>,
    rows: Option<u64>,
    mut each: impl FnMut(&[u8], Kind),
) -> OpResult<Option<Vec<u8>>> {
    let now_ms = view.expiry_now_ms();
    let mut from = keys::meta(prefix);
    let to = keys::after_prefix(&from).unwrap_or_else(|| from.clone());
    if let Some(after) = after {
        let mut next = keys::meta(after);
        next.push(0);
        from = from.max(next);
    }
    let mut left = rows.unwrap_or(u64::MAX);
    let mut last = Vec::new();
    let mut scan = view.scan(db, &from, &to, Direction::Forward)?;
    while let Some((row_key, row)) = scan.next()? {
        if left == 0 {
            return Ok(Some(last));
        }
        left -= 1;
        let key = keys::user_key_of_meta(row_key)?;
        let meta = MetaView::decode(row)?.meta;
        if !meta.is_expired(now_ms) {
            each(key, meta.kind);
        }
        if left == 0 {
            last.extend_from_slice(key);
        }
    }
    Ok(None)
}

/// Moves the value of `from`, with its expiry, to the key `to`, whatever that
/// held. Both keys differ and `found` is what `from` holds. One meta row moves;
/// the element rows stay where they are (I6).
pub fn rename(txn: &mut Txn, db: DbIndex, from: &[u8], found: &KeyMeta, to: &[u8]) -> OpResult<()> {
    let old = txn.lookup(db, to)?;
    txn.unlink_key(db, from, found)?;
    txn.replace_key(db, to, old.as_ref(), found.meta, &found.body)?;
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

/// Writes a copy of the value `found`, which stands in `from_db`, with its
/// expiry to another place; `old` is what stands there now.
pub fn copy(
    txn: &mut Txn,
    from_db: DbIndex,
    found: &KeyMeta,
    to: Place<'_>,
    old: Option<&KeyMeta>,
) -> OpResult<()> {
    let body = copy_rows(txn, from_db, found, to.db)?;
    txn.replace_key(to.db, to.key, old, found.meta, &body)?;
    Ok(())
}

/// Moves a key to another DB, where nothing has its name. DBs are apart from
/// each other on disk: this copies the element rows.
pub fn move_to_db(txn: &mut Txn, from: Place<'_>, found: &KeyMeta, to_db: DbIndex) -> OpResult<()> {
    let Place { db, key } = from;
    copy(txn, db, found, Place { db: to_db, key }, None)?;
    txn.remove_key(db, key, found)?;
    Ok(())
}

/// Copies a value's element rows under a new id; returns the body of the copy's
/// meta row.
fn copy_rows(txn: &mut Txn, from_db: DbIndex, found: &KeyMeta, to_db: DbIndex) -> OpResult<Value> {
    let mut body = found.body.clone();
    if !found.meta.rows {
        return Ok(body);
    }
    let old_id = CollectionId(Reader::new(&body, "meta id").u64()?);
    let new_id = txn.new_id();
    for &tag in found.meta.kind.element_tags() {
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
                txn.put_row(to_db, row_key, row)?;
            }
        }
    }
    if let Some(id) = body.get_mut(..8) {
        id.copy_from_slice(&new_id.0.to_be_bytes());
    }
    Ok(body)
}

/// The head of a key that lives.
pub fn head(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Meta>> {
    Ok(view.peek(db, key, |found| found.meta)?)
}
