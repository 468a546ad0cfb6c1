//! What the next requests of a connection need is fetched from memory while those
//! before them run.
//!
//! There are two steps for each key, and the second needs what the first one fetches
//! ([`Executor::expect`], [`Executor::prefetch_row`]): so each is made some requests
//! before its result is needed.

use crate::exec::Executor;
use crate::resp::glance;
use crate::storage::{DbIndex, Expected};

/// So many requests before its key is needed the first step is made.
const FIRST: usize = 8;
/// So many before, the second.
const SECOND: usize = 4;
/// Longer keys are not looked at.
const KEY_MAX: usize = 256;

/// The requests in one piece of input. See the module.
#[derive(Debug, Default)]
pub struct LookAhead {
    /// Where each one begins that was looked at last, and its row.
    seen: [(usize, Expected); FIRST],
    /// How many were looked at, made the second step for, and run.
    looked_at: usize,
    fetched: usize,
    run: usize,
    /// Where the next one begins.
    end: usize,
    /// There is no key in that one, or it is not here as a whole.
    is_odd: bool,
}

impl LookAhead {
    /// The request before `next` is about to run: looks at what comes then.
    #[inline]
    pub fn go_on(&mut self, executor: &Executor, db: DbIndex, input: &[u8], next: usize) {
        if next == input.len() {
            return;
        }
        if self.end <= next {
            self.end = next;
            self.is_odd = false;
        }
        while self.run < self.looked_at && self.seen[self.run % FIRST].0 < next {
            self.run += 1;
        }
        self.fetched = self.fetched.max(self.run);
        while self.fetched < self.looked_at.min(self.run + SECOND) {
            executor.prefetch_row(self.seen[self.fetched % FIRST].1);
            self.fetched += 1;
        }
        while !self.is_odd && self.looked_at < self.run + FIRST {
            let row = next_key(&input[self.end..]).and_then(|(key, len)| {
                let row = executor.expect(db, key);
                row.map(|row| (row, len))
            });
            match row {
                Some((row, len)) => {
                    self.seen[self.looked_at % FIRST] = (self.end, row);
                    self.looked_at += 1;
                    self.end += len;
                }
                None => self.is_odd = true,
            }
        }
    }
}

/// The second argument of the next request, if it may be a key, and the length of
/// the request.
pub fn next_key(input: &[u8]) -> Option<(&[u8], usize)> {
    glance(input).filter(|(key, _)| key.len() <= KEY_MAX)
}
