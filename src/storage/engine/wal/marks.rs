//! How far the files of the write-ahead log, and the manifests, were written and synced, in
//! a file of its own that outlives the process: it tells a file that has lost something
//! from one whose last record was under way. Manifests have the format of the log.
//!
//! After a crash of the process alone the system still has all that was written. After a
//! crash of the machine only what was synced must be there; the machine has an id that
//! changes with each of its starts.
//!
//! ```text
//! magic (8) ‖ version (8) ‖ 16 zeros, then slots:
//! number of the file (8; 0: free; a manifest's with the highest bit) ‖ machine (8) ‖ written (8) ‖ synced (8)
//! ```
//!
//! Both lengths end where a record ends. The file is mapped into memory, so that noting a
//! commit costs two stores and no call of the system. A page of it goes to the disk after
//! what it speaks of, so it never says too much of what is synced. The file is called
//! [`NAME`] and stands in the directory of the database. A file of the log that RocksDB
//! does not need any more loses its slot, on the disk too, before it is removed: a slot
//! without its file means that something is lost.

use super::{BLOCK, FIRST, HEADER, MIDDLE, REUSED, ZERO};
use crate::storage::Result;
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
pub const NAME: &str = "WAL-MARKS";
const MAGIC: u64 = u64::from_be_bytes(*b"KEDISWAL");
const VERSION: u64 = 1;
const PAGE: usize = 4096;
/// Files of the log whose marks are kept at the same time. There are never nearly as many;
/// what has no slot is judged by its contents alone.
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

/// What is known of a file of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its number.
    pub number: u64,
    /// Bytes that were written, at the least.
    pub written: u64,
    /// Bytes that must be there and whole.
    pub required: u64,
    /// Whether the machine has been started anew since they were written.
    pub machine_restarted: bool,
}

impl Mark {
    /// Whether it is of a manifest.
    pub fn is_manifest(&self) -> bool {
        self.number & MANIFEST != 0
    }
}

/// The file, mapped.
struct Marks {
    page: NonNull<Page>,
    dir: PathBuf,
    machine: u64,
    /// Held while a slot is taken.
    claim: Mutex<(), { Lock::Callback as u8 }>,
    /// Which files the disk has slots of, and how far they are synced by these.
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
        // SAFETY: mapped with this length, and nobody refers to it any more.
        if let Err(error) = unsafe { munmap(self.page.as_ptr().cast(), PAGE) } {
            log::debug!("cannot unmap {NAME}: {error}");
        }
    }
}

/// The databases of this process that are open, or about to be.
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
    /// Keeps marks from now on, in a file that is made if it is not there.
    ///
    /// # Errors
    /// The file cannot be made or mapped.
    pub fn new(dir: &Path) -> Result<Keeper> {
        let marks = Arc::new(Marks::open(dir)?);
        OPEN.lock().push(marks.clone());
        Ok(Keeper { marks })
    }

    /// Has the disk take how far the files are synced, if that has changed.
    ///
    /// # Errors
    /// The disk does not.
    pub fn sync(&self) -> Result<()> {
        Ok(self.marks.sync()?)
    }

    /// Forgets files that are gone.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn forget_missing(&self) -> std::io::Result<()> {
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

/// Whether this process has a database open.
pub fn is_open(dir: &Path) -> bool {
    OPEN.lock().iter().any(|marks| marks.dir == dir)
}

const MANIFEST: u64 = 1 << 63;

/// What a manifest is called here, by its name.
pub fn manifest_number(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_prefix("MANIFEST-")?;
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    all.then(|| Some(digits.parse::<u64>().ok()? | MANIFEST))?
}

/// Adds marks to a copy of a database, all of which is synced.
///
/// # Errors
/// They cannot be written.
pub fn add_to_copy(dir: &Path) -> Result<()> {
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

/// What the file says of a database that nobody has open. `None` if there is no such file.
///
/// # Errors
/// It cannot be read.
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

/// Changes with each start of the machine; 0 where the system does not tell.
fn machine() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(&id);
    if id.is_empty() { 0 } else { hasher.finish() }
}

impl Marks {
    #[allow(unsafe_code)]
    fn open(dir: &Path) -> Result<Marks> {
        let path = dir.join(NAME);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = match options.open(&path) {
            Ok(file) if file.metadata()?.len() >= PAGE as u64 => file,
            _ => {
                // Room on the disk is taken now: none may be missing later.
                let mut page = vec![0; PAGE];
                page[..8].copy_from_slice(&MAGIC.to_ne_bytes());
                page[8..16].copy_from_slice(&VERSION.to_ne_bytes());
                let mut file = options.create(true).truncate(true).open(&path)?;
                file.write_all(&page)?;
                file.sync_all()?;
                crate::sys::files::sync_dir(dir)?;
                file
            }
        };
        // SAFETY: nobody else uses that address yet; the length is that of the file.
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
            claim: Mutex::default(),
            on_disk: Mutex::default(),
        })
    }

    /// Has the disk take which files have slots and how far they are synced, if that has
    /// changed.
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

    /// Gives up the slot of a file, if it has one.
    fn free(&self, number: u64) {
        for slot in &self.page().slots {
            let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            // It belongs to another file otherwise.
            let _ = slot.number.compare_exchange(number, 0, done, failed);
        }
    }

    #[allow(unsafe_code)]
    fn page(&self) -> &Page {
        // SAFETY: it is mapped, large enough, and holds atomics, which any bytes are.
        unsafe { self.page.as_ref() }
    }
}

/// A file of the log that RocksDB writes.
struct Log {
    marks: Arc<Marks>,
    slot: usize,
    ends: Mutex<RecordEnds, { Lock::Callback as u8 }>,
}

impl Log {
    fn create(marks: Arc<Marks>, number: u64) -> Option<Log> {
        marks.free(number);
        // A log and a manifest may be made at the same time.
        let claim = marks.claim.lock();
        let slots = &marks.page().slots;
        let is_free = |slot: &Slot| slot.number.load(Ordering::Acquire) == 0;
        let slot = slots.iter().position(is_free)?;
        slots[slot].written.store(0, Ordering::Relaxed);
        slots[slot].synced.store(0, Ordering::Relaxed);
        slots[slot].machine.store(marks.machine, Ordering::Relaxed);
        slots[slot].number.store(number, Ordering::Release);
        drop(claim);
        let ends = Mutex::default();
        Some(Log { marks, slot, ends })
    }

    fn slot(&self) -> &Slot {
        &self.marks.page().slots[self.slot]
    }
}

/// Finds the ends of records in what is appended to a file, however it is cut.
#[derive(Default)]
struct RecordEnds {
    /// Bytes appended.
    len: u64,
    /// Where the last whole record ends.
    whole: u64,
    header: [u8; HEADER],
    header_len: usize,
    /// Bytes of the fragment, or of the padding, that are still to come.
    to_come: usize,
    /// Whether a record goes on after the fragment.
    in_record: bool,
    /// It cannot be followed.
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

    /// Takes bytes of a header, or begins with the padding of a block.
    fn take_header(&mut self, data: &[u8]) -> usize {
        let left = BLOCK - (self.len % BLOCK as u64) as usize;
        if self.header_len == 0 && left < HEADER {
            // No header: what comes is padding and nothing that ends a record.
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

/// What `files.cc` calls. A log comes from `kedis_wal_created` and is used until
/// `kedis_wal_closed`.
#[allow(unsafe_code)]
mod calls {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// The file of a log with this path, in one of the open databases.
    ///
    /// # Safety
    /// The path has this length.
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
    /// The path has this length.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_wal_created(path: *const u8, len: usize) -> Option<Box<Log>> {
        // SAFETY: by the contract.
        let (marks, number) = unsafe { place(path, len) }?;
        Some(Box::new(Log::create(marks, number)?))
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_wal_closed(log: Box<Log>) {
        drop(log);
    }

    /// # Safety
    /// There are as many bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kedis_wal_appended(log: &Log, data: *const u8, len: usize) {
        let mut ends = log.ends.lock();
        // SAFETY: by the contract.
        ends.append(unsafe { std::slice::from_raw_parts(data, len) });
        log.slot().written.store(ends.whole, Ordering::Release);
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_wal_written(log: &Log) -> u64 {
        log.slot().written.load(Ordering::Acquire)
    }

    #[unsafe(no_mangle)]
    extern "C" fn kedis_wal_synced(log: &Log, up_to: u64, ok: bool) {
        match ok {
            true => _ = log.slot().synced.fetch_max(up_to, Ordering::AcqRel),
            // The system may have dropped what the disk did not take.
            false => log.slot().machine.store(0, Ordering::Release),
        }
    }

    /// The file is about to be removed; says whether it may be.
    ///
    /// # Safety
    /// The path has this length.
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

    /// A power cut after the removal left a slot without a file: the start was refused as
    /// if something were lost.
    #[test]
    fn the_disk_forgets_a_file_before_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::new(dir.path()).unwrap();
        for number in [12, 13] {
            let log = Log::create(keeper.marks.clone(), number).unwrap();
            log.slot().synced.store(200, Ordering::Release);
        }
        keeper.sync().unwrap();
        let on_disk = || keeper.marks.on_disk.lock().clone();
        assert_eq!(on_disk(), [(12, 200), (13, 200)]);
        let path = dir.path().join("000012.log");
        let path = path.to_str().unwrap();
        // SAFETY: the path has this length.
        #[allow(unsafe_code)]
        let may_go = unsafe { calls::kedis_wal_forget(path.as_ptr(), path.len()) };
        assert!(may_go);
        assert_eq!(on_disk(), [(13, 200)]);
    }

    #[test]
    fn marks_are_read_as_they_were_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let keeper = Keeper::new(dir.path()).unwrap();
        let log = Log::create(keeper.marks.clone(), 12).unwrap();
        log.slot().written.store(300, Ordering::Release);
        log.slot().synced.store(200, Ordering::Release);
        let mark = |required, machine_restarted| Mark {
            number: 12,
            written: 300,
            required,
            machine_restarted,
        };
        assert_eq!(read(dir.path()).unwrap(), Some(vec![mark(300, false)]));
        // As after a sync that failed, or a start of the machine.
        log.slot().machine.store(0, Ordering::Release);
        assert_eq!(read(dir.path()).unwrap(), Some(vec![mark(200, true)]));
        keeper.marks.free(12);
        assert_eq!(read(dir.path()).unwrap(), Some(Vec::new()));
        std::fs::write(dir.path().join("short"), "").unwrap();
        std::fs::rename(dir.path().join("short"), dir.path().join(NAME)).unwrap();
        assert!(read(dir.path()).is_err());
    }
}
