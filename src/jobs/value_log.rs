//! The value-log thread: moves what lives of old segments of the value log, at a bounded rate, and
//! removes their files.

use super::StopSign;
use crate::base::recurring::Recurring;
use crate::state::Server;
use crate::storage::values::{Collected, Collector};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the thread looks whether there is something to do.
const PERIOD: Duration = Duration::from_secs(1);
/// Pause after a storage error.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// Nothing counts as written after so long a time without values.
const IDLE_AFTER: Duration = Duration::from_secs(20);
/// Bytes per second that may be moved while nothing is written.
const IDLE_RATE: u64 = 32 << 20;
/// Rows per second that may be read to learn what lives.
const LOOKS_PER_SECOND: usize = 2000;

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let mut collector = Collector::new(server.engine.clone());
    let mut fails = Recurring::default();
    let mut rate = Rate::new(server.engine.value_log_appended());
    loop {
        let idle = rate.note(server.engine.value_log_appended());
        let pause = match collector.step(idle) {
            Ok(done) => {
                fails.over();
                server.stats.value_log_moved_bytes.add(done.moved);
                rate.moved += done.moved;
                match done.more {
                    true => rate.pause_after(done),
                    false => PERIOD,
                }
            }
            Err(error) => {
                if fails.is_news(&error) {
                    log::error!("value-log thread: {error}");
                }
                AFTER_ERROR
            }
        };
        if sign.sleep(pause) {
            return;
        }
    }
}

/// How fast values are appended, and may be moved.
struct Rate {
    /// Bytes appended, what was moved included, and when that was noted.
    appended: u64,
    noted: Instant,
    /// Bytes moved since.
    moved: u64,
    /// Bytes per second that commands append.
    per_second: u64,
    /// When a command last appended something.
    last: Instant,
}

impl Rate {
    fn new(appended: u64) -> Rate {
        Rate {
            appended,
            noted: Instant::now(),
            moved: 0,
            per_second: 0,
            last: Instant::now(),
        }
    }

    /// Notes how much was appended so far. Returns whether nothing was for a while.
    fn note(&mut self, appended: u64) -> bool {
        let took = self.noted.elapsed();
        if took >= PERIOD / 2 {
            let own = (appended - self.appended).saturating_sub(self.moved);
            self.per_second = (own as f64 / took.as_secs_f64()) as u64;
            if own > 0 {
                self.last = Instant::now();
            }
            (self.appended, self.noted, self.moved) = (appended, Instant::now(), 0);
        }
        self.last.elapsed() >= IDLE_AFTER
    }

    /// How long to wait after a step: where a segment is collected whose half lives, as much must
    /// be moved as is appended.
    fn pause_after(&self, done: Collected) -> Duration {
        let rate = IDLE_RATE + 2 * self.per_second;
        let moved = done.moved as f64 / rate as f64;
        let looked_up = done.looked_up as f64 / LOOKS_PER_SECOND as f64;
        Duration::from_secs_f64(moved + looked_up)
    }
}
