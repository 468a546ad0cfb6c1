//! Waiting in unit tests: for a condition, with a deadline.

use std::time::{Duration, Instant};

/// The longest wait for one condition.
const DEADLINE: Duration = Duration::from_secs(60);
/// Between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(1);
/// Between two rounds of a loop that is slow on purpose.
const PERIOD: Duration = Duration::from_micros(20);

/// Waits until a condition is true.
///
/// # Panics
/// The condition was not true before the deadline.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "gave up waiting for: {what}");
        std::thread::sleep(CHECK_EVERY);
    }
}

/// Lets other threads run between two rounds of a loop that does its work in small pieces. What a
/// test proves does not depend on how long that takes.
pub fn pace() {
    std::thread::sleep(PERIOD);
}
