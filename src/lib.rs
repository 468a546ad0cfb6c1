//! Kedis.

pub mod base;
pub mod resp;
pub mod state;
