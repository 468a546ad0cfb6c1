//! MIGRATE: the queue, and the keys that are being moved.
//!
//! A key that is being moved may be read but not written, from the moment its MIGRATE was
//! accepted, under the key's lock, until the target's reply is handled. A writer checks this
//! while it holds the key's lock, and tries again later. So no write can come between the dump
//! and the deletion and be lost, and no thread blocks.

use super::client_id::ClientId;
use crate::storage::DbIndex;
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Migrations that may wait for a thread.
const QUEUE: usize = 1024;

/// The credentials of a MIGRATE for the target.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The user, with AUTH2.
    pub user: Option<Vec<u8>>,
    /// The password.
    pub password: Vec<u8>,
}

/// Omits the password.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Credentials")
            .finish_non_exhaustive()
    }
}

/// One MIGRATE.
#[derive(Debug, Clone)]
pub struct Migration {
    /// The client that waits for the reply.
    pub client: ClientId,
    /// The keys' DB here.
    pub db: DbIndex,
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// If set, all keys with this prefix are moved instead.
    pub prefix: Option<Vec<u8>>,
    /// The target's host name or address.
    pub host: String,
    /// The target's port.
    pub port: u16,
    /// The DB of the keys at the target.
    pub target_db: i64,
    /// The timeout of each step of the exchange.
    pub timeout: Duration,
    /// Whether the keys are kept here.
    pub copy: bool,
    /// Whether existing keys at the target are overwritten.
    pub replace: bool,
    /// AUTH or AUTH2.
    pub credentials: Option<Credentials>,
}

type Held = Arc<Mutex<FxHashSet<(DbIndex, Vec<u8>)>>>;

/// The queue of MIGRATE, and the keys that are being moved.
#[derive(Debug)]
pub struct Migrations {
    held: Held,
    active: Arc<AtomicUsize>,
    sender: Sender<(Migration, Hold)>,
    receiver: Receiver<(Migration, Hold)>,
    /// Number of cached connections.
    pub cached_sockets: AtomicU64,
}

/// Blocks writes to some keys until it is dropped.
#[derive(Debug)]
pub struct Hold {
    db: DbIndex,
    keys: Vec<Vec<u8>>,
    held: Held,
    active: Arc<AtomicUsize>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        for key in self.keys.drain(..) {
            held.remove(&(self.db, key));
        }
        drop(held);
        self.active.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Default for Migrations {
    fn default() -> Migrations {
        let (sender, receiver) = bounded(QUEUE);
        Migrations {
            held: Held::default(),
            active: Arc::default(),
            sender,
            receiver,
            cached_sockets: AtomicU64::new(0),
        }
    }
}

impl Migrations {
    /// Whether any key is being moved. Costs one load.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire) > 0
    }

    /// Whether this key is being moved. The caller holds its lock, or checks again when it
    /// does.
    pub fn holds(&self, db: DbIndex, key: &[u8]) -> bool {
        // A lookup by reference needs an owned pair; only done while active.
        self.held.lock().contains(&(db, key.to_vec()))
    }

    /// Queues a migration; its keys are held from now on. The caller holds the keys' locks and
    /// has checked that none is held. Returns `false` if the queue is full.
    #[must_use]
    pub fn submit(&self, migration: Migration) -> bool {
        let hold = self.hold(migration.db, &migration.keys);
        // A rejected migration is dropped with its hold.
        self.sender.try_send((migration, hold)).is_ok()
    }

    /// Blocks writes to these keys; see [`Migrations::submit`] for the locks.
    pub fn hold(&self, db: DbIndex, keys: &[Vec<u8>]) -> Hold {
        let mut held = self.held.lock();
        // A key that is named twice is held and released once.
        let new = keys.iter().filter(|key| held.insert((db, key.to_vec())));
        let keys = new.cloned().collect();
        drop(held);
        self.active.fetch_add(1, Ordering::AcqRel);
        Hold {
            db,
            keys,
            held: self.held.clone(),
            active: self.active.clone(),
        }
    }

    /// The queue of the migration threads.
    pub fn queue(&self) -> &Receiver<(Migration, Hold)> {
        &self.receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migration(keys: &[&[u8]]) -> Migration {
        Migration {
            client: ClientId(1),
            db: DbIndex(2),
            keys: keys.iter().map(|key| key.to_vec()).collect(),
            prefix: None,
            host: "localhost".into(),
            port: 1,
            target_db: 0,
            timeout: Duration::from_secs(1),
            copy: false,
            replace: false,
            credentials: None,
        }
    }

    #[test]
    fn keys_are_held_until_the_hold_is_gone() {
        let migrations = Migrations::default();
        assert!(!migrations.is_active());
        assert!(migrations.submit(migration(&[b"a", b"b", b"a"])));
        assert!(migrations.is_active());
        assert!(migrations.holds(DbIndex(2), b"a") && migrations.holds(DbIndex(2), b"b"));
        assert!(!migrations.holds(DbIndex(1), b"a") && !migrations.holds(DbIndex(2), b"c"));
        let (_, hold) = migrations.queue().try_recv().unwrap();
        drop(hold);
        assert!(!migrations.is_active() && !migrations.holds(DbIndex(2), b"a"));
    }

    #[test]
    fn what_is_refused_holds_nothing() {
        let migrations = Migrations::default();
        for _ in 0..QUEUE {
            assert!(migrations.submit(migration(&[b"a"])));
        }
        assert!(!migrations.submit(migration(&[b"b"])));
        assert!(!migrations.holds(DbIndex(2), b"b"));
    }
}
