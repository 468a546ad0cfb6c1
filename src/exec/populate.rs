//! DEBUG POPULATE: any number of keys, made in slices that are committed one by
//! one, so that others have their turn between them. Where they are many the
//! client's request goes to a worker. In a transaction they are one batch with the rest.

use super::Executor;
use super::Stop;
use super::unit::Scope;
use crate::commands::debug::Population;
use crate::resp::Reply;
use crate::state::Session;
use std::ops::Range;
use std::time::Duration;

/// Keys of one slice.
const SLICE_KEYS: u64 = 1000;
/// Bytes of values from which on a slice ends.
const SLICE_BYTES: usize = 1 << 20;
/// How soon a worker tries again to get keys that others hold.
const RETRY: Duration = Duration::from_millis(1);

impl Executor {
    pub(super) fn populate(&mut self, session: &mut Session, args: &[&[u8]]) -> Result<(), Stop> {
        let population = Population::parse(&self.server, session, args)?;
        let all = 0..population.count;
        if self.in_unit() {
            population.check_batch()?;
            return self.populate_slice(session, &population, &mut all.clone(), usize::MAX);
        }
        if self.thread.slices && population.count > SLICE_KEYS {
            return Err(Stop::Slow);
        }
        let mut left = all;
        while !left.is_empty() {
            let end = left.end.min(left.start.saturating_add(SLICE_KEYS));
            let mut slice = left.start..end;
            match self.populate_slice(session, &population, &mut slice, SLICE_BYTES) {
                Err(Stop::Conflict)
                    if self.thread.worker.is_some() && !self.server.workers.are_stopping() =>
                {
                    std::thread::sleep(RETRY);
                }
                done => {
                    done?;
                    left.start = slice.start;
                }
            }
            self.commit_pending()?;
            // What waits to be flushed would grow with the slices.
            let durable = self.server.engine.make_durable();
            durable.map_err(|error| self.note_failure(error))?;
        }
        Ok(())
    }

    /// Makes keys until so many bytes are made, as a unit; takes their numbers off
    /// the slice.
    fn populate_slice(
        &mut self,
        session: &mut Session,
        population: &Population<'_>,
        slice: &mut Range<u64>,
        max_bytes: usize,
    ) -> Result<(), Stop> {
        let keys: Vec<Vec<u8>> = slice.clone().map(|n| population.key(n)).collect();
        let mut scope = Scope::default();
        for key in &keys {
            scope.key(session.db(), key);
        }
        self.begin_unit(&scope)?;
        let before = self.txn.savepoint();
        let (start, mut bytes) = (slice.start, 0);
        let mut reply = Reply::new(false);
        for (key, number) in keys.iter().zip(start..) {
            if bytes >= max_bytes {
                break;
            }
            let value = population.value(number);
            let set: [&[u8]; 4] = [b"SET", key, &value, b"NX"];
            let found = self.find_command(session, &set);
            let found = found.map_err(Stop::from);
            let done = found.and_then(|found| self.perform(session, found, &set, &mut reply));
            if let Err(stop) = done {
                slice.start = start;
                match stop {
                    Stop::Conflict | Stop::Slow => self.roll_back_unit()?,
                    Stop::Failed(_) | Stop::Told(_) => {
                        self.txn.rollback(&before);
                        self.end_unit()?;
                    }
                }
                return Err(stop);
            }
            reply.truncate(0);
            bytes += value.len();
            slice.start = number + 1;
        }
        Ok(self.end_unit()?)
    }
}
