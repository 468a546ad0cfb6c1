//! The binlog-trim thread: drops the oldest entries beyond `binlog-capacity`,
//! `binlog-max-bytes` (or a share of `max-disk`) and `binlog-max-age`. If the disk stays full, it
//! drops everything that no connected replica needs.

use super::StopSign;
use crate::base::recurring::Recurring;
use crate::base::time::UnixMs;
use crate::state::Server;
use crate::storage::engine::binlog::BinlogBounds;
use crate::sys::clock;
use std::sync::Arc;
use std::time::Duration;

/// How often the bounds are checked.
const PERIOD: Duration = Duration::from_millis(250);

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let mut fails = Recurring::default();
    while !sign.sleep(PERIOD) {
        let config = server.config.load();
        let oldest_unix_ms = match config.binlog_max_age_s {
            0 => UnixMs::NONE,
            age_s => clock::unix_ms().before(age_s.saturating_mul(1000)),
        };
        let bounds = BinlogBounds {
            max_entries: config.binlog_capacity,
            max_bytes: match server.engine.disk.is_low_for_long() || server.evicting.starves() {
                true => 1,
                false => config.binlog_bytes(),
            },
            oldest_unix_ms,
            hold_max_bytes: config.binlog_hold_bytes(),
        };
        if !server.engine.has_failed() {
            match server.engine.trim_binlog(&bounds) {
                Ok(_) => fails.over(),
                Err(error) if fails.is_news(&error) => log::error!("binlog-trim thread: {error}"),
                Err(_) => {}
            }
        }
    }
}
