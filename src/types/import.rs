//! Loads an RDB file into an empty database.
//!
//! Many keys share a commit; a collection larger than that takes several commits (see
//! [`Building::park`]). Nothing is written to the binlog: the loaded data begin a new
//! history, see [`crate::storage::engine::Engine::end_load`].

use super::OpError;
use super::RestoreError;
use super::restore::Building;
use crate::base::time::UnixMs;
use crate::encoding::system;
use crate::rdb::file::{Entry, FileReader, Head};
use crate::rdb::{self, Element};
use crate::storage::{DbIndex, StorageError, Txn};
use std::io::BufRead;

/// Most pending bytes before a commit, not counting one element.
const SLICE_BYTES: usize = 8 << 20;

/// Most bytes of a key in an error.
const SHOWN_BYTES: usize = 100;

/// Why a file cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is invalid.
    #[error("byte {at}: {error}")]
    File {
        /// Where.
        at: u64,
        /// Why.
        error: rdb::Error,
    },
    /// The value of a key is invalid.
    #[error("key {key:?} in DB {db}, before byte {at}: {error}")]
    Key {
        /// The key, shortened.
        key: String,
        /// The DB.
        db: u16,
        /// Position of the reader.
        at: u64,
        /// Why.
        error: rdb::Error,
    },
    /// The file has more DBs than the server.
    #[error("the file has keys in DB {db}, but `databases` is {databases}")]
    Databases {
        /// The DB.
        db: u64,
        /// `databases` of this server.
        databases: u16,
    },
    /// A function library does not load.
    #[error("a library of functions, before byte {at}: {error}")]
    Library {
        /// Position of the reader.
        at: u64,
        /// Why.
        error: String,
    },
    /// The caller cancelled the load.
    #[error("the load was cancelled")]
    Cancelled,
    /// Storing the data failed.
    #[error(transparent)]
    Op(#[from] OpError),
}

impl From<StorageError> for ImportError {
    fn from(error: StorageError) -> Self {
        ImportError::Op(error.into())
    }
}

/// What has been loaded so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys.
    pub keys: u64,
    /// Elements of all keys.
    pub elements: u64,
    /// Keys left out because they have expired.
    pub expired: u64,
    /// Keys left out because they have no elements.
    pub empty: u64,
    /// Function libraries.
    pub functions: u64,
    /// Data of modules besides keys, left out.
    pub modules: u64,
    /// Bytes read.
    pub bytes: u64,
}

impl Loaded {
    /// Descriptions of the differences from the file.
    pub fn losses(&self) -> impl Iterator<Item = String> {
        let counts = [
            (self.expired, "keys whose time is over were left out"),
            (self.empty, "keys without elements were left out"),
            (self.modules, "pieces of modules' own data were left out"),
        ];
        let counted = counts.into_iter().filter(|(count, _)| *count > 0);
        counted.map(|(count, what)| format!("{count} {what}"))
    }
}

/// The caller's side of a load.
pub trait Load {
    /// Called with the progress after each commit.
    fn report(&mut self, loaded: &Loaded);

    /// Whether to cancel the load; asked after each key and commit.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Called with each aux field.
    fn aux(&mut self, _name: &[u8], _text: &[u8]) {}

    /// Loads a function library and returns its name.
    ///
    /// # Errors
    /// Why the library cannot be loaded.
    fn add_library(&mut self, code: &[u8]) -> Result<Vec<u8>, String>;
}

/// Loads a file.
///
/// # Errors
/// The file is corrupt, or contains something that is not supported. Keys that were
/// committed before remain.
pub fn import<R: BufRead>(
    txn: &mut Txn,
    source: R,
    max_string: u64,
    now_ms: UnixMs,
    load: &mut impl Load,
) -> Result<Loaded, ImportError> {
    let file = FileReader::open(source, max_string);
    let mut import = Import {
        file: file.map_err(|error| ImportError::File { at: 0, error })?,
        txn,
        now_ms,
        db: DbIndex(0),
        loaded: Loaded::default(),
        load,
    };
    import.run()?;
    Ok(import.loaded)
}

struct Import<'i, R> {
    file: FileReader<R>,
    txn: &'i mut Txn,
    now_ms: UnixMs,
    db: DbIndex,
    loaded: Loaded,
    load: &'i mut dyn Load,
}

impl<R: BufRead> Import<'_, R> {
    fn run(&mut self) -> Result<(), ImportError> {
        begin(self.txn, self.now_ms)?;
        loop {
            let at = self.file.position();
            let entry = self.file.next();
            match entry.map_err(|error| ImportError::File { at, error })? {
                Entry::Aux { name, text } => {
                    self.load.aux(&name, &text);
                    let (name, text) = (shown(&name), shown(&text));
                    log::debug!("RDB file: {name} is {text}");
                }
                Entry::SelectDb(db) => self.db = self.checked_db(db)?,
                Entry::Sizes { keys, expires } => {
                    log::debug!("DB {}: about {keys} keys, {expires} expire", self.db.0);
                }
                Entry::Function(code) => self.load_library(code)?,
                Entry::ModuleAux => self.loaded.modules += 1,
                Entry::Key(head) => self.load_key(head)?,
                Entry::End => break,
            }
            if self.txn.pending_bytes() >= SLICE_BYTES {
                self.txn.commit()?;
                begin(self.txn, self.now_ms)?;
                self.loaded.bytes = self.file.position();
                self.load.report(&self.loaded);
            }
            if self.load.is_cancelled() {
                return Err(ImportError::Cancelled);
            }
        }
        self.txn.commit()?;
        self.loaded.bytes = self.file.position();
        Ok(())
    }

    fn checked_db(&self, db: u64) -> Result<DbIndex, ImportError> {
        let databases = self.txn.engine().config.databases;
        match u16::try_from(db) {
            Ok(index) if index < databases => Ok(DbIndex(index)),
            _ => Err(ImportError::Databases { db, databases }),
        }
    }

    fn load_library(&mut self, code: Vec<u8>) -> Result<(), ImportError> {
        let at = self.file.position();
        let name = self.load.add_library(&code);
        let name = name.map_err(|error| ImportError::Library { at, error })?;
        self.txn
            .put_system_row(system::library_row(&name), Some(code));
        self.loaded.functions += 1;
        Ok(())
    }

    fn load_key(&mut self, head: Head) -> Result<(), ImportError> {
        let key = self.file.key().to_vec();
        match self.load_value(&key, head) {
            Ok(()) => Ok(()),
            Err(RestoreError::Rdb(rdb::Error::Empty)) => {
                self.loaded.empty += 1;
                Ok(())
            }
            Err(_) if self.load.is_cancelled() => Err(ImportError::Cancelled),
            Err(RestoreError::Rdb(error)) => Err(ImportError::Key {
                key: shown(&key),
                db: self.db.0,
                at: self.file.position(),
                error,
            }),
            Err(RestoreError::Op(error)) => Err(error.into()),
        }
    }

    fn load_value(&mut self, key: &[u8], head: Head) -> Result<(), RestoreError> {
        let kind = head.value_type()?;
        // A replica keeps expired keys until its master deletes them.
        if head.expire_ms.is_some() && head.expire_ms <= self.txn.expiry_now_ms() {
            self.file
                .value(head, |_: Element<'_>| Ok::<(), RestoreError>(()))?;
            self.loaded.expired += 1;
            return Ok(());
        }
        if self.txn.meta_row(self.db, key)?.is_some() {
            return Err(rdb::Error::Corrupt("the key is there twice").into());
        }
        let Import {
            file,
            txn,
            now_ms,
            db,
            loaded,
            load,
        } = self;
        let mut building = Building::new(txn, *db, key, kind)?;
        let (mut elements, start) = (0u64, file.position());
        file.value(head, |element: Element<'_>| {
            building.add(txn, element)?;
            elements += 1;
            if txn.pending_bytes() >= SLICE_BYTES {
                building.park(txn)?;
                txn.commit()?;
                begin(txn, *now_ms)?;
                let so_far = Loaded {
                    elements: loaded.elements + elements,
                    bytes: start,
                    ..*loaded
                };
                load.report(&so_far);
                if load.is_cancelled() {
                    return Err(rdb::Error::Corrupt("the load was cancelled").into());
                }
            }
            Ok::<(), RestoreError>(())
        })?;
        let taken = building.finish(txn, head.expire_ms)?;
        self.loaded.elements += taken.elements;
        txn.count_expired_elements(taken.over);
        match taken.elements {
            0 => self.loaded.expired += 1,
            _ => self.loaded.keys += 1,
        }
        Ok(())
    }
}

/// Begins a commit's transaction. Nothing else accesses the database, so no locks are
/// needed.
fn begin(txn: &mut Txn, now_ms: UnixMs) -> Result<(), StorageError> {
    txn.begin(now_ms)?;
    txn.start_command();
    Ok(())
}

fn shown(bytes: &[u8]) -> String {
    let part = bytes.get(..SHOWN_BYTES).unwrap_or(bytes);
    String::from_utf8_lossy(part).into_owned()
}

#[cfg(test)]
mod tests;
