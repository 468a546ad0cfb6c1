//! The Redis serialization protocol, versions 2 and 3: for the server, parsing of requests and
//! writing of replies; for tools, tests and replication, the reverse.
//!
//! Works on bytes only: no commands, no sockets, no storage. Any input ends in a value or an
//! error, never in a panic, and memory grows only with the bytes received.

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
pub use parser::{ArgRange, Args, Limits, Parser, Progress, ProtocolError, glance};
pub use room::{FREE_BYTES, Lender};
pub use writer::{Mark, Reply};
