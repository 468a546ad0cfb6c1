//! Free space on the database's disk, the reserve that deletions use when the disk is full, and
//! errors of the file system.
//!
//! The reserve is a file in the database's directory whose space is allocated (`disk-reserve`).
//! Memtables will be written out and need space for that: while little is free besides the reserve
//! and what they need, the disk is *low*. Between two measurements commits are counted with what
//! they take in the write-ahead log and what they will take in a table, and so are compactions. The
//! disk is low, too, after a compaction has found no space, until more is free than it found, or
//! until no compaction is left to do: otherwise files would pile up. A large commit for which there
//! is no space is refused before it is written, and space that is promised to a commit is not given
//! to compactions.
//!
//! While the disk is low, commits that add data are refused ([`StorageError::NoRoom`]), and the
//! larger part of the reserve is released, so that deletions, expiry, flushes and the compactions
//! that free the space of deleted rows continue. The rest is released when a file that cannot wait,
//! the write-ahead log above all, could otherwise not be written. Once there is space for the whole
//! reserve and some more, it is allocated again, and the disk is not low any more. [`Disk::update`]
//! decides this; a thread calls it several times a second. The thread also has memtables written
//! out early, so that log files with the same rows can be deleted.
//!
//! With `max-disk` ([`quota`]) the space of the disk is what the database's directory may take, and
//! what is free is the rest of that, unless the disk has less. So everything here holds for a quota
//! as it does for a disk.
//!
//! `disk/files.cc` is RocksDB's file system. It has the rest of the reserve released, truncates a
//! file after a failed write, and reports errors to RocksDB as retryable:
//! [`Engine::heal`](crate::storage::Engine::heal) recovers from them.

mod quota;

use rocksdb::Env;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::values::ValueLog;
use crate::storage::{Result, StorageError};
use crate::sys::files::error_number;
use crate::sys::lock_order::{Lock, Mutex};
use quota::Quota;
pub use quota::margin;

/// The reserve's file.
const RESERVE: &str = "RESERVE";
/// The prefix of the names of RocksDB's info logs of earlier starts.
const OLD_LOG: &str = "LOG.old.";
/// The reserve takes at most the size of the whole disk divided by this.
const MOST_OF_DISK: u64 = 20;
/// The disk is low if less than the size of the reserve divided by this is free besides it. A part
/// of that size is released last.
const PART: u64 = 8;
/// Bytes that tables take besides their rows, with their records in the manifest and in RocksDB's
/// info log.
const BESIDES: u64 = 512 << 10;
/// Commits below this size, in bytes, are written without a check for space.
const SMALL_COMMIT: usize = 1 << 20;
/// For so long after the last of the reserve was released, other files may use its space, too.
const JUST_NOW: Duration = Duration::from_secs(1);

/// A disk that is full again and again is logged at most once in this time.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// After this time flushes and compactions have freed what they can.
const LONG: Duration = Duration::from_secs(10);

/// State under the lock that serializes changes of the reserve.
#[derive(Debug, Default)]
struct Turn {
    /// When the last of the reserve was released.
    given_up: Option<Instant>,
    /// When a low disk was last logged.
    logged: Option<Instant>,
    /// Whether that was for the present shortage.
    is_logged: bool,
    /// Since when the disk is low.
    low_since: Option<Instant>,
}

/// The sizes of the file system and of the database's special files on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Bytes of the whole file system, or the quota if that is less.
    pub total: u64,
    /// Bytes of it that are free, without the reserve.
    pub free: u64,
    /// `max-disk` in bytes; 0 if there is none.
    pub quota: u64,
    /// Bytes that the database's directory takes, with the reserve; 0 without a quota.
    pub used: u64,
    /// Bytes that the reserve has now.
    pub reserve: u64,
    /// Bytes of the write-ahead log.
    pub log: u64,
}

/// Bytes written since the start.
#[derive(Debug, Default)]
struct Taken {
    /// By commits: in the log first, in tables later.
    commits: AtomicU64,
    /// By compactions.
    compactions: AtomicU64,
}

impl Taken {
    /// The space that this takes in the end: commits count twice, in the log and in tables.
    fn total(&self) -> u64 {
        2 * self.commits.load(Ordering::Acquire) + self.compactions.load(Ordering::Acquire)
    }
}

/// The bytes of a commit that is being written, until this is dropped.
#[must_use]
#[derive(Debug)]
pub(in crate::storage) struct InFlight<'a>(&'a AtomicU64, u64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Release);
    }
}

/// The file system of the database: its free space, the reserve, and failed calls.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    /// `disk-reserve`, in bytes.
    configured: AtomicU64,
    quota: Quota,
    total: AtomicU64,
    free: AtomicU64,
    /// What compactions may take besides, after the quota was lowered.
    besides: AtomicU64,
    log: AtomicU64,
    held: AtomicU64,
    /// Bytes of memtables, which will be written out.
    unwritten: AtomicU64,
    /// The value of `taken.commits` when that was measured.
    measured_at: AtomicU64,
    /// Bytes written since the start.
    taken: Taken,
    /// Bytes of commits that are being written now.
    in_flight: AtomicU64,
    /// The disk is low once the total of `taken` is above this.
    limit: AtomicU64,
    low: AtomicBool,
    /// Whether a compaction was refused since the last [`Disk::update`].
    refused: AtomicBool,
    /// After a compaction was refused the disk is low until so many bytes are available, in which
    /// refused compactions are tried again; 0 if none was refused.
    lacking: AtomicU64,
    /// Serializes changes of the reserve.
    turn: Mutex<Turn, { Lock::Callback as u8 }>,
    /// The text of the last failure, and the number of failures.
    failure: Mutex<String, { Lock::Callback as u8 }>,
    failures: AtomicU64,
    /// The rows of tables name places in it.
    values: OnceLock<Arc<ValueLog>>,
    /// Whether no table can be synced.
    #[cfg(test)]
    fails_tables: AtomicBool,
}

impl Disk {
    /// The disk of this directory, with a reserve of `reserve` bytes, or less on a small disk, and a
    /// quota in bytes; 0 is none.
    /// Nothing is allocated before [`Disk::update`], since the directory may prove not to be a
    /// Kedis database. On a full disk most of an old reserve is released at once: opening the
    /// database needs space.
    pub(in crate::storage) fn open(dir: &Path, reserve: u64, quota: u64) -> Arc<Disk> {
        let disk = Disk {
            dir: dir.to_owned(),
            configured: AtomicU64::new(reserve),
            quota: Quota::default(),
            total: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            besides: AtomicU64::new(0),
            log: AtomicU64::new(0),
            held: AtomicU64::new(0),
            unwritten: AtomicU64::new(BESIDES),
            measured_at: AtomicU64::new(0),
            taken: Taken::default(),
            in_flight: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            low: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            lacking: AtomicU64::new(0),
            turn: Mutex::default(),
            failure: Mutex::default(),
            failures: AtomicU64::new(0),
            values: OnceLock::new(),
            #[cfg(test)]
            fails_tables: AtomicBool::new(false),
        };
        disk.quota.set(quota);
        let found = dir.join(RESERVE).metadata();
        disk.held.store(
            found.map_or(0, |file| file.blocks() * 512),
            Ordering::Relaxed,
        );
        disk.measure();
        disk.measure_log();
        disk.limit
            .store(disk.free.load(Ordering::Relaxed), Ordering::Relaxed);
        if disk.is_short() {
            disk.begin_low(&mut disk.turn.lock());
        }
        Arc::new(disk)
    }

    /// RocksDB's environment with the file system of `disk/files.cc`.
    #[allow(unsafe_code)]
    pub(in crate::storage) fn env(self: &Arc<Self>) -> Env {
        // SAFETY: the environment takes over this reference and returns it with `kedis_disk_free`;
        // what it returns is a new environment of RocksDB's C interface.
        unsafe { Env::from_raw(kedis_disk_env(Arc::into_raw(self.clone()).cast()).cast()) }
    }

    /// Sets the value log, which is synced before a table is whose rows may name what was appended.
    pub(in crate::storage) fn sync_before_tables(&self, values: Arc<ValueLog>) {
        self.values.get_or_init(|| values);
    }

    /// Makes durable what rows of memtables name in the value log.
    fn sync_values(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.fails_tables.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.values.get().map_or(Ok(()), |values| values.sync())
    }

    /// Whether commits that add data are refused.
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Acquire)
    }

    /// Whether the disk has been low for so long that rows of the binlog which only disconnected
    /// replicas need should be trimmed.
    pub fn is_low_for_long(&self) -> bool {
        let low_since = self.turn.lock().low_since;
        self.is_low() && low_since.is_some_and(|since| since.elapsed() > LONG)
    }

    /// The result of the last measurement.
    pub fn figures(&self) -> DiskFigures {
        let (quota, used) = self.quota.figures();
        DiskFigures {
            total: self.total.load(Ordering::Relaxed),
            free: self.free.load(Ordering::Relaxed),
            quota,
            used,
            reserve: self.held.load(Ordering::Relaxed),
            log: self.log.load(Ordering::Relaxed),
        }
    }

    /// Bytes that commits have written to the log since the start.
    pub fn commit_bytes(&self) -> u64 {
        self.taken.commits.load(Ordering::Relaxed)
    }

    /// The number of failed calls of the operating system, and the text of the last one.
    pub fn failures(&self) -> (u64, String) {
        let count = self.failures.load(Ordering::Acquire);
        (count, self.failure.lock().clone())
    }

    /// Whether a compaction may write `bytes`: they must be free besides what memtables need. If
    /// not, the compaction fails.
    fn admits_compaction(&self, bytes: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let fits = self.taken.total().saturating_add(bytes + in_flight) <= limit;
        let admits = fits && !self.is_low() || {
            // The reserve is for deletions, and it is not known yet how much they need.
            let spared = if self.is_low() { self.wanted() / 2 } else { 0 };
            self.has_free(bytes.saturating_add(spared), &self.besides)
        };
        match admits {
            true => _ = self.taken.compactions.fetch_add(bytes, Ordering::AcqRel),
            false => self.refused.store(true, Ordering::Relaxed),
        }
        admits
    }

    /// Whether `bytes` are free now, or `besides`, besides what memtables and commits need.
    fn has_free(&self, bytes: u64, besides: &AtomicU64) -> bool {
        self.measure();
        // A concurrent [`Disk::update`] may raise it, but not above the commits that are read after
        // it.
        let measured_at = self.measured_at.load(Ordering::Acquire);
        let since = self.taken.commits.load(Ordering::Acquire) - measured_at;
        let unwritten = self.unwritten.load(Ordering::Relaxed);
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let needed = unwritten + since + in_flight;
        let free = self.free.load(Ordering::Relaxed) + besides.load(Ordering::Relaxed);
        free >= needed.saturating_add(bytes)
    }

    /// Reserves space for a commit of `bytes`, in the log and in tables, until the result is
    /// dropped. Nothing is reserved for a small one.
    ///
    /// # Errors
    /// [`StorageError::NoRoom`] if the space is not free.
    pub(in crate::storage) fn reserve(&self, bytes: usize) -> Result<Option<InFlight<'_>>> {
        if bytes < SMALL_COMMIT {
            return Ok(None);
        }
        let kept = 2 * bytes as u64;
        // One at a time: two commits could find the same space.
        let _turn = self.turn.lock();
        let all = self.in_flight.load(Ordering::Acquire) + kept;
        let limit = self.limit.load(Ordering::Relaxed);
        let fits = self.taken.total().saturating_add(all) <= limit
            || self.has_free(kept, &AtomicU64::new(0));
        if !fits {
            return Err(StorageError::NoRoom);
        }
        self.in_flight.fetch_add(kept, Ordering::AcqRel);
        Ok(Some(InFlight(&self.in_flight, kept)))
    }

    /// From now on no table of a flush can be synced, or all can again.
    #[cfg(test)]
    pub(in crate::storage) fn fail_tables(&self, fail: bool) {
        self.fails_tables.store(fail, Ordering::Relaxed);
    }

    /// Acts as if nothing were free for large commits and compactions, until the next
    /// [`Disk::update`].
    #[cfg(test)]
    pub(in crate::storage) fn simulate_full(&self) {
        self.limit.store(0, Ordering::Relaxed);
        self.unwritten.store(u64::MAX / 2, Ordering::Relaxed);
    }

    /// Whether compactions were refused and not tried again with more space since.
    pub(super) fn has_refused_compactions(&self) -> bool {
        self.lacking.load(Ordering::Relaxed) > 0
    }

    /// Notes that no compaction is left to do.
    pub(super) fn compactions_are_done(&self) {
        self.lacking.store(0, Ordering::Relaxed);
    }

    /// How many of `wanted` bytes a file may preallocate.
    pub(super) fn preallocation(&self, wanted: u64) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        match self.is_low() {
            true => 0,
            // Other files preallocate, too.
            false => wanted.min(limit.saturating_sub(self.taken.total()) / PART),
        }
    }

    /// Changes the size of the reserve, in bytes; 0 is none.
    pub fn set_reserve(&self, bytes: u64) {
        self.configured.store(bytes, Ordering::Relaxed);
    }

    /// Changes `max-disk`, in bytes; 0 is none.
    pub fn set_quota(&self, bytes: u64) {
        self.quota.set(bytes);
    }

    /// Bytes that commits and compactions may still write: of the last measurement, less what was
    /// written since.
    pub fn left(&self) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        limit.saturating_sub(self.taken.total())
    }

    /// The least free space, in bytes, with which commits that add data are accepted.
    pub fn least_free(&self) -> u64 {
        self.wanted() / PART + self.unwritten.load(Ordering::Relaxed)
    }

    /// Counts a commit of `bytes` that is about to be written, and is until the result is dropped.
    pub(in crate::storage) fn begin_write(&self, bytes: usize) -> InFlight<'_> {
        let in_flight = InFlight(&self.in_flight, bytes as u64);
        self.in_flight.fetch_add(bytes as u64, Ordering::AcqRel);
        self.taken.commits.fetch_add(bytes as u64, Ordering::AcqRel);
        if self.taken.total() > self.limit.load(Ordering::Relaxed) && !self.is_low() {
            let mut turn = self.turn.lock();
            if !self.is_low() {
                self.begin_low(&mut turn);
            }
        }
        in_flight
    }

    /// Whether memtables should be written out early: log files with the same rows take space that
    /// may soon be needed.
    pub(super) fn should_flush(&self) -> bool {
        let least = self.wanted() / PART;
        match self.is_low() {
            true => self.log.load(Ordering::Relaxed) > least,
            false => {
                let unwritten = self.unwritten.load(Ordering::Relaxed);
                self.free.load(Ordering::Relaxed) < 2 * (least + unwritten)
            }
        }
    }

    /// Measures the free space, and releases or allocates the reserve. `unwritten` returns the
    /// bytes of memtables.
    pub fn update(&self, unwritten: impl FnOnce() -> u64) {
        let mut turn = self.turn.lock();
        // Later commits are counted in `taken`; earlier ones are part of what is measured.
        let commits = self.taken.commits.load(Ordering::Acquire);
        let compactions = self.taken.compactions.load(Ordering::Acquire);
        let in_flight = self.in_flight.load(Ordering::Acquire);
        let unwritten = unwritten() + in_flight + BESIDES;
        self.measure();
        self.unwritten.store(unwritten, Ordering::Relaxed);
        self.measured_at.store(commits, Ordering::Release);
        let (wanted, held) = (self.wanted(), self.held.load(Ordering::Relaxed));
        let free = self.free.load(Ordering::Relaxed);
        let room = free.saturating_add(held);
        let is_refused = self.refused.swap(false, Ordering::Relaxed);
        if is_refused {
            self.lacking
                .fetch_max(room.saturating_add(wanted), Ordering::Relaxed);
        }
        let (least, lacking) = (wanted / PART, self.lacking.load(Ordering::Relaxed));
        if self.is_low() {
            let enough = lacking.max(wanted + 2 * least + unwritten);
            if room >= enough && self.resize_reserve(wanted) {
                self.lacking.store(0, Ordering::Relaxed);
                turn.given_up = None;
                turn.low_since = None;
                self.low.store(false, Ordering::Release);
                if turn.is_logged {
                    log::info!("the disk has space again: writes that add data are accepted");
                }
            } else if held < least && free >= 2 * least + unwritten && self.resize_reserve(least) {
                turn.given_up = None;
            }
        } else if is_refused || self.is_short() {
            self.begin_low(&mut turn);
        } else if held != wanted {
            self.resize_reserve(wanted);
        }
        // The size of the reserve may have changed.
        let free = self.free.load(Ordering::Relaxed);
        // Commits in flight may be in neither the log nor a memtable yet.
        let left = free.saturating_sub(least + unwritten + in_flight);
        let limit = (2 * commits + compactions).saturating_add(left);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether the quota, and not the disk, is what bounds the free space.
    fn is_bound_by_quota(&self) -> bool {
        let (quota, used) = self.quota.figures();
        quota > 0 && self.free.load(Ordering::Relaxed) >= quota.saturating_sub(used)
    }

    /// Whether too little is free besides the reserve, or for the reserve itself.
    fn is_short(&self) -> bool {
        let (wanted, held) = (self.wanted(), self.held.load(Ordering::Relaxed));
        let free = self.free.load(Ordering::Relaxed);
        let least = self.least_free();
        free < least || held < wanted && free < wanted - held + least + wanted / PART
    }

    /// The size that the reserve should have, in bytes.
    fn wanted(&self) -> u64 {
        let most = self.total.load(Ordering::Relaxed) / MOST_OF_DISK;
        self.configured.load(Ordering::Relaxed).min(most)
    }

    fn measure(&self) {
        let measured = statvfs(&self.dir).map_err(io::Error::from);
        let measured = measured.and_then(|found| {
            let total = found.f_blocks * found.f_frsize;
            let free = found.f_bavail * found.f_frsize;
            self.quota.cut(&self.dir, total, free)
        });
        match measured {
            Ok(room) => {
                self.total.store(room.total, Ordering::Relaxed);
                self.free.store(room.free, Ordering::Relaxed);
                self.besides.store(room.besides, Ordering::Relaxed);
            }
            Err(error) => log::debug!("{}: {error}", self.dir.display()),
        }
    }

    /// Adds up the files of the write-ahead log.
    pub fn measure_log(&self) {
        let Ok(files) = self.dir.read_dir() else {
            return;
        };
        let is_log = |path: &Path| path.extension().is_some_and(|end| end == "log");
        let logs = files.filter_map(|file| Some(file.ok()?.path()));
        let logs = logs.filter(|path| is_log(path));
        let bytes = logs.filter_map(|path| Some(path.metadata().ok()?.len()));
        self.log.store(bytes.sum(), Ordering::Relaxed);
    }

    /// Resizes the reserve to `bytes`. Returns whether it has that size, or cannot be allocated on
    /// this file system at all. The caller holds `turn`.
    fn resize_reserve(&self, bytes: u64) -> bool {
        let resized = self.resize(bytes);
        self.measure();
        match resized {
            Ok(()) => {
                self.held.store(bytes, Ordering::Release);
                true
            }
            Err(error) => {
                self.held.store(0, Ordering::Release);
                log::debug!("cannot resize the reserve to {bytes} bytes: {error}");
                // On a file system that cannot allocate, free space has to do.
                error.kind() == io::ErrorKind::Unsupported
            }
        }
    }

    /// On an error nothing is allocated.
    fn resize(&self, bytes: u64) -> io::Result<()> {
        let path = self.dir.join(RESERVE);
        if bytes == 0 {
            return match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() > bytes {
            return file.set_len(bytes);
        }
        let allocated = allocate(&file, bytes);
        if allocated.is_err() {
            file.set_len(0)?;
        }
        allocated
    }

    /// Releases what is left of the reserve. Returns whether that makes space, or did so just
    /// before.
    fn make_room(&self) -> bool {
        let mut turn = self.turn.lock();
        if self.held.load(Ordering::Relaxed) == 0 {
            let just_now = turn.given_up.is_some_and(|when| when.elapsed() < JUST_NOW);
            return just_now || self.remove_old_logs();
        }
        turn.given_up = Some(Instant::now());
        if !self.is_low() {
            self.begin_low(&mut turn);
        }
        self.resize_reserve(0)
    }

    /// Refuses commits that add data from now on, and releases the larger part of the reserve. A
    /// disk that is low again and again is logged only now and then.
    fn begin_low(&self, turn: &mut Turn) {
        self.low.store(true, Ordering::Release);
        turn.low_since = Some(Instant::now());
        let held = self.held.load(Ordering::Relaxed);
        self.resize_reserve(held.min(self.wanted() / PART));
        turn.is_logged = turn.logged.is_none_or(|when| when.elapsed() >= LOG_EVERY);
        if turn.is_logged {
            turn.logged = Some(Instant::now());
            let (place, remedy) = match self.is_bound_by_quota() {
                true => ("the quota (max-disk)", "Raise it"),
                false => ("the disk", "Free space there"),
            };
            log::warn!(
                "{place} of {} is full: writes that add data are refused (MISCONF); reads, \
                 deletions and expiry continue. {remedy} or delete keys; writes are then \
                 accepted again without a restart. The binlog takes up to binlog-max-bytes of \
                 the disk",
                self.dir.display()
            );
        }
    }

    /// Deletes RocksDB's info logs of earlier starts: a start on a full disk without a reserve has
    /// no other space. Returns whether there were any.
    fn remove_old_logs(&self) -> bool {
        let Ok(files) = self.dir.read_dir() else {
            return false;
        };
        let is_old = |name: &str| name.starts_with(OLD_LOG);
        let files = files.filter_map(|file| Some(file.ok()?.path()));
        let old = files.filter(|path| {
            path.file_name()
                .and_then(|n| n.to_str())
                .is_some_and(is_old)
        });
        old.filter(|path| std::fs::remove_file(path).is_ok())
            .count()
            > 0
    }
}

/// Allocates a file's first bytes.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

#[allow(unsafe_code)]
unsafe extern "C" {
    fn kedis_disk_env(disk: *const c_void) -> *mut c_void;
}

/// The functions that `files.cc` calls, with the reference that [`Disk::env`] gave it.
#[allow(unsafe_code)]
mod calls {
    use super::*;
    use std::slice;

    #[unsafe(no_mangle)]
    extern "C" fn kedis_disk_make_room(disk: &Disk) -> bool {
        disk.make_room()
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_disk_admits_compaction(disk: &Disk, bytes: usize) -> bool {
        disk.admits_compaction(bytes as u64)
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_disk_sync_values(disk: &Disk) -> i32 {
        error_number(disk.sync_values())
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_disk_preallocation(disk: &Disk, wanted: u64) -> u64 {
        disk.preallocation(wanted)
    }

    /// # Safety
    /// `text` points to `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_disk_failed(disk: &Disk, text: *const u8, len: usize) {
        // SAFETY: by the contract.
        let text = unsafe { slice::from_raw_parts(text, len) };
        *disk.failure.lock() = String::from_utf8_lossy(text).into_owned();
        disk.failures.fetch_add(1, Ordering::Release);
    }

    /// # Safety
    /// `disk` is the environment's reference, which it gives up.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_disk_free(disk: *const Disk) {
        // SAFETY: by the contract.
        drop(unsafe { Arc::from_raw(disk) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocated(dir: &Path) -> u64 {
        let file = dir.join(RESERVE).metadata();
        file.map_or(0, |file| file.blocks() * 512)
    }

    #[test]
    fn the_reserve_is_allocated_and_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), 1 << 20, 0);
        assert!(!disk.is_low());
        assert_eq!(allocated(dir.path()), 0, "the directory may not be ours");
        disk.update(|| 0);
        assert_eq!(allocated(dir.path()), 1 << 20);
        assert_eq!(disk.figures().reserve, 1 << 20);
        assert!(disk.make_room());
        assert!(disk.is_low());
        assert_eq!(allocated(dir.path()), 0);
        assert!(disk.make_room(), "space was freed just before");
        disk.update(|| 0);
        assert!(!disk.is_low());
        assert_eq!(allocated(dir.path()), 1 << 20);
        disk.set_reserve(0);
        disk.update(|| 0);
        assert!(!disk.is_low());
        assert_eq!(allocated(dir.path()), 0);
        assert!(!disk.make_room());
    }

    #[test]
    fn files_take_little_ahead_of_a_disk_that_has_little() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), 0, 0);
        disk.limit.store(80 << 20, Ordering::Relaxed);
        assert_eq!(disk.preallocation(100 << 20), 10 << 20);
        assert_eq!(disk.preallocation(1 << 20), 1 << 20);
        drop(disk.begin_write(36 << 20));
        assert_eq!(disk.preallocation(100 << 20), 1 << 20);
        drop(disk.begin_write(4 << 20));
        assert_eq!(disk.preallocation(100 << 20), 0);
        assert!(!disk.is_low());
        drop(disk.begin_write(1));
        assert!(disk.is_low());
    }

    #[test]
    fn a_compaction_without_room_makes_the_disk_low_until_compactions_are_done() {
        let dir = tempfile::tempdir().unwrap();
        // More than other processes are likely to free meanwhile: then the disk is low no more.
        let disk = Disk::open(dir.path(), 256 << 20, 0);
        disk.update(|| 0);
        assert!(disk.admits_compaction(1 << 20) && !disk.is_low());
        disk.simulate_full();
        assert!(!disk.admits_compaction(1 << 20));
        for _ in 0..3 {
            disk.update(|| 0);
            assert!(disk.is_low() && disk.has_refused_compactions());
        }
        disk.compactions_are_done();
        disk.update(|| 0);
        assert!(!disk.is_low());
    }

    #[test]
    fn room_is_kept_for_large_commits_alone() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), 0, 0);
        disk.update(|| 0);
        let free = disk.figures().free;
        let large = usize::try_from(free / 5 * 2).unwrap();
        let kept = disk.reserve(large).unwrap();
        assert!(kept.is_some());
        assert!(matches!(disk.reserve(large), Err(StorageError::NoRoom)));
        assert!(disk.reserve(SMALL_COMMIT - 1).unwrap().is_none());
        assert!(!disk.admits_compaction(free / 4), "the space is reserved");
        drop(kept);
        assert!(disk.reserve(large).unwrap().is_some());
        assert!(disk.admits_compaction(free / 4));
    }

    #[test]
    fn the_size_of_an_old_reserve_is_known() {
        let dir = tempfile::tempdir().unwrap();
        Disk::open(dir.path(), 2 << 20, 0).update(|| 0);
        let disk = Disk::open(dir.path(), 1 << 20, 0);
        assert_eq!(disk.figures().reserve, 2 << 20);
        disk.update(|| 0);
        assert_eq!(disk.figures().reserve, 1 << 20);
        assert_eq!(allocated(dir.path()), 1 << 20);
    }
}
