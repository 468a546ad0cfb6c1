//! DEBUG POPULATE: creates any number of keys, in slices that are committed one by one, so that
//! other requests run in between. For many keys the request goes to a worker. In a transaction
//! all keys are part of its batch.

use super::Executor;
use super::Stop;
use super::unit::Scope;
use crate::commands::debug::Population;
use crate::resp::Reply;
use crate::state::Session;
use std::ops::Range;
use std::time::Duration;

/// Keys per slice.
const SLICE_KEYS: u64 = 1000;
/// A slice ends when its values have this many bytes.
const SLICE_BYTES: usize = 1 << 20;
/// How soon a worker tries again to lock keys that other threads hold.
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
            // Otherwise the data to be synced would grow with every slice.
            let durable = self.server.engine.make_durable();
            durable.map_err(|error| self.note_failure(error))?;
        }
        Ok(())
    }

    /// Creates keys as a unit, until `max_bytes` of values are written. Removes the numbers of
    /// the created keys from `slice`.
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
                    Stop::Conflict | Stop::Slow | Stop::Cold => self.roll_back_unit()?,
                    Stop::Failed(_) | Stop::Counted(_) => {
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
