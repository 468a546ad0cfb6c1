//! HyperLogLogs as values of keys. A valid cached count is used, and each change marks
//! it as stale, but counting never writes it. So counting is a read, on replicas too.

use super::estimate::Histogram;
use super::{Encoding, HEADER_LEN, Hll, HllError, HllResult, REGISTERS, Ranks};
use crate::encoding::meta::StringForm;
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::string::{self, Expiry};
use std::ops::Range;

/// Bytes of the longest HyperLogLog: a run of two bytes for each register.
const LEN_MAX: u64 = (HEADER_LEN + 2 * REGISTERS) as u64;

/// The range that is read of a value, whatever its length: one byte more than the
/// longest HyperLogLog, which is enough to reject longer values.
fn prefix_range(_len: u64) -> Range<u64> {
    0..LEN_MAX + 1
}

type Loaded = Option<(KeyMeta, Hll<Vec<u8>>)>;

fn load(txn: &mut Txn, db: DbIndex, key: &[u8]) -> HllResult<Loaded> {
    let Some((head, bytes)) = string::load(txn, db, key, LEN_MAX + 1)? else {
        return Ok(None);
    };
    let is_whole = bytes.len() as u64 <= LEN_MAX;
    let hll = Hll::open(bytes)?;
    match is_whole {
        true => Ok(Some((head, hll))),
        false => Err(HllError::Corrupt),
    }
}

fn save(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    old: Option<&KeyMeta>,
    hll: Hll<Vec<u8>>,
) -> HllResult<()> {
    let bytes = hll.into_bytes();
    let (form, expiry) = (StringForm::Raw, Expiry::Keep);
    Ok(string::set_over(txn, db, key, old, &bytes, form, expiry)?)
}

/// Adds elements, to a new HyperLogLog if the key is missing; returns whether a register
/// changed or the key is new. The sparse encoding is kept up to `sparse_max` bytes.
pub fn add(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    elements: &[&[u8]],
    sparse_max: usize,
) -> HllResult<bool> {
    let (old, mut hll) = match load(txn, db, key)? {
        Some((head, hll)) => (Some(head), hll),
        None => (None, Hll::new()),
    };
    let mut changed = old.is_none();
    for element in elements {
        changed |= hll.add(element, sparse_max)?;
    }
    if changed {
        hll.forget_count();
        save(txn, db, key, old.as_ref(), hll)?;
    }
    Ok(changed)
}

/// The estimated number of different elements of the union.
pub fn count(view: &mut View, db: DbIndex, keys: &[&[u8]]) -> HllResult<u64> {
    if let [key] = keys {
        let count = |bytes: &[u8]| Hll::open(bytes)?.count();
        let counted = string::with_range(view, db, key, prefix_range, count)?;
        return counted.unwrap_or(Ok(0));
    }
    let mut ranks = no_ranks();
    for key in keys {
        raise(view, db, key, &mut ranks)?;
    }
    Ok(Histogram::of(&ranks).estimate())
}

fn no_ranks() -> Box<Ranks> {
    Box::new([0; REGISTERS])
}

/// Raises `ranks` to those of a key; returns the key's encoding.
fn raise(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    ranks: &mut Ranks,
) -> HllResult<Option<Encoding>> {
    let raised = string::with_range(view, db, key, prefix_range, |bytes| {
        let hll = Hll::open(bytes)?;
        hll.raise(ranks)?;
        Ok(hll.encoding())
    })?;
    raised.transpose()
}

/// Makes `dest` the union of itself and `sources`.
pub fn merge(
    txn: &mut Txn,
    db: DbIndex,
    dest: &[u8],
    sources: &[&[u8]],
    sparse_max: usize,
) -> HllResult<()> {
    let mut ranks = no_ranks();
    let mut dense = false;
    for key in std::iter::once(&dest).chain(sources) {
        let raised = txn.counting(|txn| raise(txn, db, key, &mut ranks))?;
        dense |= raised == Some(Encoding::Dense);
    }
    let (old, mut hll) = match load(txn, db, dest)? {
        Some((head, hll)) => (Some(head), hll),
        None => (None, Hll::new()),
    };
    let mut changed = old.is_none();
    if dense && hll.encoding() == Encoding::Sparse {
        hll.make_dense()?;
        changed = true;
    }
    for (index, rank) in ranks.iter().enumerate().filter(|(_, rank)| **rank > 0) {
        changed |= hll.set(index, *rank, sparse_max)?;
    }
    if changed {
        hll.forget_count();
        save(txn, db, dest, old.as_ref(), hll)?;
    }
    Ok(())
}

/// The encoding of a HyperLogLog; `None` for a missing key.
pub fn encoding(view: &mut View, db: DbIndex, key: &[u8]) -> HllResult<Option<Encoding>> {
    let encoding = |bytes: &[u8]| Ok(Hll::open(bytes)?.encoding());
    let encoding = string::with_range(view, db, key, prefix_range, encoding)?;
    encoding.transpose()
}

/// A copy of a HyperLogLog; `None` for a missing key.
pub fn raw(view: &mut View, db: DbIndex, key: &[u8]) -> HllResult<Option<Hll<Vec<u8>>>> {
    let bytes = string::with_range(view, db, key, prefix_range, <[u8]>::to_vec)?;
    bytes.map(Hll::open).transpose()
}

/// Converts a HyperLogLog to the dense encoding; returns whether it was sparse, `None`
/// for a missing key.
pub fn make_dense(txn: &mut Txn, db: DbIndex, key: &[u8]) -> HllResult<Option<bool>> {
    let Some((head, mut hll)) = load(txn, db, key)? else {
        return Ok(None);
    };
    let sparse = hll.encoding() == Encoding::Sparse;
    if sparse {
        hll.make_dense()?;
        save(txn, db, key, Some(&head), hll)?;
    }
    Ok(Some(sparse))
}
