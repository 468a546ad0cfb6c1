//! Streams: entries by id, and consumer groups.
//!
//! A [`Stream`] is a loaded stream with operations on its entries; a [`Group`] is one of
//! its groups. Both are changed, then saved. The rows are described in
//! [`crate::encoding::stream`]; a stream always has rows.
//!
//! Invariants: ids increase from entry to entry, and none is used twice; counts are
//! those of the rows (I5); `first` is the first entry and `oldest` a group's first
//! pending one, so a walk begins after the tombstones of trimmed or acknowledged
//! entries. A stream without entries is still a key.

mod build;
pub(super) mod definition;
mod group;
mod idempotence;
mod lag;
pub mod parts;
mod references;
#[cfg(test)]
mod tests;
mod trim;

pub use crate::encoding::stream::{ConsumerRow, GroupRow, PendingRow, StreamBody, StreamId};
pub use build::Build;
pub use group::Group;
pub use references::{References, Referrers, Trimmed};
pub use trim::{Keep, Slack, Trim};

use super::{OpResult, lookup};
use crate::base::time::UnixMs;
use crate::encoding::packed::{self, put_bytes};
use crate::encoding::stream::{entry_key, group_key, split_group_key};
use crate::encoding::{Corrupt, Meta, ValueType, keys, tag};
use crate::storage::Direction;
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use std::ops::ControlFlow;

/// Up to this many rows are deleted one by one: each range deletion makes later reads
/// near it slower.
const POINT_DELETES: u64 = 256;

/// The longest time for which idempotent ids are remembered, in s.
pub const DURATION_MOST_S: u64 = 86_400;
/// The highest number of idempotent ids of one producer.
pub const IDS_MOST: u64 = 10_000;

/// Why an entry cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its id is not greater than the last one.
    NotAbove,
    /// No id is greater than the last one.
    Exhausted,
}

/// How the id of a new entry is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewId {
    /// From the clock.
    Now,
    /// The next sequence number in this ms.
    In(u64),
    /// This id.
    Given(StreamId),
}

/// The fields and values of an entry, alternately.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Fields and values, alternately.
    pub fn iter(self) -> packed::Items<'a> {
        packed::items(self.0)
    }

    /// The number of fields and values, twice that of the fields.
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

/// A stream that is being read or changed. See the module.
#[derive(Debug)]
#[must_use = "changes are lost unless the stream is saved"]
pub struct Stream<'k> {
    db: DbIndex,
    key: &'k [u8],
    /// The key as it was before.
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

    /// The stream under a key, or a new one.
    pub fn load_or_new(txn: &mut Txn, db: DbIndex, key: &'k [u8]) -> OpResult<Stream<'k>> {
        match Stream::load(txn, db, key)? {
            Some(stream) => Ok(stream),
            None => Ok(Stream::new(txn, db, key)),
        }
    }

    /// Whether it is not stored yet.
    pub fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// The body of the meta row.
    pub fn body(&self) -> &StreamBody {
        &self.body
    }

    /// The id of the last entry; zero if there is none.
    pub fn top(&self, view: &mut View) -> OpResult<StreamId> {
        let mut top = StreamId::MIN;
        self.visit(view, all(), Direction::Backward, |id, _| {
            top = id;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(top)
    }

    /// The id of the next entry.
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

    /// Adds an entry by its row; the id must be greater than the last one.
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

    /// Whether there is an entry with this id.
    pub fn has(&self, view: &View, id: StreamId) -> OpResult<bool> {
        Ok(view.row(self.db, &entry_key(self.body.id, id))?.is_some())
    }

    /// Calls `each` with the fields of an entry; returns whether it exists.
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

    /// Calls `each` with id and fields of the entries between two ids, both inclusive,
    /// until it breaks.
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

    /// Deletes entries; returns for each id whether there was an entry.
    pub fn delete(&mut self, txn: &mut Txn, ids: &[StreamId]) -> OpResult<Vec<bool>> {
        let (mut deleted, mut first_is_gone) = (Vec::with_capacity(ids.len()), false);
        for &id in ids {
            let exists = self.has(txn, id)?;
            deleted.push(exists);
            if !exists {
                continue;
            }
            txn.delete_row(self.db, &entry_key(self.body.id, id))?;
            self.body.length = self.body.length.saturating_sub(1);
            self.body.deleted = self.body.deleted.max(id);
            first_is_gone |= id == self.body.first;
        }
        if self.body.length == 0 {
            self.body.first = StreamId::MIN;
        } else if first_is_gone {
            self.body.first = self.nth(txn, 0)?;
        }
        Ok(deleted)
    }

    /// The id of the n-th entry, counted from 0, found from the nearer end.
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

    /// Removes the first `count` entries.
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

    /// Sets the last id, and, if given, the number of entries ever added and the highest
    /// deleted id.
    pub fn set_last(&mut self, last: StreamId, added: Option<u64>, deleted: Option<StreamId>) {
        self.body.last = last;
        self.body.added = added.unwrap_or(self.body.added);
        self.body.deleted = deleted.unwrap_or(self.body.deleted);
    }

    /// The group with this name.
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

    /// Creates a group; the name must be new.
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
            released: 0,
            releases: 0,
            timed: false,
        };
        Group::made(self.db, self.body.id, name, row)
    }

    /// Sets the last delivered id of a group, and its number of read entries.
    pub fn set_last_of(&self, group: &mut Group, last: StreamId, read: i64) {
        group.set_last(last, lag::checked(&self.body, read));
    }

    /// Deletes a group with its consumers and pending entries.
    pub fn destroy_group(&mut self, txn: &mut Txn, group: Group) -> OpResult<()> {
        self.body.groups = self.body.groups.saturating_sub(1);
        group.destroy(txn)
    }

    /// The lag of a group in entries, if known.
    pub fn lag(&self, group: &GroupRow) -> Option<u64> {
        lag::lag(&self.body, group)
    }

    /// Counts the delivery of an entry after all that the group has read.
    pub fn advance(&self, group: &mut Group, id: StreamId) {
        let read = lag::read_after(&self.body, group.row(), id);
        group.set_last(id, read);
    }

    /// Writes the changes.
    pub fn save(self, txn: &mut Txn) -> OpResult<()> {
        match self.stored == Some(self.body) {
            true => Ok(()),
            false => self.announce(txn),
        }
    }

    /// Writes the meta row, so that clients that wait for the key are served also if only rows of
    /// groups have changed.
    pub fn announce(self, txn: &mut Txn) -> OpResult<()> {
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
