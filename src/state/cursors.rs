//! Where SCAN iterations over keys stand.
//!
//! Keys stand in lexicographic order, but clients want numbers as cursors. So
//! the server keeps a bounded table of iterations, each with the keys at which
//! its last calls stopped; a cursor names an iteration and a call. What makes
//! SCAN's guarantee hold without any condition: a cursor that the table no
//! longer knows (too many iterations since, a restart) starts that iteration
//! over. A client may see keys twice then, as SCAN allows, but misses none.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// How many of its last positions an iteration keeps: a client that lost a
/// reply can ask with the same cursor again.
const POSITIONS: usize = 4;

/// Low bits of a cursor that count the calls of its iteration.
const CALL_BITS: u32 = 28;
/// Cursors stay below 2^53, so that clients which read them as doubles can.
const ITERATION_BITS: u32 = 25;

#[derive(Debug, Default)]
struct Iteration {
    /// Call number and the key where it stopped.
    positions: VecDeque<(u64, Vec<u8>)>,
    last_used: u64,
}

#[derive(Debug, Default)]
struct Table {
    iterations: BTreeMap<u64, Iteration>,
    /// Iterations by their last use, oldest first.
    by_use: BTreeMap<u64, u64>,
    clock: u64,
    next: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Cursors {
    table: Mutex<Table>,
}

impl Cursors {
    /// The key at which the call that returned `cursor` stopped: go on after it.
    /// `None` if that is not known: start over.
    pub fn position(&self, cursor: u64) -> Option<Vec<u8>> {
        let (iteration, call) = split(cursor);
        let table = self.table.lock();
        let positions = &table.iterations.get(&iteration)?.positions;
        let found = positions.iter().find(|(at, _)| *at == call);
        found.map(|(_, key)| key.clone())
    }

    /// A cursor for a call that came with `previous` (0: a new iteration) and
    /// stopped at `key`. Keeps at most `max` iterations.
    pub fn advance(&self, previous: u64, key: &[u8], max: usize) -> u64 {
        let mut table = self.table.lock();
        let table = &mut *table;
        let (mut iteration, mut call) = split(previous);
        if previous == 0 || !table.iterations.contains_key(&iteration) {
            iteration = table.next % (1 << ITERATION_BITS);
            table.next += 1;
            call = 0;
        }
        call = (call + 1) % (1 << CALL_BITS);
        table.clock += 1;
        let entry = table.iterations.entry(iteration).or_default();
        table.by_use.remove(&entry.last_used);
        entry.last_used = table.clock;
        table.by_use.insert(table.clock, iteration);
        entry.positions.retain(|(at, _)| *at != call);
        entry.positions.push_back((call, key.to_vec()));
        if entry.positions.len() > POSITIONS {
            entry.positions.pop_front();
        }
        while table.iterations.len() > max.max(1)
            && let Some((_, oldest)) = table.by_use.pop_first()
        {
            table.iterations.remove(&oldest);
        }
        // Never 0, which means "done": calls are counted from 1 and wrap to 0 only
        // where the iteration's number is in front.
        match join(iteration, call) {
            0 => join(iteration, 1),
            cursor => cursor,
        }
    }

    /// Forgets the iteration of a cursor whose walk is complete.
    pub fn finish(&self, cursor: u64) {
        let mut table = self.table.lock();
        let (iteration, _) = split(cursor);
        if let Some(done) = table.iterations.remove(&iteration) {
            table.by_use.remove(&done.last_used);
        }
    }
}

fn split(cursor: u64) -> (u64, u64) {
    (cursor >> CALL_BITS, cursor & ((1 << CALL_BITS) - 1))
}

fn join(iteration: u64, call: u64) -> u64 {
    iteration << CALL_BITS | call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_finds_its_position_until_it_is_forgotten() {
        let cursors = Cursors::default();
        let first = cursors.advance(0, b"a", 2);
        let second = cursors.advance(first, b"b", 2);
        assert_ne!(first, 0);
        assert_eq!(cursors.position(first).as_deref(), Some(&b"a"[..]));
        assert_eq!(cursors.position(second).as_deref(), Some(&b"b"[..]));
        cursors.advance(0, b"x", 2);
        cursors.advance(0, b"y", 2);
        assert_eq!(cursors.position(second), None);
        assert_eq!(cursors.position(12345), None);
    }

    #[test]
    fn cursors_fit_a_double() {
        let cursors = Cursors::default();
        assert!(cursors.advance(u64::MAX, b"k", 10) < 1 << 53);
    }
}
