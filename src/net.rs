//! Sockets: the accept loop of the main thread and the IO threads.
//!
//! The main thread accepts connections and deals them out to the IO threads round-robin; a
//! socket never moves to another one. An IO thread reads what has arrived, runs the requests,
//! commits once per tick and only then sends the replies. Readiness is edge-triggered: a
//! connection that is not read to its end, because its budget is used up, goes to a list of its
//! thread, which then does not sleep.
//!
//! Bounds: unsent replies are bounded by `client-output-buffer-limit` and, for all clients
//! together, by `maxmemory-clients` ([`crate::state::eviction`]): the requests of a connection
//! wait only while there is no memory for their replies. Requests are bounded by
//! `client-query-buffer-limit`; idle connections have no buffers.

mod backlog;
pub mod connection;
mod gather;
pub mod io_thread;
pub mod listener;
mod look_ahead;
mod owed_sync;

pub use io_thread::IoThread;
pub use listener::{ListenError, Listeners};
