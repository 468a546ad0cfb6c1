//! Sorted sets of positions: the score of a member is the number of its position; see
//! [`crate::base::geohash`].

use super::rows::Rows;
use super::{Form, ScoreBound, Span, Zset, packed};
use crate::base::geohash::{Area, Frame, Position};
use crate::storage::View;
use crate::types::OpResult;
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// A walk passes so many elements outside of a frame before it leaps to where the frame goes on: a leap
/// costs about as much as passing twenty.
const PASSED_MAX: usize = 8;

/// A member in an area.
#[derive(Debug, Clone, Copy)]
pub struct Point<'a> {
    /// The member.
    pub member: &'a [u8],
    /// The number of its position.
    pub score: f64,
    /// Its position.
    pub position: Position,
    /// The distance from the centre of the area, in m.
    pub distance_m: f64,
}

impl Zset {
    /// The position of a member.
    pub fn position(&self, view: &View, member: &[u8]) -> OpResult<Option<Position>> {
        Ok(self.score(view, member)?.map(Position::from_score))
    }

    /// Calls `each` with the members in an area until it breaks, in the order of the cells of
    /// the area and of the scores. Only members in these cells are read, and of those outside of the
    /// frame of the area few.
    pub fn search(
        &self,
        view: &mut View,
        area: &Area,
        mut each: impl FnMut(Point<'_>) -> OpResult<ControlFlow<()>>,
    ) -> OpResult<()> {
        let frame = area.frame();
        // Where members of each cell may lie in the frame.
        let begin = |(first, beyond): (f64, f64)| {
            let from = frame.first_from(first as u64)? as f64;
            (from < beyond).then_some((from, beyond))
        };
        let cells: SmallVec<[(f64, f64); 9]> = area.cells().filter_map(begin).collect();
        let mut look_at = |score: f64, member: &[u8]| {
            let position = Position::from_score(score);
            match area.distance_m(position) {
                Some(distance_m) => each(Point {
                    member,
                    score,
                    position,
                    distance_m,
                }),
                None => Ok(ControlFlow::Continue(())),
            }
        };
        match &self.form {
            Form::Packed { body, .. } => {
                let bound = |score: f64, exclusive: bool| ScoreBound { score, exclusive };
                for (from, beyond) in cells {
                    let span = Span::of_scores(bound(from, false), bound(beyond, true));
                    let flow = packed::walk_until(body, &span, &mut |score, member| match frame
                        .contains(score as u64)
                    {
                        true => look_at(score, member),
                        false => Ok(ControlFlow::Continue(())),
                    })?;
                    if flow.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Form::Rows(rows) => search_rows(rows, view, &frame, &cells, look_at),
        }
    }
}

/// Calls `look_at` with the elements of cells that lie in the frame, until it breaks.
fn search_rows(
    rows: &Rows,
    view: &mut View,
    frame: &Frame,
    cells: &[(f64, f64)],
    mut look_at: impl FnMut(f64, &[u8]) -> OpResult<ControlFlow<()>>,
) -> OpResult<()> {
    let from = cells.iter().map(|cell| cell.0).fold(f64::MAX, f64::min);
    let beyond = cells.iter().map(|cell| cell.1).fold(0.0, f64::max);
    if from >= beyond {
        return Ok(());
    }
    let mut leaps = rows.leaps(view, from, beyond)?;
    for (from, beyond) in cells {
        leaps.leap(*from);
        // Where the frame goes on, and how many elements before that have been passed.
        let (mut next, mut passed) = (*from, 0);
        while let Some((score, member)) = leaps.next()? {
            if score >= *beyond {
                break;
            }
            if score >= next && frame.contains(score as u64) {
                passed = 0;
                if look_at(score, member)?.is_break() {
                    return Ok(());
                }
                continue;
            }
            if score >= next {
                match frame.first_from(score as u64) {
                    Some(first) if (first as f64) < *beyond => next = first as f64,
                    _ => break,
                }
            }
            passed += 1;
            if passed >= PASSED_MAX {
                leaps.leap(next);
                passed = 0;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
