//! How far a Redis master's stream is applied.
//!
//! A replica of a Kedis has its master's rows at its master's positions. A Redis
//! logs other bytes than this server does, so a replica of a Redis logs the effects
//! of the commands it applies, in a history of its own, and its own replicas follow
//! that. Where it is in the master's stream stands in one row, which changes in the
//! same batch as the data: after a crash the stream goes on exactly there.
//!
//! The row counts for one position of one history. Any other write of this server
//! removes it: what it says would not be true any more.

use super::engine::{CommitState, Engine};
use super::history::Following;
use super::{DbIndex, Txn};
use crate::encoding::own::{self, Upstream};
use rocksdb::WriteBatch;

/// What a transaction that applies a stream writes down with its batch.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) following: Following,
    /// The master's replication id; `None`: it has none, and its stream cannot be
    /// gone on with.
    id: Option<String>,
    /// What the pending batch reaches.
    pub(super) reached: Option<(u64, DbIndex)>,
}

impl Txn {
    /// From now on this transaction applies the stream of a Redis master with this
    /// replication id: keys do not expire by its clock, and it logs the effects of
    /// its commands.
    pub fn receive_stream(&mut self, following: Following, id: Option<String>) {
        self.log.receive_stream(Stream {
            following,
            id,
            reached: None,
        });
        self.expires = false;
    }

    /// Notes that what is pending applies the stream up to the offset before `next`,
    /// and in which DB it goes on.
    pub fn note_reached(&mut self, next: u64, db: DbIndex) {
        if let Some(stream) = &mut self.log.stream {
            stream.reached = Some((next, db));
        }
    }
}

impl Engine {
    /// How far a Redis master's stream is applied; `None` if what is here does not all
    /// come from one.
    pub fn upstream(&self) -> Option<Upstream> {
        self.commit.lock().upstream.clone()
    }

    /// Adds what a batch reaches; its row of the binlog is part of the batch already.
    pub(super) fn put_upstream(
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
            None => upstream.encode(&self.history.read().id, position),
        };
        batch.put_cf(&self.own_cf, own::UPSTREAM, row);
        commit.upstream = Some(upstream);
    }

    /// Something else is written.
    pub(super) fn forget_upstream(&self, commit: &mut CommitState, batch: &mut WriteBatch) {
        if commit.upstream.take().is_some() {
            batch.delete_cf(&self.own_cf, own::UPSTREAM);
        }
    }
}
