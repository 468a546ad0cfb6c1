//! Which records of the value log live: those to which the row of their string still refers.

use crate::encoding::CollectionId;
use crate::encoding::keys;
use crate::encoding::system::KeyspaceId;
use crate::encoding::tag;
use crate::encoding::values::ValueRef;
use crate::storage::Result;
use crate::storage::engine::values::{Owner, Record};
use crate::storage::engine::{Engine, Keyspace};
use rocksdb::ReadOptions;
use std::sync::Arc;

/// Strings are neighbours if their ids are no further apart. Ids are given out in turn, so most records
/// of a segment are of neighbours.
const GAP: u64 = 16;
/// So many neighbours are looked up by one walk over their rows: it reads filters, indexes and blocks
/// once for all of them.
const FEWEST: usize = 16;

/// A record that lives, and its row.
pub(super) struct Living {
    pub(super) record: Record,
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) key: keys::RowKey,
}

impl Engine {
    /// Those of the records that live, in their order.
    pub(super) fn living(&self, records: &[Record]) -> Result<Vec<Living>> {
        let mut bases: Vec<(KeyspaceId, CollectionId, usize)> = records
            .iter()
            .enumerate()
            .filter_map(|(place, record)| match record.owner {
                Owner::Base(keyspace, id) => Some((keyspace, id, place)),
                Owner::Binlog | Owner::Samples => None,
            })
            .collect();
        bases.sort_unstable();
        let keyspaces = self.all_keyspaces();
        let mut living: Vec<(usize, Living)> = Vec::new();
        for run in bases.chunk_by(|a, b| a.0 == b.0 && b.1.0 - a.1.0 <= GAP) {
            let mut known = keyspaces.iter().map(|(_, keyspace)| keyspace);
            let Some(keyspace) = known.find(|keyspace| keyspace.id == run[0].0) else {
                continue;
            };
            let mut look_at = |place: usize, id: CollectionId, row: &[u8]| {
                let record = records[place];
                if ValueRef::decode(row)? == record.at {
                    let (keyspace, key) = (keyspace.clone(), keys::base(id));
                    living.push((
                        place,
                        Living {
                            record,
                            keyspace,
                            key,
                        },
                    ));
                }
                Ok(())
            };
            match run.len() {
                FEWEST.. => self.walk_bases(keyspace, run, &mut look_at)?,
                _ => {
                    for &(_, id, place) in run {
                        if let Some(row) = self.db.get_pinned_cf(&keyspace.cf, keys::base(id))? {
                            look_at(place, id, &row)?;
                        }
                    }
                }
            }
        }
        living.sort_unstable_by_key(|(place, _)| *place);
        Ok(living.into_iter().map(|(_, living)| living).collect())
    }

    /// Calls `look_at` with the rows of these strings that there are.
    fn walk_bases(
        &self,
        keyspace: &Keyspace,
        mut wanted: &[(KeyspaceId, CollectionId, usize)],
        mut look_at: impl FnMut(usize, CollectionId, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else {
            return Ok(());
        };
        let mut read = ReadOptions::default();
        read.set_total_order_seek(true);
        read.fill_cache(false);
        read.set_iterate_lower_bound(keys::base(first.1).as_slice());
        read.set_iterate_upper_bound(keys::element_end(tag::FRAGMENT, last.1).as_slice());
        let mut rows = self.db.raw_iterator_cf_opt(&keyspace.cf, read);
        rows.seek_to_first();
        while let (Some(key), Some(row)) = (rows.key(), rows.value()) {
            let Some((id, _)) = keys::element(key) else {
                rows.next();
                continue;
            };
            let is_base = keys::split_base(key).is_some();
            wanted = &wanted[wanted.partition_point(|(_, other, _)| *other < id)..];
            let its = wanted.partition_point(|(_, other, _)| *other == id);
            for &(_, _, place) in wanted[..its].iter().filter(|_| is_base) {
                look_at(place, id, row)?;
            }
            // A base stands before the fragments of its string: the string has none, or it was seen.
            wanted = &wanted[its..];
            match wanted.first() {
                None => break,
                Some(_) if is_base => rows.next(),
                // There may be many fragments.
                Some((_, next, _)) => rows.seek(keys::base(*next)),
            }
        }
        Ok(rows.status()?)
    }

    /// Whether the row refers to the record.
    pub(super) fn is_at(&self, living: &Living) -> Result<bool> {
        let row = self.db.get_pinned_cf(&living.keyspace.cf, &living.key)?;
        match row {
            Some(row) => Ok(ValueRef::decode(&row)? == living.record.at),
            None => Ok(false),
        }
    }
}
