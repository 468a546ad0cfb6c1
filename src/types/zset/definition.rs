//! The definition of sorted sets; see [`crate::types::definition`].

use super::{AddRule, Edit};
use crate::encoding::meta::Counted;
use crate::encoding::{CollectionId, ValueType, keys, packed, tag};
use crate::rdb::Element;
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::definition::{
    self, Build, Definition, Each, Limits, ROW_OVERHEAD, Stored, count_packed, each_packed,
    is_within, of_another_type,
};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError, zset};
use std::ops::ControlFlow;

/// The definition of sorted sets.
pub struct ZsetType;

impl Definition for ZsetType {
    /// In ascending order of scores, so that loading them appends in order.
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        if !stored.meta.rows {
            return each_packed(packed::scored(stored.body), |(score, member)| {
                each(Element::Scored(score, member))
            });
        }
        let id = Counted::decode(stored.body)?.id;
        let from = keys::element_prefix(tag::ZSET_SCORE, id);
        let to = keys::element_end(tag::ZSET_SCORE, id);
        source.each_row(db, &from, &to, &mut |row_key, _| {
            let (score, member) = keys::split_by_score(row_key)?;
            each(Element::Scored(score, member))
        })
    }

    fn count(&self, stored: Stored<'_>) -> OpResult<u64> {
        if stored.meta.rows {
            return Ok(Counted::decode(stored.body)?.count);
        }
        count_packed(packed::scored(stored.body))
    }

    fn build<'k>(
        &self,
        txn: &mut Txn,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Box<dyn Build + 'k>> {
        Ok(Box::new(Edit::open(txn, db, key)?))
    }

    fn encoding(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        limits: &Limits,
    ) -> OpResult<&'static str> {
        Ok(match is_within(self, view, db, found, limits.zset)? {
            true => "listpack",
            false => "skiplist",
        })
    }

    /// An element has two rows, one by its member and one by its score.
    fn row_bytes(&self, element: &Element<'_>) -> Option<u64> {
        let Element::Scored(_, member) = element else {
            return None;
        };
        Some((element.bytes() + member.len()) as u64 + 2 * ROW_OVERHEAD)
    }
}

impl Build for Edit<'_> {
    fn add(
        &mut self,
        txn: &mut Txn,
        element: Element<'_>,
    ) -> Result<definition::Added, RestoreError> {
        let Element::Scored(score, member) = element else {
            return Err(of_another_type());
        };
        let rule = AddRule {
            only_new: true,
            ..AddRule::default()
        };
        Ok(match Edit::add(self, txn, score, member, rule)? {
            zset::Added::New(_) => definition::Added::New,
            _ => definition::Added::Repeated,
        })
    }

    fn collection(&self) -> Option<CollectionId> {
        Edit::collection(self)
    }

    fn counted_tags(&self) -> &'static [u8] {
        ValueType::Zset.element_tags()
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        Ok(self.save(txn)?)
    }
}
