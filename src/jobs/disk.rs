//! The disk thread: watches the free space, and makes the storage accept writes again after
//! temporary errors.

use super::StopSign;
use crate::base::recurring::Recurring;
use crate::state::Server;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the free space is checked.
const PERIOD: Duration = Duration::from_millis(100);
/// One look takes about this part of the time at most: with `max-disk` it asks for the size of each file.
const SHARE: u32 = 20;
/// The longest pause for that. A file system that is slow once is looked at again soon.
const LONGEST: Duration = Duration::from_secs(1);
/// How often the size of the write-ahead log is measured.
const LOG_PERIOD: Duration = Duration::from_secs(1);
/// Pause between attempts to recover: doubled each time, from the first value to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How often the same kind of failure is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

pub(super) fn run(server: Arc<Server>, sign: &StopSign) {
    let engine = &server.engine;
    let mut log_seen: Option<Instant> = None;
    let mut healer = Healer::default();
    let mut failures = Failures::default();
    let mut relief_fails = Recurring::default();
    loop {
        let disk = &engine.disk;
        let config = server.config.load();
        disk.set_reserve(config.disk_reserve_bytes);
        disk.set_quota(config.max_disk_bytes);
        drop(config);
        let began = Instant::now();
        engine.look_at_disk();
        let took = began.elapsed();
        let looks_at_log = log_seen.is_none_or(|seen| seen.elapsed() >= LOG_PERIOD);
        if looks_at_log {
            log_seen = Some(Instant::now());
            disk.measure_log();
        }
        let interval_s = server.config.load().tls_auto_reload_interval_s;
        server.tls.renew_if_due(interval_s, Instant::now());
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
        failures.log_new(&server);
        healer.turn(&server);
        if sign.sleep((took * SHARE).clamp(PERIOD, LONGEST)) {
            return;
        }
    }
}

/// Decides when to try to recover from an error.
#[derive(Default)]
struct Healer {
    pause: Duration,
    tried: Option<Instant>,
    /// When a failed attempt was last logged.
    logged: Option<Instant>,
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
                if self
                    .logged
                    .is_none_or(|logged| logged.elapsed() >= LOG_EVERY)
                {
                    self.logged = Some(Instant::now());
                    log::warn!("writes are still refused: {error}");
                }
                self.pause = (self.pause * 2).clamp(RETRY.0, RETRY.1);
                self.tried = Some(Instant::now());
            }
        }
        if !matches!(healed, Ok(false)) {
            // Parked ticks have ended, as durable or failed.
            server.wake_threads(0..server.config.load().io_thread_count());
            server.end_ack_waits();
        }
    }
}

/// Logs failed file operations.
#[derive(Default)]
struct Failures {
    known: u64,
    logged: Option<Instant>,
}

impl Failures {
    fn log_new(&mut self, server: &Server) {
        let (count, last) = server.engine.disk.failures();
        if count == self.known
            || self
                .logged
                .is_some_and(|logged| logged.elapsed() < LOG_EVERY)
        {
            return;
        }
        let more = count - self.known;
        self.known = count;
        self.logged = Some(Instant::now());
        log::warn!("{more} operations on the database's files have failed, the last: {last}");
    }
}
