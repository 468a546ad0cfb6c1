//! Places in the order of a sorted set, and spans between them.
//!
//! The order is that of the bytes `score (8, sortable) ‖ member`. So bounds by
//! score, by member and by rank all come down to two byte strings, the same for
//! the packed form and for rows.

use crate::encoding::score;
use smallvec::SmallVec;

/// `score ‖ member`, or any other byte string to compare such places with.
pub type Place = SmallVec<[u8; 36]>;

/// The place of an element.
pub(super) fn place(score: f64, member: &[u8]) -> Place {
    let mut place = Place::from_slice(&score::encode(score));
    place.extend_from_slice(member);
    place
}

/// The first place after `place`.
pub(super) fn just_after(place: &[u8]) -> Place {
    let mut after = Place::from_slice(place);
    after.push(0);
    after
}

/// All places in `[from, to)`; without `to`, all from `from` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub(super) from: Place,
    pub(super) to: Option<Place>,
}

/// One end of a range of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreBound {
    /// Not NaN.
    pub score: f64,
    /// Whether the score itself is left out.
    pub exclusive: bool,
}

/// One end of a range of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Before all members.
    Min,
    /// After all members.
    Max,
    /// This member and what lies within.
    Inclusive(&'a [u8]),
    /// What lies within, without this member.
    Exclusive(&'a [u8]),
}

impl Span {
    /// Everything.
    pub fn all() -> Span {
        Span {
            from: Place::new(),
            to: None,
        }
    }

    /// Nothing.
    pub fn none() -> Span {
        Span {
            from: Place::new(),
            to: Some(Place::new()),
        }
    }

    /// What comes after an element.
    pub fn after(score: f64, member: &[u8]) -> Span {
        Span {
            from: just_after(&place(score, member)),
            to: None,
        }
    }

    /// The scores from `min` to `max`.
    pub fn of_scores(min: ScoreBound, max: ScoreBound) -> Span {
        let from = match min.exclusive {
            true => after_score(min.score),
            false => Place::from_slice(&score::encode(min.score)),
        };
        let to = match max.exclusive {
            true => Place::from_slice(&score::encode(max.score)),
            false => after_score(max.score),
        };
        Span { from, to: Some(to) }
    }

    /// The members from `min` to `max` of a sorted set whose scores go from
    /// `first` to `last`. Means what one expects only if all are equal.
    pub(super) fn of_members(min: LexBound<'_>, max: LexBound<'_>, first: f64, last: f64) -> Span {
        let member = |bound| match bound {
            LexBound::Inclusive(member) | LexBound::Exclusive(member) => Some(member),
            LexBound::Min | LexBound::Max => None,
        };
        if let (Some(low), Some(high)) = (member(min), member(max))
            && low > high
        {
            return Span::none();
        }
        let from = match min {
            LexBound::Min => Place::new(),
            LexBound::Max => return Span::none(),
            LexBound::Inclusive(member) => place(first, member),
            LexBound::Exclusive(member) => just_after(&place(first, member)),
        };
        let to = match max {
            LexBound::Min => return Span::none(),
            LexBound::Max => None,
            LexBound::Inclusive(member) => Some(just_after(&place(last, member))),
            LexBound::Exclusive(member) => Some(place(last, member)),
        };
        Span { from, to }
    }

    /// Whether nothing can stand in it.
    pub(super) fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    pub(super) fn starts_after(&self, place: &[u8]) -> bool {
        self.from.as_slice() > place
    }

    pub(super) fn ends_by(&self, place: &[u8]) -> bool {
        self.to.as_ref().is_some_and(|to| to.as_slice() <= place)
    }
}

/// The first place after all members of this score.
fn after_score(score: f64) -> Place {
    // The greatest score, +inf, is not the greatest number of eight bytes.
    let next = u64::from_be_bytes(score::encode(score)).saturating_add(1);
    Place::from_slice(&next.to_be_bytes())
}
