//! Listeners for changes of keys: see [`crate::storage::txn::changes`].

use crate::storage::{DbIndex, Result};
use crate::sys::lock_order::{Lock, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// How a key was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Made, overwritten, changed, or given another expiry.
    Written,
    /// Deleted by a command.
    Removed,
    /// Deleted because its expiry time had passed.
    Expired,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Of one key.
    Key {
        /// Its DB.
        db: DbIndex,
        /// The key.
        key: Box<[u8]>,
        /// What happened to it.
        how: How,
        /// The client that did it: see [`crate::storage::Txn::set_origin`].
        by: u64,
    },
    /// All keys of a DB were deleted.
    Cleared {
        /// The DB.
        db: DbIndex,
        /// The client that did it.
        by: u64,
    },
    /// Two DBs were exchanged.
    Swapped {
        /// One.
        a: DbIndex,
        /// The other.
        b: DbIndex,
        /// The client that did it.
        by: u64,
    },
}

/// The keys as the thread that changes them sees them.
pub trait Keys {
    /// See [`crate::storage::Engine::key_hash`].
    fn hash(&self, db: DbIndex, key: &[u8]) -> u64;

    /// Whether the key is there. May wait for the disk.
    ///
    /// # Errors
    /// Its row cannot be read.
    fn exists(&self, db: DbIndex, key: &[u8]) -> Result<bool>;
}

/// Is called for changes of keys, on the thread that makes them: it must be quick and must not wait
/// for that thread.
pub trait Listener: Send + Sync {
    /// Finished commands have changed these keys. The thread still holds the keys' locks, `keys`
    /// shows what it wrote, and nothing is committed: the commit can still fail.
    fn changing(&self, keys: &dyn Keys, changes: &[Change]);

    /// The changes are committed and the locks released.
    fn changed(&self, changes: &[Change]);
}

/// Number of slots; a power of two.
const SLOTS: usize = 1 << 14;

/// The keys whose changes are to be reported, by their hashes, so that changes of a few other keys
/// are reported as well. Stands on a cache line of its own, which is rarely written.
#[repr(align(64))]
pub struct Interest {
    total: AtomicUsize,
    everything: AtomicUsize,
    slots: Box<[AtomicU32]>,
}

impl Default for Interest {
    fn default() -> Self {
        Interest {
            total: AtomicUsize::new(0),
            everything: AtomicUsize::new(0),
            slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl Interest {
    /// Registers interest in the key with this [`crate::storage::Engine::key_hash`]. Counted.
    pub fn add(&self, key_hash: u64) {
        self.slot(key_hash).fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back one [`Interest::add`].
    pub fn remove(&self, key_hash: u64) {
        self.slot(key_hash).fetch_sub(1, Ordering::Relaxed);
        self.total.fetch_sub(1, Ordering::Relaxed);
    }

    /// Registers interest in all keys. Counted.
    pub fn add_everything(&self) {
        self.everything.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// Registers interest in clearing and exchanging of whole DBs. Counted.
    pub fn add_whole_dbs(&self) {
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back one [`Interest::add_whole_dbs`].
    pub fn remove_whole_dbs(&self) {
        self.total.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes back one [`Interest::add_everything`].
    pub fn remove_everything(&self) {
        self.everything.fetch_sub(1, Ordering::Relaxed);
        self.total.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether any interest is registered.
    #[inline]
    pub fn any(&self) -> bool {
        self.total.load(Ordering::Relaxed) != 0
    }

    pub(in crate::storage) fn wants(&self, key_hash: u64) -> bool {
        self.everything.load(Ordering::Relaxed) != 0
            || self.slot(key_hash).load(Ordering::Relaxed) != 0
    }

    fn slot(&self, key_hash: u64) -> &AtomicU32 {
        &self.slots[key_hash as usize & (SLOTS - 1)]
    }
}

/// The listeners of changes.
#[derive(Default)]
pub struct Listeners {
    /// The keys whose changes are to be reported.
    pub interest: Arc<Interest>,
    list: RwLock<Vec<Arc<dyn Listener>>, { Lock::Listeners as u8 }>,
}

impl Listeners {
    /// Adds a listener, which must not own the engine.
    pub fn add(&self, listener: Arc<dyn Listener>) {
        self.list.write().push(listener);
    }

    pub(in crate::storage) fn each(&self, call: impl FnMut(&Arc<dyn Listener>)) {
        self.list.read().iter().for_each(call);
    }
}
