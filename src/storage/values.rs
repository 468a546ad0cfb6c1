//! Collection of the value log: moves what lives of old segments to the end of the log, and removes
//! their files.
//!
//! A segment can be collected once no row of the binlog refers to it: rows refer to what was written
//! for their own commit, so that is when the log is trimmed up to where it ended when the segment got
//! its last record. Then a segment of the binlog alone is removed unread, as nothing of it lives. How
//! much of a segment lives is estimated by its samples, some segments at a time. A record lives if
//! the row of its string still refers to it.
//!
//! Values move without the locks of their keys. Under the commit lock each row is compared once
//! more with what it was: what a command has written or deleted meanwhile stays as it is. A command
//! that has read the old row finds the old segment, or reads the row again
//! ([`View::read_base`](super::View::read_base)).
//!
//! A crash at any point loses nothing: the new places are durable before a file is removed.

mod living;

use super::engine::values::{Holds, Pin, Records, Segment};
use super::engine::{Engine, FilesInUse, Keyspace};
use super::{Result, StorageError, Txn, fail_point};
use crate::base::time::UnixMs;
use crate::encoding::binlog::Position;
use living::Living;
use rocksdb::WriteBatch;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Records of a step, and bytes of their values: what lives of them is moved with one commit.
const STEP_RECORDS: usize = 128;
const STEP_BYTES: u64 = 1 << 20;
/// So many samples of a segment are looked at first. If none of them lives, or more than this, or all
/// while nothing is written, the others are not looked at.
const FIRST_SAMPLES: usize = 16;
const FIRST_LIVE: usize = 12;
/// Samples that one step looks at.
const STEP_SAMPLES: usize = 128;
/// A segment of which no more than so many percent live is collected at once: for each byte that
/// is written again, one is freed.
const SPARSE_PERCENT: usize = 50;
/// While nothing is written, one of which no more than so many percent live.
const IDLE_PERCENT: usize = 90;

/// What the collector knows of a segment.
#[derive(Default)]
struct Known {
    /// Where the binlog ended when the segment was closed.
    closed_at: Position,
    /// Set once nothing of it lives any more: what it holds.
    drained: Option<Holds>,
    /// How many percent of it lived when its samples were last looked at.
    live: Option<usize>,
}

/// What changes which segments can be collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Changes {
    commits: u64,
    appended: u64,
    trimmed: Position,
    idle: bool,
}

/// A round of looks at all segments.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// As it began.
    began: Changes,
    /// The segments before this number were looked at.
    next: u64,
}

/// The collection of one database's value log.
pub struct Collector {
    txn: Txn,
    known: BTreeMap<u64, Known>,
    /// Whether what earlier starts knew is in `known`.
    is_loaded: bool,
    /// The segment that is being collected, and how far.
    current: Option<(Arc<Segment>, Records)>,
    /// The round that is not finished.
    round: Option<Round>,
    /// As the last round began that found nothing to collect.
    seen: Option<Changes>,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Bytes of values that were written again.
    pub moved: u64,
    /// Bytes of the log over which the collection went.
    pub passed: u64,
    /// How many of them are freed, as far as the samples of their segment show it: garbage is not
    /// spread evenly in it.
    pub freed: u64,
    /// Segments whose files were removed.
    pub removed: u64,
    /// Rows that were read to learn how much of segments lives.
    pub looked_up: usize,
    /// Whether there is more to do at once.
    pub more: bool,
}

impl Collector {
    /// A collector; a database has one.
    pub fn new(engine: Arc<Engine>) -> Collector {
        Collector {
            txn: Txn::new(engine),
            known: BTreeMap::new(),
            is_loaded: false,
            current: None,
            round: None,
            seen: None,
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        self.txn.engine()
    }

    /// Does some of what there is to do. `idle`: nothing is written, so that segments are
    /// collected of which little is garbage.
    ///
    /// # Errors
    /// The storage fails. What was done until then stays.
    pub fn step(&mut self, idle: bool) -> Result<Collected> {
        let mut done = Collected::default();
        if self.engine().has_failed() {
            return Ok(done);
        }
        // Inside the gate: nothing moves during a check of the whole database.
        self.txn.begin(UnixMs::NONE)?;
        let result = self.step_inside(idle, &mut done);
        let ended = self.txn.commit();
        result.and(ended).map(|()| done)
    }

    fn step_inside(&mut self, idle: bool, done: &mut Collected) -> Result<()> {
        if self.current.is_none() {
            // At once, not when there is nothing more to move: that may never be.
            done.removed = self.remove_drained()?;
            self.choose(idle, done)?;
        }
        if let Some((segment, mut records)) = self.current.take() {
            done.more = true;
            match self.move_some(&segment, &mut records, done) {
                Ok(true) => self.note_drained(&segment),
                Ok(false) => self.current = Some((segment, records)),
                Err(error) => {
                    self.set_live(&segment, 100);
                    leave_alone(&segment, error)?;
                }
            }
        }
        Ok(())
    }

    /// Chooses the segment of which the least lives, if that is little: of those that were looked at
    /// before, whose share only falls, or else of the next ones.
    fn choose(&mut self, idle: bool, done: &mut Collected) -> Result<()> {
        let engine = self.engine().clone();
        let range = engine.binlog.range();
        let now = Changes {
            commits: engine.commits(),
            appended: engine.values.appended(),
            trimmed: range.first_position,
            idle,
        };
        if self.round.is_none() && self.seen == Some(now) {
            return Ok(());
        }
        let closed = engine.values.closed();
        // Read after the segments: the rows that refer to them end before it, unless they are of
        // another history.
        let range = engine.binlog.range();
        self.know(&closed, range.next_position)?;
        let mut round = self.round.take().unwrap_or(Round {
            began: now,
            next: 0,
        });
        let free = closed.into_iter().filter(|segment| {
            let known = self.known.get(&segment.number());
            known.is_some_and(|known| {
                known.drained.is_none() && known.closed_at <= range.first_position
            })
        });
        let (free, dead): (Vec<Arc<Segment>>, Vec<_>) =
            free.partition(|segment| segment.holds() == Holds::Values);
        for segment in dead {
            self.note_drained(&segment);
            done.more = true;
        }
        if let Some(best) = self.best_of(&free, idle, done)? {
            (self.current, self.round) = (Some((best, Records::default())), Some(round));
            return Ok(());
        }
        let from = free.partition_point(|segment| segment.number() < round.next);
        let mut next = free[from..].iter();
        while done.looked_up < STEP_SAMPLES
            && let Some(segment) = next.next()
        {
            let looked = self.look_at(segment, idle, done);
            round.next = segment.number() + 1;
            if let Err(error) = looked {
                // The next step goes on behind it.
                self.round = Some(round);
                return Err(error);
            }
        }
        let is_over = next.len() == 0;
        if let Some(best) = self.best_of(&free, idle, done)? {
            self.current = Some((best, Records::default()));
        } else if is_over && !engine.disk.is_low() {
            self.seen = Some(round.began);
        }
        if !is_over {
            self.round = Some(round);
            done.more = true;
        }
        Ok(())
    }

    fn note_drained(&mut self, segment: &Segment) {
        let known = self.known.entry(segment.number()).or_default();
        known.drained = Some(segment.holds());
    }

    /// The segment of which the least lives, if that is little.
    fn best_of(
        &mut self,
        free: &[Arc<Segment>],
        idle: bool,
        done: &mut Collected,
    ) -> Result<Option<Arc<Segment>>> {
        let most = match idle {
            true => IDLE_PERCENT,
            false => SPARSE_PERCENT,
        };
        let live = |segment: &Arc<Segment>| self.known.get(&segment.number())?.live;
        let Some(best) = free
            .iter()
            .filter(|segment| live(segment).is_some())
            .min_by_key(|segment| live(segment))
        else {
            return Ok(None);
        };
        let live = match live(best) {
            Some(live) if live > most => return Ok(None),
            Some(0) => 0,
            // It may be long since the last look.
            _ => self.look_at(best, idle, done)?,
        };
        // What is moved needs space first.
        let has_room = live == 0 || !self.engine().disk.is_low();
        Ok((live <= most && has_room).then(|| best.clone()))
    }

    /// Notes the segments that were closed since the last look, and forgets those that are gone. `now`
    /// is where the binlog ended after `closed` was read.
    fn know(&mut self, closed: &[Arc<Segment>], now: Position) -> Result<()> {
        let engine = self.engine().clone();
        if !self.is_loaded {
            for (segment, closed_at) in engine.closed_segments()? {
                let known = Known {
                    closed_at,
                    ..Known::default()
                };
                self.known.insert(segment, known);
            }
            self.is_loaded = true;
        }
        // In the order of their numbers.
        let is_gone = |number: &u64| {
            let found = closed.binary_search_by_key(number, |segment| segment.number());
            found.is_err()
        };
        let gone: Vec<u64> = self.known.keys().copied().filter(is_gone).collect();
        for gone in gone {
            engine.note_closed(gone, None)?;
            self.known.remove(&gone);
        }
        for segment in closed {
            let number = segment.number();
            match self.known.entry(number) {
                Entry::Vacant(unknown) => {
                    let closed_at = match segment.referenced_at() {
                        // Of another history, as below.
                        Some(end) if end > now => Position::NONE,
                        Some(end) => end,
                        // The binlog of an earlier start may have referred to it until its end.
                        None => now,
                    };
                    engine.note_closed(number, Some(closed_at))?;
                    unknown.insert(Known {
                        closed_at,
                        ..Known::default()
                    });
                }
                // Of another history, whose rows are gone.
                Entry::Occupied(mut known) if known.get().closed_at > now => {
                    engine.note_closed(number, Some(Position::NONE))?;
                    known.get_mut().closed_at = Position::NONE;
                }
                Entry::Occupied(_) => {}
            }
        }
        Ok(())
    }

    /// Learns how many percent of a segment's bytes live, by its samples. All do if that cannot be known.
    fn look_at(&mut self, segment: &Segment, idle: bool, done: &mut Collected) -> Result<usize> {
        let looked = self.live_percent(segment, idle, done);
        let percent = *looked.as_ref().unwrap_or(&100);
        self.set_live(segment, percent);
        if let Err(error) = looked {
            leave_alone(segment, error)?;
        }
        Ok(percent)
    }

    fn set_live(&mut self, segment: &Segment, percent: usize) {
        if let Some(known) = self.known.get_mut(&segment.number()) {
            known.live = Some(percent);
        }
    }

    fn live_percent(&self, segment: &Segment, idle: bool, done: &mut Collected) -> Result<usize> {
        let samples = segment.samples();
        let first = &samples[..samples.len().min(FIRST_SAMPLES)];
        let (mut live, mut seen) = (self.engine().living(first)?.len(), first.len());
        let is_known = match live {
            // The little that may live is moved, which needs space.
            0 => !self.engine().disk.is_low(),
            _ if idle => live == seen,
            _ => live > FIRST_LIVE,
        };
        if !is_known {
            live += self.engine().living(&samples[seen..])?.len();
            seen = samples.len();
        }
        done.looked_up += seen;
        Ok(live * 100 / seen.max(1))
    }

    /// Moves what lives of the next records. Returns whether they were the last ones.
    fn move_some(
        &mut self,
        segment: &Segment,
        records: &mut Records,
        done: &mut Collected,
    ) -> Result<bool> {
        let (mut some, mut bytes) = (Vec::with_capacity(STEP_RECORDS), 0);
        let mut is_over = false;
        while some.len() < STEP_RECORDS && bytes < STEP_BYTES && !is_over {
            let next = records.next(segment);
            let next = next.inspect_err(|error| self.engine().values.note_damage(segment, error));
            match next? {
                Some(record) => {
                    done.passed += records.last_len();
                    bytes += record.at.len;
                    some.push(record);
                }
                None => is_over = true,
            }
        }
        let living = self.engine().living(&some)?;
        let known = self.known.get(&segment.number());
        let live = known.and_then(|known| known.live).unwrap_or_default() as u64;
        done.freed = done.passed * (100 - live) / 100;
        self.move_all(living, done)?;
        Ok(is_over)
    }

    /// Writes the values again, and lets their rows refer to the new places.
    fn move_all(&mut self, living: Vec<Living>, done: &mut Collected) -> Result<()> {
        if living.is_empty() {
            return Ok(());
        }
        let engine = self.engine().clone();
        let (mut moved, mut value) = (Vec::with_capacity(living.len()), Vec::new());
        // Until the rows are written.
        let mut pins: Vec<Pin> = Vec::new();
        for living in living {
            value.clear();
            let at = living.record.at;
            engine.values.read(&at, 0..at.len, &mut value, true)?;
            let (at, pin) = engine.append_value(living.record.owner, &value)?;
            pins.push(pin);
            moved.push((living, at));
        }
        fail_point("values-moved")?;
        let mut commit = engine.commit.lock();
        let (mut batch, mut rows) = (WriteBatch::default(), Vec::new());
        for (living, at) in &moved {
            let is_used = |used: &Arc<Keyspace>| used.id == living.keyspace.id;
            let mut used = engine.all_keyspaces().into_iter();
            if used.any(|(_, keyspace)| is_used(&keyspace)) && engine.is_at(living)? {
                batch.put_cf(&living.keyspace.cf, &living.key, at.encode());
                rows.push(living);
                done.moved += at.len;
            }
        }
        engine.put_state(&mut commit, &mut batch);
        let written = engine.write(batch);
        if let Err(error) = &written {
            // Under the commit lock, so that the next commit sees the failure.
            engine.fail(error);
        }
        drop(commit);
        // Until then readers are sent to the old place, which is there until the next step.
        for living in rows {
            self.txn.uncache_row(&living.keyspace, &living.key);
        }
        written
    }

    /// Removes the files of segments of which nothing lives.
    fn remove_drained(&mut self) -> Result<u64> {
        let engine = self.engine().clone();
        let may_go = |used: &FilesInUse, holds| match holds {
            // Snapshots still show the old places.
            Holds::Values => used.data_may_go(),
            Holds::Binlog => used.binlog_may_go(),
        };
        let newest = engine.values.newest();
        let mut drained: Vec<(u64, Holds)> = Vec::new();
        for (&number, known) in &self.known {
            drained.extend(known.drained.map(|holds| (number, holds)));
        }
        drained.retain(|(number, _)| Some(*number) != newest);
        let used = engine.files_in_use.lock();
        drained.retain(|(_, holds)| may_go(&used, *holds));
        drop(used);
        if drained.is_empty() {
            return Ok(0);
        }
        // The new places, before the old ones go.
        engine.sync_wal()?;
        fail_point("values-synced")?;
        let numbers: Vec<u64> = drained.iter().map(|(number, _)| *number).collect();
        let taken_off = engine.values.take_off_list(&numbers);
        taken_off.map_err(StorageError::from)?;
        fail_point("values-taken-off")?;
        let used = engine.files_in_use.lock();
        drained.retain(|(_, holds)| may_go(&used, *holds));
        let mut removed = Vec::new();
        for (number, _) in drained {
            if engine.values.remove(number).map_err(StorageError::from)? {
                removed.push(number);
            }
        }
        drop(used);
        for number in &removed {
            engine.note_closed(*number, None)?;
            self.known.remove(number);
        }
        Ok(removed.len() as u64)
    }
}

/// A segment that has not what was written to it stays as it is, and the others are collected.
///
/// # Errors
/// The error has another cause.
fn leave_alone(segment: &Segment, error: StorageError) -> Result<()> {
    if !error.is_damage() {
        return Err(error);
    }
    let number = segment.number();
    log::error!("segment {number} of the value log is not collected any more: {error}");
    segment.leave_alone();
    Ok(())
}

#[cfg(test)]
mod tests;
