//! The packed form: all items in the body of the meta row, head first.
//!
//! Positions count from the head. A list may exceed the limits of the form while it is
//! being changed; it is moved into rows before it is saved.

use super::{End, Visit};
use crate::encoding::Corrupt;
use crate::encoding::packed::{items, put_bytes};
use crate::storage::Direction;
use crate::storage::View;
use smallvec::SmallVec;
use std::ops::{ControlFlow, Range};

/// Most bytes of an item's length.
const LENGTH_BYTES: usize = 5;

/// A list whose items stand in the body of its meta row.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) body: Vec<u8>,
    pub(super) len: u64,
    pub(super) changed: bool,
}

impl Packed {
    /// Checks a stored body, with all its items.
    pub(super) fn new(body: Vec<u8>) -> Result<Packed, Corrupt> {
        let mut len = 0;
        for item in items(&body) {
            item?;
            len += 1;
        }
        Ok(Packed {
            body,
            len,
            changed: false,
        })
    }

    /// Whether these items can be added within the limits.
    pub(super) fn has_room(&self, view: &View, new: &[&[u8]]) -> bool {
        let config = &view.engine().config;
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        len.saturating_add(new.len()) <= config.packed_max_entries
            && self.body.len() + bytes_of(new) <= config.packed_max_bytes
    }

    pub(super) fn push(&mut self, end: End, new: &[&[u8]]) {
        match end {
            End::Tail => new.iter().for_each(|item| put_bytes(&mut self.body, item)),
            End::Head => {
                let room = bytes_of(new) + self.body.len();
                let mut body = Vec::with_capacity(room);
                for item in new.iter().rev() {
                    put_bytes(&mut body, item);
                }
                body.extend_from_slice(&self.body);
                self.body = body;
            }
        }
        self.len += new.len() as u64;
        self.changed = true;
    }

    pub(super) fn visit(
        &self,
        range: Range<u64>,
        order: Direction,
        mut each: impl Visit,
    ) -> Result<(), Corrupt> {
        let wanted = self.len.min(range.end).saturating_sub(range.start) as usize;
        let walk = items(&self.body)
            .skip(range.start as usize)
            .take(wanted)
            .zip(range.start..);
        if order == Direction::Forward {
            for (item, at) in walk {
                if each(at, item?).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let mut found: SmallVec<[(u64, &[u8]); 64]> = SmallVec::new();
        for (item, at) in walk {
            found.push((at, item?));
        }
        let _ = found
            .into_iter()
            .rev()
            .try_for_each(|(at, item)| each(at, item));
        Ok(())
    }

    /// Removes all items outside `range`.
    pub(super) fn keep(&mut self, range: Range<u64>) -> Result<(), Corrupt> {
        let (start, end) = (self.offset(range.start)?, self.offset(range.end)?);
        self.body.truncate(end);
        self.body.drain(..start);
        self.len = range.end - range.start;
        self.changed = true;
        Ok(())
    }

    /// Replaces the items in `range` by one item.
    pub(super) fn replace(&mut self, range: Range<u64>, item: &[u8]) -> Result<(), Corrupt> {
        let (start, end) = (self.offset(range.start)?, self.offset(range.end)?);
        let mut new = Vec::with_capacity(item.len() + LENGTH_BYTES);
        put_bytes(&mut new, item);
        self.body.splice(start..end, new);
        self.len = self.len + 1 - (range.end - range.start);
        self.changed = true;
        Ok(())
    }

    /// Removes the items at these ascending positions.
    pub(super) fn remove(&mut self, holes: &[u64]) -> Result<(), Corrupt> {
        let mut body = Vec::with_capacity(self.body.len());
        let mut next = holes.iter().copied().peekable();
        self.visit(0..self.len, Direction::Forward, |at, item: &[u8]| {
            if next.next_if_eq(&at).is_none() {
                put_bytes(&mut body, item);
            }
            ControlFlow::Continue(())
        })?;
        self.body = body;
        self.len -= holes.len() as u64;
        self.changed = true;
        Ok(())
    }

    /// The byte of the body where the item at a position begins.
    fn offset(&self, position: u64) -> Result<usize, Corrupt> {
        if position >= self.len {
            return Ok(self.body.len());
        }
        let mut walk = items(&self.body);
        for _ in 0..position {
            walk.next().transpose()?;
        }
        Ok(self.body.len() - walk.rest().len())
    }
}

/// Most bytes of these items in a body.
fn bytes_of(items: &[&[u8]]) -> usize {
    items.iter().map(|item| item.len() + LENGTH_BYTES).sum()
}
