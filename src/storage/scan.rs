//! Range reads: the rows of a key range in order, the pending batch laid over
//! what is committed.

use super::txn::View;
use super::{DbIndex, Result};
use crate::encoding::keys::{self, ELEMENT_PREFIX_LEN};
use crate::encoding::own::KeyspaceId;
use crate::encoding::tag;
use crate::storage::engine::Db;
use crate::storage::overlay::Overlay;
use rocksdb::{DBRawIteratorWithThreadMode, ReadOptions};

/// In which direction a range is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    None,
    Stored,
    Pending,
    Both,
}

/// A range read under way. Rows are lent until the next call of [`Scan::next`].
pub struct Scan<'a> {
    stored: Option<DBRawIteratorWithThreadMode<'a, Db>>,
    overlay: &'a Overlay,
    keyspace: KeyspaceId,
    /// What is left of the pending rows, as positions of the sorted order.
    pending: std::ops::Range<usize>,
    /// All of them.
    all_pending: std::ops::Range<usize>,
    direction: Direction,
    /// Which source the last row came from.
    last: Source,
}

impl View {
    /// Reads the rows in `[from, to)`.
    pub fn scan(
        &mut self,
        db: DbIndex,
        from: &[u8],
        to: &[u8],
        direction: Direction,
    ) -> Result<Scan<'_>> {
        let Some(id) = self.keyspace(db).map(|ks| ks.id) else {
            return Ok(Scan {
                stored: None,
                overlay: &self.overlay,
                keyspace: KeyspaceId(u32::MAX),
                pending: 0..0,
                all_pending: 0..0,
                direction,
                last: Source::None,
            });
        };
        let pending = match self.overlay.is_empty() || from >= to {
            true => 0..0,
            false => self.overlay.sorted_range(id, from, to),
        };
        let view = &*self;
        let stored = match view.keyspace(db) {
            Some(keyspace) if from < to => {
                let mut read = ReadOptions::default();
                // Rows of one map share their prefix; its Bloom filter helps forward reads.
                let one_prefix = direction == Direction::Forward && is_one_map(from, to);
                read.set_total_order_seek(!one_prefix);
                read.set_iterate_lower_bound(from);
                read.set_iterate_upper_bound(to);
                let mut rows = view.engine.db.raw_iterator_cf_opt(&keyspace.cf, read);
                match direction {
                    Direction::Forward => rows.seek(from),
                    Direction::Backward => rows.seek_for_prev(to),
                }
                Some(rows)
            }
            _ => None,
        };
        Ok(Scan {
            stored,
            overlay: &view.overlay,
            keyspace: id,
            all_pending: pending.clone(),
            pending,
            direction,
            last: Source::None,
        })
    }
}

/// Whether `[from, to)` lies within the element rows of one collection.
fn is_one_map(from: &[u8], to: &[u8]) -> bool {
    let Some(prefix) = from.get(..ELEMENT_PREFIX_LEN) else {
        return false;
    };
    let of_elements = !matches!(prefix[0], tag::META | tag::TTL | tag::RECLAIM);
    of_elements && keys::after_prefix(prefix).is_some_and(|end| to <= end.as_slice())
}

impl Scan<'_> {
    /// The next row, or `None` at the end.
    #[allow(clippy::should_implement_trait)] // lends, so it cannot be an Iterator
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.step();
        loop {
            self.last = self.choose()?;
            let deleted = match self.last {
                Source::None => return Ok(None),
                Source::Stored => self
                    .stored_key()
                    .is_some_and(|key| self.overlay.range_covers_stored(self.keyspace, key)),
                Source::Pending | Source::Both => self.pending_row().1.is_none(),
            };
            if !deleted {
                break;
            }
            self.step();
        }
        match self.last {
            Source::Stored => Ok(self.stored.as_ref().and_then(|rows| rows.item())),
            _ => match self.pending_row() {
                (key, Some(value)) => Ok(Some((key, value))),
                _ => Ok(None),
            },
        }
    }

    /// Goes to the first row at or after `from`, which lies within the range of a
    /// forward scan. Costs less than another scan.
    pub fn seek(&mut self, from: &[u8]) {
        self.last = Source::None;
        if let Some(rows) = &mut self.stored {
            rows.seek(from);
        }
        let std::ops::Range { start, end } = self.all_pending;
        if start < end {
            let at = self.overlay.lower_bound(self.keyspace, from);
            self.pending = at.clamp(start, end)..end;
        }
    }

    fn stored_key(&self) -> Option<&[u8]> {
        self.stored.as_ref().and_then(|rows| rows.key())
    }

    fn pending_row(&self) -> (&[u8], Option<&[u8]>) {
        let at = match self.direction {
            Direction::Forward => self.pending.start,
            Direction::Backward => self.pending.end - 1,
        };
        self.overlay.sorted_row(at)
    }

    /// Goes past the row that was lent last.
    fn step(&mut self) {
        if matches!(self.last, Source::Stored | Source::Both)
            && let Some(rows) = &mut self.stored
        {
            match self.direction {
                Direction::Forward => rows.next(),
                Direction::Backward => rows.prev(),
            }
        }
        if matches!(self.last, Source::Pending | Source::Both) {
            match self.direction {
                Direction::Forward => self.pending.start += 1,
                Direction::Backward => self.pending.end -= 1,
            }
        }
    }

    fn choose(&self) -> Result<Source> {
        let stored = self.stored_key();
        if stored.is_none()
            && let Some(rows) = &self.stored
        {
            rows.status()?;
        }
        let pending = (!self.pending.is_empty()).then(|| self.pending_row().0);
        Ok(match (stored, pending) {
            (None, None) => Source::None,
            (Some(_), None) => Source::Stored,
            (None, Some(_)) => Source::Pending,
            (Some(s), Some(p)) => match (s.cmp(p), self.direction) {
                (std::cmp::Ordering::Equal, _) => Source::Both,
                (std::cmp::Ordering::Less, Direction::Forward)
                | (std::cmp::Ordering::Greater, Direction::Backward) => Source::Stored,
                _ => Source::Pending,
            },
        })
    }
}
