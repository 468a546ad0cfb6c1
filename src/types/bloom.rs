//! The probabilistic types of RedisBloom: the same hashes, the same bits and the same serialised
//! forms, so that values travel between both.
//!
//! | module | what it is |
//! |---|---|
//! | [`filter`] | scaling Bloom filters |
//! | [`cuckoo`] | Cuckoo filters |
//! | [`cms`] | Count-min sketches |
//! | [`topk`] | Most frequent items |
//! | [`tdigest`] | t-digests |
//! | [`items`] | reads of what belongs to the items of a command |
//! | [`module`] | what their definitions share |
//!
//! The bits of a value are an array in pages (see `types/pages.rs`), so that an addition reads and
//! writes the pages of its bits, and a large value costs no space before it is written.

pub mod cms;
pub mod cuckoo;
pub mod filter;
pub mod items;
pub(super) mod module;
pub mod tdigest;
pub mod topk;
