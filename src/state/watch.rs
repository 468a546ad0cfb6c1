//! WATCH: makes a client's next EXEC fail if a key changes before.
//!
//! A key is entered under its lock. A thread that changes the key marks its watchers while it
//! holds that lock (see [`crate::storage::txn::changes`]), and EXEC reads the mark under the
//! locks of the watched keys. So no change is missed, whatever the threads of the clients are.
//!
//! A key may also expire without a change: EXEC compares the expiry that the key had when it
//! was entered, which is unchanged, with its own clock. A key that had expired before counts as
//! missing, whether or not it has been deleted.

use crate::base::time::UnixMs;
use crate::storage::DbIndex;
use crate::storage::engine::listeners::{Change, How, Interest, Keys, Listener};
use crate::sys::lock_order::{Lock, Mutex};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Shards of the table, each with a lock; a power of two.
const SHARDS: usize = 64;

#[derive(Debug, Clone)]
struct Entry {
    db: DbIndex,
    key: Box<[u8]>,
    /// Whether the key existed.
    live: bool,
    /// Set when the key changes.
    dirty: Arc<AtomicBool>,
}

type Shard = FxHashMap<u64, Vec<Entry>>;
type ShardLock = Mutex<Shard, { Lock::WatchersShard as u8 }>;

/// All watched keys.
pub struct Watchers {
    shards: Box<[ShardLock]>,
    interest: Arc<Interest>,
    clients: AtomicUsize,
    entries: AtomicUsize,
}

impl Watchers {
    /// An empty table of keys of the database that `interest` belongs to.
    pub fn new(interest: Arc<Interest>) -> Watchers {
        Watchers {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            interest,
            clients: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
        }
    }

    /// The number of clients with watches.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// The number of watched keys, each counted once per client.
    pub fn keys(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    fn mark_if(&self, hit: impl Fn(&Entry) -> bool) {
        for shard in &self.shards {
            let shard = shard.lock();
            let entries = shard.values().flatten();
            entries.filter(|entry| hit(entry)).for_each(Entry::mark);
        }
    }

    /// Marks the watchers of those of these keys that did not exist and do now, as they were
    /// in the other DB. Rows are read without the lock of a shard; no client watches another key
    /// meanwhile, as the DBs are exchanged under the gate. A row that cannot be read makes
    /// EXEC fail rather than go on.
    fn mark_moved_in(&self, keys: &dyn Keys, is_in: impl Fn(&Entry) -> bool) {
        for shard in &self.shards {
            let shard = shard.lock();
            let absent = shard.values().flatten().filter(|e| is_in(e) && !e.live);
            let absent: Vec<Entry> = absent.cloned().collect();
            drop(shard);
            let moved_in = |e: &&Entry| !matches!(keys.exists(e.db, &e.key), Ok(false));
            absent.iter().filter(moved_in).for_each(Entry::mark);
        }
    }

    fn shard(&self, key_hash: u64) -> &ShardLock {
        &self.shards[key_hash as usize & (SHARDS - 1)]
    }
}

impl Listener for Watchers {
    fn changing(&self, keys: &dyn Keys, changes: &[Change]) {
        if self.keys() == 0 {
            return;
        }
        for change in changes {
            match change {
                Change::Key { db, key, how, .. } => {
                    let shard = self.shard(keys.hash(*db, key)).lock();
                    let entries = shard.get(&keys.hash(*db, key));
                    let hit = |e: &&Entry| {
                        e.db == *db && e.key == *key && (e.live || *how != How::Expired)
                    };
                    entries
                        .into_iter()
                        .flatten()
                        .filter(hit)
                        .for_each(Entry::mark);
                }
                Change::Cleared { db, .. } => self.mark_if(|e| e.db == *db && e.live),
                Change::Swapped { a, b, .. } => {
                    let is_in = |e: &Entry| e.db == *a || e.db == *b;
                    self.mark_if(|e| is_in(e) && e.live);
                    self.mark_moved_in(keys, is_in);
                }
            }
        }
    }

    fn changed(&self, _: &[Change]) {}
}

impl Entry {
    fn mark(&self) {
        self.dirty.store(true, Ordering::Release);
    }
}

/// A key watched by a client.
#[derive(Debug)]
struct Watched {
    db: DbIndex,
    key: Box<[u8]>,
    /// 0: no expiry, or the key did not exist.
    expire_ms: UnixMs,
}

/// The watches of one client; they end when this is dropped.
pub struct Watch {
    table: Arc<Watchers>,
    dirty: Arc<AtomicBool>,
    /// By the hashes of the keys.
    keys: FxHashMap<u64, SmallVec<[Watched; 1]>>,
    len: usize,
    bytes: usize,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.watched()).finish()
    }
}

impl Watch {
    /// No watches yet.
    pub fn new(table: Arc<Watchers>) -> Watch {
        table.clients.fetch_add(1, Ordering::Relaxed);
        Watch {
            table,
            dirty: Arc::default(),
            keys: FxHashMap::default(),
            len: 0,
            bytes: 0,
        }
    }

    /// Watches a key whose lock the caller holds. `expiry` is 0 if the key does not expire and
    /// `None` if it does not exist; `hash` is that of [`Keys::hash`].
    pub fn add(&mut self, db: DbIndex, key: &[u8], hash: u64, expiry: Option<UnixMs>) {
        let same_hash = self.keys.entry(hash).or_default();
        if same_hash.iter().any(|w| w.db == db && *w.key == *key) {
            return;
        }
        same_hash.push(Watched {
            db,
            key: key.into(),
            expire_ms: expiry.unwrap_or_default(),
        });
        self.len += 1;
        self.table.interest.add(hash);
        self.table.entries.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.table.shard(hash).lock();
        shard.entry(hash).or_default().push(Entry {
            db,
            key: key.into(),
            live: expiry.is_some(),
            dirty: self.dirty.clone(),
        });
        drop(shard);
        self.bytes += size_of::<(u64, Watched)>() + size_of::<Entry>() + 2 * key.len();
    }

    fn watched(&self) -> impl Iterator<Item = &Watched> {
        self.keys.values().flatten()
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = (DbIndex, &[u8])> {
        self.watched().map(|w| (w.db, &*w.key))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Approximate memory, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// What is set when a key changes.
    pub fn failed(&self) -> Arc<AtomicBool> {
        self.dirty.clone()
    }

    /// Whether a key has changed.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Whether a key has expired that existed when it was entered. `now_ms` is
    /// [`crate::storage::View::expiry_now_ms`].
    pub fn has_expired(&self, now_ms: UnixMs) -> bool {
        let over = |w: &Watched| w.expire_ms.is_some() && w.expire_ms <= now_ms;
        self.watched().any(over)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let same_hash = self.keys.iter();
        let all = same_hash.flat_map(|(hash, watched)| watched.iter().map(move |w| (*hash, w)));
        for (hash, watched) in all {
            let mut shard = self.table.shard(hash).lock();
            if let Some(entries) = shard.get_mut(&hash) {
                let mine = |e: &Entry| {
                    Arc::ptr_eq(&e.dirty, &self.dirty) && e.db == watched.db && e.key == watched.key
                };
                if let Some(at) = entries.iter().position(mine) {
                    entries.swap_remove(at);
                }
                if entries.is_empty() {
                    shard.remove(&hash);
                }
            }
            drop(shard);
            self.table.interest.remove(hash);
            self.table.entries.fetch_sub(1, Ordering::Relaxed);
        }
        self.table.clients.fetch_sub(1, Ordering::Relaxed);
    }
}
