//! Kedis.
fn main() {}
