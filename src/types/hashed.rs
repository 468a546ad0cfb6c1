//! The rows of one collection in hash order: point access, walks, scan cursors, random
//! samples. Hashes, sets and the member side of sorted sets use them once they are too
//! large for their meta row.
//!
//! The order is that of `h(member)`, a keyed hash, then of the member's bytes. Without
//! the key of the hash, a client cannot choose members with certain hashes, so rows are
//! spread evenly over the range of the hash. Two algorithms depend on that:
//!
//! * A scan cursor is a position in the range of the hash; no state is kept between
//!   calls. Members with the same position are returned together. Writes between calls
//!   can neither move nor hide a member, so the guarantee of SCAN holds.
//! * A uniform sample picks one of equally wide buckets of the range, and one of
//!   [`SLOTS`] slots in it. If the bucket has that many members, the slot's member is
//!   the sample, otherwise the draw is repeated. Each member owns one slot, so all are
//!   equally likely, whatever the gaps between their hashes. A draw that hits a member whose time
//!   is over is repeated, too.

use super::OpResult;
use super::timed_rows::TimedRows;
use crate::base::time::UnixMs;
use crate::encoding::keys::{self, RowKey};
use crate::encoding::timed::decode_time;
use crate::encoding::{CollectionId, Corrupt, ValueType, tag};
use crate::storage::Direction;
use crate::storage::txn::Row;
use crate::storage::txn::scan::Scan;
use crate::storage::{DbIndex, Txn, View};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Cursors are this many bits shorter than hashes, so that they stay below 2^53, for
/// clients that parse them as doubles.
const CURSOR_SHIFT: u32 = 11;

/// Average members in a bucket of the sampling.
const BUCKET_MEMBERS: u64 = 8;

/// Slots of a bucket. A bucket with more members is about as likely as a collision of
/// two 64-bit hashes.
const SLOTS: u64 = 44;

/// Up to this many members, a sample is found by its index.
const COUNTED_MAX: u64 = 64;

/// Draws after which the sampling takes any member. With a correct count, that many
/// misses in a row do not happen.
const MAX_TRIES: u32 = 2000;

/// Rows that a walk reads in the time of one draw.
const ROWS_PER_SAMPLE: u64 = 128;

/// Repeated samples are drawn in blocks of at most this size.
const BLOCK: u64 = 1 << 18;

/// Most bytes of members and values in a block of samples.
const BLOCK_BYTES: usize = 32 << 20;

/// If less than one in so many stored members lives, a walk finds one sooner than draws do.
const FEW_LIVE: u64 = 64;

/// A collection has another number of members than its meta row states.
const MISCOUNTED: Corrupt = Corrupt("collection count");

/// The rows of one collection under one tag.
#[derive(Debug, Clone, Copy)]
pub struct HashedRows {
    /// The DB that the collection is in.
    pub db: DbIndex,
    /// The tag of its rows.
    pub tag: u8,
    /// The collection.
    pub id: CollectionId,
    /// Elements whose own time is over at this moment are not seen; 0 if there are none.
    pub(super) over_ms: UnixMs,
}

/// How many members a collection has.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Those whose time is not over.
    pub(super) living: u64,
    /// Those that have rows.
    pub(super) stored: u64,
}

impl Size {
    /// Of a collection without times.
    pub fn untimed(members: u64) -> Size {
        Size {
            living: members,
            stored: members,
        }
    }

    /// Whether draws find members soon.
    fn suits_draws(&self) -> bool {
        self.living > COUNTED_MAX && self.living.saturating_mul(FEW_LIVE) >= self.stored
    }
}

impl HashedRows {
    /// The rows of a hash, a set, or the member side of a sorted set.
    pub fn new(db: DbIndex, kind: ValueType, id: CollectionId) -> HashedRows {
        let tag = kind.element_tags().first().copied().unwrap_or_default();
        debug_assert!(
            tag::HASHED.contains(&tag),
            "{kind:?} has no rows in hash order"
        );
        let over_ms = UnixMs::NONE;
        HashedRows {
            db,
            tag,
            id,
            over_ms,
        }
    }

    /// The key of a member's row.
    pub fn key(&self, view: &View, member: &[u8]) -> RowKey {
        let hash = view.engine().hash.hash(member);
        keys::hashed(self.tag, self.id, hash, member)
    }

    /// The value of a member.
    pub fn get<'v>(&self, view: &'v View, member: &[u8]) -> OpResult<Option<Row<'v>>> {
        let row = view.row(self.db, &self.key(view, member))?;
        if self.over_ms.is_some() && row.is_some() && self.is_over(self.time(view, member)?) {
            return Ok(None);
        }
        Ok(row)
    }

    /// When a member expires; 0 if it has no time of its own, or does not exist.
    pub(super) fn time(&self, view: &View, member: &[u8]) -> OpResult<UnixMs> {
        let key = self.key(view, member);
        let row = match self.tag {
            tag::HASH_FIELD => {
                let key = keys::placed(tag::FIELD_TIME, self.id, keys::place_of(&key));
                view.row(self.db, &key)?
            }
            _ => view.row(self.db, &key)?,
        };
        Ok(row.map_or(Ok(UnixMs::NONE), |row| decode_time(&row))?)
    }

    fn is_over(&self, expire_ms: UnixMs) -> bool {
        expire_ms.is_some() && expire_ms <= self.over_ms
    }

    /// Writes a member's row.
    pub fn put(&self, txn: &mut Txn, member: &[u8], value: &[u8]) -> OpResult<()> {
        let key = self.key(txn, member);
        Ok(txn.put_row(self.db, &key, value)?)
    }

    /// Deletes a member's row; returns whether it existed.
    pub fn delete(&self, txn: &mut Txn, member: &[u8]) -> OpResult<bool> {
        let key = self.key(txn, member);
        let found = txn.row(self.db, &key)?.is_some();
        if found {
            txn.delete_row(self.db, &key)?;
        }
        Ok(found)
    }

    /// Walks over all `len` members and their values, until `each` breaks.
    ///
    /// # Errors
    /// The collection has more or fewer than `len`; a client may have been promised
    /// `len`.
    pub fn for_each(
        &self,
        view: &mut View,
        len: u64,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        let (from, to) = (self.first(), self.end());
        let (mut left, mut stopped, mut too_many) = (len, false, false);
        self.walk(view, &from, &to, |_, member, value| {
            let Some(rest) = left.checked_sub(1) else {
                too_many = true;
                return ControlFlow::Break(());
            };
            left = rest;
            let flow = each(member, value);
            stopped = flow.is_break();
            flow
        })?;
        match !stopped && (too_many || left > 0) {
            true => Err(MISCOUNTED.into()),
            false => Ok(()),
        }
    }

    /// Walks over at least `count` members from the cursor on, among which those whose time is over
    /// count, too. Returns the next cursor, 0 at the end.
    pub fn scan(
        &self,
        view: &mut View,
        cursor: u64,
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> OpResult<u64> {
        if cursor > u64::MAX >> CURSOR_SHIFT {
            return Ok(0);
        }
        let from = keys::hashed_from(self.tag, self.id, cursor << CURSOR_SHIFT);
        let (mut seen, mut last, mut next) = (0, None, 0);
        self.walk_stored(view, &from, &self.end(), |hash, member, value, over| {
            let place = hash >> CURSOR_SHIFT;
            if seen >= count && last != Some(place) {
                next = place;
                return ControlFlow::Break(());
            }
            (seen, last) = (seen + 1, Some(place));
            if !over {
                each(member, value);
            }
            ControlFlow::Continue(())
        })?;
        Ok(next)
    }

    /// Copies members from `walk` on into `chunk`, up to the walk's limits, and advances
    /// `walk`.
    pub fn fill(&self, view: &mut View, walk: &mut Walk, chunk: &mut Chunk) -> OpResult<()> {
        view.released(chunk.bytes());
        chunk.clear();
        if walk.done {
            return Ok(());
        }
        let from = walk.from.take().unwrap_or_else(|| self.first());
        let mut last = None;
        self.walk(view, &from, &self.end(), |hash, member, _| {
            if chunk.spans.len() >= walk.members || chunk.bytes.len() >= walk.max_bytes {
                // Continues after the last member: its successor in order has one more
                // zero byte.
                let mut next = keys::hashed_from(self.tag, self.id, chunk.last_hash());
                next.extend_from_slice(chunk.last());
                next.push(0);
                last = Some(next);
                return ControlFlow::Break(());
            }
            chunk.push(hash, member);
            ControlFlow::Continue(())
        })?;
        walk.done = last.is_none();
        walk.from = last;
        walk.members = (walk.members * 4).min(Walk::MAX_MEMBERS);
        Ok(())
    }

    /// Calls `each` with a member drawn uniformly from the living ones.
    ///
    /// # Errors
    /// The collection is empty, or has fewer members.
    pub fn sample(
        &self,
        view: &mut View,
        size: Size,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> OpResult<()> {
        if !size.suits_draws() {
            let index = fastrand::u64(..size.living.max(1));
            return self.nth(view, size.living, index, &mut each);
        }
        let mut found = false;
        self.draw_some(view, size, 1, &mut |member, value| {
            found = true;
            each(member, value);
            ControlFlow::Break(())
        })?;
        match found {
            true => Ok(()),
            false => self.nth(view, size.living, 0, &mut each),
        }
    }

    /// Calls `each` with at most `count` members that are drawn independently, until it breaks.
    /// Calls it less often if draws find none, which does not happen with correct counts.
    fn draw_some(
        &self,
        view: &mut View,
        size: Size,
        count: u64,
        each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        let (from, to) = (self.first(), self.end());
        let mut left = count;
        if self.over_ms.is_some() {
            while left > 0 {
                let Some((member, value)) = self.draw_living(view, size.stored)? else {
                    break;
                };
                left -= 1;
                if each(&member, &value).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let mut rows = view.scan(self.db, &from, &to, Direction::Forward)?;
        let mut flow = ControlFlow::Continue(());
        while left > 0 && flow.is_continue() {
            left -= 1;
            let mut take = |member: &[u8], value: &[u8]| flow = each(member, value);
            if !self.draw(&mut rows, size.stored, &mut take)? {
                break;
            }
        }
        Ok(())
    }

    /// Draws from more than [`COUNTED_MAX`] stored members until one lives.
    fn draw_living(&self, view: &mut View, stored: u64) -> OpResult<Option<(Vec<u8>, Vec<u8>)>> {
        let (from, to) = (self.first(), self.end());
        let mut drawn = (Vec::new(), Vec::new());
        for _ in 0..MAX_TRIES {
            let mut rows = view.scan(self.db, &from, &to, Direction::Forward)?;
            let found = self.draw(&mut rows, stored, &mut |member, value| {
                drawn = (member.to_vec(), value.to_vec());
            })?;
            drop(rows);
            if found && !self.is_over(self.time(view, &drawn.0)?) {
                return Ok(Some(drawn));
            }
        }
        Ok(None)
    }

    /// Draws from more than [`COUNTED_MAX`] members; returns whether a member was found.
    /// The scan can be used for many draws.
    fn draw(
        &self,
        rows: &mut Scan<'_>,
        len: u64,
        each: &mut impl FnMut(&[u8], &[u8]),
    ) -> OpResult<bool> {
        let buckets = u128::from(len / BUCKET_MEMBERS);
        for _ in 0..MAX_TRIES {
            let bucket = u128::from(fastrand::u64(..len / BUCKET_MEMBERS));
            // Hashes `from..to`; the last bucket ends at the end of the range.
            let [from, to] = [bucket, bucket + 1].map(|n| (n << 64).div_ceil(buckets));
            let mut slot = fastrand::u64(..SLOTS);
            rows.seek(&keys::hashed_from(self.tag, self.id, from as u64));
            while let Some((key, value)) = rows.next()? {
                let (hash, member) = keys::split_hashed(key)?;
                if u128::from(hash) >= to {
                    break;
                }
                if slot == 0 {
                    each(member, value);
                    return Ok(true);
                }
                slot -= 1;
            }
        }
        Ok(false)
    }

    /// Calls `each` with `count` different members, or all if there are fewer. Every
    /// subset of that size is equally likely; the order is not random.
    ///
    /// # Errors
    /// The collection has fewer members than `size` says, and than `count`.
    pub fn sample_distinct(
        &self,
        view: &mut View,
        size: Size,
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        let len = size.living;
        if count.saturating_mul(ROWS_PER_SAMPLE) >= len || !size.suits_draws() {
            let (mut left, mut wanted) = (len, count.min(len));
            return self.for_each(view, len, |member, value| {
                let chosen = select(&mut left, &mut wanted);
                match chosen {
                    true => each(member, value)?,
                    false if wanted == 0 => return ControlFlow::Break(()),
                    false => {}
                }
                ControlFlow::Continue(())
            });
        }
        let mut drawn: HashSet<Box<[u8]>> = HashSet::new();
        let mut stop = false;
        let tries = count.saturating_mul(8).saturating_add(64);
        self.draw_some(view, size, tries, &mut |member, value| {
            if !drawn.contains(member) {
                drawn.insert(member.into());
                stop = each(member, value).is_break();
            }
            match stop || drawn.len() as u64 >= count {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        match stop || drawn.len() as u64 == count {
            true => Ok(()),
            false => Err(MISCOUNTED.into()),
        }
    }

    /// Calls `each` with `count` members drawn independently, each uniformly.
    pub fn sample_repeats(
        &self,
        view: &mut View,
        size: Size,
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        let (mut left, mut largest) = (count, BLOCK);
        let len = size.living;
        while left > 0 {
            let block = left.min(largest);
            if block.saturating_mul(ROWS_PER_SAMPLE) >= len || !size.suits_draws() {
                let Some(samples) = self.sample_block(view, len, block)? else {
                    largest = (block / 4).max(1);
                    continue;
                };
                if samples
                    .iter()
                    .any(|(member, value)| each(member, value).is_break())
                {
                    return Ok(());
                }
            } else {
                let mut stop = false;
                for _ in 0..block {
                    self.sample(view, size, |member, value| {
                        stop = each(member, value).is_break();
                    })?;
                    if stop {
                        return Ok(());
                    }
                }
            }
            left -= block;
        }
        Ok(())
    }

    /// Draws `count` indices and collects their members in one walk; `None` if they
    /// exceed [`BLOCK_BYTES`].
    fn sample_block(&self, view: &mut View, len: u64, count: u64) -> OpResult<Option<Block>> {
        let mut wanted: Vec<(u64, usize)> = (0..count as usize)
            .map(|order| (fastrand::u64(..len.max(1)), order))
            .collect();
        wanted.sort_unstable();
        let mut block = Block {
            bytes: Vec::new(),
            spans: vec![(0, 0, 0); wanted.len()],
        };
        let (mut index, mut next) = (0, 0);
        self.for_each(view, len, |member, value| {
            let at = block.bytes.len();
            while let Some((_, order)) = wanted.get(next).filter(|(i, _)| *i == index) {
                if block.bytes.len() == at {
                    block.bytes.extend_from_slice(member);
                    block.bytes.extend_from_slice(value);
                }
                let split = at + member.len();
                block.spans[*order] = (at, split, split + value.len());
                next += 1;
            }
            index += 1;
            match next < wanted.len() && block.bytes.len() <= BLOCK_BYTES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok((next == wanted.len()).then_some(block))
    }

    /// Calls `each` with the `index`-th of `len` members.
    fn nth(
        &self,
        view: &mut View,
        len: u64,
        index: u64,
        each: &mut impl FnMut(&[u8], &[u8]),
    ) -> OpResult<()> {
        if index >= len {
            return Err(MISCOUNTED.into());
        }
        let mut left = index;
        self.for_each(view, len, |member, value| {
            if left == 0 {
                each(member, value);
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        })
    }

    /// Walks over the living members.
    fn walk(
        &self,
        view: &mut View,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(u64, &[u8], &[u8]) -> ControlFlow<()>,
    ) -> OpResult<()> {
        self.walk_stored(view, from, to, |hash, member, value, over| match over {
            true => ControlFlow::Continue(()),
            false => each(hash, member, value),
        })
    }

    /// Walks over all members, with whether the time of each is over.
    fn walk_stored(
        &self,
        view: &mut View,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(u64, &[u8], &[u8], bool) -> ControlFlow<()>,
    ) -> OpResult<()> {
        if self.over_ms.is_some() {
            let rows = TimedRows {
                db: self.db,
                tag: self.tag,
                id: self.id,
            };
            return rows
                .walk(view, from, to, &mut |key, value, expire_ms| {
                    let (hash, member) = keys::split_hashed(key)?;
                    Ok(each(hash, member, value, self.is_over(expire_ms)))
                })
                .map(drop);
        }
        let mut rows = view.scan(self.db, from, to, Direction::Forward)?;
        while let Some((key, value)) = rows.next()? {
            let (hash, member) = keys::split_hashed(key)?;
            if each(hash, member, value, false).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The range of all rows.
    pub fn range(&self) -> (RowKey, RowKey) {
        (self.first(), self.end())
    }

    fn first(&self) -> RowKey {
        keys::element_prefix(self.tag, self.id)
    }

    fn end(&self) -> RowKey {
        keys::element_end(self.tag, self.id)
    }
}

/// Whether the next of `left` elements is one of `wanted` chosen from them.
pub(super) fn select(left: &mut u64, wanted: &mut u64) -> bool {
    let chosen = *wanted > 0 && fastrand::u64(..(*left).max(1)) < *wanted;
    *left = left.saturating_sub(1);
    *wanted -= u64::from(chosen);
    chosen
}

/// Samples in the order in which they were drawn.
struct Block {
    bytes: Vec<u8>,
    /// Beginning of the member, of the value, and its end.
    spans: Vec<(usize, usize, usize)>,
}

impl Block {
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|&(at, split, end)| {
            let member = self.bytes.get(at..split).unwrap_or_default();
            (member, self.bytes.get(split..end).unwrap_or_default())
        })
    }
}

/// Progress of a walk in chunks. The first chunk is small, for callers that stop early.
#[derive(Debug)]
pub struct Walk {
    from: Option<RowKey>,
    done: bool,
    /// Members in the next chunk.
    members: usize,
    max_bytes: usize,
}

impl Walk {
    const FIRST_MEMBERS: usize = 128;
    const MAX_MEMBERS: usize = 16 << 10;
    /// Total bytes of the chunks of several walks at the same time.
    const TOTAL_BYTES: usize = 32 << 20;

    /// The beginning of one of `walks` walks at the same time.
    pub(super) fn one_of(walks: usize) -> Walk {
        Walk {
            from: None,
            done: false,
            members: Walk::FIRST_MEMBERS,
            max_bytes: (Walk::TOTAL_BYTES / walks.max(1)).clamp(1 << 10, 1 << 20),
        }
    }

    /// Whether the end was reached.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Ends the walk: everything is in one chunk.
    pub(super) fn finish(&mut self) {
        self.done = true;
    }
}

/// Members copied out of a collection, with their hashes.
#[derive(Debug, Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    hash: u64,
    start: usize,
    end: usize,
}

impl Chunk {
    /// How many members it holds.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The member at an index; empty if there is none.
    pub fn member(&self, index: usize) -> &[u8] {
        self.spans
            .get(index)
            .and_then(|span| self.bytes.get(span.start..span.end))
            .unwrap_or_default()
    }

    /// The hash of the member at an index.
    pub fn hash(&self, index: usize) -> Option<u64> {
        self.spans.get(index).map(|span| span.hash)
    }

    /// All members.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.member(index))
    }

    /// Adds a member.
    pub fn push(&mut self, hash: u64, member: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(member);
        let end = self.bytes.len();
        self.spans.push(Span { hash, start, end });
    }

    /// Bytes of all members.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets all members, and frees the memory of long ones.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(Walk::TOTAL_BYTES / 16);
        self.spans.clear();
    }

    /// Removes members that equal an earlier one.
    pub(super) fn keep_first_of_equals(&mut self) {
        let bytes = &self.bytes;
        let mut seen = HashSet::with_capacity(self.spans.len());
        self.spans
            .retain(|span| seen.insert(bytes.get(span.start..span.end)));
    }

    /// Puts the members in the order of `key`.
    pub(super) fn sort_by_cached_key<K: Ord>(&mut self, key: impl Fn(&[u8]) -> K) {
        let bytes = &self.bytes;
        self.spans
            .sort_by_cached_key(|span| key(bytes.get(span.start..span.end).unwrap_or_default()));
    }

    /// Puts the members in hash order.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |span: &Span| (span.hash, bytes.get(span.start..span.end));
        self.spans.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    }

    fn last(&self) -> &[u8] {
        self.member(self.len().wrapping_sub(1))
    }

    fn last_hash(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.hash)
    }
}
