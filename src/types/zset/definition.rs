//! The definition of sorted sets; see [`crate::types::definition`].

use super::{AddRule, Edit, Member, Span, Zset};
use crate::encoding::meta::Counted;
use crate::encoding::{CollectionId, ValueType, keys, packed, tag};
use crate::rdb::Element;
use crate::storage::{DbIndex, Direction, KeyMeta, Txn, View};
use crate::types::definition::{
    self, Build, Definition, Each, Limits, NextScored, ROW_OVERHEAD, Scored, Sortable, Stored,
    count_packed, each_packed, is_within, of_another_type,
};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError, zset};
use std::ops::{ControlFlow, Range};

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

    fn sortable<'k>(
        &self,
        view: &mut View,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Option<Box<dyn Sortable + 'k>>> {
        let zset = Zset::open(view, db, key)?;
        Ok(zset.map(|zset| Box::new(zset) as Box<dyn Sortable>))
    }

    fn scored(&self, _: &View, db: DbIndex, found: KeyMeta) -> OpResult<Box<dyn Scored>> {
        Ok(Box::new(Zset::from_key(db, found)?))
    }
}

/// By score.
impl Sortable for Zset {
    fn len(&self) -> u64 {
        Zset::len(self)
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn elements(
        &self,
        view: &mut View,
        range: Range<u64>,
        direction: Direction,
    ) -> OpResult<Vec<Vec<u8>>> {
        let mut elements = Vec::new();
        let (skip, limit) = (range.start, range.end.saturating_sub(range.start));
        let push = &mut |_, member: &[u8]| {
            elements.push(member.to_vec());
            Ok(())
        };
        Zset::walk(self, view, &Span::all(), direction, skip, limit, push)?;
        Ok(elements)
    }
}

/// Elements that are read at a time where the end may not be needed.
const CHUNK: u64 = 1024;

impl Scored for Zset {
    fn len(&self) -> u64 {
        Zset::len(self)
    }

    fn score(&self, view: &mut View, member: &[u8]) -> OpResult<Option<f64>> {
        Zset::score(self, view, member)
    }

    fn for_each(&self, view: &mut View, each: zset::Each<'_>) -> OpResult<()> {
        let direction = Direction::Forward;
        Zset::walk(self, view, &Span::all(), direction, 0, u64::MAX, each)
    }

    fn walk(&self) -> NextScored<'_> {
        let mut left = Span::all();
        Box::new(move |view, elements| {
            elements.clear();
            let push = &mut |score, member: &[u8]| {
                elements.push((score, Member::from_slice(member)));
                Ok(())
            };
            Zset::walk(self, view, &left, Direction::Forward, 0, CHUNK, push)?;
            if let Some((score, member)) = elements.last() {
                left = Span::after(*score, member);
            }
            Ok(!elements.is_empty())
        })
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
