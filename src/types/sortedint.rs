//! Sorted ints: unsigned integers of 64 bits, each at most once, in their order; the type
//! `sortedint` of Kvrocks.
//!
//! A [`SortedInt`] is a loaded value with its reads; an [`Edit`] is one that is being changed. Only
//! this module knows whether the integers are packed into the meta row or stand in rows.
//!
//! Invariants: the count is that of the integers (I5); a value without integers does not exist.

pub(super) mod definition;

use super::{OpResult, lookup};
use crate::encoding::sortedint::{SortedIntBody, pack, unpack};
use crate::encoding::{CollectionId, Corrupt, Meta, ValueType, keys};
use crate::storage::{DbIndex, Direction, KeyMeta, Txn, Value, View};
use std::ops::{ControlFlow, Deref, RangeInclusive};

/// Called with each integer, until it breaks.
pub type Each<'e> = &'e mut dyn FnMut(u64) -> ControlFlow<()>;

/// A loaded value.
#[derive(Debug, Clone)]
pub struct SortedInt {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    /// Ascending.
    Packed(Vec<u64>),
    Rows(Rows),
}

/// Integers in rows, as the meta row describes them.
#[derive(Debug, Clone)]
struct Rows {
    db: DbIndex,
    id: CollectionId,
    count: u64,
    /// All integers lie between these two, both included.
    first: u64,
    last: u64,
    /// Whether an end was removed: it must be found again before the body is written.
    stale: bool,
}

impl Form {
    fn decode(db: DbIndex, meta: &Meta, body: &[u8]) -> OpResult<Form> {
        if !meta.rows {
            return Ok(Form::Packed(unpack(body)?));
        }
        let SortedIntBody {
            id,
            count,
            first,
            last,
        } = SortedIntBody::decode(body)?;
        Ok(Form::Rows(Rows {
            db,
            id,
            count,
            first,
            last,
            stale: false,
        }))
    }
}

impl SortedInt {
    /// The value under a key, if there is one.
    pub fn open(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<SortedInt>> {
        let found = lookup(view, db, key, ValueType::SortedInt)?;
        let decode = |found: KeyMeta| Form::decode(db, &found.meta, &found.body);
        let form = found.map(decode).transpose()?;
        Ok(form.map(|form| SortedInt { form }))
    }

    /// The number of integers.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Packed(numbers) => numbers.len() as u64,
            Form::Rows(rows) => rows.count,
        }
    }

    /// Whether the integer is there.
    pub fn contains(&self, view: &View, n: u64) -> OpResult<bool> {
        match &self.form {
            Form::Packed(numbers) => Ok(numbers.binary_search(&n).is_ok()),
            Form::Rows(rows) => rows.contains(view, n),
        }
    }

    /// Calls `each` with the integers in a range, from its start or from its end on, until it
    /// breaks.
    pub fn walk(
        &self,
        view: &mut View,
        range: RangeInclusive<u64>,
        direction: Direction,
        each: Each<'_>,
    ) -> OpResult<()> {
        let numbers = match &self.form {
            Form::Packed(numbers) => numbers,
            Form::Rows(rows) => return rows.walk(view, range, direction, each),
        };
        let mut within = numbers.iter().filter(|n| range.contains(n));
        let _ = match direction {
            Direction::Forward => within.try_for_each(|n| each(*n)),
            Direction::Backward => within.rev().try_for_each(|n| each(*n)),
        };
        Ok(())
    }
}

impl Rows {
    fn contains(&self, view: &View, n: u64) -> OpResult<bool> {
        if self.count == 0 || n < self.first || n > self.last {
            return Ok(false);
        }
        Ok(view.row(self.db, &keys::sorted_int(self.id, n))?.is_some())
    }

    fn walk(
        &self,
        view: &mut View,
        range: RangeInclusive<u64>,
        direction: Direction,
        each: Each<'_>,
    ) -> OpResult<()> {
        let (first, last) = (
            *range.start().max(&self.first),
            *range.end().min(&self.last),
        );
        if self.count == 0 || first > last {
            return Ok(());
        }
        let from = keys::sorted_int(self.id, first);
        let mut to = keys::sorted_int(self.id, last);
        to.push(0);
        let mut scan = view.scan(self.db, &from, &to, direction)?;
        while let Some((row_key, _)) = scan.next()? {
            if each(keys::split_sorted_int(row_key)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn insert(&mut self, txn: &mut Txn, n: u64) -> OpResult<bool> {
        if self.contains(txn, n)? {
            return Ok(false);
        }
        txn.put_row(self.db, &keys::sorted_int(self.id, n), &[])?;
        match self.count {
            0 => (self.first, self.last, self.stale) = (n, n, false),
            _ => (self.first, self.last) = (self.first.min(n), self.last.max(n)),
        }
        self.count += 1;
        Ok(true)
    }

    fn remove(&mut self, txn: &mut Txn, n: u64) -> OpResult<bool> {
        if !self.contains(txn, n)? {
            return Ok(false);
        }
        txn.delete_row(self.db, &keys::sorted_int(self.id, n))?;
        self.count = self.count.saturating_sub(1);
        self.stale |= n == self.first || n == self.last;
        Ok(true)
    }

    /// Finds removed ends again.
    fn find_ends(&mut self, txn: &mut Txn) -> OpResult<()> {
        if !self.stale {
            return Ok(());
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut end = None;
            self.walk(txn, 0..=u64::MAX, direction, &mut |n| {
                end = Some(n);
                ControlFlow::Break(())
            })?;
            let end = end.ok_or(Corrupt("sorted ints"))?;
            match direction {
                Direction::Forward => self.first = end,
                Direction::Backward => self.last = end,
            }
        }
        self.stale = false;
        Ok(())
    }

    fn body(&self) -> SortedIntBody {
        SortedIntBody {
            id: self.id,
            count: self.count,
            first: self.first,
            last: self.last,
        }
    }
}

/// A value that is being changed. Changes take effect with [`Edit::save`].
pub struct Edit<'k> {
    db: DbIndex,
    key: &'k [u8],
    old: Option<Meta>,
    value: SortedInt,
    dirty: bool,
}

impl Deref for Edit<'_> {
    type Target = SortedInt;

    fn deref(&self) -> &SortedInt {
        &self.value
    }
}

impl<'k> Edit<'k> {
    /// The value under a key, or a new one.
    pub fn open(txn: &mut Txn, db: DbIndex, key: &'k [u8]) -> OpResult<Edit<'k>> {
        let found = lookup(txn, db, key, ValueType::SortedInt)?;
        let form = match &found {
            Some(found) => Form::decode(db, &found.meta, &found.body)?,
            None => Form::Packed(Vec::new()),
        };
        Ok(Edit {
            db,
            key,
            old: found.map(|found| found.meta),
            value: SortedInt { form },
            dirty: false,
        })
    }

    /// Adds an integer; returns whether it is new.
    pub fn insert(&mut self, txn: &mut Txn, n: u64) -> OpResult<bool> {
        let is_new = match &mut self.value.form {
            Form::Rows(rows) => rows.insert(txn, n)?,
            Form::Packed(numbers) => match numbers.binary_search(&n) {
                Ok(_) => false,
                Err(at) => {
                    numbers.insert(at, n);
                    self.unpack_if_large(txn)?;
                    true
                }
            },
        };
        self.dirty |= is_new;
        Ok(is_new)
    }

    /// Removes an integer; returns whether it was there.
    pub fn remove(&mut self, txn: &mut Txn, n: u64) -> OpResult<bool> {
        let is_removed = match &mut self.value.form {
            Form::Rows(rows) => rows.remove(txn, n)?,
            Form::Packed(numbers) => match numbers.binary_search(&n) {
                Ok(at) => {
                    numbers.remove(at);
                    true
                }
                Err(_) => false,
            },
        };
        self.dirty |= is_removed;
        Ok(is_removed)
    }

    /// Moves the integers to rows of their own if they are too many for the meta row.
    fn unpack_if_large(&mut self, txn: &mut Txn) -> OpResult<()> {
        let Form::Packed(numbers) = &self.value.form else {
            return Ok(());
        };
        let config = &txn.engine().config;
        let bytes = numbers.len() * size_of::<u64>();
        if numbers.len() <= config.packed_max_entries && bytes <= config.packed_max_bytes {
            return Ok(());
        }
        let mut rows = Rows {
            db: self.db,
            id: txn.new_id(),
            count: 0,
            first: 0,
            last: 0,
            stale: false,
        };
        for n in numbers {
            rows.insert(txn, *n)?;
        }
        self.value.form = Form::Rows(rows);
        Ok(())
    }

    /// The collection id of the rows, if the integers stand in rows.
    fn collection(&self) -> Option<CollectionId> {
        match &self.value.form {
            Form::Packed(_) => None,
            Form::Rows(rows) => Some(rows.id),
        }
    }

    /// Writes the changes: the meta row, or the deletion of the key.
    pub fn save(mut self, txn: &mut Txn) -> OpResult<()> {
        if !self.dirty {
            return Ok(());
        }
        if self.value.len() == 0 {
            if let Some(meta) = self.old {
                // Its rows, if it had any, were deleted one by one.
                let body = Value::new();
                txn.unlink_key(self.db, self.key, &KeyMeta { meta, body })?;
            }
            return Ok(());
        }
        let mut meta = self.old.unwrap_or(Meta::new(ValueType::SortedInt));
        meta.rows = matches!(self.value.form, Form::Rows(_));
        let body = match &mut self.value.form {
            Form::Packed(numbers) => pack(numbers),
            Form::Rows(rows) => {
                rows.find_ends(txn)?;
                rows.body().encode()
            }
        };
        txn.put_key(self.db, self.key, self.old.as_ref(), meta, &body)?;
        Ok(())
    }
}
