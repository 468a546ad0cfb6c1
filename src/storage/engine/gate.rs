//! The gate in front of all keys: whoever reads or writes any goes through it
//! with others, or alone to concern whole DBs.
//!
//! Most are inside for the length of a tick, and who wants to be alone waits for
//! them. Owners that are [long](Owner::is_long) run scripts and may be inside
//! until somebody ends them. They never hold the lock while they run, only the
//! register of who is inside for long; who meets one there either waits for it,
//! or is told who it is and does something else meanwhile.

use crate::storage::engine::locks::Owner;
use crate::sys::lock_order::{self, Lock};
use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};
use parking_lot::{Condvar, Mutex, RawRwLock, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What an owner goes by that is inside.
pub enum Pass {
    /// With others, for a tick.
    Shared(#[allow(dead_code)] ArcRwLockReadGuard<RawRwLock, ()>),
    /// Alone, for a tick.
    Alone(#[allow(dead_code)] ArcRwLockWriteGuard<RawRwLock, ()>),
    /// With others, for long.
    LongShared(Owner),
    /// Alone, for long.
    LongAlone,
}

impl Pass {
    /// Whether nobody else is inside.
    pub fn is_alone(&self) -> bool {
        matches!(self, Pass::Alone(_) | Pass::LongAlone)
    }
}

/// The gate: shared by threads that use some keys, exclusive for one that concerns whole DBs.
#[derive(Default)]
pub struct Gate {
    lock: Arc<RwLock<()>>,
    /// The long owner that is inside alone, 0 if none is. Set with `lock` held
    /// for writing and `long` locked.
    closed_by: AtomicU32,
    /// The long owners that are inside with others. One enters with `lock` held
    /// for reading, so nobody is inside alone for a tick then.
    long: Mutex<Vec<Owner>>,
    /// A long owner has left.
    left: Condvar,
}

impl Gate {
    /// Whether nobody is inside for a tick.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        RwLock::try_write_arc(&self.lock).is_some()
    }

    /// Whether somebody is inside alone, or waits for those who are inside for a tick:
    /// nobody else comes in.
    #[cfg(test)]
    pub fn is_closing(&self) -> bool {
        RwLock::try_read_arc(&self.lock).is_none()
    }

    /// Goes in with others. Waits for who is inside alone; if that is for long,
    /// only if `patient`.
    ///
    /// # Errors
    /// The long owner that is inside alone.
    pub fn enter(&self, owner: Owner, patient: bool) -> Result<Pass, Owner> {
        lock_order::check(Lock::Gate);
        loop {
            let guard = RwLock::read_arc(&self.lock);
            let closed_by = self.closed_by.load(Ordering::Acquire);
            if closed_by == 0 {
                lock_order::enter(Lock::Gate);
                if !owner.is_long() {
                    return Ok(Pass::Shared(guard));
                }
                self.long.lock().push(owner);
                return Ok(Pass::LongShared(owner));
            }
            drop(guard);
            if !patient {
                return Err(Owner(closed_by));
            }
            let mut long = self.long.lock();
            if self.closed_by.load(Ordering::Acquire) != 0 {
                self.left.wait(&mut long);
            }
        }
    }

    /// Goes in alone. Waits for those who are inside; for those that are for
    /// long only if `patient`.
    ///
    /// # Errors
    /// A long owner that is inside.
    pub fn enter_alone(&self, owner: Owner, patient: bool) -> Result<Pass, Owner> {
        lock_order::check(Lock::Gate);
        loop {
            let guard = RwLock::write_arc(&self.lock);
            let mut long = self.long.lock();
            let closed_by = Owner(self.closed_by.load(Ordering::Acquire));
            let inside = long.first().copied();
            match inside.or((closed_by.0 != 0).then_some(closed_by)) {
                None if owner.is_long() => {
                    self.closed_by.store(owner.0, Ordering::Release);
                    lock_order::enter(Lock::Gate);
                    return Ok(Pass::LongAlone);
                }
                None => {
                    lock_order::enter(Lock::Gate);
                    return Ok(Pass::Alone(guard));
                }
                Some(other) if !patient => return Err(other),
                Some(_) => {
                    drop(guard);
                    self.left.wait(&mut long);
                }
            }
        }
    }

    /// Goes out.
    pub fn leave(&self, pass: Pass) {
        lock_order::leave(Lock::Gate);
        match pass {
            Pass::Shared(_) | Pass::Alone(_) => {}
            Pass::LongShared(owner) => {
                self.long.lock().retain(|other| *other != owner);
                self.left.notify_all();
            }
            Pass::LongAlone => {
                let _so_that_nobody_misses_it = self.long.lock();
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
    fn who_is_not_patient_is_told_who_is_inside_for_long() {
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
    fn who_is_patient_waits_until_the_last_has_left() {
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
        assert!(early.is_err(), "one is still inside");
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
