//! The commands, one file per family; each file ends with its table.
//!
//! | file | what it is for |
//! |---|---|
//! | [`table`] | what a row of a command table says, and all tables together |
//! | [`error`] | the error type of commands, and common error texts |
//! | [`args`] | reading numbers and options from arguments |
//!
//! To add a command: write its handler, add one row to the family's table.
//! A handler takes no lock, writes no log record and does not know RocksDB. Its row
//! declares its keys. What it changes through the transaction goes to the binlog as the
//! command itself, unless the handler states the effect (see
//! [`crate::storage::Txn::effect`]). It must do so if the result depends on time or on
//! random numbers.

pub mod args;
pub mod error;
pub mod info;
pub mod replication;
pub mod scan;
pub mod table;

pub mod acl;
pub mod ahead;
mod bigkeys;
mod bitfield;
mod bits;
mod blocking;
mod bloom;
mod client;
mod cluster;
mod command;
mod commandlog;
mod config;
mod connection;
mod databases;
pub mod debug;
mod dump;
mod element_times;
mod elements;
mod expire;
mod functions;
mod geo;
mod hash_times;
mod hashes;
mod himport;
mod hotkeys;
mod hyperloglog;
mod json;
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
mod set_times;
mod sets;
mod slowlog;
mod sort;
mod sortedint;
mod streams;
mod strings;
mod transactions;
pub mod without_times;
mod zsets;

pub use client::CROSSES_SLOTS;
pub use databases::named_dbs;
pub use error::{CmdResult, Error, OUT_OF_MEMORY};
pub use functions::{add_library, load_libraries};
pub use streams::read::error_of_lost_group;
pub use table::keys::{KeyFlags, KeySpec};
pub use table::registry::{Registry, registry};
pub use table::spec::{Command, Flags, Handler, Own, ScriptCall};

use crate::resp::Reply;
use crate::state::pubsub::Outbox;
use crate::state::{Server, Session};
use crate::storage::engine::listeners::Change;
use crate::storage::txn::events::Class;
use crate::storage::{DbIndex, Txn, View};
use ahead::Ahead;

/// The tables of all families.
const FAMILIES: &[&[Command]] = &[
    acl::COMMANDS,
    bigkeys::COMMANDS,
    bitfield::COMMANDS,
    bits::COMMANDS,
    blocking::COMMANDS,
    bloom::filter::COMMANDS,
    bloom::tdigest::COMMANDS,
    bloom::topk::COMMANDS,
    bloom::cms::COMMANDS,
    bloom::cuckoo::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    commandlog::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    databases::COMMANDS,
    debug::COMMANDS,
    dump::COMMANDS,
    element_times::OF_FIELDS,
    element_times::OF_MEMBERS,
    expire::COMMANDS,
    geo::COMMANDS,
    hash_times::COMMANDS,
    hashes::COMMANDS,
    himport::COMMANDS,
    hotkeys::COMMANDS,
    hyperloglog::COMMANDS,
    info::COMMANDS,
    json::COMMANDS,
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
    set_times::COMMANDS,
    sets::COMMANDS,
    slowlog::COMMANDS,
    sort::COMMANDS,
    sortedint::COMMANDS,
    streams::claim::COMMANDS,
    streams::delete::COMMANDS,
    streams::groups::COMMANDS,
    streams::idempotent::COMMANDS,
    streams::info::COMMANDS,
    streams::nack::COMMANDS,
    streams::read::COMMANDS,
    streams::COMMANDS,
    strings::conditions::COMMANDS,
    strings::increx::COMMANDS,
    strings::msetex::COMMANDS,
    strings::COMMANDS,
    transactions::COMMANDS,
    zsets::algebra::COMMANDS,
    zsets::range::COMMANDS,
    zsets::COMMANDS,
];

// The contexts of handlers. The type of the context decides what a handler can do: only
// a `WriteCtx` has a transaction that writes.

/// For a command that reads keys.
pub struct ReadCtx<'a> {
    /// What it reads through.
    pub view: &'a mut View,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
    /// The client's DB.
    pub db: DbIndex,
    /// What all threads share.
    pub server: &'a Server,
    /// The client.
    pub session: &'a Session,
}

/// For a command that writes keys.
pub struct WriteCtx<'a> {
    /// What it reads and writes through.
    pub txn: &'a mut Txn,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
    /// The client's DB.
    pub db: DbIndex,
    /// What all threads share.
    pub server: &'a Server,
    /// The client.
    pub session: &'a Session,
    /// What was made before the command had its locks.
    pub ahead: &'a Ahead,
}

impl WriteCtx<'_> {
    /// Records a keyspace event. An event that may leave the key empty is recorded before
    /// the value is saved, so that it precedes `del`; the others after it.
    pub fn event(&mut self, class: Class, name: &'static str, key: &[u8]) {
        self.txn.event(class, name, self.db, key);
    }
}

/// For a command about the connection or the server.
pub struct SessionCtx<'a> {
    /// The client.
    pub session: &'a mut Session,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
    /// What all threads share.
    pub server: &'a Server,
    /// What goes to clients once the tick is durable.
    pub outbox: &'a mut Outbox,
    /// Changes by earlier commands of the tick, not yet committed; only those that clients
    /// watch, wait for or track.
    pub changes: &'a [Change],
    /// The command that runs; of a container, the subcommand.
    pub command: &'static Command,
    /// The time for the EXEC or script that contains the command, Unix time in µs.
    pub unit_time_us: Option<u64>,
}
