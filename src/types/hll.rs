//! HyperLogLogs: strings that estimate how many different elements were added.
//!
//! The format is that of Redis, so values can be exchanged between the servers:
//!
//! ```text
//! "HYLL" ‖ encoding (1: 0 dense, 1 sparse) ‖ unused (3) ‖ cached count (8, little-endian) ‖ registers
//! ```
//!
//! The cached count is stale if its highest bit is set. An element's hash selects one of
//! 2^14 registers and a rank from 1 to 51; the register keeps the highest rank.
//! [`dense`] and [`sparse`] are the two encodings of the registers; [`estimate`]
//! computes the count.
//!
//! Any client can write any bytes into a string. So no length or index in a value is
//! trusted; invalid ones lead to [`HllError::Corrupt`].

pub mod dense;
pub mod estimate;
pub mod selftest;
pub mod sparse;
mod store;

pub use store::{add, count, encoding, make_dense, merge, raw};

use super::OpError;
use crate::base::murmur::murmur64a;
use crate::storage::StorageError;
use estimate::Histogram;

/// Registers of a HyperLogLog.
pub const REGISTERS: usize = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 14;

/// The highest rank of a hash: the bits that the index leaves, plus one.
const RANK_MAX: u8 = 64 - INDEX_BITS as u8 + 1;

/// Bytes before the registers.
pub const HEADER_LEN: usize = 16;

const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const COUNT_AT: usize = 8;
/// The flag in the last byte of the cached count.
const STALE: u8 = 0x80;

/// The rank that each register holds, one byte each.
pub type Ranks = [u8; REGISTERS];

/// Why an operation on a HyperLogLog failed.
#[derive(Debug, thiserror::Error)]
pub enum HllError {
    /// A string, but no HyperLogLog.
    #[error("not a HyperLogLog")]
    NotHll,
    /// The registers are invalid.
    #[error("corrupt HyperLogLog")]
    Corrupt,
    /// The key has another type, or storage failed.
    #[error(transparent)]
    Op(#[from] OpError),
}

impl From<StorageError> for HllError {
    fn from(error: StorageError) -> Self {
        HllError::Op(error.into())
    }
}

/// The result of an operation on a HyperLogLog.
pub type HllResult<T> = Result<T, HllError>;

/// The encoding of the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// All of them, six bits each.
    Dense,
    /// Runs of equal registers.
    Sparse,
}

/// A value with a valid header. `B` is `&[u8]` or `Vec<u8>`.
#[derive(Debug, Clone)]
pub struct Hll<B> {
    encoding: Encoding,
    /// At least [`HEADER_LEN`] bytes; exactly those of all registers if dense.
    bytes: B,
}

impl<B: AsRef<[u8]>> Hll<B> {
    /// Checks the header of a value.
    ///
    /// # Errors
    /// [`HllError::NotHll`].
    pub fn open(bytes: B) -> HllResult<Hll<B>> {
        let value = bytes.as_ref();
        if value.len() < HEADER_LEN || !value.starts_with(MAGIC) {
            return Err(HllError::NotHll);
        }
        let encoding = match value[ENCODING_AT] {
            0 if value.len() == HEADER_LEN + dense::LEN => Encoding::Dense,
            1 => Encoding::Sparse,
            _ => return Err(HllError::NotHll),
        };
        Ok(Hll { encoding, bytes })
    }

    /// The encoding of the registers.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The bytes of the registers.
    pub fn body(&self) -> &[u8] {
        &self.bytes.as_ref()[HEADER_LEN..]
    }

    /// The estimated number of different elements: the cached count if it is valid,
    /// otherwise computed.
    pub fn count(&self) -> HllResult<u64> {
        let mut cached = [0; 8];
        cached.copy_from_slice(&self.bytes.as_ref()[COUNT_AT..HEADER_LEN]);
        if cached[7] & STALE == 0 {
            return Ok(u64::from_le_bytes(cached));
        }
        self.estimate()
    }

    /// The count computed from the registers.
    fn estimate(&self) -> HllResult<u64> {
        let histogram = match self.encoding {
            Encoding::Dense => dense::histogram(self.body()),
            Encoding::Sparse => {
                let mut histogram = Histogram::default();
                sparse::for_each_run(self.body(), |run| {
                    histogram.add(run.rank, run.len as u32);
                })?;
                histogram
            }
        };
        Ok(histogram.estimate())
    }

    /// Raises each of `ranks` to this HyperLogLog's rank, if that is higher.
    pub fn raise(&self, ranks: &mut Ranks) -> HllResult<()> {
        match self.encoding {
            Encoding::Dense => dense::for_each(self.body(), |index, rank| {
                if let Some(highest) = ranks.get_mut(index) {
                    *highest = rank.max(*highest);
                }
            }),
            Encoding::Sparse => {
                let mut index = 0;
                sparse::for_each_run(self.body(), |run| {
                    // [`sparse::for_each_run`] checks that the run ends within the
                    // registers.
                    for highest in &mut ranks[index..index + run.len] {
                        *highest = run.rank.max(*highest);
                    }
                    index += run.len;
                })?;
            }
        }
        Ok(())
    }
}

/// The registers of a HyperLogLog that is not stored: an estimate of how many different
/// elements were added.
#[derive(Debug)]
pub struct Estimate(Box<Ranks>);

impl Estimate {
    /// No elements so far.
    #[allow(clippy::new_without_default)] // as `Hll::new`
    pub fn new() -> Estimate {
        Estimate(Box::new([0; REGISTERS]))
    }

    /// Adds an element.
    pub fn add(&mut self, element: &[u8]) {
        let (index, rank) = place(element);
        if let Some(highest) = self.0.get_mut(index) {
            *highest = rank.max(*highest);
        }
    }

    /// About how many different elements were added.
    pub fn count(&self) -> u64 {
        Histogram::of(&self.0).estimate()
    }
}

impl Hll<Vec<u8>> {
    /// An empty HyperLogLog.
    pub fn new() -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(HEADER_LEN, 0);
        bytes[ENCODING_AT] = 1;
        bytes.extend_from_slice(&sparse::EMPTY);
        Hll {
            encoding: Encoding::Sparse,
            bytes,
        }
    }

    /// The value to store.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds an element; returns whether a register changed. The sparse encoding is kept
    /// up to `sparse_max` bytes.
    pub fn add(&mut self, element: &[u8], sparse_max: usize) -> HllResult<bool> {
        let (index, rank) = place(element);
        self.set(index, rank, sparse_max)
    }

    /// Raises one register to `rank` if it is lower; returns whether it was.
    fn set(&mut self, index: usize, rank: u8, sparse_max: usize) -> HllResult<bool> {
        if self.encoding == Encoding::Sparse {
            let room = sparse_max.saturating_sub(self.bytes.len());
            match sparse::set(&mut self.bytes, HEADER_LEN, index, rank, room)? {
                sparse::Set::Unchanged => return Ok(false),
                sparse::Set::Raised => return Ok(true),
                sparse::Set::Full => self.make_dense()?,
            }
        }
        Ok(dense::set(&mut self.bytes[HEADER_LEN..], index, rank))
    }

    /// Marks the cached count as stale.
    fn forget_count(&mut self) {
        self.bytes[HEADER_LEN - 1] |= STALE;
    }

    /// Changes the encoding to dense.
    pub fn make_dense(&mut self) -> HllResult<()> {
        if self.encoding == Encoding::Dense {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(HEADER_LEN + dense::LEN);
        bytes.extend_from_slice(&self.bytes[..HEADER_LEN]);
        bytes[ENCODING_AT] = 0;
        bytes.resize(HEADER_LEN + dense::LEN, 0);
        let mut index = 0;
        sparse::for_each_run(self.body(), |run| {
            for _ in 0..run.len {
                dense::set(&mut bytes[HEADER_LEN..], index, run.rank);
                index += 1;
            }
        })?;
        self.bytes = bytes;
        self.encoding = Encoding::Dense;
        Ok(())
    }
}

impl Default for Hll<Vec<u8>> {
    fn default() -> Self {
        Hll::new()
    }
}

/// The register of an element, and its rank: the number of trailing zeros of the hash
/// above the bits of the index, plus one.
fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, 0xadc8_3b19);
    let index = hash as usize & (REGISTERS - 1);
    let zeros = (hash >> INDEX_BITS).trailing_zeros();
    (index, (zeros as u8 + 1).min(RANK_MAX))
}

#[cfg(test)]
mod tests;
