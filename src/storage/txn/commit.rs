//! The commit of a turn: one batch of rows, binlog, counts and state, and the update of what other
//! threads see.

use super::{Txn, ahead};
use crate::encoding::CollectionId;
use crate::encoding::keys::element;
use crate::encoding::keys::{self, ELEMENT_PREFIX_LEN};
use crate::encoding::system::KeyspaceId;
use crate::encoding::tag;
use crate::storage::cache::ranges;
use crate::storage::cache::rows::is_cacheable;
use crate::storage::engine::Keyspace;
use crate::storage::engine::ahead::Place;
use crate::storage::memtable::ExpectedRows;
use crate::storage::txn::overlay::Step;
use crate::storage::{Result, StorageError, fail_point};
use rocksdb::WriteBatch;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes in a batch besides the pending rows and the commands: its header, and the state row with
/// the counts of some dozens of DBs.
const OTHER_ROWS_BYTES: usize = 1024;

/// The map whose cached ranges were updated last.
#[derive(Default)]
struct LastMap {
    keyspace: Option<KeyspaceId>,
    hash: u64,
    names: [keys::RowKey; 2],
}

impl Txn {
    /// Writes everything pending in one batch and releases all locks. The operating system
    /// has the batch then; with `appendfsync always` it is durable only after
    /// [`crate::storage::Engine::make_durable`].
    ///
    /// # Errors
    /// Nothing of the batch is written. Except after [`StorageError::NoRoom`] the engine refuses
    /// writes until it has [recovered](crate::storage::Engine::heal).
    pub fn commit(&mut self) -> Result<()> {
        if self.staging.is_some() {
            return self.commit_staged();
        }
        let nothing = self.batch.overlay.is_empty()
            && self.batch.log.is_empty()
            && self.batch.swaps.is_empty()
            && self.batch.system_rows.is_empty()
            && self.batch.early.is_empty();
        let done = if nothing { Ok(()) } else { self.write() };
        if !self.batch.cleared.is_empty() {
            // Rows written after the clearing must not be dropped with the files.
            let view = &mut self.view;
            let overlay = &view.batch.overlay;
            view.batch
                .cleared
                .retain(|keyspace| !overlay.puts_into(*keyspace));
        }
        if done.is_ok()
            && !self.batch.cleared.is_empty()
            && let Err(error) = self.drop_cleared_files()
        {
            // It is committed; compactions will drop the rows in the files.
            self.engine.fail(&error);
        }
        if let Err(error) = &done {
            self.engine.fail_unless_refused(error);
            self.undo_swaps(0);
            self.engine
                .memory
                .ranks
                .forget_all_of(&self.batch.rank_changes);
        }
        // The locks are still held: see `crate::storage::txn::changes`.
        self.announce_changes();
        self.end_turn(done.is_ok());
        done
    }

    /// Updates the caches: other threads read from them once the key locks are released.
    pub(super) fn refresh_caches(&self) {
        let ranks = &self.engine.memory.ranks;
        ranks.count(&self.batch.rank_changes);
        for &id in &self.batch.cleared {
            if let Some(keyspace) = self.by_id(id) {
                keyspace.forget_cached_rows();
            }
        }
        let cache = &self.engine.memory.rows;
        for (id, from, to) in self.batch.overlay.deleted_ranges() {
            ranks.forget_range(id, from, to);
            if let (Some(keyspace), Some(map)) = (self.by_id(id), ranges::map_of(from, to)) {
                let hash = self.batch.overlay.hash(id, map);
                cache.forget_ranges(keyspace.cache_hash(hash), &ranges::names(map));
            }
        }
        let retired = self.retired();
        self.refresh_rows(&retired);
        for (id, dead) in retired {
            let Some(keyspace) = self.by_id(id) else {
                continue;
            };
            for prefix in ranges::TAGS.map(|tag| keys::element_prefix(tag, dead)) {
                let hash = self.batch.overlay.hash(id, &prefix);
                cache.forget_ranges(keyspace.cache_hash(hash), &ranges::names(&prefix));
            }
        }
    }

    /// Updates the cached copies of the rows that were written. Those of collections that are
    /// `retired` are dropped.
    fn refresh_rows(&self, retired: &BTreeSet<Place>) {
        let cache = &self.engine.memory.rows;
        // Most rows belong to the same keyspace as the row before.
        let of = |last: &mut Option<_>, id| {
            if last.is_none_or(|keyspace: &Arc<Keyspace>| keyspace.id != id) {
                *last = self.by_id(id);
            }
            *last
        };
        let (mut expected, mut last) = (None, None);
        let mut expected_map = None;
        let expect = |id, hash, key: &[u8]| {
            let (in_range, cacheable) = (ranges::is_cacheable_range_row(key), is_cacheable(key));
            if !in_range && !cacheable {
                return;
            }
            let Some(keyspace) = of(&mut expected, id) else {
                return;
            };
            if cacheable {
                cache.prefetch_set(keyspace.cache_hash(hash));
            }
            // The cached ranges of its map stand in another set.
            if in_range
                && let Some(map) = key.first_chunk::<ELEMENT_PREFIX_LEN>()
                && expected_map != Some((id, *map))
            {
                expected_map = Some((id, *map));
                let hash = self.batch.overlay.hash(id, map);
                cache.prefetch_set(keyspace.cache_hash(hash));
            }
        };
        let mut map = LastMap::default();
        self.batch
            .overlay
            .for_each_row(expect, |id, hash, key, value| {
                let (mut in_range, cacheable) =
                    (ranges::is_cacheable_range_row(key), is_cacheable(key));
                if !in_range && !cacheable {
                    return;
                }
                let Some(keyspace) = of(&mut last, id) else {
                    return;
                };
                let is_retired = !retired.is_empty()
                    && element(key)
                        .is_some_and(|(element_of, _)| retired.contains(&(id, element_of)));
                let value = value.filter(|_| !is_retired);
                in_range &= !is_retired;
                if cacheable {
                    cache.update(keyspace.cache_hash(hash), key, value);
                }
                if !in_range {
                    return;
                }
                let prefix = &key[..ELEMENT_PREFIX_LEN];
                if map.keyspace != Some(id) || map.names[0][..ELEMENT_PREFIX_LEN] != *prefix {
                    map = LastMap {
                        keyspace: Some(id),
                        hash: keyspace.cache_hash(self.batch.overlay.hash(id, prefix)),
                        names: ranges::names(prefix),
                    };
                }
                cache.update_ranges(map.hash, &map.names, key, value);
            });
    }

    /// The collections that this turn leaves to the reclaim passes. A pass may have removed their
    /// rows already, so none of them may be cached any more.
    fn retired(&self) -> BTreeSet<Place> {
        if self
            .batch
            .deltas
            .iter()
            .all(|delta| delta.reclaim == u64::MAX)
        {
            return BTreeSet::new();
        }
        let queued = self.batch.overlay.puts_under(tag::RECLAIM);
        let retired = queued.filter_map(|(id, key)| Some((id, keys::split_reclaim(key).ok()?)));
        retired.collect()
    }

    /// Frees the space of cleared DBs at once. The turn is still exclusive.
    fn drop_cleared_files(&self) -> Result<()> {
        debug_assert!(self.is_exclusive());
        self.engine.make_durable()?;
        for &id in &self.batch.cleared {
            // Rows written after the clearing may stand in a file by now.
            if !self.batch.overlay.writes_to(id)
                && let Some(keyspace) = self.by_id(id)
            {
                self.engine.drop_files(keyspace)?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let collections = self.view.large_new_collections();
        let sent: ahead::Sent = collections.keys().copied().collect();
        let mut unqueued = self.batch.early.clone();
        unqueued.extend(&sent);
        let engine = self.engine.clone();
        let room = engine.disk.reserve(self.pending_bytes());
        let written = room.and_then(|_kept| {
            fail_point("before-commit")?;
            self.view.send_ahead(&collections)?;
            self.write_batch(&sent, &unqueued)
        });
        if !unqueued.is_empty() {
            self.engine.ahead.remove_all(&unqueued);
            for (keyspace, id) in unqueued.iter().filter(|_| written.is_err()) {
                self.announce_reclaim(*keyspace, *id);
            }
        }
        written
    }

    /// Announces a collection to the reclaim passes, unless its keyspace is gone.
    pub(super) fn announce_reclaim(&self, keyspace: KeyspaceId, id: CollectionId) {
        if let Some(keyspace) = self.by_id(keyspace) {
            keyspace.reclaim_low.announce(id.0);
        }
    }

    /// The batch with all rows of DBs and all system rows, except those that were `sent` ahead of
    /// it.
    fn rows_of_batch(
        &self,
        sent: &ahead::Sent,
        unqueued: &[Place],
        expected: &mut ExpectedRows,
    ) -> Result<WriteBatch> {
        let view = &self.view;
        // A batch that grows copies its contents.
        let bytes =
            view.batch.overlay.batch_bytes() + view.batch.log.batch_bytes() + OTHER_ROWS_BYTES;
        let mut batch = WriteBatch::with_capacity_bytes(bytes);
        let mut last: Option<&Arc<Keyspace>> = None;
        let mut cf_of = |id: KeyspaceId| match last {
            Some(ks) if ks.id == id => Ok(ks),
            _ => {
                last = view.by_id(id);
                last.ok_or_else(|| StorageError::Format(format!("keyspace {} is gone", id.0)))
            }
        };
        for (keyspace, id) in unqueued {
            let key = keys::reclaim(*id);
            expected.push(keyspace.0.into(), &key);
            batch.delete_cf(&cf_of(*keyspace)?.cf, key);
        }
        for step in view.batch.overlay.steps() {
            match step {
                Step::Put(id, key, _) if ahead::was_sent(sent, id, key) => {}
                Step::Put(id, key, value) => {
                    expected.push(id.0.into(), key);
                    batch.put_cf(&cf_of(id)?.cf, key, value);
                }
                Step::Delete(id, key) => {
                    expected.push(id.0.into(), key);
                    batch.delete_cf(&cf_of(id)?.cf, key);
                }
                Step::DeleteRange(id, from, to) => {
                    let keyspace = cf_of(id)?;
                    batch.delete_range_cf(&keyspace.cf, from, to);
                    keyspace.deletions.note_range(from, to);
                }
            }
        }
        for (key, value) in &view.batch.system_rows {
            view.engine
                .put_system_row(key, value.as_deref(), &mut batch);
        }
        for (a, b) in &view.batch.swaps {
            view.engine.put_map_rows(&[*a, *b], &mut batch);
        }
        Ok(batch)
    }

    /// Writes all rows except those that were `sent` ahead.
    fn write_batch(&mut self, sent: &ahead::Sent, unqueued: &[Place]) -> Result<()> {
        self.log_row();
        let mut expected = ExpectedRows::begin();
        let mut batch = self.rows_of_batch(sent, unqueued, &mut expected)?;
        let engine = &self.view.engine;
        let mut commit = engine.commit.lock();
        let (log, now_ms) = (&mut self.view.batch.log, self.view.turn.now_ms);
        if let Err(error) = engine.put_log(&mut commit, log, now_ms, &mut batch) {
            engine.forget_commit(&mut commit);
            return Err(error);
        }
        let view = &self.view;
        for delta in &view.batch.deltas {
            if let Some(keyspace) = view.by_id(delta.keyspace) {
                engine.put_counts(&mut commit, keyspace, delta.counts, &mut batch);
            }
        }
        let slots = view.slots_after();
        view.put_slots(&slots, &mut batch);
        engine.put_state(&mut commit, &mut batch);
        // The batch holds these rows now, and RocksDB is about to copy them once more.
        self.view.batch.log.free_long_rows();
        self.view.batch.overlay.free_long_rows();
        let view = &self.view;
        let written = expected.during(|| engine.write(batch));
        if let Err(error) = &written {
            // Under the commit lock, so that the next commit sees the failure.
            engine.fail(error);
            engine.forget_commit(&mut commit);
            for delta in &view.batch.deltas {
                if let Some(keyspace) = view.by_id(delta.keyspace) {
                    engine.forget_counts(&mut commit, keyspace);
                }
            }
            return written;
        }
        // Not if nothing was written: another commit ends at a lower position then.
        view.batch
            .values
            .note_referenced(commit.state.binlog_position);
        let all = self.is_exclusive();
        let of_set = view.turn.set.iter().flat_map(|set| set.stripes());
        let held = view.turn.held.iter().copied();
        engine.durability.note_changed(held.chain(of_set), all);
        // Before the first row of the new history is visible to the feeders of replicas.
        if let Some(history) = commit.history.take() {
            engine.publish_history(history);
        }
        engine.publish_log(&commit.state);
        for delta in &view.batch.deltas {
            if let Some(keyspace) = view.by_id(delta.keyspace) {
                keyspace.add(delta.counts);
            }
        }
        slots.publish();
        drop(commit);
        fail_point("before-refresh")?;
        self.refresh_caches();
        for delta in &view.batch.deltas {
            if let Some(keyspace) = view.by_id(delta.keyspace) {
                keyspace.ttl_low_ms.announce(delta.ttl_ms);
                keyspace.due_low_ms.announce(delta.due_ms);
                keyspace.reclaim_low.announce(delta.reclaim);
            }
        }
        fail_point("after-commit")
    }
}
