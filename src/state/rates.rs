//! Rates at which counters grow, averaged over the last samples: the `instantaneous_*` fields
//! of INFO.

use super::stats::Stats;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Samples in an average.
const SAMPLES: usize = 16;

/// Rates per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PerSecond {
    /// Commands.
    pub commands: f64,
    /// Bytes read.
    pub input_bytes: f64,
    /// Bytes sent.
    pub output_bytes: f64,
    /// Bytes read from the master; part of `input_bytes`.
    pub repl_input_bytes: f64,
    /// Bytes sent to replicas; part of `output_bytes`.
    pub repl_output_bytes: f64,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at_us: u64,
    commands: u64,
    input_bytes: u64,
    output_bytes: u64,
    repl_input_bytes: u64,
    repl_output_bytes: u64,
}

/// Samples of counters, from which rates are computed.
#[derive(Debug, Default)]
pub struct Rates {
    samples: Mutex<VecDeque<Sample>>,
}

impl Rates {
    /// Takes a sample; to be called at regular intervals.
    pub fn sample(&self, stats: &Stats, now_us: u64) {
        let mut samples = self.samples.lock();
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(Sample {
            at_us: now_us,
            commands: stats.commands.get(),
            input_bytes: stats.net_input_bytes.get(),
            output_bytes: stats.net_output_bytes.get(),
            repl_input_bytes: stats.net_repl_input_bytes.get(),
            repl_output_bytes: stats.net_repl_output_bytes.get(),
        });
    }

    /// The average over the kept samples.
    pub fn per_second(&self) -> PerSecond {
        let samples = self.samples.lock();
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
            return PerSecond::default();
        };
        let seconds = last.at_us.saturating_sub(first.at_us) as f64 / 1e6;
        if seconds <= 0.0 {
            return PerSecond::default();
        }
        // Counters are smaller after a reset.
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        PerSecond {
            commands: rate(first.commands, last.commands),
            input_bytes: rate(first.input_bytes, last.input_bytes),
            output_bytes: rate(first.output_bytes, last.output_bytes),
            repl_input_bytes: rate(first.repl_input_bytes, last.repl_input_bytes),
            repl_output_bytes: rate(first.repl_output_bytes, last.repl_output_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_over_time() {
        let (rates, stats) = (Rates::default(), Stats::default());
        assert_eq!(rates.per_second(), PerSecond::default());
        for second in 0..40 {
            rates.sample(&stats, second * 1_000_000);
            stats.commands.add(10);
        }
        assert_eq!(rates.per_second().commands, 10.0);
    }
}
