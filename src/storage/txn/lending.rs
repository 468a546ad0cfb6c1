//! Accounting of the memory for what a turn writes, and for the long rows that its commands copy.
//!
//! Memory for the contents of a request is borrowed before the request runs. How much a command
//! makes of stored data (COPY, LMOVE, SUNIONSTORE) is only known while it reads: whatever exceeds
//! [`FREE_BYTES`] is borrowed before it is copied, and is returned with the commit. A command for
//! which there is no memory fails, and is rolled back.

use super::{Txn, View};
use crate::resp::Lender;
use crate::storage::{Result, StorageError};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// Bytes that a turn may take without borrowing.
const FREE_BYTES: usize = 8 << 20;
/// The step in which memory is borrowed if so much is free, in bytes.
const STEP_BYTES: usize = 1 << 20;
/// Rows below this size, in bytes, are not counted when they are read.
const LONG_ROW: usize = 64 << 10;
/// Pending rows are copied to a batch, and from there to memtables, when the originals are freed.
const COPIES: usize = 2;

/// What a turn may take, and what it has taken, in bytes.
pub(super) struct Lending {
    lender: Option<Arc<dyn Lender>>,
    /// The bytes that may be taken without borrowing more.
    allowed: Cell<usize>,
    /// Parts of that: what the turn has borrowed, and what was lent to the request before.
    borrowed: Cell<usize>,
    request: Cell<usize>,
    /// Below so many pending bytes no check is needed.
    unchecked: Cell<usize>,
    /// Stored data that the command holds: the long rows that it has read, unless it only removes
    /// data.
    read: Cell<usize>,
    counts_reads: Cell<bool>,
    /// Whether the next long row is not counted.
    skips_one: Cell<bool>,
}

impl Default for Lending {
    fn default() -> Self {
        Lending {
            lender: None,
            allowed: Cell::new(usize::MAX),
            borrowed: Cell::new(0),
            request: Cell::new(0),
            unchecked: Cell::new(usize::MAX),
            read: Cell::new(0),
            counts_reads: Cell::new(false),
            skips_one: Cell::new(false),
        }
    }
}

impl fmt::Debug for Lending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let borrowed = self.borrowed.get();
        f.debug_struct("Lending")
            .field("borrowed", &borrowed)
            .finish()
    }
}

impl Lending {
    /// Counts a row of so many bytes that is read while `pending` bytes are pending.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`] if not enough can be borrowed.
    #[inline]
    pub(super) fn note_read(&self, bytes: usize, pending: usize) -> Result<()> {
        if bytes < LONG_ROW || !self.counts_reads.get() {
            return Ok(());
        }
        self.note_long(bytes, pending)
    }

    #[cold]
    fn note_long(&self, bytes: usize, pending: usize) -> Result<()> {
        match self.skips_one.take() {
            true => Ok(()),
            false => self.hold(bytes, pending),
        }
    }

    fn hold(&self, bytes: usize, pending: usize) -> Result<()> {
        self.read.set(self.read.get().saturating_add(bytes));
        self.borrow(pending)
    }

    /// Resets the counts of the command.
    pub(super) fn start_command(&self) {
        self.read.set(0);
        self.counts_reads.set(false);
    }

    /// Ends the turn, whose rows are not in memory any more, and returns what it borrowed.
    pub(super) fn end_turn(&self) {
        let Some(lender) = &self.lender else {
            return;
        };
        if self.borrowed.get() > 0 {
            lender.take_back(self.borrowed.take());
        }
        self.allowed.set(FREE_BYTES + self.request.get());
        self.unchecked.set(FREE_BYTES / COPIES);
    }

    /// Borrows what is missing for so many pending bytes.
    #[cold]
    fn borrow(&self, pending: usize) -> Result<()> {
        let Some(lender) = &self.lender else {
            self.unchecked.set(usize::MAX);
            return Ok(());
        };
        let taken = pending
            .saturating_mul(COPIES)
            .saturating_add(self.read.get());
        if let Some(lack) = taken
            .checked_sub(self.allowed.get())
            .filter(|lack| *lack > 0)
        {
            let lent = lender.lend(lack, lack.max(STEP_BYTES));
            let lent = lent.ok_or(StorageError::NoMemory)?;
            self.borrowed.set(self.borrowed.get() + lent);
            self.allowed.set(self.allowed.get() + lent);
        }
        let left = self.allowed.get().saturating_sub(taken);
        self.unchecked.set(pending + left / COPIES);
        Ok(())
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.end_turn();
    }
}

impl View {
    /// Begins a command that only reads. Its reads count only after [`View::count_reads`].
    pub fn start_reading(&self) {
        self.lending.start_command();
    }

    /// Notes that the command is about to hold so many more bytes of stored data.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`] if not enough can be borrowed.
    pub fn will_hold(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.lending.hold(bytes, self.batch.overlay.bytes())
    }

    /// Counts the long rows that the command reads, because it may write or return them.
    pub fn count_reads(&self) {
        self.lending.counts_reads.set(true);
        self.lending.skips_one.set(false);
    }

    /// Like [`View::count_reads`], for a command that removes what it returns. One long row does
    /// not count: the reply borrows memory for it, and every row that could be written can be
    /// removed again.
    pub fn count_reads_but_one(&self) {
        self.count_reads();
        self.lending.skips_one.set(true);
    }

    /// Bytes that wait for the commit.
    pub fn pending_bytes(&self) -> usize {
        self.batch.overlay.bytes() + self.batch.log.len()
    }

    /// Borrows memory, if needed, for a row of so many bytes that is about to be written.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`] if not enough can be borrowed.
    #[inline]
    pub(super) fn borrow_for_row(&self, bytes: usize) -> Result<()> {
        let pending = self.batch.overlay.bytes() + bytes;
        match pending > self.lending.unchecked.get() {
            true => self.lending.borrow(pending + self.batch.log.len()),
            false => Ok(()),
        }
    }
}

impl Txn {
    /// Borrows memory, if needed, for the deletion of a row. That is always possible unless the
    /// command holds several long rows: then it may return fewer.
    #[inline]
    pub(super) fn borrow_for_deletion(&self, key: &[u8]) -> Result<()> {
        match key.len() >= LONG_ROW && self.lending.read.get() > 0 {
            true => self.borrow_for_row(key.len()),
            false => Ok(()),
        }
    }

    /// Sets the lender from which commands borrow memory.
    pub fn borrow_from(&mut self, lender: Arc<dyn Lender>) {
        self.lending.lender = Some(lender);
        self.lending.end_turn();
    }

    /// Begins a request for whose contents `lent` bytes were borrowed already, all copies included.
    pub fn begin_request(&mut self, lent: usize) {
        let lending = &self.lending;
        if lending.request.replace(lent) == 0 && lent == 0 {
            return;
        }
        match self.batch.overlay.is_empty() {
            true => lending.end_turn(),
            false => {
                lending
                    .allowed
                    .set(lending.allowed.get().saturating_add(lent));
                lending.unchecked.set(0);
            }
        }
    }

    /// Notes that the command has freed what it has read until now.
    pub fn forget_reads(&self) {
        self.lending.read.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixMs;
    use crate::storage::{DbIndex, Engine, StorageConfig};
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct TestLender {
        left: AtomicUsize,
    }

    impl Lender for TestLender {
        fn lend(&self, least: usize, most: usize) -> Option<usize> {
            let left = self.left.load(Ordering::Relaxed);
            let lent = [most, least].into_iter().find(|bytes| *bytes <= left)?;
            self.left.store(left - lent, Ordering::Relaxed);
            Some(lent)
        }

        fn take_back(&self, bytes: usize) {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn memory_is_borrowed_before_a_turn_writes() {
        const ALL: usize = 8 << 20;
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let lender = Arc::new(TestLender {
            left: AtomicUsize::new(ALL),
        });
        let left = || lender.left.load(Ordering::Relaxed);
        let mut txn = Txn::new(engine);
        txn.borrow_from(lender.clone());
        let row = vec![7; 1 << 20];
        // The memory that was borrowed is available again after the commit.
        for lent in [0, 0, 6 << 20] {
            txn.begin(UnixMs(1)).unwrap();
            txn.begin_request(lent);
            let before = txn.savepoint();
            let fit = (0u8..).take_while(|n| txn.put_row(DbIndex(0), &[9, *n], &row).is_ok());
            let bytes = fit.count() << 20;
            let most = (FREE_BYTES + ALL + lent) / COPIES;
            assert!(
                bytes <= most && bytes + (1 << 20) >= most - (1 << 20),
                "{bytes} of {most}"
            );
            assert!(left() < ALL);
            txn.rollback(&before);
            // A deletion borrows nothing.
            txn.delete_row(DbIndex(0), &row).unwrap();
            txn.commit().unwrap();
            assert_eq!(left(), ALL);
        }
        // Rows that are read count for a command that copies them.
        txn.begin(UnixMs(1)).unwrap();
        txn.begin_request(0);
        txn.start_command();
        txn.count_reads();
        let read = txn.lending.note_read(FREE_BYTES + ALL + 1, 0);
        assert!(matches!(read, Err(StorageError::NoMemory)));
        txn.start_command();
        txn.put_row(DbIndex(0), b"\x09", b"short").unwrap();
        txn.commit().unwrap();
        assert_eq!(left(), ALL);
    }
}
