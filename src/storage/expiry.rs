//! Slices of background work on the data: deletion of keys whose time is over, and of the rows of
//! dead collections. The expire thread calls these in turn; each slice is one commit, made of the
//! same steps as a client's command.
//!
//! Deleted rows leave tombstones at the front of the TTL index and of the reclaim queue. A
//! [`LowMark`](crate::storage::engine::low_mark::LowMark) lets a pass begin after them, and each
//! slice of a pass continues where the slice before stopped.

use crate::base::time::UnixMs;
use crate::encoding::meta::MetaView;
use crate::encoding::meta::decode_reclaim;
use crate::encoding::{CollectionId, ValueType, keys, tag};
use crate::storage::Direction;
use crate::storage::engine::Keyspace;
use crate::storage::engine::low_mark::LowMarkSeen;
use crate::storage::engine::waiting::{or_not_in_memory, without_waiting};
use crate::storage::txn::Txn;
use crate::storage::txn::keyspace::{KeyMeta, Value};
use crate::storage::{DbIndex, Engine, Result, StorageError};
use std::sync::Arc;

/// The result of a slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    /// Keys or rows removed.
    pub removed: usize,
    /// Whether the slice ended because it was full.
    pub more: bool,
}

/// One pass through the due part of a DB's TTL index.
pub struct ExpirePass {
    db: DbIndex,
    keyspace: Arc<Keyspace>,
    now_ms: UnixMs,
    seen: LowMarkSeen,
    next: keys::RowKey,
    /// The earliest expiry of a key that was skipped because another owner held its lock.
    left_ms: UnixMs,
    /// The DB got another keyspace meanwhile (SWAPDB): the next pass does the rest.
    broken: bool,
}

/// One pass through a DB's reclaim queue.
pub struct ReclaimPass {
    db: DbIndex,
    keyspace: Arc<Keyspace>,
    seen: LowMarkSeen,
    next: u64,
    broken: bool,
}

/// Dead collections with more rows than this are removed by a range deletion.
const RANGE_DELETE_ROWS: u64 = 1_024;
/// So are those whose rows' keys take more bytes than this.
const DELETE_BYTES: usize = 1 << 20;

impl Engine {
    /// The number of dead collections in all DBs, counted up to `limit`.
    pub fn reclaim_backlog(&self, limit: usize) -> Result<usize> {
        let mut count = 0;
        for (_, keyspace) in self.all_keyspaces() {
            let mut read = rocksdb::ReadOptions::default();
            read.set_total_order_seek(true);
            let mut rows = self.db.raw_iterator_cf_opt(&keyspace.cf, read);
            let low = keyspace.reclaim_low.low();
            rows.seek(keys::reclaim(CollectionId(low)));
            while count < limit && rows.key().and_then(|key| key.first()) == Some(&tag::RECLAIM) {
                count += 1;
                rows.next();
            }
            or_not_in_memory(rows.status())?;
        }
        Ok(count)
    }
}

impl Engine {
    /// [`Engine::reclaim_backlog`] for a thread that does not wait for the disk; `None` if that is
    /// not known in memory.
    pub fn reclaim_backlog_in_memory(&self, limit: usize) -> Result<Option<usize>> {
        match without_waiting(|| self.reclaim_backlog(limit)) {
            Err(StorageError::NotInMemory) => Ok(None),
            counted => counted.map(Some),
        }
    }
}

impl Txn {
    /// Begins a pass over the keys of `db` that are due at `now_ms`; `None` if
    /// there can be none.
    pub fn begin_expire(&mut self, db: DbIndex, now_ms: UnixMs) -> Option<ExpirePass> {
        let keyspace = self.engine.keyspace(db)?;
        let seen = keyspace.ttl_low_ms.begin();
        (UnixMs(seen.low) <= now_ms).then(|| ExpirePass {
            db,
            keyspace,
            now_ms,
            seen,
            next: keys::ttl_from(UnixMs(seen.low)),
            left_ms: UnixMs::MAX,
            broken: false,
        })
    }

    /// Deletes up to `limit` keys whose time is over. A key whose lock another owner holds is left
    /// for the next pass.
    ///
    /// # Errors
    /// The storage fails. Nothing of the slice is done then, and no lock is held.
    pub fn expire_slice(&mut self, pass: &mut ExpirePass, limit: usize) -> Result<Slice> {
        let next = pass.next.clone();
        self.with_reads_before(|txn| {
            pass.next.clone_from(&next);
            txn.expire_some(pass, limit)
        })
    }

    fn expire_some(&mut self, pass: &mut ExpirePass, limit: usize) -> Result<Slice> {
        self.begin(pass.now_ms)?;
        self.start_command();
        // I4: keys of a replica expire by the master's clock.
        if !self.has_keyspace(pass.db, &pass.keyspace) || self.engine.is_following() {
            pass.broken = true;
            self.commit()?;
            return Ok(Slice::default());
        }
        let due = self.due_keys(pass, limit)?;
        if !self.may_wait() {
            self.look_for(due.iter().map(|(_, key)| (pass.db, key.as_slice())));
            if self.has_cold_reads() {
                return Err(StorageError::NotInMemory);
            }
        }
        let mut removed = 0;
        for (expire_ms, key) in &due {
            if !self.try_lock(pass.db, key) {
                pass.left_ms = pass.left_ms.min(*expire_ms);
                continue;
            }
            removed += usize::from(self.expire_key(pass.db, *expire_ms, key)?);
        }
        self.commit()?;
        let more = due.len() >= limit;
        Ok(Slice { removed, more })
    }

    /// Ends a pass whose last slice had no more to do.
    pub fn end_expire(&mut self, pass: ExpirePass) {
        if !pass.broken {
            let low = pass.left_ms.min(pass.now_ms + 1);
            pass.keyspace.ttl_low_ms.end(pass.seen, low.0);
        }
    }

    pub(super) fn has_keyspace(&self, db: DbIndex, keyspace: &Keyspace) -> bool {
        self.keyspace(db).is_some_and(|ks| ks.id == keyspace.id)
    }

    fn due_keys(&mut self, pass: &mut ExpirePass, limit: usize) -> Result<Vec<(UnixMs, Vec<u8>)>> {
        let to = keys::ttl_from(pass.now_ms + 1);
        let mut rows = self.scan(pass.db, &pass.next, &to, Direction::Forward)?;
        let mut due = Vec::new();
        while due.len() < limit
            && let Some((row_key, _)) = rows.next()?
        {
            let (expire_ms, key) = keys::split_ttl(row_key)?;
            due.push((expire_ms, key.to_vec()));
        }
        drop(rows);
        if let Some((expire_ms, key)) = due.last() {
            pass.next = keys::ttl(*expire_ms, key);
            pass.next.push(0);
        }
        Ok(due)
    }

    /// Expires a key whose lock is held, after a check: the TTL row may be from before a change of
    /// the key that was committed since.
    fn expire_key(&mut self, db: DbIndex, expire_ms: UnixMs, key: &[u8]) -> Result<bool> {
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

    /// Begins a pass over the dead collections of `db`; `None` if there are none.
    pub fn begin_reclaim(&mut self, db: DbIndex) -> Option<ReclaimPass> {
        let keyspace = self.engine.keyspace(db)?;
        let seen = keyspace.reclaim_low.begin();
        (seen.low != u64::MAX).then_some(ReclaimPass {
            db,
            keyspace,
            seen,
            next: seen.low,
            broken: false,
        })
    }

    /// Removes about `limit` element rows of dead collections. These rows are not reachable, so no
    /// key is locked and nothing is logged.
    ///
    /// # Errors
    /// The storage fails. Nothing of the slice is done then, and no lock is held.
    pub fn reclaim_slice(&mut self, pass: &mut ReclaimPass, limit: usize) -> Result<Slice> {
        let next = pass.next;
        self.with_reads_before(|txn| {
            pass.next = next;
            txn.reclaim_some(pass, limit)
        })
    }

    fn reclaim_some(&mut self, pass: &mut ReclaimPass, limit: usize) -> Result<Slice> {
        let now_ms = self.now_ms();
        self.begin(now_ms)?;
        self.start_command();
        let mut slice = Slice::default();
        if !self.has_keyspace(pass.db, &pass.keyspace) {
            pass.broken = true;
            self.commit()?;
            return Ok(slice);
        }
        let dead = self.dead_collections(pass.db, pass.next, limit)?;
        slice.more = dead.len() >= limit;
        for (id, kind, rows) in dead {
            if slice.removed >= limit {
                slice.more = true;
                break;
            }
            slice.removed += self.reclaim_collection(pass.db, id, kind, rows)?;
            pass.next = id.0 + 1;
        }
        self.commit()?;
        Ok(slice)
    }

    /// Ends a pass whose last slice had no more to do.
    pub fn end_reclaim(&mut self, pass: ReclaimPass) {
        if !pass.broken {
            pass.keyspace.reclaim_low.end(pass.seen, u64::MAX);
        }
    }

    fn dead_collections(
        &mut self,
        db: DbIndex,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(CollectionId, ValueType, u64)>> {
        let Some(keyspace) = self.keyspace(db).map(|ks| ks.id) else {
            return Ok(Vec::new());
        };
        // Held while the queue is read: a collection that leaves the list was removed from the
        // queue before.
        let engine = self.engine.clone();
        let ahead = engine.ahead.lock();
        let from = keys::reclaim(CollectionId(from));
        let to = [crate::encoding::tag::RECLAIM + 1];
        let mut rows = self.scan(db, &from, &to, Direction::Forward)?;
        let mut dead = Vec::new();
        while dead.len() < limit
            && let Some((row_key, value)) = rows.next()?
        {
            let (kind, count) = decode_reclaim(value)?;
            let id = keys::split_reclaim(row_key)?;
            if !ahead.contains(&(keyspace, id)) {
                dead.push((id, kind, count));
            }
        }
        Ok(dead)
    }

    fn reclaim_collection(
        &mut self,
        db: DbIndex,
        id: CollectionId,
        kind: ValueType,
        rows: u64,
    ) -> Result<usize> {
        let mut removed = 1;
        for &tag in kind.element_tags() {
            let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
            let keyspace = self.keyspace_for_write(db)?;
            self.engine.memory.ranks.forget_range(keyspace, &from, &to);
            if rows > RANGE_DELETE_ROWS {
                // Most hashes and sets have no rows of times: a tombstone would slow reads for
                // nothing.
                let is_first = kind.element_tags().first() == Some(&tag);
                if is_first || self.has_stored_row(db, &from, &to)? {
                    self.delete_rows(db, &from, &to)?;
                    removed += 1;
                }
                continue;
            }
            let (mut dead, mut bytes) = (Vec::new(), 0);
            let is_little =
                |rows: usize, bytes| rows as u64 <= RANGE_DELETE_ROWS && bytes <= DELETE_BYTES;
            let mut scan = self.scan_stored(db, &from, &to, Direction::Forward)?;
            while is_little(dead.len(), bytes)
                && let Some((row_key, _)) = scan.next()?
            {
                bytes += row_key.len();
                dead.push(row_key.to_vec());
            }
            drop(scan);
            // The groups of a stream may have many more rows than the stream has entries, and
            // members may be long.
            if !is_little(dead.len(), bytes) {
                self.delete_rows(db, &from, &to)?;
                removed += 1;
                continue;
            }
            removed += dead.len();
            for row_key in dead {
                self.delete_row(db, &row_key)?;
            }
        }
        self.delete_row(db, &keys::reclaim(id))?;
        Ok(removed)
    }

    fn has_stored_row(&mut self, db: DbIndex, from: &[u8], to: &[u8]) -> Result<bool> {
        let mut rows = self.scan_stored(db, from, to, Direction::Forward)?;
        Ok(rows.next()?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::StorageConfig;

    /// A slice that met an unreadable row once kept its locks for ever: clients that asked for the
    /// keys of that slice, or for a whole DB, never got a reply.
    #[test]
    fn a_slice_that_fails_holds_nothing_back() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().join("db"))).unwrap();
        let (db, bad) = (DbIndex(0), &b"bad"[..]);
        let mut txn = Txn::new(engine.clone());
        txn.begin(UnixMs(1)).unwrap();
        txn.put_row(db, &txn.layout().meta(bad), b"").unwrap();
        txn.put_side_row(db, &keys::ttl(UnixMs(5), bad), b"")
            .unwrap();
        let keyspace = txn.keyspace_for_write(db).unwrap();
        txn.note_ttl(keyspace, UnixMs(5));
        txn.put_side_row(db, &keys::reclaim(CollectionId(1)), b"bad")
            .unwrap();
        txn.note_reclaim(keyspace, CollectionId(1));
        txn.commit().unwrap();
        let mut job = Txn::new(engine.clone());
        let is_free = || {
            let mut other = Txn::new(engine.clone());
            other.begin(UnixMs(10)).unwrap();
            assert!(other.try_lock(db, bad), "the key is locked");
            other.commit().unwrap();
            assert!(engine.access.gate.is_empty(), "a turn has not ended");
        };
        let mut pass = job.begin_expire(db, UnixMs(10)).expect("a key that is due");
        assert!(job.expire_slice(&mut pass, 8).is_err());
        is_free();
        let mut pass = job.begin_reclaim(db).expect("a dead collection");
        assert!(job.reclaim_slice(&mut pass, 8).is_err());
        is_free();
    }
}
