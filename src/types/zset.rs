//! Sorted sets: members, each with a score, in the order of score and then of
//! the member's bytes.
//!
//! A [`Zset`] is a loaded sorted set with its reads; an [`Edit`] is one that is being
//! changed. Only this module knows whether the elements are packed into the meta row or
//! stand in rows.
//!
//! Invariants: scores are never NaN, and −0 is 0; the count is that of the
//! elements (I5); an empty sorted set does not exist.

pub(super) mod definition;
mod edit;
mod geo;
mod packed;
mod rows;
mod span;
#[cfg(test)]
mod tests;

pub use super::definition::{EachScored as Each, Member};
pub use crate::storage::Direction;
pub use edit::{AddRule, Added, Edit, store};
pub use geo::Point;
pub use span::{LexBound, ScoreBound, Span};

use super::{OpResult, lookup};
use crate::encoding::{Meta, ValueType};
use crate::storage::{DbIndex, KeyMeta, Value, View};
use rows::Rows;
use std::ops::ControlFlow;

/// What a walk calls with each element, until it breaks.
type EachUntil<'a> = &'a mut dyn FnMut(f64, &[u8]) -> OpResult<ControlFlow<()>>;

/// A loaded sorted set.
#[derive(Debug, Clone)]
pub struct Zset {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Packed { body: Value, count: u64 },
    Rows(Rows),
}

impl Form {
    fn empty() -> Form {
        Form::Packed {
            body: Value::new(),
            count: 0,
        }
    }

    fn decode(db: DbIndex, meta: &Meta, body: Value) -> OpResult<Form> {
        Ok(match meta.rows {
            true => Form::Rows(Rows::decode(db, &body)?),
            false => Form::Packed {
                count: packed::count(&body)?,
                body,
            },
        })
    }
}

impl Zset {
    /// The sorted set under a key, if there is one.
    pub fn open(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Zset>> {
        let found = lookup(view, db, key, ValueType::Zset)?;
        found.map(|found| Zset::from_key(db, found)).transpose()
    }

    /// The value of a looked-up key, which must be a sorted set.
    fn from_key(db: DbIndex, found: KeyMeta) -> OpResult<Zset> {
        let form = Form::decode(db, &found.meta, found.body)?;
        Ok(Zset { form })
    }

    /// The number of elements.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Packed { count, .. } => *count,
            Form::Rows(rows) => rows.count,
        }
    }

    /// The score of a member.
    pub fn score(&self, view: &View, member: &[u8]) -> OpResult<Option<f64>> {
        match &self.form {
            Form::Packed { body, .. } => Ok(packed::find(body, member)?.map(|e| e.score())),
            Form::Rows(rows) => rows.score(view, member),
        }
    }

    /// The elements whose members lie between two bounds; meaningful only if all scores
    /// are equal.
    pub fn members_between(&self, min: LexBound<'_>, max: LexBound<'_>) -> OpResult<Span> {
        Ok(match &self.form {
            Form::Packed { body, .. } => match packed::ends(body)? {
                Some((first, last)) => Span::of_members(min, max, &first, &last),
                None => Span::none(),
            },
            Form::Rows(rows) => {
                let (first, last) = rows.ends();
                Span::of_members(min, max, first, last)
            }
        })
    }

    /// Whether all scores are equal.
    pub fn has_one_score(&self) -> OpResult<bool> {
        let same = |first: &[u8], last: &[u8]| first.get(..8) == last.get(..8);
        Ok(match &self.form {
            Form::Packed { body, .. } => {
                packed::ends(body)?.is_none_or(|(first, last)| same(&first, &last))
            }
            Form::Rows(rows) => {
                let (first, last) = rows.ends();
                same(first, last)
            }
        })
    }

    /// Emulates Redis' walk over a range of members when the scores differ: it begins
    /// with the first element that is within its near bound and ends before the first
    /// that is beyond the far one. `each` also gets whether the member lies between both
    /// bounds; a member before the near bound may not.
    pub fn walk_mixed(
        &self,
        view: &mut View,
        (min, max): (LexBound<'_>, LexBound<'_>),
        direction: Direction,
        mut each: impl FnMut(f64, &[u8], bool) -> OpResult<()>,
    ) -> OpResult<()> {
        let (mut begun, mut ended) = (false, false);
        let all = Span::all();
        self.walk(view, &all, direction, 0, u64::MAX, &mut |score, member| {
            let (from, to) = (min.lets_from(member), max.lets_to(member));
            let (near, far) = match direction {
                Direction::Forward => (from, to),
                Direction::Backward => (to, from),
            };
            begun |= near;
            ended |= begun && !far;
            match begun && !ended {
                true => each(score, member, near),
                false => Ok(()),
            }
        })
    }

    /// Calls `each` with up to `limit` elements in `span`, past the first `skip`.
    pub fn walk(
        &self,
        view: &mut View,
        span: &Span,
        direction: Direction,
        skip: u64,
        limit: u64,
        each: Each<'_>,
    ) -> OpResult<()> {
        match &self.form {
            Form::Packed { body, .. } => packed::walk(body, span, direction, skip, limit, each),
            Form::Rows(rows) => rows.walk(view, span, direction, skip, limit, each),
        }
    }

    /// The number of elements in `span`.
    pub fn count(&self, view: &mut View, span: &Span) -> OpResult<u64> {
        match &self.form {
            Form::Packed { body, .. } => packed::count_within(body, span),
            Form::Rows(rows) => rows::rank::count_within(rows, view, span),
        }
    }

    /// The rank of a member, counted in `direction` from 0, and its score.
    pub fn rank(
        &self,
        view: &mut View,
        member: &[u8],
        direction: Direction,
    ) -> OpResult<Option<(u64, f64)>> {
        let found = match &self.form {
            Form::Packed { body, .. } => packed::rank(body, member)?,
            Form::Rows(rows) => match rows.score(view, member)? {
                Some(score) => {
                    let before = Span {
                        to: Some(span::place(score, member)),
                        ..Span::all()
                    };
                    Some((rows::rank::count_within(rows, view, &before)?, score))
                }
                None => None,
            },
        };
        Ok(found.map(|(rank, score)| match direction {
            Direction::Forward => (rank, score),
            Direction::Backward => ((self.len() - 1).saturating_sub(rank), score),
        }))
    }

    /// Calls `each` with some elements, from a cursor (0: the beginning) on; returns the
    /// next cursor, 0 at the end. See [`super::hashed`]. A packed sorted set is returned
    /// as a whole.
    pub fn scan(&self, view: &mut View, cursor: u64, count: u64, each: Each<'_>) -> OpResult<u64> {
        match &self.form {
            Form::Rows(rows) => rows.scan(view, cursor, count, each),
            Form::Packed { body, .. } => {
                let all = Span::all();
                packed::walk(body, &all, Direction::Forward, 0, u64::MAX, each)?;
                Ok(0)
            }
        }
    }

    /// Calls `each` with `n` different random elements, or all if there are fewer.
    pub fn sample_distinct(&self, view: &mut View, n: u64, each: Each<'_>) -> OpResult<()> {
        match &self.form {
            Form::Rows(rows) => rows.sample_distinct(view, n, each),
            Form::Packed { body, count } => {
                let n = usize::try_from(n.min(*count)).unwrap_or(usize::MAX);
                let all = packed::entries(body).collect::<Result<Vec<_>, _>>()?;
                for entry in fastrand::choose_multiple(all, n) {
                    each(entry.score(), entry.member)?;
                }
                Ok(())
            }
        }
    }

    /// Calls `each` with `n` random elements, drawn independently.
    pub fn sample_repeated(&self, view: &mut View, n: u64, each: Each<'_>) -> OpResult<()> {
        match &self.form {
            Form::Rows(rows) => rows.sample_repeats(view, n, each),
            Form::Packed { body, .. } => {
                let all = packed::entries(body).collect::<Result<Vec<_>, _>>()?;
                for _ in 0..n {
                    if let Some(entry) = fastrand::choice(&all) {
                        each(entry.score(), entry.member)?;
                    }
                }
                Ok(())
            }
        }
    }
}
