//! The data set: read from an RDB file, written over several connections.
//!
//! A key goes to one connection, in order. If a connection breaks, the copy has
//! failed: which commands the target has run is anybody's guess. It goes on, if
//! the file can be read again, behind the last key of which all that came before
//! had been answered on all connections; without the file all of it is done again.

use super::Stop;
use super::conn::{Conn, Dbs};
use super::elements::{Abilities, Maker};
use super::error::{Error, Result, shown, shown_command};
use super::mapping::Mapping;
use super::options::Endpoint;
use super::stats::Stats;
use crate::base::clock;
use crate::rdb::file::{Entry, FileReader, Head};
use crate::rdb::{self, Element};
use crate::resp::{Limits, Parser, Progress, Value};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest string that a file may hold: rows have lengths of four bytes.
pub const MAX_STRING: u64 = u32::MAX as u64;
/// Bytes of a batch, but for its last command.
const BATCH_BYTES: usize = 128 << 10;
/// Batches that wait for a connection.
const WAITING_BATCHES: usize = 2;
/// How often it is noted what the target has.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// Where and how to write.
#[derive(Debug, Clone)]
pub struct Writing {
    /// The target.
    pub target: Endpoint,
    /// What it can do.
    pub abilities: Abilities,
    /// Connections.
    pub parallel: u16,
    /// Commands of a batch.
    pub pipeline: u32,
    /// Of all connections together.
    pub mb_per_s: Option<f64>,
    /// Whether refused commands are reported and no more.
    pub keep_going: bool,
    /// Whether another value of a key may be there.
    pub replace: bool,
    /// What becomes of keys whose time is over, or nearly.
    pub oldest: Oldest,
    /// Keys that begin before this byte of the file are there.
    pub from: u64,
}

/// What becomes of keys whose time is nearly over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oldest {
    /// They are copied to live for a while: the stream says when they are over.
    /// Until then it may do something to them.
    Kept,
    /// They are left out if their time is over.
    LeftOut,
}

/// A key whose time is over at the source lives at the target until the source
/// says so, or for this long, in ms.
pub const GRACE_MS: u64 = 60_000;

/// When a key expires at the target, so that it does not before the stream says
/// so.
pub fn kept_until(expire_ms: u64, now_ms: u64) -> u64 {
    match expire_ms {
        0 => 0,
        at_ms => at_ms.max(now_ms + GRACE_MS),
    }
}

struct Batch {
    bytes: Vec<u8>,
    commands: usize,
    /// All keys of the lane that end before this byte of the file are in this
    /// batch or the ones before.
    to: u64,
}

/// What a lane's connection has answers to.
#[derive(Default)]
struct Answered {
    batches: AtomicU64,
    /// [`Batch::to`] of the last one.
    to: AtomicU64,
}

/// A connection with its thread.
struct Lane {
    maker: Maker,
    db: Option<u64>,
    batches: Option<Sender<Batch>>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Where the last key that it was given ends in the file.
    to: u64,
    sent: u64,
    answered: Arc<Answered>,
}

impl Lane {
    /// What the thread failed with; the thread has ended.
    fn failure(&mut self) -> Error {
        self.batches = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            Some(Err(_)) => Error::Refused("a writing thread had panicked".into()),
            _ => Error::Stopped,
        }
    }

    /// All keys of the lane that end before this byte of the file are at the
    /// target; nothing if that is all it was given.
    fn answered(&self) -> Option<u64> {
        let is_all =
            self.maker.commands == 0 && self.answered.batches.load(Ordering::Acquire) == self.sent;
        (!is_all).then(|| self.answered.to.load(Ordering::Acquire))
    }

    fn flush(&mut self) -> Result<()> {
        if self.maker.commands == 0 {
            return Ok(());
        }
        let batch = Batch {
            bytes: std::mem::replace(&mut self.maker.out, Vec::with_capacity(BATCH_BYTES)),
            commands: std::mem::take(&mut self.maker.commands),
            to: self.to,
        };
        self.sent += 1;
        let sent = self.batches.as_ref().map(|to| to.send(batch));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failure()),
        }
    }
}

/// Nothing that a lane has under way comes after what is done next.
impl Drop for Lane {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // Why it failed does not matter any more.
            let _ = thread.join();
        }
    }
}

/// Copies what a file holds to the target; returns what follows in its source.
/// `note` hears now and then up to which byte the target has it.
pub fn copy<R: BufRead>(
    source: R,
    mapping: &Mapping,
    writing: &Writing,
    stop: &Stop,
    stats: &Arc<Stats>,
    note: impl FnMut(u64) -> Result<()>,
) -> Result<(R, u64)> {
    let mut lanes = Vec::new();
    for n in 0..writing.parallel {
        lanes.push(lane(n, writing, stop, stats)?);
    }
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
        dbs: Dbs::new(&writing.target, stop),
    };
    copy.run(note)?;
    for lane in &mut copy.lanes {
        lane.flush()?;
        lane.batches = None;
    }
    for lane in &mut copy.lanes {
        match lane.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done?,
            _ => return Err(Error::Refused("a writing thread had panicked".into())),
        }
    }
    let read = copy.file.position();
    Ok((copy.file.into_inner(), read))
}

fn lane(n: u16, writing: &Writing, stop: &Stop, stats: &Arc<Stats>) -> Result<Lane> {
    let mut conn = Conn::new(&writing.target, stop)?;
    let share = |rate: f64| rate / f64::from(writing.parallel);
    conn.limit(writing.mb_per_s.map(share));
    let (send, batches) = bounded(WAITING_BATCHES);
    let (stats, keep_going) = (stats.clone(), writing.keep_going);
    let answered = Arc::new(Answered::default());
    let answers = answered.clone();
    let thread = std::thread::Builder::new().name(format!("write-{n}"));
    let thread = thread.spawn(move || write(&mut conn, &batches, keep_going, &answers, &stats));
    Ok(Lane {
        maker: Maker::new(writing.abilities),
        db: None,
        batches: Some(send),
        thread: Some(thread.map_err(Error::Target)?),
        to: 0,
        sent: 0,
        answered,
    })
}

/// Sends one batch while the replies to the one before are under way.
fn write(
    conn: &mut Conn,
    batches: &Receiver<Batch>,
    keep_going: bool,
    answered: &Answered,
    stats: &Stats,
) -> Result<()> {
    let mut under_way: Option<Batch> = None;
    loop {
        let next = match under_way {
            // Replies that nobody waits for yet are read when there is time.
            Some(_) => batches.try_recv().ok(),
            None => match batches.recv() {
                Ok(batch) => Some(batch),
                Err(_) => return Ok(()),
            },
        };
        if let Some(batch) = &next {
            let before = conn.sent;
            conn.send(&batch.bytes)?;
            let sent = conn.sent - before;
            stats.bytes_out.fetch_add(sent, Ordering::Relaxed);
        }
        if let Some(batch) = under_way.take() {
            read_replies(conn, &batch, keep_going, stats)?;
            answered.to.store(batch.to, Ordering::Release);
            answered.batches.fetch_add(1, Ordering::AcqRel);
        }
        under_way = next;
    }
}

fn read_replies(conn: &mut Conn, batch: &Batch, keep_going: bool, stats: &Stats) -> Result<()> {
    let mut read = 0;
    while read < batch.commands {
        read += conn.pass(b"+OK\r\n", batch.commands - read)?;
        if read == batch.commands {
            break;
        }
        if let Value::Error(error) = conn.reply()? {
            let command = nth_command(&batch.bytes, read);
            refused(command, error, false, keep_going, stats)?;
        }
        read += 1;
    }
    Ok(())
}

/// A command that the target refused: the end of everything, or a report.
pub fn refused(
    command: String,
    error: String,
    is_partial: bool,
    keep_going: bool,
    stats: &Stats,
) -> Result<()> {
    let error = Error::Command {
        command,
        error,
        is_partial,
    };
    if !keep_going {
        return Err(error);
    }
    stats.errors.fetch_add(1, Ordering::Relaxed);
    log::error!("{error}");
    Ok(())
}

/// Whether the target does not have a DB: then that is a refused command.
pub fn is_refused(dbs: &mut Dbs, db: u64, keep_going: bool, stats: &Stats) -> Result<bool> {
    let Some(error) = dbs.refusal(db)? else {
        return Ok(false);
    };
    let (command, error) = (format!("\"SELECT {db}\""), error.to_owned());
    refused(command, error, false, keep_going, stats)?;
    Ok(true)
}

/// The nth command in these bytes, for a human.
pub fn nth_command(bytes: &[u8], n: usize) -> String {
    let limits = Limits {
        max_bulk_len: usize::MAX,
        authenticated: true,
    };
    let mut rest = bytes;
    let mut parser = Parser::new();
    for at in 0..=n {
        match parser.advance(rest, &limits) {
            Ok(Progress::Complete { consumed }) => {
                if at == n {
                    let args: Vec<&[u8]> = parser.args_of(rest).collect();
                    return shown_command(&args);
                }
                rest = rest.get(consumed..).unwrap_or_default();
            }
            _ => break,
        }
        parser.reset();
    }
    "a command".into()
}

/// Reading failed: because the connection did, or because the file is bad.
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

/// What ends the reading of a value.
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
        let keep_going = self.writing.keep_going;
        if let Some(to) = self.db
            && is_refused(&mut self.dbs, to, keep_going, self.stats)?
        {
            self.db = None;
        }
        Ok(())
    }

    /// Libraries of functions belong to all DBs, so they go along with all.
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

    /// Takes the key that begins at that byte.
    fn key(&mut self, head: Head, at: u64) -> Result<()> {
        let is_there = at < self.writing.from;
        let now_ms = clock::unix_ms();
        let is_over = self.writing.oldest == Oldest::LeftOut
            && head.expire_ms != 0
            && head.expire_ms <= now_ms;
        let expire_ms = match self.writing.oldest {
            Oldest::Kept => kept_until(head.expire_ms, now_ms),
            Oldest::LeftOut => head.expire_ms,
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
                .value(head.kind, |_: Element<'_>| Ok::<(), rdb::Error>(()));
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
        if lane.db != Some(db) {
            lane.maker
                .command(&[b"SELECT", itoa::Buffer::new().format(db).as_bytes()]);
            lane.db = Some(db);
        }
        let pipeline = writing.pipeline as usize;
        lane.maker.begin(&name, expire_ms, writing.replace);
        let read = file.value(head.kind, |element: Element<'_>| {
            lane.maker.add(element);
            match lane.maker.out.len() >= BATCH_BYTES {
                true => {
                    stop.check().map_err(Broken::Other)?;
                    lane.flush().map_err(Broken::Other)
                }
                false => Ok(()),
            }
        });
        match read {
            Ok(_) => {}
            // What it leaves at the target is nothing, too.
            Err(Broken::Rdb(rdb::Error::Empty)) => {}
            Err(Broken::Rdb(error)) => return Err(self.value_error(&source_key, error)),
            Err(Broken::Other(error)) => return Err(error),
        }
        lane.maker.end();
        lane.to = file.position();
        self.stats.keys.fetch_add(1, Ordering::Relaxed);
        match lane.maker.commands >= pipeline || lane.maker.out.len() >= BATCH_BYTES {
            true => lane.flush(),
            false => Ok(()),
        }
    }

    fn value_error(&self, key: &[u8], error: rdb::Error) -> Error {
        let what = format!("key {:?}", shown(key));
        read_error(&what, error, self.stop)
    }
}
