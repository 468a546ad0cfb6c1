//! The evict thread: removes keys so that the data keep to `max-disk`, by `max-disk-policy`.
//!
//! **How much.** Some space must stay free besides what memtables need ([`margin`]): compactions write
//! new tables before they delete the old ones. What is lacking is evicted at once. But the space of
//! evicted keys comes back only when compactions have removed them; until then it is *owed*, and is
//! not evicted again. How much is owed is an estimate, as rows are compressed, so it decays: slowly, or
//! fast if commands wait and no compaction is left to bring it.
//!
//! **Which.** Keys are drawn in runs of neighbours ([`crate::storage::eviction`]), each run from a DB
//! that is drawn, too. Of some runs together the part is evicted that was not used for the longest time,
//! or least often, as far as that is known ([`crate::state::access`]): a key of which nothing is known
//! counts as one that nobody uses.
//!
//! **When nothing helps in time.** While little of the margin is left, commands that may add data wait
//! ([`Evicting`](crate::state::evicting::Evicting)). If no key can be evicted, they are refused.

use super::StopSign;
use super::notices::tell_clients;
use crate::base::recurring::Recurring;
use crate::state::Server;
use crate::state::config::{Config, EvictionPolicy};
use crate::storage::engine::disk::margin;
use crate::storage::eviction::{Among, Candidate, Cursor, Evicted};
use crate::storage::{DbIndex, StorageError, Txn};
use crate::sys::clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks at the disk.
const PERIOD: Duration = Duration::from_millis(50);
/// Pause after a storage error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// Keys in a run.
const RUN: usize = 128;
/// Runs whose keys are compared with each other.
const RUNS: usize = 4;
/// So many of their keys are evicted at once, …
const CHOSEN: usize = 64;
/// … but fewer if their names have more bytes than this: a long commit needs space that is free.
const NAMES_BYTES: usize = 128 << 10;
/// Commands wait while less than this part of the margin is left: compactions need the rest.
const SCARCE: u64 = 2;
/// Tombstones are written out when this part of the margin was evicted since the last time …
const FLUSH_PART: u64 = 8;
/// … or, while commands wait, so long after the last time, unless level 0 has so many files already:
/// a compaction of them all may need more space than there is.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
const FLUSH_FILES: u64 = 16;
/// The binlog is trimmed if commands have waited for so long, and nothing that runs could bring space.
const STARVES_AFTER: Duration = Duration::from_secs(2);
/// How long it takes until half of what is owed is written off: while it may still come, and while
/// commands wait and no compaction is left that could bring it, or no key that could be evicted.
const HALF_LIFE_S: (f64, f64) = (20.0, 0.5);

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let mut txn = Txn::new(server.engine.clone());
    txn.keep_changes();
    let mut job = Evict {
        server,
        txn,
        cursors: BTreeMap::new(),
        owed: Owed::new(Instant::now()),
        flushed: Instant::now(),
        can_evict: true,
        starves_since: None,
        unflushed: BTreeMap::new(),
    };
    let mut fails = Recurring::default();
    let mut pause = Duration::ZERO;
    while !sign.sleep(pause) {
        pause = match job.turn(sign) {
            Ok(pause) => {
                fails.over();
                pause
            }
            Err(error) => {
                if fails.is_news(&error) {
                    log::error!("evict thread: {error}");
                }
                match error {
                    // Other keys may have shorter names.
                    StorageError::NoRoom => {}
                    _ => job.server.evicting.end(),
                }
                AFTER_ERROR
            }
        };
    }
}

struct Evict {
    server: Arc<Server>,
    txn: Txn,
    cursors: BTreeMap<DbIndex, Cursor>,
    owed: Owed,
    /// Whether the policy allowed any key at the last turn.
    can_evict: bool,
    /// Since when commands wait, and nothing that runs could bring space.
    starves_since: Option<Instant>,
    /// When tombstones were last written out, and the bytes of keys evicted since.
    flushed: Instant,
    unflushed: BTreeMap<DbIndex, u64>,
}

impl Evict {
    /// Evicts what is lacking now. Returns the pause until the next turn.
    fn turn(&mut self, sign: &StopSign) -> Result<Duration, StorageError> {
        let config = self.server.config.load().clone();
        let engine = &self.server.engine;
        let disk = engine.disk.figures();
        let is_idle = !config.evicts()
            || engine.is_following()
            || engine.has_failed()
            || self.server.loading.is_on();
        if is_idle {
            self.server.evicting.end();
            self.starves_since = None;
            self.owed = Owed::new(Instant::now());
            return Ok(PERIOD);
        }
        if disk.quota == 0 {
            // It was set just now, and nothing is measured yet.
            self.server.evicting.begin();
            return Ok(PERIOD);
        }
        if self.is_paused() {
            return Ok(PERIOD);
        }
        let margin = margin(disk.total);
        let scarce = margin / SCARCE;
        let spare = disk.free.saturating_sub(engine.disk.least_free());
        let is_scarce = self.server.evicting.take_waited() || spare < scarce;
        let brings = engine.has_compactions();
        // If no key can be evicted, nothing waits.
        self.note_starving(self.can_evict && is_scarce && !brings);
        self.owed
            .decay(self.can_evict && (!is_scarce || brings), Instant::now());
        // After the quota was lowered, more may be used than it allows.
        let over = disk.used.saturating_sub(disk.quota);
        let mut lacking = (margin + over + self.server.evicting.expected())
            .saturating_sub(spare)
            .saturating_sub(self.owed.bytes());
        self.can_evict = true;
        let begun = Instant::now();
        while lacking > 0
            && begun.elapsed() < PERIOD
            && !self.is_paused()
            && !sign.sleep(Duration::ZERO)
        {
            match self.evict_some(&config)? {
                Some(evicted) => {
                    lacking = lacking.saturating_sub(evicted.bytes);
                    self.owed.add(evicted.bytes);
                }
                None => {
                    self.can_evict = false;
                    break;
                }
            }
        }
        match self.can_evict || self.owed.bytes() > margin / FLUSH_PART {
            true => self.server.evicting.wait_below(scarce),
            false => self.server.evicting.end(),
        }
        self.flush(margin, is_scarce)?;
        Ok(PERIOD.saturating_sub(begun.elapsed()))
    }

    /// Whether clients are paused: no key may disappear meanwhile.
    fn is_paused(&self) -> bool {
        self.server.pause_at(clock::unix_ms()).is_some()
    }

    fn note_starving(&mut self, starves: bool) {
        let now = Instant::now();
        self.starves_since = starves.then(|| self.starves_since.unwrap_or(now));
        let is_long = |since: Instant| now.saturating_duration_since(since) > STARVES_AFTER;
        let starves = self.starves_since.is_some_and(is_long);
        self.server.evicting.set_starves(starves);
    }

    /// Evicts the chosen part of some runs. `None` if no key is left that the policy allows.
    fn evict_some(&mut self, config: &Config) -> Result<Option<Evicted>, StorageError> {
        let among = among(config.max_disk_policy);
        let (runs, max) = match is_any(config.max_disk_policy) {
            true => (1, CHOSEN),
            false => (RUNS, RUN),
        };
        let engine = self.server.engine.clone();
        let mut drawn = Vec::new();
        for _ in 0..runs {
            let Some(db) = self.draw_db(among) else {
                break;
            };
            let cursor = self.cursors.entry(db).or_default();
            let run = engine.sample_keys(cursor, db, among, max)?;
            drawn.extend(run.into_iter().map(|one| (db, one)));
        }
        // Runs may overlap.
        let name = |(db, one): &Drawn| (*db, one.key.clone());
        drawn.sort_by_cached_key(name);
        drawn.dedup();
        if drawn.is_empty() {
            return Ok(None);
        }
        self.choose(config, &mut drawn);
        let mut by_db: BTreeMap<DbIndex, Vec<Candidate>> = BTreeMap::new();
        for (db, one) in drawn {
            by_db.entry(db).or_default().push(one);
        }
        let mut all = Evicted::default();
        for (db, chosen) in by_db {
            let evicted = self.evict(config, db, &chosen)?;
            all.keys += evicted.keys;
            all.bytes += evicted.bytes;
        }
        Ok(Some(all))
    }

    /// Evicts keys of a DB.
    fn evict(
        &mut self,
        config: &Config,
        db: DbIndex,
        chosen: &[Candidate],
    ) -> Result<Evicted, StorageError> {
        let notify = config.notify_keyspace_events;
        self.txn.want_events(notify.classes());
        let evicted = self.txn.evict_slice(db, clock::unix_ms(), chosen)?;
        *self.unflushed.entry(db).or_default() += evicted.bytes;
        self.server.stats.evicted_keys.add(evicted.keys);
        self.server.stats.expired_keys.add(self.txn.take_expired());
        tell_clients(&self.server, &mut self.txn, notify)?;
        Ok(evicted)
    }

    /// Leaves the part of some runs that is to be evicted. Among keys that are alike, chance decides.
    fn choose(&self, config: &Config, drawn: &mut Vec<Drawn>) {
        let (accesses, now_ms) = (&self.server.accesses, clock::unix_ms());
        let rank = |(_, one): &Drawn| match config.lfu() {
            Some(lfu) => u64::from(accesses.frequency(one.hash, now_ms, lfu)),
            None => u64::from(u32::MAX - accesses.idle_ticks(one.hash, now_ms)),
        };
        if !is_any(config.max_disk_policy) {
            let chosen = drawn.len().div_ceil(RUNS * RUN / CHOSEN);
            fastrand::shuffle(drawn);
            drawn.sort_by_cached_key(rank);
            drawn.truncate(chosen);
        }
        let mut bytes = 0;
        let few = drawn.iter().take_while(|(_, one)| {
            bytes += one.key.len();
            bytes <= NAMES_BYTES
        });
        let few = few.count().max(1);
        drawn.truncate(few);
    }

    /// A DB, with the chance of its share of the keys that the policy allows.
    fn draw_db(&self, among: Among) -> Option<DbIndex> {
        let keys: Vec<_> = self
            .server
            .engine
            .all_keyspaces()
            .into_iter()
            .map(|(db, keyspace)| match among {
                Among::All => (db, keyspace.counts().keys),
                _ => (db, keyspace.counts().expires),
            })
            .collect();
        let all: u64 = keys.iter().map(|(_, keys)| keys).sum();
        let mut at = (all > 0).then(|| fastrand::u64(..all))?;
        let (db, _) = keys.into_iter().find(|(_, keys)| {
            let is_here = at < *keys;
            at = at.saturating_sub(*keys);
            is_here
        })?;
        Some(db)
    }

    /// Writes the tombstones of evicted keys out when there are enough of them.
    fn flush(&mut self, margin: u64, is_scarce: bool) -> Result<(), StorageError> {
        let bytes: u64 = self.unflushed.values().sum();
        let is_due = bytes > margin / FLUSH_PART
            || is_scarce
                && bytes > 0
                && self.flushed.elapsed() > FLUSH_EVERY
                && self.server.engine.files_at_level(0) < FLUSH_FILES;
        if !is_due {
            return Ok(());
        }
        self.flushed = Instant::now();
        for (db, _) in std::mem::take(&mut self.unflushed) {
            self.server.engine.flush_evicted(db)?;
        }
        Ok(())
    }
}

/// A key that was drawn, and its DB.
type Drawn = (DbIndex, Candidate);

/// Which keys a policy allows.
fn among(policy: EvictionPolicy) -> Among {
    use EvictionPolicy::*;
    match policy {
        VolatileTtl => Among::FirstToExpire,
        VolatileLru | VolatileLfu | VolatileLrm | VolatileRandom => Among::Expiring,
        AllkeysLru | AllkeysLfu | AllkeysLrm | AllkeysRandom | Noeviction => Among::All,
    }
}

/// Whether all keys of a run are evicted.
fn is_any(policy: EvictionPolicy) -> bool {
    use EvictionPolicy::*;
    matches!(policy, VolatileTtl | VolatileRandom | AllkeysRandom)
}

/// Bytes of evicted keys whose space has not come back yet, as far as is known.
struct Owed {
    bytes: f64,
    decayed: Instant,
}

impl Owed {
    fn new(now: Instant) -> Owed {
        Owed {
            bytes: 0.0,
            decayed: now,
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn add(&mut self, bytes: u64) {
        self.bytes += bytes as f64;
    }

    /// Writes off a part of it. `comes`: compactions may still bring it.
    fn decay(&mut self, comes: bool, now: Instant) {
        let half_life_s = match comes {
            true => HALF_LIFE_S.0,
            false => HALF_LIFE_S.1,
        };
        let passed_s = now.saturating_duration_since(self.decayed).as_secs_f64();
        self.decayed = now;
        self.bytes *= (-passed_s / half_life_s).exp2();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_written_off_the_faster_if_nothing_brings_it() {
        let start = Instant::now();
        let mut owed = Owed::new(start);
        owed.add(1 << 20);
        owed.decay(true, start + Duration::from_secs(20));
        assert_eq!(owed.bytes(), 1 << 19);
        owed.decay(false, start + Duration::from_millis(20_500));
        assert_eq!(owed.bytes(), 1 << 18);
        owed.decay(false, start + Duration::from_secs(90));
        assert_eq!(owed.bytes(), 0);
    }
}
