//! Why a migration stops, or must begin again.

use super::options::Endpoint;
use crate::rdb;
use std::io;
use std::path::Path;

/// Why a migration stops, or must begin again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection to the source broke: it may come back.
    #[error("source: {0}")]
    Source(io::Error),
    /// The connection to the target broke: it may come back.
    #[error("target: {0}")]
    Target(io::Error),
    /// A server is there but not ready.
    #[error("{0}")]
    NotReady(String),
    /// The source cannot go on at this offset.
    #[error("the source cannot go on at offset {0}: copying anew")]
    Lost(u64),
    /// A connection could not be made.
    #[error("cannot connect to the {endpoint}: {error}")]
    Connect {
        /// To whom.
        endpoint: String,
        /// Why.
        error: io::Error,
    },
    /// The other end cannot be what it should be, or refuses us.
    #[error("{0}")]
    Refused(String),
    /// The target refused a command.
    #[error("the target refused {command}: {error}")]
    Command {
        /// The command, shortened.
        command: String,
        /// What it said.
        error: String,
        /// Whether other commands beside it were run.
        is_partial: bool,
    },
    /// A value cannot be read.
    #[error("{what}: {error}")]
    Rdb {
        /// Where.
        what: String,
        /// Why.
        error: rdb::Error,
    },
    /// A command of the stream cannot be carried over.
    #[error("cannot carry over {command}: {why}")]
    Unmappable {
        /// The command, shortened.
        command: String,
        /// Why.
        why: &'static str,
    },
    /// A file of ours or one to be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The files of an append-only log cannot be told.
    #[error(transparent)]
    AppendOnly(#[from] rdb::append_only::Error),
    /// Somebody told us to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// What it means that the tool was told to stop before it was through.
    pub fn stopped(has_file: bool) -> Error {
        Error::Refused(match has_file {
            true => "stopped before the copy was complete, or while a server was away: begin again with the same flags".into(),
            false => "stopped before the copy was complete".into(),
        })
    }

    /// Whether the same may work a little later.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Error::Source(_)
                | Error::Target(_)
                | Error::NotReady(_)
                | Error::Lost(_)
                | Error::Connect { .. }
        )
    }

    /// What went wrong with a file.
    pub fn file(path: &Path, error: io::Error) -> Error {
        Error::File {
            path: path.display().to_string(),
            error,
        }
    }

    /// What a broken connection to that server is.
    pub fn broken(endpoint: &Endpoint, error: io::Error) -> Error {
        match endpoint.role {
            "source" => Error::Source(error),
            _ => Error::Target(error),
        }
    }
}

/// The result of a step.
pub type Result<T> = std::result::Result<T, Error>;

/// How many bytes of an argument are shown.
const SHOWN_BYTES: usize = 64;
/// How many arguments of a command are shown.
const SHOWN_ARGS: usize = 6;

/// Bytes for a human.
pub fn shown(bytes: &[u8]) -> String {
    let part = bytes.get(..SHOWN_BYTES);
    let text = part.unwrap_or(bytes).escape_ascii().to_string();
    match part {
        Some(_) => format!("{text}… ({} bytes)", bytes.len()),
        None => text,
    }
}

/// A command for a human.
pub fn shown_command<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words = args.iter().take(SHOWN_ARGS);
    let mut words: Vec<String> = words.map(|arg| shown(arg.as_ref())).collect();
    if args.len() > SHOWN_ARGS {
        words.push(format!("… ({} arguments)", args.len()));
    }
    format!("{:?}", words.join(" "))
}
