//! Idempotent XADD: which ids of producers are remembered, and the entries that were added with
//! them.
//!
//! How old an id is depends on the ids of entries alone: that which was added with it, and that
//! which is being added. So a replica forgets what its master forgets, whatever its clock says.
//! Each addition forgets what is due of its own producer, and of one other: producers that
//! are no longer used do not stay.

use super::group::delete_range;
use super::{Stream, StreamId};
use crate::encoding::stream::{
    Idempotence, ProducerRow, decode_entry, decode_number, entry_of, group_rows, iid_key,
    iid_order_key, producer_key, producer_name_key,
};
use crate::encoding::{Corrupt, keys, tag};
use crate::storage::{Direction, Txn, View};
use crate::types::OpResult;

/// Most ids that one addition forgets of a producer.
const FORGOTTEN_AT_ONCE: usize = 16;

impl Stream<'_> {
    /// The entry that a producer has added with this id, if that is still remembered at `now_ms`,
    /// in Unix ms.
    pub fn remembered(
        &self,
        view: &View,
        producer: &[u8],
        iid: &[u8],
        now_ms: u64,
    ) -> OpResult<Option<StreamId>> {
        let Some(number) = self.producer(view, producer)? else {
            return Ok(None);
        };
        let entry = self.entry_of_iid(view, number, iid)?;
        Ok(entry.filter(|entry| !self.is_due(*entry, now_ms)))
    }

    /// Remembers that a producer has added `entry` with this id.
    pub fn remember(
        &mut self,
        txn: &mut Txn,
        producer: &[u8],
        iid: &[u8],
        entry: StreamId,
    ) -> OpResult<()> {
        let (number, mut row) = self.producer_or_new(txn, producer)?;
        let most = self.body.idempotence.most;
        for _ in 0..FORGOTTEN_AT_ONCE {
            if row.ids == 0 || row.ids < most && !self.is_due(row.oldest, entry.ms) {
                break;
            }
            self.forget(txn, number, &mut row, None)?;
        }
        if let Some(old) = self.entry_of_iid(txn, number, iid)? {
            self.forget(txn, number, &mut row, Some(old))?;
        }
        let order_key = iid_order_key(self.body.id, number, entry);
        if txn.row(self.db, &order_key)?.is_some() {
            self.forget(txn, number, &mut row, Some(entry))?;
        }
        txn.put_side_row(
            self.db,
            &iid_key(self.body.id, number, iid),
            &entry.encode(),
        )?;
        txn.put_side_row(self.db, &order_key, iid)?;
        if row.ids == 0 || entry < row.oldest {
            row.oldest = entry;
        }
        row.ids += 1;
        self.body.idempotence.tracked += 1;
        self.body.idempotence.added += 1;
        txn.put_side_row(self.db, &producer_key(self.body.id, number), &row.encode())?;
        self.forget_of_another(txn, number, entry.ms)
    }

    /// Counts an entry that was not added because its id is remembered.
    pub fn count_duplicate(&mut self) {
        self.body.idempotence.duplicates += 1;
    }

    /// Sets how long ids are remembered, in s, and how many of a producer. If that changes, all are
    /// forgotten.
    pub fn set_idempotence(&mut self, txn: &mut Txn, duration_s: u64, most: u64) -> OpResult<()> {
        let known = self.body.idempotence;
        if (known.duration_s, known.most) == (duration_s, most) {
            return Ok(());
        }
        for (tag, rows) in [
            (tag::STREAM_IID, known.tracked),
            (tag::STREAM_IID_ORDER, known.tracked),
            (tag::STREAM_PRODUCER, known.producers),
            (tag::STREAM_PRODUCER_NAME, known.producers),
        ] {
            if rows > 0 {
                let from = keys::element_prefix(tag, self.body.id);
                let to = keys::element_end(tag, self.body.id);
                delete_range(txn, self.db, (&from, &to), rows)?;
            }
        }
        self.body.idempotence = Idempotence {
            duration_s,
            most,
            producers: 0,
            cursor: 0,
            tracked: 0,
            ..known
        };
        Ok(())
    }

    /// Sets the counts of ids ever added and repeated.
    pub(super) fn set_iid_counts(&mut self, added: u64, duplicates: u64) {
        self.body.idempotence.added = added;
        self.body.idempotence.duplicates = duplicates;
    }

    /// Whether an id with this entry is forgotten at `now_ms`.
    fn is_due(&self, entry: StreamId, now_ms: u64) -> bool {
        let duration_ms = self.body.idempotence.duration_s.saturating_mul(1000);
        entry.ms < now_ms.saturating_sub(duration_ms)
    }

    fn producer(&self, view: &View, name: &[u8]) -> OpResult<Option<u64>> {
        if self.body.idempotence.producers == 0 {
            return Ok(None);
        }
        let row = view.row(self.db, &producer_name_key(self.body.id, name))?;
        Ok(row.map(|row| decode_number(&row)).transpose()?)
    }

    fn producer_or_new(&mut self, txn: &mut Txn, name: &[u8]) -> OpResult<(u64, ProducerRow)> {
        if let Some(number) = self.producer(txn, name)? {
            let row = txn.row(self.db, &producer_key(self.body.id, number))?;
            let row = row.ok_or(Corrupt("stream producer"))?;
            return Ok((number, ProducerRow::decode(&row)?));
        }
        let known = &mut self.body.idempotence;
        known.producers += 1;
        known.numbers += 1;
        let number = known.numbers;
        let key = producer_name_key(self.body.id, name);
        txn.put_side_row(self.db, &key, &number.to_be_bytes())?;
        let row = ProducerRow {
            ids: 0,
            oldest: StreamId::MIN,
            name: name.into(),
        };
        Ok((number, row))
    }

    fn entry_of_iid(&self, view: &View, producer: u64, iid: &[u8]) -> OpResult<Option<StreamId>> {
        let row = view.row(self.db, &iid_key(self.body.id, producer, iid))?;
        Ok(row.map(|row| decode_entry(&row)).transpose()?)
    }

    /// Forgets the id that was added with an entry, by default the oldest one. The caller writes
    /// `row`.
    fn forget(
        &mut self,
        txn: &mut Txn,
        producer: u64,
        row: &mut ProducerRow,
        entry: Option<StreamId>,
    ) -> OpResult<()> {
        let entry = entry.unwrap_or(row.oldest);
        let order_key = iid_order_key(self.body.id, producer, entry);
        let iid = txn.row(self.db, &order_key)?;
        let iid = iid.ok_or(Corrupt("stream idempotent id"))?.to_vec();
        txn.delete_side_row(self.db, &iid_key(self.body.id, producer, &iid))?;
        txn.delete_side_row(self.db, &order_key)?;
        row.ids = row.ids.saturating_sub(1);
        self.body.idempotence.tracked = self.body.idempotence.tracked.saturating_sub(1);
        if row.ids > 0 && entry == row.oldest {
            let (_, to) = group_rows(tag::STREAM_IID_ORDER, self.body.id, producer);
            let mut scan = txn.scan(self.db, &order_key, &to, Direction::Forward)?;
            let next = scan.next()?.ok_or(Corrupt("stream producer"))?;
            row.oldest = entry_of(next.0)?;
        }
        Ok(())
    }

    /// Forgets what is due at `now_ms` of the next producer after those that were looked at
    /// before, and the producer itself when nothing is left of it.
    fn forget_of_another(&mut self, txn: &mut Txn, but: u64, now_ms: u64) -> OpResult<()> {
        let from = producer_key(self.body.id, self.body.idempotence.cursor);
        let to = keys::element_end(tag::STREAM_PRODUCER, self.body.id);
        let found = {
            let mut scan = txn.scan(self.db, &from, &to, Direction::Forward)?;
            match scan.next()? {
                Some((key, row)) => {
                    let number = key.last_chunk::<8>().ok_or(Corrupt("stream producer"))?;
                    Some((u64::from_be_bytes(*number), ProducerRow::decode(row)?))
                }
                None => None,
            }
        };
        let Some((number, mut row)) = found else {
            self.body.idempotence.cursor = 0;
            return Ok(());
        };
        self.body.idempotence.cursor = number + 1;
        if number == but || !self.is_due(row.oldest, now_ms) {
            return Ok(());
        }
        for _ in 0..FORGOTTEN_AT_ONCE {
            if row.ids == 0 || !self.is_due(row.oldest, now_ms) {
                break;
            }
            self.forget(txn, number, &mut row, None)?;
        }
        let key = producer_key(self.body.id, number);
        if row.ids > 0 {
            return Ok(txn.put_side_row(self.db, &key, &row.encode())?);
        }
        txn.delete_side_row(self.db, &producer_name_key(self.body.id, &row.name))?;
        txn.delete_side_row(self.db, &key)?;
        self.body.idempotence.producers = self.body.idempotence.producers.saturating_sub(1);
        Ok(())
    }
}
