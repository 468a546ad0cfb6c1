//! The expire thread: deletes expired keys, fields and members, in slices of one commit each, and reclaims the rows
//! of dead collections at a bounded rate.
//!
//! Fairness: a slice is small (of fields and members as many as a bounded time allows), skips keys that other threads hold, and yields after each
//! commit. A pass lasts as long as there are expired keys, so a million keys that expire
//! together are gone in seconds.

use super::StopSign;
use super::notices::tell_clients;
use crate::base::recurring::Recurring;
use crate::base::time::UnixMs;
use crate::state::Server;
use crate::storage::{DbIndex, StorageError, Txn};
use crate::sys::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Rows that one reclaim slice removes.
const RECLAIM_SLICE: usize = 4096;
/// How many fields or members at the most go in a slice in place of a key: many of them have the
/// same key, so that they share its look-up and its row.
const ELEMENTS_PER_KEY: usize = 4;
/// How many of them go in a slice at the least.
const ELEMENTS_MIN: usize = 128;
/// How long a slice of fields and members should take, because clients wait for their keys meanwhile.
const ELEMENTS_TIME: Duration = Duration::from_millis(2);
/// Pause after a storage error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How often the thread checks whether the engine accepts writes again.
const WHILE_FAILED: Duration = Duration::from_millis(100);

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let mut txn = Txn::new(server.engine.clone());
    txn.keep_changes();
    let mut job = Expire {
        txn,
        server,
        allowance: Allowance::new(Instant::now()),
        pace: Pace {
            elements: ELEMENTS_MIN,
        },
    };
    let mut fails = Recurring::default();
    loop {
        let period = Duration::from_millis(job.server.config.load().expire_period_ms);
        let pause = match job.pass(sign) {
            Ok(true) => return,
            Ok(false) => {
                fails.over();
                period
            }
            Err(error) => {
                if fails.is_news(&error) {
                    log::error!("expire thread: {error}");
                }
                AFTER_ERROR
            }
        };
        if sign.sleep(pause) {
            return;
        }
    }
}

struct Expire {
    txn: Txn,
    server: Arc<Server>,
    allowance: Allowance,
    pace: Pace,
}

/// How many fields and members go in a slice.
struct Pace {
    elements: usize,
}

impl Pace {
    /// Notes how long a slice took, of which the configuration allows `most` elements.
    fn note(&mut self, took: Duration, most: usize) {
        if took > ELEMENTS_TIME {
            self.elements /= 2;
        } else if took < ELEMENTS_TIME / 2 {
            self.elements *= 2;
        }
        self.elements = self.elements.clamp(ELEMENTS_MIN.min(most), most);
    }
}

/// A token bucket: how many rows may be reclaimed now.
struct Allowance {
    rows: u64,
    /// The fraction of a row beyond `rows`, in thousandths.
    carry: u64,
    /// When the bucket was last refilled.
    refilled: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Allowance {
        Allowance {
            rows: 0,
            carry: 0,
            refilled: now,
        }
    }

    /// Adds the rows for the time until `now`; the bucket holds the rows of one second. A rate
    /// of 0 means no limit.
    fn refill(&mut self, per_second: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled);
        let elapsed_ms = elapsed.as_millis() as u64;
        self.refilled += Duration::from_millis(elapsed_ms);
        if per_second == 0 {
            self.rows = u64::MAX;
            self.carry = 0;
            return;
        }
        let due = per_second
            .saturating_mul(elapsed_ms)
            .saturating_add(self.carry);
        self.rows = self.rows.saturating_add(due / 1000).min(per_second);
        self.carry = due % 1000;
    }

    fn spend(&mut self, rows: usize) {
        self.rows = self.rows.saturating_sub(rows as u64);
    }
}

impl Expire {
    /// One pass over all DBs. Returns whether to stop.
    fn pass(&mut self, sign: &StopSign) -> Result<bool, StorageError> {
        if self.server.engine.has_failed() {
            return Ok(sign.sleep(WHILE_FAILED));
        }
        let per_second = self.server.config.load().reclaim_rows_per_s;
        self.allowance.refill(per_second, Instant::now());
        for (db, _) in self.server.engine.all_keyspaces() {
            if self.expires() && (self.expire(db, sign)? || self.expire_elements(db, sign)?) {
                return Ok(true);
            }
            if self.reclaim(db, sign)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether expired keys are deleted: not if the source of an import does that.
    fn expires(&self) -> bool {
        self.server.active_expire.load(Ordering::Relaxed) && !self.server.config.load().import_mode
    }

    fn expire(&mut self, db: DbIndex, sign: &StopSign) -> Result<bool, StorageError> {
        let limit = self.server.config.load().expire_slice_keys as usize;
        let now_ms = clock::unix_ms();
        let Some(mut pass) = self.txn.begin_expire(db, now_ms) else {
            return Ok(false);
        };
        loop {
            if self.is_paused(clock::unix_ms()) {
                return Ok(false);
            }
            let notify = self.server.config.load().notify_keyspace_events;
            self.txn.want_events(notify.classes());
            let slice = self.txn.expire_slice(&mut pass, limit)?;
            self.server.stats.expired_keys.add(self.txn.take_expired());
            tell_clients(&self.server, &mut self.txn, notify)?;
            if !slice.more {
                break;
            }
            if sign.sleep(Duration::ZERO) {
                return Ok(true);
            }
        }
        self.txn.end_expire(pass);
        Ok(false)
    }

    /// Deletes fields of hashes and members of sets whose time is over.
    fn expire_elements(&mut self, db: DbIndex, sign: &StopSign) -> Result<bool, StorageError> {
        let keys = self.server.config.load().expire_slice_keys as usize;
        let most = keys * ELEMENTS_PER_KEY;
        let Some(mut pass) = self.txn.begin_element_expire(db, clock::unix_ms()) else {
            return Ok(false);
        };
        loop {
            if self.is_paused(clock::unix_ms()) {
                return Ok(false);
            }
            let notify = self.server.config.load().notify_keyspace_events;
            self.txn.want_events(notify.classes());
            let begun = Instant::now();
            let limit = self.pace.elements.min(most);
            let slice = self.txn.element_expire_slice(&mut pass, limit)?;
            if slice.more {
                self.pace.note(begun.elapsed(), most);
            }
            let elements = self.txn.take_expired_elements();
            self.server.stats.expired_subkeys.add(elements);
            tell_clients(&self.server, &mut self.txn, notify)?;
            if !slice.more {
                break;
            }
            if sign.sleep(Duration::ZERO) {
                return Ok(true);
            }
        }
        self.txn.end_element_expire(pass);
        Ok(false)
    }

    fn reclaim(&mut self, db: DbIndex, sign: &StopSign) -> Result<bool, StorageError> {
        let Some(mut pass) = self.txn.begin_reclaim(db) else {
            return Ok(false);
        };
        while self.allowance.rows > 0 {
            let limit = (RECLAIM_SLICE as u64).min(self.allowance.rows) as usize;
            let slice = self.txn.reclaim_slice(&mut pass, limit)?;
            self.server.stats.reclaimed_rows.add(slice.removed as u64);
            self.allowance.spend(slice.removed);
            if !slice.more {
                self.txn.end_reclaim(pass);
                break;
            }
            if sign.sleep(Duration::ZERO) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether clients are paused: no key may disappear meanwhile.
    fn is_paused(&self, now_ms: UnixMs) -> bool {
        self.server.pause_at(now_ms).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_elements_are_as_large_as_their_time_allows() {
        let mut pace = Pace { elements: 128 };
        let slow = |elements: usize| Duration::from_micros(elements as u64 * 5);
        for _ in 0..20 {
            pace.note(slow(pace.elements), 1024);
        }
        assert!((200..=400).contains(&pace.elements), "{}", pace.elements);
        for _ in 0..20 {
            pace.note(Duration::from_millis(100), 1024);
        }
        assert_eq!(pace.elements, ELEMENTS_MIN);
        for _ in 0..20 {
            pace.note(Duration::ZERO, 1024);
        }
        assert_eq!(pace.elements, 1024);
        pace.note(Duration::from_millis(100), 4);
        assert_eq!(pace.elements, 4);
    }

    #[test]
    fn small_rates_add_up_and_zero_is_no_limit() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut allowance = Allowance::new(start);
        let mut spent = 0;
        for tick in 1..=100 {
            allowance.refill(3, at(tick * 100));
            spent += allowance.rows;
            allowance.spend(allowance.rows as usize);
        }
        assert_eq!(spent, 30);
        allowance.refill(0, at(10_001));
        assert_eq!(allowance.rows, u64::MAX);
        allowance.refill(500, at(10_002));
        assert_eq!(allowance.rows, 500);
        allowance.refill(u64::MAX, at(60_000));
        assert!(allowance.rows > 500);
    }
}
