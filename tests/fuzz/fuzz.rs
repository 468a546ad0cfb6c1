//! The fuzzers: properties that must hold for any input from outside. [`TARGETS`] lists
//! them; `tests/fuzz/run` builds and runs them, and `README.md` describes how.
//!
//! All of them are one program, since each further one would link RocksDB once more, and
//! it links the package itself, so the server's own code is fuzzed. libFuzzer is used
//! because it is guided by coverage, needs nothing but a C++ compiler, and works with a
//! stable toolchain: the compiler's own pass counts edges (see `instrument`). The program
//! reads its target from the variable `KEDIS_FUZZ`.
#![no_main]
#![allow(missing_docs, clippy::unwrap_used)]

mod acl;
mod aof;
mod commands;
mod config;
mod instance;
mod json;
mod link;
mod lua;
mod rdb_file;
mod rdb_value;
mod requests;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use std::sync::LazyLock;

/// A target.
struct Target {
    name: &'static str,
    /// Checks one input; panics if a property does not hold.
    check: fn(&[u8]),
    /// Whether the input is a stream of commands, which is mutated command by command.
    is_commands: bool,
}

const fn bytes(name: &'static str, check: fn(&[u8])) -> Target {
    Target {
        name,
        check,
        is_commands: false,
    }
}

const fn commands(name: &'static str, check: fn(&[u8])) -> Target {
    Target {
        name,
        check,
        is_commands: true,
    }
}

const TARGETS: &[Target] = &[
    bytes("requests", requests::check),
    bytes("rdb-value", rdb_value::check),
    bytes("rdb-file", rdb_file::check),
    commands("aof", aof::check),
    commands("link-kedis", link::check_kedis),
    commands("link-redis", link::check_redis),
    bytes("config", config::check),
    bytes("acl-rules", acl::check_rules),
    bytes("acl-file", acl::check_file),
    bytes("cjson", lua::check_cjson),
    bytes("cmsgpack", lua::check_cmsgpack),
    bytes("struct", lua::check_struct),
    bytes("json", json::check_text),
    bytes("json-path", json::check_path),
    bytes("json-cbor", json::check_cbor),
];

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("KEDIS_FUZZ").unwrap_or_default();
    let target = TARGETS.iter().find(|target| target.name == name);
    target.unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("KEDIS_FUZZ is to be one of {}", names.join(", "));
        std::process::exit(2);
    })
});

fuzz_target!(|data: &[u8]| (TARGET.check)(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    match TARGET.is_commands {
        true => commands::mutate(data, size, max_size, seed),
        false => fuzzer_mutate(data, size, max_size),
    }
});
