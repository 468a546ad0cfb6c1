//! The definition of t-digests, and their form in files of Redis, with all centroids merged:
//!
//! ```text
//! compression, least, greatest, capacity, merged centroids, others (0), compressions,
//! merged weight, weight of the others (0), all means, all weights
//! ```
//!
//! The weights are doubles.

use super::centroids::Centroid;
use super::{TDigest, capacity};
use crate::encoding::CollectionId;
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

/// Numbers before the means.
const HEAD: usize = 9;

/// The definition of t-digests.
pub(in crate::types) static DIGEST: ModuleType<DigestParts> = ModuleType {
    id: ModuleId::new(b"TDIS-TYPE", VERSION),
    parts: DigestParts,
};

/// See [`Parts`].
pub(in crate::types) struct DigestParts;

impl Parts for DigestParts {
    fn each(
        &self,
        source: &mut dyn Source,
        db: DbIndex,
        stored: Stored<'_>,
        each: EachPart<'_>,
    ) -> OpResult<ControlFlow<()>> {
        use ModulePart::{Double, Unsigned};
        let digest = TDigest::decode(stored.meta, stored.body)?;
        let mut all = digest.begin_centroids();
        let end = (digest.merged + digest.unmerged) * super::CENTROID;
        all.extend(&digest.array.collect(source, db, 0..end)?);
        all.merge();
        let compressed = i64::from(digest.unmerged > 0);
        let head = [
            Double(digest.compression),
            Double(digest.least),
            Double(digest.greatest),
            Unsigned(digest.capacity()),
            Unsigned(all.list.len() as u64),
            Unsigned(0),
            Unsigned((digest.compressions + compressed) as u64),
            Double(digest.weight() as f64),
            Double(0.0),
        ];
        let means = all.list.iter().map(|centroid| Double(centroid.mean));
        let weights = all
            .list
            .iter()
            .map(|centroid| Double(centroid.weight as f64));
        let parts = head.into_iter().chain(means).chain(weights);
        each_of(source, parts.map(Part::Plain), each)
    }

    fn array(&self, stored: Stored<'_>) -> OpResult<Array> {
        Ok(TDigest::decode(stored.meta, stored.body)?.array)
    }

    fn build<'k>(&self, db: DbIndex, key: &'k [u8]) -> Box<dyn Collect + 'k> {
        Box::new(Building {
            db,
            key,
            numbers: Numbers::default(),
            head: None,
            means: Vec::new(),
            weights: Vec::new(),
        })
    }
}

/// The numbers before the means.
struct Head {
    compression: f64,
    least: f64,
    greatest: f64,
    centroids: usize,
    compressions: i64,
    weight: f64,
}

/// A digest under construction.
struct Building<'k> {
    db: DbIndex,
    key: &'k [u8],
    numbers: Numbers,
    head: Option<Head>,
    means: Vec<f64>,
    weights: Vec<i64>,
}

const BAD: &str = "a t-digest";

impl Building<'_> {
    fn read_head(&mut self) -> Result<Head, RestoreError> {
        let numbers = &mut self.numbers;
        let compression = numbers.double()?;
        let (least, greatest) = (numbers.double()?, numbers.double()?);
        let (stated, merged, unmerged) =
            (numbers.integer()?, numbers.integer()?, numbers.integer()?);
        let compressions = numbers.integer()? as i64;
        let (weight, unmerged_weight) = (numbers.double()?, numbers.double()?);
        let capacity = capacity(compression).filter(|capacity| *capacity == stated);
        let sound = capacity.is_some_and(|capacity| merged <= capacity)
            && unmerged == 0
            && unmerged_weight == 0.0
            && !least.is_nan()
            && !greatest.is_nan()
            && (merged == 0) == (weight == 0.0);
        match sound {
            true => Ok(Head {
                compression,
                least,
                greatest,
                centroids: merged as usize,
                compressions,
                weight,
            }),
            false => Err(corrupt(BAD)),
        }
    }
}

impl Collect for Building<'_> {
    fn part(&mut self, _: &mut Txn, part: ModulePart<'_>) -> Result<(), RestoreError> {
        if let Some(head) = &self.head {
            let ModulePart::Double(number) = part else {
                return Err(corrupt(BAD));
            };
            let in_order = self.means.last().is_none_or(|last| *last <= number);
            if self.means.len() < head.centroids {
                if !number.is_finite() || !in_order {
                    return Err(corrupt(BAD));
                }
                self.means.push(number);
            } else {
                let is_weight = number >= 1.0 && number < i64::MAX as f64;
                if !is_weight || self.weights.len() == head.centroids {
                    return Err(corrupt(BAD));
                }
                self.weights.push(number as i64);
            }
            return Ok(());
        }
        if self.numbers.push(part)?.is_some() {
            return Err(corrupt(BAD));
        }
        if self.numbers.len() == HEAD {
            self.head = Some(self.read_head()?);
        }
        Ok(())
    }

    fn collection(&self) -> Option<CollectionId> {
        None
    }

    fn finish(self: Box<Self>, txn: &mut Txn) -> Result<(), RestoreError> {
        let head = self.head.ok_or_else(|| corrupt(BAD))?;
        let weight = self
            .weights
            .iter()
            .try_fold(0i64, |sum, weight| sum.checked_add(*weight));
        let weight = weight.filter(|weight| *weight as f64 == head.weight);
        let Some(weight) = weight.filter(|_| self.weights.len() == head.centroids) else {
            return Err(corrupt(BAD));
        };
        let mut digest = TDigest::new(txn, head.compression).ok_or_else(|| corrupt(BAD))?;
        let mut all = digest.begin_centroids();
        let centroids = self.means.iter().zip(&self.weights);
        all.list = centroids
            .map(|(mean, weight)| Centroid {
                mean: *mean,
                weight: *weight,
            })
            .collect();
        digest.appended = all.bytes();
        digest.merged = head.centroids as u64;
        digest.merged_weight = weight;
        digest.compressions = head.compressions;
        (digest.least, digest.greatest) = (head.least, head.greatest);
        Ok(digest.save(txn, self.db, self.key)?)
    }
}
