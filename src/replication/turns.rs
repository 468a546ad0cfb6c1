//! Limits how many feeders send a data set at once.
//!
//! Sending a data set takes memory, a snapshot and processor time. A bounded number of
//! them are sent at once, in the order of requests.

use parking_lot::Mutex;
use std::collections::VecDeque;

/// Most data sets sent at once.
pub(super) const MOST: usize = 16;

/// The feeders that send a data set, then those that wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: Mutex<Queue>,
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
