//! Events of keys, for `notify-keyspace-events`: a list that belongs to the pending batch. A
//! rollback to a savepoint drops the events since then. The executor takes the list after a commit
//! and publishes it once the commit is durable.
//!
//! While no events are wanted ([`View::want_events`]), an event costs one load.
//!
//! Deletions, expiry, new keys and misses are noted below the commands, where all of them pass;
//! commands note their other events themselves.

use crate::storage::DbIndex;
use crate::storage::txn::{Savepoint, Txn, View};

bitflags::bitflags! {
    /// The classes of events, as `notify-keyspace-events` has them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Class: u16 {
        /// Commands for any type.
        const GENERIC = 1;
        /// Strings.
        const STRING = 1 << 1;
        /// Lists.
        const LIST = 1 << 2;
        /// Sets.
        const SET = 1 << 3;
        /// Hashes.
        const HASH = 1 << 4;
        /// Sorted sets.
        const ZSET = 1 << 5;
        /// A key expired.
        const EXPIRED = 1 << 6;
        /// A key was evicted for want of space on the disk.
        const EVICTED = 1 << 7;
        /// Streams.
        const STREAM = 1 << 8;
        /// Keys of a module's type; here JSON.
        const MODULE = 1 << 9;
        /// A key was created.
        const NEW = 1 << 10;
        /// A command read a key that does not exist.
        const KEY_MISS = 1 << 13;
    }
}

/// The name of the event of [`Class::KEY_MISS`].
pub(in crate::storage) const MISS: &str = "keymiss";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The DB of the key.
    pub db: DbIndex,
    /// The name: `set`, `expired` …
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
}

/// The wanted events of a turn.
#[derive(Debug, Default)]
pub(in crate::storage) struct Events {
    wanted: Class,
    list: Vec<Event>,
    /// How many there were before the current command.
    before: usize,
}

impl Events {
    pub(in crate::storage) fn len(&self) -> usize {
        self.list.len()
    }

    /// What follows belongs to another command.
    pub(in crate::storage) fn start_command(&mut self) {
        self.before = self.list.len();
    }

    pub(in crate::storage) fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
    }
}

impl View {
    /// Sets the classes of events that are kept from now on.
    pub fn want_events(&mut self, wanted: Class) {
        self.events.wanted = wanted;
    }

    /// The classes of events that are kept.
    pub fn wanted_events(&self) -> Class {
        self.events.wanted
    }

    /// Notes an event of a key, if its class is wanted.
    #[inline]
    pub fn event(&mut self, class: Class, name: &'static str, db: DbIndex, key: &[u8]) {
        if self.events.wanted.intersects(class) {
            self.keep_event(name, db, key);
        }
    }

    /// Like [`View::event`], of what came before all else that the current command does to the key.
    pub(in crate::storage) fn event_before(
        &mut self,
        class: Class,
        name: &'static str,
        db: DbIndex,
        key: &[u8],
    ) {
        let last = self.events.list.len();
        self.event(class, name, db, key);
        if last < self.events.list.len() {
            let list = self.events.list.get_mut(self.events.before..);
            let list = list.unwrap_or_default();
            let of_key = |event: &Event| event.db == db && *event.key == *key;
            if let Some(first) = list.iter().position(of_key) {
                list[first..].rotate_right(1);
            }
        }
    }

    #[cold]
    fn keep_event(&mut self, name: &'static str, db: DbIndex, key: &[u8]) {
        let key = key.into();
        self.events.list.push(Event { db, name, key });
    }

    /// Calls `look` without noting events.
    pub fn quietly<R>(&mut self, look: impl FnOnce(&mut View) -> R) -> R {
        let wanted = std::mem::take(&mut self.events.wanted);
        let done = look(self);
        self.events.wanted = wanted;
        done
    }

    /// Whether there are events.
    pub fn has_events(&self) -> bool {
        !self.events.list.is_empty()
    }

    /// The number of events.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Drops all but the first `len` events.
    pub fn forget_events(&mut self, len: usize) {
        self.events.truncate(len);
    }

    /// The events since the last call. They are void if the commit fails.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events.list)
    }
}

impl Txn {
    /// Undoes what a failed command did, but keeps its `keymiss` events.
    pub fn rollback_failed(&mut self, to: &Savepoint) {
        let mut misses = Vec::new();
        if to.events < self.events.len() {
            misses = self.events.list.split_off(to.events);
            misses.retain(|event| event.name == MISS);
        }
        self.rollback(to);
        self.events.list.append(&mut misses);
    }
}
