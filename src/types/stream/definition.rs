//! The definition of streams; see [`crate::types::definition`].

use super::{Build as BuildStream, StreamBody, parts};
use crate::encoding::CollectionId;
use crate::rdb::stream::{Filling, Writer};
use crate::rdb::{Element, StreamPart, StreamState};
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::definition::{
    Added, Build, Definition, Each, Hash, Limits, Output, ROW_OVERHEAD, Stored, miscounted,
    of_another_type, sha1,
};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use std::ops::ControlFlow;

/// The definition of streams.
pub struct StreamType;

impl Definition for StreamType {
    /// Entries, then the state, then groups with their consumers and pending entries.
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let body = StreamBody::decode(stored.body)?;
        parts::each_part(source, db, &body, &mut |part| each(Element::Stream(part)))
    }

    fn count(&self, stored: Stored<'_>) -> OpResult<u64> {
        Ok(StreamBody::decode(stored.body)?.length)
    }

    /// The number of nodes comes before the entries, so entries are read twice.
    fn write(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        to: Output<'_>,
    ) -> OpResult<()> {
        let body = StreamBody::decode(stored.body)?;
        let (mut filling, mut nodes) = (Filling::default(), 0);
        parts::each_entry(source, db, &body, &mut |_, fields| {
            nodes += u64::from(filling.begins_node(fields.len()));
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        let mut writer = Writer::begin(to.encoder, nodes, to.key, to.out);
        parts::each_part(source, db, &body, &mut |part| {
            writer.part(to.encoder, part, to.out).map_err(miscounted)?;
            (to.flush)(to.out)?;
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)
    }

    fn build<'k>(
        &self,
        txn: &mut Txn,
        db: DbIndex,
        key: &'k [u8],
    ) -> OpResult<Box<dyn Build + 'k>> {
        Ok(Box::new(BuildStream::new(txn, db, key)))
    }

    fn encoding(
        &self,
        _: &mut View,
        _: DbIndex,
        _: &KeyMeta,
        _: &Limits,
    ) -> OpResult<&'static str> {
        Ok("stream")
    }

    /// Entries only.
    fn row_bytes(&self, element: &Element<'_>) -> Option<u64> {
        let is_entry = matches!(element, Element::Stream(StreamPart::Entry { .. }));
        is_entry.then(|| element.bytes() as u64 + ROW_OVERHEAD)
    }

    /// The order counts: each part is hashed together with all before it.
    fn digest(&self, view: &mut View, db: DbIndex, found: &KeyMeta) -> OpResult<Hash> {
        let mut sum = Hash::default();
        self.walk(view, db, Stored::of(found), &mut |element| {
            if let Element::Stream(part) = element {
                sum = sha1(&[&sum, &part_bytes(&part)]);
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        Ok(sum)
    }
}

/// The bytes of a part for the digest, without the times of consumers' last activity,
/// which are not replicated. A letter is the kind of part, numbers are big-endian, a
/// name comes last.
fn part_bytes(part: &StreamPart<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |kind: u8, numbers: &[u64], name: &[u8]| {
        bytes.push(kind);
        for number in numbers {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(name);
    };
    match *part {
        StreamPart::Entry { id, fields } => put(b'e', &[id.ms, id.seq], fields),
        StreamPart::State(StreamState {
            length,
            first,
            last,
            deleted,
            added,
            groups,
        }) => put(
            b's',
            &[
                length,
                first.ms,
                first.seq,
                last.ms,
                last.seq,
                deleted.ms,
                deleted.seq,
                added,
                groups,
            ],
            b"",
        ),
        StreamPart::Group {
            name,
            last,
            read,
            pending,
        } => {
            let read = read.map_or(u64::MAX, |read| read as u64);
            put(b'g', &[last.ms, last.seq, read, pending], name);
        }
        StreamPart::Pending {
            id,
            delivered_ms,
            deliveries,
        } => put(b'p', &[id.ms, id.seq, delivered_ms as u64, deliveries], b""),
        StreamPart::Consumers(count) => put(b'n', &[count], b""),
        StreamPart::Consumer { name, pending, .. } => put(b'c', &[pending], name),
        StreamPart::Owned(id) => put(b'o', &[id.ms, id.seq], b""),
        StreamPart::Released(id) => put(b'r', &[id.ms, id.seq], b""),
        StreamPart::Idempotence { duration_s, most } => put(b'd', &[duration_s, most], b""),
        StreamPart::Producer(name) => put(b'P', &[], name),
        StreamPart::Iid { iid, entry } => put(b'i', &[entry.ms, entry.seq], iid),
        // A duplicate concerns the server alone that has refused it.
        StreamPart::IidCounts { added, .. } => put(b'I', &[added], b""),
    }
    bytes
}

impl Build for BuildStream<'_> {
    /// Groups, consumers and pending entries are not counted as elements.
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError> {
        let Element::Stream(part) = element else {
            return Err(of_another_type());
        };
        BuildStream::add(self, txn, part)?;
        Ok(match part {
            StreamPart::Entry { .. } | StreamPart::State(_) => Added::New,
            StreamPart::Group { .. }
            | StreamPart::Pending { .. }
            | StreamPart::Consumers(_)
            | StreamPart::Consumer { .. }
            | StreamPart::Owned(_)
            | StreamPart::Released(_)
            | StreamPart::Idempotence { .. }
            | StreamPart::Producer(_)
            | StreamPart::Iid { .. }
            | StreamPart::IidCounts { .. } => Added::Uncounted,
        })
    }

    fn collection(&self) -> Option<CollectionId> {
        Some(BuildStream::collection(self))
    }

    /// The ids of entries increase, so none can repeat; each group and consumer is
    /// looked up.
    fn counted_tags(&self) -> &'static [u8] {
        &[]
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        BuildStream::finish(*self, txn)
    }
}
