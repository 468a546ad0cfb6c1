//! Keys as such, whatever their type: look-up with expiry, replacement,
//! removal, counts, and the queue of dead collections.
//!
//! I5: all changes of a key's existence or expiry go through [`Txn::put_key`] and
//! [`Txn::remove_key`], which change counts, TTL index and index of due elements with the row. I6: the element rows of a
//! removed or replaced key stay where they are, under an id that is never looked up again, and go
//! to the reclaim queue.
//!
//! A look-up in a writing turn deletes an expired key and logs the deletion before anything else of
//! the command. So a replica, which does not expire keys by its own clock, sees the same state when
//! it runs the command.

use crate::base::time::UnixMs;
use crate::encoding::meta::encode_reclaim;
use crate::encoding::meta::{Counted, MetaView};
use crate::encoding::system::{CountsChange, KeyspaceId};
use crate::encoding::{CollectionId, Meta, ValueType, keys};
use crate::storage::engine::listeners::How;
use crate::storage::txn::events::{Class, MISS};
use crate::storage::txn::{Row, Txn, View};
use crate::storage::{DbIndex, Result};
use smallvec::SmallVec;

/// The body of a meta row, as a copy.
pub type Value = SmallVec<[u8; 128]>;

/// A key as a look-up found it.
#[derive(Debug, Clone)]
pub struct KeyMeta {
    /// Type, form and expiry.
    pub meta: Meta,
    /// The rest of the meta row, by type.
    pub body: Value,
}

impl KeyMeta {
    /// Id and count of a collection in rows (not for lists, whose body differs).
    pub fn counted(&self) -> Result<Counted> {
        Ok(Counted::decode(&self.body)?)
    }

    fn view(&self) -> MetaView<'_> {
        MetaView {
            meta: self.meta,
            body: &self.body,
        }
    }
}

impl View {
    /// The key, unless it has expired. Copies the body; see [`View::peek`].
    pub fn lookup(&mut self, db: DbIndex, key: &[u8]) -> Result<Option<KeyMeta>> {
        self.peek(db, key, |found| KeyMeta {
            meta: found.meta,
            body: Value::from_slice(found.body),
        })
    }

    /// Calls `look` with the key's meta row, unless the key has expired.
    pub fn peek<R>(
        &mut self,
        db: DbIndex,
        key: &[u8],
        look: impl FnOnce(MetaView<'_>) -> R,
    ) -> Result<Option<R>> {
        let found = self.find(db, key, look)?;
        if self.command.counting {
            self.command.lookups.hits += u64::from(found.is_some());
            self.command.lookups.misses += u64::from(found.is_none());
            if found.is_none() {
                self.event(Class::KEY_MISS, MISS, db, key);
            }
        }
        Ok(found)
    }

    fn find<R>(
        &mut self,
        db: DbIndex,
        key: &[u8],
        look: impl FnOnce(MetaView<'_>) -> R,
    ) -> Result<Option<R>> {
        // Each level that passes a long result on would copy it.
        let (mut result, mut reaped) = (None, None);
        let found = self.with_row(db, &self.engine.layout.meta(key), |row| -> Result<()> {
            let found = MetaView::decode(row)?;
            if !self.command.expires || !found.meta.is_expired(self.now_ms()) {
                result = Some(look(found));
            } else if self.command.reaps {
                reaped = Some(KeyMeta {
                    meta: found.meta,
                    body: Value::from_slice(found.body),
                });
            }
            Ok(())
        })?;
        found.transpose()?;
        if let Some(old) = reaped {
            self.reap(db, key, &old)?;
        }
        Ok(result)
    }

    /// Type, form and expiry of a key, unless it has expired. Not for the commands of clients: this
    /// neither counts as a look-up nor deletes an expired key.
    pub fn meta_of(&self, db: DbIndex, key: &[u8]) -> Result<Option<Meta>> {
        let Some(row) = self.meta_row(db, key)? else {
            return Ok(None);
        };
        let meta = MetaView::decode(&row)?.meta;
        Ok((!meta.is_expired(self.expiry_now_ms())).then_some(meta))
    }

    /// The raw meta row, expired or not.
    pub fn meta_row(&self, db: DbIndex, key: &[u8]) -> Result<Option<Row<'_>>> {
        self.row(db, &self.engine.layout.meta(key))
    }

    /// Deletes an expired key and logs that, without counting it as a change made by the current
    /// command.
    pub(in crate::storage) fn reap(
        &mut self,
        db: DbIndex,
        key: &[u8],
        old: &KeyMeta,
    ) -> Result<()> {
        let dirty = self.command.dirty;
        self.batch.log.append(db, &[b"DEL", key]);
        self.remove(db, key, old, How::Expired)?;
        self.event(Class::EXPIRED, "expired", db, key);
        self.command.dirty = dirty;
        self.command.expired += 1;
        Ok(())
    }

    /// Deletes a key for want of space, and logs that.
    pub(in crate::storage) fn evict_key(
        &mut self,
        db: DbIndex,
        key: &[u8],
        old: &KeyMeta,
    ) -> Result<()> {
        self.batch.log.append(db, &[b"DEL", key]);
        self.remove(db, key, old, How::Removed)?;
        self.event(Class::EVICTED, "evicted", db, key);
        Ok(())
    }

    fn remove(&mut self, db: DbIndex, key: &[u8], old: &KeyMeta, how: How) -> Result<()> {
        let Some(keyspace) = self.keyspace(db).map(|ks| ks.id) else {
            return Ok(());
        };
        self.delete(keyspace, &self.engine.layout.meta(key));
        self.note_change(db, key, how);
        let mut change = CountsChange {
            keys: -1,
            ..CountsChange::default()
        };
        if old.meta.expire_ms.is_some() {
            self.delete(keyspace, &keys::ttl(old.meta.expire_ms, key));
            change.expires = -1;
        }
        if old.meta.due_ms.is_some() {
            self.delete(keyspace, &keys::due(old.meta.due_ms, key));
            change.timed = -1;
        }
        self.change_counts(keyspace, change);
        self.note_key(keyspace, key, -1);
        self.retire(keyspace, old)
    }

    /// Queues the element rows of a value for reclaim.
    fn retire(&mut self, keyspace: KeyspaceId, old: &KeyMeta) -> Result<()> {
        if !old.meta.rows {
            return Ok(());
        }
        let id = old.view().id()?;
        self.queue(
            keyspace,
            old.meta.kind,
            id,
            old.meta.kind.stated_rows(&old.body)?,
        );
        Ok(())
    }

    fn queue(&mut self, keyspace: KeyspaceId, kind: ValueType, id: CollectionId, rows: u64) {
        let value = encode_reclaim(kind, rows);
        self.put(keyspace, &keys::reclaim(id), &value);
        self.note_reclaim(keyspace, id);
    }
}

impl Txn {
    /// Writes the meta row of a key. `old` is the key's previous state (`None`: it did not exist).
    /// If `new` does not keep the element rows of the old value, [`Txn::replace_key`] must be used
    /// instead.
    pub fn put_key(
        &mut self,
        db: DbIndex,
        key: &[u8],
        old: Option<&Meta>,
        new: Meta,
        body: &[u8],
    ) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        let row_key = self.engine.layout.meta(key);
        self.borrow_for_row(&row_key, body.len())?;
        self.put_parts(keyspace, &row_key, [&new.encode(), body]);
        self.note_change(db, key, How::Written);
        let old_expire_ms = old.map_or(UnixMs::NONE, |m| m.expire_ms);
        if old_expire_ms != new.expire_ms {
            if old_expire_ms.is_some() {
                self.delete(keyspace, &keys::ttl(old_expire_ms, key));
            }
            if new.expire_ms.is_some() {
                self.put(keyspace, &keys::ttl(new.expire_ms, key), &[new.kind as u8]);
                self.note_ttl(keyspace, new.expire_ms);
            }
        } else if old.is_some_and(|m| m.kind != new.kind) && new.expire_ms.is_some() {
            self.put(keyspace, &keys::ttl(new.expire_ms, key), &[new.kind as u8]);
        }
        let old_due_ms = old.map_or(UnixMs::NONE, |m| m.due_ms);
        if old_due_ms != new.due_ms {
            if old_due_ms.is_some() {
                self.delete(keyspace, &keys::due(old_due_ms, key));
            }
            if new.due_ms.is_some() {
                self.put(keyspace, &keys::due(new.due_ms, key), &[new.kind as u8]);
                self.note_due(keyspace, new.due_ms);
            }
        } else if old.is_some_and(|m| m.kind != new.kind) && new.due_ms.is_some() {
            self.put(keyspace, &keys::due(new.due_ms, key), &[new.kind as u8]);
        }
        let change = CountsChange {
            keys: i64::from(old.is_none()),
            expires: i64::from(new.expire_ms.is_some()) - i64::from(old_expire_ms.is_some()),
            timed: i64::from(new.due_ms.is_some()) - i64::from(old_due_ms.is_some()),
        };
        if change != CountsChange::default() {
            self.change_counts(keyspace, change);
        }
        if old.is_none() {
            self.note_key(keyspace, key, 1);
            self.event(Class::NEW, "new", db, key);
        }
        Ok(())
    }

    /// Like [`Txn::put_key`], and queues the element rows of the old value for reclaim.
    pub fn replace_key(
        &mut self,
        db: DbIndex,
        key: &[u8],
        old: Option<&KeyMeta>,
        new: Meta,
        body: &[u8],
    ) -> Result<()> {
        if let Some(old) = old {
            let keyspace = self.keyspace_for_write(db)?;
            self.retire(keyspace, old)?;
        }
        self.put_key(db, key, old.map(|o| &o.meta), new, body)
    }

    /// Removes a key that a look-up found.
    pub fn remove_key(&mut self, db: DbIndex, key: &[u8], old: &KeyMeta) -> Result<()> {
        self.remove(db, key, old, How::Removed)?;
        self.event(Class::GENERIC, "del", db, key);
        Ok(())
    }

    /// Removes a key whose element rows are deleted already.
    pub fn unlink_key(&mut self, db: DbIndex, key: &[u8], old: &KeyMeta) -> Result<()> {
        let mut bare = old.clone();
        bare.meta.rows = false;
        self.remove_key(db, key, &bare)
    }

    /// Removes a key that is overwritten, or whose value moves to another key: no `del` event is
    /// noted. `keeps_rows`: its element rows move with the value.
    pub fn vacate_key(
        &mut self,
        db: DbIndex,
        key: &[u8],
        old: &KeyMeta,
        keeps_rows: bool,
    ) -> Result<()> {
        let mut bare = old.clone();
        bare.meta.rows &= !keeps_rows;
        self.remove(db, key, &bare, How::Removed)
    }

    /// Looks up and removes a key. Returns whether it existed.
    pub fn delete_key(&mut self, db: DbIndex, key: &[u8]) -> Result<bool> {
        match self.lookup(db, key)? {
            Some(old) => {
                self.remove_key(db, key, &old)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Changes the expiry of a key (0: none).
    pub fn set_expiry(
        &mut self,
        db: DbIndex,
        key: &[u8],
        old: &KeyMeta,
        expire_ms: UnixMs,
    ) -> Result<()> {
        let new = Meta {
            expire_ms,
            ..old.meta
        };
        self.put_key(db, key, Some(&old.meta), new, &old.body)
    }

    /// Draws an id for a new collection or long string.
    pub fn new_id(&self) -> CollectionId {
        let id = self.engine.new_id();
        self.batch.new_ids.borrow_mut().insert(id);
        id
    }

    /// Queues a collection that has no key for reclaim, with about so many rows.
    pub fn queue_reclaim(
        &mut self,
        db: DbIndex,
        kind: ValueType,
        id: CollectionId,
        rows: u64,
    ) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        self.queue(keyspace, kind, id, rows);
        Ok(())
    }

    /// Removes a collection that gets a key after all from the queue.
    pub fn unqueue_reclaim(&mut self, db: DbIndex, id: CollectionId) -> Result<()> {
        self.delete_row(db, &keys::reclaim(id))
    }

    /// Removes all keys of a DB. Needs an exclusive turn.
    pub fn clear_db(&mut self, db: DbIndex) -> Result<()> {
        let Some(keyspace) = self.keyspace(db).map(|ks| ks.id) else {
            return Ok(());
        };
        let counts = self.counts(db);
        self.delete_rows(db, &[0x00], &[0xFF])?;
        self.note_clear(db);
        self.batch.cleared.push(keyspace);
        self.change_counts(keyspace, counts.to_nothing());
        self.note_no_keys(keyspace);
        Ok(())
    }
}
