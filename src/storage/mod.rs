//! The only place that knows RocksDB: rows, transactions, locks, commits, the binlog.
//!
//! | module | what it does |
//! |---|---|
//! | [`engine`] | the open database: column families, own rows, durability, checkpoints |
//! | [`options`] | how RocksDB is set up |
//! | `reserve` | memory that the block cache makes room for |
//! | `memtable` | where rows stand until they are written out |
//! | [`locks`] | key locks |
//! | [`overlay`] | the pending batch |
//! | [`hot`] | copies of popular rows, in memory |
//! | `runs` | copies of the rows at which range reads began lately, among them |
//! | [`tally`] | how many rows stand before a place of a map, in memory |
//! | [`txn`] | reads and writes of a tick, savepoints, commit |
//! | [`durability`] | how far commits are safe from a crash; the fsync thread |
//! | [`disk`] | free space, the reserve for deletions, errors of files |
//! | [`syncs`] | who waits for the fsync thread, gathered into few syncs |
//! | [`scan`] | range reads over the pending batch and the stored rows |
//! | [`keyspace`] | keys with their expiry, counts and dead collections |
//! | [`events`] | what happens to keys, for `notify-keyspace-events` |
//! | [`changes`] | which keys commands change, for whoever wants to know |
//! | [`binlog`] | what commits log, and its trimming |
//! | [`history`] | whose writes the binlog holds: replication ids and their ends |
//! | [`snapshot`] | all rows as they are at one position, for a replica |
//! | [`staging`] | a data set that arrives row by row and then takes the place of the old one |
//! | [`expiry`] | slices of work for the expire thread |
//! | `ahead` | rows of large new collections, written before their commit |
//! | `wal` | the files of the write-ahead log, and how far each must be whole |
//! | [`repair()`] | saves what can be read of a damaged database |
//! | `rot` | tables with blocks that cannot be read, and compactions |
//! | [`traces`] | what deleted keys leave until compaction |
//! | `corruption` | files that the disk does not give back as they were written |
//! | [`check`] | a full check of a database's invariants |
//!
//! Invariants kept here (numbers as elsewhere in the code):
//! I1 a reply is sent only after what it saw is durable (see [`durability`]);
//! I2 data, TTL index, counts and binlog go into one batch ([`txn::Txn::commit`]);
//! I3 binlog positions are given under the commit lock, in the order of the writes;
//! I5 counts change only in [`keyspace`], with the rows they count;
//! I6 a collection dies by its meta row and a reclaim row.

mod ahead;
mod audit;
pub mod binlog;
pub mod changes;
pub mod check;
mod corruption;
pub mod disk;
pub mod durability;
pub mod engine;
pub mod events;
pub mod expiry;
pub mod gate;
pub mod history;
pub mod hot;
pub mod keyspace;
pub mod locks;
mod memtable;
pub mod options;
pub mod overlay;
mod patience;
mod repair;
mod reserve;
mod rot;
mod runs;
pub mod scan;
pub mod snapshot;
pub mod staging;
mod syncs;
pub mod tally;
pub mod traces;
pub mod txn;
mod upstream;
mod wal;
mod wishes;

#[cfg(test)]
mod tests;

pub use ahead::Early;
pub use corruption::{Corruptions, corruptions};
pub use engine::{Engine, fail_point, is_copy};
pub use keyspace::{KeyMeta, Value};
pub use options::StorageConfig;
pub use repair::repair;
pub use rot::tables_aside;
pub use txn::{Expected, KEYS_AHEAD, Txn, View};

use crate::encoding::Corrupt;
use locks::Owner;

/// The number of a DB, as SELECT takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DbIndex(pub u16);

/// What storage can fail with.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// RocksDB reports a failure.
    #[error("storage: {0}")]
    RocksDb(rocksdb::Error),
    /// A row on disk is not what it should be.
    #[error("storage: {0}")]
    Corrupt(#[from] Corrupt),
    /// A write failed: nothing is written until [`Engine::heal`] has gone well.
    #[error("storage: a write has failed; writes are refused until the disk takes them again")]
    Failed,
    /// The disk has no room for more data: see [`disk`].
    #[error("storage: no space left on device")]
    NoRoom,
    /// What was received from a master is not wanted any more, or does not follow
    /// on what is there. Nothing of it was written.
    #[error("storage: this server does not follow that master any more")]
    Detached,
    /// A script that runs for long has the key, and the caller does not wait for it.
    #[error("storage: a script holds the key")]
    Held(Owner),
    /// What was asked for takes long, and the caller has no time for that (see
    /// [`View::be_brief`]).
    #[error("storage: this takes long")]
    TakesLong,
    /// The rows of a data set that a master sent do not agree with each other.
    #[error(
        "storage: the master's DB {db} does not agree with itself about {what}; \
         DEBUG KEDIS-CHECK on the master names them"
    )]
    Disagrees {
        /// The DB.
        db: u16,
        /// What their keys say, in words.
        what: &'static str,
    },
    /// The database has lost something, and is not opened as it is. Says how to go on.
    #[error("storage: {0}")]
    Damaged(String),
    /// The directory holds something that this build cannot read.
    #[error("storage: {0}")]
    Format(String),
    /// There are keys in a DB that is not to be.
    #[error("storage: DB {index} holds {keys} keys, but `databases` is {databases}")]
    TooFewDbs {
        /// The DB.
        index: u16,
        /// Its keys.
        keys: u64,
        /// How many there are to be.
        databases: u16,
    },
    /// No file descriptor is left for another DB.
    #[error(
        "storage: this system's limit of file descriptors has no room for another DB; \
         raise it (ulimit -n), or restart the server"
    )]
    TooManyFamilies,
    /// A file operation failed.
    #[error("storage: {0}")]
    Io(#[from] std::io::Error),
}

impl From<rocksdb::Error> for StorageError {
    fn from(error: rocksdb::Error) -> StorageError {
        corruptions().note(&error);
        StorageError::RocksDb(error)
    }
}

/// The result of a storage operation.
pub type Result<T> = std::result::Result<T, StorageError>;
