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

use super::input::Input;
use super::reader::{Reader, checked_time};
use super::{Element, Error, Result};
use crate::base::time::UnixMs;
use crate::encoding::ValueType;

/// The letters of a name, in the order of their numbers.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Bits of the version.
const VERSION_BITS: u32 = 10;

const TIMED_SET_FAULT: Error = Error::Corrupt("a set with times");

pub(super) const END: u64 = 0;
pub(super) const UNSIGNED: u64 = 2;
pub(super) const FLOAT: u64 = 3;
pub(super) const DOUBLE: u64 = 4;
pub(super) const STRING: u64 = 5;

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
        if self.is_same_type(TIMED_SET) {
            return Ok(ValueType::Set);
        }
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

/// The id of sets members of which have times: each member, and its time in Unix ms (0: none). Redis
/// has such sets from 8.12 on, in a form that is not known here.
pub(super) const TIMED_SET: ModuleId = ModuleId::new(b"set-times", 1);

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
    if id.is_same_type(TIMED_SET) {
        return read_timed_set(reader, id, each);
    }
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

fn read_timed_set<I: Input, E: From<Error>>(
    reader: &mut Reader<I>,
    id: ModuleId,
    each: &mut impl FnMut(Element<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    if id.version() != TIMED_SET.version() {
        return Err(Error::Unsupported("newer forms of sets with times").into());
    }
    let (mut text, mut count) = (Vec::new(), 0);
    loop {
        match reader.length()? {
            END if count > 0 => return Ok(count),
            END => return Err(Error::Empty.into()),
            STRING => reader.string(&mut text)?,
            _ => return Err(TIMED_SET_FAULT.into()),
        }
        if reader.length()? != UNSIGNED {
            return Err(TIMED_SET_FAULT.into());
        }
        each(Element::Member {
            member: &text,
            expire_ms: checked_time(UnixMs(reader.length()?))?,
        })?;
        count += 1;
    }
}
