//! Zipmaps: small hashes of Redis up to 2.4.
//!
//! ```text
//! fields (1; from FE on: not counted) ‖ field, value … ‖ FF
//!
//! field  length ‖ bytes
//! value  length ‖ number of unused bytes (1) ‖ bytes ‖ unused bytes
//! length one byte below FE, or FE and 4 bytes, little-endian
//! ```

use super::{Error, Result};

const END: u8 = 0xFF;
const LONG: u8 = 0xFE;

const CORRUPT: Error = Error::Corrupt("a zipmap");

/// Calls `each` with all fields and their values. Returns the number of fields.
pub fn for_each<E: From<Error>>(
    bytes: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let (&announced, mut rest) = bytes.split_first().ok_or(CORRUPT)?;
    let mut count = 0u64;
    while rest.first() != Some(&END) {
        let (len, tail) = split_length(rest)?;
        let (field, tail) = tail.split_at_checked(len).ok_or(CORRUPT)?;
        let (len, tail) = split_length(tail)?;
        let (&unused, tail) = tail.split_first().ok_or(CORRUPT)?;
        let (value, tail) = tail.split_at_checked(len).ok_or(CORRUPT)?;
        let (_, tail) = tail.split_at_checked(unused.into()).ok_or(CORRUPT)?;
        each(field, value)?;
        count += 1;
        rest = tail;
    }
    let counted = announced >= LONG || u64::from(announced) == count;
    if rest.len() != 1 || !counted {
        return Err(CORRUPT.into());
    }
    Ok(count)
}

fn split_length(rest: &[u8]) -> Result<(usize, &[u8])> {
    match rest.split_first().ok_or(CORRUPT)? {
        (&END, _) => Err(CORRUPT),
        (&LONG, tail) => {
            let (len, tail) = tail.split_first_chunk::<4>().ok_or(CORRUPT)?;
            let len = u32::from_le_bytes(*len);
            // Redis refuses a length in five bytes that would fit into one.
            match len < LONG.into() {
                true => Err(CORRUPT),
                false => Ok((len as usize, tail)),
            }
        }
        (&short, tail) => Ok((short.into(), tail)),
    }
}
