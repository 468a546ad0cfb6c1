//! What the master has sent and will be applied soon: when something needs rows that are not in
//! memory, these are read together with what follows it.

use super::LIMITS;
use crate::encoding::binlog::Row;
use crate::exec::Executor;
use crate::replication::wire::{self, FromMaster};
use crate::resp::{Parser, Progress};
use crate::storage::DbIndex;

/// Rows of a Kedis that are read together.
const ROWS: usize = 256;

/// How much of what follows was asked for already.
#[derive(Default)]
pub(super) struct Ahead {
    /// Bytes of input.
    left: usize,
}

impl Ahead {
    /// Notes that so many bytes of input are processed.
    pub(super) fn passed(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Asks for what the rows in `input` need.
    pub(super) fn rows(&mut self, executor: &Executor, mut input: &[u8]) {
        if self.left > 0 {
            return;
        }
        let mut parser = Parser::new();
        for _ in 0..ROWS {
            let Ok(Progress::Complete { consumed }) = parser.advance(input, &LIMITS) else {
                return;
            };
            let args: smallvec::SmallVec<[&[u8]; 8]> = parser.args_of(input).collect();
            parser.reset();
            input = input.get(consumed..).unwrap_or_default();
            let Some(FromMaster::Row { value, .. }) = wire::from_master(&args) else {
                return;
            };
            if let Ok(row) = Row::decode(value) {
                // Each row begins with its DB.
                executor.look_ahead_in(DbIndex(0), row.bytes);
            }
            self.left += consumed;
        }
    }

    /// Asks for what the commands in `input` need, the first of which is for `db`.
    pub(super) fn commands(&mut self, executor: &Executor, db: DbIndex, input: &[u8]) {
        if self.left == 0 {
            self.left = executor.look_ahead_in(db, input);
        }
    }
}
