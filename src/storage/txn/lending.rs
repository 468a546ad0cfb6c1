//! Accounting of the memory for what a turn writes, and for the long rows that its commands copy.
//!
//! Keys of rows may be long, too: those of members, fields and names. RocksDB copies the longest key
//! of a table several times while it writes the table, which it does later: so much stays reserved
//! until then ([`crate::storage::Engine::reserve_for_tables`]).
//!
//! Memory for the contents of a request is borrowed before the request runs. How much a command
//! makes of stored data (COPY, LMOVE, SUNIONSTORE) is only known while it reads: whatever exceeds
//! [`FREE_BYTES`] is borrowed before it is copied, and is returned with the commit. A command for
//! which there is no memory fails, and is rolled back.

use super::{Txn, View};
use crate::encoding::tag;
use crate::resp::Lender;
use crate::storage::engine::files::{KEY_COPIES, META_KEY_COPIES};
use crate::storage::{Result, StorageError};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// Bytes that a turn may take without borrowing.
const FREE_BYTES: usize = 8 << 20;
/// The step in which memory is borrowed if so much is free, in bytes.
const STEP_BYTES: usize = 1 << 20;
/// Rows below this size, in bytes, are not counted when they are read.
pub(super) const LONG_ROW: usize = 64 << 10;
/// Shorter keys of rows, in bytes, are copied without being counted.
const LONG_KEY: usize = 1 << 20;
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
    /// The memory for tables with the longest key that the turn writes; 0 if all are short.
    for_tables: Cell<usize>,
    /// So much of that was left when it was last looked at.
    left_for_tables: Cell<usize>,
    /// The same of the rows that it deletes, for which nothing is borrowed.
    for_deleted: Cell<usize>,
    /// Stored data that the command holds: the long rows that it has read, unless it only removes
    /// data.
    read: Cell<usize>,
    counts_reads: Cell<bool>,
    /// How many of the next long rows are not counted.
    skips: Cell<u32>,
    /// An effect of the command was not logged for want of memory.
    lacks: Cell<bool>,
    /// Whether the command fails rather than wait for tables with its keys locked.
    waits_apart: Cell<bool>,
    /// The memory for a table that it lacked then.
    lacked: Cell<Option<usize>>,
}

impl Default for Lending {
    fn default() -> Self {
        Lending {
            lender: None,
            allowed: Cell::new(usize::MAX),
            borrowed: Cell::new(0),
            request: Cell::new(0),
            unchecked: Cell::new(usize::MAX),
            for_tables: Cell::new(0),
            left_for_tables: Cell::new(0),
            for_deleted: Cell::new(0),
            read: Cell::new(0),
            counts_reads: Cell::new(false),
            skips: Cell::new(0),
            lacks: Cell::new(false),
            waits_apart: Cell::new(false),
            lacked: Cell::new(None),
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
        match self.skips.get().checked_sub(1) {
            Some(left) => {
                self.skips.set(left);
                Ok(())
            }
            None => self.hold(bytes, pending),
        }
    }

    pub(super) fn hold(&self, bytes: usize, pending: usize) -> Result<()> {
        self.read.set(self.read.get().saturating_add(bytes));
        self.borrow(pending)
    }

    /// Resets the counts of the command.
    pub(super) fn start_command(&self) {
        self.read.set(0);
        self.counts_reads.set(false);
        self.lacks.set(false);
    }

    /// Ends the turn, whose rows are not in memory any more, and returns what it borrowed.
    pub(super) fn end_turn(&self) {
        let Some(lender) = &self.lender else {
            return;
        };
        if self.borrowed.get() > 0 {
            lender.take_back(self.borrowed.take());
        }
        self.for_tables.set(0);
        self.left_for_tables.set(0);
        self.for_deleted.set(0);
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
        // Tables are written when the copies besides the memtables are freed.
        let later = pending.saturating_add(self.for_tables.get());
        let taken = taken.max(later);
        let for_tables = self.for_tables.get();
        if for_tables > self.left_for_tables.get() {
            // Tables keep their first and last keys in memory, for which nothing was lent.
            if !lender.is_left(for_tables) {
                return Err(StorageError::NoMemory);
            }
            self.left_for_tables.set(for_tables);
        }
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

/// The memory that a table with a row under this key takes while it is written.
fn for_tables(key: &[u8]) -> usize {
    let copies = match key.first() {
        Some(&tag::META) => META_KEY_COPIES,
        _ => KEY_COPIES,
    };
    key.len().saturating_mul(copies)
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
        self.lending.hold(bytes, self.pending_bytes())
    }

    /// Notes that the command is about to hold a row of so many bytes that is written.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`] if not enough can be borrowed.
    pub(super) fn hold_row(&self, key: &[u8], bytes: usize) -> Result<()> {
        if key.len() >= LONG_KEY {
            self.note_long_key(key);
            // The rows before it may be in tables by now.
            self.lending.left_for_tables.set(0);
        }
        self.lending.hold(bytes, self.pending_bytes())
    }

    /// Makes sure that memory is left for the table with this key, and that memtables have room. If
    /// not, the command fails as one does that reads too much or what is not in memory: its keys are
    /// unlocked before a thread that may [waits for tables](View::wait_for_lacked_tables), and then it
    /// runs again. If that has happened already, and keeps no IO thread waiting, waits here.
    ///
    /// # Errors
    /// [`StorageError::ReadBudgetSpent`] or [`StorageError::NotInMemory`], see above.
    pub(super) fn await_tables(&self, key: &[u8]) -> Result<()> {
        let bytes = for_tables(key);
        if !self.engine.are_memtables_behind() && self.is_left_for_tables(bytes) {
            return Ok(());
        }
        let apart = self.lending.waits_apart.get() || self.cold.never_waits();
        if !apart && self.may_wait() {
            return self.wait_for_tables(bytes);
        }
        self.lending.lacked.set(Some(bytes));
        Err(match apart {
            true => StorageError::ReadBudgetSpent,
            false => StorageError::NotInMemory,
        })
    }

    fn is_left_for_tables(&self, bytes: usize) -> bool {
        let lender = self.lending.lender.as_ref();
        lender.is_none_or(|lender| lender.is_left(bytes))
    }

    fn wait_for_tables(&self, bytes: usize) -> Result<()> {
        self.engine
            .wait_for_tables(|| self.is_left_for_tables(bytes))
    }

    /// Whether the next command rather fails than wait for tables with its keys locked.
    pub(super) fn set_waits_apart(&self, apart: bool) {
        self.lending.waits_apart.set(apart);
    }

    /// Whether a command has failed since the last call because tables lagged behind.
    pub fn lacked_tables(&self) -> bool {
        self.lending.lacked.get().is_some()
    }

    /// Waits, for some seconds at the most, for the tables that a command lacked, if one did. No keys
    /// are locked.
    ///
    /// # Errors
    /// No table can be begun.
    pub fn wait_for_lacked_tables(&self) -> Result<()> {
        debug_assert!(self.holds_nothing());
        let lacked = self.lending.lacked.take();
        lacked.map_or(Ok(()), |bytes| self.wait_for_tables(bytes))
    }

    /// Notes that the command will hold one long row less than it reads.
    pub fn passes_a_row(&self) {
        self.lending.skips.set(self.lending.skips.get() + 1);
    }

    /// Notes that the command has freed so many bytes of what it has read.
    pub fn released(&self, bytes: usize) {
        if bytes >= LONG_ROW {
            let read = &self.lending.read;
            read.set(read.get().saturating_sub(bytes));
        }
    }

    /// Counts the long rows that the command reads, because it may write or return them.
    pub fn count_reads(&self) {
        self.lending.counts_reads.set(true);
        self.lending.skips.set(0);
    }

    /// Like [`View::count_reads`], for a command that removes what it returns. One long row does
    /// not count: the reply borrows memory for it, and every row that could be written can be
    /// removed again.
    pub fn count_reads_but_one(&self) {
        self.count_reads();
        self.lending.skips.set(1);
    }

    /// Bytes that wait for the commit.
    pub fn pending_bytes(&self) -> usize {
        self.batch.overlay.bytes() + self.batch.log.len()
    }

    /// Borrows memory, if needed, for a row that is about to be written, with a value of so many
    /// bytes.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`] if not enough can be borrowed.
    #[inline]
    pub(super) fn borrow_for_row(&self, key: &[u8], value: usize) -> Result<()> {
        if key.len() >= LONG_KEY {
            self.note_long_key(key);
        }
        self.borrow_for(key.len() + value)
    }

    #[cold]
    fn note_long_key(&self, key: &[u8]) {
        let (lending, bytes) = (&self.lending, for_tables(key));
        if lending.lender.is_some() && bytes > lending.for_tables.get() {
            lending.for_tables.set(bytes);
            lending.unchecked.set(0);
        }
    }

    /// The memory that the longest key of the turn's rows will take when their table is written; 0 if
    /// all are short.
    pub(super) fn for_tables(&self) -> usize {
        let lending = &self.lending;
        lending.for_tables.get().max(lending.for_deleted.get())
    }

    /// Borrows memory, if needed, for so many bytes that will wait for the commit.
    #[inline]
    fn borrow_for(&self, bytes: usize) -> Result<()> {
        let pending = self.pending_bytes() + bytes;
        match pending > self.lending.unchecked.get() {
            true => self.lending.borrow(pending),
            false => Ok(()),
        }
    }
}

impl Txn {
    /// Borrows memory, if needed, for the deletion of a row. That is always possible unless the
    /// command holds several long rows: then it may return fewer.
    #[inline]
    pub(super) fn borrow_for_deletion(&self, key: &[u8]) -> Result<()> {
        if key.len() >= LONG_KEY {
            let longest = &self.lending.for_deleted;
            longest.set(longest.get().max(for_tables(key)));
        }
        match key.len() >= LONG_ROW && self.lending.read.get() > 0 {
            true => self.borrow_for_row(key, 0),
            false => Ok(()),
        }
    }

    /// Borrows memory, if needed, for an effect that is about to be logged. `false`: there is none,
    /// and the command must fail.
    #[inline]
    pub(super) fn lends_for_effect<A: AsRef<[u8]>>(&self, args: &[A]) -> bool {
        let bytes = args.iter().map(|arg| arg.as_ref().len()).sum();
        let lends = self.borrow_for(bytes).is_ok();
        self.lending.lacks.set(self.lending.lacks.get() || !lends);
        lends
    }

    /// Whether the effects of the command are logged, or will be with the command itself.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`] if there was no memory for one of them: the command must be
    /// rolled back.
    pub fn check_effects(&self) -> Result<()> {
        match self.lending.lacks.get() {
            true => Err(StorageError::NoMemory),
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
    use crate::encoding::{ValueType, keys};
    use crate::storage::txn::ReadLimits;
    use crate::storage::{DbIndex, Engine, StorageConfig};
    use crate::sys::testing::wait_for;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[derive(Default)]
    struct TestLender {
        left: AtomicUsize,
        /// Whether no memory is left for tables, and how often that was asked for.
        lacks_tables: AtomicBool,
        asked: AtomicUsize,
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

        fn is_left(&self, _: usize) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            !self.lacks_tables.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn memory_is_borrowed_before_a_turn_writes() {
        const ALL: usize = 8 << 20;
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let lender = Arc::new(TestLender {
            left: AtomicUsize::new(ALL),
            ..TestLender::default()
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

    /// Writes a long member ahead, with a key locked, as COPY does.
    fn write_long(txn: &mut Txn) -> Result<()> {
        txn.begin(UnixMs(1))?;
        let hash = txn.key_hash(DbIndex(0), b"k");
        txn.lock([hash].into_iter())?;
        let before = txn.savepoint();
        let id = txn.new_id();
        let mut early = txn.begin_early(DbIndex(0), ValueType::Set, id, 1)?.unwrap();
        let row = keys::hashed(tag::SET_MEMBER, id, 1, &vec![b'm'; 1 << 20]);
        let done = txn.put_early(&mut early, &row, &[]);
        // The row belongs to no key.
        txn.rollback(&before);
        txn.commit()?;
        done
    }

    /// The thread that wrote the row once slept for seconds, with its keys locked, whatever thread it
    /// was.
    #[test]
    fn a_long_row_waits_for_tables_without_keys_and_never_on_an_io_thread() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let lender = Arc::new(TestLender {
            left: AtomicUsize::new(1 << 30),
            ..TestLender::default()
        });
        let lack = |lacks| lender.lacks_tables.store(lacks, Ordering::Relaxed);
        lack(true);
        let of_thread = || {
            let mut txn = Txn::new(engine.clone());
            txn.borrow_from(lender.clone());
            txn
        };
        let mut of_io_thread = of_thread();
        of_io_thread.never_wait_for_reads();
        for limits in [ReadLimits::Budget, ReadLimits::InMemory] {
            of_io_thread.limit_reads(limits);
            let done = write_long(&mut of_io_thread);
            assert!(matches!(done, Err(StorageError::ReadBudgetSpent)));
        }
        let mut others = [of_thread(), of_thread()];
        for (txn, limits) in others
            .iter_mut()
            .zip([ReadLimits::Apart, ReadLimits::InMemory])
        {
            lack(true);
            txn.limit_reads(limits);
            let done = write_long(txn);
            match limits {
                ReadLimits::Apart => assert!(matches!(done, Err(StorageError::ReadBudgetSpent))),
                _ => assert!(matches!(done, Err(StorageError::NotInMemory))),
            }
            assert!(txn.lacked_tables());
            let asked = lender.asked.load(Ordering::Relaxed);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let again = || lender.asked.load(Ordering::Relaxed) > asked + 2;
                    wait_for("a thread that waits for tables", again);
                    lack(false);
                });
                txn.wait_for_lacked_tables().unwrap();
            });
            assert!(!lender.lacks_tables.load(Ordering::Relaxed));
            assert!(!txn.lacked_tables());
            write_long(txn).unwrap();
        }
        // What was written in vain is reclaimed.
        let report = engine.check().unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn an_io_thread_that_waits_for_tables_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(StorageConfig::for_tests(dir.path().to_owned())).unwrap();
        let waits = std::thread::spawn(move || {
            crate::storage::engine::waiting::count_as_io_thread();
            engine.wait_for_tables(|| true)
        });
        assert!(waits.join().is_err());
    }
}
