//! The outcome of a request, and the reasons why a command was not done.

use crate::commands::Error;
use crate::storage::StorageError;
use crate::types::OpError;

/// A key cannot be written to now, and the command cannot wait.
pub(super) const ON_ITS_WAY: Error =
    Error::text("TRYAGAIN a key of this command is on its way to another server");

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The request has run, and its reply is written.
    Done,
    /// The client is paused, or would send more to other threads than they can take now: run
    /// the same request again later.
    Paused,
    /// The request waits; its reply comes when the wait ends.
    Blocked,
    /// The request takes too long for an IO thread: run it on a worker.
    Slow,
    /// The request needs rows that are not in memory: run it again when
    /// [`Executor::take_cold_reads`](super::Executor::take_cold_reads) are done.
    Cold,
}

/// Why a command was not done.
#[derive(Debug)]
pub enum Stop {
    /// The command failed and was taken back; this is its error reply.
    Failed(Error),
    /// As [`Stop::Failed`], and the statistics have counted the error.
    Counted(Error),
    /// In a unit: the command needs a key that the unit has not locked and another thread holds
    /// (see `exec::unit`). Outside of units: the command must be tried again later. Also a command
    /// that must end before it is done (see [`Executor::must_end`](super::Executor)): the request is
    /// taken back as a whole, and what would try it again finds that nobody waits for it.
    Conflict,
    /// The request takes too long for an IO thread. It must be taken back and run on a worker.
    Slow,
    /// The request needs rows that are not in memory. It must be taken back, and be run again when
    /// they are.
    Cold,
}

impl Stop {
    /// Whether the request is taken back as a whole, and has no reply yet.
    pub(super) fn takes_back(&self) -> bool {
        matches!(self, Stop::Conflict | Stop::Slow | Stop::Cold)
    }

    /// The error reply, for callers that cannot run the request again. Callers that began a unit
    /// run it again after a conflict, so the text for that is never sent.
    pub(super) fn into_error(self) -> Error {
        match self {
            Stop::Failed(error) | Stop::Counted(error) => error,
            Stop::Conflict | Stop::Slow | Stop::Cold => {
                Error::text("ERR another client holds a key of this command")
            }
        }
    }
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Stop {
        match error.into() {
            Error::Op(OpError::Storage(StorageError::ReadBudgetSpent)) => Stop::Slow,
            Error::Op(OpError::Storage(StorageError::NotInMemory)) => Stop::Cold,
            Error::Op(OpError::Storage(StorageError::Ended)) => Stop::Conflict,
            error => Stop::Failed(error),
        }
    }
}
