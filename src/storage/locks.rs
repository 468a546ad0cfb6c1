//! Key locks: a fixed number of stripes, found by a key's hash.
//!
//! A thread holds the stripes of all keys it wrote until its batch is
//! committed. The rule that makes deadlock impossible: a thread waits for a
//! stripe only when every stripe it holds has a lower number, and that is so
//! only while it collects the stripes of one command, in ascending order; what
//! earlier commands of its tick hold is committed and let go first (see
//! [`super::txn`]). A stripe is held by a thread, not by a command: taking one
//! that the thread already holds succeeds at once.
//!
//! Owners that are [long](Owner::is_long) run scripts, for as long as these take.
//! Neither IO threads nor they themselves wait for them: they are told who holds
//! the stripe.
//!
//! A stripe is one word; threads that wait for one sleep in a bucket that
//! several stripes share.

use crate::base::prefetch;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU32, Ordering};

/// How many stripes there are; a power of two. Two threads that each hold a few
/// hundred random keys rarely meet on a stripe.
pub const STRIPES: usize = 1 << 17;

/// The number of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stripe(u32);

/// Who holds a stripe: a number that one thread has for itself, above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(pub u32);

/// Set in the number of an owner that may hold stripes for long.
pub(super) const LONG: u32 = 1 << 30;

impl Owner {
    /// Whether it may hold stripes for long: who has other things to do does not
    /// wait for it.
    pub fn is_long(self) -> bool {
        self.0 & LONG != 0
    }
}

/// Set in a stripe's word while somebody may be waiting for it.
const WAITED_FOR: u32 = 1 << 31;

/// How many sleeping places there are; a power of two.
const BUCKETS: usize = 64;

#[derive(Default)]
struct Bucket {
    mutex: Mutex<()>,
    freed: Condvar,
}

/// See the module.
pub struct Locks {
    /// The holder's number, 0 if free, perhaps with [`WAITED_FOR`].
    words: Box<[AtomicU32]>,
    buckets: Box<[Bucket]>,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            words: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(),
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
        }
    }
}

/// What [`Locks::try_lock`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum TryLock {
    /// The stripe was free and is now held.
    Taken,
    /// The owner holds it already.
    Mine,
    /// Somebody else holds it.
    Busy(Owner),
}

impl Locks {
    /// The stripe of a key whose hash is `hash`.
    pub fn stripe(hash: u64) -> Stripe {
        Stripe((hash >> 40) as u32 & (STRIPES as u32 - 1))
    }

    /// Takes the stripe if it is free.
    pub fn try_lock(&self, stripe: Stripe, owner: Owner) -> TryLock {
        match self
            .word(stripe)
            .compare_exchange(0, owner.0, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => TryLock::Taken,
            Err(word) if word & !WAITED_FOR == owner.0 => TryLock::Mine,
            Err(word) => TryLock::Busy(Owner(word & !WAITED_FOR)),
        }
    }

    /// Takes the stripe, waiting for it; for one that holds it for long only if
    /// `patient`. The owner must not hold it yet.
    ///
    /// # Errors
    /// Who holds it for long.
    pub fn lock(&self, stripe: Stripe, owner: Owner, patient: bool) -> Result<(), Owner> {
        let word = self.word(stripe);
        let free = |wanted| word.compare_exchange(0, wanted, Ordering::Acquire, Ordering::Relaxed);
        if free(owner.0).is_ok() {
            return Ok(());
        }
        let bucket = self.bucket(stripe);
        let mut sleeping = bucket.mutex.lock();
        // Others may sleep here too: the bit stays set, so that they are woken.
        while let Err(held) = free(owner.0 | WAITED_FOR) {
            let holder = Owner(held & !WAITED_FOR);
            debug_assert_ne!(holder, owner, "locked twice");
            if holder.is_long() && !patient {
                return Err(holder);
            }
            let marked = word.compare_exchange(
                held,
                held | WAITED_FOR,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if marked.is_ok() {
                bucket.freed.wait(&mut sleeping);
            }
        }
        Ok(())
    }

    /// Lets a stripe go that the owner holds.
    pub fn unlock(&self, stripe: Stripe, owner: Owner) {
        let word = self.word(stripe).swap(0, Ordering::Release);
        assert_eq!(word & !WAITED_FOR, owner.0, "not the holder");
        if word & WAITED_FOR != 0 {
            let bucket = self.bucket(stripe);
            let _sleepers_see_it = bucket.mutex.lock();
            bucket.freed.notify_all();
        }
    }

    /// Has the processor fetch the stripe's word.
    pub fn prefetch(&self, stripe: Stripe) {
        prefetch::to_write(self.word(stripe));
    }

    fn word(&self, stripe: Stripe) -> &AtomicU32 {
        &self.words[stripe.0 as usize]
    }

    fn bucket(&self, stripe: Stripe) -> &Bucket {
        &self.buckets[stripe.0 as usize & (BUCKETS - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_has_one_holder_and_knows_it() {
        let locks = Locks::default();
        let (a, b) = (Owner(1), Owner(2));
        let stripe = Locks::stripe(0x1234_5678_9abc_def0);
        assert_eq!(locks.try_lock(stripe, a), TryLock::Taken);
        assert_eq!(locks.try_lock(stripe, a), TryLock::Mine);
        assert_eq!(locks.try_lock(stripe, b), TryLock::Busy(a));
        locks.unlock(stripe, a);
        assert_eq!(locks.try_lock(stripe, b), TryLock::Taken);
    }

    #[test]
    #[should_panic(expected = "not the holder")]
    fn only_the_holder_unlocks() {
        let locks = Locks::default();
        let stripe = Locks::stripe(7);
        locks.lock(stripe, Owner(1), true).unwrap();
        locks.unlock(stripe, Owner(2));
    }

    #[test]
    fn nobody_waits_for_one_that_holds_a_stripe_for_long_unless_he_wants_to() {
        let locks = std::sync::Arc::new(Locks::default());
        let stripe = Locks::stripe(7);
        let (script, io) = (Owner(1 | LONG), Owner(2));
        locks.lock(stripe, script, true).unwrap();
        assert_eq!(locks.lock(stripe, io, false), Err(script));
        let patient = {
            let locks = locks.clone();
            std::thread::spawn(move || locks.lock(stripe, Owner(3), true))
        };
        locks.unlock(stripe, script);
        assert_eq!(patient.join().unwrap(), Ok(()));
        assert_eq!(locks.try_lock(stripe, io), TryLock::Busy(Owner(3)));
    }
}
