//! Sockets: the accept loop of the main thread and the IO threads.
//!
//! The main thread accepts and deals the sockets out round-robin; a socket
//! never moves. An IO thread reads what is there, runs the requests, commits
//! once per tick and only then sends the replies. Readiness is edge-triggered:
//! what a connection's budget leaves unread goes to a list of the thread, which
//! then does not sleep.
//!
//! Bounds: replies that a peer does not take are bounded by `client-output-buffer-limit`
//! and, for all clients together, by `maxmemory-clients` ([`crate::state::eviction`]): its
//! requests wait only where there is no room for the replies to them. Requests are bounded
//! by `client-query-buffer-limit`; idle connections have no buffers.

mod backlog;
pub mod connection;
mod gather;
pub mod io_thread;
pub mod listener;
mod look_ahead;
mod owed_sync;

pub use io_thread::IoThread;
pub use listener::{ListenError, Listeners};
