//! Plain tools below everything else: numbers and their text, clocks, hashes,
//! glob patterns, compression, names of hosts, what a process is to the system.
//!
//! Knows neither the protocol nor commands nor the storage engine.

pub mod clock;
pub mod crash;
pub mod daemon;
pub mod descriptors;
pub mod files;
mod float;
pub mod glob;
pub mod hash;
pub mod huge_pages;
pub mod log_file;
pub mod longdouble;
pub mod lzf;
pub mod num;
pub mod one_line;
pub mod prefetch;
pub mod recurring;
pub mod resolve;
pub mod supervisor;
