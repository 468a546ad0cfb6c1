//! The interface to the operating system and the processor: clocks, files, host names, the allocator,
//! memory in huge pages, limits, and the state that is reported to a service manager.
//!
//! Knows neither the protocol nor commands nor the storage engine.

pub mod advice;
pub mod allocator;
pub mod clock;
pub mod crash;
pub mod daemon;
pub mod descriptors;
pub mod files;
pub mod huge_pages;
pub mod limits;
pub mod listen;
pub mod lock_order;
pub mod log_file;
pub mod logging;
pub mod pause;
pub mod prefetch;
pub mod resolve;
pub mod run_queue;
pub mod supervisor;
pub mod terminal;
#[cfg(test)]
pub mod testing;
pub mod threads;
