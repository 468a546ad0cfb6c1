//! Moving data between servers: what the tools `kedis_port`, `redis_to_kedis`
//! and `kedis_to_redis` do.
//!
//! ```text
//!            PSYNC        RDB file       commands          parallel connections
//! source ───────────► copy ─────────► follow ─────────► target
//!     what it has, as of a position   what it does from there on, in one
//!                                     transaction with the position
//! ```
//!
//! A tool attaches to the source as a replica, as to a Redis also to a Kedis: the data
//! set arrives as an RDB file, later changes as commands with offsets. The commands of
//! the stream are not idempotent. The target therefore holds the position up to which it
//! has applied them, in the *marker*, a key that each transaction of the stream sets. A
//! target that lost its last seconds has lost the same seconds of the marker. After any
//! failure the tool reads the position from the target and asks the source to continue
//! there; if the source cannot, the tool copies again. With `--resume` the marker also
//! holds the progress of a copy, and data from the source passes through files that
//! outlive the tool; without it, an incomplete copy starts again.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | the flags |
//! | [`peers`], [`survey`] | kinds and abilities of the servers; checks before a copy begins |
//! | [`conn`], [`throttle`] | a connection and its rate limit |
//! | [`psync`] | the source as a replica sees it |
//! | [`aof`] | append-only files instead of a source |
//! | [`scan`] | copy from a source that refuses PSYNC, with SCAN and keyspace events |
//! | [`mapping`] | which DBs and keys go where |
//! | [`rewrite`] | translates a command of the stream for the target |
//! | [`elements`] | values as commands |
//! | [`copy`], [`lanes`] | the data set, over parallel connections |
//! | [`follow`] | the stream |
//! | [`spool`] | data set and stream in files until the target has them |
//! | [`checkpoint`] | the marker and the file of `--resume` |
//! | [`job`] | a whole migration, with reconnects |
//! | [`values`], [`stream_reader`], [`piece`] | reading values with commands |
//! | [`verify`] | compares both sides |
//! | [`stats`], [`progress`] | counters, and their display |

mod aof;
mod checkpoint;
mod conn;
mod copy;
mod elements;
mod error;
mod follow;
mod job;
mod lanes;
mod mapping;
mod options;
mod peers;
mod piece;
mod progress;
mod psync;
mod rewrite;
mod scan;
mod spool;
mod stats;
mod stream_reader;
mod survey;
mod throttle;
mod values;
mod verify;

pub use conn::Conn;
pub use error::{Error, Result};
pub use options::{Address, Endpoint, tls};

use crate::base::one_line::OneLine;
use clap::{CommandFactory, FromArgMatches};
use options::Options;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// Redis, Valkey, or another server with the same protocol.
    Redis,
    /// Kedis.
    Kedis,
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Server::Redis => "Redis",
            Server::Kedis => "Kedis",
        })
    }
}

/// A tool.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What the source has to be.
    pub source: Server,
    /// What the target has to be.
    pub target: Server,
}

impl Tool {
    /// From a Kedis to another.
    pub const KEDIS_PORT: Tool = Tool {
        name: "kedis_port",
        about: "Copies what a Kedis has to another, and follows it",
        source: Server::Kedis,
        target: Server::Kedis,
    };
    /// From a Kedis to a Redis or Valkey.
    pub const KEDIS_TO_REDIS: Tool = Tool {
        name: "kedis_to_redis",
        about: "Copies what a Kedis has to a Redis or Valkey, and follows it",
        source: Server::Kedis,
        target: Server::Redis,
    };
    /// From a Redis or Valkey to a Kedis.
    pub const REDIS_TO_KEDIS: Tool = Tool {
        name: "redis_to_kedis",
        about: "Copies what a Redis or Valkey has to a Kedis, and follows it",
        source: Server::Redis,
        target: Server::Kedis,
    };

    /// Its command line.
    pub fn command(self) -> clap::Command {
        let mut command = Options::command().name(self.name).about(self.about);
        if self.source == Server::Kedis {
            let files = ["rdb_file", "aof_file", "src_from_rdb", "scan"];
            for file in files {
                command = command.mut_arg(file, |arg| arg.hide(true));
            }
        }
        command
    }

    /// The tool's `main`.
    pub fn main(self) -> ExitCode {
        let options = Options::from_arg_matches(&self.command().get_matches());
        let options = match options {
            Ok(options) => options,
            Err(error) => error.exit(),
        };
        let level = log::LevelFilter::Info;
        env_logger::Builder::new()
            .filter_level(level)
            .parse_default_env()
            .format(|out, record| {
                use std::io::Write;
                writeln!(out, "{}", OneLine(record.args()))
            })
            .init();
        match self.run(options) {
            Ok(outcome) => outcome,
            Err(error) => {
                eprintln!("{}: {}", self.name, OneLine(error));
                ExitCode::FAILURE
            }
        }
    }

    fn run(self, options: Options) -> Result<ExitCode> {
        let stop = Stop::on_signals().map_err(|error| Error::File {
            path: "signal handlers".into(),
            error,
        })?;
        job::run(self, options, stop)
    }
}

/// Delay between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// How long work in progress may still take after the tool was asked to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Whether the tool has been asked to stop.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    wanted: Arc<AtomicBool>,
    since: Arc<OnceLock<Instant>>,
}

impl Stop {
    /// Registers SIGINT and SIGTERM. A second signal ends the process at once.
    pub fn on_signals() -> std::io::Result<Stop> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, stop.wanted.clone())?;
            signal_hook::flag::register(signal, stop.wanted.clone())?;
        }
        Ok(stop)
    }

    /// Whether the tool should stop at the next safe point. The first call that returns
    /// true starts [`GRACE`].
    fn is_wanted(&self) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted {
            self.since.get_or_init(Instant::now);
        }
        wanted
    }

    /// Fails if the tool should stop; for points where stopping loses nothing.
    pub fn check(&self) -> Result<()> {
        match self.is_wanted() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }

    /// Fails once [`GRACE`] is over; for points where stopping interrupts work.
    fn check_now(&self) -> Result<()> {
        let is_over = |since: &Instant| since.elapsed() > GRACE;
        match self.is_wanted() && self.since.get().is_some_and(is_over) {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}

/// Sleeps, or returns early when the tool is asked to stop.
pub fn sleep(time: Duration, stop: &Stop) {
    let end = Instant::now() + time;
    while !stop.is_wanted() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(conn::NAP));
    }
}
