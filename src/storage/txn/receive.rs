//! Transactions that apply the stream of a master.

use super::Txn;
use crate::encoding::binlog::Position;
use crate::storage::DbIndex;
use crate::storage::engine::history::Following;
use crate::storage::engine::upstream::Stream;

impl Txn {
    /// From now on this transaction applies the stream of a Redis master with this
    /// replication id: keys do not expire by its clock, and it logs the effects of
    /// its commands.
    pub fn receive_stream(&mut self, following: Following, id: Option<String>) {
        self.batch.log.receive_stream(Stream {
            following,
            id,
            reached: None,
        });
        self.command.expires = false;
    }

    /// Notes that the pending batch applies the stream up to the offset before `next`, and the DB
    /// in which the stream continues.
    pub fn note_reached(&mut self, next: Position, db: DbIndex) {
        if let Some(stream) = &mut self.batch.log.stream {
            stream.reached = Some((next, db));
        }
    }

    /// From now on this transaction applies rows of a Kedis master's binlog: keys do not expire by
    /// its clock, and it logs received rows instead of effects.
    pub fn receive(&mut self, following: Following) {
        self.view.batch.log.receive(following);
        self.view.command.expires = false;
    }

    /// Whether it applies the stream of a master.
    pub fn is_received(&self) -> bool {
        self.batch.log.is_received()
    }

    /// Whether it applies rows of a Kedis master's binlog: effects, which depend on no setting of
    /// this server.
    pub fn replays_rows(&self) -> bool {
        self.batch.log.replays_rows()
    }
}
