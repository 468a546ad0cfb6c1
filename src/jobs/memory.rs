//! The memory thread: keeps the process within `maxmemory`.

use super::StopSign;
use crate::state::Server;
use crate::storage::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a thread near its budget checks: demand of clients changes within milliseconds.
const PERIOD: Duration = Duration::from_millis(20);
/// How often it looks at memtables while writers wait for them.
const WHILE_DELAYED: Duration = Duration::from_millis(2);
/// When an error that has not changed is logged again.
const LOG_AGAIN: Duration = Duration::from_secs(60);
/// The precise check runs once in so many periods even when memory is free.
const PRECISE_EVERY: u32 = 12;

/// The last error of a step that is repeated many times in a second. The same one is logged once a
/// minute.
#[derive(Default)]
struct LastError(Option<(String, Instant)>);

impl LastError {
    /// Logs the error of the step, and returns its result.
    fn log<T>(&mut self, done: Result<T>) -> Option<T> {
        let error = match done {
            Ok(done) => return Some(done),
            Err(error) => error.to_string(),
        };
        let is_known = self
            .0
            .as_ref()
            .is_some_and(|(last, since)| *last == error && since.elapsed() < LOG_AGAIN);
        if !is_known {
            log::error!("memory thread: {error}");
            self.0 = Some((error, Instant::now()));
        }
        None
    }
}

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    server.keeps_to_budget.store(true, Ordering::Relaxed);
    let mut periods = 0;
    let mut checked = Instant::now();
    let mut pause = PERIOD;
    let (mut of_looks, mut of_flushes) = (LastError::default(), LastError::default());
    while !sign.sleep(pause) {
        pause = match of_looks.log(server.engine.look_at_memtables()) {
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
            of_flushes.log(server.engine.relieve_memtables());
        }
    }
    server.engine.release_writers();
}
