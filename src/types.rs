//! The data types: operations on a transaction. No RESP here, and no RocksDB.
//!
//! The module of a type has reads as functions over `&mut View` and writes over `&mut
//! Txn` (a `Txn` derefs to its `View`). A collection is loaded from the meta row,
//! changed, and saved. Only the module itself knows whether the elements are packed into
//! the meta row or stand in rows of their own.
//!
//! Operations for all types (DUMP, RESTORE, OBJECT ENCODING, MEMORY USAGE, digests) use
//! the type's [`definition`]; [`table`] lists the definitions.

pub mod bits;
pub mod bloom;
pub mod definition;
pub mod dump;
pub mod export;
pub mod hashed;
pub mod hll;
pub mod import;
pub mod inspect;
pub mod json;
pub mod keyspace;
pub mod list;
pub mod members;
mod pages;
pub mod random_key;
pub mod restore;
pub mod set;
pub mod sort;
pub mod sortedint;
pub mod source;
pub mod space;
pub mod stream;
pub mod string;
pub mod table;
mod timed_rows;
pub mod zset;

#[cfg(test)]
mod testing;

use crate::encoding::ValueType;
use crate::rdb;
use crate::storage::{DbIndex, KeyMeta, StorageError, View};

/// Why an operation on a value failed. The error texts of the protocol are in
/// [`crate::commands::Error`].
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// The key holds another type.
    #[error("the key holds another type")]
    WrongType,
    /// The value is not an integer of 64 bits.
    #[error("not an integer")]
    NotInteger,
    /// The value is not a floating point number.
    #[error("not a float")]
    NotFloat,
    /// The result does not fit an integer of 64 bits.
    #[error("overflow")]
    Overflow,
    /// The result is not a finite number.
    #[error("not a finite number")]
    NotFinite,
    /// The string would get longer than `proto-max-bulk-len`.
    #[error("string too long")]
    TooLong,
    /// There is no element at this index.
    #[error("index out of range")]
    IndexOutOfRange,
    /// There is no such key.
    #[error("no such key")]
    NoSuchKey,
    /// A document has nothing at this path.
    #[error("no such path")]
    NoSuchPath,
    /// A path visits more values of a document than one command may.
    #[error("too many values")]
    TooManyValues,
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<crate::encoding::Corrupt> for OpError {
    fn from(corrupt: crate::encoding::Corrupt) -> Self {
        OpError::Storage(corrupt.into())
    }
}

/// The result of an operation on a value.
pub type OpResult<T> = Result<T, OpError>;

/// Looks up a key, which must be of type `kind` if it exists.
pub fn lookup(
    view: &mut View,
    db: DbIndex,
    key: &[u8],
    kind: ValueType,
) -> OpResult<Option<KeyMeta>> {
    match view.lookup(db, key)? {
        Some(found) if found.meta.kind != kind => Err(OpError::WrongType),
        found => Ok(found),
    }
}

/// Why a value cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The serialised form is invalid.
    #[error(transparent)]
    Rdb(#[from] rdb::Error),
    /// Storing the value failed.
    #[error(transparent)]
    Op(#[from] OpError),
}

impl From<crate::storage::StorageError> for RestoreError {
    fn from(error: crate::storage::StorageError) -> Self {
        RestoreError::Op(error.into())
    }
}
