//! The error type of commands, with the texts of common error replies.

use crate::storage::StorageError;
use crate::types::OpError;
use std::borrow::Cow;
use std::fmt;

/// Why a command failed. Its `Display` is the error reply without the leading `-`.
#[derive(Debug)]
pub enum Error {
    /// The operation on the value failed, or the storage did.
    Op(OpError),
    /// `ERR syntax error`.
    Syntax,
    /// Wrong number of arguments for the command (`config|get` style name).
    Arity(Cow<'static, str>),
    /// A subcommand that the container does not have.
    UnknownSubcommand {
        /// The container's name, as the client has it.
        command: Vec<u8>,
        /// What the client asked for.
        subcommand: Vec<u8>,
    },
    /// Anything else, beginning with its code.
    Text(Cow<'static, str>),
    /// Likewise, with quoted bytes of the client, which need not be UTF-8.
    Bytes(Vec<u8>),
}

/// Maximum number of bytes of arguments that an error quotes.
const QUOTED: usize = 128;

/// The part of an argument that errors quote: up to the first NUL, as a C string, and at
/// most `limit` bytes.
pub fn quoted(arg: &[u8], limit: usize) -> &[u8] {
    let arg = &arg[..arg.len().min(limit)];
    arg.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Errors of several commands.
impl Error {
    pub(super) const NOT_POSITIVE: Error =
        Error::text("ERR value is out of range, must be positive");
    pub(super) const OUT_OF_RANGE: Error = Error::text("ERR value is out of range");
    pub(super) const OUT_OF_I32: Error =
        Error::text("ERR value is out of range, value must between -2147483648 and 2147483647");
    /// The bounds of what can be negated.
    pub(super) const OUT_OF_I64: Error = Error::text(
        "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    );
    pub(super) const NO_SUCH_DB: Error = Error::text("ERR DB index is out of range");
    pub(super) const NUMKEYS: Error = Error::text("ERR numkeys should be greater than 0");
    pub(super) const ZERO_COUNT: Error = Error::text("ERR count should be greater than 0");
    pub(super) const COUNT_NOT_POSITIVE: Error = Error::text("ERR COUNT must be > 0");
    /// More keys are announced than there are arguments.
    pub const NUMKEYS_TOO_LARGE: Error =
        Error::text("ERR Number of keys can't be greater than number of args");
    pub(super) const NEGATIVE_LIMIT: Error = Error::text("ERR LIMIT can't be negative");
    pub(super) const NOVALUES: Error = Error::text("ERR NOVALUES option can only be used in HSCAN");
    pub(super) const BAD_DUMP: Error =
        Error::text("ERR DUMP payload version or checksum are wrong");
    /// The reply has more bytes than one may have.
    pub const REPLY_TOO_LONG: Error = Error::text("ERR the reply would be too long");
    /// No script with the given SHA-1 is cached.
    pub const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");
    /// A script takes more time to compile than it may.
    pub const COMPILES_LONG: Error =
        Error::text("ERR Error compiling script (new function): it takes too long");

    /// Lua does not start.
    pub fn no_interpreter(error: impl fmt::Display) -> Error {
        Error::owned(format!("ERR no interpreter: {error}"))
    }
}

/// The command needs more memory than there is.
pub const OUT_OF_MEMORY: Error =
    Error::text("OOM command not allowed when used memory > 'maxmemory'.");

/// What a handler returns.
pub type CmdResult = Result<(), Error>;

impl Error {
    /// An error whose text (with its code, `ERR …`) is fixed.
    pub const fn text(text: &'static str) -> Error {
        Error::Text(Cow::Borrowed(text))
    }

    /// The error reply without the leading `-`.
    pub fn wire(&self) -> Cow<'_, [u8]> {
        match self {
            Error::Bytes(bytes) => Cow::Borrowed(bytes),
            Error::UnknownSubcommand {
                command,
                subcommand,
            } => {
                let upper = command.to_ascii_uppercase();
                let shown = quoted(subcommand, QUOTED);
                let begin = b"ERR unknown subcommand '";
                Cow::Owned([begin, shown, b"'. Try ", &upper, b" HELP."].concat())
            }
            text => Cow::Owned(text.to_string().into_bytes()),
        }
    }

    /// The error for an unknown command: its name and the first arguments, shortened.
    pub fn unknown_command(args: &[&[u8]]) -> Error {
        let mut shown: Vec<u8> = Vec::new();
        for arg in args.iter().skip(1) {
            if shown.len() >= QUOTED {
                break;
            }
            let arg = quoted(arg, QUOTED - shown.len());
            shown.extend_from_slice(&[b"'", arg, b"' "].concat());
        }
        let name = quoted(args.first().copied().unwrap_or_default(), QUOTED);
        let middle: &[u8] = b"', with args beginning with: ";
        Error::Bytes([b"ERR unknown command '", name, middle, &shown].concat())
    }

    /// An error with a formatted text.
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
            Error::Op(OpError::NoSuchPath) => "ERR Path does not exist",
            Error::Op(OpError::TooManyValues) => "ERR the path visits too many values",
            Error::Op(OpError::Storage(StorageError::Failed)) => {
                "MISCONF Errors writing to the disk: writes, and reads of what the disk may lack, are refused until it takes writes again. See the server's log for the reason; no restart is needed"
            }
            Error::Op(OpError::Storage(StorageError::NoRoom)) => {
                "MISCONF Errors writing to the disk: No space left on device. Commands that add data are refused until there is room again: delete keys, free space on the server's disk, or raise max-disk"
            }
            Error::Op(OpError::Storage(StorageError::NoMemory)) => return OUT_OF_MEMORY.fmt(f),
            Error::Op(OpError::Storage(error)) => return write!(f, "ERR {error}"),
            Error::Syntax => "ERR syntax error",
            Error::Arity(name) => {
                return write!(f, "ERR wrong number of arguments for '{name}' command");
            }
            Error::UnknownSubcommand { .. } | Error::Bytes(_) => {
                return f.write_str(&String::from_utf8_lossy(&self.wire()));
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
