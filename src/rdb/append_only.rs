//! The files of an append-only log of Redis: a single file, or several that a manifest
//! names.
//!
//! ```text
//! # a comment
//! file NAME seq N type b     base: an RDB file, or commands
//! file NAME seq N type i     increment: later commands, ordered by N
//! file NAME seq N type h     history: obsolete
//! ```
//!
//! NAME may be quoted. A file of commands may begin with an RDB preamble.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Suffix of manifests.
const MANIFEST: &str = ".manifest";
/// Longest manifest in bytes.
const MANIFEST_MAX_BYTES: u64 = 1 << 20;

/// Why the files cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A directory does not have exactly one manifest.
    #[error("{path} holds {count} manifests of append-only files: name one file")]
    Manifests {
        /// The directory.
        path: String,
        /// The number of manifests.
        count: usize,
    },
    /// A directory is no log.
    #[error(
        "{0} is a copy of a Kedis database, not a file of Redis: with the server stopped, put it in the \
         place of the database, which is `kedis-db` in `dir`"
    )]
    Copy(String),
    /// An invalid line in a manifest.
    #[error("{path}: what does {line:?} mean?")]
    Line {
        /// The manifest.
        path: String,
        /// The line.
        line: String,
    },
    /// A manifest without files.
    #[error("{0} names no files")]
    Nothing(String),
}

impl Error {
    fn file(path: &Path, error: io::Error) -> Error {
        Error::File {
            path: path.display().to_string(),
            error,
        }
    }
}

/// Whether a directory is a copy of a database, as SAVE makes it.
pub fn is_copy(path: &Path) -> bool {
    path.join("CURRENT").is_file()
}

/// The files of a log, in order. `path` is a file, a manifest, or a directory with one.
///
/// # Errors
/// `path` or its manifest cannot be read or is invalid.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let about = std::fs::metadata(path).map_err(|e| Error::file(path, e))?;
    if is_copy(path) {
        return Err(Error::Copy(path.display().to_string()));
    }
    if about.is_dir() {
        let mut found = manifests(path)?;
        return match (found.pop(), found.len()) {
            (Some(one), 0) => files(&one),
            (last, others) => Err(Error::Manifests {
                path: path.display().to_string(),
                count: others + usize::from(last.is_some()),
            }),
        };
    }
    if !path.to_string_lossy().ends_with(MANIFEST) {
        return Ok(vec![path.to_owned()]);
    }
    let mut text = String::new();
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    let read = file.take(MANIFEST_MAX_BYTES).read_to_string(&mut text);
    read.map_err(|e| Error::file(path, e))?;
    let names = manifest(&text).map_err(|line| Error::Line {
        path: path.display().to_string(),
        line,
    })?;
    match names.is_empty() {
        true => Err(Error::Nothing(path.display().to_string())),
        false => Ok(names.iter().map(|name| path.with_file_name(name)).collect()),
    }
}

/// The manifests in a directory.
pub fn manifests(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| Error::file(dir, e))? {
        let entry = entry.map_err(|e| Error::file(dir, e))?.path();
        if entry.to_string_lossy().ends_with(MANIFEST) {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Whether a file begins like an RDB file.
pub fn begins_as_rdb(head: &[u8]) -> bool {
    head.starts_with(b"REDIS") || head.starts_with(b"VALKEY")
}

/// The names in a manifest: the base first, then the increments in order. The error is
/// the invalid line.
fn manifest(text: &str) -> Result<Vec<String>, String> {
    let (mut base, mut increments) = (None, Vec::<(u64, String)>::new());
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
        if name.contains(['/', '\\']) || [".", "..", ""].contains(&name) {
            return Err(wrong());
        }
        match rest.split(' ').collect::<Vec<_>>().as_slice() {
            ["seq", _, "type", "b", ..] if base.is_none() => base = Some(name.to_owned()),
            ["seq", seq, "type", "i", ..] => {
                let seq: u64 = seq.parse().map_err(|_| wrong())?;
                if increments.iter().any(|(other, _)| *other == seq) {
                    return Err(wrong());
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_lines() {
        let text = "file a.1.base.rdb seq 1 type b\nfile a.3.incr.aof seq 3 type i\n\
                    # remark\nfile \"a 2.incr.aof\" seq 2 type i\nfile old seq 1 type h\n";
        let names = manifest(text).expect("a manifest");
        assert_eq!(names, ["a.1.base.rdb", "a 2.incr.aof", "a.3.incr.aof"]);
        for wrong in [
            "x",
            "file a seq 1 type z",
            "file ../a seq 1 type b",
            "file .. seq 1 type b",
            "file a seq x type i",
            "file a seq 1 type b\nfile c seq 2 type b",
            "file a seq 1 type i\nfile c seq 1 type i",
        ] {
            assert!(manifest(wrong).is_err(), "{wrong}");
        }
    }
}
