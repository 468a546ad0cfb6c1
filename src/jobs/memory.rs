//! The memory thread: keeps the process within `maxmemory`.

use super::StopSign;
use crate::base::recurring::Recurring;
use crate::state::Server;
use crate::storage::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a thread near its budget checks: demand of clients changes within milliseconds.
const PERIOD: Duration = Duration::from_millis(20);
/// How often it looks at memtables while writers wait for them.
const WHILE_DELAYED: Duration = Duration::from_millis(2);
/// The precise check runs once in so many periods even when memory is free.
const PRECISE_EVERY: u32 = 12;

/// The result of a step. Its error is logged if it is news.
fn logged<T>(errors: &mut Recurring, done: Result<T>) -> Option<T> {
    match done {
        Ok(done) => {
            errors.over();
            Some(done)
        }
        Err(error) => {
            if errors.is_news(&error) {
                log::error!("memory thread: {error}");
            }
            None
        }
    }
}

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    server.keeps_to_budget.store(true, Ordering::Relaxed);
    let mut periods = 0;
    let mut checked = Instant::now();
    let mut pause = PERIOD;
    let (mut of_looks, mut of_flushes) = (Recurring::default(), Recurring::default());
    while !sign.sleep(pause) {
        pause = match logged(&mut of_looks, server.engine.look_at_memtables()) {
            Some(true) => WHILE_DELAYED,
            Some(false) | None => PERIOD,
        };
        if checked.elapsed() < PERIOD {
            continue;
        }
        checked = Instant::now();
        periods = (periods + 1) % PRECISE_EVERY;
        if periods == 0 || server.is_near_budget() {
            server.keep_to_budget();
        }
        server.engine.end_reservation_for_tables();
        // While all writers wait for memory, no further write would trigger a flush.
        let wants = server.engine.is_asked_for_tables();
        if wants || server.client_memory.has_waiting() {
            logged(&mut of_flushes, server.engine.relieve_memtables());
        } else {
            of_flushes.over();
        }
    }
    server.engine.release_writers();
}
