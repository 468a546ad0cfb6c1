//! Times of single members: hash fields and set members that expire by themselves.

use super::{Form, Members, find, put_bytes};
use crate::base::time::UnixMs;
use crate::encoding::timed::{earlier, entries};
use crate::encoding::{ValueType, keys};
use crate::storage::{DbIndex, Direction, KeyMeta, Txn, Value, View};
use crate::types::OpResult;
use crate::types::hashed::Size;

/// Members whose time is over are counted row by row up to here. The number of more is that of a
/// rank index, which is built once and then kept: a million of them may take minutes to go.
const FEW_OVER: u64 = 1024;

/// Most bytes that a time takes in a packed body.
const PACKED_TIME: usize = 9;

impl Members {
    /// A packed map with times; members whose time is over at `over_ms` are dropped.
    pub(super) fn packed_with_times(
        db: DbIndex,
        found: &KeyMeta,
        over_ms: UnixMs,
    ) -> OpResult<Members> {
        let kind = found.meta.kind;
        let mut map = Members::empty(db, kind);
        map.old = Some(found.meta);
        let (mut body, mut times) = (Value::new(), Vec::new());
        for entry in entries(&found.body, kind, true) {
            let entry = entry?;
            if entry.expire_ms.is_some() && entry.expire_ms <= over_ms {
                map.expired.push(entry.member.into());
                continue;
            }
            map.due_ms = earlier(map.due_ms, entry.expire_ms);
            times.push(entry.expire_ms);
            put_bytes(&mut body, entry.member);
            if kind == ValueType::Hash {
                put_bytes(&mut body, entry.value);
            }
        }
        let len = times.len();
        if map.due_ms == UnixMs::NONE {
            times.clear();
        }
        map.form = Form::Packed { body, len, times };
        Ok(map)
    }

    /// The hash or set at `key`, if it has members whose time is not over, and their number.
    pub fn load_living(
        view: &mut View,
        db: DbIndex,
        key: &[u8],
        kind: ValueType,
    ) -> OpResult<Option<(Members, u64)>> {
        let Some(map) = Members::load(view, db, key, kind)? else {
            return Ok(None);
        };
        let len = map.living(view)?;
        Ok((len > 0).then_some((map, len)))
    }

    /// The number of members whose time is not over.
    pub(super) fn living(&self, view: &mut View) -> OpResult<u64> {
        match &self.form {
            Form::Packed { len, .. } => Ok(*len as u64),
            Form::Rows { len, .. } => Ok(len.saturating_sub(self.over(view)?)),
        }
    }

    pub(super) fn size(&self, view: &mut View) -> OpResult<Size> {
        Ok(Size {
            living: self.living(view)?,
            stored: self.len(),
        })
    }

    /// The number of members in rows whose time is over and which are not removed yet.
    fn over(&self, view: &mut View) -> OpResult<u64> {
        let (Form::Rows { rows, .. }, Some(due_tag)) = (&self.form, self.kind.due_tag()) else {
            return Ok(0);
        };
        if rows.over_ms == UnixMs::NONE {
            return Ok(0);
        }
        let from = keys::element_due_from(due_tag, rows.id, self.due_ms);
        let to = keys::element_due_from(due_tag, rows.id, rows.over_ms + 1);
        // What was removed lately still stands at the beginning, as tombstones: with an index they are
        // not passed.
        if !view.has_rank_index(self.db, &to) {
            let count = count_rows(view, self.db, &from, &to, FEW_OVER)?;
            if count < FEW_OVER {
                return Ok(count);
            }
        }
        let Some(start) = view.rank_start_before(self.db, &to)? else {
            return count_rows(view, self.db, &from, &to, u64::MAX);
        };
        let mut near = keys::element_prefix(due_tag, rows.id);
        near.extend_from_slice(&start.place);
        let rest = count_rows(view, self.db, &near, &to, u64::MAX)?;
        Ok(start.before + rest)
    }

    /// When a member expires: `None` if there is no such member, 0 if it does not expire.
    pub fn time(&self, view: &View, member: &[u8]) -> OpResult<Option<UnixMs>> {
        match &self.form {
            Form::Packed { body, times, .. } => {
                let found = find(body, self.kind, member)?;
                let time = |index| times.get(index).copied().unwrap_or_default();
                Ok(found.map(|entry| time(entry.index)))
            }
            Form::Rows { .. } => match self.contains(view, member)? {
                true => self.row_time(view, member).map(Some),
                false => Ok(None),
            },
        }
    }

    fn row_time(&self, view: &View, member: &[u8]) -> OpResult<UnixMs> {
        match &self.form {
            Form::Rows { rows, timed, .. } if *timed > 0 => rows.time(view, member),
            _ => Ok(UnixMs::NONE),
        }
    }

    /// Sets when a member expires, which must exist.
    pub fn set_time(&mut self, txn: &mut Txn, member: &[u8], expire_ms: UnixMs) -> OpResult<()> {
        let bytes = self.packed_bytes();
        if let Form::Packed { body, len, times } = &mut self.form {
            let Some(index) = find(body, self.kind, member)?.map(|entry| entry.index) else {
                return Ok(());
            };
            let more = match times.is_empty() {
                true => *len * PACKED_TIME,
                false => 0,
            };
            if bytes + more <= txn.engine().config.packed_max_bytes {
                times.resize(*len, UnixMs::NONE);
                if let Some(time) = times.get_mut(index) {
                    self.changed |= *time != expire_ms;
                    *time = expire_ms;
                }
                self.due_ms = earliest(times);
                return Ok(());
            }
            self.promote(txn)?;
        }
        let old_ms = self.row_time(txn, member)?;
        if old_ms == expire_ms {
            return Ok(());
        }
        let (Form::Rows { rows, timed, .. }, Some(due_tag)) = (&mut self.form, self.kind.due_tag())
        else {
            return Ok(());
        };
        let key = rows.key(txn, member);
        let place = keys::place_of(&key);
        match old_ms {
            UnixMs::NONE => *timed += 1,
            old_ms => {
                let old = keys::element_due(due_tag, rows.id, old_ms, place);
                txn.delete_row(self.db, &old)?;
                txn.note_row(self.db, &old, false)?;
            }
        }
        let time_row = match self.kind.time_tag() {
            Some(tag) => keys::placed(tag, rows.id, place),
            None => key.clone(),
        };
        txn.put_row(self.db, &time_row, &expire_ms.0.to_be_bytes())?;
        let new = keys::element_due(due_tag, rows.id, expire_ms, place);
        txn.put_row(self.db, &new, &[])?;
        txn.note_row(self.db, &new, true)?;
        self.due_ms = earlier(self.due_ms, expire_ms);
        self.changed = true;
        Ok(())
    }

    /// Takes the time of a member away; returns whether it had one.
    pub fn clear_time(&mut self, txn: &mut Txn, member: &[u8]) -> OpResult<bool> {
        if let Form::Packed { body, times, .. } = &mut self.form {
            if times.is_empty() {
                return Ok(false);
            }
            let index = find(body, self.kind, member)?.map(|entry| entry.index);
            let time = index.and_then(|index| times.get_mut(index));
            let had_one = time.is_some_and(|time| std::mem::take(time).is_some());
            self.due_ms = earliest(times);
            if self.due_ms == UnixMs::NONE {
                times.clear();
            }
            self.changed |= had_one;
            return Ok(had_one);
        }
        let old_ms = self.row_time(txn, member)?;
        if old_ms == UnixMs::NONE {
            return Ok(false);
        }
        let (Form::Rows { rows, timed, .. }, Some(due_tag)) = (&mut self.form, self.kind.due_tag())
        else {
            return Ok(false);
        };
        let key = rows.key(txn, member);
        let place = keys::place_of(&key);
        match self.kind.time_tag() {
            Some(tag) => txn.delete_row(self.db, &keys::placed(tag, rows.id, place))?,
            None => txn.put_row(self.db, &key, &[])?,
        }
        let old = keys::element_due(due_tag, rows.id, old_ms, place);
        txn.delete_row(self.db, &old)?;
        txn.note_row(self.db, &old, false)?;
        *timed = timed.saturating_sub(1);
        if *timed == 0 {
            self.due_ms = UnixMs::NONE;
        }
        self.changed = true;
        Ok(true)
    }

    /// Removes the row of a member whose time is over, before the member is written or removed.
    pub(super) fn drop_if_over(&mut self, txn: &mut Txn, member: &[u8]) -> OpResult<()> {
        let Form::Rows { rows, .. } = &self.form else {
            return Ok(());
        };
        let mut rows = *rows;
        if rows.over_ms == UnixMs::NONE {
            return Ok(());
        }
        let time = rows.time(txn, member)?;
        if time == UnixMs::NONE || time > rows.over_ms {
            return Ok(());
        }
        self.clear_time(txn, member)?;
        rows.over_ms = UnixMs::NONE;
        rows.delete(txn, member)?;
        if let Form::Rows { len, .. } = &mut self.form {
            *len = len.saturating_sub(1);
        }
        self.expired.push(member.into());
        self.changed = true;
        Ok(())
    }

    /// Removes those of some members whose time is over, so that [`Members::save`] writes and logs
    /// that although nothing else has changed.
    pub fn drop_over(&mut self, txn: &mut Txn, members: &[&[u8]]) -> OpResult<()> {
        self.changed |= !self.expired.is_empty();
        members
            .iter()
            .try_for_each(|member| self.drop_if_over(txn, member))
    }

    /// About how many bytes a packed body takes with its times.
    pub(super) fn packed_bytes(&self) -> usize {
        match &self.form {
            Form::Packed { body, times, .. } => body.len() + times.len() * PACKED_TIME,
            Form::Rows { .. } => 0,
        }
    }
}

/// The first of these times; 0 if all are 0.
pub(super) fn earliest(times: &[UnixMs]) -> UnixMs {
    times.iter().copied().fold(UnixMs::NONE, earlier)
}

/// The number of rows in `[from, to)`, counted up to `most`.
fn count_rows(view: &mut View, db: DbIndex, from: &[u8], to: &[u8], most: u64) -> OpResult<u64> {
    let mut rows = view.scan(db, from, to, Direction::Forward)?;
    let mut count = 0;
    while count < most && rows.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}
