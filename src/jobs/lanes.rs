//! Lanes: threads that run what takes long (see [`crate::state::lanes`]).

use crate::exec::Executor;
use crate::state::Server;
use crate::state::lanes::PAUSE_CHECK;
use std::sync::Arc;

/// Runs requests until the server stops.
pub(super) fn run(server: Arc<Server>) {
    let lanes = &server.lanes;
    let mut executor = Executor::on_lane(server.clone());
    let mut in_vain = 0;
    while let Some(job) = lanes.next() {
        let Some(again) = executor.run_job(job) else {
            in_vain = 0;
            continue;
        };
        in_vain += 1;
        let all_tried = lanes.try_later(again);
        if all_tried.is_some_and(|all| in_vain >= all) {
            in_vain = 0;
            if lanes.wait_for_end(PAUSE_CHECK) {
                return;
            }
        }
    }
}
