//! What the definitions of the types of RedisBloom share: their values are parts of a module's
//! value, of which the long ones stand in an array in pages.

use crate::encoding::CollectionId;
use crate::rdb::encode::MAX_BUFFERED_BYTES;
use crate::rdb::module::{ModuleId, ModulePart};
use crate::rdb::{self, Element};
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::definition::{
    Added, Build, Definition, Each, Hash, Limits, Output, ROW_OVERHEAD, Stored, of_another_type,
};
use crate::types::pages::Array;
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use sha1::{Digest, Sha1};
use std::ops::{ControlFlow, Range};

/// A part of a value.
pub(in crate::types) enum Part<'a> {
    /// A part in memory.
    Plain(ModulePart<'a>),
    /// A string that stands in an array.
    Bytes(&'a Array, Range<u64>),
}

impl Part<'_> {
    /// An integer.
    pub(in crate::types) fn number(number: u64) -> Self {
        Part::Plain(ModulePart::Unsigned(number))
    }
}

/// Called with the parts of a value, in the order of the RDB form, until it breaks.
pub(in crate::types) type EachPart<'e> =
    &'e mut dyn FnMut(&mut dyn Source, Part<'_>) -> OpResult<ControlFlow<()>>;

/// What differs between the types.
pub(in crate::types) trait Parts: Sync {
    /// Calls `each` with all parts behind the beginning.
    fn each(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: EachPart<'_>,
    ) -> OpResult<ControlFlow<()>>;

    /// The array of a value.
    fn array(&self, stored: Stored<'_>) -> OpResult<Array>;

    /// Begins a value.
    fn build<'k>(&self, db: DbIndex, key: &'k [u8]) -> Box<dyn Collect + 'k>;
}

/// Calls `each` with some parts, until it breaks.
pub(in crate::types) fn each_of<'p>(
    source: &mut dyn Source,
    parts: impl IntoIterator<Item = Part<'p>>,
    each: EachPart<'_>,
) -> OpResult<ControlFlow<()>> {
    for part in parts {
        if each(source, part)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// A value under construction.
pub(in crate::types) trait Collect {
    /// The version of the encoding of what follows, which is not later than the one that is
    /// written.
    fn begin(&mut self, _version: u16) {}

    /// The next part; never the beginning.
    ///
    /// # Errors
    /// The part is not allowed at this place.
    fn part(&mut self, txn: &mut Txn, part: ModulePart<'_>) -> Result<(), RestoreError>;

    /// The collection id of the rows, if there are any.
    fn collection(&self) -> Option<CollectionId>;

    /// Writes the key.
    ///
    /// # Errors
    /// Parts are missing, or contradict each other.
    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError>;
}

/// The definition of a type whose values are those of a module.
pub(in crate::types) struct ModuleType<P> {
    /// The id with which values are written.
    pub(in crate::types) id: ModuleId,
    /// The parts.
    pub(in crate::types) parts: P,
}

impl<P: Parts> ModuleType<P> {
    fn each(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: EachPart<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let begun = each(source, Part::Plain(ModulePart::Begin(self.id)))?;
        match begun.is_break() {
            true => Ok(begun),
            false => self.parts.each(source, db, stored, each),
        }
    }
}

impl<P: Parts> Definition for ModuleType<P> {
    fn walk(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: Each<'_>,
    ) -> OpResult<ControlFlow<()>> {
        self.each(source, db, stored, &mut |source, part| match part {
            Part::Plain(part) => each(Element::Module(part)),
            Part::Bytes(array, range) => {
                let whole = array.collect(source, db, range)?;
                each(Element::Module(ModulePart::Text(&whole)))
            }
        })
    }

    fn count(&self, _: Stored<'_>) -> OpResult<u64> {
        Ok(1)
    }

    /// Strings up to a limit are collected, so that they can be compressed; longer ones are written
    /// in pieces.
    fn write(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        to: Output<'_>,
    ) -> OpResult<()> {
        let Output {
            key,
            encoder,
            out,
            flush,
        } = to;
        self.each(source, db, stored, &mut |source, part| {
            match part {
                Part::Plain(part) => encoder.module_part(part, key, out),
                Part::Bytes(array, range)
                    if range.end - range.start <= MAX_BUFFERED_BYTES as u64 =>
                {
                    let whole = array.collect(source, db, range)?;
                    encoder.module_part(ModulePart::Text(&whole), None, out);
                }
                Part::Bytes(array, range) => {
                    let len = range.end - range.start;
                    source.will_make(len)?;
                    encoder.begin_module_text(len, out);
                    array
                        .each(source, db, range, &mut |piece| {
                            out.extend_from_slice(piece);
                            flush(out)?;
                            Ok(ControlFlow::Continue(()))
                        })
                        .map(drop)?;
                }
            }
            flush(out)?;
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        encoder.end_module(out);
        flush(out)
    }

    fn build<'k>(&self, _: &mut Txn, db: DbIndex, key: &'k [u8]) -> OpResult<Box<dyn Build + 'k>> {
        Ok(Box::new(Building {
            newest: self.id.version(),
            value: self.parts.build(db, key),
        }))
    }

    /// What Redis says of all values of modules.
    fn encoding(
        &self,
        _: &mut View,
        _: DbIndex,
        _: &KeyMeta,
        _: &Limits,
    ) -> OpResult<&'static str> {
        Ok("raw")
    }

    /// Extrapolated from the first `samples` pieces of the array, of which those of zeros count
    /// nothing.
    fn rows_bytes(
        &self,
        view: &mut View,
        db: DbIndex,
        found: &KeyMeta,
        samples: u64,
    ) -> OpResult<u64> {
        let array = self.parts.array(Stored::of(found))?;
        let (mut seen, mut seen_bytes, mut passed) = (0u64, 0u64, 0u64);
        array
            .each(view, db, 0..array.len(), &mut |piece| {
                seen += 1;
                passed += piece.len() as u64;
                if piece.iter().any(|byte| *byte != 0) {
                    seen_bytes += piece.len() as u64 + ROW_OVERHEAD;
                }
                Ok(match seen == samples {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            })
            .map(drop)?;
        Ok((seen_bytes as f64 * array.len() as f64 / passed.max(1) as f64) as u64)
    }

    /// The order counts, and the array is hashed in pieces.
    fn digest(&self, view: &mut View, db: DbIndex, found: &KeyMeta) -> OpResult<Hash> {
        let mut hasher = Sha1::new();
        self.each(view, db, Stored::of(found), &mut |source, part| {
            match part {
                Part::Plain(part) => {
                    let (kind, number, bytes) = part.digested();
                    hasher.update([kind]);
                    hasher.update(number);
                    hasher.update(bytes);
                }
                Part::Bytes(array, range) => {
                    array
                        .each(source, db, range, &mut |piece| {
                            hasher.update(piece);
                            Ok(ControlFlow::Continue(()))
                        })
                        .map(drop)?;
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        Ok(hasher.finalize().into())
    }
}

/// Passes the parts of a value on.
struct Building<'k> {
    /// The latest version of the encoding that is known.
    newest: u16,
    value: Box<dyn Collect + 'k>,
}

impl Build for Building<'_> {
    fn add(&mut self, txn: &mut Txn, element: Element<'_>) -> Result<Added, RestoreError> {
        match element {
            Element::Module(ModulePart::Begin(id)) => {
                if id.version() > self.newest {
                    let what = "values of a later version of RedisBloom";
                    return Err(rdb::Error::Unsupported(what).into());
                }
                self.value.begin(id.version());
                Ok(Added::New)
            }
            Element::Module(part) => {
                self.value.part(txn, part)?;
                Ok(Added::Uncounted)
            }
            _ => Err(of_another_type()),
        }
    }

    fn collection(&self) -> Option<CollectionId> {
        self.value.collection()
    }

    fn counted_tags(&self) -> &'static [u8] {
        &[]
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        self.value.finish(txn)
    }
}

/// Numbers of a value that have arrived and are not used yet.
#[derive(Debug, Default)]
pub(in crate::types) struct Numbers {
    bits: Vec<(bool, u64)>,
    taken: usize,
}

/// Most numbers between two strings of a value.
const NUMBERS_MAX: usize = 16;

impl Numbers {
    /// Keeps a number; the string of a part that is none.
    pub(in crate::types) fn push<'a>(
        &mut self,
        part: ModulePart<'a>,
    ) -> Result<Option<&'a [u8]>, RestoreError> {
        let (is_double, bits) = match part {
            ModulePart::Unsigned(number) => (false, number),
            ModulePart::Double(number) => (true, number.to_bits()),
            ModulePart::Text(text) => return Ok(Some(text)),
            ModulePart::Float(_) | ModulePart::Begin(_) => return Err(of_another_type()),
        };
        if self.bits.len() >= NUMBERS_MAX {
            return Err(corrupt("too many numbers"));
        }
        self.bits.push((is_double, bits));
        Ok(None)
    }

    /// How many there are.
    pub(in crate::types) fn len(&self) -> usize {
        self.bits.len() - self.taken
    }

    /// Takes an integer.
    pub(in crate::types) fn integer(&mut self) -> Result<u64, RestoreError> {
        self.take(false)
    }

    /// Takes a double.
    pub(in crate::types) fn double(&mut self) -> Result<f64, RestoreError> {
        Ok(f64::from_bits(self.take(true)?))
    }

    fn take(&mut self, double: bool) -> Result<u64, RestoreError> {
        let found = self.bits.get(self.taken).copied();
        let (is_double, bits) = found.ok_or_else(of_another_type)?;
        if is_double != double {
            return Err(of_another_type());
        }
        self.taken += 1;
        if self.taken == self.bits.len() {
            self.bits.clear();
            self.taken = 0;
        }
        Ok(bits)
    }
}

/// The error for a value that contradicts itself.
pub(in crate::types) fn corrupt(what: &'static str) -> RestoreError {
    rdb::Error::Corrupt(what).into()
}
