//! Size of values of any type, and digests to compare two data sets. A digest depends on
//! what clients can see, not on the encoding or the order of storage.

use super::OpResult;
use super::definition::{Hash, mix, sha1};
use super::table::definition;
use crate::encoding::{MetaView, keys};
use crate::storage::{DbIndex, Direction, KeyMeta, View};

/// Overhead in bytes of a meta row, besides key and body, and of a TTL row, besides the
/// key.
const META_OVERHEAD: u64 = 16;
const TTL_OVERHEAD: u64 = 10;
/// Keys in one read of the key range.
const SLICE_KEYS: usize = 512;

/// Approximate bytes of a key and its value before compression. For a value in rows,
/// extrapolated from `samples` elements (0: all).
pub fn stored_bytes(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    found: &KeyMeta,
    samples: u64,
) -> OpResult<u64> {
    let key_bytes = key.len() as u64;
    let mut bytes = META_OVERHEAD + key_bytes + found.body.len() as u64;
    if found.meta.expire_ms.is_some() {
        bytes += TTL_OVERHEAD + key_bytes;
    }
    if found.meta.due_ms.is_some() {
        bytes += TTL_OVERHEAD + key_bytes;
    }
    if found.meta.rows {
        bytes += definition(found.meta.kind).rows_bytes(view, db, found, samples)?;
    }
    Ok(bytes)
}

/// The digest of a key's value; zeros for a missing key.
pub fn value_digest(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Hash> {
    let Some(found) = view.lookup(db, key)? else {
        return Ok(Hash::default());
    };
    let kind = found.meta.kind;
    let sum = definition(kind).digest(view, db, &found)?;
    let expires: &[u8] = if found.meta.expire_ms.is_some() {
        b"expires"
    } else {
        b""
    };
    Ok(sha1(&[kind.name().as_bytes(), &sum, expires]))
}

/// The digest of all keys of a DB; zeros for an empty DB.
pub fn db_digest(view: &mut View, db: DbIndex) -> OpResult<Hash> {
    let mut sum = Hash::default();
    let layout = view.layout();
    let mut from = keys::RowKey::from_slice(&keys::METAS.0);
    loop {
        let names = keys_from(view, db, &from)?;
        let Some(last) = names.last() else {
            return Ok(sum);
        };
        from = layout.meta(last);
        from.push(0);
        for name in names {
            let value = value_digest(view, db, &name)?;
            mix(&mut sum, &sha1(&[&db.0.to_be_bytes(), &name, &value]));
        }
    }
}

/// The next keys from a row on, without expired ones.
fn keys_from(view: &mut View, db: DbIndex, from: &[u8]) -> OpResult<Vec<Vec<u8>>> {
    let (now_ms, layout) = (view.expiry_now_ms(), view.layout());
    let mut scan = view.scan(db, from, &keys::METAS.1, Direction::Forward)?;
    let mut names = Vec::new();
    while names.len() < SLICE_KEYS
        && let Some((row_key, value)) = scan.next()?
    {
        if !MetaView::decode(value)?.meta.is_expired(now_ms) {
            names.push(layout.user_key(row_key)?.to_vec());
        }
    }
    Ok(names)
}
