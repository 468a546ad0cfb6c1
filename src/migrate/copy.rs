//! The data set: read from an RDB file, written over several connections.
//!
//! All commands for a key go to one connection, in order. If a connection breaks, the
//! copy has failed, since it is unknown which commands the target has run. If the file
//! can be read again, the copy continues after the last key up to which all connections
//! have answered everything; without a file it starts again.

use super::Stop;
use super::conn::Dbs;
use super::elements::TimeRule;
use super::error::{Error, Result, shown};
use super::lanes::{self, Lane, Route, is_refused};
use super::mapping::Mapping;
use super::stats::Stats;
use crate::base::time::UnixMs;
use crate::rdb::file::{Entry, FileReader, Head};
use crate::rdb::{self, Element};
use crate::sys::clock;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest string that a file may hold: rows have lengths of four bytes.
pub const MAX_STRING: u64 = u32::MAX as u64;
/// How often the progress of the copy is recorded.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// What a copy writes and how.
#[derive(Debug, Clone)]
pub struct Writing {
    /// Target, connections and limits.
    pub route: Route,
    /// Whether keys may already have other values at the target.
    pub replace: bool,
    /// Treatment of keys that have expired or are about to.
    pub oldest: Oldest,
    /// Keys that begin before this byte of the file are at the target already.
    pub from: u64,
}

/// Treatment of keys that have expired or are about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oldest {
    /// They are copied with a later expiry. The stream deletes them, and may contain
    /// commands for them until then.
    Kept,
    /// Expired keys are left out.
    LeftOut,
}

/// An expired key lives at the target until the source deletes it, or for this long, in
/// ms.
pub(super) const GRACE_MS: u64 = 60_000;

/// When a key expires at the target, in ms: not before the stream deletes it.
pub(super) fn kept_until(expire_ms: UnixMs, now_ms: UnixMs) -> UnixMs {
    match expire_ms {
        UnixMs::NONE => UnixMs::NONE,
        at_ms => at_ms.max(now_ms + GRACE_MS),
    }
}

/// The same for fields of hashes and members of sets: the stream deletes expired ones, too.
pub(super) fn kept_elements(now_ms: UnixMs) -> TimeRule {
    TimeRule {
        over_ms: now_ms.before(GRACE_MS),
        not_before_ms: now_ms + GRACE_MS,
    }
}

/// The error for a hash or set with times of elements that the target does not support.
pub(super) fn times_refused(key: &[u8]) -> Error {
    Error::Refused(format!(
        "key {:?}: elements of this hash or set have times of their own, which the target does not keep; --keep-going takes such values without these times",
        shown(key)
    ))
}

/// Copies the keys of a file to the target; returns the source, which stands behind the
/// file. `note` is called from time to time with the byte up to which the target has the
/// file.
pub fn copy<R: BufRead>(
    source: R,
    mapping: &Mapping,
    writing: &Writing,
    stop: &Stop,
    stats: &Arc<Stats>,
    note: impl FnMut(u64) -> Result<()>,
) -> Result<(R, u64)> {
    let lanes = lanes::open(&writing.route, stop, stats)?;
    let file = FileReader::open(source, MAX_STRING);
    let mut copy = Copy {
        file: file.map_err(|error| read_error("RDB file", error, stop))?,
        mapping,
        writing,
        stop,
        stats,
        lanes,
        next_lane: 0,
        db: mapping.db(0),
        dbs: Dbs::new(&writing.route.target, stop),
    };
    copy.run(note)?;
    for lane in &mut copy.lanes {
        lane.finish()?;
    }
    for lane in &mut copy.lanes {
        lane.join()?;
    }
    let read = copy.file.position();
    Ok((copy.file.into_inner(), read))
}

/// The error for a failed read: a broken connection, or a damaged file.
fn read_error(what: &str, error: rdb::Error, stop: &Stop) -> Error {
    match error {
        rdb::Error::Io(_) if stop.is_wanted() => Error::Stopped,
        rdb::Error::Io(error) => Error::Source(error),
        error => Error::Rdb {
            what: what.to_owned(),
            error,
        },
    }
}

struct Copy<'c, R> {
    file: FileReader<R>,
    mapping: &'c Mapping,
    writing: &'c Writing,
    stop: &'c Stop,
    stats: &'c Arc<Stats>,
    lanes: Vec<Lane>,
    next_lane: usize,
    /// The target's DB for the keys that come.
    db: Option<u64>,
    dbs: Dbs,
}

/// What ended the reading of a value.
enum Broken {
    Rdb(rdb::Error),
    Other(Error),
}

impl From<rdb::Error> for Broken {
    fn from(error: rdb::Error) -> Self {
        Broken::Rdb(error)
    }
}

impl<R: BufRead> Copy<'_, R> {
    fn run(&mut self, mut note: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let (mut noted_at, mut noted) = (Instant::now(), self.writing.from);
        loop {
            self.stop.check()?;
            let at = self.file.position();
            if noted_at.elapsed() >= NOTE_EVERY {
                noted_at = Instant::now();
                let answered = self.lanes.iter().filter_map(Lane::answered);
                let there = answered.min().unwrap_or(at);
                if there > noted {
                    note(there)?;
                    noted = there;
                }
            }
            let entry = self
                .file
                .next()
                .map_err(|error| read_error(&format!("RDB file, byte {at}"), error, self.stop))?;
            match entry {
                Entry::Aux { name, text } => {
                    log::debug!("RDB file: {} is {}", shown(&name), shown(&text));
                }
                Entry::SelectDb(db) => self.select(db)?,
                Entry::Sizes { keys, .. } => {
                    self.stats.keys_expected.fetch_add(keys, Ordering::Relaxed);
                }
                Entry::Function(code) => self.function(&code)?,
                Entry::ModuleAux => log::warn!("a module's own data were left out"),
                Entry::Key(head) => self.key(head, at)?,
                Entry::End => return Ok(()),
            }
        }
    }

    fn select(&mut self, db: u64) -> Result<()> {
        self.db = self.mapping.db(db);
        let keep_going = self.writing.route.keep_going;
        if let Some(to) = self.db
            && is_refused(&mut self.dbs, to, keep_going, self.stats)?
        {
            self.db = None;
        }
        Ok(())
    }

    /// Function libraries belong to no DB, so they are copied only if everything is.
    fn function(&mut self, code: &[u8]) -> Result<()> {
        if self.mapping.dbs().is_some() || !self.mapping.is_whole() {
            log::warn!("a library of functions was left out");
            return Ok(());
        }
        let Some(lane) = self.lanes.first_mut() else {
            return Ok(());
        };
        lane.maker
            .command(&[b"FUNCTION", b"LOAD", b"REPLACE", code]);
        lane.flush()
    }

    /// Copies the key that begins at this byte.
    fn key(&mut self, head: Head, at: u64) -> Result<()> {
        let is_there = at < self.writing.from;
        let now_ms = clock::unix_ms();
        let is_over = self.writing.oldest == Oldest::LeftOut
            && head.expire_ms.is_some()
            && head.expire_ms <= now_ms;
        let expire_ms = match self.writing.oldest {
            Oldest::Kept => kept_until(head.expire_ms, now_ms),
            Oldest::LeftOut => head.expire_ms,
        };
        let rule = match self.writing.oldest {
            Oldest::Kept => kept_elements(now_ms),
            Oldest::LeftOut => TimeRule {
                over_ms: now_ms,
                not_before_ms: UnixMs::NONE,
            },
        };
        let source_key = self.file.key().to_vec();
        if self.db.is_some() && self.mapping.is_ambiguous(&source_key) {
            let shown = shown(&source_key);
            return Err(Error::Refused(format!(
                "key {shown:?} keeps a name that --rename-prefix gives to another one: name the keys to copy with --prefix"
            )));
        }
        let name = self.mapping.key(&source_key);
        let name = name.filter(|_| !is_over && !is_there);
        let (Some(db), Some(name)) = (self.db, name) else {
            let passed = self
                .file
                .value(head, |_: Element<'_>| Ok::<(), rdb::Error>(()));
            let figure = match is_there {
                true => &self.stats.keys,
                false => &self.stats.left_out,
            };
            figure.fetch_add(1, Ordering::Relaxed);
            return match passed {
                Ok(_) | Err(rdb::Error::Empty) => Ok(()),
                Err(error) => Err(self.value_error(&source_key, error)),
            };
        };
        let at = self.next_lane;
        self.next_lane = (at + 1) % self.lanes.len();
        let Copy {
            file,
            lanes,
            writing,
            stop,
            ..
        } = self;
        let Some(lane) = lanes.get_mut(at) else {
            return Ok(());
        };
        lane.select(db)?;
        lane.maker.begin(&name, expire_ms, writing.replace, rule);
        let read = file.value(head, |element: Element<'_>| {
            lane.maker.add(element);
            if lane.maker.lost_times() > 0 && !writing.route.keep_going {
                return Err(Broken::Other(times_refused(&source_key)));
            }
            stop.check().map_err(Broken::Other)?;
            lane.flush_long().map_err(Broken::Other)
        });
        match read {
            Ok(_) => {}
            // An empty collection is no key at the target either.
            Err(Broken::Rdb(rdb::Error::Empty)) => {}
            Err(Broken::Rdb(error)) => return Err(self.value_error(&source_key, error)),
            Err(Broken::Other(error)) => return Err(error),
        }
        lane.maker.end();
        self.stats.lost_times(lane.maker.lost_times());
        lane.to = file.position();
        self.stats.keys.fetch_add(1, Ordering::Relaxed);
        lane.flush_full()
    }

    fn value_error(&self, key: &[u8], error: rdb::Error) -> Error {
        let what = format!("key {:?}", shown(key));
        read_error(&what, error, self.stop)
    }
}
