//! Scaling Bloom filters, as RedisBloom has them: a chain of filters, of which the last one takes
//! new items until it is full; then a larger one with half its error rate joins.
//!
//! The bits of all filters are one array, in the order of the chain. The head of the meta row is
//!
//! ```text
//! options (4) ‖ expansion (4) ‖ items (8) ‖ links (4)
//! for each link: capacity (8) ‖ error rate (8) ‖ bits per item (8) ‖ hashes (4) ‖ n2 (1)
//!                ‖ bytes (8) ‖ items (8)
//! ```
//!
//! n2 is the binary logarithm of the number of bits that are in use; 0: all are.

pub mod build;
pub mod chunks;

use crate::base::logarithm;
use crate::base::murmur::{murmur2, murmur64a};
use crate::encoding::reader::Reader;
use crate::encoding::{Corrupt, Meta, ValueType, tag};
use crate::storage::{DbIndex, Txn, View};
use crate::types::bloom::items::{ask_for, read_each};
use crate::types::pages::{ARRAY_MAX, Array};
use crate::types::{self, OpResult};
use std::ops::ControlFlow;

/// Error rates and capacities in the options of a filter; RedisBloom stores them.
const NO_ROUND: u32 = 1;
const ENTRIES_ARE_BITS: u32 = 2;
const FORCE_64: u32 = 4;
const NO_SCALING: u32 = 8;
const OPTIONS: u32 = NO_ROUND | ENTRIES_ARE_BITS | FORCE_64 | NO_SCALING;

/// How much lower the error rate of each filter is than that of the one before.
const TIGHTENING: f64 = 0.5;

/// ln(2) and its square, with the digits that RedisBloom uses.
#[allow(clippy::approx_constant)] // its last digit decides how many hashes there are
const LN2: f64 = 0.693_147_180_559_945;
const LN2_SQUARED: f64 = 0.480_453_013_918_201;

/// Most filters of a chain. With an expansion of 1 the error rate underflows after 1,075 of them.
const LINKS_MAX: usize = 2048;

/// Most hashes of an item. An error rate of 5e-324 has 1,075.
const HASHES_MAX: u32 = 2048;

/// What a look into one filter of a chain costs at least, in steps of [`View::work`].
const STEPS_OF_A_LINK: u64 = 1;

/// What a new filter is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Items that it is made for.
    pub capacity: u64,
    /// Probability of a false answer up to there, between 0 and 1.
    pub error_rate: f64,
    /// How much larger each filter is than the one before.
    pub expansion: u32,
    /// Whether it grows.
    pub scales: bool,
}

/// One filter of a chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Items that it is made for.
    pub capacity: u64,
    /// Its error rate.
    pub error_rate: f64,
    /// Bits for each item.
    bits_per_item: f64,
    /// How many bits an item sets.
    pub hashes: u32,
    /// The binary logarithm of the bits in use, or 0.
    n2: u8,
    /// Bytes of its bits.
    pub bytes: u64,
    /// Items that were added.
    pub items: u64,
}

/// The bits of an item.
#[derive(Debug, Clone, Copy)]
struct Hashes {
    first: u64,
    step: u64,
}

impl Link {
    /// A filter of this capacity; `None` if there can be none.
    fn new(capacity: u64, error_rate: f64) -> Option<Link> {
        if capacity < 1 || error_rate <= 0.0 || error_rate >= 1.0 {
            return None;
        }
        let bits_per_item = (logarithm::ln(error_rate) / LN2_SQUARED).abs();
        let bits = ((capacity as f64 * bits_per_item) as u64).max(1);
        let link = Link {
            capacity,
            error_rate,
            bits_per_item,
            hashes: (LN2 * bits_per_item).ceil() as u32,
            n2: 0,
            bytes: bits.div_ceil(64).checked_mul(8)?,
            items: 0,
        };
        (link.bytes <= ARRAY_MAX).then_some(link)
    }

    /// Whether a filter from outside is one that RedisBloom could have made.
    fn is_sound(&self) -> bool {
        let hashes = (LN2 * self.bits_per_item).ceil();
        self.error_rate > 0.0
            && self.error_rate < 1.0
            && (1..=ARRAY_MAX).contains(&self.bytes)
            && self.n2 <= 63
            && (self.n2 == 0 || self.bytes * 8 >= 1 << self.n2)
            && (1..=HASHES_MAX).contains(&self.hashes)
            && hashes == f64::from(self.hashes)
    }

    /// Bits.
    pub fn bits(&self) -> u64 {
        self.bytes * 8
    }

    /// Byte and mask of each bit of an item.
    fn places(&self, hashes: Hashes) -> impl Iterator<Item = (u64, u8)> + use<> {
        let modulus = match self.n2 {
            0 => self.bits(),
            n2 => 1 << n2,
        };
        (0..u64::from(self.hashes)).map(move |n| {
            let bit = hashes.first.wrapping_add(n.wrapping_mul(hashes.step)) % modulus;
            (bit >> 3, 1 << (bit & 7))
        })
    }
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is new.
    New,
    /// It was there, or seems so.
    Present,
    /// The filter does not scale and is full.
    Full,
    /// The filter cannot grow any more.
    Stuck,
}

/// A scaling Bloom filter.
#[derive(Debug, Clone)]
pub struct Filter {
    /// The meta row that it was read from.
    old: Option<Meta>,
    options: u32,
    expansion: u32,
    /// Items that were added.
    pub items: u64,
    links: Vec<Link>,
    array: Array,
}

impl Filter {
    /// The filter of a key.
    pub fn load(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<Filter>> {
        let Some(found) = types::lookup(view, db, key, ValueType::Bloom)? else {
            return Ok(None);
        };
        Ok(Some(Filter::decode(found.meta, &found.body)?))
    }

    /// A filter for a key that does not exist; `None` if it would be too large.
    pub fn new(txn: &Txn, plan: Plan) -> Option<Filter> {
        let (tightening, scaling) = match plan.scales {
            true => (TIGHTENING, 0),
            false => (1.0, NO_SCALING),
        };
        let link = Link::new(plan.capacity, plan.error_rate * tightening)?;
        Some(Filter {
            old: None,
            options: FORCE_64 | NO_ROUND | scaling,
            expansion: plan.expansion,
            items: 0,
            array: Array::new(txn, tag::BLOOM_PAGE, link.bytes),
            links: vec![link],
        })
    }

    fn decode(meta: Meta, body: &[u8]) -> Result<Filter, Corrupt> {
        let (filter, array) = Array::decode(tag::BLOOM_PAGE, meta, body, |r| {
            let (options, expansion, items) = (r.u32()?, r.u32()?, r.u64()?);
            let count = r.u32()? as usize;
            if count == 0 || count > LINKS_MAX {
                return Err(Corrupt("Bloom filter"));
            }
            let mut links = Vec::with_capacity(count);
            for _ in 0..count {
                links.push(read_link(r)?);
            }
            Ok((options, expansion, items, links))
        })?;
        let (options, expansion, items, links) = filter;
        Ok(Filter {
            old: Some(meta),
            options,
            expansion,
            items,
            links,
            array,
        })
    }

    /// Writes the meta row.
    pub fn save(&self, txn: &mut Txn, db: DbIndex, key: &[u8]) -> OpResult<()> {
        let mut head = Vec::with_capacity(20 + 45 * self.links.len());
        head.extend_from_slice(&self.options.to_be_bytes());
        head.extend_from_slice(&self.expansion.to_be_bytes());
        head.extend_from_slice(&self.items.to_be_bytes());
        head.extend_from_slice(&(self.links.len() as u32).to_be_bytes());
        for link in &self.links {
            head.extend_from_slice(&link.capacity.to_be_bytes());
            head.extend_from_slice(&link.error_rate.to_be_bytes());
            head.extend_from_slice(&link.bits_per_item.to_be_bytes());
            head.extend_from_slice(&link.hashes.to_be_bytes());
            head.push(link.n2);
            head.extend_from_slice(&link.bytes.to_be_bytes());
            head.extend_from_slice(&link.items.to_be_bytes());
        }
        self.array
            .put(txn, db, key, self.old.as_ref(), ValueType::Bloom, &head)
    }

    /// The filters of the chain, the oldest first.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Items for which the chain has room.
    pub fn capacity(&self) -> u64 {
        let capacities = self.links.iter().map(|link| link.capacity);
        capacities.fold(0, u64::wrapping_add)
    }

    /// How much larger each filter is than the one before; `None`: there is only one.
    pub fn expansion(&self) -> Option<u32> {
        (self.options & NO_SCALING == 0).then_some(self.expansion)
    }

    /// Bits of the hashes: 32 or 64.
    pub fn hash_width(&self) -> u32 {
        match self.options & FORCE_64 {
            0 => 32,
            _ => 64,
        }
    }

    fn hashes(&self, item: &[u8]) -> Hashes {
        if self.options & FORCE_64 != 0 {
            let first = murmur64a(item, 0xC6A4_A793_5BD1_E995);
            let step = murmur64a(item, first);
            return Hashes { first, step };
        }
        let first = murmur2(item, 0x9747_B28C);
        let step = murmur2(item, first);
        Hashes {
            first: first.into(),
            step: step.into(),
        }
    }

    /// The filters with the offsets of their bits, the youngest first.
    fn youngest_first(&self) -> impl Iterator<Item = (&Link, u64)> {
        let mut end: u64 = self.links.iter().map(|link| link.bytes).sum();
        self.links.iter().rev().map(move |link| {
            end -= link.bytes;
            (link, end)
        })
    }

    /// Whether an item seems to be in the filter.
    pub fn contains(&self, view: &View, db: DbIndex, item: &[u8]) -> OpResult<bool> {
        let hashes = self.hashes(item);
        let mut links = self.youngest_first().peekable();
        while let Some((link, start)) = links.next() {
            let piece = self.array.piece_at(start);
            if start + link.bytes > piece.end {
                view.work(STEPS_OF_A_LINK)?;
                if self.has_all(view, db, link.places(hashes), start)? {
                    return Ok(true);
                }
                continue;
            }
            // A chain may have thousands of short filters: those that stand in one row are looked at
            // together.
            let mut seen = 1;
            let mut others = || {
                let next = links.next_if(|(_, start)| *start >= piece.start);
                seen += u64::from(next.is_some());
                next
            };
            let found = self.array.look_at_piece(view, db, piece.start, |bytes| {
                let has_all = |link: &Link, start: u64| {
                    link.places(hashes).all(|(byte, mask)| {
                        let byte = bytes.get((start - piece.start + byte) as usize);
                        byte.is_some_and(|byte| byte & mask != 0)
                    })
                };
                has_all(link, start)
                    || std::iter::from_fn(&mut others).any(|(link, start)| has_all(link, start))
            })?;
            view.work(seen * STEPS_OF_A_LINK)?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether all these bits are set.
    fn has_all(
        &self,
        view: &View,
        db: DbIndex,
        places: impl Iterator<Item = (u64, u8)>,
        start: u64,
    ) -> OpResult<bool> {
        let lacks_one = read_each(view, places, |(byte, mask)| {
            let byte = self.array.byte(view, db, start + byte)?;
            Ok(match byte & mask {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })
        })?;
        Ok(!lacks_one)
    }

    /// Asks for the rows that these items need, after the command has missed one.
    pub fn ask_for(&self, view: &View, db: DbIndex, items: &[&[u8]]) {
        let items = items.iter().copied();
        ask_for(view, items, |item| self.contains(view, db, item));
    }

    /// Adds an item; [`Filter::save`] must follow.
    pub fn add(&mut self, txn: &mut Txn, db: DbIndex, item: &[u8]) -> OpResult<Added> {
        if self.contains(txn, db, item)? {
            return Ok(Added::Present);
        }
        let mut last = self.last()?;
        if last.items >= last.capacity {
            if self.options & NO_SCALING != 0 {
                return Ok(Added::Full);
            }
            if !self.extend(txn, db, last)? {
                return Ok(Added::Stuck);
            }
            last = self.last()?;
        }
        let hashes = self.hashes(item);
        let start = self.array.len() - last.bytes;
        let places = last.places(hashes);
        let places = places.map(|(byte, mask)| (start + byte, mask));
        if !self.array.set_bits(txn, db, places)? {
            return Ok(Added::Present);
        }
        self.items = self.items.wrapping_add(1);
        if let Some(last) = self.links.last_mut() {
            last.items = last.items.wrapping_add(1);
        }
        Ok(Added::New)
    }

    /// Adds a filter to the chain; returns whether it can be.
    fn extend(&mut self, txn: &mut Txn, db: DbIndex, last: Link) -> OpResult<bool> {
        let capacity = last.capacity.checked_mul(self.expansion.into());
        let link = capacity.and_then(|capacity| self.next_link(capacity, last.error_rate));
        let Some(link) = link else {
            return Ok(false);
        };
        let len = self.array.len() + link.bytes;
        if len > ARRAY_MAX || self.links.len() >= LINKS_MAX {
            return Ok(false);
        }
        self.array.grow(txn, db, len)?;
        self.links.push(link);
        Ok(true)
    }

    /// The filter after one with this error rate. Filters of old versions of RedisBloom round the
    /// number of bits up to a power of two.
    fn next_link(&self, capacity: u64, error_rate: f64) -> Option<Link> {
        let mut link = Link::new(capacity, error_rate * TIGHTENING)?;
        if self.options & NO_ROUND != 0 {
            return Some(link);
        }
        let bits = match self.options & ENTRIES_ARE_BITS {
            0 => {
                let wanted = capacity as f64 * link.bits_per_item;
                link.n2 = exponent(wanted) + 1;
                let bits = 1u64.checked_shl(link.n2.into())?;
                let spare = (bits as f64 - wanted) / link.bits_per_item;
                link.capacity = capacity.checked_add(spare as u64)?;
                bits
            }
            _ => {
                link.n2 = u8::try_from(capacity).ok()?;
                let bits = 1u64.checked_shl(link.n2.into())?;
                link.capacity = (bits as f64 / link.bits_per_item) as u64;
                bits
            }
        };
        link.bytes = bits.div_ceil(64) * 8;
        (link.bytes <= ARRAY_MAX).then_some(link)
    }

    fn last(&self) -> Result<Link, Corrupt> {
        self.links.last().copied().ok_or(Corrupt("Bloom filter"))
    }
}

/// The binary logarithm of a number from 1 on, rounded down.
fn exponent(number: f64) -> u8 {
    (number.to_bits() >> 52).saturating_sub(1023) as u8
}

fn read_link(r: &mut Reader<'_>) -> Result<Link, Corrupt> {
    Ok(Link {
        capacity: r.u64()?,
        error_rate: f64::from_bits(r.u64()?),
        bits_per_item: f64::from_bits(r.u64()?),
        hashes: r.u32()?,
        n2: r.u8()?,
        bytes: r.u64()?,
        items: r.u64()?,
    })
}

#[cfg(test)]
mod tests;
