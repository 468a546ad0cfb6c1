//! BIGKEYS: which keys and prefixes take most space; see [`crate::state::bigkeys`].

mod scan;
#[cfg(test)]
mod tests;

use super::args::Options;
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::num;
use crate::commands::table::help;
use crate::commands::table::spec::{Dbs, Group};
use crate::resp::Reply;
use crate::state::bigkeys::{
    Big, DEPTH_MAX, OfType, PREFIX_BYTES, Plan, Progress, Ranking, Report, State, TOP_MAX, Total,
};
use crate::storage::DbIndex;
use crate::sys::clock;
use std::thread::Builder;

/// Longest separator, in bytes.
const SEPARATOR_MAX: usize = 16;
/// Rows of a collection that are read, unless SAMPLES says otherwise.
const SAMPLES: u64 = 1024;
/// Most rows that SAMPLES and RATE name.
const ROWS_MAX: i64 = 1_000_000_000;

const RUNS: Error = Error::text("ERR a scan is already in progress");

/// A number within bounds, or an error that names them.
fn within(
    options: &mut Options<'_>,
    name: &str,
    bounds: std::ops::RangeInclusive<i64>,
) -> Result<u64, Error> {
    let value = num::parse_i64(options.value()?).filter(|n| bounds.contains(n));
    let value = value.and_then(|n| u64::try_from(n).ok());
    value.ok_or_else(|| {
        let (least, most) = bounds.into_inner();
        Error::owned(format!("ERR {name} must be between {least} and {most}"))
    })
}

/// Text of a bounded length, or an error that names it.
fn text(
    options: &mut Options<'_>,
    name: &str,
    bounds: std::ops::RangeInclusive<usize>,
) -> Result<Vec<u8>, Error> {
    let value = options.value()?;
    match bounds.contains(&value.len()) {
        true => Ok(value.to_vec()),
        false => Err(Error::owned(format!(
            "ERR {name} must have {} to {} bytes",
            bounds.start(),
            bounds.end()
        ))),
    }
}

fn plan(ctx: &SessionCtx<'_>, args: &[&[u8]]) -> Result<Plan, Error> {
    let mut plan = Plan {
        db: None,
        prefix: Vec::new(),
        separator: b":".to_vec(),
        depth: 1,
        top: 10,
        samples: SAMPLES,
        rate: 0,
    };
    let mut options = Options::new(args, 2);
    while !options.is_empty() {
        if options.word("DB") {
            let db = super::args::int(options.value()?)?;
            let databases = ctx.server.engine.config.databases;
            let db = u16::try_from(db).ok().filter(|db| *db < databases);
            plan.db = Some(DbIndex(db.ok_or(Error::NO_SUCH_DB)?));
        } else if options.word("PREFIX") {
            plan.prefix = text(&mut options, "PREFIX", 0..=PREFIX_BYTES)?;
        } else if options.word("SEPARATOR") {
            plan.separator = text(&mut options, "SEPARATOR", 1..=SEPARATOR_MAX)?;
        } else if options.word("DEPTH") {
            plan.depth = within(&mut options, "DEPTH", 0..=DEPTH_MAX as i64)? as usize;
        } else if options.word("TOP") {
            plan.top = within(&mut options, "TOP", 1..=TOP_MAX as i64)? as usize;
        } else if options.word("SAMPLES") {
            plan.samples = within(&mut options, "SAMPLES", 0..=ROWS_MAX)?;
        } else if options.word("RATE") {
            plan.rate = within(&mut options, "RATE", 0..=ROWS_MAX)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(plan)
}

fn start(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    let plan = plan(ctx, args)?;
    let bigkeys = &ctx.server.bigkeys;
    if !bigkeys.begin(plan.clone(), clock::unix_ms()) {
        return Err(RUNS);
    }
    let (engine, scans) = (ctx.server.engine.clone(), bigkeys.clone());
    let thread = Builder::new().name("bigkeys".to_owned());
    match thread.spawn(move || scan::run(&engine, &scans, &plan)) {
        Ok(thread) => bigkeys.run_by(thread),
        Err(error) => {
            log::error!("cannot start the thread bigkeys: {error}");
            let text = format!("cannot start a thread: {error}");
            bigkeys.adding().ends(State::Failed(text.clone()));
            return Err(Error::owned(format!("ERR {text}")));
        }
    }
    ctx.reply.ok();
    Ok(())
}

fn stop(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    match ctx.server.bigkeys.stop() {
        true => ctx.reply.ok(),
        false => ctx.reply.null(),
    }
    Ok(())
}

fn reset(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    match ctx.server.bigkeys.reset() {
        true => ctx.reply.ok(),
        false => return Err(RUNS),
    }
    Ok(())
}

fn status(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    match ctx.server.bigkeys.progress() {
        Some(progress) => {
            ctx.reply.map(PROGRESS_FIELDS);
            write_progress(ctx.reply, &progress);
        }
        None => ctx.reply.null(),
    }
    Ok(())
}

fn get(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    match ctx.server.bigkeys.report() {
        Some(report) => write_report(ctx.reply, &report),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn int(reply: &mut Reply, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.int(i64::try_from(value).unwrap_or(i64::MAX));
}

fn bulk(reply: &mut Reply, name: &str, value: &[u8]) {
    reply.bulk(name.as_bytes());
    reply.bulk(value);
}

/// The fields that [`write_progress`] writes.
const PROGRESS_FIELDS: usize = 14;

fn write_progress(reply: &mut Reply, progress: &Progress) {
    let plan = &progress.plan;
    let (state, error) = match &progress.state {
        State::Starting => ("starting", ""),
        State::Running => ("running", ""),
        State::Done => ("done", ""),
        State::Stopped => ("stopped", ""),
        State::Failed(error) => ("failed", error.as_str()),
    };
    bulk(reply, "state", state.as_bytes());
    bulk(reply, "error", error.as_bytes());
    int(reply, "start-time-unix-ms", progress.began_ms.0);
    int(reply, "duration-ms", progress.took_ms);
    int(reply, "keys-expected", progress.expected);
    int(reply, "keys-scanned", progress.passed);
    int(reply, "rows-read", progress.rows);
    reply.bulk(b"db");
    reply.int(plan.db.map_or(-1, |db| i64::from(db.0)));
    bulk(reply, "prefix", &plan.prefix);
    bulk(reply, "separator", &plan.separator);
    int(reply, "depth", plan.depth as u64);
    int(reply, "top", plan.top as u64);
    int(reply, "samples", plan.samples);
    int(reply, "rate", plan.rate);
}

fn write_total(reply: &mut Reply, total: &Total) {
    int(reply, "keys", total.keys);
    int(reply, "elements", total.elements);
    int(reply, "bytes", total.bytes);
}

fn write_report(reply: &mut Reply, report: &Report) {
    reply.map(PROGRESS_FIELDS + 8);
    write_progress(reply, &report.progress);
    write_total(reply, &report.total);
    int(reply, "keys-estimated", report.estimated);
    reply.bulk(b"types");
    reply.map(report.types.len());
    for of in &report.types {
        reply.bulk(of.kind.name().as_bytes());
        reply.map(3);
        write_total(reply, &of.total);
    }
    reply.bulk(b"prefixes");
    reply.array(report.prefixes.len());
    for (depth, ranking) in report.prefixes.iter().enumerate() {
        write_ranking(reply, depth + 1, ranking);
    }
    type List = fn(&OfType) -> &[Big];
    let lists: [(&str, List); 2] = [
        ("biggest-by-bytes", |of| &of.by_bytes),
        ("biggest-by-elements", |of| &of.by_elements),
    ];
    for (name, list) in lists {
        reply.bulk(name.as_bytes());
        reply.map(report.types.len());
        for of in &report.types {
            reply.bulk(of.kind.name().as_bytes());
            reply.array(list(of).len());
            for key in list(of) {
                write_key(reply, key);
            }
        }
    }
}

fn write_ranking(reply: &mut Reply, depth: usize, ranking: &Ranking) {
    reply.map(4);
    int(reply, "depth", depth as u64);
    reply.bulk(b"biggest");
    reply.array(ranking.first.len());
    for one in &ranking.first {
        reply.map(5);
        int(reply, "db", u64::from(one.db.0));
        bulk(reply, "prefix", &one.name);
        write_total(reply, &one.total);
    }
    int(reply, "other-prefixes", ranking.others);
    reply.bulk(b"rest");
    reply.map(3);
    write_total(reply, &ranking.rest);
}

fn write_key(reply: &mut Reply, key: &Big) {
    reply.map(6);
    int(reply, "db", u64::from(key.db().0));
    bulk(reply, "key", key.name());
    int(reply, "key-bytes", key.name_bytes as u64);
    int(reply, "bytes", key.bytes);
    int(reply, "elements", key.elements);
    int(reply, "estimated", u64::from(key.estimated));
}

const HELP: &[help::Topic] = &[
    (
        "START [DB <db>] [PREFIX <prefix>] [DEPTH <depth>] [SEPARATOR <separator>] [TOP <count>]",
        &[
            "Begin to look at all keys, from a snapshot and in the background, for those",
            "that take most space or have most elements, and for the space of prefixes.",
            "PREFIX: only keys that begin with it. DEPTH: prefixes end at the first so",
            "many separators (default: 1). TOP: how many are reported (default: 10).",
        ],
    ),
    (
        "START ... [SAMPLES <rows>] [RATE <rows>]",
        &[
            "SAMPLES: rows of a collection that are read (default: 1024, 0: all).",
            "RATE: rows that are read in a second, at most (default: 0, all that go).",
        ],
    ),
    ("STATUS", &["How far the scan is."]),
    ("GET", &["What is found by now, or was found last."]),
    ("STOP", &["End the scan; GET still answers."]),
    ("RESET", &["Forget what a scan that has ended has found."]),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "BIGKEYS", HELP);
    Ok(())
}

const HELPS: Flags = Flags::LOADING.union(Flags::STALE);
const ADMIN: Flags = Flags::ADMIN.union(Flags::NOSCRIPT);

const fn row(command: Command, summary: &'static str) -> Command {
    command.doc(Group::Server, "7.4.0", summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("get", 2, get)
            .complexity("O(N), N: keys and prefixes reported")
            .dbs(Dbs::All)
            .flags(ADMIN),
        "Returns the keys and prefixes that take most space",
    ),
    row(
        Command::session("help", 2, help).flags(HELPS),
        "Lists the subcommands",
    ),
    row(
        Command::session("reset", 2, reset).flags(ADMIN),
        "Forgets what was found",
    ),
    row(
        Command::session("start", -2, start)
            .syntax(
                "[DB db:int] [PREFIX prefix] [DEPTH depth:int] [SEPARATOR separator] \
                 [TOP count:int] [SAMPLES rows:int] [RATE rate:int]",
            )
            .dbs(Dbs::All)
            .flags(ADMIN),
        "Begins to look for the keys and prefixes that take most space",
    ),
    row(
        Command::session("status", 2, status).flags(ADMIN),
        "Returns how far the scan is",
    ),
    row(
        Command::session("stop", 2, stop).flags(ADMIN),
        "Ends the scan",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::container("bigkeys", -2, SUBCOMMANDS),
    "Commands about the keys that take most space",
)];
