//! A consumer group: its position in the stream, its consumers, and their pending
//! entries.

use crate::encoding::stream::{
    ConsumerRow, GroupRow, NO_CONSUMER, PendingRow, StreamId, UNKNOWN, consumer_key, decode_number,
    entry_of, group_key, group_rows, name_key, owned_key, pending_key, released_ms, time_of,
    timed_key,
};
use crate::encoding::{CollectionId, Corrupt, RowKey, tag};
use crate::storage::Direction;
use crate::storage::{DbIndex, Txn, View};
use crate::types::OpResult;
use std::ops::ControlFlow;

/// A group that is being read or changed. See the module.
#[derive(Debug)]
#[must_use = "changes are lost unless the group is saved"]
pub struct Group {
    db: DbIndex,
    stream: CollectionId,
    name: Box<[u8]>,
    row: GroupRow,
    stored: Option<GroupRow>,
    /// The consumers loaded so far.
    consumers: Vec<Consumer>,
    /// The first pending entry was removed, so the next one must be found.
    oldest_is_gone: bool,
}

/// A consumer, with its stored state.
#[derive(Debug)]
struct Consumer {
    number: u64,
    row: ConsumerRow,
    stored: Option<Standing>,
}

/// The variable part of a consumer: the times when it was seen and active, and its
/// number of pending entries. The name may be long, and does not change.
type Standing = (i64, i64, u64);

fn standing(row: &ConsumerRow) -> Standing {
    (row.seen_ms, row.active_ms, row.pending)
}

impl Group {
    pub(super) fn stored(db: DbIndex, stream: CollectionId, name: &[u8], row: GroupRow) -> Group {
        Group {
            stored: Some(row),
            ..Group::made(db, stream, name, row)
        }
    }

    pub(super) fn made(db: DbIndex, stream: CollectionId, name: &[u8], row: GroupRow) -> Group {
        Group {
            db,
            stream,
            name: name.into(),
            row,
            stored: None,
            consumers: Vec::new(),
            oldest_is_gone: false,
        }
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The group's row.
    pub fn row(&self) -> &GroupRow {
        &self.row
    }

    /// Sets the last delivered id, and the number of read entries.
    pub fn set_last(&mut self, last: StreamId, read: i64) {
        self.row.last = last;
        self.row.read = read;
    }

    /// Removes all rows of the group.
    pub(super) fn destroy(self, txn: &mut Txn) -> OpResult<()> {
        txn.delete_row(self.db, &group_key(self.stream, &self.name))?;
        let consumers: [u8; 2] = [tag::STREAM_CONSUMER, tag::STREAM_CONSUMER_NAME];
        let entries: [u8; 2] = [tag::STREAM_PENDING, tag::STREAM_OWNED];
        for (tags, rows) in [(consumers, self.row.consumers), (entries, self.row.pending)] {
            for tag in tags {
                let (from, to) = group_rows(tag, self.stream, self.row.number);
                delete_range(txn, self.db, (&from, &to), rows)?;
            }
        }
        if self.row.timed {
            let (from, to) = group_rows(tag::STREAM_TIMED, self.stream, self.row.number);
            delete_range(txn, self.db, (&from, &to), self.row.pending)?;
        }
        Ok(())
    }

    /// Stores pending entries by time from now on.
    fn begin_timed(&mut self, txn: &mut Txn) -> OpResult<()> {
        let mut found = Vec::new();
        let all = (StreamId::MIN, StreamId::MAX);
        self.visit_pending(txn, all, Direction::Forward, |id, row| {
            found.push((id, row.delivered_ms));
            Ok(ControlFlow::Continue(()))
        })?;
        self.row.timed = true;
        for (id, delivered_ms) in found {
            self.put_timed(txn, id, delivered_ms)?;
        }
        Ok(())
    }

    fn put_timed(&self, txn: &mut Txn, id: StreamId, delivered_ms: i64) -> OpResult<()> {
        if self.row.timed {
            let key = timed_key(self.stream, self.row.number, delivered_ms, id);
            txn.put_side_row(self.db, &key, &[])?;
        }
        Ok(())
    }

    fn delete_timed(&self, txn: &mut Txn, id: StreamId, delivered_ms: i64) -> OpResult<()> {
        if self.row.timed {
            let key = timed_key(self.stream, self.row.number, delivered_ms, id);
            txn.delete_side_row(self.db, &key)?;
        }
        Ok(())
    }

    /// The ids of up to `most` pending entries that were delivered at `until_ms` or before: those
    /// that were released, then those that are idle for the longest.
    pub fn idle(&mut self, txn: &mut Txn, until_ms: i64, most: u64) -> OpResult<Vec<StreamId>> {
        let mut found = Vec::new();
        if self.row.pending == 0 || most == 0 {
            return Ok(found);
        }
        if !self.row.timed {
            self.begin_timed(txn)?;
        }
        let (from, _) = group_rows(tag::STREAM_TIMED, self.stream, self.row.number);
        let mut end = timed_key(self.stream, self.row.number, until_ms, StreamId::MAX);
        end.push(0);
        let mut scan = txn.scan(self.db, &from, &end, Direction::Forward)?;
        while let Some((key, _)) = scan.next()? {
            found.push(entry_of(key)?);
            if found.len() as u64 == most {
                break;
            }
        }
        Ok(found)
    }

    /// When the pending entry that is idle for the longest was delivered, if the group stores them
    /// by time.
    pub fn first_delivery_ms(&self, view: &mut View) -> OpResult<Option<i64>> {
        if !self.row.timed || self.row.pending == 0 {
            return Ok(None);
        }
        let (from, to) = group_rows(tag::STREAM_TIMED, self.stream, self.row.number);
        let mut scan = view.scan(self.db, &from, &to, Direction::Forward)?;
        Ok(scan.next()?.map(|(key, _)| time_of(key)).transpose()?)
    }

    /// Takes a pending entry from its consumer, so that it belongs to none; creates it if `old`,
    /// its state, is `None`.
    pub fn release(
        &mut self,
        txn: &mut Txn,
        id: StreamId,
        old: Option<&PendingRow>,
        deliveries: u64,
    ) -> OpResult<()> {
        self.row.releases += 1;
        let new = PendingRow {
            consumer: NO_CONSUMER,
            delivered_ms: released_ms(self.row.releases),
            deliveries,
        };
        self.assign(txn, id, old, &new)
    }

    /// The number of the consumer with this name.
    pub fn find_consumer(&self, view: &View, name: &[u8]) -> OpResult<Option<u64>> {
        let known = self.consumers.iter().find(|known| *known.row.name == *name);
        if let Some(known) = known {
            return Ok(Some(known.number));
        }
        let row = view.row(self.db, &name_key(self.stream, self.row.number, name))?;
        Ok(row.map(|row| decode_number(&row)).transpose()?)
    }

    /// The consumer with this name, created if it does not exist; returns whether it was
    /// created. Updates the consumer's seen time.
    pub fn consumer(&mut self, txn: &mut Txn, name: &[u8]) -> OpResult<(u64, bool)> {
        let now_ms = txn.now_ms().as_i64();
        if let Some(number) = self.find_consumer(txn, name)? {
            self.of_number(txn, number)?.row.seen_ms = now_ms;
            return Ok((number, false));
        }
        let number = self.add_consumer(txn, name, now_ms, UNKNOWN)?;
        Ok((number, true))
    }

    /// Creates a consumer; the name must be new.
    pub(super) fn add_consumer(
        &mut self,
        txn: &mut Txn,
        name: &[u8],
        seen_ms: i64,
        active_ms: i64,
    ) -> OpResult<u64> {
        self.row.consumers += 1;
        self.row.numbers += 1;
        let number = self.row.numbers;
        let key = name_key(self.stream, self.row.number, name);
        txn.put_side_row(self.db, &key, &number.to_be_bytes())?;
        self.consumers.push(Consumer {
            number,
            row: ConsumerRow {
                seen_ms,
                active_ms,
                pending: 0,
                name: name.into(),
            },
            stored: None,
        });
        Ok(number)
    }

    /// A consumer's row.
    pub fn consumer_row(&mut self, view: &View, number: u64) -> OpResult<&ConsumerRow> {
        Ok(&self.of_number(view, number)?.row)
    }

    /// Sets a consumer's active time to now.
    pub fn note_active(&mut self, view: &View, number: u64) -> OpResult<()> {
        let now_ms = view.now_ms().as_i64();
        self.of_number(view, number)?.row.active_ms = now_ms;
        Ok(())
    }

    fn of_number(&mut self, view: &View, number: u64) -> OpResult<&mut Consumer> {
        let known = self.consumers.iter().position(|c| c.number == number);
        let at = match known {
            Some(at) => at,
            None => {
                let key = consumer_key(self.stream, self.row.number, number);
                let row = view.row(self.db, &key)?;
                let row = row.ok_or(Corrupt("stream consumer"))?;
                let row = ConsumerRow::decode(&row)?;
                self.consumers.push(Consumer {
                    number,
                    stored: Some(standing(&row)),
                    row,
                });
                self.consumers.len() - 1
            }
        };
        Ok(&mut self.consumers[at])
    }

    /// Numbers and rows of all consumers, by name.
    pub fn all_consumers(&self, view: &mut View) -> OpResult<Vec<(u64, ConsumerRow)>> {
        let (from, to) = group_rows(tag::STREAM_CONSUMER_NAME, self.stream, self.row.number);
        let mut numbers = Vec::new();
        let mut scan = view.scan(self.db, &from, &to, Direction::Forward)?;
        while let Some((_, row)) = scan.next()? {
            numbers.push(decode_number(row)?);
        }
        drop(scan);
        let mut consumers = Vec::with_capacity(numbers.len());
        for number in numbers {
            let key = consumer_key(self.stream, self.row.number, number);
            let row = view.row(self.db, &key)?;
            let row = row.ok_or(Corrupt("stream consumer"))?;
            consumers.push((number, ConsumerRow::decode(&row)?));
        }
        Ok(consumers)
    }

    /// Deletes a consumer with its pending entries; returns the number of those.
    pub fn delete_consumer(&mut self, txn: &mut Txn, number: u64) -> OpResult<u64> {
        self.of_number(txn, number)?;
        let known = self.consumers.iter().position(|c| c.number == number);
        let known = known.ok_or(Corrupt("stream consumer"))?;
        let row = self.consumers.swap_remove(known).row;
        let group = self.row.number;
        let mut from = StreamId::MIN;
        while let Some((owned, next)) = self.owned_part(txn, number, from)? {
            for id in owned {
                if self.row.timed
                    && let Some(row) = self.pending(txn, id)?
                {
                    self.delete_timed(txn, id, row.delivered_ms)?;
                }
                txn.delete_side_row(self.db, &pending_key(self.stream, group, id))?;
                self.note_removed(id);
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        let first = owned_key(self.stream, group, number, StreamId::MIN);
        let mut end = owned_key(self.stream, group, number, StreamId::MAX);
        end.push(0);
        delete_range(txn, self.db, (&first, &end), row.pending)?;
        txn.delete_side_row(self.db, &name_key(self.stream, group, &row.name))?;
        txn.delete_side_row(self.db, &consumer_key(self.stream, group, number))?;
        self.row.consumers = self.row.consumers.saturating_sub(1);
        Ok(row.pending)
    }

    /// Some ids of a consumer's pending entries from an id on, and where to continue;
    /// `None` if there are none.
    #[allow(clippy::type_complexity)]
    fn owned_part(
        &self,
        view: &mut View,
        consumer: u64,
        from: StreamId,
    ) -> OpResult<Option<(Vec<StreamId>, Option<StreamId>)>> {
        const PART: usize = 4096;
        let mut ids = Vec::new();
        self.visit_owned(view, consumer, (from, StreamId::MAX), |id| {
            ids.push(id);
            Ok(match ids.len() < PART {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
        let next = ids.last().and_then(|last| last.next());
        let next = next.filter(|_| ids.len() == PART);
        Ok((!ids.is_empty()).then_some((ids, next)))
    }

    /// The state of a pending entry.
    pub fn pending(&self, view: &View, id: StreamId) -> OpResult<Option<PendingRow>> {
        if self.row.pending == 0 || id < self.row.oldest {
            return Ok(None);
        }
        let key = pending_key(self.stream, self.row.number, id);
        let row = view.row(self.db, &key)?;
        Ok(row.map(|row| PendingRow::decode(&row)).transpose()?)
    }

    /// Sets the state of a pending entry; `old` is its previous state.
    pub fn assign(
        &mut self,
        txn: &mut Txn,
        id: StreamId,
        old: Option<&PendingRow>,
        new: &PendingRow,
    ) -> OpResult<()> {
        let group = self.row.number;
        let key = pending_key(self.stream, group, id);
        txn.put_side_row(self.db, &key, &new.encode())?;
        if let Some(old) = old {
            self.delete_timed(txn, id, old.delivered_ms)?;
        }
        self.put_timed(txn, id, new.delivered_ms)?;
        match old {
            Some(old) if old.consumer == new.consumer => return Ok(()),
            Some(old) => self.disown(txn, id, old.consumer)?,
            None => {
                if self.row.pending == 0 || id < self.row.oldest {
                    self.row.oldest = id;
                    self.oldest_is_gone = false;
                }
                self.row.pending += 1;
            }
        }
        let key = owned_key(self.stream, group, new.consumer, id);
        txn.put_side_row(self.db, &key, &[])?;
        *self.owned(txn, new.consumer)? += 1;
        Ok(())
    }

    /// The number of pending entries of a consumer, or of those that none owns.
    fn owned(&mut self, view: &View, consumer: u64) -> OpResult<&mut u64> {
        match consumer {
            NO_CONSUMER => Ok(&mut self.row.released),
            _ => Ok(&mut self.of_number(view, consumer)?.row.pending),
        }
    }

    /// Removes a pending entry; `old` is its state.
    pub fn remove(&mut self, txn: &mut Txn, id: StreamId, old: &PendingRow) -> OpResult<()> {
        let key = pending_key(self.stream, self.row.number, id);
        txn.delete_side_row(self.db, &key)?;
        self.delete_timed(txn, id, old.delivered_ms)?;
        self.disown(txn, id, old.consumer)?;
        self.note_removed(id);
        Ok(())
    }

    fn note_removed(&mut self, id: StreamId) {
        self.row.pending = self.row.pending.saturating_sub(1);
        self.oldest_is_gone |= id == self.row.oldest;
    }

    fn disown(&mut self, txn: &mut Txn, id: StreamId, consumer: u64) -> OpResult<()> {
        let key = owned_key(self.stream, self.row.number, consumer, id);
        txn.delete_side_row(self.db, &key)?;
        let owned = self.owned(txn, consumer)?;
        *owned = owned.saturating_sub(1);
        Ok(())
    }

    /// Calls `each` with the pending entries between two ids, both inclusive, until it
    /// breaks.
    pub fn visit_pending(
        &self,
        view: &mut View,
        (from, to): (StreamId, StreamId),
        order: Direction,
        mut each: impl FnMut(StreamId, PendingRow) -> OpResult<ControlFlow<()>>,
    ) -> OpResult<()> {
        let from = from.max(self.row.oldest);
        if self.row.pending == 0 || from > to {
            return Ok(());
        }
        let from = pending_key(self.stream, self.row.number, from);
        let mut end = pending_key(self.stream, self.row.number, to);
        end.push(0);
        let mut scan = view.scan(self.db, &from, &end, order)?;
        while let Some((key, row)) = scan.next()? {
            if each(entry_of(key)?, PendingRow::decode(row)?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` with a consumer's pending ids between two ids.
    pub fn visit_owned(
        &self,
        view: &mut View,
        consumer: u64,
        (from, to): (StreamId, StreamId),
        mut each: impl FnMut(StreamId) -> OpResult<ControlFlow<()>>,
    ) -> OpResult<()> {
        let from = from.max(self.row.oldest);
        if self.row.pending == 0 || from > to {
            return Ok(());
        }
        let from = owned_key(self.stream, self.row.number, consumer, from);
        let mut end = owned_key(self.stream, self.row.number, consumer, to);
        end.push(0);
        let mut scan = view.scan(self.db, &from, &end, Direction::Forward)?;
        while let Some((key, _)) = scan.next()? {
            if each(entry_of(key)?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Adds a pending entry without a consumer; returns false if the entry is pending
    /// already.
    pub(super) fn put_unowned(
        &mut self,
        txn: &mut Txn,
        id: StreamId,
        delivered_ms: i64,
        deliveries: u64,
    ) -> OpResult<bool> {
        if self.pending(txn, id)?.is_some() {
            return Ok(false);
        }
        let row = PendingRow {
            consumer: NO_CONSUMER,
            delivered_ms,
            deliveries,
        };
        let key = pending_key(self.stream, self.row.number, id);
        txn.put_side_row(self.db, &key, &row.encode())?;
        if self.row.pending == 0 || id < self.row.oldest {
            self.row.oldest = id;
        }
        self.row.pending += 1;
        Ok(true)
    }

    /// Assigns such an entry to a consumer; returns false if the entry has one.
    pub(super) fn own(&mut self, txn: &mut Txn, id: StreamId, consumer: u64) -> OpResult<bool> {
        let Some(row) = self
            .pending(txn, id)?
            .filter(|row| row.consumer == NO_CONSUMER && !row.is_released())
        else {
            return Ok(false);
        };
        let row = PendingRow { consumer, ..row };
        let key = pending_key(self.stream, self.row.number, id);
        txn.put_side_row(self.db, &key, &row.encode())?;
        let key = owned_key(self.stream, self.row.number, consumer, id);
        txn.put_side_row(self.db, &key, &[])?;
        self.of_number(txn, consumer)?.row.pending += 1;
        Ok(true)
    }

    /// Releases such an entry; returns false if there is none.
    pub(super) fn release_unowned(&mut self, txn: &mut Txn, id: StreamId) -> OpResult<bool> {
        // An entry with a release time has been released already.
        let unowned = |row: &PendingRow| row.consumer == NO_CONSUMER && !row.is_released();
        let Some(row) = self.pending(txn, id)?.filter(unowned) else {
            return Ok(false);
        };
        self.row.releases += 1;
        self.row.released += 1;
        let row = PendingRow {
            delivered_ms: released_ms(self.row.releases),
            ..row
        };
        let key = pending_key(self.stream, self.row.number, id);
        txn.put_side_row(self.db, &key, &row.encode())?;
        let key = owned_key(self.stream, self.row.number, NO_CONSUMER, id);
        txn.put_side_row(self.db, &key, &[])?;
        Ok(true)
    }

    /// Writes the changed consumers, and drops all of them.
    pub(super) fn write_consumers(&mut self, txn: &mut Txn) -> OpResult<()> {
        for consumer in self.consumers.drain(..) {
            if consumer.stored != Some(standing(&consumer.row)) {
                let key = consumer_key(self.stream, self.row.number, consumer.number);
                txn.put_side_row(self.db, &key, &consumer.row.encode())?;
            }
        }
        Ok(())
    }

    /// Writes the changes.
    pub fn save(mut self, txn: &mut Txn) -> OpResult<()> {
        if self.row.pending == 0 {
            self.row.oldest = StreamId::MIN;
        } else if self.oldest_is_gone {
            let mut oldest = None;
            let all = (StreamId::MIN, StreamId::MAX);
            self.visit_pending(txn, all, Direction::Forward, |id, _| {
                oldest = Some(id);
                Ok(ControlFlow::Break(()))
            })?;
            self.row.oldest = oldest.ok_or(Corrupt("stream pending"))?;
        }
        self.write_consumers(txn)?;
        if self.stored != Some(self.row) {
            let key = group_key(self.stream, &self.name);
            txn.put_side_row(self.db, &key, &self.row.encode())?;
        }
        Ok(())
    }
}

/// Deletes a range of `rows` rows.
pub(super) fn delete_range(
    txn: &mut Txn,
    db: DbIndex,
    (from, to): (&RowKey, &RowKey),
    rows: u64,
) -> OpResult<()> {
    if rows > super::POINT_DELETES {
        return Ok(txn.delete_rows(db, from, to)?);
    }
    let mut keys = Vec::new();
    let mut scan = txn.scan(db, from, to, Direction::Forward)?;
    while let Some((key, _)) = scan.next()? {
        keys.push(RowKey::from_slice(key));
    }
    drop(scan);
    for key in keys {
        txn.delete_side_row(db, &key)?;
    }
    Ok(())
}
