//! Whole data sets: one that is sent to a replica row by row, and one that is received from a
//! master, checked, and installed in place of the one in use.

pub(super) mod audit;
pub mod snapshot;
pub mod staging;
