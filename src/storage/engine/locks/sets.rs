//! Locks of very many keys at once.
//!
//! The stripes of a hundred thousand keys are nearly all stripes there are, so an owner that held
//! them would hold up every other command. [Long](Owner::is_long) owners, and the thread that applies
//! a master's rows, lock many keys as one [`KeySet`] instead: they publish their hashes, and from then
//! on another owner that takes a stripe looks whether a set holds its key.
//!
//! An owner that took a stripe before the publication may not have looked. So the owner of a new set
//! takes and releases each of its stripes once, in ascending order: after that, all who had its
//! keys before are done with them, and all who come have seen the set. It holds no stripe while
//! it waits for one. Other owners do not wait for a set while they hold stripes, as for
//! everything that is held for long.
//!
//! While there are no sets, which is nearly always, a command pays for them with one load.

use super::{LONG, Locks, Owner, Stripe};
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How far a hash is rotated so that the bits of its stripe stand in front.
const ROTATED: u32 = 7;

/// Keys that one owner holds.
#[derive(Debug)]
pub struct KeySet {
    owner: Owner,
    /// Their hashes, rotated: in the order of their stripes.
    hashes: Vec<u64>,
}

impl KeySet {
    /// A set that is not held yet.
    pub(in crate::storage) fn new(owner: Owner, hashes: impl Iterator<Item = u64>) -> Arc<KeySet> {
        let mut hashes: Vec<u64> = hashes.map(|hash| hash.rotate_left(ROTATED)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        Arc::new(KeySet { owner, hashes })
    }

    /// Whether the key with this hash belongs to it.
    pub(in crate::storage) fn contains(&self, hash: u64) -> bool {
        let rotated = hash.rotate_left(ROTATED);
        self.hashes.binary_search(&rotated).is_ok()
    }

    /// The stripes of its keys, each once, in ascending order.
    pub(in crate::storage) fn stripes(&self) -> impl Iterator<Item = Stripe> {
        let mut last = None;
        let stripes = self.hashes.iter();
        stripes.filter_map(move |hash| {
            let stripe = Locks::stripe(hash.rotate_right(ROTATED));
            (last.replace(stripe) != Some(stripe)).then_some(stripe)
        })
    }

    /// Its owner as others see it, who do not wait for it as they do for a stripe.
    fn holder(&self) -> Owner {
        Owner(self.owner.0 | LONG)
    }

    /// A key that both have.
    fn common(&self, other: &KeySet) -> Option<u64> {
        let (few, many) = match self.hashes.len() < other.hashes.len() {
            true => (self, other),
            false => (other, self),
        };
        let mut hashes = few.hashes.iter().map(|hash| hash.rotate_right(ROTATED));
        hashes.find(|hash| many.contains(*hash))
    }
}

/// The sets that are held.
#[derive(Default)]
pub(super) struct Sets {
    /// Their number; read without the lock.
    count: AtomicUsize,
    all: RwLock<Vec<Arc<KeySet>>>,
    released: (Mutex<()>, Condvar),
}

impl Locks {
    /// Takes all keys of a set. Waits for owners that hold one of them for a short time. The owner
    /// must not hold any stripe.
    ///
    /// # Errors
    /// The stripe of a key that another owner holds for long, and that owner. Nothing is held
    /// then.
    pub(in crate::storage) fn lock_set(&self, set: &Arc<KeySet>) -> Result<(), (Stripe, Owner)> {
        {
            let mut all = self.sets.all.write();
            for other in all.iter() {
                if let Some(hash) = set.common(other) {
                    return Err((Locks::stripe(hash), other.holder()));
                }
            }
            all.push(set.clone());
            self.sets.count.store(all.len(), Ordering::Release);
        }
        for stripe in set.stripes() {
            if let Err(holder) = self.lock(stripe, set.owner, false) {
                self.unlock_set(set);
                return Err((stripe, holder));
            }
            self.unlock(stripe, set.owner);
        }
        Ok(())
    }

    /// Releases a set.
    pub(in crate::storage) fn unlock_set(&self, set: &Arc<KeySet>) {
        let mut all = self.sets.all.write();
        all.retain(|other| !Arc::ptr_eq(other, set));
        self.sets.count.store(all.len(), Ordering::Release);
        drop(all);
        let _sleepers_see_it = self.sets.released.0.lock();
        self.sets.released.1.notify_all();
    }

    /// A key among these that a set of another owner holds, and that owner. The caller has the
    /// stripes of the keys.
    #[inline]
    pub(in crate::storage) fn in_set_of_other(
        &self,
        hashes: impl Iterator<Item = u64>,
        owner: Owner,
    ) -> Option<(u64, Owner)> {
        match self.sets.count.load(Ordering::Acquire) {
            0 => None,
            _ => self.look_in_sets(hashes, owner),
        }
    }

    #[cold]
    fn look_in_sets(
        &self,
        mut hashes: impl Iterator<Item = u64>,
        owner: Owner,
    ) -> Option<(u64, Owner)> {
        let all = self.sets.all.read();
        let others = || all.iter().filter(move |set| set.owner != owner);
        hashes.find_map(|hash| {
            let set = others().find(|set| set.contains(hash))?;
            Some((hash, set.holder()))
        })
    }

    /// Whether a set holds the key with this hash.
    pub(super) fn is_in_set(&self, hash: u64) -> bool {
        let all = || self.sets.all.read();
        self.sets.count.load(Ordering::Acquire) > 0 && all().iter().any(|set| set.contains(hash))
    }

    /// Waits until no set of another owner holds the key with this hash. The calling thread must
    /// hold nothing.
    pub(in crate::storage) fn wait_for_sets(&self, hash: u64, owner: Owner) {
        let mut sleeping = self.sets.released.0.lock();
        while self.in_set_of_other(std::iter::once(hash), owner).is_some() {
            self.sets.released.1.wait(&mut sleeping);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::engine::locks::TryLock;

    const WORKER: Owner = Owner(1 | LONG);
    const OTHER: Owner = Owner(2 | LONG);
    const IO: Owner = Owner(3);

    fn hash(n: u64) -> u64 {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn set(owner: Owner, keys: std::ops::Range<u64>) -> Arc<KeySet> {
        KeySet::new(owner, keys.map(hash))
    }

    #[test]
    fn a_set_holds_its_keys_and_no_others() {
        let locks = Locks::default();
        let mine = set(WORKER, 0..5000);
        let (disjoint, meets) = (set(OTHER, 5000..9000), set(OTHER, 4999..6000));
        locks.lock_set(&mine).unwrap();
        let holder = |n, owner| locks.in_set_of_other(std::iter::once(hash(n)), owner);
        for n in 0..10_000 {
            assert_eq!(mine.contains(hash(n)), n < 5000);
            let expected = (n < 5000).then_some((hash(n), WORKER));
            assert_eq!(holder(n, IO), expected);
            assert_eq!(holder(n, WORKER), None);
        }
        // All stripes are free, and each was taken once.
        let stripes: Vec<Stripe> = mine.stripes().collect();
        assert!(stripes.is_sorted_by(|a, b| a < b));
        for n in 0..5000 {
            assert!(stripes.binary_search(&Locks::stripe(hash(n))).is_ok());
        }
        for stripe in stripes {
            assert_eq!(locks.try_lock(stripe, IO), TryLock::Taken);
            locks.unlock(stripe, IO);
        }
        let met = locks.lock_set(&meets);
        assert_eq!(met, Err((Locks::stripe(hash(4999)), WORKER)));
        locks.lock_set(&disjoint).unwrap();
        locks.unlock_set(&mine);
        assert_eq!(holder(4999, IO), None);
        assert_eq!(holder(5000, IO), Some((hash(5000), OTHER)));
        locks.unlock_set(&disjoint);
    }

    #[test]
    fn a_set_waits_for_those_who_had_its_keys_before_unless_for_long() {
        let locks = Arc::new(Locks::default());
        let wanted = set(WORKER, 0..3);
        locks.lock(Locks::stripe(hash(1)), OTHER, true).unwrap();
        let held = locks.lock_set(&wanted);
        assert_eq!(held, Err((Locks::stripe(hash(1)), OTHER)));
        assert_eq!(locks.in_set_of_other([hash(0)].into_iter(), IO), None);
        locks.unlock(Locks::stripe(hash(1)), OTHER);

        locks.lock(Locks::stripe(hash(1)), IO, true).unwrap();
        let waiting = {
            let (locks, wanted) = (locks.clone(), wanted.clone());
            std::thread::spawn(move || locks.lock_set(&wanted))
        };
        while locks.in_set_of_other([hash(1)].into_iter(), IO).is_none() {
            std::thread::yield_now();
        }
        assert!(!waiting.is_finished());
        locks.unlock(Locks::stripe(hash(1)), IO);
        assert_eq!(waiting.join().unwrap(), Ok(()));

        let waits = {
            let locks = locks.clone();
            std::thread::spawn(move || locks.wait_for_sets(hash(2), IO))
        };
        locks.wait_for_sets(hash(3), IO);
        locks.unlock_set(&wanted);
        waits.join().unwrap();
    }

    /// Counts under the locks of single keys and of sets: no count is lost.
    #[test]
    fn sets_and_stripes_exclude_one_another() {
        const KEYS: u64 = 64;
        const ROUNDS: u64 = 300;
        let locks = Locks::default();
        let values: Vec<AtomicUsize> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
        let count = |n: u64| {
            let value = &values[n as usize];
            let before = value.load(Ordering::Relaxed);
            std::thread::yield_now();
            value.store(before + 1, Ordering::Relaxed);
        };
        let with_set = |owner| {
            for _ in 0..ROUNDS {
                let all = set(owner, 0..KEYS);
                while locks.lock_set(&all).is_err() {
                    std::thread::yield_now();
                }
                (0..KEYS).for_each(count);
                locks.unlock_set(&all);
            }
        };
        let one_by_one = |owner| {
            for n in (0..ROUNDS).flat_map(|_| 0..KEYS) {
                let stripe = Locks::stripe(hash(n));
                loop {
                    locks.lock(stripe, owner, true).unwrap();
                    match locks.in_set_of_other([hash(n)].into_iter(), owner) {
                        None => break,
                        Some(_) => locks.unlock(stripe, owner),
                    }
                    locks.wait_for_sets(hash(n), owner);
                }
                count(n);
                locks.unlock(stripe, owner);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| with_set(WORKER));
            scope.spawn(|| with_set(OTHER));
            scope.spawn(|| one_by_one(IO));
            scope.spawn(|| one_by_one(Owner(4)));
        });
        for value in &values {
            assert_eq!(value.load(Ordering::Relaxed), 4 * ROUNDS as usize);
        }
    }
}
