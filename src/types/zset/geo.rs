//! Sorted sets of positions: the score of a member is the number of its position; see
//! [`crate::base::geohash`].

use super::{ScoreBound, Span, Zset};
use crate::base::geohash::{Area, Position};
use crate::storage::View;
use crate::types::OpResult;
use std::ops::ControlFlow;

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
    /// the area and of the scores. Only members in these cells are read.
    pub fn search(
        &self,
        view: &mut View,
        area: &Area,
        mut each: impl FnMut(Point<'_>) -> OpResult<ControlFlow<()>>,
    ) -> OpResult<()> {
        let bound = |score: f64, exclusive: bool| ScoreBound { score, exclusive };
        for (first, beyond) in area.cells() {
            let span = Span::of_scores(bound(first, false), bound(beyond, true));
            let flow = self.walk_until(view, &span, &mut |score, member| {
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
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }
}
