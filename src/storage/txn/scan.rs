//! Range reads: the rows of a key range in order, the pending batch laid over
//! what is committed.
//!
//! Deleted rows leave tombstones that a read must pass until compaction has removed
//! them, a million of them in a tenth of a second. Who answers a client with a
//! few rows reads with a bound of tombstones ([`View::scan_within`]) and sees whether
//! the read gave up before its end. Where it stood then, RocksDB does not say;
//! [`Crossing`] gets over such a stretch in bounded steps.
//!
//! Reads of sorted sets and lists begin with the rows of a cached range, if there is
//! one ([`crate::storage::cache::ranges`]), and leave one behind for the next reader.

use crate::encoding::keys::{ELEMENT_PREFIX_LEN, RowKey};
use crate::encoding::system::KeyspaceId;
use crate::storage::Direction;
use crate::storage::cache::ranges::{self, CachedRange, READ_AHEAD};
use crate::storage::cache::rows;
use crate::storage::engine::Db;
use crate::storage::engine::rows::open_rows;
use crate::storage::engine::{Engine, Keyspace};
use crate::storage::txn::View;
use crate::storage::txn::lending::Lending;
use crate::storage::txn::overlay::Overlay;
use crate::storage::txn::read_budget::ReadBudget;
use crate::storage::{DbIndex, Result};
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use rocksdb::{DBRawIteratorWithThreadMode, ErrorKind};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    None,
    Stored,
    Pending,
    Both,
}

/// What is committed, from the place on where the read stands.
enum Stored<'a> {
    /// Nothing.
    None,
    /// The rows of a cached range from number `at` on, and what RocksDB has behind them.
    Range(Box<CachedRange>, usize),
    /// What RocksDB has.
    Rows(DBRawIteratorWithThreadMode<'a, Db>),
}

/// Where a read of one map's rows gets its cached range, and leaves it.
struct Runs<'a> {
    engine: &'a Engine,
    keyspace: &'a Keyspace,
    hash: u64,
    names: [RowKey; 2],
    seen: rows::Version,
    from: RowKey,
    to: RowKey,
    /// What RocksDB has shown so far, behind the cached range that was there.
    record: Option<CachedRange>,
    /// There was a cached range, and it did not last.
    used_up: bool,
}

/// What a read begins with.
#[derive(Clone, Copy)]
enum Begin {
    /// A cached range, if there is one; and it leaves one behind.
    WithRun,
    /// What RocksDB has, with a bound of tombstones, if there is to be one.
    Stored(Option<u64>),
}

/// A range read under way. Rows are lent until the next call of [`Scan::next`].
pub struct Scan<'a> {
    stored: Stored<'a>,
    runs: Option<Runs<'a>>,
    overlay: &'a Overlay,
    budget: &'a ReadBudget,
    lending: &'a Lending,
    keyspace: KeyspaceId,
    /// What is left of the pending rows, as positions of the sorted order.
    pending: std::ops::Range<usize>,
    /// All of them.
    all_pending: std::ops::Range<usize>,
    direction: Direction,
    /// Which source the last row came from.
    last: Source,
    tombstones: Option<TombstoneCount>,
}

/// Switches RocksDB's counters off for this thread. They are on unless told otherwise,
/// and count every comparison of two keys.
pub(in crate::storage) fn stop_counters() {
    set_perf_stats(PerfStatsLevel::Disable);
}

/// Counts the tombstones of deleted rows that a read passes. A thread has one at a time:
/// the end of one switches the counters off.
struct TombstoneCount {
    counters: PerfContext,
    at_start: u64,
    bound: u64,
    gave_up: bool,
}

impl TombstoneCount {
    fn counted_from_now(bound: u64) -> TombstoneCount {
        set_perf_stats(PerfStatsLevel::EnableCount);
        let mut tombstones = TombstoneCount {
            counters: PerfContext::default(),
            at_start: 0,
            bound,
            gave_up: false,
        };
        tombstones.at_start = tombstones.total();
        tombstones
    }

    /// Of this thread, since ever.
    fn total(&self) -> u64 {
        self.counters.metric(PerfMetric::InternalKeySkippedCount)
            + self.counters.metric(PerfMetric::InternalDeleteSkippedCount)
    }

    fn passed(&self) -> u64 {
        self.total() - self.at_start
    }
}

impl Drop for TombstoneCount {
    fn drop(&mut self) {
        stop_counters();
    }
}

impl View {
    /// Reads the rows in `[from, to)`.
    pub fn scan(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        direction: Direction,
    ) -> Result<Scan<'_>> {
        self.open_scan(db, from, to, direction, Begin::WithRun)
    }

    /// Like [`View::scan`], from RocksDB alone: for rows that the reader has no lock for,
    /// as nobody can reach them. A commit which wrote some of them may not have brought
    /// their cached range up to date yet.
    pub(in crate::storage) fn scan_stored(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        direction: Direction,
    ) -> Result<Scan<'_>> {
        self.open_scan(db, from, to, direction, Begin::Stored(None))
    }

    /// Like [`View::scan`], but gives up where it would pass more than `tombstones`
    /// tombstones of deleted rows: [`Scan::gave_up`] tells.
    pub fn scan_within(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        direction: Direction,
        tombstones: u64,
    ) -> Result<Scan<'_>> {
        let bound = Some(tombstones.max(1));
        self.open_scan(db, from, to, direction, Begin::Stored(bound))
    }

    fn open_scan(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        direction: Direction,
        begin: Begin,
    ) -> Result<Scan<'_>> {
        let id = self.keyspace(db).map(|ks| ks.id);
        let tombstones = match begin {
            Begin::Stored(Some(bound)) => Some(TombstoneCount::counted_from_now(bound)),
            Begin::Stored(None) | Begin::WithRun => None,
        };
        let pending = match id {
            Some(id) if !self.batch.overlay.is_empty() && from < to => {
                self.batch.overlay.sorted_range(id, from, to)
            }
            _ => 0..0,
        };
        let view = &*self;
        let mut scan = Scan {
            stored: Stored::None,
            runs: None,
            overlay: &view.batch.overlay,
            budget: &view.reads.budget,
            lending: &view.lending,
            keyspace: id.unwrap_or(KeyspaceId(u32::MAX)),
            all_pending: pending.clone(),
            pending,
            direction,
            last: Source::None,
            tombstones,
        };
        if let Some(keyspace) = view.keyspace(db)
            && from < to
        {
            match begin {
                Begin::WithRun => scan.begin_with_range(view, keyspace, from, to),
                Begin::Stored(bound) => {
                    let rows = open_rows(
                        &view.engine,
                        view.reads.snapshot.as_ref(),
                        keyspace,
                        from,
                        to,
                        direction,
                        bound,
                    );
                    scan.stored = Stored::Rows(rows);
                }
            }
        }
        Ok(scan)
    }
}

impl<'a> Scan<'a> {
    /// Begins with the rows of a cached range, if there is one.
    fn begin_with_range(&mut self, view: &'a View, keyspace: &'a Keyspace, from: &[u8], to: &[u8]) {
        let engine: &Engine = &view.engine;
        let direction = self.direction;
        if view.reads.snapshot.is_some() || !ranges::is_worth_it(from, to) {
            let snapshot = view.reads.snapshot.as_ref();
            let rows = open_rows(engine, snapshot, keyspace, from, to, direction, None);
            self.stored = Stored::Rows(rows);
            return;
        }
        let prefix = &from[..ELEMENT_PREFIX_LEN];
        let hash = keyspace.cache_hash(view.batch.overlay.hash(keyspace.id, prefix));
        let names = ranges::names(prefix);
        let (run, seen) = engine
            .memory
            .rows
            .look_at_ranges(hash, &names, |kept, bytes| {
                let run = CachedRange::decode(kept, bytes)?;
                run.serves(direction, from, to).then_some(run)
            });
        self.runs = Some(Runs {
            engine,
            keyspace,
            hash,
            names,
            seen,
            from: RowKey::from_slice(from),
            to: RowKey::from_slice(to),
            record: None,
            used_up: false,
        });
        match run {
            Some(run) => {
                let at = run.skip(direction, from, to);
                self.stored = Stored::Range(Box::new(run), at);
                self.leave_range();
            }
            None => self.open_behind(CachedRange::starting(direction, from, to)),
        }
    }

    /// Goes on with RocksDB if all rows of the cached range were read.
    fn leave_range(&mut self) {
        let Stored::Range(run, at) = &self.stored else {
            return;
        };
        if *at < run.len() {
            return;
        }
        let Stored::Range(run, _) = std::mem::replace(&mut self.stored, Stored::None) else {
            return;
        };
        if let Some(runs) = &mut self.runs {
            runs.used_up = true;
        }
        self.open_behind(*run);
    }

    /// Has RocksDB show what it has behind a cached range, and records that.
    fn open_behind(&mut self, run: CachedRange) {
        let Some(runs) = &mut self.runs else {
            return;
        };
        let (mut from, mut to) = (runs.from.as_slice(), runs.to.as_slice());
        match self.direction {
            Direction::Forward => from = from.max(run.end(self.direction)),
            Direction::Backward => to = to.min(run.end(self.direction)),
        }
        if from < to {
            let (engine, keyspace) = (runs.engine, runs.keyspace);
            let rows = open_rows(engine, None, keyspace, from, to, self.direction, None);
            runs.record = run.extends(self.direction);
            self.stored = Stored::Rows(rows);
            self.record();
        }
    }

    /// Adds the row that RocksDB stands at to the record.
    fn record(&mut self) {
        let Some(runs) = &mut self.runs else {
            return;
        };
        let Stored::Rows(rows) = &self.stored else {
            return;
        };
        let Some(record) = &mut runs.record else {
            return;
        };
        let goes_on = match rows.item() {
            Some((key, value)) => record.push(key, value),
            None => {
                if rows.status().is_ok() {
                    record.reach_end(&runs.from, &runs.to);
                }
                false
            }
        };
        if !goes_on {
            runs.leave();
        }
    }

    /// The next row, or `None` at the end.
    #[allow(clippy::should_implement_trait)] // lends, so it cannot be an Iterator
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self
            .tombstones
            .as_ref()
            .is_some_and(|t| t.passed() > t.bound)
        {
            self.give_up();
        }
        self.step();
        loop {
            self.last = self.choose()?;
            let deleted = match self.last {
                Source::None => return Ok(None),
                Source::Stored => self
                    .stored_key()
                    .is_some_and(|key| self.overlay.range_covers_stored(self.keyspace, key)),
                Source::Pending | Source::Both => self.pending_row().1.is_none(),
            };
            if !deleted {
                break;
            }
            self.step();
        }
        let row = match self.last {
            Source::Stored => self.stored_row(),
            _ => match self.pending_row() {
                (key, Some(value)) => Some((key, value)),
                _ => None,
            },
        };
        let bytes = row.map_or(0, |(key, value)| key.len() + value.len());
        self.lending.note_read(bytes, self.overlay.bytes())?;
        self.budget.spend(row.map_or(0, |(_, value)| value.len()))?;
        Ok(row)
    }

    /// Goes to the first row at or after `from`, which lies within the range of a
    /// forward scan. Costs less than another scan.
    pub fn seek(&mut self, from: &[u8]) {
        self.last = Source::None;
        if let Some(mut runs) = self.runs.take() {
            runs.leave();
            let (engine, keyspace) = (runs.engine, runs.keyspace);
            let rows = open_rows(engine, None, keyspace, from, &runs.to, self.direction, None);
            self.stored = Stored::Rows(rows);
        } else if let Stored::Rows(rows) = &mut self.stored {
            rows.seek(from);
        }
        let std::ops::Range { start, end } = self.all_pending;
        if start < end {
            let at = self.overlay.lower_bound(self.keyspace, from);
            self.pending = at.clamp(start, end)..end;
        }
    }

    /// Whether it ended because it had passed too many tombstones, not at its end.
    pub fn gave_up(&self) -> bool {
        self.tombstones
            .as_ref()
            .is_some_and(|tombstones| tombstones.gave_up)
    }

    /// How many tombstones a read with a bound has passed.
    pub fn passed(&self) -> u64 {
        self.tombstones.as_ref().map_or(0, TombstoneCount::passed)
    }

    /// Notes an end short of the end.
    fn give_up(&mut self) {
        if let Some(tombstones) = &mut self.tombstones {
            tombstones.gave_up = true;
        }
        self.stored = Stored::None;
        self.pending = 0..0;
        self.last = Source::None;
    }

    fn stored_row(&self) -> Option<(&[u8], &[u8])> {
        match &self.stored {
            Stored::None => None,
            Stored::Range(run, at) => run.get(self.direction, *at).filter(|(key, _)| {
                // The cached range may reach beyond the range.
                self.runs.as_ref().is_some_and(|runs| runs.spans(key))
            }),
            Stored::Rows(rows) => rows.item(),
        }
    }

    fn stored_key(&self) -> Option<&[u8]> {
        self.stored_row().map(|(key, _)| key)
    }

    fn pending_row(&self) -> (&[u8], Option<&[u8]>) {
        let at = match self.direction {
            Direction::Forward => self.pending.start,
            Direction::Backward => self.pending.end - 1,
        };
        self.overlay.sorted_row(at)
    }

    /// Goes past the row that was lent last.
    fn step(&mut self) {
        if matches!(self.last, Source::Stored | Source::Both) {
            match &mut self.stored {
                Stored::None => {}
                Stored::Range(_, at) => {
                    *at += 1;
                    self.leave_range();
                }
                Stored::Rows(rows) => {
                    match self.direction {
                        Direction::Forward => rows.next(),
                        Direction::Backward => rows.prev(),
                    }
                    self.record();
                }
            }
        }
        if matches!(self.last, Source::Pending | Source::Both) {
            match self.direction {
                Direction::Forward => self.pending.start += 1,
                Direction::Backward => self.pending.end -= 1,
            }
        }
    }

    fn choose(&mut self) -> Result<Source> {
        if self.stored_key().is_none()
            && let Stored::Rows(rows) = &self.stored
        {
            match rows.status() {
                Err(error)
                    if error.kind() == ErrorKind::Incomplete && self.tombstones.is_some() =>
                {
                    self.give_up();
                }
                done => done?,
            }
        }
        let stored = self.stored_key();
        let pending = (!self.pending.is_empty()).then(|| self.pending_row().0);
        Ok(match (stored, pending) {
            (None, None) => Source::None,
            (Some(_), None) => Source::Stored,
            (None, Some(_)) => Source::Pending,
            (Some(s), Some(p)) => match (s.cmp(p), self.direction) {
                (std::cmp::Ordering::Equal, _) => Source::Both,
                (std::cmp::Ordering::Less, Direction::Forward)
                | (std::cmp::Ordering::Greater, Direction::Backward) => Source::Stored,
                _ => Source::Pending,
            },
        })
    }
}

impl Runs<'_> {
    fn spans(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && key < self.to.as_slice()
    }

    /// Keeps what was recorded for the next reader.
    fn leave(&mut self) {
        let Some(record) = self.record.take() else {
            return;
        };
        if record.len() > 0 || self.used_up {
            let name = &self.names[record.direction() as usize];
            let run = record.encode();
            let hot = &self.engine.memory.rows;
            hot.offer_range(self.hash, name, &run, self.seen, self.used_up);
        }
    }

    /// Whether the record should go on though nobody has asked for more.
    fn reads_ahead(&self) -> bool {
        let record = self.record.as_ref();
        self.used_up && record.is_some_and(|record| record.len() < READ_AHEAD)
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        while let (Stored::Rows(rows), Some(runs)) = (&mut self.stored, &self.runs)
            && runs.reads_ahead()
        {
            match self.direction {
                Direction::Forward => rows.next(),
                Direction::Backward => rows.prev(),
            }
            self.record();
        }
        if let Some(runs) = &mut self.runs {
            runs.leave();
        }
    }
}

/// Gets over a stretch that holds nothing but tombstones, in steps whose width
/// adapts. Keys are taken for binary fractions; a step goes to the end of the
/// aligned interval of that width that it begins in. One that was too much for
/// its bound of tombstones is halved; after one that was not, the next one is twice
/// as wide if that is aligned.
#[derive(Debug)]
pub struct Crossing {
    /// The width is two to the power of minus this.
    bits: usize,
}

impl Crossing {
    /// What a step should pass at the most: so little that many steps that were
    /// too much cost little.
    pub const STEP_TOMBSTONES: u64 = 256;

    /// Of a stretch that begins at `from`.
    pub fn at(from: &[u8]) -> Crossing {
        Crossing {
            bits: (from.len() * 8).max(1),
        }
    }

    /// Where the next step from `from` ends: after `from`, before `to` if there
    /// is such a place within the width.
    pub fn next_end(&self, from: &[u8], to: &[u8]) -> Vec<u8> {
        let bytes = self.bits.div_ceil(8);
        let below = 8 * bytes - self.bits;
        let mut end = from.to_vec();
        end.resize(bytes, 0);
        if let Some(last) = end.last_mut() {
            *last &= 0xFF << below;
        }
        let mut carry = 1u16 << below;
        for byte in end.iter_mut().rev() {
            let sum = u16::from(*byte) + carry;
            *byte = sum as u8;
            carry = sum >> 8;
        }
        match carry == 0 && end.as_slice() < to {
            true => end,
            false => to.to_vec(),
        }
    }

    /// The last step was done up to `end`, and there was nothing.
    pub fn was_empty(&mut self, end: &[u8]) {
        let used = end.iter().rposition(|byte| *byte != 0);
        let aligned = used.map_or(0, |at| 8 * (at + 1) - end[at].trailing_zeros() as usize);
        if aligned < self.bits {
            self.bits -= 1;
        }
    }

    /// The last step was too wide.
    pub fn was_too_much(&mut self) {
        self.bits += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::keys;
    use crate::encoding::tag;
    use crate::storage::{Engine, StorageConfig, Txn};

    const DB: DbIndex = DbIndex(0);

    fn empty_store() -> (tempfile::TempDir, Txn) {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        (dir, Txn::new(engine))
    }

    /// A scan that gave up right after a pending row went on to step past that
    /// row, which it had dropped: RANDOMKEY after writes of the same tick ended
    /// the server.
    #[test]
    fn a_scan_can_give_up_at_any_row() {
        let (_dir, mut txn) = empty_store();
        let row = |n: u32| keys::meta(format!("{n:03}").as_bytes());
        txn.begin(1).unwrap();
        for n in 0..100 {
            txn.put_row(DB, &row(n), b"stored").unwrap();
        }
        txn.commit().unwrap();
        txn.begin(1).unwrap();
        for n in (0..100).filter(|n| n % 10 != 0) {
            txn.delete_row(DB, &row(n)).unwrap();
        }
        txn.commit().unwrap();
        txn.begin(1).unwrap();
        for n in (0..100).filter(|n| n % 10 == 5 || n % 20 == 0) {
            txn.put_row(DB, &row(n), b"pending").unwrap();
        }
        let (from, to) = ([tag::META], [tag::META + 1]);
        for direction in [Direction::Forward, Direction::Backward] {
            let mut alive: Vec<Vec<u8>> = (0..100).step_by(5).map(|n| row(n).to_vec()).collect();
            if direction == Direction::Backward {
                alive.reverse();
            }
            let mut lengths = Vec::new();
            for bound in 1..200 {
                let opened = txn.scan_within(DB, &from, &to, direction, bound);
                let mut scan = opened.unwrap();
                let mut found = Vec::new();
                while let Some((key, _)) = scan.next().unwrap() {
                    found.push(key.to_vec());
                }
                assert!(scan.next().unwrap().is_none());
                assert_eq!(found, alive[..found.len()], "{direction:?} {bound}");
                assert!(scan.gave_up() || found.len() == alive.len());
                lengths.push(found.len());
            }
            lengths.dedup();
            assert!(lengths.is_sorted() && lengths.len() > 5, "{lengths:?}");
        }
    }

    #[test]
    fn only_reads_with_a_bound_are_counted() {
        let (_dir, mut txn) = empty_store();
        let counters = PerfContext::default();
        let compared = || counters.metric(PerfMetric::UserKeyComparisonCount);
        let (from, to) = ([tag::META], [tag::META + 1]);
        let at_start = compared();
        for exclusive in [false, true] {
            set_perf_stats(PerfStatsLevel::EnableCount);
            match exclusive {
                true => txn.begin_exclusive(1).unwrap(),
                false => txn.begin(1).unwrap(),
            }
            for n in 0..99u8 {
                txn.delete_row(DB, &keys::meta(&[n])).unwrap();
            }
            txn.put_row(DB, &keys::meta(&[99]), b"stored").unwrap();
            txn.commit().unwrap();
        }
        assert_eq!(compared(), at_start);
        txn.begin(1).unwrap();
        let mut scan = txn
            .scan_within(DB, &from, &to, Direction::Forward, 1000)
            .unwrap();
        assert!(scan.next().unwrap().is_some());
        assert!(scan.passed() >= 99 && compared() > at_start);
        drop(scan);
        let at_end = compared();
        let mut scan = txn.scan(DB, &from, &to, Direction::Forward).unwrap();
        assert!(scan.next().unwrap().is_some());
        drop(scan);
        assert_eq!(compared(), at_end);
    }

    #[test]
    fn a_crossing_moves_on_whatever_its_width() {
        let to = b"\x02";
        for from in [
            &b"\x01"[..],
            b"\x01a",
            b"\x01\xFF\xFF",
            b"\x01key:0001",
            b"\x01\0\0",
        ] {
            for bits in 1..150 {
                let end = Crossing { bits }.next_end(from, to);
                assert!(from < end.as_slice(), "{from:?} {bits} {end:?}");
                assert!(end.as_slice() <= &to[..], "{from:?} {bits} {end:?}");
            }
        }
        let crossing = Crossing { bits: 24 };
        assert_eq!(crossing.next_end(b"\x01ab", to), b"\x01ac");
        assert_eq!(crossing.next_end(b"\x01a\xFFz", to), b"\x01b\0");
    }

    #[test]
    fn steps_grow_where_there_is_nothing() {
        let (mut from, to) = (b"\x01key:0001".to_vec(), b"\x02");
        let mut crossing = Crossing::at(&from);
        let mut steps = 0;
        while from.as_slice() < &to[..] {
            from = crossing.next_end(&from, to);
            crossing.was_empty(&from);
            steps += 1;
        }
        assert!(steps < 150, "{steps} steps");
    }
}
