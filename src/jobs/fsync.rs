//! The fsync thread: syncs the disk for IO threads (`appendfsync always`), while they
//! go on.

use crate::state::Server;

/// Serves them until [`crate::storage::Engine::stop_syncs`].
pub(super) fn run(server: &Server) {
    let engine = &server.engine;
    engine.serve_syncs(|threads| server.wake_threads(threads));
}
