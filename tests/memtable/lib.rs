//! The memtable without RocksDB, for tools that cannot run C++: Miri and loom. `run` says how.
//!
//! The files are the server's own. What binds them to RocksDB (`memtable.rs`, `rep.cc`,
//! `options.rs`) is left out.
#![allow(dead_code, unused_imports)]

#[path = "../../src"]
mod server {
    pub mod encoding;
}

#[path = "../../src/base"]
mod base {
    pub mod slots;
    pub mod time;
}

#[path = "../../src/sys"]
mod sys {
    pub mod prefetch;
}

#[path = "../../src/storage/memtable"]
mod memtable {
    mod expected;
    mod filter;
    mod index;
    #[cfg(all(test, loom))]
    #[path = "../../../tests/memtable/models.rs"]
    mod models;
    mod row;
    mod segments;
    #[cfg_attr(loom, path = "../../../tests/memtable/sync.rs")]
    mod sync;
    #[cfg(test)]
    mod testing;
}

use server::encoding;
