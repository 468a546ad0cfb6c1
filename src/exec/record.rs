//! What is reported of commands besides their replies: calls and errors for the statistics,
//! slow commands, lines for MONITOR clients. The record is held back while the commands can
//! still be taken back and run again, in a unit or on a worker, so that each is counted and
//! shown once. A record that grows too large (a script that runs for hours) is flushed before
//! its unit ends; from then on the unit has no read budget, so that it need not be taken back.

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
/// Bytes of MONITOR lines that are held back at most.
const MAX_LINE_BYTES: usize = 1 << 20;
/// How long a worker holds MONITOR lines back.
const MAX_AGE: Duration = Duration::from_millis(100);

/// One run of a command.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// Index in the registry.
    index: usize,
    usec: u64,
    failed: bool,
}

/// A command that took long.
#[derive(Debug)]
pub(super) enum Slow {
    /// For SLOWLOG: the entry, and `slowlog-max-len`.
    Log(Entry, usize),
    /// For LATENCY: the class of event, its duration in ms, and its time in Unix seconds.
    Latency(&'static str, u64, u64),
}

/// Calls, errors and slow commands that are not counted yet, and lines that are not sent to
/// MONITOR clients yet.
#[derive(Debug, Default)]
pub(super) struct Record {
    calls: Vec<Call>,
    slow: Vec<Slow>,
    /// Codes of error replies.
    errors: Vec<String>,
    lines: Vec<Arc<[u8]>>,
    line_bytes: usize,
    since: Option<Instant>,
    /// How often the record was flushed.
    flushes: u64,
}

/// A point to which [`Record::take_back`] returns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    calls: usize,
    slow: usize,
    errors: usize,
    lines: usize,
    flushes: u64,
}

impl Record {
    /// The present end of the record.
    pub fn mark(&self) -> Mark {
        Mark {
            calls: self.calls.len(),
            slow: self.slow.len(),
            errors: self.errors.len(),
            lines: self.lines.len(),
            flushes: self.flushes,
        }
    }

    /// Adds a call.
    pub fn call(&mut self, server: &Server, index: usize, usec: u64, failed: bool) {
        self.calls.push(Call {
            index,
            usec,
            failed,
        });
        self.bound(server, false);
    }

    /// Adds a slow command.
    pub fn slow(&mut self, server: &Server, slow: Slow) {
        self.slow.push(slow);
        self.bound(server, false);
    }

    /// Adds the code of an error reply.
    pub fn error(&mut self, server: &Server, error: &Error) {
        let text = error.to_string();
        let code = text.split(' ').next().unwrap_or_default();
        self.errors.push(code.to_owned());
        self.bound(server, false);
    }

    /// Adds a line for MONITOR clients; `soon`: not to be held back for longer than
    /// [`MAX_AGE`].
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
            self.flush(server);
        }
    }

    /// Whether the record was flushed since `mark`, so that its commands cannot be taken back
    /// any more.
    pub fn was_flushed_since(&self, mark: &Mark) -> bool {
        mark.flushes != self.flushes
    }

    /// Removes what was added since `mark` and not flushed yet.
    pub fn take_back(&mut self, mark: Mark) {
        let kept = |len| if mark.flushes == self.flushes { len } else { 0 };
        let (calls, errors, lines) = (kept(mark.calls), kept(mark.errors), kept(mark.lines));
        self.calls.truncate(calls);
        self.slow.truncate(kept(mark.slow));
        self.errors.truncate(errors);
        self.lines.truncate(lines);
        self.line_bytes = self.lines.iter().map(|line| line.len()).sum();
    }

    /// Adds calls, errors and slow commands to the statistics: their commands will not be taken
    /// back.
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

    /// Whether there are lines for MONITOR clients.
    pub fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Counts everything and sends the lines.
    pub fn flush(&mut self, server: &Server) {
        self.count(server);
        if !self.lines.is_empty() {
            monitor::deliver(server, &self.lines);
            self.lines.clear();
            self.line_bytes = 0;
        }
        self.since = None;
        self.flushes += 1;
    }
}
