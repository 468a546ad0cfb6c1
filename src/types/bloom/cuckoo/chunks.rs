//! The form of CF.SCANDUMP and CF.LOADCHUNK: a header, then pieces of the slots.
//!
//! ```text
//! header, little-endian: items (8) ‖ buckets (8) ‖ deletions (8) ‖ tables (8)
//!                        ‖ slots of a bucket (2) ‖ iterations (2) ‖ expansion (2)
//! ```

use super::{BUCKETS_MAX, Cuckoo, TABLES_MAX};
use crate::encoding::tag;
use crate::storage::{DbIndex, Txn, View};
use crate::types::OpResult;
use crate::types::pages::{ARRAY_MAX, Array};

/// Most bytes of a piece.
const CHUNK_MAX: u64 = 16 << 20;

/// Bytes of the header.
pub const HEADER_LEN: usize = 38;

/// Most slots of a bucket, and the highest expansion.
const BUCKET_SIZE_MAX: u16 = 255;
const EXPANSION_MAX: u16 = 1 << 15;

impl Cuckoo {
    /// Whether a filter from outside is one that RedisBloom could have made, tables apart.
    pub(super) fn is_sound(&self) -> bool {
        (1..=BUCKET_SIZE_MAX).contains(&self.bucket_size)
            && self.iterations > 0
            && self.expansion <= EXPANSION_MAX
            && (1..BUCKETS_MAX).contains(&self.buckets)
    }

    /// The header.
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_LEN);
        let tables = self.tables.len() as u64;
        for number in [self.items, self.buckets, self.deletes, tables] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.bucket_size, self.iterations, self.expansion] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header
    }

    /// A filter without items, from a header; `None` if that is not sound.
    pub fn from_header(txn: &Txn, header: &[u8]) -> Option<Cuckoo> {
        let header: &[u8; HEADER_LEN] = header.try_into().ok()?;
        let (long, short) = header.split_at_checked(32)?;
        let mut long = long
            .as_chunks::<8>()
            .0
            .iter()
            .map(|n| u64::from_le_bytes(*n));
        let mut short = short
            .as_chunks::<2>()
            .0
            .iter()
            .map(|n| u16::from_le_bytes(*n));
        let (items, buckets, deletes) = (long.next()?, long.next()?, long.next()?);
        let tables = usize::try_from(long.next()?).ok()?;
        let mut filter = Cuckoo {
            old: None,
            buckets,
            items,
            deletes,
            bucket_size: short.next()?,
            iterations: short.next()?,
            expansion: short.next()?,
            tables: Vec::new(),
            array: Array::new(txn, tag::CUCKOO_PAGE, 0),
        };
        let sound = filter.is_sound()
            && buckets.is_power_of_two()
            && (1..=TABLES_MAX).contains(&tables)
            && (filter.expansion != 0 || tables == 1);
        if !sound {
            return None;
        }
        let mut len = 0u64;
        for number in 0..tables {
            let growth = u64::from(filter.expansion).checked_pow(number as u32)?;
            let buckets = buckets.checked_mul(growth).filter(|n| *n < BUCKETS_MAX)?;
            let slots = buckets.checked_mul(filter.bucket_size.into())?;
            len = len.checked_add(slots).filter(|len| *len <= ARRAY_MAX)?;
            filter.tables.push(buckets);
        }
        filter.array = Array::new(txn, tag::CUCKOO_PAGE, len);
        Some(filter)
    }

    /// The table at an offset of the slots: where it begins and ends.
    fn table_at(&self, at: u64) -> Option<(u64, u64)> {
        let size = u64::from(self.bucket_size);
        let mut tables = self.tables();
        let table = tables.find(|table| at < table.start + table.buckets * size)?;
        Some((table.start, table.start + table.buckets * size))
    }

    /// The piece of the slots behind `cursor`, which is at least 1, with the cursor after it; `None`
    /// at the end. As in RedisBloom a table that fits one piece is returned as a whole.
    pub fn chunk(
        &self,
        view: &mut View,
        db: DbIndex,
        cursor: i64,
    ) -> OpResult<Option<(i64, Vec<u8>)>> {
        let place = cursor.checked_sub(1).and_then(|at| u64::try_from(at).ok());
        let Some((at, (start, end))) = place.and_then(|at| Some((at, self.table_at(at)?))) else {
            return Ok(None);
        };
        let range = match end - start <= CHUNK_MAX {
            true => start..end,
            false => at..(at + CHUNK_MAX).min(end),
        };
        let next = cursor.saturating_add((range.end - range.start) as i64);
        Ok(Some((next, self.array.collect(view, db, range)?)))
    }

    /// Stores a piece, with the cursor behind it; returns whether there is such a place.
    pub fn load_chunk(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        cursor: i64,
        bytes: &[u8],
    ) -> OpResult<bool> {
        let len = bytes.len() as u64;
        let end = cursor.checked_sub(1).and_then(|at| u64::try_from(at).ok());
        let at = end.and_then(|end| end.checked_sub(len)).filter(|_| len > 0);
        let Some((at, (_, end))) = at.and_then(|at| Some((at, self.table_at(at)?))) else {
            return Ok(false);
        };
        if len > end - at {
            return Ok(false);
        }
        self.array.write(txn, db, at, bytes)?;
        Ok(true)
    }
}
