//! Which keyspace a DB has, and the column families that come and go with them.

use super::keyspace::Keyspace;
use super::{BINLOG, ColumnFamily, DEFAULT, Engine, handle};
use crate::encoding::system::{self, KeyspaceId};
use crate::storage::{DbIndex, Result, StorageError};
use crate::sys::lock_order::{Lock, Mutex, RwLock};
use rocksdb::WriteBatch;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which keyspace a DB has, and the column families of keyspaces.
pub(in crate::storage) struct Families {
    /// By DB.
    pub(in crate::storage) keyspaces: RwLock<Vec<Option<Arc<Keyspace>>>, { Lock::Keyspaces as u8 }>,
    /// Changes whenever a DB gets another keyspace.
    pub(in crate::storage) map_version: AtomicU64,
    new: Mutex<NewFamilies, { Lock::NewFamilies as u8 }>,
}

impl Families {
    pub(super) fn new(keyspaces: Vec<Option<Arc<Keyspace>>>) -> Families {
        Families {
            keyspaces: RwLock::new(keyspaces),
            map_version: AtomicU64::new(1),
            new: Mutex::default(),
        }
    }
}

/// Numbers of the column families that were made since the start.
#[derive(Default)]
struct NewFamilies {
    /// Column families that exist. RocksDB keeps a descriptor of the directory open for each of
    /// them; those of the start share one.
    made: BTreeSet<u32>,
    /// Column families whose creation failed half way: the next start drops them.
    spoiled: BTreeSet<u32>,
    /// Column families that could not be dropped yet.
    unwanted: BTreeSet<u32>,
}

/// Whether a column family of Kedis can have this name.
pub(super) fn is_family(name: &str) -> bool {
    [DEFAULT, BINLOG].contains(&name) || KeyspaceId::of_column_family(name).is_some()
}

impl Engine {
    /// The keyspace of a DB, if anything was ever written to it.
    pub fn keyspace(&self, db: DbIndex) -> Option<Arc<Keyspace>> {
        self.families
            .keyspaces
            .read()
            .get(usize::from(db.0))?
            .clone()
    }

    /// All DBs that have a keyspace.
    pub fn all_keyspaces(&self) -> Vec<(DbIndex, Arc<Keyspace>)> {
        let map = self.families.keyspaces.read();
        let used = map.iter().enumerate();
        used.filter_map(|(db, ks)| Some((DbIndex(db as u16), ks.clone()?)))
            .collect()
    }

    /// How often DBs changed their keyspaces; for caches of [`Engine::keyspace`].
    pub(in crate::storage) fn map_version(&self) -> u64 {
        self.families.map_version.load(Ordering::Acquire)
    }

    /// The keyspace of a DB, made if there is none yet.
    pub(in crate::storage) fn keyspace_or_create(&self, db: DbIndex) -> Result<Arc<Keyspace>> {
        let mut map = self.families.keyspaces.write();
        let Some(slot) = map.get_mut(usize::from(db.0)) else {
            return Err(StorageError::Format(format!("there is no DB {}", db.0)));
        };
        if let Some(keyspace) = slot {
            return Ok(keyspace.clone());
        }
        let (id, cf) = self.create_family()?;
        let mut batch = WriteBatch::default();
        batch.put_cf(&self.system_cf, system::db_row(db.0), id.0.to_be_bytes());
        if let Some(row) = system::counts_row(id) {
            // An earlier keyspace may have had the number.
            batch.delete_cf(&self.system_cf, row);
        }
        if let Err(error) = self.db.write(batch) {
            self.fail(&error.into());
            drop(cf);
            self.drop_family(id);
            return Err(StorageError::Failed);
        }
        let keyspace = Arc::new(Keyspace::new(id, cf, self.layout));
        *slot = Some(keyspace.clone());
        self.families.map_version.fetch_add(1, Ordering::Release);
        Ok(keyspace)
    }

    /// A new column family for a DB. The caller holds the map of keyspaces.
    pub(in crate::storage) fn create_family(&self) -> Result<(KeyspaceId, ColumnFamily)> {
        let mut new = self.families.new.lock();
        if new.made.len() + new.spoiled.len() >= self.config.machine.max_new_families as usize {
            return Err(StorageError::TooManyFamilies);
        }
        let is_free = |id: &u32| {
            let name = KeyspaceId(*id).column_family();
            !new.spoiled.contains(id) && self.db.cf_handle(&name).is_none()
        };
        let id = (0..).find(is_free).unwrap_or(u32::MAX);
        let name = KeyspaceId(id).column_family();
        let options = self.options.keyspace(self.memory_budget())?;
        if let Err(error) = self.db.create_cf(&name, &options) {
            // RocksDB may have created it all the same.
            new.spoiled.insert(id);
            return Err(error.into());
        }
        new.made.insert(id);
        Ok((KeyspaceId(id), handle(&self.db, &name)?))
    }

    /// Drops a column family that no DB has.
    pub(in crate::storage) fn drop_family(&self, id: KeyspaceId) {
        let name = id.column_family();
        match self.db.drop_cf(&name) {
            Ok(()) => {
                let mut new = self.families.new.lock();
                new.made.remove(&id.0);
                new.unwanted.remove(&id.0);
            }
            Err(error) => {
                log::debug!("cannot drop column family {name} yet: {error}");
                self.families.new.lock().unwanted.insert(id.0);
            }
        }
    }

    /// Drops the column families that could not be dropped before.
    pub(super) fn drop_unwanted_families(&self) {
        let unwanted = self.families.new.lock().unwanted.clone();
        for id in unwanted {
            self.drop_family(KeyspaceId(id));
        }
    }

    /// Exchanges two DBs. The caller holds the gate exclusively; the rows go
    /// into the batch of the commit that `put` belongs to.
    pub(in crate::storage) fn swap(&self, a: DbIndex, b: DbIndex) {
        let mut map = self.families.keyspaces.write();
        let (a, b) = (usize::from(a.0), usize::from(b.0));
        if a < map.len() && b < map.len() {
            map.swap(a, b);
            self.families.map_version.fetch_add(1, Ordering::Release);
        }
    }

    /// Adds the rows that map DBs to keyspaces, as they are now, to a batch.
    pub(in crate::storage) fn put_map_rows(&self, dbs: &[DbIndex], batch: &mut WriteBatch) {
        let map = self.families.keyspaces.read();
        for db in dbs {
            match map.get(usize::from(db.0)).and_then(Option::as_ref) {
                Some(ks) => {
                    batch.put_cf(&self.system_cf, system::db_row(db.0), ks.id.0.to_be_bytes())
                }
                None => batch.delete_cf(&self.system_cf, system::db_row(db.0)),
            }
        }
    }
}
