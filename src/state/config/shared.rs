//! One configuration for all threads.
//!
//! A thread keeps the [`Arc`] it loaded and the version it read before that. Once per tick it
//! compares versions, which costs a relaxed load, and loads again when they differ. So a thread
//! may be one tick behind, and it never sees a part of a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::Config;

/// The configuration that is in force.
#[derive(Debug)]
pub struct SharedConfig {
    current: RwLock<Arc<Config>>,
    version: AtomicU64,
    /// Serialises changes. Readers do not wait for it: a change may take long, and may wait for
    /// other threads.
    changing: Mutex<()>,
}

impl SharedConfig {
    /// Version 1 of the configuration.
    pub fn new(config: Config) -> Self {
        SharedConfig {
            current: RwLock::new(Arc::new(config)),
            version: AtomicU64::new(1),
            changing: Mutex::new(()),
        }
    }

    /// The configuration in force.
    pub fn load(&self) -> Arc<Config> {
        Arc::clone(&self.current.read())
    }

    /// Grows with every change. Must be read before [`SharedConfig::load`], so that a change in
    /// between is noticed the next time.
    pub fn version(&self) -> u64 {
        // The lock that `load` takes orders the configuration itself.
        self.version.load(Ordering::Relaxed)
    }

    /// Replaces the configuration.
    pub fn publish(&self, config: Config) {
        let _changing = self.changing.lock();
        let mut current = self.current.write();
        *current = Arc::new(config);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Replaces the configuration by the result of `change`, with no other change in between;
    /// an error changes nothing. Returns the old and the new one.
    pub fn update<E>(
        &self,
        change: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<(Arc<Config>, Arc<Config>), E> {
        let _changing = self.changing.lock();
        let new = Arc::new(change(&self.load())?);
        let mut current = self.current.write();
        let old = std::mem::replace(&mut *current, Arc::clone(&new));
        self.version.fetch_add(1, Ordering::Release);
        Ok((old, new))
    }
}
