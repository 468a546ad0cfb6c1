//! The definition of sorted ints; see [`crate::types::definition`].

use super::Edit;
use crate::encoding::sortedint::{SortedIntBody, unpack};
use crate::encoding::{CollectionId, keys, tag};
use crate::rdb::module::{ModulePart, SORTED_INT};
use crate::rdb::{self, Element};
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::definition::{
    Added, Build, Definition, Each, Limits, ROW_OVERHEAD, Stored, each_packed, of_another_type,
};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use std::ops::ControlFlow;

/// The definition of sorted ints.
pub struct SortedIntType;

impl Definition for SortedIntType {
    /// The id of the type, and the integers, ascending.
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let begin = Element::Module(ModulePart::Begin(SORTED_INT));
        if each(begin)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let mut each_number = |n| each(Element::Module(ModulePart::Unsigned(n)));
        if !stored.meta.rows {
            let numbers = unpack(stored.body)?;
            return each_packed(numbers.into_iter().map(Ok), each_number);
        }
        let id = SortedIntBody::decode(stored.body)?.id;
        let from = keys::element_prefix(tag::SORTED_INT, id);
        let to = keys::element_end(tag::SORTED_INT, id);
        source.each_row(db, &from, &to, &mut |row_key, _| {
            each_number(keys::split_sorted_int(row_key)?)
        })
    }

    fn count(&self, stored: Stored<'_>) -> OpResult<u64> {
        Ok(match stored.meta.rows {
            true => SortedIntBody::decode(stored.body)?.count,
            false => unpack(stored.body)?.len() as u64,
        })
    }

    fn build<'k>(
        &self,
        txn: &mut Txn,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Box<dyn Build + 'k>> {
        Ok(Box::new(Builder {
            edit: Edit::open(txn, db, key)?,
            has_begun: false,
            last: None,
        }))
    }

    fn encoding(
        &self,
        _view: &mut View,
        _db: DbIndex,
        found: &KeyMeta,
        _limits: &Limits,
    ) -> OpResult<&'static str> {
        Ok(match found.meta.rows {
            true => "rows",
            false => "packed",
        })
    }

    /// All rows have the same size.
    fn rows_bytes(
        &self,
        _view: &mut View,
        _db: DbIndex,
        found: &KeyMeta,
        _samples: u64,
    ) -> OpResult<u64> {
        let count = self.count(Stored::of(found))?;
        Ok(count * (size_of::<u64>() as u64 + ROW_OVERHEAD))
    }
}

/// A value under construction: its integers ascend.
struct Builder<'k> {
    edit: Edit<'k>,
    has_begun: bool,
    last: Option<u64>,
}

impl Build for Builder<'_> {
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError> {
        let n = match element {
            Element::Module(ModulePart::Begin(id)) if !self.has_begun => {
                if id.version() != SORTED_INT.version() {
                    return Err(rdb::Error::Unsupported("newer forms of sorted ints").into());
                }
                self.has_begun = true;
                return Ok(Added::Uncounted);
            }
            Element::Module(ModulePart::Unsigned(n)) if self.has_begun => n,
            _ => return Err(of_another_type()),
        };
        match self.last.replace(n) {
            Some(last) if last > n => {
                Err(rdb::Error::Corrupt("sorted ints that do not ascend").into())
            }
            Some(last) if last == n => Ok(Added::Repeated),
            _ => {
                self.edit.insert(txn, n)?;
                Ok(Added::New)
            }
        }
    }

    fn collection(&self) -> Option<CollectionId> {
        self.edit.collection()
    }

    fn counted_tags(&self) -> &'static [u8] {
        &[]
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        match self.last {
            Some(_) => Ok(self.edit.save(txn)?),
            None => Err(rdb::Error::Empty.into()),
        }
    }
}
