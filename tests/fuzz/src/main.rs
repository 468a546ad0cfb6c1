//! The request parser under libFuzzer; see `run`.
#![no_main]
#![allow(dead_code)]

// The sources themselves, so that RocksDB need not be built for it.
#[path = "../../../src/base.rs"]
mod base;
mod check;
#[path = "../../../src/resp/parser.rs"]
mod parser;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
