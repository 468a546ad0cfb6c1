//! What was refused, for ACL LOG.

use crate::base::time::UnixMs;
use crate::state::ClientId;
use crate::state::commandlog::KEPT_NAME_BYTES;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// What a connection lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A right password.
    Auth,
    /// A login, which comes first. ACL LOG does not have it.
    Login,
    /// The permission for a command.
    Command,
    /// The permission for a key.
    Key,
    /// The permission for a channel.
    Channel,
    /// The permission for a DB.
    Database,
    /// A user who is called as its certificate says.
    Certificate,
}

impl Reason {
    /// The word in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Login => "login",
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Database => "database",
            Reason::Certificate => "tls-cert",
        }
    }
}

/// Where a command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// As a request of its own.
    TopLevel,
    /// In a transaction.
    Multi,
    /// In a script or function.
    Lua,
}

impl Context {
    /// The word in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// One refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What was lacking.
    pub reason: Reason,
    /// Where.
    pub context: Context,
    /// The command, key, channel or DB.
    pub object: Vec<u8>,
    /// The user.
    pub username: Vec<u8>,
    /// The command, by the name of its row.
    pub command: String,
    /// The connection, as CLIENT INFO describes it.
    pub client: String,
    /// Its number.
    pub client_id: ClientId,
    /// Its address.
    pub addr: String,
    /// When.
    pub at_ms: UnixMs,
}

/// Refusals of the same kind.
#[derive(Debug, Clone)]
pub struct Entry {
    /// How many.
    pub count: u64,
    /// The last one.
    pub last: Refused,
    /// The number of the entry, from 0 on since the start of the server.
    pub id: u64,
    /// When the first one was.
    pub created_ms: UnixMs,
}

/// Refusals further apart are not of the same kind.
const SAME_WITHIN_MS: u64 = 60_000;
/// How many of the newest entries are compared with a refusal.
const COMPARED: usize = 10;

impl Entry {
    fn is_like(&self, new: &Refused) -> bool {
        let last = &self.last;
        let apart_ms = new.at_ms.since(last.at_ms).max(last.at_ms.since(new.at_ms));
        (last.reason, last.context) == (new.reason, new.context)
            && apart_ms <= SAME_WITHIN_MS
            && last.object == new.object
            && last.username == new.username
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// Newest first.
    entries: VecDeque<Entry>,
    next_id: u64,
}

/// What was refused.
#[derive(Debug, Default)]
pub struct AclLog(Mutex<Inner>);

impl AclLog {
    /// Adds a refusal; `max_len` is `acllog-max-len`.
    pub fn add(&self, mut new: Refused, max_len: usize) {
        for text in [&mut new.object, &mut new.username] {
            // Clients choose them, also before they have logged in.
            text.truncate(KEPT_NAME_BYTES);
            text.shrink_to_fit();
        }
        let mut inner = self.0.lock();
        let mut compared = inner.entries.iter().take(COMPARED);
        match compared.position(|entry| entry.is_like(&new)) {
            Some(at) if max_len > 0 => {
                if let Some(mut entry) = inner.entries.remove(at) {
                    entry.count += 1;
                    entry.last = new;
                    inner.entries.push_front(entry);
                }
            }
            _ if max_len > 0 => {
                let (id, created_ms) = (inner.next_id, new.at_ms);
                inner.next_id += 1;
                inner.entries.push_front(Entry {
                    count: 1,
                    last: new,
                    id,
                    created_ms,
                });
            }
            _ => {}
        }
        inner.entries.truncate(max_len);
    }

    /// The newest entries, at most `count`.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.0.lock().entries.iter().take(count).cloned().collect()
    }

    /// Forgets all entries.
    pub fn clear(&self) {
        self.0.lock().entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(object: &str, at_ms: u64) -> Refused {
        Refused {
            reason: Reason::Key,
            context: Context::TopLevel,
            object: object.as_bytes().to_vec(),
            username: b"u".to_vec(),
            command: String::new(),
            client: String::new(),
            client_id: ClientId(0),
            addr: String::new(),
            at_ms: UnixMs(at_ms),
        }
    }

    fn shown(log: &AclLog) -> Vec<(u64, u64, String)> {
        let entries = log.newest(usize::MAX).into_iter();
        let shown = entries.map(|entry| {
            let object = String::from_utf8(entry.last.object).unwrap();
            (entry.id, entry.count, object)
        });
        shown.collect()
    }

    #[test]
    fn refusals_of_a_kind_are_one_entry() {
        let log = AclLog::default();
        for (object, at_ms) in [("a", 1_000), ("b", 2_000), ("a", 60_000)] {
            log.add(refused(object, at_ms), 128);
        }
        assert_eq!(shown(&log), [(0, 2, "a".into()), (1, 1, "b".into())]);
        log.add(refused("b", 62_001), 128);
        assert_eq!(shown(&log)[0], (2, 1, "b".into()));
        let mut elsewhere = refused("b", 62_001);
        elsewhere.context = Context::Lua;
        log.add(elsewhere, 128);
        assert_eq!(shown(&log)[0], (3, 1, "b".into()));
        log.clear();
        assert!(shown(&log).is_empty());
        log.add(refused("b", 62_001), 128);
        assert_eq!(shown(&log), [(4, 1, "b".into())]);
    }

    #[test]
    fn the_log_is_bounded() {
        let log = AclLog::default();
        for n in 0..5 {
            log.add(refused(&n.to_string(), 1), 3);
        }
        assert_eq!(shown(&log).len(), 3);
        log.add(refused("4", 1), 0);
        assert!(shown(&log).is_empty());
    }
}
