//! What clients see when a command fails: every wire text, once.

use crate::storage::StorageError;
use crate::types::OpError;
use std::borrow::Cow;
use std::fmt;

/// Why a command failed. Its `Display` is the error reply without the leading `-`.
#[derive(Debug)]
pub enum Error {
    /// The value or the storage would not.
    Op(OpError),
    /// The options make no sense.
    Syntax,
    /// Wrong number of arguments for the command (`config|get` style name).
    Arity(Cow<'static, str>),
    /// A subcommand that the container does not have.
    UnknownSubcommand {
        /// The container's name.
        command: &'static str,
        /// What the client asked for.
        subcommand: String,
    },
    /// Anything else, beginning with its code.
    Text(Cow<'static, str>),
}

/// What a handler returns.
pub type CmdResult = Result<(), Error>;

impl Error {
    /// An error whose text (with its code, `ERR …`) is fixed.
    pub const fn text(text: &'static str) -> Error {
        Error::Text(Cow::Borrowed(text))
    }

    /// An error whose text was made for the occasion.
    pub fn owned(text: String) -> Error {
        Error::Text(Cow::Owned(text))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Error::Op(OpError::WrongType) => {
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            }
            Error::Op(OpError::NotInteger) => "ERR value is not an integer or out of range",
            Error::Op(OpError::NotFloat) => "ERR value is not a valid float",
            Error::Op(OpError::Overflow) => "ERR increment or decrement would overflow",
            Error::Op(OpError::NotFinite) => "ERR increment would produce NaN or Infinity",
            Error::Op(OpError::TooLong) => {
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
            }
            Error::Op(OpError::IndexOutOfRange) => "ERR index out of range",
            Error::Op(OpError::NoSuchKey) => "ERR no such key",
            Error::Op(OpError::Storage(StorageError::Failed)) => {
                "MISCONF a write to the storage has failed; writes are refused until the server is restarted"
            }
            Error::Op(OpError::Storage(error)) => return write!(f, "ERR {error}"),
            Error::Syntax => "ERR syntax error",
            Error::Arity(name) => {
                return write!(f, "ERR wrong number of arguments for '{name}' command");
            }
            Error::UnknownSubcommand {
                command,
                subcommand,
            } => {
                let shown: String = subcommand.chars().take(128).collect();
                let upper = command.to_uppercase();
                return write!(f, "ERR unknown subcommand '{shown}'. Try {upper} HELP.");
            }
            Error::Text(text) => text,
        };
        f.write_str(text)
    }
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        Error::Op(error)
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Error::Op(OpError::Storage(error))
    }
}

impl From<crate::encoding::Corrupt> for Error {
    fn from(corrupt: crate::encoding::Corrupt) -> Self {
        Error::Op(corrupt.into())
    }
}
