//! The definition of lists; see [`crate::types::definition`].

use super::{End, List};
use crate::base::num;
use crate::encoding::meta::ListSpan;
use crate::encoding::{CollectionId, keys, packed, tag};
use crate::rdb::Element;
use crate::storage::{DbIndex, Direction, KeyMeta, Txn, View};
use crate::types::definition::{
    Added, Build, Definition, Each, Hash, Limits, Sortable, Stored, count_packed, each_packed,
    of_another_type, sha1,
};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use std::ops::{ControlFlow, Range};

/// The definition of lists.
pub struct ListType;

impl Definition for ListType {
    /// Head first.
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        if !stored.meta.rows {
            return each_packed(packed::items(stored.body), |item| each(Element::Item(item)));
        }
        let span = ListSpan::decode(stored.body)?;
        let from = keys::indexed(tag::LIST_ITEM, span.id, span.head);
        let to = keys::indexed(tag::LIST_ITEM, span.id, span.tail);
        source.each_row(db, &from, &to, &mut |_, row| each(Element::Item(row)))
    }

    fn count(&self, stored: Stored<'_>) -> OpResult<u64> {
        if stored.meta.rows {
            return Ok(ListSpan::decode(stored.body)?.len());
        }
        count_packed(packed::items(stored.body))
    }

    fn build<'k>(
        &self,
        txn: &mut Txn,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Box<dyn Build + 'k>> {
        Ok(Box::new(List::load_or_new(txn, db, key)?))
    }

    fn encoding(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        limits: &Limits,
    ) -> OpResult<&'static str> {
        const HEADER_AND_END: u64 = 7;
        let size = limits.list_size;
        let (max_entries, max_bytes) = match size {
            0.. => (u64::from(size.unsigned_abs()).max(1), 8 << 10),
            -5..=-1 => (u64::MAX, 2048 << size.unsigned_abs()),
            _ => (u64::MAX, 64 << 10),
        };
        let (mut entries, mut bytes, mut fits) = (0, HEADER_AND_END, true);
        self.walk(view, db, Stored::of(found), &mut |element| {
            if let Element::Item(item) = element {
                entries += 1;
                bytes += listpack_bytes(item);
            }
            fits = entries <= max_entries && bytes <= max_bytes;
            Ok(match fits {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })
        .map(drop)?;
        Ok(if fits { "listpack" } else { "quicklist" })
    }

    /// The order counts: each item is hashed together with all before it.
    fn digest(&self, view: &mut View, db: DbIndex, found: &KeyMeta) -> OpResult<Hash> {
        let mut sum = Hash::default();
        self.walk(view, db, Stored::of(found), &mut |element| {
            if let Element::Item(item) = element {
                sum = sha1(&[&sum, item]);
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        Ok(sum)
    }

    fn sortable<'k>(
        &self,
        view: &mut View,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Option<Box<dyn Sortable + 'k>>> {
        let list = List::load(view, db, key)?;
        Ok(list.map(|list| Box::new(list) as Box<dyn Sortable>))
    }
}

impl Sortable for List<'_> {
    fn len(&self) -> u64 {
        List::len(self)
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
        let from_head = match direction {
            Direction::Forward => range,
            // The range counts from the tail.
            Direction::Backward => List::len(self) - range.end..List::len(self) - range.start,
        };
        self.read(view, from_head, |item| elements.push(item.to_vec()))?;
        if direction == Direction::Backward {
            elements.reverse();
        }
        Ok(elements)
    }
}

impl Build for List<'_> {
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError> {
        let Element::Item(item) = element else {
            return Err(of_another_type());
        };
        self.push(txn, End::Tail, &[item])?;
        Ok(Added::New)
    }

    fn collection(&self) -> Option<CollectionId> {
        List::collection(self)
    }

    fn counted_tags(&self) -> &'static [u8] {
        &[tag::LIST_ITEM]
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        Ok(self.save(txn)?)
    }
}

/// Bytes of an item in a listpack.
fn listpack_bytes(item: &[u8]) -> u64 {
    let encoded = match num::parse_i64(item) {
        Some(0..=127) => 1,
        Some(-4096..=4095) => 2,
        Some(-0x8000..=0x7FFF) => 3,
        Some(-0x80_0000..=0x7F_FFFF) => 4,
        Some(-0x8000_0000..=0x7FFF_FFFF) => 5,
        Some(_) => 9,
        None => match item.len() as u64 {
            len @ 0..=63 => len + 1,
            len @ 64..=4095 => len + 2,
            len => len + 5,
        },
    };
    let back = match encoded {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    encoded + back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_at_the_bounds_of_a_listpack() {
        for (len, bytes) in [
            (0, 2),
            (63, 65),
            (64, 67),
            (125, 128),
            (126, 130),
            (4095, 4099),
            (4096, 4103),
            // From 16,383 bytes on, including the head, the trailing length takes a
            // third byte.
            (16_377, 16_384),
            (16_378, 16_386),
            (2_097_145, 2_097_153),
            (2_097_146, 2_097_155),
        ] {
            assert_eq!(listpack_bytes(&vec![b'x'; len]), bytes, "{len}");
        }
        for (number, bytes) in [("127", 2), ("-1", 3), ("4096", 4), ("32768", 5)] {
            assert_eq!(listpack_bytes(number.as_bytes()), bytes, "{number}");
        }
    }
}
