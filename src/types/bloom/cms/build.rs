//! The definition of count-min sketches, and their form in files of Redis: width, depth, count, and
//! the counters as a string.

use super::{Sketch, counters_len};
use crate::encoding::{CollectionId, tag};
use crate::rdb::module::{ModuleId, ModulePart};
use crate::storage::{DbIndex, Txn};
use crate::types::bloom::module::{
    Collect, EachPart, ModuleType, Numbers, Part, Parts, corrupt, each_of,
};
use crate::types::definition::Stored;
use crate::types::pages::Array;
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use std::ops::ControlFlow;

const VERSION: u16 = 0;

/// The definition of count-min sketches.
pub(in crate::types) static SKETCH: ModuleType<SketchParts> = ModuleType {
    id: ModuleId::new(b"CMSk-TYPE", VERSION),
    parts: SketchParts,
};

/// See [`Parts`].
pub(in crate::types) struct SketchParts;

impl Parts for SketchParts {
    fn each(
        &self,
        source: &mut dyn Source,
        _: DbIndex,
        stored: Stored<'_>,
        each: EachPart<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let sketch = Sketch::decode(stored.meta, stored.body)?;
        let head = [sketch.width, sketch.depth, sketch.count].map(Part::number);
        let counters = Part::Bytes(&sketch.array, 0..sketch.array.len());
        each_of(source, head.into_iter().chain([counters]), each)
    }

    fn array(&self, stored: Stored<'_>) -> OpResult<Array> {
        Ok(Sketch::decode(stored.meta, stored.body)?.array)
    }

    fn build<'k>(&self, db: DbIndex, key: &'k [u8]) -> Box<dyn Collect + 'k> {
        Box::new(Building {
            db,
            key,
            numbers: Numbers::default(),
            sketch: None,
        })
    }
}

/// A sketch under construction.
struct Building<'k> {
    db: DbIndex,
    key: &'k [u8],
    numbers: Numbers,
    sketch: Option<Sketch>,
}

const BAD: &str = "a count-min sketch";

impl Collect for Building<'_> {
    fn part(&mut self, txn: &mut Txn, part: ModulePart<'_>) -> Result<(), RestoreError> {
        let Some(counters) = self.numbers.push(part)? else {
            return Ok(());
        };
        let (width, depth) = (self.numbers.integer()?, self.numbers.integer()?);
        let count = self.numbers.integer()?;
        let len = counters_len(width, depth).filter(|len| *len == counters.len() as u64);
        let Some(len) = len.filter(|_| self.sketch.is_none() && self.numbers.len() == 0) else {
            return Err(corrupt(BAD));
        };
        let mut array = Array::new(txn, tag::SKETCH_PAGE, len);
        array.write(txn, self.db, 0, counters)?;
        self.sketch = Some(Sketch {
            old: None,
            width,
            depth,
            count,
            array,
        });
        Ok(())
    }

    fn collection(&self) -> Option<CollectionId> {
        self.sketch.as_ref()?.array.collection()
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        match self.sketch {
            Some(sketch) if self.numbers.len() == 0 => Ok(sketch.save(txn, self.db, self.key)?),
            _ => Err(corrupt(BAD)),
        }
    }
}
