//! The configuration: parameters, the files and flags that set them, and how threads share it.
//!
//! - `params` holds the one table of parameters; everything else is derived from it. Its `table`
//!   defines the rows.
//! - `value`, `types` and `events` define the values.
//! - `lex` splits lines into words, `file` reads files, `args` the command line.
//! - `rewrite` writes a file back; `docs` writes `--help`, the manual's table and a file that
//!   explains all parameters.
//! - `tls` reads names of protocols and ciphers.
//! - `shared` hands the configuration to the threads; `memory` is the budget.
//!
//! Invariants: a `Config` holds only values within their bounds, whatever their source. A
//! change is made on a copy and becomes visible as a whole or not at all. The text of every
//! value reads back as that value. Threads apply changed values themselves: nothing here does.

mod args;
mod docs;
mod events;
mod file;
mod hostname;
mod kind;
mod lex;
mod logs;
mod lookup;
mod memory;
mod params;
mod rewrite;
mod shared;
mod shown;
mod storage;
#[cfg(test)]
mod tests;
mod tls;
mod types;
mod value;

use std::path::{Path, PathBuf};

use crate::base::glob;
use crate::state::commandlog::LogKind;
use crate::sys::files::create_dir_all;

pub use args::{Given, Startup};
pub use docs::{FLAGS, config_file, help_text, inert, markdown_table, sections};
pub use events::NotifyEvents;
pub use file::{ConfigError, Origin, Places, Reason, read_bounded};
pub use kind::ParamKind;
pub use lex::quote_always;
pub use lex::{LexError, quote, split, words};
pub use logs::LogLevels;
pub use memory::{lack_of_memory, memory_budget};
use params::PARAMS;
pub use params::{Config, Flag, Param};
pub use rewrite::replace_file;
pub use shared::SharedConfig;
pub use types::{
    AllowAccess, AppendFsync, BufferLimit, BufferLimits, BusyScope, Directory, DumpName,
    EndpointType, EvictionPolicy, FileName, LogFormat, LogLevel, MasterAddr, MemoryOrPercent,
    Percentiles, Renames, SanitizePayload, SavePoints, Secret, TlsAuthClients, TlsAuthClientsUser,
    UserLines, WordFlags,
};
pub use value::{Source, ValueError};

/// The binlog takes at most `1 / BINLOG_OF_QUOTA` of `max-disk`.
const BINLOG_OF_QUOTA: u64 = 8;

/// The lower of two limits, of which 0 is none.
fn least_limit(one: u64, other: u64) -> u64 {
    match (one, other) {
        (0, limit) | (limit, 0) => limit,
        _ => one.min(other),
    }
}

/// Why CONFIG SET changed nothing; the text is that of the error reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetError {
    /// There is no parameter of this name.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    /// The parameter does not accept the value, or cannot be changed now.
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")]
    Refused {
        /// The parameter's name in the request.
        name: String,
        /// The reason.
        reason: Refusal,
    },
}

/// Why CONFIG SET cannot change a parameter.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// It takes effect only at the start.
    #[error("can't set immutable config")]
    Immutable,
    /// It is protected, and the client may not change protected parameters.
    #[error("can't set protected config")]
    Protected,
    /// It occurs twice in one command.
    #[error("duplicate parameter")]
    Duplicate,
    /// It does not accept the value.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// A parameter's name in a request, without line breaks, for an error reply.
fn one_line(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace(['\r', '\n'], " ")
}

/// The words of a directive's argument in CONFIG SET.
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
    /// CONFIG GET: names and values of the parameters that match any pattern, each once, in the
    /// table's order. A name without wildcards is returned as it was requested. Aliases count
    /// as parameters of their own.
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

    /// CONFIG SET: a copy with all of `pairs` (name, value) changed, or the first error.
    /// `local` says whether the client is on this machine, for `enable-protected-configs`.
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
            // Setting the present value is allowed, so that the result of CONFIG GET can be set
            // again.
            if param.has(Flag::Start) && param.text(self) != value.as_ref() {
                return Err(refused(Refusal::Immutable));
            }
            if param.has(Flag::Guarded) && !self.enable_protected_configs.allows(local) {
                return Err(refused(Refusal::Protected));
            }
            // A parameter and its alias may both occur; the later one wins.
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

    /// The names of the parameters whose values differ in `other`.
    pub fn changed(&self, other: &Config) -> Vec<&'static str> {
        PARAMS
            .iter()
            .filter(|param| param.text(self) != param.text(other))
            .map(|param| param.name)
            .collect()
    }

    /// A Cuckoo filter has at least two buckets. `changed`: the parameter to refuse.
    fn check_filters(&self, changed: &str) -> Result<(), ValueError> {
        let (slots, size) = (u64::from(self.cf_bucket_size), self.cf_initial_size);
        match changed {
            _ if 2 * slots <= size => Ok(()),
            "cf-bucket-size" => {
                let most = (size / 2).min(255) as i64;
                Err(ValueError::module_range(changed, 1, most))
            }
            "cf-initial-size" => {
                let least = (2 * slots) as i64;
                Err(ValueError::module_range(changed, least, 1 << 30))
            }
            _ => Ok(()),
        }
    }

    /// The limit and the length of a log of commands.
    pub fn command_log(&self, kind: LogKind) -> (i64, u64) {
        match kind {
            LogKind::Slow => (self.slowlog_log_slower_than_us, self.slowlog_max_len),
            LogKind::LargeRequest => (
                self.commandlog_request_larger_than,
                self.commandlog_large_request_max_len,
            ),
            LogKind::LargeReply => (
                self.commandlog_reply_larger_than,
                self.commandlog_large_reply_max_len,
            ),
        }
    }

    /// The most bytes of the binlog: a share of `max-disk` if that is less.
    pub fn binlog_bytes(&self) -> u64 {
        least_limit(self.binlog_max_bytes, self.max_disk_bytes / BINLOG_OF_QUOTA)
    }

    /// The most bytes of the binlog for lagging replicas: twice that share if that is less.
    pub fn binlog_hold_bytes(&self) -> u64 {
        let share = self.max_disk_bytes / BINLOG_OF_QUOTA;
        least_limit(self.binlog_hold_max_bytes, 2 * share)
    }

    /// Whether keys are evicted for want of space on the disk.
    pub fn evicts(&self) -> bool {
        self.max_disk_bytes > 0 && self.max_disk_policy != EvictionPolicy::Noeviction
    }

    /// Whether an access that does not write counts for `max-disk-policy`.
    pub fn reads_count(&self) -> bool {
        use EvictionPolicy::{AllkeysLrm, VolatileLrm};
        !matches!(self.max_disk_policy, AllkeysLrm | VolatileLrm)
    }

    /// The parameters of LFU counting, if a policy is an LFU one.
    pub fn lfu(&self) -> Option<super::access::Lfu> {
        use EvictionPolicy::{AllkeysLfu, VolatileLfu};
        let policies = [self.maxmemory_policy, self.max_disk_policy];
        let counts = policies
            .iter()
            .any(|policy| matches!(policy, AllkeysLfu | VolatileLfu));
        counts.then_some(super::access::Lfu {
            log_factor: self.lfu_log_factor,
            decay_min: self.lfu_decay_time,
        })
    }

    /// Whether Redis would share small integers: not if the policy stores access times in
    /// values.
    pub fn shares_integers(&self) -> bool {
        let noted = matches!(
            self.maxmemory_policy,
            EvictionPolicy::AllkeysLru | EvictionPolicy::VolatileLru
        );
        self.max_memory_bytes == 0 || !(noted || self.lfu().is_some())
    }

    /// The names of parameters that are set but have no effect here.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let defaults = Config::default();
        let inert = PARAMS.iter().filter(|param| param.has(Flag::Inert));
        inert
            .filter(|param| param.text(self) != param.text(&defaults))
            .map(|param| param.name)
            .collect()
    }

    /// Creates `dir` if it does not exist.
    ///
    /// # Errors
    /// It cannot be created; what is above it may be there now.
    pub fn make_dir(&self) -> std::io::Result<Made> {
        let data = self.data_dir();
        let missing = data.ancestors().take_while(|above| !above.exists());
        let made = Made(missing.map(Path::to_owned).collect());
        if !self.dir.is_dir() {
            if self.dir.exists() {
                return Err(std::io::ErrorKind::NotADirectory.into());
            }
            create_dir_all(&self.dir).inspect_err(|_| made.remove_if_empty())?;
        }
        Ok(made)
    }

    /// The directory of the database.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join(&self.db_name.0)
    }

    /// A path relative to `dir`, or absolute; `None` when it is empty, which disables most
    /// features.
    pub fn path(&self, path: &Path) -> Option<PathBuf> {
        (!path.as_os_str().is_empty()).then(|| self.dir.join(path))
    }

    /// The port that clients are told of: `port`, or `tls-port` if there is no other.
    pub fn first_port(&self) -> u16 {
        match self.port {
            0 => self.tls_port,
            port => port,
        }
    }

    /// Whether metrics are served.
    pub fn has_metrics(&self) -> bool {
        self.metrics_port != 0 || !self.metrics_unixsocket.as_os_str().is_empty()
    }

    /// The number of IO threads, at least one. By default one processor is left for flushes,
    /// compactions and workers.
    pub fn io_thread_count(&self) -> usize {
        match self.io_threads {
            0 => (processors() - 1).max(1),
            threads => usize::try_from(threads).unwrap_or(1),
        }
    }

    /// The number of slow-command workers, at least one.
    pub fn worker_count(&self) -> usize {
        match self.io_threads {
            0 => processors(),
            threads => usize::try_from(threads).unwrap_or(1),
        }
    }

    /// The number of threads for flushes and compactions, at least one.
    pub fn background_jobs(&self) -> u32 {
        match self.rocksdb_max_background_jobs {
            0 => u32::try_from(processors()).unwrap_or(2).max(2),
            jobs => jobs,
        }
    }

    /// Limits values that are accepted from a wider range than the one in use.
    fn normalise(&mut self) {
        const BACKLOG_MIN_BYTES: u64 = 16 * 1024;
        self.hz = self.hz.clamp(1, 500);
        self.repl_backlog_size_bytes = self.repl_backlog_size_bytes.max(BACKLOG_MIN_BYTES);
        if self.cluster_enabled {
            self.databases = 1;
        }
    }
}

/// The directories that a start makes: those of the database and of `dir`, and what is above them.
#[derive(Debug)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// Whether it makes this one.
    pub fn has(&self, dir: &Path) -> bool {
        self.0.iter().any(|made| made == dir)
    }

    /// Removes those in which there is nothing: the start has failed.
    pub fn remove_if_empty(&self) {
        for dir in &self.0 {
            // It may not have been made, or have files.
            if let Err(error) = std::fs::remove_dir(dir) {
                log::debug!("{} stays: {error}", dir.display());
            }
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
