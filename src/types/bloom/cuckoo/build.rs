//! The definition of Cuckoo filters, and their form in files of Redis:
//!
//! ```text
//! tables, buckets, items, deletions, slots of a bucket, iterations, expansion
//! for each table: buckets, the slots as a string
//! ```
//!
//! Versions before 4 have neither what follows the items nor the buckets of the tables.

use super::{Cuckoo, TABLES_MAX};
use crate::encoding::{CollectionId, tag};
use crate::rdb::module::{ModuleId, ModulePart};
use crate::storage::{DbIndex, Txn};
use crate::types::bloom::module::{
    Collect, EachPart, ModuleType, Numbers, Part, Parts, corrupt, each_of,
};
use crate::types::definition::Stored;
use crate::types::pages::{ARRAY_MAX, Array};
use crate::types::source::Source;
use crate::types::{OpResult, RestoreError};
use std::ops::ControlFlow;

/// The version that is written, and the first with deletions.
const VERSION: u16 = 4;

/// The definition of Cuckoo filters.
pub(in crate::types) static CUCKOO: ModuleType<CuckooParts> = ModuleType {
    id: ModuleId::new(b"MBbloomCF", VERSION),
    parts: CuckooParts,
};

/// See [`Parts`].
pub(in crate::types) struct CuckooParts;

impl Parts for CuckooParts {
    fn each(
        &self,
        source: &mut dyn Source,
        _: DbIndex,
        stored: Stored<'_>,
        each: EachPart<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let filter = Cuckoo::decode(stored.meta, stored.body)?;
        let head = [
            filter.tables.len() as u64,
            filter.buckets,
            filter.items,
            filter.deletes,
            filter.bucket_size.into(),
            filter.iterations.into(),
            filter.expansion.into(),
        ];
        let tables = filter.tables().flat_map(|table| {
            let end = table.start + table.buckets * u64::from(filter.bucket_size);
            let slots = Part::Bytes(&filter.array, table.start..end);
            [Part::number(table.buckets), slots]
        });
        each_of(
            source,
            head.map(Part::number).into_iter().chain(tables),
            each,
        )
    }

    fn array(&self, stored: Stored<'_>) -> OpResult<Array> {
        Ok(Cuckoo::decode(stored.meta, stored.body)?.array)
    }

    fn build<'k>(&self, db: DbIndex, key: &'k [u8]) -> Box<dyn Collect + 'k> {
        Box::new(Building {
            db,
            key,
            version: VERSION,
            numbers: Numbers::default(),
            filter: None,
            tables: 0,
        })
    }
}

/// A filter under construction.
struct Building<'k> {
    db: DbIndex,
    key: &'k [u8],
    version: u16,
    numbers: Numbers,
    /// Begun with the head.
    filter: Option<Cuckoo>,
    /// How many tables the head has announced.
    tables: usize,
}

const BAD: &str = "a Cuckoo filter's head";
const BAD_TABLE: &str = "a Cuckoo filter's slots";

impl Building<'_> {
    fn head_len(&self) -> usize {
        match self.version {
            0..VERSION => 3,
            _ => 7,
        }
    }

    fn begin_filter(&mut self, txn: &Txn) -> Result<(), RestoreError> {
        let tables = self.numbers.integer()?;
        self.tables = usize::try_from(tables).unwrap_or(usize::MAX);
        let mut filter = Cuckoo {
            old: None,
            buckets: self.numbers.integer()?,
            items: self.numbers.integer()?,
            deletes: 0,
            bucket_size: 2,
            iterations: 20,
            expansion: 1,
            tables: Vec::new(),
            array: Array::new(txn, tag::CUCKOO_PAGE, 0),
        };
        if self.version >= VERSION {
            let short =
                |numbers: &mut Numbers| u16::try_from(numbers.integer()?).map_err(|_| corrupt(BAD));
            filter.deletes = self.numbers.integer()?;
            filter.bucket_size = short(&mut self.numbers)?;
            filter.iterations = short(&mut self.numbers)?;
            filter.expansion = short(&mut self.numbers)?;
        }
        if !filter.is_sound() || !(1..=TABLES_MAX).contains(&self.tables) {
            return Err(corrupt(BAD));
        }
        self.filter = Some(filter);
        Ok(())
    }

    fn add_table(&mut self, txn: &mut Txn, slots: &[u8]) -> Result<(), RestoreError> {
        let filter = self.filter.as_mut().ok_or_else(|| corrupt(BAD_TABLE))?;
        let buckets = match self.version {
            0..VERSION => filter.buckets,
            _ => self.numbers.integer()?,
        };
        let start = filter.array.len();
        let len = start + slots.len() as u64;
        let stated = buckets.checked_mul(filter.bucket_size.into());
        let sound = buckets > 0
            && stated == Some(slots.len() as u64)
            && self.numbers.len() == 0
            && len <= ARRAY_MAX
            && filter.tables.len() < self.tables;
        if !sound {
            return Err(corrupt(BAD_TABLE));
        }
        filter.array.grow(txn, self.db, len)?;
        filter.array.write(txn, self.db, start, slots)?;
        filter.tables.push(buckets);
        Ok(())
    }
}

impl Collect for Building<'_> {
    fn begin(&mut self, version: u16) {
        self.version = version;
    }

    fn part(&mut self, txn: &mut Txn, part: ModulePart<'_>) -> Result<(), RestoreError> {
        if let Some(slots) = self.numbers.push(part)? {
            return self.add_table(txn, slots);
        }
        if self.filter.is_none() && self.numbers.len() == self.head_len() {
            return self.begin_filter(txn);
        }
        Ok(())
    }

    fn collection(&self) -> Option<CollectionId> {
        self.filter.as_ref()?.array.collection()
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        let filter = self.filter.ok_or_else(|| corrupt(BAD))?;
        if filter.tables.len() != self.tables || self.numbers.len() != 0 {
            return Err(corrupt(BAD_TABLE));
        }
        Ok(filter.save(txn, self.db, self.key)?)
    }
}
