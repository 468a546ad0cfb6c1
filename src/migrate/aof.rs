//! Append-only files as a source that ends.
//!
//! `--aof_file` names a file, a manifest, or a directory. A file may begin with an RDB
//! preamble. An incomplete command at the end of the last file was being written when
//! the server crashed, and is ignored.

use super::error::{Error, Result};
use super::psync::Feed;
use super::stats::Stats;
use crate::base::hash::crc64;
use crate::rdb::append_only;
use crate::resp::Input;
use std::collections::VecDeque;
use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// The files that `path` names, in order.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    Ok(append_only::files(path)?)
}

/// Opens a file to be read once from its beginning.
pub fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    Ok(BufReader::with_capacity(READ_BYTES, file))
}

/// An id of these files, from inodes, lengths and times of change, and their total
/// length in bytes.
pub fn identity(files: &[PathBuf]) -> Result<(String, u64)> {
    let (mut text, mut len) = (String::new(), 0);
    for path in files {
        let about = std::fs::metadata(path).map_err(|e| Error::file(path, e))?;
        let (inode, since) = (about.ino(), about.mtime_nsec());
        // Writing to a String cannot fail.
        let _ = write!(text, "{inode} {} {} {since};", about.len(), about.mtime());
        len += about.len();
    }
    Ok((format!("files-{:016x}", crc64(0, text.as_bytes())), len))
}

/// Whether a file begins with an RDB file.
pub fn begins_with_rdb(path: &Path) -> Result<bool> {
    let mut file = open(path)?;
    let head = file.fill_buf().map_err(|e| Error::file(path, e))?;
    Ok(append_only::begins_as_rdb(head))
}

/// The commands of several files.
pub struct AofFeed {
    files: VecDeque<PathBuf>,
    current: Option<BufReader<File>>,
    stats: Arc<Stats>,
    input: Input,
}

impl AofFeed {
    /// Reads the rest of `first`, then these files.
    pub fn new(first: Option<BufReader<File>>, files: &[PathBuf], stats: &Arc<Stats>) -> AofFeed {
        AofFeed {
            files: files.iter().cloned().collect(),
            current: first,
            stats: stats.clone(),
            input: Input::default(),
        }
    }

    /// Skips comment lines.
    fn pass_remarks(&mut self) {
        while self.input.waiting().first() == Some(&b'#') {
            match memchr::memchr(b'\n', self.input.waiting()) {
                Some(end) => self.input.consume(end + 1),
                None => return,
            }
        }
    }
}

impl Feed for AofFeed {
    fn waiting(&self) -> &[u8] {
        match self.input.waiting() {
            // An incomplete comment line.
            [b'#', ..] => b"",
            unread => unread,
        }
    }

    fn consume(&mut self, n: usize) {
        self.input.consume(n);
        self.pass_remarks();
    }

    fn fill(&mut self) -> Result<bool> {
        loop {
            if let Some(file) = &mut self.current {
                let n = self.input.read_from(file, READ_BYTES);
                let n = n.map_err(Error::Source)?;
                if n > 0 {
                    self.stats.bytes_in.fetch_add(n as u64, Ordering::Relaxed);
                    self.pass_remarks();
                    return Ok(true);
                }
                self.current = None;
            }
            let Some(next) = self.files.pop_front() else {
                if !self.input.waiting().is_empty() {
                    log::warn!(
                        "the last {} bytes are an incomplete command and were left out",
                        self.input.waiting().len()
                    );
                }
                return Ok(false);
            };
            if !self.input.waiting().is_empty() {
                return Err(Error::Refused(format!(
                    "the file before {} ends within a command",
                    next.display()
                )));
            }
            self.current = Some(open(&next)?);
        }
    }
}
