//! Pure tools below everything else: numbers and their text, hashes, glob
//! patterns, compression.
//!
//! Knows neither the protocol nor commands nor the storage engine, and asks
//! nothing of the operating system: what does so is in [`sys`](crate::sys).

mod float;
pub mod glob;
pub mod hash;
pub mod longdouble;
pub mod lzf;
pub mod num;
pub mod one_line;
pub mod recurring;
pub mod time;
