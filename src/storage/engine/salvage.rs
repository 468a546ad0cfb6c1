//! Makes a damaged database one that can be opened: see [`repair`](crate::storage::repair).

use super::Db;
use super::whole::{
    has_current, inspect_log, keep, refuse_if_locked, remove_if_there, set_unmended,
};
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

    /// Makes the next start mend the database: see [`super::mend`].
    pub(in crate::storage) fn set_unmended(&self) -> Result<()> {
        Ok(set_unmended(self.dir)?)
    }

    /// Makes the database one that can be opened.
    ///
    /// # Errors
    /// The system rows are in a table that cannot be opened, or the disk fails.
    pub fn run(&self, options: &RocksOptions) -> Result<Salvaged> {
        let log = inspect_log(self.dir)?;
        log.cut(self.dir)?;
        let mut salvaged = Salvaged {
            lost: log.losses,
            tables: Vec::new(),
        };
        let current = match has_current(self.dir) {
            Ok(true) => self.open_without_lost(options, &mut salvaged.tables)?,
            Ok(false) => Err(StorageError::Damaged("there is no CURRENT".to_owned())),
            Err(error) => Err(error),
        };
        let Err(error) = current else {
            return Ok(salvaged);
        };
        log::warn!("{error}");
        if self.use_newest_manifest(options, &mut salvaged.tables)? {
            return Ok(salvaged);
        }
        self.set_unmended()?;
        let tables = self.names(".sst")?;
        // RocksDB turns the log into tables and moves it to another directory.
        remove_if_there(&self.dir.join(marks::NAME))?;
        Db::repair(&options.system_rows(), self.dir)?;
        let lost = &mut salvaged.lost;
        lost.push(format!(
            "what the manifest alone knew of the tables, since {error}"
        ));
        let left = self.names(".sst")?;
        let gone = tables.iter().filter(|name| !left.contains(*name));
        lost.extend(gone.map(|name| format!("{name}, a table that cannot be read")));
        self.try_open(options)?;
        Ok(salvaged)
    }

    /// Whether RocksDB opens the database without the tables that it cannot open, which are added to
    /// `lost`.
    ///
    /// # Errors
    /// As of [`manifest::take_out`].
    fn open_without_lost(
        &self,
        options: &RocksOptions,
        lost: &mut Vec<LostTable>,
    ) -> Result<Result<()>> {
        Ok(
            match manifest::take_out(&options.system_rows(), self.dir)? {
                Taken::Out(tables) => {
                    lost.extend(tables);
                    self.try_open(options)
                }
                Taken::Unreadable(why) => Err(StorageError::Damaged(why)),
            },
        )
    }

    /// Whether RocksDB opens the database.
    fn try_open(&self, options: &RocksOptions) -> Result<()> {
        let names = Db::list_cf(&options.db, self.dir)?;
        let opened = Db::open_cf_for_read_only(&options.db, self.dir, names, false)?;
        drop(opened);
        Ok(())
    }

    /// Points `CURRENT` at the newest manifest with which the database can be opened, if there is
    /// one. Only the newest of all may name tables that cannot be opened: an older one may not know
    /// all others.
    fn use_newest_manifest(
        &self,
        options: &RocksOptions,
        lost: &mut Vec<LostTable>,
    ) -> Result<bool> {
        let mut names: Vec<String> = self.names("")?.into_iter().collect();
        names.retain(|name| name.starts_with("MANIFEST-"));
        names.sort_by_key(|name| name.trim_start_matches("MANIFEST-").parse::<u64>().ok());
        let current = self.dir.join("CURRENT");
        if current.exists() {
            keep(self.dir, &current)?;
        }
        for (at, name) in names.iter().rev().enumerate() {
            let next = self.dir.join("CURRENT.dbtmp");
            let mut file = File::create(&next)?;
            writeln!(file, "{name}")?;
            file.sync_all()?;
            std::fs::rename(&next, &current)?;
            sync_dir(self.dir)?;
            let opened = match has_current(self.dir) {
                Ok(_) if at == 0 => self.open_without_lost(options, lost)?,
                Ok(_) => self.try_open(options),
                Err(error) => Err(error),
            };
            match opened {
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
