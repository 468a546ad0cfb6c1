//! Reads values of every type and encoding, element by element.

use super::input::Input;
use super::module::{self, ModuleId};
use super::reader::{ELEMENT_TIME, Reader, checked_time, parse_score};
use super::{Dialect, Element, Error, Result, intset, kind, listpack, stream, ziplist, zipmap};
use crate::base::num;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;

/// The value type of a type number, except that of values of modules: the id that follows
/// decides about their types.
///
/// # Errors
/// [`Error::Unsupported`] for types that are known but not supported.
pub fn kind_of(number: u8) -> Result<ValueType> {
    Ok(match number {
        kind::STRING => ValueType::String,
        kind::LIST | kind::LIST_ZIPLIST | kind::LIST_QUICKLIST | kind::LIST_QUICKLIST_2 => {
            ValueType::List
        }
        kind::SET | kind::SET_INTSET | kind::SET_LISTPACK => ValueType::Set,
        kind::ZSET | kind::ZSET_2 | kind::ZSET_ZIPLIST | kind::ZSET_LISTPACK => ValueType::Zset,
        kind::HASH
        | kind::HASH_ZIPMAP
        | kind::HASH_ZIPLIST
        | kind::HASH_LISTPACK
        | kind::HASH_METADATA_PRE_GA
        | kind::HASH_LISTPACK_EX_PRE_GA
        | kind::HASH_METADATA
        | kind::HASH_LISTPACK_EX => ValueType::Hash,
        kind::STREAM_LISTPACKS
        | kind::STREAM_LISTPACKS_2
        | kind::STREAM_LISTPACKS_3
        | kind::STREAM_LISTPACKS_4
        | kind::STREAM_LISTPACKS_5 => ValueType::Stream,
        kind::MODULE_PRE_GA | kind::MODULE_2 => {
            return Err(Error::Unsupported("values of modules"));
        }
        // Arrays, hashes with templates, and rate limits.
        28..=33 => return Err(Error::Unsupported("values of a type of newer servers")),
        _ => return Err(Error::Corrupt("a type that does not exist")),
    })
}

/// A list node with a single item.
const PLAIN_NODE: u64 = 1;
/// A list node with a listpack.
const PACKED_NODE: u64 = 2;

/// Reads a value with this type number and calls `each` with its elements. Returns their
/// number, which is at least one.
///
/// # Errors
/// [`Error::Empty`] for a collection without elements; its bytes are consumed.
pub fn read_value<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    number: u8,
    dialect: Dialect,
    mut each: impl FnMut(Element<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let mut a = Vec::new();
    let count = match number {
        kind::STRING => {
            reader.string(&mut a)?;
            each(Element::String(&a))?;
            1
        }
        kind::LIST => strings(reader, |item| each(Element::Item(item)))?,
        kind::SET => strings(reader, |member| each(Element::member(member)))?,
        kind::ZSET | kind::ZSET_2 => {
            let count = reader.length()?;
            for _ in 0..count {
                reader.string(&mut a)?;
                let score = match number {
                    kind::ZSET => reader.text_double()?,
                    _ => reader.double()?,
                };
                each(Element::Scored(score, &a))?;
            }
            count
        }
        kind::HASH => {
            let mut b = Vec::new();
            let count = reader.length()?;
            for _ in 0..count {
                reader.string(&mut a)?;
                reader.string(&mut b)?;
                each(field(&a, &b, UnixMs::NONE))?;
            }
            count
        }
        kind::LIST_QUICKLIST | kind::LIST_QUICKLIST_2 => {
            quicklist(reader, number, |item| each(Element::Item(item)))?
        }
        kind::MODULE_2 => {
            let id = ModuleId(reader.length()?);
            module::read(reader, id, &mut each)?
        }
        kind::STREAM_LISTPACKS
        | kind::STREAM_LISTPACKS_2
        | kind::STREAM_LISTPACKS_3
        | kind::STREAM_LISTPACKS_4
        | kind::STREAM_LISTPACKS_5 => stream::read(reader, number, &mut each)?,
        kind::HASH_METADATA_PRE_GA if dialect == Dialect::Valkey => valkey_hash(reader, &mut each)?,
        kind::HASH_METADATA_PRE_GA | kind::HASH_METADATA => {
            let first_ms = match number {
                kind::HASH_METADATA => Some(reader.time_ms()?),
                _ => None,
            };
            expiring_hash(reader, first_ms, &mut each)?
        }
        _ => {
            if number == kind::HASH_LISTPACK_EX {
                // The earliest expiry of all fields, which is redundant.
                reader.time_ms()?;
            }
            reader.string(&mut a)?;
            packed(number, &a, &mut each)?
        }
    };
    match count {
        0 => Err(Error::Empty.into()),
        _ => Ok(count),
    }
}

/// Reads a value that is one packed string.
fn packed<E: From<Error>>(
    number: u8,
    bytes: &[u8],
    each: &mut impl FnMut(Element<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    match number {
        kind::LIST_ZIPLIST => ziplist::for_each(bytes, |item| each(Element::Item(item))),
        kind::SET_INTSET => intset::for_each(bytes, |member| each(Element::member(member))),
        kind::SET_LISTPACK => listpack::for_each(bytes, |member| each(Element::member(member))),
        kind::HASH_ZIPMAP => {
            zipmap::for_each(bytes, |name, value| each(field(name, value, UnixMs::NONE)))
        }
        kind::ZSET_ZIPLIST | kind::ZSET_LISTPACK => {
            let mut group = Group::<2>::default();
            let each = |element: &[u8]| {
                let Some([member, score]) = group.take(element) else {
                    return Ok(());
                };
                each(Element::Scored(parse_score(score)?, member))
            };
            let count = match number {
                kind::ZSET_ZIPLIST => ziplist::for_each(bytes, each)?,
                _ => listpack::for_each(bytes, each)?,
            };
            Ok(group.count(count)?)
        }
        kind::HASH_ZIPLIST | kind::HASH_LISTPACK => {
            let mut group = Group::<2>::default();
            let each = |element: &[u8]| match group.take(element) {
                Some([name, value]) => each(field(name, value, UnixMs::NONE)),
                None => Ok(()),
            };
            let count = match number {
                kind::HASH_ZIPLIST => ziplist::for_each(bytes, each)?,
                _ => listpack::for_each(bytes, each)?,
            };
            Ok(group.count(count)?)
        }
        kind::HASH_LISTPACK_EX_PRE_GA | kind::HASH_LISTPACK_EX => {
            let mut group = Group::<3>::default();
            let mut last_ms = UnixMs(1);
            let count = listpack::for_each(bytes, |element| {
                let Some([name, value, expire_ms]) = group.take(element) else {
                    return Ok(());
                };
                let expire_ms = num::parse_u64(expire_ms).map(UnixMs).ok_or(ELEMENT_TIME)?;
                // In the order of their times, and those without one behind them.
                if expire_ms.is_some() && (last_ms == UnixMs::NONE || expire_ms < last_ms) {
                    return Err(Error::Corrupt("times of fields that are out of order").into());
                }
                last_ms = expire_ms;
                each(field(name, value, checked_time(expire_ms)?))
            })?;
            Ok(group.count(count)?)
        }
        _ => Err(Error::Corrupt("a type that does not exist").into()),
    }
}

/// Collects `N` elements that form one.
struct Group<const N: usize> {
    held: [Vec<u8>; N],
    len: usize,
}

impl<const N: usize> Default for Group<N> {
    fn default() -> Self {
        Group {
            held: std::array::from_fn(|_| Vec::new()),
            len: 0,
        }
    }
}

impl<const N: usize> Group<N> {
    /// Adds an element; returns the group if it is complete.
    fn take(&mut self, element: &[u8]) -> Option<[&[u8]; N]> {
        let place = self.held.get_mut(self.len)?;
        place.clear();
        place.extend_from_slice(element);
        self.len = (self.len + 1) % N;
        (self.len == 0).then(|| self.held.each_ref().map(Vec::as_slice))
    }

    /// The number of groups in that many elements.
    fn count(&self, elements: u64) -> Result<u64> {
        match self.len {
            0 => Ok(elements / N as u64),
            _ => Err(Error::Corrupt("an element without its other half")),
        }
    }
}

fn field<'a>(field: &'a [u8], value: &'a [u8], expire_ms: UnixMs) -> Element<'a> {
    Element::Field {
        field,
        value,
        expire_ms,
    }
}

fn strings<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let mut string = Vec::new();
    let count = reader.length()?;
    for _ in 0..count {
        reader.string(&mut string)?;
        each(&string)?;
    }
    Ok(count)
}

fn quicklist<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    number: u8,
    mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let mut node = Vec::new();
    let mut count = 0u64;
    for _ in 0..reader.length()? {
        let container = match number {
            kind::LIST_QUICKLIST_2 => Some(reader.length()?),
            _ => None,
        };
        reader.string(&mut node)?;
        count += match container {
            None => ziplist::for_each(&node, &mut each)?,
            Some(PACKED_NODE) => listpack::for_each(&node, &mut each)?,
            Some(PLAIN_NODE) => {
                each(&node)?;
                1
            }
            Some(_) => return Err(Error::Corrupt("a node of a list").into()),
        };
    }
    Ok(count)
}

/// A hash of Redis 7.4 with field expiry. With `first_ms`, expiry times are relative to
/// that, plus one.
fn expiring_hash<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    first_ms: Option<UnixMs>,
    each: &mut impl FnMut(Element<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let (mut name, mut value) = (Vec::new(), Vec::new());
    let count = reader.length()?;
    for _ in 0..count {
        let time = reader.length()?;
        let expire_ms = match (time, first_ms) {
            (0, _) => UnixMs::NONE,
            (time, None) => UnixMs(time),
            (time, Some(first_ms)) => first_ms + (time - 1),
        };
        let expire_ms = checked_time(expire_ms)?;
        reader.string(&mut name)?;
        reader.string(&mut value)?;
        each(field(&name, &value, expire_ms))?;
    }
    Ok(count)
}

/// A hash of Valkey 9 with field expiry.
fn valkey_hash<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    each: &mut impl FnMut(Element<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let (mut name, mut value) = (Vec::new(), Vec::new());
    let count = reader.length()?;
    for _ in 0..count {
        reader.string(&mut name)?;
        reader.string(&mut value)?;
        let expire_ms = match reader.time_ms()? {
            UnixMs::MAX => UnixMs::NONE,
            // The field had already expired when it was written.
            UnixMs::NONE => UnixMs(1),
            time => checked_time(time)?,
        };
        each(field(&name, &value, expire_ms))?;
    }
    Ok(count)
}
