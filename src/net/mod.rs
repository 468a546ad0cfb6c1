//! Sockets: the accept loop of the main thread and the IO threads.
//!
//! The main thread accepts and deals the sockets out round-robin; a socket
//! never moves. An IO thread reads what is there, runs the requests, commits
//! once per tick and only then sends the replies. Readiness is edge-triggered:
//! what a connection's budget leaves unread goes to a list of the thread, which
//! then does not sleep.
//!
//! Bounds: a connection is read only while its unsent output is below
//! [`connection::OUTPUT_PAUSE`]; its requests are bounded by
//! `client-query-buffer-limit`; idle connections have no buffers.

pub mod connection;
mod gather;
pub mod io_thread;
pub mod listener;
mod look_ahead;
mod owed_sync;

pub use io_thread::IoThread;
pub use listener::{ListenError, Listeners};
