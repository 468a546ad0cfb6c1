//! `max-disk`: the most space that the database's directory may take.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// After the bound was lowered below what is used, compactions may take this part of it besides: without
/// any space they free none.
const BESIDES: u64 = 2;
/// The space that eviction keeps free is this part of the quota …
const MARGIN_PART: u64 = 16;
/// … but at least so many bytes, if that is not more than a quarter of the quota.
const MARGIN_BYTES: u64 = 1 << 30;
const MARGIN_MOST: u64 = 4;

/// The space that eviction keeps free besides what memtables need, of a quota in bytes.
pub fn margin(quota: u64) -> u64 {
    (quota / MARGIN_PART).max(MARGIN_BYTES.min(quota / MARGIN_MOST))
}

/// The bound of a directory, and what it takes.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// In bytes; 0: none.
    most: AtomicU64,
    used: AtomicU64,
    /// What compactions may have it take now, in bytes: more than `most` since that was lowered, and
    /// less the less is used.
    bound: AtomicU64,
    /// Whether `most` has changed since the last measurement.
    changed: AtomicBool,
}

impl Quota {
    /// Changes the bound, in bytes; 0 is none.
    pub(super) fn set(&self, bytes: u64) {
        if self.most.swap(bytes, Ordering::Relaxed) != bytes {
            self.changed.store(true, Ordering::Relaxed);
        }
        if bytes == 0 {
            self.used.store(0, Ordering::Relaxed);
        }
    }

    /// The bound in bytes, 0 if there is none, and what the last measurement has found.
    pub(super) fn figures(&self) -> (u64, u64) {
        (
            self.most.load(Ordering::Relaxed),
            self.used.load(Ordering::Relaxed),
        )
    }

    /// What the directory may take in all, and still, of a file system of `total` bytes with `free`
    /// ones. Measures the directory if it has a bound.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn cut(&self, dir: &Path, total: u64, free: u64) -> io::Result<Room> {
        let most = self.most.load(Ordering::Relaxed);
        if most == 0 {
            return Ok(Room {
                total,
                free,
                besides: 0,
            });
        }
        let used = bytes_of(dir)?;
        self.used.store(used, Ordering::Relaxed);
        let before = match self.changed.swap(false, Ordering::Relaxed) {
            true if used > most => u64::MAX,
            true => most,
            false => self.bound.load(Ordering::Relaxed),
        };
        // Compactions need that much in the end, too.
        let is_settled = used <= most - margin(most) / 4 * 3;
        let bound = match is_settled {
            true => most,
            false => before.min(used.saturating_add(most / BESIDES)).max(most),
        };
        self.bound.store(bound, Ordering::Relaxed);
        let of_data = free.min(most.saturating_sub(used));
        Ok(Room {
            total: total.min(most),
            free: of_data,
            besides: free.min(bound.saturating_sub(used)) - of_data,
        })
    }
}

/// The space of a directory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// What it may take in all.
    pub(super) total: u64,
    /// What it may still take.
    pub(super) free: u64,
    /// What compactions may take besides.
    pub(super) besides: u64,
}

/// The space that the files of a directory take, in bytes.
fn bytes_of(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_of(&entry.path())?,
            Ok(found) => found.blocks() * 512,
            // It was deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn room(total: u64, free: u64) -> Room {
        Room {
            total,
            free,
            besides: 0,
        }
    }

    #[test]
    fn the_margin_is_never_most_of_the_quota() {
        const MIB: u64 = 1 << 20;
        assert_eq!(margin(100 * MIB), 25 * MIB);
        assert_eq!(margin(4096 * MIB), MARGIN_BYTES);
        assert_eq!(margin(1 << 40), 1 << 36);
    }

    #[test]
    fn a_directory_has_what_is_left_of_its_bound() {
        const FILE: usize = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota::default();
        let cut = |total, free| quota.cut(dir.path(), total, free).unwrap();
        assert_eq!(cut(100, 50), room(100, 50));
        fs::create_dir(dir.path().join("values")).unwrap();
        fs::write(dir.path().join("table"), vec![1; FILE]).unwrap();
        fs::write(dir.path().join("values/1"), vec![1; FILE]).unwrap();
        let most = 8 * FILE as u64;
        quota.set(most);
        let found = cut(u64::MAX, u64::MAX);
        let used = quota.figures().1;
        assert!(used >= 2 * FILE as u64 && used < 3 * FILE as u64, "{used}");
        assert_eq!(found, room(most, most - used));
        assert_eq!(cut(100, 50), room(100, 50));
        quota.set(1);
        assert_eq!(cut(100, 50), room(1, 0));
        quota.set(0);
        assert_eq!(quota.figures(), (0, 0));
    }

    /// Nothing was ever compacted after a quota was lowered below what was used.
    #[test]
    fn a_lowered_bound_leaves_compactions_space_until_the_data_fit() {
        const FILE: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota::default();
        let write = |name: &str| fs::write(dir.path().join(name), vec![1; FILE as usize]).unwrap();
        let remove = |name: u32| fs::remove_file(dir.path().join(name.to_string())).unwrap();
        let left = || {
            let room = quota.cut(dir.path(), u64::MAX, u64::MAX).unwrap();
            (room.free / FILE, room.besides / FILE)
        };
        (0..8).for_each(|number| write(&number.to_string()));
        quota.set(16 * FILE);
        assert_eq!(left(), (8, 0));
        quota.set(4 * FILE);
        assert_eq!(left(), (0, 2));
        write("compacted");
        assert_eq!(left(), (0, 1));
        (0..4).for_each(remove);
        assert_eq!(left(), (0, 2));
        // What is used fits, but no compaction would.
        remove(4);
        assert_eq!(left(), (0, 2));
        remove(5);
        assert_eq!(left(), (1, 0));
        write("more");
        write("and more");
        assert_eq!(left(), (0, 0));
    }
}
