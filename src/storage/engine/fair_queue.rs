//! Who was turned away by an owner that is [long](Owner::is_long), and has not
//! got yet what it wanted.
//!
//! Who is turned away tries again after a while. Long owners that come one after
//! the other would leave no gap for that, so whoever is long [gives way] to older
//! wishes before it takes anything. A wish is forgotten when it is granted, or
//! when nobody has come for it for some time.
//!
//! [gives way]: Wishes::before

use crate::storage::engine::locks::{Owner, Stripe};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a wish counts that is not repeated; several times as long as it
/// takes until a command is tried again.
const LASTS: Duration = Duration::from_millis(100);

/// How long a wish counts of somebody who waits.
const FOR_GOOD: Duration = Duration::from_secs(24 * 60 * 60);

/// What somebody wants to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// To go through the gate with others.
    Inside,
    /// To go through the gate alone.
    Alone,
    /// A stripe.
    Stripe(Stripe),
}

struct Noted {
    owner: Owner,
    /// Its place in the line, the same for all wishes of an owner: so no two wait
    /// for each other.
    number: u64,
    until: Instant,
}

#[derive(Default)]
struct Table {
    last_number: u64,
    wishes: FxHashMap<Wish, Vec<Noted>>,
}

impl Table {
    fn number_of(&self, owner: Owner) -> Option<u64> {
        let all = self.wishes.values().flatten();
        let own = all.filter(|n| n.owner == owner);
        own.map(|n| n.number).min()
    }
}

/// See the module.
#[derive(Default)]
pub struct Wishes {
    /// How many different ones there are; looked at often.
    count: AtomicUsize,
    table: Mutex<Table>,
}

impl Wishes {
    /// An owner did not get this; it comes again, or `waits` until it gets it.
    pub fn note(&self, owner: Owner, wish: Wish, waits: bool) {
        let now = Instant::now();
        let until = now + if waits { FOR_GOOD } else { LASTS };
        let mut table = self.table.lock();
        let table = &mut *table;
        table.wishes.retain(|_, noted| {
            noted.retain(|n| n.until > now);
            !noted.is_empty()
        });
        let number = table.number_of(owner).unwrap_or_else(|| {
            table.last_number += 1;
            table.last_number
        });
        let noted = table.wishes.entry(wish).or_default();
        noted.retain(|n| n.owner != owner);
        noted.push(Noted {
            owner,
            number,
            until,
        });
        self.count.store(table.wishes.len(), Ordering::Release);
    }

    /// An owner got what it wanted.
    pub fn granted(&self, owner: Owner, granted: impl Iterator<Item = Wish>) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut table = self.table.lock();
        for wish in granted {
            if let Some(noted) = table.wishes.get_mut(&wish) {
                noted.retain(|n| n.owner != owner);
                if noted.is_empty() {
                    table.wishes.remove(&wish);
                }
            }
        }
        self.count.store(table.wishes.len(), Ordering::Release);
    }

    /// Who wished for one of these before this owner wished for it.
    pub fn before(&self, owner: Owner, wishes: impl Iterator<Item = Wish>) -> Option<Owner> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let now = Instant::now();
        let table = self.table.lock();
        let number = table.number_of(owner).unwrap_or(u64::MAX);
        let goes_first = |n: &&Noted| n.owner != owner && n.number < number && n.until > now;
        let noted = wishes.filter_map(|wish| table.wishes.get(&wish)).flatten();
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
        let wishes = Wishes::default();
        let (a, b, c) = (Owner(1), Owner(2), Owner(3));
        let alone = || std::iter::once(Wish::Alone);
        assert_eq!(wishes.before(a, alone()), None);
        wishes.note(a, Wish::Alone, false);
        wishes.note(b, Wish::Alone, false);
        wishes.note(a, Wish::Alone, false);
        assert_eq!(wishes.before(a, alone()), None);
        assert_eq!(wishes.before(b, alone()), Some(a));
        assert_eq!(wishes.before(c, alone()), Some(a));
        assert_eq!(wishes.before(c, std::iter::once(Wish::Inside)), None);
        wishes.granted(a, alone());
        assert_eq!(wishes.before(b, alone()), None);
        assert_eq!(wishes.before(c, alone()), Some(b));
        wait_for("an old wish to be forgotten", || {
            wishes.before(c, alone()).is_none()
        });
    }
}
