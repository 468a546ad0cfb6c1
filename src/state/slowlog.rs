//! Commands that took longer than `slowlog-log-slower-than`.

use parking_lot::Mutex;
use std::collections::VecDeque;

/// Most arguments kept per command.
const MAX_ARGS: usize = 32;
/// Most bytes kept per argument.
const MAX_ARG_BYTES: usize = 128;

/// One slow command.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its number, counted from the server's start.
    pub id: u64,
    /// Its time, Unix seconds.
    pub unix_s: u64,
    /// Its duration in microseconds.
    pub usec: u64,
    /// The arguments, shortened.
    pub args: Vec<Vec<u8>>,
    /// The client's address.
    pub addr: String,
    /// The client's name.
    pub name: Vec<u8>,
}

/// The slow log: the newest entries first.
#[derive(Debug, Default)]
pub struct SlowLog {
    inner: Mutex<(u64, VecDeque<Entry>)>,
}

impl Entry {
    /// A command with this duration, without a number yet.
    pub fn new(args: &[&[u8]], usec: u64, unix_s: u64, addr: &str, name: &[u8]) -> Entry {
        Entry {
            id: 0,
            unix_s,
            usec,
            args: shorten(args),
            addr: addr.to_owned(),
            name: name.to_vec(),
        }
    }
}

impl SlowLog {
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

fn shorten(args: &[&[u8]]) -> Vec<Vec<u8>> {
    let kept = if args.len() > MAX_ARGS {
        MAX_ARGS - 1
    } else {
        args.len()
    };
    let mut shown: Vec<Vec<u8>> = args[..kept]
        .iter()
        .map(|arg| match arg.get(..MAX_ARG_BYTES) {
            Some(head) if arg.len() > MAX_ARG_BYTES => {
                let more = arg.len() - MAX_ARG_BYTES;
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
        let log = SlowLog::default();
        for max_len in [1, 0, 0, 1] {
            log.add(Entry::new(&[b"PING"], 1, 1, "", b""), max_len);
        }
        let ids: Vec<u64> = log.newest(None).iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [1]);
    }
}
