//! A queue of owners that did not get what they asked for: a stripe, or access through the gate.
//!
//! An IO thread that a [long](Owner::is_long) owner keeps waiting does not block; it tries again
//! after a while. Long owners that follow one another would leave no gap for that, so a long owner
//! [gives way] to older entries of the queue before it takes anything. An entry is removed when its
//! owner gets what it asked for, or has not asked again for some time.
//!
//! [gives way]: FairQueue::before

use crate::storage::engine::locks::{Owner, Stripe};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The lifetime of an entry that is not renewed: several times the interval at which a command is
/// tried again.
const LASTS: Duration = Duration::from_millis(100);

/// The lifetime of the entry of an owner that blocks until its turn comes.
const FOR_GOOD: Duration = Duration::from_secs(24 * 60 * 60);

/// What an owner asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Shared access through the gate.
    Inside,
    /// Exclusive access through the gate.
    Alone,
    /// A stripe.
    Stripe(Stripe),
}

struct Entry {
    owner: Owner,
    /// Its place in the queue, the same for all entries of an owner: so no two owners wait
    /// for each other.
    number: u64,
    until: Instant,
}

#[derive(Default)]
struct Table {
    last_number: u64,
    waiting: FxHashMap<Wanted, Vec<Entry>>,
}

impl Table {
    fn number_of(&self, owner: Owner) -> Option<u64> {
        let all = self.waiting.values().flatten();
        let own = all.filter(|n| n.owner == owner);
        own.map(|n| n.number).min()
    }
}

/// Requests of owners that were turned away, in the order in which they came.
#[derive(Default)]
pub struct FairQueue {
    /// The number of different things that are asked for. Read without the lock.
    count: AtomicUsize,
    table: Mutex<Table>,
}

impl FairQueue {
    /// Adds or renews an entry: the owner did not get this and asks again, or blocks until it gets
    /// it (`waits`).
    pub fn note(&self, owner: Owner, wanted: Wanted, waits: bool) {
        let now = Instant::now();
        let until = now + if waits { FOR_GOOD } else { LASTS };
        let mut table = self.table.lock();
        let table = &mut *table;
        table.waiting.retain(|_, noted| {
            noted.retain(|n| n.until > now);
            !noted.is_empty()
        });
        let number = table.number_of(owner).unwrap_or_else(|| {
            table.last_number += 1;
            table.last_number
        });
        let noted = table.waiting.entry(wanted).or_default();
        noted.retain(|n| n.owner != owner);
        noted.push(Entry {
            owner,
            number,
            until,
        });
        self.count.store(table.waiting.len(), Ordering::Release);
    }

    /// Removes the entries of an owner for what it got.
    pub fn granted(&self, owner: Owner, granted: impl Iterator<Item = Wanted>) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut table = self.table.lock();
        for wanted in granted {
            if let Some(noted) = table.waiting.get_mut(&wanted) {
                noted.retain(|n| n.owner != owner);
                if noted.is_empty() {
                    table.waiting.remove(&wanted);
                }
            }
        }
        self.count.store(table.waiting.len(), Ordering::Release);
    }

    /// The first of the owners that asked for one of these before this owner did.
    pub fn before(&self, owner: Owner, wanted: impl Iterator<Item = Wanted>) -> Option<Owner> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let now = Instant::now();
        let table = self.table.lock();
        let number = table.number_of(owner).unwrap_or(u64::MAX);
        let goes_first = |n: &&Entry| n.owner != owner && n.number < number && n.until > now;
        let noted = wanted
            .filter_map(|wanted| table.waiting.get(&wanted))
            .flatten();
        let first = noted.filter(goes_first).min_by_key(|n| n.number);
        first.map(|n| n.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::wait_for;

    #[test]
    fn the_first_that_was_turned_away_is_the_first_to_go() {
        let queue = FairQueue::default();
        let (a, b, c) = (Owner(1), Owner(2), Owner(3));
        let alone = || std::iter::once(Wanted::Alone);
        assert_eq!(queue.before(a, alone()), None);
        queue.note(a, Wanted::Alone, false);
        queue.note(b, Wanted::Alone, false);
        queue.note(a, Wanted::Alone, false);
        assert_eq!(queue.before(a, alone()), None);
        assert_eq!(queue.before(b, alone()), Some(a));
        assert_eq!(queue.before(c, alone()), Some(a));
        assert_eq!(queue.before(c, std::iter::once(Wanted::Inside)), None);
        queue.granted(a, alone());
        assert_eq!(queue.before(b, alone()), None);
        assert_eq!(queue.before(c, alone()), Some(b));
        wait_for("an old entry to expire", || {
            queue.before(c, alone()).is_none()
        });
    }
}
