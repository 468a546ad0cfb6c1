//! Reader threads: they read from the disk for commands that must not wait for it.

use super::Engine;
use super::cold_reads::{ColdRead, What};
use super::long_reads::LongReads;
use super::rows::Rows;
use super::waiting::pretend_slow;
use crate::storage::Direction;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Readers are woken until together they finish one read in so many microseconds: their number is the
/// usual time of a read divided by this. If reads pile up, more are woken. Each reader at work costs
/// context switches.
const READ_EVERY_US: u64 = 25;
/// The number of readers that are woken however short reads are.
const LEAST_AT_WORK: usize = 4;
/// The usual time of a read is an exponential moving average: the last read counts one part in so
/// many.
const WEIGHT: u64 = 16;
/// While so many reads wait for a reader, commands ask only for what they need first.
const QUEUE_FULL: usize = 16 * 1024;
/// A read of a range brings at least so many bytes into memory.
const RANGE_BYTES: usize = 64 << 10;
/// It brings at most so many bytes into memory.
const RANGE_MAX: usize = 8 << 20;
/// After the first, so many bytes are read at a time.
const RANGE_READAHEAD: usize = 1 << 20;

/// Brings the rows into memory. The command will meet any error again.
fn perform(read: &ColdRead, engine: &Engine) {
    let _held = engine.readers.long.begin(engine.memory_budget());
    pretend_slow();
    match &read.what {
        What::Row(key, cache_hash) => {
            let rows = &engine.memory.rows;
            let seen = cache_hash.map(|hash| (hash, rows.read(hash, key, |_| ())));
            if let Some((_, Ok(()))) = seen {
                return;
            }
            match (engine.db.get_pinned_cf(&read.keyspace.cf, key), seen) {
                (Ok(Some(value)), Some((hash, Err(seen)))) => {
                    rows.offer(hash, key, &value, seen);
                }
                (Ok(_), _) => {}
                (Err(error), _) => log::debug!("a row could not be read: {error}"),
            }
        }
        What::Value(at) => engine.values.fetch(at),
        What::Range(span, count) => {
            let readahead = match count {
                0 => RANGE_BYTES,
                _ => RANGE_READAHEAD,
            };
            let mut rows = Rows::open_ahead(engine, &read.keyspace, span, readahead);
            let (mut passed, mut bytes) = (0, 0);
            while (passed < *count || bytes < RANGE_BYTES)
                && bytes < RANGE_MAX
                && let Some((key, value)) = rows.item()
            {
                passed += 1;
                bytes += key.len() + value.len();
                match span.direction {
                    Direction::Forward => rows.next(),
                    Direction::Backward => rows.prev(),
                }
            }
        }
    }
}

/// Called once when all reads of a round are done.
type Done = Box<dyn FnOnce() + Send>;

/// The reads of one command.
struct Round {
    left: AtomicUsize,
    done: Mutex<Option<Done>>,
}

struct Queued {
    read: ColdRead,
    round: Arc<Round>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    /// Readers that wait for a read, and those at work.
    idle: usize,
    at_work: usize,
    /// The time that a read takes, on average.
    usual_us: u64,
    stopping: bool,
}

impl Queue {
    /// Whether another reader should begin to work.
    fn wants_reader(&self) -> bool {
        let enough = (self.usual_us / READ_EVERY_US) as usize;
        let waiting = self.waiting.len();
        self.idle > 0
            && waiting > 0
            && (self.at_work < enough.max(LEAST_AT_WORK) || waiting > 2 * self.at_work)
    }
}

/// The reads that wait for a reader thread.
#[derive(Default)]
pub(in crate::storage) struct Readers {
    queue: Mutex<Queue>,
    available: Condvar,
    /// Readers that serve the queue, or will.
    serving: AtomicUsize,
    /// Rounds that are under way.
    rounds: AtomicUsize,
    total_rounds: AtomicU64,
    total_reads: AtomicU64,
    total_us: AtomicU64,
    long: Arc<LongReads>,
}

/// Figures of the reads for commands that did not wait themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReaderFigures {
    /// Commands that wait for their reads now.
    pub parked: usize,
    /// How often a command has waited for reads.
    pub rounds: u64,
    /// The reads for them.
    pub reads: u64,
    /// How long commands have waited in all, in microseconds.
    pub us: u64,
}

impl Engine {
    /// Announces a thread that will [serve reads](Engine::serve_reads), before it is started: reads wait
    /// for it from now on.
    pub fn expect_reader(&self) {
        self.readers.serving.fetch_add(1, Ordering::AcqRel);
    }

    /// Serves cold reads on the calling thread, which was [announced](Engine::expect_reader), until
    /// [`Engine::stop_readers`].
    pub fn serve_reads(&self) {
        let readers = &self.readers;
        let mut took_us = None;
        while let Some(Queued { read, round }) = readers.next(took_us) {
            let began = Instant::now();
            perform(&read, self);
            took_us = Some(began.elapsed().as_micros() as u64);
            drop(read);
            if round.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                let done = round.done.lock().take();
                if let Some(done) = done {
                    done();
                }
            }
        }
        readers.serving.fetch_sub(1, Ordering::AcqRel);
    }

    /// Has the readers do these reads, and calls `done` when all are done, on one of their threads.
    /// Without readers the calling thread does them.
    pub fn read_cold(self: &Arc<Self>, reads: Vec<ColdRead>, done: impl FnOnce() + Send + 'static) {
        let (engine, began, count) = (Arc::downgrade(self), Instant::now(), reads.len());
        let readers = &self.readers;
        readers.rounds.fetch_add(1, Ordering::Relaxed);
        let done = move || {
            if let Some(engine) = engine.upgrade() {
                engine.readers.note_round(count, began);
            }
            done();
        };
        if reads.is_empty() || readers.serving.load(Ordering::Acquire) == 0 {
            reads.iter().for_each(|read| perform(read, self));
            return done();
        }
        let round = Arc::new(Round {
            left: AtomicUsize::new(count),
            done: Mutex::new(Some(Box::new(done))),
        });
        readers.push(reads, &round);
    }

    /// Has the readers do these reads and waits for them. The caller holds no lock of a key.
    pub fn wait_for_reads(self: &Arc<Self>, reads: Vec<ColdRead>) {
        if reads.is_empty() {
            return;
        }
        let (done, is_done) = crossbeam_channel::bounded(1);
        self.read_cold(reads, move || {
            let _ = done.send(());
        });
        // An error: the readers have stopped, and with them the need.
        let _ = is_done.recv();
    }

    /// Ends the readers. Reads that none of them has begun are given up: their commands are not run
    /// again.
    pub fn stop_readers(&self) {
        let mut queue = self.readers.queue.lock();
        queue.stopping = true;
        let given_up = std::mem::take(&mut queue.waiting);
        drop(queue);
        self.readers.available.notify_all();
        drop(given_up);
    }

    /// The figures of cold reads.
    pub fn reader_figures(&self) -> ReaderFigures {
        let readers = &self.readers;
        ReaderFigures {
            parked: readers.rounds.load(Ordering::Relaxed),
            rounds: readers.total_rounds.load(Ordering::Relaxed),
            reads: readers.total_reads.load(Ordering::Relaxed),
            us: readers.total_us.load(Ordering::Relaxed),
        }
    }
}

impl Readers {
    /// Whether so many reads wait that no further ones should be asked for in advance.
    pub(in crate::storage) fn are_busy(&self) -> bool {
        self.queue.lock().waiting.len() >= QUEUE_FULL
    }

    fn note_round(&self, reads: usize, began: Instant) {
        self.rounds.fetch_sub(1, Ordering::Relaxed);
        self.total_rounds.fetch_add(1, Ordering::Relaxed);
        self.total_reads.fetch_add(reads as u64, Ordering::Relaxed);
        let us = began.elapsed().as_micros() as u64;
        self.total_us.fetch_add(us, Ordering::Relaxed);
    }

    fn push(&self, reads: Vec<ColdRead>, round: &Arc<Round>) {
        let mut queue = self.queue.lock();
        if queue.stopping {
            return;
        }
        queue.waiting.extend(reads.into_iter().map(|read| Queued {
            read,
            round: round.clone(),
        }));
        let wakes = queue.wants_reader();
        drop(queue);
        // Each reader that begins wakes another, if more are wanted.
        if wakes {
            self.available.notify_one();
        }
    }

    /// The next read; waits for one. `took_us`: the time that the last one took, for a reader that
    /// was at work. `None`: the readers are stopped.
    fn next(&self, took_us: Option<u64>) -> Option<Queued> {
        let mut queue = self.queue.lock();
        if let Some(took_us) = took_us {
            queue.at_work -= 1;
            queue.usual_us = (queue.usual_us * (WEIGHT - 1) + took_us) / WEIGHT;
        }
        loop {
            if let Some(read) = queue.waiting.pop_front() {
                queue.at_work += 1;
                let wakes = queue.wants_reader();
                drop(queue);
                if wakes {
                    self.available.notify_one();
                }
                return Some(read);
            }
            if queue.stopping {
                return None;
            }
            queue.idle += 1;
            self.available.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::storage::{DbIndex, StorageConfig, Txn};
    use std::sync::atomic::AtomicBool;

    /// The first requests after a start came before the reader threads ran: IO threads made their
    /// reads themselves.
    #[test]
    fn reads_wait_for_readers_that_are_about_to_start() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().join("db"))).unwrap();
        let mut txn = Txn::new(engine.clone());
        txn.begin(UnixMs(1)).unwrap();
        txn.put_row(DbIndex(0), b"row", b"value").unwrap();
        txn.commit().unwrap();
        let read = || {
            let keyspace = engine.keyspace(DbIndex(0)).unwrap();
            let is_done = Arc::new(AtomicBool::new(false));
            let done = is_done.clone();
            engine.read_cold(vec![ColdRead::row(&keyspace, b"row", None)], move || {
                done.store(true, Ordering::Release);
            });
            is_done
        };
        assert!(read().load(Ordering::Acquire), "there are no readers");
        engine.expect_reader();
        let waits = read();
        assert!(!waits.load(Ordering::Acquire));
        std::thread::scope(|scope| {
            scope.spawn(|| engine.serve_reads());
            while !waits.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            engine.stop_readers();
        });
    }
}
