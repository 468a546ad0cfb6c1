//! Compiles Lua, and what needs RocksDB's classes because its C interface does not offer it,
//! with the headers of the RocksDB that is built along with us.

#[path = "build/lua.rs"]
mod lua;

use std::env;
use std::path::PathBuf;

const SOURCES: [&str; 5] = [
    "src/storage/engine/disk/files.cc",
    "src/storage/memtable/rep.cc",
    "src/storage/engine/reserve.cc",
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
    // The classes of another build could look otherwise than these headers say.
    let compile = env::var("ROCKSDB_COMPILE").unwrap_or_default();
    assert!(
        env::var_os("ROCKSDB_LIB_DIR").is_none() || ["1", "true"].contains(&compile.as_str()),
        "ROCKSDB_LIB_DIR is set, but Kedis needs the RocksDB of the package librocksdb-sys"
    );
    let Some(package) = env::var_os("DEP_ROCKSDB_CARGO_MANIFEST_DIR") else {
        panic!("librocksdb-sys does not say where the sources are that it compiled");
    };
    let rocksdb = PathBuf::from(package).join("rocksdb");
    let platform = match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") => "OS_LINUX",
        Ok("macos") => "OS_MACOSX",
        other => panic!("nobody has said how RocksDB is compiled for {other:?}"),
    };
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .include(rocksdb.join("include"))
        .include(&rocksdb)
        // As RocksDB itself is compiled, since its classes and headers depend on them.
        .define("NDEBUG", None)
        .define("ROCKSDB_PLATFORM_POSIX", None)
        .define(platform, None)
        .flag("-include")
        .flag("cstdint")
        // What RocksDB passes and we have no use for.
        .flag_if_supported("-Wno-unused-parameter")
        .files(SOURCES)
        .compile("kedis_rocksdb");
}
