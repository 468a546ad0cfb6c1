//! The lag of groups: of all entries that were ever added to the stream, how many a
//! group has read, and how many follow.
//!
//! Both numbers are exact or unknown. Deleted entries in the middle make them unknown,
//! since it is not recorded on which side of an id they were.

use crate::encoding::stream::{GroupRow, StreamBody, StreamId, UNKNOWN};

/// The number of read entries that a client has set, clamped to the number ever added.
pub(super) fn checked(stream: &StreamBody, read: i64) -> i64 {
    read.min(i64::try_from(stream.added).unwrap_or(i64::MAX))
}

/// The lag of a group in entries.
pub(super) fn lag(stream: &StreamBody, group: &GroupRow) -> Option<u64> {
    if stream.added == 0 || stream.length == 0 {
        return Some(0);
    }
    if group.last < stream.first && stream.deleted < stream.first {
        return Some(stream.length);
    }
    let read = match group.read {
        UNKNOWN => read_at(stream, group.last),
        _ if has_gaps_after(stream, group.last) => read_at(stream, group.last),
        read => read,
    };
    let read = u64::try_from(read).ok()?;
    Some(stream.added.saturating_sub(read))
}

/// The number of read entries of a group after delivery of `id`.
pub(super) fn read_after(stream: &StreamBody, group: &GroupRow, id: StreamId) -> i64 {
    let counts =
        group.read != UNKNOWN && group.last >= stream.first && !has_gaps_after(stream, group.last);
    match counts {
        true => group.read.saturating_add(1),
        false if stream.added > 0 => read_at(stream, id),
        false => group.read,
    }
}

/// Whether entries from this id on may have been deleted.
fn has_gaps_after(stream: &StreamBody, id: StreamId) -> bool {
    stream.length > 0 && stream.first <= stream.deleted && id <= stream.deleted
}

/// The number of entries up to this id, if that can be known.
pub(super) fn read_at(stream: &StreamBody, id: StreamId) -> i64 {
    let added = i64::try_from(stream.added).unwrap_or(i64::MAX);
    let length = i64::try_from(stream.length).unwrap_or(i64::MAX);
    if stream.added == 0 {
        return 0;
    }
    if id == stream.last || stream.length == 0 && id < stream.last {
        return added;
    }
    if id > stream.last {
        return UNKNOWN;
    }
    let whole = stream.deleted < stream.first;
    match id.cmp(&stream.first) {
        std::cmp::Ordering::Less if whole => added.saturating_sub(length),
        std::cmp::Ordering::Equal if whole => added.saturating_sub(length).saturating_add(1),
        _ => UNKNOWN,
    }
}
