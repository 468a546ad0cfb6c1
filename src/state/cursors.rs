//! Where SCAN iterations over keys stand.
//!
//! Keys stand in lexicographic order, but clients want numbers as cursors. So
//! the server keeps a bounded table of iterations, each with the places at which
//! its last calls stopped (a key, or any bytes between two keys); a cursor names
//! an iteration and a call. What makes SCAN's guarantee hold without any condition: a cursor that the table no
//! longer knows (too many iterations since, a restart) starts that iteration
//! over. A client may see keys twice then, as SCAN allows, but misses none.
//! Keys may be long, so the table is bounded in bytes as well: past the bound
//! the oldest iterations go, then older positions of the newest one. Its last
//! position stays whole, as without it the walk could not go on.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// How many of its last positions an iteration keeps: a client that lost a
/// reply can ask with the same cursor again.
const POSITIONS: usize = 4;

/// Bytes of keys that all positions may hold together, but for the last one.
const BYTES_MAX: usize = 16 << 20;

/// Low bits of a cursor that count the calls of its iteration.
const CALL_BITS: u32 = 28;
/// Cursors stay below 2^53, so that clients which read them as doubles can.
const ITERATION_BITS: u32 = 25;

#[derive(Debug, Default)]
struct Iteration {
    /// Call number and the place where it stopped.
    positions: VecDeque<(u64, Vec<u8>)>,
    last_used: u64,
}

impl Iteration {
    fn bytes(&self) -> usize {
        self.positions.iter().map(|(_, key)| key.len()).sum()
    }
}

#[derive(Debug, Default)]
struct Table {
    iterations: BTreeMap<u64, Iteration>,
    /// Iterations by their last use, oldest first.
    by_use: BTreeMap<u64, u64>,
    clock: u64,
    next: u64,
    /// Bytes of the keys of all positions.
    bytes: usize,
}

impl Table {
    fn remove(&mut self, iteration: u64) {
        if let Some(gone) = self.iterations.remove(&iteration) {
            self.by_use.remove(&gone.last_used);
            self.bytes -= gone.bytes();
        }
    }

    /// Forgets old iterations, then old positions of the one used last.
    fn evict(&mut self, max: usize) {
        while self.iterations.len() > max.max(1)
            || self.bytes > BYTES_MAX && self.iterations.len() > 1
        {
            let Some((_, &oldest)) = self.by_use.first_key_value() else {
                break;
            };
            self.remove(oldest);
        }
        if self.bytes > BYTES_MAX
            && let Some(last) = self.iterations.values_mut().next()
        {
            while self.bytes > BYTES_MAX && last.positions.len() > 1 {
                let gone = last.positions.pop_front();
                self.bytes -= gone.map_or(0, |(_, key)| key.len());
            }
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Cursors {
    table: Mutex<Table>,
}

impl Cursors {
    /// The place at which the call that returned `cursor` stopped: go on from it.
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
        table.bytes -= entry.bytes();
        entry.positions.retain(|(at, _)| *at != call);
        entry.positions.push_back((call, key.to_vec()));
        if entry.positions.len() > POSITIONS {
            entry.positions.pop_front();
        }
        table.bytes += entry.bytes();
        table.evict(max);
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
        table.remove(iteration);
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
    fn long_keys_push_out_what_is_older() {
        let cursors = Cursors::default();
        let held = || cursors.table.lock().bytes;
        let key = vec![b'k'; 1 << 20];
        let all: Vec<u64> = (0..40).map(|_| cursors.advance(0, &key, 100)).collect();
        assert_eq!(held(), BYTES_MAX);
        assert_eq!(cursors.position(all[23]), None);
        assert!(all[24..].iter().all(|c| cursors.position(*c).is_some()));
        let huge = vec![b'h'; BYTES_MAX + 1];
        let first = cursors.advance(all[39], &huge, 100);
        assert_eq!(held(), huge.len());
        assert_eq!(cursors.position(all[39]), None);
        let second = cursors.advance(first, &huge, 100);
        assert_eq!(cursors.position(first), None);
        assert_eq!(cursors.position(second), Some(huge));
        let third = cursors.advance(second, b"z", 100);
        assert_eq!(held(), 1);
        assert!(cursors.position(third).is_some());
        cursors.finish(third);
        assert_eq!(held(), 0);
        assert!(cursors.table.lock().by_use.is_empty());
    }

    #[test]
    fn cursors_fit_a_double() {
        let cursors = Cursors::default();
        assert!(cursors.advance(u64::MAX, b"k", 10) < 1 << 53);
    }
}
