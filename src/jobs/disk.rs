//! The disk thread: watches how much is free, and has the storage take writes again after
//! errors that have gone away.

use super::StopSign;
use crate::base::recurring::Recurring;
use crate::state::Server;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(100);
/// How often it adds up the files of the write-ahead log.
const LOG_PERIOD: Duration = Duration::from_secs(1);
/// Between two attempts to go on: doubled from the first to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// What the system could not do is in the log once in this time.
const SAY_EVERY: Duration = Duration::from_secs(60);

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let engine = &server.engine;
    let mut log_seen: Option<Instant> = None;
    let mut healer = Healer::default();
    let mut failures = Failures::default();
    let mut relief_fails = Recurring::default();
    loop {
        let disk = &engine.disk;
        disk.set_reserve(server.config.load().disk_reserve_bytes);
        engine.look_at_disk();
        let looks_at_log = log_seen.is_none_or(|seen| seen.elapsed() >= LOG_PERIOD);
        if looks_at_log {
            log_seen = Some(Instant::now());
            disk.measure_log();
        }
        if !engine.has_failed() {
            let relieved = engine.set_stalls().and_then(|()| match disk.is_low() {
                true if !looks_at_log => Ok(()),
                _ => engine.relieve_disk(),
            });
            match relieved {
                Ok(()) => relief_fails.over(),
                Err(error) if relief_fails.is_news(&error) => log::warn!("disk thread: {error}"),
                Err(_) => {}
            }
        }
        failures.tell(&server);
        healer.turn(&server);
        if sign.sleep(PERIOD) {
            return;
        }
    }
}

/// When it is tried to go on.
#[derive(Default)]
struct Healer {
    pause: Duration,
    tried: Option<Instant>,
    /// When it was said why not.
    said: Option<Instant>,
}

impl Healer {
    fn turn(&mut self, server: &Server) {
        if self.tried.is_some_and(|tried| tried.elapsed() < self.pause) {
            return;
        }
        let healed = server.engine.heal();
        match &healed {
            Ok(_) => *self = Healer::default(),
            Err(error) => {
                if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
                    self.said = Some(Instant::now());
                    log::warn!("writes are still not taken: {error}");
                }
                self.pause = (self.pause * 2).clamp(RETRY.0, RETRY.1);
                self.tried = Some(Instant::now());
            }
        }
        if !matches!(healed, Ok(false)) {
            // Ticks that wait for the disk have ended, in one way or the other.
            server.wake_threads(0..server.config.load().io_thread_count());
            server.end_ack_waits();
        }
    }
}

/// What the system could not do, for the log.
#[derive(Default)]
struct Failures {
    known: u64,
    said: Option<Instant>,
}

impl Failures {
    fn tell(&mut self, server: &Server) {
        let (count, last) = server.engine.disk.failures();
        if count == self.known || self.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            return;
        }
        let more = count - self.known;
        self.known = count;
        self.said = Some(Instant::now());
        log::warn!("{more} operations on the database's files have failed, the last: {last}");
    }
}
