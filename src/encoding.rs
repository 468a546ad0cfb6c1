//! The disk format as pure functions: the layout of keys, values and system rows as bytes. Nothing
//! here knows RocksDB, transactions or RESP.
//!
//! All integers are big-endian, so that the order of the bytes is the order of
//! the numbers. A row's first byte is its tag.
//!
//! ```text
//! in the column family of a DB
//!   01 meta      01 ‖ user key                        → type ‖ flags ‖ expire ms (8) ‖ body
//!                01 ‖ slot (2) ‖ user key             → the same, in a database with slots ([`keys::Layout`])
//!   04 hash      04 ‖ id (8) ‖ h(field) (8) ‖ field   → value
//!   06 list      06 ‖ id (8) ‖ index (8)              → value
//!   08 set       08 ‖ id (8) ‖ h(member) (8) ‖ member → (empty)
//!   0A zset      0A ‖ id (8) ‖ h(member) (8) ‖ member → score (8)
//!   0B zset      0B ‖ id (8) ‖ score (8) ‖ member     → (empty)
//!   0C TTL       0C ‖ expire ms (8) ‖ user key        → type
//!   0E fragment  0E ‖ id (8) ‖ index (8)              → up to 4 KiB of a long string
//!   0E base      0E ‖ id (8) ‖ −1 (8)                 → where the string stands in the value log: see [`values`]
//!   0F reclaim   0F ‖ id (8)                          → type ‖ count (8)
//!   11 … 16, 30 … 34  streams: see [`stream`]
//!   18 JSON      18 ‖ id (8) ‖ node (8)               → see [`json`]
//!   1D sortedint 1D ‖ id (8) ‖ integer (8)            → (empty): see [`sortedint`]
//!   21           21 ‖ id (8) ‖ index (8)              → a page of a Bloom filter: up to 512 bytes
//!   24           24 ‖ id (8) ‖ index (8)              → a page of a Cuckoo filter
//!   26           26 ‖ id (8) ‖ index (8)              → a page of a count-min sketch
//!   28           28 ‖ id (8) ‖ index (8)              → a page of a top-k value
//!   29           29 ‖ id (8) ‖ index (8)              → a slot of its heap
//!   2B           2B ‖ id (8) ‖ index (8)              → a page of a t-digest
//!   2C time       2C ‖ id (8) ‖ h(field) (8) ‖ field   → expire ms (8) of a field of a hash
//!   2D due        2D ‖ id (8) ‖ expire ms (8) ‖ h(field) (8) ‖ field     → (empty)
//!   2E due        2E ‖ id (8) ‖ expire ms (8) ‖ h(member) (8) ‖ member   → (empty), of a set
//!   2F due keys   2F ‖ due ms (8) ‖ user key          → type, of a key whose elements have times
//! in `default`  see [`system`]
//! in `binlog`   see [`binlog`]
//! ```
//!
//! A member of a set that has a time of its own has it as the value of its row, 8 bytes. Fields
//! without times have no rows 2C and 2D. `due ms` is the [`Meta::due_ms`] of the key.
//!
//! `id` is a collection id. It is never reused, so rows of a deleted collection cannot be mistaken
//! for a part of a newer one. `h` is the database's keyed hash.
//!
//! The numbers are persisted: append, never change. A test pins them.
//!
#![doc = include_str!("../images/encodings.svg")]
#![deny(clippy::indexing_slicing)]

pub mod binlog;
pub mod json;
pub mod keys;
pub mod meta;
pub mod packed;
pub mod reader;
pub mod score;
pub mod sortedint;
pub mod stream;
pub mod system;
pub mod timed;
pub mod values;

pub use keys::RowKey;
pub use meta::{Meta, MetaView};

/// A stored row that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("corrupt {0} row")]
pub struct Corrupt(pub &'static str);

/// The version of the disk format that this build writes. Older databases are converted when they
/// are opened.
pub const FORMAT_VERSION: u32 = 4;

/// The version of the rows of DBs and of the binlog, which are sent to replicas unchanged.
pub const ROWS_VERSION: u32 = 3;

/// Bytes of a full page of the arrays of [`ValueType::Bloom`] and its like.
pub const PAGE_LEN: u64 = 1 << 9;

/// The id of a collection or of a long string: unique in the whole database, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u64);

/// Makes the enum of types from one row for each: its number on disk, the name that TYPE
/// returns, and the tags of the rows that hold its elements; of a type whose elements can have
/// times also those of the rows in the order of the times (`due`), and of the rows that hold the
/// times (`time`), unless the rows of the elements do.
macro_rules! value_types {
    (@optional) => {
        None
    };
    (@optional $tag:ident) => {
        Some(tag::$tag)
    };
    ($(
        $(#[$doc:meta])*
        $variant:ident = $number:literal, $name:literal, [$($tag:ident),*]
            $(, due $due:ident)? $(, time $time:ident)?;
    )*) => {
        /// The type of a key, with its number on disk.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum ValueType {
            $($(#[$doc])* $variant = $number,)*
        }

        impl ValueType {
            /// All types, in the order of their numbers.
            pub const ALL: &'static [ValueType] = &[$(ValueType::$variant),*];

            /// The name that TYPE returns.
            pub fn name(self) -> &'static str {
                match self {
                    $(ValueType::$variant => $name,)*
                }
            }

            /// The tags of the rows that hold the elements of this type.
            pub fn element_tags(self) -> &'static [u8] {
                match self {
                    $(ValueType::$variant => &[$(tag::$tag),*],)*
                }
            }

            /// The tag of the index of its elements by expiry, if elements of this type can have
            /// one.
            pub fn due_tag(self) -> Option<u8> {
                match self {
                    $(ValueType::$variant => value_types!(@optional $($due)?),)*
                }
            }

            /// The tag of the rows that hold the expiry of elements; `None` if it stands in the
            /// rows of the elements, or nowhere.
            pub fn time_tag(self) -> Option<u8> {
                match self {
                    $(ValueType::$variant => value_types!(@optional $($time)?),)*
                }
            }
        }
    };
}

value_types! {
    /// Bytes: strings, bitmaps, HyperLogLogs.
    String = 0x02, "string", [FRAGMENT];
    /// Field → value.
    Hash = 0x03, "hash", [HASH_FIELD, FIELD_TIME, FIELD_DUE], due FIELD_DUE, time FIELD_TIME;
    /// Values by position.
    List = 0x05, "list", [LIST_ITEM];
    /// Members.
    Set = 0x07, "set", [SET_MEMBER, MEMBER_DUE], due MEMBER_DUE;
    /// Members by score.
    Zset = 0x09, "zset", [ZSET_MEMBER, ZSET_SCORE];
    /// Entries by id, and groups of consumers.
    Stream = 0x10, "stream", [
        STREAM_ENTRY, STREAM_GROUP, STREAM_CONSUMER, STREAM_CONSUMER_NAME, STREAM_PENDING, STREAM_OWNED,
        STREAM_TIMED, STREAM_IID, STREAM_IID_ORDER, STREAM_PRODUCER, STREAM_PRODUCER_NAME
    ];
    /// A JSON document.
    Json = 0x17, "ReJSON-RL", [JSON_NODE];
    /// Integers in their order.
    SortedInt = 0x1C, "sortedint", [SORTED_INT];
    /// Bits of a scaling Bloom filter.
    Bloom = 0x20, "MBbloom--", [BLOOM_PAGE];
    /// Fingerprints of items.
    Cuckoo = 0x23, "MBbloomCF", [CUCKOO_PAGE];
    /// Counters of items.
    CountMinSketch = 0x25, "CMSk-TYPE", [SKETCH_PAGE];
    /// The most frequent items.
    TopK = 0x27, "TopK-TYPE", [TOPK_PAGE, TOPK_SLOT];
    /// Weighted means of observations.
    TDigest = 0x2A, "TDIS-TYPE", [DIGEST_PAGE];
}

impl ValueType {
    /// The type with this number.
    fn from_byte(byte: u8) -> Option<ValueType> {
        ValueType::ALL
            .iter()
            .copied()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Makes the tags of rows and the list of all of them.
macro_rules! tags {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        $($(#[$doc])* pub const $name: u8 = $number;)*

        /// All tags.
        pub const ALL: &[u8] = &[$($name),*];
    };
}

/// The first byte of every row of a DB's column family.
pub mod tag {
    tags! {
        /// Type, expiry and small value of a key.
        META = 0x01;
        /// One field of a hash.
        HASH_FIELD = 0x04;
        /// One item of a list.
        LIST_ITEM = 0x06;
        /// One member of a set.
        SET_MEMBER = 0x08;
        /// Member → score of a sorted set.
        ZSET_MEMBER = 0x0A;
        /// Score order of a sorted set.
        ZSET_SCORE = 0x0B;
        /// Keys in the order of their expiry.
        TTL = 0x0C;
        /// A piece of a long string.
        FRAGMENT = 0x0E;
        /// A dead collection whose element rows wait for reclaim.
        RECLAIM = 0x0F;
        /// One entry of a stream.
        STREAM_ENTRY = 0x11;
        /// One group of a stream, by name.
        STREAM_GROUP = 0x12;
        /// One consumer of a group, by number.
        STREAM_CONSUMER = 0x13;
        /// The number of a consumer, by name.
        STREAM_CONSUMER_NAME = 0x14;
        /// An entry that a group was given and has not acknowledged, by group.
        STREAM_PENDING = 0x15;
        /// The same entry, by consumer.
        STREAM_OWNED = 0x16;
        /// A part of a JSON document.
        JSON_NODE = 0x18;
        /// One integer of sorted ints.
        SORTED_INT = 0x1D;
        /// A piece of the bits of a Bloom filter.
        BLOOM_PAGE = 0x21;
        /// A piece of the slots of a Cuckoo filter.
        CUCKOO_PAGE = 0x24;
        /// A piece of the counters of a count-min sketch.
        SKETCH_PAGE = 0x26;
        /// A piece of the buckets of a top-k value.
        TOPK_PAGE = 0x28;
        /// A slot of the heap of a top-k value.
        TOPK_SLOT = 0x29;
        /// A piece of the centroids of a t-digest.
        DIGEST_PAGE = 0x2B;
        /// When a field of a hash expires.
        FIELD_TIME = 0x2C;
        /// Fields of a hash in the order of their expiry.
        FIELD_DUE = 0x2D;
        /// Members of a set in the order of their expiry.
        MEMBER_DUE = 0x2E;
        /// Keys in the order in which the first of their elements expires.
        DUE = 0x2F;
        /// The same entry, by the time of its delivery.
        STREAM_TIMED = 0x30;
        /// An idempotent id of a producer.
        STREAM_IID = 0x31;
        /// The same id, by its entry.
        STREAM_IID_ORDER = 0x32;
        /// One producer of idempotent ids, by number.
        STREAM_PRODUCER = 0x33;
        /// The number of a producer, by name.
        STREAM_PRODUCER_NAME = 0x34;
    }

    /// Tags of rows in hash order ([`super::keys::hashed`]). A full sync checks the positions of
    /// such rows, and the row cache holds them.
    pub const HASHED: [u8; 4] = [HASH_FIELD, SET_MEMBER, ZSET_MEMBER, FIELD_TIME];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persisted_numbers_never_change() {
        let numbers: Vec<u8> = ValueType::ALL.iter().map(|k| *k as u8).collect();
        assert_eq!(
            numbers,
            [
                0x02, 0x03, 0x05, 0x07, 0x09, 0x10, 0x17, 0x1C, 0x20, 0x23, 0x25, 0x27, 0x2A
            ]
        );
        assert_eq!(
            tag::ALL,
            [
                0x01, 0x04, 0x06, 0x08, 0x0A, 0x0B, 0x0C, 0x0E, 0x0F, 0x11, 0x12, 0x13, 0x14, 0x15,
                0x16, 0x18, 0x1D, 0x21, 0x24, 0x26, 0x28, 0x29, 0x2B, 0x2C, 0x2D, 0x2E, 0x2F, 0x30,
                0x31, 0x32, 0x33, 0x34
            ]
        );
    }

    #[test]
    fn each_row_of_elements_belongs_to_one_type() {
        let mut seen = vec![tag::META, tag::TTL, tag::RECLAIM, tag::DUE];
        for tag in ValueType::ALL.iter().flat_map(|kind| kind.element_tags()) {
            assert!(tag::ALL.contains(tag), "{tag:#04x} is not among all tags");
            assert!(!seen.contains(tag), "{tag:#04x} belongs to two types");
            seen.push(*tag);
        }
        assert_eq!(seen.len(), tag::ALL.len(), "a tag of no type");
    }
}
