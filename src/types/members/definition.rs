//! The definitions of hashes and sets; see [`crate::types::definition`].

use super::Members;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::encoding::meta::Counted;
use crate::encoding::timed::{Entries, Entry, entries};
use crate::encoding::{CollectionId, Meta, ValueType, keys, tag};
use crate::rdb::Element;
use crate::storage::{DbIndex, Direction, KeyMeta, Txn, View};
use crate::types::definition::{
    Added, Build, Definition, Each, EachScored, Limits, Member, NextScored, ROW_OVERHEAD, Scored,
    Sortable, Stored, all_elements, count_packed, each_packed, is_within, of_another_type,
};
use crate::types::hashed::{Chunk, Walk};
use crate::types::source::Source;
use crate::types::timed_rows::TimedRows;
use crate::types::{OpResult, RestoreError};
use std::ops::{ControlFlow, Range};

/// The definition of hashes.
pub struct HashType;

/// The definition of sets.
pub struct SetType;

/// The tag of the rows of members.
fn element_tag(kind: ValueType) -> u8 {
    if kind == ValueType::Set {
        tag::SET_MEMBER
    } else {
        tag::HASH_FIELD
    }
}

/// Bytes of a time.
const TIME_BYTES: u64 = 8;

/// The number of elements.
fn count(stored: Stored<'_>) -> OpResult<u64> {
    if stored.meta.rows {
        return Ok(Counted::decode(stored.body)?.count);
    }
    count_packed(packed_entries(stored))
}

fn packed_entries(stored: Stored<'_>) -> Entries<'_> {
    let Meta { kind, due_ms, .. } = stored.meta;
    entries(stored.body, kind, due_ms.is_some())
}

/// Calls `each` with the members of a value, their values and their expiry, until it breaks.
fn walk(
    source: &mut dyn Source,
    db: DbIndex,
    stored: Stored<'_>,
    each: &mut dyn FnMut(Entry<'_>) -> OpResult<ControlFlow<()>>,
) -> OpResult<ControlFlow<()>> {
    if !stored.meta.rows {
        return each_packed(packed_entries(stored), each);
    }
    let id = Counted::decode(stored.body)?.id;
    let tag = element_tag(stored.meta.kind);
    let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
    let mut each_row = |row_key: &[u8], row: &[u8], expire_ms| {
        each(Entry {
            member: keys::split_hashed(row_key)?.1,
            value: row,
            expire_ms,
        })
    };
    match stored.meta.due_ms {
        UnixMs::NONE => source.each_row(db, &from, &to, &mut |row_key, row| {
            each_row(row_key, row, UnixMs::NONE)
        }),
        _ => TimedRows { db, tag, id }.walk(source, &from, &to, &mut each_row),
    }
}

impl Definition for HashType {
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        walk(source, db, stored, &mut |entry| {
            each(Element::Field {
                field: entry.member,
                value: entry.value,
                expire_ms: entry.expire_ms,
            })
        })
    }

    fn count(&self, stored: Stored<'_>) -> OpResult<u64> {
        count(stored)
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
        let is_small = is_within(self, view, db, found, limits.hash)?;
        Ok(match (is_small, found.meta.due_ms) {
            (true, UnixMs::NONE) => "listpack",
            (true, _) => "listpackex",
            (false, _) => "hashtable",
        })
    }

    /// A field with a time has two rows more: the time, and its place in the order of times.
    fn row_bytes(&self, element: &Element<'_>) -> Option<u64> {
        let bytes = element.bytes() as u64 + ROW_OVERHEAD;
        Some(match *element {
            Element::Field {
                field, expire_ms, ..
            } if expire_ms.is_some() => {
                bytes + 2 * (field.len() as u64 + TIME_BYTES + ROW_OVERHEAD)
            }
            _ => bytes,
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
        walk(source, db, stored, &mut |entry| {
            each(Element::Member {
                member: entry.member,
                expire_ms: entry.expire_ms,
            })
        })
    }

    fn count(&self, stored: Stored<'_>) -> OpResult<u64> {
        count(stored)
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
        let (most, has_times) = (limits.intset_entries, found.meta.due_ms.is_some());
        Ok(
            if has_times && is_within(self, view, db, found, limits.set)? {
                "listpackex"
            } else if has_times {
                "hashtable"
            } else if all_elements(self, view, db, found, most, is_integer)? {
                "intset"
            } else if is_within(self, view, db, found, limits.set)? {
                "listpack"
            } else {
                "hashtable"
            },
        )
    }

    /// A member with a time has it in its row, and a row more: its place in the order of times.
    fn row_bytes(&self, element: &Element<'_>) -> Option<u64> {
        let bytes = element.bytes() as u64 + ROW_OVERHEAD;
        Some(match element {
            Element::Member { expire_ms, .. } if expire_ms.is_some() => 2 * (bytes + TIME_BYTES),
            _ => bytes,
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

    fn scored(&self, view: &View, db: DbIndex, found: KeyMeta) -> OpResult<Box<dyn Scored>> {
        Ok(Box::new(Members::from_meta(
            db,
            found,
            view.expiry_now_ms(),
        )?))
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
    /// Fields and members whose time is over are left out, unless the server is a replica.
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError> {
        let is_hash = self.value_type == ValueType::Hash;
        let (member, value, expire_ms) = match element {
            Element::Member { member, expire_ms } if !is_hash => (member, &[][..], expire_ms),
            Element::Field {
                field,
                value,
                expire_ms,
            } if is_hash => (field, value, expire_ms),
            _ => return Err(of_another_type()),
        };
        if element.is_over(txn.expiry_now_ms()) {
            return Ok(Added::Over);
        }
        let is_new = self.members.insert(txn, member, value)?;
        if expire_ms.is_some() {
            self.members.set_time(txn, member, expire_ms)?;
        }
        Ok(if is_new { Added::New } else { Added::Repeated })
    }

    fn collection(&self) -> Option<CollectionId> {
        self.members.collection()
    }

    fn counted_tags(&self) -> &'static [u8] {
        if self.value_type == ValueType::Set {
            &[tag::SET_MEMBER]
        } else {
            &[tag::HASH_FIELD]
        }
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        Ok(self.members.save(txn, self.key)?)
    }
}
