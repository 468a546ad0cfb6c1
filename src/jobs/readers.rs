//! The reader threads: reads of the disk for commands that must not wait for them.

use crate::state::Server;
use std::sync::Arc;

/// Stack size of a reader: it runs nothing but RocksDB's reads.
pub(super) const STACK: usize = 512 << 10;

/// Niceness of readers. Where all processors are busy, IO threads come first: clients whose data are
/// in memory wait less.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Serves reads until [`crate::storage::Engine::stop_readers`].
pub(super) fn run(server: &Arc<Server>) {
    // Elsewhere it would be that of the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICE) {
        log::debug!("a reader keeps its priority: {error}");
    }
    server.engine.serve_reads();
}
