//! What a run has measured.

use crate::histogram::Histogram;

const SECOND_NS: u64 = 1_000_000_000;

/// Counts and latencies; times in nanoseconds since the start of the run.
pub struct Figures {
    /// Latencies of all requests, those without a reply included.
    pub all: Histogram,
    /// Of each whole second: the number of replies, and the 99th percentile of their latencies.
    pub each_second: Vec<(u64, u64)>,
    pub errors: u64,
    pub first_error: Option<String>,
    /// Requests without a reply at the end.
    pub unanswered: u64,
    /// Duration of the run, without the wait for the last replies.
    pub seconds: f64,
    /// Latencies of the current second.
    current: Histogram,
    /// When the run ends, if that is known before.
    until_ns: Option<u64>,
    in_time: u64,
}

impl Figures {
    pub fn new(until_ns: Option<u64>) -> Figures {
        Figures {
            all: Histogram::new(),
            each_second: Vec::new(),
            errors: 0,
            first_error: None,
            unanswered: 0,
            seconds: 0.0,
            current: Histogram::new(),
            until_ns,
            in_time: 0,
        }
    }

    /// A reply that came at `now`.
    pub fn note(&mut self, now: u64, latency: u64, error: Option<String>) {
        self.all.add(latency);
        if let Some(error) = error {
            self.errors += 1;
            self.first_error.get_or_insert(error);
        }
        if self.until_ns.is_none_or(|until| now < until) {
            self.end_seconds(now);
            self.current.add(latency);
            self.in_time += 1;
        }
    }

    /// A request whose reply has not come in `latency`: the true one is longer.
    pub fn note_unanswered(&mut self, latency: u64) {
        self.all.add(latency);
        self.unanswered += 1;
    }

    /// Ends the run at `now`, or when it was to end.
    pub fn end(&mut self, now: u64) {
        let end = self.until_ns.map_or(now, |until| until.min(now));
        self.end_seconds(end);
        self.seconds = end as f64 / SECOND_NS as f64;
    }

    /// Replies in a second.
    pub fn rate(&self) -> f64 {
        self.in_time as f64 / self.seconds.max(1e-9)
    }

    /// Completes the seconds that are over at `now`.
    fn end_seconds(&mut self, now: u64) {
        while (self.each_second.len() as u64 + 1) * SECOND_NS <= now {
            let p99_ns = self.current.percentile(0.99);
            self.each_second.push((self.current.count(), p99_ns));
            self.current.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_belong_to_the_second_in_which_they_came() {
        let mut figures = Figures::new(Some(3 * SECOND_NS));
        for (now_ms, latency) in [(0, 7), (999, 9), (2_000, 5), (3_000, 1_000)] {
            figures.note(now_ms * 1_000_000, latency, None);
        }
        figures.note_unanswered(2_000);
        figures.end(4 * SECOND_NS);
        assert_eq!(figures.each_second, [(2, 9), (0, 0), (1, 5)]);
        assert_eq!((figures.seconds, figures.rate()), (3.0, 1.0));
        assert_eq!((figures.all.count(), figures.unanswered), (5, 1));
    }
}
