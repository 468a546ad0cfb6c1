//! Records how far the files of the write-ahead log, and the manifests, were written and synced, in
//! a file that outlives the process. So a start can tell a file that has lost data from one whose
//! last record was being written. Manifests have the format of the log.
//!
//! After a crash of the process alone the operating system still has all that was written. After a
//! crash of the machine only what was synced must be there. The machine is known by an id that
//! changes with each boot.
//!
//! ```text
//! magic (8) ‖ version (8) ‖ 16 zeros, then slots:
//! number of the file (8; 0: free; a manifest's with the highest bit) ‖ machine (8) ‖ written (8) ‖ synced (8)
//! ```
//!
//! Both lengths end where a record ends. The file is mapped into memory, so noting a commit costs
//! two stores and no system call. A page of it is written to the disk after the data that it
//! describes was synced, so it never claims more than is synced. The file is [`NAME`] in the
//! directory of the database. Before a file of the log that RocksDB does not need any more is
//! removed, its slot is freed, on the disk too: a slot without its file means that data is lost.

use super::{BLOCK, FIRST, HEADER, MIDDLE, REUSED, ZERO};
use crate::storage::Result;
use crate::sys::files::error_number;
use crate::sys::lock_order::{Lock, Mutex};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of the file.
pub(in crate::storage) const NAME: &str = "WAL-MARKS";
/// Its name until it is complete.
const BEGUN: &str = "WAL-MARKS.new";
const MAGIC: u64 = u64::from_be_bytes(*b"KEDISWAL");
const VERSION: u64 = 1;
const PAGE: usize = 4096;
/// The number of files whose marks are kept at the same time, far more than there are; a file
/// without a slot is judged by its contents alone.
const SLOTS: usize = (PAGE - HEAD) / size_of::<Slot>();
const HEAD: usize = 32;

#[repr(C)]
#[derive(Debug, Default)]
struct Slot {
    number: AtomicU64,
    machine: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
}

#[repr(C)]
struct Page {
    magic: AtomicU64,
    version: AtomicU64,
    _reserved: [AtomicU64; 2],
    slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Page>() <= PAGE && HEAD == std::mem::offset_of!(Page, slots));

/// The marks of a file of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The file's number.
    pub number: u64,
    /// At least so many bytes were written.
    pub written: u64,
    /// So many bytes must be there and intact.
    pub required: u64,
    /// Whether the machine has been booted since they were written.
    pub machine_restarted: bool,
}

impl Mark {
    /// Whether the file is a manifest.
    pub(in crate::storage::engine) fn is_manifest(&self) -> bool {
        self.number & MANIFEST != 0
    }
}

/// What is done before a file of the log is synced.
pub(in crate::storage::engine) type BeforeSync = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// The file with the marks, mapped.
struct Marks {
    page: NonNull<Page>,
    dir: PathBuf,
    machine: u64,
    /// Makes durable what records of the log name elsewhere.
    before_sync: BeforeSync,
    /// Held while a free slot is chosen.
    claim: Mutex<(), { Lock::Callback as u8 }>,
    /// The slots that are on the disk: numbers of files, and how far they are synced.
    on_disk: Mutex<Vec<(u64, u64)>, { Lock::Callback as u8 }>,
}

// SAFETY: the page holds atomics only, and stays mapped until the value is dropped.
#[allow(unsafe_code)]
unsafe impl Send for Marks {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Marks {}

impl Drop for Marks {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no other reference to it exists.
        if let Err(error) = unsafe { munmap(self.page.as_ptr().cast(), PAGE) } {
            log::debug!("cannot unmap {NAME}: {error}");
        }
    }
}

/// The databases that this process has open or is opening.
static OPEN: Mutex<Vec<Arc<Marks>>, { Lock::Callback as u8 }> = Mutex::new(Vec::new());

/// Keeps the marks of a database while it is open.
pub struct Keeper {
    marks: Arc<Marks>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        OPEN.lock().retain(|marks| !Arc::ptr_eq(marks, &self.marks));
    }
}

impl Keeper {
    /// Keeps marks from now on; creates the file if it does not exist. `before_sync` is called before
    /// each sync of a file of the log.
    ///
    /// # Errors
    /// The file cannot be created or mapped.
    pub(in crate::storage::engine) fn new(dir: &Path, before_sync: BeforeSync) -> Result<Keeper> {
        let marks = Arc::new(Marks::open(dir, before_sync)?);
        OPEN.lock().push(marks.clone());
        Ok(Keeper { marks })
    }

    /// Syncs the marks to the disk, if slots or how far files are synced have changed.
    ///
    /// # Errors
    /// The sync fails.
    pub fn sync(&self) -> Result<()> {
        Ok(self.marks.sync()?)
    }

    /// Frees the slots of files that do not exist any more.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(in crate::storage::engine) fn forget_missing(&self) -> std::io::Result<()> {
        let mut there = Vec::new();
        for entry in self.marks.dir.read_dir()? {
            let path = entry?.path();
            there.extend(super::number(&path).or_else(|| manifest_number(&path)));
        }
        for slot in &self.marks.page().slots {
            if !there.contains(&slot.number.load(Ordering::Acquire)) {
                slot.number.store(0, Ordering::Release);
            }
        }
        Ok(())
    }
}

/// Whether this process has the database open.
pub(in crate::storage::engine) fn is_open(dir: &Path) -> bool {
    OPEN.lock().iter().any(|marks| marks.dir == dir)
}

const MANIFEST: u64 = 1 << 63;

/// The number of a manifest in the marks, from its path.
pub(in crate::storage::engine) fn manifest_number(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_prefix("MANIFEST-")?;
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    all.then(|| Some(digits.parse::<u64>().ok()? | MANIFEST))?
}

/// Adds marks to a copy of a database, which is synced.
///
/// # Errors
/// They cannot be written.
pub(in crate::storage::engine) fn add_to_copy(dir: &Path) -> Result<()> {
    let mut words = vec![0; PAGE / size_of::<u64>()];
    words[0] = MAGIC;
    words[1] = VERSION;
    let mut slots = words[HEAD / 8..].as_chunks_mut::<4>().0.iter_mut();
    for entry in dir.read_dir()? {
        let path = entry?.path();
        let number = super::number(&path).or_else(|| manifest_number(&path));
        if let (Some(number), Some(slot)) = (number, slots.next()) {
            let whole = super::scan(&path)?.intact;
            *slot = [number, 0, whole, whole];
        }
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut file = File::create(dir.join(NAME))?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(crate::sys::files::sync_dir(dir)?)
}

/// Reads the marks of a database that is not open. `None` if it has none.
///
/// # Errors
/// The file cannot be read.
pub fn read(dir: &Path) -> Result<Option<Vec<Mark>>> {
    let file = match File::open(dir.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    file.take(PAGE as u64).read_to_end(&mut bytes)?;
    let words: Vec<u64> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    if bytes.len() < PAGE || words[0] != MAGIC || words[1] != VERSION {
        let text = format!("{} is damaged", dir.join(NAME).display());
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text).into());
    }
    let machine = machine();
    let slots = words[HEAD / 8..].as_chunks::<4>().0.iter();
    let used = slots.filter(|[number, ..]| *number != 0);
    Ok(Some(
        used.map(|&[number, of, written, synced]| {
            let machine_restarted = of == 0 || of != machine;
            Mark {
                number,
                written,
                required: if machine_restarted { synced } else { written },
                machine_restarted,
            }
        })
        .collect(),
    ))
}

/// Changes with each boot of the machine; 0 if the system has no boot id.
fn machine() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(&id);
    if id.is_empty() { 0 } else { hasher.finish() }
}

impl Marks {
    #[allow(unsafe_code)]
    fn open(dir: &Path, before_sync: BeforeSync) -> Result<Marks> {
        let path = dir.join(NAME);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = match options.open(&path) {
            Ok(file) if file.metadata()?.len() >= PAGE as u64 => file,
            _ => {
                // The space on the disk is taken now, so that it is not missing later.
                let mut page = vec![0; PAGE];
                page[..8].copy_from_slice(&MAGIC.to_ne_bytes());
                page[8..16].copy_from_slice(&VERSION.to_ne_bytes());
                // The file has its name once it is whole: a start on a full disk, or a crash of the
                // machine, leaves none that would count as damaged.
                let begun = dir.join(BEGUN);
                let written =
                    options
                        .create(true)
                        .truncate(true)
                        .open(&begun)
                        .and_then(|mut file| {
                            file.write_all(&page)?;
                            file.sync_all()?;
                            std::fs::rename(&begun, &path)?;
                            Ok(file)
                        });
                if written.is_err() {
                    // The error of the write is reported.
                    let _ = std::fs::remove_file(&begun);
                }
                let file = written?;
                crate::sys::files::sync_dir(dir)?;
                file
            }
        };
        // SAFETY: a new mapping at an address that the kernel chooses; the file has this length.
        let page = unsafe {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            mmap(std::ptr::null_mut(), PAGE, protection, flags, &file, 0)
        };
        let page = page.map_err(std::io::Error::from)?;
        let nowhere = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let page = NonNull::new(page.cast()).ok_or_else(nowhere)?;
        Ok(Marks {
            page,
            dir: dir.to_owned(),
            machine: machine(),
            before_sync,
            claim: Mutex::default(),
            on_disk: Mutex::default(),
        })
    }

    /// Syncs the page to the disk, if files with slots or how far they are synced have changed.
    #[allow(unsafe_code)]
    fn sync(&self) -> std::io::Result<()> {
        let mut on_disk = self.on_disk.lock();
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        let slots = self.page().slots.iter();
        let now = slots.map(|slot| (load(&slot.number), load(&slot.synced)));
        let now: Vec<_> = now.filter(|(number, _)| *number != 0).collect();
        if *on_disk != now {
            // SAFETY: it is mapped with this length.
            unsafe { msync(self.page.as_ptr().cast(), PAGE, MsyncFlags::SYNC) }?;
            *on_disk = now;
        }
        Ok(())
    }

    /// Frees the slot of a file, if it has one.
    fn free(&self, number: u64) {
        for slot in &self.page().slots {
            let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            // If the exchange fails, the slot belongs to another file.
            let _ = slot.number.compare_exchange(number, 0, done, failed);
        }
    }

    #[allow(unsafe_code)]
    fn page(&self) -> &Page {
        // SAFETY: it is mapped, large enough, and holds atomics, for which any bytes are valid.
        unsafe { self.page.as_ref() }
    }
}

/// A file of the log that RocksDB writes.
struct Log {
    marks: Arc<Marks>,
    number: u64,
    /// `None` if all are taken.
    slot: Option<usize>,
    ends: Mutex<RecordEnds, { Lock::Callback as u8 }>,
}

impl Log {
    fn create(marks: Arc<Marks>, number: u64) -> Log {
        marks.free(number);
        // A log and a manifest may be created at the same time.
        let claim = marks.claim.lock();
        let slots = &marks.page().slots;
        let is_free = |slot: &Slot| slot.number.load(Ordering::Acquire) == 0;
        let slot = slots.iter().position(is_free);
        if let Some(slot) = slot.map(|slot| &slots[slot]) {
            slot.written.store(0, Ordering::Relaxed);
            slot.synced.store(0, Ordering::Relaxed);
            slot.machine.store(marks.machine, Ordering::Relaxed);
            slot.number.store(number, Ordering::Release);
        }
        drop(claim);
        Log {
            marks,
            number,
            slot,
            ends: Mutex::default(),
        }
    }

    fn slot(&self) -> Option<&Slot> {
        self.slot.map(|slot| &self.marks.page().slots[slot])
    }
}

/// Finds the ends of records in the bytes appended to a file, however they are divided.
#[derive(Default)]
struct RecordEnds {
    /// Bytes appended.
    len: u64,
    /// The end of the last complete record.
    whole: u64,
    header: [u8; HEADER],
    header_len: usize,
    /// Bytes of the fragment that are still to come.
    to_come: usize,
    /// Whether the record continues after this fragment.
    in_record: bool,
    /// The format is not known; ends are not found any more.
    lost: bool,
}

impl RecordEnds {
    fn append(&mut self, mut data: &[u8]) {
        while !data.is_empty() && !self.lost {
            let taken = match (self.to_come, self.header_len) {
                (0, HEADER) => 0,
                (0, _) => self.take_header(data),
                (to_come, _) => {
                    let taken = to_come.min(data.len());
                    self.to_come -= taken;
                    taken
                }
            };
            data = &data[taken..];
            self.len += taken as u64;
            if self.to_come == 0 && self.header_len == HEADER {
                self.header_len = 0;
                if !self.in_record {
                    self.whole = self.len;
                }
            }
        }
    }

    /// Takes bytes of a header, or of the padding at the end of a block.
    fn take_header(&mut self, data: &[u8]) -> usize {
        let left = BLOCK - (self.len % BLOCK as u64) as usize;
        if self.header_len == 0 && left < HEADER {
            // The rest of the block is padding, which ends no record.
            let taken = left.min(data.len());
            return taken;
        }
        let taken = (HEADER - self.header_len).min(data.len());
        self.header[self.header_len..][..taken].copy_from_slice(&data[..taken]);
        self.header_len += taken;
        if self.header_len == HEADER {
            let [.., low, high, kind] = self.header;
            self.to_come = usize::from(u16::from_le_bytes([low, high]));
            self.in_record = [FIRST, MIDDLE].contains(&kind);
            self.lost = kind == ZERO || REUSED.contains(&kind);
        }
        taken
    }
}

/// The functions that `files.cc` calls. A log comes from `kedis_wal_created` and is used until
/// `kedis_wal_closed`.
#[allow(unsafe_code)]
mod calls {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// The marks and the number of the log file or manifest with this path, if its database is
    /// open.
    ///
    /// # Safety
    /// `path` points to `len` bytes.
    unsafe fn place(path: *const u8, len: usize) -> Option<(Arc<Marks>, u64)> {
        // SAFETY: by the contract.
        let path = unsafe { std::slice::from_raw_parts(path, len) };
        let path = Path::new(OsStr::from_bytes(path));
        let number = super::super::number(path).or_else(|| manifest_number(path))?;
        let dir = path.parent()?;
        let open = OPEN.lock();
        let marks = open.iter().find(|marks| marks.dir == dir)?;
        Some((marks.clone(), number))
    }

    /// # Safety
    /// `path` points to `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_wal_created(path: *const u8, len: usize) -> Option<Box<Log>> {
        // SAFETY: by the contract.
        let (marks, number) = unsafe { place(path, len) }?;
        Some(Box::new(Log::create(marks, number)))
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_wal_closed(log: Box<Log>) {
        drop(log);
    }

    /// # Safety
    /// `data` points to `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_wal_appended(log: &Log, data: *const u8, len: usize) {
        let mut ends = log.ends.lock();
        // SAFETY: by the contract.
        ends.append(unsafe { std::slice::from_raw_parts(data, len) });
        if let Some(slot) = log.slot() {
            slot.written.store(ends.whole, Ordering::Release);
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_wal_written(log: &Log) -> u64 {
        log.slot()
            .map_or(0, |slot| slot.written.load(Ordering::Acquire))
    }

    /// Called before the file is synced. Returns 0, or an error number.
    #[unsafe(no_mangle)]
    extern "C" fn kedis_wal_before_sync(log: &Log) -> i32 {
        match log.number & MANIFEST {
            0 => error_number((log.marks.before_sync)()),
            _ => 0,
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_wal_synced(log: &Log, up_to: u64, ok: bool) {
        match log.slot() {
            Some(slot) if ok => _ = slot.synced.fetch_max(up_to, Ordering::AcqRel),
            // The kernel may have dropped the pages that it could not write.
            Some(slot) => slot.machine.store(0, Ordering::Release),
            None => {}
        }
    }

    /// Called before the file is removed; returns whether it may be.
    ///
    /// # Safety
    /// `path` points to `len` bytes.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn kedis_wal_forget(path: *const u8, len: usize) -> bool {
        // SAFETY: by the contract.
        let Some((marks, number)) = (unsafe { place(path, len) }) else {
            return true;
        };
        marks.free(number);
        let synced = marks.sync();
        if let Err(error) = &synced {
            log::error!("{}: {error}", marks.dir.join(NAME).display());
        }
        synced.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(kind: u8, len: usize) -> Vec<u8> {
        let [low, high] = (len as u16).to_le_bytes();
        [&[1, 2, 3, 4, low, high, kind][..], &vec![7; len]].concat()
    }

    #[test]
    fn records_end_where_they_do_however_they_are_cut() {
        let mut file = fragment(1, 100);
        let mut ends = vec![file.len() as u64];
        // A record over three blocks, then one that leaves no room for a header.
        file.extend(fragment(2, BLOCK - file.len() - HEADER));
        file.extend(fragment(3, BLOCK - HEADER));
        file.extend(fragment(4, 10));
        ends.push(file.len() as u64);
        file.extend(fragment(1, BLOCK - HEADER - 3 - file.len() % BLOCK));
        ends.push(file.len() as u64);
        file.extend([0; 3]);
        file.extend(fragment(1, 0));
        ends.push(file.len() as u64);
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut found = RecordEnds::default();
            let mut rest = file.as_slice();
            while !rest.is_empty() {
                let len = rng.usize(1..=rest.len().min(40_000));
                let (data, others) = rest.split_at(len);
                found.append(data);
                rest = others;
                let at = (file.len() - rest.len()) as u64;
                let last = ends.iter().rev().find(|end| **end <= at).copied();
                assert_eq!(found.whole, last.unwrap_or(0), "at {at}");
            }
        }
    }

    /// A power cut after the removal left a slot without a file, and the start was refused as if
    /// data were lost.
    #[test]
    fn the_disk_forgets_a_file_before_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::new(dir.path(), Box::new(|| Ok(()))).unwrap();
        for number in [12, 13] {
            let log = Log::create(keeper.marks.clone(), number);
            log.slot().unwrap().synced.store(200, Ordering::Release);
        }
        keeper.sync().unwrap();
        let on_disk = || keeper.marks.on_disk.lock().clone();
        assert_eq!(on_disk(), [(12, 200), (13, 200)]);
        let path = dir.path().join("000012.log");
        let path = path.to_str().unwrap();
        // SAFETY: pointer and length are those of `path`.
        #[allow(unsafe_code)]
        let may_go = unsafe { calls::kedis_wal_forget(path.as_ptr(), path.len()) };
        assert!(may_go);
        assert_eq!(on_disk(), [(13, 200)]);
    }

    #[test]
    fn marks_are_read_as_they_were_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let keeper = Keeper::new(dir.path(), Box::new(|| Ok(()))).unwrap();
        let log = Log::create(keeper.marks.clone(), 12);
        let slot = log.slot().unwrap();
        slot.written.store(300, Ordering::Release);
        slot.synced.store(200, Ordering::Release);
        let mark = |required, machine_restarted| Mark {
            number: 12,
            written: 300,
            required,
            machine_restarted,
        };
        assert_eq!(read(dir.path()).unwrap(), Some(vec![mark(300, false)]));
        // As after a failed sync, or a boot of the machine.
        slot.machine.store(0, Ordering::Release);
        assert_eq!(read(dir.path()).unwrap(), Some(vec![mark(200, true)]));
        keeper.marks.free(12);
        assert_eq!(read(dir.path()).unwrap(), Some(Vec::new()));
        std::fs::write(dir.path().join("short"), "").unwrap();
        std::fs::rename(dir.path().join("short"), dir.path().join(NAME)).unwrap();
        assert!(read(dir.path()).is_err());
    }
}
