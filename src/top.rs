//! What the tool `kedis_top` does: it has a server look for the keys and prefixes that take most
//! space (BIGKEYS) and for the keys that are used most (HOTKEYS), and shows them.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | the flags |
//! | [`ask`] | the questions to the server |
//! | [`findings`] | its replies |
//! | [`view`], [`json`] | text with bars, and a JSON document |

mod ask;
mod findings;
mod json;
mod options;
mod view;

use crate::base::one_line::OneLine;
use crate::migrate::{Conn, Error, Result, Stop, sleep};
use crate::sys::terminal;
use clap::{CommandFactory, Parser};
use options::Options;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use view::Look;

/// Columns where there is no terminal.
const COLUMNS: usize = 100;

/// The command line.
pub fn command() -> clap::Command {
    Options::command()
}

/// The tool's `main`.
pub fn main() -> ExitCode {
    let options = Options::parse();
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Info)
        .parse_default_env()
        .format(|out, record| writeln!(out, "{}", OneLine(record.args())))
        .init();
    match run(&options) {
        // What reads the text may have enough of it.
        Ok(()) | Err(Error::Stopped) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kedis_top: {}", OneLine(error));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let stop = Stop::on_signals().map_err(|error| Error::File {
        path: "signal handlers".into(),
        error,
    })?;
    let mut conn = Conn::new(&options.server(), &stop)?;
    loop {
        let began = Instant::now();
        let found = {
            let mut line = Line::default();
            ask::findings(&mut conn, options, &stop, &mut |scanned, expected| {
                line.show(&format!("{scanned} of {expected} keys"));
            })?
        };
        print(&match options.json {
            true => format!("{}\n", json::document(&found)),
            false => {
                let look = Look {
                    columns: terminal::columns().unwrap_or(COLUMNS),
                    colours: terminal::has_colours(),
                    top: usize::from(options.top),
                };
                let text = view::text(&found, look);
                match options.watch.is_some() && terminal::is_there() {
                    // The cursor goes to the upper left corner of an empty screen.
                    true => format!("\u{1b}[H\u{1b}[2J\u{1b}[3J{text}"),
                    false => text,
                }
            }
        })?;
        let Some(seconds) = options.watch else {
            return Ok(());
        };
        // The server scans for at most half of the time.
        sleep(
            Duration::from_secs(seconds.into()).max(began.elapsed()),
            &stop,
        );
        stop.check()?;
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Error::Stopped,
        _ => Error::File {
            path: "standard output".into(),
            error,
        },
    })
}

/// A line of a terminal that says how far the scan is, and is gone in the end.
#[derive(Default)]
struct Line {
    shown: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        if std::io::stderr().is_terminal() {
            self.shown = true;
            eprint!("\r\u{1b}[K{text}");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\u{1b}[K");
        }
    }
}
