//! Streams: nodes of entries, the state of the stream, its groups.
//!
//! ```text
//! nodes, and for each   id (16, big-endian) as a string ‖ listpack as a string
//! length ‖ last ‖ [first ‖ deleted ‖ added]                  from 7.0 on
//! groups, and for each  name ‖ last ‖ [read]                 from 7.0 on
//!   pending, and for each    id (16) ‖ delivered ms (8) ‖ deliveries
//!   consumers, and for each  name ‖ seen ms (8) ‖ [active ms (8)]   from 7.2 on
//!     pending, and for each    id (16)
//!   [released, and for each    id (16)]                       from 8.8 on
//! [duration s ‖ most                                          from 8.6 on
//!  producers, and for each   name
//!    ids, and for each         idempotent id ‖ entry
//!  added ‖ duplicates]
//!
//! listpack: entries ‖ deleted ‖ fields ‖ field … ‖ 0 ‖ entry …
//!   entry   flags ‖ ms and sequence, relative to the node's ‖ elements ‖ number of its elements
//!   flags   1: deleted   2: same fields as the node's, so only values follow;
//!           otherwise the number of fields, then fields and values alternately
//! ```
//!
//! An id outside a listpack is two lengths, ms and sequence, or 16 bytes.
//!
//! What is written is the form of Redis 7.0. It has no place for idempotent ids, and every pending
//! entry has a consumer in it: those that were released belong to one without a name.

use super::encode::{Encoder, length};
use super::input::Input;
use super::reader::Reader;
use super::{Element, Error, Result, StreamPart, StreamState, kind, listpack};
use crate::base::num;
use crate::encoding::packed::{self, put_bytes};
use crate::encoding::stream::{StreamId, UNKNOWN};

/// Most entries of a node.
const NODE_ENTRIES: usize = 100;
/// Most bytes of a node, not counting its last entry.
const NODE_BYTES: usize = 64 << 10;

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

const NODE: Error = Error::Corrupt("a node of a stream");
const COUNT: Error = Error::Corrupt("a stream with another length");
const ORDER: Error = Error::Corrupt("the entries of a stream out of order");

/// The fill level of a node. Counting nodes and writing them use the same rule.
#[derive(Debug, Default)]
pub struct Filling {
    entries: usize,
    bytes: usize,
}

impl Filling {
    /// Adds an entry of `bytes` bytes; returns whether it begins a node.
    pub fn begins_node(&mut self, bytes: usize) -> bool {
        let begins = self.entries == 0 || self.entries >= NODE_ENTRIES || self.bytes >= NODE_BYTES;
        if begins {
            *self = Filling::default();
        }
        self.entries += 1;
        self.bytes += bytes;
        begins
    }
}

/// Writes a stream part by part.
#[derive(Debug, Default)]
pub struct Writer {
    filling: Filling,
    /// Ids of the node's entries, and where the fields of each end.
    node: Vec<(StreamId, usize)>,
    fields: Vec<u8>,
    /// The group's entries without a consumer.
    released: Vec<StreamId>,
    /// The number of consumers, until the first one is written.
    consumers: Option<u64>,
}

impl Writer {
    /// Begins a stream of `nodes` nodes; see [`Encoder::begin`] for the key.
    pub fn begin(
        encoder: &mut Encoder,
        nodes: u64,
        key: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Writer {
        out.push(kind::STREAM_LISTPACKS_2);
        if let Some(key) = key {
            encoder.string(key, out);
        }
        length(nodes, out);
        Writer::default()
    }

    /// Writes the next part.
    ///
    /// # Errors
    /// The fields of an entry are invalid.
    pub fn part(
        &mut self,
        encoder: &mut Encoder,
        part: StreamPart<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match part {
            StreamPart::Entry { id, fields } => {
                if self.filling.begins_node(fields.len()) {
                    self.end_node(encoder, out)?;
                }
                self.fields.extend_from_slice(fields);
                self.node.push((id, self.fields.len()));
            }
            StreamPart::State(state) => {
                self.end_node(encoder, out)?;
                length(state.length, out);
                for id in [state.last, state.first, state.deleted] {
                    put_id(id, out);
                }
                length(state.added, out);
                length(state.groups, out);
            }
            StreamPart::Group {
                name,
                last,
                read,
                pending,
            } => {
                encoder.string(name, out);
                put_id(last, out);
                length(read.unwrap_or(UNKNOWN) as u64, out);
                length(pending, out);
            }
            StreamPart::Pending {
                id,
                delivered_ms,
                deliveries,
            } => {
                out.extend_from_slice(&id.encode());
                out.extend_from_slice(&delivered_ms.to_le_bytes());
                length(deliveries, out);
            }
            StreamPart::Released(id) => self.released.push(id),
            StreamPart::Consumers(0) if !self.released.is_empty() => {
                length(1, out);
                self.nameless(encoder, (0, 0), out);
            }
            StreamPart::Consumers(0) => length(0, out),
            StreamPart::Consumers(count) => self.consumers = Some(count),
            StreamPart::Consumer {
                name,
                seen_ms,
                pending,
                ..
            } => {
                let adds_one = !self.released.is_empty() && !name.is_empty();
                if let Some(consumers) = self.consumers.take() {
                    length(consumers.saturating_add(u64::from(adds_one)), out);
                }
                if adds_one {
                    self.nameless(encoder, (0, 0), out);
                }
                if name.is_empty() {
                    self.nameless(encoder, (seen_ms, pending), out);
                } else {
                    encoder.string(name, out);
                    out.extend_from_slice(&seen_ms.to_le_bytes());
                    length(pending, out);
                }
            }
            StreamPart::Owned(id) => out.extend_from_slice(&id.encode()),
            StreamPart::Idempotence { .. }
            | StreamPart::Producer(_)
            | StreamPart::Iid { .. }
            | StreamPart::IidCounts { .. } => {}
        }
        Ok(())
    }

    /// Writes the consumer without a name, which is the first one, with `pending` entries of its
    /// own that follow.
    fn nameless(
        &mut self,
        encoder: &mut Encoder,
        (seen_ms, pending): (i64, u64),
        out: &mut Vec<u8>,
    ) {
        encoder.string(b"", out);
        out.extend_from_slice(&seen_ms.to_le_bytes());
        length(pending.saturating_add(self.released.len() as u64), out);
        for id in self.released.drain(..) {
            out.extend_from_slice(&id.encode());
        }
    }

    fn end_node(&mut self, encoder: &mut Encoder, out: &mut Vec<u8>) -> Result<()> {
        let Some((first, _)) = self.node.first().copied() else {
            return Ok(());
        };
        let packed = self.pack(first)?;
        encoder.string(&first.encode(), out);
        encoder.string(&packed, out);
        self.node.clear();
        self.fields.clear();
        self.fields.shrink_to(4 * NODE_BYTES);
        Ok(())
    }

    fn pack(&self, first: StreamId) -> Result<Vec<u8>> {
        let mut out = listpack::Builder::default();
        let mut digits = itoa::Buffer::new();
        let mut master: Vec<&[u8]> = Vec::new();
        let mut start = 0;
        for (at, (id, end)) in self.node.iter().enumerate() {
            let row = self.fields.get(start..*end).unwrap_or_default();
            start = *end;
            let items: std::result::Result<Vec<&[u8]>, _> = packed::items(row).collect();
            let items = items.map_err(|_| NODE)?;
            let fields: Vec<&[u8]> = items.iter().step_by(2).copied().collect();
            if at == 0 {
                for number in [self.node.len(), 0, fields.len()] {
                    out.push(digits.format(number).as_bytes());
                }
                for field in &fields {
                    out.push(field);
                }
                out.push(b"0");
                master.clone_from(&fields);
            }
            let same = fields == master;
            let flags = if same { SAME_FIELDS } else { 0 };
            let ms = id.ms.wrapping_sub(first.ms) as i64;
            let seq = id.seq.wrapping_sub(first.seq) as i64;
            for number in [flags, ms, seq] {
                out.push(digits.format(number).as_bytes());
            }
            let mut elements = 3;
            if same {
                for value in items.iter().skip(1).step_by(2) {
                    out.push(value);
                    elements += 1;
                }
            } else {
                out.push(digits.format(fields.len()).as_bytes());
                elements += 1;
                for item in &items {
                    out.push(item);
                    elements += 1;
                }
            }
            out.push(digits.format(elements).as_bytes());
        }
        Ok(out.finish())
    }
}

fn put_id(id: StreamId, out: &mut Vec<u8>) {
    length(id.ms, out);
    length(id.seq, out);
}

/// Reads a stream and calls `each` with its parts. Returns their number.
pub(super) fn read<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    number: u8,
    each: &mut impl FnMut(Element<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let mut each = |part: StreamPart<'_>| each(Element::Stream(part));
    let mut entries = Entries::default();
    let (mut key, mut node) = (Vec::new(), Vec::new());
    for _ in 0..reader.length()? {
        reader.string(&mut key)?;
        let key = <[u8; 16]>::try_from(key.as_slice()).map_err(|_| NODE)?;
        reader.string(&mut node)?;
        reader.input.will_hold(elements_bytes(&node))?;
        entries.read_node(StreamId::decode(key), &node, &mut each)?;
    }
    let length = reader.length()?;
    if length != entries.count {
        return Err(COUNT.into());
    }
    let last = id(reader)?;
    let mut state = StreamState {
        length,
        last,
        first: entries.first,
        deleted: StreamId::MIN,
        added: length,
        groups: 0,
    };
    if number >= kind::STREAM_LISTPACKS_2 {
        state.first = id(reader)?;
        state.deleted = id(reader)?;
        state.added = reader.length()?;
    }
    state.groups = reader.length()?;
    if entries.last > state.last {
        return Err(ORDER.into());
    }
    each(StreamPart::State(state))?;
    for _ in 0..state.groups {
        read_group(reader, number, &mut each)?;
    }
    if number >= kind::STREAM_LISTPACKS_4 {
        read_idempotence(reader, &mut each)?;
    }
    Ok(length.saturating_add(1))
}

fn read_idempotence<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    each: &mut impl FnMut(StreamPart<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    each(StreamPart::Idempotence {
        duration_s: reader.length()?,
        most: reader.length()?,
    })?;
    let mut text = Vec::new();
    for _ in 0..reader.length()? {
        reader.string(&mut text)?;
        each(StreamPart::Producer(&text))?;
        for _ in 0..reader.length()? {
            reader.string(&mut text)?;
            let entry = id(reader)?;
            each(StreamPart::Iid { iid: &text, entry })?;
        }
    }
    each(StreamPart::IidCounts {
        added: reader.length()?,
        duplicates: reader.length()?,
    })
}

fn id<I: Input>(reader: &mut Reader<I>) -> Result<StreamId> {
    Ok(StreamId {
        ms: reader.length()?,
        seq: reader.length()?,
    })
}

fn read_group<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    number: u8,
    each: &mut impl FnMut(StreamPart<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut name = Vec::new();
    reader.string(&mut name)?;
    let last = id(reader)?;
    let read = match number >= kind::STREAM_LISTPACKS_2 {
        true => Some((reader.length()? as i64).max(UNKNOWN)),
        false => None,
    };
    let pending = reader.length()?;
    each(StreamPart::Group {
        name: &name,
        last,
        read,
        pending,
    })?;
    for _ in 0..pending {
        let id = StreamId::decode(reader.input.array()?);
        let delivered_ms = reader.signed_ms()?;
        let deliveries = reader.length()?;
        each(StreamPart::Pending {
            id,
            delivered_ms,
            deliveries,
        })?;
    }
    if number >= kind::STREAM_LISTPACKS_5 {
        return read_consumers_and_released(reader, number, each);
    }
    let consumers = reader.length()?;
    each(StreamPart::Consumers(consumers))?;
    for _ in 0..consumers {
        read_consumer(reader, number, each)?;
    }
    Ok(())
}

/// Reads a consumer and the ids of its pending entries.
fn read_consumer<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    number: u8,
    each: &mut impl FnMut(StreamPart<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut name = Vec::new();
    reader.string(&mut name)?;
    let seen_ms = reader.signed_ms()?;
    let active_ms = match number >= kind::STREAM_LISTPACKS_3 {
        true => reader.signed_ms()?,
        false => seen_ms,
    };
    let pending = reader.length()?;
    each(StreamPart::Consumer {
        name: &name,
        seen_ms,
        active_ms,
        pending,
    })?;
    for _ in 0..pending {
        let id = reader.input.array()?;
        each(StreamPart::Owned(StreamId::decode(id)))?;
    }
    Ok(())
}

/// Bytes that a short name takes besides itself.
const ALLOCATION: usize = 32;

/// A consumer that is kept until the entries without one have been read.
#[derive(Default)]
struct Kept {
    name: Vec<u8>,
    times: (i64, i64),
    owned: Vec<StreamId>,
}

impl Kept {
    /// Bytes that it takes at most: lists double when they are full.
    fn bytes(&self) -> u64 {
        let owned = self.owned.len() * size_of::<StreamId>();
        (2 * (size_of::<Kept>() + owned) + self.name.len() + ALLOCATION) as u64
    }
}

/// The released entries stand behind the consumers, but are the part before them: only so can the
/// form of Redis 7.0 be written part by part.
fn read_consumers_and_released<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    number: u8,
    each: &mut impl FnMut(StreamPart<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut consumers: Vec<Kept> = Vec::new();
    let mut held = 0;
    for _ in 0..reader.length()? {
        reader.input.will_hold(held)?;
        read_consumer(reader, number, &mut |part| {
            match (part, consumers.last_mut()) {
                (StreamPart::Owned(id), Some(last)) => last.owned.push(id),
                (
                    StreamPart::Consumer {
                        name,
                        seen_ms,
                        active_ms,
                        ..
                    },
                    _,
                ) => consumers.push(Kept {
                    name: name.to_vec(),
                    times: (seen_ms, active_ms),
                    owned: Vec::new(),
                }),
                _ => {}
            }
            Ok::<(), E>(())
        })?;
        held += consumers.last().map_or(0, Kept::bytes);
    }
    for _ in 0..reader.length()? {
        let id = reader.input.array()?;
        each(StreamPart::Released(StreamId::decode(id)))?;
    }
    each(StreamPart::Consumers(consumers.len() as u64))?;
    for consumer in consumers {
        each(StreamPart::Consumer {
            name: &consumer.name,
            seen_ms: consumer.times.0,
            active_ms: consumer.times.1,
            pending: consumer.owned.len() as u64,
        })?;
        for id in consumer.owned {
            each(StreamPart::Owned(id))?;
        }
    }
    Ok(())
}

/// Counts and ids of the entries read so far.
#[derive(Default)]
struct Entries {
    count: u64,
    first: StreamId,
    last: StreamId,
}

/// The elements of a listpack, read in order.
#[derive(Default)]
struct Elements {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    at: usize,
}

/// Bytes that a node and its elements take at most: one of two bytes has a place of eight, in a list
/// that doubles when it is full.
fn elements_bytes(node: &[u8]) -> u64 {
    let most = node.len() / 2;
    (2 * node.len() + most * 2 * size_of::<usize>()) as u64
}

impl Elements {
    fn of(node: &[u8]) -> Result<Elements> {
        let mut elements = Elements::default();
        listpack::for_each(node, |element| {
            elements.bytes.extend_from_slice(element);
            elements.ends.push(elements.bytes.len());
            Ok::<(), Error>(())
        })?;
        Ok(elements)
    }

    fn left(&self) -> usize {
        self.ends.len() - self.at
    }

    fn element(&self, at: usize) -> Result<&[u8]> {
        let start = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before).ok_or(NODE)?,
            None => 0,
        };
        let end = *self.ends.get(at).ok_or(NODE)?;
        self.bytes.get(start..end).ok_or(NODE)
    }

    fn next(&mut self) -> Result<&[u8]> {
        self.at += 1;
        self.element(self.at - 1)
    }

    fn number(&mut self) -> Result<i64> {
        num::parse_i64(self.next()?).ok_or(NODE)
    }

    /// A number of elements that must still be present.
    fn count(&mut self) -> Result<usize> {
        let count = usize::try_from(self.number()?).map_err(|_| NODE)?;
        match count <= self.left() {
            true => Ok(count),
            false => Err(NODE),
        }
    }
}

impl Entries {
    fn read_node<E: From<Error>>(
        &mut self,
        master: StreamId,
        node: &[u8],
        each: &mut impl FnMut(StreamPart<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut elements = Elements::of(node)?;
        let (alive, deleted) = (elements.number()?, elements.number()?);
        let fields = elements.count()?;
        let first_field = elements.at;
        elements.at += fields;
        if elements.number()? != 0 {
            return Err(NODE.into());
        }
        let (mut found, mut gone) = (0, 0);
        let mut row = Vec::new();
        while elements.left() > 0 {
            let start = elements.at;
            let flags = elements.number()?;
            let ms = master.ms.wrapping_add(elements.number()? as u64);
            let seq = master.seq.wrapping_add(elements.number()? as u64);
            row.clear();
            if flags & SAME_FIELDS != 0 {
                for field in first_field..first_field + fields {
                    put_bytes(&mut row, elements.element(field)?);
                    put_bytes(&mut row, elements.next()?);
                }
            } else {
                let items = elements.count()?.saturating_mul(2);
                if items > elements.left() {
                    return Err(NODE.into());
                }
                for _ in 0..items {
                    put_bytes(&mut row, elements.next()?);
                }
            }
            let taken = elements.at - start;
            if elements.number()? != taken as i64 {
                return Err(NODE.into());
            }
            if flags & DELETED != 0 {
                gone += 1;
                continue;
            }
            found += 1;
            let id = StreamId { ms, seq };
            if id <= self.last || id < master {
                return Err(ORDER.into());
            }
            if self.count == 0 {
                self.first = id;
            }
            self.last = id;
            self.count += 1;
            each(StreamPart::Entry { id, fields: &row })?;
        }
        match found == alive && gone == deleted {
            true => Ok(()),
            false => Err(NODE.into()),
        }
    }
}
