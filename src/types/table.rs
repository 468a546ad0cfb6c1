//! The definitions of all types of values.

use super::definition::Definition;
use super::json::definition::JsonType;
use super::list::definition::ListType;
use super::members::definition::{HashType, SetType};
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
        ValueType::Json => &JsonType,
    }
}
