//! How many bytes the rows of a key take, read from a snapshot.
//!
//! The bytes are those of the keys and values of all rows of a key, and of its value in the value
//! log, as they are before compression. Of a collection a bounded number of rows is read under each
//! tag, and its meta row says how many there are. Long values in the value log are not read.

use super::definition::Stored;
use super::table::definition;
use super::{OpError, OpResult};
use crate::encoding::keys::{self, RowKey};
use crate::encoding::meta::{Base, LongString, MetaView, Statement};
use crate::encoding::values::ValueRef;
use crate::encoding::{CollectionId, ValueType, tag};
use crate::storage::DbIndex;
use crate::storage::full_sync::snapshot::Snapshot;
use std::ops::ControlFlow;

/// Bytes of a row of one of the indexes by time, besides the user key: tag, time and type.
const INDEX_ROW: u64 = 10;
/// Bytes of the row that says where a string stands in the value log.
const BASE_ROW: u64 = 17 + ValueRef::LEN as u64;
/// In how many places the rows of a list are sampled: its ends may differ.
const PLACES: u64 = 4;
/// Rows between two questions whether to go on.
const STEP_ROWS: u64 = 256;
/// Tags of rows that are numbered pieces of a value.
const PAGES: [u8; 5] = [
    tag::BLOOM_PAGE,
    tag::CUCKOO_PAGE,
    tag::SKETCH_PAGE,
    tag::TOPK_PAGE,
    tag::DIGEST_PAGE,
];
/// Bytes of a fragment of a long string.
const FRAGMENT_BYTES: u64 = 1 << 12;

/// A key as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Its type.
    pub kind: ValueType,
    /// Bytes.
    pub bytes: u64,
    /// Elements; 1 for a value of a type that counts none.
    pub elements: u64,
    /// Rows that were read.
    pub rows: u64,
    /// Whether the bytes are extrapolated from a part of the rows.
    pub estimated: bool,
}

/// How rows are read.
pub struct Reading<'a> {
    /// The rows.
    pub snapshot: &'a Snapshot<'a>,
    /// The DB.
    pub db: DbIndex,
    /// Most rows that are read under a tag if it is known how many there are; 0: all.
    pub samples: u64,
    /// Called with the number of rows that were read since the last call; says whether to go on.
    pub pace: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
}

/// What was read under a tag.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    rows: u64,
    bytes: u64,
    /// Whether there may be more.
    more: bool,
    /// The index after that of the last row, if rows are numbered.
    next_index: u64,
    /// Bytes of a long string that stand in the value log.
    apart: u64,
}

impl Reading<'_> {
    /// The space of a key, by its meta row; `None` if the reading was to end.
    pub fn of(&mut self, row_key: &[u8], row: &[u8]) -> OpResult<Option<Space>> {
        let MetaView { meta, body } = MetaView::decode(row)?;
        let key_bytes = self.snapshot.layout().user_key(row_key)?.len() as u64;
        let indexes = u64::from(meta.expire_ms.is_some()) + u64::from(meta.due_ms.is_some());
        let kind = meta.kind;
        let mut space = Space {
            kind,
            bytes: (row_key.len() + row.len()) as u64 + indexes * (INDEX_ROW + key_bytes),
            // The parts of a document are counted for another purpose.
            elements: match kind == ValueType::Json {
                true => 1,
                false => definition(kind).count(Stored { meta, body })?,
            },
            rows: 1,
            estimated: false,
        };
        if !meta.rows {
            return Ok(Some(space));
        }
        let id = MetaView { meta, body }.id()?;
        if kind == ValueType::String {
            let long = LongString::decode(body)?;
            if long.base == Base::Whole {
                space.bytes += BASE_ROW + long.len;
                return Ok(Some(space));
            }
        }
        let stated = kind.statements(body)?;
        for &tag in kind.element_tags() {
            let claim = stated.iter().find(|one| one.tag == tag);
            let pieces = self.pieces(kind, tag, body)?;
            let sum = match claim {
                Some(claim) if claim.rows == 0 => continue,
                Some(claim) => self.sum(tag, &self.places(id, claim), self.is_too_much(claim.rows)),
                None => self.sum(tag, &[keys::element_prefix(tag, id)], pieces.is_some()),
            };
            let Some(sum) = sum? else {
                return Ok(None);
            };
            match (claim, pieces) {
                (Some(claim), _) => space.add(&sum, sum.rows, claim.rows),
                (None, Some(pieces)) => space.add(&sum, sum.next_index, pieces),
                (None, None) => space.add(&sum, sum.rows, sum.rows),
            }
        }
        Ok(Some(space))
    }

    /// Where to begin to read the rows of a claim.
    fn places(&self, id: CollectionId, claim: &Statement) -> Vec<RowKey> {
        let Some(positions) = claim
            .positions
            .as_ref()
            .filter(|_| self.is_too_much(claim.rows))
        else {
            return vec![keys::element_prefix(claim.tag, id)];
        };
        let place = |n: u64| {
            let passed = (u128::from(claim.rows) * u128::from(n) / u128::from(PLACES)) as i64;
            keys::indexed(claim.tag, id, positions.start.saturating_add(passed))
        };
        (0..PLACES).map(place).collect()
    }

    fn is_too_much(&self, rows: u64) -> bool {
        self.samples > 0 && rows > self.samples
    }

    /// How many rows there would be under a tag if none were missing, for values whose rows are
    /// numbered pieces of which zeros have none.
    fn pieces(&self, kind: ValueType, tag: u8, body: &[u8]) -> OpResult<Option<u64>> {
        Ok(match tag {
            tag::FRAGMENT => Some(LongString::decode(body)?.len.div_ceil(FRAGMENT_BYTES)),
            tag if PAGES.contains(&tag) => Some(kind.stated_rows(body)?),
            _ => None,
        })
    }

    /// Reads rows under a tag, from each of these places on; a part of them if `sampled`. `None` if
    /// the reading was to end.
    fn sum(&mut self, tag: u8, places: &[RowKey], sampled: bool) -> OpResult<Option<Sum>> {
        let most = match sampled && self.samples > 0 {
            true => self.samples.div_ceil(places.len() as u64),
            false => u64::MAX,
        };
        let mut sum = Sum::default();
        let (mut told, mut ended) = (0, false);
        for from in places {
            let prefix = keys::map_prefix(from).unwrap_or_default();
            let end = keys::after_prefix(prefix).unwrap_or_default();
            let begun = sum.rows;
            let pace = &mut *self.pace;
            self.snapshot
                .scan(self.db, from, &end, |key, value| -> Result<_, OpError> {
                    if sum.rows - begun >= most {
                        sum.more = true;
                        return Ok(ControlFlow::Break(()));
                    }
                    sum.take(tag, key, value)?;
                    if sum.rows - told >= STEP_ROWS {
                        ended = pace(sum.rows - told).is_break();
                        told = sum.rows;
                        if ended {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                    Ok(ControlFlow::Continue(()))
                })
                .map(drop)?;
            if ended {
                return Ok(None);
            }
        }
        match (self.pace)(sum.rows - told) {
            ControlFlow::Continue(()) => Ok(Some(sum)),
            ControlFlow::Break(()) => Ok(None),
        }
    }
}

impl Sum {
    fn take(&mut self, tag: u8, key: &[u8], value: &[u8]) -> OpResult<()> {
        self.rows += 1;
        self.bytes += (key.len() + value.len()) as u64;
        if keys::split_base(key).is_some() {
            self.apart = ValueRef::decode(value)?.len;
        } else if tag == tag::FRAGMENT || PAGES.contains(&tag) {
            self.next_index = keys::split_indexed(key)?.max(0) as u64 + 1;
        }
        Ok(())
    }
}

impl Space {
    /// Adds what was read under a tag, which is `part` of `whole`.
    fn add(&mut self, sum: &Sum, part: u64, whole: u64) {
        self.rows += sum.rows;
        let mut bytes = sum.bytes;
        if sum.more && part > 0 {
            self.estimated = true;
            let scaled = u128::from(bytes) * u128::from(whole.max(part)) / u128::from(part);
            bytes = u64::try_from(scaled).unwrap_or(u64::MAX);
        }
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(sum.apart);
    }
}
