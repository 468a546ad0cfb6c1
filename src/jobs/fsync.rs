//! The threads that sync the write-ahead log: one on behalf of the IO threads (`appendfsync
//! always`), which do not wait meanwhile, and one every second (`appendfsync everysec`).

use super::StopSign;
use crate::base::recurring::Recurring;
use crate::state::Server;
use crate::state::config::AppendFsync;
use std::sync::Arc;
use std::time::Duration;

/// Serves IO threads until [`crate::storage::Engine::stop_syncs`].
pub(super) fn serve(server: &Server) {
    server.engine.serve_syncs(|threads| {
        server.end_ack_waits();
        server.wake_threads(threads);
    });
}

/// Syncs once a second under `appendfsync everysec`.
pub(super) fn every_second(server: Arc<Server>, sign: &StopSign) {
    let (mut fails, mut marks_fail) = (Recurring::default(), Recurring::default());
    while !sign.sleep(Duration::from_secs(1)) {
        let wanted = server.config.load().appendfsync == AppendFsync::Everysec;
        // After a failure the disk thread syncs.
        if wanted && !server.engine.has_failed() {
            match server.engine.sync_wal() {
                Ok(()) => fails.over(),
                Err(error) if fails.is_news(&error) => log::error!("fsync: {error}"),
                Err(_) => {}
            }
        }
        // Also covers syncs by other threads.
        match server.engine.sync_marks() {
            Ok(()) => marks_fail.over(),
            Err(error) if marks_fail.is_news(&error) => log::warn!("{error}"),
            Err(_) => {}
        }
        server.end_ack_waits();
    }
}
