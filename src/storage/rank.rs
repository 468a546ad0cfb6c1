//! Rank indexes: how many rows a map has in each of its stretches. A command that needs the
//! number of rows before a place, or the n-th row, asks the index and walks the rest of one
//! stretch, instead of all rows from an end.
//!
//! A map gets its index when a command asks for the first time: that costs one walk over its
//! rows. From then on every transaction says which rows come and go
//! ([`Txn::note_row`](super::Txn::note_row)), and the commit counts them. A stretch that has
//! grown long is walked and cut by the next command that looks into it, so each added row is
//! walked over once more at the most. The indexes that were not asked for longest are dropped
//! when all of them take too much memory.
//!
//! An index agrees with what RocksDB has, because
//! - a command that asks holds the lock of the map's key, perhaps shared, and a thread that
//!   commits rows of the map holds it exclusively;
//! - an index is made, and a stretch walked, only while the asker's own batch has nothing
//!   pending in the map; from then on the batch knows what it must add;
//! - a row is said to come or go only when it does.

use crate::encoding::keys::{ELEMENT_PREFIX_LEN, RowKey};
use crate::encoding::system::KeyspaceId;
use crate::storage::Result;
use crate::storage::cache::ranges;
use crate::sys::lock_order::{Lock, Mutex, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rows of a stretch that was just cut; few in tests, so that small maps have many.
const STRETCH_ROWS: u64 = if cfg!(test) { 4 } else { 128 };
/// A stretch of more rows is walked and cut by the next command that looks into it.
pub(in crate::storage) const LONG_STRETCH_ROWS: u64 = 2 * STRETCH_ROWS;
/// Stretches of a chunk; a fuller one is halved.
const CHUNK_STRETCHES: usize = if cfg!(test) { 4 } else { 512 };
/// Stretches begin at places up to this size, in bytes.
const PLACE_MAX: usize = 256;

/// The place of a row in its map: its key without the map's prefix.
pub type Place = SmallVec<[u8; 24]>;

/// A map: its keyspace, and `tag ‖ id`.
pub(in crate::storage) type Map = (KeyspaceId, [u8; ELEMENT_PREFIX_LEN]);

/// Rows that follow each other.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Stretch {
    /// They stand here or later, and before the next stretch.
    pub(in crate::storage) from: Place,
    pub(in crate::storage) rows: u64,
}

/// Stretches that follow each other; never none.
#[derive(Debug)]
struct Chunk {
    rows: u64,
    stretches: Vec<Stretch>,
}

/// The index of one map.
#[derive(Debug)]
pub(in crate::storage) struct RankIndex {
    chunks: Vec<Chunk>,
    /// No row stands before the first of these, nor after the second; `None` for a
    /// map of which no row was seen.
    ends: Option<(Place, Place)>,
    /// What all stretches take in memory.
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

/// A stretch of an index: its chunk, and which of that.
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

    /// Where the stretch behind this one begins.
    pub(in crate::storage) fn end_of(&self, (chunk, at): At) -> Option<&Place> {
        let next = self.chunks[chunk].stretches.get(at + 1);
        let next = next.or_else(|| self.chunks.get(chunk + 1)?.stretches.first());
        next.map(|stretch| &stretch.from)
    }

    /// How many rows stand before a stretch.
    pub(in crate::storage) fn before(&self, (chunk, at): At) -> u64 {
        let chunks = self.chunks[..chunk].iter().map(|chunk| chunk.rows);
        let stretches = &self.chunks[chunk].stretches[..at];
        chunks.sum::<u64>() + stretches.iter().map(|stretch| stretch.rows).sum::<u64>()
    }

    /// The last stretch with no more than `n` rows before it, `pending` of its
    /// beginning added to them.
    pub(in crate::storage) fn nth(&self, n: u64, pending: impl Fn(&[u8]) -> i64) -> At {
        let reached = |at: At| {
            let pending = pending(&self.stretch(at).from);
            self.before(at).saturating_add_signed(pending) <= n
        };
        let chunk = last_that(self.chunks.len(), |chunk| reached((chunk, 0)));
        let stretches = self.chunks[chunk].stretches.len();
        (chunk, last_that(stretches, |at| reached((chunk, at))))
    }

    /// A row came to stand at `place`.
    fn add(&mut self, place: &[u8]) {
        let (before_all, after_all) = match &self.ends {
            Some((first, last)) => (place < first.as_slice(), place > last.as_slice()),
            None => (true, true),
        };
        let at = self.find(place);
        let full = self.stretch(at).rows >= STRETCH_ROWS && place.len() <= PLACE_MAX;
        let here = Place::from_slice(place);
        match &mut self.ends {
            // What grows at an end needs no walk to be cut.
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

    /// The row at `place` has gone. Says whether there can have been one.
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

    /// Puts in an empty stretch before what stands at `at` now.
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

    /// Counts the rows of a stretch anew: all those that `next` shows, in order.
    /// Cuts the stretch where it is long.
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

/// The last of `count` indices for which `holds`, if it holds for the first ones
/// only; 0 if it does for none.
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

/// An index, and when it was asked last.
#[derive(Debug)]
pub(in crate::storage) struct Kept {
    pub(in crate::storage) asked: AtomicU64,
    pub(in crate::storage) bytes: AtomicU64,
    pub(in crate::storage) index: Mutex<RankIndex, { Lock::RankIndex as u8 }>,
}

/// All rank indexes.
#[derive(Debug, Default)]
pub(in crate::storage) struct RankIndexes {
    /// Whether there has ever been one: most servers never have any.
    pub(in crate::storage) any: AtomicBool,
    pub(in crate::storage) kept: RwLock<FxHashMap<Map, Arc<Kept>>, { Lock::RankIndexes as u8 }>,
    pub(in crate::storage) questions: AtomicU64,
    budget: AtomicU64,
}

impl RankIndexes {
    /// Room for `budget` bytes.
    pub(in crate::storage) fn new(budget: u64) -> RankIndexes {
        RankIndexes {
            budget: AtomicU64::new(budget),
            ..RankIndexes::default()
        }
    }

    /// Changes how many bytes may be held; what is too much is dropped when an index grows.
    pub(in crate::storage) fn set_budget(&self, budget: u64) {
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// How many indexes there are, and their bytes.
    pub(in crate::storage) fn usage(&self) -> (u64, u64) {
        let kept = self.kept.read();
        let bytes = kept.values().map(|kept| kept.bytes.load(Ordering::Relaxed));
        (kept.len() as u64, bytes.sum())
    }

    pub(in crate::storage) fn get(&self, map: &Map) -> Option<Arc<Kept>> {
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

    /// The maps of a keyspace with their stretches: where each begins, and how many
    /// rows it has.
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

    /// Forgets what it knows of the maps with rows in `[from, to)`: of one, or of
    /// all in the keyspace.
    pub(in crate::storage) fn forget_range(&self, keyspace: KeyspaceId, from: &[u8], to: &[u8]) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        match ranges::map_of(from, to).and_then(|prefix| prefix.try_into().ok()) {
            Some(prefix) => self.forget(&(keyspace, prefix)),
            None => self.kept.write().retain(|(of, _), _| *of != keyspace),
        }
    }

    /// Keeps to the budget: those go first that nobody has asked for longest.
    pub(in crate::storage) fn make_room(&self) {
        let budget = self.budget.load(Ordering::Relaxed);
        while self.usage().1 > budget {
            let mut kept = self.kept.write();
            let asked = |kept: &Arc<Kept>| kept.asked.load(Ordering::Relaxed);
            let oldest = kept.iter().min_by_key(|(_, kept)| asked(kept));
            let Some(oldest) = oldest.map(|(map, _)| *map) else {
                return;
            };
            kept.remove(&oldest);
        }
    }

    /// Counts what a commit has written.
    pub(in crate::storage) fn count(&self, moves: &Moves) {
        let mut last: Option<(Map, Option<Arc<Kept>>)> = None;
        let mut grown = false;
        for (map, place, came) in moves.iter() {
            if last.as_ref().is_none_or(|(of, _)| *of != map) {
                last = Some((map, self.get(&map)));
            }
            let Some((_, Some(kept))) = &last else {
                continue;
            };
            let mut index = kept.index.lock();
            if came {
                index.add(place);
                grown |= kept.bytes.swap(index.bytes, Ordering::Relaxed) != index.bytes;
            } else if !index.take(place) {
                drop(index);
                debug_assert!(false, "a row has gone that was not there");
                self.forget(&map);
                last = None;
            }
        }
        if grown {
            self.make_room();
        }
    }

    /// A commit has failed: nobody knows what it has written.
    pub(in crate::storage) fn forget_all_of(&self, moves: &Moves) {
        for (map, ..) in moves.iter() {
            self.forget(&map);
        }
    }
}

/// Which rows of maps with ranks come and go in a pending batch, in order.
#[derive(Debug, Default)]
pub(in crate::storage) struct Moves {
    list: Vec<Move>,
    places: Vec<u8>,
}

#[derive(Debug)]
struct Move {
    map: Map,
    at: usize,
    came: bool,
}

impl Moves {
    pub(in crate::storage) fn push(&mut self, map: Map, place: &[u8], came: bool) {
        let at = self.places.len();
        self.list.push(Move { map, at, came });
        self.places.extend_from_slice(place);
    }

    pub(in crate::storage) fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes back all but the first `keep`.
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
            (entry.map, &self.places[entry.at..end], entry.came)
        })
    }

    /// How many rows of a map they add before a place.
    pub(in crate::storage) fn before(&self, map: &Map, place: &[u8]) -> i64 {
        let of_map = self.iter().filter(|(of, at, _)| of == map && *at < place);
        of_map.map(|(_, _, came)| if came { 1 } else { -1 }).sum()
    }
}

/// Where to go on counting from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// So many rows of the map stand before it.
    pub before: u64,
    /// The place of a row, or one between two.
    pub place: Place,
}

/// The map of a row, if that may have an index, and its place there.
pub(in crate::storage) fn split(keyspace: KeyspaceId, key: &[u8]) -> Option<(Map, &[u8])> {
    let (prefix, place) = key.split_first_chunk::<ELEMENT_PREFIX_LEN>()?;
    ranges::is_cacheable_range_row(key).then_some(((keyspace, *prefix), place))
}
