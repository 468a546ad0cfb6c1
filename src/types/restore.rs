//! Values built in storage from what Redis' RDB format says of them.
//!
//! A [`Building`] takes the elements of one value; nobody sees any of them
//! before [`Building::finish`] puts the key. Fields of hashes that expire: those
//! whose time is over are left out, the others stay, without their time.

use super::list::{End, List};
use super::members::Members;
use super::string::{self, Expiry};
use super::zset::{AddRule, Added, Edit};
use super::{OpError, OpResult};
use crate::encoding::Kind;
use crate::rdb::decode::{kind_of, read_value};
use crate::rdb::payload::Payload;
use crate::rdb::reader::Reader;
use crate::rdb::{self, Element};
use crate::storage::{DbIndex, Txn};

/// Why a value cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// What it was read from is wrong.
    #[error(transparent)]
    Rdb(#[from] rdb::Error),
    /// It cannot be stored.
    #[error(transparent)]
    Op(#[from] OpError),
}

impl From<crate::storage::StorageError> for RestoreError {
    fn from(error: crate::storage::StorageError) -> Self {
        RestoreError::Op(error.into())
    }
}

const TWICE: rdb::Error = rdb::Error::Corrupt("an element that is there twice");

/// How much of a value's payload was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Elements that were stored.
    pub elements: u64,
    /// Fields with a time of their own, those left out included.
    pub timed_fields: u64,
}

/// A value under construction, at a key that does not exist.
pub struct Building<'k> {
    db: DbIndex,
    key: &'k [u8],
    form: Form<'k>,
    taken: Taken,
}

enum Form<'k> {
    String,
    List(List<'k>),
    Members(Members),
    Zset(Edit<'k>),
}

impl<'k> Building<'k> {
    /// Begins a value of a type under `key`, which must not exist.
    pub fn new(txn: &mut Txn, db: DbIndex, key: &'k [u8], kind: Kind) -> OpResult<Building<'k>> {
        let form = match kind {
            Kind::String => Form::String,
            Kind::List => Form::List(List::load_or_new(txn, db, key)?),
            Kind::Set | Kind::Hash => Form::Members(Members::open(txn, db, key, kind)?),
            Kind::Zset => Form::Zset(Edit::open(txn, db, key)?),
        };
        Ok(Building {
            db,
            key,
            form,
            taken: Taken::default(),
        })
    }

    /// Takes the next element.
    ///
    /// # Errors
    /// It was there before, or is none of this type.
    pub fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<(), RestoreError> {
        let is_new = match (&mut self.form, element) {
            (Form::String, Element::String(value)) => {
                string::set(txn, self.db, self.key, value, Expiry::Clear)?;
                true
            }
            (Form::List(list), Element::Item(item)) => {
                list.push(txn, End::Tail, &[item])?;
                true
            }
            (Form::Members(set), Element::Member(member)) => set.insert(txn, member, &[])?,
            (
                Form::Members(hash),
                Element::Field {
                    field,
                    value,
                    expire_ms,
                },
            ) => {
                self.taken.timed_fields += u64::from(expire_ms != 0);
                if expire_ms != 0 && expire_ms <= txn.now_ms() {
                    return Ok(());
                }
                hash.insert(txn, field, value)?
            }
            (Form::Zset(zset), Element::Scored(score, member)) => {
                let rule = AddRule {
                    only_new: true,
                    ..AddRule::default()
                };
                matches!(zset.add(txn, score, member, rule)?, Added::New(_))
            }
            _ => return Err(rdb::Error::Corrupt("an element of another type").into()),
        };
        if !is_new {
            return Err(TWICE.into());
        }
        self.taken.elements += 1;
        Ok(())
    }

    /// Puts the key, with an expiry (0: none). A hash all of whose fields are
    /// past their time is no key.
    pub fn finish(self, txn: &mut Txn, expire_ms: u64) -> OpResult<Taken> {
        let Building {
            db,
            key,
            form,
            taken,
        } = self;
        match form {
            Form::String => {}
            Form::List(list) => list.save(txn)?,
            Form::Members(members) => members.save(txn, key)?,
            Form::Zset(zset) => zset.save(txn)?,
        }
        if expire_ms != 0
            && let Some(found) = txn.lookup(db, key)?
        {
            txn.set_expiry(db, key, &found, expire_ms)?;
        }
        Ok(taken)
    }
}

/// Puts the value of a payload under a key that does not exist.
///
/// # Errors
/// The payload is not what it should be, or longer than `max_bytes` when
/// unpacked; the caller then rolls back what was written until it showed.
pub fn restore(
    txn: &mut Txn,
    db: DbIndex,
    key: &[u8],
    payload: &Payload<'_>,
    expire_ms: u64,
    max_bytes: u64,
) -> Result<Taken, RestoreError> {
    let kind = kind_of(payload.kind)?;
    let mut building = Building::new(txn, db, key, kind)?;
    let mut reader = Reader::new(payload.value, max_bytes);
    let mut left = max_bytes;
    read_value(&mut reader, payload.kind, payload.dialect, |element| {
        let bytes = element.bytes() as u64;
        left = left
            .checked_sub(bytes)
            .ok_or(RestoreError::Rdb(rdb::Error::TooLong(bytes)))?;
        building.add(txn, element)
    })?;
    if !reader.input.is_empty() {
        return Err(rdb::Error::Corrupt("something behind the value").into());
    }
    Ok(building.finish(txn, expire_ms)?)
}
