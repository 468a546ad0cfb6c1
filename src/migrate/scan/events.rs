//! Changed keys of the source, from its keyspace events.
//!
//! A thread receives the events and collects the names of changed keys, each once, until
//! they are taken. Events during a broken connection are lost, and so are names beyond
//! [`MAX_BYTES`]: then all keys must be read again.

use super::super::conn::{Conn, silent};
use super::super::error::{Error, Result};
use super::super::mapping::Mapping;
use super::super::options::Endpoint;
use super::super::{Stop, conn};
use crate::base::num;
use crate::resp::Value;
use crate::resp::encode::command;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A DB of the source and a key in it.
pub type Place = (u64, Vec<u8>);

/// Most bytes of names that are collected.
const MAX_BYTES: usize = 64 << 20;
/// Approximate overhead of a name in bytes.
const NAME_BYTES: usize = 64;
/// How often a PING is sent.
const PING_EVERY: Duration = Duration::from_secs(10);
/// How long the source may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// The classes of `notify-keyspace-events` that report changes.
const CLASSES: &str = "g$lshzxet";

/// Which events a source sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// None that report changes.
    Nothing,
    /// Unknown: the source refuses CONFIG GET.
    Unknown,
    /// Events on channels by event or by key, without these classes.
    Classes {
        /// The pattern to subscribe to.
        pattern: &'static str,
        /// Classes that are missing.
        missing: String,
    },
}

const BY_EVENT: &str = "__keyevent@*__:*";
const BY_KEY: &str = "__keyspace@*__:*";

impl Given {
    /// Asks the source for its `notify-keyspace-events`.
    pub fn ask(source: &mut Conn) -> Result<Given> {
        let answer = source.ask_maybe(&["CONFIG", "GET", "notify-keyspace-events"])?;
        let answer = answer.as_ref().and_then(Value::as_slice);
        let Some(flags) = answer.and_then(|pair| pair.get(1)?.as_bytes()) else {
            return Ok(Given::Unknown);
        };
        Ok(Given::of(&String::from_utf8_lossy(flags)))
    }

    fn of(flags: &str) -> Given {
        let pattern = match (flags.contains('E'), flags.contains('K')) {
            (true, _) => BY_EVENT,
            (_, true) => BY_KEY,
            _ => return Given::Nothing,
        };
        let is_missing = |class: &char| !flags.contains('A') && !flags.contains(*class);
        let missing: String = CLASSES.chars().filter(is_missing).collect();
        match missing == CLASSES {
            true => Given::Nothing,
            false => Given::Classes { pattern, missing },
        }
    }

    fn patterns(&self) -> Vec<&'static str> {
        match self {
            Given::Nothing => Vec::new(),
            Given::Unknown => vec![BY_EVENT, BY_KEY],
            Given::Classes { pattern, .. } => vec![pattern],
        }
    }
}

#[derive(Default)]
struct State {
    changed: BTreeSet<Place>,
    bytes: usize,
    /// Whether names were dropped for lack of room.
    is_lost: bool,
    /// Number of calls of [`Events::settle`], and for how many of them the PING was
    /// answered.
    asked: u64,
    settled: u64,
    /// Why the thread ended.
    error: Option<Error>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The subscription.
pub struct Events {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Events {
    /// Subscribes. Every change from now on is reported.
    pub fn subscribe(
        source: &Endpoint,
        given: &Given,
        mapping: &Mapping,
        stop: &Stop,
    ) -> Result<Events> {
        let mut conn = Conn::new(source, stop)?;
        for pattern in given.patterns() {
            conn.ask(&["PSUBSCRIBE", pattern])?;
        }
        let shared = Arc::<Shared>::default();
        let mut subscription = Subscription {
            conn,
            mapping: mapping.clone(),
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new().name("events".into());
        let thread = thread.spawn(move || {
            let error = subscription.listen().err();
            let mut state = subscription.shared.state.lock();
            (state.is_over, state.error) = (true, error);
            subscription.shared.changed.notify_all();
        });
        Ok(Events {
            shared,
            thread: Some(thread.map_err(Error::Source)?),
        })
    }

    /// # Errors
    /// The subscription has ended.
    pub fn check(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        match state.is_over {
            true => Err(state.error.take().unwrap_or(Error::Stopped)),
            false => Ok(()),
        }
    }

    /// Whether the thread still receives events.
    pub fn is_running(&self) -> bool {
        !self.shared.state.lock().is_over
    }

    /// Whether names were dropped since the last call.
    pub fn has_lost(&self) -> bool {
        std::mem::take(&mut self.shared.state.lock().is_lost)
    }

    /// Number of changed keys.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().changed.len()
    }

    /// Takes up to `at_most` of them.
    pub fn take(&self, at_most: usize) -> Vec<Place> {
        let mut state = self.shared.state.lock();
        let mut taken = Vec::new();
        while taken.len() < at_most
            && let Some(place) = state.changed.pop_first()
        {
            state.bytes -= place.1.len() + NAME_BYTES;
            taken.push(place);
        }
        taken
    }

    /// Waits briefly for a change.
    pub fn wait(&self) {
        let mut state = self.shared.state.lock();
        if state.changed.is_empty() && !state.is_over {
            self.shared.changed.wait_for(&mut state, conn::NAP);
        }
    }

    /// Waits until all events that the source has sent are received: the answer to a
    /// PING comes after them.
    pub fn settle(&self, stop: &Stop) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.asked += 1;
        let asked = state.asked;
        while state.settled < asked {
            if state.is_over {
                return Err(state.error.take().unwrap_or(Error::Stopped));
            }
            stop.check()?;
            self.shared.changed.wait_for(&mut state, conn::NAP);
        }
        Ok(())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        if let Some(thread) = self.thread.take() {
            // Its error does not matter any more.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Subscription {
    conn: Conn,
    mapping: Mapping,
    shared: Arc<Shared>,
}

impl Subscription {
    fn listen(&mut self) -> Result<()> {
        let (mut received_at, mut pinged, mut asked) = (Instant::now(), Instant::now(), 0);
        loop {
            let wanted = {
                let state = self.shared.state.lock();
                if state.is_over {
                    return Ok(());
                }
                state.asked
            };
            if wanted > asked || pinged.elapsed() >= PING_EVERY {
                (asked, pinged) = (wanted, Instant::now());
                let mut out = Vec::new();
                command(&mut out, &["PING", &asked.to_string()]);
                self.conn.send(&out)?;
            }
            match self.conn.message()? {
                Some(message) => {
                    received_at = Instant::now();
                    self.take(&message)?;
                }
                None if received_at.elapsed() >= SILENCE => {
                    return Err(Error::Source(silent(SILENCE)));
                }
                None => {}
            }
        }
    }

    fn take(&mut self, message: &Value) -> Result<()> {
        if let Value::Error(error) = message {
            return Err(self.conn.refusal(&["PSUBSCRIBE"], error.clone()));
        }
        let words = message.as_slice().unwrap_or_default();
        let words: Vec<&[u8]> = words.iter().filter_map(Value::as_bytes).collect();
        match words.as_slice() {
            [b"pong", asked] => {
                let asked = num::parse_u64(asked).unwrap_or(0);
                let mut state = self.shared.state.lock();
                state.settled = state.settled.max(asked);
                self.shared.changed.notify_all();
            }
            [b"pmessage", _, channel, payload] => {
                if let Some((db, key)) = place(channel, payload)
                    && self.mapping.db(db).is_some()
                    && self.mapping.key(key).is_some()
                {
                    self.note(db, key);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note(&self, db: u64, key: &[u8]) {
        let mut state = self.shared.state.lock();
        if state.bytes >= MAX_BYTES {
            state.is_lost = true;
            state.changed.clear();
            state.bytes = 0;
        }
        if state.changed.insert((db, key.to_vec())) {
            state.bytes += key.len() + NAME_BYTES;
        }
        self.shared.changed.notify_all();
    }
}

/// The DB and key of an event; `None` for other messages.
fn place<'m>(channel: &'m [u8], payload: &'m [u8]) -> Option<(u64, &'m [u8])> {
    let (rest, is_by_event) = match channel.strip_prefix(b"__keyevent@") {
        Some(rest) => (rest, true),
        None => (channel.strip_prefix(b"__keyspace@")?, false),
    };
    let end = memchr::memmem::find(rest, b"__:")?;
    let (db, name) = (rest.get(..end)?, rest.get(end + 3..)?);
    let db = num::parse_u64(db)?;
    match is_by_event {
        // A read of a missing key.
        true if name == b"keymiss" => None,
        true => Some((db, payload)),
        false if payload == b"keymiss" => None,
        false => Some((db, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_events() {
        let key: &[u8] = b"a__:b";
        assert_eq!(place(b"__keyevent@3__:set", key), Some((3, key)));
        assert_eq!(place(b"__keyspace@12__:a__:b", b"set"), Some((12, key)));
        for (channel, payload) in [
            ("__keyevent@3__:keymiss", "k"),
            ("__keyspace@3__:k", "keymiss"),
            ("__keyevent@x__:set", "k"),
            ("news", "k"),
        ] {
            assert_eq!(
                place(channel.as_bytes(), payload.as_bytes()),
                None,
                "{channel}"
            );
        }
    }

    #[test]
    fn what_a_source_gives() {
        let some = |pattern, missing: &str| Given::Classes {
            pattern,
            missing: missing.to_owned(),
        };
        assert_eq!(Given::of("AKE"), some(BY_EVENT, ""));
        assert_eq!(Given::of("AK"), some(BY_KEY, ""));
        assert_eq!(Given::of("g$lshzE"), some(BY_EVENT, "xet"));
        for nothing in ["", "A", "g$x", "KE", "Em"] {
            assert_eq!(Given::of(nothing), Given::Nothing, "{nothing}");
        }
    }
}
