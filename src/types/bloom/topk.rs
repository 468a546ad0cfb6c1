//! The most frequent items, as RedisBloom finds them (HeavyKeeper): `depth` rows of `width` buckets
//! of a fingerprint and a counter, and a heap of the `k` items with the highest counts.
//!
//! The buckets are an array; of each the fingerprint (4) and the counter (4), little-endian. A slot of
//! the heap that has an item is a row of its own, `tag ‖ id ‖ slot → fingerprint (4) ‖ count (4) ‖
//! item`, and an addition writes the slots that change. The head of the meta row is
//!
//! ```text
//! k (4) ‖ width (4) ‖ depth (4) ‖ decay (8) ‖ draws (8)
//! ```
//!
//! An item that meets the counter of another one lowers it by chance. The chance is drawn from the
//! number of draws so far and the item: what a request does follows from the stored value, so a
//! replica and a database that runs the binlog again reach the same one.

pub mod build;

use crate::base::logarithm;
use crate::base::murmur::murmur2;
use crate::encoding::reader::Reader;
use crate::encoding::{CollectionId, Corrupt, Meta, ValueType, keys, tag};
use crate::storage::{DbIndex, Direction, Txn, View};
use crate::types::bloom::items::{ask_for, read_each};
use crate::types::pages::{ARRAY_MAX, Array};
use crate::types::{self, OpError, OpResult};
use smallvec::SmallVec;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Bytes of a bucket.
const BUCKET: u64 = 8;

/// Slots of the heap that are searched in a step of [`View::work`].
const SLOTS_OF_A_STEP: u64 = 16;

/// Bytes that a slot takes in memory besides its item.
const SLOT_BYTES: usize = 128;

/// So many bytes of slots are announced at once.
const HELD_AT_ONCE: usize = 64 << 10;

/// Most items of a heap whose slots are looked up one by one.
const SMALL_K: u32 = 128;

/// The seed of fingerprints.
const FINGERPRINT_SEED: u32 = 1919;

/// Most rows of buckets, which an addition touches all.
const DEPTH_MAX: u32 = 4096;

/// Most items of the heap, which additions read.
const K_MAX: u32 = 1 << 20;

/// What a new value is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Items that are kept.
    pub k: u32,
    /// Buckets of a row.
    pub width: u32,
    /// Rows.
    pub depth: u32,
    /// The chance that a counter of 1 is lowered; for a counter of n it is the n-th power.
    pub decay: f64,
}

impl Plan {
    /// Bytes of the buckets; `None` if there can be no such value.
    fn buckets_len(&self) -> Option<u64> {
        let buckets = u64::from(self.width).checked_mul(self.depth.into())?;
        let len = buckets.checked_mul(BUCKET)?;
        let sound = (1..=K_MAX).contains(&self.k)
            && self.width > 0
            && (1..=DEPTH_MAX).contains(&self.depth)
            && self.decay > 0.0
            && self.decay <= 1.0
            && len <= ARRAY_MAX;
        sound.then_some(len)
    }
}

/// A slot of the heap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slot {
    fingerprint: u32,
    /// The estimated count of the item.
    pub count: u32,
    /// The item, unless the slot is empty.
    pub item: Option<Vec<u8>>,
}

/// The heap: the item with the lowest count is the first. Its cost follows the items that are there,
/// not `k`.
#[derive(Debug)]
struct Heap {
    id: CollectionId,
    k: usize,
    /// Slots by their places.
    slots: BTreeMap<usize, Slot>,
    /// Whether missing slots are empty; otherwise they are not read yet.
    is_whole: bool,
    /// Slots that have changed.
    changed: BTreeSet<usize>,
}

/// The most frequent items.
#[derive(Debug)]
pub struct TopK {
    old: Option<Meta>,
    id: CollectionId,
    /// What it was made for.
    pub plan: Plan,
    draws: u64,
    array: Array,
    /// Read when it is first needed.
    heap: Option<Heap>,
}

fn fingerprint(item: &[u8]) -> u32 {
    murmur2(item, FINGERPRINT_SEED)
}

fn slot_key(id: CollectionId, slot: usize) -> keys::RowKey {
    keys::indexed(tag::TOPK_SLOT, id, slot as i64)
}

fn decode_slot(row: &[u8]) -> Result<Slot, Corrupt> {
    let mut r = Reader::new(row, "top-k slot");
    Ok(Slot {
        fingerprint: r.u32()?,
        count: r.u32()?,
        item: Some(r.rest().to_vec()),
    })
}

/// Whether a stored slot has this item.
fn has_item(row: &[u8], fingerprint: u32, item: &[u8]) -> bool {
    let same = |(print, rest): (&[u8; 4], &[u8])| {
        *print == fingerprint.to_be_bytes() && rest.get(4..) == Some(item)
    };
    row.split_first_chunk::<4>().is_some_and(same)
}

impl Heap {
    /// A slot, which is read when it is first needed.
    fn slot(&mut self, view: &View, db: DbIndex, at: usize) -> OpResult<&mut Slot> {
        match self.slots.entry(at) {
            Entry::Occupied(read) => Ok(read.into_mut()),
            Entry::Vacant(place) if self.is_whole => Ok(place.insert(Slot::default())),
            Entry::Vacant(place) => {
                let stored = view.look_at(db, &slot_key(self.id, at), decode_slot)?;
                Ok(place.insert(stored.transpose()?.unwrap_or_default()))
            }
        }
    }

    /// Lets two slots that were read change places.
    fn swap(&mut self, a: usize, b: usize) {
        let (at_a, at_b) = (self.slots.remove(&a), self.slots.remove(&b));
        self.slots.extend(at_a.map(|slot| (b, slot)));
        self.slots.extend(at_b.map(|slot| (a, slot)));
    }

    /// Moves a slot down to its place.
    fn sift_down(&mut self, view: &View, db: DbIndex, start: usize) -> OpResult<()> {
        let len = self.k;
        let mut at = start;
        self.changed.insert(at);
        loop {
            let mut child = 2 * at + 1;
            if child >= len {
                return Ok(());
            }
            let mut count = |slot: usize| Ok::<_, OpError>(self.slot(view, db, slot)?.count);
            if child + 1 < len && count(child)? > count(child + 1)? {
                child += 1;
            }
            let stays = match at == start {
                true => count(child)? > count(at)?,
                // RedisBloom moves an item below one of the same count at the first step only.
                false => count(child)? >= count(at)?,
            };
            if stays {
                return Ok(());
            }
            self.swap(at, child);
            self.changed.insert(child);
            at = child;
        }
    }

    /// The slot of an item. Slots that are not read yet are only compared.
    fn find(&self, view: &View, db: DbIndex, print: u32, item: &[u8]) -> OpResult<Option<usize>> {
        let is_it = |slot: &Slot| slot.fingerprint == print && slot.item.as_deref() == Some(item);
        view.work(self.slots.len() as u64 / SLOTS_OF_A_STEP)?;
        if self.is_whole {
            let mut slots = self.slots.iter().rev();
            return Ok(slots.find(|(_, slot)| is_it(slot)).map(|(at, _)| *at));
        }
        for at in (0..self.k).rev() {
            let is_here = match self.slots.get(&at) {
                Some(slot) => is_it(slot),
                None => {
                    let same = |row: &[u8]| has_item(row, print, item);
                    let found = view.look_at(db, &slot_key(self.id, at), same)?;
                    found.unwrap_or(false)
                }
            };
            if is_here {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

impl TopK {
    /// The value of a key.
    pub fn load(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<TopK>> {
        let Some(found) = types::lookup(view, db, key, ValueType::TopK)? else {
            return Ok(None);
        };
        Ok(Some(TopK::decode(found.meta, &found.body)?))
    }

    /// A value for a key that does not exist; `None` if it would be too large.
    pub fn new(txn: &Txn, plan: Plan) -> Option<TopK> {
        let array = Array::in_rows(txn, tag::TOPK_PAGE, plan.buckets_len()?);
        Some(TopK {
            old: None,
            id: array.collection()?,
            plan,
            draws: 0,
            array,
            heap: None,
        })
    }

    fn decode(meta: Meta, body: &[u8]) -> Result<TopK, Corrupt> {
        const CORRUPT: Corrupt = Corrupt("top-k");
        let ((plan, draws), array) = Array::decode(tag::TOPK_PAGE, meta, body, |r| {
            let plan = Plan {
                k: r.u32()?,
                width: r.u32()?,
                depth: r.u32()?,
                decay: f64::from_bits(r.u64()?),
            };
            Ok((plan, r.u64()?))
        })?;
        if plan.buckets_len() != Some(array.len()) {
            return Err(CORRUPT);
        }
        Ok(TopK {
            old: Some(meta),
            id: array.collection().ok_or(CORRUPT)?,
            plan,
            draws,
            array,
            heap: None,
        })
    }

    /// Writes the meta row, and the slots of the heap that have changed.
    pub fn save(&self, txn: &mut Txn, db: DbIndex, key: &[u8]) -> OpResult<()> {
        if let Some(heap) = &self.heap {
            for at in &heap.changed {
                let row_key = slot_key(self.id, *at);
                let slot = heap.slots.get(at);
                let Some((slot, item)) = slot.and_then(|slot| Some((slot, slot.item.as_ref()?)))
                else {
                    // An item of count 0 can change places with an empty slot.
                    if txn.row(db, &row_key)?.is_some() {
                        txn.delete_row(db, &row_key)?;
                    }
                    continue;
                };
                let mut row = Vec::with_capacity(8 + item.len());
                row.extend_from_slice(&slot.fingerprint.to_be_bytes());
                row.extend_from_slice(&slot.count.to_be_bytes());
                row.extend_from_slice(item);
                txn.put_row(db, &row_key, &row)?;
            }
        }
        let mut head = Vec::with_capacity(28);
        for number in [self.plan.k, self.plan.width, self.plan.depth] {
            head.extend_from_slice(&number.to_be_bytes());
        }
        head.extend_from_slice(&self.plan.decay.to_be_bytes());
        head.extend_from_slice(&self.draws.to_be_bytes());
        self.array
            .put(txn, db, key, self.old.as_ref(), ValueType::TopK, &head)
    }

    /// The heap. Slots of a small one that is full are read when they are needed: each is found in
    /// the row cache, in less time than a scan takes for it. Empty slots would not be found there.
    fn heap(&mut self, view: &mut View, db: DbIndex) -> OpResult<&mut Heap> {
        let heap = match self.heap.take() {
            Some(heap) => heap,
            None if self.plan.k <= SMALL_K && self.stored_least(view, db)?.is_some() => Heap {
                id: self.id,
                k: self.plan.k as usize,
                slots: BTreeMap::new(),
                is_whole: false,
                changed: BTreeSet::new(),
            },
            None => self.read_heap(view, db)?,
        };
        Ok(self.heap.insert(heap))
    }

    fn read_heap(&self, view: &mut View, db: DbIndex) -> OpResult<Heap> {
        let k = self.plan.k as usize;
        let (mut slots, mut held) = (Vec::new(), 0);
        let from = keys::element_prefix(tag::TOPK_SLOT, self.id);
        let to = keys::element_end(tag::TOPK_SLOT, self.id);
        let mut rows = view.scan(db, &from, &to, Direction::Forward)?;
        while let Some((row_key, row)) = rows.next()? {
            let at = usize::try_from(keys::split_indexed(row_key)?).ok();
            let at = at.filter(|at| *at < k).ok_or(Corrupt("top-k slot"))?;
            slots.push((at, decode_slot(row)?));
            held += SLOT_BYTES + row.len();
            if held >= HELD_AT_ONCE {
                rows.will_hold(std::mem::take(&mut held))?;
            }
        }
        Ok(Heap {
            id: self.id,
            k,
            slots: slots.into_iter().collect(),
            is_whole: true,
            changed: BTreeSet::new(),
        })
    }

    /// The lowest count in the heap.
    fn least(&self, view: &View, db: DbIndex) -> OpResult<u32> {
        if let Some(heap) = &self.heap {
            match heap.slots.get(&0) {
                Some(first) => return Ok(first.count),
                None if heap.is_whole => return Ok(0),
                None => {}
            }
        }
        Ok(self.stored_least(view, db)?.unwrap_or(0))
    }

    /// The same, as it is stored; `None`: the heap is not full.
    fn stored_least(&self, view: &View, db: DbIndex) -> OpResult<Option<u32>> {
        let count = |row: &[u8]| decode_slot(row).map(|slot| slot.count);
        let stored = view.look_at(db, &slot_key(self.id, 0), count)?;
        Ok(stored.transpose()?)
    }

    /// The offsets of the buckets of an item, one in each row.
    fn offsets(&self, item: &[u8]) -> impl Iterator<Item = u64> + use<> {
        let (width, item) = (u64::from(self.plan.width), item.to_vec());
        (0..self.plan.depth).map(move |row| {
            let column = u64::from(murmur2(&item, row)) % width;
            (u64::from(row) * width + column) * BUCKET
        })
    }

    fn bucket(&self, view: &View, db: DbIndex, offset: u64) -> OpResult<(u32, u32)> {
        let mut bytes = [0; BUCKET as usize];
        self.array.read(view, db, offset, &mut bytes)?;
        let bits = u64::from_le_bytes(bytes);
        Ok((bits as u32, (bits >> 32) as u32))
    }

    /// Counts an item; returns the one that it drives out of the heap. [`TopK::save`] must follow.
    pub fn add(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        item: &[u8],
        by: u32,
    ) -> OpResult<Option<Vec<u8>>> {
        let print = fingerprint(item);
        let least = self.least(txn, db)?;
        let mut buckets: SmallVec<[_; 8]> = SmallVec::new();
        read_each(txn, self.offsets(item), |offset| {
            buckets.push((offset, self.bucket(txn, db, offset)?));
            Ok(ControlFlow::Continue(()))
        })?;
        let mut most = 0;
        for (offset, old) in buckets {
            let (owner, count) = old;
            let new = if count == 0 {
                (print, by)
            } else if owner == print {
                (print, count.wrapping_add(by))
            } else {
                self.decayed(old, print, by)
            };
            if new.0 == print {
                most = most.max(new.1);
            }
            if new != old {
                let bits = u64::from(new.0) | u64::from(new.1) << 32;
                self.array.write(txn, db, offset, &bits.to_le_bytes())?;
            }
        }
        if most < least {
            return Ok(None);
        }
        let heap = self.heap(txn, db)?;
        if let Some(at) = heap.find(txn, db, print, item)? {
            heap.slot(txn, db, at)?.count = most;
            heap.sift_down(txn, db, at)?;
            return Ok(None);
        }
        let first = heap.slot(txn, db, 0)?;
        let slot = Slot {
            fingerprint: print,
            count: most,
            item: Some(item.to_vec()),
        };
        let expelled = std::mem::replace(first, slot).item;
        heap.sift_down(txn, db, 0)?;
        Ok(expelled)
    }

    /// The bucket of another item after `by` attempts to lower its counter. The item takes it over
    /// when the counter is 0, with the attempts that are left.
    fn decayed(&mut self, bucket: (u32, u32), print: u32, by: u32) -> (u32, u32) {
        let (owner, mut count) = bucket;
        let mut left = by;
        while left > 0 {
            let chance = logarithm::power(self.plan.decay, count);
            let drawn = match chance < 1.0 {
                true => self.draw(print),
                false => 0.0,
            };
            // The attempts up to the first success are drawn at once.
            let attempts = if drawn < chance {
                1.0
            } else if left == 1 {
                break;
            } else {
                1.0 + (logarithm::ln_1p(-drawn) / logarithm::ln_1p(-chance)).floor()
            };
            // A payload may have any decay.
            if !(1.0..=f64::from(left)).contains(&attempts) {
                break;
            }
            left -= attempts as u32 - 1;
            count -= 1;
            if count == 0 {
                return (print, left);
            }
            left -= 1;
        }
        (owner, count)
    }

    /// A number from 0 up to 1 (SplitMix64).
    fn draw(&mut self, print: u32) -> f64 {
        self.draws = self.draws.wrapping_add(1);
        let seed = self.draws ^ u64::from(print) << 32;
        let mut bits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether an item is among those that are kept.
    pub fn contains(&mut self, view: &mut View, db: DbIndex, item: &[u8]) -> OpResult<bool> {
        let heap = self.heap(view, db)?;
        Ok(heap.find(view, db, fingerprint(item), item)?.is_some())
    }

    /// The estimated count of an item.
    pub fn count(&mut self, view: &mut View, db: DbIndex, item: &[u8]) -> OpResult<u32> {
        let print = fingerprint(item);
        let least = self.least(view, db)?;
        let is_kept = self.contains(view, db, item)?;
        let mut most = 0;
        read_each(view, self.offsets(item), |offset| {
            let (owner, count) = self.bucket(view, db, offset)?;
            if owner == print && (!is_kept || count >= least) {
                most = most.max(count);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(most)
    }

    /// Asks for the buckets that these items need, and for the heap, after the command has missed a
    /// row.
    pub fn ask_for<'i>(&self, view: &mut View, db: DbIndex, items: impl Iterator<Item = &'i [u8]>) {
        // Its errors are met again.
        let _ = self.read_heap(view, db);
        ask_for(view, items, |item| {
            read_each(view, self.offsets(item), |offset| {
                self.bucket(view, db, offset)?;
                Ok(ControlFlow::Continue(()))
            })
        });
    }

    /// The kept items with a count, the most frequent first.
    pub fn list(&mut self, view: &mut View, db: DbIndex) -> OpResult<Vec<Slot>> {
        let mut heap = match self.heap.take() {
            Some(heap) => heap,
            None => self.read_heap(view, db)?,
        };
        if !heap.is_whole {
            for at in 0..heap.k {
                heap.slot(view, db, at)?;
            }
        }
        view.work(heap.slots.len() as u64)?;
        let found = heap.slots.values().filter(|slot| slot.count > 0);
        let mut slots: Vec<Slot> = found.cloned().collect();
        self.heap = Some(heap);
        slots.sort_by_key(|slot| std::cmp::Reverse(slot.count));
        Ok(slots)
    }
}

#[cfg(test)]
mod tests;
