//! t-digests, as RedisBloom has them: weighted means (centroids), of which those near both ends of
//! the distribution weigh least, and observations that are not merged into them yet.
//!
//! The centroids are an array; of each the mean (8) and the weight (8), little-endian. An addition
//! appends to them; when the array is full they are merged and written anew. The head of the meta row
//! is
//!
//! ```text
//! compression (8) ‖ least (8) ‖ greatest (8) ‖ merged centroids (8) ‖ others (8)
//!   ‖ compressions (8) ‖ merged weight (8) ‖ weight of the others (8)
//! ```
//!
//! RedisBloom merges when a value is read. Here a read merges a copy in memory, since it writes
//! nothing.
//!
//! Source of the algorithm: Ted Dunning, "Computing extremely accurate quantiles using t-digests",
//! <https://github.com/tdunning/t-digest>, the merging digest.

pub mod build;
pub mod centroids;

use crate::encoding::{Corrupt, Meta, ValueType, tag};
use crate::storage::{DbIndex, KeyMeta, Txn, View};
use crate::types::pages::Array;
use crate::types::{self, OpResult};
use centroids::{Centroid, Centroids};

/// Bytes of a centroid.
const CENTROID: u64 = 16;

/// The highest compression. Its centroids take 64 MiB, which a merge holds in memory.
const COMPRESSION_MAX: f64 = 699_000.0;

/// A t-digest.
#[derive(Debug)]
pub struct TDigest {
    old: Option<Meta>,
    /// How exact the digest is.
    pub compression: f64,
    least: f64,
    greatest: f64,
    /// Centroids that are merged.
    pub merged: u64,
    /// Centroids that are not.
    pub unmerged: u64,
    /// How often centroids were merged.
    pub compressions: i64,
    /// The weight of merged centroids.
    pub merged_weight: i64,
    /// The weight of the others.
    pub unmerged_weight: i64,
    array: Array,
    /// Centroids behind the stored ones.
    appended: Vec<u8>,
}

/// The sum of all weights does not fit 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

/// How many centroids a digest of this compression holds; `None` if there can be none.
fn capacity(compression: f64) -> Option<u64> {
    let sound = compression > 0.0 && compression <= COMPRESSION_MAX;
    sound.then(|| 6 * compression as u64 + 10)
}

impl TDigest {
    /// The digest of a key.
    pub fn load(view: &mut View, db: DbIndex, key: &[u8]) -> OpResult<Option<TDigest>> {
        let Some(found) = types::lookup(view, db, key, ValueType::TDigest)? else {
            return Ok(None);
        };
        Ok(Some(TDigest::decode(found.meta, &found.body)?))
    }

    /// An empty digest for a key that does not exist; `None` if it would be too large.
    pub fn new(txn: &Txn, compression: f64) -> Option<TDigest> {
        let len = capacity(compression)? * CENTROID;
        Some(TDigest {
            old: None,
            compression,
            least: f64::MAX,
            greatest: -f64::MAX,
            merged: 0,
            unmerged: 0,
            compressions: 0,
            merged_weight: 0,
            unmerged_weight: 0,
            array: Array::new(txn, tag::DIGEST_PAGE, len),
            appended: Vec::new(),
        })
    }

    fn decode(meta: Meta, body: &[u8]) -> Result<TDigest, Corrupt> {
        let (head, array) = Array::decode(tag::DIGEST_PAGE, meta, body, |r| {
            let mut head = [0; 8];
            for number in &mut head {
                *number = r.u64()?;
            }
            Ok(head)
        })?;
        let [
            compression,
            least,
            greatest,
            merged,
            unmerged,
            compressions,
            ..,
        ] = head;
        let [.., merged_weight, unmerged_weight] = head;
        let compression = f64::from_bits(compression);
        let capacity = capacity(compression);
        let nodes = merged.checked_add(unmerged);
        if capacity.is_none()
            || nodes > capacity
            || capacity.map(|n| n * CENTROID) != Some(array.len())
        {
            return Err(Corrupt("t-digest"));
        }
        Ok(TDigest {
            old: Some(meta),
            compression,
            least: f64::from_bits(least),
            greatest: f64::from_bits(greatest),
            merged,
            unmerged,
            compressions: compressions as i64,
            merged_weight: merged_weight as i64,
            unmerged_weight: unmerged_weight as i64,
            array,
            appended: Vec::new(),
        })
    }

    /// Writes the appended centroids and the meta row.
    pub fn save(&mut self, txn: &mut Txn, db: DbIndex, key: &[u8]) -> OpResult<()> {
        self.flush(txn, db)?;
        let head = self.head();
        let (old, kind) = (self.old.as_ref(), ValueType::TDigest);
        self.array.put(txn, db, key, old, kind, head.as_flattened())
    }

    /// Likewise, in place of what the key holds; the key loses its expiry.
    pub fn save_over(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        key: &[u8],
        found: Option<&KeyMeta>,
    ) -> OpResult<()> {
        self.flush(txn, db)?;
        let body = self.array.encode(self.head().as_flattened());
        let mut new = Meta::new(ValueType::TDigest);
        new.rows = self.array.collection().is_some();
        txn.replace_key(db, key, found, new, &body)?;
        Ok(())
    }

    fn head(&self) -> [[u8; 8]; 8] {
        [
            self.compression.to_bits(),
            self.least.to_bits(),
            self.greatest.to_bits(),
            self.merged,
            self.unmerged,
            self.compressions as u64,
            self.merged_weight as u64,
            self.unmerged_weight as u64,
        ]
        .map(u64::to_be_bytes)
    }

    fn flush(&mut self, txn: &mut Txn, db: DbIndex) -> OpResult<()> {
        let appended = std::mem::take(&mut self.appended);
        let end = (self.merged + self.unmerged) * CENTROID;
        self.array
            .write(txn, db, end - appended.len() as u64, &appended)
    }

    /// How many centroids there is room for.
    pub fn capacity(&self) -> u64 {
        self.array.len() / CENTROID
    }

    /// The weight of all observations.
    pub fn weight(&self) -> i64 {
        self.merged_weight.wrapping_add(self.unmerged_weight)
    }

    /// The least observation, if there are any.
    pub fn least(&self) -> Option<f64> {
        (self.weight() > 0).then_some(self.least)
    }

    /// The greatest observation, if there are any.
    pub fn greatest(&self) -> Option<f64> {
        (self.weight() > 0).then_some(self.greatest)
    }

    /// The merged centroids, with all observations. Nothing may be appended.
    pub fn centroids(&self, view: &mut View, db: DbIndex) -> OpResult<Centroids> {
        let end = (self.merged + self.unmerged) * CENTROID;
        let bytes = self.array.collect(view, db, 0..end)?;
        let mut all = self.begin_centroids();
        all.extend(&bytes);
        all.merge();
        Ok(all)
    }

    fn begin_centroids(&self) -> Centroids {
        Centroids {
            list: Vec::new(),
            merged: self.merged as usize,
            compression: self.compression,
            least: self.least,
            greatest: self.greatest,
            weight: self.weight(),
        }
    }

    /// Merges the centroids and writes them. Nothing changes if all are merged.
    fn compress(&mut self, txn: &mut Txn, db: DbIndex) -> OpResult<()> {
        if self.unmerged == 0 {
            return Ok(());
        }
        self.flush(txn, db)?;
        let before = (self.merged + self.unmerged) * CENTROID;
        let all = self.centroids(txn, db)?;
        self.merged = all.list.len() as u64;
        self.merged_weight = self.weight();
        self.unmerged = 0;
        self.unmerged_weight = 0;
        self.compressions = self.compressions.wrapping_add(1);
        let mut bytes = all.bytes();
        bytes.resize(before as usize, 0);
        self.array.write(txn, db, 0, &bytes)
    }

    /// Adds an observation, which is finite; [`TDigest::save`] must follow.
    pub fn add(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        mean: f64,
        weight: i64,
    ) -> OpResult<Result<(), Overflow>> {
        if self.merged + self.unmerged >= self.capacity() - 1 {
            self.compress(txn, db)?;
        }
        let unmerged = self.unmerged_weight.checked_add(weight);
        let total = unmerged.and_then(|sum| sum.checked_add(self.merged_weight));
        let (Some(unmerged), Some(_)) = (unmerged, total) else {
            return Ok(Err(Overflow));
        };
        if self.merged + self.unmerged >= self.capacity() {
            return Ok(Err(Overflow));
        }
        self.least = self.least.min(mean);
        self.greatest = self.greatest.max(mean);
        self.appended.extend_from_slice(&mean.to_le_bytes());
        self.appended.extend_from_slice(&weight.to_le_bytes());
        self.unmerged += 1;
        self.unmerged_weight = unmerged;
        Ok(Ok(()))
    }

    /// Adds the merged centroids of another digest; [`TDigest::save`] must follow.
    pub fn add_all(
        &mut self,
        txn: &mut Txn,
        db: DbIndex,
        other: &Centroids,
    ) -> OpResult<Result<(), Overflow>> {
        self.compress(txn, db)?;
        for Centroid { mean, weight } in &other.list {
            if self.add(txn, db, *mean, *weight)?.is_err() {
                return Ok(Err(Overflow));
            }
        }
        Ok(Ok(()))
    }

    /// Forgets all observations; [`TDigest::save`] must follow.
    pub fn reset(&mut self, txn: &mut Txn, db: DbIndex) -> OpResult<()> {
        let used = (self.merged + self.unmerged) * CENTROID;
        self.array.write(txn, db, 0, &vec![0; used as usize])?;
        (self.merged, self.unmerged, self.compressions) = (0, 0, 0);
        (self.merged_weight, self.unmerged_weight) = (0, 0);
        (self.least, self.greatest) = (f64::MAX, -f64::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
