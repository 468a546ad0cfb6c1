//! The server's log: which messages are logged, by module, and how a line looks. Both change while
//! the server runs.

use crate::base::one_line::OneLine;
use crate::sys::log_file::{LogFile, Reopen};
use env_logger::fmt::Formatter;
use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::RwLock;
use serde_json::Value;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Which messages are logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// Of modules that are not named.
    pub others: LevelFilter,
    /// By module of this package.
    pub modules: Vec<(&'static str, LevelFilter)>,
}

impl Levels {
    /// The level of messages with this target, which is the path of a module.
    fn of(&self, target: &str) -> LevelFilter {
        // The program itself is `kedis_server`.
        if !target.starts_with("kedis") {
            return self.of_library(target);
        }
        let mut path = target.split("::").skip(1);
        self.of_module(path.next().unwrap_or_default())
    }

    fn of_module(&self, module: &str) -> LevelFilter {
        let named = self.modules.iter().find(|(name, _)| *name == module);
        named.map_or(self.others, |(_, level)| *level)
    }

    /// The levels are not made for libraries, of which no more than warnings are logged.
    fn of_library(&self, target: &str) -> LevelFilter {
        if target.split("::").next() != Some("rustls") {
            return self.others.min(LevelFilter::Warn);
        }
        // It warns of whatever a peer sends, and everyone can connect: the log would fill the disk.
        match self.of_module("tls") {
            LevelFilter::Debug | LevelFilter::Trace => LevelFilter::Warn,
            _ => LevelFilter::Off,
        }
    }

    /// The level below which no message is logged at all.
    fn most(&self) -> LevelFilter {
        let modules = self.modules.iter().map(|(_, level)| *level);
        modules.fold(self.others, Ord::max)
    }
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Plain text.
    Text,
    /// Words with names.
    Logfmt,
    /// A JSON object.
    Json,
}

/// What the logger does, shared with those who change it.
struct Rules {
    now: RwLock<(Levels, Form)>,
}

struct Logger {
    lines: env_logger::Logger,
    rules: Arc<Rules>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= self.rules.now.read().0.of(metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.lines.log(record);
        }
    }

    fn flush(&self) {
        self.lines.flush();
    }
}

/// A handle of the running log.
pub struct Logging {
    rules: Arc<Rules>,
    reopen: Option<Reopen>,
}

impl Logging {
    /// Starts the log; `file`: where to, in place of standard error.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn start(file: Option<PathBuf>, levels: Levels, form: Form) -> io::Result<Logging> {
        let rules = Arc::new(Rules {
            now: RwLock::new((levels.clone(), form)),
        });
        let mut builder = env_logger::Builder::new();
        builder.filter_level(LevelFilter::Trace);
        let of_lines = rules.clone();
        builder.format(move |out, record| {
            let form = of_lines.now.read().1;
            match form {
                Form::Text => text_line(out, record),
                Form::Logfmt => logfmt_line(out, record),
                Form::Json => json_line(out, record),
            }
        });
        let mut reopen = None;
        if let Some(path) = file {
            let file = LogFile::open(path)?;
            reopen = Some(file.reopen());
            builder.target(env_logger::Target::Pipe(Box::new(file)));
        }
        let logger = Logger {
            lines: builder.build(),
            rules: rules.clone(),
        };
        log::set_boxed_logger(Box::new(logger)).map_err(io::Error::other)?;
        let logging = Logging { rules, reopen };
        logging.change(levels, form);
        Ok(logging)
    }

    /// Changes what is logged, and the form of the lines.
    pub fn change(&self, levels: Levels, form: Form) {
        log::set_max_level(levels.most());
        *self.rules.now.write() = (levels, form);
    }

    /// Has the file reopened with the next line.
    pub fn reopen(&self) {
        if let Some(reopen) = &self.reopen {
            reopen.ask();
        }
    }
}

fn text_line(out: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    let thread = std::thread::current();
    writeln!(
        out,
        "{} {:<5} {} {}",
        out.timestamp_millis(),
        record.level(),
        thread.name().unwrap_or("-"),
        OneLine(record.args())
    )
}

fn logfmt_line(out: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    let thread = std::thread::current();
    writeln!(
        out,
        "time={} level={} thread={} module={} message={}",
        out.timestamp_millis(),
        record.level().as_str().to_ascii_lowercase(),
        thread.name().unwrap_or("-"),
        record.target(),
        Value::from(record.args().to_string()),
    )
}

fn json_line(out: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    let thread = std::thread::current();
    writeln!(
        out,
        r#"{{"time":"{}","level":"{}","thread":{},"module":{},"message":{}}}"#,
        out.timestamp_millis(),
        record.level().as_str().to_ascii_lowercase(),
        Value::from(thread.name().unwrap_or("-")),
        Value::from(record.target()),
        Value::from(record.args().to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_levels_of_their_own() {
        let levels = Levels {
            others: LevelFilter::Info,
            modules: vec![("net", LevelFilter::Debug), ("storage", LevelFilter::Off)],
        };
        for (target, level) in [
            ("kedis::net::listener", LevelFilter::Debug),
            ("kedis::net", LevelFilter::Debug),
            ("kedis::network", LevelFilter::Info),
            ("kedis::storage::engine", LevelFilter::Off),
            ("kedis::state::net", LevelFilter::Info),
            ("kedis", LevelFilter::Info),
            ("kedis_server", LevelFilter::Info),
            ("mio::poll", LevelFilter::Warn),
            ("rustls::net", LevelFilter::Off),
        ] {
            assert_eq!(levels.of(target), level, "{target}");
        }
        assert_eq!(levels.most(), LevelFilter::Debug);
        let quiet = Levels {
            others: LevelFilter::Off,
            modules: Vec::new(),
        };
        assert_eq!(quiet.of("mio"), LevelFilter::Off);
        // Warnings about peers are there for those who look for a fault in them.
        for (others, tls, expected) in [
            (LevelFilter::Info, None, LevelFilter::Off),
            (LevelFilter::Debug, None, LevelFilter::Warn),
            (
                LevelFilter::Info,
                Some(LevelFilter::Debug),
                LevelFilter::Warn,
            ),
            (
                LevelFilter::Trace,
                Some(LevelFilter::Warn),
                LevelFilter::Off,
            ),
        ] {
            let modules = tls.map(|level| ("tls", level)).into_iter().collect();
            let levels = Levels { others, modules };
            for target in ["rustls", "rustls::server::hs"] {
                assert_eq!(levels.of(target), expected, "{others} {tls:?}");
            }
        }
    }
}
