//! `--load-rdb FILE`: fills an empty database with files of Redis, before commands are served:
//! an RDB file, or an append-only log of one or several files.
//!
//! A load that fails leaves the database empty. A load that is killed leaves a mark: the next
//! start either loads again from the beginning, or refuses to serve a part of the data.

mod log_of_redis;

use crate::base::num;
use crate::commands::{Error, add_library, load_libraries};
use crate::encoding::system;
use crate::rdb::append_only;
use crate::state::Server;
use crate::state::config::Config;
use crate::state::scripts::Libraries;
use crate::storage::engine::history::Following;
use crate::storage::{Engine, StorageError, Txn};
use crate::sys::clock;
use crate::types::import::{ImportError, Load, Loaded, import};
use log_of_redis::{Commands, LogError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest string in a file: rows have lengths of four bytes.
const MAX_STRING: u64 = u32::MAX as u64;
/// Bytes per read.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes of a file from which its format is recognised.
const HEAD_BYTES: u64 = 1024;
/// Auxiliary fields of an RDB file that is the base of an append-only log, of newer and older
/// versions of Redis.
const BASES: [&[u8]; 2] = [b"aof-base\xc0\x01", b"aof-preamble\xc0\x01"];
/// How often the progress is logged.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Why a file is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The database is not empty.
    #[error(
        "--load-rdb fills an empty server, but this one has {keys} keys and {libraries} libraries of functions; give it another `dir`"
    )]
    NotEmpty {
        /// Keys in all DBs.
        keys: u64,
        /// Libraries of functions.
        libraries: usize,
    },
    /// An earlier load was killed, and this start does not repeat it.
    #[error(
        "a load of files of Redis did not end, so only a part of them is here: start with --load-rdb FILE again, or remove the data directory"
    )]
    Half,
    /// The file cannot be opened.
    #[error("cannot open {path}: {error}")]
    Open {
        /// The file.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The files of the log cannot be determined.
    #[error(transparent)]
    AppendOnly(#[from] append_only::Error),
    /// A file is no part of an append-only log.
    #[error("{0} is neither an RDB file nor an append-only file of Redis")]
    Unknown(String),
    /// An RDB file follows other files of a log.
    #[error("{0} is an RDB file, but not the first file of the log")]
    LateRdb(String),
    /// The server stops. The loaded data stays, marked as incomplete.
    #[error("the load was cancelled")]
    Cancelled,
    /// A file of commands cannot be loaded.
    #[error("{path}: byte {at}: {error}")]
    Log {
        /// The file.
        path: String,
        /// Offset of the command in the file.
        at: u64,
        /// The reason.
        error: LogError,
    },
    /// The loaded libraries of functions cannot be used.
    #[error("{0}")]
    Libraries(Error),
    /// The RDB file or the database fails.
    #[error("{path}: {error}")]
    Import {
        /// The file.
        path: String,
        /// The reason.
        error: ImportError,
    },
    /// The database fails.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Check for a start without `--load-rdb`.
///
/// # Errors
/// [`LoadError::Half`] if the database holds a part of a file.
pub fn refuse_half_loaded(engine: &Engine) -> Result<(), LoadError> {
    match engine.is_load_unfinished()? {
        true => Err(LoadError::Half),
        false => Ok(()),
    }
}

/// For a start without `--load-rdb` on an empty database: warns in the log if `dir` holds files
/// that a Redis would load, or a copy of a database.
pub fn name_what_is_not_loaded(engine: &Engine, config: &Config) {
    let keyspaces = engine.all_keyspaces();
    if keyspaces.iter().any(|(_, ks)| ks.counts().keys > 0) {
        return;
    }
    let log_dir = config.dir.join(&config.appenddirname.0);
    let has_manifest = append_only::manifests(&log_dir).is_ok_and(|found| !found.is_empty());
    let old_log = config.dir.join(&config.appendfilename.0);
    let dump = config.dir.join(&config.dbfilename.0);
    let is_dump = head(&dump).is_ok_and(|head| append_only::begins_as_rdb(&head));
    let is_log =
        head(&old_log).is_ok_and(|head| is_log(&head) || append_only::begins_as_rdb(&head));
    let mut found: Vec<String> = [
        (has_manifest, &log_dir),
        (is_log, &old_log),
        (is_dump, &dump),
    ]
    .into_iter()
    .filter(|(is_there, _)| *is_there)
    .map(|(_, path)| path.display().to_string())
    .collect();
    if !config.appendonly {
        // A Redis without an append-only log loads its RDB file.
        found.reverse();
    }
    if let Some(first) = found.first() {
        log::warn!(
            "this server starts empty, but its directory holds data of a Redis, which is not \
             loaded by itself: {}. Start with --load-rdb {first} to fill it",
            found.join(", ")
        );
    }
    if append_only::is_copy(&dump) {
        log::warn!(
            "this server starts empty, but {} is a copy of a database, which the next SAVE replaces. \
             To restore it, stop the server and put the copy in the place of {}",
            dump.display(),
            config.data_dir().display()
        );
    }
}

/// The first bytes of a file.
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    if path.is_file() {
        File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    }
    Ok(head)
}

/// Whether a file begins with a command, or with an annotation between commands.
fn is_log(head: &[u8]) -> bool {
    matches!(head.first(), Some(b'*' | b'#'))
}

/// Whether a file is an RDB file at the beginning of a log.
fn is_base(head: &[u8]) -> bool {
    BASES
        .iter()
        .any(|base| memchr::memmem::find(head, base).is_some())
}

/// Loads the file or the log that `path` names. No other thread writes to the database or runs
/// commands on keys meanwhile.
pub fn load(server: &Arc<Server>, path: &Path) -> Result<(), LoadError> {
    let engine = &server.engine;
    let files = found(path)?;
    let mut txn = Txn::new(engine.clone());
    if engine.is_load_unfinished()? {
        log::warn!("an earlier load did not end: starting again");
        clear(&mut txn)?;
    }
    drop(txn);
    let keys = keys(engine);
    let libraries = library_rows(engine)?.len();
    if keys > 0 || libraries > 0 {
        return Err(LoadError::NotEmpty { keys, libraries });
    }
    engine.begin_load()?;
    let total = files.iter().map(|file| file.len).sum();
    server.loading.expect(total);
    log::info!("loading {}, {total} bytes", path.display());
    let following = engine.begin_following();
    let mut loading = Loading::new(server, total, following);
    let done = loading.files(&files);
    let ended = || {
        // The loaded data begins a history of its own.
        engine.begin_history()?;
        engine.end_load()
    };
    match done {
        Ok(()) => {
            ended()?;
            loading.log_summary();
            Ok(())
        }
        Err(LoadError::Cancelled) => Err(LoadError::Cancelled),
        Err(error) => {
            // Needs a new transaction: the old one may hold half a slice.
            drop(loading);
            clear(&mut Txn::new(engine.clone()))?;
            ended()?;
            Err(error)
        }
    }
}

fn keys(engine: &Engine) -> u64 {
    let keyspaces = engine.all_keyspaces();
    keyspaces.iter().map(|(_, ks)| ks.counts().keys).sum()
}

struct Source {
    path: PathBuf,
    len: u64,
}

impl Source {
    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// The files that `path` stands for. Each of them could be opened.
fn found(path: &Path) -> Result<Vec<Source>, LoadError> {
    let open = |path: PathBuf| {
        let about = File::open(&path).and_then(|file| file.metadata());
        match about {
            Ok(about) => Ok(Source {
                len: about.len(),
                path,
            }),
            Err(error) => Err(LoadError::Open {
                path: path.display().to_string(),
                error,
            }),
        }
    };
    if !path.exists() {
        return open(path.to_owned()).map(|source| vec![source]);
    }
    append_only::files(path)?.into_iter().map(open).collect()
}

/// A load under way.
struct Loading<'l> {
    server: &'l Arc<Server>,
    following: Following,
    /// Bytes of all files.
    total: u64,
    /// Bytes of the files before the current one.
    before: u64,
    started: Instant,
    reported: Instant,
    /// Libraries of functions from RDB files.
    libraries: Libraries,
    /// Counts of what RDB files contained.
    loaded: Loaded,
    /// Number of commands from logs.
    commands: u64,
}

impl<'l> Loading<'l> {
    fn new(server: &'l Arc<Server>, total: u64, following: Following) -> Loading<'l> {
        let now = Instant::now();
        Loading {
            server,
            following,
            total,
            before: 0,
            started: now,
            reported: now,
            libraries: Libraries::default(),
            loaded: Loaded::default(),
            commands: 0,
        }
    }

    fn files(&mut self, files: &[Source]) -> Result<(), LoadError> {
        let first = files.first().map(|file| head(&file.path));
        let first = first.and_then(Result::ok).unwrap_or_default();
        let is_log = files.len() > 1 || is_log(&first) || is_base(&first);
        for (nth, file) in files.iter().enumerate() {
            let is_last = nth + 1 == files.len();
            let opened = File::open(&file.path).map_err(|error| LoadError::Open {
                path: file.shown(),
                error,
            })?;
            let mut source = BufReader::with_capacity(BUFFER_BYTES, opened);
            let mut at = 0;
            let head = source.fill_buf().map_err(|error| file.failed(at, error))?;
            if append_only::begins_as_rdb(head) {
                if nth > 0 {
                    return Err(LoadError::LateRdb(file.shown()));
                }
                at = self.rdb(file, &mut source, is_log)?;
                // As in Redis, bytes after a single RDB file are ignored.
                let behind = source.fill_buf().map_err(|error| file.failed(at, error))?;
                if !is_log && !self::is_log(behind) {
                    return Ok(());
                }
            } else if !is_log && !head.is_empty() || files.len() == 1 && head.is_empty() {
                return Err(LoadError::Unknown(file.shown()));
            }
            self.log(file, source, at, is_last)?;
            self.before += file.len;
        }
        Ok(())
    }

    /// Loads an RDB file, alone or at the beginning of a log. Returns its length.
    fn rdb(
        &mut self,
        file: &Source,
        source: &mut impl BufRead,
        in_log: bool,
    ) -> Result<u64, LoadError> {
        let mut txn = Txn::new(self.server.engine.clone());
        if in_log {
            // Later commands may refer to keys that have expired by now.
            txn.receive(self.following);
        }
        let done = import(&mut txn, source, MAX_STRING, clock::unix_ms(), self);
        let expired = txn.take_expired_elements();
        self.server.stats.expired_subkeys.add(expired);
        self.loaded = done.map_err(|error| match error {
            ImportError::Cancelled => LoadError::Cancelled,
            error => LoadError::Import {
                path: file.shown(),
                error,
            },
        })?;
        let Loaded { keys, expired, .. } = self.loaded;
        self.server.loading.note_keys(keys, expired);
        load_libraries(self.server).map_err(LoadError::Libraries)?;
        Ok(self.loaded.bytes)
    }

    /// Runs the commands of a file, from offset `at` on.
    fn log(
        &mut self,
        file: &Source,
        mut source: impl Read,
        at: u64,
        is_last: bool,
    ) -> Result<(), LoadError> {
        let mut commands = Commands::new(self.server, self.following, at);
        let done = loop {
            match commands.run_some(&mut source) {
                Ok(true) => {}
                _ if self.server.loading.is_cancelled() => return Err(LoadError::Cancelled),
                done => break done,
            }
            self.reach(commands.at());
            if self.server.loading.is_cancelled() {
                return Err(LoadError::Cancelled);
            }
        };
        self.commands += commands.count();
        let error = match done.and_then(|_| commands.end()) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if let LogError::Truncated(bytes) = error
            && is_last
            && self.server.config.load().aof_load_truncated
        {
            log::warn!(
                "{}: the last {bytes} bytes are not a complete command, or belong to a transaction \
                 without its end: they are left out",
                file.shown()
            );
            return Ok(());
        }
        Err(LoadError::Log {
            path: file.shown(),
            at: commands.at(),
            error,
        })
    }

    /// Records the progress within a file, and logs it from time to time.
    fn reach(&mut self, bytes: u64) {
        let reached = self.before + bytes;
        self.server.loading.reach(reached);
        if self.reported.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported = Instant::now();
        log::info!(
            "loading: {} % of {} bytes, {} keys",
            reached.saturating_mul(100) / self.total.max(1),
            self.total,
            keys(&self.server.engine)
        );
    }

    fn log_summary(&self) {
        log::info!(
            "loaded {} keys with {} elements and {} libraries of functions in {} ms",
            self.loaded.keys,
            self.loaded.elements,
            self.loaded.functions,
            self.started.elapsed().as_millis()
        );
        if self.commands > 0 {
            log::info!(
                "and ran {} commands of the append-only log: {} keys in all",
                self.commands,
                keys(&self.server.engine)
            );
        }
        for loss in self.loaded.losses() {
            log::warn!("{loss}");
        }
    }
}

impl Source {
    fn failed(&self, at: u64, error: io::Error) -> LoadError {
        LoadError::Log {
            path: self.shown(),
            at,
            error: LogError::Io(error),
        }
    }
}

impl Load for Loading<'_> {
    fn report(&mut self, so_far: &Loaded) {
        self.reach(so_far.bytes);
    }

    fn is_cancelled(&self) -> bool {
        self.server.loading.is_cancelled()
    }

    fn aux(&mut self, name: &[u8], text: &[u8]) {
        if name == b"used-mem"
            && let Some(bytes) = num::parse_u64(text)
        {
            self.server.loading.note_used_memory(bytes);
        }
    }

    fn add_library(&mut self, code: &[u8]) -> Result<Vec<u8>, String> {
        let name = add_library(&mut self.libraries, code);
        name.map_err(|error| error.to_string())
    }
}

/// Removes all data.
fn clear(txn: &mut Txn) -> Result<(), StorageError> {
    let engine = txn.engine().clone();
    txn.begin_exclusive(clock::unix_ms())?;
    txn.start_command();
    for (db, _) in engine.all_keyspaces() {
        txn.clear_db(db)?;
    }
    for row in library_rows(&engine)? {
        txn.put_system_row(row, None);
    }
    txn.commit()?;
    engine.make_durable()
}

/// The keys of the rows that hold libraries of functions.
fn library_rows(engine: &Engine) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut rows = Vec::new();
    engine.system_rows(system::LIBRARY_TAG, |name, _| {
        rows.push(system::library_row(name));
    })?;
    // The mark of an unfinished load has the same tag and no name.
    rows.retain(|row| row != system::LOADING);
    Ok(rows)
}
