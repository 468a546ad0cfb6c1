//! The configuration: parameters, the files and flags that set them, and the
//! way in which all threads see one.
//!
//! - `params` holds the one table of parameters; everything else reads it. Its `table`
//!   says what a row is.
//! - `value`, `types` and `events` say what values are.
//! - `lex` splits lines into words, `file` reads files, `args` the command line.
//! - `rewrite` writes a file back; `docs` writes `--help` and the manual's table.
//! - `shared` hands the configuration to the threads; `memory` is the budget.
//!
//! Invariants: a `Config` holds only values within their bounds, whoever set
//! them; a change is made on a copy and seen whole or not at all; the text of
//! every value reads back as that value. What a changed value means to a thread
//! is that thread's matter: nothing here acts on one.

mod args;
mod docs;
mod events;
mod file;
mod kind;
mod lex;
mod lookup;
mod memory;
mod params;
mod rewrite;
mod shared;
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::path::{Path, PathBuf};

use crate::base::glob;
use crate::sys::files::create_dir_all;

pub use args::{Given, Startup};
pub use docs::{help_text, markdown_table};
pub use events::NotifyEvents;
pub use file::{ConfigError, Origin, Places, Reason};
pub use kind::ParamKind;
pub use lex::{LexError, quote, quote_always, split};
pub use memory::memory_budget;
pub use params::{Config, Flag, PARAMS, Param};
pub use shared::SharedConfig;
pub use types::{
    AllowAccess, AppendFsync, BufferLimit, BufferLimits, BusyScope, Compression, Directory,
    DumpName, FileName, LogLevel, MasterAddr, MaxmemoryPolicy, MemoryOrPercent, Memtable,
    Percentiles, Renames, SanitizePayload, SavePoints, Secret, UserLines, WordFlags,
};
pub use value::{Source, ValueError};

/// Why CONFIG SET changed nothing; the text is the error reply's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetError {
    /// No parameter of this name.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    /// A parameter of this name, but not this value, or not now.
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")]
    Refused {
        /// The parameter as the client called it.
        name: String,
        /// Why.
        reason: Refusal,
    },
}

/// What a parameter says to CONFIG SET.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// It takes effect at the start only.
    #[error("can't set immutable config")]
    Immutable,
    /// It is protected, and the client is not among those who may change it.
    #[error("can't set protected config")]
    Protected,
    /// It was given twice in one call.
    #[error("duplicate parameter")]
    Duplicate,
    /// It does not take the value.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// A client's name for a parameter, fit for one line of an error reply.
fn one_line(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace(['\r', '\n'], " ")
}

/// The words of a directive's only argument, as CONFIG SET gives it.
fn split_value(kind: &ParamKind, value: &[u8]) -> Vec<Vec<u8>> {
    if !kind.takes_many() {
        vec![value.to_vec()]
    } else if value.is_empty() {
        Vec::new()
    } else {
        value.split(|byte| *byte == b' ').map(Vec::from).collect()
    }
}

impl Config {
    /// CONFIG GET: names and values of the parameters that match any pattern,
    /// each once, in the table's order; a name without wildcards comes back as
    /// it was asked for. Aliases count as parameters of their own.
    pub fn get<P: AsRef<[u8]>>(&self, patterns: &[P]) -> Vec<(String, Vec<u8>)> {
        let (globs, names): (Vec<&[u8]>, Vec<&[u8]>) = patterns
            .iter()
            .map(AsRef::as_ref)
            .partition(|pattern| pattern.iter().any(|byte| b"*?[".contains(byte)));
        let mut out = Vec::new();
        for param in PARAMS.iter().filter(|param| !param.has(Flag::FileOnly)) {
            for name in param.names() {
                let asked = names
                    .iter()
                    .find(|asked| asked.eq_ignore_ascii_case(name.as_bytes()))
                    .map(|asked| String::from_utf8_lossy(asked).into_owned());
                let matched = || {
                    !param.has(Flag::Hidden)
                        && globs
                            .iter()
                            .any(|pattern| glob::matches(pattern, name.as_bytes(), true))
                };
                let shown = asked.or_else(|| matched().then(|| name.to_owned()));
                if let Some(shown) = shown {
                    out.push((shown, param.text(self)));
                }
            }
        }
        out
    }

    /// CONFIG SET: a copy with all of `pairs` (name, value) changed, or the first
    /// reason why not. `local` says whether the client is on this machine, for
    /// `enable-protected-configs`.
    pub fn set_many<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: &[(N, V)],
        local: bool,
    ) -> Result<Config, SetError> {
        let mut chosen: Vec<(&'static str, &'static Param)> = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let name = name.as_ref();
            let refused = |reason| SetError::Refused {
                name: one_line(name),
                reason,
            };
            let (known_as, param) = Param::find_named(name)
                .filter(|(_, param)| !param.has(Flag::FileOnly))
                .ok_or_else(|| SetError::Unknown(one_line(name)))?;
            // Saying again what holds anyway is no change: so a whole CONFIG GET can
            // be given back.
            if param.has(Flag::Start) && param.text(self) != value.as_ref() {
                return Err(refused(Refusal::Immutable));
            }
            if param.has(Flag::Guarded) && !self.enable_protected_configs.allows(local) {
                return Err(refused(Refusal::Protected));
            }
            // A parameter and its alias may stand together; the later one wins.
            if chosen.iter().any(|(earlier, _)| *earlier == known_as) {
                return Err(refused(Refusal::Duplicate));
            }
            chosen.push((known_as, param));
        }
        let mut config = self.clone();
        for ((name, value), (_, param)) in pairs.iter().zip(chosen) {
            if param.has(Flag::Start) {
                continue;
            }
            let words = split_value(&param.kind, value.as_ref());
            param
                .assign(&mut config, &words, Source::Set)
                .map_err(|error| SetError::Refused {
                    name: one_line(name.as_ref()),
                    reason: error.into(),
                })?;
        }
        Ok(config)
    }

    /// The names of the parameters whose values differ in `other`: what a thread
    /// looks at to learn what it has to act on.
    pub fn changed(&self, other: &Config) -> Vec<&'static str> {
        PARAMS
            .iter()
            .filter(|param| param.text(self) != param.text(other))
            .map(|param| param.name)
            .collect()
    }

    /// Whether the policy counts how often keys are used, and how.
    pub fn lfu(&self) -> Option<super::access::Lfu> {
        let counts = matches!(
            self.maxmemory_policy,
            MaxmemoryPolicy::AllkeysLfu | MaxmemoryPolicy::VolatileLfu
        );
        counts.then_some(super::access::Lfu {
            log_factor: self.lfu_log_factor,
            decay_min: self.lfu_decay_time,
        })
    }

    /// Whether Redis would share small numbers: not where it notes in each value
    /// when it was used last.
    pub fn shares_integers(&self) -> bool {
        let noted = matches!(
            self.maxmemory_policy,
            MaxmemoryPolicy::AllkeysLru | MaxmemoryPolicy::VolatileLru
        );
        self.max_memory_bytes == 0 || !(noted || self.lfu().is_some())
    }

    /// The names of parameters that were given a value but have no effect here.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let defaults = Config::default();
        let inert = PARAMS.iter().filter(|param| param.has(Flag::Inert));
        inert
            .filter(|param| param.text(self) != param.text(&defaults))
            .map(|param| param.name)
            .collect()
    }

    /// Makes `dir` if it does not exist; says whether it did.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_dir(&self) -> std::io::Result<bool> {
        let is_missing = !self.dir.is_dir();
        if is_missing {
            create_dir_all(&self.dir)?;
        }
        Ok(is_missing)
    }

    /// The directory of the database.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join(&self.db_name.0)
    }

    /// A path of the configuration, which starts from `dir` unless it is
    /// absolute; `None` when it is empty, which switches most things off.
    pub fn path(&self, path: &Path) -> Option<PathBuf> {
        (!path.as_os_str().is_empty()).then(|| self.dir.join(path))
    }

    /// Threads that serve clients, at least one. One processor is left for what goes on
    /// beside them: flushes, compactions, workers.
    pub fn io_thread_count(&self) -> usize {
        match self.io_threads {
            0 => (processors() - 1).max(1),
            threads => usize::try_from(threads).unwrap_or(1),
        }
    }

    /// Threads for requests that take long, at least one.
    pub fn worker_count(&self) -> usize {
        match self.io_threads {
            0 => processors(),
            threads => usize::try_from(threads).unwrap_or(1),
        }
    }

    /// Threads for flushes and compactions, at least one.
    pub fn background_jobs(&self) -> u32 {
        match self.rocksdb_max_background_jobs {
            0 => u32::try_from(processors()).unwrap_or(2).max(2),
            jobs => jobs,
        }
    }

    /// Brings values that are taken from a wider range into the one that is used.
    fn normalise(&mut self) {
        const BACKLOG_MIN_BYTES: u64 = 16 * 1024;
        self.hz = self.hz.clamp(1, 500);
        self.repl_backlog_size_bytes = self.repl_backlog_size_bytes.max(BACKLOG_MIN_BYTES);
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
