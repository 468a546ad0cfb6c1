//! Memory for what a turn writes, and for the long rows that its commands copy.
//!
//! What a request itself writes is lent for before it runs. How much it makes of what is
//! stored (COPY, LMOVE, SUNIONSTORE) is only known as it reads: whatever goes beyond
//! [`FREE_BYTES`] is borrowed before it is copied, and is given back with the commit. A
//! command for which there is no memory fails, and is taken back.

use super::{Txn, View};
use crate::resp::Lender;
use crate::storage::{Result, StorageError};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// What a turn takes without asking, in bytes.
const FREE_BYTES: usize = 8 << 20;
/// At least so much is borrowed at a time if there is so much.
const STEP_BYTES: usize = 1 << 20;
/// Shorter rows are not counted when they are read.
const LONG_ROW: usize = 64 << 10;
/// What is pending is copied to a batch, and that to memtables. By then it is gone itself.
const COPIES: usize = 2;

/// What a turn may take, and what it has taken, in bytes.
pub(super) struct Lending {
    lender: Option<Arc<dyn Lender>>,
    /// What may be taken without asking for more.
    may: Cell<usize>,
    /// Of that: what was borrowed, and what the request has been lent otherwise.
    borrowed: Cell<usize>,
    request: Cell<usize>,
    /// Up to so many bytes pending it need not be counted what is taken.
    unasked: Cell<usize>,
    /// What the command holds of stored data: the long rows that it has read, unless it
    /// only removes data.
    read: Cell<usize>,
    counts_reads: Cell<bool>,
    /// Whether the next long row that is read does not count.
    spares_one: Cell<bool>,
}

impl Default for Lending {
    fn default() -> Self {
        Lending {
            lender: None,
            may: Cell::new(usize::MAX),
            borrowed: Cell::new(0),
            request: Cell::new(0),
            unasked: Cell::new(usize::MAX),
            read: Cell::new(0),
            counts_reads: Cell::new(false),
            spares_one: Cell::new(false),
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
    /// A row of so many bytes is read, beside so many that are pending.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`].
    #[inline]
    pub(super) fn note_read(&self, bytes: usize, pending: usize) -> Result<()> {
        if bytes < LONG_ROW || !self.counts_reads.get() {
            return Ok(());
        }
        self.note_long(bytes, pending)
    }

    #[cold]
    fn note_long(&self, bytes: usize, pending: usize) -> Result<()> {
        match self.spares_one.take() {
            true => Ok(()),
            false => self.hold(bytes, pending),
        }
    }

    fn hold(&self, bytes: usize, pending: usize) -> Result<()> {
        self.read.set(self.read.get().saturating_add(bytes));
        self.ask(pending)
    }

    /// A command begins.
    pub(super) fn start_command(&self) {
        self.read.set(0);
        self.counts_reads.set(false);
    }

    /// The turn is over: nothing of it is in memory any more.
    pub(super) fn end_turn(&self) {
        let Some(lender) = &self.lender else {
            return;
        };
        if self.borrowed.get() > 0 {
            lender.take_back(self.borrowed.take());
        }
        self.may.set(FREE_BYTES + self.request.get());
        self.unasked.set(FREE_BYTES / COPIES);
    }

    /// There will be so many bytes pending.
    #[cold]
    fn ask(&self, pending: usize) -> Result<()> {
        let Some(lender) = &self.lender else {
            self.unasked.set(usize::MAX);
            return Ok(());
        };
        let taken = pending
            .saturating_mul(COPIES)
            .saturating_add(self.read.get());
        if let Some(lack) = taken.checked_sub(self.may.get()).filter(|lack| *lack > 0) {
            let lent = lender.lend(lack, lack.max(STEP_BYTES));
            let lent = lent.ok_or(StorageError::NoMemory)?;
            self.borrowed.set(self.borrowed.get() + lent);
            self.may.set(self.may.get() + lent);
        }
        let left = self.may.get().saturating_sub(taken);
        self.unasked.set(pending + left / COPIES);
        Ok(())
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.end_turn();
    }
}

impl View {
    /// A command begins that only reads, and whose reads do not count unless it says so.
    pub fn start_reading(&self) {
        self.lending.start_command();
    }

    /// The command is about to hold so many bytes more of what is stored.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`].
    pub fn will_hold(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.lending.hold(bytes, self.batch.overlay.bytes())
    }

    /// Has the long rows count that the command reads: it may write or return them.
    pub fn count_reads(&self) {
        self.lending.counts_reads.set(true);
        self.lending.spares_one.set(false);
    }

    /// As [`View::count_reads`], for a command that removes what it returns. One long row does not count:
    /// it stands in the reply, which asks for memory itself, and each that was written can
    /// be taken out again.
    pub fn count_reads_but_one(&self) {
        self.count_reads();
        self.lending.spares_one.set(true);
    }

    /// Bytes that wait for a commit.
    pub fn pending_bytes(&self) -> usize {
        self.batch.overlay.bytes() + self.batch.log.len()
    }

    /// A row of so many bytes is about to be written.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`].
    #[inline]
    pub(super) fn borrow_for_row(&self, bytes: usize) -> Result<()> {
        let pending = self.batch.overlay.bytes() + bytes;
        match pending > self.lending.unasked.get() {
            true => self.lending.ask(pending + self.batch.log.len()),
            false => Ok(()),
        }
    }
}

impl Txn {
    /// The row of this key is about to be deleted, which is always possible unless the
    /// command makes more of several long rows: it may return fewer.
    #[inline]
    pub(super) fn borrow_for_deletion(&self, key: &[u8]) -> Result<()> {
        match key.len() >= LONG_ROW && self.lending.read.get() > 0 {
            true => self.borrow_for_row(key.len()),
            false => Ok(()),
        }
    }

    /// From now on what commands make of stored data is borrowed from `lender`.
    pub fn borrow_from(&mut self, lender: Arc<dyn Lender>) {
        self.lending.lender = Some(lender);
        self.lending.end_turn();
    }

    /// A request comes for whose writes so many bytes were lent already, as often as they
    /// are copied.
    pub fn begin_request(&mut self, lent: usize) {
        let lending = &self.lending;
        if lending.request.replace(lent) == 0 && lent == 0 {
            return;
        }
        match self.batch.overlay.is_empty() {
            true => lending.end_turn(),
            false => {
                lending.may.set(lending.may.get().saturating_add(lent));
                lending.unasked.set(0);
            }
        }
    }

    /// The command has nothing any more of what it has read until now.
    pub fn forget_reads(&self) {
        self.lending.read.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{DbIndex, Engine, StorageConfig};
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Purse {
        left: AtomicUsize,
    }

    impl Lender for Purse {
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
    fn what_a_turn_writes_is_borrowed_before_it_stands_there() {
        const ALL: usize = 8 << 20;
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let purse = Arc::new(Purse {
            left: AtomicUsize::new(ALL),
        });
        let left = || purse.left.load(Ordering::Relaxed);
        let mut txn = Txn::new(engine);
        txn.borrow_from(purse.clone());
        let row = vec![7; 1 << 20];
        // Twice: what was lent is there again after the commit.
        for lent in [0, 0, 6 << 20] {
            txn.begin(1).unwrap();
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
            // A deletion asks for nothing.
            txn.delete_row(DbIndex(0), &row).unwrap();
            txn.commit().unwrap();
            assert_eq!(left(), ALL);
        }
        // Rows that are read count for a command that makes more of them.
        txn.begin(1).unwrap();
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
