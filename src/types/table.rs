//! The definitions of all types of values.

use super::bloom::cms::build::SKETCH;
use super::bloom::cuckoo::build::CUCKOO;
use super::bloom::filter::build::BLOOM;
use super::bloom::tdigest::build::DIGEST;
use super::bloom::topk::build::TOP_K;
use super::definition::Definition;
use super::json::definition::JsonType;
use super::list::definition::ListType;
use super::members::definition::{HashType, SetType};
use super::sortedint::definition::SortedIntType;
use super::stream::definition::StreamType;
use super::string::definition::StringType;
use super::zset::definition::ZsetType;
use crate::encoding::ValueType;

/// The definition of a type.
pub fn definition(value_type: ValueType) -> &'static dyn Definition {
    match value_type {
        ValueType::String => &StringType,
        ValueType::Hash => &HashType,
        ValueType::List => &ListType,
        ValueType::Set => &SetType,
        ValueType::Zset => &ZsetType,
        ValueType::Stream => &StreamType,
        ValueType::SortedInt => &SortedIntType,
        ValueType::Bloom => &BLOOM,
        ValueType::Cuckoo => &CUCKOO,
        ValueType::CountMinSketch => &SKETCH,
        ValueType::TopK => &TOP_K,
        ValueType::TDigest => &DIGEST,
        ValueType::Json => &JsonType,
    }
}
