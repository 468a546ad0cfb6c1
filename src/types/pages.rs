//! Arrays of bytes in pages.
//!
//! An array of up to [`INLINE_MAX`] bytes stands in the meta row of its key. A longer one has a row
//! for each page of [`PAGE_LEN`] bytes, under a collection id. A page without a row reads as zeros,
//! and so does the rest of a short one: an array takes the space of what was written, whatever its
//! length is. An access reads and writes the pages that it touches.
//!
//! The body of the meta row is `length (8) ‖ head ‖ bytes` or, with pages, `id (8) ‖ length (8) ‖
//! head`; the head is what the type of the value knows of it.

use super::OpResult;
use super::source::Source;
use crate::encoding::reader::Reader;
use crate::encoding::{CollectionId, Corrupt, Meta, PAGE_LEN, ValueType, keys};
use crate::storage::{DbIndex, Txn, View};
use smallvec::SmallVec;
use std::ops::{ControlFlow, Range};

/// Bytes of the longest array in a meta row.
const INLINE_MAX: u64 = 1 << 10;

/// Bytes of the longest array. The limit is for those who read it as a whole: a file of Redis has
/// all zeros of it.
pub(super) const ARRAY_MAX: u64 = 1 << 34;

/// Where the rows of an array of bytes are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages {
    /// The tag of the rows.
    pub(super) tag: u8,
    /// The collection.
    pub(super) id: CollectionId,
    /// Bytes of a full page.
    pub(super) page_len: u64,
}

/// Called with each piece of an array, until it breaks.
pub(super) type EachPiece<'p> = &'p mut dyn FnMut(&[u8]) -> OpResult<ControlFlow<()>>;

/// Calls `each` with all bytes of a range, in order and in pieces of at most a page.
pub(super) fn each_piece(
    source: &mut dyn Source,
    db: DbIndex,
    pages: Pages,
    range: Range<u64>,
    each: EachPiece<'_>,
) -> OpResult<ControlFlow<()>> {
    let Pages { tag, id, page_len } = pages;
    let (mut at, end) = (range.start, range.end);
    if at >= end {
        return Ok(ControlFlow::Continue(()));
    }
    let from = page_key(tag, id, at / page_len);
    let to = page_key(tag, id, (end - 1) / page_len + 1);
    let stored = source.each_row(db, &from, &to, &mut |row_key, row| {
        let index = u64::try_from(keys::split_indexed(row_key)?);
        let index = index.map_err(|_| Corrupt("page index"))?;
        if row.len() as u64 > page_len {
            return Err(Corrupt("page").into());
        }
        let start = index.saturating_mul(page_len);
        let zeros = zeros_until(&mut at, start.min(end), each)?;
        if zeros.is_break() {
            return Ok(zeros);
        }
        let skipped = at.saturating_sub(start) as usize;
        let room = usize::try_from(end - at).unwrap_or(usize::MAX);
        let piece = row.get(skipped..).unwrap_or_default();
        let piece = &piece[..piece.len().min(room)];
        at += piece.len() as u64;
        each(piece)
    })?;
    match stored.is_break() {
        true => Ok(stored),
        false => zeros_until(&mut at, end, each),
    }
}

/// Passes zeros for bytes that are not stored.
fn zeros_until(at: &mut u64, end: u64, each: EachPiece<'_>) -> OpResult<ControlFlow<()>> {
    const ZEROS: &[u8] = &[0; 1 << 12];
    while *at < end {
        let step = (end - *at).min(ZEROS.len() as u64);
        let next = each(&ZEROS[..step as usize])?;
        if next.is_break() {
            return Ok(next);
        }
        *at += step;
    }
    Ok(ControlFlow::Continue(()))
}

/// The key of a page. Indices are far below 2^63.
fn page_key(tag: u8, id: CollectionId, index: u64) -> keys::RowKey {
    keys::indexed(tag, id, index as i64)
}

/// An array of bytes in a value.
#[derive(Debug, Clone)]
pub(super) struct Array {
    tag: u8,
    len: u64,
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    /// The bytes, which end with the last one that is not zero.
    Inline(Vec<u8>),
    Rows(CollectionId),
}

impl Array {
    /// An array of `len` zeros, whose pages get this tag.
    pub(super) fn new(txn: &Txn, tag: u8, len: u64) -> Array {
        let form = match len <= INLINE_MAX {
            true => Form::Inline(Vec::new()),
            false => Form::Rows(txn.new_id()),
        };
        Array { tag, len, form }
    }

    /// Likewise, with pages even if it is short: for a value that has other rows, too.
    pub(super) fn in_rows(txn: &Txn, tag: u8, len: u64) -> Array {
        let form = Form::Rows(txn.new_id());
        Array { tag, len, form }
    }

    /// Reads the body of a meta row; `head` takes its own part.
    pub(super) fn decode<H>(
        tag: u8,
        meta: Meta,
        body: &[u8],
        head: impl FnOnce(&mut Reader<'_>) -> Result<H, Corrupt>,
    ) -> Result<(H, Array), Corrupt> {
        let mut r = Reader::new(body, "array");
        let id = match meta.rows {
            true => Some(CollectionId(r.u64()?)),
            false => None,
        };
        let len = r.u64()?;
        let head = head(&mut r)?;
        let form = match id {
            Some(id) => Form::Rows(id),
            None => Form::Inline(r.rest().to_vec()),
        };
        Ok((head, Array { tag, len, form }))
    }

    /// The body of the meta row.
    pub(super) fn encode(&self, head: &[u8]) -> Vec<u8> {
        let (id, bytes): (Option<CollectionId>, &[u8]) = match &self.form {
            Form::Rows(id) => (Some(*id), &[]),
            Form::Inline(bytes) => (None, bytes),
        };
        let mut body = Vec::with_capacity(16 + head.len() + bytes.len());
        body.extend(id.into_iter().flat_map(|id| id.0.to_be_bytes()));
        body.extend_from_slice(&self.len.to_be_bytes());
        body.extend_from_slice(head);
        body.extend_from_slice(bytes);
        body
    }

    /// Writes the meta row of a key, of which `old` was the one before.
    pub(super) fn put(
        &self,
        txn: &mut Txn,
        db: DbIndex,
        key: &[u8],
        old: Option<&Meta>,
        kind: ValueType,
        head: &[u8],
    ) -> OpResult<()> {
        let mut new = old.copied().unwrap_or(Meta::new(kind));
        new.rows = self.collection().is_some();
        txn.put_key(db, key, old, new, &self.encode(head))?;
        Ok(())
    }

    /// The collection id of the pages, if there are any.
    pub(super) fn collection(&self) -> Option<CollectionId> {
        match self.form {
            Form::Rows(id) => Some(id),
            Form::Inline(_) => None,
        }
    }

    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Appends zeros until the array has `len` bytes.
    pub(super) fn grow(&mut self, txn: &mut Txn, db: DbIndex, len: u64) -> OpResult<()> {
        self.len = self.len.max(len);
        if let Form::Inline(bytes) = &mut self.form
            && self.len > INLINE_MAX
        {
            let bytes = std::mem::take(bytes);
            self.form = Form::Rows(txn.new_id());
            self.write(txn, db, 0, &bytes)?;
        }
        Ok(())
    }

    /// Cuts the array off behind `len` bytes; all that follow must be zeros.
    pub(super) fn cut(&mut self, len: u64) {
        self.len = self.len.min(len);
    }

    /// Copies the bytes from `at` on to `out`.
    pub(super) fn read(&self, view: &View, db: DbIndex, at: u64, out: &mut [u8]) -> OpResult<()> {
        let id = match &self.form {
            Form::Inline(bytes) => {
                copy(bytes, at as usize, out);
                return Ok(());
            }
            Form::Rows(id) => *id,
        };
        let mut at = at;
        let mut rest = out;
        while !rest.is_empty() {
            let within = at % PAGE_LEN;
            let room = rest.len().min((PAGE_LEN - within) as usize);
            let (part, later) = rest.split_at_mut(room);
            let key = page_key(self.tag, id, at / PAGE_LEN);
            let found = view.look_at(db, &key, |page| copy(page, within as usize, part))?;
            if found.is_none() {
                part.fill(0);
            }
            at += room as u64;
            rest = later;
        }
        Ok(())
    }

    /// One byte.
    pub(super) fn byte(&self, view: &View, db: DbIndex, at: u64) -> OpResult<u8> {
        let mut byte = [0];
        self.read(view, db, at, &mut byte)?;
        let [byte] = byte;
        Ok(byte)
    }

    /// The range of bytes around `at` that is stored in one row.
    pub(super) fn piece_at(&self, at: u64) -> Range<u64> {
        match self.form {
            Form::Inline(_) => 0..self.len,
            Form::Rows(_) => {
                let start = at - at % PAGE_LEN;
                start..start + PAGE_LEN
            }
        }
    }

    /// Calls `look` with the bytes of a piece, which begins at `start`; without the zeros at its end.
    pub(super) fn look_at_piece<R>(
        &self,
        view: &View,
        db: DbIndex,
        start: u64,
        look: impl FnOnce(&[u8]) -> R,
    ) -> OpResult<R> {
        let id = match &self.form {
            Form::Inline(bytes) => return Ok(look(bytes)),
            Form::Rows(id) => *id,
        };
        let mut look = Some(look);
        let key = page_key(self.tag, id, start / PAGE_LEN);
        let found = view.look_at(db, &key, |page| look.take().map(|look| look(page)))?;
        match (found.flatten(), look) {
            (Some(found), _) => Ok(found),
            (None, Some(look)) => Ok(look(&[])),
            (None, None) => Err(Corrupt("page").into()),
        }
    }

    /// Sets bits, each given as a byte, which must lie within the array, and a mask; returns whether one
    /// of them was not set. A page is written once, however many of them it has.
    pub(super) fn set_bits(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        bits: impl Iterator<Item = (u64, u8)>,
    ) -> OpResult<bool> {
        let id = match &mut self.form {
            Form::Inline(stored) => {
                let bits = bits.map(|(at, mask)| (at as usize, mask));
                let set = |is_new, bit| set_bit(stored, bit) || is_new;
                return Ok(bits.fold(false, set));
            }
            Form::Rows(id) => *id,
        };
        let mut bits: SmallVec<[(u64, u8); 16]> = bits.collect();
        bits.sort_unstable_by_key(|(at, _)| *at);
        let mut is_new = false;
        for part in bits.chunk_by(|(a, _), (b, _)| a / PAGE_LEN == b / PAGE_LEN) {
            let within = || {
                let part = part.iter();
                part.map(|(at, mask)| ((at % PAGE_LEN) as usize, *mask))
            };
            let key = page_key(self.tag, id, part[0].0 / PAGE_LEN);
            let page = txn.look_at(db, &key, |page| match within().all(|bit| has(page, bit)) {
                true => None,
                false => Some(page.to_vec()),
            })?;
            let Some(mut page) = page.unwrap_or(Some(Vec::new())) else {
                continue;
            };
            for bit in within() {
                set_bit(&mut page, bit);
            }
            txn.put_row(db, &key, &page)?;
            is_new = true;
        }
        Ok(is_new)
    }

    /// Overwrites the bytes from `at` on; all of them must lie within the array.
    pub(super) fn write(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        at: u64,
        bytes: &[u8],
    ) -> OpResult<()> {
        let id = match &mut self.form {
            Form::Inline(stored) => {
                overwrite(stored, at as usize, bytes);
                return Ok(());
            }
            Form::Rows(id) => *id,
        };
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let within = (at % PAGE_LEN) as usize;
            let room = PAGE_LEN as usize - within;
            let (part, later) = rest.split_at(room.min(rest.len()));
            let key = page_key(self.tag, id, at / PAGE_LEN);
            let is_whole = part.len() as u64 == PAGE_LEN && part.iter().any(|byte| *byte != 0);
            let stored = match is_whole {
                true => None,
                false => txn.look_at(db, &key, <[u8]>::to_vec)?,
            };
            let existed = stored.is_some();
            let mut page = stored.unwrap_or_default();
            overwrite(&mut page, within, part);
            match page.is_empty() {
                false => txn.put_row(db, &key, &page)?,
                true if existed => txn.delete_row(db, &key)?,
                true => {}
            }
            at += part.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Calls `each` with the bytes of a range, in pieces, until it breaks.
    pub(super) fn each(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        range: Range<u64>,
        each: EachPiece<'_>,
    ) -> OpResult<ControlFlow<()>> {
        match &self.form {
            Form::Rows(id) => {
                let pages = Pages {
                    tag: self.tag,
                    id: *id,
                    page_len: PAGE_LEN,
                };
                each_piece(source, db, pages, range, each)
            }
            Form::Inline(bytes) => {
                let mut piece = vec![0; range.end.saturating_sub(range.start) as usize];
                copy(bytes, range.start as usize, &mut piece);
                each(&piece)
            }
        }
    }

    /// The bytes of a range.
    pub(super) fn collect(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        range: Range<u64>,
    ) -> OpResult<Vec<u8>> {
        source.will_make(range.end.saturating_sub(range.start))?;
        let mut whole = Vec::new();
        self.each(source, db, range, &mut |piece| {
            whole.extend_from_slice(piece);
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        Ok(whole)
    }
}

/// Whether a bit is set, given as a byte and a mask.
fn has(bytes: &[u8], (at, mask): (usize, u8)) -> bool {
    bytes.get(at).is_some_and(|byte| byte & mask == mask)
}

/// Sets a bit, and returns whether it was not set.
fn set_bit(bytes: &mut Vec<u8>, (at, mask): (usize, u8)) -> bool {
    if bytes.len() <= at {
        bytes.resize(at + 1, 0);
    }
    let is_new = bytes[at] & mask != mask;
    bytes[at] |= mask;
    is_new
}

/// Copies what `bytes` has from `at` on, and zeros behind its end.
fn copy(bytes: &[u8], at: usize, out: &mut [u8]) {
    let stored = bytes.get(at..).unwrap_or_default();
    let stored = &stored[..stored.len().min(out.len())];
    let (head, tail) = out.split_at_mut(stored.len());
    head.copy_from_slice(stored);
    tail.fill(0);
}

/// Writes `part` over `bytes` from `at` on, and cuts the zeros at their end.
fn overwrite(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    let end = at + part.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(part);
    let used = bytes.iter().rposition(|byte| *byte != 0);
    bytes.truncate(used.map_or(0, |last| last + 1));
}

#[cfg(test)]
mod tests;
