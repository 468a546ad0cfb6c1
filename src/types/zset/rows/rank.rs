//! Order statistics of a sorted set in rows: how many elements lie between two places,
//! and which place is the n-th. Near an end the elements are counted by a walk; for the
//! rest of a large sorted set, storage keeps a rank index.

use super::Rows;
use crate::storage::Direction;
use crate::storage::View;
use crate::types::OpResult;
use crate::types::zset::span::{Place, Span};
use std::ops::ControlFlow;

/// Walks over more elements than this use a rank index. Low in tests, so that small
/// sorted sets have one.
const LONG_WALK: u64 = if cfg!(test) { 8 } else { 1024 };

/// The number of elements in `span`; for a span from the beginning to an element's
/// place, that is the element's rank.
pub(in crate::types::zset) fn count_within(
    rows: &Rows,
    view: &mut View,
    span: &Span,
) -> OpResult<u64> {
    if rows.all_within(span) {
        return Ok(rows.count);
    }
    if span.is_empty() {
        return Ok(0);
    }
    if rows.count > LONG_WALK {
        if !rows.has_rank_index(view)
            && let Some(count) = walk(rows, view, span, LONG_WALK)?
        {
            return Ok(count);
        }
        if let Some(before_from) = before(rows, view, Some(&span.from))?
            && let Some(before_to) = before(rows, view, span.to.as_ref())?
        {
            return Ok(before_to.saturating_sub(before_from));
        }
    }
    Ok(walk(rows, view, span, u64::MAX)?.unwrap_or(rows.count))
}

/// The place of the element in `span` with rank `skipped`, counted in `direction`.
pub(super) fn place_at(
    rows: &Rows,
    view: &mut View,
    span: &Span,
    direction: Direction,
    skipped: u64,
) -> OpResult<Option<Place>> {
    if skipped >= rows.count {
        return Ok(None);
    }
    let (mut skipped, mut direction) = (skipped, direction);
    if rows.all_within(span) && skipped > rows.count / 2 {
        skipped = rows.count - 1 - skipped;
        direction = match direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
    }
    if skipped > LONG_WALK
        && let Some(before_from) = before(rows, view, Some(&span.from))?
        && let Some(before_to) = before(rows, view, span.to.as_ref())?
    {
        let n = match direction {
            Direction::Forward => before_from + skipped,
            Direction::Backward => match before_to.checked_sub(skipped + 1) {
                Some(n) => n,
                None => return Ok(None),
            },
        };
        if n < before_from || n >= before_to {
            return Ok(None);
        }
        if let Some(start) = rows.rank_start_at(view, n)? {
            let span = Span {
                from: Place::from_slice(&start.place),
                to: None,
            };
            return nth(rows, view, &span, Direction::Forward, n - start.before);
        }
    }
    nth(rows, view, span, direction, skipped)
}

/// The number of elements before `place`; `None` as the place: all elements. Returns
/// `None` without a rank index.
fn before(rows: &Rows, view: &mut View, place: Option<&Place>) -> OpResult<Option<u64>> {
    let span = Span {
        from: Place::new(),
        to: place.cloned(),
    };
    if rows.all_within(&span) {
        return Ok(Some(rows.count));
    }
    let Some(place) = place.filter(|_| !span.is_empty()) else {
        return Ok(Some(0));
    };
    let Some(start) = rows.rank_start_before(view, place)? else {
        return Ok(None);
    };
    let rest = Span {
        from: Place::from_slice(&start.place),
        ..span
    };
    let rest = walk(rows, view, &rest, u64::MAX)?;
    Ok(rest.map(|rest| start.before + rest))
}

/// Counts the elements in `span` one by one; `None` if there are more than `limit`.
fn walk(rows: &Rows, view: &mut View, span: &Span, limit: u64) -> OpResult<Option<u64>> {
    let mut count = 0;
    rows.visit(view, span, Direction::Forward, |_| {
        count += 1;
        Ok(match count > limit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })?;
    Ok((count <= limit).then_some(count))
}

/// The place that a walk over `span` meets after `skipped` others.
fn nth(
    rows: &Rows,
    view: &mut View,
    span: &Span,
    direction: Direction,
    mut skipped: u64,
) -> OpResult<Option<Place>> {
    let mut found = None;
    rows.visit(view, span, direction, |place| {
        if skipped == 0 {
            found = Some(Place::from_slice(place));
            return Ok(ControlFlow::Break(()));
        }
        skipped -= 1;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests;
