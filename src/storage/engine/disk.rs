//! The disk under the database: how much of it is free, the reserve that deletions live
//! on when nothing is, and what the operating system could not do.
//!
//! The reserve is a file in the database's directory with space that is really allocated
//! (`disk-reserve`). What is in memtables is to be written out, and needs room for that:
//! while the disk has little free space besides the reserve and them, it is *low*. Commits
//! count as well between two looks, with what they take in the write-ahead log and what
//! they will take in a table, and so do compactions. The disk is low, too, from when a
//! compaction has no room until there is more than it had, or compactions are done: else
//! files would pile up. A large commit for which there is no room is refused before it is
//! written, and room that it was promised is not for compactions.
//!
//! While the disk is low what adds data is refused
//! ([`StorageError::NoRoom`]), and the larger part of the reserve is given up, so that
//! deletions, expiry, flushes and the compactions that free the space of deleted rows go
//! on. The rest goes when a file that cannot wait, the write-ahead log before all, could
//! otherwise not be written. Once there is room for the whole reserve and some more it is
//! allocated again, and the disk is not low any more. [`Disk::look`] decides; a thread calls
//! it several times a second. It also has memtables written out early, so that the log that
//! holds the same goes.
//!
//! `disk/files.cc` is RocksDB's file system. It asks for that rest, cuts off what a failed
//! write left in a file, and reports errors to RocksDB as such that can go away:
//! [`Engine::heal`](crate::storage::Engine::heal) sees to that.

use rocksdb::Env;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::storage::{Result, StorageError};
use crate::sys::lock_order::{Lock, Mutex};

/// The reserve's file.
const RESERVE: &str = "RESERVE";
/// What the names of RocksDB's own old logs begin with.
const OLD_LOG: &str = "LOG.old.";
/// The reserve takes this part of the whole disk at the most.
const MOST_OF_DISK: u64 = 20;
/// The part of the reserve that the disk has free besides it, or is low; the same part of
/// the reserve is given up last.
const PART: u64 = 8;
/// Tables have so many bytes besides their rows, with what is said of them in the manifest
/// and in RocksDB's log.
const BESIDES: u64 = 512 << 10;
/// A commit of less is taken without a look at the room for it.
const SMALL_COMMIT: usize = 1 << 20;
/// A file that asks for room this soon after it was made may have it, too.
const JUST_NOW: Duration = Duration::from_secs(1);

/// A disk that is full again and again is in the log once in this time.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Writing memtables out, and compactions, have made room before if they can.
const LONG: Duration = Duration::from_secs(10);

/// What only one thread at a time sees and changes.
#[derive(Debug, Default)]
struct Turn {
    /// When the last of the reserve was given up.
    given_up: Option<Instant>,
    /// When it was said that the disk is low, and whether that was this time.
    told: Option<Instant>,
    is_told: bool,
    /// Since when the disk is low.
    low_since: Option<Instant>,
}

/// What the disk has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Bytes of the whole file system.
    pub total: u64,
    /// Bytes of it that are free, without the reserve.
    pub free: u64,
    /// Bytes that the reserve has now.
    pub reserve: u64,
    /// Bytes of the write-ahead log.
    pub log: u64,
}

/// Bytes that were taken.
#[derive(Debug, Default)]
struct Taken {
    /// By commits: in the log first, in tables later.
    commits: AtomicU64,
    /// By compactions.
    compactions: AtomicU64,
}

impl Taken {
    /// What all of it takes on the disk in the end.
    fn total(&self) -> u64 {
        2 * self.commits.load(Ordering::Acquire) + self.compactions.load(Ordering::Acquire)
    }
}

/// A commit that is being written, until this is dropped.
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
    total: AtomicU64,
    free: AtomicU64,
    log: AtomicU64,
    held: AtomicU64,
    /// What memtables hold, which is to be written out.
    unwritten: AtomicU64,
    /// How far commits were when that was measured.
    measured_at: AtomicU64,
    /// How far they are: sums since the start.
    taken: Taken,
    /// Commits that are being written now.
    in_flight: AtomicU64,
    /// The disk is low once this much is taken.
    limit: AtomicU64,
    low: AtomicBool,
    /// A compaction had no room since the last look.
    refused: AtomicBool,
    /// With so much room for them, compactions that had none are tried again with writes
    /// that add data beside them; 0 if there are none.
    lacking: AtomicU64,
    /// Changes of the reserve take turns.
    turn: Mutex<Turn, { Lock::Callback as u8 }>,
    /// What could not be done last, and how often something could not.
    failure: Mutex<String, { Lock::Callback as u8 }>,
    failures: AtomicU64,
}

impl Disk {
    /// The disk that holds this directory, with a reserve of so many bytes, or less on
    /// a small one. Nothing is allocated before [`Disk::look`]: the directory may turn out
    /// to be somebody else's. But a full disk needs the room to open the database.
    pub(in crate::storage) fn open(dir: &Path, reserve: u64) -> Arc<Disk> {
        let disk = Disk {
            dir: dir.to_owned(),
            configured: AtomicU64::new(reserve),
            total: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
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
        };
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

    /// RocksDB's environment over it.
    #[allow(unsafe_code)]
    pub(in crate::storage) fn env(self: &Arc<Self>) -> Env {
        // SAFETY: the environment takes over this share and gives it back with
        // `kedis_disk_free`; what it returns is a new environment of RocksDB's C interface.
        unsafe { Env::from_raw(kedis_disk_env(Arc::into_raw(self.clone()).cast()).cast()) }
    }

    /// Whether what adds data is refused.
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Acquire)
    }

    /// Whether it has been for so long that what is of use only to replicas that are not
    /// connected should go.
    pub fn is_low_for_long(&self) -> bool {
        let low_since = self.turn.lock().low_since;
        self.is_low() && low_since.is_some_and(|since| since.elapsed() > LONG)
    }

    /// What it had when somebody looked last.
    pub fn figures(&self) -> DiskFigures {
        DiskFigures {
            total: self.total.load(Ordering::Relaxed),
            free: self.free.load(Ordering::Relaxed),
            reserve: self.held.load(Ordering::Relaxed),
            log: self.log.load(Ordering::Relaxed),
        }
    }

    /// How often the system could not do what RocksDB asked for, and what that was last.
    pub fn failures(&self) -> (u64, String) {
        let count = self.failures.load(Ordering::Acquire);
        (count, self.failure.lock().clone())
    }

    /// Whether so many bytes are free besides what memtables need. If not, a compaction
    /// fails.
    fn spares(&self, bytes: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let fits = self.taken.total().saturating_add(bytes + in_flight) <= limit;
        let spares = fits && !self.is_low() || {
            // The reserve is for deletions, of which it is not known yet how many come.
            let spared = if self.is_low() { self.wanted() / 2 } else { 0 };
            self.has_free(bytes.saturating_add(spared))
        };
        match spares {
            true => _ = self.taken.compactions.fetch_add(bytes, Ordering::AcqRel),
            false => self.refused.store(true, Ordering::Relaxed),
        }
        spares
    }

    /// Whether so many bytes are free now besides what memtables and commits need.
    fn has_free(&self, bytes: u64) -> bool {
        self.measure();
        // A look may move it on meanwhile: never beyond the commits that are read after it.
        let measured_at = self.measured_at.load(Ordering::Acquire);
        let since = self.taken.commits.load(Ordering::Acquire) - measured_at;
        let unwritten = self.unwritten.load(Ordering::Relaxed);
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let needed = unwritten + since + in_flight;
        self.free.load(Ordering::Relaxed) >= needed.saturating_add(bytes)
    }

    /// Keeps room for a commit of so many bytes, in the log and in tables, until the result
    /// is dropped. A small one needs nothing kept.
    ///
    /// # Errors
    /// [`StorageError::NoRoom`].
    pub(in crate::storage) fn reserve(&self, bytes: usize) -> Result<Option<InFlight<'_>>> {
        if bytes < SMALL_COMMIT {
            return Ok(None);
        }
        let kept = 2 * bytes as u64;
        // One at a time: two could find the same room.
        let _turn = self.turn.lock();
        let all = self.in_flight.load(Ordering::Acquire) + kept;
        let limit = self.limit.load(Ordering::Relaxed);
        let fits = self.taken.total().saturating_add(all) <= limit || self.has_free(kept);
        if !fits {
            return Err(StorageError::NoRoom);
        }
        self.in_flight.fetch_add(kept, Ordering::AcqRel);
        Ok(Some(InFlight(&self.in_flight, kept)))
    }

    /// As if nothing were free for large commits and compactions, until the next look.
    #[cfg(test)]
    pub fn seem_full(&self) {
        self.limit.store(0, Ordering::Relaxed);
        self.unwritten.store(u64::MAX / 2, Ordering::Relaxed);
    }

    /// Whether compactions had no room, and none has been tried with more.
    pub fn has_refused_compactions(&self) -> bool {
        self.lacking.load(Ordering::Relaxed) > 0
    }

    /// All compactions that there are to do are done.
    pub fn compactions_are_done(&self) {
        self.lacking.store(0, Ordering::Relaxed);
    }

    /// How much of `wanted` bytes a file may allocate before it needs them.
    fn preallocation(&self, wanted: u64) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        match self.is_low() {
            true => 0,
            // Other files do the same.
            false => wanted.min(limit.saturating_sub(self.taken.total()) / PART),
        }
    }

    /// Changes the size of the reserve, in bytes; 0 is none.
    pub fn set_reserve(&self, bytes: u64) {
        self.configured.store(bytes, Ordering::Relaxed);
    }

    /// A commit of so many bytes is about to be written; it is until the result is dropped.
    pub(in crate::storage) fn took(&self, bytes: usize) -> InFlight<'_> {
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

    /// Whether memtables should be written out early: the log that holds the same takes
    /// room that may soon be missing.
    pub fn wants_tables(&self) -> bool {
        let least = self.wanted() / PART;
        match self.is_low() {
            true => self.log.load(Ordering::Relaxed) > least,
            false => {
                let unwritten = self.unwritten.load(Ordering::Relaxed);
                self.free.load(Ordering::Relaxed) < 2 * (least + unwritten)
            }
        }
    }

    /// Looks how much is free, and gives up or takes back the reserve; `unwritten` says how
    /// many bytes memtables hold.
    pub fn look(&self, unwritten: impl FnOnce() -> u64) {
        let mut turn = self.turn.lock();
        // Commits from here on count with what they take, those before with what they took.
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
            if room >= enough && self.hold(wanted) {
                self.lacking.store(0, Ordering::Relaxed);
                turn.given_up = None;
                turn.low_since = None;
                self.low.store(false, Ordering::Release);
                if turn.is_told {
                    log::info!("the disk has room again: what adds data is taken");
                }
            } else if held < least && free >= 2 * least + unwritten && self.hold(least) {
                turn.given_up = None;
            }
        } else if is_refused || self.is_short() {
            self.begin_low(&mut turn);
        } else if held != wanted {
            self.hold(wanted);
        }
        // The reserve may be another now.
        let free = self.free.load(Ordering::Relaxed);
        // What is in flight is in neither the log nor a memtable for sure.
        let left = free.saturating_sub(least + unwritten + in_flight);
        let limit = (2 * commits + compactions).saturating_add(left);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether there is too little free besides the reserve, or for it.
    fn is_short(&self) -> bool {
        let (wanted, held) = (self.wanted(), self.held.load(Ordering::Relaxed));
        let free = self.free.load(Ordering::Relaxed);
        let least = wanted / PART + self.unwritten.load(Ordering::Relaxed);
        free < least || held < wanted && free < wanted - held + least + wanted / PART
    }

    /// Bytes that the reserve is to have.
    fn wanted(&self) -> u64 {
        let most = self.total.load(Ordering::Relaxed) / MOST_OF_DISK;
        self.configured.load(Ordering::Relaxed).min(most)
    }

    fn measure(&self) {
        match statvfs(&self.dir) {
            Ok(found) => {
                self.total
                    .store(found.f_blocks * found.f_frsize, Ordering::Relaxed);
                self.free
                    .store(found.f_bavail * found.f_frsize, Ordering::Relaxed);
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

    /// Makes the reserve so large; says whether it is. The caller holds its lock.
    fn hold(&self, bytes: u64) -> bool {
        let resized = self.resize(bytes);
        self.measure();
        match resized {
            Ok(()) => {
                self.held.store(bytes, Ordering::Release);
                true
            }
            Err(error) => {
                self.held.store(0, Ordering::Release);
                log::debug!("the reserve of {bytes} bytes: {error}");
                // Where nothing can be allocated, space that is free has to do.
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

    /// Gives up what is left of the reserve; says whether there is room now that was not
    /// there before.
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
        self.hold(0)
    }

    /// What adds data is refused from now on, and the larger part of the reserve is given
    /// up. Who fills up what becomes free again and again is told so now and then.
    fn begin_low(&self, turn: &mut Turn) {
        self.low.store(true, Ordering::Release);
        turn.low_since = Some(Instant::now());
        let held = self.held.load(Ordering::Relaxed);
        self.hold(held.min(self.wanted() / PART));
        turn.is_told = turn.told.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        if turn.is_told {
            turn.told = Some(Instant::now());
            log::warn!(
                "the disk of {} is full: what adds data is refused (MISCONF); reads, deletions \
                 and expiry go on. Make room there or delete keys, then writes are taken again \
                 without a restart. The binlog takes up to binlog-max-bytes of it",
                self.dir.display()
            );
        }
    }

    /// RocksDB's logs of earlier starts are worth less than what cannot be written; a start
    /// without a reserve has no other room. Says whether there were any.
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

/// What `files.cc` calls, with the share that [`Disk::env`] gave it.
#[allow(unsafe_code)]
mod calls {
    use super::*;
    use std::slice;

    #[unsafe(no_mangle)]
    extern "C" fn kedis_disk_make_room(disk: &Disk) -> bool {
        disk.make_room()
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_disk_spares(disk: &Disk, bytes: usize) -> bool {
        disk.spares(bytes as u64)
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_disk_preallocation(disk: &Disk, wanted: u64) -> u64 {
        disk.preallocation(wanted)
    }

    /// # Safety
    /// There are as many bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_disk_failed(disk: &Disk, text: *const u8, len: usize) {
        // SAFETY: by the contract.
        let text = unsafe { slice::from_raw_parts(text, len) };
        *disk.failure.lock() = String::from_utf8_lossy(text).into_owned();
        disk.failures.fetch_add(1, Ordering::Release);
    }

    /// # Safety
    /// It is the share of the environment, which ends.
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
        let disk = Disk::open(dir.path(), 1 << 20);
        assert!(!disk.is_low());
        assert_eq!(allocated(dir.path()), 0, "it may be somebody else's");
        disk.look(|| 0);
        assert_eq!(allocated(dir.path()), 1 << 20);
        assert_eq!(disk.figures().reserve, 1 << 20);
        assert!(disk.make_room());
        assert!(disk.is_low());
        assert_eq!(allocated(dir.path()), 0);
        assert!(disk.make_room(), "there is room that just was made");
        disk.look(|| 0);
        assert!(!disk.is_low());
        assert_eq!(allocated(dir.path()), 1 << 20);
        disk.set_reserve(0);
        disk.look(|| 0);
        assert!(!disk.is_low());
        assert_eq!(allocated(dir.path()), 0);
        assert!(!disk.make_room());
    }

    #[test]
    fn files_take_little_ahead_of_a_disk_that_has_little() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), 0);
        disk.limit.store(80 << 20, Ordering::Relaxed);
        assert_eq!(disk.preallocation(100 << 20), 10 << 20);
        assert_eq!(disk.preallocation(1 << 20), 1 << 20);
        drop(disk.took(36 << 20));
        assert_eq!(disk.preallocation(100 << 20), 1 << 20);
        drop(disk.took(4 << 20));
        assert_eq!(disk.preallocation(100 << 20), 0);
        assert!(!disk.is_low());
        drop(disk.took(1));
        assert!(disk.is_low());
    }

    #[test]
    fn a_compaction_without_room_makes_the_disk_low_until_compactions_are_done() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), 1 << 20);
        disk.look(|| 0);
        assert!(disk.spares(1 << 20) && !disk.is_low());
        disk.seem_full();
        assert!(!disk.spares(1 << 20));
        for _ in 0..3 {
            disk.look(|| 0);
            assert!(disk.is_low() && disk.has_refused_compactions());
        }
        disk.compactions_are_done();
        disk.look(|| 0);
        assert!(!disk.is_low());
    }

    #[test]
    fn room_is_kept_for_large_commits_alone() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), 0);
        disk.look(|| 0);
        let free = disk.figures().free;
        let large = usize::try_from(free / 5 * 2).unwrap();
        let kept = disk.reserve(large).unwrap();
        assert!(kept.is_some());
        assert!(matches!(disk.reserve(large), Err(StorageError::NoRoom)));
        assert!(disk.reserve(SMALL_COMMIT - 1).unwrap().is_none());
        assert!(!disk.spares(free / 4), "it is promised");
        drop(kept);
        assert!(disk.reserve(large).unwrap().is_some());
        assert!(disk.spares(free / 4));
    }

    #[test]
    fn a_reserve_of_before_is_known() {
        let dir = tempfile::tempdir().unwrap();
        Disk::open(dir.path(), 2 << 20).look(|| 0);
        let disk = Disk::open(dir.path(), 1 << 20);
        assert_eq!(disk.figures().reserve, 2 << 20);
        disk.look(|| 0);
        assert_eq!(disk.figures().reserve, 1 << 20);
        assert_eq!(allocated(dir.path()), 1 << 20);
    }
}
