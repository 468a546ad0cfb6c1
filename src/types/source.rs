//! The source of a value's rows for export and DUMP.

use super::OpResult;
use crate::encoding::CollectionId;
use crate::storage::{DbIndex, Direction, View};
use std::ops::{ControlFlow, Range};

/// Called with key and value of each row, until it breaks.
pub type EachRow<'e> = &'e mut dyn FnMut(&[u8], &[u8]) -> OpResult<ControlFlow<()>>;

/// A source of rows.
pub trait Source {
    /// Calls `each` with the rows in `[from, to)` in order; returns whether it broke.
    fn each_row(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        each: EachRow<'_>,
    ) -> OpResult<ControlFlow<()>>;

    /// Appends a range of the bytes that a long string's base refers to, clipped to them, to `out`.
    /// Returns the number of bytes of the base.
    fn base(
        &mut self,
        db: DbIndex,
        id: CollectionId,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> OpResult<u64>;

    /// Announces that `_bytes` bytes will be written, even if there are few rows.
    fn will_make(&self, _bytes: u64) -> OpResult<()> {
        Ok(())
    }
}

impl Source for View {
    fn each_row(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        each: EachRow<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let mut scan = self.scan(db, from, to, Direction::Forward)?;
        while let Some((row_key, row)) = scan.next()? {
            if each(row_key, row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn base(
        &mut self,
        db: DbIndex,
        id: CollectionId,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> OpResult<u64> {
        Ok(self.read_base(db, id, range, out)?)
    }

    fn will_make(&self, bytes: u64) -> OpResult<()> {
        View::will_make(self, bytes)?;
        Ok(View::will_hold(self, bytes)?)
    }
}
