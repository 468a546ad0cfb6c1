//! A sorted set in rows. Each element has two: one by the member's hash, with the score,
//! and one in score order. The body of the meta row is described in
//! [`crate::encoding::meta`].
//!
//! The body has the first and the last row in score order. Every walk stays between the
//! two, so it does not meet the tombstones of popped elements, which lie outside.

pub(super) mod rank;

use super::span::{Place, Span, just_after, place};
use super::{Direction, Each, Member};
use crate::encoding::meta::Counted;
use crate::encoding::reader::{Reader, put_bytes};
use crate::encoding::{CollectionId, Corrupt, RowKey, ValueType, keys, score, tag};
use crate::storage::rank::Start;
use crate::storage::txn::scan::Scan;
use crate::storage::{DbIndex, Txn, View};
use crate::types::OpResult;
use crate::types::hashed::{HashedRows, Size};
use std::ops::ControlFlow;

/// Ends are cut to this many bytes, so that a long member is not copied into the meta
/// row with each change. A cut end still bounds the rows, if less tightly.
const END_MAX_BYTES: usize = 8 + 64;

/// If a walk skips at least this many rows, the start is looked up by rank.
const SKIP_BY_RANK: u64 = 64;

/// A collection in rows, as its meta row describes it.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    db: DbIndex,
    pub(super) id: CollectionId,
    pub(super) count: u64,
    first: End,
    last: End,
    /// Whether the collection was created in this turn, so that all its rows are
    /// pending.
    fresh: bool,
}

/// The place of the first or last row, cut to [`END_MAX_BYTES`].
#[derive(Debug, Clone, Default)]
struct End {
    place: Place,
    /// The row at this place was removed: all others lie within, but the end must be
    /// found again before the body is written.
    stale: bool,
}

impl End {
    fn at(place: &[u8]) -> End {
        End {
            place: Place::from_slice(cut(place)),
            stale: false,
        }
    }

    /// Whether nothing was cut off.
    fn is_whole(&self) -> bool {
        self.place.len() < END_MAX_BYTES
    }
}

/// A walk in score order that leaps over what it need not see.
pub(super) struct Leaps<'v> {
    scan: Scan<'v>,
    /// Where it begins.
    from: RowKey,
}

impl Leaps<'_> {
    /// Goes to the first element with this score or a higher one; needed before the first one is read.
    pub(super) fn leap(&mut self, score: f64) {
        let mut key = RowKey::from_slice(&self.from[..keys::ELEMENT_PREFIX_LEN]);
        key.extend_from_slice(&score::encode(score));
        self.scan.seek(key.max(self.from.clone()).as_slice());
    }

    /// The score and the member of the next element.
    pub(super) fn next(&mut self) -> OpResult<Option<(f64, &[u8])>> {
        let Some((key, _)) = self.scan.next()? else {
            return Ok(None);
        };
        split(key.get(keys::ELEMENT_PREFIX_LEN..).unwrap_or_default()).map(Some)
    }
}

/// The place of an element, cut before a long member is copied.
fn cut_place(score: f64, member: &[u8]) -> Place {
    place(score, cut_member(member))
}

/// As much of a member as an end keeps.
pub(super) fn cut_member(member: &[u8]) -> &[u8] {
    member.get(..END_MAX_BYTES - 8).unwrap_or(member)
}

fn cut(place: &[u8]) -> &[u8] {
    place.get(..END_MAX_BYTES).unwrap_or(place)
}

impl Rows {
    /// A new, empty collection.
    pub(super) fn new(db: DbIndex, id: CollectionId) -> Rows {
        Rows {
            db,
            id,
            count: 0,
            first: End::default(),
            last: End::default(),
            fresh: true,
        }
    }

    pub(super) fn decode(db: DbIndex, body: &[u8]) -> OpResult<Rows> {
        let Counted { id, count } = Counted::decode(body)?;
        let mut r = Reader::new(body, "zset");
        r.take(16)?;
        let first = End::at(r.bytes()?);
        let last = End::at(r.bytes()?);
        if first.place.len() < 8 || last.place.len() < 8 {
            return Err(Corrupt("zset ends").into());
        }
        Ok(Rows {
            db,
            id,
            count,
            first,
            last,
            fresh: false,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Rows { id, count, .. } = *self;
        let mut body = Vec::with_capacity(18 + self.first.place.len() + self.last.place.len());
        body.extend_from_slice(&Counted { id, count }.encode());
        put_bytes(&mut body, &self.first.place);
        put_bytes(&mut body, &self.last.place);
        body
    }

    /// The stored places of both ends.
    pub(super) fn ends(&self) -> (&[u8], &[u8]) {
        (&self.first.place, &self.last.place)
    }

    /// Whether every element lies in `span`.
    pub(super) fn all_within(&self, span: &Span) -> bool {
        !span.starts_after(&self.first.place) && !span.ends_by(&self.beyond())
    }

    /// A place after all elements.
    fn beyond(&self) -> Place {
        let last = &self.last.place;
        if self.last.is_whole() {
            return just_after(last);
        }
        // After a cut end there may be elements with the same prefix. Scores do not
        // begin with FF FF.
        keys::after_prefix(last).map_or_else(Place::new, |end| Place::from_slice(&end))
    }

    /// Whether storage keeps a rank index of the elements.
    pub(super) fn has_rank_index(&self, view: &View) -> bool {
        !self.fresh && view.has_rank_index(self.db, &self.row_key(&[]))
    }

    /// A place at or before `place` and near it. `None`: there is no rank index now.
    pub(super) fn rank_start_before(
        &self,
        view: &mut View,
        place: &[u8],
    ) -> OpResult<Option<Start>> {
        match self.fresh {
            true => Ok(None),
            false => Ok(view.rank_start_before(self.db, &self.row_key(place))?),
        }
    }

    /// A place at or before that of the element with rank `n`, and near it. `None`:
    /// there is no rank index now.
    pub(super) fn rank_start_at(&self, view: &mut View, n: u64) -> OpResult<Option<Start>> {
        match self.fresh {
            true => Ok(None),
            false => Ok(view.rank_start_at(self.db, &self.row_key(&[]), n)?),
        }
    }

    fn row_key(&self, place: &[u8]) -> RowKey {
        let mut key = keys::element_prefix(tag::ZSET_SCORE, self.id);
        key.extend_from_slice(place);
        key
    }

    /// The rows in hash order.
    fn members(&self) -> HashedRows {
        HashedRows::new(self.db, ValueType::Zset, self.id)
    }

    pub(super) fn score(&self, view: &View, member: &[u8]) -> OpResult<Option<f64>> {
        let members = self.members();
        if self.fresh {
            let row = view.pending_row(self.db, &members.key(view, member));
            return row.map(decode_score).transpose();
        }
        let row = members.get(view, member)?;
        row.map(|row| decode_score(&row)).transpose()
    }

    /// Calls `each` with the place of every element in `span`, until it breaks.
    pub(super) fn visit(
        &self,
        view: &mut View,
        span: &Span,
        direction: Direction,
        mut each: impl FnMut(&[u8]) -> OpResult<ControlFlow<()>>,
    ) -> OpResult<()> {
        if self.count == 0 || span.is_empty() {
            return Ok(());
        }
        let beyond = self.beyond();
        let from = self.row_key(span.from.as_slice().max(&self.first.place));
        let to = match &span.to {
            Some(to) => self.row_key(to.as_slice().min(&beyond)),
            None => self.row_key(&beyond),
        };
        let mut scan = view.scan(self.db, &from, &to, direction)?;
        while let Some((key, _)) = scan.next()? {
            let place = key.get(keys::ELEMENT_PREFIX_LEN..).unwrap_or_default();
            if each(place)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` with up to `limit` elements in `span`, past the first `skip`.
    pub(super) fn walk(
        &self,
        view: &mut View,
        span: &Span,
        direction: Direction,
        mut skip: u64,
        limit: u64,
        each: Each<'_>,
    ) -> OpResult<()> {
        if limit == 0 || skip >= self.count {
            return Ok(());
        }
        let mut narrowed = None;
        if skip >= SKIP_BY_RANK {
            let Some(start) = rank::place_at(self, view, span, direction, skip)? else {
                return Ok(());
            };
            let mut span = span.clone();
            match direction {
                Direction::Forward => span.from = start,
                Direction::Backward => span.to = Some(just_after(&start)),
            }
            narrowed = Some(span);
            skip = 0;
        }
        let mut left = limit;
        let span = narrowed.as_ref().unwrap_or(span);
        self.visit(view, span, direction, |place| {
            if skip > 0 {
                skip -= 1;
                return Ok(ControlFlow::Continue(()));
            }
            let (score, member) = split(place)?;
            each(score, member)?;
            left -= 1;
            Ok(match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })
        })
    }

    /// A walk through the elements with scores in `[from, beyond)`, in ascending order.
    pub(super) fn leaps<'v>(
        &self,
        view: &'v mut View,
        from: f64,
        beyond: f64,
    ) -> OpResult<Leaps<'v>> {
        let (last, from, beyond) = (self.beyond(), score::encode(from), score::encode(beyond));
        let from = self.row_key(from.as_slice().max(&self.first.place));
        let to = self.row_key(beyond.as_slice().min(&last));
        Ok(Leaps {
            scan: view.scan_parts(self.db, &from, &to)?,
            from,
        })
    }

    /// Calls `each` with at least `count` elements from a cursor on; returns the next
    /// cursor.
    pub(super) fn scan(
        &self,
        view: &mut View,
        cursor: u64,
        count: u64,
        each: Each<'_>,
    ) -> OpResult<u64> {
        let mut done = Ok(());
        let mut each = until_error(each, &mut done);
        let next = self.members().scan(view, cursor, count, |member, value| {
            let _ = each(member, value);
        })?;
        drop(each);
        done.map(|()| next)
    }

    /// Calls `each` with `n` different random elements, or all.
    pub(super) fn sample_distinct(&self, view: &mut View, n: u64, each: Each<'_>) -> OpResult<()> {
        let mut done = Ok(());
        let each = until_error(each, &mut done);
        let size = Size::untimed(self.count);
        self.members().sample_distinct(view, size, n, each)?;
        done
    }

    /// Calls `each` with `n` random elements, drawn independently.
    pub(super) fn sample_repeats(&self, view: &mut View, n: u64, each: Each<'_>) -> OpResult<()> {
        let mut done = Ok(());
        let each = until_error(each, &mut done);
        let size = Size::untimed(self.count);
        self.members().sample_repeats(view, size, n, each)?;
        done
    }

    /// Inserts a new member.
    pub(super) fn insert(&mut self, txn: &mut Txn, score: f64, member: &[u8]) -> OpResult<()> {
        self.put(txn, score, member)?;
        self.count += 1;
        Ok(())
    }

    /// Changes the score of a member.
    pub(super) fn rescore(
        &mut self,
        txn: &mut Txn,
        old: f64,
        new: f64,
        member: &[u8],
    ) -> OpResult<()> {
        self.drop_place(txn, old, member)?;
        self.put(txn, new, member)
    }

    pub(super) fn remove(&mut self, txn: &mut Txn, score: f64, member: &[u8]) -> OpResult<()> {
        self.drop_place(txn, score, member)?;
        let key = self.members().key(txn, member);
        txn.delete_row(self.db, &key)?;
        self.count = self.count.saturating_sub(1);
        Ok(())
    }

    /// Removes consecutive elements in score order, ascending.
    pub(super) fn remove_run(&mut self, txn: &mut Txn, run: &[(f64, Member)]) -> OpResult<()> {
        let (Some((low, first)), Some((high, last))) = (run.first(), run.last()) else {
            return Ok(());
        };
        let (low, high) = (cut_place(*low, first), cut_place(*high, last));
        for (score, member) in run {
            self.remove(txn, *score, member)?;
        }
        // The search for new ends can skip the removed elements. That holds for whole
        // ends only: a place that equals a cut end may belong to another element, and
        // the one at the end may have stayed.
        let last_was_high = high == self.last.place;
        if self.first.stale && self.first.is_whole() && low == self.first.place {
            self.first.place = high;
        }
        if self.last.stale && self.last.is_whole() && last_was_high {
            self.last.place = low;
        }
        Ok(())
    }

    /// Sets the element that a walk in `direction` meets first.
    pub(super) fn set_end(&mut self, direction: Direction, score: f64, member: &[u8]) {
        let end = End::at(&cut_place(score, member));
        match direction {
            Direction::Forward => self.first = end,
            Direction::Backward => self.last = end,
        }
    }

    /// Finds removed ends again, before the body is written.
    pub(super) fn find_removed_ends(&mut self, txn: &mut Txn) -> OpResult<()> {
        for direction in [Direction::Forward, Direction::Backward] {
            let stale = match direction {
                Direction::Forward => self.first.stale,
                Direction::Backward => self.last.stale,
            };
            if !stale || self.count == 0 {
                continue;
            }
            let mut found = None;
            self.visit(txn, &Span::all(), direction, |place| {
                found = Some(End::at(place));
                Ok(ControlFlow::Break(()))
            })?;
            let end = found.ok_or(Corrupt("zset count"))?;
            match direction {
                Direction::Forward => self.first = end,
                Direction::Backward => self.last = end,
            }
        }
        Ok(())
    }

    fn put(&mut self, txn: &mut Txn, score: f64, member: &[u8]) -> OpResult<()> {
        self.members().put(txn, member, &score::encode(score))?;
        let row_key = keys::by_score(self.id, score, member);
        txn.put_row(self.db, &row_key, &[])?;
        txn.note_row(self.db, &row_key, true)?;
        let end = cut(row_key.get(keys::ELEMENT_PREFIX_LEN..).unwrap_or_default());
        if self.count == 0 || end <= self.first.place.as_slice() {
            self.first = End::at(end);
        }
        if self.count == 0 || end >= self.last.place.as_slice() {
            self.last = End::at(end);
        }
        Ok(())
    }

    fn drop_place(&mut self, txn: &mut Txn, score: f64, member: &[u8]) -> OpResult<()> {
        let row_key = keys::by_score(self.id, score, member);
        txn.delete_row(self.db, &row_key)?;
        txn.note_row(self.db, &row_key, false)?;
        let end = cut(row_key.get(keys::ELEMENT_PREFIX_LEN..).unwrap_or_default());
        self.first.stale |= end == self.first.place.as_slice();
        self.last.stale |= end == self.last.place.as_slice();
        Ok(())
    }
}

/// Score and member of a place.
pub(super) fn split(place: &[u8]) -> OpResult<(f64, &[u8])> {
    let (score, member) = place
        .split_first_chunk::<8>()
        .ok_or(Corrupt("zset score"))?;
    Ok((score::decode(*score), member))
}

fn decode_score(row: &[u8]) -> OpResult<f64> {
    let bytes = row.try_into().map_err(|_| Corrupt("zset member"))?;
    Ok(score::decode(bytes))
}

/// Adapts `each` to rows in hash order, until a row or `each` fails.
fn until_error<'e>(
    each: Each<'e>,
    done: &'e mut OpResult<()>,
) -> impl FnMut(&[u8], &[u8]) -> ControlFlow<()> {
    |member, value| {
        if done.is_ok() {
            *done = decode_score(value).and_then(|score| each(score, member));
        }
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
