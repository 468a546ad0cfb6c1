//! The payload of a value, as DUMP returns it.

use super::definition::{Output, Stored};
use super::source::Source;
use super::table::definition;
use super::{OpError, OpResult};
use crate::rdb::encode::Encoder;
use crate::rdb::payload;
use crate::storage::DbIndex;

/// The payload of a value.
///
/// # Errors
/// [`OpError::TooLong`] if it gets longer than `max_len`.
pub fn payload(
    source: &mut dyn Source,
    db: DbIndex,
    stored: Stored<'_>,
    encoder: &mut Encoder,
    max_len: u64,
) -> OpResult<Vec<u8>> {
    let mut out = Vec::new();
    let output = Output {
        key: None,
        encoder,
        out: &mut out,
        flush: &mut |out| match out.len() as u64 <= max_len {
            true => Ok(()),
            false => Err(OpError::TooLong),
        },
    };
    definition(stored.meta.kind).write(source, db, stored, output)?;
    payload::seal(&mut out);
    Ok(out)
}
