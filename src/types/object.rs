//! What Redis would call the form of a value (OBJECT ENCODING).
//!
//! How a value stands on disk here follows other rules and is nobody's business,
//! but clients and tests look at these names. They are judged by the value as
//! it is now, within the limits that Redis has; a collection that once was larger
//! is not remembered to have been so. Of a string the meta row remembers how it
//! came to be ([`StringForm`]), also over a restart, which Redis forgets. Where a
//! command changed nothing (SETBIT of a bit that was as it is), nothing was written.

use super::OpResult;
use crate::base::num;
use crate::encoding::meta::{Counted, StringForm};
use crate::encoding::reader::Reader;
use crate::encoding::{CollectionId, Corrupt, ValueType, keys, packed, tag};
use crate::storage::Direction;
use crate::storage::{DbIndex, KeyMeta, View};

/// Elements and bytes of one element up to which a collection is a listpack.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Elements.
    pub entries: u64,
    /// Bytes.
    pub value_bytes: u64,
}

/// Redis' limits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of hashes.
    pub hash: Limit,
    /// Of sets.
    pub set: Limit,
    /// Members up to which a set of integers is an intset.
    pub intset_entries: u64,
    /// Of sorted sets.
    pub zset: Limit,
    /// Elements of a list; or, negative, the number of a size.
    pub list_size: i32,
}

/// Longest string that Redis keeps in one piece with its head.
const EMBSTR_MAX: usize = 44;

/// The name of a value's form.
pub fn encoding(
    view: &mut View,
    db: DbIndex,
    found: &KeyMeta,
    limits: &Limits,
) -> OpResult<&'static str> {
    Ok(match found.meta.kind {
        ValueType::String if found.meta.rows || found.meta.form == StringForm::Raw => "raw",
        ValueType::String if integer(found).is_some() => "int",
        ValueType::String if found.body.len() <= EMBSTR_MAX => "embstr",
        ValueType::String => "raw",
        ValueType::Hash => match within(view, db, found, limits.hash)? {
            true => "listpack",
            false => "hashtable",
        },
        ValueType::Zset => match within(view, db, found, limits.zset)? {
            true => "listpack",
            false => "skiplist",
        },
        ValueType::Set => {
            let all_integers = Limit {
                entries: limits.intset_entries,
                value_bytes: u64::MAX,
            };
            let is_integer = |member: &[u8]| num::parse_i64(member).is_some();
            if all_elements(view, db, found, all_integers, is_integer)? {
                "intset"
            } else if within(view, db, found, limits.set)? {
                "listpack"
            } else {
                "hashtable"
            }
        }
        ValueType::List => match list_fits(view, db, found, limits.list_size)? {
            true => "listpack",
            false => "quicklist",
        },
        ValueType::Stream => "stream",
    })
}

/// Numbers of which Redis has one object each for all values.
const SHARED: std::ops::Range<i64> = 0..10_000;

/// Whether Redis would share the value with all others that are the same number.
pub fn is_shared(found: &KeyMeta) -> bool {
    integer(found).is_some_and(|number| SHARED.contains(&number))
}

/// The number that a value is kept as.
fn integer(found: &KeyMeta) -> Option<i64> {
    let meta = &found.meta;
    let bytes = meta.kind == ValueType::String && !meta.rows && meta.form == StringForm::Given;
    bytes.then(|| num::parse_i64(&found.body)).flatten()
}

fn within(view: &mut View, db: DbIndex, found: &KeyMeta, limit: Limit) -> OpResult<bool> {
    let fits = |element: &[u8]| element.len() as u64 <= limit.value_bytes;
    all_elements(view, db, found, limit, fits)
}

/// Whether there are no more elements than the limit has, and all pass the test.
fn all_elements(
    view: &mut View,
    db: DbIndex,
    found: &KeyMeta,
    limit: Limit,
    mut test: impl FnMut(&[u8]) -> bool,
) -> OpResult<bool> {
    let kind = found.meta.kind;
    if found.meta.rows && Counted::decode(&found.body)?.count > limit.entries {
        return Ok(false);
    }
    let mut elements = 0;
    let all = each_element(view, db, found, |element| {
        elements += 1;
        test(element)
    })?;
    let entries = match kind {
        ValueType::Hash => elements / 2,
        _ => elements,
    };
    Ok(all && entries <= limit.entries)
}

/// Whether a list would be one listpack.
fn list_fits(view: &mut View, db: DbIndex, found: &KeyMeta, size: i32) -> OpResult<bool> {
    const HEADER_AND_END: u64 = 7;
    let (max_entries, max_bytes) = match size {
        0.. => (u64::from(size.unsigned_abs()).max(1), 8 << 10),
        -5..=-1 => (u64::MAX, 2048 << size.unsigned_abs()),
        _ => (u64::MAX, 64 << 10),
    };
    let (mut entries, mut bytes) = (0, HEADER_AND_END);
    each_element(view, db, found, |item| {
        entries += 1;
        bytes += listpack_bytes(item);
        entries <= max_entries && bytes <= max_bytes
    })
}

/// What an element takes in a listpack.
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

/// Calls `each` with all elements (of a hash: fields and values) until it
/// returns false; says whether it never did.
fn each_element(
    view: &mut View,
    db: DbIndex,
    found: &KeyMeta,
    mut each: impl FnMut(&[u8]) -> bool,
) -> OpResult<bool> {
    let kind = found.meta.kind;
    if !found.meta.rows {
        if kind == ValueType::Zset {
            for entry in packed::scored(&found.body) {
                if !each(entry?.1) {
                    return Ok(false);
                }
            }
        } else {
            for item in packed::items(&found.body) {
                if !each(item?) {
                    return Ok(false);
                }
            }
        }
        return Ok(true);
    }
    let id = CollectionId(Reader::new(&found.body, "meta id").u64()?);
    let Some(&tag) = kind.element_tags().first() else {
        return Err(Corrupt("meta type").into());
    };
    let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
    let mut scan = view.scan(db, &from, &to, Direction::Forward)?;
    while let Some((row_key, value)) = scan.next()? {
        let go_on = match tag {
            tag::LIST_ITEM => each(value),
            tag::HASH_FIELD => each(keys::split_hashed(row_key)?.1) && each(value),
            _ => each(keys::split_hashed(row_key)?.1),
        };
        if !go_on {
            return Ok(false);
        }
    }
    Ok(true)
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
            // 16,383 bytes with their head take a third byte at the end.
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
