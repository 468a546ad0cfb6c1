//! Kedis: a persistent key-value server that speaks the Redis protocol and
//! keeps its data in RocksDB.
//!
//! # Code map
//!
//! | module | what it is |
//! |---|---|
//! | [`base`] | clock, numbers, globs, hashes: knows neither Redis nor RocksDB |
//! | [`resp`] | request parser, reply writer and decoder |
//! | [`lua`] | the interpreter of scripts, its sandbox and libraries |
//! | [`encoding`] | the disk format as pure functions |
//! | [`rdb`] | Redis' RDB values and files, both ways |
//! | [`storage`] | the only place that knows RocksDB: transactions, locks, commits, binlog |
//! | [`types`] | string, hash, list, set, zset, stream: operations on a transaction |
//! | [`state`] | what threads share: configuration, clients, counters |
//! | [`commands`] | one file per family, each ends with its command table |
//! | [`exec`] | from a request to a reply: the dispatch ladder and the tick |
//! | [`net`] | accept loop, IO threads, connections |
//! | [`jobs`] | threads: expire, binlog-trim, tidy, fsync, lanes, migrate; loading files of Redis |
//! | [`replication`] | one thread per replica that is fed, one that follows a master |
//! | [`migrate`] | what the tools do that move data between servers |
//! | [`server`] | start and stop |
//!
//! Arrows go one way: net, jobs, replication → exec → commands → types, lua, state →
//! storage, rdb → encoding, resp → base. `migrate` talks to servers from outside and
//! names only commands, rdb, encoding, resp, base. A test holds the direction.

pub mod base;
pub mod commands;
pub mod encoding;
pub mod exec;
pub mod jobs;
pub mod lua;
pub mod migrate;
pub mod net;
pub mod rdb;
pub mod replication;
pub mod resp;
pub mod server;
pub mod state;
pub mod storage;
pub mod types;
