//! Iterators over committed rows.

use super::cold_reads::{ColdRead, Span};
use super::waiting::{or_not_in_memory, pretends_cold, without_waiting};
use super::{Db, Engine, Keyspace, ReadSnapshot};
use crate::encoding::keys::{RowKey, is_one_map};
use crate::storage::{Direction, Result, StorageError};
use rocksdb::{DBRawIteratorWithThreadMode, ReadOptions};
use std::cell::RefCell;
use std::sync::Arc;

/// How many bytes an iterator that may wait for the disk reads at a time.
const READAHEAD: usize = 256 << 10;

/// What reads must know that do not wait for the disk.
#[derive(Clone, Copy)]
pub(in crate::storage) struct ColdList<'a> {
    pub(in crate::storage) keyspace: &'a Arc<Keyspace>,
    /// What they do not find in memory.
    pub(in crate::storage) wanted: &'a RefCell<Vec<ColdRead>>,
}

/// How rows are read.
#[derive(Default, Clone, Copy)]
pub(in crate::storage) struct How<'a> {
    /// The rows of this snapshot, which the iterator must not outlive.
    pub(in crate::storage) snapshot: Option<&'a ReadSnapshot>,
    /// The read gives up before it skips more tombstones than this.
    pub(in crate::storage) bound: Option<u64>,
    /// The read does not wait for the disk.
    pub(in crate::storage) cold: Option<ColdList<'a>>,
    /// The reader seeks before it looks at a row.
    pub(in crate::storage) seeks: bool,
}

/// An iterator over the committed rows of a span.
pub(in crate::storage) struct Rows<'a> {
    rows: DBRawIteratorWithThreadMode<'a, Db>,
    /// For reads that do not wait: what they lack, and the span that they read.
    cold: Option<(ColdList<'a>, Span)>,
    /// How often it has moved.
    passed: usize,
    /// It acts as if the row here were not in memory.
    pretends: bool,
}

impl<'a> Rows<'a> {
    /// Positioned at the first row of `span`, unless its reader seeks.
    pub(in crate::storage) fn open(
        engine: &'a Engine,
        keyspace: &Keyspace,
        span: &Span,
        how: How<'a>,
    ) -> Rows<'a> {
        let readahead = if how.cold.is_none() { READAHEAD } else { 0 };
        Rows::open_with(engine, keyspace, span, how, readahead)
    }

    /// The same by a reader thread, which reads so many bytes at a time.
    pub(in crate::storage) fn open_ahead(
        engine: &'a Engine,
        keyspace: &Keyspace,
        span: &Span,
        readahead: usize,
    ) -> Rows<'a> {
        Rows::open_with(engine, keyspace, span, How::default(), readahead)
    }

    fn open_with(
        engine: &'a Engine,
        keyspace: &Keyspace,
        span: &Span,
        how: How<'a>,
        readahead: usize,
    ) -> Rows<'a> {
        let mut read = ReadOptions::default();
        if let Some(snapshot) = how.snapshot {
            snapshot.apply_to(&mut read);
        }
        // All rows of one map have the same prefix, so forward reads can use its Bloom filters.
        let one_prefix = span.direction == Direction::Forward && is_one_map(&span.from, &span.to);
        read.set_total_order_seek(!one_prefix);
        read.set_iterate_lower_bound(span.from.as_slice());
        read.set_iterate_upper_bound(span.to.as_slice());
        read.set_readahead_size(readahead);
        if let Some(bound) = how.bound {
            read.set_max_skippable_internal_keys(bound);
        }
        // Opening one may read indexes.
        let open = || engine.db.raw_iterator_cf_opt(&keyspace.cf, read);
        let mut rows = Rows {
            rows: match how.cold {
                None => open(),
                Some(_) => without_waiting(open),
            },
            cold: how.cold.map(|cold| (cold, span.clone())),
            passed: 0,
            pretends: false,
        };
        match span.direction {
            _ if how.seeks => {}
            Direction::Forward => rows.moves(|rows| rows.seek(span.from.as_slice())),
            Direction::Backward => rows.moves(|rows| rows.seek_for_prev(span.to.as_slice())),
        }
        rows
    }

    fn moves(&mut self, to: impl FnOnce(&mut DBRawIteratorWithThreadMode<'a, Db>)) {
        match self.cold {
            None => to(&mut self.rows),
            Some(_) => {
                self.passed += 1;
                self.pretends |= pretends_cold();
                without_waiting(|| to(&mut self.rows));
            }
        }
    }

    /// Moves to the first row at or after `from`.
    pub(in crate::storage) fn seek(&mut self, from: &[u8]) {
        if let Some((_, span)) = &mut self.cold {
            // What may be missing begins there.
            span.from = RowKey::from_slice(from);
            self.passed = 0;
        }
        self.moves(|rows| rows.seek(from));
    }

    /// Moves to the next row.
    pub(in crate::storage) fn next(&mut self) {
        self.moves(DBRawIteratorWithThreadMode::next);
    }

    /// Moves to the row before.
    pub(in crate::storage) fn prev(&mut self) {
        self.moves(DBRawIteratorWithThreadMode::prev);
    }

    /// The row here, or `None` at the end and after an error.
    pub(in crate::storage) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.rows.item().filter(|_| !self.pretends)
    }

    /// The key of the row here.
    pub(in crate::storage) fn key(&self) -> Option<&[u8]> {
        self.rows.key().filter(|_| !self.pretends)
    }

    /// Whether the read ended because it would have skipped more tombstones than its bound.
    pub(in crate::storage) fn exceeds_bound(&self) -> bool {
        let error = self.rows.status().err();
        error.is_some_and(|error| error.kind() == rocksdb::ErrorKind::Incomplete)
    }

    /// Whether the read has met no error.
    pub(in crate::storage) fn is_ok(&self) -> bool {
        self.rows.status().is_ok() && !self.pretends
    }

    /// The error that the read has met, if any.
    ///
    /// # Errors
    /// What RocksDB reports; [`StorageError::NotInMemory`] if the read would have waited.
    pub(in crate::storage) fn status(&self) -> Result<()> {
        let done = match self.pretends {
            false => or_not_in_memory(self.rows.status()),
            true => Err(StorageError::NotInMemory),
        };
        if let (Err(StorageError::NotInMemory), Some((list, span))) = (&done, &self.cold) {
            // Opening was a move, too.
            let read = ColdRead::range(list.keyspace, span, self.passed - 1);
            list.wanted.borrow_mut().push(read);
        }
        done
    }
}
