//! The definition of Bloom filters, and their form in files of Redis:
//!
//! ```text
//! items, links, options, expansion
//! for each link: capacity, error rate, hashes, bits per item, bits, n2, the bits as a string, items
//! ```
//!
//! Versions before 4 have no expansion, those before 2 no options, and version 0 neither bits nor n2.

use super::{Filter, LINKS_MAX, Link};
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

/// The id of the values, with the version that is written.
pub const ID: ModuleId = ModuleId::new(b"MBbloom--", VERSION);
const VERSION: u16 = 4;

/// The definition of Bloom filters.
pub(in crate::types) static BLOOM: ModuleType<BloomParts> = ModuleType {
    id: ID,
    parts: BloomParts,
};

/// See [`Parts`].
pub(in crate::types) struct BloomParts;

impl Parts for BloomParts {
    fn each(
        &self,
        source: &mut dyn Source,
        _: DbIndex,
        stored: Stored<'_>,
        each: EachPart<'_>,
    ) -> OpResult<ControlFlow<()>> {
        let double = |number| Part::Plain(ModulePart::Double(number));
        let filter = Filter::decode(stored.meta, stored.body)?;
        let head = [
            filter.items,
            filter.links.len() as u64,
            filter.options.into(),
            filter.expansion.into(),
        ];
        let mut end = 0;
        let links = filter.links.iter().flat_map(|link| {
            let start = end;
            end += link.bytes;
            [
                Part::number(link.capacity),
                double(link.error_rate),
                Part::number(link.hashes.into()),
                double(link.bits_per_item),
                Part::number(link.bits()),
                Part::number(link.n2.into()),
                Part::Bytes(&filter.array, start..end),
                Part::number(link.items),
            ]
        });
        each_of(
            source,
            head.map(Part::number).into_iter().chain(links),
            each,
        )
    }

    fn array(&self, stored: Stored<'_>) -> OpResult<Array> {
        Ok(Filter::decode(stored.meta, stored.body)?.array)
    }

    fn build<'k>(&self, db: DbIndex, key: &'k [u8]) -> Box<dyn Collect + 'k> {
        Box::new(Building {
            db,
            key,
            version: VERSION,
            numbers: Numbers::default(),
            filter: None,
            links: 0,
            awaits_items: false,
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
    filter: Option<Filter>,
    /// How many links the head has announced.
    links: usize,
    /// Whether the items of the last link come next.
    awaits_items: bool,
}

impl Building<'_> {
    /// How many numbers stand before the first link.
    fn head_len(&self) -> usize {
        match self.version {
            0 | 1 => 2,
            2 | 3 => 3,
            _ => 4,
        }
    }

    fn begin_filter(&mut self, txn: &Txn) -> Result<(), RestoreError> {
        let items = self.numbers.integer()?;
        let links = self.numbers.integer()?;
        let options = match self.version {
            0 | 1 => 0,
            _ => self.numbers.integer()?,
        };
        let expansion = match self.version {
            0..4 => 2,
            _ => self.numbers.integer()?,
        };
        let options = u32::try_from(options).map_err(|_| corrupt("a Bloom filter's options"))?;
        let expansion = u32::try_from(expansion).map_err(|_| corrupt("a Bloom filter's growth"))?;
        self.links = usize::try_from(links).unwrap_or(usize::MAX);
        if !(1..=LINKS_MAX).contains(&self.links) {
            return Err(corrupt("a Bloom filter's chain"));
        }
        self.filter = Some(Filter {
            old: None,
            options,
            expansion,
            items,
            links: Vec::new(),
            array: Array::new(txn, tag::BLOOM_PAGE, 0),
        });
        Ok(())
    }

    fn add_link(&mut self, txn: &mut Txn, bytes: &[u8]) -> Result<(), RestoreError> {
        let (version, numbers) = (self.version, &mut self.numbers);
        let Some(filter) = &mut self.filter else {
            return Err(corrupt("a Bloom filter's bits"));
        };
        let mut link = Link {
            capacity: numbers.integer()?,
            error_rate: numbers.double()?,
            hashes: u32::try_from(numbers.integer()?).unwrap_or(0),
            bits_per_item: numbers.double()?,
            n2: 0,
            bytes: bytes.len() as u64,
            items: 0,
        };
        let bits = match version {
            0 => (link.capacity as f64 * link.bits_per_item) as u64,
            _ => {
                let bits = numbers.integer()?;
                link.n2 = u8::try_from(numbers.integer()?).unwrap_or(u8::MAX);
                bits
            }
        };
        let start = filter.array.len();
        let len = start + link.bytes;
        let sound = link.is_sound()
            && bits == link.bits()
            && numbers.len() == 0
            && len <= ARRAY_MAX
            && !self.awaits_items
            && filter.links.len() < self.links;
        if !sound {
            return Err(corrupt("a Bloom filter's bits"));
        }
        filter.array.grow(txn, self.db, len)?;
        filter.array.write(txn, self.db, start, bytes)?;
        filter.links.push(link);
        self.awaits_items = true;
        Ok(())
    }
}

impl Collect for Building<'_> {
    fn begin(&mut self, version: u16) {
        self.version = version;
    }

    /// The items of a link come behind its bits.
    fn part(&mut self, txn: &mut Txn, part: ModulePart<'_>) -> Result<(), RestoreError> {
        if let Some(bytes) = self.numbers.push(part)? {
            return self.add_link(txn, bytes);
        }
        if self.awaits_items {
            let items = self.numbers.integer()?;
            if let Some(last) = self
                .filter
                .as_mut()
                .and_then(|filter| filter.links.last_mut())
            {
                last.items = items;
            }
            self.awaits_items = false;
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
        let filter = self
            .filter
            .ok_or_else(|| corrupt("a Bloom filter without bits"))?;
        if filter.links.len() != self.links || self.numbers.len() != 0 || self.awaits_items {
            return Err(corrupt("a Bloom filter's chain"));
        }
        Ok(filter.save(txn, self.db, self.key)?)
    }
}
