//! Order statistics of a sorted set in rows. Whoever needs to know how many
//! elements lie between two places, or which place is the n-th, asks here and
//! nowhere else. Both walk over the rows.

use super::Direction;
use super::rows::Rows;
use super::span::{Place, Span};
use crate::storage::View;
use crate::types::OpResult;
use std::ops::ControlFlow;

/// How many elements stand in `span`; from the beginning up to an element's
/// place, that is its rank.
pub(super) fn count_within(rows: &Rows, view: &mut View, span: &Span) -> OpResult<u64> {
    if rows.all_within(span) {
        return Ok(rows.count);
    }
    let mut count = 0;
    rows.visit(view, span, Direction::Forward, |_| {
        count += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(count)
}

/// The place of the element in `span` that has `before` others before it,
/// counted in `direction`.
pub(super) fn place_at(
    rows: &Rows,
    view: &mut View,
    span: &Span,
    direction: Direction,
    before: u64,
) -> OpResult<Option<Place>> {
    if before >= rows.count {
        return Ok(None);
    }
    let (mut before, mut direction) = (before, direction);
    if rows.all_within(span) && before > rows.count / 2 {
        before = rows.count - 1 - before;
        direction = match direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
    }
    let mut found = None;
    rows.visit(view, span, direction, |place| {
        if before == 0 {
            found = Some(Place::from_slice(place));
            return Ok(ControlFlow::Break(()));
        }
        before -= 1;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
