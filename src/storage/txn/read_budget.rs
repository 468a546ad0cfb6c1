//! How much a command may read on an IO thread, where other clients wait for it, and how a long
//! command elsewhere learns that it must end.
//!
//! Both count the same steps. A command on an IO thread fails when its budget is spent, and goes to
//! a worker. A command that has no budget asks its [`Watch`] every few thousand steps: so nothing
//! that is built of rows runs on for a client that is gone, or for a server that stops. Work that
//! needs no row, such as comparing what was read, counts with [`View::work`].

use crate::storage::{Result, StorageError, View};
use std::cell::Cell;

/// The budget on an IO thread: so many rows, or as many KiB. Reading them takes about a
/// millisecond.
const BUDGET: u64 = if cfg!(test) { 100 } else { 4096 };

/// Steps of a row that RocksDB looks up. One that is found in memory is [`IN_MEMORY`].
const ROW: u64 = 8;
/// Steps of a row of the row cache or of the pending batch.
const IN_MEMORY: u64 = 2;

/// So many bytes of text are parsed in a step.
const PARSED_IN_STEP: usize = 8;

/// Producing so many bytes takes as long as reading one.
const MADE_AS_FAST: usize = 2;

/// Items that are sorted at once.
const RUN: usize = 16 << 10;

/// Steps between two questions to the watch: a few milliseconds with all rows in memory, and a
/// second if each row is read from a slow disk.
const ASK_EVERY: u64 = if cfg!(test) { 50 } else { 2048 } * ROW;

/// Whether the command that runs must end, and how: with [`StorageError::Ended`], or with
/// [`StorageError::ReadBudgetSpent`] if it is to be run elsewhere.
pub type Watch = Box<dyn Fn() -> Result<()> + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Free,
    Limited,
    Watched,
}

/// What a command may still read: steps of rows, and of each KiB of them.
pub(in crate::storage) struct ReadBudget {
    left: Cell<u64>,
    mode: Cell<Mode>,
    watch: Option<Watch>,
}

impl Default for ReadBudget {
    fn default() -> Self {
        ReadBudget {
            left: Cell::new(u64::MAX),
            mode: Cell::new(Mode::Free),
            watch: None,
        }
    }
}

impl ReadBudget {
    fn begin(&self, mode: Mode) {
        self.mode.set(mode);
        self.left.set(match mode {
            Mode::Free => u64::MAX,
            Mode::Limited => BUDGET * ROW,
            Mode::Watched => ASK_EVERY,
        });
    }

    /// Whether there is a bound.
    pub(super) fn is_limited(&self) -> bool {
        self.mode.get() == Mode::Limited
    }

    /// Counts a row of so many bytes.
    ///
    /// # Errors
    /// [`StorageError::ReadBudgetSpent`] if the budget is exceeded, or what the watch says.
    #[inline]
    pub fn spend(&self, bytes: usize) -> Result<()> {
        self.step(ROW + ROW * (bytes >> 10) as u64)
    }

    /// Counts a row that was found in memory.
    ///
    /// # Errors
    /// As of [`ReadBudget::spend`].
    pub(super) fn spend_in_memory(&self) -> Result<()> {
        self.step(IN_MEMORY)
    }

    #[inline]
    fn step(&self, steps: u64) -> Result<()> {
        if let Some(left) = self.left.get().checked_sub(steps) {
            self.left.set(left);
            return Ok(());
        }
        self.ask()
    }

    #[cold]
    fn ask(&self) -> Result<()> {
        let mode = self.mode.get();
        match (mode, &self.watch) {
            (Mode::Limited, _) => return Err(StorageError::ReadBudgetSpent),
            (Mode::Watched, Some(watch)) => watch()?,
            _ => {}
        }
        self.begin(mode);
        Ok(())
    }
}

/// How a command may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLimits {
    /// As it likes.
    None,
    /// So, too, but it [fails](View::await_tables) rather than wait for tables.
    Apart,
    /// Without waiting for the disk: see [`View::set_may_wait`].
    InMemory,
    /// So, too, and reading very many rows fails with [`StorageError::ReadBudgetSpent`].
    Budget,
}

impl View {
    /// Begins a command, or ends one with [`ReadLimits::None`].
    pub fn limit_reads(&self, limits: ReadLimits) {
        self.reads.budget.begin(match limits {
            ReadLimits::Budget => Mode::Limited,
            ReadLimits::None | ReadLimits::Apart | ReadLimits::InMemory => Mode::Free,
        });
        self.set_may_wait(matches!(limits, ReadLimits::None | ReadLimits::Apart));
        self.set_waits_apart(limits == ReadLimits::Apart);
    }

    /// As [`View::limit_reads`], and a command without a budget asks the watch.
    pub fn limit_reads_and_watch(&self, limits: ReadLimits) {
        self.limit_reads(limits);
        let budget = &self.reads.budget;
        if budget.watch.is_some() && !budget.is_limited() {
            budget.begin(Mode::Watched);
        }
    }

    /// Counts bytes that are produced without reading a row, such as the zeros of a sparse string.
    ///
    /// # Errors
    /// [`StorageError::ReadBudgetSpent`] if the budget is exceeded, or [`StorageError::Ended`].
    pub fn will_make(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.reads.budget.spend(bytes / MADE_AS_FAST)
    }

    /// Counts work on what was read, in steps of about thirty nanoseconds, such as looking at one of
    /// the values inside of a row: few rows can hold many, and a command can come to each of them
    /// often.
    ///
    /// # Errors
    /// [`StorageError::ReadBudgetSpent`] if the budget is exceeded, or [`StorageError::Ended`].
    pub fn work(&self, steps: u64) -> Result<()> {
        self.reads.budget.step(steps)
    }

    /// Counts the bytes of arguments that are parsed.
    ///
    /// # Errors
    /// As of [`View::work`].
    pub fn will_parse(&self, args: &[&[u8]]) -> Result<()> {
        let bytes: usize = args.iter().map(|arg| arg.len()).sum();
        self.work((bytes / PARSED_IN_STEP) as u64)
    }

    /// Sorts what a command has read, and counts the work: in place of one call that could take
    /// seconds, runs that double in length are merged.
    ///
    /// # Errors
    /// As of [`View::work`]; the order is undefined then.
    pub fn sort_by<T>(
        &self,
        items: &mut [T],
        mut compare: impl FnMut(&T, &T) -> std::cmp::Ordering,
    ) -> Result<()> {
        let mut run = RUN;
        loop {
            for part in items.chunks_mut(run) {
                self.work(part.len() as u64)?;
                // The standard sort finds the two sorted halves of a part, and merges them.
                part.sort_by(&mut compare);
            }
            if run >= items.len() {
                return Ok(());
            }
            run *= 2;
        }
    }

    /// From now on commands without a budget ask this watch.
    pub fn watch_with(&mut self, watch: Watch) {
        self.reads.budget.watch = Some(watch);
    }
}
