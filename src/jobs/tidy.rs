//! The tidy thread: after mass deletions, has tombstones compacted, so that reads need not skip
//! them for long.

use super::StopSign;
use crate::base::recurring::Recurring;
use crate::state::Server;
use std::sync::Arc;
use std::time::Duration;

/// How often tables are checked.
const PERIOD: Duration = Duration::from_millis(250);

/// Pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(10);

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let mut fails = Recurring::default();
    let mut pause = PERIOD;
    while !sign.sleep(pause) {
        pause = PERIOD;
        if server.engine.has_failed() {
            continue;
        }
        match server.engine.tidy(|| sign.sleep(Duration::ZERO)) {
            Ok(()) => fails.over(),
            Err(error) => {
                if fails.is_news(&error) {
                    log::error!("tidy thread: {error}");
                }
                pause = AFTER_ERROR;
            }
        }
    }
}
