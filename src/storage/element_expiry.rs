//! Slices of background work on elements: deletion of hash fields and set members whose own time is
//! over. The expire thread calls these in turn; each slice is one commit.
//!
//! A pass reads the index of keys with timed elements up to its time. A key in that index may have
//! millions of elements that are due at once. Then each slice takes some of them, in the order of
//! the collection's own index, and the next slice continues behind them: behind the tombstones, too.

use crate::base::time::UnixMs;
use crate::encoding::keys::{self, RowKey};
use crate::encoding::meta::{Grown, MetaView};
use crate::encoding::timed::{Entry, earlier, entries, put_entry};
use crate::encoding::{CollectionId, Corrupt, Meta};
use crate::storage::Direction;
use crate::storage::engine::Keyspace;
use crate::storage::engine::low_mark::LowMarkSeen;
use crate::storage::expiry::Slice;
use crate::storage::txn::Txn;
use crate::storage::txn::keyspace::{KeyMeta, Value};
use crate::storage::{DbIndex, Result, StorageError};
use std::sync::Arc;

/// Most bytes of elements that one slice removes, not counting the last one.
const SLICE_BYTES: usize = 1 << 20;

/// A collection of which less than 1/`SHRUNK` of its peak is left is compacted.
const SHRUNK: u64 = 4;

/// One pass through the keys of a DB whose elements are due.
pub struct ElementPass {
    db: DbIndex,
    keyspace: Arc<Keyspace>,
    now_ms: UnixMs,
    seen: LowMarkSeen,
    next: RowKey,
    /// Where the index of the collection that the last slice worked on continues.
    within: Option<(CollectionId, RowKey)>,
    /// The earliest time of a key that was skipped because another owner held its lock.
    left_ms: UnixMs,
    /// The DB got another keyspace meanwhile (SWAPDB): the next pass does the rest.
    broken: bool,
}

/// What a slice may still remove.
struct Allowance {
    elements: usize,
    bytes: usize,
}

/// The elements of one key that a slice has removed.
#[derive(Default)]
struct Removed {
    members: Vec<Box<[u8]>>,
    /// Whether more are due.
    more: bool,
}

/// Due elements of a collection.
#[derive(Default)]
struct Due {
    /// Their rows in the index.
    rows: Vec<RowKey>,
    /// The time of the first one behind them; 0 if there is none.
    next_ms: UnixMs,
}

impl Txn {
    /// Begins a pass over the keys of `db` some elements of which are due at `now_ms`; `None` if
    /// there can be none.
    pub fn begin_element_expire(&mut self, db: DbIndex, now_ms: UnixMs) -> Option<ElementPass> {
        let keyspace = self.engine.keyspace(db)?;
        let seen = keyspace.due_low_ms.begin();
        (UnixMs(seen.low) <= now_ms).then(|| ElementPass {
            db,
            keyspace,
            now_ms,
            seen,
            next: keys::due_from(UnixMs(seen.low)),
            within: None,
            left_ms: UnixMs::MAX,
            broken: false,
        })
    }

    /// Deletes up to `limit` elements whose time is over. Keys whose lock another owner holds are
    /// left for the next pass.
    ///
    /// # Errors
    /// The storage fails. Nothing of the slice is done then, and no lock is held.
    pub fn element_expire_slice(&mut self, pass: &mut ElementPass, limit: usize) -> Result<Slice> {
        let (next, within) = (pass.next.clone(), pass.within.clone());
        self.with_reads_before(|txn| {
            pass.next.clone_from(&next);
            pass.within.clone_from(&within);
            txn.expire_some_elements(pass, limit)
        })
    }

    /// Ends a pass whose last slice had no more to do.
    pub fn end_element_expire(&mut self, pass: ElementPass) {
        if !pass.broken {
            let low = pass.left_ms.min(pass.now_ms + 1);
            pass.keyspace.due_low_ms.end(pass.seen, low.0);
        }
    }

    fn expire_some_elements(&mut self, pass: &mut ElementPass, limit: usize) -> Result<Slice> {
        self.begin(pass.now_ms)?;
        self.start_command();
        // I4: elements of a replica expire by the master's clock.
        if !self.has_keyspace(pass.db, &pass.keyspace) || self.engine.is_following() {
            pass.broken = true;
            self.commit()?;
            return Ok(Slice::default());
        }
        let due = self.keys_with_due_elements(pass, limit)?;
        if !self.may_wait() {
            self.look_for(due.iter().map(|(_, key)| (pass.db, key.as_slice())));
            if self.has_cold_reads() {
                return Err(StorageError::NotInMemory);
            }
        }
        let mut slice = Slice {
            removed: 0,
            more: due.len() >= limit,
        };
        let mut allowance = Allowance {
            elements: limit,
            bytes: SLICE_BYTES,
        };
        for (due_ms, key) in &due {
            pass.next = keys::due(*due_ms, key);
            if allowance.elements == 0 || allowance.bytes == 0 {
                slice.more = true;
                break;
            }
            if !self.try_lock(pass.db, key) {
                pass.left_ms = pass.left_ms.min(*due_ms);
                pass.next.push(0);
                continue;
            }
            let removed = self.expire_elements_of(pass, *due_ms, key, &mut allowance)?;
            slice.removed += removed.members.len();
            if removed.more {
                // Its row stands at the time of the next element now, which is not before this one.
                slice.more = true;
                break;
            }
            pass.next.push(0);
        }
        self.commit()?;
        Ok(slice)
    }

    fn keys_with_due_elements(
        &mut self,
        pass: &ElementPass,
        limit: usize,
    ) -> Result<Vec<(UnixMs, Vec<u8>)>> {
        let to = keys::due_from(pass.now_ms + 1);
        let mut rows = self.scan(pass.db, &pass.next, &to, Direction::Forward)?;
        let mut due = Vec::new();
        while due.len() < limit
            && let Some((row_key, _)) = rows.next()?
        {
            let (due_ms, key) = keys::split_due(row_key)?;
            due.push((due_ms, key.to_vec()));
        }
        Ok(due)
    }

    /// Removes due elements of a key whose lock is held, after a check: the row of the index may be
    /// from before a change of the key that was committed since.
    fn expire_elements_of(
        &mut self,
        pass: &mut ElementPass,
        due_ms: UnixMs,
        key: &[u8],
        allowance: &mut Allowance,
    ) -> Result<Removed> {
        let Some(row) = self.meta_row(pass.db, key)? else {
            return Ok(Removed::default());
        };
        let found = MetaView::decode(&row)?;
        if found.meta.due_ms != due_ms {
            return Ok(Removed::default());
        }
        if found.meta.is_expired(pass.now_ms) {
            // The key goes as a whole.
            pass.left_ms = pass.left_ms.min(due_ms);
            return Ok(Removed::default());
        }
        let old = KeyMeta {
            meta: found.meta,
            body: Value::from_slice(found.body),
        };
        drop(row);
        let removed = match old.meta.rows {
            true => self.expire_rows(pass, key, &old, allowance)?,
            false => self.expire_packed(pass, key, &old)?,
        };
        allowance.elements = allowance
            .elements
            .saturating_sub(removed.members.len().max(1));
        Ok(removed)
    }

    fn expire_packed(&mut self, pass: &ElementPass, key: &[u8], old: &KeyMeta) -> Result<Removed> {
        let kind = old.meta.kind;
        let mut removed = Removed::default();
        let mut due_ms = UnixMs::NONE;
        let mut left: Vec<Entry<'_>> = Vec::new();
        for entry in entries(&old.body, kind, true) {
            let entry = entry?;
            if entry.expire_ms.is_some() && entry.expire_ms <= pass.now_ms {
                removed.members.push(entry.member.into());
                continue;
            }
            due_ms = earlier(due_ms, entry.expire_ms);
            left.push(entry);
        }
        self.note_expired_elements(pass.db, key, kind, &removed.members);
        let mut body = Value::new();
        for entry in &left {
            put_entry(&mut body, kind, due_ms.is_some(), *entry);
        }
        if left.is_empty() {
            self.remove_key(pass.db, key, old)?;
            return Ok(removed);
        }
        let meta = Meta { due_ms, ..old.meta };
        self.put_key(pass.db, key, Some(&old.meta), meta, &body)?;
        Ok(removed)
    }

    fn expire_rows(
        &mut self,
        pass: &mut ElementPass,
        key: &[u8],
        old: &KeyMeta,
        allowance: &mut Allowance,
    ) -> Result<Removed> {
        let Meta { kind, due_ms, .. } = old.meta;
        let db = pass.db;
        let mut grown = Grown::decode(&old.body)?;
        let id = grown.counted.id;
        let (Some(due_tag), Some(&tag)) = (kind.due_tag(), kind.element_tags().first()) else {
            return Err(Corrupt("meta flags").into());
        };
        let from = match pass.within.take() {
            Some((within, from)) if within == id => from,
            _ => keys::element_due_from(due_tag, id, due_ms),
        };
        let Due { rows, next_ms } = self.due_rows(pass, id, due_tag, &from, allowance)?;
        let mut members = Vec::with_capacity(rows.len());
        for row_key in &rows {
            let (_, place) = keys::split_element_due(row_key)?;
            self.delete_row(db, &keys::placed(tag, id, place))?;
            if let Some(time_tag) = kind.time_tag() {
                self.delete_row(db, &keys::placed(time_tag, id, place))?;
            }
            self.delete_row(db, row_key)?;
            members.push(keys::member_at(place).into());
        }
        let removed = rows.len() as u64;
        let count = grown.counted.count.checked_sub(removed);
        grown.counted.count = count.ok_or(Corrupt("collection count"))?;
        grown.timed = match next_ms {
            UnixMs::NONE => 0,
            _ => grown.timed.saturating_sub(removed).max(1),
        };
        if grown.counted.count < grown.peak / SHRUNK {
            grown.peak = grown.counted.count;
            self.request_compaction(
                db,
                &keys::element_prefix(tag, id),
                &keys::element_end(tag, id),
            );
        }
        self.note_expired_elements(db, key, kind, &members);
        let meta = Meta {
            due_ms: next_ms,
            ..old.meta
        };
        match grown.counted.count {
            // Its rows were deleted one by one.
            0 => self.unlink_key(db, key, old)?,
            _ => self.put_key(db, key, Some(&old.meta), meta, &grown.encode())?,
        }
        Ok(Removed {
            members,
            more: pass.within.is_some(),
        })
    }
    /// The rows of due elements in a collection's own index, from a place on; notes in the pass
    /// where the index continues if more are due.
    fn due_rows(
        &mut self,
        pass: &mut ElementPass,
        id: CollectionId,
        due_tag: u8,
        from: &[u8],
        allowance: &mut Allowance,
    ) -> Result<Due> {
        let mut due = Due::default();
        let end = keys::element_end(due_tag, id);
        let mut rows = self.scan(pass.db, from, &end, Direction::Forward)?;
        while let Some((row_key, _)) = rows.next()? {
            let (expire_ms, place) = keys::split_element_due(row_key)?;
            let is_over = expire_ms <= pass.now_ms;
            if !is_over || due.rows.len() >= allowance.elements || allowance.bytes == 0 {
                due.next_ms = expire_ms;
                if is_over {
                    pass.within = Some((id, RowKey::from_slice(row_key)));
                }
                break;
            }
            allowance.bytes = allowance.bytes.saturating_sub(place.len());
            due.rows.push(RowKey::from_slice(row_key));
        }
        Ok(due)
    }
}
