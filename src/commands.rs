//! The commands, one file per family; each file ends with its table.
//!
//! | file | what it is for |
//! |---|---|
//! | [`spec`] | what a row of a command table says |
//! | [`syntax`] | the arguments of a command, as rows write them |
//! | [`registry`] | all tables together, by name |
//! | [`names`] | what clients call commands: `rename-command` |
//! | [`manual`] | the command list of the manual |
//! | [`context`] | what a handler gets to work with |
//! | [`error`] | what clients see when a command fails, each text once |
//! | [`help`] | the replies of HELP |
//! | [`secrets`] | which arguments nobody else may see |
//! | [`args`] | reading numbers and options from arguments |
//!
//! To add a command: write its handler, add one row to the family's table.
//! A handler takes no lock, writes no log record and does not know RocksDB: its
//! row declares its keys, and whatever it changed through the transaction is
//! logged as the command itself unless it states its effect (see
//! [`crate::storage::Txn::effect`]), which every command must whose meaning
//! depends on time or chance.

pub mod args;
pub mod context;
pub mod error;
pub mod help;
pub mod info;
pub mod manual;
pub mod names;
pub mod registry;
pub mod replication;
pub mod scan;
pub mod secrets;
pub mod spec;
pub mod syntax;

mod acl;
mod bitfield;
mod bits;
mod blocking;
mod client;
mod cluster;
mod command;
mod config;
mod connection;
mod databases;
pub mod debug;
mod dump;
mod elements;
mod expire;
pub mod field_times;
mod functions;
mod hashes;
mod hyperloglog;
mod keys;
mod latency;
mod lcs;
mod lists;
pub mod memory;
mod migrate;
mod modules;
mod object;
mod pubsub;
pub mod save;
pub mod scripts;
mod server;
mod sets;
mod slowlog;
mod sort;
mod stream_args;
mod stream_claim;
mod stream_groups;
mod stream_info;
mod stream_read;
mod streams;
mod strings;
mod transactions;
mod zset_algebra;
mod zset_range;
mod zsets;

pub use context::{ReadCtx, SessionCtx, WriteCtx};
pub use databases::named_dbs;
pub use error::{CmdResult, Error, OUT_OF_MEMORY};
pub use functions::{add_library, load_libraries};
pub use registry::{Registry, registry};
pub use spec::{Command, Flags, Handler, KeyFlags, KeySpec, Own, ScriptCall};
pub use stream_read::error_of_lost_group;

/// The tables of all families.
pub const FAMILIES: &[&[Command]] = &[
    acl::COMMANDS,
    bitfield::COMMANDS,
    bits::COMMANDS,
    blocking::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    databases::COMMANDS,
    debug::COMMANDS,
    dump::COMMANDS,
    expire::COMMANDS,
    hashes::COMMANDS,
    hyperloglog::COMMANDS,
    info::COMMANDS,
    keys::COMMANDS,
    latency::COMMANDS,
    lists::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    modules::COMMANDS,
    object::COMMANDS,
    pubsub::COMMANDS,
    replication::COMMANDS,
    save::COMMANDS,
    scan::COMMANDS,
    server::COMMANDS,
    functions::COMMANDS,
    scripts::COMMANDS,
    sets::COMMANDS,
    slowlog::COMMANDS,
    sort::COMMANDS,
    stream_claim::COMMANDS,
    stream_groups::COMMANDS,
    stream_info::COMMANDS,
    stream_read::COMMANDS,
    streams::COMMANDS,
    strings::COMMANDS,
    transactions::COMMANDS,
    zset_algebra::COMMANDS,
    zset_range::COMMANDS,
    zsets::COMMANDS,
];
