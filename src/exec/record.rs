//! What is reported of commands besides their replies: calls and errors for the statistics,
//! slow commands, lines for MONITOR clients. The record is held back while the commands can
//! still be taken back and run again, in a unit or on a worker, so that each is counted and
//! shown once. A record that grows too large (a script that runs for hours) is flushed before
//! its unit ends. On an IO thread, where the unit may still have to be taken back, the unit goes
//! to a worker instead.

use super::monitor;
use crate::base::time::UnixMs;
use crate::commands::Error;
use crate::commands::acl::refusal;
use crate::state::Server;
use crate::state::acl::Refused;
use crate::state::commandlog::{Entry, LogKind};
use crate::state::hotkeys::Taken;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls and errors that are held back at most.
const MAX_HELD: usize = 64 << 10;
/// Slow commands, commands that were denied, and lines of the audit log, that are held back at most.
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
    /// For SLOWLOG and COMMANDLOG.
    Log {
        kind: LogKind,
        /// Index in the registry.
        index: usize,
        entry: Entry,
        /// Length of the log.
        max_len: usize,
    },
    /// For LATENCY: the class of event, its duration in ms, and its time in Unix seconds.
    Latency(&'static str, u64, u64),
}

/// A command for the collection of HOTKEYS.
#[derive(Debug)]
pub(super) struct Hot {
    pub keys: SmallVec<[Box<[u8]>; 2]>,
    pub taken: Taken,
    pub drawn: bool,
    pub now_ms: UnixMs,
}

/// Calls, errors and slow commands that are not counted yet, and lines that are not sent to
/// MONITOR clients yet.
#[derive(Debug, Default)]
pub(super) struct Record {
    calls: Vec<Call>,
    slow: Vec<Slow>,
    hot: Vec<Hot>,
    /// What commands have taken that HOTKEYS has not drawn, and the time of the last one.
    undrawn: (Taken, UnixMs),
    /// Codes of error replies.
    errors: Vec<String>,
    /// Commands that were denied.
    denied: Vec<Refused>,
    /// Lines of the audit log.
    audited: Vec<Vec<u8>>,
    lines: Vec<Arc<[u8]>>,
    line_bytes: usize,
    since: Option<Instant>,
    /// How often the record was flushed.
    flushes: u64,
    /// See [`Record::hold`] and [`Record::is_full`].
    held: bool,
    full: bool,
}

/// A point to which [`Record::take_back`] returns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    calls: usize,
    slow: usize,
    hot: usize,
    undrawn: Taken,
    errors: usize,
    denied: usize,
    audited: usize,
    lines: usize,
    flushes: u64,
}

impl Record {
    /// The present end of the record.
    pub fn mark(&self) -> Mark {
        Mark {
            calls: self.calls.len(),
            slow: self.slow.len(),
            hot: self.hot.len(),
            undrawn: self.undrawn.0,
            errors: self.errors.len(),
            denied: self.denied.len(),
            audited: self.audited.len(),
            lines: self.lines.len(),
            flushes: self.flushes,
        }
    }

    /// Adds what a command has taken that HOTKEYS has not drawn.
    pub fn undrawn(&mut self, taken: Taken, now_ms: UnixMs) {
        self.undrawn.0.add(taken);
        self.undrawn.1 = now_ms;
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

    /// Adds a command for the collection of HOTKEYS.
    pub fn hot(&mut self, server: &Server, hot: Hot) {
        self.hot.push(hot);
        self.bound(server, false);
    }

    /// Adds the code of an error reply.
    pub fn error(&mut self, server: &Server, error: &Error) {
        let text = error.to_string();
        let code = text.split(' ').next().unwrap_or_default();
        self.errors.push(code.to_owned());
        self.bound(server, false);
    }

    /// Adds a command that was denied.
    pub fn denied(&mut self, server: &Server, refused: Refused) {
        self.denied.push(refused);
        self.bound(server, false);
    }

    /// Adds a line of the audit log.
    pub fn audited(&mut self, server: &Server, line: Vec<u8>) {
        self.audited.push(line);
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
        let is_large = self.calls.len() + self.errors.len() >= MAX_HELD
            || self.slow.len() + self.denied.len() + self.audited.len() >= MAX_SLOW
            || self.hot.len() >= MAX_SLOW
            || self.line_bytes >= MAX_LINE_BYTES;
        if is_large && self.held {
            self.full = true;
        } else if is_large || (soon && old()) {
            self.flush(server);
        }
    }

    /// Whether it is held back as a whole from now on, however large it is.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
        self.full = false;
    }

    /// Whether it is held back although it is large.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether the record was flushed since `mark`, so that its commands cannot be taken back
    /// any more.
    pub(super) fn was_flushed_since(&self, mark: &Mark) -> bool {
        mark.flushes != self.flushes
    }

    /// Removes what was added since `mark` and not flushed yet.
    pub fn take_back(&mut self, mark: Mark) {
        let kept = |len| if mark.flushes == self.flushes { len } else { 0 };
        let (calls, errors, lines) = (kept(mark.calls), kept(mark.errors), kept(mark.lines));
        self.calls.truncate(calls);
        self.slow.truncate(kept(mark.slow));
        self.hot.truncate(kept(mark.hot));
        self.undrawn.0 = match mark.flushes == self.flushes {
            true => mark.undrawn,
            false => Taken::default(),
        };
        self.errors.truncate(errors);
        self.denied.truncate(kept(mark.denied));
        self.audited.truncate(kept(mark.audited));
        self.lines.truncate(lines);
        self.line_bytes = self.lines.iter().map(|line| line.len()).sum();
    }

    /// Adds calls, errors, denied and slow commands to the statistics: their commands will not be taken
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
        for refused in self.denied.drain(..) {
            refusal::report(server, refused);
        }
        for line in self.audited.drain(..) {
            server.audit.add(line);
        }
        for slow in self.slow.drain(..) {
            match slow {
                Slow::Log {
                    kind,
                    index,
                    entry,
                    max_len,
                } => {
                    if kind == LogKind::Slow {
                        server.stats.was_slow(index, entry.value);
                    }
                    server.commandlog.of(kind).add(entry, max_len);
                }
                Slow::Latency(class, ms, unix_s) => server.latency.add(class, ms, unix_s),
            }
        }
        for hot in self.hot.drain(..) {
            let keys = hot.keys.iter().map(|key| &**key);
            server.hotkeys.note(keys, hot.taken, hot.drawn, hot.now_ms);
        }
        let (undrawn, now_ms) = std::mem::take(&mut self.undrawn);
        if undrawn != Taken::default() {
            server.hotkeys.add_undrawn(undrawn, now_ms);
        }
    }

    /// Whether there are lines for MONITOR clients.
    pub(super) fn has_lines(&self) -> bool {
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
