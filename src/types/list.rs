//! Lists: load one, change it, save it.
//!
//! ```text
//! packed  the items in the meta row, head first
//! rows    06 ‖ id ‖ index → item, for all indices in head..tail of the meta row
//! ```
//!
//! A small list is packed; one that exceeds the configured bounds moves to rows and
//! stays there. In rows, a push or a pop writes the rows of its items and the meta row,
//! whatever the length; inserting and removing in the middle moves the smaller side.
//!
//! All changes made through one [`List`] are one write of the meta row, in
//! [`List::save`]; a list that is empty then is deleted. Only one `List` of a key may be
//! in use at a time. Positions count from the head.

pub(super) mod definition;
mod packed;
mod rows;
#[cfg(test)]
mod tests;

use self::packed::Packed;
use self::rows::Rows;
use super::{OpError, OpResult};
use crate::base::time::UnixMs;
use crate::encoding::meta::ListSpan;
use crate::encoding::{CollectionId, Meta, ValueType};
use crate::storage::Direction;
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, KeyMeta, Txn, Value, View};
use std::ops::{ControlFlow, Range};

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The left one, where position 0 is.
    Head,
    /// The right one.
    Tail,
}

impl End {
    /// The event of a push at this end.
    pub fn pushed(self) -> &'static str {
        match self {
            End::Head => "lpush",
            End::Tail => "rpush",
        }
    }

    /// The event of a pop at this end.
    pub fn popped(self) -> &'static str {
        match self {
            End::Head => "lpop",
            End::Tail => "rpop",
        }
    }
}

/// Called with position and bytes of each item, until it breaks.
pub trait Visit: FnMut(u64, &[u8]) -> ControlFlow<()> {}

impl<F: FnMut(u64, &[u8]) -> ControlFlow<()>> Visit for F {}

/// A list that is being read or changed. See the module.
#[derive(Debug)]
#[must_use = "changes are lost unless the list is saved"]
pub struct List<'k> {
    db: DbIndex,
    key: &'k [u8],
    /// The key as it was before; without the body of a packed list.
    old: Option<KeyMeta>,
    /// Whether `old` is another value, which this list replaces.
    replaces: bool,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Packed(Packed),
    Rows(Rows),
}

impl<'k> List<'k> {
    /// The list under a key, if there is one.
    pub fn load(view: &mut View, db: DbIndex, key: &'k [u8]) -> OpResult<Option<List<'k>>> {
        let found = view.peek(db, key, |found| match found.meta {
            meta if meta.kind != ValueType::List => Err(OpError::WrongType),
            meta if meta.rows => {
                let span = ListSpan::decode(found.body)?;
                let body = Value::from_slice(found.body);
                Ok((KeyMeta { meta, body }, Form::Rows(Rows::stored(db, span))))
            }
            meta => {
                let packed = Packed::new(found.body.to_vec())?;
                let body = Value::new();
                Ok((KeyMeta { meta, body }, Form::Packed(packed)))
            }
        })?;
        let Some((old, form)) = found.transpose()? else {
            return Ok(None);
        };
        Ok(Some(List {
            db,
            key,
            old: Some(old),
            replaces: false,
            form,
        }))
    }

    /// The list under a key, or an empty one.
    pub fn load_or_new(view: &mut View, db: DbIndex, key: &'k [u8]) -> OpResult<List<'k>> {
        let found = List::load(view, db, key)?;
        Ok(found.unwrap_or(List {
            db,
            key,
            old: None,
            replaces: false,
            form: Form::Packed(Packed::default()),
        }))
    }

    /// An empty list that replaces the value of the key, with its expiry. If it is empty
    /// when saved, the key is deleted.
    pub fn replacing(view: &mut View, db: DbIndex, key: &'k [u8]) -> OpResult<List<'k>> {
        let old = view.lookup(db, key)?;
        let changed = old.is_some();
        Ok(List {
            db,
            key,
            old,
            replaces: true,
            form: Form::Packed(Packed {
                changed,
                ..Packed::default()
            }),
        })
    }

    /// The number of items.
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Packed(packed) => packed.len,
            Form::Rows(rows) => rows.span.len(),
        }
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The collection id of the rows, if the items stand in rows.
    pub fn collection(&self) -> Option<CollectionId> {
        match &self.form {
            Form::Packed(_) => None,
            Form::Rows(rows) => Some(rows.span.id),
        }
    }

    /// Whether the items are packed into the meta row.
    #[cfg(test)]
    fn is_packed(&self) -> bool {
        matches!(self.form, Form::Packed(_))
    }

    /// The position of an index; a negative index counts from the tail. `None` outside
    /// the list.
    pub fn position(&self, index: i64) -> Option<u64> {
        let len = self.len();
        let position = match index {
            0.. => index.unsigned_abs(),
            _ => len.checked_sub(index.unsigned_abs())?,
        };
        (position < len).then_some(position)
    }

    /// The positions from index `start` to index `stop`, both inclusive; negative ones
    /// count from the tail, and both are clamped to the list.
    pub fn positions(&self, start: i64, stop: i64) -> Range<u64> {
        let len = self.len();
        let clamp = |index: i64| match index {
            0.. => index.unsigned_abs().min(len),
            _ => len.saturating_sub(index.unsigned_abs()),
        };
        let start = clamp(start);
        let end = match stop {
            0.. => clamp(stop.saturating_add(1)),
            _ if stop.unsigned_abs() > len => 0,
            _ => clamp(stop) + 1,
        };
        start..end.max(start)
    }

    /// Calls `each` with position and bytes of the items in `range`, in the given order,
    /// until it breaks.
    pub fn visit(
        &self,
        view: &mut View,
        range: Range<u64>,
        order: Direction,
        each: impl Visit,
    ) -> OpResult<()> {
        match &self.form {
            Form::Packed(packed) => Ok(packed.visit(range, order, each)?),
            Form::Rows(rows) => rows.visit(view, range, order, each),
        }
    }

    /// Calls `each` with all items in `range`, head first.
    pub fn read(
        &self,
        view: &mut View,
        range: Range<u64>,
        mut each: impl FnMut(&[u8]),
    ) -> OpResult<()> {
        self.visit(view, range, Direction::Forward, |_, item: &[u8]| {
            each(item);
            ControlFlow::Continue(())
        })
    }

    /// Pushes items at an end, one after the other: the last one becomes outermost.
    pub fn push(&mut self, txn: &mut Txn, end: End, items: &[&[u8]]) -> OpResult<()> {
        if items.is_empty() {
            return Ok(());
        }
        match &mut self.form {
            Form::Rows(rows) => rows.push(txn, end, items),
            Form::Packed(packed) if packed.has_room(txn, items) => {
                packed.push(end, items);
                Ok(())
            }
            Form::Packed(packed) => {
                let mut rows = Rows::promoted(txn, self.db, packed)?;
                rows.push(txn, end, items)?;
                self.form = Form::Rows(rows);
                Ok(())
            }
        }
    }

    /// Removes up to `count` items from an end and calls `each` with them,
    /// outermost first.
    pub fn pop(
        &mut self,
        view: &mut View,
        end: End,
        count: u64,
        mut each: impl FnMut(&[u8]),
    ) -> OpResult<()> {
        let len = self.len();
        let count = count.min(len);
        if count == 0 {
            return Ok(());
        }
        let (gone, rest, order) = match end {
            End::Head => (0..count, count..len, Direction::Forward),
            End::Tail => (len - count..len, 0..len - count, Direction::Backward),
        };
        self.visit(view, gone, order, |_, item: &[u8]| {
            each(item);
            ControlFlow::Continue(())
        })?;
        self.keep(rest)
    }

    /// Removes all items but those in `range`, which lies within the list.
    pub fn keep(&mut self, range: Range<u64>) -> OpResult<()> {
        let len = self.len();
        match &mut self.form {
            _ if range == (0..len) => {}
            Form::Packed(packed) => packed.keep(range)?,
            Form::Rows(rows) => rows.keep(range),
        }
        Ok(())
    }

    /// Replaces the item at a position from [`List::position`].
    pub fn set(&mut self, txn: &mut Txn, at: u64, item: &[u8]) -> OpResult<()> {
        match &mut self.form {
            Form::Packed(packed) => Ok(packed.replace(at..at.saturating_add(1), item)?),
            Form::Rows(rows) => rows.set(txn, at, item),
        }
    }

    /// Inserts an item next to the first one that equals `pivot`, on the side of `side`.
    /// Returns whether the pivot exists.
    pub fn insert(
        &mut self,
        txn: &mut Txn,
        side: End,
        pivot: &[u8],
        item: &[u8],
    ) -> OpResult<bool> {
        let mut found = None;
        self.visit(txn, 0..self.len(), Direction::Forward, |at, here: &[u8]| {
            if here != pivot {
                return ControlFlow::Continue(());
            }
            found = Some(at);
            ControlFlow::Break(())
        })?;
        let at = match (found, side) {
            (None, _) => return Ok(false),
            (Some(at), End::Head) => at,
            (Some(at), End::Tail) => at + 1,
        };
        match &mut self.form {
            Form::Packed(packed) => packed.replace(at..at, item)?,
            Form::Rows(rows) => rows.insert(txn, at, item)?,
        }
        Ok(true)
    }

    /// Removes up to `limit` items that equal `item`, beginning at the end `from`.
    /// Returns the number removed.
    pub fn remove(&mut self, txn: &mut Txn, from: End, limit: u64, item: &[u8]) -> OpResult<u64> {
        let order = match from {
            End::Head => Direction::Forward,
            End::Tail => Direction::Backward,
        };
        let mut holes = Vec::new();
        self.visit(txn, 0..self.len(), order, |at, here: &[u8]| {
            if here == item {
                holes.push(at);
            }
            match (holes.len() as u64) < limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        let removed = holes.len() as u64;
        if removed == 0 || removed == self.len() {
            self.keep(0..self.len() - removed)?;
            return Ok(removed);
        }
        if from == End::Tail {
            holes.reverse();
        }
        match &mut self.form {
            Form::Packed(packed) => packed.remove(&holes)?,
            Form::Rows(rows) => rows.remove(txn, &holes)?,
        }
        Ok(removed)
    }

    /// Writes the changes. An empty list is deleted with its key.
    pub fn save(mut self, txn: &mut Txn) -> OpResult<()> {
        if let Form::Packed(packed) = &self.form {
            if !packed.changed {
                return Ok(());
            }
            if !packed.has_room(txn, &[]) {
                self.form = Form::Rows(Rows::promoted(txn, self.db, packed)?);
            }
        }
        if self.is_empty() {
            return self.vanish(txn);
        }
        match &mut self.form {
            Form::Packed(packed) => {
                let body = std::mem::take(&mut packed.body);
                self.put_meta(txn, false, &body)
            }
            Form::Rows(rows) => {
                rows.sweep(txn)?;
                match rows.moved() {
                    true => {
                        let body = rows.span.encode();
                        self.put_meta(txn, true, &body)
                    }
                    false => Ok(()),
                }
            }
        }
    }

    fn put_meta(&self, txn: &mut Txn, rows: bool, body: &[u8]) -> OpResult<()> {
        let mut meta = Meta::new(ValueType::List);
        meta.rows = rows;
        if self.replaces {
            txn.replace_key(self.db, self.key, self.old.as_ref(), meta, body)?;
        } else {
            let old = self.old.as_ref().map(|old| &old.meta);
            meta.expire_ms = old.map_or(UnixMs::NONE, |old| old.expire_ms);
            txn.put_key(self.db, self.key, old, meta, body)?;
        }
        Ok(())
    }

    /// Deletes the key of an empty list. Many rows are left to the reclaim queue, few
    /// are deleted here.
    fn vanish(mut self, txn: &mut Txn) -> OpResult<()> {
        let Some(old) = &self.old else {
            return match &mut self.form {
                Form::Packed(_) => Ok(()),
                Form::Rows(rows) => rows.sweep(txn),
            };
        };
        match &mut self.form {
            Form::Rows(rows) if rows.stored.is_some() && rows.is_large() => {
                txn.remove_key(self.db, self.key, old)?;
            }
            Form::Rows(rows) if rows.stored.is_some() => {
                rows.sweep(txn)?;
                txn.unlink_key(self.db, self.key, old)?;
            }
            Form::Rows(rows) => {
                rows.sweep(txn)?;
                txn.remove_key(self.db, self.key, old)?;
            }
            Form::Packed(_) => txn.remove_key(self.db, self.key, old)?,
        }
        Ok(())
    }
}

/// Removes and returns one item from an end; `None` for a missing key.
#[cfg(test)]
fn pop_one(txn: &mut Txn, db: DbIndex, key: &[u8], end: End) -> OpResult<Option<Vec<u8>>> {
    let Some(mut list) = List::load(txn, db, key)? else {
        return Ok(None);
    };
    let mut popped = None;
    list.pop(txn, end, 1, |item| popped = Some(item.to_vec()))?;
    list.save(txn)?;
    Ok(popped)
}

/// Moves one item from an end of a list to an end of another, or of the same list.
/// Returns the item; `None` if the source does not exist.
pub fn move_one(
    txn: &mut Txn,
    db: DbIndex,
    (source, from): (&[u8], End),
    (target, to): (&[u8], End),
) -> OpResult<Option<Vec<u8>>> {
    let Some(mut taken) = List::load(txn, db, source)? else {
        return Ok(None);
    };
    let mut given = match source == target {
        true => None,
        false => Some(List::load_or_new(txn, db, target)?),
    };
    let mut moved = Vec::new();
    taken.pop(txn, from, 1, |item| moved.extend_from_slice(item))?;
    given
        .as_mut()
        .unwrap_or(&mut taken)
        .push(txn, to, &[&moved])?;
    if let Some(given) = given {
        given.save(txn)?;
    }
    txn.event(Class::LIST, to.pushed(), db, target);
    txn.event(Class::LIST, from.popped(), db, source);
    taken.save(txn)?;
    Ok(Some(moved))
}

/// How several items are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The most items that are moved; at least 1.
    pub count: u64,
    /// Whether nothing is moved if there are fewer.
    pub exactly: bool,
    /// Whether the items are pushed one by one in the order in which they are taken, which
    /// turns their order round at the same end; otherwise their order is kept.
    pub one_by_one: bool,
}

/// Moves several items from one end of a list to one end of another (or the same); returns
/// them in the order in which they stand there, head first. `None`: nothing is moved, as there
/// are too few.
pub fn move_many(
    txn: &mut Txn,
    db: DbIndex,
    (source, from): (&[u8], End),
    (target, to): (&[u8], End),
    moved: Moved,
) -> OpResult<Option<Vec<Vec<u8>>>> {
    let Some(mut taken) = List::load(txn, db, source)? else {
        return Ok(None);
    };
    if moved.exactly && taken.len() < moved.count {
        return Ok(None);
    }
    let mut given = match source == target {
        true => None,
        false => Some(List::load_or_new(txn, db, target)?),
    };
    let mut items = Vec::new();
    taken.pop(txn, from, moved.count, |item| items.push(item.to_vec()))?;
    let turned = match moved.one_by_one {
        true => to == End::Head,
        false => from == End::Tail,
    };
    if turned {
        items.reverse();
    }
    let mut pushed: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
    if to == End::Head {
        pushed.reverse();
    }
    given
        .as_mut()
        .unwrap_or(&mut taken)
        .push(txn, to, &pushed)?;
    if let Some(given) = given {
        given.save(txn)?;
    }
    txn.event(Class::LIST, to.pushed(), db, target);
    txn.event(Class::LIST, from.popped(), db, source);
    taken.save(txn)?;
    Ok(Some(items))
}

/// Copies of all items, head first; empty for a missing key.
pub fn items(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    if let Some(list) = List::load(view, db, key)? {
        list.read(view, 0..list.len(), |item| all.push(item.to_vec()))?;
    }
    Ok(all)
}
