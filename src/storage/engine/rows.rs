//! Iterators over committed rows.

use super::{Db, Engine, Keyspace, ReadSnapshot};
use crate::encoding::keys::is_one_map;
use crate::storage::Direction;
use rocksdb::{DBRawIteratorWithThreadMode, ReadOptions};

/// An iterator over the committed rows in `[from, to)`, positioned at the first of them; over the
/// rows of `snapshot` if there is one, which the iterator must not outlive.
pub(in crate::storage) fn open_rows<'a>(
    engine: &'a Engine,
    snapshot: Option<&'a ReadSnapshot>,
    keyspace: &Keyspace,
    from: &[u8],
    to: &[u8],
    direction: Direction,
    bound: Option<u64>,
) -> DBRawIteratorWithThreadMode<'a, Db> {
    let mut read = ReadOptions::default();
    if let Some(snapshot) = snapshot {
        snapshot.apply_to(&mut read);
    }
    // All rows of one map have the same prefix, so forward reads can use its Bloom filters.
    let one_prefix = direction == Direction::Forward && is_one_map(from, to);
    read.set_total_order_seek(!one_prefix);
    read.set_iterate_lower_bound(from);
    read.set_iterate_upper_bound(to);
    if let Some(bound) = bound {
        read.set_max_skippable_internal_keys(bound);
    }
    let mut rows = engine.db.raw_iterator_cf_opt(&keyspace.cf, read);
    match direction {
        Direction::Forward => rows.seek(from),
        Direction::Backward => rows.seek_for_prev(to),
    }
    rows
}
