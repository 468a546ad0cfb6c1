//! Slices of background work on the data: keys whose time is over, and the
//! rows of dead collections. The expire thread calls these in turns; each slice
//! is one commit, made of the same steps as a client's command.

use super::keyspace::{KeyMeta, Value, decode_reclaim};
use super::scan::Direction;
use super::txn::Txn;
use super::{DbIndex, Result};
use crate::encoding::meta::MetaView;
use crate::encoding::{CollectionId, Kind, keys};
use std::sync::atomic::Ordering;

/// What a slice has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    /// Keys or rows removed.
    pub removed: usize,
    /// Whether the slice ended because it was full.
    pub more: bool,
}

/// A margin for TTL rows written by a thread whose turn began a while ago.
const LOW_MARK_MARGIN_MS: u64 = 2_000;

/// Dead collections with more rows than this go by a range deletion.
const RANGE_DELETE_ROWS: u64 = 1_024;

impl Txn {
    /// Deletes up to `limit` keys of `db` whose time is over. A key that
    /// somebody holds is left for the next slice. `full` looks at the whole TTL
    /// index, not only at what lies behind the low mark.
    pub fn expire_slice(
        &mut self,
        db: DbIndex,
        now_ms: u64,
        limit: usize,
        full: bool,
    ) -> Result<Slice> {
        self.begin(now_ms);
        self.start_command();
        let Some(keyspace) = self.keyspace(db).cloned() else {
            self.commit()?;
            return Ok(Slice::default());
        };
        let low = match full {
            true => 0,
            false => keyspace.ttl_low_ms.load(Ordering::Relaxed),
        };
        let due = self.due_keys(db, low, now_ms, limit)?;
        let more = due.len() >= limit;
        let mut skipped = false;
        let mut removed = 0;
        for (expire_ms, key) in &due {
            if !self.try_lock(db, key) {
                skipped = true;
                continue;
            }
            removed += usize::from(self.expire_key(db, *expire_ms, key)?);
        }
        let done_ms = match due.last() {
            Some((expire_ms, _)) if more => *expire_ms,
            _ => now_ms,
        };
        self.commit()?;
        if !skipped {
            let mark = done_ms.saturating_sub(LOW_MARK_MARGIN_MS).max(low);
            keyspace.ttl_low_ms.store(mark, Ordering::Relaxed);
        }
        Ok(Slice { removed, more })
    }

    fn due_keys(
        &mut self,
        db: DbIndex,
        low_ms: u64,
        now_ms: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>> {
        let from = keys::ttl_from(low_ms);
        let to = keys::ttl_from(now_ms.saturating_add(1));
        let mut rows = self.scan(db, &from, &to, Direction::Forward)?;
        let mut due = Vec::new();
        while due.len() < limit
            && let Some((row_key, _)) = rows.next()?
        {
            let (expire_ms, key) = keys::split_ttl(row_key)?;
            due.push((expire_ms, key.to_vec()));
        }
        Ok(due)
    }

    /// The second look, under the key's lock: the TTL row may be from before a
    /// change of the key that was committed since.
    fn expire_key(&mut self, db: DbIndex, expire_ms: u64, key: &[u8]) -> Result<bool> {
        let Some(row) = self.meta_row(db, key)? else {
            return Ok(false);
        };
        let found = MetaView::decode(&row)?;
        if found.meta.expire_ms != expire_ms {
            return Ok(false);
        }
        let old = KeyMeta {
            meta: found.meta,
            body: Value::from_slice(found.body),
        };
        drop(row);
        self.reap(db, key, &old)?;
        Ok(true)
    }

    /// Removes up to about `limit` element rows of dead collections of `db`.
    /// Nobody can reach these rows, so no key is locked and nothing is logged.
    pub fn reclaim_slice(&mut self, db: DbIndex, now_ms: u64, limit: usize) -> Result<Slice> {
        self.begin(now_ms);
        self.start_command();
        let waiting = self
            .keyspace(db)
            .is_some_and(|ks| ks.reclaim_waiting.swap(false, Ordering::AcqRel));
        if !waiting {
            self.commit()?;
            return Ok(Slice::default());
        }
        let mut slice = Slice::default();
        for (id, kind, rows) in self.dead_collections(db, limit)? {
            slice.removed += self.reclaim_collection(db, id, kind, rows)?;
            if slice.removed >= limit {
                slice.more = true;
                break;
            }
        }
        if slice.removed > 0
            && let Some(keyspace) = self.keyspace(db)
        {
            keyspace.reclaim_waiting.store(true, Ordering::Release);
        }
        self.commit()?;
        Ok(slice)
    }

    /// How many dead collections wait in `db`, counted up to `limit`.
    pub fn reclaim_backlog(&mut self, db: DbIndex, limit: usize) -> Result<usize> {
        Ok(self.dead_collections(db, limit)?.len())
    }

    fn dead_collections(
        &mut self,
        db: DbIndex,
        limit: usize,
    ) -> Result<Vec<(CollectionId, Kind, u64)>> {
        let from = keys::reclaim(CollectionId(0));
        let to = [crate::encoding::tag::RECLAIM + 1];
        let mut rows = self.scan(db, &from, &to, Direction::Forward)?;
        let mut dead = Vec::new();
        while dead.len() < limit
            && let Some((row_key, value)) = rows.next()?
        {
            let (kind, count) = decode_reclaim(value)?;
            dead.push((keys::split_reclaim(row_key)?, kind, count));
        }
        Ok(dead)
    }

    fn reclaim_collection(
        &mut self,
        db: DbIndex,
        id: CollectionId,
        kind: Kind,
        rows: u64,
    ) -> Result<usize> {
        let mut removed = 1;
        for &tag in kind.element_tags() {
            let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
            if rows > RANGE_DELETE_ROWS {
                self.delete_rows(db, &from, &to)?;
                removed += 1;
                continue;
            }
            let mut dead = Vec::new();
            let mut scan = self.scan(db, &from, &to, Direction::Forward)?;
            while let Some((row_key, _)) = scan.next()? {
                dead.push(row_key.to_vec());
            }
            drop(scan);
            removed += dead.len();
            for row_key in dead {
                self.delete_row(db, &row_key)?;
            }
        }
        self.delete_row(db, &keys::reclaim(id))?;
        Ok(removed)
    }
}
