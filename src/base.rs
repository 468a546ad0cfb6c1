//! Pure functions and types below everything else: numbers and their text, hashes, glob patterns,
//! compression.
//!
//! Knows neither the protocol nor commands nor the storage engine, and uses nothing of the
//! operating system: see [`sys`](crate::sys) for that.

mod float;
pub mod geohash;
pub mod glob;
pub mod hash;
pub mod histogram;
pub mod logarithm;
pub mod longdouble;
pub mod lzf;
pub mod murmur;
pub mod num;
pub mod one_line;
pub mod recurring;
pub mod slots;
pub mod time;
