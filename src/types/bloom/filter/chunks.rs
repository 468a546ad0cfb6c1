//! The form of BF.SCANDUMP and BF.LOADCHUNK: a header, then pieces of the bits.
//!
//! ```text
//! header, little-endian: items (8) ‖ links (4) ‖ options (4) ‖ expansion (4)
//! for each link: bytes (8) ‖ bits (8) ‖ items (8) ‖ error rate (8) ‖ bits per item (8)
//!                ‖ hashes (4) ‖ capacity (8) ‖ n2 (1)
//! ```

use super::{Filter, LINKS_MAX, Link, OPTIONS};
use crate::encoding::tag;
use crate::storage::{DbIndex, Txn, View};
use crate::types::OpResult;
use crate::types::pages::{ARRAY_MAX, Array};

/// Most bytes of a piece.
const CHUNK_MAX: u64 = 16 << 20;

const HEAD_LEN: usize = 20;
const LINK_LEN: usize = 53;

/// Why a piece cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkError {
    /// It is not what SCANDUMP writes.
    Bad,
    /// The filter has no such place.
    NoLink,
    /// It is longer than the rest of its filter.
    TooBig,
}

impl Filter {
    /// The header.
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEAD_LEN + LINK_LEN * self.links.len());
        header.extend_from_slice(&self.items.to_le_bytes());
        header.extend_from_slice(&(self.links.len() as u32).to_le_bytes());
        header.extend_from_slice(&self.options.to_le_bytes());
        header.extend_from_slice(&self.expansion.to_le_bytes());
        for link in &self.links {
            header.extend_from_slice(&link.bytes.to_le_bytes());
            header.extend_from_slice(&link.bits().to_le_bytes());
            header.extend_from_slice(&link.items.to_le_bytes());
            header.extend_from_slice(&link.error_rate.to_le_bytes());
            header.extend_from_slice(&link.bits_per_item.to_le_bytes());
            header.extend_from_slice(&link.hashes.to_le_bytes());
            header.extend_from_slice(&link.capacity.to_le_bytes());
            header.push(link.n2);
        }
        header
    }

    /// A filter without bits, from a header; `None` if that is not sound.
    pub fn from_header(txn: &Txn, header: &[u8]) -> Option<Filter> {
        let (head, mut rest) = header.split_at_checked(HEAD_LEN)?;
        let mut head = head;
        let items = u64::from_le_bytes(next(&mut head)?);
        let count = u32::from_le_bytes(next(&mut head)?) as usize;
        let options = u32::from_le_bytes(next(&mut head)?);
        let expansion = u32::from_le_bytes(next(&mut head)?);
        let sound = (1..=LINKS_MAX).contains(&count)
            && rest.len() == count * LINK_LEN
            && options & !OPTIONS == 0;
        if !sound {
            return None;
        }
        let mut links = Vec::with_capacity(count);
        let (mut len, mut sum) = (0u64, 0u64);
        for _ in 0..count {
            let link = read_link(&mut rest)?;
            len = len
                .checked_add(link.bytes)
                .filter(|len| *len <= ARRAY_MAX)?;
            sum = sum.checked_add(link.items)?;
            links.push(link);
        }
        (sum == items).then(|| Filter {
            old: None,
            options,
            expansion,
            items,
            links,
            array: Array::new(txn, tag::BLOOM_PAGE, len),
        })
    }

    /// The piece of the bits behind `cursor`, which is at least 1, with the cursor after it; `None`
    /// at the end.
    pub fn chunk(
        &self,
        view: &mut View,
        db: DbIndex,
        cursor: i64,
    ) -> OpResult<Option<(i64, Vec<u8>)>> {
        let place = cursor.checked_sub(1).and_then(|at| u64::try_from(at).ok());
        let Some((at, left)) = place.and_then(|at| Some((at, self.left_at(at)?))) else {
            return Ok(None);
        };
        let len = left.min(CHUNK_MAX);
        let bytes = self.array.collect(view, db, at..at + len)?;
        Ok(Some((cursor.saturating_add(len as i64), bytes)))
    }

    /// How many bytes the filter at an offset has from there on.
    fn left_at(&self, at: u64) -> Option<u64> {
        let mut end = 0;
        self.links.iter().find_map(|link| {
            end += link.bytes;
            (at < end).then(|| end - at)
        })
    }

    /// Stores a piece, with the cursor behind it.
    pub fn load_chunk(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        cursor: i64,
        bytes: &[u8],
    ) -> OpResult<Result<(), ChunkError>> {
        let start = u64::try_from(cursor).ok().filter(|cursor| *cursor > 0);
        let start = start.and_then(|cursor| cursor.checked_sub(bytes.len() as u64));
        let Some(start) = start else {
            return Ok(Err(ChunkError::Bad));
        };
        let place = start
            .checked_sub(1)
            .and_then(|at| Some((at, self.left_at(at)?)));
        let Some((at, left)) = place else {
            return Ok(Err(ChunkError::NoLink));
        };
        if bytes.len() as u64 > left {
            return Ok(Err(ChunkError::TooBig));
        }
        self.array.write(txn, db, at, bytes)?;
        Ok(Ok(()))
    }
}

fn read_link(rest: &mut &[u8]) -> Option<Link> {
    let bytes = u64::from_le_bytes(next(rest)?);
    let bits = u64::from_le_bytes(next(rest)?);
    let link = Link {
        bytes,
        items: u64::from_le_bytes(next(rest)?),
        error_rate: f64::from_le_bytes(next(rest)?),
        bits_per_item: f64::from_le_bytes(next(rest)?),
        hashes: u32::from_le_bytes(next(rest)?),
        capacity: u64::from_le_bytes(next(rest)?),
        n2: u8::from_le_bytes(next(rest)?),
    };
    (link.is_sound() && bits == link.bits()).then_some(link)
}

/// The next bytes.
fn next<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}
