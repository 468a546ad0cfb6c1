//! Payloads of DUMP and RESTORE: `type ‖ value ‖ version (2) ‖ CRC-64 (8)`,
//! version and checksum little-endian.

use super::decode::kind_of;
use super::encode::version;
use super::module::ModuleId;
use super::reader::Reader;
use super::{Dialect, Error, Result, VERSION_READ, VERSION_VALKEY, kind};
use crate::base::hash::crc64;
use crate::encoding::ValueType;

const VERSION_LEN: usize = 2;
const CRC_LEN: usize = 8;

/// Whether the checksum of a payload is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// A wrong checksum is an error.
    Verified,
    /// The checksum is ignored, so that tests can corrupt the value.
    Ignored,
}

/// A payload with a valid version and checksum.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// The type's number, see [`super::kind`].
    pub kind: u8,
    /// The value.
    pub value: &'a [u8],
    /// Which type numbers it uses.
    pub dialect: Dialect,
}

impl Payload<'_> {
    /// The type of the value.
    ///
    /// # Errors
    /// It is not known, or not supported.
    pub fn value_type(&self) -> Result<ValueType> {
        match self.kind {
            kind::MODULE_2 => ModuleId(Reader::new(self.value, 0).length()?).value_type(),
            number => kind_of(number),
        }
    }
}

/// The contents of a payload before version and checksum, and the dialect of the
/// version.
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

/// Opens a payload; the checksum may be ignored.
///
/// # Errors
/// [`Error::Envelope`] if the version is too new, or if the checksum is wrong and not
/// ignored.
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

/// Turns `type ‖ value` into a payload.
pub fn seal(payload: &mut Vec<u8>) {
    let has_times = payload.first() == Some(&kind::HASH_METADATA);
    payload.extend_from_slice(&version(has_times).to_le_bytes());
    let crc = crc64(0, payload);
    payload.extend_from_slice(&crc.to_le_bytes());
}
