//! Why a migration stops, or must begin again.

use super::options::{Endpoint, TARGET};
use crate::rdb;
use std::io;
use std::path::Path;

/// Why a migration stops, or must begin again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection to the source broke; reconnecting may help.
    #[error("source: {0}")]
    Source(io::Error),
    /// The connection to the target broke; reconnecting may help.
    #[error("target: {0}")]
    Target(io::Error),
    /// The connection to the only server broke.
    #[error("server: {0}")]
    Server(io::Error),
    /// A server answers but is not ready.
    #[error("{0}")]
    NotReady(String),
    /// The source has no longer the stream from this offset.
    #[error("the source no longer has the stream from offset {0}: copying again")]
    Lost(u64),
    /// A connection could not be made.
    #[error("cannot connect to the {endpoint}: {error}")]
    Connect {
        /// The server.
        endpoint: String,
        /// Why.
        error: io::Error,
    },
    /// The peer is not what it must be, or refuses a command.
    #[error("{0}")]
    Refused(String),
    /// The target refused a command.
    #[error("the target refused {command}: {error}")]
    Command {
        /// The command, shortened.
        command: String,
        /// Its error reply.
        error: String,
        /// Whether other commands of the same transaction were run.
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
    /// A command of the stream cannot be translated for the target.
    #[error("cannot carry over {command}: {why}")]
    Unmappable {
        /// The command, shortened.
        command: String,
        /// Why.
        why: &'static str,
    },
    /// An input file or a file of the tool.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The files of an append-only log cannot be determined.
    #[error(transparent)]
    AppendOnly(#[from] rdb::append_only::Error),
    /// The tool was asked to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// The error for a tool that was asked to stop before it was done.
    pub fn stopped(has_file: bool) -> Error {
        Error::Refused(match has_file {
            true => "stopped before the copy was complete, or while a server was away: begin again with the same flags".into(),
            false => "stopped before the copy was complete".into(),
        })
    }

    /// Whether the same attempt may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(
            self,
            Error::Source(_)
                | Error::Target(_)
                | Error::NotReady(_)
                | Error::Lost(_)
                | Error::Connect { .. }
        )
    }

    /// The error for a file.
    pub fn file(path: &Path, error: io::Error) -> Error {
        Error::File {
            path: path.display().to_string(),
            error,
        }
    }

    /// The error for a broken connection to this server.
    pub fn broken(endpoint: &Endpoint, error: io::Error) -> Error {
        match endpoint.role {
            "source" => Error::Source(error),
            TARGET => Error::Target(error),
            _ => Error::Server(error),
        }
    }
}

/// The result of a step.
pub type Result<T> = std::result::Result<T, Error>;

/// How many bytes of an argument are shown.
const SHOWN_BYTES: usize = 64;
/// How many arguments of a command are shown.
const SHOWN_ARGS: usize = 6;

/// Bytes for display, escaped and shortened.
pub fn shown(bytes: &[u8]) -> String {
    let part = bytes.get(..SHOWN_BYTES);
    let text = part.unwrap_or(bytes).escape_ascii().to_string();
    match part {
        Some(_) => format!("{text}… ({} bytes)", bytes.len()),
        None => text,
    }
}

/// A command for display, escaped and shortened.
pub(super) fn shown_command<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words = args.iter().take(SHOWN_ARGS);
    let mut words: Vec<String> = words.map(|arg| shown(arg.as_ref())).collect();
    if args.len() > SHOWN_ARGS {
        words.push(format!("… ({} arguments)", args.len()));
    }
    format!("{:?}", words.join(" "))
}
