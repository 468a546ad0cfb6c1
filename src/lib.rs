//! Kedis.

pub mod base;
pub mod resp;
