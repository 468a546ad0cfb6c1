//! The threads that run slow requests (see [`crate::state::workers`]).

use crate::exec::Executor;
use crate::state::Server;
use crate::state::workers::PAUSE_CHECK;
use std::sync::Arc;

/// Runs requests until the server stops.
pub(super) fn run(server: Arc<Server>) {
    let workers = &server.workers;
    let mut executor = Executor::on_worker(server.clone());
    let mut failures = 0;
    while let Some(job) = workers.next() {
        let Some(again) = executor.run_job(job) else {
            failures = 0;
            continue;
        };
        failures += 1;
        let all_tried = workers.try_later(again);
        if all_tried.is_some_and(|all| failures >= all) {
            failures = 0;
            if workers.wait_for_end(PAUSE_CHECK) {
                return;
            }
        }
    }
}
