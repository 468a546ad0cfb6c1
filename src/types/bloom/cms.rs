//! Count-min sketches, as RedisBloom has them: `depth` rows of `width` counters of 32 bits,
//! little-endian, which are one array. The head of the meta row is
//!
//! ```text
//! width (8) ‖ depth (8) ‖ count of all items (8)
//! ```

pub mod build;

use crate::base::murmur::murmur2;
use crate::encoding::{Corrupt, Meta, ValueType, tag};
use crate::storage::{DbIndex, Txn, View};
use crate::types::bloom::items::{ask_for, read_each};
use crate::types::pages::{ARRAY_MAX, Array};
use crate::types::{self, OpResult};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// Bytes of a counter.
const COUNTER: u64 = 4;

/// Most rows of counters, which an update and a query touch all. For any probability that is
/// written with six digits 20 are enough.
const DEPTH_MAX: u64 = 4096;

/// Bytes of counters that a merge reads at once.
const SLICE_BYTES: u64 = 1 << 16;

/// A count-min sketch.
#[derive(Debug, Clone)]
pub struct Sketch {
    old: Option<Meta>,
    /// Counters of a row.
    pub width: u64,
    /// Rows.
    pub depth: u64,
    /// The sum of all increments.
    pub count: u64,
    array: Array,
}

/// Bytes of the counters; `None` if they would be too many.
fn counters_len(width: u64, depth: u64) -> Option<u64> {
    let counters = width.checked_mul(depth)?;
    let len = counters.checked_mul(COUNTER)?;
    (width > 0 && (1..=DEPTH_MAX).contains(&depth) && len <= ARRAY_MAX).then_some(len)
}

impl Sketch {
    /// The sketch of a key.
    pub fn load(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Sketch>> {
        let Some(found) = types::lookup(view, db, key, ValueType::CountMinSketch)? else {
            return Ok(None);
        };
        Ok(Some(Sketch::decode(found.meta, &found.body)?))
    }

    /// A sketch for a key that does not exist; `None` if it would be too large.
    pub fn new(txn: &Txn, width: u64, depth: u64) -> Option<Sketch> {
        let len = counters_len(width, depth)?;
        Some(Sketch {
            old: None,
            width,
            depth,
            count: 0,
            array: Array::new(txn, tag::SKETCH_PAGE, len),
        })
    }

    fn decode(meta: Meta, body: &[u8]) -> Result<Sketch, Corrupt> {
        let ((width, depth, count), array) = Array::decode(tag::SKETCH_PAGE, meta, body, |r| {
            Ok((r.u64()?, r.u64()?, r.u64()?))
        })?;
        if counters_len(width, depth) != Some(array.len()) {
            return Err(Corrupt("count-min sketch"));
        }
        Ok(Sketch {
            old: Some(meta),
            width,
            depth,
            count,
            array,
        })
    }

    /// Writes the meta row.
    pub fn save(&self, txn: &mut Txn, db: DbIndex, key: &[u8]) -> OpResult<()> {
        let head = [self.width, self.depth, self.count].map(u64::to_be_bytes);
        let (old, kind) = (self.old.as_ref(), ValueType::CountMinSketch);
        self.array.put(txn, db, key, old, kind, head.as_flattened())
    }

    /// The offsets of the counters of an item, one in each row.
    fn offsets(&self, item: &[u8]) -> impl Iterator<Item = u64> {
        (0..self.depth).map(move |row| {
            let hash = murmur2(item, row as u32);
            (u64::from(hash) % self.width + row * self.width) * COUNTER
        })
    }

    fn counter(&self, view: &View, db: DbIndex, offset: u64) -> OpResult<u32> {
        let mut bytes = [0; COUNTER as usize];
        self.array.read(view, db, offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The estimated count of an item.
    pub fn query(&self, view: &View, db: DbIndex, item: &[u8]) -> OpResult<u32> {
        let mut least = u32::MAX;
        read_each(view, self.offsets(item), |offset| {
            least = least.min(self.counter(view, db, offset)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(least)
    }

    /// Asks for the rows that these items need, after the command has missed one.
    pub fn ask_for<'i>(&self, view: &View, db: DbIndex, items: impl Iterator<Item = &'i [u8]>) {
        ask_for(view, items, |item| self.query(view, db, item));
    }

    /// Counts an item; returns its estimated count, which is `u32::MAX` from there on.
    /// [`Sketch::save`] must follow.
    pub fn increment(&mut self, txn: &mut Txn, db: DbIndex, item: &[u8], by: u64) -> OpResult<u32> {
        let mut counters: SmallVec<[(u64, u32); 8]> = SmallVec::new();
        read_each(txn, self.offsets(item), |offset| {
            counters.push((offset, self.counter(txn, db, offset)?));
            Ok(ControlFlow::Continue(()))
        })?;
        let mut least = u32::MAX;
        for (offset, old) in counters {
            // As in RedisBloom an increment of more than 32 bits counts with its low bits at first.
            let mut new = old.wrapping_add(by as u32);
            if u64::from(new) < by {
                new = u32::MAX;
            }
            if new != old {
                self.array.write(txn, db, offset, &new.to_le_bytes())?;
            }
            least = least.min(new);
        }
        self.count = self.count.wrapping_add(by);
        Ok(least)
    }

    /// Sets the counters to the weighted sums of those of `sources`, which have the same size;
    /// `false` if a sum does not fit: the caller then rolls back. [`Sketch::save`] must follow.
    pub fn merge(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        sources: &[(Sketch, i64)],
    ) -> OpResult<bool> {
        let len = self.array.len();
        let mut at = 0;
        while at < len {
            let end = (at + SLICE_BYTES).min(len);
            let mut sums = vec![0i64; ((end - at) / COUNTER) as usize];
            for (source, weight) in sources {
                let bytes = source.array.collect(&mut **txn, db, at..end)?;
                let counters = bytes.as_chunks::<{ COUNTER as usize }>().0;
                for (sum, counter) in sums.iter_mut().zip(counters) {
                    let added = i64::from(u32::from_le_bytes(*counter))
                        .checked_mul(*weight)
                        .and_then(|added| sum.checked_add(added));
                    let Some(new) = added else {
                        return Ok(false);
                    };
                    *sum = new;
                }
            }
            let mut bytes = Vec::with_capacity((end - at) as usize);
            for sum in sums {
                let Ok(sum) = u32::try_from(sum) else {
                    return Ok(false);
                };
                bytes.extend_from_slice(&sum.to_le_bytes());
            }
            self.array.write(txn, db, at, &bytes)?;
            at = end;
        }
        let mut count = 0i64;
        for (source, weight) in sources {
            let added = (source.count as i64)
                .checked_mul(*weight)
                .and_then(|added| count.checked_add(added));
            let Some(new) = added else {
                return Ok(false);
            };
            count = new;
        }
        self.count = count as u64;
        Ok(count >= 0)
    }
}

#[cfg(test)]
mod tests;
