//! Long values of a transaction: appended to the value log when they are written, so that the
//! pending batch and the binlog row hold no more than their places.

use super::{Txn, View};
use crate::encoding::binlog::{Position, Row};
use crate::encoding::values::ValueRef;
use crate::encoding::{CollectionId, Corrupt, keys};
use crate::storage::engine::Keyspace;
use crate::storage::engine::cold_reads::ColdRead;
use crate::storage::engine::values::{Owner, Pin, packs_well};
use crate::storage::engine::waiting::pretends_cold;
use crate::storage::{DbIndex, Result, StorageError};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Range;

/// A larger table is freed: to clear it takes time for all of its places, however few are used.
const KEPT_PLACES: usize = 256;

/// What a turn has appended to the value log.
#[derive(Default)]
pub(in crate::storage) struct LoggedValues {
    /// The places of values by the address and length of the argument that each came from: while its
    /// command runs, no other has them.
    written: FxHashMap<(usize, usize), ValueRef>,
    /// One for each segment with a value of the turn.
    pins: SmallVec<[Pin; 1]>,
}

fn address(bytes: &[u8]) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

impl LoggedValues {
    fn note(&mut self, value: &[u8], at: ValueRef, pin: Pin) {
        self.written.insert(address(value), at);
        self.keep(pin);
    }

    fn keep(&mut self, pin: Pin) {
        if !self.pins.iter().any(|kept| kept.is_same(&pin)) {
            self.pins.push(pin);
        }
    }

    fn place_of(&self, arg: &[u8]) -> Option<ValueRef> {
        self.written.get(&address(arg)).copied()
    }

    /// Forgets the arguments, whose memory may get other contents.
    pub(super) fn forget_arguments(&mut self) {
        match self.written.capacity() > KEPT_PLACES {
            true => self.written = FxHashMap::default(),
            false => self.written.clear(),
        }
    }

    /// Notes where the rows of the binlog end that a commit has written.
    pub(super) fn note_referenced(&self, end: Position) {
        for pin in &self.pins {
            pin.note_referenced(end);
        }
    }

    /// Ends the turn: what it has appended is committed or given up.
    pub(super) fn clear(&mut self) {
        self.forget_arguments();
        self.pins.clear();
    }

    /// The pins, for a data set that is installed later.
    pub(super) fn take_pins(&mut self) -> SmallVec<[Pin; 1]> {
        std::mem::take(&mut self.pins)
    }
}

impl View {
    /// Appends a range of the bytes that a long string's base refers to, clipped to them, to `out`.
    /// Returns the number of bytes of the base.
    ///
    /// # Errors
    /// The string has no base, or its bytes cannot be read.
    pub fn read_base(
        &self,
        db: DbIndex,
        id: CollectionId,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        let mut missing = None;
        loop {
            let row = self.row(db, &keys::base(id))?;
            let at = ValueRef::decode(&row.ok_or(Corrupt("base of a string"))?)?;
            let wanted = range.start.min(at.len)..range.end.min(at.len);
            let bytes = wanted.end.saturating_sub(wanted.start);
            self.reads.budget.spend(bytes as usize)?;
            match self.read_value(db, &at, wanted, out) {
                // The value has got another place since the row was read.
                Err(StorageError::Io(error))
                    if error.kind() == std::io::ErrorKind::NotFound && missing != Some(at) =>
                {
                    // A snapshot shows the old row for ever.
                    if self.reads.snapshot.is_some() {
                        return Err(StorageError::ReadBudgetSpent);
                    }
                    missing = Some(at);
                }
                done => return done.map(|()| at.len),
            }
        }
    }

    /// Whether the string has bytes in the value log, the last of which is in memory then, or asked
    /// for with all others.
    pub(super) fn has_base_at_hand(&self, db: DbIndex, id: CollectionId) -> Result<bool> {
        let Some(row) = self.row(db, &keys::base(id))? else {
            return Ok(false);
        };
        let at = ValueRef::decode(&row)?;
        let last = at.len.saturating_sub(1)..at.len;
        self.read_value(db, &at, last, &mut Vec::new())?;
        Ok(true)
    }

    fn read_value(
        &self,
        db: DbIndex,
        at: &ValueRef,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let may_wait = self.may_wait();
        let done = match !may_wait && pretends_cold() {
            false => self.engine.values.read(at, range, out, may_wait),
            true => Err(StorageError::NotInMemory),
        };
        if matches!(done, Err(StorageError::NotInMemory))
            && let Some(keyspace) = self.keyspace(db)
        {
            self.cold.want(ColdRead::value(keyspace, *at));
        }
        done
    }
}

impl Txn {
    /// Whether the bytes of this string belong into the value log. Tables pack short values better:
    /// they have blocks of many rows.
    pub fn logs_value(&self, value: &[u8]) -> bool {
        let config = &self.engine.config;
        let (len, least) = (value.len() as u64, config.value_log_min_bytes);
        least > 0
            && len >= least
            && (len >= config.value_log_packed_min_bytes || !packs_well(value))
    }

    /// Whether a binlog row refers to an argument of so many bytes, rather than to contain it, also if
    /// it stands nowhere else in the value log.
    fn logs_argument(&self, len: usize) -> bool {
        let config = &self.engine.config;
        let least = config.value_log_min_bytes;
        least > 0 && len as u64 >= least.max(config.value_log_packed_min_bytes)
    }

    /// Whether an argument of so many bytes may have been written as a value.
    fn may_have_place(&self, len: usize) -> bool {
        let least = self.engine.config.value_log_min_bytes;
        least > 0 && len as u64 >= least
    }

    /// Appends a string to the value log and writes the row of its base. The caller writes the meta
    /// row.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn put_base(&mut self, db: DbIndex, id: CollectionId, value: &[u8]) -> Result<()> {
        let keyspace = self.keyspace_for_write(db)?;
        let at = self.append_value(Owner::Base(keyspace, id), value)?;
        self.put_row(db, &keys::base(id), &at.encode())
    }

    /// Drops a cached row that was written outside of a turn.
    pub(in crate::storage) fn uncache_row(&self, keyspace: &Keyspace, key: &[u8]) {
        let hash = keyspace.cache_hash(self.batch.overlay.hash(keyspace.id, key));
        self.engine.memory.rows.update(hash, key, None);
    }

    fn append_value(&mut self, owner: Owner, value: &[u8]) -> Result<ValueRef> {
        let engine = self.engine.clone();
        let _room = engine.disk.reserve(value.len())?;
        let (at, pin) = engine.append_value(owner, value)?;
        self.batch.values.note(value, at, pin);
        Ok(at)
    }

    /// Logs one command. Its long arguments stand in the value log: those that were written as
    /// values stand there already.
    pub(super) fn log_command<A: AsRef<[u8]>>(&mut self, db: DbIndex, args: &[A]) {
        let is_short = |arg: &A| !self.may_have_place(arg.as_ref().len());
        if args.iter().all(is_short) || !self.is_logged() {
            return self.batch.log.append(db, args);
        }
        let place = |arg: &A| {
            let arg = arg.as_ref();
            match self.batch.values.place_of(arg) {
                // Without a place the argument stands in the row.
                None if self.logs_argument(arg.len()) => self.append_value(Owner::Binlog, arg).ok(),
                place => place,
            }
        };
        let places: SmallVec<[_; 8]> = args.iter().map(place).collect();
        self.batch.log.append_referring(db, args, &places);
    }

    /// Puts the commands of the pending row of the binlog into the value log, if they are many bytes:
    /// there they are written once, and otherwise to the write-ahead log, a memtable and a table.
    pub(super) fn log_row(&mut self) {
        let (engine, log) = (&self.engine, &self.batch.log);
        let Some(row) = log.plain_row().filter(|row| engine.logs_row(row.len())) else {
            return;
        };
        // What a replica writes of its own accord is in no binlog.
        if log.stream.is_none() && engine.is_following() {
            return;
        }
        if let Some((at, pin)) = engine.append_row(row) {
            self.batch.values.keep(pin);
            self.batch.log.refer_to(at);
        }
    }

    /// Logs a row of the master's binlog, whose commands this transaction has run; `args` are
    /// theirs, parts of `row.bytes`.
    pub fn log_received<'a>(
        &mut self,
        position: Position,
        row: &Row<'a>,
        args: impl Iterator<Item = &'a [u8]>,
    ) {
        let mut logged = SmallVec::<[_; 4]>::new();
        for arg in args {
            if !self.may_have_place(arg.len()) {
                continue;
            }
            let from = address(arg).0 - address(row.bytes).0;
            let place = match self.batch.values.place_of(arg) {
                None if self.logs_argument(arg.len()) && self.engine.binlog.is_enabled() => {
                    self.append_value(Owner::Binlog, arg).ok()
                }
                place => place,
            };
            logged.extend(place.map(|place| (from, place)));
        }
        if logged.is_empty() && self.engine.logs_row(row.bytes.len()) {
            let engine = self.engine.clone();
            let room = engine.disk.reserve(row.bytes.len()).ok();
            if let Some((at, pin)) = room.and_then(|_room| engine.append_row(row.bytes)) {
                self.batch.values.keep(pin);
                logged.push((0, at));
            }
        }
        self.batch.log.push_received(position, row, &logged);
        self.batch.values.forget_arguments();
    }
}
