//! How a turn uses rank indexes, and notes rows that it adds and removes: see
//! [`crate::storage::rank`].

use super::{Txn, View};
use crate::encoding::keys::{self, ELEMENT_PREFIX_LEN, RowKey};
use crate::storage::Direction;
use crate::storage::engine::Keyspace;
use crate::storage::engine::cold_reads::Span;
use crate::storage::engine::rows::{How, Rows};
use crate::storage::rank::{At, CachedIndex, LONG_STRETCH_ROWS, Place, RankIndex, Start, split};
use crate::storage::{DbIndex, Engine, Result, StorageError};
use crate::sys::lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl Txn {
    /// Notes that the row under `key` is added to its map or removed. Must be called for each row
    /// of a map that may have an index.
    pub fn note_row(&mut self, db: DbIndex, key: &[u8], added: bool) -> Result<()> {
        if !self.engine.memory.ranks.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let keyspace = self.keyspace_for_write(db)?;
        if let Some((map, place)) = split(keyspace, key)
            && self.engine.memory.ranks.get(&map).is_some()
        {
            self.batch.rank_changes.push(map, place, added);
        }
        Ok(())
    }
}

impl View {
    /// Whether the map of the row under `key` has an index.
    pub fn has_rank_index(&self, db: DbIndex, key: &[u8]) -> bool {
        let keyspace = self.keyspace(db);
        let map = keyspace.and_then(|keyspace| split(keyspace.id, key));
        map.is_some_and(|(map, _)| self.engine.memory.ranks.get(&map).is_some())
    }

    /// A place at or before the row under `key`, few rows away from it, and the number of rows of
    /// the map before that place. Builds an index for the map if it has none; `None` if that is not
    /// possible now.
    pub fn rank_start_before(&mut self, db: DbIndex, key: &[u8]) -> Result<Option<Start>> {
        self.use_rank_index(db, key, |index, _, place| index.find(place))
    }

    /// A place at or before the row that has `n` others before it in the map of the row under
    /// `key`, like [`View::rank_start_before`].
    pub fn rank_start_at(&mut self, db: DbIndex, key: &[u8], n: u64) -> Result<Option<Start>> {
        self.use_rank_index(db, key, |index, pending, _| index.nth(n, pending))
    }

    fn use_rank_index(
        &mut self,
        db: DbIndex,
        key: &[u8],
        find: impl Fn(&RankIndex, &dyn Fn(&[u8]) -> i64, &[u8]) -> At,
    ) -> Result<Option<Start>> {
        if self.reads.snapshot.is_some() {
            // An index counts the current rows, not those of the snapshot.
            return Err(StorageError::ReadBudgetSpent);
        }
        let Some(keyspace) = self.keyspace(db).cloned() else {
            return Ok(None);
        };
        let Some((map, place)) = split(keyspace.id, key) else {
            return Ok(None);
        };
        let prefix = map.1.as_slice();
        let Some(end) = keys::after_prefix(prefix) else {
            return Ok(None);
        };
        let nothing_pending = self.batch.overlay.is_empty()
            || (!self.batch.overlay.deletes_ranges()
                && self
                    .batch
                    .overlay
                    .sorted_range(keyspace.id, prefix, &end)
                    .is_empty());
        let engine: &Engine = &self.engine;
        let ranks = &engine.memory.ranks;
        let (kept, mut grown) = match ranks.get(&map) {
            Some(kept) => (kept, false),
            None if !nothing_pending => return Ok(None),
            None => {
                let kept = CachedIndex {
                    last_used: AtomicU64::new(0),
                    bytes: AtomicU64::new(0),
                    index: Mutex::new(RankIndex::new()),
                };
                (Arc::new(kept), true)
            }
        };
        if self.batch.overlay.deletes_ranges() {
            return Ok(None);
        }
        let last_used = ranks.uses.fetch_add(1, Ordering::Relaxed);
        kept.last_used.store(last_used, Ordering::Relaxed);
        let pending = |place: &[u8]| self.batch.rank_changes.before(&map, place);
        let mut index = kept.index.lock();
        let mut at = if grown {
            (0, 0)
        } else {
            find(&index, &pending, place)
        };
        if nothing_pending && (grown || index.stretch(at).rows > LONG_STRETCH_ROWS) {
            self.recount(&keyspace, prefix, &end, &mut index, at)?;
            grown = true;
            at = find(&index, &pending, place);
        }
        let place = index.stretch(at).from.clone();
        let before = index.before(at).saturating_add_signed(pending(&place));
        if grown {
            kept.bytes.store(index.bytes, Ordering::Relaxed);
            drop(index);
            ranks.any.store(true, Ordering::Relaxed);
            ranks.kept.write().insert(map, kept);
            ranks.make_room();
        }
        Ok(Some(Start { before, place }))
    }

    /// Scans the rows of a stretch, counts them again and cuts the stretch. `prefix` is the common
    /// prefix of all rows of its map, and `end` the first key after them.
    fn recount(
        &self,
        keyspace: &Arc<Keyspace>,
        prefix: &[u8],
        end: &RowKey,
        index: &mut RankIndex,
        at: At,
    ) -> Result<()> {
        let row_key = |place: &Place| {
            let mut key = RowKey::from_slice(prefix);
            key.extend_from_slice(place);
            key
        };
        let engine: &Engine = &self.engine;
        let from = row_key(&index.stretch(at).from);
        let to = index.end_of(at).map_or_else(|| end.clone(), row_key);
        let how = How {
            cold: self.cold.list(keyspace),
            ..How::default()
        };
        let span = Span::new(&from, &to, Direction::Forward);
        let mut rows = Rows::open(engine, keyspace, &span, how);
        index.recount(at, || {
            self.reads.budget.spend(0)?;
            let found = rows.key().and_then(|key| key.get(ELEMENT_PREFIX_LEN..));
            let found = found.map(Place::from_slice);
            match found {
                Some(_) => rows.next(),
                None => rows.status()?,
            }
            Ok(found)
        })
    }
}
