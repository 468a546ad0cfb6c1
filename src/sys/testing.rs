//! How unit tests wait: for a condition, with a deadline.

use std::time::{Duration, Instant};

/// The longest a unit test waits for one condition.
const DEADLINE: Duration = Duration::from_secs(60);
/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Between two rounds of a loop that is slow on purpose.
const PERIOD: Duration = Duration::from_micros(20);

/// Looks at a condition until it holds.
///
/// # Panics
/// It did not hold before the deadline.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "gave up waiting for: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Lets other threads have their turn between two rounds of a loop that does its work in
/// small pieces. What a test proves does not depend on how long that takes.
pub fn pace() {
    std::thread::sleep(PERIOD);
}
