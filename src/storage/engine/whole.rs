//! Checks before a database is opened: is it one, is it complete, would opening it lose data?
//!
//! RocksDB creates a new database if it finds no `CURRENT`, and then removes the tables that it
//! does not know. It skips what it cannot read of the write-ahead log, with all that follows, and
//! removes the log. So files are inspected before, and a start that would lose acknowledged data is
//! refused with an explanation. The inspection changes nothing.
//!
//! What a crash leaves of the log is no loss: a last record that is not complete was never
//! acknowledged, nor, if the machine was booted since, was there a promise to keep what was not
//! synced. Such an end is cut off, so that no record stands behind a gap.

use super::files::is_file_of_copy;
use crate::encoding::binlog::Stored;
use crate::encoding::keys;
use crate::encoding::values::ValueRef;
use crate::storage::engine::options::StorageConfig;
use crate::storage::engine::values::{self, Segments};
use crate::storage::engine::wal::{self, Look, batch, marks};
use crate::storage::{Result, StorageError};
use crate::sys::files::sync_dir;
use rustix::fs::{FlockOperation, fcntl_lock, statvfs};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The directory, inside of the database's, for copies of files that a start has cut.
const LOST: &str = "lost";
/// A file that exists while a database that has lost data is not yet [mended](super::mend).
const UNMENDED: &str = "UNMENDED";
/// An interrupted first start leaves at most so many bytes of `MANIFEST-000001`.
const FIRST_MANIFEST_MAX_BYTES: u64 = 1024;

/// The number of the binlog's column family, which each database makes first. It has another after the
/// repair of a database that had no table of the binlog; what its rows name is not looked at then.
const BINLOG_FAMILY: usize = 1;

/// A new database takes less; the reserve comes on top, if there is room.
const NEW_BYTES: u64 = 1 << 20;

pub(super) const RESTORE: &str = "Put a backup or the copy of a replica in its place";

/// The result of the inspection, and what must be done before the database is opened.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// There is no database yet.
    pub is_new: bool,
    /// The end to cut off of the manifest before it is read.
    torn_manifest: Option<Cut>,
    /// The ends to cut off of log files.
    cuts: Vec<Cut>,
    /// The losses that result, in words.
    pub losses: Vec<String>,
}

/// A file to be cut to `len` bytes.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    path: PathBuf,
    len: u64,
    why: String,
    /// Whether a copy of the whole file is kept: the rest may still be of use.
    keep_whole: bool,
}

impl Cut {
    fn run(&self, dir: &Path) -> Result<()> {
        log::warn!("{}: {}", self.path.display(), self.why);
        if self.keep_whole {
            keep(dir, &self.path)?;
        }
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(self.len)?;
        Ok(file.sync_all()?)
    }
}

/// Inspects the directory of a database that this process has not opened.
///
/// # Errors
/// [`StorageError::Damaged`] if it was a database and is not complete, or if a start would lose
/// acknowledged data and [`StorageConfig::accept_data_loss`] does not allow it;
/// [`StorageError::Format`] if another process has it open.
pub(super) fn inspect(config: &StorageConfig) -> Result<Found> {
    let dir = config.dir.as_path();
    refuse_if_locked(dir)?;
    let Some(manifest) = current(dir)? else {
        refuse_remains(dir)?;
        return Ok(Found {
            is_new: true,
            ..Found::default()
        });
    };
    let torn = inspect_manifest(&manifest)?;
    let mut found = inspect_log(dir)?;
    found.torn_manifest = torn;
    if !found.losses.is_empty() && !config.accept_data_loss {
        return Err(StorageError::Damaged(format!(
            "{} has lost a part of what was acknowledged: {}. {RESTORE}, or start once with \
             --accept-data-loss to continue without what is lost",
            dir.display(),
            found.losses.join("; "),
        )));
    }
    Ok(found)
}

impl Found {
    /// Cuts off the end of the manifest that was not synced. The manifest has marks, so the
    /// database is Kedis'.
    pub(super) fn cut_manifest(&self, dir: &Path) -> Result<()> {
        self.torn_manifest.iter().try_for_each(|cut| cut.run(dir))
    }

    /// Cuts off the ends of log files. The database is not open.
    pub fn cut(&self, dir: &Path) -> Result<()> {
        if !self.losses.is_empty() {
            log::warn!(
                "the database continues without a part of what was acknowledged: {}",
                self.losses.join("; ")
            );
            set_unmended(dir, &self.losses)?;
        }
        for cut in &self.cuts {
            cut.run(dir)?;
        }
        if !self.losses.is_empty() {
            // They describe what is given up.
            remove_if_there(&dir.join(marks::NAME))?;
            values::forget_missing(dir)?;
            sync_dir(dir)?;
        }
        Ok(())
    }
}

/// Whether the database must be mended before it is used.
pub(super) fn is_unmended(dir: &Path) -> bool {
    dir.join(UNMENDED).exists()
}

/// Notes that the database must be mended, and what is lost, in words.
pub(super) fn set_unmended(dir: &Path, lost: &[String]) -> io::Result<()> {
    let path = dir.join(UNMENDED);
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    for loss in lost {
        writeln!(file, "{loss}")?;
    }
    file.sync_all()?;
    sync_dir(dir)
}

/// What was noted as lost, as the database is not mended yet.
pub(super) fn noted_losses(dir: &Path) -> io::Result<Vec<String>> {
    let text = match std::fs::read(dir.join(UNMENDED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().map(str::to_owned).collect())
}

/// Notes that the database is mended, and logs what was given up for that.
pub(super) fn set_mended(dir: &Path) -> io::Result<()> {
    for loss in noted_losses(dir)? {
        log::warn!("given up: {loss}");
    }
    remove_if_there(&dir.join(UNMENDED))?;
    sync_dir(dir)
}

/// Copies a file to the directory of lost ones.
pub(super) fn keep(dir: &Path, path: &Path) -> io::Result<()> {
    let to = place_of_lost(dir, path)?;
    std::fs::copy(path, &to)?;
    File::open(&to)?.sync_all()?;
    kept(dir, path, &to)
}

/// Puts a table into the directory of lost ones, without reading it. RocksDB may remove it then, but never
/// changes it.
pub(super) fn keep_table(dir: &Path, path: &Path) -> io::Result<()> {
    let to = place_of_lost(dir, path)?;
    match std::fs::hard_link(path, &to) {
        Ok(()) => kept(dir, path, &to),
        Err(error) => {
            log::debug!(
                "{} is copied, as it cannot be linked: {error}",
                path.display()
            );
            keep(dir, path)
        }
    }
}

/// The path that a file has in the directory of lost ones, where it is not yet.
fn place_of_lost(dir: &Path, path: &Path) -> io::Result<PathBuf> {
    let lost = dir.join(LOST);
    std::fs::create_dir_all(&lost)?;
    let to = lost.join(path.file_name().unwrap_or_default());
    remove_if_there(&to)?;
    Ok(to)
}

fn kept(dir: &Path, path: &Path, to: &Path) -> io::Result<()> {
    log::warn!("all of {} is kept as {}", path.display(), to.display());
    sync_dir(&dir.join(LOST))?;
    sync_dir(dir)
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The error for a database that is open elsewhere.
pub(super) fn in_use(dir: &Path) -> StorageError {
    StorageError::Format(format!(
        "another server uses {}: stop it, or choose another `dir`",
        dir.display()
    ))
}

/// Refuses a database that is open elsewhere: RocksDB holds this lock as long as it is.
pub(super) fn refuse_if_locked(dir: &Path) -> Result<()> {
    // The lock does not exclude the process that holds it.
    if marks::is_open(dir) {
        return Err(in_use(dir));
    }
    let file = match OpenOptions::new().write(true).open(dir.join("LOCK")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Err(in_use(dir)),
        // On a file system without locks, RocksDB reports that.
        _ => Ok(()),
    }
}

/// Refuses to begin a database on a disk without room for it: what a failed first start leaves
/// would be in the way of the next.
pub(super) fn refuse_full(dir: &Path) -> Result<()> {
    if dir.join("CURRENT").exists() {
        return Ok(());
    }
    let Some(found) = dir.ancestors().find_map(|above| statvfs(above).ok()) else {
        return Ok(());
    };
    let free = found.f_bavail * found.f_frsize;
    match free < NEW_BYTES {
        true => Err(StorageError::Format(format!(
            "a new database needs {} KiB, and the disk of {} has {} left: No space left on device",
            NEW_BYTES >> 10,
            dir.display(),
            free >> 10,
        ))),
        false => Ok(()),
    }
}

fn damaged(dir: &Path, what: &str) -> StorageError {
    StorageError::Damaged(format!(
        "{} is damaged: {}. {RESTORE}, or save what can be read with kedis-server --repair",
        dir.display(),
        what.trim_end_matches('.'),
    ))
}

/// Adds advice to the error of a database that RocksDB cannot open because it is corrupt.
pub(super) fn unreadable(dir: &Path, error: rocksdb::Error) -> StorageError {
    match error.kind() {
        rocksdb::ErrorKind::Corruption => damaged(dir, error.as_ref()),
        _ => error.into(),
    }
}

/// Cuts off the end of the manifest that was not synced. Returns whether there is a database, judged by
/// `CURRENT` and the manifest.
pub(super) fn cut_current(dir: &Path) -> Result<bool> {
    let Some(manifest) = current(dir)? else {
        return Ok(false);
    };
    let torn = inspect_manifest(&manifest)?;
    torn.iter().try_for_each(|cut| cut.run(dir))?;
    Ok(true)
}

/// The manifest that `CURRENT` names, if there is a database.
fn current(dir: &Path) -> Result<Option<PathBuf>> {
    let text = match std::fs::read(dir.join("CURRENT")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let name = std::str::from_utf8(&text).unwrap_or_default();
    let name = name.strip_suffix('\n').unwrap_or_default();
    if text.is_empty() {
        return Err(damaged(dir, "CURRENT is empty"));
    }
    if !name.starts_with("MANIFEST-") || !is_file_of_copy(name) {
        return Err(damaged(dir, "CURRENT names no manifest"));
    }
    let manifest = dir.join(name);
    match manifest.metadata() {
        Ok(found) if found.len() > 0 => Ok(Some(manifest)),
        Ok(_) => Err(damaged(dir, &format!("{name} is empty"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = format!("{name}, which CURRENT names, is missing");
            Err(damaged(dir, &what))
        }
        Err(error) => Err(error.into()),
    }
}

/// RocksDB would take a truncated manifest for a shorter one, and remove the tables that the rest
/// of it named. Returns what a crash of the machine has left after the last synced record and must
/// be cut off, because RocksDB does not open such a manifest.
fn inspect_manifest(path: &Path) -> Result<Option<Cut>> {
    let dir = path.parent().unwrap_or(path);
    let scan = wal::scan(path)?;
    let number = marks::manifest_number(path);
    // Errors of the marks are reported by `inspect_log`.
    let marks = marks::read(dir).ok().flatten();
    let kept = marks.is_some();
    let marks = marks.unwrap_or_default();
    let mark = marks.iter().find(|mark| Some(mark.number) == number);
    let is_whole = match mark {
        Some(mark) => scan.intact >= mark.required,
        // A crash of a build that keeps no marks can leave an incomplete last record.
        None => {
            let is_torn = scan.fault == Some(wal::Fault::Incomplete) && scan.records_after == 0;
            scan.fault.is_none() || is_torn && !kept
        }
    };
    if !is_whole {
        let why = scan.fault.map(|fault| fault.to_string());
        let why = why.unwrap_or_else(|| "it ends too early".to_owned());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let what = format!("{name} cannot be read from byte {} on: {why}", scan.intact);
        return Err(damaged(dir, &what));
    }
    // RocksDB tolerates an incomplete last record, but no other fault.
    let is_wrong = mark.is_some() && scan.size > scan.intact;
    Ok(is_wrong.then(|| {
        let left_out = scan.size - scan.intact;
        let fault = scan
            .fault
            .map_or("zeros".to_owned(), |fault| fault.to_string());
        Cut {
            path: path.to_owned(),
            len: scan.intact,
            why: format!("its last {left_out} bytes are left out, {fault}"),
            keep_whole: false,
        }
    }))
}

/// Without `CURRENT` a directory counts as empty only if it holds no other file of a database. An
/// interrupted first start may have left a few.
fn refuse_remains(dir: &Path) -> Result<()> {
    let mut remains = Vec::new();
    for entry in dir.read_dir()? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let of_first_start = match name.as_str() {
            "IDENTITY" => true,
            "MANIFEST-000001" => entry.metadata()?.len() <= FIRST_MANIFEST_MAX_BYTES,
            _ => false,
        };
        let of_first_start = of_first_start || name == marks::NAME;
        let is_ours = is_file_of_copy(&name)
            || name == UNMENDED
            || name == values::DIR && values::has_segments(&entry.path())?;
        if is_ours && !of_first_start {
            remains.push(name);
        }
    }
    let marks = marks::read(dir)?.unwrap_or_default();
    let had_log = marks.iter().any(|mark| !mark.is_manifest());
    if had_log && remains.is_empty() {
        remains.push(marks::NAME.to_owned());
    }
    remains.sort();
    let what = match remains.as_slice() {
        [] => return Ok(()),
        [one] => format!("it has {one}, but no CURRENT"),
        [first, others @ ..] => {
            let others = others.len();
            format!("it has {first} and {others} more files of a database, but no CURRENT")
        }
    };
    Err(damaged(dir, &what))
}

/// Reads the log as far as it is intact.
pub(super) fn inspect_log(dir: &Path) -> Result<Found> {
    let files = wal::files(dir)?;
    let marks = match marks::read(dir) {
        Ok(marks) => marks.unwrap_or_default(),
        Err(StorageError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            let mut found = Found::default();
            found.losses.push(error.to_string());
            found.losses.extend(values::missing(dir)?);
            return Ok(found);
        }
        Err(error) => return Err(error),
    };
    let manifest = current(dir).ok().flatten();
    let manifest = manifest.and_then(|path| marks::manifest_number(&path));
    let knows_manifest = marks.iter().any(|mark| Some(mark.number) == manifest);
    let mut marks: BTreeMap<u64, marks::Mark> = marks
        .into_iter()
        .filter(|mark| !mark.is_manifest())
        .map(|mark| (mark.number, mark))
        .collect();
    let newest_mark = marks.keys().next_back().copied();
    let has_newer = |newest| files.iter().any(|(number, _)| *number > newest);
    if !knows_manifest && newest_mark.is_some_and(has_newer) {
        // A build that keeps no marks has run since, and has made a manifest of its own.
        marks.clear();
    }
    let mut found = Found {
        losses: values::missing(dir)?,
        ..Found::default()
    };
    for (number, mark) in &marks {
        if mark.required > 0 && files.iter().all(|(there, _)| there != number) {
            let bytes = mark.required;
            let what = format!("{number:06}.log, with {bytes} bytes, is missing");
            found.losses.push(what);
        }
    }
    let missing_from = marks
        .values()
        .find(|mark| mark.required > 0 && files.iter().all(|(there, _)| *there != mark.number))
        .map(|mark| mark.number);
    let mut chain = LogChain::default();
    let values = RefCell::new(Segments::of(dir)?);
    for (number, path) in &files {
        chain.is_broken |= missing_from.is_some_and(|missing| missing < *number);
        let mark = marks.get(number);
        let is_good = |record: &[u8]| names_what_is_there(&mut values.borrow_mut(), record);
        // What was written since the last sync may have got to the disk without the values that it
        // names. After a crash of the process alone, both are there.
        let look = mark.filter(|mark| mark.machine_restarted).map(|mark| Look {
            from: mark.required,
            is_good: &is_good,
        });
        let scan = wal::scan_with(path, look)?;
        found.judge(&mut chain, path, &scan, mark);
    }
    Ok(found)
}

/// Whether the value log has all that a record names.
fn names_what_is_there(values: &mut Segments, record: &[u8]) -> bool {
    batch::each_put(record, |family, key, row| match keys::split_base(key) {
        _ if family == BINLOG_FAMILY => {
            let stored = Stored::decode(row);
            stored.is_ok_and(|stored| stored.refs().all(|(_, at)| values.have(&at)))
        }
        None => true,
        Some(_) => ValueRef::decode(row).is_ok_and(|at| values.have(&at)),
    })
}

/// How far the log files continue one another.
#[derive(Default)]
struct LogChain {
    /// The sequence number that must come next.
    next: Option<u64>,
    /// The file before does not reach that number.
    is_broken: bool,
}

impl Found {
    fn judge(
        &mut self,
        chain: &mut LogChain,
        path: &Path,
        scan: &wal::Scan,
        mark: Option<&marks::Mark>,
    ) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let cut = |len, why: String, keep_whole| Cut {
            path: path.to_owned(),
            len,
            why,
            keep_whole,
        };
        let first = scan.sequences.map(|(first, _)| first);
        if chain.is_broken && first.is_some() && first != chain.next {
            // It continues after a gap, and may depend on what is missing.
            let may_go = mark.is_some_and(|mark| mark.required == 0);
            if !may_go {
                let what = format!("{name} goes on after what is missing");
                self.losses.push(what);
            }
            let why = "left out, it goes on after what is missing".to_owned();
            self.cuts.push(cut(0, why, !may_go));
            return;
        }
        if let Some((_, next)) = scan.sequences {
            chain.next = Some(next);
        }
        let is_lost = match mark {
            Some(mark) => scan.intact < mark.required,
            // Intact records after a fault: the fault is not the end.
            None => scan.records_after > 0,
        };
        let why = scan.fault.map(|fault| fault.to_string());
        if is_lost {
            let why = why.unwrap_or_else(|| "it ends too early".to_owned());
            let at = scan.intact;
            let after = match (scan.records_after, mark) {
                (0, Some(mark)) => format!("{} bytes were written", mark.required),
                (0, None) => String::new(),
                (records, _) => format!("{records} whole records follow"),
            };
            let what = format!("{name} cannot be read from byte {at} on: {why}; {after}");
            self.losses.push(what);
        }
        if let Some(fault) = scan.fault {
            let left_out = scan.size - scan.intact;
            let why = format!("its last {left_out} bytes are left out, {fault}");
            self.cuts.push(cut(scan.intact, why, is_lost));
        }
        chain.is_broken = is_lost
            || match mark {
                // A record that could not be written completely was written again to another file.
                Some(mark) => scan.intact < mark.written,
                None => scan.fault.is_some(),
            };
    }
}
