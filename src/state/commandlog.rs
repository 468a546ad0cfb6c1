//! The logs of commands that stood out: those that took long (the slow log), and those whose
//! request or reply was long.

use parking_lot::Mutex;
use std::collections::VecDeque;

/// Bytes of a client's name that logs keep: clients choose their names.
pub const KEPT_NAME_BYTES: usize = 1024;

/// What a log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// Commands that took longer than `slowlog-log-slower-than`.
    Slow,
    /// Requests of more bytes than `commandlog-request-larger-than`.
    LargeRequest,
    /// Replies of more bytes than `commandlog-reply-larger-than`.
    LargeReply,
}

impl LogKind {
    /// All of them.
    pub const ALL: [LogKind; 3] = [LogKind::Slow, LogKind::LargeRequest, LogKind::LargeReply];

    /// Its name for clients.
    pub fn name(self) -> &'static str {
        match self {
            LogKind::Slow => "slow",
            LogKind::LargeRequest => "large-request",
            LogKind::LargeReply => "large-reply",
        }
    }
}

/// How much of a command an entry keeps.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most arguments (`slowlog-entry-max-argc`), at least 2.
    pub args: usize,
    /// Most bytes of an argument (`slowlog-entry-max-string-len`).
    pub arg_bytes: usize,
}

/// One command.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its number, counted from the server's start.
    pub id: u64,
    /// Its time, Unix seconds.
    pub unix_s: u64,
    /// What made it stand out: microseconds, or bytes.
    pub value: u64,
    /// The arguments, shortened.
    pub args: Vec<Vec<u8>>,
    /// The client's address.
    pub addr: String,
    /// The client's name, or its beginning.
    pub name: Vec<u8>,
}

impl Entry {
    /// A command without a number yet.
    pub fn new(args: Vec<Vec<u8>>, value: u64, unix_s: u64, addr: &str, name: &[u8]) -> Entry {
        Entry {
            id: 0,
            unix_s,
            value,
            args,
            addr: addr.to_owned(),
            name: name.get(..KEPT_NAME_BYTES).unwrap_or(name).to_vec(),
        }
    }
}

/// One log: the newest entries first.
#[derive(Debug, Default)]
pub struct CommandLog {
    inner: Mutex<(u64, VecDeque<Entry>)>,
}

/// The logs of all kinds.
#[derive(Debug, Default)]
pub struct CommandLogs([CommandLog; LogKind::ALL.len()]);

impl CommandLogs {
    /// The log of one kind.
    pub fn of(&self, kind: LogKind) -> &CommandLog {
        let [slow, request, reply] = &self.0;
        match kind {
            LogKind::Slow => slow,
            LogKind::LargeRequest => request,
            LogKind::LargeReply => reply,
        }
    }
}

impl CommandLog {
    /// Adds a command as the newest; keeps at most `max_len`. With length 0 no number is used,
    /// as in Redis since 7.4.
    pub fn add(&self, mut entry: Entry, max_len: usize) {
        if max_len == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        entry.id = inner.0;
        inner.0 += 1;
        inner.1.push_front(entry);
        inner.1.truncate(max_len);
    }

    /// The newest `count`, all if `None`.
    pub fn newest(&self, count: Option<usize>) -> Vec<Entry> {
        let inner = self.inner.lock();
        let count = count.unwrap_or(inner.1.len());
        inner.1.iter().take(count).cloned().collect()
    }

    /// Removes the oldest entries beyond `max_len`.
    pub fn trim(&self, max_len: usize) {
        self.inner.lock().1.truncate(max_len);
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.inner.lock().1.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.inner.lock().1.clear();
    }
}

/// What an entry keeps of the arguments of a command.
pub fn shorten(args: &[&[u8]], bounds: Bounds) -> Vec<Vec<u8>> {
    let kept = match args.len() > bounds.args {
        true => bounds.args.saturating_sub(1),
        false => args.len(),
    };
    let mut shown: Vec<Vec<u8>> = args[..kept]
        .iter()
        .map(|arg| match arg.get(..bounds.arg_bytes) {
            Some(head) if arg.len() > bounds.arg_bytes => {
                let more = arg.len() - bounds.arg_bytes;
                [head, format!("... ({more} more bytes)").as_bytes()].concat()
            }
            _ => arg.to_vec(),
        })
        .collect();
    if kept < args.len() {
        let more = args.len() - kept;
        shown.push(format!("... ({more} more arguments)").into_bytes());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_no_length_gives_no_numbers() {
        let log = CommandLog::default();
        for max_len in [1, 0, 0, 1] {
            log.add(Entry::new(vec![b"PING".to_vec()], 1, 1, "", b""), max_len);
        }
        let ids: Vec<u64> = log.newest(None).iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [1]);
    }

    #[test]
    fn an_entry_keeps_as_much_as_the_bounds_say() {
        let short = |args: &[&[u8]], args_kept, bytes| -> Vec<String> {
            let bounds = Bounds {
                args: args_kept,
                arg_bytes: bytes,
            };
            let words = shorten(args, bounds).into_iter();
            words.map(|word| String::from_utf8(word).unwrap()).collect()
        };
        let args: [&[u8]; 4] = [b"sadd", b"k", b"a", b"b"];
        assert_eq!(short(&args, 2, 9), ["sadd", "... (3 more arguments)"]);
        assert_eq!(short(&args, 4, 9), ["sadd", "k", "a", "b"]);
        assert_eq!(short(&args[..1], 4, 1), ["s... (3 more bytes)"]);
    }
}
