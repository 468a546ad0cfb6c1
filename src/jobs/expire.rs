//! The expire thread: deletes keys whose time is over, in slices, each one a
//! commit like a client's; and reclaims the rows of dead collections at a
//! bounded rate.
//!
//! Fairness: a slice takes keys only if nobody holds them, is small, and gives
//! the other threads a turn after each commit; a pass goes on while there is
//! more to expire, so a million keys that expire together are gone in seconds.

use super::StopSign;
use crate::base::clock;
use crate::state::Server;
use crate::storage::{DbIndex, StorageError, Txn};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Rows that one reclaim slice removes.
const RECLAIM_SLICE: usize = 4096;
/// After a storage error the thread waits this long.
const AFTER_ERROR: Duration = Duration::from_secs(1);

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let mut job = Expire {
        txn: Txn::new(server.engine.clone()),
        server,
        reclaim_allowance: 0,
    };
    loop {
        let period = Duration::from_millis(job.server.config.load().expire_period_ms);
        let pause = match job.pass(sign, period) {
            Ok(true) => return,
            Ok(false) => period,
            Err(error) => {
                log::error!("expire thread: {error}");
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
    /// Rows that may be reclaimed now.
    reclaim_allowance: u64,
}

impl Expire {
    /// One pass over all DBs; returns whether to stop.
    fn pass(&mut self, sign: &StopSign, period: Duration) -> Result<bool, StorageError> {
        if self.server.engine.has_failed() {
            return Ok(sign.sleep(AFTER_ERROR));
        }
        let per_second = self.server.config.load().reclaim_rows_per_s;
        let refill = per_second * period.as_millis() as u64 / 1000;
        self.reclaim_allowance = (self.reclaim_allowance + refill).min(per_second);
        for (db, _) in self.server.engine.all_keyspaces() {
            if self.server.active_expire.load(Ordering::Relaxed) && self.expire(db, sign)? {
                return Ok(true);
            }
            if self.reclaim(db, sign)? {
                return Ok(true);
            }
        }
        Ok(false)
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
            let slice = self.txn.expire_slice(&mut pass, limit)?;
            self.server.stats.expired_keys.add(self.txn.take_expired());
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

    fn reclaim(&mut self, db: DbIndex, sign: &StopSign) -> Result<bool, StorageError> {
        let Some(mut pass) = self.txn.begin_reclaim(db) else {
            return Ok(false);
        };
        while self.reclaim_allowance > 0 {
            let limit = RECLAIM_SLICE.min(self.reclaim_allowance as usize);
            let slice = self.txn.reclaim_slice(&mut pass, limit)?;
            self.server.stats.reclaimed_rows.add(slice.removed as u64);
            self.reclaim_allowance -= self.reclaim_allowance.min(slice.removed as u64);
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

    /// While clients are paused nothing is deleted under them.
    fn is_paused(&self, now_ms: u64) -> bool {
        self.server.pause_at(now_ms).is_some()
    }
}
