//! HyperLogLogs under keys. The cached count is used where it is good and
//! marked stale by every change, but a count never writes it: so counting is
//! reading, on replicas too.

use super::estimate::Histogram;
use super::{Encoding, Hll, HllResult, REGISTERS, Ranks};
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::string::{self, Expiry};

type Loaded = Option<(KeyMeta, Hll<Vec<u8>>)>;

fn load(txn: &mut Txn, db: DbIndex, key: &[u8]) -> HllResult<Loaded> {
    Ok(match string::load(txn, db, key)? {
        Some((head, bytes)) => Some((head, Hll::open(bytes)?)),
        None => None,
    })
}

fn save(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    old: Option<&KeyMeta>,
    hll: Hll<Vec<u8>>,
) -> HllResult<()> {
    let bytes = hll.into_bytes();
    Ok(string::set_over(txn, db, key, old, &bytes, Expiry::Keep)?)
}

/// Adds elements, to a new HyperLogLog if there is none; says whether a register
/// changed or it is new. One of up to `sparse_max` bytes stays sparse.
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

/// About how many different elements were added to any of these.
pub fn count(view: &mut View, db: DbIndex, keys: &[&[u8]]) -> HllResult<u64> {
    if let [key] = keys {
        let counted = string::with_value(view, db, key, |bytes| Hll::open(bytes)?.count())?;
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

/// Raises ranks to those of one key; says which encoding that has.
fn raise(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    ranks: &mut Ranks,
) -> HllResult<Option<Encoding>> {
    let raised = string::with_value(view, db, key, |bytes| {
        let hll = Hll::open(bytes)?;
        hll.raise(ranks)?;
        Ok(hll.encoding())
    })?;
    raised.transpose()
}

/// Makes `dest` what it would be if all that was added to `sources` had been
/// added to it too.
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

/// The encoding of a HyperLogLog, if there is such a key.
pub fn encoding(view: &mut View, db: DbIndex, key: &[u8]) -> HllResult<Option<Encoding>> {
    let encoding = string::with_value(view, db, key, |bytes| Ok(Hll::open(bytes)?.encoding()))?;
    encoding.transpose()
}

/// A copy of a HyperLogLog, if there is such a key.
pub fn raw(view: &mut View, db: DbIndex, key: &[u8]) -> HllResult<Option<Hll<Vec<u8>>>> {
    let bytes = string::get(view, db, key)?;
    bytes.map(Hll::open).transpose()
}

/// Makes a HyperLogLog dense; says whether it was not, or `None` if there is no
/// such key.
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
