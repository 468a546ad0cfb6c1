//! The definition of the most frequent items, and their form in files of Redis:
//!
//! ```text
//! k, width, depth, decay, the buckets as a string, the heap as a string
//! for each slot of the heap: the item as a string, with a NUL behind it; a NUL alone: none
//!
//! slot of the heap, little-endian: fingerprint (4) ‖ length of the item (4) ‖ unused (8) ‖ count (4)
//!                                  ‖ unused (4)
//! ```

use super::{Heap, K_MAX, Plan, SLOT_BYTES, Slot, TopK, decode_slot};
use crate::encoding::{CollectionId, Corrupt, keys, tag};
use crate::rdb::module::{ModuleId, ModulePart};
use crate::storage::{DbIndex, Txn};
use crate::types::bloom::module::{
    Collect, EachPart, ModuleType, Numbers, Part, Parts, corrupt, each_of,
};
use crate::types::definition::Stored;
use crate::types::pages::Array;
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

const VERSION: u16 = 0;

/// Bytes of a slot in the heap's string.
const SLOT_LEN: usize = 24;

/// The definition of the most frequent items.
pub(in crate::types) static TOP_K: ModuleType<TopKParts> = ModuleType {
    id: ModuleId::new(b"TopK-TYPE", VERSION),
    parts: TopKParts,
};

/// See [`Parts`].
pub(in crate::types) struct TopKParts;

impl Parts for TopKParts {
    fn each(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: EachPart<'_>,
    ) -> OpResult<ControlFlow<()>> {
        use ModulePart::{Double, Text};
        let value = TopK::decode(stored.meta, stored.body)?;
        let slots = slots(source, db, &value)?;
        let mut heap = Vec::with_capacity(slots.len() * SLOT_LEN);
        for slot in &slots {
            let len = slot.item.as_ref().map_or(0, Vec::len);
            heap.extend_from_slice(&slot.fingerprint.to_le_bytes());
            heap.extend_from_slice(&(len as u32).to_le_bytes());
            heap.extend_from_slice(&[0; 8]);
            heap.extend_from_slice(&slot.count.to_le_bytes());
            heap.extend_from_slice(&[0; 4]);
        }
        let head = [
            Part::number(value.plan.k.into()),
            Part::number(value.plan.width.into()),
            Part::number(value.plan.depth.into()),
            Part::Plain(Double(value.plan.decay)),
            Part::Bytes(&value.array, 0..value.array.len()),
            Part::Plain(Text(&heap)),
        ];
        if each_of(source, head, each)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        for slot in slots {
            let mut item = slot.item.unwrap_or_default();
            item.push(0);
            if each(source, Part::Plain(Text(&item)))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn array(&self, stored: Stored<'_>) -> OpResult<Array> {
        Ok(TopK::decode(stored.meta, stored.body)?.array)
    }

    fn build<'k>(&self, db: DbIndex, key: &'k [u8]) -> Box<dyn Collect + 'k> {
        Box::new(Building {
            db,
            key,
            numbers: Numbers::default(),
            value: None,
            heap: None,
            items: 0,
        })
    }
}

/// All slots of the heap, also empty ones.
fn slots(source: &mut dyn Source, db: DbIndex, value: &TopK) -> OpResult<Vec<Slot>> {
    let k = value.plan.k as usize;
    source.will_make((k * (SLOT_BYTES + SLOT_LEN)) as u64)?;
    let mut slots = vec![Slot::default(); k];
    let from = keys::element_prefix(tag::TOPK_SLOT, value.id);
    let to = keys::element_end(tag::TOPK_SLOT, value.id);
    source
        .each_row(db, &from, &to, &mut |row_key, row| {
            let at = usize::try_from(keys::split_indexed(row_key)?).ok();
            let slot = at.and_then(|at| slots.get_mut(at));
            *slot.ok_or(Corrupt("top-k slot"))? = decode_slot(row)?;
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    Ok(slots)
}

/// A value under construction.
struct Building<'k> {
    db: DbIndex,
    key: &'k [u8],
    numbers: Numbers,
    value: Option<TopK>,
    /// The heap, and its string, which has fingerprints and counts.
    heap: Option<(Heap, Vec<u8>)>,
    /// Items that have arrived.
    items: usize,
}

const BAD: &str = "a top-k value";

impl Building<'_> {
    /// The strings are the buckets, the heap, then the items.
    fn text(&mut self, txn: &mut Txn, bytes: &[u8]) -> Result<(), RestoreError> {
        let Some(value) = &self.value else {
            return self.begin_value(txn, bytes);
        };
        let Some((heap, string)) = &mut self.heap else {
            let k = value.plan.k as usize;
            if bytes.len() != k * SLOT_LEN {
                return Err(corrupt(BAD));
            }
            txn.will_hold((k * (SLOT_BYTES + SLOT_LEN)) as u64)?;
            let heap = Heap {
                id: value.id,
                k,
                slots: BTreeMap::new(),
                is_whole: true,
                changed: BTreeSet::new(),
            };
            self.heap = Some((heap, bytes.to_vec()));
            return Ok(());
        };
        let at = self.items;
        let (slots, _) = string.as_chunks::<SLOT_LEN>();
        let slot = slots.get(at).ok_or_else(|| corrupt(BAD))?;
        self.items += 1;
        let number = |at: usize| {
            let bytes = slot.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        match bytes.split_last() {
            // An empty slot; one of the empty item is not told from it.
            Some((0, [])) => {}
            Some((0, item)) => {
                let slot = Slot {
                    fingerprint: number(0),
                    count: number(16),
                    item: Some(item.to_vec()),
                };
                heap.slots.insert(at, slot);
                heap.changed.insert(at);
            }
            _ => return Err(corrupt(BAD)),
        }
        Ok(())
    }

    fn begin_value(&mut self, txn: &mut Txn, buckets: &[u8]) -> Result<(), RestoreError> {
        let numbers = &mut self.numbers;
        let mut short = |most: u32| -> Result<u32, RestoreError> {
            let number = u32::try_from(numbers.integer()?).ok();
            number
                .filter(|number| *number <= most)
                .ok_or_else(|| corrupt(BAD))
        };
        let (k, width, depth) = (short(K_MAX)?, short(u32::MAX)?, short(u32::MAX)?);
        let plan = Plan {
            k,
            width,
            depth,
            decay: numbers.double()?,
        };
        if plan.buckets_len() != Some(buckets.len() as u64) || numbers.len() != 0 {
            return Err(corrupt(BAD));
        }
        let mut value = TopK::new(txn, plan).ok_or_else(|| corrupt(BAD))?;
        value.array.write(txn, self.db, 0, buckets)?;
        self.value = Some(value);
        Ok(())
    }
}

impl Collect for Building<'_> {
    fn part(&mut self, txn: &mut Txn, part: ModulePart<'_>) -> Result<(), RestoreError> {
        match self.numbers.push(part)? {
            Some(bytes) => self.text(txn, bytes),
            None => Ok(()),
        }
    }

    fn collection(&self) -> Option<CollectionId> {
        self.value.as_ref()?.array.collection()
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        let mut value = self.value.ok_or_else(|| corrupt(BAD))?;
        let is_whole = self.items == value.plan.k as usize && self.numbers.len() == 0;
        if self.heap.is_none() || !is_whole {
            return Err(corrupt(BAD));
        }
        value.heap = self.heap.map(|(heap, _)| heap);
        Ok(value.save(txn, self.db, self.key)?)
    }
}
