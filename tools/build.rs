//! Compiles Lua, and the C++ code that needs RocksDB's classes because the C interface lacks
//! the functions, with the headers of the RocksDB that the build compiles.

#[path = "build/lua.rs"]
mod lua;

use std::env;
use std::path::PathBuf;

const SOURCES: [&str; 7] = [
    "src/storage/engine/disk/files.cc",
    "src/storage/engine/figures/figures.cc",
    "src/storage/memtable/rep.cc",
    "src/storage/engine/reserve.cc",
    "src/storage/engine/salvage/manifest.cc",
    "src/storage/rot/listener.cc",
    "src/storage/engine/wal/files.cc",
];

fn main() {
    lua::build();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
    }
    for name in ["ROCKSDB_LIB_DIR", "ROCKSDB_COMPILE"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    // The classes of another build could differ from these headers.
    let compile = env::var("ROCKSDB_COMPILE").unwrap_or_default();
    assert!(
        env::var_os("ROCKSDB_LIB_DIR").is_none() || ["1", "true"].contains(&compile.as_str()),
        "ROCKSDB_LIB_DIR is set, but Kedis needs the RocksDB of the package librocksdb-sys"
    );
    let Some(package) = env::var_os("DEP_ROCKSDB_CARGO_MANIFEST_DIR") else {
        panic!("librocksdb-sys does not report the path of its sources");
    };
    let rocksdb = PathBuf::from(package).join("rocksdb");
    let platform = match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") => "OS_LINUX",
        Ok("macos") => "OS_MACOSX",
        other => panic!("compiling RocksDB's classes for {other:?} is not supported"),
    };
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .include(rocksdb.join("include"))
        .include(&rocksdb)
        // The same definitions as for RocksDB itself, since its classes depend on them.
        .define("NDEBUG", None)
        .define("ROCKSDB_PLATFORM_POSIX", None)
        .define(platform, None)
        .flag("-include")
        .flag("cstdint")
        // For overridden methods with unused parameters.
        .flag_if_supported("-Wno-unused-parameter")
        .files(SOURCES)
        .compile("kedis_rocksdb");
}
