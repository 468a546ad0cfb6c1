//! A migration from start to end, with reconnects.

use super::aof::{self, AofFeed};
use super::checkpoint::{Checkpoint, Copied, Progress, Stage};
use super::conn::{Conn, Dbs};
use super::copy::{self, Oldest, Writing};
use super::error::{Error, Result};
use super::follow::{End, Follower, Following};
use super::lanes::Route;
use super::mapping::Mapping;
use super::options::Options;
use super::peers::{self, abilities, check_server};
use super::progress::Reporter;
use super::psync::{Acknowledged, Answer, Feed, Position, Transfer, source_offset};
use super::rewrite::Rewriter;
use super::scan::Scan;
use super::spool::{Link, Receiver, Spool};
use super::stats::{Phase, Stats};
use super::survey::{Survey, compare_databases};
use super::{RETRY, Stop, Tool, sleep, verify};
use crate::rdb::ElementTimes;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the source's offset is polled.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Runs a tool.
pub fn run(tool: Tool, options: Options, stop: Stop) -> Result<ExitCode> {
    let mapping = Mapping::new(&options).map_err(Error::Refused)?;
    let stats = Arc::new(Stats::default());
    let mut target = Conn::new(&options.target(), &stop)?;
    let about = check_server(&mut target, &options.target(), tool.target)?;
    if about.get("role") == Some("slave") {
        return Err(Error::Refused(format!(
            "the {} is a replica: it takes no writes",
            options.target()
        )));
    }
    if !options.is_offline() {
        let mut source = Conn::new(&options.source(), &stop)?;
        let from = check_server(&mut source, &options.source(), tool.source)?;
        if from.get("run_id").is_some() && from.get("run_id") == about.get("run_id") {
            return Err(Error::Refused(
                "source and target are the same server".into(),
            ));
        }
    }
    let reporter = Reporter::start(options.metrics.as_deref(), &stats)?;
    let rewriter = Rewriter {
        abilities: abilities(&mut target, &about)?,
        mapping,
        keep_going: options.keep_going,
        stats: stats.clone(),
    };
    let checkpoint = Checkpoint::new(&options, &rewriter.mapping);
    let is_copying = options.exit_when_synced || !options.verify;
    if is_copying {
        checkpoint.lock()?;
        check_before_copy(&options, &rewriter, &stop, &mut target)?;
        let end = match options.scan {
            true => scan(&options, &rewriter, &checkpoint, &stop, target),
            false => Job::new(&options, &rewriter, &checkpoint, &stop).migrate(target),
        };
        let end = end.inspect_err(|_| checkpoint.break_off(&options.target(), &stop));
        let lost = stats.element_times();
        if lost != ElementTimes::default() {
            log::warn!("{lost}");
        }
        if end? == End::Stopped {
            reporter.end();
            return Ok(ExitCode::SUCCESS);
        }
    }
    // The comparison counts anew.
    let refused = match is_copying {
        true => stats.errors.load(Ordering::Relaxed),
        false => 0,
    };
    let different = match options.verify {
        true => verify::compare(&options, &rewriter.mapping, &stop, &stats)?,
        false => 0,
    };
    reporter.end();
    Ok(match different == 0 && refused == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Ends the tool before the copy begins if the copy could not be completed.
fn check_before_copy(
    options: &Options,
    rewriter: &Rewriter,
    stop: &Stop,
    target: &mut Conn,
) -> Result<()> {
    if options.is_offline() {
        // Files are checked later, once it is known that there is something to copy.
        return Ok(());
    }
    let mut source = Conn::new(&options.source(), stop)?;
    if let Some(mut survey) = Survey::new(options, rewriter, stop) {
        survey.server(&mut source)?;
    }
    let follows = !options.src_from_rdb && !options.exit_when_synced;
    if follows && rewriter.mapping.dbs().is_none() {
        compare_databases(&mut source, target)?;
    }
    Ok(())
}

/// Copies with SCAN, from a source without PSYNC.
fn scan(
    options: &Options,
    rewriter: &Rewriter,
    checkpoint: &Checkpoint,
    stop: &Stop,
    target: Conn,
) -> Result<End> {
    let mut scan = Scan::new(options, rewriter, checkpoint, stop);
    let end = scan.run(target)?;
    checkpoint.end(&options.target(), stop, scan.rest().as_ref())?;
    log::info!("the target has all keys that the source reported");
    scan.log_limits();
    Ok(end)
}

struct Job<'j> {
    options: &'j Options,
    rewriter: &'j Rewriter,
    checkpoint: &'j Checkpoint,
    stop: &'j Stop,
    stats: Arc<Stats>,
    /// The kind of the source.
    link: Link,
    /// Files for what the source sends, with `--resume`.
    spool: Option<Spool>,
    /// Continues to receive while the target is away.
    receiver: Option<Receiver>,
    owned: bool,
    /// Whether the target already has a part of the data set.
    is_continued: bool,
    /// Id of the connection that carries the stream, and the target's run id: a
    /// connection that broke on this side may still be open at the target.
    client: Option<i64>,
    run_id: Option<String>,
}

impl<'j> Job<'j> {
    fn new(
        options: &'j Options,
        rewriter: &'j Rewriter,
        checkpoint: &'j Checkpoint,
        stop: &'j Stop,
    ) -> Job<'j> {
        let stats = rewriter.stats.clone();
        Job {
            link: Link {
                source: options.source(),
                mb_per_s: options.network_limit,
                stop: stop.clone(),
                stats: stats.clone(),
                applied: Arc::default(),
            },
            options,
            rewriter,
            checkpoint,
            stop,
            stats,
            spool: options.resume.as_deref().map(Spool::beside),
            receiver: None,
            owned: true,
            is_continued: false,
            client: None,
            run_id: None,
        }
    }

    /// Copies and follows until the end; reconnects after passing errors.
    fn migrate(&mut self, target: Conn) -> Result<End> {
        let mut target = Some(target);
        let mut is_first = true;
        loop {
            let done = self.attempt(target.take(), is_first);
            let error = match done {
                Ok((end, position)) => {
                    self.finish(end, &position)?;
                    return Ok(end);
                }
                Err(error) => error,
            };
            is_first = false;
            self.stats.set_phase(Phase::Connecting);
            if self.stop.is_wanted() || matches!(error, Error::Stopped) {
                return Err(Error::stopped(self.checkpoint.has_file()));
            }
            if let Error::Command {
                is_partial: true, ..
            } = &error
            {
                // Other commands of the transaction were run, so only another copy
                // restores consistency.
                let progress = self.progress(Stage::Copying(None));
                let set = Conn::new(&self.options.target(), self.stop)
                    .and_then(|mut target| self.checkpoint.set_marker(&mut target, &progress));
                if let Err(error) = set {
                    log::error!("{error}");
                }
            }
            if !error.is_passing() {
                return Err(error);
            }
            log::warn!("{error}; trying again");
            self.stats.reconnects.fetch_add(1, Ordering::Relaxed);
            sleep(RETRY, self.stop);
        }
    }

    /// Ends with success: the marker's progress moves to the file.
    fn finish(&self, end: End, position: &Option<Position>) -> Result<()> {
        if let Some(spool) = &self.spool
            && end != End::Stopped
        {
            spool.remove()?;
        }
        let following = |position: &Position| self.progress(Stage::Following(position.clone()));
        let progress = position.as_ref().map(following);
        self.checkpoint
            .end(&self.options.target(), self.stop, progress.as_ref())?;
        match position {
            Some(position) => log::info!(
                "the target has everything up to offset {}",
                position.next - 1
            ),
            None => log::info!("the target has everything"),
        }
        Ok(())
    }

    fn progress(&self, stage: Stage) -> Progress {
        Progress {
            owned: self.owned,
            stage,
        }
    }

    /// One attempt over one set of connections; returns the target's position in the
    /// stream, if there is a stream.
    fn attempt(&mut self, target: Option<Conn>, is_first: bool) -> Result<(End, Option<Position>)> {
        let mut target = match target {
            Some(target) => target,
            None => Conn::new(&self.options.target(), self.stop)?,
        };
        let run_id = target.info("server")?.get("run_id").map(str::to_owned);
        if let Some(client) = self.client.take()
            && self.run_id == run_id
        {
            // Commands that the old connection still holds must not run after this
            // point.
            let kill = target.ask(&["CLIENT", "KILL", "ID", &client.to_string()]);
            log::debug!("the old connection: {kill:?}");
        }
        self.run_id = run_id;
        let known = self.checkpoint.recall(&mut target, is_first)?;
        let known = match known {
            None if !is_first => Some(self.progress(Stage::Copying(None))),
            known => known,
        };
        match &known {
            Some(progress) => self.owned = progress.owned,
            None => self.owned = peers::is_free(&mut target, &self.rewriter.mapping, self.stop)?,
        }
        if !self.owned && known.is_none() {
            log::warn!(
                "the target has keys already: those that the source does not have stay, others are overwritten"
            );
        }
        target.limit(self.options.network_limit);
        if self.options.is_offline() {
            return self.replay(target, known);
        }
        let link = self.link.clone();
        link.applied.store(0, Ordering::Release);
        let (mut feed, start) = match self.resume(&mut target, known.as_ref(), &link)? {
            Some(resumed) => resumed,
            None => self.begin(&mut target, known.as_ref(), &link)?,
        };
        let following = self.progress(Stage::Following(start.clone()));
        self.checkpoint.set_marker(&mut target, &following)?;
        if let Some(spool) = &self.spool {
            spool.remove_rdb()?;
        }
        if self.options.src_from_rdb {
            return Ok((End::Synced, Some(start)));
        }
        log::info!("following from offset {}", start.next - 1);
        self.stats.set_phase(Phase::Following);
        // CLIENT ID exists since Redis 5.0.
        let client = target.ask_maybe(&["CLIENT", "ID"])?;
        self.client = client.and_then(|id| id.as_i64());
        let mut watch = Watch::new(self.options, self.stop, &self.stats);
        let mut follower =
            Follower::new(self.following(link.applied), &mut *feed, &mut target, start);
        let end = follower.run(|position| watch.is_done(position))?;
        let position = follower.position.clone();
        self.client = None;
        Ok((end, Some(position)))
    }

    /// Continues from the spool, if the spool holds what the target needs next.
    fn resume(
        &mut self,
        target: &mut Conn,
        known: Option<&Progress>,
        link: &Link,
    ) -> Result<Option<(Box<dyn Feed>, Position)>> {
        let kept = self.receiver.take().filter(Receiver::is_running);
        let (Some(spool), Some(known)) = (self.spool.clone(), known) else {
            return Ok(None);
        };
        let receiver = match (kept, &known.stage) {
            (Some(kept), Stage::Copying(_)) => kept,
            _ => match spool.held(Some(known))? {
                Some(held) => Receiver::resume(&spool, link, held)?,
                None => return Ok(None),
            },
        };
        let (start, receiver) = match &known.stage {
            Stage::Following(position) => (position.clone(), receiver),
            Stage::Copying(copied) => {
                let start = receiver.start();
                let copied = copied
                    .as_ref()
                    .filter(|copied| (&copied.id, copied.next) == (&start.id, start.next));
                self.begin_copy(target, true, copied)?;
                let from = copied.map_or(0, |copied| copied.bytes);
                (start, self.load(target, receiver, from)?)
            }
        };
        let feed = receiver.feed(start.next)?;
        Ok(Some((Box::new(feed), start)))
    }

    /// Continues from the target's position, or copies the whole data set.
    fn begin(
        &mut self,
        target: &mut Conn,
        known: Option<&Progress>,
        link: &Link,
    ) -> Result<(Box<dyn Feed>, Position)> {
        let from = known.and_then(|known| match &known.stage {
            Stage::Following(position) => Some(position),
            Stage::Copying(_) => None,
        });
        if let Some(spool) = &self.spool {
            spool.remove()?;
        }
        let (stream, answer) = link.psync(from)?;
        let (start, transfer) = match answer {
            Answer::Continue(id) => {
                let from = from.cloned().ok_or(Error::Stopped)?;
                let start = Position { id, ..from };
                link.applied.store(start.next, Ordering::Release);
                let acknowledging = stream.acknowledge(link.applied.clone())?;
                return Ok((Box::new(Acknowledged::new(stream, acknowledging)), start));
            }
            Answer::Full(start, transfer) => (start, transfer),
        };
        if let Some(from) = from {
            log::warn!("{}", Error::Lost(from.next - 1));
        }
        self.begin_copy(target, known.is_some(), None)?;
        if let Some(spool) = self.spool.clone() {
            let receiver = Receiver::begin(&spool, link, stream, transfer, &start)?;
            let receiver = self.load(target, receiver, 0)?;
            return Ok((Box::new(receiver.feed(start.next)?), start));
        }
        let acknowledging = stream.acknowledge(link.applied.clone())?;
        // The length limits the file whatever its own end mark says.
        let length = match transfer {
            Transfer::Length(length) => length,
            Transfer::Mark(_) => u64::MAX,
        };
        let (file, read) = self.copy(stream.take(length), Oldest::Kept, 0, |_| Ok(()))?;
        let mut stream = file.into_inner();
        stream.end_transfer(transfer, read)?;
        // The source may wait for an acknowledgement.
        acknowledging.now();
        self.log_copied();
        Ok((Box::new(Acknowledged::new(stream, acknowledging)), start))
    }

    /// Copies the received data set from that byte on. If the target fails, the receiver
    /// is kept and the source does not notice.
    fn load(&mut self, target: &mut Conn, receiver: Receiver, from: u64) -> Result<Receiver> {
        match self.load_from(target, &receiver, from) {
            Ok(()) => Ok(receiver),
            Err(error) => {
                self.receiver = Some(receiver);
                Err(error)
            }
        }
    }

    fn load_from(&mut self, target: &mut Conn, receiver: &Receiver, from: u64) -> Result<()> {
        let start = receiver.start();
        let copied = self.copy(receiver.rdb()?, Oldest::Kept, from, |bytes| {
            self.note_copied(target, &start.id, start.next, bytes)
        });
        let read = match copied {
            Ok((_, read)) => read,
            // The receiver has the reason why no more can be read.
            Err(error) => return Err(receiver.failure().unwrap_or(error)),
        };
        receiver.check_rdb(read)?;
        self.log_copied();
        Ok(())
    }

    fn note_copied(&self, target: &mut Conn, id: &str, next: u64, bytes: u64) -> Result<()> {
        let id = id.to_owned();
        let copied = Copied { id, next, bytes };
        let progress = self.progress(Stage::Copying(Some(copied)));
        self.checkpoint.set_marker(target, &progress)
    }

    fn log_copied(&self) {
        log::info!("copied {} keys", self.stats.keys.load(Ordering::Relaxed));
    }

    fn following(&self, applied: Arc<AtomicU64>) -> Following<'_> {
        Following {
            rewriter: self.rewriter,
            checkpoint: self.checkpoint,
            owned: self.owned,
            applied,
            stats: &self.stats,
            stop: self.stop,
            keep_going: self.options.keep_going,
            pipeline: self.options.pipeline,
            dbs: Dbs::new(&self.options.target(), self.stop),
            done: 0,
        }
    }

    /// Copies or replays files, without the part that the target already has.
    fn replay(
        &mut self,
        mut target: Conn,
        known: Option<Progress>,
    ) -> Result<(End, Option<Position>)> {
        let (files, oldest) = match (&self.options.rdb_file, &self.options.aof_file) {
            (Some(file), _) => (vec![file.clone()], Oldest::LeftOut),
            (None, Some(file)) => (aof::files(file)?, Oldest::Kept),
            (None, None) => (Vec::new(), Oldest::Kept),
        };
        if known.is_none()
            && let Some(mut survey) = Survey::new(self.options, self.rewriter, self.stop)
        {
            survey.files(&files)?;
        }
        let (id, len) = aof::identity(&files)?;
        let (copied, replayed) = match known.as_ref().map(|known| &known.stage) {
            Some(Stage::Copying(Some(copied))) if copied.id == id => (Some(copied.clone()), None),
            Some(Stage::Following(at)) if at.id == id => {
                log::info!("going on at byte {} of the commands", at.next - 1);
                (Some(Copied::all(&id)), Some(at.clone()))
            }
            _ => (None, None),
        };
        self.begin_copy(&mut target, known.is_some(), copied.as_ref())?;
        let (mut first, mut rest) = (None, files.as_slice());
        if let [base, others @ ..] = rest
            && (self.options.rdb_file.is_some() || aof::begins_with_rdb(base)?)
        {
            let from = copied.map_or(0, |copied| copied.bytes);
            let (back, _) = self.copy(aof::open(base)?, oldest, from, |bytes| {
                self.note_copied(&mut target, &id, len, bytes)
            })?;
            (first, rest) = (Some(back), others);
        }
        if self.options.rdb_file.is_some() {
            return Ok((End::Exhausted, None));
        }
        self.stats.set_phase(Phase::Following);
        let mut feed = AofFeed::new(first, rest, &self.stats);
        let start = Position { id, next: 1, db: 0 };
        let following = Following {
            done: replayed.map_or(0, |at| at.next),
            ..self.following(Arc::default())
        };
        let mut follower = Follower::new(following, &mut feed, &mut target, start);
        match follower.run(|_| Ok(false))? {
            End::Stopped => Err(Error::Stopped),
            end => Ok((end, None)),
        }
    }

    /// Prepares the target for a copy, or for the rest of one.
    fn begin_copy(
        &mut self,
        target: &mut Conn,
        is_again: bool,
        copied: Option<&Copied>,
    ) -> Result<()> {
        self.stats.set_phase(Phase::Copying);
        self.stats.copies.fetch_add(1, Ordering::Relaxed);
        for figure in [
            &self.stats.keys,
            &self.stats.keys_expected,
            &self.stats.left_out,
            &self.stats.timed_values,
            &self.stats.timed_elements,
        ] {
            figure.store(0, Ordering::Relaxed);
        }
        self.is_continued = copied.is_some();
        if let Some(copied) = copied {
            if *copied != Copied::all(&copied.id) {
                log::info!("going on with the copy at byte {}", copied.bytes);
            }
            return Ok(());
        }
        let progress = self.progress(Stage::Copying(None));
        self.checkpoint.set_marker(target, &progress)?;
        if is_again && self.owned {
            peers::clear_keys(target, &self.rewriter.mapping, None, self.stop)?;
            self.checkpoint.set_marker(target, &progress)?;
        } else if is_again {
            log::warn!(
                "keys that were copied before and have since been deleted at the source will stay: the target had keys of its own at the beginning"
            );
        }
        Ok(())
    }

    fn copy<R: std::io::BufRead>(
        &self,
        source: R,
        oldest: Oldest,
        from: u64,
        note: impl FnMut(u64) -> Result<()>,
    ) -> Result<(R, u64)> {
        let writing = Writing {
            route: Route::new(self.options, self.rewriter.abilities),
            replace: !self.owned || self.is_continued,
            oldest,
            from,
        };
        copy::copy(
            source,
            &self.rewriter.mapping,
            &writing,
            self.stop,
            &self.stats,
            note,
        )
    }
}

/// Polls the source's offset.
struct Watch<'w> {
    options: &'w Options,
    stop: &'w Stop,
    stats: &'w Stats,
    conn: Option<Conn>,
    polled: Option<Instant>,
    /// The source's offset when following began.
    goal: Option<u64>,
}

impl<'w> Watch<'w> {
    fn new(options: &'w Options, stop: &'w Stop, stats: &'w Stats) -> Watch<'w> {
        Watch {
            options,
            stop,
            stats,
            conn: None,
            polled: None,
            goal: None,
        }
    }

    /// Whether the target has reached the goal, so that the tool may end.
    fn is_done(&mut self, position: &Position) -> Result<bool> {
        let applied = position.next - 1;
        if self.polled.is_none_or(|at| at.elapsed() >= POLL_EVERY) {
            self.polled = Some(Instant::now());
            match self.poll() {
                Ok(offset) => {
                    self.goal.get_or_insert(offset);
                    let lag = offset.saturating_sub(applied);
                    self.stats.lag.store(lag, Ordering::Relaxed);
                }
                // The stream reports it if the source is gone.
                Err(error) => {
                    log::debug!("{error}");
                    self.conn = None;
                }
            }
        }
        let is_synced = self.goal.is_some_and(|goal| goal <= applied);
        Ok(is_synced && self.options.exit_when_synced)
    }

    fn poll(&mut self) -> Result<u64> {
        let conn = match &mut self.conn {
            Some(conn) => conn,
            None => self
                .conn
                .insert(Conn::new(&self.options.source(), self.stop)?),
        };
        source_offset(conn)
    }
}
