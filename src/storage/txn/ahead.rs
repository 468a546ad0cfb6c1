//! Writes the rows of new collections before the commit that makes them reachable.
//!
//! A commit holds the commit lock for as long as RocksDB takes for its batch, half a second for a
//! million rows (COPY, MOVE, SUNIONSTORE, RESTORE of a large collection), and all other threads
//! wait. But rows under an id that this turn has drawn cannot be reached before their meta row is
//! committed. So if there are many of them, they are written ahead of the batch, in slices that
//! take the commit lock for each.
//!
//! I2, I6: the first slice queues the id for reclaim, and the final batch removes it from the
//! queue. After a crash in between the rows are reclaimed, and nothing else is left. While they are
//! written the id is on a list of ids that reclaim passes skip.
//!
//! A command whose result is larger than a turn should hold in memory writes its rows ahead while
//! it produces them ([`Early`]); they are never in the pending batch.

use crate::encoding::keys::element;
use crate::encoding::meta::encode_reclaim;
use crate::encoding::system::KeyspaceId;
use crate::encoding::{CollectionId, ValueType, keys};
use crate::storage::engine::ColumnFamily;
use crate::storage::engine::ahead::Place;
use crate::storage::txn::lending::LONG_ROW;
use crate::storage::txn::overlay::Step;
use crate::storage::txn::{Txn, View};
use crate::storage::{DbIndex, Result, StorageError};
use crate::sys::lock_order::MutexGuard;
use rocksdb::WriteBatch;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of rows in one slice.
const SLICE_BYTES: usize = 64 << 10;

/// The collections whose rows were written ahead of a batch.
pub(in crate::storage) type Sent = BTreeSet<Place>;

/// Whether a row was written ahead.
pub(in crate::storage) fn was_sent(sent: &Sent, keyspace: KeyspaceId, row_key: &[u8]) -> bool {
    !sent.is_empty() && element(row_key).is_some_and(|(id, _)| sent.contains(&(keyspace, id)))
}

/// Rows of one new collection that are written before its key.
pub struct Early {
    cf: ColumnFamily,
    slice: WriteBatch,
}

impl std::fmt::Debug for Early {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.slice.size_in_bytes();
        f.debug_struct("Early").field("waiting", &waiting).finish()
    }
}

impl Txn {
    /// Begins to write rows of a collection ahead, about `rows` of them, whose id this turn has
    /// drawn. They can be read after [`Txn::finish_early`]. `None` if they must go into the pending
    /// batch, because that deletes ranges.
    pub fn begin_early(
        &mut self,
        db: DbIndex,
        kind: ValueType,
        id: CollectionId,
        rows: u64,
    ) -> Result<Option<Early>> {
        debug_assert!(self.batch.new_ids.borrow().contains(&id));
        if self.batch.overlay.deletes_ranges() {
            return Ok(None);
        }
        let keyspace = self.keyspace_for_write(db)?;
        let cf = self.column_family(keyspace)?;
        let mut slice = WriteBatch::default();
        slice.put_cf(&cf, keys::reclaim(id), encode_reclaim(kind, rows));
        self.engine.ahead.lock().insert((keyspace, id));
        self.batch.early.push((keyspace, id));
        Ok(Some(Early { cf, slice }))
    }

    /// Writes a row ahead of the batch.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`] if memory for a long row cannot be borrowed.
    pub fn put_early(&mut self, early: &mut Early, key: &[u8], value: &[u8]) -> Result<()> {
        let bytes = key.len() + value.len();
        if bytes >= LONG_ROW {
            return self.put_long_early(early, key, value);
        }
        early.slice.put_cf(&early.cf, key, value);
        match early.slice.size_in_bytes() >= SLICE_BYTES {
            true if self.engine.disk.is_low() => Err(StorageError::NoRoom),
            true => self.write_slice(std::mem::take(&mut early.slice)),
            false => Ok(()),
        }
    }

    /// Writes a long row at once, when the memtables have room for it: it is held by a batch and by a
    /// memtable only.
    fn put_long_early(&mut self, early: &mut Early, key: &[u8], value: &[u8]) -> Result<()> {
        self.await_tables(key)?;
        let bytes = key.len() + value.len();
        self.hold_row(key, bytes)?;
        if self.for_tables() > 0 {
            self.engine.reserve_for_tables(self.for_tables());
        }
        early.slice.put_cf(&early.cf, key, value);
        let written = match self.engine.disk.is_low() {
            true => Err(StorageError::NoRoom),
            false => self.write_slice(std::mem::take(&mut early.slice)),
        };
        self.released(bytes);
        written
    }

    /// Ends the rows: this turn can read them now.
    pub fn finish_early(&mut self, early: Early) -> Result<()> {
        self.write_slice(early.slice)
    }

    /// Leaves all collections of this turn that were written ahead, but the first `keep`, to the
    /// reclaim passes.
    pub(in crate::storage) fn give_up_early(&mut self, keep: usize) {
        let keep = keep.min(self.batch.early.len());
        let given_up = self.batch.early.split_off(keep);
        for (keyspace, id) in given_up {
            self.engine.ahead.lock().remove(&(keyspace, id));
            self.announce_reclaim(keyspace, id);
        }
    }
}

/// The rows of collections in the pending batch.
pub(in crate::storage) type NewCollections = BTreeMap<Place, NewCollection>;

/// The rows of one collection in the pending batch.
pub(in crate::storage) struct NewCollection {
    kind: ValueType,
    rows: u64,
    bytes: usize,
}

impl View {
    /// The new collections of this turn that have so many bytes that they are written ahead.
    pub(in crate::storage) fn large_new_collections(&self) -> NewCollections {
        let least = self.engine.config.ahead_bytes;
        // A range deletion deletes what stands before it in the batch: no row may be written before
        // that.
        if self.batch.overlay.bytes() < least || self.batch.overlay.deletes_ranges() {
            return NewCollections::new();
        }
        let mut collections = self.new_collections();
        collections.retain(|_, collection| collection.bytes >= least);
        collections
    }

    /// Writes the rows of these collections ahead. They are on the list of such collections from
    /// now on, even if this fails.
    pub(in crate::storage) fn send_ahead(&self, collections: &NewCollections) -> Result<()> {
        if collections.is_empty() {
            return Ok(());
        }
        let sent: Sent = collections.keys().copied().collect();
        self.engine.ahead.lock().extend(&sent);
        let mut slice = WriteBatch::default();
        for ((keyspace, id), collection) in collections {
            let value = encode_reclaim(collection.kind, collection.rows);
            slice.put_cf(&self.column_family(*keyspace)?, keys::reclaim(*id), value);
        }
        for step in self.batch.overlay.steps() {
            if let Step::Put(keyspace, key, value) = step
                && was_sent(&sent, keyspace, key)
            {
                slice.put_cf(&self.column_family(keyspace)?, key, value);
                if slice.size_in_bytes() >= SLICE_BYTES {
                    self.write_slice(std::mem::take(&mut slice))?;
                }
            }
        }
        self.write_slice(slice)
    }

    fn new_collections(&self) -> NewCollections {
        let new_ids = self.batch.new_ids.borrow();
        let mut collections = NewCollections::new();
        if new_ids.is_empty() {
            return collections;
        }
        for step in self.batch.overlay.steps() {
            if let Step::Put(keyspace, key, value) = step
                && let Some((id, kind)) = element(key)
                && new_ids.contains(&id)
            {
                let (rows, bytes) = (0, 0);
                let collection = collections.entry((keyspace, id)).or_insert(NewCollection {
                    kind,
                    rows,
                    bytes,
                });
                collection.rows += 1;
                collection.bytes += key.len() + value.len();
            }
        }
        collections
    }

    fn write_slice(&self, mut slice: WriteBatch) -> Result<()> {
        let mut commit = self.engine.commit.lock();
        self.engine.put_state(&mut commit, &mut slice);
        let written = self.engine.write(slice);
        if let Err(error) = &written {
            // Under the commit lock, so that the next commit sees the failure.
            self.engine.fail(error);
        }
        // A waiting thread gets the lock before the next slice.
        MutexGuard::unlock_fair(commit);
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::encoding::meta::{Counted, Grown, Meta};
    use crate::encoding::tag;
    use crate::storage::full_sync::staging::Staging;
    use crate::storage::{DbIndex, Engine, StorageConfig, Txn};

    const DB: DbIndex = DbIndex(0);

    /// Writes the meta row of a set whose rows stand under `id`.
    fn put_set(txn: &mut Txn, key: &[u8], id: CollectionId, members: u64) {
        let counted = Counted { id, count: members };
        let peak = members;
        let meta = Meta {
            rows: true,
            ..Meta::new(ValueType::Set)
        };
        let timed = 0;
        let body = Grown {
            counted,
            peak,
            timed,
        }
        .encode();
        txn.put_key(DB, key, None, meta, &body).unwrap();
    }

    /// A set of `members` members, pending; returns its id.
    fn new_set(txn: &mut Txn, key: &[u8], members: u64) -> CollectionId {
        let id = txn.new_id();
        for n in 0..members {
            let row = keys::hashed(tag::SET_MEMBER, id, n, &n.to_be_bytes());
            txn.put_row(DB, &row, &[]).unwrap();
        }
        put_set(txn, key, id, members);
        id
    }

    #[test]
    fn large_new_collections_go_ahead_and_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        config.ahead_bytes = 64 << 10;
        let engine = Engine::open(config).unwrap();
        let mut txn = Txn::new(engine.clone());
        let mut commits = |members: u64, key: &[u8], drop_it: bool| {
            let before = engine.commits();
            txn.begin(UnixMs(1)).unwrap();
            new_set(&mut txn, key, members);
            if drop_it {
                assert!(txn.delete_key(DB, key).unwrap());
            }
            txn.commit().unwrap();
            assert!(engine.ahead.lock().is_empty());
            let report = engine.check().unwrap();
            assert_eq!(report.faults, Vec::<String>::new());
            assert_eq!(report.dead_collections, u64::from(drop_it));
            let mut pass = txn.begin_reclaim(DB);
            while let Some(under_way) = &mut pass
                && txn.reclaim_slice(under_way, 1 << 20).unwrap().more
            {}
            assert_eq!(engine.reclaim_backlog(10).unwrap(), 0);
            let report = engine.check().unwrap();
            assert_eq!(report.faults, Vec::<String>::new());
            engine.commits() - before
        };
        // One batch, and nothing to reclaim.
        assert_eq!(commits(100, b"small", false), 1);
        assert!(commits(20_000, b"large", false) > 5);
        assert!(commits(20_000, b"dropped", true) > 5);
    }

    /// A set whose rows were written ahead while it was made.
    fn new_early_set(txn: &mut Txn, key: &[u8], members: u64) {
        let id = txn.new_id();
        let mut early = txn
            .begin_early(DB, ValueType::Set, id, members)
            .unwrap()
            .unwrap();
        for n in 0..members {
            let row = keys::hashed(tag::SET_MEMBER, id, n, &n.to_be_bytes());
            txn.put_early(&mut early, &row, &[]).unwrap();
        }
        txn.finish_early(early).unwrap();
        put_set(txn, key, id, members);
    }

    #[test]
    fn early_rows_stay_with_their_key_and_go_without_it() {
        #[derive(Debug, PartialEq)]
        enum Then {
            Commit,
            Add,
            Delete,
            RollBack,
            Clear,
        }
        for then in [
            Then::Commit,
            Then::Add,
            Then::Delete,
            Then::RollBack,
            Then::Clear,
        ] {
            let dir = tempfile::tempdir().unwrap();
            let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
            let mut txn = Txn::new(engine.clone());
            match then {
                Then::Clear => txn.begin_exclusive(UnixMs(1)).unwrap(),
                _ => txn.begin(UnixMs(1)).unwrap(),
            }
            let before = txn.savepoint();
            new_early_set(&mut txn, b"set", 10_000);
            assert!(txn.pending_bytes() < 1024);
            // Meanwhile, as another thread would.
            if then != Then::Clear {
                let mut reclaimer = Txn::new(engine.clone());
                let mut pass = reclaimer.begin_reclaim(DB).unwrap();
                let slice = reclaimer.reclaim_slice(&mut pass, 1 << 20).unwrap();
                assert_eq!(slice.removed, 0, "{then:?}");
            }
            let found = txn.lookup(DB, b"set").unwrap().unwrap();
            let counted = found.counted().unwrap();
            let id = counted.id;
            assert!(
                txn.row(
                    DB,
                    &keys::hashed(tag::SET_MEMBER, id, 9, &9u64.to_be_bytes())
                )
                .unwrap()
                .is_some()
            );
            match then {
                Then::Commit => {}
                Then::Add => {
                    let row = keys::hashed(tag::SET_MEMBER, id, 10_000, &10_000u64.to_be_bytes());
                    txn.put_row(DB, &row, &[]).unwrap();
                    let count = counted.count + 1;
                    let counted = Counted { id, count };
                    let body = Grown {
                        counted,
                        peak: count,
                        timed: 0,
                    }
                    .encode();
                    let meta = found.meta;
                    txn.put_key(DB, b"set", Some(&meta), meta, &body).unwrap();
                }
                Then::Delete => assert!(txn.delete_key(DB, b"set").unwrap()),
                Then::RollBack => txn.rollback(&before),
                Then::Clear => {
                    txn.clear_db(DB).unwrap();
                    let id = txn.new_id();
                    assert!(
                        txn.begin_early(DB, ValueType::Set, id, 1)
                            .unwrap()
                            .is_none()
                    );
                }
            }
            txn.commit().unwrap();
            assert!(engine.ahead.lock().is_empty(), "{then:?}");
            let report = engine.check().unwrap();
            assert_eq!(report.faults, Vec::<String>::new(), "{then:?}");
            let lives = matches!(then, Then::Commit | Then::Add);
            assert_eq!(report.keys, u64::from(lives), "{then:?}");
            let dead = u64::from(matches!(then, Then::Delete | Then::RollBack));
            assert_eq!(report.dead_collections, dead, "{then:?}");
            let mut pass = txn.begin_reclaim(DB);
            while let Some(under_way) = &mut pass
                && txn.reclaim_slice(under_way, 1 << 20).unwrap().more
            {}
            assert_eq!(engine.reclaim_backlog(10).unwrap(), 0, "{then:?}");
            let report = engine.check().unwrap();
            assert_eq!(report.faults, Vec::<String>::new(), "{then:?}");
            assert!(lives || report.rows == 0, "{then:?}: {} rows", report.rows);
        }
    }

    /// Their rows once stayed for ever, as if they were still to be reached.
    #[test]
    fn early_rows_of_a_commit_without_room_go() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let mut txn = Txn::new(engine.clone());
        txn.begin(UnixMs(1)).unwrap();
        new_early_set(&mut txn, b"set", 10_000);
        for n in 0..2_u64 {
            let row = keys::hashed(tag::SET_MEMBER, txn.new_id(), n, &n.to_be_bytes());
            txn.put_row(DB, &row, &vec![0; 1 << 20]).unwrap();
        }
        engine.disk.simulate_full();
        assert!(matches!(txn.commit(), Err(StorageError::NoRoom)));
        assert!(!engine.has_failed());
        assert!(engine.ahead.lock().is_empty());
        engine.look_at_disk();
        let report = engine.check().unwrap();
        assert_eq!((report.keys, report.dead_collections), (0, 1));
        txn.begin(UnixMs(1)).unwrap();
        let mut pass = txn.begin_reclaim(DB);
        while let Some(under_way) = &mut pass
            && txn.reclaim_slice(under_way, 1 << 20).unwrap().more
        {}
        let report = engine.check().unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
        assert_eq!(report.rows, 0);
    }

    /// The ids once stayed in the reclaim queue: after the next start long strings that came from a
    /// master were zeros.
    #[test]
    fn early_rows_of_a_staged_data_set_stay() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let engine = open();
        let mut staged = Txn::staged(Staging::new(engine.clone()));
        staged.begin(UnixMs(1)).unwrap();
        new_early_set(&mut staged, b"set", 10_000);
        staged.commit().unwrap();
        assert!(engine.ahead.lock().is_empty());
        let mut txn = Txn::new(engine.clone());
        let following = txn.begin_following(UnixMs(1), |engine| Some(engine.begin_following()));
        let following = following.unwrap().unwrap();
        let data_set = engine.new_data_set().unwrap();
        let staging = staged.into_staging().unwrap();
        txn.install(staging, &data_set, following, UnixMs(1), || {})
            .unwrap();
        drop((txn, engine));
        let engine = open();
        assert_eq!(engine.reclaim_backlog(10).unwrap(), 0);
        let report = engine.check().unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
        assert_eq!((report.keys, report.dead_collections), (1, 0));
    }

    #[test]
    fn early_rows_of_a_staged_data_set_that_is_given_up_go_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let mut staged = Txn::staged(Staging::new(engine.clone()));
        staged.begin(UnixMs(1)).unwrap();
        new_early_set(&mut staged, b"set", 10_000);
        drop(staged);
        assert!(engine.ahead.lock().is_empty());
    }

    #[test]
    fn a_reclaim_pass_leaves_out_what_is_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().to_owned());
        config.ahead_bytes = 1024;
        let engine = Engine::open(config).unwrap();
        let (mut writer, mut reclaimer) = (Txn::new(engine.clone()), Txn::new(engine.clone()));
        writer.begin(UnixMs(1)).unwrap();
        new_set(&mut writer, b"set", 5000);
        let collections = writer.large_new_collections();
        assert_eq!(collections.len(), 1);
        writer.send_ahead(&collections).unwrap();
        // Meanwhile, as another thread would.
        let mut pass = reclaimer.begin_reclaim(DB).unwrap();
        let slice = reclaimer.reclaim_slice(&mut pass, 1 << 20).unwrap();
        assert_eq!(slice.removed, 0);
        drop(pass);
        assert_eq!(engine.reclaim_backlog(10).unwrap(), 1);
        writer.commit().unwrap();
        let report = engine.check().unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
        assert_eq!((report.keys, report.dead_collections), (1, 0));
    }
}
