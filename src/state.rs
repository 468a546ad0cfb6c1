//! What all threads of a server share, and what one client is.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | the configuration |
//! | [`server`] | everything shared, in one struct |
//! | [`session`] | one client, as commands see it |
//! | [`clients`] | all clients, as other threads may see them |
//! | [`request`] | a request that is kept for later |
//! | [`waiters`] | clients that wait for a key |
//! | [`watch`] | which clients watch which keys |
//! | [`mailbox`] | messages between threads |
//! | [`delivery`] | what is on its way to clients that did not ask for it |
//! | [`tracking`] | who may hold a copy of which key |
//! | [`pubsub`] | who is subscribed to what, and what is published |
//! | [`stats`] | counters, per command and overall |
//! | [`slowlog`] | commands that took long |
//! | [`access`] | when keys were used last |
//! | [`latency`] | events that took very long, over time |
//! | [`rates`] | how fast counters grow |
//! | [`memory`] | the process' memory |
//! | [`descriptors`] | who gets the file descriptors that there are |
//! | [`process`] | what the system says about the process |
//! | [`replication`] | the master that is followed, the replicas that are fed |
//! | [`scripts`] | scripts and functions |
//! | [`loading`] | a load of data at the start |
//! | [`lanes`] | scripts that take long, and where they run |
//! | [`saves`] | SAVE and BGSAVE as they stand |
//! | [`migrations`] | MIGRATE: what waits to be moved, and which keys are on their way |
//! | [`cursors`] | places at which SCAN has stopped |
//! | [`client_memory`] | how much memory clients take |
//! | [`eviction`] | closing clients when all take too much memory |
//!
//! State does not know how connections are served or commands are run: a
//! command that acts on what lies above leaves a request here.

pub mod access;
mod budget;
pub mod client_memory;
pub mod clients;
pub mod config;
pub mod cursors;
pub mod delivery;
pub mod descriptors;
pub mod eviction;
pub mod lanes;
pub mod latency;
pub mod loading;
pub mod mailbox;
pub mod memory;
pub mod migrations;
pub mod process;
pub mod pubsub;
pub mod rates;
pub mod replication;
pub mod request;
pub mod saves;
pub mod scripts;
pub mod server;
pub mod session;
pub mod slowlog;
pub mod stats;
pub mod tracking;
pub mod waiters;
pub mod watch;

pub use clients::{ClientId, ClientInfo, Clients};
pub use mailbox::{Mailbox, Message};
pub use server::Server;
pub use session::Session;
