//! What is told of commands besides their replies: calls and errors for the
//! statistics, how slow they were, lines for MONITOR clients. It is held back while
//! the commands can still be taken back and run again, in a unit or on a worker: so each
//! is counted and shown once. What no bound could hold (a script that runs for hours) is
//! told before its unit ends, which is not taken back for what it reads after that.

use super::monitor;
use crate::commands::Error;
use crate::state::Server;
use crate::state::slowlog::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls and errors that are held back at most.
const MAX_HELD: usize = 64 << 10;
/// Slow commands that are held back at most.
const MAX_SLOW: usize = 1 << 10;
/// Bytes of lines that are held back at most.
const MAX_LINE_BYTES: usize = 1 << 20;
/// For how long a worker holds lines back.
const MAX_AGE: Duration = Duration::from_millis(100);

/// One run of a command.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// In the registry.
    index: usize,
    usec: u64,
    failed: bool,
}

/// A command that took long.
#[derive(Debug)]
pub(super) enum Slow {
    /// For SLOWLOG, which keeps so many.
    Log(Entry, usize),
    /// For LATENCY: the class of event, milliseconds, and when, in Unix seconds.
    Latency(&'static str, u64, u64),
}

/// Calls, errors and slow commands that are not counted yet, and lines that MONITOR clients
/// have not seen.
#[derive(Debug, Default)]
pub(super) struct Record {
    calls: Vec<Call>,
    slow: Vec<Slow>,
    /// Codes of error replies.
    errors: Vec<String>,
    lines: Vec<Arc<[u8]>>,
    line_bytes: usize,
    since: Option<Instant>,
    /// How often everything was told.
    told: u64,
}

/// A point that [`Record::take_back`] goes back to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    calls: usize,
    slow: usize,
    errors: usize,
    lines: usize,
    told: u64,
}

impl Record {
    /// The point that is reached now.
    pub fn mark(&self) -> Mark {
        Mark {
            calls: self.calls.len(),
            slow: self.slow.len(),
            errors: self.errors.len(),
            lines: self.lines.len(),
            told: self.told,
        }
    }

    /// Notes that a command was run.
    pub fn call(&mut self, server: &Server, index: usize, usec: u64, failed: bool) {
        self.calls.push(Call {
            index,
            usec,
            failed,
        });
        self.bound(server, false);
    }

    /// Notes that it took long.
    pub fn slow(&mut self, server: &Server, slow: Slow) {
        self.slow.push(slow);
        self.bound(server, false);
    }

    /// Notes an error reply.
    pub fn error(&mut self, server: &Server, error: &Error) {
        let text = error.to_string();
        let code = text.split(' ').next().unwrap_or_default();
        self.errors.push(code.to_owned());
        self.bound(server, false);
    }

    /// Notes what MONITOR clients are to see; `soon`: they wait for it.
    pub fn line(&mut self, server: &Server, line: Arc<[u8]>, soon: bool) {
        self.line_bytes += line.len();
        self.lines.push(line);
        self.since.get_or_insert_with(Instant::now);
        self.bound(server, soon);
    }

    fn bound(&mut self, server: &Server, soon: bool) {
        let old = || self.since.is_some_and(|since| since.elapsed() >= MAX_AGE);
        if self.calls.len() + self.errors.len() >= MAX_HELD
            || self.slow.len() >= MAX_SLOW
            || self.line_bytes >= MAX_LINE_BYTES
            || (soon && old())
        {
            self.tell(server);
        }
    }

    /// Whether all was told since `mark`, so that it cannot be taken back any more.
    pub fn was_told_since(&self, mark: &Mark) -> bool {
        mark.told != self.told
    }

    /// Forgets what was noted since `mark` and not told yet.
    pub fn take_back(&mut self, mark: Mark) {
        let kept = |len| if mark.told == self.told { len } else { 0 };
        let (calls, errors, lines) = (kept(mark.calls), kept(mark.errors), kept(mark.lines));
        self.calls.truncate(calls);
        self.slow.truncate(kept(mark.slow));
        self.errors.truncate(errors);
        self.lines.truncate(lines);
        self.line_bytes = self.lines.iter().map(|line| line.len()).sum();
    }

    /// The commands stand: counts them.
    pub fn count(&mut self, server: &Server) {
        for Call {
            index,
            usec,
            failed,
        } in self.calls.drain(..)
        {
            server.stats.ran(index, usec, failed);
        }
        for code in self.errors.drain(..) {
            server.stats.error(&code);
        }
        for slow in self.slow.drain(..) {
            match slow {
                Slow::Log(entry, max_len) => {
                    server.stats.slow_commands.add(1);
                    server.slowlog.add(entry, max_len);
                }
                Slow::Latency(class, ms, unix_s) => server.latency.add(class, ms, unix_s),
            }
        }
    }

    /// Whether MONITOR clients are to see something.
    pub fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Tells all that was noted.
    pub fn tell(&mut self, server: &Server) {
        self.count(server);
        if !self.lines.is_empty() {
            monitor::deliver(server, &self.lines);
            self.lines.clear();
            self.line_bytes = 0;
        }
        self.since = None;
        self.told += 1;
    }
}
