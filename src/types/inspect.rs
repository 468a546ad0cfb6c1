//! Values of any type looked at from outside: their size, and digests by which
//! two data sets can be compared. A digest depends on what clients can see
//! alone, not on how or in which order a value is kept.

use super::OpResult;
use super::stream::{StreamBody, parts};
use super::string::{self, Long};
use crate::encoding::reader::Reader;
use crate::encoding::stream::entry_of;
use crate::encoding::{CollectionId, Corrupt, MetaView, ValueType, keys, packed, score, tag};
use crate::rdb::StreamPart;
use crate::storage::Direction;
use crate::storage::{DbIndex, KeyMeta, View};
use sha1::{Digest, Sha1};
use std::ops::ControlFlow;

/// Bytes of a meta row besides key and body, and of a TTL row besides the key.
const META_OVERHEAD: u64 = 16;
const TTL_OVERHEAD: u64 = 10;
/// Bytes of an element row besides what the entry holds.
const ROW_OVERHEAD: u64 = 24;
/// Keys looked at between two reads of the key range.
const SLICE_KEYS: usize = 512;

/// A SHA-1, or zeros for nothing.
pub type Hash = [u8; 20];

/// Calls `each` with every entry of a collection until it returns false: the
/// element, and its value (of a hash) or its score's bytes (of a zset).
pub fn each_entry(
    view: &mut View,
    db: DbIndex,
    found: &KeyMeta,
    mut each: impl FnMut(&[u8], &[u8]) -> bool,
) -> OpResult<()> {
    let kind = found.meta.kind;
    if !found.meta.rows {
        return Ok(each_packed(kind, &found.body, each)?);
    }
    let id = CollectionId(Reader::new(&found.body, "meta id").u64()?);
    let Some(&tag) = kind.element_tags().first() else {
        return Err(Corrupt("meta type").into());
    };
    let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
    let mut scan = view.scan(db, &from, &to, Direction::Forward)?;
    while let Some((row_key, value)) = scan.next()? {
        let go_on = match tag {
            tag::LIST_ITEM => each(value, b""),
            tag::STREAM_ENTRY => each(&entry_of(row_key)?.encode(), value),
            _ => each(keys::split_hashed(row_key)?.1, value),
        };
        if !go_on {
            break;
        }
    }
    Ok(())
}

fn each_packed(
    kind: ValueType,
    body: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), Corrupt> {
    if kind == ValueType::Zset {
        for entry in packed::scored(body) {
            let (score, member) = entry?;
            if !each(member, &score::encode(score)) {
                break;
            }
        }
        return Ok(());
    }
    let mut items = packed::items(body);
    while let Some(item) = items.next() {
        let item = item?;
        let value = match kind {
            ValueType::Hash => items.next().ok_or(Corrupt("packed hash"))??,
            _ => b"",
        };
        if !each(item, value) {
            break;
        }
    }
    Ok(())
}

/// How many element rows a collection in rows has.
fn row_count(found: &KeyMeta) -> OpResult<u64> {
    let mut body = Reader::new(&found.body, "meta count");
    body.u64()?;
    let first = body.u64()?;
    Ok(match found.meta.kind {
        ValueType::List => body.u64()?.wrapping_sub(first),
        _ => first,
    })
}

/// Bytes of what is stored of a string, as `samples` of its fragments suggest.
fn fragment_bytes(view: &mut View, db: DbIndex, found: &KeyMeta, samples: u64) -> OpResult<u64> {
    let long = Long::of(found)?;
    let (mut seen, mut seen_bytes, mut passed) = (0u64, 0u64, None);
    long.each(view, db, 0..long.len(), |offset, bytes| {
        seen += 1;
        seen_bytes += bytes.len() as u64 + ROW_OVERHEAD;
        if seen == samples {
            passed = Some(offset + bytes.len() as u64);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    // What follows is taken to be as sparse as what was passed.
    Ok(match passed {
        Some(passed) => (seen_bytes as f64 * long.len() as f64 / passed as f64) as u64,
        None => seen_bytes,
    })
}

/// About how many bytes a key and its value take before compression. Of a value
/// in rows, `samples` entries are looked at (0: all), the others are taken to be
/// like them.
pub fn stored_bytes(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    found: &KeyMeta,
    samples: u64,
) -> OpResult<u64> {
    let key_bytes = key.len() as u64;
    let mut bytes = META_OVERHEAD + key_bytes + found.body.len() as u64;
    if found.meta.expire_ms != 0 {
        bytes += TTL_OVERHEAD + key_bytes;
    }
    if !found.meta.rows {
        return Ok(bytes);
    }
    if found.meta.kind == ValueType::String {
        return Ok(bytes + fragment_bytes(view, db, found, samples)?);
    }
    let rows = row_count(found)?;
    let (mut seen, mut seen_bytes) = (0u64, 0u64);
    each_entry(view, db, found, |element, value| {
        seen += 1;
        seen_bytes += (element.len() + value.len()) as u64 + ROW_OVERHEAD;
        // A zset has a second row by score.
        if found.meta.kind == ValueType::Zset {
            seen_bytes += element.len() as u64 + ROW_OVERHEAD;
        }
        samples == 0 || seen < samples
    })?;
    let average = seen_bytes as f64 / seen.max(1) as f64;
    Ok(bytes + (average * rows.max(seen) as f64) as u64)
}

fn sha1(parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha1::new();
    for part in parts {
        // Lengths keep ("a", "bc") and ("ab", "c") apart.
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn mix(into: &mut Hash, other: &Hash) {
    for (a, b) in into.iter_mut().zip(other) {
        *a ^= b;
    }
}

/// The digest of a key's value; zeros if there is no such key.
pub fn value_digest(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Hash> {
    let Some(found) = view.lookup(db, key)? else {
        return Ok(Hash::default());
    };
    let kind = found.meta.kind;
    let mut sum = Hash::default();
    match kind {
        ValueType::String => {
            let value = string::get(view, db, key)?.unwrap_or_default();
            sum = sha1(&[&value]);
        }
        // The order counts: every part is mixed with all before it.
        ValueType::Stream => {
            let body = StreamBody::decode(&found.body)?;
            parts::each_part(view, db, &body, &mut |part| {
                sum = sha1(&[&sum, &part_bytes(&part)]);
                Ok(())
            })?;
        }
        // Likewise.
        ValueType::List => each_entry(view, db, &found, |item, _| {
            sum = sha1(&[&sum, item]);
            true
        })?,
        _ => each_entry(view, db, &found, |element, value| {
            mix(&mut sum, &sha1(&[element, value]));
            true
        })?,
    }
    let expires: &[u8] = if found.meta.expire_ms != 0 {
        b"expires"
    } else {
        b""
    };
    Ok(sha1(&[kind.name().as_bytes(), &sum, expires]))
}

/// What the digest of a stream has of a part: not when consumers were last there,
/// which nobody tells a replica.
fn part_bytes(part: &StreamPart<'_>) -> Vec<u8> {
    let seen = match *part {
        StreamPart::Consumer { name, pending, .. } => StreamPart::Consumer {
            name,
            seen_ms: 0,
            active_ms: 0,
            pending,
        },
        part => part,
    };
    format!("{seen:?}").into_bytes()
}

/// The digest of all keys of a DB; zeros if it is empty.
pub fn db_digest(view: &mut View, db: DbIndex) -> OpResult<Hash> {
    let mut sum = Hash::default();
    let mut from = keys::meta(b"");
    loop {
        let names = keys_from(view, db, &from)?;
        let Some(last) = names.last() else {
            return Ok(sum);
        };
        from = keys::meta(last);
        from.push(0);
        for name in names {
            let value = value_digest(view, db, &name)?;
            mix(&mut sum, &sha1(&[&db.0.to_be_bytes(), &name, &value]));
        }
    }
}

/// The next keys from a row on; those whose time is over are left out.
fn keys_from(view: &mut View, db: DbIndex, from: &[u8]) -> OpResult<Vec<Vec<u8>>> {
    let now_ms = view.expiry_now_ms();
    let mut scan = view.scan(db, from, &[tag::META + 1], Direction::Forward)?;
    let mut names = Vec::new();
    while names.len() < SLICE_KEYS
        && let Some((row_key, value)) = scan.next()?
    {
        if !MetaView::decode(value)?.meta.is_expired(now_ms) {
            names.push(keys::user_key_of_meta(row_key)?.to_vec());
        }
    }
    Ok(names)
}
