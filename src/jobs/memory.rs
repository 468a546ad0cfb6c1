//! The memory thread: keeps the process within `maxmemory`.

use super::StopSign;
use crate::state::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often it looks: what clients need comes within milliseconds.
const PERIOD: Duration = Duration::from_millis(20);
/// In so many periods it looks closely once, also where there is memory enough.
const CLOSELY: u32 = 12;

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    server.keeps_to_budget.store(true, Ordering::Relaxed);
    let mut periods = 0;
    while !sign.sleep(PERIOD) {
        periods = (periods + 1) % CLOSELY;
        if periods == 0 || server.is_near_budget() {
            server.keep_to_budget();
        }
        // No further write would have them written out while all wait for that.
        if server.client_memory.has_waiting()
            && let Err(error) = server.engine.relieve_memtables()
        {
            log::error!("memory thread: {error}");
        }
    }
}
