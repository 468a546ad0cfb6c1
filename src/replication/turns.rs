//! Limits how many feeders send a data set at once, and how often one is begun that cannot be read.
//!
//! Sending a data set takes memory, a snapshot and processor time. A bounded number of
//! them are sent at once, in the order of requests.
//!
//! A data set with damaged files can be sent up to the damage only. Replicas would ask for it again
//! at once, and fill the network with it for nothing.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most data sets sent at once.
pub(super) const MOST: usize = 16;
/// How long none is begun after one that could not be read; twice as long each further time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The feeders that send a data set, then those that wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: Mutex<Queue>,
    pause: Mutex<Option<Pause>>,
}

/// No data set is begun for so long.
#[derive(Debug, Clone, Copy)]
struct Pause {
    since: Instant,
    length: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    numbers: VecDeque<u64>,
}

impl Turns {
    /// Enters the queue at its end.
    pub(super) fn ask(&self) -> Turn<'_> {
        let mut queue = self.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.numbers.push_back(number);
        Turn {
            turns: self,
            number,
        }
    }

    /// Whether no data set is begun now, because one could not be read.
    pub(super) fn are_paused(&self) -> bool {
        let pause = self.pause.lock();
        pause.is_some_and(|pause| pause.since.elapsed() < pause.length)
    }

    /// Notes whether a data set could be read.
    pub(super) fn note_read(&self, could: bool) {
        let mut pause = self.pause.lock();
        let next = |last: Pause| (2 * last.length).min(LONGEST_PAUSE);
        let length = pause.map_or(FIRST_PAUSE, next);
        *pause = (!could).then(|| Pause {
            since: Instant::now(),
            length,
        });
    }
}

/// A place in the queue, released when dropped.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    number: u64,
}

impl Turn<'_> {
    /// Whether the data set may be sent now.
    pub(super) fn has_come(&self) -> bool {
        let queue = self.turns.queue.lock();
        let mut first = queue.numbers.iter().take(MOST);
        first.any(|number| *number == self.number)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.turns.queue.lock();
        queue.numbers.retain(|number| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_set_that_cannot_be_read_is_begun_less_and_less_often() {
        let turns = Turns::default();
        assert!(!turns.are_paused());
        let length = || turns.pause.lock().map(|pause| pause.length.as_secs());
        let lengths = [2, 4, 8, 16, 32, 60, 60].map(|expected| {
            turns.note_read(false);
            assert!(turns.are_paused());
            (length(), Some(expected))
        });
        lengths
            .iter()
            .for_each(|(found, expected)| assert_eq!(found, expected));
        turns.note_read(true);
        assert!(!turns.are_paused());
        turns.note_read(false);
        assert_eq!(length(), Some(2));
    }

    #[test]
    fn turns_come_in_the_order_of_requests() {
        let turns = Turns::default();
        let mut all: VecDeque<Turn<'_>> = (0..2 * MOST).map(|_| turns.ask()).collect();
        let come = |all: &VecDeque<Turn<'_>>| all.iter().filter(|t| t.has_come()).count();
        assert_eq!(come(&all), MOST);
        assert!(all[0].has_come() && !all[MOST].has_come());
        // A feeder that stops waiting leaves the queue.
        all.remove(MOST);
        all.pop_front();
        assert_eq!(come(&all), MOST);
        assert!(all[MOST - 1].has_come() && !all[MOST].has_come());
        all.truncate(3);
        assert_eq!(come(&all), 3);
    }
}
