//! `--load-rdb FILE`: fills an empty database before the server takes clients.
//!
//! A load that fails leaves the database empty, as it was. One that is killed
//! leaves a mark: the next start either loads again, from the beginning, or
//! refuses to show a part of a file as if it were all.

use crate::base::clock;
use crate::commands::add_library;
use crate::encoding::own;
use crate::state::scripts::Libraries;
use crate::storage::{Engine, StorageError, Txn};
use crate::types::import::{ImportError, Load, Loaded, import};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest string that a file may hold. Rows have lengths of four bytes.
const MAX_STRING: u64 = u32::MAX as u64;
/// Bytes of the file that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// How often the log says how far it is.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Why a file is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is data already.
    #[error(
        "--load-rdb fills an empty server, but this one has {keys} keys and {libraries} libraries of functions; give it another `dir`"
    )]
    NotEmpty {
        /// Keys in all DBs.
        keys: u64,
        /// Libraries of functions.
        libraries: usize,
    },
    /// A load was killed, and this start does not repeat it.
    #[error(
        "a load of an RDB file did not end, so only a part of it is here: start with --load-rdb FILE again, or remove the data directory"
    )]
    Half,
    /// The file cannot be opened.
    #[error("cannot open {path}: {error}")]
    Open {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The file or the database fails.
    #[error("{path}: {error}")]
    Import {
        /// The file.
        path: String,
        /// Why.
        error: ImportError,
    },
    /// The database fails.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// For a start without `--load-rdb`.
///
/// # Errors
/// [`LoadError::Half`] if the database holds a part of a file.
pub fn refuse_half_loaded(engine: &Engine) -> Result<(), LoadError> {
    match engine.is_load_unfinished()? {
        true => Err(LoadError::Half),
        false => Ok(()),
    }
}

/// Loads the file. Nobody else may use the engine.
pub fn load_rdb(engine: &Arc<Engine>, path: &Path) -> Result<Loaded, LoadError> {
    let shown = path.display().to_string();
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (len, file) = opened.map_err(|error| LoadError::Open {
        path: shown.clone(),
        error,
    })?;
    let mut txn = Txn::new(engine.clone());
    if engine.is_load_unfinished()? {
        log::warn!("an earlier load of an RDB file did not end: beginning anew");
        clear(&mut txn)?;
    }
    let keyspaces = engine.all_keyspaces();
    let keys = keyspaces.iter().map(|(_, ks)| ks.counts().keys).sum();
    let libraries = library_rows(engine)?.len();
    if keys > 0 || libraries > 0 {
        return Err(LoadError::NotEmpty { keys, libraries });
    }
    engine.begin_load()?;
    log::info!("loading {shown}, {len} bytes");
    let started = Instant::now();
    let mut loading = Loading {
        len,
        reported: started,
        libraries: Libraries::default(),
    };
    let source = BufReader::with_capacity(BUFFER_BYTES, file);
    let now_ms = clock::unix_ms();
    let done = import(&mut txn, source, MAX_STRING, now_ms, &mut loading);
    match done {
        Ok(loaded) => {
            engine.end_load()?;
            report(&loaded, started.elapsed());
            Ok(loaded)
        }
        Err(error) => {
            // Another transaction: this one may hold half a slice.
            drop(txn);
            clear(&mut Txn::new(engine.clone()))?;
            engine.end_load()?;
            Err(LoadError::Import { path: shown, error })
        }
    }
}

/// A load under way.
struct Loading {
    /// Bytes of the file.
    len: u64,
    reported: Instant,
    /// Those that have come.
    libraries: Libraries,
}

impl Load for Loading {
    fn report(&mut self, so_far: &Loaded) {
        if self.reported.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported = Instant::now();
        log::info!(
            "loading: {} % of the file, {} keys, {} elements",
            so_far.bytes.saturating_mul(100) / self.len.max(1),
            so_far.keys,
            so_far.elements
        );
    }

    fn add_library(&mut self, code: &[u8]) -> Result<Vec<u8>, String> {
        let name = add_library(&mut self.libraries, code);
        name.map_err(|error| error.to_string())
    }
}

fn report(loaded: &Loaded, time: Duration) {
    log::info!(
        "loaded {} keys with {} elements and {} libraries of functions in {} ms",
        loaded.keys,
        loaded.elements,
        loaded.functions,
        time.as_millis()
    );
    for loss in loaded.losses(false) {
        log::warn!("{loss}");
    }
}

/// Removes all there is.
fn clear(txn: &mut Txn) -> Result<(), StorageError> {
    let engine = txn.engine().clone();
    txn.begin_exclusive(clock::unix_ms())?;
    txn.start_command();
    for (db, _) in engine.all_keyspaces() {
        txn.clear_db(db)?;
    }
    for row in library_rows(&engine)? {
        txn.put_own_row(row, None);
    }
    txn.commit()?;
    engine.make_durable()
}

/// The keys of the rows that hold libraries of functions.
fn library_rows(engine: &Engine) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut rows = Vec::new();
    engine.own_rows(own::LIBRARY_TAG, |name, _| {
        rows.push(own::library_row(name));
    })?;
    // The mark of a load that did not end has the tag and no name.
    rows.retain(|row| row != own::LOADING);
    Ok(rows)
}
