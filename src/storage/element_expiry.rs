//! Slices of background work on elements: deletion of hash fields and set members whose own time is
//! over. The expire thread calls these in turn; each slice is one commit.
//!
//! A pass reads the index of keys with timed elements up to its time. A key in that index may have
//! millions of elements that are due at once. Then each slice takes some of them, in the order of
//! the collection's own index, and the next slice continues behind them: behind the tombstones, too.
//! Between two slices of a key, threads that wait for the key have it.

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

/// Most keys whose rows are looked up before a slice.
const LOOKED_UP: usize = 64;

/// Most bytes of elements that one slice removes, not counting the last one.
const SLICE_BYTES: usize = 1 << 20;

/// How often a slice may find the key locked that the slice before has worked on, until the key is
/// left for the next pass: commands on it are short.
const REFUSED_MAX: u32 = 100;

/// A collection of which less than 1/`SHRUNK` of its peak is left is compacted.
const SHRUNK: u64 = 4;

/// One pass through the keys of a DB whose elements are due.
pub struct ElementPass {
    db: DbIndex,
    keyspace: Arc<Keyspace>,
    now_ms: UnixMs,
    seen: LowMarkSeen,
    /// Where the index of keys is read on.
    next: RowKey,
    /// Keys that were read from the index, with their times there.
    due: Vec<(UnixMs, Vec<u8>)>,
    /// How many of them are done.
    done: usize,
    /// The one that the slice has begun and not ended, and its time before.
    begun: Option<(usize, UnixMs)>,
    /// Where the index of the collection that the last slice worked on continues.
    within: Option<(CollectionId, RowKey)>,
    /// The earliest time of a key that was skipped because another owner held its lock.
    left_ms: UnixMs,
    /// How many slices in a row found the key locked whose elements they were to continue with.
    refused: u32,
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
    /// When the next of them is due, if more are due already; 0 if not.
    next_ms: UnixMs,
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
            due: Vec::new(),
            done: 0,
            begun: None,
            within: None,
            left_ms: UnixMs::MAX,
            refused: 0,
            broken: false,
        })
    }

    /// Deletes up to `limit` elements whose time is over, or more if the last ones are in one row. Keys
    /// whose lock another owner holds are left for the next pass.
    ///
    /// # Errors
    /// The storage fails. Nothing of the slice is done then, and no lock is held.
    pub fn element_expire_slice(&mut self, pass: &mut ElementPass, limit: usize) -> Result<Slice> {
        let (next, within) = (pass.next.clone(), pass.within.clone());
        let (keys, done) = (pass.due.len(), pass.done);
        let slice = self.with_reads_before(|txn| {
            // What an attempt before has noted is void.
            pass.next.clone_from(&next);
            pass.within.clone_from(&within);
            pass.due.truncate(keys);
            pass.done = done;
            if let Some((at, old_ms)) = pass.begun.take()
                && let Some((due_ms, _)) = pass.due.get_mut(at)
            {
                *due_ms = old_ms;
            }
            txn.expire_some_elements(pass, limit)
        })?;
        if let Some((at, _)) = pass.begun.take()
            && let Some((_, key)) = pass.due.get(at)
        {
            self.let_others_in(pass.db, key);
        }
        if pass.done == pass.due.len() {
            pass.due.clear();
            pass.done = 0;
        }
        Ok(slice)
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
        let may_be_more = self.read_due_keys(pass, limit)?;
        if !self.may_wait() {
            let coming = pass.due.iter().skip(pass.done).take(LOOKED_UP);
            self.look_for(coming.map(|(_, key)| (pass.db, key.as_slice())));
            if self.has_cold_reads() {
                return Err(StorageError::NotInMemory);
            }
        }
        let mut removed = 0;
        let mut allowance = Allowance {
            elements: limit,
            bytes: SLICE_BYTES,
        };
        while allowance.elements > 0
            && allowance.bytes > 0
            && let Some((due_ms, key)) = pass.due.get(pass.done).cloned()
        {
            if !self.try_lock(pass.db, &key) {
                if removed == 0 && pass.within.is_some() && pass.refused < REFUSED_MAX {
                    pass.refused += 1;
                    pass.begun = Some((pass.done, due_ms));
                    break;
                }
                pass.left_ms = pass.left_ms.min(due_ms);
                pass.done += 1;
                continue;
            }
            pass.refused = 0;
            let slice = self.expire_elements_of(pass, due_ms, &key, &mut allowance)?;
            removed += slice.members.len();
            match slice.next_ms {
                UnixMs::NONE => pass.done += 1,
                next_ms => {
                    // The rest of them stands at this time in the index now.
                    pass.begun = Some((pass.done, due_ms));
                    if let Some((due_ms, _)) = pass.due.get_mut(pass.done) {
                        *due_ms = next_ms;
                    }
                    break;
                }
            }
        }
        self.commit()?;
        let more = may_be_more || pass.done < pass.due.len();
        Ok(Slice { removed, more })
    }

    /// Reads the next keys from the index, unless some are left; returns whether there may be more.
    fn read_due_keys(&mut self, pass: &mut ElementPass, limit: usize) -> Result<bool> {
        if pass.done < pass.due.len() {
            return Ok(true);
        }
        let to = keys::due_from(pass.now_ms + 1);
        let mut rows = self.scan(pass.db, &pass.next, &to, Direction::Forward)?;
        let mut found = 0;
        while found < limit
            && let Some((row_key, _)) = rows.next()?
        {
            let (due_ms, key) = keys::split_due(row_key)?;
            pass.due.push((due_ms, key.to_vec()));
            found += 1;
        }
        drop(rows);
        if let Some((due_ms, key)) = pass.due.last() {
            pass.next = keys::due(*due_ms, key);
            pass.next.push(0);
        }
        Ok(found >= limit)
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
            self.note_row(db, row_key, false)?;
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
        let is_more_due = pass.within.is_some();
        Ok(Removed {
            members,
            next_ms: if is_more_due { next_ms } else { UnixMs::NONE },
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
