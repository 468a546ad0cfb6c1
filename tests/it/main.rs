//! Tests of the server as its users see it: a process, sockets, a data directory.
//!
//! One binary for all of them, because every further test crate would link
//! RocksDB once more. Nothing in here knows the server's inside; what a test
//! needs it learns over a socket, from `/proc` or from Debian's redis-server
//! (the oracle), which runs next to ours and has to answer the same.
//!
//! Modules:
//! - `support`: processes, connections, replies, random numbers, waiting
//! - `differential`: random commands against the oracle
//! - `oracle`: what neither keys nor chance decide, beside the oracle
//! - `copies`: copies in memory, against what is stored
//! - `crash`: kill -9 under load
//! - `damage`: files that the disk has lost or changed
//! - `durability`: replies that wait for the disk
//! - `failure`: writes that fail
//! - `disk`: a disk that is full, or does not do what it should
//! - `hostile`: input that no client library sends
//! - `lifecycle`: start, stop, addresses, configuration
//! - `process`: the background, signals, file descriptors, the log
//! - `replication`: masters, replicas, and what happens to them
//! - `clients`: a client library as users have it
//! - `transactions`: EXEC and WATCH under concurrency and kill -9
//! - `scripts`: scripts that take long, and their limits
//! - `linear`: histories that must have an order
//! - `blocking`: thousands of clients that wait
//! - `pubsub`: messages to subscribers
//! - `loading`: what a Redis has left, loaded at the start
//! - `migrate`: keys that move to other servers
//! - `rdb`: files from and for redis-server
//! - `notify`: keyspace events
//! - `service`: what service managers, logs and people who start it see
//! - `streams`: streams over replication, and waits that end by expiry
//! - `tracking`: client-side caches
//! - `unread`: replies that their clients do not read
//! - `workers`: what takes long, beside clients that write
//! - `tidy`: house rules of the sources
//! - `docs`: documents and their links
#![allow(clippy::unwrap_used)]

mod blocking;
mod clients;
mod copies;
mod crash;
mod damage;
mod differential;
mod disk;
mod docs;
mod durability;
mod failure;
mod hostile;
mod lifecycle;
mod linear;
mod loading;
mod memory;
mod migrate;
mod notify;
mod oracle;
mod process;
mod pubsub;
mod rdb;
mod replication;
mod scripts;
mod service;
mod streams;
mod support;
mod tidy;
mod tracking;
mod transactions;
mod unread;
mod workers;
