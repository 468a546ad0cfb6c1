//! The list of the segments that a database needs, in the file `VALUE-LOG` beside the marks of the log.
//! RocksDB's manifest lists tables, so a start without one of them is refused; this does the same for the
//! value log.
//!
//! A segment is listed soon after it was first synced, and with its length once it gets no more records.
//! It is not listed any more before its file is removed. So after a crash at any point all that are
//! listed are there. What the log names and the list does not yet is looked for in the log
//! ([`Segments::have`](super::Segments::have)).
//!
//! ```text
//! "KEDISVL1" (8) ‖ for each segment: number (8) ‖ bytes (8), then the checksum of it all (4)
//! ```

use crate::storage::engine::wal;
use crate::sys::files::sync_dir;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of the file, in the directory of the database.
pub(super) const NAME: &str = "VALUE-LOG";
/// Its name until it is complete.
const BEGUN: &str = "VALUE-LOG.new";
const MAGIC: &[u8; 8] = b"KEDISVL1";
const ENTRY: usize = 16;
const CHECKSUM: usize = 4;

/// Segments by number, with so many bytes at least in their files.
pub(super) type List = BTreeMap<u64, u64>;

/// The list of an open database.
pub(super) struct Listed {
    dir: PathBuf,
    /// What the file has; `None` if there is none, or that is not known.
    on_disk: Option<List>,
    /// Segments that are listed no more, and whose files are not removed yet.
    leaving: BTreeSet<u64>,
}

impl Listed {
    /// That of the database in `dir`, which is not read yet.
    pub(super) fn new(dir: &Path) -> Listed {
        Listed {
            dir: dir.to_owned(),
            on_disk: None,
            leaving: BTreeSet::new(),
        }
    }

    /// Reads the file.
    pub(super) fn read(&mut self) {
        // The inspection before the start has reported a damaged one.
        self.on_disk = read(&self.dir).ok().flatten();
    }

    /// The list to be written when there are these segments; `None` if the file is up to date. Without
    /// any segment no file is made.
    pub(super) fn due(&mut self, mut list: List) -> Option<List> {
        self.leaving.retain(|number| list.remove(number).is_some());
        let is_up_to_date = match &self.on_disk {
            Some(on_disk) => *on_disk == list,
            None => list.is_empty(),
        };
        (!is_up_to_date).then_some(list)
    }

    /// Replaces the list.
    ///
    /// # Errors
    /// The file cannot be written. Either list may be there then.
    pub(super) fn put(&mut self, list: List) -> io::Result<()> {
        self.on_disk = None;
        write(&self.dir, &list)?;
        self.on_disk = Some(list);
        Ok(())
    }

    /// Lists segments no more, which are about to be removed. If the disk is full, the database has no
    /// list until the next one is written.
    ///
    /// # Errors
    /// The file can neither be written nor removed.
    pub(super) fn take_off(&mut self, numbers: &[u64]) -> io::Result<()> {
        self.leaving.extend(numbers);
        let Some(on_disk) = &self.on_disk else {
            return remove(&self.dir);
        };
        let mut list = on_disk.clone();
        numbers.iter().for_each(|number| _ = list.remove(number));
        if list == *on_disk {
            return Ok(());
        }
        self.put(list).or_else(|error| {
            log::debug!("{NAME} is removed, as it cannot be written: {error}");
            remove(&self.dir)
        })
    }
}

/// Replaces the list of the database in `dir`, durably.
///
/// # Errors
/// The file cannot be written. Either list may be there then.
pub(super) fn write(dir: &Path, list: &List) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    for (number, len) in list {
        bytes.extend(number.to_be_bytes());
        bytes.extend(len.to_be_bytes());
    }
    bytes.extend(wal::checksum(&bytes).to_be_bytes());
    let begun = dir.join(BEGUN);
    let written = File::create(&begun).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&begun, dir.join(NAME))
    });
    if let Err(error) = written {
        // The error of the write is reported.
        let _ = std::fs::remove_file(&begun);
        let text = format!("{}: {error}", dir.join(NAME).display());
        return Err(io::Error::new(error.kind(), text));
    }
    sync_dir(dir)
}

/// Removes the list of the database in `dir`, durably.
///
/// # Errors
/// It cannot be removed.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    match std::fs::remove_file(dir.join(NAME)) {
        // It may be there again after a crash of the machine.
        Err(error) if error.kind() == io::ErrorKind::NotFound => sync_dir(dir),
        removed => removed.and_then(|()| sync_dir(dir)),
    }
}

/// The list of the database in `dir`; `None` if it has none, as those without long values.
///
/// # Errors
/// The file cannot be read. [`io::ErrorKind::InvalidData`] if it is damaged.
pub(super) fn read(dir: &Path) -> io::Result<Option<List>> {
    let path = dir.join(NAME);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = || {
        let text = format!("{} is damaged", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    decode(&bytes).map(Some).ok_or_else(damaged)
}

fn decode(bytes: &[u8]) -> Option<List> {
    let (covered, checksum) = bytes.split_last_chunk::<CHECKSUM>()?;
    let (entries, rest) = covered.strip_prefix(MAGIC)?.as_chunks::<ENTRY>();
    let is_whole = rest.is_empty() && wal::checksum(covered) == u32::from_be_bytes(*checksum);
    let list = entries.iter().map(|entry| {
        let entry = u128::from_be_bytes(*entry);
        ((entry >> 64) as u64, entry as u64)
    });
    is_whole.then(|| list.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_what_was_written_or_damaged() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        for list in [List::new(), List::from([(1, 0), (7, 1 << 40)])] {
            write(dir.path(), &list).unwrap();
            assert_eq!(read(dir.path()).unwrap(), Some(list));
        }
        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert!(read(dir.path()).is_err(), "byte {at} is changed");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(read(dir.path()).is_err(), "it ends at {at}");
        }
    }

    /// A thread that had collected the segments before they were taken off could list them again.
    #[test]
    fn a_segment_that_is_about_to_be_removed_is_not_listed_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut listed = Listed::new(dir.path());
        assert_eq!(listed.due(List::new()), None, "made without a segment");
        let all = List::from([(1, 10), (2, 20), (3, 30)]);
        let due = listed.due(all.clone()).unwrap();
        assert_eq!(due, all);
        listed.put(due).unwrap();
        listed.take_off(&[1, 2]).unwrap();
        let rest = List::from([(3, 30)]);
        assert_eq!(read(dir.path()).unwrap().as_ref(), Some(&rest));
        assert_eq!(listed.due(all), None);
        assert_eq!(listed.due(List::from([(2, 20), (3, 30)])), None);
        assert_eq!(listed.leaving, BTreeSet::from([2]), "1 is removed");
        let mut later = Listed::new(dir.path());
        later.read();
        assert_eq!(later.on_disk, Some(rest));
    }

    /// On a full disk segments could not be removed, and no space would have come back.
    #[test]
    fn a_list_that_cannot_be_written_is_removed_before_segments_are() {
        let dir = tempfile::tempdir().unwrap();
        let mut listed = Listed::new(dir.path());
        listed.put(List::from([(1, 10), (2, 20)])).unwrap();
        std::fs::create_dir(dir.path().join(BEGUN)).unwrap();
        assert!(listed.put(List::from([(1, 10), (2, 25)])).is_err());
        assert_eq!(read(dir.path()).unwrap().map(|list| list.len()), Some(2));
        listed.take_off(&[1]).unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        std::fs::remove_dir(dir.path().join(BEGUN)).unwrap();
        let rest = List::from([(2, 25)]);
        let due = listed.due(List::from([(1, 10), (2, 25)]));
        assert_eq!(due.as_ref(), Some(&rest));
        listed.put(rest.clone()).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(rest));
    }
}
