//! Key locks: a fixed number of stripes, found by a key's hash.
//!
//! A thread holds the stripes of all keys it wrote until its batch is committed. The rule that
//! makes deadlock impossible: a thread waits for a stripe only when every stripe it holds has a
//! lower number, and that is so only while it collects the stripes of one command, in ascending
//! order. The stripes that earlier commands of its tick hold are released first, by a commit (see
//! [`crate::storage::txn`]). A stripe is held by a thread, not by a command: taking one that the
//! thread already holds succeeds at once.
//!
//! [Long](Owner::is_long) owners run scripts, for as long as these take. Neither IO threads nor
//! other long owners wait for them: they get the number of the owner that holds the stripe.
//!
//! Commands that only read *share* the stripes of their keys, each for itself and no longer than it
//! runs. A thread that shares stripes does not wait meanwhile: if it cannot share all that the
//! command needs, it releases everything and waits until it can, or, after some failed attempts,
//! takes them exclusively as above. No thread begins to share a stripe while its word says that
//! another thread waits for it. A thread that is woken sets that bit again if it finds the stripe
//! taken once more, so others may overtake it.
//!
//! A stripe is one word; threads that wait for one sleep in a bucket that
//! several stripes share.
//!
//! Very many keys are locked as a [set](sets) instead.

pub mod sets;

use crate::sys::huge_pages::HugeVec;
use crate::sys::lock_order::{self, Lock};
use crate::sys::prefetch;
use parking_lot::{Condvar, Mutex};
use sets::Sets;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many stripes there are; a power of two. Two threads that each hold a few
/// hundred random keys rarely meet on a stripe.
pub(super) const STRIPES: usize = 1 << 17;

/// The number of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stripe(u32);

impl Stripe {
    /// Its place among [`STRIPES`].
    pub(in crate::storage) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The holder of a stripe: a number above 0 that only one thread has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(pub u32);

/// Set in the number of an owner that may hold stripes for long.
pub(in crate::storage) const LONG: u32 = 1 << 30;

impl Owner {
    /// Whether it may hold stripes for long: threads that have other things to do do not wait for
    /// it.
    pub fn is_long(self) -> bool {
        self.0 & LONG != 0
    }
}

/// Set in a stripe's word while a thread may be waiting for it.
const WAITED_FOR: u32 = 1 << 31;

/// Set in a stripe's word while threads share it; the bits below say how many.
const SHARED: u32 = 1 << 29;

/// The number of buckets for threads that sleep; a power of two.
const BUCKETS: usize = 64;

#[derive(Default)]
struct Bucket {
    mutex: Mutex<()>,
    freed: Condvar,
    /// Threads that sleep here, or were woken and do not have what they wait for yet.
    waiting: AtomicU32,
}

/// Counts a thread that waits, until it is dropped.
struct Waiting<'b>(&'b Bucket);

impl Waiting<'_> {
    fn begin(bucket: &Bucket) -> Waiting<'_> {
        bucket.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(bucket)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The locks of all keys, as stripes.
pub struct Locks {
    /// The holder's number or [`SHARED`] and a number of threads, either perhaps
    /// with [`WAITED_FOR`]; 0 if free.
    words: HugeVec<AtomicU32>,
    buckets: Box<[Bucket]>,
    sets: Sets,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            words: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(),
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            sets: Sets::default(),
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
    /// Another owner holds it. If threads share it, the number is no real owner's.
    Busy(Owner),
}

impl Locks {
    /// The stripe of a key whose hash is `hash`.
    pub(in crate::storage) fn stripe(hash: u64) -> Stripe {
        Stripe((hash >> 40) as u32 & (STRIPES as u32 - 1))
    }

    /// Takes the stripe if it is free.
    pub fn try_lock(&self, stripe: Stripe, owner: Owner) -> TryLock {
        // A caller that does not get the stripe here waits for it next.
        lock_order::check_beside(Lock::KeyStripe);
        match self
            .word(stripe)
            .compare_exchange(0, owner.0, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => {
                lock_order::enter(Lock::KeyStripe);
                TryLock::Taken
            }
            Err(word) if word & !WAITED_FOR == owner.0 => TryLock::Mine,
            Err(word) => TryLock::Busy(Owner(word & !WAITED_FOR)),
        }
    }

    /// Takes the stripe, and waits for it if needed; for an owner that holds it for long only if
    /// `waits_for_long`. The owner must not hold it yet.
    ///
    /// # Errors
    /// The owner that holds it for long.
    pub fn lock(&self, stripe: Stripe, owner: Owner, waits_for_long: bool) -> Result<(), Owner> {
        let word = self.word(stripe);
        let free = |wanted| word.compare_exchange(0, wanted, Ordering::Acquire, Ordering::Relaxed);
        lock_order::check_beside(Lock::KeyStripe);
        if free(owner.0).is_ok() {
            lock_order::enter(Lock::KeyStripe);
            return Ok(());
        }
        let bucket = self.bucket(stripe);
        let mut sleeping = bucket.mutex.lock();
        let _waiting = Waiting::begin(bucket);
        // Other threads may sleep here too: the bit stays set, so that they are woken.
        while let Err(held) = free(owner.0 | WAITED_FOR) {
            let holder = Owner(held & !WAITED_FOR);
            debug_assert_ne!(holder, owner, "locked twice");
            if holder.is_long() && !waits_for_long {
                return Err(holder);
            }
            if self.mark(stripe, held) {
                bucket.freed.wait(&mut sleeping);
            }
        }
        lock_order::enter(Lock::KeyStripe);
        Ok(())
    }

    /// Whether any owner holds the stripe or shares it.
    pub(in crate::storage) fn is_held(&self, stripe: Stripe) -> bool {
        self.word(stripe).load(Ordering::Relaxed) != 0
    }

    /// Whether an owner holds the key with this hash exclusively.
    pub(in crate::storage) fn is_taken(&self, hash: u64) -> bool {
        let word = self.word(Locks::stripe(hash)).load(Ordering::Acquire);
        let by_stripe = word != 0 && word & SHARED == 0;
        by_stripe || self.is_in_set(hash)
    }

    /// Releases a stripe that the owner holds.
    pub(in crate::storage) fn unlock(&self, stripe: Stripe, owner: Owner) {
        let word = self.word(stripe).swap(0, Ordering::Release);
        assert_eq!(word & !WAITED_FOR, owner.0, "not the holder");
        lock_order::leave(Lock::KeyStripe);
        self.freed(stripe, word);
    }

    /// Shares the stripe if no other owner holds it exclusively or waits for it.
    pub(in crate::storage) fn try_share(&self, stripe: Stripe, owner: Owner) -> TryLock {
        let word = self.word(stripe);
        let mut seen = 0;
        loop {
            let shared = match seen {
                0 => SHARED | 1,
                _ if seen & (SHARED | WAITED_FOR) == SHARED => seen + 1,
                _ if seen & !WAITED_FOR == owner.0 => return TryLock::Mine,
                _ => return TryLock::Busy(Owner(seen & !WAITED_FOR)),
            };
            let (taken, free) = (Ordering::Acquire, Ordering::Relaxed);
            match word.compare_exchange(seen, shared, taken, free) {
                Ok(_) => {
                    lock_order::enter(Lock::KeyStripe);
                    return TryLock::Taken;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Waits until the stripe can be shared, or an owner holds it for long. The calling thread must
    /// not hold any stripe. The state may have changed again by the time that this returns.
    pub(in crate::storage) fn wait_to_share(&self, stripe: Stripe) {
        lock_order::check(Lock::KeyStripe);
        let word = self.word(stripe);
        let bucket = self.bucket(stripe);
        let mut sleeping = bucket.mutex.lock();
        let _waiting = Waiting::begin(bucket);
        loop {
            let seen = word.load(Ordering::Relaxed);
            let can_share = seen == 0 || seen & (SHARED | WAITED_FOR) == SHARED;
            if can_share || Owner(seen).is_long() {
                return;
            }
            if self.mark(stripe, seen) {
                bucket.freed.wait(&mut sleeping);
            }
        }
    }

    /// Whether threads wait for the stripe, or for one of the others that share its bucket. A thread
    /// that takes a stripe over and over lets them in by it: who is woken by a release finds the
    /// stripe taken again otherwise.
    pub(in crate::storage) fn is_waited_for(&self, stripe: Stripe) -> bool {
        self.bucket(stripe).waiting.load(Ordering::Relaxed) > 0
    }

    /// Sets the bit that a thread waits for a stripe whose word is `seen`. Returns false if the
    /// word has changed.
    fn mark(&self, stripe: Stripe, seen: u32) -> bool {
        let (word, relaxed) = (self.word(stripe), Ordering::Relaxed);
        word.compare_exchange(seen, seen | WAITED_FOR, relaxed, relaxed)
            .is_ok()
    }

    /// Ends what [`Locks::try_share`] has begun.
    pub(in crate::storage) fn unshare(&self, stripe: Stripe) {
        lock_order::leave(Lock::KeyStripe);
        let word = self.word(stripe);
        let mut seen = SHARED | 1;
        loop {
            let count = seen & !(SHARED | WAITED_FOR);
            assert!(seen & SHARED != 0 && count > 0, "no thread shares it");
            let left = if count == 1 { 0 } else { seen - 1 };
            let (released, not) = (Ordering::Release, Ordering::Relaxed);
            match word.compare_exchange(seen, left, released, not) {
                Ok(_) if left == 0 => return self.freed(stripe, seen),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Wakes the threads that sleep for a stripe whose last word was this.
    fn freed(&self, stripe: Stripe, word: u32) {
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
        &self.words[stripe.index()]
    }

    fn bucket(&self, stripe: Stripe) -> &Bucket {
        &self.buckets[stripe.index() & (BUCKETS - 1)]
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
    fn readers_share_a_stripe_and_let_a_waiting_writer_in() {
        let locks = std::sync::Arc::new(Locks::default());
        let stripe = Locks::stripe(7);
        let (a, b, writer) = (Owner(1), Owner(2), Owner(3));
        assert_eq!(locks.try_share(stripe, a), TryLock::Taken);
        assert_eq!(locks.try_share(stripe, b), TryLock::Taken);
        assert!(matches!(locks.try_lock(stripe, writer), TryLock::Busy(_)));
        let waiting = {
            let locks = locks.clone();
            std::thread::spawn(move || {
                assert_eq!(locks.lock(stripe, writer, false), Ok(()));
                assert_eq!(locks.try_share(stripe, writer), TryLock::Mine);
                assert_eq!(locks.try_share(stripe, a), TryLock::Busy(writer));
                locks.unlock(stripe, writer);
            })
        };
        while locks.word(stripe).load(Ordering::Relaxed) & WAITED_FOR == 0 {
            std::thread::yield_now();
        }
        assert!(matches!(locks.try_share(stripe, a), TryLock::Busy(_)));
        locks.unshare(stripe);
        assert!(!waiting.is_finished());
        locks.unshare(stripe);
        waiting.join().unwrap();
        assert_eq!(locks.try_share(stripe, a), TryLock::Taken);
    }

    #[test]
    fn who_waits_for_a_stripe_is_seen_until_it_has_it() {
        let locks = std::sync::Arc::new(Locks::default());
        let stripe = Locks::stripe(7);
        locks.lock(stripe, Owner(1), true).unwrap();
        assert!(!locks.is_waited_for(stripe));
        let waiting = {
            let locks = locks.clone();
            std::thread::spawn(move || {
                locks.lock(stripe, Owner(2), true).unwrap();
                assert!(!locks.is_waited_for(stripe));
                locks.unlock(stripe, Owner(2));
                locks.wait_to_share(stripe);
            })
        };
        while !locks.is_waited_for(stripe) {
            std::thread::yield_now();
        }
        locks.unlock(stripe, Owner(1));
        waiting.join().unwrap();
        assert!(!locks.is_waited_for(stripe));
    }

    #[test]
    fn no_reader_shares_a_stripe_with_a_writer() {
        let locks = Locks::default();
        let stripe = Locks::stripe(7);
        let values = [AtomicU32::new(0), AtomicU32::new(0)];
        let write = |owner| {
            for _ in 0..20_000 {
                locks.lock(stripe, owner, true).unwrap();
                for value in &values {
                    value.fetch_add(1, Ordering::Relaxed);
                }
                locks.unlock(stripe, owner);
            }
        };
        let read = |owner| {
            for _ in 0..20_000 {
                while locks.try_share(stripe, owner) != TryLock::Taken {
                    std::hint::spin_loop();
                }
                let [a, b] = &values;
                assert_eq!(a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
                locks.unshare(stripe);
            }
        };
        std::thread::scope(|scope| {
            for n in 1..=2 {
                scope.spawn(move || write(Owner(n)));
                scope.spawn(move || read(Owner(n + 2)));
            }
        });
        assert_eq!(locks.word(stripe).load(Ordering::Relaxed), 0);
    }

    #[test]
    #[should_panic(expected = "no thread shares it")]
    fn a_stripe_that_is_not_shared_cannot_be_unshared() {
        let locks = Locks::default();
        locks.lock(Locks::stripe(7), Owner(1), true).unwrap();
        locks.unshare(Locks::stripe(7));
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
    fn only_an_owner_that_wants_to_waits_for_a_long_holder() {
        let locks = std::sync::Arc::new(Locks::default());
        let stripe = Locks::stripe(7);
        let (script, io) = (Owner(1 | LONG), Owner(2));
        locks.lock(stripe, script, true).unwrap();
        assert_eq!(locks.lock(stripe, io, false), Err(script));
        let waiting = {
            let locks = locks.clone();
            std::thread::spawn(move || locks.lock(stripe, Owner(3), true))
        };
        locks.unlock(stripe, script);
        assert_eq!(waiting.join().unwrap(), Ok(()));
        assert_eq!(locks.try_lock(stripe, io), TryLock::Busy(Owner(3)));
    }

    #[cfg(debug_assertions)]
    mod order {
        use super::*;
        use crate::sys::lock_order::{Lock, Mutex};

        #[test]
        #[should_panic(expected = "key stripes must not be taken under commit lock")]
        fn stripes_come_before_the_commit_lock() {
            let commit = Mutex::<_, { Lock::Commit as u8 }>::new(());
            let _commit = commit.lock();
            let _ = Locks::default().lock(Locks::stripe(7), Owner(1), true);
        }

        #[test]
        #[should_panic(expected = "key stripes must not be taken under key stripes")]
        fn a_thread_that_waits_to_share_a_stripe_holds_none() {
            let locks = Locks::default();
            locks.lock(Locks::stripe(7), Owner(1), true).unwrap();
            locks.wait_to_share(Locks::stripe(1 << 50));
        }

        #[test]
        fn a_stripe_is_unlocked_by_the_thread_that_holds_it() {
            let locks = Locks::default();
            let (stripe, owner) = (Locks::stripe(7), Owner(1));
            locks.lock(stripe, owner, true).unwrap();
            let other = std::thread::scope(|scope| {
                let unlocks = scope.spawn(|| locks.unlock(stripe, owner));
                unlocks.join()
            });
            assert!(other.is_err());
        }
    }
}
