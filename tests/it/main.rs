//! Tests of the server as its users see it: a process, sockets, a data directory.
//!
//! One binary for all of them, because every further test crate would link RocksDB again. The
//! tests use the server only from outside: over sockets, from `/proc`, and by comparison with
//! Debian's redis-server (the oracle), which must give the same replies.
//!
//! Modules:
//! - `support`: processes, connections, replies, random numbers, waiting
//! - `differential`: random commands against the oracle
//! - `oracle`: replies that do not depend on keys, against the oracle
//! - `audit`: the audit log
//! - `copies`: row cache and rank index, against the stored rows
//! - `crash`: kill -9 under load
//! - `damage`: files that the disk has lost or changed
//! - `durability`: replies that wait for the disk
//! - `failure`: writes that fail
//! - `disk`: a disk that is full or has I/O errors
//! - `hostile`: input that no client library sends
//! - `lifecycle`: start, stop, addresses, configuration
//! - `process`: the background, signals, file descriptors, the log
//! - `replication`: masters and replicas, their links and failures
//! - `clients`: a client library
//! - `cluster`: a cluster of one master and its replicas
//! - `cold`: data that are not in memory
//! - `transactions`: EXEC and WATCH under concurrency and kill -9
//! - `scripts`: scripts that take long, and their limits
//! - `linear`: linearizability
//! - `bigkeys`: keys and prefixes that take most space
//! - `bloom`: the types of RedisBloom, over replication and kill -9
//! - `blocking`: thousands of blocked clients
//! - `pubsub`: messages to subscribers
//! - `loading`: Redis' files, loaded at the start
//! - `metrics`: figures for Prometheus and health checks
//! - `migrate`: keys that move to other servers
//! - `rdb`: files from and for redis-server
//! - `notify`: keyspace events
//! - `starts`: starts that fail
//! - `service`: service managers, logs and the command line
//! - `secrets`: secrets in all that is shown of requests
//! - `streams`: streams over replication, and waits that end by expiry
//! - `tracking`: client-side caches
//! - `unread`: replies that their clients do not read
//! - `users`: users, their permissions and files
//! - `workers`: slow commands, beside clients that write
//! - `tidy`: rules for the sources
//! - `docs`: documents and their links
#![allow(clippy::unwrap_used)]

mod audit;
mod bigkeys;
mod blocking;
mod bloom;
mod clients;
mod cluster;
mod cold;
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
mod metrics;
mod migrate;
mod notify;
mod oracle;
mod process;
mod pubsub;
mod rdb;
mod replication;
mod scripts;
mod secrets;
mod service;
mod starts;
mod streams;
mod support;
mod tidy;
mod tls;
mod tls_users;
mod tracking;
mod transactions;
mod types;
mod unread;
mod users;
mod workers;
