//! The latency monitor: events that took at least `latency-monitor-threshold`
//! milliseconds, by class.
//!
//! Bounded: the classes are fixed in the program, and each keeps at most [`MAX_SAMPLES`]
//! samples, one per second.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// Most samples of a class.
pub const MAX_SAMPLES: usize = 160;

/// The slowest event of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Its time, Unix seconds.
    pub unix_s: u64,
    /// Its duration in milliseconds.
    pub ms: u64,
}

/// The history of a class of events.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Oldest first.
    pub samples: VecDeque<Sample>,
    /// The slowest since the last reset, in milliseconds.
    pub max_ms: u64,
}

/// Events that took at least `latency-monitor-threshold` milliseconds, by class.
#[derive(Debug, Default)]
pub struct Latency {
    classes: Mutex<BTreeMap<&'static str, History>>,
}

impl Latency {
    /// Adds an event that exceeds the threshold.
    pub fn add(&self, class: &'static str, ms: u64, unix_s: u64) {
        let mut classes = self.classes.lock();
        let history = classes.entry(class).or_default();
        history.max_ms = history.max_ms.max(ms);
        match history.samples.back_mut() {
            Some(last) if last.unix_s == unix_s => last.ms = last.ms.max(ms),
            _ => {
                if history.samples.len() == MAX_SAMPLES {
                    history.samples.pop_front();
                }
                history.samples.push_back(Sample { unix_s, ms });
            }
        }
    }

    /// All classes with events.
    pub fn all(&self) -> Vec<(&'static str, History)> {
        let classes = self.classes.lock();
        classes.iter().map(|(k, v)| (*k, v.clone())).collect()
    }

    /// The history of a class; its name is compared without case.
    pub fn history(&self, class: &[u8]) -> Option<(&'static str, History)> {
        let classes = self.classes.lock();
        let mut found = classes.iter();
        found
            .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(class))
            .map(|(name, history)| (*name, history.clone()))
    }

    /// Removes these classes, or all if none is named. Returns how many were removed.
    pub fn reset(&self, named: &[&[u8]]) -> usize {
        let mut classes = self.classes.lock();
        let before = classes.len();
        classes.retain(|name, _| {
            let named_here = named
                .iter()
                .any(|n| n.eq_ignore_ascii_case(name.as_bytes()));
            !named.is_empty() && !named_here
        });
        before - classes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_slowest_of_a_second_and_a_bounded_number() {
        let latency = Latency::default();
        latency.add("command", 5, 1);
        latency.add("command", 9, 1);
        latency.add("command", 7, 1);
        for second in 2..1000 {
            latency.add("command", 1, second);
        }
        let (name, history) = latency.history(b"COMMAND").unwrap();
        assert_eq!((name, history.max_ms), ("command", 9));
        assert_eq!(history.samples.len(), MAX_SAMPLES);
        assert_eq!(latency.reset(&[b"other"]), 0);
        assert_eq!(latency.reset(&[]), 1);
        assert!(latency.all().is_empty());
    }
}
