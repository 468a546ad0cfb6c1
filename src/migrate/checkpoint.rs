//! How much of the source's data set and stream the target has.
//!
//! The *marker* is a key at the target, in the lowest DB that is copied to. Each
//! transaction of the stream sets it, so it stays consistent with the data even if the
//! target loses writes. A tool that ends, with success or an error, removes the marker
//! and writes the position to the file of `--resume`, if there is one. The marker of a
//! killed tool expires after [`MARKER_TTL`]; a running tool renews it.
//!
//! ```text
//! marker: copying owned|merged [history next bytes]
//!         following owned|merged history next db
//! file:   title; source, target and mapping; the same as the marker, or "running"
//! ```
//!
//! *owned*: when the first copy began, the target had no key that the copy could have
//! written. A repeated copy may then remove all such keys first.

use super::Stop;
use super::conn::Conn;
use super::error::{Error, Result};
use super::mapping::{MARKER_PREFIX, Mapping};
use super::options::{Endpoint, Options};
use super::psync::Position;
use crate::base::hash::crc64;
use parking_lot::Mutex;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a marker stays without renewal.
pub const MARKER_TTL: Duration = Duration::from_secs(7 * 86_400);

/// Age at which a running tool renews its marker.
pub const MARKER_RENEWAL: Duration = Duration::from_secs(3600);

/// The first line of a file.
const TITLE: &str = "Kedis migration checkpoint 1";

/// Progress of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Whether the target had no key that the copy could have brought.
    pub owned: bool,
    /// The stage.
    pub stage: Stage,
}

/// Stage of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The copy is not complete. The target has this part, if known.
    Copying(Option<Copied>),
    /// The target has the stream up to this position.
    Following(Position),
}

/// The part of a data set that is at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Replication id of the history, or the id of the files.
    pub id: String,
    /// Offset at which the stream begins, or total length of the files.
    pub next: u64,
    /// All keys that begin before this byte of the file are at the target.
    pub bytes: u64,
}

impl Copied {
    /// The whole data set.
    pub fn all(id: &str) -> Copied {
        Copied {
            id: id.to_owned(),
            next: 0,
            bytes: u64::MAX,
        }
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let owned = match self.owned {
            true => "owned",
            false => "merged",
        };
        match &self.stage {
            Stage::Copying(None) => write!(f, "copying {owned}"),
            Stage::Copying(Some(Copied { id, next, bytes })) => {
                write!(f, "copying {owned} {id} {next} {bytes}")
            }
            Stage::Following(Position { id, next, db }) => {
                write!(f, "following {owned} {id} {next} {db}")
            }
        }
    }
}

impl Progress {
    fn parse(text: &str) -> Option<Progress> {
        let words: Vec<&str> = text.split(' ').collect();
        let (&phase, rest) = words.split_first()?;
        let (&owned, rest) = rest.split_first()?;
        let owned = match owned {
            "owned" => true,
            "merged" => false,
            _ => return None,
        };
        let stage = match (phase, rest) {
            ("copying", []) => Stage::Copying(None),
            ("copying", [id, next, bytes]) => Stage::Copying(Some(Copied {
                id: (*id).to_owned(),
                next: next.parse().ok()?,
                bytes: bytes.parse().ok()?,
            })),
            ("following", [id, next, db]) => Stage::Following(Position {
                id: (*id).to_owned(),
                next: next.parse().ok()?,
                db: db.parse().ok()?,
            }),
            _ => return None,
        };
        Some(Progress { owned, stage })
    }
}

/// The checkpoint of one migration.
pub struct Checkpoint {
    /// The marker's key.
    pub key: Vec<u8>,
    /// Its DB at the target.
    pub home: u64,
    whose: String,
    file: Option<PathBuf>,
    /// The file, locked: it and those beside it are this tool's.
    lock: Mutex<Option<File>>,
}

impl Checkpoint {
    /// The checkpoint for the migration that these flags describe.
    pub fn new(options: &Options, mapping: &Mapping) -> Checkpoint {
        let source = match (&options.rdb_file, &options.aof_file) {
            (Some(path), _) | (_, Some(path)) => path.display().to_string(),
            _ => options.src_addr.to_string(),
        };
        let whose = format!(
            "from {source} to {}: {}",
            options.dst_addr,
            mapping.describe()
        );
        let mut key = MARKER_PREFIX.to_vec();
        key.extend_from_slice(format!("{:016x}", crc64(0, whose.as_bytes())).as_bytes());
        Checkpoint {
            key,
            home: mapping.home(),
            whose,
            file: options.resume.clone(),
            lock: Mutex::default(),
        }
    }

    /// Locks the file, and so the files beside it, until the process ends.
    ///
    /// # Errors
    /// Another process holds the lock, or the file is the checkpoint of another
    /// migration.
    pub fn lock(&self) -> Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let failed = |error| Error::file(path, error);
        loop {
            let mut options = File::options();
            let options = options.create(true).truncate(false).write(true);
            let file = options.open(path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Refused(format!(
                        "{} is in use by another tool",
                        path.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The process that held the lock may have replaced or removed the file.
            let ours = file.metadata().map_err(failed)?;
            let is_there = std::fs::metadata(path)
                .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
            if is_there {
                *self.lock.lock() = Some(file);
                break;
            }
        }
        self.read_file().map(drop)
    }

    /// Reads the marker.
    pub fn read_marker(&self, target: &mut Conn) -> Result<Option<Progress>> {
        target.ask(&["SELECT", &self.home.to_string()])?;
        let found = target.ask(&[b"GET".as_slice(), &self.key])?;
        let text = found.as_bytes().map(String::from_utf8_lossy);
        Ok(text.and_then(|text| Progress::parse(&text)))
    }

    /// Sets the marker.
    pub fn set_marker(&self, target: &mut Conn, progress: &Progress) -> Result<()> {
        target.ask(&["SELECT", &self.home.to_string()])?;
        target.ask(&self.marking(progress))?;
        Ok(())
    }

    /// The command that sets the marker, in its DB.
    pub fn marking(&self, progress: &Progress) -> [Vec<u8>; 5] {
        [
            b"SET".to_vec(),
            self.key.clone(),
            progress.to_string().into_bytes(),
            b"PX".to_vec(),
            MARKER_TTL.as_millis().to_string().into_bytes(),
        ]
    }

    /// Removes the marker.
    pub fn remove_marker(&self, target: &mut Conn) -> Result<()> {
        target.ask(&["SELECT", &self.home.to_string()])?;
        target.ask(&[b"DEL".as_slice(), &self.key])?;
        Ok(())
    }

    /// Progress of the migration: from the marker, or, in the first attempt of a tool
    /// without a marker, from the file. After that the marker alone counts.
    ///
    /// # Errors
    /// The file belongs to another migration, or cannot be read.
    pub fn recall(&self, target: &mut Conn, is_first: bool) -> Result<Option<Progress>> {
        let marker = self.read_marker(target)?;
        let known = match marker {
            None if is_first => self.read_file()?,
            marker => marker,
        };
        if let Some(progress) = &known {
            // The marker is set before the progress in the file is overwritten.
            self.set_marker(target, progress)?;
        }
        self.write_file(None)?;
        Ok(known)
    }

    /// Ends with success: writes `progress` to the file, or removes the file if there is
    /// nothing to continue, and removes the marker.
    pub fn end(&self, target: &Endpoint, stop: &Stop, progress: Option<&Progress>) -> Result<()> {
        match progress {
            Some(progress) => self.write_file(Some(progress))?,
            None => self.remove_file()?,
        }
        self.remove_marker(&mut Conn::new(target, stop)?)
    }

    /// Ends with an error: moves the marker's progress to the file and removes the
    /// marker.
    pub fn break_off(&self, target: &Endpoint, stop: &Stop) {
        let done = Conn::new(target, stop).and_then(|mut target| {
            let Some(progress) = self.read_marker(&mut target)? else {
                return Ok(());
            };
            self.write_file(Some(&progress))?;
            self.remove_marker(&mut target)?;
            if !self.has_file() {
                log::warn!(
                    "what was copied stays at the target: empty it before the next attempt, or keep a checkpoint with --resume"
                );
            }
            Ok(())
        });
        if let Err(error) = done {
            let days = MARKER_TTL.as_secs() / 86_400;
            log::warn!("the marker stays at the target, for {days} days: {error}");
        }
    }

    /// The progress in the file; `None` if there is no file, or if it only says that a
    /// tool is running.
    ///
    /// # Errors
    /// The file belongs to another migration, or cannot be read.
    pub fn read_file(&self) -> Result<Option<Progress>> {
        let Some(path) = &self.file else {
            return Ok(None);
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file(path, error)),
        };
        let lines: Vec<&str> = text.lines().collect();
        let shown = path.display();
        match lines.as_slice() {
            [TITLE, whose, ..] if *whose != self.whose => Err(Error::Refused(format!(
                "{shown} is the checkpoint of another migration: {whose}"
            ))),
            [] | [TITLE, _, "running"] => Ok(None),
            [TITLE, _, progress] => match Progress::parse(progress) {
                Some(progress) => Ok(Some(progress)),
                None => Err(Error::Refused(format!("{shown} is damaged"))),
            },
            _ => Err(Error::Refused(format!("{shown} is no checkpoint"))),
        }
    }

    /// Whether the migration has a checkpoint file (`--resume`).
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Removes the file, if there is one.
    pub fn remove_file(&self) -> Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file(path, error)),
            _ => Ok(()),
        }
    }

    /// Writes the file: the progress, or "running" while the marker has it.
    pub fn write_file(&self, progress: Option<&Progress>) -> Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let state = progress.map_or("running".to_owned(), Progress::to_string);
        let text = format!("{TITLE}\n{}\n{state}\n", self.whose);
        let file = write_whole(path, text.as_bytes(), |file| file.lock())
            .map_err(|error| Error::file(path, error))?;
        *self.lock.lock() = Some(file);
        Ok(())
    }
}

/// Replaces a file atomically; `prepare` is called with the new file before the rename.
pub fn write_whole(
    path: &Path,
    bytes: &[u8],
    prepare: impl FnOnce(&File) -> std::io::Result<()>,
) -> std::io::Result<File> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let mut file = File::create(&temporary)?;
    prepare(&file)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let position = Position {
            id: "ab".repeat(20),
            next: 17,
            db: 3,
        };
        let copied = Copied {
            id: "ab".repeat(20),
            next: 17,
            bytes: 1 << 40,
        };
        for stage in [
            Stage::Copying(None),
            Stage::Copying(Some(copied)),
            Stage::Following(position),
        ] {
            let progress = Progress { owned: true, stage };
            assert_eq!(Progress::parse(&progress.to_string()), Some(progress));
        }
        for wrong in [
            "",
            "copying",
            "copying x",
            "following owned id 1",
            "copying owned 1",
            "copying owned id 1 2 3",
        ] {
            assert_eq!(Progress::parse(wrong), None, "{wrong}");
        }
    }
}
