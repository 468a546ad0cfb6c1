//! Kedis.
