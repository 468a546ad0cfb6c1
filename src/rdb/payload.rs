//! What DUMP returns and RESTORE takes: `type ‖ value ‖ version (2) ‖ CRC-64 (8)`,
//! version and checksum little-endian.

use super::{Dialect, Error, Result, VERSION_READ, VERSION_VALKEY, VERSION_WRITTEN};
use crate::base::hash::crc64;

const VERSION_LEN: usize = 2;
const CRC_LEN: usize = 8;

/// Whether the checksum of a payload is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// A wrong one is refused.
    Verified,
    /// Any will do, so that a test can break the value under it.
    Ignored,
}

/// A payload whose version and checksum are right.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// The type's number, see [`super::kind`].
    pub kind: u8,
    /// The value.
    pub value: &'a [u8],
    /// Whose numbers it uses.
    pub dialect: Dialect,
}

/// What a payload has before version and checksum, and whose version that is.
///
/// # Errors
/// [`Error::Envelope`] if the checksum is wrong or the version too new.
pub fn contents(payload: &[u8], checksum: Checksum) -> Result<(&[u8], Dialect)> {
    let (covered, crc) = payload
        .split_last_chunk::<CRC_LEN>()
        .ok_or(Error::Envelope)?;
    let (value, version) = covered
        .split_last_chunk::<VERSION_LEN>()
        .ok_or(Error::Envelope)?;
    let dialect = match u16::from_le_bytes(*version) {
        0..=VERSION_READ => Dialect::Redis,
        VERSION_VALKEY => Dialect::Valkey,
        _ => return Err(Error::Envelope),
    };
    if checksum == Checksum::Verified && u64::from_le_bytes(*crc) != crc64(0, covered) {
        return Err(Error::Envelope);
    }
    Ok((value, dialect))
}

/// Opens a payload.
///
/// # Errors
/// [`Error::Envelope`] if the checksum is wrong or the version too new.
pub fn open(payload: &[u8]) -> Result<Payload<'_>> {
    open_with(payload, Checksum::Verified)
}

/// Opens a payload whose checksum may be ignored.
///
/// # Errors
/// [`Error::Envelope`] if the version is too new, or the checksum wrong that is to be
/// verified.
pub fn open_with(payload: &[u8], checksum: Checksum) -> Result<Payload<'_>> {
    let (value, dialect) = contents(payload, checksum)?;
    let (&kind, value) = value
        .split_first()
        .ok_or(Error::Corrupt("a payload without a value"))?;
    Ok(Payload {
        kind,
        value,
        dialect,
    })
}

/// Makes `type ‖ value` a payload.
pub fn seal(payload: &mut Vec<u8>) {
    payload.extend_from_slice(&VERSION_WRITTEN.to_le_bytes());
    let crc = crc64(0, payload);
    payload.extend_from_slice(&crc.to_le_bytes());
}
