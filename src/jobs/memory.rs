//! The memory thread: keeps the process within `maxmemory`.

use super::StopSign;
use crate::state::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a thread near its budget checks: demand of clients changes within milliseconds.
const PERIOD: Duration = Duration::from_millis(20);
/// The precise check runs once in so many periods even when memory is free.
const PRECISE_EVERY: u32 = 12;

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    server.keeps_to_budget.store(true, Ordering::Relaxed);
    let mut periods = 0;
    while !sign.sleep(PERIOD) {
        periods = (periods + 1) % PRECISE_EVERY;
        if periods == 0 || server.is_near_budget() {
            server.keep_to_budget();
        }
        server.engine.end_reservation_for_tables();
        // While all writers wait for memory, no further write would trigger a flush.
        let wants = server.engine.is_asked_for_tables();
        if (wants || server.client_memory.has_waiting())
            && let Err(error) = server.engine.relieve_memtables()
        {
            log::error!("memory thread: {error}");
        }
    }
}
