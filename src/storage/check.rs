//! A full check of a database against the invariants of its rows, for `DEBUG KEDIS-CHECK` and the
//! crash tests.

use crate::base::slots::SLOTS;
use crate::base::time::UnixMs;
use crate::encoding::keys::{Layout, element};
use crate::encoding::meta::decode_reclaim;
use crate::encoding::meta::{Base, LongString, MetaView, Statement};
use crate::encoding::reader::Reader;
use crate::encoding::stream::{ConsumerRow, GroupRow};
use crate::encoding::system::Counts;
use crate::encoding::values::ValueRef;
use crate::encoding::{CollectionId, ValueType, keys, tag};
use crate::storage::Direction;
use crate::storage::cache::ranges::{self, CachedRange};
use crate::storage::engine::cold_reads::Span;
use crate::storage::engine::keyspace::LowMarks;
use crate::storage::engine::rows::{How, Rows};
use crate::storage::engine::{Engine, Keyspace};
use crate::storage::txn::overlay::Overlay;
use crate::storage::{DbIndex, Result, StorageError};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

/// How much is read from the disk at a time.
const READAHEAD_BYTES: usize = 1 << 20;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// Violated invariants, in words.
    pub faults: Vec<String>,
    /// Rows read.
    pub rows: u64,
    /// Keys found.
    pub keys: u64,
    /// Dead collections not yet reclaimed.
    pub dead_collections: u64,
    /// Rows of the binlog.
    pub binlog_rows: u64,
}

/// What the meta row of a collection states.
struct Claim {
    kind: ValueType,
    stated: SmallVec<[Statement; 3]>,
}

/// The counts that the rows of a stream's groups and consumers state.
#[derive(Debug, Clone, Copy, Default)]
struct Stated {
    consumers: u64,
    /// Pending entries, by the groups.
    pending: u64,
    /// Pending entries, by the consumers, and those that none owns.
    owned: u64,
    /// Pending entries of groups that store them by time.
    timed: u64,
}

#[derive(Default)]
struct Found {
    counts: Counts,
    /// Keys by their slots, if they are in slots.
    slots: BTreeMap<u16, u64>,
    claims: BTreeMap<CollectionId, Claim>,
    expiries: BTreeSet<(UnixMs, Vec<u8>)>,
    ttl_rows: BTreeSet<(UnixMs, Vec<u8>)>,
    /// Keys with timed elements, by their meta rows and by the index.
    due: BTreeSet<(UnixMs, Vec<u8>)>,
    due_rows: BTreeSet<(UnixMs, Vec<u8>)>,
    /// The earliest time of an element in rows, and when its key is due by the meta row.
    first_times: BTreeMap<CollectionId, UnixMs>,
    due_times: BTreeMap<CollectionId, UnixMs>,
    /// Rows of times and of the index by time of each collection, added up.
    times: BTreeMap<CollectionId, u64>,
    elements: BTreeMap<(CollectionId, u8), u64>,
    streams: BTreeMap<CollectionId, Stated>,
    /// Strings with a base by their meta rows, and the bytes of the bases.
    based: BTreeMap<CollectionId, LongString>,
    bases: BTreeMap<CollectionId, u64>,
    dead: BTreeSet<CollectionId>,
}

impl Engine {
    /// Reads every row. The caller excludes writers (an exclusive turn); otherwise the report may
    /// name changes that are only under way.
    pub fn check(&self) -> Result<Report> {
        let mut report = Report::default();
        for (db, keyspace) in self.all_keyspaces() {
            self.check_keyspace(db, &keyspace, &mut report)?;
        }
        self.check_binlog(&mut report)?;
        Ok(report)
    }

    fn check_keyspace(&self, db: DbIndex, keyspace: &Keyspace, report: &mut Report) -> Result<()> {
        let mut found = Found::default();
        let before = keyspace.low_marks();
        let mut rows = self.db.raw_iterator_cf_opt(&keyspace.cf, {
            let mut read = rocksdb::ReadOptions::default();
            read.set_total_order_seek(true);
            read.fill_cache(false);
            read.set_readahead_size(READAHEAD_BYTES);
            read
        });
        rows.seek_to_first();
        let mut bytes = Vec::new();
        while let Some((key, value)) = rows.item() {
            found.take_row(self.layout, key, value)?;
            if let Some(id) = keys::split_base(key) {
                let at = ValueRef::decode(value)?;
                bytes.clear();
                // Rows of keys come first. Nobody reads the bytes of a string without a key.
                if found.based.contains_key(&id)
                    && let Err(error) = self.values.read(&at, 0..at.len, &mut bytes, true)
                {
                    let fault = format!("DB {}: string {}: {error}", db.0, id.0);
                    report.faults.push(fault);
                }
                found.bases.insert(id, at.len);
            }
            report.rows += 1;
            rows.next();
        }
        rows.status()?;
        self.check_row_cache(db, keyspace, &found, &mut report.faults)?;
        self.check_rank_indexes(db, keyspace, &mut report.faults)?;
        report.keys += found.counts.keys;
        report.dead_collections += found.dead.len() as u64;
        found.judge(db, keyspace.counts(), &mut report.faults);
        found.judge_slots(db, keyspace, &mut report.faults);
        // The end of a concurrent pass may raise a mark too far for an instant.
        let after = keyspace.low_marks();
        let low = LowMarks {
            ttl_ms: before.ttl_ms.min(after.ttl_ms),
            due_ms: before.due_ms.min(after.due_ms),
            reclaim: before.reclaim.min(after.reclaim),
        };
        found.judge_low_marks(db, low, &mut report.faults);
        Ok(())
    }

    /// Checks that every cached row equals the row in RocksDB.
    fn check_row_cache(
        &self,
        db: DbIndex,
        keyspace: &Keyspace,
        found: &Found,
        faults: &mut Vec<String>,
    ) -> Result<()> {
        let hasher = Overlay::new(self.memory.row_hasher.clone());
        let mut failure = Ok(());
        self.memory.rows.for_each(|hash, key, value| {
            let belongs = keyspace.cache_hash(hasher.hash(keyspace.id, key)) == hash;
            if failure.is_err() {
                return;
            }
            if let Some((map, direction)) = ranges::split_name(key) {
                if keyspace.cache_hash(hasher.hash(keyspace.id, map)) == hash {
                    match self.is_range_true(keyspace, direction, value) {
                        Ok(true) => {}
                        Ok(false) => faults.push(format!(
                            "DB {}: the run {} is not what is stored",
                            db.0,
                            key.escape_ascii()
                        )),
                        Err(error) => failure = Err(error),
                    }
                }
                return;
            }
            if !belongs {
                return;
            }
            match self.db.get_pinned_cf(&keyspace.cf, key) {
                Ok(Some(stored)) if *stored == *value => {}
                Ok(None) if !found.can_be_read(key) => {}
                Ok(_) => faults.push(format!(
                    "DB {}: hot row {} is not what is stored",
                    db.0,
                    key.escape_ascii()
                )),
                Err(error) => failure = Err(error),
            }
        });
        Ok(failure?)
    }

    /// Whether a cached range has exactly the rows that RocksDB has in its range.
    fn is_range_true(
        &self,
        keyspace: &Keyspace,
        direction: Direction,
        range: &[u8],
    ) -> std::result::Result<bool, rocksdb::Error> {
        let Some(range) = CachedRange::decode(direction, range) else {
            return Ok(false);
        };
        let (from, to) = range.range();
        let mut read = rocksdb::ReadOptions::default();
        read.set_total_order_seek(true);
        read.set_iterate_upper_bound(to);
        let mut rows = self.db.raw_iterator_cf_opt(&keyspace.cf, read);
        rows.seek(from);
        let mut met = 0;
        while let Some(row) = rows.item() {
            if range.get(Direction::Forward, met) != Some(row) {
                return Ok(false);
            }
            met += 1;
            rows.next();
        }
        rows.status()?;
        Ok(met == range.len())
    }

    /// Checks that every stretch of a rank index has as many rows as the index says.
    fn check_rank_indexes(
        &self,
        db: DbIndex,
        keyspace: &Keyspace,
        faults: &mut Vec<String>,
    ) -> Result<()> {
        for (prefix, stretches) in self.memory.ranks.stretches(keyspace.id) {
            let mut counted = vec![0; stretches.len()];
            let end = keys::after_prefix(&prefix).unwrap_or_default();
            let span = Span::new(&prefix, &end, Direction::Forward);
            let mut rows = Rows::open(self, keyspace, &span, How::default());
            while let Some(key) = rows.key() {
                let place = key.get(prefix.len()..).unwrap_or_default();
                let begun = stretches.partition_point(|(from, _)| from.as_slice() <= place);
                counted[begun.saturating_sub(1)] += 1;
                rows.next();
            }
            rows.status()?;
            let tallied: Vec<u64> = stretches.iter().map(|(_, rows)| *rows).collect();
            if tallied != counted {
                faults.push(format!(
                    "DB {}: the rows under {} are tallied as {tallied:?} and are {counted:?}",
                    db.0,
                    prefix.escape_ascii()
                ));
            }
        }
        Ok(())
    }

    fn check_binlog(&self, report: &mut Report) -> Result<()> {
        let range = self.binlog.range();
        let mut position = range.first_position;
        let mut entry = range.first_entry;
        let Report {
            faults,
            binlog_rows,
            ..
        } = report;
        self.read_binlog(range.first_position, |at, row| {
            if at != position || row.first_entry != entry {
                faults.push(format!(
                    "binlog: row at {at}, entry {} where {position}, entry {entry} was due",
                    row.first_entry
                ));
            }
            position = at + row.bytes.len() as u64;
            entry = row.first_entry + u64::from(row.entries);
            *binlog_rows += 1;
            true
        })?;
        if position != range.next_position || entry != range.next_entry {
            faults.push(format!(
                "binlog: ends at {position}, entry {entry}, but {}, entry {} is due",
                range.next_position, range.next_entry
            ));
        }
        Ok(())
    }
}

impl Found {
    fn take_row(&mut self, layout: Layout, key: &[u8], value: &[u8]) -> Result<()> {
        match key.first().copied() {
            Some(tag::META) => {
                let (slot, user_key) = layout.checked(key)?;
                *self.slots.entry(slot).or_default() += 1;
                self.take_meta(user_key, value)?;
            }
            Some(tag::TTL) => {
                let (expire_ms, user_key) = keys::split_ttl(key)?;
                self.ttl_rows.insert((expire_ms, user_key.to_vec()));
            }
            Some(tag::DUE) => {
                let (due_ms, user_key) = keys::split_due(key)?;
                self.due_rows.insert((due_ms, user_key.to_vec()));
            }
            Some(tag::RECLAIM) => {
                decode_reclaim(value)?;
                self.dead.insert(keys::split_reclaim(key)?);
            }
            Some(element) => {
                let mut r = Reader::new(key, "element");
                r.u8()?;
                let id = CollectionId(r.u64()?);
                *self.elements.entry((id, element)).or_default() += 1;
                self.take_time(id, element, key, value)?;
                let stated = self.streams.entry(id);
                if element == tag::STREAM_GROUP {
                    let row = GroupRow::decode(value)?;
                    let stated = stated.or_default();
                    stated.consumers += row.consumers;
                    stated.pending += row.pending;
                    stated.owned += row.released;
                    stated.timed += if row.timed { row.pending } else { 0 };
                } else if element == tag::STREAM_CONSUMER {
                    stated.or_default().owned += ConsumerRow::decode(value)?.pending;
                }
            }
            None => return Err(StorageError::Corrupt(crate::encoding::Corrupt("empty key"))),
        }
        Ok(())
    }

    fn take_meta(&mut self, user_key: &[u8], value: &[u8]) -> Result<()> {
        let found = MetaView::decode(value)?;
        self.counts.keys += 1;
        if found.meta.expire_ms.is_some() {
            self.counts.expires += 1;
            self.expiries
                .insert((found.meta.expire_ms, user_key.to_vec()));
        }
        let due_ms = found.meta.due_ms;
        if due_ms.is_some() {
            self.counts.timed += 1;
            self.due.insert((due_ms, user_key.to_vec()));
        }
        if found.meta.rows {
            let kind = found.meta.kind;
            if due_ms.is_some() {
                self.due_times.insert(found.id()?, due_ms);
            }
            if kind == ValueType::String {
                let long = LongString::decode(found.body)?;
                if long.base != Base::None {
                    self.based.insert(long.id, long);
                }
            }
            let stated = kind.statements(found.body)?;
            self.claims.insert(found.id()?, Claim { kind, stated });
        }
        Ok(())
    }

    /// Takes the expiry of an element: its row and its place in the index must say the same, so
    /// that their hashes cancel out.
    fn take_time(&mut self, id: CollectionId, tag: u8, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = |time: &[u8], place: &[u8]| FxBuildHasher.hash_one((time, place));
        match tag {
            tag::FIELD_TIME | tag::SET_MEMBER if tag == tag::FIELD_TIME || !value.is_empty() => {
                let sum = self.times.entry(id).or_default();
                *sum = sum.wrapping_add(hash(value, keys::place_of(key)));
            }
            tag::FIELD_DUE | tag::MEMBER_DUE => {
                let (expire_ms, place) = keys::split_element_due(key)?;
                let sum = self.times.entry(id).or_default();
                *sum = sum.wrapping_sub(hash(&expire_ms.0.to_be_bytes(), place));
                self.first_times.entry(id).or_insert(expire_ms);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the row under this key can be read. Other rows may be cached without being stored:
    /// range deletions remove those of dead collections, and those beyond the ends of lists.
    fn can_be_read(&self, key: &[u8]) -> bool {
        let Some((id, _)) = element(key) else {
            return true;
        };
        self.claims.get(&id).is_some_and(|claim| {
            let mut stated = claim.stated.iter();
            stated
                .find_map(|s| s.positions.as_ref())
                .is_none_or(|positions| {
                    keys::split_indexed(key).is_ok_and(|index| positions.contains(&index))
                })
        })
    }

    fn judge_slots(&self, db: DbIndex, keyspace: &Keyspace, faults: &mut Vec<String>) {
        let Some(counts) = keyspace.slots() else {
            return;
        };
        for slot in 0..SLOTS {
            let (counted, keys) = (counts.get(slot), self.slots.get(&slot).copied());
            if counted != keys.unwrap_or_default() {
                faults.push(format!(
                    "db {}: slot {slot} counts {counted} keys, found {keys:?}",
                    db.0
                ));
            }
        }
    }

    fn judge(&self, db: DbIndex, counted: Counts, faults: &mut Vec<String>) {
        let db = db.0;
        if counted != self.counts {
            faults.push(format!(
                "db {db}: counts {counted:?}, found {:?}",
                self.counts
            ));
        }
        for (expire_ms, key) in self.expiries.symmetric_difference(&self.ttl_rows) {
            let key = String::from_utf8_lossy(key);
            faults.push(format!(
                "db {db}: TTL index and key {key:?} differ at {expire_ms}"
            ));
        }
        for (due_ms, key) in self.due.symmetric_difference(&self.due_rows) {
            let key = String::from_utf8_lossy(key);
            faults.push(format!(
                "db {db}: index of timed elements and key {key:?} differ at {due_ms}"
            ));
        }
        self.judge_times(db, faults);
        self.judge_bases(db, faults);
        for ((id, element), count) in &self.elements {
            let known = self.dead.contains(id)
                || self
                    .claims
                    .get(id)
                    .is_some_and(|claim| claim.kind.element_tags().contains(element));
            if !known {
                faults.push(format!(
                    "db {db}: {count} orphan rows {element:#04x} of {}",
                    id.0
                ));
            }
        }
        for (id, claim) in &self.claims {
            if self.dead.contains(id) {
                let kind = claim.kind.name();
                faults.push(format!(
                    "db {db}: {kind} {} is in use and waits to be reclaimed",
                    id.0
                ));
            }
            for &Statement { tag, rows, .. } in &claim.stated {
                let count = self.rows(*id, tag);
                if count != rows {
                    faults.push(format!(
                        "db {db}: {} {} claims {rows} elements, has {count} rows {tag:#04x}",
                        claim.kind.name(),
                        id.0,
                    ));
                }
            }
            if claim.kind.element_tags().contains(&tag::STREAM_CONSUMER) {
                self.judge_groups(db, *id, faults);
            }
        }
    }
}

impl Found {
    fn judge_bases(&self, db: u16, faults: &mut Vec<String>) {
        for (id, long) in &self.based {
            let fits = |len: &u64| match long.base {
                Base::Patched => *len <= long.len,
                _ => *len == long.len,
            };
            let len = self.bases.get(id);
            if !len.is_some_and(fits) {
                faults.push(format!(
                    "db {db}: string {} of {} bytes has a base of {len:?}",
                    id.0, long.len
                ));
            }
        }
        for id in self.bases.keys() {
            if !self.based.contains_key(id) && !self.dead.contains(id) {
                faults.push(format!("db {db}: string {} states no base", id.0));
            }
        }
    }

    fn judge_times(&self, db: u16, faults: &mut Vec<String>) {
        for (id, _) in self
            .times
            .iter()
            .filter(|(id, sum)| **sum != 0 && !self.dead.contains(id))
        {
            faults.push(format!(
                "db {db}: times of elements of {} and their order differ",
                id.0
            ));
        }
        for (id, first_ms) in &self.first_times {
            let due_ms = self.due_times.get(id);
            if due_ms.is_none_or(|due_ms| due_ms > first_ms) && !self.dead.contains(id) {
                faults.push(format!(
                    "db {db}: an element of {} expires at {first_ms}, its key is due at {due_ms:?}",
                    id.0
                ));
            }
        }
        for (id, _) in self
            .due_times
            .iter()
            .filter(|(id, _)| !self.first_times.contains_key(id))
        {
            faults.push(format!(
                "db {db}: no element of {} expires, but its key is due",
                id.0
            ));
        }
    }

    /// Checks that no row of the indexes by time, and none of the reclaim queue, stands before the mark
    /// at which the passes of the expire thread begin.
    fn judge_low_marks(&self, db: DbIndex, low: LowMarks, faults: &mut Vec<String>) {
        let db = db.0;
        for (rows, low_ms) in [(&self.ttl_rows, low.ttl_ms), (&self.due_rows, low.due_ms)] {
            if let Some((expire_ms, key)) = rows.first().filter(|row| row.0 < low_ms) {
                let key = String::from_utf8_lossy(key);
                faults.push(format!(
                    "db {db}: {key:?} expires at {expire_ms}, passes begin at {low_ms}"
                ));
            }
        }
        if let Some(id) = self.dead.first().filter(|id| **id < low.reclaim) {
            faults.push(format!(
                "db {db}: {} waits to be reclaimed, passes begin at {}",
                id.0, low.reclaim.0
            ));
        }
    }

    fn rows(&self, id: CollectionId, tag: u8) -> u64 {
        self.elements.get(&(id, tag)).copied().unwrap_or(0)
    }

    /// Whether the counts of a stream's groups and consumers are those of the rows.
    fn judge_groups(&self, db: u16, id: CollectionId, faults: &mut Vec<String>) {
        let stated = self.streams.get(&id).copied().unwrap_or_default();
        for (what, tag, stated) in [
            ("consumers", tag::STREAM_CONSUMER, stated.consumers),
            ("names", tag::STREAM_CONSUMER_NAME, stated.consumers),
            ("pending entries", tag::STREAM_PENDING, stated.pending),
            ("owned entries", tag::STREAM_OWNED, stated.owned),
            ("entries by time", tag::STREAM_TIMED, stated.timed),
        ] {
            let rows = self.rows(id, tag);
            if rows != stated {
                faults.push(format!(
                    "db {db}: stream {} claims {stated} {what}, has {rows}",
                    id.0
                ));
            }
        }
        if stated.pending != stated.owned {
            faults.push(format!(
                "db {db}: groups of stream {} claim {} pending entries, consumers {}",
                id.0, stated.pending, stated.owned
            ));
        }
    }
}
