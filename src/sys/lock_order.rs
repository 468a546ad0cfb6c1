//! The order in which a thread takes locks, checked where debug assertions are on.
//!
//! [`Lock`] names the locks of the tables under "Order of locks" in `src/lib.rs`, and says
//! under which of them a thread may take each. A lock that is named there is a [`Mutex`] or
//! [`RwLock`] of this module, with its name in its type. Before a thread waits for one, the
//! locks that it holds are compared with the table; if one of them is not allowed, the
//! thread panics, whether or not it would have had to wait. A deadlock is so found by any
//! test that takes the two locks in the wrong order once.
//!
//! A lock that is only tried ([`Mutex::try_lock`]) needs no order, as the thread does not wait for it,
//! but counts as held. Locks that are no mutexes, the gate and the stripes of keys, say so
//! themselves: [`check`], [`enter`], [`leave`].
//!
//! Locks that the tables do not name are mutexes of `parking_lot`. They are leaves: the
//! holder takes no other lock.
//!
//! Without debug assertions all of this is `parking_lot`'s, with no byte and no
//! instruction more.

mod guards;
mod record;
#[cfg(test)]
mod tests;

pub use guards::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use record::{check, check_beside, enter, leave};

/// A lock, or several of which a thread holds one at a time, by its row in the tables of
/// `src/lib.rs`. The order of the variants is the order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "`src/lib.rs` says what each guards")]
pub enum Lock {
    Gate,
    KeyStripe,
    DesiredMaster,
    ConfigChange,
    BinlogTrim,
    Flush,
    Commit,
    FilesInUse,
    Unstalled,
    TablesAside,
    Keyspaces,
    NewFamilies,
    Ahead,
    ValueLogSync,
    ValueLogTail,
    ValueLogList,
    Listeners,
    RankIndexes,
    RankIndex,
    RowCacheSet,
    Short,
    Callback,
    WorkersDone,
    WatchersShard,
    PubSubTables,
    TrackingPart,
    AckWaits,
    WaiterPhase,
    WaitersShard,
    Migrations,
    Workers,
    WorkerNow,
    Config,
    Deliveries,
    Replicas,
    ReplicaMessages,
    LinkSocket,
    Clients,
}

/// A row of the tables: the lock, what the row calls it, and what a thread may hold when it
/// takes it.
struct Row {
    lock: Lock,
    name: &'static str,
    under: Under,
}

enum Under {
    /// These, any number of them.
    Only(&'static [Lock]),
    /// All locks of the rows above.
    AllAbove,
}

const fn row(lock: Lock, name: &'static str, under: &'static [Lock]) -> Row {
    let under = Under::Only(under);
    Row { lock, name, under }
}

const fn row_under_all(lock: Lock, name: &'static str) -> Row {
    let under = Under::AllAbove;
    Row { lock, name, under }
}

use Lock::*;

#[rustfmt::skip]
const TABLE: &[Row] = &[
    row(Gate, "gate", &[]),
    row(KeyStripe, "key stripes", &[Gate]),
    row(DesiredMaster, "`Replication::desired`", &[Gate, KeyStripe]),
    row(ConfigChange, "`SharedConfig::changing`", &[Gate, KeyStripe]),
    row(BinlogTrim, "`Binlog::trim`", &[Gate]),
    row(Flush, "`Durability::flush`", &[Gate]),
    row(Commit, "commit lock", &[Gate, KeyStripe, DesiredMaster, ConfigChange, BinlogTrim, Flush]),
    row(FilesInUse, "`Engine::files_in_use`", &[Gate]),
    row(Unstalled, "`Engine::unstalled`", &[]),
    row(TablesAside, "list of tables that are put aside", &[Gate, KeyStripe]),
    row(Keyspaces, "`Families::keyspaces`", &[Gate, KeyStripe, ConfigChange, BinlogTrim, Commit, Unstalled, TablesAside]),
    row(NewFamilies, "`Families::new`", &[Gate, KeyStripe, Keyspaces]),
    row(Ahead, "list of collections that are written before their commit", &[Gate, KeyStripe]),
    row(ValueLogSync, "`ValueLog::syncing`", &[Gate, KeyStripe, DesiredMaster, ConfigChange, BinlogTrim, Flush, Commit, FilesInUse]),
    row(ValueLogTail, "`ValueLog::tail`", &[Gate, KeyStripe, BinlogTrim, Commit]),
    row(ValueLogList, "`ValueLog::listed`", &[Gate]),
    row(Listeners, "list of [`storage::engine::listeners`]", &[Gate, KeyStripe]),
    row(RankIndexes, "map of rank indexes", &[Gate, KeyStripe]),
    row(RankIndex, "a rank index", &[Gate, KeyStripe, RankIndexes]),
    row(RowCacheSet, "sets of the row cache", &[Gate, KeyStripe, Ahead, Listeners, RankIndex]),
    row_under_all(Short, "`Lineage`'s history"),
    row_under_all(Callback, "`Disk::turn`"),
    row(WorkersDone, "`Workers::done`", &[]),
    row(WatchersShard, "shards of `Watchers`", &[Gate, KeyStripe, Listeners]),
    row(PubSubTables, "`PubSub::tables`", &[Gate, KeyStripe, WorkersDone]),
    row(TrackingPart, "parts of `Tracking`", &[Gate, KeyStripe, WorkersDone]),
    row(AckWaits, "`Replication::waits`", &[Gate, KeyStripe]),
    row(WaiterPhase, "phase of a waiter", &[Gate, KeyStripe, WorkersDone, AckWaits]),
    row(WaitersShard, "shards of `Waiters`", &[Gate, KeyStripe, WorkersDone, AckWaits]),
    row(Migrations, "`Migrations::held`", &[Gate, KeyStripe]),
    row(Workers, "`Workers::all`", &[Gate, KeyStripe]),
    row(WorkerNow, "`Worker::now`", &[Gate, KeyStripe, RankIndex, Workers]),
    row(Config, "`SharedConfig::current`", &[Gate, KeyStripe, ConfigChange, WorkersDone, PubSubTables]),
    row(Deliveries, "queue of a mailbox", &[Gate, KeyStripe, WorkersDone, PubSubTables]),
    row(Replicas, "list of replicas", &[Gate, KeyStripe, DesiredMaster, WorkersDone, PubSubTables]),
    row(ReplicaMessages, "messages of a replica", &[Gate, KeyStripe, WorkersDone, PubSubTables, Replicas]),
    row(LinkSocket, "socket of the link", &[Gate, KeyStripe, DesiredMaster]),
    row(Clients, "table of clients", &[Gate, KeyStripe, RankIndex, WorkersDone, PubSubTables, TrackingPart]),
];

const LOCKS: usize = TABLE.len();
// A set of locks is a word.
const _: () = assert!(LOCKS <= 64);

/// What a thread may hold when it takes a lock, by the lock: a bit for each.
const ALLOWED: [u64; LOCKS] = {
    let mut allowed = [0; LOCKS];
    let mut at = 0;
    while at < LOCKS {
        assert!(TABLE[at].lock as usize == at, "a row is out of order");
        allowed[at] = match TABLE[at].under {
            Under::AllAbove => TABLE[at].lock.bit() - 1,
            Under::Only(locks) => {
                let mut set = 0;
                let mut n = 0;
                while n < locks.len() {
                    assert!((locks[n] as usize) < at, "only what stands above");
                    set |= locks[n].bit();
                    n += 1;
                }
                set
            }
        };
        at += 1;
    }
    allowed
};

impl Lock {
    const fn bit(self) -> u64 {
        1 << self as u8
    }

    fn name(self) -> &'static str {
        TABLE[self as usize].name
    }

    /// The lock of this number, for types that have it as a parameter.
    const fn of(number: u8) -> Lock {
        TABLE[number as usize].lock
    }
}
