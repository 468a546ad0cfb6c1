//! `parking_lot`'s locks with a row of the tables in their type: `LOCK` is a
//! [`Lock`] `as u8`.

use super::Lock;
use super::record::{check, check_alone, check_beside, enter};
use parking_lot::Condvar;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The thread holds a lock of this row while this lives. It stays on its thread.
struct Held<const LOCK: u8>(PhantomData<*const ()>);

impl<const LOCK: u8> Held<LOCK> {
    const ROW: Lock = Lock::of(LOCK);

    /// Before the thread waits for the lock.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn checked() -> Self {
        check(Self::ROW);
        Self::new()
    }

    #[inline]
    fn new() -> Self {
        enter(Self::ROW);
        Held(PhantomData)
    }
}

#[cfg(debug_assertions)]
impl<const LOCK: u8> Drop for Held<LOCK> {
    fn drop(&mut self) {
        super::leave(Self::ROW);
    }
}

/// A mutex that the tables name.
#[derive(Default)]
pub struct Mutex<T: ?Sized, const LOCK: u8>(parking_lot::Mutex<T>);

/// A [`Mutex`] that is held.
#[must_use = "the lock is let go at once otherwise"]
pub struct MutexGuard<'a, T: ?Sized, const LOCK: u8> {
    // Dropped first.
    guard: parking_lot::MutexGuard<'a, T>,
    _held: Held<LOCK>,
}

impl<T, const LOCK: u8> Mutex<T, LOCK> {
    /// A mutex that no thread holds.
    pub const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }
}

impl<T: ?Sized, const LOCK: u8> Mutex<T, LOCK> {
    /// Waits for the lock.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T, LOCK> {
        let _held = Held::checked();
        let guard = self.0.lock();
        MutexGuard { guard, _held }
    }

    /// Waits for the lock while the thread holds another of the same row. The caller sees to
    /// an order among these.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_beside<U: ?Sized>(
        &self,
        _other: &MutexGuard<'_, U, LOCK>,
    ) -> MutexGuard<'_, T, LOCK> {
        check_beside(Held::<LOCK>::ROW);
        let _held = Held::new();
        let guard = self.0.lock();
        MutexGuard { guard, _held }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, LOCK>> {
        let guard = self.0.try_lock()?;
        let _held = Held::new();
        Some(MutexGuard { guard, _held })
    }

    /// The value: the borrow is exclusive, so no thread holds the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized, const LOCK: u8> MutexGuard<'_, T, LOCK> {
    /// Lets the lock go, to the thread that has waited for it longest.
    #[inline]
    pub fn unlock_fair(this: Self) {
        parking_lot::MutexGuard::unlock_fair(this.guard);
    }

    /// Lets the lock go until `changed` is notified, or for so long, and takes it again. The
    /// thread must hold no other lock.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_for(this: &mut Self, changed: &Condvar, at_most: Duration) {
        check_alone(Held::<LOCK>::ROW);
        changed.wait_for(&mut this.guard, at_most);
    }
}

impl<T: ?Sized, const LOCK: u8> Deref for MutexGuard<'_, T, LOCK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized, const LOCK: u8> DerefMut for MutexGuard<'_, T, LOCK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug, const LOCK: u8> fmt::Debug for Mutex<T, LOCK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lock for many readers or one writer that the tables name. A thread that reads must not
/// read once more: between the two another one may wait to write.
#[derive(Default)]
pub struct RwLock<T: ?Sized, const LOCK: u8>(parking_lot::RwLock<T>);

/// A [`RwLock`] that is held with other readers.
#[must_use = "the lock is let go at once otherwise"]
pub struct RwLockReadGuard<'a, T: ?Sized, const LOCK: u8> {
    // Dropped first.
    guard: parking_lot::RwLockReadGuard<'a, T>,
    _held: Held<LOCK>,
}

/// A [`RwLock`] that one thread holds.
#[must_use = "the lock is let go at once otherwise"]
pub struct RwLockWriteGuard<'a, T: ?Sized, const LOCK: u8> {
    // Dropped first.
    guard: parking_lot::RwLockWriteGuard<'a, T>,
    _held: Held<LOCK>,
}

impl<T, const LOCK: u8> RwLock<T, LOCK> {
    /// A lock that no thread holds.
    pub const fn new(value: T) -> Self {
        RwLock(parking_lot::RwLock::new(value))
    }
}

impl<T: ?Sized, const LOCK: u8> RwLock<T, LOCK> {
    /// Waits for who writes.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T, LOCK> {
        let _held = Held::checked();
        let guard = self.0.read();
        RwLockReadGuard { guard, _held }
    }

    /// Waits for all others.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, LOCK> {
        let _held = Held::checked();
        let guard = self.0.write();
        RwLockWriteGuard { guard, _held }
    }

    /// Takes the lock to write if it is free.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, LOCK>> {
        let guard = self.0.try_write()?;
        let _held = Held::new();
        Some(RwLockWriteGuard { guard, _held })
    }
}

impl<T: ?Sized, const LOCK: u8> Deref for RwLockReadGuard<'_, T, LOCK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized, const LOCK: u8> Deref for RwLockWriteGuard<'_, T, LOCK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized, const LOCK: u8> DerefMut for RwLockWriteGuard<'_, T, LOCK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug, const LOCK: u8> fmt::Debug for RwLock<T, LOCK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Without debug assertions nothing is added to `parking_lot`'s types, and nothing is done
/// when a guard is dropped but what they do.
#[cfg(not(debug_assertions))]
const _: () = {
    use std::mem::needs_drop;
    const LOCK: u8 = Lock::Commit as u8;
    assert!(size_of::<Held<LOCK>>() == 0 && !needs_drop::<Held<LOCK>>());
};

/// The types have the size of `parking_lot`'s, whatever is checked.
const _: () = {
    const LOCK: u8 = Lock::Commit as u8;
    type Text = [u8; 3];
    assert!(size_of::<Mutex<Text, LOCK>>() == size_of::<parking_lot::Mutex<Text>>());
    assert!(size_of::<RwLock<Text, LOCK>>() == size_of::<parking_lot::RwLock<Text>>());
    type Guard = parking_lot::MutexGuard<'static, Text>;
    assert!(size_of::<MutexGuard<'static, Text, LOCK>>() == size_of::<Guard>());
    type ReadGuard = parking_lot::RwLockReadGuard<'static, Text>;
    assert!(size_of::<RwLockReadGuard<'static, Text, LOCK>>() == size_of::<ReadGuard>());
    type WriteGuard = parking_lot::RwLockWriteGuard<'static, Text>;
    assert!(size_of::<RwLockWriteGuard<'static, Text, LOCK>>() == size_of::<WriteGuard>());
};
