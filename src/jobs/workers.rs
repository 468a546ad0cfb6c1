//! The threads that run slow requests (see [`crate::state::workers`]).

use crate::exec::Executor;
use crate::state::Server;
use crate::state::workers::{Next, PAUSE_CHECK};
use std::sync::Arc;

/// Runs requests until the server stops, each for a turn only (`turns`) or to its end.
pub(super) fn run(server: Arc<Server>, turns: bool) {
    let workers = &server.workers;
    let mut executor = Executor::on_worker(server.clone(), turns);
    let Some(worker) = executor.worker().cloned() else {
        return;
    };
    let mut failures = 0;
    while let Some(next) = workers.next(&worker) {
        let job = match next {
            Next::Job(job) => job,
            Next::Serve(keys) => {
                executor.serve_keys(keys);
                continue;
            }
        };
        let was_long = job.is_long;
        let Some(again) = executor.run_job(job) else {
            failures = 0;
            continue;
        };
        if again.is_long && !was_long {
            // It has run; the others go on with it from its start.
            failures = 0;
            workers.pass_on(again);
            continue;
        }
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
