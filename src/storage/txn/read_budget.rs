//! How much a command may read on an IO thread, where other clients wait for it.

use crate::storage::{Result, StorageError, View};
use std::cell::Cell;

/// The budget on an IO thread: so many rows, or as many KiB. Reading them takes about a
/// millisecond.
const BUDGET: u64 = if cfg!(test) { 100 } else { 4096 };

/// Producing so many bytes takes as long as reading one.
const MADE_AS_FAST: usize = 2;

/// What a command may still read: rows, plus one for each KiB of them.
#[derive(Debug)]
pub(in crate::storage) struct ReadBudget(Cell<u64>);

impl Default for ReadBudget {
    fn default() -> Self {
        ReadBudget(Cell::new(u64::MAX))
    }
}

impl ReadBudget {
    /// Sets the budget for a command that begins, or no bound if it is not `limited`.
    pub fn renew(&self, limited: bool) {
        self.0.set(if limited { BUDGET } else { u64::MAX });
    }

    /// Counts a row of so many bytes.
    ///
    /// # Errors
    /// [`StorageError::ReadBudgetSpent`] if the budget is exceeded.
    pub fn spend(&self, bytes: usize) -> Result<()> {
        let price = 1 + (bytes >> 10) as u64;
        let left = self.0.get().checked_sub(price);
        self.0.set(left.ok_or(StorageError::ReadBudgetSpent)?);
        Ok(())
    }
}

/// How a command may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLimits {
    /// As it likes.
    None,
    /// Without waiting for the disk: see [`View::set_may_wait`].
    InMemory,
    /// So, too, and reading very many rows fails with [`StorageError::ReadBudgetSpent`].
    Budget,
}

impl View {
    /// Begins a command, or ends one with [`ReadLimits::None`].
    pub fn limit_reads(&self, limits: ReadLimits) {
        self.reads.budget.renew(limits == ReadLimits::Budget);
        self.set_may_wait(limits == ReadLimits::None);
    }

    /// Counts bytes that are produced without reading a row, such as the zeros of a sparse string.
    ///
    /// # Errors
    /// [`StorageError::ReadBudgetSpent`] if the budget is exceeded.
    pub fn will_make(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.reads.budget.spend(bytes / MADE_AS_FAST)
    }
}
