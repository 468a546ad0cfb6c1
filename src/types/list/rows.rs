//! The form in rows: item `n` has index `head + n`, without gaps.
//!
//! A change moves the ends and writes the rows that are new or have moved. Rows outside
//! the ends are deleted once, in [`Rows::sweep`]. Reads stay within `head..tail`, so
//! they meet no tombstones of popped items.

use super::packed::Packed;
use super::{End, Visit};
use crate::encoding::meta::ListSpan;
use crate::encoding::packed::items;
use crate::encoding::{Corrupt, RowKey, keys, tag};
use crate::storage::Direction;
use crate::storage::{DbIndex, Txn, View};
use crate::types::OpResult;
use std::ops::{ControlFlow, Range};

/// Up to this many items are read one by one: an iterator costs more than a few point
/// reads, especially if the items are in the row cache.
const POINT_READS: u64 = 3;

/// Up to this many rows are deleted one by one: each range deletion makes later reads
/// near it slower.
const POINT_DELETES: u64 = 256;

/// Most bytes of items in memory while rows move.
const MOVE_BYTES: usize = 8 << 20;

/// A list whose items stand in rows.
#[derive(Debug)]
pub(super) struct Rows {
    db: DbIndex,
    pub(super) span: ListSpan,
    /// The span in the meta row, if it is in this form already.
    pub(super) stored: Option<ListSpan>,
    /// All indices that may have a row.
    hull: Range<i64>,
}

impl Rows {
    /// A list that is stored in rows.
    pub(super) fn stored(db: DbIndex, span: ListSpan) -> Rows {
        Rows {
            db,
            span,
            stored: Some(span),
            hull: span.head..span.tail,
        }
    }

    /// An empty list with a new id. Indices start in the middle of their range, so that
    /// both ends can grow.
    fn new(txn: &Txn, db: DbIndex) -> Rows {
        let span = ListSpan {
            id: txn.new_id(),
            head: 0,
            tail: 0,
        };
        Rows {
            db,
            span,
            stored: None,
            hull: 0..0,
        }
    }

    /// Moves the items of a packed list into rows with a new id.
    pub(super) fn promoted(txn: &mut Txn, db: DbIndex, packed: &Packed) -> OpResult<Rows> {
        let mut rows = Rows::new(txn, db);
        for item in items(&packed.body) {
            rows.push(txn, End::Tail, &[item?])?;
        }
        Ok(rows)
    }

    /// Whether the meta row must be written.
    pub(super) fn moved(&self) -> bool {
        self.stored != Some(self.span)
    }

    /// Whether so many rows are left over that they belong in the reclaim queue.
    pub(super) fn is_large(&self) -> bool {
        self.hull.end.abs_diff(self.hull.start) > POINT_DELETES
    }

    pub(super) fn visit(
        &self,
        view: &mut View,
        range: Range<u64>,
        order: Direction,
        mut each: impl Visit,
    ) -> OpResult<()> {
        let range = range.start.min(self.span.len())..range.end.min(self.span.len());
        if range.is_empty() {
            return Ok(());
        }
        if range.end - range.start > POINT_READS {
            return self.visit_by_scan(view, range, order, each);
        }
        let mut left = range;
        while let Some(at) = next_of(&mut left, order) {
            let row = view
                .row(self.db, &self.row_key(self.index(at)))?
                .ok_or(Corrupt("list item"))?;
            if each(at, &row).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn visit_by_scan(
        &self,
        view: &mut View,
        range: Range<u64>,
        order: Direction,
        mut each: impl Visit,
    ) -> OpResult<()> {
        let from = self.row_key(self.index(range.start));
        let to = self.row_key(self.index(range.end));
        let mut scan = view.scan(self.db, &from, &to, order)?;
        let mut left = range;
        while let Some(at) = next_of(&mut left, order) {
            let (key, item) = scan.next()?.ok_or(Corrupt("list item"))?;
            if keys::split_indexed(key)? != self.index(at) {
                return Err(Corrupt("list item").into());
            }
            if each(at, item).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn push(&mut self, txn: &mut Txn, end: End, new: &[&[u8]]) -> OpResult<()> {
        for item in new {
            let index = match end {
                End::Head => {
                    self.grow(End::Head)?;
                    self.span.head
                }
                End::Tail => {
                    self.grow(End::Tail)?;
                    self.span.tail - 1
                }
            };
            self.put(txn, index, item)?;
        }
        Ok(())
    }

    /// Removes all items outside `range`.
    pub(super) fn keep(&mut self, range: Range<u64>) {
        let (head, tail) = (self.index(range.start), self.index(range.end));
        self.span.head = head;
        self.span.tail = tail;
    }

    /// Overwrites an item.
    pub(super) fn set(&self, txn: &mut Txn, at: u64, item: &[u8]) -> OpResult<()> {
        self.put(txn, self.index(at), item)
    }

    /// Inserts an item at position `at`; the smaller side moves.
    pub(super) fn insert(&mut self, txn: &mut Txn, at: u64, item: &[u8]) -> OpResult<()> {
        let len = self.span.len();
        if at <= len / 2 {
            let head = self.span.head;
            let target = head.checked_sub(1).ok_or(Corrupt("list indices"))?;
            self.move_rows(txn, 0..at, Direction::Forward, &[], target)?;
            self.grow(End::Head)?;
        } else {
            self.move_rows(txn, at..len, Direction::Backward, &[], self.span.tail)?;
            self.grow(End::Tail)?;
        }
        self.put(txn, self.index(at), item)
    }

    /// Removes the items at these ascending positions. The longest stretch between two
    /// of them stays; items before it move towards the tail, items after it towards the
    /// head.
    pub(super) fn remove(&mut self, txn: &mut Txn, holes: &[u64]) -> OpResult<()> {
        let len = self.span.len();
        let (before, behind) = holes.split_at(longest_stretch(holes, len));
        if let Some(&last) = before.last() {
            let target = self.index(last);
            self.move_rows(txn, 0..last, Direction::Backward, before, target)?;
        }
        if let Some(&first) = behind.first() {
            let target = self.index(first);
            self.move_rows(txn, first..len, Direction::Forward, behind, target)?;
        }
        self.keep(before.len() as u64..len - behind.len() as u64);
        Ok(())
    }

    /// Deletes the rows that are outside the ends.
    pub(super) fn sweep(&mut self, txn: &mut Txn) -> OpResult<()> {
        let ListSpan { head, tail, .. } = self.span;
        self.delete(txn, self.hull.start..head.min(self.hull.end))?;
        self.delete(txn, tail.max(self.hull.start)..self.hull.end)?;
        self.hull = head..tail;
        Ok(())
    }

    fn delete(&self, txn: &mut Txn, range: Range<i64>) -> OpResult<()> {
        if range.is_empty() {
            return Ok(());
        }
        if range.end.abs_diff(range.start) > POINT_DELETES {
            let (from, to) = (self.row_key(range.start), self.row_key(range.end));
            txn.delete_rows(self.db, &from, &to)?;
            return Ok(());
        }
        for index in range {
            txn.delete_row(self.db, &self.row_key(index))?;
        }
        Ok(())
    }

    /// Writes the items of `range`, without the holes, to consecutive indices from
    /// `target` on, in the direction of `order`. The target must not overlap items that
    /// are still to be read.
    fn move_rows(
        &self,
        txn: &mut Txn,
        range: Range<u64>,
        order: Direction,
        holes: &[u64],
        mut target: i64,
    ) -> OpResult<()> {
        let mut left = range;
        while !left.is_empty() {
            let mut taken: Vec<Vec<u8>> = Vec::new();
            let mut bytes = 0;
            let mut seen = 0;
            self.visit(txn, left.clone(), order, |at, item: &[u8]| {
                seen += 1;
                if holes.binary_search(&at).is_err() {
                    bytes += item.len();
                    taken.push(item.to_vec());
                }
                match bytes < MOVE_BYTES {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            for item in taken {
                self.put(txn, target, &item)?;
                target = match order {
                    Direction::Forward => target.saturating_add(1),
                    Direction::Backward => target.saturating_sub(1),
                };
            }
            left = match order {
                Direction::Forward => left.start + seen..left.end,
                Direction::Backward => left.start..left.end - seen,
            };
        }
        Ok(())
    }

    fn put(&self, txn: &mut Txn, index: i64, item: &[u8]) -> OpResult<()> {
        Ok(txn.put_row(self.db, &self.row_key(index), item)?)
    }

    /// Makes room for one item. An end would reach the last index only after more pushes
    /// than a disk survives; then the push fails.
    fn grow(&mut self, end: End) -> OpResult<()> {
        let full = Corrupt("list indices");
        match end {
            End::Head => self.span.head = self.span.head.checked_sub(1).ok_or(full)?,
            End::Tail => self.span.tail = self.span.tail.checked_add(1).ok_or(full)?,
        }
        self.hull.start = self.hull.start.min(self.span.head);
        self.hull.end = self.hull.end.max(self.span.tail);
        Ok(())
    }

    /// The index of a position, which is at most the length.
    fn index(&self, position: u64) -> i64 {
        self.span.head.saturating_add_unsigned(position)
    }

    fn row_key(&self, index: i64) -> RowKey {
        keys::indexed(tag::LIST_ITEM, self.span.id, index)
    }
}

/// Takes the next position of `left` in the given order.
fn next_of(left: &mut Range<u64>, order: Direction) -> Option<u64> {
    match order {
        Direction::Forward => left.next(),
        Direction::Backward => left.next_back(),
    }
}

/// The number of holes before the longest stretch without any.
fn longest_stretch(holes: &[u64], len: u64) -> usize {
    let mut best = (0, 0);
    let mut start = 0;
    for (before, &hole) in holes.iter().chain([&len]).enumerate() {
        let stretch = hole - start;
        if stretch > best.1 {
            best = (before, stretch);
        }
        start = hole.saturating_add(1);
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stretch_stays() {
        for (holes, len, expected) in [
            (&[0][..], 10, 1),
            (&[9], 10, 0),
            (&[2, 8], 10, 1),
            (&[6, 8], 10, 0),
            (&[1, 3], 10, 2),
            (&[0, 1], 2, 0),
        ] {
            assert_eq!(longest_stretch(holes, len), expected, "{holes:?} of {len}");
        }
    }
}
