//! Makes a damaged database one that can be opened: see [`repair`](crate::storage::repair).

use super::whole::{
    cut_current, inspect_log, keep, noted_losses, refuse_if_locked, remove_if_there, set_unmended,
};
use super::{Db, Engine};
use crate::storage::engine::options::RocksOptions;
use crate::storage::engine::wal::marks;
use crate::storage::{Result, StorageError};
use crate::sys::files::sync_dir;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;

mod manifest;

pub(in crate::storage) use manifest::LostTable;
use manifest::Taken;

/// What is lost of a database that can be opened again.
pub(in crate::storage) struct Salvaged {
    /// In words.
    pub lost: Vec<String>,
    /// Tables that the database has no more.
    pub tables: Vec<LostTable>,
}

/// A directory with the files of a database that is not open.
pub(in crate::storage) struct Salvage<'a> {
    dir: &'a Path,
}

impl Salvage<'_> {
    /// Checks that the directory exists and is not in use.
    ///
    /// # Errors
    /// It does not exist, or a server uses it.
    pub fn new(dir: &Path) -> Result<Salvage<'_>> {
        if !dir.is_dir() {
            let text = format!("there is no database {}", dir.display());
            return Err(StorageError::Format(text));
        }
        refuse_if_locked(dir)?;
        Ok(Salvage { dir })
    }

    /// Makes the next start [mend](super::mend) the database, of which this is lost, in words.
    pub(in crate::storage) fn set_unmended(&self, lost: &[String]) -> Result<()> {
        Ok(set_unmended(self.dir, lost)?)
    }

    /// What a repair or a start has given up that was not finished, in words.
    pub(in crate::storage) fn noted_losses(&self) -> Result<Vec<String>> {
        Ok(noted_losses(self.dir)?)
    }

    /// Makes the database one that can be opened.
    ///
    /// # Errors
    /// The system rows are in a table that cannot be opened, or the disk fails.
    pub fn run(&self, options: &RocksOptions) -> Result<Salvaged> {
        let known = self.newest_known_manifest();
        let log = inspect_log(self.dir)?;
        let mut tables = Vec::new();
        let current = match cut_current(self.dir) {
            Ok(true) => self.take_out(options, &mut tables)?,
            Ok(false) => Err(StorageError::Damaged("there is no CURRENT".to_owned())),
            Err(error) => Err(error),
        };
        log.cut(self.dir)?;
        let mut salvaged = Salvaged {
            lost: log.losses,
            tables,
        };
        let Err(error) = current.and_then(|()| self.try_open(options)) else {
            return Ok(salvaged);
        };
        log::warn!("{error}");
        if self.use_newest_manifest(options, known, &mut salvaged.tables)? {
            return Ok(salvaged);
        }
        let manifest = format!("what the manifest alone knew of the tables, since {error}");
        self.set_unmended(std::slice::from_ref(&manifest))?;
        let tables = self.names(".sst")?;
        // RocksDB turns the log into tables and moves it to another directory.
        remove_if_there(&self.dir.join(marks::NAME))?;
        Db::repair(&options.system_rows(), self.dir)?;
        let left = self.names(".sst")?;
        let gone = tables.iter().filter(|name| !left.contains(*name));
        let gone: Vec<String> = gone
            .map(|name| format!("{name}, a table that cannot be read"))
            .collect();
        self.set_unmended(&gone)?;
        salvaged.lost.push(manifest);
        salvaged.lost.extend(gone);
        self.try_open(options)?;
        Ok(salvaged)
    }

    /// Takes tables that cannot be opened out of the manifest, and adds them to `lost`. The inner error:
    /// the manifest cannot be read.
    ///
    /// # Errors
    /// As of [`manifest::take_out`].
    fn take_out(&self, options: &RocksOptions, lost: &mut Vec<LostTable>) -> Result<Result<()>> {
        let taken = manifest::take_out(&options.system_rows(), self.dir)?;
        Ok(match taken {
            Taken::Out(tables) => {
                lost.extend(tables);
                Ok(())
            }
            Taken::Unreadable(why) => Err(StorageError::Damaged(why)),
        })
    }

    /// The number of the newest manifest that `CURRENT` or the marks name, be it there or not, as
    /// [`marks::manifest_number`] gives it.
    fn newest_known_manifest(&self) -> Option<u64> {
        // Errors of the marks are reported by `inspect_log`.
        let marks = marks::read(self.dir).ok().flatten().unwrap_or_default();
        let marked = marks.iter().filter(|mark| mark.is_manifest());
        let current = std::fs::read_to_string(self.dir.join("CURRENT")).unwrap_or_default();
        let current = marks::manifest_number(&self.dir.join(current.trim_end()));
        marked.map(|mark| mark.number).chain(current).max()
    }

    /// Whether RocksDB opens the database.
    fn try_open(&self, options: &RocksOptions) -> Result<()> {
        let names = Db::list_cf(&options.db, self.dir)?;
        let opened = Db::open_cf_for_read_only(&options.db, self.dir, names, false)?;
        drop(opened);
        Ok(())
    }

    /// Points `CURRENT` at the newest manifest with which the database can be opened, if there is
    /// one. Tables that cannot be opened are taken out of it, unless it is older than the newest known
    /// one: it may not know all others, which a start would remove.
    fn use_newest_manifest(
        &self,
        options: &RocksOptions,
        known: Option<u64>,
        lost: &mut Vec<LostTable>,
    ) -> Result<bool> {
        let mut names: Vec<String> = self.names("")?.into_iter().collect();
        names.retain(|name| name.starts_with("MANIFEST-"));
        names.sort_by_key(|name| name.trim_start_matches("MANIFEST-").parse::<u64>().ok());
        let current = self.dir.join("CURRENT");
        if current.exists() {
            keep(self.dir, &current)?;
        }
        for name in names.iter().rev() {
            let is_newest = marks::manifest_number(&self.dir.join(name)) >= known;
            let next = self.dir.join("CURRENT.dbtmp");
            let mut file = File::create(&next)?;
            writeln!(file, "{name}")?;
            file.sync_all()?;
            std::fs::rename(&next, &current)?;
            sync_dir(self.dir)?;
            let usable = match cut_current(self.dir) {
                Ok(_) if is_newest => self.take_out(options, lost)?,
                found => found.map(|_| ()),
            };
            match usable.and_then(|()| self.try_open(options)) {
                Ok(()) => {
                    log::warn!("CURRENT names {name} again");
                    return Ok(true);
                }
                Err(error) => log::warn!("{name} cannot be used: {error}"),
            }
        }
        remove_if_there(&current)?;
        Ok(false)
    }

    /// The names of files that end with `ending`.
    fn names(&self, ending: &str) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in self.dir.read_dir()? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(ending) {
                names.insert(name);
            }
        }
        Ok(names)
    }
}

impl Engine {
    /// As [`Salvage::set_unmended`], of a database that is open.
    pub(in crate::storage) fn set_unmended(&self, lost: &[String]) -> Result<()> {
        Ok(set_unmended(&self.config.dir, lost)?)
    }
}
