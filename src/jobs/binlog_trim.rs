//! The binlog-trim thread: drops the oldest entries beyond `binlog-capacity`
//! and `binlog-max-bytes`.

use super::StopSign;
use crate::state::Server;
use std::sync::Arc;
use std::time::Duration;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(250);

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    while !sign.sleep(PERIOD) {
        let config = server.config.load();
        let trimmed = server
            .engine
            .trim_binlog(config.binlog_capacity, config.binlog_max_bytes);
        if let Err(error) = trimmed {
            log::error!("binlog-trim thread: {error}");
        }
    }
}
