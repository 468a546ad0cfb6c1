//! Long strings with a base: a reference to bytes in the value log, of a string as it was set.
//!
//! What is changed in place later stands in fragments, like all of a long string without a base. A
//! fragment replaces what the base has at its place, and zeros follow a short one. The base itself
//! never changes: a string that is set again gets a new one.

use super::{FRAGMENT_LEN, fragment_key};
use crate::encoding::meta::{Base, LongString};
use crate::encoding::{Corrupt, keys};
use crate::storage::DbIndex;
use crate::types::OpResult;
use crate::types::source::Source;
use std::ops::{ControlFlow, Range};

/// Bytes that are read at a time.
const STEP: u64 = 64 * FRAGMENT_LEN;

/// Called with offset and bytes of each part, until it breaks.
pub(super) type EachPart<'p> = &'p mut dyn FnMut(u64, &[u8]) -> OpResult<ControlFlow<()>>;

/// Calls `each` with the bytes of a range that lies within the base, in order, without gaps. A
/// part begins at the start of the range or of a fragment. Returns how far that is: bytes behind
/// the end of the base stand in fragments alone.
pub(super) fn each_part(
    source: &mut dyn Source,
    db: DbIndex,
    long: LongString,
    range: Range<u64>,
    each: EachPart<'_>,
) -> OpResult<ControlFlow<(), u64>> {
    let mut buffer = Vec::new();
    let base_len = source.base(db, long.id, 0..0, &mut buffer)?;
    let is_whole = match long.base {
        Base::None => false,
        Base::Whole => base_len == long.len,
        Base::Patched => base_len <= long.len,
    };
    if !is_whole {
        return Err(Corrupt("length of a base").into());
    }
    // The last fragment of the base may be longer than the base is.
    let base_end = base_len.next_multiple_of(FRAGMENT_LEN).min(long.len);
    let end = range.end.min(base_end);
    let mut at = range.start;
    while at < end {
        let to = end.min((at / STEP + 1) * STEP);
        buffer.clear();
        source.base(db, long.id, at..to, &mut buffer)?;
        buffer.resize((to - at) as usize, 0);
        if long.base == Base::Patched {
            patch(source, db, long, at, &mut buffer)?;
        }
        if each(at, &buffer)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        at = to;
    }
    Ok(ControlFlow::Continue(end.max(range.start)))
}

/// Overwrites `bytes`, which begin at `at`, with the fragments that stand there.
fn patch(
    source: &mut dyn Source,
    db: DbIndex,
    long: LongString,
    at: u64,
    bytes: &mut [u8],
) -> OpResult<()> {
    let end = at + bytes.len() as u64;
    let from = fragment_key(long.id, at / FRAGMENT_LEN);
    let to = fragment_key(long.id, end.div_ceil(FRAGMENT_LEN));
    let done = source.each_row(db, &from, &to, &mut |key, stored| {
        let index = u64::try_from(keys::split_indexed(key)?);
        let start = index.map_err(|_| Corrupt("fragment index"))? * FRAGMENT_LEN;
        if stored.len() as u64 > FRAGMENT_LEN {
            return Err(Corrupt("fragment").into());
        }
        let (first, last) = (start.max(at), (start + FRAGMENT_LEN).min(end));
        let place = bytes.get_mut((first - at) as usize..(last - at) as usize);
        let stored = stored.get((first - start) as usize..).unwrap_or_default();
        if let Some(place) = place {
            let len = stored.len().min(place.len());
            let (set, zeros) = place.split_at_mut(len);
            set.copy_from_slice(&stored[..len]);
            zeros.fill(0);
        }
        Ok(ControlFlow::Continue(()))
    });
    done.map(drop)
}
