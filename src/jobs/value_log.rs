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
const IDLE_MOVED: u64 = 32 << 20;
/// Bytes per second over which the collection may go then.
const IDLE_PASSED: u64 = 256 << 20;
/// Bytes per second that may be freed while something is written, however little.
const LEAST_FREED: u64 = 32 << 20;
/// How many percent of what is appended may be freed meanwhile.
const FREED_PERCENT: u64 = 125;
/// For how long steps that were late are made up for.
const MADE_UP: Duration = Duration::from_secs(1);
/// Rows per second that may be read to learn what lives.
const LOOKS_PER_SECOND: usize = 2000;

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let mut collector = Collector::new(server.engine.clone());
    let mut fails = Recurring::default();
    let mut pace = Pace::new(server.engine.value_log_appended());
    loop {
        let idle = pace.note(server.engine.value_log_appended());
        let pause = match collector.step(idle) {
            Ok(done) => {
                fails.over();
                server.stats.value_log_moved_bytes.add(done.moved);
                server.stats.value_log_collected_bytes.add(done.passed);
                pace.moved += done.moved;
                let is_urgent = server.engine.disk.is_low() || server.evicting.starves();
                match done.more {
                    true => pace.pause_after(done, is_urgent, Instant::now()),
                    false => pace.rest(Instant::now()),
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

/// Keeps the collection to a rate: it frees a little more than is appended, and does so evenly. A
/// second in which it runs at full speed would be one in which replies are late.
struct Pace {
    /// Bytes appended, what was moved included, and when that was noted.
    appended: u64,
    noted: Instant,
    /// Bytes moved since.
    moved: u64,
    /// Bytes per second that commands append.
    per_second: u64,
    /// When a command last appended something.
    last: Instant,
    /// When the next step is due.
    due: Instant,
}

impl Pace {
    fn new(appended: u64) -> Pace {
        Pace {
            appended,
            noted: Instant::now(),
            moved: 0,
            per_second: 0,
            last: Instant::now(),
            due: Instant::now(),
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

    /// How long to wait at `now`, when there is nothing to do.
    fn rest(&mut self, now: Instant) -> Duration {
        self.due = now + PERIOD;
        PERIOD
    }

    /// How long to wait at `now` after a step. `is_urgent`: there is no space.
    fn pause_after(&mut self, done: Collected, is_urgent: bool, now: Instant) -> Duration {
        let seconds = |bytes: u64, rate: u64| bytes as f64 / rate as f64;
        let should_take = match self.per_second {
            _ if is_urgent => 0.0,
            0 => seconds(done.moved, IDLE_MOVED) + seconds(done.passed, IDLE_PASSED),
            appended => {
                let rate = LEAST_FREED.max(appended * FREED_PERCENT / 100);
                // Of a segment that was chosen while nothing was written, most may live.
                seconds(done.freed.max(done.moved), rate)
            }
        };
        // A look that has led to a collection costs little beside it.
        let looks_take = match done.passed {
            0 => done.looked_up as f64 / LOOKS_PER_SECOND as f64,
            _ => 0.0,
        };
        let began = self.due.max(now.checked_sub(MADE_UP).unwrap_or(now));
        self.due = began + Duration::from_secs_f64(should_take.max(looks_take));
        self.due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn pace(per_second: u64) -> Pace {
        Pace {
            per_second,
            ..Pace::new(0)
        }
    }

    /// Steps of a megabyte of garbage, each of which begins late: the seconds that a hundred take.
    fn seconds(pace: &mut Pace, work: Duration, late: Duration) -> f64 {
        let began = pace.due;
        let mut now = began;
        let done = Collected {
            passed: MB,
            freed: MB,
            ..Collected::default()
        };
        for _ in 0..100 {
            now += work;
            let pause = pace.pause_after(done, false, now);
            if !pause.is_zero() {
                now += pause + late;
            }
        }
        (now - began).as_secs_f64()
    }

    #[test]
    fn late_steps_are_made_up_for() {
        let (work, late) = (Duration::from_millis(3), Duration::from_millis(2));
        let took = seconds(&mut pace(80 * MB), work, late);
        assert!((0.98..1.02).contains(&took), "100 MB/s are freed: {took}");
        // As fast as it can, if that is too slow.
        let took = seconds(&mut pace(80 * MB), Duration::from_millis(30), late);
        assert!((2.98..3.1).contains(&took), "{took}");
        let took = seconds(&mut pace(MB), work, late);
        assert!((3.0..3.2).contains(&took), "32 MB/s at the least: {took}");
    }

    #[test]
    fn a_long_delay_is_not_made_up_for() {
        let mut pace = pace(80 * MB);
        pace.due += Duration::from_secs(1000);
        let later = pace.due + Duration::from_secs(60);
        let done = Collected {
            freed: 200 * MB,
            ..Collected::default()
        };
        let pause = pace.pause_after(done, false, later);
        assert_eq!(pause, Duration::from_secs(1));
    }

    #[test]
    fn nothing_waits_where_there_is_no_space() {
        let done = Collected {
            freed: MB,
            looked_up: 20,
            ..Collected::default()
        };
        let mut pace = pace(MB);
        let now = pace.due;
        let pause = pace.pause_after(done, true, now);
        assert_eq!(pause, Duration::from_millis(10), "but for looks");
    }
}
