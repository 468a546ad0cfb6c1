//! What the process asks of the operating system and of the processor: clocks,
//! files, names of hosts, memory in huge pages, limits, and what a process is to
//! its supervisor.
//!
//! Knows neither the protocol nor commands nor the storage engine.

pub mod clock;
pub mod crash;
pub mod daemon;
pub mod descriptors;
pub mod files;
pub mod huge_pages;
pub mod lock_order;
pub mod log_file;
pub mod prefetch;
pub mod resolve;
pub mod supervisor;
#[cfg(test)]
pub mod testing;
