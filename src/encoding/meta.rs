//! Meta rows: the type and expiry of a key, and its value if that is small.
//!
//! ```text
//! type (1) ‖ flags (1) ‖ expire ms (8, 0 = never) ‖ body
//! type (1) ‖ flags (1) ‖ expire ms (8, 0 = never) ‖ due ms (8) ‖ body     TIMED
//!
//! flags: 1 ROWS: the elements stand in rows of their own
//!        2 TEXT, 4 RAW: of strings only, at most one of them: see [`StringForm`]
//!        8 TIMED: of hashes and sets only: some elements have an expiry of their own, none of
//!          them before due ms
//!
//! body, by type and by the flag ROWS:
//!   string          the bytes                         ROWS: id (8) ‖ length (8), and with a base
//!                                                     1 or 2: see [`Base`]
//!   hash, set       packed entries                    ROWS: id (8) ‖ count (8) ‖ peak (8)
//!   … TIMED         see [`super::timed`]              ROWS: … ‖ timed (8)
//!   zset            packed entries, in score order    ROWS: id (8) ‖ count (8) ‖ first (L) ‖ last (L)
//!   list            packed entries, in list order     ROWS: id (8) ‖ head (8) ‖ tail (8)
//!   stream          –                                 ROWS: see [`super::stream`]
//!   sortedint       see [`super::sortedint`]
//!   in pages        length (8) ‖ head ‖ bytes         ROWS: id (8) ‖ length (8) ‖ head
//!                   (the types of RedisBloom; each describes its head)
//!   JSON            the root                          ROWS: see [`super::json`]
//! ```
//!
//! `timed` is the number of elements with an expiry. `due ms` may be too early, if the element that
//! expired first is gone; the expire thread corrects it.
//!
//! `first` and `last` of a zset are what follows the id in the keys of its first and its last score
//! row, score (8) ‖ member, cut to 72 bytes, each after its length. No row of the zset stands
//! outside of the two, so scans skip the tombstones that pops leave at the ends.

use super::sortedint::SortedIntBody;
use super::stream::StreamBody;
use super::{CollectionId, Corrupt, ValueType, reader::Reader, tag};
use crate::base::time::UnixMs;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Bytes before the body, without and with the flag TIMED.
const HEADER_LEN: usize = 10;
const TIMED_HEADER_LEN: usize = 18;

/// The header's bytes.
pub type Header = SmallVec<[u8; TIMED_HEADER_LEN]>;

const FLAG_ROWS: u8 = 1;
const FLAG_TEXT: u8 = 2;
const FLAG_RAW: u8 = 4;
const FLAG_TIMED: u8 = 8;

/// How a string was written, as far as OBJECT ENCODING needs it. The command that writes the meta
/// row knows it, so storing it costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StringForm {
    /// Written as a whole (SET, INCR, RESTORE …): the bytes decide the encoding. All other types
    /// have this form, too.
    #[default]
    Given,
    /// The result of INCRBYFLOAT: never `int`, though it may look like an integer.
    Text,
    /// Changed or created in place (APPEND, SETRANGE, SETBIT, BITOP, PFADD …).
    Raw,
}

impl StringForm {
    fn flags(self) -> u8 {
        match self {
            StringForm::Given => 0,
            StringForm::Text => FLAG_TEXT,
            StringForm::Raw => FLAG_RAW,
        }
    }

    fn of(flags: u8, kind: ValueType) -> Result<StringForm, Corrupt> {
        match flags & !(FLAG_ROWS | FLAG_TIMED) {
            0 => Ok(StringForm::Given),
            FLAG_TEXT if kind == ValueType::String => Ok(StringForm::Text),
            FLAG_RAW if kind == ValueType::String => Ok(StringForm::Raw),
            _ => Err(Corrupt("meta flags")),
        }
    }
}

/// The header of a meta row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// The key's type.
    pub kind: ValueType,
    /// Whether the elements stand in rows of their own, under the id in the body.
    pub rows: bool,
    /// How a string was written.
    pub form: StringForm,
    /// When the key expires, in Unix milliseconds; 0 for never.
    pub expire_ms: UnixMs,
    /// When the first of its elements expires, or earlier; 0 if none has an expiry of its own.
    pub due_ms: UnixMs,
}

impl Meta {
    /// The header of a new key without expiry.
    pub fn new(kind: ValueType) -> Meta {
        Meta {
            kind,
            rows: false,
            form: StringForm::Given,
            expire_ms: UnixMs::NONE,
            due_ms: UnixMs::NONE,
        }
    }

    /// Whether the key has expired at `now_ms`.
    pub fn is_expired(&self, now_ms: UnixMs) -> bool {
        self.expire_ms.is_some() && self.expire_ms <= now_ms
    }

    /// The header's bytes.
    #[inline]
    pub fn encode(&self) -> Header {
        let rows = if self.rows { FLAG_ROWS } else { 0 };
        let flags = rows | self.form.flags();
        let [a, b, c, d, e, f, g, h] = self.expire_ms.0.to_be_bytes();
        let mut header = [0; TIMED_HEADER_LEN];
        let (plain, due) = header.split_at_mut(HEADER_LEN);
        plain.copy_from_slice(&[self.kind as u8, flags, a, b, c, d, e, f, g, h]);
        if self.due_ms == UnixMs::NONE {
            return Header::from_buf_and_len(header, HEADER_LEN);
        }
        due.copy_from_slice(&self.due_ms.0.to_be_bytes());
        if let [_, flags, ..] = plain {
            *flags |= FLAG_TIMED;
        }
        Header::from_buf_and_len(header, TIMED_HEADER_LEN)
    }

    /// Whether elements may have expired at `now_ms`.
    pub fn is_due(&self, now_ms: UnixMs) -> bool {
        self.due_ms.is_some() && self.due_ms <= now_ms
    }
}

/// A meta row, decoded without a copy.
#[derive(Debug, Clone, Copy)]
pub struct MetaView<'a> {
    /// The header.
    pub meta: Meta,
    /// The rest of the row, which depends on the type.
    pub body: &'a [u8],
}

impl<'a> MetaView<'a> {
    /// Decodes a row.
    pub fn decode(row: &'a [u8]) -> Result<MetaView<'a>, Corrupt> {
        let mut r = Reader::new(row, "meta");
        let kind = ValueType::from_byte(r.u8()?).ok_or(Corrupt("meta type"))?;
        let flags = r.u8()?;
        let form = StringForm::of(flags, kind)?;
        let expire_ms = UnixMs(r.u64()?);
        let due_ms = match flags & FLAG_TIMED {
            0 => UnixMs::NONE,
            _ if kind.due_tag().is_none() => return Err(Corrupt("meta flags")),
            _ => match UnixMs(r.u64()?) {
                UnixMs::NONE => return Err(Corrupt("meta due")),
                due_ms => due_ms,
            },
        };
        let meta = Meta {
            kind,
            rows: flags & FLAG_ROWS != 0,
            form,
            expire_ms,
            due_ms,
        };
        Ok(MetaView {
            meta,
            body: r.rest(),
        })
    }

    /// The id at the beginning of the body of a key whose elements are rows.
    pub fn id(&self) -> Result<CollectionId, Corrupt> {
        Ok(CollectionId(Reader::new(self.body, "meta id").u64()?))
    }
}

/// The body of a hash, set or zset in rows: an id and the number of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The id under which the rows stand.
    pub id: CollectionId,
    /// Elements.
    pub count: u64,
}

impl Counted {
    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Counted, Corrupt> {
        let mut r = Reader::new(body, "meta count");
        Ok(Counted {
            id: CollectionId(r.u64()?),
            count: r.u64()?,
        })
    }

    /// The body's bytes.
    pub fn encode(&self) -> [u8; 16] {
        (u128::from(self.id.0) << 64 | u128::from(self.count)).to_be_bytes()
    }
}

/// Where the bytes of a long string stand that are in no fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Base {
    /// Nowhere: they are zeros.
    #[default]
    None,
    /// In the value log, to which the row of the [base](super::keys::base) refers. All of the
    /// string is there.
    Whole,
    /// There, and a part of the string was changed since: a fragment replaces what the base has at
    /// its place. Behind the end of the base are zeros.
    Patched,
}

/// The body of a long string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongString {
    /// The id under which the rows stand.
    pub id: CollectionId,
    /// Bytes of the string.
    pub len: u64,
    /// Where the bytes are that are in no fragment.
    pub base: Base,
}

impl LongString {
    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<LongString, Corrupt> {
        let mut r = Reader::new(body, "long string");
        Ok(LongString {
            id: CollectionId(r.u64()?),
            len: r.u64()?,
            base: match r.rest() {
                [] => Base::None,
                [1] => Base::Whole,
                [2] => Base::Patched,
                _ => return Err(Corrupt("long string")),
            },
        })
    }

    /// The body's bytes.
    pub fn encode(&self) -> SmallVec<[u8; 17]> {
        let mut body = SmallVec::new();
        body.extend_from_slice(&self.id.0.to_be_bytes());
        body.extend_from_slice(&self.len.to_be_bytes());
        match self.base {
            Base::None => {}
            Base::Whole => body.push(1),
            Base::Patched => body.push(2),
        }
        body
    }
}

/// The body of a list in rows: the items stand at the indices `head..tail`,
/// without gaps, so their number is `tail - head`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListSpan {
    /// The id under which the rows stand.
    pub id: CollectionId,
    /// Index of the first item.
    pub head: i64,
    /// Index after the last item.
    pub tail: i64,
}

impl ListSpan {
    /// Reads the body. Refuses more items than `i64::MAX`.
    pub fn decode(body: &[u8]) -> Result<ListSpan, Corrupt> {
        let mut r = Reader::new(body, "meta list");
        let span = ListSpan {
            id: CollectionId(r.u64()?),
            head: r.u64()? as i64,
            tail: r.u64()? as i64,
        };
        match span.tail.checked_sub(span.head) {
            Some(0..) => Ok(span),
            _ => Err(Corrupt("meta list")),
        }
    }

    /// The body's bytes.
    pub fn encode(&self) -> [u8; 24] {
        let mut body = [0; 24];
        let (id, ends) = body.split_at_mut(8);
        let (head, tail) = ends.split_at_mut(8);
        id.copy_from_slice(&self.id.0.to_be_bytes());
        head.copy_from_slice(&self.head.to_be_bytes());
        tail.copy_from_slice(&self.tail.to_be_bytes());
        body
    }

    /// The number of items.
    pub fn len(&self) -> u64 {
        self.tail.abs_diff(self.head)
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }
}

impl ValueType {
    /// The most rows that a value in rows has under each of its tags, as its body states; for a
    /// stream the number of entries.
    pub fn stated_rows(self, body: &[u8]) -> Result<u64, Corrupt> {
        let mut r = Reader::new(body, "meta rows");
        r.u64()?;
        Ok(match self {
            ValueType::List => {
                let (head, tail) = (r.u64()?, r.u64()?);
                tail.wrapping_sub(head)
            }
            ValueType::String => match LongString::decode(body)? {
                LongString {
                    base: Base::Whole, ..
                } => 1,
                long => long.len.div_ceil(1 << 12),
            },
            ValueType::Hash
            | ValueType::Set
            | ValueType::Zset
            | ValueType::Stream
            | ValueType::Json
            | ValueType::SortedInt => r.u64()?,
            ValueType::Bloom
            | ValueType::Cuckoo
            | ValueType::CountMinSketch
            | ValueType::TopK
            | ValueType::TDigest => r.u64()?.div_ceil(super::PAGE_LEN),
        })
    }

    /// What the body of a value in rows states of the rows under each of its tags. A long
    /// string and a value in pages state nothing: stretches of zeros have no rows. Nor does a
    /// stream state how many rows its groups and consumers have: they do so themselves.
    pub fn statements(self, body: &[u8]) -> Result<SmallVec<[Statement; 3]>, Corrupt> {
        let counted = |tag, rows| Statement {
            tag,
            rows,
            positions: None,
        };
        Ok(match self {
            ValueType::Hash | ValueType::Set => {
                let rows = Counted::decode(body)?.count;
                let timed = Grown::timed(body)?;
                let tags = self.element_tags().iter();
                tags.map(|tag| match *tag {
                    tag::HASH_FIELD | tag::SET_MEMBER => counted(*tag, rows),
                    _ => counted(*tag, timed),
                })
                .collect()
            }
            ValueType::String
            | ValueType::Bloom
            | ValueType::Cuckoo
            | ValueType::CountMinSketch
            | ValueType::TopK
            | ValueType::TDigest => SmallVec::new(),
            ValueType::Zset | ValueType::Json => {
                let rows = Counted::decode(body)?.count;
                let tags = self.element_tags().iter();
                tags.map(|tag| counted(*tag, rows)).collect()
            }
            ValueType::List => {
                let span = ListSpan::decode(body)?;
                let positions = Some(span.head..span.tail);
                smallvec![Statement {
                    positions,
                    ..counted(tag::LIST_ITEM, span.len())
                }]
            }
            ValueType::SortedInt => {
                let rows = SortedIntBody::decode(body)?.count;
                smallvec![counted(tag::SORTED_INT, rows)]
            }
            ValueType::Stream => {
                let body = StreamBody::decode(body)?;
                let entries = counted(tag::STREAM_ENTRY, body.length);
                let idempotence = body.idempotence;
                smallvec![
                    entries,
                    counted(tag::STREAM_GROUP, body.groups),
                    counted(tag::STREAM_IID, idempotence.tracked),
                    counted(tag::STREAM_IID_ORDER, idempotence.tracked),
                    counted(tag::STREAM_PRODUCER, idempotence.producers),
                    counted(tag::STREAM_PRODUCER_NAME, idempotence.producers),
                ]
            }
        })
    }
}

/// How many rows a collection has under a tag, as its meta row states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The tag.
    pub tag: u8,
    /// How many.
    pub rows: u64,
    /// The indices of the rows, if they are numbered: those of a list.
    pub positions: Option<Range<i64>>,
}

/// The value of a reclaim row.
pub fn encode_reclaim(kind: ValueType, rows: u64) -> [u8; 9] {
    let mut value = [0u8; 9];
    value[0] = kind as u8;
    value[1..].copy_from_slice(&rows.to_be_bytes());
    value
}

/// Reads the value of a reclaim row: the type of the dead value and about how many rows it has.
pub fn decode_reclaim(value: &[u8]) -> Result<(ValueType, u64), Corrupt> {
    let mut r = Reader::new(value, "reclaim");
    let kind = ValueType::from_byte(r.u8()?).ok_or(Corrupt("reclaim type"))?;
    Ok((kind, r.u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_these_bits() {
        for (rows, form, flags) in [
            (false, StringForm::Given, 0),
            (true, StringForm::Given, 1),
            (false, StringForm::Text, 2),
            (false, StringForm::Raw, 4),
            (true, StringForm::Raw, 5),
        ] {
            let meta = Meta {
                rows,
                form,
                ..Meta::new(ValueType::String)
            };
            let mut row = meta.encode();
            assert_eq!(row.as_slice(), [0x02, flags, 0, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(MetaView::decode(&row).map(|found| found.meta), Ok(meta));
            row[0] = ValueType::Hash as u8;
            assert_eq!(MetaView::decode(&row).is_ok(), flags <= 1);
        }
        for flags in [6, 8, 0xFF] {
            let row = [0x02, flags, 0, 0, 0, 0, 0, 0, 0, 0];
            assert!(MetaView::decode(&row).is_err(), "{flags}");
        }
    }

    #[test]
    fn the_time_of_the_first_element_follows_the_expiry() {
        let timed = Meta {
            rows: true,
            due_ms: UnixMs(0x0102),
            ..Meta::new(ValueType::Hash)
        };
        let row = timed.encode();
        let mut want = vec![0x03, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(row.as_slice(), want);
        assert_eq!(MetaView::decode(&row).map(|found| found.meta), Ok(timed));
        assert!(timed.is_due(UnixMs(0x0102)) && !timed.is_due(UnixMs(0x0101)));
        want[0] = ValueType::Zset as u8;
        assert!(MetaView::decode(&want).is_err(), "of another type");
        assert!(MetaView::decode(&row[..17]).is_err(), "too short");
        let mut at_zero = row;
        at_zero[10..].fill(0);
        assert!(MetaView::decode(&at_zero).is_err(), "no time");
    }

    #[test]
    fn list_spans_have_these_bytes() {
        let span = ListSpan {
            id: CollectionId(0x0102),
            head: -2,
            tail: 3,
        };
        let bytes = span.encode();
        assert_eq!(
            bytes,
            *b"\0\0\0\0\0\0\x01\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFE\0\0\0\0\0\0\0\x03"
        );
        assert_eq!(ListSpan::decode(&bytes), Ok(span));
        assert_eq!(span.len(), 5);
    }

    #[test]
    fn impossible_list_spans_are_refused() {
        for (head, tail) in [(1, 0), (i64::MIN, i64::MAX), (-1, i64::MAX)] {
            let span = ListSpan {
                id: CollectionId(1),
                head,
                tail,
            };
            assert!(ListSpan::decode(&span.encode()).is_err(), "{head}..{tail}");
        }
        assert!(ListSpan::decode(&[0; 23]).is_err());
    }
}

/// The body of a hash or set in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grown {
    /// Id and count.
    pub counted: Counted,
    /// The highest count since a compaction of tombstones was last requested: elements deleted
    /// since then may still have left tombstones between the rows.
    pub peak: u64,
    /// The number of elements with an expiry of their own.
    pub timed: u64,
}

/// The bytes of a [`Grown`].
pub type GrownBytes = SmallVec<[u8; 32]>;

impl Grown {
    /// Bytes of the body without elements that have an expiry.
    const LEN: usize = 24;

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Grown, Corrupt> {
        let mut r = Reader::new(body, "meta count");
        Ok(Grown {
            counted: Counted {
                id: CollectionId(r.u64()?),
                count: r.u64()?,
            },
            peak: r.u64()?,
            timed: match r.is_empty() {
                true => 0,
                false => r.u64()?,
            },
        })
    }

    /// The number of elements with an expiry that a body states.
    fn timed(body: &[u8]) -> Result<u64, Corrupt> {
        match body.get(Grown::LEN..) {
            None | Some([]) => Ok(0),
            Some(timed) => Reader::new(timed, "meta timed").u64(),
        }
    }

    /// The body's bytes.
    pub fn encode(&self) -> GrownBytes {
        let mut body = GrownBytes::from_slice(&self.counted.encode());
        body.extend_from_slice(&self.peak.to_be_bytes());
        if self.timed > 0 {
            body.extend_from_slice(&self.timed.to_be_bytes());
        }
        body
    }
}
