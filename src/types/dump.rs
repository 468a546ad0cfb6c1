//! Values read out of storage and written in Redis' RDB format.
//!
//! A value comes from a [`Source`]: the transaction of a thread, or a snapshot
//! that stands still. It goes out element by element, so its size does not
//! matter where the caller passes on what is written (see [`write_value`]).

use super::source::Source;
use super::stream::{StreamBody, parts};
use super::{OpError, OpResult, string};
use crate::encoding::meta::{Counted, ListSpan};
use crate::encoding::{CollectionId, Corrupt, Meta, ValueType, keys, packed, tag};
use crate::rdb::encode::{Encoder, HELD_BYTES};
use crate::rdb::stream::{Filling, Writer};
use crate::rdb::{Element, payload};
use crate::storage::DbIndex;

/// A value as its meta row says it is.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// Type, form and expiry.
    pub meta: Meta,
    /// The rest of the meta row.
    pub body: &'a [u8],
}

/// Writes `type ‖ value`, with the key in between if there is one: so files
/// have it. After each element `pass_on` may take away what is written.
pub fn write_value(
    source: &mut impl Source,
    db: DbIndex,
    stored: Stored<'_>,
    key: Option<&[u8]>,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    mut pass_on: impl FnMut(&mut Vec<u8>) -> OpResult<()>,
) -> OpResult<()> {
    let Stored { meta, body } = stored;
    if meta.kind == ValueType::String {
        return match meta.rows {
            false => {
                encoder.value_string(key, body, out);
                pass_on(out)
            }
            true => write_long(source, db, body, key, encoder, out, pass_on),
        };
    }
    if meta.kind == ValueType::Stream {
        return write_stream(source, db, body, key, encoder, out, pass_on);
    }
    encoder.begin(meta.kind, count(stored)?, key);
    each_element(source, db, stored, |element| {
        encoder.element(element, out).map_err(miscounted)?;
        pass_on(out)
    })?;
    encoder.end(out).map_err(miscounted)?;
    pass_on(out)
}

/// The payload of a value, as DUMP returns it.
///
/// # Errors
/// [`OpError::TooLong`] if it gets longer than `max_len`.
pub fn payload(
    source: &mut impl Source,
    db: DbIndex,
    stored: Stored<'_>,
    encoder: &mut Encoder,
    max_len: u64,
) -> OpResult<Vec<u8>> {
    let mut out = Vec::new();
    write_value(source, db, stored, None, encoder, &mut out, |out| {
        match out.len() as u64 <= max_len {
            true => Ok(()),
            false => Err(OpError::TooLong),
        }
    })?;
    payload::seal(&mut out);
    Ok(out)
}

/// A stream. How many nodes its entries take stands before them, so they are read
/// twice.
fn write_stream(
    source: &mut impl Source,
    db: DbIndex,
    body: &[u8],
    key: Option<&[u8]>,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    mut pass_on: impl FnMut(&mut Vec<u8>) -> OpResult<()>,
) -> OpResult<()> {
    let body = StreamBody::decode(body)?;
    let (mut filling, mut nodes) = (Filling::default(), 0);
    parts::each_entry(source, db, &body, &mut |_, fields| {
        nodes += u64::from(filling.begins_node(fields.len()));
        Ok(())
    })?;
    let mut writer = Writer::begin(encoder, nodes, key, out);
    parts::each_part(source, db, &body, &mut |part| {
        writer.part(encoder, part, out).map_err(miscounted)?;
        pass_on(out)
    })
}

/// What is stored does not agree with its own count.
fn miscounted(_: crate::rdb::Error) -> OpError {
    Corrupt("collection count").into()
}

/// How many elements a collection has (of a hash: fields).
pub fn count(stored: Stored<'_>) -> OpResult<u64> {
    let Stored { meta, body } = stored;
    if meta.rows {
        return Ok(match meta.kind {
            ValueType::List => ListSpan::decode(body)?.len(),
            _ => Counted::decode(body)?.count,
        });
    }
    let mut count = 0;
    match meta.kind {
        ValueType::Zset => {
            for entry in packed::scored(body) {
                entry?;
                count += 1;
            }
        }
        kind => {
            for item in packed::items(body) {
                item?;
                count += 1;
            }
            if kind == ValueType::Hash {
                count /= 2;
            }
        }
    }
    Ok(count)
}

/// Calls `each` with all elements of a collection: lists head first, sorted
/// sets from the lowest score on.
pub fn each_element(
    source: &mut impl Source,
    db: DbIndex,
    stored: Stored<'_>,
    mut each: impl FnMut(Element<'_>) -> OpResult<()>,
) -> OpResult<()> {
    let Stored { meta, body } = stored;
    if meta.kind == ValueType::Stream {
        let body = StreamBody::decode(body)?;
        return parts::each_part(source, db, &body, &mut |part| each(Element::Stream(part)));
    }
    if !meta.rows {
        return each_packed(meta.kind, body, each);
    }
    let (tag, from, to) = match meta.kind {
        ValueType::List => {
            let span = ListSpan::decode(body)?;
            let from = keys::indexed(tag::LIST_ITEM, span.id, span.head);
            let to = keys::indexed(tag::LIST_ITEM, span.id, span.tail);
            (tag::LIST_ITEM, from, to)
        }
        kind => {
            let id = Counted::decode(body)?.id;
            // A sorted set is read by score: who loads it gets it in order.
            let tag = kind.element_tags().last().copied();
            let tag = tag.ok_or(Corrupt("meta type"))?;
            let (from, to) = (keys::element_prefix(tag, id), keys::element_end(tag, id));
            (tag, from, to)
        }
    };
    source.each_row(db, &from, &to, &mut |row_key, row| match tag {
        tag::LIST_ITEM => each(Element::Item(row)),
        tag::HASH_FIELD => each(Element::Field {
            field: keys::split_hashed(row_key)?.1,
            value: row,
            expire_ms: 0,
        }),
        tag::SET_MEMBER => each(Element::Member(keys::split_hashed(row_key)?.1)),
        _ => {
            let (score, member) = keys::split_by_score(row_key)?;
            each(Element::Scored(score, member))
        }
    })
}

fn each_packed(
    kind: ValueType,
    body: &[u8],
    mut each: impl FnMut(Element<'_>) -> OpResult<()>,
) -> OpResult<()> {
    if kind == ValueType::Zset {
        for entry in packed::scored(body) {
            let (score, member) = entry?;
            each(Element::Scored(score, member))?;
        }
        return Ok(());
    }
    let mut items = packed::items(body);
    while let Some(item) = items.next() {
        let item = item?;
        each(match kind {
            ValueType::List => Element::Item(item),
            ValueType::Set => Element::Member(item),
            _ => Element::Field {
                field: item,
                value: items.next().ok_or(Corrupt("packed hash"))??,
                expire_ms: 0,
            },
        })?;
    }
    Ok(())
}

/// A string in fragments. Up to some size it is put together, so that it can be
/// compressed; beyond that it goes out as it is.
fn write_long(
    source: &mut impl Source,
    db: DbIndex,
    body: &[u8],
    key: Option<&[u8]>,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    mut pass_on: impl FnMut(&mut Vec<u8>) -> OpResult<()>,
) -> OpResult<()> {
    let Counted { id, count: len } = Counted::decode(body)?;
    source.will_make(len)?;
    if len <= HELD_BYTES as u64 {
        let mut whole = Vec::new();
        each_piece(source, db, id, len, |piece| {
            whole.extend_from_slice(piece);
            Ok(())
        })?;
        encoder.value_string(key, &whole, out);
        return pass_on(out);
    }
    encoder.begin_long_string(key, len, out);
    each_piece(source, db, id, len, |piece| {
        out.extend_from_slice(piece);
        pass_on(out)
    })
}

/// Calls `each` with all bytes of a string in fragments, a piece at a time.
fn each_piece(
    source: &mut impl Source,
    db: DbIndex,
    id: CollectionId,
    len: u64,
    mut each: impl FnMut(&[u8]) -> OpResult<()>,
) -> OpResult<()> {
    const ZEROS: &[u8] = &[0; string::FRAGMENT_LEN as usize];
    let mut at = 0;
    let zeros_until = |at: &mut u64, end: u64, each: &mut dyn FnMut(&[u8]) -> OpResult<()>| {
        while *at < end {
            let step = (end - *at).min(ZEROS.len() as u64);
            each(&ZEROS[..step as usize])?;
            *at += step;
        }
        Ok::<(), OpError>(())
    };
    let (from, to) = (
        keys::element_prefix(tag::FRAGMENT, id),
        keys::element_end(tag::FRAGMENT, id),
    );
    source.each_row(db, &from, &to, &mut |row_key, row| {
        let index = u64::try_from(keys::split_indexed(row_key)?);
        let index = index.map_err(|_| Corrupt("fragment index"))?;
        let start = index.saturating_mul(string::FRAGMENT_LEN);
        if start >= len {
            return Ok(());
        }
        zeros_until(&mut at, start, &mut each)?;
        let room = usize::try_from(len - at).unwrap_or(usize::MAX);
        let piece = &row[..row.len().min(room)];
        at += piece.len() as u64;
        each(piece)
    })?;
    zeros_until(&mut at, len, &mut each)
}
