//! Shared helpers: server processes, raw connections, decoded replies.
//!
//! Every wait has a deadline, and every failure shows what was found. The helpers do not judge
//! replies; the tests do.

pub mod cgroup;
pub mod checks;
pub mod cli;
pub mod conn;
pub mod proxy;
pub mod resp;
pub mod server;
pub mod tls;

use std::time::{Duration, Instant};

pub use conn::{Conn, args};
pub use proxy::Proxy;
pub use resp::Value;
pub use server::{Server, oracle};

/// The longest any test waits for one condition.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Polls `condition` until it holds; `false` when `limit` passed first.
pub fn wait_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Polls `condition` until it holds; panics with `what` after the deadline.
pub fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        wait_within(DEADLINE, condition),
        "gave up waiting for: {what}"
    );
}

/// The pace of a loop that makes load, tries again, or is slow on purpose: a maximum of rounds
/// per second. The result of a test must not depend on it.
pub struct Pace {
    period: Duration,
    due: Instant,
}

impl Pace {
    /// The first round is due after one period.
    pub fn per_second(rounds: u32) -> Pace {
        let period = Duration::from_secs(1) / rounds;
        let due = Instant::now() + period;
        Pace { period, due }
    }

    /// Waits until the next round is due. Rounds that took too long are not made up for.
    pub fn wait(&mut self) {
        std::thread::sleep(self.due.saturating_duration_since(Instant::now()));
        self.due = self.due.max(Instant::now()) + self.period;
    }
}

/// The wall clock in Unix ms, as the servers see it.
pub fn unix_ms() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// An environment variable as a number, or `default`; a malformed one fails.
pub fn env_number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// A seed for a random test: `name` from the environment, else a fresh one.
/// Printed, so that a failure can be repeated.
pub fn seed(name: &str) -> u64 {
    let seed = env_number(name, fastrand::u64(..));
    println!("{name}={seed}");
    seed
}
