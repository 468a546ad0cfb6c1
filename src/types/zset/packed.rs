//! A small sorted set inside its meta row: the bytes of
//! [`crate::encoding::packed`], ascending, searched and edited in place.

use super::span::{Place, Span, place};
use super::{Direction, Each, EachUntil};
use crate::encoding::packed::put_scored;
use crate::encoding::reader::Reader;
use crate::encoding::{Corrupt, score};
use crate::storage::Value;
use crate::types::OpResult;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

/// An entry and its position in the body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    at: usize,
    end: usize,
    score: [u8; 8],
    pub(super) member: &'a [u8],
}

impl Entry<'_> {
    pub(super) fn score(&self) -> f64 {
        score::decode(self.score)
    }

    fn cmp_place(&self, place: &[u8]) -> Ordering {
        match place.split_at_checked(8) {
            Some((score, member)) => self.score[..].cmp(score).then(self.member.cmp(member)),
            None => self.score[..].cmp(place),
        }
    }
}

/// The entries of a packed body, ascending.
pub(super) struct Entries<'a> {
    reader: Reader<'a>,
    len: usize,
}

pub(super) fn entries(body: &[u8]) -> Entries<'_> {
    Entries {
        reader: Reader::new(body, "packed zset"),
        len: body.len(),
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let at = self.len - self.reader.rest().len();
        let entry = self.entry(at);
        if entry.is_err() {
            self.reader = Reader::new(&[], "packed zset");
        }
        Some(entry)
    }
}

impl<'a> Entries<'a> {
    fn entry(&mut self, at: usize) -> Result<Entry<'a>, Corrupt> {
        let score = self.reader.array()?;
        let member = self.reader.bytes()?;
        Ok(Entry {
            at,
            end: self.len - self.reader.rest().len(),
            score,
            member,
        })
    }
}

pub(super) fn count(body: &[u8]) -> OpResult<u64> {
    let mut count = 0;
    for entry in entries(body) {
        entry?;
        count += 1;
    }
    Ok(count)
}

pub(super) fn find<'a>(body: &'a [u8], member: &[u8]) -> OpResult<Option<Entry<'a>>> {
    for entry in entries(body) {
        let entry = entry?;
        if entry.member == member {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Rank and score of a member.
pub(super) fn rank(body: &[u8], member: &[u8]) -> OpResult<Option<(u64, f64)>> {
    for (rank, entry) in (0..).zip(entries(body)) {
        let entry = entry?;
        if entry.member == member {
            return Ok(Some((rank, entry.score())));
        }
    }
    Ok(None)
}

/// The places of the first and last entry.
pub(super) fn ends(body: &[u8]) -> OpResult<Option<(Place, Place)>> {
    let mut ends = None;
    for entry in entries(body) {
        let entry = entry?;
        ends = Some((ends.map_or(entry, |(first, _)| first), entry));
    }
    let place = |entry: Entry<'_>| place(entry.score(), entry.member);
    Ok(ends.map(|(first, last)| (place(first), place(last))))
}

/// The entries in `span`.
fn within<'a>(body: &'a [u8], span: &Span) -> OpResult<SmallVec<[Entry<'a>; 64]>> {
    let mut found = SmallVec::new();
    for entry in entries(body) {
        let entry = entry?;
        if let Some(to) = &span.to
            && entry.cmp_place(to).is_ge()
        {
            break;
        }
        if entry.cmp_place(&span.from).is_ge() {
            found.push(entry);
        }
    }
    Ok(found)
}

pub(super) fn count_within(body: &[u8], span: &Span) -> OpResult<u64> {
    Ok(within(body, span)?.len() as u64)
}

pub(super) fn walk(
    body: &[u8],
    span: &Span,
    direction: Direction,
    skip: u64,
    limit: u64,
    each: Each<'_>,
) -> OpResult<()> {
    let found = within(body, span)?;
    let chosen = choose(found.len(), direction, skip, limit);
    let chosen = found.get(chosen).unwrap_or_default();
    match direction {
        Direction::Forward => chosen.iter().try_for_each(|e| each(e.score(), e.member)),
        Direction::Backward => {
            let mut reversed = chosen.iter().rev();
            reversed.try_for_each(|e| each(e.score(), e.member))
        }
    }
}

/// Calls `each` with the entries in `span`, in ascending order, until it breaks.
pub(super) fn walk_until(
    body: &[u8],
    span: &Span,
    each: EachUntil<'_>,
) -> OpResult<ControlFlow<()>> {
    for entry in within(body, span)? {
        if each(entry.score(), entry.member)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The ascending positions of up to `limit` of `len` elements, after `skip` from the end
/// where `direction` starts.
fn choose(len: usize, direction: Direction, skip: u64, limit: u64) -> Range<usize> {
    let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(len);
    let taken = usize::try_from(limit).unwrap_or(usize::MAX).min(len - skip);
    match direction {
        Direction::Forward => skip..skip + taken,
        Direction::Backward => len - skip - taken..len - skip,
    }
}

/// Inserts a new member.
pub(super) fn insert(body: &mut Value, score: f64, member: &[u8], place: &Place) -> OpResult<()> {
    let mut at = body.len();
    for entry in entries(body) {
        let entry = entry?;
        if entry.cmp_place(place).is_gt() {
            at = entry.at;
            break;
        }
    }
    let mut bytes = Vec::with_capacity(member.len() + 16);
    put_scored(&mut bytes, score, member);
    body.insert_from_slice(at, &bytes);
    Ok(())
}

/// Removes a member; returns its score if it existed.
pub(super) fn remove(body: &mut Value, member: &[u8]) -> OpResult<Option<f64>> {
    let Some(entry) = find(body, member)? else {
        return Ok(None);
    };
    let (score, bytes) = (entry.score(), entry.at..entry.end);
    body.drain(bytes);
    Ok(Some(score))
}

/// Removes consecutive entries; returns the number removed.
pub(super) fn remove_run(
    body: &mut Value,
    span: &Span,
    direction: Direction,
    skip: u64,
    limit: u64,
    each: Each<'_>,
) -> OpResult<u64> {
    walk(body, span, direction, skip, limit, each)?;
    let found = within(body, span)?;
    let chosen = choose(found.len(), direction, skip, limit);
    let (Some(first), Some(last)) = (found.get(chosen.start), found[chosen.clone()].last()) else {
        return Ok(0);
    };
    let bytes = first.at..last.end;
    drop(found);
    body.drain(bytes);
    Ok(chosen.len() as u64)
}
