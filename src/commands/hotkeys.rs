//! HOTKEYS: which keys take most of the processor's time and of the network's bytes; see
//! [`crate::state::hotkeys`].

use super::args::{BAD_SLOT, Options};
use super::{CmdResult, Command, Error, Flags, SessionCtx};
use crate::base::num;
use crate::base::slots::SLOTS;
use crate::commands::table::help;
use crate::commands::table::spec::Group;
use crate::resp::Reply;
use crate::state::hotkeys::{Findings, Plan, Used};
use crate::state::{Server, process};
use crate::sys::clock;
use std::sync::Arc;

/// How many metrics there are.
const METRICS: i64 = 2;

/// The processor's time that the process has used.
fn used() -> Used {
    let times = process::cpu_times();
    Used {
        user_ms: (times.user_s * 1000.0) as u64,
        system_ms: (times.system_s * 1000.0) as u64,
    }
}

/// A number within bounds, or this error.
fn within(arg: &[u8], bounds: std::ops::RangeInclusive<i64>, error: Error) -> Result<i64, Error> {
    num::parse_i64(arg)
        .filter(|n| bounds.contains(n))
        .ok_or(error)
}

/// The metrics behind METRICS. Words that are none are for other servers.
fn metrics(plan: &mut Plan, options: &mut Options<'_>) -> CmdResult {
    let count = within(
        options.value()?,
        1..=METRICS,
        Error::text("ERR METRICS count must be > 0 and <= 2"),
    )?;
    for _ in 0..count {
        if options.is_empty() {
            return Err(Error::text(
                "ERR METRICS count does not match number of metric types provided",
            ));
        }
        if options.word("CPU") {
            if std::mem::replace(&mut plan.cpu, true) {
                return Err(Error::text("ERR METRICS CPU defined more than once!"));
            }
        } else if options.word("NET") {
            if std::mem::replace(&mut plan.net, true) {
                return Err(Error::text("ERR METRICS NET defined more than once!"));
            }
        } else {
            options.value()?;
        }
    }
    match plan.cpu || plan.net {
        true => Ok(()),
        false => Err(Error::text(
            "ERR METRICS no valid metrics passed. Supported: CPU|NET",
        )),
    }
}

/// The slots behind SLOTS.
fn slots(server: &Server, options: &mut Options<'_>) -> Result<Arc<[u16]>, Error> {
    if !server.config.load().cluster_enabled {
        return Err(Error::text(
            "ERR SLOTS parameter cannot be used in non-cluster mode",
        ));
    }
    let error = Error::text("ERR SLOTS count must be between 1 and 16384");
    let count = within(options.value()?, 1..=i64::from(SLOTS), error)? as usize;
    if options.left() < count {
        return Err(Error::text("ERR not enough slot numbers provided"));
    }
    let mut slots = Vec::new();
    for _ in 0..count {
        let last = i64::from(SLOTS - 1);
        slots.push(within(options.value()?, 0..=last, BAD_SLOT)? as u16);
    }
    slots.sort_unstable();
    match slots.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(Error::text("ERR duplicate slot number")),
        false => Ok(slots.into()),
    }
}

fn plan(server: &Server, args: &[&[u8]]) -> Result<Plan, Error> {
    let mut plan = Plan {
        slots: None,
        cpu: false,
        net: false,
        count: 10,
        duration_ms: 0,
        sample: 1,
    };
    let mut options = Options::new(args, 2);
    if !options.word("METRICS") || options.is_empty() {
        return Err(Error::text("ERR METRICS parameter is required"));
    }
    metrics(&mut plan, &mut options)?;
    while !options.is_empty() {
        if options.left() < 2 {
            return Err(Error::Syntax);
        }
        if options.word("COUNT") {
            let error = Error::text("ERR COUNT must be between 1 and 64");
            plan.count = within(options.value()?, 1..=64, error)? as usize;
        } else if options.word("DURATION") {
            let error = Error::text("ERR DURATION must be between 1 and 1000000");
            plan.duration_ms = within(options.value()?, 1..=1_000_000, error)? as u64 * 1000;
        } else if options.word("SAMPLE") {
            let error = Error::text("ERR SAMPLE ratio must be positive");
            plan.sample = within(options.value()?, 1..=i64::from(i32::MAX), error)? as u32;
        } else if options.word("SLOTS") {
            if plan.slots.is_some() {
                return Err(Error::text("ERR SLOTS parameter already specified"));
            }
            plan.slots = Some(slots(server, &mut options)?);
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(plan)
}

fn start(ctx: &mut SessionCtx<'_>, args: &[&[u8]]) -> CmdResult {
    const RUNS: Error = Error::text("ERR hotkey tracking session already in progress");
    let (hotkeys, now_ms) = (&ctx.server.hotkeys, clock::unix_ms());
    // That one runs is said before what else is wrong.
    if hotkeys.findings(now_ms).is_some_and(|found| found.active) {
        return Err(RUNS);
    }
    match hotkeys.start(plan(ctx.server, args)?, used(), now_ms) {
        true => ctx.reply.ok(),
        false => return Err(RUNS),
    }
    Ok(())
}

fn stop(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    match ctx.server.hotkeys.stop(clock::unix_ms()) {
        true => ctx.reply.ok(),
        false => ctx.reply.null(),
    }
    Ok(())
}

fn reset(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    match ctx.server.hotkeys.reset(clock::unix_ms()) {
        true => ctx.reply.ok(),
        false => {
            return Err(Error::text(
                "ERR hotkey tracking session in progress, stop tracking first",
            ));
        }
    }
    Ok(())
}

fn get(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    match ctx.server.hotkeys.findings(clock::unix_ms()) {
        Some(found) => report(ctx.reply, &found),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// Slots in order as ranges; `None`: all, which a server without other nodes has.
fn selected(reply: &mut Reply, slots: Option<&[u16]>) {
    let all: Vec<u16> = (0..SLOTS).collect();
    let slots = slots.unwrap_or(&all);
    let ranges = || slots.chunk_by(|one, next| one + 1 == *next);
    reply.array(ranges().count());
    for range in ranges() {
        let ends = match range {
            [first, .., last] => vec![*first, *last],
            only => only.to_vec(),
        };
        reply.array(ends.len());
        ends.iter().for_each(|slot| reply.int(i64::from(*slot)));
    }
}

fn report(reply: &mut Reply, found: &Findings) {
    let (cpu, net) = (found.plan.cpu, found.plan.net);
    let selects = found.plan.slots.is_some();
    let samples = selects && found.plan.sample > 1;
    // One map in an array: proxies join the arrays of several servers.
    reply.array(1);
    let of_metrics = 3 * usize::from(cpu) + 2 * usize::from(net);
    reply.map(7 + 2 * usize::from(selects) + 2 * usize::from(samples) + of_metrics);
    let int = |reply: &mut Reply, name: &str, value: u64| {
        reply.bulk(name.as_bytes());
        reply.int(value as i64);
    };
    int(reply, "tracking-active", u64::from(found.active));
    int(reply, "sample-ratio", u64::from(found.plan.sample));
    reply.bulk(b"selected-slots");
    selected(reply, found.plan.slots.as_deref());
    let totals = [
        (
            samples,
            "sampled-commands-selected-slots-us",
            found.sampled.us,
        ),
        (selects, "all-commands-selected-slots-us", found.selected.us),
        (true, "all-commands-all-slots-us", found.all.us),
        (
            samples,
            "net-bytes-sampled-commands-selected-slots",
            found.sampled.bytes,
        ),
        (
            selects,
            "net-bytes-all-commands-selected-slots",
            found.selected.bytes,
        ),
        (true, "net-bytes-all-commands-all-slots", found.all.bytes),
    ];
    for (_, name, value) in totals.into_iter().filter(|(wanted, _, _)| *wanted) {
        int(reply, name, value);
    }
    int(reply, "collection-start-time-unix-ms", found.began_ms.0);
    int(reply, "collection-duration-ms", found.took_ms);
    if cpu {
        let now = used();
        let user_ms = now.user_ms.saturating_sub(found.used.user_ms);
        let system_ms = now.system_ms.saturating_sub(found.used.system_ms);
        int(reply, "total-cpu-time-user-ms", user_ms);
        int(reply, "total-cpu-time-sys-ms", system_ms);
    }
    if net {
        int(reply, "total-net-bytes", found.net_bytes);
    }
    let lists = [
        (cpu, "by-cpu-time-us", &found.by_cpu),
        (net, "by-net-bytes", &found.by_net),
    ];
    for (_, name, keys) in lists.into_iter().filter(|(wanted, _, _)| *wanted) {
        reply.bulk(name.as_bytes());
        let keys = || keys.iter().filter(|(_, value)| *value > 0);
        reply.array(2 * keys().count());
        for (key, value) in keys() {
            reply.bulk(key);
            reply.int(*value as i64);
        }
    }
}

const HELP: &[help::Topic] = &[
    (
        "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>] [SLOTS <count> <slot> ...]",
        &[
            "Begin to collect which keys take most of",
            "* CPU: the processor's time",
            "* NET: the bytes of requests and replies",
            "COUNT: how many keys are reported (default: 10).",
            "DURATION: when to stop (default: at STOP).",
            "SAMPLE: look at one command in so many (default: all).",
            "SLOTS: whose keys are collected, in a cluster (default: all).",
        ],
    ),
    ("STOP", &["End the collection; GET still answers."]),
    ("GET", &["What was collected."]),
    ("RESET", &["Forget a collection that has ended."]),
];

fn help(ctx: &mut SessionCtx<'_>, _args: &[&[u8]]) -> CmdResult {
    help::write(ctx.reply, "HOTKEYS", HELP);
    Ok(())
}

const HELPS: Flags = Flags::LOADING.union(Flags::STALE);
const ADMIN: Flags = Flags::ADMIN.union(Flags::NOSCRIPT);

const fn row(command: Command, summary: &'static str) -> Command {
    command.doc(Group::Server, "8.6.0", summary)
}

const SUBCOMMANDS: &[Command] = &[
    row(
        Command::session("get", 2, get)
            .complexity("O(N), N: keys reported")
            .flags(ADMIN),
        "Returns the keys that take most time and bytes",
    ),
    row(
        Command::session("help", 2, help).flags(HELPS),
        "Lists the subcommands",
    ),
    row(
        Command::session("reset", 2, reset).flags(ADMIN),
        "Forgets what was collected",
    ),
    row(
        Command::session("start", -2, start)
            .syntax(
                "METRICS metrics=(count:int [CPU] [NET]) [COUNT k:int] [DURATION seconds:int] \
                 [SAMPLE ratio:int] [SLOTS slots=(count:int slot:int...)]",
            )
            .flags(ADMIN),
        "Begins to collect which keys take most time and bytes",
    ),
    row(
        Command::session("stop", 2, stop).flags(ADMIN),
        "Ends the collection",
    ),
];

/// The rows of these commands in the command table.
pub const COMMANDS: &[Command] = &[row(
    Command::container("hotkeys", -2, SUBCOMMANDS),
    "Commands about the keys that take most time and bytes",
)];

#[cfg(test)]
mod tests;
