//! `max-disk`: the most space that the database's directory may take.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// While more is used than a quota allows, compactions may take this part of it besides: without any
/// space they free none.
const BESIDES: u64 = 2;

/// The bound of a directory, and what it takes.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// In bytes; 0: none.
    most: AtomicU64,
    used: AtomicU64,
    /// What may be taken now, in bytes: more than `most` while more is used, and less the less is.
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

    /// Whether more is used than the bound: it was lowered.
    pub(super) fn is_exceeded(&self) -> bool {
        let (most, used) = self.figures();
        most > 0 && used > most
    }

    /// What the directory may take in all, and still, of a file system of `total` bytes with `free`
    /// ones. Measures the directory if it has a bound.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn cut(&self, dir: &Path, total: u64, free: u64) -> io::Result<(u64, u64)> {
        let most = self.most.load(Ordering::Relaxed);
        if most == 0 {
            return Ok((total, free));
        }
        let used = bytes_of(dir)?;
        self.used.store(used, Ordering::Relaxed);
        let besides = used.saturating_add(most / BESIDES);
        let before = match self.changed.swap(false, Ordering::Relaxed) {
            true => u64::MAX,
            false => self.bound.load(Ordering::Relaxed),
        };
        let bound = match used > most {
            true => before.min(besides),
            false => most,
        };
        self.bound.store(bound, Ordering::Relaxed);
        Ok((total.min(most), free.min(bound.saturating_sub(used))))
    }
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

    #[test]
    fn a_directory_has_what_is_left_of_its_bound() {
        const FILE: usize = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota::default();
        assert_eq!(quota.cut(dir.path(), 100, 50).unwrap(), (100, 50));
        fs::create_dir(dir.path().join("values")).unwrap();
        fs::write(dir.path().join("table"), vec![1; FILE]).unwrap();
        fs::write(dir.path().join("values/1"), vec![1; FILE]).unwrap();
        let most = 8 * FILE as u64;
        quota.set(most);
        let (total, free) = quota.cut(dir.path(), u64::MAX, u64::MAX).unwrap();
        assert_eq!(total, most);
        let used = quota.figures().1;
        assert!(used >= 2 * FILE as u64 && used < 3 * FILE as u64, "{used}");
        assert_eq!(free, most - used);
        assert_eq!(quota.cut(dir.path(), 100, 50).unwrap(), (100, 50));
        assert!(!quota.is_exceeded());
        quota.set(1);
        assert_eq!(quota.cut(dir.path(), 100, 50).unwrap(), (1, 0));
        assert!(quota.is_exceeded());
        quota.set(0);
        assert_eq!(quota.figures(), (0, 0));
    }

    /// Nothing was ever compacted after a quota was lowered below what was used.
    #[test]
    fn a_lowered_bound_follows_what_is_used_down() {
        const FILE: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota::default();
        let write = |name: &str| fs::write(dir.path().join(name), vec![1; FILE as usize]).unwrap();
        let left = || quota.cut(dir.path(), u64::MAX, u64::MAX).unwrap().1;
        (0..8).for_each(|number| write(&number.to_string()));
        quota.set(4 * FILE);
        assert_eq!(left(), 2 * FILE);
        write("compacted");
        assert!(left() <= FILE);
        for number in 0..3 {
            fs::remove_file(dir.path().join(number.to_string())).unwrap();
        }
        assert_eq!(left(), 2 * FILE);
        assert!(quota.is_exceeded());
        for number in 3..6 {
            fs::remove_file(dir.path().join(number.to_string())).unwrap();
        }
        let some = left();
        assert!(!quota.is_exceeded() && some <= FILE, "{some}");
        write("more");
        assert!(left() < some);
    }
}
