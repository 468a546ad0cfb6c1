//! All users, by name.

use super::DEFAULT_USER;
use super::rules::Rules;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What changes of a user.
#[derive(Debug)]
struct Held {
    rules: Arc<Rules>,
    /// Whether it is removed.
    gone: bool,
}

/// A user. It is the same one until it is removed; its rules change.
#[derive(Debug)]
pub struct User {
    name: Box<[u8]>,
    held: RwLock<Held>,
    /// Counts the changes of the rules, from 1 on.
    version: AtomicU64,
    /// Whether the rules permit everything, for a check that costs one load.
    unrestricted: AtomicBool,
    /// See [`Rules::is_open`].
    open: AtomicBool,
}

impl User {
    fn new(name: &[u8], rules: Rules) -> User {
        User {
            name: name.into(),
            version: AtomicU64::new(1),
            unrestricted: AtomicBool::new(rules.is_unrestricted()),
            open: AtomicBool::new(rules.is_open()),
            held: RwLock::new(Held {
                rules: Arc::new(rules),
                gone: false,
            }),
        }
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The rules.
    pub fn rules(&self) -> Arc<Rules> {
        self.held.read().rules.clone()
    }

    /// The number of the rules that [`User::rules`] returns, or of earlier ones.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether the user may do everything.
    pub fn is_unrestricted(&self) -> bool {
        self.unrestricted.load(Ordering::Acquire)
    }

    /// See [`Rules::is_open`].
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Replaces the rules by those that `change` makes of them. Returns the old ones; `None`
    /// if the user is removed.
    fn change<E>(
        &self,
        change: impl FnOnce(&Rules) -> Result<Rules, E>,
    ) -> Result<Option<Arc<Rules>>, E> {
        let mut held = self.held.write();
        if held.gone {
            return Ok(None);
        }
        let rules = change(&held.rules)?;
        Ok(Some(self.set(&mut held, rules)))
    }

    fn set(&self, held: &mut Held, rules: Rules) -> Arc<Rules> {
        let (unrestricted, open) = (rules.is_unrestricted(), rules.is_open());
        let old = std::mem::replace(&mut held.rules, Arc::new(rules));
        self.version.fetch_add(1, Ordering::Release);
        self.unrestricted.store(unrestricted, Ordering::Release);
        self.open.store(open, Ordering::Release);
        old
    }

    /// Takes all permissions away: connections that still act as this user are about to be
    /// closed.
    fn retire(&self) {
        let mut held = self.held.write();
        let mut rules = (*held.rules).clone();
        rules.permit_nothing();
        self.set(&mut held, rules);
        held.gone = true;
    }
}

/// A user whose rules have changed.
#[derive(Debug)]
pub struct Change {
    /// The user.
    pub user: Arc<User>,
    /// The rules before.
    pub old: Arc<Rules>,
}

/// All users.
#[derive(Debug)]
pub struct Users {
    by_name: RwLock<BTreeMap<Box<[u8]>, Arc<User>>>,
    default: Arc<User>,
}

impl Users {
    /// The user `default` alone.
    pub fn new(default: Rules) -> Users {
        let default = Arc::new(User::new(DEFAULT_USER.as_bytes(), default));
        let by_name = BTreeMap::from([(default.name.clone(), default.clone())]);
        Users {
            by_name: RwLock::new(by_name),
            default,
        }
    }

    /// The user of connections that have not logged in.
    pub fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// The user of this name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.by_name.read().get(name).cloned()
    }

    /// All users, by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Changes a user, or makes one: `change` gets the rules that it has, if it exists, and
    /// returns the new ones. Returns the change if the user has existed.
    ///
    /// # Errors
    /// That of `change`; nothing has changed then.
    pub fn change<E>(
        &self,
        name: &[u8],
        change: impl Fn(Option<&Rules>) -> Result<Rules, E>,
    ) -> Result<Option<Change>, E> {
        loop {
            let Some(user) = self.get(name) else {
                let user = Arc::new(User::new(name, change(None)?));
                let mut by_name = self.by_name.write();
                if by_name.contains_key(name) {
                    // Another thread has just made it.
                    continue;
                }
                by_name.insert(name.into(), user);
                return Ok(None);
            };
            if let Some(old) = user.change(|rules| change(Some(rules)))? {
                return Ok(Some(Change { user, old }));
            }
        }
    }

    /// Makes `password` the only one of the default user (`requirepass`); empty: any is right.
    pub fn require(&self, password: &[u8]) {
        let mut held = self.default.held.write();
        let mut rules = (*held.rules).clone();
        rules.require(password);
        self.default.set(&mut held, rules);
    }

    /// Removes a user, whose permissions end at once. The default user stays.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        if name == DEFAULT_USER.as_bytes() {
            return None;
        }
        let removed = self.by_name.write().remove(name)?;
        removed.retire();
        Some(removed)
    }

    /// Replaces all users. A user that has existed stays the same one with other rules. Returns
    /// the users that exist no longer, and the changes of the others.
    pub fn replace(&self, mut new: BTreeMap<Vec<u8>, Rules>) -> (Vec<Arc<User>>, Vec<Change>) {
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        let mut by_name = self.by_name.write();
        by_name.retain(|name, user| match new.remove(&**name) {
            Some(rules) => {
                kept.push((user.clone(), rules));
                true
            }
            None if Arc::ptr_eq(user, &self.default) => true,
            None => {
                removed.push(user.clone());
                false
            }
        });
        for (name, rules) in new {
            let user = Arc::new(User::new(&name, rules));
            by_name.insert(name.into(), user);
        }
        drop(by_name);
        removed.iter().for_each(|user| user.retire());
        let changes = kept.into_iter().filter_map(|(user, rules)| {
            let mut held = user.held.write();
            let old = (!held.gone).then(|| user.set(&mut held, rules))?;
            drop(held);
            Some(Change { user, old })
        });
        (removed, changes.collect())
    }
}
