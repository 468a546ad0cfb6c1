//! The Redis serialization protocol, both versions: requests in, replies out,
//! and for tools, tests and replication requests out and replies in.
//!
//! Knows bytes only: no command, no socket, no storage. Whatever a peer sends
//! ends in a value or an error, never in a panic, and memory grows only with
//! the bytes received.

pub mod decode;
pub mod encode;
pub mod extent;
mod input;
pub mod parser;
mod room;
pub mod writer;

pub use decode::{DecodeError, Value, decode};
pub use extent::Extent;
pub use input::Input;
pub use parser::{Args, Limits, Parser, Progress, ProtocolError, glance};
pub use room::{FREE_BYTES, Lender};
pub use writer::{Mark, Reply};
