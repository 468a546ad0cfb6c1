//! Walks over all parts of a stream, in the order of their RDB form.

use super::{StreamBody, StreamId};
use crate::encoding::stream::{
    ConsumerRow, GroupRow, Idempotence, PendingRow, ProducerRow, consumer_key, decode_number,
    entry_key, entry_of, group_rows, owned_key, split_group_key,
};
use crate::encoding::{CollectionId, Corrupt, RowKey, keys, tag};
use crate::rdb::{StreamPart, StreamState};
use crate::storage::DbIndex;
use crate::types::OpResult;
use crate::types::source::Source;
use std::ops::ControlFlow;

/// Called with each part, until it breaks.
pub type EachPart<'e> = &'e mut dyn FnMut(StreamPart<'_>) -> OpResult<ControlFlow<()>>;

/// Called with id and row of each entry, until it breaks.
pub type EachEntry<'e> = &'e mut dyn FnMut(StreamId, &[u8]) -> OpResult<ControlFlow<()>>;

/// Calls `each` with id and row of all entries.
pub(super) fn each_entry(
    source: &mut dyn Source,
    db: DbIndex,
    body: &StreamBody,
    each: EachEntry<'_>,
) -> OpResult<ControlFlow<()>> {
    if body.length == 0 {
        return Ok(ControlFlow::Continue(()));
    }
    let from = entry_key(body.id, body.first);
    let to = keys::element_end(tag::STREAM_ENTRY, body.id);
    source.each_row(db, &from, &to, &mut |key, row| each(entry_of(key)?, row))
}

/// Calls `each` with all parts of a stream.
pub fn each_part(
    source: &mut dyn Source,
    db: DbIndex,
    body: &StreamBody,
    each: EachPart<'_>,
) -> OpResult<ControlFlow<()>> {
    let entries = each_entry(source, db, body, &mut |id, fields| {
        each(StreamPart::Entry { id, fields })
    })?;
    if entries.is_break() {
        return Ok(entries);
    }
    let state = each(StreamPart::State(StreamState {
        length: body.length,
        first: body.first,
        last: body.last,
        deleted: body.deleted,
        added: body.added,
        groups: body.groups,
    }))?;
    if state.is_break() {
        return Ok(state);
    }
    let mut groups: Vec<(Vec<u8>, GroupRow)> = Vec::new();
    let from = keys::element_prefix(tag::STREAM_GROUP, body.id);
    let to = keys::element_end(tag::STREAM_GROUP, body.id);
    source
        .each_row(db, &from, &to, &mut |key, row| {
            groups.push((split_group_key(key)?.to_vec(), GroupRow::decode(row)?));
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    for (name, group) in groups {
        if each_part_of_group(source, db, body.id, (&name, &group), each)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    each_idempotent(source, db, body, each)
}

/// What XADD with IDMP remembers, if it is or was used.
fn each_idempotent(
    source: &mut dyn Source,
    db: DbIndex,
    body: &StreamBody,
    each: EachPart<'_>,
) -> OpResult<ControlFlow<()>> {
    let known = body.idempotence;
    if known == Idempotence::default() {
        return Ok(ControlFlow::Continue(()));
    }
    let mut done = each(StreamPart::Idempotence {
        duration_s: known.duration_s,
        most: known.most,
    })?;
    let mut producers: Vec<(u64, Box<[u8]>)> = Vec::new();
    let from = keys::element_prefix(tag::STREAM_PRODUCER, body.id);
    let to = keys::element_end(tag::STREAM_PRODUCER, body.id);
    source
        .each_row(db, &from, &to, &mut |key, row| {
            let number = key.last_chunk::<8>().ok_or(Corrupt("stream producer"))?;
            producers.push((u64::from_be_bytes(*number), ProducerRow::decode(row)?.name));
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    for (number, name) in producers {
        if done.is_continue() {
            done = each(StreamPart::Producer(&name))?;
        }
        if done.is_continue() {
            let (from, to) = group_rows(tag::STREAM_IID_ORDER, body.id, number);
            done = source.each_row(db, &from, &to, &mut |key, iid| {
                let entry = entry_of(key)?;
                each(StreamPart::Iid { iid, entry })
            })?;
        }
    }
    match done.is_continue() {
        true => each(StreamPart::IidCounts {
            added: known.added,
            duplicates: known.duplicates,
        }),
        false => Ok(done),
    }
}

fn each_part_of_group(
    source: &mut dyn Source,
    db: DbIndex,
    id: CollectionId,
    (name, group): (&[u8], &GroupRow),
    each: EachPart<'_>,
) -> OpResult<ControlFlow<()>> {
    let head = each(StreamPart::Group {
        name,
        last: group.last,
        read: Some(group.read),
        pending: group.pending,
    })?;
    if head.is_break() {
        return Ok(head);
    }
    let (from, to) = group_rows(tag::STREAM_PENDING, id, group.number);
    let mut released = Vec::new();
    let mut pending = source.each_row(db, &from, &to, &mut |key, row| {
        let pending = PendingRow::decode(row)?;
        let id = entry_of(key)?;
        if pending.is_released() {
            released.push((pending.delivered_ms, id));
        }
        each(StreamPart::Pending {
            id,
            delivered_ms: pending.shown_ms(),
            deliveries: pending.deliveries,
        })
    })?;
    released.sort_unstable();
    for (_, id) in released {
        if pending.is_continue() {
            pending = each(StreamPart::Released(id))?;
        }
    }
    if pending.is_break() || each(StreamPart::Consumers(group.consumers))?.is_break() {
        return Ok(ControlFlow::Break(()));
    }
    let mut numbers = Vec::new();
    let (from, to) = group_rows(tag::STREAM_CONSUMER_NAME, id, group.number);
    source
        .each_row(db, &from, &to, &mut |_, row| {
            numbers.push(decode_number(row)?);
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
    for number in numbers {
        let from = consumer_key(id, group.number, number);
        let consumer = source.each_row(db, &from, &just_after(&from), &mut |_, row| {
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
        if consumer.is_break() {
            return Ok(consumer);
        }
        let owned = source.each_row(db, &from, &to, &mut |key, _| {
            each(StreamPart::Owned(entry_of(key)?))
        })?;
        if owned.is_break() {
            return Ok(owned);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The first key after this one.
fn just_after(key: &RowKey) -> RowKey {
    let mut end = key.clone();
    end.push(0);
    end
}
