//! Append-only files, as a source that has an end.
//!
//! `--aof_file` names a file, the manifest of several, or their directory. A
//! file may begin with an RDB file. What stands at the end of the last file and
//! is no whole command was being written when its server died.

use super::error::{Error, Result};
use super::psync::Feed;
use super::stats::Stats;
use crate::base::hash::crc64;
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
/// What the names of manifests end with.
const MANIFEST: &str = ".manifest";

/// The files that a name stands for, in order.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_dir() {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|e| Error::file(path, e))? {
            let entry = entry.map_err(|e| Error::file(path, e))?.path();
            if entry.to_string_lossy().ends_with(MANIFEST) {
                found.push(entry);
            }
        }
        return match found.as_slice() {
            [one] => files(one),
            _ => Err(Error::Refused(format!(
                "{} holds {} manifests: name one",
                path.display(),
                found.len()
            ))),
        };
    }
    if !path.to_string_lossy().ends_with(MANIFEST) {
        return Ok(vec![path.to_owned()]);
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
    let parts = manifest(&text)
        .map_err(|line| Error::Refused(format!("{}: what does {line:?} mean?", path.display())))?;
    Ok(parts.iter().map(|name| path.with_file_name(name)).collect())
}

/// The names of a manifest: the base first, then the increments in order.
fn manifest(text: &str) -> std::result::Result<Vec<String>, String> {
    let (mut base, mut increments) = (None, Vec::new());
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let wrong = || line.to_owned();
        let rest = line.strip_prefix("file ").ok_or_else(wrong)?;
        let (name, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once("\" ").ok_or_else(wrong)?,
            None => rest.split_once(' ').ok_or_else(wrong)?,
        };
        if name.contains(['/', '\\']) {
            return Err(wrong());
        }
        match rest.split(' ').collect::<Vec<_>>().as_slice() {
            ["seq", _, "type", "b", ..] => base = Some(name.to_owned()),
            ["seq", seq, "type", "i", ..] => {
                let seq: u64 = seq.parse().map_err(|_| wrong())?;
                increments.push((seq, name.to_owned()));
            }
            ["seq", _, "type", "h", ..] => {}
            _ => return Err(wrong()),
        }
    }
    increments.sort_unstable();
    let increments = increments.into_iter().map(|(_, name)| name);
    Ok(base.into_iter().chain(increments).collect())
}

/// Opens a file to be read once from its beginning.
pub fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    Ok(BufReader::with_capacity(READ_BYTES, file))
}

/// What tells files from others, in one word, and how long they are together.
pub fn identity(files: &[PathBuf]) -> Result<(String, u64)> {
    let (mut text, mut len) = (String::new(), 0);
    for path in files {
        let about = std::fs::metadata(path).map_err(|e| Error::file(path, e))?;
        let (inode, since) = (about.ino(), about.mtime_nsec());
        // A string takes whatever is written.
        let _ = write!(text, "{inode} {} {} {since};", about.len(), about.mtime());
        len += about.len();
    }
    Ok((format!("files-{:016x}", crc64(0, text.as_bytes())), len))
}

/// Whether a file begins with an RDB file.
pub fn begins_with_rdb(path: &Path) -> Result<bool> {
    let mut file = open(path)?;
    let head = file.fill_buf().map_err(|e| Error::file(path, e))?;
    Ok(head.starts_with(b"REDIS") || head.starts_with(b"VALKEY"))
}

/// The commands of several files.
pub struct AofFeed {
    files: VecDeque<PathBuf>,
    current: Option<BufReader<File>>,
    stats: Arc<Stats>,
    input: Input,
}

impl AofFeed {
    /// What `first` still holds, and then these files.
    pub fn new(first: Option<BufReader<File>>, files: &[PathBuf], stats: &Arc<Stats>) -> AofFeed {
        AofFeed {
            files: files.iter().cloned().collect(),
            current: first,
            stats: stats.clone(),
            input: Input::default(),
        }
    }

    /// Passes over lines that are remarks.
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
            // A part of a remark.
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
                        "the last {} bytes are no whole command and were left out",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests() {
        let text = "file a.1.base.rdb seq 1 type b\nfile a.3.incr.aof seq 3 type i\n\
                    file \"a 2.incr.aof\" seq 2 type i\nfile old seq 1 type h\n";
        let names = manifest(text).expect("a manifest");
        assert_eq!(names, ["a.1.base.rdb", "a 2.incr.aof", "a.3.incr.aof"]);
        for wrong in ["x", "file a seq 1 type z", "file ../a seq 1 type b"] {
            assert!(manifest(wrong).is_err(), "{wrong}");
        }
    }
}
