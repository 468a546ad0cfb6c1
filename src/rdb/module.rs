//! Values of modules, in both directions: an id, then numbers and strings, each after an
//! opcode, whose meaning only the module knows. Types that Redis has as a module use this form, so
//! that their values travel between both.
//!
//! ```text
//! id, as a length     nine letters of 6 bits, then the version of the encoding (10 bits)
//! 2 number, as a length
//! 3 float (4, little-endian)
//! 4 double (8, little-endian)
//! 5 string
//! 0                   the end
//! ```

use super::encode::{Encoder, length};
use super::input::Input;
use super::reader::Reader;
use super::{Element, Error, Result};
use crate::encoding::ValueType;

/// The letters of a name, in the order of their numbers.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Bits of the version.
const VERSION_BITS: u32 = 10;

const END: u64 = 0;
const UNSIGNED: u64 = 2;
const FLOAT: u64 = 3;
const DOUBLE: u64 = 4;
const STRING: u64 = 5;

/// The type of a module's values, and the version of their encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModuleId(pub u64);

impl ModuleId {
    /// The id of a type.
    ///
    /// # Panics
    /// The name has a letter that names cannot have; in a constant the compiler says so.
    #[allow(clippy::indexing_slicing)] // of constants
    pub const fn new(name: &[u8; 9], version: u16) -> ModuleId {
        let (mut id, mut at) = (0u64, 0);
        while at < name.len() {
            let mut letter = 0;
            while LETTERS[letter] != name[at] {
                letter += 1;
            }
            id = id << 6 | letter as u64;
            at += 1;
        }
        ModuleId(id << VERSION_BITS | version as u64)
    }

    /// The version of the encoding.
    pub fn version(self) -> u16 {
        (self.0 & ((1 << VERSION_BITS) - 1)) as u16
    }

    /// Whether both ids name the same type; their versions may differ.
    pub fn is_same_type(self, other: ModuleId) -> bool {
        self.0 >> VERSION_BITS == other.0 >> VERSION_BITS
    }

    /// The name of the type.
    pub fn name(self) -> String {
        let number = self.0 >> VERSION_BITS;
        (0..9)
            .rev()
            .filter_map(|at| LETTERS.get((number >> (6 * at) & 63) as usize))
            .map(|letter| char::from(*letter))
            .collect()
    }

    /// The type of values with this id.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the values of other modules.
    pub fn value_type(self) -> Result<ValueType> {
        let mut known = TYPES.iter();
        let found = known.find(|(_, id)| id.is_same_type(self));
        let (value_type, _) = found.ok_or(Error::Unsupported("values of modules"))?;
        Ok(*value_type)
    }
}

/// The types whose values are written in this form, with the versions that are written.
const TYPES: &[(ValueType, ModuleId)] = &[
    (ValueType::Json, ModuleId::new(b"ReJSON-RL", 3)),
    (ValueType::SortedInt, SORTED_INT),
    (ValueType::Bloom, ModuleId::new(b"MBbloom--", 4)),
    (ValueType::Cuckoo, ModuleId::new(b"MBbloomCF", 4)),
    (ValueType::CountMinSketch, ModuleId::new(b"CMSk-TYPE", 0)),
    (ValueType::TopK, ModuleId::new(b"TopK-TYPE", 0)),
    (ValueType::TDigest, ModuleId::new(b"TDIS-TYPE", 0)),
];

/// The id of sorted ints, a type of Kvrocks, which has no RDB form of it: all integers, ascending.
pub const SORTED_INT: ModuleId = ModuleId::new(b"sortedint", 1);

/// The id with which values of a type are written; `None` if Redis has the type without a
/// module.
pub fn id_of(value_type: ValueType) -> Option<ModuleId> {
    let mut known = TYPES.iter();
    let found = known.find(|(of, _)| *of == value_type);
    found.map(|(_, id)| *id)
}

/// A part of a module's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModulePart<'a> {
    /// The beginning of the value.
    Begin(ModuleId),
    /// An integer. A negative one has the bits of its two's complement.
    Unsigned(u64),
    /// A float; may be NaN.
    Float(f32),
    /// A double; may be NaN.
    Double(f64),
    /// A string.
    Text(&'a [u8]),
}

impl ModulePart<'_> {
    /// Bytes of the part.
    pub(super) fn bytes(&self) -> usize {
        match self {
            ModulePart::Text(bytes) => bytes.len(),
            ModulePart::Begin(_)
            | ModulePart::Unsigned(_)
            | ModulePart::Float(_)
            | ModulePart::Double(_) => 8,
        }
    }

    /// The part as bytes that differ if the parts differ.
    pub fn digested(&self) -> (u8, [u8; 8], &[u8]) {
        match self {
            ModulePart::Begin(id) => (0, id.0.to_be_bytes(), b""),
            ModulePart::Unsigned(number) => (1, number.to_be_bytes(), b""),
            ModulePart::Float(number) => (2, u64::from(number.to_bits()).to_be_bytes(), b""),
            ModulePart::Double(number) => (3, number.to_bits().to_be_bytes(), b""),
            ModulePart::Text(bytes) => (4, [0; 8], bytes),
        }
    }
}

/// Reads the rest of a value after its id; calls `each` with all parts and returns their number.
pub(super) fn read<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    id: ModuleId,
    each: &mut impl FnMut(Element<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let (mut text, mut count) = (Vec::new(), 1);
    each(Element::Module(ModulePart::Begin(id)))?;
    loop {
        let part = match reader.length()? {
            END => return Ok(count),
            UNSIGNED => ModulePart::Unsigned(reader.length()?),
            FLOAT => ModulePart::Float(f32::from_le_bytes(reader.input.array().map_err(E::from)?)),
            DOUBLE => {
                ModulePart::Double(f64::from_le_bytes(reader.input.array().map_err(E::from)?))
            }
            STRING => {
                reader.string(&mut text)?;
                ModulePart::Text(&text)
            }
            _ => return Err(Error::Corrupt("a module's value").into()),
        };
        each(Element::Module(part))?;
        count += 1;
    }
}

/// Writes a part.
pub(super) fn write(encoder: &mut Encoder, part: ModulePart<'_>, out: &mut Vec<u8>) {
    match part {
        ModulePart::Begin(id) => length(id.0, out),
        ModulePart::Unsigned(number) => {
            length(UNSIGNED, out);
            length(number, out);
        }
        ModulePart::Float(number) => {
            length(FLOAT, out);
            out.extend_from_slice(&number.to_le_bytes());
        }
        ModulePart::Double(number) => {
            length(DOUBLE, out);
            out.extend_from_slice(&number.to_le_bytes());
        }
        ModulePart::Text(bytes) => {
            length(STRING, out);
            encoder.string(bytes, out);
        }
    }
}

/// Writes the head of a string of `len` bytes; the caller appends the bytes.
pub(super) fn begin_text(len: u64, out: &mut Vec<u8>) {
    length(STRING, out);
    length(len, out);
}

/// Writes the end of a value.
pub(super) fn end(out: &mut Vec<u8>) {
    length(END, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::decode::read_value;
    use crate::rdb::{Dialect, kind};

    #[test]
    fn names_and_versions() {
        let id = ModuleId::new(b"ReJSON-RL", 3);
        assert_eq!((id.name().as_str(), id.version()), ("ReJSON-RL", 3));
        assert!(id.is_same_type(ModuleId::new(b"ReJSON-RL", 0)));
        assert!(!id.is_same_type(ModuleId::new(b"MBbloom--", 3)));
        // A is 0, so the id of nine of them is the version alone.
        assert_eq!(ModuleId::new(b"AAAAAAAAA", 5), ModuleId(5));
        assert_eq!(ModuleId::new(b"AAAAAAAAB", 0), ModuleId(1 << 10));
    }

    #[test]
    fn parts_are_read_as_they_were_written() {
        let parts = [
            ModulePart::Begin(ModuleId::new(b"ReJSON-RL", 3)),
            ModulePart::Unsigned(u64::MAX),
            ModulePart::Float(1.5),
            ModulePart::Double(f64::NEG_INFINITY),
            ModulePart::Text(b"a text that is long enough to be compressed: aaaaaaaaaaaaaaaaaaa"),
            ModulePart::Text(b"7"),
        ];
        let (mut encoder, mut out) = (Encoder::new(true), Vec::new());
        for part in parts {
            encoder.module_part(part, Some(b"key"), &mut out);
        }
        encoder.end_module(&mut out);
        assert_eq!(out[..5], *b"\x07\x03key");
        let mut reader = Reader::new(&out[5..], 1 << 20);
        let mut at = 0;
        let count = read_value(&mut reader, kind::MODULE_2, Dialect::Redis, |element| {
            assert_eq!(element, Element::Module(parts[at]));
            at += 1;
            Ok::<(), Error>(())
        });
        assert_eq!((count.ok(), at), (Some(6), 6));
        assert!(reader.input.is_empty());
    }

    #[test]
    fn hostile_parts() {
        for bytes in [
            &b""[..],
            b"\x01",
            b"\x01\x01\x05",
            b"\x01\x06",
            b"\x01\x05\x81\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
            b"\x01\x04\0",
        ] {
            let mut reader = Reader::new(bytes, 1 << 20);
            let read = read_value(&mut reader, kind::MODULE_2, Dialect::Redis, |_| {
                Ok::<(), Error>(())
            });
            assert!(read.is_err(), "{bytes:?}");
        }
    }
}
