//! Hashes and sets as a map from members to values (a set's values are empty).
//!
//! Small maps are packed into their meta row, in the order of insertion; larger ones
//! have rows of their own ([`super::hashed`]), in hash order. Only this module knows the
//! form of a key. A change that would make a packed map too large moves it to rows.
//!
//! Deleted rows leave tombstones, which every walk and every random sample must pass
//! until compaction removes them, so emptying a large set with SPOP would become slower
//! and slower. A map that has shrunk to a quarter of its peak is therefore rewritten
//! under another id, packed if it is small enough. One that is still large is left to a
//! background compaction.
//!
//! Load or open a key, change it, save it: the meta row is written once at the end, and
//! only if it changed. The count is exact even if arguments repeat, since each change
//! looks the member up first.
//!
//! A packed set of integers is returned in numeric order.
//!
//! Members may have times of their own ([`times`]). One whose time is over is as if it were absent.
//! It is removed when a change touches it, and the removal is logged before the change; otherwise
//! the expire thread removes it. Maps without times, and those of which none is over, are read as
//! if there were no times.

pub(super) mod definition;
mod times;
use super::hashed::{Chunk, HashedRows, Walk, select};
use super::{OpResult, lookup};
use crate::base::num;
use crate::base::time::UnixMs;
use crate::encoding::meta::{Counted, Grown};
use crate::encoding::packed::{self, len_prefix};
use crate::encoding::timed;
use crate::encoding::{CollectionId, Corrupt, Meta, ValueType};
use crate::storage::txn::Row;
use crate::storage::{DbIndex, KeyMeta, Txn, Value, View};
use smallvec::SmallVec;
use std::ops::{ControlFlow, Range};

/// A map is rewritten when it has shrunk to less than 1/`SHRUNK` of its peak.
const SHRUNK: u64 = 4;

/// Most members of a map that is rewritten by the command itself.
const REWRITE_MEMBERS: u64 = 16384;

/// Most bytes of a map that is rewritten.
const REWRITE_BYTES: usize = 1 << 20;

/// A hash or a set that is being read or changed.
#[derive(Debug)]
pub struct Members {
    db: DbIndex,
    kind: ValueType,
    /// The head of the meta row as it was loaded.
    old: Option<Meta>,
    form: Form,
    /// No member in rows expires earlier; 0 if none has a time.
    due_ms: UnixMs,
    /// Members that were dropped because their time is over, to be logged with the change.
    expired: Vec<Box<[u8]>>,
    /// Whether the meta row must be written.
    changed: bool,
}

#[derive(Debug)]
enum Form {
    Packed {
        /// Without times.
        body: Value,
        len: usize,
        /// When each member expires; empty if none does.
        times: Vec<UnixMs>,
    },
    Rows {
        rows: HashedRows,
        len: u64,
        /// The highest saved `len` under this id.
        peak: u64,
        /// How many have a time of their own.
        timed: u64,
        /// Whether the collection was created in this turn, so that all its rows are
        /// pending.
        fresh: bool,
    },
}

/// One entry of a packed map.
#[derive(Debug, Clone)]
struct Entry<'a> {
    member: &'a [u8],
    value: &'a [u8],
    /// Which entry it is.
    index: usize,
    /// Its bytes in the body, including lengths.
    range: Range<usize>,
    /// Where the length of the value begins.
    value_at: usize,
}

impl Members {
    /// An empty hash or set without a key.
    pub fn empty(db: DbIndex, kind: ValueType) -> Members {
        debug_assert!(is_map(kind), "{kind:?}");
        let (body, len, times) = (Value::new(), 0, Vec::new());
        Members {
            db,
            kind,
            old: None,
            form: Form::Packed { body, len, times },
            due_ms: UnixMs::NONE,
            expired: Vec::new(),
            changed: false,
        }
    }

    /// The hash or set at `key`, if there is one.
    pub fn load(
        view: &mut View,
        db: DbIndex,
        key: &[u8],
        kind: ValueType,
    ) -> OpResult<Option<Members>> {
        let over_ms = view.expiry_now_ms();
        lookup(view, db, key, kind)?
            .map(|found| Members::from_meta(db, found, over_ms))
            .transpose()
    }

    /// The hash or set at `key`, or an empty one.
    pub fn open(view: &mut View, db: DbIndex, key: &[u8], kind: ValueType) -> OpResult<Members> {
        let found = Members::load(view, db, key, kind)?;
        Ok(found.unwrap_or_else(|| Members::empty(db, kind)))
    }

    /// The value of a looked-up key, which must be a hash or a set, as it is at `over_ms`: members
    /// whose time is over by then are hidden.
    fn from_meta(db: DbIndex, found: KeyMeta, over_ms: UnixMs) -> OpResult<Members> {
        let kind = found.meta.kind;
        debug_assert!(is_map(kind), "{kind:?}");
        let form = if found.meta.rows {
            let Grown {
                counted,
                peak,
                timed,
            } = Grown::decode(&found.body)?;
            let mut rows = HashedRows::new(db, kind, counted.id);
            if found.meta.is_due(over_ms) {
                rows.over_ms = over_ms;
            }
            Form::Rows {
                rows,
                len: counted.count,
                peak,
                timed,
                fresh: false,
            }
        } else if found.meta.due_ms.is_some() {
            return Members::packed_with_times(db, &found, over_ms);
        } else {
            let items = packed::items(&found.body);
            let count = items.map(|item| item.map(drop)).try_fold(0, |n, item| {
                item?;
                Ok::<usize, Corrupt>(n + 1)
            })?;
            let has_values = kind == ValueType::Hash;
            if has_values && count % 2 == 1 {
                return Err(Corrupt("packed hash").into());
            }
            let len = if has_values { count / 2 } else { count };
            let (body, times) = (found.body, Vec::new());
            Form::Packed { body, len, times }
        };
        Ok(Members {
            db,
            kind,
            old: Some(found.meta),
            form,
            due_ms: found.meta.due_ms,
            expired: Vec::new(),
            changed: false,
        })
    }

    /// The number of members, including those whose time is over and which are not removed yet:
    /// see [`Members::living`].
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Packed { len, .. } => *len as u64,
            Form::Rows { len, .. } => *len,
        }
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The collection id of the rows, if the members stand in rows.
    pub fn collection(&self) -> Option<CollectionId> {
        match &self.form {
            Form::Packed { .. } => None,
            Form::Rows { rows, .. } => Some(rows.id),
        }
    }

    /// Whether a look-up of a member reads a row.
    pub(super) fn in_rows(&self) -> bool {
        matches!(self.form, Form::Rows { .. })
    }

    /// The value of a member.
    pub fn get<'a>(&'a self, view: &'a View, member: &[u8]) -> OpResult<Option<Row<'a>>> {
        match &self.form {
            Form::Packed { body, .. } => {
                Ok(find(body, self.kind, member)?.map(|entry| Row::Pending(entry.value)))
            }
            Form::Rows { rows, fresh, .. } if *fresh => {
                let key = rows.key(view, member);
                Ok(view.pending_row(self.db, &key).map(Row::Pending))
            }
            Form::Rows { rows, .. } => rows.get(view, member),
        }
    }

    /// Whether a member exists.
    pub fn contains(&self, view: &View, member: &[u8]) -> OpResult<bool> {
        Ok(self.get(view, member)?.is_some())
    }

    /// Sets the value of a member, which loses its time if it has one; returns whether the member
    /// is new.
    pub fn insert(&mut self, txn: &mut Txn, member: &[u8], value: &[u8]) -> OpResult<bool> {
        let is_new = self.insert_keeping_time(txn, member, value)?;
        if !is_new && self.kind == ValueType::Hash {
            self.clear_time(txn, member)?;
        }
        Ok(is_new)
    }

    /// Sets the value of a member, which keeps its time; returns whether the member is new.
    pub fn insert_keeping_time(
        &mut self,
        txn: &mut Txn,
        member: &[u8],
        value: &[u8],
    ) -> OpResult<bool> {
        let has_values = self.kind == ValueType::Hash;
        let Form::Packed { body, .. } = &self.form else {
            let is_new = self.get(txn, member)?.is_none();
            if is_new {
                self.append(txn, member, value)?;
            } else if let (Form::Rows { rows, .. }, true) = (&self.form, has_values) {
                rows.put(txn, member, value)?;
            }
            return Ok(is_new);
        };
        match find(body, self.kind, member)? {
            Some(entry) if has_values => {
                let place = entry.value_at..entry.range.end;
                self.replace(txn, member, place, value)?;
                Ok(false)
            }
            Some(_) => Ok(false),
            None => {
                self.append(txn, member, value)?;
                Ok(true)
            }
        }
    }

    /// Adds a member that the caller knows to be new.
    pub fn append(&mut self, txn: &mut Txn, member: &[u8], value: &[u8]) -> OpResult<()> {
        self.changed = true;
        self.drop_if_over(txn, member)?;
        let with_times = self.packed_bytes();
        if let Form::Packed { body, len, times } = &mut self.form {
            let config = &txn.engine().config;
            let more = member.len() + value.len() + 10;
            if *len < config.packed_max_entries && with_times + more <= config.packed_max_bytes {
                if !times.is_empty() {
                    times.push(UnixMs::NONE);
                }
                put_bytes(body, member);
                if self.kind == ValueType::Hash {
                    put_bytes(body, value);
                }
                *len += 1;
                return Ok(());
            }
            self.promote(txn)?;
        }
        if let Form::Rows { rows, len, .. } = &mut self.form {
            rows.put(txn, member, value)?;
            *len = len.saturating_add(1);
        }
        Ok(())
    }

    /// Replaces the value at `place` of the body.
    fn replace(
        &mut self,
        txn: &mut Txn,
        member: &[u8],
        place: Range<usize>,
        value: &[u8],
    ) -> OpResult<()> {
        let with_times = self.packed_bytes();
        let Form::Packed { body, .. } = &mut self.form else {
            return Ok(());
        };
        let (mut buffer, old) = ([0; 5], place.len());
        let prefix = len_prefix(value.len(), &mut buffer);
        let new = prefix.len() + value.len();
        if new > old && with_times - old + new > txn.engine().config.packed_max_bytes {
            self.promote(txn)?;
            if let Form::Rows { rows, .. } = &self.form {
                rows.put(txn, member, value)?;
            }
            return Ok(());
        }
        resize_gap(body, place.clone(), new);
        let (head, tail) = body[place.start..place.start + new].split_at_mut(prefix.len());
        head.copy_from_slice(prefix);
        tail.copy_from_slice(value);
        self.changed = true;
        Ok(())
    }

    /// Removes a member; returns whether it existed.
    pub fn remove(&mut self, txn: &mut Txn, member: &[u8]) -> OpResult<bool> {
        self.drop_if_over(txn, member)?;
        if self.in_rows() {
            self.clear_time(txn, member)?;
        }
        let removed = match &mut self.form {
            Form::Packed { body, len, times } => {
                let found = find(body, self.kind, member)?;
                let found = found.map(|entry| (entry.range, entry.index));
                if let Some((range, index)) = found.clone() {
                    resize_gap(body, range, 0);
                    *len -= 1;
                    if !times.is_empty() {
                        times.remove(index);
                        self.due_ms = times::earliest(times);
                        if self.due_ms == UnixMs::NONE {
                            times.clear();
                        }
                    }
                }
                found.is_some()
            }
            Form::Rows { rows, len, .. } => {
                let removed = rows.delete(txn, member)?;
                *len = len.saturating_sub(u64::from(removed));
                removed
            }
        };
        self.changed |= removed;
        Ok(removed)
    }

    /// Moves a packed map into rows.
    fn promote(&mut self, txn: &mut Txn) -> OpResult<()> {
        let place = Form::Packed {
            body: Value::new(),
            len: 0,
            times: Vec::new(),
        };
        if let Form::Packed { .. } = &self.form
            && let Form::Packed { body, len, times } = std::mem::replace(&mut self.form, place)
        {
            let rows = HashedRows::new(self.db, self.kind, txn.new_id());
            for entry in entries(&body, self.kind) {
                let entry = entry?;
                rows.put(txn, entry.member, entry.value)?;
            }
            self.form = Form::Rows {
                rows,
                len: len as u64,
                peak: len as u64,
                timed: 0,
                fresh: true,
            };
            self.changed = true;
            for (entry, expire_ms) in entries(&body, self.kind).zip(times) {
                if expire_ms.is_some() {
                    self.set_time(txn, entry?.member, expire_ms)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the changes to the key that this was loaded from; an empty map deletes the
    /// key.
    pub fn save(mut self, txn: &mut Txn, key: &[u8]) -> OpResult<()> {
        if !self.changed {
            return Ok(());
        }
        txn.note_expired_elements(self.db, key, self.kind, &self.expired);
        if self.is_empty() {
            if let Some(meta) = self.old {
                let body = Value::new();
                // Its rows, if it had any, were deleted one by one.
                txn.unlink_key(self.db, key, &KeyMeta { meta, body })?;
            }
            return Ok(());
        }
        if self.rewrite(txn, key)? {
            return Ok(());
        }
        let expire_ms = self.old.map_or(UnixMs::NONE, |meta| meta.expire_ms);
        let (meta, body) = self.encode(expire_ms)?;
        Ok(txn.put_key(self.db, key, self.old.as_ref(), meta, &body)?)
    }

    /// Writes this map (made with [`Members::empty`]) to a key and replaces its value;
    /// an empty map only deletes the key.
    pub fn save_over(self, txn: &mut Txn, key: &[u8], expire_ms: UnixMs) -> OpResult<()> {
        let old = txn.lookup(self.db, key)?;
        match &old {
            Some(old) if self.is_empty() => txn.remove_key(self.db, key, old)?,
            None if self.is_empty() => {}
            old => {
                let (meta, body) = self.encode(expire_ms)?;
                txn.replace_key(self.db, key, old.as_ref(), meta, &body)?;
            }
        }
        Ok(())
    }

    fn encode(&self, expire_ms: UnixMs) -> Result<(Meta, Value), Corrupt> {
        let body = match &self.form {
            Form::Packed { body, .. } if self.due_ms == UnixMs::NONE => body.clone(),
            Form::Packed { body, times, .. } => with_times(body, self.kind, times)?,
            Form::Rows {
                rows,
                len,
                peak,
                timed,
                ..
            } => {
                let counted = Counted {
                    id: rows.id,
                    count: *len,
                };
                let grown = Grown {
                    counted,
                    peak: (*peak).max(*len),
                    timed: *timed,
                };
                Value::from_slice(&grown.encode())
            }
        };
        let meta = Meta {
            rows: self.in_rows(),
            expire_ms,
            due_ms: self.due_ms,
            ..Meta::new(self.kind)
        };
        Ok((meta, body))
    }

    /// Rewrites a map that has shrunk much; returns whether it was rewritten.
    fn rewrite(&mut self, txn: &mut Txn, key: &[u8]) -> OpResult<bool> {
        let Form::Rows {
            len, peak, timed, ..
        } = &self.form
        else {
            return Ok(false);
        };
        let Some(meta) = self.old.filter(|meta| meta.rows && *len < *peak / SHRUNK) else {
            return Ok(false);
        };
        if *len > REWRITE_MEMBERS || *timed > 0 {
            self.leave_to_compaction(txn);
            return Ok(false);
        }
        let mut bytes = Vec::new();
        let mut spans = Vec::new();
        let mut too_large = false;
        self.for_each(txn, |member, value| {
            bytes.extend_from_slice(member);
            bytes.extend_from_slice(value);
            spans.push((member.len(), value.len()));
            too_large = bytes.len() > REWRITE_BYTES;
            match too_large {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if too_large {
            self.leave_to_compaction(txn);
            return Ok(false);
        }
        let mut anew = Members::empty(self.db, self.kind);
        let mut rest = bytes.as_slice();
        for (member_len, value_len) in spans {
            let (member, tail) = rest.split_at(member_len);
            let (value, tail) = tail.split_at(value_len);
            anew.append(txn, member, value)?;
            rest = tail;
        }
        let (_, body) = self.encode(meta.expire_ms)?;
        let old = KeyMeta { meta, body };
        let (meta, body) = anew.encode(meta.expire_ms)?;
        txn.replace_key(self.db, key, Some(&old), meta, &body)?;
        Ok(true)
    }

    /// Requests a background compaction of the rows' range; again after the map has
    /// shrunk by the same factor once more.
    fn leave_to_compaction(&mut self, txn: &Txn) {
        if let Form::Rows {
            rows, len, peak, ..
        } = &mut self.form
        {
            *peak = *len;
            let (from, to) = rows.range();
            txn.request_compaction(self.db, &from, &to);
        }
    }
}

/// Walks and samples.
impl Members {
    /// Walks over all [`Members::living`] members and their values, until `each` breaks.
    ///
    /// # Errors
    /// There are more or fewer members.
    pub fn for_each(
        &self,
        view: &mut View,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        let body = match &self.form {
            Form::Packed { body, .. } => body,
            Form::Rows { rows, .. } => {
                let len = self.living(view)?;
                return rows.for_each(view, len, each);
            }
        };
        if let Some(members) = self.in_numeric_order(body)? {
            for (_, member) in members {
                if each(member, &[]).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        for entry in entries(body, self.kind) {
            let entry = entry?;
            if each(entry.member, entry.value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Walks from a cursor (0: the beginning) over at least `count` members, among which those whose
    /// time is over count, too. Returns the next cursor, 0 at the end. A packed map is returned as a
    /// whole.
    pub fn scan(
        &self,
        view: &mut View,
        cursor: u64,
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> OpResult<u64> {
        if let Form::Rows { rows, .. } = &self.form {
            return rows.scan(view, cursor, count, each);
        }
        self.for_each(view, |member, value| {
            each(member, value);
            ControlFlow::Continue(())
        })?;
        Ok(0)
    }

    /// Copies members from `walk` on into `chunk` and advances `walk`.
    pub fn fill(&self, view: &mut View, walk: &mut Walk, chunk: &mut Chunk) -> OpResult<()> {
        if let Form::Rows { rows, .. } = &self.form {
            return rows.fill(view, walk, chunk);
        }
        chunk.clear();
        if !walk.is_done() {
            walk.finish();
            self.copy_up_to(view, chunk, usize::MAX)?;
        }
        Ok(())
    }

    /// Adds members to `chunk` until it holds more than `most` bytes; returns whether these are
    /// all.
    pub(super) fn copy_up_to(
        &self,
        view: &mut View,
        chunk: &mut Chunk,
        most: usize,
    ) -> OpResult<bool> {
        let engine = view.engine().clone();
        self.for_each(view, |member, _| {
            chunk.push(engine.hash.hash(member), member);
            match chunk.bytes() > most {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(chunk.bytes() <= most)
    }

    /// Calls `each` with a member drawn uniformly.
    pub fn sample(&self, view: &mut View, each: impl FnMut(&[u8], &[u8])) -> OpResult<()> {
        match &self.form {
            Form::Packed { body, len, .. } => sample_packed(body, self.kind, *len, each),
            Form::Rows { rows, .. } => {
                let size = self.size(view)?;
                rows.sample(view, size, each)
            }
        }
    }

    /// Calls `each` with `count` different members, or all if there are fewer. Every
    /// subset of that size is equally likely; the order is not random.
    pub fn sample_distinct(
        &self,
        view: &mut View,
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        if let Form::Rows { rows, .. } = &self.form {
            let size = self.size(view)?;
            return rows.sample_distinct(view, size, count, each);
        }
        let (mut left, mut wanted) = (self.len(), count.min(self.len()));
        self.for_each(view, |member, value| match select(&mut left, &mut wanted) {
            true => each(member, value),
            false => ControlFlow::Continue(()),
        })
    }

    /// Calls `each` with `count` members drawn independently, each uniformly.
    pub fn sample_repeats(
        &self,
        view: &mut View,
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        let body = match &self.form {
            Form::Packed { body, .. } => body,
            Form::Rows { rows, .. } => {
                let size = self.size(view)?;
                return rows.sample_repeats(view, size, count, each);
            }
        };
        let all = entries(body, self.kind).collect::<Result<SmallVec<[Entry<'_>; 16]>, _>>()?;
        for _ in 0..count {
            let Some(entry) = all.get(fastrand::usize(..all.len().max(1))) else {
                break;
            };
            if each(entry.member, entry.value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The members of a packed set in numeric order, if all are integers.
    #[allow(clippy::type_complexity)]
    fn in_numeric_order<'a>(
        &self,
        body: &'a [u8],
    ) -> OpResult<Option<SmallVec<[(i64, &'a [u8]); 32]>>> {
        if self.kind != ValueType::Set {
            return Ok(None);
        }
        let mut members = SmallVec::new();
        for member in packed::items(body) {
            let member = member?;
            let Some(number) = num::parse_i64(member) else {
                return Ok(None);
            };
            members.push((number, member));
        }
        members.sort_unstable_by_key(|(number, _)| *number);
        Ok(Some(members))
    }
}

/// Whether values of a type are maps of this module. All but hashes have no values here, so
/// values of another type would be lost.
fn is_map(kind: ValueType) -> bool {
    kind == ValueType::Hash || kind == ValueType::Set
}

fn sample_packed(
    body: &[u8],
    kind: ValueType,
    len: usize,
    mut each: impl FnMut(&[u8], &[u8]),
) -> OpResult<()> {
    if let Some(entry) = entries(body, kind).nth(fastrand::usize(..len.max(1))) {
        let entry = entry?;
        each(entry.member, entry.value);
    }
    Ok(())
}

/// The entries of a packed body.
fn entries(body: &[u8], kind: ValueType) -> impl Iterator<Item = Result<Entry<'_>, Corrupt>> {
    let mut items = packed::items(body);
    let mut count = 0;
    std::iter::from_fn(move || {
        let index = count;
        count += 1;
        let start = body.len() - items.rest().len();
        let member = items.next()?;
        let value_at = body.len() - items.rest().len();
        let value = match kind == ValueType::Hash {
            true => items.next().unwrap_or(Err(Corrupt("packed hash"))),
            false => Ok(&[][..]),
        };
        let end = body.len() - items.rest().len();
        Some(member.and_then(|member| {
            Ok(Entry {
                member,
                value: value?,
                index,
                range: start..end,
                value_at,
            })
        }))
    })
}

fn find<'a>(body: &'a [u8], kind: ValueType, member: &[u8]) -> Result<Option<Entry<'a>>, Corrupt> {
    for entry in entries(body, kind) {
        let entry = entry?;
        if entry.member == member {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// A packed body with times, made of one without.
fn with_times(body: &[u8], kind: ValueType, times: &[UnixMs]) -> Result<Value, Corrupt> {
    let mut timed = Value::new();
    for (entry, expire_ms) in entries(body, kind).zip(times) {
        let entry = entry?;
        let entry = timed::Entry {
            member: entry.member,
            value: entry.value,
            expire_ms: *expire_ms,
        };
        timed::put_entry(&mut timed, kind, true, entry);
    }
    Ok(timed)
}

fn put_bytes(body: &mut Value, bytes: &[u8]) {
    body.extend_from_slice(len_prefix(bytes.len(), &mut [0; 5]));
    body.extend_from_slice(bytes);
}

/// Resizes the bytes at `place` to `new` bytes of any content, and moves what follows.
fn resize_gap(body: &mut Value, place: Range<usize>, new: usize) {
    let (old_len, end) = (body.len(), place.start + new);
    let new_len = old_len - place.len() + new;
    if new_len > old_len {
        body.resize(new_len, 0);
    }
    if end != place.end {
        body.copy_within(place.end..old_len, end);
    }
    body.truncate(new_len);
}

#[cfg(test)]
mod tests;
