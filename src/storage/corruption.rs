//! Data that the disk returns otherwise than it was written: logged, and counted for INFO.
//!
//! Such an error can occur wherever rows are read, by a client, a replica, the expire thread or a
//! compaction. All errors pass through [`StorageError`](crate::storage::StorageError), which notes
//! them here; so there is one record for the process.

use crate::sys::lock_order::{Lock, Mutex};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An error in the same file is logged at most once in this time.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The most files that are remembered.
const MAX_FILES: usize = 64;

/// The corruptions noted since the process began.
#[derive(Debug)]
pub struct Corruptions {
    count: AtomicU64,
    seen: Mutex<Seen, { Lock::Callback as u8 }>,
}

#[derive(Debug)]
struct Seen {
    files: BTreeSet<PathBuf>,
    /// The file that was logged last, and when.
    logged: Option<(Option<PathBuf>, Instant)>,
}

static NOTED: Corruptions = Corruptions {
    count: AtomicU64::new(0),
    seen: Mutex::new(Seen {
        files: BTreeSet::new(),
        logged: None,
    }),
};

/// The corruptions noted since the process began.
pub fn corruptions() -> &'static Corruptions {
    &NOTED
}

impl Corruptions {
    /// The number of corruption errors.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The files with corruptions, as far as they are known and still exist.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = self.seen.lock().files.clone();
        files.into_iter().filter(|file| file.exists()).collect()
    }

    /// Notes an error if it is a corruption.
    pub(super) fn note(&self, error: &rocksdb::Error) {
        if error.kind() != rocksdb::ErrorKind::Corruption {
            return;
        }
        self.note_text(error.as_ref());
    }

    /// Notes a corruption by its message from RocksDB.
    pub(super) fn note_text(&self, error: &str) {
        self.note_in(file_named_in(error), error);
    }

    /// Notes a corruption in a file, if that is known.
    pub(super) fn note_in(&self, file: Option<PathBuf>, error: &str) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.seen.lock();
        if let Some(file) = &file
            && seen.files.len() < MAX_FILES
        {
            seen.files.insert(file.clone());
        }
        let is_news = seen
            .logged
            .as_ref()
            .is_none_or(|(last, at)| *last != file || at.elapsed() >= LOG_EVERY);
        if is_news {
            seen.logged = Some((file, Instant::now()));
            drop(seen);
            log::error!(
                "data on the disk is corrupt: {error}; see \"Damaged \
                 files\" in the manual"
            );
        }
    }
}

/// The table or blob file that a message of RocksDB names.
pub(super) fn file_named_in(text: &str) -> Option<PathBuf> {
    let is_table = |word: &&str| word.ends_with(".sst") || word.ends_with(".blob");
    let ends = |c: char| [':', ',', ';'].contains(&c);
    // Paths may contain spaces, so the path is found by its first byte and by the end of the name.
    let from = text.find(" /").map_or(0, |at| at + 1);
    let rest = text.get(from..)?;
    let end = [".sst", ".blob"]
        .iter()
        .filter_map(|tail| Some(rest.find(tail)? + tail.len()))
        .min();
    let path = end.and_then(|end| rest.get(..end)).filter(|_| from > 0);
    let word = || {
        text.split_whitespace()
            .map(|word| word.trim_end_matches(ends))
    };
    let name = path.or_else(|| word().find(is_table))?;
    Some(Path::new(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_in_the_message() {
        let named = |text| file_named_in(text).map(|path| path.display().to_string());
        let checksum = "Corruption: block checksum mismatch: stored = 1, computed = 2, type = 4  \
                        in /srv/my data/kedis-db/000012.sst offset 0 size 4096";
        assert_eq!(
            named(checksum).as_deref(),
            Some("/srv/my data/kedis-db/000012.sst")
        );
        let relative = "Corruption: truncated block read from kedis-db/000012.sst: offset 7";
        assert_eq!(named(relative).as_deref(), Some("kedis-db/000012.sst"));
        assert_eq!(named("Corruption: Bad table magic number"), None);
    }
}
