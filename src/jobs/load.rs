//! `--load-rdb FILE`: fills an empty database before the server takes clients.
//!
//! A load that fails leaves the database empty, as it was. One that is killed
//! leaves a mark: the next start either loads again, from the beginning, or
//! refuses to show a part of a file as if it were all.

use crate::base::clock;
use crate::storage::{Engine, StorageError, Txn};
use crate::types::import::{ImportError, Loaded, import};
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
    #[error("--load-rdb fills an empty server, but this one has {0} keys; give it another `dir`")]
    NotEmpty(u64),
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
    if keys > 0 {
        return Err(LoadError::NotEmpty(keys));
    }
    engine.begin_load()?;
    log::info!("loading {shown}, {len} bytes");
    let started = Instant::now();
    let mut reported = started;
    let source = BufReader::with_capacity(BUFFER_BYTES, file);
    let done = import(&mut txn, source, MAX_STRING, clock::unix_ms(), |so_far| {
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            log::info!(
                "loading: {} % of the file, {} keys, {} elements",
                so_far.bytes.saturating_mul(100) / len.max(1),
                so_far.keys,
                so_far.elements
            );
        }
    });
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

fn report(loaded: &Loaded, time: Duration) {
    log::info!(
        "loaded {} keys with {} elements in {} ms",
        loaded.keys,
        loaded.elements,
        time.as_millis()
    );
    for (count, what) in [
        (loaded.expired, "keys whose time is over were left out"),
        (loaded.empty, "keys without elements were left out"),
        (
            loaded.timed_fields,
            "fields of hashes had a time of their own: those past it were left out, the others have lost it",
        ),
        (loaded.functions, "libraries of functions were left out"),
        (loaded.modules, "pieces of modules' own data were left out"),
    ] {
        if count > 0 {
            log::warn!("{count} {what}");
        }
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
    txn.commit()?;
    engine.make_durable()
}
