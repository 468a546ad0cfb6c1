//! What all threads of a server share: for now its configuration.
//!
//! State knows nothing of connections, commands or storage; those layers
//! read and change it.

pub mod config;
