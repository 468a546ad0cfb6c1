//! Rank indexes: the number of rows in each stretch of a map. A command that needs the number of
//! rows before a place, or the n-th row, consults the index and scans the rest of one stretch,
//! instead of all rows from an end.
//!
//! A map gets its index when a command first needs it: that costs one scan over its rows. From then
//! on every transaction notes which rows are added and removed
//! ([`Txn::note_row`](super::Txn::note_row)), and the commit counts them. A stretch that has grown
//! long is scanned and cut by the next command that uses it, so each added row is scanned once more
//! at the most. The least recently used indexes are dropped when all of them take too much memory.
//!
//! An index agrees with the rows in RocksDB, because
//! - a command that uses it holds the lock of the map's key, perhaps shared, and a thread that
//!   commits rows of the map holds it exclusively;
//! - an index is built, and a stretch scanned, only while the thread's own batch has nothing
//!   pending in the map; from then on the batch knows what it must add;
//! - a row is noted as added or removed only when it is.

use crate::encoding::keys::{ELEMENT_PREFIX_LEN, RowKey};
use crate::encoding::system::KeyspaceId;
use crate::encoding::tag;
use crate::storage::Result;
use crate::storage::cache::ranges;
use crate::sys::lock_order::{Lock, Mutex, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rows of a stretch that was just cut; few in tests, so that small maps have many stretches.
const STRETCH_ROWS: u64 = if cfg!(test) { 4 } else { 128 };
/// A stretch of more rows is scanned and cut by the next command that uses it.
pub(in crate::storage) const LONG_STRETCH_ROWS: u64 = 2 * STRETCH_ROWS;
/// Stretches of a chunk; a larger one is halved.
const CHUNK_STRETCHES: usize = if cfg!(test) { 4 } else { 512 };
/// Places at which stretches begin have at most so many bytes.
const PLACE_MAX: usize = 256;

/// The place of a row in its map: its key without the map's prefix.
pub type Place = SmallVec<[u8; 24]>;

/// A map: its keyspace, and `tag ‖ id`.
pub(in crate::storage) type Map = (KeyspaceId, [u8; ELEMENT_PREFIX_LEN]);

/// Consecutive rows.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Stretch {
    /// The rows stand at this place or later, and before the next stretch.
    pub(in crate::storage) from: Place,
    pub(in crate::storage) rows: u64,
}

/// Consecutive stretches, at least one.
#[derive(Debug)]
struct Chunk {
    rows: u64,
    stretches: Vec<Stretch>,
}

/// The index of one map.
#[derive(Debug)]
pub(in crate::storage) struct RankIndex {
    chunks: Vec<Chunk>,
    /// No row stands before the first of these, nor after the second; `None` for a map in which no
    /// row was seen.
    ends: Option<(Place, Place)>,
    /// The memory of all stretches, in bytes.
    pub(in crate::storage) bytes: u64,
}

impl Stretch {
    fn new(from: Place) -> Stretch {
        Stretch { from, rows: 0 }
    }

    fn bytes(&self) -> u64 {
        (size_of::<Stretch>() + self.from.len()) as u64
    }
}

/// The position of a stretch in an index: its chunk, and its number in that.
pub(in crate::storage) type At = (usize, usize);

impl RankIndex {
    pub(in crate::storage) fn new() -> RankIndex {
        let all = Stretch::new(Place::new());
        RankIndex {
            bytes: all.bytes(),
            chunks: vec![Chunk {
                rows: 0,
                stretches: vec![all],
            }],
            ends: None,
        }
    }

    /// The stretch in which a row at `place` stands.
    pub(in crate::storage) fn find(&self, place: &[u8]) -> At {
        let chunks = &self.chunks;
        let chunk = chunks.partition_point(|chunk| chunk.stretches[0].from.as_slice() <= place);
        let chunk = chunk.saturating_sub(1);
        let stretches = &chunks[chunk].stretches;
        let at = stretches.partition_point(|stretch| stretch.from.as_slice() <= place);
        (chunk, at.saturating_sub(1))
    }

    pub(in crate::storage) fn stretch(&self, (chunk, at): At) -> &Stretch {
        &self.chunks[chunk].stretches[at]
    }

    /// The place where the next stretch begins.
    pub(in crate::storage) fn end_of(&self, (chunk, at): At) -> Option<&Place> {
        let next = self.chunks[chunk].stretches.get(at + 1);
        let next = next.or_else(|| self.chunks.get(chunk + 1)?.stretches.first());
        next.map(|stretch| &stretch.from)
    }

    /// The number of rows before a stretch.
    pub(in crate::storage) fn before(&self, (chunk, at): At) -> u64 {
        let chunks = self.chunks[..chunk].iter().map(|chunk| chunk.rows);
        let stretches = &self.chunks[chunk].stretches[..at];
        chunks.sum::<u64>() + stretches.iter().map(|stretch| stretch.rows).sum::<u64>()
    }

    /// The last stretch with at most `n` rows before it, counting what `pending` returns for its
    /// beginning.
    pub(in crate::storage) fn nth(&self, n: u64, pending: impl Fn(&[u8]) -> i64) -> At {
        let reached = |at: At| {
            let pending = pending(&self.stretch(at).from);
            self.before(at).saturating_add_signed(pending) <= n
        };
        let chunk = last_that(self.chunks.len(), |chunk| reached((chunk, 0)));
        let stretches = self.chunks[chunk].stretches.len();
        (chunk, last_that(stretches, |at| reached((chunk, at))))
    }

    /// Counts a row that was added at `place`.
    fn add(&mut self, place: &[u8]) {
        let (before_all, after_all) = match &self.ends {
            Some((first, last)) => (place < first.as_slice(), place > last.as_slice()),
            None => (true, true),
        };
        let at = self.find(place);
        let full = self.stretch(at).rows >= STRETCH_ROWS && place.len() <= PLACE_MAX;
        let here = Place::from_slice(place);
        match &mut self.ends {
            // A stretch that grows at an end of the map is cut without a scan.
            Some((_, last)) if after_all => {
                *last = here.clone();
                if full {
                    self.insert((at.0, at.1 + 1), Stretch::new(here));
                }
            }
            Some((first, _)) if before_all => {
                let old_first = std::mem::replace(first, here);
                if full && old_first.len() <= PLACE_MAX {
                    self.bytes += old_first.len() as u64;
                    self.chunks[at.0].stretches[at.1].from = old_first;
                    self.insert(at, Stretch::new(Place::new()));
                }
            }
            Some(_) => {}
            None => self.ends = Some((here.clone(), here)),
        }
        let (chunk, at) = self.find(place);
        self.chunks[chunk].rows += 1;
        self.chunks[chunk].stretches[at].rows += 1;
    }

    /// Counts the removal of the row at `place`. Returns false if the stretch has no rows.
    fn take(&mut self, place: &[u8]) -> bool {
        let (chunk, at) = self.find(place);
        let chunk = &mut self.chunks[chunk];
        let stretch = &mut chunk.stretches[at];
        match (chunk.rows.checked_sub(1), stretch.rows.checked_sub(1)) {
            (Some(of_chunk), Some(of_stretch)) => {
                (chunk.rows, stretch.rows) = (of_chunk, of_stretch);
                true
            }
            _ => false,
        }
    }

    /// Inserts an empty stretch before the one at `at`.
    fn insert(&mut self, (chunk, at): At, stretch: Stretch) {
        self.bytes += stretch.bytes();
        self.chunks[chunk].stretches.insert(at, stretch);
        self.halve(chunk);
    }

    fn halve(&mut self, chunk: usize) {
        let full = &mut self.chunks[chunk];
        if full.stretches.len() <= CHUNK_STRETCHES {
            return;
        }
        let stretches = full.stretches.split_off(CHUNK_STRETCHES / 2);
        let rows = stretches.iter().map(|stretch| stretch.rows).sum();
        full.rows -= rows;
        self.chunks.insert(chunk + 1, Chunk { rows, stretches });
        self.halve(chunk + 1);
    }

    /// Counts the rows of a stretch again: all those that `next` returns, in order. Cuts the
    /// stretch if it is long.
    pub(in crate::storage) fn recount(
        &mut self,
        (chunk, at): At,
        mut next: impl FnMut() -> Result<Option<Place>>,
    ) -> Result<()> {
        let from = self.chunks[chunk].stretches[at].from.clone();
        let mut cut = vec![Stretch::new(from)];
        let mut first = None;
        let mut last = Place::new();
        while let Some(place) = next()? {
            if cut[cut.len() - 1].rows >= STRETCH_ROWS {
                let same = place.iter().zip(&last).take_while(|(a, b)| a == b).count();
                if same < PLACE_MAX {
                    cut.push(Stretch::new(Place::from_slice(&place[..=same])));
                }
            }
            let stretches = cut.len();
            cut[stretches - 1].rows += 1;
            first.get_or_insert_with(|| place.clone());
            last = place;
        }
        if let Some(first) = first {
            let (low, high) = self.ends.take().unwrap_or((first.clone(), last.clone()));
            self.ends = Some((low.min(first), high.max(last)));
        }
        let here = &mut self.chunks[chunk];
        here.rows -= here.stretches[at].rows;
        here.rows += cut.iter().map(|stretch| stretch.rows).sum::<u64>();
        self.bytes -= here.stretches[at].bytes();
        self.bytes += cut.iter().map(Stretch::bytes).sum::<u64>();
        here.stretches.splice(at..=at, cut);
        self.halve(chunk);
        Ok(())
    }
}

/// The last of `count` indices for which `holds` is true, if it is true for the first ones only; 0
/// if it is true for none.
fn last_that(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        match holds(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// An index, and when it was last used.
#[derive(Debug)]
pub(in crate::storage) struct CachedIndex {
    pub(in crate::storage) last_used: AtomicU64,
    pub(in crate::storage) bytes: AtomicU64,
    pub(in crate::storage) index: Mutex<RankIndex, { Lock::RankIndex as u8 }>,
}

/// All rank indexes.
#[derive(Debug, Default)]
pub(in crate::storage) struct RankIndexes {
    /// Whether there has ever been an index: most servers never have one.
    pub(in crate::storage) any: AtomicBool,
    pub(in crate::storage) kept:
        RwLock<FxHashMap<Map, Arc<CachedIndex>>, { Lock::RankIndexes as u8 }>,
    pub(in crate::storage) uses: AtomicU64,
    budget: AtomicU64,
}

impl RankIndexes {
    /// Indexes of at most `budget` bytes.
    pub(in crate::storage) fn new(budget: u64) -> RankIndexes {
        RankIndexes {
            budget: AtomicU64::new(budget),
            ..RankIndexes::default()
        }
    }

    /// Changes the memory budget. Indexes beyond it are dropped when one grows.
    pub(in crate::storage) fn set_budget(&self, budget: u64) {
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// The number of indexes, and their bytes.
    pub(in crate::storage) fn usage(&self) -> (u64, u64) {
        let kept = self.kept.read();
        let bytes = kept.values().map(|kept| kept.bytes.load(Ordering::Relaxed));
        (kept.len() as u64, bytes.sum())
    }

    pub(in crate::storage) fn get(&self, map: &Map) -> Option<Arc<CachedIndex>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.kept.read().get(map).cloned()
    }

    fn forget(&self, map: &Map) {
        if self.any.load(Ordering::Relaxed) {
            self.kept.write().remove(map);
        }
    }

    /// The maps of a keyspace that have an index, with the first place and the number of rows of each
    /// stretch.
    pub(in crate::storage) fn stretches(
        &self,
        keyspace: KeyspaceId,
    ) -> Vec<(RowKey, Vec<(Place, u64)>)> {
        let kept = self.kept.read();
        let of_keyspace = kept.iter().filter(|((of, _), _)| *of == keyspace);
        let maps = of_keyspace.map(|((_, prefix), kept)| {
            let index = kept.index.lock();
            let stretches = index.chunks.iter().flat_map(|chunk| &chunk.stretches);
            let stretches = stretches.map(|stretch| (stretch.from.clone(), stretch.rows));
            (RowKey::from_slice(prefix), stretches.collect())
        });
        maps.collect()
    }

    /// Drops the index of the map that has `[from, to)`, or all indexes of the keyspace if the
    /// range is not within one map.
    pub(in crate::storage) fn forget_range(&self, keyspace: KeyspaceId, from: &[u8], to: &[u8]) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        match ranges::map_of(from, to).and_then(|prefix| prefix.try_into().ok()) {
            Some(prefix) => self.forget(&(keyspace, prefix)),
            None => self.kept.write().retain(|(of, _), _| *of != keyspace),
        }
    }

    /// Drops the least recently used indexes until the rest fit into the budget.
    pub(in crate::storage) fn make_room(&self) {
        let budget = self.budget.load(Ordering::Relaxed);
        while self.usage().1 > budget {
            let mut kept = self.kept.write();
            let last_used = |kept: &Arc<CachedIndex>| kept.last_used.load(Ordering::Relaxed);
            let oldest = kept.iter().min_by_key(|(_, kept)| last_used(kept));
            let Some(oldest) = oldest.map(|(map, _)| *map) else {
                return;
            };
            kept.remove(&oldest);
        }
    }

    /// Counts the rows that a commit has added and removed.
    pub(in crate::storage) fn count(&self, changes: &RankChanges) {
        let mut last: Option<(Map, Option<Arc<CachedIndex>>)> = None;
        let mut grown = false;
        for (map, place, added) in changes.iter() {
            if last.as_ref().is_none_or(|(of, _)| *of != map) {
                last = Some((map, self.get(&map)));
            }
            let Some((_, Some(kept))) = &last else {
                continue;
            };
            let mut index = kept.index.lock();
            if added {
                index.add(place);
                grown |= kept.bytes.swap(index.bytes, Ordering::Relaxed) != index.bytes;
            } else if !index.take(place) {
                drop(index);
                debug_assert!(false, "a row was removed that was not counted");
                self.forget(&map);
                last = None;
            }
        }
        if grown {
            self.make_room();
        }
    }

    /// Drops the indexes of the maps of a failed commit, whose effect is not known.
    pub(in crate::storage) fn forget_all_of(&self, changes: &RankChanges) {
        for (map, ..) in changes.iter() {
            self.forget(&map);
        }
    }
}

/// Rows of maps with rank indexes that a pending batch adds and removes, in order.
#[derive(Debug, Default)]
pub(in crate::storage) struct RankChanges {
    list: Vec<RankChange>,
    places: Vec<u8>,
}

#[derive(Debug)]
struct RankChange {
    map: Map,
    at: usize,
    added: bool,
}

impl RankChanges {
    pub(in crate::storage) fn push(&mut self, map: Map, place: &[u8], added: bool) {
        let at = self.places.len();
        self.list.push(RankChange { map, at, added });
        self.places.extend_from_slice(place);
    }

    pub(in crate::storage) fn len(&self) -> usize {
        self.list.len()
    }

    /// Drops all but the first `keep`.
    pub(in crate::storage) fn truncate(&mut self, keep: usize) {
        if let Some(first) = self.list.get(keep) {
            self.places.truncate(first.at);
            self.list.truncate(keep);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (Map, &[u8], bool)> {
        self.list.iter().enumerate().map(|(n, entry)| {
            let end = self
                .list
                .get(n + 1)
                .map_or(self.places.len(), |next| next.at);
            (entry.map, &self.places[entry.at..end], entry.added)
        })
    }

    /// The number of rows that they add to a map before a place.
    pub(in crate::storage) fn before(&self, map: &Map, place: &[u8]) -> i64 {
        let of_map = self.iter().filter(|(of, at, _)| of == map && *at < place);
        of_map.map(|(_, _, added)| if added { 1 } else { -1 }).sum()
    }
}

/// Where to continue counting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The number of rows of the map before it.
    pub before: u64,
    /// The place of a row, or one between two.
    pub place: Place,
}

/// The map of a row, if that may have an index, and its place there.
pub(in crate::storage) fn split(keyspace: KeyspaceId, key: &[u8]) -> Option<(Map, &[u8])> {
    let (prefix, place) = key.split_first_chunk::<ELEMENT_PREFIX_LEN>()?;
    let is_ordered_by_time = matches!(key.first(), Some(&(tag::FIELD_DUE | tag::MEMBER_DUE)));
    let may_have_one = is_ordered_by_time || ranges::is_cacheable_range_row(key);
    may_have_one.then_some(((keyspace, *prefix), place))
}
