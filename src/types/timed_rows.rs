//! Walks over the rows of a hash or set together with the expiry of each element. The times of a
//! hash's fields stand in rows of their own, in the same order as the fields.

use super::OpResult;
use super::source::Source;
use crate::base::time::UnixMs;
use crate::encoding::keys::{self, RowKey};
use crate::encoding::timed::decode_time;
use crate::encoding::{CollectionId, tag};
use crate::storage::DbIndex;
use std::ops::ControlFlow;

/// Most times that are read at a time, and about how many bytes of them.
const CHUNK_TIMES: usize = 1024;
const CHUNK_BYTES: usize = 256 << 10;

/// The rows of a hash or set.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimedRows {
    pub db: DbIndex,
    /// The tag of the elements' rows.
    pub tag: u8,
    pub id: CollectionId,
}

/// Called with key and value of an element's row and the element's expiry (0: none), until it
/// breaks.
pub(super) type EachTimed<'e> =
    &'e mut dyn FnMut(&[u8], &[u8], UnixMs) -> OpResult<ControlFlow<()>>;

/// Some times in order, and the key of the first element that they say nothing of.
struct Chunk {
    times: Vec<(RowKey, UnixMs)>,
    end: Option<RowKey>,
}

impl TimedRows {
    /// Walks over the rows in `[from, to)`; returns whether `each` broke.
    pub(super) fn walk(
        &self,
        source: &mut dyn Source,
        from: &[u8],
        to: &[u8],
        each: EachTimed<'_>,
    ) -> OpResult<ControlFlow<()>> {
        if self.tag != tag::HASH_FIELD {
            return source.each_row(self.db, from, to, &mut |row_key, row| {
                each(row_key, row, decode_time(row)?)
            });
        }
        let mut from = RowKey::from_slice(from);
        loop {
            let Chunk { times, end } = self.times_from(source, &from, to)?;
            let mut times = times.iter().peekable();
            let part = end.as_deref().unwrap_or(to);
            let flow = source.each_row(self.db, &from, part, &mut |row_key, row| {
                let place = keys::place_of(row_key);
                while times.next_if(|(at, _)| at.as_slice() < place).is_some() {}
                let time = times.next_if(|(at, _)| at.as_slice() == place);
                each(row_key, row, time.map_or(UnixMs::NONE, |(_, time)| *time))
            })?;
            match end {
                Some(end) if flow.is_continue() => from = end,
                _ => return Ok(flow),
            }
        }
    }

    fn times_from(&self, source: &mut dyn Source, from: &[u8], to: &[u8]) -> OpResult<Chunk> {
        let mut chunk = Chunk {
            times: Vec::new(),
            end: None,
        };
        let mut bytes = 0;
        let first = keys::placed(tag::FIELD_TIME, self.id, keys::place_of(from));
        let last = match to.first() {
            Some(&tag)
                if tag == self.tag && to.starts_with(&keys::element_prefix(tag, self.id)) =>
            {
                keys::placed(tag::FIELD_TIME, self.id, keys::place_of(to))
            }
            _ => keys::element_end(tag::FIELD_TIME, self.id),
        };
        source
            .each_row(self.db, &first, &last, &mut |row_key, row| {
                let place = keys::place_of(row_key);
                if chunk.times.len() >= CHUNK_TIMES || bytes >= CHUNK_BYTES {
                    chunk.end = Some(keys::placed(self.tag, self.id, place));
                    return Ok(ControlFlow::Break(()));
                }
                bytes += place.len();
                chunk
                    .times
                    .push((RowKey::from_slice(place), decode_time(row)?));
                Ok(ControlFlow::Continue(()))
            })
            .map(drop)?;
        Ok(chunk)
    }
}
