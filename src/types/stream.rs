//! Streams: entries by id, and groups of consumers that share them.
//!
//! A [`Stream`] is a stream as it was found, and what is done to its entries; a
//! [`Group`] is one of its groups under work. Both are changed, then saved. The
//! rows are drawn in [`crate::encoding::stream`]; a stream never stands in its
//! meta row alone.
//!
//! Invariants: ids rise from entry to entry and none is given twice; counts are
//! those of the rows (I5); `first` is the first entry and `oldest` a group's first
//! pending one, so a walk begins past the tombstones of what was trimmed or
//! acknowledged. A stream without entries is still a key.

mod build;
pub(super) mod definition;
mod group;
mod lag;
pub mod parts;
#[cfg(test)]
mod tests;
mod trim;

pub use crate::encoding::stream::{ConsumerRow, GroupRow, PendingRow, StreamBody, StreamId};
pub use build::Build;
pub use group::Group;
pub use trim::{Keep, Slack, Trim};

use super::{OpResult, lookup};
use crate::base::time::UnixMs;
use crate::encoding::packed::{self, put_bytes};
use crate::encoding::stream::{entry_key, group_key, split_group_key};
use crate::encoding::{Corrupt, Meta, ValueType, keys, tag};
use crate::storage::Direction;
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use std::ops::ControlFlow;

/// Up to this many rows are deleted one by one; each range deletion makes later
/// reads near it dearer.
const POINT_DELETES: u64 = 256;

/// Why an entry cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its id is not above that of the last one.
    NotAbove,
    /// There is no id above that of the last one.
    Exhausted,
}

/// The id that a new entry is to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewId {
    /// By the clock.
    Now,
    /// In this ms.
    In(u64),
    /// This one.
    Given(StreamId),
}

/// The fields and values of an entry, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of an entry's row.
    pub fn of_row(row: &'a [u8]) -> Fields<'a> {
        Fields(row)
    }

    /// Fields and values in turn.
    pub fn iter(self) -> packed::Items<'a> {
        packed::items(self.0)
    }

    /// How many of them there are, twice that of the fields.
    pub fn count(self) -> Result<usize, Corrupt> {
        let mut count = 0;
        for item in self.iter() {
            item?;
            count += 1;
        }
        Ok(count)
    }
}

/// The row of an entry with these fields and values.
pub fn row_of<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut row = Vec::new();
    for item in fields {
        put_bytes(&mut row, item);
    }
    row
}

/// A stream under work. See the module.
#[derive(Debug)]
#[must_use = "changes are lost unless the stream is saved"]
pub struct Stream<'k> {
    db: DbIndex,
    key: &'k [u8],
    /// What the key was before.
    old: Option<KeyMeta>,
    body: StreamBody,
    stored: Option<StreamBody>,
}

impl<'k> Stream<'k> {
    /// The stream under a key, if there is one.
    pub fn load(view: &mut View, db: DbIndex, key: &'k [u8]) -> OpResult<Option<Stream<'k>>> {
        let Some(found) = lookup(view, db, key, ValueType::Stream)? else {
            return Ok(None);
        };
        let body = StreamBody::decode(&found.body)?;
        Ok(Some(Stream {
            db,
            key,
            old: Some(found),
            body,
            stored: Some(body),
        }))
    }

    /// A stream without entries under a key that does not exist.
    pub fn new(txn: &Txn, db: DbIndex, key: &'k [u8]) -> Stream<'k> {
        Stream {
            db,
            key,
            old: None,
            body: StreamBody::new(txn.new_id()),
            stored: None,
        }
    }

    /// The stream under a key, a new one if there is none.
    pub fn load_or_new(txn: &mut Txn, db: DbIndex, key: &'k [u8]) -> OpResult<Stream<'k>> {
        match Stream::load(txn, db, key)? {
            Some(stream) => Ok(stream),
            None => Ok(Stream::new(txn, db, key)),
        }
    }

    /// What its meta row says.
    pub fn body(&self) -> &StreamBody {
        &self.body
    }

    /// The id of the last entry that there is; zero if there is none.
    pub fn top(&self, view: &mut View) -> OpResult<StreamId> {
        let mut top = StreamId::MIN;
        self.visit(view, all(), Direction::Backward, |id, _| {
            top = id;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(top)
    }

    /// The id that the next entry gets.
    pub fn next_id(&self, wanted: NewId, now_ms: UnixMs) -> Result<StreamId, Refusal> {
        let last = self.body.last;
        let after_last = last.next().ok_or(Refusal::Exhausted)?;
        let id = match wanted {
            NewId::Now if now_ms.0 > last.ms => StreamId {
                ms: now_ms.0,
                seq: 0,
            },
            NewId::Now => after_last,
            NewId::In(ms) if ms == last.ms && after_last.ms == ms => after_last,
            NewId::In(ms) => StreamId { ms, seq: 0 },
            NewId::Given(id) => id,
        };
        match id > last {
            true => Ok(id),
            false => Err(Refusal::NotAbove),
        }
    }

    /// Adds an entry, whose id is above that of the last, by its row.
    pub fn append(&mut self, txn: &mut Txn, id: StreamId, row: &[u8]) -> OpResult<()> {
        txn.put_row(self.db, &entry_key(self.body.id, id), row)?;
        if self.body.length == 0 {
            self.body.first = id;
        }
        self.body.length += 1;
        self.body.added = self.body.added.saturating_add(1);
        self.body.last = id;
        Ok(())
    }

    /// Whether there is an entry of this id.
    pub fn has(&self, view: &View, id: StreamId) -> OpResult<bool> {
        Ok(view.row(self.db, &entry_key(self.body.id, id))?.is_some())
    }

    /// Calls `each` with the fields of an entry; says whether there is one.
    pub fn entry(
        &self,
        view: &View,
        id: StreamId,
        each: impl FnOnce(Fields<'_>) -> OpResult<()>,
    ) -> OpResult<bool> {
        match view.row(self.db, &entry_key(self.body.id, id))? {
            Some(row) => each(Fields(&row)).map(|()| true),
            None => Ok(false),
        }
    }

    /// Calls `each` with id and fields of the entries between two ids, both
    /// included, until it breaks off.
    pub fn visit(
        &self,
        view: &mut View,
        (from, to): (StreamId, StreamId),
        order: Direction,
        mut each: impl FnMut(StreamId, Fields<'_>) -> OpResult<ControlFlow<()>>,
    ) -> OpResult<()> {
        let body = &self.body;
        let (from, to) = (from.max(body.first), to.min(body.last));
        if body.length == 0 || from > to {
            return Ok(());
        }
        let end = match to.next() {
            Some(end) => entry_key(body.id, end),
            None => keys::element_end(tag::STREAM_ENTRY, body.id),
        };
        let mut scan = view.scan(self.db, &entry_key(body.id, from), &end, order)?;
        while let Some((key, row)) = scan.next()? {
            if each(crate::encoding::stream::entry_of(key)?, Fields(row))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Deletes entries; returns how many of them there were.
    pub fn delete(&mut self, txn: &mut Txn, ids: &[StreamId]) -> OpResult<u64> {
        let (mut deleted, mut first_is_gone) = (0, false);
        for &id in ids {
            if !self.has(txn, id)? {
                continue;
            }
            txn.delete_row(self.db, &entry_key(self.body.id, id))?;
            self.body.length = self.body.length.saturating_sub(1);
            self.body.deleted = self.body.deleted.max(id);
            first_is_gone |= id == self.body.first;
            deleted += 1;
        }
        if self.body.length == 0 {
            self.body.first = StreamId::MIN;
        } else if first_is_gone {
            self.body.first = self.nth(txn, 0)?;
        }
        Ok(deleted)
    }

    /// The id of the n-th entry, counted from 0, from whichever end is nearer.
    fn nth(&self, view: &mut View, n: u64) -> OpResult<StreamId> {
        let from_end = self.body.length.saturating_sub(n + 1);
        let (order, mut skip) = match n <= from_end {
            true => (Direction::Forward, n),
            false => (Direction::Backward, from_end),
        };
        let mut found = None;
        self.visit(view, all(), order, |id, _| {
            if skip > 0 {
                skip -= 1;
                return Ok(ControlFlow::Continue(()));
            }
            found = Some(id);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found.ok_or(Corrupt("stream length"))?)
    }

    /// Removes so many entries from the front.
    fn drop_first(&mut self, txn: &mut Txn, count: u64) -> OpResult<()> {
        if count == 0 {
            return Ok(());
        }
        let body = &self.body;
        let all_go = count >= body.length;
        let first = match all_go {
            true => StreamId::MIN,
            false => self.nth(txn, count)?,
        };
        if count == 1 {
            txn.delete_row(self.db, &entry_key(body.id, body.first))?;
        } else if count <= POINT_DELETES {
            let mut ids = Vec::new();
            self.visit(txn, all(), Direction::Forward, |id, _| {
                ids.push(id);
                Ok(match (ids.len() as u64) < count {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
            for id in ids {
                txn.delete_row(self.db, &entry_key(self.body.id, id))?;
            }
        } else {
            let from = entry_key(body.id, body.first);
            let to = match all_go {
                true => keys::element_end(tag::STREAM_ENTRY, body.id),
                false => entry_key(body.id, first),
            };
            txn.delete_rows(self.db, &from, &to)?;
        }
        self.body.length = self.body.length.saturating_sub(count);
        self.body.first = first;
        Ok(())
    }

    /// Sets the last id, and what else is given: how many entries were ever
    /// added, and the highest id that was deleted.
    pub fn set_last(&mut self, last: StreamId, added: Option<u64>, deleted: Option<StreamId>) {
        self.body.last = last;
        self.body.added = added.unwrap_or(self.body.added);
        self.body.deleted = deleted.unwrap_or(self.body.deleted);
    }

    /// The group of this name.
    pub fn group(&self, view: &View, name: &[u8]) -> OpResult<Option<Group>> {
        let row = view.row(self.db, &group_key(self.body.id, name))?;
        let Some(row) = row else {
            return Ok(None);
        };
        let row = GroupRow::decode(&row)?;
        Ok(Some(Group::stored(self.db, self.body.id, name, row)))
    }

    /// All groups, by name.
    pub fn groups(&self, view: &mut View) -> OpResult<Vec<Group>> {
        let mut groups = Vec::new();
        if self.body.groups == 0 {
            return Ok(groups);
        }
        let id = self.body.id;
        let from = keys::element_prefix(tag::STREAM_GROUP, id);
        let to = keys::element_end(tag::STREAM_GROUP, id);
        let mut scan = view.scan(self.db, &from, &to, Direction::Forward)?;
        while let Some((key, row)) = scan.next()? {
            let (name, row) = (split_group_key(key)?, GroupRow::decode(row)?);
            groups.push(Group::stored(self.db, id, name, row));
        }
        Ok(groups)
    }

    /// Makes a group whose name no group has.
    pub fn create_group(&mut self, name: &[u8], last: StreamId, read: i64) -> Group {
        self.body.groups += 1;
        self.body.numbers += 1;
        let row = GroupRow {
            number: self.body.numbers,
            last,
            read: lag::checked(&self.body, read),
            pending: 0,
            oldest: StreamId::MIN,
            consumers: 0,
            numbers: 0,
        };
        Group::made(self.db, self.body.id, name, row)
    }

    /// Sets the last entry that a group was given, and how many lie behind it.
    pub fn set_last_of(&self, group: &mut Group, last: StreamId, read: i64) {
        group.set_last(last, lag::checked(&self.body, read));
    }

    /// Removes a group and all that belongs to it.
    pub fn destroy_group(&mut self, txn: &mut Txn, group: Group) -> OpResult<()> {
        self.body.groups = self.body.groups.saturating_sub(1);
        group.destroy(txn)
    }

    /// How far a group is behind, in entries, if that is known.
    pub fn lag(&self, group: &GroupRow) -> Option<u64> {
        lag::lag(&self.body, group)
    }

    /// Counts an entry that a group is given, past all that it had before.
    pub fn advance(&self, group: &mut Group, id: StreamId) {
        let read = lag::read_after(&self.body, group.row(), id);
        group.set_last(id, read);
    }

    /// Writes what has changed.
    pub fn save(self, txn: &mut Txn) -> OpResult<()> {
        if self.stored == Some(self.body) {
            return Ok(());
        }
        let mut meta = Meta::new(ValueType::Stream);
        meta.rows = true;
        let old = self.old.as_ref().map(|old| &old.meta);
        meta.expire_ms = old.map_or(UnixMs::NONE, |old| old.expire_ms);
        txn.put_key(self.db, self.key, old, meta, &self.body.encode())?;
        Ok(())
    }
}

/// All ids.
pub fn all() -> (StreamId, StreamId) {
    (StreamId::MIN, StreamId::MAX)
}
