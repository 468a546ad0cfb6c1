//! Builds a stream from its parts, in the order of [`super::parts`].

use super::{DURATION_MOST_S, Group, IDS_MOST, Stream, lag};
use crate::encoding::CollectionId;
use crate::encoding::stream::StreamId;
use crate::rdb::{self, StreamPart, StreamState};
use crate::storage::{DbIndex, Txn};
use crate::types::RestoreError;

const ORDER: rdb::Error = rdb::Error::Corrupt("the parts of a stream out of order");
const TWICE: rdb::Error =
    rdb::Error::Corrupt("a group, a consumer or an entry that is there twice");
const OWNER: rdb::Error = rdb::Error::Corrupt("a pending entry without one owner");
const IDS: rdb::Error =
    rdb::Error::Corrupt("idempotent ids of a stream that contradict each other");
const STATE: rdb::Error = rdb::Error::Corrupt("a stream with another state");

/// A stream that is being built.
#[derive(Debug)]
pub struct Build<'k> {
    stream: Stream<'k>,
    state: Option<StreamState>,
    group: Option<BuildGroup>,
    /// The producer whose ids follow.
    producer: Option<Vec<u8>>,
}

/// A group, and the numbers of its missing parts.
#[derive(Debug)]
struct BuildGroup {
    group: Group,
    pending: u64,
    /// Pending entries without an owner.
    unowned: u64,
    consumers: u64,
    /// The current consumer, and how many entries it still gets.
    consumer: (u64, u64),
}

impl<'k> Build<'k> {
    /// Begins a stream under a key that does not exist.
    pub fn new(txn: &Txn, db: DbIndex, key: &'k [u8]) -> Build<'k> {
        Build {
            stream: Stream::new(txn, db, key),
            state: None,
            group: None,
            producer: None,
        }
    }

    /// The collection id of the rows.
    pub fn collection(&self) -> CollectionId {
        self.stream.body().id
    }

    /// Adds the next part.
    ///
    /// # Errors
    /// The part contradicts earlier ones.
    pub fn add(&mut self, txn: &mut Txn, part: StreamPart<'_>) -> Result<(), RestoreError> {
        match part {
            StreamPart::Entry { id, fields } => {
                let body = self.stream.body();
                if self.state.is_some() || id <= body.last {
                    return Err(ORDER.into());
                }
                self.stream.append(txn, id, fields)?;
            }
            StreamPart::State(state) => {
                let body = self.stream.body();
                let fits = state.length == body.length
                    && state.first == body.first
                    && state.last >= body.last
                    && state.added >= state.length;
                if self.state.is_some() || !fits {
                    return Err(STATE.into());
                }
                let (added, deleted) = (Some(state.added), Some(state.deleted));
                self.stream.set_last(state.last, added, deleted);
                self.state = Some(state);
            }
            StreamPart::Group {
                name,
                last,
                read,
                pending,
            } => {
                self.begin_group(txn, name, last, read, pending)?;
            }
            StreamPart::Pending {
                id,
                delivered_ms,
                deliveries,
            } => {
                let building = self.group.as_mut().ok_or(ORDER)?;
                building.pending = building.pending.checked_sub(1).ok_or(ORDER)?;
                building.unowned += 1;
                let group = &mut building.group;
                if !group.put_unowned(txn, id, delivered_ms, deliveries)? {
                    return Err(TWICE.into());
                }
            }
            StreamPart::Released(id) => {
                let building = self.group.as_mut().ok_or(ORDER)?;
                if !building.group.release_unowned(txn, id)? {
                    return Err(OWNER.into());
                }
                building.unowned = building.unowned.checked_sub(1).ok_or(OWNER)?;
            }
            StreamPart::Consumers(count) => {
                let building = self.group.as_mut().ok_or(ORDER)?;
                if building.pending != 0 || building.consumers != 0 {
                    return Err(ORDER.into());
                }
                building.consumers = count;
            }
            StreamPart::Consumer {
                name,
                seen_ms,
                active_ms,
                pending,
            } => {
                let building = self.group.as_mut().ok_or(ORDER)?;
                building.consumers = building.consumers.checked_sub(1).ok_or(ORDER)?;
                building.begin_consumer(txn, name, (seen_ms, active_ms), pending)?;
            }
            StreamPart::Owned(id) => {
                let building = self.group.as_mut().ok_or(ORDER)?;
                building.own(txn, id)?;
            }
            StreamPart::Idempotence { .. }
            | StreamPart::Producer(_)
            | StreamPart::Iid { .. }
            | StreamPart::IidCounts { .. } => self.add_idempotence(txn, part)?,
        }
        Ok(())
    }

    fn add_idempotence(&mut self, txn: &mut Txn, part: StreamPart<'_>) -> Result<(), RestoreError> {
        match part {
            StreamPart::Idempotence { duration_s, most } => {
                self.end_group(txn)?;
                let settings = (1..=DURATION_MOST_S, 1..=IDS_MOST);
                if !settings.0.contains(&duration_s) || !settings.1.contains(&most) {
                    return Err(IDS.into());
                }
                self.stream.set_idempotence(txn, duration_s, most)?;
            }
            StreamPart::Producer(name) => self.producer = Some(name.to_vec()),
            StreamPart::Iid { iid, entry } => {
                let producer = self.producer.as_deref().ok_or(ORDER)?;
                self.stream.remember(txn, producer, iid, entry)?;
            }
            StreamPart::IidCounts { added, duplicates } => {
                self.stream.set_iid_counts(added, duplicates);
            }
            _ => return Err(ORDER.into()),
        }
        Ok(())
    }

    fn begin_group(
        &mut self,
        txn: &mut Txn,
        name: &[u8],
        last: StreamId,
        read: Option<i64>,
        pending: u64,
    ) -> Result<(), RestoreError> {
        if self.state.is_none() {
            return Err(ORDER.into());
        }
        self.end_group(txn)?;
        if self.stream.group(txn, name)?.is_some() {
            return Err(TWICE.into());
        }
        let read = read.unwrap_or_else(|| lag::read_at(self.stream.body(), last));
        self.group = Some(BuildGroup {
            group: self.stream.create_group(name, last, read),
            pending,
            unowned: 0,
            consumers: 0,
            consumer: (0, 0),
        });
        Ok(())
    }

    fn end_group(&mut self, txn: &mut Txn) -> Result<(), RestoreError> {
        let Some(building) = self.group.take() else {
            return Ok(());
        };
        if building.unowned != 0 || building.pending != 0 || building.consumer.1 != 0 {
            return Err(OWNER.into());
        }
        if building.consumers != 0 {
            return Err(ORDER.into());
        }
        Ok(building.group.save(txn)?)
    }

    /// Writes the key.
    ///
    /// # Errors
    /// A part is missing.
    pub fn finish(mut self, txn: &mut Txn) -> Result<(), RestoreError> {
        self.end_group(txn)?;
        match self.state {
            Some(state) if state.groups == self.stream.body().groups => {
                Ok(self.stream.save(txn)?)
            }
            _ => Err(STATE.into()),
        }
    }
}

impl BuildGroup {
    fn begin_consumer(
        &mut self,
        txn: &mut Txn,
        name: &[u8],
        (seen_ms, active_ms): (i64, i64),
        pending: u64,
    ) -> Result<(), RestoreError> {
        if self.consumer.1 != 0 {
            return Err(OWNER.into());
        }
        self.group.write_consumers(txn)?;
        if self.group.find_consumer(txn, name)?.is_some() {
            return Err(TWICE.into());
        }
        let number = self.group.add_consumer(txn, name, seen_ms, active_ms)?;
        self.consumer = (number, pending);
        Ok(())
    }

    fn own(&mut self, txn: &mut Txn, id: StreamId) -> Result<(), RestoreError> {
        let (consumer, left) = self.consumer;
        self.consumer.1 = left.checked_sub(1).ok_or(ORDER)?;
        if !self.group.own(txn, id, consumer)? {
            return Err(OWNER.into());
        }
        self.unowned = self.unowned.checked_sub(1).ok_or(OWNER)?;
        Ok(())
    }
}
