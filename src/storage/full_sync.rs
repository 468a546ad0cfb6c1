//! Whole data sets: one that goes to a replica row by row, and one that arrives from a
//! master, is checked, and takes the place of the one in use.

pub(super) mod audit;
pub mod snapshot;
pub mod staging;
