//! The rows of a memtable, in segments that are small enough for the processor's cache.
//!
//! Rows are added to the newest segment. When it is full it does not change any more, and
//! another one is begun. So rows are added to a large memtable as fast as to a small one, and
//! yet it is flushed as one file: a [`Cursor`] merges the rows of all segments in order, as
//! RocksDB merges those of several memtables. Look-ups, and walks within a map, leave out the
//! segments whose [`Filter`] has no such key or map.
//!
//! The versions of a user key are added in their order, so those in a newer segment are newer
//! than those in an older one.

#![allow(unsafe_code)]

use super::expected;
use super::filter::{Filter, KeyHasher};
use super::index::{Arena, Index};
use super::row::{self, Key, Row};
use super::sync::AtomicUsize;
use crate::sys::prefetch;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Rows of a segment. In tests few rows make many segments.
const SEGMENT_ROWS: usize = match () {
    () if cfg!(loom) => 1,
    () if cfg!(test) => 32,
    () => 1 << 15,
};

/// Rows of the first segment. A filter is allocated when its segment begins, and with many DBs
/// most memtables have few rows. The filter for this number fits into the 2 KiB that RocksDB
/// has for a memtable before it allocates a block.
const FIRST_ROWS: usize = match () {
    () if cfg!(loom) => 1,
    () if cfg!(test) => 8,
    () => 1 << 8,
};

/// So many segments have [`SEGMENT_ROWS`] at the most. A further one takes `rows / SEGMENTS`,
/// since a walk visits all segments. With 16 segments of half the rows, ranges by score of a
/// sorted set of 400,000 members took twice the time.
const SEGMENTS: usize = 8;

/// The most segments of a memtable. The last one takes all further rows, beyond 100 million.
const MOST_SEGMENTS: usize = u64::BITS as usize;

/// After so many ties a cursor computes the common prefix of its keys again, which may be
/// longer by then.
const TIES: u32 = 256;

/// A part of a memtable: rows that were added one after the other.
struct Segment<A> {
    index: Index<A>,
    filter: Filter,
}

/// The rows of one memtable, in order, in segments.
pub struct Segments<A> {
    /// The oldest first; none while there are no rows.
    segments: [OnceLock<Segment<A>>; MOST_SEGMENTS],
    count: AtomicUsize,
    /// How many rows still fit into the newest segment. For the writer.
    room: AtomicUsize,
    /// The number of rows in all segments. For the writer.
    rows: AtomicUsize,
    hasher: KeyHasher,
    arena: A,
}

impl<A: Arena + Clone> Segments<A> {
    /// A memtable without rows.
    pub fn new(arena: A) -> Self {
        Segments {
            segments: [const { OnceLock::new() }; MOST_SEGMENTS],
            count: AtomicUsize::new(0),
            room: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
            hasher: KeyHasher::default(),
            arena,
        }
    }

    /// Adds a row; its link need not be set.
    ///
    /// # Safety
    /// As of [`Index::insert`]; and no row has a newer version of the same user key.
    pub unsafe fn insert(&self, row: NonNull<Row>) {
        // SAFETY: by the contract.
        let key = unsafe { Key::of(row) };
        let segment = self.segment_with_room();
        segment.filter.add(self.hasher.key(key.user()));
        if let Some(map) = self.hasher.map(key.user()) {
            segment.filter.add(map);
        }
        // SAFETY: by the contract, this is the writer.
        match unsafe { expected::place(&segment.index, key) } {
            // SAFETY: by the contract; the place is one of this index, and behind no older
            // version of the row's user key.
            Some(place) => unsafe { segment.index.insert_at(row, place) },
            // SAFETY: by the contract.
            None => unsafe { segment.index.insert(row) },
        }
    }

    /// The segment that takes the next row. Counts that row.
    fn segment_with_room(&self) -> &Segment<A> {
        let rows = self.rows.load(Relaxed);
        self.rows.store(rows + 1, Relaxed);
        let count = self.count.load(Relaxed);
        let room = self.room.load(Relaxed);
        if room == 0 && count < MOST_SEGMENTS {
            let more = match rows {
                0 => FIRST_ROWS,
                _ => SEGMENT_ROWS.max(rows / SEGMENTS),
            };
            return self.begin_segment(count, more);
        }
        self.room.store(room.saturating_sub(1), Relaxed);
        let newest = self.segments[count - 1].get();
        newest.unwrap_or_else(|| unreachable!("as many as are counted were begun"))
    }

    /// Begins a segment of `rows` rows, the first of which is added next.
    #[cold]
    fn begin_segment(&self, at: usize, rows: usize) -> &Segment<A> {
        let segment = self.segments[at].get_or_init(|| Segment {
            index: Index::new(self.arena.clone()),
            // SAFETY: the segments are dropped before the arena.
            filter: unsafe { Filter::new(&self.arena, rows) },
        });
        self.room.store(rows - 1, Relaxed);
        self.count.store(at + 1, Release);
        segment
    }
}

impl<A: Arena> Segments<A> {
    /// The segments that may have versions of this key, as bits: bit 0 is the oldest segment.
    pub(super) fn with_versions_of(&self, key: Key) -> u64 {
        let hash = self.hasher.key(key.user());
        self.all()
            .enumerate()
            .filter(|(_, segment)| segment.filter.may_have(hash))
            .fold(0, |found, (at, _)| found | 1 << at)
    }

    /// The first row of a segment whose key is not less than this one.
    pub(super) fn at_or_after(&self, segment: usize, key: Key) -> Option<NonNull<Row>> {
        self.segments.get(segment)?.get()?.index.at_or_after(key)
    }

    /// The segments, the oldest first.
    fn all(&self) -> impl Iterator<Item = &Segment<A>> {
        let count = self.count.load(Acquire);
        self.segments[..count].iter().filter_map(OnceLock::get)
    }
}

/// The position of a cursor in one segment: at a row, or beyond all rows.
struct Place<'s, A> {
    index: &'s Index<A>,
    row: Option<NonNull<Row>>,
    /// The word of the row's key that follows the common prefix of the keys of all places.
    /// Beyond all rows, the value that comes last in the cursor's direction.
    head: u64,
}

impl<A> Place<'_, A> {
    fn key(&self) -> Option<Key<'_>> {
        // SAFETY: rows of the memtable are whole, and stay as long as it.
        self.row.map(|row| unsafe { Key::of(row) })
    }
}

/// Walks over the rows of all segments in order, forward or backward. A *tree of losers*
/// (Knuth, The Art of Computer Programming 3, 5.4.1) selects the segment with the next row.
pub struct Cursor<'s, A> {
    segments: &'s Segments<A>,
    walk: Walk,
    places: Vec<Place<'s, A>>,
    /// The loser of each match `i` from 1 on, as a number in `places`; at 0, the winner of all.
    /// The players of match `i` are the winners of the matches `2 i` and `2 i + 1`; the numbers
    /// after the last match stand for the places.
    losers: Vec<u16>,
    direction: Direction,
    /// The length of a common prefix of the keys of all places, in bytes.
    common: usize,
    /// Matches between equal heads since `common` was computed.
    ties: Cell<u32>,
}

/// Which rows a cursor visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// All rows.
    Everywhere,
    /// All rows of the map of the key that it starts from; it may miss rows of other maps.
    WithinMap,
}

/// Which way a cursor goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// The head of a place beyond all rows.
    fn end(self) -> u64 {
        match self {
            Direction::Forward => u64::MAX,
            Direction::Backward => 0,
        }
    }
}

impl<'s, A: Arena> Cursor<'s, A> {
    /// A cursor that is at no row yet.
    pub fn new(segments: &'s Segments<A>, walk: Walk) -> Self {
        Cursor {
            segments,
            walk,
            places: Vec::new(),
            losers: Vec::new(),
            direction: Direction::Forward,
            common: 0,
            ties: Cell::new(0),
        }
    }

    /// Goes to the first row.
    pub fn first(&mut self) -> Option<NonNull<Row>> {
        self.start(None, Direction::Forward, Index::first)
    }

    /// Goes to the last row.
    pub fn last(&mut self) -> Option<NonNull<Row>> {
        self.start(None, Direction::Backward, Index::last)
    }

    /// Goes to the first row whose key is not less than this one.
    pub(super) fn at_or_after(&mut self, key: Key) -> Option<NonNull<Row>> {
        self.start(Some(key), Direction::Forward, |index| {
            index.at_or_after(key)
        })
    }

    /// Goes to the last row whose key is not greater than this one.
    pub(super) fn at_or_before(&mut self, key: Key) -> Option<NonNull<Row>> {
        self.start(Some(key), Direction::Backward, |index| {
            index.at_or_before(key)
        })
    }

    /// Goes to the next row; `None` if the cursor is at no row, or at the last one.
    pub fn next(&mut self) -> Option<NonNull<Row>> {
        let (winner, row) = self.current()?;
        if self.direction == Direction::Backward {
            // SAFETY: rows of the memtable are whole.
            let key = unsafe { Key::of(row) };
            self.turn(Direction::Forward, |index| index.at_or_after(key));
        }
        // SAFETY: as above.
        let next = unsafe { row::next(row) };
        // SAFETY: as above.
        if let Some(behind) = next.and_then(|next| unsafe { row::next(next) }) {
            // A flush takes rows of many segments in turn, which are in no cache any more. The
            // row after the next is fetched while rows of other segments are written.
            let memory = behind.as_ptr().cast::<u8>();
            prefetch::line_to_read(memory);
            prefetch::line_to_read(memory.wrapping_add(prefetch::LINE));
        }
        self.step(winner, next)
    }

    /// Goes to the previous row; `None` if the cursor is at no row, or at the first one.
    pub fn previous(&mut self) -> Option<NonNull<Row>> {
        let (winner, row) = self.current()?;
        // SAFETY: rows of the memtable are whole.
        let key = unsafe { Key::of(row) };
        match self.direction {
            Direction::Forward => self.turn(Direction::Backward, |index| index.before(key)),
            Direction::Backward => {
                let before = self.places[winner].index.before(key);
                self.step(winner, before)
            }
        }
    }

    /// Goes to the row that `find` returns in each of the segments that there are now. With
    /// [`Walk::WithinMap`], leaves out the segments that have no rows of the key's map.
    fn start(
        &mut self,
        key: Option<Key>,
        direction: Direction,
        find: impl Fn(&'s Index<A>) -> Option<NonNull<Row>>,
    ) -> Option<NonNull<Row>> {
        let segments = self.segments;
        let key = key.filter(|_| self.walk == Walk::WithinMap);
        let map = key.and_then(|key| segments.hasher.map(key.user()));
        let wanted = segments
            .all()
            .filter(|segment| map.is_none_or(|map| segment.filter.may_have(map)));
        self.places.clear();
        self.places.extend(wanted.map(|segment| Place {
            index: &segment.index,
            row: None,
            head: 0,
        }));
        self.turn(direction, find)
    }

    /// Goes to the row that `find` returns in each of the cursor's segments.
    fn turn(
        &mut self,
        direction: Direction,
        find: impl Fn(&'s Index<A>) -> Option<NonNull<Row>>,
    ) -> Option<NonNull<Row>> {
        self.direction = direction;
        for place in &mut self.places {
            place.row = find(place.index);
        }
        self.play_all()
    }

    /// The number of the place that has the cursor's row, and that row.
    fn current(&self) -> Option<(usize, NonNull<Row>)> {
        let winner = usize::from(*self.losers.first()?);
        Some((winner, self.places[winner].row?))
    }

    /// Moves the winner to another row of its segment. Returns the row of the new winner.
    #[inline]
    fn step(&mut self, winner: usize, row: Option<NonNull<Row>>) -> Option<NonNull<Row>> {
        let last = self.places[winner].key();
        // SAFETY: rows of the memtable are whole.
        let key = row.map(|row| unsafe { Key::of(row) });
        let as_common = match (last, key) {
            (Some(last), Some(key)) => last.shares(key, self.common),
            _ => true,
        };
        let head = key.map_or(self.direction.end(), |key| key.word(self.common));
        let place = &mut self.places[winner];
        (place.row, place.head) = (row, head);
        match as_common && self.ties.get() < TIES {
            true => self.play(winner),
            false => self.play_all(),
        }
    }

    /// Plays all matches. Returns the winner's row.
    #[cold]
    fn play_all(&mut self) -> Option<NonNull<Row>> {
        let mut keys = self.places.iter().filter_map(Place::key);
        let first = keys.next();
        let common = first.and_then(|first| keys.map(|key| first.common_prefix(key)).min());
        // With one key alone no prefix is computed.
        self.common = common.unwrap_or(0);
        self.ties.set(0);
        for place in &mut self.places {
            let head = place.key().map(|key| key.word(self.common));
            place.head = head.unwrap_or(self.direction.end());
        }
        let places = self.places.len();
        self.losers.clear();
        if places == 0 {
            return None;
        }
        self.losers.resize(places, 0);
        // The winner of each match, then the places.
        let mut winners: SmallVec<[u16; 2 * SEGMENTS]> = SmallVec::new();
        winners.resize(places, 0);
        winners.extend(0..places as u16);
        for at in (1..places).rev() {
            let (a, b) = (winners[2 * at], winners[2 * at + 1]);
            let (winner, loser) = if self.beats(b, a) { (b, a) } else { (a, b) };
            winners[at] = winner;
            self.losers[at] = loser;
        }
        self.losers[0] = winners[1];
        self.places[usize::from(winners[1])].row
    }

    /// Plays the matches of the last winner again, which has another row now. Returns the new
    /// winner's row.
    #[inline]
    fn play(&mut self, last: usize) -> Option<NonNull<Row>> {
        let mut winner = last as u16;
        let mut at = (self.places.len() + last) / 2;
        while at > 0 {
            let loser = self.losers[at];
            if self.beats(loser, winner) {
                self.losers[at] = winner;
                winner = loser;
            }
            at /= 2;
        }
        self.losers[0] = winner;
        self.places[usize::from(winner)].row
    }

    /// Whether the first place's row comes before the second's in the cursor's direction.
    #[inline]
    fn beats(&self, first: u16, second: u16) -> bool {
        let (a, b) = (
            &self.places[usize::from(first)],
            &self.places[usize::from(second)],
        );
        match a.head == b.head {
            true => self.beats_in_a_tie(a, b),
            false => (a.head < b.head) == (self.direction == Direction::Forward),
        }
    }

    #[cold]
    fn beats_in_a_tie(&self, a: &Place<A>, b: &Place<A>) -> bool {
        self.ties.set(self.ties.get() + 1);
        match (a.key(), b.key()) {
            (None, _) => false,
            (_, None) => true,
            (Some(a), Some(b)) => (a < b) == (self.direction == Direction::Forward),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
