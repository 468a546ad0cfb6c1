//! A log file that somebody else may move away: what is written next goes to a new file
//! of its name, as it does where a server opens its log for each line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The log file, opened again when its name leads to another file or to none.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// Device and inode.
    id: (u64, u64),
    wanted: Reopen,
}

/// Asks for a [`LogFile`] to be opened anew.
#[derive(Debug, Clone, Default)]
pub struct Reopen(Arc<AtomicBool>);

impl Reopen {
    /// Before the next line.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl LogFile {
    /// Opens the file to be appended to, and makes it if it is not there.
    ///
    /// # Errors
    /// The system refuses that.
    pub fn open(path: PathBuf) -> io::Result<LogFile> {
        let (file, id) = open(&path)?;
        Ok(LogFile {
            path,
            file,
            id,
            wanted: Reopen::default(),
        })
    }

    /// What makes it open its file anew.
    pub fn reopen(&self) -> Reopen {
        self.wanted.clone()
    }

    /// Goes over to another file if that has the name now. One look at the name costs
    /// about as much as half of the write. Where no file can be opened, the old one stays.
    fn follow_name(&mut self) {
        let named = std::fs::metadata(&self.path);
        let is_same = named.is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        let wanted = self.wanted.0.swap(false, Ordering::AcqRel);
        if (!is_same || wanted)
            && let Ok((file, id)) = open(&self.path)
        {
            (self.file, self.id) = (file, id);
        }
    }
}

fn open(path: &std::path::Path) -> io::Result<(File, (u64, u64))> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let found = file.metadata()?;
    Ok((file, (found.dev(), found.ino())))
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.follow_name();
        self.file.write(bytes)
    }

    /// The whole of a line goes to one file.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.follow_name();
        self.file.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_moved_or_removed_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        let mut log = LogFile::open(path("log")).unwrap();
        log.write_all(b"1\n").unwrap();
        std::fs::rename(path("log"), path("log.1")).unwrap();
        log.write_all(b"2\n").unwrap();
        log.write_all(b"3\n").unwrap();
        assert_eq!(
            (read("log.1"), read("log")),
            ("1\n".into(), "2\n3\n".into())
        );
        std::fs::remove_file(path("log")).unwrap();
        log.write_all(b"4\n").unwrap();
        assert_eq!(read("log"), "4\n");
        // Copied and emptied: what is appended begins at its end.
        std::fs::write(path("log"), "").unwrap();
        log.write_all(b"5\n").unwrap();
        log.reopen().ask();
        log.write_all(b"6\n").unwrap();
        assert_eq!(read("log"), "5\n6\n");
    }

    #[test]
    fn where_no_file_can_be_made_the_old_one_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("d")).unwrap();
        let mut log = LogFile::open(path("d/log")).unwrap();
        std::fs::rename(path("d"), path("e")).unwrap();
        log.write_all(b"1\n").unwrap();
        assert_eq!(std::fs::read_to_string(path("e/log")).unwrap(), "1\n");
        std::fs::create_dir(path("d")).unwrap();
        log.write_all(b"2\n").unwrap();
        assert_eq!(std::fs::read_to_string(path("d/log")).unwrap(), "2\n");
    }
}
