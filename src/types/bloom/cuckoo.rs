//! Cuckoo filters, as RedisBloom has them: a chain of tables of buckets, whose slots hold
//! fingerprints of a byte. When an item finds no slot, a larger table joins.
//!
//! The slots of all tables are one array, in the order of the chain. The head of the meta row is
//!
//! ```text
//! buckets (8) ‖ items (8) ‖ deletions (8) ‖ slots of a bucket (2) ‖ iterations (2) ‖ expansion (2)
//!   ‖ tables (4) ‖ buckets of each table (8)…
//! ```

pub mod build;
pub mod chunks;
mod compact;

use crate::base::murmur::murmur64a;
use crate::encoding::{Corrupt, Meta, ValueType, tag};
use crate::storage::{DbIndex, Txn, View};
use crate::types::bloom::items::{ask_for, read_each};
use crate::types::pages::{ARRAY_MAX, Array};
use crate::types::{self, OpResult};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;

/// An empty slot.
const EMPTY: u8 = 0;

/// Most tables of a chain. RedisBloom lets a client add at most 32.
const TABLES_MAX: usize = 1024;

/// Most buckets of a table.
const BUCKETS_MAX: u64 = 1 << 56;

/// A filter with this many tables takes no more items. RedisBloom lets a command go on beyond that,
/// with a search through all tables for each item.
pub const GROWN_TABLES_MAX: usize = 32;

/// What a new filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Items that it is made for.
    pub capacity: u64,
    /// Slots of a bucket.
    pub bucket_size: u16,
    /// Most fingerprints that move for a new one.
    pub iterations: u16,
    /// How much larger each table is than the one before; 0: there is only one.
    pub expansion: u16,
}

/// A Cuckoo filter.
#[derive(Debug, Clone)]
pub struct Cuckoo {
    old: Option<Meta>,
    /// Buckets of the first table.
    pub buckets: u64,
    /// Items.
    pub items: u64,
    /// Items that were deleted since the last compaction.
    pub deletes: u64,
    /// Slots of a bucket.
    pub bucket_size: u16,
    /// Most fingerprints that move for a new one.
    pub iterations: u16,
    /// How much larger each table is than the one before.
    pub expansion: u16,
    /// Buckets of each table.
    tables: Vec<u64>,
    array: Array,
}

/// What it costs to move a fingerprint, in steps of [`View::work`].
const STEPS_OF_A_MOVE: u64 = 4;

/// Where an item may be.
#[derive(Debug, Clone, Copy)]
struct Place {
    fingerprint: u8,
    first: u64,
    second: u64,
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It was added.
    Added,
    /// It seems to be there.
    Present,
    /// The filter does not grow and is full.
    Full,
    /// The filter cannot grow any more.
    Stuck,
}

fn other(fingerprint: u8, index: u64) -> u64 {
    index ^ u64::from(fingerprint).wrapping_mul(0x5BD1_E995)
}

impl Place {
    fn of(item: &[u8]) -> Place {
        let first = murmur64a(item, 0);
        Place::at((first % 255 + 1) as u8, first)
    }

    fn at(fingerprint: u8, first: u64) -> Place {
        Place {
            fingerprint,
            first,
            second: other(fingerprint, first),
        }
    }
}

/// A table in the array.
#[derive(Debug, Clone, Copy)]
struct Table {
    /// Where its slots begin.
    start: u64,
    buckets: u64,
}

impl Table {
    /// The offsets of the two buckets of an item. RedisBloom computes with 32 bits.
    fn offsets(&self, place: Place, bucket_size: u16) -> [u64; 2] {
        [place.first, place.second].map(|hash| {
            let index = (hash % self.buckets).wrapping_mul(bucket_size.into());
            self.start + u64::from(index as u32)
        })
    }
}

impl Cuckoo {
    /// The filter of a key.
    pub fn load(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Cuckoo>> {
        let Some(found) = types::lookup(view, db, key, ValueType::Cuckoo)? else {
            return Ok(None);
        };
        Ok(Some(Cuckoo::decode(found.meta, &found.body)?))
    }

    /// A filter for a key that does not exist; `None` if it would be too large.
    pub fn new(txn: &Txn, plan: Plan) -> Option<Cuckoo> {
        let wanted = plan.capacity / u64::from(plan.bucket_size).max(1);
        let buckets = wanted.max(1).checked_next_power_of_two()?;
        let len = buckets.checked_mul(plan.bucket_size.into());
        let len = len.filter(|len| *len <= ARRAY_MAX)?;
        Some(Cuckoo {
            old: None,
            buckets,
            items: 0,
            deletes: 0,
            bucket_size: plan.bucket_size,
            iterations: plan.iterations,
            expansion: match plan.expansion {
                0 => 0,
                expansion => expansion.checked_next_power_of_two()?,
            },
            tables: vec![buckets],
            array: Array::new(txn, tag::CUCKOO_PAGE, len),
        })
    }

    fn decode(meta: Meta, body: &[u8]) -> Result<Cuckoo, Corrupt> {
        let ((head, tables), array) = Array::decode(tag::CUCKOO_PAGE, meta, body, |r| {
            let numbers = (r.u64()?, r.u64()?, r.u64()?);
            let short = [r.array()?, r.array()?, r.array()?].map(u16::from_be_bytes);
            let count = r.u32()? as usize;
            if count == 0 || count > TABLES_MAX {
                return Err(Corrupt("Cuckoo filter"));
            }
            let tables = (0..count).map(|_| r.u64()).collect::<Result<Vec<_>, _>>()?;
            if short[0] == 0 || tables.contains(&0) {
                return Err(Corrupt("Cuckoo filter"));
            }
            Ok(((numbers, short), tables))
        })?;
        let ((buckets, items, deletes), [bucket_size, iterations, expansion]) = head;
        Ok(Cuckoo {
            old: Some(meta),
            buckets,
            items,
            deletes,
            bucket_size,
            iterations,
            expansion,
            tables,
            array,
        })
    }

    /// Writes the meta row.
    pub fn save(&self, txn: &mut Txn, db: DbIndex, key: &[u8]) -> OpResult<()> {
        let mut head = Vec::with_capacity(34 + 8 * self.tables.len());
        for number in [self.buckets, self.items, self.deletes] {
            head.extend_from_slice(&number.to_be_bytes());
        }
        for number in [self.bucket_size, self.iterations, self.expansion] {
            head.extend_from_slice(&number.to_be_bytes());
        }
        head.extend_from_slice(&(self.tables.len() as u32).to_be_bytes());
        for buckets in &self.tables {
            head.extend_from_slice(&buckets.to_be_bytes());
        }
        self.array
            .put(txn, db, key, self.old.as_ref(), ValueType::Cuckoo, &head)
    }

    /// How many tables there are.
    pub fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// Bytes of all slots.
    pub fn slots(&self) -> u64 {
        self.array.len()
    }

    /// The tables, the oldest first.
    fn tables(&self) -> impl DoubleEndedIterator<Item = Table> + use<> {
        let mut start = 0;
        let tables: Vec<Table> = self
            .tables
            .iter()
            .map(|buckets| {
                let table = Table {
                    start,
                    buckets: *buckets,
                };
                start += buckets * u64::from(self.bucket_size);
                table
            })
            .collect();
        tables.into_iter()
    }

    fn bucket(&self, view: &View, db: DbIndex, offset: u64) -> OpResult<Vec<u8>> {
        // Short filters stand in the meta row, and need no other.
        view.work(1)?;
        let mut bucket = vec![0; self.bucket_size.into()];
        self.array.read(view, db, offset, &mut bucket)?;
        Ok(bucket)
    }

    /// The first slot with this fingerprint in one of the buckets of an item.
    fn find(
        &self,
        view: &View,
        db: DbIndex,
        table: Table,
        place: Place,
        fingerprint: u8,
    ) -> OpResult<Option<u64>> {
        let mut found = None;
        read_each(view, table.offsets(place, self.bucket_size), |offset| {
            let bucket = self.bucket(view, db, offset)?;
            let slot = bucket.iter().position(|slot| *slot == fingerprint);
            found = slot.map(|slot| offset + slot as u64);
            Ok(match found {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        })?;
        Ok(found)
    }

    /// Asks for the rows that these items need, after the command has missed one. Additions begin
    /// with the youngest table.
    pub fn ask_for(&self, view: &View, db: DbIndex, items: &[&[u8]], adds: bool) {
        let first = match adds {
            true => self.tables.len().saturating_sub(1),
            false => 0,
        };
        let items = items.iter().copied();
        ask_for(view, items, |item| self.count_from(view, db, item, first));
    }

    /// Whether an item seems to be in the filter.
    pub fn contains(&self, view: &View, db: DbIndex, item: &[u8]) -> OpResult<bool> {
        let place = Place::of(item);
        read_each(view, self.tables(), |table| {
            let found = self.find(view, db, table, place, place.fingerprint)?;
            Ok(match found {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        })
    }

    /// How often an item seems to have been added.
    pub fn count(&self, view: &View, db: DbIndex, item: &[u8]) -> OpResult<u64> {
        self.count_from(view, db, item, 0)
    }

    /// The same without the first tables.
    fn count_from(&self, view: &View, db: DbIndex, item: &[u8], first: usize) -> OpResult<u64> {
        let place = Place::of(item);
        let mut count = 0;
        let size = self.bucket_size;
        let tables = self.tables().skip(first);
        let offsets = tables.flat_map(|table| table.offsets(place, size));
        read_each(view, offsets, |offset| {
            let bucket = self.bucket(view, db, offset)?;
            let same = bucket.iter().filter(|slot| **slot == place.fingerprint);
            count += same.count() as u64;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(count)
    }

    /// Adds an item; [`Cuckoo::save`] must follow. With `unique` only one that is not there.
    pub fn insert(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        item: &[u8],
        unique: bool,
    ) -> OpResult<Inserted> {
        if unique && self.contains(txn, db, item)? {
            return Ok(Inserted::Present);
        }
        let place = Place::of(item);
        loop {
            for table in self.tables().rev() {
                if let Some(slot) = self.find(txn, db, table, place, EMPTY)? {
                    self.array.write(txn, db, slot, &[place.fingerprint])?;
                    self.items = self.items.wrapping_add(1);
                    return Ok(Inserted::Added);
                }
            }
            if self.displace(txn, db, place)? {
                self.items = self.items.wrapping_add(1);
                return Ok(Inserted::Added);
            }
            if self.expansion == 0 {
                return Ok(Inserted::Full);
            }
            if !self.extend(txn, db)? {
                return Ok(Inserted::Stuck);
            }
        }
    }

    /// Puts a fingerprint into the last table, where others make room for it by moving on. Nothing
    /// is written if there is no room after so many moves.
    fn displace(&mut self, txn: &mut Txn, db: DbIndex, place: Place) -> OpResult<bool> {
        let Some(table) = self.tables().next_back() else {
            return Ok(false);
        };
        let size = u64::from(self.bucket_size);
        let mut changed: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let (mut moving, mut victim) = (place.fingerprint, 0);
        let mut index = place.first % table.buckets;
        let mut found = false;
        for _ in 0..self.iterations {
            txn.work(STEPS_OF_A_MOVE)?;
            let bucket = self.changed_bucket(txn, db, table, index, &mut changed)?;
            std::mem::swap(&mut bucket[victim], &mut moving);
            index = other(moving, index) % table.buckets;
            let bucket = self.changed_bucket(txn, db, table, index, &mut changed)?;
            if let Some(slot) = bucket.iter_mut().find(|slot| **slot == EMPTY) {
                *slot = moving;
                found = true;
                break;
            }
            victim = (victim + 1) % usize::from(self.bucket_size);
        }
        if found {
            for (index, bucket) in changed {
                self.array
                    .write(txn, db, table.start + index * size, &bucket)?;
            }
        }
        Ok(found)
    }

    /// A bucket, as it will be.
    fn changed_bucket<'c>(
        &self,
        view: &View,
        db: DbIndex,
        table: Table,
        index: u64,
        changed: &'c mut BTreeMap<u64, Vec<u8>>,
    ) -> OpResult<&'c mut Vec<u8>> {
        Ok(match changed.entry(index) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let offset = table.start + index * u64::from(self.bucket_size);
                entry.insert(self.bucket(view, db, offset)?)
            }
        })
    }

    /// Adds a table to the chain; returns whether it can be.
    fn extend(&mut self, txn: &mut Txn, db: DbIndex) -> OpResult<bool> {
        let Some((buckets, len)) = self.next_table() else {
            return Ok(false);
        };
        self.array.grow(txn, db, len)?;
        self.tables.push(buckets);
        Ok(true)
    }

    /// The buckets of the next table, and the bytes of all slots with it.
    fn next_table(&self) -> Option<(u64, u64)> {
        let exponent = u32::try_from(self.tables.len()).ok()?;
        let growth = u64::from(self.expansion).checked_pow(exponent)?;
        let buckets = self.buckets.checked_mul(growth)?;
        let slots = buckets.checked_mul(self.bucket_size.into())?;
        let len = self.array.len().checked_add(slots)?;
        let may_grow = self.tables.len() < GROWN_TABLES_MAX;
        let fits = may_grow && buckets < BUCKETS_MAX && len <= ARRAY_MAX;
        fits.then_some((buckets, len))
    }

    /// Deletes one occurrence of an item; returns whether there was one. [`Cuckoo::save`] must
    /// follow.
    pub fn delete(&mut self, txn: &mut Txn, db: DbIndex, item: &[u8]) -> OpResult<bool> {
        let place = Place::of(item);
        for table in self.tables().rev() {
            let found = self.find(txn, db, table, place, place.fingerprint);
            let found = found.inspect_err(|_| self.ask_for(txn, db, &[item], false))?;
            if let Some(slot) = found {
                self.array.write(txn, db, slot, &[EMPTY])?;
                self.items = self.items.wrapping_sub(1);
                self.deletes = self.deletes.wrapping_add(1);
                if self.tables.len() > 1 && self.deletes as f64 > self.items as f64 * 0.10 {
                    self.compact(txn, db, false)?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
