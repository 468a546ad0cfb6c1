//! Builds values from their RDB form.
//!
//! A [`Building`] collects the elements of one value; none is visible before
//! [`Building::finish`] writes the key. Fields of hashes whose time is over are left out, unless
//! the server is a replica.

use super::definition::{Added, Build};
use super::table::definition;
use super::{OpError, OpResult, RestoreError};
use crate::base::time::UnixMs;
use crate::encoding::{CollectionId, ValueType, keys};
use crate::rdb::decode::read_value;
use crate::rdb::input::Lent;
use crate::rdb::payload::Payload;
use crate::rdb::reader::Reader;
use crate::rdb::{self, Element};
use crate::storage::Direction;
use crate::storage::{DbIndex, StorageError, Txn};
use std::cell::RefCell;

const TWICE: rdb::Error = rdb::Error::Corrupt("an element that is there twice");

/// Counts of a restored value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Elements that were stored.
    pub elements: u64,
    /// Elements that were left out, as their time is over.
    pub over: u64,
}

/// A value that is being built, for a key that does not exist.
pub struct Building<'k> {
    db: DbIndex,
    key: &'k [u8],
    kind: ValueType,
    value: Box<dyn Build + 'k>,
    taken: Taken,
    /// The collection id whose rows were committed before the value was complete.
    parked: Option<CollectionId>,
}

impl<'k> Building<'k> {
    /// Begins a value of a type under `key`, which must not exist.
    pub fn new(
        txn: &mut Txn,
        db: DbIndex,
        key: &'k [u8],
        kind: ValueType,
    ) -> OpResult<Building<'k>> {
        Ok(Building {
            db,
            key,
            kind,
            value: definition(kind).build(txn, db, key)?,
            taken: Taken::default(),
            parked: None,
        })
    }

    /// Adds the next element.
    ///
    /// # Errors
    /// The element exists already, or has the wrong type.
    pub fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<(), RestoreError> {
        match self.value.add(txn, element)? {
            Added::New => self.taken.elements += 1,
            Added::Over => self.taken.over += 1,
            Added::Uncounted => {}
            Added::Repeated => return Err(TWICE.into()),
        }
        Ok(())
    }

    /// Must be called before a commit while the value is incomplete: a value larger than
    /// memory takes several commits. Until [`Building::finish`] its rows are queued for
    /// reclaim, so an unfinished value is removed.
    pub fn park(&mut self, txn: &mut Txn) -> OpResult<()> {
        if self.parked.is_none()
            && let Some(id) = self.value.collection()
        {
            txn.queue_reclaim(self.db, self.kind, id, u64::MAX)?;
            self.parked = Some(id);
        }
        Ok(())
    }

    /// Takes the rows out of the reclaim queue. Committed elements were not checked for
    /// repetitions, so the rows are counted now.
    fn unpark(&mut self, txn: &mut Txn, id: CollectionId) -> Result<(), RestoreError> {
        for &tag in self.value.counted_tags() {
            let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
            let mut rows = txn.scan(self.db, &from, &to, Direction::Forward)?;
            let mut count = 0;
            while rows.next()?.is_some() {
                count += 1;
            }
            if count != self.taken.elements {
                return Err(TWICE.into());
            }
        }
        Ok(txn.unqueue_reclaim(self.db, id)?)
    }

    /// Writes the key, with an expiry (0: none). A hash of which all fields have expired
    /// becomes no key.
    ///
    /// # Errors
    /// A parked value has an element twice.
    pub fn finish(mut self, txn: &mut Txn, expire_ms: UnixMs) -> Result<Taken, RestoreError> {
        if let Some(id) = self.parked {
            self.unpark(txn, id)?;
        }
        let Building {
            db,
            key,
            value,
            taken,
            ..
        } = self;
        value.finish(txn)?;
        if expire_ms.is_some()
            && let Some(found) = txn.lookup(db, key)?
        {
            txn.set_expiry(db, key, &found, expire_ms)?;
        }
        Ok(taken)
    }
}

/// What the reader may hold without having it counted, in bytes.
const FREE_BYTES: u64 = 64 << 10;

/// The error as one of the storage, if there was no memory.
fn lacking(error: RestoreError) -> RestoreError {
    match error {
        RestoreError::Rdb(rdb::Error::NoMemory) => OpError::from(StorageError::NoMemory).into(),
        other => other,
    }
}

/// Stores the value of a payload under a key that does not exist.
///
/// # Errors
/// The payload is invalid, or longer than `max_bytes` when decompressed; the caller then
/// rolls back.
pub fn restore(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    payload: &Payload<'_>,
    expire_ms: UnixMs,
    max_bytes: u64,
) -> Result<Taken, RestoreError> {
    let kind = payload.value_type()?;
    let mut building = Building::new(txn, db, key, kind)?;
    let txn = RefCell::new(txn);
    // One string replaces another.
    let mut held = FREE_BYTES;
    let will_hold = |bytes: u64| {
        let more = bytes.saturating_sub(held);
        let counted = txn.borrow().will_hold(more);
        held += more;
        counted.map_err(|_| rdb::Error::NoMemory)
    };
    let input = Lent {
        rest: payload.value,
        will_hold,
    };
    let mut reader = Reader::new(input, max_bytes);
    let mut left = max_bytes;
    let read = read_value(&mut reader, payload.kind, payload.dialect, |element| {
        let bytes = element.bytes() as u64;
        left = left
            .checked_sub(bytes)
            .ok_or(RestoreError::Rdb(rdb::Error::TooLong(bytes)))?;
        building.add(*txn.borrow_mut(), element)
    });
    read.map_err(lacking)?;
    if !reader.input.rest.is_empty() {
        return Err(rdb::Error::Corrupt("something behind the value").into());
    }
    building.finish(txn.into_inner(), expire_ms)
}
