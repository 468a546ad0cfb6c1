//! A copy from a source that offers no data set and no stream of commands, such as
//! managed services: keys with SCAN, values with DUMP or the commands of their types,
//! and changes with keyspace events, if the source sends them.
//!
//! ```text
//! source ── SCAN, DUMP ───────────► parallel connections ─► target
//!    │                                  ▲
//!    └── events: changed keys ──────────┘  read again, deleted if they are gone
//! ```
//!
//! A *pass* visits all keys. It is no snapshot: each value is as of the moment when it
//! was read. With events a changed key is read again, so in the end the target equals
//! the source. If events may have been missed (a broken connection, a restart of the
//! tool, too many changes at once), another pass follows, which also deletes keys that
//! are gone from the source. Changes without events stay unnoticed: the tool logs that
//! at its end ([`Scan::log_limits`]).
//!
//! The marker holds the progress of a pass: `Copied` has DB and cursor, and the source's
//! run id, as cursors are valid for one run only.

mod events;
mod writer;

use self::events::{Events, Given, Place};
use self::writer::Writer;
use super::checkpoint::{Checkpoint, Copied, MARKER_RENEWAL, Progress, Stage};
use super::conn::{Conn, Dbs};
use super::error::{Error, Result};
use super::follow::End;
use super::lanes::{self, Lane, Route, is_refused};
use super::options::Options;
use super::peers::{self, keyspaces, scan, scan_step};
use super::rewrite::Rewriter;
use super::stats::{Phase, Stats};
use super::values::Values;
use super::{RETRY, Stop, sleep};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Keys that are read together.
const AT_ONCE: usize = 1000;
/// How often the progress of a pass is recorded.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// How often a value that changed during the read is read again.
const REREADS: usize = 5;

/// Progress of a pass: DB and cursor.
type At = (u64, u64);

/// A copy of a source with SCAN and keyspace events.
pub struct Scan<'s> {
    options: &'s Options,
    rewriter: &'s Rewriter,
    checkpoint: &'s Checkpoint,
    stop: &'s Stop,
    stats: &'s Arc<Stats>,
    /// Whether the target had no key that the copy could have brought.
    owned: bool,
    given: Given,
    events: Option<Events>,
    /// Whether changes may have been missed since the pass began.
    may_have_missed_events: bool,
    /// Whether the target may have keys that are gone from the source.
    may_have_stale_keys: bool,
    /// Whether a pass has ended and no change was missed since.
    is_pass_complete: bool,
    /// The run id of the target.
    target_run: Option<String>,
    /// DBs of the target.
    dbs: Dbs,
    /// Keys to be read again.
    again: BTreeSet<Place>,
    /// Changed keys whose commands the target may not have answered yet.
    under_way: Vec<Place>,
    /// Why function libraries could not be copied.
    no_functions: Option<String>,
    is_cluster: bool,
    typed: bool,
}

/// The connections of one attempt.
struct Session {
    source: Values,
    lanes: Vec<Lane>,
    target: Conn,
    run_id: String,
    received: u64,
}

impl<'s> Scan<'s> {
    /// The copy that these flags describe.
    pub fn new(
        options: &'s Options,
        rewriter: &'s Rewriter,
        checkpoint: &'s Checkpoint,
        stop: &'s Stop,
    ) -> Scan<'s> {
        Scan {
            options,
            rewriter,
            checkpoint,
            stop,
            stats: &rewriter.stats,
            owned: true,
            given: Given::Nothing,
            events: None,
            may_have_missed_events: false,
            may_have_stale_keys: false,
            is_pass_complete: false,
            target_run: None,
            dbs: Dbs::new(&options.target(), stop),
            again: BTreeSet::new(),
            under_way: Vec::new(),
            no_functions: None,
            is_cluster: false,
            typed: false,
        }
    }

    /// Copies and follows events until the end; reconnects after passing errors.
    pub fn run(&mut self, target: Conn) -> Result<End> {
        let mut target = Some(target);
        let mut is_first = true;
        loop {
            let error = match self.attempt(target.take(), is_first) {
                Ok(end) => return Ok(end),
                Err(error) => error,
            };
            is_first = false;
            self.again.extend(self.under_way.drain(..));
            self.stats.set_phase(Phase::Connecting);
            if self.stop.is_wanted() || matches!(error, Error::Stopped) {
                return Err(Error::stopped(self.checkpoint.has_file()));
            }
            if !error.is_passing() {
                return Err(error);
            }
            log::warn!("{error}; trying again");
            self.stats.reconnects.fetch_add(1, Ordering::Relaxed);
            sleep(RETRY, self.stop);
        }
    }

    fn attempt(&mut self, target: Option<Conn>, is_first: bool) -> Result<End> {
        let mut target = match target {
            Some(target) => target,
            None => Conn::new(&self.options.target(), self.stop)?,
        };
        let known = self.checkpoint.recall(&mut target, is_first)?;
        if is_first {
            self.owned = match &known {
                Some(progress) => progress.owned,
                None => peers::is_free(&mut target, &self.rewriter.mapping, self.stop)?,
            };
            self.may_have_stale_keys = known.is_some();
            if !self.owned && known.is_none() {
                log::warn!(
                    "the target has keys already: those that the source does not have stay, others are overwritten"
                );
            }
        }
        let mut source = Conn::new(&self.options.source(), self.stop)?;
        source.limit_reading(self.options.network_limit);
        let about = source.info("all")?;
        self.is_cluster = about.get("cluster_enabled") == Some("1");
        let run_id = about.get("run_id").unwrap_or_default().to_owned();
        let target_run = target.info("server")?.get("run_id").map(str::to_owned);
        let is_unsubscribed = self
            .events
            .as_ref()
            .is_none_or(|events| !events.is_running());
        if !is_first && (is_unsubscribed || target_run != self.target_run) {
            // Events were missed, or the target may have lost writes in a restart.
            (
                self.may_have_missed_events,
                self.may_have_stale_keys,
                self.is_pass_complete,
            ) = (true, true, false);
        }
        self.target_run = target_run;
        if is_unsubscribed {
            self.subscribe(&mut source)?;
        }
        let route = Route::new(self.options, self.rewriter.abilities);
        let mut session = Session {
            source: Values::new(source, self.rewriter.mapping.prefix())?,
            lanes: lanes::open(&route, self.stop, self.stats)?,
            target,
            run_id,
            received: 0,
        };
        self.typed = !session.source.has_dump;
        let mut from = self.place_of(&session, known.as_ref());
        // A pass from the beginning finds all changes.
        self.may_have_missed_events = from != (0, 0) && (self.may_have_missed_events || is_first);
        loop {
            if !self.is_pass_complete {
                self.pass(&mut session, from)?;
                self.read_again(&mut session)?;
                if self.may_have_stale_keys && self.owned {
                    self.remove_old(&mut session)?;
                }
                let copying = self.progress(None);
                self.checkpoint.set_marker(&mut session.target, &copying)?;
                self.is_pass_complete = true;
            }
            if let Some(end) = self.follow(&mut session)? {
                return Ok(end);
            }
            log::info!("changes may have been missed: all keys are read again");
            (
                self.may_have_missed_events,
                self.may_have_stale_keys,
                self.is_pass_complete,
            ) = (false, true, false);
            from = (0, 0);
        }
    }

    fn subscribe(&mut self, source: &mut Conn) -> Result<()> {
        self.events = None;
        self.given = Given::ask(source)?;
        if self.given != Given::Nothing {
            let source = self.options.source();
            let mapping = &self.rewriter.mapping;
            let subscribed = Events::subscribe(&source, &self.given, mapping, self.stop);
            match subscribed {
                Ok(events) => self.events = Some(events),
                Err(Error::Refused(error)) => {
                    log::warn!("{error}");
                    self.given = Given::Nothing;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn progress(&self, copied: Option<Copied>) -> Progress {
        Progress {
            owned: self.owned,
            stage: Stage::Copying(copied),
        }
    }

    /// The marker's value at this progress of a pass.
    fn copied(session: &Session, (db, cursor): At) -> Copied {
        Copied {
            id: format!("scan-{}", session.run_id),
            next: db,
            bytes: cursor,
        }
    }

    /// Where the pass of the marker continues; the beginning if its run of the source is
    /// over.
    fn place_of(&self, session: &Session, known: Option<&Progress>) -> At {
        let copied = match known.map(|known| &known.stage) {
            Some(Stage::Copying(Some(copied))) => copied,
            _ => return (0, 0),
        };
        let at = (copied.next, copied.bytes);
        let is_same = !session.run_id.is_empty() && *copied == Self::copied(session, at);
        if !is_same {
            return (0, 0);
        }
        if at != (0, 0) {
            log::info!("going on with the copy in DB {}, at cursor {}", at.0, at.1);
        }
        at
    }

    /// The copied DBs and their targets.
    fn copied_dbs(&self, source: &mut Conn) -> Result<Vec<(u64, u64)>> {
        let mapping = &self.rewriter.mapping;
        let mut dbs: Vec<(u64, u64)> = match mapping.dbs() {
            Some(dbs) => dbs.iter().map(|(from, to)| (*from, *to)).collect(),
            None => {
                let known = keyspaces(source)?;
                known.iter().map(|known| (known.db, known.db)).collect()
            }
        };
        dbs.sort_unstable();
        Ok(dbs)
    }

    /// Visits all keys, from `from` on.
    fn pass(&mut self, session: &mut Session, from: At) -> Result<()> {
        let stats = self.stats;
        stats.set_phase(Phase::Copying);
        stats.copies.fetch_add(1, Ordering::Relaxed);
        for figure in [
            &stats.keys,
            &stats.left_out,
            &stats.timed_values,
            &stats.timed_elements,
        ] {
            figure.store(0, Ordering::Relaxed);
        }
        let dbs = self.copied_dbs(&mut session.source.conn)?;
        let known = keyspaces(&mut session.source.conn)?;
        let copied = known
            .iter()
            .filter(|known| dbs.iter().any(|(from, _)| *from == known.db));
        let expected = copied.map(|known| known.keys).sum();
        stats.keys_expected.store(expected, Ordering::Relaxed);
        self.note(session, from)?;
        if from == (0, 0) {
            self.copy_functions(session)?;
        }
        let mut noted = Instant::now();
        for (db, to) in dbs {
            if db < from.0 || is_refused(&mut self.dbs, to, self.options.keep_going, stats)? {
                continue;
            }
            let mut cursor = if db == from.0 { from.1 } else { 0 };
            loop {
                self.stop.check()?;
                session.source.select(db)?;
                let prefix = self.rewriter.mapping.prefix();
                let (next, keys) = scan_step(&mut session.source.conn, cursor, prefix)?;
                let found = keys.len() as u64;
                let copied = self.copy_keys(session, db, &keys)?;
                stats.keys.fetch_add(copied, Ordering::Relaxed);
                stats
                    .left_out
                    .fetch_add(found.saturating_sub(copied), Ordering::Relaxed);
                self.copy_changed(session)?;
                cursor = next;
                if noted.elapsed() >= NOTE_EVERY {
                    self.drain(session)?;
                    self.note(session, (db, cursor))?;
                    noted = Instant::now();
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        self.drain(session)?;
        let keys = stats.keys.load(Ordering::Relaxed);
        log::info!("copied {keys} keys");
        Ok(())
    }

    fn note(&self, session: &mut Session, at: At) -> Result<()> {
        let progress = self.progress(Some(Self::copied(session, at)));
        self.checkpoint.set_marker(&mut session.target, &progress)
    }

    /// Waits until the target has answered all commands.
    fn drain(&mut self, session: &mut Session) -> Result<()> {
        for lane in &mut session.lanes {
            lane.flush()?;
        }
        for lane in &mut session.lanes {
            lane.drain()?;
        }
        self.under_way.clear();
        Ok(())
    }

    /// Copies keys of a DB of the source, or deletes those that are gone; returns how
    /// many exist and are copied.
    fn copy_keys(&mut self, session: &mut Session, db: u64, keys: &[Vec<u8>]) -> Result<u64> {
        // A new DB of the source may not exist at the target.
        let keep_going = self.options.keep_going;
        if let Some(to) = self.rewriter.mapping.db(db)
            && is_refused(&mut self.dbs, to, keep_going, self.stats)?
        {
            return Ok(0);
        }
        session.source.select(db)?;
        let mut writer = Writer::new(self.rewriter, self.stop, self.stats, &mut session.lanes, db);
        let copied = writer.copy(&mut session.source, keys);
        let changed = writer.changed;
        self.again.extend(changed.into_iter().map(|key| (db, key)));
        let received = session.source.conn.received;
        let came = received - std::mem::replace(&mut session.received, received);
        self.stats.bytes_in.fetch_add(came, Ordering::Relaxed);
        copied
    }

    /// Copies some of the changed keys; returns how many.
    fn copy_changed(&mut self, session: &mut Session) -> Result<usize> {
        let mut places: Vec<Place> = Vec::new();
        while places.len() < AT_ONCE
            && let Some(place) = self.again.pop_first()
        {
            places.push(place);
        }
        if let Some(events) = &self.events {
            places.extend(events.take(AT_ONCE - places.len()));
            let waiting = events.waiting() as u64;
            self.stats.waiting.store(waiting, Ordering::Relaxed);
        }
        self.copy_places(session, places)
    }

    /// Copies keys of any DBs; returns how many.
    fn copy_places(&mut self, session: &mut Session, mut places: Vec<Place>) -> Result<usize> {
        places.sort_unstable();
        places.dedup();
        self.under_way.extend(places.iter().cloned());
        for same_db in places.chunk_by(|a, b| a.0 == b.0) {
            let Some((db, _)) = same_db.first() else {
                continue;
            };
            let keys: Vec<Vec<u8>> = same_db.iter().map(|(_, key)| key.clone()).collect();
            self.copy_keys(session, *db, &keys)?;
        }
        Ok(places.len())
    }

    /// Reads keys again whose values changed during the read.
    fn read_again(&mut self, session: &mut Session) -> Result<()> {
        for _ in 0..REREADS {
            if self.again.is_empty() {
                return Ok(());
            }
            let places: Vec<Place> = std::mem::take(&mut self.again).into_iter().collect();
            for places in places.chunks(AT_ONCE) {
                self.copy_places(session, places.to_vec())?;
            }
        }
        for (db, key) in std::mem::take(&mut self.again) {
            let shown = super::error::shown(&key);
            log::error!("DB {db} key {shown:?}: it changed during each read");
            self.stats.errors.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes keys from the target that are not at the source.
    fn remove_old(&mut self, session: &mut Session) -> Result<()> {
        self.drain(session)?;
        let mapping = &self.rewriter.mapping;
        let dbs: Vec<(u64, u64)> = match mapping.dbs() {
            Some(dbs) => dbs.iter().map(|(from, to)| (*from, *to)).collect(),
            None => {
                let known = keyspaces(&mut session.target)?;
                known.iter().map(|known| (known.db, known.db)).collect()
            }
        };
        let Session {
            source,
            lanes,
            target,
            ..
        } = session;
        for (from, to) in dbs {
            let select = ["SELECT".to_owned(), from.to_string()];
            if source.conn.ask_maybe(&select)?.is_none() {
                // The target has more DBs than the source.
                continue;
            }
            for prefix in mapping.target_prefixes() {
                scan(target, to, &prefix, self.stop, |_, names| {
                    let keys: Vec<Vec<u8>> = names
                        .iter()
                        .filter_map(|name| mapping.source_key(name))
                        .collect();
                    let missing = source.missing(&keys)?;
                    let mut writer = Writer::new(self.rewriter, self.stop, self.stats, lanes, from);
                    missing.iter().try_for_each(|key| writer.remove(key))?;
                    Ok(true)
                })?;
            }
        }
        self.drain(session)
    }

    /// Function libraries belong to no DB, so they are copied only if everything is.
    fn copy_functions(&mut self, session: &mut Session) -> Result<()> {
        let mapping = &self.rewriter.mapping;
        if mapping.dbs().is_some() || !mapping.is_whole() {
            return Ok(());
        }
        let libraries = match session.source.conn.ask(&["FUNCTION", "LIST", "WITHCODE"]) {
            Ok(libraries) => libraries,
            Err(Error::Refused(error)) => {
                self.no_functions = Some(error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let Some(lane) = session.lanes.first_mut() else {
            return Ok(());
        };
        for library in libraries.as_slice().unwrap_or_default() {
            let mut fields = library.as_slice().unwrap_or_default().chunks(2);
            let code = fields.find_map(|field| match field {
                [name, code] if name.as_bytes() == Some(b"library_code") => code.as_bytes(),
                _ => None,
            });
            if let Some(code) = code {
                lane.maker
                    .command(&[b"FUNCTION", b"LOAD", b"REPLACE", code]);
            }
        }
        lane.flush()
    }

    /// Follows the events; `None` if another pass is needed.
    fn follow(&mut self, session: &mut Session) -> Result<Option<End>> {
        if self.events.is_none() {
            return Ok(Some(End::Exhausted));
        }
        if self.may_have_missed_events {
            return Ok(None);
        }
        let ends = self.options.exit_when_synced || self.options.src_from_rdb;
        self.stats.set_phase(Phase::Watching);
        log::info!("following keyspace events");
        let mut marked = Instant::now();
        // Before the copy counts as complete, all events sent until now are received.
        let mut is_settled = false;
        loop {
            if self.stop.is_wanted() {
                return Ok(Some(End::Stopped));
            }
            let Some(events) = &self.events else {
                return Ok(None);
            };
            events.check()?;
            if events.has_lost() {
                return Ok(None);
            }
            if ends && !is_settled {
                events.settle(self.stop)?;
                is_settled = true;
            }
            let changed = self.copy_changed(session)?;
            if changed > 0 {
                self.drain(session)?;
                let commands = &self.stats.commands;
                commands.fetch_add(changed as u64, Ordering::Relaxed);
            }
            if changed == 0 && ends {
                return Ok(Some(End::Synced));
            }
            if marked.elapsed() >= MARKER_RENEWAL {
                let copying = self.progress(None);
                self.checkpoint.set_marker(&mut session.target, &copying)?;
                marked = Instant::now();
            }
            if let (0, Some(events)) = (changed, &self.events) {
                events.wait();
            }
        }
    }

    /// The progress for a later run, which may then delete keys that are gone.
    pub fn rest(&self) -> Option<Progress> {
        self.checkpoint.has_file().then(|| self.progress(None))
    }

    /// Logs what such a copy cannot guarantee.
    pub(super) fn log_limits(&self) {
        let mut limits = vec![
            "values were read one after the other: there was no moment at which the source had all of them".to_owned(),
        ];
        match (&self.given, &self.events) {
            (_, None) | (Given::Nothing, _) => limits.push(
                "the source gave no keyspace events: what was written, deleted or expired while the tool ran may be missing or still be there; with notify-keyspace-events AKE at the source the tool follows changes".into(),
            ),
            (given, _) => {
                limits.push(
                    "FLUSHDB, FLUSHALL, SWAPDB and changes of functions give no events, and were not followed".into(),
                );
                limits.push(
                    "XREADGROUP, XACK, XCLAIM and XAUTOCLAIM give no events: what groups of a stream have read is as of the stream's last change".into(),
                );
                match given {
                    Given::Unknown => limits.push(
                        "the source does not tell which keyspace events it gives: if notify-keyspace-events is not AKE, changes are missing".into(),
                    ),
                    Given::Classes { missing, .. } if !missing.is_empty() => limits.push(format!(
                        "the source gives no events of the classes {missing:?} (notify-keyspace-events): such changes are missing"
                    )),
                    _ => {}
                }
            }
        }
        if self.typed {
            limits.push(
                "the source refused DUMP: long collections that changed while they were read may be a mixture where no event told of it, and when entries of streams were delivered is known to some ms".into(),
            );
        }
        if let Some(error) = &self.no_functions {
            limits.push(format!("libraries of functions were not copied: {error}"));
        }
        if self.is_cluster {
            limits
                .push("the source is one node of a cluster: only its own keys were copied".into());
        }
        for limit in limits {
            log::warn!("--scan: {limit}");
        }
        log::warn!(
            "--scan: once the source gets no more writes, --verify checks whether both are equal"
        );
    }
}
