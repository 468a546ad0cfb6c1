//! The stream: commands in the order of the source, in transactions that also
//! set the marker.
//!
//! While the target runs one transaction, the next one is built. It is sent after the
//! previous one has succeeded, so no transaction runs after a failed one.

use super::Stop;
use super::checkpoint::{Checkpoint, MARKER_RENEWAL, Progress, Stage};
use super::conn::{Conn, Dbs};
use super::error::{Error, Result, shown_command};
use super::lanes::{is_refused, nth_command, refused};
use super::peers;
use super::psync::{Feed, Position};
use super::rewrite::{Rewriter, Rewritten};
use super::stats::Stats;
use crate::base::num;
use crate::base::time::UnixMs;
use crate::resp::encode::command;
use crate::resp::{Limits, Parser, Progress as Parsed, Value};
use crate::sys::clock;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of a transaction, not counting its last command.
const BATCH_BYTES: usize = 256 << 10;
/// Largest transaction of the source in bytes that is kept as one.
const MAX_UNIT_BYTES: usize = 64 << 20;
/// Longest argument that the source may send.
pub const MAX_ARG_LEN: usize = u32::MAX as usize;

/// Why following ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The source has ended.
    Exhausted,
    /// The tool was asked to stop.
    Stopped,
    /// The target has everything up to the goal.
    Synced,
}

/// One transaction at the target.
#[derive(Default)]
struct Batch {
    /// The commands, without MULTI, SELECT, the marker and EXEC.
    bytes: Vec<u8>,
    commands: usize,
    /// The target's DB after them.
    db: Option<u64>,
    /// Number of commands of the source in it.
    source_commands: u64,
    /// The source's position after it.
    to: Option<Position>,
    /// Bytes and commands before the transaction of the source that began last.
    before_unit: (usize, usize),
}

impl Batch {
    fn select(&mut self, db: u64) {
        if self.db != Some(db) {
            let mut digits = itoa::Buffer::new();
            self.push(&[b"SELECT", digits.format(db).as_bytes()]);
            self.db = Some(db);
        }
    }

    fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        command(&mut self.bytes, args);
        self.commands += 1;
    }
}

/// Applies the source's stream to the target.
pub struct Follower<'f, F: ?Sized> {
    pub feed: &'f mut F,
    pub rewriter: &'f Rewriter,
    pub checkpoint: &'f Checkpoint,
    pub target: &'f mut Conn,
    pub owned: bool,
    /// Position up to which commands were read.
    pub position: Position,
    /// Offset up to which the target has them, for acknowledgements.
    pub applied: Arc<AtomicU64>,
    pub stats: &'f Arc<Stats>,
    pub stop: &'f Stop,
    pub keep_going: bool,
    pub pipeline: u32,
    dbs: Dbs,
    done: u64,
    parser: Parser,
    in_unit: bool,
    /// DBs whose copied keys are to be deleted before anything else.
    clear: Option<Vec<u64>>,
    /// When the marker was set.
    marked: Instant,
}

/// What a follower needs besides its feed.
pub struct Following<'f> {
    pub rewriter: &'f Rewriter,
    pub checkpoint: &'f Checkpoint,
    pub owned: bool,
    pub applied: Arc<AtomicU64>,
    pub stats: &'f Arc<Stats>,
    pub stop: &'f Stop,
    pub keep_going: bool,
    pub pipeline: u32,
    /// Which DBs the target has.
    pub dbs: Dbs,
    /// Commands that end before this position are at the target already; 0: none.
    pub done: u64,
}

impl<'f, F: Feed + ?Sized> Follower<'f, F> {
    /// A follower that continues from the marker's position.
    pub fn new(
        following: Following<'f>,
        feed: &'f mut F,
        target: &'f mut Conn,
        position: Position,
    ) -> Follower<'f, F> {
        following.applied.store(position.next, Ordering::Release);
        Follower {
            feed,
            target,
            position,
            rewriter: following.rewriter,
            checkpoint: following.checkpoint,
            owned: following.owned,
            applied: following.applied,
            stats: following.stats,
            stop: following.stop,
            keep_going: following.keep_going,
            pipeline: following.pipeline,
            dbs: following.dbs,
            done: following.done,
            parser: Parser::new(),
            in_unit: false,
            clear: None,
            marked: Instant::now(),
        }
    }

    /// Follows until `is_done`, called with the target's position, returns true. Then
    /// `position` is the target's.
    pub fn run(&mut self, mut is_done: impl FnMut(&Position) -> Result<bool>) -> Result<End> {
        let mut under_way: Option<Batch> = None;
        loop {
            let stopping = self.stop.is_wanted();
            let batch = match stopping || self.clear.is_some() {
                true => Batch::default(),
                false => self.read_batch()?,
            };
            if let Some(sent) = under_way.take() {
                let has = self.finish(sent)?;
                // `is_done` is asked after each transaction: under constant writes the
                // stream never pauses.
                if let Some(has) = has
                    && is_done(&has)?
                {
                    self.position = has;
                    return Ok(End::Synced);
                }
            }
            if batch.commands > 0 {
                self.send(&batch)?;
                under_way = Some(batch);
                continue;
            }
            // The target has everything that was read.
            self.applied.store(self.position.next, Ordering::Release);
            self.renew()?;
            if let Some(dbs) = self.clear.take() {
                self.clear_keys(&dbs)?;
                continue;
            }
            if stopping {
                return Ok(End::Stopped);
            }
            if is_done(&self.position)? {
                return Ok(End::Synced);
            }
            if batch.to.is_none() && !self.fill()? {
                return Ok(End::Exhausted);
            }
        }
    }

    /// Collects what has arrived, up to the limits of a transaction.
    fn read_batch(&mut self) -> Result<Batch> {
        let mut batch = Batch::default();
        let limits = Limits {
            max_bulk_len: MAX_ARG_LEN,
            authenticated: true,
        };
        let now_ms = clock::unix_ms();
        while self.clear.is_none() {
            let is_full =
                batch.commands >= self.pipeline as usize || batch.bytes.len() >= BATCH_BYTES;
            if is_full && !(self.in_unit && batch.bytes.len() < MAX_UNIT_BYTES) {
                break;
            }
            // An idle source sends newlines, which do not count as offset.
            if self.feed.waiting().first() == Some(&b'\n') {
                self.feed.consume(1);
                continue;
            }
            let parsed = self.parser.advance(self.feed.waiting(), &limits);
            match parsed {
                Ok(Parsed::Complete { consumed }) => {
                    self.take(&mut batch, consumed, now_ms)?;
                    self.parser.reset();
                    self.feed.consume(consumed);
                    self.position.next += consumed as u64;
                    batch.to = Some(self.position.clone());
                }
                Ok(Parsed::Incomplete) if self.in_unit && !self.stop.is_wanted() => {
                    // The rest of a transaction follows, unless the source never wrote
                    // it.
                    if !self.fill()? {
                        log::warn!("an incomplete transaction at the end was left out");
                        let (bytes, commands) = batch.before_unit;
                        batch.bytes.truncate(bytes);
                        batch.commands = commands;
                        self.in_unit = false;
                        break;
                    }
                }
                Ok(Parsed::Incomplete) => break,
                Err(error) => {
                    return Err(Error::Refused(format!(
                        "the stream of the source is broken at offset {}: {error}",
                        self.position.next
                    )));
                }
            }
        }
        Ok(batch)
    }

    /// Translates one command, which is the next `len` bytes.
    fn take(&mut self, batch: &mut Batch, len: usize, now_ms: UnixMs) -> Result<()> {
        let bytes = self.feed.waiting().get(..len).unwrap_or_default();
        let args: SmallVec<[&[u8]; 8]> = self.parser.args_of(bytes).collect();
        let Some(name) = args.first() else {
            return Ok(());
        };
        let word = |word: &[u8]| name.eq_ignore_ascii_case(word);
        if word(b"select") {
            let db = args.get(1).and_then(|db| num::parse_u64(db));
            self.position.db = db.ok_or_else(|| unmappable(&args, "it is malformed"))?;
            return Ok(());
        }
        if word(b"multi") || word(b"exec") {
            self.in_unit = word(b"multi");
            batch.before_unit = (batch.bytes.len(), batch.commands);
            return Ok(());
        }
        if self.position.next < self.done {
            return Ok(());
        }
        let rewritten = self.rewriter.rewrite(self.position.db, &args, now_ms);
        let rewritten = match rewritten {
            Ok(rewritten) => rewritten,
            Err(why) if self.keep_going => {
                self.stats.errors.fetch_add(1, Ordering::Relaxed);
                log::error!("{}", unmappable(&args, why));
                Rewritten::Nothing
            }
            Err(why) => return Err(unmappable(&args, why)),
        };
        match rewritten {
            Rewritten::Nothing => return Ok(()),
            Rewritten::Same(db) | Rewritten::Command(db, _) | Rewritten::Commands(db, _, _)
                if is_refused(&mut self.dbs, db, self.keep_going, self.stats)? => {}
            Rewritten::Same(db) => {
                batch.select(db);
                batch.bytes.extend_from_slice(bytes);
                batch.commands += 1;
            }
            Rewritten::Command(db, args) => {
                batch.select(db);
                batch.push(&args);
            }
            Rewritten::Commands(db, bytes, commands) => {
                batch.select(db);
                batch.bytes.extend_from_slice(&bytes);
                batch.commands += commands;
            }
            Rewritten::Clear(dbs) => self.clear = Some(dbs),
            Rewritten::Swap(a, b) => {
                // The marker must stay in its DB, so it is deleted before the swap.
                batch.select(self.checkpoint.home);
                batch.push(&[b"DEL".as_slice(), &self.checkpoint.key]);
                batch.push(&["SWAPDB", &a.to_string(), &b.to_string()]);
            }
        }
        batch.source_commands += 1;
        Ok(())
    }

    fn progress(&self, position: &Position) -> Progress {
        Progress {
            owned: self.owned,
            stage: Stage::Following(position.clone()),
        }
    }

    /// Waits briefly for more of the stream; false at its end.
    fn fill(&mut self) -> Result<bool> {
        let is_more = self.feed.fill()?;
        if let Some(id) = self.feed.new_id() {
            self.position.id = id;
        }
        Ok(is_more)
    }

    /// Renews the marker while the stream is idle.
    fn renew(&mut self) -> Result<()> {
        if self.marked.elapsed() < MARKER_RENEWAL {
            return Ok(());
        }
        let progress = self.progress(&self.position);
        self.checkpoint.set_marker(self.target, &progress)?;
        self.marked = Instant::now();
        Ok(())
    }

    fn send(&mut self, batch: &Batch) -> Result<()> {
        let Some(to) = &batch.to else {
            return Ok(());
        };
        self.marked = Instant::now();
        let progress = self.progress(to);
        let mut head = Vec::new();
        command(&mut head, &["MULTI"]);
        let mut tail = Vec::new();
        command(&mut tail, &["SELECT", &self.checkpoint.home.to_string()]);
        command(&mut tail, &self.checkpoint.marking(&progress));
        command(&mut tail, &["EXEC"]);
        let before = self.target.sent;
        if batch.bytes.len() < BATCH_BYTES {
            head.extend_from_slice(&batch.bytes);
        } else {
            self.target.send(&head)?;
            self.target.send(&batch.bytes)?;
            head.clear();
        }
        head.extend_from_slice(&tail);
        self.target.send(&head)?;
        let sent = self.target.sent - before;
        self.stats.bytes_out.fetch_add(sent, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the replies to a transaction; returns the target's position after it.
    fn finish(&mut self, mut batch: Batch) -> Result<Option<Position>> {
        loop {
            let refusals = self.replies(&batch)?;
            if refusals.is_empty() {
                break;
            }
            // EXEC ran nothing: the transaction is repeated without the refused
            // commands.
            batch = without(&batch, &refusals);
            self.send(&batch)?;
        }
        let stats = self.stats;
        stats
            .commands
            .fetch_add(batch.source_commands, Ordering::Relaxed);
        if let Some(to) = &batch.to {
            self.applied.store(to.next, Ordering::Release);
        }
        Ok(batch.to)
    }

    /// The numbers of the commands that the target refused to queue; then it has run
    /// none.
    fn replies(&mut self, batch: &Batch) -> Result<Vec<usize>> {
        if let Value::Error(error) = self.target.reply()? {
            return Err(Error::Refused(format!("the target refused MULTI: {error}")));
        }
        // Plus the SELECT and the SET of the marker at the end.
        let queued = batch.commands + 2;
        let (mut read, mut refusals) = (0, Vec::new());
        while read < queued {
            read += self.target.pass(b"+QUEUED\r\n", queued - read)?;
            if read == queued {
                break;
            }
            if let Value::Error(error) = self.target.reply()? {
                if read >= batch.commands {
                    return Err(Error::Refused(format!(
                        "the target refused the marker: {error}"
                    )));
                }
                self.refused(batch, read, error, false)?;
                refusals.push(read);
            }
            read += 1;
        }
        match self.target.reply()? {
            Value::Error(_) if !refusals.is_empty() => return Ok(refusals),
            Value::Error(error) => {
                return Err(Error::Refused(format!("the target refused EXEC: {error}")));
            }
            Value::Array(replies) => {
                for (n, reply) in replies.iter().enumerate() {
                    if let Value::Error(error) = reply {
                        self.refused(batch, n, error.clone(), true)?;
                    }
                }
            }
            other => {
                return Err(Error::Refused(format!(
                    "the target answers EXEC with {other:?}"
                )));
            }
        }
        Ok(Vec::new())
    }

    /// Handles an error for the nth command. A refused SELECT always ends the tool: the
    /// commands after it would run in the previous DB.
    fn refused(&self, batch: &Batch, n: usize, error: String, is_partial: bool) -> Result<()> {
        let command = nth_command(&batch.bytes, n);
        let keep_going = self.keep_going && !command.starts_with("\"SELECT ");
        refused(command, error, is_partial, keep_going, self.stats)
    }

    /// Removes all copied keys; idempotent.
    fn clear_keys(&mut self, dbs: &[u64]) -> Result<()> {
        let mapping = &self.rewriter.mapping;
        let some = (!dbs.is_empty()).then_some(dbs);
        peers::clear_keys(self.target, mapping, some, self.stop)?;
        let progress = self.progress(&self.position);
        self.checkpoint.set_marker(self.target, &progress)
    }
}

fn unmappable(args: &[&[u8]], why: &'static str) -> Error {
    Error::Unmappable {
        command: shown_command(args),
        why,
    }
}

/// The batch without its commands of these numbers.
fn without(batch: &Batch, numbers: &[usize]) -> Batch {
    let limits = Limits {
        max_bulk_len: usize::MAX,
        authenticated: true,
    };
    let mut parser = Parser::new();
    let (mut rest, mut n) = (batch.bytes.as_slice(), 0);
    let mut left = Batch {
        db: batch.db,
        source_commands: batch.source_commands,
        to: batch.to.clone(),
        ..Batch::default()
    };
    while let Ok(Parsed::Complete { consumed }) = parser.advance(rest, &limits) {
        let (this, next) = rest.split_at_checked(consumed).unwrap_or((rest, b""));
        if !numbers.contains(&n) {
            left.bytes.extend_from_slice(this);
            left.commands += 1;
        }
        parser.reset();
        rest = next;
        n += 1;
    }
    left
}
