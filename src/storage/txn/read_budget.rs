//! How much a command may read on a thread that other clients wait for.

use crate::storage::{Result, StorageError, View};
use std::cell::Cell;

/// What who has to be brief may read: so many rows, or as many KiB. That takes about
/// a millisecond.
const BRIEF: u64 = if cfg!(test) { 100 } else { 4096 };

/// So many bytes are made in the time in which one is read.
const MADE_AS_FAST: usize = 2;

/// What a command may still read. See the module.
#[derive(Debug)]
pub(in crate::storage) struct ReadBudget(Cell<u64>);

impl Default for ReadBudget {
    fn default() -> Self {
        ReadBudget(Cell::new(u64::MAX))
    }
}

impl ReadBudget {
    /// For a command that begins: a little if it has to be `brief`, or without an end.
    pub fn renew(&self, brief: bool) {
        self.0.set(if brief { BRIEF } else { u64::MAX });
    }

    /// A row of so many bytes is read.
    ///
    /// # Errors
    /// [`StorageError::ReadBudgetSpent`].
    pub fn spend(&self, bytes: usize) -> Result<()> {
        let price = 1 + (bytes >> 10) as u64;
        let left = self.0.get().checked_sub(price);
        self.0.set(left.ok_or(StorageError::ReadBudgetSpent)?);
        Ok(())
    }
}

impl View {
    /// A command begins: what would read very many rows fails with
    /// [`StorageError::ReadBudgetSpent`] if it has to be `brief`.
    pub fn limit_reads(&self, brief: bool) {
        self.reads.budget.renew(brief);
    }

    /// So many bytes will be made that no row has, the zeros of a sparse string for one.
    ///
    /// # Errors
    /// [`StorageError::ReadBudgetSpent`].
    pub fn will_make(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.reads.budget.spend(bytes / MADE_AS_FAST)
    }
}
