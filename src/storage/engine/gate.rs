//! The gate in front of all keys: a thread that reads or writes keys enters it shared, a command
//! that concerns whole DBs enters it exclusively.
//!
//! Most owners are inside for the length of a tick, and an exclusive owner waits for them.
//! [Long](Owner::is_long) owners run scripts and may be inside until a client ends them. They do
//! not hold the lock while they run, but stand in a register of long owners. An owner that meets
//! one of them either waits for it, or gets its number and does something else meanwhile.

use crate::storage::engine::locks::Owner;
use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};
use parking_lot::{Condvar, Mutex, RawRwLock, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The right to be inside.
pub enum Pass {
    /// Shared, for a tick.
    Shared(#[allow(dead_code)] ArcRwLockReadGuard<RawRwLock, ()>),
    /// Exclusive, for a tick.
    Alone(#[allow(dead_code)] ArcRwLockWriteGuard<RawRwLock, ()>),
    /// Shared, for long.
    LongShared(Owner),
    /// Exclusive, for long.
    LongAlone,
}

impl Pass {
    /// Whether no other owner is inside.
    pub fn is_alone(&self) -> bool {
        matches!(self, Pass::Alone(_) | Pass::LongAlone)
    }
}

/// The gate: shared by threads that use some keys, exclusive for one that concerns whole DBs.
#[derive(Default)]
pub struct Gate {
    lock: Arc<RwLock<()>>,
    /// The long owner that is inside exclusively, 0 if there is none. Set with `lock` held for
    /// writing and `long` locked.
    closed_by: AtomicU32,
    /// The long owners that are inside shared. One enters with `lock` held for reading, so no owner
    /// is inside exclusively for a tick then.
    long: Mutex<Vec<Owner>>,
    /// Notified when a long owner leaves.
    left: Condvar,
}

impl Gate {
    /// Whether no owner is inside for a tick.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        RwLock::try_write_arc(&self.lock).is_some()
    }

    /// Whether an owner is inside exclusively, or waits to be: no other enters.
    #[cfg(test)]
    pub fn is_closing(&self) -> bool {
        RwLock::try_read_arc(&self.lock).is_none()
    }

    /// Enters shared. Waits for an owner that is inside exclusively; for a long one only if
    /// `waits_for_long`.
    ///
    /// # Errors
    /// The long owner that is inside exclusively.
    pub fn enter(&self, owner: Owner, waits_for_long: bool) -> Result<Pass, Owner> {
        loop {
            let guard = RwLock::read_arc(&self.lock);
            let closed_by = self.closed_by.load(Ordering::Acquire);
            if closed_by == 0 {
                if !owner.is_long() {
                    return Ok(Pass::Shared(guard));
                }
                self.long.lock().push(owner);
                return Ok(Pass::LongShared(owner));
            }
            drop(guard);
            if !waits_for_long {
                return Err(Owner(closed_by));
            }
            let mut long = self.long.lock();
            if self.closed_by.load(Ordering::Acquire) != 0 {
                self.left.wait(&mut long);
            }
        }
    }

    /// Enters exclusively. Waits for all owners that are inside; for long ones only if
    /// `waits_for_long`.
    ///
    /// # Errors
    /// A long owner that is inside.
    pub fn enter_alone(&self, owner: Owner, waits_for_long: bool) -> Result<Pass, Owner> {
        loop {
            let guard = RwLock::write_arc(&self.lock);
            let mut long = self.long.lock();
            let closed_by = Owner(self.closed_by.load(Ordering::Acquire));
            let inside = long.first().copied();
            match inside.or((closed_by.0 != 0).then_some(closed_by)) {
                None if owner.is_long() => {
                    self.closed_by.store(owner.0, Ordering::Release);
                    return Ok(Pass::LongAlone);
                }
                None => return Ok(Pass::Alone(guard)),
                Some(other) if !waits_for_long => return Err(other),
                Some(_) => {
                    drop(guard);
                    self.left.wait(&mut long);
                }
            }
        }
    }

    /// Leaves the gate.
    pub fn leave(&self, pass: Pass) {
        match pass {
            Pass::Shared(_) | Pass::Alone(_) => {}
            Pass::LongShared(owner) => {
                self.long.lock().retain(|other| *other != owner);
                self.left.notify_all();
            }
            Pass::LongAlone => {
                let _no_lost_wakeup = self.long.lock();
                self.closed_by.store(0, Ordering::Release);
                self.left.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::engine::locks::LONG;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const SHORT: Owner = Owner(1);
    const SCRIPT: Owner = Owner(2 | LONG);
    const OTHER_SCRIPT: Owner = Owner(3 | LONG);

    #[test]
    fn an_owner_that_does_not_wait_gets_the_long_owner_inside() {
        let gate = Gate::default();
        let script = gate.enter(SCRIPT, true).unwrap();
        let with_others = gate.enter(SHORT, false).unwrap();
        gate.leave(with_others);
        assert_eq!(gate.enter_alone(SHORT, false).err(), Some(SCRIPT));
        gate.leave(script);
        let script = gate.enter_alone(SCRIPT, true).unwrap();
        assert!(script.is_alone());
        assert_eq!(gate.enter(SHORT, false).err(), Some(SCRIPT));
        assert_eq!(gate.enter_alone(SHORT, false).err(), Some(SCRIPT));
        gate.leave(script);
        assert!(gate.enter_alone(SHORT, false).unwrap().is_alone());
    }

    #[test]
    fn an_owner_that_waits_enters_after_the_last_has_left() {
        let gate = Arc::new(Gate::default());
        let first = gate.enter(SCRIPT, true).unwrap();
        let second = gate.enter(OTHER_SCRIPT, true).unwrap();
        let (entered, news) = channel();
        let threads = [SHORT, Owner(4 | LONG)].map(|owner| {
            let (gate, entered) = (gate.clone(), entered.clone());
            std::thread::spawn(move || {
                let pass = gate.enter_alone(owner, true).unwrap();
                entered.send(owner).unwrap();
                gate.leave(pass);
            })
        });
        gate.leave(first);
        let early = news.recv_timeout(Duration::from_millis(20));
        assert!(early.is_err(), "a long owner is still inside");
        gate.leave(second);
        let deadline = Duration::from_secs(60);
        assert!(news.recv_timeout(deadline).is_ok());
        assert!(news.recv_timeout(deadline).is_ok());
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(gate.enter(SHORT, false).is_ok());
    }
}
