//! Lanes: threads that run scripts which take long (see [`crate::state::lanes`]).

use crate::exec::Executor;
use crate::state::Server;
use std::sync::Arc;
use std::time::Duration;

/// How soon a request is tried again that could not be run, as clients are paused
/// or somebody has its keys.
const PAUSE_CHECK: Duration = Duration::from_millis(10);

/// Runs requests until the server stops.
pub(super) fn run(server: Arc<Server>) {
    let mut executor = Executor::on_lane(server.clone());
    while let Some(mut job) = server.lanes.next() {
        while let Some(again) = executor.run_job(job) {
            if server.lanes.wait_for_end(PAUSE_CHECK) {
                return;
            }
            job = again;
        }
    }
}
