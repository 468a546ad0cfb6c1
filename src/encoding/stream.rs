//! Streams: their ids, the body of their meta row, and their rows.
//!
//! ```text
//! meta body     id (8) ‖ length (8) ‖ first (16) ‖ last (16) ‖ deleted (16) ‖ added (8)
//!               ‖ groups (8) ‖ numbers (8) [‖ idempotence]
//! idempotence   duration s (8) ‖ most (8) ‖ producers (8) ‖ numbers (8) ‖ cursor (8)
//!               ‖ tracked (8) ‖ added (8) ‖ duplicates (8)
//!
//! 11 entry      11 ‖ id (8) ‖ entry                            → field (L), value (L), …
//! 12 group      12 ‖ id (8) ‖ name                             → number (8) ‖ last (16) ‖ read (8)
//!                                                                ‖ pending (8) ‖ oldest (16)
//!                                                                ‖ consumers (8) ‖ numbers (8)
//!                                                                [‖ released (8) ‖ releases (8)
//!                                                                ‖ timed (8)]
//! 13 consumer   13 ‖ id (8) ‖ group (8) ‖ consumer (8)         → seen ms (8) ‖ active ms (8)
//!                                                                ‖ pending (8) ‖ name
//! 14 name       14 ‖ id (8) ‖ group (8) ‖ name                 → consumer (8)
//! 15 pending    15 ‖ id (8) ‖ group (8) ‖ entry                → consumer (8) ‖ delivered ms (8)
//!                                                                ‖ deliveries (8)
//! 16 owned      16 ‖ id (8) ‖ group (8) ‖ consumer (8) ‖ entry → (empty)
//! 30 timed      30 ‖ id (8) ‖ group (8) ‖ time (8) ‖ entry     → (empty)
//!
//! 31 iid        31 ‖ id (8) ‖ producer (8) ‖ idempotent id     → entry
//! 32 iid order  32 ‖ id (8) ‖ producer (8) ‖ entry             → idempotent id
//! 33 producer   33 ‖ id (8) ‖ producer (8)                     → ids (8) ‖ oldest (16) ‖ name
//! 34 name       34 ‖ id (8) ‖ name                             → producer (8)
//! ```
//!
//! `entry` is the id of an entry: ms (8) ‖ sequence (8). Groups and consumers have numbers, used
//! once within their stream and group: so the row of a pending entry needs neither name, and rows
//! of a destroyed group or a deleted consumer cannot be mistaken for those of a newer one with that
//! name.
//!
//! `first` is the id of the first entry and `oldest` that of a group's first pending entry, zero if
//! there is none: scans begin there, and skip the tombstones of entries that were trimmed or
//! acknowledged. `deleted` is the highest id that XDEL removed, `added` counts all entries ever
//! added, `read` those of them that a group has read ([`UNKNOWN`] if that is not known). `active`
//! is [`UNKNOWN`] for a consumer that was never given an entry.
//!
//! XNACK releases a pending entry: it belongs to consumer 0, which has no row, and instead of a
//! time it has [`released_ms`] of the group's count of `releases`, so that released entries come
//! before all others in the order of their release. `released` is their number. Rows 30 exist in
//! groups that are `timed`, which those are whose consumers claim by XREADGROUP: `time` is the
//! delivery time with the sign bit flipped, so that a claim begins at the entry that is idle for
//! the longest.
//!
//! Rows 31 to 34 are what XADD with IDMP remembers: the entry of each idempotent id, by the number
//! of its producer. An id is remembered for `duration`, counted from the ms of its entry, and `most`
//! for each producer. `oldest` is the producer's first entry in rows 32. The end of the body and that of
//! a group's row are left out while they say nothing.

use super::reader::Reader;
use super::{CollectionId, Corrupt, RowKey, keys, tag};
use std::fmt;

/// A count or a time that is not known.
pub const UNKNOWN: i64 = -1;

/// The id of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    /// When the entry was added, in Unix ms, or the number that the client gave.
    pub ms: u64,
    /// Distinguishes entries of the same ms.
    pub seq: u64,
}

impl StreamId {
    /// The lowest id; no entry has it.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: StreamId = StreamId {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// The next higher id.
    pub fn next(self) -> Option<StreamId> {
        let StreamId { ms, seq } = self;
        match seq.checked_add(1) {
            Some(seq) => Some(StreamId { ms, seq }),
            None => ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
        }
    }

    /// The next lower id.
    pub fn previous(self) -> Option<StreamId> {
        let StreamId { ms, seq } = self;
        match seq.checked_sub(1) {
            Some(seq) => Some(StreamId { ms, seq }),
            None => ms.checked_sub(1).map(|ms| StreamId { ms, seq: u64::MAX }),
        }
    }

    /// The id's bytes, which sort like the ids.
    pub fn encode(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// The id of these bytes.
    pub fn decode(bytes: [u8; 16]) -> StreamId {
        let number = u128::from_be_bytes(bytes);
        StreamId {
            ms: (number >> 64) as u64,
            seq: number as u64,
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<StreamId, Corrupt> {
        Ok(StreamId::decode(r.array()?))
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// The body of a stream's meta row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBody {
    /// The id under which the rows stand.
    pub id: CollectionId,
    /// Number of entries.
    pub length: u64,
    /// The id of the first entry; zero if there is none.
    pub first: StreamId,
    /// The highest id ever used.
    pub last: StreamId,
    /// The highest id that XDEL removed.
    pub deleted: StreamId,
    /// Number of entries ever added.
    pub added: u64,
    /// Number of groups.
    pub groups: u64,
    /// Number of group numbers used so far.
    pub numbers: u64,
    /// What XADD with IDMP remembers.
    pub idempotence: Idempotence,
}

/// The settings and counts of idempotent XADD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotence {
    /// How long an id is remembered, in s.
    pub duration_s: u64,
    /// How many ids are remembered of one producer.
    pub most: u64,
    /// Number of producers.
    pub producers: u64,
    /// Number of producer numbers used so far.
    pub numbers: u64,
    /// The producer number at which the next look for ids to forget begins.
    pub cursor: u64,
    /// Number of ids that are remembered.
    pub tracked: u64,
    /// Number of ids ever remembered.
    pub added: u64,
    /// Number of entries that were not added, because their id was remembered.
    pub duplicates: u64,
}

impl Default for Idempotence {
    fn default() -> Idempotence {
        Idempotence {
            duration_s: 100,
            most: 100,
            producers: 0,
            numbers: 0,
            cursor: 0,
            tracked: 0,
            added: 0,
            duplicates: 0,
        }
    }
}

impl Idempotence {
    fn read(r: &mut Reader<'_>) -> Result<Idempotence, Corrupt> {
        if r.is_empty() {
            return Ok(Idempotence::default());
        }
        Ok(Idempotence {
            duration_s: r.u64()?,
            most: r.u64()?,
            producers: r.u64()?,
            numbers: r.u64()?,
            cursor: r.u64()?,
            tracked: r.u64()?,
            added: r.u64()?,
            duplicates: r.u64()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        if *self == Idempotence::default() {
            return;
        }
        for number in [
            self.duration_s,
            self.most,
            self.producers,
            self.numbers,
            self.cursor,
            self.tracked,
            self.added,
            self.duplicates,
        ] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

impl StreamBody {
    /// An empty stream.
    pub fn new(id: CollectionId) -> StreamBody {
        StreamBody {
            id,
            length: 0,
            first: StreamId::MIN,
            last: StreamId::MIN,
            deleted: StreamId::MIN,
            added: 0,
            groups: 0,
            numbers: 0,
            idempotence: Idempotence::default(),
        }
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<StreamBody, Corrupt> {
        let mut r = Reader::new(body, "meta stream");
        Ok(StreamBody {
            id: CollectionId(r.u64()?),
            length: r.u64()?,
            first: StreamId::read(&mut r)?,
            last: StreamId::read(&mut r)?,
            deleted: StreamId::read(&mut r)?,
            added: r.u64()?,
            groups: r.u64()?,
            numbers: r.u64()?,
            idempotence: Idempotence::read(&mut r)?,
        })
    }

    /// The body's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(88);
        out.extend_from_slice(&self.id.0.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        for id in [self.first, self.last, self.deleted] {
            out.extend_from_slice(&id.encode());
        }
        for count in [self.added, self.groups, self.numbers] {
            out.extend_from_slice(&count.to_be_bytes());
        }
        self.idempotence.write(&mut out);
        out
    }
}

/// The row of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRow {
    /// Its number within the stream.
    pub number: u64,
    /// The last entry that was delivered.
    pub last: StreamId,
    /// The number of the stream's entries that the group has read, or [`UNKNOWN`].
    pub read: i64,
    /// Number of entries delivered and not acknowledged.
    pub pending: u64,
    /// The id of the first of those; zero if there is none.
    pub oldest: StreamId,
    /// Number of consumers.
    pub consumers: u64,
    /// Number of consumer numbers used so far.
    pub numbers: u64,
    /// Number of pending entries that no consumer owns.
    pub released: u64,
    /// Number of releases so far.
    pub releases: u64,
    /// Whether pending entries are also stored by time.
    pub timed: bool,
}

impl GroupRow {
    /// Reads the row.
    pub fn decode(row: &[u8]) -> Result<GroupRow, Corrupt> {
        let mut r = Reader::new(row, "stream group");
        let mut row = GroupRow {
            number: r.u64()?,
            last: StreamId::read(&mut r)?,
            read: r.u64()? as i64,
            pending: r.u64()?,
            oldest: StreamId::read(&mut r)?,
            consumers: r.u64()?,
            numbers: r.u64()?,
            released: 0,
            releases: 0,
            timed: false,
        };
        if !r.is_empty() {
            (row.released, row.releases) = (r.u64()?, r.u64()?);
            row.timed = r.u64()? != 0;
        }
        Ok(row)
    }

    /// The row's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.last.encode());
        out.extend_from_slice(&self.read.to_be_bytes());
        out.extend_from_slice(&self.pending.to_be_bytes());
        out.extend_from_slice(&self.oldest.encode());
        out.extend_from_slice(&self.consumers.to_be_bytes());
        out.extend_from_slice(&self.numbers.to_be_bytes());
        if self.releases > 0 || self.timed {
            for number in [self.released, self.releases, u64::from(self.timed)] {
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        out
    }
}

/// The row of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerRow {
    /// When it last tried to read or claim, in Unix ms.
    pub seen_ms: i64,
    /// When it was last given an entry, in Unix ms, or [`UNKNOWN`].
    pub active_ms: i64,
    /// Number of entries that it was given and has not acknowledged.
    pub pending: u64,
    /// Its name.
    pub name: Box<[u8]>,
}

impl ConsumerRow {
    /// Reads the row.
    pub fn decode(row: &[u8]) -> Result<ConsumerRow, Corrupt> {
        let mut r = Reader::new(row, "stream consumer");
        Ok(ConsumerRow {
            seen_ms: r.u64()? as i64,
            active_ms: r.u64()? as i64,
            pending: r.u64()?,
            name: r.rest().into(),
        })
    }

    /// The row's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.name.len());
        out.extend_from_slice(&self.seen_ms.to_be_bytes());
        out.extend_from_slice(&self.active_ms.to_be_bytes());
        out.extend_from_slice(&self.pending.to_be_bytes());
        out.extend_from_slice(&self.name);
        out
    }
}

/// The row of a pending entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingRow {
    /// The number of the consumer that owns it.
    pub consumer: u64,
    /// When it was last delivered, in Unix ms.
    pub delivered_ms: i64,
    /// How often it was delivered.
    pub deliveries: u64,
}

impl PendingRow {
    /// Whether no consumer owns the entry, because it was released.
    pub fn is_released(&self) -> bool {
        self.consumer == NO_CONSUMER && self.delivered_ms < released_ms(1 << 62)
    }

    /// When the entry was last delivered, in Unix ms; 0 for one that was released.
    pub fn shown_ms(&self) -> i64 {
        match self.is_released() {
            true => 0,
            false => self.delivered_ms,
        }
    }

    /// Reads the row.
    pub fn decode(row: &[u8]) -> Result<PendingRow, Corrupt> {
        let mut r = Reader::new(row, "stream pending");
        Ok(PendingRow {
            consumer: r.u64()?,
            delivered_ms: r.u64()? as i64,
            deliveries: r.u64()?,
        })
    }

    /// The row's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        out.extend_from_slice(&self.consumer.to_be_bytes());
        out.extend_from_slice(&self.delivered_ms.to_be_bytes());
        out.extend_from_slice(&self.deliveries.to_be_bytes());
        out
    }
}

/// The consumer of a released entry.
pub const NO_CONSUMER: u64 = 0;

/// What the row of an entry has in place of a delivery time, if it was released as the `n`-th of
/// its group.
pub fn released_ms(n: u64) -> i64 {
    i64::MIN.saturating_add_unsigned(n)
}

/// The row of a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerRow {
    /// Number of its ids that are remembered.
    pub ids: u64,
    /// The entry of the oldest one.
    pub oldest: StreamId,
    /// Its name.
    pub name: Box<[u8]>,
}

impl ProducerRow {
    /// Reads the row.
    pub fn decode(row: &[u8]) -> Result<ProducerRow, Corrupt> {
        let mut r = Reader::new(row, "stream producer");
        Ok(ProducerRow {
            ids: r.u64()?,
            oldest: StreamId::read(&mut r)?,
            name: r.rest().into(),
        })
    }

    /// The row's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.name.len());
        out.extend_from_slice(&self.ids.to_be_bytes());
        out.extend_from_slice(&self.oldest.encode());
        out.extend_from_slice(&self.name);
        out
    }
}

/// `tag ‖ id ‖ parts`.
fn row_key(tag: u8, id: CollectionId, parts: &[&[u8]]) -> RowKey {
    let mut key = keys::element_prefix(tag, id);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// The key of an entry.
pub fn entry_key(id: CollectionId, entry: StreamId) -> RowKey {
    row_key(tag::STREAM_ENTRY, id, &[&entry.encode()])
}

/// The key of a group.
pub fn group_key(id: CollectionId, name: &[u8]) -> RowKey {
    row_key(tag::STREAM_GROUP, id, &[name])
}

/// The name in a key that [`group_key`] made.
pub fn split_group_key(key: &[u8]) -> Result<&[u8], Corrupt> {
    let name = key.get(keys::ELEMENT_PREFIX_LEN..);
    name.ok_or(Corrupt("stream group"))
}

/// The key of a consumer.
pub fn consumer_key(id: CollectionId, group: u64, consumer: u64) -> RowKey {
    let numbers = [group.to_be_bytes(), consumer.to_be_bytes()].concat();
    row_key(tag::STREAM_CONSUMER, id, &[&numbers])
}

/// The key of a consumer's name.
pub fn name_key(id: CollectionId, group: u64, name: &[u8]) -> RowKey {
    row_key(tag::STREAM_CONSUMER_NAME, id, &[&group.to_be_bytes(), name])
}

/// The value of the row under [`name_key`]: the consumer's number.
pub fn decode_number(row: &[u8]) -> Result<u64, Corrupt> {
    Reader::new(row, "stream consumer number").u64()
}

/// The key of a pending entry.
pub fn pending_key(id: CollectionId, group: u64, entry: StreamId) -> RowKey {
    let parts: [&[u8]; 2] = [&group.to_be_bytes(), &entry.encode()];
    row_key(tag::STREAM_PENDING, id, &parts)
}

/// The key of a consumer's pending entry.
pub fn owned_key(id: CollectionId, group: u64, consumer: u64, entry: StreamId) -> RowKey {
    let numbers = [group.to_be_bytes(), consumer.to_be_bytes()].concat();
    row_key(tag::STREAM_OWNED, id, &[&numbers, &entry.encode()])
}

/// The key of a pending entry by its delivery time.
pub fn timed_key(id: CollectionId, group: u64, delivered_ms: i64, entry: StreamId) -> RowKey {
    let time = (delivered_ms as u64) ^ (1 << 63);
    let numbers = [group.to_be_bytes(), time.to_be_bytes()].concat();
    row_key(tag::STREAM_TIMED, id, &[&numbers, &entry.encode()])
}

/// The delivery time in a key that [`timed_key`] made.
pub fn time_of(key: &[u8]) -> Result<i64, Corrupt> {
    let mut r = Reader::new(key, "stream pending time");
    r.take(keys::ELEMENT_PREFIX_LEN + 8)?;
    Ok((r.u64()? ^ (1 << 63)) as i64)
}

/// The key of an idempotent id.
pub fn iid_key(id: CollectionId, producer: u64, iid: &[u8]) -> RowKey {
    row_key(tag::STREAM_IID, id, &[&producer.to_be_bytes(), iid])
}

/// The entry in the row under [`iid_key`].
pub fn decode_entry(row: &[u8]) -> Result<StreamId, Corrupt> {
    StreamId::read(&mut Reader::new(row, "stream idempotent id"))
}

/// The key of an idempotent id by its entry.
pub fn iid_order_key(id: CollectionId, producer: u64, entry: StreamId) -> RowKey {
    let parts: [&[u8]; 2] = [&producer.to_be_bytes(), &entry.encode()];
    row_key(tag::STREAM_IID_ORDER, id, &parts)
}

/// The key of a producer.
pub fn producer_key(id: CollectionId, producer: u64) -> RowKey {
    row_key(tag::STREAM_PRODUCER, id, &[&producer.to_be_bytes()])
}

/// The key of a producer's name.
pub fn producer_name_key(id: CollectionId, name: &[u8]) -> RowKey {
    row_key(tag::STREAM_PRODUCER_NAME, id, &[name])
}

/// The range of the rows of a group or a producer under `tag`. Not for [`tag::STREAM_GROUP`].
pub fn group_rows(tag: u8, id: CollectionId, group: u64) -> (RowKey, RowKey) {
    let from = row_key(tag, id, &[&group.to_be_bytes()]);
    let to = keys::after_prefix(&from).unwrap_or_else(|| keys::element_end(tag, id));
    (from, to)
}

/// The id of the entry that a key ends with.
pub fn entry_of(key: &[u8]) -> Result<StreamId, Corrupt> {
    match key.last_chunk::<16>() {
        Some(entry) => Ok(StreamId::decode(*entry)),
        None => Err(Corrupt("stream row")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CollectionId = CollectionId(0x0102);
    const ENTRY: StreamId = StreamId { ms: 3, seq: 4 };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn number(n: u64) -> String {
        format!("{n:016x}")
    }

    #[test]
    fn keys_have_these_bytes() {
        let id = number(0x0102);
        let entry = number(3) + &number(4);
        let (group, consumer) = (number(5), number(6));
        for (key, want) in [
            (entry_key(ID, ENTRY), format!("11{id}{entry}")),
            (group_key(ID, b"g"), format!("12{id}67")),
            (consumer_key(ID, 5, 6), format!("13{id}{group}{consumer}")),
            (name_key(ID, 5, b"c"), format!("14{id}{group}63")),
            (pending_key(ID, 5, ENTRY), format!("15{id}{group}{entry}")),
            (
                owned_key(ID, 5, 6, ENTRY),
                format!("16{id}{group}{consumer}{entry}"),
            ),
            (
                timed_key(ID, 5, 6, ENTRY),
                format!("30{id}{group}8000000000000006{entry}"),
            ),
            (
                timed_key(ID, 5, released_ms(6), ENTRY),
                format!("30{id}{group}{consumer}{entry}"),
            ),
            (iid_key(ID, 5, b"i"), format!("31{id}{group}69")),
            (iid_order_key(ID, 5, ENTRY), format!("32{id}{group}{entry}")),
            (producer_key(ID, 5), format!("33{id}{group}")),
            (producer_name_key(ID, b"p"), format!("34{id}70")),
        ] {
            assert_eq!(hex(&key), want);
        }
        assert_eq!(split_group_key(&group_key(ID, b"g")), Ok(&b"g"[..]));
        assert_eq!(entry_of(&owned_key(ID, 5, 6, ENTRY)), Ok(ENTRY));
        assert_eq!(time_of(&timed_key(ID, 5, -6, ENTRY)), Ok(-6));
    }

    #[test]
    fn rows_have_these_bytes() {
        let n = number;
        let body = StreamBody {
            id: ID,
            length: 1,
            first: StreamId { ms: 2, seq: 3 },
            last: StreamId { ms: 4, seq: 5 },
            deleted: StreamId { ms: 6, seq: 7 },
            added: 8,
            groups: 9,
            numbers: 10,
            idempotence: Idempotence::default(),
        };
        let want: String = [0x0102, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(n).concat();
        assert_eq!(hex(&body.encode()), want);
        assert_eq!(StreamBody::decode(&body.encode()), Ok(body));
        let idempotence = Idempotence {
            duration_s: 11,
            most: 12,
            producers: 13,
            numbers: 14,
            cursor: 15,
            tracked: 16,
            added: 17,
            duplicates: 18,
        };
        let body = StreamBody {
            idempotence,
            ..body
        };
        let want = want + &[11, 12, 13, 14, 15, 16, 17, 18].map(n).concat();
        assert_eq!(hex(&body.encode()), want);
        assert_eq!(StreamBody::decode(&body.encode()), Ok(body));
        let group = GroupRow {
            number: 1,
            last: StreamId { ms: 2, seq: 3 },
            read: UNKNOWN,
            pending: 4,
            oldest: StreamId { ms: 5, seq: 6 },
            consumers: 7,
            numbers: 8,
            released: 0,
            releases: 0,
            timed: false,
        };
        let want: String = [1, 2, 3, u64::MAX, 4, 5, 6, 7, 8].map(n).concat();
        assert_eq!(hex(&group.encode()), want);
        assert_eq!(GroupRow::decode(&group.encode()), Ok(group));
        let group = GroupRow {
            released: 9,
            releases: 10,
            timed: true,
            ..group
        };
        assert_eq!(hex(&group.encode()), want + &[9, 10, 1].map(n).concat());
        assert_eq!(GroupRow::decode(&group.encode()), Ok(group));
        let producer = ProducerRow {
            ids: 1,
            oldest: StreamId { ms: 2, seq: 3 },
            name: b"p"[..].into(),
        };
        assert_eq!(hex(&producer.encode()), [1, 2, 3].map(n).concat() + "70");
        assert_eq!(ProducerRow::decode(&producer.encode()), Ok(producer));
        let consumer = ConsumerRow {
            seen_ms: 1,
            active_ms: UNKNOWN,
            pending: 2,
            name: b"c"[..].into(),
        };
        assert_eq!(
            hex(&consumer.encode()),
            [1, u64::MAX, 2].map(n).concat() + "63"
        );
        assert_eq!(ConsumerRow::decode(&consumer.encode()), Ok(consumer));
        let pending = PendingRow {
            consumer: 1,
            delivered_ms: 2,
            deliveries: 3,
        };
        assert_eq!(hex(&pending.encode()), [1, 2, 3].map(n).concat());
        assert_eq!(PendingRow::decode(&pending.encode()), Ok(pending));
    }

    #[test]
    fn ids_step_over_the_ends_of_a_millisecond() {
        let end = StreamId {
            ms: 1,
            seq: u64::MAX,
        };
        let start = StreamId { ms: 2, seq: 0 };
        assert_eq!(end.next(), Some(start));
        assert_eq!(start.previous(), Some(end));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::MIN.previous(), None);
        assert_eq!(StreamId::decode(end.encode()), end);
        assert_eq!(end.to_string(), format!("1-{}", u64::MAX));
    }
}
