//! The commands, one file per family; each file ends with its table.
//!
//! | file | what it is for |
//! |---|---|
//! | [`spec`] | what a row of a command table says |
//! | [`registry`] | all tables together, by name |
//! | [`context`] | what a handler gets to work with |
//! | [`error`] | what clients see when a command fails, each text once |
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
pub mod registry;
pub mod spec;

pub mod scan;

mod connection;
mod databases;
mod elements;
mod expire;
mod hashes;
mod keys;
mod lcs;
mod lists;
mod object;
mod sets;
mod sort;
mod strings;
mod zset_algebra;
mod zset_range;
mod zsets;

pub use context::{ReadCtx, SessionCtx, WriteCtx};
pub use error::{CmdResult, Error};
pub use registry::{Registry, registry};
pub use spec::{Command, Flags, Handler, KeyFlags, KeySpec};

/// The tables of all families.
pub const FAMILIES: &[&[Command]] = &[
    connection::COMMANDS,
    databases::COMMANDS,
    expire::COMMANDS,
    hashes::COMMANDS,
    keys::COMMANDS,
    lists::COMMANDS,
    object::COMMANDS,
    sort::COMMANDS,
    scan::COMMANDS,
    strings::COMMANDS,
    zsets::COMMANDS,
    zset_range::COMMANDS,
    zset_algebra::COMMANDS,
    sets::COMMANDS,
];
