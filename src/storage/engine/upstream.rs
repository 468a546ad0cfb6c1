//! The position up to which a Redis master's stream is applied.
//!
//! A replica of a Kedis master has the master's rows at the master's positions. A Redis master logs
//! other bytes than this server does, so its replica logs the effects of the commands that it
//! applies, in a history of its own, and sub-replicas follow that. The position in the master's
//! stream stands in one row, which changes in the same batch as the data: after a crash the stream
//! continues exactly there.
//!
//! The row is valid for one position of one history. Any other write of this server removes it,
//! because the data then differs from the master's.

use crate::encoding::binlog::Position;
use crate::encoding::system::{self, Upstream};
use crate::storage::DbIndex;
use crate::storage::engine::history::Following;
use crate::storage::engine::{CommitState, Engine};
use rocksdb::WriteBatch;

/// The stream that a transaction applies, and what its batch reaches.
#[derive(Debug)]
pub(in crate::storage) struct Stream {
    pub(in crate::storage) following: Following,
    /// The master's replication id. `None` if it has none: its stream cannot be continued after a
    /// break.
    pub(in crate::storage) id: Option<String>,
    /// The offset and DB after the pending batch.
    pub(in crate::storage) reached: Option<(Position, DbIndex)>,
}

impl Engine {
    /// The position up to which a Redis master's stream is applied; `None` if the data does not
    /// come from one alone.
    pub fn upstream(&self) -> Option<Upstream> {
        self.commit.lock().upstream.clone()
    }

    /// Adds the row with what a batch reaches; the batch has its binlog row already.
    pub(in crate::storage) fn put_upstream(
        &self,
        commit: &mut CommitState,
        stream: &Stream,
        batch: &mut WriteBatch,
    ) {
        let (Some(id), Some((next, db))) = (&stream.id, stream.reached) else {
            return;
        };
        let upstream = Upstream {
            id: id.clone(),
            next,
            db: db.0,
        };
        let position = commit.state.binlog_position;
        let row = match &commit.history {
            Some(history) => upstream.encode(&history.id, position),
            None => upstream.encode(&self.lineage.history.read().id, position),
        };
        batch.put_cf(&self.system_cf, system::UPSTREAM, row);
        commit.upstream = Some(upstream);
    }

    /// Removes the row: the commit writes something else.
    pub(in crate::storage) fn forget_upstream(
        &self,
        commit: &mut CommitState,
        batch: &mut WriteBatch,
    ) {
        if commit.upstream.take().is_some() {
            batch.delete_cf(&self.system_cf, system::UPSTREAM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::encoding::{Meta, ValueType};
    use crate::storage::full_sync::staging::Staging;
    use crate::storage::{StorageConfig, StorageError, Txn};
    use std::path::Path;
    use std::sync::Arc;

    const DB: DbIndex = DbIndex(0);

    fn open(dir: &Path) -> Arc<Engine> {
        Engine::open(StorageConfig::for_tests(dir.join("db"))).expect("opens")
    }

    fn at(next: u64, db: u16) -> Upstream {
        Upstream {
            id: "0123456789".repeat(4),
            next: Position(next),
            db,
        }
    }

    /// A transaction that follows a Redis master.
    fn following(engine: &Arc<Engine>) -> (Txn, Following) {
        let mut txn = Txn::new(engine.clone());
        let begun = txn.begin_following(UnixMs(1), |engine| Some(engine.begin_following()));
        let following = begun.unwrap().unwrap();
        txn.receive_stream(following, Some(at(0, 0).id));
        (txn, following)
    }

    fn apply(txn: &mut Txn, next: u64, db: u16) -> Result<(), StorageError> {
        txn.begin(UnixMs(1))?;
        txn.effect(DB, &[b"PING"]);
        txn.note_reached(Position(next), DbIndex(db));
        txn.commit()
    }

    #[test]
    fn it_stands_with_the_data_until_something_else_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        let (mut txn, _) = following(&engine);
        apply(&mut txn, 10, 3).unwrap();
        // Also for a commit without effects.
        txn.begin(UnixMs(1)).unwrap();
        txn.note_reached(Position(20), DbIndex(4));
        txn.commit().unwrap();
        engine.make_durable().unwrap();
        assert_eq!(engine.upstream(), Some(at(20, 4)));
        drop((txn, engine));
        // The first row after a start begins a history, and the upstream row belongs to that one.
        let engine = open(dir.path());
        assert_eq!(engine.upstream(), Some(at(20, 4)));
        let before = engine.replication_id();
        engine.begin_history_on_write();
        let (mut txn, _) = following(&engine);
        apply(&mut txn, 30, 0).unwrap();
        assert_ne!(engine.replication_id(), before);
        engine.make_durable().unwrap();
        drop((txn, engine));
        let engine = open(dir.path());
        assert_eq!(engine.upstream(), Some(at(30, 0)));
        // A write of its own.
        let mut own = Txn::new(engine.clone());
        own.begin(UnixMs(1)).unwrap();
        own.effect(DB, &[b"PING"]);
        own.commit().unwrap();
        engine.make_durable().unwrap();
        assert_eq!(engine.upstream(), None);
        drop((own, engine));
        assert_eq!(open(dir.path()).upstream(), None);
    }

    #[test]
    fn the_stream_of_a_master_that_is_not_followed_any_more_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        let (mut txn, _) = following(&engine);
        apply(&mut txn, 10, 0).unwrap();
        engine.begin_history().unwrap();
        assert_eq!(engine.upstream(), None);
        let refused = apply(&mut txn, 20, 0);
        assert!(matches!(refused, Err(StorageError::Detached)));
        assert_eq!(engine.upstream(), None);
    }

    #[test]
    fn a_staged_transaction_touches_nothing_until_it_is_installed() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        let put = |txn: &mut Txn, key: &[u8], expire_ms| {
            let meta = Meta {
                expire_ms,
                ..Meta::new(ValueType::String)
            };
            txn.begin(UnixMs(5)).unwrap();
            txn.put_key(DB, key, None, meta, b"value").unwrap();
            txn.commit().unwrap();
        };
        put(&mut Txn::new(engine.clone()), b"old", UnixMs::NONE);
        let mut staging = Staging::new(engine.clone());
        staging.upstream = Some(at(7, 2));
        let mut staged = Txn::staged(staging);
        put(&mut staged, b"new", UnixMs::NONE);
        // Its expiry time has passed, but only the master expires it.
        put(&mut staged, b"timed", UnixMs(1));
        assert!(staged.lookup(DB, b"timed").unwrap().is_some());
        let mut reader = Txn::new(engine.clone());
        reader.begin(UnixMs(5)).unwrap();
        assert!(reader.lookup(DB, b"new").unwrap().is_none());
        assert_eq!(reader.counts(DB).keys, 1);
        reader.commit().unwrap();
        let (mut txn, following) = following(&engine);
        let staging = staged.into_staging().unwrap();
        let data_set = engine.new_data_set().unwrap();
        txn.install(staging, &data_set, following, UnixMs(5), || {})
            .unwrap();
        txn.begin(UnixMs(5)).unwrap();
        assert!(txn.lookup(DB, b"old").unwrap().is_none());
        assert!(txn.lookup(DB, b"new").unwrap().is_some());
        assert_eq!((txn.counts(DB).keys, txn.counts(DB).expires), (2, 1));
        txn.commit().unwrap();
        assert_eq!(engine.upstream(), Some(at(7, 2)));
        assert_eq!(engine.replication_id(), data_set.history_id);
        let report = engine.check().unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
    }
}
