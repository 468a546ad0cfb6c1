//! A log file that may be moved away by log rotation: the next line goes to a new file of that
//! name, as with a server that opens its log for each line.

use crate::sys::files::{Kind, open_without_waiting};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The log file, reopened when its name refers to another file or to none.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    /// Whether only what makes nobody wait is written to.
    is_prompt: bool,
    file: File,
    /// Device and inode.
    id: (u64, u64),
    wanted: Reopen,
}

/// Requests that a [`LogFile`] is reopened.
#[derive(Debug, Clone, Default)]
pub struct Reopen(Arc<AtomicBool>);

impl Reopen {
    /// Requests it for the next line.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl LogFile {
    /// Opens the file for appending; creates it if it does not exist.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: PathBuf) -> io::Result<LogFile> {
        LogFile::make(path, false)
    }

    /// As [`LogFile::open`], but neither a pipe nor anything else that waits for another process,
    /// then and whenever the file is reopened.
    ///
    /// # Errors
    /// The file cannot be opened, or is something else than a regular file or a device.
    pub fn open_prompt(path: PathBuf) -> io::Result<LogFile> {
        LogFile::make(path, true)
    }

    fn make(path: PathBuf, is_prompt: bool) -> io::Result<LogFile> {
        let (file, id) = open(&path, is_prompt)?;
        Ok(LogFile {
            path,
            is_prompt,
            file,
            id,
            wanted: Reopen::default(),
        })
    }

    /// A handle for requests to reopen the file.
    pub fn reopen(&self) -> Reopen {
        self.wanted.clone()
    }

    /// The name of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reopens the file if its name refers to another one. The check costs about half as much as
    /// the write.
    ///
    /// # Errors
    /// No file can be opened; the old one is kept.
    pub fn follow_name(&mut self) -> io::Result<()> {
        let named = std::fs::metadata(&self.path);
        let is_same = named.is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        let wanted = self.wanted.0.swap(false, Ordering::AcqRel);
        if !is_same || wanted {
            (self.file, self.id) = open(&self.path, self.is_prompt)?;
        }
        Ok(())
    }

    /// Writes to the file that is open, whatever its name refers to. Returns how many bytes were
    /// written, and the error if these are not all.
    pub fn append(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }
}

fn open(path: &Path, is_prompt: bool) -> io::Result<(File, (u64, u64))> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    let file = match is_prompt {
        true => open_without_waiting(path, &mut options, Kind::RegularOrDevice)?,
        false => options.open(path)?,
    };
    let found = file.metadata()?;
    Ok((file, (found.dev(), found.ino())))
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Without a new file the old one is written to.
        let _ = self.follow_name();
        self.file.write(bytes)
    }

    /// One check for the whole line, so that it goes to one file.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let _ = self.follow_name();
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
        // Copied and truncated: appended lines begin at its end.
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
