//! Range reads: the rows of a key range in order, the pending batch merged with the committed rows.
//!
//! Deleted rows leave tombstones that a read must skip until compaction has removed them, a million
//! of them in a tenth of a second. A command that replies with a few rows reads with a bound of
//! tombstones ([`View::scan_within`]) and checks whether the read gave up before its end. RocksDB
//! does not report the position at which it did; [`Crossing`] crosses such a stretch in bounded
//! steps.
//!
//! Reads of sorted sets and lists begin with the rows of a cached range, if there is one
//! ([`crate::storage::cache::ranges`]), and store one for the next reader.

use crate::encoding::keys::{ELEMENT_PREFIX_LEN, RowKey};
use crate::encoding::system::KeyspaceId;
use crate::storage::Direction;
use crate::storage::cache::ranges::{self, CachedRange, READ_AHEAD};
use crate::storage::cache::rows;
use crate::storage::engine::cold_reads::Span;
use crate::storage::engine::rows::{ColdList, How, Rows};
use crate::storage::engine::{Engine, Keyspace};
use crate::storage::txn::View;
use crate::storage::txn::lending::Lending;
use crate::storage::txn::overlay::Overlay;
use crate::storage::txn::read_budget::ReadBudget;
use crate::storage::{DbIndex, Result};
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    None,
    Stored,
    Pending,
    Both,
}

/// The committed rows from the current position on.
#[expect(
    clippy::large_enum_variant,
    reason = "a scan is on the stack, and nearly always of the large variant"
)]
enum Stored<'a> {
    /// None.
    None,
    /// The rows of a cached range with these numbers. RocksDB's rows follow if the cached range ends
    /// within the read.
    Range(Box<CachedRange>, std::ops::Range<usize>),
    /// RocksDB's rows.
    Rows(Rows<'a>),
}

/// The access of a read to the cached ranges of its map.
struct RangeAccess<'a> {
    engine: &'a Engine,
    keyspace: &'a Arc<Keyspace>,
    cold: Option<ColdList<'a>>,
    hash: u64,
    names: [RowKey; 2],
    seen: rows::Version,
    from: RowKey,
    to: RowKey,
    /// The rows that RocksDB has returned so far, after those of the cached range.
    record: Option<CachedRange>,
    /// Whether there was a cached range, all rows of which were read.
    exhausted: bool,
}

/// Where a read begins.
#[derive(Clone, Copy)]
enum Begin {
    /// With a cached range, if there is one; the read stores one, too.
    WithRange,
    /// With RocksDB's rows, and a bound of tombstones, if any.
    Stored(Option<u64>),
    /// Where the reader seeks to, with RocksDB's rows.
    Sought,
}

/// A range read in progress. A row is valid until the next call of [`Scan::next`].
pub struct Scan<'a> {
    stored: Stored<'a>,
    access: Option<RangeAccess<'a>>,
    overlay: &'a Overlay,
    budget: &'a ReadBudget,
    lending: &'a Lending,
    keyspace: KeyspaceId,
    /// The pending rows that are left, as positions of the sorted order.
    pending: std::ops::Range<usize>,
    /// All pending rows of the range.
    all_pending: std::ops::Range<usize>,
    direction: Direction,
    /// The source of the last row.
    last: Source,
    tombstones: Option<TombstoneCount>,
}

/// Switches RocksDB's performance counters off for this thread. By default they are on, and count
/// every comparison of two keys.
pub(in crate::storage) fn stop_counters() {
    set_perf_stats(PerfStatsLevel::Disable);
}

/// Counts the tombstones that a read skips. A thread can have only one at a time: dropping it
/// switches the counters off.
pub(super) struct TombstoneCount {
    counters: PerfContext,
    at_start: u64,
    bound: u64,
    gave_up: bool,
}

impl TombstoneCount {
    pub(super) fn counted_from_now(bound: u64) -> TombstoneCount {
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

    /// The count of this thread since its start.
    fn total(&self) -> u64 {
        self.counters.metric(PerfMetric::InternalKeySkippedCount)
            + self.counters.metric(PerfMetric::InternalDeleteSkippedCount)
    }

    pub(super) fn passed(&self) -> u64 {
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
        self.open_scan(db, from, to, direction, Begin::WithRange)
    }

    /// Like [`View::scan`], from RocksDB alone: for unreachable rows, for which the reader holds no
    /// lock. A commit that wrote some of them may not have updated their cached range yet.
    pub(in crate::storage) fn scan_stored(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        direction: Direction,
    ) -> Result<Scan<'_>> {
        self.open_scan(db, from, to, direction, Begin::Stored(None))
    }

    /// Like [`View::scan`], forward, for a reader that looks at several parts of the range: it
    /// [seeks](Scan::seek) before it reads the first row. No cached range is used or stored.
    pub fn scan_parts(&mut self, db: DbIndex, from: &[u8], to: &[u8]) -> Result<Scan<'_>> {
        self.open_scan(db, from, to, Direction::Forward, Begin::Sought)
    }

    /// Like [`View::scan`], but gives up before it skips more than `tombstones` tombstones: see
    /// [`Scan::gave_up`].
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
            Begin::Stored(None) | Begin::WithRange | Begin::Sought => None,
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
            access: None,
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
                Begin::WithRange => scan.begin_with_range(view, keyspace, from, to),
                Begin::Stored(_) | Begin::Sought => {
                    let how = How {
                        snapshot: view.reads.snapshot.as_ref(),
                        bound: match begin {
                            Begin::Stored(bound) => bound,
                            Begin::WithRange | Begin::Sought => None,
                        },
                        cold: view.cold.list(keyspace),
                        seeks: matches!(begin, Begin::Sought),
                    };
                    let span = Span::new(from, to, direction);
                    let rows = Rows::open(&view.engine, keyspace, &span, how);
                    scan.stored = Stored::Rows(rows);
                }
            }
        }
        Ok(scan)
    }
}

impl<'a> Scan<'a> {
    /// Begins with the rows of a cached range, if there is one.
    fn begin_with_range(
        &mut self,
        view: &'a View,
        keyspace: &'a Arc<Keyspace>,
        from: &[u8],
        to: &[u8],
    ) {
        let engine: &Engine = &view.engine;
        let direction = self.direction;
        let cold = view.cold.list(keyspace);
        if view.reads.snapshot.is_some() || !ranges::is_worth_it(from, to) {
            let how = How {
                snapshot: view.reads.snapshot.as_ref(),
                cold,
                ..How::default()
            };
            let rows = Rows::open(engine, keyspace, &Span::new(from, to, direction), how);
            self.stored = Stored::Rows(rows);
            return;
        }
        let prefix = &from[..ELEMENT_PREFIX_LEN];
        let hash = keyspace.cache_hash(view.batch.overlay.hash(keyspace.id, prefix));
        let names = ranges::names(prefix);
        let (range, seen) = engine.memory.rows.read_ranges(hash, &names, |kept, bytes| {
            let range = CachedRange::decode(kept, bytes)?;
            range.serves(direction, from, to).then(|| Box::new(range))
        });
        self.access = Some(RangeAccess {
            engine,
            keyspace,
            cold,
            hash,
            names,
            seen,
            from: RowKey::from_slice(from),
            to: RowKey::from_slice(to),
            record: None,
            exhausted: false,
        });
        match range {
            Some(range) => {
                let wanted = range.wanted(direction, from, to);
                self.stored = Stored::Range(range, wanted);
                self.leave_range();
            }
            None => self.open_after(CachedRange::starting(direction, from, to)),
        }
    }

    /// Called after each row of a cached range. If no row is left that the read wants, continues
    /// with RocksDB's rows. There are none for it if the cached range has rows beyond the read.
    fn leave_range(&mut self) {
        if !matches!(&self.stored, Stored::Range(_, left) if left.is_empty()) {
            return;
        }
        let Stored::Range(range, left) = std::mem::replace(&mut self.stored, Stored::None) else {
            return;
        };
        if left.end < range.len() {
            return;
        }
        if let Some(access) = &mut self.access {
            access.exhausted = true;
        }
        self.open_after(*range);
    }

    /// Opens RocksDB's rows after a cached range, and records them.
    fn open_after(&mut self, range: CachedRange) {
        let Some(access) = &mut self.access else {
            return;
        };
        let (mut from, mut to) = (access.from.as_slice(), access.to.as_slice());
        match self.direction {
            Direction::Forward => from = from.max(range.end(self.direction)),
            Direction::Backward => to = to.min(range.end(self.direction)),
        }
        if from < to {
            let rows = access.open(&Span::new(from, to, self.direction));
            access.record = range.extends(self.direction);
            self.stored = Stored::Rows(rows);
            self.record();
        }
    }

    /// Adds RocksDB's current row to the record.
    fn record(&mut self) {
        let Some(access) = &mut self.access else {
            return;
        };
        let Stored::Rows(rows) = &self.stored else {
            return;
        };
        let Some(record) = &mut access.record else {
            return;
        };
        let continues = match rows.item() {
            Some((key, value)) => record.push(key, value),
            None => {
                if rows.is_ok() {
                    record.reach_end(&access.from, &access.to);
                }
                false
            }
        };
        if !continues {
            access.store();
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
                Source::Stored => {
                    self.overlay.deletes_ranges()
                        && self.stored_row().is_some_and(|(key, _)| {
                            self.overlay.range_covers_stored(self.keyspace, key)
                        })
                }
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
        self.budget.spend(bytes)?;
        Ok(row)
    }

    /// Notes that the reader is about to hold so many more bytes of what it has read.
    ///
    /// # Errors
    /// [`crate::storage::StorageError::NoMemory`] if not enough can be borrowed.
    pub fn will_hold(&self, bytes: usize) -> Result<()> {
        self.lending.hold(bytes, self.overlay.bytes())
    }

    /// Moves to the first row at or after `from`, which must lie within the range of a forward
    /// scan. Costs less than another scan.
    pub fn seek(&mut self, from: &[u8]) {
        self.last = Source::None;
        if let Some(mut access) = self.access.take() {
            access.store();
            let rows = access.open(&Span::new(from, &access.to, self.direction));
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

    /// Whether the scan ended because it skipped too many tombstones, not at its end.
    pub fn gave_up(&self) -> bool {
        self.tombstones
            .as_ref()
            .is_some_and(|tombstones| tombstones.gave_up)
    }

    /// How many tombstones a read with a bound has skipped.
    pub fn passed(&self) -> u64 {
        self.tombstones.as_ref().map_or(0, TombstoneCount::passed)
    }

    /// Ends the scan before its end.
    fn give_up(&mut self) {
        if let Some(tombstones) = &mut self.tombstones {
            tombstones.gave_up = true;
        }
        self.stored = Stored::None;
        self.pending = 0..0;
        self.last = Source::None;
    }

    #[inline]
    fn stored_row(&self) -> Option<(&[u8], &[u8])> {
        match &self.stored {
            Stored::None => None,
            Stored::Range(range, left) => range.get(self.direction, left.start),
            Stored::Rows(rows) => rows.item(),
        }
    }

    fn has_stored_row(&self) -> bool {
        match &self.stored {
            Stored::None => false,
            Stored::Range(_, left) => !left.is_empty(),
            Stored::Rows(rows) => rows.item().is_some(),
        }
    }

    fn pending_row(&self) -> (&[u8], Option<&[u8]>) {
        let at = match self.direction {
            Direction::Forward => self.pending.start,
            Direction::Backward => self.pending.end - 1,
        };
        self.overlay.sorted_row(at)
    }

    /// Moves past the row that was returned last.
    fn step(&mut self) {
        if matches!(self.last, Source::Stored | Source::Both) {
            match &mut self.stored {
                Stored::None => {}
                Stored::Range(_, left) => {
                    left.start += 1;
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
        let has_stored = self.has_stored_row();
        if !has_stored && let Stored::Rows(rows) = &self.stored {
            match self.tombstones.is_some() && rows.exceeds_bound() {
                true => self.give_up(),
                false => rows.status()?,
            }
        }
        if self.pending.is_empty() {
            return Ok(match has_stored {
                true => Source::Stored,
                false => Source::None,
            });
        }
        let stored = self.stored_row().map(|(key, _)| key);
        let pending = self.pending_row().0;
        Ok(match (stored.map(|key| key.cmp(pending)), self.direction) {
            (None, _) => Source::Pending,
            (Some(std::cmp::Ordering::Equal), _) => Source::Both,
            (Some(std::cmp::Ordering::Less), Direction::Forward)
            | (Some(std::cmp::Ordering::Greater), Direction::Backward) => Source::Stored,
            _ => Source::Pending,
        })
    }
}

impl<'a> RangeAccess<'a> {
    /// RocksDB's rows of a span.
    fn open(&self, span: &Span) -> Rows<'a> {
        let how = How {
            cold: self.cold,
            ..How::default()
        };
        Rows::open(self.engine, self.keyspace, span, how)
    }

    /// Caches what was recorded, for the next reader.
    fn store(&mut self) {
        let Some(record) = self.record.take() else {
            return;
        };
        if record.len() > 0 || self.exhausted {
            let name = &self.names[record.direction() as usize];
            let range = record.encode();
            let cache = &self.engine.memory.rows;
            cache.offer_range(self.hash, name, &range, self.seen, self.exhausted);
        }
    }

    /// Whether to record more rows than the reader has asked for.
    fn reads_ahead(&self) -> bool {
        let record = self.record.as_ref();
        self.exhausted && record.is_some_and(|record| record.len() < READ_AHEAD)
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        while let (Stored::Rows(rows), Some(access)) = (&mut self.stored, &self.access)
            && access.reads_ahead()
        {
            match self.direction {
                Direction::Forward => rows.next(),
                Direction::Backward => rows.prev(),
            }
            self.record();
        }
        if let Some(access) = &mut self.access {
            access.store();
        }
    }
}

/// Crosses a stretch that contains only tombstones, in steps whose width adapts. Keys are read as
/// binary fractions; a step goes to the end of the aligned interval of that width in which it
/// begins. A step that exceeded its bound of tombstones is halved; after one that did not, the next
/// one is twice as wide if that is aligned.
#[derive(Debug)]
pub struct Crossing {
    /// The width is 2^-bits.
    bits: usize,
}

impl Crossing {
    /// The bound of tombstones for a step: so low that many steps that exceed it cost little.
    pub const STEP_TOMBSTONES: u64 = 256;

    /// Begins at `from`.
    pub fn at(from: &[u8]) -> Crossing {
        Crossing {
            bits: (from.len() * 8).max(1),
        }
    }

    /// The end of the next step from `from`: after `from`, and at most `to`.
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

    /// Notes that the last step reached `end` without a row.
    pub fn was_empty(&mut self, end: &[u8]) {
        let used = end.iter().rposition(|byte| *byte != 0);
        let aligned = used.map_or(0, |at| 8 * (at + 1) - end[at].trailing_zeros() as usize);
        if aligned < self.bits {
            self.bits -= 1;
        }
    }

    /// Notes that the last step was too wide.
    pub fn was_too_much(&mut self) {
        self.bits += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::encoding::keys;
    use crate::encoding::tag;
    use crate::storage::{Engine, StorageConfig, Txn};

    const DB: DbIndex = DbIndex(0);

    fn empty_store() -> (tempfile::TempDir, Txn) {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        (dir, Txn::new(engine))
    }

    /// A scan that gave up right after a pending row went on to step past that row, which it had
    /// dropped: RANDOMKEY after writes of the same tick crashed the server.
    #[test]
    fn a_scan_can_give_up_at_any_row() {
        let (_dir, mut txn) = empty_store();
        let row = |n: u32| keys::Layout::Plain.meta(format!("{n:03}").as_bytes());
        txn.begin(UnixMs(1)).unwrap();
        for n in 0..100 {
            txn.put_row(DB, &row(n), b"stored").unwrap();
        }
        txn.commit().unwrap();
        txn.begin(UnixMs(1)).unwrap();
        for n in (0..100).filter(|n| n % 10 != 0) {
            txn.delete_row(DB, &row(n)).unwrap();
        }
        txn.commit().unwrap();
        txn.begin(UnixMs(1)).unwrap();
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
                true => txn.begin_exclusive(UnixMs(1)).unwrap(),
                false => txn.begin(UnixMs(1)).unwrap(),
            }
            for n in 0..99u8 {
                txn.delete_row(DB, &keys::Layout::Plain.meta(&[n])).unwrap();
            }
            txn.put_row(DB, &keys::Layout::Plain.meta(&[99]), b"stored")
                .unwrap();
            txn.commit().unwrap();
        }
        assert_eq!(compared(), at_start);
        txn.begin(UnixMs(1)).unwrap();
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
