//! Redis' RDB format, in both directions: values as in DUMP payloads and RDB files, and
//! the payloads themselves. Pure functions over bytes, without access to storage,
//! commands or files.
//!
//! | module | what it does |
//! |---|---|
//! | [`input`] | sources of bytes: a slice, or a stream with its checksum |
//! | [`reader`] | lengths, strings, doubles: the primitives of the format |
//! | [`listpack`], [`ziplist`], [`zipmap`], [`intset`] | collections packed into one string |
//! | [`decode`] | a value of any type and encoding, element by element |
//! | [`encode`] | a value element by element, in the encodings of Redis 7.0 (7.4 for times of fields) |
//! | [`stream`] | streams, in both directions |
//! | [`module`] | values of modules, in both directions |
//! | [`file`] | RDB files, in both directions |
//! | [`append_only`] | the files of an append-only log |
//! | [`payload`] | version and checksum around a value: DUMP and RESTORE |
//!
//! Input is not trusted. No buffer is sized by an announced count or length alone:
//! memory grows with the bytes that are present, up to the caller's limit for one
//! string. Counts, lengths, back references and sort orders in a packed collection are
//! compared with its content. Repeated elements are not detected here; the receiver of
//! the elements does that.
//!
//! To write a value: [`encode::Encoder`]. To read one: the type of a [`payload::Payload`] or
//! [`file::Head`], then [`decode::read_value`].
#![deny(clippy::indexing_slicing)]

pub mod append_only;
pub mod decode;
pub mod encode;
pub mod file;
pub mod input;
pub mod intset;
pub mod listpack;
pub mod module;
pub mod payload;
pub mod reader;
pub mod stream;
pub mod ziplist;
pub mod zipmap;

use crate::base::time::UnixMs;
use crate::encoding::stream::StreamId;
use module::ModulePart;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{mutate, timed_hashes};

/// The version that is written: that of Redis 7.0, which all later versions can read.
const VERSION_WRITTEN: u16 = 10;

/// The version that is written where fields of hashes have times: that of Redis 7.4.
const VERSION_WITH_TIMES: u16 = 12;

/// The highest version of Redis that can be read: that of Redis 8.10. Versions from 13 on have new
/// types and leave the known ones as they are.
const VERSION_READ: u16 = 15;

/// The version of Valkey 9. From here on Valkey has type numbers of its own.
const VERSION_VALKEY: u16 = 80;

/// The numbers of value types and encodings.
pub mod kind {
    /// A string.
    pub const STRING: u8 = 0;
    /// A list, item by item.
    pub const LIST: u8 = 1;
    /// A set, member by member.
    pub const SET: u8 = 2;
    /// A sorted set with scores as text.
    pub const ZSET: u8 = 3;
    /// A hash, field by field.
    pub const HASH: u8 = 4;
    /// A sorted set with scores in binary.
    pub const ZSET_2: u8 = 5;
    /// A module's value, of release candidates of Redis 4.
    pub const MODULE_PRE_GA: u8 = 6;
    /// A module's value.
    pub const MODULE_2: u8 = 7;
    /// A small hash of Redis up to 2.4.
    pub const HASH_ZIPMAP: u8 = 9;
    /// A small list of Redis up to 3.0.
    pub const LIST_ZIPLIST: u8 = 10;
    /// A set of integers.
    pub const SET_INTSET: u8 = 11;
    /// A small sorted set of Redis up to 6.2.
    pub const ZSET_ZIPLIST: u8 = 12;
    /// A small hash of Redis up to 6.2.
    pub const HASH_ZIPLIST: u8 = 13;
    /// A list as nodes of ziplists, of Redis 3.2 to 6.2.
    pub const LIST_QUICKLIST: u8 = 14;
    /// A stream.
    pub const STREAM_LISTPACKS: u8 = 15;
    /// A small hash.
    pub const HASH_LISTPACK: u8 = 16;
    /// A small sorted set.
    pub const ZSET_LISTPACK: u8 = 17;
    /// A list as nodes of listpacks, or of single items.
    pub const LIST_QUICKLIST_2: u8 = 18;
    /// A stream of Redis 7.0.
    pub const STREAM_LISTPACKS_2: u8 = 19;
    /// A small set of Redis 7.2.
    pub const SET_LISTPACK: u8 = 20;
    /// A stream of Redis 7.2.
    pub const STREAM_LISTPACKS_3: u8 = 21;
    /// A hash with field expiry, of release candidates of Redis 7.4, or of Valkey 9.
    pub const HASH_METADATA_PRE_GA: u8 = 22;
    /// The same, small.
    pub const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
    /// A hash with field expiry, of Redis 7.4.
    pub const HASH_METADATA: u8 = 24;
    /// The same, small.
    pub const HASH_LISTPACK_EX: u8 = 25;
    /// A stream of Redis 8.6.
    pub const STREAM_LISTPACKS_4: u8 = 26;
    /// A stream of Redis 8.8.
    pub const STREAM_LISTPACKS_5: u8 = 27;
}

/// Which type numbers a payload or file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Those of Redis, and of Valkey up to 8.
    #[default]
    Redis,
    /// Those of Valkey from 9 on.
    Valkey,
}

/// An element or part of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Element<'a> {
    /// A whole string.
    String(&'a [u8]),
    /// The next item of a list.
    Item(&'a [u8]),
    /// A member of a set.
    Member {
        /// The member.
        member: &'a [u8],
        /// When it expires, Unix ms; 0 for never.
        expire_ms: UnixMs,
    },
    /// A member of a sorted set; the score is not NaN.
    Scored(f64, &'a [u8]),
    /// A field of a hash.
    Field {
        /// The field.
        field: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When the field expires, Unix ms; 0 for never.
        expire_ms: UnixMs,
    },
    /// A part of a stream.
    Stream(StreamPart<'a>),
    /// A part of a value of a type that Redis has as a module.
    Module(ModulePart<'a>),
}

/// A part of a stream. The parts come in the order of the variants; those of a group are
/// together, and so are those of a consumer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StreamPart<'a> {
    /// An entry; ids increase.
    Entry {
        /// Its id.
        id: StreamId,
        /// Its fields and values, packed ([`crate::encoding::packed`]).
        fields: &'a [u8],
    },
    /// The state of the stream; comes after all entries.
    State(StreamState),
    /// A group.
    Group {
        /// Its name.
        name: &'a [u8],
        /// The last delivered entry.
        last: StreamId,
        /// The number of entries read ([`crate::encoding::stream::UNKNOWN`] if unknown);
        /// `None` in versions without this field.
        read: Option<i64>,
        /// The number of pending entries, which follow.
        pending: u64,
    },
    /// A pending entry: delivered to a consumer of the group and not acknowledged.
    Pending {
        /// Its id.
        id: StreamId,
        /// When it was last delivered, Unix ms.
        delivered_ms: i64,
        /// The number of deliveries.
        deliveries: u64,
    },
    /// A pending entry that no consumer owns, in the order of release; of Redis 8.8. In files
    /// these follow the consumers; readers call for them before.
    Released(StreamId),
    /// The number of consumers of the group, which follow.
    Consumers(u64),
    /// A consumer.
    Consumer {
        /// Its name.
        name: &'a [u8],
        /// When it was last seen, Unix ms.
        seen_ms: i64,
        /// When it last received an entry, Unix ms.
        active_ms: i64,
        /// The number of its pending entries, whose ids follow.
        pending: u64,
    },
    /// A pending entry of the consumer.
    Owned(StreamId),
    /// How long idempotent ids are remembered, and how many of a producer; of Redis 8.6, as the
    /// parts that follow.
    Idempotence {
        /// In seconds.
        duration_s: u64,
        /// The highest number of ids of a producer.
        most: u64,
    },
    /// A producer, whose ids follow.
    Producer(&'a [u8]),
    /// An idempotent id.
    Iid {
        /// The id.
        iid: &'a [u8],
        /// The entry that was added with it.
        entry: StreamId,
    },
    /// How many idempotent ids were ever added, and how many were repeated.
    IidCounts {
        /// Ids that were added.
        added: u64,
        /// Ids that were repeated.
        duplicates: u64,
    },
}

/// The state of a stream besides its entries; see [`crate::encoding::stream`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamState {
    /// The number of entries.
    pub length: u64,
    /// The id of the first entry; zero if there is none.
    pub first: StreamId,
    /// The highest id that was ever used.
    pub last: StreamId,
    /// The highest id that was deleted with XDEL.
    pub deleted: StreamId,
    /// The number of entries that were ever added.
    pub added: u64,
    /// The number of groups, which follow.
    pub groups: u64,
}

impl<'a> Element<'a> {
    /// A member of a set that does not expire by itself.
    pub fn member(member: &'a [u8]) -> Element<'a> {
        let expire_ms = UnixMs::NONE;
        Element::Member { member, expire_ms }
    }

    /// Whether the element's own time is over at `now_ms`.
    pub fn is_over(&self, now_ms: UnixMs) -> bool {
        match *self {
            Element::Field { expire_ms, .. } | Element::Member { expire_ms, .. } => {
                expire_ms.is_some() && expire_ms <= now_ms
            }
            _ => false,
        }
    }

    /// Whether the element expires by itself.
    pub fn has_time(&self) -> bool {
        self.is_over(UnixMs::MAX)
    }

    /// Bytes of the element's content.
    pub fn bytes(&self) -> usize {
        match self {
            Element::String(bytes)
            | Element::Item(bytes)
            | Element::Member { member: bytes, .. } => bytes.len(),
            Element::Scored(_, member) => member.len() + 8,
            Element::Field { field, value, .. } => field.len() + value.len(),
            Element::Stream(part) => match part {
                StreamPart::Entry { fields, .. } => 16 + fields.len(),
                StreamPart::Group { name, .. } | StreamPart::Consumer { name, .. } => {
                    32 + name.len()
                }
                StreamPart::Producer(bytes) | StreamPart::Iid { iid: bytes, .. } => {
                    32 + bytes.len()
                }
                _ => 32,
            },
            Element::Module(part) => part.bytes(),
        }
    }
}

/// Counts of hash fields and set members whose times were dropped. All readers of values report them
/// with the same text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ElementTimes {
    /// Hashes and sets that have such elements.
    pub values: u64,
    /// Such elements, including expired ones that were left out.
    pub elements: u64,
}

impl ElementTimes {
    /// The text of a report. `all_taken`: expired fields were kept, too.
    pub fn describe(&self, all_taken: bool) -> String {
        let ElementTimes { values, elements } = self;
        let rest = match all_taken {
            true => "they do not expire",
            false => "those past their time were left out, the others do not expire",
        };
        format!(
            "{elements} elements of {values} hashes and sets had times of their own, which are not kept: {rest}"
        )
    }
}

impl std::fmt::Display for ElementTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe(false))
    }
}

/// Why data cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data are invalid.
    #[error("corrupt RDB data: {0}")]
    Corrupt(&'static str),
    /// A collection without elements, which is not a value.
    #[error("an empty collection")]
    Empty,
    /// There is no memory for what a part of the value takes.
    #[error("there is no memory for it")]
    NoMemory,
    /// A string longer than the caller's limit.
    #[error("a string of {0} bytes is too long")]
    TooLong(u64),
    /// A type that is known but not supported.
    #[error("{0} are not supported")]
    Unsupported(&'static str),
    /// A payload with a newer version or a wrong checksum, or a file with a wrong
    /// checksum.
    #[error("version or checksum are wrong")]
    Envelope,
    /// A file of an unknown version.
    #[error("RDB files of version {0} are not known here")]
    Version(u16),
    /// Reading from the source failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The result of reading.
pub type Result<T> = std::result::Result<T, Error>;
