//! Places in the order of a sorted set, and spans between them.
//!
//! The order is that of the bytes `score (8, sortable) ‖ member`. So bounds by score, by
//! member and by rank are two byte strings each, the same for the packed form and for
//! rows.

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

/// All places in `[from, to)`; without `to`, all places from `from` on.
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
    /// Whether the score itself is excluded.
    pub exclusive: bool,
}

/// One end of a range of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Before all members.
    Min,
    /// After all members.
    Max,
    /// This member or beyond it, into the range.
    Inclusive(&'a [u8]),
    /// Beyond this member, into the range.
    Exclusive(&'a [u8]),
}

impl LexBound<'_> {
    /// The length of its member.
    pub fn bytes(self) -> usize {
        member_of(self).map_or(0, <[u8]>::len)
    }

    /// Whether a member is within this lower bound.
    pub(super) fn lets_from(self, member: &[u8]) -> bool {
        match self {
            LexBound::Min => true,
            LexBound::Max => false,
            LexBound::Inclusive(bound) => member >= bound,
            LexBound::Exclusive(bound) => member > bound,
        }
    }

    /// Whether a member is within this upper bound.
    pub(super) fn lets_to(self, member: &[u8]) -> bool {
        match self {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Inclusive(bound) => member <= bound,
            LexBound::Exclusive(bound) => member < bound,
        }
    }
}

impl Span {
    /// All elements.
    pub fn all() -> Span {
        Span {
            from: Place::new(),
            to: None,
        }
    }

    /// No elements.
    pub fn none() -> Span {
        Span {
            from: Place::new(),
            to: Some(Place::new()),
        }
    }

    /// The elements after this one.
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

    /// The members from `min` to `max` of a sorted set between the places `first` and
    /// `last`. Meaningful only if all scores are equal; otherwise empty if one end
    /// already excludes everything.
    pub(super) fn of_members(
        min: LexBound<'_>,
        max: LexBound<'_>,
        first: &[u8],
        last: &[u8],
    ) -> Span {
        let (first_score, first) = first.split_at_checked(8).unwrap_or_default();
        let (last_score, last) = last.split_at_checked(8).unwrap_or_default();
        let is_none = match (member_of(min), member_of(max)) {
            (Some(low), Some(high)) if low > high => true,
            (low, high) if first_score != last_score => {
                low.is_some_and(|low| last < low) || high.is_some_and(|high| first > high)
            }
            _ => false,
        };
        if is_none || min == LexBound::Max || max == LexBound::Min {
            return Span::none();
        }
        let place = |score: &[u8], member: &[u8]| {
            let mut place = Place::from_slice(score);
            place.extend_from_slice(member);
            place
        };
        let from = match min {
            LexBound::Inclusive(member) => place(first_score, member),
            LexBound::Exclusive(member) => just_after(&place(first_score, member)),
            LexBound::Min | LexBound::Max => Place::new(),
        };
        let to = match max {
            LexBound::Inclusive(member) => Some(just_after(&place(last_score, member))),
            LexBound::Exclusive(member) => Some(place(last_score, member)),
            LexBound::Min | LexBound::Max => None,
        };
        Span { from, to }
    }

    /// Whether the span is empty.
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    pub(super) fn starts_after(&self, place: &[u8]) -> bool {
        self.from.as_slice() > place
    }

    pub(super) fn ends_by(&self, place: &[u8]) -> bool {
        self.to.as_ref().is_some_and(|to| to.as_slice() <= place)
    }
}

fn member_of(bound: LexBound<'_>) -> Option<&[u8]> {
    match bound {
        LexBound::Inclusive(member) | LexBound::Exclusive(member) => Some(member),
        LexBound::Min | LexBound::Max => None,
    }
}

/// The first place after all members of this score.
fn after_score(score: f64) -> Place {
    // Even the encoding of +inf is far below the greatest number of eight bytes.
    let next = u64::from_be_bytes(score::encode(score)).saturating_add(1);
    Place::from_slice(&next.to_be_bytes())
}
