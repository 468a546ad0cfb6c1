//! How a request went, and why a command was not done.

use crate::commands::Error;
use crate::storage::StorageError;
use crate::types::OpError;

/// A key may not be written to now, and the command cannot wait for that.
pub(super) const ON_ITS_WAY: Error =
    Error::text("TRYAGAIN a key of this command is on its way to another server");

/// Whether a request was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was, and its reply is written.
    Done,
    /// The client is paused, or would send to others more than they can take now:
    /// ask again later with the same request.
    Paused,
    /// It was begun; its reply comes when its wait is over.
    Blocked,
    /// It takes too long for an IO thread: run it on a worker.
    Slow,
}

/// Why a command in a unit was not done.
#[derive(Debug)]
pub enum Stop {
    /// It failed and was taken back; this is its error reply.
    Failed(Error),
    /// It failed, and the statistics know already: this is its error reply.
    Told(Error),
    /// It needs a key that the unit has not locked and somebody else holds: see
    /// the module. Outside of units: a key that may not be used yet.
    Conflict,
    /// It takes too long for an IO thread. The request must be taken back, and
    /// be run on a worker.
    Slow,
}

impl Stop {
    /// The error reply, for who can tell a client no more than that. A conflict
    /// never gets here: whoever began the unit runs it again.
    pub fn into_error(self) -> Error {
        match self {
            Stop::Failed(error) | Stop::Told(error) => error,
            Stop::Conflict | Stop::Slow => {
                Error::text("ERR another client holds a key of this command")
            }
        }
    }
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Stop {
        match error.into() {
            Error::Op(OpError::Storage(StorageError::ReadBudgetSpent)) => Stop::Slow,
            error => Stop::Failed(error),
        }
    }
}
