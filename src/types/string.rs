//! Strings, including bitmaps and HyperLogLogs.
//!
//! A value of up to `string_inline_max` bytes is in its meta row. A longer one has
//! fragments of [`FRAGMENT_LEN`] bytes under a collection id, and the meta row has id
//! and length:
//!
//! - a missing fragment reads as zeros, and so does the rest of a short one: a sparse
//!   bitmap takes only the space of its set parts;
//! - an operation on a part of a long value accesses only the fragments of that part;
//! - a value in fragments keeps this form until it is replaced.
//!
//! A value of at least `value_log_min_bytes` that is set as a whole stands in the value log: see
//! [`base`].
//!
//! Other modules do not know which form a value has.

mod base;
pub mod definition;
use super::{OpError, OpResult};
use crate::base::num;
use crate::base::time::UnixMs;
use crate::encoding::meta::{Base, LongString, StringForm};
use crate::encoding::{CollectionId, Corrupt, Meta, ValueType, keys, tag};
use crate::storage::Direction;
use crate::storage::{DbIndex, Early, KeyMeta, Txn, Value, View};
use std::ops::{ControlFlow, Range};

/// Bytes of a full fragment. Part of the disk format: never change it.
pub(super) const FRAGMENT_LEN: u64 = 1 << 12;

/// Most fragments that are read one by one; an iterator reads more.
const POINT_READS_MAX: u64 = 4;

/// What happens to a key's expiry when its value is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The expiry is kept.
    Keep,
    /// The key will not expire.
    Clear,
    /// The key expires at this Unix time in ms.
    At(UnixMs),
}

/// A value in rows.
#[derive(Debug, Clone, Copy)]
pub struct Long(LongString);

/// A string as returned by [`visit`].
#[derive(Debug)]
pub enum Visited<R> {
    /// In the meta row: the result of the closure.
    Inline(R),
    /// In rows.
    Long(Long),
}

impl Long {
    /// The long string of a key, whose value must be in rows.
    pub(super) fn of(found: &KeyMeta) -> OpResult<Long> {
        Ok(Long(LongString::decode(&found.body)?))
    }

    /// Bytes of the value.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether all of its bytes are in the value log.
    pub(super) fn is_in_value_log(&self) -> bool {
        self.0.base == Base::Whole
    }

    /// Appends the bytes of `range`, which must lie within the value, to `out`.
    ///
    /// # Errors
    /// [`OpError::TooLong`] if memory cannot hold them: a sparse value may be larger
    /// than the memory of the machine.
    pub fn read_into(
        &self,
        view: &mut View,
        db: DbIndex,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> OpResult<()> {
        let base = out.len();
        let at = |offset: u64| base + (offset - range.start) as usize;
        let wanted = range.end.saturating_sub(range.start);
        view.will_make(wanted)?;
        out.try_reserve(wanted as usize)
            .map_err(|_| OpError::TooLong)?;
        if self.0.base == Base::Whole {
            let len = view.read_base(db, self.0.id, range, out)?;
            return match len == self.0.len {
                true => Ok(()),
                false => Err(Corrupt("length of a base").into()),
            };
        }
        self.each(view, db, range.clone(), |offset, bytes| {
            out.resize(at(offset), 0);
            out.extend_from_slice(bytes);
            ControlFlow::Continue(())
        })?;
        out.resize(at(range.end.max(range.start)), 0);
        Ok(())
    }

    /// Calls `each` with offset and bytes of the stored parts of `range`, in order.
    pub(super) fn each(
        &self,
        view: &mut View,
        db: DbIndex,
        range: Range<u64>,
        mut each: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        if range.is_empty() {
            return Ok(());
        }
        let mut range = range;
        if self.0.base != Base::None {
            let mut part = |offset, bytes: &[u8]| Ok(each(offset, bytes));
            match base::each_part(view, db, self.0, range.clone(), &mut part)? {
                ControlFlow::Break(()) => return Ok(()),
                ControlFlow::Continue(end) if end >= range.end => return Ok(()),
                // Behind the base are fragments alone.
                ControlFlow::Continue(end) => range.start = end,
            }
        }
        let indices = range.start / FRAGMENT_LEN..(range.end - 1) / FRAGMENT_LEN + 1;
        let mut lend = |index: u64, stored: &[u8]| -> OpResult<ControlFlow<()>> {
            if stored.len() as u64 > FRAGMENT_LEN {
                return Err(Corrupt("fragment").into());
            }
            let start = index * FRAGMENT_LEN;
            let from = range.start.saturating_sub(start) as usize;
            let to = (range.end - start).min(stored.len() as u64) as usize;
            Ok(match stored.get(from..to) {
                Some(bytes) if !bytes.is_empty() => each(start + from as u64, bytes),
                _ => ControlFlow::Continue(()),
            })
        };
        if indices.end - indices.start <= POINT_READS_MAX {
            for index in indices {
                if let Some(row) = view.row(db, &fragment_key(self.0.id, index))?
                    && lend(index, &row)?.is_break()
                {
                    break;
                }
            }
            return Ok(());
        }
        let from = fragment_key(self.0.id, indices.start);
        let to = fragment_key(self.0.id, indices.end);
        let mut rows = view.scan(db, &from, &to, Direction::Forward)?;
        while let Some((row_key, stored)) = rows.next()? {
            let index = keys::split_indexed(row_key)?;
            let index = u64::try_from(index).map_err(|_| Corrupt("fragment index"))?;
            if lend(index, stored)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Overwrites the bytes from `offset` on; the caller sets the length.
    fn write(&self, txn: &mut Txn, db: DbIndex, offset: u64, bytes: &[u8]) -> OpResult<()> {
        let base_len = match self.0.base {
            Base::None => 0,
            _ => txn.read_base(db, self.0.id, 0..0, &mut Vec::new())?,
        };
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % FRAGMENT_LEN;
            let room = (FRAGMENT_LEN - within) as usize;
            let (part, later) = rest.split_at(room.min(rest.len()));
            self.write_part(txn, db, base_len, at / FRAGMENT_LEN, within as usize, part)?;
            at += part.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Overwrites a part of one fragment.
    fn write_part(
        &self,
        txn: &mut Txn,
        db: DbIndex,
        base_len: u64,
        index: u64,
        within: usize,
        part: &[u8],
    ) -> OpResult<()> {
        let key = fragment_key(self.0.id, index);
        let start = index * FRAGMENT_LEN;
        let is_based = start < base_len;
        let behind_end = start + within as u64 + part.len() as u64 >= self.0.len;
        if start >= self.0.len || (within == 0 && behind_end) {
            // The fragment keeps nothing of the old value.
            return put_new_fragment(txn, db, &key, within, part, is_based);
        }
        let mut stored = txn.row(db, &key)?.map(|row| row.to_vec());
        if stored.is_none() && is_based {
            let mut fragment = Vec::new();
            txn.read_base(db, self.0.id, start..start + FRAGMENT_LEN, &mut fragment)?;
            stored = Some(fragment);
        }
        let Some(mut fragment) = stored else {
            return put_new_fragment(txn, db, &key, within, part, is_based);
        };
        overwrite(&mut fragment, within, part);
        txn.put_row(db, &key, &fragment)?;
        Ok(())
    }
}

fn fragment_key(id: CollectionId, index: u64) -> keys::RowKey {
    // Lengths are far below 2^63.
    keys::indexed(tag::FRAGMENT, id, index as i64)
}

/// Writes a fragment with only this part set; zeros are left out. `is_based`: the string has a base
/// that the fragment replaces there.
fn put_new_fragment(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    within: usize,
    part: &[u8],
    is_based: bool,
) -> OpResult<()> {
    let used = part
        .iter()
        .rposition(|b| *b != 0)
        .map_or(0, |last| last + 1);
    let part = part.get(..used).unwrap_or(part);
    if part.is_empty() && is_based {
        txn.put_row(db, key, &[])?;
    } else if part.is_empty() {
        // The part overwrites the whole fragment with zeros.
        if txn.row(db, key)?.is_some() {
            txn.delete_row(db, key)?;
        }
    } else if within == 0 {
        txn.put_row(db, key, part)?;
    } else {
        let mut fragment = vec![0; within];
        fragment.extend_from_slice(part);
        txn.put_row(db, key, &fragment)?;
    }
    Ok(())
}

/// Writes `part` over `bytes` from `at` on; a gap before it is filled with zeros.
fn overwrite(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    let end = at + part.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(window) = bytes.get_mut(at..end) {
        window.copy_from_slice(part);
    }
}

/// Calls `read` with the value, without a copy, if it is in the meta row; otherwise
/// returns a handle.
pub fn visit<R>(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    read: impl FnOnce(&[u8]) -> R,
) -> OpResult<Option<Visited<R>>> {
    let found = view.peek(db, key, |found| {
        if found.meta.kind != ValueType::String {
            Err(OpError::WrongType)
        } else if found.meta.rows {
            Ok(Visited::Long(Long(LongString::decode(found.body)?)))
        } else {
            Ok(Visited::Inline(read(found.body)))
        }
    })?;
    found.transpose()
}

/// Length of the value in bytes.
pub fn len(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<u64>> {
    Ok(
        visit(view, db, key, |bytes| bytes.len() as u64)?.map(|found| match found {
            Visited::Inline(len) => len,
            Visited::Long(long) => long.len(),
        }),
    )
}

/// A copy of the value.
pub fn get(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Vec<u8>>> {
    Ok(match visit(view, db, key, <[u8]>::to_vec)? {
        Some(Visited::Inline(value)) => Some(value),
        Some(Visited::Long(long)) => {
            let mut value = Vec::new();
            view.will_hold(long.len())?;
            long.read_into(view, db, 0..long.len(), &mut value)?;
            Some(value)
        }
        None => None,
    })
}

/// Calls `read` with a part of the value: `pick` gets the length and returns the range,
/// which is clamped to the value.
pub fn with_range<R>(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    pick: impl FnOnce(u64) -> Range<u64>,
    read: impl FnOnce(&[u8]) -> R,
) -> OpResult<Option<R>> {
    // Only one of the two forms uses the closures.
    let mut closures = Some((pick, read));
    let found = visit(view, db, key, |bytes| {
        closures.take().map(|(pick, read)| {
            let range = clip(pick(bytes.len() as u64), bytes.len() as u64);
            read(&bytes[range.start as usize..range.end as usize])
        })
    })?;
    match (found, closures) {
        (Some(Visited::Inline(result)), _) => Ok(result),
        (Some(Visited::Long(long)), Some((pick, read))) => {
            let mut bytes = Vec::new();
            let range = clip(pick(long.len()), long.len());
            if range.end - range.start > POINT_READS_MAX * FRAGMENT_LEN {
                view.will_hold(range.end - range.start)?;
            }
            long.read_into(view, db, range, &mut bytes)?;
            Ok(Some(read(&bytes)))
        }
        _ => Ok(None),
    }
}

/// The bytes from `start` to `end`, with the indices of GETRANGE; empty for a missing
/// key.
#[cfg(test)]
fn get_range(view: &mut View, db: DbIndex, key: &[u8], start: i64, end: i64) -> OpResult<Vec<u8>> {
    let pick = |len| resolve_range(start, end, len);
    Ok(with_range(view, db, key, pick, <[u8]>::to_vec)?.unwrap_or_default())
}

/// The range of GETRANGE's indices in a value of `len` bytes: both ends are inclusive,
/// negative ones count from the end, and both are clamped to the value.
pub fn resolve_range(start: i64, end: i64, len: u64) -> Range<u64> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let resolve = |index: i64| match u64::try_from(index) {
        Ok(index) => index,
        Err(_) => len.saturating_sub(index.unsigned_abs()),
    };
    let end = resolve(end).saturating_add(1);
    clip(resolve(start)..end, len)
}

fn clip(range: Range<u64>, len: u64) -> Range<u64> {
    let end = range.end.min(len);
    range.start.min(end)..end
}

/// Calls `each` with offset and bytes of the stored fragments of a part, in order, until
/// it breaks; `pick` gets the length and returns the range. Parts that are not passed
/// read as zeros. Returns the length of the whole value.
pub(super) fn for_each_fragment(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    pick: impl FnOnce(u64) -> Range<u64>,
    mut each: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
) -> OpResult<Option<u64>> {
    let mut pick = Some(pick);
    let found = visit(view, db, key, |bytes| {
        let len = bytes.len() as u64;
        let range = clip(pick.take().map_or(0..len, |pick| pick(len)), len);
        if !range.is_empty() {
            let part = &bytes[range.start as usize..range.end as usize];
            let _ = each(range.start, part);
        }
        len
    })?;
    match found {
        None => Ok(None),
        Some(Visited::Inline(len)) => Ok(Some(len)),
        Some(Visited::Long(long)) => {
            let len = long.len();
            let range = clip(pick.take().map_or(0..len, |pick| pick(len)), len);
            long.each(view, db, range, each)?;
            Ok(Some(len))
        }
    }
}

/// The head of a key of any type, as far as [`set_over`] needs it.
pub fn head(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<KeyMeta>> {
    Ok(view.peek(db, key, |found| KeyMeta {
        meta: found.meta,
        // The body holds the id of rows to be reclaimed; a value in the meta row is not
        // needed.
        body: match found.meta.rows {
            true => Value::from_slice(found.body),
            false => Value::new(),
        },
    })?)
}

/// A copy of the first `max_len` bytes of the value, with the head that
/// [`set_over`] needs.
pub fn load(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    max_len: u64,
) -> OpResult<Option<(KeyMeta, Vec<u8>)>> {
    let Some(found) = super::lookup(view, db, key, ValueType::String)? else {
        return Ok(None);
    };
    if !found.meta.rows {
        let head = KeyMeta {
            meta: found.meta,
            body: Value::new(),
        };
        let mut value = found.body.into_vec();
        value.truncate(usize::try_from(max_len).unwrap_or(usize::MAX));
        return Ok(Some((head, value)));
    }
    let long = Long::of(&found)?;
    let mut value = Vec::new();
    long.read_into(view, db, 0..long.len().min(max_len), &mut value)?;
    Ok(Some((found, value)))
}

/// Sets the value of a key, whatever its old value.
pub fn set(txn: &mut Txn, db: DbIndex, key: &[u8], value: &[u8], expiry: Expiry) -> OpResult<()> {
    let old = head(txn, db, key)?;
    set_over(txn, db, key, old.as_ref(), value, StringForm::Given, expiry)
}

/// Like [`set`], for a caller that has looked up the key (see [`head`]).
pub fn set_over(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    old: Option<&KeyMeta>,
    value: &[u8],
    form: StringForm,
    expiry: Expiry,
) -> OpResult<()> {
    let mut new = new_meta(old, form, expiry);
    if txn.logs_value(value) {
        new.rows = true;
        return set_base(txn, db, key, old, new, value);
    }
    if value.len() <= txn.engine().config.string_inline_max_bytes {
        txn.replace_key(db, key, old, new, value)?;
        return Ok(());
    }
    new.rows = true;
    let long = new_long(txn, db, value)?;
    let body = LongString {
        len: value.len() as u64,
        ..long.0
    };
    txn.replace_key(db, key, old, new, &body.encode())?;
    Ok(())
}

/// Sets a value whose bytes belong into the value log.
fn set_base(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    old: Option<&KeyMeta>,
    new: Meta,
    value: &[u8],
) -> OpResult<()> {
    let of_string = |old: &&KeyMeta| old.meta.kind == ValueType::String && old.meta.rows;
    let before = old.filter(of_string).map(Long::of).transpose()?;
    // Without fragments the one row is written anew, and nothing is left to be reclaimed.
    let same = before.filter(|Long(long)| long.base == Base::Whole);
    let id = same.map_or_else(|| txn.new_id(), |Long(long)| long.id);
    txn.put_base(db, id, value)?;
    let body = LongString {
        id,
        len: value.len() as u64,
        base: Base::Whole,
    };
    match same {
        Some(_) => txn.put_key(db, key, old.map(|old| &old.meta), new, &body.encode())?,
        None => txn.replace_key(db, key, old, new, &body.encode())?,
    }
    Ok(())
}

/// Copies the base of a long string: each has bytes of its own in the value log.
pub(super) fn copy_base(
    txn: &mut Txn,
    (from_db, from): (DbIndex, CollectionId),
    (to_db, to): (DbIndex, CollectionId),
) -> OpResult<()> {
    let mut value = Vec::new();
    let len = txn.read_base(from_db, from, 0..0, &mut value)?;
    txn.will_hold(len)?;
    txn.read_base(from_db, from, 0..len, &mut value)?;
    Ok(txn.put_base(to_db, to, &value)?)
}

/// Adds to a whole number; a key that does not exist counts as 0. Returns the sum.
pub fn increment(txn: &mut Txn, db: DbIndex, key: &[u8], by: i64) -> OpResult<i64> {
    let found = txn.peek(db, key, |found| {
        if found.meta.kind != ValueType::String {
            return Err(OpError::WrongType);
        }
        // A long value is not a number.
        let number = (!found.meta.rows).then_some(found.body);
        let number = number.and_then(num::parse_i64).ok_or(OpError::NotInteger)?;
        Ok((found.meta, number))
    })?;
    let (old, number) = match found.transpose()? {
        Some((meta, number)) => (Some(meta), number),
        None => (None, 0),
    };
    let sum = number.checked_add(by).ok_or(OpError::Overflow)?;
    let new = Meta {
        form: StringForm::Given,
        ..old.unwrap_or(Meta::new(ValueType::String))
    };
    let mut text = itoa::Buffer::new();
    txn.put_key(db, key, old.as_ref(), new, text.format(sum).as_bytes())?;
    Ok(sum)
}

fn new_meta(old: Option<&KeyMeta>, form: StringForm, expiry: Expiry) -> Meta {
    let mut new = Meta {
        form,
        ..Meta::new(ValueType::String)
    };
    new.expire_ms = match expiry {
        Expiry::Keep => old.map_or(UnixMs::NONE, |o| o.meta.expire_ms),
        Expiry::Clear => UnixMs::NONE,
        Expiry::At(expire_ms) => expire_ms,
    };
    new
}

/// A value that is being built from fragments; missing ones are zeros.
#[derive(Debug)]
pub struct NewValue {
    len: u64,
    form: NewForm,
}

#[derive(Debug)]
enum NewForm {
    Inline(Vec<u8>),
    Long(CollectionId, Rows),
}

/// Where the fragments of a value that is being built are written.
#[derive(Debug)]
enum Rows {
    /// To the pending batch; their bytes so far.
    Pending(usize),
    /// To RocksDB before the commit, since they are many.
    Ahead(Early),
}

impl NewValue {
    /// A value of `len` zeros.
    pub fn new(txn: &Txn, len: u64) -> NewValue {
        let form = match len <= txn.engine().config.string_inline_max_bytes as u64 {
            true => NewForm::Inline(vec![0; len as usize]),
            false => NewForm::Long(txn.new_id(), Rows::Pending(0)),
        };
        NewValue { len, form }
    }

    /// Sets the `index`-th [`FRAGMENT_LEN`] bytes, at most once each; bytes behind the
    /// value's end are dropped.
    pub fn put(&mut self, txn: &mut Txn, db: DbIndex, index: u64, fragment: &[u8]) -> OpResult<()> {
        let start = index.saturating_mul(FRAGMENT_LEN);
        let room = self.len.saturating_sub(start).min(FRAGMENT_LEN) as usize;
        let fragment = &fragment[..fragment.len().min(room)];
        match &mut self.form {
            NewForm::Inline(_) if fragment.is_empty() => {}
            NewForm::Inline(bytes) => overwrite(bytes, start as usize, fragment),
            NewForm::Long(id, rows) if fragment.iter().any(|b| *b != 0) => {
                if let Rows::Pending(bytes) = rows
                    && *bytes >= txn.engine().config.ahead_bytes
                    && let about = self.len.div_ceil(FRAGMENT_LEN)
                    && let Some(early) = txn.begin_early(db, ValueType::String, *id, about)?
                {
                    *rows = Rows::Ahead(early);
                }
                let key = fragment_key(*id, index);
                match rows {
                    Rows::Pending(bytes) => {
                        *bytes += fragment.len();
                        txn.put_row(db, &key, fragment)?;
                    }
                    Rows::Ahead(early) => txn.put_early(early, &key, fragment)?,
                }
            }
            NewForm::Long(..) => {}
        }
        Ok(())
    }

    /// Sets the value of a key, whatever its old value.
    pub fn finish(self, txn: &mut Txn, db: DbIndex, key: &[u8], expiry: Expiry) -> OpResult<()> {
        match self.form {
            NewForm::Inline(bytes) => {
                let old = head(txn, db, key)?;
                set_over(txn, db, key, old.as_ref(), &bytes, StringForm::Raw, expiry)
            }
            NewForm::Long(id, rows) => {
                if let Rows::Ahead(early) = rows {
                    txn.finish_early(early)?;
                }
                let old = head(txn, db, key)?;
                let mut new = new_meta(old.as_ref(), StringForm::Raw, expiry);
                new.rows = true;
                let body = LongString {
                    id,
                    len: self.len,
                    base: Base::None,
                };
                txn.replace_key(db, key, old.as_ref(), new, &body.encode())?;
                Ok(())
            }
        }
    }
}

/// Writes the fragments of a value under a new id; the length is still 0. Those of a
/// very long value are written before the commit, since the pending batch would hold
/// another copy of them.
fn new_long(txn: &mut Txn, db: DbIndex, value: &[u8]) -> OpResult<Long> {
    let id = txn.new_id();
    let fragments = value.chunks(FRAGMENT_LEN as usize);
    let mut early = match value.len() >= txn.engine().config.ahead_bytes {
        true => txn.begin_early(db, ValueType::String, id, fragments.len() as u64)?,
        false => None,
    };
    for (index, part) in (0..).zip(fragments) {
        if part.iter().all(|b| *b == 0) {
            continue;
        }
        let key = fragment_key(id, index);
        match &mut early {
            Some(early) => txn.put_early(early, &key, part)?,
            None => txn.put_row(db, &key, part)?,
        }
    }
    if let Some(early) = early {
        txn.finish_early(early)?;
    }
    Ok(Long(LongString {
        id,
        len: 0,
        base: Base::None,
    }))
}

/// Appends to a value, or creates it; returns its new length.
///
/// # Errors
/// [`OpError::TooLong`] if it would get longer than `max_len`.
pub fn append(txn: &mut Txn, db: DbIndex, key: &[u8], bytes: &[u8], max_len: u64) -> OpResult<u64> {
    let old = super::lookup(txn, db, key, ValueType::String)?;
    let offset = length_of(old.as_ref())?;
    let form = match old {
        None => StringForm::Given,
        Some(_) => StringForm::Raw,
    };
    write_at(txn, db, key, old, offset, bytes, form, max_len)
}

/// Overwrites a value from `offset` on, and fills a gap with zeros; returns the new
/// length. Without bytes nothing changes.
///
/// # Errors
/// [`OpError::TooLong`] if the bytes would end behind `max_len`, even if the value is
/// already longer.
pub fn set_range(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    offset: u64,
    bytes: &[u8],
    max_len: u64,
) -> OpResult<u64> {
    let old = super::lookup(txn, db, key, ValueType::String)?;
    if bytes.is_empty() {
        return length_of(old.as_ref());
    }
    if offset.saturating_add(bytes.len() as u64) > max_len {
        return Err(OpError::TooLong);
    }
    write_at(txn, db, key, old, offset, bytes, StringForm::Raw, max_len)
}

fn length_of(old: Option<&KeyMeta>) -> OpResult<u64> {
    Ok(match old {
        None => 0,
        Some(old) if old.meta.rows => Long::of(old)?.len(),
        Some(old) => old.body.len() as u64,
    })
}

/// Changes the bytes of `window` in place: `change` gets them, with zeros for missing
/// ones, and the value grows if needed. Nothing is written if nothing changes. Returns
/// the result of `change`.
///
/// # Errors
/// [`OpError::TooLong`] if the value would get longer than `max_len`.
fn update_range<R>(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    window: Range<u64>,
    max_len: u64,
    change: impl FnOnce(&mut [u8]) -> R,
) -> OpResult<R> {
    let grow_to = window.end;
    update_window(txn, db, key, window, grow_to, max_len, change)
}

/// Like [`update_range`], but the value grows to `grow_to` bytes only: changes behind
/// that and behind the old value are dropped.
pub fn update_window<R>(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    window: Range<u64>,
    grow_to: u64,
    max_len: u64,
    change: impl FnOnce(&mut [u8]) -> R,
) -> OpResult<R> {
    let old = super::lookup(txn, db, key, ValueType::String)?;
    let old_len = length_of(old.as_ref())?;
    let new_len = grow_to.max(old_len);
    if new_len > max_len.max(old_len) {
        return Err(OpError::TooLong);
    }
    let mut before = Vec::new();
    let present = clip(window.clone(), old_len);
    match &old {
        Some(o) if o.meta.rows => {
            Long::of(o)?.read_into(txn, db, present, &mut before)?;
        }
        Some(o) => before.extend_from_slice(&o.body[present.start as usize..present.end as usize]),
        None => {}
    }
    before.resize(window.end.saturating_sub(window.start) as usize, 0);
    let mut after = before.clone();
    let result = change(&mut after);
    let kept = clip(window, new_len);
    after.truncate((kept.end - kept.start) as usize);
    if new_len > old_len || !before.starts_with(&after) {
        let at = kept.start;
        write_at(txn, db, key, old, at, &after, StringForm::Raw, max_len)?;
    }
    Ok(result)
}

/// [`update_range`] for one byte.
pub(super) fn update_byte<R>(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    offset: u64,
    max_len: u64,
    change: impl FnOnce(&mut u8) -> R,
) -> OpResult<R> {
    let window = offset..offset.saturating_add(1);
    update_range(txn, db, key, window, max_len, |bytes| change(&mut bytes[0]))
}

#[allow(clippy::too_many_arguments)] // one place of one value, and what it becomes
fn write_at(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    old: Option<KeyMeta>,
    offset: u64,
    bytes: &[u8],
    form: StringForm,
    max_len: u64,
) -> OpResult<u64> {
    let old_len = length_of(old.as_ref())?;
    let end = offset.saturating_add(bytes.len() as u64);
    if end > max_len.max(old_len) {
        return Err(OpError::TooLong);
    }
    let new_len = end.max(old_len);
    let old_meta = old.as_ref().map(|o| o.meta);
    let mut new = Meta {
        form,
        ..old_meta.unwrap_or(Meta::new(ValueType::String))
    };
    if !new.rows && new_len <= txn.engine().config.string_inline_max_bytes as u64 {
        let mut body = old.map(|o| o.body).unwrap_or_default();
        body.reserve((new_len - old_len) as usize);
        body.resize(new_len as usize, 0);
        body[offset as usize..end as usize].copy_from_slice(bytes);
        txn.put_key(db, key, old_meta.as_ref(), new, &body)?;
        return Ok(new_len);
    }
    let long = match &old {
        Some(o) if o.meta.rows => Long::of(o)?,
        Some(o) => {
            let Long(long) = new_long(txn, db, &o.body)?;
            Long(LongString {
                len: old_len,
                ..long
            })
        }
        None => new_long(txn, db, b"")?,
    };
    long.write(txn, db, offset, bytes)?;
    let is_patched = long.0.base == Base::Whole && !bytes.is_empty();
    if !new.rows || new_len != old_len || bytes.is_empty() || is_patched {
        new.rows = true;
        let base = match is_patched {
            true => Base::Patched,
            false => long.0.base,
        };
        let body = LongString {
            len: new_len,
            base,
            ..long.0
        };
        txn.put_key(db, key, old_meta.as_ref(), new, &body.encode())?;
    }
    Ok(new_len)
}

#[cfg(test)]
mod tests;
