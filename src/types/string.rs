//! Strings: bytes, and so bitmaps and HyperLogLogs too.
//!
//! A value up to `string_inline_max` stands in its meta row. A longer one
//! stands in fragments of [`FRAGMENT_LEN`] bytes under an id, and the meta row
//! holds id and length:
//!
//! - a fragment that is missing reads as zeros, and so does what a short one
//!   lacks: a sparse bitmap takes the room of what is set in it;
//! - an operation on a part of a long value touches that part's fragments only;
//! - a value once in fragments stays in fragments until it is replaced.
//!
//! Nobody outside this module knows which of the two forms a value has.

pub mod definition;
use super::{OpError, OpResult};
use crate::base::num;
use crate::encoding::meta::{Counted, StringForm};
use crate::encoding::{CollectionId, Corrupt, Meta, ValueType, keys, tag};
use crate::storage::Direction;
use crate::storage::{DbIndex, Early, KeyMeta, Txn, Value, View};
use std::ops::{ControlFlow, Range};

/// Bytes of a full fragment. On disk: never change it.
pub const FRAGMENT_LEN: u64 = 1 << 12;

/// Up to how many fragments are read one by one; more are read by an iterator.
const POINT_READS_MAX: u64 = 4;

/// What becomes of a key's expiry when its value is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It stays.
    Keep,
    /// The key will not expire.
    Clear,
    /// The key expires at this Unix time in ms.
    At(u64),
}

/// A value in fragments.
#[derive(Debug, Clone, Copy)]
pub struct Long(Counted);

/// A string as [`visit`] found it.
#[derive(Debug)]
pub enum Visited<R> {
    /// In the meta row; what the closure made of the bytes.
    Inline(R),
    /// In fragments.
    Long(Long),
}

impl Long {
    /// The value of a key whose value stands in rows.
    pub(super) fn of(found: &KeyMeta) -> OpResult<Long> {
        Ok(Long(Counted::decode(&found.body)?))
    }

    /// Bytes of the value.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        self.0.count
    }

    /// Appends the bytes of `range`, which must lie within the value, to `out`.
    ///
    /// # Errors
    /// [`OpError::TooLong`] if memory cannot hold them: a sparse value may be
    /// larger than the machine, if `proto-max-bulk-len` was.
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
        self.each(view, db, range.clone(), |offset, bytes| {
            out.resize(at(offset), 0);
            out.extend_from_slice(bytes);
            ControlFlow::Continue(())
        })?;
        out.resize(at(range.end.max(range.start)), 0);
        Ok(())
    }

    /// Calls `each` with offset and bytes of what is stored within `range`, in order.
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

    /// Overwrites what is stored from `offset` on; the caller sets the length.
    fn write(&self, txn: &mut Txn, db: DbIndex, offset: u64, bytes: &[u8]) -> OpResult<()> {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % FRAGMENT_LEN;
            let room = (FRAGMENT_LEN - within) as usize;
            let (part, later) = rest.split_at(room.min(rest.len()));
            self.write_part(txn, db, at / FRAGMENT_LEN, within as usize, part)?;
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
        index: u64,
        within: usize,
        part: &[u8],
    ) -> OpResult<()> {
        let key = fragment_key(self.0.id, index);
        let start = index * FRAGMENT_LEN;
        let behind_end = start + within as u64 + part.len() as u64 >= self.0.count;
        if start >= self.0.count || (within == 0 && behind_end) {
            // Nothing of the old value has to be kept.
            return put_new_fragment(txn, db, &key, within, part);
        }
        let stored = txn.row(db, &key)?.map(|row| row.to_vec());
        let Some(mut fragment) = stored else {
            return put_new_fragment(txn, db, &key, within, part);
        };
        overwrite(&mut fragment, within, part);
        txn.put_row(db, &key, &fragment)?;
        Ok(())
    }
}

fn fragment_key(id: CollectionId, index: u64) -> keys::RowKey {
    // Lengths are bounded far below 2^63.
    keys::indexed(tag::FRAGMENT, id, index as i64)
}

/// Writes a fragment of which nothing else is set; zeros are left out.
fn put_new_fragment(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    within: usize,
    part: &[u8],
) -> OpResult<()> {
    let used = part
        .iter()
        .rposition(|b| *b != 0)
        .map_or(0, |last| last + 1);
    let part = part.get(..used).unwrap_or(part);
    if part.is_empty() {
        // All that stood here is overwritten by zeros.
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

/// Writes `part` over `bytes` from `at` on; the gap before it becomes zeros.
fn overwrite(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    let end = at + part.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(window) = bytes.get_mut(at..end) {
        window.copy_from_slice(part);
    }
}

/// Calls `look` with the value if it stands in the meta row, without a copy;
/// hands out a handle if it is long.
pub fn visit<R>(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    look: impl FnOnce(&[u8]) -> R,
) -> OpResult<Option<Visited<R>>> {
    let found = view.peek(db, key, |found| {
        if found.meta.kind != ValueType::String {
            Err(OpError::WrongType)
        } else if found.meta.rows {
            Ok(Visited::Long(Long(Counted::decode(found.body)?)))
        } else {
            Ok(Visited::Inline(look(found.body)))
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

/// Calls `look` with the value: without a copy if it is in the meta row.
pub fn with_value<R>(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    look: impl FnOnce(&[u8]) -> R,
) -> OpResult<Option<R>> {
    with_range(view, db, key, |len| 0..len, look)
}

/// A copy of the value.
pub fn get(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Vec<u8>>> {
    with_value(view, db, key, <[u8]>::to_vec)
}

/// Calls `look` with the part of the value that `pick` chooses when told the
/// length; what lies outside the value is cut off.
pub fn with_range<R>(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    pick: impl FnOnce(u64) -> Range<u64>,
    look: impl FnOnce(&[u8]) -> R,
) -> OpResult<Option<R>> {
    // One of the two forms takes the closures.
    let mut closures = Some((pick, look));
    let found = visit(view, db, key, |bytes| {
        closures.take().map(|(pick, look)| {
            let range = clip(pick(bytes.len() as u64), bytes.len() as u64);
            look(&bytes[range.start as usize..range.end as usize])
        })
    })?;
    match (found, closures) {
        (Some(Visited::Inline(result)), _) => Ok(result),
        (Some(Visited::Long(long)), Some((pick, look))) => {
            let mut bytes = Vec::new();
            let range = clip(pick(long.len()), long.len());
            long.read_into(view, db, range, &mut bytes)?;
            Ok(Some(look(&bytes)))
        }
        _ => Ok(None),
    }
}

/// The bytes from `start` to `end`, both counted as GETRANGE does; empty if
/// there is no such key.
pub fn get_range(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    start: i64,
    end: i64,
) -> OpResult<Vec<u8>> {
    let pick = |len| resolve_range(start, end, len);
    Ok(with_range(view, db, key, pick, <[u8]>::to_vec)?.unwrap_or_default())
}

/// What GETRANGE's indices mean in a value of `len` bytes: negative ones count
/// from the end, both ends belong to the range, and what lies outside is cut off.
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

/// Calls `each` with offset and bytes of what is stored of the part that `pick`
/// chooses when told the length, in order, until it breaks. What is not handed
/// out reads as zeros. Returns the length of the whole value.
pub fn for_each_fragment(
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

/// The head of a key of any type, as much of it as [`set_over`] needs.
pub fn head(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<KeyMeta>> {
    Ok(view.peek(db, key, |found| KeyMeta {
        meta: found.meta,
        // The id of rows that will have to go; a value in the row goes with it.
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
    let long = Long(found.counted()?);
    let mut value = Vec::new();
    long.read_into(view, db, 0..long.len().min(max_len), &mut value)?;
    Ok(Some((found, value)))
}

/// Gives a key this value, whatever it held before.
pub fn set(txn: &mut Txn, db: DbIndex, key: &[u8], value: &[u8], expiry: Expiry) -> OpResult<()> {
    let old = head(txn, db, key)?;
    set_over(txn, db, key, old.as_ref(), value, StringForm::Given, expiry)
}

/// Like [`set`], for who knows what the key was (see [`head`]).
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
    if value.len() <= txn.engine().config.string_inline_max_bytes {
        txn.replace_key(db, key, old, new, value)?;
        return Ok(());
    }
    new.rows = true;
    let long = new_long(txn, db, value)?;
    let body = Counted {
        count: value.len() as u64,
        ..long.0
    };
    txn.replace_key(db, key, old, new, &body.encode())?;
    Ok(())
}

/// Adds to a whole number; a key that does not exist counts as 0. Returns the sum.
pub fn increment(txn: &mut Txn, db: DbIndex, key: &[u8], by: i64) -> OpResult<i64> {
    let found = txn.peek(db, key, |found| {
        if found.meta.kind != ValueType::String {
            return Err(OpError::WrongType);
        }
        // A long value is no number.
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
        Expiry::Keep => old.map_or(0, |o| o.meta.expire_ms),
        Expiry::Clear => 0,
        Expiry::At(expire_ms) => expire_ms,
    };
    new
}

/// A value under construction, fragment by fragment; what none covers is zeros.
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

/// Where the fragments of a value under construction go.
#[derive(Debug)]
enum Rows {
    /// Into the pending batch, so many bytes until now.
    Pending(usize),
    /// Ahead of it: they are many.
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

    /// Sets the `index`-th [`FRAGMENT_LEN`] bytes, at most once each; what is
    /// behind the value's end is cut off.
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

    /// Gives the value to a key, whatever that held before.
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
                let body = Counted {
                    id,
                    count: self.len,
                };
                txn.replace_key(db, key, old.as_ref(), new, &body.encode())?;
                Ok(())
            }
        }
    }
}

/// Writes the fragments of a value under a new id; its length is still 0. Those of a very
/// long one go ahead of the pending batch, which would hold another copy of them.
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
    Ok(Long(Counted { id, count: 0 }))
}

/// Appends to a value, or makes it; returns its new length.
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

/// Writes `bytes` over a value from `offset` on, filling a gap with zeros;
/// returns the value's new length. No bytes: nothing changes.
///
/// # Errors
/// [`OpError::TooLong`] if they would end behind `max_len`, even if the value is
/// longer than that already.
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
        Some(old) if old.meta.rows => old.counted()?.count,
        Some(old) => old.body.len() as u64,
    })
}

/// Changes the bytes of `window` in place: `change` gets them, with zeros where
/// the value has none, and the value grows to hold them. Nothing is written if
/// nothing changes. Returns what `change` does.
///
/// # Errors
/// [`OpError::TooLong`] if the value would get longer than `max_len`.
pub fn update_range<R>(
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

/// Like [`update_range`], but the value grows to `grow_to` bytes only: what
/// `change` does to bytes behind that and behind the old value is lost.
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
            Long(o.counted()?).read_into(txn, db, present, &mut before)?;
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
pub fn update_byte<R>(
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
        Some(o) if o.meta.rows => Long(o.counted()?),
        Some(o) => {
            let Long(counted) = new_long(txn, db, &o.body)?;
            Long(Counted {
                count: old_len,
                ..counted
            })
        }
        None => new_long(txn, db, b"")?,
    };
    long.write(txn, db, offset, bytes)?;
    if !new.rows || new_len != old_len || bytes.is_empty() {
        new.rows = true;
        let body = Counted {
            count: new_len,
            ..long.0
        };
        txn.put_key(db, key, old_meta.as_ref(), new, &body.encode())?;
    }
    Ok(new_len)
}

#[cfg(test)]
mod tests;
