//! The reader threads: reads of the disk for commands that must not wait for them.

use crate::state::Server;
use std::sync::Arc;

/// Stack size of a reader: it runs nothing but RocksDB's reads.
pub(super) const STACK: usize = 512 << 10;

/// Serves reads until [`crate::storage::Engine::stop_readers`].
pub(super) fn run(server: &Arc<Server>) {
    server.engine.serve_reads();
}
