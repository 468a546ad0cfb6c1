//! A stream taken apart: all that belongs to it, in the order in which it is
//! written and read again.

use super::{StreamBody, StreamId};
use crate::encoding::stream::{
    ConsumerRow, GroupRow, PendingRow, consumer_key, decode_number, entry_key, entry_of,
    group_rows, owned_key, split_group_key,
};
use crate::encoding::{CollectionId, RowKey, keys, tag};
use crate::rdb::{StreamPart, StreamState};
use crate::storage::DbIndex;
use crate::types::OpResult;
use crate::types::source::Source;

/// Called with one part after the other.
pub type EachPart<'e> = &'e mut dyn FnMut(StreamPart<'_>) -> OpResult<()>;

/// Calls `each` with id and row of all entries.
pub fn each_entry(
    source: &mut impl Source,
    db: DbIndex,
    body: &StreamBody,
    each: &mut dyn FnMut(StreamId, &[u8]) -> OpResult<()>,
) -> OpResult<()> {
    if body.length == 0 {
        return Ok(());
    }
    let from = entry_key(body.id, body.first);
    let to = keys::element_end(tag::STREAM_ENTRY, body.id);
    source.each_row(db, &from, &to, &mut |key, row| each(entry_of(key)?, row))
}

/// Calls `each` with all parts of a stream.
pub fn each_part(
    source: &mut impl Source,
    db: DbIndex,
    body: &StreamBody,
    each: EachPart<'_>,
) -> OpResult<()> {
    each_entry(source, db, body, &mut |id, fields| {
        each(StreamPart::Entry { id, fields })
    })?;
    each(StreamPart::State(StreamState {
        length: body.length,
        first: body.first,
        last: body.last,
        deleted: body.deleted,
        added: body.added,
        groups: body.groups,
    }))?;
    let mut groups: Vec<(Vec<u8>, GroupRow)> = Vec::new();
    let from = keys::element_prefix(tag::STREAM_GROUP, body.id);
    let to = keys::element_end(tag::STREAM_GROUP, body.id);
    source.each_row(db, &from, &to, &mut |key, row| {
        groups.push((split_group_key(key)?.to_vec(), GroupRow::decode(row)?));
        Ok(())
    })?;
    for (name, group) in groups {
        each_part_of_group(source, db, body.id, (&name, &group), each)?;
    }
    Ok(())
}

fn each_part_of_group(
    source: &mut impl Source,
    db: DbIndex,
    id: CollectionId,
    (name, group): (&[u8], &GroupRow),
    each: EachPart<'_>,
) -> OpResult<()> {
    each(StreamPart::Group {
        name,
        last: group.last,
        read: Some(group.read),
        pending: group.pending,
    })?;
    let (from, to) = group_rows(tag::STREAM_PENDING, id, group.number);
    source.each_row(db, &from, &to, &mut |key, row| {
        let pending = PendingRow::decode(row)?;
        each(StreamPart::Pending {
            id: entry_of(key)?,
            delivered_ms: pending.delivered_ms,
            deliveries: pending.deliveries,
        })
    })?;
    each(StreamPart::Consumers(group.consumers))?;
    let mut numbers = Vec::new();
    let (from, to) = group_rows(tag::STREAM_CONSUMER_NAME, id, group.number);
    source.each_row(db, &from, &to, &mut |_, row| {
        numbers.push(decode_number(row)?);
        Ok(())
    })?;
    for number in numbers {
        let from = consumer_key(id, group.number, number);
        source.each_row(db, &from, &just_after(&from), &mut |_, row| {
            let consumer = ConsumerRow::decode(row)?;
            each(StreamPart::Consumer {
                name: &consumer.name,
                seen_ms: consumer.seen_ms,
                active_ms: consumer.active_ms,
                pending: consumer.pending,
            })
        })?;
        let from = owned_key(id, group.number, number, StreamId::MIN);
        let to = just_after(&owned_key(id, group.number, number, StreamId::MAX));
        source.each_row(db, &from, &to, &mut |key, _| {
            each(StreamPart::Owned(entry_of(key)?))
        })?;
    }
    Ok(())
}

/// The first key after this one.
fn just_after(key: &RowKey) -> RowKey {
    let mut end = key.clone();
    end.push(0);
    end
}
