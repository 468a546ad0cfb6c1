//! The only place that knows RocksDB: rows, transactions, locks, commits, the binlog.
//!
//! | folder or module | what it does |
//! |---|---|
//! | [`engine`] | the open database: column families, commits, locks, binlog, durability, disk |
//! | `memtable` | the memtable of RocksDB for DBs, our own implementation |
//! | `cache` | copies of rows and of ranges of rows, in memory |
//! | [`rank`] | rank indexes: the number of rows before a place of a map, in memory |
//! | [`full_sync`] | whole data sets: sent to a replica, or received and installed |
//! | [`txn`] | the transaction of a thread: reads and writes of a tick, savepoints, commit |
//! | [`expiry`], [`element_expiry`] | slices of work for the expire thread |
//! | [`eviction`] | removes keys that `max-disk` has no room for |
//! | [`values`] | garbage of the value log, where the bytes of long values stand |
//! | [`tombstones`] | tombstones of deleted keys, and their compaction |
//! | [`check`] | a full check of a database's invariants |
//! | [`repair()`] | saves what can be read of a damaged database |
//! | `rot` | tables with unreadable blocks, and compactions |
//! | `corruption` | corrupt files: logged and counted |
//!
//! Dependencies go one way: `eviction` → `tombstones`; `element_expiry` → `expiry`, `tombstones`, `check`, `values` → `txn` → `full_sync` → `engine` →
//! `cache`, `rank`, `memtable`. No circle of files inside a folder; a test holds that.
//!
//! Invariants kept here (numbers as elsewhere in the code):
//! I1 a reply is sent only after what it shows is durable (see [`engine::durability`]);
//! I2 data, TTL index, counts and binlog go into one batch ([`txn::Txn::commit`]);
//! I3 binlog positions are given under the commit lock, in the order of the writes;
//! I5 counts change only in [`txn::keyspace`], with the rows they count;
//! I6 a collection dies by its meta row and a reclaim row.

mod cache;
pub mod check;
mod corruption;
mod direction;
pub mod element_expiry;
pub mod engine;
pub mod eviction;
pub mod expiry;
pub mod full_sync;
mod memtable;
pub mod rank;
mod repair;
mod rot;
pub mod tombstones;
pub mod txn;
pub mod values;

#[cfg(test)]
mod tests;

pub use corruption::{Corruptions, corruptions};
pub use direction::Direction;
pub use engine::options::StorageConfig;
pub use engine::{Engine, fail_point, is_copy};
pub use memtable::MemtableRep;
pub use repair::repair;
pub use rot::tables_aside;
pub use txn::ahead::Early;
pub use txn::keyspace::{KeyMeta, Value};
pub use txn::{Expected, KEYS_AHEAD, Txn, View};

use crate::encoding::Corrupt;
use crate::encoding::keys::Layout;
use engine::locks::Owner;

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
    /// A write failed: no further one is accepted until [`Engine::heal`] succeeds.
    #[error("storage: a write has failed; writes are refused until the disk takes them again")]
    Failed,
    /// The disk has no space for more data: see [`engine::disk`].
    #[error("storage: no space left on device")]
    NoRoom,
    /// The result of a command does not fit into memory.
    #[error("storage: no memory")]
    NoMemory,
    /// The master whose rows these are is not followed any more, or the rows do not continue the
    /// local ones. None of them was written.
    #[error("storage: this server does not follow that master any more")]
    Detached,
    /// A long-running script holds the key's lock, and the caller does not wait for it.
    #[error("storage: a script holds the key")]
    Held(Owner),
    /// The command has read more rows than it may on this thread (see [`View::limit_reads`]).
    #[error("storage: this takes long")]
    ReadBudgetSpent,
    /// The command must end before it is done: the server stops, or the client is gone. It must be
    /// taken back; nobody waits for its reply.
    #[error("storage: the command was ended")]
    Ended,
    /// A row is not in memory, and the thread does not wait for the disk (see
    /// [`engine::cold_reads`]). The command must be taken back.
    #[error("storage: this is not in memory")]
    NotInMemory,
    /// The rows of a data set that a master sent do not agree with each other.
    #[error(
        "storage: the master's DB {db} does not agree with itself about {what}; \
         DEBUG KEDIS-CHECK on the master names them"
    )]
    Disagrees {
        /// The DB.
        db: u16,
        /// The rows that disagree, in words.
        what: &'static str,
    },
    /// Parts of the database are lost, so it is not opened. The text says what can be done.
    #[error("storage: {0}")]
    Damaged(String),
    /// The directory holds something that this build cannot read.
    #[error("storage: {0}")]
    Format(String),
    /// The keys of the database are not laid out as `cluster-enabled` wants it; the layout that it
    /// wants.
    #[error("storage: {}", of_layout(*.0))]
    Layout(Layout),
    /// An option of RocksDB is set with which the memtable would lose rows.
    #[error(
        "storage: RocksDB's option {option} must not be set with the memtable btree ({why}); \
         `rocksdb.memtable skiplist` allows it"
    )]
    Excluded {
        /// Its name.
        option: &'static str,
        /// What would happen.
        why: &'static str,
    },
    /// A DB beyond the configured number has keys.
    #[error("storage: DB {index} holds {keys} keys, but `databases` is {databases}")]
    TooFewDbs {
        /// The DB.
        index: u16,
        /// Its keys.
        keys: u64,
        /// The configured number of DBs.
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

impl StorageError {
    /// Whether files do not have what was written to them, so that the next attempt would fail, too.
    pub fn is_damage(&self) -> bool {
        use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
        match self {
            StorageError::RocksDb(error) => error.kind() == rocksdb::ErrorKind::Corruption,
            StorageError::Corrupt(_) => true,
            StorageError::Io(error) => {
                matches!(error.kind(), InvalidData | NotFound | UnexpectedEof)
            }
            _ => false,
        }
    }

    /// Whether the disk could not read or write a file.
    pub(in crate::storage) fn is_of_device(&self) -> bool {
        matches!(self, StorageError::Io(error) if error.raw_os_error() == Some(libc::EIO))
    }
}

/// What to do with a database that has not the layout that is wanted.
fn of_layout(wanted: Layout) -> &'static str {
    match wanted {
        Layout::Slots => {
            "the database keeps its keys without slots: start it with `cluster-enabled no`, and move \
             the keys with kedis_port to a server with an empty database and `cluster-enabled yes`"
        }
        Layout::Plain => {
            "the database keeps its keys in slots: start it with `cluster-enabled yes`, and move the \
             keys with kedis_port to a server with an empty database and `cluster-enabled no`"
        }
    }
}

impl From<rocksdb::Error> for StorageError {
    fn from(error: rocksdb::Error) -> StorageError {
        corruptions().note(&error);
        StorageError::RocksDb(error)
    }
}

/// The result of a storage operation.
pub type Result<T> = std::result::Result<T, StorageError>;
