//! The tidy thread: after mass deletions, sees to it that reads need not pass
//! the tombstones of deleted keys for long.

use super::StopSign;
use crate::base::recurring::Recurring;
use crate::state::Server;
use std::sync::Arc;
use std::time::Duration;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(250);

/// After an error it waits this long.
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
