//! What a turn changes of the counts of keys by slot: see
//! [`crate::storage::engine`]'s `slot_counts`.

use super::View;
use crate::base::slots::{self, SLOTS};
use crate::encoding::keys::Layout;
use crate::encoding::system::{self, KeyspaceId};
use crate::storage::DbIndex;
use crate::storage::engine::Keyspace;
use rocksdb::WriteBatch;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change.
#[derive(Debug, Clone, Copy)]
enum Noted {
    /// A key is new (1) or gone (−1).
    Key { slot: u16, change: i64 },
    /// All keys are gone.
    NoKeys,
}

/// The changes of a turn, in their order; empty in a database without slots. A savepoint is their
/// number, so that it costs nothing.
#[derive(Debug, Default)]
pub(in crate::storage) struct SlotChanges(Vec<(KeyspaceId, Noted)>);

impl SlotChanges {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// The counts after these changes, of the slots that change.
    fn after(&self, keyspace: &Keyspace) -> BTreeMap<u16, u64> {
        let mut after = BTreeMap::new();
        let Some(counts) = keyspace.slots() else {
            return after;
        };
        for (_, noted) in self.0.iter().filter(|(id, _)| *id == keyspace.id) {
            match *noted {
                Noted::Key { slot, change } => {
                    let count = after.entry(slot).or_insert_with(|| counts.get(slot));
                    *count = count.saturating_add_signed(change);
                }
                Noted::NoKeys => {
                    after.values_mut().for_each(|count| *count = 0);
                    let used = (0..SLOTS).filter(|slot| counts.get(*slot) > 0);
                    after.extend(used.map(|slot| (slot, 0)));
                }
            }
        }
        after
    }
}

/// Counts that become true with a commit.
#[derive(Default)]
pub(super) struct SlotsAfter(Vec<(Arc<Keyspace>, BTreeMap<u16, u64>)>);

impl SlotsAfter {
    /// Publishes the counts, once the batch is written.
    pub(super) fn publish(&self) {
        for (keyspace, after) in &self.0 {
            for (slot, keys) in after {
                keyspace.slots().inspect(|counts| counts.set(*slot, *keys));
            }
        }
    }
}

impl View {
    /// What stands in the keys of meta rows.
    pub fn layout(&self) -> Layout {
        self.engine.layout
    }

    pub(super) fn note_key(&mut self, keyspace: KeyspaceId, key: &[u8], change: i64) {
        if self.engine.layout == Layout::Slots {
            let slot = slots::of_key(key);
            let noted = Noted::Key { slot, change };
            self.batch.slots.0.push((keyspace, noted));
        }
    }

    pub(super) fn note_no_keys(&mut self, keyspace: KeyspaceId) {
        if self.engine.layout == Layout::Slots {
            self.batch.slots.0.push((keyspace, Noted::NoKeys));
        }
    }

    /// The numbers of keys of all slots, by slot, with the changes of this turn; none without slots.
    pub fn keys_by_slot(&self, db: DbIndex) -> Vec<u64> {
        let keyspace = self.keyspace(db);
        let Some((keyspace, counts)) = keyspace.and_then(|ks| Some((ks, ks.slots()?))) else {
            return vec![0; SLOTS.into()];
        };
        let mut keys: Vec<u64> = (0..SLOTS).map(|slot| counts.get(slot)).collect();
        for (slot, after) in self.batch.slots.after(keyspace) {
            if let Some(keys) = keys.get_mut(usize::from(slot)) {
                *keys = after;
            }
        }
        keys
    }

    /// The number of keys of a slot, with the changes of this turn.
    pub fn keys_in_slot(&self, db: DbIndex, slot: u16) -> u64 {
        let Some(keyspace) = self.keyspace(db) else {
            return 0;
        };
        let changed = self.batch.slots.after(keyspace).remove(&slot);
        changed.unwrap_or_else(|| keyspace.slots().map_or(0, |counts| counts.get(slot)))
    }

    /// The counts after this turn. The caller holds the commit lock, or the keyspaces are its own.
    pub(super) fn slots_after(&self) -> SlotsAfter {
        if self.batch.slots.0.is_empty() {
            return SlotsAfter::default();
        }
        let changed = self.batch.deltas.iter();
        let keyspaces = changed.filter_map(|delta| self.by_id(delta.keyspace));
        SlotsAfter(
            keyspaces
                .map(|keyspace| (keyspace.clone(), self.batch.slots.after(keyspace)))
                .collect(),
        )
    }

    /// Adds the rows of these counts to the batch that makes them true.
    pub(super) fn put_slots(&self, after: &SlotsAfter, batch: &mut WriteBatch) {
        for (keyspace, counts) in &after.0 {
            for (slot, keys) in counts {
                let row = system::slot_row(keyspace.id, *slot);
                let value = keys.to_be_bytes();
                let value = (*keys > 0).then_some(&value[..]);
                self.engine.put_system_row(&row, value, batch);
            }
        }
    }
}
