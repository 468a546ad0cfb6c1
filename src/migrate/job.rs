//! A migration from start to end, over broken connections.

use super::aof::{self, AofFeed};
use super::checkpoint::{Checkpoint, Progress};
use super::conn::{Conn, Info};
use super::copy::{self, Oldest, Writing};
use super::elements::Abilities;
use super::error::{Error, Result};
use super::follow::{End, Follower, Following};
use super::mapping::{Mapping, pattern};
use super::options::{Endpoint, Options};
use super::progress::Reporter;
use super::psync::{Answer, Position, Stream, source_offset};
use super::rewrite::Rewriter;
use super::stats::{Phase, Stats};
use super::{Server, Stop, Tool, sleep, verify};
use crate::resp::Value;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// How often the source is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Keys that one step of a scan looks for.
const SCAN_COUNT: &str = "1000";

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
        abilities: abilities(&about),
        mapping,
    };
    let mut job = Job {
        checkpoint: Checkpoint::new(&options, &rewriter.mapping),
        owned: true,
        client: None,
        run_id: None,
        options,
        rewriter,
        stop,
        stats,
    };
    let is_copying = job.options.exit_when_synced || !job.options.verify;
    if is_copying {
        let end = job.migrate(target)?;
        if end == End::Stopped {
            reporter.end();
            return Ok(ExitCode::SUCCESS);
        }
    }
    let different = match job.options.verify {
        true => verify::compare(&job.options, &job.rewriter.mapping, &job.stop, &job.stats)?,
        false => 0,
    };
    reporter.end();
    let refused = match is_copying {
        true => job.stats.errors.load(Ordering::Relaxed),
        false => 0,
    };
    Ok(match different == 0 && refused == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// What a server says of itself, if it is of that kind.
fn check_server(conn: &mut Conn, endpoint: &Endpoint, wanted: Server) -> Result<Info> {
    let about = conn.info("all")?;
    let kind = match (about.get("kedis_version"), about.get("redis_version")) {
        (Some(_), _) => Server::Kedis,
        (None, Some(_)) => Server::Redis,
        _ => {
            return Err(Error::Refused(format!(
                "the {endpoint} does not say what it is: INFO has no redis_version"
            )));
        }
    };
    match kind == wanted {
        true => Ok(about),
        false => Err(Error::Refused(format!(
            "the {endpoint} is a {kind}, and this tool wants a {wanted}: from Redis to Kedis it is redis_to_kedis, from Kedis to Redis kedis_to_redis, between two Kedis kedis_port"
        ))),
    }
}

fn abilities(about: &Info) -> Abilities {
    let version = about.get("redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Abilities {
        set_pxat: version >= (6, 2),
    }
}

/// The DBs of a server that have keys.
pub fn dbs_with_keys(conn: &mut Conn) -> Result<Vec<u64>> {
    let info = conn.info("keyspace")?;
    Ok((0..=u64::from(u16::MAX))
        .filter(|db| info.get(&format!("db{db}")).is_some())
        .collect())
}

/// Calls `each` with the keys of a DB that begin with `prefix`, some at a time,
/// until it says false. The connection's DB is that one then.
pub fn scan(
    conn: &mut Conn,
    db: u64,
    prefix: &[u8],
    stop: &Stop,
    mut each: impl FnMut(&mut Conn, Vec<Vec<u8>>) -> Result<bool>,
) -> Result<()> {
    let malformed = || Error::Refused("SCAN was answered with something else".into());
    conn.ask(&["SELECT", &db.to_string()])?;
    let matching = pattern(prefix);
    let mut cursor = b"0".to_vec();
    loop {
        stop.check()?;
        let args: [&[u8]; 6] = [
            b"SCAN",
            &cursor,
            b"MATCH",
            &matching,
            b"COUNT",
            SCAN_COUNT.as_bytes(),
        ];
        let Value::Array(answer) = conn.ask(&args)? else {
            return Err(malformed());
        };
        let Ok([next, Value::Array(keys)]) = <[Value; 2]>::try_from(answer) else {
            return Err(malformed());
        };
        let keys = keys.into_iter().map(|key| match key {
            Value::Bulk(key) => Ok(key),
            _ => Err(malformed()),
        });
        let keys: Vec<Vec<u8>> = keys.collect::<Result<_>>()?;
        cursor = next.as_bytes().ok_or_else(malformed)?.to_vec();
        if !keys.is_empty() && !each(conn, keys)? || cursor == b"0" {
            return Ok(());
        }
    }
}

/// The DBs of the target that hold what is copied.
fn target_dbs(target: &mut Conn, mapping: &Mapping) -> Result<Vec<u64>> {
    match mapping.dbs() {
        Some(dbs) => Ok(dbs.values().copied().collect()),
        None => dbs_with_keys(target),
    }
}

/// Removes all keys from the target that the copy could have brought, in these
/// DBs or in all.
pub fn clear_keys(
    target: &mut Conn,
    mapping: &Mapping,
    dbs: Option<&[u64]>,
    stop: &Stop,
) -> Result<()> {
    let dbs = match dbs {
        Some(dbs) => dbs.to_vec(),
        None => target_dbs(target, mapping)?,
    };
    for db in dbs {
        if mapping.has_all_keys() {
            target.ask(&["SELECT", &db.to_string()])?;
            target.ask(&["FLUSHDB"])?;
            continue;
        }
        for prefix in mapping.target_prefixes() {
            scan(target, db, &prefix, stop, |target, keys| {
                let mut unlink: Vec<&[u8]> = vec![b"UNLINK"];
                unlink.extend(keys.iter().map(Vec::as_slice));
                target.ask(&unlink)?;
                Ok(true)
            })?;
        }
    }
    Ok(())
}

struct Job {
    options: Options,
    rewriter: Rewriter,
    checkpoint: Checkpoint,
    stop: Stop,
    stats: Arc<Stats>,
    owned: bool,
    /// The connection that the stream is written over, and to which run of the
    /// target: one that broke here may still be alive there.
    client: Option<i64>,
    run_id: Option<String>,
}

impl Job {
    /// Copies and follows until the end, whatever breaks meanwhile.
    fn migrate(&mut self, target: Conn) -> Result<End> {
        let mut target = Some(target);
        let mut is_first = true;
        loop {
            let done = self.attempt(target.take(), is_first);
            let error = match done {
                Ok((end, position)) => {
                    self.part(&position)?;
                    return Ok(end);
                }
                Err(error) => error,
            };
            is_first = false;
            self.stats.set_phase(Phase::Connecting);
            if self.stop.is_wanted() || matches!(error, Error::Stopped) {
                return Err(Error::Refused(match self.checkpoint.has_file() {
                    true => "stopped before the copy was complete, or while a server was away: begin again with the same flags".into(),
                    false => "stopped before the copy was complete".into(),
                }));
            }
            if let Error::Command {
                is_partial: true, ..
            } = &error
            {
                // What else was in the transaction has been run: only another
                // copy helps.
                let progress = self.progress(None);
                let set = Conn::new(&self.options.target(), &self.stop)
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
            sleep(RETRY, &self.stop);
        }
    }

    /// Ends in peace: the file knows what the marker knew.
    fn part(&self, position: &Option<Position>) -> Result<()> {
        match position {
            Some(_) => {
                let progress = self.progress(position.clone());
                self.checkpoint.write_file(Some(&progress))?;
            }
            // There is nothing to go on with.
            None => self.checkpoint.remove_file()?,
        }
        let mut target = Conn::new(&self.options.target(), &self.stop)?;
        self.checkpoint.remove_marker(&mut target)?;
        match position {
            Some(position) => log::info!(
                "the target has everything up to offset {}",
                position.next - 1
            ),
            None => log::info!("the target has everything"),
        }
        Ok(())
    }

    fn progress(&self, position: Option<Position>) -> Progress {
        Progress {
            owned: self.owned,
            position,
        }
    }

    /// Does it all over one set of connections; returns up to where the target has
    /// the stream, if there is one.
    fn attempt(&mut self, target: Option<Conn>, is_first: bool) -> Result<(End, Option<Position>)> {
        let mut target = match target {
            Some(target) => target,
            None => Conn::new(&self.options.target(), &self.stop)?,
        };
        let run_id = target.info("server")?.get("run_id").map(str::to_owned);
        if let Some(client) = self.client.take()
            && self.run_id == run_id
        {
            // Nothing that is still on its way there may come after this.
            let kill = target.ask(&["CLIENT", "KILL", "ID", &client.to_string()]);
            log::debug!("the old connection: {kill:?}");
        }
        self.run_id = run_id;
        let marker = self.checkpoint.read_marker(&mut target)?;
        let known = match marker {
            Some(progress) => Some(progress),
            None if is_first => self.checkpoint.read_file()?,
            None => Some(self.progress(None)),
        };
        match &known {
            Some(progress) => self.owned = progress.owned,
            None => self.owned = self.is_target_free(&mut target)?,
        }
        if !self.owned && known.is_none() {
            log::warn!(
                "the target has keys already: those that the source does not have stay, others are overwritten"
            );
        }
        self.checkpoint.write_file(None)?;
        target.limit(self.options.network_limit);
        if self.options.is_offline() {
            return self.replay(target, known.is_some());
        }
        let from = known.as_ref().and_then(|known| known.position.as_ref());
        let (mut stream, answer) = Stream::psync(
            &self.options.source(),
            from,
            self.options.network_limit,
            &self.stop,
            &self.stats,
        )?;
        let (start, transfer) = match answer {
            Answer::Continue(id) => {
                let from = from.cloned().ok_or(Error::Stopped)?;
                (Position { id, ..from }, None)
            }
            Answer::Full(start, transfer) => (start, Some(transfer)),
        };
        let applied = Arc::new(AtomicU64::new(start.next));
        if transfer.is_some() {
            applied.store(0, Ordering::Release);
        }
        let acknowledging = stream.acknowledge(applied.clone())?;
        if let Some(transfer) = transfer {
            if let Some(from) = from {
                log::warn!(
                    "the source cannot go on at offset {}: copying anew",
                    from.next - 1
                );
            }
            self.begin_copy(&mut target, known.is_some())?;
            let (back, read) = self.copy(stream, Oldest::Kept)?;
            stream = back;
            stream.end_transfer(transfer, read)?;
            // The source may be waiting for it.
            acknowledging.now();
            log::info!(
                "copied {} keys; following from offset {}",
                self.stats.keys.load(Ordering::Relaxed),
                start.next - 1
            );
        } else {
            log::info!("following from offset {}", start.next - 1);
        }
        self.checkpoint
            .set_marker(&mut target, &self.progress(Some(start.clone())))?;
        if self.options.src_from_rdb {
            return Ok((End::Synced, Some(start)));
        }
        self.stats.set_phase(Phase::Following);
        self.client = target.ask(&["CLIENT", "ID"])?.as_i64();
        let mut watch = Watch::new(&self.options, &self.stop, &self.stats);
        let mut follower = Follower::new(self.following(applied), &mut stream, &mut target, start);
        let end = follower.run(|position| watch.is_done(position))?;
        let position = follower.position.clone();
        self.client = None;
        Ok((end, Some(position)))
    }

    fn following(&self, applied: Arc<AtomicU64>) -> Following<'_> {
        Following {
            rewriter: &self.rewriter,
            checkpoint: &self.checkpoint,
            owned: self.owned,
            applied,
            stats: &self.stats,
            stop: &self.stop,
            keep_going: self.options.keep_going,
            pipeline: self.options.pipeline,
        }
    }

    /// Copies or replays files; they have no position that one could go on at.
    fn replay(&mut self, mut target: Conn, is_again: bool) -> Result<(End, Option<Position>)> {
        self.begin_copy(&mut target, is_again)?;
        let files = match (&self.options.rdb_file, &self.options.aof_file) {
            (Some(file), _) => vec![file.clone()],
            (None, Some(file)) => aof::files(file)?,
            (None, None) => Vec::new(),
        };
        let (mut first, mut rest) = (None, files.as_slice());
        if let [base, others @ ..] = rest
            && (self.options.rdb_file.is_some() || aof::begins_with_rdb(base)?)
        {
            let oldest = match self.options.rdb_file {
                Some(_) => Oldest::LeftOut,
                None => Oldest::Kept,
            };
            let (back, _) = self.copy(aof::open(base)?, oldest)?;
            (first, rest) = (Some(back), others);
        }
        if self.options.rdb_file.is_some() {
            return Ok((End::Exhausted, None));
        }
        self.stats.set_phase(Phase::Following);
        let mut feed = AofFeed::new(first, rest, &self.stats);
        let start = Position {
            id: "file".into(),
            next: 1,
            db: 0,
        };
        // A replay that was cut off begins again: its marker says so.
        let following = Following {
            owned: self.owned,
            ..self.following(Arc::default())
        };
        let mut follower = Follower::new(following, &mut feed, &mut target, start);
        match follower.run(|_| Ok(false))? {
            End::Stopped => Err(Error::Stopped),
            end => Ok((end, None)),
        }
    }

    /// Makes the target ready for a copy.
    fn begin_copy(&mut self, target: &mut Conn, is_again: bool) -> Result<()> {
        self.stats.set_phase(Phase::Copying);
        self.stats.copies.fetch_add(1, Ordering::Relaxed);
        for figure in [
            &self.stats.keys,
            &self.stats.keys_expected,
            &self.stats.left_out,
        ] {
            figure.store(0, Ordering::Relaxed);
        }
        let progress = self.progress(None);
        self.checkpoint.set_marker(target, &progress)?;
        if is_again && self.owned {
            clear_keys(target, &self.rewriter.mapping, None, &self.stop)?;
            self.checkpoint.set_marker(target, &progress)?;
        } else if is_again {
            log::warn!(
                "keys that were copied before and are gone from the source since will stay: the target had keys of its own at the beginning"
            );
        }
        Ok(())
    }

    fn copy<R: std::io::BufRead>(&self, source: R, oldest: Oldest) -> Result<(R, u64)> {
        let writing = Writing {
            target: self.options.target(),
            abilities: self.rewriter.abilities,
            parallel: self.options.parallel,
            pipeline: self.options.pipeline,
            mb_per_s: self.options.network_limit,
            keep_going: self.options.keep_going,
            replace: !self.owned,
            oldest,
        };
        copy::copy(
            source,
            &self.rewriter.mapping,
            &writing,
            &self.stop,
            &self.stats,
        )
    }

    /// Whether the target has no key that the copy could bring.
    fn is_target_free(&self, target: &mut Conn) -> Result<bool> {
        let mapping = &self.rewriter.mapping;
        for db in target_dbs(target, mapping)? {
            for prefix in mapping.target_prefixes() {
                let mut found = false;
                scan(target, db, &prefix, &self.stop, |_, _| {
                    found = true;
                    Ok(false)
                })?;
                if found {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Looks how far the source is.
struct Watch<'w> {
    options: &'w Options,
    stop: &'w Stop,
    stats: &'w Stats,
    conn: Option<Conn>,
    looked: Option<Instant>,
    /// What the source had logged when following began.
    goal: Option<u64>,
}

impl<'w> Watch<'w> {
    fn new(options: &'w Options, stop: &'w Stop, stats: &'w Stats) -> Watch<'w> {
        Watch {
            options,
            stop,
            stats,
            conn: None,
            looked: None,
            goal: None,
        }
    }

    /// Whether the target has what it should have before the tool ends.
    fn is_done(&mut self, position: &Position) -> Result<bool> {
        let applied = position.next - 1;
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            self.looked = Some(Instant::now());
            match self.look() {
                Ok(offset) => {
                    self.goal.get_or_insert(offset);
                    let lag = offset.saturating_sub(applied);
                    self.stats.lag.store(lag, Ordering::Relaxed);
                }
                // The stream will tell if the source is gone.
                Err(error) => {
                    log::debug!("{error}");
                    self.conn = None;
                }
            }
        }
        let is_synced = self.goal.is_some_and(|goal| goal <= applied);
        Ok(is_synced && self.options.exit_when_synced)
    }

    fn look(&mut self) -> Result<u64> {
        let conn = match &mut self.conn {
            Some(conn) => conn,
            None => self
                .conn
                .insert(Conn::new(&self.options.source(), self.stop)?),
        };
        source_offset(conn)
    }
}
