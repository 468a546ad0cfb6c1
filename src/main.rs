//! `kedis-server [config-file] [--key value …]`.

use kedis::commands::memory::no_eviction;
use kedis::server::{self, ServerError};
use kedis::state::config::{
    Config, Given, LogFormat, LogLevel, Made, Startup, config_file, help_text, memory_budget,
};
use kedis::sys::advice;
use kedis::sys::allocator::Allocator;
use kedis::sys::crash;
use kedis::sys::daemon::{self, Detached, Side};
use kedis::sys::logging::{Form, Levels, Logging};
use kedis::sys::supervisor::Supervisor;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The configuration that jemalloc reads under this name when it starts. Freed pages are kept
/// for a short time, because they are soon used again, but not so long that they add up. Huge
/// pages are used only where [they last](kedis::sys::huge_pages): returning a part of one
/// splits it.
#[allow(unsafe_code)] // a name that no other symbol of the program has
#[unsafe(export_name = "malloc_conf")]
static MALLOC_CONF: &[u8; 37] = b"dirty_decay_ms:3000,muzzy_decay_ms:0\0";

fn main() -> ExitCode {
    daemon::ignore_signals();
    match Config::from_args(std::env::args_os().skip(1)) {
        Ok(Startup::Help) => {
            print!("{}", help_text());
            ExitCode::SUCCESS
        }
        Ok(Startup::Version) => {
            // The form of Redis, which scripts read the version from.
            println!(
                "Kedis server v={} malloc=jemalloc bits={}",
                env!("CARGO_PKG_VERSION"),
                usize::BITS
            );
            ExitCode::SUCCESS
        }
        Ok(Startup::Run(config, given)) if given.print_config => print_config(&config),
        Ok(Startup::Run(config, given)) if given.check_config => check(&config, &given),
        Ok(Startup::Run(config, given)) => start(*config, given),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the configuration as a file.
fn print_config(config: &Config) -> ExitCode {
    match std::io::stdout().write_all(&config_file(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot print the configuration: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says whether a start would refuse this configuration.
fn check(config: &Config, given: &Given) -> ExitCode {
    if let Err(error) = server::check_config(config) {
        eprintln!(
            "{}",
            explained(&error, given, "the configuration is not possible")
        );
        return ExitCode::FAILURE;
    }
    for note in inert(config).into_iter().chain(no_eviction(config)) {
        println!("{note}");
    }
    println!("the configuration is valid");
    ExitCode::SUCCESS
}

/// An error, with the place of the parameter that causes it.
fn explained(error: &ServerError, given: &Given, what: &str) -> String {
    let text = format!("{what}: {error}{}", error.advice());
    match error.parameter() {
        Some((parameter, word)) => given.places.explain(&text, parameter, word),
        None => text,
    }
}

/// Names what of the configuration has no effect, if anything.
fn inert(config: &Config) -> Option<String> {
    let without_effect = config.without_effect();
    let names = without_effect.join(", ");
    (!without_effect.is_empty()).then(|| format!("set, but without effect here: {names}"))
}

/// Runs the server, in the foreground or as a daemon.
fn start(config: Config, given: Given) -> ExitCode {
    // A service manager watches the process that it has started, not a child of that.
    let is_supervised = Supervisor::find(config.supervised) != Supervisor::None;
    if !config.daemonize || is_supervised {
        return run(config, given, None);
    }
    match daemon::detach() {
        Ok(Side::Parent(status)) => ExitCode::from(status),
        Ok(Side::Child(detached)) => run(config, given, Some(detached)),
        Err(error) => {
            eprintln!("cannot run in the background: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Logs what the configuration means for this start.
fn log_start(config: &Config, given: &Given, made: &Made) {
    log::info!(
        "Kedis {} starts, pid {}, data in {}",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        config.data_dir().display()
    );
    log::info!(
        "caches, memtables and clients take {} MiB at most (maxmemory); Ctrl-C, SIGTERM and SHUTDOWN \
         stop the server",
        memory_budget(config) >> 20
    );
    if made.has(&config.dir) {
        log::warn!(
            "the directory {} did not exist and was made: `dir` may name the wrong place",
            config.dir.display()
        );
    }
    if given.file.is_none() {
        log::info!("no configuration file given: the defaults and the flags hold");
    }
    let is_named = !["no", "auto"].contains(&config.supervised);
    if is_named && Supervisor::find(config.supervised) == Supervisor::None {
        log::warn!(
            "supervised is {}, but no such service manager has started this process: it \
             would have set NOTIFY_SOCKET or UPSTART_JOB",
            config.supervised
        );
    }
    if let Some(note) = inert(config) {
        log::info!("{note}");
    }
    if let Some(warning) = no_eviction(config) {
        log::warn!("{warning}");
    }
}

/// Says why a file or directory that the start needs cannot be used.
fn complain(what: &str, path: &Path, error: &std::io::Error, given: &Given, parameter: &str) {
    let advice = advice::about(&error.to_string());
    let text = format!("cannot {what} {}: {error}{advice}", path.display());
    eprintln!("{}", given.places.explain(&text, parameter, None));
}

fn run(config: Config, given: Given, detached: Option<Detached>) -> ExitCode {
    // The log file may be in this directory.
    let made = match config.make_dir() {
        Ok(made) => made,
        Err(error) => {
            complain("make the directory", &config.dir, &error, &given, "dir");
            return ExitCode::FAILURE;
        }
    };
    let logging = match start_log(&config) {
        Ok(logging) => Arc::new(logging),
        Err(error) => {
            let path = config.path(&config.logfile).unwrap_or_default();
            complain("write to the log file", &path, &error, &given, "logfile");
            made.remove_if_empty();
            return ExitCode::FAILURE;
        }
    };
    crash::log_traces(config.crash_log_enabled);
    crash::abort_on_panic();
    log_start(&config, &given, &made);
    let log_is_file = config.path(&config.logfile).is_some();
    if detached.is_some() && !log_is_file {
        log::warn!("in the background without `logfile` there is no log");
    }
    let pidfile = config.path(&config.pidfile);
    let (mut is_ours, mut is_up) = (false, false);
    let ran = server::run(config, &given, |server| {
        let of_changes = logging.clone();
        let change = move |config: &Config| of_changes.change(levels(config), form(config));
        server.on_log_change(Box::new(change));
        server.on_reload(Box::new(move || logging.reopen()));
        if let Some(path) = &pidfile {
            match std::fs::write(path, format!("{}\n", std::process::id())) {
                Ok(()) => is_ours = true,
                Err(error) => log::error!("cannot write {}: {error}", path.display()),
            }
        }
        is_up = true;
        if let Some(Err(error)) = detached.map(Detached::ready) {
            log::error!("cannot leave the terminal: {error}");
        }
    });
    // A server that did not start must not remove the file of one that runs.
    if let Some(path) = pidfile.filter(|_| is_ours)
        && let Err(error) = std::fs::remove_file(&path)
    {
        log::debug!("cannot remove {}: {error}", path.display());
    }
    let Err(error) = ran else {
        return ExitCode::SUCCESS;
    };
    let text = explained(&error, &given, "the server does not run");
    log::error!("{text}");
    if !is_up {
        made.remove_if_empty();
    }
    if log_is_file && !is_up {
        // The error is shown on the terminal as well.
        eprintln!("{text}");
    }
    ExitCode::FAILURE
}

/// Starts logging.
fn start_log(config: &Config) -> std::io::Result<Logging> {
    let file = config.path(&config.logfile);
    Logging::start(file, levels(config), form(config))
}

/// Which messages are logged.
fn levels(config: &Config) -> Levels {
    let modules = config.log_levels.0.iter();
    Levels {
        others: filter(config.loglevel),
        modules: modules
            .map(|(module, level)| (*module, filter(*level)))
            .collect(),
    }
}

/// The form of the lines.
fn form(config: &Config) -> Form {
    match config.log_format {
        LogFormat::Legacy | LogFormat::Text => Form::Text,
        LogFormat::Logfmt => Form::Logfmt,
        LogFormat::Json => Form::Json,
    }
}

/// Maps Redis' four levels; each is one level finer in the log crate.
fn filter(level: LogLevel) -> log::LevelFilter {
    match level {
        LogLevel::Debug => log::LevelFilter::Trace,
        LogLevel::Verbose => log::LevelFilter::Debug,
        LogLevel::Notice => log::LevelFilter::Info,
        LogLevel::Warning => log::LevelFilter::Warn,
        LogLevel::Nothing => log::LevelFilter::Off,
    }
}
