//! The definitions of hashes and sets; see [`crate::types::definition`].

use super::Members;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::encoding::meta::Counted;
use crate::encoding::{CollectionId, Corrupt, ValueType, keys, packed, tag};
use crate::rdb::Element;
use crate::storage::{DbIndex, Direction, KeyMeta, Txn, View};
use crate::types::definition::{
    Added, Build, Definition, Each, EachScored, Limits, Member, NextScored, Scored, Sortable,
    Stored, all_elements, count_packed, each_packed, is_within, of_another_type,
};
use crate::types::hashed::{Chunk, Walk};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use std::ops::{ControlFlow, Range};

/// The definition of hashes.
pub struct HashType;

/// The definition of sets.
pub struct SetType;

/// The number of items in a packed body, or of elements in rows; the items of a packed
/// hash are its fields and values.
fn texts(stored: Stored<'_>) -> OpResult<u64> {
    if stored.meta.rows {
        return Ok(Counted::decode(stored.body)?.count);
    }
    count_packed(packed::items(stored.body))
}

impl Definition for HashType {
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let mut each_field = |field: &[u8], value: &[u8]| {
            each(Element::Field {
                field,
                value,
                expire_ms: UnixMs::NONE,
            })
        };
        if !stored.meta.rows {
            let mut items = packed::items(stored.body);
            while let Some(field) = items.next() {
                let value = items.next().ok_or(Corrupt("packed hash"))??;
                if each_field(field?, value)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        let id = Counted::decode(stored.body)?.id;
        let from = keys::element_prefix(tag::HASH_FIELD, id);
        let to = keys::element_end(tag::HASH_FIELD, id);
        source.each_row(db, &from, &to, &mut |row_key, row| {
            each_field(keys::split_hashed(row_key)?.1, row)
        })
    }

    fn count(&self, stored: Stored<'_>) -> OpResult<u64> {
        let texts = texts(stored)?;
        Ok(if stored.meta.rows { texts } else { texts / 2 })
    }

    fn build<'k>(
        &self,
        txn: &mut Txn,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Box<dyn Build + 'k>> {
        BuildMembers::begin(txn, db, key, ValueType::Hash)
    }

    fn encoding(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        limits: &Limits,
    ) -> OpResult<&'static str> {
        Ok(match is_within(self, view, db, found, limits.hash)? {
            true => "listpack",
            false => "hashtable",
        })
    }
}

impl Definition for SetType {
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        if !stored.meta.rows {
            let members = packed::items(stored.body);
            return each_packed(members, |member| each(Element::Member(member)));
        }
        let id = Counted::decode(stored.body)?.id;
        let from = keys::element_prefix(tag::SET_MEMBER, id);
        let to = keys::element_end(tag::SET_MEMBER, id);
        source.each_row(db, &from, &to, &mut |row_key, _| {
            each(Element::Member(keys::split_hashed(row_key)?.1))
        })
    }

    fn count(&self, stored: Stored<'_>) -> OpResult<u64> {
        texts(stored)
    }

    fn build<'k>(
        &self,
        txn: &mut Txn,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Box<dyn Build + 'k>> {
        BuildMembers::begin(txn, db, key, ValueType::Set)
    }

    fn encoding(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        limits: &Limits,
    ) -> OpResult<&'static str> {
        let is_integer = |member: &[u8]| num::parse_i64(member).is_some();
        let most = limits.intset_entries;
        Ok(if all_elements(self, view, db, found, most, is_integer)? {
            "intset"
        } else if is_within(self, view, db, found, limits.set)? {
            "listpack"
        } else {
            "hashtable"
        })
    }

    fn sortable<'k>(
        &self,
        view: &mut View,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Option<Box<dyn Sortable + 'k>>> {
        let set = Members::load(view, db, key, ValueType::Set)?;
        Ok(set.map(|set| Box::new(set) as Box<dyn Sortable>))
    }

    fn scored(&self, db: DbIndex, found: KeyMeta) -> OpResult<Box<dyn Scored>> {
        Ok(Box::new(Members::from_meta(db, found)?))
    }
}

impl Sortable for Members {
    fn len(&self) -> u64 {
        Members::len(self)
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn elements(&self, view: &mut View, range: Range<u64>, _: Direction) -> OpResult<Vec<Vec<u8>>> {
        let (mut elements, mut at) = (Vec::new(), 0);
        Members::for_each(self, view, |member, _| {
            if at >= range.end {
                return ControlFlow::Break(());
            }
            if at >= range.start {
                elements.push(member.to_vec());
            }
            at += 1;
            ControlFlow::Continue(())
        })?;
        Ok(elements)
    }
}

/// All members have the score 1.
impl Scored for Members {
    fn len(&self) -> u64 {
        Members::len(self)
    }

    fn score(&self, view: &mut View, member: &[u8]) -> OpResult<Option<f64>> {
        Ok(self.contains(view, member)?.then_some(1.0))
    }

    fn for_each(&self, view: &mut View, each: EachScored<'_>) -> OpResult<()> {
        let mut done = Ok(());
        Members::for_each(self, view, |member, _| {
            done = each(1.0, member);
            match done {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        done
    }

    fn walk(&self) -> NextScored<'_> {
        let (mut walk, mut chunk) = (Walk::one_of(1), Chunk::default());
        Box::new(move |view, elements| {
            self.fill(view, &mut walk, &mut chunk)?;
            elements.clear();
            elements.extend(chunk.iter().map(|m| (1.0, Member::from_slice(m))));
            Ok(!elements.is_empty())
        })
    }
}

/// A hash or a set that is being built.
struct BuildMembers<'k> {
    members: Members,
    value_type: ValueType,
    key: &'k [u8],
}

impl<'k> BuildMembers<'k> {
    fn begin(
        txn: &mut Txn,
        db: DbIndex,
        key: &'k [u8],
        value_type: ValueType,
    ) -> OpResult<Box<dyn Build + 'k>> {
        let members = Members::open(txn, db, key, value_type)?;
        Ok(Box::new(BuildMembers {
            members,
            value_type,
            key,
        }))
    }
}

impl Build for BuildMembers<'_> {
    /// Expired fields are left out; other fields lose their expiry.
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError> {
        let is_hash = self.value_type == ValueType::Hash;
        let is_new = match element {
            Element::Member(member) if !is_hash => self.members.insert(txn, member, &[])?,
            Element::Field { expire_ms, .. }
                if is_hash && expire_ms.is_some() && expire_ms <= txn.expiry_now_ms() =>
            {
                return Ok(Added::Uncounted);
            }
            Element::Field { field, value, .. } if is_hash => {
                self.members.insert(txn, field, value)?
            }
            _ => return Err(of_another_type()),
        };
        Ok(if is_new { Added::New } else { Added::Repeated })
    }

    fn collection(&self) -> Option<CollectionId> {
        self.members.collection()
    }

    fn counted_tags(&self) -> &'static [u8] {
        self.value_type.element_tags()
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        Ok(self.members.save(txn, self.key)?)
    }
}
