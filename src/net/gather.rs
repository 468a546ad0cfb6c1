//! A short wait for more requests when many clients keep a thread busy with few requests at a
//! time; compare interrupt coalescing of network cards.
//!
//! A tick that writes costs some 4 µs besides its requests: a poll, a commit, a write to the
//! WAL. Clients that send the next request after each reply make ticks just as small as keeps
//! the thread busy, so whatever is saved elsewhere makes the ticks smaller. 50 clients of one
//! redis-benchmark with SET have 3 requests in a tick. A wait of 15 µs before a poll makes that
//! 14, for 0.91 of the processor time at the same rate, measured side by side (Redis: 0.86).
//! Their median latency grows from 0.26 to 0.34 ms. Ticks that only read gain 2 %: they do not
//! wait.
//!
//! The rate does not suffer as long as the clients have other requests under way meanwhile. So
//! the decision is made anew every [`WINDOW`] ticks, from the last ones: they wrote; they had
//! several requests each, but not so many that another one would not matter; and the requests
//! came from several times as many clients.

use std::time::{Duration, Instant};

/// Ticks between two decisions.
const WINDOW: u32 = 64;
/// Fewest requests in a tick, on average, for which waiting can pay.
const FEWEST: u32 = 2;
/// Most requests in a tick, on average, for which it pays.
const MOST: u32 = 16;
/// Fewest clients per request of a tick.
const CLIENTS: u32 = 3;
/// A wait that ends so much later than asked for is late. A single one is late if other
/// processes want the processor; if most are, the system's timers are coarse.
const LATE: Duration = Duration::from_micros(100);
/// Waits after which the share of late ones is judged.
const JUDGED: u32 = 8;
/// Windows without waits after most waits were late.
const PAUSE: u32 = 1024;
/// How exactly the system is asked to wake the thread, in ns. The default of Linux is 50 µs.
#[cfg(target_os = "linux")]
const TIMER_SLACK_NS: u64 = 1000;

/// Decides whether an IO thread waits for more requests before it begins a tick.
pub(super) struct TickGathering {
    /// The ticks of this window, those that wrote, their requests and clients; the number of
    /// the window.
    ticks: u32,
    writing: u32,
    requests: u32,
    clients: u32,
    window: u32,
    /// Whether this window has waits; their number, and how many were late.
    waits: bool,
    waited: u32,
    late: u32,
    /// Remaining windows without waits.
    paused: u32,
}

/// Asks the system for exact wake-ups of the calling thread.
pub(super) fn wake_exactly() {
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(TIMER_SLACK_NS))
    {
        log::debug!("Waits of an IO thread may end late: {error}");
    }
}

impl TickGathering {
    pub fn new() -> TickGathering {
        TickGathering {
            ticks: 0,
            writing: 0,
            requests: 0,
            clients: 0,
            window: 1,
            waits: false,
            waited: 0,
            late: 0,
            paused: 0,
        }
    }

    /// Counts a client with requests in this tick; `window` belongs to the client, and is 0 at
    /// first.
    pub fn note_client(&mut self, window: &mut u32) {
        if *window != self.window {
            *window = self.window;
            self.clients += 1;
        }
    }

    /// Counts a tick with so many requests, before its commit.
    pub fn note_tick(&mut self, requests: u32, writes: bool) {
        if requests == 0 {
            return;
        }
        self.ticks += 1;
        self.writing += u32::from(writes);
        self.requests = self.requests.saturating_add(requests);
        if self.ticks == WINDOW {
            self.decide();
        }
    }

    fn decide(&mut self) {
        let (requests, clients) = (self.requests, self.clients);
        let pays = self.writing * 2 > WINDOW
            && (FEWEST * WINDOW..=MOST * WINDOW).contains(&requests)
            && clients * WINDOW >= requests * CLIENTS;
        self.waits = pays && self.paused == 0;
        self.paused = self.paused.saturating_sub(1);
        self.window = self.window.wrapping_add(1).max(1);
        (self.ticks, self.writing) = (0, 0);
        (self.requests, self.clients) = (0, 0);
        (self.waited, self.late) = (0, 0);
    }

    /// Waits for `long`, if the last window was such that it pays.
    pub fn wait(&mut self, long: Duration) {
        if !self.waits || long.is_zero() {
            return;
        }
        let began = Instant::now();
        std::thread::sleep(long);
        self.note_wait(began.elapsed().saturating_sub(long) > LATE);
    }

    fn note_wait(&mut self, late: bool) {
        self.waited += 1;
        self.late += u32::from(late);
        if self.waited >= JUDGED && self.late * 2 > self.waited {
            self.waits = false;
            self.paused = PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of ticks with so many requests each, from so many clients in all.
    fn window(gathering: &mut TickGathering, requests: u32, clients: usize) -> bool {
        let mut windows = vec![0; clients];
        for _ in 0..WINDOW {
            for window in &mut windows {
                gathering.note_client(window);
            }
            gathering.note_tick(requests, true);
        }
        gathering.waits
    }

    #[test]
    fn waits_for_many_clients_with_small_ticks_only() {
        let mut gathering = TickGathering::new();
        for (requests, clients, waits) in [
            (3, 50, true),
            (16, 50, true),
            // Single requests, few clients, or so many requests that a wait would not matter.
            (1, 50, false),
            (1, 1, false),
            (3, 8, false),
            (3, 9, true),
            (17, 50, false),
            (16, 1, false),
            (u32::MAX, 50, false),
        ] {
            let found = window(&mut gathering, requests, clients);
            assert_eq!(found, waits, "{requests} requests of {clients} clients");
        }
    }

    #[test]
    fn a_client_counts_once_in_a_window() {
        let mut gathering = TickGathering::new();
        let mut client = 0;
        for _ in 0..WINDOW - 1 {
            gathering.note_client(&mut client);
            gathering.note_tick(1, true);
        }
        assert_eq!(gathering.clients, 1);
        gathering.note_tick(1, true);
        gathering.note_client(&mut client);
        assert_eq!(gathering.clients, 1, "of the next window");
    }

    #[test]
    fn ticks_that_only_read_are_not_waited_for() {
        for (reads, waits) in [(31, true), (32, false), (64, false)] {
            let mut gathering = TickGathering::new();
            let mut windows = vec![0; 50];
            for tick in 0..WINDOW {
                for window in &mut windows {
                    gathering.note_client(window);
                }
                gathering.note_tick(3, tick >= reads);
            }
            assert_eq!(gathering.waits, waits, "{reads}");
        }
    }

    #[test]
    fn ticks_without_requests_do_not_count() {
        let mut gathering = TickGathering::new();
        gathering.note_tick(0, true);
        assert_eq!(gathering.ticks, 0);
    }

    #[test]
    fn late_waits_end_it_for_a_while() {
        let mut gathering = TickGathering::new();
        assert!(window(&mut gathering, 3, 50));
        for late in [true, false, true, false, true, false, true, false, false] {
            gathering.note_wait(late);
        }
        assert!(gathering.waits, "fewer than half were late");
        (0..2).for_each(|_| gathering.note_wait(true));
        assert!(!gathering.waits);
        let windows = (1..).find(|_| window(&mut gathering, 3, 50));
        assert_eq!(windows, Some(PAUSE + 1));
    }
}
