//! Copies of committed rows in memory, bounded by a part of the budget.

pub(super) mod ranges;
pub(super) mod rows;
